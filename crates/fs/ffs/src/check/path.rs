//! The check of one path: its inodes and directories, and all of the file at its end, against the bitmaps.
//!
//! Nothing is repaired, and nothing else is read.

use super::issue::{Issue, Node, Paths, Verdict, show};
use super::view::{Reader, View};
use super::{Checker, Findings, start};
use crate::format::*;
use arbor_base::device::Kind;
use arbor_base::vfs::{CheckReport, Devices, Repair, Result};
use arbor_kit::forest::DIR_KIND;
use arbor_kit::paths::{Way, follow};
use arbor_kit::treecheck::{Names, Spot, TreeCheck as _, find_name};
use std::collections::BTreeMap;

/// Checks the file or directory at `path`, and the directories on the way.
pub(crate) fn check_path(devices: &Devices, path: &[u8]) -> Result<CheckReport> {
    let dev = &*devices.main;
    let mut f = Findings::new(Repair::No);
    let found = match start::superblock(dev)? {
        Ok(found) => found,
        Err(lost) => {
            f.note(lost);
            return Ok(f.finish(&Paths::new()));
        }
    };
    start::refuse_unknown(&found.sb, false)?;
    let lost = found.damage.is_some();
    let unclean = found.sb.clean.get() == 0 && !lost;
    found.damage.into_iter().for_each(|issue| f.note(issue));
    let mut r = Reader { view: View::new(dev), sb: found.sb, geom: found.geom };
    start::journal_view(&mut r, false, lost)?;
    let mut silent = |_: u64, _: u64, _: &str| ();
    let mut c = Checker::new(r, f, &mut silent);
    let mut paths = Paths::new();
    follow(&mut c, path, &mut paths)?;
    c.check_bits()?;
    let used_bytes = c.space.used().saturating_mul(c.r.geom.frag_size() as u64);
    c.f.report = CheckReport { unclean, used_bytes, ..c.counts() };
    Ok(c.f.finish(&paths))
}

impl Way for Checker<'_> {
    type Inode = Dinode;

    fn root(&self) -> u64 {
        ROOT.0
    }

    /// With its blocks and attributes, and the chunks of a directory.
    fn way_inode(&mut self, ino: u64, parent: u64) -> Result<Option<Dinode>> {
        let (ino, parent) = (ino as u32, parent as u32);
        match self.r.inode(ino.into())? {
            Some(Ok(d)) if d.in_use() => self.check_inode(ino.into(), d)?,
            Some(Err(why)) => {
                let at = self.r.inode_byte(ino.into());
                let bytes = self.r.inode_bytes(at)?;
                match self.mend(ino.into(), &bytes)?.filter(Dinode::in_use) {
                    Some(d) => self.check_inode(ino.into(), d)?,
                    None => {
                        self.f.note(Issue::InodeDamaged { ino: Node(ino.into()), at, why });
                        return Ok(None);
                    }
                }
            }
            _ if ino == ROOT.0 as u32 => {
                self.f.note(Verdict::RootLost { ino: ino.into(), why: "is not in use" });
                return Ok(None);
            }
            _ => return Ok(None),
        }
        self.report_twice()?;
        let Some(d) = self.inode(ino)? else { return Ok(None) };
        if d.kind() >> 12 == u32::from(DIR_KIND) {
            self.check_chunks(ino, parent, &d)?;
        }
        Ok(Some(d))
    }

    fn leads_on(&self, d: &Dinode) -> bool {
        d.kind() >> 12 == u32::from(DIR_KIND)
    }

    fn way_entry(&mut self, dir: u64, d: &Dinode, name: &[u8]) -> Result<Option<u64>> {
        let mut found = None;
        for p in self.r.dir_blocks(d)? {
            let bytes = self.r.run(Kind::Dir, p.frag, p.frags)?;
            found = found.or(find_name(&bytes, name).map(|(ino, kind)| (ino.0, kind)));
        }
        let Some((ino, kind)) = found else { return Ok(None) };
        let (node, dir) = (Node(ino), Node(dir));
        let why = match self.r.inode(ino)? {
            None => "cannot be there",
            Some(Ok(d)) if !d.in_use() => "is not in use",
            Some(Ok(d)) if d.kind() >> 12 != u32::from(kind) => {
                self.f.note(Verdict::EntryKind { dir, name: show(name), ino: node });
                return Ok(Some(ino));
            }
            Some(_) => return Ok(Some(ino)),
        };
        self.f.note(Verdict::EntryTarget { dir, name: show(name), ino: node, why });
        Ok(None)
    }

    fn is_sound(&self) -> bool {
        self.f.is_empty()
    }
}

impl Checker<'_> {
    /// The chunks of a directory, without what the entries name.
    fn check_chunks(&mut self, ino: u32, parent: u32, d: &Dinode) -> Result<()> {
        let mut names = Names::default();
        for p in self.r.dir_blocks(d)? {
            let bytes = self.r.run(Kind::Dir, p.frag, p.frags)?;
            let start = p.lbn << self.r.geom.block_shift;
            for (i, chunk) in (0u64..).zip(bytes.chunks_exact(DIRBLKSIZ)) {
                let (offset, at) = (start + i * DIRBLKSIZ as u64, self.byte(p.frag) + i * DIRBLKSIZ as u64);
                if offset >= d.size.get() {
                    break;
                }
                self.check_form(Spot { dir: ino, offset, byte: at }, parent, chunk, &mut names);
            }
        }
        Ok(())
    }

    /// Checks that the inodes on the path, and the fragments they own, are in use by the bitmaps.
    fn check_bits(&mut self) -> Result<()> {
        let geom = self.r.geom;
        let mut free: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        for cgx in 0..geom.cg_count {
            let start = geom.cg_start(cgx).0;
            let owned: Vec<u32> = self.space.owned_in(cgx).collect();
            let first = self.r.first_inode(cgx);
            let inodes = first..first.saturating_add(geom.cg_inodes.into());
            let recs: Vec<u32> = self.recs.iter().map(|r| r.ino).filter(|i| inodes.contains(&u64::from(*i))).collect();
            if owned.is_empty() && recs.is_empty() {
                continue;
            }
            let cg = self.r.group(cgx)?;
            if let Err(why) = self.r.header(cgx, &cg) {
                self.f.note(Issue::GroupHeader { cgx, at: geom.byte(geom.cg_block(cgx)), why });
            }
            for i in owned.into_iter().filter(|i| !bit(&cg, 1 + geom.inode_sectors(), *i)) {
                let entry = free.entry(cgx).or_insert((0, start.saturating_add(i)));
                entry.0 += 1;
            }
            for ino in recs.into_iter().filter(|i| !bit(&cg, 1, (u64::from(*i) - first) as u32)) {
                self.f.note(Issue::InodesFree { cgx, count: 1, first: Node(ino.into()) });
            }
        }
        for (cgx, (count, first)) in free {
            self.f.note(Issue::FragsFree { cgx, count, first });
        }
        Ok(())
    }
}
