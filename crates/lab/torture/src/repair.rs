//! Cuts the power while the checker repairs.
//!
//! Single fields of good images are damaged, structure by structure, as in [`mutate`]; the repair
//! of each is recorded and cut at each event, and so is the repair of some of what that leaves, and
//! once more. A repair that is not cut then has to converge: it mends everything, a check after it
//! finds nothing, the volume mounts and can be walked.
//!
//! What a cut may cost is next to nothing: each path of the good image at which a repair without a
//! cut keeps the same kind of file, attributes, target and contents has them after this one too;
//! what that saves in `lost+found` this one saves there or anywhere. Only if the cut tore a write
//! the file may be in `lost+found` instead, or at another of its paths: the blocks of a directory
//! have no copy, and one that is torn while it is mended in its place may lose names. What the
//! repair without a cut has changed itself (attributes that it made up, contents with a piece
//! missing) may come out otherwise, better for instance: a cut replay of a damaged log is repeated
//! on other blocks. And a volume that the repair has marked as not clean does not say again that it
//! is clean before all is mended.
//!
//! [`mutate`]: crate::mutate

use crate::compare::{Meta, observe, segments, show};
use crate::config::{BEGIN, Config, Cut, Failure, parse_cuts, print_cuts};
use crate::crash::{Explored, Seen};
use crate::data::PAGE;
use crate::exec::Facts;
use crate::generate::Profile;
use crate::grow::plan;
use crate::line::Again;
use crate::mutate::{Change, Image, Trial, images, position, trials};
use crate::rng::{Rng, mix};
use crate::run::guarded;
use crate::share::{Numbers, Share};
use arbor_base::device::{CrashChoice, Device, MemDevice, RecordingDevice};
use arbor_base::vfs::{
    CheckOptions, CheckReport, Devices, Engine, Error, FileSystem, Ino, ManualClock, MountOptions, Repair, Severity,
};
use rustc_hash::FxHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

/// Where the checker puts what it finds without a name.
const FOUND: &[u8] = b"/lost+found";
/// Pages of a file that are compared, from its beginning.
const PAGES: u64 = 1024;

/// Damaged volumes under repair; shared by threads.
pub struct Repairs<'a> {
    engine: &'a dyn Engine,
    config: Config,
    damage: OnceLock<Result<Damage, String>>,
    numbers: Numbers,
}

struct Damage {
    images: Vec<Image>,
    /// What is on each of them.
    good: Vec<Things>,
    trials: Vec<Trial>,
}

impl Damage {
    fn new(engine: &dyn Engine, seed: u64) -> Result<Damage, String> {
        let images = guarded(|| images(engine))?;
        let good = images.iter().map(|image| guarded(|| walk(engine, image, &image.disk())));
        Ok(Damage { good: good.collect::<Result<_, _>>()?, trials: trials(&images, seed), images })
    }
}

fn config() -> Config {
    Config { budget: 300, cut_again: 8, ..Config::crash(Profile::Sync) }
}

impl<'a> Repairs<'a> {
    /// At most `total` damaged volumes; none of an engine that does not tell its structures.
    pub fn new(engine: &'a dyn Engine, total: u64, seed: u64) -> Repairs<'a> {
        Repairs { engine, config: Config { seed, ..config() }, damage: OnceLock::new(), numbers: Numbers::below(total) }
    }

    /// Counts failing states instead of stopping at the first.
    pub fn keep_going(mut self, keep_going: bool) -> Repairs<'a> {
        self.config.keep_going = keep_going;
        self
    }

