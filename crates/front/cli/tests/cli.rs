//! The command from outside. Tests that need a volume run once for each engine there is.

mod common;

use common::{BINARY, arbor, can_mount, each_engine, json, ok, run_in, tree};
use serde_json::Value;
use std::fs;
use std::path::Path;

#[test]
fn a_wrong_command_line_has_its_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(run_in(dir.path(), &["ls"]).0, 2);
    assert_eq!(run_in(dir.path(), &["fsck", "--no-such"]).0, 16);
    assert_eq!(run_in(dir.path(), &["mount"]).0, 1);
    assert_eq!(run_in(dir.path(), &["mount", "-o", "nosuchoption", "x.img", "d"]).0, 1);
    assert_eq!(run_in(dir.path(), &["--version"]).0, 0);
}

#[test]
fn errors_are_one_line_with_the_image() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("zeros.img"), vec![0; 1 << 20]).unwrap();
    let ext4 = [vec![0; 0x438], b"\x53\xef".to_vec(), vec![0; 1 << 20]].concat();
    fs::write(dir.path().join("ext4.img"), &ext4[..1 << 20]).unwrap();
    for (args, code, want) in [
        (&["info", "no.img"][..], 1, "arbor info: no.img: "),
        (
            &["ls", "zeros.img"],
            1,
            "arbor ls: zeros.img: not a volume of any known engine; `arbor fsck zeros.img` looks for a damaged one, \
             -o offset=N says where in the file it begins\n",
        ),
        (
            &["fsck", "zeros.img"],
            8,
            "arbor fsck: zeros.img: not a volume of any known engine, and no copy of a superblock is found\n",
        ),
        (
            &["info", "ext4.img"],
            1,
            "arbor info: ext4.img: not a volume of any known engine: it seems to hold an ext2, ext3 or ext4 file \
             system\n",
        ),
        (
            &["fsck", "ext4.img"],
            8,
            "arbor fsck: ext4.img: not a volume of any known engine: it seems to hold an ext2, ext3 or ext4 file \
             system\n",
        ),
        (&["mkfs", "-t", "nosuch", "-s", "1G", "new.img"], 1, "arbor mkfs: no engine named \"nosuch\""),
    ] {
        let (got, out, err) = run_in(dir.path(), args);
        assert_eq!((got, out.as_str()), (code, ""), "{err}");
        assert!(err.starts_with(want) && err.lines().count() == 1, "{err}");
    }
    assert!(!dir.path().join("new.img").exists());
}

#[test]
fn the_name_decides_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    for (name, args, code) in [
        ("mkfs.arbor", &["--help"][..], 0),
        ("fsck.arbor", &["-V"], 0),
        ("fsck.arbor", &["--nonsense"], 16),
        ("fsck.arbor", &["-a", "-C0", "no.img"], 8),
        ("mount.arbor", &["only-one"], 1),
        ("mount.arbor", &["no.img", "mnt", "-n", "-o", "rw,noatime"], 32),
        ("mount.fuse.arbor", &["only-one"], 1),
        ("mount.fuseblk.arbor", &["only-one"], 1),
        ("mkfs.arbor", &["-o", "nosuch", "-s", "64M", "x.img"], 1),
    ] {
        let link = dir.path().join(name);
        let _ = std::os::unix::fs::symlink(BINARY, &link);
        let out = std::process::Command::new(&link).args(args).current_dir(dir.path()).output().unwrap();
        assert_eq!(out.status.code(), Some(code), "{name} {args:?}: {out:?}");
        let said = String::from_utf8([out.stdout, out.stderr].concat()).unwrap();
        assert!(said.contains(name) && !said.contains("Usage: arbor"), "{name} {args:?}: {said}");
    }
    assert!(!dir.path().join("mnt").exists(), "a failed mount leaves no directory");
}

#[test]
fn an_option_without_a_value_takes_none() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ok(dir, &["mkfs", "-q", "-t", "reiserfs", "-s", "64M", "r.img"]);
    let (code, _, err) = run_in(dir, &["mount", "-o", "noreadahead=1", "r.img", "mnt"]);
    assert!(code == 1 && err.contains("option noreadahead: it takes no value, and \"1\" is one"), "{code}: {err}");
}

#[test]
fn options_of_another_engine_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let says = |args: &[&str], code: i32, want: &str| {
        let (got, out, err) = run_in(dir, args);
        assert_eq!((got, out.as_str()), (code, ""), "{args:?}: {err}");
        assert!(err.ends_with(&format!("{want}\n")) && err.lines().count() == 1, "{args:?}: {err}");
    };
    let log = "x.img: log= is an option of yfs, and this is a volume of ffs";
    says(&["mkfs", "-t", "ffs", "-s", "64M", "-o", "log=l.img", "x.img"], 1, log);
    says(&["mount", "--new", "64M", "-t", "ffs", "-o", "log=l.img", "x.img", "mnt"], 1, log);
    assert_eq!(fs::read_dir(dir).unwrap().count(), 0, "nothing is made");
    // A device of one engine is an option of another.
    ok(dir, &["mkfs", "-q", "-t", "reiserfs", "-s", "64M", "-o", "log=2M", "r.img"]);
    assert!(ok(dir, &["info", "--json", "r.img"]).contains("2097152"));
    fs::remove_file(dir.join("r.img")).unwrap();
    let ag = "x.img: ag= is an option of yfs, and this is a volume of ffs";
    says(&["mkfs", "-t", "ffs", "-s", "64M", "-o", "ag=16M", "x.img"], 1, ag);
    ok(dir, &["mkfs", "-q", "-t", "ffs", "-s", "64M", "x.img"]);
    fs::write(dir.join("l.img"), vec![0; 1 << 20]).unwrap();
    says(&["mount", "-o", "log=l.img", "x.img", "mnt"], 1, log);
    says(&["fsck", "-o", "log=l.img", "x.img"], 8, log);
    says(&["ls", "-o", "log=l.img", "x.img"], 1, "a volume of ffs has no device \"log\"");
    ok(dir, &["mkfs", "-q", "-s", "64M", "y.img"]);
    let keep = "y.img: keep= is an option of ffs, and this is a volume of yfs";
    says(&["mount", "-o", "keep=journal", "y.img", "mnt"], 1, keep);
    says(&["mount", "-t", "yfs", "-o", "keep=journal", "y.img", "mnt"], 1, keep);
    assert!(!dir.join("mnt").exists());
}

