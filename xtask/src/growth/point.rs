//! What the measuring of one point needs: a volume opened cold or warm, clocks, memory, and the
//! figures so far.

use super::record::{Figure, median};
use crate::bench::of_process;
use crate::show::kit::Random;
use anyhow::{Context, Result, ensure};
use arboretum::vfs::{CheckOptions, Repair};
use arboretum::{Volume, VolumeOptions};
use rustix::fs::Advice;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;
/// Samples of a call that takes microseconds.
pub(crate) const MANY: u64 = 2000;
/// How often a volume is opened with nothing of it in memory, and calls after each opening: a cache
/// that fills would turn further ones into warm ones.
const OPENINGS: u64 = 25;
const CALLS: u64 = 20;

/// One size of one series; each stage is a process.
pub(crate) struct Point {
    pub(crate) image: PathBuf,
    pub(crate) size: u64,
    pub(crate) engine: String,
    pub(crate) is_quick: bool,
    /// What the engine has by default, if nothing is said.
    pub(crate) cache_mib: Option<u64>,
    pub(crate) figures: Vec<Figure>,
}

impl Point {
    pub(crate) fn how(&self) -> VolumeOptions {
        let how = Volume::options().engine(&self.engine).overwrite(true);
        match self.cache_mib {
            Some(mib) => how.mount_option("cache", format!("{mib}M")),
            None => how,
        }
    }

    pub(crate) fn format(&self, bytes: u64) -> Result<Volume> {
        Ok(self.how().format(&self.image, bytes)?)
    }

    pub(crate) fn open(&self) -> Result<Volume> {
        Ok(self.how().open(&self.image)?)
    }

    /// Takes the image out of the host's page cache. No volume may be open: its lock would go.
    pub(crate) fn cool(&self) -> Result<()> {
        let file = File::open(&self.image)?;
        file.sync_all()?;
        Ok(rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?)
    }

    pub(crate) fn note(&mut self, name: &str, unit: &str, value: f64) {
        self.figures.push((name.into(), unit.into(), value));
    }

    /// Median of samples in microseconds.
    pub(crate) fn note_us(&mut self, name: &str, samples: Vec<f64>) {
        self.note(name, "us", median(&samples));
    }

    pub(crate) fn note_ms(&mut self, name: &str, samples: Vec<f64>) {
        self.note(name, "ms", median(&samples) / 1e3);
    }

    /// The most memory this process has had.
    pub(crate) fn note_memory(&mut self, name: &str) -> Result<()> {
        let pid = rustix::process::getpid();
        let kib = of_process(pid, "status", "VmHWM:").context("VmHWM")?;
        self.note(name, "MiB", kib as f64 / 1024.0);
        Ok(())
    }

    pub(crate) fn bytes_on_host(&self) -> Result<u64> {
        Ok(fs::metadata(&self.image)?.blocks() * 512)
    }

    pub(crate) fn close(&mut self, volume: Volume, name: &str) -> Result<()> {
        let us = timed(|| Ok(volume.close()?))?;
        self.note(name, "ms", us / 1e3);
        Ok(())
    }

    /// Opens the volume cold, again and again, and calls each of `calls` so many times with the
    /// number of the call; the medians get the calls' names.
    pub(crate) fn cold(&mut self, calls: &[(&str, Call<'_>)]) -> Result<()> {
        let mut opened = Vec::new();
        let mut samples: Vec<Vec<f64>> = calls.iter().map(|_| Vec::new()).collect();
        let mut requests = vec![0; calls.len()];
        for opening in 0..OPENINGS {
            self.cool()?;
            let start = Instant::now();
            let volume = self.open()?;
            opened.push(us(start.elapsed()));
            for ((_, call), (samples, requests)) in calls.iter().zip(samples.iter_mut().zip(&mut requests)) {
                let before = reads(&volume);
                for n in 0..CALLS {
                    samples.push(timed(|| call(&volume, opening * CALLS + n))?);
                }
                *requests += reads(&volume) - before;
            }
            volume.close()?;
        }
        self.note_ms("open, cold", opened);
        for ((name, _), (samples, requests)) in calls.iter().zip(samples.into_iter().zip(requests)) {
            self.note(&format!("{name}, mean"), "reads", requests as f64 / samples.len() as f64);
            self.note_us(name, samples);
        }
        Ok(())
    }

    /// statfs, and a sync after a change of one file.
    pub(crate) fn statfs_and_sync(&mut self, volume: &Volume) -> Result<()> {
        self.note_us("statfs", sampled(MANY, |_| Ok(volume.statfs().map(drop)?))?);
        let mut times = Vec::new();
        for n in 0..30 {
            volume.write("one", [n; 100])?;
            times.push(timed(|| Ok(volume.sync()?))?);
        }
        self.note_ms("sync after one change", times);
        Ok(())
    }

    /// The checker, which repairs nothing and must find nothing.
    pub(crate) fn check(&mut self, name: &str, memory: &str) -> Result<()> {
        let engine = arboretum::engine(&self.engine).context("no such engine")?;
        self.cool()?;
        let start = Instant::now();
        let devices = self.how().read_only(true).devices(&self.image)?;
        let report = engine.check(devices, &CheckOptions { repair: Repair::No, force: true }, &mut |_, _, _| {})?;
        self.note(name, "s", start.elapsed().as_secs_f64());
        ensure!(report.issues.is_empty(), "the checker has found: {:?}", report.issues.first());
        self.note_memory(memory)
    }
}

/// Requests for reading that the engine has sent to the device, where it counts them.
fn reads(volume: &Volume) -> u64 {
    let counters = volume.file_system().counters();
    counters.iter().filter(|(name, _)| ["metadata_reads", "data_reads", "reads"].contains(name)).map(|(_, n)| n).sum()
}

/// A call on a volume, with its number.
pub(crate) type Call<'a> = &'a dyn Fn(&Volume, u64) -> Result<()>;

pub(crate) fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Microseconds that a call takes.
pub(crate) fn timed(call: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    call()?;
    Ok(us(start.elapsed()))
}

/// Microseconds that each of `count` calls takes.
pub(crate) fn sampled(count: u64, mut call: impl FnMut(u64) -> Result<()>) -> Result<Vec<f64>> {
    (0..count).map(|n| timed(|| call(n))).collect()
}

/// Microseconds a call takes in each batch of so many calls, the last of which may be smaller.
pub(crate) fn batched(count: u64, batch: u64, mut call: impl FnMut(u64) -> Result<()>) -> Result<Vec<f64>> {
    let batches = (0..count).step_by(batch as usize).map(|from| {
        let to = count.min(from + batch);
        Ok(timed(|| (from..to).try_for_each(&mut call))? / (to - from) as f64)
    });
    batches.collect()
}

/// Numbers below `below`, drawn the same way each time; `nth` is how many were drawn before.
pub(crate) fn drawn(nth: u64, below: u64) -> u64 {
    Random(nth << 32 | below & 0xffff_ffff).below(below)
}

/// So many different numbers below `below`, or all of them, in a random order.
pub(crate) fn chosen(count: u64, below: u64) -> Vec<u64> {
    let mut all = Random(below).shuffled(below as u32);
    all.truncate(count as usize);
    all.into_iter().map(u64::from).collect()
}
