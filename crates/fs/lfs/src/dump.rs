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
use arbor_base::vfs::{Devices, Error, Ino, Result, label_of};
use arbor_kit::dump::{attributes, dir_chunks, lines, shown, text, without};
use arbor_kit::fields::FieldType;
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
        ["superblock"] => Ok(shown(&sb, json!({ "label": text(&label_of(&sb.label)) }))),
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

/// Both checkpoints, as they are on the device; the one with the greater serial counts.
fn checkpoints(core: &Core) -> Result<Value> {
    let mut all = [Value::Null, Value::Null];
    for (place, cp) in superblock::checkpoints(&*core.dev, &core.geom)? {
        if let Some(out) = all.get_mut(place) {
            *out = cp.json();
        }
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
            Some(FileBlock::Xattr(_)) => "Xattr".into(),
            Some(data) => format!("{data:?}"),
            None => b.place.to_string(),
        };
        let (ino, version, frag) = (f.ino.get(), f.version.get(), start.saturating_add(at));
        shown(&b, json!({ "ino": ino, "version": version, "place": place, "frag": frag }))
    });
    let more = json!({
        "frag": start,
        "data_crc": h.data_crc.get(),
        "whole": whole,
        "blocks": blocks.collect::<Vec<_>>(),
        "inodes": p.inodes.iter().map(|i| shown(&i.entry, json!({ "ino": i.ino.get() }))).collect::<Vec<_>>(),
        "segs": p.segs.iter().map(FieldType::json).collect::<Vec<_>>(),
    });
    without(shown(h, more), &["files"])
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
    if ino != IFILE && entry.frag.get() == 0 {
        return Ok(json!({ "ino": ino.0, "entry": entry.json() }));
    }
    let i = get(core, ino)?;
    let d = &i.d;
    let mut out = shown(d, json!({ "ino": ino.0, "entry": entry.json(), "mode": format!("{:#o}", d.mode.get()) }));
    if d.is_fast_link() {
        out = without(out, &["db", "ib"]);
        let len = (d.size.get() as usize).min(FAST_LINK);
        out["target"] = text(d.as_bytes().get(FAST_LINK_AT..FAST_LINK_AT + len).unwrap_or(&[])).into();
    }
    if d.xattr.frag.get() != 0 {
        out["xattrs"] = match core.xattr_list(&i) {
            Err(Error::Corrupt(why)) => json!({ "damage": why.to_string() }),
            other => attributes(&other?),
        };
    }
    Ok(out)
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
        chunks.extend(dir_chunks(start, at, &bytes));
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
    let seg = geom.seg_of(Frag(frag)).map(|s| s.0);
    Ok(json!({ "frag": frag, "at": geom.byte(Frag(frag)), "seg": seg, "crc": crc(&bytes), "bytes": lines(&bytes) }))
}
