//! One test for each defect that reviews and trials have found, smallest known case.

use arbor_base::device::{CrashChoice, Device, FaultDevice, FaultOp, FaultTimes, Kind, MemDevice, RecordingDevice};
use arbor_base::vfs::*;
use arbor_yfs::Yfs;
use std::sync::Arc;

fn fresh(size: u64, format: &str) -> MemDevice {
    let dev = MemDevice::new(size);
    let options = FormatOptions { uuid: [9; 16], options: Options::parse(format), ..Default::default() };
    Yfs.format(Devices::single(dev.clone()), &options).unwrap();
    dev
}

fn mount_with(dev: impl Device + 'static, options: &str) -> Arc<dyn FileSystem> {
    let options = MountOptions { options: Options::parse(options), ..Default::default() };
    Yfs.mount(Devices::single(dev), &options, Arc::new(SystemClock)).unwrap()
}

fn make(fs: &dyn FileSystem, name: &str) -> Ino {
    fs.mknod(&Cx::default(), fs.root(), name.as_bytes(), mode::IFREG | 0o644, 0).unwrap().ino
}

fn read_all(fs: &dyn FileSystem, ino: Ino) -> Vec<u8> {
    let mut buf = vec![0xaa; fs.getattr(ino).unwrap().size as usize + 1];
    let n = fs.read(ino, 0, &mut buf).unwrap();
    buf.truncate(n);
    buf
}

fn clean(dev: MemDevice) {
    let options = CheckOptions { repair: Repair::No, force: true };
    assert_eq!(Yfs.check(Devices::single(dev), &options, &mut |_, _, _| {}).unwrap().issues, []);
}

/// The "marked free" items of one large file take more log than there is.
#[test]
fn marks_that_outgrow_the_log() {
    let dev = fresh(256 << 20, "logsize=1M");
    let fs = mount_with(dev.clone(), "");
    let free = fs.statfs().unwrap().bfree;
    let (a, b) = (make(&*fs, "a"), make(&*fs, "b"));
    for n in 0..20_000u64 {
        for ino in [a, b] {
            fs.write(ino, n * 8192, &[n as u8; 1024]).unwrap();
        }
    }
    fs.syncfs().unwrap();
    for name in [b"a", b"b"] {
        fs.unlink(fs.root(), name).unwrap();
    }
    fs.forget(a, 1);
    fs.forget(b, 1);
    while fs.background(SystemClock.now().plus_ms(10_000)) < SystemClock.now() {}
    fs.syncfs().unwrap();
    assert_eq!(fs.failure(), None);
    assert!(fs.statfs().unwrap().bfree + 200 > free);
    fs.unmount().unwrap();
    clean(dev);
}

/// Both edges of an overwrite must be in the cache at once, also when it has room for neither.
#[test]
fn unaligned_overwrites_in_the_smallest_cache() {
    let dev = fresh(64 << 20, "");
    let fs = mount_with(dev.clone(), "cache=1M");
    let mut want: Vec<u8> = (0..4_000_000u32).map(|n| (n / 7) as u8).collect();
    let ino = make(&*fs, "f");
    for (n, piece) in want.chunks(1 << 20).enumerate() {
        fs.write(ino, (n << 20) as u64, piece).unwrap();
    }
    fs.fsync(ino, false).unwrap();
    for n in 0..60usize {
        let (at, len) = (n * 61_007 % 2_900_000, 4097 + n * 16_411 % 1_000_000);
        let piece = vec![n as u8 ^ 0x5a; len];
        let done = fs.write(ino, at as u64, &piece).unwrap();
        want[at..at + done].copy_from_slice(&piece[..done]);
    }
    assert_eq!(read_all(&*fs, ino), want);
    fs.unmount().unwrap();
    let fs = mount_with(dev.clone(), "cache=1M");
    let ino = fs.lookup(fs.root(), b"f").unwrap().ino;
    assert_eq!(read_all(&*fs, ino), want);
    fs.unmount().unwrap();
    clean(dev);
}

