//! Every inode by itself: fields, map, attributes. Here fragments get their owners.

use super::issue::{Issue, Node};
use super::salvage::Head;
use super::tree::{self, Record, Spec};
use super::view::RawInode;
use super::{Checker, Chunk, DIR_KIND, MapEdit, record};
use crate::format::*;
use crate::inode::parse_xattrs;
use arbor_base::device::{Kind, Request};
use arbor_base::layout::{get_u32, get_u64};
use arbor_base::vfs::{FileType, Repair, Result};

/// Chunks read at a time.
const BATCH: usize = 32;
/// Greatest size of a file.
pub(super) const MAX_SIZE: u64 = i64::MAX as u64;
/// Longest target of a symbolic link.
const MAX_TARGET: u64 = 4095;

/// What the walk over an inode's map found.
#[derive(Default)]
struct Map {
    records: Vec<Record>,
    nodes: Vec<Frag>,
    /// Something is lost: the tree must be rebuilt.
    damaged: bool,
    /// Fragments of records and nodes.
    frags: u64,
}

impl Checker<'_> {
    pub(super) fn read_inodes(&mut self) -> Result<()> {
        let inodes = |chunks: &[Chunk]| chunks.iter().map(|c| u64::from(c.mask.count_zeros())).sum::<u64>();
        let total: u64 = self.groups.iter().map(|g| inodes(&g.chunks)).sum();
        self.recs.reserve(total as usize);
        let mut done = 0;
        for ag in 0..self.r.ags() {
            let mut chunks =
                self.groups.get_mut(ag as usize).map(|g| std::mem::take(&mut g.chunks)).unwrap_or_default();
            for group in chunks.chunks_mut(BATCH) {
                self.report(done, total, "inodes");
                done += inodes(group);
                self.read_chunks(group)?;
            }
            if let Some(g) = self.groups.get_mut(ag as usize) {
                g.chunks = chunks;
            }
        }
        Ok(())
    }

    fn read_chunks(&mut self, chunks: &mut [Chunk]) -> Result<()> {
        let (len, size) = (self.r.geom.chunk_size(), self.r.geom.inode_size());
        let batch = chunks.iter().map(|c| Request::read(Kind::Inode, c.start.saturating_mul(SECTOR), len)).collect();
        let done = arbor_base::device::Device::submit(&self.r.view, batch).wait();
        for (chunk, bytes) in chunks.iter_mut().zip(done) {
            for (i, inode) in (0u32..).zip(bytes?.chunks_exact(size)) {
                let ino = chunk.start + u64::from(i) * (size as u64 / SECTOR);
                let masked = chunk.mask >> i & 1 == 0;
                let used = self.check_inode(ino, inode, masked)?;
                if masked && !used {
                    self.gone.insert(ino);
                }
                if used != masked {
                    let state = if used { "in use" } else { "free" };
                    if self.f.judge(Issue::FreeMask { ino: Node(ino), state }) {
                        chunk.mask ^= 1 << i;
                    }
                }
            }
        }
        Ok(())
    }

    /// Checks one inode. Whether it is in use, for the chunk's mask.
    pub(super) fn check_inode(&mut self, ino: u64, bytes: &[u8], masked: bool) -> Result<bool> {
        let (mut i, mut changed, doubt) = match self.read_head(ino, bytes, masked)? {
            Head::Free => return Ok(false),
            Head::Lost(used) => return Ok(used),
            Head::Used { i, changed, doubt } => (i, changed, doubt),
        };
        let symlink = i.kind() == 0o12;
        if symlink {
            self.check_target(&mut i, &mut changed)?;
        }
        if symlink && let Some(why) = self.symlink_damage(&i)? {
            if self.f.judge(Issue::Symlink { ino: Node(ino), why }) {
                self.write_inode(&freed(i))?;
                return Ok(false);
            }
            return Ok(true);
        }
        let xattr = self.check_xattrs(&mut i, &mut changed)?;
        let map = self.check_map(&mut i, &mut changed)?;
        if symlink && map.damaged && self.f.mode == Repair::Yes {
            // Its one block belongs to another.
            self.space.release(Frag(i.d.xattr.get()), xattr as u32);
            self.write_inode(&freed(i))?;
            return Ok(false);
        }
        self.check_size(&mut i, &map, doubt, &mut changed);
        self.check_frags(&mut i, xattr + map.frags, map.damaged, &mut changed);
        self.settle_map(&i, map);
        if changed {
            self.write_inode(&i)?;
        }
        self.recs.push(record(&i));
        Ok(true)
    }

    /// Clears a damaged inode. Without repair it counts as in use, whatever the mask says.
    pub(super) fn clear(&mut self, i: RawInode, why: &str) -> Result<bool> {
        self.gone.insert(i.ino);
        if self.f.judge(Issue::InodeDamaged { ino: Node(i.ino), why: why.into() }) {
            self.write_inode(&freed(i))?;
            return Ok(false);
        }
        Ok(true)
    }

    /// A target of impossible length ends at its first zero.
    fn check_target(&mut self, i: &mut RawInode, changed: &mut bool) -> Result<()> {
        let (ino, found) = (i.ino, i.d.size.get());
        let target = match i.d.format() {
            Some(Format::Inline) => i.area().to_vec(),
            Some(Format::Extent) => {
                let walk = tree::walk(&self.r, i.area(), Spec::map(ino, false), &mut |_| false)?;
                let [(0, value)] = &walk.records[..] else { return Ok(()) };
                let (start, len, _) = extent(value);
                let Ok(block) = self.r.owned(BlockType::Symlink, ino, start, len)? else { return Ok(()) };
                block.get(HEADER..).unwrap_or(&[]).to_vec()
            }
            _ => return Ok(()),
        };
        if (1..=MAX_TARGET.min(target.len() as u64)).contains(&found) {
            return Ok(());
        }
        let expected = target.iter().position(|b| *b == 0).unwrap_or(target.len()) as u64;
        if (1..=MAX_TARGET).contains(&expected)
            && self.f.judge(Issue::InodeField { ino: Node(ino), field: "size", found, expected })
        {
            i.d.size = expected.into();
            *changed = true;
        }
        Ok(())
    }

    /// What is wrong with a symbolic link.
    fn symlink_damage(&mut self, i: &RawInode) -> Result<Option<String>> {
        let size = i.d.size.get();
        if size == 0 || size > MAX_TARGET {
            return Ok(Some(format!("a target of {size} bytes")));
        }
        match i.d.format() {
            Some(Format::Inline) => {
                let bad = i.area().len() < size as usize;
                return Ok(bad.then(|| "the target does not fit the inode".into()));
            }
            Some(Format::Extent) => {}
            _ => return Ok(Some("its format is that of a larger file".into())),
        }
        let walk = tree::walk(&self.r, i.area(), Spec::map(i.ino, false), &mut |_| false)?;
        let [(0, value)] = &walk.records[..] else {
            return Ok(Some("it has not one block".into()));
        };
        let (start, len, flags) = extent(value);
        if flags != 0 {
            return Ok(Some("its block has flags".into()));
        }
        match self.r.owned(BlockType::Symlink, i.ino, start, len)? {
            Err(why) => Ok(Some(why.to_string())),
            Ok(b) if (b.len() as u64) < size + HEADER as u64 => Ok(Some("the target does not fit its block".into())),
            Ok(_) => Ok(None),
        }
    }

    /// Checks extended attributes; damaged ones are dropped. Returns the fragments they take.
    fn check_xattrs(&mut self, i: &mut RawInode, changed: &mut bool) -> Result<u64> {
        let ino = i.ino;
        if i.d.xattr_inline.get() > 0 {
            let two = i.d.xattr.get() != 0;
            let why = match parse_xattrs(i.inline_xattrs()) {
                None => "the list in the inode is broken",
                Some(_) if two => "they are both in the inode and in a block",
                Some(_) => return Ok(0),
            };
            if self.f.judge(Issue::Xattr { ino: Node(ino), why: why.into() }) {
                // The room becomes a part of the area, which is zero after what it holds.
                let from = i.bytes.len().saturating_sub(i.d.xattr_inline.get().into());
                i.bytes.get_mut(from.max(DINODE)..).unwrap_or_default().fill(0);
                i.d.xattr_inline = 0.into();
                *changed = true;
            }
        }
        let (start, len) = (Frag(i.d.xattr.get()), i.d.xattr_frags.get());
        if start.0 == 0 {
            return Ok(0);
        }
        let why = match self.r.owned(BlockType::Xattr, ino, start, len)? {
            Err(why) => why.to_string(),
            Ok(bytes) if parse_xattrs(bytes.get(HEADER..).unwrap_or(&[])).is_none() => "the list is broken".into(),
            Ok(_) if !self.space.claim(start, len) => "the block has another owner too".into(),
            Ok(_) => return Ok(len.into()),
        };
        if self.f.judge(Issue::Xattr { ino: Node(ino), why }) {
            (i.d.xattr, i.d.xattr_frags) = (0.into(), 0.into());
            *changed = true;
        }
        Ok(0)
    }

    fn check_map(&mut self, i: &mut RawInode, changed: &mut bool) -> Result<Map> {
        let (ino, dir) = (i.ino, i.kind() == DIR_KIND);
        let mut map = Map::default();
        if i.d.format == Format::Inline as u8 {
            return Ok(map);
        }
        let form = if tree::level(i.area()) == 0 { Format::Extent } else { Format::Btree } as u8;
        if i.d.format != form {
            let (found, expected) = (i.d.format.into(), form.into());
            if self.f.judge(Issue::InodeField { ino: Node(ino), field: "format", found, expected }) {
                i.d.format = form;
                *changed = true;
            }
        }
        let block = self.r.geom.block_frags();
        let mut nodes = Vec::new();
        let walk = tree::walk(&self.r, i.area(), Spec::map(ino, dir), &mut |f| {
            let mine = self.space.claim(f, block);
            if mine {
                nodes.push(f);
            }
            mine
        })?;
        for why in walk.damage {
            self.f.judge(Issue::MapTree { ino: Node(ino), why });
            map.damaged = true;
        }
        // It may be another's, or lie elsewhere in the tree.
        walk.rejected.iter().for_each(|f| self.space.release(*f, block));
        nodes.retain(|f| !walk.rejected.contains(f));
        map.nodes = nodes;
        map.frags = map.nodes.len() as u64 * u64::from(block);
        let mut records = walk.records;
        // Where keys were out of order, what can be kept must be in order.
        records.sort_by_key(|r| r.0);
        if dir {
            self.claim_blocks(ino, records, &mut map)
        } else {
            self.claim_extents(ino, records, &mut map)
        }
        Ok(map)
    }

    fn claim_blocks(&mut self, ino: u64, records: Vec<Record>, map: &mut Map) {
        let len = self.r.geom.block_frags();
        let mut last = None;
        for (key, value) in records {
            let start = Frag(get_u64(&value, 0).unwrap_or(0));
            let issue = if !self.r.valid_run(start, len) {
                Issue::Extent { ino: Node(ino), key, why: "lies nowhere" }
            } else if !self.space.claim(start, len) {
                Issue::CrossLinked { ino: Node(ino), start: start.0, len }
            } else {
                map.frags += u64::from(len);
                map.records.push((key, value));
                if last != Some(key) {
                    last = Some(key);
                    continue;
                }
                // It owns both blocks; the directory is rebuilt.
                Issue::Extent { ino: Node(ino), key, why: "stands there twice" }
            };
            map.damaged = true;
            self.f.judge(issue);
        }
    }

    fn claim_extents(&mut self, ino: u64, records: Vec<Record>, map: &mut Map) {
        let mut end = 0;
        for (key, value) in records {
            let (start, len, flags) = extent(&value);
            let next = key.checked_add(len.into()).filter(|n| *n <= (1 << 63) >> self.r.geom.frag_shift);
            let issue = match next {
                _ if !self.r.valid_run(start, len) => Issue::Extent { ino: Node(ino), key, why: "lies nowhere" },
                None => Issue::Extent { ino: Node(ino), key, why: "lies past any file's end" },
                _ if flags & !UNWRITTEN != 0 => Issue::Extent { ino: Node(ino), key, why: "has unknown flags" },
                _ if key < end => Issue::Extent { ino: Node(ino), key, why: "overlaps the one before" },
                _ if !self.space.claim(start, len) => Issue::CrossLinked { ino: Node(ino), start: start.0, len },
                Some(next) => {
                    end = next;
                    map.frags += u64::from(len);
                    map.records.push((key, value));
                    continue;
                }
            };
            map.damaged = true;
            self.f.judge(issue);
        }
    }

    /// Checks that the size covers what was written, and that inline contents fit.
    fn check_size(&mut self, i: &mut RawInode, map: &Map, doubt: bool, changed: &mut bool) {
        let (ino, size) = (i.ino, i.d.size.get());
        let inline = i.d.format == Format::Inline as u8;
        let expected = match FileType::from_mode(i.d.mode.get()) {
            Some(FileType::File) if inline => size.min(i.area().len() as u64),
            Some(FileType::File) => {
                let geom = &self.r.geom;
                let end = written_end(geom, &map.records);
                let short = end > size.min(MAX_SIZE).next_multiple_of(size_slack(geom));
                // A hole at the end is possible, but of a damaged inode none that exceeds the volume.
                let wild = doubt && size > end && size > geom.frags.saturating_mul(geom.frag_size());
                if short || wild || size > MAX_SIZE { end } else { size }
            }
            Some(FileType::Dir | FileType::Symlink) => size,
            _ => 0,
        };
        if size != expected && self.f.judge(Issue::InodeField { ino: Node(ino), field: "size", found: size, expected })
        {
            i.d.size = expected.into();
            *changed = true;
        }
    }

    /// Checks the fragment count; a map that will be rebuilt gets its count then.
    fn check_frags(&mut self, i: &mut RawInode, expected: u64, later: bool, changed: &mut bool) {
        let (ino, found) = (i.ino, i.d.frags.get());
        if found == expected || later {
            return;
        }
        if self.f.judge(Issue::FragCount { ino: Node(ino), found, expected }) {
            i.d.frags = expected.into();
            *changed = true;
        }
    }

    /// Schedules a damaged map to be rebuilt, after all that belongs to it is known.
    fn settle_map(&mut self, i: &RawInode, map: Map) {
        if !map.damaged {
            return;
        }
        let block = self.r.geom.block_frags();
        if i.kind() == DIR_KIND {
            let records = map.records.iter().map(|r| (Frag(get_u64(&r.1, 0).unwrap_or(0)), block));
            let owned = map.nodes.iter().map(|n| (*n, block)).chain(records).collect();
            let edit = self.edits.entry(i.ino).or_default();
            (edit.rebuild, edit.owned) = (true, Some(owned));
            return;
        }
        self.maps.push(MapEdit { ino: i.ino, records: map.records, nodes: map.nodes });
    }
}

