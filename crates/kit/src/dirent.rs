//! Chunks of a directory as 4.2BSD has them: 512 bytes filled with entries.
//!
//! The format is the same in each engine that has them. An entry never moves: a removed one becomes free space of the
//! entry before it (or stays, with inode 0), and a new one takes the free space at the end of another. So an offset
//! names an entry as long as it exists, which is what a walk's cookies need; BSD compacts chunks instead.

use arbor_base::device::SECTOR;
use arbor_base::layout::{U16, U32};
use arbor_base::vfs::{FileType, Ino, is_name};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of a chunk; no entry crosses its end, and no write tears it.
pub const DIRBLKSIZ: usize = SECTOR;

/// Head of a directory entry; the name follows, padded with NUL to a multiple of 4.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DirentHead {
    /// Inode, 0 if the entry is free.
    pub ino: U32,
    /// Bytes to the next entry; what the name leaves of them is free.
    pub reclen: U16,
    /// File type: the mode's type bits, shifted by 12.
    pub kind: u8,
    /// Length of the name.
    pub namlen: u8,
}

crate::fields! { DirentHead { ino: Address, reclen, kind, namlen } }

/// Length of [`DirentHead`].
pub const DIRENT_HEAD: usize = size_of::<DirentHead>();
const _: () = assert!(DIRENT_HEAD == 8);

/// Bytes that an entry with a name of `namlen` bytes needs.
pub fn dirent_len(namlen: usize) -> usize {
    (DIRENT_HEAD + namlen).next_multiple_of(4)
}

/// An entry in use, or free (inode 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirent<'a> {
    /// Its offset in the chunk.
    pub at: usize,
    /// The inode that it names.
    pub ino: Ino,
    /// Bytes to the next one.
    pub reclen: usize,
    /// File type: the mode's type bits, shifted by 12.
    pub kind: u8,
    /// The name; empty if it is free.
    pub name: &'a [u8],
}

impl Dirent<'_> {
    /// Bytes that the entry itself needs.
    pub fn used(&self) -> usize {
        if self.ino.0 == 0 { 0 } else { dirent_len(self.name.len()) }
    }
}

/// The entry at `at` of a chunk, or what is wrong with it.
pub fn entry(chunk: &[u8], at: usize) -> Result<Dirent<'_>, &'static str> {
    let head = chunk.get(at..at + DIRENT_HEAD).and_then(|b| DirentHead::ref_from_bytes(b).ok());
    let head = head.ok_or("an entry that begins after the chunk's end")?;
    let (reclen, namlen) = (usize::from(head.reclen.get()), usize::from(head.namlen));
    if reclen < DIRENT_HEAD || !reclen.is_multiple_of(4) || at + reclen > DIRBLKSIZ.min(chunk.len()) {
        return Err("an entry whose length is impossible");
    }
    let ino = Ino(head.ino.get().into());
    let name = chunk.get(at + DIRENT_HEAD..at + DIRENT_HEAD + namlen).unwrap_or(&[]);
    if ino.0 != 0 && (dirent_len(namlen) > reclen || name.len() != namlen) {
        return Err("a name that is longer than its entry");
    }
    Ok(Dirent { at, ino, reclen, kind: head.kind, name: if ino.0 == 0 { &[] } else { name } })
}

/// All entries of a chunk.
pub fn entries(chunk: &[u8]) -> Result<Vec<Dirent<'_>>, &'static str> {
    let (mut at, mut all) = (0, Vec::with_capacity(16));
    while at < DIRBLKSIZ {
        let e = entry(chunk, at)?;
        at += e.reclen;
        all.push(e);
    }
    Ok(all)
}

/// What is wrong with a block of chunks: where, what was found, and what was expected.
pub type Wrong = (usize, String, &'static str);

/// Checks a block of chunks; the `first` of a directory begins with its dots.
pub fn check_chunks(bytes: &[u8], first: bool) -> Result<(), Wrong> {
    for (i, chunk) in bytes.chunks_exact(DIRBLKSIZ).enumerate() {
        let bad = |found: String, expected| Err((i * DIRBLKSIZ, found, expected));
        let all = match entries(chunk) {
            Ok(all) => all,
            Err(why) => return bad(why.to_string(), "a chunk filled with entries"),
        };
        let dots = if first && i == 0 { 2 } else { 0 };
        if dots == 2 && (all.first().map(|e| e.name) != Some(b".") || all.get(1).map(|e| e.name) != Some(b"..")) {
            return bad("other entries".to_string(), ". and .. first");
        }
        if let Some(e) = all.iter().skip(dots).find(|e| e.ino.0 != 0 && !is_name(e.name)) {
            return bad(format!("{:?}", String::from_utf8_lossy(e.name)), "a name");
        }
    }
    Ok(())
}

/// Encodes an entry; `out` must have room for all of `reclen`.
pub fn put_entry(out: &mut [u8], ino: Ino, reclen: usize, kind: u8, name: &[u8]) {
    let head =
        DirentHead { ino: (ino.0 as u32).into(), reclen: (reclen as u16).into(), kind, namlen: name.len() as u8 };
    let need = dirent_len(name.len());
    if let Some(place) = out.get_mut(..need) {
        place.fill(0);
        place[..DIRENT_HEAD].copy_from_slice(head.as_bytes());
        place[DIRENT_HEAD..DIRENT_HEAD + name.len()].copy_from_slice(name);
    }
}

/// So many bytes of empty chunks.
pub fn empty_chunks(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for chunk in bytes.chunks_exact_mut(DIRBLKSIZ) {
        put_entry(chunk, Ino(0), DIRBLKSIZ, 0, b"");
    }
    bytes
}

/// The first `len` bytes of a new directory.
pub fn first_chunks(len: usize, ino: Ino, parent: Ino) -> Vec<u8> {
    let mut bytes = empty_chunks(len);
    let kind = (FileType::Dir.mode() >> 12) as u8;
    put_entry(&mut bytes, ino, dirent_len(1), kind, b".");
    put_entry(&mut bytes[DOTDOT_AT..], parent, DIRBLKSIZ - DOTDOT_AT, kind, b"..");
    bytes
}

/// Offset of the entry `..` in a directory.
pub const DOTDOT_AT: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_directory_has_its_dots() {
        let bytes = first_chunks(2048, Ino(7), Ino(2));
        let all = entries(&bytes[..DIRBLKSIZ]).unwrap();
        let names: Vec<_> = all.iter().map(|e| (e.at, e.ino.0, e.reclen, e.name)).collect();
        assert_eq!(names, [(0, 7, 12, &b"."[..]), (12, 2, 500, b"..")]);
        assert!(bytes.chunks(DIRBLKSIZ).skip(1).all(|c| entries(c).unwrap()[0].reclen == DIRBLKSIZ));
    }

    #[test]
    fn broken_chunks_are_refused() {
        let good = empty_chunks(DIRBLKSIZ);
        for (at, byte) in [(4, 7), (4, 6), (5, 3), (4, 0)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert!(entries(&bad).is_err() || byte == 0, "{at} {byte}");
        }
        let mut long = good;
        put_entry(&mut long, Ino(9), 12, 8, b"longer");
        assert_eq!(entries(&long), Err("a name that is longer than its entry"));
        assert!(entries(&[]).is_err());
    }
}
