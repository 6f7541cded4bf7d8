//! Repair of inodes with one wrong byte: the checksum tells which.

use crate::format::*;
use arbor_base::vfs::Ino;
use rustc_hash::FxHashMap;

/// By how much each change of one byte changes an inode's checksum.
pub(super) struct Syndromes(FxHashMap<u32, (u8, u8)>);

/// Where the checksum lies.
const CRC: usize = INODE - 4;

impl Syndromes {
    pub fn new() -> Syndromes {
        // A checksum is linear: the effect of a change depends on the change only.
        let zero = inode_crc(&[0; INODE], 0, Ino(0));
        let mut all = FxHashMap::default();
        for at in 0..CRC {
            for flip in 1..=u8::MAX {
                let mut bytes = [0; INODE];
                bytes.iter_mut().skip(at).take(1).for_each(|b| *b = flip);
                all.insert(inode_crc(&bytes, 0, Ino(0)) ^ zero, (at as u8, flip));
            }
        }
        Syndromes(all)
    }

    /// The inode with one byte changed so that its checksum matches, and which byte it is.
    pub fn put_back(&self, fsid: u64, ino: u64, bytes: &[u8]) -> Option<(u32, Vec<u8>)> {
        let stored = bytes.get(CRC..)?;
        let right = inode_crc(bytes, fsid, Ino(ino));
        let syndrome = right ^ u32::from_le_bytes(stored.try_into().ok()?);
        let mut good = bytes.to_vec();
        if let Some((at, flip)) = self.0.get(&syndrome) {
            *good.get_mut(usize::from(*at))? ^= flip;
            return Some(((*at).into(), good));
        }
        let wrong: Vec<usize> = (0..4).filter(|i| syndrome >> (i * 8) & 0xff != 0).collect();
        let [at] = wrong[..] else { return None };
        put_u32(&mut good, CRC, right);
        Some(((CRC + at) as u32, good))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn any_byte_is_put_back() {
        let all = Syndromes::new();
        let d = Dinode { mode: 0o100644.into(), size: 77.into(), uid: 1000.into(), ..Dinode::default() };
        let good = d.sealed(99, Ino(5)).as_bytes().to_vec();
        for at in 0..INODE {
            for flip in [1, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] ^= flip;
                assert_eq!(all.put_back(99, 5, &bad), Some((at as u32, good.clone())), "{at} {flip}");
            }
        }
        let mut bad = good.clone();
        bad[7] ^= 1;
        bad[70] ^= 1;
        assert_eq!(all.put_back(99, 5, &bad), None);
    }
}
