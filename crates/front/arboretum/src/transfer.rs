//! Whole trees between the host and a volume.

use crate::dir::{ReadDir, join};
use crate::error::{Failure, Named, Result};
use crate::file::{next_data, write_all};
use crate::host::{self, HostFile};
use crate::node::{Node, bytes_of, path_of};
use crate::volume::{CHUNK, Volume};
use arbor_base::vfs::{Errno, FileType, Ino, RenameFlags, Seek, SetAttr, SetTime, Time, XattrMode};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::{self, Read, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What was copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyStats {
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Further names of files already counted.
    pub hard_links: u64,
    /// Fifos, sockets and device nodes.
    pub special: u64,
    /// Bytes of data, without holes.
    pub bytes: u64,
    /// What could not be carried over, each with the reason.
    pub skipped: Vec<String>,
}

impl CopyStats {
    /// Names made, of whatever kind.
    pub fn names(&self) -> u64 {
        self.files + self.directories + self.symlinks + self.hard_links + self.special
    }
}

type ProgressFn<'a> = Box<dyn FnMut(&CopyStats, &Path) + 'a>;

/// How a tree is copied: [`Volume::copy_in_with`], [`Volume::import_tar_with`] and their like.
pub struct CopyOptions<'a> {
    pub(crate) owner: Option<bool>,
    pub(crate) xattrs: bool,
    pub(crate) latest: Option<Time>,
    progress: Option<ProgressFn<'a>>,
    stop: Option<&'a AtomicBool>,
}

impl Default for CopyOptions<'_> {
    fn default() -> Self {
        CopyOptions { owner: None, xattrs: true, latest: None, progress: None, stop: None }
    }
}

impl fmt::Debug for CopyOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyOptions").field("owner", &self.owner).field("latest", &self.latest).finish_non_exhaustive()
    }
}

impl<'a> CopyOptions<'a> {
    /// Everything is kept; owners only where this process may give files away.
    pub fn new() -> CopyOptions<'a> {
        CopyOptions::default()
    }

    /// Whether owners and groups are kept.
    pub fn keep_owner(mut self, yes: bool) -> CopyOptions<'a> {
        self.owner = Some(yes);
        self
    }

    /// Whether extended attributes are kept.
    pub fn keep_xattrs(mut self, yes: bool) -> CopyOptions<'a> {
        self.xattrs = yes;
        self
    }

    /// Makes the result repeatable: no time is later than `time`, and access times are those of
    /// the last change.
    pub fn clamp_times(mut self, time: Time) -> CopyOptions<'a> {
        self.latest = Some(time);
        self
    }

    /// Called after every piece with the counts so far and the path at hand.
    pub fn progress(mut self, f: impl FnMut(&CopyStats, &Path) + 'a) -> CopyOptions<'a> {
        self.progress = Some(Box::new(f));
        self
    }

    /// Ends the copy soon after `flag` is set, with an error of kind `Interrupted`. A file that is
    /// not whole by then is taken away.
    pub fn stop_when(mut self, flag: &'a AtomicBool) -> CopyOptions<'a> {
        self.stop = Some(flag);
        self
    }

    /// Tells how far it is; an error if it is to go no further.
    pub(crate) fn tell(&mut self, stats: &CopyStats, path: &[u8]) -> Result<()> {
        if let Some(progress) = &mut self.progress {
            progress(stats, &path_of(path.to_vec()));
        }
        match self.stop.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            true => Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted").into()),
            false => Ok(()),
        }
    }

    /// Attributes for something new in the volume.
    pub(crate) fn attributes(&self, file: &HostFile) -> SetAttr {
        let clamp = |t: Time| self.latest.map_or(t, |latest| t.min(latest));
        let mtime = file.mtime.map(clamp);
        let atime = if self.latest.is_some() { mtime } else { file.atime };
        let owner = file.owner.filter(|_| self.owner != Some(false));
        SetAttr {
            mode: (file.kind != FileType::Symlink).then_some(file.mode),
            uid: owner.map(|o| o.0),
            gid: owner.map(|o| o.1),
            atime: atime.map(SetTime::At),
            mtime: mtime.map(SetTime::At),
            ..SetAttr::default()
        }
    }
}

impl Volume {
    /// Copies a file or tree of the host to `path`. Directories are merged with those that are there
    /// and files overwritten, but a directory takes the place of nothing else. Modes, times, links
    /// of both kinds, holes and extended attributes are kept.
    pub fn copy_in(&self, host: impl AsRef<Path>, path: impl AsRef<Path>) -> io::Result<CopyStats> {
        self.copy_in_with(host, path, &mut CopyOptions::new())
    }

