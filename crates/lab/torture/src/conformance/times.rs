//! Times: which call moves which, all from one reading of the clock.

use super::*;
use arbor_base::vfs::{Clock, FallocMode, SetTime, Time, XattrMode};

/// All checks that move the clock, by name.
pub const TIME_CHECKS: &[(&str, TimeCheck)] = &[
    ("times_of_new_files", new_files),
    ("times_after_changes_of_contents", contents),
    ("times_after_changes_of_attributes", attributes),
    ("times_after_reading", reading),
    ("times_of_parents", parents),
    ("times_of_renamed_and_linked_files", links),
    ("times_set_by_hand", by_hand),
];

/// Does `change` at a new time and says which of mtime and ctime of `ino` became that time; the
/// one that did not must be as it was.
fn moved(fs: &dyn FileSystem, clock: &ManualClock, ino: Ino, change: impl FnOnce()) -> (bool, bool) {
    clock.advance_ms(1001);
    let before = attr(fs, ino);
    change();
    let (now, after) = (clock.now(), attr(fs, ino));
    let one = |was: Time, is: Time| {
        assert!(is == was || is == now, "a time is {is:?}, was {was:?}, now is {now:?}");
        is == now
    };
    assert_eq!(before.btime, after.btime, "the time of creation stays");
    (one(before.mtime, after.mtime), one(before.ctime, after.ctime))
}

fn ignore<T>(_: T) {}

const BOTH: (bool, bool) = (true, true);
const CHANGE: (bool, bool) = (false, true);
const NEITHER: (bool, bool) = (false, false);

fn new_files(fs: &dyn FileSystem, clock: &ManualClock) {
    for i in 0..4 {
        clock.advance_ms(77);
        let (root, name) = (fs.root(), format!("n{i}"));
        let made = match i {
            0 => fs.mknod(&CX, root, name.as_bytes(), mode::IFREG | 0o600, 0),
            1 => fs.mkdir(&CX, root, name.as_bytes(), 0o700),
            2 => fs.symlink(&CX, root, name.as_bytes(), b"x"),
            _ => fs.tmpfile(&CX, root, 0o600),
        };
        let (a, now) = (made.expect("make"), clock.now());
        assert_eq!([a.atime, a.mtime, a.ctime, a.btime], [now; 4]);
        assert_eq!(attr(fs, a.ino), a);
    }
}

fn contents(fs: &dyn FileSystem, clock: &ManualClock) {
    let f = create(fs, fs.root(), "file");
    let source = create(fs, fs.root(), "source");
    write(fs, source, 0, b"some bytes");
    assert_eq!(moved(fs, clock, f, || write(fs, f, 0, b"new")), BOTH, "write");
    assert_eq!(moved(fs, clock, f, || ignore(truncate_to(fs, f, 100))), BOTH, "truncate to more");
    assert_eq!(moved(fs, clock, f, || ignore(truncate_to(fs, f, 10))), BOTH, "truncate to less");
    let grow = || fs.fallocate(f, FallocMode::empty(), 0, 9000).expect("fallocate");
    assert_eq!(moved(fs, clock, f, grow), BOTH, "fallocate");
    let copy = || ignore(fs.copy_range(source, 0, f, 0, 5).expect("copy_range"));
    assert_eq!(moved(fs, clock, f, copy), BOTH, "copy");
    assert_eq!(moved(fs, clock, source, copy), NEITHER, "source of a copy");
    assert_eq!(moved(fs, clock, f, || write(fs, f, 0, b"")), NEITHER, "empty write");
}

fn attributes(fs: &dyn FileSystem, clock: &ManualClock) {
    let f = create(fs, fs.root(), "file");
    let none = SetAttr::default();
    let set = |s: SetAttr| ignore(fs.setattr(f, &s).expect("setattr"));
    assert_eq!(moved(fs, clock, f, || set(SetAttr { mode: Some(0o600), ..none })), CHANGE, "chmod");
    assert_eq!(moved(fs, clock, f, || set(SetAttr { uid: Some(3), ..none })), CHANGE, "chown");
    let put = || fs.setxattr(f, b"user.a", b"x", XattrMode::Set).expect("setxattr");
    assert_eq!(moved(fs, clock, f, put), CHANGE, "setxattr");
    let take = || fs.removexattr(f, b"user.a").expect("removexattr");
    assert_eq!(moved(fs, clock, f, take), CHANGE, "removexattr");
}

fn reading(fs: &dyn FileSystem, clock: &ManualClock) {
    let f = create(fs, fs.root(), "file");
    write(fs, f, 0, b"bytes");
    assert_eq!(moved(fs, clock, f, || ignore(read(fs, f, 0, 10))), NEITHER, "read");
    assert_eq!(moved(fs, clock, f, || fs.fsync(f, false).expect("fsync")), NEITHER, "fsync");
    assert_eq!(moved(fs, clock, fs.root(), || ignore(list(fs, fs.root()))), NEITHER, "readdir");
    assert_eq!(moved(fs, clock, fs.root(), || ignore(find(fs, fs.root(), "file"))), NEITHER, "lookup");
}

