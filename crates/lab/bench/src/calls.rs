//! A directory of any mount, through system calls.

use crate::ground::{Ground, Seen};
use crate::library::pieces;
use crate::op::{Dir, Listed, Op};
use arbor_base::vfs::FileType;
use arbor_torture::rng::pattern;
use rustc_hash::FxHashMap;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, symlink};
use std::path::PathBuf;
use std::time::Duration;

/// Drops what is cached of the file system, by unmounting and mounting it or in another way.
pub type Cool<'a> = Box<dyn FnMut() -> io::Result<()> + 'a>;

/// Lets so many nanoseconds of computing pass.
pub type Think<'a> = Box<dyn FnMut(u64) -> io::Result<()> + 'a>;

/// A directory of a mounted file system. [`Op::Think`] sleeps, unless [`SystemCalls::thinking`] says otherwise.
pub struct SystemCalls<'a> {
    root: PathBuf,
    cool: Cool<'a>,
    think: Think<'a>,
    dirs: FxHashMap<Dir, PathBuf>,
    open: FxHashMap<u32, File>,
    using: u32,
}

impl<'a> SystemCalls<'a> {
    /// A ground below `root`; `cool` does [`Op::Remount`].
    pub fn new(root: impl Into<PathBuf>, cool: Cool<'a>) -> SystemCalls<'a> {
        let root = root.into();
        let dirs = FxHashMap::from_iter([(Dir::ROOT, root.clone())]);
        let sleep = |ns| {
            std::thread::sleep(Duration::from_nanos(ns));
            Ok(())
        };
        SystemCalls { root, cool, think: Box::new(sleep), dirs, open: FxHashMap::default(), using: 0 }
    }

    /// Does [`Op::Think`] by `think`.
    pub fn thinking(self, think: Think<'a>) -> SystemCalls<'a> {
        SystemCalls { think, ..self }
    }

    /// Makes everything durable.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(File::open(&self.root)?)?)
    }

    fn path(&self, dir: Dir, name: &str) -> io::Result<PathBuf> {
        Ok(self.dirs.get(&dir).ok_or(io::ErrorKind::NotFound)?.join(name))
    }

    fn op(&mut self, op: &Op, seen: &mut Seen) -> io::Result<()> {
        match op {
            Op::Mkdir { parent, name, dir } => {
                let path = self.path(*parent, name)?;
                fs::create_dir(&path)?;
                self.dirs.insert(*dir, path);
            }
            Op::Enter { parent, name, dir } => {
                let path = self.path(*parent, name)?;
                fs::symlink_metadata(&path)?;
                self.dirs.insert(*dir, path);
            }
            Op::Leave { dir } => {
                self.dirs.remove(dir);
                return Ok(());
            }
            Op::Rmdir { dir } => {
                fs::remove_dir(self.path(*dir, "")?)?;
                self.dirs.remove(dir);
            }
            Op::Sync => self.sync()?,
            Op::Remount => (self.cool)()?,
            Op::PowerCut => return Err(io::ErrorKind::Unsupported.into()),
            Op::Think { ns } => {
                (self.think)(*ns)?;
                return Ok(());
            }
            Op::Use { file } => {
                self.using = *file;
                return Ok(());
            }
            Op::Write { .. } | Op::Read { .. } | Op::Fsync | Op::Close => return self.file_op(op, seen),
            _ => self.name_op(op, seen)?,
        }
        seen.calls += 1;
        Ok(())
    }

    fn name_op(&mut self, op: &Op, seen: &mut Seen) -> io::Result<()> {
        match op {
            Op::Create { dir, name } => {
                let path = self.path(*dir, name)?;
                self.open.insert(self.using, File::options().read(true).write(true).create_new(true).open(path)?);
            }
            Op::Open { dir, name } => {
                let file = File::options().read(true).write(true).open(self.path(*dir, name)?)?;
                self.open.insert(self.using, file);
            }
            Op::SetTimes { dir, name, secs } => {
                let at = Timespec { tv_sec: i64::from(*secs), tv_nsec: 0 };
                let times = Timestamps { last_access: at, last_modification: at };
                rustix::fs::utimensat(CWD, self.path(*dir, name)?, &times, AtFlags::empty())?;
            }
            Op::Unlink { dir, name } => fs::remove_file(self.path(*dir, name)?)?,
            Op::Rename { dir, name, to, to_name } => fs::rename(self.path(*dir, name)?, self.path(*to, to_name)?)?,
            Op::Symlink { dir, name, target } => symlink(target, self.path(*dir, name)?)?,
            Op::Stat { dir, name } => {
                let meta = fs::symlink_metadata(self.path(*dir, name)?)?;
                if meta.is_file() {
                    seen.digest.bytes(&meta.len().to_le_bytes());
                }
            }
            Op::List { dir } => {
                seen.listed.clear();
                for entry in fs::read_dir(self.path(*dir, "")?)? {
                    let entry = entry?;
                    let name = entry.file_name().to_string_lossy().into_owned();
                    seen.listed.push(Listed { name, file_type: file_type(entry.file_type()?) });
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn file_op(&mut self, op: &Op, seen: &mut Seen) -> io::Result<()> {
        let file = self.open.get(&self.using).ok_or(io::ErrorKind::NotFound)?;
        match op {
            Op::Write { offset, len, io, tag } => {
                for (at, len) in pieces(*offset, *len, *io) {
                    file.write_all_at(&pattern(*tag, at, len), at)?;
                    seen.written_bytes += len as u64;
                    seen.calls += 1;
                }
            }
            Op::Read { offset, len, io } => {
                for (at, len) in pieces(*offset, *len, *io) {
                    seen.buffer.resize(len, 0);
                    let got = file.read_at(&mut seen.buffer, at)?;
                    seen.digest.bytes(&seen.buffer[..got]);
                    seen.read_bytes += got as u64;
                    seen.calls += 1;
                    if got < len {
                        break;
                    }
                }
            }
            Op::Fsync => {
                file.sync_all()?;
                seen.calls += 1;
            }
            _ => {
                self.open.remove(&self.using);
                seen.calls += 1;
            }
        }
        Ok(())
    }
}

impl Ground for SystemCalls<'_> {
    fn apply(&mut self, op: &Op, seen: &mut Seen) -> Result<(), String> {
        self.op(op, seen).map_err(|e| e.to_string())
    }

    fn used_percent(&mut self) -> Result<f64, String> {
        let stat = rustix::fs::statvfs(&self.root).map_err(|e| e.to_string())?;
        Ok(100.0 * stat.f_blocks.saturating_sub(stat.f_bfree) as f64 / stat.f_blocks.max(1) as f64)
    }
}

fn file_type(t: fs::FileType) -> FileType {
    match t {
        t if t.is_dir() => FileType::Dir,
        t if t.is_symlink() => FileType::Symlink,
        t if t.is_fifo() => FileType::Fifo,
        t if t.is_socket() => FileType::Socket,
        t if t.is_char_device() => FileType::Char,
        t if t.is_block_device() => FileType::Block,
        _ => FileType::File,
    }
}
