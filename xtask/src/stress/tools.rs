//! The tools, how each is called, and what its end means.

use super::process::{self, Control, End, lock};
use crate::show::kit::{Random, in_path};
use crate::show::suites;
use anyhow::{Context, Result};
use clap::ValueEnum;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A tool that takes longer for one piece of its work hangs.
const LIMIT: Duration = Duration::from_secs(600);
pub(crate) const KERNEL_TARBALL: &str = "/usr/src/linux-source-6.1.tar.xz";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Tool {
    /// The stressors of stress-ng that work in one directory, one after the other, three at a time.
    StressNg,
    /// The load of a file server.
    Dbench,
    /// What is written is read and verified, with five ways of input and output.
    Fio,
    /// One file, all ways to change it, compared with what must be in it.
    Fsx,
    /// Commits, clones, gc and fsck.
    Git,
    /// A small Linux kernel, built once, in a round of its own.
    Kernel,
}

impl Tool {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Tool::StressNg => "stress-ng",
            Tool::Dbench => "dbench",
            Tool::Fio => "fio",
            Tool::Fsx => "fsx",
            Tool::Git => "git",
            Tool::Kernel => "kernel",
        }
    }

    /// Files that must be there, by path or on the search path, and the Debian packages with them.
    fn needs(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Tool::StressNg => (&["stress-ng"], &["stress-ng"]),
            Tool::Dbench => (&["dbench"], &["dbench"]),
            Tool::Fio => (&["fio"], &["fio"]),
            Tool::Fsx => (&[], &[]),
            Tool::Git => (&["git"], &["git"]),
            Tool::Kernel => (
                &[KERNEL_TARBALL, "xz", "make", "gcc", "flex", "bison", "bc", "/usr/include/libelf.h"],
                &["linux-source-6.1", "xz-utils", "make", "gcc", "libc6-dev", "flex", "bison", "bc", "libelf-dev"],
            ),
        }
    }

    /// How many do it at the same time.
    fn lanes(self) -> usize {
        match self {
            Tool::StressNg => 3,
            Tool::Fio => 2,
            _ => 1,
        }
    }

    /// Installs it if it is missing; an error says why it cannot be run.
    pub(crate) fn prepare(self) -> Result<()> {
        if self == Tool::Fsx {
            return suites::find_tools(None).map(drop);
        }
        let (files, packages) = self.needs();
        let missing = || -> Vec<&str> {
            files.iter().filter(|f| !Path::new(f).exists() && in_path(f).is_none()).copied().collect()
        };
        if missing().is_empty() {
            return Ok(());
        }
        let root = rustix::process::geteuid().is_root();
        anyhow::ensure!(root, "{:?} missing: apt install {}", missing(), packages.join(" "));
        println!("installing {}", packages.join(" "));
        // The lists of packages may be missing or old.
        if !apt(&[&["install"], packages].concat()) || !missing().is_empty() {
            apt(&["update"]);
            apt(&[&["install"], packages].concat());
        }
        anyhow::ensure!(missing().is_empty(), "{:?} missing, and apt does not bring it", missing());
        Ok(())
    }
}

