//! Where nodes are put with each `layout=`, and what each `ordering=` writes.

mod damage_kit;

use arbor_base::device::{FaultDevice, FaultOp, Kind, MemDevice};
use arbor_base::vfs::*;
use arbor_reiserfs::ReiserFs;
use arbor_reiserfs::node::Block;
use damage_kit::{Knife, file, format};
use std::sync::Arc;

const NODE: usize = 4096;

fn mount(disk: &MemDevice, options: &str) -> Arc<dyn FileSystem> {
    let clock = Arc::new(ManualClock::new(Time { secs: 1_000_000, nanos: 0 }));
    let options = MountOptions { options: Options::parse(options), ..MountOptions::default() };
    ReiserFs.mount(Devices::single(disk.clone()), &options, clock).unwrap()
}

fn pointers(disk: &MemDevice, path: &str, blocks: u64) -> Vec<Block> {
    let knife = Knife::new(disk.clone());
    (0..blocks).map(|lbn| knife.pointer(path, lbn)).collect()
}

/// Three files of ten blocks, the second of which is removed, and then one of five, made with this layout.
fn placed(layout: &str) -> (MemDevice, [Vec<Block>; 3], Vec<Block>) {
    let disk = format(32 << 20, "");
    let fs = mount(&disk, "");
    for name in ["a", "b", "c"] {
        file(&*fs, fs.root(), name, 0, &vec![1; 10 * NODE]);
    }
    fs.unmount().unwrap();
    let old = ["/a", "/b", "/c"].map(|path| pointers(&disk, path, 10));
    let fs = mount(&disk, "");
    fs.unlink(fs.root(), b"b").unwrap();
    fs.unmount().unwrap();
    let fs = mount(&disk, layout);
    file(&*fs, fs.root(), "e", 0, &vec![2; 5 * NODE]);
    fs.unmount().unwrap();
    let new = pointers(&disk, "/e", 5);
    assert_eq!(damage_kit::check(&disk, Repair::No).issues, vec![], "{layout}");
    (disk, old, new)
}

#[test]
fn the_first_free_block_is_taken() {
    let (_, [_, hole, _], new) = placed("layout=first");
    assert_eq!(new, hole[..5]);
}

#[test]
fn the_search_goes_on_where_it_ended() {
    let disk = format(32 << 20, "");
    let fs = mount(&disk, "layout=last");
    let make = |name| file(&*fs, fs.root(), name, 0, &vec![1; 3 * NODE]);
    make("a");
    make("b");
    fs.unlink(fs.root(), b"a").unwrap();
    fs.syncfs().unwrap();
    make("c");
    fs.unmount().unwrap();
    let (b, c) = (pointers(&disk, "/b", 3), pointers(&disk, "/c", 3));
    assert!(c[0] > b[2], "{b:?}, {c:?}");
}

#[test]
fn unformatted_nodes_have_an_area_of_their_own() {
    let (disk, [a, _, _], new) = placed("layout=areas");
    let knife = Knife::new(disk);
    let covered = knife.geom.covered().min(knife.geom.copy());
    assert!(new[0] >= covered / 8 && a[0] < covered / 8, "{a:?}, {new:?}");
    assert!(new.windows(2).all(|pair| pair[1] == pair[0] + 1), "{new:?}");
}

/// While the elevator falls a node goes before its left neighbour, unless the layout says up.
#[test]
fn the_elevator_may_fall() {
    let appended = |layout: &str| {
        let (disk, [_, hole, c], _) = placed("layout=areas");
        Knife::new(disk.clone()).superblock(0, |sb| sb.direction = 1.into());
        let fs = mount(&disk, layout);
        file(&*fs, fs.root(), "c", 10 * NODE as u64, &vec![3; NODE]);
        fs.unmount().unwrap();
        (hole[9], c[9], pointers(&disk, "/c", 11)[10])
    };
    let (hole, _, fallen) = appended("");
    assert_eq!(fallen, hole);
    let (_, last, risen) = appended("layout=up");
    assert_eq!(risen, last + 1);
}

fn counter(fs: &dyn FileSystem, name: &str) -> u64 {
    fs.counters().into_iter().find(|c| c.0 == name).map(|c| c.1).unwrap()
}

/// Many small files: with `ordering=preserve` what is split off, or moves, does not go through the log.
#[test]
fn new_nodes_do_not_go_through_the_log() {
    let written = |ordering: &str| {
        let disk = format(32 << 20, "");
        let fs = mount(&disk, ordering);
        for n in 0..3000 {
            file(&*fs, fs.root(), &format!("file{n:04}"), 0, &[n as u8; 200]);
            if n % 500 == 0 {
                fs.syncfs().unwrap();
            }
        }
        fs.syncfs().unwrap();
        let found = ["log_bytes", "fresh_nodes", "moved_nodes"].map(|name| counter(&*fs, name));
        fs.unmount().unwrap();
        assert_eq!(damage_kit::check(&disk, Repair::No).issues, vec![], "{ordering}");
        (found, damage_kit::tree(&disk))
    };
    let ([journal, fresh, moved], one) = written("ordering=journal");
    assert_eq!((fresh, moved), (0, 0));
    let ([preserve, fresh, moved], other) = written("ordering=preserve");
    assert!(preserve * 3 < journal, "{preserve} bytes of log instead of {journal}");
    assert!(fresh > 200 && moved > 0 && moved < fresh, "{fresh} fresh nodes, {moved} of them had moved");
    assert!(one == other);
}

