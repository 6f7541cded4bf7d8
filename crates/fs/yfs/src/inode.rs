//! Inodes: reading, changing and freeing them, the AG inode recovery list (4.4), extended attributes.
//!
//! An inode has no copy of its own in core. It is decoded from its chunk's buffer, and stored there by the transaction
//! that changes it; only what delayed writes will change (size, times) waits in [`crate::delayed::Delayed`].

use crate::buffers::What;
use crate::format::*;
use crate::planted::{Flaw, planted};
use crate::volume::{Core, RestartReason, Volume};
use arbor_base::cache::Name;
use arbor_base::layout::Corrupt;
use arbor_base::vfs::{Attr, Errno, Error, Ino, Result, Time, mode};
use arbor_kit::inodes::{Change, InodeStore};
use arbor_kit::lifetimes::{self, Lifetimes, Lives, Orphans};
use arbor_kit::xattr::Xattrs;
use zerocopy::{FromBytes, IntoBytes};

/// Inode chunks that a walk asks for at a time, in bytes.
const MOST_CHUNK_BYTES: usize = 4 << 20;
/// Greatest link count.
pub(crate) const LINK_MAX: u32 = 65_000;

/// A decoded inode and where it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inode {
    pub ino: Ino,
    pub d: Dinode,
    chunk: Daddr,
    at: usize,
}

impl Inode {
    pub fn is_dir(&self) -> bool {
        self.d.mode.get() & mode::IFMT == mode::IFDIR
    }

    pub fn is_file(&self) -> bool {
        self.d.mode.get() & mode::IFMT == mode::IFREG
    }

    pub fn is_symlink(&self) -> bool {
        self.d.mode.get() & mode::IFMT == mode::IFLNK
    }

    pub fn format(&self) -> Format {
        self.d.format().unwrap_or_default()
    }

    pub fn corrupt(
        &self,
        field: &'static str,
        found: impl std::fmt::Display,
        expected: impl std::fmt::Display,
    ) -> Corrupt {
        Corrupt::new("inode", field, self.ino.0.saturating_mul(SECTOR), found, expected)
    }
}

impl Core {
    /// The inode, if it is in use; else `ESTALE`.
    pub fn iget(&mut self, ino: Ino) -> Result<Inode> {
        let (chunk, at) = self.geom.inode_at(ino).ok_or(Errno::ESTALE)?;
        let len = self.geom.chunk_size();
        // Something else lies there: it is the number that is wrong.
        if self.cache.peek(Name::Block(chunk.0)).is_some_and(|found| found.len() != len) {
            return Err(Errno::ESTALE.into());
        }
        let bytes = self.buffer(chunk, len, What::Chunk)?;
        let (d, _) = Dinode::read_from_prefix(bytes.get(at..).unwrap_or(&[])).map_err(|_| Errno::ESTALE)?;
        if let Some(damage) = self.damaged.get(ino) {
            return Err(damage);
        }
        if d.magic.get() != INODE_MAGIC || d.format == Format::Free as u8 || d.ino.get() != ino.0 {
            return Err(Errno::ESTALE.into());
        }
        let i = Inode { ino, d, chunk, at };
        if usize::from(d.xattr_inline.get()) > self.geom.area() {
            return Err(i.corrupt("xattr_inline", d.xattr_inline, "no more than the area").into());
        }
        Ok(i)
    }

    /// Asks for the chunks of inodes that are not in the cache.
    pub fn want_inodes(&mut self, inodes: impl Iterator<Item = Ino>) -> Result<()> {
        if !self.attempt.may_batch() {
            return Ok(());
        }
        let len = self.geom.chunk_size();
        let most = (self.cache.limit() / 8).min(MOST_CHUNK_BYTES) / len;
        let mut chunks: Vec<Daddr> = Vec::new();
        for (chunk, _) in inodes.filter_map(|ino| self.geom.inode_at(ino)) {
            if chunks.len() < most && !chunks.contains(&chunk) && !self.cache.contains(Name::Block(chunk.0)) {
                chunks.push(chunk);
            }
        }
        if chunks.len() < 2 {
            return Ok(());
        }
        Err(self.attempt.give_up(RestartReason::Buffers(chunks.into_iter().map(|c| (c, len, What::Chunk)).collect())))
    }

