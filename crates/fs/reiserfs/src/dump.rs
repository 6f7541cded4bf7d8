//! Structures of a volume that is not mounted, as JSON.

use crate::describe::{owner_of, pointers};
use crate::dir::target;
use crate::format::*;
use crate::inode::Inode;
use crate::item::{Item, entries, ops, pointer};
use crate::node::{Block, Content, Shape, head};
use crate::structures::records;
use crate::tree::{Nodes as _, seek};
use crate::validate::stat_data;
use crate::volume::Core;
use crate::{mount, recover};
use arbor_base::device::Kind as Request;
use arbor_base::vfs::{Devices, Error, Ino, Result, label_of};
use arbor_kit::buddy::bitmap;
use arbor_kit::dump::{attributes, hex, lines, shown, text};
use arbor_kit::inodes::{InodeStore as _, InodeTable as _};
use serde_json::{Value, json};
use std::sync::Arc;
use zerocopy::FromBytes;

const PATHS: &str = "known are: superblock, log, ids, bitmap N, tree, node N, object LOCALITY OBJECT, object N, dir N, \
                     block N";
/// Bytes of a body that are shown.
const SHOWN: usize = 32;

/// See [`Engine::dump`](arbor_base::vfs::Engine::dump).
pub(crate) fn dump(devices: &Devices, what: &[&str]) -> Result<Value> {
    let wrong = |n: &str| Error::refused(format!("{n:?} is not a number; {PATHS}"));
    let number = |n: &str| n.parse::<u32>().map_err(|_| wrong(n));
    let ino = |n: &str| n.parse().map(Ino).map_err(|_| wrong(n));
    let mut core = mount::look(devices)?;
    match what {
        ["superblock"] => Ok(superblock(&core.sb)),
        ["log"] => log(&core),
        ["ids"] => Ok(ids(&core)),
        ["bitmap", n] => bits(&mut core, number(n)?),
        ["tree"] => tree(&mut core),
        ["node", n] => node(&mut core, number(n)?),
        ["object", n] => object(&mut core, ino(n)?),
        ["object", locality, n] => object(&mut core, ino_of(number(locality)?, number(n)?)),
        ["dir", n] => dir(&mut core, ino(n)?),
        ["block", n] => block(&mut core, number(n)?),
        _ => Err(Error::refused(PATHS)),
    }
}

fn superblock(sb: &SuperBlock) -> Value {
    shown(
        sb,
        json!({ "clean": sb.is_clean(), "damaged": sb.clean.get() & DAMAGED != 0, "label": text(&label_of(&sb.label)) }),
    )
}

fn log(core: &Core) -> Result<Value> {
    let all = records(core)?;
    let each = all.iter().map(|(at, seq, blocks)| json!({ "at": at, "seq": seq, "blocks": blocks }));
    let first = recover::heads(&*core.dev, &core.geom)?.seq;
    Ok(json!({ "first": first, "next": core.log.seq, "next_at": core.log.at, "records": each.collect::<Vec<_>>() }))
}

fn ids(core: &Core) -> Value {
    json!({ "at": ID_MAP_AT, "most": core.geom.most_ranges(), "count": core.ids.len(), "ranges": core.ids })
}

fn bits(core: &mut Core, n: u32) -> Result<Value> {
    let (g, all) = (core.geom, core.sb.bitmaps.get());
    if n >= all {
        return Err(Error::refused(format!("there is no bitmap {n}, only {all}")));
    }
    let free: Vec<Value> = core.free_runs(n)?.iter().map(|(first, len)| json!([first, len])).collect();
    let bytes = core.bitmap(n)?;
    let (used, nodes) = bytes.get(BITMAP_HEAD..).unwrap_or(&[]).split_at_checked(g.bit_bytes()).unwrap_or_default();
    let first = n.saturating_mul(g.covered());
    let covered = g.blocks.saturating_sub(first).min(g.covered());
    let set = |bits| covered.saturating_sub(bitmap::count_free(bits, covered));
    let more = json!({
        "first": first, "blocks": covered, "used": set(used), "nodes": set(nodes), "free": free,
    });
    Ok(shown(&BitmapHead::read_from_prefix(bytes).map(|h| h.0).unwrap_or_default(), more))
}

