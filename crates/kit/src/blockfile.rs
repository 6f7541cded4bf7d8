//! Files of blocks: reading, writing and resizing of files whose pages are their logical blocks.
//!
//! For engines that take space block by block in the call that writes (FFS, plain; LFS reserves it there); not for yFS,
//! which allocates extents at write-back. An engine that implements [`BlockFiles`] says where blocks lie and gives them
//! space, and gets [`Inodes`] and [`Data`] by that. All changes of a page go through [`balloc`](BlockFiles::balloc).
//! Bytes of a page past the end of its file are zero.
//!
//! Called by `served.rs` and `locked.rs`, through these two traits.

use crate::blockmap::Mapped;
use crate::calls::State;
use crate::data::Data;
use crate::inodes::Change;
use crate::namespace::Namespace;
use crate::served::Inodes;
use crate::xattr::Xattrs;
use arbor_base::cache::Name;
use arbor_base::vfs::{Errno, FallocMode, FileType, Ino, Result, Seek, SetAttr, Time, mode};
use std::ops::Range;
use std::sync::Arc;

/// Changes the bytes of a page; the second argument is the length it has to get.
pub type Fill<'a> = &'a mut dyn FnMut(&mut Vec<u8>, usize);

/// A decoded inode, as the engine has it.
pub trait BlockFile: Clone {
    /// Its number.
    fn ino(&self) -> Ino;

    /// The type bits of its mode.
    fn kind(&self) -> u32;

    /// Its file type.
    fn file_type(&self) -> FileType {
        FileType::from_mode(self.kind()).unwrap_or(FileType::File)
    }

    /// Whether it is a directory.
    fn is_dir(&self) -> bool {
        self.kind() == mode::IFDIR
    }

    /// Whether it is a regular file.
    fn is_file(&self) -> bool {
        self.kind() == mode::IFREG
    }

    /// Whether it is a symbolic link.
    fn is_symlink(&self) -> bool {
        self.kind() == mode::IFLNK
    }

    /// Its length in bytes.
    fn size(&self) -> u64;

    /// Changes the length, and nothing else.
    fn set_size(&mut self, to: u64);

    /// Sets mtime and ctime to `now`.
    fn set_modified(&mut self, now: Time);

    /// Restores mtime and ctime from `old`.
    fn restore_modified(&mut self, old: &Self);
}

/// Implements [`BlockFile`] for a decoded inode with its number in `ino`, and an on-disk structure with the usual
/// fields in `d`.
#[macro_export]
macro_rules! block_file {
    ($t:ty) => {
        #[allow(dead_code, reason = "no engine has to use all of them")]
        impl $t {
            /// Its length in bytes.
            pub fn size(&self) -> u64 {
                self.d.size.get()
            }

            pub fn file_type(&self) -> $crate::vfs::FileType {
                $crate::blockfile::BlockFile::file_type(self)
            }

            pub fn is_dir(&self) -> bool {
                $crate::blockfile::BlockFile::is_dir(self)
            }

            pub fn is_file(&self) -> bool {
                $crate::blockfile::BlockFile::is_file(self)
            }

            pub fn is_symlink(&self) -> bool {
                $crate::blockfile::BlockFile::is_symlink(self)
            }
        }

        impl $crate::blockfile::BlockFile for $t {
            fn ino(&self) -> $crate::vfs::Ino {
                self.ino
            }

            fn kind(&self) -> u32 {
                self.d.kind()
            }

            fn size(&self) -> u64 {
                self.d.size.get()
            }

            fn set_size(&mut self, to: u64) {
                self.d.size = to.into();
            }

            fn set_modified(&mut self, now: $crate::vfs::Time) {
                (self.d.mtime, self.d.ctime) = (now.into(), now.into());
            }

            fn restore_modified(&mut self, old: &$t) {
                (self.d.mtime, self.d.ctime) = (old.d.mtime, old.d.ctime);
            }
        }
    };
}

/// A decoded inode whose on-disk structure has the usual fields; see [`usual_fields!`](crate::usual_fields).
pub trait UsualFields: BlockFile {
    /// Its link count.
    fn links(&self) -> u32;

    /// Changes the link count.
    fn set_links(&mut self, to: u32);

    /// Sets ctime to `now`.
    fn set_changed(&mut self, now: Time);

    /// Sets the number of a device node.
    fn set_rdev(&mut self, to: u32);

    /// Applies a change of attributes.
    fn change(&mut self, set: &Change);
}