    /// Like [`Core::iget`], but `ENOTDIR` unless it is a directory.
    pub fn iget_dir(&mut self, ino: Ino) -> Result<Inode> {
        let i = self.iget(ino)?;
        if i.is_dir() { Ok(i) } else { Err(Errno::ENOTDIR.into()) }
    }

    /// Stores the fixed part in the inode's buffer; only what differs is logged.
    pub fn iput(&mut self, i: &Inode) -> Result<()> {
        self.buffer(i.chunk, self.geom.chunk_size(), What::Chunk)?;
        self.write(i.chunk, Seal::Inodes, i.at, i.d.as_bytes())
    }

    /// The area after the fixed part, without inline attributes.
    pub fn area<R>(&mut self, i: &Inode, f: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let (lo, hi) = self.area_range(i);
        let bytes = self.buffer(i.chunk, self.geom.chunk_size(), What::Chunk)?;
        Ok(f(bytes.get(lo..hi).unwrap_or(&[])))
    }

    /// Bytes that the area has for data, entries or a root node.
    pub fn area_len(&self, i: &Inode) -> usize {
        self.geom.area() - usize::from(i.d.xattr_inline.get())
    }

    fn area_range(&self, i: &Inode) -> (usize, usize) {
        let lo = i.at + DINODE;
        (lo, lo + self.area_len(i))
    }

    /// Overwrites bytes of the area.
    pub fn area_write(&mut self, i: &Inode, at: usize, bytes: &[u8]) -> Result<()> {
        let (lo, hi) = self.area_range(i);
        if lo + at + bytes.len() > hi {
            return Err(i.corrupt("area", at + bytes.len(), hi - lo).into());
        }
        self.write(i.chunk, Seal::Inodes, lo + at, bytes)
    }

    /// Makes the area all zeros: an empty file, directory or root node.
    pub fn area_clear(&mut self, i: &Inode) -> Result<()> {
        let zeros = vec![0; self.area_len(i)];
        self.area_write(i, 0, &zeros)
    }

    /// Makes a new inode in the open transaction.
    pub fn inew(&mut self, ag: u32, mode: u32, uid: u32, gid: u32, now: Time) -> Result<Inode> {
        let dir = mode & mode::IFMT == mode::IFDIR;
        let (ino, old) = self.alloc_inode(ag, dir)?;
        let (chunk, at) = self.geom.inode_at(ino).ok_or(Errno::EIO)?;
        let mut d = Dinode {
            magic: INODE_MAGIC.into(),
            crc: old.crc,
            ino: ino.0.into(),
            generation: (old.generation.get().wrapping_add(1)).into(),
            mode: mode.into(),
            uid: uid.into(),
            gid: gid.into(),
            nlink: if dir { 2 } else { 1 }.into(),
            format: Format::Inline as u8,
            ..Dinode::default()
        };
        d.set_atime(now);
        d.set_mtime(now);
        d.set_ctime(now);
        d.set_btime(now);
        let i = Inode { ino, d, chunk, at };
        // An inode that was never used is all zeros, except in a crafted image.
        if old.magic.get() != 0 || !self.area(&i, is_zero)? {
            self.area_clear(&i)?;
        }
        self.iput(&i)?;
        Ok(i)
    }

    /// The inode that lies where a new one is to be. None if that is damaged, or in use.
    pub fn free_slot(&mut self, ino: Ino) -> Result<Option<Dinode>> {
        let (chunk, at) = self.geom.inode_at(ino).ok_or(Errno::EIO)?;
        let bytes = self.buffer(chunk, self.geom.chunk_size(), What::Chunk)?;
        let (old, _) = Dinode::read_from_prefix(bytes.get(at..).unwrap_or(&[])).map_err(|_| Errno::EIO)?;
        let in_use = Corrupt::new("inode", "format", ino.0 * SECTOR, old.format, "free, as the chunk's mask says");
        let damage = self.damaged.get(ino).or((old.format != Format::Free as u8).then(|| in_use.into()));
        Ok(match damage {
            Some(c) => {
                self.health.pass_by(c);
                None
            }
            None => Some(old),
        })
    }

