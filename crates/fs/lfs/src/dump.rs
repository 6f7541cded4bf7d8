//! Structures of an unmounted volume as JSON. Fields have the names of `format.rs`.

use crate::format::*;
use crate::inode::Inode;
use crate::summary::{self, Parsed};
use crate::superblock;
use crate::view::{self, Piece, Walk, piece_name};
use crate::volume::Core;
use arbor_base::cache::FileBlock;
use arbor_base::device::Kind;
use arbor_base::layout::crc;
use arbor_base::vfs::{Devices, Error, Ino, Result, Time, label_of};
use arbor_kit::dirent::entries;
use arbor_kit::dump::{hex, text};
use arbor_kit::inodes::InodeTable as _;
use serde_json::{Value, json};
use zerocopy::IntoBytes;

const PATHS: &str =
    "known are: superblock, checkpoints, usage, usage SEGMENT, segment N, inode N, dir N, map N, block FRAG";

/// See [`Engine::dump`](arbor_base::vfs::Engine::dump).
pub(crate) fn dump(devices: &Devices, what: &[&str]) -> Result<Value> {
    let one = matches!(what, ["superblock" | "checkpoints" | "usage"]);
    if !one && !matches!(what, ["usage" | "segment" | "inode" | "dir" | "map" | "block", _]) {
        return Err(Error::refused(PATHS));
    }
    let number = |n: &str| n.parse::<u32>().map_err(|_| Error::refused(format!("{n:?} is not a number; {PATHS}")));
    let (sb, mut core) = view::open(devices)?;
    let core = &mut core;
    let seg = |core: &Core, n: &str| {
        let (n, count) = (number(n)?, core.segs.count());
        let refused = || Error::refused(format!("there is no segment {n}, only {count}"));
        if n < count { Ok(n) } else { Err(refused()) }
    };
    match what {
        ["superblock"] => Ok(superblock(&sb)),
        ["checkpoints"] => checkpoints(core),
        ["usage"] => Ok(core.segs.dirty().map(|(n, _)| usage(core, n)).collect()),
        ["usage", n] => seg(core, n).map(|n| usage(core, n)),
        ["segment", n] => seg(core, n).and_then(|n| segment(core, n)),
        ["inode", n] => inode(core, Ino(number(n)?.into())),
        ["dir", n] => dir(core, Ino(number(n)?.into())),
        ["map", n] => map(core, Ino(number(n)?.into())),
        ["block", n] => block(core, number(n)?),
        _ => Err(Error::refused(PATHS)),
    }
}

fn superblock(sb: &SuperBlock) -> Value {
    json!({
        "version": sb.version.get(),
        "compat": sb.compat.get(),
        "ro_compat": sb.ro_compat.get(),
        "incompat": sb.incompat.get(),
        "uuid": hex(&sb.uuid),
        "salt": sb.salt.get(),
        "label": text(&label_of(&sb.label)),
        "block_shift": sb.block_shift.get(),
        "frag_shift": sb.frag_shift.get(),
        "seg_shift": sb.seg_shift.get(),
        "first": sb.first.get(),
        "created": sb.created.get(),
    })
}

/// Both checkpoints, as they are on the device; the one with the greater serial counts.
fn checkpoints(core: &Core) -> Result<Value> {
    let mut all = [Value::Null, Value::Null];
    for (place, cp) in superblock::checkpoints(&*core.dev, &core.geom)? {
        let Some(out) = all.get_mut(place) else { continue };
        *out = json!({
            "clean": cp.clean.get(),
            "serial": cp.serial.get(),
            "epoch": cp.epoch.get(),
            "group": cp.group.get(),
            "segs": cp.segs.get(),
            "seg": cp.seg.get(),
            "offset": cp.offset.get(),
            "next_seg": cp.next_seg.get(),
            "fill": cp.fill.get(),
            "ifile": cp.ifile.get(),
            "inodes": cp.inodes.get(),
            "free_ino": cp.free_ino.get(),
            "used_inodes": cp.used_inodes.get(),
            "file_frags": cp.file_frags.get(),
            "time": cp.time.get(),
            "orphan": cp.orphan.get(),
            "cold_seg": cp.cold_seg.get(),
            "cold_offset": cp.cold_offset.get(),
            "cold_next": cp.cold_next.get(),
            "cold_fill": cp.cold_fill.get(),
        });
    }
    Ok(json!(all))
}

/// A segment's entry of the usage table, after roll-forward.
fn usage(core: &Core, n: u32) -> Value {
    let u = core.segs.get(n);
    json!({ "seg": n, "live": u.live, "dirty": u.dirty, "time": u.time })
}

