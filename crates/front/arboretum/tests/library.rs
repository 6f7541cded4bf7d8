//! The library on the counting fake, and on every engine there is.

mod common;

use arboretum::vfs::{Errno, FileFlags, FileType, ManualClock, RenameFlags, Time, acl};
use arboretum::{CopyOptions, FileTimes, OpenOptions, Volume, WalkEntry, errno};
use common::FakeFs;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, UNIX_EPOCH};

/// Runs a test on the fake and on all engines; no reference may be left over.
fn everywhere(test: impl Fn(&Volume)) {
    let fake = FakeFs::new();
    let volume = Volume::options().owner(7, 8).wrap(fake.clone());
    test(&volume);
    assert_eq!(fake.outstanding(), 0, "references left");
    volume.close().unwrap();
    for engine in arboretum::engines() {
        let volume = Volume::options().engine(engine.name()).owner(7, 8).in_memory(64 << 20).unwrap();
        test(&volume);
        volume.close().unwrap();
    }
}

fn names(volume: &Volume, dir: &str) -> Vec<String> {
    let mut names: Vec<_> =
        volume.read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn files_are_written_and_read() {
    everywhere(|v| {
        v.write("/a", "hello").unwrap();
        assert_eq!(v.read("a").unwrap(), b"hello");
        v.write("a", "x").unwrap();
        assert_eq!(v.read("./a").unwrap(), b"x");
        let big: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
        v.write("big", &big).unwrap();
        assert_eq!(v.read("big").unwrap(), big);
        assert_eq!(v.copy("big", "copy").unwrap(), big.len() as u64);
        assert_eq!(v.read("copy").unwrap(), big);
        assert_eq!(v.metadata("a").unwrap().uid(), 7);
        assert_eq!(v.metadata("a").unwrap().permissions(), 0o644);
    });
}

#[test]
fn a_file_reads_writes_seeks_and_appends() {
    everywhere(|v| {
        let mut f = v.create("f").unwrap();
        f.write_all(b"0123456789").unwrap();
        f.seek(SeekFrom::End(-4)).unwrap();
        let mut rest = String::new();
        f.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "6789");
        assert!(f.seek(SeekFrom::Current(-100)).is_err());
        f.write_at(b"ab", 2).unwrap();
        let mut append = OpenOptions::new().append(true).open(v, "f").unwrap();
        append.write_all(b"!").unwrap();
        (&f).rewind().unwrap();
        let mut all = Vec::new();
        (&f).read_to_end(&mut all).unwrap();
        assert_eq!(all, b"01ab456789!");
        assert!(append.read(&mut [0; 4]).is_err());
        f.set_len(3).unwrap();
        f.set_len(5).unwrap();
        assert_eq!(v.read("f").unwrap(), b"01a\0\0");
        f.sync_all().unwrap();
        f.sync_data().unwrap();
        assert_eq!(f.metadata().unwrap().len(), 5);
    });
}

#[test]
fn open_options_mean_what_they_say() {
    everywhere(|v| {
        let kind = |o: &mut OpenOptions, path: &str| o.open(v, path).map(drop).unwrap_err().kind();
        assert_eq!(kind(OpenOptions::new().read(true), "no"), ErrorKind::NotFound);
        assert_eq!(kind(&mut OpenOptions::new(), "no"), ErrorKind::InvalidInput);
        assert_eq!(kind(OpenOptions::new().read(true).create(true), "no"), ErrorKind::InvalidInput);
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(v, "new").unwrap();
        assert_eq!(v.metadata("new").unwrap().permissions(), 0o600);
        assert_eq!(kind(OpenOptions::new().write(true).create_new(true), "new"), ErrorKind::AlreadyExists);
        v.symlink("nowhere", "dangling").unwrap();
        assert_eq!(kind(OpenOptions::new().write(true).create_new(true), "dangling"), ErrorKind::AlreadyExists);
        OpenOptions::new().write(true).create(true).open(v, "dangling").unwrap();
        assert!(v.exists("nowhere"));
        v.create_dir("d").unwrap();
        assert_eq!(kind(OpenOptions::new().write(true), "d"), ErrorKind::IsADirectory);
        assert_eq!(kind(OpenOptions::new().write(true).create(true), "d2/"), ErrorKind::IsADirectory);
        assert_eq!(kind(OpenOptions::new().read(true), "new/"), ErrorKind::NotADirectory);
    });
}

