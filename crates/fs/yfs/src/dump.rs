//! Structures of an unmounted volume as JSON.

use crate::body;
use crate::check::tree::{self, Spec};
use crate::check::view::{self, RawInode, Reader, log_device};
use crate::describe::{extent, is_dir};
use crate::format::*;
use crate::inode::parse_xattrs;
use crate::recover;
use arbor_base::device::{Device, Kind};
use arbor_base::layout::{Corrupt, crc_without, get_u16, get_u64};
use arbor_base::vfs::{Devices, Error, Result, label_of};
use arbor_kit::buddy::bitmap;
use arbor_kit::dump::{attributes, hex, shown, text};
use arbor_kit::fields::FieldType as _;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::mem::offset_of;
use zerocopy::FromBytes;

const PATHS: &str = "known paths: superblock, log, log entries, ag N, inode N, dir N, tree N, free N";

/// The structure that `what` names.
pub(crate) fn dump(devices: &Devices, what: &[&str]) -> Result<Value> {
    let number = |n: &str| n.parse::<u64>().map_err(|_| Error::refused(format!("{n:?} is not a number; {PATHS}")));
    let ag = |r: &Reader<'_>, n: &str| {
        let n = number(n)?;
        let ag = u32::try_from(n).ok().filter(|n| *n < r.ags());
        ag.ok_or_else(|| Error::refused(format!("AG {n} is not in use, {} are", r.ags())))
    };
    if !matches!(what, ["superblock"] | ["log"] | ["log", "entries"] | ["ag" | "inode" | "dir" | "tree" | "free", _]) {
        return Err(Error::refused(PATHS));
    }
    let r = view::open(devices)?;
    match what {
        ["superblock"] => Ok(superblock(&r.sb)),
        ["log"] => log(devices, &r, false),
        ["log", "entries"] => log(devices, &r, true),
        ["ag", n] => group(&r, ag(&r, n)?),
        ["inode", n] => inode(&r, number(n)?),
        ["dir", n] => dir(&r, number(n)?),
        ["tree", n] => nodes(&r, number(n)?),
        ["free", n] => free(&r, ag(&r, n)?),
        _ => Err(Error::refused(PATHS)),
    }
}

fn superblock(sb: &SuperBlock) -> Value {
    let more = json!({
        "clean": sb.clean.get() != 0,
        "label": text(&label_of(&sb.label)),
        "fragment_size": 1u64.checked_shl(sb.frag_shift.get()),
        "block_size": 1u64.checked_shl(sb.block_shift.get()),
        "inode_size": 1u64.checked_shl(sb.inode_shift.get()),
    });
    shown(sb, more)
}

fn log(devices: &Devices, r: &Reader<'_>, entries: bool) -> Result<Value> {
    // As it is on the device, not as replayed.
    let log: &dyn Device = log_device(devices, &r.sb)?.unwrap_or(&*devices.main);
    let start = r.sb.log_start.get().saturating_mul(SECTOR);
    let mut sectors = vec![0; 2 * SECTOR as usize];
    log.read_at(Kind::Log, start, &mut sectors)?;
    let anchors: Vec<Value> = sectors.chunks_exact(SECTOR as usize).map(anchor).collect();
    let records = log_records(devices, r)?.into_iter().map(|rec| {
        let head = &rec.head;
        let more = json!({
            "lsn": lsn_value(rec.lsn), "prev": lsn_value(Lsn(head.prev.get())), "bytes": head.len.get(),
            "entries": if entries { log_entries(&rec.body) } else { head.count.json() },
        });
        shown(head, more)
    });
    let records: Vec<Value> = records.collect();
    Ok(
        json!({ "start": r.sb.log_start.get(), "sectors": r.sb.log_sectors.get(), "anchors": anchors, "records": records }),
    )
}

fn lsn_value(lsn: Lsn) -> Value {
    json!({ "cycle": lsn.cycle(), "sector": lsn.sector() })
}