    /// As [`copy_in`](Volume::copy_in), with options.
    pub fn copy_in_with(
        &self,
        host: impl AsRef<Path>,
        path: impl AsRef<Path>,
        options: &mut CopyOptions<'_>,
    ) -> io::Result<CopyStats> {
        let path = bytes_of(path.as_ref());
        let stats = CopyStats::default();
        let at_hand = (host.as_ref().to_path_buf(), path.to_vec());
        let mut copy = CopyIn { options, stats, links: HashMap::new(), buf: Vec::new(), at_hand };
        let copied = self.writable().and_then(|()| copy.tree(self, host.as_ref(), &path));
        let (host, path) = &copy.at_hand;
        copied.map_err(|e| e.named("copy", &both(&bytes_of(host), path)))?;
        Ok(copy.stats)
    }

    /// Copies a file or tree of the volume to `host`. Directories are merged with those that are
    /// there and files overwritten, but a directory takes the place of nothing else. Kept is the
    /// same as by [`copy_in`](Volume::copy_in).
    pub fn copy_out(&self, path: impl AsRef<Path>, host: impl AsRef<Path>) -> io::Result<CopyStats> {
        self.copy_out_with(path, host, &mut CopyOptions::new())
    }

    /// As [`copy_out`](Volume::copy_out), with options.
    pub fn copy_out_with(
        &self,
        path: impl AsRef<Path>,
        host: impl AsRef<Path>,
        options: &mut CopyOptions<'_>,
    ) -> io::Result<CopyStats> {
        let path = bytes_of(path.as_ref());
        let keep_owner = options.owner.unwrap_or_else(host::may_chown);
        let stats = CopyStats::default();
        let at_hand = (path.to_vec(), host.as_ref().to_path_buf());
        let mut copy = CopyOut { options, keep_owner, stats, links: HashMap::new(), buf: vec![0; CHUNK], at_hand };
        let copied = copy.tree(self, &path, host.as_ref());
        let (path, host) = &copy.at_hand;
        copied.map_err(|e| e.named("copy", &both(path, &bytes_of(host))))?;
        Ok(copy.stats)
    }
}

/// Names what was copied where, for errors.
fn both(from: &[u8], to: &[u8]) -> Vec<u8> {
    [from, b" to ", to].concat()
}

/// Says which file of the host failed.
fn at<T>(path: &Path, result: io::Result<T>) -> Result<T> {
    result.map_err(|e| {
        let kind = e.kind();
        Failure::Host(io::Error::new(kind, format!("{}: {}", path.display(), Failure::Host(e))))
    })
}

struct CopyIn<'a, 'o> {
    options: &'a mut CopyOptions<'o>,
    stats: CopyStats,
    /// First name of each file of the host that may have more.
    links: HashMap<(u64, u64), Arc<Node>>,
    buf: Vec<u8>,
    /// What is being copied, and where to.
    at_hand: (PathBuf, Vec<u8>),
}

/// A directory of the host being copied.
struct InFrame {
    host: PathBuf,
    file: HostFile,
    path: Vec<u8>,
    node: Arc<Node>,
    names: std::vec::IntoIter<OsString>,
}

