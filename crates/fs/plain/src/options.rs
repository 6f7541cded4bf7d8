//! Options of mkfs and mount.

use crate::format::BLOCK;
use arbor_base::vfs::{Error, OptionSpec, Options, Result};
use arbor_kit::options::{CACHE_OF_CHUNKS, CacheOptions};

/// Options of mkfs.
pub(crate) const FORMAT: &[OptionSpec] = &[
    OptionSpec {
        key: "log",
        value: "SIZE",
        default: "1/16 of the volume, at most 2M",
        help: "Size of the log, 512K to 8M.",
    },
    OptionSpec { key: "inodes", value: "N", default: "one for 8K of the volume", help: "Number of inodes." },
];

/// Options of mount.
pub(crate) const MOUNT: &[OptionSpec] = &[CACHE_OF_CHUNKS];

/// Shapes of volumes and mounts that tests take beside the defaults.
pub(crate) const TEST_CONFIGURATIONS: &[(&str, &str)] = &[("log=512K,inodes=5000", "cache=1M"), ("log=8M", "")];

/// Most inodes of a volume.
const MOST_INODES: u32 = (1 << 28) - 1;

/// What mkfs was told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    /// Blocks of the log.
    pub log: u32,
    pub inodes: u32,
}

impl Format {
    /// `blocks`: those of the volume.
    pub fn parse(o: &Options, blocks: u32) -> Result<Format> {
        o.check(FORMAT)?;
        let (least, most) = (512 << 10, 8 << 20);
        let usual = (u64::from(blocks / 16) * BLOCK as u64).clamp(least, 2 << 20);
        let log = o.size("log")?.unwrap_or(usual);
        if !(least..=most).contains(&log) {
            return Err(Error::refused(format!("option log: {log} is not from {least} to {most}")));
        }
        let inodes = o.size("inodes")?.unwrap_or((blocks / 2).clamp(64, MOST_INODES).into());
        let inodes = u32::try_from(inodes).ok().filter(|n| (16..=MOST_INODES).contains(n));
        let log = (log / BLOCK as u64) as u32 / 2 * 2;
        Ok(Format { log, inodes: inodes.ok_or_else(|| Error::refused("option inodes: not from 16 to 268435455"))? })
    }
}

/// What mount was told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mount {
    pub cache_bytes: usize,
}

impl Mount {
    pub fn parse(o: &Options) -> Result<Mount> {
        o.check(MOUNT)?;
        Ok(Mount { cache_bytes: CacheOptions::parse(o, 0)?.cache_bytes })
    }
}