#[test]
fn paths_are_followed_through_links_and_dots() {
    everywhere(|v| {
        v.create_dir_all("/a/b/c").unwrap();
        v.create_dir_all("a/b/c").unwrap();
        v.write("a/b/c/f", "deep").unwrap();
        v.symlink("b/c", "a/rel").unwrap();
        v.symlink("/a/b", "a/b/c/abs").unwrap();
        v.symlink("../..", "a/b/c/up").unwrap();
        for path in ["a/rel/f", "a/b/c/abs/c/f", "/a/b/c/up/b/c/f", "a/../../a/./b//c/f", "a/rel/../c/f"] {
            assert_eq!(v.read(path).unwrap(), b"deep", "{path}");
        }
        assert!(v.metadata("a/rel").unwrap().is_dir());
        assert!(v.symlink_metadata("a/rel").unwrap().is_symlink());
        assert!(v.symlink_metadata("a/rel/").unwrap().is_dir());
        assert_eq!(v.read_link("a/rel").unwrap(), Path::new("b/c"));
        assert_eq!(v.metadata("a/b/c/f/x").unwrap_err().kind(), ErrorKind::NotADirectory);
        assert_eq!(v.metadata("").unwrap_err().kind(), ErrorKind::NotFound);
        assert!(v.metadata("..").unwrap().is_dir());
    });
}

#[test]
fn directories_are_made_behind_links_too() {
    everywhere(|v| {
        v.create_dir("real").unwrap();
        v.symlink("real", "link").unwrap();
        v.symlink("real/later", "ahead").unwrap();
        v.create_dir_all("link/a/../b/./c").unwrap();
        v.create_dir_all("/ahead/d/").unwrap();
        assert_eq!(
            (names(v, "real"), names(v, "real/later")),
            (vec!["a".into(), "b".into(), "later".into()], vec!["d".into()])
        );
        v.write("file", "").unwrap();
        assert_eq!(v.create_dir_all("file/x").unwrap_err().kind(), ErrorKind::NotADirectory);
        // An archive whose links change between its members.
        let mut builder = tar::Builder::new(Vec::new());
        let mut add = |name: &str, link: Option<&str>| {
            let mut header = tar::Header::new_ustar();
            header.set_mode(0o644);
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(0);
            header.set_size(0);
            match link {
                Some(target) => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    builder.append_link(&mut header, name, target).unwrap();
                }
                None => builder.append_data(&mut header, name, &[][..]).unwrap(),
            }
        };
        add("real/one/f", None);
        add("real/two/f", None);
        add("to", Some("real/one"));
        add("to/deep/g", None);
        add("to", Some("real/two"));
        add("to/deep/h", None);
        v.import_tar(&builder.into_inner().unwrap()[..]).unwrap();
        assert!(v.exists("real/one/deep/g") && v.exists("real/two/deep/h") && !v.exists("real/one/deep/h"));
    });
}

#[test]
fn a_loop_of_links_ends() {
    everywhere(|v| {
        v.symlink("y", "x").unwrap();
        v.symlink("x", "y").unwrap();
        assert_eq!(errno(&v.metadata("x").unwrap_err()), Some(Errno::ELOOP));
        v.write("end", "").unwrap();
        v.symlink("end", "l0").unwrap();
        for i in 1..=40 {
            v.symlink(format!("l{}", i - 1), format!("l{i}")).unwrap();
        }
        assert!(v.exists("l39"));
        assert_eq!(errno(&v.metadata("l40").unwrap_err()), Some(Errno::ELOOP));
    });
}

#[test]
fn directories_are_listed_and_walked() {
    everywhere(|v| {
        for i in 0..1000 {
            v.write(format!("f{i:04}"), "").unwrap();
        }
        assert_eq!(names(v, "/").len(), 1000);
        v.create_dir_all("t/b/x").unwrap();
        v.write("t/b/x/1", "12").unwrap();
        v.write("t/a", "").unwrap();
        let walked: Vec<(PathBuf, usize, FileType)> = v
            .walk("t")
            .unwrap()
            .sorted()
            .map(|e| e.map(|e| (e.entry.path(), e.depth, e.entry.file_type())).unwrap())
            .collect();
        let want = [
            ("t", 0, FileType::Dir),
            ("t/a", 1, FileType::File),
            ("t/b", 1, FileType::Dir),
            ("t/b/x", 2, FileType::Dir),
            ("t/b/x/1", 3, FileType::File),
        ];
        assert_eq!(walked, want.map(|(p, d, t)| (p.into(), d, t)));
        assert_eq!(v.walk("t").unwrap().count(), 5);
        let entry = v.read_dir("t/b/x").unwrap().next().unwrap().unwrap();
        assert_eq!((entry.metadata().len(), entry.name()), (2, &b"1"[..]));
        assert_eq!(v.read_dir("t/a").unwrap_err().kind(), ErrorKind::NotADirectory);
    });
}

