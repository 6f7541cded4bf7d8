//! Holds what a mount shows against a state of the model.

use crate::compare::{expected, pages_to_read, show};
use crate::data::{Data, PAGE};
use crate::exec::Facts;
use crate::model::State;
use arbor_base::vfs::{Errno, FileSystem, Ino};

/// The inode of a path, with a reference that the caller gives back.
pub(super) fn find(fs: &dyn FileSystem, path: &[u8]) -> Result<Ino, Errno> {
    let mut here = fs.root();
    for (n, name) in path.split(|b| *b == b'/').skip(1).enumerate() {
        let found = fs.lookup(here, name).map_err(|e| e.errno());
        if n > 0 {
            fs.forget(here, 1);
        }
        here = found?.ino;
    }
    Ok(here)
}

/// Reads the pages of a file that are worth it; an error of `excused` ends that in peace.
pub(super) fn read_back(
    fs: &dyn FileSystem,
    ino: Ino,
    data: &Data,
    other: Option<&Data>,
    excused: &[Errno],
) -> Result<(), String> {
    for page in pages_to_read(&[], data.size(), data.pages().keys().copied()) {
        let (mut is, mut should) = ([0xee; PAGE as usize], [0xee; PAGE as usize]);
        let m = data.read(page * PAGE, &mut should);
        match fs.read(ino, page * PAGE, &mut is) {
            Ok(n) if n == m && is[..n] == should[..n] => {}
            Ok(n) if n == m && other.is_some_and(|other| mixes(&is[..n], &should[..n], other, page)) => {}
            Ok(n) => return Err(format!("read at {}: {n} bytes, {m} expected, or others", page * PAGE)),
            Err(e) if excused.contains(&e.errno()) => return Ok(()),
            Err(e) => return Err(format!("read at {}: {e}", page * PAGE)),
        }
    }
    Ok(())
}

/// Whether each byte is that of the one state or of the other.
fn mixes(is: &[u8], should: &[u8], other: &Data, page: u64) -> bool {
    let mut or = vec![0; is.len()];
    other.read(page * PAGE, &mut or);
    is.iter().zip(should).zip(&or).all(|((is, should), or)| is == should || is == or)
}

/// Holds every name, attribute and byte against `state`, where a byte may also be as in the `other` one; with `damage`, what
/// fails with `EUCLEAN` is passed over.
pub(super) fn tolerable(fs: &dyn FileSystem, state: &State, other: Option<&State>, damage: bool) -> Result<(), String> {
    let excused: &[Errno] = if damage { &[Errno::EUCLEAN] } else { &[] };
    let tree = expected(state);
    for (path, meta) in &tree.metas {
        let wrong = |what: &str, e: Errno| match excused.contains(&e) {
            true => Ok(()),
            false => Err(format!("{}: {what} gives {e:?}", show(path))),
        };
        let differs = |what: &str| Err(format!("{}: {what} differ", show(path)));
        let ino = match find(fs, path) {
            Ok(ino) => ino,
            Err(e) => {
                wrong("lookup", e)?;
                continue;
            }
        };
        let file = tree.files.get(path);
        match fs.getattr(ino) {
            Ok(a) if Facts::of(&a) == (Facts { size: file.map_or(meta.facts.size, |f| f.0), ..meta.facts }) => {}
            Ok(_) => return differs("attributes"),
            Err(e) => wrong("getattr", e.errno())?,
        }
        if !meta.target.is_empty() {
            match fs.readlink(ino) {
                Ok(t) if t == meta.target => {}
                Ok(_) => return differs("targets"),
                Err(e) => wrong("readlink", e.errno())?,
            }
        }
        for (key, value) in &meta.xattrs {
            match fs.getxattr(ino, key) {
                Ok(v) if v == *value => {}
                Ok(_) => return differs("extended attributes"),
                Err(e) => wrong("getxattr", e.errno())?,
            }
        }
        if let Some(data) = file.and_then(|f| state.node(f.1).ok()?.data()) {
            let other = other.and_then(|other| other.node(file?.1).ok()?.data());
            read_back(fs, ino, data, other, excused).map_err(|e| format!("{}: {e}", show(path)))?;
        }
        let mut absent = None;
        let listed = fs.readdir(ino, 0, &mut |e| {
            let child = [&path[..], e.name].join(&b'/');
            if e.name != b"." && e.name != b".." && !tree.metas.contains_key(&child) {
                absent = Some(show(&child));
            }
            true
        });
        if let Some(name) = absent {
            return Err(format!("{name} should not be there"));
        }
        match listed {
            Err(e) if e.errno() != Errno::ENOTDIR => wrong("readdir", e.errno())?,
            _ => {}
        }
        if !path.is_empty() {
            fs.forget(ino, 1);
        }
    }
    Ok(())
}
