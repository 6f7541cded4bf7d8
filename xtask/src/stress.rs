//! `cargo xtask stress`: a mount under the load of other people's tools, for as long as wanted, its
//! server killed and the volume mounted again between and during the rounds.
//!
//! | module | what |
//! |---|---|
//! | `tools` | the tools, how each is called, and what its end means |
//! | `kernel` | a kernel built on the mount |
//! | `process` | tools as processes: with a limit of time, never left behind |
//! | `server` | what the server takes, and whether it gives it back |
//! | `report` | the table |
//!
//! The rounds of one server are a *life* of it. A life has calm rounds, at whose end everything is
//! removed and the server measured, and it ends: by an unmount, by a kill when nothing is at work, or
//! by a kill in the middle of one more round. Then the volume is mounted again, what was synced must
//! be there, and the checker must find nothing.

mod kernel;
mod process;
mod report;
mod server;
mod tools;

use crate::show::crash::Synced;
use crate::show::kit::{self, Kit, Mount, Random};
use crate::show::tree;
use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use process::{Control, lock, watched};
use report::Report;
use server::Measure;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tools::{Queue, Site, Tally, Tool};

/// Stress a real mount with tools from Debian and crates.io, and kill its server again and again.
///
/// Missing tools are installed with apt-get and cargo; what cannot be is named as not run.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask stress", bin_name = "cargo xtask stress")]
struct Args {
    /// Begin rounds for so long [default: 1800, or no limit with --rounds].
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// So many rounds at most.
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// Work below this directory, instead of the system's for temporary files; it takes up to 12 GiB.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// This `arbor`, instead of building it.
    #[arg(long, value_name = "PATH")]
    arbor: Option<PathBuf>,
    /// Where the random numbers start; otherwise drawn, and printed.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Only these tools.
    #[arg(long, value_name = "TOOL", value_delimiter = ',')]
    only: Vec<Tool>,
    /// One short round to its end and one with a kill, about a minute, without the kernel.
    #[arg(long)]
    quick: bool,
    /// Leave the work directory, with the images, for a look at it.
    #[arg(long)]
    keep: bool,
}

/// A volume and how it is mounted.
struct Variant {
    name: &'static str,
    mkfs: &'static str,
    mount: &'static str,
    cache_mib: f64,
}

const VARIANTS: [Variant; 5] = [
    Variant { name: "default", mkfs: "", mount: "", cache_mib: 256.0 },
    Variant { name: "small-cache", mkfs: "", mount: "cache=16M", cache_mib: 16.0 },
    Variant { name: "small-log", mkfs: "logsize=1M", mount: "commit=1", cache_mib: 256.0 },
    Variant {
        name: "uncached-names",
        mkfs: "block=1K,frag=512,inode=1K",
        mount: "cache=16M,threads=8,entry_timeout=0,attr_timeout=0,negative_timeout=0",
        cache_mib: 16.0,
    },
    Variant { name: "writeback", mkfs: "logsize=1M", mount: "cache=32M,writeback_cache", cache_mib: 32.0 },
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    Umount,
    /// Killed when nothing is at work.
    KilledIdle,
    /// Killed in the middle of one more round.
    Killed,
}

/// Calm rounds on one server, and how it ends. Four servers of five are killed.
const LIVES: [(u32, Ending); 5] =
    [(3, Ending::Umount), (0, Ending::Killed), (1, Ending::Killed), (0, Ending::Killed), (1, Ending::KilledIdle)];
const QUICK_LIVES: [(u32, Ending); 2] = [(1, Ending::Umount), (0, Ending::Killed)];

const MOUNT_LIMIT: Duration = Duration::from_secs(60);
const UMOUNT_LIMIT: Duration = Duration::from_secs(120);
const CHECK_LIMIT: Duration = Duration::from_secs(300);
/// Removing everything, and waiting for what comes back.
const SETTLE_LIMIT: Duration = Duration::from_secs(240);
/// Beyond the time that one piece of a tool's work may take.
const ROUND_LIMIT: Duration = Duration::from_secs(900);
/// A mount that has to recover takes no longer, on a machine that does much else.
const RECOVERY_LIMIT: Duration = Duration::from_secs(10);
const NEEDED_MIB: u64 = 12 << 10;

