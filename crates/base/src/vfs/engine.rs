//! What a kind of file system offers without a mount: format, mount, check, describe; options and reports.

use super::{Clock, Error, FileSystem, Ino, Result, Time};
use crate::device::{Claim, Device, Kind};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The devices of one volume.
pub struct Devices {
    /// The one that carries the superblock.
    pub main: Arc<dyn Device>,
    /// Further ones by role, as the engine names them (yFS: `"log"`).
    pub extra: BTreeMap<String, Arc<dyn Device>>,
}

impl Devices {
    /// A volume on one device.
    pub fn single(main: impl Device + 'static) -> Devices {
        Devices { main: Arc::new(main), extra: BTreeMap::new() }
    }

    /// The claims that keep others from the files and block devices of the volume.
    pub fn claims(&self) -> Vec<Arc<Claim>> {
        std::iter::once(&self.main).chain(self.extra.values()).filter_map(|device| device.claim()).collect()
    }
}

/// One option of `-o`, described once: help texts, manual and checks come from here.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// Its key.
    pub key: &'static str,
    /// What it takes, e.g. `"SIZE"`; empty for a switch.
    pub value: &'static str,
    /// Default in words, empty if there is none.
    pub default: &'static str,
    /// One sentence.
    pub help: &'static str,
}

/// `-o key=value,...`, in the order given; a switch has an empty value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options(pub Vec<(String, String)>);

impl Options {
    /// Parses `key=value,key,...`.
    pub fn parse(text: &str) -> Options {
        Options(
            text.split(',')
                .filter(|s| !s.is_empty())
                .map(|s| match s.split_once('=') {
                    Some((k, v)) => (k.to_string(), v.to_string()),
                    None => (s.to_string(), String::new()),
                })
                .collect(),
        )
    }

    /// The last value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().rev().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// The last value of `key` as a size with K, M, G or T; an error names the option.
    pub fn size(&self, key: &str) -> Result<Option<u64>> {
        self.get(key)
            .map(|v| parse_size(v).ok_or_else(|| Error::refused(format!("option {key}: {v:?} is not a size"))))
            .transpose()
    }

    /// The last value of `key` as a size from `least` on; an error names the option.
    pub fn size_from(&self, key: &str, least: u64) -> Result<Option<u64>> {
        match self.size(key)? {
            Some(size) if size < least => {
                Err(Error::refused(format!("option {key}: {size} bytes are too few, {least} are the least")))
            }
            size => Ok(size),
        }
    }

    /// Refuses keys that none of `specs` knows, and values of those that take none.
    pub fn check(&self, specs: &[OptionSpec]) -> Result<()> {
        for (key, value) in &self.0 {
            match specs.iter().find(|s| s.key == key) {
                None => return Err(Error::refused(format!("unknown option {key:?}"))),
                Some(spec) if spec.value.is_empty() && !value.is_empty() => {
                    return Err(Error::refused(format!("option {key}: it takes no value, and {value:?} is one")));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

/// As [`Options::parse`] reads it.
impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (key, value)) in self.0.iter().enumerate() {
            let (comma, is) = (if i > 0 { "," } else { "" }, if value.is_empty() { "" } else { "=" });
            write!(f, "{comma}{key}{is}{value}")?;
        }
        Ok(())
    }
}

/// A number with an optional K, M, G or T (powers of 1024).
pub fn parse_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KIB" => 10,
        "M" | "MIB" => 20,
        "G" | "GIB" => 30,
        "T" | "TIB" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Arguments of `mkfs`.
#[derive(Clone, Debug, Default)]
pub struct FormatOptions {
    /// Label, at most 63 bytes.
    pub label: String,
    /// UUID; drawn by the caller, engines draw nothing.
    pub uuid: [u8; 16],
    /// Time of creation.
    pub now: Time,
    /// Owner of the root directory.
    pub owner: (u32, u32),
    /// Engine options, see [`Engine::format_options`].
    pub options: Options,
}

/// Arguments of `mount`.
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// Write nothing, not even recovery; a volume that needs recovery is refused.
    pub read_only: bool,
    /// Engine options, see [`Engine::mount_options`].
    pub options: Options,
}

/// What a superblock says without mounting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Name of the engine.
    pub engine: &'static str,
    /// Label.
    pub label: String,
    /// UUID.
    pub uuid: [u8; 16],
    /// Size in bytes.
    pub size: u64,
    /// Whether it was unmounted cleanly.
    pub clean: bool,
    /// Further facts by name, in order: block size, features, counts ...
    pub facts: Vec<(&'static str, String)>,
}

/// How much an issue of the checker matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Odd, but nothing is lost by it.
    Warning,
    /// Something is wrong that repair can mend.
    Error,
    /// The checker cannot go on past it.
    Fatal,
}

