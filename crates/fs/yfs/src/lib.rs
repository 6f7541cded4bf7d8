//! yFS, a journaling file system (Zhang and Ghose, "yFS: A Journaling File System Design for Handling Large Data Sets
//! with Reduced Seeking", FAST 2003).
//!
//! ```text
//!  volume  | AG 0 | AG 1 | ... | middle AG with the log | ... | last AG |
//!
//!  AG      | superblock copy | group block | inode block | bitmap blocks | inode chunk | data,
//!            inode chunks, tree nodes, directory blocks in any order ...                      |
//! ```
//!
//! An inode's number is its sector address. It holds a small file's data or a small directory's entries (INLINE), an
//! array of extents or directory-block descriptors (EXTENT), or the root of a B*-tree of them (BTREE). Metadata is
//! logged physically, in small pieces; the log is written by group commit; metadata goes in place later.
//!
//! # Invariants
//!
//! YFS-C1 to C6, the order of writes, stand in `commit.rs`. Further:
//!
//! * **YFS-A1** a fragment has one owner: an AG's own structures, the log, an inode chunk, a tree node, a directory,
//!   attribute or link block, or one place in one file; the bitmap says so.
//! * **YFS-A2** the group block's count is the number of zero bits of the AG's bitmap.
//! * **YFS-B1** a metadata buffer that a record has a change of, or the transaction that runs, is dirty in the cache,
//!   and stands once in the order of records.
//! * **YFS-I1** an inode in use has names, or lookup counts, or is on its AG's recovery list.
//! * **YFS-D1** the keys of a directory are unique and ascend within a block and between blocks.
//!
//! # Typical sequence
//!
//! `create`: [`volume::Volume::change`] looks up the name (a block that is missing is read without a lock and the call
//! starts again), [`volume::Core::begin`] reserves, `inew` and `dir_insert` change buffers, `commit` copies the changes
//! to the log buffer. `write`: pages become dirty, space is reserved. `fsync`: `write_back` allocates and writes the
//! data, `flush_log` writes the log, which bears witness to the data or waits for it. `background`: the same by age,
//! then the bitmap daemon, then metadata in place.
//!
//! # Rooms
//!
//! A room uses only rooms that stand before it here.
//!
//! | rooms | what |
//! |---|---|
//! | `format`, `options`, `btree`, `body`, `validate`, `buffers` | structures as bytes |
//! | `log`, `superblock`, `space`, `delayed`, `misses` | what a mounted volume knows, each piece by itself |
//! | `volume` | all of it, and the locks |
//! | `invariants`, `recover`, `calls`, `alloc`, `inode`, `file`, `dir`, `commit` | what is done with it |
//! | `check`, `describe`, `dump`, `structures` | unmounted volumes |
//! | `ops`, `mount`, `resize`, `mkfs` | what users ask for |
//!
//! yFS has no cleaner, so there is no `clean.rs`.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod alloc;
mod body;
pub mod btree;
mod buffers;
mod calls;
mod check;
mod commit;
mod delayed;
mod describe;
mod dir;
mod dump;
mod file;
pub mod format;
mod inode;
mod invariants;
mod log;
mod misses;
mod mkfs;
mod mount;
mod ops;
mod options;
pub mod planted;
mod recover;
mod resize;
mod space;
mod structures;
mod superblock;
mod validate;
mod volume;

use arbor_base::device::Device;
use arbor_base::vfs::*;
use std::sync::Arc;

/// Names of all issues that the checker can find, for its tests.
#[doc(hidden)]
pub fn issues() -> Vec<&'static str> {
    check::Issue::names()
}

/// The engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Yfs;

impl Engine for Yfs {
    arbor_kit::rooms!();

    fn name(&self) -> &'static str {
        "yfs"
    }

    fn extra_devices(&self) -> &'static [&'static str] {
        &["log"]
    }

    fn role_of(&self, device: &dyn Device) -> Result<Option<&'static str>> {
        Ok(recover::is_log(device)?.then_some("log"))
    }

    fn probe(&self, device: &dyn Device) -> Result<Option<VolumeInfo>> {
        let Some(sb) = superblock::read(device, 0)? else { return Ok(None) };
        let log = if sb.incompat.get() & format::INCOMPAT_EXTERNAL_LOG != 0 { "external" } else { "internal" };
        let frag = 1u64.checked_shl(sb.frag_shift.get()).unwrap_or(0);
        Ok(Some(VolumeInfo {
            engine: self.name(),
            label: String::from_utf8_lossy(&label_of(&sb.label)).into_owned(),
            uuid: sb.uuid,
            size: sb.frags.get().saturating_mul(frag),
            clean: sb.clean.get() != 0,
            facts: vec![
                ("version", sb.version.to_string()),
                ("block_size", 1u64.checked_shl(sb.block_shift.get()).unwrap_or(0).to_string()),
                ("fragment_size", frag.to_string()),
                ("inode_size", 1u64.checked_shl(sb.inode_shift.get()).unwrap_or(0).to_string()),
                ("ag_count", sb.ag_count.to_string()),
                ("ag_used", sb.ag_used.to_string()),
                ("ag_size", sb.ag_frags.get().saturating_mul(frag).to_string()),
                ("log_size", sb.log_sectors.get().saturating_mul(512).to_string()),
                ("log", log.to_string()),
                ("mounts", sb.mounts.to_string()),
                ("created", sb.created.to_string()),
            ],
        }))
    }

    fn check_path(&self, devices: Devices, path: &[u8]) -> Result<CheckReport> {
        check::check_path(&devices, path)
    }

    fn resize(&self, devices: Devices, size: u64, clock: Arc<dyn Clock>) -> Result<()> {
        resize::resize(devices, size, clock)
    }
}
