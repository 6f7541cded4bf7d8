//! The one place with `unsafe`: an ioctl that rustix cannot know.
#![allow(unsafe_code)]

use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

/// `FUSE_DEV_IOC_CLONE`, `_IOR(229, 0, uint32_t)`.
const FUSE_DEV_IOC_CLONE: Opcode = opcode::read::<u32>(229, 0);

/// A second descriptor of the connection behind `device`, with a processing queue of its own.
pub(crate) fn clone_device(device: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    let clone = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    // SAFETY: /dev/fuse takes a pointer to a u32 that holds the number of a connected
    // descriptor, reads it and writes nothing; `Setter` passes a pointer to its own u32, which
    // lives through the call.
    unsafe {
        let number = device.as_raw_fd() as u32;
        ioctl(&clone, Setter::<FUSE_DEV_IOC_CLONE, u32>::new(number))?;
    }
    Ok(clone)
}