#[test]
fn names_are_removed_and_moved() {
    everywhere(|v| {
        v.create_dir_all("d/e/f").unwrap();
        for i in 0..3000 {
            v.write(format!("d/e/{i}"), "").unwrap();
        }
        v.write("keep", "k").unwrap();
        v.symlink("../keep", "d/link").unwrap();
        assert_eq!(v.remove_dir("d").unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
        assert_eq!(v.remove_file("d").unwrap_err().kind(), ErrorKind::IsADirectory);
        assert_eq!(v.remove_dir_all("keep").unwrap_err().kind(), ErrorKind::NotADirectory);
        v.remove_dir_all("d").unwrap();
        assert_eq!(names(v, "/"), ["keep"]);
        v.rename("keep", "kept").unwrap();
        v.write("other", "o").unwrap();
        let refused = v.rename_with("kept", "other", RenameFlags::NOREPLACE).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
        v.rename("kept", "other").unwrap();
        assert_eq!(v.read("other").unwrap(), b"k");
        v.hard_link("other", "twin").unwrap();
        assert_eq!(v.metadata("twin").unwrap().nlink(), 2);
        v.remove_file("other").unwrap();
        assert_eq!(v.read("twin").unwrap(), b"k");
        assert!(v.remove_dir("/").is_err());
    });
}

#[test]
fn an_open_file_outlives_its_name_and_then_goes() {
    let fake = FakeFs::new();
    let v = Volume::options().wrap(fake.clone());
    let f = v.create("f").unwrap();
    f.write_at(b"x", 0).unwrap();
    v.remove_file("f").unwrap();
    assert_eq!(f.read_at(&mut [0], 0).unwrap(), 1);
    assert_eq!(fake.inodes(), 2);
    drop(f);
    assert_eq!(fake.inodes(), 1);
}

#[test]
fn attributes_are_set_and_kept() {
    everywhere(|v| {
        v.write("f", "x").unwrap();
        v.set_permissions("f", 0o4751).unwrap();
        v.chown("f", Some(3), None).unwrap();
        let t = UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
        v.set_times("f", FileTimes::new().set_modified(t).set_accessed(UNIX_EPOCH)).unwrap();
        let m = v.metadata("f").unwrap();
        assert_eq!((m.uid(), m.gid()), (3, 8));
        assert_eq!(m.modified().unwrap(), t);
        assert_eq!(m.accessed().unwrap(), UNIX_EPOCH);
        v.set_xattr("f", "user.a", "1").unwrap();
        v.set_xattr("f", "user.b", [0, 10, 255]).unwrap();
        let mut list = v.list_xattr("f").unwrap();
        list.sort();
        assert_eq!(list, [b"user.a", b"user.b"]);
        assert_eq!(v.get_xattr("f", "user.b").unwrap().unwrap(), [0, 10, 255]);
        v.remove_xattr("f", "user.a").unwrap();
        assert_eq!(v.get_xattr("f", "user.a").unwrap(), None);
    });
}

#[test]
fn holes_are_made_and_found() {
    everywhere(|v| {
        let f = v.create("f").unwrap();
        f.write_at(&[1; 65536], 1 << 20).unwrap();
        let data = f.next_data(0).unwrap().unwrap();
        assert!(data <= 1 << 20 && data > 0);
        assert_eq!(f.next_data(2 << 20).unwrap(), None);
        f.punch_hole(1 << 20, 65536).unwrap();
        let mut buf = [9; 10];
        f.read_at(&mut buf, 1 << 20).unwrap();
        assert_eq!(buf, [0; 10]);
        f.allocate(0, 2 << 20, false).unwrap();
        assert_eq!(f.metadata().unwrap().len(), 2 << 20);
        v.copy("f", "g").unwrap();
        assert_eq!(v.metadata("g").unwrap().len(), 2 << 20);
    });
}

#[test]
fn errors_name_operation_and_path() {
    everywhere(|v| {
        let error = v.read("no/such").unwrap_err();
        assert_eq!(error.to_string(), "read no/such: No such file or directory");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(errno(&error), Some(Errno::ENOENT));
        let error = v.copy_in("/no/such/file", "x").unwrap_err();
        assert_eq!(error.to_string(), "copy /no/such/file to x: /no/such/file: No such file or directory");
    });
}

/// A tree on the host with one of everything that can be made without being root.
fn host_tree() -> tempfile::TempDir {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir_all(at("d/empty")).unwrap();
    std::fs::write(at("d/file"), "content").unwrap();
    std::fs::write(at("d/script"), "#!").unwrap();
    std::fs::set_permissions(at("d/script"), std::fs::Permissions::from_mode(0o750)).unwrap();
    std::fs::hard_link(at("d/file"), at("twin")).unwrap();
    symlink("d/file", at("link")).unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    std::fs::write(at("x".repeat(200).as_str()), "long").unwrap();
    let sparse = std::fs::File::create(at("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_at(&sparse, &[7; 4096], 8 << 20).unwrap();
    sparse.set_len(16 << 20).unwrap();
    let old = UNIX_EPOCH + Duration::new(1_000_000_000, 987_654_321);
    std::fs::File::open(at("d/file")).unwrap().set_modified(old).unwrap();
    std::fs::File::open(at("d")).unwrap().set_modified(old).unwrap();
    dir
}

fn check_tree(v: &Volume, root: &str) {
    let at = |name: &str| format!("{root}/{name}");
    assert_eq!(v.read(at("link")).unwrap(), b"content");
    assert_eq!(v.metadata(at("d/script")).unwrap().permissions(), 0o750);
    assert_eq!(v.metadata(at("twin")).unwrap().nlink(), 2);
    assert_eq!(v.metadata(at("twin")).unwrap().ino(), v.metadata(at("d/file")).unwrap().ino());
    assert_eq!(v.read_link(at("dangling")).unwrap(), Path::new("nowhere"));
    assert_eq!(v.read(at(&"x".repeat(200))).unwrap(), b"long");
    let old = UNIX_EPOCH + Duration::new(1_000_000_000, 987_654_321);
    assert_eq!(v.metadata(at("d/file")).unwrap().modified().unwrap(), old);
    assert_eq!(v.metadata(at("d")).unwrap().modified().unwrap(), old);
    let sparse = v.open_file(at("sparse")).unwrap();
    assert_eq!(sparse.metadata().unwrap().len(), 16 << 20);
    assert!(sparse.metadata().unwrap().blocks() < 4096);
    let mut buf = [0; 4096];
    sparse.read_at(&mut buf, 8 << 20).unwrap();
    assert_eq!(buf, [7; 4096]);
}

#[test]
fn trees_go_in_and_out_unchanged() {
    let host = host_tree();
    everywhere(|v| {
        let mut calls = 0;
        let stats = v.copy_in_with(host.path(), "t", &mut CopyOptions::new().progress(|_, _| calls += 1)).unwrap();
        assert_eq!((stats.files, stats.directories, stats.hard_links, stats.symlinks), (4, 3, 1, 2));
        assert!(stats.bytes < 1 << 20 && calls > 5);
        check_tree(v, "t");
        let out = tempfile::tempdir().unwrap();
        v.copy_out("t", out.path().join("back")).unwrap();
        v.copy_in(out.path().join("back"), "again").unwrap();
        check_tree(v, "again");
        // Once more over what is there.
        v.copy_in(host.path(), "t").unwrap();
        check_tree(v, "t");
    });
}

/// GNU tar tells access control lists as text, and takes them so only.
#[test]
fn archives_tell_access_control_lists_as_gnu_tar_does() {
    let key = "system.posix_acl_access";
    let entry =
        |tag: u16, perm: u16, id: u32| [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat();
    let none = u32::MAX;
    let list = [entry(1, 6, none), entry(2, 6, 1234), entry(4, 0, none), entry(16, 6, none), entry(32, 0, none)];
    let list = [2u32.to_le_bytes().to_vec(), list.concat()].concat();
    let v = Volume::in_memory(64 << 20).unwrap();
    v.write("f", "secret").unwrap();
    v.set_permissions("f", 0o660).unwrap();
    v.set_xattr("f", key, &list).unwrap();
    let mut archive = Vec::new();
    v.export_tar(&mut archive).unwrap();
    let place = |what: &str| archive.windows(what.len()).position(|bytes| bytes == what.as_bytes());
    assert!(place("SCHILY.acl.access=user::rw-,user:1234:rw-,group::---,mask::rw-,other::---\n").is_some());
    // As one without what only we write.
    let at = place(&format!("SCHILY.xattr.{key}")).unwrap();
    archive[at..at + 6].copy_from_slice(b"NOBODY");
    let other = Volume::in_memory(64 << 20).unwrap();
    other.import_tar(&archive[..]).unwrap();
    assert_eq!(other.get_xattr("f", key).unwrap().unwrap(), list);
}

#[test]
fn archives_keep_everything() {
    let host = host_tree();
    everywhere(|v| {
        v.copy_in(host.path(), "t").unwrap();
        v.set_xattr("t/d/file", "user.bin", b"a\nb\0=").unwrap();
        v.make_node("t/fifo", 0o010_644, 0).unwrap();
        v.make_node("t/null", 0o020_666, 259 << 8 | 3).unwrap();
        let mut archive = Vec::new();
        v.export_tar(&mut archive).unwrap();
        assert!(archive.len() < 1 << 20, "holes are not stored");
        let other = Volume::options().owner(0, 0).wrap(FakeFs::new());
        other.import_tar(&archive[..]).unwrap();
        check_tree(&other, "t");
        assert_eq!(other.get_xattr("t/d/file", "user.bin").unwrap().unwrap(), b"a\nb\0=");
        assert_eq!(other.symlink_metadata("t/fifo").unwrap().file_type(), FileType::Fifo);
        assert_eq!(other.symlink_metadata("t/null").unwrap().rdev(), 259 << 8 | 3);
        let mut again = Vec::new();
        other.export_tar(&mut again).unwrap();
        assert_eq!(archive, again, "the same content gives the same bytes");
    });
}

/// The tar of the system, if it has one that knows sparse files.
fn tar(args: &[&str], dir: &Path) -> Option<Vec<u8>> {
    let out = std::process::Command::new("tar").args(args).current_dir(dir).output().ok()?;
    out.status.success().then_some(out.stdout)
}

#[test]
fn archives_of_and_for_gnu_tar() {
    let host = host_tree();
    for format in ["gnu", "pax"] {
        let format = format!("--format={format}");
        let Some(archive) = tar(&["-cS", &format, "-f", "-", "."], host.path()) else { return };
        let v = Volume::options().wrap(FakeFs::new());
        v.import_tar(&archive[..]).unwrap();
        assert_eq!(v.read("link").unwrap(), b"content");
        assert_eq!(v.metadata("twin").unwrap().nlink(), 2);
        assert_eq!(v.metadata("sparse").unwrap().len(), 16 << 20);
        assert!(v.metadata("sparse").unwrap().blocks() < 4096);
        let out = tempfile::tempdir().unwrap();
        let file = out.path().join("ours.tar");
        v.export_tar(std::fs::File::create(&file).unwrap()).unwrap();
        tar(&["-xf", "ours.tar"], out.path()).expect("tar reads it");
        let again = Volume::options().wrap(FakeFs::new());
        again.copy_in(out.path(), "t").unwrap();
        assert_eq!(again.metadata("t/sparse").unwrap().len(), 16 << 20);
        assert!(again.read("t/sparse").unwrap() == v.read("sparse").unwrap());
        assert_eq!(again.read(format!("t/{}", "x".repeat(200))).unwrap(), b"long");
    }
}

#[test]
fn an_archive_cannot_leave_the_volume() {
    let v = Volume::options().wrap(FakeFs::new());
    let mut header = tar::Header::new_ustar();
    header.as_ustar_mut().unwrap().name[..8].copy_from_slice(b"a/../../");
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(0);
    header.set_cksum();
    let error = v.import_tar(header.as_bytes().as_slice()).unwrap_err();
    assert!(error.to_string().contains("\"..\""), "{error}");
}

#[test]
fn times_can_be_clamped() {
    let host = host_tree();
    let v = Volume::options().wrap(FakeFs::new());
    let latest = Time { secs: 1_100_000_000, nanos: 0 };
    v.copy_in_with(host.path(), "t", &mut CopyOptions::new().clamp_times(latest)).unwrap();
    let at = |path: &str| v.metadata(path).unwrap().attr().mtime;
    assert_eq!(at("t/d/script"), latest);
    assert_eq!(at("t/d/file").secs, 1_000_000_000);
    assert_eq!(v.metadata("t/d/file").unwrap().attr().atime, at("t/d/file"));
}

#[test]
fn background_work_is_done_in_passing_and_closing_once() {
    let fake = FakeFs::new();
    let clock = Arc::new(ManualClock::new(Time { secs: 100, nanos: 0 }));
    let v = Volume::options().clock(clock.clone()).wrap(fake.clone());
    for _ in 0..10 {
        v.write("f", "x").unwrap();
    }
    assert_eq!(fake.backgrounds.load(Relaxed), 1);
    clock.advance_ms(1500);
    v.write("f", "y").unwrap();
    assert_eq!(fake.backgrounds.load(Relaxed), 2);
    v.sync().unwrap();
    assert_eq!(fake.syncs.load(Relaxed), 1);
    let file = v.open_file("f").unwrap();
    drop(v);
    assert_eq!(fake.unmounts.load(Relaxed), 0);
    drop(file);
    assert_eq!(fake.unmounts.load(Relaxed), 1);
}

#[test]
fn a_read_only_volume_takes_no_change() {
    let v = Volume::options().read_only(true).wrap(FakeFs::new());
    let changes: [fn(&Volume) -> std::io::Result<()>; 6] = [
        |v| v.write("f", "x"),
        |v| v.create_dir("d"),
        |v| v.remove_file("f"),
        |v| v.rename("a", "b"),
        |v| v.set_permissions("/", 0),
        |v| v.copy_in("/", "x").map(drop),
    ];
    for change in changes {
        assert_eq!(change(&v).unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    }
}

#[test]
fn labels_flags_and_acls_are_heeded() {
    // Owner rw, user 1000 rwx, group r, mask rwx, others none; the ids are those of the format.
    let entries = [(1u16, 6u16, u32::MAX), (2, 7, 1000), (4, 4, u32::MAX), (16, 7, u32::MAX), (32, 0, u32::MAX)];
    let entries =
        entries.map(|(tag, perm, id)| [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat());
    let list = [&2u32.to_le_bytes()[..], &entries.concat()].concat();
    for engine in arboretum::engines() {
        let v = Volume::options().engine(engine.name()).in_memory(64 << 20).unwrap();
        v.set_label(b"name").unwrap();
        assert_eq!(v.label().unwrap(), b"name");
        assert!(v.set_label(&[b'x'; 64]).unwrap_err().to_string().contains("at most 63 bytes"));
        v.write("f", "").unwrap();
        let fs = v.file_system();
        let ino = fs.lookup(fs.root(), b"f").unwrap().ino;
        acl::set(&**fs, ino, acl::ACCESS, &list, false).unwrap();
        v.set_permissions("f", 0o640).unwrap();
        assert_eq!(acl::get(&**fs, ino, acl::ACCESS).unwrap().unwrap().mode(), 0o640);
        fs.set_flags(ino, FileFlags::IMMUTABLE).unwrap();
        assert_eq!(v.write("f", "x").unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert_eq!(v.remove_file("f").unwrap_err().kind(), ErrorKind::PermissionDenied);
        let file = v.create("log").unwrap();
        file.write_at(b"one", 0).unwrap();
        let log = fs.lookup(fs.root(), b"log").unwrap().ino;
        for (flag, append) in [(FileFlags::IMMUTABLE, false), (FileFlags::APPEND, true)] {
            fs.set_flags(log, flag).unwrap();
            assert_eq!(file.write_at(b"two", 0).unwrap_err().kind(), ErrorKind::PermissionDenied);
            assert_eq!(file.set_len(0).unwrap_err().kind(), ErrorKind::PermissionDenied);
            assert_eq!(file.write_at(b"two", 3).is_ok(), append);
        }
        drop(file);
        fs.forget(log, 1);
        fs.forget(ino, 1);
        v.close().unwrap();
    }
}

/// A copy of the image, made while the volume is open, is what a crash leaves.
#[test]
fn what_was_synced_is_there_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("image"), dir.path().join("copy"));
    let data: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
    for engine in arboretum::engines() {
        let v = Volume::options().engine(engine.name()).overwrite(true).format(&path, 64 << 20).unwrap();
        let survives = |name: &str| {
            std::fs::copy(&path, &copy).unwrap();
            Volume::open(&copy).unwrap().read(name).is_ok_and(|found| found == data)
        };
        v.sync().unwrap();
        v.write("file", &data).unwrap();
        assert!(!survives("file"), "{}: nothing makes it durable yet", engine.name());
        v.open_file("file").unwrap().sync_all().unwrap();
        assert!(survives("file"), "{}: sync_all", engine.name());
        v.write("data", &data).unwrap();
        v.open_file("data").unwrap().sync_data().unwrap();
        assert!(survives("data"), "{}: sync_data", engine.name());
        v.write("other", &data).unwrap();
        v.sync().unwrap();
        assert!(survives("other"), "{}: sync", engine.name());
        v.write("last", &data).unwrap();
        v.close().unwrap();
        assert!(survives("last"), "{}: close", engine.name());
        assert!(Volume::open_read_only(&path).unwrap().info().unwrap().clean, "{}", engine.name());
    }
}

/// What a mount does for its users, and the library leaves to its caller.
#[test]
fn set_id_bits_and_times_of_access_stay_and_no_list_is_handed_down() {
    let entries = [(1u16, 7u16, u32::MAX), (2, 7, 1000), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 5, u32::MAX)];
    let entries =
        entries.map(|(tag, perm, id)| [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat());
    let list = [&2u32.to_le_bytes()[..], &entries.concat()].concat();
    for engine in arboretum::engines() {
        let v = Volume::options().engine(engine.name()).in_memory(64 << 20).unwrap();
        v.write("f", "x").unwrap();
        v.set_permissions("f", 0o6777).unwrap();
        let old = UNIX_EPOCH + Duration::from_secs(1_000_000);
        v.set_times("f", FileTimes::new().set_accessed(old)).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&v, "f").unwrap();
        assert_eq!(file.write_at(b"yes", 0).unwrap(), 3);
        file.set_len(2).unwrap();
        assert_eq!(file.read_at(&mut [0; 10], 0).unwrap(), 2);
        let found = v.metadata("f").unwrap();
        assert_eq!((found.permissions(), found.accessed().unwrap()), (0o6777, old), "{}", engine.name());
        v.create_dir("d").unwrap();
        let fs = v.file_system();
        let dir = fs.lookup(fs.root(), b"d").unwrap().ino;
        acl::set(&**fs, dir, acl::DEFAULT, &list, false).unwrap();
        v.write("d/f", "").unwrap();
        v.create_dir("d/d").unwrap();
        for (name, what) in [(&b"f"[..], acl::ACCESS), (b"d", acl::ACCESS), (b"d", acl::DEFAULT)] {
            let ino = fs.lookup(dir, name).unwrap().ino;
            assert_eq!(acl::get(&**fs, ino, what).unwrap(), None, "{}", engine.name());
            fs.forget(ino, 1);
        }
        fs.forget(dir, 1);
        drop(file);
        v.close().unwrap();
    }
}

#[test]
fn images_are_formatted_opened_and_refused() {
    let dir = tempfile::tempdir().unwrap();
    for engine in arboretum::engines() {
        let path = dir.path().join(engine.name());
        let options = Volume::options().engine(engine.name()).label("name").uuid([7; 16]);
        let v = options.format(&path, 64 << 20).unwrap();
        v.write("f", "kept").unwrap();
        assert!(Volume::open(&path).is_err(), "one owner at a time");
        v.close().unwrap();
        assert_eq!(Volume::format(&path, 64 << 20).unwrap_err().kind(), ErrorKind::AlreadyExists);
        let v = Volume::open_read_only(&path).unwrap();
        assert_eq!((v.info().unwrap().label.as_str(), v.info().unwrap().uuid), ("name", [7; 16]));
        assert_eq!(v.read("f").unwrap(), b"kept");
        assert_eq!(v.write("f", "").unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
        drop(v);
        // Closed by dropping.
        let v = Volume::open(&path).unwrap();
        v.write("g", "dropped").unwrap();
        drop(v);
        let v = Volume::open(&path).unwrap();
        assert_eq!(v.read("g").unwrap(), b"dropped");
        assert!(v.info().unwrap().clean);
    }
    let empty = dir.path().join("empty");
    std::fs::write(&empty, [0; 4096]).unwrap();
    let error = Volume::open(&empty).unwrap_err();
    assert!(error.to_string().ends_with("empty: not a volume of any known engine"), "{error}");
    assert!(Volume::options().engine("no").in_memory(1 << 20).is_err());
}

#[test]
fn a_volume_lies_inside_a_larger_file() {
    let dir = tempfile::tempdir().unwrap();
    for engine in arboretum::engines() {
        let path = dir.path().join(engine.name());
        let options = Volume::options().engine(engine.name()).offset(1 << 20);
        options.format(&path, 64 << 20).unwrap().write("f", "inside").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 65 << 20);
        assert!(Volume::open(&path).is_err());
        assert_eq!(options.open(&path).unwrap().read("f").unwrap(), b"inside");
    }
}

#[test]
fn what_lies_behind_a_volume_inside_a_file_stays() {
    let dir = tempfile::tempdir().unwrap();
    for engine in arboretum::engines() {
        let path = dir.path().join(engine.name());
        std::fs::write(&path, vec![0xaa; 80 << 20]).unwrap();
        let options = Volume::options().engine(engine.name()).offset(1 << 20).overwrite(true);
        options.format(&path, 64 << 20).unwrap().write("f", "inside").unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 80 << 20);
        assert!(bytes[65 << 20..].iter().all(|b| *b == 0xaa));
        let v = options.open(&path).unwrap();
        assert_eq!(v.read("f").unwrap(), b"inside");
        assert!(v.statfs().unwrap().blocks * u64::from(v.statfs().unwrap().frsize) <= 64 << 20);
    }
}

#[test]
fn a_directory_takes_the_place_of_nothing_else() {
    let host = tempfile::tempdir().unwrap();
    let at = |name: &str| host.path().join(name);
    std::fs::create_dir_all(at("tree/name")).unwrap();
    std::fs::create_dir(at("out")).unwrap();
    std::fs::write(at("out/name"), "host").unwrap();
    everywhere(|v| {
        v.copy_in(host.path().join("tree"), "new").unwrap();
        let archive = {
            let from = Volume::in_memory(64 << 20).unwrap();
            from.create_dir_all("t/name").unwrap();
            let mut archive = Vec::new();
            from.export_tar(&mut archive).unwrap();
            archive
        };
        v.create_dir("t").unwrap();
        v.write("t/name", "kept").unwrap();
        for error in [
            v.copy_in(at("tree"), "t").unwrap_err(),
            v.copy_out("new", at("out")).unwrap_err(),
            v.import_tar(&archive[..]).unwrap_err(),
        ] {
            assert!(error.to_string().ends_with("cannot overwrite non-directory with directory"), "{error}");
            assert_eq!(error.kind(), ErrorKind::NotADirectory);
        }
        assert_eq!(v.read("t/name").unwrap(), b"kept");
        assert_eq!(std::fs::read(at("out/name")).unwrap(), b"host");
        assert_eq!(v.copy_in(at("out/name"), "none/").unwrap_err().kind(), ErrorKind::NotADirectory);
        assert!(!v.exists("none"));
    });
}

#[test]
fn a_copy_is_stopped_and_leaves_no_part_of_a_file() {
    let host = tempfile::tempdir().unwrap();
    std::fs::write(host.path().join("big"), vec![7; 4 << 20]).unwrap();
    everywhere(|v| {
        v.write("f", vec![7; 4 << 20]).unwrap();
        let mut archive = Vec::new();
        v.export_tar(&mut archive).unwrap();
        let stopped = |copy: &dyn Fn(&mut CopyOptions<'_>) -> std::io::Result<arboretum::CopyStats>| {
            let flag = AtomicBool::new(false);
            let at_two = |stats: &arboretum::CopyStats, _: &Path| flag.store(stats.bytes >= 2 << 20, Relaxed);
            let error = copy(&mut CopyOptions::new().stop_when(&flag).progress(at_two)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Interrupted);
            assert!(error.to_string().ends_with(": interrupted"), "{error}");
        };
        stopped(&|options| v.copy_in_with(host.path(), "in", options));
        assert_eq!(names(v, "in"), [""; 0]);
        let out = tempfile::tempdir().unwrap();
        stopped(&|options| v.copy_out_with("f", out.path().join("f"), options));
        assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 0);
        v.remove_file("f").unwrap();
        stopped(&|options| v.import_tar_with(&archive[..], options));
        assert!(!v.exists("f"));
        // What was there stays until all of the other is.
        v.write("f", "old").unwrap();
        v.write("in/big", "old").unwrap();
        stopped(&|options| v.import_tar_with(&archive[..], options));
        stopped(&|options| v.copy_in_with(host.path(), "in", options));
        assert_eq!((v.read("f").unwrap(), v.read("in/big").unwrap()), (b"old".to_vec(), b"old".to_vec()));
        assert_eq!(names(v, "in"), ["big"]);
        assert_eq!(names(v, "/"), ["f", "in"]);
        v.import_tar(&archive[..]).unwrap();
        assert_eq!((v.read("f").unwrap().len(), names(v, "/").len()), (4 << 20, 2));
    });
}

#[test]
fn names_of_one_file_are_copied_over_names_of_one_file() {
    everywhere(|v| {
        v.write("a", "new").unwrap();
        v.hard_link("a", "b").unwrap();
        v.symlink("a", "s").unwrap();
        let mut archive = Vec::new();
        v.export_tar(&mut archive).unwrap();
        for _ in 0..2 {
            v.import_tar(&archive[..]).unwrap();
            assert_eq!(names(v, "/"), ["a", "b", "s"]);
            assert_eq!(v.metadata("a").unwrap().ino(), v.metadata("b").unwrap().ino());
            assert_eq!(v.metadata("a").unwrap().nlink(), 2);
        }
    });
}

/// Number, length and contents of what lies at each path.
type Tree = BTreeMap<Vec<u8>, (u64, u64, Vec<u8>)>;

/// All that a walk finds, and how many times it fails.
fn found(v: &Volume) -> (Tree, usize) {
    let (mut all, mut failures) = (Tree::new(), 0);
    for step in v.walk("/").unwrap() {
        let Ok(WalkEntry { entry, .. }) = step else {
            failures += 1;
            continue;
        };
        let meta = entry.metadata();
        let data = if meta.is_file() { entry.read().unwrap_or_default() } else { Vec::new() };
        let twice = all.insert(entry.path_bytes().to_vec(), (entry.ino().0, meta.len(), data));
        assert!(twice.is_none(), "{entry:?}");
    }
    (all, failures)
}

/// On a volume that nothing changes a walk may go by the numbers of inodes.
#[test]
fn a_walk_finds_the_same_whether_something_can_change_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let contents = |i: usize| (0..i * 7 % 900).map(|b| (i + b) as u8).collect::<Vec<u8>>();
    for engine in arboretum::engines() {
        let path = dir.path().join(engine.name());
        let v = Volume::options().engine(engine.name()).format(&path, 64 << 20).unwrap();
        v.create_dir_all("dir/below").unwrap();
        for i in 0..5000 {
            v.write(format!("dir/file{i}"), contents(i)).unwrap();
        }
        for i in (0..5000).step_by(3) {
            v.remove_file(format!("dir/file{i}")).unwrap();
        }
        v.write("dir/below/last", "x").unwrap();
        v.hard_link("dir/file1", "dir/other").unwrap();
        v.symlink("nowhere", "dir/link").unwrap();
        let changing = found(&v);
        v.close().unwrap();
        let v = Volume::open_read_only(&path).unwrap();
        let still = found(&v);
        assert_eq!((still.1, still.0.len()), (0, 3333 + 6), "{}", engine.name());
        assert!(still == changing, "{}", engine.name());
        let sorted: Vec<Vec<u8>> =
            v.walk("/").unwrap().sorted().map(|step| step.unwrap().entry.path_bytes().to_vec()).collect();
        assert_eq!(sorted.len(), still.0.len(), "{}", engine.name());
        for i in (1..5000).step_by(3) {
            let data = contents(i);
            assert_eq!(still.0[format!("/dir/file{i}").as_bytes()].2, data, "{} {i}", engine.name());
            let (mut buf, file) = ([0; 300], v.open_file(format!("dir/file{i}")).unwrap());
            let n = file.read_at(&mut buf, 100).unwrap();
            assert_eq!(Some(&buf[..n]), data.get(100..data.len().min(400)).or(Some(&[])), "{} {i}", engine.name());
        }
    }
}

/// What is damaged is an error, and hides nothing else, in whichever order a walk goes.
#[test]
fn a_walk_goes_on_after_what_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    for (what, lost) in [("contents of file number 500", 1..100), ("name0777", 1..2)] {
        let v = Volume::options().engine("reiserfs").overwrite(true).format(&path, 64 << 20).unwrap();
        for i in 0..1000 {
            v.write(format!("name{i:04}"), format!("contents of file number {i:03}").repeat(5)).unwrap();
        }
        v.close().unwrap();
        let mut image = std::fs::read(&path).unwrap();
        let places: Vec<usize> =
            image.windows(what.len()).enumerate().filter(|(_, w)| *w == what.as_bytes()).map(|(at, _)| at).collect();
        assert!(!places.is_empty());
        places.iter().for_each(|at| image[*at] ^= 1);
        std::fs::write(&path, &image).unwrap();
        let changing = found(&Volume::open(&path).unwrap());
        let still = found(&Volume::open_read_only(&path).unwrap());
        assert!(lost.contains(&still.1), "{what}: {} failures", still.1);
        assert_eq!(still.1, changing.1, "{what}");
        assert!(still.0.len() > 100 && still.0 == changing.0, "{what}: {} and {}", still.0.len(), changing.0.len());
    }
}