    /// Attributes, with what delayed writes have changed.
    pub fn attr_of(&self, i: &Inode) -> Attr {
        let d = &i.d;
        let delayed = self.delayed.get(i.ino);
        let frags = d.frags.get() + delayed.map_or(0, |x| x.reserved());
        let inline = i.format() == Format::Inline && frags == 0 && d.size.get() > 0;
        Attr {
            ino: i.ino,
            generation: d.generation.get().into(),
            mode: d.mode.get(),
            nlink: d.nlink.get(),
            uid: d.uid.get(),
            gid: d.gid.get(),
            rdev: d.rdev.get(),
            size: delayed.map_or(d.size.get(), |x| x.size),
            blocks: if inline { 1 } else { frags * self.geom.frag_sectors() },
            blksize: 128 * 1024,
            atime: d.atime(),
            mtime: delayed.map_or(d.mtime(), |x| x.mtime),
            ctime: delayed.map_or(d.ctime(), |x| x.ctime),
            btime: d.btime(),
            unsettled: delayed.is_some(),
        }
    }

    pub fn ag_of_number(&self, ino: Ino) -> Result<u32> {
        let (chunk, _) = self.geom.inode_at(ino).ok_or(Errno::ESTALE)?;
        Ok(self.geom.ag_of(self.geom.frag_of(chunk)))
    }

    /// AG of an inode.
    pub fn inode_ag(&self, i: &Inode) -> u32 {
        self.geom.ag_of(self.geom.frag_of(i.chunk))
    }

    /// Loads, at a mount, the inodes that were open and unlinked at the crash.
    pub fn load_orphans(&mut self, ag: u32) -> Result<()> {
        let head = self.space.get(ag).map_or(0, |a| a.recovery);
        let loaded = lifetimes::load(self, head, |core, ino, twice| {
            let i = core.iget(ino)?;
            if !twice && i.d.nlink.get() == 0 {
                return Ok(i);
            }
            Err(i.corrupt("next", i.d.next, "a recovery list without a loop, of inodes without names").into())
        });
        // Those behind one that cannot be read wait for fsck.
        match loaded {
            Err(e @ (Error::Corrupt(_) | Error::Io(_))) => {
                self.health.pass_by(e);
                Ok(())
            }
            loaded => loaded,
        }
    }

    /// Frees an inode whose blocks are gone.
    fn ifree(&mut self, i: &mut Inode) -> Result<()> {
        self.free_xattr_block(i)?;
        let (generation, dir) = (i.d.generation, i.is_dir());
        i.d = Dinode { magic: INODE_MAGIC.into(), crc: i.d.crc, ino: i.ino.0.into(), generation, ..Dinode::default() };
        self.iput(i)?;
        self.free_inode(i.ino, dir)
    }

    /// Lowers the link count of an inode by one, in the open transaction.
    pub fn drop_link(&mut self, i: &mut Inode, now: Time) -> Result<()> {
        let left = if i.is_dir() { 0 } else { i.d.nlink.get().saturating_sub(1) };
        i.d.nlink = left.into();
        i.d.set_ctime(now);
        if let Some(d) = self.delayed.get_mut(i.ino) {
            d.ctime = now;
        }
        if left > 0 {
            return self.iput(i);
        }
        // An unused inode is freed at once, if one transaction can do it.
        lifetimes::lost(self, i)
    }

