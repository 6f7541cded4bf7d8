//! What the root leads to, link counts, inodes without names.

use super::issue::{Issue, Node};
use super::{Checker, Rec, number};
use crate::format::*;
use arbor_base::cache::Name;
use arbor_base::vfs::{Errno, Error, FileType, Ino, Result, mode};
use arbor_kit::chunkdir::ChunkDirs;
use arbor_kit::dirent::{DOTDOT_AT, first_chunks};
use arbor_kit::inodes::InodeTable as _;
use std::sync::Arc;

/// Where what has no name goes, in the root directory.
pub(super) const LOST_FOUND: &str = "lost+found";
/// Names that are tried if something else is called so.
const TRIES: u32 = 100;

impl Checker<'_> {
    /// Each directory gets one parent, and the root leads to all of them.
    pub(super) fn connect(&mut self) -> Result<()> {
        (self.progress)(0, 2, "links");
        self.drop_extras()?;
        self.mark_orphans()?;
        for ino in self.dirs() {
            self.reach(ino)?;
        }
        let lost = |r: &&Rec| r.is_dir() && r.has(Rec::LOST) && !r.has(Rec::ORPHAN);
        let lost: Vec<u32> = self.recs.iter().filter(lost).map(|r| r.ino).collect();
        for ino in lost {
            self.settle_lost(ino)?;
        }
        for ino in self.dirs() {
            self.check_dotdot(ino)?;
        }
        Ok(())
    }

    /// Of several names of a directory the one that it agrees with stays.
    fn drop_extras(&mut self) -> Result<()> {
        for extra in std::mem::take(&mut self.extras) {
            let Some(rec) = self.find(extra.child).map(|k| self.at(k)) else { continue };
            let swap = rec.dotdot == extra.dir && rec.parent != extra.dir;
            let (kept, dropped) = if swap { (extra.dir, rec.parent) } else { (rec.parent, extra.dir) };
            let (ino, k, d) = (Node(extra.child.into()), Node(kept.into()), Node(dropped.into()));
            self.f.note(Issue::TwoParents { ino, kept: k, dropped: d });
            if swap {
                self.drop_entry(dropped, extra.child)?;
            } else {
                self.put_entry_ino(extra.dir, extra.offset, 0)?;
            }
            if let Some(rec) = self.rec(extra.child) {
                rec.parent = kept;
            }
        }
        Ok(())
    }

    /// Removes the first name of `ino` in a directory.
    fn drop_entry(&mut self, dir: u32, ino: u32) -> Result<()> {
        match self.names_in(dir)?.into_iter().find(|e| e.ino == ino) {
            Some(e) => self.put_entry_ino(dir, e.offset, 0),
            None => Ok(()),
        }
    }

    /// Follows the parents of a directory up to the root, or to one that has none.
    fn reach(&mut self, ino: u32) -> Result<()> {
        let (mut path, mut at) = (Vec::new(), ino);
        let flag = loop {
            let Some(rec) = self.find(at).map(|k| self.at(k)) else { break Rec::LOST };
            if at == ROOT.0 as u32 || rec.has(Rec::REACHED) {
                break Rec::REACHED;
            }
            if rec.has(Rec::LOST) {
                break Rec::LOST;
            }
            if rec.has(Rec::ON_PATH) {
                self.f.note(Issue::DirLoop { ino: Node(at.into()) });
                self.drop_entry(rec.parent, at)?;
                self.set_parent(at, 0);
                break Rec::LOST;
            }
            self.flag(at, Rec::ON_PATH, true);
            path.push(at);
            at = rec.parent;
        };
        if at == ROOT.0 as u32 {
            self.set_parent(at, at);
            self.flag(at, flag, true);
        }
        for ino in path {
            self.flag(ino, Rec::ON_PATH, false);
            self.flag(ino, flag, true);
        }
        Ok(())
    }

    fn set_parent(&mut self, ino: u32, parent: u32) {
        if let Some(rec) = self.rec(ino) {
            rec.parent = parent;
        }
    }

    pub(super) fn flag(&mut self, ino: u32, flag: u8, on: bool) {
        if let Some(rec) = self.rec(ino) {
            rec.flags = if on { rec.flags | flag } else { rec.flags & !flag };
        }
    }

    /// A directory that the root does not lead to is reconnected, or cleared if it was removed.
    fn settle_lost(&mut self, ino: u32) -> Result<()> {
        let Some(rec) = self.find(ino).map(|k| self.at(k)).filter(|r| r.parent == 0) else { return Ok(()) };
        // The summaries do not always say that it was removed.
        if (rec.nlink == 0 || self.wary) && self.names_in(ino)?.is_empty() {
            if !self.wary {
                self.unnamed(ino, "directory", "it was left over");
            }
            return self.clear(ino);
        }
        self.unnamed(ino, "directory", "its place is lost+found");
        let parent = self.adopt(ino, FileType::Dir)?;
        self.set_parent(ino, parent);
        if parent != 0 {
            self.one_link_more(parent)?;
            self.put_entry_ino(ino, DOTDOT_AT as u64, parent)?;
            self.rec(ino).into_iter().for_each(|rec| rec.dotdot = parent);
        }
        Ok(())
    }

    fn unnamed(&mut self, ino: u32, what: &'static str, why: &'static str) {
        self.f.note(Issue::Unnamed { ino: Node(ino.into()), what, why });
    }

    fn check_dotdot(&mut self, ino: u32) -> Result<()> {
        let Some(rec) = self.find(ino).map(|k| self.at(k)) else { return Ok(()) };
        if rec.parent == 0 || rec.parent == rec.dotdot || !rec.has(Rec::READ) {
            return Ok(());
        }
        let (found, expected) = (Node(rec.dotdot.into()), Node(rec.parent.into()));
        self.f.note(Issue::DotDot { ino: Node(ino.into()), found, expected });
        self.put_entry_ino(ino, DOTDOT_AT as u64, rec.parent)
    }

    /// Each inode has a name, and as many as it says.
    pub(super) fn count_links(&mut self) -> Result<()> {
        (self.progress)(1, 2, "links");
        let unnamed = |r: &&Rec| !r.has(Rec::GONE) && !r.is_dir() && r.found == 0 && !r.has(Rec::ORPHAN);
        let unnamed: Vec<u32> = self.recs.iter().filter(unnamed).map(|r| r.ino).collect();
        for ino in unnamed {
            let Some(rec) = self.find(ino).map(|k| self.at(k)) else { continue };
            if rec.nlink == 0 || rec.has(Rec::EMPTY) {
                self.unnamed(ino, "inode", "it was left over");
                self.clear(ino)?;
                continue;
            }
            self.unnamed(ino, "inode", "its place is lost+found");
            let kind = FileType::from_mode(u32::from(rec.kind) << 12).unwrap_or(FileType::File);
            if self.adopt(ino, kind)? != 0
                && let Some(rec) = self.rec(ino)
            {
                rec.found = 1;
            }
        }
        for ino in self.dirs() {
            let parent = self.find(ino).map_or(0, |k| self.at(k).parent);
            if let Some(parent) = self.rec(parent).filter(|p| p.ino != ino) {
                parent.found = parent.found.saturating_add(1);
            }
        }
        let wrong = |r: &&Rec| !r.has(Rec::GONE) && !r.has(Rec::ORPHAN) && r.links() != r.nlink;
        let wrong: Vec<Rec> = self.recs.iter().filter(wrong).copied().collect();
        wrong.into_iter().try_for_each(|rec| self.fix_links(rec))
    }

    fn fix_links(&mut self, rec: Rec) -> Result<()> {
        let (ino, found, expected) = (Node(rec.ino.into()), rec.nlink, rec.links());
        if expected == 0 {
            return Ok(());
        }
        self.f.note(Issue::LinkCount { ino, found, expected });
        let mut i = self.core.inode(number(rec.ino))?;
        i.d.nlink = expected.into();
        self.core.iput(&i)
    }

    // lost+found.

    /// Counts a subdirectory that this run has added.
    fn one_link_more(&mut self, dir: u32) -> Result<()> {
        let mut i = self.core.inode(number(dir))?;
        i.d.nlink = i.d.nlink.get().saturating_add(1).into();
        self.rec(dir).into_iter().for_each(|rec| rec.nlink = i.d.nlink.get());
        self.core.iput(&i)
    }

    /// The directory for what has no name; made if there is none.
    fn find_lost_found(&mut self) -> Result<u32> {
        if self.find(self.lost_found).is_some_and(|k| self.at(k).has(Rec::READ)) {
            return Ok(self.lost_found);
        }
        for n in 0..TRIES {
            let name = if n == 0 { LOST_FOUND.to_string() } else { format!("{LOST_FOUND}.{n}") };
            let mut root = self.core.inode(ROOT)?;
            match self.core.dir_lookup(&root, name.as_bytes())? {
                Some(e) if self.find(e.ino.0 as u32).is_some_and(|k| self.at(k).has(Rec::READ)) => {
                    self.lost_found = e.ino.0 as u32;
                    return Ok(self.lost_found);
                }
                Some(_) => {}
                None => {
                    let room = self.core.dir_room(&mut root, name.as_bytes())?;
                    let now = self.core.calls.now();
                    let mut dir = self.core.inew(mode::IFDIR | 0o700, (0, 0), now)?;
                    let ino = dir.ino;
                    self.core.cache.insert(Name::Page { file: ino.0, index: 0 }, Arc::new(Vec::new()));
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

    /// Gives an inode a name in lost+found, which is returned; 0 if there is no room.
    fn adopt(&mut self, ino: u32, kind: FileType) -> Result<u32> {
        match self.name_it(ino, kind) {
            Err(Error::Errno(Errno::ENOSPC)) => {
                self.f.note(Issue::NoSpace { what: format!("inode {ino}, which has no name") });
                Ok(0)
            }
            done => done,
        }
    }

    fn name_it(&mut self, ino: u32, kind: FileType) -> Result<u32> {
        let found = self.find_lost_found()?;
        if found == ino {
            return Err(Errno::ENOSPC.into());
        }
        for n in 0..TRIES {
            let name = if n == 0 { format!("#{ino}") } else { format!("#{ino}.{n}") };
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
