//! Inodes: reading, changing, making and freeing them; extended attributes.
//!
//! An inode is a buffer of its own in the cache. The inode map (`ifile.rs`) records where it lies on disk.

use crate::format::*;
use crate::planted::{Flaw, planted};
use crate::volume::Core;
use arbor_base::cache::{FileBlock, Name};
use arbor_base::device::Kind;
use arbor_base::field;
use arbor_base::layout::{Corrupt, Location, crc_without, get_u32, put};
use arbor_base::vfs::{Attr, Errno, Error, Ino, Result, Time, mode};
use arbor_kit::blockfile::UsualFields as _;
use arbor_kit::chunknames::ChunkNames;
use arbor_kit::inodes::{Change, InodeStore, InodeTable};
use arbor_kit::lifetimes::{self, Orphans};
use arbor_kit::namespace::NewInode;
use arbor_kit::xattr::{self, Xattrs};
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// Greatest link count.
pub(crate) const LINK_MAX: u32 = 65_000;

/// An inode, decoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inode {
    pub ino: Ino,
    pub d: Dinode,
}

impl Inode {
    pub fn corrupt(&self, field: &'static str, found: impl std::fmt::Display, expected: &str) -> Corrupt {
        Corrupt::new("inode", field, Location::inode(self.ino), found, expected)
    }
}

/// The sound inodes of a volume in the bytes of a fragment, each with its offset.
pub(crate) fn sound_inodes(geom: &Geom, fragment: &[u8]) -> impl DoubleEndedIterator<Item = (usize, Dinode)> {
    let is_sound = |b: &&[u8]| crc_without(b, CRC_AT) == get_u32(b, CRC_AT);
    let each = fragment.chunks_exact(INODE).enumerate().filter(move |(_, b)| is_sound(b));
    let all = each.filter_map(|(n, b)| Some((n * INODE, Dinode::read_from_bytes(b).ok()?)));
    all.filter(|(_, d)| d.fsid.get() == geom.fsid)
}

/// The inode `ino` in the bytes of a fragment, if there is a sound one, with its offset.
pub(crate) fn find_inode(geom: &Geom, ino: Ino, fragment: &[u8]) -> Option<(usize, Dinode)> {
    sound_inodes(geom, fragment).rfind(|(_, d)| u64::from(d.ino.get()) == ino.0)
}

impl Core {
    /// An inode, the ifile's too; [`iget`](InodeTable::iget) refuses that.
    pub fn inode(&mut self, ino: Ino) -> Result<Inode> {
        if let Some(bytes) = self.cache.get(Name::Inode(ino)) {
            let d = Dinode::read_from_bytes(&bytes[..]).map_err(|_| Errno::EIO)?;
            return Ok(Inode { ino, d });
        }
        if ino == IFILE {
            let d = self.read_ifile_inode()?;
            self.cache.insert(Name::Inode(ino), Arc::new(d.as_bytes().to_vec()));
            return Ok(Inode { ino, d });
        }
        let entry = self.map_entry(ino)?;
        if entry.frag.get() == 0 {
            return Err(Errno::ESTALE.into());
        }
        self.read_inodes(Frag(entry.frag.get()))?;
        if let Some(bytes) = self.cache.get(Name::Inode(ino)) {
            let d = Dinode::read_from_bytes(bytes).map_err(|_| Errno::EIO)?;
            return Ok(Inode { ino, d });
        }
        let (at, d) = self.read_inode(ino, Frag(entry.frag.get()))?;
        if d.version != entry.version {
            let (field, offset) = field!(Dinode, version);
            return Err(Corrupt::new("inode", field, at + offset, d.version.get(), entry.version.get()).into());
        }
        crate::validate::inode(&self.geom, self.segs.count(), at, ino, &d)?;
        self.cache.insert(Name::Inode(ino), Arc::new(d.as_bytes().to_vec()));
        Ok(Inode { ino, d })
    }

    /// Reads the ifile's inode.
    pub fn read_ifile_inode(&mut self) -> Result<Dinode> {
        let frag = Frag(self.checkpoint.ifile.get());
        let (at, d) = self.read_inode(IFILE, frag)?;
        if d.kind() != mode::IFREG {
            let (field, offset) = field!(Dinode, mode);
            return Err(Corrupt::new("ifile", field, at + offset, d.mode.get(), "a file").into());
        }
        crate::validate::inode(&self.geom, self.segs.count(), at, IFILE, &d)?;
        Ok(d)
    }

