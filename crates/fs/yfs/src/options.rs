//! Options of `mkfs` and `mount`, described once.

use arbor_base::vfs::{Error, OptionSpec, Options, Result};
use arbor_kit::options::{self, CacheOptions};

/// Options of mkfs.
pub const FORMAT: &[OptionSpec] = &[
    OptionSpec {
        key: "block",
        value: "SIZE",
        default: "4K",
        help: "Block size: tree nodes and directory blocks, 1K to 64K.",
    },
    OptionSpec {
        key: "frag",
        value: "SIZE",
        default: "1K",
        help: "Fragment size, the unit of allocation, 512 to 16K.",
    },
    OptionSpec {
        key: "inode",
        value: "SIZE",
        default: "512",
        help: "Inode size, 512 to 2K: larger ones hold larger files inline.",
    },
    OptionSpec {
        key: "ag",
        value: "SIZE",
        default: "a sixteenth of the volume, 16M to 1G",
        help: "Size of an allocation group.",
    },
    OptionSpec {
        key: "logsize",
        value: "SIZE",
        default: "1/32 of the volume, at most 32M",
        help: "Size of the log (of an external log: all of its device).",
    },
    OptionSpec {
        key: "avgfilesize",
        value: "SIZE",
        default: "16K",
        help: "Average file size, for directory space reservation.",
    },
    OptionSpec {
        key: "avgfpdir",
        value: "N",
        default: "64",
        help: "Average number of files in a directory, likewise.",
    },
    OptionSpec {
        key: "groups",
        value: "lazy|all",
        default: "lazy",
        help: "When allocation groups come into use: one after the other as they are needed, or all at once.",
    },
    OptionSpec {
        key: "maxblkpg",
        value: "N",
        default: "half of an allocation group",
        help: "Blocks of one file in a row in one allocation group.",
    },
];

/// Options of mount.
pub const MOUNT: &[OptionSpec] = &[
    options::CACHE,
    options::DIRTY,
    options::DIRTY_BUFFERS,
    OptionSpec {
        key: "commit",
        value: "SECONDS",
        default: "5",
        help: "Greatest age of data and log records in memory.",
    },
    OptionSpec {
        key: "discard",
        value: "",
        default: "on",
        help: "Give freed space back to the device; of much in small pieces the longest runs, the rest with a trim.",
    },
    OptionSpec {
        key: "nowindows",
        value: "",
        default: "",
        help: "Read ahead of files only, not what lies beside metadata and small files that are read.",
    },
    OptionSpec {
        key: "nodelay",
        value: "",
        default: "",
        help: "Allocate the space of a file that has blocks as it is written, not when it is written back.",
    },
    OptionSpec {
        key: "noinline",
        value: "",
        default: "",
        help: "Put nothing new into inodes: small files and directories have blocks.",
    },
    OptionSpec {
        key: "nocompound",
        value: "",
        default: "",
        help: "Log the transaction of each call by itself, not several as one.",
    },
    OptionSpec { key: "nodiscard", value: "", default: "", help: "Keep freed space allocated on the device." },
];

/// See [`Engine::shapes`](arbor_base::vfs::Engine::shapes): the defaults, the paper's sizes, the
/// smallest, the largest, large inodes.
pub const TEST_CONFIGURATIONS: &[(&str, &str)] = &[
    ("", ""),
    ("block=16K,frag=2K", ""),
    ("block=1K,frag=512,logsize=704K", "cache=1M"),
    ("block=64K,frag=16K,inode=2K,ag=16M", "cache=2M"),
    ("inode=1K,logsize=960K,ag=16M", "cache=1M,nodiscard"),
    ("groups=all,ag=16M", "cache=2M,nowindows,nodelay,noinline,nocompound"),
];

/// Mount options, parsed.
#[derive(Clone, Copy, Debug)]
pub struct Mount {
    /// Memory limit of the cache in bytes.
    pub cache_bytes: usize,
    /// What may be dirty.
    pub dirty: options::Dirty,
    /// Greatest age of dirty data and log buffers, milliseconds.
    pub commit_ms: u64,
    /// Discard freed space.
    pub discard: bool,
    /// What lies beside what is read is read too.
    pub windows: bool,
    /// How changes are made.
    pub ways: Ways,
}

/// How changes are made; each can be switched off to see what it brings.
#[derive(Clone, Copy, Debug)]
pub struct Ways {
    /// Space is allocated when data are written back.
    pub delays: bool,
    /// What is small is put into inodes.
    pub inline: bool,
    /// The transactions of several calls are logged as one.
    pub compound: bool,
}

impl Default for Ways {
    fn default() -> Ways {
        Ways { delays: true, inline: true, compound: true }
    }
}

impl Mount {
    /// Parses and checks.
    pub fn parse(o: &Options) -> Result<Mount> {
        o.check(MOUNT)?;
        let CacheOptions { cache_bytes, dirty, commit_ms } = CacheOptions::parse(o, 5000)?;
        let discard = o.0.iter().rev().find(|(k, _)| k.ends_with("discard")).is_none_or(|(k, _)| k == "discard");
        let is_on = |switch_off| o.get(switch_off).is_none();
        let ways = Ways { delays: is_on("nodelay"), inline: is_on("noinline"), compound: is_on("nocompound") };
        Ok(Mount { cache_bytes, dirty, commit_ms, discard, windows: is_on("nowindows"), ways })
    }
}

/// Format options, parsed; what depends on the size of the device is still open.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// log2 of the block size.
    pub block_shift: u32,
    /// log2 of the fragment size.
    pub frag_shift: u32,
    /// log2 of the inode size.
    pub inode_shift: u32,
    /// AG size in bytes.
    pub ag: Option<u64>,
    /// Log size in bytes.
    pub log: Option<u64>,
    /// Average file size in bytes.
    pub avg_file_size: u32,
    /// Average files in a directory.
    pub avg_files_per_dir: u32,
    /// Blocks of one file in one AG.
    pub maxblkpg: Option<u32>,
    /// All AGs are in use from the beginning.
    pub all_groups: bool,
}

impl Format {
    /// Parses and checks.
    pub fn parse(o: &Options) -> Result<Format> {
        o.check(FORMAT)?;
        let shift = |key, default, from, to| options::shift(o, key, default, from, to);
        let number = |key: &str| match o.size(key)? {
            Some(v) if v == 0 || v > u64::from(u32::MAX) => {
                Err(Error::refused(format!("option {key}: {v} is out of range")))
            }
            v => Ok(v.map(|v| v as u32)),
        };
        let f = Format {
            block_shift: shift("block", 4096, 1024, 65536)?,
            frag_shift: shift("frag", 1024, 512, 16384)?,
            inode_shift: shift("inode", 512, 512, 2048)?,
            ag: o.size("ag")?,
            log: o.size("logsize")?,
            avg_file_size: number("avgfilesize")?.unwrap_or(16384),
            avg_files_per_dir: number("avgfpdir")?.unwrap_or(64),
            maxblkpg: number("maxblkpg")?,
            all_groups: match o.get("groups") {
                None | Some("lazy") => false,
                Some("all") => true,
                Some(other) => return Err(Error::refused(format!("option groups: {other:?} is not lazy or all"))),
            },
        };
        if f.frag_shift > f.block_shift {
            return Err(Error::refused("option frag: a fragment is not larger than a block"));
        }
        Ok(f)
    }
}
