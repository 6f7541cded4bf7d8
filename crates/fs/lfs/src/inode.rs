//! Inodes: reading and changing them, their life and death, extended attributes.
//!
//! An inode is a buffer of its own in the cache. Where it lies on disk the inode map says.

use crate::format::*;
use crate::mount::{Core, inode_name, xattr_name};
use crate::planted::{Flaw, planted};
use arbor_base::device::Kind;
use arbor_base::layout::{Corrupt, crc_without, get_u32};
use arbor_base::vfs::{Attr, Errno, Ino, Result, SetAttr, SetTime, Time, XattrMode, mode};
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
    pub fn is_dir(&self) -> bool {
        self.d.kind() == mode::IFDIR
    }

    pub fn is_file(&self) -> bool {
        self.d.kind() == mode::IFREG
    }

    pub fn is_symlink(&self) -> bool {
        self.d.kind() == mode::IFLNK
    }

    pub fn size(&self) -> u64 {
        self.d.size.get()
    }

    pub fn corrupt(&self, field: &'static str, found: impl std::fmt::Display, expected: &str) -> Corrupt {
        Corrupt::new("inode", field, 0, format!("{found} (inode {})", self.ino), expected)
    }
}

/// Names and values of extended attributes.
pub(crate) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

impl Core {
    /// The inode, which must be in use; `ESTALE` otherwise.
    pub fn iget(&mut self, ino: Ino) -> Result<Inode> {
        if ino == IFILE {
            return Err(Errno::ESTALE.into());
        }
        self.inode(ino)
    }

    /// The same, of the ifile too.
    pub fn inode(&mut self, ino: Ino) -> Result<Inode> {
        if let Some(bytes) = self.cache.get(inode_name(ino)) {
            let d = Dinode::read_from_bytes(&bytes[..]).map_err(|_| Errno::EIO)?;
            return Ok(Inode { ino, d });
        }
        if ino == IFILE {
            let d = self.read_inode(ino, Frag(self.checkpoint.ifile.get()))?;
            self.cache.insert(inode_name(ino), Arc::new(d.as_bytes().to_vec()));
            return Ok(Inode { ino, d });
        }
        let entry = self.map_entry(ino)?;
        if entry.frag.get() == 0 {
            return Err(Errno::ESTALE.into());
        }
        let d = self.read_inode(ino, Frag(entry.frag.get()))?;
        if d.version != entry.version {
            let (at, found) = (self.geom.byte(Frag(entry.frag.get())), d.version.get());
            return Err(Corrupt::new("inode", "version", at, found, entry.version.get()).into());
        }
        self.cache.insert(inode_name(ino), Arc::new(d.as_bytes().to_vec()));
        Ok(Inode { ino, d })
    }

    /// Reads an inode from its fragment, once more if it was not there.
    pub fn read_inode(&mut self, ino: Ino, frag: Frag) -> Result<Dinode> {
        self.check_run(frag, 1, "inode map", "frag")?;
        let found = self.look_for_inode(ino, frag)?;
        let found = if found.is_none() { self.look_for_inode(ino, frag)? } else { found };
        let missing = || Corrupt::new("inode", "crc", self.geom.byte(frag), format!("no inode {ino}"), "a sound one");
        Ok(found.ok_or_else(missing)?)
    }

    fn look_for_inode(&mut self, ino: Ino, frag: Frag) -> Result<Option<Dinode>> {
        let bytes = self.read_run(frag, 1, Kind::Inode)?;
        let is_sound = |b: &&[u8]| crc_without(b, CRC_AT) == get_u32(b, CRC_AT);
        let mut all = bytes.chunks_exact(INODE).filter(is_sound).filter_map(|b| Dinode::read_from_bytes(b).ok());
        let fsid = self.geom.fsid;
        Ok(all.rfind(|d| u64::from(d.ino.get()) == ino.0 && d.fsid.get() == fsid))
    }

