//! Requests on what files hold: data, and the targets of links.

use super::{Handled, Reply, Request, Server, done, put};
use crate::proto::*;
use arbor_base::vfs::{self, Errno, FallocMode, Ino, Seek};
use std::sync::atomic::Ordering::Relaxed;

impl Server {
    pub(super) fn readlink(&self, request: &Request<'_>, out: &mut [u8]) -> Handled {
        let target = self.fs.readlink(request.ino)?;
        self.atimes.read(request.ino, false);
        let bytes = out.get_mut(..target.len()).ok_or(Errno::ENAMETOOLONG)?;
        bytes.copy_from_slice(&target);
        Ok(Reply::Bytes(target.len()))
    }

    #[inline(always)]
    pub(super) fn read(&self, request: &mut Request<'_>, out: &mut [u8]) -> Handled {
        let what: ReadIn = request.arg()?;
        let len = out.len().min(what.size as usize);
        let got = self.fs.read(request.ino, what.offset, &mut out[..len])?;
        self.counters.read_bytes.fetch_add(got as u64, Relaxed);
        if what.flags & O_NOATIME == 0 {
            self.atimes.read(request.ino, false);
        }
        Ok(Reply::Bytes(got))
    }

    pub(super) fn write(&self, request: &mut Request<'_>, out: &mut [u8]) -> Handled {
        let what: WriteIn = request.arg()?;
        let data = request.bytes(what.size)?;
        self.drop_hidden(request.ino)?;
        if what.write_flags & WRITE_KILL_SUIDGID != 0 {
            self.drop_setid(request.caller, request.ino)?;
        }
        let written = self.fs.write(request.ino, what.offset, data)?;
        self.counters.written_bytes.fetch_add(written as u64, Relaxed);
        Ok(Reply::Bytes(put(out, &WriteOut { size: written as u32, padding: 0 })))
    }

    #[inline(always)]
    pub(super) fn fsync(&self, request: &mut Request<'_>) -> Handled {
        let data_only = request.arg::<FsyncIn>()?.fsync_flags & FSYNC_FDATASYNC != 0;
        if !data_only {
            self.atimes.tell(&*self.fs, request.ino);
        }
        done(self.fs.fsync(request.ino, data_only))
    }

    pub(super) fn fallocate(&self, request: &mut Request<'_>) -> Handled {
        let what: FallocateIn = request.arg()?;
        let mode = FallocMode::from_bits(what.mode).ok_or(Errno::EOPNOTSUPP)?;
        self.drop_hidden(request.ino)?;
        self.fs.fallocate(request.ino, mode, what.offset, what.length)?;
        done(self.drop_setid_for(request.caller, request.ino))
    }

    pub(super) fn lseek(&self, request: &mut Request<'_>, out: &mut [u8]) -> Handled {
        let what: LseekIn = request.arg()?;
        let whence = match what.whence {
            3 => Seek::Data,
            4 => Seek::Hole,
            _ => return Err(Errno::EINVAL.into()),
        };
        Ok(Reply::Bytes(put(out, &LseekOut { offset: self.fs.seek(request.ino, what.offset, whence)? })))
    }

    /// The older request, in whose answer the count has 32 bits.
    pub(super) fn copy_file_range(&self, request: &mut Request<'_>, out: &mut [u8]) -> Handled {
        let copied = self.copy_up_to(1 << 30, request)?;
        Ok(Reply::Bytes(put(out, &WriteOut { size: copied as u32, padding: 0 })))
    }

    pub(super) fn copy_file_range_64(&self, request: &mut Request<'_>, out: &mut [u8]) -> Handled {
        let bytes_copied = self.copy_up_to(u64::MAX, request)?;
        Ok(Reply::Bytes(put(out, &CopyFileRangeOut { bytes_copied })))
    }

    fn copy_up_to(&self, max: u64, request: &mut Request<'_>) -> vfs::Result<u64> {
        let what: CopyFileRangeIn = request.arg()?;
        if what.flags != 0 {
            return Err(Errno::EINVAL.into());
        }
        let to = self.ino(what.nodeid_out);
        self.drop_hidden(to)?;
        let copied = self.copy_range(request.ino, to, &CopyFileRangeIn { len: what.len.min(max), ..what })?;
        self.drop_setid_for(request.caller, to)?;
        Ok(copied)
    }

    /// Copies piece by piece, so that a caller with a signal gets what was copied until then.
    fn copy_range(&self, from: Ino, to: Ino, what: &CopyFileRangeIn) -> vfs::Result<u64> {
        const PIECE: u64 = 8 << 20;
        let mut done = 0;
        while done < what.len && !(done > 0 && vfs::interrupted()) {
            let piece = PIECE.min(what.len - done);
            let (Some(from_at), Some(to_at)) = (what.off_in.checked_add(done), what.off_out.checked_add(done)) else {
                break;
            };
            match self.fs.copy_range(from, from_at, to, to_at, piece) {
                Ok(copied) if copied == piece => done += copied,
                Ok(copied) => return Ok(done + copied),
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        Ok(done)
    }
}
