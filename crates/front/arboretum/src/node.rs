//! Counted references to inodes, and the way from a path to them.
//!
//! A [`Node`] owns one lookup reference and gives it back when dropped. [`Mount::walk`] keeps the
//! chain of nodes from the root, so `..` and links need no help from the engine.

use crate::error::Result;
use arbor_base::vfs::{Attr, Clock, Cx, Entry, Errno, FileSystem, FileType, Ino, SetAttr, Time, acl};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Links followed on one path before it counts as a loop.
const MAX_LINKS: u32 = 40;

/// Numbers of a file of the host: of its file system, and of its inode.
pub(crate) type FileId = (u64, u64);

/// A mounted file system, shared by the volume and everything opened on it.
pub(crate) struct Mount {
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) cx: Cx,
    pub(crate) read_only: bool,
    /// Nothing changes: it is mounted for reading, and nobody else has it.
    pub(crate) is_still: bool,
    /// The files of the host that the volume is in.
    files: Vec<FileId>,
    /// Appending reads the size and writes there; the two must not be parted.
    pub(crate) append: Mutex<()>,
    /// When the engine wants its background work, in milliseconds since the epoch.
    deadline_ms: AtomicI64,
    working: Mutex<()>,
    closed: AtomicBool,
    /// Where the last path led.
    known: Mutex<Option<Known>>,
}

/// A directory and the path to it, as long as [`FileSystem::tree_version`] says so.
struct Known {
    path: Vec<u8>,
    version: u64,
    dir: Arc<Held>,
}

/// A lookup reference that several nodes share.
struct Held {
    fs: Arc<dyn FileSystem>,
    attr: Attr,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.fs.forget(self.attr.ino, 1);
    }
}

impl Mount {
    /// `files`: the files of the host that it is in, if nobody else has it.
    pub(crate) fn new(
        (fs, files): (Arc<dyn FileSystem>, Option<Vec<FileId>>),
        clock: Arc<dyn Clock>,
        cx: Cx,
        read_only: bool,
    ) -> Arc<Mount> {
        Arc::new(Mount {
            fs,
            clock,
            cx,
            read_only,
            is_still: read_only && files.is_some(),
            files: files.unwrap_or_default(),
            append: Mutex::new(()),
            deadline_ms: AtomicI64::new(0),
            working: Mutex::new(()),
            closed: AtomicBool::new(false),
            known: Mutex::new(None),
        })
    }

    /// Whether the volume is in a file of the host that has one of these numbers.
    pub(crate) fn is_in(&self, file: impl IntoIterator<Item = FileId>) -> bool {
        file.into_iter().any(|id| self.files.contains(&id))
    }

    /// Called after each change: there is no thread, so the caller pays for what has piled up.
    pub(crate) fn changed(&self) {
        let now = self.clock.now();
        if !self.fs.wants_background() && as_ms(now) < self.deadline_ms.load(Ordering::Relaxed) {
            return;
        }
        if let Ok(_one_at_a_time) = self.working.try_lock() {
            let next = self.fs.background(now);
            self.deadline_ms.store(as_ms(next), Ordering::Relaxed);
        }
    }

