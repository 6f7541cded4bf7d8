//! Show 3: the server is killed while an archive is extracted; what was promised is there.

use super::kit::{self, Kit, MIB, Mount, Random};
use super::tree;
use anyhow::{Context, Result, ensure};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Changes go to the image by themselves after 5 seconds; one more for the writing.
const OLD: Duration = Duration::from_secs(6);
const RECOVERY_LIMIT_S: f64 = 1.0;
/// Extracted trees are removed when they take more.
const KEEP_AT_MOST: u64 = 4096 * MIB;

pub(crate) fn run(kit: &Kit, quick: bool, tar: Option<&Path>, rounds: u32, seed: u64) -> Result<()> {
    println!("show 3: {rounds} times the server is killed during an extraction; seed {seed}");
    let host = kit.new_dir("host")?;
    let packed = match tar {
        None if quick => tree::make_cases(kit, 3000)?,
        tar => tree::tarball(tar)?,
    };
    tree::extract(&packed, &host)?;
    // Unpacking xz would be most of the work.
    let archive = tree::pack(&host, &kit.path("plain.tar"))?;
    let (image, _) = kit.mkfs("crash.img", "16G")?;
    let mut random = Random(seed);
    let mut synced = Synced::new(seed);
    let mut slowest: f64 = 0.0;
    let (mut extracted, mut old) = (0, 0);
    for round in 0..rounds {
        kit::go_on()?;
        let mount = kit.mount(&image, "mnt")?;
        let stat = rustix::fs::statvfs(mount.dir())?;
        let used = (stat.f_blocks - stat.f_bfree) * stat.f_frsize;
        if used > KEEP_AT_MOST || random.below(4) == 0 {
            remove_trees(mount.dir())?;
        }
        let delay = Duration::from_millis(500 + random.below(if quick { 9_000 } else { 11_500 }));
        let written = extract_and_kill(&mount, &archive, round, delay, &mut synced)?;
        let mount = mount.recover(&image)?;
        let took = mount.took.as_secs_f64();
        slowest = slowest.max(took);
        let certain = written.certain();
        println!(
            "  round {round}: killed after {:.1} s; {} members begun, {} of them older than {} s, {} fsynced; \
             mounted again in {took:.3} s",
            delay.as_secs_f64(),
            written.names.len(),
            certain.len(),
            OLD.as_secs(),
            synced.count(),
        );
        let mut lost = Vec::new();
        for (pass, name) in &certain {
            if !same(&host.join(name), &mount.dir().join(pass).join(name)) {
                lost.push(format!("{pass}/{}: older than {} s", name.display(), OLD.as_secs()));
            }
        }
        lost.extend(synced.lost(mount.dir()));
        for line in lost.iter().take(10) {
            println!("    LOST {line}");
        }
        ensure!(lost.is_empty(), "round {round}: {} files are lost or not as written", lost.len());
        ensure!(took < RECOVERY_LIMIT_S, "round {round}: recovery took {took:.3} s");
        mount.umount()?;
        kit.check(&image).with_context(|| format!("round {round}"))?;
        extracted += written.names.len();
        old += certain.len();
    }
    println!(
        "  {extracted} members begun, {old} old ones and {} fsynced files all there; slowest recovery {slowest:.3} s; \
         fsck clean each time",
        synced.count()
    );
    Ok(())
}

pub(crate) fn remove_trees(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(b"tree-") {
            kit::go_on()?;
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// What tar had begun to write, and when.
pub(crate) struct Written {
    /// Directory of the pass, member, time of its beginning.
    names: Vec<(String, PathBuf, Instant)>,
    killed: Instant,
}

impl Written {
    /// What was complete so long before the end that it must be there: a member is complete
    /// when the next one begins.
    pub(crate) fn certain(&self) -> Vec<(&str, &Path)> {
        let done = |pair: &&[(String, PathBuf, Instant)]| pair[1].2 + OLD < self.killed;
        self.names.windows(2).take_while(done).map(|pair| (pair[0].0.as_str(), pair[0].1.as_path())).collect()
    }
}

/// Extracts the archive, as often as there is time for, beside a thread that fsyncs, and kills the
/// server after `delay`.
pub(crate) fn extract_and_kill(
    mount: &Mount<'_>,
    archive: &Path,
    round: u32,
    delay: Duration,
    synced: &mut Synced,
) -> Result<Written> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let extracting = scope.spawn(|| {
            let mut names = Vec::new();
            for pass in 0.. {
                if stop.load(Ordering::Relaxed) || kit::go_on().is_err() {
                    break;
                }
                let pass = format!("tree-{pass}");
                let dir = mount.dir().join(&pass);
                if fs::create_dir_all(&dir).is_err() {
                    break;
                }
                // Without -P a link to `..` is an empty file until all else is there. Once the server
                // is gone, tar fails with each member up to the last.
                let mut tar = tree::start_extract(archive, &dir, &["-P"], Stdio::null())?;
                tree::each_name(&mut tar, |name| {
                    let is_on = !stop.load(Ordering::Relaxed);
                    if is_on {
                        names.push((pass.clone(), name, Instant::now()));
                    }
                    is_on
                })?;
                if stop.load(Ordering::Relaxed) || !tar.0.wait()?.success() {
                    break;
                }
            }
            anyhow::Ok(names)
        });
        let syncing = scope.spawn(|| synced.write(mount.dir(), round, &stop));
        std::thread::sleep(delay);
        let killed = Instant::now();
        let result = mount.kill();
        stop.store(true, Ordering::Relaxed);
        let names = extracting.join().expect("no panic");
        // It ends with an error when the server is gone.
        let _ = syncing.join().expect("no panic");
        result?;
        let mut names = names?;
        names.retain(|(_, _, begun)| *begun <= killed);
        Ok(Written { names, killed })
    })
}

