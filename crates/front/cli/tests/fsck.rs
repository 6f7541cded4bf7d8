//! Volumes that are checked and repaired by the command, each engine's.

mod common;

use arbor_base::device::{FileDevice, OpenMode};
use arboretum::vfs::{Devices, Structure};
use common::{each_engine, json, ok, run_in, tree};
use std::fs;
use std::path::Path;

#[test]
fn a_bit_that_flips_in_a_file_is_seen_where_contents_have_checksums() {
    each_engine(|dir, engine| {
        let text: Vec<u8> = (0..50_000u32).flat_map(u32::to_le_bytes).collect();
        fs::write(dir.join("text"), &text).unwrap();
        ok(dir, &["put", "x.img", "text", "/"]);
        let mut image = fs::read(dir.join("x.img")).unwrap();
        let at = image.windows(64).position(|bytes| bytes == &text[100_000..100_064]).expect("its bytes");
        image[at] ^= 1;
        fs::write(dir.join("x.img"), image).unwrap();
        let (code, _, err) = run_in(dir, &["cat", "x.img", "text"]);
        match engine {
            "lfs" | "dualfs" => assert!(code == 1 && err.contains("x.img:text: ") && err.contains("crc"), "{err}"),
            _ => assert_eq!((code, err.as_str()), (0, "")),
        }
        let (code, said, err) = run_in(dir, &["scrub", "x.img"]);
        if ["lfs", "dualfs"].contains(&engine) {
            // Byte 100,000 in blocks of 8 and of 4 KiB.
            let block = if engine == "lfs" { ", block 12" } else { ", block 24" };
            assert!(code == 4 && said.contains(block) && said.ends_with(", 1 damaged place\n"), "{said}");
            is_mended(dir);
        } else {
            let what = "has no checksums on the contents of files; `arbor fsck -f` verifies its metadata";
            assert_eq!((code, err), (8, format!("arbor scrub: x.img: {engine} {what}\n")));
        }
    });
}

/// A check names the file, preening says what to do, and that does it.
fn is_mended(dir: &Path) {
    let (code, said, _) = run_in(dir, &["fsck", "-f", "x.img"]);
    assert!(code == 4 && said.contains("DataDamaged: inode ") && said.contains(" (/text): "), "{said}");
    let (code, said, _) = run_in(dir, &["fsck", "-f", "-p", "x.img"]);
    assert!(code == 4 && said.ends_with("more than -p repairs: run `arbor fsck -f -y x.img`\n"), "{said}");
    let (code, said, _) = run_in(dir, &["fsck", "-f", "-y", "x.img"]);
    assert!(code == 1 && said.contains("damage was repaired, 1 issue, files may be lost: see above"), "{said}");
    ok(dir, &["cat", "x.img", "text"]);
    ok(dir, &["scrub", "x.img"]);
    assert!(ok(dir, &["fsck", "-f", "x.img"]).contains("clean"));
}

/// One inode of a directory and the contents of one file are damaged: all others come out, and what did not is told.
#[test]
fn what_can_be_read_comes_out_of_a_damaged_volume() {
    each_engine(|dir, engine| {
        let text = |n: u32| -> Vec<u8> { (n * 5000..(n + 1) * 5000).flat_map(u32::to_le_bytes).collect() };
        fs::create_dir(dir.join("in")).unwrap();
        for n in 0..6 {
            fs::write(dir.join(format!("in/{n}")), text(n)).unwrap();
        }
        ok(dir, &["put", "x.img", "in", "/"]);
        let mut image = fs::read(dir.join("x.img")).unwrap();
        let mut bad = Vec::new();
        let ino = json(dir, &["stat", "--json", "x.img", "in/1"])[0]["ino"].as_u64().unwrap();
        let (engine_of, file) =
            (arboretum::engine(engine).unwrap(), FileDevice::open(dir.join("x.img"), OpenMode::ReadOnly).unwrap());
        let found = &mut |s: Structure| {
            // In Evergreen the last commit has it, in its master block.
            if s.kind == "inode" && s.number == ino && engine != "evergreen" {
                image[s.offset as usize + 5..s.offset as usize + 20].fill(0xee);
                bad.push(1);
            }
        };
        engine_of.structures(&Devices::single(file), found).unwrap();
        if ["lfs", "dualfs"].contains(&engine) {
            let at = image.windows(64).position(|bytes| bytes == &text(4)[10_000..10_064]).expect("its bytes");
            image[at] ^= 1;
            bad.push(4);
        }
        fs::write(dir.join("x.img"), image).unwrap();
        let code = i32::from(!bad.is_empty());
        let (listed, out, err) = run_in(dir, &["ls", "x.img", "in"]);
        let is_listed = |n: &u32| *n == 4 || !bad.contains(n);
        let names = (0..6).filter(is_listed).map(|n| format!("{n}\n")).collect::<String>();
        assert_eq!((listed, out), (i32::from(bad.contains(&1)), names), "{engine}: {err}");
        for args in [&["get", "x.img", "in", "out"][..], &["tar", "--export", "x.tar", "x.img"]] {
            let (ended, _, err) = run_in(dir, args);
            assert_eq!((ended, err.lines().count()), (code, bad.len()), "{engine}: {err}");
            assert!(bad.iter().all(|n| err.contains(&format!("in/{n}"))), "{engine}: {err}");
        }
        ok(dir, &["mkfs", "-q", "-s", "64M", "y.img"]);
        ok(dir, &["tar", "--import", "x.tar", "y.img"]);
        ok(dir, &["get", "y.img", "in", "again"]);
        for (n, top) in (0..6).flat_map(|n| [(n, "out"), (n, "again")]) {
            let is_out = fs::read(dir.join(top).join(n.to_string())).ok();
            assert_eq!(is_out, (!bad.contains(&n)).then(|| text(n)), "{engine}: {top}/{n}");
        }
    });
}

