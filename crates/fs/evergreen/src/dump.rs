//! Structures of a volume that is not mounted, as JSON.

use crate::decoded::Inode;
use crate::describe::piece_name;
use crate::file::span;
use crate::format::*;
use crate::volume::Core;
use crate::{mount, recover};
use arbor_base::cache::FileBlock;
use arbor_base::device::Kind;
use arbor_base::vfs::{Devices, Errno, Error, Ino, Result, label_of};
use arbor_kit::dump::{attributes, directory, lines, shown, text};
use arbor_kit::inodes::InodeTable as _;
use serde_json::{Value, json};

const PATHS: &str = "known are: superblock, master, commits, redo, inode N, dir N, map N, block N";

/// See [`Engine::dump`](arbor_base::vfs::Engine::dump).
pub(crate) fn dump(devices: &Devices, what: &[&str]) -> Result<Value> {
    let number = |n: &str| n.parse::<u32>().map_err(|_| Error::refused(format!("{n:?} is not a number; {PATHS}")));
    let mut core = mount::look(devices)?;
    match what {
        ["superblock"] => Ok(superblock(&core)),
        ["master"] => Ok(master(&core.master, core.master_at)),
        ["commits"] => commits(&mut core),
        ["redo"] => redo(&core),
        ["inode", n] => named(&mut core, number(n)?).and_then(|i| inode(&mut core, &i)),
        ["dir", n] => named(&mut core, number(n)?).and_then(|i| dir(&mut core, &i)),
        ["map", n] => named(&mut core, number(n)?).and_then(|i| map(&mut core, &i)),
        ["block", n] => block(&mut core, number(n)?),
        _ => Err(Error::refused(PATHS)),
    }
}

/// The inode of a number in use; those of the ifile and the bitmaps, too.
fn named(core: &mut Core, n: u32) -> Result<Inode> {
    let i = core.any_inode(Ino(n.into())).map_err(|e| match e.errno() {
        Errno::ESTALE => Error::refused(format!("there is no inode {n}")),
        _ => e,
    })?;
    if i.d.in_use() { Ok(i) } else { Err(Error::refused(format!("inode {n} is not in use"))) }
}

fn superblock(core: &Core) -> Value {
    let reserved = core.geom.masters().count();
    shown(
        &core.sb,
        json!({ "clean": core.sb.is_clean(), "label": text(&label_of(&core.sb.label)), "reserved": reserved }),
    )
}

fn master(master: &Master, at: u32) -> Value {
    shown(&master.head, json!({ "at": byte(at), "is_whole": master.head.seq == master.tail.seq }))
}

/// The newest commit and those before it that it calls intact.
fn commits(core: &mut Core) -> Result<Value> {
    core.load_history()?;
    let older = core.history.older.iter().map(|older| master(&older.master, older.at));
    Ok(older.chain([master(&core.master, core.master_at)]).collect())
}

fn redo(core: &Core) -> Result<Value> {
    let copies = recover::redo(&*core.dev, &core.geom, &core.master.head)?;
    Ok(json!({ "seq": core.master.head.seq.get(), "blocks": copies.keys().collect::<Vec<_>>() }))
}

fn inode(core: &mut Core, i: &Inode) -> Result<Value> {
    let more = json!({
        "at": core.inode_byte(i.ino)?, "mode": format!("{:o}", i.d.mode.get()),
        "xattrs": attributes(&core.xattr_list(i)?), "target": core.link_target(i)?.map(|t| text(&t)),
    });
    Ok(shown(&i.d, more))
}

fn map(core: &mut Core, i: &Inode) -> Result<Value> {
    let mut all = Vec::new();
    core.pieces(i, &mut |part, block| {
        let lbn = (!matches!(part, FileBlock::Xattr(_))).then_some(span(part).0);
        all.push(json!({ "lbn": lbn, "what": piece_name(i, part), "block": block }));
    })?;
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
    let (bytes, geom) = (core.read(n, 1, Kind::Other)?, core.geom);
    let used = if geom.is_data(n) { Some(core.is_used(n)?) } else { None };
    Ok(json!({
        "block": n, "at": byte(n), "data": geom.is_data(n), "master": geom.is_for_master(n), "used": used,
        "bytes": lines(&bytes),
    }))
}