/// All summaries of a segment, those of an earlier filling too.
fn segment(core: &Core, n: u32) -> Result<Value> {
    let mut parts = Vec::new();
    for (at, p) in core.summaries(Seg(n), None)? {
        let whole = summary::is_whole(&*core.dev, &core.geom, (Seg(n), at), &p)?;
        parts.push(partial(&core.geom, (Seg(n), at), &p, whole));
    }
    let valid = core.valid_summaries(n)?.len();
    Ok(json!({ "usage": usage(core, n), "start": core.geom.seg_start(Seg(n)).0, "valid": valid, "partials": parts }))
}

fn partial(geom: &Geom, (seg, at): (Seg, u32), p: &Parsed, whole: bool) -> Value {
    let (h, start) = (&p.head, geom.seg_start(seg).0 + at);
    let blocks = p.blocks().map(|(f, b, at)| {
        let place = match coded_block(b.place.get()) {
            Some(FileBlock::Map { level, n }) => format!("Indirect({level}, {n})"),
            Some(data) => format!("{data:?}"),
            None => b.place.to_string(),
        };
        json!({ "ino": f.ino.get(), "version": f.version.get(), "place": place, "frag": start.saturating_add(at),
                "frags": b.frags.get(), "crc": b.crc.get() })
    });
    let inodes = p.inodes.iter().map(|i| {
        let e = i.entry;
        json!({ "ino": i.ino.get(), "frag": e.frag.get(), "version": e.version.get(), "next_free": e.next_free.get() })
    });
    let segs = p.segs.iter().map(|s| json!({ "seg": s.seg.get(), "died": s.died.get() }));
    json!({
        "frag": start,
        "group": h.group.get(),
        "epoch": h.epoch.get(),
        "fill": h.fill.get(),
        "index": h.index.get(),
        "flags": h.flags.get(),
        "summary_frags": h.summary_frags.get(),
        "frags": h.frags.get(),
        "next_seg": h.next_seg.get(),
        "data_crc": h.data_crc.get(),
        "whole": whole,
        "time": h.time.get(),
        "ninodes": h.ninodes.get(),
        "free_ino": h.free_ino.get(),
        "used_inodes": h.used_inodes.get(),
        "orphan": h.orphan.get(),
        "file_frags": h.file_frags.get(),
        "blocks": blocks.collect::<Vec<_>>(),
        "inodes": inodes.collect::<Vec<_>>(),
        "segs": segs.collect::<Vec<_>>(),
    })
}

/// An inode in use, or the ifile's.
fn get(core: &mut Core, ino: Ino) -> Result<Inode> {
    match core.inode(ino) {
        Err(Error::Errno(_)) => Err(Error::refused(format!("inode {ino} is free"))),
        got => got,
    }
}

fn inode(core: &mut Core, ino: Ino) -> Result<Value> {
    if ino.0 >= u64::from(core.state.inodes) {
        return Err(Error::refused(format!("there is no inode {ino}: the inode map has {}", core.state.inodes)));
    }
    let entry = if ino == IFILE { MapEntry::default() } else { core.map_entry(ino)? };
    let shown = json!({ "frag": entry.frag.get(), "version": entry.version.get(), "next_free": entry.next_free.get() });
    if ino != IFILE && entry.frag.get() == 0 {
        return Ok(json!({ "ino": ino.0, "entry": shown }));
    }
    let i = get(core, ino)?;
    let d = &i.d;
    let time = |t: Stamp| {
        let t = Time::from(t);
        json!({ "secs": t.secs, "nanos": t.nanos })
    };
    let pointers = |all: &[Pointer]| all.iter().map(pointer).collect::<Vec<_>>();
    let mut out = json!({
        "ino": ino.0,
        "entry": shown,
        "version": d.version.get(),
        "mode": format!("{:#o}", d.mode.get()),
        "nlink": d.nlink.get(),
        "uid": d.uid.get(),
        "gid": d.gid.get(),
        "rdev": d.rdev.get(),
        "size": d.size.get(),
        "frags": d.frags.get(),
        "atime": time(d.atime), "mtime": time(d.mtime), "ctime": time(d.ctime), "btime": time(d.btime),
        "xattr": pointer(&d.xattr),
        "xattr_len": d.xattr_len.get(),
        "next_orphan": d.next_orphan.get(),
    });
    if d.is_fast_link() {
        let len = (d.size.get() as usize).min(FAST_LINK);
        out["target"] = text(d.as_bytes().get(FAST_LINK_AT..FAST_LINK_AT + len).unwrap_or(&[])).into();
    } else {
        out["db"] = pointers(&d.db).into();
        out["ib"] = pointers(&d.ib).into();
    }
    if d.xattr.frag.get() != 0 {
        out["xattrs"] = match core.xattr_list(&i) {
            Err(Error::Corrupt(why)) => json!({ "damage": why.to_string() }),
            other => other?.iter().map(|(n, v)| json!({ "name": text(n), "len": v.len(), "value": hex(v) })).collect(),
        };
    }
    Ok(out)
}

