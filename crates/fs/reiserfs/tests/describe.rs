//! What `describe`, `dump` and `structures` say of a volume with something of everything, unmounted and after a power
//! cut.

mod damage_kit;

use arbor_base::device::{Device, Kind as Request, MemDevice};
use arbor_base::vfs::*;
use arbor_reiserfs::ReiserFs;
use arbor_reiserfs::format::*;
use arbor_reiserfs::node::{Block, Content};
use arbor_torture::damage;
use damage_kit::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const SIZE: u64 = 16 << 20;
const SHAPES: [&str; 2] = ["block=1K,log=512K", "block=4K"];

/// Of each shape one that was unmounted, and one that was not.
fn volumes() -> Vec<(String, MemDevice)> {
    let both = |shape: &&str| {
        let dev = format(SIZE, shape);
        let node = Knife::new(dev.clone()).geom.node_size;
        let fs = mount(&dev);
        fill(&*fs, node);
        fs.syncfs().unwrap();
        let cut = dev.snapshot();
        fs.unmount().unwrap();
        [(format!("{shape}, unmounted"), dev), (format!("{shape}, after a power cut"), cut)]
    };
    SHAPES.iter().flat_map(both).collect()
}

fn regions(dev: &MemDevice) -> Vec<Region> {
    let (mut all, before) = (Vec::new(), dev.to_bytes());
    dev.set_read_only(true);
    ReiserFs.describe(&Devices::single(dev.clone()), &mut |r| all.push(r)).unwrap();
    dev.set_read_only(false);
    assert!(before == dev.to_bytes());
    all.sort_by_key(|r| r.offset);
    all
}

fn dump(dev: &MemDevice, what: &[&str]) -> Value {
    ReiserFs.dump(&Devices::single(dev.clone()), what).unwrap()
}

fn refused(dev: &MemDevice, what: &[&str]) -> String {
    ReiserFs.dump(&Devices::single(dev.clone()), what).unwrap_err().to_string()
}

fn structures(dev: &MemDevice) -> Vec<Structure> {
    let mut all = Vec::new();
    ReiserFs.structures(&Devices::single(dev.clone()), &mut |s| all.push(s)).unwrap();
    all
}

/// Every byte is told once at most, lies in the volume, and together they are what the superblock says is in use.
#[test]
fn regions_are_what_is_used() {
    for (name, dev) in volumes() {
        let all = regions(&dev);
        for w in all.windows(2) {
            assert!(w[0].offset + w[0].len <= w[1].offset, "{name}: {w:?}");
        }
        assert!(all.iter().all(|r| r.len > 0 && r.offset + r.len <= SIZE), "{name}");
        let geom = Knife::new(dev.clone()).geom;
        let (sb, told): (_, u64) = (dump(&dev, &["superblock"]), all.iter().map(|r| r.len).sum());
        let number = |field: &str| sb[field].as_u64().unwrap();
        let to_come = u64::from(geom.bitmaps()) - number("bitmaps");
        assert_eq!(told / geom.node_size as u64, number("blocks") - number("free") - to_come, "{name}");
        let names: BTreeSet<&str> = all.iter().map(|r| &r.name[..]).collect();
        for known in ["superblock", "log", "bitmap 0", "superblock copy", "formatted node", "internal node, level 2"] {
            assert!(names.contains(known), "{name}: {known} in {names:?}");
        }
    }
}

/// The bytes of files stand where they are said to.
#[test]
fn data_lies_where_it_is_told() {
    for (name, dev) in volumes() {
        let all = regions(&dev);
        let fs = damage::mount(&ReiserFs, dev.snapshot());
        let b = fs.lookup(fs.root(), b"b").unwrap().ino;
        for (file, blocks) in [("big", 30), ("sparse", 4)] {
            let ino = fs.lookup(b, file.as_bytes()).unwrap().ino;
            let pieces: Vec<_> = all.iter().filter(|r| r.owner == Some(ino) && r.kind == Request::Data).collect();
            assert_eq!(pieces.len(), blocks, "{name}: {file}");
            for r in pieces {
                let (mut found, mut should) = (vec![0; r.len as usize], vec![0; r.len as usize]);
                dev.read_at(Request::Data, r.offset, &mut found).unwrap();
                let n = fs.read(ino, r.file_offset, &mut should).unwrap();
                assert!(n > 0 && found[..n] == should[..n], "{name}: {r:?}");
            }
        }
    }
}

