//! Volumes and directories of the host whose owner means harm.
#![cfg(target_os = "linux")]

mod common;

use arboretum::vfs::FileType;
use arboretum::{CopyOptions, LeftOut, Volume};
use common::FakeFs;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// When the fake file system makes its files.
const NOW: i64 = 1_700_000_000;

fn volume() -> Volume {
    Volume::options().owner(0, 0).wrap(FakeFs::new())
}

fn mode_of(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn exchange(a: &Path, b: &Path) -> bool {
    renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).is_ok()
}

/// Does `work` again and again, while another thread does `harm` in a loop, until that has been done often.
fn beside(harm: impl Fn() -> bool + Sync, work: impl Fn()) {
    let (done, harms) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                harms.fetch_add(u64::from(harm()), Relaxed);
            }
        });
        let stop = Stop(&done);
        let mut rounds = 0;
        while rounds < 3000 || (harms.load(Relaxed) < 50 && rounds < 20_000) {
            work();
            rounds += 1;
        }
        drop(stop);
    });
    if harms.into_inner() == 0 {
        println!("NOT RUN: the two threads never met");
    }
}

/// Ends the other thread also where an assertion fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A file and a directory that nobody may touch.
struct Victims(tempfile::TempDir);

impl Victims {
    fn new() -> Victims {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("secret"), "secret").unwrap();
        fs::set_permissions(dir.path().join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::create_dir(dir.path().join("home")).unwrap();
        fs::set_permissions(dir.path().join("home"), fs::Permissions::from_mode(0o710)).unwrap();
        Victims(dir)
    }

    fn check(&self) {
        let at = |name: &str| self.0.path().join(name);
        assert_eq!((mode_of(&at("secret")), mode_of(&at("home"))), (0o600, 0o710));
        assert_eq!(fs::read(at("secret")).unwrap(), b"secret");
        assert_eq!(fs::read_dir(at("home")).unwrap().count(), 0, "something came into another directory");
        assert_ne!(fs::metadata(at("secret")).unwrap().mtime(), NOW, "the time of a file in the volume");
        assert!(fs::metadata(at("secret")).unwrap().uid() == fs::metadata(self.0.path()).unwrap().uid());
    }
}

#[test]
fn a_link_in_the_place_of_a_file_that_comes_out_changes_nothing_else() {
    let (v, victims) = (volume(), Victims::new());
    v.write("f", "public").unwrap();
    v.set_permissions("f", 0o666).unwrap();
    v.chown("f", Some(12345), Some(12345)).unwrap();
    let out = tempfile::tempdir().unwrap();
    let link = out.path().join("link");
    symlink(victims.0.path().join("secret"), &link).unwrap();
    let harm = || {
        let names = fs::read_dir(out.path()).unwrap().filter_map(|e| Some(e.ok()?.file_name()));
        let parts = names.filter(|name| name.as_encoded_bytes().ends_with(b".part"));
        parts.filter(|part| exchange(&out.path().join(part), &link)).count() > 0
    };
    let work = || {
        // What has lost its name on the way is an error; nothing else may come of it.
        let _ = v.copy_out_with("f", out.path().join("f"), &mut CopyOptions::new().keep_owner(is_root()));
        if fs::symlink_metadata(&link).is_ok_and(|m| !m.is_symlink()) {
            fs::remove_file(&link).unwrap();
            symlink(victims.0.path().join("secret"), &link).unwrap();
        }
        victims.check();
    };
    beside(harm, work);
}

#[test]
fn a_link_in_the_place_of_a_directory_that_comes_out_leads_nowhere() {
    let (v, victims) = (volume(), Victims::new());
    v.create_dir_all("t/sub/deep").unwrap();
    for name in ["t/sub/a", "t/sub/b", "t/sub/deep/c"] {
        v.write(name, "public").unwrap();
    }
    v.set_permissions("t/sub", 0o777).unwrap();
    v.make_node("t/sub/fifo", 0o010_666, 0).unwrap();
    v.hard_link("t/sub/a", "t/sub/deep/twin").unwrap();
    let out = tempfile::tempdir().unwrap();
    let link = out.path().join("link");
    symlink(victims.0.path().join("home"), &link).unwrap();
    let harm = || exchange(&out.path().join("t/sub"), &link);
    let work = || {
        let _ = v.copy_out("t", out.path().join("t"));
        victims.check();
    };
    work();
    beside(harm, work);
}

