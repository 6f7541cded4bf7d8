//! On-disk layout: little-endian fields, CRC32C, and the error that tells exactly what is damaged.
//!
//! Structures are declared once, in an engine's `format.rs`, as `#[repr(C)]` types of
//! [`zerocopy`] little-endian fields; this module adds what they share.

mod location;

pub use location::{Location, Role};

use std::fmt;

pub use zerocopy::little_endian::{I64, U16, U32, U64};

/// CRC32C (Castagnoli) of `bytes`.
pub fn crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// SipHash-1-3 of `bytes`, for sequences of structures that contain their own CRC. A CRC over them would not notice if
/// one were replaced by another valid one: the CRC of bytes followed by their CRC is always the same.
pub fn hash(key: (u64, u64), bytes: &[u8]) -> u64 {
    siphasher::sip::SipHasher13::new_with_keys(key.0, key.1).hash(bytes)
}

/// CRC32C of `bytes` with the four bytes at `field` taken as zero, which is how a structure
/// carries its own checksum. `None` if the field does not lie inside `bytes`.
pub fn crc_without(bytes: &[u8], field: usize) -> Option<u32> {
    let head = bytes.get(..field)?;
    let tail = bytes.get(field.checked_add(4)?..)?;
    let sum = crc32c::crc32c(head);
    let sum = crc32c::crc32c_append(sum, &[0; 4]);
    Some(crc32c::crc32c_append(sum, tail))
}

/// The little-endian `u16` at `at`, if it lies inside `bytes`.
pub fn get_u16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

/// The little-endian `u32` at `at`, if it lies inside `bytes`.
pub fn get_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// The little-endian `u64` at `at`, if it lies inside `bytes`.
pub fn get_u64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// Puts `new` at `at`, if it fits there.
pub fn put(bytes: &mut [u8], at: usize, new: &[u8]) {
    if let Some(place) = at.checked_add(new.len()).and_then(|end| bytes.get_mut(at..end)) {
        place.copy_from_slice(new);
    }
}

/// Puts a little-endian `u32` at `at`, if it fits there.
pub fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    put(bytes, at, &value.to_le_bytes());
}

/// Name of a field and its offset in a structure of a `format.rs`: `field!(SuperBlock, frags)`. They cannot disagree.
#[macro_export]
macro_rules! field {
    ($t:ty, $f:ident) => {
        (stringify!($f), std::mem::offset_of!($t, $f) as u64)
    };
}

/// Damage: which structure, which of its fields, where on the volume, what was found and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corrupt {
    /// Name of the structure as in `format.rs`, e.g. `"inode"`.
    pub structure: &'static str,
    /// Name of the field, e.g. `"crc"`.
    pub field: &'static str,
    /// The location of the field, or of the structure that it is in.
    pub location: Location,
    /// What was found.
    pub found: String,
    /// What was expected.
    pub expected: String,
}

impl Corrupt {
    /// An error for `structure.field` at a place; a number is a byte of the main device.
    pub fn new(
        structure: &'static str,
        field: &'static str,
        location: impl Into<Location>,
        found: impl fmt::Display,
        expected: impl fmt::Display,
    ) -> Corrupt {
        let location = location.into();
        Corrupt { structure, field, location, found: found.to_string(), expected: expected.to_string() }
    }
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "damaged {}: field {} {} holds {}, expected {}",
            self.structure, self.field, self.location, self.found, self.expected
        )
    }
}

impl std::error::Error for Corrupt {}

/// Feature bits of a format. An unknown bit of a kind means: `compat`, go on; `ro_compat`, mount
/// read-only; `incompat`, refuse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// May be ignored.
    pub compat: u32,
    /// Reading is safe without knowing them.
    pub ro_compat: u32,
    /// Nothing is safe without knowing them.
    pub incompat: u32,
}

/// What a format's unknown feature bits allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everything is known.
    ReadWrite,
    /// Unknown read-only compatible bits.
    ReadOnly(u32),
    /// Unknown incompatible bits.
    Refused(u32),
}

impl Features {
    /// What code that knows the bits `known` may do with a volume that has the bits `self`.
    pub fn access(self, known: Features) -> Access {
        let incompat = self.incompat & !known.incompat;
        let ro = self.ro_compat & !known.ro_compat;
        match (incompat, ro) {
            (0, 0) => Access::ReadWrite,
            (0, ro) => Access::ReadOnly(ro),
            (bits, _) => Access::Refused(bits),
        }
    }
}

#[cfg(test)]
mod checksum_tests {
    use super::*;

    #[test]
    fn a_crc_does_not_tell_sealed_structures_apart_and_a_hash_does() {
        let sealed = |byte: u8| [&[byte; 508][..], &crc(&[byte; 508]).to_le_bytes()].concat();
        let block = |byte| [&[9; 512][..], &sealed(byte), &[9; 512]].concat();
        assert_eq!(crc(&block(1)), crc(&block(2)));
        assert_ne!(hash((1, 2), &block(1)), hash((1, 2), &block(2)));
        assert_ne!(hash((1, 2), &block(1)), hash((1, 3), &block(1)));
    }
}
