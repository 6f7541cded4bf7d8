//! What errors of the device, damage and lack of space do to single calls.

use arbor_base::device::{Device, FaultDevice, FaultOp, FaultTimes};
use arbor_base::vfs::*;
use arbor_torture::turns::Turns;
use arbor_yfs::Yfs;
use std::sync::Arc;

const FILES: usize = 12;
const TURNS: Turns<'_> = Turns { engine: &Yfs, format: "", mount: "", files: FILES, step: 3000 };

#[test]
fn a_failed_read_is_an_error_and_no_more() {
    let dev = TURNS.fresh();
    let fs = TURNS.mount(dev.clone()).unwrap();
    assert_eq!(TURNS.work(&*fs).0, FILES);
    let mut once = 0;
    for n in 0.. {
        let faulty = FaultDevice::new(dev.clone());
        let fs = TURNS.mount(faulty.clone()).unwrap();
        let before = faulty.count(FaultOp::Read);
        faulty.fail(FaultOp::Read, before + n + 1, FaultTimes::Once);
        let mut errors = 0;
        for round in 0..2 {
            for n in 0..12usize {
                let found = fs.lookup(fs.root(), format!("f{n}").as_bytes());
                let read = found.and_then(|e| fs.read(e.ino, 0, &mut [0; 100]));
                let failed = read.is_err_and(|e| e.errno() == Errno::EIO);
                assert!(!failed || round == 0, "it is there the next time");
                errors += usize::from(failed);
            }
        }
        // What was read ahead of its use is read again.
        assert!(errors <= 1);
        once += errors;
        let met = faulty.count(FaultOp::Read) > before + n;
        fs.unmount().unwrap();
        if !met {
            break;
        }
    }
    assert!(once > 0, "some reads have no second chance");
}

/// Free space in single fragments: no room for tree nodes, directory blocks or inode chunks.
/// Calls fail with ENOSPC, nothing worse, and deleting gives everything back.
#[test]
fn a_volume_in_pieces_refuses_and_recovers() {
    let dev = TURNS.fresh();
    let fs = TURNS.mount(dev.clone()).unwrap();
    let cx = Cx::default();
    let before = fs.statfs().unwrap().bfree;
    let mut names = Vec::new();
    'fill: for d in 0.. {
        let Ok(dir) = fs.mkdir(&cx, fs.root(), format!("d{d}").as_bytes(), 0o755) else { break };
        for n in 0..100 {
            let name = format!("f{n}").into_bytes();
            let Ok(e) = fs.mknod(&cx, dir.ino, &name, mode::IFREG | 0o644, 0) else { break 'fill };
            let wrote = fs.write(e.ino, 0, &[7; 1000]);
            fs.forget(e.ino, 1);
            names.push((dir.ino, name));
            if wrote.is_err() {
                break 'fill;
            }
        }
    }
    fs.syncfs().unwrap();
    for (dir, name) in names.iter().step_by(2) {
        fs.unlink(*dir, name).unwrap();
    }
    fs.syncfs().unwrap();
    let sparse = fs.mknod(&cx, fs.root(), b"sparse", mode::IFREG | 0o644, 0).unwrap();
    let mut refused = 0;
    for n in 0..4000u64 {
        refused += usize::from(fs.write(sparse.ino, n * 100_000, &[1; 4096]).is_err());
        if n % 50 == 0 {
            fs.fsync(sparse.ino, false).unwrap();
            let name = vec![b'x'; 100 + (n / 50) as usize];
            let _ = fs.mkdir(&cx, fs.root(), &name, 0o755);
            let _ = fs.setxattr(sparse.ino, b"user.x", &vec![1; 9000], XattrMode::Set);
        }
    }
    assert!(refused > 0);
    assert_eq!(fs.failure(), None);
    fs.unlink(fs.root(), b"sparse").unwrap();
    fs.forget(sparse.ino, 1);
    for (dir, name) in names.iter().skip(1).step_by(2) {
        fs.unlink(*dir, name).unwrap();
    }
    fs.syncfs().unwrap();
    // Each directory of 100 files keeps the chunk that its inode is in, 32 fragments.
    let kept = names.len() as u64 / 3 + 250;
    assert!(fs.statfs().unwrap().bfree + kept > before);
    fs.unmount().unwrap();
    TURNS.verify(dev, 0);
}

