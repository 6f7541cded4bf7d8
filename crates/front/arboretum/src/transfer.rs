//! Whole trees between the host and a volume.

use crate::children::{Child, Children};
use crate::dir::{Lineage, push};
use crate::error::{Failure, Named, Result};
use crate::file::{next_data, write_all};
use crate::host::{self, Descent, Handle, HostDir, HostFile};
use crate::node::{Mount, Node, bytes_of, path_of};
use crate::trail::Kept;
use crate::volume::{CHUNK, Volume};
use crate::way::{Way, next_part, no_directory_there, remove_part};
use arbor_base::vfs::{Errno, FileType, Ino, Seek, SetAttr, SetTime, Time, XattrMode};
use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io::{self, Read, Seek as _, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
    /// What was not carried over because nobody has asked for it.
    pub left_out: LeftOut,
    /// How often something could not be read, or the volume did not take it; see [`CopyOptions::past_unread`].
    pub unread: u64,
}

/// What a volume may not decide on the host unless it is told so: counts of what
/// [`Volume::copy_out`] has left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Files with set-id bits.
    pub set_ids: u64,
    /// Device nodes.
    pub devices: u64,
    /// Files of other owners, where they could be given away.
    pub owners: u64,
    /// Extended attributes `security.*` and `trusted.*`.
    pub attributes: u64,
}

impl std::ops::AddAssign for LeftOut {
    fn add_assign(&mut self, more: LeftOut) {
        self.set_ids += more.set_ids;
        self.devices += more.devices;
        self.owners += more.owners;
        self.attributes += more.attributes;
    }
}

impl CopyStats {
    /// Names made, of whatever kind.
    pub fn names(&self) -> u64 {
        self.files + self.directories + self.symlinks + self.hard_links + self.special
    }
}

impl CopyStats {
    /// The count of what is no directory.
    pub(crate) fn of_kind(&mut self, kind: FileType) -> &mut u64 {
        match kind {
            FileType::File => &mut self.files,
            FileType::Symlink => &mut self.symlinks,
            _ => &mut self.special,
        }
    }
}

type ProgressFn<'a> = Box<dyn FnMut(&CopyStats, &Path) + 'a>;
type UnreadFn<'a> = Box<dyn FnMut(&io::Error) + 'a>;

/// How a tree is copied: [`Volume::copy_in_with`], [`Volume::import_tar_with`] and their like.
pub struct CopyOptions<'a> {
    pub(crate) owner: Option<bool>,
    privileges: bool,
    devices: bool,
    pub(crate) xattrs: bool,
    pub(crate) latest: Option<Time>,
    progress: Option<ProgressFn<'a>>,
    unread: Option<UnreadFn<'a>>,
    stop: Option<&'a AtomicBool>,
}

impl Default for CopyOptions<'_> {
    fn default() -> Self {
        CopyOptions {
            owner: None,
            privileges: false,
            devices: false,
            xattrs: true,
            latest: None,
            progress: None,
            unread: None,
            stop: None,
        }
    }
}

impl fmt::Debug for CopyOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyOptions").field("owner", &self.owner).field("latest", &self.latest).finish_non_exhaustive()
    }
}