/// Runs `cargo xtask stress` with `words` after it.
pub(crate) fn run<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let args = Args::parse_from(["stress"].into_iter().chain(words));
    let opened = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    opened.context("/dev/fuse: stress needs FUSE")?;
    kit::watch_signals()?;
    let arbor = match &args.arbor {
        Some(path) => path.canonicalize().with_context(|| path.display().to_string())?,
        None => crate::show::build()?,
    };
    let seed = args.seed.unwrap_or_else(kit::drawn_seed);
    let (tools, missing) = prepare(&args);
    let mut kit = Kit::new("stress", &arbor, args.dir.as_deref(), args.keep)?;
    server::need(&kit, if args.quick { 4 << 10 } else { NEEDED_MIB })?;
    process::adopt_orphans()?;
    let mut run = Run::new(&args, &kit, seed, tools);
    run.report.missing = missing;
    let result = run.all();
    let interrupted = kit::go_on();
    run.report.print(seed);
    process::end_strays(None);
    let (report, start) = (run.report, run.start);
    if report.has_evidence && !args.keep {
        kit.keep("stress");
    }
    interrupted?;
    result?;
    ensure!(!report.has_failed(), "the stress failed; seed {seed}");
    println!("stress: ok ({:.0} s), seed {seed}", start.elapsed().as_secs_f64());
    Ok(())
}

/// Finds the tools that are wanted; second, why some cannot be run.
fn prepare(args: &Args) -> (Vec<Tool>, Vec<String>) {
    let all = [Tool::StressNg, Tool::Dbench, Tool::Fio, Tool::Fsx, Tool::Git, Tool::Kernel];
    let is_wanted = |tool: &Tool| {
        let unless_told = args.only.is_empty() && !(args.quick && *tool == Tool::Kernel);
        unless_told || args.only.contains(tool)
    };
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for tool in all.into_iter().filter(is_wanted) {
        match tool.prepare() {
            Ok(()) => found.push(tool),
            Err(e) => {
                println!("NOT RUN: {}: {e:#}", tool.name());
                missing.push(format!("{}: {e:#}", tool.name()));
            }
        }
    }
    if !server::can_drop_caches() {
        let what = "forgets and memory with dropped caches: only root can drop them".to_string();
        println!("NOT RUN: {what}");
        missing.push(what);
    }
    (found, missing)
}

struct Run<'a> {
    args: &'a Args,
    kit: &'a Kit,
    seed: u64,
    tools: Vec<Tool>,
    queue: Queue,
    start: Instant,
    round: u32,
    report: Report,
}

/// A volume that is not mounted.
struct Volume {
    variant: &'static Variant,
    image: PathBuf,
    /// When it was empty, before any tool.
    before: Measure,
}

/// One life of a server.
struct Life<'a> {
    volume: Volume,
    mount: Mount<'a>,
}

