//! The check of one path: the inodes on it, the directory blocks that lead on, and everything of
//! the file at its end, against the bitmaps. Nothing is repaired, and nothing else is read.

use super::dirs::{Look, Place};
use super::issue::{Issue, Node, Paths, show};
use super::tree::{self, Spec};
use super::view::RawInode;
use super::{Checker, DIR_KIND, Findings, groups::CHUNK_ROOT, start};
use crate::body;
use crate::format::*;
use arbor_base::layout::get_u64;
use arbor_base::vfs::{CheckOptions, CheckReport, Devices, Ino, Repair, Result};
use arbor_kit::paths::{Way, follow};

/// Checks the file or directory at `path`, and what it takes to get there.
pub(crate) fn check_path(devices: &Devices, path: &[u8]) -> Result<CheckReport> {
    let options = CheckOptions { repair: Repair::No, force: true };
    let mut f = Findings::new(Repair::No);
    let started = start::start(devices, &options, &mut f)?;
    let Some((r, log)) = started else { return Ok(f.finish(&Paths::new())) };
    let mut silent = |_: u64, _: u64, _: &str| ();
    let mut c = Checker::new(r, log, f, &mut silent);
    let mut paths = Paths::new();
    if let Some(i) = follow(&mut c, path, &mut paths)? {
        c.f.report.used_bytes = i.d.frags.get().saturating_mul(c.r.geom.frag_size());
        if c.leads_on(&i) {
            c.check_form(&i)?;
        }
    }
    c.check_bits()?;
    c.f.report.files = c.recs.len() as u64;
    c.f.report.directories = c.recs.dirs().len() as u64;
    Ok(c.f.finish(&paths))
}

impl Way for Checker<'_> {
    type Inode = RawInode;

    fn root(&self) -> u64 {
        self.r.sb.root.get()
    }

    /// With its map and attributes.
    fn way_inode(&mut self, ino: u64, _parent: u64) -> Result<Option<RawInode>> {
        let Some(bytes) = self.r.inode_bytes(ino)? else { return Ok(None) };
        let masked = self.masked(ino)?;
        let used = self.check_inode(ino, &bytes, masked.unwrap_or(true))?;
        if masked == Some(!used) {
            self.f.judge(Issue::FreeMask { ino: Node(ino), state: if used { "in use" } else { "free" } });
        }
        // A damaged one that can be kept lies over the device now.
        self.r.inode(ino)
    }

    fn leads_on(&self, i: &RawInode) -> bool {
        i.kind() == DIR_KIND
    }

    /// The blocks that could hold it are checked.
    fn way_entry(&mut self, i: &RawInode, name: &[u8]) -> Result<Option<u64>> {
        let hash = name_hash(self.r.geom.hash_seed, name);
        let (lo, hi) = (dir_key(hash, 0), dir_key(hash, u16::MAX));
        let places = self.bodies(i, None)?;
        let first = places.partition_point(|p| p.1 <= lo).saturating_sub(1);
        let mut found = None;
        for (n, place) in places.iter().enumerate().skip(first).take_while(|(n, p)| *n == first || p.1 <= hi) {
            let next = places.get(n + 1).map(|p| p.1);
            let body = self.check_body(i, n, *place, next, &mut Look::of_form())?;
            let entries = body::parse(&body).0;
            let entry = entries.iter().find(|e| e.name == name);
            found = found.or(entry.map(|e| (e.head.ino.get(), e.head.kind)));
        }
        let Some((ino, kind)) = found else { return Ok(None) };
        let bytes = self.r.inode_bytes(ino)?;
        let used = bytes.as_ref().and_then(|b| RawInode::decode(ino, b)).filter(RawInode::in_use);
        match used {
            None => {
                let why = if bytes.is_some() { "is not in use" } else { "cannot be there" };
                self.f.judge(Issue::EntryTarget { dir: Node(i.ino), name: show(name), ino: Node(ino), why });
                Ok(None)
            }
            Some(target) => {
                if target.kind() != kind {
                    self.f.judge(Issue::EntryKind { dir: Node(i.ino), name: show(name), ino: Node(ino) });
                }
                Ok(Some(ino))
            }
        }
    }

    fn is_sound(&self) -> bool {
        self.f.is_empty()
    }
}

