//! Show 6: the POSIX test suite pjdfstest, and fsx, from crates.io.

use super::kit::{self, Kit, in_path};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

/// The versions whose output is understood here.
const TOOLS: [&str; 2] = ["pjdfstest@0.2.2", "fsx@0.3.2"];

/// posix_fallocate of no bytes is an error by POSIX, which fsx takes for one of the file system.
pub(crate) const FSX_SIZES: &str = "[opsize]\nmin = 1\n";
/// Weights of what fsx leaves out unless it is told.
pub(crate) const FSX_MORE: &str = "close_open = 1\ninvalidate = 1\npunch_hole = 10\nposix_fallocate = 10\n\
                                   copy_file_range = 10\nsendfile = 5\nposix_fadvise = 2\n";
pub(crate) const FSX_SYNCS: &str = "fsync = 1\nfdatasync = 1\n";

pub(crate) fn run(kit: &Kit, tools: Option<&Path>, operations: u32, seed: u64) -> Result<()> {
    println!("show 6: pjdfstest, and {operations} operations of fsx; seed {seed}");
    ensure!(rustix::process::geteuid().is_root(), "pjdfstest needs root");
    let tools = find_tools(tools)?;
    let (image, _) = kit.mkfs("suites.img", "2G")?;
    let (second_image, _) = kit.mkfs("second.img", "256M")?;
    let users = two_users()?;
    println!("  as root and as {}:{}, {}:{}", users[0].0, users[0].1, users[1].0, users[1].1);

    let mount = kit.mount(&image, "mnt")?;
    let second = kit.mount(&second_image, "second")?;
    let start = Instant::now();
    // What needs the volume read-only comes by itself: remounting fails while a test before it
    // has left something open.
    let config = write_config(kit, &users, false)?;
    let mut results = pjdfstest(
        kit,
        &tools,
        &config,
        &["-s".as_ref(), second.dir().as_os_str(), "-p".as_ref(), mount.dir().as_os_str()],
    )?;
    second.umount()?;
    let mount = mount.again(&image)?;
    let config = write_config(kit, &users, true)?;
    let again = pjdfstest(kit, &tools, &config, &["-p".as_ref(), mount.dir().as_os_str(), "erofs".as_ref()])?;
    results.extend(again);
    report("pjdfstest", &results, start)?;

    // Most of fsx's time would go into the msync after each write to the mapped file.
    let with_msync = operations / 10;
    let start = Instant::now();
    let kinds = "read, write, mapread, mapwrite, truncate, close_open, invalidate, punch_hole, posix_fallocate, \
                 copy_file_range, sendfile, posix_fadvise";
    let all = format!("nomsyncafterwrite = true\n{FSX_SIZES}[weights]\n{FSX_MORE}");
    fsx_in_pieces(kit, &tools, mount.dir(), "all", &all, operations - with_msync, seed)?;
    println!(
        "  fsx: {} operations run, all passed, in {:.0} s ({kinds})",
        operations - with_msync,
        start.elapsed().as_secs_f64()
    );
    let start = Instant::now();
    let synced = format!("{FSX_SIZES}[weights]\n{FSX_SYNCS}{FSX_MORE}");
    fsx_in_pieces(kit, &tools, mount.dir(), "synced", &synced, with_msync, seed)?;
    println!(
        "  fsx: {with_msync} operations run, all passed, in {:.0} s (the same, fsync, fdatasync, and msync after each \
         mapwrite)",
        start.elapsed().as_secs_f64()
    );
    mount.umount()?;
    kit.check(&image)?;
    println!("  fsck: clean");
    Ok(())
}

/// Runs fsx again and again with seeds that count up: it never unmaps what it maps, and slows down
/// with every operation.
fn fsx_in_pieces(
    kit: &Kit,
    tools: &Tools,
    dir: &Path,
    name: &str,
    config: &str,
    operations: u32,
    seed: u64,
) -> Result<()> {
    const PIECE: u32 = 50_000;
    for n in 0..operations.div_ceil(PIECE) {
        fsx(kit, tools, dir, name, config, PIECE.min(operations - n * PIECE), seed + u64::from(n))?;
    }
    Ok(())
}

