//! Structures of a volume that is not mounted, as JSON.

use crate::describe::piece_name;
use crate::format::*;
use crate::inode::Inode;
use crate::volume::Core;
use crate::{mount, recover};
use arbor_base::device::Kind;
use arbor_base::vfs::{Devices, Error, Ino, Result, label_of};
use arbor_kit::dump::{attributes, directory, lines, shown, text};
use arbor_kit::inodes::{InodeStore as _, InodeTable as _};
use serde_json::{Value, json};

const PATHS: &str = "known are: superblock, log, inode N, dir N, map N, block N";

/// See [`Engine::dump`](arbor_base::vfs::Engine::dump).
pub(crate) fn dump(devices: &Devices, what: &[&str]) -> Result<Value> {
    let number = |n: &str| n.parse::<u32>().map_err(|_| Error::refused(format!("{n:?} is not a number; {PATHS}")));
    let mut core = mount::look(devices)?;
    match what {
        ["superblock"] => Ok(superblock(&core.sb)),
        ["log"] => log(&core),
        ["block", n] => block(&mut core, number(n)?),
        ["inode", n] => core.iget(Ino(number(n)?.into())).and_then(|i| inode(&mut core, &i)),
        ["dir", n] => core.iget(Ino(number(n)?.into())).and_then(|i| dir(&mut core, &i)),
        ["map", n] => core.iget(Ino(number(n)?.into())).and_then(|i| map(&mut core, &i)),
        _ => Err(Error::refused(PATHS)),
    }
}

fn superblock(sb: &SuperBlock) -> Value {
    shown(sb, json!({ "clean": sb.clean.get() != 0, "label": text(&label_of(&sb.label)) }))
}

fn log(core: &Core) -> Result<Value> {
    let (seq, copies) = recover::read_log(&*core.dev, &core.geom)?;
    Ok(json!({ "seq": seq, "blocks": copies.keys().collect::<Vec<_>>() }))
}

fn inode(core: &mut Core, i: &Inode) -> Result<Value> {
    let more = json!({
        "at": byte(i.place.0) + i.place.1 as u64, "mode": format!("{:o}", i.d.mode.get()),
        "xattrs": attributes(&core.xattr_list(i)?), "target": core.link_target(i)?.map(|t| text(&t)),
    });
    Ok(shown(&i.d, more))
}

fn map(core: &mut Core, i: &Inode) -> Result<Value> {
    let mut all = Vec::new();
    core.pieces(i, &mut |p| all.push(json!({ "lbn": p.lbn, "what": piece_name(i, p).1, "block": p.block })))?;
    Ok(json!({ "ino": i.ino.0, "size": i.d.size.get(), "blocks": all }))
}

fn dir(core: &mut Core, i: &Inode) -> Result<Value> {
    let (size, is_dir) = (i.d.size.get(), i.is_dir());
    directory((i.ino, size), if is_dir { blocks_of(size) } else { 0 }, BLOCK as u64, |lbn| {
        let block = core.find_block(i, lbn)?;
        Ok((core.read(core.check_pointer(i.ino, block)?, 1, Kind::Dir)?, byte(block)))
    })
}

fn block(core: &mut Core, n: u32) -> Result<Value> {
    if n >= core.geom.blocks {
        return Err(Error::refused(format!("there is no block {n}, only {}", core.geom.blocks)));
    }
    let bytes = core.read(n, 1, Kind::Other)?;
    Ok(json!({ "block": n, "at": byte(n), "data": core.geom.is_data(n), "bytes": lines(&bytes) }))
}
