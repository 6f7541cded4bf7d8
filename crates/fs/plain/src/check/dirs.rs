//! Phase 3: directories, their chunks and entries; connectivity; link counts (`kit::treecheck`).
//!
//! Inodes without a name go to lost+found.

use super::Checker;
use crate::alloc::Of;
use crate::format::*;
use crate::inode::Inode;
use arbor_base::cache::Name;
use arbor_base::device::Kind;
use arbor_base::vfs::{Errno, Error, FileType, Ino, Result, Time, is_name, mode};
use arbor_kit::chunkdir::ChunkDirs as _;
use arbor_kit::chunkrepair::set_ino;
use arbor_kit::dirent::{Dirent, entries};
use arbor_kit::forest::{DIR_KIND, Forest, LOST_FOUND, Verdict, lost_name, spare_names};
use arbor_kit::inodes::InodeTable as _;
use arbor_kit::lifetimes;
use arbor_kit::treecheck::{Named, Names, Rec, Spot, TreeCheck};
use std::sync::Arc;

const ROOT_INO: u32 = ROOT.0 as u32;

impl Checker<'_> {
    /// The inode of a number in use.
    pub(super) fn inode(&mut self, ino: u32) -> Result<Inode> {
        self.core.iget(Ino(ino.into()))
    }

    /// The time for what a repair makes.
    fn now(&self) -> Time {
        Time { secs: self.core.sb.created.get(), nanos: 0 }
    }

    /// Finds the root directory, or makes a new one.
    pub(super) fn find_root(&mut self) -> Result<()> {
        let why = match self.recs.of(ROOT_INO) {
            Some(rec) if rec.is_dir() => return Ok(()),
            Some(_) => "is not a directory",
            None => "is not in use",
        };
        self.f.note(Verdict::RootLost { ino: ROOT.0, why });
        if self.recs.of(ROOT_INO).is_some() {
            self.clear(ROOT_INO)?;
        }
        // The next inode allocated is the root.
        while self.core.sb.inodes.end.get() < ROOT_INO {
            self.core.take(Of::Inodes)?;
        }
        let rover = std::mem::replace(&mut self.core.sb.inodes.rover, ROOT_INO.into());
        let made = self.new_dir(mode::IFDIR | 0o755, ROOT);
        self.core.sb.inodes.rover = rover;
        self.spaced(made, "the root directory").map(drop)
    }

    /// Makes an empty directory.
    fn new_dir(&mut self, m: u32, parent: Ino) -> Result<u32> {
        self.core.need(1)?;
        let mut i = self.core.inew(m, (0, 0), self.now())?;
        self.core.init_dir(&mut i, parent)?;
        let (ino, up) = (i.ino.0 as u32, parent.0 as u32);
        let flags = Rec::REACHED | Rec::READ;
        self.recs.put(Rec { ino, parent: up, dotdot: up, stored: 2, kind: DIR_KIND, flags, found: 0 });
        Ok(ino)
    }

    /// Turns `ENOSPC` into `None` and an issue.
    fn spaced<T>(&mut self, made: Result<T>, what: &str) -> Result<Option<T>> {
        match made {
            Err(Error::Errno(Errno::ENOSPC)) => {
                self.f.note(Verdict::NoSpace { what: what.into() });
                Ok(None)
            }
            made => made.map(Some),
        }
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
            self.recs.flag(*ino, Rec::READ, true);
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

    /// Gives each directory one parent, connects all of them to the root, and counts names.
    pub(super) fn connect(&mut self) -> Result<()> {
        (self.progress)(0, 2, "links");
        self.drop_extras()?;
        self.reach_dirs()?;
        let lost: Vec<Rec> =
            self.recs.there().filter(|r| r.is_dir() && r.has(Rec::LOST) && r.parent == 0).copied().collect();
        for rec in lost {
            if rec.stored > 0 {
                self.reconnect(rec.ino, rec.kind)?;
                continue;
            }
            self.unnamed(rec.ino, "directory", "it was left over");
            for e in self.names_in(rec.ino)? {
                self.recs.lose_name(rec.ino, e.ino);
            }
            self.clear(rec.ino)?;
        }
        self.check_dotdots()?;
        (self.progress)(1, 2, "links");
        self.count_links()
    }

    /// Gives an inode a name in lost+found, which is returned.
    fn give_name(&mut self, ino: u32, kind: u8) -> Result<u32> {
        let (dir, t) = (self.lost_found()?, FileType::from_mode(u32::from(kind) << 12).unwrap_or(FileType::File));
        let name = lost_name(ino.into(), None);
        let room = self.core.dir_room(Ino(dir.into()), &name)?;
        self.core.enter(room, &name, Ino(ino.into()), t, self.now())?;
        Ok(dir)
    }

    /// The directory lost+found; makes it if there is none.
    fn lost_found(&mut self) -> Result<u32> {
        for name in spare_names(LOST_FOUND) {
            if self.lost_found != 0 {
                break;
            }
            let root = self.inode(ROOT_INO)?;
            match self.core.dir_lookup(&root, name.as_bytes())? {
                Some(e) if self.recs.of(e.ino.0 as u32).is_some_and(|rec| rec.is_dir()) => {
                    self.lost_found = e.ino.0 as u32;
                }
                Some(_) => {}
                None => {
                    let room = self.core.dir_room(ROOT, name.as_bytes())?;
                    let ino = self.new_dir(mode::IFDIR | 0o700, ROOT)?;
                    self.core.enter(room, name.as_bytes(), Ino(ino.into()), FileType::Dir, self.now())?;
                    self.one_link_more(ROOT_INO)?;
                    self.lost_found = ino;
                }
            }
        }
        if self.lost_found == 0 { Err(Errno::ENOSPC.into()) } else { Ok(self.lost_found) }
    }
}

