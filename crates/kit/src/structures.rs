//! Fields and checksums of structures, for tests of damage.
//!
//! Used by the engines' [`Engine::structures`](arbor_base::vfs::Engine::structures) and
//! [`Engine::reseal`](arbor_base::vfs::Engine::reseal).

use crate::dirent::{DIRENT_HEAD, DirentHead, entry};
use crate::fields::Fielded;
use arbor_base::device::{Device, Kind, SECTOR, zeroed};
use arbor_base::layout::{crc, crc_without, get_u32, put_u32};
use arbor_base::vfs::{Checksum, Field, Meaning, Result, Structure};

/// Fields of one structure, found so far.
#[derive(Debug, Default)]
pub struct Fields(Vec<Field>);

impl Fields {
    /// With those of an `S` that begins at byte `at`.
    pub fn of<S: Fielded>(mut self, at: usize) -> Fields {
        self.0.extend(S::FIELDS.iter().map(|f| Field { at: f.at + at as u32, ..*f }));
        self
    }

    /// With one more; none if it has no length.
    pub fn one(mut self, name: &'static str, at: usize, len: usize, meaning: Meaning) -> Fields {
        if let (Ok(at), Ok(len @ 1..)) = (u32::try_from(at), u32::try_from(len)) {
            self.0.push(Field { name, at, len, meaning });
        }
        self
    }

    /// With `n` addresses of four bytes.
    pub fn addresses(self, name: &'static str, at: usize, n: usize) -> Fields {
        (0..n).fold(self, |fields, i| fields.one(name, at + 4 * i, 4, Meaning::Address))
    }

    /// With the bits of a bitmap; the beginning holds most of what matters.
    pub fn bitmap(self, at: usize, len: usize) -> Fields {
        let head = len.min(64);
        self.one("bitmap.head", at, head, Meaning::Bytes).one("bitmap.rest", at + head, len - head, Meaning::Bytes)
    }

    /// With the entries of a chunk of a directory.
    pub fn chunk(mut self, chunk: &[u8]) -> Fields {
        let mut at = 0;
        while let Ok(e) = entry(chunk, at) {
            self = self.of::<DirentHead>(at).one("entry.name", at + DIRENT_HEAD, e.name.len(), Meaning::Bytes);
            at += e.reclen;
        }
        self
    }

    /// With those of an encoded list of attributes ([`xattr`](crate::xattr)) that begins at byte `at`.
    pub fn attributes(mut self, bytes: &[u8], mut at: usize) -> Fields {
        while let Some([name, highest, lo, hi]) = bytes.get(at..at.saturating_add(4)) {
            let (name, highest) = (usize::from(*name), usize::from(*highest));
            let value = highest << 16 | usize::from(u16::from_le_bytes([*lo, *hi]));
            self = self.one("attribute.name_len", at, 1, Meaning::Number);
            self = self.one("attribute.value_len_high", at + 1, 1, Meaning::Number);
            self = self.one("attribute.value_len", at + 2, 2, Meaning::Number);
            self = self.one("attribute.name", at + 4, name, Meaning::Bytes);
            if name == 0 {
                break;
            }
            at += 4 + name + value;
        }
        self
    }

    /// The structure that they are the fields of, as far as they lie in it.
    pub fn structure(self, kind: &'static str, number: u64, offset: u64, len: usize, addresses: Vec<u64>) -> Structure {
        let mut fields = self.0;
        fields.retain(|f| u64::from(f.at) + u64::from(f.len) <= len as u64);
        Structure { offset, len, kind, number, addresses, fields, checksums: Vec::new() }
    }
}

/// Where the pointers of an indirect block begin that are set, and one that is not. Each is `len` bytes and begins with
/// an address.
pub fn some_pointers(bytes: &[u8], from: usize, len: usize) -> impl Iterator<Item = usize> {
    let is_set = |at: &usize| get_u32(bytes, *at).unwrap_or(0) != 0;
    let all = (from..bytes.len()).step_by(len);
    let unset = all.clone().find(|at| !is_set(at));
    all.filter(move |at| is_set(at)).chain(unset)
}

/// Changes bytes of the device, which need not be whole sectors.
pub fn rewrite(device: &dyn Device, offset: u64, len: usize, f: impl FnOnce(&mut [u8])) -> Result<()> {
    let (start, within, mut bytes) = sectors(device, offset, len as u64)?;
    f(bytes.get_mut(within..within + len).unwrap_or(&mut []));
    Ok(device.write_at(Kind::Other, start, &bytes)?)
}

/// Reads bytes of the device that need not be whole sectors; returns where the sectors begin, too.
fn sectors(device: &dyn Device, offset: u64, len: u64) -> Result<(u64, usize, Vec<u8>)> {
    let start = offset / SECTOR as u64 * SECTOR as u64;
    let within = (offset - start) as usize;
    let mut bytes = zeroed((within + len as usize).next_multiple_of(SECTOR));
    device.read_at(Kind::Other, start, &mut bytes)?;
    Ok((start, within, bytes))
}

/// Recomputes a checksum.
pub fn seal(device: &dyn Device, seal: &Checksum) -> Result<()> {
    let (_, within, bytes) = sectors(device, seal.offset, seal.len)?;
    let covered = bytes.get(within..within + seal.len as usize).unwrap_or(&[]);
    let own = seal.at.checked_sub(seal.offset).filter(|at| at + 4 <= seal.len);
    let sum = own.map_or_else(|| Some(crc(covered)), |at| crc_without(covered, at as usize));
    rewrite(device, seal.at, 4, |place| sum.into_iter().for_each(|sum| put_u32(place, 0, sum)))
}

/// Recomputes the checksums in the fields of a structure, each of which covers all of it.
pub fn seal_whole(device: &dyn Device, s: &Structure) -> Result<()> {
    s.fields.iter().filter(|f| f.meaning == Meaning::Checksum).try_for_each(|f| {
        let (at, offset, len) = (s.offset + u64::from(f.at), s.offset, s.len as u64);
        seal(device, &Checksum { at, offset, len })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arbor_base::device::MemDevice;

    #[test]
    fn checksums_inside_and_outside() {
        let dev = MemDevice::new(4096);
        dev.write_at(Kind::Other, 0, &[7; 4096]).unwrap();
        // The second one covers the first.
        let seals = [Checksum { at: 1022, offset: 100, len: 700 }, Checksum { at: 1000, offset: 990, len: 100 }];
        seals.iter().for_each(|s| seal(&dev, s).unwrap());
        let all = dev.to_bytes();
        assert_eq!(all[1022..1026], crc(&[7; 700]).to_le_bytes());
        assert_eq!(Some(all[1000..1004].to_vec()), crc_without(&all[990..1090], 10).map(|c| c.to_le_bytes().to_vec()));
        assert!(all[1026..].iter().all(|b| *b == 7));
    }
}
