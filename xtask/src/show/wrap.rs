//! Show 8: a log goes round a volume that is twice as large as what it holds, ten times; with the server alive, and killed at
//! random moments.

use super::crash::{self, Synced};
use super::kit::{self, Kit, MIB, Mount, Random};
use super::tree;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// How often everything is written over.
const ROUNDS: u64 = 10;
const NO_OPTIONS: Option<&str> = None;

/// What is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Half {
    /// The server lives.
    Alive,
    /// It is killed at random moments.
    Killed,
}

pub(crate) fn run(
    kit: &Kit,
    (quick, half): (bool, Option<Half>),
    tar: Option<&Path>,
    rounds: Option<u32>,
    seed: u64,
) -> Result<()> {
    let rounds = rounds.map_or(if quick { 2 } else { ROUNDS }, u64::from);
    println!("show 8: the log goes round {rounds} times, and {rounds} times with the server killed; seed {seed}");
    let host = kit.new_dir("host")?;
    let packed = match tar {
        None if quick => tree::make_cases(kit, 3000)?,
        tar => tree::tarball(tar)?,
    };
    // The kernel's time for files lags behind a little.
    let begun = SystemTime::now() - Duration::from_secs(1);
    tree::extract(&packed, &host)?;
    // Unpacking xz would be most of the work.
    let archive = tree::pack(&host, &kit.path("plain.tar"))?;
    let size = volume_size(kit, &archive)?;
    let whole = Whole { kit, archive: &archive, host: &host, size, begun };
    if half != Some(Half::Killed) {
        whole.alive(rounds)?;
    }
    if half != Some(Half::Alive) {
        whole.killed(rounds, quick, seed)?;
    }
    Ok(())
}

/// Twice what the tree takes on a volume of this kind.
fn volume_size(kit: &Kit, archive: &Path) -> Result<u64> {
    let (image, _) = kit.mkfs("measure.img", "64G")?;
    let mount = kit.mount(&image, "mnt")?;
    let before = used(&mount)?;
    tree::extract(archive, mount.dir())?;
    let taken = used(&mount)? - before;
    mount.umount()?;
    fs::remove_file(image)?;
    println!("  the tree takes {} MiB, the volume has {} MiB", taken / MIB, taken * 2 / MIB);
    Ok(taken * 2)
}

fn used(mount: &Mount<'_>) -> Result<u64> {
    let stat = rustix::fs::statvfs(mount.dir())?;
    Ok((stat.f_blocks - stat.f_bfree) * stat.f_frsize)
}

struct Whole<'a> {
    kit: &'a Kit,
    archive: &'a Path,
    host: &'a Path,
    size: u64,
    begun: SystemTime,
}

