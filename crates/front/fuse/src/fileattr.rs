//! Ioctls on what a file, or its volume, is: flags, the label, shutting down.
//!
//! The kernel asks for flags by `FUSE_IOCTL` on behalf of `FS_IOC_GETFLAGS` and its like, after it has checked that the
//! caller owns the file, and may change `i` and `a` if it does (`CAP_LINUX_IMMUTABLE`). An older kernel hands them on
//! unchecked, and is told that there are none. Others are for root.

use crate::caller::Caller;
use crate::host::place::Mount;
use crate::proto::*;
use crate::serve::Server;
use crate::sys;
use arbor_base::vfs::{self, Errno, FileFlags, Ino};
use rustix::fd::AsFd;
use std::io;
use std::path::Path;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Each flag in `FS_IOC_GETFLAGS` and in `FS_IOC_FSGETXATTR`.
const XFLAGS: [(FileFlags, u32); 3] =
    [(FileFlags::IMMUTABLE, 0x08), (FileFlags::APPEND, 0x10), (FileFlags::NODUMP, 0x80)];

/// The kernel checks who asks for flags, and for what: since Linux 5.13, and this is 5.14.
const CHECKED_MINOR: u32 = 34;

/// Shuts down the volume that is mounted at `root`: no request reaches its device any more. With `now` nothing is made
/// durable before.
pub fn shutdown(root: &Path, now: bool) -> io::Result<()> {
    let mut io = ShutdownIo { now: now.into(), padding: 0 };
    Ok(sys::ask::<SHUTDOWN, _>(Mount::server_at(root)?.as_fd(), &mut io)?)
}

/// The label of the volume that is mounted at `root`.
pub fn label(root: &Path) -> io::Result<Vec<u8>> {
    let mut field = [0; 256];
    sys::get_label(Mount::server_at(root)?.as_fd(), &mut field)?;
    Ok(field.iter().copied().take_while(|b| *b != 0).collect())
}

/// Changes it.
pub fn set_label(root: &Path, label: &[u8]) -> io::Result<()> {
    let mut field = [0; 256];
    let place = field[..255].get_mut(..label.len()).ok_or(io::ErrorKind::InvalidInput)?;
    place.copy_from_slice(label);
    Ok(sys::set_label(Mount::server_at(root)?.as_fd(), &field)?)
}

fn from_xflags(xflags: u32) -> Option<FileFlags> {
    let known = XFLAGS.iter().fold(0, |all, (_, x)| all | x);
    let flags = XFLAGS.iter().filter(|(_, x)| xflags & x != 0).map(|(flag, _)| *flag);
    (xflags & !known == 0).then(|| flags.fold(FileFlags::empty(), |all, flag| all | flag))
}

fn to_xflags(flags: FileFlags) -> u32 {
    XFLAGS.iter().filter(|(flag, _)| flags.contains(*flag)).fold(0, |all, (_, x)| all | x)
}

impl Server {
    /// Serves an ioctl of this module; `None` if it is none.
    pub(crate) fn attribute_ioctl(
        &self,
        caller: Caller,
        ino: Ino,
        what: &IoctlIn,
        input: &[u8],
    ) -> vfs::Result<Option<Vec<u8>>> {
        Ok(Some(match what.cmd {
            GETFLAGS | FSGETXATTR | SETFLAGS | FSSETXATTR if self.agreed.minor < CHECKED_MINOR => return Ok(None),
            GETFLAGS => self.fs.flags(ino)?.bits().as_bytes().to_vec(),
            FSGETXATTR => {
                let xflags = to_xflags(self.fs.flags(ino)?);
                Fsxattr { xflags, ..Fsxattr::new_zeroed() }.as_bytes().to_vec()
            }
            SETFLAGS => self.set_flags(ino, input)?,
            FSSETXATTR => self.set_xflags(ino, input)?,
            GETFSLABEL => {
                let mut field = self.fs.label()?;
                field.resize(256, 0);
                field
            }
            SETFSLABEL => self.relabel(caller, input)?,
            GOINGDOWN => self.go_down(caller, what.arg, input)?,
            SHUTDOWN => {
                if !(caller.is_root() || caller.is_ours()) {
                    return Err(Errno::EPERM.into());
                }
                self.shut_down(ShutdownIo::read_from_prefix(input).is_ok_and(|(io, _)| io.now != 0))?;
                input.to_vec()
            }
            _ => return Ok(None),
        }))
    }

