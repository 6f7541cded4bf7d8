//! Cuts the power while a volume grows.
//!
//! A volume is made (empty, aged or full, in a shape of the engine), operations are done on it or
//! none, and it is unmounted or loses the power; then it grows, and the power is cut at each event
//! of that. What is left has to mount, with everything that was there before; growing it once more
//! to the same size has to succeed and to give all of the space. The recovery of some states and
//! their second growing are cut again, and so on.

use crate::config::{BEGIN, Config, Cut, Failure, parse_cut, print_cuts};
use crate::crash::{Base, Explored, From, Seen, Start, use_it};
use crate::exhaust;
use crate::generate::{Profile, generate};
use crate::line::{Again, number, one_of};
use crate::ops::Op;
use crate::oracle::Oracle;
use crate::rng::{Rng, mix};
use crate::run::{check_clean, guarded, mount};
use crate::share::{Numbers, Share};
use crate::shrink::shrink;
use arbor_base::device::{CrashChoice, Device, MemDevice, RecordingDevice, SECTOR};
use arbor_base::vfs::{Engine, Errno, FileSystem, ManualClock, Options, Repair};
use std::sync::{Arc, OnceLock};

/// Sizes before: one that divides well, and one that does not.
const SIZES: &[u64] = &[16 << 20, (18 << 20) + 5 * SECTOR as u64];
/// By how much they grow: by next to nothing, within the last allocation group, by a part of one,
/// by several, and by numbers that fit nothing.
const GROWTHS: &[u64] = &[1000, 300_001, 1 << 20, (5 << 20) + 1, 14 << 20, 16 << 20, (37 << 20) + 12_345, 96 << 20];
/// An engine may leave so much of a size unused, because its structures do not fit in there.
const UNUSED: u64 = 2 << 20;
/// Pending writes whose single loss is tried at one event.
const SINGLES: usize = 12;

/// Volumes that grow; shared by threads.
pub struct Grow<'a> {
    engine: &'a dyn Engine,
    seed: u64,
    keep_going: bool,
    /// One for each shape, kind and size, made when it is first needed.
    bases: Vec<OnceLock<Result<Base, String>>>,
    steps: Vec<Vec<Op>>,
    numbers: Numbers,
}

/// One volume that grows.
struct Case {
    config: Config,
    from: From,
    ops: Vec<Op>,
    /// The power cut at which the operations ended, if they did not end with an unmount.
    before: Option<Cut>,
    /// The new size in bytes.
    size: u64,
}

impl<'a> Grow<'a> {
    /// At most `total` volumes; none of an engine whose volumes cannot grow.
    pub fn new(engine: &'a dyn Engine, total: u64, seed: u64) -> Result<Grow<'a>, String> {
        let bases =
            (0..engine.test_configurations().len() * From::ALL.len() * SIZES.len()).map(|_| OnceLock::new()).collect();
        let mut grow =
            Grow { engine, seed, keep_going: false, bases, steps: exhaust::steps(), numbers: Numbers::below(total) };
        let case = grow.case_at(0, 0);
        let disk = Base::fresh(engine, &case.config)?.disk();
        if resize(engine, &case.config, &disk, case.size).is_err_and(|e| e.contains(CANNOT)) {
            grow.numbers = Numbers::below(0);
        }
        Ok(grow)
    }

    /// Counts failing states instead of stopping at the first.
    pub fn keep_going(mut self, keep_going: bool) -> Grow<'a> {
        self.keep_going = keep_going;
        self
    }