    pub(crate) fn unmount(&self) -> Result<()> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.forget_known();
        Ok(self.fs.unmount()?)
    }

    pub(crate) fn root(self: &Arc<Mount>) -> Result<Node> {
        let attr = self.fs.getattr(self.fs.root())?;
        Ok(Node { mount: self.clone(), attr, reference: Reference::None })
    }

    /// Forgets where the last path led: a directory is about to go, and must not be held.
    pub(crate) fn forget_known(&self) {
        // Given back when the lock is.
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(known);
    }

    /// The directory at `path`, if the last path led there.
    fn known(self: &Arc<Mount>, path: &[u8]) -> Option<Node> {
        let version = self.fs.tree_version()?;
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.as_ref().filter(|k| k.version == version && k.path == path)?;
        let dir = known.dir.clone();
        Some(Node { mount: self.clone(), attr: dir.attr, reference: Reference::Shared { _with: dir } })
    }

    /// Remembers that `path` led to `dir`, when the tree had this version.
    fn remember(&self, path: &[u8], version: Option<u64>, dir: &mut Node) {
        let (Some(version), Reference::Own) = (version, &dir.reference) else { return };
        let held = Arc::new(Held { fs: self.fs.clone(), attr: dir.attr });
        dir.reference = Reference::Shared { _with: held.clone() };
        let known = Known { path: path.to_vec(), version, dir: held };
        let before = self.known.lock().unwrap_or_else(PoisonError::into_inner).replace(known);
        drop(before);
    }

    /// The directory that holds the last name of `path`, and the name, if the last path led to the
    /// same directory.
    pub(crate) fn known_place<'p>(self: &Arc<Mount>, path: &'p [u8]) -> Option<(Node, &'p [u8])> {
        let (dir, name) = last_name(path)?;
        Some((self.known(dir)?, name))
    }
}

/// A path as its directory and its last name, if it has both and needs no care.
fn last_name(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = path.iter().rposition(|b| *b == b'/')?;
    let (dir, name) = (path.get(..at)?, path.get(at + 1..)?);
    (!dir.is_empty() && !matches!(name, b"" | b"." | b"..")).then_some((dir, name))
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Nobody is left to be told; `Volume::close` reports.
        let _ = self.unmount();
    }
}

fn as_ms(t: Time) -> i64 {
    t.secs.saturating_mul(1000).saturating_add(i64::from(t.nanos / 1_000_000))
}

/// What keeps an inode for a [`Node`].
enum Reference {
    /// It needs none: it is the root, or nothing goes from where it is ([`Mount::is_still`]).
    None,
    Own,
    Shared {
        _with: Arc<Held>,
    },
}

/// An inode and, unless it needs none, one lookup reference to it.
pub(crate) struct Node {
    pub(crate) mount: Arc<Mount>,
    /// Attributes at the time of the lookup.
    pub(crate) attr: Attr,
    reference: Reference,
}

impl Drop for Node {
    fn drop(&mut self) {
        if matches!(self.reference, Reference::Own) {
            self.mount.fs.forget(self.attr.ino, 1);
        }
    }
}

impl Node {
    /// Takes over the reference that came with `entry`.
    pub(crate) fn adopt(mount: &Arc<Mount>, entry: Entry) -> Node {
        Node { mount: mount.clone(), attr: entry, reference: Reference::Own }
    }

    /// An inode of a mount on which nothing changes.
    pub(crate) fn unheld(mount: &Arc<Mount>, attr: Attr) -> Node {
        debug_assert!(mount.is_still);
        Node { mount: mount.clone(), attr, reference: Reference::None }
    }

    pub(crate) fn ino(&self) -> Ino {
        self.attr.ino
    }

    pub(crate) fn fs(&self) -> &dyn FileSystem {
        &*self.mount.fs
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.attr.file_type() == FileType::Dir
    }

    pub(crate) fn need_dir(self) -> Result<Node> {
        if self.is_dir() { Ok(self) } else { Err(Errno::ENOTDIR.into()) }
    }

    pub(crate) fn child(&self, name: &[u8]) -> Result<Node> {
        if !self.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        Ok(Node::adopt(&self.mount, self.fs().lookup(self.ino(), name)?))
    }

    pub(crate) fn child_if_any(&self, name: &[u8]) -> Result<Option<Node>> {
        match self.child(name) {
            Ok(node) => Ok(Some(node)),
            Err(crate::error::Failure::Volume(e)) if e.errno() == Errno::ENOENT => Ok(None),
            Err(e) => Err(e),
        }
    }

    pub(crate) fn mknod(&self, name: &[u8], mode: u32, rdev: u32) -> Result<Node> {
        let entry = self.fs().mknod(&self.mount.cx, self.ino(), name, mode, rdev)?;
        Ok(Node::adopt(&self.mount, entry))
    }