#[test]
fn wrong_mount_options_have_one_exit_code() {
    each_engine(|dir, engine| {
        let least = "option cache: 1 bytes are too few, 1048576 are the least";
        for (options, want) in
            [("nosuch", "nosuch"), ("threads=1", "option threads"), ("cache=1", least), ("commit=0", "commit")]
        {
            for by in [&["x.img"][..], &["-t", engine, "x.img"], &["--new", "64M", "-t", engine, "new.img"]] {
                let (code, _, err) = run_in(dir, &[&["mount", "-o", options], by, &["mnt"]].concat());
                assert!(code == 1 && err.contains(want) && err.lines().count() == 1, "{options} {by:?}: {code} {err}");
            }
        }
        assert!(!dir.join("mnt").exists() && !dir.join("new.img").exists());
    });
}

#[test]
fn a_remount_that_would_do_nothing_is_refused() {
    each_engine(|dir, _| {
        for (options, want) in [
            ("remount", "remount: nothing is to be changed; what can be changed is ro, rw, "),
            ("remount,defaults", "nothing is to be changed"),
            ("remount,ro,cache=64M", "remount: cache: what can be changed is ro, "),
            ("remount,ro,noatime", "remount: noatime: what can be changed is ro, "),
            ("remount,uid=7", "remount: uid: what can be changed is ro, "),
        ] {
            let (code, _, err) = run_in(dir, &["mount", "-o", options, "x.img", "mnt"]);
            assert!(code == 1 && err.contains(want) && err.lines().count() == 1, "{options}: {err}");
        }
        let (code, _, err) = run_in(dir, &["mount", "-o", "remount,ro,nofail", "x.img", "."]);
        assert!(code == 32 && err.contains("not a mount point of arbor"), "{err}");
    });
}

#[test]
fn completions_and_pages_are_written() {
    let dir = tempfile::tempdir().unwrap();
    assert!(ok(dir.path(), &["completions", "bash"]).contains("complete -F _arbor"));
    ok(dir.path(), &["man", "pages"]);
    for page in ["arbor.1", "arbor-map.1", "mkfs.arbor.8", "mount.arbor.8", "fsck.arbor.8"] {
        assert!(fs::read_to_string(dir.path().join("pages").join(page)).unwrap().contains(".SH NAME"));
    }
}

#[test]
fn mkfs_makes_sparse_images_and_refuses_used_ones() {
    each_engine(|dir, engine| {
        let meta = fs::metadata(dir.join("x.img")).unwrap();
        assert_eq!(meta.len(), 64 << 20);
        assert!(std::os::unix::fs::MetadataExt::blocks(&meta) * 512 < 32 << 20);
        let (code, _, err) = run_in(dir, &["mkfs", "x.img"]);
        assert_eq!(code, 1);
        assert!(err.contains(&format!("holds a volume of {engine}")), "{err}");
        ok(dir, &["mkfs", "-q", "-f", "-t", engine, "-L", "again", "-U", "null", "x.img"]);
        let info = json(dir, &["info", "--json", "x.img"]);
        assert_eq!(info["label"], "again");
        assert_eq!(info["uuid"], "00000000-0000-0000-0000-000000000000");
        assert_eq!((info["engine"].as_str(), info["clean"].as_bool()), (Some(engine), Some(true)));
        fs::write(dir.join("data"), b"something".repeat(1000)).unwrap();
        assert!(run_in(dir, &["mkfs", "-t", engine, "-s", "64M", "data"]).2.contains("holds data"));
        assert!(run_in(dir, &["mkfs", "-t", engine, "no-size.img"]).2.contains("give its size with -s"));
        ok(dir, &["mkfs", "-t", engine, "-n", "-s", "64M", "dry.img"]);
        assert!(!dir.join("dry.img").exists());
        let export = ok(dir, &["info", "--export", "x.img"]);
        assert!(export.contains("TYPE=arbor\n") && export.contains("LABEL=again\n"), "{export}");
        assert!(ok(dir, &["info", "x.img"]).contains("again"));
    });
}

#[test]
fn mkfs_overwrites_no_data_unasked() {
    each_engine(|dir, engine| {
        let late = [vec![0; 100_000], b"text\n".repeat(120_000)].concat();
        for (name, bytes, at) in
            [("text", b"hello\n".to_vec(), 0), ("zeros", vec![0; 600], 600), ("late", late, 100_000)]
        {
            fs::write(dir.join(name), &bytes).unwrap();
            let (code, _, err) = run_in(dir, &["mkfs", "-t", engine, "-s", "64M", name]);
            if at == bytes.len() {
                assert_eq!((code, err.as_str()), (0, ""), "a file of zeros holds nothing");
                continue;
            }
            assert_eq!((code, err), (1, format!("arbor mkfs: {name}: holds data (at byte {at}; -f overwrites it)\n")));
            assert!(fs::read(dir.join(name)).unwrap() == bytes, "{name} stays as it was");
            ok(dir, &["mkfs", "-q", "-f", "-t", engine, "-s", "64M", name]);
        }
        fs::write(dir.join("in"), [vec![0xaa; 1 << 20], vec![0; 1 << 20], b"x".to_vec()].concat()).unwrap();
        let (_, _, err) = run_in(dir, &["mkfs", "-t", engine, "-s", "64M", "-o", "offset=1M", "in"]);
        assert!(err.contains("in: holds data (at byte 2097152; "), "{err}");
    });
}

#[test]
fn the_same_tree_gives_the_same_bytes() {
    for engine in arboretum::engines() {
        let dir = tempfile::tempdir().unwrap();
        tree(dir.path());
        let make = |image: &str| {
            let args = ["mkfs", "-q", "-t", engine.name(), "-s", "64M", "-U", "null", "-d", "tree", image];
            arbor().current_dir(dir.path()).env("SOURCE_DATE_EPOCH", "1700000000").args(args).assert().success();
            fs::read(dir.path().join(image)).unwrap()
        };
        let first = make("one.img");
        ok(dir.path(), &["fsck", "-n", "-f", "one.img"]);
        std::thread::sleep(std::time::Duration::from_millis(1100));
        fs::read(dir.path().join("tree/a.txt")).unwrap();
        assert!(first == make("two.img"), "{}", engine.name());
        assert_eq!(ok(dir.path(), &["cat", "one.img", "/link"]), "beta\n");
    }
}

