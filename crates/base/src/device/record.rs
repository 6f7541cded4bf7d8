//! A device that records its writes and flushes, and builds every disk a power cut may leave.
//!
//! The typical sequence of the crash explorer: format a [`MemDevice`], wrap it, run the engine on
//! a clone of the handle; then for each `at` in `0..=events()` and each choice, mount
//! `crash_state(at, &choice)` and check what must have survived.

use super::{Completion, Device, Geometry, Kind, MemDevice, Op, Request, SECTOR, Ticket};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use std::fmt;
use std::io;
use std::sync::Arc;

/// A recorded change of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A write, logged when it was submitted.
    Write {
        /// Byte offset on the device.
        offset: u64,
        /// What it was for.
        kind: Kind,
        /// What was written.
        data: Arc<[u8]>,
    },
    /// A discard.
    Discard {
        /// Byte offset on the device.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// A flush: all events before it are durable.
    Flush,
    /// A change of size in bytes. A larger size is as uncertain as a write until a flush covers it;
    /// a smaller one is durable by itself.
    SetSize {
        /// Size before.
        from: u64,
        /// Size after.
        to: u64,
    },
}

impl Event {
    /// Whether a power cut decides its fate.
    fn has_fate(&self) -> bool {
        match self {
            Event::Write { .. } | Event::Discard { .. } => true,
            Event::SetSize { from, to } => to > from,
            Event::Flush => false,
        }
    }
}

/// What a power cut does to one write, discard or growth that no flush covers. A growth is never
/// torn: it is there or not, and without it nothing that was written after the old end is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is there.
    Kept,
    /// It is not there.
    Dropped,
    /// Some of its sectors are there, chosen by this seed. In the log, which is made for it, a
    /// sector may also hold nonsense.
    Torn(u64),
}

impl Fate {
    /// Whether nonsense stands in sector number `sector` of a write of this kind.
    fn garbles(self, kind: Kind, sector: u64) -> bool {
        matches!(self, Fate::Torn(seed) if kind == Kind::Log && mix(seed ^ mix(!sector)).is_multiple_of(8))
    }

    /// Whether sector number `sector` of the request is there.
    pub fn keeps(self, sector: u64) -> bool {
        match self {
            Fate::Kept => true,
            Fate::Dropped => false,
            Fate::Torn(seed) => mix(seed.wrapping_add(mix(sector))) & 1 == 1,
        }
    }
}

/// What a power cut does to the writes, discards and growths that no flush covers. They are
/// numbered from 0 in the order of their submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CrashChoice {
    /// All are there.
    AllKept,
    /// None is there.
    NoneKept,
    /// All but this one are there.
    DropOne(usize),
    /// Only this one is there.
    KeepOne(usize),
    /// Only the first so many are there.
    Prefix(usize),
    /// Each one is kept, dropped or torn by a generator that starts from this seed.
    Seeded(u64),
    /// The fate of each; those that the list does not reach are dropped.
    List(Vec<Fate>),
}

impl CrashChoice {
    /// The same choice for `n` pending requests, written out. A failing `Seeded` choice is made
    /// smaller by changing this list.
    pub fn fates(&self, n: usize) -> Vec<Fate> {
        let kept_if = |keep: &dyn Fn(usize) -> bool| {
            (0..n).map(|i| if keep(i) { Fate::Kept } else { Fate::Dropped }).collect::<Vec<_>>()
        };
        match self {
            CrashChoice::AllKept => kept_if(&|_| true),
            CrashChoice::NoneKept => kept_if(&|_| false),
            CrashChoice::DropOne(one) => kept_if(&|i| i != *one),
            CrashChoice::KeepOne(one) => kept_if(&|i| i == *one),
            CrashChoice::Prefix(len) => kept_if(&|i| i < *len),
            CrashChoice::Seeded(seed) => seeded(*seed, n),
            CrashChoice::List(fates) => fates.iter().copied().chain(std::iter::repeat(Fate::Dropped)).take(n).collect(),
        }
    }
}

