//! Names, links, attributes, rename.

use super::*;
use crate::rng::pattern;

pub fn lengths(fs: &dyn FileSystem) {
    let root = fs.root();
    let (longest, too_long) = ("n".repeat(255), "n".repeat(256));
    let file = create(fs, root, &longest);
    assert_eq!(find(fs, root, &longest), Some(file));
    assert_eq!(find(fs, root, &"n".repeat(254)), None);
    let no = [Errno::ENAMETOOLONG];
    fails("lookup", fs.lookup(root, too_long.as_bytes()), &no);
    fails("mknod", fs.mknod(&CX, root, too_long.as_bytes(), mode::IFREG | 0o600, 0), &no);
    fails("mkdir", fs.mkdir(&CX, root, too_long.as_bytes(), 0o700), &no);
    fails("symlink", fs.symlink(&CX, root, too_long.as_bytes(), b"x"), &no);
    fails("link", fs.link(file, root, too_long.as_bytes()), &no);
    fails("rename", rename(fs, (root, &longest), (root, &too_long), NONE), &no);
    fails("unlink", fs.unlink(root, too_long.as_bytes()), &no);
    for i in 0..300 {
        create(fs, root, &format!("{i:0>255}"));
    }
    assert_eq!(list(fs, root).len(), 301);
}

pub fn any_bytes(fs: &dyn FileSystem) {
    for b in (1..=255u8).filter(|b| *b != b'/' && *b != b'.') {
        let name = [b];
        let made = fs.mknod(&CX, fs.root(), &name, mode::IFREG | 0o600, 0).expect("mknod");
        let found = fs.lookup(fs.root(), &name).expect("lookup");
        assert_eq!(made.ino, found.ino, "name {b:#x}");
    }
    for name in [b"...".as_slice(), b"..a", b".a", b" ", b"a ", b"\xff\xfe", "é".as_bytes(), "e\u{301}".as_bytes()] {
        let fresh = fs.lookup(fs.root(), name).is_err();
        assert_eq!(fs.mkdir(&CX, fs.root(), name, 0o755).is_ok(), fresh);
    }
    assert_eq!(list(fs, fs.root()).len(), 253 + 7);
}

pub fn dots(fs: &dyn FileSystem) {
    let zoo = Zoo::new(fs);
    for (dir, name, is) in [
        (zoo.sub, b".".as_slice(), zoo.sub),
        (zoo.sub, b"..", zoo.dir),
        (zoo.dir, b"..", fs.root()),
        (fs.root(), b"..", fs.root()),
        (fs.root(), b".", fs.root()),
    ] {
        let found = fs.lookup(dir, name).expect("lookup");
        assert_eq!(found.ino, is);
        fs.forget(found.ino, 1);
    }
}

pub fn types(fs: &dyn FileSystem) {
    let root = fs.root();
    let kinds = [
        (mode::IFREG, FileType::File, 0),
        (mode::IFIFO, FileType::Fifo, 0),
        (mode::IFSOCK, FileType::Socket, 0),
        (mode::IFCHR, FileType::Char, 0x0103),
        (mode::IFBLK, FileType::Block, 0xfff0_07ff),
    ];
    for (i, (bits, kind, rdev)) in kinds.into_iter().enumerate() {
        let name = format!("node{i}");
        let made = fs.mknod(&CX, root, name.as_bytes(), bits | 0o4751, rdev).expect("mknod");
        assert_eq!((made.mode, made.nlink, made.size, made.rdev), (bits | 0o4751, 1, 0, rdev), "{kind:?}");
        assert_eq!(made, attr(fs, made.ino), "{kind:?}");
        assert!(list(fs, root).contains(&(name, kind)));
    }
    let dir = fs.mkdir(&CX, root, b"dir", 0o1777).expect("mkdir");
    assert_eq!(dir.mode, mode::IFDIR | 0o1777);
}

pub fn owners(fs: &dyn FileSystem) {
    let cx = Cx { uid: 70_001, gid: 4_000_000_000 };
    let root = fs.root();
    let made = [
        fs.mknod(&cx, root, b"file", mode::IFREG | 0o600, 0).expect("mknod"),
        fs.mkdir(&cx, root, b"dir", 0o700).expect("mkdir"),
        fs.symlink(&cx, root, b"link", b"x").expect("symlink"),
        fs.tmpfile(&cx, root, 0o600).expect("tmpfile"),
    ];
    for a in made {
        assert_eq!((a.uid, a.gid), (cx.uid, cx.gid));
    }
}