impl<'a> Run<'a> {
    fn new(args: &'a Args, kit: &'a Kit, seed: u64, tools: Vec<Tool>) -> Run<'a> {
        Run {
            args,
            kit,
            seed,
            tools,
            queue: Queue::new(seed),
            start: Instant::now(),
            round: 0,
            report: Report::default(),
        }
    }

    fn all(&mut self) -> Result<()> {
        let kernel = self.tools.contains(&Tool::Kernel);
        self.tools.retain(|t| *t != Tool::Kernel);
        let names: Vec<&str> = self.tools.iter().map(|t| t.name()).collect();
        let length = self.length().as_secs();
        println!("stress: rounds of {length} s with {}; seed {}", names.join(", "), self.seed);
        let lives = if self.args.quick { &QUICK_LIVES[..] } else { &LIVES[..] };
        for n in 0.. {
            if self.tools.is_empty() || !self.has_time() || self.args.quick && n >= lives.len() {
                break;
            }
            let (calm, ending) = lives[n % lives.len()];
            // One further each time around: each volume meets each sort of life.
            let variant = &VARIANTS[(n + n / lives.len()) % VARIANTS.len()];
            let is_whole = self.life(variant, calm, ending);
            kit::go_on()?;
            self.bury(is_whole)?;
        }
        if kernel && kit::go_on().is_ok() {
            let built = self.kernel();
            kit::go_on()?;
            self.bury(built)?;
        }
        Ok(())
    }

    /// Notes what went wrong; a run goes on after that, but not after a hang.
    fn bury(&mut self, result: Result<()>) -> Result<()> {
        let Err(e) = result else { return Ok(()) };
        println!("  FAILED: {e:#}");
        let hangs = format!("{e:#}").contains("HANGS");
        self.report.wrong(self.round, format!("{e:#}"));
        ensure!(!hangs, "something hangs; the rest is not run");
        Ok(())
    }

    fn has_time(&self) -> bool {
        if self.args.rounds.is_some_and(|rounds| self.round >= rounds) {
            return false;
        }
        let limit = self.args.seconds.or((self.args.rounds.is_none() && !self.args.quick).then_some(1800));
        kit::go_on().is_ok() && limit.is_none_or(|s| self.start.elapsed() < Duration::from_secs(s))
    }

    /// How long the tools of a round begin new pieces; a run of some minutes meets every volume.
    fn length(&self) -> Duration {
        let seconds = self.args.seconds.unwrap_or(1800);
        Duration::from_secs(if self.args.quick { 20 } else { (seconds / 12).clamp(15, 90) })
    }

    fn complaints(&self) -> PathBuf {
        self.kit.path("complaints")
    }

    /// Makes the volume, if this is its first life.
    fn image(&self, variant: &Variant) -> Result<PathBuf> {
        let image = self.kit.path(&format!("{}.img", variant.name));
        if !image.exists() {
            let mut words: Vec<&std::ffi::OsStr> = ["mkfs", "-q", "-s", "4G"].map(AsRef::as_ref).to_vec();
            if !variant.mkfs.is_empty() {
                words.extend(["-o", variant.mkfs].map(AsRef::<std::ffi::OsStr>::as_ref));
            }
            words.push(image.as_os_str());
            self.kit.arbor(words)?;
        }
        Ok(image)
    }

    fn life(&mut self, variant: &'static Variant, calm: u32, ending: Ending) -> Result<()> {
        let life = self.begin(variant)?;
        let mut previous = None;
        for _ in 0..calm {
            if !self.has_time() {
                break;
            }
            previous = Some(self.calm_round(&life, previous.as_ref())?);
        }
        // Whoever is killed must have lived through something.
        let ending = if self.has_time() || ending != Ending::Killed { ending } else { Ending::Umount };
        kit::go_on()?;
        self.end(life, ending)
    }

    fn begin(&self, variant: &'static Variant) -> Result<Life<'a>> {
        let image = self.image(variant)?;
        let _ = std::fs::remove_file(self.complaints());
        let life = self.enter(Volume { variant, image, before: Measure::default() })?;
        let (kit, mount) = (self.kit, &life.mount);
        let before = watched("settling before a round", SETTLE_LIMIT, Some(mount.pid()), || {
            server::empty(mount)?;
            // What the server starts when it is first needed, it keeps.
            std::fs::write(mount.dir().join("first"), vec![1; 1 << 20])?;
            kit.arbor(["sync".as_ref(), mount.dir().as_os_str()])?;
            std::fs::read(mount.dir().join("first"))?;
            server::empty(mount)?;
            Measure::settled(kit, mount, None)
        })?;
        println!("mounted {} ({}); {}", variant.name, options(variant), server::describe(mount.pid(), &before));
        Ok(Life { volume: Volume { before, ..life.volume }, ..life })
    }

    fn enter(&self, volume: Volume) -> Result<Life<'a>> {
        let (kit, complaints) = (self.kit, self.complaints());
        let mount = watched("mount", MOUNT_LIMIT, None, || {
            kit.mount_heard(&volume.image, "mnt", volume.variant.mount, &complaints)
        })?;
        Ok(Life { volume, mount })
    }

    /// Unmounts; the server must have had no complaint, and the checker must find nothing.
    fn leave(&mut self, life: Life<'_>) -> Result<Volume> {
        let mount = life.mount;
        let took = watched("umount", UMOUNT_LIMIT, Some(mount.pid()), || mount.umount())?;
        let row = self.report.row(self.round);
        row.umount = row.umount.max(Some(took));
        let said = std::fs::read_to_string(self.complaints()).unwrap_or_default();
        let _ = std::fs::remove_file(self.complaints());
        self.report.wrongs(self.round, said.lines().take(10).map(|l| format!("the server said: {l}")));
        let checked = watched("fsck", CHECK_LIMIT, None, || self.kit.check(&life.volume.image));
        let row = self.report.row(self.round);
        row.fsck = Some(checked.is_ok() && row.fsck != Some(false));
        println!("  fsck: {}", if checked.is_ok() { "clean" } else { "DAMAGED" });
        if checked.is_err() {
            self.put_aside(&life.volume)?;
        }
        checked.map(|_| life.volume)
    }

    /// A round at whose end all tools must have passed and everything must have come back.
    fn calm_round(&mut self, life: &Life<'_>, previous: Option<&Measure>) -> Result<Measure> {
        let mut synced = self.work(life, None)?;
        let pid = life.mount.pid();
        let lost = watched("reading what was synced", SETTLE_LIMIT, Some(pid), || Ok(synced.lost(life.mount.dir())))?;
        let round = self.round;
        self.report.wrongs(round, lost.into_iter().map(|l| format!("without a kill LOST {l}")));
        self.settle(life, previous)
    }

    /// Removes everything and looks at what the server takes then.
    fn settle(&mut self, life: &Life<'_>, previous: Option<&Measure>) -> Result<Measure> {
        let pid = life.mount.pid();
        let after = watched("settling after a round", SETTLE_LIMIT, Some(pid), || {
            server::empty(&life.mount)?;
            Measure::settled(self.kit, &life.mount, Some(&life.volume.before))
        })?;
        println!("  {}, {} inodes in use", server::describe(pid, &after), after.used_inodes);
        let not_back = after.is_back(&life.volume.before);
        let row = self.report.row(self.round);
        // The row shows the server that the tools worked with.
        row.measure = row.measure.or(Some(after));
        row.is_back = Some(not_back.is_empty() && row.is_back != Some(false));
        self.report.wrongs(self.round, not_back);
        self.report.wrongs(self.round, after.memory(life.volume.variant.cache_mib, previous));
        Ok(after)
    }

    /// Lets the tools work on the mount, to the end or until the server is killed.
    fn work(&mut self, life: &Life<'_>, kill_after: Option<Duration>) -> Result<Synced> {
        self.round += 1;
        let (round, volume) = (self.round, life.volume.variant);
        let seed = Random(self.seed ^ u64::from(round)).next();
        let host = self.kit.new_dir(&format!("host-{round}"))?;
        let control = Control::new(life.mount.pid());
        let tally = Mutex::new(Tally::default());
        let site = Site {
            control: &control,
            dir: life.mount.dir(),
            host: &host,
            tally: &tally,
            queue: &self.queue,
            until: Instant::now() + self.length(),
            seed,
            quick: self.args.quick,
        };
        let mut synced = Synced::new(seed);
        let row = self.report.begin(round, volume.name);
        row.kill = if kill_after.is_some() { "during it" } else { "" };
        let kill = kill_after.map_or(String::new(), |d| format!(", kill after {:.1} s", d.as_secs_f64()));
        println!("round {round}: {}{kill}", volume.name);
        let watched = run_lanes(&self.tools, round, life, &site, kill_after, &mut synced);
        let strays = process::end_strays(Some(life.mount.pid()));
        if !strays.is_empty() {
            println!("  ended what tools had left: {}", strays.join(", "));
        }
        let tally = std::mem::take(&mut *lock(&tally));
        println!("  {tally}; {} files synced", synced.count());
        if tally.failed.is_empty() || kit::go_on().is_err() {
            std::fs::remove_dir_all(&host)?;
        } else {
            self.report.has_evidence = true;
        }
        self.report.row(round).count(&tally);
        self.report.total.add(tally);
        kit::go_on()?;
        if let Some(at_kill) = watched? {
            self.report.row(round).measure = Some(at_kill);
            self.report.wrongs(round, at_kill.memory(volume.cache_mib, None));
        }
        Ok(synced)
    }

    fn end(&mut self, life: Life<'a>, ending: Ending) -> Result<()> {
        if ending == Ending::Killed {
            let length = self.length().as_millis() as u64;
            let mut random = Random(self.seed ^ (u64::from(self.round) << 32));
            let after = Duration::from_millis(length / 5 + random.below(length * 4 / 5));
            let synced = self.work(&life, Some(after))?;
            // The tools may have been faster.
            life.mount.kill()?;
            let life = self.recover(life)?;
            return self.look_after(synced, life);
        }
        let synced = self.manifest(&life)?;
        let life = if ending == Ending::KilledIdle {
            self.report.row(self.round).kill = "after it";
            life.mount.kill()?;
            self.recover(life)?
        } else {
            let volume = self.leave(life)?;
            self.enter(volume)?
        };
        self.look_after(synced, life)
    }

    /// Files for the next mount to find.
    fn manifest(&self, life: &Life<'_>) -> Result<Synced> {
        let mut synced = Synced::new(self.seed ^ (u64::from(self.round) << 16));
        let stop = AtomicBool::new(false);
        watched("writing and syncing", SETTLE_LIMIT, Some(life.mount.pid()), || {
            std::thread::scope(|scope| {
                let writing = scope.spawn(|| synced.write(life.mount.dir(), self.round, &stop));
                std::thread::sleep(Duration::from_secs(2));
                stop.store(true, Ordering::Relaxed);
                writing.join().map_err(|_| anyhow::anyhow!("a panic"))?.context("writing and syncing")
            })
        })?;
        Ok(synced)
    }

    /// Mounts the volume of a killed server again.
    fn recover(&mut self, life: Life<'a>) -> Result<Life<'a>> {
        let Life { volume, mount } = life;
        let complaints = self.complaints();
        let mount = watched("recovery", MOUNT_LIMIT, None, || {
            mount.recover_heard(&volume.image, volume.variant.mount, &complaints)
        })?;
        let took = mount.took;
        println!("  mounted again in {:.3} s", took.as_secs_f64());
        self.report.row(self.round).recovery = Some(took);
        if took > RECOVERY_LIMIT {
            self.report.wrong(self.round, format!("recovery took {took:?}"));
        }
        Ok(Life { volume, mount })
    }

    /// What was synced is there after another mount; the volume is sound, can be read as a whole, and
    /// gives back all that is in it.
    fn look_after(&mut self, mut synced: Synced, life: Life<'a>) -> Result<()> {
        let mount = &life.mount;
        let (lost, seen) = watched("reading the volume", SETTLE_LIMIT, Some(mount.pid()), || {
            Ok((synced.lost(mount.dir()), tree::walk(mount.dir())?.len()))
        })?;
        println!("  {seen} names; {} synced files looked at, {} wrong", synced.count(), lost.len());
        let has_lost = !lost.is_empty();
        self.report.wrongs(self.round, lost.into_iter().map(|l| format!("LOST {l}")));
        let volume = self.leave(life)?;
        if has_lost {
            return self.put_aside(&volume);
        }
        let life = self.enter(volume)?;
        self.settle(&life, None)?;
        self.leave(life).map(drop)
    }

    /// Keeps a volume as it is for a look at it; the next life gets a new one.
    fn put_aside(&mut self, volume: &Volume) -> Result<()> {
        let to = self.kit.path(&format!("round-{}-{}.img", self.round, volume.variant.name));
        std::fs::rename(&volume.image, &to)?;
        println!("  {} is left for a look at it", to.display());
        self.report.has_evidence = true;
        Ok(())
    }
}

