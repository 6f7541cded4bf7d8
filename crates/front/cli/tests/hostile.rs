//! Images that nobody should trust: the command from outside.
#![cfg(target_os = "linux")]

mod common;

use assert_cmd::Command;
use common::can_mount;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

const BINARY: &str = env!("CARGO_BIN_EXE_arbor");
/// Longest that one command may take: none is to hang.
const LIMIT: Duration = Duration::from_secs(120);

struct Ran {
    code: i32,
    out: String,
    err: String,
}

fn run_as(user: Option<u32>, dir: &Path, args: &[&str]) -> Ran {
    let mut command = std::process::Command::new(BINARY);
    command.args(args).current_dir(dir);
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    let out = Command::from_std(command).timeout(LIMIT).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran { code: out.status.code().unwrap_or(-1), out: text(&out.stdout), err: text(&out.stderr) }
}

fn run(dir: &Path, args: &[&str]) -> Ran {
    run_as(None, dir, args)
}

fn ok(dir: &Path, args: &[&str]) -> String {
    let ran = run(dir, args);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "arbor {args:?}: {}", ran.out);
    ran.out
}

fn mkfs(dir: &Path, engine: &str) {
    ok(dir, &["mkfs", "-q", "-t", engine, "-s", "64M", "x.img"]);
}

fn each_engine(test: impl Fn(&Path, &str)) {
    for engine in arboretum::engines() {
        let dir = tempfile::tempdir().unwrap();
        mkfs(dir.path(), engine.name());
        test(dir.path(), engine.name());
    }
}

fn mode_of(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

/// An image of FFS whose directory `/a` is found again as `/a/b/looploop`.
fn loop_image(dir: &Path) {
    mkfs(dir, "ffs");
    let volume = arboretum::Volume::open(dir.join("x.img")).unwrap();
    volume.create_dir_all("/a/b/looploop").unwrap();
    volume.write("/a/b/y", "seen").unwrap();
    volume.write("/a/z", "seen").unwrap();
    let ino = u32::try_from(volume.metadata("/a").unwrap().ino()).unwrap();
    volume.close().unwrap();
    let mut image = fs::read(dir.join("x.img")).unwrap();
    let ends = image.windows(10).enumerate().filter(|(_, bytes)| bytes == b"\x04\x08looploop").map(|(at, _)| at);
    let ends: Vec<_> = ends.collect();
    let [end] = ends[..] else { panic!("{} directory entries of that name", ends.len()) };
    image[end - 6..end - 2].copy_from_slice(&ino.to_le_bytes());
    fs::write(dir.join("x.img"), image).unwrap();
}

#[test]
fn a_directory_that_lies_in_itself_ends_every_walk() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    loop_image(dir);
    let damage = "a/b/looploop: damaged: this directory (inode ";
    for (args, rest) in [
        (&["ls", "-R", "x.img", "a"][..], "a:\nb\nz\n\na/b:\nlooploop\ny\n\na/b/looploop:\n"),
        (&["ls", "-R", "--json", "x.img"], "\"/a/z\""),
        (&["tree", "x.img"], "├── b\n    │   ├── looploop\n    │   └── y\n    └── z\n\n3 directories, 2 files\n"),
        (&["du", "x.img"], "  /a/b\n"),
    ] {
        let ran = run(dir, args);
        assert_eq!(ran.code, 1, "{args:?}: {}", ran.err);
        assert!(ran.err.contains(damage) && ran.err.lines().count() == 1, "{args:?}: {}", ran.err);
        assert!(ran.out.contains(rest), "{args:?}: {}", ran.out);
    }
    for args in [&["tar", "--export", "x.tar", "x.img"][..], &["get", "x.img", "a", "out"], &["rm", "-r", "x.img", "a"]]
    {
        let ran = run(dir, args);
        assert_eq!(ran.code, 1, "{args:?}: {}", ran.err);
        assert!(ran.err.contains(damage) && ran.err.lines().count() == 1, "{args:?}: {}", ran.err);
    }
    assert!(dir.join("out/z").exists() && dir.join("out/b/y").exists());
    let archive = fs::read(dir.join("x.tar")).unwrap();
    assert!(archive.windows(4).any(|bytes| bytes == b"a/z\0"));
}

