//! Ids, attributes and arguments of the VFS seam.

use super::{Errno, Result};
use bitflags::bitflags;

/// An inode number, in the engine's own numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ino(pub u64);

impl std::fmt::Display for Ino {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Ino> for u64 {
    fn from(ino: Ino) -> u64 {
        ino.0
    }
}

/// A point in time: seconds since 1970-01-01 UTC (negative before) and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since the epoch.
    pub secs: i64,
    /// Nanoseconds, below 10^9.
    pub nanos: u32,
}

impl Time {
    /// This time plus `ms` milliseconds.
    pub fn plus_ms(self, ms: u64) -> Time {
        let nanos = u64::from(self.nanos) + (ms % 1000) * 1_000_000;
        Time {
            secs: self.secs.saturating_add((ms / 1000) as i64).saturating_add((nanos / 1_000_000_000) as i64),
            nanos: (nanos % 1_000_000_000) as u32,
        }
    }

    /// Milliseconds from `self` to `later`, 0 if it is not later.
    pub fn ms_until(self, later: Time) -> u64 {
        if later <= self {
            return 0;
        }
        let secs = later.secs.saturating_sub(self.secs).unsigned_abs();
        let ms = secs.saturating_mul(1000).saturating_add(u64::from(later.nanos) / 1_000_000);
        ms.saturating_sub(u64::from(self.nanos) / 1_000_000)
    }
}

/// Where an engine's time comes from.
pub trait Clock: Send + Sync {
    /// The time now. Never goes backward on a [`ManualClock`]; a system clock may be set.
    fn now(&self) -> Time;
}

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Time {
        match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
            Ok(d) => Time { secs: d.as_secs() as i64, nanos: d.subsec_nanos() },
            Err(_) => Time::default(),
        }
    }
}

/// A clock that moves only when told to, for repeatable runs.
#[derive(Debug, Default)]
pub struct ManualClock(parking_lot::Mutex<Time>);

impl ManualClock {
    /// A clock that stands at `now`.
    pub fn new(now: Time) -> ManualClock {
        ManualClock(parking_lot::Mutex::new(now))
    }

    /// Sets it, forwards or back.
    pub fn set(&self, now: Time) {
        *self.0.lock() = now;
    }

    /// Moves it on by `ms` milliseconds.
    pub fn advance_ms(&self, ms: u64) {
        let mut t = self.0.lock();
        *t = t.plus_ms(ms);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        *self.0.lock()
    }
}

/// The caller: it owns the inodes that the call creates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cx {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// File type bits of a mode (`S_IFMT` and friends), with Linux's values on every platform.
pub mod mode {
    /// Mask of the type bits.
    pub const IFMT: u32 = 0o170_000;
    /// Socket.
    pub const IFSOCK: u32 = 0o140_000;
    /// Symbolic link.
    pub const IFLNK: u32 = 0o120_000;
    /// Regular file.
    pub const IFREG: u32 = 0o100_000;
    /// Block device.
    pub const IFBLK: u32 = 0o060_000;
    /// Directory.
    pub const IFDIR: u32 = 0o040_000;
    /// Character device.
    pub const IFCHR: u32 = 0o020_000;
    /// Fifo.
    pub const IFIFO: u32 = 0o010_000;
    /// Set-user-id.
    pub const ISUID: u32 = 0o4000;
    /// Set-group-id.
    pub const ISGID: u32 = 0o2000;
    /// Sticky.
    pub const ISVTX: u32 = 0o1000;
}

/// Kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileType {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Symbolic link.
    Symlink,
    /// Fifo.
    Fifo,
    /// Socket.
    Socket,
    /// Character device.
    Char,
    /// Block device.
    Block,
}

