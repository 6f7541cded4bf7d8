//! Options of mkfs and mount.

use crate::format::{BITS, BLOCK};
use crate::superblock::STRIDES;
use arbor_base::device::{Kind, Medium};
use arbor_base::vfs::{CrashPromise, Error, OptionSpec, Options, Result};
use arbor_kit::options::{CACHE_OF_CHUNKS, CacheOptions, DIRTY, DIRTY_BUFFERS, Dirty};

/// The usual [`Mount::run`].
const RUN: u32 = 4;

/// The greatest [`Mount::retain`].
const MOST_RETAINED: u64 = 1024;

/// Options of mkfs.
pub(crate) const FORMAT: &[OptionSpec] = &[OptionSpec {
    key: "stride",
    value: "N",
    default: "1024; of large volumes as many as make 4096 reserved blocks, of small ones an eighth",
    help: "Every so many blocks one is reserved for master blocks, 16 to 1048576.",
}];

/// Options of mount.
pub(crate) const MOUNT: &[OptionSpec] = &[
    CACHE_OF_CHUNKS,
    DIRTY,
    DIRTY_BUFFERS,
    OptionSpec {
        key: "buffers",
        value: "N",
        default: "as many as the cache has room for",
        help: "Most blocks in the cache, at least 32.",
    },
    OptionSpec { key: "commit", value: "SECONDS", default: "5", help: "Greatest age of changes in memory." },
    OptionSpec { key: "sync", value: "", default: "", help: "Synchronous mode: each call is committed." },
    OptionSpec {
        key: "modify",
        value: "overwrite|relocate|adaptive",
        default: "relocate",
        help: "What is done with a block that changes, unless the option of its category says otherwise.",
    },
    OptionSpec {
        key: "data",
        value: "overwrite|relocate|adaptive",
        default: "modify",
        help: "Blocks of files and symbolic links.",
    },
    OptionSpec { key: "dirs", value: "overwrite|relocate|adaptive", default: "modify", help: "Blocks of directories." },
    OptionSpec {
        key: "inodes",
        value: "overwrite|relocate|adaptive",
        default: "modify",
        help: "Blocks of the ifile, attributes.",
    },
    OptionSpec { key: "maps", value: "overwrite|relocate|adaptive", default: "modify", help: "Indirect blocks." },
    OptionSpec {
        key: "bitmaps",
        value: "overwrite|relocate|adaptive",
        default: "modify",
        help: "Blocks of the dBitmap and iBitmap.",
    },
    OptionSpec {
        key: "run",
        value: "BLOCKS",
        default: "4",
        help: "Adaptive: contents move where so many blocks are free together, those that are hot where a quarter of that is.",
    },
    OptionSpec {
        key: "device",
        value: "auto|disk|pages|BYTES",
        default: "auto",
        help: "What the device is: a disk; an SSD that maps pages; flash that maps blocks of so many bytes; or what it says \
               itself.",
    },
    OptionSpec {
        key: "place",
        value: "runs|units",
        default: "units if anything is adaptive",
        help: "Where relocated blocks go: to long free runs, or where most blocks are free that the device writes together.",
    },
    OptionSpec {
        key: "gather",
        value: "idle|off",
        default: "idle",
        help: "Whether free blocks are gathered to long runs while the volume is idle; not with `retain`, since it makes commits.",
    },
    OptionSpec {
        key: "retain",
        value: "COMMITS",
        default: "1",
        help: "So many of the last commits stay as they are, fewer than there are reserved blocks; with more than 1 everything is \
               relocated.",
    },
    OptionSpec {
        key: "commit_at",
        value: "NUMBER",
        default: "",
        help: "Mounts an older commit, read-only; `info` tells which are there.",
    },
    OptionSpec {
        key: "redo",
        value: "all|metadata|none",
        default: "metadata",
        help: "What is in the redo list of a commit when it is overwritten: contents too; metadata; nothing, and after a \
               crash the volume needs fsck.",
    },
];

/// The fewest blocks of a cache: a change and all that it relocates.
const MIN_BUFFERS: u64 = 32;

