//! Allocation of blocks and inodes.
//!
//! The dBitmap says which blocks are in use once the next commit is durable. What may be given away is less: not what was
//! freed since the last commit, for that needs it until the next one (EVERGREEN-A2), nor the copies of the redo list. So
//! each block of the dBitmap that was looked at has a map in core of what cannot be had.

use crate::decoded::Inode;
use crate::format::*;
use crate::planted::{Flaw, planted};
use crate::policy::How;
use crate::space::{Lost, Map, bits_at};
use crate::units::free_in;
use crate::volume::{Core, Dirty};
use arbor_base::cache::{FileBlock, Name};
use arbor_base::layout::Corrupt;
use arbor_base::vfs::{Errno, Error, Ino, Result};
use arbor_kit::blockmap::BlockMap as _;
use arbor_kit::buddy::{Summary, bitmap};
use std::ops::Range;
use std::sync::Arc;

/// A free run of so many blocks is long enough.
const LONG: u32 = 256;
/// So many blocks of the dBitmap are looked at for a long run, if there is a shorter one.
const MOST_MAPS: usize = 64;
/// Blocks that a change may take beside those that it needs: of the ifile, the bitmaps, and their indirect blocks.
pub(crate) const CASCADE: u64 = 24;

impl Core {
    /// Blocks that can be had.
    pub fn usable(&self) -> u64 {
        let waiting = (self.space.pending.len() + self.space.held.len()) as u64;
        let all = u64::from(self.geom.space()).saturating_sub(self.shut_blocks());
        all.saturating_sub(u64::from(self.master.head.used.get()) + waiting + self.kept())
    }

    /// Blocks of which nobody knows whether they are free.
    fn shut_blocks(&self) -> u64 {
        self.space.shut.len() as u64 * u64::from(BITS)
    }

    /// Blocks that older commits alone have.
    pub fn kept(&self) -> u64 {
        self.history.older_blocks + self.history.kept_blocks
    }

    /// Blocks that are kept for deletions, overwriting, and the commit (paper, IV: allocation freezes at 95%).
    pub fn reserve(&self) -> u64 {
        (u64::from(self.geom.space()) / 20).max(4 * CASCADE)
    }

    /// Blocks that files may still get.
    pub fn available(&self) -> u64 {
        let used = u64::from(self.master.head.used.get()) + self.kept();
        u64::from(self.geom.space()).saturating_sub(self.reserve() + self.shut_blocks()).saturating_sub(used)
    }

    /// Fails with `ENOSPC` unless files may get so many blocks more.
    pub fn need(&mut self, blocks: u64) -> Result<()> {
        self.space.unread = false;
        if blocks > 0 && self.space.run.is_empty() {
            // A bitmap that cannot be read is met before anything is changed.
            self.find_place()?;
        }
        let copies = self.changes.logged + self.changes.logged / REDOS as u64 + 1;
        let can = blocks <= self.available() && self.usable() >= blocks + CASCADE + copies;
        let is_found = blocks == 0 || !self.space.run.is_empty() || !self.space.unread;
        if can && is_found { Ok(()) } else { Err(self.no_space()) }
    }

    /// Whether one block more may be overwritten: the commit has room for its copy.
    pub fn has_copies(&self) -> bool {
        self.usable() > 2 * CASCADE + self.changes.logged + self.changes.logged / REDOS as u64
    }

    /// Whether there are changes whose commit makes enough blocks usable again.
    pub fn is_short(&self) -> bool {
        let pending = (self.space.pending.len() + self.space.held.len()) as u64;
        (pending > 0 || self.kept() > 0) && self.usable() < self.reserve() / 2 + self.changes.logged
    }

    /// Whether older commits have what deletions, overwriting and the commit need.
    pub fn is_low(&self) -> bool {
        self.kept() > 0 && self.usable() < self.reserve()
    }

    /// Whether a commit would make blocks usable.
    pub fn has_pending(&self) -> bool {
        !self.space.pending.is_empty() || !self.space.held.is_empty() || self.is_low()
    }

