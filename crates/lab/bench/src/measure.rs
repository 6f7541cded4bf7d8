//! One run of one workload on one engine on a simulated disk, phase by phase. `peer` does the same for file systems
//! that are no engines.

use crate::experiment::{Case, END, FOUND, MOUNT, NEXT, Part, Quantity, Rank};
use crate::ground::{Counts, Event, Ground, Outcome, Phase, Seen, Stoppable, run};
use crate::lanes::{self, Meeting, Work};
use crate::library::{Charge, Leave, Library, VirtualTime};
use crate::op::{Op, Program};
use crate::picture::{Map, Picture};
use crate::record::{Kept, Recorder, Traces};
use crate::workload::primitive::{Chain, Ops};
use arbor_base::device::{Device, Kind, MemDevice, OffsetDevice};
use arbor_base::vfs::{
    Clock, Devices, Engine, Errno, Error, FileSystem, FormatOptions, MountOptions, Options, Region, Result, Time,
};
use arbor_simdisk::{HostQueue, Latencies, Model, SimClock, SimDevice, SsdStats, Stats};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What is compared.
#[derive(Clone)]
pub struct Subject<'a> {
    /// Its name; a paper's figures are found by it.
    pub name: String,
    /// What it is.
    pub system: System<'a>,
    /// Engine and options in words, if it is none of those that everybody knows by their names.
    pub setup: Option<String>,
}

/// A file system that workloads run on.
#[derive(Clone)]
pub enum System<'a> {
    /// One of ours, called directly.
    Engine(Setup<'a>),
    /// Somebody else's, mounted.
    #[cfg(unix)]
    Peer(Rc<crate::peer::Start<'a>>),
}

/// An engine with its options.
#[derive(Clone)]
pub struct Setup<'a> {
    /// The engine.
    pub engine: &'a dyn Engine,
    /// Options of format, as after `-o`.
    pub format: String,
    /// Options of mount, as after `-o`.
    pub mount: String,
    /// Further devices.
    pub extra: Vec<Extra>,
}

/// A further device of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extra {
    /// What it is to the engine.
    pub role: String,
    /// Its size, bytes.
    pub bytes: u64,
    /// Where it lies.
    pub place: Place,
}

/// Where a further device lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// At the beginning of a disk of its own of the same model, whose requests are not counted, as in the yFS paper.
    Own,
    /// On the disk of the volume, before it.
    Before,
    /// On the disk of the volume, after it.
    After,
}

/// Where a volume lies on its disk, bytes, and by role the further devices beside it.
type Places = (Range<u64>, BTreeMap<String, Range<u64>>);

impl Setup<'_> {
    /// Where the volume lies on its disk, of so many bytes or on all of it, and further devices beside it.
    fn places(&self, volume_bytes: Option<u64>, capacity: u64) -> std::result::Result<Places, String> {
        let on = |place| self.extra.iter().filter(move |extra| extra.place == place);
        let sum = |place| on(place).map(|extra| extra.bytes).sum::<u64>();
        let (before, after) = (sum(Place::Before), sum(Place::After));
        let left = capacity.saturating_sub(before.saturating_add(after));
        let len = volume_bytes.unwrap_or(left);
        if len == 0 || len > left {
            return Err(format!("a volume of {len} bytes and what lies beside it do not fit on {capacity} bytes"));
        }
        let (volume, mut beside) = (before..before + len, BTreeMap::new());
        for (place, mut at) in [(Place::Before, 0), (Place::After, volume.end)] {
            for extra in on(place) {
                beside.insert(extra.role.clone(), at..at + extra.bytes);
                at += extra.bytes;
            }
        }
        Ok((volume, beside))
    }

    /// Its options of mount on the host of a run.
    fn mount_on(&self, settings: &Settings) -> Options {
        const KEY: &str = "dirtybuffers";
        let mut options = Options::parse(&self.mount);
        let counts = self.engine.mount_options().iter().any(|option| option.key == KEY);
        let of_host = settings.dirty_buffers.filter(|_| counts && options.get(KEY).is_none());
        options.0.extend(of_host.map(|n| (KEY.into(), n.to_string())));
        options
    }
}

impl fmt::Debug for Setup<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -o {} -o {}", self.engine.name(), self.format, self.mount)
    }
}

