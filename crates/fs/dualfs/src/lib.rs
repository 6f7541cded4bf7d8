//! DualFS: data where they lie, metadata in a log that is their only home (Piernas, Cortes and García 2007; the first version
//! at ICS 2002).
//!
//! ```text
//!  volume    | metadata area                                                          | data area                    |
//!
//!  metadata  | superblock | checkpoint | checkpoint | copy | segment 0 | segment 1 | ... |
//!  segment   | partial segment | partial segment | ... |
//!  partial   | summary | directories, attributes, indirect blocks | inodes |
//!
//!  data      | group 0 | group 1 | ... |
//! ```
//!
//! Contents of regular files go to groups of data blocks, those of a directory to one group. Everything else is appended to
//! the log: what changes is written there once, in large pieces, and read from there. The inode map says where inodes lie,
//! the segment usage table how much of each segment lives, bitmaps and descriptors which data blocks are in use: all of them
//! are in a file, the *ifile*, which is in the log as well. A checkpoint says where the ifile's inode lies. The cleaner makes
//! segments clean again; it never touches data.
//!
//! # Invariants
//!
//! DUALFS-C1 to C5, the order of writes, are in `commit.rs`, DUALFS-F1, what lies after the end of a file, in `file.rs`. Further:
//!
//! * **DUALFS-A1** a block of either area has one owner, one place in one file, or is free.
//! * **DUALFS-U1** the usage of a segment is the sum of what leads into it: whole blocks, 256 bytes for each inode.
//! * **DUALFS-S1** files count all data blocks that they are going to have: what was accepted can be written.
//! * **DUALFS-B1** a file with something dirty is changed, and has its turn; its inode is dirty.
//! * **DUALFS-B2** the blocks that lead to a dirty block are dirty, unless it is overwritten where it lies.
//! * **DUALFS-D1** an entry of a directory stays where it is until it is removed.
//!
//! # Typical sequence
//!
//! `write`: `kit::blockfile` reads the page, `balloc` counts the space and makes its buffer dirty. `fsync`: the pages of all
//! changed files get their blocks and are written; then their directories, indirect blocks and inodes go to the log as one
//! set. `readdir`: a block of the directory is read with the fifteen around it (`volume.rs`), which are in memory when they
//! are wanted; five seconds later it is written to the log again, with what was read beside it (`relocate.rs`).
//!
//! `alloc.rs` gives out data blocks, `plan.rs` places in the log, `ifile.rs` inodes.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod alloc;
mod areas;
mod check;
mod clean;
mod commit;
mod decoded;
mod describe;
mod dir;
mod dump;
mod file;
pub mod format;
mod groups;
mod ifile;
mod inode;
mod invariants;
mod mkfs;
mod mount;
mod ops;
mod options;
mod plan;
#[doc(hidden)]
pub mod planted;
mod recover;
mod relocate;
mod resize;
mod scrub;
mod space;
mod structures;
mod summary;
mod superblock;
mod validate;
mod volume;
mod xattrs;

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
pub struct DualFs;

impl Engine for DualFs {
    arbor_kit::rooms!();

    fn name(&self) -> &'static str {
        "dualfs"
    }

    fn extra_devices(&self) -> &'static [&'static str] {
        &["data"]
    }

    fn role_of(&self, device: &dyn Device) -> Result<Option<&'static str>> {
        Ok(areas::is_data(device)?.then_some("data"))
    }

    fn has_checksum(&self, _kind: Kind) -> bool {
        true
    }

    fn overlaps_calls(&self) -> bool {
        true
    }

    fn probe(&self, device: &dyn Device) -> Result<Option<VolumeInfo>> {
        let Some((sb, geom)) = superblock::read(device, 0)? else { return Ok(None) };
        let cp = superblock::checkpoints(device, &geom)?.first().map(|found| found.1).unwrap_or_default();
        let geom = geom.told(&cp);
        Ok(Some(VolumeInfo {
            engine: self.name(),
            label: String::from_utf8_lossy(&label_of(&sb.label)).into_owned(),
            uuid: sb.uuid,
            size: geom.size(),
            clean: cp.clean.get() != 0,
            facts: vec![
                ("version", sb.version.to_string()),
                ("block_size", geom.block().to_string()),
                ("segment_size", (1u64 << geom.seg_shift).to_string()),
                ("segments", geom.segs.to_string()),
                ("metadata_size", (u64::from(geom.segs) << geom.seg_shift).to_string()),
                ("data_size", geom.data_size().to_string()),
                ("data_used_size", (u64::from(cp.totals.data.get()) << geom.block_shift).to_string()),
                ("devices", if geom.heads > 0 { "2" } else { "1" }.to_string()),
                ("groups", geom.groups().to_string()),
                ("checkpoint", cp.serial.to_string()),
                ("inodes", cp.totals.used_inodes.to_string()),
                ("created", sb.created.to_string()),
            ],
        }))
    }

    fn utilisation(&self, devices: &Devices) -> Result<Option<Utilisation>> {
        mount::utilisation(devices).map(Some)
    }

    fn check_path(&self, devices: Devices, path: &[u8]) -> Result<CheckReport> {
        check::check_path(devices, path)
    }

    fn resize(&self, devices: Devices, size: u64, clock: Arc<dyn Clock>) -> Result<()> {
        resize::resize(devices, size, clock)
    }

    fn resize_metadata(&self, devices: Devices, size: u64, clock: Arc<dyn Clock>) -> Result<()> {
        resize::move_border(devices, size, clock)
    }
}
