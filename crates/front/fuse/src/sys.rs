//! The one place with `unsafe`: what rustix cannot know. The ioctl that clones a descriptor of the
//! connection, those that ask a server, and [`Channel`], an entry of FUSE over io_uring.
#![allow(unsafe_code)]

use crate::host::kernel::MAX_IO;
use crate::proto::{GETFSLABEL, RingHead, SETFSLABEL};
use io_uring::{IoUring, cqueue, opcode as op, squeue, types};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{Opcode, Setter, Updater, ioctl, opcode};
use std::io;
use std::ptr::NonNull;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

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

/// Asks the server behind `root` by an ioctl of ours, whose number has the size of `T` in it. Only for descriptors
/// that are known to lie on a mount of ours.
pub(crate) fn ask<const NUMBER: Opcode, T: FromBytes + IntoBytes>(
    root: BorrowedFd<'_>,
    value: &mut T,
) -> rustix::io::Result<()> {
    // SAFETY: FUSE reads and writes as many bytes as the number says, which was made of `T`; any bytes are a `T`.
    unsafe { ioctl(root, Updater::<NUMBER, T>::new(value)) }
}

/// `FS_IOC_GETFSLABEL` of the file system behind `root`.
pub(crate) fn get_label(root: BorrowedFd<'_>, label: &mut [u8; 256]) -> rustix::io::Result<()> {
    // SAFETY: the kernel, or the server through it, writes at most the 256 bytes that the number says.
    unsafe { ioctl(root, Updater::<{ GETFSLABEL }, [u8; 256]>::new(label)) }
}

/// `FS_IOC_SETFSLABEL`.
pub(crate) fn set_label(root: BorrowedFd<'_>, label: &[u8; 256]) -> rustix::io::Result<()> {
    // SAFETY: the 256 bytes are read, and nothing is written.
    unsafe { ioctl(root, Setter::<{ SETFSLABEL }, [u8; 256]>::new(*label)) }
}

/// `FUSE_IO_URING_CMD_REGISTER` and `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;
/// Names of what completes.
const REQUEST: u64 = 0;
const STOP: u64 = 1;

/// What a [`Channel`] waited for.
#[derive(Debug)]
pub(crate) enum Event {
    /// A request is in its memory.
    Request,
    /// The descriptor of [`Channel::watch`] has become readable.
    Stop,
    /// The connection has ended, or the kernel will not have this channel.
    End(io::Error),
}

/// One entry of a queue of FUSE over io_uring, alone on a ring.
///
/// The kernel writes a request into `head` and `buffer`, by addresses that it is given once. It does
/// so for a thread that is inside of [`Channel::wait`] only: the ring has `DEFER_TASKRUN`, so what
/// the kernel has to do for it waits for the thread to come and ask. When the ring is closed, what
/// waits is cancelled by a kernel thread, which copies nothing; so `ring` stands before its memory.
pub(crate) struct Channel {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    memory: Memory,
}

/// What the kernel writes to and reads behind Rust's back: reached by pointers, so that no reference to it needs to exist
/// while it does.
struct Memory {
    head: NonNull<RingHead>,
    buffer: NonNull<[u8]>,
    /// Where the two are, as the kernel is told.
    vectors: NonNull<[[usize; 2]; 2]>,
}

// SAFETY: it owns what it points to, and nothing there belongs to a thread.
unsafe impl Send for Memory {}

impl Memory {
    fn new() -> Memory {
        let head = NonNull::from(Box::leak(Box::new(RingHead::new_zeroed())));
        let buffer = NonNull::from(Box::leak(vec![0; Channel::ROOM + MAX_IO as usize].into_boxed_slice()));
        let payload = (buffer.cast::<u8>().addr().get() + Channel::ROOM, MAX_IO as usize);
        let vectors = Box::new([[head.addr().get(), size_of::<RingHead>()], [payload.0, payload.1]]);
        Memory { head, buffer, vectors: NonNull::from(Box::leak(vectors)) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: they came out of boxes, once each; the ring that told the kernel of them is closed.
        unsafe {
            drop(Box::from_raw(self.head.as_ptr()));
            drop(Box::from_raw(self.buffer.as_ptr()));
            drop(Box::from_raw(self.vectors.as_ptr()));
        }
    }
}

impl Channel {
    /// Bytes in front of the payload in [`Channel::memory`], for the head of an operation.
    pub(crate) const ROOM: usize = 128;

