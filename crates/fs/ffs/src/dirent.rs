//! Chunks of a directory: 512 bytes filled with entries.
//!
//! An entry never moves: what is removed becomes free space of the entry before it (or stays, with inode
//! 0), and a new one takes the free space at the end of another. So an offset names an entry as long as it
//! exists, which is what a walk's cookies need; BSD compacts chunks instead.

use crate::format::*;
use arbor_base::vfs::{FileType, Ino};
use zerocopy::{FromBytes, IntoBytes};

/// An entry in use, or free (inode 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dirent<'a> {
    /// Where it begins in the chunk.
    pub at: usize,
    pub ino: Ino,
    /// Bytes to the next one.
    pub reclen: usize,
    pub kind: u8,
    pub name: &'a [u8],
}

impl Dirent<'_> {
    /// Bytes that the entry itself needs.
    pub fn used(&self) -> usize {
        if self.ino.0 == 0 { 0 } else { dirent_len(self.name.len()) }
    }
}

/// Whether an entry may have this name; `.` and `..` only in their places.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/') && !name.contains(&0)
}

/// The entry at `at` of a chunk, and what is wrong with it otherwise.
pub(crate) fn entry(chunk: &[u8], at: usize) -> Result<Dirent<'_>, &'static str> {
    let head = chunk.get(at..at + DIRENT_HEAD).and_then(|b| DirentHead::ref_from_bytes(b).ok());
    let head = head.ok_or("an entry that begins behind the chunk's end")?;
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
pub(crate) fn entries(chunk: &[u8]) -> Result<Vec<Dirent<'_>>, &'static str> {
    let (mut at, mut all) = (0, Vec::with_capacity(16));
    while at < DIRBLKSIZ {
        let e = entry(chunk, at)?;
        at += e.reclen;
        all.push(e);
    }
    Ok(all)
}

/// What the bytes of an entry are; `out` has room for all of `reclen`.
pub(crate) fn put_entry(out: &mut [u8], ino: Ino, reclen: usize, kind: u8, name: &[u8]) {
    let head =
        DirentHead { ino: (ino.0 as u32).into(), reclen: (reclen as u16).into(), kind, namlen: name.len() as u8 };
    let need = dirent_len(name.len());
    if let Some(place) = out.get_mut(..need) {
        place.fill(0);
        place[..DIRENT_HEAD].copy_from_slice(head.as_bytes());
        place[DIRENT_HEAD..DIRENT_HEAD + name.len()].copy_from_slice(name);
    }
}

/// A fragment of empty chunks.
pub(crate) fn empty_chunks(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for chunk in bytes.chunks_exact_mut(DIRBLKSIZ) {
        put_entry(chunk, Ino(0), DIRBLKSIZ, 0, b"");
    }
    bytes
}

/// The first fragment of a new directory.
pub(crate) fn first_chunks(geom: &Geom, ino: Ino, parent: Ino) -> Vec<u8> {
    let mut bytes = empty_chunks(geom.frag_size());
    let kind = (FileType::Dir.mode() >> 12) as u8;
    put_entry(&mut bytes, ino, dirent_len(1), kind, b".");
    put_entry(&mut bytes[DOTDOT_AT..], parent, DIRBLKSIZ - DOTDOT_AT, kind, b"..");
    bytes
}

/// Where the entry `..` lies in a directory.
pub(crate) const DOTDOT_AT: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_directory_has_its_dots() {
        let geom =
            Geom { block_shift: 14, frag_shift: 11, cg_count: 1, cg_frags: 800, cg_inodes: 128, frags: 800, fsid: 0 };
        let bytes = first_chunks(&geom, Ino(7), Ino(2));
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