    /// Allocates a block, next to the one before.
    pub fn alloc(&mut self) -> Result<u32> {
        let block = self.find_free()?;
        // From here on it is no refusal.
        self.take(block).map_err(|e| match e {
            Error::Errno(Errno::ENOSPC) => Errno::EIO.into(),
            e => e,
        })
    }

    fn take(&mut self, block: u32) -> Result<u32> {
        self.space.take_bit(block);
        self.space.units.note(block);
        self.space.fresh.insert(block);
        self.master.head.used = (self.master.head.used.get() + 1).into();
        self.master.head.last = block.into();
        self.touch_master();
        self.set_used(block, true)?;
        Ok(block)
    }

    /// Frees a block, for the next commit; it can be had at once only if no commit has it. What cannot be freed stays in use until
    /// the checker looks.
    pub fn free(&mut self, block: u32) -> Result<()> {
        if !self.is_open(block / BITS)? {
            match self.space.unread {
                true => self.calls.health.pass_by("what is removed stays in use where its bitmap cannot be read"),
                false => self.calls.health.note_damage(),
            }
            return Ok(());
        }
        if !planted(Flaw::FreedStays) {
            self.set_used(block, false)?;
        }
        self.master.head.used = self.master.head.used.get().saturating_sub(1).into();
        self.touch_master();
        // EVERGREEN-C2: the last commit has the others.
        if planted(Flaw::ReusedEarly) {
            self.space.give_bit(block);
            self.space.run = block..block + 1;
        } else if self.space.fresh.remove(&block) {
            self.space.give_bit(block);
        } else {
            self.space.pending.push(block);
        }
        Ok(())
    }

    /// A block for the redo list: no tree has it.
    pub fn copy_block(&mut self) -> Result<u32> {
        let block = self.find_free()?;
        self.space.take_bit(block);
        self.space.units.note(block);
        Ok(block)
    }

    /// Called when a commit is durable, with the copies that its redo list needs.
    pub fn settle(&mut self, copies: Vec<u32>) -> Result<()> {
        let (seq, intact) = (self.master.head.seq.get(), self.master.head.intact.get());
        // EVERGREEN-C3: those of the commit before are not needed any more.
        let held = std::mem::replace(&mut self.space.held, copies);
        self.history.keep(seq - 1, std::mem::take(&mut self.space.pending));
        // EVERGREEN-H1.
        let (free, were_older) = self.history.give_up(if planted(Flaw::HistoryReused) { seq } else { intact });
        held.into_iter().chain(free).for_each(|block| self.space.give_bit(block));
        if planted(Flaw::CopiesReused) {
            std::mem::take(&mut self.space.held).into_iter().for_each(|block| self.space.give_bit(block));
        }
        self.space.fresh.clear();
        self.space.looked = false;
        if were_older { self.make_maps_anew() } else { Ok(()) }
    }

    /// Makes the maps of what cannot be had anew, after commits of earlier mounts were given up, or the volume has grown.
    pub fn make_maps_anew(&mut self) -> Result<()> {
        let known: Vec<u32> = std::mem::take(&mut self.space.maps).into_keys().collect();
        self.space.run = 0..0;
        for n in known {
            self.map(n)?;
        }
        let waiting = self.space.held.iter().chain(&self.space.pending).copied();
        let kept: Vec<u32> = waiting.chain(self.history.kept()).collect();
        kept.into_iter().try_for_each(|block| self.keep(block))
    }

    /// Blocks of the dBitmap that were ever written; its length may be damaged.
    fn bitmaps(&self) -> u32 {
        let most = self.geom.blocks.div_ceil(BITS);
        u32::try_from(blocks_of(self.special(DBITMAP).d.size.get())).map_or(most, |blocks| blocks.min(most))
    }

    /// Finds a block that can be had: the next one of the run, or the beginning of another long one, after the last block
    /// first. What was never in use comes after the rest, so that an image does not grow before it must.
    fn find_free(&mut self) -> Result<u32> {
        if self.usable() == 0 {
            return Err(Errno::ENOSPC.into());
        }
        for _ in 0..2 {
            while let Some(block) = self.space.run.next() {
                if self.map(block / BITS)?.is_some_and(|map| bitmap::is_free(&map.bits, block % BITS)) {
                    return Ok(block);
                }
            }
            self.find_place()?;
        }
        Err(self.no_space())
    }