fn apt(words: &[&str]) -> bool {
    let mut command = Command::new("apt-get");
    command.args(["-q", "-y", "--no-install-recommends"]).args(words).env("DEBIAN_FRONTEND", "noninteractive");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Some options name sizes, because a stressor would write a gigabyte otherwise.
const STRESS_NG_SIZES: [&str; 9] = [
    "--hdd-bytes=64M",
    "--fallocate-bytes=64M",
    "--fiemap-bytes=16M",
    "--seek-size=16M",
    "--readahead-bytes=64M",
    "--iomix-bytes=64M",
    "--sync-file-bytes=32M",
    "--mmap-bytes=64M",
    "--copy-file-bytes=128M",
];

/// Those that work in one directory. Not all versions have all.
const STRESSORS: [&str; 61] = [
    "access",
    "acl",
    "aio",
    "aiol",
    "chattr",
    "chdir",
    "chmod",
    "chown",
    "copy-file",
    "dentry",
    "dir",
    "dirdeep",
    "dirmany",
    "dnotify",
    "dup",
    "fallocate",
    "fault",
    "fcntl",
    "fiemap",
    "file-ioctl",
    "filename",
    "flock",
    "fpunch",
    "fsize",
    "fstat",
    "getdent",
    "handle",
    "hdd",
    "inode-flags",
    "inotify",
    "io",
    "io-uring",
    "iomix",
    "lease",
    "link",
    "locka",
    "lockf",
    "lockmix",
    "lockofd",
    "metamix",
    "mknod",
    "mmap",
    "mmapfiles",
    "msync",
    "open",
    "prefetch",
    "readahead",
    "rename",
    "revio",
    "rmap",
    "seek",
    "sendfile",
    "splice",
    "symlink",
    "sync-file",
    "touch",
    "unlink",
    "utime",
    "verity",
    "vm-splice",
    "xattr",
];

/// Those that had no turn yet.
pub(crate) fn unreached(tally: &Tally) -> Vec<&'static str> {
    let is_named = |name: &str| {
        let whole = format!("stress-ng {name}");
        let has_failed = tally.failed.iter().any(|f| f.starts_with(&format!("{whole}: ")));
        has_failed || tally.passed.contains_key(&whole) || tally.not_run.contains_key(&whole)
    };
    STRESSORS.into_iter().filter(|name| !is_named(name)).collect()
}

/// Ways of input and output of fio, with their names.
const FIO: [(&str, &[&str]); 7] = [
    ("random", &["--ioengine=psync", "--rw=randrw", "--bs=4k", "--size=24m", "--fsync=64"]),
    ("sequential", &["--ioengine=psync", "--rw=write", "--bs=64k", "--size=64m", "--fsync=100"]),
    ("sectors", &["--ioengine=psync", "--rw=randwrite", "--bs=512", "--size=2m", "--fdatasync=200"]),
    ("mixed", &["--ioengine=psync", "--rw=rw", "--bsrange=1k-64k", "--size=32m", "--fsync=50"]),
    ("mmap", &["--ioengine=mmap", "--rw=randrw", "--bs=4k", "--size=16m", "--fsync=256"]),
    ("io_uring", &["--ioengine=io_uring", "--iodepth=8", "--rw=randrw", "--bs=16k", "--size=32m", "--fsync=64"]),
    ("libaio", &["--ioengine=libaio", "--iodepth=8", "--direct=1", "--rw=randrw", "--bs=4k", "--size=16m"]),
];

const GIT: &str = r#"
export HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
git() { command git -c safe.directory='*' -c init.defaultBranch=main -c gc.auto=0 -c maintenance.auto=false "$@"; }
seed=$1
mkdir one; cd one; git init -q
for turn in 1 2 3; do
    awk -v seed=$seed$turn -v turn=$turn 'BEGIN {
        srand(seed)
        for (i = 0; i < 60; i++) {
            dir = "d" int(rand() * 8); system("mkdir -p " dir)
            name = dir "/f" int(rand() * 40)
            lines = rand() * 400
            for (l = 0; l < lines; l++) print rand(), turn, i > name
            close(name)
        }
    }'
    git add -A; git commit -q -m "turn $turn"
done
git rm -q -r d1 && git commit -q -m removed || true
git clone -q . ../two
git gc -q --prune=now
git fsck --full --strict --no-progress
cd ../two
git fsck --full --strict --no-progress
git checkout -q -b side HEAD~2; git checkout -q main
test "$(git rev-parse HEAD)" = "$(git -C ../one rev-parse HEAD)"
test -z "$(git status --porcelain)"
git gc -q --aggressive --prune=now
git fsck --full --no-progress
test -z "$(git -C ../one status --porcelain)"
"#;

/// What came of one piece of a tool's work.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    Passed,
    Failed(String),
    NotRun(String),
}

/// What an exit code and the end of the output mean.
type Judge = fn(Option<i32>, &str) -> Verdict;

fn judge(code: Option<i32>, said: &str) -> Verdict {
    match code {
        Some(0) => Verdict::Passed,
        Some(code) => Verdict::Failed(format!("exit code {code}: {said}")),
        None => Verdict::Failed(format!("ended by a signal: {said}")),
    }
}

