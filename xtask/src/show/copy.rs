//! Show 2: what is put on the mount is there after another mount, to the bit and the nanosecond.

use super::kit::Kit;
use super::tree;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

pub(crate) fn run(kit: &Kit, quick: bool, tar: Option<&Path>) -> Result<()> {
    println!("show 2: archives extracted on the mount and on the host, compared after another mount, put under git");
    ensure!(rustix::process::geteuid().is_root(), "only root can extract owners and devices");
    let mut tarballs = Vec::new();
    if !quick || tar.is_some() {
        tarballs.push(tree::tarball(tar)?);
    }
    tarballs.push(tree::make_cases(kit, 3000)?);

    let host = kit.new_dir("host")?;
    let (image, _) = kit.mkfs("copy.img", "16G")?;
    let mount = kit.mount(&image, "mnt")?;
    // The kernel's time for files lags behind a little.
    let begun = SystemTime::now() - Duration::from_secs(1);
    for tarball in &tarballs {
        let name = tarball.file_name().unwrap_or_default().display();
        let start = Instant::now();
        let members = tree::extract(tarball, &host)?;
        let on_host = start.elapsed().as_secs_f64();
        let start = Instant::now();
        tree::extract(tarball, mount.dir())?;
        let here = start.elapsed().as_secs_f64();
        println!("  {name}: {members} members, extracted in {here:.1} s (on the host in {on_host:.1} s)");
    }
    let extracted = begun..=SystemTime::now();

    let mount = mount.again(&image)?;
    println!("  unmounted, mounted again in {:.2} s", mount.took.as_secs_f64());
    let start = Instant::now();
    let seen = tree::compare(&host, mount.dir(), &extracted)?;
    println!(
        "  compared in {:.1} s: {} names, {} files with {} MiB, {} symbolic links: {} differences",
        start.elapsed().as_secs_f64(),
        seen.names,
        seen.files,
        seen.bytes >> 20,
        seen.links,
        seen.differences.len()
    );
    if seen.untimed > 0 {
        println!("    (but for the times of {} directories, which tar leaves with that of extraction)", seen.untimed);
    }
    for difference in seen.differences.iter().take(10) {
        println!("    {difference}");
    }
    ensure!(seen.differences.is_empty(), "the trees differ");

    let start = Instant::now();
    git(mount.dir(), &["init", "-q"])?;
    git(mount.dir(), &["add", "-A", "-f"])?;
    let added = start.elapsed().as_secs_f64();
    let start = Instant::now();
    all_added(mount.dir(), seen.files + seen.links)?;
    println!("  git: init and add in {added:.1} s, status in {:.1} s", start.elapsed().as_secs_f64());
    let mount = mount.again(&image)?;
    let start = Instant::now();
    all_added(mount.dir(), seen.files + seen.links)?;
    git(mount.dir(), &["status"])?;
    println!("  git: after another mount status in {:.1} s, the same", start.elapsed().as_secs_f64());
    mount.umount()?;
    let took = kit.check(&image)?;
    println!("  fsck: clean, in {:.1} s", took.as_secs_f64());
    Ok(())
}

/// Git must list each file as added, and nothing else.
fn all_added(dir: &Path, count: usize) -> Result<()> {
    let status = git(dir, &["status", "--porcelain", "-z", "--untracked-files=all", "--no-renames"])?;
    let lines: Vec<&[u8]> = status.split(|&b| b == 0).filter(|l| !l.is_empty()).collect();
    if let Some(line) = lines.iter().find(|l| !l.starts_with(b"A  ")) {
        anyhow::bail!("git status says {:?}", String::from_utf8_lossy(line));
    }
    ensure!(lines.len() == count, "git status lists {} files of {count}", lines.len());
    Ok(())
}

/// Runs git with nobody's settings.
fn git(dir: &Path, args: &[&str]) -> Result<Vec<u8>> {
    let out = Command::new("git")
        .args(["-c", "safe.directory=*", "-c", "init.defaultBranch=main"])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", PathBuf::from("/dev/null"))
        .stdin(Stdio::null())
        .output()
        .context("git")?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "git {}: {}: {}", args.join(" "), out.status, super::kit::tail(&said, 5));
    Ok(out.stdout)
}
