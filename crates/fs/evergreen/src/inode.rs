//! Inodes: reading, changing, making and freeing them; extended attributes.
//!
//! An inode has no copy of its own in core: it is decoded from the ifile, and stored there. A decoded one may be older than
//! the pointers of its file, which change whenever a block moves: those in the ifile count, and only
//! [`set_pointer`](Core::set_pointer) changes them.

use crate::decoded::Inode;
use crate::format::*;
use crate::planted::{Flaw, planted};
use crate::validate;
use crate::volume::Core;
use crate::xattrs;
use arbor_base::cache::FileBlock;
use arbor_base::field;
use arbor_base::layout::{Corrupt, Location, put};
use arbor_base::vfs::{Attr, Errno, Error, Ino, Result, Time, mode};
use arbor_kit::blockfile::{BlockFiles as _, UsualFields as _};
use arbor_kit::chunknames::ChunkNames;
use arbor_kit::inodes::{Change, InodeStore, InodeTable};
use arbor_kit::lifetimes::{self, Orphans};
use arbor_kit::namespace::NewInode;
use arbor_kit::xattr::{Xattrs, encoded_len};
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// Greatest link count.
pub(crate) const LINK_MAX: u32 = 65_000;

/// The block of the ifile that has an inode, and where it begins there.
fn place(ino: Ino) -> (u64, usize) {
    (ino.0 / u64::from(INODES), (ino.0 % u64::from(INODES)) as usize * INODE)
}

impl Core {
    /// The inode, in use or not.
    pub fn islot(&mut self, ino: Ino) -> Result<Inode> {
        if ino < ROOT || ino.0 >= self.master.head.inode_end.get().into() {
            return Err(Errno::ESTALE.into());
        }
        if ino.0 < INODES.into() {
            let d = *self
                .master
                .inode(ino)
                .filter(|_| ino.0 != u64::from(TAIL) && !crate::volume::is_special(ino))
                .ok_or(Errno::ESTALE)?;
            return validate::inode(&self.geom, ino, d).map(|d| Inode { ino, d }).map_err(Into::into);
        }
        let (lbn, at) = place(ino);
        let bytes = self.inodes(lbn)?;
        let d = Dinode::read_from_bytes(bytes.get(at..at + INODE).unwrap_or(&[])).map_err(|_| Errno::EIO)?;
        validate::inode(&self.geom, ino, d).map(|d| Inode { ino, d }).map_err(Into::into)
    }

    /// A block of the ifile after the master block.
    fn inodes(&mut self, lbn: u64) -> Result<Arc<Vec<u8>>> {
        let ifile = self.special(IFILE);
        let hole = || Corrupt::new("ifile", "map", Location::file(IFILE, lbn), "a hole", "a block of inodes");
        self.part(&ifile, FileBlock::Data(lbn))?.ok_or_else(|| hole().into())
    }

    /// Byte of the device where an inode begins.
    pub fn inode_byte(&mut self, ino: Ino) -> Result<u64> {
        let (lbn, at) = place(ino);
        let ifile = self.special(IFILE);
        let block = if lbn == 0 { self.master_at } else { self.find_block(&ifile, lbn)? };
        Ok(byte(block) + at as u64)
    }

    /// Changes an inode where it is stored.
    pub fn store(&mut self, ino: Ino, f: impl FnOnce(&mut Dinode)) -> Result<()> {
        let fsid = self.geom.fsid;
        let mut size = None;
        let change = |d: &mut Dinode| {
            let old = d.size;
            f(d);
            d.crc = d.checksum(fsid).into();
            size = Some(old.get()).filter(|_| old != d.size);
        };
        if ino.0 < INODES.into() {
            change(self.master.inode_mut(ino).ok_or(Errno::EIO)?);
            self.touch_master();
        } else {
            let (lbn, at) = place(ino);
            self.inodes(lbn)?;
            let mut ifile = self.special(IFILE);
            self.change(&mut ifile, FileBlock::Data(lbn), |bytes| {
                let found = bytes.get(at..at + INODE).and_then(|b| Dinode::read_from_bytes(b).ok());
                if let Some(mut d) = found {
                    change(&mut d);
                    put(bytes, at, d.as_bytes());
                }
            })?;
        }
        if let Some(old) = size {
            self.changes.sizes.entry(ino).or_insert(old);
        }
        Ok(())
    }

    /// An inode of the checker: of the ifile and the bitmaps, too.
    pub fn any_inode(&mut self, ino: Ino) -> Result<Inode> {
        if crate::volume::is_special(ino) { Ok(self.special(ino)) } else { self.islot(ino) }
    }

    /// Makes an inode that is damaged one that was never used.
    pub fn clear_slot(&mut self, ino: Ino) -> Result<()> {
        self.store(ino, |d| *d = Dinode::default())?;
        self.store_zero(ino)
    }

    /// Makes the place of an inode hold zeros.
    pub fn store_zero(&mut self, ino: Ino) -> Result<()> {
        if ino.0 < INODES.into() {
            *self.master.inode_mut(ino).ok_or(Errno::EIO)? = Dinode::default();
            return Ok(());
        }
        let (lbn, at) = place(ino);
        self.inodes(lbn)?;
        let mut ifile = self.special(IFILE);
        self.change(&mut ifile, FileBlock::Data(lbn), |bytes| {
            bytes.iter_mut().skip(at).take(INODE).for_each(|b| *b = 0);
        })
    }