/// A stressor that does not find what it needs says so, and may still succeed.
fn judge_stress_ng(code: Option<i32>, said: &str) -> Verdict {
    let skipped = said.lines().find(|l| l.contains("skipping stressor") || l.contains("stressor will be skipped"));
    let unknown = said.lines().find(|l| l.contains("unrecognized option"));
    match (code, skipped.or(unknown)) {
        (Some(0 | 1 | 3 | 4), Some(line)) => Verdict::NotRun(line.trim().to_string()),
        (Some(3 | 4), None) => Verdict::NotRun(said.to_string()),
        _ => judge(code, said),
    }
}

/// A client that fails says so and ends; the others go on.
fn judge_dbench(code: Option<i32>, said: &str) -> Verdict {
    match judge(code, said) {
        Verdict::Passed if said.contains("failed at line") => Verdict::Failed(said.to_string()),
        Verdict::Passed if !said.contains("Throughput") => Verdict::Failed(format!("no result: {said}")),
        verdict => verdict,
    }
}

fn judge_fsx(code: Option<i32>, said: &str) -> Verdict {
    match judge(code, said) {
        Verdict::Passed if !said.contains("All operations completed") => Verdict::Failed(said.to_string()),
        verdict => verdict,
    }
}

/// Where io_uring or asynchronous input and output is forbidden or not built in, that is not the
/// file system's fault.
fn judge_fio(code: Option<i32>, said: &str) -> Verdict {
    const FORBIDDEN: [&str; 3] = ["not loadable", "io_queue_init", "io_uring_setup"];
    let forbidden = said.lines().find(|l| FORBIDDEN.iter().any(|f| l.contains(f)));
    match (judge(code, said), forbidden) {
        (Verdict::Failed(_), Some(line)) => Verdict::NotRun(line.trim().to_string()),
        (verdict, _) => verdict,
    }
}

/// How often each piece of work passed, failed, was cut short by the kill; and what was not run.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) passed: BTreeMap<String, u32>,
    pub(crate) failed: Vec<String>,
    pub(crate) cut: u32,
    pub(crate) not_run: BTreeMap<String, String>,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Tally) {
        for (name, count) in other.passed {
            *self.passed.entry(name).or_default() += count;
        }
        self.failed.extend(other.failed);
        self.cut += other.cut;
        self.not_run.extend(other.not_run);
    }

    pub(crate) fn passes(&self) -> u32 {
        self.passed.values().sum()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} pieces of work passed, {} failed, {} cut short, {} not run",
            self.passes(),
            self.failed.len(),
            self.cut,
            self.not_run.len()
        )
    }
}

/// The stressors in the order they are run, over all rounds.
pub(crate) struct Queue(Mutex<VecDeque<&'static str>>);

impl Queue {
    pub(crate) fn new(seed: u64) -> Queue {
        let order = Random(seed).shuffled(STRESSORS.len() as u32);
        Queue(Mutex::new(order.into_iter().map(|i| STRESSORS[i as usize]).collect()))
    }

    fn next(&self) -> Option<&'static str> {
        let mut queue = lock(&self.0);
        let first = queue.pop_front()?;
        queue.push_back(first);
        Some(first)
    }
}

/// What the tools of one round work with.
pub(crate) struct Site<'a> {
    pub(crate) control: &'a Control,
    /// The mount.
    pub(crate) dir: &'a Path,
    /// On the host, for output and what tools need beside the mount.
    pub(crate) host: &'a Path,
    pub(crate) tally: &'a Mutex<Tally>,
    pub(crate) queue: &'a Queue,
    pub(crate) until: Instant,
    pub(crate) seed: u64,
    pub(crate) quick: bool,
}