/// Where pjdfstest and fsx are.
pub(crate) struct Tools {
    pjdfstest: PathBuf,
    pub(crate) fsx: PathBuf,
}

pub(crate) fn find_tools(asked: Option<&Path>) -> Result<Tools> {
    let inside = |dir: &Path| {
        let tools = Tools { pjdfstest: dir.join("pjdfstest"), fsx: dir.join("fsx") };
        (tools.pjdfstest.is_file() && tools.fsx.is_file()).then_some(tools)
    };
    if let Some(dir) = asked {
        let dir = dir.canonicalize().with_context(|| dir.display().to_string())?;
        return inside(&dir).with_context(|| format!("{} lacks pjdfstest or fsx", dir.display()));
    }
    if let Some((pjdfstest, fsx)) = in_path("pjdfstest").zip(in_path("fsx")) {
        return Ok(Tools { pjdfstest, fsx });
    }
    let cache = match (std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME")) {
        (Some(cache), _) if Path::new(&cache).is_absolute() => PathBuf::from(cache),
        (_, Some(home)) => Path::new(&home).join(".cache"),
        _ => std::env::temp_dir(),
    };
    let root = cache.join("arboretum-tools");
    if let Some(tools) = inside(&root.join("bin")) {
        return Ok(tools);
    }
    println!("  installing {} from crates.io in {}", TOOLS.join(" and "), root.display());
    let status = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["install", "--quiet", "--locked", "--root"])
        .arg(&root)
        .args(TOOLS)
        .status()
        .context("cargo")?;
    ensure!(status.success(), "cargo install failed");
    inside(&root.join("bin")).context("cargo install made no pjdfstest or fsx")
}

/// Two users with their groups: those that pjdfstest's manual names if they are there.
fn two_users() -> Result<Vec<(String, String)>> {
    let fields =
        |text: &str| -> Vec<Vec<String>> { text.lines().map(|l| l.split(':').map(str::to_string).collect()).collect() };
    let groups: BTreeMap<String, String> = fields(&fs::read_to_string("/etc/group")?)
        .into_iter()
        .filter_map(|f| Some((f.get(2)?.clone(), f.first()?.clone())))
        .collect();
    let users: Vec<(String, String)> = fields(&fs::read_to_string("/etc/passwd")?)
        .into_iter()
        .filter(|f| f.get(2).is_some_and(|uid| uid != "0") && f.get(3).is_some_and(|gid| gid != "0"))
        .filter_map(|f| Some((f.first()?.clone(), groups.get(f.get(3)?)?.clone())))
        .collect();
    let rank = |name: &str| ["nobody", "tests", "daemon"].iter().position(|n| *n == name).unwrap_or(usize::MAX);
    let mut users = users;
    users.sort_by_key(|(name, _)| rank(name));
    users.truncate(2);
    ensure!(users.len() == 2, "pjdfstest needs two users besides root");
    Ok(users)
}

fn write_config(kit: &Kit, users: &[(String, String)], allow_remount: bool) -> Result<PathBuf> {
    let entries: Vec<String> = users.iter().map(|(user, group)| format!("[\"{user}\", \"{group}\"]")).collect();
    let text = format!(
        "[features]\nposix_fallocate = {{}}\nrename_ctime = {{}}\nutimensat = {{}}\nutime_now = {{}}\n\
         stat_st_birthtime = {{}}\n[settings]\nnaptime = 0.01\nallow_remount = {allow_remount}\n\
         [dummy_auth]\nentries = [{}]\n",
        entries.join(", ")
    );
    let path = kit.path("pjdfstest.toml");
    fs::write(&path, text)?;
    Ok(path)
}

/// How a test ended, and what it said.
type Results = BTreeMap<String, (String, String)>;

