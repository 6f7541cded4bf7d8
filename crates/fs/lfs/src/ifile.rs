//! The ifile: the segment usage table and the inode map.
//!
//! Of the usage table those pages are in core that have something to say ([`Segments`]); its blocks are made when a
//! checkpoint is written. The inode map is read and changed in the ifile's buffers, which stay in core until a
//! checkpoint. What the log says of both between two checkpoints, its summaries repeat.

use crate::choice::Choice;
use crate::format::*;
use crate::inode::Inode;
use crate::mount::Core;
use arbor_base::cache::{FileBlock, Name};
use arbor_base::device::Kind;
use arbor_base::layout::{Corrupt, put};
use arbor_base::vfs::{Errno, Error, Ino, Result};
use arbor_kit::blockmap::BlockMap as _;
use arbor_kit::inodes::InodeTable as _;
use arbor_kit::runs::Runs;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// A segment in core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Use {
    /// Live bytes.
    pub live: u32,
    pub dirty: bool,
    /// When its youngest block was written, seconds.
    pub time: i64,
}

/// Entries of a page of [`Segments`].
const PAGE: u32 = 256;

struct Page(Box<[Use; PAGE as usize]>);

/// All segments, in pages; where there is none nothing was ever written. So a volume takes memory by what it holds,
/// not by its size.
pub(crate) struct Segments {
    pages: BTreeMap<u32, Page>,
    count: u32,
    /// Those that may be filled.
    pub clean: Runs,
    /// Those that the newest checkpoint calls clean, and the one before did not.
    pub settling: Vec<u32>,
    /// Those whose entries differ from the ifile's.
    pub changed: BTreeSet<u32>,
    /// Live bytes of all.
    pub live: u64,
    /// Dirty ones in which nothing lives.
    hollow: BTreeSet<u32>,
    /// The others, once the cleaner has asked for them.
    choice: Option<Choice>,
}

impl Segments {
    pub fn new(count: u32) -> Segments {
        Segments {
            pages: BTreeMap::new(),
            count,
            clean: Runs::below(count),
            settling: Vec::new(),
            changed: BTreeSet::new(),
            live: 0,
            hollow: BTreeSet::new(),
            choice: None,
        }
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    /// Adds clean ones, up to `count`. The ifile has no entries for them, or zeros, which says the same.
    pub fn grow(&mut self, count: u32) {
        self.clean.insert_run(self.count, count);
        self.count = self.count.max(count);
    }

    pub fn get(&self, seg: u32) -> Use {
        let page = self.pages.get(&(seg / PAGE));
        page.and_then(|page| page.0.get((seg % PAGE) as usize)).copied().unwrap_or_default()
    }

    pub fn set(&mut self, seg: u32, to: Use) {
        if seg >= self.count {
            return;
        }
        let page = self.pages.entry(seg / PAGE).or_insert_with(|| Page(Box::new([Use::default(); PAGE as usize])));
        if let Some(at) = page.0.get_mut((seg % PAGE) as usize) {
            self.live = self.live + u64::from(to.live) - u64::from(at.live);
            if let Some(choice) = &mut self.choice {
                choice.change(seg, *at, to);
            }
            *at = to;
            self.changed.insert(seg);
            if to.dirty {
                self.clean.remove(seg);
            }
            if to.dirty && to.live == 0 {
                self.hollow.insert(seg);
            } else {
                self.hollow.remove(&seg);
            }
        }
    }

    /// Takes live bytes away. A segment has no less than none: the checker says so where they do not agree.
    pub fn bury(&mut self, seg: u32, bytes: u32) {
        let old = self.get(seg);
        self.set(seg, Use { live: old.live.saturating_sub(bytes), ..old });
    }

    pub fn add(&mut self, seg: u32, bytes: u32, time: i64) {
        let old = self.get(seg);
        self.set(seg, Use { live: old.live.saturating_add(bytes), dirty: true, time: old.time.max(time) });
    }

    /// Segments with something in them, and nothing live, but for those that the log is in.
    pub fn empty(&self, busy: &[u32]) -> Vec<u32> {
        self.hollow.iter().copied().filter(|n| !busy.contains(n)).collect()
    }

    /// Segments of which there is something to say, in the order of their addresses.
    pub fn said(&self) -> impl Iterator<Item = (u32, Use)> + '_ {
        said(&self.pages)
    }