#[test]
fn a_link_in_the_place_of_what_goes_in_is_not_read() {
    let (v, victims) = (volume(), Victims::new());
    fs::write(victims.0.path().join("home/secret"), "secret").unwrap();
    let host = tempfile::tempdir().unwrap();
    let at = |name: &str| host.path().join(name);
    fs::create_dir_all(at("tree/dir")).unwrap();
    fs::write(at("tree/file"), "public").unwrap();
    fs::write(at("tree/dir/secret"), "public").unwrap();
    symlink(victims.0.path().join("secret"), at("to-file")).unwrap();
    symlink(victims.0.path().join("home"), at("to-dir")).unwrap();
    let harm = || exchange(&at("tree/file"), &at("to-file")) && exchange(&at("tree/dir"), &at("to-dir"));
    let work = || {
        let _ = v.copy_in(at("tree"), "t");
        for name in ["t/file", "t/dir/secret"] {
            let is_link = |path: &str| v.symlink_metadata(path).is_ok_and(|m| m.is_symlink());
            if !is_link(name) && !is_link("t/dir") && v.exists(name) {
                assert_ne!(v.read(name).unwrap(), b"secret");
            }
        }
        let _ = v.remove_dir_all("t");
    };
    beside(harm, work);
}

/// The same at the worst moments: when a directory has been opened, a file been begun, and something been looked at.
#[test]
fn links_at_the_worst_moments_lead_nowhere() {
    let (v, victims) = (volume(), Victims::new());
    v.create_dir_all("t/sub").unwrap();
    v.write("t/sub/f", vec![7; 3 << 20]).unwrap();
    v.set_permissions("t/sub/f", 0o666).unwrap();
    v.set_permissions("t/sub", 0o777).unwrap();
    let host = tempfile::tempdir().unwrap();
    let at = |name: &str| host.path().join(name);
    symlink(victims.0.path().join("home"), at("to-dir")).unwrap();
    symlink(victims.0.path().join("secret"), at("to-file")).unwrap();
    let mut swapped = 0;
    let mut options = CopyOptions::new().progress(|stats, path| {
        if path.ends_with("f") && stats.bytes == 0 {
            swapped += u32::from(exchange(&at("out/sub"), &at("to-dir")));
        } else if path.ends_with("f") && stats.bytes == 1 << 20 {
            // What was the directory has the name of the link now.
            let part = fs::read_dir(at("to-dir")).unwrap().next().unwrap().unwrap().path();
            swapped += u32::from(exchange(&part, &at("to-file")));
        }
    });
    let _ = v.copy_out_with("t", at("out"), &mut options);
    drop(options);
    assert_eq!(swapped, 2);
    victims.check();

    fs::create_dir_all(at("tree/dir")).unwrap();
    fs::write(at("tree/file"), "public").unwrap();
    fs::write(victims.0.path().join("home/secret"), "secret").unwrap();
    for (name, target) in [("tree/file", "secret"), ("tree/dir", "home")] {
        let _ = fs::remove_file(at("link"));
        symlink(victims.0.path().join(target), at("link")).unwrap();
        let harm = |_: &arboretum::CopyStats, path: &Path| {
            if Path::new(name).ends_with(path.file_name().unwrap()) {
                assert!(exchange(&at(name), &at("link")));
            }
        };
        v.copy_in_with(at("tree"), "in", &mut CopyOptions::new().progress(harm)).unwrap_err();
        assert!(!v.exists("in/dir/secret") && !v.read("in/file").is_ok_and(|text| text == b"secret"), "{name}");
        fs::remove_file(at(name)).unwrap();
        fs::rename(at("link"), at(name)).unwrap();
    }
}

