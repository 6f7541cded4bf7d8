//! Directories: link counts, listing, cookies.

use super::*;
use std::collections::{BTreeMap, BTreeSet};

pub fn link_counts(fs: &dyn FileSystem) {
    let root = fs.root();
    assert_eq!(attr(fs, root).nlink, 2);
    let a = mkdir(fs, root, "a");
    let b = mkdir(fs, a, "b");
    create(fs, a, "file");
    assert_eq!((attr(fs, root).nlink, attr(fs, a).nlink, attr(fs, b).nlink), (3, 3, 2));
    rename(fs, (a, "b"), (root, "b"), NONE).expect("rename");
    assert_eq!((attr(fs, root).nlink, attr(fs, a).nlink, attr(fs, b).nlink), (4, 2, 2));
    fs.rmdir(root, b"b").expect("rmdir");
    assert_eq!((attr(fs, root).nlink, attr(fs, b).nlink), (3, 0));
}

pub fn dotdot(fs: &dyn FileSystem) {
    let (a, b) = (mkdir(fs, fs.root(), "a"), mkdir(fs, fs.root(), "b"));
    let sub = mkdir(fs, a, "sub");
    rename(fs, (a, "sub"), (b, "moved"), NONE).expect("rename");
    let up = fs.lookup(sub, b"..").expect("lookup of ..");
    assert_eq!(up.ino, b);
    fs.forget(up.ino, 1);
    let mut dots = BTreeMap::new();
    fs.readdir(sub, 0, &mut |e| dots.insert(e.name.to_vec(), e.ino).is_none()).expect("readdir");
    assert_eq!(dots[b"..".as_slice()], b);
}

pub fn removed(fs: &dyn FileSystem) {
    let (above, dir) = (mkdir(fs, fs.root(), "above"), mkdir(fs, fs.root(), "dir"));
    let file = create(fs, above, "file");
    fs.rmdir(fs.root(), b"dir").expect("rmdir");
    let errno = |r: Result<()>| r.expect_err("nothing can be in a removed directory").errno();
    for name in ["..", "name"] {
        assert_eq!(errno(fs.lookup(dir, name.as_bytes()).map(drop)), Errno::ENOENT, "lookup of {name}");
    }
    assert_eq!(errno(fs.mkdir(&CX, dir, b"name", 0o755).map(drop)), Errno::ENOENT, "mkdir");
    assert_eq!(errno(fs.link(file, dir, b"name").map(drop)), Errno::ENOENT, "link");
    assert_eq!(errno(rename(fs, (above, "file"), (dir, "name"), RenameFlags::empty())), Errno::ENOENT, "rename");
    assert_eq!(attr(fs, dir).nlink, 0);
    // Above it nothing is what it was.
    let (outer, moved) = (mkdir(fs, fs.root(), "outer"), mkdir(fs, fs.root(), "moved"));
    let inner = mkdir(fs, outer, "inner");
    fs.rmdir(outer, b"inner").expect("rmdir");
    fs.rmdir(fs.root(), b"outer").expect("rmdir");
    fs.forget(outer, 1);
    mkdir(fs, moved, "again");
    let into = rename(fs, (fs.root(), "moved"), (inner, "name"), RenameFlags::empty());
    assert_eq!(errno(into), Errno::ENOENT, "rename of a directory");
}

pub fn empty(fs: &dyn FileSystem) {
    let dir = mkdir(fs, fs.root(), "dir");
    let mut seen = Vec::new();
    fs.readdir(dir, 0, &mut |e| {
        seen.push((e.name.to_vec(), e.ino, e.file_type, e.cookie));
        true
    })
    .expect("readdir");
    let names: Vec<_> = seen.iter().map(|s| (&s.0[..], s.1, s.2)).collect();
    assert_eq!(names, [(b".".as_slice(), dir, FileType::Dir), (b"..", fs.root(), FileType::Dir)]);
    assert!(seen.iter().all(|s| s.3 != 0), "cookie 0 means the beginning");
    fs.readdir(dir, seen[1].3, &mut |e| panic!("{:?} after the end", e.name)).expect("readdir at the end");
}

pub fn stops(fs: &dyn FileSystem) {
    let dir = mkdir(fs, fs.root(), "dir");
    for i in 0..10 {
        create(fs, dir, &format!("f{i}"));
    }
    for accept in 0..12 {
        let (mut offered, mut refused, mut cookie) = (0, Vec::new(), 0);
        fs.readdir(dir, 0, &mut |e| {
            offered += 1;
            match offered <= accept {
                true => cookie = e.cookie,
                false => refused = e.name.to_vec(),
            }
            offered <= accept
        })
        .expect("readdir");
        assert_eq!(offered, accept + 1, "no entry is offered after a refusal");
        let mut first = None;
        fs.readdir(dir, cookie, &mut |e| {
            first = Some(e.name.to_vec());
            false
        })
        .expect("readdir");
        assert_eq!(first, Some(refused), "a refused entry is offered again");
    }
}

