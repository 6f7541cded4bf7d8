//! Phase 3: directories, their chunks and entries; connectivity; link counts (`kit::treecheck`).
//!
//! Inodes without a name go to lost+found.

use super::Checker;
use crate::alloc::Of;
use crate::format::*;
use crate::inode::Inode;
use crate::volume::Core;
use arbor_base::cache::Name;
use arbor_base::device::Kind;
use arbor_base::vfs::{Errno, Error, Ino, Result, Time};
use arbor_kit::forest::{Forest, Spot, TreeIssue};
use arbor_kit::inodes::InodeStore as _;
use arbor_kit::lifetimes;
use arbor_kit::lostfound::{self, LostFound};
use arbor_kit::treecheck::{ChunkCheck as _, Named, Names, Rec, TreeCheck};
use std::sync::Arc;

const ROOT_INO: u32 = ROOT.0 as u32;

impl Checker<'_> {
    /// The inode of a number in use.
    pub(super) fn inode(&mut self, ino: u32) -> Result<Inode> {
        self.core.iget(Ino(ino.into()))
    }

    /// Finds the root directory, or makes a new one.
    pub(super) fn find_root(&mut self) -> Result<()> {
        let why = match self.recs.of(ROOT_INO) {
            Some(rec) if rec.is_dir() => return Ok(()),
            Some(_) => "is not a directory",
            None => "is not in use",
        };
        self.f.note(TreeIssue::RootLost { ino: ROOT.0, why });
        if self.recs.of(ROOT_INO).is_some() {
            self.clear(ROOT_INO)?;
        }
        // The next inode allocated is the root.
        while self.core.sb.inodes.end.get() < ROOT_INO {
            self.core.take(Of::Inodes)?;
        }
        let rover = std::mem::replace(&mut self.core.sb.inodes.rover, ROOT_INO.into());
        let made = self.core.need(1).and_then(|()| self.new_dir(0o755, ROOT));
        self.core.sb.inodes.rover = rover;
        match made {
            Err(Error::Errno(Errno::ENOSPC)) => self.tell(TreeIssue::NoSpace { what: "the root directory".into() }),
            made => return made.map(drop),
        }
        Ok(())
    }

    /// A page of a directory, which may be damaged.
    pub(super) fn dir_bytes(&mut self, dir: &Inode, index: u64) -> Result<Arc<Vec<u8>>> {
        let name = Name::data(dir.ino, index);
        if let Some(bytes) = self.core.cache.get(name) {
            return Ok(bytes.clone());
        }
        let block = self.core.find_block(dir, index)?;
        let bytes = Arc::new(self.core.read(self.core.check_pointer(dir.ino, block)?, 1, Kind::Dir)?);
        self.core.cache.insert(name, bytes.clone());
        Ok(bytes)
    }

    pub(super) fn read_dirs(&mut self) -> Result<()> {
        let dirs = self.recs.dirs();
        for (n, ino) in dirs.iter().enumerate() {
            if n % 64 == 0 {
                (self.progress)(n as u64, dirs.len() as u64, "names");
            }
            let (dir, mut names) = (self.inode(*ino)?, Names::default());
            for lbn in 0..blocks_of(dir.d.size.get()) {
                self.check_page(&dir, lbn, &mut names)?;
            }
            self.core.hashes.remove(dir.ino);
            // One that was being removed has no `..` to be checked; if it has a name, the next pass clears it.
            self.recs.flag(*ino, Rec::READ, dir.d.size.get() > 0);
        }
        Ok(())
    }

    fn check_page(&mut self, dir: &Inode, lbn: u64, names: &mut Names) -> Result<()> {
        let old = self.dir_bytes(dir, lbn)?;
        let (mut bytes, at) = (old.to_vec(), byte(self.core.find_block(dir, lbn)?));
        for (n, chunk) in (0..).step_by(DIRBLKSIZ).zip(bytes.chunks_exact_mut(DIRBLKSIZ)) {
            let spot = Spot { dir: dir.ino.0 as u32, offset: (lbn << BLOCK_SHIFT) + n, byte: at + n };
            self.check_chunk(spot, chunk, names);
        }
        if bytes == *old { Ok(()) } else { self.core.change_page(dir, lbn, |buf| *buf = bytes) }
    }
}

impl TreeCheck for Checker<'_> {
    type Number = u32;
    const MOST_LINKS: u32 = u32::MAX;
    const ROOT: Ino = ROOT;

    fn forest(&mut self) -> &mut Forest<u32, u32> {
        &mut self.recs
    }

    fn records(&self) -> &Forest<u32, u32> {
        &self.recs
    }

    fn tell(&mut self, issue: TreeIssue) {
        self.f.note(issue);
    }

    fn met(&mut self, dir: u32, name: &[u8], ino: u32, _kind: u8) {
        self.f.met(dir.into(), name, ino.into());
    }

    fn names_in(&mut self, dir: u32) -> Result<Vec<Named>> {
        lostfound::names_in(&mut self.core, Ino(dir.into()))
    }

    fn put_entry_ino(&mut self, dir: u32, offset: u64, ino: u32) -> Result<()> {
        lostfound::put_entry_ino(&mut self.core, Ino(dir.into()), offset, Ino(ino.into()))
    }

    fn put_links(&mut self, ino: u32, links: u32) -> Result<()> {
        lostfound::put_links(&mut self.core, Ino(ino.into()), links)
    }

    fn step(&mut self, done: u64, total: u64) {
        (self.progress)(done, total, "links");
    }

    fn clear(&mut self, ino: u32) -> Result<()> {
        let mut i = self.inode(ino)?;
        self.recs.flag(ino, Rec::GONE, true);
        lifetimes::abandon(&mut self.core, &mut i)
    }

    fn adopt(&mut self, ino: u32, kind: u8) -> Result<u32> {
        self.name_it(ino, kind)
    }
}

impl LostFound for Checker<'_> {
    type Core = Core;

    fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    fn now(&self) -> Time {
        Time { secs: self.core.sb.created.get(), nanos: 0 }
    }

    fn lost_found(&mut self) -> &mut u32 {
        &mut self.lost_found
    }
}
