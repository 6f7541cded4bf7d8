//! What the library reads of a directory: names and what they lead to, some at a time.

use crate::dir::join;
use crate::error::{Failure, Named, Result};
use crate::node::{Mount, Node};
use arbor_base::vfs::Ino;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Inodes looked at in one call.
const BATCH: usize = 256;
/// Bytes of names that are read before their inodes are looked at in the order of numbers.
const MOST_NAMES: usize = 4 << 20;
/// Names that are read in one call.
const NAMES: usize = 4096;

/// One name of a directory and what it leads to. There may be many at every level of a walk, so it holds no path.
pub(crate) struct Child {
    pub(crate) name: Vec<u8>,
    pub(crate) node: Arc<Node>,
}

/// A name that leads to nothing that can be read; no name where the directory itself could not be read any further.
pub(crate) struct Lost {
    name: Option<Vec<u8>>,
    failure: Failure,
}

impl Lost {
    /// As an error about the directory `dir` or what lies in it.
    pub(crate) fn named(self, dir: &[u8]) -> io::Error {
        match self.name {
            Some(name) => self.failure.named("look at", &join(dir, &name)),
            None => self.failure.named("read directory", dir),
        }
    }
}

/// A name and what it leads to.
pub(crate) type Next<'a> = std::result::Result<(&'a [u8], Arc<Node>), Lost>;

/// What a name leads to, and where the name is.
struct Ready {
    name: Range<usize>,
    found: Result<Arc<Node>>,
}

/// What a directory holds, without paths.
pub(crate) struct Children {
    dir: Arc<Node>,
    cookie: u64,
    names: Names,
    ready: VecDeque<Ready>,
    at_end: bool,
}

impl Children {
    pub(crate) fn of(dir: Arc<Node>) -> Children {
        Children { dir, cookie: 0, names: Names::default(), ready: VecDeque::new(), at_end: false }
    }

    /// The next name, and what it leads to.
    pub(crate) fn next_ready(&mut self) -> Option<Next<'_>> {
        while self.ready.is_empty() && !self.at_end {
            if let Err(failure) = self.fill() {
                self.at_end = true;
                return Some(Err(Lost { name: None, failure }));
            }
        }
        let Ready { name, found } = self.ready.pop_front()?;
        let name = self.names.bytes.get(name).unwrap_or_default();
        Some(found.map(|node| (name, node)).map_err(|failure| Lost { name: Some(name.to_vec()), failure }))
    }

    fn fill(&mut self) -> Result<()> {
        let mount = &self.dir.mount;
        // What one looks at later by its number is what the name named.
        if mount.is_still && mount.fs.is_faster_by_number() { self.fill_by_number() } else { self.fill_in_order() }
    }

    fn fill_in_order(&mut self) -> Result<()> {
        let (mount, names, ready) = (&self.dir.mount, &mut self.names, &mut self.ready);
        names.clear();
        let (mut cookie, mut full, mut broken) = (self.cookie, false, Vec::new());
        mount.fs.readdir_plus(self.dir.ino(), cookie, &mut |entry, attr| {
            full = ready.len() == BATCH;
            if full {
                return false;
            }
            match attr {
                Some(attr) => {
                    let found = Ok(Arc::new(Node::adopt(mount, *attr)));
                    ready.push_back(Ready { name: names.push(entry.name), found });
                }
                None if is_dots(entry.name) => {}
                None => broken.push(names.push(entry.name)),
            }
            cookie = entry.cookie;
            true
        })?;
        (self.cookie, self.at_end) = (cookie, !full);
        self.look_up(broken);
        Ok(())
    }

    /// Many names first, then what they lead to, in the order of numbers.
    fn fill_by_number(&mut self) -> Result<()> {
        if self.names.is_used_up() {
            self.names.failure.take().map_or(Ok(()), Err)?;
            let most = if self.cookie == 0 { BATCH } else { usize::MAX };
            self.cookie = self.names.read(&self.dir, self.cookie, most);
        }
        let (mount, ready, mut broken) = (&self.dir.mount, &mut self.ready, Vec::new());
        let (batch, inos) = self.names.next_batch();
        let mut names = batch.iter().map(NameAt::range);
        mount.fs.getattr_each(&inos, &mut |attr| match (names.next(), attr) {
            (Some(name), Ok(attr)) => {
                ready.push_back(Ready { name, found: Ok(Arc::new(Node::unheld(mount, attr))) });
            }
            (Some(name), Err(_)) => broken.push(name),
            (None, _) => {}
        });
        self.at_end = self.names.is_used_up() && self.names.at_end && self.names.failure.is_none();
        self.look_up(broken);
        Ok(())
    }

    /// What names lead to whose inodes the engine does not tell of, which the lookup of each says why.
    fn look_up(&mut self, broken: Vec<Range<usize>>) {
        let Mount { fs, .. } = &*self.dir.mount;
        for name in broken {
            let found = fs.lookup(self.dir.ino(), self.names.bytes.get(name.clone()).unwrap_or_default());
            let found = found.map(|attr| Arc::new(Node::adopt(&self.dir.mount, attr))).map_err(Failure::from);
            self.ready.push_back(Ready { name, found });
        }
    }
}

