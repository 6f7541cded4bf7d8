//! Carries an operation out on any [`FileSystem`], and says whether two results agree.

use crate::ops::{Op, Path, long_name};
use crate::rng::pattern;
use arbor_base::vfs::{
    Attr, Cx, Errno, FallocMode, FileSystem, FileType, Ino, RenameFlags, Result, Seek, SetAttr, SetTime, Time,
    XattrMode, mode,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What an operation gave back, in terms that any two file systems share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It failed.
    Err(Errno),
    /// It succeeded and gives nothing.
    Done,
    /// A file as it is now.
    File(Facts),
    /// So many bytes.
    Count(u64),
    /// An offset.
    At(u64),
    /// Bytes of a file or value.
    Bytes(Vec<u8>),
    /// Names with their types, sorted.
    Names(Vec<(Vec<u8>, FileType)>),
    /// Names of attributes, sorted.
    Keys(Vec<Vec<u8>>),
}

/// Attributes that any two file systems share: no numbers, no times, no size of directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Facts {
    /// Type and permissions.
    pub mode: u32,
    /// Link count.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number.
    pub rdev: u32,
    /// Size, 0 for directories.
    pub size: u64,
}

impl Facts {
    /// What `attr` says of them.
    pub fn of(attr: &Attr) -> Facts {
        let sized = matches!(attr.file_type(), FileType::File | FileType::Symlink);
        let device = matches!(attr.file_type(), FileType::Char | FileType::Block);
        Facts {
            mode: attr.mode,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            rdev: if device { attr.rdev } else { 0 },
            size: if sized { attr.size } else { 0 },
        }
    }
}

/// A reference that is given back when it goes out of scope.
pub struct Held<'a> {
    fs: &'a dyn FileSystem,
    /// The inode.
    pub ino: Ino,
    counted: bool,
}

impl Held<'_> {
    /// Keeps the reference; somebody else gives it back.
    fn keep(mut self) -> Ino {
        self.counted = false;
        self.ino
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.counted {
            self.fs.forget(self.ino, 1);
        }
    }
}

/// A file system with the references that a sequence holds.
pub struct Side {
    /// The file system.
    pub fs: Arc<dyn FileSystem>,
    slots: BTreeMap<u8, Ino>,
}

impl Side {
    /// `fs` with empty slots.
    pub fn new(fs: Arc<dyn FileSystem>) -> Side {
        Side { fs, slots: BTreeMap::new() }
    }

    /// The same slots on a copy of the file system.
    pub fn fork(&self, fs: Arc<dyn FileSystem>) -> Side {
        Side { fs, slots: self.slots.clone() }
    }

    /// What `slot` holds.
    pub fn slot(&self, slot: u8) -> Option<Ino> {
        self.slots.get(&slot).copied()
    }