    /// Dirty segments with their use, in the order of their addresses.
    pub fn dirty(&self) -> impl Iterator<Item = (u32, Use)> + '_ {
        dirty(&self.pages)
    }

    /// What the cleaner chooses from, where a segment has `size` bytes.
    pub fn choice(&mut self, size: u64) -> &Choice {
        let pages = &self.pages;
        self.choice.get_or_insert_with(|| Choice::new(size, dirty(pages)))
    }
}

fn said(pages: &BTreeMap<u32, Page>) -> impl Iterator<Item = (u32, Use)> + '_ {
    let numbered = |(page, uses): (&u32, &Page)| (page * PAGE..=page * PAGE + (PAGE - 1)).zip(*uses.0);
    pages.iter().flat_map(numbered).filter(|(_, u)| *u != Use::default())
}

fn dirty(pages: &BTreeMap<u32, Page>) -> impl Iterator<Item = (u32, Use)> + '_ {
    said(pages).filter(|(_, u)| u.dirty)
}

impl Core {
    /// Byte of the ifile where an inode's entry lies.
    fn map_at(&self, ino: Ino) -> (u64, usize) {
        let at = MAP_AT + ino.0 * MAP_ENTRY as u64;
        (self.geom.lbn(at), (at % self.geom.block_size() as u64) as usize)
    }

    /// The block of the ifile, as zeros if there is none yet.
    pub fn ifile_page(&mut self, lbn: u64) -> Result<Arc<Vec<u8>>> {
        let name = Name::File(IFILE, FileBlock::Data(lbn));
        if let Some(bytes) = self.cache.get(name) {
            return Ok(bytes.clone());
        }
        let i = self.inode(IFILE)?;
        let bytes = match self.pointer(&i, FileBlock::Data(lbn))? {
            p if p.frag.get() == 0 => vec![0; self.geom.block_size()],
            p => self.read_block(p, self.geom.block_frags(), Kind::Log)?,
        };
        let bytes = Arc::new(bytes);
        self.cache.insert(name, bytes.clone());
        Ok(bytes)
    }

    /// Changes a block of the ifile.
    pub fn ifile_modify(&mut self, lbn: u64, at: usize, bytes: &[u8]) -> Result<()> {
        self.ifile_page(lbn)?;
        let mut i = self.inode(IFILE)?;
        self.mark(IFILE)?;
        self.ensure(&mut i, lbn)?;
        let end = (lbn + 1) << self.geom.block_shift;
        if i.size() < end {
            i.d.size = end.into();
        }
        self.iput(&i)?;
        self.change(&i, FileBlock::Data(lbn), |buf| put(buf, at, bytes))
    }

    /// Entry of the inode map. Of an inode that there is none of, one that is free.
    pub fn map_entry(&mut self, ino: Ino) -> Result<MapEntry> {
        if ino.0 >= u64::from(self.state.inodes) {
            return Ok(MapEntry::default());
        }
        let (lbn, at) = self.map_at(ino);
        let page = self.ifile_page(lbn)?;
        let entry = page.get(at..at + MAP_ENTRY).and_then(|b| MapEntry::read_from_bytes(b).ok());
        Ok(entry.ok_or(Errno::EIO)?)
    }

    /// Changes an entry of the inode map.
    pub fn set_map_entry(&mut self, ino: Ino, entry: MapEntry) -> Result<()> {
        let (lbn, at) = self.map_at(ino);
        self.ifile_modify(lbn, at, entry.as_bytes())?;
        self.remapped.insert(ino.0);
        Ok(())
    }

    /// A free inode, and the version that it gets.
    pub fn ialloc(&mut self) -> Result<(Ino, u32)> {
        self.need(1)?;
        let free = self.state.free_ino;
        let (ino, next) = match free {
            0 if self.state.inodes == u32::MAX => return Err(Errno::ENOSPC.into()),
            0 => (Ino(self.state.inodes.into()), 0),
            ino => (Ino(ino.into()), self.map_entry(Ino(ino.into()))?.next_free.get()),
        };
        let reserved = |n: u32| n != 0 && u64::from(n) <= ROOT.0;
        if next >= self.state.inodes || reserved(next) || free != 0 && reserved(free) {
            let (found, at) = (next, self.map_at(ino).1 as u64);
            return Err(Corrupt::new("inode map", "next_free", at, found, "an inode of the map").into());
        }
        if free == 0 {
            self.state.inodes += 1;
        }
        let old = self.map_entry(ino)?;
        if old.frag.get() != 0 {
            let what = format!("inode {ino} at fragment {}", old.frag);
            return Err(Corrupt::new("inode map", "frag", 0, what, "a free inode on the free list").into());
        }
        let version = old.version.get().wrapping_add(1);
        let entry = MapEntry { frag: UNWRITTEN.into(), version: version.into(), ..MapEntry::default() };
        self.set_map_entry(ino, entry)?;
        self.state.free_ino = next;
        self.state.used_inodes += 1;
        Ok((ino, version))
    }