/// On a volume with little space nothing moves, and all can be deleted.
#[test]
fn a_full_volume_can_be_emptied() {
    let disk = format(8 << 20, "");
    let fs = mount(&disk, "ordering=preserve");
    let mut made = 0;
    while let Ok(e) = fs.mknod(&damage_kit::CX, fs.root(), format!("f{made:05}").as_bytes(), mode::IFREG | 0o644, 0) {
        made += 1;
        if fs.write(e.ino, 0, &[7; 300]).is_err() {
            break;
        }
    }
    assert!(made > 5000, "{made}");
    for n in 0..made {
        fs.unlink(fs.root(), format!("f{n:05}").as_bytes()).unwrap();
    }
    fs.unmount().unwrap();
    assert_eq!(damage_kit::check(&disk, Repair::No).issues, vec![]);
}

/// What the log holds is kept in memory until it is in place: at most a quarter of what the cache may have.
#[test]
fn a_small_cache_empties_the_log_early() {
    let checkpoints = |cache: &str| {
        let disk = format(256 << 20, "log=16M");
        let fs = mount(&disk, cache);
        for n in 0..4000 {
            file(&*fs, fs.root(), &format!("file{n:04}"), 0, &[n as u8; 300]);
        }
        fs.syncfs().unwrap();
        counter(&*fs, "checkpoints")
    };
    assert_eq!(checkpoints("cache=64M"), 0);
    assert!(checkpoints("cache=2M") > 1);
}

/// Where all is full near by, the search does not read its way through the volume.
#[test]
fn full_bitmaps_are_not_read_one_after_the_other() {
    let disk = format(300 << 20, "block=1K,log=1M");
    let fs = mount(&disk, "tails=none,cache=16M");
    // The root of the tree stays among what comes first.
    file(&*fs, fs.root(), "first", 0, &[1; 1024]);
    let large = file(&*fs, fs.root(), "large", 0, &[1; 1024]);
    (0..200u64).for_each(|n| assert_eq!(fs.write(large, n << 20, &vec![2; 1 << 20]).unwrap(), 1 << 20));
    fs.unmount().unwrap();
    let knife = Knife::new(disk.clone());
    assert!(knife.sb().bitmaps.get() > 48, "{}", knife.sb().bitmaps);
    let traced = FaultDevice::new(disk.clone());
    let clock = Arc::new(ManualClock::new(Time { secs: 1_000_000, nanos: 0 }));
    let fs = ReiserFs.mount(Devices::single(traced.clone()), &MountOptions::default(), clock).unwrap();
    traced.record();
    for n in 0..100 {
        file(&*fs, fs.root(), &format!("{n}"), 0, &[3; 1024]);
    }
    fs.syncfs().unwrap();
    let read = traced.recorded().into_iter().filter(|at| *at == (FaultOp::Read, Kind::Bitmap)).count();
    assert!((16..25).contains(&read), "{read} bitmaps");
    fs.unmount().unwrap();
    assert_eq!(damage_kit::check(&disk, Repair::No).issues, vec![]);
}

/// The search once gave up after 16 bitmaps, counted in both directions, and called a volume of fewer damaged that was full
/// but for what lies before the node that the search began at.
#[test]
fn the_last_free_blocks_are_found() {
    let disk = format(40 << 20, "block=1K,log=512K");
    let fs = mount(&disk, "tails=none");
    file(&*fs, fs.root(), "first", 0, &[1; 100 << 10]);
    let rest = file(&*fs, fs.root(), "rest", 0, &[]);
    let mut at = 0;
    while let Ok(n) = fs.write(rest, at, &[3; 4096]) {
        at += n as u64;
    }
    fs.unlink(fs.root(), b"first").unwrap();
    fs.unmount().unwrap();
    Knife::new(disk.clone()).superblock(0, |sb| sb.direction = 0.into());
    let fs = mount(&disk, "tails=none");
    // Each near its node, so that the search always begins here.
    for n in 0..40 {
        file(&*fs, fs.root(), &format!("{n}"), 0, &[2; 1024]);
    }
    fs.unmount().unwrap();
    assert_eq!(damage_kit::check(&disk, Repair::No).issues, vec![]);
}

/// Names of a directory after a cookie, at most so many, with their inode numbers and cookies.
fn listed(fs: &dyn FileSystem, dir: Ino, after: u64, most: usize) -> Vec<(Vec<u8>, Ino, u64)> {
    let mut all = Vec::new();
    fs.readdir(dir, after, &mut |e| {
        let goes_on = all.len() < most;
        if goes_on && e.name != b"." && e.name != b".." {
            all.push((e.name.to_vec(), e.ino, e.cookie));
        }
        goes_on
    })
    .unwrap();
    all
}

