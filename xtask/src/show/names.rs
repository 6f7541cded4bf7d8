//! Show 4: a directory of very many names takes no longer for the last than for the first.

use super::kit::{self, Kit, Mount, Random};
use anyhow::{Result, ensure};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use std::ffi::OsString;
use std::fs;
use std::time::Instant;

/// The last tenth may take so many times the first.
const LIMIT: f64 = 2.0;
/// With fewer names a tenth is over too soon to be measured on a machine that does other work too.
const LIMIT_FROM: usize = 100_000;
const LOOKUPS: usize = 10_000;

pub(crate) fn run(kit: &Kit, count: u32, seed: u64) -> Result<()> {
    println!("show 4: {count} names in one directory; a line gives microseconds an operation in each tenth");
    println!("  seed {seed}");
    let count = count as usize;
    let (image, _) = kit.mkfs("names.img", "8G")?;
    let name = |i: usize| format!("file-{i:07}");
    let within_limit = |what: &str, ratio: f64| {
        ensure!(ratio <= LIMIT || count < LIMIT_FROM, "{what}: the last tenth takes {ratio:.2} times the first");
        Ok(())
    };
    if count < LIMIT_FROM {
        println!("  too few names for the limit: last to first is only printed");
    }

    let mount = kit.mount(&image, "mnt")?;
    fs::create_dir(mount.dir().join("many"))?;
    let dir = open(&mount)?;
    let ratio = tenths("create", count, |i| {
        Ok(rustix::fs::mknodat(&dir, name(i), FileType::RegularFile, Mode::from_raw_mode(0o644), 0)?)
    })?;
    within_limit("creating", ratio)?;
    drop(dir);

    // Mounted again, so that the kernel knows no name.
    let mount = mount.again(&image)?;
    let start = Instant::now();
    let mut names = list(&mount)?;
    println!("  list: {} names in {:.1} s", names.len(), start.elapsed().as_secs_f64());
    names.sort_unstable();
    names.dedup();
    ensure!(names.len() == count, "{} different names listed", names.len());
    ensure!(names.iter().enumerate().all(|(i, n)| n.to_str() == Some(&name(i))), "a name is not as created");

    let mount = mount.again(&image)?;
    let dir = open(&mount)?;
    let mut random = Random(seed);
    tenths("random lookup", LOOKUPS, |_| {
        rustix::fs::statat(&dir, name(random.below(count as u64) as usize), AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(())
    })?;
    ensure!(rustix::fs::statat(&dir, "file-none", AtFlags::empty()).is_err(), "a name that is not there is found");

    let names = list(&mount)?;
    let ratio = tenths("remove", count, |i| Ok(rustix::fs::unlinkat(&dir, &names[i], AtFlags::empty())?))?;
    within_limit("removing", ratio)?;
    ensure!(list(&mount)?.is_empty(), "names are left");
    drop(dir);
    fs::remove_dir(mount.dir().join("many"))?;
    mount.umount()?;
    kit.check(&image)?;
    println!("  fsck: clean");
    Ok(())
}

fn open(mount: &Mount<'_>) -> Result<OwnedFd> {
    let path = mount.dir().join("many");
    Ok(rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

fn list(mount: &Mount<'_>) -> Result<Vec<OsString>> {
    fs::read_dir(mount.dir().join("many"))?.map(|entry| Ok(entry?.file_name())).collect()
}

/// Does it for all below `count`, prints the time of each tenth, and returns how many times the
/// first the last takes.
fn tenths(what: &str, count: usize, mut operation: impl FnMut(usize) -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    let mut us = Vec::new();
    for k in 0..10 {
        let range = k * count / 10..(k + 1) * count / 10;
        let n = range.len() as f64;
        let start = Instant::now();
        for i in range {
            if i % 1000 == 0 {
                kit::go_on()?;
            }
            operation(i)?;
        }
        us.push(start.elapsed().as_secs_f64() * 1e6 / n);
    }
    let ratio = us[9] / us[0];
    let list: Vec<String> = us.iter().map(|t| format!("{t:.1}")).collect();
    let total = start.elapsed().as_secs_f64();
    println!("  {what}: {count} in {total:.1} s: {}; last to first {ratio:.2}", list.join(" "));
    Ok(ratio)
}
