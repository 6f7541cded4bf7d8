//! Several threads on one volume, in all four ways to keep metadata.
//!
//! `ARBOR_COUNT` and `ARBOR_SEED` say how many programs and which.

use arbor_base::device::MemDevice;
use arbor_base::vfs::*;
use arbor_ffs::Ffs;
use arbor_torture::concurrent;
use arbor_torture::config::Config;
use arbor_torture::generate::Profile;
use std::sync::Arc;

const KEEPINGS: [&str; 4] = ["async", "sync", "softupdates", "journal"];

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |v| v.parse().unwrap_or_else(|_| panic!("{name}: {v:?} is no number")))
}

/// What each call says is what some order of the calls gives, and so is the tree in the end.
#[test]
fn threads_see_an_order() {
    for keep in KEEPINGS {
        let config = Config { mount: Options::parse(&format!("keep={keep},cache=1M")), ..Config::new(Profile::Sync) };
        concurrent::threads(&Ffs, &config, number("ARBOR_SEED", 1), number("ARBOR_COUNT", 100));
    }
}

/// What failed once under chosen schedules; all of these when `Engine::overlaps_calls` says `true`.
#[test]
fn what_failed_once() {
    concurrent::regressions(
        &Ffs,
        "schedule=13788355865073 size=67108864 format=block=4K,cg=4M,journal=1M mount=keep=journal,cache=1M \
         setup=create /a 420 0; write /a 0 200000 1; syncfs; remount \
         tasks=background 40000 | truncate @0 0; background 40000",
        400,
    );
}

/// What one thread writes and renames, with others at theirs, and the daemon beside them.
fn work(fs: &dyn FileSystem, shared: Ino, t: usize) {
    let (cx, mine) = (Cx::default(), fs.mkdir(&Cx::default(), fs.root(), &[b'd', t as u8 + b'0'], 0o755).unwrap().ino);
    let byte = t as u8 + 1;
    for n in 0..120usize {
        let name = format!("{t}-{n}").into_bytes();
        let e = fs.mknod(&cx, shared, &name, mode::IFREG | 0o644, 0).unwrap();
        let len = 100 + n * 1777 % 90_000;
        assert_eq!(fs.write(e.ino, 0, &vec![byte; len]).unwrap(), len);
        let mut buf = vec![0; len + 1];
        assert_eq!(fs.read(e.ino, 0, &mut buf).unwrap(), len);
        assert!(buf[..len].iter().all(|b| *b == byte), "another file's bytes");
        match n % 4 {
            0 => fs.unlink(shared, &name).unwrap(),
            1 => fs.rename(&cx, shared, &name, mine, &name, RenameFlags::empty()).unwrap(),
            2 => fs.fsync(e.ino, false).unwrap(),
            _ => drop(fs.setattr(e.ino, &SetAttr { size: Some(50), ..SetAttr::default() }).unwrap()),
        }
        fs.forget(e.ino, 1);
    }
}

/// All that must be there afterwards: for each file of a thread, where and how long.
fn verify(fs: &dyn FileSystem, threads: usize) {
    let shared = fs.lookup(fs.root(), b"shared").unwrap().ino;
    let count = |dir| {
        let mut names = 0;
        fs.readdir(dir, 0, &mut |_| {
            names += 1;
            true
        })
        .unwrap();
        names - 2
    };
    assert_eq!(count(shared), threads * 60);
    for t in 0..threads {
        let mine = fs.lookup(fs.root(), &[b'd', t as u8 + b'0']).unwrap().ino;
        assert_eq!(count(mine), 30);
        for n in (0..120usize).filter(|n| n % 4 > 0) {
            let e = fs.lookup(if n % 4 == 1 { mine } else { shared }, format!("{t}-{n}").as_bytes()).unwrap();
            let len = if n % 4 == 3 { 50 } else { 100 + n * 1777 % 90_000 };
            let mut buf = vec![0; len + 1];
            assert_eq!((fs.read(e.ino, 0, &mut buf).unwrap(), e.nlink), (len, 1));
            assert!(buf[..len].iter().all(|b| *b == t as u8 + 1), "another file's bytes");
        }
    }
}

#[test]
fn threads_beside_the_daemon() {
    const THREADS: usize = 3;
    for keep in KEEPINGS {
        let dev = MemDevice::new(64 << 20);
        let o = FormatOptions { uuid: [3; 16], options: Options::parse("block=4K,cg=8M"), ..FormatOptions::default() };
        Ffs.format(Devices::single(dev.clone()), &o).unwrap();
        let options = Options::parse(&format!("keep={keep},cache=1M"));
        let mount = || {
            let options = MountOptions { options: options.clone(), ..MountOptions::default() };
            Ffs.mount(Devices::single(dev.clone()), &options, Arc::new(SystemClock)).unwrap()
        };
        let fs = mount();
        let shared = fs.mkdir(&Cx::default(), fs.root(), b"shared", 0o755).unwrap().ino;
        std::thread::scope(|s| {
            let fs = &*fs;
            (0..THREADS).for_each(|t| drop(s.spawn(move || work(fs, shared, t))));
            s.spawn(|| {
                for n in 0..200 {
                    fs.background(SystemClock.now().plus_ms(10_000));
                    if n % 50 == 0 {
                        fs.syncfs().unwrap();
                    }
                }
            });
        });
        assert_eq!(fs.failure(), None);
        verify(&*fs, THREADS);
        fs.unmount().unwrap();
        let options = CheckOptions { repair: Repair::No, force: true };
        let report = Ffs.check(Devices::single(dev.clone()), &options, &mut |_, _, _| {}).unwrap();
        assert_eq!(report.issues, [], "{keep}");
        verify(&*mount(), THREADS);
    }
}
