//! Making a volume: the first checkpoints of a volume with an empty root directory, then the superblock.

use crate::decoded::Inode;
use crate::format::*;
use crate::plan::LogEnd;
use crate::volume::Core;
use crate::{areas, options, summary, superblock};
use arbor_base::device::{Device, Kind};
use arbor_base::layout::hash;
use arbor_base::vfs::{Devices, FormatOptions, Options, Result, label_field, mode};
use arbor_kit::calls::State as _;
use arbor_kit::chunknames::init_dir;
use arbor_kit::head;
use rustc_hash::FxHashSet;
use std::sync::Arc;

/// Makes a volume on the whole of the device, or of both.
pub(crate) fn format(devices: Devices, o: &FormatOptions) -> Result<()> {
    let (main, data) = areas::parted(devices);
    let mut sb = layout(o, main.geometry().size, data.as_ref().map(|data| data.geometry().size))?;
    let geom = superblock::geometry(&sb, 0)?;
    sb.salt = salt(&*main, &sb, &geom)?.into();
    let geom = superblock::geometry(&sb, 0)?;
    let dev = areas::joined(main, data, &geom)?;
    let size = dev.geometry().size;
    let geom = Geom { data_blocks: superblock::data_blocks(&geom, size), ..geom };
    // What was there goes first: a crash in the middle leaves no volume, not a mixed one.
    dev.write_at(Kind::Super, 0, &vec![0; (FIRST as usize) << geom.block_shift])?;
    dev.flush()?;
    first_state(dev.clone(), (sb, geom), o)?;
    areas::write_heads(&*dev, &geom, areas::Owner { epoch: 1, stamp: 0 }, 0, true)?;
    head::write(&*dev, geom.copy_at(), &sb)?;
    dev.flush()?;
    head::write(&*dev, 0, &sb)?;
    Ok(dev.flush()?)
}

/// Where everything goes on a device of `size` bytes, and on one for data that has `data` bytes.
fn layout(o: &FormatOptions, size: u64, data: Option<u64>) -> Result<SuperBlock> {
    let f = options::Format::parse(&o.options, size, data)?;
    let incompat = if data.is_some() { INCOMPAT_TWO_DEVICES | INCOMPAT_BORDER } else { 0 };
    let end = (u64::from(FIRST) << f.block_shift) + (u64::from(f.segs) << f.seg_shift);
    let data_at = if data.is_some() { with_room(end, f.block_shift) } else { end };
    Ok(SuperBlock {
        magic: SUPER_MAGIC,
        version: VERSION.into(),
        incompat: incompat.into(),
        uuid: o.uuid,
        label: label_field(o.label.as_bytes())?,
        block_shift: f.block_shift.into(),
        seg_shift: f.seg_shift.into(),
        group_blocks: f.group_blocks.into(),
        segs: f.segs.into(),
        data_at: data_at.into(),
        created: o.now.secs.into(),
        ..SuperBlock::default()
    })
}

/// Where addresses of data begin if the device for metadata, which ends at a byte, is to be able to grow: at most half of
/// what block numbers tell is kept for that.
fn with_room(end: u64, block_shift: u32) -> u64 {
    const LEAST: u64 = 64 << 30;
    let half = 1 << (31 + block_shift);
    end.saturating_mul(16).max(LEAST).min(half).max(end)
}

/// How many segments are searched for summaries of an older volume.
const LOOKED_AT: u32 = 64;

/// Chooses a salt that tells the volume from older ones in its place: with the same UUID and the same first changes, their
/// log would continue the new one.
fn salt(dev: &dyn Device, sb: &SuperBlock, geom: &Geom) -> Result<u32> {
    let places = std::iter::once(0).chain(superblock::copies());
    let old = places.filter_map(|at| superblock::read(dev, at).ok().flatten()).map(|found| found.0.salt.get());
    let mut left = FxHashSet::default();
    for seg in (0..geom.segs).step_by(geom.segs.div_ceil(LOOKED_AT).max(1) as usize) {
        left.extend(summary::fsid_at(dev, geom, Seg(seg))?);
    }
    // An older volume that left summaries and no superblock may have had any salt.
    let any = hash((sb.created.get().unsigned_abs(), 0), &sb.uuid) as u32 | 1;
    let mut salt = match old.max() {
        Some(salt) => salt.wrapping_add(1),
        None => {
            if left.is_empty() {
                0
            } else {
                any
            }
        }
    };
    while left.contains(&superblock::fsid(&sb.uuid, salt)) {
        salt = salt.wrapping_add(1);
    }
    Ok(salt)
}

/// Makes the ifile, the root directory, and both checkpoints.
fn first_state(dev: Arc<dyn Device>, of: (SuperBlock, Geom), o: &FormatOptions) -> Result<()> {
    let geom = of.1;
    let mut core = Core::new(dev, of, options::Mount::parse(&Options::default())?, o.now);
    core.stay();
    core.cache.keep_all(true);
    core.log = LogEnd { seg: Seg(0), offset: 0, next_seg: Seg(1), fill: 1, set: 1, epoch: 1 };
    core.segs.clean.remove(0);
    core.segs.clean.remove(1);
    core.state.inodes = ROOT.0 as u32;
    core.new_ifile(o.now);
    if geom.heads > 0 {
        core.mark_run(RunInfo { first: geom.data_first().into(), count: geom.heads.into() })?;
    }
    let new = core.ialloc()?;
    debug_assert_eq!(new.0, ROOT);
    let mut root: Inode = core.put_new(new, mode::IFDIR | 0o755, o.owner, Group(0), o.now)?;
    init_dir(&mut core, &mut root, ROOT)?;
    core.checkpoint(true)?;
    core.checkpoint(true)
}
