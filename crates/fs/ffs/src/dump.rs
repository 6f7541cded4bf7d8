//! Structures of an unmounted volume as JSON.

use crate::bitmap;
use crate::check::Piece;
use crate::check::view::{self, Reader};
use crate::describe::piece_name;
use crate::format::*;
use arbor_base::device::Kind;
use arbor_base::layout::crc_without;
use arbor_base::vfs::{Devices, Error, Result, Time, label_of, mode};
use arbor_kit::dirent::entries;
use arbor_kit::dump::{hex, text};
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
    json!({
        "version": sb.version.get(),
        "compat": sb.compat.get(),
        "ro_compat": sb.ro_compat.get(),
        "incompat": sb.incompat.get(),
        "clean": sb.clean.get() != 0,
        "uuid": hex(&sb.uuid),
        "label": text(&label_of(&sb.label)),
        "block_size": 1u64.checked_shl(sb.block_shift.get()),
        "fragment_size": 1u64.checked_shl(sb.frag_shift.get()),
        "groups": sb.cg_count.get(),
        "group_frags": sb.cg_frags.get(),
        "group_inodes": sb.cg_inodes.get(),
        "keeping": Keeping::from_number(sb.keeping.get()).map(Keeping::name),
        "frags": sb.frags.get(),
        "summary_start": sb.summary_start.get(),
        "summary_crc": sb.summary_crc.get(),
        "journal_start": sb.journal_start.get(),
        "journal_frags": sb.journal_frags.get(),
        "orphan": sb.orphan.get(),
        "avg_file_size": sb.avg_file_size.get(),
        "avg_files_per_dir": sb.avg_files_per_dir.get(),
        "minfree": sb.minfree.get(),
        "maxcontig": sb.maxcontig.get(),
        "maxbpg": sb.maxbpg.get(),
        "rotdelay": sb.rotdelay.get(),
        "mounts": sb.mounts.get(),
        "created": sb.created.get(),
    })
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
    let mut out = json!({
        "group": cgx, "start": geom.cg_start(cgx).0, "frags": h.frags.get(),
        "free_blocks": h.sum.nbfree.get(), "free_frags": h.sum.nffree.get(),
        "free_inodes": h.sum.nifree.get(), "directories": h.sum.ndir.get(),
        "free_runs_by_length": h.frsum.map(|n| n.get()),
        "rotor": h.rotor.get(), "frotor": h.frotor.get(), "irotor": h.irotor.get(),
        "initediblk": h.initediblk.get(), "inodes": h.inodes.get(),
        "unsealed_sector": unsealed_sector(&cg),
        "counted": { "free_blocks": counted.nbfree.get(), "free_frags": counted.nffree.get(),
                     "free_inodes": counted.nifree.get() },
        "free": join(free).into_iter().map(|(start, len)| json!({ "start": start, "len": len })).collect::<Vec<_>>(),
    });
    if let Err(why) = r.header(cgx, &cg) {
        out["damage"] = why.into();
    }
    Ok(out)
}

/// Joins runs that follow one another.
fn join(runs: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    let mut all: Vec<(u32, u32)> = Vec::new();
    for (start, len) in runs {
        match all.last_mut().filter(|l| l.0.saturating_add(l.1) == start) {
            Some(last) => last.1 = last.1.saturating_add(len),
            None => all.push((start, len)),
        }
    }
    all
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
    let time = |t: Stamp| {
        let t = Time::from(t);
        json!({ "secs": t.secs, "nanos": t.nanos })
    };
    let mut out = json!({
        "ino": ino,
        "at": r.inode_byte(ino),
        "mode": format!("{:#o}", d.mode.get()),
        "nlink": d.nlink.get(),
        "uid": d.uid.get(),
        "gid": d.gid.get(),
        "frags": d.frags.get(),
        "size": d.size.get(),
        "atime": time(d.atime), "mtime": time(d.mtime), "ctime": time(d.ctime), "btime": time(d.btime),
        "generation": d.generation.get(),
        "xattr": d.xattr.get(),
    });
    if d.is_fast_link() {
        let len = (d.size.get() as usize).min(FAST_LINK);
        out["target"] = text(d.as_bytes().get(FAST_LINK_AT..FAST_LINK_AT + len).unwrap_or(&[])).into();
    } else {
        out["db"] = json!(d.db.map(|p| p.get()));
        out["ib"] = json!(d.ib.map(|p| p.get()));
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
        Ok(list) => list.iter().map(|(n, v)| json!({ "name": text(n), "len": v.len(), "value": hex(v) })).collect(),
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
        let start = p.lbn << r.geom.block_shift;
        for (i, chunk) in (0u64..).zip(bytes.chunks_exact(DIRBLKSIZ)) {
            let i = i * DIRBLKSIZ as u64;
            chunks.push(match entries(chunk) {
                Err(why) => json!({ "offset": start + i, "at": r.geom.byte(p.frag) + i, "damage": why }),
                Ok(all) => json!({ "offset": start + i, "at": r.geom.byte(p.frag) + i, "entries": all.iter().map(|e| {
                    json!({ "at": e.at, "ino": e.ino.0, "reclen": e.reclen, "kind": e.kind, "name": text(e.name) })
                }).collect::<Vec<_>>() }),
            });
        }
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
    let lines: Vec<String> = bytes.chunks(32).map(hex).collect();
    Ok(json!({
        "frag": frag, "at": r.geom.byte(Frag(frag)), "group": cgx,
        "used": bit(&cg, 1 + r.geom.inode_sectors(), at), "data": at >= r.geom.meta_frags(), "bytes": lines,
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
        let mut head = json!({
            "at": i, "kind": journal_kind(h.kind.get()), "seq": h.seq.get(), "count": h.count.get(),
            "valid": crc_without(&bytes, CRC_AT) == Some(h.crc.get()),
        });
        if h.kind.get() == JournalKind::Descriptor as u32 {
            let tags = rest.chunks_exact(JOURNAL_TAG).take(h.count.get() as usize);
            let tags = tags.filter_map(|t| JournalTag::read_from_bytes(t).ok());
            head["tags"] = tags.map(|t| json!({ "frag": t.frag.get(), "frags": t.frags.get() })).collect();
        }
        found.push(head);
    }
    Ok(json!({ "start": start, "frags": frags, "records": found }))
}

fn journal_kind(kind: u32) -> Value {
    let all = [JournalKind::Tail, JournalKind::Descriptor, JournalKind::Commit];
    all.into_iter().find(|k| *k as u32 == kind).map_or(json!(kind), |k| format!("{k:?}").into())
}
