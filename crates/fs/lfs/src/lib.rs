//! LFS, the log-structured file system of 4.4BSD (Seltzer, Bostic, McKusick and Staelin 1993), after Sprite LFS
//! (Rosenblum and Ousterhout 1992).
//!
//! ```text
//!  volume   | superblock | checkpoint | checkpoint | copy | segment 0 | segment 1 | ... |
//!
//!  segment  | partial segment | partial segment | ... |
//!
//!  partial  | summary | blocks of files, indirect blocks | inodes |
//! ```
//!
//! Nothing is overwritten: changed blocks are appended to the log, with the inodes that point to them. The inode map
//! records where inodes lie, and the segment usage table how many bytes of each segment are live: both are in a file,
//! the *ifile*, which is in the log as well. A checkpoint records where the ifile's inode lies. The cleaner makes
//! segments clean again.
//!
//! # Invariants
//!
//! LFS-C1 to C4, the order of writes, are in `commit.rs`. Further:
//!
//! * **LFS-U1** the usage of a segment is the sum of what points into it: blocks with all their fragments, 256 bytes
//!   for each inode.
//! * **LFS-F1** only the last block of a file, among the direct ones, has less than a block's fragments.
//! * **LFS-F2** a changed file counts all fragments that it is going to have: what was accepted can be written.
//! * **LFS-B1** a file with something dirty is changed, and has its turn; its inode is dirty.
//! * **LFS-B2** the indirect blocks above a dirty block are dirty, but for those of the ifile.
//! * **LFS-D1** an entry of a directory stays where it is until it is removed.
//!
//! # Typical sequence
//!
//! `write`: [`volume::Volume::change`] takes the lock, `alloc_block` counts the space and changes the page. `fsync`:
//! `write_group` gives all changed blocks their addresses and writes them. `background`: the same by age; a checkpoint;
//! cleaning.
//!
//! There is no `alloc.rs`: `heads.rs` records where the log goes on, `plan.rs` decides it, and `ifile.rs` knows the
//! free inodes.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod check;
mod clean;
mod commit;
mod describe;
mod dir;
mod dump;
mod file;
pub mod format;
mod heads;
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
mod resize;
mod scrub;
mod structures;
mod summary;
mod superblock;
mod validate;
mod view;
mod volume;

use arbor_base::device::{Device, Kind};
use arbor_base::vfs::*;
use arbor_kit::fragments::Fragments as _;
use std::sync::Arc;

/// Names of everything that the checker can find.
#[doc(hidden)]
pub fn issues() -> Vec<&'static str> {
    check::Issue::names()
}

/// The engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lfs;

impl Engine for Lfs {
    arbor_kit::rooms!();

    fn name(&self) -> &'static str {
        "lfs"
    }

    fn has_checksum(&self, _kind: Kind) -> bool {
        true
    }

    fn overlaps_calls(&self) -> bool {
        true
    }

    fn utilisation(&self, devices: &Devices) -> Result<Option<Utilisation>> {
        mount::utilisation(devices).map(Some)
    }

    fn probe(&self, device: &dyn Device) -> Result<Option<VolumeInfo>> {
        let Some(sb) = superblock::read(device, 0)? else { return Ok(None) };
        let geom = superblock::geometry(&sb, 0)?;
        let cp = superblock::checkpoints(device, &geom)?.first().map(|found| found.1).unwrap_or_default();
        let segs = u64::from(cp.segs.get());
        Ok(Some(VolumeInfo {
            engine: self.name(),
            label: String::from_utf8_lossy(&label_of(&sb.label)).into_owned(),
            uuid: sb.uuid,
            size: geom.byte(format::Frag(geom.first)) + (segs << geom.seg_shift),
            clean: cp.clean.get() != 0,
            facts: vec![
                ("version", sb.version.to_string()),
                ("block_size", geom.block_size().to_string()),
                ("fragment_size", geom.frag_size().to_string()),
                ("segment_size", (1u64 << geom.seg_shift).to_string()),
                ("segments", segs.to_string()),
                ("checkpoint", cp.serial.to_string()),
                ("inodes", cp.used_inodes.to_string()),
                ("created", sb.created.to_string()),
            ],
        }))
    }

    fn check_path(&self, devices: Devices, path: &[u8]) -> Result<CheckReport> {
        check::check_path(devices, path)
    }

    fn resize(&self, devices: Devices, size: u64, clock: Arc<dyn Clock>) -> Result<()> {
        resize::resize(devices, size, clock)
    }
}