    /// Grows a share of them only.
    pub fn share(mut self, share: Share) -> Grow<'a> {
        self.numbers.only(share);
        self
    }

    /// Grows the next volume that nobody has taken; `None` when there is none left.
    pub fn step(&self, done: &mut Explored) -> Option<Result<(), Box<Failure>>> {
        let number = self.numbers.take()?;
        let (place, case) = self.case(number);
        let made = self.bases[place / GROWTHS.len()]
            .get_or_init(|| guarded(|| exhaust::base(self.engine, &case.config, case.from)));
        let base = match made {
            Ok(base) => base,
            Err(e) => return Some(Err(Box::new(Failure::whole(self.engine, &case.config, e.clone())))),
        };
        Some(case.explore_and_shrink(self.engine, base, done))
    }

    /// The case of a number: its place among shapes, kinds, sizes and growths, and what is drawn.
    fn case(&self, number: u64) -> (usize, Case) {
        let places = (self.bases.len() * GROWTHS.len()) as u64;
        // Has no factor in common with the number of places, so that every part is a fair sample.
        let place = ((number / 4) * 7919 + mix(self.seed) % places) % places;
        let mut case = self.case_at(place as usize, mix(self.seed ^ mix(number)));
        let mut rng = Rng::new(case.config.seed);
        // A volume on which nothing was done needs to grow once only.
        let kind = if number / 4 < places { number % 4 } else { 1 + number % 3 };
        case.ops = match kind {
            0 => Vec::new(),
            1 | 2 => (0..=rng.below(3)).flat_map(|_| rng.pick(&self.steps).clone()).collect(),
            _ => {
                let profile = *rng.pick(&[Profile::Small, Profile::Big, Profile::Sync, Profile::Dirs]);
                generate(profile, case.config.seed, 10 + rng.below(50) as usize)
            }
        };
        if kind >= 2 {
            // Of the events, as a fraction; it becomes a number when they are known.
            let choices = [CrashChoice::AllKept, CrashChoice::NoneKept, CrashChoice::Seeded(rng.below(1 << 32))];
            case.before = Some((rng.below(1 << 20) as usize | DRAWN, rng.pick(&choices).clone()));
        }
        (place as usize, case)
    }

    fn case_at(&self, place: usize, seed: u64) -> Case {
        let (growth, rest) = (GROWTHS[place % GROWTHS.len()], place / GROWTHS.len());
        let (device_size, rest) = (SIZES[rest % SIZES.len()], rest / SIZES.len());
        let (from, rest) = (From::ALL[rest % From::ALL.len()], rest / From::ALL.len());
        let (format, mount) = self.engine.test_configurations()[rest];
        let (format, mount) = (Options::parse(format), Options::parse(mount));
        let (seed, keep_going) = (seed >> 16, self.keep_going);
        let config = Config { device_size, format, mount, seed, keep_going, ..config() };
        Case { config, from, ops: Vec::new(), before: None, size: device_size + growth }
    }
}

/// Set in the place of a cut that is still a fraction of the events, in units of 2^-20.
const DRAWN: usize = 1 << 40;

fn config() -> Config {
    Config { budget: 300, cut_again: 8, shrink_runs: 60, ..Config::crash(Profile::Sync) }
}

/// What an error says if the engine's volumes do not grow.
const CANNOT: &str = "cannot grow";

fn resize<D: Device + Clone + 'static>(engine: &dyn Engine, config: &Config, disk: &D, to: u64) -> Result<(), String> {
    engine.resize(config.devices(disk), to, Arc::new(ManualClock::new(BEGIN))).map_err(|e| match e.errno() {
        Errno::EOPNOTSUPP => CANNOT.to_string(),
        _ => format!("growing: {e}"),
    })
}

/// What the power is cut in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Growing,
    Recovery,
}

type Cuts = Vec<(Work, Cut)>;

/// Writes `12:NoneKept,recovery@3:AllKept`.
fn print(cuts: &Cuts) -> String {
    let each = cuts.iter().map(|(work, cut)| {
        let cut = print_cuts(std::slice::from_ref(cut));
        if *work == Work::Recovery { format!("recovery@{cut}") } else { cut }
    });
    each.collect::<Vec<_>>().join(",")
}

/// Reads what [`print`] wrote.
fn parse(text: &str) -> Result<Cuts, String> {
    let each = text.split(',').map(|one| match one.strip_prefix("recovery@") {
        Some(cut) => Ok((Work::Recovery, parse_cut(cut)?)),
        None => Ok((Work::Growing, parse_cut(one)?)),
    });
    each.collect()
}

/// A failing cut.
struct Crash {
    cuts: Cuts,
    /// The cut before the growing, by number.
    before: Option<Cut>,
    message: String,
}

impl Case {
    fn explore_and_shrink(&self, engine: &dyn Engine, base: &Base, done: &mut Explored) -> Result<(), Box<Failure>> {
        let Err(first) = self.explore(engine, base, &self.ops, &None, done) else { return Ok(()) };
        let fails = |ops: &[Op]| self.explore(engine, base, ops, &None, &mut Explored::default()).err();
        let small = if self.config.shrink_runs > 0 { shrink(&self.ops, self.config.shrink_runs, fails) } else { None };
        let (ops, crash) = small.unwrap_or_else(|| (self.ops.clone(), first));
        Err(Box::new(self.failure(engine, ops, crash)))
    }