#[test]
fn a_link_to_a_device_is_spared_where_it_was_named_and_replaced_below() {
    let v = volume();
    v.create_dir("t").unwrap();
    v.write("t/f", "new").unwrap();
    let out = tempfile::tempdir().unwrap();
    let at = |name: &str| out.path().join(name);
    fs::create_dir(at("t")).unwrap();
    symlink("/dev/null", at("t/f")).unwrap();
    symlink("/dev/null", at("null")).unwrap();
    let error = v.copy_out("t/f", at("null")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists, "{error}");
    v.copy_out("t", at("t")).unwrap();
    assert!(fs::symlink_metadata(at("t/f")).unwrap().is_file());
    assert_eq!(fs::read(at("t/f")).unwrap(), b"new");
    assert_eq!(fs::read_link(at("null")).unwrap(), Path::new("/dev/null"));
}

#[test]
fn what_comes_out_is_its_owners_alone_until_it_is_whole() {
    let v = volume();
    v.create_dir_all("t/sub").unwrap();
    v.write("t/sub/f", vec![7; 3 << 20]).unwrap();
    v.set_permissions("t/sub/f", 0o666).unwrap();
    v.set_permissions("t/sub", 0o700).unwrap();
    let out = tempfile::tempdir().unwrap();
    let at = |name: &str| out.path().join(name);
    fs::create_dir_all(at("merged/sub")).unwrap();
    for name in ["merged", "merged/sub"] {
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    for target in ["new", "merged"] {
        let mut looked = 0;
        let mut options = CopyOptions::new().progress(|stats, _| {
            if stats.bytes > 0 && stats.files == 0 {
                looked += 1;
                let sub = at(target).join("sub");
                let part = fs::read_dir(&sub).unwrap().next().unwrap().unwrap();
                assert_eq!((mode_of(&sub), mode_of(&part.path())), (0o700, 0o600));
                assert_eq!(mode_of(&at("new")), if target == "new" { 0o700 } else { 0o755 });
            }
        });
        v.copy_out_with("t", at(target), &mut options).unwrap();
        drop(options);
        assert!(looked > 0);
        let modes = ["", "sub", "sub/f"].map(|name| mode_of(&at(target).join(name)));
        assert_eq!(modes, [0o755, 0o700, 0o666]);
    }
    // Who stops it leaves nothing open.
    let stop = AtomicBool::new(false);
    let mut options = CopyOptions::new().stop_when(&stop).progress(|stats, _| stop.store(stats.bytes > 0, Relaxed));
    v.copy_out_with("t", at("stopped"), &mut options).unwrap_err();
    assert_eq!((mode_of(&at("stopped")), mode_of(&at("stopped/sub"))), (0o700, 0o700));
    assert_eq!(fs::read_dir(at("stopped/sub")).unwrap().count(), 0);
}

/// What a volume says of itself that nobody has built: privileges of all sorts.
fn privileged() -> Volume {
    let v = volume();
    v.create_dir("t").unwrap();
    v.write("t/su", "#!").unwrap();
    v.set_permissions("t/su", 0o4755).unwrap();
    v.set_xattr("t/su", "security.capability", b"\x01\0\0\x02\xff\xff\xff\xff\0\0\0\0\0\0\0\0\0\0\0\0").unwrap();
    v.set_xattr("t/su", "user.kept", b"1").unwrap();
    v.write("t/other", "").unwrap();
    v.chown("t/other", Some(54321), Some(54321)).unwrap();
    v.make_node("t/disk", 0o060_666, 7 << 8).unwrap();
    v.make_node("t/fifo", 0o010_622, 0).unwrap();
    v.create_dir("t/shared").unwrap();
    v.set_permissions("t/shared", 0o2775).unwrap();
    v
}

#[test]
fn privileges_come_out_only_when_asked_for() {
    let v = privileged();
    let out = tempfile::tempdir().unwrap();
    let at = |name: &str| out.path().join(name);
    let stats = v.copy_out("t", at("plain")).unwrap();
    let owners = u64::from(is_root());
    assert_eq!(stats.left_out, LeftOut { set_ids: 2, devices: 1, owners, attributes: 1 });
    assert_eq!((mode_of(&at("plain/su")), mode_of(&at("plain/shared"))), (0o755, 0o775));
    assert_eq!(mode_of(&at("plain/fifo")), 0o622);
    assert_eq!(fs::metadata(at("plain/other")).unwrap().uid(), rustix::process::geteuid().as_raw());
    assert!(!at("plain/disk").exists());
    fs::write(at("plain/disk"), "kept").unwrap();
    v.copy_out("t", at("plain")).unwrap();
    assert_eq!(fs::read(at("plain/disk")).unwrap(), b"kept", "what is left out takes no place");
    let xattr = |name: &str, key: &str| rustix::fs::lgetxattr(at(name), key, &mut [0; 64][..]).is_ok();
    assert!(!xattr("plain/su", "security.capability"));
    if !is_root() {
        println!("NOT RUN: what root gets when it asks for it (needs root)");
        return;
    }
    let stats = v.copy_out_with("t", at("bits"), &mut CopyOptions::new().keep_privileges(true)).unwrap();
    assert_eq!((stats.left_out.set_ids, mode_of(&at("bits/su"))), (2, 0o755), "bits without the owner");
    let mut all = CopyOptions::new().keep_owner(true).keep_privileges(true).keep_devices(true);
    let stats = v.copy_out_with("t", at("all"), &mut all).unwrap();
    assert_eq!(stats.left_out, LeftOut::default());
    assert_eq!((mode_of(&at("all/su")), mode_of(&at("all/shared"))), (0o4755, 0o2775));
    assert_eq!(fs::metadata(at("all/other")).unwrap().uid(), 54321);
    let said = |what: &str| stats.skipped.iter().any(|text| text.contains(what));
    assert!(xattr("all/su", "security.capability") || said("security.capability"), "{stats:?}");
    match fs::symlink_metadata(at("all/disk")) {
        Ok(disk) => assert_eq!((disk.mode() & 0o7777, disk.rdev()), (0o666, 7 << 8)),
        Err(_) => assert!(said("disk"), "{stats:?}"),
    }
}

#[test]
fn trees_deeper_than_files_may_be_open_go_out_and_in() {
    let v = volume();
    let deep = vec!["d"; 1500].join("/");
    v.create_dir_all(&deep).unwrap();
    v.write(format!("{deep}/f"), "deep").unwrap();
    v.hard_link(format!("{deep}/f"), "d/twin").unwrap();
    let out = tempfile::tempdir().unwrap();
    v.copy_out("d", out.path().join("d")).unwrap();
    v.copy_in(out.path().join("d"), "again").unwrap();
    let copied = deep.replacen('d', "again", 1);
    assert_eq!(v.read(format!("{copied}/f")).unwrap(), b"deep");
    assert_eq!(v.metadata("again/twin").unwrap().nlink(), 2);
}

#[test]
fn a_directory_that_lies_in_itself_is_refused_by_every_walk() {
    let fake = FakeFs::new();
    let v = Volume::options().wrap(fake.clone());
    v.create_dir_all("a/b").unwrap();
    v.write("a/z", "seen").unwrap();
    fake.enter_directory("a/b", "loop", "a");
    let steps: Vec<_> = v.walk("/").unwrap().sorted().collect();
    let (seen, errors): (Vec<_>, Vec<_>) = steps.into_iter().partition(Result::is_ok);
    let seen: Vec<_> = seen.into_iter().map(|s| s.unwrap().entry.path()).collect();
    assert_eq!(seen, ["/", "/a", "/a/b", "/a/b/loop", "/a/z"].map(std::path::PathBuf::from));
    let [Err(error)] = &errors[..] else { panic!("{errors:?}") };
    assert_eq!(arboretum::errno(error), Some(arboretum::vfs::Errno::EUCLEAN));
    assert!(error.to_string().contains("/a/b/loop: damaged"), "{error}");
    assert_eq!(v.walk("/").unwrap().filter(Result::is_err).count(), 1);
    let out = tempfile::tempdir().unwrap();
    for error in [
        v.copy_out("/", out.path().join("out")).unwrap_err(),
        v.export_tar(&mut Vec::new()).unwrap_err(),
        v.remove_dir_all("a").unwrap_err(),
    ] {
        assert_eq!(arboretum::errno(&error), Some(arboretum::vfs::Errno::EUCLEAN), "{error}");
        assert!(error.to_string().contains("a/b/loop: damaged: this directory"), "{error}");
    }
    drop(v);
    assert_eq!(fake.outstanding(), 0);
}

#[test]
fn two_names_of_a_directory_do_not_multiply() {
    let fake = FakeFs::counting();
    let v = Volume::options().wrap(fake.clone());
    let mut path = String::new();
    for _ in 0..40 {
        path += "/d";
        v.create_dir(&path).unwrap();
    }
    for depth in 1..40 {
        fake.enter_directory(&path[..2 * depth], "e", &path[..2 * depth + 2]);
    }
    let (seen, errors): (Vec<_>, Vec<_>) = v.walk("/").unwrap().partition(Result::is_ok);
    assert_eq!((seen.len(), errors.len()), (1 + 40 + 39, 39));
}

/// An archive of empty files, each by its whole name.
fn archive(names: impl IntoIterator<Item = String>) -> Vec<u8> {
    let mut archive = Vec::new();
    for name in names {
        let record = format!(" path={name}\n");
        let mut len = record.len();
        while record.len() + len.to_string().len() != len {
            len = record.len() + len.to_string().len();
        }
        member(&mut archive, b'x', format!("{len}{record}").as_bytes());
        member(&mut archive, b'0', b"");
    }
    archive
}

fn member(archive: &mut Vec<u8>, kind: u8, data: &[u8]) {
    named(archive, ("member", kind, ""), data);
}

/// One member, its name and its kind told by itself.
fn named(archive: &mut Vec<u8>, (name, kind, link): (&str, u8, &str), data: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_entry_type(tar::EntryType::new(kind));
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(data.len() as u64);
    header.set_cksum();
    archive.extend_from_slice(header.as_bytes());
    archive.extend_from_slice(data);
    archive.resize(archive.len().next_multiple_of(512), 0);
}

/// Lookups that it takes to unpack an archive.
fn lookups(archive: &[u8]) -> u64 {
    let fake = FakeFs::new();
    let v = Volume::options().wrap(fake.clone());
    let before = fake.lookups.load(Relaxed);
    v.import_tar(archive).unwrap();
    drop(v);
    assert_eq!(fake.outstanding(), 0);
    fake.lookups.load(Relaxed) - before
}

#[test]
fn unpacking_costs_what_the_names_are_long() {
    let deep = |n: usize| "d/".repeat(n) + "f";
    let one = [400, 1600].map(|n| lookups(&archive([deep(n)])));
    assert!(one[1] < 5 * one[0], "one name: {one:?}");
    let many = [250, 1000].map(|n| lookups(&archive((0..n).map(deep))));
    assert!(many[1] < 5 * many[0], "names, each deeper than the one before: {many:?}");
}

#[test]
fn archives_have_limits() {
    let v = volume();
    let refused = |archive: &[u8]| v.import_tar(archive).unwrap_err().to_string();
    let error = refused(&archive(["d/".repeat(10_000) + "f"]));
    assert!(error.contains("more than 2048 directories"), "{error}");
    assert!(error.len() < 300, "{error}");
    let mut global = Vec::new();
    let records: String = (0..200_000).map(|n| format!("12 {n:06}=x\n")).collect();
    member(&mut global, b'g', records.as_bytes());
    let error = refused(&global);
    assert!(error.contains("global extended headers are longer than 64 KiB"), "{error}");
    // In pieces too.
    let mut pieces = Vec::new();
    for piece in records.as_bytes().chunks(12 * 1000).take(10) {
        member(&mut pieces, b'g', piece);
    }
    assert!(refused(&pieces).contains("global extended headers"));
    // The same key again replaces what it said.
    let mut same = Vec::new();
    for _ in 0..10_000 {
        member(&mut same, b'g', b"12 000000=x\n");
    }
    member(&mut same, b'0', b"");
    v.import_tar(&same[..]).unwrap();
    assert_eq!(v.symlink_metadata("member").unwrap().file_type(), FileType::File);
}

#[test]
fn members_that_a_volume_does_not_take_end_an_archive_only_if_told() {
    let mut bytes = archive(["x".repeat(300)]);
    for (name, kind, link) in [
        ("../up", b'0', ""),
        ("lost", b'1', "nowhere"),
        ("d/f", b'0', ""),
        ("d", b'0', ""),
        ("letter", b'Z', ""),
        ("dump", b'D', ""),
        ("title", b'V', ""),
        ("last", b'0', ""),
    ] {
        named(&mut bytes, (name, kind, link), if kind == b'1' { b"" } else { name.as_bytes() });
    }
    let v = volume();
    let error = v.import_tar(&bytes[..]).unwrap_err().to_string();
    assert!(error.contains("unpack xxx") && error.ends_with("File name too long"), "{error}");

    let mut told = Vec::new();
    let mut options = CopyOptions::new().past_unread(|e| told.push(e.to_string()));
    let stats = v.import_tar_with(&bytes[..], &mut options).unwrap();
    drop(options);
    assert_eq!((stats.unread, told.len()), (4, 4), "{told:?}");
    for (text, words) in told.iter().zip(["unpack xxx", "unpack ../up: ", "unpack lost: ", "unpack d: "]) {
        assert!(text.contains(words), "{text}");
    }
    for (text, words) in stats.skipped.iter().zip(["letter: ", "dump: "]) {
        assert!(text.starts_with(words), "{text}");
    }
    assert_eq!((stats.skipped.len(), v.read("letter").unwrap()), (2, b"letter".to_vec()));
    assert!(!v.exists("dump") && !v.exists("title") && !v.exists("up") && !v.exists("lost"));
    assert_eq!((v.read("d/f").unwrap(), v.read("last").unwrap()), (b"d/f".to_vec(), b"last".to_vec()));

    // What the archive itself lacks still ends it.
    let mut options = CopyOptions::new().past_unread(|_| ());
    let error = v.import_tar_with(&bytes[..bytes.len() - 300], &mut options).unwrap_err().to_string();
    assert!(error.contains("truncated"), "{error}");
}

/// What becomes of directories while an archive is unpacked ends nothing: the others get their attributes.
#[test]
fn directories_that_are_gone_in_the_end_are_told() {
    let mut bytes = Vec::new();
    for (name, kind, link) in [
        ("e", b'5', ""),
        ("e2", b'5', ""),
        ("s", b'2', "e"),
        ("s/sub", b'5', ""),
        ("s", b'2', "nowhere"),
        ("twin", b'1', "e2"),
        ("last", b'0', ""),
    ] {
        named(&mut bytes, (name, kind, link), b"");
    }
    let v = Volume::in_memory(64 << 20).unwrap();
    let mut told = Vec::new();
    let mut options = CopyOptions::new().past_unread(|e| told.push(e.to_string()));
    let stats = v.import_tar_with(&bytes[..], &mut options).unwrap();
    drop(options);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("unpack twin: ") && told[1].starts_with("unpack s/sub: "), "{told:?}");
    assert_eq!((stats.files, stats.directories, stats.hard_links), (1, 3, 0));
    for dir in ["e", "e2"] {
        assert_eq!(v.metadata(dir).unwrap().permissions(), 0o644, "{dir}");
    }
    assert!(!v.exists("nowhere") && v.exists("last") && v.exists("e/sub"));
}

