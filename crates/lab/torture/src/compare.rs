//! Compares a whole mounted tree with the model: names by listing and by lookup, attributes,
//! targets, extended attributes, contents, holes.

use crate::data::{Data, PAGE};
use crate::exec::{Facts, read_names};
use crate::model::{Body, ROOT, State};
use arbor_base::vfs::{Attr, Errno, FileSystem, FileType, Ino, Seek};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// What is known of one path besides its contents.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Meta {
    /// Attributes; the size of a regular file is kept apart.
    pub facts: Facts,
    /// Which inode: numbered by the first path that names it, so that hard links show.
    pub inode: usize,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// A tree as seen from outside: everything but the contents of files.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// Metadata by path; the root has the empty one.
    pub metas: BTreeMap<Vec<u8>, Meta>,
    /// Size and inode number of each regular file, by path.
    pub files: BTreeMap<Vec<u8>, (u64, u64)>,
    inodes: BTreeMap<u64, usize>,
}

impl Tree {
    /// A number for the metadata: equal trees have equal ones.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.metas.hash(&mut hasher);
        hasher.finish()
    }

    fn add(&mut self, path: &[u8], ino: u64, mut facts: Facts, target: Vec<u8>, xattrs: BTreeMap<Vec<u8>, Vec<u8>>) {
        let count = self.inodes.len();
        let inode = *self.inodes.entry(ino).or_insert(count);
        if FileType::from_mode(facts.mode) == Some(FileType::File) {
            self.files.insert(path.to_vec(), (facts.size, ino));
            facts.size = 0;
        }
        self.metas.insert(path.to_vec(), Meta { facts, inode, target, xattrs });
    }

    /// The first difference to `other`, which should be there.
    pub fn difference(&self, other: &Tree) -> Option<String> {
        let paths: BTreeSet<&Vec<u8>> = self.metas.keys().chain(other.metas.keys()).collect();
        paths.into_iter().find_map(|p| match (self.metas.get(p), other.metas.get(p)) {
            (Some(_), None) => Some(format!("{} should not be there", show(p))),
            (None, Some(_)) => Some(format!("{} is missing", show(p))),
            (Some(a), Some(b)) if a != b => Some(format!("{}: {}", show(p), meta_difference(a, b))),
            _ => None,
        })
    }
}

fn meta_difference(is: &Meta, should: &Meta) -> String {
    if is.facts != should.facts {
        return format!("is {:?}, should be {:?}", is.facts, should.facts);
    }
    if is.inode != should.inode {
        return "is linked to another file than it should be".to_string();
    }
    if is.target != should.target {
        return format!("points to {}, should point to {}", show(&is.target), show(&should.target));
    }
    let keys = |m: &Meta| m.xattrs.iter().map(|(k, v)| format!("{}[{}]", show(k), v.len())).collect::<Vec<_>>();
    format!("has extended attributes {:?}, should have {:?} (or values differ)", keys(is), keys(should))
}

/// A path for people; long ones lose their middle.
pub fn show(bytes: &[u8]) -> String {
    let text = bytes.escape_ascii().to_string();
    match text.len() {
        0 => "/".to_string(),
        1..=90 => text,
        n => format!("{}...{}", &text[..40], &text[n - 40..]),
    }
}

pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    [dir, name].join(&b'/')
}

/// The tree that `state` describes.
pub fn expected(state: &State) -> Tree {
    let mut tree = Tree::default();
    let mut todo = vec![(Vec::new(), ROOT)];
    while let Some((path, ino)) = todo.pop() {
        let Ok(node) = state.node(ino) else { continue };
        let (mut size, mut target) = (0, Vec::new());
        match &node.body {
            Body::File(d) => size = d.size(),
            Body::Symlink(t) => (size, target) = (t.len() as u64, t.clone()),
            Body::Dir(d) => todo.extend(d.names.iter().rev().map(|(n, e)| (join(&path, n), e.ino))),
            Body::Special => {}
        }
        let facts = Facts { mode: node.mode, nlink: node.nlink, uid: node.uid, gid: node.gid, rdev: node.rdev, size };
        let xattrs = node.xattrs.iter().map(|(k, v)| (k.clone(), v.to_vec())).collect();
        tree.add(&path, ino, facts, target, xattrs);
    }
    tree
}

/// Reads the tree of a mounted file system by both routes, which must agree.
pub fn observe(fs: &dyn FileSystem) -> Result<Tree, String> {
    let mut tree = Tree::default();
    let root = fs.getattr(fs.root()).map_err(|e| format!("getattr of the root: {e}"))?;
    let mut todo = vec![(Vec::new(), root, fs.root())];
    while let Some((path, attr, parent)) = todo.pop() {
        observe_one(fs, &mut tree, &path, &attr)?;
        if attr.file_type() == FileType::Dir {
            let names = observe_dir(fs, attr.ino, parent).map_err(|e| format!("{}: {e}", show(&path)))?;
            todo.extend(names.into_iter().rev().map(|(n, a)| (join(&path, &n), a, attr.ino)));
        }
        if todo.len() > 1 << 20 || path.len() > 1 << 16 {
            return Err("the tree has no end".to_string());
        }
    }
    Ok(tree)
}

