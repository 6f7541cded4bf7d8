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
//! wait -> serve: arguments together -> Server::answer, into the payload -> commit with the next wait
//! ```
//!
//! FORGET and INTERRUPT still come from `/dev/fuse`, to the workers there, and so later than requests
//! that were sent after them. That matters where a FORGET frees space: who finds none, or asks how
//! much there is, reads them first.

use crate::host::confine::Confinement;
use crate::interrupt::Desk;
use crate::proto::{InHeader, Op, OutHeader, RingHead};
use crate::serve::{Reply, Server};
use crate::session::{Control, EndsAll, after, before, catch_up};
use crate::sys::{Channel, Event};
use arbor_base::vfs::Errno;
use rustix::fd::{AsFd, OwnedFd};
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

/// Workers of a queue, if the mount is not told how many ...
const WORKERS: usize = 4;
/// ... and where there are more processors than this.
const MANY_PROCESSORS: usize = 16;
/// The least: one that waits must not keep all others on its processor waiting.
const LEAST_WORKERS: usize = 2;
/// Arguments up to this length are copied, so that the answer can go where they came from.
const SHORT: usize = 16 << 10;

/// Channels for a connection, each with the number of its queue; made before the kernel is told that
/// there will be any, because from then on it waits for them. `threads` is how many are wanted, or 0.
pub(crate) fn channels(threads: usize) -> io::Result<Vec<(u16, Channel)>> {
    // The kernel makes a queue for each processor that may ever be there.
    let queues = processors("possible")?.len();
    let online = processors("online")?;
    let each = match threads {
        0 if online.len() > MANY_PROCESSORS => LEAST_WORKERS,
        0 => WORKERS,
        n => n.div_ceil(online.len().max(1)).max(LEAST_WORKERS),
    };
    let workers = |queue: &usize| if online.contains(queue) { each } else { 1 };
    let all = (0..queues).flat_map(|queue| std::iter::repeat_n(queue, workers(&queue)));
    all.map(|queue| Ok((u16::try_from(queue).map_err(io::Error::other)?, Channel::new()?))).collect()
}

/// The numbers in a list like `0-3,8-11`.
fn processors(which: &str) -> io::Result<Vec<usize>> {
    let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/{which}"))?;
    parse(&text).ok_or_else(|| io::Error::other(format!("{text:?} are no processors")))
}

fn parse(list: &str) -> Option<Vec<usize>> {
    let mut all: Vec<usize> = Vec::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        all.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(all)
}

/// Serves one channel.
pub(crate) struct RingWorker {
    pub(crate) queue: u16,
    pub(crate) channel: Channel,
    pub(crate) nice: i32,
    pub(crate) device: Arc<OwnedFd>,
    pub(crate) server: Arc<Server>,
    pub(crate) control: Arc<Control>,
    pub(crate) confinement: Confinement,
}

impl RingWorker {
    /// Serves until the end. Tells when the kernel knows the channel, or why it does not.
    pub(crate) fn run(mut self, tell: &mpsc::Sender<io::Result<()>>) {
        let _ = rustix::process::configure_io_flusher_behavior(true);
        let begun = self.begin();
        let goes_on = begun.is_ok();
        let _ = tell.send(begun);
        if !goes_on {
            return;
        }
        let _all = EndsAll(self.control.clone());
        // Only now: the kernel waits for every queue, also for that of a processor where we get no turn.
        self.bind();
        self.go_before();
        self.confinement.serve();
        let interrupts = self.server.interrupts.clone();
        if let Err(e) = Desk::with(&interrupts, |desk| self.serve(desk)) {
            self.server.log.say(format_args!("requests over io_uring: {e}"));
        }
    }

    fn begin(&mut self) -> io::Result<()> {
        self.channel.start()?;
        self.channel.watch(self.control.event.as_fd())?;
        self.channel.register(self.device.as_fd(), self.queue)
    }

    /// Stays on the processor of the queue, unless we were told to keep off.
    fn bind(&self) {
        let queue = usize::from(self.queue);
        let mut here = rustix::thread::CpuSet::new();
        if queue < rustix::thread::CpuSet::MAX_CPU
            && rustix::thread::sched_getaffinity(None).is_ok_and(|may| may.is_set(queue))
        {
            here.set(queue);
            let _ = rustix::thread::sched_setaffinity(None, &here);
        }
    }

    /// Raises our priority, if we may. A caller that waits for us stays in the run queue, and so on its
    /// processor, if it has had more than its share of it, and else is woken on an idle one.
    fn go_before(&self) {
        if self.nice != 0 {
            let now = rustix::process::getpriority_process(None).unwrap_or(0);
            let _ = rustix::process::setpriority_process(None, (now + self.nice).clamp(-20, 19));
        }
    }

