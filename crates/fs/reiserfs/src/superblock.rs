//! Reading and checking the superblock and the map of object numbers.

use crate::format::*;
use crate::validate;
use arbor_base::device::{Device, Kind};
use arbor_base::field;
use arbor_base::layout::{Corrupt, crc_without};
use arbor_base::vfs::{Error, Result};
use arbor_kit::head;
use zerocopy::FromBytes;

/// Numbers of objects in use: ranges from the first to before the second.
pub(crate) type Ids = Vec<(u32, u32)>;

/// The superblock at byte `at`, checked, with its geometry; `None` if there is no magic. Rereads one whose checksum is
/// wrong.
pub(crate) fn read(dev: &dyn Device, at: u64) -> Result<Option<(SuperBlock, Geom)>> {
    head::read_checked(dev, at, checked)
}

/// The superblock at byte 0; it is an error if there is none.
pub(crate) fn need(dev: &dyn Device) -> Result<(SuperBlock, Geom)> {
    read(dev, 0)?.ok_or_else(|| Error::refused("no ReiserFS superblock"))
}

/// The superblock in these bytes, see [`read`].
pub(crate) fn decode(bytes: &[u8], at: u64, size: u64) -> Result<Option<(SuperBlock, Geom)>> {
    checked(head::decode(bytes, at)?, at, size)
}

fn checked(sb: Option<SuperBlock>, at: u64, size: u64) -> Result<Option<(SuperBlock, Geom)>> {
    let Some(sb) = sb else { return Ok(None) };
    let bad = |f: (_, u64), found: u64, expected: &str| {
        Err(Corrupt::new("superblock", f.0, at.saturating_add(f.1), found, expected).into())
    };
    let node = sb.node_size.get() as usize;
    if !node.is_power_of_two() || !(LEAST_NODE..=MOST_NODE).contains(&node) {
        return bad(field!(SuperBlock, node_size), node as u64, "a power of two from 1024 to 32768");
    }
    let geom = Geom::of(&sb);
    if geom.log < crate::options::LEAST_LOG || geom.log > geom.most_log() {
        return bad(
            field!(SuperBlock, log),
            geom.log.into(),
            "a log that its first bitmap covers, of no more than 256 MiB",
        );
    }
    if u64::from(geom.blocks) < u64::from(geom.log) + 8 {
        return bad(field!(SuperBlock, blocks), geom.blocks.into(), "more blocks than the log has");
    }
    if geom.byte(geom.blocks) > size {
        let bytes = geom.byte(geom.blocks);
        return Err(Error::refused(format!("the volume has {bytes} bytes, the device only {size}: truncated image?")));
    }
    if sb.free.get() > geom.blocks {
        return bad(field!(SuperBlock, free), sb.free.get().into(), "no more than the volume has");
    }
    if sb.bitmaps.get() > geom.bitmaps() {
        return bad(field!(SuperBlock, bitmaps), sb.bitmaps.get().into(), "no more than cover the volume");
    }
    let has_tree = sb.root.get() != 0 || sb.height.get() != 0;
    if has_tree && !geom.is_node(sb.root.get()) {
        return bad(field!(SuperBlock, root), sb.root.get().into(), "a block for nodes");
    }
    if has_tree && !(1..=MOST_HEIGHT).contains(&sb.height.get()) {
        return bad(field!(SuperBlock, height), sb.height.get().into(), "levels that a tree can have");
    }
    Ok(Some((sb, geom)))
}

/// Most levels of a tree: with two children in each node it would have more nodes than a volume has blocks.
const MOST_HEIGHT: u32 = 32;

/// The map of object numbers in the first block of the volume.
pub(crate) fn ids(geom: &Geom, block: &[u8]) -> std::result::Result<Ids, Corrupt> {
    let bytes = block.get(ID_MAP_AT..).unwrap_or(&[]);
    let bad = |f: (&'static str, u64), found: u64, expected: u64| {
        Corrupt::new("map of object numbers", f.0, ID_MAP_AT as u64 + f.1, found, expected)
    };
    let head = IdMap::read_from_prefix(bytes).map(|h| h.0).unwrap_or_default();
    let crc = crc_without(bytes, CRC_AT).unwrap_or(0);
    let all = [
        (field!(IdMap, magic), head.magic.get().into(), ID_MAP_MAGIC.into()),
        (field!(IdMap, crc), head.crc.get().into(), crc.into()),
        (field!(IdMap, fsid), head.fsid.get(), geom.fsid),
    ];
    validate::numbers("map of object numbers", ID_MAP_AT as u64, &all)?;
    // The root directory has a number.
    if head.count.get() == 0 || head.count.get() as usize > geom.most_ranges() {
        return Err(bad(field!(IdMap, count), head.count.get().into(), geom.most_ranges() as u64));
    }
    let mut all = Ids::new();
    for at in (ID_MAP..).step_by(ID_RANGE).take(head.count.get() as usize) {
        let range = bytes.get(at..at + ID_RANGE).and_then(|b| IdRange::read_from_bytes(b).ok()).unwrap_or_default();
        let (first, end) = (range.first.get(), range.end.get());
        if first >= end || all.last().is_some_and(|last| last.1 >= first) {
            return Err(bad(("ranges", at as u64), first.into(), u64::from(all.last().map_or(0, |last| last.1)) + 1));
        }
        all.push((first, end));
    }
    // Those that no object has, and the root directory's.
    if all.first().is_none_or(|range| range.0 > 0 || range.1 <= ROOT_OBJECT) {
        let found = all.first().map_or(0, |range| range.1.into());
        return Err(bad(("ranges", ID_MAP as u64), found, u64::from(ROOT_OBJECT) + 1));
    }
    Ok(all)
}

/// The first block of the volume.
pub(crate) fn first_block(geom: &Geom, sb: &SuperBlock, ids: &Ids) -> Vec<u8> {
    use zerocopy::IntoBytes as _;
    let mut bytes = head::encode(sb);
    bytes.resize(geom.node_size, 0);
    let head = IdMap {
        magic: ID_MAP_MAGIC.into(),
        fsid: geom.fsid.into(),
        count: (ids.len() as u32).into(),
        ..IdMap::default()
    };
    let map = bytes.get_mut(ID_MAP_AT..).unwrap_or(&mut []);
    arbor_base::layout::put(map, 0, head.as_bytes());
    for (at, (first, end)) in (ID_MAP..).step_by(ID_RANGE).zip(ids) {
        arbor_base::layout::put(map, at, IdRange { first: (*first).into(), end: (*end).into() }.as_bytes());
    }
    seal(map);
    bytes
}

/// Reads the map of object numbers; rereads one that is damaged.
pub(crate) fn read_ids(dev: &dyn Device, geom: &Geom) -> Result<Ids> {
    let once = || {
        let mut bytes = vec![0; geom.node_size];
        dev.read_at(Kind::Super, 0, &mut bytes)?;
        Ok::<_, Error>(ids(geom, &bytes)?)
    };
    once().or_else(|_| once())
}