impl Site<'_> {
    /// The lanes of `tools`, to be run at the same time.
    pub(crate) fn lanes(tools: &[Tool]) -> Vec<(Tool, usize)> {
        tools.iter().flat_map(|&tool| (0..tool.lanes()).map(move |lane| (tool, lane))).collect()
    }

    /// Runs pieces of a tool's work, each in a directory of its own, until the time is over.
    pub(crate) fn lane(&self, tool: Tool, lane: usize) {
        let name = format!("{}-{lane}", tool.name());
        let mut random = Random(self.seed ^ u64::from(crc32c::crc32c(name.as_bytes())));
        for turn in lane.. {
            if !self.control.is_on() || Instant::now() >= self.until {
                return;
            }
            if let Err(e) = self.piece(tool, &name, turn, random.next()) {
                // The kill makes also our own calls fail.
                if !self.control.was_killed() && crate::show::kit::go_on().is_ok() {
                    lock(self.tally).failed.push(format!("{name}: {e:#}"));
                }
                return;
            }
        }
    }

    fn piece(&self, tool: Tool, lane: &str, turn: usize, seed: u64) -> Result<()> {
        let dir = self.dir.join(lane);
        fs::create_dir(&dir).with_context(|| dir.display().to_string())?;
        let log = self.host.join(format!("{lane}.log"));
        match tool {
            Tool::StressNg => self.stress_ng(&dir, &log, seed)?,
            Tool::Dbench => self.dbench(&dir, &log, turn)?,
            Tool::Fio => self.fio(&dir, &log, turn, seed)?,
            Tool::Fsx => self.fsx(&dir, &log, turn, seed)?,
            Tool::Git => self.git(&dir, &log, seed)?,
            Tool::Kernel => {}
        }
        fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))
    }

    /// Runs a command; no verdict if it was cut short.
    fn verdict(
        &self,
        name: &str,
        command: Command,
        log: &Path,
        limit: Duration,
        judge: Judge,
    ) -> Result<Option<Verdict>> {
        Ok(match self.control.run(name, command, log, limit)? {
            End::Exited(status) => Some(judge(status.code(), &process::said(log))),
            End::Stopped => None,
            End::Hung => Some(Verdict::Failed("hung".into())),
        })
    }

    fn count(&self, name: &str, verdict: Option<Verdict>) {
        let mut tally = lock(self.tally);
        match verdict {
            Some(Verdict::Passed) => *tally.passed.entry(name.into()).or_default() += 1,
            Some(Verdict::NotRun(why)) => drop(tally.not_run.insert(name.into(), why)),
            Some(Verdict::Failed(why)) => {
                println!("  FAILED {name}: {why}");
                tally.failed.push(format!("{name}: {why}"));
            }
            None => tally.cut += 1,
        }
    }

    fn note(&self, name: &str, command: Command, log: &Path, judge: Judge) -> Result<()> {
        self.count(name, self.verdict(name, command, log, LIMIT, judge)?);
        Ok(())
    }

    fn stress_ng(&self, dir: &Path, log: &Path, seed: u64) -> Result<()> {
        let stressor = self.queue.next().context("no stressors")?;
        let name = format!("stress-ng {stressor}");
        let command = |dir: &Path| {
            let mut command = Command::new("stress-ng");
            let seconds = if self.quick { "2" } else { "6" };
            command.arg(format!("--{stressor}")).args(["1", "--verify", "--timeout", seconds]);
            command.args(STRESS_NG_SIZES).arg("--mmap-file").args(["--seed", &seed.to_string()]);
            command.arg("--temp-path").arg(dir).current_dir(dir);
            command
        };
        let mut verdict = self.verdict(&name, command(dir), log, LIMIT, judge_stress_ng)?;
        if let Some(Verdict::Failed(_)) = verdict {
            // What fails on the host in the same way is not a matter of the file system.
            let host = self.host.join(dir.file_name().unwrap_or_default());
            fs::create_dir_all(&host)?;
            let log = log.with_extension("host.log");
            let there = self.verdict(&format!("{name} on the host"), command(&host), &log, LIMIT, judge_stress_ng)?;
            if let Some(Verdict::Failed(why)) = there {
                let line = why.lines().find(|l| l.contains("fail:")).unwrap_or(&why);
                verdict = Some(Verdict::NotRun(format!("fails on the host as well: {line}")));
            }
        }
        self.count(&name, verdict);
        Ok(())
    }

    fn dbench(&self, dir: &Path, log: &Path, turn: usize) -> Result<()> {
        let (what, more) =
            [("dbench", None), ("dbench with xattr", Some("-x")), ("dbench with fsync", Some("-F"))][turn % 3];
        let mut command = Command::new("dbench");
        command.args(["-t", if self.quick { "4" } else { "15" }, "-c", "/usr/share/dbench/client.txt"]);
        command.args(more).arg("-D").arg(dir).arg("4");
        self.note(what, command, log, judge_dbench)
    }

    fn fio(&self, dir: &Path, log: &Path, turn: usize, seed: u64) -> Result<()> {
        let (what, words) = FIO[turn % FIO.len()];
        let mut command = Command::new("fio");
        command.args(["--name=job", "--thread", "--nrfiles=4", "--verify=crc32c", "--do_verify=1", "--verify_fatal=1"]);
        command.args(["--verify_backlog=512", "--numjobs=2"]).args(words).arg(format!("--randseed={}", seed >> 1));
        command.arg("--directory").arg(dir).current_dir(self.host);
        self.note(&format!("fio {what}"), command, log, judge_fio)
    }

    fn fsx(&self, dir: &Path, log: &Path, turn: usize, seed: u64) -> Result<()> {
        let (sizes, more, syncs) = (suites::FSX_SIZES, suites::FSX_MORE, suites::FSX_SYNCS);
        // Most of its time would go into the msync after each write to the mapped file.
        let (what, operations, text) = if turn % 4 == 3 {
            ("fsx with msync", 2_000, format!("{sizes}[weights]\n{syncs}{more}"))
        } else {
            ("fsx", 20_000, format!("nomsyncafterwrite = true\n{sizes}[weights]\n{syncs}{more}"))
        };
        let config = self.host.join("fsx.toml");
        fs::write(&config, text)?;
        let operations = if self.quick { operations / 5 } else { operations };
        let mut command = Command::new(suites::find_tools(None)?.fsx);
        command.arg("-q").arg("-f").arg(config).args(["-N", &operations.to_string(), "-S", &(seed >> 1).to_string()]);
        command.arg("-P").arg(self.host).arg(dir.join("file"));
        self.note(what, command, log, judge_fsx)
    }

    fn git(&self, dir: &Path, log: &Path, seed: u64) -> Result<()> {
        let mut command = Command::new("sh");
        command.args(["-e", "-c", GIT, "sh", &(seed % 100_000).to_string()]).current_dir(dir);
        self.note("git", command, log, judge)
    }

    /// Runs a shell script in `dir` and says whether it passed.
    pub(crate) fn script(
        &self,
        name: &str,
        dir: &Path,
        script: &str,
        args: &[PathBuf],
        limit: Duration,
    ) -> Result<bool> {
        let mut command = Command::new("sh");
        command.args(["-e", "-c", script, "sh"]).args(args).current_dir(dir);
        let verdict = self.verdict(name, command, &self.host.join("script.log"), limit, judge)?;
        let has_passed = verdict == Some(Verdict::Passed);
        self.count(name, verdict);
        Ok(has_passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_stressor_has_not_passed() {
        let line = "stress-ng: info:  [7] fiemap: FS_IOC_FIEMAP not supported on the file system, skipping stressor";
        assert_eq!(judge_stress_ng(Some(0), line), Verdict::NotRun(line.into()));
        assert_eq!(judge_stress_ng(Some(0), "successful run completed in 2.01s"), Verdict::Passed);
        assert!(matches!(judge_stress_ng(Some(2), line), Verdict::Failed(_)));
        assert!(matches!(judge_stress_ng(Some(3), ""), Verdict::NotRun(_)));
        assert!(matches!(judge_stress_ng(None, ""), Verdict::Failed(_)));
    }

    #[test]
    fn success_needs_a_result() {
        assert_eq!(judge_dbench(Some(0), "Throughput 90.9 MB/sec"), Verdict::Passed);
        assert!(matches!(judge_dbench(Some(0), ""), Verdict::Failed(_)));
        assert!(matches!(judge_fsx(Some(0), ""), Verdict::Failed(_)));
        assert_eq!(judge_fsx(Some(0), "All operations completed A-OK!"), Verdict::Passed);
    }

    #[test]
    fn each_stressor_has_its_turn() {
        let queue = Queue::new(1);
        let mut seen: Vec<&str> = (0..STRESSORS.len()).filter_map(|_| queue.next()).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), STRESSORS.len());
    }
}