/// One thing the checker found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Name of the issue's type, e.g. `"LinkCount"`: stable, for scripts.
    pub code: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// The sentence for people, naming the thing and the place.
    pub text: String,
    /// Whether this run mended it.
    pub repaired: bool,
    /// Files, names or contents may be lost by it, mended or not.
    pub loses: bool,
}

/// What the checker does about issues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repair {
    /// Reports only; writes nothing, and replays the log in memory only.
    #[default]
    No,
    /// Replays the log and mends what is safe without asking.
    Preen,
    /// Mends everything that can be mended.
    Yes,
}

/// Arguments of `check`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckOptions {
    /// What to do about issues.
    pub repair: Repair,
    /// Check even if the volume says it is clean.
    pub force: bool,
}

/// Result of `check`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Everything found, in the order found.
    pub issues: Vec<Issue>,
    /// The remains of a crash were mended on the device: the log was replayed there, or lost space and inodes were
    /// found. Never without repair.
    pub recovered: bool,
    /// The superblock said, before this run, that the volume was not unmounted; one that is damaged says nothing.
    pub unclean: bool,
    /// The volume said it was clean and was not walked.
    pub skipped: bool,
    /// Inodes in use.
    pub files: u64,
    /// Directories among them.
    pub directories: u64,
    /// Bytes in use.
    pub used_bytes: u64,
}

impl CheckReport {
    /// Issues that are still there.
    pub fn remaining(&self) -> usize {
        self.issues.iter().filter(|i| !i.repaired && i.severity > Severity::Warning).count()
    }
}

/// A piece of the device and what lies there, see [`Engine::describe`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Byte offset.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Kind of structure.
    pub kind: Kind,
    /// File it belongs to, if it does.
    pub owner: Option<Ino>,
    /// Offset in that file in bytes, for data, and for directories that are files.
    pub file_offset: u64,
    /// Engine's name for it, e.g. `"AG 3 bitmap"`.
    pub name: String,
}

/// What the bytes of a field are, so that damage to it can be nasty rather than random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A little-endian number.
    Number,
    /// A little-endian number that says where something lies, in any unit.
    Address,
    /// Names, contents, masks.
    Bytes,
    /// A checksum.
    Checksum,
}

/// A field of a [`Structure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name; fields that are repeated in a structure share one.
    pub name: &'static str,
    /// Its offset in the structure.
    pub at: u32,
    /// Its length in bytes.
    pub len: u32,
    /// What it holds.
    pub meaning: Meaning,
}

/// A CRC32C on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum {
    /// Byte of the device where it stands, four bytes.
    pub at: u64,
    /// First byte of the device that it covers.
    pub offset: u64,
    /// Bytes that it covers; where it stands among them itself, it counts as zero.
    pub len: u64,
}

/// A structure with a checksum, and its fields; see [`Engine::structures`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Structure {
    /// Byte offset on the main device.
    pub offset: u64,
    /// Length in bytes.
    pub len: usize,
    /// Structures of one kind have the same fields.
    pub kind: &'static str,
    /// What tells it from the others of its kind, e.g. the number of an inode.
    pub number: u64,
    /// The numbers that an address field may name it by.
    pub addresses: Vec<u64>,
    /// Its fields.
    pub fields: Vec<Field>,
    /// Checksums that cover it, or structures above it, in the order in which [`Engine::reseal`] recomputes them: the
    /// one in a pointer to it, then that of the structure that holds the pointer, and so on. Empty where the structure
    /// itself tells it all.
    pub checksums: Vec<Checksum>,
}

/// What remains of operations that were not made durable before a power cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CrashPromise {
    /// Names and attributes are as after some prefix of the operations.
    #[default]
    Prefix,
    /// Each name, and each file's attributes, are as of some moment since they were made durable; nothing is lost that
    /// was not removed, and no file shows bytes that were never its own; but a rename may leave both names, and an
    /// exchange a third one (`.exchange-...`); a file without a name yet may get one in `/lost+found`. A large file may
    /// be truncated in part, from its end.
    Ordered {
        /// Names are durable when a call returns.
        names: bool,
    },
    /// The checker can repair the volume so that it can be used; no more.
    Repairable,
}

/// The segments of a log-structured volume, see [`Engine::utilisation`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Utilisation {
    /// Bytes of a segment.
    pub segment_size: u64,
    /// Segments.
    pub count: u64,
    /// Those that are not clean, in the order of their addresses: number, and live bytes.
    pub live: Vec<(u64, u64)>,
}

/// Progress of long work: done, total and what is being done.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64, &str);

/// A kind of file system.
pub trait Engine: Send + Sync {
    /// Its name as given to `-t`.
    fn name(&self) -> &'static str;

