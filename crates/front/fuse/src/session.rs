//! A mount at work: INIT, the workers, the background thread and the end.
//!
//! Requests come by io_uring (see [`ring`]) or from `/dev/fuse`. There every worker owns a
//! descriptor of the connection and two buffers, and for each request goes through
//!
//! ```text
//! read -> (give the seat away?) -> Server::serve -> write -> (forget, if it did not arrive)
//! ```
//!
//! where reading is governed by [`Seat`], and the place by [`Follower`]. The background thread calls
//! [`FileSystem::background`] when it asked to be called, or when a worker saw that work has piled
//! up, and [`FileSystem::read_ahead`] after walks. The connection ends when the kernel has unmounted
//! (reads say `ENODEV`) or when [`Unmounter::abort`] is called; then [`Session::wait`] unmounts the file
//! system.

use crate::counters::Counters;
use crate::follow::Follower;
use crate::host::blockdev;
use crate::host::confine::Confinement;
use crate::host::kernel::{self, MAX_IO};
use crate::host::offer::Offer;
use crate::host::place::{self, Mount};
use crate::host::record::{self, MountRecord};
use crate::interrupt::Desk;
use crate::log::Log;
use crate::options::{MountConfig, Transport};
use crate::proto::{InHeader, InitFlags, InitIn, InitOut, MAJOR, MINOR, Op, OutHeader, take};
use crate::ring::{self, RingWorker};
use crate::seat::Seat;
use crate::serve::{Agreed, OUT_HEAD, Reply, Server, changes_something, takes_long};
use crate::sys::{self, Channel};
use arbor_base::vfs::{self, Clock, FileSystem};
use parking_lot::{Condvar, Mutex};
use rustix::event::EventfdFlags;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, OFlags};
use rustix::io::Errno as OsErrno;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use zerocopy::{FromZeros, IntoBytes};

/// Room for the largest request: a WRITE with its head, or a SETXATTR.
const READ_BUFFER: usize = MAX_IO as usize + (64 << 10) + 4096;
/// Room for the largest reply.
const WRITE_BUFFER: usize = OUT_HEAD + MAX_IO as usize + 4096;
/// Requests that take longer call for another worker ...
const SLOW: Duration = Duration::from_micros(100);
/// ... for this long.
const SLOW_MEMORY: Duration = Duration::from_millis(5);
/// So many requests found queued in a row, each of another caller, do so too. One caller alone can
/// well be that fast: it runs on our processor as soon as the reply is sent.
const BACKLOG: u32 = 3;
/// After a signal, open files may be used for this long.
const GRACE: Duration = Duration::from_secs(5);

/// Mounts `fs` on `dir` and starts to serve it. `dir` is made if it is missing; a dead mount there
/// is taken off first; `ResourceBusy` if it carries a mount of ours that lives. On any error `fs`
/// has been unmounted, cleanly if it could be.
///
/// If io_uring is refused although the kernel has offered it, `dir` is mounted anew without, unless
/// [`Transport::Uring`] was asked for.
///
/// The session should hold the only reference to `fs`, so that the image is released when it ends.
pub fn mount(fs: Arc<dyn FileSystem>, dir: &Path, config: &MountConfig) -> io::Result<Session> {
    let is_wanted = matches!(config.transport, Transport::Auto | Transport::Uring);
    let offer = is_wanted.then(Offer::make).flatten();
    let attached = attach(dir, config).inspect_err(|_| {
        config.claims.iter().for_each(|claim| claim.take_back());
        let _ = fs.unmount();
    })?;
    let started = start(fs.clone(), attached, config);
    drop(offer);
    match started? {
        Started::Serving(session) => Ok(*session),
        Started::Refused(why) if config.transport == Transport::Uring => {
            config.claims.iter().for_each(|claim| claim.take_back());
            let _ = fs.unmount();
            Err(with("transport=uring: FUSE over io_uring was refused", &why))
        }
        Started::Refused(why) => {
            without_rings(&why);
            mount(fs, dir, &MountConfig { transport: Transport::Classic, ..config.clone() })
        }
    }
}

