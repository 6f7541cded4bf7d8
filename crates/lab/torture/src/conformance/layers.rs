//! What lies on top of an engine, or needs more than one thing of it in one step: file flags, POSIX ACLs, the label.

use super::*;
use arbor_base::vfs::{FileFlags, SetTime, XattrMode, acl};

/// Checks of these, by name, for [`layers`].
pub const LAYERS: &[(&str, Check)] = &[
    ("create_with_attributes", create_with_attributes),
    ("change_is_one_step", change),
    ("labels", labels),
    ("no_flags_at_first", no_flags),
    ("immutable_files", immutable_file),
    ("immutable_directories", immutable_dir),
    ("append_only_files", append_file),
    ("append_only_directories", append_dir),
    ("flags_are_hidden_attributes", hidden),
    ("an_acl_and_the_mode_are_in_step", acl_and_mode),
    ("acls_are_inherited", acl_inherited),
    ("bad_acls", acl_bad),
];

/// Runs them as [`run_with`] does its own; panics with the names and reasons of those that failed.
pub fn layers(engine: &dyn Engine, config: &Config) {
    let done = LAYERS.iter().map(|(name, check)| (*name, one(engine, config, |fs, _| check(fs))));
    let failed: Vec<String> = done.filter_map(|(name, done)| done.err().map(|e| format!("  {name}: {e}"))).collect();
    assert!(failed.is_empty(), "{}: {} checks failed:\n{}", engine.name(), failed.len(), failed.join("\n"));
}

const NAMED: &[u8] = &[
    2, 0, 0, 0, // version
    1, 0, 7, 0, 255, 255, 255, 255, // owner rwx
    2, 0, 6, 0, 232, 3, 0, 0, // user 1000 rw
    4, 0, 5, 0, 255, 255, 255, 255, // group rx
    16, 0, 7, 0, 255, 255, 255, 255, // mask rwx
    32, 0, 1, 0, 255, 255, 255, 255, // others x
];

fn set_mode(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
}

fn perm(fs: &dyn FileSystem, ino: Ino) -> u32 {
    attr(fs, ino).mode & 0o7777
}

fn create_with_attributes(fs: &dyn FileSystem) {
    let large = vec![7; 1500];
    let xattrs: &[(&[u8], &[u8])] = &[(b"user.a", b"one"), (b"user.b", &large)];
    for (name, m) in [("file", mode::IFREG | 0o640), ("dir", mode::IFDIR | 0o750), ("fifo", mode::IFIFO | 0o600)] {
        let new = New { mode: m, rdev: 0, xattrs };
        let entry = fs.create(&CX, fs.root(), name.as_bytes(), &new).expect(name);
        assert_eq!((entry.mode, find(fs, fs.root(), name)), (m, Some(entry.ino)));
        for (key, value) in xattrs {
            assert_eq!(&fs.getxattr(entry.ino, key).expect("getxattr"), value);
        }
        fails("again", fs.create(&CX, fs.root(), name.as_bytes(), &new), &[Errno::EEXIST]);
    }
    let inside = create(fs, find(fs, fs.root(), "dir").expect("dir"), "inside");
    write(fs, find(fs, fs.root(), "file").expect("file"), 0, &[1; 10_000]);
    assert_eq!(fs.listxattr(inside).expect("listxattr").len(), 0);
    let link = New { mode: mode::IFLNK | 0o777, rdev: 0, xattrs };
    fails("a link", fs.create(&CX, fs.root(), b"link", &link), &[Errno::EINVAL]);
    let much = vec![1; 65_536];
    let new = New { mode: mode::IFREG | 0o600, rdev: 0, xattrs: &[(b"user.a", &much), (b"user.b", &much)] };
    fails("too much", fs.create(&CX, fs.root(), b"much", &new), &[Errno::ENOSPC, Errno::E2BIG]);
    assert_eq!(find(fs, fs.root(), "much"), None);
}

