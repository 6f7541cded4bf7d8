//! The state in core, and its buffers: how blocks are read, become dirty, and move.
//!
//! Every block belongs to a file, the ifile and the bitmaps too, and its buffer is named by the file and its place there: it
//! keeps its name when it gets another address. When a buffer goes from clean to dirty ([`Core::ready`]) it is decided
//! whether its block is overwritten or relocated (paper, III). A new address changes the pointer to it, and so its parent
//! goes from clean to dirty, up to the master block; what is dirty already costs nothing more.

use crate::decoded::Inode;
use crate::format::*;
use crate::history::History;
use crate::options::{Logging, Modify, Mount};
use crate::pass::Gather;
use crate::planted::{Flaw, planted};
use crate::policy::{Heat, How, Signs};
use crate::space::{Space, bits_at};
use crate::units::Units;
use crate::validate;
use arbor_base::cache::{Cache, FileBlock, Limit, Name};
use arbor_base::device::{Device, Kind, Medium};
use arbor_base::layout::{Corrupt, Location, put_u32};
use arbor_base::vfs::{Errno, Error, Ino, Result, Time};
use arbor_kit::blockmap::{BlockMap as _, Parent, Shape};
use arbor_kit::chunkdir::Hashes;
use arbor_kit::counters::Io;
use arbor_kit::machine::Machinery;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// How the map of a file is built.
pub(crate) const SHAPE: Shape = Shape { direct: DIRECT, levels: 3, fanout: POINTERS };

/// Where a dirty buffer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dirty {
    pub block: u32,
    pub kind: Kind,
    pub how: How,
}

/// What has changed since the last commit.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub parts: BTreeMap<Name, Dirty>,
    /// How many of them are logged.
    pub logged: u64,
    /// The sizes that files have in the last commit, where they have others now.
    pub sizes: FxHashMap<Ino, u64>,
    pub master: bool,
    /// When the oldest of the changes was made, ms.
    pub since: Option<u64>,
}

/// Commits, and what they wrote.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub commits: u64,
    pub relocated: u64,
    pub overwritten: u64,
    pub logged: u64,
}

/// Everything in core.
pub(crate) struct Core {
    pub geom: Geom,
    pub sb: SuperBlock,
    /// The master block of the next commit.
    pub master: Master,
    /// Where that of the last commit is; 0 before the first one.
    pub master_at: u32,
    /// Whether the last commit has the same contents as the one before it.
    pub is_twin: bool,
    /// Such a commit is being written.
    pub makes_twin: bool,
    pub opts: Mount,
    pub dev: Arc<dyn Device>,
    /// What it is good at.
    pub medium: Medium,
    pub cache: Cache,
    pub calls: Machinery,
    pub hashes: Hashes,
    pub changes: Changes,
    pub space: Space,
    pub heat: Heat,
    pub history: History,
    pub gather: Gather,
    /// Damage of bitmaps is passed by: not where it is mended.
    pub passes_damage: bool,
    /// A file that could not grow is cut back, whatever room there is for further steps.
    pub undoes: bool,
    /// Blocks that the last commit has overwritten, and that are not written in place yet.
    pub laid: BTreeMap<u32, (Kind, Arc<Vec<u8>>)>,
    pub io: Io,
    pub counts: Counts,
}

impl Core {
    pub fn new(dev: Arc<dyn Device>, (sb, geom): (SuperBlock, Geom), opts: Mount, now: Time) -> Core {
        let mut cache = Cache::new(Limit { bytes: opts.cache_bytes, buffers: opts.buffers });
        let medium = opts.device.unwrap_or(dev.geometry().medium);
        opts.dirty.limit(&mut cache);
        let units = Units::new(if opts.units { medium } else { Medium::Pages });
        Core {
            geom,
            sb,
            master: Master::default(),
            master_at: 0,
            is_twin: false,
            makes_twin: false,
            opts,
            dev,
            cache,
            calls: Machinery::new(now),
            hashes: Hashes::new(opts.cache_bytes / 4),
            changes: Changes::default(),
            gather: Gather::new(&units),
            space: Space { units, ..Space::default() },
            passes_damage: false,
            undoes: false,
            medium,
            heat: Heat::default(),
            history: History::default(),
            laid: BTreeMap::new(),
            io: Io::default(),
            counts: Counts::default(),
        }
    }

