//! Phase 2: the bitmaps, and what the superblock counts of them (PLAIN-A2).

use super::Checker;
use super::inodes::is_damaged;
use super::issue::Issue;
use crate::alloc::Of;
use crate::format::*;
use arbor_base::device::Kind;
use arbor_base::vfs::{Ino, Result};
use arbor_kit::buddy::Wrong;
use arbor_kit::runs::Runs;

impl Checker<'_> {
    pub(super) fn check_space(&mut self) -> Result<()> {
        let mut inodes = Runs::below(ROOT.0 as u32);
        inodes.extend(self.recs.there().map(|rec| rec.ino));
        self.check_pool(Of::Inodes, "inodes", &inodes)?;
        let owned = std::mem::take(&mut self.owned);
        self.check_pool(Of::Space, "blocks", &owned)?;
        self.owned = owned;
        self.core.full.clear();
        Ok(())
    }

    /// Makes a bitmap and its pool agree with what is in use.
    fn check_pool(&mut self, of: Of, what: &'static str, used: &Runs) -> Result<()> {
        let (pool, _) = self.core.pool(of);
        let (found, last) = (*pool, used.iter().next_back());
        let end = last.map_or(0, |last| last + 1).max(found.end.get());
        if end > found.end.get() {
            self.f.note(Issue::End { what, found: found.end.get(), expected: end });
        }
        let (mut free, mut taken) = (Wrong::default(), Wrong::default());
        let mut rest = used.iter().peekable();
        for n in 0..end.div_ceil(BITS) {
            let mut bits = vec![0u8; BLOCK - HEAD];
            while let Some(bit) = rest.next_if(|bit| bit / BITS == n) {
                bits.iter_mut().skip((bit % BITS) as usize / 8).take(1).for_each(|b| *b |= 1 << (bit % 8));
            }
            self.check_bits(of, (what, n), &bits, n * BITS >= found.end.get(), (&mut free, &mut taken))?;
        }
        if free.count > 0 {
            self.f.note(Issue::MarkedFree { what, count: free.count, first: free.first });
        }
        if taken.count > 0 {
            self.f.note(Issue::MarkedUsed { what, count: taken.count, first: taken.first });
        }
        let expected = found.count.get().saturating_sub(used.len() as u32);
        if found.free.get() != expected {
            self.f.note(Issue::Count { what, found: found.free.get(), expected });
        }
        let mended = Pool { free: expected.into(), end: end.into(), ..found };
        if mended != found {
            *self.core.pool(of).0 = mended;
            self.core.touch_super();
        }
        Ok(())
    }

    /// Sets block `n` of a bitmap to these bits. `fresh`: its contents meant nothing so far.
    fn check_bits(
        &mut self,
        of: Of,
        (what, n): (&'static str, u32),
        bits: &[u8],
        fresh: bool,
        (free, taken): (&mut Wrong, &mut Wrong),
    ) -> Result<()> {
        let block = self.core.pool(of).1 + n;
        let damage = if fresh { None } else { is_damaged(self.core.block(block, Kind::Bitmap).map(drop))? };
        if fresh || damage.is_some() {
            damage.into_iter().for_each(|why| self.f.note(Issue::Bitmap { what, at: byte(block), why }));
            self.core.make_headed(block, Kind::Bitmap, BITMAP_MAGIC, Ino(0))?;
        } else {
            let old = self.core.block(block, Kind::Bitmap)?.get(HEAD..).unwrap_or(&[]);
            if old == bits {
                return Ok(());
            }
            for (at, (old, new)) in (n * BITS..).step_by(8).zip(old.iter().zip(bits)) {
                free.add(new & !old, at);
                taken.add(old & !new, at);
            }
        }
        self.core.modify(block, Kind::Bitmap, |buf| {
            buf.get_mut(HEAD..).into_iter().for_each(|place| place.copy_from_slice(bits));
        })
    }
}