fn without_rings(why: &io::Error) {
    Log::default().say(format_args!("FUSE over io_uring was refused, requests come from /dev/fuse: {why}"));
}

/// What came of it when the kernel was told that we serve.
enum Started {
    Serving(Box<Session>),
    /// There is no io_uring for us. The mount is off again, and the file system was not unmounted.
    Refused(io::Error),
}

/// A mount that the kernel has made, and whose INIT waits for an answer.
struct Attached {
    dir: PathBuf,
    mount: Mount,
    device: Arc<OwnedFd>,
    init: Init,
    agreed: Agreed,
    /// None if requests come from `device`.
    channels: Vec<(u16, Channel)>,
}

/// Makes the mount, as far as the kernel is concerned.
fn attach(dir: &Path, config: &MountConfig) -> io::Result<Attached> {
    if config.record {
        record::check()?;
    }
    kernel::clean_stale(dir)?;
    std::fs::create_dir_all(dir)?;
    // All that follows is about this directory, wherever its path leads by then.
    let point = place::directory(CWD, dir.as_os_str(), OFlags::empty())?;
    let dir = place::path(point.as_fd())?;
    if Mount::of(point.as_fd())?.is_some() {
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, format!("{} is already mounted", dir.display())));
    }
    let (device, mount) = kernel::mount(point.as_fd(), config)?;
    let asked = Init::read(&device).and_then(|init| Ok((agree(&init, config)?, init)));
    let ((agreed, channels), init) = asked.inspect_err(|_| {
        let _ = mount.detach(true);
    })?;
    Ok(Attached { dir, mount, device: Arc::new(device), init, agreed, channels })
}

/// What we take of what the kernel offers.
fn agree(init: &Init, config: &MountConfig) -> io::Result<(Agreed, Vec<(u16, Channel)>)> {
    let mut wanted = InitFlags::all();
    wanted.set(InitFlags::EXPORT_SUPPORT, config.nfs_export);
    wanted.set(InitFlags::WRITEBACK_CACHE, config.writeback_cache);
    // The kernel learns from the answer to OPEN which files have no pages.
    wanted.set(InitFlags::NO_OPEN_SUPPORT, !config.direct_io);
    wanted.set(InitFlags::OVER_IO_URING, config.transport != Transport::Classic);
    for flag in [InitFlags::POSIX_ACL, InitFlags::DONT_MASK] {
        wanted.set(flag, config.acl);
    }
    let mut flags = init.offered & wanted;
    if config.acl && !flags.contains(InitFlags::POSIX_ACL) {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "acl: the kernel does not offer POSIX ACLs for FUSE"));
    }
    let mut channels = Vec::new();
    if flags.contains(InitFlags::OVER_IO_URING) {
        match ring::channels(config.threads) {
            Ok(made) => channels = made,
            Err(e) if config.transport == Transport::Uring => return Err(with("transport=uring", &e)),
            Err(e) => {
                without_rings(&e);
                flags.remove(InitFlags::OVER_IO_URING);
            }
        }
    } else if config.transport == Transport::Uring {
        return Err(io::Error::new(io::ErrorKind::Unsupported, NO_RING));
    }
    Ok((Agreed { flags, xattrs: config.xattrs, minor: init.minor }, channels))
}

fn with(what: &str, e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("{what}: {e}"))
}

