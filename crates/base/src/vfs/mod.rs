//! The seams between front ends and engines: [`FileSystem`] (mounted), [`Engine`] (a kind of file system), [`Clock`].

pub mod acl;
mod engine;
mod error;
mod guard;
mod interrupt;
mod label;
mod names;
mod steps;
mod types;

pub use engine::*;
pub use error::*;
pub use guard::{FileFlags, Guarded, with_flags};
pub use interrupt::*;
pub use label::*;
pub use names::*;
pub use steps::make_by_steps;
pub use types::*;

/// The reason for which a volume has failed when a call has panicked: the state in core may be half changed.
pub const PANICKED: &str = "a call has panicked";

/// A mounted file system, at the level of inodes. Every method may be called from any thread.
///
/// # References
///
/// [`lookup`](FileSystem::lookup), the calls that create something, [`link`](FileSystem::link)
/// and every entry accepted from [`readdir_plus`](FileSystem::readdir_plus) add one to the
/// inode's lookup count; [`forget`](FileSystem::forget) takes away. An inode whose link count is
/// zero lives on until its lookup count is zero (open-unlinked files). An inode number is not
/// used again for another file while it has a count.
///
/// # Durability
///
/// Nothing is durable before [`fsync`](FileSystem::fsync), [`syncfs`](FileSystem::syncfs) or
/// [`unmount`](FileSystem::unmount) returns, except what [`background`](FileSystem::background)
/// has written meanwhile. `docs/semantics.md` states what a crash may take.
///
/// # Calls at the same time
///
/// Each call happens at one moment between its beginning and its end, with these exceptions, which
/// take several steps: [`write`](FileSystem::write) of more than 64 KiB, a truncation that frees
/// very much, [`make_file`](FileSystem::make_file) in an engine without a step for it,
/// [`fallocate`](FileSystem::fallocate), [`copy_range`](FileSystem::copy_range), and the walk of a
/// directory. Others may see, and come, between the steps; a caller that does not want that keeps
/// them apart (the kernel does, by the lock of the inode).
///
/// # Errors
///
/// Names are 1 to 255 bytes without `/` and NUL, and not `.` or `..`, else `EINVAL` or
/// `ENAMETOOLONG`. A number that names no inode gives `ESTALE`. A call that has changed nothing may end with
/// `EINTR` when [`interrupted`] says so.
pub trait FileSystem: Send + Sync {
    /// The root directory.
    fn root(&self) -> Ino;

    /// The entry `name` of directory `parent`; `ENOENT` if there is none. Understands `..`
    /// and `.` too.
    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Entry>;

    /// Takes `count` from the lookup count of `ino`. Never fails; never waits for the device.
    fn forget(&self, ino: Ino, count: u64);

    /// Attributes of `ino`.
    fn getattr(&self, ino: Ino) -> Result<Attr>;

    /// Changes the given attributes in one step and returns all of them.
    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr>;

