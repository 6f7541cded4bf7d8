//! Structures as JSON.

use crate::dirent::{DIRBLKSIZ, entries};
use crate::fields::Fielded;
pub use crate::fields::hex;
use crate::xattr::Xattrs;
use arbor_base::vfs::{Ino, Result};
use serde_json::{Value, json};

/// Bytes as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A block as hexadecimal digits, in lines of 32 bytes.
pub fn lines(bytes: &[u8]) -> Vec<String> {
    bytes.chunks(32).map(hex).collect()
}

/// The fields of a structure by name, and beside them or in their place what is in `more`.
pub fn shown(s: &impl Fielded, more: Value) -> Value {
    let mut all = s.values();
    if let Value::Object(more) = more {
        all.extend(more);
    }
    all.into()
}

/// What is left without these fields.
pub fn without(mut shown: Value, names: &[&str]) -> Value {
    if let Some(all) = shown.as_object_mut() {
        all.retain(|name, _| !names.contains(&&name[..]));
    }
    shown
}

/// A list of extended attributes.
pub fn attributes(list: &Xattrs) -> Value {
    list.iter().map(|(n, v)| json!({ "name": text(n), "len": v.len(), "value": hex(v) })).collect()
}

/// A directory of so many pages; `page` reads one of `len` bytes and says at which byte of the device it lies.
pub fn directory(
    (ino, size): (Ino, u64),
    pages: u64,
    len: u64,
    mut page: impl FnMut(u64) -> Result<(Vec<u8>, u64)>,
) -> Result<Value> {
    let mut chunks = Vec::new();
    for n in 0..pages {
        let (bytes, at) = page(n)?;
        chunks.extend(dir_chunks(n.saturating_mul(len), at, &bytes));
    }
    Ok(json!({ "ino": ino.0, "size": size, "chunks": chunks }))
}

/// The chunks of a piece of a directory ([`dirent`](crate::dirent)), which begins at byte `offset` of the directory and
/// `at` of the device.
pub fn dir_chunks(offset: u64, at: u64, bytes: &[u8]) -> impl Iterator<Item = Value> {
    (0..).step_by(DIRBLKSIZ).zip(bytes.chunks_exact(DIRBLKSIZ)).map(move |(n, chunk)| {
        let mut out = json!({ "offset": offset + n, "at": at + n });
        match entries(chunk) {
            Err(why) => out["damage"] = why.into(),
            Ok(all) => {
                let each = all.iter().map(
                    |e| json!({ "at": e.at, "ino": e.ino.0, "reclen": e.reclen, "kind": e.kind, "name": text(e.name) }),
                );
                out["entries"] = each.collect();
            }
        }
        out
    })
}