    /// Like [`Core::iget`] for a directory; `ENOTDIR` otherwise.
    pub fn iget_dir(&mut self, ino: Ino) -> Result<Inode> {
        let i = self.iget(ino)?;
        if i.is_dir() { Ok(i) } else { Err(Errno::ENOTDIR.into()) }
    }

    /// Writes an inode back to its buffer.
    pub fn iput(&mut self, i: &Inode) -> Result<()> {
        self.mark(i.ino)?;
        let bytes = i.d.as_bytes();
        self.cache.modify(inode_name(i.ino), |buf| buf.copy_from_slice(bytes)).ok_or(Errno::EIO)?;
        Ok(())
    }

    /// A new inode, with no name yet.
    pub fn inew(&mut self, m: u32, (uid, gid): (u32, u32), now: Time) -> Result<Inode> {
        let (ino, version) = self.ialloc()?;
        let stamp = Stamp::from(now);
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
        self.cache.insert(inode_name(ino), Arc::new(empty.as_bytes().to_vec()));
        let i = Inode { ino, d };
        self.iput(&i)?;
        Ok(i)
    }

    /// Attributes, as users see them.
    pub fn attr(&self, i: &Inode) -> Attr {
        let d = &i.d;
        Attr {
            ino: i.ino,
            generation: d.version.get().into(),
            mode: d.mode.get(),
            nlink: d.nlink.get(),
            uid: d.uid.get(),
            gid: d.gid.get(),
            rdev: d.rdev.get(),
            size: d.size.get(),
            blocks: d.frags.get() << (self.geom.frag_shift - 9),
            blksize: self.geom.block_size() as u32,
            atime: d.atime.into(),
            mtime: d.mtime.into(),
            ctime: d.ctime.into(),
            btime: d.btime.into(),
        }
    }

    /// Applies a change of attributes other than the size.
    pub fn apply(&mut self, i: &mut Inode, set: &SetAttr, now: Time) {
        let d = &mut i.d;
        if let Some(m) = set.mode {
            d.mode = (d.mode.get() & mode::IFMT | m & 0o7777).into();
        }
        d.uid = set.uid.map_or(d.uid, Into::into);
        d.gid = set.gid.map_or(d.gid, Into::into);
        let at = |t: SetTime| match t {
            SetTime::Now => Stamp::from(now),
            SetTime::At(t) => Stamp::from(t),
        };
        d.atime = set.atime.map_or(d.atime, at);
        d.mtime = set.mtime.map_or(d.mtime, at);
        d.ctime = set.ctime.map_or(Stamp::from(now), at);
        d.btime = set.btime.map_or(d.btime, at);
    }

    /// A name of an inode was removed; `all`: a directory's last one, with its dot.
    pub fn unlinked(&mut self, ino: Ino, all: bool) -> Result<()> {
        let mut i = self.iget(ino)?;
        i.d.nlink = if all { 0 } else { i.d.nlink.get().saturating_sub(1) }.into();
        self.iput(&i)?;
        if i.d.nlink.get() > 0 {
            return Ok(());
        }
        if self.refs.has(ino) {
            return self.orphan(&mut i);
        }
        // What fits one step goes at once.
        if self.release(&mut i)? {
            self.ifree(&mut i)
        } else {
            self.inactive.push_back(ino.0);
            self.orphan(&mut i)
        }
    }

    /// One subdirectory less.
    pub fn drop_parent(&mut self, ino: Ino) -> Result<()> {
        let mut i = self.iget(ino)?;
        i.d.nlink = i.d.nlink.get().saturating_sub(1).into();
        self.iput(&i)
    }

    /// Gives the blocks of an inode back that has neither names nor users, as far as one step goes; says
    /// whether it has none left.
    fn release(&mut self, i: &mut Inode) -> Result<bool> {
        if i.d.has_blocks() && self.truncate_step(i, 0)? > 0 {
            return Ok(false);
        }
        self.drop_xattr(i)?;
        self.hashes.remove(i.ino);
        Ok(true)
    }

