//! Allocation of blocks for nodes.
//!
//! A node goes near its left neighbour in the tree, an unformatted one near the one before it in its file: the first free
//! block after it, or before it while the elevator falls. The direction changes where the volume ends (paper, "Layout").
//! Past 16 full bitmaps the search goes on where it last found something (`roomy`): the paper's has no such end, and reads
//! all of them after a mount. Bitmaps that were never needed do not exist; one more is made when those that do are full, so
//! an image does not grow before it must.
//!
//! A block that was freed is *held back* until nothing can bring back what it held (REISER-A3).

use crate::format::*;
use crate::node::Block;
use crate::options::Layout;
use crate::planted::{Flaw, planted};
use crate::space::For;
use crate::volume::Core;
use arbor_base::device::Kind;
use arbor_base::layout::Corrupt;
use arbor_base::vfs::{Errno, Error, Result};
use arbor_kit::buddy::bitmap;
use std::collections::BTreeSet;
use zerocopy::IntoBytes;

/// Bitmaps that are looked at before the search goes elsewhere: with nodes of 4 KiB they cover a gibibyte.
const NEAR: u32 = 16;

impl Core {
    /// Fails with `ENOSPC` unless so many blocks can be allocated, and those of one more change of the tree: stat data may grow
    /// with what the others are for.
    pub fn need(&mut self, blocks: u64) -> Result<()> {
        if !self.has_room_for(blocks) {
            return Err(Errno::ENOSPC.into());
        }
        if blocks > 0 { self.find_sound() } else { Ok(()) }
    }

    pub fn has_room_for(&self, blocks: u64) -> bool {
        self.has(blocks + if self.geom.dense { self.most_taken() } else { 0 }).is_ok()
    }

    /// Fails with `ENOSPC` unless so many blocks can be allocated.
    pub fn has(&self, blocks: u64) -> Result<()> {
        let free = self.sb.free.get().saturating_sub(self.space.held());
        // What is free in a bitmap that is lost cannot be had.
        let lost = self.space.lost.len() as u64 * u64::from(self.geom.covered());
        if blocks <= u64::from(free).saturating_sub(lost) { Ok(()) } else { Err(Errno::ENOSPC.into()) }
    }

    /// Looks for a bitmap that can be read and has a free block: who is told now that there is none has changed nothing. It looks at
    /// few of them.
    fn find_sound(&mut self) -> Result<()> {
        if self.space.sound.is_some_and(|n| !self.space.full.contains(&n)) {
            return Ok(());
        }
        let (bitmaps, roomy) = (self.sb.bitmaps.get(), self.sb.roomy.get());
        self.space.is_unread = false;
        for n in (roomy..bitmaps).chain(0..roomy.min(bitmaps)).take(NEAR as usize) {
            if self.search_one(n, n * self.geom.covered(), true)?.is_some() {
                self.space.sound = Some(n);
                return Ok(());
            }
        }
        match bitmaps < self.geom.bitmaps() || bitmaps > NEAR {
            true => Ok(()),
            false => Err(self.no_free()),
        }
    }

    /// Allocates a block near another one.
    pub fn alloc(&mut self, near: Option<Block>, of: For) -> Result<Block> {
        self.has(1)?;
        let (from, up) = self.origin(near.unwrap_or(self.sb.root.get()), of);
        let block = self.search(from, up)?;
        self.set_bits(block, true, of)?;
        self.space.note_taken(block, of);
        self.sb.free = self.sb.free.get().saturating_sub(1).into();
        self.touch_super();
        Ok(block)
    }

    /// Frees a block.
    pub fn free_block(&mut self, block: Block, of: For) -> Result<()> {
        if !self.can_free(block)? {
            return Ok(());
        }
        self.set_bits(block, false, of)?;
        self.sb.free = self.sb.free.get().saturating_add(1).into();
        if planted(Flaw::FreedTooEarly) || planted(Flaw::PreservedEarly) && of == For::Tree {
            self.space.let_go(&self.geom, block);
        } else {
            self.space.hold_back(&self.geom, block);
        }
        self.touch_super();
        Ok(())
    }

    /// Called when a transaction is durable: what it has freed can be allocated, but for what the log has a copy of.
    pub fn release_freed(&mut self) {
        for block in std::mem::take(&mut self.space.freed) {
            if self.log.copies.contains_key(&block) && !planted(Flaw::LoggedReused) {
                self.space.logged.push(block);
            } else {
                self.space.let_go(&self.geom, block);
            }
        }
    }

