//! Hostile images: damages good images, field by field and at random, with checksums that fit, and
//! sees what the engine makes of them.
//!
//! | file | what |
//! |---|---|
//! | `image.rs` | good images and their anatomy |
//! | `change.rs` | damage: which bytes, and the text that repeats it |
//! | `drive.rs` | mount, use, check, repair; what must and must not come of it |
//! | `guard.rs` | the device under a damaged image |
//!
//! Each mutant is a function of the images, the seed and its number. The even numbers go through
//! every field of every kind of structure with every nasty value, in an order that the seed gives;
//! the odd numbers, and those that are left, are up to four changes drawn at random.

mod change;
mod drive;
mod guard;
mod image;

pub use image::{Image, images};

use crate::rng::{Rng, mix};
use crate::tally::{Tally, Watch};
use arbor_base::device::MemDevice;
use arbor_base::vfs::{Engine, Options};
pub(crate) use change::Change;
use change::variants;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Structures of a kind whose field is gone through with every value.
const SAMPLES: u64 = 4;
/// Different failures that are kept; after so many the run ends.
const MOST_FAILURES: usize = 40;

/// What a mutant may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests to the device, one of many blocks counting for several.
    pub requests: u64,
    /// After this the process is ended with the line that repeats the mutant.
    pub time: Duration,
    /// Bytes of memory at once, if there is a meter.
    pub heap: u64,
    /// Tells the most bytes that the thread held at once since the last call.
    pub meter: Option<fn() -> u64>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { requests: 1 << 20, time: Duration::from_secs(60), heap: 128 << 20, meter: None }
    }
}

/// A value that is to be tried: image, structure, field and variant by number.
pub(crate) type Trial = (u32, u32, u32, u32);

/// Drives `count` mutants of `images` on all cores.
pub fn run(engine: &dyn Engine, images: &[Image], seed: u64, count: u64, limits: &Limits, watch: Watch<'_>) -> Tally {
    let trials = trials(images, seed);
    let job = Job { engine, images, trials, seed, limits, failures: Mutex::default() };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let workers: Vec<Worker> = (0..threads).map(|_| Worker::default()).collect();
    let (next, done, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(images.is_empty()));
    let tally = |failures: &[(String, String)]| Tally {
        mutants: done.load(Relaxed),
        failures: failures.iter().map(|f| f.1.clone()).collect(),
        ..Tally::default()
    };
    std::thread::scope(|scope| {
        for worker in &workers {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    let number = next.fetch_add(1, Relaxed);
                    if number >= count {
                        break;
                    }
                    *worker.busy.lock() = Some((number, Instant::now()));
                    job.one(number);
                    *worker.busy.lock() = None;
                    done.fetch_add(1, Relaxed);
                }
                worker.over.store(true, Relaxed);
            });
        }
        while !stop.load(Relaxed) && !workers.iter().all(|w| w.over.load(Relaxed)) {
            std::thread::sleep(Duration::from_millis(20));
            for worker in &workers {
                let busy = *worker.busy.lock();
                if let Some((number, since)) = busy
                    && since.elapsed() > limits.time
                {
                    let (image, changes) = job.mutant(number);
                    job.fail(image, &changes, "still busy after the time a mutant may take".to_string());
                    watch(&tally(&job.failures.lock()));
                    // No thread can be ended from outside.
                    eprintln!("{}", job.failures.lock().last().map_or("", |f| &f.1[..]));
                    std::process::abort();
                }
            }
            let failures = job.failures.lock();
            if !watch(&tally(&failures)) || failures.len() >= MOST_FAILURES {
                stop.store(true, Relaxed);
            }
        }
    });
    let failures = job.failures.lock();
    tally(&failures)
}

/// Drives the mutant of a line: `image=NAME changes=...`, as a failure gives it.
pub fn repeat(engine: &dyn Engine, images: &[Image], limits: &Limits, line: &str) -> Result<(), String> {
    let (head, changes) = line.split_once("changes=").ok_or("the line has no changes=")?;
    let name = head.split_whitespace().find_map(|w| w.strip_prefix("image=")).ok_or("the line has no image=")?;
    let image = images.iter().find(|i| i.name == name).ok_or_else(|| format!("no image is called {name:?}"))?;
    let changes = image.parse(changes)?;
    let job = Job { engine, images, trials: Vec::new(), seed: 0, limits, failures: Mutex::default() };
    job.drive(image, &changes, true).map_err(|e| job.text(image, &changes, &e))
}