    fn failure(&self, engine: &dyn Engine, ops: Vec<Op>, crash: Crash) -> Failure {
        let mut words = format!(" grow={}", self.size);
        if let Some(before) = crash.before {
            words += &format!(" before={}", print_cuts(&[before]));
        }
        if !crash.cuts.is_empty() {
            words += &format!(" cuts={}", print(&crash.cuts));
        }
        Failure { ops, from: self.from, words, ..Failure::whole(engine, &self.config, crash.message) }
    }

    /// Grows the volume with every cut, or with `only` these.
    fn explore(
        &self,
        engine: &dyn Engine,
        base: &Base,
        ops: &[Op],
        only: &Option<Cuts>,
        done: &mut Explored,
    ) -> Result<(), Crash> {
        let mut before = None;
        let run = guarded(|| self.record(engine, base, ops, &mut before));
        let run = run.map_err(|message| Crash { cuts: Vec::new(), before: before.clone(), message })?;
        done.sequences += 1;
        done.events += run.device.events() as u64;
        let found = match only {
            Some(cuts) => run.try_cuts(cuts, true).and_then(|()| run.try_cuts(cuts, false)),
            None => run.explore(done),
        };
        found.map_err(|(cuts, message)| Crash { message: run.describe(&cuts, message), cuts, before })
    }

    /// Brings the volume to where it is to grow, and records how it does.
    fn record<'a>(
        &'a self,
        engine: &'a dyn Engine,
        base: &Base,
        ops: &[Op],
        before: &mut Option<Cut>,
    ) -> Result<Run<'a>, String> {
        let (history, oracle) = Start { engine, config: &self.config, base }.record(ops)?;
        let events = history.events();
        let (at, choice) = self.before.clone().unwrap_or((events, CrashChoice::AllKept));
        let at = if at & DRAWN != 0 { ((at & !DRAWN) * (events + 1)) >> 20 } else { at.min(events) };
        let disk = history.crash_state(at, &choice);
        if self.before.is_some() {
            *before = Some((at, choice));
        } else {
            let fs = mount(engine, &self.config, self.config.devices(&disk), &Arc::new(ManualClock::new(BEGIN)))?;
            fs.unmount().map_err(|e| format!("unmount: {e}"))?;
        }
        let old = volume_size(engine, &disk)?;
        let device = RecordingDevice::new(disk);
        resize(engine, &self.config, &device, self.size)?;
        let full = volume_size(engine, &device)?;
        if full > self.size || full + UNUSED < self.size || full < old {
            return Err(format!("a volume of {old} bytes that is to have {} has {full} bytes", self.size));
        }
        Ok(Run { engine, case: self, oracle, at, device, old, full })
    }
}

/// The size that the superblock says.
fn volume_size(engine: &dyn Engine, disk: &dyn Device) -> Result<u64, String> {
    let info = engine.probe(disk).map_err(|e| format!("probe: {e}"))?;
    Ok(info.ok_or("probe: no volume")?.size)
}

/// A volume that grew, recorded.
struct Run<'a> {
    engine: &'a dyn Engine,
    case: &'a Case,
    oracle: Oracle,
    /// The event of the history at which it ended.
    at: usize,
    device: RecordingDevice,
    /// Size of the volume before.
    old: u64,
    /// Size of the volume after.
    full: u64,
}

