//! Images: where the volume in them begins, their further devices, and what they hold.

use crate::args::ImageArgs;
use crate::holder::{self, Peek};
use anyhow::{Context, Result, anyhow, bail};
use arboretum::device::{Device, FileDevice, Kind, OffsetDevice, OpenMode, SECTOR};
use arboretum::vfs::{Devices, Engine, OptionSpec, Options, VolumeInfo};
use arboretum::{Volume, VolumeOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// How far into an image something foreign is looked for.
const HEAD_LEN: u64 = 64 << 10;

/// An image on the command line, taken apart.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub(crate) path: PathBuf,
    pub(crate) offset: u64,
    /// Files of further devices by role.
    pub(crate) extra: Vec<(String, PathBuf)>,
    /// Options that are not about where the volume lies.
    pub(crate) rest: Options,
}

impl Image {
    pub(crate) fn new(args: &ImageArgs) -> Result<Image> {
        Image::parse(&args.image, &args.options)
    }

    pub(crate) fn parse(path: &Path, options: &[String]) -> Result<Image> {
        let all = Options::parse(&options.join(","));
        let offset = all.size("offset")?.unwrap_or(0);
        if !offset.is_multiple_of(SECTOR as u64) {
            bail!("option offset: {offset} is not a multiple of {SECTOR} bytes");
        }
        let mut image = Image { path: path.to_path_buf(), offset, extra: Vec::new(), rest: Options::default() };
        for (key, value) in all.0 {
            if is_role(&key) {
                if value.is_empty() {
                    bail!("option {key}: it names no file, as {key}=FILE does");
                }
                if is_same(path, Path::new(&value)) {
                    bail!("{}: {key} and volume are the same file", path.display());
                }
                image.extra.push((key, value.into()));
            } else if key != "offset" {
                image.rest.0.push((key, value));
            }
        }
        Ok(image)
    }

    /// Options for the library, without those of the engine.
    pub(crate) fn options(&self, read_only: bool) -> VolumeOptions {
        let options = Volume::options().offset(self.offset).read_only(read_only);
        self.extra.iter().fold(options, |options, (role, path)| options.device(role.clone(), path))
    }

    /// Opens the volume; the remaining options go to the engine.
    pub(crate) fn volume(&self, read_only: bool) -> Result<Volume> {
        let options = self.options(read_only);
        let options = self.rest.0.iter().fold(options, |options, (k, v)| options.mount_option(k.clone(), v.clone()));
        options.open(&self.path).map_err(|e| self.unclean(&e).unwrap_or_else(|| self.said(e)))
    }

    /// What to do about a volume that cannot be read before its log is replayed.
    pub(crate) fn unclean(&self, e: &dyn std::fmt::Display) -> Option<anyhow::Error> {
        let recovers = e.to_string().contains("needs recovery") && self.info().is_ok_and(|info| !info.clean);
        let path = self.path.display();
        recovers.then(|| {
            anyhow!(
                "{path}: was not unmounted cleanly, so its log must be replayed first: \
                 `arbor fsck -p {}` does that, and so does mounting it for writing",
                self.words()
            )
        })
    }

    /// The image as one names it on a command line.
    fn words(&self) -> String {
        let mut options: Vec<String> = self.extra.iter().map(|(k, path)| format!("{k}={}", path.display())).collect();
        if self.offset != 0 {
            options.push(format!("offset={}", self.offset));
        }
        let options = if options.is_empty() { String::new() } else { format!("-o {} ", options.join(",")) };
        format!("{options}{}", self.path.display())
    }

    /// Opens the devices and finds out whose volume it is, damaged or not.
    pub(crate) fn devices(&self, read_only: bool) -> Result<(Devices, &'static dyn Engine)> {
        let devices = self.options(read_only).devices(&self.path).map_err(|e| self.said(e))?;
        let (engine, _) = arboretum::find(&*devices.main).ok_or_else(|| self.foreign())?;
        Ok((devices, engine))
    }

    /// Like [`Image::devices`], also for a volume whose superblock is lost.
    pub(crate) fn damaged_devices(&self, read_only: bool) -> Result<(Devices, &'static dyn Engine)> {
        let devices = self.options(read_only).devices(&self.path).map_err(|e| self.said(e))?;
        let found = arboretum::find(&*devices.main).map(|found| found.0);
        let engine = found.or_else(|| arboretum::search(&*devices.main)).ok_or_else(|| self.foreign())?;
        Ok((devices, engine))
    }

    /// What the superblock says, also while the image is in use.
    pub(crate) fn info(&self) -> Result<VolumeInfo> {
        let found = match self.options(true).devices(&self.path) {
            Ok(devices) => arboretum::detect(&*devices.main),
            Err(e) if e.kind() == ErrorKind::ResourceBusy => self.peek(),
            Err(e) => return Err(self.said(e)),
        };
        let found = found.with_context(|| self.path.display().to_string())?;
        Ok(found.ok_or_else(|| self.foreign())?.1)
    }