/// Three eighths of the seeds lean to keeping, three to dropping, so that the rare single loss and
/// the rare single survivor come up as well as the even mixture.
fn seeded(seed: u64, n: usize) -> Vec<Fate> {
    let mut state = seed;
    let mut draw = || {
        state = state.wrapping_add(GOLDEN);
        mix(state)
    };
    let kept_of_16 = [1, 1, 1, 6, 6, 12, 12, 12][(draw() % 8) as usize];
    let torn_of_16 = 3;
    (0..n)
        .map(|_| match draw() % 16 {
            x if x < kept_of_16 => Fate::Kept,
            x if x < kept_of_16 + torn_of_16 => Fate::Torn(draw()),
            _ => Fate::Dropped,
        })
        .collect()
}

/// What a torn sector of the log may hold.
const NONSENSE: [u8; SECTOR] = [0xa5; SECTOR];

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The output function of splitmix64.
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Wraps a memory device and logs what changes it. Clones are handles of the same device, so that
/// a test can keep one while the engine owns another.
#[derive(Clone)]
pub struct RecordingDevice {
    shared: Arc<Shared>,
}

struct Shared {
    live: MemDevice,
    base: MemDevice,
    log: RwLock<Log>,
    durable: Mutex<Durable>,
}

#[derive(Default)]
struct Log {
    events: Vec<Event>,
    /// Positions just after each flush, ascending.
    flushed: Vec<usize>,
    marks: Vec<(usize, String)>,
}

impl Log {
    /// The first so many of `at` events are covered by a flush among them.
    fn durable_at(&self, at: usize) -> usize {
        match self.flushed.partition_point(|end| *end <= at) {
            0 => 0,
            n => self.flushed[n - 1],
        }
    }
}

/// The disk after the first `events` events. It moves forward with the questions, so that asking
/// for each event of a run in turn applies every event once.
struct Durable {
    events: usize,
    disk: MemDevice,
    print: Print,
}

/// A number for the content of a disk that is kept up to date write by write: the sum over the
/// sectors that were written. Discards are mixed in by their order, since their sectors are not
/// looked at, so equal prints mean equal disks but some equal disks have unequal prints.
#[derive(Clone, Default)]
struct Print {
    sectors: FxHashMap<u64, u64>,
    sum: u64,
}

impl Print {
    fn set(&mut self, sector: u64, print: u64, base: &MemDevice) {
        let old = *self.sectors.entry(sector).or_insert_with(|| {
            let mut bytes = [0; SECTOR];
            // Past the end of the base there is nothing that could differ.
            let _ = base.read_at(Kind::Other, sector * SECTOR as u64, &mut bytes);
            sector_print(sector, &bytes)
        });
        self.sectors.insert(sector, print);
        self.sum = self.sum.wrapping_sub(old).wrapping_add(print);
    }

    fn apply(&mut self, event: &Event, fate: Fate, base: &MemDevice) {
        match event {
            Event::Write { offset, data, kind } => {
                let first = offset / SECTOR as u64;
                for (i, bytes) in (0..).zip(data.chunks(SECTOR)) {
                    if fate.garbles(*kind, i) {
                        self.set(first + i, sector_print(first + i, &NONSENSE), base);
                    } else if fate.keeps(i) {
                        self.set(first + i, sector_print(first + i, bytes), base);
                    }
                }
            }
            Event::Discard { offset, len } if fate != Fate::Dropped => {
                let torn = if let Fate::Torn(seed) = fate { seed } else { 0 };
                self.sum = mix(self.sum ^ mix(offset ^ mix(len ^ mix(torn))));
            }
            Event::SetSize { to, .. } if fate.keeps(0) => self.sum = mix(self.sum ^ mix(to ^ GOLDEN)),
            Event::SetSize { .. } | Event::Discard { .. } | Event::Flush => {}
        }
    }
}

fn sector_print(sector: u64, bytes: &[u8]) -> u64 {
    let mut print = mix(sector ^ GOLDEN);
    for word in bytes.chunks_exact(8) {
        let word = word.try_into().map_or(0, u64::from_le_bytes);
        print = (print ^ word).wrapping_mul(GOLDEN).rotate_left(29);
    }
    mix(print)
}