#[test]
fn files_go_in_are_seen_and_come_out() {
    each_engine(|dir, _| {
        tree(dir);
        ok(dir, &["put", "x.img", "tree", "/"]);
        assert_eq!(ok(dir, &["ls", "x.img", "/tree"]), "a.txt\nlink\nsub\n");
        assert_eq!(ok(dir, &["ls", "-a", "x.img", "/tree"]), ".hidden\na.txt\nlink\nsub\n");
        let long = ok(dir, &["ls", "-l", "x.img", "/tree"]);
        assert!(long.contains(" link -> sub/b.txt") && long.contains("-rw-r--r-- 1 "), "{long}");
        assert_eq!(ok(dir, &["cat", "x.img", "tree/a.txt", "tree/link"]), "alpha\nbeta\n");
        let shown = ok(dir, &["tree", "x.img", "/tree"]);
        assert!(shown.contains("└── sub\n    ├── b.txt\n    └── deep\n\n2 directories, 4 files\n"), "{shown}");
        let stat = json(dir, &["stat", "--json", "x.img", "tree/a.txt"]);
        assert_eq!((stat[0]["size"].as_u64(), stat[0]["type"].as_str()), (Some(6), Some("file")));
        ok(dir, &["mkdir", "-p", "x.img", "new/er"]);
        ok(dir, &["mv", "x.img", "tree/a.txt", "tree/sub/b.txt", "new"]);
        assert_eq!(ok(dir, &["ls", "x.img", "new"]), "a.txt\nb.txt\ner\n");
        fs::create_dir(dir.join("out")).unwrap();
        ok(dir, &["get", "x.img", "new", "tree", "out"]);
        assert_eq!(fs::read(dir.join("out/new/b.txt")).unwrap(), b"beta\n");
        assert_eq!(fs::read_link(dir.join("out/tree/link")).unwrap(), Path::new("sub/b.txt"));
        assert_eq!(ok(dir, &["ls", "-R", "x.img", "new"]), "new:\na.txt\nb.txt\ner\n\nnew/er:\n");
        assert_eq!(json(dir, &["ls", "-R", "--json", "x.img", "new"]).as_array().unwrap().len(), 3);
        assert_eq!(run_in(dir, &["rm", "x.img", "new"]).0, 1);
        ok(dir, &["rm", "-r", "x.img", "new", "tree"]);
        ok(dir, &["rm", "-f", "x.img", "new"]);
        assert_eq!(ok(dir, &["ls", "x.img"]), "");
        ok(dir, &["fsck", "-f", "x.img"]);
    });
}

#[test]
fn archives_go_through_pipes() {
    each_engine(|dir, engine| {
        tree(dir);
        ok(dir, &["put", "x.img", "tree", "/"]);
        let archive = arbor().current_dir(dir).args(["tar", "--export", "-", "x.img"]).output().unwrap().stdout;
        let args = ["mkfs", "-q", "-t", engine, "-s", "64M", "-d", "-", "y.img"];
        arbor().current_dir(dir).args(args).write_stdin(archive.clone()).assert().success();
        assert_eq!(ok(dir, &["cat", "y.img", "tree/link"]), "beta\n");
        ok(dir, &["tar", "--export", "y.tar", "y.img"]);
        assert!(fs::read(dir.join("y.tar")).unwrap() == archive);
        ok(dir, &["mkfs", "-q", "-f", "-t", engine, "y.img"]);
        ok(dir, &["tar", "--import", "y.tar", "y.img"]);
        assert_eq!(ok(dir, &["cat", "y.img", "tree/a.txt"]), "alpha\n");
    });
}

#[test]
fn du_tells_each_directory_when_all_below_it_is_counted() {
    each_engine(|dir, _| {
        tree(dir);
        fs::create_dir_all(dir.join("tree/sub/e/f")).unwrap();
        fs::create_dir_all(dir.join("tree/z")).unwrap();
        fs::write(dir.join("tree/sub/e/f/data"), vec![1; 1 << 20]).unwrap();
        ok(dir, &["put", "x.img", "tree", "/"]);
        let du = json(dir, &["du", "--json", "x.img", "tree", "/tree/sub/e/", "tree/a.txt"]);
        let told = |n: usize| (du[n]["path"].as_str().unwrap(), du[n]["allocated"].as_u64().unwrap());
        let paths: Vec<_> = (0..du.as_array().unwrap().len()).map(|n| told(n).0).collect();
        let below = ["tree/sub/deep", "tree/sub/e/f", "tree/sub/e", "tree/sub", "tree/z", "tree"];
        assert_eq!(paths[..6], below);
        assert_eq!(paths[6..], ["/tree/sub/e/f", "/tree/sub/e/", "tree/a.txt"]);
        assert!(told(1).1 >= 1 << 20 && told(0).1 < 1 << 20 && told(4).1 < 1 << 20);
        assert!(told(3).1 >= told(0).1 + told(2).1 && told(5).1 >= told(3).1 + told(4).1);
        assert_eq!(ok(dir, &["du", "-s", "x.img", "tree"]).lines().count(), 1);
    });
}

#[test]
fn counts_and_pictures_are_shown() {
    each_engine(|dir, _| {
        tree(dir);
        fs::write(dir.join("big"), vec![1; 3 << 20]).unwrap();
        ok(dir, &["put", "x.img", "tree", "big", "/"]);
        let df = json(dir, &["df", "--json", "x.img"]);
        assert!(df["used"].as_u64().unwrap() >= 3 << 20 && df["size"].as_u64().unwrap() <= 64 << 20);
        assert!(ok(dir, &["df", "x.img"]).contains("avail"));
        let du = json(dir, &["du", "-s", "--json", "x.img", "/big"]);
        assert!(du[0]["allocated"].as_u64().unwrap() >= 3 << 20);
        assert!(ok(dir, &["map", "x.img"]).contains("in one piece"));
        ok(dir, &["map", "-o", "x.svg", "x.img"]);
        assert!(fs::read_to_string(dir.join("x.svg")).unwrap().ends_with("</svg>\n"));
        let map = json(dir, &["map", "--json", "x.img"]);
        assert!(map["data"]["bytes"].as_u64().unwrap() >= 3 << 20, "{map}");
        assert!(map["files"].as_u64().unwrap() >= 1);
        let (code, _, err) = run_in(dir, &["dump", "x.img", "nonsense"]);
        assert_eq!((code, err.lines().count()), (1, 1), "{err}");
        assert!(!ok(dir, &["dump", "x.img", "superblock"]).is_empty());
        assert!(json(dir, &["dump", "--json", "x.img", "superblock"]).is_object());
    });
}