impl<'a> CopyOptions<'a> {
    /// Everything is kept that goes into a volume or an archive. What comes out to the host has this process's
    /// owner, no set-id bits, no privileged attributes, and is no device, unless it is told so.
    pub fn new() -> CopyOptions<'a> {
        CopyOptions::default()
    }

    /// Whether owners and groups are kept. On the host only root can give files away.
    pub fn keep_owner(mut self, yes: bool) -> CopyOptions<'a> {
        self.owner = Some(yes);
        self
    }

    /// Whether what comes out to the host keeps set-id bits, and the attributes `security.*` and `trusted.*`. They
    /// mean something only together with the owner they were given for, so they are kept only if that is.
    pub fn keep_privileges(mut self, yes: bool) -> CopyOptions<'a> {
        self.privileges = yes;
        self
    }

    /// Whether device nodes are made on the host.
    pub fn keep_devices(mut self, yes: bool) -> CopyOptions<'a> {
        self.devices = yes;
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

    /// Goes on after what cannot be read, in a copy into a volume on the host and else in the volume, or in which a directory
    /// cannot be read any further, and calls `f` for it; [`CopyStats::unread`] counts it. So does a copy into a volume, and an import, after a
    /// file or name that the volume does not take. A file of which something is missing is left out, but for a large one in an archive:
    /// that has zeros instead. Without this the first of them ends the copy.
    pub fn past_unread(mut self, f: impl FnMut(&io::Error) + 'a) -> CopyOptions<'a> {
        self.unread = Some(Box::new(f));
        self
    }

    /// Goes on after a failure of this kind, if that is wanted.
    pub(crate) fn pass(
        &mut self,
        stats: &mut CopyStats,
        e: Failure,
        is_of_kind: fn(&Failure) -> bool,
        say: impl FnOnce(Failure) -> io::Error,
    ) -> Result<()> {
        let Some(f) = self.unread.as_mut().filter(|_| is_of_kind(&e)) else { return Err(e) };
        stats.unread += 1;
        f(&say(e));
        Ok(())
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
        let (host, path) = (host.as_ref(), bytes_of(path.as_ref()));
        let at_hand = AtHand::new(&path, host);
        self.writable().map_err(|e| at_hand.not_in(e))?;
        let mut stats = CopyStats::default();
        let (base, name) = match at(host, host::place(host)) {
            Ok(opened) => opened,
            Err(e) => {
                let passed = options.pass(&mut stats, e, Failure::is_of_file, |e| at_hand.not_in(e));
                return passed.map(|()| stats).map_err(|e| at_hand.not_in(e));
            }
        };
        let descent = Descent::new(base);
        let mut copy = CopyIn { options, stats, descent, links: HashMap::new(), buf: Vec::new(), at_hand };
        let copied = copy.tree(self, name.as_deref(), &path).or_else(|e| copy.pass(e));
        copied.map_err(|e| copy.at_hand.not_in(e))?;
        Ok(copy.stats)
    }

    /// Copies a file or tree of the volume to `host`. Directories are merged with those that are
    /// there and files overwritten, but a directory takes the place of nothing else. Modes, times, links of both
    /// kinds, holes and extended attributes are kept; [`CopyOptions`] say what a volume may not decide unasked.
    ///
    /// What is new is its owner's alone until it is whole. Below `host` no link is followed.
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
        let (path, host) = (bytes_of(path.as_ref()), host.as_ref());
        let at_hand = AtHand::new(&path, host);
        let (base, name) = at(host, host::place(host)).map_err(|e| at_hand.not_out(e))?;
        let mut copy = CopyOut::new(self, base, options, at_hand);
        let copied = copy.tree(self, &path, name.as_deref()).or_else(|e| copy.pass(e));
        copied.map_err(|e| copy.at_hand.not_out(e))?;
        Ok(copy.stats)
    }
}

/// What is being copied, in the volume and on the host: for progress and errors, not to be opened.
struct AtHand {
    path: Vec<u8>,
    host: PathBuf,
    /// Lengths of the path at the directories above.
    above: Vec<usize>,
}

impl AtHand {
    fn new(path: &[u8], host: &Path) -> AtHand {
        AtHand { path: path.to_vec(), host: host.to_path_buf(), above: Vec::new() }
    }

    fn down(&mut self, name: &[u8]) {
        self.above.push(self.path.len());
        push(&mut self.path, name);
        self.host.push(path_of(name.to_vec()));
    }

    /// Back to the directory above; what the copy began with has none.
    fn up(&mut self) {
        if let Some(len) = self.above.pop() {
            self.path.truncate(len);
            self.host.pop();
        }
    }

    /// Why it was not copied into the volume.
    fn not_in(&self, e: Failure) -> io::Error {
        e.named("copy", &[&bytes_of(&self.host), &b" to "[..], &self.path].concat())
    }

