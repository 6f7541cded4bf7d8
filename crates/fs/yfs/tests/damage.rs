//! Each issue of the checker planted in a good image, found, mended; the other files intact.

mod damage_kit;

use arbor_base::device::{CrashChoice, FaultDevice, FaultOp, FaultTimes, MemDevice, RecordingDevice};
use arbor_base::layout::{crc_without, get_u32, get_u64};
use arbor_base::vfs::*;
use arbor_torture::damage::{every_issue_is_planted as all_planted, named, regions_are_what_is_used};
use arbor_yfs::Yfs;
use arbor_yfs::format::*;
use damage_kit::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn a_good_image_has_no_issues() {
    for image in [good(), small()] {
        for repair in [Repair::No, Repair::Preen, Repair::Yes] {
            let report = check(&image, repair);
            assert_eq!(report.issues, vec![], "{repair:?}");
            assert!(!report.skipped && report.files > 60 && report.directories > 2);
        }
    }
    let before = good().to_bytes();
    let image = good();
    check(&image, Repair::Yes);
    assert!(before == image.to_bytes(), "a good image is not written to");
}

/// Every pass says what it does, goes forward, and does not claim more than there is.
#[test]
fn progress() {
    let image = good();
    let k = ImageCorruptor::new(image.clone());
    k.write(k.geom.inode_block(0).byte(), &[9; 1024]);
    k.write(ino("many") * SECTOR, &[7; 512]);
    let mut steps: Vec<(u64, u64, String)> = Vec::new();
    let options = CheckOptions { repair: Repair::Yes, force: true };
    Yfs.check(Devices::single(image), &options, &mut |done, total, what| steps.push((done, total, what.into())))
        .expect("check");
    for (a, b) in steps.iter().zip(steps.iter().skip(1)) {
        assert!(a.0 <= a.1, "{a:?}");
        assert!(a.2 != b.2 || a.0 <= b.0 || a.2.starts_with("searching"), "{a:?} then {b:?}");
    }
    for what in [
        "allocation groups",
        "searching for inodes",
        "inodes",
        "searching for lost blocks",
        "names",
        "links",
        "rebuilding",
        "inode masks",
        "bitmaps",
    ] {
        assert!(steps.iter().any(|s| s.2 == what), "{what} in {steps:?}");
    }
    // Nothing takes long between two steps: inodes and names go by in small groups.
    assert!(steps.iter().filter(|s| s.2 == "inodes").count() > CROWD / 64 / 40);
    assert!(steps.iter().filter(|s| s.2 == "names").count() > 30);
}

#[test]
fn one_path() {
    let path = |image: &MemDevice, path: &str| Yfs.check_path(Devices::single(image.clone()), path.as_bytes());
    let image = good();
    let before = image.to_bytes();
    for (p, inodes) in
        [("/", 1), ("/a/x/y/z/leaf", 6), ("b/holey", 3), ("/many/file number 7", 3), ("/crowd", 2), ("/a/long", 3)]
    {
        let report = path(&image, p).expect("check");
        assert_eq!((report.issues, report.files), (vec![], inodes), "{p}");
    }
    assert!(before == image.to_bytes());
    for p in ["/nobody", "/a/inline/x", "/crowd/99999"] {
        assert!(path(&image, p).expect_err("missing").to_string().contains("there is no"), "{p}");
    }
    let find = |p: &str, damage: &dyn Fn(&ImageCorruptor)| {
        let image = good();
        damage(&ImageCorruptor::new(image.clone()));
        let after = image.to_bytes();
        let report = path(&image, p).expect("check");
        assert!(after == image.to_bytes(), "nothing is written");
        report.issues
    };
    let one = |p: &str, code: &str, says: &str, damage: &dyn Fn(&ImageCorruptor)| {
        let issues = find(p, damage);
        assert!(issues.iter().any(|i| i.code == code && i.text.contains(says)), "{code} at {p}: {issues:#?}");
        let elsewhere = find("/b/odd", damage);
        assert_eq!(elsewhere, vec![], "{code} at {p} does not matter elsewhere");
    };
    one("/a/inline", "InodeSalvaged", "(/a/inline)", &|k| {
        k.change(ino("a/inline") * SECTOR, 512, None, |b| flip(b, 300))
    });
    one("/a/x/y", "InodeDamaged", "(/a/x)", &|k| k.write(ino("a/x") * SECTOR, &[7; 512]));
    one("/b/holey", "MapTree", "(/b/holey)", &|k| k.write(k.child(&k.get(ino("b/holey")).1, 0), &[3; 1024]));
    one("/many", "DirBlock", "(/many)", &|k| k.change(k.dir_block(ino("many")), 1024, None, |b| flip(b, 99)));
    one("/a/heavy", "Xattr", "(/a/heavy)", &|k| k.inode(ino("a/heavy"), |d| d.xattr = 7.into()));
    // The bitmap shows a fragment of the file free.
    let free = |k: &ImageCorruptor| {
        let start = get_u64(&k.get(ino("b/large")).1, 16).expect("extent");
        let bit = (start - k.geom.ag_start(k.geom.ag_of(Frag(start))).0) as u32;
        let at = k.geom.bitmap_block(k.geom.ag_of(Frag(start)), bit / k.geom.bits_per_bitmap()).byte();
        let bit = (bit % k.geom.bits_per_bitmap()) as usize;
        k.block(at, |b| b[HEADER + bit / 8] &= !(1 << (bit % 8)));
    };
    one("/b/large", "BitmapFree", "1 fragments", &free);
    // Not its neighbours: only what lies on the path is read.
    let image = good();
    let counted = FaultDevice::new(image.clone());
    Yfs.check_path(Devices::single(counted.clone()), b"/crowd/77").expect("check");
    let reads = counted.count(FaultOp::Read);
    assert!(reads < 60, "{reads} reads");
}

#[test]
fn a_clean_volume_is_skipped() {
    let report = Yfs
        .check(Devices::single(good()), &CheckOptions { repair: Repair::Preen, force: false }, &mut |_, _, _| ())
        .expect("check");
    assert!(report.skipped);
}

