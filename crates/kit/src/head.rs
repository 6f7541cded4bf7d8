//! The head of a superblock, the same in every engine.
//!
//! The first 112 bytes of every engine's superblock are laid out alike ([`Head`]), so that one rule recognises all
//! volumes: in `file`, in `blkid`, and here.

use arbor_base::device::{Device, Kind};
use arbor_base::field;
use arbor_base::layout::{Access, Corrupt, Features, U32, crc_without, put};
use arbor_base::vfs::{Error, Result};
use std::mem::offset_of;
use std::result;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a superblock.
pub const SUPER_LEN: usize = 512;
/// Offset of its CRC.
pub const CRC_AT: usize = offset_of!(Head, crc);

/// How a superblock begins.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Head {
    /// The engine's tag, padded with NUL to four bytes, and `arbo`.
    pub magic: [u8; 8],
    /// CRC32C of the 512 bytes, this field as zero.
    pub crc: U32,
    /// Version of the format.
    pub version: U32,
    /// Features that may be ignored.
    pub compat: U32,
    /// Features that forbid writing if unknown.
    pub ro_compat: U32,
    /// Features that forbid mounting if unknown.
    pub incompat: U32,
    /// The engine's.
    pub own: U32,
    /// UUID of the volume.
    pub uuid: [u8; 16],
    /// Label, padded with NUL.
    pub label: [u8; 64],
}

const _: () = assert!(size_of::<Head>() == 112);

/// The structure in the sector at byte `at`, which is read again if it was misread; `None` if it is not sound.
pub fn sector<T: FromBytes>(dev: &dyn Device, at: u64, is_sound: impl Fn(&T, &[u8]) -> bool) -> Result<Option<T>> {
    for _ in 0..2 {
        let mut bytes = [0; SUPER_LEN];
        dev.read_at(Kind::Super, at, &mut bytes)?;
        let read = T::read_from_bytes(&bytes[..]).ok().filter(|found| is_sound(found, &bytes));
        if read.is_some() {
            return Ok(read);
        }
    }
    Ok(None)
}

/// A superblock that begins with a [`Head`]; [`headed!`](crate::headed) says so.
pub trait Headed: FromBytes + IntoBytes + Immutable + KnownLayout {
    /// The engine's name in messages.
    const ENGINE: &'static str;
    /// First bytes.
    const MAGIC: [u8; 8];
    /// Newest version of the format that the code knows.
    const VERSION: u32;
}

/// Declares a superblock: its structure, what messages call the engine, its first bytes, and the newest version that
/// the code knows. Its default is all zeros. Does not compile unless the structure begins as [`Head`](crate::head::Head) does.
#[macro_export]
macro_rules! headed {
    ($t:ty, $engine:literal, $magic:expr, $version:expr) => {
        impl $crate::head::Headed for $t {
            const ENGINE: &'static str = $engine;
            const MAGIC: [u8; 8] = $magic;
            const VERSION: u32 = $version;
        }

        impl Default for $t {
            fn default() -> $t {
                ::zerocopy::FromZeros::new_zeroed()
            }
        }

        $crate::headed!(@same $t: magic crc version compat ro_compat incompat uuid label);
        const _: () = assert!(size_of::<$t>() == $crate::head::SUPER_LEN);
    };
    (@same $t:ty: $($field:ident)*) => {
        $(const _: () = assert!(
            std::mem::offset_of!($t, $field) == std::mem::offset_of!($crate::head::Head, $field)
        );)*
    };
}

fn head<S: Headed>(sb: &S) -> Head {
    Head::read_from_prefix(sb.as_bytes()).map_or_else(|_| Head::new_zeroed(), |(head, _)| head)
}

/// Reads and checks the superblock at byte `at`: the first one, or a copy. `None` if there is none.
///
/// # Errors
/// Its checksum is wrong, or its version is newer than the code knows.
pub fn read<S: Headed>(dev: &dyn Device, at: u64) -> Result<Option<S>> {
    bytes_at(dev, at)?.map_or(Ok(None), |bytes| decode(&bytes, at))
}

