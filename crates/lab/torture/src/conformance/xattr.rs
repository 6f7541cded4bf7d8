//! Extended attributes.

use super::*;
use crate::rng::pattern;
use arbor_base::vfs::XattrMode;
use std::collections::BTreeSet;

fn keys(fs: &dyn FileSystem, ino: Ino) -> BTreeSet<Vec<u8>> {
    let list = fs.listxattr(ino).expect("listxattr");
    let set: BTreeSet<_> = list.iter().cloned().collect();
    assert_eq!(set.len(), list.len(), "a name is listed twice");
    set
}

fn set(fs: &dyn FileSystem, ino: Ino, name: &[u8], value: &[u8]) {
    fs.setxattr(ino, name, value, XattrMode::Set).unwrap_or_else(|e| panic!("setxattr: {e}"));
}

pub fn basic(fs: &dyn FileSystem) {
    let f = create(fs, fs.root(), "file");
    assert!(keys(fs, f).is_empty());
    fails("get", fs.getxattr(f, b"user.a"), &[Errno::ENODATA]);
    fails("remove", fs.removexattr(f, b"user.a"), &[Errno::ENODATA]);
    set(fs, f, b"user.a", b"one");
    set(fs, f, b"user.b", b"");
    assert_eq!(fs.getxattr(f, b"user.a").expect("get"), b"one");
    assert_eq!(fs.getxattr(f, b"user.b").expect("an empty value"), b"");
    set(fs, f, b"user.a", b"another value");
    assert_eq!(fs.getxattr(f, b"user.a").expect("get"), b"another value");
    assert_eq!(keys(fs, f), [b"user.a".to_vec(), b"user.b".to_vec()].into());
    fs.removexattr(f, b"user.a").expect("remove");
    fails("get of a removed one", fs.getxattr(f, b"user.a"), &[Errno::ENODATA]);
    assert_eq!(keys(fs, f).len(), 1);
}

pub fn modes(fs: &dyn FileSystem) {
    let f = create(fs, fs.root(), "file");
    fails("replace", fs.setxattr(f, b"user.a", b"x", XattrMode::Replace), &[Errno::ENODATA]);
    fs.setxattr(f, b"user.a", b"1", XattrMode::Create).expect("create");
    fails("create", fs.setxattr(f, b"user.a", b"2", XattrMode::Create), &[Errno::EEXIST]);
    assert_eq!(fs.getxattr(f, b"user.a").expect("get"), b"1");
    fs.setxattr(f, b"user.a", b"3", XattrMode::Replace).expect("replace");
    assert_eq!(fs.getxattr(f, b"user.a").expect("get"), b"3");
}

pub fn bad_names(fs: &dyn FileSystem) {
    let f = create(fs, fs.root(), "file");
    let bad = [Errno::ERANGE];
    for name in [Vec::new(), vec![b'x'; 256]] {
        fails("set", fs.setxattr(f, &name, b"v", XattrMode::Set), &bad);
        fails("get", fs.getxattr(f, &name), &[Errno::ERANGE, Errno::ENODATA]);
        fails("remove", fs.removexattr(f, &name), &[Errno::ERANGE, Errno::ENODATA]);
    }
    let longest = vec![b'y'; 255];
    set(fs, f, &longest, b"v");
    assert_eq!(fs.getxattr(f, &longest).expect("get"), b"v");
    fails("value too big", fs.setxattr(f, b"user.a", &[1; 65_537], XattrMode::Set), &[Errno::E2BIG]);
    assert_eq!(keys(fs, f).len(), 1);
}

/// Values of all sizes, growing and shrinking; an engine may have no room for the large ones.
pub fn sizes(fs: &dyn FileSystem) {
    let f = create(fs, fs.root(), "file");
    let mut last = Vec::new();
    for len in [0, 1, 40, 100, 255, 256, 1000, 2000, 3000, 4096, 5000, 20_000, 65_536, 3000, 50, 0, 3500] {
        let value = pattern(len as u64, 0, len);
        match fs.setxattr(f, b"user.value", &value, XattrMode::Set) {
            Ok(()) => last = value,
            Err(e) => assert!(e.errno() == Errno::ENOSPC && len > 2000, "a value of {len} bytes: {e}"),
        }
        assert!(fs.getxattr(f, b"user.value").expect("get") == last, "a value of {len} bytes");
        assert_eq!(keys(fs, f).len(), 1);
    }
}

pub fn types(fs: &dyn FileSystem) {
    let zoo = Zoo::new(fs);
    for (i, ino) in zoo.all().into_iter().chain([fs.root()]).enumerate() {
        set(fs, ino, b"trusted.kind", &[i as u8]);
    }
    for (i, ino) in zoo.all().into_iter().chain([fs.root()]).enumerate() {
        assert_eq!(fs.getxattr(ino, b"trusted.kind").expect("get"), [i as u8]);
    }
    assert_eq!(fs.readlink(zoo.link).expect("readlink"), b"target");
    assert_eq!(list(fs, zoo.dir).len(), 4);
}

pub fn many(fs: &dyn FileSystem) {
    let f = create(fs, fs.root(), "file");
    let mut there = BTreeSet::new();
    for i in 0..200u64 {
        let name = format!("user.name{i}").into_bytes();
        match fs.setxattr(f, &name, &pattern(i, 0, 20), XattrMode::Set) {
            Ok(()) => drop(there.insert(name)),
            Err(e) => assert!(e.errno() == Errno::ENOSPC && i >= 20, "attribute {i}: {e}"),
        }
    }
    assert_eq!(keys(fs, f), there);
    for (i, name) in there.iter().enumerate().filter(|(i, _)| i % 2 == 0) {
        fs.removexattr(f, name).unwrap_or_else(|e| panic!("remove {i}: {e}"));
    }
    for (i, name) in there.iter().enumerate() {
        assert_eq!(fs.getxattr(f, name).is_ok(), i % 2 == 1);
    }
}

pub fn inode(fs: &dyn FileSystem) {
    let f = create(fs, fs.root(), "file");
    set(fs, f, b"user.a", &pattern(1, 0, 1500));
    fs.link(f, fs.root(), b"second").expect("link");
    rename(fs, (fs.root(), "file"), (fs.root(), "renamed"), NONE).expect("rename");
    fs.unlink(fs.root(), b"second").expect("unlink");
    assert_eq!(fs.getxattr(f, b"user.a").expect("get"), pattern(1, 0, 1500));
    fs.unlink(fs.root(), b"renamed").expect("unlink");
    fs.forget(f, 2);
    let new = create(fs, fs.root(), "file");
    assert!(keys(fs, new).is_empty(), "a new file has nothing of an old one");
}