#[test]
fn description_and_dumps() {
    let devices = Devices::single(good());
    regions_are_what_is_used(&Yfs, &good());
    let holey = ino("b/holey").to_string();
    let many = ino("many").to_string();
    for what in [
        &["superblock"][..],
        &["log"],
        &["log", "entries"],
        &["ag", "0"],
        &["inode", &holey],
        &["tree", &holey],
        &["tree", &many],
        &["dir", &many],
        &["free", "1"],
    ] {
        let value = Yfs.dump(&devices, what).expect("dump");
        assert!(!value.to_string().contains("damage\":\""), "{value}");
    }
    assert!(Yfs.dump(&devices, &["nonsense"]).is_err());
}

/// Plants damage in the good image. A check without repair must find all `codes`, a repair must
/// leave nothing for the next check and everything intact whose path has no prefix in `lost`.
fn plant(codes: &[&str], lost: &[&str], damage: impl FnOnce(&ImageCorruptor)) -> CheckReport {
    let image = good();
    damage(&ImageCorruptor::new(image.clone()));
    heal(image, codes, lost)
}

fn heal(image: MemDevice, codes: &[&str], lost: &[&str]) -> CheckReport {
    let before = image.to_bytes();
    let found = check(&image, Repair::No);
    assert!(before == image.to_bytes(), "{codes:?}: a check without repair wrote");
    for code in codes {
        assert!(found.issues.iter().any(|i| i.code == *code && !i.repaired), "{code} in {:#?}", found.issues);
    }
    let damaged = image.snapshot();
    let report = check(&image, Repair::Yes);
    for code in codes {
        assert!(report.issues.iter().any(|i| i.code == *code && i.repaired), "{code} in {:#?}", report.issues);
    }
    assert_eq!(report.remaining(), 0, "{:#?}", report.issues);
    let again = check(&image, Repair::No);
    assert_eq!(again.issues, vec![], "{codes:?}, after {:#?}", report.issues);
    let fs = mount(&image);
    let now = tree(&*fs);
    for (path, then) in good_tree() {
        if !is_lost(lost, path) {
            assert_eq!(now.get(path), Some(then), "{codes:?}: {path}, after {:#?}", report.issues);
        }
    }
    killed(damaged, &now, codes);
    use_it(&*fs).unwrap_or_else(|e| assert_eq!(e.errno(), Errno::ENOSPC));
    fs.unmount().expect("unmount");
    assert_eq!(check(&image, Repair::No).issues, vec![], "{codes:?}, after use");
    report
}

/// Like [`plant`], and preening must mend it too.
fn plant_safe(codes: &[&str], damage: impl Fn(&ImageCorruptor)) {
    let image = good();
    damage(&ImageCorruptor::new(image.clone()));
    let report = check(&image, Repair::Preen);
    assert_eq!(report.remaining(), 0, "{codes:?}: {:#?}", report.issues);
    assert_eq!(check(&image, Repair::No).issues, vec![], "{codes:?}");
    plant(codes, &[], damage);
}

fn use_it(fs: &dyn FileSystem) -> Result<()> {
    let new = fs.mkdir(&CX, fs.root(), b"new", 0o755)?.ino;
    let x = fs.mknod(&CX, new, b"x", mode::IFREG | 0o644, 0)?.ino;
    fs.write(x, 0, &bytes(100_000, 9)).map(drop)
}

/// A repair that loses the power anywhere leaves what another can mend, and loses no more than one
/// that is not disturbed. At one place, another each time, or at all of them if the environment
/// says so.
fn killed(image: MemDevice, healed: &Tree, codes: &[&str]) {
    let device = RecordingDevice::new(image);
    let options = CheckOptions { repair: Repair::Yes, force: true };
    Yfs.check(Devices::single(device.clone()), &options, &mut |_, _, _| ()).expect("check");
    let events = device.events();
    static TURN: AtomicUsize = AtomicUsize::new(1);
    let all = std::env::var_os("ARBOR_ALL_KILLS").is_some();
    let one = events * (TURN.fetch_add(3, Ordering::Relaxed) % 8) / 8;
    for at in (1..events).filter(|at| all || *at == one.max(1)) {
        let choices = [CrashChoice::AllKept, CrashChoice::NoneKept, CrashChoice::Seeded(at as u64)];
        let image = device.crash_state(at, &choices[(at + events) % 3]);
        let report = check(&image, Repair::Yes);
        assert_eq!(report.remaining(), 0, "{codes:?}, killed at {at} of {events}: {:#?}", report.issues);
        let again = check(&image, Repair::No).issues;
        assert_eq!(again, vec![], "{codes:?}, killed at {at} of {events}: {:#?}", report.issues);
        let now = tree(&*mount(&image));
        for (path, then) in healed {
            assert_eq!(
                now.get(path),
                Some(then),
                "{codes:?}, killed at {at} of {events}: {path}, {:#?}",
                report.issues
            );
        }
    }
}

/// Whether a path begins with one of `lost`, or is one that stands there with a `=`.
fn is_lost(lost: &[&str], path: &str) -> bool {
    lost.iter().any(|l| l.strip_prefix('=').map_or(path.starts_with(l), |l| l == path))
}

fn flip(bytes: &mut [u8], at: usize) {
    bytes[at] ^= 0x55;
}

#[test]
fn superblock() {
    plant(&["SuperDamaged"], &[], |k| k.write(0, &[0; 512]));
    plant(&["SuperDamaged"], &[], |k| k.change(0, 512, None, |b| flip(b, 60)));
    plant(&["SuperDamaged"], &[], |k| k.super_block(|sb| sb.ag_frags = 77.into()));
    plant_safe(&["SuperCopy"], |k| k.write(k.byte(k.geom.ag_start(1).0), &[0; 512]));
    plant_safe(&["SuperCopy"], |k| k.write(SECTOR, &[0; 512]));
    // Wherever a byte is wrong, a feature bit, the version, the magic: it is damage, and put back.
    for at in [0, 9, 13, 17, 21, 25, 40, 112, 128, 150, 168] {
        let report = plant(&["SuperDamaged"], &[], |k| k.change(0, 512, None, |b| flip(b, at)));
        assert!(report.issues[0].text.contains("its checksum tells what it was"), "{}", report.issues[0].text);
    }
    // The first sectors are gone, then all headers of the first AG.
    plant(&["SuperDamaged", "SuperCopy"], &[], |k| k.write(0, &[0; 1024]));
}