    /// The inode that `path` names, and a reference to it.
    pub fn find(&self, path: &Path) -> Result<Held<'_>> {
        let start = match path.slot {
            Some(n) => self.slot(n).ok_or(Errno::EBADF)?,
            None => self.fs.root(),
        };
        let mut here = Held { fs: &*self.fs, ino: start, counted: false };
        for name in &path.names {
            let ino = self.fs.lookup(here.ino, &long_name(name))?.ino;
            here = Held { fs: &*self.fs, ino, counted: true };
        }
        Ok(here)
    }

    /// The directory of `path` and the last name; `EBUSY` if there is no name.
    fn place(&self, path: &Path) -> Result<(Held<'_>, Vec<u8>)> {
        let (last, above) = path.names.split_last().ok_or(Errno::EBUSY)?;
        Ok((self.find(&Path { slot: path.slot, names: above.to_vec() })?, long_name(last)))
    }

    /// Carries out `op`, except for those that concern a mount or a walk, which do nothing here.
    pub fn apply(&mut self, op: &Op) -> Outcome {
        let done = match op {
            Op::Tmpfile { dir, slot } => self.tmpfile(dir, *slot),
            Op::Hold { path, slot } => self.hold(path, *slot),
            Op::Drop { slot } => self.fill(*slot, None),
            _ => self
                .make(op)
                .or_else(|| self.names(op))
                .or_else(|| self.contents(op))
                .unwrap_or_else(|| self.attributes(op)),
        };
        done.unwrap_or_else(|e| Outcome::Err(e.errno()))
    }

    fn fill(&mut self, slot: u8, ino: Option<Ino>) -> Result<Outcome> {
        let old = match ino {
            Some(i) => self.slots.insert(slot, i),
            None => self.slots.remove(&slot),
        };
        if let Some(old) = old {
            self.fs.forget(old, 1);
        }
        Ok(Outcome::Done)
    }

    fn tmpfile(&mut self, dir: &Path, slot: u8) -> Result<Outcome> {
        let attr = self.fs.tmpfile(&Cx::default(), self.find(dir)?.ino, 0o600)?;
        self.fill(slot, Some(attr.ino))?;
        Ok(Outcome::File(Facts::of(&attr)))
    }

    fn hold(&mut self, path: &Path, slot: u8) -> Result<Outcome> {
        if path.names.is_empty() {
            return Err(Errno::EBUSY.into());
        }
        let ino = self.find(path)?.keep();
        self.fill(slot, Some(ino))
    }

    fn made(&self, attr: Attr) -> Outcome {
        self.fs.forget(attr.ino, 1);
        Outcome::File(Facts::of(&attr))
    }

    fn make(&self, op: &Op) -> Option<Result<Outcome>> {
        let fs = &*self.fs;
        let node = |path: &Path, gid, mode, rdev| {
            let (dir, name) = self.place(path)?;
            fs.mknod(&Cx { uid: 0, gid }, dir.ino, &name, mode, rdev).map(|a| self.made(a))
        };
        Some(match op {
            Op::Create { path, mode, gid } => node(path, *gid, mode::IFREG | mode, 0),
            Op::Put { path, mode, gid, len, tag } => self.place(path).and_then(|(dir, name)| {
                let (cx, data) = (Cx { uid: 0, gid: *gid }, pattern(*tag, 0, *len));
                fs.make_file(&cx, dir.ino, &name, *mode, &data).map(|()| Outcome::Done)
            }),
            Op::Mkfifo { path } => node(path, 0, mode::IFIFO | 0o644, 0),
            Op::Mkdev { path, rdev } => node(path, 0, mode::IFCHR | 0o600, *rdev),
            Op::Mkdir { path, mode, gid } => self.place(path).and_then(|(dir, name)| {
                fs.mkdir(&Cx { uid: 0, gid: *gid }, dir.ino, &name, *mode).map(|a| self.made(a))
            }),
            Op::Symlink { path, len, tag } => self.place(path).and_then(|(dir, name)| {
                fs.symlink(&Cx::default(), dir.ino, &name, &pattern(*tag, 0, *len)).map(|a| self.made(a))
            }),
            Op::Link { from, to } => self.find(from).and_then(|file| {
                let (dir, name) = self.place(to)?;
                fs.link(file.ino, dir.ino, &name).map(|a| self.made(a))
            }),
            _ => return None,
        })
    }

    fn names(&self, op: &Op) -> Option<Result<Outcome>> {
        let fs = &*self.fs;
        let done = match op {
            Op::Unlink { path } => self.place(path).and_then(|(dir, name)| fs.unlink(dir.ino, &name)),
            Op::Rmdir { path } => self.place(path).and_then(|(dir, name)| fs.rmdir(dir.ino, &name)),
            Op::Rename { from, to, flags } => self.place(from).and_then(|(dir, name)| {
                let (new_dir, new_name) = self.place(to)?;
                let flags = RenameFlags::from_bits_retain(*flags);
                fs.rename(&Cx::default(), dir.ino, &name, new_dir.ino, &new_name, flags)
            }),
            Op::List { path, chunk } => return Some(self.list(path, *chunk)),
            _ => return None,
        };
        Some(done.map(|()| Outcome::Done))
    }

    fn list(&self, path: &Path, chunk: usize) -> Result<Outcome> {
        let dir = self.find(path)?;
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let (got, next) = read_names(&*self.fs, dir.ino, cookie, chunk)?;
            if got.is_empty() {
                break;
            }
            names.extend(got);
            cookie = next;
        }
        names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Ok(Outcome::Names(names))
    }

    fn contents(&self, op: &Op) -> Option<Result<Outcome>> {
        let fs = &*self.fs;
        Some(match op {
            Op::Write { path, offset, len, tag } => self.find(path).and_then(|f| {
                fs.write(f.ino, *offset, &pattern(*tag, *offset, *len)).map(|n| Outcome::Count(n as u64))
            }),
            Op::Append { path, len, tag } => self.find(path).and_then(|f| {
                let end = fs.getattr(f.ino).map(|a| Facts::of(&a).size)?;
                fs.write(f.ino, end, &pattern(*tag, end, *len)).map(|n| Outcome::Count(n as u64))
            }),
            Op::Read { path, offset, len } => self.find(path).and_then(|f| {
                let mut buf = vec![0xee; *len];
                let n = fs.read(f.ino, *offset, &mut buf)?;
                buf.truncate(n);
                Ok(Outcome::Bytes(buf))
            }),
            Op::Truncate { path, size } => self.set(path, &SetAttr { size: Some(*size), ..SetAttr::default() }),
            Op::Fallocate { path, mode, offset, len } => self.find(path).and_then(|f| {
                fs.fallocate(f.ino, FallocMode::from_bits_retain(*mode), *offset, *len).map(|()| Outcome::Done)
            }),
            Op::Copy { from, from_offset, to, to_offset, len } => self.find(from).and_then(|f| {
                let t = self.find(to)?;
                fs.copy_range(f.ino, *from_offset, t.ino, *to_offset, *len).map(Outcome::Count)
            }),
            Op::Seek { path, offset, whence } => self.find(path).and_then(|f| {
                let whence = if *whence == 0 { Seek::Data } else { Seek::Hole };
                fs.seek(f.ino, *offset, whence).map(Outcome::At)
            }),
            Op::Fsync { path, data_only } => {
                self.find(path).and_then(|f| fs.fsync(f.ino, *data_only != 0).map(|()| Outcome::Done))
            }
            Op::Syncfs {} => fs.syncfs().map(|()| Outcome::Done),
            _ => return None,
        })
    }

    fn set(&self, path: &Path, set: &SetAttr) -> Result<Outcome> {
        let file = self.find(path)?;
        self.fs.setattr(file.ino, set).map(|a| Outcome::File(Facts::of(&a)))
    }

    fn attributes(&self, op: &Op) -> Result<Outcome> {
        let fs = &*self.fs;
        let none = SetAttr::default();
        match op {
            Op::Stat { path } => {
                let file = self.find(path)?;
                let attr = fs.getattr(file.ino)?;
                match attr.file_type() {
                    FileType::Symlink => fs.readlink(file.ino).map(Outcome::Bytes),
                    _ => Ok(Outcome::File(Facts::of(&attr))),
                }
            }
            Op::Chmod { path, mode } => self.set(path, &SetAttr { mode: Some(*mode), ..none }),
            Op::Chown { path, uid, gid } => self.set(path, &SetAttr { uid: Some(*uid), gid: Some(*gid), ..none }),
            Op::Utimes { path, secs } => {
                let t = Some(SetTime::At(Time { secs: *secs, nanos: 5 }));
                self.set(path, &SetAttr { atime: t, mtime: t, ..none })
            }
            Op::SetXattr { path, name, len, tag, how } => {
                let how = [XattrMode::Set, XattrMode::Create, XattrMode::Replace][usize::from(*how).min(2)];
                let value = pattern(*tag, 0, *len);
                fs.setxattr(self.find(path)?.ino, name.as_bytes(), &value, how).map(|()| Outcome::Done)
            }
            Op::GetXattr { path, name } => fs.getxattr(self.find(path)?.ino, name.as_bytes()).map(Outcome::Bytes),
            Op::RemoveXattr { path, name } => {
                fs.removexattr(self.find(path)?.ino, name.as_bytes()).map(|()| Outcome::Done)
            }
            Op::ListXattr { path } => fs.listxattr(self.find(path)?.ino).map(|mut keys| {
                keys.sort_unstable();
                Outcome::Keys(keys)
            }),
            _ => Ok(Outcome::Done),
        }
    }
}

