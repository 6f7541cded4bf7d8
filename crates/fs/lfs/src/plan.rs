//! The plan of a group: the address of each block, before anything is changed.
//!
//! Called by `commit.rs`, which writes what was planned.

use crate::format::*;
use crate::heads::{Head, LogHeads};
use crate::summary::length;
use arbor_base::cache::FileBlock;
use arbor_base::vfs::{Error, Ino, Result};
use arbor_kit::runs::Runs;
use std::collections::{BTreeMap, BTreeSet};

/// A block to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub ino: Ino,
    pub version: u32,
    pub place: FileBlock,
    pub frags: u32,
    /// Its present address and its length there, if it has one.
    pub old: Option<(Frag, u32)>,
    /// When users wrote it, seconds, if the cleaner moves it.
    pub written: Option<i64>,
}

/// What a group is to write.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub blocks: Vec<Block>,
    /// Inodes, each with its present address.
    pub inodes: Vec<(Ino, Option<Frag>)>,
    /// Further entries of the inode map that have changed.
    pub entries: Vec<Ino>,
    /// Segments with the bytes that have died in each.
    pub deaths: Vec<(u32, u32)>,
}

/// A partial segment that is planned.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub seg: Seg,
    pub at: u32,
    pub fill: u64,
    pub next_seg: Seg,
    pub blocks: Vec<Block>,
    files: usize,
    pub inodes: Vec<Ino>,
    pub entries: Vec<Ino>,
    pub deaths: BTreeMap<u32, u32>,
    block_frags: u32,
}

impl Part {
    fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.inodes.is_empty() && self.entries.is_empty() && self.deaths.is_empty()
    }

    fn shape(&self) -> Shape {
        Shape {
            files: self.files,
            blocks: self.blocks.len(),
            inodes: self.inodes.len(),
            entries: self.entries.len(),
            deaths: self.deaths.len(),
            block_frags: self.block_frags,
        }
    }

    pub fn summary_frags(&self, geom: &Geom) -> u32 {
        self.shape().summary_frags(geom)
    }

    pub fn frags(&self, geom: &Geom) -> u32 {
        self.shape().frags(geom)
    }

    /// When the youngest of its blocks was written (of blocks that the cleaner moves: when users wrote them).
    pub fn time(&self, now: i64) -> i64 {
        self.blocks.iter().filter_map(|b| b.written).max().unwrap_or(now)
    }

    fn mark_dead(&mut self, geom: &Geom, old: Option<(Frag, u32)>) {
        if let Some((seg, bytes)) = old.and_then(|(frag, bytes)| Some((geom.seg_of(frag)?, bytes))) {
            let died = self.deaths.entry(seg.0).or_default();
            *died = died.saturating_add(bytes);
        }
    }
}

/// Gives addresses at one head of the log to what is to be written, without changing anything.
pub(crate) struct Planner<'a> {
    geom: Geom,
    clean: &'a Runs,
    taken: BTreeSet<u32>,
    log: LogHeads,
    at: usize,
    part: Part,
    done: Vec<Part>,
}

