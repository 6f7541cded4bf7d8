//! Read-ahead never shows what has been written over, and brings what a walk is about to read.

mod small_cache;

use arbor_base::device::MemDevice;
use arbor_base::vfs::*;
use arbor_yfs::Yfs;
use std::sync::Arc;

#[test]
fn files_larger_than_the_cache_are_read_as_they_were_written() {
    for seed in 1..=4 {
        assert_eq!(small_cache::run(seed, 6000), None);
    }
}

fn formatted() -> MemDevice {
    let dev = MemDevice::new(64 << 20);
    let options = FormatOptions { uuid: [3; 16], options: Options::parse("logsize=1M"), ..Default::default() };
    Yfs.format(Devices::single(dev.clone()), &options).unwrap();
    dev
}

fn mount(dev: &MemDevice, options: &str) -> Arc<dyn FileSystem> {
    let options = MountOptions { options: Options::parse(options), ..MountOptions::default() };
    Yfs.mount(Devices::single(dev.clone()), &options, Arc::new(SystemClock)).unwrap()
}

/// Makes so many files of 6,000 bytes.
fn fill(fs: &dyn FileSystem, files: u32) {
    for n in 0..files {
        let file = fs.mknod(&Cx::default(), fs.root(), format!("{n}").as_bytes(), mode::IFREG | 0o644, 0).unwrap().ino;
        fs.write(file, 0, &[n as u8; 6000]).unwrap();
    }
}

fn read_all(fs: &dyn FileSystem, files: u32) {
    let mut buf = [0; 6000];
    for n in 0..files {
        let file = fs.lookup(fs.root(), format!("{n}").as_bytes()).unwrap().ino;
        assert_eq!((fs.read(file, 0, &mut buf).unwrap(), buf), (6000, [n as u8; 6000]));
    }
}

fn metadata_reads(fs: &dyn FileSystem) -> u64 {
    fs.counters().iter().find(|c| c.0 == "metadata_reads").map_or(0, |c| c.1)
}

/// Gives out `most` entries of `dir` with their attributes, from `cookie` on; where it stopped.
fn walk(fs: &dyn FileSystem, dir: Ino, cookie: u64, most: usize) -> (Vec<Ino>, u64) {
    let (mut dirs, mut at, mut left) = (Vec::new(), cookie, most);
    fs.readdir_plus(dir, cookie, &mut |e, attr| {
        if left == 0 {
            return false;
        }
        left -= 1;
        at = e.cookie;
        dirs.extend(attr.filter(|a| a.file_type() == FileType::Dir).map(|a| a.ino));
        true
    })
    .unwrap();
    (dirs, at)
}

#[test]
fn a_walk_finds_its_next_piece_in_the_cache() {
    let dev = formatted();
    let (fs, cx) = (mount(&dev, ""), Cx::default());
    for d in 0..4 {
        let dir = fs.mkdir(&cx, fs.root(), format!("d{d}").as_bytes(), 0o755).unwrap().ino;
        for n in 0..900 {
            fs.mknod(&cx, dir, format!("{n:0>40}").as_bytes(), mode::IFREG | 0o644, 0).unwrap();
        }
    }
    fs.unmount().unwrap();
    let fs = mount(&dev, "");
    let bring = || {
        let before = metadata_reads(&*fs);
        while fs.wants_read_ahead() {
            fs.read_ahead();
        }
        metadata_reads(&*fs) - before
    };
    let (dirs, _) = walk(&*fs, fs.root(), 0, usize::MAX);
    assert_eq!(dirs.len(), 4);
    let mut brought = 0;
    for dir in dirs {
        let mut at = 0;
        for _ in 0..3 {
            brought += bring();
            let before = metadata_reads(&*fs);
            (_, at) = walk(&*fs, dir, at, 400);
            assert_eq!(metadata_reads(&*fs), before);
        }
    }
    assert!(brought > 4, "{brought}");
    // All is in the cache now.
    assert_eq!(bring(), 0);
    for _ in 0..10 {
        walk(&*fs, fs.root(), 0, usize::MAX);
        assert_eq!(bring(), 0);
    }
    assert!(!fs.wants_read_ahead());
}

#[test]
fn small_files_are_read_without_what_lies_beside_them_if_asked() {
    let dev = formatted();
    let fs = mount(&dev, "");
    fill(&*fs, 200);
    fs.unmount().unwrap();
    let windows_of = |options: &str| {
        let fs = mount(&dev, options);
        read_all(&*fs, 200);
        fs.unmount().unwrap();
        fs.counters().iter().find(|c| c.0 == "windows_read").map_or(0, |c| c.1)
    };
    assert!(windows_of("") > 0);
    assert_eq!(windows_of("nowindows"), 0);
}

/// More small files than windows hold are read twice: the second time the cache has all of them.
#[test]
fn what_windows_brought_is_kept() {
    let dev = formatted();
    let fs = mount(&dev, "");
    fill(&*fs, 2000);
    fs.unmount().unwrap();
    // Windows have a sixteenth of it.
    let fs = mount(&dev, "cache=32M");
    let misses = || {
        let count = |name| fs.counters().iter().find(|c| c.0 == name).map_or(0, |c| c.1);
        let before = [count("windows_read"), count("windows_hits"), count("data_reads")];
        read_all(&*fs, 2000);
        [count("windows_read") - before[0], count("windows_hits") - before[1], count("data_reads") - before[2]]
    };
    let first = misses();
    assert!(first[0] > 20 && first[1] > 1000, "{first:?}");
    assert_eq!(misses(), [0, 0, 0]);
}