impl FileType {
    /// The type in `mode`, if it holds a known one.
    pub fn from_mode(mode: u32) -> Option<FileType> {
        Some(match mode & self::mode::IFMT {
            self::mode::IFREG => FileType::File,
            self::mode::IFDIR => FileType::Dir,
            self::mode::IFLNK => FileType::Symlink,
            self::mode::IFIFO => FileType::Fifo,
            self::mode::IFSOCK => FileType::Socket,
            self::mode::IFCHR => FileType::Char,
            self::mode::IFBLK => FileType::Block,
            _ => return None,
        })
    }

    /// Its mode bits.
    pub fn mode(self) -> u32 {
        match self {
            FileType::File => mode::IFREG,
            FileType::Dir => mode::IFDIR,
            FileType::Symlink => mode::IFLNK,
            FileType::Fifo => mode::IFIFO,
            FileType::Socket => mode::IFSOCK,
            FileType::Char => mode::IFCHR,
            FileType::Block => mode::IFBLK,
        }
    }
}

/// Attributes of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// Distinguishes uses of one inode number over time.
    pub generation: u64,
    /// Type and permissions.
    pub mode: u32,
    /// Link count.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of device nodes, as Linux encodes it in 32 bits.
    pub rdev: u32,
    /// Size in bytes.
    pub size: u64,
    /// Allocated space in units of 512 bytes.
    pub blocks: u64,
    /// Preferred I/O size in bytes.
    pub blksize: u32,
    /// Last access.
    pub atime: Time,
    /// Last change of the data.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Creation.
    pub btime: Time,
    /// [`blocks`](Attr::blocks) is going to change by itself: written bytes have no blocks yet (delayed allocation).
    pub unsettled: bool,
}

impl Attr {
    /// Kind of file; regular if the mode holds none.
    pub fn file_type(&self) -> FileType {
        FileType::from_mode(self.mode).unwrap_or(FileType::File)
    }
}

/// Result of a lookup.
pub type Entry = Attr;

/// A new timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time of the call.
    Now,
    /// This time.
    At(Time),
    /// Keeps the time. For the last change of the inode: a reader's change of the access time does not count as one.
    Kept,
}

/// Attributes to change; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits (type bits are ignored).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size: truncates or extends with a hole; `EISDIR`, or `EINVAL` if it is not a regular file.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of data.
    pub mtime: Option<SetTime>,
    /// Last change of the inode (set by the kernel's write-back cache).
    pub ctime: Option<SetTime>,
    /// Creation.
    pub btime: Option<SetTime>,
}

/// The mode of a node that [`super::FileSystem::mknod`] may create: a regular file if it holds no type.
pub fn node_mode(mode: u32) -> super::Result<u32> {
    let mode = if mode & mode::IFMT == 0 { mode | mode::IFREG } else { mode };
    match FileType::from_mode(mode) {
        None | Some(FileType::Dir | FileType::Symlink) => Err(super::Errno::EINVAL.into()),
        Some(_) => Ok(mode & (mode::IFMT | 0o7777)),
    }
}

/// The mode of what [`super::FileSystem::create`] may create: a node or a directory.
pub fn new_mode(mode: u32) -> super::Result<u32> {
    if mode & mode::IFMT == mode::IFDIR { Ok(mode & (mode::IFMT | 0o7777)) } else { node_mode(mode) }
}

/// What [`super::FileSystem::create`] makes.
#[derive(Clone, Copy, Debug, Default)]
pub struct New<'a> {
    /// Type and permissions: anything but a symbolic link.
    pub mode: u32,
    /// Device number of a device node.
    pub rdev: u32,
    /// Extended attributes: names and values.
    pub xattrs: &'a [(&'a [u8], &'a [u8])],
}

/// A name and the new value of an extended attribute, `None` to have it removed if it is there.
pub type XattrChange<'a> = (&'a [u8], Option<&'a [u8]>);

/// One name of a directory.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    /// Inode it names.
    pub ino: Ino,
    /// Kind of file.
    pub file_type: FileType,
    /// Continues after this entry.
    pub cookie: u64,
    /// The name.
    pub name: &'a [u8],
}