    /// Frees the blocks of an inode that has neither names nor users, as far as the open transaction goes; returns
    /// whether none are left.
    fn release_blocks(&mut self, i: &mut Inode) -> Result<bool> {
        self.delayed.remove(i.ino);
        self.cache.drop_pages(i.ino, 0);
        self.versions.change(i.ino);
        if i.is_dir() {
            self.dir_clear(i)?;
        } else if i.is_symlink() {
            if i.format() != Format::Inline {
                let (start, frags) = self.symlink_block(i)?;
                self.free_block(start, frags)?;
            }
        } else {
            return Ok(self.truncate_step(i, 0)? == 0);
        }
        Ok(true)
    }

    /// Frees inodes that have neither names nor users, as far as one transaction goes.
    pub fn inactivate(&mut self, now: Time) -> Result<bool> {
        if self.lives.next_inactive().is_none() {
            return Ok(false);
        }
        self.begin()?;
        let mut more = true;
        while more && !self.tx_full() {
            more = lifetimes::inactivate(self)?;
        }
        self.commit(now);
        Ok(more)
    }

    pub fn set_ctime(&mut self, i: &mut Inode, now: Time) {
        i.d.set_ctime(now);
        if let Some(d) = self.delayed.get_mut(i.ino) {
            d.ctime = now;
        }
    }

    pub fn apply(&mut self, i: &mut Inode, set: &Change) {
        let d = &mut i.d;
        d.mode = set.mode.map_or(d.mode, |m| (d.mode.get() & mode::IFMT | m).into());
        (d.uid, d.gid) = (set.uid.map_or(d.uid, Into::into), set.gid.map_or(d.gid, Into::into));
        set.atime.into_iter().for_each(|t| d.set_atime(t));
        set.mtime.into_iter().for_each(|t| d.set_mtime(t));
        set.btime.into_iter().for_each(|t| d.set_btime(t));
        set.ctime.into_iter().for_each(|t| d.set_ctime(t));
        if let Some(x) = self.delayed.get_mut(i.ino) {
            x.ctime = set.ctime.unwrap_or(x.ctime);
            x.mtime = set.mtime.unwrap_or(x.mtime);
        }
    }

    // Extended attributes: a list at the end of the inode, or in a block.

    /// All attributes.
    pub fn xattr_list(&mut self, i: &Inode) -> Result<Xattrs> {
        let inline = usize::from(i.d.xattr_inline.get());
        let bytes = if i.d.xattr.get() != 0 {
            let (addr, len) = self.xattr_buffer(i)?;
            self.buffer(addr, len, What::Block(BlockType::Xattr))?.get(HEADER..).unwrap_or(&[]).to_vec()
        } else if inline > 0 {
            let end = i.at + self.geom.inode_size();
            let bytes = self.buffer(i.chunk, self.geom.chunk_size(), What::Chunk)?;
            bytes.get(end - inline..end).unwrap_or(&[]).to_vec()
        } else {
            return Ok(Vec::new());
        };
        parse_xattrs(&bytes).ok_or_else(|| i.corrupt("xattr", "a broken list", "names and values").into())
    }

    fn xattr_buffer(&self, i: &Inode) -> Result<(Daddr, usize)> {
        let (start, frags) = (Frag(i.d.xattr.get()), i.d.xattr_frags.get());
        let len = u64::from(frags) * self.geom.frag_size();
        if !self.geom.valid_run(start, frags) || len > crate::recover::MAX_BUFFER as u64 {
            return Err(i.corrupt("xattr", start.0, "a run inside an AG").into());
        }
        Ok((self.geom.daddr(start), len as usize))
    }

    /// Fails with `ENOSPC` unless this list can be stored; begins nothing yet.
    pub fn check_xattrs(&mut self, i: &Inode, list: &Xattrs, grows: bool) -> Result<()> {
        if xattr_bytes(list) > XATTR_MAX - HEADER {
            return Err(Errno::ENOSPC.into());
        }
        if grows {
            self.need_space(self.xattr_frags(list))?;
        }
        self.need_xattr_run(i, list)
    }