    /// Called when the log was emptied.
    pub fn release_logged(&mut self) {
        for block in std::mem::take(&mut self.space.logged) {
            self.space.let_go(&self.geom, block);
        }
        let held: BTreeSet<u32> = self.space.freed.iter().map(|block| block / self.geom.covered()).collect();
        self.space.held.retain(|n, _| held.contains(n));
    }

    /// Where the search for a block begins, and whether it goes up whatever the elevator does.
    fn origin(&self, near: Block, of: For) -> (Block, bool) {
        let space = &self.space;
        match self.opts.layout {
            Layout::Left | Layout::Virtual => (near, false),
            Layout::First => (0, true),
            Layout::Last => (space.last.unwrap_or(near), false),
            Layout::Up => (near, true),
            Layout::Areas if of == For::Data => {
                (space.last_data.unwrap_or(self.edge(true).min(self.geom.copy()) / 8), true)
            }
            Layout::Areas => (near, false),
        }
    }

    /// A free block near another one, or else anywhere.
    fn search(&mut self, near: Block, fixed: bool) -> Result<Block> {
        self.space.is_unread = false;
        if let Some(block) = self.search_near(near, fixed)? {
            return Ok(block);
        }
        loop {
            if self.is_worth_a_search()
                && let Some(block) = self.search_far()?
            {
                return Ok(block);
            }
            self.make_bitmap()?;
            let n = self.sb.bitmaps.get() - 1;
            if n > NEAR {
                self.sb.roomy = n.into();
            }
            // The last one may cover nothing that a node can be in.
            if let Some(block) = self.search_one(n, n * self.geom.covered(), true)? {
                return Ok(block);
            }
        }
    }

    /// A free block near another one; `None` if there is none, or it is further away.
    fn search_near(&mut self, near: Block, fixed: bool) -> Result<Option<Block>> {
        let (covered, mut looked) = (self.geom.covered(), 0);
        for turn in 0..2 {
            let up = fixed || self.sb.direction.get() == 0;
            let mut from = if turn == 0 { near } else { self.edge(!up) };
            let mut n = from / covered;
            while n < self.sb.bitmaps.get() {
                if let Some(block) = self.search_one(n, from, up)? {
                    return Ok(Some(block));
                }
                looked += 1;
                if looked > NEAR {
                    return Ok(None);
                }
                match if up { n.checked_add(1) } else { n.checked_sub(1) } {
                    Some(next) => n = next,
                    None => break,
                }
                let first = n.saturating_mul(covered);
                from = if up { first } else { first.saturating_add(covered - 1) };
            }
            if turn == 0 && !fixed {
                self.sb.direction = u32::from(up).into();
            }
        }
        Ok(None)
    }

    /// A free block in the bitmap that had some when this was last asked for, or in those after it.
    fn search_far(&mut self) -> Result<Option<Block>> {
        let (bitmaps, roomy) = (self.sb.bitmaps.get(), self.sb.roomy.get());
        for n in (roomy..bitmaps).chain(0..roomy.min(bitmaps)) {
            if let Some(block) = self.search_one(n, n * self.geom.covered(), true)? {
                self.sb.roomy = if bitmaps > NEAR { n.into() } else { 0.into() };
                return Ok(Some(block));
            }
        }
        Ok(None)
    }

    /// Whether enough is free in the bitmaps that exist to look for it, of which all may have to be read; or they are few, or
    /// there are no others.
    fn is_worth_a_search(&self) -> bool {
        let (g, bitmaps) = (self.geom, self.sb.bitmaps.get());
        let covered = u64::from(bitmaps) * u64::from(g.covered());
        let others = u64::from(g.bitmaps().saturating_sub(bitmaps));
        let beyond = u64::from(g.copy()).saturating_sub(covered).saturating_sub(others);
        let inside = u64::from(self.sb.free.get().saturating_sub(self.space.held())).saturating_sub(beyond);
        others == 0 || inside > if bitmaps > NEAR { covered / 256 } else { 0 }
    }

    /// The last block that was ever in use, or the first one.
    fn edge(&self, last: bool) -> Block {
        if last { self.sb.bitmaps.get().saturating_mul(self.geom.covered()).saturating_sub(1) } else { 0 }
    }

    fn no_free(&self) -> Error {
        if self.space.is_unread {
            return Errno::EIO.into();
        }
        if !self.space.lost.is_empty() {
            return Errno::ENOSPC.into();
        }
        let at = self.geom.byte(self.geom.bitmap(self.sb.bitmaps.get().saturating_sub(1)));
        Corrupt::new("bitmap", "bits", at, "none that is free", "as many as the superblock says").into()
    }

