//! Connectivity: directories below the root, link counts, inodes without names.

use super::Checker;
use arbor_base::vfs::Result;
use arbor_kit::treecheck::{Rec, TreeCheck as _};

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
}
