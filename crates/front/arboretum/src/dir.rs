//! Directories: reading, walking and removing them.

use crate::children::{Child, Children, Lost};
use crate::error::{Failure, Named, Result};
use crate::file::read_whole;
use crate::meta::Metadata;
use crate::node::{Mount, Node, path_of};
use arbor_base::vfs::{FileType, Ino};
use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Files removed at a time.
const BATCH: usize = 1024;

/// One name of a directory. It holds its inode, so that asking for metadata costs nothing.
pub struct DirEntry {
    path: Vec<u8>,
    name_start: usize,
    pub(crate) node: Arc<Node>,
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DirEntry").field(&self.path()).finish()
    }
}

impl DirEntry {
    fn new(dir: &[u8], name: &[u8], node: Arc<Node>) -> DirEntry {
        let path = join(dir, name);
        DirEntry { name_start: path.len() - name.len(), path, node }
    }

    /// Its name.
    pub fn file_name(&self) -> OsString {
        path_of(self.name().to_vec()).into_os_string()
    }

    /// The bytes of its name.
    pub fn name(&self) -> &[u8] {
        self.path.get(self.name_start..).unwrap_or_default()
    }

    /// The directory's path with the name.
    pub fn path(&self) -> PathBuf {
        path_of(self.path.clone())
    }

    /// The bytes of its path.
    pub fn path_bytes(&self) -> &[u8] {
        &self.path
    }

    /// Kind of file.
    pub fn file_type(&self) -> FileType {
        self.node.attr.file_type()
    }

    /// Attributes as they were when the directory was read; links are not followed.
    pub fn metadata(&self) -> Metadata {
        self.node.attr.into()
    }

    /// The whole content of the file, found without another look at its path. Links are not followed.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        read_whole(&self.node).named("read", &self.path)
    }

    /// Inode number.
    pub fn ino(&self) -> Ino {
        self.node.ino()
    }
}

/// `dir/name`.
pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(dir.len() + 1 + name.len());
    path.extend_from_slice(dir);
    push(&mut path, name);
    path
}

/// Adds a name to the path of a directory.
pub(crate) fn push(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() && !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

/// The entries of a directory, without `.` and `..`, in the order of the engine; on a volume that was opened for reading
/// in some engines in that of inode numbers. One whose inode is damaged is an error, and the others follow.
pub struct ReadDir {
    path: Vec<u8>,
    children: Children,
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadDir").field("path", &path_of(self.path.clone())).finish_non_exhaustive()
    }
}

impl ReadDir {
    pub(crate) fn new(dir: Node, path: &[u8]) -> Result<ReadDir> {
        Ok(ReadDir { path: path.to_vec(), children: Children::of(Arc::new(dir.need_dir()?)) })
    }
}

impl Iterator for ReadDir {
    type Item = io::Result<DirEntry>;

    fn next(&mut self) -> Option<io::Result<DirEntry>> {
        let next = self.children.next_ready()?;
        Some(next.map(|(name, node)| DirEntry::new(&self.path, name, node)).map_err(|lost| lost.named(&self.path)))
    }
}

/// The directories that a walk is in, and those it has been in. One that is met again is damage: who went into it
/// would come to no end.
pub(crate) struct Lineage {
    /// While this stays the same no directory has left its place.
    version: Option<u64>,
    way: Vec<Ino>,
    on_way: HashSet<Ino>,
    seen: HashSet<Ino>,
}

impl Lineage {
    pub(crate) fn new(mount: &Mount) -> Lineage {
        let version = mount.fs.tree_version();
        Lineage { version, way: Vec::new(), on_way: HashSet::new(), seen: HashSet::new() }
    }

    /// Goes into a directory.
    pub(crate) fn enter(&mut self, dir: &Node, path: impl FnOnce() -> Vec<u8>) -> Result<()> {
        let ino = dir.ino();
        let stayed = || self.version.is_some() && self.version == dir.fs().tree_version();
        let what = match (self.on_way.contains(&ino), self.seen.contains(&ino)) {
            (true, _) => "lies in itself",
            (false, true) if stayed() => "has another name too",
            _ => "",
        };
        if !what.is_empty() {
            let path = path();
            let path = String::from_utf8_lossy(&path);
            return Err(Failure::Damage(format!("{path}: damaged: this directory (inode {ino}) {what}")));
        }
        self.seen.insert(ino);
        self.on_way.insert(ino);
        self.way.push(ino);
        Ok(())
    }