impl RecordingDevice {
    /// Starts to record on `base`, whose content counts as durable.
    pub fn new(base: MemDevice) -> RecordingDevice {
        let durable = Mutex::new(Durable { events: 0, disk: base.snapshot(), print: Print::default() });
        let (base, live) = (base.snapshot(), base);
        RecordingDevice { shared: Arc::new(Shared { live, base, log: RwLock::default(), durable }) }
    }

    /// Number of events so far.
    pub fn events(&self) -> usize {
        self.shared.log.read().events.len()
    }

    /// Event number `i`, from 0.
    pub fn event(&self, i: usize) -> Option<Event> {
        self.shared.log.read().events.get(i).cloned()
    }

    /// Notes a label at the present place in the log.
    pub fn mark(&self, label: impl Into<String>) {
        let mut log = self.shared.log.write();
        let at = log.events.len();
        log.marks.push((at, label.into()));
    }

    /// The labels, each with the number of events before it.
    pub fn marks(&self) -> Vec<(usize, String)> {
        self.shared.log.read().marks.clone()
    }

    /// How many of the first `at` events are covered by a flush among them.
    pub fn durable_at(&self, at: usize) -> usize {
        self.shared.log.read().durable_at(at)
    }

    /// Number of writes, discards and growths whose fate a power cut after the first `at` events
    /// decides.
    pub fn pending_at(&self, at: usize) -> usize {
        let log = self.shared.log.read();
        log.events[log.durable_at(at)..at].iter().filter(|e| e.has_fate()).count()
    }

    /// The disk after a power cut that follows the first `at` events (0: before all of them);
    /// panics if there were not so many. What the last flush among them covers is there, and
    /// `choice` decides over the rest.
    ///
    /// The cost is that of the uncovered requests as long as `at` does not go backwards past a
    /// flush.
    pub fn crash_state(&self, at: usize, choice: &CrashChoice) -> MemDevice {
        let log = self.shared.log.read();
        let durable = log.durable_at(at);
        let disk = self.durable_disk(&log.events[..durable]);
        let pending = &log.events[durable..at];
        let mut fates = choice.fates(pending.iter().filter(|e| e.has_fate()).count()).into_iter();
        for event in pending {
            let fate = if event.has_fate() { fates.next().unwrap_or(Fate::Dropped) } else { Fate::Kept };
            apply(&disk, event, fate);
        }
        disk
    }

    /// A number for the content of [`RecordingDevice::crash_state`], without building it. Equal
    /// numbers mean equal disks of this recorder, or of another one on an equal base, as far as 64
    /// bits tell them apart.
    pub fn print(&self, at: usize, choice: &CrashChoice) -> u64 {
        let log = self.shared.log.read();
        let covered = log.durable_at(at);
        let mut durable = self.shared.durable.lock();
        self.advance(&mut durable, &log.events[..covered]);
        let pending = &log.events[covered..at];
        let mut fates = choice.fates(pending.iter().filter(|e| e.has_fate()).count()).into_iter();
        let mut print = Print { sectors: FxHashMap::default(), sum: durable.print.sum };
        for event in pending {
            let fate = if event.has_fate() { fates.next().unwrap_or(Fate::Dropped) } else { Fate::Kept };
            print.apply(event, fate, &durable.disk);
        }
        print.sum
    }

    fn durable_disk(&self, events: &[Event]) -> MemDevice {
        let mut durable = self.shared.durable.lock();
        self.advance(&mut durable, events);
        durable.disk.snapshot()
    }

    fn advance(&self, durable: &mut Durable, events: &[Event]) {
        if durable.events > events.len() {
            *durable = Durable { events: 0, disk: self.shared.base.snapshot(), print: Print::default() };
        }
        for event in &events[durable.events..] {
            durable.print.apply(event, Fate::Kept, &self.shared.base);
            apply(&durable.disk, event, Fate::Kept);
        }
        durable.events = events.len();
    }