    /// Repairs a share of them only.
    pub fn share(mut self, share: Share) -> Repairs<'a> {
        self.numbers.only(share);
        self
    }

    /// Repairs the next volume that nobody has taken; `None` when there is none left.
    pub fn step(&self, done: &mut Explored) -> Option<Result<(), Box<Failure>>> {
        let number = self.numbers.take()?;
        let damage = self.damage.get_or_init(|| Damage::new(self.engine, self.config.seed));
        let Damage { images, good, trials } = match damage {
            Ok(damage) => damage,
            Err(e) => return Some(Err(Box::new(Failure::whole(self.engine, &self.config, e.clone())))),
        };
        // Four rounds bring each damage to preening too.
        let trial = trials.get(number.checked_rem(trials.len() as u64)? as usize)?;
        if number >= 4 * trials.len() as u64 {
            return None;
        }
        let (image, structure, field, variant) = *trial;
        let (image, good) = (&images[image as usize], &good[image as usize]);
        let place = (structure as usize, field as usize);
        let change = image.set(place, variant, &mut Rng::new(mix(self.config.seed ^ mix(number))));
        let round = number / trials.len() as u64;
        let turn = number % trials.len() as u64 + round;
        let mode = if turn.is_multiple_of(4) { Repair::Preen } else { Repair::Yes };
        let case = Case { engine: self.engine, image, good, changes: vec![change], mode };
        let config = Config { seed: mix(self.config.seed.wrapping_add(number)) >> 16, ..self.config.clone() };
        Some(case.explore(&config, done).map_err(|crash| Box::new(case.failure(&config, crash))))
    }
}

/// A damaged image and how it is repaired.
struct Case<'a> {
    engine: &'a dyn Engine,
    image: &'a Image,
    good: &'a Things,
    changes: Vec<Change>,
    mode: Repair,
}

/// A failing cut.
struct Crash {
    cuts: Vec<Cut>,
    message: String,
}

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Thing {
    meta: Meta,
    size: u64,
    /// Of the contents.
    digest: u64,
}

type Things = BTreeMap<Vec<u8>, Thing>;

/// A repair that was not cut, and what it keeps of what was on the good image.
struct Run<'a> {
    case: &'a Case<'a>,
    device: RecordingDevice,
    /// At its path.
    kept: Things,
    /// In lost+found.
    strays: Vec<Thing>,
}

impl Case<'_> {
    fn failure(&self, config: &Config, crash: Crash) -> Failure {
        let mode = if self.mode == Repair::Preen { "preen" } else { "yes" };
        let mut words = format!(" image={} repair={mode}", self.image.name);
        if !crash.cuts.is_empty() {
            words += &format!(" cuts={}", print_cuts(&crash.cuts));
        }
        words += &format!(" damage={}", self.image.print_changes(&self.changes));
        let message = format!("repair of a volume with {}: {}", self.image.explain(&self.changes), crash.message);
        Failure { words, ..Failure::whole(self.engine, config, message) }
    }

    fn explore(&self, config: &Config, done: &mut Explored) -> Result<(), Crash> {
        let run = guarded(|| self.record()).map_err(|message| Crash { cuts: Vec::new(), message })?;
        // What cannot be repaired, or needs no repair, tells nothing.
        let Some(run) = run else { return Ok(()) };
        done.sequences += 1;
        done.events += run.device.events() as u64;
        run.explore(config, done)
    }

    /// Repairs the volume; `None` if there is nothing to be repaired, or no way.
    fn record(&self) -> Result<Option<Run<'_>>, String> {
        let disk = self.image.with(self.engine, &self.changes)?;
        let device = RecordingDevice::new(disk);
        // What it gives up on is the concern of others: see `mutate`.
        let Ok(report) = self.check(&device, self.mode) else { return Ok(None) };
        if device.events() == 0 || fatal(&report) {
            return Ok(None);
        }
        let whole = device.crash_state(device.events(), &CrashChoice::AllKept);
        self.mend(&whole).map_err(|e| format!("without a cut: {e}"))?;
        let left = self.walk(&whole).map_err(|e| format!("without a cut: {e}"))?;
        let strays = left.iter().filter(|(path, _)| path.starts_with(FOUND)).map(|(_, thing)| thing);
        let strays = strays.filter(|stray| self.good.values().any(|good| same(stray, good)));
        let strays = strays.cloned().collect();
        let kept = left.iter().filter(|(path, thing)| self.good.get(*path).is_some_and(|good| same(thing, good)));
        let kept = kept.map(|(path, thing)| (path.clone(), thing.clone())).collect();
        Ok(Some(Run { case: self, device, kept, strays }))
    }

    fn check<D: Device + Clone + 'static>(&self, disk: &D, repair: Repair) -> Result<CheckReport, Error> {
        let options = CheckOptions { repair, force: true };
        self.engine.check(Devices::single(disk.clone()), &options, &mut |_, _, _| ())
    }

    /// Repairs to the end: what preening leaves is for a repair that may do everything.
    fn mend(&self, disk: &MemDevice) -> Result<(), String> {
        let mut report = self.check(disk, self.mode).map_err(|e| format!("the checker gives up: {e}"))?;
        if self.mode == Repair::Preen && report.remaining() > 0 {
            report = self.check(disk, Repair::Yes).map_err(|e| format!("the checker gives up: {e}"))?;
        }
        if let Some(left) = report.issues.iter().find(|i| !i.repaired && i.severity > Severity::Warning) {
            return Err(format!("the repair leaves {}: {}", left.code, left.text));
        }
        let again = self.check(disk, Repair::No).map_err(|e| format!("the check after it gives up: {e}"))?;
        bad(&again).map_or(Ok(()), |found| Err(format!("the check after it finds {found}")))
    }

    fn walk(&self, disk: &MemDevice) -> Result<Things, String> {
        walk(self.engine, self.image, disk)
    }
}