    /// Options of [`Engine::format`].
    fn format_options(&self) -> &'static [OptionSpec];

    /// Options of [`Engine::mount`].
    fn mount_options(&self) -> &'static [OptionSpec];

    /// Refuses mount options that [`Engine::mount`] would refuse, whatever the volume; the error names the option.
    fn check_mount_options(&self, options: &Options) -> Result<()> {
        options.check(self.mount_options())
    }

    /// Options of format and mount under which everything happens often: the smallest log and
    /// cache, the smallest and largest blocks. Tests go through all of them.
    fn test_configurations(&self) -> &'static [(&'static str, &'static str)] {
        &[("", "")]
    }

    /// Roles of further devices that [`Devices::extra`] may hold.
    fn extra_devices(&self) -> &'static [&'static str] {
        &[]
    }

    /// Which of its [`extra_devices`](Engine::extra_devices) the device is, of whatever volume.
    fn role_of(&self, _device: &dyn Device) -> Result<Option<&'static str>> {
        Ok(None)
    }

    /// What remains after a power cut of a volume that is mounted with these options.
    fn crash_promise(&self, _mount: &Options) -> CrashPromise {
        CrashPromise::Prefix
    }

    /// Whether blocks of a kind carry a checksum, so that a wrong bit in one is seen.
    fn has_checksum(&self, kind: Kind) -> bool {
        kind != Kind::Data
    }

    /// Whether calls overlap: `false` where one lock is held from the beginning of nearly each to its end, so that
    /// there is little but their order to be explored.
    fn overlaps_calls(&self) -> bool {
        true
    }

    /// Whether the device holds a volume of this engine, and what its superblock says. Damage
    /// that leaves the magic intact is an error, a foreign device is `None`.
    fn probe(&self, device: &dyn Device) -> Result<Option<VolumeInfo>>;

    /// Whether a volume of this engine seems to lie here although [`Engine::probe`] sees none:
    /// its superblock is lost, something that replaces it is not. For the checker; may take long.
    fn search(&self, _device: &dyn Device) -> Result<bool> {
        Ok(false)
    }

    /// Makes an empty volume that fills the main device. It is durable on return.
    fn format(&self, devices: Devices, options: &FormatOptions) -> Result<()>;

    /// Mounts, after recovery if the volume was not unmounted.
    fn mount(&self, devices: Devices, options: &MountOptions, clock: Arc<dyn Clock>) -> Result<Arc<dyn FileSystem>>;

    /// Checks, and repairs if told to.
    fn check(&self, devices: Devices, options: &CheckOptions, progress: Progress<'_>) -> Result<CheckReport>;

    /// Checks one path and what it takes to get there, nothing else; repairs nothing.
    fn check_path(&self, _devices: Devices, _path: &[u8]) -> Result<CheckReport> {
        Err(Error::refused(format!("{} cannot check a single path", self.name())))
    }

    /// Reports where each structure and each piece of each file lies, on an unmounted volume, in
    /// no particular order. Bytes that no region covers are free.
    fn describe(&self, devices: &Devices, f: &mut dyn FnMut(Region)) -> Result<()>;

    /// How much of each segment of an unmounted volume is live; `None` where there are no segments.
    fn utilisation(&self, _devices: &Devices) -> Result<Option<Utilisation>> {
        Ok(None)
    }

    /// Reports the structures on the main device of an unmounted volume with their fields, for tests of damage; the
    /// default knows none.
    fn structures(&self, _devices: &Devices, _f: &mut dyn FnMut(Structure)) -> Result<()> {
        Ok(())
    }

    /// Recomputes the checksum of a structure after its bytes were changed, whatever they are now; for tests of damage.
    fn reseal(&self, _device: &dyn Device, _structure: &Structure) -> Result<()> {
        Ok(())
    }

    /// A structure of an unmounted volume as JSON: `what` is the engine's path to it, e.g.
    /// `["superblock"]`, `["inode", "129"]`. An unknown path is an error that lists the known ones.
    fn dump(&self, devices: &Devices, what: &[&str]) -> Result<serde_json::Value>;

    /// Changes the size of an unmounted volume; the main device is resized as needed.
    /// Survives a crash half-way.
    fn resize(&self, devices: Devices, size: u64, clock: Arc<dyn Clock>) -> Result<()>;

    /// Changes the size, in bytes, of the area for metadata of an unmounted volume, if they have one of their own. What it
    /// takes on the same device the area for data loses. Survives a crash half-way.
    fn resize_metadata(&self, _devices: Devices, _size: u64, _clock: Arc<dyn Clock>) -> Result<()> {
        Err(Error::refused(format!("{} has no area for metadata", self.name())))
    }
}

impl fmt::Debug for dyn Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
