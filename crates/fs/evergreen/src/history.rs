//! Older commits: each is a whole tree, and can be mounted read-only as long as all of its blocks are there (`retain`,
//! `commit_at`).
//!
//! The newest master block says which of them are (`intact`). What a commit has freed is given away only when no commit has
//! it that the newest durable master block calls intact; nor is a master block of these written over (EVERGREEN-H1). Of
//! those of an earlier mount the bitmaps tell what they have.
//!
//! Here is what is kept in core; `older.rs` reads what older commits have.

use crate::format::*;
use std::collections::VecDeque;

/// A commit before the newest one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Older {
    pub master: Master,
    pub at: u32,
}

/// What older commits have.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Commits of earlier mounts, ascending.
    pub older: Vec<Older>,
    /// Blocks that these alone have, or more.
    pub older_blocks: u64,
    /// What commits of this mount have freed: the last commit that has them, and which.
    kept: VecDeque<(u64, Vec<u32>)>,
    /// How many these are.
    pub kept_blocks: u64,
    /// Where the master blocks of commits of this mount are.
    masters: VecDeque<(u64, u32)>,
    /// Commits before this one are not intact, whatever master blocks say.
    pub lost: u64,
}

impl History {
    /// Reserved blocks whose master blocks count.
    pub fn masters(&self) -> Vec<u32> {
        self.older.iter().map(|older| older.at).chain(self.masters.iter().map(|(_, at)| *at)).collect()
    }

    /// Notes where the master block of a commit is.
    pub fn wrote(&mut self, seq: u64, at: u32) {
        self.masters.push_back((seq, at));
    }

    /// Keeps what a commit has freed; `seq` is the last commit that has it.
    pub fn keep(&mut self, seq: u64, blocks: Vec<u32>) {
        self.kept_blocks += blocks.len() as u64;
        self.kept.push_back((seq, blocks));
    }

    /// Gives up commits before `intact`. Returns what they alone had, and whether there were commits of earlier mounts.
    pub fn give_up(&mut self, intact: u64) -> (Vec<u32>, bool) {
        let mut free = Vec::new();
        while self.kept.front().is_some_and(|(seq, _)| *seq < intact) {
            free.extend(self.kept.pop_front().into_iter().flat_map(|(_, blocks)| blocks));
        }
        self.kept_blocks -= free.len() as u64;
        while self.masters.front().is_some_and(|(seq, _)| *seq < intact) {
            self.masters.pop_front();
        }
        let before = self.older.len();
        self.older.retain(|older| older.master.head.seq.get() >= intact);
        if self.older.is_empty() {
            self.older_blocks = 0;
        }
        (free, self.older.len() < before)
    }

    /// All blocks that are kept for commits of this mount.
    pub fn kept(&self) -> impl Iterator<Item = u32> + '_ {
        self.kept.iter().flat_map(|(_, blocks)| blocks.iter().copied())
    }
}