/// The nodes of a level, and how full they are.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    nodes: u64,
    parts: u64,
    used: u64,
    least: Option<u64>,
}

impl Level {
    fn add(&mut self, shape: Shape, content: &Content) {
        let (parts, used) = match content {
            Content::Leaf(items) => (items.len(), items.iter().map(Shape::cost).sum()),
            Content::Internal(all) => (all.len(), all.len().saturating_mul(CHILD)),
        };
        let fill = (used as u64).saturating_mul(100) / shape.room() as u64;
        self.nodes = self.nodes.saturating_add(1);
        self.parts = self.parts.saturating_add(parts as u64);
        self.used = self.used.saturating_add(used as u64);
        self.least = Some(self.least.map_or(fill, |least| least.min(fill)));
    }

    fn shown(&self, level: usize, room: u64) -> Value {
        let fill = self.used.saturating_mul(100).checked_div(self.nodes.saturating_mul(room)).unwrap_or(0);
        let parts = if level > 1 { "children" } else { "items" };
        json!({
            "level": level, "nodes": self.nodes, parts: self.parts, "fill_percent": fill,
            "least_fill_percent": self.least.unwrap_or(0),
        })
    }
}

/// What is damaged is not counted.
fn tree(core: &mut Core) -> Result<Value> {
    let (shape, (root, height)) = (core.shape(), core.root());
    let (mut levels, mut unformatted) = (vec![Level::default(); height.into()], 0u64);
    core.each_node(&mut |_, _, level, content| {
        if let Some(sum) = usize::from(level).checked_sub(1).and_then(|n| levels.get_mut(n)) {
            sum.add(shape, content);
        }
        if let Content::Leaf(items) = content {
            let pointers: usize = items.iter().map(|item| pointers(item, shape.node_size).count()).sum();
            unformatted = unformatted.saturating_add(pointers as u64);
        }
        Ok(())
    })?;
    let each = levels.iter().enumerate().rev().map(|(n, sum)| sum.shown(n.saturating_add(1), shape.room() as u64));
    Ok(json!({ "root": root, "levels": each.collect::<Vec<_>>(), "unformatted_nodes": unformatted }))
}

fn node(core: &mut Core, n: Block) -> Result<Value> {
    check_block(core, n)?;
    let (shape, bytes) = (core.shape(), core.read(n, 1, Request::Tree)?);
    let head = head(&bytes);
    Ok(match Content::decode(shape, n, head.level.get(), &Arc::new(bytes))? {
        Content::Leaf(items) => {
            let mut end = shape.node_size;
            let each = items.iter().map(|one| {
                end = end.saturating_sub(one.body.len());
                item(&core.geom, one, shape.byte(n).saturating_add(end as u64))
            });
            shown(&head, json!({ "items": each.collect::<Vec<_>>() }))
        }
        Content::Internal(all) => {
            let each = all.iter().map(|(of, block)| json!({ "key": key(*of), "block": block }));
            shown(&head, json!({ "children": each.collect::<Vec<_>>() }))
        }
    })
}

fn key(key: Key) -> Value {
    let kind = key.kind().map_or_else(|| "unknown".into(), |kind| format!("{kind:?}"));
    json!({ "locality": key.locality(), "object": key.object(), "offset": key.offset(), "kind": kind })
}

/// An item whose body begins at byte `at` of the device.
fn item(geom: &Geom, item: &Item, at: u64) -> Value {
    let kind = ops(item.key, geom.node_size).map_or("unknown", |ops| ops.name());
    let mut all = json!({ "key": key(item.key), "kind": kind, "at": at, "len": item.body.len() });
    let (name, value) = match item.key.kind() {
        Some(Kind::StatData) => match stat_data(geom, &item.body) {
            Ok(d) => ("stat", stat(&d)),
            Err((field, ..)) => ("damaged", field.into()),
        },
        Some(Kind::Directory) => ("entries", entries(&item.body).map(|(_, head, name)| entry(&head, name)).collect()),
        Some(Kind::Indirect) => {
            all["tail"] = item.tail.into();
            ("pointers", (0..item.body.len() / 4).map(|n| pointer(item, n)).collect())
        }
        _ => ("begins", hex(item.body.get(..SHOWN).unwrap_or(&item.body)).into()),
    };
    all[name] = value;
    all
}

