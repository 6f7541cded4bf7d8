//! Inodes: reading, making and freeing them.
//!
//! An inode is a buffer of its own in the cache. The inode map (`ifile.rs`) records in which block of the log it lies.

use crate::decoded::{Inode, inodes_in};
use crate::format::*;
use crate::planted::{Flaw, planted};
use crate::validate;
use crate::volume::Core;
use arbor_base::cache::{FileBlock, Name};
use arbor_base::device::Kind;
use arbor_base::field;
use arbor_base::layout::{Corrupt, Location, put};
use arbor_base::vfs::{Attr, Errno, Error, Ino, Result, Time, mode};
use arbor_kit::blockfile::{BlockFiles as _, UsualFields as _};
use arbor_kit::chunknames::ChunkNames;
use arbor_kit::inodes::{Change, InodeStore, InodeTable};
use arbor_kit::lifetimes::{self, Orphans};
use arbor_kit::namespace::NewInode;
use arbor_kit::xattr::Xattrs;
use std::collections::BTreeSet;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// Greatest link count.
pub(crate) const LINK_MAX: u32 = 65_000;

impl Core {
    /// An inode, the ifile's too; [`iget`](InodeTable::iget) refuses that.
    pub fn inode(&mut self, ino: Ino) -> Result<Inode> {
        if let Some(bytes) = self.cache.get(Name::Inode(ino)) {
            let d = Dinode::read_from_bytes(&bytes[..]).map_err(|_| Errno::EIO)?;
            return Ok(Inode { ino, d });
        }
        let d = if ino == IFILE { self.read_ifile_inode()? } else { self.read_mapped_inode(ino)? };
        self.cache.insert(Name::Inode(ino), Arc::new(d.as_bytes().to_vec()));
        Ok(Inode { ino, d })
    }

    /// Reads the inode to which the inode map leads, and those beside it: inodes that were changed together lie together.
    fn read_mapped_inode(&mut self, ino: Ino) -> Result<Dinode> {
        let entry = self.map_entry(ino)?;
        if entry.block.get() == 0 {
            return Err(Errno::ESTALE.into());
        }
        let block = MetaBlock(entry.block.get());
        let (at, d) = self.read_inode(ino, block)?;
        if d.version != entry.version {
            let (field, offset) = field!(Dinode, version);
            return Err(Corrupt::new("inode", field, at + offset, d.version.get(), entry.version.get()).into());
        }
        validate::inode(&self.geom, at, ino, &d)?;
        self.read_neighbours(ino, block)?;
        Ok(d)
    }

    /// Brings the other inodes of a block that was just read into the cache.
    fn read_neighbours(&mut self, ino: Ino, block: MetaBlock) -> Result<()> {
        let Some(bytes) = self.cache.peek(Name::Block(block.0.into())).cloned() else { return Ok(()) };
        let (geom, byte, mut met) = (self.geom, self.geom.meta_byte(block), BTreeSet::from([ino, IFILE]));
        for (at, d) in inodes_in(&geom, &bytes).rev() {
            let other = Ino(d.ino.get().into());
            // The last one of a number is the one that `read_inode` finds.
            if !met.insert(other) || self.cache.contains(Name::Inode(other)) {
                continue;
            }
            let is_here = |e: MapEntry| e.block.get() == block.0 && e.version == d.version;
            let entry = match self.map_entry(other) {
                Err(Error::Restart) => return Err(Error::Restart),
                entry => entry,
            };
            if entry.is_ok_and(is_here) && validate::inode(&geom, byte + at as u64, other, &d).is_ok() {
                self.cache.insert(Name::Inode(other), Arc::new(d.as_bytes().to_vec()));
            }
        }
        self.cache.remove(Name::Block(block.0.into()));
        Ok(())
    }