/// Starts to serve the mount. INIT is answered when everything stands that serves: a kernel that was
/// promised rings lets all requests wait for them. On errors the session that is begun cleans up.
fn start(fs: Arc<dyn FileSystem>, attached: Attached, config: &MountConfig) -> io::Result<Started> {
    let Attached { dir, mount, device, init, agreed, channels } = attached;
    let counters = Arc::new(Counters::new());
    let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).inspect_err(|_| {
        let _ = mount.detach(true);
        let _ = fs.unmount();
    })?;
    let control = Arc::new(Control {
        dir,
        mount,
        seat: Seat::default(),
        event,
        slow_until_us: AtomicU64::new(0),
        born: Instant::now(),
        work: Work::default(),
    });
    let server = Arc::new(Server::new(fs, config, agreed, counters.clone()));
    server.atimes.set_mount(control.mount.clone());
    let mut session = Session {
        server: Some(server.clone()),
        counters,
        control: control.clone(),
        workers: Vec::new(),
        background: None,
        signals: None,
        record: None,
        by_ring: !channels.is_empty(),
    };
    if config.record {
        let record = MountRecord::of_this_process(config, &control.dir, &control.mount);
        match record.write() {
            Ok(path) => session.record = Some(path),
            Err(e) => server.log.say(format_args!("no record of this mount, unmount will not wait: {e}")),
        }
        *server.record.lock() = Some(record);
    }
    let confinement = Confinement::of(config);
    session.start_workers(&device, config, confinement, !channels.is_empty())?;
    let rings = match session.start_rings(&device, (config.nice, confinement), channels) {
        Ok(rings) => rings,
        Err(why) => return Ok(session.refused(device, why)),
    };
    let (s, c, clock) = (server.clone(), control.clone(), config.clock.clone());
    let run = move || {
        let _ = rustix::process::configure_io_flusher_behavior(true);
        confinement.serve();
        background(&s, &c.work, &*clock);
    };
    session.background = Some(thread::Builder::new().name("arbor-background".into()).spawn(run)?);
    if config.handle_signals {
        session.signals = Some(Signals::start(server, control.clone(), confinement)?);
    }
    init.answer(&device, agreed.flags, config)?;
    if let Err(why) = rings.go() {
        return Ok(session.refused(device, why));
    }
    kernel::raise_read_ahead(&control.mount, config.max_read_ahead);
    confinement.wait();
    Ok(Started::Serving(Box::new(session)))
}

impl Session {
    /// Starts the workers that wait for `/dev/fuse`. If there are rings too, little comes from there
    /// and nobody polls.
    fn start_workers(
        &mut self,
        device: &Arc<OwnedFd>,
        config: &MountConfig,
        confinement: Confinement,
        rings: bool,
    ) -> io::Result<()> {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let mut threads = if config.threads == 0 { processors.min(64) } else { config.threads }.max(2);
        let mut spin = config.spin.unwrap_or(Duration::from_micros(if processors > 1 { 100 } else { 0 }));
        if rings {
            (threads, spin) = (2, Duration::ZERO);
        }
        let follows = !rings && config.spin.is_none();
        let gather = if rings { FORGETS } else { Duration::ZERO };
        let mut devices = vec![device.clone()];
        for _ in 1..threads {
            // Where a clone is not to be had the workers share one queue.
            devices.push(sys::clone_device(device.as_fd()).map_or_else(|_| device.clone(), Arc::new));
        }
        for (me, device) in devices.into_iter().enumerate() {
            let flags = rustix::fs::fcntl_getfl(&device)?;
            rustix::fs::fcntl_setfl(&device, flags | OFlags::NONBLOCK)?;
            let (server, control) = (self.server.clone().ok_or(io::ErrorKind::Other)?, self.control.clone());
            let worker = Worker { me, device, server, control, spin, follows, gather, confinement };
            self.workers.push(thread::Builder::new().name(format!("arbor-fuse-{me}")).spawn(move || worker.run())?);
        }
        Ok(())
    }

