//! What `describe`, `dump` and `structures` say of a volume with every form of file, unmounted and after a power cut.

use arbor_base::device::{Device, Kind, MemDevice};
use arbor_base::vfs::*;
use arbor_lfs::Lfs;
use std::collections::BTreeMap;
use std::sync::Arc;

const SIZE: u64 = 16 << 20;
const NOW: Time = Time { secs: 1_700_000_000, nanos: 0 };
const CX: Cx = Cx { uid: 1000, gid: 100 };
/// After the direct blocks, after the first indirect block, and after the second, at blocks of 4 KiB.
const FAR: [u64; 3] = [12 << 12, (12 + 512) << 12, (12 + 512 + 512 * 512) << 12];

fn mount(dev: &MemDevice) -> Arc<dyn FileSystem> {
    let clock = Arc::new(ManualClock::new(NOW));
    Lfs.mount(Devices::single(dev.clone()), &MountOptions::default(), clock).unwrap()
}

fn file(fs: &dyn FileSystem, dir: Ino, name: &str, at: u64, data: &[u8]) -> Ino {
    let old = fs.lookup(dir, name.as_bytes());
    let ino = old.or_else(|_| fs.mknod(&CX, dir, name.as_bytes(), mode::IFREG | 0o644, 0)).unwrap().ino;
    assert_eq!(fs.write(ino, at, data).unwrap(), data.len());
    ino
}

fn fill(fs: &dyn FileSystem) {
    let root = fs.root();
    let large = file(fs, root, "large", 0, &[b'x'; 200_000]);
    FAR.iter().for_each(|at| assert_eq!(fs.write(large, *at, b"behind a hole").unwrap(), 13));
    fs.setxattr(large, b"user.colour", b"green", XattrMode::Set).unwrap();
    fs.symlink(&CX, root, b"link", b"large").unwrap();
    fs.symlink(&CX, root, b"long link", &[b'l'; 600]).unwrap();
    let dir = fs.mkdir(&CX, root, b"directory", 0o755).unwrap().ino;
    for n in 0..100 {
        file(fs, dir, &format!("name-{n}"), 0, &[b'n'; 700]);
    }
    // So that something is dead.
    fs.syncfs().unwrap();
    file(fs, root, "large", 5000, &[b'y'; 30_000]);
    (0..50).for_each(|n| fs.unlink(dir, format!("name-{n}").as_bytes()).unwrap());
    fs.syncfs().unwrap();
}

