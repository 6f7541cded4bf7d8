//! Several threads on one volume: readers that miss the cache beside deletes, write-back and the
//! bitmap daemon. Nothing hangs, nobody reads another file's bytes.

use arbor_base::device::MemDevice;
use arbor_base::vfs::*;
use arbor_yfs::Yfs;
use std::sync::Arc;

#[test]
fn readers_beside_deletes_and_the_daemon() {
    let dev = MemDevice::new(64 << 20);
    Yfs.format(Devices::single(dev.clone()), &FormatOptions { uuid: [3; 16], ..Default::default() }).unwrap();
    let options = MountOptions { options: Options::parse("cache=1M"), ..Default::default() };
    let fs = Yfs.mount(Devices::single(dev.clone()), &options, Arc::new(SystemClock)).unwrap();
    let cx = Cx::default();
    let make = |name: &str, byte: u8| {
        let e = fs.mknod(&cx, fs.root(), name.as_bytes(), mode::IFREG | 0o644, 0).unwrap();
        assert_eq!(fs.write(e.ino, 0, &vec![byte; 100_000]).unwrap(), 100_000);
        e.ino
    };
    let kept: Vec<Ino> = (0..40).map(|n| make(&format!("kept{n}"), n + 1)).collect();
    fs.syncfs().unwrap();
    std::thread::scope(|s| {
        for t in 0..2usize {
            let (fs, kept) = (&fs, &kept);
            s.spawn(move || {
                let mut buf = vec![0; 100_000];
                for n in 0..600 {
                    let k = (n * 7 + t * 13) % kept.len();
                    assert_eq!(fs.read(kept[k], 0, &mut buf).unwrap(), buf.len());
                    assert!(buf.iter().all(|b| *b == k as u8 + 1));
                }
            });
        }
        s.spawn(|| {
            for n in 0..300 {
                let ino = make(&format!("short{n}"), 0xee);
                fs.fsync(ino, false).unwrap();
                fs.unlink(fs.root(), format!("short{n}").as_bytes()).unwrap();
                fs.forget(ino, 1);
            }
        });
        s.spawn(|| {
            for _ in 0..300 {
                fs.background(SystemClock.now().plus_ms(10_000));
            }
        });
    });
    fs.unmount().unwrap();
    let options = CheckOptions { repair: Repair::No, force: true };
    assert_eq!(Yfs.check(Devices::single(dev), &options, &mut |_, _, _| {}).unwrap().issues, []);
}

/// Metadata blocks are read without the lock while others of them are written in place: nobody
/// may keep a torn or an old one.
#[test]
fn lookups_beside_changes_in_a_cache_that_holds_nothing() {
    let dev = MemDevice::new(64 << 20);
    let options = FormatOptions { uuid: [3; 16], options: Options::parse("logsize=1M"), ..Default::default() };
    Yfs.format(Devices::single(dev.clone()), &options).unwrap();
    let options = MountOptions { options: Options::parse("cache=1M"), ..Default::default() };
    let fs = Yfs.mount(Devices::single(dev.clone()), &options, Arc::new(SystemClock)).unwrap();
    let cx = Cx::default();
    let name = |n: usize| format!("{n:0>60}").into_bytes();
    let dirs: Vec<Ino> =
        (0..8).map(|d| fs.mkdir(&cx, fs.root(), format!("d{d}").as_bytes(), 0o755).unwrap().ino).collect();
    for n in 0..6000 {
        let e = fs.mknod(&cx, dirs[n % 8], &name(n), mode::IFREG | 0o644, 0).unwrap();
        fs.forget(e.ino, 1);
    }
    fs.syncfs().unwrap();
    std::thread::scope(|s| {
        for t in 0..2usize {
            let (fs, dirs) = (&fs, &dirs);
            s.spawn(move || {
                for k in 0..20_000 {
                    let n = (k * 7919 + t * 13) % 6000;
                    let e = fs.lookup(dirs[n % 8], &name(n)).unwrap();
                    assert_eq!(e.nlink, 1);
                    fs.forget(e.ino, 1);
                }
            });
        }
        s.spawn(|| {
            for n in 6000..10_000 {
                let e = fs.mknod(&cx, dirs[n % 8], &name(n), mode::IFREG | 0o644, 0).unwrap();
                fs.forget(e.ino, 1);
                fs.setattr(e.ino, &SetAttr { mode: Some(0o600), ..Default::default() }).unwrap();
                if n % 3 > 0 {
                    fs.unlink(dirs[n % 8], &name(n)).unwrap();
                }
            }
        });
        s.spawn(|| {
            for _ in 0..400 {
                fs.background(SystemClock.now().plus_ms(60_000));
            }
        });
    });
    assert_eq!(fs.failure(), None);
    fs.unmount().unwrap();
    let options = CheckOptions { repair: Repair::No, force: true };
    assert_eq!(Yfs.check(Devices::single(dev), &options, &mut |_, _, _| {}).unwrap().issues, []);
}

