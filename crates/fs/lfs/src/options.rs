//! Options of mkfs and mount.

use arbor_base::vfs::{Error, OptionSpec, Options, Result};

/// Options of mkfs.
pub(crate) const FORMAT: &[OptionSpec] = &[
    OptionSpec { key: "block", value: "SIZE", default: "8K", help: "Block size, 4K to 64K." },
    OptionSpec {
        key: "frag",
        value: "SIZE",
        default: "an eighth of a block",
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
    OptionSpec { key: "cache", value: "SIZE", default: "256M", help: "Memory for the buffer cache." },
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
];

/// Shapes of volumes and mounts that tests take beside the defaults.
pub(crate) const SHAPES: &[(&str, &str)] =
    &[("block=4K,segment=256K", ""), ("block=8K,frag=8K,segment=512K", "cache=2M"), ("block=16K,segment=1M", "")];

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
        let frag_shift = power(o, "frag", block / 8, block / 8, block)?;
        // A small volume needs segments to move between.
        let usual = (size / 64).next_power_of_two().clamp(256 << 10, 1 << 20).max(block * 16);
        let seg_shift = power(o, "segment", usual, (64 << 10).max(block * 16), 64 << 20)?;
        Ok(Format { block_shift, frag_shift, seg_shift })
    }
}

/// What mount was told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mount {
    pub cache_bytes: usize,
    pub dirty_bytes: Option<usize>,
    pub commit_ms: u64,
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
        Ok(Mount {
            cache_bytes: o.size("cache")?.unwrap_or(256 << 20).clamp(1 << 20, 1 << 40) as usize,
            dirty_bytes: o.size("dirty")?.map(|bytes| bytes as usize),
            commit_ms,
        })
    }
}
