//! Phase 2: directories, their chunks and what the entries name.

use super::blocks::Piece;
use super::edit::LOST_FOUND;
use super::issue::{Issue, Node, show};
use super::{Checker, Extra, Rec};
use crate::format::*;
use arbor_base::device::Kind;
use arbor_base::vfs::{Ino, Result, is_name};
use arbor_kit::dirent::{DOTDOT_AT, Dirent, entries, entry};
use arbor_kit::mend::{cut_chunk, dots, put_dots, set_kind};
use rustc_hash::FxHashSet;

/// Names of the directory that is being read.
pub(super) type Names = FxHashSet<Box<[u8]>>;

/// An entry in use.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub offset: u64,
    pub ino: u32,
    pub name: Vec<u8>,
}

impl Checker<'_> {
    pub(super) fn read_dirs(&mut self) -> Result<()> {
        let dirs = self.dirs();
        for (n, ino) in dirs.iter().enumerate() {
            if n % 64 == 0 {
                (self.progress)(n as u64, dirs.len() as u64, "names");
            }
            self.check_dir(*ino)?;
        }
        Ok(())
    }

    pub(super) fn check_dir(&mut self, ino: u32) -> Result<()> {
        let Some(d) = self.inode(ino)? else { return Ok(()) };
        let mut names = Names::default();
        let (blocks, len) = (self.r.dir_blocks(&d)?, self.dir_len(&d));
        // One that consists of holes is not worth the space: it ends with the first.
        let fill = len <= 2 * blocks.len() as u64 + 16;
        let mut blocks = blocks.into_iter().peekable();
        for lbn in 0..len {
            let piece = match blocks.next_if(|p| p.lbn == lbn) {
                Some(piece) => piece,
                None => {
                    let offset = lbn << self.r.geom.block_shift;
                    self.f.note(Issue::DirHole { ino: Node(ino.into()), offset });
                    let filled = if fill || lbn == 0 { self.fill_hole(ino, lbn)? } else { None };
                    let Some(piece) = filled else { return self.end_dir(ino, lbn) };
                    piece
                }
            };
            self.check_dir_block(ino, &piece, &mut names)?;
        }
        Ok(())
    }

    /// Makes a directory end before a block, if it has one before that.
    fn end_dir(&mut self, ino: u32, lbn: u64) -> Result<()> {
        match self.inode(ino)?.filter(|_| lbn > 0) {
            Some(d) => self.r.put_inode(ino.into(), Dinode { size: (lbn << self.r.geom.block_shift).into(), ..d }),
            None => Ok(()),
        }
    }

    /// Logical blocks of a directory.
    fn dir_len(&self, d: &Dinode) -> u64 {
        d.size.get().div_ceil(self.r.geom.block_size() as u64)
    }

    fn check_dir_block(&mut self, ino: u32, p: &Piece, names: &mut Names) -> Result<()> {
        let old = self.r.run(Kind::Dir, p.frag, p.frags)?;
        let mut bytes = old.clone();
        let (start, at) = (p.lbn << self.r.geom.block_shift, self.byte(p.frag));
        let end = self.inode(ino)?.map_or(0, |d| d.size.get());
        for (i, chunk) in bytes.chunks_exact_mut(DIRBLKSIZ).enumerate() {
            let i = (i * DIRBLKSIZ) as u64;
            if start + i < end {
                self.check_chunk(ino, start + i, at + i, chunk, names);
            }
        }
        if bytes != old {
            self.put_block(Kind::Dir, p.frag, &bytes)?;
        }
        Ok(())
    }

    /// Checks one chunk and mends it.
    fn check_chunk(&mut self, dir: u32, offset: u64, byte: u64, chunk: &mut [u8], names: &mut Names) {
        if offset == 0 {
            self.check_dots(dir, byte, chunk);
        }
        let (mut at, mut last) = (0, None);
        while at < DIRBLKSIZ {
            let e = match entry(chunk, at) {
                Ok(e) => e,
                Err(why) => {
                    let ino = Node(dir.into());
                    self.f.note(Issue::DirChunk { ino, offset, at: byte + at as u64, why });
                    cut_chunk(chunk, last);
                    return;
                }
            };
            let next = at + e.reclen;
            let dots = offset == 0 && at <= DOTDOT_AT;
            if e.ino.0 != 0 && !dots {
                match self.check_entry(dir, offset + at as u64, &e, names) {
                    None => put_u32(chunk, at, 0),
                    Some(kind) => set_kind(chunk, at, kind),
                }
            }
            last = Some(at);
            at = next;
        }
    }

    /// The kind that an entry must have, `None` if it cannot stay.
    fn check_entry(&mut self, dir: u32, offset: u64, e: &Dirent<'_>, names: &mut Names) -> Option<u8> {
        let node = Node(dir.into());
        let ino = Node(e.ino.0);
        if !is_name(e.name) {
            self.f.note(Issue::EntryName { dir: node, name: show(e.name), offset });
            return None;
        }
        if names.contains(e.name) {
            self.f.note(Issue::DuplicateName { dir: node, name: show(e.name) });
            return None;
        }
        let rec = self.find(e.ino.0 as u32).map(|i| self.at(i));
        let why = match rec {
            None if self.r.geom.inode_at(e.ino).is_none() => Some(NOWHERE),
            None => Some("is not in use"),
            Some(_) if e.ino == ROOT => Some("is the root directory"),
            Some(_) if e.ino.0 == u64::from(dir) => Some("is the directory itself"),
            Some(_) => None,
        };
        if rec.is_none() && why != Some(NOWHERE) && dir == ROOT.0 as u32 && e.name == LOST_FOUND.as_bytes() {
            self.f.note(Issue::LostFound { ino });
            return None;
        }
        if let Some(why) = why {
            self.dangling.push((dir, Issue::EntryTarget { dir: node, name: show(e.name), ino, why }));
            return None;
        }
        let kind = rec.map_or(0, |r| r.kind);
        if e.kind != kind {
            self.f.note(Issue::EntryKind { dir: node, name: show(e.name), ino });
        }
        names.insert(e.name.into());
        self.count_name(dir, offset, e.ino.0 as u32);
        Some(kind)
    }

    fn count_name(&mut self, dir: u32, offset: u64, ino: u32) {
        let Some(rec) = self.rec(ino) else { return };
        if !rec.is_dir() {
            rec.found = rec.found.saturating_add(1);
        } else if rec.parent == 0 {
            rec.parent = dir;
        } else {
            self.extras.push(Extra { dir, offset, child: ino });
        }
    }

    /// The first two entries of a directory.
    fn check_dots(&mut self, dir: u32, byte: u64, chunk: &mut [u8]) {
        let parent = match dots(Ino(dir.into()), chunk) {
            Ok(parent) => parent,
            Err(why) => {
                self.f.note(Issue::Dots { ino: Node(dir.into()), at: byte, why });
                put_dots(Ino(dir.into()), ROOT, chunk)
            }
        };
        if let Some(rec) = self.rec(dir) {
            rec.dotdot = parent.0 as u32;
        }
    }

    /// The entries in use of a directory that was checked, without its dots.
    pub(super) fn names_in(&self, dir: u32) -> Result<Vec<Named>> {
        let mut all = Vec::new();
        let Some(d) = self.inode(dir)? else { return Ok(all) };
        for p in self.r.dir_blocks(&d)? {
            let bytes = self.r.run(Kind::Dir, p.frag, p.frags)?;
            let start = p.lbn << self.r.geom.block_shift;
            for (i, chunk) in (0u64..).zip(bytes.chunks_exact(DIRBLKSIZ)) {
                let offset = start + i * DIRBLKSIZ as u64;
                let used = |e: &Dirent<'_>| e.ino.0 != 0 && is_name(e.name) && offset < d.size.get();
                let found = entries(chunk).unwrap_or_default().into_iter().filter(used);
                all.extend(found.map(|e| Named {
                    offset: offset + e.at as u64,
                    ino: e.ino.0 as u32,
                    name: e.name.to_vec(),
                }));
            }
        }
        Ok(all)
    }

    /// Changes the inode of the entry at an offset of a directory; 0 makes it free.
    pub(super) fn put_entry_ino(&mut self, dir: u32, offset: u64, ino: u32) -> Result<()> {
        let Some(d) = self.inode(dir)? else { return Ok(()) };
        let lbn = self.r.geom.lbn(offset);
        let Some(p) = self.r.dir_blocks(&d)?.into_iter().find(|p| p.lbn == lbn) else { return Ok(()) };
        let mut bytes = self.r.run(Kind::Dir, p.frag, p.frags)?;
        put_u32(&mut bytes, (offset - (lbn << self.r.geom.block_shift)) as usize, ino);
        self.put_block(Kind::Dir, p.frag, &bytes)
    }
}

const NOWHERE: &str = "cannot be there";

impl Rec {
    /// What its link count should be.
    pub(super) fn links(&self) -> u16 {
        let links = if self.is_dir() { self.found.saturating_add(2) } else { self.found };
        u16::try_from(links).unwrap_or(u16::MAX)
    }
}