    /// An inode whose pointers are in the master block alone: of the ifile, or a bitmap.
    pub fn special(&self, ino: Ino) -> Inode {
        Inode { ino, d: self.master.inode(ino).copied().unwrap_or_default() }
    }

    /// Reads adjacent blocks.
    pub fn read(&mut self, block: u32, blocks: usize, kind: Kind) -> Result<Vec<u8>> {
        // What is in place of it is not wanted: it is old, or was written and may be lost since a flush failed.
        if let Some((_, new)) = self.laid.get(&block).filter(|_| blocks == 1) {
            return Ok(new.to_vec());
        }
        let mut bytes = self.calls.reads.read(&*self.dev, kind, byte(block), blocks * BLOCK)?;
        self.io.count_read(bytes.len());
        self.lay_over(block, &mut bytes);
        Ok(bytes)
    }

    fn lay_over(&self, block: u32, bytes: &mut [u8]) {
        if !self.laid.is_empty() {
            for (n, page) in (block..).zip(bytes.chunks_exact_mut(BLOCK)) {
                self.laid.get(&n).into_iter().for_each(|(_, new)| page.copy_from_slice(new));
            }
        }
    }

    /// The kind of a block of a file.
    pub fn kind(i: &Inode, part: FileBlock) -> Kind {
        match part {
            FileBlock::Map { .. } => Kind::Tree,
            FileBlock::Xattr(_) => Kind::Xattr,
            FileBlock::Data(_) if i.ino == IFILE => Kind::Inode,
            FileBlock::Data(_) if i.ino == DBITMAP || i.ino == IBITMAP => Kind::Bitmap,
            FileBlock::Data(_) if i.is_dir() => Kind::Dir,
            FileBlock::Data(_) => Kind::Data,
        }
    }

    /// A block of metadata of a file, checked; `None` where it has a hole. Rereads one that fails its check.
    pub fn part(&mut self, i: &Inode, part: FileBlock) -> Result<Option<Arc<Vec<u8>>>> {
        let name = Name::File(i.ino, part);
        if let Some(bytes) = self.cache.get(name) {
            return Ok(Some(bytes.clone()));
        }
        let block = match self.pointer(i, part)? {
            0 => return Ok(None),
            block => self.check_pointer(i.ino, block)?,
        };
        let kind = Core::kind(i, part);
        let mut bytes = self.read(block, 1, kind)?;
        let good = |core: &Core, bytes: &[u8]| validate::part(&core.geom, (i.ino, part), block, bytes);
        if good(self, &bytes).is_err() && !self.laid.contains_key(&block) {
            bytes = self.calls.reads.read_now(&*self.dev, kind, byte(block), BLOCK)?;
        }
        match good(self, &bytes) {
            // Inodes are checked one by one.
            Err(c) if kind != Kind::Inode => return Err(c.into()),
            _ => self.cache.insert(name, Arc::new(bytes)),
        };
        Ok(self.cache.get(name).cloned())
    }

    /// Makes the buffer of a block of a file dirty, which is in the cache. A block that was clean is relocated, or noted to
    /// be overwritten.
    pub fn ready(&mut self, i: &mut Inode, part: FileBlock) -> Result<()> {
        self.ready_for(i, part, self.opts.redo == Logging::None)
    }

    /// The same of a block that may be written `in_place` before the next commit, or not. One that may not any more gets
    /// another fate.
    pub fn ready_for(&mut self, i: &mut Inode, part: FileBlock, in_place: bool) -> Result<()> {
        let name = Name::File(i.ino, part);
        if self.changes.parts.get(&name).is_some_and(|dirty| in_place || dirty.how != How::InPlace) {
            return Ok(());
        }
        let (old, kind) = (self.pointer(i, part)?, Core::kind(i, part));
        if old != 0 {
            self.check_in_use(i.ino, old)?;
        }
        let how = if old == 0 { How::Moved } else { self.decide((name, old), kind, in_place)? };
        self.become_dirty(i, part, (old, how))
    }