    /// Finds what blocks are given out of.
    pub fn find_place(&mut self) -> Result<()> {
        if self.gather.is_on() && self.find_gathering_place()? {
            return Ok(());
        }
        match self.space.units.blocks() {
            Some(blocks) => self.find_unit(blocks),
            None => self.find_run(),
        }
    }

    /// Finds a unit that is free as a whole, or an open one with free blocks, or that with the most of them; after the last
    /// block first.
    fn find_unit(&mut self, blocks: u32) -> Result<()> {
        let best =
            self.densest_unit(blocks, |core, bits, n, from| core.space.units.densest(bits, n, from, |_| true))?;
        let whole = best.clone().filter(|(free, _)| *free >= blocks);
        whole.iter().for_each(|(_, run)| self.space.units.note_whole(run.start));
        let open = if whole.is_none() { self.find_open(blocks)? } else { None };
        (self.space.run_len, self.space.run) = open.or(best).unwrap_or_default();
        Ok(())
    }

    /// The best of the units that `find` finds in blocks of the dBitmap, by the number of free blocks, after the last block
    /// first; one that is free as a whole, `blocks`, is good enough.
    pub fn densest_unit(
        &mut self,
        blocks: u32,
        find: impl Fn(&Core, &[u8], u32, u32) -> Option<(u32, Range<u32>)>,
    ) -> Result<Option<(u32, Range<u32>)>> {
        let (last, known) = (self.master.head.last.get(), self.bitmaps());
        let mut best: Option<(u32, Range<u32>)> = None;
        for (step, n) in self.maps_to_look_at().enumerate() {
            let from = if step == 0 { last } else { n * BITS };
            let found = match self.map(n)?.is_some() {
                true => self.space.maps.get(&n).and_then(|map| find(self, &map.bits, n, from)),
                false => None,
            };
            best = [best, found].into_iter().flatten().reduce(|a, b| if b.0 > a.0 { b } else { a });
            let is_whole = best.as_ref().is_some_and(|(free, _)| *free >= blocks);
            if is_whole || best.is_some() && (n >= known || step >= MOST_MAPS) {
                break;
            }
        }
        Ok(best)
    }

    /// An open unit with free blocks, of which one is as good as many.
    fn find_open(&mut self, blocks: u32) -> Result<Option<(u32, Range<u32>)>> {
        let open: Vec<Range<u32>> = self.space.units.open().collect();
        for unit in open {
            let n = unit.start / BITS;
            let first = n * BITS;
            let part = unit.start..unit.end.min(first.saturating_add(BITS));
            if self.map(n)?.is_some_and(|map| free_in(&map.bits, first, &part) > 0) {
                return Ok(Some((blocks, part)));
            }
        }
        Ok(None)
    }

    /// Blocks of the dBitmap, in the order in which they are searched: what was never in use comes last.
    fn maps_to_look_at(&self) -> impl Iterator<Item = u32> + use<> {
        let (known, all) = (self.bitmaps(), self.geom.blocks.div_ceil(BITS));
        let begin = (self.master.head.last.get() / BITS).min(known.saturating_sub(1));
        (0..=known).map(move |step| (begin + step) % known.max(1)).chain(known..all)
    }

    /// Blocks of the dBitmap that were ever written, from that of the last block on.
    pub fn maps_in_use(&self) -> impl Iterator<Item = u32> + use<> {
        let known = self.bitmaps();
        self.maps_to_look_at().take_while(move |n| *n < known)
    }