    /// Like [`Core::check_xattrs`], for an inode that is yet to be made with its name.
    pub fn need_new_xattrs(&mut self, list: &Xattrs) -> Result<()> {
        if list.is_empty() {
            return Ok(());
        }
        if xattr_bytes(list) > XATTR_MAX - HEADER {
            return Err(Errno::ENOSPC.into());
        }
        let (frags, block) = (self.xattr_frags(list), u64::from(self.geom.block_frags()));
        let inode = u64::from(self.geom.chunk_frags()) + 4 * block;
        self.need_space(frags + inode + self.dir_insert_frags())?;
        self.need_runs((frags + inode).div_ceil(block) as u32 + 6)?;
        if frags <= block {
            return Ok(());
        }
        // The inode and its name are stored first: they may split the only long run.
        self.need_run(self.geom.chunk_frags() + 2 * (frags + self.dir_insert_frags()) as u32)
    }

    fn xattr_frags(&self, list: &Xattrs) -> u64 {
        (xattr_bytes(list) + HEADER).div_ceil(self.geom.frag_size() as usize) as u64
    }

    /// Stores the list: inline if it fits beside the contents of the area, else in a new block.
    pub fn xattr_store(&mut self, i: &mut Inode, list: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let need = xattr_bytes(list);
        let bytes = encode_xattrs(list);
        let used = self.area_used(i)?;
        let room = self.geom.area().saturating_sub(used);
        self.free_xattr_block(i)?;
        if need <= room && need <= self.geom.area() / 2 {
            // The area shrinks or grows at its end; what becomes area again must be zero.
            let old = usize::from(i.d.xattr_inline.get());
            let end = self.geom.area();
            i.d.xattr_inline = 0.into();
            let zeros = vec![0; old.max(need)];
            self.area_write(i, end - zeros.len(), &zeros)?;
            self.area_write(i, end - need, &bytes)?;
            i.d.xattr_inline = (need as u16).into();
            return Ok(());
        }
        let old = usize::from(i.d.xattr_inline.get());
        i.d.xattr_inline = 0.into();
        self.area_write(i, self.geom.area() - old, &vec![0; old])?;
        let frags = (need + HEADER).div_ceil(self.geom.frag_size() as usize) as u32;
        let e = self.alloc_run(self.inode_ag(i), frags)?;
        let addr = self.geom.daddr(e.start);
        self.init_block(addr, BlockType::Xattr, i.ino.0, (u64::from(frags) * self.geom.frag_size()) as usize)?;
        self.write(addr, Seal::Block, HEADER, &bytes)?;
        (i.d.xattr, i.d.xattr_frags) = (e.start.0.into(), frags.into());
        i.d.frags = (i.d.frags.get() + u64::from(frags)).into();
        Ok(())
    }

    /// Fails with `ENOSPC` unless the attributes fit the inode, or one run for their block is available: asked before
    /// the transaction begins, as the free space of a full volume may be in pieces.
    pub fn need_xattr_run(&mut self, i: &Inode, list: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let need = xattr_bytes(list);
        if need <= self.geom.area().saturating_sub(self.area_used(i)?) && need <= self.geom.area() / 2 {
            return Ok(());
        }
        let frags = (need + HEADER).div_ceil(self.geom.frag_size() as usize) as u32;
        self.need_run(frags)
    }

    fn free_xattr_block(&mut self, i: &mut Inode) -> Result<()> {
        if i.d.xattr.get() == 0 {
            return Ok(());
        }
        let frags = i.d.xattr_frags.get();
        self.free_block(Frag(i.d.xattr.get()), frags)?;
        i.d.frags = (i.d.frags.get().saturating_sub(u64::from(frags))).into();
        (i.d.xattr, i.d.xattr_frags) = (0.into(), 0.into());
        Ok(())
    }