    /// A free block that bitmap `n` covers, from a block on or before it. Where the bitmap cannot be read there is none.
    fn search_one(&mut self, n: u32, from: Block, up: bool) -> Result<Option<Block>> {
        if self.space.full.contains(&n) {
            return Ok(None);
        }
        let (covered, len) = (self.geom.covered(), self.geom.bit_bytes());
        let (first, end) = (n * covered, self.geom.blocks.saturating_sub(n * covered).min(covered));
        let held = self.space.held.remove(&n);
        let bits = match self.bitmap(n) {
            Ok(bits) => bits.get(BITMAP_HEAD..BITMAP_HEAD + len).unwrap_or(&[]),
            Err(e) => {
                held.into_iter().for_each(|held| drop(self.space.held.insert(n, held)));
                return match e {
                    Error::Corrupt(_) => {
                        self.lose_bitmap(n, &e);
                        Ok(None)
                    }
                    Error::Io(_) => {
                        self.space.is_unread = true;
                        Ok(None)
                    }
                    e => Err(e),
                };
            }
        };
        let at = from.saturating_sub(first).min(end.saturating_sub(1));
        let found = match up {
            true => next_free(bits, held.as_deref(), at, end),
            false => last_free(bits, held.as_deref(), at + 1),
        };
        let whole = if up { at == 0 } else { at + 1 == end };
        held.into_iter().for_each(|held| drop(self.space.held.insert(n, held)));
        if found.is_none() && whole {
            self.space.full.insert(n);
        }
        Ok(found.map(|bit| first + bit))
    }

    /// Makes the next bitmap; `ENOSPC` if there is none.
    pub fn make_bitmap(&mut self) -> Result<()> {
        let n = self.sb.bitmaps.get();
        if n >= self.geom.bitmaps() {
            return Err(self.no_free());
        }
        self.put_bitmap(n, &own_bits(&self.geom, n));
        self.sb.bitmaps = (n + 1).into();
        self.touch_super();
        Ok(())
    }

    /// Makes a bitmap hold these bits.
    pub fn put_bitmap(&mut self, n: u32, bits: &[u8]) {
        let (block, fsid) = (self.geom.bitmap(n), self.geom.fsid.into());
        let head = BitmapHead { magic: BITMAP_MAGIC.into(), fsid, block: block.into(), ..BitmapHead::default() };
        self.put_block(block, Kind::Bitmap, [head.as_bytes(), bits].concat());
    }

    /// Fails unless a block is in use for what it is said to hold, as far as that can be known.
    pub fn check_used(&mut self, block: Block, of: For) -> Result<()> {
        if self.can_free(block)? { self.check_bits(block, false, of) } else { Ok(()) }
    }

    /// Nothing of what a bitmap covers is given away or freed any more.
    fn lose_bitmap(&mut self, n: u32, why: &Error) {
        if self.space.lost.insert(n) {
            self.calls.health.pass_by(why);
        }
        self.space.full.insert(n);
    }

    /// Whether the bit of a block can be changed. Where the bitmap is damaged, or cannot be read, it stays in use until the checker
    /// looks.
    fn can_free(&mut self, block: Block) -> Result<bool> {
        let n = block / self.geom.covered();
        if !self.geom.is_node(block) || n >= self.sb.bitmaps.get() {
            return Ok(true);
        }
        match self.bitmap(n).map(drop) {
            Err(e @ Error::Corrupt(_)) => {
                self.lose_bitmap(n, &e);
                Ok(false)
            }
            Err(e @ Error::Io(_)) => {
                self.calls.health.pass_by(e);
                Ok(false)
            }
            read => read.map(|()| true),
        }
    }

    /// Fails unless a block can be allocated (`used`), or freed.
    fn check_bits(&mut self, block: Block, used: bool, of: For) -> Result<()> {
        let (n, bit) = (block / self.geom.covered(), block % self.geom.covered());
        if !self.geom.is_node(block) || n >= self.sb.bitmaps.get() {
            let at = self.geom.byte(self.geom.bitmap(n.min(self.geom.bitmaps().saturating_sub(1))));
            return Err(Corrupt::new("bitmap", "bits", at, block, "a block for nodes").into());
        }
        let len = self.geom.bit_bytes();
        let bits = self.bitmap(n)?.get(BITMAP_HEAD..).unwrap_or(&[]);
        let (is_free, is_tree) = (bitmap::is_free(bits, bit), !bitmap::is_free(bits.get(len..).unwrap_or(&[]), bit));
        if is_free != used || is_tree != (!used && of == For::Tree) {
            let at = self.geom.byte(self.geom.bitmap(n));
            let expected = if used { "a free block" } else { "a block of what is in use" };
            return Err(Corrupt::new("bitmap", "bits", at, block, expected).into());
        }
        Ok(())
    }