impl Checker<'_> {
    /// Whether the mask of its chunk says that an inode is in use; `None` if there is no such mask.
    fn masked(&mut self, ino: u64) -> Result<Option<bool>> {
        let Some((chunk, at)) = self.r.geom.inode_at(Ino(ino)) else { return Ok(None) };
        let ag = self.inode_ag(ino);
        let block = match self.r.ag_block(BlockType::Inodes, ag, self.r.geom.inode_block(ag))? {
            Ok(block) => block,
            Err(why) => {
                self.f.judge(Issue::InodeBlock { ag, why: why.to_string() });
                return Ok(None);
            }
        };
        let found = tree::seek(&self.r, block.get(CHUNK_ROOT..).unwrap_or(&[]), Spec::chunks(ag), chunk.0)?;
        for why in found.damage {
            self.f.judge(Issue::ChunkTree { ag, why });
        }
        let Some((_, value)) = found.records.first().filter(|r| r.0 == chunk.0) else {
            self.f.judge(Issue::ChunkFound { ag, chunk: chunk.0 });
            return Ok(None);
        };
        let n = at / self.r.geom.inode_size();
        Ok(Some(get_u64(value, 0).unwrap_or(0) >> n & 1 == 0))
    }

    /// All bodies of a directory, without what their entries name.
    fn check_form(&mut self, i: &RawInode) -> Result<()> {
        let places = self.bodies(i, None)?;
        let mut look = Look::of_form();
        for (n, place) in places.iter().enumerate() {
            self.check_body(i, n, *place, places.get(n + 1).map(|p| p.1), &mut look)?;
        }
        Ok(())
    }

    /// Checks the form of one body and returns it.
    fn check_body(
        &mut self,
        i: &RawInode,
        n: usize,
        place: (Place, u64),
        next: Option<u64>,
        look: &mut Look,
    ) -> Result<Vec<u8>> {
        let (body, damage) = self.read_bodies(i, &[place])?.pop().unwrap_or_default();
        let body = body.unwrap_or_default();
        look.broken.extend(damage);
        self.look_at(i, n, &body, (place.1, next), look);
        for issue in std::mem::take(&mut look.broken) {
            self.f.judge(issue);
        }
        Ok(body)
    }

    /// What the inodes on the path own must be in use by the bitmaps.
    fn check_bits(&mut self) -> Result<()> {
        let geom = self.r.geom;
        let per = geom.block_size().saturating_sub(HEADER).max(1);
        for ag in 0..self.r.ags() {
            let owned = self.space.claimed(ag);
            let (mut frags, mut first) = (0, None);
            for (n, part) in (0u32..).zip(owned.chunks(per)).filter(|(_, p)| p.iter().any(|b| *b != 0)) {
                let block = match self.r.ag_block(BlockType::Bitmap, ag, geom.bitmap_block(ag, n))? {
                    Ok(block) => block,
                    Err(why) => {
                        self.f.judge(Issue::BitmapBlock { ag, n, why: why.to_string() });
                        continue;
                    }
                };
                for (at, (own, bits)) in part.iter().zip(block.get(HEADER..).unwrap_or(&[])).enumerate() {
                    let free = own & !bits;
                    frags += free.count_ones();
                    if free != 0 && first.is_none() {
                        let bit = (n as usize * per + at) as u64 * 8 + u64::from(free.trailing_zeros());
                        first = Some(geom.ag_start(ag).0.saturating_add(bit));
                    }
                }
            }
            if let Some(first) = first {
                self.f.judge(Issue::BitmapFree { ag, frags, first });
            }
        }
        Ok(())
    }
}
