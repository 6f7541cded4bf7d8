//! Phases 3 and 4: connectivity, link counts, inodes without names.

use super::Checker;
use super::issue::{Issue, Node};
use crate::planted::{Flaw, planted};
use arbor_base::vfs::Result;
use arbor_kit::treecheck::{Rec, TreeCheck as _};
use std::collections::BTreeSet;

impl Checker<'_> {
    /// Phase 3: gives each directory one parent, and makes all of them reachable from the root.
    pub(super) fn connect(&mut self) -> Result<()> {
        (self.progress)(0, 2, "links");
        self.drop_extras()?;
        self.reach_dirs()?;
        self.tell_dangling();
        let lost: Vec<u32> = self.recs.iter().filter(|r| r.is_dir() && r.has(Rec::LOST)).map(|r| r.ino).collect();
        for ino in lost {
            self.settle_lost(ino)?;
        }
        self.check_dotdots()
    }

    /// Notes entries that name nothing. In directories that are going to be cleared they are expected: a repair that a
    /// power cut ended has cleared the inodes they named.
    fn tell_dangling(&mut self) {
        let dangling = std::mem::take(&mut self.dangling);
        let reached = |dir: u32| self.recs.of(dir).is_some_and(|rec| rec.has(Rec::REACHED));
        if self.reconnects() || dangling.iter().any(|d| reached(d.0)) {
            dangling.into_iter().for_each(|d| self.f.note(d.1));
        }
    }

    /// Reconnects or clears a directory that cannot be reached from the root.
    fn settle_lost(&mut self, ino: u32) -> Result<()> {
        let Some(rec) = self.recs.of(ino) else { return Ok(()) };
        if !self.reconnects() || rec.parent == 0 && rec.stored == 0 {
            self.unnamed(ino, "directory", "it was left over");
            for e in self.names_in(ino)? {
                self.recs.lose_name(ino, e.ino);
            }
            return self.clear(ino);
        }
        if rec.parent == 0 { self.reconnect(ino, rec.kind) } else { Ok(()) }
    }

    /// Checks the orphan list, which mount follows on a volume that was not unmounted. It is empty on a mended volume:
    /// the inodes on it have no names, and are cleared.
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
}