    /// Frees an inode whose blocks are gone.
    fn ifree(&mut self, i: &mut Inode) -> Result<()> {
        self.unorphan(i)?;
        self.forget_inode(i.ino)
    }

    /// Frees a new inode that never got a name.
    pub fn unmake(&mut self, i: &mut Inode) -> Result<()> {
        i.d.nlink = 0.into();
        self.iput(i)?;
        while !self.release(i)? {}
        self.ifree(i)
    }

    /// A step of freeing what has neither names nor users; says whether there is more.
    pub fn inactivate(&mut self) -> Result<bool> {
        let Some(ino) = self.inactive.pop_front() else { return Ok(false) };
        let more = !self.inactive.is_empty();
        if self.refs.has(Ino(ino)) {
            return Ok(more);
        }
        let mut i = match self.iget(Ino(ino)) {
            Err(e) if e.errno() == Errno::ESTALE => return Ok(more),
            got => got?,
        };
        if i.d.nlink.get() > 0 {
            return Ok(more);
        }
        if self.release(&mut i)? {
            self.ifree(&mut i)?;
            return Ok(more);
        }
        self.inactive.push_front(ino);
        Ok(true)
    }

    // The orphan list: inodes in use without names.

    /// Puts an inode without names on the list.
    pub fn orphan(&mut self, i: &mut Inode) -> Result<()> {
        if self.orphans.contains_key(&i.ino.0) {
            return Ok(());
        }
        if planted(Flaw::NoOrphans) {
            return Ok(());
        }
        let head = u64::from(self.state.orphan);
        self.orphans.insert(i.ino.0, 0);
        if let Some(before) = self.orphans.get_mut(&head) {
            *before = i.ino.0;
        }
        i.d.next_orphan = (head as u32).into();
        self.iput(i)?;
        self.state.orphan = i.ino.0 as u32;
        Ok(())
    }

    /// Takes an inode off the list.
    pub fn unorphan(&mut self, i: &mut Inode) -> Result<()> {
        let Some(before) = self.orphans.remove(&i.ino.0) else { return Ok(()) };
        self.unnamed.remove(&i.ino.0);
        let next = u64::from(i.d.next_orphan.get());
        i.d.next_orphan = 0.into();
        self.iput(i)?;
        if let Some(b) = self.orphans.get_mut(&next) {
            *b = before;
        }
        if before == 0 {
            self.state.orphan = next as u32;
            return Ok(());
        }
        let mut b = self.iget(Ino(before))?;
        b.d.next_orphan = (next as u32).into();
        self.iput(&b)
    }

    /// Finds at mount what was open and unlinked at the crash.
    pub fn load_orphans(&mut self) -> Result<()> {
        let (mut at, mut before) = (u64::from(self.state.orphan), 0);
        while at != 0 {
            let i = self.iget(Ino(at))?;
            if self.orphans.insert(at, before).is_some() || i.d.nlink.get() != 0 {
                return Err(i
                    .corrupt("next_orphan", i.d.next_orphan, "a list without a loop, of inodes without names")
                    .into());
            }
            self.inactive.push_back(at);
            (before, at) = (at, i.d.next_orphan.get().into());
        }
        Ok(())
    }

    /// At the unmount nobody uses anything any more.
    pub fn abandon_orphans(&mut self) {
        self.refs = Default::default();
        let mut all: Vec<u64> = self.orphans.keys().copied().collect();
        all.sort_unstable();
        self.inactive.extend(all);
    }

    // Extended attributes: one block, or less.