pub fn setgid(fs: &dyn FileSystem) {
    let cx = Cx { uid: 5, gid: 6 };
    let parent = fs.mkdir(&Cx { uid: 0, gid: 77 }, fs.root(), b"parent", 0o2775).expect("mkdir").ino;
    let file = fs.mknod(&cx, parent, b"file", mode::IFREG | 0o644, 0).expect("mknod");
    let dir = fs.mkdir(&cx, parent, b"dir", 0o755).expect("mkdir");
    let link = fs.symlink(&cx, parent, b"link", b"x").expect("symlink");
    let tmp = fs.tmpfile(&cx, parent, 0o600).expect("tmpfile");
    for a in [file, dir, link, tmp] {
        assert_eq!((a.uid, a.gid), (5, 77));
    }
    assert_eq!(dir.mode & 0o7777, 0o2755, "a directory inherits the bit");
    assert_eq!(file.mode & 0o7777, 0o644, "a file does not");
    let below = fs.mkdir(&cx, dir.ino, b"below", 0o700).expect("mkdir");
    assert_eq!((below.gid, below.mode & 0o7777), (77, 0o2700));
}

pub fn setattr(fs: &dyn FileSystem) {
    let zoo = Zoo::new(fs);
    for ino in [zoo.file, zoo.sub, zoo.fifo] {
        let before = attr(fs, ino);
        let set = SetAttr { mode: Some(mode::IFREG | 0o1531), uid: Some(9), ..SetAttr::default() };
        let after = fs.setattr(ino, &set).expect("setattr");
        assert_eq!(after.mode, (before.mode & mode::IFMT) | 0o1531, "type bits are ignored");
        assert_eq!((after.uid, after.gid, after.nlink, after.size), (9, before.gid, before.nlink, before.size));
        assert_eq!(after, attr(fs, ino));
        let after = fs.setattr(ino, &SetAttr { gid: Some(u32::MAX - 1), ..SetAttr::default() }).expect("setattr");
        assert_eq!((after.uid, after.gid), (9, u32::MAX - 1));
    }
    let all = SetAttr { mode: Some(0o600), uid: Some(1), gid: Some(2), size: Some(100), ..SetAttr::default() };
    let a = fs.setattr(zoo.file, &all).expect("setattr");
    assert_eq!((a.mode & 0o7777, a.uid, a.gid, a.size), (0o600, 1, 2, 100));
}

pub fn hard_links(fs: &dyn FileSystem) {
    let zoo = Zoo::new(fs);
    write(fs, zoo.file, 0, b"shared");
    let made = fs.link(zoo.file, zoo.sub, b"second").expect("link");
    assert_eq!((made.ino, made.nlink), (zoo.file, 2));
    fs.unlink(zoo.dir, b"file").expect("unlink");
    assert_eq!(attr(fs, zoo.file).nlink, 1);
    fs.forget(zoo.file, 2);
    let again = fs.lookup(zoo.sub, b"second").expect("lookup");
    assert_eq!((again.ino, again.nlink), (zoo.file, 1));
    assert_eq!(read(fs, again.ino, 0, 10), b"shared");
    for (name, ino) in [("l", zoo.link), ("f", zoo.fifo)] {
        assert_eq!(fs.link(ino, zoo.sub, name.as_bytes()).expect("link").nlink, 2, "links of {name}");
    }
}

pub fn many_links(fs: &dyn FileSystem) {
    let file = create(fs, fs.root(), "file");
    let dir = mkdir(fs, fs.root(), "dir");
    let mut count = 1;
    for i in 0..1200 {
        match fs.link(file, dir, format!("l{i}").as_bytes()) {
            Ok(a) => count += u32::from(a.ino == file),
            Err(e) => {
                assert_eq!(e.errno(), Errno::EMLINK);
                break;
            }
        }
    }
    assert!(count >= 128, "only {count} links");
    assert_eq!(attr(fs, file).nlink, count);
    fs.unlink(dir, b"l0").expect("unlink");
    assert_eq!(attr(fs, file).nlink, count - 1);
}

