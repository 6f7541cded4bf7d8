//! Inodes: decoding and storing them, allocating and freeing them, extended attributes.
//!
//! An inode has no copy of its own in core: it is decoded from its block's buffer, and stored there again. Called by
//! `ops.rs`, `file.rs` and `dir.rs`, and by kit through its traits.

use crate::buffers::{BlockKind, PointerSet};
use crate::dependencies::LinkRelease;
use crate::format::*;
use crate::planted::{Flaw, planted};
use crate::volume::Core;
use arbor_base::cache::{FileBlock, Name};
use arbor_base::field;
use arbor_base::layout::{Corrupt, crc_without, put};
use arbor_base::vfs::{Attr, Errno, Error, Ino, Result, Time, mode};
use arbor_kit::inodes::{Change, InodeStore, InodeTable};
use arbor_kit::lifetimes::{self, Orphans};
use arbor_kit::xattr::{self, Xattrs};
use std::mem::offset_of;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// Greatest link count.
pub(crate) const LINK_MAX: u16 = 65_000;

/// A decoded inode and where it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inode {
    pub ino: Ino,
    pub d: Dinode,
    /// Its block.
    pub block: Frag,
    /// Its offset in the block.
    pub at: usize,
}

impl Inode {
    /// Name of its block's buffer.
    pub fn name(&self) -> Name {
        Name::Block(self.block.0.into())
    }

    /// Offset of pointer `index` in that buffer: 0 to 11 direct, 12 to 14 indirect, 15 attributes.
    pub fn pointer_at(&self, index: usize) -> usize {
        self.at + offset_of!(Dinode, db) + 4 * index
    }

    /// Pointer `index`.
    pub fn pointer(&self, index: usize) -> Frag {
        let all = self.d.db.iter().chain(self.d.ib.iter()).chain([&self.d.xattr]);
        Frag(all.into_iter().nth(index).map_or(0, |p| p.get()))
    }

    pub fn set_pointer(&mut self, index: usize, to: Frag) {
        let all = self.d.db.iter_mut().chain(self.d.ib.iter_mut()).chain([&mut self.d.xattr]);
        if let Some(p) = all.into_iter().nth(index) {
            *p = to.0.into();
        }
    }

    /// Adds to the count of its fragments, and subtracts.
    pub fn add_frags(&mut self, more: u32, less: u32) {
        self.d.frags = self.d.frags.get().saturating_add(more).saturating_sub(less).into();
    }

    /// Byte of the device where it begins.
    pub fn byte(&self, geom: &Geom) -> u64 {
        geom.byte(self.block) + self.at as u64
    }

    pub fn corrupt(
        &self,
        geom: &Geom,
        (field, offset): (&'static str, u64),
        found: impl std::fmt::Display,
        expected: &str,
    ) -> Corrupt {
        Corrupt::new("inode", field, self.byte(geom) + offset, format!("{found} (inode {})", self.ino), expected)
    }
}

/// Pointer index of the extended attributes.
pub(crate) const XATTR: usize = NDADDR + NIADDR;

impl Core {
    /// The inode, in use or not.
    fn islot(&mut self, ino: Ino) -> Result<Inode> {
        let (block, at) = self.geom.inode_at(ino).ok_or(Errno::ESTALE)?;
        let cgx = self.geom.cg_of_inode(ino);
        let index = (ino.0 % u64::from(self.geom.cg_inodes)) as u32;
        let name = Name::Block(block.0.into());
        if self.cache.find(name).is_none() {
            if !self.may_be_initialised(cgx, index)? {
                return Err(Errno::ESTALE.into());
            }
            self.block(block, BlockKind::Inodes)?;
        }
        let bytes = self.cache.peek(name).ok_or(Errno::EIO)?;
        let d = bytes.get(at..at + INODE).and_then(|b| Dinode::read_from_bytes(b).ok()).ok_or(Errno::ESTALE)?;
        Ok(Inode { ino, d, block, at })
    }