fn pointer(p: &Pointer) -> Value {
    json!({ "frag": p.frag.get(), "crc": p.crc.get() })
}

/// The blocks of a file that lie on the device.
fn pieces(core: &mut Core, i: &Inode) -> Result<Vec<Piece>> {
    let mut all = Vec::new();
    Walk::default().pieces(core, i, &mut |piece, _| all.push(piece))?;
    Ok(all)
}

fn dir(core: &mut Core, ino: Ino) -> Result<Value> {
    let i = get(core, ino)?;
    if !i.is_dir() {
        return Err(Error::refused(format!("inode {ino} is not a directory")));
    }
    let mut chunks = Vec::new();
    for piece in pieces(core, &i)? {
        let FileBlock::Data(lbn) = piece.place else { continue };
        let (start, at) = (lbn << core.geom.block_shift, core.geom.byte(piece.frag()));
        let bytes = match core.read_block((&i, piece.place), piece.p, piece.frags, Kind::Dir) {
            Err(Error::Corrupt(why)) => {
                chunks.push(json!({ "offset": start, "at": at, "damage": why.to_string() }));
                continue;
            }
            other => other?,
        };
        for (n, chunk) in (0u64..).zip(bytes.chunks_exact(DIRBLKSIZ)) {
            let n = n * DIRBLKSIZ as u64;
            chunks.push(match entries(chunk) {
                Err(why) => json!({ "offset": start + n, "at": at + n, "damage": why }),
                Ok(all) => json!({ "offset": start + n, "at": at + n, "entries": all.iter().map(|e| {
                    json!({ "at": e.at, "ino": e.ino.0, "reclen": e.reclen, "kind": e.kind, "name": text(e.name) })
                }).collect::<Vec<_>>() }),
            });
        }
    }
    Ok(json!({ "ino": ino.0, "size": i.size(), "chunks": chunks }))
}

fn map(core: &mut Core, ino: Ino) -> Result<Value> {
    let (i, geom) = (get(core, ino)?, core.geom);
    // Adjacent blocks are one run.
    let mut runs: Vec<(Piece, u32)> = Vec::new();
    for p in pieces(core, &i)? {
        match runs.last_mut() {
            Some((first, frags)) if follows(&geom, first, *frags, &p) => *frags = frags.saturating_add(p.frags),
            _ => runs.push((p, p.frags)),
        }
    }
    let runs = runs.into_iter().map(|(p, frags)| {
        let lbn = if let FileBlock::Data(lbn) = p.place { json!(lbn) } else { Value::Null };
        let (what, seg) = (piece_name(&geom, &i, p.place).1, geom.seg_of(p.frag()).map(|s| s.0));
        json!({ "lbn": lbn, "what": what, "frag": p.frag().0, "frags": frags, "seg": seg })
    });
    Ok(json!({ "ino": ino.0, "size": i.size(), "runs": runs.collect::<Vec<_>>() }))
}

fn follows(geom: &Geom, first: &Piece, frags: u32, p: &Piece) -> bool {
    let (FileBlock::Data(from), FileBlock::Data(lbn)) = (first.place, p.place) else { return false };
    let next = from.saturating_add((frags / geom.block_frags()).into());
    next == lbn && first.frag().0.saturating_add(frags) == p.frag().0 && frags.is_multiple_of(geom.block_frags())
}

fn block(core: &mut Core, frag: u32) -> Result<Value> {
    let (geom, bf) = (core.geom, core.geom.block_frags());
    let end = geom.seg_start(Seg(core.segs.count())).0;
    if frag >= end {
        return Err(Error::refused(format!("there is no fragment {frag}, only {end}")));
    }
    let bytes = core.read_run(Frag(frag), bf.min(end - frag), Kind::Other)?;
    let lines: Vec<String> = bytes.chunks(32).map(hex).collect();
    let seg = geom.seg_of(Frag(frag)).map(|s| s.0);
    Ok(json!({ "frag": frag, "at": geom.byte(Frag(frag)), "seg": seg, "crc": crc(&bytes), "bytes": lines }))
}
