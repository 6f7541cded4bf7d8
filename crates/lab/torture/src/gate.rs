//! Whether others are served while the device reads for one: a device whose reads of file data can be held.

use crate::config::Config;
use crate::rng::pattern;
use arbor_base::device::{Device, Geometry, Kind, MemDevice, Op, Request, Ticket};
use arbor_base::vfs::{Cx, Devices, Engine, FileSystem, Ino, ManualClock, MountOptions, Time, mode};
use std::io;
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// A device in memory that completes the next read of file data only when it is told to.
#[derive(Clone)]
struct Gate {
    memory: MemDevice,
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    /// The next read is held.
    armed: bool,
    held: bool,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().expect("nobody has panicked")
    }

    fn arm(&self) {
        self.state().armed = true;
    }

    /// Waits until a read is held; says whether one is.
    fn holds_one(&self, time: Duration) -> bool {
        self.state.1.wait_timeout_while(self.state(), time, |s| !s.held).expect("nobody has panicked").0.held
    }

    /// Lets the held read go. `arm`: the next one is held again.
    fn open(&self, arm: bool) {
        *self.state() = State { armed: arm, held: false };
        self.state.1.notify_all();
    }

    fn pass(&self) {
        let mut state = self.state();
        if std::mem::take(&mut state.armed) {
            state.held = true;
            self.state.1.notify_all();
            drop(self.state.1.wait_while(state, |s| s.held).expect("nobody has panicked"));
        }
    }
}

impl Device for Gate {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    /// What was read is what lay there when the read began.
    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let reads = batch.iter().any(|r| r.kind == Kind::Data && matches!(r.op, Op::Read(_)));
        let done = self.memory.submit(batch).wait();
        if reads {
            self.pass();
        }
        Ticket::done(done)
    }

    fn flush(&self) -> io::Result<()> {
        self.memory.flush()
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.memory.set_size(size)
    }
}

const LEN: usize = 16 << 10;
const LARGE: usize = 4 << 20;
/// How long a call that waits for nobody may take.
const SOON: Duration = Duration::from_millis(500);

struct World {
    gate: Gate,
    fs: Arc<dyn FileSystem>,
    /// Two small files, and one that fills the cache.
    files: [Ino; 2],
    large: Ino,
}

fn world(engine: &dyn Engine, config: &Config) -> World {
    let memory = config.memory();
    engine.format(Devices::single(memory.clone()), &config.format_options()).expect("format");
    let gate = Gate { memory, state: Arc::default() };
    let clock = Arc::new(ManualClock::new(Time { secs: 1_700_000_000, nanos: 0 }));
    let options = MountOptions { options: config.mount.clone(), ..MountOptions::default() };
    let mount = || engine.mount(Devices::single(gate.clone()), &options, clock.clone()).expect("mount");
    let fs = mount();
    for (name, len) in [("a", LEN), ("b", LEN), ("large", LARGE)] {
        let made = fs.mknod(&Cx::default(), fs.root(), name.as_bytes(), mode::IFREG | 0o644, 0).expect("mknod");
        assert_eq!(fs.write(made.ino, 0, &pattern(1, 0, len)).expect("write"), len);
    }
    fs.unmount().expect("unmount");
    let fs = mount();
    let [a, b, large] = ["a", "b", "large"].map(|name| fs.lookup(fs.root(), name.as_bytes()).expect("lookup").ino);
    World { gate, fs, files: [a, b], large }
}

fn read(fs: &dyn FileSystem, file: Ino, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    assert_eq!(fs.read(file, 0, &mut bytes).expect("read"), len);
    bytes
}

impl World {
    /// One try: a read of the first file is held while others work. Says whether they were served meanwhile.
    fn is_served(&self) -> bool {
        let (gate, [a, b]) = (&self.gate, self.files);
        read(&*self.fs, self.large, LARGE);
        gate.arm();
        let reader = |file| {
            let fs = self.fs.clone();
            thread::spawn(move || drop(read(&*fs, file, LEN)))
        };
        // A call that begins alone may keep others waiting, one that does not may not.
        let first = reader(b);
        assert!(gate.holds_one(10 * SOON), "the file was not read from the device");
        let second = reader(a);
        thread::sleep(SOON / 10);
        gate.open(true);
        let held = gate.holds_one(SOON);
        let served = held && self.works_beside();
        gate.open(false);
        first.join().expect("the first read");
        second.join().expect("the second read");
        if served {
            assert!(read(&*self.fs, a, LEN) == pattern(2, 0, LEN), "a read that was overtaken by a write came back");
        }
        served
    }

    /// Overwrites the first file, durably, and lets the cache forget it; says whether that could be done at once.
    fn works_beside(&self) -> bool {
        let (done, served) = channel();
        let (fs, file, large) = (self.fs.clone(), self.files[0], self.large);
        let worker = thread::spawn(move || {
            fs.getattr(file).expect("getattr");
            // Nobody listens if that has taken too long.
            let _ = done.send(());
            assert_eq!(fs.write(file, 0, &pattern(2, 0, LEN)).expect("write"), LEN);
            fs.fsync(file, false).expect("fsync");
            read(&*fs, large, LARGE);
            let _ = done.send(());
        });
        let served = served.recv_timeout(SOON).is_ok() && served.recv_timeout(20 * SOON).is_ok();
        if !served {
            self.gate.open(false);
        }
        worker.join().expect("work beside a read");
        served
    }
}

/// Checks that a call which waits for the device keeps nobody waiting, and that what it has read is not taken for the
/// file's if others have written there meanwhile; panics if it is otherwise.
pub fn reads_keep_nobody_waiting(engine: &dyn Engine, config: &Config) {
    let world = world(engine, config);
    // Threads may begin late.
    let served = (0..20).any(|_| world.is_served());
    assert!(served, "{} {}: nobody is served while the device reads", engine.name(), config.mount);
    world.fs.unmount().expect("unmount");
}