#[test]
fn a_volume_grows() {
    each_engine(|dir, engine| {
        tree(dir);
        ok(dir, &["put", "x.img", "tree", "/"]);
        let (code, said, err) = run_in(dir, &["resize", "x.img", "+64M"]);
        if engine == "ffs" {
            assert!(code == 1 && err.contains("Operation not supported"), "{err}");
            return ok(dir, &["fsck", "-f", "x.img"]).clear();
        }
        if engine == "yfs" {
            assert_eq!(said, "x.img: 64 MiB (67,108,864 bytes) -> 128 MiB (134,217,728 bytes)\n");
        }
        assert_eq!(fs::metadata(dir.join("x.img")).unwrap().len(), 128 << 20);
        // A volume of segments has no part of one at its end.
        let size = json(dir, &["info", "--json", "x.img"])["size"].as_u64().unwrap();
        assert!(size == 128 << 20 || engine == "lfs" && (127 << 20..128 << 20).contains(&size), "{size}");
        for more in ["+0", "+100"] {
            let said = ok(dir, &["resize", "x.img", more]);
            assert!(said.starts_with("x.img: nothing changed: the volume has 12"), "{said}");
            assert_eq!(json(dir, &["info", "--json", "x.img"])["size"], size);
        }
        assert_eq!(ok(dir, &["cat", "x.img", "tree/a.txt"]), "alpha\n");
        ok(dir, &["fsck", "-f", "x.img"]);
    });
}

/// The file may be larger than the volume in it.
#[test]
fn sizes_of_a_volume_that_grew_are_its_own() {
    each_engine(|dir, engine| {
        let size = || json(dir, &["info", "--json", "x.img"])["size"].as_u64().unwrap();
        let old = size();
        fs::File::options().write(true).open(dir.join("x.img")).unwrap().set_len(100 << 20).unwrap();
        let (code, said, _) = run_in(dir, &["resize", "x.img", "128M"]);
        if engine == "ffs" {
            return assert_eq!(code, 1);
        }
        let bytes: Vec<u64> = said
            .split('(')
            .filter_map(|text| text.split_once(" bytes").and_then(|(n, _)| n.replace(',', "").parse().ok()))
            .collect();
        assert_eq!(bytes, [old, size()], "{said}");
        assert!(old <= 64 << 20 && size() > 127 << 20, "{said}");
    });
}

/// Files of 300 KiB each, with contents that are found nowhere else.
fn many_files(dir: &Path) {
    fs::create_dir(dir.join("many")).unwrap();
    for n in 0..100u32 {
        let words: Vec<u8> = (0..75_000u32).flat_map(|i| (n << 20 | i).to_le_bytes()).collect();
        fs::write(dir.join(format!("many/{n}")), words).unwrap();
    }
}