    /// A channel that no kernel thread knows yet; it may go to another thread until
    /// [`Channel::start`].
    pub(crate) fn new() -> io::Result<Channel> {
        let mut builder = IoUring::<squeue::Entry128, cqueue::Entry>::builder();
        builder.setup_r_disabled().setup_single_issuer().setup_defer_taskrun();
        let ring = builder.build(4)?;
        Ok(Channel { ring, memory: Memory::new() })
    }

    /// Says that this thread will do all the rest.
    pub(crate) fn start(&self) -> io::Result<()> {
        self.ring.submitter().register_enable_rings()
    }

    /// Lets [`Channel::wait`] return when `event` is readable.
    pub(crate) fn watch(&mut self, event: BorrowedFd<'_>) -> io::Result<()> {
        let poll = op::PollAdd::new(types::Fd(event.as_raw_fd()), rustix::event::PollFlags::IN.bits().into());
        self.push(poll.build().user_data(STOP).into())
    }

    /// Offers the channel to queue `queue` of the connection behind `device`.
    pub(crate) fn register(&mut self, device: BorrowedFd<'_>, queue: u16) -> io::Result<()> {
        let command = op::UringCmd80::new(types::Fd(device.as_raw_fd()), REGISTER)
            .cmd(command(0, queue))
            .addr(Some(self.memory.vectors.addr().get() as u64));
        // SAFETY: an `Entry128` is the 128 bytes of a submission, `repr(C)`, and any bytes are one.
        let mut bytes: [u8; 128] = unsafe { std::mem::transmute(command.build().user_data(REQUEST)) };
        // The length counts vectors, which the builder has no word for.
        bytes[24..28].copy_from_slice(&2u32.to_ne_bytes());
        // SAFETY: as above.
        self.push(unsafe { std::mem::transmute::<[u8; 128], squeue::Entry128>(bytes) })?;
        // What the kernel has against it completes at once.
        self.ring.submit()?;
        match self.ring.completion().next() {
            Some(no) => Err(io::Error::from_raw_os_error(-no.result())),
            None => Ok(()),
        }
    }

    /// Answers a request and asks for the next, with the next [`Channel::wait`].
    pub(crate) fn commit(&mut self, device: BorrowedFd<'_>, queue: u16) -> io::Result<()> {
        let commit = op::UringCmd80::new(types::Fd(device.as_raw_fd()), COMMIT_AND_FETCH)
            .cmd(command(self.memory().0.commit_id, queue));
        self.push(commit.build().user_data(REQUEST))
    }

    fn push(&mut self, entry: squeue::Entry128) -> io::Result<()> {
        // SAFETY: what an entry points to is the memory of `self` (the vectors, what they name), which outlives the
        // ring, or nothing (commit, poll).
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)
    }

    /// Sends what was pushed and waits.
    pub(crate) fn wait(&mut self) -> Event {
        loop {
            let done = self.ring.completion().next().map(|c| (c.user_data(), c.result()));
            match done {
                Some((STOP, _)) => {
                    // A reply may still be there, of a request that was carried out.
                    let _ = self.ring.submit();
                    return Event::Stop;
                }
                Some((_, 0)) => return Event::Request,
                Some((_, e)) => return Event::End(io::Error::from_raw_os_error(-e)),
                None => {}
            }
            match self.ring.submit_and_wait(1).map_err(|e| (e.kind(), e)) {
                Ok(_) | Err((io::ErrorKind::Interrupted, _)) => {}
                // Short of memory for a moment.
                Err((io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy, _)) => std::thread::yield_now(),
                Err((_, e)) => return Event::End(e),
            }
        }
    }

    /// The head of a request and its reply, and the payload after [`Channel::ROOM`] bytes.
    pub(crate) fn memory(&mut self) -> (&mut RingHead, &mut [u8]) {
        // SAFETY: both are there as long as `self`. The kernel writes to them inside of `Channel::wait` only, for which
        // it takes `&mut self`: no reference that came from here lives then.
        unsafe { (self.memory.head.as_mut(), self.memory.buffer.as_mut()) }
    }
}

/// `struct fuse_uring_cmd_req`.
fn command(commit_id: u64, queue: u16) -> [u8; 80] {
    let mut bytes = [0; 80];
    bytes[8..16].copy_from_slice(&commit_id.to_ne_bytes());
    bytes[16..18].copy_from_slice(&queue.to_ne_bytes());
    bytes
}