    fn set_flags(&self, ino: Ino, input: &[u8]) -> vfs::Result<Vec<u8>> {
        let (bits, _) = u32::read_from_prefix(input).map_err(|_| Errno::EIO)?;
        self.fs.set_flags(ino, FileFlags::from_bits(bits).ok_or(Errno::EOPNOTSUPP)?)?;
        Ok(Vec::new())
    }

    fn set_xflags(&self, ino: Ino, input: &[u8]) -> vfs::Result<Vec<u8>> {
        let (wanted, _) = Fsxattr::read_from_prefix(input).map_err(|_| Errno::EIO)?;
        if wanted.projid != 0 || wanted.extsize != 0 || wanted.cowextsize != 0 {
            return Err(Errno::EINVAL.into());
        }
        self.fs.set_flags(ino, from_xflags(wanted.xflags).ok_or(Errno::EOPNOTSUPP)?)?;
        Ok(Vec::new())
    }

    fn relabel(&self, caller: Caller, input: &[u8]) -> vfs::Result<Vec<u8>> {
        if !caller.is_root() {
            return Err(Errno::EPERM.into());
        }
        // Of other changes the kernel sees to that, not of this one.
        if self.atimes.is_read_only() {
            return Err(Errno::EROFS.into());
        }
        let field = input.get(..256).ok_or(Errno::EIO)?;
        let len = field.iter().position(|b| *b == 0).ok_or(Errno::EINVAL)?;
        self.fs.set_label(&field[..len])?;
        Ok(Vec::new())
    }

    /// Shuts the volume down as the flag says that the caller has at `address`.
    fn go_down(&self, caller: Caller, address: u64, input: &[u8]) -> vfs::Result<Vec<u8>> {
        if !caller.is_root() {
            return Err(Errno::EPERM.into());
        }
        // What it points to is not sent: by its number it is something to be read. If it cannot be had, it
        // counts as the flag that loses least.
        let seen = match &self.looker {
            Some(looker) => looker.memory(caller, address),
            None => caller.memory(address),
        };
        let now = match seen.map(u32::from_ne_bytes) {
            None | Some(GOING_DOWN_SYNC | GOING_DOWN_LOG) => false,
            Some(GOING_DOWN_NOW) => true,
            Some(_) => return Err(Errno::EINVAL.into()),
        };
        self.shut_down(now)?;
        Ok(input.to_vec())
    }

    /// Shuts the gate, after everything was made durable or at once. It is shut even if that fails.
    fn shut_down(&self, now: bool) -> vfs::Result<()> {
        let synced = if now { Ok(()) } else { self.syncfs() };
        self.gate.shut();
        self.log.say(format_args!("shut down"));
        if let Some(record) = self.record.lock().as_mut() {
            record.failure.get_or_insert(crate::host::record::SHUT.into());
            // Without it umount says that it could not sync.
            let _ = record.write();
        }
        synced
    }
}

/// Requests that are served when the volume is shut down: those that end something.
pub(crate) fn ends_something(op: Op) -> bool {
    use Op::{BatchForget, Destroy, Flush, Forget, Interrupt, Release, Releasedir};
    matches!(op, BatchForget | Destroy | Flush | Forget | Interrupt | Release | Releasedir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_both_sorts() {
        for bits in 0..=u8::MAX {
            let flags = FileFlags::from_bits_truncate(bits.into());
            assert_eq!(from_xflags(to_xflags(flags)), Some(flags));
        }
        assert_eq!(from_xflags(0x8000_0000), None);
    }
}