/// Mounts, and looks at everything.
fn walk(engine: &dyn Engine, image: &Image, disk: &MemDevice) -> Result<Things, String> {
    let options = MountOptions { read_only: false, options: image.mount.clone() };
    let clock = Arc::new(ManualClock::new(BEGIN));
    let fs = engine.mount(Devices::single(disk.clone()), &options, clock).map_err(|e| format!("mount: {e}"))?;
    let tree = observe(&*fs)?;
    let mut things = Things::new();
    for (path, meta) in tree.metas {
        // The numbering of inodes follows the whole tree.
        let meta = Meta { inode: 0, ..meta };
        let (size, digest) = match tree.files.get(&path) {
            Some((size, ino)) => (*size, digest(&*fs, Ino(*ino), *size)?),
            None => (0, 0),
        };
        things.insert(path, Thing { meta, size, digest });
    }
    fs.unmount().map_err(|e| format!("unmount: {e}"))?;
    Ok(things)
}

fn fatal(report: &CheckReport) -> bool {
    report.issues.iter().any(|i| i.severity == Severity::Fatal)
}

fn bad(report: &CheckReport) -> Option<String> {
    let first = report.issues.iter().find(|i| i.severity > Severity::Warning)?;
    Some(format!("{}: {}", first.code, first.text))
}

/// A number for the contents of a file; what reads as zeros is like a hole.
fn digest(fs: &dyn FileSystem, ino: Ino, size: u64) -> Result<u64, String> {
    let pages: BTreeSet<u64> =
        segments(fs, ino, size)?.iter().flat_map(|(a, b)| a / PAGE..b.div_ceil(PAGE)).take(PAGES as usize).collect();
    let mut hasher = FxHasher::default();
    let mut buf = vec![0; PAGE as usize];
    for page in pages {
        let n = fs.read(ino, page * PAGE, &mut buf).map_err(|e| format!("read: {e}"))?;
        if let Some(bytes) = buf.get(..n).filter(|b| b.iter().any(|b| *b != 0)) {
            (page, bytes).hash(&mut hasher);
        }
    }
    Ok(mix(hasher.finish()))
}