/// Implements [`UsualFields`], and [`BlockFile`], for a decoded inode with its number in
/// `ino`, and in `d` an on-disk structure with fields `mode`, `nlink`, `uid`, `gid`, `rdev` (u32), `size` (u64), `atime`,
/// `mtime`, `ctime`, `btime`.
#[macro_export]
macro_rules! usual_fields {
    ($t:ty) => {
        $crate::block_file!($t);

        impl $t {
            /// Attributes as users see them, but for the generation, the space and the best size of a request.
            pub fn attributes(&self) -> $crate::vfs::Attr {
                let d = &self.d;
                $crate::vfs::Attr {
                    ino: self.ino,
                    generation: 0,
                    mode: d.mode.get(),
                    nlink: d.nlink.get(),
                    uid: d.uid.get(),
                    gid: d.gid.get(),
                    rdev: d.rdev.get(),
                    size: d.size.get(),
                    blocks: 0,
                    blksize: 0,
                    atime: d.atime.into(),
                    mtime: d.mtime.into(),
                    ctime: d.ctime.into(),
                    btime: d.btime.into(),
                    unsettled: false,
                }
            }
        }

        impl $crate::blockfile::UsualFields for $t {
            fn links(&self) -> u32 {
                self.d.nlink.get()
            }

            fn set_links(&mut self, to: u32) {
                self.d.nlink = to.into();
            }

            fn set_changed(&mut self, now: $crate::vfs::Time) {
                self.d.ctime = now.into();
            }

            fn set_rdev(&mut self, to: u32) {
                self.d.rdev = to.into();
            }

            fn change(&mut self, set: &$crate::inodes::Change) {
                let d = &mut self.d;
                d.mode = set.mode.map_or(d.mode, |m| (d.kind() | m).into());
                d.uid = set.uid.map_or(d.uid, Into::into);
                d.gid = set.gid.map_or(d.gid, Into::into);
                d.atime = set.atime.map_or(d.atime, Into::into);
                d.mtime = set.mtime.map_or(d.mtime, Into::into);
                d.ctime = set.ctime.map_or(d.ctime, Into::into);
                d.btime = set.btime.map_or(d.btime, Into::into);
            }
        }
    };
}

/// The blocks of files. The page of block `lbn` is `Name::data(ino, lbn)` in the cache.
pub trait BlockFiles: State + Namespace + Mapped<Inode: BlockFile> {
    /// Length of a block, as a power of two.
    fn block_shift(&self) -> u32;

    /// Longest file, in bytes.
    fn max_size(&self) -> u64;

    /// The page of a block, read if it is not in the cache; `None` for a hole.
    fn page(&mut self, f: &Self::Inode, lbn: u64) -> Result<Option<Arc<Vec<u8>>>>;

    /// Reads bytes of a file for which no page is needed; returns whether that could be done.
    fn read_packed(&mut self, _f: &Self::Inode, _offset: u64, _buf: &mut [u8]) -> Result<bool> {
        Ok(false)
    }

    /// How long the page of a block is.
    fn page_len(&self, f: &Self::Inode, lbn: u64) -> usize;

    /// Gives a block the space that a file of `size` bytes has there, changes its page, which must be in the cache,
    /// makes the file at least that long, and stores the inode in its buffer.
    fn balloc(&mut self, f: &mut Self::Inode, lbn: u64, size: u64, fill: Fill<'_>) -> Result<()>;

    /// Frees a block that is no hole, which leaves a hole, and stores the inode in its buffer.
    fn release_block(&mut self, f: &mut Self::Inode, lbn: u64) -> Result<()>;

    /// Called when a file is about to have `size` bytes, new ones from `from` on, which lies behind its last block: extends the
    /// fragments of that block to what such a file has there (FFS, LFS: up to a whole block).
    fn lengthen_tail(&mut self, f: &mut Self::Inode, from: u64, size: u64) -> Result<()>;

    /// Frees one step's worth of blocks from the end of a file, down to size `to`; returns the new size.
    fn truncate_step(&mut self, f: &mut Self::Inode, to: u64) -> Result<u64>;

    /// Truncates a file back to `to`, after a write that failed had lengthened its tail or made it longer.
    fn undo_growth(&mut self, f: &mut Self::Inode, to: u64) -> Result<()>;

    /// Called when a block was written to its end.
    fn block_filled(&mut self, _f: &mut Self::Inode, _lbn: u64) -> Result<()> {
        Ok(())
    }

    /// Called when the last block of a file is about to be overwritten without having been read: its bytes on disk past
    /// the end of the file are unknown, and may not be zero.
    fn tail_unseen(&mut self, _f: &Self::Inode, _lbn: u64) {}

    /// Whether another step of a resize can follow in the same call.
    fn has_room_for_step(&mut self) -> bool {
        true
    }

    /// Whether another block can be written in the same step.
    fn may_write_on(&self) -> bool {
        true
    }
}

impl<C: BlockFiles> Inodes for C {
    fn set_attr(&mut self, ino: Ino, set: &SetAttr, now: Time) -> Result<()> {
        let mut i = self.iget(ino)?;
        self.apply(&mut i, &Change::new(set, now));
        self.iput(&i)
    }

