//! Inodes: reading, changing, making and freeing them; extended attributes.
//!
//! An inode has no copy of its own in core: it is decoded from its block's buffer, and stored in it.

use crate::alloc::Of;
use crate::format::*;
use crate::planted::{Flaw, planted};
use crate::validate;
use crate::volume::Core;
use arbor_base::device::Kind;
use arbor_base::field;
use arbor_base::layout::{Corrupt, get_u32};
use arbor_base::vfs::{Attr, Errno, Ino, Result, Time, mode};
use arbor_kit::blockfile::{BlockFiles as _, UsualFields as _};
use arbor_kit::chunknames::ChunkNames;
use arbor_kit::inodes::{Change, InodeStore, InodeTable};
use arbor_kit::lifetimes::{self, Orphans};
use arbor_kit::namespace::NewInode;
use arbor_kit::xattr::{self, Xattrs};
use zerocopy::IntoBytes;

/// Greatest link count.
pub(crate) const LINK_MAX: u32 = 65_000;

/// A decoded inode and where it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inode {
    pub ino: Ino,
    pub d: Dinode,
    /// Its block, and where it begins there.
    pub place: (u32, usize),
}

impl Inode {
    /// Adds to the count of its blocks, or subtracts.
    pub fn count(&mut self, by: i32) {
        self.d.blocks = self.d.blocks.get().saturating_add_signed(by).into();
    }

    /// Byte of the device where it begins.
    pub fn byte(&self) -> u64 {
        byte(self.place.0) + self.place.1 as u64
    }

    pub fn corrupt(&self, f: (&'static str, u64), found: impl std::fmt::Display, expected: &str) -> Corrupt {
        Corrupt::new("inode", f.0, self.byte() + f.1, format!("{found} (inode {})", self.ino), expected)
    }
}

impl Core {
    /// The inode, in use or not.
    pub fn islot(&mut self, ino: Ino) -> Result<Inode> {
        let place = self.geom.inode_at(ino).filter(|_| ino.0 < self.sb.inodes.end.get().into()).ok_or(Errno::ESTALE)?;
        let geom = self.geom;
        let bytes = self.block(place.0, Kind::Inode)?;
        let d = validate::inode(&geom, ino, bytes.get(place.1..place.1 + INODE).unwrap_or(&[]))?;
        Ok(Inode { ino, d, place })
    }

    /// Whether a new inode can lie there: not if the old one is damaged, or in use whatever the bitmap says.
    pub fn is_free_slot(&mut self, ino: Ino) -> Result<bool> {
        let in_use = |i: Inode| i.corrupt(field!(Dinode, mode), i.d.mode, "a free inode, as the bitmap says").into();
        let slot = self.islot(ino).and_then(|i| if i.d.in_use() { Err(in_use(i)) } else { Ok(()) });
        self.calls.health.passes(slot)
    }

    /// Loads, at a mount, the inodes that were open and unlinked at the crash.
    pub fn load_orphans(&mut self) -> Result<()> {
        let head = self.sb.orphan.get();
        lifetimes::load_some(self, head.into(), |core, ino, twice| {
            let i = core.iget(ino)?;
            if twice || i.d.nlink.get() != 0 {
                return Err(i
                    .corrupt(field!(Dinode, nlink), i.d.nlink, "0, and a place on the orphan list once")
                    .into());
            }
            Ok(i)
        })
    }

    fn free_xattr(&mut self, i: &mut Inode) -> Result<()> {
        let block = i.d.xattr.get();
        if block != 0 {
            self.free_block(i.ino, block)?;
            self.forget(arbor_base::cache::Name::Block(block.into()), block);
            i.d.xattr = 0.into();
            i.count(-1);
        }
        Ok(())
    }

    /// The owner that the head of a block names.
    pub fn owner(bytes: &[u8]) -> u64 {
        get_u32(bytes, std::mem::offset_of!(Head, owner)).unwrap_or(0).into()
    }
}

impl InodeStore for Core {
    type Inode = Inode;

    fn number(i: &Inode) -> Ino {
        i.ino
    }

    fn iget(&mut self, ino: Ino) -> Result<Inode> {
        let i = self.islot(ino)?;
        if i.d.in_use() { Ok(i) } else { Err(Errno::ESTALE.into()) }
    }

    fn iput(&mut self, i: &Inode) -> Result<()> {
        let ((block, at), crc) = (i.place, i.d.checksum(self.geom.fsid).into());
        let d = Dinode { crc, ..i.d };
        self.block(block, Kind::Inode)?;
        self.modify(block, Kind::Inode, |buf| {
            buf.get_mut(at..at + INODE).into_iter().for_each(|place| place.copy_from_slice(d.as_bytes()));
        })
    }
}

impl InodeTable for Core {
    fn attr_of(&self, i: &Inode) -> Attr {
        let (generation, blocks) = (i.d.generation.get().into(), u64::from(i.d.blocks.get()) << (BLOCK_SHIFT - 9));
        Attr { generation, blocks, blksize: BLOCK as u32, ..i.attributes() }
    }

    fn apply(&mut self, i: &mut Inode, set: &Change) {
        i.change(set);
    }

