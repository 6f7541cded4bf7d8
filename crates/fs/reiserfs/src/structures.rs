//! Which structures lie on a volume that is not mounted and what their fields are, for tests of damage. Of one whose
//! log has to be replayed the places are those after the replay.

use crate::format::*;
use crate::item::{Item, entries};
use crate::node::{Block, Content};
use crate::recover::{head_at, heads, read_log, record_hash};
use crate::volume::Core;
use crate::{mount, superblock};
use arbor_base::device::{Device, Kind as Request};
use arbor_base::layout::put;
use arbor_base::vfs::{Devices, Meaning, Result, Structure};
use arbor_kit::structures::{Fields, rewrite, seal_whole, some_pointers};
use std::mem::offset_of;
use zerocopy::FromBytes;

arbor_kit::fields! {
    SuperBlock {
        magic, crc: Checksum, version, compat, ro_compat, incompat, clean, uuid, label, node_size, blocks, log,
        root: Address, height, free, bitmaps, direction, created, created_nanos, freed, generation, orphan: Address, roomy,
        reserved,
    }
    IdMap { magic, crc: Checksum, fsid, count, reserved }
    IdRange { first, end }
    BitmapHead { magic, crc: Checksum, fsid, block: Address, reserved }
    LogHead { magic, crc: Checksum, fsid, seq }
    Record { magic, count, fsid, seq, hash: Checksum }
    NodeHead { magic, crc: Checksum, fsid, generation, block: Address, level, count }
    DiskKey { locality, object: Address, offset }
    ItemHead { key, len, at, tail, reserved }
    Child { key, block: Address }
    EntryHead { offset, locality, object: Address, kind, len }
    StatData {
        mode, nlink, uid, gid, rdev, generation, size, above: Address, blocks, tail, xattr, atime, mtime, ctime, btime,
    }
}

/// Children at each end of an internal node whose fields are told.
const SOME: usize = 4;

/// See [`Engine::reseal`](arbor_base::vfs::Engine::reseal).
pub(crate) fn reseal(device: &dyn Device, s: &Structure) -> Result<()> {
    if s.kind == RECORD_KIND { seal_record(device, s.offset) } else { seal_whole(device, s) }
}

/// The kind of structure that is not sealed by a CRC.
const RECORD_KIND: &str = "log record";

/// Makes the hash of the record at this byte, whose length is what it says now; nothing if it does not fit the log.
fn seal_record(device: &dyn Device, at: u64) -> Result<()> {
    let Ok(Some((_, geom))) = superblock::read(device, 0) else { return Ok(()) };
    let mut bytes = vec![0; geom.node_size];
    device.read_at(Request::Log, at, &mut bytes)?;
    let head = Record::read_from_prefix(&bytes).map(|h| h.0).unwrap_or_default();
    let len = geom.byte(1).saturating_mul(geom.record_blocks(head.count.get()));
    if at.saturating_add(len) > geom.byte(1 + geom.log) {
        return Ok(());
    }
    rewrite(device, at, len as usize, |bytes| {
        let hash = record_hash(&geom, head.seq.get(), bytes);
        put(bytes, offset_of!(Record, hash), &hash.to_le_bytes());
    })
}

/// The records that count in the log: block, number, addresses of their copies.
pub(crate) fn records(core: &Core) -> Result<Vec<(Block, u64, Vec<Block>)>> {
    let (geom, first) = (core.geom, heads(&*core.dev, &core.geom)?.seq);
    let (mut all, mut at) = (Vec::new(), geom.byte(2));
    for n in 0..read_log(&*core.dev, &geom, false)?.records {
        let mut bytes = vec![0; geom.node_size];
        core.dev.read_at(Request::Log, at, &mut bytes)?;
        let count = Record::read_from_prefix(&bytes).map(|h| h.0).unwrap_or_default().count.get();
        let blocks = geom.record_blocks(count);
        bytes.resize((blocks - u64::from(count)) as usize * geom.node_size, 0);
        core.dev.read_at(Request::Log, at, &mut bytes)?;
        let address = |n: usize| arbor_base::layout::get_u32(&bytes, RECORD + 4 * n).unwrap_or(0);
        all.push(((at / geom.byte(1)) as Block, first.saturating_add(n), (0..count as usize).map(address).collect()));
        at = at.saturating_add(blocks.saturating_mul(geom.byte(1)));
    }
    Ok(all)
}

/// See [`Engine::structures`](arbor_base::vfs::Engine::structures).
pub(crate) fn structures(devices: &Devices, f: &mut dyn FnMut(Structure)) -> Result<()> {
    let mut core = mount::look(devices)?;
    let mut a = Structures { geom: core.geom, f };
    a.fixed(&core);
    for (block, seq, copies) in records(&core)? {
        a.record(block, seq, copies.len());
    }
    core.each_node(&mut |_, block, _, content| {
        match content {
            Content::Leaf(items) => a.leaf(block, items),
            Content::Internal(all) => a.internal(block, all.len()),
        }
        Ok(())
    })
}