impl Run<'_> {
    fn explore(&self, done: &mut Explored) -> Result<(), (Cuts, String)> {
        let (seen, config) = (Seen::default(), &self.case.config);
        for (i, cut) in plan(&self.device, config.budget, config.seed).into_iter().enumerate() {
            done.states += 1;
            if !seen.is_new(self.device.print(cut.0, &cut.1)) {
                continue;
            }
            done.distinct += 1;
            let mut cuts = vec![(Work::Growing, cut)];
            match self.try_cuts(&cuts, i % 2 == 0) {
                Err(_) if config.keep_going => {
                    done.failed += 1;
                    continue;
                }
                tried => tried?,
            }
            if config.depth > 1 && (i as u64).wrapping_add(config.seed).is_multiple_of(config.cut_again) {
                self.cut_again(&mut cuts, &seen, done)?;
            }
        }
        Ok(())
    }

    /// Cuts the recovery of a state and its second growing at several places, and what follows some
    /// of those again, as deep as the configuration says.
    fn cut_again(&self, cuts: &mut Cuts, seen: &Seen, done: &mut Explored) -> Result<(), (Cuts, String)> {
        let config = &self.case.config;
        let first = cuts.first().map_or(0, |c| c.1.0);
        let mut rng = Rng::new(mix(config.seed ^ mix(first as u64 ^ mix(cuts.len() as u64))));
        for work in [Work::Growing, Work::Recovery] {
            let again = match guarded(|| self.record_work(work, self.disk_after(cuts)?)) {
                Err(_) if config.keep_going => return Ok(()),
                recorded => recorded.map_err(|e| (cuts.clone(), e))?,
            };
            done.recoveries += 1;
            for i in 0..4 {
                let choice = [CrashChoice::NoneKept, CrashChoice::AllKept, CrashChoice::Seeded(rng.below(1 << 32))];
                let cut = (rng.below(again.events() as u64 + 1) as usize, choice[i % 3].clone());
                done.states += 1;
                let print = again.print(cut.0, &cut.1) ^ mix(first as u64 ^ mix(cuts.len() as u64 ^ mix(work as u64)));
                if !seen.is_new(mix(print)) {
                    continue;
                }
                done.distinct += 1;
                let disk = again.crash_state(cut.0, &cut.1);
                cuts.push((work, cut));
                match guarded(|| self.verify(disk, i % 2 == 0)) {
                    Err(_) if config.keep_going => done.failed += 1,
                    verified => verified.map_err(|e| (cuts.clone(), e))?,
                }
                if i == 0 && cuts.len() < config.depth as usize {
                    self.cut_again(cuts, seen, done)?;
                }
                cuts.pop();
            }
        }
        Ok(())
    }

    fn try_cuts(&self, cuts: &Cuts, mounted: bool) -> Result<(), (Cuts, String)> {
        guarded(|| self.verify(self.disk_after(cuts)?, mounted)).map_err(|e| (cuts.clone(), e))
    }

    fn disk_after(&self, cuts: &Cuts) -> Result<MemDevice, String> {
        let Some(((_, (at, choice)), again)) = cuts.split_first() else { return Err("no cut".to_string()) };
        if *at > self.device.events() {
            return Err(format!("growing has only {} events", self.device.events()));
        }
        let mut disk = self.device.crash_state(*at, choice);
        for (work, (at, choice)) in again {
            let again = self.record_work(*work, disk)?;
            disk = again.crash_state((*at).min(again.events()), choice);
        }
        Ok(disk)
    }

    fn record_work(&self, work: Work, disk: MemDevice) -> Result<RecordingDevice, String> {
        let device = RecordingDevice::new(disk);
        match work {
            Work::Growing => self.grow(&device)?,
            Work::Recovery => self.unmount(self.mount(&device)?)?,
        }
        Ok(device)
    }

    fn describe(&self, cuts: &Cuts, message: String) -> String {
        let mut text = format!("growing from {} to {} bytes", self.old, self.case.size);
        for (n, (work, (at, _))) in cuts.iter().enumerate() {
            text += match (n, work) {
                (0, _) => ", power cut",
                (_, Work::Growing) => ", grown again",
                (_, Work::Recovery) => ", recovered",
            };
            text += &format!(" after event {at}");
        }
        format!("{text}: {message}")
    }

    fn mount<D: Device + Clone + 'static>(&self, disk: &D) -> Result<Arc<dyn FileSystem>, String> {
        let config = &self.case.config;
        mount(self.engine, config, config.devices(disk), &Arc::new(ManualClock::new(BEGIN)))
    }

    fn unmount(&self, fs: Arc<dyn FileSystem>) -> Result<(), String> {
        fs.unmount().map_err(|e| format!("unmount: {e}"))
    }

    fn grow<D: Device + Clone + 'static>(&self, disk: &D) -> Result<(), String> {
        resize(self.engine, &self.case.config, disk, self.case.size)
    }

    fn check(&self, disk: &MemDevice) -> Result<(), String> {
        check_clean(self.engine, self.case.config.devices(disk), Repair::No)
    }

    /// Whether a disk has what it should: `mounted` says if it is mounted before it grows again, or
    /// grows as it is.
    fn verify(&self, disk: MemDevice, mounted: bool) -> Result<(), String> {
        let size = volume_size(self.engine, &disk)?;
        if size < self.old || size > self.full || size > disk.geometry().size {
            let device = disk.geometry().size;
            return Err(format!("the volume says {size} bytes, on a device of {device}"));
        }
        if mounted {
            let untouched = disk.snapshot();
            untouched.set_read_only(true);
            self.check(&untouched).map_err(|e| format!("unmounted, {e}"))?;
            let fs = self.mount(&disk)?;
            self.oracle.verify(&*fs, self.at)?;
            self.unmount(fs)?;
            self.check(&disk).map_err(|e| format!("recovered, {e}"))?;
        }
        self.grow(&disk).map_err(|e| format!("again: {e}"))?;
        let (size, device) = (volume_size(self.engine, &disk)?, disk.geometry().size);
        if size != self.full || device != self.device.geometry().size {
            return Err(format!("grown again it has {size} bytes of {}, on a device of {device}", self.full));
        }
        self.check(&disk).map_err(|e| format!("grown again, {e}"))?;
        let fs = self.mount(&disk)?;
        self.oracle.verify(&*fs, self.at).map_err(|e| format!("grown again: {e}"))?;
        use_it(&*fs).map_err(|e| format!("in use after it has grown: {e}"))?;
        self.unmount(fs)?;
        self.check(&disk).map_err(|e| format!("in use after it has grown, {e}"))
    }
}