pub fn plus(fs: &dyn FileSystem) {
    let zoo = Zoo::new(fs);
    zoo.all().iter().for_each(|i| fs.forget(*i, 1));
    let mut seen = Vec::new();
    fs.readdir_plus(zoo.dir, 0, &mut |e, a| {
        match a {
            None => assert!(e.name == b"." || e.name == b".."),
            Some(a) => {
                assert_eq!((a.ino, a.file_type()), (e.ino, e.file_type));
                seen.push((e.name.to_vec(), *a));
            }
        }
        seen.len() < 5
    })
    .expect("readdir_plus");
    assert_eq!(seen.len(), 4);
    for (name, a) in &seen {
        match a.file_type() {
            FileType::Dir => fs.rmdir(zoo.dir, name).expect("rmdir"),
            _ => fs.unlink(zoo.dir, name).expect("unlink"),
        }
        assert_eq!(attr(fs, a.ino).nlink, 0, "an accepted entry is referenced");
        fs.forget(a.ino, 1);
    }
}

/// Reads on with `cookie`; the names go to `seen`, and the cookie after them is returned.
fn go_on(fs: &dyn FileSystem, dir: Ino, cookie: u64, chunk: usize, seen: &mut Vec<String>) -> Option<u64> {
    let (names, next) = crate::exec::read_names(fs, dir, cookie, chunk).expect("readdir");
    seen.extend(names.iter().map(|n| String::from_utf8_lossy(&n.0).into_owned()));
    (!names.is_empty()).then_some(next)
}

/// A walk of 3000 names during which half of them are removed, a part of those before the place
/// of the walk, and as many are made.
pub fn cookies(fs: &dyn FileSystem) {
    let dir = mkdir(fs, fs.root(), "dir");
    for i in 0..3000 {
        fs.forget(create(fs, dir, &format!("name{i}")), 1);
    }
    let (mut seen, mut cookie, mut removed) = (Vec::new(), 0, BTreeSet::new());
    let mut round = 0;
    while let Some(next) = go_on(fs, dir, cookie, 100, &mut seen) {
        cookie = next;
        for k in (round * 100..round * 100 + 100).step_by(2).filter(|k| *k < 3000) {
            let name = format!("name{}", (k * 7) % 3000);
            if removed.insert(name.clone()) {
                fs.unlink(dir, name.as_bytes()).expect("unlink");
            }
            fs.forget(create(fs, dir, &format!("new{k}")), 1);
        }
        round += 1;
        assert!(round < 100, "the walk has no end");
    }
    let old: Vec<&String> = seen.iter().filter(|n| n.starts_with("name")).collect();
    let once: BTreeSet<&String> = old.iter().copied().collect();
    assert_eq!(once.len(), old.len(), "a name was seen twice");
    for i in 0..3000 {
        let name = format!("name{i}");
        assert!(removed.contains(&name) || once.contains(&name), "{name} was not seen");
    }
}

pub fn one_at_a_time(fs: &dyn FileSystem) {
    let dir = mkdir(fs, fs.root(), "dir");
    for i in 0..300 {
        create(fs, dir, &format!("{i:0>width$}", width = 1 + i % 200));
    }
    let (mut seen, mut cookie) = (Vec::new(), 0);
    while let Some(next) = go_on(fs, dir, cookie, 1, &mut seen) {
        assert_ne!(next, cookie);
        cookie = next;
        // What was read goes: the rest must still come, each once.
        match seen.last() {
            Some(last) if last != "." && last != ".." => fs.unlink(dir, last.as_bytes()).expect("unlink"),
            _ => {}
        }
    }
    assert_eq!(seen.len(), 302);
    assert!(list(fs, dir).is_empty());
}

pub fn come_and_go(fs: &dyn FileSystem) {
    let dir = mkdir(fs, fs.root(), "dir");
    for round in 0..3 {
        for i in 0..3000 {
            fs.forget(create(fs, dir, &format!("r{round}-{i}")), 1);
        }
        let names: BTreeSet<String> = list(fs, dir).into_iter().map(|n| n.0).collect();
        assert_eq!(names.len(), 3000);
        fails("rmdir of a full directory", fs.rmdir(fs.root(), b"dir"), &[Errno::ENOTEMPTY]);
        for i in (0..3000).rev() {
            fs.unlink(dir, format!("r{round}-{i}").as_bytes()).expect("unlink");
        }
        assert!(list(fs, dir).is_empty());
    }
    fs.rmdir(fs.root(), b"dir").expect("rmdir");
}

pub fn deep(fs: &dyn FileSystem) {
    let mut dirs = vec![fs.root()];
    for i in 0..200 {
        dirs.push(mkdir(fs, dirs[i], "deeper"));
    }
    let file = create(fs, dirs[200], "bottom");
    fails("rename into the depth", rename(fs, (dirs[1], "deeper"), (dirs[200], "x"), NONE), &[Errno::EINVAL]);
    rename(fs, (dirs[100], "deeper"), (fs.root(), "half"), NONE).expect("rename of half of it");
    assert_eq!(find(fs, dirs[200], "bottom"), Some(file));
    assert!(list(fs, dirs[100]).is_empty());
}
