//! The FUSE protocol, version 7, as `linux/fuse.h` gives it: names as there without the `fuse_`.
//!
//! A request is an [`InHeader`] and the arguments of its [`Op`]; a reply is an [`OutHeader`] and
//! the answer. All numbers are in native byte order, the kernel is on this machine. Requests are
//! copied out of the receive buffer structure by structure, so no alignment is asked of it.

use rustix::ioctl::opcode;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Major version spoken.
pub(crate) const MAJOR: u32 = 7;
/// Highest minor version known.
pub(crate) const MINOR: u32 = 45;
/// Node number of the root.
pub(crate) const ROOT_NODE: u64 = 1;

macro_rules! ops {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        /// What the kernel asks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub(crate) enum Op { $($name = $value,)* }

        impl Op {
            /// All known requests.
            pub(crate) const ALL: &[Op] = &[$(Op::$name,)*];

            /// The request with that number.
            pub(crate) fn from_number(n: u32) -> Option<Op> {
                match n { $($value => Some(Op::$name),)* _ => None }
            }

            /// Its name for counters.
            pub(crate) fn name(self) -> &'static str {
                match self { $(Op::$name => $text,)* }
            }
        }
    };
}

ops! {
    Lookup = 1, "lookup";
    Forget = 2, "forget";
    Getattr = 3, "getattr";
    Setattr = 4, "setattr";
    Readlink = 5, "readlink";
    Symlink = 6, "symlink";
    Mknod = 8, "mknod";
    Mkdir = 9, "mkdir";
    Unlink = 10, "unlink";
    Rmdir = 11, "rmdir";
    Rename = 12, "rename";
    Link = 13, "link";
    Open = 14, "open";
    Read = 15, "read";
    Write = 16, "write";
    Statfs = 17, "statfs";
    Release = 18, "release";
    Fsync = 20, "fsync";
    Setxattr = 21, "setxattr";
    Getxattr = 22, "getxattr";
    Listxattr = 23, "listxattr";
    Removexattr = 24, "removexattr";
    Flush = 25, "flush";
    Init = 26, "init";
    Opendir = 27, "opendir";
    Readdir = 28, "readdir";
    Releasedir = 29, "releasedir";
    Fsyncdir = 30, "fsyncdir";
    Access = 34, "access";
    Create = 35, "create";
    Interrupt = 36, "interrupt";
    Bmap = 37, "bmap";
    Destroy = 38, "destroy";
    Ioctl = 39, "ioctl";
    Poll = 40, "poll";
    NotifyReply = 41, "notify_reply";
    BatchForget = 42, "batch_forget";
    Fallocate = 43, "fallocate";
    Readdirplus = 44, "readdirplus";
    Rename2 = 45, "rename2";
    Lseek = 46, "lseek";
    CopyFileRange = 47, "copy_file_range";
    Syncfs = 50, "syncfs";
    Tmpfile = 51, "tmpfile";
    Statx = 52, "statx";
    CopyFileRange64 = 53, "copy_file_range_64";
}

bitflags::bitflags! {
    /// Features negotiated by INIT; bits 32 and up travel in `flags2`. `ASYNC_DIO` (bit 15) is not among them: with it
    /// the kernel does not drop again, when a direct write ends, the pages that were read beside it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct InitFlags: u64 {
        const ASYNC_READ = 1 << 0;
        const EXPORT_SUPPORT = 1 << 4;
        const BIG_WRITES = 1 << 5;
        const DONT_MASK = 1 << 6;
        const DO_READDIRPLUS = 1 << 13;
        const WRITEBACK_CACHE = 1 << 16;
        const NO_OPEN_SUPPORT = 1 << 17;
        const PARALLEL_DIROPS = 1 << 18;
        const POSIX_ACL = 1 << 20;
        const MAX_PAGES = 1 << 22;
        const CACHE_SYMLINKS = 1 << 23;
        const NO_OPENDIR_SUPPORT = 1 << 24;
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        const SETXATTR_EXT = 1 << 29;
        const INIT_EXT = 1 << 30;
        const ALLOW_IDMAP = 1 << 40;
        const OVER_IO_URING = 1 << 41;
    }

    /// Which fields of [`SetattrIn`] count.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Fattr: u32 {
        const MODE = 1 << 0;
        const UID = 1 << 1;
        const GID = 1 << 2;
        const SIZE = 1 << 3;
        const ATIME = 1 << 4;
        const MTIME = 1 << 5;
        const FH = 1 << 6;
        const ATIME_NOW = 1 << 7;
        const MTIME_NOW = 1 << 8;
        const LOCKOWNER = 1 << 9;
        const CTIME = 1 << 10;
        const KILL_SUIDGID = 1 << 11;
    }
}

