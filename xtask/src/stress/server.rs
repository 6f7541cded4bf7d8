//! What the server of a mount takes, and whether it gives it back.

use super::process::lock;
use crate::show::kit::{Kit, MIB, Mount};
use anyhow::{Context, Result, ensure};
use rustix::process::Pid;
use std::fs;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Beside its cache the server has the program, the allocation groups, inodes that are in use, and data
/// on the way to the device.
const BESIDE_CACHE_MIB: f64 = 48.0;
/// A thread has buffers for requests, and an arena of the allocator that keeps what was freed.
const THREAD_MIB: f64 = 4.0;
/// What a full cache takes of its limit, with its tables and with what the allocator has kept of
/// buffers that were freed.
const FULL_CACHE: f64 = 1.25;
/// So much more a server may take after a round than after the one before it, its cache aside.
const GROWTH_MIB: f64 = 16.0;
/// Forgets and closes come after the call that causes them.
const SETTLING: Duration = Duration::from_secs(20);

/// What a server takes, and how full its volume is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Measure {
    pub(crate) rss_mib: f64,
    pub(crate) peak_mib: f64,
    pub(crate) threads: u64,
    pub(crate) descriptors: usize,
    pub(crate) used_inodes: u64,
    pub(crate) free_bytes: u64,
}

/// The number after `key:` in `/proc/PID/status`.
fn field(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

impl Measure {
    /// Asks nothing of the server.
    pub(crate) fn of_process(pid: Pid) -> Result<Measure> {
        let proc = format!("/proc/{}", pid.as_raw_nonzero());
        let status = fs::read_to_string(format!("{proc}/status")).context("the server is gone")?;
        let number = |key: &str| field(&status, key).with_context(|| format!("no {key} in the server's status"));
        Ok(Measure {
            rss_mib: number("VmRSS")? as f64 / 1024.0,
            peak_mib: number("VmHWM")? as f64 / 1024.0,
            threads: number("Threads")?,
            descriptors: fs::read_dir(format!("{proc}/fd"))?.count(),
            ..Measure::default()
        })
    }

    fn take(mount: &Mount<'_>) -> Result<Measure> {
        let stat = rustix::fs::statvfs(mount.dir())?;
        Ok(Measure {
            used_inodes: stat.f_files - stat.f_ffree,
            free_bytes: stat.f_bfree * stat.f_frsize,
            ..Measure::of_process(mount.pid())?
        })
    }

    /// Takes it when the kernel has let go of all that it can. With `before`, that is waited for.
    pub(crate) fn settled(kit: &Kit, mount: &Mount<'_>, before: Option<&Measure>) -> Result<Measure> {
        let start = Instant::now();
        loop {
            drop_caches()?;
            kit.arbor(["sync".as_ref(), mount.dir().as_os_str()])?;
            let now = Measure::take(mount)?;
            let is_back = before.is_none_or(|b| now.is_back(b).is_empty());
            if is_back && start.elapsed() > Duration::from_millis(500) || start.elapsed() > SETTLING {
                return Ok(now);
            }
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    /// What has not come back to where it was `before` the tools ran, all they made being removed.
    pub(crate) fn is_back(&self, before: &Measure) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.used_inodes != before.used_inodes {
            wrong.push(format!(
                "{} inodes are in use in an empty volume, {} before: is a forget lost?",
                self.used_inodes, before.used_inodes
            ));
        }
        if self.free_bytes < before.free_bytes {
            wrong.push(format!("{} KiB of space did not come back", (before.free_bytes - self.free_bytes) >> 10));
        }
        if self.descriptors > before.descriptors {
            wrong.push(format!("the server has {} files open, {} before", self.descriptors, before.descriptors));
        }
        if self.threads > before.threads {
            wrong.push(format!("the server has {} threads, {} before", self.threads, before.threads));
        }
        wrong
    }

    /// What is wrong with the memory, with a cache of `cache_mib`, and after the round before on the
    /// same server.
    pub(crate) fn memory(&self, cache_mib: f64, before: Option<&Measure>) -> Vec<String> {
        let mut wrong = Vec::new();
        let limit = cache_mib * FULL_CACHE + BESIDE_CACHE_MIB + THREAD_MIB * self.threads as f64;
        if self.peak_mib > limit {
            wrong.push(format!("the server took {:.1} MiB, and the limit is {limit} MiB", self.peak_mib));
        }
        if let Some(before) = before {
            // A cache that was not full may fill.
            let limit = before.rss_mib.max(cache_mib * FULL_CACHE) + GROWTH_MIB;
            if self.rss_mib > limit {
                wrong.push(format!(
                    "the server takes {:.1} MiB after {:.1} MiB a round before, and the limit is {limit:.1} MiB",
                    self.rss_mib, before.rss_mib
                ));
            }
        }
        wrong
    }
}

/// Whether the kernel can be told to drop its caches, which sends FORGETs; only root can.
pub(crate) fn can_drop_caches() -> bool {
    rustix::process::geteuid().is_root()
}

fn drop_caches() -> Result<()> {
    // One after the other: two of them at once only wait for each other.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = lock(&ONE);
    if can_drop_caches() {
        fs::write("/proc/sys/vm/drop_caches", "2").context("drop_caches")?;
    }
    Ok(())
}

/// Removes all that is on the mount.
pub(crate) fn empty(mount: &Mount<'_>) -> Result<()> {
    for entry in fs::read_dir(mount.dir())? {
        let entry = entry?;
        let removed =
            if entry.file_type()?.is_dir() { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) };
        removed.with_context(|| format!("removing {}", entry.path().display()))?;
    }
    let left = fs::read_dir(mount.dir())?.count();
    ensure!(left == 0, "{left} names are left in an emptied volume");
    Ok(())
}

/// Fails early where the work directory is too small for a volume that is filled to `mib`.
pub(crate) fn need(kit: &Kit, mib: u64) -> Result<()> {
    kit.need_space(mib * MIB)
}

/// The server, as `/proc` shows it to a reader of a report.
pub(crate) fn describe(pid: Pid, measure: &Measure) -> String {
    format!(
        "server {}: {:.1} MiB (peak {:.1}), {} threads, {} files open",
        pid.as_raw_nonzero(),
        measure.rss_mib,
        measure.peak_mib,
        measure.threads,
        measure.descriptors
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_a_process_is_understood() {
        let status = "Name:\tarbor\nVmHWM:\t   14336 kB\nVmRSS:\t    9216 kB\nThreads:\t7\n";
        assert_eq!(field(status, "VmRSS"), Some(9216));
        assert_eq!(field(status, "Threads"), Some(7));
        assert_eq!(field(status, "Thread"), None);
    }

    #[test]
    fn what_does_not_come_back_is_named() {
        let before = Measure { threads: 4, descriptors: 9, used_inodes: 1, free_bytes: 1 << 30, ..Measure::default() };
        assert!(before.is_back(&before).is_empty());
        let after = Measure { threads: 5, descriptors: 10, used_inodes: 2, free_bytes: 1 << 29, ..before };
        assert_eq!(after.is_back(&before).len(), 4);
    }

    #[test]
    fn memory_has_limits() {
        let first = Measure { rss_mib: 20.0, peak_mib: 30.0, ..Measure::default() };
        assert!(first.memory(16.0, None).is_empty());
        let next = Measure { rss_mib: 41.0, peak_mib: 50.0, ..first };
        assert_eq!(next.memory(16.0, Some(&first)).len(), 1);
        let much = Measure { peak_mib: 81.0, ..first };
        assert_eq!(much.memory(16.0, Some(&first)).len(), 1);
    }
}