pub fn link_dir(fs: &dyn FileSystem) {
    let zoo = Zoo::new(fs);
    fails("link of a directory", fs.link(zoo.sub, zoo.dir, b"again"), &[Errno::EPERM]);
    fails("link of the root", fs.link(fs.root(), zoo.dir, b"again"), &[Errno::EPERM]);
    assert_eq!(attr(fs, zoo.sub).nlink, 2);
}

pub fn symlinks(fs: &dyn FileSystem) {
    for len in [1, 2, 58, 59, 60, 61, 100, 255, 256, 1000, 2048, 4000, 4094, 4095] {
        let target = pattern(len as u64, 0, len);
        let made = fs.symlink(&CX, fs.root(), format!("s{len}").as_bytes(), &target).expect("symlink");
        assert_eq!((made.size, made.file_type()), (len as u64, FileType::Symlink));
        assert_eq!(fs.readlink(made.ino).expect("readlink"), target, "target of {len} bytes");
    }
    fails("too long", fs.symlink(&CX, fs.root(), b"x", &[b'a'; 4096]), &[Errno::ENAMETOOLONG, Errno::EINVAL]);
    fails("empty", fs.symlink(&CX, fs.root(), b"x", b""), &[Errno::EINVAL, Errno::ENOENT]);
}

pub fn rename_moves(fs: &dyn FileSystem) {
    let zoo = Zoo::new(fs);
    write(fs, zoo.file, 0, b"moves along");
    for (name, ino) in [("file", zoo.file), ("link", zoo.link), ("fifo", zoo.fifo)] {
        rename(fs, (zoo.dir, name), (zoo.sub, name), NONE).expect("rename");
        assert_eq!((find(fs, zoo.dir, name), find(fs, zoo.sub, name)), (None, Some(ino)));
        rename(fs, (zoo.sub, name), (zoo.sub, "a new name"), NONE).expect("rename in place");
        assert_eq!((find(fs, zoo.sub, name), find(fs, zoo.sub, "a new name")), (None, Some(ino)));
        rename(fs, (zoo.sub, "a new name"), (zoo.dir, name), NONE).expect("rename back");
        assert_eq!(attr(fs, ino).nlink, 1);
    }
    assert_eq!(read(fs, zoo.file, 0, 20), b"moves along");
    assert!(list(fs, zoo.sub).is_empty());
}

pub fn rename_replaces(fs: &dyn FileSystem) {
    let root = fs.root();
    let (a, b) = (create(fs, root, "a"), create(fs, root, "b"));
    write(fs, a, 0, b"first");
    write(fs, b, 0, b"second");
    rename(fs, (root, "a"), (root, "b"), NONE).expect("rename");
    assert_eq!((find(fs, root, "a"), find(fs, root, "b")), (None, Some(a)));
    assert_eq!((attr(fs, a).nlink, attr(fs, b).nlink), (1, 0));
    assert_eq!(list(fs, root), [("b".to_string(), FileType::File)]);
    let link = fs.symlink(&CX, root, b"link", b"x").expect("symlink").ino;
    rename(fs, (root, "link"), (root, "b"), NONE).expect("rename of a link over a file");
    assert_eq!(list(fs, root), [("b".to_string(), FileType::Symlink)]);
    assert_eq!(find(fs, root, "b"), Some(link));
}

pub fn rename_file_over_dir(fs: &dyn FileSystem) {
    let zoo = Zoo::new(fs);
    fails("rename", rename(fs, (zoo.dir, "file"), (zoo.dir, "sub"), NONE), &[Errno::EISDIR]);
    fails("rename", rename(fs, (zoo.dir, "link"), (zoo.dir, "sub"), NONE), &[Errno::EISDIR]);
    assert_eq!((find(fs, zoo.dir, "file"), find(fs, zoo.dir, "sub")), (Some(zoo.file), Some(zoo.sub)));
}

pub fn rename_dir_over_file(fs: &dyn FileSystem) {
    let zoo = Zoo::new(fs);
    for name in ["file", "link", "fifo"] {
        fails("rename", rename(fs, (zoo.dir, "sub"), (zoo.dir, name), NONE), &[Errno::ENOTDIR]);
    }
    assert_eq!(find(fs, zoo.dir, "sub"), Some(zoo.sub));
}

