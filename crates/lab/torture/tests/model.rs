//! The model as a file system: what it does when it is told that it has failed.

use arbor_base::vfs::{
    Cx, Errno, FallocMode, FileSystem, ManualClock, RenameFlags, SetAttr, Time, TrimRange, XattrMode, mode,
};
use arbor_torture::model::{Model, State};
use std::sync::Arc;

#[test]
fn a_model_that_has_failed_can_be_read_and_not_changed() {
    let clock = Arc::new(ManualClock::new(Time::default()));
    let fs = Model::new(State::new((0, 0), Time::default()), clock);
    let (cx, root, set, kind) = (Cx { uid: 0, gid: 0 }, fs.root(), XattrMode::Set, mode::IFREG | 0o600);
    let file = fs.mknod(&cx, root, b"file", kind, 0).unwrap().ino;
    assert_eq!(fs.write(file, 0, b"kept").unwrap(), 4);
    fs.setxattr(file, b"user.a", b"1", set).unwrap();
    assert_eq!(fs.failure(), None);
    fs.fail("a panic");
    fs.fail("another");
    assert_eq!(fs.failure().as_deref(), Some("a panic"), "the first reason stays");

    let changes = [
        ("mknod", fs.mknod(&cx, root, b"new", kind, 0).map(drop)),
        ("mkdir", fs.mkdir(&cx, root, b"new", 0o700).map(drop)),
        ("symlink", fs.symlink(&cx, root, b"new", b"file").map(drop)),
        ("tmpfile", fs.tmpfile(&cx, root, 0o600).map(drop)),
        ("link", fs.link(file, root, b"new").map(drop)),
        ("unlink", fs.unlink(root, b"file")),
        ("rmdir", fs.rmdir(root, b"file")),
        ("rename", fs.rename(&cx, root, b"file", root, b"new", RenameFlags::empty())),
        ("setattr", fs.setattr(file, &SetAttr { mode: Some(0o644), ..SetAttr::default() }).map(drop)),
        ("write", fs.write(file, 0, b"lost").map(drop)),
        ("fallocate", fs.fallocate(file, FallocMode::empty(), 0, 100)),
        ("copy_range", fs.copy_range(file, 0, file, 10, 2).map(drop)),
        ("setxattr", fs.setxattr(file, b"user.a", b"2", set)),
        ("removexattr", fs.removexattr(file, b"user.a")),
        ("trim", fs.trim(&TrimRange::ALL).map(drop)),
    ];
    for (what, done) in changes {
        assert_eq!(done.map_err(|e| e.errno()), Err(Errno::EROFS), "{what}");
    }
    for (what, done) in [("fsync", fs.fsync(file, false)), ("syncfs", fs.syncfs())] {
        assert_eq!(done.unwrap_err().to_string(), "turned read-only: a panic", "{what}");
    }
    let mut data = [0; 8];
    let len = fs.read(file, 0, &mut data).unwrap();
    assert_eq!((&data[..len], fs.getxattr(file, b"user.a").unwrap()), (&b"kept"[..], b"1".to_vec()));
    assert_eq!(fs.lookup(root, b"file").unwrap().mode, kind);

    assert!(fs.unmount().is_err(), "what is in core is not written");
    fs.remount();
    assert_eq!(fs.failure(), None);
    assert_eq!(fs.write(file, 0, b"more").unwrap(), 4);
}