/// What is the same for all subjects.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The disk.
    pub model: Model,
    /// The driver's queue.
    pub queue: HostQueue,
    /// Most dirty buffers of engines that can count them, if they are counted.
    pub dirty_buffers: Option<u32>,
    /// Charge of the processor on the virtual clock.
    pub charge: Charge,
    /// Runs of each workload, with seeds counting up.
    pub runs: u32,
    /// The seed of the first run.
    pub seed: u64,
    /// Counts of files and operations are divided by this; unless it is 1 there are no figures of a paper.
    pub divisor: u32,
    /// The size of the volume, bytes, if it is a part of the disk only.
    pub partition_bytes: Option<u64>,
    /// What is on the other disk, of the same model, of workloads that copy from one; without it they read nothing.
    pub source: Option<Setup<'static>>,
    /// Once it is set, a run ends with an error before its next operation.
    pub stop: Arc<AtomicBool>,
    /// Only the workloads of these names; all, if there are none.
    pub cases: Vec<String>,
    /// What is given besides the quantities that an experiment asks for.
    pub more: Vec<More>,
    /// So many programs of each workload run at the same time, on one volume.
    pub lanes: u32,
    /// Where the requests of the first run of each workload on each subject go.
    pub traces: Option<Arc<dyn Traces>>,
}

/// Quantities that are given of each part if somebody asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// How long calls take.
    Latency,
    /// Bytes written for each byte, by the file system and by the flash.
    Amplification,
    /// All counters of the engine.
    Counters,
}

impl Settings {
    /// One run of the paper's size on `model`, without charges and a source.
    pub fn new(model: Model) -> Settings {
        let (queue, charge) = (HostQueue::default(), Charge::default());
        Settings {
            model,
            queue,
            dirty_buffers: None,
            charge,
            lanes: 1,
            runs: 1,
            seed: 1,
            divisor: 1,
            partition_bytes: None,
            source: None,
            stop: Arc::default(),
            cases: Vec::new(),
            more: Vec::new(),
            traces: None,
        }
    }

    /// What counts are divided by, and how much the disk has, bytes.
    pub(crate) fn scale(&self) -> (u32, u64) {
        (self.divisor.max(1), self.model.capacity_bytes())
    }

    /// Whether a workload of this name is run.
    pub fn has_case(&self, name: &str) -> bool {
        self.cases.is_empty() || self.cases.iter().any(|case| case.eq_ignore_ascii_case(name))
    }
}

impl VirtualTime for SimClock {
    fn now(&self) -> Time {
        Clock::now(self)
    }
    fn advance_ns(&self, ns: u64) {
        SimClock::advance_ns(self, ns);
    }
}

/// A phase of a run, measured.
#[derive(Clone, Debug)]
pub struct PhaseSample {
    /// Its name.
    pub name: &'static str,
    /// When it began, virtual time, ns.
    pub begun_ns: u64,
    /// Virtual time that it took, ns.
    pub elapsed_ns: u64,
    /// Real time of the processor, s, if all that the file system did was in this thread.
    pub processor_s: Option<f64>,
    /// What the file system's disk did.
    pub disk: Stats,
    /// By how much the engine's counters have grown, by name.
    pub counters: Vec<(&'static str, u64)>,
    /// What is used of the volume at its end besides what an empty one needs, bytes, if it is mounted then.
    pub used_bytes: Option<u64>,
    /// How long calls took, if that is known.
    pub calls: Latencies,
}

impl PhaseSample {
    /// How long the disk was busy with requests of a kind, s: its busy time, of which each kind has a share according
    /// to the service times, since the drive works at several requests at once.
    pub fn busy_s(&self, kind: Kind) -> f64 {
        let share = self.disk.kind(kind).service_ns as f64 / self.disk.service_ns.max(1) as f64;
        self.disk.busy_ns as f64 / 1e9 * share
    }

    /// By how much one of the engine's counters has grown, if it has it.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.counters.iter().find(|(n, _)| *n == name).map(|(_, by)| *by)
    }
}

/// A run, measured.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Its phases, those that the program marks and [`MOUNT`] and [`END`].
    pub phases: Vec<PhaseSample>,
    /// What the program did.
    pub outcome: Outcome,
    /// Whether requests say what they are for.
    pub has_kinds: bool,
    /// What there is to see, if it was asked for.
    pub picture: Option<Picture>,
}

/// Formats, mounts with nothing cached, runs the workloads one after the other, unmounts. A sample for each workload;
/// what there is to see is with the first one.
pub fn sample(
    subject: &Subject<'_>,
    cases: &[Case],
    settings: &Settings,
    seed: u64,
    kept: Kept,
    tell: &mut dyn FnMut(Event),
) -> std::result::Result<Vec<Sample>, String> {
    match &subject.system {
        System::Engine(setup) => of_engine(&subject.name, setup, cases, settings, seed, kept, tell),
        #[cfg(unix)]
        System::Peer(start) => crate::peer::sample(&subject.name, &**start, cases, settings, seed, kept, tell),
    }
    .map(Sample::split)
    .map_err(|e| format!("{}: {e}", subject.name))
}