    /// Starts the workers of the rings; they wait for [`Rings::go`].
    fn start_rings(
        &mut self,
        device: &Arc<OwnedFd>,
        (nice, confinement): (i32, Confinement),
        channels: Vec<(u16, Channel)>,
    ) -> io::Result<Rings> {
        let (tell, told) = mpsc::channel();
        let mut rings = Rings { go: Vec::new(), told };
        for (n, (queue, channel)) in channels.into_iter().enumerate() {
            let (server, control) = (self.server.clone().ok_or(io::ErrorKind::Other)?, self.control.clone());
            let worker = RingWorker { queue, channel, nice, device: device.clone(), server, control, confinement };
            let (go, gone) = mpsc::channel();
            let tell = tell.clone();
            let run = move || {
                if gone.recv().is_ok() {
                    worker.run(&tell);
                }
            };
            self.workers.push(thread::Builder::new().name(format!("arbor-ring-{n}")).spawn(run)?);
            rings.go.push(go);
        }
        Ok(rings)
    }
}

/// The workers of the rings before they begin; dropped, they end.
struct Rings {
    go: Vec<mpsc::Sender<()>>,
    told: mpsc::Receiver<io::Result<()>>,
}

impl Rings {
    /// Lets them begin, and returns when the kernel knows all of them.
    fn go(self) -> io::Result<()> {
        for go in &self.go {
            let _ = go.send(());
        }
        (0..self.go.len()).try_for_each(|_| self.told.recv().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())))
    }
}

const NO_RING: &str = "transport=uring: the kernel does not offer FUSE over io_uring (it needs Linux 6.14 and Y in \
                       /sys/module/fuse/parameters/enable_uring)";

/// INIT, the first request of a connection.
struct Init {
    unique: u64,
    minor: u32,
    max_read_ahead: u32,
    offered: InitFlags,
}

impl Init {
    /// Reads it, from a descriptor that still blocks.
    fn read(device: &OwnedFd) -> io::Result<Init> {
        let mut buffer = vec![0u8; READ_BUFFER];
        loop {
            let len = match rustix::io::read(device, &mut buffer[..]) {
                Ok(len) => len,
                Err(OsErrno::INTR | OsErrno::AGAIN) => continue,
                Err(e) => return Err(e.into()),
            };
            let bad = || io::Error::new(io::ErrorKind::InvalidData, "the kernel's INIT makes no sense");
            let args = &mut &buffer[..len];
            let head: InHeader = take(args).ok_or_else(bad)?;
            let init: InitIn = take(args).ok_or_else(bad)?;
            if head.opcode != Op::Init as u32 || init.major < MAJOR {
                return Err(bad());
            }
            let mut offered = u64::from(init.flags);
            if offered & InitFlags::INIT_EXT.bits() != 0 {
                offered |= u64::from(take::<u32>(args).unwrap_or(0)) << 32;
            }
            let (minor, max_read_ahead) = (MINOR.min(init.minor), init.max_readahead);
            let offered = InitFlags::from_bits_truncate(offered);
            let read = Init { unique: head.unique, minor, max_read_ahead, offered };
            if init.major == MAJOR {
                return Ok(read);
            }
            // A newer kernel asks again in our version.
            read.send(device, InitOut::new_zeroed())?;
        }
    }

    fn answer(&self, device: &OwnedFd, flags: InitFlags, config: &MountConfig) -> io::Result<()> {
        let mut out = InitOut::new_zeroed();
        out.flags = flags.bits() as u32;
        out.flags2 = (flags.bits() >> 32) as u32;
        out.max_readahead = config.max_read_ahead.min(self.max_read_ahead.max(MAX_IO));
        out.max_background = 64;
        out.congestion_threshold = config.block_device.as_ref().map_or(48, |_| blockdev::CONGESTION_THRESHOLD);
        out.max_write = MAX_IO;
        out.time_gran = 1;
        out.max_pages = (MAX_IO as usize / rustix::param::page_size()) as u16;
        self.send(device, out)
    }

