//! Options of `mkfs` and `mount`, described once.

use crate::format::Keeping;
use arbor_base::vfs::{Error, OptionSpec, Options, Result};
use arbor_kit::options::{self, CacheOptions};

/// Options of format.
pub const FORMAT: &[OptionSpec] = &[
    OptionSpec { key: "block", value: "SIZE", default: "16K", help: "Block size, 4K to 64K." },
    OptionSpec {
        key: "frag",
        value: "SIZE",
        default: "an eighth of a block",
        help: "Fragment size, an eighth of a block to a whole one, at least 512.",
    },
    OptionSpec {
        key: "cg",
        value: "SIZE",
        default: "an eighth of the volume, as far as its bitmaps fit a block",
        help: "Size of a cylinder group.",
    },
    OptionSpec { key: "density", value: "SIZE", default: "4 fragments", help: "Bytes of the volume for each inode." },
    OptionSpec {
        key: "journal",
        value: "SIZE",
        default: "1/32 of the volume, at most 32M",
        help: "Size of the journal; 0 for none, then keep=journal is not possible.",
    },
    OptionSpec {
        key: "minfree",
        value: "PERCENT",
        default: "8",
        help: "Part of the data space that writes leave free, 0 to 50.",
    },
    OptionSpec {
        key: "maxcontig",
        value: "N",
        default: "128K of blocks",
        help: "Blocks in a cluster: length of the runs that are looked for and transferred.",
    },
    OptionSpec {
        key: "maxbpg",
        value: "N",
        default: "a quarter of the block size, in blocks",
        help: "Blocks of one file in a row in one cylinder group.",
    },
    OptionSpec {
        key: "rotdelay",
        value: "N",
        default: "0",
        help: "Blocks left out between two clusters of a file, for a host that is late with the next one.",
    },
    OptionSpec {
        key: "avgfilesize",
        value: "SIZE",
        default: "16K",
        help: "Average file size, for the placing of directories.",
    },
    OptionSpec {
        key: "avgfpdir",
        value: "N",
        default: "64",
        help: "Average number of files in a directory, likewise.",
    },
];

/// Options of mount.
pub const MOUNT: &[OptionSpec] = &[
    OptionSpec {
        key: "keep",
        value: "MODE",
        default: "softupdates",
        help: "How metadata are kept: sync, softupdates, async (no promise but that fsck mends it) or journal.",
    },
    options::CACHE_OF_CHUNKS,
    options::DIRTY,
    options::DIRTY_BUFFERS,
    OptionSpec {
        key: "commit",
        value: "SECONDS",
        default: "30, with keep=journal 5",
        help: "Greatest age of changes in memory; metadata go two seconds earlier, directories one.",
    },
    OptionSpec {
        key: "reallocblks",
        value: "",
        default: "on",
        help: "Gather new blocks that lie apart into clusters before they are written.",
    },
    OptionSpec { key: "noreallocblks", value: "", default: "", help: "Leave blocks where they were allocated." },
    OptionSpec {
        key: "spread",
        value: "",
        default: "",
        help: "Begin another cylinder group where a file's indirect blocks begin, as 4.3BSD did.",
    },
    OptionSpec { key: "nospread", value: "", default: "on", help: "Stay in the file's group there." },
    OptionSpec {
        key: "spreaddirs",
        value: "",
        default: "",
        help: "Put each new directory into the cylinder group with the fewest of them, as 4.2BSD did, and ext2 up to Linux 2.4.",
    },
    OptionSpec {
        key: "nospreaddirs",
        value: "",
        default: "on",
        help: "Only those in the root; others near their parent (Orlov).",
    },
    OptionSpec {
        key: "dirhash",
        value: "",
        default: "on",
        help: "Find names of large directories by a hash in memory.",
    },
    OptionSpec { key: "nodirhash", value: "", default: "", help: "Find them by comparing one after the other." },
    OptionSpec { key: "discard", value: "", default: "", help: "Give freed space back to the device at once." },
    OptionSpec { key: "nodiscard", value: "", default: "on", help: "Keep freed space allocated on the device." },
];

/// See [`Engine::test_configurations`](arbor_base::vfs::Engine::test_configurations): each way to keep metadata, the
/// smallest blocks and the largest, no fragments, small caches.
pub const TEST_CONFIGURATIONS: &[(&str, &str)] = &[
    ("", ""),
    ("", "keep=journal"),
    ("", "keep=sync"),
    ("", "keep=async"),
    ("block=4K,cg=4M", "cache=1M"),
    ("block=4K,cg=4M,journal=1M", "keep=journal,cache=1M"),
    ("block=64K", "cache=4M"),
    ("block=8K,frag=8K,minfree=0", "cache=2M,noreallocblks,spread,spreaddirs"),
];