    /// Comes out of the directory that it went into last.
    pub(crate) fn leave(&mut self) {
        if let Some(ino) = self.way.pop() {
            self.on_way.remove(&ino);
        }
    }
}

/// One file of a tree.
#[derive(Debug)]
pub struct WalkEntry {
    /// The file.
    pub entry: DirEntry,
    /// How deep it lies; what the walk began with has depth 0.
    pub depth: usize,
    /// In a [sorted](Walk::sorted) walk, whether it is the last one of its directory.
    pub is_last: bool,
}

/// A tree, depth first, each directory before what it holds. Links are not followed. What cannot be
/// read is an error, and the walk goes on with the rest; so is a directory that is met again, which it
/// does not go into.
pub struct Walk {
    first: Option<DirEntry>,
    sorted: bool,
    /// The path of the directory that the last level reads.
    path: Vec<u8>,
    levels: Vec<Level>,
    lineage: Lineage,
    /// Whether what came last is a directory that it has gone into.
    has_entered: bool,
    /// Why it could not go into the directory that came last.
    barred: Option<io::Error>,
}

/// A directory that a walk is in.
struct Level {
    /// Length of the path of the directory that holds it.
    above: usize,
    order: Order,
}

enum Order {
    AsRead(Children),
    Sorted { children: std::vec::IntoIter<Child>, lost: std::vec::IntoIter<Lost> },
}

impl Order {
    fn sorted(read: Children) -> Order {
        let (mut children, mut lost) = (Vec::new(), Vec::new());
        for child in read {
            match child {
                Ok(child) => children.push(child),
                Err(e) => lost.push(e),
            }
        }
        children.sort_by(|a, b| a.name.cmp(&b.name));
        Order::Sorted { children: children.into_iter(), lost: lost.into_iter() }
    }

    /// The next entry of the directory `dir`.
    fn next(&mut self, dir: &[u8]) -> Option<std::result::Result<DirEntry, Lost>> {
        match self {
            Order::AsRead(children) => Some(children.next_ready()?.map(|(name, node)| DirEntry::new(dir, name, node))),
            Order::Sorted { children, lost } => {
                let child = || children.next().map(|child| Ok(DirEntry::new(dir, &child.name, child.node)));
                lost.next().map(Err).or_else(child)
            }
        }
    }

    /// What is still to come, if it is known.
    fn rest(&self) -> &[Child] {
        match self {
            Order::AsRead(_) => &[],
            Order::Sorted { children, .. } => children.as_slice(),
        }
    }
}

impl fmt::Debug for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walk").field("depth", &self.levels.len()).finish_non_exhaustive()
    }
}

impl Walk {
    pub(crate) fn new(root: Node, path: &[u8]) -> Walk {
        let name = path.rsplit(|b| *b == b'/').next().unwrap_or_default().len();
        Walk {
            sorted: false,
            path: Vec::new(),
            levels: Vec::new(),
            lineage: Lineage::new(&root.mount),
            has_entered: false,
            barred: None,
            first: Some(DirEntry { path: path.to_vec(), name_start: path.len() - name, node: Arc::new(root) }),
        }
    }

    /// Goes through every directory in the order of names.
    pub fn sorted(mut self) -> Walk {
        self.sorted = true;
        self
    }

    /// What lies in the directory that came last, if the walk is [sorted](Walk::sorted).
    pub fn listing(&self) -> impl Iterator<Item = DirEntry> {
        let entered = self.levels.last().filter(|_| self.has_entered);
        let children = entered.map_or(&[][..], |level| level.order.rest());
        children.iter().map(|child| DirEntry::new(&self.path, &child.name, child.node.clone()))
    }