    fn send(&self, device: &OwnedFd, mut out: InitOut) -> io::Result<()> {
        (out.major, out.minor) = (MAJOR, self.minor);
        let size = OUT_HEAD + size_of::<InitOut>();
        let mut reply = OutHeader { len: size as u32, error: 0, unique: self.unique }.as_bytes().to_vec();
        reply.extend_from_slice(out.as_bytes());
        rustix::io::write(device, &reply)?;
        Ok(())
    }
}

/// Serves what is queued on `/dev/fuse`, without waiting: FORGETs that were sent before a request
/// that came by a ring.
pub(crate) fn catch_up(device: &OwnedFd, server: &Server) {
    let (mut request, mut reply) = (vec![0; READ_BUFFER], vec![0; WRITE_BUFFER]);
    while let Ok(len) = rustix::io::read(device, &mut request[..]) {
        let args = &mut &request[..len];
        let Some(head) = take::<InHeader>(args) else { return };
        let (len, answer) = server.serve(&head, args, &mut reply);
        if len > 0 {
            send(device, server, &reply[..len], &answer);
        }
    }
}

/// Sends a reply to where its request was read.
fn send(device: &OwnedFd, server: &Server, bytes: &[u8], reply: &Reply) {
    match rustix::io::write(device, bytes) {
        Ok(_) => return,
        // The caller was killed meanwhile, or the mount is off.
        Err(OsErrno::NOENT | OsErrno::INTR | OsErrno::NODEV | OsErrno::PERM | OsErrno::CONNABORTED) => {}
        Err(e) => server.log.say(format_args!("sending a reply: {e}")),
    }
    server.undelivered(reply, &bytes[OUT_HEAD..]);
}

/// What the threads of a session share besides the server.
pub(crate) struct Control {
    /// Where it was mounted.
    dir: PathBuf,
    mount: Mount,
    seat: Seat,
    /// Readable at the end.
    pub(crate) event: OwnedFd,
    /// Microseconds after `born` until which requests are taken to be slow.
    slow_until_us: AtomicU64,
    born: Instant,
    work: Work,
}

impl Control {
    /// Ends the workers.
    pub(crate) fn stop(&self) {
        self.seat.stop();
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }
}

/// Wakes the background thread.
#[derive(Default)]
struct Work {
    state: Mutex<WorkState>,
    changed: Condvar,
    /// Copy of `WorkState::poked`.
    poked: AtomicBool,
}

#[derive(Default)]
struct WorkState {
    poked: bool,
    stopped: bool,
}

impl Work {
    fn poke(&self) {
        if !self.poked.swap(true, Ordering::Relaxed) {
            self.state.lock().poked = true;
            self.changed.notify_one();
        }
    }

    fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_one();
    }

    /// Waits to be poked, at most for `at_most`; `false` at the end.
    fn wait(&self, at_most: Duration) -> bool {
        let deadline = Instant::now() + at_most;
        let mut state = self.state.lock();
        while !state.poked && !state.stopped {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        state.poked = false;
        self.poked.store(false, Ordering::Relaxed);
        !state.stopped
    }
}

/// The background thread.
fn background(server: &Server, work: &Work, clock: &dyn Clock) {
    /// Rounds without a pause while the engine still wants to work.
    const ROUNDS: u32 = 64;
    const LEAST: Duration = Duration::from_millis(1);
    const MOST: Duration = Duration::from_secs(3600);
    let mut rounds = 0;
    let mut pause = Duration::ZERO;
    let mut due = Instant::now();
    while work.wait(if server.gate.is_shut() { MOST } else { pause.min(server.atimes.until_due()) }) {
        if server.gate.is_shut() {
            continue;
        }
        let tell = || server.atimes.tell_all(&*server.fs);
        if server.atimes.until_due().is_zero() && catch_unwind(AssertUnwindSafe(tell)).is_err() {
            server.log.say(format_args!("panic while times of access are stored"));
            server.panicked("the storing of times of access");
        }
        if server.fs.wants_read_ahead() && catch_unwind(AssertUnwindSafe(|| server.fs.read_ahead())).is_err() {
            server.log.say(format_args!("panic while reading ahead"));
            server.panicked("reading ahead");
        }
        let left = due.saturating_duration_since(Instant::now());
        if !left.is_zero() && !server.fs.wants_background() {
            pause = if server.fs.wants_read_ahead() { Duration::ZERO } else { left };
            continue;
        }
        let now = clock.now();
        pause = match catch_unwind(AssertUnwindSafe(|| server.fs.background(now))) {
            Ok(next) => Duration::from_millis(clock.now().ms_until(next)).clamp(LEAST, MOST),
            Err(_) => {
                server.log.say(format_args!("panic in the background work"));
                server.panicked("the background work");
                Duration::from_secs(1)
            }
        };
        rounds = if server.fs.wants_background() { rounds + 1 } else { 0 };
        if rounds > 0 {
            pause = if rounds % ROUNDS == 0 { LEAST } else { Duration::ZERO };
        }
        due = Instant::now() + pause;
        server.look_for_damage();
        server.look_for_failure();
    }
}