/// Whether the member `there` is as the one on the host.
pub(crate) fn same(host: &Path, there: &Path) -> bool {
    let (Ok(a), Ok(b)) = (fs::symlink_metadata(host), fs::symlink_metadata(there)) else { return false };
    if a.file_type() != b.file_type() {
        return false;
    }
    match a.file_type() {
        kind if kind.is_symlink() => fs::read_link(host).ok() == fs::read_link(there).ok(),
        kind if kind.is_file() => tree::same_content(host, there).unwrap_or(false),
        _ => true,
    }
}

/// What was made durable by fsync, over all rounds. The contents follow from the seed.
pub(crate) struct Synced {
    seed: u64,
    /// Files of their own: round and number.
    files: Vec<(u32, u64)>,
    /// The log of each round, and how many bytes of it were synced.
    logs: Vec<(u32, usize)>,
    /// A file replaced by rename: the version that has to be there at least, and the last begun.
    versions: (u64, u64),
}

impl Synced {
    pub(crate) fn new(seed: u64) -> Synced {
        Synced { seed, files: Vec::new(), logs: Vec::new(), versions: (0, 0) }
    }

    pub(crate) fn count(&self) -> usize {
        self.files.len()
    }

    fn content(&self, round: u32, number: u64) -> Vec<u8> {
        const SIZES: [usize; 6] = [0, 10, 300, 1000, 5000, 70_000];
        let mut random = Random(self.seed ^ (u64::from(round) << 40) ^ number);
        let len = SIZES[random.below(SIZES.len() as u64) as usize];
        random.bytes(len)
    }

    fn log(&self, round: u32, len: usize) -> Vec<u8> {
        Random(self.seed ^ !u64::from(round)).bytes(len)
    }

    /// Its number, then bytes that follow from it.
    fn version(&self, number: u64) -> Vec<u8> {
        let mut bytes = number.to_le_bytes().to_vec();
        bytes.extend(Random(self.seed ^ number).bytes(3000 + number as usize % 9000));
        bytes
    }

    /// Writes and syncs until it is stopped or that fails, and notes what succeeded. A round may be
    /// written in only once.
    pub(crate) fn write(&mut self, dir: &Path, round: u32, stop: &AtomicBool) -> std::io::Result<()> {
        let log = self.log(round, MIB as usize);
        self.logs.push((round, 0));
        let mut number = 0;
        while !stop.load(Ordering::Relaxed) {
            self.write_one(dir, round, number, &log)?;
            number += 1;
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn write_one(&mut self, dir: &Path, round: u32, number: u64, log: &[u8]) -> std::io::Result<()> {
        let dir = dir.join("synced");
        fs::create_dir_all(&dir)?;
        let create = |name: &str, bytes: &[u8]| {
            let mut file = File::create(dir.join(name))?;
            file.write_all(bytes)?;
            file.sync_all()
        };
        // An fsync makes every operation before it durable, also the rename of the turn before.
        let renamed = self.versions.1;
        create(&format!("{round}-{number}"), &self.content(round, number))?;
        self.files.push((round, number));
        self.versions.0 = renamed;

        let from = self.logs.last().map_or(0, |l| l.1);
        let to = log.len().min(from + 700);
        let file =
            OpenOptions::new().create(true).truncate(false).write(true).open(dir.join(format!("log-{round}")))?;
        file.write_all_at(&log[from..to], from as u64)?;
        file.sync_data()?;
        if let Some(last) = self.logs.last_mut() {
            last.1 = to;
        }

        let next = renamed + 1;
        create("version.new", &self.version(next))?;
        self.versions.1 = next;
        fs::rename(dir.join("version.new"), dir.join("version"))
    }

    /// What is not as it was synced.
    pub(crate) fn lost(&mut self, dir: &Path) -> Vec<String> {
        let dir = dir.join("synced");
        let mut lost = Vec::new();
        for &(round, number) in &self.files {
            if fs::read(dir.join(format!("{round}-{number}"))).ok() != Some(self.content(round, number)) {
                lost.push(format!("synced/{round}-{number}: fsynced"));
            }
        }
        for &(round, len) in &self.logs {
            let found = fs::read(dir.join(format!("log-{round}"))).unwrap_or_default();
            if found.get(..len) != Some(&self.log(round, len)) {
                lost.push(format!("synced/log-{round}: {len} bytes fsynced"));
            }
        }
        let found = fs::read(dir.join("version")).unwrap_or_default();
        let number = found.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        let (least, last) = self.versions;
        let is_whole = number == 0 && least == 0 || (least..=last).contains(&number) && found == self.version(number);
        if !is_whole {
            lost.push(format!("synced/version: {} bytes of version {number}, not {least} to {last}", found.len()));
        }
        // The next round goes on from what survived.
        self.versions = (number, number);
        lost
    }
}