/// `FUSE_WRITE_KILL_SUIDGID`.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// In the flags of an open file, which READ carries.
pub(crate) const O_NOATIME: u32 = rustix::fs::OFlags::NOATIME.bits();
/// `FUSE_FSYNC_FDATASYNC`.
pub(crate) const FSYNC_FDATASYNC: u32 = 1;
/// `FOPEN_DIRECT_IO`.
pub(crate) const FOPEN_DIRECT_IO: u32 = 1;
/// `FOPEN_KEEP_CACHE`.
pub(crate) const FOPEN_KEEP_CACHE: u32 = 1 << 1;
/// `FOPEN_NOFLUSH`.
pub(crate) const FOPEN_NOFLUSH: u32 = 1 << 5;
/// `FOPEN_CACHE_DIR`.
pub(crate) const FOPEN_CACHE_DIR: u32 = 1 << 3;
/// `FITRIM`, `_IOWR('X', 121, struct fstrim_range)`.
pub(crate) const FITRIM: u32 = 0xc018_5879;
/// An ioctl of our own on the root of a mount: [`CleanIo`].
pub(crate) const CLEAN: u32 = opcode::read_write::<CleanIo>(b'A', 1);
/// Another one: [`ScrubIo`].
pub(crate) const SCRUB: u32 = opcode::read_write::<ScrubIo>(b'A', 2);
/// A third one: [`ShutdownIo`].
pub(crate) const SHUTDOWN: u32 = opcode::read_write::<ShutdownIo>(b'A', 16);
/// `XFS_IOC_GOINGDOWN`, `EXT4_IOC_SHUTDOWN`.
pub(crate) const GOINGDOWN: u32 = opcode::read::<u32>(b'X', 125);
/// What it asks for: everything made durable before, the log made durable, nothing.
pub(crate) const GOING_DOWN_SYNC: u32 = 0;
pub(crate) const GOING_DOWN_LOG: u32 = 1;
pub(crate) const GOING_DOWN_NOW: u32 = 2;
/// `FS_IOC_GETFLAGS`; a `long` by its number, an `int` in fact.
pub(crate) const GETFLAGS: u32 = opcode::read::<core::ffi::c_long>(b'f', 1);
/// `FS_IOC_SETFLAGS`.
pub(crate) const SETFLAGS: u32 = opcode::write::<core::ffi::c_long>(b'f', 2);
/// `FS_IOC_FSGETXATTR`.
pub(crate) const FSGETXATTR: u32 = opcode::read::<Fsxattr>(b'X', 31);
/// `FS_IOC_FSSETXATTR`.
pub(crate) const FSSETXATTR: u32 = opcode::write::<Fsxattr>(b'X', 32);
/// `FS_IOC_GETFSLABEL`.
pub(crate) const GETFSLABEL: u32 = opcode::read::<[u8; 256]>(0x94, 49);
/// `FS_IOC_SETFSLABEL`.
pub(crate) const SETFSLABEL: u32 = opcode::write::<[u8; 256]>(0x94, 50);
/// `FUSE_SETXATTR_ACL_KILL_SGID`.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1;
/// `STATX_BASIC_STATS | STATX_BTIME`.
pub(crate) const STATX_MASK: u32 = 0xfff;