    /// Makes the buffer of a block dirty, which lies at `old` so far, if anywhere, and is clean, or gets another fate.
    pub fn become_dirty(&mut self, i: &mut Inode, part: FileBlock, (old, how): (u32, How)) -> Result<()> {
        let (name, kind) = (Name::File(i.ino, part), Core::kind(i, part));
        self.note_change();
        self.cache.dirtied(name).ok_or(Errno::EIO)?;
        self.changes.logged += u64::from(how == How::Logged);
        if how != How::Moved {
            self.changes.parts.insert(name, Dirty { block: old, kind, how });
            self.space.units.note(old);
            return Ok(());
        }
        // Whatever the new address changes finds it dirty.
        let before = self.changes.parts.insert(name, Dirty { block: old, kind, how });
        let block = match (self.alloc(), before) {
            // Nothing has changed.
            (Err(e @ Error::Errno(Errno::ENOSPC)), None) => {
                self.changes.parts.remove(&name);
                self.cache.set_clean(name);
                return Err(e);
            }
            (Err(e @ Error::Errno(Errno::ENOSPC)), Some(before)) => {
                self.changes.parts.insert(name, before);
                return Err(e);
            }
            (block, _) => block?,
        };
        self.changes.parts.insert(name, Dirty { block, kind, how });
        if planted(Flaw::CascadeStops) && kind == Kind::Tree && old != 0 {
            return self.free(old);
        }
        self.set_pointer(i, part, block)?;
        if old == 0 { Ok(()) } else { self.free(old) }
    }

    /// Changes a block of a file, whose buffer is in the cache.
    pub fn change(&mut self, i: &mut Inode, part: FileBlock, f: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        self.ready(i, part)?;
        self.change_ready(i.ino, part, f)
    }

    /// Changes a block whose buffer is dirty.
    pub fn change_ready(&mut self, ino: Ino, part: FileBlock, f: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let dirty = self.cache.dirtied(Name::File(ino, part)).ok_or(Errno::EIO)?;
        self.cache.modify(dirty, f);
        Ok(())
    }

    /// Makes a block where a file has a hole; the indirect blocks above it exist.
    pub fn make(&mut self, i: &mut Inode, part: FileBlock, bytes: Vec<u8>) -> Result<()> {
        self.cache.insert(Name::File(i.ino, part), Arc::new(bytes));
        self.ready(i, part)
    }

    /// A new block with a head and zeros after it.
    pub fn headed(&self, magic: u32, owner: Ino, index: u64, len: u32) -> Vec<u8> {
        let (owner, index) = ((owner.0 as u32).into(), (index as u32).into());
        let head =
            Head { magic: magic.into(), fsid: self.geom.fsid.into(), owner, index, len: len.into(), ..Head::default() };
        let mut bytes = head.as_bytes().to_vec();
        bytes.resize(BLOCK, 0);
        bytes
    }

    /// Sets the pointer to a block of a file, in an indirect block, which must exist, or in its inode, which is stored.
    pub fn set_pointer(&mut self, i: &mut Inode, part: FileBlock, to: u32) -> Result<()> {
        let index = match SHAPE.parent(part).ok_or(Errno::EFBIG)? {
            Parent::Map { level, n, slot } => {
                let table = FileBlock::Map { level, n };
                self.part(i, table)?.ok_or(Errno::EIO)?;
                return self.change(i, table, |buf| put_u32(buf, entry_at(slot), to));
            }
            Parent::InXattr(slot) => {
                self.part(i, FileBlock::Xattr(0))?.ok_or(Errno::EIO)?;
                return self.change(i, FileBlock::Xattr(0), |buf| put_u32(buf, entry_at(slot), to));
            }
            Parent::Direct(k) => k,
            Parent::Root(k) => DIRECT as usize + k,
            Parent::Xattr => {
                i.d.xattr = to.into();
                return self.store(i.ino, |d| d.xattr = to.into());
            }
        };
        let set = |d: &mut Dinode| d.map.iter_mut().skip(index).take(1).for_each(|p| *p = to.into());
        set(&mut i.d);
        self.store(i.ino, set)
    }