/// Done before a request is served.
pub(crate) fn before(control: &Control, desk: &Desk, head: &InHeader) {
    desk.begin(head);
    if head.opcode == Op::Destroy as u32 {
        control.work.stop();
    }
}

/// Done after a request was served.
pub(crate) fn after(control: &Control, server: &Server, opcode: u32) {
    let wanted = match changes_something(opcode) {
        true => server.fs.wants_background(),
        false => server.atimes.has_news() || opcode == Op::Readdirplus as u32 && server.fs.wants_read_ahead(),
    };
    if wanted {
        control.work.poke();
    }
}

/// With rings, what comes from `/dev/fuse` is little more than FORGETs, one for each file that is
/// deleted. Nobody waits for them, and many are read as cheaply as one.
const FORGETS: Duration = Duration::from_millis(2);

struct Worker {
    me: usize,
    device: Arc<OwnedFd>,
    server: Arc<Server>,
    control: Arc<Control>,
    spin: Duration,
    /// Whether it goes where its caller is.
    follows: bool,
    /// Between a request that wakes it and the first look at the queue.
    gather: Duration,
    confinement: Confinement,
}

/// Ends the session with this worker, whatever ends it.
pub(crate) struct EndsAll(pub(crate) Arc<Control>);

impl Drop for EndsAll {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// What a read of the device gave.
enum Next {
    /// A request of so many bytes.
    Request(usize),
    /// None is queued.
    Nothing,
    /// None will ever come.
    End,
}

impl Worker {
    fn run(self) {
        let _all = EndsAll(self.control.clone());
        let _ = rustix::process::configure_io_flusher_behavior(true);
        self.confinement.serve();
        Desk::with(&self.server.interrupts, |desk| self.serve_all(desk));
    }

    fn serve_all(&self, desk: &Desk) {
        let mut request = vec![0u8; READ_BUFFER];
        let mut reply = vec![0u8; WRITE_BUFFER];
        let mut follower = Follower::new(self.follows);
        let mut queued = 0;
        let mut caller = 0;
        while !self.control.seat.stopped() {
            let next = match self.read(&mut request) {
                Next::Nothing => {
                    queued = 0;
                    self.wait(&mut request, if follower.is_there() { Duration::ZERO } else { self.spin })
                }
                next => {
                    queued += 1;
                    next
                }
            };
            let Next::Request(len) = next else { break };
            let args = &mut &request[..len];
            // Its length was looked at when it was read.
            let Some(head) = take::<InHeader>(args) else { break };
            if head.pid == caller {
                queued = 0;
            }
            caller = head.pid;
            follower.saw(caller);
            self.serve(desk, &head, args, &mut reply, queued);
        }
    }

