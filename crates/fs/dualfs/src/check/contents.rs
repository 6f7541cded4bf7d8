//! Contents against their checksums, as far as they have some. Blocks that do not have theirs become holes once all owners are
//! known: what lies there may be another file's.

use super::Checker;
use super::issue::{Issue, Node};
use crate::decoded::Inode;
use crate::format::*;
use arbor_base::device::Kind;
use arbor_base::layout::crc;
use arbor_base::vfs::{Error, Ino, Result};
use arbor_kit::blockfile::BlockFiles as _;
use arbor_kit::blockmap::BlockMap as _;
use arbor_kit::inodes::InodeStore as _;
use std::ops::Range;

/// Most bytes that are read together.
const CLUSTER: usize = 128 << 10;

/// Data blocks that were read together. Those of files that were made one after the other follow one another, too.
#[derive(Default)]
pub(super) struct Window {
    first: u32,
    bytes: Vec<u8>,
}

/// The damaged blocks of a file.
#[derive(Default)]
pub(super) struct Damaged {
    /// Logical blocks.
    pub runs: Vec<Range<u64>>,
    /// The data block of the first.
    first: u32,
}

impl Damaged {
    pub fn add(&mut self, lbn: u64, block: u32) {
        if self.runs.is_empty() {
            self.first = block;
        }
        match self.runs.last_mut() {
            Some(run) if run.end == lbn => run.end += 1,
            _ => self.runs.push(lbn..lbn + 1),
        }
    }
}

/// What was read; `None` if it cannot be read.
fn readable<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Err(Error::Io(_)) => Ok(None),
        read => read.map(Some),
    }
}

impl Checker<'_> {
    /// Whether a data block has the checksum of its pointer, if there is one. What cannot be read is not damaged: a repair
    /// leaves it, since the device may be able to read it another time.
    pub(super) fn has_its_sum(&mut self, p: Pointer) -> Result<bool> {
        if self.contents_sound || !p.is_placed() || p.has_no_sum() {
            return Ok(true);
        }
        let block = p.block.get();
        if self.sum_of(block)?.is_none_or(|sum| sum == p.crc.get()) {
            return Ok(true);
        }
        // It may have been read badly.
        let again = self.core.read_again(Kind::Data, self.core.geom.data_byte(DataBlock(block)));
        Ok(readable(again)?.is_none_or(|bytes| crc(&bytes) == p.crc.get()))
    }

    /// The checksum of a data block as it is there; `None` if it cannot be read.
    fn sum_of(&mut self, block: u32) -> Result<Option<u32>> {
        let len = self.core.geom.block();
        let is_in = |w: &Window| (block.checked_sub(w.first)).is_some_and(|n| (n as usize) < w.bytes.len() / len);
        if !is_in(&self.window) {
            self.window = self.read_window(block)?;
        }
        let at = block.saturating_sub(self.window.first) as usize * len;
        Ok(self.window.bytes.get(at..at + len).map(crc))
    }

    /// Reads a block, and twice as many as before with it where it follows them.
    fn read_window(&mut self, block: u32) -> Result<Window> {
        let (len, geom) = (self.core.geom.block(), self.core.geom);
        let before = (self.window.bytes.len() / len) as u32;
        let follows = block == self.window.first.saturating_add(before);
        let most = if follows { (before * 2).clamp(1, (CLUSTER / len).max(1) as u32) } else { 1 };
        let blocks = (1..most).take_while(|n| geom.is_data(block.saturating_add(*n))).count() as u32 + 1;
        let mut read = readable(self.core.read_data(DataBlock(block), blocks))?;
        if read.is_none() && blocks > 1 {
            read = readable(self.core.read_data(DataBlock(block), 1))?;
        }
        Ok(Window { first: block, bytes: read.unwrap_or_default() })
    }

    /// Notes what is damaged of the contents of a file.
    pub(super) fn tell_contents(&mut self, ino: Ino, damaged: &Damaged) {
        let Some(lbn) = damaged.runs.first().map(|run| run.start) else { return };
        let count = damaged.runs.iter().map(|run| run.end - run.start).sum();
        let at = self.core.geom.location(self.core.geom.data_byte(DataBlock(damaged.first))).to_string();
        self.f.note(Issue::DataDamaged { ino: Node(ino.0), count, lbn, at });
    }

    /// Makes holes of damaged blocks. They are free with the set that says so, but for those that another file has.
    pub(super) fn make_holes(&mut self, ino: Ino, lbns: Range<u64>) -> Result<()> {
        let mut i = self.core.inode(ino)?;
        for lbn in lbns {
            let p = self.core.pointer(&i, FileBlock::Data(lbn))?;
            if self.owned.data.contains(p.block.get()) {
                self.forget_block(&mut i, lbn)?;
            } else {
                self.core.release_block(&mut i, lbn)?;
            }
        }
        Ok(())
    }

    /// Makes a hole of a block that is another file's.
    fn forget_block(&mut self, i: &mut Inode, lbn: u64) -> Result<()> {
        self.core.mark(i.ino)?;
        self.core.count(i, -1, 0);
        self.core.set_pointer(i, FileBlock::Data(lbn), Pointer::default())?;
        self.core.iput(i)
    }
}