#[test]
fn dumps() {
    for (name, dev) in volumes() {
        let geom = Knife::new(dev.clone()).geom;
        let node = geom.node_size as u64;
        assert_eq!(dump(&dev, &["superblock"])["node_size"], node);
        let records = dump(&dev, &["log"])["records"].as_array().unwrap().len();
        assert_eq!(records > 0, name.contains("cut"), "{name}");
        assert_eq!(dump(&dev, &["ids"])["ranges"][0][0], 0);
        let bitmap = dump(&dev, &["bitmap", "0"]);
        let told =
            |kind| regions(&dev).iter().filter(|r| r.kind == kind && r.offset < geom.byte(geom.covered())).count();
        assert_eq!(bitmap["nodes"], told(Request::Tree), "{name}");
        assert!(refused(&dev, &["bitmap", "99"]).starts_with("there is no bitmap 99, only "));
        let tree = dump(&dev, &["tree"]);
        let (levels, all) = (tree["levels"].as_array().unwrap(), regions(&dev));
        let nodes: u64 = levels.iter().map(|l| l["nodes"].as_u64().unwrap()).sum();
        assert_eq!(nodes as usize, all.iter().filter(|r| r.kind == Request::Tree).count(), "{name}: {tree}");
        assert_eq!(tree["unformatted_nodes"], all.iter().filter(|r| r.kind == Request::Data).count(), "{name}: {tree}");
        assert_eq!((&levels[0]["nodes"], &levels[0]["level"]), (&json!(1), &json!(levels.len())));
        for level in levels {
            let fill = |field: &str| level[field].as_u64().unwrap();
            assert!(fill("least_fill_percent") <= fill("fill_percent") && fill("fill_percent") <= 100, "{tree}");
        }
        let e = refused(&dev, &["nothing"]);
        assert!(e.contains("superblock, log, ids, bitmap N, tree"), "{e}");
        assert!(refused(&dev, &["node", "x"]).contains("not a number"));
        assert!(refused(&dev, &["block", "999999"]).contains("there is no block"));
    }
}

#[test]
fn dumps_of_objects() {
    for (name, dev) in volumes() {
        let node = Knife::new(dev.clone()).geom.node_size as u64;
        let fs = damage::mount(&ReiserFs, dev.snapshot());
        let lookup = |path: &str| path.split('/').fold(fs.root(), |dir, n| fs.lookup(dir, n.as_bytes()).unwrap().ino);
        let object = |path: &str| dump(&dev, &["object", &lookup(path).to_string()]);
        let (root, (locality, number)) = (dump(&dev, &["object", "1", "2"]), key_of(lookup("b/heavy")));
        assert_eq!((&root["mode"], &root["ino"]), (&json!("40755"), &json!(ROOT.0)));
        let heavy = dump(&dev, &["object", &locality.to_string(), &number.to_string()]);
        assert_eq!((&heavy["xattrs"][0]["name"], &heavy["xattrs"][0]["len"]), (&json!("user.one"), &json!(300)));
        assert_eq!(object("b/laden")["xattrs"][0]["len"], 2 * node, "{name}");
        assert_eq!((&heavy["body"][0]["where"], &heavy["body"][0]["len"]), (&json!("direct"), &json!(10)));
        assert_eq!(object("a/fast")["target"], "some/where/else");
        for (path, len) in [("b/big", 30 * node - 5), ("b/sparse", 4 * node), ("a/tail", node + node / 8)] {
            let all = object(path)["body"].clone();
            let sum: u64 = all.as_array().unwrap().iter().map(|p| p["len"].as_u64().unwrap()).sum();
            // Of unformatted nodes all bytes are told.
            assert!(sum == len || sum == len.next_multiple_of(node), "{name}: {path}: {all}");
        }
        let many = dump(&dev, &["dir", &lookup("many").to_string()]);
        assert_eq!(
            (many["entries"].as_array().unwrap().len(), &many["above"]),
            (node as usize / 3, &json!(ROOT.0)),
            "{name}"
        );
        let leaf = heavy["body"][0]["node"].to_string();
        let items = dump(&dev, &["node", &leaf]);
        assert!(items["items"].to_string().contains("\"kind\":\"direct\""), "{items}");
        let block = dump(&dev, &["block", &leaf]);
        assert!(block["bytes"][0].as_str().unwrap().starts_with("72544e31"), "{block}");
        assert!(dump(&dev, &["node", &dump(&dev, &["tree"])["root"].to_string()])["children"].is_array());
    }
}