#[test]
fn nothing_of_an_image_reaches_a_terminal_as_it_is() {
    const EVIL: &str = "e\x1b]0;evil\x07\x1b[31m\n\u{9b}2Jx";
    const PLAIN: &str = "e_]0_evil__[31m__2Jx";
    each_engine(|dir, engine| {
        for (image, word) in [("x.img", EVIL), ("plain.img", PLAIN)] {
            let _ = fs::remove_file(dir.join(image));
            ok(dir, &["mkfs", "-q", "-t", engine, "-s", "64M", image]);
            let volume = arboretum::Volume::open(dir.join(image)).unwrap();
            volume.set_label(word.as_bytes()).unwrap();
            volume.create_dir_all(format!("{word}/{word}")).unwrap();
            let file = format!("{word}/file{word}");
            volume.write(&file, "").unwrap();
            volume.set_xattr(&file, format!("user.{word}"), "1").unwrap();
            volume.symlink(word, "link").unwrap();
            volume.close().unwrap();
        }
        let commands = |image: &str, word: &str| -> Vec<Vec<String>> {
            let (file, none) = (format!("{word}/file{word}"), format!("{word}/none{word}"));
            let all: [&[&str]; 20] = [
                &["ls", image],
                &["ls", "-l", image],
                &["ls", "-lR", image],
                &["ls", image, word, "/"],
                &["ls", image, &file],
                &["tree", image],
                &["tree", image, word],
                &["stat", image, &file, "link", word],
                &["du", image],
                &["info", image],
                &["info", "--export", image],
                &["label", image],
                &["map", image],
                &["map", "-o", "-", image],
                &["dump", image, "superblock"],
                &["fsck", "-f", "-n", image],
                &["fsck", "-f", "-n", "--path", &file, image],
                &["cat", image, &none],
                &["get", image, &none, "out"],
                &["rm", image, word],
            ];
            all.iter().map(|args| args.iter().map(ToString::to_string).collect()).collect()
        };
        for (evil, plain) in commands("x.img", EVIL).iter().zip(commands("plain.img", PLAIN)) {
            let [evil_ran, plain_ran] = [evil, &plain].map(|args| {
                let args: Vec<&str> = args.iter().map(String::as_str).collect();
                run(dir, &args)
            });
            assert_eq!(evil_ran.code, plain_ran.code, "{engine}: {evil:?}: {}", evil_ran.err);
            for (evil_text, plain_text) in [(&evil_ran.out, &plain_ran.out), (&evil_ran.err, &plain_ran.err)] {
                let obeyed = evil_text.chars().find(|c| c.is_control() && *c != '\n');
                assert_eq!(obeyed, None, "{engine}: {evil:?}: {evil_text:?}");
                assert_eq!(evil_text.lines().count(), plain_text.lines().count(), "{engine}: {evil:?}: {evil_text}");
            }
        }
        assert!(ok(dir, &["ls", "x.img"]).contains("e?]0;evil??[31m??2Jx\n"));
        let json: serde_json::Value = serde_json::from_str(&ok(dir, &["ls", "--json", "x.img"])).unwrap();
        assert!(json.as_array().unwrap().iter().any(|e| e["path"].as_str().unwrap().contains(EVIL)), "{json}");
    });
}

/// A root-owned file with set-id bits, a device node for everybody, and a file of somebody else.
fn privileged(dir: &Path) {
    let options = arboretum::Volume::options().owner(0, 0);
    let volume = options.open(dir.join("x.img")).unwrap();
    volume.create_dir("t").unwrap();
    volume.write("t/su", "#!").unwrap();
    volume.set_permissions("t/su", 0o4755).unwrap();
    volume.make_node("t/disk", 0o060_666, 7 << 8).unwrap();
    volume.write("t/other", "").unwrap();
    volume.chown("t/other", Some(54321), Some(54321)).unwrap();
    volume.close().unwrap();
}

#[test]
fn get_keeps_privileges_only_when_asked_to() {
    if !rustix::process::geteuid().is_root() {
        println!("NOT RUN: what root gets (needs root)");
        return;
    }
    each_engine(|dir, engine| {
        privileged(dir);
        let ran = run(dir, &["get", "x.img", "t", "plain"]);
        let said = "arbor get: left out: owner of 1 file, set-id bits of 1 file, 1 device node \
            (--preserve=all, as root, keeps them)\n";
        assert_eq!((ran.code, ran.err.as_str()), (0, said), "{engine}");
        assert_eq!((mode_of(&dir.join("plain/su")), dir.join("plain/disk").exists()), (0o755, false), "{engine}");
        assert_eq!(fs::metadata(dir.join("plain/other")).unwrap().uid(), 0);
        // Once, whatever the number of sources.
        let ran = run(dir, &["get", "--preserve", "owner", "x.img", "t/su", "t/disk", "."]);
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
        let ran = run(dir, &["get", "--preserve=all", "x.img", "t", "all"]);
        let disk = fs::symlink_metadata(dir.join("all/disk"));
        assert_eq!(ran.code, 0);
        assert!(disk.is_ok_and(|m| m.mode() & 0o7777 == 0o666) || ran.err.contains("skipped all/disk"), "{}", ran.err);
        assert_eq!(mode_of(&dir.join("all/su")), 0o4755);
        assert_eq!(fs::metadata(dir.join("all/other")).unwrap().uid(), 54321);
        // An archive holds modes and owners as data.
        ok(dir, &["tar", "--export", "x.tar", "x.img"]);
        ok(dir, &["mkfs", "-q", "-t", engine, "-s", "64M", "-d", "x.tar", "y.img"]);
        let stat: serde_json::Value = serde_json::from_str(&ok(dir, &["stat", "--json", "y.img", "t/su"])).unwrap();
        assert_eq!(stat[0]["mode"], "4755");
    });
}