/// Names with their types as a directory gives them.
pub type Names = Vec<(Vec<u8>, FileType)>;

/// Reads `chunk` names after `cookie`, `.` and `..` included; none at the end. Returns the cookie
/// to go on with.
pub fn read_names(fs: &dyn FileSystem, dir: Ino, cookie: u64, chunk: usize) -> Result<(Names, u64)> {
    let (mut names, mut next) = (Vec::new(), cookie);
    fs.readdir(dir, cookie, &mut |e| {
        if names.len() == chunk.max(1) {
            return false;
        }
        names.push((e.name.to_vec(), e.file_type));
        next = e.cookie;
        true
    })?;
    Ok((names, next))
}

/// Whether the engine's outcome of `op` agrees with the model's.
pub fn agree(op: &Op, model: &Outcome, engine: &Outcome) -> bool {
    match (model, engine) {
        (Outcome::Err(m), Outcome::Err(e)) => m == e || errno_agrees(op, *m, *e),
        _ => model == engine,
    }
}

/// Where POSIX leaves a choice between errors, or two apply at once.
fn errno_agrees(op: &Op, model: Errno, engine: Errno) -> bool {
    const WRONG_TYPE: [Errno; 6] =
        [Errno::EISDIR, Errno::EINVAL, Errno::ENODEV, Errno::EBADF, Errno::EOPNOTSUPP, Errno::EPERM];
    const LINK: [Errno; 3] = [Errno::EPERM, Errno::EEXIST, Errno::ENOENT];
    let both = |set: &[Errno]| set.contains(&model) && set.contains(&engine);
    let long_name = model == Errno::ENAMETOOLONG || engine == Errno::ENAMETOOLONG;
    match op {
        Op::Read { .. } | Op::Write { .. } | Op::Append { .. } if both(&WRONG_TYPE) => true,
        Op::Fallocate { .. } | Op::Seek { .. } | Op::Copy { .. } if both(&WRONG_TYPE) => true,
        Op::Link { .. } if both(&LINK) => true,
        _ => long_name && op.to_string().contains("/X"),
    }
}