    /// Why it was not copied out.
    fn not_out(&self, e: Failure) -> io::Error {
        e.named("copy", &[&self.path, &b" to "[..], &bytes_of(&self.host)].concat())
    }
}

/// Says which file of the host failed.
fn at<T>(path: &Path, result: io::Result<T>) -> Result<T> {
    result.map_err(|e| {
        let kind = e.kind();
        Failure::Host(io::Error::new(kind, format!("{}: {}", path.display(), Failure::Host(e))))
    })
}

/// Why a file of the host is neither copied nor overwritten.
const OWN_FILE: &str = "the volume itself is in this file";

struct CopyIn<'a, 'o> {
    options: &'a mut CopyOptions<'o>,
    stats: CopyStats,
    /// Where on the host it is.
    descent: Descent,
    /// First name of each file of the host that may have more.
    links: HashMap<(u64, u64), Arc<Node>>,
    buf: Vec<u8>,
    at_hand: AtHand,
}

/// A directory of the host being copied.
struct InFrame {
    file: HostFile,
    node: Arc<Node>,
    names: std::vec::IntoIter<Vec<u8>>,
}

/// Names are those in the host's directory at hand; that itself has none.
impl CopyIn<'_, '_> {
    fn tree(&mut self, volume: &Volume, name: Option<&[u8]>, path: &[u8]) -> Result<()> {
        let found = volume.mount().walk(path, false)?;
        let file = self.look(name)?;
        if found.must_be_dir && file.kind != FileType::Dir && !found.node.as_ref().is_some_and(Node::is_dir) {
            return Err(Errno::ENOTDIR.into());
        }
        let mut frames = Vec::new();
        match (found.parent, found.node) {
            (Some((dir, new)), _) => frames.extend(self.one(&dir, &new, file, name)?),
            (None, Some(root)) if file.kind == FileType::Dir => frames.push(self.frame(name, || Ok(root))?),
            _ => return Err(Errno::EISDIR.into()),
        }
        while let Some(frame) = frames.last_mut() {
            if let Some(name) = frame.names.next() {
                self.at_hand.down(&name);
                let file = self.look(Some(&name));
                match file.and_then(|file| self.one(&frame.node, &name, file, Some(&name))) {
                    Ok(Some(below)) => frames.push(below),
                    Ok(None) => self.at_hand.up(),
                    Err(e) => {
                        self.pass(e)?;
                        self.at_hand.up();
                    }
                }
            } else if let Some(done) = frames.pop() {
                let left = at(&self.at_hand.host, self.descent.leave().and_then(|dir| dir.handle()))?;
                self.finish(&done.node, &left, &done.file)?;
                self.at_hand.up();
            }
        }
        Ok(())
    }

    fn pass(&mut self, e: Failure) -> Result<()> {
        self.options.pass(&mut self.stats, e, Failure::is_of_file, |e| self.at_hand.not_in(e))
    }

    fn look(&self, name: Option<&[u8]>) -> Result<HostFile> {
        let here = self.descent.here();
        at(&self.at_hand.host, name.map_or_else(|| here.itself(), |name| here.look(name)))
    }

    /// Goes into a directory of the host, and makes or gets what it is to be in the volume.
    fn frame(&mut self, name: Option<&[u8]>, node: impl FnOnce() -> Result<Node>) -> Result<InFrame> {
        let (here, host) = (self.descent.here(), &self.at_hand.host);
        let dir = at(host, name.map_or_else(|| here.again(), |name| here.dir(name)))?;
        // What it is now: another may have taken its place since it was looked at.
        let (file, mut names) = (at(host, dir.itself())?, at(host, dir.names())?);
        // The order of the host must not show in the image.
        names.sort();
        let node = Arc::new(node()?);
        at(host, self.descent.enter(name, dir))?;
        Ok(InFrame { file, node, names: names.into_iter() })
    }

