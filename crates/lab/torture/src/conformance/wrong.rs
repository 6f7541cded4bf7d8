//! Calls that have to fail, and how.

use super::*;
use arbor_base::vfs::{FallocMode, Seek};

/// What Linux or a manual page gives for data calls on what holds no data.
const NO_FILE: [Errno; 5] = [Errno::EINVAL, Errno::ENODEV, Errno::EBADF, Errno::EOPNOTSUPP, Errno::EISDIR];

pub fn read_and_write(fs: &dyn FileSystem) {
    let zoo = Zoo::new(fs);
    let mut buf = [0; 8];
    fails("read of a directory", fs.read(zoo.sub, 0, &mut buf), &[Errno::EISDIR]);
    fails("write to a directory", fs.write(zoo.sub, 0, b"x"), &[Errno::EISDIR]);
    for ino in [zoo.link, zoo.fifo] {
        fails("read of no file", fs.read(ino, 0, &mut buf), &NO_FILE);
        fails("write to no file", fs.write(ino, 0, b"x"), &NO_FILE);
    }
}

pub fn truncate(fs: &dyn FileSystem) {
    let zoo = Zoo::new(fs);
    fails("truncate of a directory", truncate_to(fs, zoo.sub, 0), &[Errno::EISDIR]);
    fails("truncate of a link", truncate_to(fs, zoo.link, 0), &[Errno::EINVAL]);
    fails("truncate of a fifo", truncate_to(fs, zoo.fifo, 0), &[Errno::EINVAL]);
    let both = SetAttr { size: Some(0), mode: Some(0o700), ..SetAttr::default() };
    fails("truncate and chmod of a directory", fs.setattr(zoo.sub, &both), &[Errno::EISDIR]);
    assert_eq!(attr(fs, zoo.sub).mode & 0o7777, 0o755, "a failed setattr changes nothing");
}

pub fn fallocate(fs: &dyn FileSystem) {
    let zoo = Zoo::new(fs);
    for ino in [zoo.sub, zoo.link, zoo.fifo] {
        fails("fallocate of no file", fs.fallocate(ino, FallocMode::empty(), 0, 100), &NO_FILE);
    }
}

pub fn seek_and_copy(fs: &dyn FileSystem) {
    let zoo = Zoo::new(fs);
    write(fs, zoo.file, 0, b"some bytes");
    for ino in [zoo.sub, zoo.link, zoo.fifo] {
        fails("seek in no file", fs.seek(ino, 0, Seek::Data), &NO_FILE);
        fails("copy from no file", fs.copy_range(ino, 0, zoo.file, 0, 5), &NO_FILE);
        fails("copy to no file", fs.copy_range(zoo.file, 0, ino, 0, 5), &NO_FILE);
    }
}

pub fn readdir(fs: &dyn FileSystem) {
    let zoo = Zoo::new(fs);
    for ino in [zoo.file, zoo.link, zoo.fifo] {
        fails("readdir", fs.readdir(ino, 0, &mut |_| true), &[Errno::ENOTDIR]);
        fails("readdir_plus", fs.readdir_plus(ino, 0, &mut |_, _| true), &[Errno::ENOTDIR]);
    }
}

pub fn readlink(fs: &dyn FileSystem) {
    let zoo = Zoo::new(fs);
    for ino in [zoo.file, zoo.sub, zoo.fifo] {
        fails("readlink", fs.readlink(ino), &[Errno::EINVAL]);
    }
}

pub fn file_as_parent(fs: &dyn FileSystem) {
    let zoo = Zoo::new(fs);
    no_parent(fs, &zoo, zoo.file);
}

pub fn others_as_parent(fs: &dyn FileSystem) {
    let zoo = Zoo::new(fs);
    no_parent(fs, &zoo, zoo.fifo);
    no_parent(fs, &zoo, zoo.link);
}

fn no_parent(fs: &dyn FileSystem, zoo: &Zoo, parent: Ino) {
    let no = [Errno::ENOTDIR];
    fails("lookup", fs.lookup(parent, b"x"), &no);
    fails("mknod", fs.mknod(&CX, parent, b"x", mode::IFREG | 0o600, 0), &no);
    fails("mkdir", fs.mkdir(&CX, parent, b"x", 0o700), &no);
    fails("symlink", fs.symlink(&CX, parent, b"x", b"y"), &no);
    fails("tmpfile", fs.tmpfile(&CX, parent, 0o600), &no);
    fails("link", fs.link(zoo.file, parent, b"x"), &no);
    fails("unlink", fs.unlink(parent, b"x"), &no);
    fails("rmdir", fs.rmdir(parent, b"x"), &no);
    fails("rename from", rename(fs, (parent, "x"), (zoo.dir, "y"), NONE), &no);
    fails("rename to", rename(fs, (zoo.dir, "file"), (parent, "y"), NONE), &no);
}

pub fn absent(fs: &dyn FileSystem) {
    let zoo = Zoo::new(fs);
    let no = [Errno::ENOENT];
    fails("lookup", fs.lookup(zoo.dir, b"absent"), &no);
    fails("unlink", fs.unlink(zoo.dir, b"absent"), &no);
    fails("rmdir", fs.rmdir(zoo.dir, b"absent"), &no);
    fails("rename", rename(fs, (zoo.dir, "absent"), (zoo.dir, "file"), NONE), &no);
    fails("exchange", rename(fs, (zoo.dir, "file"), (zoo.dir, "absent"), RenameFlags::EXCHANGE), &no);
    assert_eq!(list(fs, zoo.dir).len(), 4);
}