impl CopyIn<'_, '_> {
    fn tree(&mut self, volume: &Volume, host: &Path, path: &[u8]) -> Result<()> {
        let found = volume.mount().walk(path, false)?;
        let file = at(host, HostFile::of(host))?;
        if found.must_be_dir && file.kind != FileType::Dir && !found.node.as_ref().is_some_and(Node::is_dir) {
            return Err(Errno::ENOTDIR.into());
        }
        let mut frames = Vec::new();
        match (found.parent, found.node) {
            (Some((dir, name)), _) => frames.extend(self.one(&dir, &name, host, file, path)?),
            (None, Some(root)) if file.kind == FileType::Dir => frames.push(self.frame(root, host, file, path)?),
            _ => return Err(Errno::EISDIR.into()),
        }
        while let Some(frame) = frames.last_mut() {
            match frame.names.next() {
                Some(name) => {
                    let host = frame.host.join(&name);
                    let name = bytes_of(Path::new(&name)).into_owned();
                    let path = join(&frame.path, &name);
                    self.at_hand = (host.clone(), path.clone());
                    let file = at(&host, HostFile::of(&host))?;
                    let node = frame.node.clone();
                    frames.extend(self.one(&node, &name, &host, file, &path)?);
                }
                None => {
                    if let Some(done) = frames.pop() {
                        self.at_hand = (done.host.clone(), done.path);
                        self.finish(&done.node, &done.host, &done.file)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn frame(&mut self, node: Node, host: &Path, file: HostFile, path: &[u8]) -> Result<InFrame> {
        let entries = at(host, fs::read_dir(host))?;
        let names = entries.map(|e| e.map(|e| e.file_name())).collect::<io::Result<Vec<_>>>();
        let mut names = at(host, names)?;
        // The order of the host must not show in the image.
        names.sort();
        let (host, path) = (host.to_path_buf(), path.to_vec());
        Ok(InFrame { host, file, path, node: Arc::new(node), names: names.into_iter() })
    }

    /// Copies one name; a directory comes back to be filled.
    fn one(&mut self, dir: &Node, name: &[u8], host: &Path, file: HostFile, path: &[u8]) -> Result<Option<InFrame>> {
        self.options.tell(&self.stats, path)?;
        let way = Way::to(dir, name, file.kind)?;
        if let Some(first) = file.identity.and_then(|id| self.links.get(&id)) {
            way.link(first, dir, name)?;
            self.stats.hard_links += 1;
            return Ok(None);
        }
        let node = match way {
            Way::Merge(old) => {
                self.stats.directories += 1;
                return self.frame(old, host, file, path).map(Some);
            }
            _ if file.kind == FileType::Dir => {
                self.stats.directories += 1;
                return self.frame(dir.mkdir(name, 0o700)?, host, file, path).map(Some);
            }
            way => {
                let node = self.make(dir, way.name(name), host, &file, path)?;
                way.done(dir, name)?;
                node
            }
        };
        if let Some(id) = file.identity {
            self.links.insert(id, Arc::new(node));
        }
        Ok(None)
    }

    /// Makes what is no directory, with all that belongs to it.
    fn make(&mut self, dir: &Node, name: &[u8], host: &Path, file: &HostFile, path: &[u8]) -> Result<Node> {
        let (node, filled) = match file.kind {
            FileType::Symlink => {
                self.stats.symlinks += 1;
                (dir.symlink(name, &bytes_of(&at(host, fs::read_link(host))?))?, Ok(()))
            }
            FileType::File => {
                self.stats.files += 1;
                let node = dir.mknod(name, FileType::File.mode() | 0o600, 0)?;
                let filled = self.content(&node, host, file.size, path);
                (node, filled)
            }
            kind => {
                self.stats.special += 1;
                (dir.mknod(name, kind.mode() | 0o600, file.rdev)?, Ok(()))
            }
        };
        filled.and_then(|()| self.finish(&node, host, file)).inspect_err(|_| remove_part(dir, name))?;
        Ok(node)
    }

    fn content(&mut self, node: &Node, host: &Path, size: u64, path: &[u8]) -> Result<()> {
        let mut source = at(host, fs::File::open(host))?;
        self.buf.resize(CHUNK, 0);
        let (mut from, mut written) = (0, 0);
        while let Some((start, end)) = at(host, host::next_data(&source, from, size))? {
            at(host, source.seek(SeekFrom::Start(start)))?;
            from = start;
            while from < end {
                let want = (end - from).min(CHUNK as u64) as usize;
                let n = at(host, source.read(self.buf.get_mut(..want).unwrap_or_default()))?;
                if n == 0 {
                    break;
                }
                write_all(node, from, self.buf.get(..n).unwrap_or_default())?;
                from += n as u64;
                written = from;
                self.stats.bytes += n as u64;
                self.options.tell(&self.stats, path)?;
            }
            from = end;
        }
        if written < size {
            node.set(&SetAttr { size: Some(size), ..SetAttr::default() })?;
        }
        Ok(())
    }

    fn finish(&mut self, node: &Node, host: &Path, file: &HostFile) -> Result<()> {
        if self.options.xattrs {
            for (name, value) in host::xattrs(host) {
                set_xattr(node, &name, &value, &mut self.stats, host)?;
            }
        }
        node.set(&self.options.attributes(file)).map(drop)
    }
}

/// Sets an attribute; one the engine cannot keep is skipped and told.
pub(crate) fn set_xattr(node: &Node, name: &[u8], value: &[u8], stats: &mut CopyStats, path: &Path) -> Result<()> {
    match node.fs().setxattr(node.ino(), name, value, XattrMode::Set) {
        Err(e) if matches!(e.errno(), Errno::EOPNOTSUPP | Errno::ERANGE | Errno::E2BIG | Errno::EPERM) => {
            let name = String::from_utf8_lossy(name);
            stats.skipped.push(format!("{}: attribute {name}: {e}", path.display()));
            Ok(())
        }
        other => Ok(other?),
    }
}

/// Where something is made that is to have a name.
pub(crate) enum Way {
    /// At its name: nothing is there.
    Free,
    /// A directory is there, to merge with another.
    Merge(Node),
    /// Under another name, until it is whole and takes the place of what is there.
    Beside { part: Vec<u8>, old: Node },
}

impl Way {
    pub(crate) fn to(dir: &Node, name: &[u8], kind: FileType) -> Result<Way> {
        match dir.child_if_any(name)? {
            None => Ok(Way::Free),
            Some(old) if old.is_dir() && kind == FileType::Dir => Ok(Way::Merge(old)),
            Some(old) if old.is_dir() => Err(Errno::EISDIR.into()),
            Some(_) if kind == FileType::Dir => Err(no_directory_there().into()),
            Some(old) => loop {
                let part = format!(".arbor-part-{}", next_part()).into_bytes();
                if dir.child_if_any(&part)?.is_none() {
                    break Ok(Way::Beside { part, old });
                }
            },
        }
    }

    /// The name to make it under, if it is to have `name`.
    pub(crate) fn name<'a>(&'a self, name: &'a [u8]) -> &'a [u8] {
        match self {
            Way::Beside { part, .. } => part,
            _ => name,
        }
    }

    /// It is whole.
    pub(crate) fn done(&self, dir: &Node, name: &[u8]) -> Result<()> {
        if let Way::Beside { part, .. } = self {
            let (fs, ino) = (dir.fs(), dir.ino());
            let renamed = fs.rename(&dir.mount.cx, ino, part, ino, name, RenameFlags::empty());
            renamed.inspect_err(|_| remove_part(dir, part))?;
        }
        dir.mount.changed();
        Ok(())
    }

    /// Makes it another name of `first`.
    pub(crate) fn link(&self, first: &Node, dir: &Node, name: &[u8]) -> Result<()> {
        match self {
            Way::Beside { old, .. } if old.ino() == first.ino() => Ok(()),
            _ => {
                first.link(dir, self.name(name))?;
                self.done(dir, name)
            }
        }
    }
}

/// Why a directory is not copied to where something else is.
fn no_directory_there() -> io::Error {
    io::Error::new(io::ErrorKind::NotADirectory, "cannot overwrite non-directory with directory")
}

/// Takes away a file that could not be filled: nobody is to mistake it for the whole.
pub(crate) fn remove_part(dir: &Node, name: &[u8]) {
    // The reason why it could not be filled is what counts.
    let _ = dir.fs().unlink(dir.ino(), name);
    dir.mount.changed();
}

struct CopyOut<'a, 'o> {
    options: &'a mut CopyOptions<'o>,
    keep_owner: bool,
    stats: CopyStats,
    /// Where the first name of each file with several went.
    links: HashMap<Ino, PathBuf>,
    buf: Vec<u8>,
    /// What is being copied, and where to.
    at_hand: (Vec<u8>, PathBuf),
}

/// A directory of the volume being copied.
struct OutFrame {
    host: PathBuf,
    node: Arc<Node>,
    entries: ReadDir,
}

impl CopyOut<'_, '_> {
    fn tree(&mut self, volume: &Volume, path: &[u8], host: &Path) -> Result<()> {
        let node = Arc::new(volume.mount().resolve(path, false)?);
        let mut frames = Vec::new();
        frames.extend(self.one(node, path, host.to_path_buf())?);
        while let Some(frame) = frames.last_mut() {
            match frame.entries.next() {
                Some(Ok(entry)) => {
                    if entry.name().contains(&b'/') || matches!(entry.name(), b"." | b".." | b"") {
                        return Err(Errno::EUCLEAN.into());
                    }
                    let host = frame.host.join(entry.file_name());
                    frames.extend(self.one(entry.node.clone(), entry.path_bytes(), host)?);
                }
                Some(Err(e)) => return Err(e.into()),
                None => {
                    if let Some(done) = frames.pop() {
                        self.at_hand.1.clone_from(&done.host);
                        self.finish(&done.node, &done.host, &done.host)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Copies one name; a directory comes back to be filled.
    fn one(&mut self, node: Arc<Node>, path: &[u8], host: PathBuf) -> Result<Option<OutFrame>> {
        self.options.tell(&self.stats, path)?;
        self.at_hand = (path.to_vec(), host.clone());
        let kind = node.attr.file_type();
        let first = self.links.get(&node.ino());
        let is_dir_there = at(&host, clear_host(&host, kind, first.is_some()))?;
        if let Some(first) = first {
            at(&host, fs::hard_link(first, &host))?;
            self.stats.hard_links += 1;
            return Ok(None);
        }
        match kind {
            FileType::Dir => {
                if !is_dir_there {
                    at(&host, fs::create_dir(&host))?;
                }
                self.stats.directories += 1;
                let entries = node.entries(path)?;
                return Ok(Some(OutFrame { host, node, entries }));
            }
            FileType::Symlink => {
                let target = path_of(node.fs().readlink(node.ino())?);
                at(&host, host::symlink(&target, &host))?;
                self.stats.symlinks += 1;
            }
            FileType::File => {
                self.file(&node, path, &host)?;
                self.stats.files += 1;
            }
            special => match host::make_node(&host, special, 0o600, node.attr.rdev) {
                Ok(()) => self.stats.special += 1,
                Err(e) => {
                    self.stats.skipped.push(format!("{}: {e}", host.display()));
                    return Ok(None);
                }
            },
        }
        if kind != FileType::File {
            self.finish(&node, &host, &host)?;
        }
        if node.attr.nlink > 1 {
            self.links.insert(node.ino(), host);
        }
        Ok(None)
    }

    /// A regular file gets its name when it is whole, so what had the name stays until then.
    fn file(&mut self, node: &Node, path: &[u8], host: &Path) -> Result<()> {
        let part = part_path(host);
        let target = at(host, fs::OpenOptions::new().write(true).create_new(true).open(&part))?;
        let copied = self.content(node, path, host, target).and_then(|()| self.finish(node, &part, host));
        copied.and_then(|()| at(host, fs::rename(&part, host))).inspect_err(|_| {
            let _ = fs::remove_file(&part);
        })
    }

    fn content(&mut self, node: &Node, path: &[u8], host: &Path, mut target: fs::File) -> Result<()> {
        let (size, mut from) = (node.attr.size, 0);
        while let Some(data) = next_data(node, from)?.filter(|data| *data < size) {
            let end = node.fs().seek(node.ino(), data, Seek::Hole)?.min(size);
            at(host, target.seek(SeekFrom::Start(data)))?;
            from = data;
            while from < end {
                let want = (end - from).min(CHUNK as u64) as usize;
                let n = node.fs().read(node.ino(), from, self.buf.get_mut(..want).unwrap_or_default())?;
                if n == 0 {
                    return Err(Errno::EIO.into());
                }
                at(host, target.write_all(self.buf.get(..n).unwrap_or_default()))?;
                from += n as u64;
                self.stats.bytes += n as u64;
                self.options.tell(&self.stats, path)?;
            }
        }
        at(host, target.set_len(size))
    }

    /// Sets the attributes of what lies at `place` and will be at `host`.
    fn finish(&mut self, node: &Node, place: &Path, host: &Path) -> Result<()> {
        if self.options.xattrs {
            for name in node.fs().listxattr(node.ino())? {
                let value = node.fs().getxattr(node.ino(), &name)?;
                if let Err(e) = host::set_xattr(place, &name, &value) {
                    let name = String::from_utf8_lossy(&name);
                    self.stats.skipped.push(format!("{}: attribute {name}: {e}", host.display()));
                }
            }
        }
        let attr = &node.attr;
        // Set-id bits mean something only together with the owner they were given for.
        let bits = if self.keep_owner { 0o7777 } else { 0o1777 };
        let file = HostFile {
            kind: attr.file_type(),
            mode: attr.mode & bits,
            owner: self.keep_owner.then_some((attr.uid, attr.gid)),
            rdev: attr.rdev,
            size: attr.size,
            atime: Some(attr.atime),
            mtime: Some(attr.mtime),
            identity: None,
        };
        at(host, host::set_attributes(place, &file))
    }
}

/// A number that no other copy of this process has.
fn next_part() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A name beside `host` for a file that is not yet whole.
fn part_path(host: &Path) -> PathBuf {
    let number = next_part();
    host.with_file_name(format!(".arbor-{}-{number}.part", std::process::id()))
}

/// Makes way for something of `kind`, or for a link to it; tells whether a directory is there to
/// merge with. A link that stands there is replaced, never followed; a device is left alone. A
/// file needs no way made: it will be renamed over what is there.
fn clear_host(path: &Path, kind: FileType, is_link: bool) -> io::Result<bool> {
    if kind == FileType::File && fs::metadata(path).is_ok_and(|m| !m.is_file() && !m.is_dir()) {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "exists and is no regular file"));
    }
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
        Ok(meta) if meta.is_dir() => match kind {
            FileType::Dir => Ok(true),
            _ => Err(io::ErrorKind::IsADirectory.into()),
        },
        Ok(_) if kind == FileType::Dir => Err(no_directory_there()),
        Ok(_) if kind == FileType::File && !is_link => Ok(false),
        Ok(_) => fs::remove_file(path).map(|()| false),
    }
}
