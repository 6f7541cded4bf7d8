//! The check of one path: the inodes on it, the directories that lead on, and everything of the file at its end with
//! its data. Nothing is repaired, and nothing else is read.

use super::issue::{Issue, Node, Paths, Verdict, show};
use super::{Checker, Findings, number, start, words};
use crate::format::*;
use crate::inode::Inode;
use arbor_base::cache::FileBlock;
use arbor_base::device::Kind;
use arbor_base::vfs::{CheckReport, Devices, Repair, Result};
use arbor_kit::blockmap::BlockMap as _;
use arbor_kit::issue::Finding;
use arbor_kit::paths::{Way, follow};
use arbor_kit::treecheck::{Names, Spot, TreeCheck as _, find_name};
use rustc_hash::FxHashSet;

/// Checks the file or directory at `path`, and what it takes to get there.
pub(crate) fn check_path(devices: Devices, path: &[u8]) -> Result<CheckReport> {
    let mut f = Findings::new(Repair::No);
    let dev = devices.main;
    let found = match start::superblock(&*dev)? {
        Ok(found) => found,
        Err(lost) => {
            f.note(lost);
            return Ok(f.finish(&Paths::new()));
        }
    };
    start::refuse_unknown(&found.sb, false)?;
    start::note_super(&*dev, &found, &mut f)?;
    let begun = start::begin(dev, &found, &mut f)?;
    let unclean = begun.says_unclean;
    let mut silent = |_: u64, _: u64, _: &str| ();
    let mut c = Checker { wary: true, ..Checker::new(begun.core, found.sb, f, &mut silent) };
    c.core.cache.keep_all(true);
    let mut paths = Paths::new();
    follow(&mut c, path, &mut paths)?;
    if c.undecided {
        c.follow_again(path, &mut paths)?;
    }
    c.f.report = CheckReport { unclean, ..c.counts() };
    Ok(c.f.finish(&paths))
}

impl Way for Checker<'_> {
    type Inode = Inode;

    fn root(&self) -> u64 {
        ROOT.0
    }

    /// Checks an inode on the path with its blocks and attributes, and the chunks of a directory.
    fn way_inode(&mut self, ino: u64, parent: u64) -> Result<Option<Inode>> {
        let (ino, parent) = (ino as u32, parent as u32);
        let entry = self.core.map_entry(number(ino))?;
        if entry.frag.get() == 0 {
            if ino == ROOT.0 as u32 {
                self.f.note(Verdict::RootLost { ino: ROOT.0, why: "is not in use" });
            }
            return Ok(None);
        }
        match self.raw_inode(number(ino), entry)? {
            Ok(d) => self.check_inode(ino, d)?,
            Err(why) => self.damaged.push((ino, why)),
        }
        for (ino, why) in std::mem::take(&mut self.damaged) {
            let at = self.byte(entry.frag.get());
            self.f.note(Issue::InodeDamaged { ino: Node(ino.into()), at, why });
        }
        if self.recs.find(ino).is_none() {
            return Ok(None);
        }
        let i = self.core.inode(number(ino))?;
        if i.is_dir() {
            self.check_chunks(&i, parent)?;
        }
        Ok(Some(i))
    }

    fn leads_on(&self, i: &Inode) -> bool {
        i.is_dir()
    }

    fn way_entry(&mut self, _dir: u64, i: &Inode, name: &[u8]) -> Result<Option<u64>> {
        let mut found = None;
        for lbn in 0..i.size().div_ceil(self.core.geom.block_size() as u64) {
            let Ok(page) = self.plain_page(i, lbn)? else { continue };
            found = found.or(find_name(&page, name));
        }
        let Some((ino, kind)) = found else { return Ok(None) };
        let (node, dir) = (Node(ino.0), Node(i.ino.0));
        let entry = self.core.map_entry(ino)?;
        if ino == IFILE || entry.frag.get() == 0 {
            self.f.note(Verdict::EntryTarget { dir, name: show(name), ino: node, why: "is not in use" });
            return Ok(None);
        }
        if self.raw_inode(ino, entry)?.is_ok_and(|d| d.kind() >> 12 != u32::from(kind)) {
            self.f.note(Verdict::EntryKind { dir, name: show(name), ino: node });
        }
        Ok(Some(ino.0))
    }

    fn is_sound(&self) -> bool {
        self.f.is_empty()
    }
}

impl Checker<'_> {
    /// Follows the path again, which decides who owns the fragments that two inodes claim.
    fn follow_again(&mut self, path: &[u8], paths: &mut Paths) -> Result<()> {
        let said = self.f.take();
        let known: FxHashSet<String> = said.iter().map(|issue| issue.text(paths)).collect();
        self.space.begin();
        (self.recs, self.damaged) = Default::default();
        follow(self, path, paths)?;
        let again = self.f.take().into_iter().filter(|issue| !known.contains(&issue.text(paths)));
        said.into_iter().chain(again).for_each(|issue| self.f.push(issue, false));
        Ok(())
    }

    /// The page of a directory as it lies on disk, if all of it can be read.
    fn plain_page(&mut self, i: &Inode, lbn: u64) -> Result<std::result::Result<Vec<u8>, u64>> {
        let p = self.core.pointer(i, FileBlock::Data(lbn))?;
        if p.frag.get() == 0 {
            return Ok(Err(0));
        }
        let frags = self.core.geom.lbn_frags(i.size(), lbn);
        Ok(words(self.core.read_block((i, FileBlock::Data(lbn)), p, frags, Kind::Dir))?
            .map_err(|_| self.byte(p.frag.get())))
    }

    /// Checks the chunks of a directory, but not what their entries name.
    fn check_chunks(&mut self, i: &Inode, parent: u32) -> Result<()> {
        let (node, shift) = (Node(i.ino.0), self.core.geom.block_shift);
        let mut names = Names::default();
        for lbn in 0..i.size().div_ceil(1 << shift) {
            let page = match self.plain_page(i, lbn)? {
                Ok(page) => page,
                Err(at) => {
                    let offset = lbn << shift;
                    self.f.note(match at {
                        0 => Verdict::DirHole { ino: node, offset }.into(),
                        at => Issue::DirBlock { ino: node, offset, at },
                    });
                    continue;
                }
            };
            for (k, chunk) in (0u64..).zip(page.chunks_exact(DIRBLKSIZ)) {
                let offset = (lbn << shift) + k * DIRBLKSIZ as u64;
                self.check_form(Spot { dir: i.ino.0 as u32, offset, byte: 0 }, parent, chunk, &mut names);
            }
            self.breathe();
        }
        Ok(())
    }
}