    fn enter(&mut self, name: Option<&[u8]>, node: impl FnOnce() -> Result<Node>) -> Result<Option<InFrame>> {
        let frame = self.frame(name, node)?;
        self.stats.directories += 1;
        Ok(Some(frame))
    }

    /// Copies what is named `from` to `name`; a directory comes back to be filled.
    fn one(&mut self, dir: &Node, name: &[u8], file: HostFile, from: Option<&[u8]>) -> Result<Option<InFrame>> {
        self.options.tell(&self.stats, &self.at_hand.path)?;
        if file.kind == FileType::File && dir.mount.is_in(file.id) {
            return self.skip_own().map(|()| None);
        }
        let way = Way::to(dir, name, file.kind)?;
        if let Some(first) = file.identity().and_then(|id| self.links.get(&id)) {
            way.link(first, dir, name)?;
            self.stats.hard_links += 1;
            return Ok(None);
        }
        let (node, identity) = match way {
            Way::Merge(old) => return self.enter(from, || Ok(old)),
            _ if file.kind == FileType::Dir => return self.enter(from, || dir.mkdir(name, 0o700)),
            way => {
                let made = self.make(&way, (dir, name), file, from.ok_or(Errno::EISDIR)?)?;
                way.done(&made.0, dir, name)?;
                made
            }
        };
        if let Some(id) = identity {
            self.links.insert(id, Arc::new(node));
        }
        Ok(None)
    }

    /// Leaves out the image that is being written, unless it alone is what was to be copied.
    fn skip_own(&mut self) -> Result<()> {
        let host = &self.at_hand.host;
        if self.descent.is_at_base() {
            return at(host, Err(io::Error::other(OWN_FILE)));
        }
        self.stats.skipped.push(format!("{}: {OWN_FILE}; not copied", host.display()));
        Ok(())
    }

    /// Makes what is not a directory, with all that belongs to it.
    fn make(
        &mut self,
        way: &Way,
        (dir, name): (&Node, &[u8]),
        file: HostFile,
        from: &[u8],
    ) -> Result<(Node, Option<(u64, u64)>)> {
        let (here, host, name) = (self.descent.here(), &self.at_hand.host, way.name(name));
        if file.kind == FileType::File {
            let (mut data, file) = at(host, here.open_file(from))?;
            if dir.mount.is_in(file.id) {
                return at(host, Err(io::Error::other(OWN_FILE)));
            }
            let node = way.file(dir, name)?;
            let filled = self.content(&node, &mut data, file.size);
            let whole = filled.and_then(|()| self.finish(&node, &data.into(), &file));
            whole.inspect_err(|_| remove_part(dir, name))?;
            *self.stats.of_kind(file.kind) += 1;
            return Ok((node, file.identity()));
        }
        let handle = at(host, here.special(from, file.kind))?;
        let node = if file.kind == FileType::Symlink {
            dir.symlink(name, &at(host, here.read_link(from))?)?
        } else {
            dir.mknod(name, file.kind.mode() | 0o600, file.rdev)?
        };
        self.finish(&node, &handle, &file).inspect_err(|_| remove_part(dir, name))?;
        *self.stats.of_kind(file.kind) += 1;
        Ok((node, file.identity()))
    }

    /// Copies what can be read of a file, which is said to have `size` bytes: one of `/proc` has more, one of `/sys` less.
    fn content(&mut self, node: &Node, data: &mut fs::File, size: u64) -> Result<()> {
        if size == 0 {
            return self.piece(node, data, 0..u64::MAX).map(drop);
        }
        let (mut from, mut written, mut end) = (0, 0, size);
        while let Some((start, stop)) = at(&self.at_hand.host, host::next_data(data, from, size))? {
            at(&self.at_hand.host, data.seek(SeekFrom::Start(start)))?;
            from = self.piece(node, data, start..stop)?;
            if from > start {
                written = from;
            }
            if from < stop {
                end = from;
                break;
            }
        }
        // It may have become shorter meanwhile, within a hole too.
        let end = end.min(at(&self.at_hand.host, data.metadata())?.len());
        if written < end {
            node.set(&SetAttr { size: Some(end), ..SetAttr::default() })?;
        }
        Ok(())
    }