    /// Drops a block of a file, which leaves a hole.
    pub fn drop_part(&mut self, i: &mut Inode, part: FileBlock) -> Result<()> {
        let block = self.pointer(i, part)?;
        self.check_in_use(i.ino, block)?;
        self.note_change();
        self.forget_part(i, part);
        self.free(block)?;
        self.set_pointer(i, part, 0)?;
        i.count(-1);
        Ok(())
    }

    /// Drops the buffer of a block that its file does not lead to any more.
    pub fn forget_part(&mut self, i: &Inode, part: FileBlock) {
        let name = Name::File(i.ino, part);
        if self.changes.parts.remove(&name).is_some_and(|dirty| dirty.how == How::Logged) {
            self.changes.logged -= 1;
        }
        self.cache.remove(name);
    }

    /// Notes a change at the present time.
    pub fn note_change(&mut self) {
        self.calls.note_change();
        let now = self.calls.now_ms();
        self.changes.since.get_or_insert(now);
        self.gather.note_change(now);
    }

    /// Notes that the master block in core was changed.
    pub fn touch_master(&mut self) {
        self.note_change();
        self.changes.master = true;
    }

    /// Fails unless a pointer points to a block that may belong to a file.
    pub fn check_pointer(&self, ino: Ino, block: u32) -> Result<u32> {
        if self.geom.is_data(block) {
            return Ok(block);
        }
        Err(Corrupt::new("inode", "map", Location::inode(ino), block, "a block that may belong to a file").into())
    }

    /// Fails unless a pointer points to a block that is in use, too.
    pub fn check_in_use(&mut self, ino: Ino, block: u32) -> Result<()> {
        self.check_pointer(ino, block)?;
        if self.is_used(block)? {
            return Ok(());
        }
        let (at, found) = (bits_at(DBITMAP, block / BITS), format!("block {block} as free"));
        Err(Corrupt::new("bitmap", "bits", at, found, format!("one that inode {ino} has")).into())
    }
}

impl Core {
    /// What becomes of a block that the last commit has `at` a place. `in_place`: nothing of the last commit is lost if its
    /// bytes are written over.
    pub fn decide(&mut self, (name, at): (Name, u32), kind: Kind, in_place: bool) -> Result<How> {
        let in_place = match self.opts.redo {
            Logging::All => false,
            Logging::Metadata => in_place,
            Logging::None => true,
        };
        // EVERGREEN-H1: as long as the last commit calls older ones intact, they may have the block, too.
        let in_place = in_place && self.master.head.intact >= self.master.head.seq;
        let over = match self.opts.modify(kind) {
            Modify::Relocate => false,
            Modify::Overwrite => true,
            Modify::Adaptive => in_place && !self.moves(name, at)?,
        };
        Ok(match (over, in_place) {
            (false, _) => How::Moved,
            (true, true) => How::InPlace,
            (true, false) if self.has_copies() => How::Logged,
            (true, false) => How::Moved,
        })
    }

    /// Whether contents had better move than be overwritten.
    fn moves(&mut self, name: Name, at: u32) -> Result<bool> {
        let (free, is_open) = (self.run_ahead()?, self.space.units.is_open(at));
        let signs = Signs { is_hot: self.heat.note(name), is_open, free };
        Ok(signs.say_move(self.medium, self.opts.run))
    }

    /// How many free blocks there are together where relocated blocks go.
    fn run_ahead(&mut self) -> Result<u32> {
        if self.space.run.is_empty() && !self.space.looked {
            self.space.looked = true;
            self.find_place()?;
        }
        // When it is used up, the next one is likely to be as long.
        Ok(self.space.run_len)
    }
}

/// Whether the pointers of an inode are in the master block alone.
pub(crate) fn is_special(ino: Ino) -> bool {
    matches!(ino, IFILE | DBITMAP | IBITMAP)
}