    /// A regular file without a name.
    pub(crate) fn tmpfile(&self, mode: u32) -> Result<Node> {
        let entry = self.fs().tmpfile(&self.mount.cx, self.ino(), mode)?;
        Ok(Node::adopt(&self.mount, entry))
    }

    pub(crate) fn mkdir(&self, name: &[u8], mode: u32) -> Result<Node> {
        let entry = self.fs().mkdir(&self.mount.cx, self.ino(), name, mode)?;
        Ok(Node::adopt(&self.mount, entry))
    }

    pub(crate) fn symlink(&self, name: &[u8], target: &[u8]) -> Result<Node> {
        let entry = self.fs().symlink(&self.mount.cx, self.ino(), name, target)?;
        Ok(Node::adopt(&self.mount, entry))
    }

    /// Gives this inode another name.
    pub(crate) fn link(&self, parent: &Node, name: &[u8]) -> Result<()> {
        let entry = self.fs().link(self.ino(), parent.ino(), name)?;
        drop(Node::adopt(&self.mount, entry));
        Ok(())
    }

    pub(crate) fn set(&self, set: &SetAttr) -> Result<Attr> {
        let attr = acl::setattr(self.fs(), self.ino(), set)?;
        self.mount.changed();
        Ok(attr)
    }

    pub(crate) fn getattr(&self) -> Result<Attr> {
        Ok(self.fs().getattr(self.ino())?)
    }
}

/// Where a path leads: its last directory, the name there, and what the name names.
pub(crate) struct Found {
    /// Directory that holds the name; `None` when the path ends at the root, `.` or `..`.
    pub(crate) parent: Option<(Node, Vec<u8>)>,
    /// What is there, if anything is.
    pub(crate) node: Option<Node>,
    /// The path ended in a slash.
    pub(crate) must_be_dir: bool,
    /// A link was followed.
    by_link: bool,
}

impl Found {
    /// What is there.
    pub(crate) fn existing(self) -> Result<Node> {
        let node = self.node.ok_or(Errno::ENOENT)?;
        if self.must_be_dir { node.need_dir() } else { Ok(node) }
    }

    /// Directory and name of something that exists, for removing or renaming it.
    pub(crate) fn existing_name(self) -> Result<(Node, Vec<u8>, Node)> {
        let (parent, name) = self.parent.ok_or(Errno::EBUSY)?;
        let node = self.node.ok_or(Errno::ENOENT)?;
        let node = if self.must_be_dir { node.need_dir()? } else { node };
        Ok((parent, name, node))
    }

    /// Directory and name for something new.
    pub(crate) fn vacant(self) -> Result<(Node, Vec<u8>)> {
        match (self.parent, self.node) {
            (Some(place), None) => Ok(place),
            _ => Err(Errno::EEXIST.into()),
        }
    }
}

/// The way not yet gone, and where it has led so far.
struct Walker<'a> {
    mount: &'a Arc<Mount>,
    /// Nodes from the root to the directory reached.
    chain: Vec<Node>,
    rest: VecDeque<Vec<u8>>,
    links: u32,
    must_be_dir: bool,
}

impl Mount {
    /// Follows `path` from the root. The last component need not exist; if it is a symbolic
    /// link it is followed only if `follow` says so or a slash comes after it.
    pub(crate) fn walk(self: &Arc<Mount>, path: &[u8], follow: bool) -> Result<Found> {
        if path.is_empty() {
            return Err(Errno::ENOENT.into());
        }
        if let Some((dir, name)) = self.known_place(path) {
            let node = dir.child_if_any(name)?;
            // A link leads on from here, and that needs the way.
            if !follow || node.as_ref().is_none_or(|n| n.attr.file_type() != FileType::Symlink) {
                return Ok(Found { parent: Some((dir, name.to_vec())), node, must_be_dir: false, by_link: false });
            }
        }
        let version = self.fs.tree_version();
        let mut found = self.walk_from_root(path, follow)?;
        if let (Some((dir, _)), false, Some((above, _))) = (&mut found.parent, found.by_link, last_name(path)) {
            self.remember(above, version, dir);
        }
        Ok(found)
    }

