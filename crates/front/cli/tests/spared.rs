//! What commands never overwrite, and that one thing which fails does not end the rest.

mod common;

use common::{each_engine, ok, run_in, tree};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

const OWN: &str = "the volume itself is in this file";

/// Runs a command that must fail, and gives what it says.
fn fails(dir: &Path, args: &[&str]) -> String {
    let (code, _, err) = run_in(dir, args);
    assert_eq!(code, 1, "arbor {args:?}: {err}");
    err
}

#[test]
fn what_the_volume_is_in_is_overwritten_by_nothing() {
    each_engine(|dir, _| {
        fs::write(dir.join("f"), "kept").unwrap();
        fs::hard_link(dir.join("x.img"), dir.join("twin")).unwrap();
        ok(dir, &["put", "x.img", "f", "/"]);
        for name in ["x.img", "twin", "./twin"] {
            for args in [
                &["get", "x.img", "f", name][..],
                &["tar", "--export", name, "x.img"],
                &["tar", "--import", name, "x.img"],
                &["map", "-o", name, "x.img"],
                &["put", "x.img", name, "/"],
            ] {
                // A picture's name has to end in .svg; without an ending it may be anything.
                let err = fails(dir, args);
                assert!(err.contains(OWN) || (args[0] == "map" && err.contains("no picture")), "{args:?}: {err}");
            }
        }
        let (code, _, err) = run_in(dir, &["put", "x.img", ".", "/"]);
        assert!(code == 0 && err.contains(&format!("skipped ./x.img: {OWN}; not copied")), "{err}");
        assert_eq!(ok(dir, &["ls", "x.img"]), "f\n");
        assert_eq!(ok(dir, &["cat", "x.img", "f"]), "kept");
        ok(dir, &["fsck", "-n", "-f", "x.img"]);
    });
}

#[test]
fn further_devices_and_new_images_are_spared_too() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("f"), "kept").unwrap();
    let (code, _, err) = run_in(dir, &["mkfs", "-q", "-s", "64M", "-d", ".", "self.img"]);
    assert!(code == 0 && err.contains(OWN), "{err}");
    assert_eq!(ok(dir, &["ls", "self.img"]), "f\n");
    for (engine, role) in [("yfs", "log=part"), ("dualfs", "data=part")] {
        ok(dir, &["mkfs", "-q", "-t", engine, "-s", "64M", "-o", role, "two.img"]);
        ok(dir, &["put", "-o", role, "two.img", "f", "/"]);
        for args in
            [&["get", "-o", role, "two.img", "f", "part"][..], &["tar", "-o", role, "--export", "part", "two.img"]]
        {
            assert!(fails(dir, args).contains(OWN));
        }
        assert_eq!(ok(dir, &["cat", "-o", role, "two.img", "f"]), "kept");
        fs::remove_file(dir.join("two.img")).unwrap();
        fs::remove_file(dir.join("part")).unwrap();
    }
}

#[test]
fn a_link_that_was_named_is_neither_followed_nor_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let at = |name: &str| dir.join(name);
    ok(dir, &["mkfs", "-q", "-s", "64M", "x.img"]);
    fs::write(at("f"), "new").unwrap();
    fs::write(at("old"), "old").unwrap();
    ok(dir, &["put", "x.img", "f", "/"]);
    for (link, to) in [("to-file", "old"), ("to-nothing", "absent"), ("to-stdout", "/proc/self/fd/1")] {
        symlink(to, at(link)).unwrap();
        let err = fails(dir, &["get", "x.img", "f", link]);
        assert!(err.contains(&format!("{link}: is a symbolic link to {to}")), "{err}");
        assert_eq!(fs::read_link(at(link)).unwrap(), Path::new(to));
    }
    assert_eq!(fs::read(at("old")).unwrap(), b"old");
    // What lies in a directory that was named is replaced, and so is a link by a link, each time.
    fs::create_dir(at("out")).unwrap();
    symlink("../old", at("out/f")).unwrap();
    ok(dir, &["put", "x.img", "to-file", "/link"]);
    for _ in 0..2 {
        ok(dir, &["get", "x.img", "f", "link", "out"]);
        ok(dir, &["get", "x.img", "link", "to-nothing"]);
        assert_eq!((fs::read(at("out/f")).unwrap(), fs::read(at("old")).unwrap()), (b"new".to_vec(), b"old".to_vec()));
        assert!([at("out/link"), at("to-nothing")].iter().all(|l| fs::read_link(l).unwrap() == Path::new("old")));
    }
    fs::remove_file(at("to-nothing")).unwrap();
    symlink("absent", at("to-nothing")).unwrap();
    for args in [
        &["mkfs", "-s", "64M", "to-nothing"][..],
        &["mkfs", "-s", "64M", "-o", "log=to-nothing", "new.img"],
        &["mkfs", "-s", "64M", "-t", "dualfs", "-o", "data=to-nothing", "new.img"],
    ] {
        let err = fails(dir, args);
        assert!(err.contains("to-nothing: is a symbolic link that leads nowhere"), "{err}");
        assert_eq!(err.matches("leads nowhere").count(), 1, "{err}");
        assert!(fs::read_link(at("to-nothing")).is_ok() && !at("new.img").exists() && !at("absent").exists());
    }
}