/// The checksums of all structures are where the structures say, and right.
#[test]
fn sealing_what_is_whole_changes_nothing() {
    for (name, dev) in volumes() {
        // What the log holds is not in place.
        let log = dump(&dev, &["log"])["records"].clone();
        let blocks = log.as_array().unwrap().iter().flat_map(|r| r["blocks"].as_array().unwrap().clone());
        let logged: BTreeSet<u64> = blocks.map(|b| b.as_u64().unwrap()).collect();
        let (before, all) = (dev.to_bytes(), structures(&dev));
        let node = Knife::new(dev.clone()).geom.node_size as u64;
        for s in all.iter().filter(|s| !logged.contains(&(s.offset / node))) {
            assert!(s.fields.iter().any(|f| f.meaning == Meaning::Checksum), "{name}: {} {}", s.kind, s.number);
            ReiserFs.reseal(&dev, s).unwrap();
            assert!(before == dev.to_bytes(), "{name}: {} {}", s.kind, s.number);
        }
        let kinds: BTreeSet<&str> = all.iter().map(|s| s.kind).collect();
        let mut expected = BTreeSet::from([
            "bitmap",
            "formatted node",
            "internal node",
            "log head",
            "map of object numbers",
            "superblock",
            "superblock copy",
        ]);
        expected.extend(name.contains("cut").then_some("log record"));
        assert_eq!(kinds, expected, "{name}");
    }
}

fn patched(dev: &MemDevice, s: &Structure, field: &str, new: &[u8]) -> MemDevice {
    let copy = dev.snapshot();
    let f = s.fields.iter().find(|f| f.name == field).unwrap_or_else(|| panic!("no {field} in {s:?}"));
    damage::write(&copy, s.offset + u64::from(f.at), &new[..(f.len as usize).min(new.len())]);
    ReiserFs.reseal(&copy, s).unwrap();
    copy
}

/// What is changed and sealed is believed.
#[test]
fn what_is_sealed_is_believed() {
    for (name, dev) in volumes() {
        let all = structures(&dev);
        let of = |kind: &str| all.iter().find(|s| s.kind == kind).unwrap();
        if name.contains("cut") {
            // An address outside of the volume: the record does not count, nor does what follows.
            let copy = patched(&dev, of("log record"), "record.block", &[0xff; 4]);
            assert_eq!(dump(&copy, &["log"])["records"], json!([]), "{name}");
            let copy = patched(&dev, of("log record"), "Record.magic", b"rLR1");
            assert_eq!(dump(&copy, &["log"]), dump(&dev, &["log"]), "{name}");
            continue;
        }
        let copy = patched(&dev, of("superblock"), "SuperBlock.label", b"other\0");
        assert_eq!(dump(&copy, &["superblock"])["label"], "other", "{name}");
        let end = dump(&dev, &["ids"])["ranges"][0][1].as_u64().unwrap() - 1;
        let copy = patched(&dev, of("map of object numbers"), "IdRange.end", &end.to_le_bytes());
        assert_eq!(dump(&copy, &["ids"])["ranges"][0][1], end, "{name}");
        let copy = patched(&dev, of("log head"), "LogHead.seq", &77_777u64.to_le_bytes());
        assert_eq!(dump(&copy, &["log"])["first"], 77_777, "{name}");
        let copy = patched(&dev, of("bitmap"), "bitmap.head", &[0xfe]);
        assert_ne!(dump(&copy, &["bitmap", "0"])["free"], dump(&dev, &["bitmap", "0"])["free"], "{name}");
        let copy = patched(&dev, of("formatted node"), "StatData.uid", &[77]);
        assert_eq!(dump(&copy, &["object", "1", "2"])["uid"], 77, "{name}");
        let copy = patched(&dev, of("internal node"), "Child.block", &[1, 0, 0, 0]);
        assert!(regions(&copy).len() < regions(&dev).len(), "{name}: what is below a wrong child is passed over");
    }
}

