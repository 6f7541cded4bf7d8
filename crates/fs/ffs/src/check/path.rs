//! The check of one path: its inodes and directories, and all of the file at its end, against the bitmaps.
//!
//! Nothing is repaired, and nothing else is read.

use super::issue::{Issue, Node, Paths};
use super::view::{Reader, View};
use super::{Checker, Findings, start};
use crate::format::*;
use arbor_base::device::Kind;
use arbor_base::vfs::{CheckReport, Devices, Ino, Repair, Result};
use arbor_kit::forest::Spot;
use arbor_kit::paths::follow;
use arbor_kit::treecheck::{ChunkWay, Held};
use std::collections::BTreeMap;

/// Checks the file or directory at `path`, and the directories on the way.
pub(crate) fn check_path(devices: &Devices, path: &[u8]) -> Result<CheckReport> {
    let dev = &*devices.main;
    let mut f = Findings::new(Repair::No);
    let found = match start::superblock(dev)? {
        Ok(found) => found,
        Err(lost) => return Ok(f.end(lost)),
    };
    arbor_kit::head::refuse_unknown(&found.sb, KNOWN, false)?;
    let lost = found.damage.is_some();
    let unclean = found.sb.clean.get() == 0 && !lost;
    found.damage.into_iter().for_each(|issue| f.note(issue));
    let mut r = Reader { view: View::new(dev), sb: found.sb, geom: found.geom };
    let (_, gaps) = start::journal_view(&mut r, Repair::No, lost)?;
    gaps.into_iter().for_each(|issue| f.note(issue));
    let mut silent = |_: u64, _: u64, _: &str| ();
    let mut c = Checker::new(r, f, &mut silent);
    let mut paths = Paths::new();
    follow(&mut c, path, &mut paths)?;
    std::mem::take(&mut c.dangling).into_iter().for_each(|(_, issue)| c.f.note(issue));
    c.check_bits()?;
    let used_bytes = c.space.used().saturating_mul(c.r.geom.frag_size() as u64);
    c.f.report = CheckReport { unclean, used_bytes, ..c.counts() };
    Ok(c.f.finish(&paths))
}

impl ChunkWay for Checker<'_> {
    fn held(&mut self, ino: Ino) -> Result<Held> {
        Ok(match self.r.inode(ino.0)? {
            Some(Ok(d)) if d.in_use() => Held::Kind((d.kind() >> 12) as u8),
            Some(Err(_)) => Held::Damage,
            _ => Held::Nothing,
        })
    }

    fn check_alone(&mut self, ino: Ino) -> Result<()> {
        let bytes = self.r.inode_bytes(self.r.inode_byte(ino.0))?;
        self.read_inode(ino.0, &bytes, true)?;
        self.report_twice()
    }

    fn each_page(&mut self, dir: u32, f: &mut dyn FnMut(&mut Self, Spot, &[u8])) -> Result<()> {
        let Some(d) = self.inode(dir)? else { return Ok(()) };
        for p in self.r.dir_blocks(&d)? {
            let bytes = self.r.run(Kind::Dir, p.frag, p.frags)?;
            let offset = p.lbn << self.r.geom.block_shift;
            let len = d.size.get().saturating_sub(offset).min(bytes.len() as u64) as usize;
            let spot = Spot { dir, offset, byte: self.byte(p.frag) };
            f(self, spot, bytes.get(..len).unwrap_or(&bytes));
        }
        Ok(())
    }

    fn is_sound(&self) -> bool {
        self.f.is_empty() && self.dangling.is_empty()
    }
}

impl Checker<'_> {
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
