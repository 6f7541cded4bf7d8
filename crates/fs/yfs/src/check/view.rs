//! Reads of an unmounted volume: the device, with a replayed log laid over it in memory.
//!
//! The checker, `describe` and `dump` read through here. A view in memory refuses writes, so that a check without
//! repair cannot change the device by mistake.

use crate::format::*;
use crate::recover::{self, Replay};
use crate::superblock::{self, geometry};
use arbor_base::device::{Device, Geometry, Kind, Op, Request, Ticket, zeroed};
use arbor_base::layout::Corrupt;
use arbor_base::vfs::{Devices, Error, Ino, Result};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use zerocopy::FromBytes;

const SECTOR_BYTES: usize = SECTOR as usize;

/// A device with sectors laid over it.
pub(crate) struct View<'a> {
    dev: &'a dyn Device,
    memory: AtomicBool,
    over: RwLock<BTreeMap<u64, Vec<u8>>>,
}

impl<'a> View<'a> {
    /// A view of `dev`; with `memory` it writes nothing.
    pub fn new(dev: &'a dyn Device, memory: bool) -> View<'a> {
        View { dev, memory: memory.into(), over: RwLock::default() }
    }

    /// Whether writes are refused.
    pub fn in_memory(&self) -> bool {
        self.memory.load(Relaxed)
    }

    /// Refuses writes from now on.
    pub fn keep_in_memory(&self) {
        self.memory.store(true, Relaxed);
    }

    /// Lays `bytes` over the device at a byte address.
    pub fn lay(&self, at: u64, bytes: &[u8]) {
        let mut over = self.over.write();
        for (i, sector) in bytes.chunks_exact(SECTOR_BYTES).enumerate() {
            over.insert(at / SECTOR + i as u64, sector.to_vec());
        }
    }

    fn patch(&self, at: u64, bytes: &mut [u8]) {
        let over = self.over.read();
        let first = at / SECTOR;
        let last = first.saturating_add((bytes.len() / SECTOR_BYTES) as u64);
        for (sector, new) in over.range(first..last) {
            let lo = ((sector - first) as usize) * SECTOR_BYTES;
            if let Some(place) = bytes.get_mut(lo..lo + SECTOR_BYTES) {
                place.copy_from_slice(new);
            }
        }
    }
}

impl Device for View<'_> {
    fn geometry(&self) -> Geometry {
        self.dev.geometry()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        if !self.in_memory() {
            return self.dev.submit(batch);
        }
        if batch.iter().any(|r| !matches!(r.op, Op::Read(_))) {
            return Ticket::done(batch.iter().map(|_| Err(io::ErrorKind::ReadOnlyFilesystem.into())).collect());
        }
        let places: Vec<u64> = batch.iter().map(|r| r.offset).collect();
        let mut done = self.dev.submit(batch).wait();
        for (at, read) in places.into_iter().zip(&mut done) {
            if let Ok(bytes) = read {
                self.patch(at, bytes);
            }
        }
        Ticket::done(done)
    }

    fn flush(&self) -> io::Result<()> {
        if self.in_memory() { Ok(()) } else { self.dev.flush() }
    }

    fn set_size(&self, _size: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// An unmounted volume, for reading.
pub(crate) struct Reader<'a> {
    pub view: View<'a>,
    pub sb: SuperBlock,
    pub geom: Geom,
    /// The log has damaged records. It stays until all is mended, so that a mount refuses what is half mended.
    pub log_stays: bool,
}

/// A decoded inode with all of its bytes.
#[derive(Clone)]
pub(crate) struct RawInode {
    pub ino: u64,
    pub d: Dinode,
    pub bytes: Vec<u8>,
}

impl RawInode {
    pub fn decode(ino: u64, bytes: &[u8]) -> Option<RawInode> {
        let (d, _) = Dinode::read_from_prefix(bytes).ok()?;
        Some(RawInode { ino, d, bytes: bytes.to_vec() })
    }

    /// Bytes of the inode after the fixed part and before inline attributes.
    pub fn area(&self) -> &[u8] {
        let end = self.bytes.len().saturating_sub(usize::from(self.d.xattr_inline.get()));
        self.bytes.get(DINODE..end).unwrap_or(&[])
    }

    /// Inline attributes.
    pub fn inline_xattrs(&self) -> &[u8] {
        let start = self.bytes.len().saturating_sub(usize::from(self.d.xattr_inline.get()));
        self.bytes.get(start.max(DINODE)..).unwrap_or(&[])
    }

    pub fn in_use(&self) -> bool {
        self.d.format != Format::Free as u8
    }

    pub fn kind(&self) -> u8 {
        (self.d.mode.get() >> 12 & 0xf) as u8
    }
}

/// Whether the devices are those that the superblock asks for; the log's device.
pub(crate) fn log_device<'a>(devices: &'a Devices, sb: &SuperBlock) -> Result<Option<&'a dyn Device>> {
    let log = devices.extra.get("log").map(|d| &**d);
    crate::superblock::check_log(sb, log.is_some())?;
    Ok(log)
}