/// Preallocation goes in steps; between them another thread truncates and writes inline again.
#[test]
fn preallocation_beside_truncation() {
    let dev = fresh(64 << 20, "");
    let fs = mount_with(dev.clone(), "");
    let ino = make(&*fs, "f");
    std::thread::scope(|s| {
        s.spawn(|| {
            for _ in 0..200 {
                let r = fs.fallocate(ino, FallocMode::empty(), 0, 8 << 20);
                assert!(r.is_ok() || r.is_err_and(|e| e.errno() == Errno::ENOSPC));
            }
        });
        s.spawn(|| {
            for n in 0..200u8 {
                fs.setattr(ino, &SetAttr { size: Some(0), ..Default::default() }).unwrap();
                fs.write(ino, 0, &[n; 50]).unwrap();
                fs.fsync(ino, false).unwrap();
            }
        });
    });
    assert_eq!(fs.failure(), None);
    assert!(read_all(&*fs, ino).iter().skip(50).all(|b| *b == 0));
    fs.unmount().unwrap();
    clean(dev);
}

/// A file that is still only in the cache, small enough to go inline, and punched.
#[test]
fn a_punch_into_delayed_inline_data() {
    let dev = fresh(64 << 20, "");
    let fs = mount_with(dev.clone(), "");
    let punch = FallocMode::PUNCH_HOLE | FallocMode::KEEP_SIZE;
    for (n, (at, len)) in [(0, 100), (20, 30), (50, 4096), (0, 4096)].into_iter().enumerate() {
        let ino = make(&*fs, &format!("f{n}"));
        fs.write(ino, 0, &[7; 100]).unwrap();
        fs.fallocate(ino, punch, at, len).unwrap();
        let want: Vec<u8> = (0..100).map(|b| if b >= at && b < at + len { 0 } else { 7 }).collect();
        assert_eq!(read_all(&*fs, ino), want);
    }
    fs.unmount().unwrap();
    clean(dev);
}

/// After a lost write of data no record that makes it reachable may follow, whoever asks.
#[test]
fn nothing_is_ordered_behind_a_lost_write() {
    let dev = fresh(16 << 20, "");
    let faulty = FaultDevice::new(dev.clone());
    let fs = mount_with(faulty.clone(), "");
    let ino = make(&*fs, "f");
    fs.fsync(ino, false).unwrap();
    fs.write(ino, 0, &[1; 10_000]).unwrap();
    faulty.fail(FaultOp::Write, faulty.count(FaultOp::Write) + 1, FaultTimes::Once);
    for _ in 0..3 {
        assert_eq!(fs.fsync(ino, false).unwrap_err().errno(), Errno::EIO);
        assert!(fs.syncfs().is_err());
    }
    assert!(fs.unmount().is_err());
    let fs = mount_with(dev.clone(), "");
    let ino = fs.lookup(fs.root(), b"f").unwrap().ino;
    assert_eq!(fs.getattr(ino).unwrap().size, 0);
    fs.unmount().unwrap();
    clean(dev);
}

/// The log of a volume that was growing goes beyond the size that the superblock in place says:
/// into a new AG, or into the added part of one in use.
#[test]
fn a_growth_that_is_in_the_log_only() {
    for (old, new) in [(16 << 20, 32 << 20), (18 << 20, 20 << 20)] {
        let disk = fresh(old, "ag=16M");
        let fs = mount_with(disk.clone(), "");
        let ino = make(&*fs, "f");
        let free = fs.statfs().unwrap().bavail * u64::from(fs.statfs().unwrap().frsize);
        fs.fallocate(ino, FallocMode::KEEP_SIZE, 0, free - (256 << 10)).unwrap();
        fs.unmount().unwrap();
        let dev = RecordingDevice::new(disk);
        Yfs.resize(Devices::single(dev.clone()), new, Arc::new(SystemClock)).unwrap();
        let mut sizes = Vec::new();
        for at in 0..=dev.events() {
            for choice in [CrashChoice::AllKept, CrashChoice::NoneKept] {
                let disk = dev.crash_state(at, &choice);
                let fs = mount_with(disk.clone(), "");
                let blocks = fs.statfs().unwrap().blocks;
                fs.unmount().unwrap();
                clean(disk.clone());
                assert_eq!(mount_with(disk, "").statfs().unwrap().blocks, blocks, "mounted again");
                sizes.push(blocks);
            }
        }
        sizes.sort_unstable();
        sizes.dedup();
        assert_eq!(sizes.len(), 2, "old or new: {sizes:?}");
    }
}