fn anchor(sector: &[u8]) -> Value {
    let Ok((a, _)) = LogAnchor::read_from_prefix(sector) else { return Value::Null };
    let crc = sector.get(..64).and_then(|b| crc_without(b, offset_of!(LogAnchor, crc)));
    let more = json!({
        "valid": a.magic.get() == ANCHOR_MAGIC && crc == Some(a.crc.get()),
        "tail": lsn_value(Lsn(a.tail.get())),
        "prev": lsn_value(Lsn(a.prev.get())),
    });
    shown(&a, more)
}

/// A record of the log.
pub(crate) struct LogRecord {
    pub lsn: Lsn,
    pub head: LogHeader,
    /// Its entries.
    pub body: Vec<u8>,
}

/// The records that a recovery would replay, as they are on the device.
pub(crate) fn log_records(devices: &Devices, r: &Reader<'_>) -> Result<Vec<LogRecord>> {
    let log: &dyn Device = log_device(devices, &r.sb)?.unwrap_or(&*devices.main);
    let start = r.sb.log_start.get().saturating_mul(SECTOR);
    let mut records = Vec::new();
    let Some(anchor) = recover::read_anchor(log, start, r.geom.fsid)? else { return Ok(records) };
    let mut walk = LogWalk { log, start, sectors: r.sb.log_sectors.get(), fsid: r.geom.fsid };
    let (mut at, mut prev) = (Lsn(anchor.tail.get()), anchor.prev.get());
    while let Some((lsn, head, body)) = walk.next(at, prev)? {
        prev = lsn.0;
        let sectors = (RECORD_HEAD + body.len()).div_ceil(SECTOR as usize) as u32;
        at = Lsn::new(lsn.cycle(), lsn.sector().saturating_add(sectors));
        records.push(LogRecord { lsn, head, body });
    }
    Ok(records)
}

struct LogWalk<'a> {
    log: &'a dyn Device,
    start: u64,
    sectors: u64,
    fsid: u64,
}

impl LogWalk<'_> {
    /// The record that follows `prev`: at `at`, or at the beginning of the next cycle.
    fn next(&mut self, at: Lsn, prev: u64) -> Result<Option<(Lsn, LogHeader, Vec<u8>)>> {
        let wrapped = Lsn::new(at.cycle().saturating_add(1), LOG_FIRST);
        for lsn in [at, wrapped] {
            if let Some((head, body)) = self.record(lsn, prev)? {
                return Ok(Some((lsn, head, body)));
            }
        }
        Ok(None)
    }

    fn record(&self, lsn: Lsn, prev: u64) -> Result<Option<(LogHeader, Vec<u8>)>> {
        let sector = u64::from(lsn.sector());
        if sector >= self.sectors {
            return Ok(None);
        }
        let at = self.start.saturating_add(sector * SECTOR);
        let mut bytes = vec![0; SECTOR as usize];
        self.log.read_at(Kind::Log, at, &mut bytes)?;
        let Ok((head, _)) = LogHeader::read_from_prefix(&bytes) else { return Ok(None) };
        let total = RECORD_HEAD.saturating_add(head.len.get() as usize);
        let good = head.magic.get() == RECORD_MAGIC
            && head.fsid.get() == self.fsid
            && head.lsn.get() == lsn.0
            && head.prev.get() == prev
            && (total as u64).div_ceil(SECTOR) <= self.sectors - sector;
        if !good {
            return Ok(None);
        }
        bytes.resize(total.next_multiple_of(SECTOR as usize), 0);
        self.log.read_at(Kind::Log, at, &mut bytes)?;
        bytes.truncate(total);
        let crc = crc_without(&bytes, offset_of!(LogHeader, crc));
        Ok((crc == Some(head.crc.get())).then(|| (head, bytes.split_off(RECORD_HEAD.min(bytes.len())))))
    }
}

fn log_entries(mut body: &[u8]) -> Value {
    let mut out = Vec::new();
    while let Ok((head, rest)) = LogEntry::read_from_prefix(body) {
        let kind = EntryType::from_disk(head.kind);
        let data = if kind == Some(EntryType::Update) { head.len.get() as usize } else { 0 };
        let seal = Seal::from_disk(head.seal).map(|s| format!("{s:?}"));
        out.push(shown(&head, json!({ "kind": kind.map(|k| format!("{k:?}")), "seal": seal })));
        let Some(tail) = rest.get(data..) else { break };
        body = tail;
    }
    Value::Array(out)
}