/// Nothing is left of it where the process ends.
#[test]
fn what_takes_the_place_of_another_has_no_name_until_it_is_whole() {
    let v = Volume::in_memory(64 << 20).unwrap();
    let host = tempfile::tempdir().unwrap();
    fs::write(host.path().join("f"), vec![7; 3 << 20]).unwrap();
    let mut bytes = Vec::new();
    named(&mut bytes, ("f", b'0', ""), &[9; 3 << 20]);
    v.write("f", "old").unwrap();
    let mut pieces = 0;
    let mut watch = |stats: &arboretum::CopyStats, _: &Path| {
        let names: Vec<_> = v.read_dir("/").unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["f"]);
        pieces += u32::from(stats.bytes > 0 && stats.bytes < 3 << 20);
    };
    v.copy_in_with(host.path().join("f"), "f", &mut CopyOptions::new().progress(&mut watch)).unwrap();
    assert_eq!(v.read("f").unwrap(), vec![7; 3 << 20]);
    v.import_tar_with(&bytes[..], &mut CopyOptions::new().progress(&mut watch)).unwrap();
    assert_eq!(v.read("f").unwrap(), vec![9; 3 << 20]);
    assert!(pieces >= 4, "{pieces}");
    assert_eq!(v.metadata("f").unwrap().nlink(), 1);
}
