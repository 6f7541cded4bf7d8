//! Options of mkfs and mount.

use arbor_base::vfs::{Error, OptionSpec, Options, Result};
use arbor_kit::options::{self, CacheOptions};

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
    options::CACHE_OF_CHUNKS,
    options::DIRTY,
    options::DIRTY_BUFFERS,
    options::COMMIT,
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
pub(crate) const TEST_CONFIGURATIONS: &[(&str, &str)] =
    &[("block=4K,segment=64K", ""), ("block=8K,frag=8K,segment=512K", "cache=2M"), ("block=16K,segment=512K", "")];

/// What mkfs was told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    pub block_shift: u32,
    pub frag_shift: u32,
    pub seg_shift: u32,
}

impl Format {
    pub fn parse(o: &Options, size: u64) -> Result<Format> {
        o.check(FORMAT)?;
        let block_shift = options::shift(o, "block", 8 << 10, 4 << 10, 64 << 10)?;
        let block = 1u64 << block_shift;
        // A large volume needs larger ones, since 32 bits count them.
        let least = (size >> 32).saturating_add(1).next_power_of_two();
        let frag_shift = options::shift(o, "frag", least.clamp(block / 8, block), block / 8, block)?;
        // A small volume needs segments to move between.
        let usual = (size / 64).next_power_of_two().clamp(256 << 10, 1 << 20).max(block * 16);
        let seg_shift = options::shift(o, "segment", usual, (64 << 10).max(block * 16), 64 << 20)?;
        Ok(Format { block_shift, frag_shift, seg_shift })
    }
}

/// How the cleaner chooses segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Those most worth cleaning.
    #[default]
    CostBenefit,
    /// The emptiest.
    Greedy,
    /// Those most worth cleaning, and only when a caller finds no room.
    Off,
}

/// What mount was told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mount {
    pub cache_bytes: usize,
    pub dirty: options::Dirty,
    pub commit_ms: u64,
    pub clean: Policy,
    pub agesort: bool,
}

impl Mount {
    pub fn parse(o: &Options) -> Result<Mount> {
        o.check(MOUNT)?;
        let CacheOptions { cache_bytes, dirty, commit_ms } = CacheOptions::parse(o, 5000)?;
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
        Ok(Mount { cache_bytes, dirty, commit_ms, clean, agesort })
    }
}
