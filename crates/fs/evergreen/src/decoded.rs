//! Decoded inodes.

use crate::format::Dinode;
use arbor_base::layout::{Corrupt, Location};
use arbor_base::vfs::Ino;

/// A decoded inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inode {
    pub ino: Ino,
    pub d: Dinode,
}

impl Inode {
    /// Adds to the count of its blocks, or subtracts.
    pub fn count(&mut self, by: i32) {
        self.d.blocks = self.d.blocks.get().saturating_add_signed(by).into();
    }

    pub fn corrupt(&self, f: (&'static str, u64), found: impl std::fmt::Display, expected: &str) -> Corrupt {
        Corrupt::new("inode", f.0, Location::inode(self.ino), found, expected)
    }
}

arbor_kit::usual_fields!(Inode);
