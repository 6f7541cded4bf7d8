//! ReiserFS: names, files and attributes in one balanced tree (Hans Reiser, "Trees are fast", 1998).
//!
//! ```text
//!  volume  | superblock, object numbers | log | bitmap | nodes ... | bitmap | nodes ... | superblock copy |
//!
//!  log     | head | record | record | ...      (copies of changed blocks, one record for each transaction)
//!
//!  tree    internal node      (key, child) (key, child) ...
//!          formatted node     items: stat data | names | pointers | bytes of files | attributes
//!          unformatted node   bytes of one file
//! ```
//!
//! There is no inode table, and there are no blocks of directories: all is items in one tree, in the order of their keys
//! `<locality, object, offset, kind>`. So what was made in one directory lies together. A small file is an item, and so
//! is the end of a larger one; the rest of it lies in unformatted nodes, to which indirect items point.
//!
//! # Invariants
//!
//! REISER-T1 to T5, of the tree, are in `tree.rs`; REISER-F1 and F2, of files, in `file.rs`; REISER-C1 to C6, the order of
//! writes, in `commit.rs`. Further:
//!
//! * **REISER-A1** a block is a node of the tree, or an unformatted node of one file, or free; its two bits in the bitmap
//!   say which.
//! * **REISER-A2** a number has one object, and the map of object numbers knows that it is in use.
//! * **REISER-A3** a block that was freed is allocated only when the transaction that freed it is durable, and no record
//!   holds a copy of it.
//! * **REISER-D1** an entry of a directory keeps its offset until it is removed; no two of a directory have the same one.
//!
//! # Typical sequence
//!
//! `create`: `kit::locked` takes the lock, `kit::namespace` checks that the name is free, `kit::atomicnames` has an object
//! made (`new_object`) and enters the name (`put_name`). Both insert an item: `plan_edit` works out what changes on each level, blocks are
//! allocated, `carry_out` writes the nodes into their buffers. `write`: `kit::blockfile` asks `balloc`, which puts the
//! bytes into direct items, or into the page of an unformatted node. `make_file`: a small file is inserted with its bytes
//! (`insert_object`), then its name. `remove`: the name and the file are cut out of their nodes (`cut_range`). Nothing goes to
//! the device until `commit_transaction`, which first makes fewer of the nodes that were cut from (`compress`, decision 30).
//!
//! Nothing is cleaned: there is no `clean.rs`.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod alloc;
pub mod body;
mod check;
mod commit;
mod describe;
mod dir;
mod dump;
mod edit;
mod file;
pub mod format;
mod inode;
mod invariants;
pub mod item;
mod mkfs;
mod mount;
pub mod node;
mod ops;
mod options;
mod orders;
#[doc(hidden)]
pub mod planted;
mod recent;
mod recover;
mod resize;
mod space;
pub mod stat;
mod structures;
mod superblock;
pub mod tree;
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
pub struct ReiserFs;

impl Engine for ReiserFs {
    arbor_kit::rooms!();

    fn name(&self) -> &'static str {
        "reiserfs"
    }

    fn probe(&self, device: &dyn Device) -> Result<Option<VolumeInfo>> {
        let Some((sb, geom)) = superblock::read(device, 0)? else { return Ok(None) };
        let mut facts = vec![
            ("version", sb.version.to_string()),
            ("node_size", geom.node_size.to_string()),
            ("log_size", geom.byte(geom.log).to_string()),
            ("blocks", geom.blocks.to_string()),
            ("free_blocks", sb.free.to_string()),
            ("levels", sb.height.to_string()),
            ("created", sb.created.to_string()),
        ];
        if sb.clean.get() & format::DAMAGED != 0 {
            facts.push(("damage", "met, and not mended yet: run fsck".to_string()));
        }
        let label = String::from_utf8_lossy(&label_of(&sb.label)).into_owned();
        let (size, clean) = (geom.byte(geom.blocks), sb.is_clean());
        Ok(Some(VolumeInfo { engine: self.name(), label, uuid: sb.uuid, size, clean, facts }))
    }

    fn has_checksum(&self, kind: Kind) -> bool {
        kind != Kind::Data
    }

    fn check_path(&self, devices: Devices, path: &[u8]) -> Result<CheckReport> {
        check::check_path(devices, path)
    }

    fn resize(&self, devices: Devices, size: u64, clock: Arc<dyn Clock>) -> Result<()> {
        resize::resize(devices, size, clock)
    }
}
