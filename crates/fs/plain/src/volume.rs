//! The state in core, and its buffers: how blocks are read, changed and forgotten.
//!
//! Pages of files are buffers by file and page, everything else by address. What a call changes stays in the cache
//! until `commit.rs` has written it, which it does before the call returns.

use crate::format::*;
use crate::options::Mount;
use crate::validate;
use arbor_base::cache::{Cache, Name};
use arbor_base::device::{Device, Kind};
use arbor_base::layout::{Corrupt, Location};
use arbor_base::vfs::{Errno, Ino, Result, Time};
use arbor_kit::chunkdir::Hashes;
use arbor_kit::counters::Io;
use arbor_kit::machine::Machinery;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Changes since the last record.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Number of the next record.
    pub seq: u64,
    /// Changed blocks: the buffer of each.
    pub changed: BTreeMap<u32, (Name, Kind)>,
    pub super_changed: bool,
    pub records: u64,
    pub bytes: u64,
    /// The changes are a repair's, and need not fit one record.
    pub is_repair: bool,
}

/// Everything in core.
pub(crate) struct Core {
    pub geom: Geom,
    pub sb: SuperBlock,
    pub dev: Arc<dyn Device>,
    pub cache: Cache,
    pub calls: Machinery,
    pub hashes: Hashes,
    pub log: Log,
    /// Blocks of bitmaps without a free bit.
    pub full: HashSet<u32>,
    /// Blocks that a replay would write, where nothing may be written.
    pub laid: BTreeMap<u32, Vec<u8>>,
    pub io: Io,
}

impl Core {
    pub fn new(dev: Arc<dyn Device>, (sb, geom): (SuperBlock, Geom), opts: Mount, now: Time) -> Core {
        Core {
            geom,
            sb,
            dev,
            cache: Cache::new(opts.cache_bytes),
            calls: Machinery::new(now),
            hashes: Hashes::new(opts.cache_bytes / 4),
            log: Log::default(),
            full: HashSet::new(),
            laid: BTreeMap::new(),
            io: Io::default(),
        }
    }

    /// Reads adjacent blocks.
    pub fn read(&mut self, block: u32, blocks: usize, kind: Kind) -> Result<Vec<u8>> {
        let mut bytes = self.calls.reads.read(&*self.dev, kind, byte(block), blocks * BLOCK)?;
        self.io.count_read(bytes.len());
        for (n, page) in (block..).zip(bytes.chunks_exact_mut(BLOCK)) {
            self.laid.get(&n).into_iter().for_each(|new| page.copy_from_slice(new));
        }
        Ok(bytes)
    }

    /// A block of metadata, checked; rereads one that fails its check. Inodes are checked one by one.
    pub fn block(&mut self, block: u32, kind: Kind) -> Result<&Arc<Vec<u8>>> {
        let name = Name::Block(block.into());
        if !self.cache.contains(name) {
            let mut bytes = self.read(block, 1, kind)?;
            if validate::block(&self.geom, block, kind, &bytes).is_err() && !self.laid.contains_key(&block) {
                bytes = self.calls.reads.read_now(&*self.dev, kind, byte(block), BLOCK)?;
            }
            match validate::block(&self.geom, block, kind, &bytes) {
                Err(c) if kind != Kind::Inode => return Err(c.into()),
                _ => self.cache.insert(name, Arc::new(bytes)),
            };
        }
        Ok(self.cache.get(name).ok_or(Errno::EIO)?)
    }

    /// Changes a block of metadata that was read in the same call.
    pub fn modify(&mut self, block: u32, kind: Kind, f: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        self.change(Name::Block(block.into()), block, kind, f)
    }

    /// Changes a buffer, and notes the block where it goes.
    pub fn change(&mut self, name: Name, block: u32, kind: Kind, f: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let dirty = self.cache.dirtied(name).ok_or(Errno::EIO)?;
        self.cache.modify(dirty, f);
        self.calls.note_change();
        self.log.changed.insert(block, (name, kind));
        Ok(())
    }

    /// Makes a new block of metadata; its old contents are dropped.
    pub fn make_block(&mut self, block: u32, kind: Kind, bytes: Vec<u8>) -> Result<()> {
        let name = Name::Block(block.into());
        self.cache.remove(name);
        self.cache.insert(name, Arc::new(bytes));
        self.modify(block, kind, |_| ())
    }

    /// Makes a new block with a head and zeros after it.
    pub fn make_headed(&mut self, block: u32, kind: Kind, magic: u32, owner: Ino) -> Result<()> {
        let (fsid, owner) = (self.geom.fsid.into(), (owner.0 as u32).into());
        let head = Head { magic: magic.into(), fsid, block: block.into(), owner, ..Head::default() };
        let mut bytes = head.as_bytes().to_vec();
        bytes.resize(BLOCK, 0);
        self.make_block(block, kind, bytes)
    }

    /// Notes that the superblock in core was changed.
    pub fn touch_super(&mut self) {
        self.calls.note_change();
        self.log.super_changed = true;
    }

    /// Drops a buffer whose block was freed.
    pub fn forget(&mut self, name: Name, block: u32) {
        self.log.changed.remove(&block);
        self.cache.remove(name);
    }

    /// Fails unless a pointer points to the data area.
    pub fn check_pointer(&self, ino: Ino, block: u32) -> Result<u32> {
        if self.geom.is_data(block) {
            return Ok(block);
        }
        Err(Corrupt::new("inode", "map", Location::inode(ino), block, "a block of the data area").into())
    }
}