    fn walk_from_root(self: &Arc<Mount>, path: &[u8], follow: bool) -> Result<Found> {
        let chain = vec![self.root()?];
        let mut walker = Walker { mount: self, chain, rest: VecDeque::new(), links: 0, must_be_dir: false };
        walker.prepend(path);
        walker.run(follow)
    }

    /// What is at `path`.
    pub(crate) fn resolve(self: &Arc<Mount>, path: &[u8], follow: bool) -> Result<Node> {
        self.walk(path, follow)?.existing()
    }
}

impl Walker<'_> {
    fn prepend(&mut self, path: &[u8]) {
        if self.rest.is_empty() && (path.ends_with(b"/") || path.ends_with(b"/.")) {
            self.must_be_dir = true;
        }
        for part in path.split(|b| *b == b'/').rev().filter(|p| !p.is_empty() && *p != b".") {
            self.rest.push_front(part.to_vec());
        }
    }

    fn run(mut self, follow: bool) -> Result<Found> {
        loop {
            let Some(name) = self.rest.pop_front() else {
                let node = self.chain.pop();
                return Ok(Found { parent: None, node, must_be_dir: true, by_link: self.links > 0 });
            };
            if name == b".." {
                if self.chain.len() > 1 {
                    self.chain.pop();
                }
                continue;
            }
            if let Some(found) = self.step(name, follow)? {
                return Ok(found);
            }
        }
    }

    /// Goes into `name`, or ends there if it is the last one.
    fn step(&mut self, name: Vec<u8>, follow: bool) -> Result<Option<Found>> {
        let last = self.rest.is_empty();
        let here = self.chain.last().ok_or(Errno::ENOENT)?;
        let next = here.child_if_any(&name)?;
        match next {
            Some(node) if node.attr.file_type() == FileType::Symlink && (!last || follow || self.must_be_dir) => {
                self.links += 1;
                if self.links > MAX_LINKS {
                    return Err(Errno::ELOOP.into());
                }
                let target = self.mount.fs.readlink(node.ino())?;
                if target.first() == Some(&b'/') {
                    self.chain.truncate(1);
                }
                self.prepend(&target);
                Ok(None)
            }
            Some(node) if !last => {
                self.chain.push(node.need_dir()?);
                Ok(None)
            }
            None if !last => Err(Errno::ENOENT.into()),
            node => {
                let parent = self.chain.pop().map(|dir| (dir, name));
                Ok(Some(Found { parent, node, must_be_dir: self.must_be_dir, by_link: self.links > 0 }))
            }
        }
    }
}

/// A path as the bytes it has inside a volume.
#[cfg(unix)]
pub(crate) fn bytes_of(path: &Path) -> std::borrow::Cow<'_, [u8]> {
    use std::os::unix::ffi::OsStrExt;
    path.as_os_str().as_bytes().into()
}

/// A path as the bytes it has inside a volume.
#[cfg(not(unix))]
pub(crate) fn bytes_of(path: &Path) -> std::borrow::Cow<'_, [u8]> {
    path.to_string_lossy().replace(std::path::MAIN_SEPARATOR, "/").into_bytes().into()
}

/// Bytes inside a volume as a path.
#[cfg(unix)]
pub(crate) fn path_of(bytes: Vec<u8>) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    std::ffi::OsString::from_vec(bytes).into()
}

/// Bytes inside a volume as a path.
#[cfg(not(unix))]
pub(crate) fn path_of(bytes: Vec<u8>) -> PathBuf {
    String::from_utf8_lossy(&bytes).into_owned().into()
}