pub fn rename_over_full(fs: &dyn FileSystem) {
    let zoo = Zoo::new(fs);
    mkdir(fs, fs.root(), "other");
    let full = [Errno::ENOTEMPTY, Errno::EEXIST];
    fails("rename", rename(fs, (fs.root(), "other"), (fs.root(), "zoo"), NONE), &full);
    assert_eq!(list(fs, zoo.dir).len(), 4);
}

pub fn rename_over_empty(fs: &dyn FileSystem) {
    let zoo = Zoo::new(fs);
    let root = fs.root();
    let empty = mkdir(fs, root, "empty");
    let before = attr(fs, root).nlink;
    rename(fs, (root, "zoo"), (root, "empty"), NONE).expect("rename");
    assert_eq!(find(fs, root, "empty"), Some(zoo.dir));
    assert_eq!((attr(fs, root).nlink, attr(fs, empty).nlink, attr(fs, zoo.dir).nlink), (before - 1, 0, 3));
}

pub fn rename_loop(fs: &dyn FileSystem) {
    let a = mkdir(fs, fs.root(), "a");
    let b = mkdir(fs, a, "b");
    let c = mkdir(fs, b, "c");
    for into in [a, b, c] {
        fails("rename into itself", rename(fs, (fs.root(), "a"), (into, "x"), NONE), &[Errno::EINVAL]);
    }
    fails("rename into its child", rename(fs, (a, "b"), (c, "x"), NONE), &[Errno::EINVAL]);
    assert_eq!((find(fs, fs.root(), "a"), find(fs, a, "b"), find(fs, b, "c")), (Some(a), Some(b), Some(c)));
}

pub fn rename_ancestor(fs: &dyn FileSystem) {
    let a = mkdir(fs, fs.root(), "a");
    let b = mkdir(fs, a, "b");
    mkdir(fs, b, "c");
    create(fs, b, "f");
    fails("onto its parent", rename(fs, (b, "c"), (a, "b"), NONE), &[Errno::ENOTEMPTY, Errno::EEXIST]);
    fails("onto its grandparent", rename(fs, (b, "c"), (fs.root(), "a"), NONE), &[Errno::ENOTEMPTY, Errno::EEXIST]);
    let file_too = [Errno::ENOTEMPTY, Errno::EISDIR, Errno::EEXIST];
    fails("a file onto its parent", rename(fs, (b, "f"), (a, "b"), NONE), &file_too);
}

pub fn rename_same_inode(fs: &dyn FileSystem) {
    let root = fs.root();
    let file = create(fs, root, "one");
    fs.link(file, root, b"two").expect("link");
    rename(fs, (root, "one"), (root, "two"), NONE).expect("rename of two names of one file");
    assert_eq!((find(fs, root, "one"), find(fs, root, "two")), (Some(file), Some(file)));
    rename(fs, (root, "one"), (root, "one"), NONE).expect("rename onto itself");
    assert_eq!(attr(fs, file).nlink, 2);
    let dir = mkdir(fs, root, "dir");
    rename(fs, (root, "dir"), (root, "dir"), NONE).expect("rename of a directory onto itself");
    assert_eq!(find(fs, root, "dir"), Some(dir));
}

pub fn rename_noreplace(fs: &dyn FileSystem) {
    let zoo = Zoo::new(fs);
    let flags = RenameFlags::NOREPLACE;
    for name in ["sub", "link", "fifo", "file"] {
        fails("noreplace", rename(fs, (zoo.dir, "file"), (zoo.dir, name), flags), &[Errno::EEXIST]);
    }
    rename(fs, (zoo.dir, "file"), (zoo.dir, "free"), flags).expect("noreplace to a free name");
    assert_eq!((find(fs, zoo.dir, "file"), find(fs, zoo.dir, "free")), (None, Some(zoo.file)));
}

pub fn rename_exchange(fs: &dyn FileSystem) {
    let zoo = Zoo::new(fs);
    let flags = RenameFlags::EXCHANGE;
    let other = create(fs, zoo.sub, "other");
    rename(fs, (zoo.dir, "file"), (zoo.sub, "other"), flags).expect("exchange");
    assert_eq!((find(fs, zoo.dir, "file"), find(fs, zoo.sub, "other")), (Some(other), Some(zoo.file)));
    rename(fs, (zoo.dir, "link"), (zoo.dir, "fifo"), flags).expect("exchange in place");
    assert_eq!((find(fs, zoo.dir, "link"), find(fs, zoo.dir, "fifo")), (Some(zoo.fifo), Some(zoo.link)));
    let kinds = list(fs, zoo.dir);
    assert!(kinds.contains(&("link".to_string(), FileType::Fifo)), "the type goes with the file");
    rename(fs, (zoo.dir, "file"), (zoo.dir, "file"), flags).expect("exchange with itself");
    assert!(zoo.all().iter().all(|i| attr(fs, *i).nlink > 0));
}

