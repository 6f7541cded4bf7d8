//! Evergreen: each block that changes is overwritten or relocated, and a master block commits all of it (Hyun et al., 2008).
//!
//! ```text
//!  volume  | superblock | master | ... blocks of files ... | master | ... | master | ... | superblock copy | master |
//!                        first      every n-th block is reserved for master blocks         last
//!
//!  master  | head check-point | self inode | root | dBitmap | iBitmap | inodes 5 to 14 | tail check-point |
//! ```
//!
//! All blocks belong to files: the ifile holds the inodes, the dBitmap says which blocks are in use, the iBitmap which inodes
//! are. Their inodes are in the master block, the first block of the ifile. So a master block leads to a whole, consistent
//! tree, and writing one commits all that has changed.
//!
//! # Invariants
//!
//! EVERGREEN-C1 to C4, the order of writes, are in `commit.rs`. Further:
//!
//! * **EVERGREEN-A1** a block has one owner, one place in one file, or is free; the dBitmap says which.
//! * **EVERGREEN-A2** what is relocated goes to a block that the last commit does not have.
//! * **EVERGREEN-H1** what a commit has that the newest durable master block calls intact is not written over.
//! * **EVERGREEN-R1** a dirty buffer has a place of its own, and its parent leads there, or is dirty and will.
//! * **EVERGREEN-F1** the bytes of the last block after the end of a file are zero.
//! * **EVERGREEN-D1** an entry of a directory stays where it is until it is removed.
//!
//! # Typical sequence
//!
//! `write`: `kit::blockfile` reads the page, `balloc` makes its buffer dirty ([`ready`](volume)): it gets a new block next to
//! the last one, the pointer to it changes, so the inode does, so a block of the ifile becomes dirty and gets a new block,
//! and the self inode, which is in the master block. `fsync` writes all dirty blocks, and the master block to the reserved
//! block nearest to the last of them.
//!
//! There is no cleaner, so no `clean.rs`: `gather.rs` restores free runs when the volume is idle.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod alloc;
mod check;
mod commit;
mod decoded;
mod describe;
mod dir;
mod dump;
mod file;
pub mod format;
mod gather;
mod history;
mod inode;
mod invariants;
mod mkfs;
mod mount;
mod older;
mod ops;
mod options;
mod pass;
#[doc(hidden)]
pub mod planted;
mod policy;
mod recover;
mod resize;
mod space;
mod structures;
mod superblock;
mod units;
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
pub struct Evergreen;

impl Engine for Evergreen {
    arbor_kit::rooms!();

    fn name(&self) -> &'static str {
        "evergreen"
    }

    fn crash_promise(&self, mount: &Options) -> CrashPromise {
        options::crash_promise(mount)
    }

    fn has_checksum(&self, kind: Kind) -> bool {
        !matches!(kind, Kind::Dir | Kind::Data)
    }

    fn probe(&self, device: &dyn Device) -> Result<Option<VolumeInfo>> {
        let Some((sb, geom)) = superblock::read(device, 0)? else { return Ok(None) };
        let mut facts = vec![
            ("version", sb.version.to_string()),
            ("blocks", geom.blocks.to_string()),
            ("stride", geom.stride.to_string()),
            ("reserved", geom.masters().count().to_string()),
            ("created", sb.created.to_string()),
        ];
        facts.extend(recover::commits(device, &sb, &geom)?);
        let label = String::from_utf8_lossy(&label_of(&sb.label)).into_owned();
        let (size, clean) = (format::byte(geom.blocks), sb.is_clean());
        Ok(Some(VolumeInfo { engine: self.name(), label, uuid: sb.uuid, size, clean, facts }))
    }

    fn check_path(&self, devices: Devices, path: &[u8]) -> Result<CheckReport> {
        check::check_path(devices, path)
    }

    fn resize(&self, devices: Devices, size: u64, clock: Arc<dyn Clock>) -> Result<()> {
        resize::resize(devices, size, clock)
    }
}