/// Shapes of volumes and mounts that tests take beside the defaults.
pub(crate) const TEST_CONFIGURATIONS: &[(&str, &str)] = &[
    ("", "modify=overwrite"),
    ("stride=16", "cache=1M,buffers=32,data=overwrite,bitmaps=overwrite"),
    ("stride=64", "sync"),
    ("", "sync,modify=overwrite,redo=all"),
    ("stride=32", "modify=adaptive,run=4"),
    ("stride=16", "retain=5"),
    ("", "modify=adaptive,device=64K,run=8"),
    ("stride=64", "modify=adaptive,device=pages"),
];

/// What mkfs was told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    pub stride: u32,
}

impl Format {
    /// `blocks`: those of the volume.
    pub fn parse(o: &Options, blocks: u32) -> Result<Format> {
        o.check(FORMAT)?;
        let usual = (blocks / 8).min((blocks / 4096).max(1024)).max(*STRIDES.start());
        let stride = o.size("stride")?.unwrap_or(usual.next_power_of_two().into());
        match u32::try_from(stride).ok().filter(|n| STRIDES.contains(n)) {
            Some(stride) => Ok(Format { stride }),
            None => Err(Error::refused(format!("option stride: {stride} is not from 16 to 1048576"))),
        }
    }
}

/// What is done with a block that changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Modify {
    #[default]
    Relocate,
    Overwrite,
    Adaptive,
}

/// What is in the redo list when it is overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logging {
    All,
    Metadata,
    /// Nothing is ordered before the commit.
    None,
}

/// What mount was told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mount {
    pub cache_bytes: usize,
    pub dirty: Dirty,
    pub buffers: usize,
    pub commit_ms: u64,
    pub sync: bool,
    /// So many blocks have to be free where contents move to.
    pub run: u32,
    pub redo: Logging,
    /// So many of the last commits stay intact.
    pub retain: u64,
    pub commit_at: Option<u64>,
    /// What the device is good at, if it was told.
    pub device: Option<Medium>,
    /// Whether relocated blocks go to units, not runs.
    pub units: bool,
    /// Whether free blocks are gathered when the volume is idle.
    pub gather: bool,
    data: Modify,
    dirs: Modify,
    inodes: Modify,
    maps: Modify,
    bitmaps: Modify,
}

impl Mount {
    pub fn parse(o: &Options) -> Result<Mount> {
        o.check(MOUNT)?;
        let CacheOptions { cache_bytes, dirty, commit_ms } = CacheOptions::parse(o, 5000)?;
        let buffers = match o.size("buffers")? {
            Some(n) if n < MIN_BUFFERS => {
                return Err(Error::refused(format!("option buffers: {n} are too few, {MIN_BUFFERS} are the least")));
            }
            n => n.map_or(usize::MAX, |n| n as usize),
        };
        let modify = of(o, "modify", Modify::default())?;
        let [data, dirs] = [of(o, "data", modify)?, of(o, "dirs", modify)?];
        let [inodes, maps, bitmaps] = [of(o, "inodes", modify)?, of(o, "maps", modify)?, of(o, "bitmaps", modify)?];
        let sync = o.get("sync").is_some();
        let run = o.size("run")?.map_or(Ok(RUN), |run| {
            let run = u32::try_from(run).ok().filter(|run| (1..=BITS).contains(run));
            run.ok_or_else(|| Error::refused(format!("option run: not from 1 to {BITS}")))
        })?;
        let (redo, retain, commit_at) = (redo(o)?, o.size("retain")?.unwrap_or(1), o.size("commit_at")?);
        if !(1..=MOST_RETAINED).contains(&retain) {
            return Err(Error::refused(format!("option retain: not from 1 to {MOST_RETAINED}")));
        }
        if retain > 1 && [data, dirs, inodes, maps, bitmaps].iter().any(|m| *m != Modify::Relocate) {
            return Err(Error::refused("option retain: older commits stay only where everything is relocated"));
        }
        let is_adaptive = [data, dirs, inodes, maps, bitmaps].contains(&Modify::Adaptive);
        let (device, units, gather) = (device(o)?, place(o, is_adaptive)?, gather(o)? && retain == 1);
        Ok(Mount {
            device,
            units,
            gather,
            cache_bytes,
            dirty,
            buffers,
            commit_ms,
            sync,
            run,
            redo,
            retain,
            commit_at,
            data,
            dirs,
            inodes,
            maps,
            bitmaps,
        })
    }

