//! Allocation of inodes and blocks.
//!
//! Each kind has a bitmap and a [`Pool`] in the superblock. The search begins where the last one ended; inodes or
//! blocks that were never in use are taken only when no other is left, so that an image does not grow before it must.

use crate::format::*;
use crate::volume::Core;
use arbor_base::device::Kind;
use arbor_base::layout::Corrupt;
use arbor_base::vfs::{Errno, Ino, Result};
use arbor_kit::buddy::bitmap;

/// What is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Inodes,
    Space,
}

impl Core {
    /// The pool, and the first block of its bitmap.
    pub fn pool(&mut self, of: Of) -> (&mut Pool, u32) {
        match of {
            Of::Inodes => (&mut self.sb.inodes, self.geom.inode_bitmap()),
            Of::Space => (&mut self.sb.space, self.geom.space_bitmap()),
        }
    }

    /// Fails with `ENOSPC` unless so many blocks are free.
    pub fn need(&self, blocks: u64) -> Result<()> {
        if blocks <= self.sb.space.free.get().into() { Ok(()) } else { Err(Errno::ENOSPC.into()) }
    }

    /// Allocates a block (PLAIN-A1).
    pub fn alloc(&mut self) -> Result<u32> {
        Ok(self.geom.data() + self.take(Of::Space)?)
    }

    /// Frees a block.
    pub fn free_block(&mut self, ino: Ino, block: u32) -> Result<()> {
        self.check_pointer(ino, block)?;
        self.give(Of::Space, block - self.geom.data())
    }

    /// Allocates one; `ENOSPC` if none is free.
    pub fn take(&mut self, of: Of) -> Result<u32> {
        let Pool { count, free, end, .. } = *self.pool(of).0;
        // PLAIN-A2: after `end` all are free.
        let n = match free.get().checked_sub(count.get() - end.get()) {
            _ if free.get() == 0 => return Err(Errno::ENOSPC.into()),
            Some(1..) => self.search(of)?,
            _ => self.extend(of)?,
        };
        self.set_bit(of, n, true)?;
        let (pool, _) = self.pool(of);
        (pool.free, pool.rover) = ((free.get() - 1).into(), (n + 1).into());
        self.touch_super();
        Ok(n)
    }

    /// Frees one.
    pub fn give(&mut self, of: Of, n: u32) -> Result<()> {
        let block = self.pool(of).1 + n / BITS;
        if let Err(e) = self.block(block, Kind::Bitmap).map(drop)
            && e.is_damage()
        {
            // It stays in use until the checker looks.
            self.calls.health.pass_by(e);
            return Ok(());
        }
        self.set_bit(of, n, false)?;
        let (pool, first) = self.pool(of);
        pool.free = pool.free.get().saturating_add(1).min(pool.count.get()).into();
        self.full.remove(&(first + n / BITS));
        self.touch_super();
        Ok(())
    }

    /// Finds a free one among those that were in use before: from where the last search ended to the end, then from the
    /// start.
    fn search(&mut self, of: Of) -> Result<u32> {
        let (pool, first) = self.pool(of);
        let (end, rover) = (pool.end.get(), pool.rover.get());
        let blocks = end.div_ceil(BITS);
        for step in 0..=blocks {
            let n = (rover / BITS + step) % blocks;
            if self.full.contains(&(first + n)) {
                continue;
            }
            let from = if step == 0 { rover % BITS } else { 0 };
            let (mut from, to) = (from, (end - n * BITS).min(BITS));
            let bits = match self.block(first + n, Kind::Bitmap) {
                Ok(bits) => bits.get(HEAD..).unwrap_or(&[]).to_vec(),
                Err(e) if e.is_damage() => {
                    self.calls.health.pass_by(e);
                    self.full.insert(first + n);
                    continue;
                }
                Err(e) => return Err(e),
            };
            let mut found = bitmap::next_free(&bits, from, to);
            while let Some(at) = found
                && of == Of::Inodes
                && !self.is_free_slot(Ino((n * BITS + at).into()))?
            {
                from = at + 1;
                found = bitmap::next_free(&bits, from, to);
            }
            match found {
                Some(at) => return Ok(n * BITS + at),
                None if from == 0 => drop(self.full.insert(first + n)),
                None => {}
            }
        }
        if self.calls.health.has_met_damage() {
            return Err(Errno::ENOSPC.into());
        }
        Err(Corrupt::new("bitmap", "bits", byte(first), "no free one", "as many free as the superblock says").into())
    }

    /// Takes the first one that was never in use; makes its blocks of bitmap and table if it is their first.
    fn extend(&mut self, of: Of) -> Result<u32> {
        let (pool, first) = self.pool(of);
        let n = pool.end.get();
        pool.end = (n + 1).into();
        if n.is_multiple_of(BITS) {
            self.make_headed(first + n / BITS, Kind::Bitmap, BITMAP_MAGIC, Ino(0))?;
        }
        let (table, at) = (self.geom.table() + n / INODES, (n % INODES) as usize * INODE);
        if of == Of::Inodes && at == 0 {
            self.make_block(table, Kind::Inode, vec![0; BLOCK])?;
        } else if of == Of::Inodes {
            self.block(table, Kind::Inode)?;
            self.modify(table, Kind::Inode, |buf| buf.iter_mut().skip(at).take(INODE).for_each(|b| *b = 0))?;
        }
        self.full.remove(&(first + n / BITS));
        Ok(n)
    }

    /// Free runs among the blocks that block `n` of the bitmap covers: the first block of each, and their number.
    pub fn free_runs(&mut self, n: u32) -> Result<Vec<(u32, u32)>> {
        let (first, to) = (n * BITS, self.geom.space.saturating_sub(n * BITS).min(BITS));
        let bits = match first < self.sb.space.end.get() {
            true => self.block(self.geom.space_bitmap() + n, Kind::Bitmap)?.get(HEAD..).unwrap_or(&[]).to_vec(),
            false => vec![0; BLOCK - HEAD],
        };
        let (mut runs, mut at) = (Vec::new(), 0);
        while let Some(free) = bitmap::next_free(&bits, at, to) {
            let len = bitmap::free_run(&bits, free, to, to);
            at = free + len;
            runs.push((self.geom.data() + first + free, len));
        }
        Ok(runs)
    }

    pub fn set_bit(&mut self, of: Of, n: u32, used: bool) -> Result<()> {
        let block = self.pool(of).1 + n / BITS;
        let (at, mask) = (HEAD + (n % BITS) as usize / 8, 1u8 << (n % 8));
        let was = self.block(block, Kind::Bitmap)?.get(at).is_some_and(|b| b & mask != 0);
        if was == used {
            let expected = if used { "a free bit" } else { "a bit of what is in use" };
            return Err(Corrupt::new("bitmap", "bits", byte(block), n, expected).into());
        }
        self.modify(block, Kind::Bitmap, |bytes| bytes.iter_mut().skip(at).take(1).for_each(|b| *b ^= mask))
    }
}