    fn serve(&mut self, desk: &Desk) -> io::Result<()> {
        /// The kernel has unmounted, or the connection was aborted.
        const OVER: [rustix::io::Errno; 3] =
            [rustix::io::Errno::NOTCONN, rustix::io::Errno::CANCELED, rustix::io::Errno::CONNABORTED];
        let mut scratch = vec![0; SHORT];
        loop {
            match self.channel.wait() {
                Event::Request => self.one(desk, &mut scratch)?,
                Event::Stop => return Ok(()),
                Event::End(e) if OVER.iter().any(|o| e.raw_os_error() == Some(o.raw_os_error())) => return Ok(()),
                Event::End(e) => return Err(e),
            }
        }
    }

    fn one(&mut self, desk: &Desk, scratch: &mut [u8]) -> io::Result<()> {
        let RingWorker { queue, channel, device, server, control, .. } = self;
        let (ring, buffer) = channel.memory();
        let served = serve(ring, buffer, scratch, |head, args, out| {
            before(control, desk, head);
            answer(device, server, head, args, out)
        });
        server.counters.by_ring.fetch_add(1, Relaxed);
        channel.commit(device.as_fd(), *queue)?;
        match served {
            Some(head) => after(control, server, head.opcode),
            None => server.log.say(format_args!("a request by io_uring makes no sense, answered EIO")),
        }
        Ok(())
    }
}

/// Serves the request in the memory of a channel and puts the reply into its place, whatever is there: the
/// lengths in it are only numbers. Returns its head, none if it makes no sense; then the reply is `EIO`.
pub(crate) fn serve(
    ring: &mut RingHead,
    buffer: &mut [u8],
    scratch: &mut [u8],
    answer: impl FnOnce(&InHeader, &[u8], &mut [u8]) -> (i32, Reply),
) -> Option<InHeader> {
    let head = InHeader::read_from_prefix(&ring.in_out).ok()?.0;
    let args = arguments(&head, ring, buffer);
    let replied = args.clone().and_then(|args| reply(&head, args, buffer, scratch, answer));
    let (error, len) = replied.unwrap_or((Errno::EIO.0, 0));
    let out = OutHeader { len: (size_of::<OutHeader>() + len) as u32, error: -error, unique: head.unique };
    ring.in_out[..size_of::<OutHeader>()].copy_from_slice(out.as_bytes());
    ring.payload_size = len as u32;
    args.map(|_| head)
}

/// Where the arguments are, after the first, which comes apart from the others, is put before them.
fn arguments(head: &InHeader, ring: &RingHead, buffer: &mut [u8]) -> Option<Range<usize>> {
    let payload = ring.payload_size as usize;
    let first = (head.len as usize).checked_sub(size_of::<InHeader>())?.checked_sub(payload)?;
    let first = ring.op_in.get(..first)?;
    let all = Channel::ROOM.checked_sub(first.len())?..Channel::ROOM.checked_add(payload)?;
    buffer.get_mut(all.clone())?[..first.len()].copy_from_slice(first);
    Some(all)
}

/// Lets `answer` write to the place of the payload; short arguments are taken out of its way before, and
/// beside long ones the answer is short. Returns the errno and the length.
fn reply(
    head: &InHeader,
    args: Range<usize>,
    buffer: &mut [u8],
    scratch: &mut [u8],
    answer: impl FnOnce(&InHeader, &[u8], &mut [u8]) -> (i32, Reply),
) -> Option<(i32, usize)> {
    if let Some(copy) = scratch.get_mut(..args.len()) {
        copy.copy_from_slice(buffer.get(args)?);
        let (error, reply) = answer(head, copy, buffer.get_mut(Channel::ROOM..)?);
        return Some((error, reply.len()));
    }
    let (error, reply) = answer(head, buffer.get(args)?, scratch);
    let len = reply.len();
    buffer.get_mut(Channel::ROOM..)?.get_mut(..len)?.copy_from_slice(scratch.get(..len)?);
    Some((error, len))
}

/// Answers a request after the FORGETs before it, where they matter.
fn answer(device: &OwnedFd, server: &Server, head: &InHeader, args: &[u8], out: &mut [u8]) -> (i32, Reply) {
    if head.opcode == Op::Statfs as u32 {
        catch_up(device, server);
    }
    let mut answered = server.answer(head, args, out);
    // The second time another worker may be serving one at this moment.
    for pause in [Duration::ZERO, Duration::from_millis(1)] {
        if answered.0 != Errno::ENOSPC.0 {
            break;
        }
        catch_up(device, server);
        std::thread::sleep(pause);
        answered = server.answer(head, args, out);
    }
    answered
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn lists_of_processors() {
        assert_eq!(parse("0\n"), Some(vec![0]));
        assert_eq!(parse("0-2,8-9,12\n"), Some(vec![0, 1, 2, 8, 9, 12]));
        assert_eq!(parse("\n"), None);
        assert_eq!(parse("0-x\n"), None);
    }
}