/// A block's fields, or what is wrong with it.
fn or_damage(block: std::result::Result<Vec<u8>, Corrupt>, f: impl FnOnce(&[u8]) -> Value) -> Value {
    match block {
        Ok(bytes) => f(bytes.get(HEADER..).unwrap_or(&[])),
        Err(why) => json!({ "damage": why.to_string() }),
    }
}

fn group(r: &Reader<'_>, ag: u32) -> Result<Value> {
    let geom = &r.geom;
    let head = or_damage(r.ag_block(BlockType::Group, ag, geom.group_block(ag))?, |body| {
        GroupBody::read_from_prefix(body).map(|b| b.0).unwrap_or_default().json()
    });
    let inodes = or_damage(r.ag_block(BlockType::Inodes, ag, geom.inode_block(ag))?, |body| {
        InodesBody::read_from_prefix(body).map(|b| b.0).unwrap_or_default().json()
    });
    let walk = r.chunk_tree(ag)?;
    let chunks: Vec<Value> = r
        .chunks(&walk)
        .into_iter()
        .map(|(start, mask)| json!({ "first": start, "free": mask.count_ones(), "mask": format!("{mask:#018x}") }))
        .collect();
    Ok(json!({
        "ag": ag, "start": geom.ag_start(ag).0, "frags": geom.ag_len(ag),
        "group": head, "inodes": inodes, "chunks": chunks,
        "chunk_tree_nodes": walk.nodes.iter().map(|n| n.0.0).collect::<Vec<_>>(), "damage": walk.damage,
    }))
}

fn get(r: &Reader<'_>, ino: u64) -> Result<RawInode> {
    let Some(bytes) = r.inode_bytes(ino)? else {
        return Err(Error::refused(format!("no inode can have the number {ino}")));
    };
    check_inode(ino, &bytes)?;
    RawInode::decode(ino, &bytes).ok_or_else(|| Error::refused("no inode"))
}

fn inode(r: &Reader<'_>, ino: u64) -> Result<Value> {
    let i = get(r, ino)?;
    let d = &i.d;
    let time = |t: arbor_base::vfs::Time| json!({ "secs": t.secs, "nanos": t.nanos });
    let more = json!({
        "ino": ino,
        "mode": format!("{:#o}", d.mode.get()),
        "atime": time(d.atime()),
        "mtime": time(d.mtime()),
        "ctime": time(d.ctime()),
        "btime": time(d.btime()),
        "format": d.format().map(|f| format!("{f:?}")),
    });
    let mut out = shown(d, more);
    if i.in_use() {
        out["xattrs"] = xattrs(r, &i)?;
        contents(r, &i, &mut out)?;
    }
    Ok(out)
}

fn contents(r: &Reader<'_>, i: &RawInode, out: &mut Value) -> Result<()> {
    if i.d.format == Format::Inline as u8 {
        if !is_dir(i) {
            let size = usize::try_from(i.d.size.get()).unwrap_or(usize::MAX).min(i.area().len());
            out["inline"] = hex(i.area().get(..size).unwrap_or(&[])).into();
        }
        return Ok(());
    }
    let walk = r.map(i)?;
    let records = walk.records.iter().map(|rec| {
        let (start, len, flags) = extent(rec);
        if is_dir(i) {
            return json!({ "key": rec.0, "start": start.0 });
        }
        json!({ "at": rec.0, "start": start.0, "len": len, "unwritten": flags & UNWRITTEN != 0 })
    });
    out[if is_dir(i) { "blocks" } else { "extents" }] = records.collect::<Vec<_>>().into();
    if !walk.damage.is_empty() {
        out["damage"] = json!(walk.damage);
    }
    Ok(())
}

fn xattrs(r: &Reader<'_>, i: &RawInode) -> Result<Value> {
    let list = if i.d.xattr.get() == 0 {
        parse_xattrs(i.inline_xattrs())
    } else {
        let block = r.owned(BlockType::Xattr, i.ino, Frag(i.d.xattr.get()), i.d.xattr_frags.get())?;
        block.ok().and_then(|b| parse_xattrs(b.get(HEADER..).unwrap_or(&[])))
    };
    let Some(list) = list else { return Ok(json!({ "damage": "a broken list" })) };
    Ok(attributes(&list))
}