    fn set_size(&mut self, ino: Ino, to: u64, now: Time) -> Result<bool> {
        step_size(self, ino, to, now)
    }

    fn has_room_for_step(&mut self) -> bool {
        BlockFiles::has_room_for_step(self)
    }

    fn target(&mut self, ino: Ino) -> Result<Vec<u8>> {
        self.target_of(ino)
    }

    fn xattrs(&mut self, ino: Ino) -> Result<Xattrs> {
        let i = self.iget(ino)?;
        self.xattr_list(&i)
    }

    fn set_xattrs(&mut self, ino: Ino, list: &Xattrs, _grows: bool, set: &SetAttr, now: Time) -> Result<()> {
        self.check_xattrs(list)?;
        let mut i = self.iget(ino)?;
        self.xattr_store(&mut i, list)?;
        self.apply(&mut i, &Change::new(set, now));
        self.iput(&i)
    }
}

impl<C: BlockFiles> Data for C {
    fn read_file(&mut self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        read(self, ino, offset, buf)
    }

    fn write_file(&mut self, ino: Ino, offset: u64, data: &[u8], now: Time) -> Result<usize> {
        write(self, ino, offset, data, now)
    }

    fn seek_file(&mut self, ino: Ino, offset: u64, whence: Seek) -> Result<u64> {
        seek(self, ino, offset, whence)
    }

    fn begin_fallocate(&mut self, ino: Ino, end: u64, now: Time) -> Result<()> {
        begin_fallocate(self, ino, end, now)
    }