fn observe_one(fs: &dyn FileSystem, tree: &mut Tree, path: &[u8], attr: &Attr) -> Result<(), String> {
    let fail = |what: &str, e: arbor_base::vfs::Error| format!("{}: {what}: {e}", show(path));
    let target = match attr.file_type() {
        FileType::Symlink => fs.readlink(attr.ino).map_err(|e| fail("readlink", e))?,
        _ => Vec::new(),
    };
    let mut xattrs = BTreeMap::new();
    for key in fs.listxattr(attr.ino).map_err(|e| fail("listxattr", e))? {
        let value = fs.getxattr(attr.ino, &key).map_err(|e| fail("getxattr of a listed name", e))?;
        if xattrs.insert(key, value).is_some() {
            return Err(format!("{}: listxattr names one attribute twice", show(path)));
        }
    }
    tree.add(path, attr.ino.0, Facts::of(attr), target, xattrs);
    Ok(())
}

fn observe_dir(fs: &dyn FileSystem, dir: Ino, parent: Ino) -> Result<BTreeMap<Vec<u8>, Attr>, String> {
    let names = listed(fs, dir)?;
    let plus = listed_plus(fs, dir, parent)?;
    if names.keys().ne(plus.keys()) {
        return Err("readdir and readdir_plus name different entries".to_string());
    }
    for (name, attr) in &plus {
        let fail = |what: String| format!("{}: {what}", show(name));
        let found = fs.lookup(dir, name).map_err(|e| fail(format!("lookup of a listed name: {e}")))?;
        fs.forget(found.ino, 1);
        let again = fs.getattr(found.ino).map_err(|e| fail(format!("getattr: {e}")))?;
        if settled(found) != settled(*attr) || settled(again) != settled(*attr) {
            return Err(fail(format!("readdir_plus says {attr:?}, lookup {found:?}, getattr {again:?}")));
        }
        if names[name] != attr.file_type() {
            return Err(fail(format!("readdir says {:?}, getattr {:?}", names[name], attr.file_type())));
        }
    }
    match fs.lookup(dir, b"a name that no sequence makes").map(|a| fs.forget(a.ino, 1)) {
        Err(e) if e.errno() == Errno::ENOENT => Ok(plus),
        other => Err(format!("lookup of an absent name gives {other:?}")),
    }
}

/// Attributes without the space in use, which may move when the engine writes back meanwhile.
fn settled(attr: Attr) -> Attr {
    Attr { blocks: 0, unsettled: false, ..attr }
}

fn listed(fs: &dyn FileSystem, dir: Ino) -> Result<BTreeMap<Vec<u8>, FileType>, String> {
    let (mut all, mut cookie) = (Vec::new(), 0);
    loop {
        let (names, next) = read_names(fs, dir, cookie, 61).map_err(|e| format!("readdir: {e}"))?;
        if names.is_empty() {
            break;
        }
        all.extend(names);
        cookie = next;
        if all.len() > 1 << 20 {
            return Err("readdir has no end".to_string());
        }
    }
    let dots: Vec<&[u8]> = all.iter().take(2).map(|n| &n.0[..]).collect();
    if dots != [b".".as_slice(), b".."] {
        return Err("readdir does not begin with . and ..".to_string());
    }
    let mut names = BTreeMap::new();
    for (name, kind) in all.drain(2..) {
        if names.insert(name.clone(), kind).is_some() {
            return Err(format!("readdir names {} twice", show(&name)));
        }
    }
    Ok(names)
}

fn listed_plus(fs: &dyn FileSystem, dir: Ino, parent: Ino) -> Result<BTreeMap<Vec<u8>, Attr>, String> {
    let mut names = BTreeMap::new();
    let mut wrong = None;
    let read = fs.readdir_plus(dir, 0, &mut |e, attr| {
        match (attr, e.name) {
            (None, b".") if e.ino == dir => {}
            (None, b"..") if e.ino == parent => {}
            (Some(a), name) if a.ino == e.ino && a.file_type() == e.file_type => {
                note_twice(names.insert(name.to_vec(), *a), name, &mut wrong);
            }
            (a, name) => wrong = Some(format!("readdir_plus offers {} as {e:?} with {a:?}", show(name))),
        }
        true
    });
    names.values().for_each(|a: &Attr| fs.forget(a.ino, 1));
    read.map_err(|e| format!("readdir_plus: {e}"))?;
    wrong.map_or(Ok(names), Err)
}