/// Mount options, parsed.
#[derive(Clone, Copy, Debug)]
pub struct Mount {
    /// How metadata are kept.
    pub keeping: Keeping,
    /// Memory limit of the cache in bytes.
    pub cache_bytes: usize,
    /// What may be dirty.
    pub dirty: options::Dirty,
    /// Greatest age of dirty data, milliseconds.
    pub commit_ms: u64,
    /// Gather new blocks into clusters.
    pub reallocblks: bool,
    /// Leave a file's group where its indirect blocks begin.
    pub spread: bool,
    /// Put each directory into a group with few of them.
    pub spreaddirs: bool,
    /// Keep hashes of directories.
    pub dirhash: bool,
    /// Discard freed space.
    pub discard: bool,
}

impl Mount {
    /// Parses and checks.
    pub fn parse(o: &Options) -> Result<Mount> {
        o.check(MOUNT)?;
        let keeping = match o.get("keep") {
            None => Keeping::default(),
            Some(name) => Keeping::ALL.into_iter().find(|k| k.name() == name).ok_or_else(|| {
                Error::refused(format!("option keep: {name:?} is none of sync, softupdates, async, journal"))
            })?,
        };
        let CacheOptions { cache_bytes, dirty, commit_ms } =
            CacheOptions::parse(o, if keeping == Keeping::Journal { 5000 } else { 30_000 })?;
        let last = |name: &str| o.0.iter().rev().find(|(k, _)| k.trim_start_matches("no") == name);
        Ok(Mount {
            keeping,
            cache_bytes,
            dirty,
            commit_ms,
            reallocblks: last("reallocblks").is_none_or(|(k, _)| k == "reallocblks"),
            spread: last("spread").is_some_and(|(k, _)| k == "spread"),
            spreaddirs: last("spreaddirs").is_some_and(|(k, _)| k == "spreaddirs"),
            dirhash: last("dirhash").is_none_or(|(k, _)| k == "dirhash"),
            discard: last("discard").is_some_and(|(k, _)| k == "discard"),
        })
    }
}

/// Format options, parsed; values that depend on the size of the device are not chosen yet.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// log2 of the block size.
    pub block_shift: u32,
    /// log2 of the fragment size.
    pub frag_shift: u32,
    /// Cylinder group size in bytes.
    pub cg: Option<u64>,
    /// Bytes for each inode.
    pub density: u64,
    /// Journal size in bytes.
    pub journal: Option<u64>,
    /// Percentage kept free.
    pub minfree: u32,
    /// Blocks in a cluster.
    pub maxcontig: u32,
    /// Blocks of one file in one group.
    pub maxbpg: u32,
    /// Blocks left out between two clusters of a file.
    pub rotdelay: u32,
    /// Average file size in bytes.
    pub avg_file_size: u32,
    /// Average files in a directory.
    pub avg_files_per_dir: u32,
}

impl Format {
    /// Parses and checks.
    pub fn parse(o: &Options) -> Result<Format> {
        o.check(FORMAT)?;
        let shift = |key, default, from, to| options::shift(o, key, default, from, to);
        let number = |key: &str, default: u64, lo: u64, hi: u64| match o.size(key)?.unwrap_or(default) {
            v if (lo..=hi).contains(&v) => Ok(v as u32),
            v => Err(Error::refused(format!("option {key}: {v} is not from {lo} to {hi}"))),
        };
        let block_shift = shift("block", 16384, 4096, 65536)?;
        let block = 1u64 << block_shift;
        let frag_shift = shift("frag", block / 8, block / 8, block)?;
        Ok(Format {
            block_shift,
            frag_shift,
            cg: o.size("cg")?,
            density: number("density", 4 << frag_shift, 1 << frag_shift, 1 << 30)?.into(),
            journal: o.size("journal")?,
            minfree: number("minfree", 8, 0, 50)?,
            maxcontig: number("maxcontig", (128 << 10 >> block_shift).max(1), 1, 1024)?,
            maxbpg: number("maxbpg", block / 4, 1, 1 << 24)?,
            rotdelay: number("rotdelay", 0, 0, 64)?,
            avg_file_size: number("avgfilesize", 16384, 1, 1 << 30)?,
            avg_files_per_dir: number("avgfpdir", 64, 1, 1 << 24)?,
        })
    }
}