fn free_space_is_gathered(dir: &Path) {
    assert_eq!(ok(dir, &["clean", "x.img"]), "x.img: 0 stretches emptied, 0 B moved\n");
    many_files(dir);
    ok(dir, &["put", "x.img", "many", "/"]);
    let most: Vec<String> = (0..100).filter(|n| n % 5 > 0).map(|n| format!("many/{n}")).collect();
    ok(dir, &[&["rm", "x.img"], &most.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat());
    let said = ok(dir, &["clean", "x.img"]);
    assert!(said.contains(" stretches emptied, ") && said.contains(" MiB moved"), "{said}");
    ok(dir, &["fsck", "-f", "x.img"]);
    ok(dir, &["get", "x.img", "many", "back"]);
    for n in (0..100).step_by(5) {
        let path = format!("many/{n}");
        assert!(
            fs::read(dir.join(&path)).unwrap() == fs::read(dir.join("back").join(n.to_string())).unwrap(),
            "{path}"
        );
    }
}

#[test]
fn segments_are_cleaned() {
    each_engine(|dir, engine| {
        let (code, _, err) = run_in(dir, &["clean", "x.img"]);
        if engine == "evergreen" {
            return free_space_is_gathered(dir);
        }
        if engine == "dualfs" {
            return metadata_segments_are_cleaned(dir);
        }
        if engine != "lfs" {
            assert_eq!((code, err), (1, format!("arbor clean: x.img: {engine} has nothing to clean\n")));
            assert!(json(dir, &["info", "--json", "x.img"]).get("segments").is_none());
            return;
        }
        many_files(dir);
        ok(dir, &["put", "x.img", "many", "/"]);
        let odd: Vec<String> = (1..100).step_by(2).map(|n| format!("many/{n}")).collect();
        ok(dir, &[&["rm", "x.img"], &odd.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat());
        let segments = |key: &str| json(dir, &["info", "--json", "x.img"])["segments"][key].as_u64().unwrap();
        let (before, live) = (segments("clean"), segments("live_bytes"));
        let info = ok(dir, &["info", "x.img"]);
        assert!(info.contains(&format!("\n{} segments of 1 MiB, {before} clean\n", segments("count"))), "{info}");
        assert!(info.contains("by address; a cell is a segment"), "{info}");
        let said = ok(dir, &["clean", "-b", "1", "x.img"]);
        assert!(said.starts_with("x.img: 1 segment cleaned, "), "{said}");
        let said = ok(dir, &["clean", "x.img"]);
        let after = segments("clean");
        assert!(after >= before + 10, "{before} -> {after}: {said}");
        assert!(said.contains(" segments cleaned, ") && said.contains(" MiB moved; "), "{said}");
        assert!(segments("live_bytes") <= live + (1 << 20));
        let said = ok(dir, &["clean", "x.img"]);
        assert!(said.starts_with("x.img: 0 segments cleaned, 0 B read, 0 B moved; "), "{said}");
        ok(dir, &["fsck", "-f", "x.img"]);
        ok(dir, &["get", "x.img", "many", "back"]);
        for n in (0..100).step_by(2) {
            let read = |dir_name| fs::read(dir.join(format!("{dir_name}/{n}"))).unwrap();
            assert!(read("back") == read("many"), "file {n}");
        }
    });
}

/// Contents are in no segment; names and inodes are.
fn metadata_segments_are_cleaned(dir: &Path) {
    fs::create_dir(dir.join("many")).unwrap();
    (0..1000).for_each(|n| fs::write(dir.join(format!("many/{n}")), n.to_string()).unwrap());
    ok(dir, &["put", "x.img", "many", "/"]);
    for _ in 0..3 {
        ok(dir, &["mv", "x.img", "many", "some"]);
        ok(dir, &["mv", "x.img", "some", "many"]);
    }
    ok(dir, &["rm", "-r", "x.img", "many"]);
    ok(dir, &["put", "x.img", "many", "/"]);
    let segments = |key: &str| json(dir, &["info", "--json", "x.img"])["segments"][key].as_u64().unwrap();
    let (before, live) = (segments("clean"), segments("live_bytes"));
    assert!(live < 1 << 20, "{live}");
    let info = ok(dir, &["info", "x.img"]);
    assert!(info.contains(&format!("\n{} segments of 128 KiB, {before} clean\n", segments("count"))), "{info}");
    let said = ok(dir, &["clean", "x.img"]);
    assert!(said.contains(" cleaned, ") && said.contains(" moved; ") && segments("clean") >= before, "{said}");
    assert!(!said.starts_with("x.img: 0 segments"), "{said}");
    ok(dir, &["fsck", "-f", "x.img"]);
    ok(dir, &["get", "x.img", "many", "back"]);
    (0..1000).for_each(|n| assert_eq!(fs::read(dir.join(format!("back/{n}"))).unwrap(), n.to_string().as_bytes()));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    each_engine(|dir, _| {
        fs::write(dir.join("big"), vec![b'x'; 4 << 20]).unwrap();
        ok(dir, &["put", "x.img", "big", "/"]);
        let shell = "\"$0\" cat x.img big | head -c 10";
        let out = std::process::Command::new("sh").args(["-c", shell, BINARY]).current_dir(dir).output().unwrap();
        assert_eq!((out.stdout.as_slice(), out.stderr.as_slice()), (&b"xxxxxxxxxx"[..], &b""[..]));
    });
}

#[test]
fn a_report_that_cannot_be_written_is_an_error() {
    each_engine(|dir, _| {
        for (args, code) in [
            (&["fsck", "x.img"][..], 8),
            (&["fsck", "--json", "-f", "x.img"], 8),
            (&["info", "x.img"], 1),
            (&["--help"], 1),
        ] {
            let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
            let mut command = std::process::Command::new(BINARY);
            let out = command.args(args).current_dir(dir).stdout(full).output().unwrap();
            assert_eq!(out.status.code(), Some(code), "{args:?}");
            let err = String::from_utf8(out.stderr).unwrap();
            assert!(err.ends_with("standard output: No space left on device\n"), "{args:?}: {err}");
        }
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = std::process::Command::new(BINARY);
        let done = command.args(["ls", "x.img", "/none"]).current_dir(dir).stderr(full).status().unwrap();
        assert_eq!(done.code(), Some(1), "an error that cannot be told is one");
    });
}

#[test]
fn a_size_that_cannot_be_is_told_with_one_that_can() {
    for engine in arboretum::engines().iter().filter(|e| e.extra_devices().contains(&"log")) {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let mkfs = |args: &[&str]| run_in(dir, &[&["mkfs", "-t", engine.name()], args, &["x.img"]].concat());
        let (code, out, err) = mkfs(&["-s", "4K"]);
        assert_eq!((code, out.as_str()), (1, ""), "nothing is told as done: {err}");
        let least = err.rsplit_once('(').and_then(|(_, rest)| rest.split_once(" bytes")).unwrap().0.replace(',', "");
        assert!(!dir.join("x.img").exists());
        assert_eq!(mkfs(&["-s", &(least.parse::<u64>().unwrap() - 4096).to_string()]).0, 1, "{least} is the least");
        let (code, out, err) = mkfs(&["-s", &least]);
        assert_eq!((code, out.lines().count()), (0, 1), "{err}");
        let (code, out, err) = mkfs(&["-f", "-o", "logsize=1G", "-s", "64M"]);
        assert_eq!((code, out.as_str()), (1, ""));
        assert!(err.contains("option logsize=1G: "), "{err}");
        ok(dir, &["fsck", "-f", "x.img"]);
        assert!(mkfs(&["-s", "8E"]).2.contains("as in 64M"));
        assert!(mkfs(&["-f", "-s", "9000000T"]).2.contains("too large"));
        assert!(mkfs(&["-f", "-o", "nosuch=1"]).2.contains("`arbor mkfs --help` lists them"));
    }
}

#[test]
fn copies_that_fail_name_both_places_and_leave_nothing() {
    each_engine(|dir, _| {
        let big: Vec<u8> = (0..80u32 << 20).map(|i| (i >> 7) as u8 ^ i as u8).collect();
        fs::write(dir.join("big"), &big).unwrap();
        for (args, want) in [
            (&["put", "x.img", "none", "/d"][..], "copy none to /d: none: No such file or directory\n"),
            (&["put", "x.img", "big", "/no/d"], "copy big to /no/d: No such file or directory\n"),
            (&["put", "x.img", "big", "/"], "copy big to /big: No space left on device\n"),
            (&["get", "x.img", "/none", "out"], "copy /none to out: No such file or directory\n"),
        ] {
            let (code, _, err) = run_in(dir, args);
            assert_eq!((code, err), (1, format!("arbor {}: {want}", args[0])));
        }
        assert_eq!(ok(dir, &["ls", "x.img"]), "");
        fs::write(dir.join("small"), &big[..1 << 20]).unwrap();
        ok(dir, &["put", "x.img", "small", "/"]);
        ok(dir, &["tar", "--export", "x.tar", "x.img"]);
        let archive = fs::read(dir.join("x.tar")).unwrap();
        fs::write(dir.join("x.tar"), &archive[..archive.len() / 2]).unwrap();
        ok(dir, &["rm", "x.img", "small"]);
        let (code, _, err) = run_in(dir, &["tar", "--import", "x.tar", "x.img"]);
        assert_eq!(code, 1);
        assert!(err.contains("x.tar: import: unpack small: the archive is truncated: it ends at byte "), "{err}");
        assert_eq!(ok(dir, &["ls", "x.img"]), "");
        ok(dir, &["fsck", "-f", "x.img"]);
    });
}

#[test]
fn a_copy_that_does_not_fit_leaves_the_old_file() {
    each_engine(|dir, _| {
        fs::write(dir.join("big"), vec![7; 4 << 20]).unwrap();
        ok(dir, &["put", "x.img", "big", "/"]);
        fs::create_dir(dir.join("out")).unwrap();
        fs::write(dir.join("out/big"), "old").unwrap();
        // A limit on the size of files stands for a disk that is full.
        let shell = "trap '' XFSZ; ulimit -f 1024; exec \"$0\" get x.img big out";
        let out = std::process::Command::new("sh").args(["-c", shell, BINARY]).current_dir(dir).output().unwrap();
        let err = String::from_utf8(out.stderr).unwrap();
        assert_eq!(
            (out.status.code(), err.as_str()),
            (Some(1), "arbor get: copy big to out/big: out/big: File too large\n")
        );
        let left: Vec<_> = fs::read_dir(dir.join("out")).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["big"]);
        assert_eq!(fs::read(dir.join("out/big")).unwrap(), b"old");
        ok(dir, &["get", "x.img", "big", "out"]);
        assert_eq!(fs::read(dir.join("out/big")).unwrap().len(), 4 << 20);
        let (code, _, err) = run_in(dir, &["get", "x.img", "big", "/dev/null"]);
        assert_eq!(code, 1);
        assert!(err.contains("no regular file"), "{err}");
    });
}

#[test]
fn a_log_and_an_offset_work_without_a_mount() {
    for engine in arboretum::engines().iter().filter(|e| e.extra_devices().contains(&"log")) {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        fs::write(dir.join("f"), "kept").unwrap();
        fs::write(dir.join("x.img"), vec![0xaa; 1 << 20]).unwrap();
        let o = "log=l.img,offset=1M";
        let made = format!("{o},logsize=4M");
        ok(dir, &["mkfs", "-q", "-f", "-t", engine.name(), "-s", "64M", "-o", &made, "x.img"]);
        assert_eq!(fs::metadata(dir.join("l.img")).unwrap().len(), 4 << 20);
        assert_eq!(fs::metadata(dir.join("x.img")).unwrap().len(), 65 << 20);
        ok(dir, &["put", "-o", o, "x.img", "f", "/"]);
        assert_eq!(ok(dir, &["cat", "-o", o, "x.img", "f"]), "kept");
        ok(dir, &["fsck", "-f", "-o", o, "x.img"]);
        assert!(fs::read(dir.join("x.img")).unwrap()[..1 << 20].iter().all(|b| *b == 0xaa), "what lies before stays");
        let (code, _, err) = run_in(dir, &["mkfs", "-s", "64M", "-o", "log=l.img", "y.img"]);
        assert_eq!(code, 1);
        assert!(err.contains("l.img: holds data"), "{err}");
        assert!(!dir.join("y.img").exists());
    }
}

#[test]
fn a_mount_works_on_return_and_is_durable_after_umount() {
    if !can_mount() {
        return;
    }
    for engine in arboretum::engines() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        ok(dir, &["mount", "--new", "64M", "-t", engine.name(), "new.img", "mnt"]);
        let source = format!("{} ", dir.join("new.img").display());
        assert!(fs::read_to_string("/proc/self/mounts").unwrap().contains(&source), "the source is a whole path");
        fs::write(dir.join("mnt/file"), "through the kernel").unwrap();
        fs::create_dir(dir.join("mnt/sub")).unwrap();
        ok(dir, &["sync", "mnt/sub"]);
        let (code, _, err) = run_in(dir, &["ls", "new.img"]);
        assert_eq!((code, err.lines().count()), (1, 1), "a mounted image is taken: {err}");
        let mounted = dir.canonicalize().unwrap().join("mnt");
        assert!(err.contains(&format!("(arbor), mounted on {}", mounted.display())), "{err}");
        let info = json(dir, &["info", "--json", "new.img"]);
        assert_eq!(info["mounted_on"].as_str(), mounted.to_str());
        let state = ok(dir, &["info", "new.img"]);
        assert!(state.contains("in use by process ") && state.contains("(arbor), mounted on "), "{state}");
        let df = json(dir, &["df", "--json", "mnt/sub"]);
        assert_eq!(df["image"].as_str(), dir.join("new.img").canonicalize().unwrap().to_str());
        assert!(df["size"].as_u64().unwrap() > 32 << 20 && df["inodes_used"].as_u64().unwrap() >= 3, "{df}");
        assert_eq!(run_in(dir, &["fsck", "-p", "new.img"]).0, 8);
        ok(dir, &["umount", "mnt"]);
        assert_eq!(ok(dir, &["cat", "new.img", "file"]), "through the kernel");
        let (code, _, err) = run_in(dir, &["mount", "--new", "64M", "new.img", "mnt"]);
        assert_eq!(code, 1);
        assert!(
            err.contains("exists already and holds a volume") && err.contains("`arbor mount new.img mnt`"),
            "{err}"
        );
        assert_eq!(ok(dir, &["mount", "-o", "ro", "new.img", "mnt"]), "new.img: mounted on mnt, read-only\n");
        assert_eq!(fs::read(dir.join("mnt/file")).unwrap(), b"through the kernel");
        assert!(fs::write(dir.join("mnt/other"), "").is_err());
        ok(dir, &["umount", "mnt"]);
        ok(dir, &["fsck", "-f", "new.img"]);
    }
}