/// The programs of the workloads one after the other, with a phase [`NEXT`] between.
pub(crate) fn program(
    cases: &[Case],
    (divisor, capacity_bytes): (u32, u64),
    seed: u64,
    reads_ns: &[u64],
) -> Box<dyn Program> {
    let mut programs: Vec<Box<dyn Program>> = Vec::new();
    for case in cases {
        if !programs.is_empty() {
            programs.push(Box::new(Ops::new(vec![Op::Phase(NEXT)])));
        }
        programs.push(case.load.program(seed, divisor, capacity_bytes, reads_ns));
    }
    Box::new(Chain::new(programs))
}

/// How many programs run at the same time: as many as asked for, or as the workloads have.
pub(crate) fn lanes_of(cases: &[Case], settings: &Settings) -> u32 {
    cases.iter().map(|case| case.load.lanes()).fold(settings.lanes, u32::max)
}

fn of_engine(
    name: &str,
    setup: &Setup<'_>,
    cases: &[Case],
    settings: &Settings,
    seed: u64,
    kept: Kept,
    tell: &mut dyn FnMut(Event),
) -> std::result::Result<Sample, String> {
    let volume_bytes = cases.iter().find_map(|case| case.load.volume_bytes(settings.divisor.max(1)));
    let lanes = lanes_of(cases, settings);
    if lanes > 1 && volume_bytes.is_some() {
        return Err("the volume is as large as one program needs it, so there is room for one only".into());
    }
    let model = cases.iter().find_map(|case| case.load.drive(&settings.model));
    let model = model.as_ref().unwrap_or(&settings.model);
    let bench = Bench::new(setup, (model, settings), volume_bytes.or(settings.partition_bytes), kept.picture)?;
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let mut recorder = Recorder::new(kept);
    bench.disk.set_tracing(recorder.is_wanted());
    bench.format().and_then(|()| bench.map("formatted")).map_err(|e| text(&e))?;
    let fs = bench.mount().map_err(|e| text(&e))?;
    bench.disk.drain();
    recorder.run_begins(&bench.disk);
    let mut event = |event: Event| {
        match event {
            Event::Phase(name) => {
                bench.meter.borrow_mut().mark(name);
                recorder.phase(name, &bench.disk);
            }
            Event::Progress(..) => recorder.take(&bench.disk),
        }
        tell(event);
    };
    let course = Course { bench: &bench, cases, settings, seed };
    let (outcome, fs) =
        if lanes > 1 { course.by_lanes(fs, lanes, &mut event)? } else { course.alone(fs, &mut event)? };
    bench.meter.borrow_mut().mark(END);
    recorder.phase(END, &bench.disk);
    let trace = recorder.seen();
    bench.unmount(fs).and_then(|()| bench.map("at the end")).map_err(|e| text(&e))?;
    recorder.take(&bench.disk);
    recorder.finish().map_err(|e| format!("trace: {e}"))?;
    let mut phases = bench.meter.into_inner().finish();
    // What came before the first mark is making the volume and mounting it.
    phases.remove(0);
    let maps = bench.maps.into_inner();
    let picture = trace.map(|trace| Picture::new(name, cases, settings, &trace, &phases, maps));
    Ok(Sample { phases, outcome, has_kinds: true, picture })
}

/// Workloads on a mounted volume.
struct Course<'a, 'b> {
    bench: &'a Bench<'b>,
    cases: &'a [Case],
    settings: &'a Settings,
    seed: u64,
}

/// What came of a course, and the volume.
type Ran = std::result::Result<(Outcome, Arc<dyn FileSystem>), String>;

impl Course<'_, '_> {
    /// Runs one program.
    fn alone(&self, fs: Arc<dyn FileSystem>, event: &mut dyn FnMut(Event)) -> Ran {
        let Course { bench, cases, settings, seed } = *self;
        let mut program = program(cases, settings.scale(), seed, &reads_ns(cases, settings, seed)?);
        let remount = Box::new(|fs, leave| bench.remount(fs, leave));
        let ground = Library::new(fs, bench.clock.clone(), settings.charge, remount);
        bench.meter.borrow_mut().calls = ground.latencies();
        let mut ground = Stoppable { ground, stop: &settings.stop };
        let outcome = run(&mut *program, &mut ground, event).map_err(|e| e.to_string())?;
        Ok((outcome, ground.into_inner().into_inner()))
    }

    /// Runs as many programs as there are to be, at the same time.
    fn by_lanes(&self, fs: Arc<dyn FileSystem>, lanes: u32, event: &mut dyn FnMut(Event)) -> Ran {
        let Course { bench, cases, settings, seed } = *self;
        let ((divisor, capacity_bytes), clock) = (settings.scale(), bench.clock.clone());
        let (charge, stop) = (settings.charge, &*settings.stop);
        let reads_ns = (0..lanes).map(|lane| reads_ns(cases, settings, lanes::seed(seed, lane)));
        let reads_ns = &reads_ns.collect::<std::result::Result<Vec<_>, String>>()?[..];
        let work = Work { lanes, cases, divisor, capacity_bytes, seed, reads_ns, charge, clock, stop };
        let took = |calls| {
            let mut meter = bench.meter.borrow_mut();
            (meter.is_alone, meter.calls) = (false, Rc::new(RefCell::new(calls)));
        };
        let (outcome, fs, calls) = lanes::work(&work, fs, &mut |meeting, fs, calls| match meeting {
            Meeting::Remount(leave) => bench.remount(fs, leave),
            Meeting::Phase(name) => {
                took(calls);
                event(Event::Phase(name));
                Ok(fs)
            }
        })?;
        took(calls);
        Ok((outcome, fs))
    }
}