fn note_twice(old: Option<Attr>, name: &[u8], wrong: &mut Option<String>) {
    if old.is_some() {
        *wrong = Some(format!("readdir_plus names {} twice", show(name)));
    }
}

/// Compares everything with `state`; the error is the first difference.
pub fn tree(fs: &dyn FileSystem, state: &State) -> Result<(), String> {
    let (is, should) = (observe(fs)?, expected(state));
    if let Some(difference) = is.difference(&should) {
        return Err(difference);
    }
    for (path, (_, ino)) in &is.files {
        let model = should.files.get(path).and_then(|(_, ino)| state.node(*ino).ok()?.data());
        let model = model.ok_or_else(|| format!("{} is no file in the model", show(path)))?;
        file(fs, Ino(*ino), model).map_err(|e| format!("{}: {e}", show(path)))?;
    }
    statfs(fs)
}

/// Compares size, contents and holes of one file.
pub fn file(fs: &dyn FileSystem, ino: Ino, model: &Data) -> Result<(), String> {
    let size = fs.getattr(ino).map_err(|e| format!("getattr: {e}"))?.size;
    if size != model.size() {
        return Err(format!("has {size} bytes, should have {}", model.size()));
    }
    let segments = segments(fs, ino, size)?;
    let mut hole = 0;
    for (start, end) in segments.iter().copied().chain([(u64::MAX, u64::MAX)]) {
        match model.next_nonzero(hole) {
            Some(at) if at < start => return Err(format!("byte {at} is data but reported as a hole")),
            _ => hole = end,
        }
    }
    if size <= 1 << 20 {
        return compare_range(fs, ino, model, 0, size as usize + 1);
    }
    for page in pages_to_read(&segments, size, model.pages().keys().copied()) {
        compare_range(fs, ino, model, page * PAGE, PAGE as usize)?;
    }
    Ok(())
}

fn compare_range(fs: &dyn FileSystem, ino: Ino, model: &Data, offset: u64, len: usize) -> Result<(), String> {
    let (mut is, mut should) = (vec![0xee; len], vec![0xee; len]);
    let n = fs.read(ino, offset, &mut is).map_err(|e| format!("read at {offset}: {e}"))?;
    let m = model.read(offset, &mut should);
    if n != m {
        return Err(format!("read of {len} bytes at {offset} gives {n}, should give {m}"));
    }
    match (0..n).find(|i| is[*i] != should[*i]) {
        Some(i) => Err(format!("byte {} is {:#x}, should be {:#x}", offset + i as u64, is[i], should[i])),
        None => Ok(()),
    }
}

/// The pieces that are reported as data, in order. An engine may report a hole as data.
pub fn segments(fs: &dyn FileSystem, ino: Ino, size: u64) -> Result<Vec<(u64, u64)>, String> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < size {
        let start = match fs.seek(ino, at, Seek::Data) {
            Ok(start) => start,
            Err(e) if e.errno() == Errno::ENXIO => break,
            Err(e) => return Err(format!("seek for data at {at}: {e}")),
        };
        let end = fs.seek(ino, start, Seek::Hole).map_err(|e| format!("seek for a hole at {start}: {e}"))?;
        if start < at || start >= size || end <= start || end > size {
            return Err(format!("seek from {at} finds data at {start} and a hole at {end}, size {size}"));
        }
        found.push((start, end));
        at = end;
    }
    match fs.seek(ino, size, Seek::Data) {
        Err(e) if e.errno() == Errno::ENXIO => Ok(found),
        other => Err(format!("seek at the end gives {other:?}, should give ENXIO")),
    }
}

/// Pages worth reading: those with `known` data and their neighbours, both ends, and the data the
/// engine reports, up to a bound.
pub fn pages_to_read(segments: &[(u64, u64)], size: u64, known: impl Iterator<Item = u64>) -> BTreeSet<u64> {
    let mut pages = BTreeSet::from([0, size.saturating_sub(1) / PAGE]);
    pages.extend(known.flat_map(|p| [p.saturating_sub(1), p, p + 1]));
    for (start, end) in segments {
        let first = start / PAGE;
        pages.extend(first..end.div_ceil(PAGE).min(first + 1024));
    }
    pages.retain(|p| *p < size.div_ceil(PAGE));
    pages
}

/// Checks that the counts of `statfs` make sense.
pub fn statfs(fs: &dyn FileSystem) -> Result<(), String> {
    let s = fs.statfs().map_err(|e| format!("statfs: {e}"))?;
    let sane = s.bfree <= s.blocks && s.bavail <= s.bfree && s.ffree <= s.files && s.frsize >= 512 && s.namelen >= 255;
    if sane { Ok(()) } else { Err(format!("statfs makes no sense: {s:?}")) }
}
