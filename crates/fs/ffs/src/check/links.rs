//! Phases 3 and 4: what the root leads to, link counts, inodes without names.

use super::issue::{Issue, Node};
use super::{Checker, Rec};
use crate::format::*;
use crate::planted::{Flaw, planted};
use arbor_base::vfs::Result;
use arbor_kit::dirent::DOTDOT_AT;
use std::collections::BTreeSet;

impl Checker<'_> {
    /// Phase 3: each directory gets one parent, and the root leads to all of them.
    pub(super) fn connect(&mut self) -> Result<()> {
        (self.progress)(0, 2, "links");
        self.drop_extras()?;
        for ino in self.dirs() {
            self.reach(ino)?;
        }
        self.tell_dangling();
        let lost: Vec<u32> = self.recs.iter().filter(|r| r.is_dir() && r.has(Rec::LOST)).map(|r| r.ino).collect();
        for ino in lost {
            self.settle_lost(ino)?;
        }
        for ino in self.dirs() {
            self.check_dotdot(ino)?;
        }
        Ok(())
    }

    /// Entries that name nothing: in directories that are going to be cleared, a run that the power ended has cleared
    /// what they named.
    fn tell_dangling(&mut self) {
        let dangling = std::mem::take(&mut self.dangling);
        let reached = |dir: u32| self.find(dir).is_some_and(|i| self.at(i).has(Rec::REACHED));
        if self.reconnects() || dangling.iter().any(|d| reached(d.0)) {
            dangling.into_iter().for_each(|d| self.f.note(d.1));
        }
    }

    /// Of several names of a directory the one that it agrees with stays.
    fn drop_extras(&mut self) -> Result<()> {
        for extra in std::mem::take(&mut self.extras) {
            let Some(rec) = self.find(extra.child).map(|i| self.at(i)) else { continue };
            let swap = rec.dotdot == extra.dir && rec.parent != extra.dir;
            let (kept, dropped) = if swap { (extra.dir, rec.parent) } else { (rec.parent, extra.dir) };
            let (ino, k, d) = (Node(extra.child.into()), Node(kept.into()), Node(dropped.into()));
            self.f.note(Issue::TwoParents { ino, kept: k, dropped: d });
            if swap {
                self.drop_name(dropped, extra.child)?;
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
    fn drop_name(&mut self, dir: u32, ino: u32) -> Result<()> {
        match self.names_in(dir)?.into_iter().find(|e| e.ino == ino) {
            Some(e) => self.put_entry_ino(dir, e.offset, 0),
            None => Ok(()),
        }
    }

    /// Follows the parents of a directory up to the root, or to one that has none.
    fn reach(&mut self, ino: u32) -> Result<()> {
        let (mut path, mut at) = (Vec::new(), ino);
        let flag = loop {
            let Some(rec) = self.find(at).map(|i| self.at(i)) else { break Rec::LOST };
            if at == ROOT.0 as u32 || rec.has(Rec::REACHED) {
                break Rec::REACHED;
            }
            if rec.has(Rec::LOST) {
                break Rec::LOST;
            }
            if rec.has(Rec::ON_PATH) {
                self.f.note(Issue::DirLoop { ino: Node(at.into()) });
                self.drop_name(rec.parent, at)?;
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

    fn flag(&mut self, ino: u32, flag: u8, on: bool) {
        if let Some(rec) = self.rec(ino) {
            rec.flags = if on { rec.flags | flag } else { rec.flags & !flag };
        }
    }

    /// A directory that the root does not lead to is reconnected or cleared.
    fn settle_lost(&mut self, ino: u32) -> Result<()> {
        let Some(rec) = self.find(ino).map(|i| self.at(i)) else { return Ok(()) };
        if !self.reconnects() || rec.parent == 0 && rec.nlink == 0 {
            self.unnamed(ino, "directory", "it was left over");
            for e in self.names_in(ino)? {
                self.lose_name(ino, e.ino);
            }
            return self.clear(ino);
        }
        if rec.parent == 0 {
            self.unnamed(ino, "directory", "its place is lost+found");
            let parent = self.adopt(ino, rec.kind)?;
            self.set_parent(ino, parent);
            if parent != 0 {
                self.one_link_more(parent)?;
                self.put_entry_ino(ino, DOTDOT_AT as u64, parent)?;
                self.rec(ino).into_iter().for_each(|rec| rec.dotdot = parent);
            }
        }
        Ok(())
    }

    fn unnamed(&mut self, ino: u32, what: &'static str, why: &'static str) {
        self.f.note(Issue::Unnamed { ino: Node(ino.into()), what, why });
    }

    /// A directory that is cleared names nothing any more.
    fn lose_name(&mut self, dir: u32, ino: u32) {
        let Some(rec) = self.rec(ino) else { return };
        if !rec.is_dir() {
            rec.found = rec.found.saturating_sub(1);
        } else if rec.parent == dir {
            rec.parent = 0;
        }
    }

    fn check_dotdot(&mut self, ino: u32) -> Result<()> {
        let Some(rec) = self.find(ino).map(|i| self.at(i)) else { return Ok(()) };
        if rec.parent == 0 || rec.parent == rec.dotdot {
            return Ok(());
        }
        let (found, expected) = (Node(rec.dotdot.into()), Node(rec.parent.into()));
        self.f.note(Issue::DotDot { ino: Node(ino.into()), found, expected });
        self.put_entry_ino(ino, DOTDOT_AT as u64, rec.parent)
    }

    /// The orphan list, which mount follows on a volume that was not unmounted. It is empty on a volume that is mended:
    /// what is on it has no name, and is cleared.
    pub(super) fn check_orphans(&mut self) -> Result<()> {
        let (mut at, mut seen) = (self.r.sb.orphan.get(), BTreeSet::new());
        while self.r.sb.clean.get() == 0 && at != 0 {
            let why = match self.inode(at)? {
                _ if !seen.insert(at) => "is on it already",
                None => "is not in use",
                Some(d) if d.nlink.get() > 0 => "has a name",
                Some(d) => {
                    at = d.btime.secs.get();
                    continue;
                }
            };
            self.f.note(Issue::OrphanList { ino: Node(at.into()), why });
            self.empty_orphans();
            break;
        }
        if self.r.sb.clean.get() == 0 && self.r.sb.orphan.get() != 0 && !planted(Flaw::OrphansListed) {
            self.empty_orphans();
        }
        Ok(())
    }

    fn empty_orphans(&mut self) {
        self.r.sb.orphan = 0.into();
        self.super_changed = true;
    }

    /// Phase 4: each inode has a name, and as many as it says.
    pub(super) fn count_links(&mut self) -> Result<()> {
        (self.progress)(1, 2, "links");
        let unnamed = |r: &&Rec| !r.has(Rec::GONE) && !r.is_dir() && r.found == 0;
        let unnamed: Vec<u32> = self.recs.iter().filter(unnamed).map(|r| r.ino).collect();
        for ino in unnamed {
            let Some(rec) = self.find(ino).map(|i| self.at(i)) else { continue };
            if !self.reconnects() || rec.has(Rec::EMPTY) || rec.nlink == 0 {
                self.unnamed(ino, "inode", "it was left over");
                self.clear(ino)?;
                continue;
            }
            self.unnamed(ino, "inode", "its place is lost+found");
            if self.adopt(ino, rec.kind)? != 0
                && let Some(rec) = self.rec(ino)
            {
                rec.found = 1;
            }
        }
        for ino in self.dirs() {
            let parent = self.find(ino).map_or(0, |i| self.at(i).parent);
            if let Some(parent) = self.rec(parent).filter(|p| p.ino != ino) {
                parent.found = parent.found.saturating_add(1);
            }
        }
        let wrong: Vec<Rec> = self.recs.iter().filter(|r| !r.has(Rec::GONE) && r.links() != r.nlink).copied().collect();
        wrong.into_iter().try_for_each(|rec| self.fix_links(rec))
    }

    fn fix_links(&mut self, rec: Rec) -> Result<()> {
        let (ino, found, expected) = (Node(rec.ino.into()), rec.nlink.into(), rec.links().into());
        if expected == 0 {
            return Ok(());
        }
        self.f.note(match found > expected {
            true => Issue::LinkCountHigh { ino, found, expected },
            false => Issue::LinkCountLow { ino, found, expected },
        });
        if let Some(d) = self.inode(rec.ino)? {
            self.r.put_inode(rec.ino.into(), Dinode { nlink: rec.links().into(), ..d })?;
        }
        Ok(())
    }
}