    fn link_target(&mut self, i: &Inode) -> Result<Option<Vec<u8>>> {
        if i.d.kind() != mode::IFLNK {
            return Ok(None);
        }
        let (len, page);
        let bytes = match i.d.is_fast_link() {
            true => &i.d.target[..],
            false => {
                page = self.page(i, 0)?.ok_or_else(|| i.corrupt(field!(Dinode, map), 0, "the target's block"))?;
                &page[..]
            }
        };
        len = i.d.size.get() as usize;
        let target = bytes.get(..len).filter(|t| !t.is_empty() && !t.contains(&0));
        target.map(|t| Some(t.to_vec())).ok_or_else(|| i.corrupt(field!(Dinode, target), "NUL", "a path").into())
    }

    fn xattr_list(&mut self, i: &Inode) -> Result<Xattrs> {
        let block = i.d.xattr.get();
        if block == 0 {
            return Ok(Vec::new());
        }
        self.check_pointer(i.ino, block)?;
        let bytes = self.block(block, Kind::Xattr)?;
        let len = get_u32(bytes, std::mem::offset_of!(Head, len)).unwrap_or(0) as usize;
        let list = bytes.get(HEAD..HEAD + len).and_then(xattr::parse).filter(|_| Core::owner(bytes) == i.ino.0);
        list.ok_or_else(|| i.corrupt(field!(Dinode, xattr), block, "a block with attributes of this inode").into())
    }

    fn check_xattrs(&self, list: &Xattrs) -> Result<()> {
        if xattr::encoded_len(list) <= BLOCK - HEAD { Ok(()) } else { Err(Errno::ENOSPC.into()) }
    }

    fn xattr_store(&mut self, i: &mut Inode, list: &Xattrs) -> Result<()> {
        if list.is_empty() {
            self.free_xattr(i)?;
            return self.iput(i);
        }
        if i.d.xattr.get() == 0 {
            i.d.xattr = self.alloc()?.into();
            i.count(1);
        }
        let (block, body) = (self.check_pointer(i.ino, i.d.xattr.get())?, xattr::encode(list));
        self.make_headed(block, Kind::Xattr, XATTR_MAGIC, i.ino)?;
        self.modify(block, Kind::Xattr, |buf| {
            put_u32(buf, std::mem::offset_of!(Head, len), body.len() as u32);
            buf.get_mut(HEAD..HEAD + body.len()).into_iter().for_each(|place| place.copy_from_slice(&body));
        })?;
        self.iput(i)
    }
}

impl ChunkNames for Core {
    fn inew(&mut self, _dir: Ino, m: u32, (uid, gid): (u32, u32), now: Time) -> Result<Inode> {
        let ino = Ino(self.take(Of::Inodes)?.into());
        let mut i = self.islot(ino)?;
        let (stamp, generation) = (Stamp::from(now), i.d.generation.get().wrapping_add(1).into());
        let nlink = if m & mode::IFMT == mode::IFDIR { 2 } else { 1 };
        let (mode, nlink, uid, gid, ino) = (m.into(), nlink.into(), uid.into(), gid.into(), (ino.0 as u32).into());
        let (atime, mtime, ctime, btime) = (stamp, stamp, stamp, stamp);
        i.d = Dinode { ino, generation, mode, nlink, uid, gid, atime, mtime, ctime, btime, ..Dinode::default() };
        self.iput(&i)?;
        Ok(i)
    }

    fn store_target(&mut self, i: &mut Inode, target: &[u8]) -> Result<()> {
        if target.len() > FAST_LINK {
            return arbor_kit::blockfile::store_target(self, i, target);
        }
        i.d.size = (target.len() as u64).into();
        i.d.target.iter_mut().zip(target).for_each(|(to, from)| *to = *from);
        self.iput(i)
    }

    /// A block for a directory or a long target, and one for attributes.
    fn reserve_contents(&mut self, _new: &NewInode<'_>) -> Result<()> {
        self.need(2)
    }
}

/// The list is in the inodes, and its head in the superblock.
impl Orphans for Core {
    fn is_listed(&self) -> bool {
        !planted(Flaw::NoOrphans)
    }

    fn head(&mut self, _of: Ino) -> Result<u64> {
        Ok(self.sb.orphan.get().into())
    }

    fn set_head(&mut self, _of: Ino, to: u64) -> Result<()> {
        self.sb.orphan = (to as u32).into();
        self.touch_super();
        Ok(())
    }

    fn next(i: &Inode) -> u64 {
        i.d.next_orphan.get().into()
    }

    fn set_next(&mut self, i: &mut Inode, to: u64) {
        i.d.next_orphan = (to as u32).into();
    }

    fn release(&mut self, i: &mut Inode) -> Result<bool> {
        if self.truncate_step(i, 0)? > 0 {
            return Ok(false);
        }
        self.free_xattr(i)?;
        self.hashes.remove(i.ino);
        self.iput(i)?;
        Ok(true)
    }

    fn free(&mut self, i: &mut Inode) -> Result<()> {
        i.d = Dinode { ino: i.d.ino, generation: i.d.generation, ..Dinode::default() };
        self.iput(i)?;
        self.give(Of::Inodes, i.ino.0 as u32)
    }
}