fn stat(d: &StatData) -> Value {
    shown(d, json!({ "mode": format!("{:o}", d.mode.get()) }))
}

fn entry(head: &EntryHead, name: &[u8]) -> Value {
    shown(head, json!({ "ino": target(head).0, "name": text(name) }))
}

fn object(core: &mut Core, ino: Ino) -> Result<Value> {
    let i = core.iget(ino)?;
    let more = json!({
        "ino": ino.0, "at": i.at, "mode": format!("{:o}", i.d.mode.get()), "xattrs": attributes(&core.xattr_list(&i)?),
        "target": core.link_target(&i)?.map(|t| text(&t)), "body": body(core, &i)?,
    });
    Ok(shown(&i.d, more))
}

/// Where the bytes of an object lie: runs of unformatted nodes, and direct items.
fn body(core: &mut Core, i: &Inode) -> Result<Vec<Value>> {
    let (mut all, mut at) = (Vec::new(), 0);
    let node_size = core.geom.node_size;
    while let Some(unit) = seek(core, i.from(at))? {
        let Some(item) = unit.item().filter(|item| owner_of(item) == i.ino) else { break };
        let is_direct = item.key.kind() == Some(Kind::Direct);
        let Some(ops) = ops(item.key, node_size).filter(|_| is_direct || item.key.kind() == Some(Kind::Indirect))
        else {
            break;
        };
        let next = ops.key_of(item, ops.units(item)).offset();
        // In a damaged tree an item may lie after greater ones.
        if next <= at {
            break;
        }
        if is_direct {
            let (offset, len) = (item.key.offset(), item.body.len());
            all.push(json!({ "offset": offset, "where": "direct", "len": len, "node": unit.leaf }));
        } else {
            all.extend(runs(item, node_size).into_iter().map(|(offset, block, blocks)| {
                json!({ "offset": offset, "where": block, "len": core.geom.byte(blocks), "node": unit.leaf })
            }));
        }
        at = next;
    }
    Ok(all)
}

/// Adjacent unformatted nodes that an item leads to: byte of the file, first block, number of blocks.
fn runs(item: &Item, node_size: usize) -> Vec<(u64, Block, u32)> {
    let mut all: Vec<(u64, Block, u32)> = Vec::new();
    for (offset, block) in pointers(item, node_size) {
        let follows = |(from, first, n): &&mut (u64, Block, u32)| {
            let end = from.saturating_add(u64::from(*n).saturating_mul(node_size as u64));
            end == offset && first.checked_add(*n) == Some(block)
        };
        match all.last_mut().filter(follows) {
            Some(run) => run.2 = run.2.saturating_add(1),
            None => all.push((offset, block, 1)),
        }
    }
    all
}

fn dir(core: &mut Core, ino: Ino) -> Result<Value> {
    let i = core.iget(ino)?;
    let all = core.all_entries(ino)?.into_iter();
    let all = all.map(|e| json!({ "offset": e.offset, "ino": e.ino.0, "kind": e.kind, "name": text(&e.name) }));
    let entries: Vec<Value> = all.collect();
    Ok(json!({ "ino": ino.0, "above": i.d.above.get(), "size": i.d.size.get(), "entries": entries }))
}

fn check_block(core: &Core, n: Block) -> Result<()> {
    if n >= core.geom.blocks {
        return Err(Error::refused(format!("there is no block {n}, only {}", core.geom.blocks)));
    }
    Ok(())
}

fn block(core: &mut Core, n: Block) -> Result<Value> {
    check_block(core, n)?;
    let bytes = core.read(n, 1, Request::Other)?;
    let geom = &core.geom;
    Ok(json!({ "block": n, "at": geom.byte(n), "node": geom.is_node(n), "bytes": lines(&bytes) }))
}
