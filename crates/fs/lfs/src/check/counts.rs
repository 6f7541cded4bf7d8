//! Counts: free inodes, inodes without names, fragments of files.

use super::issue::{Issue, Node};
use super::{Checker, number};
use crate::format::*;
use arbor_base::vfs::Result;
use arbor_kit::lifetimes;
use arbor_kit::treecheck::Rec;

impl Checker<'_> {
    /// Checks free inodes and their list, inodes in use, fragments of files.
    pub(super) fn count_inodes(&mut self) -> Result<()> {
        if let Some((ino, why)) = self.walk_free()? {
            if !self.wary {
                self.f.note(Issue::FreeList { ino: Node(ino.into()), why });
            }
            self.rebuild_free()?;
        }
        let there = self.recs.there().count() as u32;
        let (found, expected) = (self.core.state.used_inodes, there);
        if found != expected {
            if !self.wary {
                self.f.note(Issue::InodeCount { found, expected });
            }
            self.core.state.used_inodes = expected;
        }
        let (found, expected) = (self.core.state.file_frags, self.frags);
        if found != expected {
            if !self.reshaped && !self.wary {
                self.f.note(Issue::VolumeFrags { found, expected });
            }
            self.core.state.file_frags = expected;
        }
        Ok(())
    }

    /// Inodes of the map that are free, the root left out.
    fn free_inodes(&self) -> u32 {
        let used = self.recs.there().filter(|r| u64::from(r.ino) != ROOT.0).count() as u32;
        self.core.state.inodes.saturating_sub(ROOT.0 as u32 + 1).saturating_sub(used)
    }

    /// What is wrong with the list of free inodes, and where.
    fn walk_free(&mut self) -> Result<Option<(u32, &'static str)>> {
        let (mut at, mut listed, all) = (self.core.state.free_ino, 0, self.free_inodes());
        while at != 0 {
            if u64::from(at) <= ROOT.0 || at >= self.core.state.inodes {
                return Ok(Some((at, "there is no such inode")));
            }
            if listed == all {
                return Ok(Some((at, "it is longer than there are free inodes")));
            }
            let entry = self.core.map_entry(number(at))?;
            if entry.frag.get() != 0 {
                return Ok(Some((at, "it is in use")));
            }
            listed += 1;
            at = entry.next_free.get();
            if listed.is_multiple_of(1024) {
                self.breathe();
            }
        }
        Ok((listed != all).then_some((0, "it ends before all free inodes are on it")))
    }

    /// Links all free inodes, the first one first.
    fn rebuild_free(&mut self) -> Result<()> {
        let mut next = 0;
        for ino in (ROOT.0 as u32 + 1..self.core.state.inodes).rev() {
            let entry = self.core.map_entry(number(ino))?;
            if entry.frag.get() == 0 {
                if entry.next_free.get() != next {
                    self.core.set_map_entry(number(ino), MapEntry { next_free: next.into(), ..entry })?;
                }
                next = ino;
            }
            if ino.is_multiple_of(1024) {
                self.breathe();
            }
        }
        self.core.state.free_ino = next;
        Ok(())
    }

    /// Follows the list of inodes without names, as long as it names such inodes.
    pub(super) fn list_orphans(&mut self) -> Result<()> {
        self.listed.clear();
        let mut at = self.core.state.orphan;
        while u64::from(at) > ROOT.0 {
            let entry = self.core.map_entry(number(at))?;
            let found = if entry.frag.get() == 0 { None } else { self.raw_inode(number(at), entry)?.ok() };
            let Some(d) = found.filter(|d| d.nlink.get() == 0) else { break };
            if !self.listed.insert(at) {
                break;
            }
            at = d.next_orphan.get();
        }
        Ok(())
    }

    /// Marks the inodes on the list of those without names; rebuilds the list if it is broken.
    pub(super) fn mark_orphans(&mut self) -> Result<()> {
        let first = self.core.state.orphan;
        let Some((ino, why)) = self.walk_orphans()? else {
            if first != 0 && self.was_clean && !std::mem::replace(&mut self.orphans_told, true) {
                self.f.note(Issue::Orphans { ino: Node(first.into()) });
            }
            return Ok(());
        };
        if !self.wary && !self.reshaped {
            self.f.note(Issue::OrphanList { ino: Node(ino.into()), why });
        }
        self.orphans_told = true;
        self.core.state.orphan = 0;
        self.core.calls.lives.clear_orphans();
        for k in 0..self.recs.len() {
            let Some(rec) = self.recs.get(k).copied() else { break };
            let nameless = rec.stored == 0 && rec.found == 0 && rec.parent == 0;
            let nameless = nameless && !rec.has(Rec::GONE) && !rec.has(Rec::READ);
            if nameless {
                let mut i = self.core.inode(number(rec.ino))?;
                lifetimes::orphan(&mut self.core, &mut i)?;
            }
            if let Some(r) = self.recs.get_mut(k) {
                r.set(Rec::LISTED, nameless);
            }
        }
        Ok(())
    }

    fn walk_orphans(&mut self) -> Result<Option<(u32, &'static str)>> {
        let mut at = self.core.state.orphan;
        while at != 0 {
            let Some(rec) = self.recs.of(at) else { return Ok(Some((at, "it is not in use"))) };
            if rec.has(Rec::LISTED) {
                return Ok(Some((at, "it is there twice")));
            }
            if rec.stored != 0 || rec.found != 0 || rec.parent != 0 {
                return Ok(Some((at, "it has a name")));
            }
            self.recs.flag(at, Rec::LISTED, true);
            at = self.core.inode(number(at))?.d.next_orphan.get();
        }
        Ok(None)
    }
}