macro_rules! wire {
    ($($(#[$meta:meta])* $name:ident = $size:literal { $($field:ident: $type:ty),* $(,)? })*) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            #[allow(dead_code)]
            pub(crate) struct $name { $(pub(crate) $field: $type,)* }
            const _: () = assert!(size_of::<$name>() == $size, "size of a protocol structure");
        )*
    };
}

wire! {
    /// Head of a request.
    InHeader = 40 {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        total_extlen: u16, padding: u16,
    }
    /// Head of a reply; `error` is zero or a negative errno.
    OutHeader = 16 { len: u32, error: i32, unique: u64 }
    /// `fuse_uring_req_header`: head of a request or reply, the first argument of a request, and what
    /// names it to the ring.
    RingHead = 288 {
        in_out: [u8; 128], op_in: [u8; 128], flags: u64, commit_id: u64, payload_size: u32, padding: u32, reserved: u64,
    }
    /// Attributes.
    Attr = 88 {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32,
        mtimensec: u32, ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32,
        blksize: u32, flags: u32,
    }
    /// What a name leads to; `nodeid` 0 says that there is no such name.
    EntryOut = 128 {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32,
        attr_valid_nsec: u32, attr: Attr,
    }
    AttrOut = 104 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }
    InterruptIn = 8 { unique: u64 }
    ForgetIn = 8 { nlookup: u64 }
    ForgetOne = 16 { nodeid: u64, nlookup: u64 }
    BatchForgetIn = 8 { count: u32, dummy: u32 }
    MknodIn = 16 { mode: u32, rdev: u32, umask: u32, padding: u32 }
    MkdirIn = 8 { mode: u32, umask: u32 }
    CreateIn = 16 { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    RenameIn = 8 { newdir: u64 }
    Rename2In = 16 { newdir: u64, flags: u32, padding: u32 }
    LinkIn = 8 { oldnodeid: u64 }
    SetattrIn = 88 {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64,
        ctime: u64, atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32,
        uid: u32, gid: u32, unused5: u32,
    }
    OpenOut = 16 { fh: u64, open_flags: u32, padding: u32 }
    ReadIn = 40 {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    WriteIn = 40 {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    WriteOut = 8 { size: u32, padding: u32 }
    StatfsOut = 80 {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32,
        frsize: u32, padding: u32, spare: [u32; 6],
    }
    FsyncIn = 16 { fh: u64, fsync_flags: u32, padding: u32 }
    /// The first half is all there is without `SETXATTR_EXT`.
    SetxattrIn = 8 { size: u32, flags: u32 }
    SetxattrExt = 8 { setxattr_flags: u32, padding: u32 }
    GetxattrIn = 8 { size: u32, padding: u32 }
    GetxattrOut = 8 { size: u32, padding: u32 }
    /// `flags2` and what follows it are zero or absent in old kernels.
    InitIn = 16 { major: u32, minor: u32, max_readahead: u32, flags: u32 }
    InitOut = 64 {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16,
        map_alignment: u16, flags2: u32, unused: [u32; 7],
    }
    IoctlIn = 32 { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    IoctlOut = 16 { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    FstrimRange = 24 { start: u64, len: u64, minlen: u64 }
    /// A call of `FileSystem::clean`: what it is told, then what it has done.
    CleanIo = 40 { budget: u64, segments: u64, read_bytes: u64, moved_bytes: u64, more: u64 }
    /// A call of `FileSystem::scrub`. `next` is `u64::MAX` at the end; `text` holds the first sentences on damage, a line
    /// each, and `damage` counts all.
    ScrubIo = 4096 { at: u64, next: u64, verified_bytes: u64, damage: u64, len: u64, text: [u8; 4056] }
    /// Shuts the volume down; `now` is not zero if nothing is to be made durable before.
    ShutdownIo = 8 { now: u32, padding: u32 }
    Fsxattr = 28 { xflags: u32, extsize: u32, nextents: u32, projid: u32, cowextsize: u32, pad: [u8; 8] }
    FallocateIn = 32 { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    Dirent = 24 { ino: u64, off: u64, namelen: u32, kind: u32 }
    LseekIn = 24 { fh: u64, offset: u64, whence: u32, padding: u32 }
    LseekOut = 8 { offset: u64 }
    CopyFileRangeIn = 56 {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }
    CopyFileRangeOut = 8 { bytes_copied: u64 }
    SxTime = 16 { tv_sec: i64, tv_nsec: u32, reserved: i32 }
    StatxOut = 288 {
        attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2],
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16,
        spare0: u16, ino: u64, size: u64, blocks: u64, attributes_mask: u64, atime: SxTime,
        btime: SxTime, ctime: SxTime, mtime: SxTime, rdev_major: u32, rdev_minor: u32,
        dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
}

/// Splits the structure `T` off the front of a request's arguments.
pub(crate) fn take<T: FromBytes>(bytes: &mut &[u8]) -> Option<T> {
    let (value, rest) = T::read_from_prefix(bytes).ok()?;
    *bytes = rest;
    Some(value)
}

/// Splits a name that ends in NUL off the front of a request's arguments.
pub(crate) fn take_name<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = bytes.iter().position(|&b| b == 0)?;
    let (name, rest) = bytes.split_at(end);
    *bytes = &rest[1..];
    Some(name)
}

/// Length of a record with a name of `len` bytes: the name starts after `head` bytes, and
/// records start at multiples of eight.
pub(crate) fn record_len(head: usize, len: usize) -> usize {
    (head + len).next_multiple_of(8)
}