#[test]
fn one_that_fails_does_not_end_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    tree(dir);
    ok(dir, &["mkfs", "-q", "-s", "64M", "x.img"]);
    // A directory stands where one of the files is to go.
    ok(dir, &["mkdir", "-p", "x.img", "tree/a.txt"]);
    let err = fails(dir, &["put", "x.img", "absent", "tree", "gone", "/"]);
    let lines: Vec<&str> = err.lines().collect();
    assert_eq!(
        lines,
        [
            "arbor put: copy absent to /absent: absent: No such file or directory",
            "arbor put: copy tree/a.txt to /tree/a.txt: cannot overwrite directory with non-directory",
            "arbor put: copy gone to /gone: gone: No such file or directory"
        ]
    );
    let all = ok(dir, &["ls", "-aR", "x.img"]);
    for name in [".hidden", "b.txt", "link"] {
        assert!(all.contains(name), "{name}: {all}");
    }
    let says = |args: &[&str], lines: usize| {
        let err = fails(dir, args);
        assert_eq!(err.lines().count(), lines, "{args:?}: {err}");
        assert!(err.lines().all(|line| line.starts_with(&format!("arbor {}: ", args[0]))), "{err}");
    };
    fs::create_dir(dir.join("out")).unwrap();
    says(&["get", "x.img", "no", "tree/sub", "none", "out"], 2);
    assert_eq!(fs::read(dir.join("out/sub/b.txt")).unwrap(), b"beta\n");
    says(&["mkdir", "x.img", "tree", "new", "a/b/c", "newer"], 2);
    says(&["ls", "x.img", "no", "new", "none"], 2);
    says(&["tree", "x.img", "no", "new"], 1);
    says(&["stat", "x.img", "no", "new"], 1);
    says(&["du", "x.img", "no", "new"], 1);
    says(&["mv", "x.img", "no", "newer", "new"], 1);
    assert_eq!(ok(dir, &["ls", "x.img", "new"]), "newer\n");
    says(&["mv", "x.img", "new", "new"], 1);
    says(&["rm", "x.img", "no", "tree", "/", "tree/sub/b.txt", "none"], 4);
    assert_eq!(ok(dir, &["ls", "x.img", "tree/sub"]), "deep\n");
    ok(dir, &["fsck", "-n", "-f", "x.img"]);
}

#[test]
fn a_file_too_large_does_not_end_the_rest() {
    each_engine(|dir, _| {
        fs::write(dir.join("big"), vec![7; 80 << 20]).unwrap();
        fs::write(dir.join("f"), "small").unwrap();
        let err = fails(dir, &["put", "x.img", "no", "none", "big", "f", "/"]);
        let told: Vec<&str> = err.lines().map(|line| line.rsplit(": ").next().unwrap()).collect();
        assert_eq!(
            told,
            ["No such file or directory", "No such file or directory", "No space left on device"],
            "{err}"
        );
        assert_eq!((ok(dir, &["ls", "x.img"]).as_str(), ok(dir, &["cat", "x.img", "f"]).as_str()), ("f\n", "small"));
        ok(dir, &["fsck", "-n", "-f", "x.img"]);
    });
}

#[cfg(target_os = "linux")]
#[test]
fn files_that_are_longer_or_shorter_than_they_say_are_copied_as_they_read() {
    let dir = tempfile::tempdir().unwrap();
    ok(dir.path(), &["mkfs", "-q", "-s", "64M", "x.img"]);
    // The first says that it has no bytes, the second that it has a page of them.
    for file in ["/proc/version", "/sys/kernel/mm/transparent_hugepage/enabled"] {
        let Ok(text) = fs::read_to_string(file) else {
            eprintln!("NOT RUN: there is no {file}");
            continue;
        };
        ok(dir.path(), &["put", "x.img", file, "/f"]);
        assert_eq!(ok(dir.path(), &["cat", "x.img", "f"]), text, "{file}");
    }
}