    fn read(&self, buffer: &mut [u8]) -> Next {
        loop {
            match rustix::io::read(&self.device, &mut *buffer) {
                Ok(len) if len >= size_of::<InHeader>() => return Next::Request(len),
                Err(OsErrno::AGAIN) => return Next::Nothing,
                // ENOENT: the request was taken back while it was read.
                Err(OsErrno::INTR | OsErrno::NOENT) => {}
                Err(OsErrno::NODEV | OsErrno::CONNABORTED) => return Next::End,
                other => {
                    self.server.log.say(format_args!("reading requests: {other:?}"));
                    return Next::End;
                }
            }
        }
    }

    /// Waits for the seat and then for a request.
    fn wait(&self, buffer: &mut [u8], spin: Duration) -> Next {
        let control = &*self.control;
        if !control.seat.take(self.me) {
            return Next::End;
        }
        let mut since = Instant::now();
        while !control.seat.stopped() {
            match self.read(buffer) {
                Next::Nothing => {}
                next => return next,
            }
            if since.elapsed() < spin {
                std::hint::spin_loop();
            } else {
                if let Err(e) = kernel::wait_readable(&self.device, &control.event) {
                    self.server.log.say(format_args!("waiting for requests: {e}"));
                    return Next::End;
                }
                thread::sleep(self.gather);
                since = Instant::now();
            }
        }
        Next::End
    }

    fn serve(&self, desk: &Desk, head: &InHeader, args: &[u8], buffer: &mut [u8], queued: u32) {
        let control = &*self.control;
        let begun = Instant::now();
        let now_us = begun.duration_since(control.born).as_micros() as u64;
        let slow = now_us < control.slow_until_us.load(Ordering::Relaxed);
        let leads = control.seat.led_by(self.me);
        if queued > 0 {
            self.server.counters.queued.fetch_add(1, Ordering::Relaxed);
        }
        let keeps = leads && !(slow || queued >= BACKLOG || takes_long(head.opcode));
        let mark = keeps.then(|| control.seat.begin());
        if leads && !keeps {
            self.server.counters.handed_over.fetch_add(1, Ordering::Relaxed);
            control.seat.give(self.me);
        }
        before(control, desk, head);
        let (len, reply) = self.server.serve(head, args, buffer);
        // Sending takes longer when the caller runs at once.
        let took = begun.elapsed();
        if len > 0 {
            send(&self.device, &self.server, &buffer[..len], &reply);
        }
        if let Some(mark) = mark {
            control.seat.end(mark);
        }
        if took > SLOW && !takes_long(head.opcode) {
            self.server.counters.slow.fetch_add(1, Ordering::Relaxed);
            let until = now_us + (took + SLOW_MEMORY).as_micros() as u64;
            control.slow_until_us.fetch_max(until, Ordering::Relaxed);
        }
        after(control, &self.server, head.opcode);
    }
}

/// The thread that turns signals into an unmount.
struct Signals {
    handle: signal_hook::iterator::Handle,
    thread: JoinHandle<()>,
}

impl Signals {
    fn start(server: Arc<Server>, control: Arc<Control>, confinement: Confinement) -> io::Result<Signals> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])?;
        let handle = signals.handle();
        let thread = thread::Builder::new().name("arbor-signals".into()).spawn(move || {
            confinement.wait();
            if signals.forever().next().is_none() {
                return;
            }
            let unmounter = Unmounter(control.clone());
            if unmounter.unmount().is_ok() {
                return;
            }
            server.log.say(format_args!(
                "{} is in use: detached, will end when it is not, or in {} s",
                control.dir.display(),
                GRACE.as_secs()
            ));
            let _ = unmounter.detach();
            if let Err(e) = server.syncfs() {
                server.log.say(format_args!("sync: {e}"));
            }
            let end = Instant::now() + GRACE;
            while !control.seat.stopped() && Instant::now() < end && signals.pending().next().is_none() {
                thread::sleep(Duration::from_millis(20));
            }
            unmounter.abort();
        })?;
        Ok(Signals { handle, thread })
    }
}