/// Opens a volume for reading; the log of one that was not unmounted is replayed in memory.
pub(crate) fn open(devices: &Devices) -> Result<Reader<'_>> {
    let view = View::new(&*devices.main, true);
    let Some(sb) = superblock::read(&view, 0)? else {
        return Err(Error::refused("no yFS superblock"));
    };
    arbor_kit::head::refuse_unknown(&sb, KNOWN, false)?;
    let size = view.geometry().size;
    let geom = geometry(&sb, 0, size)?;
    if sb.clean.get() != 0 {
        return Ok(Reader { view, sb, geom, log_stays: false });
    }
    let log = log_device(devices, &sb)?;
    let replay = recover::replay(&view, log.unwrap_or(&view), &sb, &geom)?;
    lay_replay(&view, &geom, &replay);
    let sb = superblock::read(&view, 0)?.unwrap_or(sb);
    let geom = geometry(&sb, 0, size)?;
    Ok(Reader { view, sb, geom, log_stays: false })
}

/// Lays the buffers of a replay over the view.
pub(crate) fn lay_replay(view: &View<'_>, geom: &Geom, replay: &Replay) {
    for (at, bytes) in replay.sealed(geom) {
        view.lay(at, &bytes);
    }
}

/// Kind of request for a type of block.
pub(crate) fn request_kind(kind: BlockType) -> Kind {
    match kind {
        BlockType::Dir => Kind::Dir,
        BlockType::Bitmap => Kind::Bitmap,
        BlockType::Group | BlockType::Inodes => Kind::Group,
        BlockType::Xattr => Kind::Xattr,
        _ => Kind::Tree,
    }
}

impl Reader<'_> {
    /// AGs in use.
    pub fn ags(&self) -> u32 {
        self.sb.ag_used.get().min(self.geom.ag_count)
    }

    /// Whether the run lies in one AG in use, after its own structures.
    pub fn valid_run(&self, start: Frag, len: u32) -> bool {
        self.geom.valid_run(start, len) && self.geom.ag_of(start) < self.ags()
    }

    /// Bytes of the device.
    pub fn read(&self, kind: Kind, at: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = zeroed(len);
        self.view.read_at(kind, at, &mut bytes)?;
        Ok(bytes)
    }

    /// Checks a block as read from `addr`, its owner included.
    pub fn check(&self, kind: BlockType, owner: u64, addr: Daddr, bytes: &[u8]) -> std::result::Result<(), Corrupt> {
        check_block(&self.geom, kind, addr, bytes)?;
        let found = BlockHeader::ref_from_prefix(bytes).map_or(0, |(h, _)| h.owner.get());
        if found != owner {
            return Err(Corrupt::new(kind.name(), "owner", addr.byte(), found, owner));
        }
        Ok(())
    }

    /// A block of one of the AG's own structures.
    pub fn ag_block(&self, kind: BlockType, ag: u32, addr: Daddr) -> Result<std::result::Result<Vec<u8>, Corrupt>> {
        let bytes = self.read(request_kind(kind), addr.byte(), self.geom.block_size())?;
        Ok(self.check(kind, ag.into(), addr, &bytes).map(|()| bytes))
    }

    /// A buffer of `frags` fragments that some inode owns.
    pub fn owned(
        &self,
        kind: BlockType,
        owner: u64,
        start: Frag,
        frags: u32,
    ) -> Result<std::result::Result<Vec<u8>, Corrupt>> {
        let addr = self.geom.daddr(start);
        let len = u64::from(frags).saturating_mul(self.geom.frag_size());
        if !self.valid_run(start, frags) || len > recover::MAX_BUFFER as u64 {
            return Ok(Err(self.geom.leads_out(kind, owner, start)));
        }
        let bytes = self.read(request_kind(kind), addr.byte(), len as usize)?;
        Ok(self.check(kind, owner, addr, &bytes).map(|()| bytes))
    }

    /// Blocks of block size at `starts`, which the caller knows to lie in the volume.
    pub fn blocks(&self, kind: BlockType, starts: &[Frag]) -> Result<Vec<Vec<u8>>> {
        let len = self.geom.block_size();
        let batch = starts.iter().map(|f| Request::read(request_kind(kind), self.geom.daddr(*f).byte(), len));
        let done = self.view.submit(batch.collect()).wait();
        done.into_iter().map(|r| r.map_err(Error::Io)).collect()
    }

    /// The bytes of an inode, unchecked; `None` if none can be there.
    pub fn inode_bytes(&self, ino: u64) -> Result<Option<Vec<u8>>> {
        if self.geom.inode_at(Ino(ino)).is_none() {
            return Ok(None);
        }
        let at = ino.saturating_mul(SECTOR);
        Ok(Some(self.read(Kind::Inode, at, self.geom.inode_size())?))
    }

    /// An inode in use whose checks pass.
    pub fn inode(&self, ino: u64) -> Result<Option<RawInode>> {
        let Some(bytes) = self.inode_bytes(ino)? else { return Ok(None) };
        let good = check_inode(ino, &bytes).is_ok();
        Ok(RawInode::decode(ino, &bytes).filter(|i| good && i.in_use()))
    }

    /// The internal log's run of fragments.
    pub fn log_run(&self) -> Option<(Frag, u32)> {
        if self.sb.incompat.get() & INCOMPAT_EXTERNAL_LOG != 0 {
            return None;
        }
        let sectors = self.geom.frag_sectors();
        let start = self.geom.frag_of(Daddr(self.sb.log_start.get()));
        let end = self.sb.log_start.get().saturating_add(self.sb.log_sectors.get()).div_ceil(sectors);
        Some((start, u32::try_from(end.saturating_sub(start.0)).unwrap_or(u32::MAX)))
    }
}
