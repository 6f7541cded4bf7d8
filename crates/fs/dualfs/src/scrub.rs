//! Scrubbing: reads what is in use from the device, inode by inode, and verifies its checksums. Damage is found while there
//! may still be another copy of the file.

use crate::decoded::{Inode, inodes_in};
use crate::describe::piece_name;
use crate::file::CONTENTS;
use crate::format::*;
use crate::volume::Core;
use crate::{areas, superblock};
use arbor_base::cache::{FileBlock, Name};
use arbor_base::device::Kind;
use arbor_base::vfs::{Error, Ino, Result, Scrubbed};
use arbor_kit::blockmap::{BlockMap as _, Mapped as _};
use arbor_kit::head;
use std::collections::BTreeSet;

/// Logical blocks of a file that one step verifies.
const STEP: u64 = 256;

impl Core {
    /// Verifies a part of the first inode in use from `at` on: its number in the upper half, the part in the lower one. At 0
    /// also the superblocks and the checkpoints.
    pub fn scrub_some(&mut self, at: u64) -> Result<Scrubbed> {
        let mut done = Scrubbed::default();
        if at == 0 {
            self.scrub_heads(&mut done)?;
        }
        let (first, mut part) = ((at >> 32).max(IFILE.0), at & 0xffff_ffff);
        let Some(ino) = self.next_in_use(first, &mut done)? else { return Ok(done) };
        if ino.0 != first {
            part = 0;
        }
        let next = self.scrub_inode(ino, part, &mut done)?;
        done.next = Some(next.map_or((ino.0 + 1) << 32, |part| ino.0 << 32 | part));
        if !done.damage.is_empty() {
            self.calls.health.note_damage();
        }
        Ok(done)
    }

    fn scrub_heads(&mut self, done: &mut Scrubbed) -> Result<()> {
        for (what, at) in [("superblock", 0), ("superblock copy", self.geom.copy_at())] {
            match head::read::<SuperBlock>(&*self.dev, at) {
                Ok(Some(_)) => done.verified_bytes += SECTOR as u64,
                Ok(None) => done.damage.push(format!("{what} at byte {at}: there is none")),
                Err(Error::Corrupt(c)) => done.damage.push(format!("{what}: {c}")),
                Err(e) => return Err(e),
            }
        }
        let bad = areas::bad_heads(&*self.dev, &self.geom, self.owner())?;
        done.verified_bytes += (u64::from(self.geom.heads) - bad.len() as u64) * SECTOR as u64;
        done.damage.extend(bad.iter().map(|at| format!("head of the data device at byte {at}: it cannot be used")));
        let sound = superblock::checkpoints(&*self.dev, &self.geom)?.len();
        done.verified_bytes += (sound * SECTOR) as u64;
        if sound < 2 {
            done.damage.push(format!("{} of two checkpoints cannot be used", 2 - sound));
        }
        Ok(())
    }

    /// The first inode in use on the device from a number on.
    fn next_in_use(&mut self, from: u64, done: &mut Scrubbed) -> Result<Option<Ino>> {
        if from == IFILE.0 {
            return Ok(Some(IFILE));
        }
        let mut at = from;
        loop {
            let found = self.next_number(at).and_then(|next| match next {
                Some(n) => Ok(Some((n, self.map_entry(Ino(n))?))),
                None => Ok(None),
            });
            match found {
                Ok(Some((n, entry))) if !matches!(entry.block.get(), 0 | NO_PLACE) => return Ok(Some(Ino(n))),
                Ok(Some((n, _))) => at = n + 1,
                Ok(None) => return Ok(None),
                Err(Error::Corrupt(c)) => {
                    done.damage.push(format!("inode map: {c}"));
                    return Ok(None);
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Verifies a part of an inode; returns the next one that is no hole.
    fn scrub_inode(&mut self, ino: Ino, part: u64, done: &mut Scrubbed) -> Result<Option<u64>> {
        let i = match self.inode(ino) {
            Ok(i) => i,
            Err(Error::Corrupt(c)) => {
                done.damage.push(format!("inode {ino}: {c}"));
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        if part == 0 {
            self.scrub_own(&i, done)?;
        }
        if !i.d.has_blocks() {
            return Ok(None);
        }
        let (first, end) = (part * STEP, self.geom.blocks_for(i.size()));
        let mut tables = BTreeSet::new();
        for lbn in first..(first + STEP).min(end) {
            for level in (1..=NIADDR as u8).rev() {
                if let FileBlock::Map { level, n } = self.shape().above(lbn, level)
                    && tables.insert((level, n))
                {
                    self.scrub_block(&i, FileBlock::Map { level, n }, done)?;
                }
            }
            self.scrub_block(&i, FileBlock::Data(lbn), done)?;
        }
        match self.next_block(&i, first + STEP, end, false) {
            Ok(next) => Ok(next.map(|lbn| lbn / STEP)),
            // What is behind damage cannot be reached.
            Err(Error::Corrupt(c)) => {
                done.damage.push(format!("inode {ino}: {c}"));
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// The inode where it lies, and its attributes.
    fn scrub_own(&mut self, i: &Inode, done: &mut Scrubbed) -> Result<()> {
        let block = if i.ino == IFILE { self.checkpoint.ifile.get() } else { self.map_entry(i.ino)?.block.get() };
        let at = self.geom.meta_byte(MetaBlock(block));
        let bytes = self.read_again(Kind::Inode, at)?;
        let geom = self.geom;
        if inodes_in(&geom, &bytes).any(|(_, d)| u64::from(d.ino.get()) == i.ino.0) {
            done.verified_bytes += INODE as u64;
        } else {
            done.damage.push(format!("inode {}: no sound one in the block at byte {at:#x}", i.ino));
        }
        match self.xattr_blocks(i) {
            Ok(blocks) => (0..blocks).try_for_each(|n| self.scrub_block(i, FileBlock::Xattr(n), done)),
            Err(Error::Corrupt(c)) => {
                done.damage.push(format!("inode {}: {c}", i.ino));
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    /// A block that is as it is on the device: what is changed in core is written anew.
    fn scrub_block(&mut self, i: &Inode, part: FileBlock, done: &mut Scrubbed) -> Result<()> {
        let p = match self.pointer(i, part) {
            Ok(p) => p,
            // It was told when its own turn came.
            Err(Error::Corrupt(_)) => return Ok(()),
            Err(e) => return Err(e),
        };
        if !p.is_placed() || p.has_no_sum() || self.cache.is_dirty(Name::File(i.ino, part)) {
            return Ok(());
        }
        let whose = format!("inode {}, {}", i.ino, piece_name(&self.geom, i, part));
        let name = match part {
            FileBlock::Data(lbn) => format!("{whose}, block {lbn}"),
            FileBlock::Map { n, .. } => format!("{whose}, number {n}"),
            FileBlock::Xattr(_) => whose,
        };
        let verified = self.place_of(i, part, p).and_then(|at| {
            let bytes = self.read_again(Self::kind_of(i, part), at)?;
            Self::verify(if Self::is_data(i, part) { CONTENTS } else { "block" }, p, self.geom.location(at), &bytes)
        });
        match verified {
            Ok(()) => done.verified_bytes += self.geom.block() as u64,
            Err(Error::Corrupt(c)) => done.damage.push(format!("{name}: {c}")),
            Err(Error::Io(e)) => done.damage.push(format!("{name}: {e}")),
            Err(e) => return Err(e),
        }
        Ok(())
    }
}
