//! Walking and building the trees of `btree.rs` without trusting them.
//!
//! A walk never stops at damage: it collects what is still reachable and notes what was wrong. The caller's `claim` is
//! asked for every node; it returns `false` for a node seen before, so no walk is longer than the volume.

use super::view::Reader;
use crate::format::*;
use arbor_base::layout::{get_u16, get_u64};
use arbor_base::vfs::Result;
use zerocopy::IntoBytes;

/// A leaf record: key and value, padded with zeros.
pub(crate) type Record = (u64, [u8; EXTENT_VALUE]);

/// Highest level of a root.
pub(crate) const MAX_LEVEL: u8 = 15;
/// Nodes read at a time.
const BATCH: usize = 32;

/// What a tree holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    pub kind: BlockType,
    pub owner: u64,
    /// Bytes of a value.
    pub value: usize,
}

impl Spec {
    /// The tree of a file's extents or of a directory's blocks.
    pub fn map(ino: u64, dir: bool) -> Spec {
        match dir {
            true => Spec { kind: BlockType::DirNode, owner: ino, value: DIR_VALUE },
            false => Spec { kind: BlockType::ExtentNode, owner: ino, value: EXTENT_VALUE },
        }
    }

    /// The tree of an AG's inode chunks.
    pub fn chunks(ag: u32) -> Spec {
        Spec { kind: BlockType::ChunkNode, owner: ag.into(), value: CHUNK_VALUE }
    }

    fn record(&self, level: u8) -> usize {
        if level == 0 { 8 + self.value } else { 16 }
    }

    /// Records that a body of `len` bytes holds.
    pub fn capacity(&self, len: usize, level: u8) -> usize {
        (len.saturating_sub(NODE_HEADER) / self.record(level)).min(usize::from(u16::MAX))
    }
}

/// What a walk found.
#[derive(Default)]
pub(crate) struct Walk {
    /// Records of all leaves that could be read.
    pub records: Vec<Record>,
    /// Nodes but the root, each with its level.
    pub nodes: Vec<(Frag, u8)>,
    /// Nodes among these that could not be used.
    pub rejected: Vec<Frag>,
    /// What was wrong.
    pub damage: Vec<String>,
}

/// Level that a root claims to have.
pub(crate) fn level(root: &[u8]) -> u8 {
    root.get(2).copied().unwrap_or(0)
}

/// Walks the tree with this root body.
pub(crate) fn walk(r: &Reader<'_>, root: &[u8], spec: Spec, claim: &mut dyn FnMut(Frag) -> bool) -> Result<Walk> {
    let mut out = Walk::default();
    if level(root) > MAX_LEVEL {
        out.damage.push(format!("the root claims level {}", level(root)));
        return Ok(out);
    }
    node(r, root, spec, level(root), (0, None), claim, &mut out)?;
    Ok(out)
}

/// The record with the greatest key that is not above `key`, and what is wrong on the way to it.
pub(crate) fn seek(r: &Reader<'_>, root: &[u8], spec: Spec, key: u64) -> Result<Walk> {
    let mut out = Walk::default();
    let (mut body, mut at) = (root.to_vec(), level(root));
    if at > MAX_LEVEL {
        out.damage.push(format!("the root claims level {at}"));
        return Ok(out);
    }
    loop {
        let found = records(&body, spec, at, &mut out);
        let place = found.partition_point(|r| r.0 <= key).max(usize::from(at > 0));
        let Some(record) = place.checked_sub(1).and_then(|n| found.get(n)) else { return Ok(out) };
        let Some(below) = at.checked_sub(1) else {
            out.records.push(*record);
            return Ok(out);
        };
        let child = Frag(get_u64(&record.1, 0).unwrap_or(0));
        let bytes = match r.owned(spec.kind, spec.owner, child, r.geom.block_frags())? {
            Ok(bytes) => bytes,
            Err(why) => {
                out.damage.push(why.to_string());
                return Ok(out);
            }
        };
        body = bytes.get(HEADER..).unwrap_or(&[]).to_vec();
        if level(&body) != below {
            out.damage.push(format!("the node at fragment {} claims level {}", child.0, level(&body)));
            return Ok(out);
        }
        at = below;
    }
}

/// Key and the eight bytes after it of each record, and complaints about the node's form.
fn records(body: &[u8], spec: Spec, level: u8, out: &mut Walk) -> Vec<Record> {
    let count = usize::from(get_u16(body, 0).unwrap_or(0));
    let cap = spec.capacity(body.len(), level);
    if count > cap {
        out.damage.push(format!("a node claims {count} records, it has room for {cap}"));
        return Vec::new();
    }
    let size = spec.record(level);
    let bytes = body.get(NODE_HEADER..).unwrap_or(&[]);
    let mut found = Vec::with_capacity(count);
    for record in bytes.chunks_exact(size).take(count) {
        let mut value = [0; EXTENT_VALUE];
        for (to, from) in value.iter_mut().zip(record.get(8..).unwrap_or(&[])) {
            *to = *from;
        }
        found.push((get_u64(record, 0).unwrap_or(0), value));
    }
    found
}