/// All fields lie in their structures, and what kinds of items have is told.
#[test]
fn fields_of_structures() {
    for (name, dev) in volumes() {
        let all = structures(&dev);
        let inside = |s: &Structure| s.fields.iter().all(|f| (f.at + f.len) as usize <= s.len);
        assert!(all.iter().all(inside), "{name}");
        let names: BTreeSet<&str> = all.iter().flat_map(|s| &s.fields).map(|f| f.name).collect();
        for known in [
            "StatData.size",
            "EntryHead.offset",
            "entry.name",
            "indirect.pointer",
            "direct.bytes",
            "attribute.name_len",
            "attribute.rest",
            "DiskKey.object",
            "Child.block",
            "IdRange.first",
            "bitmap.rest",
        ] {
            assert!(names.contains(known), "{name}: {known} in {names:?}");
        }
    }
}

fn children(k: &Knife, block: Block, level: u16) -> Vec<Block> {
    match k.content(block, level) {
        Content::Internal(all) => all.into_iter().map(|c| c.1).collect(),
        Content::Leaf(_) => Vec::new(),
    }
}

/// Trees that lead back to themselves are walked, each node once.
#[test]
fn loops_end() {
    let dev = build(SIZE, SHAPES[0]);
    let fs = mount(&dev);
    for n in 0..1500 {
        fs.mknod(&CX, fs.root(), format!("further {n}").as_bytes(), mode::IFREG | 0o644, 0).unwrap();
    }
    fs.unmount().unwrap();
    let k = Knife::new(dev.clone());
    let (root, levels) = k.root();
    assert!(levels > 2, "{levels}");
    let (upper, lower) = (children(&k, root, levels), children(&k, children(&k, root, levels)[0], levels - 1));
    for (block, to) in [(root, root), (root, upper[1]), (upper[0], root), (upper[0], upper[0]), (upper[0], lower[1])] {
        let copy = Knife::new(dev.snapshot());
        copy.block(block, |bytes| bytes[NODE_HEAD + 16..NODE_HEAD + CHILD].copy_from_slice(&to.to_le_bytes()));
        let nodes: Vec<u64> = regions(&copy.dev).iter().filter(|r| r.kind == Request::Tree).map(|r| r.offset).collect();
        let once: BTreeSet<u64> = nodes.iter().copied().collect();
        assert!(!nodes.is_empty() && nodes.len() == once.len(), "{block} leads to {to}");
        let told = structures(&copy.dev).iter().filter(|s| s.kind.ends_with("node")).count();
        assert_eq!(told, nodes.len());
        dump(&copy.dev, &["tree"]);
    }
}

/// Whatever a field holds, what can be looked at is told, each node once, and all ends.
#[test]
fn damage_is_passed_over() {
    for (name, dev) in volumes().into_iter().take(2) {
        let all = structures(&dev);
        let places: Vec<_> = all.iter().flat_map(|s| s.fields.iter().map(move |f| (s, f))).collect();
        for (n, (s, f)) in places.iter().enumerate().step_by(17) {
            let copy = dev.snapshot();
            let new = [vec![0; f.len as usize], vec![0xff; f.len as usize], vec![n as u8; f.len as usize]];
            damage::write(&copy, s.offset + u64::from(f.at), &new[n % 3]);
            ReiserFs.reseal(&copy, s).unwrap();
            let mut nodes = Vec::new();
            let devices = Devices::single(copy);
            let _ = ReiserFs.describe(&devices, &mut |r| nodes.extend((r.kind == Request::Tree).then_some(r.offset)));
            let once: BTreeSet<u64> = nodes.iter().copied().collect();
            assert_eq!(nodes.len(), once.len(), "{name}: {} {}: {}", s.kind, s.number, f.name);
            let _ = ReiserFs.structures(&devices, &mut |_| ());
            let node = (s.offset / 1024).to_string();
            let paths: [&[&str]; 8] = [
                &["superblock"],
                &["log"],
                &["ids"],
                &["bitmap", "1"],
                &["tree"],
                &["node", &node],
                &["object", "1", "2"],
                &["dir", &ROOT.0.to_string()],
            ];
            paths.iter().for_each(|path| drop(ReiserFs.dump(&devices, path)));
        }
    }
}
