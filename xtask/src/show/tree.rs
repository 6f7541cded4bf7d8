//! Archives extracted by tar(1), and trees compared.

use super::kit::{self, Kit, Random, Running};
use anyhow::{Context, Result, ensure};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{BufRead, BufReader, Read};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

const DEBIAN_TARBALL: &str = "/usr/src/linux-source-6.1.tar.xz";

/// The tarball asked for, or Debian's.
pub(crate) fn tarball(asked: Option<&Path>) -> Result<PathBuf> {
    let path = asked.unwrap_or(Path::new(DEBIAN_TARBALL));
    ensure!(
        path.exists(),
        "{} is not there; `apt install linux-source-6.1` brings {DEBIAN_TARBALL}, --tar FILE takes any other tarball, \
         and --quick needs none",
        path.display()
    );
    Ok(path.canonicalize()?)
}

/// A tar that extracts; it prints each member's name on its standard output before it starts on it.
pub(crate) fn start_extract(tarball: &Path, dir: &Path, more: &[&str], errors: Stdio) -> Result<Running> {
    let child = Command::new("tar")
        .args(["--extract", "--verbose", "--same-owner", "--preserve-permissions", "--quoting-style=literal"])
        .args(more)
        .arg("--file")
        .arg(tarball)
        .arg("--directory")
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors)
        .spawn()
        .context("tar")?;
    Ok(Running(child))
}

/// Calls `each` with each name that tar prints, until it ends or `each` says no.
pub(crate) fn each_name(tar: &mut Running, mut each: impl FnMut(PathBuf) -> bool) -> Result<()> {
    let mut out = BufReader::new(tar.0.stdout.take().context("no output of tar")?);
    let mut line = Vec::new();
    while out.read_until(b'\n', &mut line)? > 0 {
        let mut name = std::mem::take(&mut line);
        name.pop();
        if !each(PathBuf::from(OsString::from_vec(name))) {
            break;
        }
    }
    Ok(())
}

/// Extracts all of it and returns how many members there are.
pub(crate) fn extract(tarball: &Path, dir: &Path) -> Result<usize> {
    let mut tar = start_extract(tarball, dir, &[], Stdio::piped())?;
    let mut errors = tar.0.stderr.take().context("no errors of tar")?;
    let (names, said) = std::thread::scope(|scope| {
        let errors = scope.spawn(move || {
            let mut said = Vec::new();
            errors.read_to_end(&mut said).map(|_| said)
        });
        let mut names = 0;
        each_name(&mut tar, |_| {
            names += 1;
            true
        })?;
        anyhow::Ok((names, errors.join().expect("no panic")?))
    })?;
    let status = tar.0.wait()?;
    let said = String::from_utf8_lossy(&said);
    ensure!(status.success(), "tar: {status}: {}", kit::tail(&said, 5));
    kit::go_on()?;
    Ok(names)
}

/// All below `root`, by path from there; parents come first.
pub(crate) fn walk(root: &Path) -> Result<BTreeMap<PathBuf, Metadata>> {
    let mut found = BTreeMap::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(dir) = todo.pop() {
        kit::go_on()?;
        let path = root.join(&dir);
        for entry in fs::read_dir(&path).with_context(|| path.display().to_string())? {
            let entry = entry?;
            let meta = entry.metadata()?;
            let name = dir.join(entry.file_name());
            if meta.is_dir() {
                todo.push(name.clone());
            }
            found.insert(name, meta);
        }
    }
    Ok(found)
}

/// What a comparison has seen.
#[derive(Default)]
pub(crate) struct Compared {
    pub(crate) names: usize,
    pub(crate) files: usize,
    pub(crate) links: usize,
    pub(crate) bytes: u64,
    /// Directories whose times were not compared.
    pub(crate) untimed: usize,
    /// A line for each difference.
    pub(crate) differences: Vec<String>,
}

/// Compares the tree `right` on a mount with the tree `left` on the host: names, contents, kinds,
/// modes, owners, sizes, links and times of change.
///
/// The time of a directory follows from the archive only if its own entry is there, and directly
/// before those of its files: otherwise tar leaves it with the time of extraction. Those are the
/// directories changed on the host in the time span `extracted`.
pub(crate) fn compare(left: &Path, right: &Path, extracted: &RangeInclusive<SystemTime>) -> Result<Compared> {
    let (host, ours) = (walk(left)?, walk(right)?);
    let mut seen = Compared { names: host.len(), ..Compared::default() };
    let only = |a: &BTreeMap<PathBuf, Metadata>, b: &BTreeMap<PathBuf, Metadata>, at: &str| -> Vec<String> {
        a.keys().filter(|k| !b.contains_key(*k)).map(|k| format!("{}: only {at}", k.display())).collect()
    };
    seen.differences.extend(only(&host, &ours, "on the host"));
    seen.differences.extend(only(&ours, &host, "on the mount"));
    let mut subdirectories: HashMap<&Path, u64> = HashMap::new();
    for (name, meta) in &ours {
        if let Some(parent) = name.parent().filter(|_| meta.is_dir()) {
            *subdirectories.entry(parent).or_default() += 1;
        }
    }
    // Two names are one file on both sides, or on none.
    let mut inodes = HashMap::new();
    for (name, a) in &host {
        let Some(b) = ours.get(name) else { continue };
        kit::go_on()?;
        let mut check = |what: &str, same: bool| {
            if !same {
                seen.differences.push(format!("{}: {what}", name.display()));
            }
        };
        check("kind or mode", a.mode() == b.mode());
        check("owner", (a.uid(), a.gid()) == (b.uid(), b.gid()));
        if a.is_dir() {
            // On the host it depends on its file system.
            check("link count", b.nlink() == 2 + subdirectories.get(name.as_path()).copied().unwrap_or(0));
        } else {
            check("link count", a.nlink() == b.nlink());
            check("hard links", *inodes.entry(a.ino()).or_insert(b.ino()) == b.ino());
            check("size", a.len() == b.len());
            check("device number", a.rdev() == b.rdev());
        }
        if a.is_dir() && extracted.contains(&a.modified()?) {
            seen.untimed += 1;
        } else {
            check("time of change", (a.mtime(), a.mtime_nsec()) == (b.mtime(), b.mtime_nsec()));
        }
        if a.is_symlink() && b.is_symlink() {
            seen.links += 1;
            check("target", fs::read_link(left.join(name))? == fs::read_link(right.join(name))?);
        } else if a.is_file() && b.is_file() {
            seen.files += 1;
            seen.bytes += a.len();
            check("content", same_content(&left.join(name), &right.join(name))?);
        }
    }
    Ok(seen)
}