fn node(
    r: &Reader<'_>,
    body: &[u8],
    spec: Spec,
    level: u8,
    (lo, hi): (u64, Option<u64>),
    claim: &mut dyn FnMut(Frag) -> bool,
    out: &mut Walk,
) -> Result<()> {
    let mut found = records(body, spec, level, out);
    if level > 0 {
        if found.is_empty() {
            out.damage.push("an inner node without children".into());
        }
        if let Some(first) = found.first_mut() {
            first.0 = lo;
        }
    }
    let bad_bounds = found.iter().any(|r| r.0 < lo || hi.is_some_and(|h| r.0 >= h));
    let bad_order = found.iter().zip(found.iter().skip(1)).any(|(a, b)| a.0 >= b.0);
    if bad_bounds || bad_order {
        out.damage.push(format!("the keys of a node of level {level} are out of order"));
    }
    let Some(below) = level.checked_sub(1) else {
        out.records.append(&mut found);
        return Ok(());
    };
    let mut children = Vec::with_capacity(found.len());
    for (i, (key, value)) in found.iter().enumerate() {
        let child = Frag(get_u64(value, 0).unwrap_or(0));
        if !r.valid_run(child, r.geom.block_frags()) {
            out.damage.push(format!("child {} is no block", child.0));
        } else if !claim(child) {
            out.damage.push(format!("the node at fragment {} has another owner too", child.0));
        } else {
            out.nodes.push((child, below));
            let next = found.get(i + 1).map(|n| n.0).or(hi);
            children.push((child, *key, next));
        }
    }
    for group in children.chunks(BATCH) {
        let starts: Vec<Frag> = group.iter().map(|c| c.0).collect();
        for ((child, lo, hi), bytes) in group.iter().zip(r.blocks(spec.kind, &starts)?) {
            let addr = r.geom.daddr(*child);
            if let Err(why) = r.check(spec.kind, spec.owner, addr, &bytes) {
                out.damage.push(why.to_string());
                out.rejected.push(*child);
                continue;
            }
            let body = bytes.get(HEADER..).unwrap_or(&[]);
            if self::level(body) != below {
                out.damage.push(format!("the node at fragment {} claims level {}", child.0, self::level(body)));
                out.rejected.push(*child);
            } else if below == 0 && get_u16(body, 0) == Some(0) {
                out.damage.push(format!("the node at fragment {} is empty", child.0));
            } else {
                node(r, body, spec, below, (*lo, *hi), claim, out)?;
            }
        }
    }
    Ok(())
}

/// A node to be written: where, and the whole block, not sealed.
pub(crate) type NewNode = (Frag, Vec<u8>);

/// A block with its header and a body of zeros.
pub(crate) fn new_block(geom: &Geom, kind: BlockType, owner: u64, start: Frag, len: usize) -> Vec<u8> {
    let head = BlockHeader {
        magic: (kind as u32).into(),
        crc: 0.into(),
        fsid: geom.fsid.into(),
        addr: geom.daddr(start).0.into(),
        owner: owner.into(),
        len: (len as u32).into(),
        reserved: 0.into(),
    };
    let mut bytes = head.as_bytes().to_vec();
    bytes.resize(len.max(HEADER), 0);
    bytes
}

fn fill(body: &mut [u8], spec: Spec, level: u8, records: &[Record]) {
    let size = spec.record(level);
    if let Some(head) = body.get_mut(..NODE_HEADER) {
        head.fill(0);
        head[..2].copy_from_slice(&(records.len() as u16).to_le_bytes());
        head[2] = level;
    }
    let places = body.get_mut(NODE_HEADER..).unwrap_or_default();
    for (place, (key, value)) in places.chunks_exact_mut(size).zip(records) {
        let (k, v) = place.split_at_mut(8);
        k.copy_from_slice(&key.to_le_bytes());
        v.copy_from_slice(&value[..v.len()]);
    }
}

/// `total` in `parts` parts that differ by one at most.
fn even(total: usize, parts: usize) -> impl Iterator<Item = usize> {
    (0..parts).map(move |i| total / parts + usize::from(i < total % parts))
}

/// Builds a tree of sorted records: the root body of `root_len` bytes and the other nodes.
/// `None` if `alloc` has no block left or the root is too small for any tree.
pub(crate) fn build(
    geom: &Geom,
    spec: Spec,
    records: &[Record],
    root_len: usize,
    alloc: &mut dyn FnMut() -> Option<Frag>,
) -> Option<(Vec<u8>, Vec<NewNode>)> {
    let mut level = 0;
    let mut nodes = Vec::new();
    let mut current = records.to_vec();
    while current.len() > spec.capacity(root_len, level) {
        if level >= MAX_LEVEL || spec.capacity(root_len, 1) < 2 {
            return None;
        }
        let cap = spec.capacity(geom.block_size().checked_sub(HEADER)?, level).max(1);
        let mut rest = &current[..];
        let mut above = Vec::new();
        for n in even(current.len(), current.len().div_ceil(cap)) {
            let (part, tail) = rest.split_at_checked(n)?;
            rest = tail;
            let start = alloc()?;
            let mut block = new_block(geom, spec.kind, spec.owner, start, geom.block_size());
            fill(block.get_mut(HEADER..)?, spec, level, part);
            let mut child = [0; EXTENT_VALUE];
            child[..8].copy_from_slice(&start.0.to_le_bytes());
            above.push((part.first()?.0, child));
            nodes.push((start, block));
        }
        current = above;
        level += 1;
    }
    let mut root = vec![0; root_len];
    fill(&mut root, spec, level, &current);
    Some((root, nodes))
}
