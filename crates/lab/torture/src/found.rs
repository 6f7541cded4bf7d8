//! Takes down what a file system holds as a state of the model.

use crate::compare::{join, segments, show};
use crate::data::{Data, PAGE};
use crate::model::{Body, Dir, Name, Node, ROOT, State};
use arbor_base::vfs::{Attr, Error, FileSystem, FileType, Ino};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The state that `fs` is in, whose link counts have to be right; `None` if a directory has two names, which the model
/// cannot have (an engine may promise no more of a rename that the power cut).
pub(crate) fn state(fs: &dyn FileSystem) -> Result<Option<State>, String> {
    let root = fs.getattr(fs.root()).map_err(|e| format!("getattr of the root: {e}"))?;
    let mut state = State::new((root.uid, root.gid), root.mtime);
    let mut numbers = BTreeMap::from([(root.ino, ROOT)]);
    let mut todo = vec![(Vec::new(), root, ROOT)];
    let mut links = BTreeMap::new();
    while let Some((path, attr, parent)) = todo.pop() {
        let number = numbers[&attr.ino];
        let mut body = body(fs, &attr).map_err(|e| format!("{}: {e}", show(&path)))?;
        if attr.file_type() == FileType::Dir {
            let mut names = BTreeMap::new();
            for (name, attr) in children(fs, attr.ino).map_err(|e| format!("{}: {e}", show(&path)))? {
                let known = numbers.get(&attr.ino).copied();
                if known.is_some() && attr.file_type() == FileType::Dir {
                    return Ok(None);
                }
                let (stamp, ino) = (state.next, known.unwrap_or(state.next + 1));
                state.next += 2;
                links.entry(ino).or_insert((join(&path, &name), attr.nlink, 0)).2 += 1;
                names.insert(Arc::from(&name[..]), Name { ino, stamp });
                if known.is_none() {
                    numbers.insert(attr.ino, ino);
                    todo.push((join(&path, &name), attr, number));
                }
            }
            body = Body::Dir(Dir::from_parts(parent, names));
        }
        let node = node(fs, &attr, body).map_err(|e| format!("{}: {e}", show(&path)))?;
        state.nodes.insert(number, Arc::new(node));
    }
    counted(&state, &links)?;
    Ok(Some(state))
}

/// Checks link counts: path, count and number of names of each inode.
fn counted(state: &State, links: &BTreeMap<u64, (Vec<u8>, u32, u32)>) -> Result<(), String> {
    for (ino, (path, count, names)) in links {
        let below = state.node(*ino).ok().and_then(Node::dir).map(|dir| {
            let subdir = |name: &&Name| state.node(name.ino).is_ok_and(|n| n.dir().is_some());
            2 + dir.names.values().filter(subdir).count() as u32
        });
        let should = below.unwrap_or(*names);
        if *count != should {
            return Err(format!("{} has {count} links, should have {should}", show(path)));
        }
    }
    Ok(())
}

/// What a file of this kind holds; of a directory nothing yet.
fn body(fs: &dyn FileSystem, attr: &Attr) -> Result<Body, String> {
    Ok(match attr.file_type() {
        FileType::File => Body::File(contents(fs, attr.ino, attr.size)?),
        FileType::Symlink => Body::Symlink(fs.readlink(attr.ino).map_err(|e| format!("readlink: {e}"))?),
        FileType::Dir => Body::Dir(Dir::default()),
        _ => Body::Special,
    })
}

fn node(fs: &dyn FileSystem, attr: &Attr, body: Body) -> Result<Node, String> {
    let mut xattrs = BTreeMap::new();
    for key in fs.listxattr(attr.ino).map_err(|e| format!("listxattr: {e}"))? {
        let value = fs.getxattr(attr.ino, &key).map_err(|e| format!("getxattr of a listed name: {e}"))?;
        xattrs.insert(key, Arc::new(value));
    }
    let Attr { mode, nlink, uid, gid, rdev, atime, mtime, ctime, btime, .. } = *attr;
    Ok(Node { mode, nlink, uid, gid, rdev, times: [atime, mtime, ctime, btime], unnamed: false, xattrs, body })
}

fn children(fs: &dyn FileSystem, dir: Ino) -> Result<Vec<(Vec<u8>, Attr)>, String> {
    let mut names = Vec::new();
    let read = fs.readdir(dir, 0, &mut |e| {
        names.push(e.name.to_vec());
        true
    });
    read.map_err(|e| format!("readdir: {e}"))?;
    let entry = |name: Vec<u8>| {
        let attr = fs.lookup(dir, &name)?;
        fs.forget(attr.ino, 1);
        Ok((name, attr))
    };
    let names = names.into_iter().filter(|n| n != b"." && n != b"..");
    names.map(entry).collect::<Result<_, Error>>().map_err(|e| format!("lookup of a listed name: {e}"))
}

fn contents(fs: &dyn FileSystem, ino: Ino, size: u64) -> Result<Data, String> {
    let mut data = Data::default();
    for (start, end) in segments(fs, ino, size)? {
        for page in start / PAGE..end.div_ceil(PAGE) {
            let mut buf = vec![0; PAGE.min(size - page * PAGE) as usize];
            let n = fs.read(ino, page * PAGE, &mut buf).map_err(|e| format!("read at {}: {e}", page * PAGE))?;
            data.write(page * PAGE, &buf[..n]);
        }
    }
    data.truncate(size);
    Ok(data)
}