/// Whether a volume of a subject can be made and mounted on the disk of a run; the error says what cannot.
pub fn try_out(setup: &Setup<'_>, settings: &Settings) -> std::result::Result<(), String> {
    let bench = Bench::new(setup, (&settings.model, settings), settings.partition_bytes, false)?;
    bench.format().map_err(|e| format!("mkfs: {e}"))?;
    bench.mount().and_then(|fs| bench.unmount(fs)).map_err(|e| format!("mount: {e}"))
}

/// How long a program that copies waits for each file of its source: the source is on a disk of its own, nothing of
/// it is cached, and it is read one file after another.
pub(crate) fn reads_ns(cases: &[Case], settings: &Settings, seed: u64) -> std::result::Result<Vec<u64>, String> {
    let Some(source) = &settings.source else { return Ok(Vec::new()) };
    let copied = cases.first().and_then(|case| case.load.source(seed, settings.divisor.max(1)));
    let Some(mut program) = copied else { return Ok(Vec::new()) };
    let bench = Bench::new(source, (&settings.model, settings), None, false)?;
    let fs = bench.format().and_then(|()| bench.mount()).map_err(|e| format!("source: {e}"))?;
    let ground = Library::new(fs, bench.clock.clone(), settings.charge, Box::new(|fs, leave| bench.remount(fs, leave)));
    let timed = Timed { ground, clock: bench.clock.clone(), from_ns: 0, reads_ns: Vec::new() };
    let mut ground = Stoppable { ground: timed, stop: &settings.stop };
    run(&mut *program, &mut ground, &mut |_| ()).map_err(|e| format!("source: {e}"))?;
    Ok(ground.into_inner().reads_ns)
}

/// Notes the time from one close to the next, after the remount.
struct Timed<'a> {
    ground: Library<'a>,
    clock: Arc<SimClock>,
    /// When the last file was closed; before the remount nothing counts.
    from_ns: u64,
    reads_ns: Vec<u64>,
}

impl Ground for Timed<'_> {
    fn apply(&mut self, op: &Op, seen: &mut Seen) -> std::result::Result<(), String> {
        self.ground.apply(op, seen)?;
        let now = self.clock.now_ns();
        match op {
            Op::Remount => self.from_ns = now,
            Op::Close if self.from_ns > 0 => {
                self.reads_ns.push(now - self.from_ns);
                self.from_ns = now;
            }
            _ => {}
        }
        Ok(())
    }

    fn used_percent(&mut self) -> std::result::Result<f64, String> {
        self.ground.used_percent()
    }
}

/// A volume on simulated disks.
struct Bench<'a> {
    setup: &'a Setup<'a>,
    mount: Options,
    clock: Arc<SimClock>,
    /// What the simulated disks keep their bytes in; looked at without taking time.
    memory: MemDevice,
    disk: SimDevice,
    /// Where the volume lies on the disk, and the further devices that lie there too, bytes.
    volume: Range<u64>,
    beside: BTreeMap<String, Range<u64>>,
    /// Further devices on disks of their own.
    extra: BTreeMap<String, (MemDevice, SimDevice)>,
    meter: RefCell<Meter>,
    /// Whether maps are wanted, and those made.
    with_maps: bool,
    maps: RefCell<Vec<Map>>,
}