/// A check passed over a list that names one attribute twice.
#[test]
fn an_attribute_that_is_there_twice() {
    let dev = fresh(16 << 20, "");
    let fs = mount_with(dev.clone(), "");
    let ino = make(&*fs, "f");
    for name in [b"user.one", b"user.two"] {
        fs.setxattr(ino, name, b"here", XattrMode::Set).unwrap();
    }
    fs.unmount().unwrap();
    let mut structures = Vec::new();
    Yfs.structures(&Devices::single(dev.clone()), &mut |s| structures.push(s)).unwrap();
    let mut found = 0;
    for s in structures.iter().filter(|s| s.kind.starts_with("inode,")) {
        let mut bytes = vec![0; s.len];
        dev.read_at(Kind::Other, s.offset, &mut bytes).unwrap();
        if let Some(at) = bytes.windows(8).position(|w| w == b"user.two") {
            bytes[at..at + 8].copy_from_slice(b"user.one");
            dev.write_at(Kind::Other, s.offset, &bytes).unwrap();
            Yfs.reseal(&dev, s).unwrap();
            found += 1;
        }
    }
    assert_eq!(found, 1);
    let options = CheckOptions { repair: Repair::Yes, force: true };
    let report = Yfs.check(Devices::single(dev.clone()), &options, &mut |_, _, _| {}).unwrap();
    assert_eq!(report.issues.iter().map(|i| (i.code, i.repaired)).collect::<Vec<_>>(), [("Xattr", true)]);
    clean(dev);
}

/// A log device was believed to be the right one, and written to.
#[test]
fn the_log_of_another_volume() {
    let with_log = |dev: &MemDevice, log: &MemDevice| {
        let mut devices = Devices::single(dev.clone());
        devices.extra.insert("log".into(), Arc::new(log.clone()));
        devices
    };
    let volume = |n: u8| {
        let (dev, log) = (MemDevice::new(16 << 20), MemDevice::new(4 << 20));
        let options = FormatOptions { uuid: [n; 16], ..Default::default() };
        Yfs.format(with_log(&dev, &log), &options).unwrap();
        (dev, log)
    };
    let mount = |dev: &MemDevice, log: &MemDevice| {
        Yfs.mount(with_log(dev, log), &MountOptions::default(), Arc::new(SystemClock))
    };
    let bytes = |log: &MemDevice| {
        let mut bytes = vec![0; 4 << 20];
        log.read_at(Kind::Log, 0, &mut bytes).unwrap();
        bytes
    };
    let ((a, a_log), (_, b_log)) = (volume(1), volume(2));
    let letters = MemDevice::new(4 << 20);
    letters.write_at(Kind::Data, 0, &[b'x'; 512]).unwrap();
    for clean in [true, false] {
        if !clean {
            let fs = mount(&a, &a_log).unwrap();
            make(&*fs, "f");
            fs.syncfs().unwrap();
        }
        for (wrong, says) in [(&b_log, "another volume"), (&letters, "something else")] {
            let before = bytes(wrong);
            let error = mount(&a, wrong).err().unwrap().to_string();
            assert!(error.contains(says), "{error}");
            for repair in [Repair::No, Repair::Preen, Repair::Yes] {
                let options = CheckOptions { repair, force: true };
                let error = Yfs.check(with_log(&a, wrong), &options, &mut |_, _, _| {}).unwrap_err().to_string();
                assert!(error.contains(says), "{error}");
            }
            assert!(bytes(wrong) == before);
        }
    }
    let fs = mount(&a, &a_log).unwrap();
    assert!(fs.lookup(fs.root(), b"f").is_ok());
}