#[test]
fn a_checked_volume_is_clean_and_says_so_in_json() {
    each_engine(|dir, engine| {
        let report = json(dir, &["fsck", "--json", "-f", "x.img"]);
        assert_eq!((report["clean"].as_bool(), report["exit_code"].as_u64()), (Some(true), Some(0)));
        assert_eq!(report["engine"], engine);
        assert!(ok(dir, &["fsck", "-p", "x.img"]).contains("clean"));
    });
}

/// Nothing is repaired as long as the rest may come back.
#[test]
fn a_truncated_image_is_not_clean() {
    each_engine(|dir, _| {
        tree(dir);
        ok(dir, &["put", "x.img", "tree", "/"]);
        let whole = fs::read(dir.join("x.img")).unwrap();
        let half = &whole[..whole.len() / 2];
        fs::write(dir.join("x.img"), half).unwrap();
        for options in [&["fsck"][..], &["fsck", "-p"], &["fsck", "-f", "-y"]] {
            let (code, out, err) = run_in(dir, &[options, &["x.img"]].concat());
            assert!(code >= 4 && (out + &err).contains("truncated"), "{options:?}: {code}, {err}");
        }
        assert!(fs::read(dir.join("x.img")).unwrap() == half, "something was written");
    });
}

#[test]
fn one_path_is_checked() {
    each_engine(|dir, _| {
        tree(dir);
        ok(dir, &["put", "x.img", "tree", "/"]);
        assert!(ok(dir, &["fsck", "--path", "/tree/a.txt", "x.img"]).contains("clean; 1 file, 2 directories"));
        assert!(
            ok(dir, &["fsck", "--path", "/none/../tree/./a.txt", "x.img"]).contains("clean; 1 file, 2 directories")
        );
        let (code, _, err) = run_in(dir, &["fsck", "--path", "/tree/none", "x.img"]);
        assert_eq!((code, err.contains("there is no /tree/none")), (8, true), "{err}");
        assert_eq!(run_in(dir, &["fsck", "-y", "--path", "/tree", "x.img"]).0, 16);
    });
}

#[test]
fn a_lost_superblock_is_found() {
    each_engine(|dir, _| {
        tree(dir);
        ok(dir, &["put", "x.img", "tree", "/"]);
        let mut bytes = fs::read(dir.join("x.img")).unwrap();
        bytes[..512].fill(0);
        fs::write(dir.join("x.img"), bytes).unwrap();
        let (code, _, err) = run_in(dir, &["ls", "x.img"]);
        assert!(code == 1 && err.contains("`arbor fsck x.img` looks for a damaged one"), "{err}");
        // It is more than -p repairs, and then nothing is.
        let before = fs::read(dir.join("x.img")).unwrap();
        for options in [&["fsck", "--json"][..], &["fsck", "-p", "--json"]] {
            let (code, said, _) = run_in(dir, &[options, &["x.img"]].concat());
            let report: serde_json::Value = serde_json::from_str(&said).unwrap();
            assert_eq!((code, report["exit_code"].as_u64()), (4, Some(4)), "{options:?}: {said}");
            assert_eq!(report["recovered"], false, "{options:?}: {said}");
        }
        assert!(fs::read(dir.join("x.img")).unwrap() == before, "something was written");
        let (code, said, _) = run_in(dir, &["fsck", "-y", "x.img"]);
        assert!(code == 1 && !said.contains("unmounted") && !said.contains("log"), "it was closed cleanly: {said}");
        assert_eq!(ok(dir, &["cat", "x.img", "tree/a.txt"]), "alpha\n");
        ok(dir, &["fsck", "-f", "x.img"]);
    });
}

#[test]
fn damage_that_loses_files_is_not_called_clean() {
    each_engine(|dir, engine| {
        tree(dir);
        ok(dir, &["mkfs", "-q", "-f", "-t", engine, "-s", "64M", "-d", "tree", "x.img"]);
        let mut bytes = fs::read(dir.join("x.img")).unwrap();
        let mut random = 1u32;
        // What says where the segments of a log lie is not found by a search.
        let from = if ["lfs", "dualfs"].contains(&engine) { 64 << 10 } else { 0 };
        bytes[from..1 << 20].iter_mut().for_each(|b| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *b = (random >> 24) as u8;
        });
        fs::write(dir.join("x.img"), bytes).unwrap();
        let (code, said, _) = run_in(dir, &["fsck", "-y", "-f", "x.img"]);
        let last = said.lines().last().unwrap_or_default();
        assert!(code == 1 && last.starts_with("x.img: damage was repaired, "), "{code}: {said}");
        assert!(last.contains(", files may be lost: see above; "), "{said}");
        let search = match engine {
            "lfs" | "dualfs" => "what the summaries of the log say of inodes is used",
            // The newest master block lies behind.
            "evergreen" => "no Evergreen superblock; its copy is used",
            "reiserfs" => "its copy is used, and the tree is built anew",
            _ => "of its inodes those are left that a search finds",
        };
        assert!(said.contains(&format!("{search} (repaired)\n")), "{said}");
        ok(dir, &["fsck", "-f", "x.img"]);
    });
}
