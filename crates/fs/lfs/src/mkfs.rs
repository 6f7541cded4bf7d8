//! Making a volume: the first checkpoints of a volume with an empty root directory, then the superblock.

use crate::format::*;
use crate::heads::{HOT, Head, LogHeads};
use crate::inode::Inode;
use crate::volume::Core;
use crate::{options, summary, superblock};
use arbor_base::cache::Name;
use arbor_base::device::{Device, Kind};
use arbor_base::layout::hash;
use arbor_base::vfs::{Devices, Error, FormatOptions, Options, Result, label_field, mode};
use arbor_kit::chunknames::{ChunkNames as _, init_dir};
use rustc_hash::FxHashSet;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Makes a volume on the whole of the device.
pub(crate) fn format(devices: Devices, options: &FormatOptions) -> Result<()> {
    let dev: Arc<dyn Device> = devices.main;
    let size = dev.geometry().size;
    let f = options::Format::parse(&options.options, size)?;
    let label = label_field(options.label.as_bytes())?;
    let first = 4u32 << (f.block_shift - f.frag_shift);
    let mut sb = SuperBlock {
        magic: SUPER_MAGIC,
        version: VERSION.into(),
        uuid: options.uuid,
        label,
        block_shift: f.block_shift.into(),
        frag_shift: f.frag_shift.into(),
        seg_shift: f.seg_shift.into(),
        first: first.into(),
        created: options.now.secs.into(),
        ..SuperBlock::default()
    };
    let geom = superblock::geometry(&sb, 0)?;
    superblock::check_size(&geom, size)?;
    let segs = superblock::segs_in(&geom, size);
    if segs < superblock::LEAST_SEGS {
        let least = geom.byte(Frag(first)) + (u64::from(superblock::LEAST_SEGS) << f.seg_shift);
        return Err(Error::refused(format!("{size} bytes are too few: at this segment size {least} are the least")));
    }
    sb.salt = salt(&*dev, &sb, &geom, segs)?.into();
    sb.incompat = superblock::incompat(&sb).into();
    let geom = superblock::geometry(&sb, 0)?;
    let head = geom.byte(Frag(geom.first)) as usize;
    dev.write_at(Kind::Super, 0, &vec![0; head])?;
    // A crash in the middle leaves no volume, not a mixed one.
    dev.flush()?;
    first_state(dev.clone(), geom, segs, options)?;
    let bytes = superblock::sealed(sb.as_bytes());
    dev.write_at(Kind::Super, geom.copy_at(), &bytes)?;
    dev.flush()?;
    dev.write_at(Kind::Super, 0, &bytes)?;
    Ok(dev.flush()?)
}

/// How many segments are searched for summaries of an older volume.
const LOOKED_AT: u32 = 64;

/// Chooses a salt that tells the volume from older ones in its place: with the same UUID and the same first changes,
/// their log would continue the new one.
fn salt(dev: &dyn Device, sb: &SuperBlock, geom: &Geom, segs: u32) -> Result<u32> {
    let old = std::iter::once(0).chain(superblock::copies()).filter_map(|at| superblock::read(dev, at).ok().flatten());
    let old = old.map(|old| old.salt.get().wrapping_add(1)).max();
    let step = segs.div_ceil(LOOKED_AT).max(1) as usize;
    let mut left = FxHashSet::default();
    for seg in (0..segs).step_by(step) {
        left.extend(summary::fsid_at(dev, geom, Seg(seg))?);
    }
    // An older volume that left summaries and no superblock may have had any salt.
    let any = || hash((sb.created.get().unsigned_abs(), 0), &sb.uuid) as u32 | 1;
    let mut salt = old.unwrap_or_else(|| if left.is_empty() { 0 } else { any() });
    while left.contains(&superblock::fsid(&sb.uuid, salt)) {
        salt = salt.wrapping_add(1);
    }
    Ok(salt)
}

/// Makes the ifile, the root directory, and both checkpoints.
fn first_state(dev: Arc<dyn Device>, geom: Geom, segs: u32, options: &FormatOptions) -> Result<()> {
    let opts = options::Mount::parse(&Options::default())?;
    let mut core = Core::new(geom, dev, opts, options.now, segs);
    core.cache.keep_all(true);
    core.log = LogHeads { group: 1, epoch: 1, ..LogHeads::default() };
    core.log.heads[HOT] = Head { seg: Seg(0), offset: 0, next_seg: Seg(1), fill: 1 };
    core.segs.clean.remove(0);
    core.segs.clean.remove(1);
    core.state.inodes = ROOT.0 as u32;
    let now = Stamp::from(options.now);
    let ifile = Dinode {
        fsid: geom.fsid.into(),
        ino: (IFILE.0 as u32).into(),
        version: 1.into(),
        mode: (mode::IFREG | 0o600).into(),
        nlink: 1.into(),
        ctime: now,
        btime: now,
        ..Dinode::default()
    };
    core.cache.insert(Name::Inode(IFILE), Arc::new(ifile.as_bytes().to_vec()));
    let mut root: Inode = core.inew(ROOT, mode::IFDIR | 0o755, options.owner, options.now)?;
    debug_assert_eq!(root.ino, ROOT);
    init_dir(&mut core, &mut root, ROOT)?;
    core.checkpoint(true)?;
    core.checkpoint(true)
}
