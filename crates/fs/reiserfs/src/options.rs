//! Options of mkfs and mount.

use crate::format::{LEAST_NODE, MOST_NODE};
use arbor_base::vfs::{Error, OptionSpec, Options, Result};
use arbor_kit::options::{CACHE, CacheOptions, DIRTY, shift};

/// Options of mkfs.
pub(crate) const FORMAT: &[OptionSpec] = &[
    OptionSpec { key: "block", value: "SIZE", default: "4K", help: "Size of a node, and of a block, 1K to 32K." },
    OptionSpec {
        key: "log",
        value: "SIZE",
        default: "1/16 of the volume, 256 to 8192 blocks",
        help: "Size of the log, at least 256 blocks.",
    },
];

/// Options of mount.
pub(crate) const MOUNT: &[OptionSpec] = &[
    CACHE,
    DIRTY,
    OptionSpec {
        key: "commit",
        value: "SECONDS",
        default: "5",
        help: "Greatest age of changes that are not durable, 1 to 3600.",
    },
    OptionSpec {
        key: "tails",
        value: "none|small|all",
        default: "small",
        help: "Which ends of files are kept in the tree: none; those that save much of their block; all that fit a node.",
    },
];

/// Shapes of volumes and mounts that tests take beside the defaults.
pub(crate) const TEST_CONFIGURATIONS: &[(&str, &str)] =
    &[("block=1K,log=512K", "cache=1M,tails=all"), ("log=1M", "tails=none,cache=2M"), ("block=8K,log=4M", "tails=all")];

/// Least log, in blocks.
pub(crate) const LEAST_LOG: u32 = 256;
/// Greatest log unless an option says otherwise, in blocks.
const USUAL_LOG: u32 = 8192;

/// What mkfs was told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    pub node_size: usize,
    /// Blocks of the log.
    pub log: u32,
}

impl Format {
    /// `size`: bytes of the device.
    pub fn parse(o: &Options, size: u64) -> Result<Format> {
        o.check(FORMAT)?;
        let node_size = 1usize << shift(o, "block", 4096, LEAST_NODE as u64, MOST_NODE as u64)?;
        let most = (node_size as u32 - 32) * 2;
        let usual = (size / node_size as u64 / 16).clamp(LEAST_LOG.into(), USUAL_LOG.min(most).into());
        let log = o.size("log")?.map_or(usual, |bytes| bytes / node_size as u64);
        if !(u64::from(LEAST_LOG)..=u64::from(most)).contains(&log) {
            return Err(Error::refused(format!("option log: {log} blocks are not from {LEAST_LOG} to {most}")));
        }
        Ok(Format { node_size, log: log as u32 })
    }
}

/// Which tails are kept in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tails {
    /// None, but for targets of symbolic links.
    None,
    /// Those that save much of their block (the rule of version 3.6).
    Small,
    /// All that fit a node (paper).
    All,
}

/// What mount was told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mount {
    pub cache_bytes: usize,
    pub dirty_bytes: Option<usize>,
    pub commit_ms: u64,
    pub tails: Tails,
}

impl Mount {
    pub fn parse(o: &Options) -> Result<Mount> {
        o.check(MOUNT)?;
        let CacheOptions { cache_bytes, dirty_bytes, commit_ms } = CacheOptions::parse(o, 5000)?;
        let tails = match o.get("tails") {
            None | Some("small") => Tails::Small,
            Some("none") => Tails::None,
            Some("all") => Tails::All,
            Some(other) => return Err(Error::refused(format!("option tails: {other:?} is not none, small or all"))),
        };
        Ok(Mount { cache_bytes, dirty_bytes, commit_ms, tails })
    }
}