    /// The inode, in use or not, if its block is in core.
    pub fn peek_inode(&self, ino: Ino) -> Option<Inode> {
        let (block, at) = self.geom.inode_at(ino)?;
        let bytes = self.cache.peek(Name::Block(block.0.into()))?.get(at..at + INODE)?;
        Some(Inode { ino, d: Dinode::read_from_bytes(bytes).ok()?, block, at })
    }

    /// Whether an inode's block may have been written. A damaged group does not make its files unreadable: inodes have
    /// checksums of their own.
    fn may_be_initialised(&mut self, cgx: u32, index: u32) -> Result<bool> {
        match self.cg(cgx) {
            Ok(group) => Ok(index < crate::bitmap::header(group).initediblk.get()),
            Err(Error::Corrupt(_) | Error::Io(_)) => Ok(true),
            Err(e) => Err(e),
        }
    }

    /// Like [`Core::iget`] for a directory; `ENOTDIR` otherwise.
    pub fn iget_dir(&mut self, ino: Ino) -> Result<Inode> {
        let i = self.iget(ino)?;
        if i.is_dir() { Ok(i) } else { Err(Errno::ENOTDIR.into()) }
    }

    /// A new inode in group `cgx`, with no name yet.
    pub fn inew(&mut self, (cgx, near): (u32, Ino), m: u32, (uid, gid): (u32, u32), now: Time) -> Result<Inode> {
        let ino = self.ialloc(cgx, near, m)?;
        let mut i = self.islot(ino)?;
        let old = i.d;
        let stamp = Stamp::from(now);
        i.d = Dinode {
            mode: (m as u16).into(),
            nlink: if m & mode::IFMT == mode::IFDIR { 2 } else { 1 }.into(),
            uid: uid.into(),
            gid: gid.into(),
            atime: stamp,
            mtime: stamp,
            ctime: stamp,
            btime: stamp,
            generation: old.generation.get().wrapping_add(1).into(),
            ..Dinode::default()
        };
        self.iput(&i)?;
        self.ordering().inode_made(self, &i, old)?;
        Ok(i)
    }

    /// Whether a new inode can lie there: not if the old one is damaged, or in use whatever the bitmap says. The checker should look
    /// then.
    pub fn is_free_slot(&mut self, ino: Ino) -> Result<bool> {
        let i = self.islot(ino)?;
        let in_use =
            || i.corrupt(&self.geom, field!(Dinode, mode), i.d.mode, "a free inode, as the bitmap says").into();
        let damage = self.damaged.refuse(ino).err().or_else(|| i.d.in_use().then(in_use));
        if let Some(e) = &damage {
            self.calls.health.pass_by(e);
        }
        Ok(damage.is_none())
    }

    /// The link count of an inode as users see it.
    pub fn links(&self, i: &Inode) -> u32 {
        u32::from(i.d.nlink.get()).saturating_sub(self.deps.going(i.ino))
    }

    /// Lowers the link counts for a removed name; frees an inode without names.
    pub fn release_links(&mut self, release: LinkRelease) -> Result<()> {
        match release {
            LinkRelease::Name(ino) => self.unlinked(ino, 1),
            LinkRelease::Parent(ino) => {
                let mut i = self.iget(ino)?;
                i.d.nlink = i.d.nlink.get().saturating_sub(1).into();
                self.iput(&i)
            }
            LinkRelease::Dir(ino, parent) => {
                self.release_links(LinkRelease::Parent(parent))?;
                self.unlinked(ino, u16::MAX)
            }
        }
    }

    fn unlinked(&mut self, ino: Ino, names: u16) -> Result<()> {
        let mut i = self.iget(ino)?;
        i.d.nlink = i.d.nlink.get().saturating_sub(names).into();
        if i.d.nlink.get() > 0 { self.iput(&i) } else { lifetimes::lost(self, &mut i) }
    }

    /// Frees a new inode that never got a name.
    pub fn abort_create(&mut self, i: &mut Inode) -> Result<()> {
        i.d.nlink = 0.into();
        self.iput(i)?;
        lifetimes::abandon(self, i)
    }

    // The orphan list. Without a journal the checker finds inodes without names.