impl<'a> Planner<'a> {
    pub fn new(geom: Geom, clean: &'a Runs, log: LogHeads, at: usize) -> Planner<'a> {
        Planner { geom, clean, taken: BTreeSet::new(), log, at, part: Part::default(), done: Vec::new() }
    }

    fn head(&mut self) -> &mut Head {
        &mut self.log.heads[self.at]
    }

    fn open(&mut self) {
        let Head { seg, offset: at, fill, next_seg } = *self.head();
        self.part = Part { seg, at, fill, next_seg, ..Part::default() };
    }

    /// Goes on in the next segment, from its start (LFS-C1).
    fn advance(&mut self) -> Result<()> {
        let from = self.head().next_seg.0;
        let free = |n: &u32| !self.taken.contains(n);
        let above = self.clean.after(from).find(free);
        let Some(next) = above.or_else(|| self.clean.before(from).find(free)) else {
            return Err(Error::Io(std::io::Error::other("the log has no clean segment to go on in")));
        };
        self.taken.insert(next);
        let fill = self.log.next_fill();
        let head = self.head();
        *head = Head { seg: head.next_seg, offset: 0, next_seg: Seg(next), fill };
        Ok(())
    }

    /// Ends the partial segment, if it is not empty, and begins the next.
    fn close(&mut self) {
        if !self.part.is_empty() {
            self.head().offset += self.part.frags(&self.geom);
            self.done.push(std::mem::take(&mut self.part));
        }
        self.open();
    }

    /// Makes room for something that makes the partial segment larger by `more`, in the next segment if need be.
    fn make_room(&mut self, more: &dyn Fn(&Part) -> Shape) -> Result<()> {
        for _ in 0..2 {
            let shape = self.part.shape().plus(more(&self.part));
            if self.part.at + shape.frags(&self.geom) <= self.geom.seg_frags() {
                return Ok(());
            }
            self.close();
            self.advance()?;
            self.open();
        }
        Err(Error::Io(std::io::Error::other("a block does not fit into a segment")))
    }

    /// Plans the partial segments of a group; returns them, and the end of the log after them.
    pub fn run(mut self, batch: &Batch) -> Result<(Vec<Part>, LogHeads)> {
        self.open();
        let geom = self.geom;
        let death = |p: &Part, old: Option<Frag>| {
            let seg = old.and_then(|frag| geom.seg_of(frag));
            usize::from(seg.is_some_and(|seg| !p.deaths.contains_key(&seg.0)))
        };
        for (seg, bytes) in &batch.deaths {
            self.make_room(&|_| Shape { deaths: 1, ..Shape::default() })?;
            let died = self.part.deaths.entry(*seg).or_default();
            *died = died.saturating_add(*bytes);
        }
        for b in &batch.blocks {
            let is_new = |p: &Part| p.blocks.last().is_none_or(|last| last.ino != b.ino);
            self.make_room(&|p| {
                let (files, deaths) = (usize::from(is_new(p)), death(p, b.old.map(|o| o.0)));
                Shape { files, blocks: 1, block_frags: b.frags, deaths, ..Shape::default() }
            })?;
            self.part.files += usize::from(is_new(&self.part));
            self.part.blocks.push(*b);
            self.part.block_frags += b.frags;
            self.part.mark_dead(&geom, b.old);
        }
        for (ino, old) in &batch.inodes {
            self.make_room(&|p| Shape { inodes: 1, deaths: death(p, *old), ..Shape::default() })?;
            self.part.inodes.push(*ino);
            self.part.mark_dead(&geom, old.map(|frag| (frag, INODE as u32)));
        }
        for ino in &batch.entries {
            self.make_room(&|_| Shape { entries: 1, ..Shape::default() })?;
            self.part.entries.push(*ino);
        }
        self.close();
        Ok((self.done, self.log))
    }
}

/// How many of each thing a partial segment holds.
#[derive(Clone, Copy, Debug, Default)]
struct Shape {
    files: usize,
    blocks: usize,
    inodes: usize,
    entries: usize,
    deaths: usize,
    block_frags: u32,
}

impl Shape {
    fn plus(self, more: Shape) -> Shape {
        Shape {
            files: self.files + more.files,
            blocks: self.blocks + more.blocks,
            inodes: self.inodes + more.inodes,
            entries: self.entries + more.entries,
            deaths: self.deaths + more.deaths,
            block_frags: self.block_frags + more.block_frags,
        }
    }

    fn summary_frags(&self, geom: &Geom) -> u32 {
        geom.frags_for(length(self.files, self.blocks, self.inodes + self.entries, self.deaths))
    }

    fn frags(&self, geom: &Geom) -> u32 {
        let per = geom.frag_size() / INODE;
        self.summary_frags(geom) + self.block_frags + self.inodes.div_ceil(per) as u32
    }
}
