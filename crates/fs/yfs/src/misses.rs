//! Names that were looked up and found missing.

use crate::planted::{Flaw, planted};
use arbor_base::vfs::Ino;

/// Names that were looked up and found missing: one for each of a few directories.
#[derive(Default)]
pub(crate) struct Misses([Missed; 8]);

#[derive(Default)]
struct Missed {
    /// The directory, or 0.
    dir: u64,
    name: Vec<u8>,
    /// Number for its entry, `None` if all are taken.
    seq: Option<u16>,
}

impl Misses {
    /// The number for an entry of a name, if it is known to be missing.
    pub fn find(&mut self, dir: Ino, name: &[u8]) -> Option<Option<u16>> {
        let slot = self.slot(dir);
        (slot.dir == dir.0 && slot.name == name).then_some(slot.seq)
    }

    pub fn note(&mut self, dir: Ino, name: &[u8], seq: Option<u16>) {
        let slot = self.slot(dir);
        (slot.dir, slot.seq) = (dir.0, seq);
        slot.name.clear();
        slot.name.extend_from_slice(name);
    }

    /// Forgets the name of a directory, whose entries change.
    pub fn forget(&mut self, dir: Ino) {
        if !planted(Flaw::MissesKept) {
            self.slot(dir).dir = 0;
        }
    }

    fn slot(&mut self, dir: Ino) -> &mut Missed {
        // The numbers of directories made one after another differ by the size of an inode.
        &mut self.0[(dir.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 61) as usize]
    }
}
