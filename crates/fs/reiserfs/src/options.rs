//! Options of mkfs and mount.

use crate::format::{Geom, LEAST_NODE, MOST_NODE};
use arbor_base::vfs::{Error, OptionSpec, Options, Result};
use arbor_kit::options::{CACHE, CacheOptions, DIRTY, DIRTY_BUFFERS, Dirty, shift};

/// Options of mkfs.
pub(crate) const FORMAT: &[OptionSpec] = &[
    OptionSpec { key: "block", value: "SIZE", default: "4K", help: "Size of a node, and of a block, 1K to 32K." },
    OptionSpec {
        key: "log",
        value: "SIZE",
        default: "1/16 of the volume, 256 to 8192 blocks",
        help: "Size of the log, at least 256 blocks, of 1K at least 512.",
    },
];

/// Options of mount.
pub(crate) const MOUNT: &[OptionSpec] = &[
    CACHE,
    DIRTY,
    DIRTY_BUFFERS,
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
    OptionSpec { key: "readahead", value: "", default: "on", help: "Read what lies beside a block together with it." },
    OptionSpec {
        key: "noreadahead",
        value: "",
        default: "",
        help: "Read blocks, and runs of one file, by themselves.",
    },
    OptionSpec {
        key: "layout",
        value: "left|first|last|up|areas|virtual",
        default: "left",
        help: "Where the search for a free block begins: at the left neighbour, in the elevator's direction; at the \
               beginning of the volume; at the block taken last; at the left neighbour, upwards; the same with unformatted \
               nodes in an area of their own; at the neighbour in the locality by kind.",
    },
    OptionSpec {
        key: "balance",
        value: "early|least",
        default: "early",
        help: "When a full node is split: if its neighbours have little room for it, where it grows; or only if they have \
               none, so that there are as few nodes as can be (paper).",
    },
    OptionSpec {
        key: "listing",
        value: "object|hash",
        default: "object",
        help: "In which order a directory is listed: a small one in that of the objects that it names, in which they lie; or \
               all in that of the hashes of names (version 3.6).",
    },
    OptionSpec {
        key: "ordering",
        value: "journal|preserve",
        default: "journal",
        help: "How nodes get to the device: all through the log; or new ones straight to their places, and a node moves \
               when items are shifted out of it (the preserve list of the paper).",
    },
];

/// Shapes of volumes and mounts that tests take beside the defaults.
pub(crate) const TEST_CONFIGURATIONS: &[(&str, &str)] = &[
    ("block=1K,log=512K", "cache=1M,tails=all,ordering=preserve,layout=virtual,noreadahead"),
    ("log=1M", "tails=none,cache=2M"),
    ("block=8K,log=4M", "tails=all,layout=last,noreadahead,balance=least,listing=hash"),
    ("log=1M", "ordering=preserve,layout=areas"),
    ("block=1K,log=512K", ""),
];

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
        let most = Geom { node_size, ..Geom::default() }.most_log();
        // A call may change a list of attributes, which takes more of the smallest nodes.
        let least = if node_size == LEAST_NODE { 2 * LEAST_LOG } else { LEAST_LOG };
        let usual = (size / node_size as u64 / 16).clamp(least.into(), USUAL_LOG.min(most).into());
        let log = o.size("log")?.map_or(usual, |bytes| bytes / node_size as u64);
        if !(u64::from(least)..=u64::from(most)).contains(&log) {
            return Err(Error::refused(format!("option log: {log} blocks are not from {least} to {most}")));
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

/// Where the search for a free block begins (paper, "Node Layout" and "Drops").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// At the left neighbour, in the elevator's direction.
    Left,
    /// At the beginning of the volume.
    First,
    /// At the block that was taken last, in the elevator's direction.
    Last,
    /// At the left neighbour, in the direction of the right one.
    Up,
    /// As `Left`, but unformatted nodes of all files lie behind one another, in the last seven eighths of the volume.
    Areas,
    /// A formatted node that begins with a tail goes near the unformatted nodes of that file; otherwise as `Left`.
    Virtual,
}

/// When a full node is split (paper, "Node Balancing Optimizations"; decision 24).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Balance {
    /// If it and its neighbours would be full again soon.
    Early,
    /// If it and its neighbours have no room.
    Least,
}

/// In which order directories are listed (decision 37).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listing {
    /// Small ones in the order of objects.
    Object,
    /// All in the order of hashes.
    Hash,
}

/// How changed nodes get to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ordering {
    /// All of them through the log (version 3.6).
    Journal,
    /// Those in new places straight there; a node moves when items are shifted out of it (paper).
    Preserve,
}

/// What mount was told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mount {
    pub cache_bytes: usize,
    pub dirty: Dirty,
    pub commit_ms: u64,
    pub tails: Tails,
    pub readahead: bool,
    pub layout: Layout,
    pub ordering: Ordering,
    pub balance: Balance,
    pub listing: Listing,
}

impl Mount {
    pub fn parse(o: &Options) -> Result<Mount> {
        o.check(MOUNT)?;
        let CacheOptions { cache_bytes, dirty, commit_ms } = CacheOptions::parse(o, 5000)?;
        let tails = match o.get("tails") {
            None | Some("small") => Tails::Small,
            Some("none") => Tails::None,
            Some("all") => Tails::All,
            Some(other) => return Err(Error::refused(format!("option tails: {other:?} is not none, small or all"))),
        };
        let ordering = match o.get("ordering") {
            None | Some("journal") => Ordering::Journal,
            Some("preserve") => Ordering::Preserve,
            Some(other) => {
                return Err(Error::refused(format!("option ordering: {other:?} is not journal or preserve")));
            }
        };
        let balance = match o.get("balance") {
            None | Some("early") => Balance::Early,
            Some("least") => Balance::Least,
            Some(other) => return Err(Error::refused(format!("option balance: {other:?} is not early or least"))),
        };
        let listing = match o.get("listing") {
            None | Some("object") => Listing::Object,
            Some("hash") => Listing::Hash,
            Some(other) => return Err(Error::refused(format!("option listing: {other:?} is not object or hash"))),
        };
        let last = o.0.iter().rev().find(|(k, _)| k.trim_start_matches("no") == "readahead");
        let readahead = last.is_none_or(|(k, _)| k == "readahead");
        let layout = Layout::parse(o)?;
        Ok(Mount { cache_bytes, dirty, commit_ms, tails, readahead, layout, ordering, balance, listing })
    }
}

impl Layout {
    fn parse(o: &Options) -> Result<Layout> {
        Ok(match o.get("layout") {
            None | Some("left") => Layout::Left,
            Some("first") => Layout::First,
            Some("last") => Layout::Last,
            Some("up") => Layout::Up,
            Some("areas") => Layout::Areas,
            Some("virtual") => Layout::Virtual,
            Some(other) => {
                let known = "left, first, last, up, areas or virtual";
                return Err(Error::refused(format!("option layout: {other:?} is not {known}")));
            }
        })
    }
}