impl<'a> Bench<'a> {
    /// `volume_bytes`: the size of the volume, which begins where the disk does; `None` for the whole disk.
    fn new(
        setup: &'a Setup<'a>,
        (model, settings): (&Model, &Settings),
        volume_bytes: Option<u64>,
        with_maps: bool,
    ) -> std::result::Result<Bench<'a>, String> {
        // Any day will do.
        let clock = SimClock::new(Time { secs: 1_000_000_000, nanos: 0 });
        let device = |bytes: u64| {
            let memory = MemDevice::new(bytes);
            let inner = Arc::new(memory.clone());
            SimDevice::new(inner, model, settings.queue.clone(), clock.clone()).map(|sim| (memory, sim))
        };
        let (volume, beside) = setup.places(volume_bytes, model.capacity_bytes())?;
        let end = beside.values().map(|area| area.end).max().unwrap_or(0).max(volume.end);
        let (memory, disk) = device(end)?;
        let own = setup.extra.iter().filter(|extra| extra.place == Place::Own);
        let extra = own.map(|extra| Ok((extra.role.clone(), device(extra.bytes)?)));
        let extra = extra.collect::<std::result::Result<_, String>>()?;
        let meter = RefCell::new(Meter::new(clock.clone(), disk.clone()));
        let (mount, maps) = (setup.mount_on(settings), RefCell::default());
        Ok(Bench { setup, mount, clock, memory, disk, volume, beside, extra, meter, with_maps, maps })
    }

    /// What the engine gets: areas of `disk`, and of further devices what `own` says.
    fn devices_on<D: Device + Clone + 'static>(
        &self,
        disk: &D,
        own: impl Fn(&(MemDevice, SimDevice)) -> Arc<dyn Device>,
    ) -> Result<Devices> {
        let area = |area: &Range<u64>| -> Result<Arc<dyn Device>> {
            if self.beside.is_empty() {
                return Ok(Arc::new(disk.clone()));
            }
            Ok(Arc::new(OffsetDevice::new(disk.clone(), area.start, area.end - area.start)?))
        };
        let beside = self.beside.iter().map(|(role, at)| Ok((role.clone(), area(at)?)));
        let mut extra = beside.collect::<Result<BTreeMap<String, Arc<dyn Device>>>>()?;
        extra.extend(self.extra.iter().map(|(role, device)| (role.clone(), own(device))));
        Ok(Devices { main: area(&self.volume)?, extra })
    }

    fn devices(&self) -> Result<Devices> {
        self.devices_on(&self.disk, |(_, sim)| Arc::new(sim.clone()))
    }

    fn format(&self) -> Result<()> {
        let options = Options::parse(&self.setup.format);
        let now = Clock::now(&*self.clock);
        self.setup.engine.format(self.devices()?, &FormatOptions { options, now, ..FormatOptions::default() })
    }

    fn mount(&self) -> Result<Arc<dyn FileSystem>> {
        let options = MountOptions { read_only: false, options: self.mount.clone() };
        let fs = self.setup.engine.mount(self.devices()?, &options, self.clock.clone())?;
        self.meter.borrow_mut().mounted(&fs);
        Ok(fs)
    }

    fn unmount(&self, fs: Arc<dyn FileSystem>) -> Result<()> {
        fs.unmount()?;
        self.meter.borrow_mut().fs = None;
        self.disk.drain();
        Ok(())
    }

    fn remount(&self, fs: Arc<dyn FileSystem>, leave: Leave) -> Result<Arc<dyn FileSystem>> {
        match leave {
            Leave::Unmount => self.unmount(fs)?,
            Leave::PowerCut => {
                self.meter.borrow_mut().fs = None;
                self.disk.drain();
            }
        }
        self.map("between")?;
        self.meter.borrow_mut().mark(MOUNT);
        self.mount()
    }

    fn map(&self, when: &'static str) -> Result<()> {
        if !self.with_maps {
            return Ok(());
        }
        let devices = self.devices_on(&self.memory, |(memory, _)| Arc::new(memory.clone()))?;
        let mut map = Map::new(when, self.memory.geometry().size);
        let from = self.volume.start;
        match self.setup.engine.describe(&devices, &mut |region| {
            map.add(&Region { offset: from + region.offset, ..region });
        }) {
            // An engine that cannot say what lies where has no maps.
            Err(Error::Errno(Errno::EOPNOTSUPP)) => return Ok(()),
            described => described?,
        }
        self.maps.borrow_mut().push(map);
        Ok(())
    }
}

/// Cuts a run into phases.
struct Meter {
    clock: Arc<SimClock>,
    disk: SimDevice,
    fs: Option<Arc<dyn FileSystem>>,
    /// The phase that runs now, and where it began.
    name: &'static str,
    begun_ns: u64,
    begun_s: f64,
    counters: Vec<(&'static str, u64)>,
    /// What was used of the volume when it was new, bytes.
    empty_bytes: Option<u64>,
    /// How long the calls of this phase took.
    calls: Rc<RefCell<Latencies>>,
    /// One program runs, in this thread.
    is_alone: bool,
    phases: Vec<PhaseSample>,
}

impl Meter {
    fn new(clock: Arc<SimClock>, disk: SimDevice) -> Meter {
        let (begun_ns, begun_s) = (clock.now_ns(), processor_s());
        let (name, counters, phases, calls) = (MOUNT, Vec::new(), Vec::new(), Rc::default());
        Meter {
            clock,
            disk,
            fs: None,
            name,
            begun_ns,
            begun_s,
            counters,
            empty_bytes: None,
            calls,
            is_alone: true,
            phases,
        }
    }

    fn mounted(&mut self, fs: &Arc<dyn FileSystem>) {
        self.fs = Some(fs.clone());
        self.counters = self.counted();
        self.empty_bytes = self.empty_bytes.or_else(|| self.used_bytes());
    }