/// Runs all lanes of all tools, and beside them a thread that writes and syncs. Returns what
/// [`watch`] does.
fn run_lanes(
    tools: &[Tool],
    round: u32,
    life: &Life<'_>,
    site: &Site<'_>,
    kill_after: Option<Duration>,
    synced: &mut Synced,
) -> Result<Option<Measure>> {
    let (watched, written) = std::thread::scope(|scope| {
        let start = |(tool, lane)| scope.spawn(move || site.lane(tool, lane));
        let lanes: Vec<_> = Site::lanes(tools).into_iter().map(start).collect();
        let syncing = scope.spawn(|| synced.write(site.dir, round, site.control.stop_flag()));
        let at_work = || lanes.iter().any(|l| !l.is_finished()) || !syncing.is_finished();
        (watch(round, life, site, kill_after, ROUND_LIMIT, at_work), syncing.join())
    });
    let is_calm = !site.control.was_killed() && kit::go_on().is_ok();
    if let (true, Ok(Err(e))) = (is_calm, written) {
        lock(site.tally).failed.push(format!("writing and syncing: {e}"));
    }
    watched
}

/// Looks at the work of a round until it is over, and kills the server when that is due, or when
/// something hangs. Returns what the server took when it was killed.
fn watch(
    round: u32,
    life: &Life<'_>,
    site: &Site<'_>,
    kill_after: Option<Duration>,
    limit: Duration,
    at_work: impl Fn() -> bool,
) -> Result<Option<Measure>> {
    let (start, control) = (Instant::now(), site.control);
    let (mut told, mut wrong, mut measure) = (start, None, None);
    while at_work() {
        std::thread::sleep(Duration::from_millis(100));
        if Instant::now() >= site.until || kit::go_on().is_err() {
            control.stop();
        }
        if !control.was_killed() && kill_after.is_some_and(|after| start.elapsed() >= after) {
            println!("  killing the server after {:.1} s, at work: {}", start.elapsed().as_secs_f64(), at(control));
            measure = Some(Measure::of_process(life.mount.pid())?);
            control.server_is_killed();
            life.mount.kill()?;
        } else if !control.was_killed() && !process::is_alive(life.mount.pid()) {
            wrong = Some("the server has ended by itself".to_string());
            control.server_is_killed();
        }
        if wrong.is_none() && (!control.hangs().is_empty() || start.elapsed() > limit) {
            println!("{}", control.hangs().join("\n"));
            if control.hangs().is_empty() {
                println!("{}", process::report("the round", rustix::process::getpid(), life.mount.pid()));
            }
            wrong = Some(format!("HANGS; at work: {}", at(control)));
            control.server_is_killed();
            life.mount.kill()?;
        }
        if told.elapsed() > Duration::from_secs(15) {
            told = Instant::now();
            let passes = lock(site.tally).passes();
            println!(
                "  round {round}, {:.0} s: {passes} passed, at work: {}",
                start.elapsed().as_secs_f64(),
                at(control)
            );
        }
    }
    match wrong {
        Some(wrong) => bail!(wrong),
        None => Ok(measure),
    }
}

fn at(control: &Control) -> String {
    control.running().join(", ")
}

fn options(variant: &Variant) -> String {
    let or = |text: &'static str| if text.is_empty() { "defaults" } else { text };
    format!("mkfs: {}; mount: {}", or(variant.mkfs), or(variant.mount))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
        let args = Args::try_parse_from(["stress", "--only", "stress-ng,git", "--rounds", "2"]).unwrap();
        assert_eq!(args.only, [Tool::StressNg, Tool::Git]);
        assert!(Args::try_parse_from(["stress", "--only", "bonnie"]).is_err());
    }

    #[test]
    fn every_life_has_a_round() {
        for (calm, ending) in LIVES.iter().chain(&QUICK_LIVES) {
            assert!(*calm > 0 || *ending == Ending::Killed);
        }
    }
}
