//! Where everything lies on a volume that is not mounted. Damage is passed over: the checker reports it.

use crate::file::Piece;
use crate::format::*;
use crate::inode::Inode;
use crate::mount;
use crate::volume::Core;
use arbor_base::device::Kind;
use arbor_base::vfs::{Devices, Error, Ino, Region, Result};
use arbor_kit::inodes::{InodeStore as _, InodeTable as _};

/// Tells where each structure and each piece of each file lies.
pub(crate) fn describe(devices: &Devices, f: &mut dyn FnMut(Region)) -> Result<()> {
    let mut core = mount::look(devices)?;
    let g = core.geom;
    for (kind, from, to, name) in [
        (Kind::Super, 0, 1, "superblock"),
        (Kind::Log, 1, g.inode_bitmap(), "log"),
        (Kind::Bitmap, g.inode_bitmap(), g.space_bitmap(), "bitmap of inodes"),
        (Kind::Bitmap, g.space_bitmap(), g.table(), "bitmap of the data area"),
        (Kind::Inode, g.table(), g.data(), "inodes"),
        (Kind::Super, g.copy(), g.blocks, "superblock copy"),
    ] {
        let (offset, len) = (byte(from), byte(to - from));
        f(Region { offset, len, kind, owner: None, file_offset: 0, name: name.into() });
    }
    core.each_inode(&mut |core, i| {
        core.pieces(i, &mut |p| {
            let (kind, name) = piece_name(i, p);
            let file_offset = if p.level == 0 { p.lbn << BLOCK_SHIFT } else { 0 };
            f(Region { offset: byte(p.block), len: BLOCK as u64, kind, owner: Some(i.ino), file_offset, name });
        })
    })
}

/// The name of a piece of a file for people, and the kind of request that it takes. Attributes have a level of their
/// own.
pub(crate) fn piece_name(i: &Inode, p: &Piece) -> (Kind, String) {
    match p.level {
        0 if i.is_dir() => (Kind::Dir, "directory".into()),
        0 => (Kind::Data, "data".into()),
        XATTR_LEVEL => (Kind::Xattr, "extended attributes".into()),
        level => (Kind::Tree, format!("indirect block, level {level}")),
    }
}

/// The level of the block of attributes in [`Core::pieces`].
pub(crate) const XATTR_LEVEL: u32 = u32::MAX;

impl Core {
    /// Calls `f` with each inode that can be used.
    pub fn each_inode(&mut self, f: &mut dyn FnMut(&mut Core, &Inode) -> Result<()>) -> Result<()> {
        for ino in ROOT.0..self.sb.inodes.end.get().into() {
            match self.iget(Ino(ino)) {
                Ok(i) => f(self, &i)?,
                Err(Error::Corrupt(_) | Error::Errno(_)) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Calls `f` with each block of an inode that can be used, its attributes last.
    pub fn pieces(&mut self, i: &Inode, f: &mut dyn FnMut(&Piece)) -> Result<()> {
        self.walk_blocks(i, &mut |core, p| {
            let good = core.geom.is_data(p.block) && (p.level == 0 || core.table(i.ino, p.block).is_ok());
            if good {
                f(p);
            }
            Ok(good)
        })?;
        let block = i.d.xattr.get();
        if self.xattr_list(i).is_ok() && block != 0 {
            f(&Piece { slot: (None, 0), lbn: 0, level: XATTR_LEVEL, block });
        }
        Ok(())
    }
}