    /// Reads the ifile's inode.
    pub fn read_ifile_inode(&mut self) -> Result<Dinode> {
        let (at, d) = self.read_inode(IFILE, MetaBlock(self.checkpoint.ifile.get()))?;
        if d.kind() != mode::IFREG {
            let (field, offset) = field!(Dinode, mode);
            return Err(Corrupt::new("ifile", field, at + offset, d.mode.get(), "a file").into());
        }
        validate::inode(&self.geom, at, IFILE, &d)?;
        Ok(d)
    }

    /// Reads an inode from its block, twice if it was not found. Also returns its byte address.
    pub fn read_inode(&mut self, ino: Ino, block: MetaBlock) -> Result<(u64, Dinode)> {
        if self.geom.seg_of(block).is_none() {
            let region = self.geom.checkpoints().get(1 - self.region).copied().unwrap_or(0);
            let (what, field, at) = match ino {
                IFILE => ("checkpoint", "ifile", (region + field!(Checkpoint, ifile).1).into()),
                _ => ("inode map", "block", self.map_location(ino, field!(MapEntry, block).1)),
            };
            return Err(Corrupt::new(what, field, at, block.0, "a block of a segment").into());
        }
        let (geom, byte) = (self.geom, self.geom.meta_byte(block));
        let find = |bytes: &[u8]| inodes_in(&geom, bytes).rfind(|(_, d)| u64::from(d.ino.get()) == ino.0);
        let bytes = self.read_meta(block, Kind::Inode)?;
        // It may be needed for its neighbours.
        self.cache.insert(Name::Block(block.0.into()), bytes.clone());
        let found = match find(&bytes) {
            None => {
                self.cache.remove(Name::Block(block.0.into()));
                find(&self.read_again(Kind::Inode, byte)?)
            }
            found => found,
        };
        let missing = || {
            let expected = format!("a sound one in the block at byte {byte:#x}");
            Corrupt::new("inode", "crc", Location::inode(ino), "none", expected)
        };
        let (within, d) = found.ok_or_else(missing)?;
        Ok((byte + within as u64, d))
    }

    /// Stores a new inode of this number and version; a directory gets a group, anything else that of its parent.
    pub fn put_new(
        &mut self,
        (ino, version): (Ino, u32),
        m: u32,
        owner: (u32, u32),
        group: Group,
        now: Time,
    ) -> Result<Inode> {
        let [atime, mtime, ctime, btime] = [Stamp::from(now); 4];
        let nlink = if m & mode::IFMT == mode::IFDIR { 2 } else { 1 };
        let d = Dinode {
            fsid: self.geom.fsid.into(),
            group: group.0.into(),
            ino: (ino.0 as u32).into(),
            mode: m.into(),
            nlink: nlink.into(),
            uid: owner.0.into(),
            gid: owner.1.into(),
            version: version.into(),
            ..Dinode { atime, mtime, ctime, btime, ..Dinode::default() }
        };
        self.cache.insert(Name::Inode(ino), Arc::new(d.as_bytes().to_vec()));
        let i = Inode { ino, d };
        self.iput(&i)?;
        if i.is_dir() {
            self.count_dir(group, true);
        }
        Ok(i)
    }

    /// Loads, at a mount, the inodes that were open and unlinked at the crash.
    pub fn load_orphans(&mut self) -> Result<()> {
        lifetimes::load_some(self, self.state.orphan.into(), |core, ino, twice| {
            let i = core.iget(ino)?;
            if !twice && i.d.nlink.get() == 0 {
                return Ok(i);
            }
            let expected = "a list without a loop, of inodes without names";
            Err(i.corrupt("next_orphan", i.d.next_orphan, expected).into())
        })
    }

    /// Counts blocks of a file, in its inode and in all.
    pub fn count(&mut self, i: &mut Inode, data: i32, meta: i32) {
        i.count(data, meta);
        if i.ino != IFILE {
            self.state.data = self.state.data.saturating_add_signed(data);
            self.state.meta = self.state.meta.saturating_add_signed(meta);
        }
    }
}

impl ChunkNames for Core {
    /// No page of it is left in core (`commit.rs`).
    fn note_moved(&mut self, ino: Ino) {
        self.changes.shorten(ino, 0);
    }