/// A damaged inode hid the names after it, and a volume on which it was met could not be read.
#[test]
fn a_damaged_inode_hides_nothing_else() {
    for wiped in [false, true] {
        let dev = fresh(16 << 20, "");
        let fs = mount_with(dev.clone(), "");
        let inos: Vec<Ino> = (0..9).map(|n| make(&*fs, &format!("f{n}"))).collect();
        fs.unmount().unwrap();
        let mut inode = vec![0; 512];
        dev.read_at(Kind::Inode, inos[4].0 * 512, &mut inode).unwrap();
        inode.fill_with(|| if wiped { 0 } else { 0x5a });
        dev.write_at(Kind::Inode, inos[4].0 * 512, &inode).unwrap();
        let fs = mount_with(dev.clone(), "");
        let look = |fs: &dyn FileSystem| {
            let (mut whole, mut broken) = (0, Vec::new());
            fs.readdir_plus(fs.root(), 0, &mut |e, attr| {
                if attr.is_some() {
                    whole += 1;
                } else if !e.name.starts_with(b".") {
                    broken.push(e.name.to_vec());
                }
                true
            })
            .unwrap();
            assert_eq!((whole, broken), (8, vec![b"f4".to_vec()]));
            assert!(matches!(fs.lookup(fs.root(), b"f4"), Err(Error::Corrupt(_))));
            assert!(fs.lookup(fs.root(), b"f5").is_ok());
        };
        look(&*fs);
        fs.unmount().unwrap();
        assert!(!Yfs.probe(&dev).unwrap().unwrap().clean, "fsck has to look");
        let options = MountOptions { read_only: true, ..Default::default() };
        look(&*Yfs.mount(Devices::single(dev.clone()), &options, Arc::new(SystemClock)).unwrap());
    }
}

/// What docs/semantics.md promises of a rename over a file: its old contents or its new ones, whenever
/// the power fails, although nobody synced the new file.
#[test]
fn a_rename_over_a_file_leaves_its_old_or_its_new_contents() {
    for (old, new) in [(100, 300), (300_000, 90), (90, 5000), (5000, 70_000), (70_000, 300_000)] {
        let (old, new) = (vec![1; old], vec![2; new]);
        let disk = fresh(16 << 20, "");
        let fs = mount_with(disk.clone(), "");
        let a = make(&*fs, "a");
        fs.write(a, 0, &old).unwrap();
        fs.unmount().unwrap();
        let dev = RecordingDevice::new(disk);
        let fs = mount_with(dev.clone(), "");
        let b = make(&*fs, "b");
        fs.write(b, 0, &new).unwrap();
        fs.rename(&Cx::default(), fs.root(), b"b", fs.root(), b"a", RenameFlags::empty()).unwrap();
        // The rename becomes durable, and nothing else is asked for.
        fs.fsync(fs.root(), false).unwrap();
        let mut seen = [0, 0];
        for at in 0..=dev.events() {
            let lost = (0..8).map(CrashChoice::DropOne).chain((0..8).map(CrashChoice::Seeded));
            for choice in [CrashChoice::AllKept, CrashChoice::NoneKept].into_iter().chain(lost) {
                let fs = mount_with(dev.crash_state(at, &choice), "");
                let ino = fs.lookup(fs.root(), b"a").unwrap().ino;
                let found = read_all(&*fs, ino);
                assert!(found == old || found == new, "{at} {choice:?}: {} bytes", found.len());
                seen[usize::from(found == new)] += 1;
            }
        }
        assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
    }
}

