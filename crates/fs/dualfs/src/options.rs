//! Options of mkfs and mount.

use crate::format::FIRST;
use crate::superblock::{LEAST_DATA, LEAST_SEGS};
use arbor_base::vfs::{Error, OptionSpec, Options, Result};
use arbor_kit::options::{self, CacheOptions};

/// Options of mkfs.
pub(crate) const FORMAT: &[OptionSpec] = &[
    OptionSpec { key: "block", value: "SIZE", default: "4K", help: "Block size, 4K to 64K." },
    OptionSpec {
        key: "segment",
        value: "SIZE",
        default: "1M, of small volumes less",
        help: "Size of a segment of the metadata log, 64K to 64M, at least 16 blocks.",
    },
    OptionSpec {
        key: "meta",
        value: "SIZE|N%",
        default: "10%, of small volumes more",
        help: "Size of the metadata area, or its share of the volume in per cent.",
    },
    OptionSpec {
        key: "datasize",
        value: "SIZE",
        default: "32M",
        help: "Size of a device for data that is made; of one that is there all is used.",
    },
    OptionSpec {
        key: "group",
        value: "SIZE",
        default: "as many blocks as a block has bits, of small volumes less",
        help: "Size of a group of data blocks.",
    },
];

/// Options of mount.
pub(crate) const MOUNT: &[OptionSpec] = &[
    options::CACHE_OF_CHUNKS,
    options::DIRTY,
    options::DIRTY_BUFFERS,
    options::COMMIT,
    OptionSpec {
        key: "modify",
        value: "overwrite|relocate",
        default: "overwrite",
        help: "Where contents go that change: from the second time on where they lie, without checksums, or always to free \
               blocks.",
    },
    OptionSpec {
        key: "sums",
        value: "on|off",
        default: "on",
        help: "With modify=overwrite, whether contents have checksums until they change; without they stay where they are.",
    },
    OptionSpec {
        key: "prefetch",
        value: "BLOCKS",
        default: "16",
        help: "Metadata blocks that a read of one brings into memory, 1 to 1024; 1: that one alone.",
    },
    OptionSpec {
        key: "relocate",
        value: "on|off",
        default: "on",
        help: "Whether metadata that were read are written to the log again.",
    },
    OptionSpec {
        key: "affinity",
        value: "PERCENT|off",
        default: "10",
        help: "How many per cent more free blocks the emptiest group has to have for a new directory to leave the group of \
               its parent, 0 to 10000; with `off` it always leaves it.",
    },
];

/// Shapes of volumes and mounts that tests take beside the defaults.
pub(crate) const TEST_CONFIGURATIONS: &[(&str, &str)] = &[
    ("segment=64K,group=1M", "modify=relocate,prefetch=1,affinity=off"),
    ("block=8K,segment=256K", "cache=2M,relocate=off,sums=off"),
    ("segment=64K,group=1M", "sums=off"),
];

/// What mkfs was told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    pub block_shift: u32,
    pub seg_shift: u32,
    pub segs: u32,
    pub group_blocks: u32,
}

