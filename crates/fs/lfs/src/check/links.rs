//! Connectivity: directories below the root, link counts, inodes without names.

use super::{Checker, number};
use crate::format::*;
use arbor_base::cache::Name;
use arbor_base::vfs::{Errno, FileType, Ino, Result, mode};
use arbor_kit::chunkdir::ChunkDirs;
use arbor_kit::dirent::first_chunks;
use arbor_kit::forest::{LOST_FOUND, spare_names};
use arbor_kit::treecheck::{Rec, TreeCheck as _};
use std::sync::Arc;

impl Checker<'_> {
    /// Gives each directory one parent, and connects all of them to the root.
    pub(super) fn connect(&mut self) -> Result<()> {
        (self.progress)(0, 2, "links");
        self.drop_extras()?;
        self.mark_orphans()?;
        self.reach_dirs()?;
        let lost = |r: &&Rec| r.is_dir() && r.has(Rec::LOST) && !r.has(Rec::LISTED);
        let lost: Vec<u32> = self.recs.iter().filter(lost).map(|r| r.ino).collect();
        for ino in lost {
            self.settle_lost(ino)?;
        }
        self.check_dotdots()
    }

    /// Reconnects a directory that is not below the root, or clears it if it was removed.
    fn settle_lost(&mut self, ino: u32) -> Result<()> {
        let Some(rec) = self.recs.of(ino).filter(|r| r.parent == 0) else { return Ok(()) };
        // The summaries do not always tell that it was removed.
        if (rec.stored == 0 || self.wary) && self.names_in(ino)?.is_empty() {
            if !self.wary {
                self.unnamed(ino, "directory", "it was left over");
            }
            return self.clear(ino);
        }
        self.reconnect(ino, rec.kind)
    }

    fn was_read(&self, dir: u32) -> bool {
        self.recs.of(dir).is_some_and(|rec| rec.has(Rec::READ))
    }

    /// The directory lost+found; makes it if there is none.
    fn find_lost_found(&mut self) -> Result<u32> {
        if self.was_read(self.lost_found) {
            return Ok(self.lost_found);
        }
        for name in spare_names(LOST_FOUND) {
            let mut root = self.core.inode(ROOT)?;
            match self.core.dir_lookup(&root, name.as_bytes())? {
                Some(e) if self.was_read(e.ino.0 as u32) => {
                    self.lost_found = e.ino.0 as u32;
                    return Ok(self.lost_found);
                }
                Some(_) => {}
                None => {
                    let room = self.core.dir_room(&mut root, name.as_bytes())?;
                    let now = self.core.calls.now();
                    let mut dir = self.core.inew(mode::IFDIR | 0o700, (0, 0), now)?;
                    let ino = dir.ino;
                    self.core.cache.insert(Name::data(ino, 0), Arc::new(Vec::new()));
                    let len = self.core.geom.frag_size() as u64;
                    self.core.alloc_block(&mut dir, 0, len, &mut |buf, len| *buf = first_chunks(len, ino, ROOT))?;
                    self.core.dir_insert(&root, room, name.as_bytes(), ino, FileType::Dir)?;
                    self.lost_found = ino.0 as u32;
                    self.add_rec(self.lost_found, ROOT.0 as u32);
                    self.one_link_more(ROOT.0 as u32)?;
                    return Ok(self.lost_found);
                }
            }
        }
        Err(Errno::ENOSPC.into())
    }

    /// Gives an inode a name in lost+found, which is returned.
    pub(super) fn name_it(&mut self, ino: u32, kind: FileType) -> Result<u32> {
        let found = self.find_lost_found()?;
        if found == ino {
            return Err(Errno::ENOSPC.into());
        }
        for name in spare_names(&format!("#{ino}")) {
            let mut dir = self.core.inode(number(found))?;
            if self.core.dir_lookup(&dir, name.as_bytes())?.is_none() {
                let room = self.core.dir_room(&mut dir, name.as_bytes())?;
                self.core.dir_insert(&dir, room, name.as_bytes(), Ino(ino.into()), kind)?;
                return Ok(found);
            }
        }
        Err(Errno::ENOSPC.into())
    }
}