fn change(fs: &dyn FileSystem) {
    let f = create(fs, fs.root(), "file");
    fs.setxattr(f, b"user.old", b"1", XattrMode::Set).expect("setxattr");
    let changes: &[(&[u8], Option<&[u8]>)] = &[(b"user.old", None), (b"user.absent", None), (b"user.new", Some(b"2"))];
    let after = fs.change(f, &set_mode(0o604), changes).expect("change");
    assert_eq!((after.mode & 0o7777, perm(fs, f)), (0o604, 0o604));
    assert_eq!(fs.listxattr(f).expect("listxattr"), [b"user.new".to_vec()]);
    fs.change(f, &SetAttr::default(), &[(b"user.new", None)]).expect("change");
    assert!(fs.listxattr(f).expect("listxattr").is_empty());
    let size = SetAttr { size: Some(5), ..SetAttr::default() };
    fails("a size", fs.change(f, &size, &[]), &[Errno::EINVAL]);
    fails("no inode", fs.change(Ino(0x7fff_fff0), &set_mode(0), &[]), &[Errno::ESTALE, Errno::EINVAL]);
}

fn labels(fs: &dyn FileSystem) {
    for label in ["home", "", &"x".repeat(63)] {
        fs.set_label(label.as_bytes()).expect("set_label");
        assert_eq!(fs.label().expect("label"), label.as_bytes());
    }
    fails("too long", fs.set_label(&[b'x'; 64]), &[Errno::EINVAL]);
    fails("a NUL", fs.set_label(b"a\0b"), &[Errno::EINVAL]);
    assert_eq!(fs.label().expect("label"), [b'x'; 63]);
}

fn no_flags(fs: &dyn FileSystem) {
    let f = create(fs, fs.root(), "file");
    for ino in [f, fs.root()] {
        assert_eq!(fs.flags(ino).expect("flags"), FileFlags::empty());
        assert!(fs.listxattr(ino).expect("listxattr").is_empty());
    }
}

fn immutable_file(fs: &dyn FileSystem) {
    let root = fs.root();
    let (f, other) = (create(fs, root, "file"), create(fs, root, "other"));
    write(fs, f, 0, b"contents");
    fs.set_flags(f, FileFlags::IMMUTABLE).expect("set_flags");
    assert_eq!(fs.flags(f).expect("flags"), FileFlags::IMMUTABLE);
    let no = &[Errno::EPERM];
    fails("write", fs.write(f, 0, b"x"), no);
    fails("append", fs.write(f, 8, b"x"), no);
    fails("truncate", truncate_to(fs, f, 0), no);
    fails("fallocate", fs.fallocate(f, FallocMode::empty(), 0, 100_000), no);
    fails("copy_range", fs.copy_range(other, 0, f, 0, 1), no);
    fails("chmod", fs.setattr(f, &set_mode(0)), no);
    let touch = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
    fails("touch", fs.setattr(f, &touch), no);
    let of_read = SetAttr {
        atime: Some(SetTime::At(Time { secs: 1 << 33, nanos: 0 })),
        ctime: Some(SetTime::Kept),
        ..SetAttr::default()
    };
    assert_eq!(fs.setattr(f, &of_read).expect("the time of a read").atime.secs, 1 << 33);
    fails("more than that", fs.setattr(f, &SetAttr { mtime: of_read.atime, ..of_read }), no);
    fails("setxattr", fs.setxattr(f, b"user.a", b"1", XattrMode::Set), no);
    fails("removexattr", fs.removexattr(f, b"user.a"), no);
    fails("change", fs.change(f, &set_mode(0), &[]), no);
    fails("unlink", fs.unlink(root, b"file"), no);
    fails("link", fs.link(f, root, b"second"), no);
    fails("rename", rename(fs, (root, "file"), (root, "moved"), NONE), no);
    fails("rename over it", rename(fs, (root, "other"), (root, "file"), NONE), no);
    fails("exchange", rename(fs, (root, "other"), (root, "file"), RenameFlags::EXCHANGE), no);
    assert_eq!(read(fs, f, 0, 100), b"contents");
    write(fs, other, 0, b"free");
    fs.set_flags(f, FileFlags::NODUMP).expect("set_flags");
    fs.unlink(root, b"file").expect("unlink");
    assert_eq!(fs.flags(f).expect("flags"), FileFlags::NODUMP);
}

