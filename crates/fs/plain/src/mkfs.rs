//! Making a volume: superblock, the first block of each bitmap, the root directory. The rest means nothing until the
//! superblock's pools say so (PLAIN-A2), so a large volume takes no longer than a small one.

use crate::alloc::Of;
use crate::format::*;
use crate::options;
use crate::superblock;
use crate::volume::Core;
use arbor_base::device::{Device, Kind};
use arbor_base::vfs::{Devices, Error, FormatOptions, Options, Result, label_field, mode};
use arbor_kit::calls::State as _;
use arbor_kit::chunknames::{ChunkNames as _, init_dir};
use std::sync::Arc;

/// Formats the main device.
pub(crate) fn format(devices: Devices, o: &FormatOptions) -> Result<()> {
    let dev: Arc<dyn Device> = devices.main;
    let sb = layout(o, dev.geometry().size)?;
    // What was there goes first: a crash in the middle leaves no volume.
    dev.write_at(Kind::Super, 0, &[0; BLOCK])?;
    dev.flush()?;
    let geom = Geom::of(&sb);
    for half in 0..2 {
        dev.write_at(Kind::Log, byte(geom.half(half).0), &[0; BLOCK])?;
    }
    dev.flush()?;
    let mut core = Core::new(dev, (sb, geom), options::Mount::parse(&Options::default())?, o.now);
    core.stay();
    core.log.seq = 1;
    core.make_root(o)?;
    core.put_super(geom.copy(), core.sb.copy())?;
    core.write_marked(1)
}

/// Where everything goes on a device of `size` bytes.
fn layout(o: &FormatOptions, size: u64) -> Result<SuperBlock> {
    let blocks = u32::try_from(size >> BLOCK_SHIFT)
        .map_err(|_| Error::refused(format!("{size} bytes are too many: a volume has less than 16 TiB")))?;
    let f = options::Format::parse(&o.options, blocks)?;
    // The superblock and its copy, and what is not for data.
    let own = [2, f.log, f.inodes.div_ceil(BITS), f.inodes.div_ceil(INODES)].into_iter().map(u64::from).sum::<u64>();
    let rest = u64::from(blocks).saturating_sub(own) as u32;
    let space = rest - rest.div_ceil(BITS + 1);
    if space < 16 {
        return Err(Error::refused(format!("{size} bytes are too few for a volume with these options")));
    }
    let pool = |count: u32| Pool { count: count.into(), free: count.into(), ..Pool::default() };
    let sb = SuperBlock {
        magic: SUPER_MAGIC,
        version: VERSION.into(),
        uuid: o.uuid,
        label: label_field(o.label.as_bytes())?,
        blocks: blocks.into(),
        log: f.log.into(),
        created: o.now.secs.into(),
        created_nanos: o.now.nanos.into(),
        clean: 1.into(),
        inodes: pool(f.inodes),
        space: pool(space),
        ..SuperBlock::default()
    };
    superblock::decode(&arbor_kit::head::encode(&sb), 0, size).map(|_| sb)
}

impl Core {
    /// The first inodes: those that are not used, and the root directory.
    fn make_root(&mut self, o: &FormatOptions) -> Result<()> {
        for _ in 0..ROOT.0 {
            self.take(Of::Inodes)?;
        }
        let mut i = self.inew(ROOT, mode::IFDIR | 0o755, o.owner, o.now)?;
        init_dir(self, &mut i, ROOT)
    }
}
