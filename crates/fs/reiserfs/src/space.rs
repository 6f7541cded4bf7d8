//! What is known of free space beside the bitmaps (`alloc.rs`): which blocks are held back.

use crate::format::Geom;
use crate::node::Block;
use arbor_kit::buddy::bitmap;
use std::collections::{BTreeMap, BTreeSet};

/// What a block is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    /// A node of the tree.
    Tree,
    /// Bytes of a file: an unformatted node.
    Data,
}

/// What is known of free space beside the bitmaps.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// Bitmaps in which nothing can be allocated.
    pub full: BTreeSet<u32>,
    /// Blocks that are held back, as bits by bitmap.
    pub held: BTreeMap<u32, Vec<u8>>,
    /// Those that the running transaction has freed.
    pub freed: Vec<Block>,
    /// Those of which the log has a copy.
    pub logged: Vec<Block>,
    /// The block that was taken last since the mount, and the last unformatted node.
    pub last: Option<Block>,
    pub last_data: Option<Block>,
    /// The device could not read a bitmap in which a block was looked for.
    pub is_unread: bool,
    /// Bitmaps that are damaged.
    pub lost: BTreeSet<u32>,
    /// One that was read, and has a free block unless it is full by now.
    pub sound: Option<u32>,
}

impl Space {
    /// Blocks that are free and held back.
    pub fn held(&self) -> u32 {
        (self.freed.len() + self.logged.len()) as u32
    }

    /// Notes a block that was taken.
    pub fn note_taken(&mut self, block: Block, of: For) {
        self.last = Some(block);
        if of == For::Data {
            self.last_data = Some(block);
        }
    }

    /// Holds back a block that the running transaction frees.
    pub fn hold_back(&mut self, geom: &Geom, block: Block) {
        let bits = self.held.entry(block / geom.covered()).or_insert_with(|| vec![0; geom.bit_bytes()]);
        bitmap::set_used(bits, block % geom.covered(), 1);
        self.freed.push(block);
    }

    /// Lets a block be allocated.
    pub fn let_go(&mut self, geom: &Geom, block: Block) {
        let n = block / geom.covered();
        if let Some(bits) = self.held.get_mut(&n) {
            bitmap::set_free(bits, block % geom.covered(), 1);
        }
        self.full.remove(&n);
    }
}
