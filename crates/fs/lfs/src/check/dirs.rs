//! Directories, their chunks and what the entries name.

use super::issue::{Issue, Node};
use super::{Checker, number, words};
use crate::format::*;
use crate::inode::Inode;
use crate::volume::Core;
use arbor_base::cache::{FileBlock, Name};
use arbor_base::device::Kind;
use arbor_base::vfs::{Ino, Result, Time, mode};
use arbor_kit::blockmap::BlockMap as _;
use arbor_kit::dirent::empty_chunks;
use arbor_kit::forest::{DIR_KIND, Forest, LOST_FOUND, Spot, TreeIssue};
use arbor_kit::inodes::InodeStore as _;
use arbor_kit::lostfound::{self, LostFound};
use arbor_kit::treecheck::{ChunkCheck as _, Named, Names, Rec, TreeCheck};
use std::sync::Arc;

impl Checker<'_> {
    /// Finds the root directory, or makes a new one.
    pub(super) fn find_root(&mut self) -> Result<()> {
        let root = ROOT.0 as u32;
        let why = match self.recs.of(root) {
            Some(rec) if rec.is_dir() => return Ok(()),
            Some(_) => "is not a directory",
            None => "is not in use",
        };
        self.f.note(TreeIssue::RootLost { ino: ROOT.0, why });
        if self.recs.find(root).is_some() {
            self.clear(root)?;
            self.unlist(root)?;
        }
        let version = self.core.map_entry(ROOT)?.version.get().wrapping_add(1);
        self.core
            .set_map_entry(ROOT, MapEntry { frag: UNWRITTEN.into(), version: version.into(), ..MapEntry::default() })?;
        self.core.state.used_inodes += 1;
        self.core.state.inodes = self.core.state.inodes.max(root + 1);
        let now = self.now();
        let mut i = self.core.put_new((ROOT, version), mode::IFDIR | 0o755, (0, 0), now)?;
        self.begin_dir(&mut i, ROOT).map(drop)
    }

    /// Removes an inode from the list of free ones, where it was put just now.
    fn unlist(&mut self, ino: u32) -> Result<()> {
        if self.core.state.free_ino == ino {
            self.core.state.free_ino = self.core.map_entry(number(ino))?.next_free.get();
        }
        Ok(())
    }

    pub(super) fn read_dirs(&mut self) -> Result<()> {
        let dirs = self.recs.dirs();
        for (n, ino) in dirs.iter().enumerate() {
            if n % 64 == 0 {
                (self.progress)(n as u64, dirs.len() as u64, "names");
            }
            // A removed directory is not read.
            if !self.listed.contains(ino) {
                self.check_dir(*ino)?;
                self.recs.flag(*ino, Rec::READ, true);
            }
            self.breathe();
        }
        Ok(())
    }

    pub(super) fn check_dir(&mut self, ino: u32) -> Result<()> {
        let mut i = self.core.inode(number(ino))?;
        let geom = self.core.geom;
        let mut names = Names::default();
        let len = i.size().div_ceil(geom.block_size() as u64);
        // A directory of holes is not worth the space: it ends with the first.
        let fill = len <= 2 * i.d.frags.get().div_ceil(geom.block_frags().into()) + 16;
        for lbn in 0..len {
            let Some(page) = self.dir_bytes(&mut i, lbn, fill || lbn == 0)? else {
                self.core.mark(i.ino)?;
                i.d.size = (lbn << geom.block_shift).into();
                return self.core.iput(&i);
            };
            let mut bytes = page.to_vec();
            self.check_page(&i, lbn, &mut bytes, &mut names);
            if bytes != *page {
                self.put_page(i.ino, lbn, bytes)?;
            }
        }
        Ok(())
    }

    /// Changes a page of a directory that is in the cache.
    fn put_page(&mut self, ino: Ino, lbn: u64, bytes: Vec<u8>) -> Result<()> {
        self.core.mark(ino)?;
        self.core.hashes.remove(ino);
        self.core.modify(Name::data(ino, lbn), |buf| *buf = bytes)
    }

    /// A page of a directory as it is, which then is in the cache. A hole is filled, or `None`.
    fn dir_bytes(&mut self, i: &mut Inode, lbn: u64, fill: bool) -> Result<Option<Arc<Vec<u8>>>> {
        let (geom, node) = (self.core.geom, Node(i.ino.0));
        let name = Name::data(i.ino, lbn);
        let (p, offset) = (self.core.pointer(i, FileBlock::Data(lbn))?, lbn << geom.block_shift);
        let len = geom.bytes_of(geom.lbn_frags(i.size(), lbn));
        if p.frag.get() == 0 {
            self.f.note(TreeIssue::DirHole { ino: node, offset });
            if !fill {
                return Ok(None);
            }
            self.core.mark(i.ino)?;
            self.core.ensure(i, lbn)?;
            self.core.cache.insert(name, Arc::new(Vec::new()));
            self.put_page(i.ino, lbn, empty_chunks(len))?;
            self.core.count(i, geom.lbn_frags(i.size(), lbn), 0);
            self.core.iput(i)?;
        } else if !self.core.cache.contains(name) {
            let disk = match self.core.changed.contains_key(&i.ino.0) {
                true => self.core.disk_frags(i.ino, FileBlock::Data(lbn)).max(1),
                false => geom.lbn_frags(i.size(), lbn),
            };
            match words(self.core.read_block((i, FileBlock::Data(lbn)), p, disk, Kind::Dir))? {
                Ok(bytes) => drop(self.core.cache.insert(name, Arc::new(bytes))),
                Err(_) => {
                    // Chunk by chunk what is sound stays, see `check_chunk`.
                    let at = self.byte(p.frag.get());
                    self.f.note(Issue::DirBlock { ino: node, offset, at });
                    self.core.check_pointer((i, FileBlock::Data(lbn)), p, disk)?;
                    let bytes = self.core.read_run(Frag(p.frag.get()), disk, Kind::Dir)?;
                    self.core.cache.insert(name, Arc::new(Vec::new()));
                    self.put_page(i.ino, lbn, bytes)?;
                }
            }
        }
        let page = self.core.cache.get(name).cloned().unwrap_or_default();
        if page.len() == len {
            return Ok(Some(page));
        }
        let mut bytes = page.to_vec();
        bytes.truncate(len);
        bytes.extend(empty_chunks(len - bytes.len()));
        self.put_page(i.ino, lbn, bytes)?;
        Ok(self.core.cache.get(name).cloned())
    }

    fn check_page(&mut self, i: &Inode, lbn: u64, bytes: &mut [u8], names: &mut Names) {
        let start = lbn << self.core.geom.block_shift;
        for (k, chunk) in (0u64..).zip(bytes.chunks_exact_mut(DIRBLKSIZ)) {
            let offset = start + k * DIRBLKSIZ as u64;
            if offset < i.size() {
                self.check_chunk(Spot { dir: i.ino.0 as u32, offset, byte: 0 }, chunk, names);
            }
        }
    }
}