impl Iterator for Children {
    type Item = std::result::Result<Child, Lost>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.next_ready()?.map(|(name, node)| Child { name: name.to_vec(), node }))
    }
}

fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

/// A name that was read, and what it names.
struct NameAt {
    ino: Ino,
    at: u32,
    len: u8,
}

impl NameAt {
    fn range(&self) -> Range<usize> {
        self.at as usize..self.at as usize + usize::from(self.len)
    }
}

/// Names of a directory.
#[derive(Default)]
struct Names {
    bytes: Vec<u8>,
    /// In the order of numbers.
    all: Vec<NameAt>,
    /// How many of them were looked at.
    taken: usize,
    /// No more come after them, or can be read.
    at_end: bool,
    failure: Option<Failure>,
}

impl Names {
    fn clear(&mut self) {
        self.bytes.clear();
        self.all.clear();
        self.taken = 0;
    }

    fn is_used_up(&self) -> bool {
        self.taken == self.all.len()
    }

    fn push(&mut self, name: &[u8]) -> Range<usize> {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(name);
        at..self.bytes.len()
    }

    fn is_full(&self, most: usize) -> bool {
        self.all.len() >= most || self.bytes.len() + size_of_val(&*self.all) >= MOST_NAMES
    }

    /// Reads the names after `cookie`, at most so many; returns the cookie of the last one.
    fn read(&mut self, dir: &Node, mut cookie: u64, most: usize) -> u64 {
        self.clear();
        while !self.at_end && !self.is_full(most) {
            let mut left = NAMES;
            self.at_end = true;
            let read = dir.fs().readdir(dir.ino(), cookie, &mut |entry| {
                if left == 0 || self.is_full(most) {
                    self.at_end = false;
                    return false;
                }
                left -= 1;
                cookie = entry.cookie;
                if !is_dots(entry.name) {
                    let (at, len) = (self.push(entry.name).start as u32, entry.name.len() as u8);
                    self.all.push(NameAt { ino: entry.ino, at, len });
                }
                true
            });
            self.failure = read.err().map(Failure::from);
        }
        self.all.sort_unstable_by_key(|name| (name.ino.0, name.at));
        cookie
    }

    /// The next of them to be looked at, and their numbers.
    fn next_batch(&mut self) -> (&[NameAt], Vec<Ino>) {
        let rest = self.all.get(self.taken..).unwrap_or_default();
        let batch = rest.get(..BATCH).unwrap_or(rest);
        self.taken += batch.len();
        (batch, batch.iter().map(|name| name.ino).collect())
    }
}