fn immutable_dir(fs: &dyn FileSystem) {
    let (dir, root) = (mkdir(fs, fs.root(), "dir"), fs.root());
    let f = create(fs, dir, "file");
    fs.set_flags(dir, FileFlags::IMMUTABLE).expect("set_flags");
    let no = &[Errno::EPERM];
    fails("mknod", fs.mknod(&CX, dir, b"new", mode::IFREG | 0o600, 0), no);
    fails("mkdir", fs.mkdir(&CX, dir, b"new", 0o700), no);
    fails("symlink", fs.symlink(&CX, dir, b"new", b"target"), no);
    fails("create", fs.create(&CX, dir, b"new", &New { mode: mode::IFREG, ..New::default() }), no);
    fails("tmpfile", fs.tmpfile(&CX, dir, 0o600), no);
    fails("link", fs.link(f, dir, b"new"), no);
    fails("unlink", fs.unlink(dir, b"file"), no);
    fails("rename out", rename(fs, (dir, "file"), (root, "file"), NONE), no);
    create(fs, root, "outside");
    fails("rename in", rename(fs, (root, "outside"), (dir, "outside"), NONE), no);
    fails("rmdir", fs.rmdir(root, b"dir"), no);
    write(fs, f, 0, b"a file in it is free");
    assert_eq!(list(fs, dir).len(), 1);
}

fn append_file(fs: &dyn FileSystem) {
    let f = create(fs, fs.root(), "log");
    write(fs, f, 0, b"one ");
    fs.set_flags(f, FileFlags::APPEND).expect("set_flags");
    let no = &[Errno::EPERM];
    write(fs, f, 4, b"two ");
    // As the kernel writes its pages.
    write(fs, f, 0, b"one two three ");
    fails("write", fs.write(f, 0, b"x"), no);
    fails("write after a hole", fs.write(f, 100, b"x"), no);
    fails("truncate", truncate_to(fs, f, 3), no);
    fails("extend", truncate_to(fs, f, 300), no);
    fails("punch", fs.fallocate(f, FallocMode::PUNCH_HOLE | FallocMode::KEEP_SIZE, 0, 4), no);
    fails("chmod", fs.setattr(f, &set_mode(0)), no);
    fails("setxattr", fs.setxattr(f, b"user.a", b"1", XattrMode::Set), no);
    fails("unlink", fs.unlink(fs.root(), b"log"), no);
    fails("link", fs.link(f, fs.root(), b"second"), no);
    fs.setattr(f, &SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() }).expect("touch");
    assert_eq!(read(fs, f, 0, 100), b"one two three ");
}

fn append_dir(fs: &dyn FileSystem) {
    let dir = mkdir(fs, fs.root(), "dir");
    fs.set_flags(dir, FileFlags::APPEND).expect("set_flags");
    create(fs, dir, "file");
    mkdir(fs, dir, "sub");
    let no = &[Errno::EPERM];
    fails("unlink", fs.unlink(dir, b"file"), no);
    fails("rmdir", fs.rmdir(dir, b"sub"), no);
    fails("rename", rename(fs, (dir, "file"), (dir, "moved"), NONE), no);
    assert_eq!(list(fs, dir).len(), 2);
}

fn hidden(fs: &dyn FileSystem) {
    let f = create(fs, fs.root(), "file");
    fs.setxattr(f, b"user.a", b"1", XattrMode::Set).expect("setxattr");
    fs.set_flags(f, FileFlags::NODUMP).expect("set_flags");
    assert_eq!(fs.listxattr(f).expect("listxattr"), [b"user.a".to_vec()]);
    assert!(fs.listxattr(fs.root()).expect("listxattr").is_empty());
    fails("getxattr", fs.getxattr(f, b"system.arbor.flags"), &[Errno::ENODATA]);
    fails("removexattr", fs.removexattr(f, b"system.arbor.flags"), &[Errno::ENODATA]);
    let put = fs.setxattr(f, b"system.arbor.flags", &[0; 4], XattrMode::Set);
    fails("setxattr", put, &[Errno::EOPNOTSUPP]);
    assert_eq!(fs.flags(f).expect("flags"), FileFlags::NODUMP);
}

fn acl_and_mode(fs: &dyn FileSystem) {
    let f = create(fs, fs.root(), "file");
    acl::setattr(fs, f, &set_mode(0o2640)).expect("chmod");
    acl::set(fs, f, acl::ACCESS, NAMED, false).expect("setfacl");
    assert_eq!(perm(fs, f), 0o2771);
    acl::set(fs, f, acl::ACCESS, NAMED, true).expect("setfacl");
    assert_eq!(perm(fs, f), 0o771);
    acl::setattr(fs, f, &set_mode(0o640)).expect("chmod");
    let list = acl::get(fs, f, acl::ACCESS).expect("getfacl").expect("a list");
    assert_eq!((perm(fs, f), list.mode()), (0o640, 0o640));
    // Three entries say no more than the mode, and are not kept.
    let minimal = [&NAMED[..12], &NAMED[20..28], &NAMED[36..]].concat();
    acl::set(fs, f, acl::ACCESS, &minimal, false).expect("setfacl");
    assert_eq!(perm(fs, f), 0o751);
    assert!(fs.listxattr(f).expect("listxattr").is_empty());
}