pub fn taken(fs: &dyn FileSystem) {
    let zoo = Zoo::new(fs);
    for name in ["file", "sub", "link", "fifo"] {
        let bytes = name.as_bytes();
        fails("mknod", fs.mknod(&CX, zoo.dir, bytes, mode::IFREG | 0o600, 0), &[Errno::EEXIST]);
        fails("mkdir", fs.mkdir(&CX, zoo.dir, bytes, 0o700), &[Errno::EEXIST]);
        fails("symlink", fs.symlink(&CX, zoo.dir, bytes, b"y"), &[Errno::EEXIST]);
        fails("link", fs.link(zoo.file, zoo.dir, bytes), &[Errno::EEXIST]);
    }
    assert_eq!(list(fs, zoo.dir).len(), 4);
    assert_eq!(attr(fs, zoo.file).nlink, 1, "a failed link counts nothing");
}

pub fn bad_names(fs: &dyn FileSystem) {
    let zoo = Zoo::new(fs);
    let bad = [Errno::EINVAL, Errno::EEXIST, Errno::ENOENT, Errno::ENOTEMPTY, Errno::EBUSY, Errno::EISDIR];
    for name in [b"".as_slice(), b".", b"..", b"a/b", b"/", b"a\0b"] {
        fails("mknod", fs.mknod(&CX, zoo.dir, name, mode::IFREG | 0o600, 0), &bad);
        fails("mkdir", fs.mkdir(&CX, zoo.dir, name, 0o700), &bad);
        fails("symlink", fs.symlink(&CX, zoo.dir, name, b"y"), &bad);
        fails("link", fs.link(zoo.file, zoo.dir, name), &bad);
        fails("unlink", fs.unlink(zoo.dir, name), &bad);
        fails("rmdir", fs.rmdir(zoo.sub, name), &bad);
        fails("rename to", fs.rename(&CX, zoo.dir, b"file", zoo.dir, name, NONE), &bad);
        fails("rename from", fs.rename(&CX, zoo.dir, name, zoo.dir, b"other", NONE), &bad);
    }
    assert_eq!(list(fs, zoo.dir).len(), 4);
}

pub fn unknown_inodes(fs: &dyn FileSystem) {
    let stale = [Errno::ESTALE, Errno::ENOENT];
    for ino in [Ino(0), Ino(987_654_321), Ino(u64::MAX)] {
        fails("getattr", fs.getattr(ino), &stale);
        fails("setattr", fs.setattr(ino, &SetAttr::default()), &stale);
        fails("lookup", fs.lookup(ino, b"x"), &stale);
        fails("read", fs.read(ino, 0, &mut [0; 4]), &stale);
        fails("write", fs.write(ino, 0, b"x"), &stale);
        fails("readdir", fs.readdir(ino, 0, &mut |_| true), &stale);
        fails("mkdir", fs.mkdir(&CX, ino, b"x", 0o700), &stale);
        fails("link", fs.link(ino, fs.root(), b"x"), &stale);
        fails("getxattr", fs.getxattr(ino, b"user.x"), &stale);
        fails("fsync", fs.fsync(ino, false), &stale);
        fs.forget(ino, 3);
    }
}

pub fn mknod_types(fs: &dyn FileSystem) {
    let bad = [Errno::EINVAL, Errno::EPERM];
    for kind in [mode::IFDIR, mode::IFLNK, 0o070_000] {
        fails("mknod", fs.mknod(&CX, fs.root(), b"x", kind | 0o644, 0), &bad);
    }
    assert!(list(fs, fs.root()).is_empty());
}

pub fn unlink_dir(fs: &dyn FileSystem) {
    let zoo = Zoo::new(fs);
    fails("unlink", fs.unlink(zoo.dir, b"sub"), &[Errno::EISDIR]);
    fails("rmdir of a full one", fs.rmdir(fs.root(), b"zoo"), &[Errno::ENOTEMPTY]);
    fs.rmdir(zoo.dir, b"sub").expect("rmdir");
    assert_eq!(find(fs, zoo.dir, "sub"), None);
}

pub fn rmdir_file(fs: &dyn FileSystem) {
    let zoo = Zoo::new(fs);
    for name in [b"file", b"link", b"fifo"] {
        fails("rmdir", fs.rmdir(zoo.dir, name), &[Errno::ENOTDIR]);
    }
}

pub fn removed_dir(fs: &dyn FileSystem) {
    let zoo = Zoo::new(fs);
    fs.rmdir(zoo.dir, b"sub").expect("rmdir");
    let no = [Errno::ENOENT];
    fails("lookup", fs.lookup(zoo.sub, b"x"), &no);
    fails("mknod", fs.mknod(&CX, zoo.sub, b"x", mode::IFREG | 0o600, 0), &no);
    fails("mkdir", fs.mkdir(&CX, zoo.sub, b"x", 0o700), &no);
    fails("symlink", fs.symlink(&CX, zoo.sub, b"x", b"y"), &no);
    fails("link", fs.link(zoo.file, zoo.sub, b"x"), &no);
    fails("rename", rename(fs, (zoo.dir, "file"), (zoo.sub, "x"), NONE), &no);
    assert_eq!(attr(fs, zoo.sub).nlink, 0);
}
