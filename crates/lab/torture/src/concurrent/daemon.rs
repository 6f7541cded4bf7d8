//! Threads that each work on files of their own in a directory that all share, with the daemon's background turns beside
//! them.

use arbor_base::device::MemDevice;
use arbor_base::vfs::{
    CheckOptions, Clock, Cx, Devices, Engine, FileSystem, FormatOptions, Ino, MountOptions, Options, RenameFlags,
    Repair, SetAttr, SystemClock, mode,
};
use std::sync::Arc;

const THREADS: usize = 3;

/// Runs them on a volume formatted and mounted so; panics if something is not there in the end, or is not as it was written.
pub fn beside_the_daemon(engine: &dyn Engine, format: &str, mount: &str) {
    let dev = MemDevice::new(64 << 20);
    let o = FormatOptions { uuid: [3; 16], options: Options::parse(format), ..FormatOptions::default() };
    engine.format(Devices::single(dev.clone()), &o).unwrap();
    let mounted = || {
        let options = MountOptions { options: Options::parse(mount), ..MountOptions::default() };
        engine.mount(Devices::single(dev.clone()), &options, Arc::new(SystemClock)).unwrap()
    };
    let fs = mounted();
    let shared = fs.mkdir(&Cx::default(), fs.root(), b"shared", 0o755).unwrap().ino;
    std::thread::scope(|s| {
        let fs = &*fs;
        (0..THREADS).for_each(|t| drop(s.spawn(move || work(fs, shared, t))));
        s.spawn(|| turns(fs));
    });
    assert_eq!(fs.failure(), None);
    verify(&*fs);
    fs.unmount().unwrap();
    let options = CheckOptions { repair: Repair::No, force: true };
    let report = engine.check(Devices::single(dev.clone()), &options, &mut |_, _, _| {}).unwrap();
    assert_eq!(report.issues, [], "{mount}");
    verify(&*mounted());
}

/// The daemon, in a hurry.
fn turns(fs: &dyn FileSystem) {
    for n in 0..200 {
        fs.background(SystemClock.now().plus_ms(10_000));
        if n % 50 == 0 {
            fs.syncfs().unwrap();
        }
    }
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
fn verify(fs: &dyn FileSystem) {
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
    assert_eq!(count(shared), THREADS * 60);
    for t in 0..THREADS {
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