/// On a volume that is almost full and free in pieces, the last block of a small file moved again and
/// again, each time to space that nobody had reserved, and data that had been accepted found none.
#[test]
fn the_last_block_of_a_file_does_not_move_when_space_is_scarce() {
    for files in 3..40 {
        let dev = fresh(24 << 20, "block=64K,frag=16K,inode=2K,ag=16M");
        let fs = mount_with(dev.clone(), "");
        let mut kept = 0;
        while fs.mknod(&Cx::default(), fs.root(), format!("f{kept}").as_bytes(), mode::IFREG | 0o644, 0).is_ok_and(
            |e| {
                let done = fs.write(e.ino, 0, &[7; 16 << 10]);
                fs.fsync(e.ino, false).unwrap();
                done.is_ok()
            },
        ) {
            kept += 1;
        }
        for n in (0..kept).filter(|n| n % 3 > 0).take(files * 5) {
            let name = format!("f{n}");
            let ino = fs.lookup(fs.root(), name.as_bytes()).unwrap().ino;
            fs.unlink(fs.root(), name.as_bytes()).unwrap();
            fs.forget(ino, 2);
        }
        fs.syncfs().unwrap();
        fs.background(SystemClock.now().plus_ms(60_000));
        for n in 0..4 {
            let Ok(tail) = fs.mknod(&Cx::default(), fs.root(), format!("tail{n}").as_bytes(), mode::IFREG | 0o644, 0)
            else {
                break;
            };
            let mut at = 0;
            while at < 400 << 10
                && let Ok(len) = fs.write(tail.ino, at, &[9; 20_000])
            {
                at += len as u64;
            }
            fs.fsync(tail.ino, false).unwrap();
        }
        assert_eq!(fs.failure(), None);
        fs.unmount().unwrap();
        clean(dev);
    }
}

/// Freed in the bitmap, allocated again and freed once more, all in one compound transaction: replay must
/// not take the second "marked free" item to be void.
#[test]
fn space_that_is_freed_twice_in_one_transaction() {
    let dev = fresh(24 << 20, "");
    let fs = mount_with(dev.clone(), "");
    let file = |name: &str| {
        let ino = make(&*fs, name);
        fs.write(ino, 0, &[7; 5000]).unwrap();
        ino
    };
    let gone = |name: &str, ino: Ino| {
        fs.unlink(fs.root(), name.as_bytes()).unwrap();
        fs.forget(ino, 1);
        fs.statfs().unwrap();
    };
    let first = file("first");
    file("after");
    fs.syncfs().unwrap();
    gone("first", first);
    fs.syncfs().unwrap();
    fs.background(SystemClock.now());
    let again = file("again");
    // Write-back without a flush of the log.
    fs.seek(again, 0, Seek::Data).unwrap();
    gone("again", again);
    fs.syncfs().unwrap();
    drop(fs);
    clean(dev);
}

/// Free space in single fragments, a fifth of the volume: data took the last whole blocks, and the trees of
/// files that had been accepted found none.
#[test]
fn data_leave_blocks_to_their_trees() {
    let dev = fresh(256 << 20, "block=8K,frag=4K");
    let fs = mount_with(dev.clone(), "");
    let full = make(&*fs, "full");
    let fill = |ino: Ino, mut at: u64, step: usize| {
        while fs.write(ino, at, &vec![7; step]).is_ok_and(|n| n == step) {
            at += step as u64;
            if at.is_multiple_of(8 << 20) {
                fs.fsync(ino, false).unwrap();
            }
        }
        fs.fsync(ino, false).unwrap();
        at
    };
    let end = fill(full, 0, 1 << 20);
    for at in (0..end).step_by(16 << 10) {
        fs.fallocate(full, FallocMode::KEEP_SIZE | FallocMode::PUNCH_HOLE, at, 4096).unwrap();
    }
    fs.syncfs().unwrap();
    fs.background(SystemClock.now().plus_ms(60_000));
    fs.syncfs().unwrap();
    let pieces = make(&*fs, "pieces");
    assert!(fill(pieces, 0, 64 << 10) > 16 << 20);
    for n in 0..400 {
        let small = make(&*fs, &format!("small{n}"));
        let _ = fs.write(small, 0, &[9; 9000]).and_then(|_| fs.write(small, 9000, &[9; 9000]));
        let _ = fs.setxattr(small, b"user.long", &[1; 3000], XattrMode::Set);
    }
    fs.syncfs().unwrap();
    assert_eq!(fs.failure(), None);
    fs.unmount().unwrap();
    clean(dev);
}