    /// Finds a free run, a long one if there is one, after the last block first.
    fn find_run(&mut self) -> Result<()> {
        let (last, known) = (self.master.head.last.get(), self.bitmaps());
        let mut best: Option<Range<u32>> = None;
        for (step, n) in self.maps_to_look_at().enumerate() {
            let from = if step == 0 { last % BITS } else { 0 };
            let found = self.map(n)?.and_then(|map| map.summary.find_run(&map.bits, LONG, from));
            let Some((start, len)) = found else { continue };
            let run = n * BITS + start..n * BITS + start + len;
            if best.as_ref().is_none_or(|best| best.len() < run.len()) {
                best = Some(run);
            }
            if len >= LONG || n >= known || step >= MOST_MAPS {
                break;
            }
        }
        self.space.run = best.unwrap_or_default();
        self.space.run_len = self.space.run.len() as u32;
        Ok(())
    }

    /// Whether block `n` of the dBitmap can be read.
    fn is_open(&mut self, n: u32) -> Result<bool> {
        self.space.unread = false;
        self.map(n)?;
        Ok(!self.space.shut.contains(&n) && !self.space.unread)
    }

    /// Why there is no space: where something could not be read nobody knows.
    fn no_space(&self) -> Error {
        if self.space.unread { Errno::EIO } else { Errno::ENOSPC }.into()
    }

    /// The map of what block `n` of the dBitmap covers; `None` if nothing of it can be had, also if that cannot be read.
    fn map(&mut self, n: u32) -> Result<Option<&Map>> {
        if self.space.shut.contains(&n) {
            return Ok(None);
        }
        match self.load_map(n) {
            Err(e @ Error::Corrupt(_)) if self.passes_damage => {
                self.calls.health.pass_by(e);
                self.space.shut.insert(n);
                Ok(None)
            }
            Err(Error::Io(_)) if self.passes_damage => {
                self.space.unread = true;
                Ok(None)
            }
            Err(e) => Err(e),
            Ok(()) => Ok(self.space.maps.get(&n).filter(|map| map.free > 0)),
        }
    }

    fn load_map(&mut self, n: u32) -> Result<()> {
        if !self.space.maps.contains_key(&n) {
            // Of a damaged volume the bitmap may call free what is reserved.
            let mut bits = self.geom.reserved_bits(n);
            if let Some(page) = self.bitmap(DBITMAP, n)? {
                bits.iter_mut().zip(page.get(HEAD..).unwrap_or(&[])).for_each(|(bit, used)| *bit |= used);
            }
            self.add_older_bits(n, &mut bits)?;
            let (free, summary) = (bitmap::count_free(&bits, BITS), Summary::build(&bits, BITS));
            self.space.maps.insert(n, Map { bits, summary, free });
        }
        Ok(())
    }

    /// Whether a block was allocated since the last commit.
    pub fn is_fresh(&self, block: u32) -> bool {
        self.space.fresh.contains(&block)
    }

    // For the checker.

    /// Lets nobody have a block.
    pub fn keep(&mut self, block: u32) -> Result<()> {
        let n = block / BITS;
        let is_free = self.map(n)?.is_some_and(|map| bitmap::is_free(&map.bits, block % BITS));
        if is_free {
            self.space.take_bit(block);
        }
        Ok(())
    }

    /// Lets blocks of the ifile and the bitmaps hold these bytes, dirty, and without a place so far.
    pub fn lay_pages(&mut self, lost: Vec<Lost>) -> Result<Vec<(Ino, FileBlock, bool)>> {
        let mut places = Vec::new();
        for (file, n, bytes, is_own) in lost {
            let (i, part) = (self.special(file), FileBlock::Data(n.into()));
            let name = Name::File(file, part);
            self.forget_part(&i, part);
            self.cache.insert(name, Arc::new(bytes));
            self.cache.dirtied(name).ok_or(Errno::EIO)?;
            self.changes.parts.insert(name, Dirty { block: 0, kind: Core::kind(&i, part), how: How::Moved });
            places.push((file, part, is_own));
        }
        Ok(places)
    }

    /// Gives them places. The blocks where they lay are freed if they are their own.
    pub fn place_pages(&mut self, places: Vec<(Ino, FileBlock, bool)>) -> Result<()> {
        for (file, part, is_own) in places {
            let mut i = self.special(file);
            let old = if is_own { self.pointer(&i, part)? } else { 0 };
            if let FileBlock::Data(lbn) = part {
                self.make_special_tables(&mut i, lbn)?;
            }
            let block = self.alloc()?;
            self.changes.parts.entry(Name::File(file, part)).and_modify(|dirty| dirty.block = block);
            self.set_pointer(&mut i, part, block)?;
            if old != 0 {
                self.free(old)?;
            }
        }
        Ok(())
    }