#[test]
fn a_user_gets_files_of_its_own() {
    if !rustix::process::geteuid().is_root() {
        println!("NOT RUN: get by another user (needs root)");
        return;
    }
    each_engine(|dir, engine| {
        privileged(dir);
        fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
        std::os::unix::fs::chown(dir.join("x.img"), Some(65534), Some(65534)).unwrap();
        for (args, target) in
            [(&["get", "x.img", "t", "plain"][..], "plain"), (&["get", "--preserve=all", "x.img", "t", "all"], "all")]
        {
            let ran = run_as(Some(65534), dir, args);
            assert_eq!(ran.code, 0, "{engine}: {}", ran.err);
            assert!(ran.err.contains("set-id bits of 1 file"), "{engine}: {}", ran.err);
            let at = |name: &str| dir.join(target).join(name);
            assert_eq!((mode_of(&at("su")), at("disk").exists()), (0o755, false), "{engine}");
            assert_eq!(fs::metadata(at("other")).unwrap().uid(), 65534, "{engine}");
        }
    });
}

#[test]
fn images_and_archives_are_their_owners_alone() {
    each_engine(|dir, engine| {
        ok(dir, &["tar", "--export", "x.tar", "x.img"]);
        for name in ["x.img", "x.tar"] {
            assert_eq!(mode_of(&dir.join(name)), 0o600, "{engine}: {name}");
        }
        if engine == "yfs" {
            ok(dir, &["mkfs", "-q", "-t", "yfs", "-s", "64M", "-o", "log=log.img", "y.img"]);
            assert_eq!(mode_of(&dir.join("log.img")), 0o600);
        }
        if !can_mount() {
            return;
        }
        ok(dir, &["mount", "--new", "64M", "-t", engine, "new.img", "mnt"]);
        let mode = mode_of(&dir.join("new.img"));
        ok(dir, &["umount", "mnt"]);
        assert_eq!(mode, 0o600, "{engine}: mount --new");
    });
}

/// Whoever has the directory where servers say that they are there could make `arbor umount` return before all is
/// written, and read or print what it likes there.
#[test]
fn a_directory_of_records_that_somebody_else_has_is_an_error() {
    const USER: u32 = 61234;
    if !rustix::process::geteuid().is_root() {
        println!("NOT RUN: a mount by another user (needs root)");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    mkfs(dir, "yfs");
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
    std::os::unix::fs::chown(dir.join("x.img"), Some(USER), Some(USER)).unwrap();
    for name in ["mnt", "runtime", "runtime/arbor"] {
        fs::create_dir(dir.join(name)).unwrap();
    }
    for args in [&["mount", "x.img", "mnt"][..], &["umount", "mnt"]] {
        let mut command = std::process::Command::new(BINARY);
        command.args(args).current_dir(dir).uid(USER).gid(USER).env("XDG_RUNTIME_DIR", dir.join("runtime"));
        let out = Command::from_std(command).timeout(LIMIT).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success(), "{args:?}: {said}");
        let why = if args[0] == "mount" { "has to be a directory of user 61234 alone" } else { "" };
        assert!(said.contains(why), "{args:?}: {said}");
    }
    assert!(!fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&format!("{}/mnt", dir.display())));
}

/// Who may read an image can lock it; then the owner is told who that is. Who may not cannot.
#[test]
fn a_stranger_who_holds_an_image_is_named() {
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        eprintln!("NOT RUN: this test needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    mkfs(dir.path(), "yfs");
    let hold = || {
        let mut flock = std::process::Command::new("flock");
        flock.args(["-n", "-x", "x.img", "-c", "echo held; exec sleep 100"]).current_dir(dir.path());
        flock.uid(NOBODY).gid(NOBODY).process_group(0);
        flock.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    };
    // Made by us it is nobody else's.
    assert!(!hold().wait().unwrap().success());
    ok(dir.path(), &["ls", "x.img"]);

    fs::set_permissions(dir.path().join("x.img"), fs::Permissions::from_mode(0o644)).unwrap();
    let mut holder = hold();
    let mut held = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut held).unwrap();
    let ran = run(dir.path(), &["ls", "x.img"]);
    let group = rustix::process::Pid::from_child(&holder);
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
    holder.wait().unwrap();
    assert_eq!(held, "held\n");
    assert_eq!(ran.code, 1, "{}", ran.err);
    let named = ran.err.contains("is in use by process ") && ran.err.contains(" of user 65534");
    assert!(named, "{}", ran.err);
    ok(dir.path(), &["ls", "x.img"]);
}
