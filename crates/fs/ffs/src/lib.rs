//! FFS, the fast file system of 4.4BSD (McKusick, Joy, Leffler and Fabry 1984), with clustering (McVoy and Kleiman
//! 1991) and soft updates (McKusick and Ganger 1999).
//!
//! ```text
//!  volume  | cylinder group 0 | group 1 | ... | middle group with the journal | ... | last group |
//!
//!  group   | superblock copy | header and bitmaps | inodes | data: blocks, and blocks cut into fragments |
//! ```
//!
//! An inode has 128 bytes: 12 direct pointers, 3 indirect ones. The last block of a small file is a run of
//! fragments. Directories are files of 512-byte chunks of entries. The mount option `keep` decides the order of writes:
//! see `commit.rs`.
//!
//! # Invariants
//!
//! FFS-C1 to C7, the order of writes, are in `commit.rs`. The others:
//!
//! * **FFS-A1** a fragment has one owner: a group's own structures, the summary area, the journal, an indirect
//!   block, attributes, or one place in one file; the bitmap says so.
//! * **FFS-A2** the counts of a group are those of its bitmaps.
//! * **FFS-F1** only the last block of a file, if it is a direct one, has less than a block's fragments: as many as the
//!   size needs.
//! * **FFS-B1** a buffer is dirty in the cache exactly if `Core::dirty` has it, and is there once by its age and once
//!   by its last change.
//! * **FFS-D1** an entry of a directory stays where it is until it is removed.
//!
//! # Typical sequence
//!
//! `create`: [`volume::Volume::change`] takes the lock, `dir_room` finds room for the name, `inew` allocates an inode,
//! `dir_insert` adds the name; then `note_added` tells `commit.rs` what the name has to wait for.
//! `write`: `balloc` allocates and changes pages. `fsync`: `sync_file` writes the buffers that the file needs.
//! `background`: buffers that are old enough are written.
//!
//! FFS has no cleaner, so there is no `clean.rs`.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod alloc;
mod bitmap;
mod buffers;
mod check;
mod commit;
mod dependencies;
mod describe;
mod dir;
mod dump;
mod file;
pub mod format;
mod inode;
mod invariants;
mod log;
mod mkfs;
mod mount;
mod ops;
mod options;
#[doc(hidden)]
pub mod planted;
mod recover;
mod space;
mod structures;
mod superblock;
mod validate;
mod volume;

use arbor_base::device::{Device, Kind};
use arbor_base::vfs::*;
use std::sync::Arc;

/// Names of all issues that the checker can find, for its tests.
#[doc(hidden)]
pub fn issues() -> Vec<&'static str> {
    check::Issue::names()
}

/// The engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ffs;

impl Engine for Ffs {
    arbor_kit::rooms!();

    fn name(&self) -> &'static str {
        "ffs"
    }

    fn has_checksum(&self, kind: Kind) -> bool {
        !matches!(kind, Kind::Dir | Kind::Tree | Kind::Data)
    }

    fn overlaps_calls(&self) -> bool {
        true
    }

    fn crash_promise(&self, mount: &Options) -> CrashPromise {
        let keeping = options::Mount::parse(mount).map_or(format::Keeping::Async, |m| m.keeping);
        commit::ordering::of(keeping).crash_promise()
    }

    fn probe(&self, device: &dyn Device) -> Result<Option<VolumeInfo>> {
        let Some(sb) = superblock::read(device, 0)? else { return Ok(None) };
        let frag = 1u64.checked_shl(sb.frag_shift.get()).unwrap_or(0);
        let keeping = format::Keeping::from_number(sb.keeping.get()).map_or("unknown", |k| k.name());
        Ok(Some(VolumeInfo {
            engine: self.name(),
            label: String::from_utf8_lossy(&label_of(&sb.label)).into_owned(),
            uuid: sb.uuid,
            size: sb.frags.get().saturating_mul(frag),
            clean: sb.clean.get() == format::UNMOUNTED,
            facts: vec![
                ("version", sb.version.to_string()),
                ("block_size", 1u64.checked_shl(sb.block_shift.get()).unwrap_or(0).to_string()),
                ("fragment_size", frag.to_string()),
                ("cg_count", sb.cg_count.to_string()),
                ("cg_size", u64::from(sb.cg_frags.get()).saturating_mul(frag).to_string()),
                ("cg_inodes", sb.cg_inodes.to_string()),
                ("journal_size", u64::from(sb.journal_frags.get()).saturating_mul(frag).to_string()),
                ("keep", keeping.to_string()),
                ("minfree", sb.minfree.to_string()),
                ("mounts", sb.mounts.to_string()),
                ("created", sb.created.to_string()),
            ],
        }))
    }

    fn check_path(&self, devices: Devices, path: &[u8]) -> Result<CheckReport> {
        check::check_path(&devices, path)
    }

    fn resize(&self, _devices: Devices, _size: u64, _clock: Arc<dyn Clock>) -> Result<()> {
        Err(Errno::EOPNOTSUPP.into())
    }
}