    /// What statfs says is used.
    fn used_bytes(&self) -> Option<u64> {
        let stat = self.fs.as_ref()?.statfs().ok()?;
        Some(stat.blocks.saturating_sub(stat.bfree) * u64::from(stat.frsize))
    }

    fn counted(&self) -> Vec<(&'static str, u64)> {
        self.fs.as_ref().map(|fs| fs.counters()).unwrap_or_default()
    }

    /// The phase ends here, and `next` begins.
    fn mark(&mut self, next: &'static str) {
        let (now_ns, now_s, counted) = (self.clock.now_ns(), processor_s(), self.counted());
        let before = |name: &str| self.counters.iter().find(|(n, _)| *n == name).map_or(0, |(_, count)| *count);
        let counters = counted.iter().map(|(name, count)| (*name, count.saturating_sub(before(name)))).collect();
        self.phases.push(PhaseSample {
            name: self.name,
            begun_ns: self.begun_ns,
            elapsed_ns: now_ns - self.begun_ns,
            processor_s: self.is_alone.then_some(now_s - self.begun_s),
            disk: self.disk.stats(),
            counters,
            used_bytes: self.used_bytes().zip(self.empty_bytes).map(|(used, empty)| used.saturating_sub(empty)),
            calls: self.calls.take(),
        });
        self.disk.reset_stats();
        (self.name, self.begun_ns, self.begun_s, self.counters) = (next, now_ns, now_s, counted);
    }

    fn finish(mut self) -> Vec<PhaseSample> {
        self.mark("");
        self.phases
    }
}

/// Time of the processor that this thread has used, s; elapsed time where the system does not say.
fn processor_s() -> f64 {
    #[cfg(unix)]
    {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
    }
    #[cfg(not(unix))]
    {
        static BEGUN: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
        BEGUN.elapsed().as_secs_f64()
    }
}

/// The counters of what a cleaner reads, and of what it writes elsewhere.
const CLEANED: [&str; 2] = ["clean_read_bytes", "clean_moved_bytes"];

/// Kinds with figures of their own.
const NAMED: [Kind; 4] = [Kind::Log, Kind::Inode, Kind::Dir, Kind::Data];

impl Sample {
    /// One for each workload, which a phase [`NEXT`] parts from the one before it.
    fn split(self) -> Vec<Sample> {
        let phases = self.phases.split(|p| p.name == NEXT);
        let outcomes = self.outcome.phases.split(|p| p.name == NEXT);
        let (digest, has_kinds) = (self.outcome.digest, self.has_kinds);
        let mut picture = self.picture;
        let mut one = |(phases, counts): (&[PhaseSample], &[Phase])| Sample {
            phases: phases.to_vec(),
            outcome: Outcome { phases: counts.to_vec(), digest },
            has_kinds,
            picture: picture.take(),
        };
        phases.zip(outcomes).map(&mut one).collect()
    }

