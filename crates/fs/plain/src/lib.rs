//! Plain, the example: the engine to read first, and to copy from.
//!
//! It follows no paper: it does only what every engine needs, in as little code as possible
//! (`docs/adding-an-engine.md`).
//!
//! ```text
//!  volume  | superblock | log | bitmap of inodes | bitmap of the data area | inodes | data area | superblock copy |
//!
//!  log     | record of even number | record of odd number |
//! ```
//!
//! Blocks have 4 KiB. An inode has 256 bytes: 12 direct pointers, three indirect ones. Directories are files of chunks
//! of entries. Nothing waits in memory: the changes of a call, data as well, go to the log as one record, and then in
//! place, before the call returns. So a crash leaves the state after some prefix of the calls.
//!
//! # Invariants
//!
//! PLAIN-C1 to C3, the order of writes, are in `commit.rs`. Further:
//!
//! * **PLAIN-A1** a block of the data area has one owner, one place in one file, an indirect block or attributes, or is
//!   free; the bitmap says which.
//! * **PLAIN-A2** the counts of a pool are those of its bitmap; after its `end` nothing was ever in use.
//! * **PLAIN-F1** the bytes of the last block after the end of a file are zero.
//! * **PLAIN-D1** an entry of a directory stays where it is until it is removed.
//!
//! # Typical sequence
//!
//! `create`: `kit::locked` takes the lock, `kit::namespace` checks that the name is free, `kit::chunknames` finds room for
//! it, has an inode made (`inew`) and enters the name. `write`: `kit::blockfile` reads the page, `balloc`
//! allocates its block. When the call ends, `write_changes` writes one record. `fsync` has little left to do.
//!
//! There is no cleaner, so no `clean.rs`, and volumes do not change their size.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod alloc;
mod check;
mod commit;
mod describe;
mod dir;
mod dump;
mod file;
pub mod format;
mod inode;
mod invariants;
mod mkfs;
mod mount;
mod ops;
mod options;
#[doc(hidden)]
pub mod planted;
mod recover;
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
pub struct Plain;

impl Engine for Plain {
    arbor_kit::rooms!();

    fn name(&self) -> &'static str {
        "plain"
    }

    fn has_checksum(&self, kind: Kind) -> bool {
        !matches!(kind, Kind::Dir | Kind::Data)
    }

    fn probe(&self, device: &dyn Device) -> Result<Option<VolumeInfo>> {
        let Some((sb, geom)) = superblock::read(device, 0)? else { return Ok(None) };
        let facts = vec![
            ("version", sb.version.to_string()),
            ("log_size", format::byte(geom.log).to_string()),
            ("inodes", geom.inodes.to_string()),
            ("free_inodes", sb.inodes.free.to_string()),
            ("blocks", geom.space.to_string()),
            ("free_blocks", sb.space.free.to_string()),
            ("created", sb.created.to_string()),
        ];
        let label = String::from_utf8_lossy(&label_of(&sb.label)).into_owned();
        let (size, clean) = (format::byte(geom.blocks), sb.clean.get() != 0);
        Ok(Some(VolumeInfo { engine: self.name(), label, uuid: sb.uuid, size, clean, facts }))
    }

    fn check_path(&self, devices: Devices, path: &[u8]) -> Result<CheckReport> {
        check::check_path(devices, path)
    }

    fn resize(&self, _devices: Devices, _size: u64, _clock: Arc<dyn Clock>) -> Result<()> {
        Err(Errno::EOPNOTSUPP.into())
    }
}
