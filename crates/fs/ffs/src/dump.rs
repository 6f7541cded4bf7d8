//! Structures of an unmounted volume as JSON.

use crate::bitmap;
use crate::check::Piece;
use crate::check::view::{self, Reader};
use crate::describe::piece_name;
use crate::format::*;
use arbor_base::device::Kind;
use arbor_base::layout::crc_without;
use arbor_base::vfs::{Devices, Error, Result, label_of, mode};
use arbor_kit::dump::{attributes, dir_chunks, lines, shown, text, without};
use arbor_kit::fields::FieldType as _;
use serde_json::{Value, json};
use zerocopy::{FromBytes, IntoBytes};

const PATHS: &str = "known are: superblock, group N, inode N, dir N, map N, block FRAG, journal";

/// See [`Engine::dump`](arbor_base::vfs::Engine::dump).
pub(crate) fn dump(devices: &Devices, what: &[&str]) -> Result<Value> {
    if !matches!(what, ["superblock"] | ["journal"] | ["group" | "inode" | "dir" | "map" | "block", _]) {
        return Err(Error::refused(PATHS));
    }
    let r = view::open(devices)?;
    let number = |n: &str| n.parse::<u32>().map_err(|_| Error::refused(format!("{n:?} is not a number; {PATHS}")));
    match what {
        ["superblock"] => Ok(superblock(&r.sb)),
        ["journal"] => journal(&r),
        ["group", n] => group(&r, number(n)?),
        ["inode", n] => inode(&r, number(n)?.into()),
        ["dir", n] => dir(&r, number(n)?.into()),
        ["map", n] => map(&r, number(n)?.into()),
        ["block", n] => block(&r, number(n)?),
        _ => Err(Error::refused(PATHS)),
    }
}

fn superblock(sb: &SuperBlock) -> Value {
    let more = json!({
        "clean": sb.clean.get() == UNMOUNTED,
        "label": text(&label_of(&sb.label)),
        "block_size": 1u64.checked_shl(sb.block_shift.get()),
        "fragment_size": 1u64.checked_shl(sb.frag_shift.get()),
        "groups": sb.cg_count.get(),
        "group_frags": sb.cg_frags.get(),
        "group_inodes": sb.cg_inodes.get(),
        "keeping": Keeping::from_number(sb.keeping.get()).map(Keeping::name),
    });
    shown(sb, more)
}

fn group(r: &Reader<'_>, cgx: u32) -> Result<Value> {
    let geom = &r.geom;
    if cgx >= geom.cg_count {
        return Err(Error::refused(format!("there is no group {cgx}, only {}", geom.cg_count)));
    }
    let cg = r.group(cgx)?;
    let h = bitmap::header(&cg);
    let (counted, _) = bitmap::count(geom, cgx, &cg);
    let mut free = Vec::new();
    for b in 0..geom.cg_len(cgx) / geom.block_frags() {
        bitmap::free_runs(bitmap::block_bits(geom, &cg, b), geom.block_frags(), |at, len| {
            free.push((geom.cg_start(cgx).0 + b * geom.block_frags() + at, len));
        });
    }
    // Runs that follow one another are one.
    free.dedup_by(|next, run| {
        let follows = run.0.saturating_add(run.1) == next.0;
        run.1 = run.1.saturating_add(if follows { next.1 } else { 0 });
        follows
    });
    let more = json!({
        "group": cgx, "start": geom.cg_start(cgx).0,
        "free_blocks": h.sum.nbfree.get(), "free_frags": h.sum.nffree.get(),
        "free_inodes": h.sum.nifree.get(), "directories": h.sum.ndir.get(),
        "free_runs_by_length": h.frsum.json(),
        "unsealed_sector": unsealed_sector(&cg),
        "counted": { "free_blocks": counted.nbfree.get(), "free_frags": counted.nffree.get(),
                     "free_inodes": counted.nifree.get() },
        "free": free.into_iter().map(|(start, len)| json!({ "start": start, "len": len })).collect::<Vec<_>>(),
    });
    let mut out = shown(&h, more);
    if let Err(why) = r.header(cgx, &cg) {
        out["damage"] = why.into();
    }
    Ok(out)
}

fn get(r: &Reader<'_>, ino: u64) -> Result<Dinode> {
    match r.inode(ino)? {
        None => Err(Error::refused(format!("no inode can have the number {ino}"))),
        Some(Err(why)) => Err(Error::refused(format!("inode {ino} is damaged: {why}"))),
        Some(Ok(d)) => Ok(d),
    }
}

fn inode(r: &Reader<'_>, ino: u64) -> Result<Value> {
    let d = get(r, ino)?;
    let mut out = shown(&d, json!({ "ino": ino, "at": r.inode_byte(ino), "mode": format!("{:#o}", d.mode.get()) }));
    if d.is_fast_link() {
        out = without(out, &["db", "ib"]);
        let len = (d.size.get() as usize).min(FAST_LINK);
        out["target"] = text(d.as_bytes().get(FAST_LINK_AT..FAST_LINK_AT + len).unwrap_or(&[])).into();
    }
    if d.xattr.get() != 0 {
        out["xattrs"] = xattrs(r, ino, Frag(d.xattr.get()))?;
    }
    Ok(out)
}

