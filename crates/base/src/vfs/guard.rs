//! File flags, as chattr(1) sets them, over any engine: what they forbid, and where they are kept.
//!
//! The flags of an inode are a hidden extended attribute, four bytes in little-endian order. An inode without flags has
//! none. The root has another one, [`MARK`], once any inode has had flags; it is durable before the first inode gets
//! some. Without it no call asks for flags, so that volumes without flags pay nothing.
//!
//! The rules are those of ext4, except that this module does not know how a file was opened: a write to an append-only
//! file may repeat bytes that are there, as the kernel's pages do, and add to them.

use super::*;
use bitflags::bitflags;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

bitflags! {
    /// Flags of a file, with the numbers of `FS_IOC_GETFLAGS`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct FileFlags: u32 {
        /// Nothing of it changes.
        const IMMUTABLE = 0x10;
        /// It only grows.
        const APPEND = 0x20;
        /// dump(8) leaves it out.
        const NODUMP = 0x40;
    }
}

/// Attributes with this prefix belong to this program: they are neither listed nor returned.
const HIDDEN: &[u8] = b"system.arbor.";
const FLAGS: &[u8] = b"system.arbor.flags";
const MARK: &[u8] = b"system.arbor.flagged";

/// A file system that keeps and heeds [`FileFlags`].
pub struct Guarded {
    fs: Arc<dyn FileSystem>,
    /// Whether any inode may have flags.
    flagged: AtomicBool,
}

/// What a call wants to do to an inode.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    /// Change it in place: contents, attributes, the inode that a name in it names.
    Change,
    /// Add a name to it, or contents.
    Add,
}

/// Wraps a mounted file system, so that it keeps and heeds file flags. If its root is damaged, it is asked for the
/// flags of every file.
pub fn with_flags(fs: Arc<dyn FileSystem>) -> Arc<dyn FileSystem> {
    let flagged = match fs.getxattr(fs.root(), MARK) {
        Err(e) => !matches!(e.errno(), Errno::ENODATA | Errno::EOPNOTSUPP),
        Ok(_) => true,
    };
    Arc::new(Guarded { fs, flagged: AtomicBool::new(flagged) })
}

fn is_hidden(name: &[u8]) -> bool {
    name.starts_with(HIDDEN)
}

impl Guarded {
    fn flags_of(&self, ino: Ino) -> Result<FileFlags> {
        if !self.flagged.load(Relaxed) {
            return Ok(FileFlags::empty());
        }
        match self.fs.getxattr(ino, FLAGS) {
            Ok(value) => {
                let bits = <[u8; 4]>::try_from(value.as_slice()).map(u32::from_le_bytes);
                Ok(FileFlags::from_bits_retain(bits.unwrap_or(0)))
            }
            Err(e) if e.errno() == Errno::ENODATA => Ok(FileFlags::empty()),
            Err(e) => Err(e),
        }
    }

    fn may(&self, ino: Ino, act: Act) -> Result<()> {
        let flags = self.flags_of(ino)?;
        let forbids = flags.contains(FileFlags::IMMUTABLE) || act == Act::Change && flags.contains(FileFlags::APPEND);
        if forbids { Err(Errno::EPERM.into()) } else { Ok(()) }
    }

    /// Checks that a name may be removed or replaced: its directory and the inode it names allow it. For a missing name
    /// the engine returns the error.
    fn may_lose(&self, parent: Ino, name: &[u8]) -> Result<()> {
        if !self.flagged.load(Relaxed) {
            return Ok(());
        }
        self.may(parent, Act::Change)?;
        if !is_name(name) {
            return Ok(());
        }
        let Ok(entry) = self.fs.lookup(parent, name) else { return Ok(()) };
        let may = self.may(entry.ino, Act::Change);
        self.fs.forget(entry.ino, 1);
        may
    }

    /// Updates of times that the kernel makes by itself are no change, and touching is one only for an immutable file.
    /// Access times are kept even then.
    fn may_set(&self, ino: Ino, set: &SetAttr) -> Result<()> {
        let of_read = SetAttr { atime: set.atime, ctime: Some(SetTime::Kept), ..SetAttr::default() };
        if *set == of_read {
            return Ok(());
        }
        let is_at = |t: Option<SetTime>| matches!(t, Some(SetTime::At(_)));
        let own = set.ctime.is_some() && set.mode.is_none() && set.uid.is_none() && set.gid.is_none();
        let changes = set.mode.is_some() || set.uid.is_some() || set.gid.is_some() || set.size.is_some();
        let sets_time = !own && (is_at(set.atime) || is_at(set.mtime));
        let act = if changes || sets_time || set.btime.is_some() { Act::Change } else { Act::Add };
        self.may(ino, act)
    }