bitflags! {
    /// Flags of renameat2(2).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RenameFlags: u32 {
        /// Fail with `EEXIST` if the target exists.
        const NOREPLACE = 1;
        /// Exchange the two names.
        const EXCHANGE = 2;
        /// Leave a whiteout (character device 0) at the source.
        const WHITEOUT = 4;
    }

    /// Modes of fallocate(2) with Linux's values; anything else gives `EOPNOTSUPP`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct FallocMode: u32 {
        /// Do not change the size.
        const KEEP_SIZE = 1;
        /// Make a hole; needs `KEEP_SIZE`.
        const PUNCH_HOLE = 2;
        /// Make it read as zeros, with space.
        const ZERO_RANGE = 16;
    }
}

/// What [`super::FileSystem::seek`] looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The next byte that is not in a hole.
    Data,
    /// The next byte in a hole; the end of the file counts.
    Hole,
}

/// Whether an extended attribute must or must not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrMode {
    /// Either.
    #[default]
    Set,
    /// `EEXIST` if it is there.
    Create,
    /// `ENODATA` if it is not.
    Replace,
}

/// Space and inode counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Unit of the block counts, in bytes.
    pub frsize: u32,
    /// Preferred I/O size in bytes.
    pub bsize: u32,
    /// All units a user could ever fill.
    pub blocks: u64,
    /// Free units.
    pub bfree: u64,
    /// Free units for ordinary users.
    pub bavail: u64,
    /// Inodes, used and free.
    pub files: u64,
    /// Free inodes (those that could still be made, where inodes are made as needed).
    pub ffree: u64,
    /// Longest name in bytes.
    pub namelen: u32,
    /// Identifies the volume.
    pub fsid: u64,
}

/// The range of the device to be discarded, in bytes: `fstrim_range` of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimRange {
    /// Where it begins.
    pub start: u64,
    /// Its length; may reach past the end.
    pub len: u64,
    /// Shorter free runs are left alone.
    pub minlen: u64,
}

impl TrimRange {
    /// The whole device.
    pub const ALL: TrimRange = TrimRange { start: 0, len: u64::MAX, minlen: 0 };

    /// Fails with `EINVAL`, as ext4 and XFS do, if nothing can be in it: it begins after a volume of `size` bytes, is
    /// shorter than a `block`, or wants longer runs than a `group` has, inside which runs lie.
    pub fn check(&self, size: u64, block: u64, group: u64) -> Result<()> {
        let sound = self.start < size && self.len >= block && self.minlen <= group;
        if sound { Ok(()) } else { Err(Errno::EINVAL.into()) }
    }

    /// The part of the free run of `len` bytes at `at` that lies in it, in whole units of the volume; `None` if that is
    /// too short.
    pub fn part(&self, (at, len): (u64, u64), unit: u64) -> Option<(u64, u64)> {
        let unit = unit.max(1);
        let lo = at.max(self.start.checked_next_multiple_of(unit)?);
        let end = self.start.saturating_add(self.len);
        let hi = at.saturating_add(len).min(end - end % unit);
        let len = hi.checked_sub(lo).filter(|len| *len > 0 && *len >= self.minlen)?;
        Some((lo, len))
    }
}

/// Result of a call of [`FileSystem::clean`](super::FileSystem::clean).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Segments that were cleaned; where there are none, stretches of the volume that were emptied.
    pub segments: u64,
    /// Bytes read from them.
    pub read_bytes: u64,
    /// Bytes among them that were live and were written elsewhere.
    pub moved_bytes: u64,
    /// Whether there is more to do.
    pub more: bool,
}

/// Result of a call of [`FileSystem::scrub`](super::FileSystem::scrub).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Where to go on; `None` at the end.
    pub next: Option<u64>,
    /// Bytes that were verified.
    pub verified_bytes: u64,
    /// Damage that was found: a sentence for each, naming the file and the place.
    pub damage: Vec<String>,
}