impl Run<'_> {
    fn explore(&self, config: &Config, done: &mut Explored) -> Result<(), Crash> {
        let seen = Seen::default();
        for (i, cut) in plan(&self.device, config.budget, config.seed).into_iter().enumerate() {
            done.states += 1;
            if !seen.is_new(self.device.print(cut.0, &cut.1)) {
                continue;
            }
            done.distinct += 1;
            let mut cuts = vec![cut];
            match self.try_cuts(&cuts) {
                Err(_) if config.keep_going => {
                    done.failed += 1;
                    continue;
                }
                tried => tried?,
            }
            if config.depth > 1 && (i as u64).wrapping_add(config.seed).is_multiple_of(config.cut_again) {
                self.cut_again(config, &mut cuts, &seen, done)?;
            }
        }
        Ok(())
    }

    fn try_cuts(&self, cuts: &[Cut]) -> Result<(), Crash> {
        let crash = |message| Crash { cuts: cuts.to_vec(), message: describe(cuts, message) };
        guarded(|| {
            if let [(at, choice)] = cuts {
                self.says_clean_in_time(&self.device, *at, choice)?;
            }
            self.verify(self.disk_after(cuts)?, torn(cuts))
        })
        .map_err(crash)
    }

    fn disk_after(&self, cuts: &[Cut]) -> Result<MemDevice, String> {
        let Some(((at, choice), again)) = cuts.split_first() else { return Err("no cut".to_string()) };
        if *at > self.device.events() {
            return Err(format!("the repair has only {} events", self.device.events()));
        }
        let mut disk = self.device.crash_state(*at, choice);
        for (at, choice) in again {
            let again = self.record_repair(disk)?;
            disk = again.crash_state((*at).min(again.events()), choice);
        }
        Ok(disk)
    }

    fn record_repair(&self, disk: MemDevice) -> Result<RecordingDevice, String> {
        let device = RecordingDevice::new(disk);
        self.case.check(&device, self.case.mode).map_err(|e| format!("the checker gives up: {e}"))?;
        Ok(device)
    }

    /// Cuts the repair of what a cut repair has left, as deep as the configuration says.
    fn cut_again(&self, config: &Config, cuts: &mut Vec<Cut>, seen: &Seen, done: &mut Explored) -> Result<(), Crash> {
        let crash = |cuts: &[Cut], message| Crash { cuts: cuts.to_vec(), message: describe(cuts, message) };
        let again = match guarded(|| self.record_repair(self.disk_after(cuts)?)) {
            Err(_) if config.keep_going => return Ok(()),
            recorded => recorded.map_err(|e| crash(cuts, e))?,
        };
        done.recoveries += 1;
        let first = cuts.first().map_or(0, |c| c.0) as u64;
        let mut rng = Rng::new(mix(config.seed ^ mix(first ^ mix(cuts.len() as u64))));
        for i in 0..4 {
            let choice = [CrashChoice::NoneKept, CrashChoice::AllKept, CrashChoice::Seeded(rng.below(1 << 32))];
            let cut = (rng.below(again.events() as u64 + 1) as usize, choice[i % 3].clone());
            done.states += 1;
            if !seen.is_new(mix(again.print(cut.0, &cut.1) ^ mix(first ^ mix(cuts.len() as u64)))) {
                continue;
            }
            done.distinct += 1;
            let disk = again.crash_state(cut.0, &cut.1);
            cuts.push(cut);
            match guarded(|| self.verify(disk, torn(cuts))) {
                Err(_) if config.keep_going => done.failed += 1,
                verified => verified.map_err(|e| crash(cuts, e))?,
            }
            if i == 0 && cuts.len() < config.depth as usize {
                self.cut_again(config, cuts, seen, done)?;
            }
            cuts.pop();
        }
        Ok(())
    }

    /// Whether a volume that was marked as not clean is without fault when it says again that it is
    /// clean.
    fn says_clean_in_time(&self, device: &RecordingDevice, at: usize, choice: &CrashChoice) -> Result<(), String> {
        let clean = |disk: &MemDevice| self.case.engine.probe(disk).ok().flatten().map(|info| info.clean);
        let covered = device.crash_state(device.durable_at(at), &CrashChoice::AllKept);
        let disk = device.crash_state(at, choice);
        if clean(&covered) != Some(false) || clean(&disk) != Some(true) {
            return Ok(());
        }
        let report = self.case.check(&disk, Repair::No).map_err(|e| format!("the checker gives up: {e}"))?;
        bad(&report).map_or(Ok(()), |found| Err(format!("the volume says it is clean, but there is {found}")))
    }

    /// Repairs to the end, and compares with what a repair without a cut has kept. If a write was
    /// `torn`, a file may be in lost+found, or at
    /// another of its paths, instead of at this one.
    fn verify(&self, disk: MemDevice, torn: bool) -> Result<(), String> {
        self.case.mend(&disk)?;
        let now = self.case.walk(&disk)?;
        let mut found: Vec<&Thing> = now.iter().filter(|(p, _)| torn && p.starts_with(FOUND)).map(|(_, t)| t).collect();
        for (path, then) in &self.kept {
            let is = now.get(path);
            // Of several names one may go.
            let linked = torn && then.meta.facts.nlink > 1 && now.values().any(|is| same(is, then));
            if linked || is.is_some_and(|is| same(is, then)) {
                continue;
            }
            match found.iter().position(|stray| same(stray, then)) {
                Some(at) => drop(found.swap_remove(at)),
                None => {
                    return Err(format!("a repair without a cut keeps {}, {then}, this one {}", show(path), what(is)));
                }
            }
        }
        match self.strays.iter().find(|stray| !now.values().any(|is| same(is, stray))) {
            Some(stray) => Err(format!("a repair without a cut saves {stray} in lost+found, this one nowhere")),
            None => Ok(()),
        }
    }
}