    fn may_write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        let flags = self.flags_of(ino)?;
        if flags.contains(FileFlags::IMMUTABLE) {
            return Err(Errno::EPERM.into());
        }
        if !flags.contains(FileFlags::APPEND) {
            return Ok(());
        }
        let size = self.fs.getattr(ino)?.size;
        let old = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX).min(data.len());
        let mut there = vec![0; old];
        let read = self.fs.read(ino, offset, &mut there)?;
        if offset > size || read != old || data.get(..old) != Some(&there[..]) {
            return Err(Errno::EPERM.into());
        }
        Ok(())
    }

    /// Marks the root, durably: from now on calls must look for flags.
    fn mark(&self) -> Result<()> {
        if self.flagged.load(Relaxed) {
            return Ok(());
        }
        let root = self.fs.root();
        self.fs.setxattr(root, MARK, &[], XattrMode::Set)?;
        self.fs.fsync(root, false)?;
        self.flagged.store(true, Relaxed);
        Ok(())
    }
}

impl FileSystem for Guarded {
    fn root(&self) -> Ino {
        self.fs.root()
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Entry> {
        self.fs.lookup(parent, name)
    }

    fn forget(&self, ino: Ino, count: u64) {
        self.fs.forget(ino, count);
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.fs.getattr(ino)
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        self.may_set(ino, set)?;
        self.fs.setattr(ino, set)
    }

    fn change(&self, ino: Ino, set: &SetAttr, xattrs: &[XattrChange<'_>]) -> Result<Attr> {
        self.may(ino, Act::Change)?;
        self.fs.change(ino, set, xattrs)
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.fs.readlink(ino)
    }

    fn mknod(&self, cx: &Cx, parent: Ino, name: &[u8], mode: u32, rdev: u32) -> Result<Entry> {
        self.may(parent, Act::Add)?;
        self.fs.mknod(cx, parent, name, mode, rdev)
    }

    fn mkdir(&self, cx: &Cx, parent: Ino, name: &[u8], mode: u32) -> Result<Entry> {
        self.may(parent, Act::Add)?;
        self.fs.mkdir(cx, parent, name, mode)
    }

    fn symlink(&self, cx: &Cx, parent: Ino, name: &[u8], target: &[u8]) -> Result<Entry> {
        self.may(parent, Act::Add)?;
        self.fs.symlink(cx, parent, name, target)
    }

    fn create(&self, cx: &Cx, parent: Ino, name: &[u8], new: &New<'_>) -> Result<Entry> {
        self.may(parent, Act::Add)?;
        self.fs.create(cx, parent, name, new)
    }

    fn make_file(&self, cx: &Cx, parent: Ino, name: &[u8], mode: u32, data: &[u8]) -> Result<()> {
        self.may(parent, Act::Add)?;
        self.fs.make_file(cx, parent, name, mode, data)
    }

    fn tmpfile(&self, cx: &Cx, parent: Ino, mode: u32) -> Result<Entry> {
        self.may(parent, Act::Add)?;
        self.fs.tmpfile(cx, parent, mode)
    }

    fn link(&self, ino: Ino, new_parent: Ino, new_name: &[u8]) -> Result<Entry> {
        self.may(new_parent, Act::Add)?;
        self.may(ino, Act::Change)?;
        self.fs.link(ino, new_parent, new_name)
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.may_lose(parent, name)?;
        self.fs.unlink(parent, name)
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.may_lose(parent, name)?;
        self.fs.rmdir(parent, name)
    }

    fn rename(
        &self,
        cx: &Cx,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        self.may_lose(parent, name)?;
        self.may(new_parent, Act::Add)?;
        if self.flagged.load(Relaxed)
            && is_name(new_name)
            && let Ok(entry) = self.fs.lookup(new_parent, new_name)
        {
            self.fs.forget(entry.ino, 1);
            self.may_lose(new_parent, new_name)?;
        }
        self.fs.rename(cx, parent, name, new_parent, new_name, flags)
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.fs.read(ino, offset, buf)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        if self.flagged.load(Relaxed) {
            self.may_write(ino, offset, data)?;
        }
        self.fs.write(ino, offset, data)
    }

    fn readdir(&self, ino: Ino, cookie: u64, f: &mut dyn FnMut(&DirEntry<'_>) -> bool) -> Result<()> {
        self.fs.readdir(ino, cookie, f)
    }

    fn readdir_plus(
        &self,
        ino: Ino,
        cookie: u64,
        f: &mut dyn FnMut(&DirEntry<'_>, Option<&Entry>) -> bool,
    ) -> Result<()> {
        self.fs.readdir_plus(ino, cookie, f)
    }

    fn getattr_each(&self, inos: &[Ino], f: &mut dyn FnMut(Result<Attr>)) {
        self.fs.getattr_each(inos, f);
    }

    fn is_faster_by_number(&self) -> bool {
        self.fs.is_faster_by_number()
    }

    fn fsync(&self, ino: Ino, data_only: bool) -> Result<()> {
        self.fs.fsync(ino, data_only)
    }

    fn syncfs(&self) -> Result<()> {
        self.fs.syncfs()
    }

    fn fallocate(&self, ino: Ino, mode: FallocMode, offset: u64, len: u64) -> Result<()> {
        let adds = (FallocMode::KEEP_SIZE | mode) == FallocMode::KEEP_SIZE;
        self.may(ino, if adds { Act::Add } else { Act::Change })?;
        self.fs.fallocate(ino, mode, offset, len)
    }

    fn seek(&self, ino: Ino, offset: u64, whence: Seek) -> Result<u64> {
        self.fs.seek(ino, offset, whence)
    }

    fn copy_range(&self, from: Ino, from_offset: u64, to: Ino, to_offset: u64, len: u64) -> Result<u64> {
        let appends = || Ok::<_, Error>(self.fs.getattr(to)?.size == to_offset);
        let act = if self.flagged.load(Relaxed) && appends()? { Act::Add } else { Act::Change };
        self.may(to, act)?;
        self.fs.copy_range(from, from_offset, to, to_offset, len)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        if is_hidden(name) {
            return Err(Errno::ENODATA.into());
        }
        self.fs.getxattr(ino, name)
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        if is_hidden(name) {
            return Err(Errno::EOPNOTSUPP.into());
        }
        self.may(ino, Act::Change)?;
        self.fs.setxattr(ino, name, value, mode)
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let mut names = self.fs.listxattr(ino)?;
        names.retain(|name| !is_hidden(name));
        Ok(names)
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        if is_hidden(name) {
            return Err(Errno::ENODATA.into());
        }
        self.may(ino, Act::Change)?;
        self.fs.removexattr(ino, name)
    }

    fn flags(&self, ino: Ino) -> Result<FileFlags> {
        self.flags_of(ino)
    }

    fn set_flags(&self, ino: Ino, flags: FileFlags) -> Result<()> {
        let old = self.flags_of(ino)?;
        if flags == old {
            return Ok(());
        }
        if flags.is_empty() {
            return self.fs.removexattr(ino, FLAGS);
        }
        self.mark()?;
        self.fs.setxattr(ino, FLAGS, &flags.bits().to_le_bytes(), XattrMode::Set)
    }

    fn label(&self) -> Result<Vec<u8>> {
        self.fs.label()
    }

    fn set_label(&self, label: &[u8]) -> Result<()> {
        self.fs.set_label(label)
    }

    fn statfs(&self) -> Result<StatFs> {
        self.fs.statfs()
    }

    fn trim(&self, range: &TrimRange) -> Result<u64> {
        self.fs.trim(range)
    }

    fn clean(&self, budget: u64) -> Result<Cleaned> {
        self.fs.clean(budget)
    }

    fn scrub(&self, at: u64) -> Result<Scrubbed> {
        self.fs.scrub(at)
    }

    fn background(&self, now: Time) -> Time {
        self.fs.background(now)
    }

    fn wants_background(&self) -> bool {
        self.fs.wants_background()
    }

    fn read_ahead(&self) {
        self.fs.read_ahead();
    }

    fn wants_read_ahead(&self) -> bool {
        self.fs.wants_read_ahead()
    }

    fn tree_version(&self) -> Option<u64> {
        self.fs.tree_version()
    }

    fn failure(&self) -> Option<String> {
        self.fs.failure()
    }

    fn damage_passed_by(&self) -> Vec<String> {
        self.fs.damage_passed_by()
    }

    fn fail(&self, why: &str) {
        self.fs.fail(why);
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.fs.counters()
    }

    fn unmount(&self) -> Result<()> {
        self.fs.unmount()
    }
}

#[cfg(test)]
mod tests {
    /// A method with a default that is not passed on would be lost without a word.
    #[test]
    fn every_method_is_passed_on() {
        let names = |text: &'static str| {
            let lines = text.lines().filter_map(|line| line.strip_prefix("    fn "));
            lines.filter_map(|rest| rest.split(['(', '<']).next()).collect::<Vec<_>>()
        };
        let here = include_str!("guard.rs");
        let here = names(here.split_once("impl FileSystem for Guarded {").unwrap().1);
        let all = names(include_str!("mod.rs").split_once("pub trait FileSystem").unwrap().1);
        assert!(all.len() > 30, "{all:?}");
        let missing: Vec<_> = all.iter().filter(|name| !here.contains(name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
