//! Whether windows that are read because of what lies beside pay: a search that passes over the contents of files needs a
//! block here and there, and windows bring all of the contents with it.
//!
//! Called by `windows.rs`.

use std::collections::VecDeque;

/// This part of a window has to be asked for, once it is there. One of 256 KiB takes a disk as long as three or four blocks that
/// lie apart.
const PART: u64 = 16;
/// How many of the last windows in a row must have been of no use for none to be read any more.
const PATIENCE: u8 = 4;
/// One in so many that would have been read is read nevertheless, to see whether that pays again.
const TRY: u32 = 16;

/// What the windows so far were good for.
#[derive(Debug)]
pub struct Worth {
    /// From 0 to [`PATIENCE`]; at 0 none is read.
    score: u8,
    /// Windows that are to be judged: number and turn.
    open: VecDeque<(u64, u64)>,
    /// Each is when so many others were read after it.
    time: usize,
    held_back: u32,
}

impl Worth {
    /// Of windows of which so many are held.
    pub fn new(most: usize) -> Worth {
        Worth { score: PATIENCE, open: VecDeque::new(), time: most / 2, held_back: 0 }
    }

    /// Whether a window should be read.
    pub fn allows(&mut self) -> bool {
        if self.score > 0 {
            return true;
        }
        self.held_back += 1;
        self.held_back.is_multiple_of(TRY)
    }

    /// Whether windows pay at present.
    pub fn pays(&self) -> bool {
        self.score > 0
    }

    /// A window was made. Returns the one whose time is over.
    pub fn made(&mut self, number: u64, turn: u64) -> Option<(u64, u64)> {
        self.open.push_back((number, turn));
        (self.open.len() > self.time).then(|| self.open.pop_front()).flatten()
    }

    /// Whether a window of `len` bytes has paid once `used` of them were asked for.
    pub fn is_paid(used: u64, len: u64) -> bool {
        used * PART >= len
    }

    /// A window has paid.
    pub fn paid(&mut self) {
        self.score = (self.score + 1).min(PATIENCE);
    }

    /// A window's time is over, and it has not.
    pub fn wasted(&mut self) {
        self.score = self.score.saturating_sub(1);
    }
}