    fn set_orphan_head(&mut self, to: u64) -> Result<()> {
        self.sb.orphan = (to as u32).into();
        let name = Name::Block(0);
        self.block(Frag(0), BlockKind::Super)?;
        // The whole superblock in core: the one that was read may be damaged, and would get a matching checksum.
        let sb = self.sb;
        self.modify(name, |buf| put(buf, 0, sb.as_bytes()))
    }

    /// Finds at mount the files that were open and unlinked at the crash.
    pub fn load_orphans(&mut self, head: u32) -> Result<()> {
        lifetimes::load_some(self, head.into(), |core, ino, twice| {
            let i = core.islot(ino)?;
            core.damaged.refuse(ino)?;
            if !i.d.in_use() || i.d.nlink.get() != 0 {
                let found = format!("mode {:o} and link count {}", i.d.mode, i.d.nlink);
                let expected = "a file without names, as it is on the orphan list";
                return Err(i.corrupt(&core.geom, field!(Dinode, nlink), found, expected).into());
            }
            core.btimes.insert(ino.0, Stamp::default());
            let looped = || i.corrupt(&core.geom, field!(Dinode, btime), ino, "an orphan list without a loop");
            if twice { Err(looped().into()) } else { Ok(i) }
        })
    }

    // Extended attributes: a run of fragments, always a new one, so that no old one is half overwritten.

    fn xattr_block(&mut self, i: &Inode) -> Result<Arc<Vec<u8>>> {
        let name = Name::File(i.ino, FileBlock::Xattr(0));
        if let Some(bytes) = self.cache.get(name) {
            return Ok(bytes.clone());
        }
        let frag = Frag(i.d.xattr.get());
        let frags = self.xattr_frags(i, frag)?;
        let bytes = Arc::new(self.read(frag, self.geom.bytes_of(frags), BlockKind::Xattr)?);
        check_xattr_run(&self.geom, i.ino, frag, &bytes)?;
        self.cache.insert(name, bytes.clone());
        Ok(bytes)
    }

    /// Length of the run, which stands in its head.
    fn xattr_frags(&mut self, i: &Inode, frag: Frag) -> Result<u32> {
        if let Some(bytes) = self.cache.peek(Name::File(i.ino, FileBlock::Xattr(0))) {
            return Ok(self.geom.frags_for(bytes.len()));
        }
        let bad = |geom| i.corrupt(geom, field!(Dinode, xattr), frag.0, "a run of fragments with attributes");
        if !self.geom.is_data(frag, 1) {
            return Err(bad(&self.geom).into());
        }
        let head = self.read(frag, self.geom.frag_size(), BlockKind::Xattr)?;
        let frags = XattrHeader::ref_from_prefix(&head).map_or(0, |h| h.0.frags.get());
        let n = self.geom.block_frags();
        if frags == 0 || frags > n || frag.0 % n + frags > n || !self.geom.is_data(frag, frags) {
            return Err(bad(&self.geom).into());
        }
        Ok(frags)
    }

    /// Frees the attributes of an inode, which have `frags` fragments.
    fn free_xattr(&mut self, i: &mut Inode, frags: u32) -> Result<()> {
        let frag = Frag(i.d.xattr.get());
        self.drop_buffer(Name::File(i.ino, FileBlock::Xattr(0)))?;
        i.d.xattr = 0.into();
        i.add_frags(0, frags);
        self.iput(i)?;
        self.ordering().pointer_cleared(self, (i.name(), i.pointer_at(XATTR)), &[(frag, frags)])
    }
}

/// With a journal the links of the list are in the inodes, in place of their creation times.
impl Orphans for Core {
    fn is_listed(&self) -> bool {
        self.ordering().lists_orphans() && !planted(Flaw::NoOrphans)
    }

    fn head(&mut self, _of: Ino) -> Result<u64> {
        Ok(self.sb.orphan.get().into())
    }

    fn set_head(&mut self, _of: Ino, to: u64) -> Result<()> {
        self.set_orphan_head(to)
    }