impl Whole<'_> {
    fn alive(&self, rounds: u64) -> Result<()> {
        let (image, _) = self.kit.mkfs("alive.img", &self.size.to_string())?;
        let (mut written, mut passes) = (0, 0);
        while written < rounds * self.size {
            let mut mount = self.kit.mount_with(&image, "mnt", NO_OPTIONS)?;
            let start = Instant::now();
            let dir = mount.dir().join("tree");
            fs::create_dir(&dir)?;
            tree::extract(self.archive, &dir)?;
            let took = start.elapsed().as_secs_f64();
            rustix::fs::syncfs(fs::File::open(mount.dir())?)?;
            written += self.written(&mount)?;
            let extracted = self.begun..=SystemTime::now();
            mount = mount.again(&image)?;
            let seen = tree::compare(self.host, &mount.dir().join("tree"), &extracted)?;
            seen.differences.iter().take(10).for_each(|d| println!("    {d}"));
            ensure!(seen.differences.is_empty(), "pass {passes}: the trees differ");
            let start = Instant::now();
            fs::remove_dir_all(mount.dir().join("tree"))?;
            let removed = start.elapsed().as_secs_f64();
            rustix::fs::syncfs(fs::File::open(mount.dir())?)?;
            written += self.written(&mount)?;
            mount.umount()?;
            self.kit.check(&image).with_context(|| format!("pass {passes}"))?;
            passes += 1;
            println!(
                "  pass {passes}: extracted in {took:.1} s, {} files compared, removed in {removed:.1} s; \
                 {:.1} volumes written",
                seen.files,
                written as f64 / self.size as f64
            );
        }
        println!("  {passes} trees, every one as on the host after another mount; fsck clean each time");
        fs::remove_file(image)?;
        Ok(())
    }

    /// Bytes that the server of this mount has written to its image.
    fn written(&self, mount: &Mount<'_>) -> Result<u64> {
        let text = self.kit.output(["stats".as_ref(), "--json".as_ref(), mount.dir().as_os_str()]);
        let all: serde_json::Value = serde_json::from_str(&text.context("arbor stats")?)?;
        find(&all, "write_bytes").context("arbor stats names no write_bytes")
    }

    fn killed(&self, rounds: u64, quick: bool, seed: u64) -> Result<()> {
        let (image, _) = self.kit.mkfs("killed.img", &self.size.to_string())?;
        let (mut random, mut synced) = (Random(seed), Synced::new(seed));
        let (mut written, mut kills) = (0, 0);
        while written < rounds * self.size {
            kit::go_on()?;
            let mount = self.kit.mount(&image, "mnt")?;
            // What the last life wrote is counted by what it left.
            crash::remove_trees(mount.dir())?;
            rustix::fs::syncfs(fs::File::open(mount.dir())?)?;
            let delay = Duration::from_millis(1000 + random.below(if quick { 6_000 } else { 30_000 }));
            let life = Life { mount: &mount, kit: self };
            let (extracted, bytes) = life.end(self.archive, kills, delay, &mut synced)?;
            written += bytes;
            let mount = mount.recover(&image)?;
            let certain = extracted.certain();
            let mut lost: Vec<String> = certain
                .iter()
                .filter(|(pass, name)| !crash::same(&self.host.join(name), &mount.dir().join(pass).join(name)))
                .map(|(pass, name)| format!("{pass}/{}", name.display()))
                .collect();
            lost.extend(synced.lost(mount.dir()));
            lost.iter().take(10).for_each(|line| println!("    LOST {line}"));
            ensure!(lost.is_empty(), "kill {kills}: {} files are lost or not as written", lost.len());
            println!(
                "  kill {kills}: after {:.1} s; {} members old enough and {} fsynced files are there; mounted again in \
                 {:.3} s; {:.1} volumes written",
                delay.as_secs_f64(),
                certain.len(),
                synced.count(),
                mount.took.as_secs_f64(),
                written as f64 / self.size as f64
            );
            mount.umount()?;
            self.kit.check(&image).with_context(|| format!("kill {kills}"))?;
            kills += 1;
        }
        println!("  {kills} kills, nothing lost that was promised; fsck clean each time");
        Ok(())
    }
}

/// A mount that is going to be killed.
struct Life<'a> {
    mount: &'a Mount<'a>,
    kit: &'a Whole<'a>,
}

impl Life<'_> {
    /// What was extracted, and the bytes that were written, as last asked before the end.
    fn end(&self, archive: &Path, round: u32, delay: Duration, synced: &mut Synced) -> Result<(crash::Written, u64)> {
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let mut last = 0;
                while let Ok(bytes) = self.kit.written(self.mount) {
                    last = bytes;
                    std::thread::sleep(Duration::from_millis(200));
                }
                last
            });
            let done = crash::extract_and_kill(self.mount, archive, round, delay, synced);
            Ok((done?, asking.join().expect("no panic")))
        })
    }
}

/// The first number of this name in a tree of values.
fn find(value: &serde_json::Value, name: &str) -> Option<u64> {
    match value {
        serde_json::Value::Object(map) => {
            map.get(name).and_then(serde_json::Value::as_u64).or_else(|| map.values().find_map(|v| find(v, name)))
        }
        serde_json::Value::Array(all) => all.iter().find_map(|v| find(v, name)),
        _ => None,
    }
}