/// Ends a session from elsewhere; a handle that can be cloned and outlive it.
#[derive(Clone)]
pub struct Unmounter(Arc<Control>);

impl Unmounter {
    /// Takes the mount off; [`Session::wait`] then returns. `ResourceBusy` if files are in use.
    pub fn unmount(&self) -> io::Result<()> {
        let mut tries = 0;
        loop {
            match self.0.mount.detach(false) {
                // Whoever looks at new mounts may be there for a moment.
                Err(e) if e.kind() == io::ErrorKind::ResourceBusy && tries < 5 => tries += 1,
                other => return other,
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Takes only the name away: the session ends when the last file in use is closed.
    pub fn detach(&self) -> io::Result<()> {
        self.0.mount.detach(true)
    }

    /// Ends the session at once, as the last resort: files in use give errors from now on. What
    /// was written before is not lost.
    pub fn abort(&self) {
        let _ = self.detach();
        self.0.stop();
    }
}

/// A mount that is being served. Dropping it takes the mount off, by force if need be.
pub struct Session {
    server: Option<Arc<Server>>,
    counters: Arc<Counters>,
    control: Arc<Control>,
    workers: Vec<JoinHandle<()>>,
    background: Option<JoinHandle<()>>,
    signals: Option<Signals>,
    record: Option<PathBuf>,
    by_ring: bool,
}

impl Session {
    /// Returns when the mount works for everybody: it looks at the root through the kernel.
    pub fn ready(&self) -> io::Result<()> {
        std::fs::read_dir(&self.control.dir)?.next().transpose()?;
        Ok(())
    }

    /// Where it is mounted.
    pub fn mountpoint(&self) -> &Path {
        &self.control.dir
    }

    /// Whether requests come by io_uring.
    pub fn is_by_ring(&self) -> bool {
        self.by_ring
    }

    /// A handle that ends it.
    pub fn unmounter(&self) -> Unmounter {
        Unmounter(self.control.clone())
    }

    /// Request counters; they can be read after the end too.
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// Serves until unmounted, then makes everything durable and releases the file system. The
    /// error is that of [`FileSystem::unmount`].
    pub fn wait(mut self) -> vfs::Result<()> {
        self.finish()
    }

    /// Takes the mount off without unmounting the file system.
    fn refused(mut self, device: Arc<OwnedFd>, why: io::Error) -> Started {
        self.control.stop();
        // With the last descriptor goes the connection, and so its DESTROY, which would unmount.
        drop(device);
        self.join_workers();
        let _ = self.control.mount.detach(true);
        self.join_others();
        self.server = None;
        self.remove_record();
        Started::Refused(why)
    }

    fn join_workers(&mut self) {
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }

    fn finish(&mut self) -> vfs::Result<()> {
        let Some(server) = self.server.take() else { return Ok(()) };
        self.join_workers();
        // The connection may have been aborted from elsewhere, which leaves a dead mount.
        kernel::take_off_stale(&self.control.mount);
        self.join_others();
        let result = server.destroyed.lock().take();
        let result = result.unwrap_or_else(|| {
            server.claims.iter().for_each(|claim| claim.take_back());
            server.unmount().inspect_err(|e| server.log.say(format_args!("unmount: {e}")))
        });
        // Only now is the image released, and may somebody be told so.
        drop(server);
        self.remove_record();
        result
    }

    /// Ends what is no worker.
    fn join_others(&mut self) {
        self.control.work.stop();
        if let Some(background) = self.background.take() {
            let _ = background.join();
        }
        if let Some(signals) = self.signals.take() {
            signals.handle.close();
            let _ = signals.thread.join();
        }
    }

    fn remove_record(&mut self) {
        if let Some(path) = self.record.take() {
            record::remove(&path);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.server.is_some() {
            let unmounter = self.unmounter();
            if unmounter.unmount().is_err() {
                unmounter.abort();
            }
            // Who serves says what went wrong.
            let _ = self.finish();
        }
    }
}
