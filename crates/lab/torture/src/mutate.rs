//! Hostile images: damages good images, field by field and at random, with checksums that fit, and
//! sees what the engine makes of them.
//!
//! | file | what |
//! |---|---|
//! | `image.rs` | good images and their structures |
//! | `change.rs` | damage: which bytes, and the text that repeats it |
//! | `place.rs` | whether what is reported as damaged was damaged |
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
mod place;

pub use image::{Image, images};

use crate::line::{self, Again};
use crate::rng::{Rng, mix};
use crate::tally::{Tally, Watch, on_all_cores};
use arbor_base::device::MemDevice;
use arbor_base::vfs::{Engine, Options};
pub(crate) use change::Change;
use change::variants;
use parking_lot::Mutex;
use place::Suspects;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Structures of a kind whose field is gone through with every value.
const SAMPLES: u64 = 4;

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
    let job = Job { trials: trials(images, seed), seed, ..Job::new(engine, images, limits) };
    let count = if images.is_empty() { 0 } else { count };
    let next = AtomicU64::new(0);
    let mut watch = |tally: &Tally| {
        if let Some(number) = job.overdue() {
            job.give_up(number, tally.clone(), watch);
        }
        watch(tally)
    };
    on_all_cores(Tally::default(), &mut watch, |tally, _| {
        let number = next.fetch_add(1, Relaxed);
        let more = number < count;
        if more {
            job.one(number, tally);
        }
        more
    })
}

/// Drives the mutant of a line: `image=NAME changes=...`, as a failure gives it.
pub fn repeat(engine: &dyn Engine, images: &[Image], limits: &Limits, line: &str) -> Result<(), String> {
    let (name, changes) = parse(line)?;
    let image = &images[position(images, name)?];
    Job::new(engine, images, limits).repeat(image, &image.parse(changes)?)
}

/// Reads the line of a failure.
pub(crate) fn read<'a>(engine: &'a dyn Engine, line: &str) -> Result<Again<'a>, String> {
    let (name, changes) = parse(line)?;
    let images = images(engine)?;
    let at = position(&images, name)?;
    let changes = images[at].parse(changes)?;
    Ok(Box::new(move || Job::new(engine, &images, &Limits::default()).repeat(&images[at], &changes)))
}

/// The name of the image in a line, and the text of its changes.
fn parse(line: &str) -> Result<(&str, &str), String> {
    let (head, changes) = line.split_once("changes=").ok_or("the line has no changes=")?;
    let mut name = None;
    line::words(head, |key, value| {
        name = Some(value);
        Ok(key == "image")
    })?;
    Ok((name.ok_or("the line has no image=")?, changes))
}

/// The number of the image with this name.
pub(crate) fn position(images: &[Image], name: &str) -> Result<usize, String> {
    let names: Vec<&str> = images.iter().map(|i| &i.name[..]).collect();
    let at = names.iter().position(|n| *n == name);
    at.ok_or_else(|| format!("no image is called {name:?}, known: {}", names.join(", ")))
}

/// Drives the mutant that the input of a fuzzer describes: the image, then change by change the
/// field and what it becomes.
pub fn fuzz(engine: &dyn Engine, images: &[Image], limits: &Limits, input: &[u8]) -> Result<(), String> {
    let Some((&which, mut input)) = input.split_first() else { return Ok(()) };
    let image = images.get(usize::from(which) % images.len().max(1)).ok_or("no images")?;
    let mut changes = Vec::new();
    while changes.len() < 8
        && let Some((change, rest)) = image.decode(input)
    {
        changes.push(change);
        input = rest;
    }
    Job::new(engine, images, limits).repeat(image, &changes)
}

/// Drives one disk, whatever it holds.
pub fn drive(engine: &dyn Engine, disk: &MemDevice, mount: &Options, limits: &Limits) -> Result<(), String> {
    drive::drive(engine, disk, (mount, None), limits, true)
}

struct Job<'a> {
    engine: &'a dyn Engine,
    images: &'a [Image],
    trials: Vec<Trial>,
    seed: u64,
    limits: &'a Limits,
    /// Mutants that are being driven, since when.
    busy: Mutex<BTreeMap<u64, Instant>>,
    /// What tells the failures apart that were met.
    known: Mutex<BTreeSet<String>>,
}

impl<'a> Job<'a> {
    /// Without mutants of its own.
    fn new(engine: &'a dyn Engine, images: &'a [Image], limits: &'a Limits) -> Job<'a> {
        let (busy, known) = (Mutex::default(), Mutex::default());
        Job { engine, images, trials: Vec::new(), seed: 0, limits, busy, known }
    }

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

    fn one(&self, number: u64, tally: &mut Tally) {
        self.busy.lock().insert(number, Instant::now());
        let (image, changes) = self.mutant(number);
        // What use has made of it is repaired with every fourth: it takes as long as all the rest.
        if let Err(first) = self.drive(image, &changes, number % 8 < 2) {
            let (changes, message) = self.smaller(image, changes, first);
            if self.is_new(&message) {
                tally.failures.push(self.text(image, &changes, &message));
            }
        }
        tally.mutants += 1;
        self.busy.lock().remove(&number);
    }

    /// A mutant that takes longer than it may.
    fn overdue(&self) -> Option<u64> {
        let busy = self.busy.lock();
        busy.iter().find(|(_, since)| since.elapsed() > self.limits.time).map(|(number, _)| *number)
    }

    /// Ends the process with the line of a mutant: no thread can be ended from outside.
    fn give_up(&self, number: u64, mut tally: Tally, watch: Watch<'_>) -> ! {
        let (image, changes) = self.mutant(number);
        let text = self.text(image, &changes, "still busy after the time a mutant may take");
        tally.failures.push(text.clone());
        watch(&tally);
        eprintln!("{text}");
        std::process::abort();
    }

    fn repeat(&self, image: &Image, changes: &[Change]) -> Result<(), String> {
        self.drive(image, changes, true).map_err(|e| self.text(image, changes, &e))
    }

    fn drive(&self, image: &Image, changes: &[Change], again: bool) -> Result<(), String> {
        let disk = image.with(self.engine, changes)?;
        let suspects = Suspects::new(image, changes, &disk);
        drive::drive(self.engine, &disk, (&image.mount, Some(&suspects)), self.limits, again)
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

    /// Whether no failure like it is known.
    fn is_new(&self, message: &str) -> bool {
        let like: String = message.chars().filter(|c| !c.is_ascii_digit() && *c != '"').take(72).collect();
        self.known.lock().insert(like)
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