/// What a truncation takes off a dirty page is not reserved any more.
#[test]
fn truncations_of_a_dirty_page() {
    let dev = fresh(64 << 20, "");
    let fs = mount_with(dev.clone(), "");
    let ino = make(&*fs, "f");
    fs.write(ino, 0, &[1; 8000]).unwrap();
    let blocks = fs.getattr(ino).unwrap().blocks;
    for _ in 0..2000 {
        fs.setattr(ino, &SetAttr { size: Some(4100), ..Default::default() }).unwrap();
        assert_eq!(fs.write(ino, 4100, &[2; 3900]).unwrap(), 3900);
    }
    assert!(fs.getattr(ino).unwrap().blocks <= blocks);
    fs.unmount().unwrap();
    clean(dev);
}

/// What is reserved too much comes back before a write is refused.
#[test]
fn reservations_come_back_before_enospc() {
    let dev = fresh(64 << 20, "");
    let fs = mount_with(dev.clone(), "");
    let ino = make(&*fs, "f");
    let resize = |size| fs.setattr(ino, &SetAttr { size: Some(size), ..Default::default() }).unwrap();
    fs.write(ino, 0, &[1; 4096]).unwrap();
    fs.syncfs().unwrap();
    fs.write(ino, 0, &[2; 4096]).unwrap();
    for _ in 0..20_000 {
        resize(8000);
        resize(4100);
    }
    fs.unmount().unwrap();
    clean(dev);
}

/// The one long run that is free has room for the attributes of a new file, or for the inodes that it needs first.
#[test]
fn attributes_and_inodes_want_the_same_run() {
    let dev = fresh(64 << 20, "");
    let fs = mount_with(dev.clone(), "");
    let fill = |name: &str| {
        let (ino, mut at) = (make(&*fs, name), 0);
        for step in [1 << 20, 4096, 1024] {
            while let Ok(n) = fs.write(ino, at, &vec![7; step]) {
                at += n as u64;
            }
        }
        fs.syncfs().unwrap();
        ino
    };
    let punch = |ino, at, len| fs.fallocate(ino, FallocMode::KEEP_SIZE | FallocMode::PUNCH_HOLE, at, len).unwrap();
    let scatter = |ino, mib: std::ops::Range<u64>| {
        (mib.start << 20..mib.end << 20).step_by(16 << 10).for_each(|at| punch(ino, at, 4096));
        fs.syncfs().unwrap();
    };
    // Room for names, but not for inodes, and what is kept back in pieces.
    let cx = Cx::default();
    let dirs: Vec<Ino> =
        (0..60).map(|n| fs.mkdir(&cx, fs.root(), format!("dir{n}").as_bytes(), 0o755).unwrap().ino).collect();
    let full = fill("full");
    scatter(full, 16..32);
    fill("more");
    for (dir, n) in dirs.into_iter().flat_map(|dir| (0..8).map(move |n| (dir, n))) {
        let _ = fs.mknod(&cx, dir, &[b'a' + n], mode::IFREG | 0o644, 0);
    }
    scatter(full, 32..48);
    let xattrs: [(&[u8], &[u8]); 1] = [(b"user.long", &[1; 60_000])];
    let new = New { mode: mode::IFREG | 0o644, rdev: 0, xattrs: &xattrs };
    for (n, len) in [0, 64 << 10, 80 << 10, 512 << 10].into_iter().enumerate() {
        if len > 0 {
            punch(full, (n as u64) << 20, len);
            fs.syncfs().unwrap();
        }
        let made = fs.create(&cx, fs.root(), format!("new{n}").as_bytes(), &new);
        assert_eq!(fs.failure(), None, "with {len} bytes in one run");
        match made {
            Ok(entry) => assert_eq!(fs.getxattr(entry.ino, b"user.long").unwrap().len(), 60_000),
            Err(e) => assert_eq!((e.errno(), len < 512 << 10), (Errno::ENOSPC, true), "with {len} bytes in one run"),
        }
    }
    fs.unmount().unwrap();
    clean(dev);
}