/// The superblock at byte `at`, with what `check` makes of it, the place and the size of the device. Rereads one that is
/// refused: the read may have failed.
pub fn read_checked<S: Headed, T>(
    dev: &dyn Device,
    at: u64,
    check: impl Fn(Option<S>, u64, u64) -> Result<Option<T>>,
) -> Result<Option<T>> {
    let once = || check(read(dev, at)?, at, dev.geometry().size);
    match once() {
        Ok(None) | Err(Error::Corrupt(_)) => once(),
        found => found,
    }
}

/// The same; an error if there is none.
pub fn need<S: Headed>(dev: &dyn Device, at: u64) -> Result<S> {
    read(dev, at)?.ok_or_else(|| Error::refused(format!("no {} superblock", S::ENGINE)))
}

/// What a checker found at byte `at` when it read the superblock and what follows from it, or why that cannot be used. A
/// volume that is newer than this program is left alone: that is an error.
pub fn usable<S: Headed, T>(dev: &dyn Device, at: u64, found: Result<Option<T>>) -> Result<result::Result<T, String>> {
    match found {
        Ok(Some(found)) => Ok(Ok(found)),
        Ok(None) => Ok(Err(format!("no {} superblock", S::ENGINE))),
        Err(e @ (Error::Corrupt(_) | Error::Refused(_))) if !is_newer::<S>(dev, at)? => Ok(Err(e.to_string())),
        Err(e) => Err(e),
    }
}

/// What was found where a copy may be, if it can be used.
pub fn sound<T>(found: Result<Option<T>>) -> Result<Option<T>> {
    match found {
        Err(e @ Error::Io(_)) => Err(e),
        found => Ok(found.ok().flatten()),
    }
}

/// Whether a sound superblock of a newer version lies at byte `at`.
fn is_newer<S: Headed>(dev: &dyn Device, at: u64) -> Result<bool> {
    let Some(bytes) = bytes_at(dev, at)? else { return Ok(false) };
    let Ok(sb) = S::read_from_bytes(&bytes) else { return Ok(false) };
    let head = head(&sb);
    let sound = head.magic == S::MAGIC && crc_without(&bytes, CRC_AT) == Some(head.crc.get());
    Ok(sound && head.version.get() > S::VERSION)
}

/// The bytes of a superblock at byte `at`, whatever they hold; `None` if the device ends before.
pub fn bytes_at(dev: &dyn Device, at: u64) -> Result<Option<Vec<u8>>> {
    if dev.geometry().size < at.saturating_add(SUPER_LEN as u64) {
        return Ok(None);
    }
    let mut bytes = vec![0; SUPER_LEN];
    dev.read_at(Kind::Super, at, &mut bytes)?;
    Ok(Some(bytes))
}

/// The superblock in these bytes, which were read at byte `at`; see [`read`].
pub fn decode<S: Headed>(bytes: &[u8], at: u64) -> Result<Option<S>> {
    let Ok(sb) = S::read_from_bytes(bytes) else { return Ok(None) };
    let head = head(&sb);
    if head.magic != S::MAGIC {
        return Ok(None);
    }
    let crc = crc_without(bytes, CRC_AT).unwrap_or(0);
    if head.crc.get() != crc {
        let ((field, offset), found) = (field!(Head, crc), head.crc.get());
        let at = at.saturating_add(offset);
        return Err(Corrupt::new("superblock", field, at, format!("{found:#x}"), format!("{crc:#x}")).into());
    }
    if head.version.get() > S::VERSION {
        let (engine, version, known) = (S::ENGINE, head.version, S::VERSION);
        let why = format!("{engine} format version {version} is newer than this program knows ({known})");
        return Err(Error::refused(why));
    }
    Ok(Some(sb))
}

/// The bytes of a superblock, with its checksum.
pub fn encode<S: Headed>(sb: &S) -> Vec<u8> {
    sealed(sb.as_bytes())
}

/// These bytes of a structure whose CRC stands where that of a superblock does, with the checksum.
pub fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let crc = crc_without(&bytes, CRC_AT).unwrap_or(0);
    put(&mut bytes, CRC_AT, &crc.to_le_bytes());
    bytes
}

/// Writes a superblock with its checksum. The caller flushes.
pub fn write<S: Headed>(dev: &dyn Device, at: u64, sb: &S) -> Result<()> {
    Ok(dev.write_at(Kind::Super, at, &encode(sb))?)
}

/// Feature bits of a superblock.
pub fn features<S: Headed>(sb: &S) -> Features {
    let head = head(sb);
    Features { compat: head.compat.get(), ro_compat: head.ro_compat.get(), incompat: head.incompat.get() }
}

