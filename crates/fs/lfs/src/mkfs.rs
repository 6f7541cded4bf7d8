//! Making a volume: the superblock, then the first checkpoint of a volume with an empty root directory.

use crate::format::*;
use crate::inode::Inode;
use crate::mount::{Core, inode_name};
use crate::plan::{HOT, Head, Log};
use crate::{options, superblock};
use arbor_base::cache::Name;
use arbor_base::device::{Device, Kind};
use arbor_base::kit::dirent::first_chunks;
use arbor_base::vfs::{Devices, Error, FormatOptions, Ino, Options, Result, mode};
use std::ops::Range;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Makes a volume on the whole of the device.
pub(crate) fn format(devices: Devices, options: &FormatOptions) -> Result<()> {
    let dev: Arc<dyn Device> = devices.main;
    let size = dev.geometry().size;
    let f = options::Format::parse(&options.options, size)?;
    if options.label.len() > 63 {
        return Err(Error::refused("a label has at most 63 bytes"));
    }
    let mut label = [0; 64];
    label.iter_mut().zip(options.label.bytes()).for_each(|(place, b)| *place = b);
    let first = 4u32 << (f.block_shift - f.frag_shift);
    let sb = SuperBlock {
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
    let geom = superblock::geometry(&sb)?;
    superblock::check_size(&geom, size)?;
    let segs = superblock::segs_in(&geom, size);
    if segs < superblock::LEAST_SEGS {
        let least = geom.byte(Frag(first)) + (u64::from(superblock::LEAST_SEGS) << f.seg_shift);
        return Err(Error::refused(format!("{size} bytes are too few: at this segment size {least} are the least")));
    }
    let head = geom.byte(Frag(geom.first)) as usize;
    dev.write_at(Kind::Super, 0, &vec![0; head])?;
    wipe(&*dev, &geom, 0..segs)?;
    first_state(dev.clone(), geom, segs, options)?;
    let bytes = superblock::sealed(sb.as_bytes());
    dev.write_at(Kind::Super, geom.copy_at(), &bytes)?;
    dev.flush()?;
    dev.write_at(Kind::Super, 0, &bytes)?;
    Ok(dev.flush()?)
}

/// What an older volume has left is not to be found in these segments: their starts become zeros, durably.
pub(crate) fn wipe(dev: &dyn Device, geom: &Geom, segs: Range<u32>) -> Result<()> {
    let zeros = vec![0; geom.frag_size()];
    let mut found = vec![0; geom.frag_size()];
    for seg in segs {
        let at = geom.byte(geom.seg_start(Seg(seg)));
        dev.read_at(Kind::Log, at, &mut found)?;
        if found != zeros {
            dev.write_at(Kind::Log, at, &zeros)?;
        }
    }
    Ok(dev.flush()?)
}

/// The ifile, the root directory, and both checkpoints.
fn first_state(dev: Arc<dyn Device>, geom: Geom, segs: u32, options: &FormatOptions) -> Result<()> {
    let opts = options::Mount::parse(&Options::default())?;
    let mut core = Core::new(geom, dev, opts, options.now, segs);
    core.cache.keep_all(true);
    core.log = Log { group: 1, epoch: 1, ..Log::default() };
    core.log.heads[HOT] = Head { seg: Seg(0), offset: 0, next_seg: Seg(1), fill: 1 };
    core.segs.clean.remove(&0);
    core.segs.clean.remove(&1);
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
    core.cache.insert(inode_name(IFILE), Arc::new(ifile.as_bytes().to_vec()));
    let mut root: Inode = core.inew(mode::IFDIR | 0o755, options.owner, options.now)?;
    debug_assert_eq!(root.ino, ROOT);
    core.cache.insert(Name::Page { file: ROOT.0, index: 0 }, Arc::new(Vec::new()));
    core.balloc(&mut root, 0, geom.frag_size() as u64, &mut |buf, len| *buf = first_chunks(len, ROOT, Ino(ROOT.0)))?;
    core.checkpoint(true)?;
    core.checkpoint(true)
}