/// A buffer that was written in place was evicted before it was durable there: the flush failed and forgot it, and what had been
/// synced by the log alone could not be read.
#[test]
fn what_was_synced_is_read_after_a_flush_that_forgot() {
    let line = "profile=Sync size=25165824 format=groups=all,ag=16M mount=cache=2M,nowindows,nodelay,noinline,nocompound \
                fault=Flush:5:Once:Forgotten(4849803) end=Promise ops=create /filler 420 0; write /filler 0 2621440 1; \
                syncfs; background 40000";
    arbor_torture::faults::repeat(&Yfs, line).unwrap_or_else(|e| panic!("{e}"));
}

/// Data to which the last record bears witness could not be read by the first recovery: the record counted, though half of the data
/// had never arrived.
#[test]
fn a_record_whose_witnesses_cannot_be_read_is_not_believed() {
    let line = "profile=Sync size=25165824 format=inode=1K,logsize=960K,ag=16M mount=cache=1M,nodiscard \
                fault=Flush:7:Once:Forgotten(5756063) end=Promise again=Read:5 ops=create /filler 420 0; write /filler 0 \
                1310720 1; mkdir /d0 493 0; mkdir /d1 493 0; create /d1/f1 420 0; write /d1/f1 0 2600 9; link /d1/f1 \
                /d0/f5; background 1; fsync /d1/f1 0; copy /d0/f5 104 /d1/f1 30891 1078; truncate /d0/f5 37; link /d1/f1 \
                /f1; create /d1/f4 493 0; fsync /d0/f5 0; link /d1/f1 /d1/a.name.of.middling.length.2; create /d0/f0 0 0; \
                background 100; append /d0/f0 79 26; symlink /d1/f5 5 36; fallocate /f1 0 104 7497; background 6000";
    arbor_torture::faults::repeat(&Yfs, line).unwrap_or_else(|e| panic!("{e}"));
    let disk = fresh(32 << 20, "");
    let fs = mount_with(disk.clone(), "");
    let ino = make(&*fs, "f");
    fs.write(ino, 0, &[7; 20_000]).unwrap();
    fs.fsync(ino, false).unwrap();
    let cut = disk.snapshot();
    let refused = |nth: u64| {
        let device = FaultDevice::new(cut.snapshot());
        (nth..nth + 2).for_each(|n| device.fail(FaultOp::Read, n, FaultTimes::Once));
        let options = MountOptions::default();
        Yfs.mount(Devices::single(device), &options, Arc::new(SystemClock)).err().map(|e| e.to_string())
    };
    let told = (1..30).filter_map(refused).any(|e| e.contains("bears witness, cannot be read"));
    assert!(told, "a mount that says which data cannot be read");
    let fs = mount_with(cut, "");
    assert_eq!(read_all(&*fs, fs.lookup(fs.root(), b"f").unwrap().ino), [7; 20_000]);
}

/// In a mount that had failed, an unsynced file whose pages had left the cache showed what another file had left there.
#[test]
fn a_failed_mount_shows_no_other_files_bytes() {
    let line = "profile=Big size=25165824 format=block=1K,frag=512,logsize=704K mount=cache=1M \
                fault=Flush:5:Once:Forgotten(0) end=Promise again=Flush:9 ops=create /filler 420 0; write /filler 0 1310720 \
                2; unlink /filler; mkdir /d0 493 0; create /d0/f3 420 0; write /d0/f3 0 3870 3; fallocate /d0/f3 3 94208 8192; \
                append /d0/f3 154626 15; create /f1 493 7; create /d0/f2 493 0; write /d0/f2 1511424 440774 39; background \
                1000; write /f1 1245180 440959 44; fsync /d0 0";
    arbor_torture::faults::repeat(&Yfs, line).unwrap_or_else(|e| panic!("{e}"));
}