#[test]
fn a_foreground_mount_ends_cleanly_on_sigterm() {
    if !can_mount() {
        return;
    }
    each_engine(|dir, _| {
        let notify = std::os::unix::net::UnixDatagram::bind(dir.join("notify")).unwrap();
        let mut server = std::process::Command::new(BINARY)
            .args(["mount", "-f", "x.img", "mnt"])
            .env("NOTIFY_SOCKET", dir.join("notify"))
            .current_dir(dir)
            .spawn()
            .unwrap();
        notify.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        let mut text = [0; 100];
        let len = notify.recv(&mut text).unwrap();
        assert!(text[..len].starts_with(b"READY=1\n"));
        fs::write(dir.join("mnt/f"), "kept").unwrap();
        std::process::Command::new("kill").arg(server.id().to_string()).status().unwrap();
        assert!(server.wait().unwrap().success());
        assert_eq!(ok(dir, &["cat", "x.img", "f"]), "kept");
    });
}

#[test]
fn mkfs_shortens_no_file_unasked() {
    each_engine(|dir, engine| {
        let len = |name: &str| fs::metadata(dir.join(name)).unwrap().len();
        fs::File::create(dir.join("big")).unwrap().set_len(100 << 20).unwrap();
        for args in [&["mkfs", "-s", "64M", "-t", engine, "big"][..], &["mkfs", "-n", "-s", "64M", "big"]] {
            let (code, _, err) = run_in(dir, args);
            assert_eq!((code, len("big")), (1, 100 << 20));
            assert!(err.starts_with("arbor mkfs: big: is 100 MiB "), "{err}");
            assert!(err.contains("64 MiB") && err.contains("-f"), "{err}");
        }
        ok(dir, &["mkfs", "-q", "-f", "-s", "64M", "-t", engine, "big"]);
        assert_eq!(len("big"), 64 << 20);
        let mut bytes = vec![0xaa; 80 << 20];
        bytes[1 << 20..65 << 20].fill(0);
        fs::write(dir.join("disk"), bytes).unwrap();
        for force in [&[][..], &["-f"]] {
            let args = [&["mkfs", "-q"], force, &["-s", "64M", "-t", engine, "-o", "offset=1M", "disk"]].concat();
            ok(dir, &args);
            ok(dir, &["fsck", "-f", "-o", "offset=1M", "disk"]);
            let bytes = fs::read(dir.join("disk")).unwrap();
            assert_eq!(bytes.len(), 80 << 20);
            assert!(bytes[..1 << 20].iter().chain(&bytes[65 << 20..]).all(|b| *b == 0xaa), "{force:?}");
        }
        let map = json(dir, &["map", "--json", "-O", "offset=1M", "disk"]);
        // A volume of segments may end before its device.
        let size = map["size"].as_u64().unwrap();
        assert!(size == 64 << 20 || engine == "lfs" && (62 << 20..64 << 20).contains(&size), "{size}");
        ok(dir, &["mkfs", "-q", "-f", "-s", "96M", "-t", engine, "-o", "offset=1M", "disk"]);
        assert_eq!(len("disk"), 97 << 20);
    });
}