impl TreeCheck for Checker<'_> {
    type Number = u32;
    const ROOT: Ino = ROOT;
    const MOST_LINKS: u32 = u32::MAX;

    fn forest(&mut self) -> &mut Forest<u32, u32> {
        &mut self.recs
    }

    fn records(&self) -> &Forest<u32, u32> {
        &self.recs
    }

    fn names_for_paths(&mut self, dir: u32) -> Result<Vec<Named>> {
        let names = self.names_in(dir).unwrap_or_default();
        self.breathe();
        Ok(names)
    }

    fn tell(&mut self, issue: TreeIssue) {
        self.f.note(issue);
    }

    fn names_in(&mut self, dir: u32) -> Result<Vec<Named>> {
        lostfound::names_in(&mut self.core, number(dir))
    }

    fn put_entry_ino(&mut self, dir: u32, offset: u64, ino: u32) -> Result<()> {
        lostfound::put_entry_ino(&mut self.core, number(dir), offset, number(ino))
    }

    fn put_links(&mut self, ino: u32, links: u32) -> Result<()> {
        lostfound::put_links(&mut self.core, number(ino), links)
    }

    fn clear(&mut self, ino: u32) -> Result<()> {
        let i = self.core.inode(number(ino))?;
        self.core.state.file_frags = self.core.state.file_frags.saturating_sub(i.d.frags.get());
        self.free(ino)
    }

    fn adopt(&mut self, ino: u32, kind: u8) -> Result<u32> {
        self.name_it(ino, kind)
    }

    fn met(&mut self, dir: u32, name: &[u8], ino: u32, kind: u8) {
        if u64::from(dir) == ROOT.0 && name == LOST_FOUND.as_bytes() && kind == DIR_KIND {
            self.lost_found = ino;
        }
    }
}

impl LostFound for Checker<'_> {
    type Core = Core;

    fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    fn now(&self) -> Time {
        self.core.calls.now()
    }

    fn lost_found(&mut self) -> &mut u32 {
        &mut self.lost_found
    }
}