    /// Changes a wrong bit of a bitmap.
    pub fn mend_bit(&mut self, file: Ino, n: u32, used: bool) -> Result<()> {
        if file == DBITMAP {
            self.map(n / BITS)?;
        }
        self.space.full.clear();
        self.set_bit(file, n / BITS, n % BITS, used)
    }

    /// The map in core of block `n` of the dBitmap: 1 for what cannot be had; `None` if nothing of it can.
    pub fn can_be_had(&mut self, n: u32) -> Result<Option<Vec<u8>>> {
        Ok(self.map(n)?.map(|map| map.bits.clone()))
    }

    /// Whether a block is in use, as the dBitmap says.
    pub fn is_used(&mut self, block: u32) -> Result<bool> {
        let page = self.bitmap(DBITMAP, block / BITS)?;
        Ok(page.is_some_and(|page| !bitmap::is_free(page.get(HEAD..).unwrap_or(&[]), block % BITS)))
    }

    /// Changes the bit of a block in the dBitmap.
    fn set_used(&mut self, block: u32, used: bool) -> Result<()> {
        let n = block / BITS;
        // From here on what can be had is not what the bitmap says.
        self.map(n)?;
        self.set_bit(DBITMAP, n, block % BITS, used)
    }

    /// A block of a bitmap file; `None` where it has a hole.
    pub fn bitmap(&mut self, file: Ino, n: u32) -> Result<Option<Arc<Vec<u8>>>> {
        let i = self.special(file);
        self.part(&i, FileBlock::Data(n.into()))
    }

    fn set_bit(&mut self, file: Ino, n: u32, bit: u32, used: bool) -> Result<()> {
        let (part, mask) = (FileBlock::Data(n.into()), 1u8 << (bit % 8));
        let at = HEAD + (bit / 8) as usize;
        let page = match self.bitmap(file, n)? {
            Some(page) => page,
            None => self.make_bitmap(file, n)?,
        };
        if page.get(at).is_some_and(|b| b & mask != 0) == used {
            let expected = if used { "one that is free" } else { "one in use" };
            let (what, at) = (if file == DBITMAP { "block" } else { "inode" }, bits_at(file, n));
            let found = format!("{what} {} {}", n * BITS + bit, if used { "in use" } else { "as free" });
            return Err(Corrupt::new("bitmap", "bits", at, found, expected).into());
        }
        drop(page);
        let mut i = self.special(file);
        self.change(&mut i, part, |bytes| bytes.iter_mut().skip(at).take(1).for_each(|b| *b ^= mask))
    }

    /// Makes a block of a bitmap file where it has a hole.
    fn make_bitmap(&mut self, file: Ino, n: u32) -> Result<Arc<Vec<u8>>> {
        let mut bytes = self.headed(BITMAP_MAGIC, file, n.into(), 0);
        if file == DBITMAP {
            let bits = self.geom.reserved_bits(n);
            bytes.get_mut(HEAD..).into_iter().for_each(|place| place.copy_from_slice(&bits));
        }
        self.extend_special(file, n.into(), bytes)?;
        self.bitmap(file, n)?.ok_or(Errno::EIO.into())
    }

    /// Makes a block of the ifile or a bitmap where it has a hole, and the indirect blocks above it.
    fn extend_special(&mut self, file: Ino, lbn: u64, bytes: Vec<u8>) -> Result<()> {
        let mut i: Inode = self.special(file);
        let d = self.master.inode_mut(file).ok_or(Errno::EIO)?;
        d.size = d.size.get().max((lbn + 1) << BLOCK_SHIFT).into();
        self.make_special_tables(&mut i, lbn)?;
        self.make(&mut i, FileBlock::Data(lbn), bytes)
    }