    fn peek(&self) -> std::io::Result<Option<(&'static dyn Engine, VolumeInfo)>> {
        /// The owner may be writing it at this moment.
        const TRIES: usize = 5;
        let mut found = Ok(None);
        for _ in 0..TRIES {
            let device = Peek::open(&self.path)?;
            let len = device.geometry().size.saturating_sub(self.offset);
            found = arboretum::detect(&OffsetDevice::new(device, self.offset, len)?);
            if found.is_ok() {
                break;
            }
        }
        found
    }

    pub(crate) fn foreign(&self) -> anyhow::Error {
        anyhow!("{}: not a volume of any known engine", self.path.display())
    }

    /// An error of the library without the operation in front: the command's name says it.
    pub(crate) fn said(&self, e: std::io::Error) -> anyhow::Error {
        let text = e.to_string();
        let shown = self.path.display().to_string();
        if e.kind() == ErrorKind::ResourceBusy {
            let text = holder::in_use(&self.path, &text);
            return anyhow!("{}", text.strip_prefix("open ").unwrap_or(&text));
        }
        match text.find(&shown) {
            Some(at) => anyhow::Error::new(e).context(text.get(at..).unwrap_or_default().to_string()),
            None => anyhow::Error::new(e).context(format!("{shown}: {text}")),
        }
    }

    /// The size of an image that exists; `None` if it does not.
    pub(crate) fn existing_size(&self) -> Result<Option<u64>> {
        match FileDevice::open(&self.path, OpenMode::ReadOnly) {
            Ok(device) => Ok(Some(device.geometry().size)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(self.said(e)),
        }
    }
}

/// Whether two names lead to one file, which need not be there.
fn is_same(a: &Path, b: &Path) -> bool {
    let whole = |path: &Path| std::fs::canonicalize(path).or_else(|_| std::path::absolute(path));
    matches!((whole(a), whole(b)), (Ok(a), Ok(b)) if a == b)
}

/// Whether an option names a further device of some engine.
fn is_role(key: &str) -> bool {
    arboretum::engines().iter().any(|engine| engine.extra_devices().contains(&key))
}

/// Refuses an image that holds something.
pub(crate) fn refuse_used(path: &Path, device: &dyn Device) -> Result<()> {
    if let Some((engine, _)) = arboretum::find(device) {
        bail!("{}: holds a volume of {} (-f makes a new one)", path.display(), engine.name());
    }
    let len = HEAD_LEN.min(device.geometry().size);
    let mut head = vec![0; len as usize];
    device.read_at(Kind::Other, 0, &mut head)?;
    if let Some(what) = signature(&head) {
        bail!("{}: seems to hold {what} (-f overwrites it)", path.display());
    }
    match head.iter().position(|b| *b != 0) {
        Some(at) => bail!("{}: holds data (at byte {at}; -f overwrites it)", path.display()),
        None => Ok(()),
    }
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

/// Refuses options that are in none of the lists, by name, and says where the lists are.
pub(crate) fn check_options<'a>(
    options: &Options,
    known: impl IntoIterator<Item = &'a OptionSpec>,
    command: &str,
) -> Result<()> {
    let known: Vec<OptionSpec> = known.into_iter().copied().collect();
    options.check(&known).map_err(|e| anyhow!("{e} (`arbor {command} --help` lists them)"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arboretum::device::MemDevice;

    #[test]
    fn what_an_image_holds_is_told() {
        let mut bytes = vec![0; 128 << 10];
        let refused =
            |bytes: &[u8]| refuse_used(Path::new("x"), &MemDevice::from_bytes(bytes)).map_err(|e| e.to_string());
        assert!(refused(&bytes).is_ok());
        bytes[0x438..0x43a].copy_from_slice(b"\x53\xef");
        assert!(refused(&bytes).unwrap_err().contains("ext4"));
        bytes[0x438..0x43a].fill(0);
        bytes[100_000] = 1;
        assert!(refused(&bytes).is_ok(), "behind the first 64 KiB");
        bytes[77] = 1;
        assert_eq!(refused(&bytes).unwrap_err(), "x: holds data (at byte 77; -f overwrites it)");
    }

    #[test]
    fn options_are_taken_apart() {
        let image = Image::parse(Path::new("x"), &["offset=1M,a=1".into(), "b".into()]).unwrap();
        assert_eq!((image.offset, image.rest), (1 << 20, Options::parse("a=1,b")));
        let refused = |option: &str| Image::parse(Path::new("x"), &[option.into()]).unwrap_err().to_string();
        assert_eq!(refused("offset=z"), "option offset: \"z\" is not a size");
        assert_eq!(refused("offset=1"), "option offset: 1 is not a multiple of 512 bytes");
        assert_eq!(refused("log="), "option log: it names no file, as log=FILE does");
        assert_eq!(refused("log=./x"), "x: log and volume are the same file");
    }
}