    /// Copies bytes from where the file is read next, up to its end at most; tells where that was.
    fn piece(&mut self, node: &Node, data: &mut fs::File, range: Range<u64>) -> Result<u64> {
        self.buf.resize(CHUNK, 0);
        let mut from = range.start;
        while from < range.end {
            let want = (range.end - from).min(CHUNK as u64) as usize;
            let n = at(&self.at_hand.host, data.read(self.buf.get_mut(..want).unwrap_or_default()))?;
            if n == 0 {
                break;
            }
            write_all(node, from, self.buf.get(..n).unwrap_or_default())?;
            from += n as u64;
            self.stats.bytes += n as u64;
            self.options.tell(&self.stats, &self.at_hand.path)?;
        }
        Ok(from)
    }

    fn finish(&mut self, node: &Node, handle: &Handle, file: &HostFile) -> Result<()> {
        if self.options.xattrs {
            for (name, value) in handle.xattrs() {
                set_xattr(node, &name, &value, &mut self.stats, &self.at_hand.host)?;
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

struct CopyOut<'a, 'o> {
    options: &'a mut CopyOptions<'o>,
    keep_owner: bool,
    stats: CopyStats,
    /// Where on the host it is.
    descent: Descent,
    lineage: Lineage,
    /// Where the first name of each file with several went.
    links: HashMap<Ino, FirstName>,
    buf: Vec<u8>,
    at_hand: AtHand,
}

/// The first name of a file that was made.
struct FirstName {
    dir: Kept,
    name: Vec<u8>,
}

/// A directory of the volume being copied.
struct OutFrame {
    node: Arc<Node>,
    children: Children,
}

impl<'a, 'o> CopyOut<'a, 'o> {
    fn new(volume: &Volume, base: HostDir, options: &'a mut CopyOptions<'o>, at_hand: AtHand) -> CopyOut<'a, 'o> {
        CopyOut {
            keep_owner: options.owner == Some(true) && host::may_chown(),
            options,
            stats: CopyStats::default(),
            descent: Descent::new(base),
            lineage: Lineage::new(volume.mount()),
            links: HashMap::new(),
            buf: vec![0; CHUNK],
            at_hand,
        }
    }

    /// Copies to `name` in the base, or to the base itself.
    fn tree(&mut self, volume: &Volume, path: &[u8], name: Option<&[u8]>) -> Result<()> {
        let node = Arc::new(volume.mount().resolve(path, false)?);
        let mut frames = Vec::new();
        frames.extend(self.one(node, name)?);
        while let Some(frame) = frames.last_mut() {
            if let Some(child) = frame.children.next() {
                let Child { name, node } = match child {
                    Ok(child) => child,
                    Err(lost) => {
                        self.pass(lost.named(&self.at_hand.path).into())?;
                        continue;
                    }
                };
                if name.contains(&b'/') || matches!(&name[..], b"." | b".." | b"") {
                    self.pass(Errno::EUCLEAN.into())?;
                    continue;
                }
                self.at_hand.down(&name);
                match self.one(node, Some(&name)) {
                    Ok(Some(below)) => frames.push(below),
                    Ok(None) => self.at_hand.up(),
                    Err(e) => {
                        self.pass(e)?;
                        self.at_hand.up();
                    }
                }
            } else if let Some(done) = frames.pop() {
                self.lineage.leave();
                let left = at(&self.at_hand.host, self.descent.leave().and_then(|dir| dir.handle()))?;
                self.finish(&done.node, &left)?;
                self.at_hand.up();
            }
        }
        Ok(())
    }

    fn pass(&mut self, e: Failure) -> Result<()> {
        self.options.pass(&mut self.stats, e, Failure::is_damage, |e| self.at_hand.not_out(e))
    }

    /// Copies one name; a directory comes back to be filled.
    fn one(&mut self, node: Arc<Node>, name: Option<&[u8]>) -> Result<Option<OutFrame>> {
        self.options.tell(&self.stats, &self.at_hand.path)?;
        if node.is_dir() {
            return self.enter(node, name).map(Some);
        }
        let name = name.ok_or(io::Error::from(io::ErrorKind::IsADirectory))?;
        let kind = node.attr.file_type();
        if matches!(kind, FileType::Char | FileType::Block) && !self.options.devices {
            self.stats.left_out.devices += 1;
            return Ok(None);
        }
        let first = self.links.get(&node.ino());
        let (here, host) = (self.descent.here(), &self.at_hand.host);
        if kind == FileType::File && self.descent.is_at_base() {
            at(host, spare_special(here, name))?;
        }
        at(host, clear(&node.mount, here, name, (kind, first.is_some())))?;
        if let Some(first) = first {
            at(host, self.descent.reach(first.dir).and_then(|dir| dir.link(&first.name, here, name)))?;
            self.stats.hard_links += 1;
            return Ok(None);
        }
        let made = match kind {
            FileType::File => self.file(&node, name).map(|()| true)?,
            kind => self.special(&node, kind, name)?,
        };
        if made && node.attr.nlink > 1 {
            let first = FirstName { dir: self.descent.keep(), name: name.to_vec() };
            self.links.insert(node.ino(), first);
        }
        Ok(None)
    }

    /// Makes a directory, or goes into the one that is there.
    fn enter(&mut self, node: Arc<Node>, name: Option<&[u8]>) -> Result<OutFrame> {
        self.lineage.enter(&node, || self.at_hand.path.clone())?;
        let here = self.descent.here();
        let wanted = node.attr.mode;
        let dir = match name {
            None => here.again().and_then(|dir| narrowed(dir, wanted)),
            Some(name) => match here.look(name) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => here.make_dir(name),
                Err(e) => Err(e),
                Ok(file) if file.kind == FileType::Dir => here.dir(name).and_then(|dir| narrowed(dir, wanted)),
                Ok(_) => Err(no_directory_there()),
            },
        };
        at(&self.at_hand.host, dir.and_then(|dir| self.descent.enter(name, dir)))?;
        self.stats.directories += 1;
        Ok(OutFrame { children: Children::of(node.clone()), node })
    }

    /// Makes a symbolic link, fifo, socket or device node; tells whether it is there.
    fn special(&mut self, node: &Node, kind: FileType, name: &[u8]) -> Result<bool> {
        let (here, host) = (self.descent.here(), &self.at_hand.host);
        if kind == FileType::Symlink {
            at(host, here.symlink(&node.fs().readlink(node.ino())?, name))?;
            self.stats.symlinks += 1;
        } else {
            if let Err(e) = here.make_node(name, kind, 0o600, node.attr.rdev) {
                self.stats.skipped.push(format!("{}: {e}", host.display()));
                return Ok(false);
            }
            self.stats.special += 1;
        }
        let handle = at(host, here.special(name, kind))?;
        self.finish(node, &handle)?;
        Ok(true)
    }

    /// A regular file gets its name when it is whole, so what had the name stays until then.
    fn file(&mut self, node: &Node, name: &[u8]) -> Result<()> {
        let part = format!(".arbor-{}-{}.part", std::process::id(), next_part()).into_bytes();
        let mut target = at(&self.at_hand.host, self.descent.here().create(&part))?;
        let filled = self.content(node, &mut target);
        let whole = filled.and_then(|()| self.finish(node, &target.into()));
        let (here, host) = (self.descent.here(), &self.at_hand.host);
        whole.and_then(|()| at(host, here.rename(&part, name))).inspect_err(|_| {
            let _ = here.remove(&part);
        })?;
        self.stats.files += 1;
        Ok(())
    }

    fn content(&mut self, node: &Node, target: &mut fs::File) -> Result<()> {
        let host = &self.at_hand.host;
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
                self.options.tell(&self.stats, &self.at_hand.path)?;
            }
        }
        at(host, target.set_len(size))
    }

    /// Opens what was made to those whom its mode lets in, with all else that belongs to it.
    fn finish(&mut self, node: &Node, handle: &Handle) -> Result<()> {
        let attr = &node.attr;
        let keeps_privileges = self.options.privileges && self.keep_owner;
        match self.keep_owner {
            true => at(&self.at_hand.host, handle.chown(attr.uid, attr.gid))?,
            false => self.stats.left_out.owners += u64::from(self.is_foreign(handle, attr.uid, attr.gid)),
        }
        if self.options.xattrs {
            self.attributes(node, handle, keeps_privileges).or_else(|e| self.pass(e))?;
        }
        let has_set_id = attr.mode & 0o6000 != 0;
        self.stats.left_out.set_ids += u64::from(has_set_id && !keeps_privileges);
        let file = HostFile {
            kind: attr.file_type(),
            mode: attr.mode & if keeps_privileges { 0o7777 } else { 0o1777 },
            owner: None,
            rdev: attr.rdev,
            size: attr.size,
            atime: Some(attr.atime),
            mtime: Some(attr.mtime),
            id: None,
            is_linked: false,
        };
        at(&self.at_hand.host, handle.set_attributes(&file))
    }

    /// Whether somebody could miss the owner that a file had in the volume.
    fn is_foreign(&self, handle: &Handle, uid: u32, gid: u32) -> bool {
        let is_asked = self.options.owner == Some(true) || (self.options.owner.is_none() && host::may_chown());
        is_asked && handle.owner().is_some_and(|owner| owner != (uid, gid))
    }

    fn attributes(&mut self, node: &Node, handle: &Handle, keeps_privileges: bool) -> Result<()> {
        for name in node.fs().listxattr(node.ino())? {
            if !keeps_privileges && (name.starts_with(b"security.") || name.starts_with(b"trusted.")) {
                self.stats.left_out.attributes += 1;
                continue;
            }
            let value = node.fs().getxattr(node.ino(), &name)?;
            if let Err(e) = handle.set_xattr(&name, &value) {
                let name = String::from_utf8_lossy(&name);
                self.stats.skipped.push(format!("{}: attribute {name}: {e}", self.at_hand.host.display()));
            }
        }
        Ok(())
    }
}

/// A directory that is there lets in nobody whom the other does not, from now on.
fn narrowed(dir: HostDir, wanted: u32) -> io::Result<HostDir> {
    let mode = dir.itself()?.mode;
    if mode & !wanted & 0o077 != 0 {
        dir.handle()?.chmod(mode & (wanted | 0o7700))?;
    }
    Ok(dir)
}

/// Refuses a file for a name that the caller has given, if it leads to a device as `/dev/stdout` does.
fn spare_special(dir: &HostDir, name: &[u8]) -> io::Result<()> {
    match dir.look_behind(name) {
        Ok(file) if is_special(file.kind) => Err(no_regular_file_there()),
        _ => Ok(()),
    }
}

fn is_special(kind: FileType) -> bool {
    !matches!(kind, FileType::File | FileType::Dir | FileType::Symlink)
}

fn no_regular_file_there() -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, "exists and is no regular file")
}

/// Makes way for something of `kind` that is not a directory, or for a link to it. A link that stands there is
/// replaced, never followed; a device is left alone. A file needs no way made: it will be renamed over what is there.
fn clear(mount: &Mount, dir: &HostDir, name: &[u8], (kind, is_link): (FileType, bool)) -> io::Result<()> {
    match dir.look(name) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
        Ok(file) if file.kind == FileType::Dir => Err(io::ErrorKind::IsADirectory.into()),
        Ok(file) if mount.is_in(file.id) => Err(io::Error::new(io::ErrorKind::AlreadyExists, OWN_FILE)),
        Ok(file) if kind == FileType::File && is_special(file.kind) => Err(no_regular_file_there()),
        Ok(_) if kind == FileType::File && !is_link => Ok(()),
        Ok(_) => dir.remove(name),
    }
}
