//! Structures of a volume that is not mounted, as JSON.

use crate::decoded::Inode;
use crate::describe::piece_name;
use crate::format::*;
use crate::mount;
use crate::volume::Core;
use arbor_base::cache::FileBlock;
use arbor_base::vfs::{Devices, Errno, Error, Ino, Result, label_of};
use arbor_kit::blockmap::BlockMap as _;
use arbor_kit::dump::{attributes, directory, lines, shown, text};
use arbor_kit::inodes::InodeTable as _;
use serde_json::{Value, json};

const PATHS: &str =
    "known are: superblock, checkpoint, segments, segment N, groups, inode N, dir N, map N, meta N, data N";

/// See [`Engine::dump`](arbor_base::vfs::Engine::dump).
pub(crate) fn dump(devices: &Devices, what: &[&str]) -> Result<Value> {
    let number = |n: &str| n.parse::<u32>().map_err(|_| Error::refused(format!("{n:?} is not a number; {PATHS}")));
    let mut core = mount::look(devices)?;
    match what {
        ["superblock"] => Ok(shown(&core.sb, json!({ "label": text(&label_of(&core.sb.label)) }))),
        ["checkpoint"] => Ok(shown(&core.checkpoint, json!({ "region": 1 - core.region }))),
        ["segments"] => Ok(segments(&core)),
        ["segment", n] => segment(&mut core, number(n)?),
        ["groups"] => Ok(groups(&core)),
        ["inode", n] => named(&mut core, number(n)?).and_then(|i| inode(&mut core, &i)),
        ["dir", n] => named(&mut core, number(n)?).and_then(|i| dir(&mut core, &i)),
        ["map", n] => named(&mut core, number(n)?).and_then(|i| map(&mut core, &i)),
        ["meta", n] => meta(&mut core, number(n)?),
        ["data", n] => data(&mut core, number(n)?),
        _ => Err(Error::refused(PATHS)),
    }
}

/// The inode of a number in use; the ifile's, too.
fn named(core: &mut Core, n: u32) -> Result<Inode> {
    core.inode(Ino(n.into())).map_err(|e| match e.errno() {
        Errno::ESTALE => Error::refused(format!("inode {n} is not in use")),
        _ => e,
    })
}

fn segments(core: &Core) -> Value {
    let of = |(seg, u): (u32, arbor_kit::segments::Use)| json!({ "segment": seg, "live": u.live, "time": u.time });
    let dirty: Vec<Value> = core.segs.dirty().map(of).collect();
    json!({ "count": core.geom.segs, "clean": core.segs.clean.len(), "filled": core.log.seg.0, "dirty": dirty })
}

fn segment(core: &mut Core, n: u32) -> Result<Value> {
    let mut parts = Vec::new();
    core.each_summary(&mut |seg, at, p| {
        if seg.0 == n {
            let block = |(place, b): (u32, &BlockInfo)| {
                json!({ "block": at + place, "ino": b.ino.get(), "what": format!("{:?}", coded_block(b.place.get())) })
            };
            let blocks: Vec<Value> = p.placed().map(block).collect();
            let inodes: Vec<u32> = p.inodes.iter().map(|i| i.ino.get()).collect();
            parts.push(shown(&p.head, json!({ "at": at, "block_infos": blocks, "inode_infos": inodes })));
        }
    });
    Ok(json!({ "segment": n, "partial_segments": parts }))
}

fn groups(core: &Core) -> Value {
    let of = |(group, desc): (Group, GroupDesc)| json!({ "group": group.0, "used": desc.used.get(), "free": core.groups.free(&core.geom, group), "dirs": desc.dirs.get() });
    let used: Vec<Value> = core.groups.each().map(of).collect();
    json!({ "count": core.geom.groups(), "blocks": core.geom.group_blocks, "ever_used": used })
}

fn inode(core: &mut Core, i: &Inode) -> Result<Value> {
    let at = if i.ino == IFILE { core.checkpoint.ifile.get() } else { core.map_entry(i.ino)?.block.get() };
    let more = json!({
        "in_block": at, "mode": format!("{:o}", i.d.mode.get()), "xattrs": attributes(&core.xattr_list(i)?),
        "target": core.link_target(i)?.map(|t| text(&t)),
    });
    Ok(shown(&i.d, more))
}

fn map(core: &mut Core, i: &Inode) -> Result<Value> {
    let (mut all, geom) = (Vec::new(), core.geom);
    core.pieces(i, &mut |part, at| {
        let lbn = if let FileBlock::Data(lbn) = part { Some(lbn) } else { None };
        all.push(json!({ "lbn": lbn, "what": piece_name(&geom, i, part), "at": at }));
    })?;
    Ok(json!({ "ino": i.ino.0, "size": i.size(), "blocks": all }))
}

fn dir(core: &mut Core, i: &Inode) -> Result<Value> {
    let (size, block) = (i.size(), core.geom.block() as u64);
    directory((i.ino, size), if i.is_dir() { core.geom.blocks_for(size) } else { 0 }, block, |lbn| {
        let part = FileBlock::Data(lbn);
        let p = core.pointer(i, part)?;
        let at = core.place_of(i, part, p)?;
        Ok((core.part(i, part)?.ok_or(Errno::EIO)?.to_vec(), at))
    })
}

fn meta(core: &mut Core, n: u32) -> Result<Value> {
    let (geom, block) = (core.geom, MetaBlock(n));
    let seg =
        geom.seg_of(block).ok_or_else(|| Error::refused(format!("there is no metadata block {n} in a segment")))?;
    let bytes = core.read_meta(block, arbor_base::device::Kind::Other)?;
    Ok(json!({ "block": n, "at": geom.meta_byte(block), "segment": seg.0, "bytes": lines(&bytes) }))
}

fn data(core: &mut Core, n: u32) -> Result<Value> {
    let geom = core.geom;
    if !geom.is_data(n) {
        return Err(Error::refused(format!(
            "there is no data block {n}, only {} to {}",
            geom.first_of_files(),
            geom.data_first() + geom.data_blocks - 1
        )));
    }
    let group = geom.group_of(DataBlock(n));
    let used = !arbor_kit::buddy::bitmap::is_free(&core.bitmap(group)?, n - geom.group_start(group));
    let bytes = core.read_data(DataBlock(n), 1)?;
    let at = geom.data_byte(DataBlock(n));
    Ok(json!({ "block": n, "at": at, "group": group.0, "used": used, "bytes": lines(&bytes) }))
}
