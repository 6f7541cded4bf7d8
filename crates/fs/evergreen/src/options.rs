//! Options of mkfs and mount.

use crate::superblock::STRIDES;
use arbor_base::device::Kind;
use arbor_base::vfs::{Error, OptionSpec, Options, Result};
use arbor_kit::options::{CACHE_OF_CHUNKS, CacheOptions, DIRTY};

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
        value: "overwrite|relocate",
        default: "relocate",
        help: "What is done with a block that changes, unless the option of its category says otherwise.",
    },
    OptionSpec {
        key: "data",
        value: "overwrite|relocate",
        default: "modify",
        help: "Blocks of files and symbolic links.",
    },
    OptionSpec { key: "dirs", value: "overwrite|relocate", default: "modify", help: "Blocks of directories." },
    OptionSpec {
        key: "inodes",
        value: "overwrite|relocate",
        default: "modify",
        help: "Blocks of the ifile, attributes.",
    },
    OptionSpec { key: "maps", value: "overwrite|relocate", default: "modify", help: "Indirect blocks." },
    OptionSpec {
        key: "bitmaps",
        value: "overwrite|relocate",
        default: "modify",
        help: "Blocks of the dBitmap and iBitmap.",
    },
];

/// The fewest blocks of a cache: a change and all that it relocates.
const MIN_BUFFERS: u64 = 32;

/// Shapes of volumes and mounts that tests take beside the defaults.
pub(crate) const TEST_CONFIGURATIONS: &[(&str, &str)] = &[
    ("", "modify=overwrite"),
    ("stride=16", "cache=1M,buffers=32,data=overwrite,bitmaps=overwrite"),
    ("stride=64", "sync"),
    ("", "sync,modify=overwrite"),
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
        let stride = u32::try_from(stride).ok().filter(|n| STRIDES.contains(n));
        Ok(Format { stride: stride.ok_or_else(|| Error::refused("option stride: not from 16 to 1048576"))? })
    }
}

/// What is done with a block that changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Modify {
    #[default]
    Relocate,
    Overwrite,
}

/// What mount was told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mount {
    pub cache_bytes: usize,
    pub dirty_bytes: Option<usize>,
    pub buffers: usize,
    pub commit_ms: u64,
    pub sync: bool,
    data: Modify,
    dirs: Modify,
    inodes: Modify,
    maps: Modify,
    bitmaps: Modify,
}

impl Mount {
    pub fn parse(o: &Options) -> Result<Mount> {
        o.check(MOUNT)?;
        let CacheOptions { cache_bytes, dirty_bytes, commit_ms } = CacheOptions::parse(o, 5000)?;
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
        Ok(Mount { cache_bytes, dirty_bytes, buffers, commit_ms, sync, data, dirs, inodes, maps, bitmaps })
    }

    /// Whether blocks of a kind are overwritten.
    pub fn overwrites(&self, kind: Kind) -> bool {
        let modify = match kind {
            Kind::Dir => self.dirs,
            Kind::Inode | Kind::Xattr => self.inodes,
            Kind::Tree => self.maps,
            Kind::Bitmap => self.bitmaps,
            _ => self.data,
        };
        modify == Modify::Overwrite
    }
}

fn of(o: &Options, key: &str, otherwise: Modify) -> Result<Modify> {
    match o.get(key) {
        None => Ok(otherwise),
        Some("overwrite") => Ok(Modify::Overwrite),
        Some("relocate") => Ok(Modify::Relocate),
        Some(other) => Err(Error::refused(format!("option {key}: {other:?} is neither overwrite nor relocate"))),
    }
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
}