    /// All attributes.
    pub fn xattrs(&mut self, i: &Inode) -> Result<Xattrs> {
        if i.d.xattr.frag.get() == 0 {
            return Ok(Vec::new());
        }
        let name = xattr_name(i.ino);
        if !self.cache.contains(name) {
            let frags = self.geom.frags_for(i.d.xattr_len.get() as usize);
            let bytes = self.read_block(i.d.xattr, frags, Kind::Xattr)?;
            self.cache.insert(name, Arc::new(bytes));
        }
        let broken = || i.corrupt("xattr", "a broken list", "names and values").into();
        let bytes = self.cache.get(name).ok_or(Errno::EIO)?;
        let (head, rest) = XattrHeader::read_from_prefix(&bytes[..]).map_err(|_| Errno::EIO)?;
        if head.magic.get() != XATTR_MAGIC || u64::from(head.ino.get()) != i.ino.0 {
            return Err(broken());
        }
        rest.get(..head.len.get() as usize).and_then(parse_xattrs).ok_or_else(broken)
    }

    /// Checks a change of one attribute and returns the new list.
    pub fn xattr_change(&mut self, i: &Inode, name: &[u8], value: Option<&[u8]>, how: XattrMode) -> Result<Xattrs> {
        let mut list = self.xattrs(i)?;
        let at = list.iter().position(|(n, _)| n == name);
        match (at.and_then(|n| list.get_mut(n)), value, how) {
            (Some(_), Some(_), XattrMode::Create) => return Err(Errno::EEXIST.into()),
            (None, Some(_), XattrMode::Replace) | (None, None, _) => return Err(Errno::ENODATA.into()),
            (Some(old), Some(v), _) => old.1 = v.to_vec(),
            (None, Some(v), _) => list.push((name.to_vec(), v.to_vec())),
            (Some(_), None, _) => list.retain(|(n, _)| n != name),
        }
        let bytes: usize = list.iter().map(|(n, v)| 4 + n.len() + v.len()).sum();
        if bytes > self.geom.block_size() - XATTR_HEADER {
            return Err(Errno::ENOSPC.into());
        }
        Ok(list)
    }

    /// Stores the list.
    pub fn xattr_store(&mut self, i: &mut Inode, list: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        if list.is_empty() {
            self.drop_xattr(i)?;
            return self.iput(i);
        }
        let body = encode_xattrs(list);
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
        let name = xattr_name(i.ino);
        if !self.cache.contains(name) {
            self.cache.insert(name, Arc::new(Vec::new()));
        }
        self.cache.modify(name, |buf| *buf = bytes);
        if i.d.xattr.frag.get() == 0 {
            i.d.xattr.frag = UNWRITTEN.into();
        }
        i.d.xattr_len = (len as u32).into();
        self.count(i, new, old);
        self.iput(i)
    }

    fn drop_xattr(&mut self, i: &mut Inode) -> Result<()> {
        if i.d.xattr.frag.get() == 0 {
            return Ok(());
        }
        self.mark(i.ino)?;
        self.bury(i, Place::Xattr, i.d.xattr);
        self.cache.remove(xattr_name(i.ino));
        let old = self.geom.frags_for(i.d.xattr_len.get() as usize);
        (i.d.xattr, i.d.xattr_len) = (Pointer::default(), 0.into());
        self.count(i, 0, old);
        self.iput(i)
    }
}

fn encode_xattrs(list: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (n, v) in list {
        out.extend_from_slice(&[n.len() as u8, 0]);
        out.extend_from_slice(&(v.len() as u16).to_le_bytes());
        out.extend_from_slice(n);
        out.extend_from_slice(v);
    }
    out
}

/// Decodes a list of attributes; `None` if it is broken, or names one twice.
pub(crate) fn parse_xattrs(mut bytes: &[u8]) -> Option<Xattrs> {
    let mut out: Xattrs = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<4>() {
        let (n, v) = (usize::from(head[0]), usize::from(u16::from_le_bytes([head[2], head[3]])));
        let name = rest.get(..n)?;
        if n == 0 || out.iter().any(|(known, _)| known == name) {
            return None;
        }
        out.push((name.to_vec(), rest.get(n..n + v)?.to_vec()));
        bytes = rest.get(n + v..)?;
    }
    if bytes.is_empty() { Some(out) } else { None }
}
