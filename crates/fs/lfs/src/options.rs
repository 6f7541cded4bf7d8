//! Options of mkfs and mount.

use arbor_base::vfs::{Error, OptionSpec, Options, Result};

/// Options of mkfs.
pub(crate) const FORMAT: &[OptionSpec] = &[
    OptionSpec { key: "block", value: "SIZE", default: "8K", help: "Block size, 4K to 64K." },
    OptionSpec {
        key: "frag",
        value: "SIZE",
        default: "an eighth of a block, more from 4 TiB on",
        help: "Fragment size, an eighth of a block to a whole one.",
    },
    OptionSpec {
        key: "segment",
        value: "SIZE",
        default: "1M, of small volumes less",
        help: "Segment size, 64K to 64M, at least 16 blocks.",
    },
];

/// Options of mount.
pub(crate) const MOUNT: &[OptionSpec] = &[
    OptionSpec {
        key: "cache",
        value: "SIZE",
        default: "256M",
        help: "Memory limit of the buffer cache, at least 1M. Directories of more than 6,500 names for each MiB of it are \
               searched from their beginning.",
    },
    OptionSpec {
        key: "dirty",
        value: "SIZE",
        default: "a quarter of the cache",
        help: "Changed data in memory before some is written.",
    },
    OptionSpec {
        key: "commit",
        value: "SECONDS",
        default: "5",
        help: "How long changes may wait in memory, 1 to 3600.",
    },
    OptionSpec {
        key: "clean",
        value: "POLICY",
        default: "cost-benefit",
        help: "Which segments are cleaned: cost-benefit, greedy, or off: in the background none.",
    },
    OptionSpec {
        key: "agesort",
        value: "on|off",
        default: "on",
        help: "Whether what the cleaner moves is sorted by its age.",
    },
];

/// Shapes of volumes and mounts that tests take beside the defaults.
pub(crate) const SHAPES: &[(&str, &str)] =
    &[("block=4K,segment=64K", ""), ("block=8K,frag=8K,segment=512K", "cache=2M"), ("block=16K,segment=512K", "")];

/// Smallest cache, bytes.
const MIN_CACHE: u64 = 1 << 20;

/// What mkfs was told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    pub block_shift: u32,
    pub frag_shift: u32,
    pub seg_shift: u32,
}

fn power(o: &Options, key: &str, default: u64, from: u64, to: u64) -> Result<u32> {
    let value = o.size(key)?.unwrap_or(default);
    if !value.is_power_of_two() || !(from..=to).contains(&value) {
        return Err(Error::refused(format!("option {key}: {value} is not a power of two from {from} to {to}")));
    }
    Ok(value.trailing_zeros())
}

impl Format {
    pub fn parse(o: &Options, size: u64) -> Result<Format> {
        o.check(FORMAT)?;
        let block_shift = power(o, "block", 8 << 10, 4 << 10, 64 << 10)?;
        let block = 1u64 << block_shift;
        // A large volume needs larger ones, since 32 bits count them.
        let least = (size >> 32).saturating_add(1).next_power_of_two();
        let frag_shift = power(o, "frag", least.clamp(block / 8, block), block / 8, block)?;
        // A small volume needs segments to move between.
        let usual = (size / 64).next_power_of_two().clamp(256 << 10, 1 << 20).max(block * 16);
        let seg_shift = power(o, "segment", usual, (64 << 10).max(block * 16), 64 << 20)?;
        Ok(Format { block_shift, frag_shift, seg_shift })
    }
}

/// Which segments the cleaner chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Those that are worth most.
    #[default]
    CostBenefit,
    /// The emptiest.
    Greedy,
    /// Those that are worth most, and only when a caller finds no room.
    Off,
}

/// What mount was told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mount {
    pub cache_bytes: usize,
    pub dirty_bytes: Option<usize>,
    pub commit_ms: u64,
    pub clean: Policy,
    pub agesort: bool,
}

impl Mount {
    pub fn parse(o: &Options) -> Result<Mount> {
        o.check(MOUNT)?;
        let commit_ms = match o.get("commit") {
            None => 5000,
            Some(s) => s
                .parse::<u64>()
                .ok()
                .filter(|s| (1..=3600).contains(s))
                .ok_or_else(|| Error::refused(format!("option commit: {s:?} is not 1 to 3600 seconds")))?
                .saturating_mul(1000),
        };
        let clean = match o.get("clean") {
            None | Some("cost-benefit") => Policy::CostBenefit,
            Some("greedy") => Policy::Greedy,
            Some("off") => Policy::Off,
            Some(s) => {
                return Err(Error::refused(format!("option clean: {s:?} is none of cost-benefit, greedy, off")));
            }
        };
        let agesort = match o.get("agesort") {
            None | Some("on") => true,
            Some("off") => false,
            Some(s) => return Err(Error::refused(format!("option agesort: {s:?} is neither on nor off"))),
        };
        Ok(Mount {
            cache_bytes: o.size_from("cache", MIN_CACHE)?.unwrap_or(256 << 20).min(1 << 40) as usize,
            dirty_bytes: o.size("dirty")?.map(|bytes| bytes as usize),
            commit_ms,
            clean,
            agesort,
        })
    }
}