    /// Changes attributes (no size) and extended attributes in one step.
    fn change(&self, _ino: Ino, _set: &SetAttr, _xattrs: &[XattrChange<'_>]) -> Result<Attr> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Target of a symbolic link; `EINVAL` for anything else.
    fn readlink(&self, ino: Ino) -> Result<Vec<u8>>;

    /// Creates a regular file, fifo, socket or device node: `mode` holds type and permissions
    /// (umask already applied). A set-group-id parent hands its group down.
    fn mknod(&self, cx: &Cx, parent: Ino, name: &[u8], mode: u32, rdev: u32) -> Result<Entry>;

    /// Creates a directory. A set-group-id parent hands down its group and the bit.
    fn mkdir(&self, cx: &Cx, parent: Ino, name: &[u8], mode: u32) -> Result<Entry>;

    /// Creates a symbolic link to `target` (1 to 4095 bytes).
    fn symlink(&self, cx: &Cx, parent: Ino, name: &[u8], target: &[u8]) -> Result<Entry>;

    /// Creates a file or directory with extended attributes, in one step: after a crash no name is there without them.
    fn create(&self, cx: &Cx, parent: Ino, name: &[u8], new: &New<'_>) -> Result<Entry> {
        match FileType::from_mode(new.mode) {
            _ if !new.xattrs.is_empty() => Err(Errno::EOPNOTSUPP.into()),
            Some(FileType::Dir) => self.mkdir(cx, parent, name, new.mode),
            _ => self.mknod(cx, parent, name, new.mode, new.rdev),
        }
    }

    /// Makes a regular file that holds `data`, to which the caller gets no reference: a name and an inode that are there
    /// whole, or an error and nothing. `mode` holds the permissions (umask already applied). One step in an engine that
    /// can; else a file that is created, then written: others may see it, and a crash may take the end of it.
    fn make_file(&self, cx: &Cx, parent: Ino, name: &[u8], mode: u32, data: &[u8]) -> Result<()> {
        make_by_steps(self, cx, (parent, name), mode, data)
    }

    /// Creates a regular file without a name; [`link`](FileSystem::link) can give it one.
    fn tmpfile(&self, cx: &Cx, parent: Ino, mode: u32) -> Result<Entry>;

    /// Gives `ino` another name; `EPERM` for directories, `EMLINK` past the limit, `ENOENT` for a
    /// file that has lost its last name.
    fn link(&self, ino: Ino, new_parent: Ino, new_name: &[u8]) -> Result<Entry>;

    /// Removes a name that is not a directory's (`EISDIR`).
    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()>;

    /// Removes an empty directory.
    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()>;

    /// Moves a name, replacing the target atomically. `cx` owns a whiteout if one is made.
    fn rename(
        &self,
        cx: &Cx,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()>;

    /// Reads up to `buf.len()` bytes at `offset`; fewer only at the end of the file.
    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Writes all of `data` at `offset`, or fails and writes none of it, except that a write
    /// that meets the end of space may be short (never zero: then `ENOSPC`).
    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize>;

    /// Offers the entries after `cookie` (0 for all), `.` and `..` first, until `f` returns `false`:
    /// that entry is not consumed. Each entry carries the cookie that continues after it; cookies
    /// stay valid while others create and delete, and across remounts. An entry present during
    /// the whole walk is seen exactly once.
    fn readdir(&self, ino: Ino, cookie: u64, f: &mut dyn FnMut(&DirEntry<'_>) -> bool) -> Result<()>;

    /// Like [`readdir`](FileSystem::readdir) with attributes. Accepting an entry (`true`) adds
    /// one to its lookup count, except for those that are offered without [`Entry`]: `.` and `..`, and
    /// names whose inode is damaged, for which a lookup returns the error.
    fn readdir_plus(
        &self,
        ino: Ino,
        cookie: u64,
        f: &mut dyn FnMut(&DirEntry<'_>, Option<&Entry>) -> bool,
    ) -> Result<()>;

    /// Gives `f` what [`getattr`](FileSystem::getattr) returns for each of these inodes, in their order.
    fn getattr_each(&self, inos: &[Ino], f: &mut dyn FnMut(Result<Attr>)) {
        inos.iter().for_each(|ino| f(self.getattr(*ino)));
    }

    /// Whether inodes are found faster in the order of their numbers than in that in which a walk offers them.
    fn is_faster_by_number(&self) -> bool {
        false
    }

    /// Makes data, size and metadata of `ino` durable, with the name it was reached by and every
    /// metadata operation that came before. `data_only` may leave out timestamps.
    fn fsync(&self, ino: Ino, data_only: bool) -> Result<()>;

    /// Makes everything durable.
    fn syncfs(&self) -> Result<()>;

    /// Allocates, punches or zeroes a range; `EOPNOTSUPP` for modes that are not carried.
    fn fallocate(&self, ino: Ino, mode: FallocMode, offset: u64, len: u64) -> Result<()>;

    /// Next data or hole at or after `offset`; `ENXIO` past the end.
    fn seek(&self, ino: Ino, offset: u64, whence: Seek) -> Result<u64>;

    /// Copies up to `len` bytes between regular files; returns how many. By reading and writing, unless an engine
    /// knows better.
    fn copy_range(&self, from: Ino, from_offset: u64, to: Ino, to_offset: u64, len: u64) -> Result<u64> {
        for ino in [from, to] {
            match self.getattr(ino)?.file_type() {
                FileType::File => {}
                FileType::Dir => return Err(Errno::EISDIR.into()),
                _ => return Err(Errno::EINVAL.into()),
            }
        }
        let len = len.min(self.getattr(from)?.size.saturating_sub(from_offset));
        if from == to && from_offset < to_offset.saturating_add(len) && to_offset < from_offset.saturating_add(len) {
            return Err(Errno::EINVAL.into());
        }
        let mut buf = vec![0; len.min(1 << 20) as usize];
        let mut done = 0;
        while done < len {
            let want = (len - done).min(buf.len() as u64) as usize;
            let at = from_offset.checked_add(done).ok_or(Errno::EOVERFLOW)?;
            let n = self.read(from, at, &mut buf[..want])?;
            if n == 0 {
                break;
            }
            let to_at = to_offset.checked_add(done).ok_or(Errno::EFBIG)?;
            match self.write(to, to_at, &buf[..n]) {
                Ok(w) => done += w as u64,
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    /// Value of an extended attribute; `ENODATA` if there is none.
    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>>;

    /// Sets an extended attribute: name of 1 to 255 bytes (`ERANGE`), value of at most 64 KiB
    /// (`E2BIG`), `ENOSPC` when the engine has no room for it.
    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()>;

    /// Names of the extended attributes, in an order that the engine chooses.
    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>>;

    /// Removes an extended attribute; `ENODATA` if there is none.
    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()>;

    /// Flags of a file; see [`with_flags`].
    fn flags(&self, _ino: Ino) -> Result<FileFlags> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Sets all flags of a file.
    fn set_flags(&self, _ino: Ino, _flags: FileFlags) -> Result<()> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// The volume's label.
    fn label(&self) -> Result<Vec<u8>> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Changes the label, durably: after a crash it is the old or the new one.
    fn set_label(&self, _label: &[u8]) -> Result<()> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Space and inode counts, exact at the moment of the call.
    fn statfs(&self) -> Result<StatFs>;

    /// Discards free space in `range`; returns the bytes discarded.
    fn trim(&self, range: &TrimRange) -> Result<u64>;

    /// Makes room in one piece out of scattered free space, as a log's cleaner does: reads about `budget` bytes, at
    /// least one segment. `EOPNOTSUPP` where nothing has to be cleaned.
    fn clean(&self, _budget: u64) -> Result<Cleaned> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Verifies the checksums of structures and contents on the device after position `at` (0 at first), some in each
    /// call. `EOPNOTSUPP` where contents have none.
    fn scrub(&self, _at: u64) -> Result<Scrubbed> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Does work that is due at `now` (write-back, log flush, bitmap daemon, cleaning) and
    /// returns when to call again, at the latest. The caller's thread pays.
    fn background(&self, now: Time) -> Time;

    /// Whether work has piled up that should not wait for the deadline of
    /// [`background`](FileSystem::background). Cheap.
    fn wants_background(&self) -> bool {
        false
    }

    /// Reads blocks ahead that are likely to be wanted next, as earlier calls suggest. For a thread that
    /// runs beside the callers; never needed.
    fn read_ahead(&self) {}

    /// Whether [`read_ahead`](FileSystem::read_ahead) has something to do. Cheap.
    fn wants_read_ahead(&self) -> bool {
        false
    }

    /// A number that changes before a directory leaves its place: while it stays the same, the directory
    /// that a path without links led to is still there. `None` if nobody counts.
    fn tree_version(&self) -> Option<u64> {
        None
    }

    /// Why the file system has turned read-only, if it has.
    fn failure(&self) -> Option<String>;

    /// Damage that was met beside what calls had to do, so that none has failed by it, since this was asked last.
    fn damage_passed_by(&self) -> Vec<String> {
        Vec::new()
    }

    /// Turns the volume read-only for good, as a failed write does; for a caller that has caught a panic of a call. An
    /// earlier reason is kept.
    fn fail(&self, why: &str);

    /// Named counters (cache hits, log bytes, flushes ...), cheap to read.
    fn counters(&self) -> Vec<(&'static str, u64)>;

    /// Makes everything durable and marks the volume clean. Later calls give `EIO`; dropping
    /// without it is a crash.
    fn unmount(&self) -> Result<()>;
}
