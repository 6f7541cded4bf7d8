//! Real mounts of a file system in memory, used through the kernel. Needs root and `/dev/fuse`;
//! where they are missing each test says so and does nothing.

mod guard;
mod memfs;
mod mounts;
mod rings;

use arbor_base::vfs::FileSystem;
use arbor_fuse::{MountConfig, Transport};
use guard::Limit;
use memfs::{MemFs, PAGE};
use mounts::*;
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, SeekFrom, StatxFlags, XattrFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

#[test]
fn files_are_made_read_renamed_and_removed() {
    let _caches = counting();
    let Some(m) = Mounted::new() else { return };
    let f = m.path("a");
    fs::write(&f, b"hello").unwrap();
    assert_eq!(fs::read(&f).unwrap(), b"hello");
    assert_eq!(fs::metadata(&f).unwrap().ino(), 1, "the engine's numbers are shown, also the root's on node 1");
    assert_eq!(fs::metadata(m.dir.path()).unwrap().ino(), 77);
    let big: Vec<u8> = (0..5_000_000u32).map(|i| (i / 7) as u8).collect();
    fs::write(m.path("big"), &big).unwrap();
    assert!(fs::read(m.path("big")).unwrap() == big);
    assert!(m.requests("write") < 30, "writes of 1 MiB");

    fs::create_dir(m.path("d")).unwrap();
    fs::rename(&f, m.path("d/b")).unwrap();
    assert_eq!(fs::metadata(&f).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    assert_eq!(fs::read(m.path("d/b")).unwrap(), b"hello");
    assert_eq!(fs::rename(m.path("d"), m.path("d/e")).unwrap_err().raw_os_error(), Some(22));
    let renameat = |from: &str, to: &str, flags| rustix::fs::renameat_with(CWD, m.path(from), CWD, m.path(to), flags);
    assert_eq!(renameat("d/b", "big", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    renameat("d/b", "big", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(m.path("big")).unwrap(), b"hello");
    assert!(fs::read(m.path("d/b")).unwrap() == big);
    renameat("d/b", "moved", RenameFlags::WHITEOUT).unwrap();
    assert!(fs::symlink_metadata(m.path("d/b")).unwrap().file_type().is_char_device());
    assert_eq!(fs::remove_dir(m.path("d")).unwrap_err().raw_os_error(), Some(39));
    fs::remove_file(m.path("d/b")).unwrap();
    assert_eq!(fs::metadata(m.dir.path()).unwrap().nlink(), 3);
    fs::remove_dir(m.path("d")).unwrap();
    assert_eq!(fs::metadata(m.dir.path()).unwrap().nlink(), 2);
    fs::hard_link(m.path("big"), m.path("link")).unwrap();
    assert_eq!(fs::metadata(m.path("big")).unwrap().nlink(), 2);
    assert_eq!(fs::metadata(m.path("link")).unwrap().ino(), fs::metadata(m.path("big")).unwrap().ino());
    assert_eq!(fs::metadata(m.path(&"n".repeat(256))).unwrap_err().raw_os_error(), Some(36));
    fs::write(m.path(&"n".repeat(255)), b"").unwrap();
    for name in names(m.dir.path()) {
        fs::remove_file(m.dir.path().join(name)).unwrap();
    }
    eventually("removed files are forgotten", || m.fs.inodes() == 1);
    m.end();
}

#[test]
fn open_has_its_flags_right_without_open_requests() {
    let _caches = counting();
    let Some(m) = Mounted::new() else { return };
    let f = m.path("f");
    let open = |flags, mode| rustix::fs::open(&f, flags | OFlags::CLOEXEC, Mode::from_raw_mode(mode)).map(File::from);
    let mut file = open(OFlags::CREATE | OFlags::EXCL | OFlags::RDWR, 0o444).unwrap();
    file.write_all(b"0123456789").unwrap();
    assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o444);
    assert_eq!(open(OFlags::CREATE | OFlags::EXCL | OFlags::RDWR, 0o644).unwrap_err(), Errno::EXIST);
    assert_eq!(fs::metadata(&f).unwrap().len(), 10);
    assert!(open(OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY, 0o644).unwrap().metadata().unwrap().len() == 0);
    let mut log = open(OFlags::APPEND | OFlags::WRONLY, 0).unwrap();
    for i in 0..100 {
        let mut other = open(OFlags::APPEND | OFlags::WRONLY, 0).unwrap();
        writeln!(other, "other {i:04}").unwrap();
        writeln!(log, "mine  {i:04}").unwrap();
    }
    assert_eq!(fs::read_to_string(&f).unwrap().lines().count(), 200);
    for i in 0..200 {
        fs::write(m.path(&format!("x{i}")), b"x").unwrap();
        assert_eq!(fs::read(m.path(&format!("x{i}"))).unwrap(), b"x");
    }
    for once in ["open", "create", "opendir", "flush"] {
        assert!(m.requests(once) <= 1, "{once}: {}", m.requests(once));
    }
    let reads = m.requests("read");
    for i in 0..200 {
        assert_eq!(fs::read(m.path(&format!("x{i}"))).unwrap(), b"x");
    }
    // The kernel may drop a page whenever it likes.
    let again = m.requests("read") - reads;
    assert!(again < 20, "pages are kept, of 200 files {again} were read again");
    assert_eq!(m.requests("release") + m.requests("releasedir") + m.requests("access"), 0);
    drop((file, log));
    // Missing names are asked for once.
    let lookups = m.requests("lookup");
    for _ in 0..10 {
        assert!(fs::metadata(m.path("missing")).is_err());
    }
    assert!(m.requests("lookup") <= lookups + 1);
    m.end();
}

#[test]
fn large_directories_can_be_read_while_names_go() {
    let _caches = counting();
    let Some(m) = Mounted::new() else { return };
    fs::create_dir(m.path("d")).unwrap();
    let name = |i: usize| format!("a-name-of-some-length-{i:05}");
    for i in 0..5000 {
        fs::write(m.path("d").join(name(i)), b"").unwrap();
    }
    let all = names(&m.path("d"));
    assert_eq!(all.len(), 5000);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 5000);
    // Removes entries, seen and not yet seen, in the middle of the walk.
    let mut seen = BTreeSet::new();
    let mut gone = BTreeSet::new();
    for (n, entry) in fs::read_dir(m.path("d")).unwrap().enumerate() {
        let entry = entry.unwrap();
        assert!(seen.insert(entry.file_name()), "{:?} twice", entry.file_name());
        if n % 3 == 0 {
            // It may be gone already: names come in batches.
            let _ = fs::remove_file(entry.path());
            gone.insert(entry.file_name());
        }
        if n == 100 {
            for i in 4000..4100 {
                gone.insert(name(i).into());
                let _ = fs::remove_file(m.path("d").join(name(i)));
            }
        }
    }
    for i in 0..5000 {
        let name = OsString::from(name(i));
        assert!(seen.contains(&name) || gone.contains(&name), "{name:?} was missed");
    }
    let left: BTreeSet<_> = names(&m.path("d")).into_iter().collect();
    assert_eq!(left.len(), 5000 - gone.len());
    assert!(left.is_disjoint(&gone));
    // Attributes came with the names.
    let asked = || m.requests("getattr") + m.requests("lookup");
    let before = asked();
    for name in &left {
        fs::symlink_metadata(m.path("d").join(name)).unwrap();
    }
    let again = asked() - before;
    assert!(again < 100, "of {} names {again} were asked for again", left.len());
    fs::remove_dir_all(m.path("d")).unwrap();
    eventually("removed files are forgotten", || m.fs.inodes() == 1);
    m.end();
}

#[test]
fn forgotten_inodes_are_balanced() {
    let _caches = dropping();
    let Some(m) = Mounted::new() else { return };
    for i in 0..300 {
        fs::write(m.path(&format!("f{i}")), b"x").unwrap();
    }
    for _ in 0..3 {
        assert_eq!(names(m.dir.path()).len(), 300);
        // Names and inodes, not pages: other tests run.
        fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
    }
    eventually("lookup counts go down", || {
        fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
        m.fs.lookups() == 1
    });
    assert_eq!(m.fs.inodes(), 301);
    assert_eq!(fs::read(m.path("f7")).unwrap(), b"x");
    m.end();
}

#[test]
fn mapped_files_are_coherent() {
    let _caches = dropping();
    use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
    let Some(m) = Mounted::new() else { return };
    let f = OpenOptions::new().read(true).write(true).create_new(true).open(m.path("map")).unwrap();
    const LEN: usize = 1 << 20;
    f.set_len(LEN as u64).unwrap();
    // SAFETY: a fresh mapping of a file that keeps its length, used through this pointer only
    // and unmapped at the end.
    unsafe {
        let p = mmap(std::ptr::null_mut(), LEN, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &f, 0).unwrap();
        let bytes = std::slice::from_raw_parts_mut(p.cast::<u8>(), LEN);
        for (i, b) in bytes.iter_mut().enumerate() {
            *b = (i % 251) as u8;
        }
        f.write_all_at(b"written", 5000).unwrap();
        assert_eq!(&bytes[5000..5007], b"written");
        msync(p, LEN, MsyncFlags::SYNC).unwrap();
        bytes[9000] = 99;
        munmap(p, LEN).unwrap();
    }
    drop(f);
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    let data = fs::read(m.path("map")).unwrap();
    assert_eq!(data.len(), LEN);
    assert_eq!(data[9000], 99);
    assert_eq!(&data[5000..5007], b"written");
    assert!(data.iter().enumerate().all(|(i, &b)| (5000..5007).contains(&i) || i == 9000 || b == (i % 251) as u8));
    m.end();
}

#[test]
fn links_nodes_and_unnamed_files() {
    let _caches = counting();
    let Some(m) = Mounted::new() else { return };
    let target = "t".repeat(4000);
    std::os::unix::fs::symlink(&target, m.path("s")).unwrap();
    for _ in 0..5 {
        assert_eq!(fs::read_link(m.path("s")).unwrap().to_str(), Some(&*target));
    }
    assert!(m.requests("readlink") < 5, "the kernel keeps targets");
    rustix::fs::mknodat(CWD, m.path("fifo"), rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    assert!(fs::metadata(m.path("fifo")).unwrap().file_type().is_fifo());
    let dev = rustix::fs::makedev(259, 70_000);
    rustix::fs::mknodat(CWD, m.path("dev"), rustix::fs::FileType::BlockDevice, Mode::from_raw_mode(0o600), dev)
        .unwrap();
    assert_eq!(fs::metadata(m.path("dev")).unwrap().rdev(), dev);
    assert!(File::open(m.path("dev")).is_err(), "mounted nodev");

    // Open-unlinked, then another file of that name.
    let mut f = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(m.path("u")).unwrap();
    f.write_all(b"old").unwrap();
    fs::remove_file(m.path("u")).unwrap();
    fs::write(m.path("u"), b"new one").unwrap();
    f.rewind().unwrap();
    f.write_all(b"OLD").unwrap();
    f.rewind().unwrap();
    let mut text = String::new();
    f.read_to_string(&mut text).unwrap();
    assert_eq!(text, "OLD");
    assert_eq!(f.metadata().unwrap().nlink(), 0);
    assert_eq!(fs::read(m.path("u")).unwrap(), b"new one");
    drop(f);

    // The root, the link, the fifo, the device and the new file.
    eventually("an unlinked file goes when it is closed", || m.fs.inodes() == 5);
    let open = || rustix::fs::open(m.dir.path(), OFlags::TMPFILE | OFlags::RDWR, Mode::from_raw_mode(0o640)).unwrap();
    let mut t = File::from(open());
    t.write_all(b"temporary").unwrap();
    assert_eq!(t.metadata().unwrap().nlink(), 0);
    let proc = format!("/proc/self/fd/{}", t.as_raw_fd());
    rustix::fs::linkat(CWD, proc, CWD, m.path("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
    drop(t);
    assert_eq!(fs::read(m.path("named")).unwrap(), b"temporary");
    drop(open());
    eventually("an unnamed file goes when it is closed", || m.fs.inodes() == 6);
    m.end();
}

#[test]
fn extended_attributes() {
    let Some(m) = Mounted::new() else { return };
    let f = m.path("f");
    fs::write(&f, b"").unwrap();
    let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(&f, name, value, flags);
    let get = |name: &str| {
        let mut buffer = vec![0u8; 1 << 16];
        rustix::fs::getxattr(&f, name, &mut buffer[..]).map(|n| buffer[..n].to_vec())
    };
    let large = vec![7u8; 60_000];
    set("user.a", b"1", XattrFlags::CREATE).unwrap();
    assert_eq!(set("user.a", b"2", XattrFlags::CREATE), Err(Errno::EXIST));
    set("user.a", b"22", XattrFlags::REPLACE).unwrap();
    assert_eq!(set("user.b", b"2", XattrFlags::REPLACE), Err(Errno::NODATA));
    set("trusted.large", &large, XattrFlags::empty()).unwrap();
    set("user.empty", b"", XattrFlags::empty()).unwrap();
    assert_eq!(get("user.a").unwrap(), b"22");
    assert!(get("trusted.large").unwrap() == large);
    assert_eq!(get("user.empty").unwrap(), b"");
    assert_eq!(rustix::fs::getxattr(&f, "user.a", &mut [0u8; 1][..]), Err(Errno::RANGE));
    assert_eq!(rustix::fs::getxattr_query(&f, "user.a"), Ok(2));
    let mut list = [0u8; 100];
    let n = rustix::fs::listxattr(&f, &mut list[..]).unwrap();
    assert_eq!(&list[..n], b"trusted.large\0user.a\0user.empty\0");
    rustix::fs::removexattr(&f, "user.a").unwrap();
    assert_eq!(get("user.a"), Err(Errno::NODATA));
    assert_eq!(rustix::fs::removexattr(&f, "user.a"), Err(Errno::NODATA));
    // An ACL that nobody enforces is not taken.
    assert!(set("system.posix_acl_access", &[2, 0, 0, 0], XattrFlags::empty()).is_err());
    m.end();
}

#[test]
fn without_extended_attributes_nobody_asks_for_them() {
    let Some(m) = Mounted::with(|c| c.xattrs = false) else { return };
    for i in 0..50 {
        fs::write(m.path(&format!("f{i}")), b"x").unwrap();
    }
    assert!(m.requests("getxattr") <= 1);
    let set = rustix::fs::setxattr(m.path("f1"), "user.a", b"1", XattrFlags::empty());
    assert_eq!(set, Err(Errno::OPNOTSUPP));
    m.end();
}

#[test]
fn direct_io() {
    let Some(m) = Mounted::new() else { return };
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::DIRECT;
    let f = File::from(rustix::fs::open(m.path("f"), flags, Mode::from_raw_mode(0o644)).unwrap());
    let data: Vec<u8> = (0..3_000_000u32).map(|i| (i % 253) as u8).collect();
    f.write_all_at(&data, 0).unwrap();
    let mut back = vec![0; data.len()];
    f.read_exact_at(&mut back, 0).unwrap();
    assert!(back == data);
    assert!(fs::read(m.path("f")).unwrap() == data);
    drop(f);
    m.end();
}

#[test]
fn space_is_allocated_punched_sought_and_copied() {
    let Some(m) = Mounted::new() else { return };
    let f = OpenOptions::new().read(true).write(true).create_new(true).open(m.path("f")).unwrap();
    rustix::fs::fallocate(&f, FallocateFlags::empty(), 0, 10 * PAGE).unwrap();
    assert_eq!(f.metadata().unwrap().len(), 10 * PAGE);
    assert_eq!(f.metadata().unwrap().blocks(), 10 * PAGE / 512);
    rustix::fs::fallocate(&f, FallocateFlags::KEEP_SIZE, 10 * PAGE, PAGE).unwrap();
    assert_eq!(f.metadata().unwrap().len(), 10 * PAGE);
    f.write_all_at(&[1; 10 * PAGE as usize], 0).unwrap();
    rustix::fs::fallocate(&f, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 2 * PAGE, 3 * PAGE).unwrap();
    rustix::fs::fallocate(&f, FallocateFlags::ZERO_RANGE, 100, 100).unwrap();
    assert_eq!(
        rustix::fs::fallocate(&f, FallocateFlags::COLLAPSE_RANGE, 0, PAGE),
        Err(Errno::OPNOTSUPP),
        "refused cleanly"
    );
    let mut expected = vec![1u8; 10 * PAGE as usize];
    expected[2 * PAGE as usize..5 * PAGE as usize].fill(0);
    expected[100..200].fill(0);
    assert!(fs::read(m.path("f")).unwrap() == expected);
    let seek = |to| rustix::fs::seek(&f, to);
    assert_eq!(seek(SeekFrom::Hole(0)), Ok(2 * PAGE));
    assert_eq!(seek(SeekFrom::Data(2 * PAGE)), Ok(5 * PAGE));
    assert_eq!(seek(SeekFrom::Hole(5 * PAGE)), Ok(10 * PAGE));
    assert_eq!(seek(SeekFrom::Data(10 * PAGE)), Err(Errno::NXIO));

    let to = OpenOptions::new().read(true).write(true).create_new(true).open(m.path("to")).unwrap();
    let (mut from_at, mut to_at) = (10, 5000);
    let copied = rustix::fs::copy_file_range(&f, Some(&mut from_at), &to, Some(&mut to_at), 30_000).unwrap();
    assert_eq!(copied, 30_000);
    let mut copy = vec![0u8; 30_000];
    to.read_exact_at(&mut copy, 5000).unwrap();
    assert!(copy == expected[10..30_010]);
    assert_eq!(to.metadata().unwrap().len(), 35_000);
    assert!(m.requests("copy_file_range") + m.requests("copy_file_range_64") >= 1);
    drop((f, to));
    m.end();
}

#[test]
fn attributes_are_set_and_shown() {
    let _caches = counting();
    let Some(m) = Mounted::new() else { return };
    let p = m.path("f");
    fs::write(&p, vec![3u8; 10_000]).unwrap();
    let f = OpenOptions::new().write(true).open(&p).unwrap();
    f.set_len(5000).unwrap();
    f.set_len(9000).unwrap();
    let data = fs::read(&p).unwrap();
    assert!(data.len() == 9000 && data[..5000].iter().all(|&b| b == 3) && data[5000..].iter().all(|&b| b == 0));
    let time = |secs, nanos| rustix::fs::Timespec { tv_sec: secs, tv_nsec: nanos };
    for (a, w) in [((-5, 999_999_999), (5_000_000_000, 1)), ((0, 0), (1, 2))] {
        let times = rustix::fs::Timestamps { last_access: time(a.0, a.1), last_modification: time(w.0, w.1) };
        rustix::fs::utimensat(CWD, &p, &times, AtFlags::empty()).unwrap();
        let st = fs::metadata(&p).unwrap();
        assert_eq!((st.atime(), st.atime_nsec()), a);
        assert_eq!((st.mtime(), st.mtime_nsec()), w);
    }
    let now = time(0, rustix::fs::UTIME_NOW as _);
    let times = rustix::fs::Timestamps { last_access: now, last_modification: time(0, rustix::fs::UTIME_OMIT as _) };
    rustix::fs::utimensat(CWD, &p, &times, AtFlags::empty()).unwrap();
    let st = fs::metadata(&p).unwrap();
    assert!(st.atime() > 1_000_000_000 && st.mtime() == 1);
    let flags = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let sx = rustix::fs::statx(CWD, &p, AtFlags::empty(), flags).unwrap();
    assert!(StatxFlags::from_bits_retain(sx.stx_mask).contains(StatxFlags::BTIME));
    assert!(sx.stx_btime.tv_sec > 1_000_000_000);
    assert_eq!(sx.stx_size, 9000);
    assert_eq!(sx.stx_blksize, 65536);
    fs::set_permissions(&p, fs::Permissions::from_mode(0o4751)).unwrap();
    assert_eq!(fs::metadata(&p).unwrap().mode() & 0o7777, 0o4751);
    let st = rustix::fs::statfs(m.dir.path()).unwrap();
    assert_eq!((st.f_blocks, st.f_namelen), (1 << 20, 255));
    let calls = m.requests("getattr") + m.requests("statx");
    for _ in 0..10 {
        fs::metadata(&p).unwrap();
    }
    assert_eq!(m.requests("getattr") + m.requests("statx"), calls, "attributes are kept");
    drop(f);
    m.end();
}

#[test]
fn trims_say_what_range() {
    let _limit = Limit::minutes(1);
    const EINVAL: i32 = 22;
    let Some(m) = Mounted::new() else { return };
    let root = File::open(m.dir.path()).unwrap();
    let trim = |start: u64, len: u64, minlen: u64| {
        let mut range = [start, len, minlen];
        // SAFETY: FITRIM reads and writes a `struct fstrim_range`, which is three 64-bit numbers.
        match unsafe { libc::ioctl(root.as_raw_fd(), 0xc018_5879, range.as_mut_ptr()) } {
            0 => Ok(range),
            _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap()),
        }
    };
    assert_eq!(trim(0, u64::MAX, 0), Ok([0, 12345, 0]));
    assert_eq!(trim(4096, 8192, 4096), Ok([4096, 8192, 4096]), "the range, with what was given back in it");
    for (start, len, minlen) in [(0, 0, 0), (1 << 20, 4096, 0), (0, u64::MAX, 1 << 40)] {
        assert_eq!(trim(start, len, minlen), Err(EINVAL), "{start} {len} {minlen}");
    }
    drop(root);
    m.end();
}

#[test]
fn the_kernel_asks_again_for_what_changes_by_itself() {
    let _caches = counting();
    let _limit = Limit::minutes(1);
    let Some(m) = Mounted::new() else { return };
    let p = m.path("f");
    fs::write(&p, vec![1u8; 5000]).unwrap();
    let blocks = |p: &Path| fs::metadata(p).unwrap().blocks();
    let told = blocks(&p);
    m.fs.unsettled.store(true, SeqCst);
    rustix::fs::utimensat(CWD, &p, &later(), AtFlags::empty()).unwrap();
    assert_eq!(blocks(&p), told + 8, "what is reserved counts");
    m.fs.unsettled.store(false, SeqCst);
    assert_eq!(blocks(&p), told, "and is asked for again");
    let asked = m.requests("getattr") + m.requests("statx");
    assert_eq!((blocks(&p), m.requests("getattr") + m.requests("statx")), (told, asked), "once it is settled no more");
    m.end();
}

/// Any two times.
fn later() -> rustix::fs::Timestamps {
    let time = rustix::fs::Timespec { tv_sec: 1, tv_nsec: 1 };
    rustix::fs::Timestamps { last_access: time, last_modification: time }
}

#[test]
fn syncs_reach_the_file_system() {
    let Some(m) = Mounted::new() else { return };
    let f = File::create(m.path("f")).unwrap();
    f.sync_all().unwrap();
    f.sync_data().unwrap();
    fs::create_dir(m.path("d")).unwrap();
    File::open(m.path("d")).unwrap().sync_all().unwrap();
    drop(f);
    assert_eq!(m.fs.syncs.load(SeqCst), 3);
    File::open(m.dir.path()).unwrap().sync_all().unwrap();
    assert_eq!(m.fs.syncs.load(SeqCst), 1_000_003, "fsync of the root is a sync of everything");
    eventually("work that piled up is done", || !m.fs.dirty.load(SeqCst));
    assert!(m.fs.background_calls.load(SeqCst) >= 1);
    m.end();
}

#[test]
fn a_panic_is_eio_and_a_slow_request_stops_nobody() {
    let Some(m) = Mounted::new() else { return };
    for _ in 0..3 {
        assert_eq!(fs::metadata(m.path("panics")).unwrap_err().raw_os_error(), Some(5));
    }
    // In a directory of its own: the kernel locks a directory while it looks up.
    fs::create_dir(m.path("d")).unwrap();
    let slow = m.path("d/sleeps");
    let sleeper = std::thread::spawn(move || fs::metadata(slow).is_err());
    std::thread::sleep(Duration::from_millis(100));
    let begun = Instant::now();
    for i in 0..100 {
        fs::write(m.path(&format!("f{i}")), b"x").unwrap();
    }
    assert!(begun.elapsed() < Duration::from_millis(700), "{:?}", begun.elapsed());
    assert!(sleeper.join().unwrap());
    // A caller killed while it waits leaves nothing behind.
    let mut cat = start(Command::new("cat").arg(m.path("d/sleeps")).stderr(Stdio::null()));
    std::thread::sleep(Duration::from_millis(100));
    cat.kill().unwrap();
    cat.wait().unwrap();
    assert!(fs::metadata(m.path("f7")).is_ok());
    m.end();
}

#[test]
fn many_threads_at_once() {
    let Some(m) = Mounted::with(|c| c.threads = 6) else { return };
    std::thread::scope(|scope| {
        for t in 0..8u8 {
            let m = &m;
            scope.spawn(move || {
                let dir = m.path(&format!("t{t}"));
                fs::create_dir(&dir).unwrap();
                for i in 0..200 {
                    let data = vec![t; 1 + i * 97];
                    fs::write(dir.join(format!("{i}")), &data).unwrap();
                    if i % 10 == 0 {
                        File::open(dir.join(format!("{i}"))).unwrap().sync_all().unwrap();
                    }
                    assert!(fs::read(dir.join(format!("{i}"))).unwrap() == data);
                }
                assert_eq!(names(&dir).len(), 200);
                fs::remove_dir_all(&dir).unwrap();
            });
        }
    });
    eventually("removed files are forgotten", || m.fs.inodes() == 1);
    m.end();
}

/// Every other test mounts with `offered`, and so tests io_uring where the kernel offers it by itself.
#[test]
fn requests_come_as_the_mount_is_told() {
    let use_it = |transport| {
        let m = Mounted::with(|c| c.transport = transport)?;
        let data = vec![7; 3 << 20];
        fs::write(m.path("f"), &data).unwrap();
        fs::rename(m.path("f"), m.path("g")).unwrap();
        let mut direct =
            OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(m.path("g")).unwrap();
        let mut read = Vec::new();
        direct.read_to_end(&mut read).unwrap();
        drop(direct);
        assert!(read == data);
        let counters = m.session.as_ref().unwrap().counters().get();
        m.end();
        Some(counters.iter().any(|c| c.0 == "requests_by_ring"))
    };
    let Some(offered) = use_it(Transport::Offered) else { return };
    assert_eq!(use_it(Transport::Classic), Some(false));
    let parameter = "/sys/module/fuse/parameters/enable_uring";
    if !rings::can_be_made() {
        assert!(!offered);
        return;
    }
    assert_eq!(offered, fs::read_to_string(parameter).unwrap_or_default().trim() == "Y");
    if offered || OpenOptions::new().write(true).open(parameter).is_ok() {
        assert_eq!((use_it(Transport::Uring), use_it(Transport::Auto)), (Some(true), Some(true)));
    } else {
        eprintln!("NOT RUN: io_uring, which this kernel does not offer");
        let dir = tempfile::tempdir().unwrap();
        let config = MountConfig { transport: Transport::Uring, record: false, ..Default::default() };
        let error = arbor_fuse::mount(Arc::new(MemFs::new()), dir.path(), &config).map(drop).unwrap_err();
        assert!(error.to_string().contains("enable_uring"), "{error}");
        assert!(!is_mounted(dir.path()));
    }
}

#[test]
fn the_kernels_write_back_cache() {
    let _caches = dropping();
    let Some(m) = Mounted::with(|c| c.writeback_cache = true) else { return };
    let p = m.path("f");
    let mut f = OpenOptions::new().create_new(true).append(true).open(&p).unwrap();
    for i in 0..1000 {
        writeln!(f, "line {i:05}").unwrap();
    }
    assert_eq!(fs::metadata(&p).unwrap().len(), 11_000);
    f.sync_all().unwrap();
    assert!(m.requests("write") < 100);
    drop(f);
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    assert_eq!(fs::read_to_string(&p).unwrap().lines().nth(999), Some("line 00999"));
    let st = fs::metadata(&p).unwrap();
    assert!(st.mtime() > 1_000_000_000);
    fs::write(m.path("g"), b"unsynced").unwrap();
    let fs = m.end();
    use arbor_base::vfs::Ino;
    let g = fs.lookup(fs.root(), b"g").unwrap().ino;
    let mut data = [0u8; 8];
    assert_eq!((fs.read(g, 0, &mut data).unwrap(), &data), (8, b"unsynced"), "unmounting writes it back");
    assert!(fs.getattr(Ino(77)).is_ok());
}

/// Data that the kernel keeps back is no hole: found by stress-ng's `seek`.
#[test]
fn data_that_is_not_written_back_is_found_by_seeks() {
    let _caches = dropping();
    let Some(m) = Mounted::with(|c| c.writeback_cache = true) else { return };
    let f = OpenOptions::new().read(true).write(true).create_new(true).open(m.path("f")).unwrap();
    f.write_all_at(&[1; PAGE as usize], 0).unwrap();
    assert_eq!(rustix::fs::seek(&f, SeekFrom::Data(0)), Ok(0));
    assert_eq!(rustix::fs::seek(&f, SeekFrom::Hole(0)), Ok(PAGE));
    f.set_len(100 * PAGE).unwrap();
    f.sync_all().unwrap();
    f.write_all_at(&[1; PAGE as usize], 50 * PAGE).unwrap();
    assert!(rustix::fs::seek(&f, SeekFrom::Data(PAGE)).unwrap() <= 50 * PAGE);
    drop(f);
    m.end();
}

#[test]
fn the_root_tells_the_counters() {
    let Some(m) = Mounted::new() else { return };
    fs::write(m.path("f"), "abc").unwrap();
    let stats = arbor_fuse::stats(m.dir.path()).unwrap();
    let find = |name: &str| stats.iter().find(|(group, n, _)| group == "mount" && n == name).map(|s| s.2);
    assert_eq!((find("write"), find("written_bytes")), (Some(m.requests("write")), Some(3)));
    // It is the root's alone, is not listed, and nobody can set it.
    assert!(arbor_fuse::stats(&m.path("f")).is_err());
    assert_eq!(rustix::fs::listxattr(m.dir.path(), &mut [0u8; 64][..]), Ok(0));
    let set = rustix::fs::setxattr(m.dir.path(), arbor_fuse::STATS, b"1", rustix::fs::XattrFlags::empty());
    assert_eq!(set, Err(rustix::io::Errno::OPNOTSUPP));
    m.end();
}

#[test]
fn what_a_mount_looks_like() {
    let Some(m) = Mounted::with(|c| {
        c.read_only = true;
        c.nfs_export = true;
    }) else {
        return;
    };
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|l| l.split(' ').nth(4) == m.dir.path().to_str()).unwrap();
    assert!(line.contains("- fuse.arbor /image,\\040of\\134\\040a\\040test ro"), "{line}");
    assert!(line.contains("ro,nosuid,nodev") && line.contains("default_permissions,allow_other"), "{line}");
    let st = fs::metadata(m.dir.path()).unwrap();
    let (major, minor) = (rustix::fs::major(st.dev()), rustix::fs::minor(st.dev()));
    let ahead = fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb")).unwrap();
    assert_eq!(ahead.trim(), "1024");
    assert_eq!(fs::write(m.path("f"), b"").unwrap_err().raw_os_error(), Some(30));
    // A second mount there is refused, and a failed test leaves this one.
    let other = Arc::new(MemFs::new());
    let again = arbor_fuse::mount(other.clone(), m.dir.path(), &MountConfig::default());
    assert_eq!(again.err().unwrap().kind(), std::io::ErrorKind::ResourceBusy);
    assert!(other.unmounted.load(SeqCst), "what could not be mounted is unmounted");
    m.end();
}

#[test]
fn a_busy_mount_is_not_unmounted_but_can_be_detached_and_aborted() {
    let _forks = FORKS.write().unwrap_or_else(PoisonError::into_inner);
    let Some(mut m) = Mounted::new() else { return };
    let mut f = File::create(m.path("f")).unwrap();
    let session = m.session.take().unwrap();
    let unmounter = session.unmounter();
    assert_eq!(unmounter.unmount().unwrap_err().kind(), std::io::ErrorKind::ResourceBusy);
    assert_eq!(arbor_fuse::unmount(m.dir.path(), true).unwrap_err().kind(), std::io::ErrorKind::ResourceBusy);
    unmounter.detach().unwrap();
    assert!(!is_mounted(m.dir.path()));
    f.write_all(b"still works").unwrap();
    unmounter.abort();
    session.wait().unwrap();
    assert!(f.write_all(b"no more").is_err());
    assert!(m.fs.unmounted.load(SeqCst));
}