struct Structures<'a> {
    geom: Geom,
    f: &'a mut dyn FnMut(Structure),
}

impl Structures<'_> {
    fn block(&mut self, kind: &'static str, block: Block, len: usize, fields: Fields) {
        (self.f)(fields.structure(kind, block.into(), self.geom.byte(block), len, vec![block.into()]));
    }

    /// What has its place.
    fn fixed(&mut self, core: &Core) {
        let (g, size) = (self.geom, self.geom.node_size);
        for (kind, block) in [("superblock", 0), ("superblock copy", g.copy())] {
            self.block(kind, block, SECTOR, Fields::default().of::<SuperBlock>(0));
        }
        let ranges = (ID_MAP..).step_by(ID_RANGE).take(core.ids.len());
        let fields = ranges.fold(Fields::default().of::<IdMap>(0), |fields, at| fields.of::<IdRange>(at));
        let len = size.saturating_sub(ID_MAP_AT);
        (self.f)(fields.structure("map of object numbers", 0, ID_MAP_AT as u64, len, Vec::new()));
        for slot in 0..2 {
            let (fields, at) = (Fields::default().of::<LogHead>(0), head_at(&g, slot));
            (self.f)(fields.structure("log head", slot as u64, at, LOG_HEAD, Vec::new()));
        }
        for n in 0..core.sb.bitmaps.get() {
            let (fields, bits) = (Fields::default().of::<BitmapHead>(0), g.bit_bytes());
            let fields = fields.bitmap(BITMAP_HEAD, bits).bitmap(BITMAP_HEAD.saturating_add(bits), bits);
            self.block("bitmap", g.bitmap(n), size, fields);
        }
    }

    fn record(&mut self, block: Block, seq: u64, copies: usize) {
        let fields = Fields::default().of::<Record>(0).addresses("record.block", RECORD, copies);
        let (at, len) = (self.geom.byte(block), RECORD.saturating_add(copies.saturating_mul(4)));
        (self.f)(fields.structure(RECORD_KIND, seq, at, len, vec![block.into()]));
    }

    fn internal(&mut self, block: Block, count: usize) {
        let told = (0..count).filter(|n| *n < SOME || count.saturating_sub(*n) <= SOME);
        let fields = told.fold(Fields::default().of::<NodeHead>(0), |fields, n| {
            let at = NODE_HEAD + n * CHILD;
            fields.of::<Child>(at).of::<DiskKey>(at + offset_of!(Child, key))
        });
        self.block("internal node", block, self.geom.node_size, fields);
    }

    fn leaf(&mut self, block: Block, items: &[Item]) {
        let (mut fields, mut end) = (Fields::default().of::<NodeHead>(0), self.geom.node_size);
        for (head, item) in (NODE_HEAD..).step_by(ITEM_HEAD).zip(items) {
            let at = end.saturating_sub(item.body.len());
            fields = fields.of::<ItemHead>(head).of::<DiskKey>(head + offset_of!(ItemHead, key));
            fields = body(fields, item, at);
            end = at;
        }
        self.block("formatted node", block, self.geom.node_size, fields);
    }
}

/// Adds what lies in the body of an item, which begins at byte `at` of its node.
fn body(fields: Fields, item: &Item, at: usize) -> Fields {
    let len = item.body.len();
    match item.key.kind() {
        Some(Kind::StatData) if len == STAT_DATA => fields.of::<StatData>(at),
        Some(Kind::StatData) => crate::stat::places(&item.body).fold(fields, |fields, (name, place)| {
            fields.one(name, at.saturating_add(place.start), place.len(), Meaning::Number)
        }),
        Some(Kind::Directory) => entries(&item.body).fold(fields, |fields, (begins, _, name)| {
            let at = at.saturating_add(begins);
            fields.of::<EntryHead>(at).one("entry.name", at.saturating_add(ENTRY_HEAD), name.len(), Meaning::Bytes)
        }),
        Some(Kind::Indirect) => some_pointers(&item.body, 0, 4)
            .fold(fields, |fields, n| fields.one("indirect.pointer", at.saturating_add(n), 4, Meaning::Address)),
        Some(Kind::Direct) | None => fields.one("direct.bytes", at, len, Meaning::Bytes),
        Some(Kind::Xattr) if item.key.offset() == XATTR_OFFSET => {
            let node = [&vec![0; at][..], &item.body].concat();
            fields.attributes(&node, at)
        }
        Some(Kind::Xattr) => fields.one("attribute.rest", at, len, Meaning::Bytes),
    }
}