    fn phases_of<'s>(&'s self, names: &'s [&'s str]) -> impl Iterator<Item = &'s PhaseSample> {
        self.phases.iter().filter(|p| names.contains(&p.name))
    }

    fn counts(&self, part: &Part, what: impl Fn(&Counts) -> u64) -> u64 {
        self.outcome.phases.iter().filter(|p| part.phases.contains(&p.name)).map(|p| what(&p.counts)).sum()
    }

    /// How long the calls of a part took.
    fn latency_us(&self, part: &Part, rank: Rank) -> Option<f64> {
        let mut calls = Latencies::default();
        self.phases_of(part.phases).for_each(|phase| calls.merge(&phase.calls));
        let ns = match rank {
            Rank::Median => calls.within_ns(500),
            Rank::P99 => calls.within_ns(990),
            Rank::P999 => calls.within_ns(999),
            Rank::Largest => Some(calls.largest_ns()).filter(|_| calls.count() > 0),
        };
        ns.map(|ns| ns as f64 / 1e3)
    }

    fn write_amplification(&self, part: &Part) -> Option<f64> {
        let after = Part { phases: part.after, ..*part };
        let program = self.counts(part, |c| c.written_bytes) + self.counts(&after, |c| c.written_bytes);
        let disk = |phases| self.phases_of(phases).map(|p| p.disk.write_bytes).sum::<u64>();
        over((disk(part.phases) + disk(part.after)) as f64, program as f64)
    }

    fn flash_written(&self, part: &Part) -> Option<f64> {
        let ssd = |f: fn(&SsdStats) -> u64| self.phases_of(part.phases).map(|p| p.disk.ssd.as_ref().map(f)).sum();
        let (flash, host): (Option<u64>, Option<u64>) = (ssd(|s| s.flash_bytes), ssd(|s| s.host_bytes));
        over(flash? as f64, host? as f64)
    }

    /// Names of the counters of a part.
    pub(crate) fn counters(&self, part: &Part) -> impl Iterator<Item = &'static str> {
        self.phases_of(part.phases).take(1).flat_map(|p| p.counters.iter().map(|(name, _)| *name))
    }

    /// By how much one of the engine's counters has grown in a part, if it has it.
    fn counted(&self, part: &Part, name: &str) -> Option<u64> {
        self.phases_of(part.phases).map(|p| p.counter(name)).sum()
    }

    /// A quantity of a part; `None` if there is no such thing.
    pub fn quantity(&self, part: &Part, quantity: Quantity) -> Option<f64> {
        let sum = |f: &dyn Fn(&PhaseSample) -> u64| self.phases_of(part.phases).map(f).sum::<u64>() as f64;
        let elapsed_s = sum(&|p| p.elapsed_ns) / 1e9;
        let requests = sum(&|p| p.disk.requests);
        match quantity {
            Quantity::Elapsed => Some(elapsed_s),
            Quantity::RemovalRate => over(self.counts(part, |c| c.files_removed) as f64, elapsed_s),
            Quantity::FileRate => {
                let files = |c: &Counts| c.files_made + c.files_opened + c.files_removed;
                over(self.counts(part, files) as f64, elapsed_s)
            }
            Quantity::Throughput => over(self.counts(part, |c| c.read_bytes + c.written_bytes) as f64 / 1e6, elapsed_s),
            Quantity::TransactionRate => over(self.counts(part, |c| c.transactions) as f64, elapsed_s),
            Quantity::WriteCost => {
                let (read, moved) = (self.counted(part, CLEANED[0])?, self.counted(part, CLEANED[1])?);
                let written = self.counted(part, "write_bytes")?;
                over((read + written) as f64, written.saturating_sub(moved) as f64)
            }
            Quantity::Moved => {
                let (read, moved) = (self.counted(part, CLEANED[0])?, self.counted(part, CLEANED[1])?);
                over(100.0 * moved as f64, read as f64)
            }
            Quantity::Found(class) => {
                let count = |(name, _): &(&str, &str)| self.counted(part, name);
                let all: u64 = FOUND.iter().map(count).sum::<Option<u64>>()?;
                over(100.0 * FOUND.get(class).and_then(count)? as f64, all as f64)
            }
            Quantity::Requests => Some(requests),
            Quantity::Reads => Some(sum(&|p| p.disk.reads)),
            Quantity::Writes => Some(sum(&|p| p.disk.writes)),
            Quantity::Written => Some(sum(&|p| p.disk.write_bytes) / 1e6),
            Quantity::LogWritten if !self.has_kinds => None,
            Quantity::LogWritten => Some(sum(&|p| p.disk.kind(Kind::Log).bytes) / 1e6),
            Quantity::FlashWritten => self.flash_written(part),
            Quantity::RequestsAfter => Some(self.phases_of(part.after).map(|p| p.disk.requests).sum::<u64>() as f64),
            Quantity::ElapsedAfter => Some(self.phases_of(part.after).map(|p| p.elapsed_ns).sum::<u64>() as f64 / 1e9),
            Quantity::Service => over(sum(&|p| p.disk.service_ns) / 1e6, requests),
            Quantity::Queue => over(sum(&|p| p.disk.queue_ns) / 1e6, requests),
            Quantity::Used => self.phases_of(part.phases).last()?.used_bytes.map(|bytes| bytes as f64 / 1e6),
            Quantity::Compared => self.counted(part, "names_compared").map(|names| names as f64 / 1e6),
            Quantity::Busy => Some(sum(&|p| p.disk.busy_ns) / 1e9),
            Quantity::Processor => self.phases_of(part.phases).map(|p| p.processor_s).sum(),
            Quantity::Kind(_) if !self.has_kinds => None,
            Quantity::Transferred => Some(sum(&|p| p.disk.read_bytes + p.disk.write_bytes) / 1e6),
            Quantity::Seek => Some(sum(&|p| p.disk.seek_ns) / 1e9),
            Quantity::Rotation => Some(sum(&|p| p.disk.rotation_ns) / 1e9),
            Quantity::Transfer => Some(sum(&|p| p.disk.transfer_ns) / 1e9),
            Quantity::Kind(Kind::Other) => {
                let named = |p: &PhaseSample| NAMED.iter().map(|kind| p.busy_s(*kind)).sum::<f64>();
                let rest = |p: &PhaseSample| p.disk.busy_ns as f64 / 1e9 - named(p);
                Some(self.phases_of(part.phases).map(rest).sum::<f64>().max(0.0))
            }
            Quantity::Kind(kind) => Some(self.phases_of(part.phases).map(|p| p.busy_s(kind)).sum()),
            Quantity::LogPerChange => {
                let bytes = self.counted(part, "log_bytes");
                let changes = |c: &Counts| c.files_made + c.dirs_made + c.files_removed + c.dirs_removed + c.renamed;
                // An engine that counts a log but has none has nothing to say.
                over(bytes.filter(|n| *n > 0)? as f64, self.counts(part, changes) as f64)
            }
            Quantity::Latency(rank) => self.latency_us(part, rank),
            Quantity::WriteAmplification => self.write_amplification(part),
            Quantity::Counter(name) => self.counted(part, name).map(|n| n as f64),
        }
    }
}

