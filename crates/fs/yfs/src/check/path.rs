//! The check of one path: the inodes on it, the directory blocks that lead on, and everything of
//! the file at its end, against the bitmaps. Nothing is repaired, and nothing else is read.

use super::dirs::{Look, Place, parse_body};
use super::issue::{Issue, Node, Paths, show};
use super::tree::{self, Spec};
use super::view::RawInode;
use super::{Checker, DIR_KIND, Findings, groups::CHUNK_ROOT, start};
use crate::format::*;
use arbor_base::layout::get_u64;
use arbor_base::vfs::{CheckOptions, CheckReport, Devices, Error, Ino, Repair, Result};
use arbor_kit::issue::readable;

/// Checks the file or directory at `path`, and what it takes to get there.
pub(crate) fn check_path(devices: &Devices, path: &[u8]) -> Result<CheckReport> {
    let options = CheckOptions { repair: Repair::No, force: true };
    let mut f = Findings { mode: Repair::No, ..Findings::default() };
    let started = start::start(devices, &options, &mut f)?;
    let Some((r, log)) = started else { return Ok(f.finish(&Paths::new())) };
    let mut silent = |_: u64, _: u64, _: &str| ();
    let mut c = Checker::new(r, log, f, &mut silent);
    let mut paths = Paths::new();
    c.follow(path, &mut paths)?;
    c.check_bits()?;
    c.f.report.files = c.recs.len() as u64;
    c.f.report.directories = c.recs.iter().filter(|r| r.is_dir()).count() as u64;
    c.f.report.used_bytes = c.recs.last().map_or(0, |_| c.last_bytes);
    Ok(c.f.finish(&paths))
}

impl Checker<'_> {
    fn follow(&mut self, path: &[u8], paths: &mut Paths) -> Result<()> {
        let mut ino = self.r.sb.root.get();
        let mut here = String::new();
        let missing = |here: &str| Error::refused(format!("there is no {here} on this volume"));
        for name in path.split(|b| *b == b'/').filter(|n| !n.is_empty() && *n != b".") {
            paths.insert(ino, if here.is_empty() { "/".into() } else { here.clone() });
            let Some(i) = self.path_inode(ino)? else { return Ok(()) };
            here = format!("{here}/{}", readable(name));
            if i.kind() != DIR_KIND {
                return Err(missing(&here));
            }
            ino = match self.path_entry(&i, name)? {
                Some(found) => found,
                None if self.f.issues.is_empty() => return Err(missing(&here)),
                None => return Ok(()),
            };
        }
        paths.insert(ino, if here.is_empty() { "/".into() } else { here });
        let Some(i) = self.path_inode(ino)? else { return Ok(()) };
        self.last_bytes = i.d.frags.get().saturating_mul(self.r.geom.frag_size());
        if i.kind() == DIR_KIND { self.check_form(&i) } else { Ok(()) }
    }

    /// An inode by itself, with its map and attributes; `None` if it cannot be used.
    fn path_inode(&mut self, ino: u64) -> Result<Option<RawInode>> {
        let Some(bytes) = self.r.inode_bytes(ino)? else { return Ok(None) };
        let masked = self.masked(ino)?;
        let used = self.check_inode(ino, &bytes, masked.unwrap_or(true))?;
        if masked == Some(!used) {
            self.f.note(Issue::FreeMask { ino: Node(ino), state: if used { "in use" } else { "free" } });
        }
        // A damaged one that can be kept lies over the device now.
        self.r.inode(ino)
    }

    /// Whether the mask of its chunk says that an inode is in use; `None` if there is no such mask.
    fn masked(&mut self, ino: u64) -> Result<Option<bool>> {
        let Some((chunk, at)) = self.r.geom.inode_at(Ino(ino)) else { return Ok(None) };
        let ag = self.inode_ag(ino);
        let block = match self.r.ag_block(BlockType::Inodes, ag, self.r.geom.inode_block(ag))? {
            Ok(block) => block,
            Err(why) => {
                self.f.note(Issue::InodeBlock { ag, why: why.to_string() });
                return Ok(None);
            }
        };
        let found = tree::seek(&self.r, block.get(CHUNK_ROOT..).unwrap_or(&[]), Spec::chunks(ag), chunk.0)?;
        for why in found.damage {
            self.f.note(Issue::ChunkTree { ag, why });
        }
        let Some((_, value)) = found.records.first().filter(|r| r.0 == chunk.0) else {
            self.f.note(Issue::ChunkFound { ag, chunk: chunk.0 });
            return Ok(None);
        };
        let n = at / self.r.geom.inode_size();
        Ok(Some(get_u64(value, 0).unwrap_or(0) >> n & 1 == 0))
    }

    /// What `name` in a directory leads to. The blocks that could hold it are checked.
    fn path_entry(&mut self, i: &RawInode, name: &[u8]) -> Result<Option<u64>> {
        let hash = name_hash(self.r.geom.hash_seed, name);
        let (lo, hi) = (dir_key(hash, 0), dir_key(hash, u16::MAX));
        let places = self.bodies(i, None)?;
        let first = places.partition_point(|p| p.1 <= lo).saturating_sub(1);
        let mut found = None;
        for (n, place) in places.iter().enumerate().skip(first).take_while(|(n, p)| *n == first || p.1 <= hi) {
            let next = places.get(n + 1).map(|p| p.1);
            let body = self.check_body(i, n, *place, next, &mut Look::of_form())?;
            let entries = parse_body(&body).0;
            let entry = entries.iter().find(|e| e.name == name);
            found = found.or(entry.map(|e| (e.head.ino.get(), e.head.kind)));
        }
        let Some((ino, kind)) = found else { return Ok(None) };
        let bytes = self.r.inode_bytes(ino)?;
        let used = bytes.as_ref().and_then(|b| RawInode::decode(ino, b)).filter(RawInode::in_use);
        match used {
            None => {
                let why = if bytes.is_some() { "is not in use" } else { "cannot be there" };
                self.f.note(Issue::EntryTarget { dir: Node(i.ino), name: show(name), ino: Node(ino), why });
                Ok(None)
            }
            Some(target) => {
                if target.kind() != kind {
                    self.f.note(Issue::EntryKind { dir: Node(i.ino), name: show(name), ino: Node(ino) });
                }
                Ok(Some(ino))
            }
        }
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
            self.f.note(issue);
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
                        self.f.note(Issue::BitmapBlock { ag, n, why: why.to_string() });
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
                self.f.note(Issue::BitmapFree { ag, frags, first });
            }
        }
        Ok(())
    }
}
