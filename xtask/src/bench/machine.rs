//! The machine: what it is, and the state of its idle processors, which decides every FUSE figure.

use anyhow::{Context, Result, ensure};
use rustix::thread::CpuSet;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// How long an idle processor of a virtual machine polls before it halts.
const HALT_POLL: &str = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) kernel: String,
    pub(crate) processor: String,
    pub(crate) processors: usize,
    pub(crate) memory_mib: u64,
    /// The file system that holds the images.
    pub(crate) host: String,
    /// UTC.
    pub(crate) date: String,
}

impl Machine {
    pub(crate) fn here(work: &Path) -> Machine {
        let name = rustix::system::uname();
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|l| l.strip_prefix("model name")?.split_once(": "));
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Machine {
            kernel: format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy()),
            processor: model.map_or("unknown".into(), |(_, model)| model.trim().into()),
            processors: std::thread::available_parallelism().map_or(1, Into::into),
            memory_mib: rustix::system::sysinfo().totalram as u64 >> 20,
            host: work.ancestors().find_map(super::system::mounted_at).map_or("unknown".into(), |m| m.kind),
            date: date(seconds),
        }
    }
}

/// Seconds since 1970 as date and time.
fn date(seconds: u64) -> String {
    // The proleptic calendar, in years that begin in March: a leap day is the last of its year.
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let in_month = day - (153 * month + 2) / 5 + 1;
    let (year, month) = (era * 400 + year + month / 10, (month + 2) % 12 + 1);
    format!("{year}-{month:02}-{in_month:02} {:02}:{:02} UTC", seconds / 3600 % 24, seconds / 60 % 60)
}

/// A state of the machine, as measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    /// "H0", "H1" or "as found".
    pub(crate) name: String,
    /// A round trip between two processors through two pipes, at the begin.
    pub(crate) ping_pong_us: f64,
    /// Load of the last minute at the begin: what others do here.
    pub(crate) load: f64,
}

impl State {
    pub(crate) fn measured(name: &str) -> Result<State> {
        Ok(State { name: name.into(), ping_pong_us: ping_pong_us()?, load: load().unwrap_or(0.0) })
    }
}

/// Load of the last minute.
pub(crate) fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// Sets how long idle processors poll. The value found comes back in any case: a shell waits for
/// the end of this process, whatever that is.
pub(crate) struct HaltPoll {
    found: String,
    shell: Child,
}

impl HaltPoll {
    pub(crate) fn new() -> Result<HaltPoll> {
        let found = fs::read_to_string(HALT_POLL).context(HALT_POLL)?.trim().to_owned();
        fs::write(HALT_POLL, &found).context(HALT_POLL)?;
        let shell = Command::new("sh")
            .args(["-c", "trap '' INT TERM HUP; read _; echo \"$1\" > \"$2\"", "sh", &found, HALT_POLL])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .context("sh")?;
        Ok(HaltPoll { found, shell })
    }

    pub(crate) fn set(&self, ns: u32) -> Result<()> {
        fs::write(HALT_POLL, ns.to_string()).context(HALT_POLL)?;
        let now = fs::read_to_string(HALT_POLL)?;
        ensure!(now.trim() == ns.to_string(), "{HALT_POLL} stays at {}", now.trim());
        Ok(())
    }
}

impl Drop for HaltPoll {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
        let now = fs::read_to_string(HALT_POLL).unwrap_or_default();
        if now.trim() != self.found {
            eprintln!("{HALT_POLL} is {} and was {}", now.trim(), self.found);
        }
    }
}

/// A round trip of a byte between two threads on two processors, in microseconds.
fn ping_pong_us() -> Result<f64> {
    const BATCHES: usize = 9;
    const TRIPS: u32 = 1000;
    let (mut here, to_there) = std::io::pipe()?;
    let (from_there, mut back) = std::io::pipe()?;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pin(false);
            // Ends with the other side.
            while pass(&mut here, &mut back).is_ok() {}
        });
        let measuring = scope.spawn(move || {
            pin(true);
            let (mut from_there, mut to_there) = (from_there, to_there);
            let mut times = Vec::new();
            for _ in 0..BATCHES {
                let start = Instant::now();
                for _ in 0..TRIPS {
                    to_there.write_all(b"x")?;
                    from_there.read_exact(&mut [0])?;
                }
                times.push(start.elapsed().as_secs_f64() * 1e6 / f64::from(TRIPS));
            }
            anyhow::Ok(super::record::Spread::of(&times).map_or(0.0, |s| s.median))
        });
        measuring.join().expect("no panic")
    })
}

fn pass(from: &mut PipeReader, to: &mut PipeWriter) -> std::io::Result<()> {
    let mut byte = [0];
    from.read_exact(&mut byte)?;
    to.write_all(&byte)
}

/// Binds this thread to the first or the last processor it may run on.
fn pin(to_first: bool) {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else { return };
    let mut all = (0..CpuSet::MAX_CPU).filter(|&n| allowed.is_set(n));
    if let Some(one) = if to_first { all.next() } else { all.next_back() } {
        let mut set = CpuSet::new();
        set.set(one);
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_399), "2000-02-28 23:59 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_735_689_599), "2024-12-31 23:59 UTC");
        assert_eq!(date(1_795_226_400), "2026-11-21 02:00 UTC");
    }

    #[test]
    fn a_round_trip_takes_time() {
        let us = ping_pong_us().unwrap();
        assert!(us > 0.1 && us < 100_000.0, "{us}");
    }
}