    /// Whether a new inode can lie there: not if the old one is damaged, or in use whatever the bitmap says. The checker should look
    /// then.
    pub fn is_free_slot(&mut self, ino: Ino) -> Result<bool> {
        let in_use = |i: Inode| i.corrupt(field!(Dinode, mode), i.d.mode, "a free inode, as the bitmap says").into();
        let slot = self.islot(ino).and_then(|i| if i.d.in_use() { Err(in_use(i)) } else { Ok(()) });
        self.calls.health.passes(slot)
    }

    /// Loads, at a mount, the inodes that were open and unlinked at the crash.
    pub fn load_orphans(&mut self) -> Result<()> {
        let head = self.master.head.orphan.get();
        lifetimes::load_some(self, head.into(), |core, ino, twice| {
            let i = core.iget(ino).map_err(|e| match e {
                Error::Errno(Errno::ESTALE) => {
                    let expected = "the type of an inode without a name";
                    Corrupt::new("inode", field!(Dinode, mode).0, Location::inode(ino), 0, expected).into()
                }
                e => e,
            })?;
            if twice || i.d.nlink.get() != 0 {
                let expected = "0, and a place on the orphan list once";
                return Err(i.corrupt(field!(Dinode, nlink), i.d.nlink, expected).into());
            }
            Ok(i)
        })
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
        let new = i.d;
        self.store(i.ino, |d| *d = Dinode { map: d.map, xattr: d.xattr, ..new })
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
        let len = i.d.size.get() as usize;
        let bytes = match i.d.is_fast_link() {
            true => i.d.target.to_vec(),
            false => self.page(i, 0)?.ok_or_else(|| i.corrupt(field!(Dinode, map), 0, "the target's block"))?.to_vec(),
        };
        let target = bytes.get(..len).filter(|t| !t.is_empty() && !t.contains(&0));
        target.map(|t| Some(t.to_vec())).ok_or_else(|| i.corrupt(field!(Dinode, target), "NUL", "a path").into())
    }

    fn xattr_list(&mut self, i: &Inode) -> Result<Xattrs> {
        self.read_xattrs(i)
    }

    fn check_xattrs(&self, list: &Xattrs) -> Result<()> {
        self.has_room_for_xattrs(list)
    }

    fn xattr_store(&mut self, i: &mut Inode, list: &Xattrs) -> Result<()> {
        self.write_xattrs(i, list)?;
        self.iput(i)
    }
}

impl ChunkNames for Core {
    fn inew(&mut self, _dir: Ino, m: u32, (uid, gid): (u32, u32), now: Time) -> Result<Inode> {
        self.need(1)?;
        let ino = self.take_inode()?;
        let mut i = self.islot(ino)?;
        let (stamp, generation) = (Stamp::from(now), i.d.generation.get().wrapping_add(1).into());
        let nlink = if m & mode::IFMT == mode::IFDIR { 2 } else { 1 };
        let (mode, nlink, uid, gid, ino) = (m.into(), nlink.into(), uid.into(), gid.into(), (ino.0 as u32).into());
        let (atime, mtime, ctime, btime) = (stamp, stamp, stamp, stamp);
        i.d = Dinode { ino, generation, mode, nlink, uid, gid, atime, mtime, ctime, btime, ..Dinode::default() };
        let d = i.d;
        self.store(i.ino, |place| *place = d)?;
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

    /// A block for a directory or a long target, those of the attributes, and one for the inode.
    fn reserve_contents(&mut self, new: &NewInode<'_>) -> Result<()> {
        self.need(3 + u64::from(xattrs::further(encoded_len(new.xattrs))))
    }
}

/// The list is in the inodes, and its head in the check-point.
impl Orphans for Core {
    fn is_listed(&self) -> bool {
        !planted(Flaw::NoOrphans)
    }

    fn head(&mut self, _of: Ino) -> Result<u64> {
        Ok(self.master.head.orphan.get().into())
    }

    fn set_head(&mut self, _of: Ino, to: u64) -> Result<()> {
        self.master.head.orphan = (to as u32).into();
        self.touch_master();
        Ok(())
    }

    fn next(i: &Inode) -> u64 {
        i.d.next_orphan.get().into()
    }

    fn set_next(&mut self, i: &mut Inode, to: u64) {
        i.d.next_orphan = (to as u32).into();
    }

    fn release(&mut self, i: &mut Inode) -> Result<bool> {
        // Damage is met before anything is changed.
        let xattrs = self.xattr_blocks(i)?;
        if self.truncate_step(i, 0)? > 0 {
            return Ok(false);
        }
        self.drop_xattrs(i, 0..xattrs)?;
        self.hashes.remove(i.ino);
        self.iput(i)?;
        Ok(true)
    }

    fn free(&mut self, i: &mut Inode) -> Result<()> {
        i.d = Dinode { ino: i.d.ino, generation: i.d.generation, ..Dinode::default() };
        self.iput(i)?;
        self.give_inode(i.ino)
    }
}