    /// Reads the block of inodes from this fragment on into the cache: inodes that were changed together lie together.
    /// Those that are damaged or cannot be read are left out.
    fn read_inodes(&mut self, frag: Frag) -> Result<()> {
        let geom = self.geom;
        let fits = |n: &u32| self.is_run(frag, *n);
        let Some(frags) = (1..=geom.block_frags()).rev().find(fits) else { return Ok(()) };
        let bytes = match self.read_run(frag, frags, Kind::Inode) {
            Err(Error::Restart) => return Err(Error::Restart),
            // One fragment alone may still be readable.
            Err(_) => return Ok(()),
            Ok(bytes) => bytes,
        };
        for (at, bytes) in (frag.0..).zip(bytes.chunks_exact(geom.frag_size())) {
            // Of two with the same number, the last one counts.
            for (_, d) in sound_inodes(&geom, bytes).rev() {
                let ino = Ino(d.ino.get().into());
                if ino == IFILE || self.cache.contains(Name::Inode(ino)) {
                    continue;
                }
                let is_here = |e: MapEntry| e.frag.get() == at && e.version == d.version;
                let is_sound = crate::validate::inode(&geom, self.segs.count(), geom.byte(Frag(at)), ino, &d).is_ok();
                if is_sound && self.map_entry(ino).is_ok_and(is_here) {
                    self.cache.insert(Name::Inode(ino), Arc::new(d.as_bytes().to_vec()));
                }
            }
        }
        Ok(())
    }

    /// Reads an inode from its fragment, twice if it was not found. Also returns its byte address.
    pub fn read_inode(&mut self, ino: Ino, frag: Frag) -> Result<(u64, Dinode)> {
        if !self.is_run(frag, 1) {
            let (what, field, at) = match ino {
                IFILE => ("checkpoint", "ifile", (self.checkpoint_at() + field!(Checkpoint, ifile).1).into()),
                _ => ("inode map", "frag", self.map_location(ino, field!(MapEntry, frag).1)),
            };
            return Err(Corrupt::new(what, field, at, frag.0, "fragments of one segment").into());
        }
        let bytes = self.read_run(frag, 1, Kind::Inode)?;
        let found = match find_inode(&self.geom, ino, &bytes) {
            None => {
                let bytes = self.read_run_again(frag, 1, Kind::Inode)?;
                find_inode(&self.geom, ino, &bytes)
            }
            found => found,
        };
        let missing = || {
            let expected = format!("a sound one in the fragment at byte {:#x}", self.geom.byte(frag));
            Corrupt::new("inode", "crc", Location::inode(ino), "none", expected)
        };
        let (within, d) = found.ok_or_else(missing)?;
        Ok((self.geom.byte(frag) + within as u64, d))
    }

    /// Stores a new inode of this number and version.
    pub fn put_new(&mut self, of: (Ino, u32), m: u32, (uid, gid): (u32, u32), now: Time) -> Result<Inode> {
        let ((ino, version), stamp) = (of, Stamp::from(now));
        let d = Dinode {
            fsid: self.geom.fsid.into(),
            ino: (ino.0 as u32).into(),
            version: version.into(),
            mode: m.into(),
            nlink: if m & mode::IFMT == mode::IFDIR { 2 } else { 1 }.into(),
            uid: uid.into(),
            gid: gid.into(),
            atime: stamp,
            mtime: stamp,
            ctime: stamp,
            btime: stamp,
            ..Dinode::default()
        };
        let empty = Dinode::default();
        self.cache.insert(Name::Inode(ino), Arc::new(empty.as_bytes().to_vec()));
        let i = Inode { ino, d };
        self.iput(&i)?;
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

    // Extended attributes: one block, or less.

    fn drop_xattr(&mut self, i: &mut Inode) -> Result<()> {
        if i.d.xattr.frag.get() == 0 {
            return Ok(());
        }
        self.mark(i.ino)?;
        self.mark_dead(i, FileBlock::Xattr(0), i.d.xattr);
        self.cache.remove(Name::File(i.ino, FileBlock::Xattr(0)));
        let old = self.geom.frags_for(i.d.xattr_len.get() as usize);
        (i.d.xattr, i.d.xattr_len) = (Pointer::default(), 0.into());
        self.count(i, 0, old);
        self.iput(i)
    }
}

impl ChunkNames for Core {
    fn inew(&mut self, _dir: Ino, m: u32, owner: (u32, u32), now: Time) -> Result<Inode> {
        let (ino, version) = self.ialloc()?;
        self.put_new((ino, version), m, owner, now)
    }

    fn reserve_contents(&mut self, _new: &NewInode<'_>) -> Result<()> {
        self.ready_number()
    }

    fn store_target(&mut self, i: &mut Inode, target: &[u8]) -> Result<()> {
        if target.len() <= FAST_LINK {
            i.d.size = (target.len() as u64).into();
            self.iput(i)?;
            self.modify(Name::Inode(i.ino), |buf| put(buf, FAST_LINK_AT, target))?;
            // The caller stores its copy again.
            *i = self.iget(i.ino)?;
            return Ok(());
        }
        arbor_kit::blockfile::store_target(self, i, target)
    }
}

impl Orphans for Core {
    fn head(&mut self, _of: Ino) -> Result<u64> {
        Ok(self.state.orphan.into())
    }

