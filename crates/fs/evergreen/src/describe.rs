//! Where everything lies on a volume that is not mounted. Damage is passed over: the checker reports it.

use crate::decoded::Inode;
use crate::file::roots;
use crate::format::*;
use crate::mount;
use crate::volume::{Core, SHAPE};
use arbor_base::cache::FileBlock;
use arbor_base::device::Kind;
use arbor_base::vfs::{Devices, Errno, Error, Ino, Region, Result};
use arbor_kit::blockmap::BlockMap;
use arbor_kit::inodes::{InodeStore as _, InodeTable as _};

/// Tells where each structure and each piece of each file lies.
pub(crate) fn describe(devices: &Devices, f: &mut dyn FnMut(Region)) -> Result<()> {
    let mut core = mount::look(devices)?;
    let g = core.geom;
    let block = BLOCK as u64;
    let mut tell = |offset, kind, owner, file_offset, name: String| {
        f(Region { offset, len: block, kind, owner, file_offset, name })
    };
    tell(0, Kind::Super, None, 0, "superblock".into());
    tell(byte(g.copy()), Kind::Super, None, 0, "superblock copy".into());
    for reserved in g.masters() {
        let name = if reserved == core.master_at { "master block" } else { "reserved for master blocks" };
        tell(byte(reserved), Kind::Super, None, 0, name.into());
    }
    let mut each = |core: &mut Core, i: &Inode| {
        core.pieces(i, &mut |part, block| {
            let file_offset = if let FileBlock::Data(lbn) = part { lbn << BLOCK_SHIFT } else { 0 };
            tell(byte(block), Core::kind(i, part), Some(i.ino), file_offset, piece_name(i, part));
        })
    };
    for ino in [IFILE, DBITMAP, IBITMAP] {
        let i = core.special(ino);
        each(&mut core, &i)?;
    }
    core.each_inode(&mut each)
}

/// The name of a piece of a file for people.
pub(crate) fn piece_name(i: &Inode, part: FileBlock) -> String {
    match part {
        FileBlock::Xattr(_) => "extended attributes".into(),
        FileBlock::Map { level, .. } => format!("indirect block, level {level}"),
        FileBlock::Data(_) if i.ino == IFILE => "inodes".into(),
        FileBlock::Data(_) if i.ino == DBITMAP => "bitmap of blocks".into(),
        FileBlock::Data(_) if i.ino == IBITMAP => "bitmap of inodes".into(),
        FileBlock::Data(_) if i.is_dir() => "directory".into(),
        FileBlock::Data(_) => "data".into(),
    }
}

impl Core {
    /// Calls `f` with each inode that can be used, but for those of the ifile and the bitmaps.
    pub fn each_inode(&mut self, f: &mut dyn FnMut(&mut Core, &Inode) -> Result<()>) -> Result<()> {
        for ino in self.numbers()? {
            match self.iget(ino) {
                Ok(i) => f(self, &i)?,
                Err(Error::Corrupt(_) | Error::Errno(_)) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// The blocks of the ifile that are there, ascending; the first one is the master block.
    pub fn inode_blocks(&mut self) -> Result<Vec<u64>> {
        let (ifile, mut lbns) = (self.special(IFILE), vec![0]);
        self.pieces(&ifile, &mut |part, _| {
            if let FileBlock::Data(lbn) = part {
                lbns.push(lbn);
            }
        })?;
        Ok(lbns)
    }

    /// The numbers of the inodes of those blocks of the ifile that are there.
    pub fn numbers(&mut self) -> Result<Vec<Ino>> {
        let (lbns, end) = (self.inode_blocks()?, self.master.head.inode_end.get());
        let each = u64::from(INODES);
        let all = lbns.into_iter().flat_map(|lbn| lbn * each..(lbn + 1) * each).map(Ino);
        Ok(all.filter(|ino| *ino >= ROOT && ino.0 < end.into()).collect())
    }

    /// Calls `f` with each block of an inode that can be used, its attributes last.
    pub fn pieces(&mut self, i: &Inode, f: &mut dyn FnMut(FileBlock, u32)) -> Result<()> {
        for part in roots().collect::<Vec<_>>().into_iter().rev() {
            if i.ino != IFILE || part != FileBlock::Data(0) {
                let block = self.pointer(i, part)?;
                self.pieces_below(i, (part, block), f)?;
            }
        }
        if self.xattr_list(i).is_ok() {
            for part in (0..self.xattr_blocks(i)?).map(FileBlock::Xattr) {
                f(part, self.pointer(i, part)?);
            }
        }
        Ok(())
    }

    fn pieces_below(
        &mut self,
        i: &Inode,
        (part, block): (FileBlock, u32),
        f: &mut dyn FnMut(FileBlock, u32),
    ) -> Result<()> {
        if !self.geom.is_data(block) {
            return Ok(());
        }
        let FileBlock::Map { level, n } = part else {
            f(part, block);
            return Ok(());
        };
        let table = match self.part(i, part) {
            Err(Error::Corrupt(_)) => return Ok(()),
            table => table?.ok_or(Errno::EIO)?,
        };
        f(part, block);
        (0..POINTERS).try_for_each(|slot| {
            let block = Core::entry(&table, slot as usize);
            self.pieces_below(i, (SHAPE.child(level, n, slot), block), f)
        })
    }
}
