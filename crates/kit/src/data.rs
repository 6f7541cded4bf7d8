//! Contents of files, as calls see them.

use crate::served::Inodes;
use arbor_base::vfs::{FallocMode, Ino, Result, Seek, Time};

/// Contents of files. For files of blocks, [`blockfile`](crate::blockfile) implements all of it.
pub trait Data: Inodes {
    /// Reads up to `buf.len()` bytes of a file at `offset`.
    fn read_file(&mut self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Writes to a file at `offset`; returns how many bytes, at least one. The rest is tried again in a call of its
    /// own.
    fn write_file(&mut self, ino: Ino, offset: u64, data: &[u8], now: Time) -> Result<usize>;

    /// Finds the next data or hole of a file.
    fn seek_file(&mut self, ino: Ino, offset: u64, whence: Seek) -> Result<u64>;

    /// Begins [`fallocate`](arbor_base::vfs::FileSystem::fallocate) up to byte `end`: sets mtime and ctime, and begins
    /// to watch the file's size ([`growth`](crate::growth)).
    fn begin_fallocate(&mut self, ino: Ino, end: u64, now: Time) -> Result<()>;

    /// Does a step of it from `offset`; returns the offset of the next one.
    fn falloc_step(&mut self, ino: Ino, how: FallocMode, offset: u64, end: u64, now: Time) -> Result<u64>;
}
