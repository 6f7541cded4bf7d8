//! Whether something lies where a volume is to be made.

use anyhow::{Context, Result, bail};
use arboretum::device::{Device, Kind};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// How far into a device something foreign is looked for: all signatures lie in it.
const HEAD_LEN: u64 = 128 << 10;
/// How much of a file is read at once.
const CHUNK: usize = 1 << 20;

/// Refuses a device that holds something. `offset` is where it begins in the file `path`.
pub(crate) fn refuse_used(path: &Path, offset: u64, device: &dyn Device) -> Result<()> {
    if let Some((engine, _)) = arboretum::find(device) {
        bail!("{}: holds a volume of {} (-f makes a new one)", path.display(), engine.name());
    }
    let head = head(device)?;
    if let Some(what) = signature(&head) {
        bail!("{}: seems to hold {what} (-f overwrites it)", path.display());
    }
    match head.iter().position(|b| *b != 0) {
        Some(at) => Err(holds_data(path, offset + at as u64)),
        None => Ok(()),
    }
}

/// Refuses a regular file that has a byte that is not zero from `start` to `end`. Of anything else only the
/// head is looked at ([`refuse_used`]): a disk is seldom empty, and takes long to read.
pub(crate) fn refuse_data(path: &Path, start: u64, end: u64) -> Result<()> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    if !file.metadata().with_context(|| path.display().to_string())?.is_file() {
        return Ok(());
    }
    match first_data(file, start, end).with_context(|| path.display().to_string())? {
        Some(at) => Err(holds_data(path, at)),
        None => Ok(()),
    }
}

fn holds_data(path: &Path, at: u64) -> anyhow::Error {
    anyhow::anyhow!("{}: holds data (at byte {at}; -f overwrites it)", path.display())
}

/// Where the first byte lies that is not zero.
fn first_data(mut file: File, start: u64, end: u64) -> io::Result<Option<u64>> {
    let mut buf = vec![0; CHUNK];
    let mut at = start;
    while let Some(from) = next_data(&mut file, at)?.filter(|from| *from < end) {
        let most = usize::try_from(end - from).unwrap_or(CHUNK).min(CHUNK);
        let len = file.read(buf.get_mut(..most).unwrap_or_default())?;
        if len == 0 {
            break;
        }
        if let Some(i) = buf.iter().take(len).position(|b| *b != 0) {
            return Ok(Some(from + i as u64));
        }
        at = from + len as u64;
    }
    Ok(None)
}

/// Goes to what is no hole from `at` on, if there is more; what knows no holes is read as it is.
#[cfg(target_os = "linux")]
fn next_data(file: &mut File, at: u64) -> io::Result<Option<u64>> {
    use rustix::io::Errno;
    match rustix::fs::seek(&*file, rustix::fs::SeekFrom::Data(at)) {
        Ok(from) => Ok(Some(from)),
        Err(Errno::NXIO) => Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => file.seek(SeekFrom::Start(at)).map(Some),
        Err(e) => Err(e.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn next_data(file: &mut File, at: u64) -> io::Result<Option<u64>> {
    file.seek(SeekFrom::Start(at)).map(Some)
}

/// The first bytes of a device, as far as signatures lie.
fn head(device: &dyn Device) -> io::Result<Vec<u8>> {
    let mut head = vec![0; HEAD_LEN.min(device.geometry().size) as usize];
    device.read_at(Kind::Other, 0, &mut head)?;
    Ok(head)
}

/// What something foreign on a device is called, if its signature is known.
pub(crate) fn foreign_name(device: &dyn Device) -> Option<&'static str> {
    head(device).ok().and_then(|head| signature(&head))
}

/// Well-known signatures, at their offsets.
const SIGNATURES: &[(usize, &[u8], &str)] = &[
    (0x438, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
    (0, b"XFSB", "an XFS file system"),
    (0x10040, b"_BHRfS_M", "a btrfs file system"),
    (0, b"hsqs", "a squashfs file system"),
    (0x400, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    (0x400, b"\xe2\xe1\xf5\xe0", "an EROFS file system"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (0x36, b"FAT1", "a FAT file system"),
    (0x52, b"FAT32", "a FAT file system"),
    (0x8001, b"CD001", "an ISO 9660 file system"),
    (0, b"LUKS\xba\xbe", "a LUKS volume"),
    (0x218, b"LVM2 001", "an LVM physical volume"),
    (0x200, b"EFI PART", "a GPT partition table"),
    (0x10034, b"ReIsErFs", "a ReiserFS file system"),
    (0x10034, b"ReIsEr2Fs", "a ReiserFS file system"),
    (0xff6, b"SWAPSPACE2", "swap space"),
    (0, b"conectix", "a VHD disk image"),
    (0, b"QFI\xfb", "a QCOW2 disk image"),
    (0x1fe, b"\x55\xaa", "a boot sector or partition table"),
];

fn signature(head: &[u8]) -> Option<&'static str> {
    let there = |at: usize, magic: &[u8]| head.get(at..).is_some_and(|rest| rest.starts_with(magic));
    SIGNATURES.iter().find(|(at, magic, _)| there(*at, magic)).map(|(_, _, what)| *what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arboretum::device::MemDevice;

    #[test]
    fn what_a_device_holds_is_told() {
        let mut bytes = vec![0; 256 << 10];
        let refused =
            |bytes: &[u8]| refuse_used(Path::new("x"), 0, &MemDevice::from_bytes(bytes)).map_err(|e| e.to_string());
        assert!(refused(&bytes).is_ok());
        for (at, magic, what) in SIGNATURES {
            bytes[*at..at + magic.len()].copy_from_slice(magic);
            assert_eq!(refused(&bytes).unwrap_err(), format!("x: seems to hold {what} (-f overwrites it)"));
            bytes[*at..at + magic.len()].fill(0);
        }
        bytes[200_000] = 1;
        assert!(refused(&bytes).is_ok(), "of a disk the head is looked at");
        bytes[77] = 1;
        assert_eq!(refused(&bytes).unwrap_err(), "x: holds data (at byte 77; -f overwrites it)");
    }

    #[test]
    fn the_first_byte_that_is_not_zero_is_found_behind_holes_and_zeros() {
        use std::os::unix::fs::FileExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let file = File::create(&path).unwrap();
        file.set_len(100 << 20).unwrap();
        let refused = |start, end| refuse_data(&path, start, end).map_err(|e| e.to_string()).err();
        assert_eq!(refused(0, u64::MAX), None, "a hole");
        file.write_all_at(&[0; 3000], 50_000_000).unwrap();
        assert_eq!(refused(0, u64::MAX), None, "zeros");
        file.write_all_at(b"x", 70_000_001).unwrap();
        let shown = path.display();
        assert_eq!(refused(0, u64::MAX), Some(format!("{shown}: holds data (at byte 70000001; -f overwrites it)")));
        assert_eq!((refused(0, 70_000_001), refused(70_000_002, u64::MAX)), (None, None), "only what is asked for");
        assert!(refused(70_000_001, u64::MAX).is_some());
    }
}