fn xattrs(r: &Reader<'_>, ino: u64, frag: Frag) -> Result<Value> {
    let list = match r.xattr_frags(ino, frag)? {
        Ok(frags) => r.xattrs(frag, frags)?,
        Err(why) => Err(why),
    };
    Ok(match list {
        Ok(list) => attributes(&list),
        Err(why) => json!({ "damage": why }),
    })
}

fn dir(r: &Reader<'_>, ino: u64) -> Result<Value> {
    let d = get(r, ino)?;
    if d.kind() != mode::IFDIR {
        return Err(Error::refused(format!("inode {ino} is not a directory")));
    }
    let mut chunks = Vec::new();
    for p in r.dir_blocks(&d)? {
        let bytes = r.run(Kind::Dir, p.frag, p.frags)?;
        chunks.extend(dir_chunks(p.lbn << r.geom.block_shift, r.geom.byte(p.frag), &bytes));
    }
    Ok(json!({ "ino": ino, "size": d.size.get(), "chunks": chunks }))
}

fn map(r: &Reader<'_>, ino: u64) -> Result<Value> {
    let d = get(r, ino)?;
    // Blocks that follow one another are one run.
    let mut runs: Vec<(Piece, u32)> = Vec::new();
    r.pieces(&d, &mut |p| match runs.last_mut() {
        Some((first, frags)) if follows(&r.geom, first, *frags, p) => *frags = frags.saturating_add(p.frags),
        _ => runs.push((*p, p.frags)),
    })?;
    let runs = runs.into_iter().map(|(p, frags)| {
        let name = piece_name(&d, &p).1;
        json!({ "lbn": p.lbn, "what": name, "frag": p.frag.0, "frags": frags, "group": r.geom.cg_of(p.frag) })
    });
    Ok(json!({ "ino": ino, "size": d.size.get(), "runs": runs.collect::<Vec<_>>() }))
}

fn follows(geom: &Geom, first: &Piece, frags: u32, p: &Piece) -> bool {
    let lbn = first.lbn.saturating_add(u64::from(frags / geom.block_frags()));
    first.level == 0 && p.level == 0 && p.lbn == lbn && first.frag.0.saturating_add(frags) == p.frag.0
}

fn block(r: &Reader<'_>, frag: u32) -> Result<Value> {
    let bf = r.geom.block_frags();
    if frag >= r.geom.frags {
        return Err(Error::refused(format!("there is no fragment {frag}, only {}", r.geom.frags)));
    }
    let bytes = r.run(Kind::Other, Frag(frag), bf.min(r.geom.frags.saturating_sub(frag)))?;
    let (cgx, at) = (r.geom.cg_of(Frag(frag)), frag % r.geom.cg_frags);
    let cg = r.group(cgx)?;
    Ok(json!({
        "frag": frag, "at": r.geom.byte(Frag(frag)), "group": cgx,
        "used": bit(&cg, 1 + r.geom.inode_sectors(), at), "data": at >= r.geom.meta_frags(), "bytes": lines(&bytes),
    }))
}

/// The fragments of the journal that have a head, as they are on the device.
fn journal(r: &Reader<'_>) -> Result<Value> {
    let (start, frags) = (r.sb.journal_start.get(), r.sb.journal_frags.get());
    let mut found = Vec::new();
    for i in 0..frags {
        let mut bytes = vec![0; r.geom.frag_size()];
        r.view.dev.read_at(Kind::Log, r.geom.byte(Frag(start.saturating_add(i))), &mut bytes)?;
        let Ok((h, rest)) = JournalHeader::read_from_prefix(&bytes) else { continue };
        if h.magic.get() != JOURNAL_MAGIC || h.fsid.get() != r.geom.fsid {
            continue;
        }
        let valid = crc_without(&bytes, CRC_AT) == Some(h.crc.get());
        let mut head = shown(&h, json!({ "at": i, "kind": journal_kind(h.kind.get()), "valid": valid }));
        if h.kind.get() == JournalKind::Descriptor as u32 {
            let tags = rest.chunks_exact(JOURNAL_TAG).take(h.count.get() as usize);
            let tags = tags.filter_map(|t| JournalTag::read_from_bytes(t).ok());
            head["tags"] = tags.map(|t| t.json()).collect();
        }
        found.push(head);
    }
    Ok(json!({ "start": start, "frags": frags, "records": found }))
}

fn journal_kind(kind: u32) -> Value {
    let all = [JournalKind::Tail, JournalKind::Descriptor, JournalKind::Commit];
    all.into_iter().find(|k| *k as u32 == kind).map_or(json!(kind), |k| format!("{k:?}").into())
}