    fn make_special_tables(&mut self, i: &mut Inode, lbn: u64) -> Result<()> {
        for (level, n) in self.missing(i, lbn)? {
            let table = self.headed(INDIRECT_MAGIC, i.ino, n, level.into());
            self.make(i, FileBlock::Map { level, n }, table)?;
        }
        Ok(())
    }

    // Inodes.

    /// Allocates an inode; `ENOSPC` if there is none.
    pub fn take_inode(&mut self) -> Result<Ino> {
        let (end, used) = (self.master.head.inode_end.get(), self.master.head.inodes.get());
        let found = if used < end { self.find_inode(end)? } else { None };
        if found.is_none() {
            match self.bitmap(IBITMAP, end / BITS) {
                Err(e @ Error::Corrupt(_)) => {
                    self.calls.health.pass_by(e);
                    return Err(Errno::ENOSPC.into());
                }
                page => drop(page?),
            }
        }
        let n = found.map_or_else(|| self.extend_inodes(end), Ok)?;
        self.set_bit(IBITMAP, n / BITS, n % BITS, true)?;
        self.master.head.inodes = (used + 1).into();
        self.touch_master();
        Ok(Ino(n.into()))
    }

    /// Notes that an inode that mkfs makes is in use.
    pub fn mark_inode(&mut self, n: u32) -> Result<()> {
        self.set_bit(IBITMAP, n / BITS, n % BITS, true)?;
        self.master.head.inodes = (self.master.head.inodes.get() + 1).into();
        self.touch_master();
        Ok(())
    }

    /// Frees an inode.
    pub fn give_inode(&mut self, ino: Ino) -> Result<()> {
        let n = ino.0 as u32;
        if let Err(e) = self.bitmap(IBITMAP, n / BITS)
            && e.is_damage()
            && self.passes_damage
        {
            // It stays in use until the checker looks.
            self.calls.health.pass_by(e);
            return Ok(());
        }
        self.set_bit(IBITMAP, n / BITS, n % BITS, false)?;
        self.space.full.remove(&(n / BITS));
        self.master.head.inodes = self.master.head.inodes.get().saturating_sub(1).into();
        self.touch_master();
        Ok(())
    }

    /// Finds a free one among those that were in use before; none if it cannot be had, because of damage.
    fn find_inode(&mut self, end: u32) -> Result<Option<u32>> {
        let mut passed = false;
        for n in 0..end.div_ceil(BITS) {
            if self.space.full.contains(&n) {
                continue;
            }
            let page = match self.bitmap(IBITMAP, n) {
                Err(e @ Error::Corrupt(_)) => {
                    self.calls.health.pass_by(e);
                    passed = true;
                    self.space.full.insert(n);
                    continue;
                }
                page => page?,
            };
            let bits = page.as_ref().and_then(|page| page.get(HEAD..)).unwrap_or(&[]);
            let (mut from, to) = (0, (end - n * BITS).min(BITS));
            while let Some(bit) = bitmap::next_free(bits, from, to) {
                if self.is_free_slot(Ino((n * BITS + bit).into()))? {
                    return Ok(Some(n * BITS + bit));
                }
                (from, passed) = (bit + 1, true);
            }
            self.space.full.insert(n);
        }
        if passed {
            return Ok(None);
        }
        let at = bits_at(IBITMAP, 0);
        Err(Corrupt::new("bitmap", "bits", at, "no free one", "as many free as the check-point says").into())
    }

    /// Takes the first inode that was never in use; makes its block if it is the first one there.
    fn extend_inodes(&mut self, n: u32) -> Result<u32> {
        let lbn = u64::from(n / INODES);
        if n >= u32::MAX / 2 || n >= self.geom.blocks.saturating_mul(INODES) {
            return Err(Errno::ENOSPC.into());
        }
        if n.is_multiple_of(INODES) {
            self.extend_special(IFILE, lbn, vec![0; BLOCK])?;
        } else {
            // What lies there never counted.
            self.store_zero(Ino(n.into()))?;
        }
        self.master.head.inode_end = (n + 1).into();
        self.space.full.remove(&(n / BITS));
        Ok(n)
    }
}
