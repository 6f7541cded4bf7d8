//! Making a volume: superblock, the first master block, one block each of the bitmaps, the root directory. Where the bitmaps
//! have holes nothing is in use, so a large volume takes no longer than a small one.

use crate::format::*;
use crate::options;
use crate::recover;
use crate::superblock;
use crate::volume::Core;
use arbor_base::device::{Device, Kind};
use arbor_base::vfs::{Devices, Error, FormatOptions, Ino, Options, Result, label_field, mode};
use arbor_kit::calls::State as _;
use arbor_kit::chunknames::init_dir;
use std::sync::Arc;

/// Formats the main device.
pub(crate) fn format(devices: Devices, o: &FormatOptions) -> Result<()> {
    let dev: Arc<dyn Device> = devices.main;
    let sb = layout(o, dev.geometry().size)?;
    // What was there goes first: a crash in the middle leaves no volume.
    dev.write_at(Kind::Super, 0, &[0; BLOCK])?;
    dev.flush()?;
    let geom = Geom::of(&sb);
    let mut core = Core::new(dev, (sb, geom), options::Mount::parse(&Options::default())?, o.now);
    core.stay();
    core.wipe_masters()?;
    core.make_volume(o)?;
    core.write_commit()?;
    core.write_super_copy()?;
    (core.sb.clean, core.sb.master) = (UNMOUNTED.into(), core.master_at.into());
    core.write_super()
}

/// Where everything goes on a device of `size` bytes.
fn layout(o: &FormatOptions, size: u64) -> Result<SuperBlock> {
    let blocks = u32::try_from(size >> BLOCK_SHIFT)
        .map_err(|_| Error::refused(format!("{size} bytes are too many: a volume has less than 16 TiB")))?;
    if blocks < superblock::LEAST_BLOCKS {
        return Err(Error::refused(format!("{size} bytes are too few: a volume has at least 1 MiB")));
    }
    let f = options::Format::parse(&o.options, blocks)?;
    let sb = SuperBlock {
        magic: SUPER_MAGIC,
        version: VERSION.into(),
        incompat: INCOMPAT_XATTR_BLOCKS.into(),
        uuid: o.uuid,
        label: label_field(o.label.as_bytes())?,
        blocks: blocks.into(),
        stride: f.stride.into(),
        created: o.now.secs.into(),
        created_nanos: o.now.nanos.into(),
        ..SuperBlock::default()
    };
    superblock::decode(&arbor_kit::head::encode(&sb), 0, size).map(|_| sb)
}

impl Core {
    /// Removes master blocks of an older volume of the same number.
    fn wipe_masters(&mut self) -> Result<()> {
        for block in self.geom.masters() {
            if recover::master(&*self.dev, &self.geom, block)?.is_some() {
                self.dev.write_at(Kind::Super, byte(block), &[0; BLOCK])?;
            }
        }
        self.flush()
    }

    /// The first inodes: the check-points, the ifile, the bitmaps, and the root directory.
    fn make_volume(&mut self, o: &FormatOptions) -> Result<()> {
        self.master.head.last = 2.into();
        let stamp = Stamp::from(o.now);
        for ino in [IFILE, DBITMAP, IBITMAP] {
            let (mode, nlink, ino_field) = ((mode::IFREG | 0o600).into(), 1.into(), (ino.0 as u32).into());
            let (atime, mtime, ctime, btime) = (stamp, stamp, stamp, stamp);
            let d = Dinode { ino: ino_field, mode, nlink, atime, mtime, ctime, btime, ..Dinode::default() };
            *self.special_mut(ino)? = d;
        }
        self.special_mut(IFILE)?.size = (BLOCK as u64).into();
        self.master.head.inode_end = INODES.into();
        for n in [0, 1, 3, 4, TAIL] {
            self.mark_inode(n)?;
        }
        self.mark_inode(ROOT.0 as u32)?;
        let d = Dinode {
            ino: (ROOT.0 as u32).into(),
            generation: 1.into(),
            mode: (mode::IFDIR | 0o755).into(),
            nlink: 2.into(),
            uid: o.owner.0.into(),
            gid: o.owner.1.into(),
            atime: stamp,
            mtime: stamp,
            ctime: stamp,
            btime: stamp,
            ..Dinode::default()
        };
        self.store(ROOT, |place| *place = d)?;
        let mut root = self.iget_new(ROOT)?;
        init_dir(self, &mut root, ROOT)
    }

    /// A directory that has no block yet does not stand up to the checks of an inode.
    fn iget_new(&mut self, ino: Ino) -> Result<crate::decoded::Inode> {
        let d = *self.special_mut(ino)?;
        Ok(crate::decoded::Inode { ino, d })
    }

    fn special_mut(&mut self, ino: Ino) -> Result<&mut Dinode> {
        self.master.inode_mut(ino).ok_or(Error::Errno(arbor_base::vfs::Errno::EIO))
    }
}