    fn next(i: &Inode) -> u64 {
        i.d.btime.secs.get().into()
    }

    fn set_next(&mut self, i: &mut Inode, to: u64) {
        self.btimes.entry(i.ino.0).or_insert(i.d.btime);
        i.d.btime.secs = (to as u32).into();
    }

    fn unlisted(&mut self, i: &mut Inode, goes: bool) {
        if let Some(btime) = self.btimes.remove(&i.ino.0).filter(|_| !goes) {
            i.d.btime = btime;
        }
    }

    fn release(&mut self, i: &mut Inode) -> Result<bool> {
        // Before the first change: damaged attributes must not fail a step half way.
        let xattr = match i.d.xattr.get() {
            0 => None,
            frag => Some(self.xattr_frags(i, Frag(frag))?),
        };
        if i.d.has_blocks() && self.truncate_some(i, 0)? > 0 {
            return Ok(false);
        }
        if let Some(frags) = xattr {
            self.free_xattr(i, frags)?;
        }
        self.hashes.remove(i.ino);
        Ok(true)
    }

    fn free(&mut self, i: &mut Inode) -> Result<()> {
        let (generation, m) = (i.d.generation, u32::from(i.d.mode.get()));
        i.d = Dinode { generation, ..Dinode::default() };
        self.iput(i)?;
        self.ordering().inode_freed(self, i, m)
    }
}

/// Checks a run of fragments with attributes.
pub(crate) fn check_xattr_run(geom: &Geom, ino: Ino, frag: Frag, bytes: &[u8]) -> std::result::Result<(), Corrupt> {
    let bad =
        |field, found: String, expected: &str| Err(Corrupt::new("attributes", field, geom.byte(frag), found, expected));
    let Ok((h, _)) = XattrHeader::ref_from_prefix(bytes) else { return bad("len", bytes.len().to_string(), "a head") };
    let crc = crc_without(bytes, CRC_AT).unwrap_or(0);
    if h.magic.get() != XATTR_MAGIC || h.fsid.get() != geom.fsid || u64::from(h.ino.get()) != ino.0 {
        return bad("magic", format!("{:#x} of inode {}", h.magic.get(), h.ino), "attributes of this inode");
    }
    if h.crc.get() != crc {
        return bad("crc", format!("{:#x}", h.crc.get()), &format!("{crc:#x}"));
    }
    if h.len.get() as usize > bytes.len() - XATTR_HEADER {
        return bad("len", h.len.to_string(), "entries within the run");
    }
    Ok(())
}

impl InodeStore for Core {
    type Inode = Inode;

    fn number(i: &Inode) -> Ino {
        i.ino
    }

    fn iget(&mut self, ino: Ino) -> Result<Inode> {
        let i = self.islot(ino)?;
        self.damaged.refuse(ino)?;
        if !i.d.in_use() {
            return Err(Errno::ESTALE.into());
        }
        Ok(i)
    }

    fn iput(&mut self, i: &Inode) -> Result<()> {
        self.block(i.block, BlockKind::Inodes)?;
        self.modify(i.name(), |buf| {
            if let Some(place) = buf.get_mut(i.at..i.at + INODE) {
                place.copy_from_slice(i.d.as_bytes());
            }
        })
    }
}

impl InodeTable for Core {
    fn attr_of(&self, i: &Inode) -> Attr {
        let d = &i.d;
        let is_node = matches!(d.kind(), mode::IFCHR | mode::IFBLK);
        let btime = self.btimes.get(&i.ino.0).copied().unwrap_or(d.btime);
        Attr {
            ino: i.ino,
            generation: d.generation.get().into(),
            mode: d.mode.get().into(),
            nlink: u32::from(d.nlink.get()).saturating_sub(self.deps.going(i.ino)),
            uid: d.uid.get(),
            gid: d.gid.get(),
            rdev: if is_node { d.db[0].get() } else { 0 },
            size: d.size.get(),
            blocks: u64::from(d.frags.get()) << (self.geom.frag_shift - 9),
            blksize: self.geom.block_size() as u32,
            atime: d.atime.into(),
            mtime: d.mtime.into(),
            ctime: d.ctime.into(),
            btime: btime.into(),
            unsettled: false,
        }
    }