/// Both are checked to be sound.
fn volumes() -> [(&'static str, MemDevice); 2] {
    let dev = MemDevice::new(SIZE);
    let options = Options::parse("block=4K,segment=256K");
    let o = FormatOptions { uuid: *b"arboretum-golden", now: NOW, options, ..FormatOptions::default() };
    Lfs.format(Devices::single(dev.clone()), &o).unwrap();
    let fs = mount(&dev);
    fill(&*fs);
    let cut = dev.snapshot();
    fs.unmount().unwrap();
    [("unmounted", dev), ("after a power cut", cut)].map(|(name, dev)| {
        let options = CheckOptions { repair: Repair::No, force: true };
        let report = Lfs.check(Devices::single(dev.clone()), &options, &mut |_, _, _| {}).unwrap();
        assert_eq!(report.issues, [], "{name}");
        (name, dev)
    })
}

fn dump(dev: &MemDevice, what: &[&str]) -> serde_json::Value {
    Lfs.dump(&Devices::single(dev.clone()), what).unwrap()
}

fn structures(dev: &MemDevice) -> Vec<Structure> {
    let mut all = Vec::new();
    Lfs.structures(&Devices::single(dev.clone()), &mut |s| all.push(s)).unwrap();
    all
}

#[test]
fn regions_are_what_lives() {
    for (name, dev) in volumes() {
        let mut regions = Vec::new();
        let before = dev.to_bytes();
        dev.set_read_only(true);
        Lfs.describe(&Devices::single(dev.clone()), &mut |r| regions.push(r)).unwrap();
        dev.set_read_only(false);
        assert!(before == dev.to_bytes());
        regions.sort_by_key(|r| r.offset);
        for w in regions.windows(2) {
            assert!(w[0].offset + w[0].len <= w[1].offset, "{name}: {w:?}");
        }
        // What is no summary is what the usage table counts, segment by segment.
        let (first, size) = (4 << 12, 256 << 10);
        let mut live: BTreeMap<u64, u64> = BTreeMap::new();
        for r in regions.iter().filter(|r| r.offset >= first && r.kind != Kind::Log) {
            *live.entry((r.offset - first) / size).or_default() += r.len;
        }
        let usage = dump(&dev, &["usage"]);
        let counted =
            usage.as_array().unwrap().iter().map(|u| (u["seg"].as_u64().unwrap(), u["live"].as_u64().unwrap()));
        assert_eq!(live, counted.filter(|u| u.1 > 0).collect::<BTreeMap<_, _>>(), "{name}");
        let has = |name: &str| regions.iter().any(|r| r.name == name);
        for name in ["superblock", "checkpoint 0", "checkpoint 1", "superblock copy", "segment 0 summary", "inode 2"] {
            assert!(has(name), "{name}");
        }
        for name in ["segment usage table", "inode map", "indirect block, level 3", "extended attributes", "directory"]
        {
            assert!(has(name), "{name}");
        }
        // The file's bytes stand where they are said to.
        let fs = mount(&dev.snapshot());
        let ino = fs.lookup(fs.root(), b"large").unwrap().ino;
        let mut pieces = 0;
        for r in regions.iter().filter(|r| r.owner == Some(ino) && r.kind == Kind::Data) {
            let (mut found, mut should) = (vec![0; r.len as usize], vec![0; r.len as usize]);
            dev.read_at(Kind::Data, r.offset, &mut found).unwrap();
            let n = fs.read(ino, r.file_offset, &mut should).unwrap();
            assert!(n > 0 && found[..n] == should[..n], "{r:?}");
            pieces += 1;
        }
        assert_eq!(pieces, 200_000u64.div_ceil(4096) + 2, "the first of the three places lies in the first part");
    }
}

#[test]
fn dumps() {
    for (name, dev) in volumes() {
        let sb = dump(&dev, &["superblock"]);
        assert_eq!((sb["block_shift"].as_u64(), sb["seg_shift"].as_u64()), (Some(12), Some(18)));
        let all = dump(&dev, &["checkpoints"]);
        let newest = all.as_array().unwrap().iter().max_by_key(|cp| cp["serial"].as_u64()).unwrap();
        assert_eq!(newest["clean"] == 1, name == "unmounted", "{all}");
        let root = dump(&dev, &["inode", "2"]);
        assert_eq!((&root["mode"], &root["nlink"]), (&"0o40755".into(), &3.into()));
        let entries = dump(&dev, &["dir", "2"]).to_string();
        assert!(entries.contains("\"long link\"") && entries.contains("\"..\""), "{entries}");
        let fs = mount(&dev.snapshot());
        let ino = fs.lookup(fs.root(), b"large").unwrap().ino.to_string();
        let large = dump(&dev, &["inode", &ino]);
        assert_eq!(large["xattrs"][0]["name"], "user.colour");
        let runs = dump(&dev, &["map", &ino])["runs"].to_string();
        assert!(runs.contains("indirect block, level 3"), "{runs}");
        let segment = dump(&dev, &["segment", "0"]);
        let partials = segment["partials"].as_array().unwrap();
        assert!(!partials.is_empty() && partials.iter().all(|p| p["whole"] == true), "{segment}");
        assert!(partials.iter().any(|p| p["blocks"].to_string().contains("Data(0)")), "{segment}");
        let frag = root["db"][0]["frag"].to_string();
        assert!(dump(&dev, &["block", &frag])["bytes"][0].as_str().unwrap().starts_with("02000000"));
        let e = Lfs.dump(&Devices::single(dev.clone()), &["nothing"]).unwrap_err().to_string();
        assert!(e.contains("superblock, checkpoints, usage"), "{e}");
        let e = Lfs.dump(&Devices::single(dev.clone()), &["inode", "4000"]).unwrap_err().to_string();
        assert!(e.starts_with("there is no inode 4000: the inode map has "), "{e}");
        assert!(Lfs.dump(&Devices::single(dev.clone()), &["segment", "100000"]).is_err());
    }
}

/// The checksums of all structures are where the structures says, and right.
#[test]
fn sealing_what_is_whole_changes_nothing() {
    for (name, dev) in volumes() {
        let (before, all) = (dev.to_bytes(), structures(&dev));
        for s in &all {
            Lfs.reseal(&dev, s).unwrap();
            assert!(before == dev.to_bytes(), "{name}: {} {}", s.kind, s.number);
        }
        let mut kinds: Vec<&str> = all.iter().map(|s| s.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let expected = [
            "attributes",
            "checkpoint",
            "directory chunk",
            "indirect block",
            "indirect block of the ifile",
            "inode map block",
            "inode, directory",
            "inode, file",
            "inode, ifile",
            "inode, symbolic link",
            "summary",
            "superblock",
            "superblock copy",
            "symbolic link block",
            "usage block",
        ];
        assert_eq!(kinds, expected, "{name}");
    }
}

/// What is changed and sealed is believed: by a mount, and by roll-forward, which reads summaries and what they cover.
#[test]
fn what_is_sealed_is_believed() {
    for (name, dev) in volumes() {
        for s in structures(&dev) {
            let copy = dev.snapshot();
            let bytes = |copy: &MemDevice| copy.to_bytes()[s.offset as usize..][..s.len].to_vec();
            let patch = |at: usize, new: &[u8]| {
                let mut all = copy.to_bytes();
                all[s.offset as usize + at..][..new.len()].copy_from_slice(new);
                copy.write_at(Kind::Other, 0, &all).unwrap();
                Lfs.reseal(&copy, &s).unwrap();
            };
            match s.kind {
                "directory chunk" if bytes(&copy).windows(9).any(|w| w == b"long link") => {
                    let at = bytes(&copy).windows(9).position(|w| w == b"long link").unwrap();
                    patch(at, b"wrong");
                    let fs = mount(&copy);
                    assert!(fs.lookup(fs.root(), b"wronglink").is_ok(), "{name}");
                }
                "inode, directory" if s.number == 2 => {
                    let field = s.fields.iter().find(|f| f.name == "Dinode.uid").unwrap();
                    patch(field.at as usize, &77u32.to_le_bytes());
                    let fs = mount(&copy);
                    assert_eq!(fs.getattr(fs.root()).unwrap().uid, 77, "{name}");
                }
                "indirect block" => {
                    let field = s.fields.iter().find(|f| f.name == "Pointer").unwrap();
                    patch(field.at as usize, &[0; 8]);
                    let fs = mount(&copy);
                    let ino = fs.lookup(fs.root(), b"large").unwrap().ino;
                    // No block on the way is called damaged.
                    FAR.iter().for_each(|at| assert_eq!(fs.read(ino, *at, &mut [0; 13]).unwrap(), 13));
                }
                _ => {}
            }
        }
    }
}
