//! Mending chunks of directories ([`dirent`](super::dirent)), for checkers.

use super::dirent::{DIRBLKSIZ, DOTDOT_AT, DirentHead, dirent_len, entries, entry, put_entry};
use arbor_base::vfs::{Ino, mode};

const DIR_KIND: u8 = (mode::IFDIR >> 12) as u8;
const KIND_AT: usize = std::mem::offset_of!(DirentHead, kind);
const RECLEN_AT: usize = std::mem::offset_of!(DirentHead, reclen);

/// Sets the distance from an entry to the next one, in bytes.
pub fn set_reclen(chunk: &mut [u8], at: usize, reclen: usize) {
    if let Some(place) = chunk.get_mut(at + RECLEN_AT..at + RECLEN_AT + 2) {
        place.copy_from_slice(&(reclen as u16).to_le_bytes());
    }
}

/// Sets the inode of the entry at `at`; 0 makes it free.
pub fn set_ino(bytes: &mut [u8], at: usize, ino: Ino) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&(ino.0 as u32).to_le_bytes());
    }
}

/// Sets the file type of the entry at `at`.
pub fn set_kind(bytes: &mut [u8], at: usize, kind: u8) {
    bytes.iter_mut().skip(at + KIND_AT).take(1).for_each(|b| *b = kind);
}

/// Cuts a chunk after the entry at `last`: the rest becomes free space of that entry. Without one the chunk is empty.
pub fn cut_chunk(chunk: &mut [u8], last: Option<usize>) {
    match last {
        Some(at) => set_reclen(chunk, at, DIRBLKSIZ - at),
        None => put_entry(chunk, Ino(0), DIRBLKSIZ, 0, b""),
    }
}

/// The parent that a directory names in its first chunk, or what is wrong with its first two entries.
pub fn dots(dir: Ino, chunk: &[u8]) -> Result<Ino, &'static str> {
    let (dot, dotdot) = (entry(chunk, 0)?, entry(chunk, DOTDOT_AT)?);
    if dot.reclen != DOTDOT_AT || dot.name != b"." || dot.kind != DIR_KIND {
        return Err("it does not begin with the entry \".\"");
    }
    if dot.ino != dir {
        return Err("its entry \".\" names another inode");
    }
    if dotdot.name != b".." || dotdot.kind != DIR_KIND {
        return Err("its second entry is not \"..\"");
    }
    Ok(dotdot.ino)
}

/// Rewrites the first two entries; those that begin after them stay. Returns the parent that the directory names then:
/// the one it named, or else `root`.
pub fn put_dots(dir: Ino, root: Ino, chunk: &mut [u8]) -> Ino {
    let old = entry(chunk, DOTDOT_AT).ok().filter(|e| e.name == b"..").map(|e| e.ino);
    let parent = old.unwrap_or(root);
    let mut next = 0;
    while next < DOTDOT_AT + dirent_len(2) {
        let Ok(e) = entry(chunk, next) else { break };
        next += e.reclen;
    }
    // After a broken entry others may follow at a known place.
    if next < DOTDOT_AT + dirent_len(2) {
        next = entry(chunk, DOTDOT_AT).map_or(DIRBLKSIZ, |e| DOTDOT_AT + e.reclen);
    }
    if next < DOTDOT_AT + dirent_len(2) {
        next = DIRBLKSIZ;
    }
    put_entry(chunk, dir, DOTDOT_AT, DIR_KIND, b".");
    if let Some(rest) = chunk.get_mut(DOTDOT_AT..) {
        put_entry(rest, parent, next - DOTDOT_AT, DIR_KIND, b"..");
    }
    parent
}

/// Puts an entry into free space of a chunk, if there is enough after some entry.
pub fn insert_into(chunk: &mut [u8], name: &[u8], ino: Ino, kind: u8) -> bool {
    let need = dirent_len(name.len());
    let room = entries(chunk).unwrap_or_default().into_iter().find_map(|e| {
        let free = e.reclen.saturating_sub(e.used());
        (free >= need).then_some((e.at, e.used(), free))
    });
    let Some((at, used, free)) = room else { return false };
    if used > 0 {
        set_reclen(chunk, at, used);
    }
    let Some(place) = chunk.get_mut(at + used..) else { return false };
    put_entry(place, ino, free, kind, name);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dirent::first_chunks;

    #[test]
    fn dots_are_made_anew() {
        let good = first_chunks(DIRBLKSIZ, Ino(7), Ino(5));
        assert_eq!(dots(Ino(7), &good), Ok(Ino(5)));
        assert!(dots(Ino(8), &good).is_err());
        let mut bad = good.clone();
        assert!(insert_into(&mut bad, b"name", Ino(9), 8));
        bad[0] = 3;
        assert!(dots(Ino(7), &bad).is_err());
        assert_eq!(put_dots(Ino(7), Ino(2), &mut bad), Ino(5));
        assert_eq!(dots(Ino(7), &bad), Ok(Ino(5)));
        let names: Vec<_> = entries(&bad).unwrap().iter().map(|e| e.name).collect();
        assert_eq!(names, [&b"."[..], b"..", b"name"]);
        let mut lost = vec![0; DIRBLKSIZ];
        assert_eq!(put_dots(Ino(7), Ino(2), &mut lost), Ino(2));
        assert_eq!(dots(Ino(7), &lost), Ok(Ino(2)));
    }

    #[test]
    fn a_chunk_is_cut() {
        let mut chunk = first_chunks(DIRBLKSIZ, Ino(7), Ino(5));
        assert!(insert_into(&mut chunk, b"name", Ino(9), 8));
        cut_chunk(&mut chunk, Some(DOTDOT_AT));
        assert_eq!(entries(&chunk).unwrap().len(), 2);
        cut_chunk(&mut chunk, None);
        assert_eq!(entries(&chunk).unwrap()[0].reclen, DIRBLKSIZ);
        assert!(!insert_into(&mut chunk, &[b'x'; 600], Ino(9), 8));
    }
}
