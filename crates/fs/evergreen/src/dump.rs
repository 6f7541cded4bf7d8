//! Structures of a volume that is not mounted, as JSON.

use crate::format::*;
use crate::mount;
use arbor_base::vfs::{Devices, Error, Result};
use serde_json::{Value, json};

const PATHS: &str = "known are: superblock, master";

/// See [`Engine::dump`](arbor_base::vfs::Engine::dump).
pub(crate) fn dump(devices: &Devices, what: &[&str]) -> Result<Value> {
    let core = mount::look(devices)?;
    let head = core.master.head;
    match what {
        ["superblock"] => Ok(json!({
            "blocks": core.sb.blocks.get(), "stride": core.sb.stride.get(), "clean": core.sb.is_clean(),
            "master": core.sb.master.get(), "reserved": core.geom.masters().count(),
        })),
        ["master"] => Ok(json!({
            "at": byte(core.master_at), "seq": head.seq.get(), "last": head.last.get(), "used": head.used.get(),
            "inodes": head.inodes.get(), "orphan": head.orphan.get(), "redo": head.redo.get(),
            "redo_count": head.redo_count.get(),
        })),
        _ => Err(Error::refused(PATHS)),
    }
}