    /// What is done with blocks of a kind.
    pub fn modify(&self, kind: Kind) -> Modify {
        match kind {
            Kind::Dir => self.dirs,
            Kind::Inode | Kind::Xattr => self.inodes,
            Kind::Tree => self.maps,
            Kind::Bitmap => self.bitmaps,
            _ => self.data,
        }
    }
}

fn of(o: &Options, key: &str, otherwise: Modify) -> Result<Modify> {
    match o.get(key) {
        None => Ok(otherwise),
        Some("overwrite") => Ok(Modify::Overwrite),
        Some("relocate") => Ok(Modify::Relocate),
        Some("adaptive") => Ok(Modify::Adaptive),
        Some(other) => Err(Error::refused(format!("option {key}: {other:?} is not overwrite, relocate or adaptive"))),
    }
}

/// Block-mapped flash of which no more is known takes writes to a few of its blocks at any time.
const FEW_OPEN: u32 = 4;

fn device(o: &Options) -> Result<Option<Medium>> {
    match o.get("device") {
        None | Some("auto") => Ok(None),
        Some("disk") => Ok(Some(Medium::Disk)),
        Some("pages") => Ok(Some(Medium::Pages)),
        Some(_) => {
            let bytes = o.size("device")?.and_then(|bytes| u32::try_from(bytes).ok());
            let bytes = bytes.filter(|bytes| *bytes >= BLOCK as u32).ok_or_else(|| {
                Error::refused("option device: a block of flash has at least 4 KiB, and less than 4 GiB")
            })?;
            Ok(Some(Medium::Blocks { bytes, open: FEW_OPEN }))
        }
    }
}

fn place(o: &Options, is_adaptive: bool) -> Result<bool> {
    match o.get("place") {
        None => Ok(is_adaptive),
        Some("runs") => Ok(false),
        Some("units") => Ok(true),
        Some(other) => Err(Error::refused(format!("option place: {other:?} is not runs or units"))),
    }
}

fn gather(o: &Options) -> Result<bool> {
    match o.get("gather") {
        None | Some("idle") => Ok(true),
        Some("off") => Ok(false),
        Some(other) => Err(Error::refused(format!("option gather: {other:?} is not idle or off"))),
    }
}

fn redo(o: &Options) -> Result<Logging> {
    match o.get("redo") {
        None | Some("metadata") => Ok(Logging::Metadata),
        Some("all") => Ok(Logging::All),
        Some("none") => Ok(Logging::None),
        Some(other) => Err(Error::refused(format!("option redo: {other:?} is not all, metadata or none"))),
    }
}

/// What remains after a power cut of a volume that is mounted with these options.
pub(crate) fn crash_promise(o: &Options) -> CrashPromise {
    if redo(o).is_ok_and(|redo| redo == Logging::None) { CrashPromise::Repairable } else { CrashPromise::Prefix }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_may_be_counted_in_blocks() {
        let parse = |text: &str| Mount::parse(&Options::parse(text)).map(|mount| mount.buffers);
        assert_eq!((parse("").unwrap(), parse("buffers=64").unwrap()), (usize::MAX, 64));
        let refused = parse("buffers=31").unwrap_err().to_string();
        assert_eq!(refused, "option buffers: 31 are too few, 32 are the least");
    }

    #[test]
    fn a_device_may_be_told() {
        let parse = |text: &str| Mount::parse(&Options::parse(text)).map(|mount| (mount.device, mount.units));
        assert_eq!(parse("").unwrap(), (None, false));
        assert_eq!(parse("modify=adaptive,device=disk").unwrap(), (Some(Medium::Disk), true));
        assert_eq!(parse("data=adaptive,device=pages,place=runs").unwrap(), (Some(Medium::Pages), false));
        let flash = Medium::Blocks { bytes: 512 << 10, open: FEW_OPEN };
        assert_eq!(parse("device=512K,place=units").unwrap(), (Some(flash), true));
        assert_eq!(parse("device=auto").unwrap().0, None);
        assert!(parse("device=3").is_err() && parse("device=4G").is_err());
        for refused in ["device=tape", "device=8G", "place=holes"] {
            assert!(parse(refused).unwrap_err().to_string().starts_with("option "), "{refused}");
        }
    }
}