fn pjdfstest(kit: &Kit, tools: &Tools, config: &Path, args: &[&std::ffi::OsStr]) -> Result<Results> {
    let mut command = Command::new(&tools.pjdfstest);
    command.arg("-c").arg(config).args(args).current_dir(kit.path("")).stdin(Stdio::null());
    command.env("PATH", path_with_plain_mount(kit)?).env("NO_COLOR", "1").env_remove("RUST_BACKTRACE");
    let out = command.output().context("pjdfstest")?;
    kit::go_on()?;
    let text = String::from_utf8_lossy(&out.stdout);
    let mut results = Results::new();
    let mut last = None;
    for line in text.lines() {
        if line.starts_with(char::is_whitespace) {
            // Only the first line says why.
            let said = last.as_ref().and_then(|name| results.get_mut(name)).map(|(_, said)| said);
            if let Some(said) = said.filter(|said| said.is_empty()) {
                *said = line.trim().to_string();
            }
        } else if let Some((name, state)) = line.rsplit_once(char::is_whitespace).filter(|(n, _)| n.contains("::")) {
            let name = name.trim().to_string();
            results.insert(name.clone(), (state.to_string(), String::new()));
            last = Some(name);
        }
    }
    let summary = text.lines().rfind(|l| l.starts_with("Summary:"));
    let total = summary.and_then(|l| l.split(", ").find_map(|part| part.strip_suffix(" total")));
    let is_whole = total.and_then(|n| n.parse().ok()) == Some(results.len());
    ensure!(is_whole || !out.status.success(), "the output of pjdfstest is not understood: {}", said(&out));
    ensure!(!results.is_empty(), "pjdfstest: {}", said(&out));
    Ok(results)
}

fn said(out: &Output) -> String {
    let text = [&out.stdout[..], &out.stderr[..]].map(String::from_utf8_lossy).join("\n");
    format!("{}\n{}", out.status, kit::tail(&text, 15))
}

/// A search path whose `mount` asks no helper: for type `fuse.arbor` that of libfuse would want to
/// serve the remount itself.
fn path_with_plain_mount(kit: &Kit) -> Result<std::ffi::OsString> {
    let dir = kit.path("plain-mount");
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !dir.exists() {
        let mount = in_path("mount").context("no mount in PATH")?;
        fs::create_dir(&dir)?;
        let script = dir.join("mount");
        fs::write(&script, format!("#!/bin/sh\nexec '{}' -i \"$@\"\n", mount.display()))?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    }
    Ok(std::env::join_paths(std::iter::once(dir).chain(std::env::split_paths(&path)))?)
}

fn report(suite: &str, results: &Results, start: Instant) -> Result<()> {
    let of = |wanted: &str| -> Vec<(&String, &String)> {
        results.iter().filter(|(_, (state, _))| state == wanted).map(|(name, (_, said))| (name, said)).collect()
    };
    let (passed, skipped) = (of("ok").len(), of("skipped"));
    let failed: Vec<_> = results.iter().filter(|(_, (s, _))| s != "ok" && s != "skipped").collect();
    println!(
        "  {suite}: {} tests run, {passed} passed, {} failed, {} skipped, in {:.0} s",
        results.len() - skipped.len(),
        failed.len(),
        skipped.len(),
        start.elapsed().as_secs_f64()
    );
    for (name, said) in &skipped {
        println!("    skipped {name}: {said}");
    }
    for (name, (state, said)) in &failed {
        println!("    {state} {name}: {said}");
    }
    ensure!(failed.is_empty(), "{} tests of {suite} failed", failed.len());
    ensure!(passed > 0, "no test of {suite} was run");
    Ok(())
}

fn fsx(kit: &Kit, tools: &Tools, dir: &Path, name: &str, config: &str, operations: u32, seed: u64) -> Result<()> {
    let config_path = kit.path(&format!("fsx-{name}.toml"));
    fs::write(&config_path, config)?;
    let out = Command::new(&tools.fsx)
        .arg("-q")
        .arg("-f")
        .arg(config_path)
        .args(["-N", &operations.to_string(), "-S", &seed.to_string(), "-P"])
        .arg(kit.path(""))
        .arg(dir.join(format!("fsx-{name}")))
        .stdin(Stdio::null())
        .output()
        .context("fsx")?;
    kit::go_on()?;
    let finished = String::from_utf8_lossy(&out.stdout).contains("All operations completed");
    ensure!(out.status.success() && finished, "fsx: {}", said(&out));
    Ok(())
}