/// A small volume, of which only the first AG is in use.
#[test]
fn superblock_of_a_small_volume() {
    let good = small().to_bytes();
    let ag = ImageCorruptor::new(small()).geom.ag_frags * 512;
    let lose = |at: &[u64], codes: &[&str]| {
        let image = MemDevice::from_bytes(&good);
        let k = ImageCorruptor::new(image.clone());
        at.iter().for_each(|at| k.change(*at, 512, None, |b| b[100..200].fill(0xee)));
        let report = check(&image, Repair::Yes);
        assert_eq!(report.issues.iter().map(|i| i.code).collect::<Vec<_>>(), codes);
        if report.remaining() == 0 {
            assert_eq!(check(&image, Repair::No).issues, vec![]);
            assert_eq!(tree(&*mount(&image)), tree(&*mount(&small())));
        }
        report
    };
    lose(&[0], &["SuperDamaged"]);
    lose(&[0, 512], &["SuperDamaged", "SuperCopy"]);
    lose(&[0, ag], &["SuperDamaged", "SuperCopy"]);
    lose(&[512, ag], &["SuperCopy", "SuperCopy"]);
    let report = lose(&[0, 512, ag], &["SuperLost"]);
    assert!(report.remaining() > 0);
    // Two bytes wrong and no copy: the fields serve if the first AG agrees, whatever the features say.
    let image = MemDevice::from_bytes(&good);
    let k = ImageCorruptor::new(image.clone());
    k.write(512, &[0; 512]);
    k.write(ag, &[0; 512]);
    k.change(0, 512, None, |b| {
        b[25] = 1;
        b[60] = 1;
    });
    let report = check(&image, Repair::Yes);
    assert_eq!((report.issues[0].code, report.remaining()), ("SuperDamaged", 0));
    assert_eq!(check(&image, Repair::No).issues, vec![]);
}

/// The copies know of what a volume has grown by.
#[test]
fn superblock_of_a_grown_volume() {
    for size in [4 << 20, 6 << 20, 10 << 20] {
        let image = format(size, "ag=4M,block=1K,frag=512,logsize=700K");
        Yfs.resize(Devices::single(image.clone()), 20 << 20, Arc::new(SystemClock)).expect("resize");
        assert_eq!(check(&image, Repair::No).issues, vec![], "{size}");
        let fs = mount(&image);
        let x = fs.mknod(&CX, fs.root(), b"x", mode::IFREG | 0o644, 0).expect("mknod").ino;
        let (mut at, chunk) = (0, bytes(65536, 5));
        while let Ok(n) = fs.write(x, at, &chunk) {
            at += n as u64;
        }
        fs.unmount().expect("unmount");
        let then = tree(&*mount(&image));
        let k = ImageCorruptor::new(image.clone());
        assert!(k.sb.ag_used.get() > 3, "{}", k.sb.ag_used);
        for gone in [512, 1024, u64::from(k.geom.ag_meta_frags()) * 512] {
            let image = image.snapshot();
            ImageCorruptor::new(image.clone()).write(0, &vec![0xee; gone as usize]);
            let report = check(&image, Repair::Yes);
            assert_eq!(report.remaining(), 0, "{size}, {gone}: {:#?}", report.issues);
            assert_eq!(check(&image, Repair::No).issues, vec![], "{size}, {gone}");
            assert!(tree(&*mount(&image)) == then, "{size}, {gone}: {:#?}", report.issues);
        }
    }
}

/// A feature bit that a sound superblock has is no damage: the volume is newer than the program.
#[test]
fn a_newer_volume_is_refused() {
    let image = good();
    ImageCorruptor::new(image.clone()).super_block(|sb| sb.incompat = 0x8000.into());
    let options = CheckOptions { repair: Repair::Yes, force: true };
    assert!(Yfs.check(Devices::single(image.clone()), &options, &mut |_, _, _| ()).is_err());
}

#[test]
fn preening_stops_at_a_surprise() {
    let image = good();
    let k = ImageCorruptor::new(image.clone());
    k.inode(ino("b/large"), |d| d.frags = 1.into());
    k.write(ino("a/linked") * SECTOR, &[7; 512]);
    let report = check(&image, Repair::Preen);
    assert!(report.remaining() > 0);
    let report = check(&image, Repair::Yes);
    assert_eq!(report.remaining(), 0);
    assert_eq!(check(&image, Repair::No).issues, vec![]);
}

#[test]
fn log() {
    let at = |k: &ImageCorruptor| k.sb.log_start.get() * SECTOR;
    plant(&["LogAnchors"], &[], |k| {
        k.write(at(k), &[0; 1024]);
        k.super_block(|sb| sb.clean = 0.into());
    });
    // A clean volume needs no anchor.
    let image = good();
    let k = ImageCorruptor::new(image.clone());
    k.write(at(&k), &[0; 1024]);
    assert_eq!(check(&image, Repair::No).issues, vec![]);
}

/// What nothing here plants: no damage is known for which the space of what it destroys does not suffice
/// (`no_repair_depends_on_free_space`).
const ALONE: [&str; 1] = ["NoSpace"];

/// Each code that this file names is asserted where it is named.
#[test]
fn every_issue_is_planted() {
    let all = arbor_yfs::issues();
    let planted =
        [include_str!("damage.rs"), include_str!("external.rs")].into_iter().flat_map(|text| named(text, &all));
    all_planted(planted, &ALONE, &all);
}