#[test]
fn directories_overwrite_nothing_and_names_with_a_slash_are_theirs() {
    each_engine(|dir, _| {
        tree(dir);
        fs::write(dir.join("file"), "host").unwrap();
        ok(dir, &["put", "x.img", "tree", "file", "/"]);
        let no_dir = "there is no such directory\n";
        let no_overwrite = "cannot overwrite non-directory with directory\n";
        for (args, want) in [
            (&["put", "x.img", "tree", "/file"][..], no_overwrite),
            (&["get", "x.img", "tree", "file"], no_overwrite),
            (&["put", "x.img", "file", "/none/"], no_dir),
            (&["put", "x.img", "file", "/file/"], no_dir),
            (&["get", "x.img", "file", "none/"], no_dir),
            (&["get", "x.img", "file", "none/dir/"], no_dir),
            (&["mv", "x.img", "file", "/none/"], no_dir),
        ] {
            let (code, _, err) = run_in(dir, args);
            assert_eq!(code, 1, "{args:?}");
            assert!(err.ends_with(want), "{args:?}: {err}");
        }
        assert_eq!(ok(dir, &["cat", "x.img", "file"]), "host");
        assert_eq!(fs::read(dir.join("file")).unwrap(), b"host");
        assert_eq!(ok(dir, &["ls", "x.img"]), "file\ntree\n");
        ok(dir, &["put", "x.img", "tree", "/new/"]);
        assert_eq!(ok(dir, &["cat", "x.img", "new/a.txt"]), "alpha\n");
        for command in ["put", "get", "tar"] {
            assert!(ok(dir, &[command, "--help"]).contains("overwritten"), "{command}");
        }
    });
}

#[test]
fn attributes_and_flags_are_shown_in_both_forms() {
    use arboretum::vfs::FileFlags;
    each_engine(|dir, _| {
        tree(dir);
        ok(dir, &["put", "x.img", "tree", "/"]);
        let volume = arboretum::Volume::open(dir.join("x.img")).unwrap();
        volume.set_xattr("/tree/a.txt", "user.color", "green").unwrap();
        volume.set_flags("/tree/a.txt", FileFlags::NODUMP | FileFlags::APPEND).unwrap();
        assert_eq!(volume.flags("/tree/a.txt").unwrap(), FileFlags::NODUMP | FileFlags::APPEND);
        volume.close().unwrap();
        let text = ok(dir, &["stat", "x.img", "/tree/a.txt"]);
        assert!(text.ends_with(" Flags: append, nodump\n Xattr: user.color (5 bytes)\n"), "{text}");
        let both = json(dir, &["stat", "--json", "x.img", "/tree/a.txt", "/tree"]);
        assert_eq!(both[0]["xattrs"], serde_json::json!([{ "name": "user.color", "size": 5 }]));
        assert_eq!(both[0]["flags"], serde_json::json!(["append", "nodump"]));
        assert!(text.contains(&format!("Generation: {}\n", both[0]["generation"])), "{text}");
        assert_eq!((&both[1]["xattrs"], &both[1]["flags"]), (&serde_json::json!([]), &serde_json::json!([])));
        assert!(!ok(dir, &["stat", "x.img", "/tree"]).contains("Flags"));
    });
}

#[test]
fn a_volume_does_not_shrink() {
    each_engine(|dir, engine| {
        // A volume of segments has no part of one at its end.
        let has = if engine == "lfs" { 63 } else { 64 };
        for size in ["32M", "-32M"] {
            let (code, _, err) = run_in(dir, &["resize", "x.img", size]);
            assert_eq!(code, 1);
            assert!(err.contains(&format!("shrinking is not implemented: the volume has {has} MiB (")), "{err}");
            assert!(err.contains("32 MiB (33,554,432 bytes)"), "{err}");
        }
        assert!(ok(dir, &["resize", "--help"]).contains("Shrinking is not implemented"));
        for size in ["99999999T", "9000000T"] {
            let (code, _, err) = run_in(dir, &["resize", "x.img", size]);
            assert_eq!((code, err), (1, format!("arbor resize: {size:?}: too large: a file has less than 8 EiB\n")));
        }
    });
}

