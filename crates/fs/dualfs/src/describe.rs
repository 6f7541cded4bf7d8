//! Where everything lies on a volume that is not mounted. Damage is passed over: the checker reports it.

use crate::decoded::Inode;
use crate::format::*;
use crate::volume::Core;
use crate::{mount, summary};
use arbor_base::cache::FileBlock;
use arbor_base::device::Kind;
use arbor_base::vfs::{Devices, Error, Ino, Region, Result};
use arbor_kit::blockmap::BlockMap as _;
use arbor_kit::inodes::InodeTable as _;

/// Tells where each structure and each piece of each file lies.
pub(crate) fn describe(devices: &Devices, f: &mut dyn FnMut(Region)) -> Result<()> {
    let mut core = mount::look(devices)?;
    let (geom, block) = (core.geom, core.geom.block() as u64);
    // Two devices lie side by side in what is told.
    let offset = |at: u64| if at < geom.data_at { at } else { at - geom.gap() };
    let mut tell = |at, len, kind, owner, file_offset, name: String| {
        f(Region { offset: offset(at), len, kind, owner, file_offset, name });
    };
    tell(0, block, Kind::Super, None, 0, "superblock".into());
    for (n, at) in (0..).zip(geom.checkpoints()) {
        tell(at, block, Kind::Super, None, 0, format!("checkpoint {n}"));
    }
    tell(geom.copy_at(), block, Kind::Super, None, 0, "superblock copy".into());
    for at in geom.heads_at() {
        tell(at, block, Kind::Super, None, 0, "head of the data device".into());
    }
    core.each_summary(&mut |seg, at, parsed| {
        let at = geom.meta_byte(MetaBlock(geom.seg_start(seg).0 + at));
        let len = u64::from(parsed.head.own.get()) << geom.block_shift;
        tell(at, len, Kind::Log, None, 0, format!("segment {} summary", seg.0));
    });
    core.each_inode(&mut |core, i, at| {
        let owner = (i.ino != IFILE).then_some(i.ino);
        let name = if i.ino == IFILE { "inode of the ifile".into() } else { format!("inode {}", i.ino) };
        tell(at, INODE as u64, Kind::Inode, owner, 0, name);
        core.pieces(i, &mut |part, at| {
            let file_offset = if let FileBlock::Data(lbn) = part { lbn << geom.block_shift } else { 0 };
            tell(at, block, Core::kind_of(i, part), owner, file_offset, piece_name(&geom, i, part));
        })
    })
}

/// The name of a piece of a file for people.
pub(crate) fn piece_name(geom: &Geom, i: &Inode, part: FileBlock) -> String {
    let table = |lbn: u64| match lbn << geom.block_shift {
        at if at < GROUPS_AT => "segment usage",
        at if at < BITMAPS_AT => "descriptors of groups",
        at if at < MAP_AT => "bitmap of data blocks",
        _ => "inode map",
    };
    match part {
        FileBlock::Xattr(_) => "extended attributes".into(),
        FileBlock::Map { level, .. } => format!("indirect block, level {level}"),
        FileBlock::Data(lbn) if i.ino == IFILE => table(lbn).into(),
        FileBlock::Data(_) if i.is_dir() => "directory".into(),
        FileBlock::Data(_) if i.is_symlink() => "target".into(),
        FileBlock::Data(_) => "data".into(),
    }
}

/// Called with an inode and the byte where it lies.
type EachInode<'a> = &'a mut dyn FnMut(&mut Core, &Inode, u64) -> Result<()>;

impl Core {
    /// Calls `f` with the summaries of all segments that are in use, and the block in the segment where each begins. One that cannot
    /// be read ends its segment, as a damaged one does.
    pub fn each_summary(&mut self, f: &mut dyn FnMut(Seg, u32, &summary::Parsed)) {
        let segs: Vec<u32> = self.segs.dirty().map(|(seg, _)| seg).collect();
        for seg in segs.into_iter().map(Seg) {
            let (mut at, mut fill) = (0, None);
            while let Ok(Some(p)) = summary::read(&*self.dev, &self.geom, seg, at) {
                if *fill.get_or_insert(p.head.fill.get()) != p.head.fill.get() {
                    break;
                }
                f(seg, at, &p);
                at += p.head.len.get();
            }
        }
    }

    /// The numbers of the inodes that the inode map leads to, but for those in blocks of it that cannot be read.
    pub fn numbers(&mut self) -> Result<Vec<Ino>> {
        let mut all = Vec::new();
        self.each_map_entry(&mut |ino, entry| all.extend((entry.block.get() != 0).then_some(ino)))?;
        Ok(all)
    }

    /// Calls `f` with the ifile's inode and each other that can be used, as they are on the device.
    pub fn each_inode(&mut self, f: EachInode<'_>) -> Result<()> {
        let (at, d) = self.read_inode(IFILE, MetaBlock(self.checkpoint.ifile.get()))?;
        f(self, &Inode { ino: IFILE, d }, at)?;
        for ino in self.numbers()? {
            let block = MetaBlock(self.map_entry(ino)?.block.get());
            let found = self.inode(ino).and_then(|i| Ok((i, self.read_inode(ino, block)?.0)));
            match found {
                Ok((i, at)) => f(self, &i, at)?,
                Err(Error::Corrupt(_) | Error::Errno(_)) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Calls `f` with each block of an inode that can be used and the byte where it lies, its attributes last.
    pub fn pieces(&mut self, i: &Inode, f: &mut dyn FnMut(FileBlock, u64)) -> Result<()> {
        if i.d.has_blocks() {
            for part in roots() {
                self.pieces_below(i, part, f)?;
            }
        }
        if self.xattr_list(i).is_ok() {
            for part in (0..self.xattr_blocks(i)?).map(FileBlock::Xattr) {
                let p = self.pointer(i, part)?;
                f(part, self.place_of(i, part, p)?);
            }
        }
        Ok(())
    }

    fn pieces_below(&mut self, i: &Inode, part: FileBlock, f: &mut dyn FnMut(FileBlock, u64)) -> Result<()> {
        let p = self.pointer(i, part)?;
        if !p.is_placed() {
            return Ok(());
        }
        let Ok(at) = self.place_of(i, part, p) else { return Ok(()) };
        let FileBlock::Map { level, n } = part else {
            f(part, at);
            return Ok(());
        };
        let table = match self.part(i, part) {
            Err(Error::Corrupt(_)) => return Ok(()),
            table => table?,
        };
        f(part, at);
        let shape = self.shape();
        let used = |slot: &u64| table.as_ref().is_some_and(|t| Core::entry(t, *slot as usize).is_placed());
        let children: Vec<FileBlock> = (0..shape.fanout).filter(used).map(|slot| shape.child(level, n, slot)).collect();
        children.into_iter().try_for_each(|child| self.pieces_below(i, child, f))
    }
}

/// The blocks to which an inode leads, but for its attributes.
pub(crate) fn roots() -> impl Iterator<Item = FileBlock> {
    let maps = (1..=NIADDR as u8).map(|level| FileBlock::Map { level, n: 0 });
    (0..NDADDR as u64).map(FileBlock::Data).chain(maps)
}