pub fn rename_exchange_dirs(fs: &dyn FileSystem) {
    let root = fs.root();
    let (a, b) = (mkdir(fs, root, "a"), mkdir(fs, root, "b"));
    let sub = mkdir(fs, a, "sub");
    let file = create(fs, b, "file");
    rename(fs, (a, "sub"), (b, "file"), RenameFlags::EXCHANGE).expect("exchange");
    assert_eq!((find(fs, a, "sub"), find(fs, b, "file")), (Some(file), Some(sub)));
    assert_eq!((attr(fs, a).nlink, attr(fs, b).nlink, attr(fs, sub).nlink), (2, 3, 2));
    let up = fs.lookup(sub, b"..").expect("lookup of ..");
    assert_eq!(up.ino, b);
    fs.forget(up.ino, 1);
    rename(fs, (root, "a"), (root, "b"), RenameFlags::EXCHANGE).expect("exchange");
    assert_eq!((find(fs, root, "a"), find(fs, root, "b"), attr(fs, root).nlink), (Some(b), Some(a), 4));
}

pub fn rename_exchange_loop(fs: &dyn FileSystem) {
    let a = mkdir(fs, fs.root(), "a");
    let b = mkdir(fs, a, "b");
    let flags = RenameFlags::EXCHANGE;
    create(fs, b, "f");
    fails("exchange with a child", rename(fs, (fs.root(), "a"), (a, "b"), flags), &[Errno::EINVAL]);
    fails("exchange with a parent", rename(fs, (a, "b"), (fs.root(), "a"), flags), &[Errno::EINVAL]);
    fails("exchange of a file with its ancestor", rename(fs, (b, "f"), (fs.root(), "a"), flags), &[Errno::EINVAL]);
}

pub fn rename_bad_flags(fs: &dyn FileSystem) {
    let zoo = Zoo::new(fs);
    let both = RenameFlags::NOREPLACE | RenameFlags::EXCHANGE;
    fails("both", rename(fs, (zoo.dir, "file"), (zoo.dir, "link"), both), &[Errno::EINVAL]);
    let both = RenameFlags::WHITEOUT | RenameFlags::EXCHANGE;
    fails("both", rename(fs, (zoo.dir, "file"), (zoo.dir, "link"), both), &[Errno::EINVAL]);
    let unknown = RenameFlags::from_bits_retain(1 << 20);
    fails("unknown", rename(fs, (zoo.dir, "file"), (zoo.dir, "free"), unknown), &[Errno::EINVAL]);
}

pub fn rename_whiteout(fs: &dyn FileSystem) {
    let zoo = Zoo::new(fs);
    match rename(fs, (zoo.dir, "file"), (zoo.dir, "moved"), RenameFlags::WHITEOUT) {
        Err(e) => assert_eq!(e.errno(), Errno::EINVAL, "whiteouts are done or refused"),
        Ok(()) => {
            let white = fs.lookup(zoo.dir, b"file").expect("the whiteout");
            assert_eq!((white.file_type(), white.rdev, white.nlink), (FileType::Char, 0, 1));
            assert_eq!(find(fs, zoo.dir, "moved"), Some(zoo.file));
        }
    }
}

pub fn rename_over_open(fs: &dyn FileSystem) {
    let root = fs.root();
    let (a, b) = (create(fs, root, "a"), create(fs, root, "b"));
    write(fs, b, 0, &pattern(1, 0, 50_000));
    rename(fs, (root, "a"), (root, "b"), NONE).expect("rename");
    write(fs, a, 0, &pattern(2, 0, 50_000));
    assert_eq!(attr(fs, b).nlink, 0);
    assert_eq!(read(fs, b, 0, 60_000), pattern(1, 0, 50_000), "a replaced file lives while in use");
    fs.forget(b, 1);
    assert_eq!(read(fs, a, 0, 60_000), pattern(2, 0, 50_000));
}
