//! A limit for the memory that the workload and the kernel on its behalf use: a memory cgroup, of version 1 or 2.

use rustix::process::Pid;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

const ROOT: &str = "/sys/fs/cgroup";

/// A process in a cgroup of its own. Dropped, it is where it was.
pub(super) struct Limit {
    pid: Pid,
    group: PathBuf,
    /// Where it was.
    home: PathBuf,
}

impl Limit {
    /// Lets the process `pid`, from now on, use so much memory, with the pages and inodes that the kernel keeps for it.
    pub(super) fn new(pid: Pid, bytes: u64) -> io::Result<Limit> {
        let all = fs::read_to_string(format!("/proc/{}/cgroup", pid.as_raw_nonzero()))?;
        let place = Place::find(&all).ok_or_else(|| io::Error::other("there is no memory cgroup"))?;
        let group = place.above.join(format!("arbor-lab-{}", std::process::id()));
        fs::create_dir(&group)?;
        let limit = Limit { pid, group, home: place.home };
        fs::write(limit.group.join(place.file), bytes.to_string())?;
        limit.enter(&limit.group)?;
        Ok(limit)
    }

    fn enter(&self, group: &Path) -> io::Result<()> {
        fs::write(group.join("cgroup.procs"), self.pid.as_raw_nonzero().to_string())
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        // A process that has ended is nowhere.
        let _ = self.enter(&self.home);
        for _ in 0..50 {
            if !matches!(fs::remove_dir(&self.group), Err(e) if e.kind() == io::ErrorKind::ResourceBusy) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Where a group can be made.
struct Place {
    home: PathBuf,
    above: PathBuf,
    /// The file with the limit.
    file: &'static str,
}

impl Place {
    /// `all` is `/proc/PID/cgroup`: hierarchy, controllers, path.
    fn find(all: &str) -> Option<Place> {
        let find = |wanted: &str| {
            all.lines().find_map(|line| {
                let (_, rest) = line.split_once(':')?;
                let (controllers, path) = rest.split_once(':')?;
                controllers.split(',').any(|c| c == wanted).then(|| path.trim_start_matches('/').to_string())
            })
        };
        if let Some(path) = find("memory") {
            let home = Path::new(ROOT).join("memory").join(path);
            return Some(Place { above: home.clone(), home, file: "memory.limit_in_bytes" });
        }
        // In version 2 a group with processes of its own has none below; at the root there may be.
        let given = fs::read_to_string(Path::new(ROOT).join("cgroup.subtree_control")).ok()?;
        let home = Path::new(ROOT).join(find("")?);
        given.split_whitespace().any(|c| c == "memory").then(|| Place { home, above: ROOT.into(), file: "memory.max" })
    }
}