    /// Sets or clears the bits of a block.
    fn set_bits(&mut self, block: Block, used: bool, of: For) -> Result<()> {
        self.check_bits(block, used, of)?;
        let (n, bit, len) = (block / self.geom.covered(), block % self.geom.covered(), self.geom.bit_bytes());
        self.change_bitmap(n, |bytes| {
            let set = if used { bitmap::set_used } else { bitmap::set_free };
            let bits = bytes.get_mut(BITMAP_HEAD..).unwrap_or(&mut []);
            set(bits, bit, 1);
            if of == For::Tree {
                set(bits.get_mut(len..).unwrap_or(&mut []), bit, 1);
            }
        })
    }

    /// Runs of free blocks among those that bitmap `n` covers: the first one of each, and their number.
    pub fn free_runs(&mut self, n: u32) -> Result<Vec<(Block, u32)>> {
        let (covered, len) = (self.geom.covered(), self.geom.bit_bytes());
        let (first, end) = (n * covered, self.geom.blocks.saturating_sub(n * covered).min(covered));
        let mut bits = match n < self.sb.bitmaps.get() {
            true => self.bitmap(n)?.get(BITMAP_HEAD..BITMAP_HEAD + len).unwrap_or(&[]).to_vec(),
            false => own_bits(&self.geom, n),
        };
        if let Some(held) = self.space.held.get(&n) {
            bits.iter_mut().zip(held).for_each(|(bits, held)| *bits |= held);
        }
        let (mut runs, mut at) = (Vec::new(), 0);
        while let Some(free) = bitmap::next_free(&bits, at, end) {
            let run = bitmap::free_run(&bits, free, end, end);
            at = free + run;
            runs.push((first + free, run));
        }
        Ok(runs)
    }
}

/// The bits of bitmap `n` where nothing is in use: those of blocks that can never be nodes are set.
pub(crate) fn own_bits(g: &Geom, n: u32) -> Vec<u8> {
    let mut bits = vec![0; 2 * g.bit_bytes()];
    bitmap::set_used(&mut bits, 0, if n == 0 { 2 + g.log } else { 1 });
    if g.copy() / g.covered() == n {
        bitmap::set_used(&mut bits, g.copy() % g.covered(), 1);
    }
    bits
}

/// The first bit from `from` on, and before `end`, that is clear in both bitmaps.
fn next_free(bits: &[u8], held: Option<&[u8]>, from: u32, end: u32) -> Option<u32> {
    let mut at = from;
    loop {
        let free = bitmap::next_free(bits, at, end)?;
        let Some(held) = held.filter(|held| !bitmap::is_free(held, free)) else { return Some(free) };
        at = bitmap::next_free(held, free, end)?;
    }
}

/// The last bit before `end` that is clear in both.
fn last_free(bits: &[u8], held: Option<&[u8]>, end: u32) -> Option<u32> {
    let byte = |n: u32| {
        let of = |bits: &[u8]| bits.get(n as usize).copied().unwrap_or(0xff);
        of(bits) | held.map_or(0, of)
    };
    (0..end.div_ceil(8)).rev().find_map(|n| {
        let beyond = (8 * (n + 1)).saturating_sub(end);
        let free = !byte(n) & 0xffu8.unbounded_shr(beyond);
        free.checked_ilog2().map(|bit| 8 * n + bit)
    })
}

// Numbers of objects.

impl Core {
    /// Takes the first number that is not in use (paper, "Ordering within the Tree").
    pub fn take_object(&mut self) -> Result<u32> {
        let Some((_, end)) = self.ids.first_mut().filter(|range| range.1 < u32::MAX) else {
            return Err(Errno::ENOSPC.into());
        };
        let number = *end;
        *end += 1;
        if let [first, second, ..] = self.ids.as_mut_slice()
            && first.1 == second.0
        {
            first.1 = second.1;
            self.ids.remove(1);
        }
        self.touch_super();
        Ok(number)
    }

    /// Gives a number back. Without room in the map it stays in use for ever, as in 3.6.
    pub fn give_object(&mut self, number: u32) {
        let at = self.ids.partition_point(|range| range.1 <= number);
        let most = self.geom.most_ranges();
        let ranges = self.ids.len();
        let Some(range) = self.ids.get_mut(at).filter(|range| range.0 <= number) else { return };
        let (first, end) = *range;
        match (first == number, number + 1 == end) {
            (true, true) => drop(self.ids.remove(at)),
            (true, false) => range.0 = number + 1,
            (false, true) => range.1 = number,
            (false, false) if ranges < most => {
                range.1 = number;
                self.ids.insert(at + 1, (number + 1, end));
            }
            (false, false) => {}
        }
        self.touch_super();
    }
}