/// Drives the mutant that the input of a fuzzer describes: the image, then change by change the
/// field and what it becomes.
pub fn fuzz(engine: &dyn Engine, images: &[Image], limits: &Limits, input: &[u8]) -> Result<(), String> {
    let Some((&which, mut input)) = input.split_first() else { return Ok(()) };
    let image = images.get(usize::from(which) % images.len().max(1)).ok_or("no images")?;
    let job = Job { engine, images, trials: Vec::new(), seed: 0, limits, failures: Mutex::default() };
    let mut changes = Vec::new();
    while changes.len() < 8
        && let Some((change, rest)) = image.decode(input)
    {
        changes.push(change);
        input = rest;
    }
    job.drive(image, &changes, true).map_err(|e| job.text(image, &changes, &e))
}

/// Drives one disk, whatever it holds.
pub fn drive(engine: &dyn Engine, disk: &MemDevice, mount: &Options, limits: &Limits) -> Result<(), String> {
    drive::drive(engine, disk, mount, limits, true)
}

#[derive(Default)]
struct Worker {
    busy: Mutex<Option<(u64, Instant)>>,
    over: AtomicBool,
}

struct Job<'a> {
    engine: &'a dyn Engine,
    images: &'a [Image],
    trials: Vec<Trial>,
    seed: u64,
    limits: &'a Limits,
    /// What tells failures apart, and their texts.
    failures: Mutex<Vec<(String, String)>>,
}

impl<'a> Job<'a> {
    /// The image and changes of a mutant.
    fn mutant(&self, number: u64) -> (&'a Image, Vec<Change>) {
        let mut rng = Rng::new(mix(self.seed ^ mix(number)));
        let trial =
            usize::try_from(number / 2).ok().filter(|_| number.is_multiple_of(2)).and_then(|n| self.trials.get(n));
        if let Some(&(image, structure, field, variant)) = trial {
            let image = &self.images[image as usize];
            return (image, vec![image.set((structure as usize, field as usize), variant, &mut rng)]);
        }
        let mut image = rng.pick(self.images);
        if image.structures.len() > 1000 && !rng.one_in(8) {
            // It takes long.
            image = rng.pick(self.images);
        }
        let mut changes = vec![image.draw(None, &mut rng)];
        for _ in 0..rng.below(4) {
            let near = changes.last().map(|c| c.structure);
            changes.push(image.draw(near, &mut rng));
        }
        (image, changes)
    }

    fn one(&self, number: u64) {
        let (image, changes) = self.mutant(number);
        // What use has made of it is repaired with every fourth: it takes as long as all the rest.
        if let Err(first) = self.drive(image, &changes, number % 8 < 2) {
            let (changes, message) = self.smaller(image, changes, first);
            self.fail(image, &changes, message);
        }
    }

    fn drive(&self, image: &Image, changes: &[Change], again: bool) -> Result<(), String> {
        let disk = image.with(self.engine, changes)?;
        drive::drive(self.engine, &disk, &image.mount, self.limits, again)
    }

    /// Leaves out changes that do not matter.
    fn smaller(&self, image: &Image, mut changes: Vec<Change>, mut message: String) -> (Vec<Change>, String) {
        let mut at = 0;
        while changes.len() > 1 && at < changes.len() {
            let without: Vec<_> =
                changes.iter().enumerate().filter(|(n, _)| *n != at).map(|(_, c)| c.clone()).collect();
            match self.drive(image, &without, true) {
                Err(e) => (changes, message) = (without, e),
                Ok(()) => at += 1,
            }
        }
        (changes, message)
    }

    fn text(&self, image: &Image, changes: &[Change], message: &str) -> String {
        let (what, line) = (image.explain(changes), image.print(changes));
        let engine = self.engine.name();
        format!("{engine}: {message}\n  damage: {what}\n  repeat with: arbor torture -t {engine} --repeat '{line}'")
    }

    /// Notes a failure, unless one like it is known.
    fn fail(&self, image: &Image, changes: &[Change], message: String) {
        let like: String = message.chars().filter(|c| !c.is_ascii_digit() && *c != '"').take(72).collect();
        let mut failures = self.failures.lock();
        if failures.len() < MOST_FAILURES && !failures.iter().any(|f| f.0 == like) {
            failures.push((like, self.text(image, changes, &message)));
        }
    }
}

/// Every value of every field of a few structures of each kind, in an order that the seed gives.
pub(crate) fn trials(images: &[Image], seed: u64) -> Vec<Trial> {
    let mut rng = Rng::new(mix(seed));
    let mut all = Vec::new();
    for (n, image) in images.iter().enumerate() {
        for places in image.places.values() {
            let mut chosen: Vec<_> = places.first().into_iter().chain(places.last()).copied().collect();
            chosen.extend((2..SAMPLES).map(|_| *rng.pick(places)));
            chosen.sort_unstable();
            chosen.dedup();
            for (structure, field) in chosen {
                let values = variants(&image.structures[structure].fields[field]);
                all.extend((0..values).map(|v| (n as u32, structure as u32, field as u32, v)));
            }
        }
    }
    rng.shuffle(&mut all);
    all
}
