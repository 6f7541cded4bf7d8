//! Where a pass of gathering is (`gather.rs`).

use crate::format::{BLOCK, IFILE};
use crate::units::Units;
use arbor_base::device::Medium;
use arbor_base::vfs::Ino;
use rustc_hash::FxHashSet;

/// Where a pass begins: the first block of the ifile is the master block.
const BEGIN: (Ino, u64) = (IFILE, 1);

/// Where a pass is.
#[derive(Debug)]
pub(crate) struct Gather {
    /// As those of the policy, or as on a disk.
    pub units: Units,
    /// Those that are being emptied.
    pub victims: FxHashSet<u32>,
    /// The next inode, and the next block of it.
    pub at: (Ino, u64),
    /// The last change of a user was so many milliseconds after the mount.
    pub changed_ms: u64,
    /// The change after which the volume may be idle, and since when: a commit may take longer than idle time has to.
    pub quiet: (u64, u64),
    /// A step is under way: its changes are no user's.
    pub works: bool,
    /// After the change at that time there is nothing worth while.
    pub in_vain: Option<u64>,
    /// After which change the last pass began, and the blocks in whole units then, to see whether it has gained anything.
    pub before: Option<(u64, u64)>,
    pub moved: u64,
}

impl Gather {
    pub fn new(units: &Units) -> Gather {
        let medium =
            units.blocks().map_or(Medium::Disk, |blocks| Medium::Blocks { bytes: blocks * BLOCK as u32, open: 0 });
        Gather {
            units: Units::new(medium),
            victims: FxHashSet::default(),
            at: BEGIN,
            changed_ms: 0,
            quiet: (0, 0),
            works: false,
            in_vain: None,
            before: None,
            moved: 0,
        }
    }

    pub fn is_on(&self) -> bool {
        !self.victims.is_empty()
    }

    /// Notes a change.
    pub fn note_change(&mut self, now_ms: u64) {
        if !self.works {
            self.changed_ms = now_ms;
        }
    }

    /// For how long there was no change when background work was asked for.
    pub fn quiet_ms(&mut self, now_ms: u64) -> u64 {
        if self.quiet.0 != self.changed_ms {
            self.quiet = (self.changed_ms, now_ms);
        }
        now_ms.saturating_sub(self.quiet.1)
    }

    pub fn is_victim(&self, block: u32) -> bool {
        self.victims.contains(&self.units.number(block))
    }

    pub fn end(&mut self) {
        self.victims.clear();
        self.at = BEGIN;
    }
}