fn acl_inherited(fs: &dyn FileSystem) {
    let dir = mkdir(fs, fs.root(), "dir");
    let at = |name: &'static str| (dir, name.as_bytes());
    let plain = acl::create(fs, &CX, at("plain"), (mode::IFREG | 0o666, 0), 0o027).expect("create");
    assert_eq!(plain.mode & 0o7777, 0o640);
    acl::set(fs, dir, acl::DEFAULT, NAMED, false).expect("setfacl");
    assert_eq!(perm(fs, dir), 0o755);
    // The umask does not count where a list is handed down.
    let file = acl::create(fs, &CX, at("file"), (mode::IFREG | 0o664, 0), 0o077).expect("create");
    assert_eq!(file.mode & 0o7777, 0o660);
    assert_eq!(acl::get(fs, file.ino, acl::ACCESS).expect("getfacl").expect("a list").mode(), 0o660);
    assert_eq!(acl::get(fs, file.ino, acl::DEFAULT).expect("getfacl"), None);
    let sub = acl::create(fs, &CX, at("sub"), (mode::IFDIR | 0o777, 0), 0o077).expect("create");
    assert_eq!(fs.getxattr(sub.ino, acl::DEFAULT).expect("a list"), NAMED);
    assert_eq!(sub.mode & 0o7777, 0o771);
    let unnamed = acl::tmpfile(fs, &CX, dir, 0o600, 0).expect("tmpfile");
    assert!(acl::get(fs, unnamed.ino, acl::ACCESS).expect("getfacl").is_some());
    fs.forget(unnamed.ino, 1);
}

fn acl_bad(fs: &dyn FileSystem) {
    let zoo = Zoo::new(fs);
    let bad = [&[9, 0, 0, 0][..], &NAMED[..13], &NAMED[..12]];
    for (value, errno) in bad.into_iter().zip([Errno::EOPNOTSUPP, Errno::EINVAL, Errno::EINVAL]) {
        fails("setfacl", acl::set(fs, zoo.file, acl::ACCESS, value, false), &[errno]);
    }
    fails("a default of a file", acl::set(fs, zoo.file, acl::DEFAULT, NAMED, false), &[Errno::EACCES]);
    fails("of a link", acl::set(fs, zoo.link, acl::ACCESS, NAMED, false), &[Errno::EOPNOTSUPP]);
    for ino in zoo.all() {
        assert!(fs.listxattr(ino).expect("listxattr").is_empty());
    }
}

