//! Directories: reading, walking and removing them.

use crate::error::{Failure, Named, Result};
use crate::file::read_whole;
use crate::meta::Metadata;
use crate::node::{Mount, Node, path_of};
use arbor_base::vfs::{Errno, FileType, Ino};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Entries fetched at a time.
const BATCH: usize = 256;

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
    fn new(dir: &[u8], name: &[u8], node: Node) -> DirEntry {
        let path = join(dir, name);
        DirEntry { name_start: path.len() - name.len(), path, node: Arc::new(node) }
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
    if !dir.is_empty() && !dir.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// The entries of a directory, without `.` and `..`, in the order of the engine. One whose inode is
/// damaged is an error, and the others follow.
pub struct ReadDir {
    dir: Arc<Node>,
    path: Vec<u8>,
    cookie: u64,
    ready: VecDeque<io::Result<DirEntry>>,
    at_end: bool,
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadDir").field("path", &path_of(self.path.clone())).finish_non_exhaustive()
    }
}

impl ReadDir {
    pub(crate) fn new(dir: Arc<Node>, path: Vec<u8>) -> ReadDir {
        ReadDir { dir, path, cookie: 0, ready: VecDeque::new(), at_end: false }
    }

    fn fill(&mut self) -> Result<()> {
        let (mount, path, ready) = (&self.dir.mount, &self.path, &mut self.ready);
        let mut cookie = self.cookie;
        let mut full = false;
        let mut broken = Vec::new();
        mount.fs.readdir_plus(self.dir.ino(), cookie, &mut |entry, attr| {
            full = ready.len() == BATCH;
            if full {
                return false;
            }
            match attr {
                Some(attr) => ready.push_back(Ok(DirEntry::new(path, entry.name, Node::adopt(mount, *attr)))),
                None if entry.name == b"." || entry.name == b".." => {}
                None => broken.push(entry.name.to_vec()),
            }
            cookie = entry.cookie;
            true
        })?;
        self.at_end = !full;
        self.cookie = cookie;
        for name in broken {
            let found = mount.fs.lookup(self.dir.ino(), &name).map(|e| Node::adopt(mount, e));
            let found = found.map_err(Failure::from).named("look at", &join(path, &name));
            self.ready.push_back(found.map(|node| DirEntry::new(path, &name, node)));
        }
        Ok(())
    }
}

impl Iterator for ReadDir {
    type Item = io::Result<DirEntry>;

    fn next(&mut self) -> Option<io::Result<DirEntry>> {
        while self.ready.is_empty() && !self.at_end {
            if let Err(e) = self.fill() {
                self.at_end = true;
                return Some(Err(e.named("read directory", &self.path)));
            }
        }
        self.ready.pop_front()
    }
}

/// One file of a tree.
#[derive(Debug)]
pub struct WalkEntry {
    /// The file.
    pub entry: DirEntry,
    /// How deep it lies; what the walk began with has depth 0.
    pub depth: usize,
}

/// A tree, depth first, each directory before what it holds. Links are not followed.
pub struct Walk {
    first: Option<DirEntry>,
    sorted: bool,
    levels: Vec<Level>,
}

enum Level {
    AsRead(ReadDir),
    Sorted(std::vec::IntoIter<DirEntry>),
}

impl fmt::Debug for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walk").field("depth", &self.levels.len()).finish_non_exhaustive()
    }
}

impl Walk {
    pub(crate) fn new(root: Node, path: &[u8]) -> Walk {
        let name = path.rsplit(|b| *b == b'/').next().unwrap_or_default().len();
        let first = DirEntry { path: path.to_vec(), name_start: path.len() - name, node: Arc::new(root) };
        Walk { first: Some(first), sorted: false, levels: Vec::new() }
    }

    /// Goes through every directory in the order of names.
    pub fn sorted(mut self) -> Walk {
        self.sorted = true;
        self
    }

    fn enter(&mut self, dir: &DirEntry) -> io::Result<()> {
        let entries = ReadDir::new(dir.node.clone(), dir.path.clone());
        self.levels.push(if self.sorted {
            let mut all = entries.collect::<io::Result<Vec<_>>>()?;
            all.sort_by(|a, b| a.name().cmp(b.name()));
            Level::Sorted(all.into_iter())
        } else {
            Level::AsRead(entries)
        });
        Ok(())
    }

    fn advance(&mut self) -> Option<io::Result<DirEntry>> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        while let Some(level) = self.levels.last_mut() {
            let next = match level {
                Level::AsRead(entries) => entries.next(),
                Level::Sorted(entries) => entries.next().map(Ok),
            };
            if next.is_some() {
                return next;
            }
            self.levels.pop();
        }
        None
    }
}

impl Iterator for Walk {
    type Item = io::Result<WalkEntry>;

    fn next(&mut self) -> Option<io::Result<WalkEntry>> {
        let entry = match self.advance()? {
            Ok(entry) => entry,
            Err(e) => return Some(Err(e)),
        };
        let depth = self.levels.len();
        if entry.file_type() == FileType::Dir
            && let Err(e) = self.enter(&entry)
        {
            return Some(Err(e));
        }
        Some(Ok(WalkEntry { entry, depth }))
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
        let mut doomed = vec![Doomed { dir, name: name.to_vec(), subdirs: Vec::new() }];
        while let Some(here) = doomed.last_mut() {
            if here.subdirs.is_empty() {
                here.subdirs = self.remove_files(&here.dir)?;
            }
            if let Some(name) = here.subdirs.pop() {
                let dir = here.dir.child(&name)?;
                doomed.push(Doomed { dir, name, subdirs: Vec::new() });
                continue;
            }
            let Some(empty) = doomed.pop() else { break };
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
                files.len() < 4 * BATCH
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

impl Node {
    pub(crate) fn entries(self: &Arc<Node>, path: &[u8]) -> Result<ReadDir> {
        if !self.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        Ok(ReadDir::new(self.clone(), path.to_vec()))
    }
}