#[test]
fn messages_say_what_is_wrong_and_what_was_done() {
    each_engine(|dir, engine| {
        tree(dir);
        let (option, wrong) = match engine {
            "evergreen" => ("stride=3", "option stride: 3 is not from 16 to 1048576"),
            _ => ("block=3K", "option block: 3072 is not a "),
        };
        for (args, want) in [
            (&["mkfs", "-f", "-t", engine, "-o", option, "x.img"][..], &format!("mkfs: x.img: {wrong}")[..]),
            (
                &["info", "-o", "noatime", "x.img"],
                "info: option noatime: info knows only offset=N, data=FILE, log=FILE\n",
            ),
            (
                &["resize", "-o", "cache=1M", "x.img", "1G"],
                "resize: option cache: resize knows only offset=N, data=FILE, log=FILE\n",
            ),
            (
                &["dump", "-o", "ro", "x.img", "superblock"],
                "dump: option ro: dump knows only offset=N, data=FILE, log=FILE\n",
            ),
            (&["map", "-O", "ro", "x.img"], "map: option ro: map knows only offset=N, data=FILE, log=FILE\n"),
            (&["label", "-o", "ro", "x.img"], "label: option ro: label knows only offset=N, data=FILE, log=FILE\n"),
            (&["ls", "-o", "offset=1", "x.img"], "ls: option offset: 1 is not a multiple of 512 bytes\n"),
            (&["rm", "-r", "x.img", "/"], "rm: x.img:/: the root cannot be removed\n"),
            (&["dump", "x.img", "inode x"], "dump: x.img: "),
            (&["ls", "x.img", "none"], "ls: x.img:none: No such file or directory\n"),
            (&["cat", "x.img", "/no/ne"], "cat: x.img:/no/ne: No such file or directory\n"),
            (&["stat", "x.img", "none"], "stat: x.img:none: No such file or directory\n"),
            (&["tree", "x.img", "none"], "tree: x.img:none: No such file or directory\n"),
            (&["du", "x.img", "none"], "du: x.img:none: No such file or directory\n"),
            (&["rm", "x.img", "none"], "rm: x.img:none: No such file or directory\n"),
            (&["mv", "x.img", "none", "new"], "mv: x.img:none: No such file or directory\n"),
            (
                &["mkdir", "x.img", "a/b/c"],
                "mkdir: x.img:a/b/c: No such file or directory (-p makes those above too)\n",
            ),
            (&["map", "-o", "m.foo", "x.img"], "map: m.foo: no picture of the kind \"foo\": it is SVG, "),
            (&["df", "."], "df: .: not on a mount of arbor\n"),
        ] {
            let (code, _, err) = run_in(dir, args);
            assert_eq!(code, 1);
            assert!(err.starts_with(&format!("arbor {want}")), "{args:?}: {err}");
        }
        ok(dir, &["mkdir", "x.img", "dir"]);
        let (code, _, err) = run_in(dir, &["rm", "-f", "x.img", "dir"]);
        assert_eq!(
            (code, err.as_str()),
            (1, "arbor rm: x.img:dir: is a directory (-r removes it with all it holds)\n")
        );
        assert_eq!(ok(dir, &["info", "x.img"]).contains("keep, by the last mount"), engine == "ffs");
        let (code, _, err) = run_in(dir, &["tar", "x.img"]);
        assert!(code == 2 && err.contains("--import") && err.contains("--export"), "{err}");
        assert!(!ok(dir, &["dump", "x.img", "superblock"]).is_empty());
        let said = ok(dir, &["mkfs", "-t", engine, "-s", "64M", "-d", "tree", "y.img"]);
        assert!(said.ends_with("\n4 files, 2 directories, 11 B from tree\n"), "{said}");
        assert!(!ok(dir, &["info", "y.img"]).contains("label"));
        assert!(ok(dir, &["map", "-o", "m.svg", "x.img"]).starts_with("m.svg: picture of x.img, in SVG\n"));
    });
    for engine in arboretum::engines().iter().filter(|e| e.extra_devices().contains(&"log")) {
        let dir = tempfile::tempdir().unwrap();
        let mkfs = |o: &str| run_in(dir.path(), &["mkfs", "-t", engine.name(), "-s", "64M", "-o", o, "x.img"]);
        assert_eq!(mkfs("log=").2, "arbor mkfs: option log: it names no file, as log=FILE does\n");
        assert_eq!(mkfs("log=./x.img").2, "arbor mkfs: x.img: log and volume are the same file\n");
    }
}

/// Torture combines what an engine can be formatted with and what is done with a volume.
#[test]
fn each_shape_of_an_engine_takes_each_profile() {
    use arbor_torture::{config::Config, crash::Base, generate::Profile};
    use arboretum::vfs::Options;
    for engine in arboretum::engines() {
        for ((format, mount), profile) in
            engine.test_configurations().iter().flat_map(|s| Profile::ALL.map(|p| (*s, p)))
        {
            let (format, mount) = (Options::parse(format), Options::parse(mount));
            let made = Base::fresh(*engine, &Config { format, mount, ..Config::crash(profile) });
            assert!(made.is_ok(), "{} {profile:?}: {:?}", engine.name(), made.err());
        }
    }
}

#[test]
fn torture_counts_and_tells_its_seed() {
    for engine in arboretum::engines() {
        let dir = tempfile::tempdir().unwrap();
        let args = ["torture", "-t", engine.name(), "--seconds", "4", "--seed", "11", "--json", "counts"];
        let out = ok(dir.path(), &args);
        assert!(out.contains("seed 11"), "{out}");
        let counts: Value = serde_json::from_slice(&fs::read(dir.path().join("counts")).unwrap()).unwrap();
        for key in ["sequences", "crash_states", "distinct_states", "faults", "mutants", "seconds"] {
            assert!(counts[key].as_f64().is_some_and(|n| n > 0.0), "{key}: {counts}");
        }
        assert_eq!((&counts["failures"], &counts["seed"]), (&Value::from(0), &Value::from(11)));
        assert_eq!(counts["interrupted"], Value::from(false));
        // A sound line does not fail.
        let line = "seed=1 profile=Sync size=16777216 from=Aged ops=unlink /a; syncfs";
        assert!(ok(dir.path(), &["torture", "-t", engine.name(), "--repeat", line]).contains("does not fail"));
    }
}

#[test]
fn torture_refuses_at_once_what_it_cannot_do() {
    let dir = tempfile::tempdir().unwrap();
    for (option, value, code, want) in [
        ("--seconds", "0", 2, "not a time: "),
        ("--seconds", "x", 2, "not a time: "),
        ("--seed", "x", 2, "not a seed: "),
        ("--share", "9/8", 2, "not a share: "),
        ("--seed=1", "--share=1/8", 1, "arbor torture: --share: only the crash part has shares"),
        ("--json", "no/such/file", 1, "arbor torture: no/such/file: "),
        ("--repeat", "foo", 1, "arbor torture: --repeat: \"foo\" is no line of a failure; "),
        ("--repeat", "x=1 ops=", 1, "arbor torture: --repeat: unknown key \"x\""),
        ("--repeat", "profile=Odd ops=", 1, "arbor torture: --repeat: profile: \"Odd\" is none of Small, "),
    ] {
        let (got, out, err) = run_in(dir.path(), &["torture", option, value]);
        assert_eq!((got, out.as_str()), (code, ""), "{err}");
        assert!(err.contains(want), "{err}");
    }
}
