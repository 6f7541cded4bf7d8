//! Extents that are marked free and not yet free in the bitmap, in the order of their records.

use super::Rec;
use crate::format::*;
use std::collections::VecDeque;

#[derive(Default)]
pub(crate) struct Marked {
    queue: VecDeque<(Rec, Extent)>,
    frags: u64,
}

impl Marked {
    pub fn push(&mut self, rec: Rec, e: Extent) {
        self.frags += u64::from(e.len);
        self.queue.push_back((rec, e));
    }

    pub fn front(&self) -> Option<(Rec, Extent)> {
        self.queue.front().copied()
    }

    pub fn pop(&mut self) {
        if let Some((_, e)) = self.queue.pop_front() {
            self.frags -= u64::from(e.len);
        }
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Fragments of all of them.
    pub fn frags(&self) -> u64 {
        self.frags
    }

    /// All of them, each with its record.
    pub fn iter(&self) -> impl Iterator<Item = (Rec, Extent)> + '_ {
        self.queue.iter().copied()
    }

    /// Those whose record is durable.
    pub fn until(&self, durable: Rec) -> impl Iterator<Item = Extent> {
        self.queue.iter().take_while(move |m| m.0 <= durable).map(|m| m.1)
    }

    /// Those whose record is not durable.
    pub fn beyond(&self, durable: Rec) -> impl Iterator<Item = Extent> {
        self.queue.iter().rev().take_while(move |m| m.0 > durable).map(|m| m.1)
    }
}
