//! Phase 2: the bitmaps, and what the check-point counts of them.

use super::Checker;
use super::inodes::{Mend, is_damaged};
use super::issue::Issue;
use crate::format::*;
use arbor_base::cache::FileBlock;
use arbor_base::vfs::{Error, Ino, Result};
use arbor_kit::buddy::{Wrong, bitmap};
use arbor_kit::runs::Runs;
use std::collections::BTreeSet;

/// A bit to be changed: of which file, block and number; whether it is to say "in use".
type Bit = (Ino, u32, bool);

impl Checker<'_> {
    pub(super) fn check_space(&mut self) -> Result<()> {
        let owned = std::mem::take(&mut self.owned);
        let mut inodes = Runs::default();
        [0, 1, 3, 4, TAIL].into_iter().for_each(|n| {
            inodes.insert(n);
        });
        let there: Vec<u32> = self.recs.there().map(|rec| rec.ino).collect();
        there.into_iter().for_each(|n| {
            inodes.insert(n);
        });
        let mut wrong = Vec::new();
        self.compare((DBITMAP, "blocks"), self.core.geom.blocks, &owned, &mut wrong)?;
        self.compare((IBITMAP, "inodes"), self.core.master.head.inode_end.get(), &inodes, &mut wrong)?;
        self.count("blocks", owned.len() as u32);
        self.count("inodes", inodes.len() as u32);
        self.check_kept(&owned)?;
        // All of them can be read before the first one gets a place.
        self.core.cache.keep_all(true);
        let places = self.core.lay_pages(std::mem::take(&mut self.lost))?;
        // What has an owner is not given away, whatever the bitmap says.
        owned.iter().try_for_each(|block| self.core.keep(block))?;
        self.mend_specials()?;
        self.core.place_pages(places)?;
        self.core.cache.keep_all(false);
        for (file, n, used) in wrong {
            self.core.mend_bit(file, n, used)?;
        }
        self.owned = owned;
        Ok(())
    }

    fn count(&mut self, what: &'static str, expected: u32) {
        let head = &mut self.core.master.head;
        let place = if what == "blocks" { &mut head.used } else { &mut head.inodes };
        let found = place.get();
        if found != expected {
            *place = expected.into();
            self.f.note(Issue::Count { what, found, expected });
            self.core.touch_master();
        }
    }

    /// What older commits alone have: the check-point may count more of it, but not more than there is room for. What else
    /// can be wrong with them makes them commits that are not there.
    fn check_kept(&mut self, owned: &Runs) -> Result<()> {
        let (geom, head) = (self.core.geom, self.core.master.head);
        let (intact, seq, kept) = (head.intact.get(), head.seq.get(), head.kept.get());
        if intact >= seq {
            return Ok(());
        }
        let (mut alone, most) = (0, u64::from(geom.space()).saturating_sub(owned.len()));
        for n in 0..geom.blocks.div_ceil(BITS) {
            let mut bits = vec![0; BLOCK - HEAD];
            self.core.add_older_bits(n, &mut bits)?;
            let used = (0..BITS).filter(|bit| !bitmap::is_free(&bits, *bit)).map(|bit| n * BITS + bit);
            alone += used.filter(|block| geom.is_data(*block) && !owned.contains(*block)).count() as u32;
        }
        self.core.history.older_blocks = alone.into();
        let is_lost = self.core.history.lost > intact;
        if is_lost {
            self.f.note(Issue::History { intact, seq });
        } else if kept < alone || u64::from(kept) > most {
            self.f.note(Issue::Count { what: "blocks of older commits", found: kept, expected: alone });
        } else {
            return Ok(());
        }
        // They are given up.
        self.core.master.head.intact = seq.into();
        self.core.touch_master();
        Ok(())
    }

    /// Finds blocks of inodes that are not there: the inodes are lost.
    pub(super) fn find_lost_inodes(&mut self) -> Result<()> {
        let ifile = self.core.special(IFILE);
        let known: BTreeSet<u32> = self.lost.iter().map(|lost| lost.1).collect();
        for n in (1..self.core.master.head.inode_end.get().div_ceil(INODES)).filter(|n| !known.contains(n)) {
            let why = match self.core.part(&ifile, FileBlock::Data(n.into())) {
                Ok(Some(_)) => continue,
                Ok(None) => "is a hole".into(),
                Err(Error::Corrupt(c)) => c.to_string(),
                Err(e) => return Err(e),
            };
            self.lose_inodes(n, why);
        }
        Ok(())
    }

    /// Notes that a block of the ifile is lost.
    pub(super) fn lose_inodes(&mut self, n: u32, why: String) {
        self.f.note(Issue::InodesLost { n, why });
        self.lost.push((IFILE, n, vec![0; BLOCK], false));
    }

    /// Blocks of a bitmap that belong to another file: they are made anew, and not cut off.
    fn take_cuts(&mut self, file: Ino, blocks: u32) -> BTreeSet<u32> {
        let mut cut = BTreeSet::new();
        self.mends.retain(|mend| match mend {
            Mend::Cut(ino, FileBlock::Data(lbn)) if *ino == file && *lbn < blocks.into() => !cut.insert(*lbn as u32),
            _ => true,
        });
        cut
    }

    /// Compares a bitmap with what is in use.
    fn compare(
        &mut self,
        (file, what): (Ino, &'static str),
        end: u32,
        used: &Runs,
        wrong: &mut Vec<Bit>,
    ) -> Result<()> {
        let (mut free, mut taken) = (Wrong::default(), Wrong::default());
        let cut = self.take_cuts(file, end.div_ceil(BITS));
        let mut rest = used.iter().peekable();
        for n in 0..end.div_ceil(BITS) {
            let mut bits = if file == DBITMAP { self.core.geom.reserved_bits(n) } else { vec![0; BLOCK - HEAD] };
            let hole = bits.clone();
            while let Some(bit) = rest.next_if(|bit| bit / BITS == n) {
                bitmap::set_used(&mut bits, bit % BITS, 1);
            }
            let why = match is_damaged(self.core.bitmap(file, n))? {
                None if cut.contains(&n) => Some("it leads elsewhere".into()),
                why => why,
            };
            if let Some(why) = why {
                self.f.note(Issue::Bitmap { what, n, why });
                let mut bytes = self.core.headed(BITMAP_MAGIC, file, n.into(), 0);
                bytes.get_mut(HEAD..).into_iter().for_each(|place| place.copy_from_slice(&bits));
                self.lost.push((file, n, bytes, false));
                continue;
            }
            let page = self.core.bitmap(file, n)?;
            let old = page.as_ref().map_or(&hole[..], |page| page.get(HEAD..).unwrap_or(&[]));
            let before = wrong.len();
            for (at, (old, new)) in (n * BITS..).step_by(8).zip(old.iter().zip(&bits)) {
                if old != new {
                    free.add(new & !old, at);
                    taken.add(old & !new, at);
                    let changed = (0..8).filter(|bit| (old ^ new) & 1 << bit != 0);
                    wrong.extend(changed.map(|bit| (file, at + bit, new & 1 << bit != 0)));
                }
            }
            if file == DBITMAP && page.is_some() && wrong.len() > before {
                // Where the block itself counts as free it cannot move.
                wrong.truncate(before);
                let mut bytes = self.core.headed(BITMAP_MAGIC, file, n.into(), 0);
                bytes.get_mut(HEAD..).into_iter().for_each(|place| place.copy_from_slice(&bits));
                self.lost.push((file, n, bytes, true));
            }
        }
        if free.count > 0 {
            self.f.note(Issue::MarkedFree { what, count: free.count, first: free.first });
        }
        if taken.count > 0 {
            self.f.note(Issue::MarkedUsed { what, count: taken.count, first: taken.first });
        }
        Ok(())
    }
}
