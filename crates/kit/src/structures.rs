//! Fields and checksums of structures, for tests of damage.
//!
//! Used by the engines' [`Engine::structures`](arbor_base::vfs::Engine::structures) and
//! [`Engine::reseal`](arbor_base::vfs::Engine::reseal).

use arbor_base::device::{Device, Kind, SECTOR, zeroed};
use arbor_base::layout::{crc, crc_without};
use arbor_base::vfs::{Checksum, Field, Meaning, Result};

/// The fields of a structure of an engine's `format.rs`; with one left out it does not compile.
#[macro_export]
macro_rules! fields {
    ($t:ident { $($f:ident: $m:ident),* $(,)? }) => {{
        const fn len<S, F>(_: fn(&S) -> &F) -> u32 {
            size_of::<F>() as u32
        }
        let _ = |s: $t| {
            let $t { $($f: _),* } = s;
        };
        &[$($crate::vfs::Field {
            name: concat!(stringify!($t), ".", stringify!($f)),
            at: std::mem::offset_of!($t, $f) as u32,
            len: len(|s: &$t| &s.$f),
            meaning: $crate::vfs::Meaning::$m,
        }),*]
    }};
}

/// The fields of a superblock: those of every [`head`](crate::head), whose own one is named, and the engine's.
#[macro_export]
macro_rules! superblock_fields {
    ($t:ident, $own:ident, { $($f:ident: $m:ident),* $(,)? }) => {
        $crate::fields!($t {
            magic: Bytes,
            crc: Checksum,
            version: Number,
            compat: Number,
            ro_compat: Number,
            incompat: Number,
            $own: Number,
            uuid: Bytes,
            label: Bytes,
            $($f: $m),*
        })
    };
}

/// Fields of one structure, found so far.
#[derive(Debug, Default)]
pub struct Fields(pub Vec<Field>);

impl Fields {
    /// With those of a table that begins at byte `at`.
    pub fn table(mut self, table: &[Field], at: usize) -> Fields {
        self.0.extend(table.iter().map(|f| Field { at: f.at + at as u32, ..*f }));
        self
    }

    /// With one more; none if it has no length.
    pub fn one(mut self, name: &'static str, at: usize, len: usize, meaning: Meaning) -> Fields {
        if let (Ok(at), Ok(len @ 1..)) = (u32::try_from(at), u32::try_from(len)) {
            self.0.push(Field { name, at, len, meaning });
        }
        self
    }
}

impl Fields {
    /// With those of an encoded list of attributes ([`xattr`](crate::xattr)) that begins at byte `at`.
    pub fn attributes(mut self, bytes: &[u8], mut at: usize) -> Fields {
        while let Some([name, _, lo, hi]) = bytes.get(at..at.saturating_add(4)) {
            let (name, value) = (usize::from(*name), usize::from(u16::from_le_bytes([*lo, *hi])));
            self = self.one("attribute.name_len", at, 1, Meaning::Number);
            self = self.one("attribute.zero", at + 1, 1, Meaning::Number);
            self = self.one("attribute.value_len", at + 2, 2, Meaning::Number);
            self = self.one("attribute.name", at + 4, name, Meaning::Bytes);
            if name == 0 {
                break;
            }
            at += 4 + name + value;
        }
        self
    }
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
    let (start, within, mut bytes) = sectors(device, seal.at, 4)?;
    if let (Some(place), Some(sum)) = (bytes.get_mut(within..within + 4), sum) {
        place.copy_from_slice(&sum.to_le_bytes());
    }
    Ok(device.write_at(Kind::Other, start, &bytes)?)
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
