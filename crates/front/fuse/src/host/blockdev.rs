//! Mounts of type `fuseblk`: of a volume on a block device, by root.
//!
//! The kernel takes the device for the mount as it does for its own file systems: nobody else can
//! mount it or open it exclusively, sync(2) and syncfs(2) reach the server, and umount(2) returns
//! when the server has answered DESTROY, which it does when the volume is unmounted. So the device,
//! which is ours alone while the volume is opened, is handed over ([`Claim::hand_over`]).
//!
//! A server must not make the kernel sync such a mount itself, for it would wait for its own answer:
//! of the device it may fsync the open file, but not flush its buffers (`BLKFLSBUF`) or freeze it.

use crate::host::kernel;
use crate::host::place::Mount;
use crate::log::Log;
use crate::options::MountConfig;
use arbor_base::device::{Claim, OpenMode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{BorrowedFd, OwnedFd};
use std::io;

/// Background requests from which on the kernel begins no write-back. syncfs(2) waits for what it could begin, and
/// passes over the rest: so it had better be able to begin all.
pub(crate) const CONGESTION_THRESHOLD: u16 = u16::MAX;

/// Mounts the block device on `dir`: as `fuseblk`, or, if the kernel makes no such mount, as any other
/// image. Fails if somebody else has the device.
pub(crate) fn mount(device: &Claim, dir: BorrowedFd<'_>, config: &MountConfig) -> io::Result<(OwnedFd, Mount)> {
    let why = match device.hand_over(|| mount_fuseblk(device, dir, config)) {
        Ok(made) => return Ok(made),
        Err(why) => why,
    };
    device.check()?;
    // Nothing of ours is in the way of a mount for reading.
    if device.mode() == OpenMode::ReadOnly && why.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error()) {
        let text = format!("{} is in use by another process", device.path().display());
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
    }
    let path = device.path().display();
    Log::default().say(format_args!(
        "{path}: no mount of type fuseblk ({why}) but an ordinary one: sync(2) and syncfs(2) do not reach the volume, \
         and umount(8) does not wait for it; `arbor sync` and `arbor umount` do"
    ));
    kernel::mount_as("fuse.arbor", &config.source, dir, config, "")
}

fn mount_fuseblk(device: &Claim, dir: BorrowedFd<'_>, config: &MountConfig) -> io::Result<(OwnedFd, Mount)> {
    let (fd, mount) = kernel::mount_as("fuseblk.arbor", device.path().as_os_str(), dir, config, ",blksize=4096")?;
    check(&fd, device, &mount).inspect_err(|_| {
        let _ = mount.detach(true);
    })?;
    Ok((fd, mount))
}

/// Whether the mount that was made is ours, of the device that we have open.
fn check(fd: &OwnedFd, device: &Claim, mount: &Mount) -> io::Result<()> {
    // A path may lead elsewhere by now. A question to the mount itself would wait for its server.
    let wanted = device.block_device().map(|n| (rustix::fs::major(n), rustix::fs::minor(n)));
    if Some(mount.device()) != wanted {
        return Err(io::Error::other(format!("{} is another device by now", device.path().display())));
    }
    // A device that is mounted read-only already gets one mount more, of the first server's.
    let mut fds = [PollFd::new(fd, PollFlags::OUT)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    match fds[0].revents().contains(PollFlags::ERR) {
        true => Err(io::Error::other("it is mounted read-only by another server")),
        false => Ok(()),
    }
}