fn parents(fs: &dyn FileSystem, clock: &ManualClock) {
    let dir = mkdir(fs, fs.root(), "dir");
    let other = mkdir(fs, fs.root(), "other");
    let f = create(fs, fs.root(), "file");
    assert_eq!(moved(fs, clock, dir, || ignore(create(fs, dir, "new"))), BOTH, "create");
    assert_eq!(moved(fs, clock, dir, || ignore(mkdir(fs, dir, "sub"))), BOTH, "mkdir");
    assert_eq!(moved(fs, clock, dir, || ignore(fs.symlink(&CX, dir, b"s", b"x").expect("symlink"))), BOTH, "symlink");
    assert_eq!(moved(fs, clock, dir, || ignore(fs.link(f, dir, b"l").expect("link"))), BOTH, "link");
    assert_eq!(moved(fs, clock, dir, || fs.unlink(dir, b"l").expect("unlink")), BOTH, "unlink");
    assert_eq!(moved(fs, clock, dir, || fs.rmdir(dir, b"sub").expect("rmdir")), BOTH, "rmdir");
    let there = || rename(fs, (dir, "new"), (other, "new"), NONE).expect("rename");
    assert_eq!(moved(fs, clock, dir, there), BOTH, "rename, old parent");
    let back = || rename(fs, (other, "new"), (dir, "new"), NONE).expect("rename");
    assert_eq!(moved(fs, clock, dir, back), BOTH, "rename, new parent");
    assert_eq!(moved(fs, clock, dir, || ignore(fs.lookup(dir, b"absent"))), NEITHER, "a failed lookup");
    assert_eq!(moved(fs, clock, dir, || ignore(fs.unlink(dir, b"absent"))), NEITHER, "a failed unlink");
    assert_eq!(moved(fs, clock, dir, || ignore(fs.mkdir(&CX, dir, b"new", 0o700))), NEITHER, "a failed mkdir");
    let below = create(fs, dir, "below");
    assert_eq!(moved(fs, clock, dir, || write(fs, below, 0, b"x")), NEITHER, "write to a child");
}

fn links(fs: &dyn FileSystem, clock: &ManualClock) {
    let root = fs.root();
    let f = create(fs, root, "file");
    assert_eq!(moved(fs, clock, f, || ignore(fs.link(f, root, b"second").expect("link"))), CHANGE, "link");
    assert_eq!(moved(fs, clock, f, || fs.unlink(root, b"second").expect("unlink")), CHANGE, "unlink");
    let (mtime, _) = moved(fs, clock, f, || rename(fs, (root, "file"), (root, "new"), NONE).expect("rename"));
    assert!(!mtime, "rename leaves the time of modification");
    create(fs, root, "over");
    assert_eq!(moved(fs, clock, f, || rename(fs, (root, "over"), (root, "new"), NONE).expect("rename")), CHANGE);
}

fn by_hand(fs: &dyn FileSystem, clock: &ManualClock) {
    let f = create(fs, fs.root(), "file");
    let none = SetAttr::default();
    let at = |secs, nanos| SetTime::At(Time { secs, nanos });
    for (secs, nanos) in
        [(0, 0), (1, 999_999_999), (-1, 5), (-2_000_000_000, 0), (1 << 31, 1), (1 << 32, 7), (9 << 30, 0)]
    {
        clock.advance_ms(10);
        let set = SetAttr { atime: Some(at(secs, nanos)), mtime: Some(at(secs + 1, nanos)), ..none };
        let a = fs.setattr(f, &set).expect("setattr");
        assert_eq!((a.atime, a.mtime), (Time { secs, nanos }, Time { secs: secs + 1, nanos }), "{secs} s");
        assert_eq!(a.ctime, clock.now());
        assert_eq!(a, attr(fs, f));
    }
    clock.advance_ms(10);
    let a = fs.setattr(f, &SetAttr { mtime: Some(SetTime::Now), ..none }).expect("setattr");
    assert_eq!((a.mtime, a.ctime), (clock.now(), clock.now()));
    assert_eq!(a.atime, Time { secs: 9 << 30, nanos: 0 }, "the other stays");
    clock.advance_ms(10);
    let read = SetAttr { atime: Some(SetTime::Now), ctime: Some(SetTime::Kept), ..none };
    let b = fs.setattr(f, &read).expect("setattr");
    assert_eq!((b.atime, b.mtime, b.ctime), (clock.now(), a.mtime, a.ctime), "who reads changes nothing");
    write(fs, f, 0, b"x");
    let written = attr(fs, f);
    clock.advance_ms(10);
    let c = fs.setattr(f, &read).expect("setattr");
    assert_eq!(
        (c.atime, c.mtime, c.ctime),
        (clock.now(), written.mtime, written.ctime),
        "also what is not written back"
    );
}