/// A metadata block that the log has changes for is damaged when the power fails, or is none any more.
#[test]
fn a_damaged_block_under_the_log() {
    let crashed = |damage: &dyn Fn(&ImageCorruptor, u64)| {
        let image = small();
        let fs = mount(&image);
        let x = fs.mknod(&CX, fs.root(), b"late", mode::IFREG | 0o644, 0).expect("mknod").ino;
        fs.write(x, 0, &bytes(20_000, 7)).expect("write");
        fs.syncfs().expect("syncfs");
        let image = image.snapshot();
        let k = ImageCorruptor::new(image.clone());
        let ag = (0..k.sb.ag_used.get()).find(|ag| {
            let start = k.geom.ag_start(*ag).0;
            (start..start + k.geom.ag_frags).contains(&k.geom.frag_of(Daddr(x.0)).0)
        });
        damage(&k, k.geom.group_block(ag.expect("an AG")).byte());
        image
    };
    let found = |image: MemDevice, code: &str| {
        let before = image.to_bytes();
        let report = check(&image, Repair::No);
        assert!(report.issues.iter().any(|i| i.code == code && !i.repaired), "{code} in {:#?}", report.issues);
        assert!(before == image.to_bytes(), "{code}: a check without repair wrote");
        let report = check(&image, Repair::Yes);
        assert_eq!(report.remaining(), 0, "{:#?}", report.issues);
        assert_eq!(check(&image, Repair::No).issues, vec![], "{code}");
        assert!(tree(&*mount(&image)).contains_key("/late"), "{code}");
    };
    found(crashed(&|k, at| k.change(at, 1024, None, |b| flip(b, 1000))), "LogBlock");
    found(crashed(&|k, at| k.write(at, &[0xee; 1024])), "LogBlockLost");
}