    fn falloc_step(&mut self, ino: Ino, how: FallocMode, offset: u64, end: u64, now: Time) -> Result<u64> {
        falloc_step(self, ino, how, offset, end, now)
    }
}

/// Name of a page.
fn page_name<C: BlockFiles>(f: &C::Inode, lbn: u64) -> Name {
    Name::data(f.ino(), lbn)
}

/// A regular file; `EISDIR` or `EINVAL` for anything else.
fn regular<C: BlockFiles>(core: &mut C, ino: Ino) -> Result<C::Inode> {
    let f = core.iget(ino)?;
    match f.kind() {
        mode::IFREG => Ok(f),
        mode::IFDIR => Err(Errno::EISDIR.into()),
        _ => Err(Errno::EINVAL.into()),
    }
}

/// The block that holds byte `at`, the offset in the block, and how many of `len` bytes it holds.
fn piece<C: BlockFiles>(core: &C, at: u64, len: usize) -> (u64, usize, usize) {
    let lbn = at >> core.block_shift();
    let within = (at - (lbn << core.block_shift())) as usize;
    (lbn, within, ((1 << core.block_shift()) - within).min(len))
}

/// Reads up to `buf.len()` bytes at `offset`.
fn read<C: BlockFiles>(core: &mut C, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let f = regular(core, ino)?;
    let len = f.size().saturating_sub(offset).min(buf.len() as u64) as usize;
    if core.read_packed(&f, offset, buf.get_mut(..len).unwrap_or_default())? {
        return Ok(len);
    }
    let mut done = 0;
    while done < len {
        let (lbn, within, n) = piece(core, offset + done as u64, len - done);
        let Some(out) = buf.get_mut(done..done + n) else { break };
        match core.page(&f, lbn)? {
            None => out.fill(0),
            Some(page) => {
                out.copy_from_slice(page.get(within..within + n).ok_or(Errno::EIO)?);
                // A long call needs no more of the pages before.
                core.cache().trim_clean();
            }
        }
        done += n;
    }
    Ok(done)
}

/// Writes `data` at `offset`; returns how many bytes were written, fewer if space ran out.
fn write<C: BlockFiles>(core: &mut C, ino: Ino, offset: u64, data: &[u8], now: Time) -> Result<usize> {
    let mut f = regular(core, ino)?;
    let end = offset.checked_add(data.len() as u64).filter(|e| *e <= core.max_size()).ok_or(Errno::EFBIG)?;
    if data.is_empty() {
        return Ok(0);
    }
    let old_size = f.size();
    // One that begins before that comes to the last block in its turn, if there is space for what is before it.
    let is_behind =
        old_size.checked_sub(1).is_some_and(|last| last >> core.block_shift() < offset >> core.block_shift());
    let at_start = core.changes();
    if is_behind {
        core.lengthen_tail(&mut f, offset, end)?;
    }
    let is_longer = core.changes() != at_start;
    let mut done = 0;
    while done < data.len() {
        let (lbn, within, n) = piece(core, offset + done as u64, data.len() - done);
        let bytes = data.get(done..done + n).unwrap_or(&[]);
        let before = core.changes();
        match write_block(core, &mut f, (lbn, within), bytes, now) {
            Ok(()) => done += n,
            Err(e) if done == 0 => {
                if is_longer && (e.errno() == Errno::ENOSPC || before == core.changes()) {
                    core.undo_growth(&mut f, old_size)?;
                }
                return Err(e);
            }
            // The blocks written so far count: a short write.
            Err(e) if e.errno() == Errno::ENOSPC || before == core.changes() => {
                core.health().note(&e);
                break;
            }
            Err(e) => return Err(e),
        }
        if within + n == 1 << core.block_shift() {
            core.block_filled(&mut f, lbn)?;
        }
        if !core.may_write_on() {
            break;
        }
    }
    core.calls().growth.wrote(ino, offset + done as u64);
    Ok(done)
}

fn write_block<C: BlockFiles>(
    core: &mut C,
    f: &mut C::Inode,
    (lbn, within): (u64, usize),
    bytes: &[u8],
    now: Time,
) -> Result<()> {
    prepare_page(core, f, lbn, within..within + bytes.len())?;
    let size = (lbn << core.block_shift()) + (within + bytes.len()) as u64;
    let old = f.clone();
    f.set_modified(now);
    let done = core.balloc(f, lbn, size, &mut |buf, len| {
        buf.resize(len, 0);
        if let Some(place) = buf.get_mut(within..within + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    });
    done.inspect_err(|_| f.restore_modified(&old))
}

/// Brings the page of a block into the cache before `range` of it is changed; does not read it if `range` covers it.
fn prepare_page<C: BlockFiles>(core: &mut C, f: &C::Inode, lbn: u64, range: Range<usize>) -> Result<()> {
    let name = page_name::<C>(f, lbn);
    if core.cache().contains(name) {
        return Ok(());
    }
    let block = 1u64 << core.block_shift();
    let valid = f.size().saturating_sub(lbn << core.block_shift()).min(block) as usize;
    if !core.is_mapped(f, lbn)? {
        core.cache().insert(name, Arc::new(Vec::new()));
    } else if range.start > 0 || range.end < valid {
        core.page(f, lbn)?;
    } else {
        let len = core.page_len(f, lbn);
        core.cache().insert(name, Arc::new(vec![0; len]));
        if valid < len {
            core.tail_unseen(f, lbn);
        }
    }
    Ok(())
}

/// Extends a file with a hole.
fn extend<C: BlockFiles>(core: &mut C, f: &mut C::Inode, to: u64, now: Time) -> Result<()> {
    if to > core.max_size() {
        return Err(Errno::EFBIG.into());
    }
    let shift = core.block_shift();
    let last = f.size().checked_sub(1).map(|at| at >> shift);
    match last.filter(|last| *last == to.saturating_sub(1) >> shift) {
        // Inside the last block: its space follows the size.
        Some(lbn) => {
            if core.page(f, lbn)?.is_some() {
                f.set_modified(now);
                return core.balloc(f, lbn, to, &mut |buf, len| buf.resize(len, 0));
            }
        }
        None => core.lengthen_tail(f, to, to)?,
    }
    f.set_size(to);
    f.set_modified(now);
    core.iput(f)
}

/// Does a step of resizing a file to `to`; returns whether the resize is done.
fn step_size<C: BlockFiles>(core: &mut C, ino: Ino, to: u64, now: Time) -> Result<bool> {
    let mut f = regular(core, ino)?;
    if to >= f.size() {
        extend(core, &mut f, to, now)?;
        core.calls().growth.cut(ino, to);
        return Ok(true);
    }
    core.calls().growth.cut(ino, to);
    f.set_modified(now);
    Ok(core.truncate_step(&mut f, to)? == to)
}

/// Finds the next data or hole, in units of blocks.
fn seek<C: BlockFiles>(core: &mut C, ino: Ino, offset: u64, whence: Seek) -> Result<u64> {
    let f = regular(core, ino)?;
    if offset >= f.size() {
        return Err(Errno::ENXIO.into());
    }
    let shift = core.block_shift();
    let end = f.size().div_ceil(1 << shift);
    match (whence, core.next_block(&f, offset >> shift, end, whence == Seek::Hole)?) {
        (_, Some(lbn)) => Ok((lbn << shift).clamp(offset, f.size())),
        (Seek::Hole, None) => Ok(f.size()),
        (Seek::Data, None) => Err(Errno::ENXIO.into()),
    }
}

/// Begins a fallocate of several steps up to byte `end`.
fn begin_fallocate<C: BlockFiles>(core: &mut C, ino: Ino, end: u64, now: Time) -> Result<()> {
    if end > core.max_size() {
        return Err(Errno::EFBIG.into());
    }
    let mut f = core.iget(ino)?;
    f.set_modified(now);
    core.iput(&f)?;
    core.calls().growth.begin(ino, f.size());
    Ok(())
}

/// Does a step of fallocate from `offset`: a block. Returns the offset of the next one.
fn falloc_step<C: BlockFiles>(
    core: &mut C,
    ino: Ino,
    how: FallocMode,
    offset: u64,
    end: u64,
    now: Time,
) -> Result<u64> {
    let mut f = core.iget(ino)?;
    let keep = how.contains(FallocMode::KEEP_SIZE);
    // The file may have become shorter since the call began.
    let end = if keep { end.min(f.size()) } else { end };
    if offset >= end {
        return Ok(u64::MAX);
    }
    let shift = core.block_shift();
    let lbn = offset >> shift;
    let stop = ((lbn + 1) << shift).min(end);
    if how.contains(FallocMode::PUNCH_HOLE) {
        return punch(core, &mut f, (offset, stop), end, now);
    }
    if !keep && stop > f.size() && f.size().saturating_sub(1) >> shift < lbn {
        core.lengthen_tail(&mut f, offset, stop)?;
    }
    let zero = how.contains(FallocMode::ZERO_RANGE);
    let present = core.is_mapped(&f, lbn)?;
    let (within, until) = ((offset - (lbn << shift)) as usize, (stop - (lbn << shift)) as usize);
    if present && !zero && stop <= f.size() {
        return Ok(stop);
    }
    prepare_page(core, &f, lbn, if present && !zero { 1..1 } else { within..until })?;
    f.set_modified(now);
    core.balloc(&mut f, lbn, if keep { 0 } else { stop }, &mut |buf, len| {
        buf.resize(len, 0);
        if let Some(place) = buf.get_mut(within..until.min(len)).filter(|_| zero) {
            place.fill(0);
        }
    })?;
    Ok(stop)
}

/// Punches a hole into one block; returns the offset of the next step, past a hole that is there already.
fn punch<C: BlockFiles>(
    core: &mut C,
    f: &mut C::Inode,
    (offset, stop): (u64, u64),
    end: u64,
    now: Time,
) -> Result<u64> {
    let shift = core.block_shift();
    let lbn = offset >> shift;
    let start = lbn << shift;
    if !core.is_mapped(f, lbn)? {
        let blocks = f.size().div_ceil(1 << shift);
        let next = core.next_block(f, lbn, blocks, false)?.map_or(end, |l| l << shift);
        return Ok(next.min(end).max(stop));
    }
    f.set_modified(now);
    if offset == start && stop >= f.size().min(start + (1 << shift)) {
        core.release_block(f, lbn)?;
        return Ok(stop);
    }
    core.page(f, lbn)?;
    let (from, until) = ((offset - start) as usize, (stop - start) as usize);
    core.balloc(f, lbn, 0, &mut |buf, _| {
        let until = until.min(buf.len());
        if let Some(place) = buf.get_mut(from..until) {
            place.fill(0);
        }
    })?;
    Ok(stop)
}

/// Stores the target of a new symbolic link in a block.
pub fn store_target<C: BlockFiles>(core: &mut C, f: &mut C::Inode, target: &[u8]) -> Result<()> {
    core.cache().insert(page_name::<C>(f, 0), Arc::new(Vec::new()));
    core.balloc(f, 0, target.len() as u64, &mut |buf, len| {
        buf.resize(len, 0);
        if let Some(place) = buf.get_mut(..target.len()) {
            place.copy_from_slice(target);
        }
    })
}