/// Refuses a volume with features unknown to this program: any that forbid reading and, to `write`, those that forbid writing.
pub fn refuse_unknown<S: Headed>(sb: &S, known: Features, write: bool) -> Result<()> {
    match features(sb).access(known) {
        Access::ReadWrite => Ok(()),
        Access::ReadOnly(_) if !write => Ok(()),
        Access::ReadOnly(bits) | Access::Refused(bits) => Err(Error::refused(format!("unknown features {bits:#x}"))),
    }
}

/// The mark of all structures of a volume: the first eight bytes of its UUID.
pub fn fsid(uuid: &[u8; 16]) -> u64 {
    uuid.first_chunk().map_or(0, |b| u64::from_le_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arbor_base::device::MemDevice;

    #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    struct Toy {
        magic: [u8; 8],
        crc: U32,
        version: U32,
        compat: U32,
        ro_compat: U32,
        incompat: U32,
        own: U32,
        uuid: [u8; 16],
        label: [u8; 64],
        rest: [u8; 400],
    }

    headed!(Toy, "Toy", *b"toy\0arbo", 3);

    fn toy(version: u32) -> Toy {
        let zero = Toy::new_zeroed();
        Toy { magic: Toy::MAGIC, version: version.into(), incompat: 5.into(), uuid: [7; 16], ..zero }
    }

    #[test]
    fn what_is_written_is_read() {
        let dev = MemDevice::new(4096);
        assert!(read::<Toy>(&dev, 0).unwrap().is_none() && read::<Toy>(&dev, 4000).unwrap().is_none());
        assert_eq!(need::<Toy>(&dev, 0).unwrap_err().to_string(), "no Toy superblock");
        write(&dev, 512, &toy(3)).unwrap();
        let sb: Toy = need(&dev, 512).unwrap();
        assert_eq!((features(&sb).incompat, fsid(&sb.uuid)), (5, 0x0707_0707_0707_0707));
    }

    #[test]
    fn what_is_damaged_or_newer_is_refused_by_name_and_place() {
        let dev = MemDevice::new(4096);
        write(&dev, 1024, &toy(4)).unwrap();
        let newer = read::<Toy>(&dev, 1024).unwrap_err().to_string();
        assert_eq!(newer, "Toy format version 4 is newer than this program knows (3)");
        let mut bytes = encode(&toy(3));
        bytes[200] ^= 1;
        let damaged = decode::<Toy>(&bytes, 1024).unwrap_err().to_string();
        assert!(damaged.starts_with("damaged superblock: field crc at byte 0x408 holds "), "{damaged}");
    }

    #[test]
    fn a_checker_uses_what_is_sound_and_leaves_what_is_newer() {
        let dev = MemDevice::new(4096);
        let usable = |at| usable::<Toy, _>(&dev, at, read::<Toy>(&dev, at));
        let is_sound = |at| sound(read::<Toy>(&dev, at)).unwrap().is_some();
        assert_eq!((usable(0).unwrap().unwrap_err().as_str(), is_sound(0)), ("no Toy superblock", false));
        write(&dev, 0, &toy(3)).unwrap();
        assert!(usable(0).unwrap().is_ok() && is_sound(0));
        write(&dev, 512, &toy(4)).unwrap();
        assert!(matches!(usable(512), Err(Error::Refused(_))) && !is_sound(512));
        dev.write_at(Kind::Super, 512, &[&encode(&toy(4))[..500], &[1; 12]].concat()).unwrap();
        assert!(usable(512).unwrap().unwrap_err().starts_with("damaged superblock") && !is_sound(512));
    }

    #[test]
    fn unknown_features_are_refused() {
        let refused =
            |sb: &Toy, write| refuse_unknown(sb, Features { incompat: 5, ..Features::default() }, write).is_err();
        let (known, unknown) = (toy(3), Toy { incompat: 2.into(), ..toy(3) });
        let kept = Toy { ro_compat: 1.into(), ..toy(3) };
        assert_eq!([&known, &unknown, &kept].map(|sb| refused(sb, false)), [false, true, false]);
        assert_eq!([&known, &unknown, &kept].map(|sb| refused(sb, true)), [false, true, true]);
    }
}
