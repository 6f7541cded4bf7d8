//! Additions of a repair: blocks and entries in directories, lost+found, the root directory.

use super::blocks::Piece;
use super::issue::TreeIssue;
use super::view::Stage;
use super::{Checker, Slot};
use crate::format::*;
use arbor_base::cache::FileBlock;
use arbor_base::device::Kind;
use arbor_base::layout::get_u32;
use arbor_base::vfs::{Ino, Result, mode};
use arbor_kit::blockmap::Parent;
use arbor_kit::chunkrepair::insert_into;
use arbor_kit::dirent::{empty_chunks, first_chunks};
use arbor_kit::forest::{DIR_KIND, LOST_FOUND, lost_name, spare_names};
use arbor_kit::treecheck::{Rec, TreeCheck as _};

impl Checker<'_> {
    fn no_space(&mut self, what: String) {
        self.f.note(TreeIssue::NoSpace { what });
    }

    /// Makes an empty directory: writes its fragment, but not its inode, which is returned.
    fn new_dir(&mut self, ino: u32, parent: u32) -> Result<Option<Dinode>> {
        let Some(frag) = self.space.alloc(1) else { return Ok(None) };
        let (own, up) = (Ino(ino.into()), Ino(parent.into()));
        let bytes = first_chunks(self.r.geom.frag_size(), own, up);
        self.put_block(Kind::Dir, frag, &bytes)?;
        let old = self.r.inode(ino.into())?.and_then(|d| d.ok()).unwrap_or_default();
        let stamp = Stamp::from(arbor_base::vfs::Time { secs: self.r.sb.created.get(), nanos: 0 });
        let mut d = Dinode {
            mode: ((mode::IFDIR | 0o700) as u16).into(),
            nlink: 2.into(),
            frags: 1.into(),
            size: (self.r.geom.frag_size() as u64).into(),
            atime: stamp,
            mtime: stamp,
            ctime: stamp,
            btime: stamp,
            generation: old.generation.get().wrapping_add(1).into(),
            ..Dinode::default()
        };
        d.db.iter_mut().take(1).for_each(|p| *p = frag.0.into());
        Ok(Some(d))
    }

    /// Makes a new root directory if there is none.
    pub(super) fn find_root(&mut self) -> Result<()> {
        let root = ROOT.0 as u32;
        let why = match self.recs.of(root) {
            Some(rec) if rec.is_dir() => return Ok(()),
            Some(_) => "is not a directory",
            None => "is not in use",
        };
        self.f.note(TreeIssue::RootLost { ino: ROOT.0, why });
        self.clear(root)?;
        self.initialise(0)?;
        let Some(d) = self.new_dir(root, root)? else {
            self.no_space("the root directory".into());
            return Ok(());
        };
        let d = Dinode { mode: ((mode::IFDIR | 0o755) as u16).into(), ..d };
        self.r.put_inode(root.into(), d)?;
        self.add_rec(root, root);
        Ok(())
    }

    fn add_rec(&mut self, ino: u32, parent: u32) {
        self.touched.insert(ino);
        let flags = Rec::REACHED | Rec::READ;
        self.recs.put(Rec { ino, parent, dotdot: parent, stored: 2, kind: DIR_KIND, flags, found: 0 });
    }

    /// Initialises the first block of a group's inode table, unless it is.
    fn initialise(&mut self, cgx: u32) -> Result<()> {
        let Some(inited) = self.inited.get_mut(cgx as usize).filter(|n| **n == 0) else { return Ok(()) };
        *inited = self.r.geom.inodes_per_block();
        let (frag, bytes) = self.r.inode_block(cgx, 0)?;
        self.r.view.write(Stage::Fresh, Kind::Inode, self.r.geom.byte(frag), &vec![0; bytes.len()])
    }

    /// Finds a free inode.
    fn free_inode(&mut self) -> Result<Option<u32>> {
        for cgx in 0..self.r.geom.cg_count {
            self.initialise(cgx)?;
            let first = (self.r.first_inode(cgx) as u32).max(ROOT.0 as u32 + 1);
            let end = self.r.first_inode(cgx) as u32 + self.inited.get(cgx as usize).copied().unwrap_or(0);
            let from = self.recs.partition_point(|r| r.ino < first);
            let mut used = self.recs.iter().skip(from).map(|r| r.ino).peekable();
            let free = (first..end).find(|i| used.next_if_eq(i).is_none());
            if free.is_some() {
                return Ok(free);
            }
        }
        for cgx in 0..self.r.geom.cg_count {
            if let Some(first) = self.extend_table(cgx)? {
                return Ok(Some(first));
            }
        }
        Ok(None)
    }

    /// Initialises the next block of a group's inode table; returns its first inode.
    fn extend_table(&mut self, cgx: u32) -> Result<Option<u32>> {
        let (geom, first) = (self.r.geom, self.r.first_inode(cgx) as u32);
        let Some(inited) = self.inited.get_mut(cgx as usize).filter(|n| **n < geom.cg_inodes) else { return Ok(None) };
        let at = *inited;
        *inited = (at + geom.inodes_per_block()).min(geom.cg_inodes);
        let (frag, bytes) = self.r.inode_block(cgx, at / geom.inodes_per_block())?;
        self.r.view.write(Stage::Fresh, Kind::Inode, geom.byte(frag), &vec![0; bytes.len()])?;
        Ok(Some(first + at))
    }

    /// The directory for inodes without names; made if there is none. 0 if there is no room for it.
    fn lost_found(&mut self) -> Result<u32> {
        if self.lost_found != 0 {
            return Ok(self.lost_found);
        }
        let root = ROOT.0 as u32;
        let there = self.names_in(root)?;
        for name in spare_names(LOST_FOUND) {
            match there.iter().find(|e| e.name == name.as_bytes()) {
                Some(e) if self.recs.of(e.ino).is_some_and(|rec| rec.is_dir()) => {
                    self.lost_found = e.ino;
                    return Ok(e.ino);
                }
                Some(_) => {}
                None => return self.make_lost_found(&name),
            }
        }
        Ok(0)
    }

    fn make_lost_found(&mut self, name: &str) -> Result<u32> {
        let root = ROOT.0 as u32;
        let Some(ino) = self.free_inode()? else { return Ok(0) };
        let Some(d) = self.new_dir(ino, root)? else { return Ok(0) };
        if !self.insert(root, name.as_bytes(), ino, DIR_KIND)? {
            self.clear_new(&d);
            return Ok(0);
        }
        self.r.put_inode(ino.into(), d)?;
        self.add_rec(ino, root);
        self.lost_found = ino;
        self.one_link_more(root)?;
        Ok(ino)
    }

    fn clear_new(&mut self, d: &Dinode) {
        d.db.iter().take(1).for_each(|p| self.space.release(Frag(p.get()), 1));
    }

    /// Gives an inode a name in lost+found; returns that directory, 0 if there is no room.
    pub(super) fn give_name(&mut self, ino: u32, kind: u8) -> Result<u32> {
        let dir = self.lost_found()?;
        if dir == 0 || dir == ino || !self.insert(dir, &lost_name(ino.into(), None), ino, kind)? {
            self.no_space(format!("inode {ino}, which has no name"));
            return Ok(0);
        }
        Ok(dir)
    }

    /// Adds an entry to a directory, which grows if it must. Returns whether there was room.
    fn insert(&mut self, dir: u32, name: &[u8], ino: u32, kind: u8) -> Result<bool> {
        for _ in 0..2 {
            let Some(d) = self.inode(dir)? else { return Ok(false) };
            if self.full.0 != dir {
                self.full = (dir, 0);
            }
            for p in self.r.dir_blocks(&d)?.into_iter().filter(|p| p.lbn >= self.full.1) {
                let mut bytes = self.r.run(Kind::Dir, p.frag, p.frags)?;
                let left = d.size.get().saturating_sub(p.lbn << self.r.geom.block_shift) as usize / DIRBLKSIZ;
                let mut chunks = bytes.chunks_exact_mut(DIRBLKSIZ).take(left);
                if chunks.any(|chunk| insert_into(chunk, name, Ino(ino.into()), kind)) {
                    self.full.1 = p.lbn;
                    self.put_block(Kind::Dir, p.frag, &bytes)?;
                    return Ok(true);
                }
            }
            if !self.grow(dir, d)? {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Adds empty chunks to a directory, a whole block if one is free. Returns whether there was room.
    fn grow(&mut self, dir: u32, mut d: Dinode) -> Result<bool> {
        let (geom, size) = (self.r.geom, d.size.get());
        let (lbn, bf) = (geom.lbn(size), geom.block_frags());
        let start = lbn << geom.block_shift;
        let old = self.r.dir_blocks(&d)?.into_iter().find(|p| p.lbn == lbn);
        let mut bytes = match old {
            Some(p) => self.r.run(Kind::Dir, p.frag, p.frags)?,
            None => Vec::new(),
        };
        bytes.truncate((size - start) as usize);
        let direct = lbn < NDADDR as u64;
        let least = geom.frags_for(bytes.len()) + 1;
        let whole = self.space.alloc(bf).map(|f| (f, bf));
        let found = whole.or_else(|| if direct { self.space.alloc(least).map(|f| (f, least)) } else { None });
        let Some((frag, frags)) = found else { return Ok(false) };
        bytes.extend(empty_chunks(geom.bytes_of(frags).saturating_sub(bytes.len())));
        self.put_block(Kind::Dir, frag, &bytes)?;
        if !self.set_pointer(&mut d, lbn, frag)? {
            self.space.release(frag, frags);
            return Ok(false);
        }
        let had = old.map_or(0, |p| p.frags);
        if let Some(p) = old {
            self.space.release(p.frag, p.frags);
        }
        d.frags = d.frags.get().saturating_add(frags).saturating_sub(had).into();
        d.size = (start + bytes.len() as u64).into();
        self.r.put_inode(dir.into(), d)?;
        Ok(true)
    }

    /// Fills a hole of a directory with an empty block. `None` if there is no room.
    pub(super) fn fill_hole(&mut self, ino: u32, lbn: u64) -> Result<Option<Piece>> {
        let Some(mut d) = self.inode(ino)? else { return Ok(None) };
        let frags = self.r.geom.block_frags();
        if let Some(frag) = self.space.alloc(frags) {
            let bytes = empty_chunks(self.r.geom.block_size());
            self.put_block(Kind::Dir, frag, &bytes)?;
            if self.set_pointer(&mut d, lbn, frag)? {
                d.frags = d.frags.get().saturating_add(frags).into();
                self.r.put_inode(ino.into(), d)?;
                return Ok(Some(Piece { slot: Slot::Direct(0), lbn, level: 0, frag, frags }));
            }
            self.space.release(frag, frags);
        }
        self.no_space(format!("directory {ino}"));
        Ok(None)
    }

    /// Sets the pointer of a logical block; makes indirect blocks as needed. Returns whether there was room.
    fn set_pointer(&mut self, d: &mut Dinode, lbn: u64, frag: Frag) -> Result<bool> {
        if let Some(p) = usize::try_from(lbn).ok().and_then(|i| d.db.get_mut(i)) {
            *p = frag.0.into();
            return Ok(true);
        }
        let (shape, mut slots, mut block) = (self.r.geom.shape(), Vec::new(), FileBlock::Data(lbn));
        while let Some(Parent::Map { level, n, slot }) = shape.parent(block) {
            slots.push(slot);
            block = FileBlock::Map { level, n };
        }
        let Some(Parent::Root(root)) = shape.parent(block) else { return Ok(false) };
        let Some(slot) = d.ib.get(root).map(|p| p.get()) else { return Ok(false) };
        let Some(mut at) = self.indirect(d, slot)? else { return Ok(false) };
        d.ib.iter_mut().skip(root).take(1).for_each(|p| *p = at.0.into());
        while let Some(slot) = slots.pop() {
            let mut bytes = self.r.run(Kind::Tree, at, self.r.geom.block_frags())?;
            let below = if slots.is_empty() {
                frag
            } else {
                let Some(next) = self.indirect(d, get_u32(&bytes, slot * 4).unwrap_or(0))? else { return Ok(false) };
                next
            };
            put_u32(&mut bytes, slot * 4, below.0);
            self.put_block(Kind::Tree, at, &bytes)?;
            at = below;
        }
        Ok(true)
    }

    /// An indirect block: the existing one, or a new one.
    fn indirect(&mut self, d: &mut Dinode, pointer: u32) -> Result<Option<Frag>> {
        if pointer != 0 {
            return Ok(Some(Frag(pointer)));
        }
        let frags = self.r.geom.block_frags();
        let Some(frag) = self.space.alloc(frags) else { return Ok(None) };
        self.put_block(Kind::Tree, frag, &vec![0; self.r.geom.block_size()])?;
        d.frags = d.frags.get().saturating_add(frags).into();
        Ok(Some(frag))
    }
}