/// Whether two files hold the same bytes.
pub(crate) fn same_content(left: &Path, right: &Path) -> Result<bool> {
    let open = |path: &Path| File::open(path).with_context(|| path.display().to_string());
    let (mut a, mut b) = (open(left)?, open(right)?);
    let len = a.metadata()?.len();
    if len != b.metadata()?.len() {
        return Ok(false);
    }
    let space = len.clamp(1, 256 << 10) as usize;
    let (mut x, mut y) = (vec![0; space], vec![0; space]);
    loop {
        let n = a.read(&mut x)?;
        if n == 0 {
            return Ok(b.read(&mut y)? == 0);
        }
        b.read_exact(&mut y[..n])?;
        if x[..n] != y[..n] {
            return Ok(false);
        }
    }
}

/// Makes an archive of about `count` files of all kinds: what source trees seldom hold is in it,
/// from times in nanoseconds and hard links to devices, holes and the longest names.
pub(crate) fn make_cases(kit: &Kit, count: u32) -> Result<PathBuf> {
    let root = kit.new_dir("cases-made")?;
    let top = root.join("cases");
    fs::create_dir(&top)?;
    let mut random = Random(1);
    const SIZES: [u64; 12] = [0, 1, 100, 255, 511, 512, 513, 4095, 4096, 4097, 10_000, 200_000];
    const MODES: [u32; 8] = [0o644, 0o600, 0o755, 0o4755, 0o2755, 0o400, 0, 0o1777];
    for i in 0..count {
        let dir = top.join(format!("dir-{}", i % 37)).join(format!("sub-{}", i % 5));
        fs::create_dir_all(&dir)?;
        let path = dir.join(format!("file-{i}"));
        match i % 40 {
            0 => std::os::unix::fs::symlink(format!("../sub-1/file-{}", i + 1), &path)?,
            1 => std::os::unix::fs::symlink("x/".repeat(1 + random.below(1000) as usize), &path)?,
            2 => fs::hard_link(dir.join(format!("file-{}", i.saturating_sub(185))), &path).or_else(|_| {
                let other = dir.join(format!("other-{i}"));
                fs::write(&other, "one file, two names")?;
                fs::hard_link(other, &path)
            })?,
            3 => rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o640), 0)?,
            4 => fs::create_dir(&path)?,
            5 => {
                let device = rustix::fs::makedev(i % 250 + 1, i);
                rustix::fs::mknodat(CWD, &path, FileType::CharacterDevice, Mode::from_raw_mode(0o600), device)?;
            }
            6 => {
                // A hole, then data, then a hole.
                let file = File::create(&path)?;
                std::os::unix::fs::FileExt::write_all_at(&file, b"between holes", 1 << 20)?;
                file.set_len(2 << 20)?;
            }
            7 => fs::write(dir.join(format!("{i}-ä漢-{}", "n".repeat(240 - format!("{i}").len()))), "a long name")?,
            k => fs::write(&path, random.bytes(SIZES[k as usize % SIZES.len()] as usize))?,
        }
        if i % 500 == 0 {
            fs::create_dir_all(top.join(format!("deep-{i}")).join("d/".repeat(60)))?;
        }
    }
    let mut todo: Vec<PathBuf> = walk(&top)?.into_keys().collect();
    todo.reverse();
    for (i, name) in todo.iter().enumerate() {
        let path = top.join(name);
        let kind = fs::symlink_metadata(&path)?.file_type();
        std::os::unix::fs::lchown(&path, Some(i as u32 % 7 * 1000), Some(i as u32 % 3 * 100))?;
        if !kind.is_symlink() && !kind.is_char_device() {
            let mode = MODES[i % MODES.len()];
            fs::set_permissions(&path, fs::Permissions::from_mode(if kind.is_dir() { mode | 0o700 } else { mode }))?;
        }
        let seconds = random.below(4_000_000_000) as i64 - 1_000_000_000;
        let time = Timespec { tv_sec: seconds, tv_nsec: random.below(1_000_000_000) as i64 };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    let archive = pack(&root, &kit.path("cases.tar"))?;
    fs::remove_dir_all(root)?;
    Ok(archive)
}

/// Packs all that is in `dir` into a new archive without compression.
pub(crate) fn pack(dir: &Path, archive: &Path) -> Result<PathBuf> {
    let names: Vec<OsString> = fs::read_dir(dir)?.map(|e| Ok(e?.file_name())).collect::<Result<_>>()?;
    let status = Command::new("tar")
        .args(["--create", "--format=pax", "--file"].map(OsStr::new))
        .arg(archive)
        .arg("--directory")
        .arg(dir)
        .arg("--")
        .args(names)
        .stdin(Stdio::null())
        .status()
        .context("tar")?;
    ensure!(status.success(), "tar: {status}");
    Ok(archive.to_path_buf())
}
