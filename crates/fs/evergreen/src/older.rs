//! Reading older commits: which are there, what their bitmaps say, and taking one for a mount.
//!
//! Called by `alloc.rs`, which asks what cannot be had, by `commit.rs`, `mount.rs` and the checker.

use crate::format::*;
use crate::history::Older;
use crate::recover;
use crate::validate;
use crate::volume::{Core, SHAPE};
use arbor_base::cache::FileBlock;
use arbor_base::device::Kind;
use arbor_base::layout::{Corrupt, get_u32};
use arbor_base::vfs::{Error, Result};
use arbor_kit::blockmap::Parent;

impl Core {
    /// The oldest commit that stays intact while commit `seq` is the newest one.
    pub fn intact_at(&self, seq: u64) -> u64 {
        // A commit that has what the last one has is none of those that are retained.
        let has_room = self.opts.retain + 1 < self.geom.masters().count() as u64;
        let retain = self.opts.retain + u64::from(self.makes_twin && self.opts.retain > 1 && has_room);
        // Where space is short older commits give way, the oldest half of them at a time.
        let older = (seq - self.master.head.intact.get().min(seq)) / 2 + 1;
        let retain = if self.is_low() { retain.min(older) } else { retain };
        let retained = (seq + 1).saturating_sub(retain);
        self.master.head.intact.get().max(retained).max(self.history.lost).min(seq)
    }

    /// Finds the commits before the newest one that it calls intact. Returns whether all of them are there.
    pub fn load_history(&mut self) -> Result<bool> {
        let (intact, seq) = (self.master.head.intact.get(), self.master.head.seq.get());
        self.history.wrote(seq, self.master_at);
        if intact >= seq {
            return Ok(intact == seq);
        }
        self.history.older_blocks = self.master.head.kept.get().into();
        let mut all = Vec::new();
        for at in self.geom.masters() {
            let found = recover::master(&*self.dev, &self.geom, at)?;
            let found = found.filter(|master| (intact..seq).contains(&master.head.seq.get()));
            all.extend(found.map(|master| Older { master, at }));
        }
        all.sort_by_key(|older| older.master.head.seq.get());
        // Those that are there without a gap.
        let is_next = |(older, n): &(&Older, u64)| seq - older.master.head.seq.get() == *n;
        let there = all.iter().rev().zip(1..).take_while(is_next).count();
        self.history.older = all.split_off(all.len() - there);
        self.history.lost = seq - there as u64;
        Ok(self.history.lost == intact)
    }

    /// Adds to the bits of block `n` of the dBitmap those of what older commits of earlier mounts have. Of one whose bitmap
    /// is damaged nothing is kept: it is not intact.
    pub fn add_older_bits(&mut self, n: u32, bits: &mut [u8]) -> Result<()> {
        for k in 0..self.history.older.len() {
            let Some(older) = self.history.older.get(k).copied() else { break };
            match self.older_bitmap(&older.master, n) {
                Ok(None) => {}
                Ok(Some(page)) => {
                    bits.iter_mut().zip(page.get(HEAD..).unwrap_or(&[])).for_each(|(bit, used)| *bit |= used);
                }
                Err(Error::Corrupt(_)) => self.history.lost = self.history.lost.max(older.master.head.seq.get() + 1),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn older_bitmap(&mut self, master: &Master, n: u32) -> Result<Option<Vec<u8>>> {
        let part = FileBlock::Data(n.into());
        match self.older_pointer(master, part)? {
            0 => Ok(None),
            block => self.older_part(part, block).map(Some),
        }
    }

    fn older_pointer(&mut self, master: &Master, part: FileBlock) -> Result<u32> {
        let d = master.inode(DBITMAP).copied().unwrap_or_default();
        let index = match SHAPE.parent(part) {
            Some(Parent::Direct(k)) => k,
            Some(Parent::Root(k)) => DIRECT as usize + k,
            Some(Parent::Map { level, n, slot }) => {
                let table = FileBlock::Map { level, n };
                return match self.older_pointer(master, table)? {
                    0 => Ok(0),
                    block => Ok(get_u32(&self.older_part(table, block)?, entry_at(slot)).unwrap_or(0)),
                };
            }
            Some(Parent::Xattr | Parent::InXattr(_)) | None => return Ok(0),
        };
        Ok(d.map.get(index).map_or(0, |p| p.get()))
    }

    fn older_part(&mut self, part: FileBlock, block: u32) -> Result<Vec<u8>> {
        self.check_pointer(DBITMAP, block)?;
        let bytes = self.read(block, 1, Kind::Bitmap)?;
        validate::part(&self.geom, (DBITMAP, part), block, &bytes)?;
        Ok(bytes)
    }

    /// Takes an older commit, for a mount that only reads.
    pub fn take_commit(&mut self, seq: u64) -> Result<()> {
        let (intact, newest) = (self.master.head.intact.get(), self.master.head.seq.get());
        if !(intact..=newest).contains(&seq) {
            let more = if (1..intact).contains(&seq) { " any more" } else { "" };
            let there = format!("{intact} to {newest} are there");
            return Err(Error::refused(format!("option commit_at: there is no commit {seq}{more}, {there}")));
        }
        if seq == newest {
            return Ok(());
        }
        (self.master, self.master_at) = recover::scan(&*self.dev, &self.geom, seq + 1)?;
        if self.master.head.seq.get() != seq {
            let found = self.master.head.seq.get();
            return Err(Corrupt::new("master block", "seq", byte(self.master_at), found, seq.to_string()).into());
        }
        // What it has overwritten was in place before the one after it.
        self.laid.clear();
        Ok(())
    }
}