/// Whether a write may have been torn.
fn torn(cuts: &[Cut]) -> bool {
    cuts.iter().any(|c| matches!(c.1, CrashChoice::Seeded(_)))
}

fn what(thing: Option<&Thing>) -> String {
    thing.map_or("nothing".to_string(), |t| t.to_string())
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Thing { meta, size, digest } = self;
        write!(f, "{:?} of {size} bytes (contents {digest:x}, {} attributes)", meta.facts, meta.xattrs.len())
    }
}

/// Whether two are the same file. Links are not counted: a name that is found again adds to the one
/// in lost+found, and a directory counts what else is in it.
fn same(a: &Thing, b: &Thing) -> bool {
    let plain = |meta: &Meta| Meta { facts: Facts { nlink: 0, ..meta.facts }, ..meta.clone() };
    (a.size, a.digest) == (b.size, b.digest) && plain(&a.meta) == plain(&b.meta)
}

fn describe(cuts: &[Cut], message: String) -> String {
    let places: Vec<String> = cuts.iter().map(|c| c.0.to_string()).collect();
    format!("cut after event {}: {message}", places.join(", repeated and cut after event "))
}

/// Reads the line of a failure.
pub(crate) fn read<'a>(engine: &'a dyn Engine, line: &str) -> Result<Again<'a>, String> {
    let (head, damage) = line.split_once(" damage=").ok_or("the line has no damage=")?;
    let damage = damage.split_once(" ops=").map_or(damage, |d| d.0);
    let (mut config, mut mode, mut name, mut cuts) = (config(), Repair::Yes, String::new(), None);
    // Profile and size stand on the line of every `Failure`.
    config.read(head, &["seed", "profile", "size"], |key, value| {
        match key {
            "image" => name = value.to_string(),
            "repair" if value == "yes" => mode = Repair::Yes,
            "repair" if value == "preen" => mode = Repair::Preen,
            "repair" => return Err(format!("{value:?} is neither yes nor preen")),
            "cuts" => cuts = Some(parse_cuts(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let images = images(engine)?;
    let at = position(&images, &name)?;
    let changes = images[at].parse(damage)?;
    Ok(Box::new(move || {
        let image = &images[at];
        let good = guarded(|| walk(engine, image, &image.disk()))?;
        let case = Case { engine, image, good: &good, changes, mode };
        let found = match cuts {
            None => case.explore(&config, &mut Explored::default()),
            Some(cuts) => guarded(|| case.record())
                .map_err(|message| Crash { cuts: Vec::new(), message })
                .and_then(|run| run.map_or(Ok(()), |run| run.try_cuts(&cuts))),
        };
        found.map_err(|crash| case.failure(&config, crash).to_string())
    }))
}
