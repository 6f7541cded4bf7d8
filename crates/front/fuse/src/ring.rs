//! FUSE over io_uring: workers that wait for the requests of one processor, on that processor.
//!
//! The kernel has a queue for each processor and puts the requests of a caller into that of the
//! processor it runs on. A worker that is bound there is woken without waking another processor,
//! which is what costs most in the classic way, and one system call sends a reply and waits for the
//! next request.
//!
//! Each worker brings one entry to its queue. The kernel gives a request to the entry that came
//! back last, so one worker serves a caller that asks for one thing after another; while that one
//! waits for the device or a lock, the next takes over. No request is ever behind another that is
//! being served, as long as a worker is left.
//!
//! ```text
//! wait -> arguments together -> Server::answer, into the payload -> commit with the next wait
//! ```
//!
//! FORGET and INTERRUPT still come from `/dev/fuse`, to the workers there.

use crate::proto::{InHeader, OutHeader};
use crate::serve::Server;
use crate::session::{Control, after, before};
use crate::sys::{Channel, Event};
use rustix::fd::{AsFd, OwnedFd};
use std::io;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// Workers of a queue, if the mount is not told how many ...
const WORKERS: usize = 4;
/// ... and where there are more queues than this.
const MANY_QUEUES: usize = 16;
const WORKERS_OF_MANY: usize = 2;
/// Arguments up to this length are copied, so that the answer can go where they came from.
const SHORT: usize = 16 << 10;

/// Channels for a connection, each with the number of its queue; made before the kernel is told that
/// there will be any, because from then on it waits for them. `threads` is how many are wanted, or 0.
pub(crate) fn channels(threads: usize) -> io::Result<Vec<(u16, Channel)>> {
    let queues = possible_processors()?;
    let each = match threads {
        0 if queues > MANY_QUEUES => WORKERS_OF_MANY,
        0 => WORKERS,
        n => n.div_ceil(queues).max(1),
    };
    let queues = u16::try_from(queues).map_err(io::Error::other)?;
    (0..queues).flat_map(|q| (0..each).map(move |_| q)).map(|q| Ok((q, Channel::new()?))).collect()
}

/// The kernel makes so many queues.
fn possible_processors() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = text.trim().rsplit([',', '-']).next().and_then(|n| n.parse::<usize>().ok());
    last.map(|n| n + 1).ok_or_else(|| io::Error::other(format!("{text:?} are no processors")))
}

/// Serves one channel.
pub(crate) struct RingWorker {
    pub(crate) queue: u16,
    pub(crate) channel: Channel,
    pub(crate) device: OwnedFd,
    pub(crate) server: Arc<Server>,
    pub(crate) control: Arc<Control>,
}

impl RingWorker {
    pub(crate) fn run(mut self) {
        let _ = rustix::process::configure_io_flusher_behavior(true);
        let mut here = rustix::thread::CpuSet::new();
        here.set(usize::from(self.queue));
        // A processor that is off has no callers either.
        let _ = rustix::thread::sched_setaffinity(None, &here);
        if let Err(e) = self.begin().and_then(|()| self.serve()) {
            self.server.log.say(format_args!("requests over io_uring: {e}"));
        }
        self.control.stop();
    }

    fn begin(&mut self) -> io::Result<()> {
        self.channel.start()?;
        self.channel.watch(self.control.event.as_fd())?;
        self.channel.register(self.device.as_fd(), self.queue)
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut scratch = vec![0; SHORT];
        loop {
            match self.channel.wait() {
                Event::Request => self.one(&mut scratch)?,
                Event::Stop => return Ok(()),
                // ENOTCONN, ECANCELED: the kernel has unmounted.
                Event::End(e) => return if matches!(e.raw_os_error(), Some(107 | 125)) { Ok(()) } else { Err(e) },
            }
        }
    }

    fn one(&mut self, scratch: &mut [u8]) -> io::Result<()> {
        let bad = || io::Error::new(io::ErrorKind::InvalidData, "a request that makes no sense");
        let (ring, buffer) = self.channel.memory();
        let (head, _) = InHeader::read_from_prefix(&ring.in_out).map_err(|_| bad())?;
        let payload = ring.payload_size as usize;
        // The first argument comes apart from the others.
        let first = (head.len as usize).checked_sub(size_of::<InHeader>() + payload).ok_or_else(bad)?;
        let first = ring.op_in.get(..first).ok_or_else(bad)?;
        let begin = Channel::ROOM - first.len();
        buffer[begin..Channel::ROOM].copy_from_slice(first);
        let all = begin..Channel::ROOM + payload;
        if all.end > buffer.len() {
            return Err(bad());
        }
        before(&self.control, head.opcode);
        let (error, reply);
        if all.len() <= scratch.len() {
            let args = &mut scratch[..all.len()];
            args.copy_from_slice(&buffer[all]);
            (error, reply) = self.server.answer(&head, args, &mut buffer[Channel::ROOM..]);
        } else {
            (error, reply) = self.server.answer(&head, &buffer[all], scratch);
            buffer[Channel::ROOM..][..reply.len()].copy_from_slice(&scratch[..reply.len()]);
        }
        self.server.counters.by_ring.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let out = OutHeader { len: (size_of::<OutHeader>() + reply.len()) as u32, error: -error, unique: head.unique };
        ring.in_out[..size_of::<OutHeader>()].copy_from_slice(out.as_bytes());
        ring.payload_size = reply.len() as u32;
        self.channel.commit(self.device.as_fd(), self.queue)?;
        after(&self.control, &self.server, head.opcode);
        Ok(())
    }
}