/// One damaged inode is refused by itself, stays damaged when its chunk is written, and keeps the
/// volume from being marked clean.
#[test]
fn a_damaged_inode_is_alone() {
    use arbor_base::device::{Device, Kind};
    let dev = TURNS.fresh();
    let fs = TURNS.mount(dev.clone()).unwrap();
    assert_eq!(TURNS.work(&*fs).0, FILES);
    let fs = TURNS.mount(dev.clone()).unwrap();
    let ino = fs.lookup(fs.root(), b"f1").unwrap().ino;
    fs.unmount().unwrap();
    let mut sector = [0; 512];
    dev.read_at(Kind::Inode, ino.0 * 512, &mut sector).unwrap();
    sector[60] ^= 4;
    dev.write_at(Kind::Inode, ino.0 * 512, &sector).unwrap();
    for _ in 0..2 {
        let fs = TURNS.mount(dev.clone()).unwrap();
        let e = fs.lookup(fs.root(), b"f1").unwrap_err();
        assert_eq!(e.errno(), Errno::EUCLEAN);
        for name in [b"f0", b"f2"] {
            let e = fs.lookup(fs.root(), name).unwrap();
            fs.write(e.ino, 0, b"new").unwrap();
        }
        fs.unmount().unwrap();
        assert!(!Yfs.probe(&dev).unwrap().unwrap().clean);
    }
    let options = CheckOptions { repair: Repair::No, force: false };
    let report = Yfs.check(Devices::single(dev), &options, &mut |_, _, _| {}).unwrap();
    assert!(report.remaining() > 0);
}

fn mount_small_cache(dev: impl Device + 'static) -> Arc<dyn FileSystem> {
    Turns { mount: "cache=1M", ..TURNS }.mount(dev).unwrap()
}

/// After a failure a change is refused with EROFS, also when so much is dirty that writers have to
/// help with the writing first.
#[test]
fn a_failed_volume_refuses_changes_under_pressure_too() {
    let faulty = FaultDevice::new(TURNS.fresh());
    let fs = mount_small_cache(faulty.clone());
    let ino = fs.mknod(&Cx::default(), fs.root(), b"f", mode::IFREG | 0o644, 0).unwrap().ino;
    faulty.fail(FaultOp::Write, faulty.count(FaultOp::Write) + 1, FaultTimes::FromThenOn);
    let failed = (0..64).find_map(|n| fs.write(ino, n << 16, &vec![1; 1 << 16]).err());
    assert_eq!(failed.unwrap().errno(), Errno::EIO);
    assert!(fs.failure().is_some());
    let refused = |done: Result<()>| assert_eq!(done.unwrap_err().errno(), Errno::EROFS);
    refused(fs.mknod(&Cx::default(), fs.root(), b"g", mode::IFREG | 0o644, 0).map(drop));
    refused(fs.write(ino, 0, b"x").map(drop));
    refused(fs.unlink(fs.root(), b"f"));
    assert_eq!(fs.fsync(ino, false).unwrap_err().errno(), Errno::EIO);
}

/// A caller with a signal is let go between the steps of a call that may take long; what was done by
/// then is sound.
#[test]
fn a_long_call_may_be_interrupted() {
    let dev = TURNS.fresh();
    let fs = TURNS.mount(dev.clone()).unwrap();
    let ino = fs.mknod(&Cx::default(), fs.root(), b"f", mode::IFREG | 0o644, 0).unwrap().ino;
    fs.write(ino, 5 << 30, b"end").unwrap();
    let all = |mode| interruptible(|| true, || fs.fallocate(ino, mode, 0, 4 << 20)).unwrap_err().errno();
    assert_eq!(all(FallocMode::empty()), Errno::EINTR);
    fs.fallocate(ino, FallocMode::empty(), 0, 4 << 20).unwrap();
    assert_eq!(all(FallocMode::PUNCH_HOLE | FallocMode::KEEP_SIZE), Errno::EINTR);
    assert_eq!(interruptible(|| true, || fs.trim(&TrimRange::ALL)).unwrap_err().errno(), Errno::EINTR);
    assert_eq!(fs.failure(), None);
    fs.unmount().unwrap();
    TURNS.verify(dev, 0);
}