fn dir(r: &Reader<'_>, ino: u64) -> Result<Value> {
    let i = get(r, ino)?;
    if !i.in_use() || !is_dir(&i) {
        return Err(Error::refused(format!("inode {ino} is not a directory")));
    }
    if i.d.format == Format::Inline as u8 {
        return Ok(json!({ "ino": ino, "parent": i.d.parent.get(), "entries": entries(i.area()) }));
    }
    let mut blocks = Vec::new();
    for rec in r.map(&i)?.records {
        let start = extent(&rec).0;
        let block = r.owned(BlockType::Dir, ino, start, r.geom.block_frags())?;
        blocks.push(json!({ "key": rec.0, "start": start.0, "entries": or_damage(block, entries) }));
    }
    Ok(json!({ "ino": ino, "parent": i.d.parent.get(), "blocks": blocks }))
}

fn entries(body: &[u8]) -> Value {
    let (entries, damage) = body::parse(body);
    let shown = entries.iter().map(|e| shown(&e.head, json!({ "name": text(e.name), "at": e.at })));
    let mut out: Vec<Value> = shown.collect();
    out.extend(damage.map(|d| json!({ "damage": d })));
    out.into()
}

/// The nodes of an inode's tree, from the root down.
fn nodes(r: &Reader<'_>, ino: u64) -> Result<Value> {
    let i = get(r, ino)?;
    if !i.in_use() || i.d.format == Format::Inline as u8 {
        return Err(Error::refused(format!("inode {ino} has no tree")));
    }
    let spec = Spec::map(ino, is_dir(&i));
    let mut seen = HashSet::new();
    let walk = tree::walk(r, i.area(), spec, &mut |f| seen.insert(f))?;
    let mut all = vec![node("root".into(), i.area(), spec.value)];
    for (start, _) in walk.nodes {
        let block = r.owned(spec.kind, ino, start, r.geom.block_frags())?;
        all.push(match block {
            Ok(b) => node(start.0.into(), b.get(HEADER..).unwrap_or(&[]), spec.value),
            Err(why) => json!({ "at": start.0, "damage": why.to_string() }),
        });
    }
    Ok(json!({ "ino": ino, "nodes": all, "damage": walk.damage }))
}

fn node(at: Value, body: &[u8], value: usize) -> Value {
    let level = tree::level(body);
    let count = usize::from(get_u16(body, 0).unwrap_or(0));
    let size = if level == 0 { 8 + value } else { 16 };
    let records = body.get(NODE_HEADER..).unwrap_or(&[]).chunks_exact(size).take(count).map(|rec| {
        let value = if level > 0 || rec.len() == 16 {
            json!(get_u64(rec, 8))
        } else {
            let tail = get_u64(rec, 16).unwrap_or(0);
            json!({ "start": get_u64(rec, 8), "len": tail as u32, "flags": tail >> 32 })
        };
        json!({ "key": get_u64(rec, 0), "value": value })
    });
    json!({ "at": at, "level": level, "count": count, "records": records.collect::<Vec<_>>() })
}

fn free(r: &Reader<'_>, ag: u32) -> Result<Value> {
    let geom = &r.geom;
    let mut bits = Vec::new();
    for n in 0..geom.bitmap_blocks {
        let block = r.ag_block(BlockType::Bitmap, ag, geom.bitmap_block(ag, n))??;
        bits.extend_from_slice(block.get(HEADER..).unwrap_or(&[]));
    }
    let (end, base) = (geom.ag_len(ag), geom.ag_start(ag).0);
    let mut runs = Vec::new();
    let mut total: u64 = 0;
    let mut at = 0;
    while let Some(start) = bitmap::next_free(&bits, at, end) {
        let len = bitmap::free_run(&bits, start, end - start, end);
        runs.push(json!({ "start": base + u64::from(start), "len": len }));
        total += u64::from(len);
        at = start + len.max(1);
    }
    Ok(json!({ "ag": ag, "free": total, "runs": runs }))
}