#[test]
fn a_log_that_cannot_be_replayed() {
    let image = small();
    let fs = mount(&image);
    fs.mkdir(&CX, fs.root(), b"late", 0o755).expect("mkdir");
    fs.syncfs().expect("syncfs");
    let k = ImageCorruptor::new(image.clone());
    let at = (k.sb.log_start.get() + u64::from(LOG_FIRST)) * SECTOR;
    let len = RECORD_HEAD + get_u32(&k.read(at, 512), std::mem::offset_of!(LogHeader, len)).expect("len") as usize;
    k.change(at, len.next_multiple_of(512), None, |b| {
        b[RECORD_HEAD] = 99;
        let at = std::mem::offset_of!(LogHeader, crc);
        let crc = crc_without(&b[..len], at).expect("crc");
        b[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    });
    let damaged = image.to_bytes();
    for repair in [Repair::No, Repair::Preen] {
        let report = check(&image, repair);
        assert_eq!((report.issues[0].code, report.issues[0].repaired), ("LogDamaged", false));
        assert!(damaged == image.to_bytes(), "preening does not write around a damaged log");
    }
    let report = check(&image, Repair::Yes);
    assert_eq!((report.issues[0].code, report.remaining()), ("LogDamaged", 0));
    assert_eq!(check(&image, Repair::No).issues, vec![]);
    mount(&image).unmount().expect("unmount");
}

#[test]
fn group_headers() {
    let group = |k: &ImageCorruptor, ag| k.geom.group_block(ag).byte();
    plant(&["GroupBlock"], &[], |k| k.write(group(k, 1), &[9; 1024]));
    plant(&["GroupBlock"], &[], |k| k.block(group(k, 0), |b| flip(b, HEADER + 8)));
    plant_safe(&["FreeCount"], |k| k.block(group(k, 0), |b| flip(b, HEADER)));
    plant_safe(&["DirCount"], |k| k.block(group(k, 0), |b| flip(b, HEADER + 4)));
    let inodes = |k: &ImageCorruptor, ag| k.geom.inode_block(ag).byte();
    plant_safe(&["InodeCount"], |k| k.block(inodes(k, 0), |b| flip(b, HEADER)));
    plant_safe(&["FreeInodes"], |k| k.block(inodes(k, 0), |b| flip(b, HEADER + 4)));
    plant(&["InodeBlock"], &[], |k| k.write(inodes(k, 0), &[9; 1024]));
    plant(&["InodeBlock"], &[], |k| k.change(inodes(k, 1), 1024, None, |b| flip(b, 20)));
    plant(&["BitmapBlock"], &[], |k| k.write(k.geom.bitmap_block(0, 0).byte(), &[9; 1024]));
    plant_safe(&["BitmapFree"], |k| k.block(k.geom.bitmap_block(0, 0).byte(), |b| b[HEADER + 1] = 0));
    plant_safe(&["BitmapUsed"], |k| k.block(k.geom.bitmap_block(0, 0).byte(), |b| b[1023] = 0xff));
    plant_safe(&["BitmapFree"], |k| {
        let last = k.geom.ag_count - 1;
        if last < k.sb.ag_used.get() {
            return;
        }
        k.block(k.geom.bitmap_block(1, k.geom.bitmap_blocks - 1).byte(), |b| b[1023] = 0);
    });
}

/// The AG whose chunk tree has nodes.
fn chunk_node(k: &ImageCorruptor) -> (u64, u64) {
    for ag in 0..k.sb.ag_used.get() {
        let at = k.geom.inode_block(ag).byte();
        let body = k.read(at, 1024)[HEADER + 16..].to_vec();
        if body[2] > 0 {
            return (at, k.child(&body, 0));
        }
    }
    panic!("no chunk tree has nodes");
}

#[test]
fn chunk_trees() {
    plant(&["ChunkTree"], &[], |k| k.write(chunk_node(k).1, &[9; 1024]));
    plant(&["ChunkTree"], &[], |k| k.block(chunk_node(k).1, |b| b[HEADER] = 255));
    plant(&["ChunkTree"], &[], |k| k.block(chunk_node(k).0, |b| b[HEADER + 16 + 2] = 9));
    plant(&["ChunkTree", "ChunkRecord", "ChunkFound"], &[], |k| {
        k.block(chunk_node(k).1, |b| {
            let (first, second) = (get_u64(b, HEADER + 8).unwrap(), get_u64(b, HEADER + 24).unwrap());
            assert!(second > first);
            b[HEADER + 24..HEADER + 32].copy_from_slice(&(first + 1).to_le_bytes());
            b[HEADER + 40..HEADER + 48].copy_from_slice(&u64::MAX.to_le_bytes());
        });
    });
    plant_safe(&["FreeMask"], |k| k.block(chunk_node(k).1, |b| b[HEADER + 16..HEADER + 24].fill(0xff)));
}

#[test]
fn inodes() {
    let f = |k: &ImageCorruptor, path: &str, change: fn(&mut Dinode)| k.inode(ino(path), change);
    let files = &["/a/linked", "/b/second"];
    plant(&["InodeDamaged", "EntryTarget"], files, |k| k.write(ino("a/linked") * SECTOR, &[7; 512]));
    let paths = ["a/linked", "a/inline", "a/long", "a/marked", "a/heavy", "b/holey", "many", "crowd", "a"];
    for (n, path) in paths.iter().enumerate() {
        let damaged = |change: fn(&mut Dinode)| plant(&["InodeSalvaged"], &[], |k| f(k, path, change));
        let how: [fn(&mut Dinode); 3] = [|d| d.ino = 5.into(), |d| d.magic = 5.into(), |d| d.format = 9];
        damaged(how[n % 3]);
        // A single byte is put back, whatever it means.
        for at in [0, 5, 9, 20, 23, 25, 41, 46, 134, DINODE, 300].into_iter().skip(n % 4).step_by(4) {
            plant(&["InodeSalvaged"], &[], |k| k.change(ino(path) * SECTOR, 512, None, |b| flip(b, at)));
        }
    }
    for path in ["a/linked", "b/holey", "many", "crowd", "a", "b/few", "a/marked"] {
        // The type is lost; what the inode holds tells it.
        let report =
            plant(&["InodeSalvaged"], &[], |k| f(k, path, |d| d.mode = (0o170_000 | d.mode.get() & 0o777).into()));
        assert!(report.issues[0].text.contains(&format!("(/{path})")), "{}", report.issues[0].text);
        // So is everything but the contents.
        plant(&["InodeSalvaged"], &[&format!("/{path}"), "/b/second"], |k| {
            k.change(ino(path) * SECTOR, 512, None, |b| b[..30].fill(0xee));
        });
    }
    plant(&["InodeSalvaged"], &[], |k| f(k, "a/linked", |d| d.xattr_inline = 60_000.into()));
    let report =
        plant(&["InodeChecksum"], &[], |k| k.change(ino("a/linked") * SECTOR, 512, None, |b| b[56..60].fill(9)));
    assert!(report.issues[0].text.contains("cannot be verified"), "{}", report.issues[0].text);
    // A size that cannot be is cut to what is there.
    plant(&["InodeChecksum", "InodeField"], files, |k| {
        k.change(ino("a/linked") * SECTOR, 512, None, |b| b[40..48].copy_from_slice(&(1u64 << 45 | 3).to_le_bytes()));
    });
    let free = |k: &ImageCorruptor| {
        let paths = ["b/dir19/f", "b/dir18/f", "crowd/4199", "b/bulk3", "many/file number 299", "a/heavy", "a"];
        let last = |ino: &u64| k.geom.inode_at(Ino(*ino)).is_some_and(|p| p.1 / 512 < 63);
        let mut next = paths.into_iter().map(ino).filter(last).map(|n| n + 1);
        next.find(|n| k.get(*n).0.format == 0).expect("a free inode")
    };
    plant(&["FreeInode"], &[], |k| k.change(free(k) * SECTOR, 512, None, |b| b[0..20].fill(0xee)));
    plant(&["InodeField"], &["/a/linked", "/b/second"], |k| f(k, "a/linked", |d| d.size = 1.into()));
    plant(&["InodeField"], &["/a/linked", "/b/second"], |k| f(k, "a/linked", |d| d.size = u64::MAX.into()));
    plant(&["InodeField"], &["/a/inline"], |k| f(k, "a/inline", |d| d.size = 5000.into()));
    plant(&["InodeField"], &[], |k| f(k, "a/pipe", |d| d.size = 5000.into()));
    plant(&["InodeField"], &[], |k| f(k, "b/holey", |d| d.format = Format::Extent as u8));
    plant_safe(&["FragCount"], |k| f(k, "b/large", |d| d.frags = 1.into()));
    plant_safe(&["LinkCount"], |k| f(k, "a/linked", |d| d.nlink = 7.into()));
    plant_safe(&["LinkCount"], |k| f(k, "a", |d| d.nlink = 2.into()));
    plant(&["InodeField"], &[], |k| f(k, "a/short", |d| d.size = 0.into()));
    plant(&["InodeField"], &[], |k| f(k, "a/long", |d| d.size = 4000.into()));
    plant(&["Symlink", "EntryTarget"], &["/a/short"], |k| {
        k.raw_inode(ino("a/short"), |b| {
            b[40..48].fill(0);
            b[DINODE..].fill(0);
        })
    });
    plant(&["Symlink"], &["/a/long"], |k| k.raw_inode(ino("a/long"), |b| flip(b, DINODE + 16)));
    plant(&["Xattr"], &["/a/marked"], |k| {
        k.raw_inode(ino("a/marked"), |b| {
            let at = b.len() - usize::from(b[DINODE - 4]);
            b[at] = 255;
        })
    });
    plant(&["Xattr"], &["/a/heavy"], |k| f(k, "a/heavy", |d| d.xattr = 7.into()));
    plant(&["Xattr"], &["/a/heavy"], |k| f(k, "a/heavy", |d| d.xattr_frags = 3000.into()));
    plant(&["Xattr"], &["/a/heavy"], |k| {
        let d = k.get(ino("a/heavy")).0;
        k.change(k.byte(d.xattr.get()), 512, None, |b| flip(b, 100));
    });
}

#[test]
fn maps() {
    let holey = |k: &ImageCorruptor| k.get(ino("b/holey")).1;
    let large = |k: &ImageCorruptor, at: usize, v: u64| {
        k.raw_inode(ino("b/large"), |b| b[DINODE + at..DINODE + at + 8].copy_from_slice(&v.to_le_bytes()));
    };
    plant(&["MapTree"], &["/b/holey"], |k| k.write(k.child(&holey(k), 0), &[3; 1024]));
    plant(&["MapTree"], &["/b/holey"], |k| k.block(k.child(&holey(k), 0), |b| b[HEADER + 2] = 1));
    plant(&["MapTree"], &["/b/holey"], |k| k.block(k.child(&holey(k), 1), |b| b[HEADER..HEADER + 2].fill(0)));
    // The leaves say whose they are.
    plant(&["MapTree", "ExtentsFound"], &[], |k| k.raw_inode(ino("b/holey"), |b| b[DINODE] = 200));
    plant(&["MapTree", "ExtentsFound"], &[], |k| k.raw_inode(ino("b/holey"), |b| b[DINODE + 2] = 15));
    plant(&["InodeDamaged", "ExtentsFound"], &["=/b/holey"], |k| k.write(ino("b/holey") * SECTOR, &[7; 512]));
    plant(&["MapTree"], &["/b/holey"], |k| {
        k.raw_inode(ino("b/holey"), |b| {
            // Two children are one.
            let first = b[DINODE + 16..DINODE + 24].to_vec();
            b[DINODE + 32..DINODE + 40].copy_from_slice(&first);
        })
    });
    plant(&["MapTree"], &["/b/holey"], |k| {
        k.block(k.child(&holey(k), 0), |b| {
            let (one, two) = b[HEADER + 8..HEADER + 56].split_at_mut(24);
            one.swap_with_slice(two);
        })
    });
    plant(&["Extent"], &["/b/large"], |k| large(k, 16, u64::MAX));
    plant(&["Extent"], &["/b/large"], |k| large(k, 16, 1));
    plant(&["Extent"], &["/b/large"], |k| large(k, 24, 0));
    plant(&["Extent"], &["/b/large"], |k| large(k, 8, u64::MAX));
    plant(&["Extent"], &["/b/few"], |k| {
        k.raw_inode(ino("b/few"), |b| {
            let first = get_u64(b, DINODE + 8).unwrap();
            b[DINODE + 32..DINODE + 40].copy_from_slice(&(first + 1).to_le_bytes());
        })
    });
    plant(&["CrossLinked"], &["/b/large", "/b/odd"], |k| {
        let other = k.get(ino("b/odd")).1;
        large(k, 16, get_u64(&other, 16).unwrap());
    });
    plant(&["CrossLinked"], &["/b/large"], |k| large(k, 16, k.geom.frag_of(Daddr(ino("a"))).0));
    plant(&["CrossLinked"], &["/b/large"], |k| large(k, 16, k.geom.frag_of(Daddr(k.sb.log_start.get())).0 + 9));
    plant(&["CrossLinked", "Symlink"][..1], &["/b/large", "/a/long"], |k| {
        let other = k.get(ino("a/long")).1;
        large(k, 16, get_u64(&other, 16).unwrap());
    });
}

#[test]
fn directories() {
    let many = |k: &ImageCorruptor| k.dir_block(ino("many"));
    let body = HEADER + DIR_HEAD;
    let moved = &["/many"];
    // With a wrong checksum alone nothing is lost.
    plant(&["DirBlock"], &[], |k| k.change(many(k), 1024, None, |b| flip(b, 4)));
    plant(&["DirBlock", "Unreachable"], moved, |k| k.write(many(k), &[3; 1024]));
    plant(&["DirBlock", "Unreachable"], moved, |k| k.block(many(k), |b| flip(b, 24)));
    plant(&["DirEntries"], &[], |k| k.block(many(k), |b| b[HEADER + 2..HEADER + 4].copy_from_slice(&[12, 0])));
    plant(&["DirEntries"], &[], |k| k.block(many(k), |b| flip(b, HEADER + 4)));
    plant(&["DirEntries"], moved, |k| k.block(many(k), |b| flip(b, HEADER + 1)));
    plant(&["DirEntries"], moved, |k| k.block(many(k), |b| flip(b, body + 1)));
    plant(&["DirEntries"], moved, |k| k.block(many(k), |b| b[body] = body as u8));
    // A letter of a name: the file has another name then.
    plant(&["DirEntries"], moved, |k| k.block(many(k), |b| b[body + DIR_ENT] = b'X'));
    plant(&["EntryName", "DirEntries"], moved, |k| k.block(many(k), |b| b[body + DIR_ENT] = b'/'));
    plant(&["EntryTarget", "Unreachable"], moved, |k| k.block(many(k), |b| flip(b, body + 10)));
    plant(&["DuplicateName", "Unreachable"], moved, |k| {
        k.block(many(k), |b| {
            // The second entry becomes the first once more.
            let at = |b: &[u8], n: usize| HEADER + usize::from(b[n]) + (usize::from(b[n + 1]) << 8);
            let first = at(b, HEADER);
            let second = at(b, first);
            assert_eq!(b[first + 2], b[second + 2], "names of one length");
            let (hash, len) = (b[first + 4..first + 8].to_vec(), usize::from(b[first + 2]));
            let name = b[first + DIR_ENT..first + DIR_ENT + len].to_vec();
            b[second + 4..second + 8].copy_from_slice(&hash);
            b[second + 8] = 1;
            b[second + DIR_ENT..second + DIR_ENT + len].copy_from_slice(&name);
        });
    });
    plant_safe(&["EntryKind"], |k| k.block(many(k), |b| b[body + 3] = 1));
    // The blocks say whose they are.
    plant(&["MapTree", "DirBlocksFound"], &[], |k| {
        let root = k.get(ino("crowd")).1;
        assert!(root[2] > 0, "a directory with a tree of blocks");
        k.write(k.child(&root, 0), &[3; 1024]);
    });
    plant(&["DirEntries", "Unreachable"], moved, |k| k.raw_inode(ino("many"), |b| b[DINODE..].fill(0)));
    plant(&["DirEntries"], &["/a"], |k| k.raw_inode(ino("a"), |b| flip(b, DINODE)));
    plant(&["InodeDamaged", "DirBlocksFound"], &["=/many"], |k| k.write(ino("many") * SECTOR, &[7; 512]));
    plant(&["DirBlocksFound"], &["=/crowd"], |k| k.write(ino("crowd") * SECTOR, &[0; 512]));
}

/// Where the entry `name` of an inline directory begins in its inode.
fn entry(k: &ImageCorruptor, dir: u64, name: &[u8]) -> usize {
    let area = k.get(dir).1;
    let at = area.windows(name.len()).position(|w| w == name).expect("the name");
    DINODE + at - DIR_ENT
}

#[test]
fn connections() {
    let point = |k: &ImageCorruptor, dir: &str, name: &str, to: u64| {
        let at = entry(k, ino(dir), name.as_bytes()) + 10;
        k.raw_inode(ino(dir), |b| b[at..at + 8].copy_from_slice(&to.to_le_bytes()));
    };
    plant(&["Parent"], &[], |k| k.inode(ino("a/x"), |d| d.parent = 99.into()));
    plant(&["Parent"], &[], |k| k.inode(ino(""), |d| d.parent = 99.into()));
    // x/y names the directory above it: a loop, and y hangs nowhere.
    plant(&["EntryTarget", "Unreachable"], &["/a/x/y"], |k| point(k, "a/x", "y", ino("a")));
    plant(&["EntryTarget", "Unreachable"], &["/a/x/y"], |k| point(k, "a/x", "y", ino("")));
    plant(&["EntryTarget", "Unreachable"], &["/a/x/y"], |k| point(k, "a/x", "y", ino("a/x")));
    plant(&["DirLoop"], &["/a"], |k| {
        // The root forgets a, x/y becomes a: a/x/y is a again.
        point(k, "", "a", ino("b/odd"));
        point(k, "a/x", "y", ino("a"));
    });
    // One name of a file points to another.
    plant(&["Unreachable", "LinkCount"], &["/a/inline"], |k| point(k, "a", "inline", ino("a/linked")));
}

#[test]
fn the_root() {
    let all = &["/"];
    plant(&["Root", "Unreachable"], all, |k| k.write(ino("") * SECTOR, &[7; 512]));
    plant(&["Root", "Unreachable"], all, |k| k.inode(ino(""), |d| d.mode = (mode::IFREG | 0o644).into()));
    // The root is found by its parent, which is itself.
    plant(&["RootMoved"], &[], |k| k.super_block(|sb| sb.root = u64::MAX.into()));
    plant(&["RootMoved"], &[], |k| k.super_block(|sb| sb.root = ino("a/inline").into()));
    plant(&["Root"], all, |k| {
        k.super_block(|sb| sb.root = ino("a/inline").into());
        k.inode(ino(""), |d| d.parent = ino("a").into());
    });
}

/// All of an AG's own structures are gone.
#[test]
fn whole_headers() {
    let header = |k: &ImageCorruptor, ag: u32| {
        let (from, frags) = (k.geom.ag_start(ag).0, k.geom.ag_meta_frags());
        k.write(k.byte(from), &vec![0xee; (u64::from(frags) * k.geom.frag_size()) as usize]);
    };
    let first = ["SuperDamaged", "SuperCopy", "InodeBlock", "ChunkFound", "GroupBlock", "BitmapBlock"];
    plant(&first, &[], |k| header(k, 0));
    plant(&["SuperCopy", "InodeBlock", "GroupBlock", "BitmapBlock"], &[], |k| header(k, 1));
    plant(&["InodeBlock", "GroupBlock", "BitmapBlock"], &[], |k| header(k, k.sb.ag_used.get() - 1));
    plant(&first, &[], |k| (0..k.sb.ag_used.get() - 1).for_each(|ag| header(k, ag)));
}

/// Superblock, log anchors, a header and the root directory at once.
#[test]
fn everything_at_once() {
    let codes = ["SuperDamaged", "LogAnchors", "InodeBlock", "Root", "Unreachable"];
    plant(&codes, &["/"], |k| {
        k.write(0, &[0xee; 1024]);
        k.write(k.sb.log_start.get() * SECTOR, &[0xee; 1024]);
        k.write(k.geom.inode_block(1).byte(), &[0xee; 1024]);
        k.write(ino("") * SECTOR, &[0xee; 512]);
    });
}

#[test]
fn recovery_lists() {
    let head = |k: &ImageCorruptor, to: u64| {
        let block = k.geom.inode_block(k.ag_of(ino("a"))).byte();
        k.block(block, |b| b[HEADER + 8..HEADER + 16].copy_from_slice(&to.to_le_bytes()));
    };
    plant(&["RecoveryList"], &[], |k| head(k, 12345));
    plant(&["RecoveryList"], &[], |k| head(k, ino("a/inline")));
    plant(&["RecoveryList", "LinkCount"], &[], |k| {
        head(k, ino("a/inline"));
        k.inode(ino("a/inline"), |d| d.nlink = 0.into());
    });
    plant(&["RecoveryList"], &[], |k| {
        head(k, ino("a/inline"));
        k.inode(ino("a/inline"), |d| (d.nlink, d.next) = (0.into(), ino("a/inline").into()));
    });
}

#[test]
fn what_has_no_name_gets_one() {
    let image = good();
    let lost = ino("many/file number 7");
    let k = ImageCorruptor::new(image.clone());
    k.write(k.dir_block(ino("many")), &[3; 1024]);
    let report = check(&image, Repair::Yes);
    let orphans: Vec<&Issue> = report.issues.iter().filter(|i| i.code == "Unreachable").collect();
    assert!(!orphans.is_empty());
    let fs = mount(&image);
    let found = fs.lookup(fs.root(), b"lost+found").expect("lost+found");
    let mut names = 0;
    fs.readdir(found.ino, 0, &mut |_| {
        names += 1;
        true
    })
    .expect("readdir");
    assert_eq!(names, orphans.len() + 2);
    if orphans.iter().any(|i| i.text.contains(&format!(" {lost} "))) {
        let attr = fs.lookup(found.ino, format!("#{lost}").as_bytes()).expect("lookup");
        let mut data = vec![0; 10];
        assert_eq!(fs.read(attr.ino, 0, &mut data).expect("read"), 1);
    }
    // A second loss uses the same directory.
    fs.unmount().expect("unmount");
    k.write(k.dir_block(ino("crowd")), &[3; 1024]);
    assert_eq!(check(&image, Repair::Yes).remaining(), 0);
    assert_eq!(check(&image, Repair::No).issues, vec![]);
    let fs = mount(&image);
    let mut more = 0;
    fs.readdir(found.ino, 0, &mut |_| {
        more += 1;
        true
    })
    .expect("readdir");
    assert!(more > names);
}

/// A checker killed at any write leaves what another can mend, and no more is lost.
fn killed_everywhere(lost: &[&str], damage: impl Fn(&ImageCorruptor)) {
    let image = good();
    damage(&ImageCorruptor::new(image.clone()));
    for n in 1.. {
        let image = image.snapshot();
        let faulty = FaultDevice::new(image.clone());
        faulty.fail(FaultOp::Write, n, FaultTimes::FromThenOn);
        let options = CheckOptions { repair: Repair::Yes, force: true };
        let killed = Yfs.check(Devices::single(faulty), &options, &mut |_, _, _| ()).is_err();
        let report = check(&image, Repair::Yes);
        assert_eq!(report.remaining(), 0, "killed at write {n}: {:#?}", report.issues);
        assert_eq!(check(&image, Repair::No).issues, vec![], "killed at write {n}: {:#?}", report.issues);
        let fs = mount(&image);
        let now = tree(&*fs);
        for (path, then) in good_tree() {
            if !is_lost(lost, path) {
                assert_eq!(now.get(path), Some(then), "killed at write {n}: {path}");
            }
        }
        if !killed {
            assert!(n > 3);
            return;
        }
    }
}

#[test]
fn a_killed_repair_is_no_harm() {
    killed_everywhere(&[], |k| k.write(chunk_node(k).1, &[9; 1024]));
    killed_everywhere(&[], |k| k.change(k.dir_block(ino("many")), 1024, None, |b| flip(b, 4)));
    killed_everywhere(&["/many", "/b/holey"], |k| {
        k.write(k.dir_block(ino("many")), &[3; 1024]);
        let holey = k.get(ino("b/holey")).1;
        k.write(k.child(&holey, 0), &[3; 1024]);
    });
    killed_everywhere(&["/"], |k| k.write(ino("") * SECTOR, &[7; 512]));
}

/// The good image, with no room left for anything.
fn full() -> MemDevice {
    let image = good();
    let fs = mount(&image);
    let x = fs.mknod(&CX, fs.root(), b"fill", mode::IFREG | 0o644, 0).expect("mknod").ino;
    let (chunk, mut at) = (bytes(65536, 5), 0);
    while let Ok(n) = fs.write(x, at, &chunk) {
        at += n as u64;
    }
    fs.syncfs().expect("syncfs");
    let mut n = 0;
    while fs.mknod(&CX, fs.root(), format!("small {n}").as_bytes(), mode::IFREG | 0o644, 0).is_ok() {
        n += 1;
    }
    fs.unmount().expect("unmount");
    assert_eq!(check(&image, Repair::No).issues, vec![]);
    image
}

#[test]
fn no_repair_depends_on_free_space() {
    let image = full();
    let k = ImageCorruptor::new(image.clone());
    k.change(k.dir_block(ino("crowd")), 1024, None, |b| flip(b, 4));
    let holey = k.get(ino("b/holey")).1;
    k.write(k.child(&holey, 0), &[3; 1024]);
    heal(image, &["DirBlock", "MapTree"], &["/b/holey"]);
    // A block of names is lost, and there may be no inode for lost+found.
    let image = full();
    let k = ImageCorruptor::new(image.clone());
    k.write(k.dir_block(ino("many")), &[3; 1024]);
    heal(image, &["DirBlock", "Unreachable"], &["/many"]);
}

/// A directory of thousands of names is lost, on a full volume: its blocks are room enough.
#[test]
fn lost_names_on_a_full_volume() {
    let image = full();
    let k = ImageCorruptor::new(image.clone());
    let body = k.get(ino("crowd")).1;
    assert_eq!(body[2], 1, "a tree of two levels");
    for n in 0..u16::from_le_bytes([body[0], body[1]]) {
        let leaf = k.read(k.child(&body, n.into()), 1024)[HEADER..].to_vec();
        for m in 0..usize::from(u16::from_le_bytes([leaf[0], leaf[1]])) {
            k.write(k.byte(get_u64(&leaf, 8 + 16 * m + 8).expect("block")), &[3; 1024]);
        }
    }
    heal(image, &["DirBlock", "Unreachable"], &["/crowd"]);
}

#[test]
fn damage_costs_only_itself() {
    arbor_torture::beside::damage_costs_only_itself(
        &Yfs,
        &[good(), small()],
        &|s| s.kind == "superblock" || s.kind.starts_with("inode") && s.number == 64,
        &[""],
    );
}

#[test]
fn an_outage_costs_nothing() {
    arbor_torture::outage::an_outage_costs_nothing(&Yfs, "");
}

#[test]
fn a_bad_sector_costs_its_block() {
    arbor_torture::badsector::a_bad_sector_costs_its_block(&Yfs, "", 4096);
}

#[test]
fn damage_of_one_promise_is_not_the_end_of_the_log() {
    use arbor_torture::midlog::damage_is_not_the_end_of_the_log;
    damage_is_not_the_end_of_the_log(&Yfs, ("", "", 3000), Some("LogGap"));
    damage_is_not_the_end_of_the_log(&Yfs, ("inode=1K,logsize=960K,ag=16M", "", 100), Some("LogGap"));
}
