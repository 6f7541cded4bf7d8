//! Options that engines share: cache and write-back, sizes, mounting for reading only.

use arbor_base::cache::Cache;
use arbor_base::device::Device;
use arbor_base::layout::{Access, Features};
use arbor_base::vfs::{Error, MountOptions, OptionSpec, Options, Result};

/// The smallest cache that works, in bytes.
pub const MIN_CACHE: u64 = 1 << 20;
/// The cache unless an option says otherwise, in bytes.
const CACHE_BYTES: u64 = 256 << 20;
/// The largest cache, in bytes.
const MAX_CACHE: u64 = 1 << 40;

/// The option `cache`.
pub const CACHE: OptionSpec =
    OptionSpec { key: "cache", value: "SIZE", default: "256M", help: "Memory limit of the buffer cache, at least 1M." };

/// The option `cache` of engines whose directories are files of chunks ([`chunkdir`](crate::chunkdir)).
pub const CACHE_OF_CHUNKS: OptionSpec = OptionSpec {
    help: "Memory limit of the buffer cache, at least 1M. Directories of more than 6,500 names for each MiB of it are \
           searched from their beginning.",
    ..CACHE
};

/// The option `dirty`.
pub const DIRTY: OptionSpec = OptionSpec {
    key: "dirty",
    value: "SIZE",
    default: "a quarter of the cache",
    help: "Changed data in memory beyond which some is written back; at most a quarter of the cache.",
};

/// The option `dirtybuffers`.
pub const DIRTY_BUFFERS: OptionSpec = OptionSpec {
    key: "dirtybuffers",
    value: "N",
    default: "any number",
    help: "Changed buffers in memory, however short they are, beyond which some are written back; `dirty` holds too.",
};

/// The option `commit` of engines that write all changes at once by time.
pub const COMMIT: OptionSpec = OptionSpec {
    key: "commit",
    value: "SECONDS",
    default: "5",
    help: "How long changes may wait in memory, 1 to 3600.",
};

/// The options `cache`, `dirty`, `dirtybuffers` and `commit`, parsed.
#[derive(Clone, Copy, Debug)]
pub struct CacheOptions {
    /// Memory limit of the cache in bytes.
    pub cache_bytes: usize,
    /// What may be dirty.
    pub dirty: Dirty,
    /// Greatest age of changes in memory, milliseconds.
    pub commit_ms: u64,
}

/// What may be dirty before some is written back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dirty {
    /// Bytes, if not as many as the cache allows.
    pub bytes: Option<usize>,
    /// Buffers, if not any number.
    pub buffers: Option<usize>,
}

impl Dirty {
    /// Sets the limits of a cache.
    pub fn limit(self, cache: &mut Cache) {
        self.bytes.into_iter().for_each(|bytes| cache.set_dirty_limit(bytes));
        self.buffers.into_iter().for_each(|buffers| cache.set_dirty_buffers(buffers));
    }
}

impl CacheOptions {
    /// Parses and checks them. `commit_ms` is the default.
    pub fn parse(o: &Options, commit_ms: u64) -> Result<CacheOptions> {
        let seconds = |s: &str| {
            let number = s.parse::<u64>().ok().filter(|s| (1..=3600).contains(s));
            number.ok_or_else(|| Error::refused(format!("option commit: {s:?} is not 1 to 3600 seconds")))
        };
        let cache = o.size_from("cache", MIN_CACHE)?.unwrap_or(CACHE_BYTES).min(MAX_CACHE);
        Ok(CacheOptions {
            cache_bytes: cache as usize,
            dirty: Dirty {
                bytes: o.size("dirty")?.map(|bytes| bytes as usize),
                buffers: o.size_from("dirtybuffers", 1)?.map(|buffers| buffers as usize),
            },
            commit_ms: o.get("commit").map(seconds).transpose()?.map_or(commit_ms, |s| s * 1000),
        })
    }
}

/// Whether a volume with these features is mounted for reading only; refuses one that cannot be mounted as asked.
pub fn read_only(features: Features, known: Features, options: &MountOptions, device: &dyn Device) -> Result<bool> {
    match features.access(known) {
        Access::ReadWrite => Ok(options.read_only || device.geometry().read_only),
        Access::ReadOnly(_) if options.read_only => Ok(true),
        Access::ReadOnly(bits) => Err(Error::refused(format!("unknown read-only features {bits:#x}: mount read-only"))),
        Access::Refused(bits) => Err(Error::refused(format!("unknown features {bits:#x}"))),
    }
}

/// log2 of a size that must be a power of two in a range.
pub fn shift(o: &Options, key: &str, default: u64, from: u64, to: u64) -> Result<u32> {
    let value = o.size(key)?.unwrap_or(default);
    if value.is_power_of_two() && (from..=to).contains(&value) {
        return Ok(value.trailing_zeros());
    }
    Err(Error::refused(format!("option {key}: {value} is not a power of two from {from} to {to}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_seconds_are_checked() {
        let parse = |text: &str| CacheOptions::parse(&Options::parse(text), 5000);
        let all = parse("cache=2M,dirty=300K,dirtybuffers=20,commit=7").unwrap();
        let dirty = Dirty { bytes: Some(300 << 10), buffers: Some(20) };
        assert_eq!((all.cache_bytes, all.dirty, all.commit_ms), (2 << 20, dirty, 7000));
        assert_eq!(parse("").map(|o| (o.cache_bytes, o.commit_ms)).unwrap(), (256 << 20, 5000));
        let refused = parse("commit=4000").unwrap_err().to_string();
        assert_eq!(refused, "option commit: \"4000\" is not 1 to 3600 seconds");
        assert!(parse("cache=100K").is_err());
        assert_eq!(shift(&Options::parse("block=8K"), "block", 4096, 4096, 65536).unwrap(), 13);
        let refused = shift(&Options::parse("block=9K"), "block", 4096, 4096, 65536).unwrap_err().to_string();
        assert_eq!(refused, "option block: 9216 is not a power of two from 4096 to 65536");
    }
}