/// Cuts the power at every event while labels and flags are changed and files made below a directory that hands a list
/// down: the label is the old or the new one, flags that were synced are there, and no name is there without its list.
/// Panics if that fails.
pub fn layers_survive_cuts(engine: &dyn Engine, config: &Config) {
    let memory = config.memory();
    engine.format(config.devices(&memory), &config.format_options()).expect("format");
    let device = RecordingDevice::new(memory);
    let clock = Arc::new(ManualClock::new(BEGIN));
    let open = |devices| with_flags(mount(engine, config, devices, &clock).expect("mount"));
    let fs = open(config.devices(&device));
    let dir = mkdir(&*fs, fs.root(), "dir");
    fs.set_label(b"old").expect("set_label");
    acl::set(&*fs, dir, acl::DEFAULT, NAMED, false).expect("setfacl");
    create(&*fs, fs.root(), "a");
    create(&*fs, fs.root(), "b");
    let kept = create(&*fs, fs.root(), "kept");
    fs.syncfs().expect("syncfs");
    // In use without a name, of which the superblock may know, on disk and only in core.
    fs.unlink(fs.root(), b"a").expect("unlink");
    fs.fsync(fs.root(), false).expect("fsync");
    fs.unlink(fs.root(), b"b").expect("unlink");
    let from = device.events();
    fs.set_label(b"new").expect("set_label");
    let labelled = device.events();
    fs.set_flags(kept, FileFlags::IMMUTABLE).expect("set_flags");
    fs.fsync(kept, false).expect("fsync");
    let flagged = device.events();
    for n in 0..6 {
        let name = format!("file {n}");
        let m = if n % 2 == 0 { mode::IFREG } else { mode::IFDIR };
        acl::create(&*fs, &CX, (dir, name.as_bytes()), (m | 0o770, 0), 0).expect("create");
        fs.fsync(if n < 3 { dir } else { fs.root() }, false).expect("fsync");
    }
    let promise = engine.crash_promise(&config.mount);
    for at in from..=device.events() {
        for kept in [CrashChoice::NoneKept, CrashChoice::AllKept, CrashChoice::Seeded(at as u64)] {
            let cut = device.crash_state(at, &kept);
            if promise == CrashPromise::Repairable {
                continue;
            }
            let fs = open(config.devices(&cut));
            let label = fs.label().expect("label");
            assert!(label == b"new" || at < labelled && label == b"old", "event {at}: {label:?}");
            let flags = fs.flags(find(&*fs, fs.root(), "kept").expect("kept")).expect("flags");
            assert!(flags == FileFlags::IMMUTABLE || at < flagged && flags.is_empty(), "event {at}: {flags:?}");
            let dir = find(&*fs, fs.root(), "dir").expect("dir");
            for (name, _) in list(&*fs, dir) {
                let ino = find(&*fs, dir, &name).expect("a name that was listed");
                let access = acl::get(&*fs, ino, acl::ACCESS).expect("getfacl");
                let mode = access.unwrap_or_else(|| panic!("event {at}: {name} has no list")).mode();
                assert_eq!(mode, perm(&*fs, ino) & 0o777, "event {at}: {name}");
            }
            fs.unmount().expect("unmount");
            drop(fs);
            check_clean(engine, config.devices(&cut), Repair::No).unwrap_or_else(|e| panic!("event {at}: {e}"));
        }
    }
}

/// Lets another caller look whenever the clock is read while lists are set, follow a mode and are handed down: each list
/// and its mode are in step, and no name is there without its list. Panics if that fails.
pub fn lists_come_in_one_step(engine: &dyn Engine, config: &Config) {
    let mut met = 0;
    for moment in 1..=12 {
        let memory = config.memory();
        engine.format(config.devices(&memory), &config.format_options()).expect("format");
        let clock =
            Arc::new(Meddler { clock: ManualClock::new(BEGIN), left: AtomicU64::new(0), deed: Mutex::default() });
        let fs = engine.mount(config.devices(&memory), &config.mount_options(), clock.clone()).expect("mount");
        let dir = mkdir(&*fs, fs.root(), "dir");
        acl::set(&*fs, dir, acl::DEFAULT, NAMED, false).expect("setfacl");
        let make = |name: &[u8]| acl::create(&*fs, &CX, (dir, name), (mode::IFREG | 0o640, 0), 0).expect("create").ino;
        let file = make(b"first");
        let (other, seen) = (fs.clone(), Arc::new(Mutex::new(None)));
        let report = seen.clone();
        let look = move || {
            let out_of_step = list(&*other, dir).into_iter().map(|n| n.0).find(|name| {
                let ino = find(&*other, dir, name).expect("a name that was listed");
                let access = acl::get(&*other, ino, acl::ACCESS).expect("getfacl");
                access.is_none_or(|access| access.mode() != perm(&*other, ino) & 0o777)
            });
            *report.lock().expect("the report's lock") = Some(out_of_step);
        };
        *clock.deed.lock().expect("the clock's lock") = Some(Box::new(look));
        clock.left.store(moment, Relaxed);
        acl::set(&*fs, file, acl::ACCESS, NAMED, false).expect("setfacl");
        acl::setattr(&*fs, file, &set_mode(0o604)).expect("chmod");
        make(b"second");
        clock.left.store(0, Relaxed);
        drop(clock.deed.lock().expect("the clock's lock").take());
        if let Some(out_of_step) = seen.lock().expect("the report's lock").take() {
            assert_eq!(out_of_step, None, "{}, moment {moment}: a list and its mode", engine.name());
            met += 1;
        }
        fs.unmount().expect("unmount");
    }
    assert!(met > 2, "{}: only {met} moments were met", engine.name());
}