fn over(a: f64, b: f64) -> Option<f64> {
    (b > 0.0).then_some(a / b)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a device did in a phase of its own.
    fn phase(model: &str, work: impl FnOnce(&SimDevice)) -> Sample {
        let clock = SimClock::new(Time::default());
        let model = Model::named(model).unwrap();
        let disk = SimDevice::new(Arc::new(MemDevice::new(64 << 20)), &model, HostQueue::default(), clock).unwrap();
        work(&disk);
        disk.drain();
        let (counters, used_bytes, processor_s) = (Vec::new(), None, None);
        let disk = disk.stats();
        let (name, begun_ns, elapsed_ns, calls) = ("p", 0, 1, Latencies::default());
        let phases = vec![PhaseSample { name, begun_ns, elapsed_ns, processor_s, disk, counters, used_bytes, calls }];
        let outcome = Outcome { phases: Vec::new(), digest: Default::default() };
        Sample { phases, outcome, has_kinds: true, picture: None }
    }

    #[test]
    fn what_calls_took_and_what_was_written_for_what() {
        let mut sample = phase("st39140", |disk| {
            (0..3).for_each(|i| disk.write_at(Kind::Data, i << 20, &[0; 8192]).unwrap());
        });
        let after = PhaseSample { name: "after", ..sample.phases[0].clone() };
        sample.phases.push(after);
        sample.phases[0].counters = vec![("one", 1), ("other", 5)];
        (1..=2000).for_each(|us| sample.phases[0].calls.add(us * 1000));
        let counts = Counts { written_bytes: 8192, ..Counts::default() };
        sample.outcome.phases.push(Phase { name: "p", counts });
        let part = Part::new("", &["p"]);
        let figure = |quantity| sample.quantity(&part, quantity);
        let times = Rank::ALL.map(|rank| figure(Quantity::Latency(rank)).unwrap());
        // Figures are at most a thousandth too long, and the largest is not.
        let near = times.iter().zip([1000.0, 1980.0, 1998.0, 2000.0]);
        assert!(near.clone().all(|(time, exact)| (exact..=exact * 1.001).contains(time)), "{times:?}");
        assert_eq!(times[3], 2000.0);
        assert_eq!(figure(Quantity::WriteAmplification), Some(3.0));
        let with_rest = Part { after: &["after"], ..part };
        assert_eq!(sample.quantity(&with_rest, Quantity::WriteAmplification), Some(6.0));
        assert_eq!((figure(Quantity::Counter("other")), figure(Quantity::Counter("none"))), (Some(5.0), None));
        assert_eq!(sample.counters(&part).collect::<Vec<_>>(), ["one", "other"]);
        // No calls, no program.
        let none = Part::new("", &["after"]);
        assert_eq!(Rank::ALL.map(|rank| sample.quantity(&none, Quantity::Latency(rank))), [None; 4]);
        assert_eq!(sample.quantity(&none, Quantity::WriteAmplification), None);
    }

    #[test]
    fn requests_and_bytes_are_counted_by_direction_and_by_the_log() {
        let sample = phase("mcaqe32g5app", |disk| {
            (0..5).for_each(|i| disk.write_at(Kind::Data, i << 20, &[0; 8192]).unwrap());
            (0..3).for_each(|i| disk.write_at(Kind::Log, (30 + i) << 20, &[0; 4096]).unwrap());
            (0..7).for_each(|i| disk.read_at(Kind::Data, i << 20, &mut [0; 4096]).unwrap());
        });
        let part = Part::new("", &["p"]);
        let figure = |quantity| sample.quantity(&part, quantity);
        let counts = [Quantity::Reads, Quantity::Writes, Quantity::Requests].map(figure);
        assert_eq!(counts, [Some(7.0), Some(8.0), Some(15.0)]);
        let written = [Quantity::Written, Quantity::LogWritten].map(figure);
        assert_eq!(written, [Some(0.053_248), Some(0.012_288)]);
        // A new drive copies nothing.
        assert_eq!(figure(Quantity::FlashWritten), Some(1.0));
        let peer = Sample { has_kinds: false, ..sample.clone() };
        assert_eq!(peer.quantity(&part, Quantity::LogWritten), None);
        let disk = phase("st39140", |disk| disk.write_at(Kind::Data, 0, &[0; 4096]).unwrap());
        assert_eq!(disk.quantity(&part, Quantity::FlashWritten), None);
    }
}