    /// Does not go into the directory that came last.
    pub fn skip_dir(&mut self) {
        self.barred = None;
        if std::mem::take(&mut self.has_entered) {
            self.leave();
        }
    }

    fn enter(&mut self, dir: &DirEntry) -> Result<()> {
        self.lineage.enter(&dir.node, || dir.path.clone())?;
        let above = self.path.len();
        self.path.clone_from(&dir.path);
        let children = Children::of(dir.node.clone());
        let order = if self.sorted { Order::sorted(children) } else { Order::AsRead(children) };
        self.levels.push(Level { above, order });
        Ok(())
    }

    fn leave(&mut self) {
        if let Some(level) = self.levels.pop() {
            self.path.truncate(level.above);
        }
        self.lineage.leave();
    }

    fn advance(&mut self) -> Option<io::Result<DirEntry>> {
        if let Some(e) = self.barred.take() {
            return Some(Err(e));
        }
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        while let Some(level) = self.levels.last_mut() {
            if let Some(next) = level.order.next(&self.path) {
                return Some(next.map_err(|lost| lost.named(&self.path)));
            }
            self.leave();
        }
        None
    }
}

impl Iterator for Walk {
    type Item = io::Result<WalkEntry>;

    fn next(&mut self) -> Option<io::Result<WalkEntry>> {
        self.has_entered = false;
        let entry = match self.advance()? {
            Ok(entry) => entry,
            Err(e) => return Some(Err(e)),
        };
        let depth = self.levels.len();
        let is_last = self.levels.last().is_none_or(|level| level.order.rest().is_empty());
        if entry.file_type() == FileType::Dir {
            self.barred = self.enter(&entry).named("walk", entry.path_bytes()).err();
            self.has_entered = self.barred.is_none();
        }
        Some(Ok(WalkEntry { entry, depth, is_last }))
    }
}

/// A directory under removal: what is left of it to go into.
struct Doomed {
    dir: Node,
    name: Vec<u8>,
    subdirs: Vec<Vec<u8>>,
}

impl Mount {
    /// Removes what `dir` holds, then its name in `parent`. No recursion: a hostile image may be
    /// deeper than any stack.
    pub(crate) fn remove_tree(self: &Arc<Mount>, parent: &Node, name: &[u8], dir: Node) -> Result<()> {
        let mut lineage = Lineage::new(self);
        lineage.enter(&dir, || name.to_vec())?;
        let mut doomed = vec![Doomed { dir, name: name.to_vec(), subdirs: Vec::new() }];
        while let Some(here) = doomed.last_mut() {
            if here.subdirs.is_empty() {
                here.subdirs = self.remove_files(&here.dir)?;
            }
            if let Some(name) = here.subdirs.pop() {
                let dir = here.dir.child(&name)?;
                let way = || doomed.iter().map(|d| d.name.as_slice()).chain([name.as_slice()]).collect::<Vec<_>>();
                lineage.enter(&dir, || way().join(&b'/'))?;
                doomed.push(Doomed { dir, name, subdirs: Vec::new() });
                continue;
            }
            let Some(empty) = doomed.pop() else { break };
            lineage.leave();
            let holder = doomed.last().map_or(parent, |d| &d.dir);
            self.fs.rmdir(holder.ino(), &empty.name)?;
            self.changed();
        }
        Ok(())
    }

    /// Removes the files of a directory; returns names of directories in it, none if it is empty.
    fn remove_files(&self, dir: &Node) -> Result<Vec<Vec<u8>>> {
        loop {
            let mut files = Vec::new();
            let mut subdirs = Vec::new();
            self.fs.readdir(dir.ino(), 0, &mut |entry| {
                if entry.name != b"." && entry.name != b".." {
                    let list = if entry.file_type == FileType::Dir { &mut subdirs } else { &mut files };
                    list.push(entry.name.to_vec());
                }
                files.len() < BATCH
            })?;
            for name in &files {
                self.fs.unlink(dir.ino(), name)?;
                self.changed();
            }
            if files.is_empty() {
                return Ok(subdirs);
            }
        }
    }
}