/// Which cuts to try: at each event all pending writes kept, each lost, each kept alone, none kept,
/// random fates, so that what is found first has lost least. Of too many a sample.
pub(crate) fn plan(device: &RecordingDevice, budget: usize, seed: u64) -> Vec<Cut> {
    let mut rng = Rng::new(mix(seed));
    let mut cuts = Vec::new();
    for at in 0..=device.events() {
        let pending = device.pending_at(at);
        cuts.push((at, CrashChoice::AllKept));
        let some = if pending > 1 { pending.min(SINGLES) } else { 0 };
        let ones: Vec<usize> =
            (0..some).map(|i| if pending > SINGLES { rng.below(pending as u64) as usize } else { i }).collect();
        cuts.extend(ones.iter().map(|i| (at, CrashChoice::DropOne(*i))));
        cuts.extend(ones.iter().map(|i| (at, CrashChoice::KeepOne(*i))));
        if pending > 0 {
            cuts.push((at, CrashChoice::NoneKept));
        }
        cuts.extend((0..pending.min(3)).map(|_| (at, CrashChoice::Seeded(rng.next_u64() >> 32))));
    }
    while cuts.len() > budget {
        cuts.swap_remove(rng.below(cuts.len() as u64) as usize);
    }
    // Stable, and in order, because the recorder builds a later disk from an earlier one.
    let rank = |choice: &CrashChoice| match choice {
        CrashChoice::AllKept => 0,
        CrashChoice::DropOne(_) => 1,
        CrashChoice::KeepOne(_) => 2,
        CrashChoice::NoneKept => 3,
        _ => 4,
    };
    cuts.sort_by_key(|(at, choice)| (*at, rank(choice)));
    cuts
}

/// Reads the line of a failure.
pub(crate) fn read<'a>(engine: &'a dyn Engine, line: &str) -> Result<Again<'a>, String> {
    let (head, ops) = line.split_once("ops=").ok_or("the line has no ops=")?;
    let mut config = Config { shrink_runs: 0, ..config() };
    let (mut from, mut before, mut size, mut cuts) = (From::Empty, None, 0, None);
    config.read(head, &["seed", "profile", "size", "format", "mount"], |key, value| {
        match key {
            "from" => from = one_of(From::ALL, value)?,
            "grow" => size = number(value)?,
            "before" => before = Some(parse_cut(value)?),
            "cuts" => cuts = Some(parse(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let case = Case { config, from, ops: crate::ops::parse(ops)?, before, size };
    Ok(Box::new(move || {
        let base = guarded(|| exhaust::base(engine, &case.config, case.from))?;
        let found = case.explore(engine, &base, &case.ops, &cuts, &mut Explored::default());
        found.map_err(|crash| case.failure(engine, case.ops.clone(), crash).to_string())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_parse_back() {
        let cuts = vec![
            (Work::Growing, (12, CrashChoice::NoneKept)),
            (Work::Recovery, (3, CrashChoice::Seeded(9))),
            (Work::Growing, (0, CrashChoice::DropOne(4))),
        ];
        assert_eq!(parse(&print(&cuts)), Ok(cuts));
        assert!(parse("recovery@12").is_err());
    }
}