/// Walks are read ahead by another thread, while names come and go.
#[test]
fn walks_beside_changes_and_their_read_ahead() {
    let dev = MemDevice::new(256 << 20);
    let options = FormatOptions { uuid: [4; 16], options: Options::parse("logsize=4M"), ..Default::default() };
    Yfs.format(Devices::single(dev.clone()), &options).unwrap();
    let mount = || Yfs.mount(Devices::single(dev.clone()), &MountOptions::default(), Arc::new(SystemClock)).unwrap();
    let (cx, kept) = (Cx::default(), 1500);
    let name = |n: usize| format!("{n:0>50}").into_bytes();
    let fs = mount();
    for d in 0..6 {
        let dir = fs.mkdir(&cx, fs.root(), format!("d{d}").as_bytes(), 0o755).unwrap().ino;
        for n in 0..kept {
            fs.mknod(&cx, dir, &name(n), mode::IFREG | 0o644, 0).unwrap();
        }
    }
    fs.unmount().unwrap();
    let fs = mount();
    let dirs: Vec<Ino> = (0..6).map(|d| fs.lookup(fs.root(), format!("d{d}").as_bytes()).unwrap().ino).collect();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                fs.read_ahead();
                fs.background(SystemClock.now().plus_ms(10_000));
            }
        });
        for t in 0..2 {
            let (fs, dirs) = (&fs, &dirs);
            s.spawn(move || {
                for n in kept..kept + 2000 {
                    let dir = dirs[(n + t) % 6];
                    let e = fs.mknod(&cx, dir, &name(n * 2 + t), mode::IFREG | 0o644, 0).unwrap();
                    fs.write(e.ino, 0, &[t as u8; 600]).unwrap();
                    fs.forget(e.ino, 1);
                    if n % 4 > 0 {
                        fs.unlink(dir, &name(n * 2 + t)).unwrap();
                    }
                }
            });
        }
        for &dir in &dirs {
            let mut seen = std::collections::BTreeSet::new();
            let mut cookie = 0;
            loop {
                let (before, mut left) = (cookie, 100);
                fs.readdir_plus(dir, cookie, &mut |e, attr| {
                    if left == 0 {
                        return false;
                    }
                    left -= 1;
                    cookie = e.cookie;
                    seen.insert(e.name.to_vec());
                    assert!(attr.is_none_or(|a| a.nlink == 1));
                    true
                })
                .unwrap();
                if cookie == before {
                    break;
                }
            }
            assert!((0..kept).all(|n| seen.contains(&name(n))));
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(fs.failure(), None);
    fs.unmount().unwrap();
    let options = CheckOptions { repair: Repair::No, force: true };
    assert_eq!(Yfs.check(Devices::single(dev), &options, &mut |_, _, _| {}).unwrap().issues, []);
}