fn make(fs: &dyn FileSystem, numbers: std::ops::Range<u32>, data: &[u8]) {
    for n in numbers {
        file(fs, fs.root(), &named(n), 0, data);
    }
}

fn named(n: u32) -> String {
    format!("{:05x}{n}", n.wrapping_mul(2_654_435_761) >> 12)
}

fn is_ordered(all: &[(Vec<u8>, Ino, u64)]) -> bool {
    all.windows(2).all(|pair| pair[0].1 < pair[1].1)
}

/// A small directory is listed as it lies, a larger one by hashes, `listing=hash` always so.
#[test]
fn a_small_directory_is_listed_in_the_order_of_objects() {
    for (files, listing, wanted) in [(40, "", true), (40, "listing=hash", false), (800, "", false)] {
        let fs = mount(&format(32 << 20, ""), listing);
        make(&*fs, 0..files, b"some");
        let all = listed(&*fs, fs.root(), 0, usize::MAX);
        let made: Vec<u32> = all.iter().filter_map(|e| (0..files).find(|n| named(*n).as_bytes() == e.0)).collect();
        assert_eq!((all.len(), made.len()), (files as usize, files as usize));
        assert_eq!((is_ordered(&all), made.is_sorted()), (wanted, wanted), "{files} {listing:?}");
    }
}

/// A listing that was begun tells of each name that stays exactly once, though the directory becomes a large one and others go.
#[test]
fn a_listing_by_objects_goes_on_while_the_directory_changes() {
    let fs = mount(&format(32 << 20, ""), "");
    make(&*fs, 0..40, b"some");
    let twin = fs.lookup(fs.root(), named(20).as_bytes()).unwrap().ino;
    fs.link(twin, fs.root(), b"twin").unwrap();
    let mut seen = Vec::new();
    let mut cookie = 0;
    for step in 0.. {
        let some = listed(&*fs, fs.root(), cookie, 3);
        let Some(last) = some.last() else { break };
        cookie = last.2;
        seen.extend(some.into_iter().map(|e| String::from_utf8(e.0).unwrap()));
        match step {
            0 => fs.unlink(fs.root(), named(1).as_bytes()).unwrap(),
            1 => fs.unlink(fs.root(), named(39).as_bytes()).unwrap(),
            2 => make(&*fs, 1000..3000, b"more"),
            _ => {}
        }
    }
    let mut stayed: Vec<String> = (0..39).filter(|n| *n != 1).map(named).chain(["twin".into()]).collect();
    seen.retain(|name| stayed.contains(name));
    seen.sort();
    stayed.sort();
    assert_eq!(seen, stayed);
}

/// A name that another object takes while the directory is listed, before or behind where the listing is, is told once.
#[test]
fn a_name_that_another_object_takes_is_listed_once() {
    for (old, new) in [(30, 2), (2, 30)] {
        let fs = mount(&format(32 << 20, ""), "");
        make(&*fs, 0..40, b"some");
        let some = listed(&*fs, fs.root(), 0, 20);
        let (from, to) = (named(new), named(old));
        fs.rename(&Cx::default(), fs.root(), from.as_bytes(), fs.root(), to.as_bytes(), RenameFlags::empty()).unwrap();
        // Another listing begins meanwhile.
        assert_eq!(listed(&*fs, fs.root(), 0, usize::MAX).len(), 39);
        let rest = listed(&*fs, fs.root(), some.last().unwrap().2, usize::MAX);
        let all: Vec<Vec<u8>> = some.into_iter().chain(rest).map(|e| e.0).collect();
        let stayed = (0..40).filter(|n| *n != new).map(|n| named(n).into_bytes());
        for name in stayed {
            let times = all.iter().filter(|listed| **listed == name).count();
            assert_eq!(times, 1, "{} of {old} and {new}", String::from_utf8_lossy(&name));
        }
    }
}

/// Two names of one object that a cookie by objects would not tell apart: the directory is listed by hashes.
#[test]
fn links_that_a_cookie_does_not_tell_apart_are_both_listed() {
    let disk = format(32 << 20, "");
    let geom = Knife::new(disk.clone()).geom;
    let mut known = std::collections::HashMap::new();
    let (first, second) = (0..100_000)
        .find_map(|n| Some((known.insert(geom.name_offset(named(n).as_bytes()) & 0xfff_ffff, n)?, n)))
        .map(|(a, b)| (named(a), named(b)))
        .expect("two of so many names have the same 20 bits");
    let fs = mount(&disk, "");
    let ino = file(&*fs, fs.root(), &first, 0, b"some");
    fs.link(ino, fs.root(), second.as_bytes()).unwrap();
    let (mut seen, mut cookie) = (Vec::new(), 0);
    while let [(name, _, at)] = &listed(&*fs, fs.root(), cookie, 1)[..] {
        seen.push(String::from_utf8(name.clone()).unwrap());
        cookie = *at;
    }
    seen.sort();
    let mut wanted = [first, second];
    wanted.sort();
    assert_eq!(seen, wanted);
}