impl TreeCheck for Checker<'_> {
    const MOST_LINKS: u32 = u32::MAX;
    const ROOT: Ino = ROOT;

    fn forest(&mut self) -> &mut Forest<u32, u32> {
        &mut self.recs
    }

    fn records(&self) -> &Forest<u32, u32> {
        &self.recs
    }

    fn tell(&mut self, verdict: Verdict) {
        self.f.note(verdict);
    }

    fn met(&mut self, dir: u32, e: &Dirent<'_>, _kind: u8) {
        self.f.met(dir.into(), e.name, e.ino.0);
    }

    fn names_in(&mut self, dir: u32) -> Result<Vec<Named>> {
        let (dir, mut all) = (self.inode(dir)?, Vec::new());
        for lbn in 0..blocks_of(dir.d.size.get()) {
            let bytes = self.dir_bytes(&dir, lbn)?;
            for (offset, chunk) in (lbn << BLOCK_SHIFT..).step_by(DIRBLKSIZ).zip(bytes.chunks_exact(DIRBLKSIZ)) {
                let used = entries(chunk).unwrap_or_default().into_iter().filter(|e| e.ino.0 != 0 && is_name(e.name));
                let named = |e: Dirent<'_>| (offset + e.at as u64, e.ino.0 as u32, e.name.to_vec());
                all.extend(used.map(named).map(|(offset, ino, name)| Named { offset, ino, name }));
            }
        }
        Ok(all)
    }

    fn put_entry_ino(&mut self, dir: u32, offset: u64, ino: u32) -> Result<()> {
        let (dir, lbn) = (self.inode(dir)?, offset >> BLOCK_SHIFT);
        self.dir_bytes(&dir, lbn)?;
        self.core.hashes.remove(dir.ino);
        self.core.change_page(&dir, lbn, |buf| set_ino(buf, offset as usize % BLOCK, Ino(ino.into())))
    }

    fn put_links(&mut self, ino: u32, links: u32) -> Result<()> {
        let mut i = self.inode(ino)?;
        i.d.nlink = links.into();
        self.core.iput(&i)
    }

    fn clear(&mut self, ino: u32) -> Result<()> {
        let mut i = self.inode(ino)?;
        self.recs.flag(ino, Rec::GONE, true);
        lifetimes::abandon(&mut self.core, &mut i)
    }

    fn adopt(&mut self, ino: u32, kind: u8) -> Result<u32> {
        let made = self.give_name(ino, kind);
        Ok(self.spaced(made, &format!("inode {ino}, which has no name"))?.unwrap_or(0))
    }
}