    /// Bytes of the area that its present contents need.
    fn area_used(&mut self, i: &Inode) -> Result<usize> {
        // What a delayed write has made longer needs no other place as long as the inode has room for it.
        let delayed = self.delayed.get(i.ino).map_or(0, |x| x.size);
        let delayed = if delayed <= self.area_len(i) as u64 { delayed } else { 0 };
        let size = i.d.size.get().max(delayed) as usize;
        match i.format() {
            Format::Inline if i.is_dir() => self.area(i, crate::body::used_bytes),
            Format::Inline => Ok(size.min(self.geom.area())),
            // A root node needs room to grow: half of the area is kept for it.
            _ => {
                let value = if i.is_dir() { DIR_VALUE } else { EXTENT_VALUE };
                let count = self.area(i, |a| arbor_base::layout::get_u16(a, 0).unwrap_or(0))?;
                Ok((NODE_HEADER + (8 + value) * usize::from(count)).max(self.geom.area() / 2))
            }
        }
    }
}

impl Volume {
    /// Frees inodes that have neither names nor users.
    pub(crate) fn drain_inactive(&self) -> Result<()> {
        while self.run(|core| {
            if !core.health.is_writable() {
                return Ok(false);
            }
            core.inactivate(self.clock.now())
        })? {}
        Ok(())
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|w| u128::from_le_bytes(*w) == 0) && rest.iter().all(|b| *b == 0)
}

fn xattr_bytes(list: &[(Vec<u8>, Vec<u8>)]) -> usize {
    list.iter().map(|(n, v)| XATTR_HEAD + n.len() + v.len()).sum()
}

fn encode_xattrs(list: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (n, v) in list {
        let head = XattrHead { name_len: n.len() as u8, reserved: 0, value_len: (v.len() as u32).into() };
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(n);
        out.extend_from_slice(v);
    }
    out
}

/// Decodes a list of attributes; `None` if it is broken, or names one twice.
pub(crate) fn parse_xattrs(mut bytes: &[u8]) -> Option<Xattrs> {
    let mut out = Vec::new();
    while let Ok((head, rest)) = XattrHead::ref_from_prefix(bytes) {
        if head.name_len == 0 {
            break;
        }
        let (n, v) = (usize::from(head.name_len), head.value_len.get() as usize);
        let name = rest.get(..n)?;
        let value = rest.get(n..n.checked_add(v)?)?;
        out.push((name.to_vec(), value.to_vec()));
        bytes = rest.get(n + v..)?;
    }
    let mut names: Vec<&Vec<u8>> = out.iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    let twice = names.iter().zip(names.iter().skip(1)).any(|(a, b)| a == b);
    if twice { None } else { Some(out) }
}

impl Lives for Core {
    fn lives(&mut self) -> &mut Lifetimes {
        &mut self.lives
    }

    fn changes(&mut self) -> u64 {
        self.tx.changes()
    }

    fn note_damage_met(&mut self) {
        self.health.note_damage();
    }
}

impl InodeStore for Core {
    type Inode = Inode;

    fn number(i: &Inode) -> Ino {
        i.ino
    }

    fn iget(&mut self, ino: Ino) -> Result<Inode> {
        self.iget(ino)
    }

    fn iput(&mut self, i: &Inode) -> Result<()> {
        self.iput(i)
    }
}

/// The recovery lists of the AGs.
impl Orphans for Core {
    fn head(&mut self, of: Ino) -> Result<u64> {
        let ag = self.ag_of_number(of)?;
        Ok(self.space.get(ag).map_or(0, |a| a.recovery))
    }

    fn set_head(&mut self, of: Ino, to: u64) -> Result<()> {
        if to != 0 && planted(Flaw::NoRecoveryList) {
            return Ok(());
        }
        let ag = self.ag_of_number(of)?;
        self.set_recovery(ag, to)
    }

    fn next(i: &Inode) -> u64 {
        i.d.next.get()
    }

    fn set_next(&mut self, i: &mut Inode, to: u64) {
        i.d.next = to.into();
    }

    fn release(&mut self, i: &mut Inode) -> Result<bool> {
        self.need_freeing(i.ino)?;
        self.release_blocks(i)
    }

    fn free(&mut self, i: &mut Inode) -> Result<()> {
        self.ifree(i)
    }
}