/// End in bytes of what was written, by the records of a map.
pub(super) fn written_end(geom: &Geom, records: &[Record]) -> u64 {
    let written = records.iter().rev().find(|r| extent(&r.1).2 & UNWRITTEN == 0);
    let end = written.map_or(0, |r| r.0.saturating_add(extent(&r.1).1.into()));
    end.checked_mul(geom.frag_size()).map_or(MAX_SIZE, |end| end.min(MAX_SIZE))
}

/// How far after the size of a file fragments may be written.
pub(super) fn size_slack(geom: &Geom) -> u64 {
    geom.frag_size().max(4096).max(geom.block_size() as u64)
}

/// Puts a root node into an inode.
pub(super) fn set_root(i: &mut RawInode, root: &[u8]) {
    let end = i.bytes.len().saturating_sub(i.d.xattr_inline.get().into());
    for (to, from) in i.bytes.get_mut(DINODE..end).unwrap_or_default().iter_mut().zip(root) {
        *to = *from;
    }
    i.d.format = if tree::level(root) == 0 { Format::Extent } else { Format::Btree } as u8;
}

/// Decodes the value of an extent record.
pub(crate) fn extent(value: &[u8; EXTENT_VALUE]) -> (Frag, u32, u32) {
    (Frag(get_u64(value, 0).unwrap_or(0)), get_u32(value, 8).unwrap_or(0), get_u32(value, 12).unwrap_or(0))
}

/// The inode, free; its generation survives so that no handle of old finds a new file.
pub(super) fn freed(mut i: RawInode) -> RawInode {
    let generation = if i.d.magic.get() == INODE_MAGIC { i.d.generation } else { 0.into() };
    i.d = Dinode { magic: INODE_MAGIC.into(), ino: i.ino.into(), generation, ..Dinode::default() };
    i
}

/// Whether the fixed part could be that of an inode.
pub(super) fn plausible(i: &RawInode) -> bool {
    let kind = FileType::from_mode(i.d.mode.get());
    let form = match (kind, i.d.format()) {
        (_, Some(Format::Free)) => return true,
        (Some(FileType::File | FileType::Dir), Some(_)) => true,
        (Some(FileType::Symlink), Some(f)) => f != Format::Btree,
        (Some(_), Some(f)) => f == Format::Inline,
        _ => false,
    };
    let inline = usize::from(i.d.xattr_inline.get());
    form && inline <= i.bytes.len().saturating_sub(DINODE)
}
