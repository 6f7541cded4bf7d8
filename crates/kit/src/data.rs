//! Contents of files, as calls see them.

use crate::served::Inodes;
use arbor_base::vfs::{FallocMode, Ino, Result, Seek, Time};

/// Contents of files. Files of blocks have all of it from [`blockfile`](crate::blockfile).
pub trait Data: Inodes {
    /// Reads up to `buf.len()` bytes of a file at `offset`.
    fn read_file(&mut self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Writes to a file at `offset`; says how much, at least a byte. What is not written is tried again in a call of its own.
    fn write_file(&mut self, ino: Ino, offset: u64, data: &[u8], now: Time) -> Result<usize>;

    /// Next data or hole of a file.
    fn seek_file(&mut self, ino: Ino, offset: u64, whence: Seek) -> Result<u64>;

    /// Begins [`fallocate`](arbor_base::vfs::FileSystem::fallocate) up to byte `end`: the file was changed now, and is watched.
    fn begin_fallocate(&mut self, ino: Ino, end: u64, now: Time) -> Result<()>;

    /// A step of it from `offset`; says where the next one begins.
    fn falloc_step(&mut self, ino: Ino, how: FallocMode, offset: u64, end: u64, now: Time) -> Result<u64>;
}