    fn inew(&mut self, dir: Ino, m: u32, owner: (u32, u32), now: Time) -> Result<Inode> {
        let parent = Group(self.iget(dir)?.d.group.get());
        let new = self.ialloc()?;
        let group = if m & mode::IFMT == mode::IFDIR { self.group_for_dir(parent) } else { parent };
        self.put_new(new, m, owner, group, now)
    }

    fn reserve_contents(&mut self, _new: &NewInode<'_>) -> Result<()> {
        self.ready_number()
    }

    fn store_target(&mut self, i: &mut Inode, target: &[u8]) -> Result<()> {
        if target.len() > FAST_LINK {
            return arbor_kit::blockfile::store_target(self, i, target);
        }
        i.d.size = (target.len() as u64).into();
        let mut bytes = i.d.as_bytes().to_vec();
        put(&mut bytes, FAST_LINK_AT, target);
        i.d = Dinode::read_from_bytes(&bytes).map_err(|_| Errno::EIO)?;
        self.iput(i)
    }
}

impl Orphans for Core {
    fn release(&mut self, i: &mut Inode) -> Result<bool> {
        // Before the first change: damaged attributes must not fail a step half way.
        self.xattr_blocks(i)?;
        let is_cut = !i.d.has_blocks() || self.truncate_step(i, 0)? == 0;
        if is_cut {
            self.drop_xattrs(i)?;
            self.hashes.remove(i.ino);
        }
        Ok(is_cut)
    }

    fn free(&mut self, i: &mut Inode) -> Result<()> {
        if i.is_dir() {
            self.count_dir(Group(i.d.group.get()), false);
        }
        self.forget_inode(i.ino)
    }

    fn next(i: &Inode) -> u64 {
        i.d.next_orphan.get().into()
    }

    fn set_next(&mut self, i: &mut Inode, to: u64) {
        i.d.next_orphan = (to as u32).into();
    }

    fn head(&mut self, _of: Ino) -> Result<u64> {
        Ok(self.state.orphan.into())
    }

    fn set_head(&mut self, _of: Ino, to: u64) -> Result<()> {
        if !planted(Flaw::NoOrphans) {
            self.state.orphan = to as u32;
        }
        Ok(())
    }
}

impl InodeStore for Core {
    type Inode = Inode;

    fn iput(&mut self, i: &Inode) -> Result<()> {
        self.mark(i.ino)?;
        let dirty = self.make_dirty(Name::Inode(i.ino))?;
        let bytes = i.d.as_bytes();
        self.cache.modify(dirty, |buf| buf.copy_from_slice(bytes));
        Ok(())
    }

    fn iget(&mut self, ino: Ino) -> Result<Inode> {
        if ino == IFILE { Err(Errno::ESTALE.into()) } else { self.inode(ino) }
    }

    fn number(i: &Inode) -> Ino {
        i.ino
    }
}

impl InodeTable for Core {
    fn attr_of(&self, i: &Inode) -> Attr {
        let blocks = (u64::from(i.d.data.get()) + u64::from(i.d.meta.get())) << (self.geom.block_shift - 9);
        Attr { generation: i.d.version.get().into(), blocks, blksize: self.geom.block() as u32, ..i.attributes() }
    }

    fn apply(&mut self, i: &mut Inode, set: &Change) {
        i.change(set);
    }

    fn link_target(&mut self, i: &Inode) -> Result<Option<Vec<u8>>> {
        if !i.is_symlink() {
            return Ok(None);
        }
        let size = i.size() as usize;
        let bytes = if i.d.is_fast_link() {
            i.d.as_bytes().get(FAST_LINK_AT..FAST_LINK_AT + size).map(<[u8]>::to_vec)
        } else {
            self.part(i, FileBlock::Data(0))?.and_then(|page| page.get(..size).map(<[u8]>::to_vec))
        };
        let target = bytes.filter(|bytes| !bytes.contains(&0));
        Ok(Some(target.ok_or_else(|| i.corrupt("size", size, "a target without NUL, within its block"))?))
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
