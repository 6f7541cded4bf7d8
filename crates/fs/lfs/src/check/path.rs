//! The check of one path: the inodes on it, the directories that lead on, and everything of the file at its end with
//! its data. Nothing is repaired, and nothing else is read.

use super::issue::{Issue, Node, Paths, TreeIssue};
use super::{Checker, Findings, number, start, words};
use crate::format::*;
use arbor_base::cache::FileBlock;
use arbor_base::device::Kind;
use arbor_base::vfs::{CheckReport, Devices, Ino, Repair, Result};
use arbor_kit::blockmap::BlockMap as _;
use arbor_kit::forest::Spot;
use arbor_kit::issue::Finding;
use arbor_kit::paths::follow;
use arbor_kit::treecheck::{ChunkWay, Held};
use rustc_hash::FxHashSet;

/// Checks the file or directory at `path`, and what it takes to get there.
pub(crate) fn check_path(devices: Devices, path: &[u8]) -> Result<CheckReport> {
    let mut f = Findings::new(Repair::No);
    let dev = devices.main;
    let found = match start::superblock(&*dev)? {
        Ok(found) => found,
        Err(lost) => return Ok(f.end(lost)),
    };
    arbor_kit::head::refuse_unknown(&found.sb, KNOWN, false)?;
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

impl ChunkWay for Checker<'_> {
    fn held(&mut self, ino: Ino) -> Result<Held> {
        let entry = self.core.map_entry(ino)?;
        if ino == IFILE || entry.frag.get() == 0 {
            return Ok(Held::Nothing);
        }
        Ok(self.raw_inode(ino, entry)?.map_or(Held::Damage, |d| Held::Kind((d.kind() >> 12) as u8)))
    }

    fn check_alone(&mut self, ino: Ino) -> Result<()> {
        self.read_inode(ino)?;
        let frag = self.core.map_entry(ino)?.frag.get();
        let at = self.byte(frag);
        for (ino, why) in std::mem::take(&mut self.damaged) {
            self.f.note(Issue::InodeDamaged { ino: Node(ino.into()), at, why });
        }
        Ok(())
    }

    /// Where a page begins is told of one with a wrong checksum only.
    fn each_page(&mut self, dir: u32, f: &mut dyn FnMut(&mut Self, Spot, &[u8])) -> Result<()> {
        let i = self.core.inode(number(dir))?;
        for lbn in 0..i.size().div_ceil(self.core.geom.block_size() as u64) {
            let (p, mut page, mut byte) = (self.core.pointer(&i, FileBlock::Data(lbn))?, Vec::new(), 0);
            if p.frag.get() != 0 {
                let frags = self.core.geom.lbn_frags(i.size(), lbn);
                match words(self.core.read_block((&i, FileBlock::Data(lbn)), p, frags, Kind::Dir))? {
                    Ok(bytes) => page = bytes,
                    Err(_) => byte = self.byte(p.frag.get()),
                }
            }
            f(self, Spot { dir, offset: lbn << self.core.geom.block_shift, byte }, &page);
            self.breathe();
        }
        Ok(())
    }

    fn unreadable(&mut self, spot: Spot) {
        let (ino, offset) = (Node(spot.dir.into()), spot.offset);
        match spot.byte {
            0 => self.f.note(TreeIssue::DirHole { ino, offset }),
            at => self.f.note(Issue::DirBlock { ino, offset, at }),
        }
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
}