    fn set_head(&mut self, _of: Ino, to: u64) -> Result<()> {
        if !planted(Flaw::NoOrphans) {
            self.state.orphan = to as u32;
        }
        Ok(())
    }

    fn next(i: &Inode) -> u64 {
        i.d.next_orphan.get().into()
    }

    fn set_next(&mut self, i: &mut Inode, to: u64) {
        i.d.next_orphan = (to as u32).into();
    }

    fn release(&mut self, i: &mut Inode) -> Result<bool> {
        if i.d.has_blocks() && self.truncate_some(i, 0)? > 0 {
            return Ok(false);
        }
        self.drop_xattr(i)?;
        self.hashes.remove(i.ino);
        Ok(true)
    }

    fn free(&mut self, i: &mut Inode) -> Result<()> {
        self.forget_inode(i.ino)
    }
}

impl InodeStore for Core {
    type Inode = Inode;

    fn number(i: &Inode) -> Ino {
        i.ino
    }

    fn iget(&mut self, ino: Ino) -> Result<Inode> {
        if ino == IFILE {
            return Err(Errno::ESTALE.into());
        }
        self.inode(ino)
    }

    fn iput(&mut self, i: &Inode) -> Result<()> {
        self.mark(i.ino)?;
        let bytes = i.d.as_bytes();
        self.modify(Name::Inode(i.ino), |buf| buf.copy_from_slice(bytes))
    }
}

impl InodeTable for Core {
    fn attr_of(&self, i: &Inode) -> Attr {
        let (generation, blocks) = (i.d.version.get().into(), i.d.frags.get() << (self.geom.frag_shift - 9));
        Attr { generation, blocks, blksize: self.geom.block_size() as u32, ..i.attributes() }
    }

    fn apply(&mut self, i: &mut Inode, set: &Change) {
        i.change(set);
    }

    fn xattr_list(&mut self, i: &Inode) -> Result<Xattrs> {
        if i.d.xattr.frag.get() == 0 {
            return Ok(Vec::new());
        }
        let name = Name::File(i.ino, FileBlock::Xattr(0));
        if !self.cache.contains(name) {
            let frags = self.geom.frags_for(i.d.xattr_len.get() as usize);
            let bytes = self.read_block((i, FileBlock::Xattr(0)), i.d.xattr, frags, Kind::Xattr)?;
            self.cache.insert(name, Arc::new(bytes));
        }
        let broken = || i.corrupt("xattr", "a broken list", "names and values").into();
        let bytes = self.cache.get(name).ok_or(Errno::EIO)?;
        let (head, rest) = XattrHeader::read_from_prefix(&bytes[..]).map_err(|_| Errno::EIO)?;
        if head.magic.get() != XATTR_MAGIC || u64::from(head.ino.get()) != i.ino.0 {
            return Err(broken());
        }
        rest.get(..head.len.get() as usize).and_then(xattr::parse).ok_or_else(broken)
    }

    fn check_xattrs(&self, list: &Xattrs) -> Result<()> {
        let fits = xattr::encoded_len(list) <= self.geom.block_size() - XATTR_HEADER;
        if fits { Ok(()) } else { Err(Errno::ENOSPC.into()) }
    }

    fn xattr_store(&mut self, i: &mut Inode, list: &Xattrs) -> Result<()> {
        if list.is_empty() {
            self.drop_xattr(i)?;
            return self.iput(i);
        }
        let body = xattr::encode(list);
        let len = XATTR_HEADER + body.len();
        let (new, old) = (self.geom.frags_for(len), self.geom.frags_for(i.d.xattr_len.get() as usize));
        self.need(new.saturating_sub(old))?;
        let mut bytes = vec![0; self.geom.bytes_of(new)];
        let head = XattrHeader {
            magic: XATTR_MAGIC.into(),
            ino: (i.ino.0 as u32).into(),
            len: (body.len() as u32).into(),
            ..XattrHeader::default()
        };
        bytes[..XATTR_HEADER].copy_from_slice(head.as_bytes());
        bytes[XATTR_HEADER..len].copy_from_slice(&body);
        self.mark(i.ino)?;
        let name = Name::File(i.ino, FileBlock::Xattr(0));
        if !self.cache.contains(name) {
            self.cache.insert(name, Arc::new(Vec::new()));
        }
        self.modify(name, |buf| *buf = bytes)?;
        if i.d.xattr.frag.get() == 0 {
            i.d.xattr.frag = UNWRITTEN.into();
        }
        i.d.xattr_len = (len as u32).into();
        self.count(i, new, old);
        self.iput(i)
    }

    fn link_target(&mut self, i: &Inode) -> Result<Option<Vec<u8>>> {
        if i.is_symlink() { self.read_target(i).map(Some) } else { Ok(None) }
    }
}