    /// Carries out one request and logs it; the lock makes both happen in one order.
    fn run(&self, request: Request) -> Completion {
        if matches!(request.op, Op::Read(_)) {
            return self.shared.live.run(&request);
        }
        let mut log = self.shared.log.write();
        let done = self.shared.live.run(&request)?;
        match request.op {
            Op::Write(bufs) => {
                let data = bufs.iter().map(|b| b.bytes()).collect::<Vec<_>>().concat().into();
                log.events.push(Event::Write { offset: request.offset, kind: request.kind, data });
            }
            Op::Discard(len) => log.events.push(Event::Discard { offset: request.offset, len }),
            Op::Read(_) => {}
        }
        Ok(done)
    }
}

/// Does to `disk` what `fate` leaves of an event. The request was checked when it was logged; what
/// lies after the end of a disk that did not grow is not there. So failure is a bug here.
fn apply(disk: &MemDevice, event: &Event, fate: Fate) {
    let done = match event {
        Event::Write { offset, kind, data } => write_sectors(disk, *kind, *offset, data, fate),
        Event::Discard { offset, len } => discard_pieces(disk, *offset, *len, fate),
        Event::Flush => Ok(()),
        Event::SetSize { to, .. } if fate.keeps(0) => disk.set_size(*to),
        Event::SetSize { .. } => Ok(()),
    };
    done.expect("a logged event can be repeated");
}

/// How many of `len` bytes at `offset` lie on the disk.
fn inside(disk: &MemDevice, offset: u64, len: u64) -> u64 {
    disk.geometry().size.saturating_sub(offset).min(len)
}

fn write_sectors(disk: &MemDevice, kind: Kind, offset: u64, data: &[u8], fate: Fate) -> io::Result<()> {
    let data = &data[..inside(disk, offset, data.len() as u64) as usize];
    if data.is_empty() {
        return Ok(());
    }
    if fate == Fate::Kept {
        return disk.write_at(kind, offset, data);
    }
    for (i, sector) in data.chunks(SECTOR).enumerate() {
        let at = offset + (i * SECTOR) as u64;
        if fate.garbles(kind, i as u64) {
            disk.write_at(kind, at, &NONSENSE)?;
        } else if fate.keeps(i as u64) {
            disk.write_at(kind, at, sector)?;
        }
    }
    Ok(())
}

/// A torn discard falls into at most 64 pieces: a volume may give back terabytes at once.
fn discard_pieces(disk: &MemDevice, offset: u64, len: u64, fate: Fate) -> io::Result<()> {
    let piece = match fate {
        Fate::Torn(_) => len.div_ceil(64).next_multiple_of(SECTOR as u64).max(SECTOR as u64),
        _ => len.max(1),
    };
    for i in 0..len.div_ceil(piece) {
        let from = i * piece;
        let there = inside(disk, offset + from, piece.min(len - from));
        if fate.keeps(i) && there > 0 {
            disk.run(&Request::discard(Kind::Other, offset + from, there))?;
        }
    }
    Ok(())
}

impl Device for RecordingDevice {
    fn geometry(&self) -> Geometry {
        self.shared.live.geometry()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        Ticket::done(batch.into_iter().map(|r| self.run(r)).collect())
    }

    fn flush(&self) -> io::Result<()> {
        let mut log = self.shared.log.write();
        self.shared.live.flush()?;
        log.events.push(Event::Flush);
        let end = log.events.len();
        log.flushed.push(end);
        Ok(())
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        let mut log = self.shared.log.write();
        let from = self.shared.live.geometry().size;
        self.shared.live.set_size(size)?;
        log.events.push(Event::SetSize { from, to: size });
        Ok(())
    }

    fn read_at(&self, kind: Kind, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.shared.live.read_at(kind, offset, buf)
    }
}

impl fmt::Debug for RecordingDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (size, events) = (self.geometry().size, self.events());
        f.debug_struct("RecordingDevice").field("size", &size).field("events", &events).finish()
    }
}
