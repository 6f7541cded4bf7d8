//! Making a volume: superblock, head of the log, the first bitmap, a tree of one node with the root directory. The rest
//! means nothing until bitmaps are made for it, so a large volume takes no longer than a small one.

use crate::format::*;
use crate::node::Content;
use crate::options;
use crate::recover;
use crate::superblock;
use crate::volume::Core;
use arbor_base::cache::Name;
use arbor_base::device::{Device, Kind};
use arbor_base::vfs::{Devices, Error, FormatOptions, Options, Result, label_field, mode};
use arbor_kit::calls::State as _;
use std::sync::Arc;

/// Formats the main device.
pub(crate) fn format(devices: Devices, o: &FormatOptions) -> Result<()> {
    let dev: Arc<dyn Device> = devices.main;
    let sb = layout(o, dev.geometry().size)?;
    let geom = Geom::of(&sb);
    // Records and nodes of an older volume with the same number have lower numbers.
    let first = recover::heads(&*dev, &geom).map_or(1, |heads| heads.seq + u64::from(geom.log));
    let sb = SuperBlock { generation: first.into(), ..sb };
    // What was there goes first: a crash in the middle leaves no volume.
    dev.write_at(Kind::Super, 0, &[0; SECTOR])?;
    dev.flush()?;
    let mut core = Core::new(dev, (sb, geom), options::Mount::parse(&Options::default())?, o.now);
    core.stay();
    core.make_root(o)?;
    core.write_new()
}

/// Where everything goes on a device of `size` bytes.
fn layout(o: &FormatOptions, size: u64) -> Result<SuperBlock> {
    let f = options::Format::parse(&o.options, size)?;
    let blocks = u32::try_from(size / f.node_size as u64).map_err(|_| {
        let most = ((u64::from(u32::MAX) + 1) * f.node_size as u64) >> 40;
        Error::refused(format!("{size} bytes are too many: with this size of nodes a volume has at most {most} TiB"))
    })?;
    if u64::from(blocks) < u64::from(f.log) + 32 {
        return Err(Error::refused(format!("{size} bytes are too few for a volume with these options")));
    }
    let sb = SuperBlock {
        magic: SUPER_MAGIC,
        version: VERSION.into(),
        incompat: INCOMPAT_DENSE.into(),
        uuid: o.uuid,
        label: label_field(o.label.as_bytes())?,
        node_size: (f.node_size as u32).into(),
        blocks: blocks.into(),
        log: f.log.into(),
        created: o.now.secs.into(),
        created_nanos: o.now.nanos.into(),
        clean: UNMOUNTED.into(),
        ..SuperBlock::default()
    };
    let geom = Geom::of(&sb);
    let sb = SuperBlock { free: (blocks - geom.own_blocks()).into(), ..sb };
    superblock::decode(&arbor_kit::head::encode(&sb), 0, size).map(|_| sb)
}

impl Core {
    /// Makes a tree with the root directory.
    fn make_root(&mut self, o: &FormatOptions) -> Result<()> {
        self.ids = vec![(0, ROOT_OBJECT + 1)];
        self.log.seq = self.sb.generation.get();
        self.make_bitmap()?;
        let block = self.alloc(Some(self.geom.bitmap(0)), crate::space::For::Tree)?;
        (self.sb.root, self.sb.height) = (block.into(), 1.into());
        let now = Stamp::from(o.now);
        let d = StatData {
            mode: (mode::IFDIR | 0o755).into(),
            nlink: 2.into(),
            uid: o.owner.0.into(),
            gid: o.owner.1.into(),
            above: ROOT.0.into(),
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            ..StatData::default()
        };
        self.put_node(block, 1, Content::Leaf(vec![self.stat_item(ROOT, &d)]));
        Ok(())
    }

    /// Writes a new volume; its superblock last.
    fn write_new(&mut self) -> Result<()> {
        for block in std::mem::take(&mut self.log.changed).into_keys() {
            let mut bytes = self.cache.peek(Name::Block(block.into())).map(|b| b.to_vec()).unwrap_or_default();
            seal(&mut bytes);
            self.dev.write_at(Kind::Other, self.geom.byte(block), &bytes)?;
        }
        for slot in 0..2 {
            let head = recover::log_head(&self.geom, self.log.seq);
            self.dev.write_at(Kind::Log, recover::head_at(&self.geom, slot), &head)?;
        }
        let copy = arbor_kit::head::encode(&self.sb.copy());
        self.dev.write_at(Kind::Super, self.geom.byte(self.geom.copy()), &copy)?;
        self.dev.flush()?;
        let first = superblock::first_block(&self.geom, &self.sb, &self.ids);
        // Its last sector first: what the superblock begins with is there only with all that belongs to it.
        let (head, map) = first.split_at_checked(SECTOR).ok_or(arbor_base::vfs::Errno::EIO)?;
        self.dev.write_at(Kind::Super, SECTOR as u64, map)?;
        self.dev.flush()?;
        self.dev.write_at(Kind::Super, 0, head)?;
        Ok(self.dev.flush()?)
    }
}