    /// An inode is free from now on.
    pub fn forget_inode(&mut self, ino: Ino) -> Result<()> {
        let old = self.map_entry(ino)?;
        if !matches!(old.frag.get(), 0 | UNWRITTEN) {
            self.bury_run(Frag(old.frag.get()), INODE as u32);
        }
        let entry = MapEntry { frag: 0.into(), next_free: self.state.free_ino.into(), ..old };
        self.set_map_entry(ino, entry)?;
        self.state.free_ino = ino.0 as u32;
        self.state.used_inodes = self.state.used_inodes.saturating_sub(1);
        self.cache.remove(Name::Inode(ino));
        if let Some(c) = self.changed.remove(&ino.0) {
            self.order.remove(&c.turn);
        }
        Ok(())
    }

    /// Reads the checkpoint's ifile: the usage table as far as there is one. What cannot be read goes to `lost`: a
    /// block of it, or an indirect block with all that lies below.
    pub fn load(&mut self, lost: &mut dyn FnMut(Corrupt) -> Result<()>) -> Result<()> {
        let cp = self.checkpoint;
        self.state = crate::mount::Totals {
            inodes: cp.inodes.get(),
            free_ino: cp.free_ino.get(),
            used_inodes: cp.used_inodes.get(),
            file_frags: cp.file_frags.get(),
            orphan: cp.orphan.get(),
        };
        self.log = crate::plan::Log::new(&cp);
        let d = self.read_ifile_inode()?;
        let least = MAP_AT + u64::from(cp.inodes.get()) * MAP_ENTRY as u64;
        if d.size.get() < least {
            let at = self.geom.byte(Frag(cp.ifile.get()));
            return Err(Corrupt::new("ifile", "size", at, d.size.get(), format!("{least} or more")).into());
        }
        self.cache.insert(Name::Inode(IFILE), Arc::new(d.as_bytes().to_vec()));
        let per = (self.geom.block_size() / USAGE) as u32;
        let i = Inode { ino: IFILE, d };
        let blocks = i.size().div_ceil(self.geom.block_size() as u64);
        let (mut next, mut skips_holes) = (0, true);
        loop {
            if skips_holes {
                match self.next_block(&i, next, blocks, false) {
                    Ok(found) => next = found.unwrap_or(u64::MAX),
                    // Up to what cannot be read each block is looked at.
                    Err(Error::Corrupt(_)) => skips_holes = false,
                    Err(e) => return Err(e),
                }
            }
            let Some(lbn) = u32::try_from(next).ok().filter(|lbn| *lbn < self.segs.count().div_ceil(per)) else {
                break;
            };
            next += 1;
            match self.pointer(&i, FileBlock::Data(lbn.into())) {
                Ok(p) if p.frag.get() == 0 => continue,
                Ok(_) => {}
                Err(Error::Corrupt(c)) => {
                    lost(*c)?;
                    (next, skips_holes) = (self.after_missing(&i, lbn.into())?, true);
                    continue;
                }
                Err(e) => return Err(e),
            }
            let page = match self.ifile_page(lbn.into()) {
                Err(Error::Corrupt(c)) => {
                    lost(*c)?;
                    continue;
                }
                page => page?,
            };
            for (n, bytes) in (lbn * per..self.segs.count()).zip(page.chunks_exact(USAGE)) {
                let Ok(u) = Usage::read_from_bytes(bytes) else { continue };
                let dirty = u.flags.get() & DIRTY != 0;
                if dirty {
                    self.segs.set(n, Use { live: u.live.get(), dirty, time: u.time.get() });
                }
            }
        }
        self.segs.changed.clear();
        for seg in self.log.busy() {
            self.segs.clean.remove(seg);
        }
        Ok(())
    }

    /// Brings the usage table's blocks up to date with what is in core.
    pub fn store_usage(&mut self) -> Result<()> {
        let per = (self.geom.block_size() / USAGE) as u32;
        for seg in std::mem::take(&mut self.segs.changed) {
            let s = self.segs.get(seg);
            let usage =
                Usage { live: s.live.into(), flags: if s.dirty { DIRTY } else { 0 }.into(), time: s.time.into() };
            self.ifile_modify((seg / per).into(), (seg % per) as usize * USAGE, usage.as_bytes())?;
        }
        Ok(())
    }
}