impl Format {
    /// Of a volume on a device of `size` bytes, and perhaps one for data.
    pub fn parse(o: &Options, size: u64, data: Option<u64>) -> Result<Format> {
        o.check(FORMAT)?;
        let block_shift = options::shift(o, "block", 4 << 10, 4 << 10, 64 << 10)?;
        let block = 1u64 << block_shift;
        let heads = u64::from(FIRST) << block_shift;
        let meta = match data {
            None => meta_bytes(o, size)?,
            Some(_) if o.get("meta").is_some() => {
                return Err(Error::refused(
                    "option meta: with a device for data the metadata area is all of the other one",
                ));
            }
            Some(_) => size.saturating_sub(heads),
        };
        if data.is_none() && o.size("datasize")?.is_some() {
            return Err(Error::refused("option datasize: the volume has no device for data, as data=FILE names one"));
        }
        // A small area needs segments to move between.
        let usual = (meta / 64).next_power_of_two().clamp(64 << 10, 1 << 20).max(block * 16);
        let seg_shift = options::shift(o, "segment", usual, (64 << 10).max(block * 16), 64 << 20)?;
        let segs = (meta >> seg_shift).min(u64::from(u32::MAX)) as u32;
        if segs < LEAST_SEGS {
            let least = u64::from(LEAST_SEGS) << seg_shift;
            return Err(Error::refused(format!("the metadata area has {meta} bytes: {least} are the least")));
        }
        let data = data.unwrap_or(size.saturating_sub(meta + heads)) >> block_shift;
        if data < u64::from(LEAST_DATA) {
            return Err(Error::refused(format!("{size} bytes are too few: no room for {LEAST_DATA} data blocks")));
        }
        let most = block * 8;
        let usual = (data / 8).next_multiple_of(8).clamp(64, most);
        let group = o.size("group")?.map_or(usual, |bytes| bytes >> block_shift);
        if !(64..=most).contains(&group) || !group.is_multiple_of(8) {
            return Err(Error::refused(format!("option group: {group} blocks are not 64 to {most}, a multiple of 8")));
        }
        Ok(Format { block_shift, seg_shift, segs, group_blocks: group as u32 })
    }
}

/// Size of the metadata area.
fn meta_bytes(o: &Options, size: u64) -> Result<u64> {
    let share = |text: &str| {
        let number = text.parse::<u64>().ok().filter(|n| (1..=90).contains(n));
        number.ok_or_else(|| Error::refused(format!("option meta: {text:?} is not 1 to 90 per cent")))
    };
    match o.get("meta") {
        None => Ok((size / 10).max((8 << 20).min(size / 3))),
        Some(text) => match text.strip_suffix('%') {
            Some(percent) => Ok(size / 100 * share(percent)?),
            None => Ok(o.size("meta")?.unwrap_or(0)),
        },
    }
}

/// What mount was told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mount {
    pub cache_bytes: usize,
    pub dirty: options::Dirty,
    pub commit_ms: u64,
    /// Contents without a checksum are overwritten where they lie.
    pub overwrite: bool,
    /// New contents get a checksum.
    pub sums: bool,
    pub prefetch: u32,
    pub relocate: bool,
    /// Per cent of directory affinity.
    pub affinity: Option<u32>,
}

impl Mount {
    pub fn parse(o: &Options) -> Result<Mount> {
        o.check(MOUNT)?;
        let CacheOptions { cache_bytes, dirty, commit_ms } = CacheOptions::parse(o, 5000)?;
        let number = |key: &str, text: &str, range: std::ops::RangeInclusive<u32>| {
            let n = text.parse::<u32>().ok().filter(|n| range.contains(n));
            n.ok_or_else(|| {
                Error::refused(format!("option {key}: {text:?} is not {} to {}", range.start(), range.end()))
            })
        };
        let switch = |key: &str| match o.get(key) {
            None | Some("on") => Ok(true),
            Some("off") => Ok(false),
            Some(s) => Err(Error::refused(format!("option {key}: {s:?} is neither on nor off"))),
        };
        let (relocate, sums) = (switch("relocate")?, switch("sums")?);
        let overwrite = match o.get("modify") {
            None | Some("overwrite") => true,
            Some("relocate") => false,
            Some(s) => return Err(Error::refused(format!("option modify: {s:?} is neither overwrite nor relocate"))),
        };
        let affinity = match o.get("affinity") {
            None => Some(10),
            Some("off") => None,
            Some(s) => Some(number("affinity", s, 0..=10_000)?),
        };
        let prefetch = o.get("prefetch").map_or(Ok(16), |s| number("prefetch", s, 1..=1024))?;
        Ok(Mount { cache_bytes, dirty, commit_ms, overwrite, sums, prefetch, relocate, affinity })
    }
}