    fn apply(&mut self, i: &mut Inode, set: &Change) {
        let d = &mut i.d;
        d.mode = set.mode.map_or(d.mode, |m| (d.mode.get() & mode::IFMT as u16 | m as u16).into());
        (d.uid, d.gid) = (set.uid.map_or(d.uid, Into::into), set.gid.map_or(d.gid, Into::into));
        (d.atime, d.mtime) = (set.atime.map_or(d.atime, Into::into), set.mtime.map_or(d.mtime, Into::into));
        d.ctime = set.ctime.map_or(d.ctime, Into::into);
        if let Some(t) = set.btime {
            match self.btimes.get_mut(&i.ino.0) {
                Some(btime) => *btime = t.into(),
                None => i.d.btime = t.into(),
            }
        }
    }

    fn xattr_list(&mut self, i: &Inode) -> Result<Xattrs> {
        if i.d.xattr.get() == 0 {
            return Ok(Vec::new());
        }
        let bytes = self.xattr_block(i)?;
        let (head, rest) = XattrHeader::ref_from_prefix(&bytes).map_err(|_| Errno::EIO)?;
        let list = rest.get(..head.len.get() as usize).and_then(xattr::parse);
        let at = self.geom.byte(Frag(i.d.xattr.get()));
        list.ok_or_else(|| Corrupt::new("attributes", "entries", at, "a broken list", "names and values").into())
    }

    fn check_xattrs(&self, list: &Xattrs) -> Result<()> {
        let fits = xattr::encoded_len(list) <= self.geom.block_size() - XATTR_HEADER;
        if fits { Ok(()) } else { Err(Errno::ENOSPC.into()) }
    }

    fn xattr_store(&mut self, i: &mut Inode, list: &Xattrs) -> Result<()> {
        let old = Frag(i.d.xattr.get());
        let old_frags = if old.0 == 0 { 0 } else { self.xattr_frags(i, old)? };
        if list.is_empty() {
            return if old.0 == 0 { Ok(()) } else { self.free_xattr(i, old_frags) };
        }
        let body = xattr::encode(list);
        let frags = self.geom.frags_for(XATTR_HEADER + body.len());
        let home = self.geom.cg_start(self.geom.cg_of_inode(i.ino));
        let new = if frags > old_frags {
            self.alloc(i.ino, Some(home), frags)?
        } else {
            self.alloc_reserved(i.ino, Some(home), frags)?
        };
        let mut bytes = vec![0; self.geom.bytes_of(frags)];
        let head = XattrHeader {
            magic: XATTR_MAGIC.into(),
            fsid: self.geom.fsid.into(),
            ino: (i.ino.0 as u32).into(),
            frags: frags.into(),
            len: (body.len() as u32).into(),
            ..XattrHeader::default()
        };
        bytes[..XATTR_HEADER].copy_from_slice(head.as_bytes());
        bytes[XATTR_HEADER..XATTR_HEADER + body.len()].copy_from_slice(&body);
        let sum = crc_without(&bytes, CRC_AT).unwrap_or(0);
        put_u32(&mut bytes, CRC_AT, sum);
        let name = Name::File(i.ino, FileBlock::Xattr(0));
        self.drop_buffer(name)?;
        self.cache.insert(name, Arc::new(bytes));
        self.change(name, (new, BlockKind::Xattr, i.ino.0), |_| ())?;
        i.d.xattr = new.0.into();
        i.add_frags(frags, old_frags);
        self.iput(i)?;
        let (slot, old, new) = ((i.name(), i.pointer_at(XATTR)), (old, old_frags), (new, frags));
        self.ordering().pointer_set(self, &PointerSet { slot, old, new, content: name, inode: None })
    }

    fn link_target(&mut self, i: &Inode) -> Result<Option<Vec<u8>>> {
        if i.is_symlink() { self.read_target(i).map(Some) } else { Ok(None) }
    }
}
