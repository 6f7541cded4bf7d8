//! Phase 2: every object by itself: stat data, body, attributes. Each unformatted node gets its one owner (REISER-A1). What is
//! to be mended waits until the whole tree was read.

use super::issue::{Issue, Node};
use super::{Checker, Mend};
use crate::format::*;
use crate::inode::{Inode, stat_key};
use crate::item::{Item, entries, last_unit, pointer};
use crate::node::Block;
use crate::tree::seek;
use crate::validate::{most_size_of, stat_data};
use crate::volume::Core;
use arbor_base::vfs::{FileType, Ino, Result, mode};
use arbor_kit::forest::{DIR_KIND, Record};
use arbor_kit::xattr;
use std::ops::Range;

/// The record of an object.
pub(super) type Rec = Record<u64, u64>;

/// An object as its items say, read in their order.
#[derive(Debug)]
pub(super) struct Object {
    pub ino: Ino,
    stat: Option<std::result::Result<StatData, String>>,
    /// First block, pointers, and the bytes in use of the last one.
    indirect: Vec<(u64, Vec<Block>, u16)>,
    /// Where direct items begin and end, and those that do not go on where they end.
    direct: Option<Range<u64>>,
    apart: Vec<Range<u64>>,
    /// Bytes of entries, and offsets and names of those that do not lie where their names belong.
    entries: u64,
    misplaced: Vec<(u64, Vec<u8>)>,
    xattr: Vec<u8>,
    has_xattr: bool,
    xattr_apart: bool,
    /// Items with keys that no item of an object has: the first key of each, and one after its last.
    strange: Vec<(Key, Key)>,
}

/// The next key of an object.
fn after(key: Key) -> Key {
    let next = Kind::ALL.into_iter().find(|kind| Some(*kind) > key.kind());
    match next {
        Some(kind) => Key::new(key.locality(), key.object(), key.offset(), kind),
        None => Key::new(key.locality(), key.object(), key.offset() + 1, Kind::StatData),
    }
}

/// Visits all items of an object.
pub(super) fn each_item(core: &mut Core, ino: Ino, mut visit: impl FnMut(&Item)) -> Result<()> {
    let mut at = stat_key(ino);
    let last = Key::new(at.locality(), at.object(), MOST_OFFSET, Kind::Xattr);
    while let Some(unit) = seek(core, at)? {
        let Some(item) = unit.item().filter(|item| item.key <= last) else { break };
        at = after(last_unit(item, core.geom.node_size));
        visit(item);
    }
    Ok(())
}

impl Object {
    pub fn new(ino: Ino) -> Object {
        Object {
            ino,
            stat: None,
            indirect: Vec::new(),
            direct: None,
            apart: Vec::new(),
            entries: 0,
            misplaced: Vec::new(),
            xattr: Vec::new(),
            has_xattr: false,
            xattr_apart: false,
            strange: Vec::new(),
        }
    }

    /// Adds the next item.
    pub fn take(&mut self, geom: &Geom, item: &Item) {
        let (offset, node, most) = (item.key.offset(), geom.node_size as u64, geom.most_size());
        let len = item.body.len() as u64;
        match item.key.kind() {
            Some(Kind::StatData) if offset == 0 => {
                let told = |(field, found, expected)| format!("field {field} holds {found}, expected {expected}");
                self.stat = Some(stat_data(geom, &item.body).map_err(told));
            }
            Some(Kind::Indirect) if offset.is_multiple_of(node) && offset + len / 4 * node <= most => {
                let all = (0..item.body.len() / 4).map(|n| pointer(item, n)).collect();
                self.indirect.push((offset / node, all, item.tail));
            }
            Some(Kind::Direct) if offset + len <= most => match &mut self.direct {
                Some(range) if range.end == offset => range.end += len,
                None if offset.is_multiple_of(node) => self.direct = Some(offset..offset + len),
                _ => self.apart.push(offset..offset + len),
            },
            Some(Kind::Directory) if offset < XATTR_OFFSET => self.take_entries(geom, item),
            Some(Kind::Xattr) if offset >= XATTR_OFFSET => {
                self.has_xattr = true;
                self.xattr_apart |= offset != XATTR_OFFSET + self.xattr.len() as u64;
                self.xattr.extend_from_slice(&item.body);
            }
            _ => {
                let last = last_unit(item, geom.node_size);
                self.strange.push((item.key, last.at(last.offset() + 1)));
            }
        }
    }

    fn take_entries(&mut self, geom: &Geom, item: &Item) {
        for (_, head, name) in entries(&item.body) {
            self.entries += (ENTRY_HEAD + name.len()) as u64;
            let first = geom.name_offset(name);
            if !(first..first + 256).contains(&head.offset.get()) {
                self.misplaced.push((head.offset.get(), name.to_vec()));
            }
        }
    }

    fn has_body(&self) -> bool {
        !self.indirect.is_empty() || self.direct.is_some() || self.entries > 0
    }

    /// Stat data for an object that has lost its own.
    fn new_stat(&self, geom: &Geom) -> StatData {
        let node = geom.node_size as u64;
        let last = self.indirect.last();
        let end = last.map_or(0, |(first, all, used)| {
            let whole = (first + all.len() as u64) * node;
            if *used > 0 { whole - node + u64::from(*used) } else { whole }
        });
        let is_dir = self.entries > 0 && self.indirect.is_empty() && self.direct.is_none();
        let tail = self.direct.as_ref().filter(|d| d.end - d.start <= geom.most_direct() as u64 && d.start >= end);
        StatData {
            mode: if is_dir { mode::IFDIR | 0o700 } else { mode::IFREG | 0o600 }.into(),
            nlink: if is_dir { 2 } else { 1 }.into(),
            size: if is_dir { self.entries } else { tail.map_or(end, |d| d.end) }.into(),
            tail: (tail.map_or(0, |d| d.end - d.start) as u32).into(),
            ..StatData::default()
        }
    }
}

/// Removes direct items.
fn cut_bytes(i: &Inode, range: Range<u64>) -> Mend {
    Mend::Cut(i.key(range.start, Kind::Direct), i.key(range.end, Kind::StatData))
}

impl Checker<'_> {
    /// Checks an object all of whose items were read, and records it if it can be used.
    pub(super) fn end_object(&mut self, object: Option<Object>) -> Result<()> {
        let Some(mut o) = object else { return Ok(()) };
        let ino = Node(o.ino.0);
        let at = Inode { ino: o.ino, d: StatData::default(), at: 0 };
        if o.ino != ROOT && (key_of(o.ino).1 <= ROOT_OBJECT || key_of(o.ino).1 == u32::MAX) {
            self.f.note(Issue::Items { ino, count: 1, why: "have a number that no object has" });
            self.mends.push(Mend::Cut(stat_key(o.ino), at.key(MOST_OFFSET, Kind::Xattr)));
            return Ok(());
        }
        for (from, to) in std::mem::take(&mut o.strange) {
            self.f.note(Issue::Items { ino, count: 1, why: "have keys that no item has" });
            self.mends.push(Mend::Cut(from, to));
        }
        let Some((mut d, is_new)) = self.stat_of(&mut o) else { return Ok(()) };
        let before = d;
        let i = Inode { ino: o.ino, d, at: 0 };
        match d.kind() {
            mode::IFREG | mode::IFLNK => self.check_body(&mut o, &i, &mut d),
            mode::IFDIR => self.check_entries(&mut o, &i, &mut d),
            _ => self.drop_body(&mut o, &i),
        }
        if !matches!(d.kind(), mode::IFREG | mode::IFLNK) {
            self.check_blocks(&i, &mut d, (0, false));
        }
        self.check_xattr(&o, &i, &mut d);
        if is_new {
            self.mends.push(Mend::Insert(self.core.stat_item(o.ino, &d)));
        } else if d != before {
            self.mends.push(Mend::Stat(o.ino, Box::new(d)));
        }
        let is_empty = d.kind() == mode::IFREG && d.size.get() == 0 && d.xattr.get() == 0;
        let kind = (d.kind() >> 12) as u8;
        self.recs.push(Rec {
            ino: o.ino.0,
            stored: d.nlink.get(),
            kind,
            dotdot: if kind == DIR_KIND { d.above.get() } else { 0 },
            flags: if is_empty { Rec::EMPTY } else { 0 },
            ..Rec::default()
        });
        Ok(())
    }

    /// The stat data of an object, and whether they are new: it has lost its own. `None` if nothing else is left of it either.
    fn stat_of(&mut self, o: &mut Object) -> Option<(StatData, bool)> {
        let (ino, at) = (Node(o.ino.0), Inode { ino: o.ino, d: StatData::default(), at: 0 });
        let then = if o.has_body() { "it gets new ones" } else { "nothing else is left of it, and it goes" };
        let is_damaged = match o.stat.take() {
            Some(Ok(d)) => return Some((d, false)),
            Some(Err(why)) => {
                self.f.note(Issue::StatDamaged { ino, why, then });
                true
            }
            None => {
                self.f.note(Issue::StatLost { ino, then });
                false
            }
        };
        if !o.has_body() {
            self.mends.push(Mend::Cut(stat_key(o.ino), at.key(MOST_OFFSET, Kind::Xattr)));
            return None;
        }
        if is_damaged {
            self.mends.push(Mend::Cut(stat_key(o.ino), stat_key(o.ino).at(1).min(at.from(0))));
        }
        Some((o.new_stat(&self.core.geom), true))
    }

    /// Removes items of a body that an object of its kind cannot have.
    fn drop_body(&mut self, o: &mut Object, i: &Inode) {
        let kinds = [
            (Kind::Directory, u64::from(o.entries > 0)),
            (Kind::Indirect, o.indirect.len() as u64),
            (Kind::Direct, u64::from(o.direct.is_some()) + o.apart.len() as u64),
        ];
        let count: u64 = kinds.iter().map(|(_, n)| n).sum();
        if count > 0 {
            self.f.note(Issue::Items { ino: Node(o.ino.0), count, why: "are of a kind that it cannot have" });
            self.mends.push(Mend::Cut(i.from(0), i.body_end()));
        }
    }

    fn check_entries(&mut self, o: &mut Object, i: &Inode, d: &mut StatData) {
        let ino = Node(o.ino.0);
        if !o.indirect.is_empty() || o.direct.is_some() || !o.apart.is_empty() {
            let count = o.indirect.len() as u64 + 1;
            self.f.note(Issue::Items { ino, count, why: "are of a kind that it cannot have" });
            for (first, all, _) in std::mem::take(&mut o.indirect) {
                let node = self.core.geom.node_size as u64;
                let from = i.key(first * node, Kind::Indirect);
                self.mends.push(Mend::Cut(from, from.at((first + all.len() as u64) * node)));
            }
            let direct = o.direct.take().into_iter().chain(std::mem::take(&mut o.apart));
            self.mends.extend(direct.map(|range| cut_bytes(i, range)));
        }
        for (offset, name) in std::mem::take(&mut o.misplaced) {
            self.f.note(Issue::EntryOffset { dir: ino, name: arbor_kit::issue::show(&name) });
            let key = i.key(offset, Kind::Directory);
            self.mends.push(Mend::Cut(key, key.at(offset + 1)));
            o.entries -= (ENTRY_HEAD + name.len()) as u64;
        }
        if d.size.get() != o.entries {
            self.f.note(Issue::DirSize { ino, found: d.size.get(), expected: o.entries });
            d.size = o.entries.into();
        }
    }

    fn check_body(&mut self, o: &mut Object, i: &Inode, d: &mut StatData) {
        let ino = Node(o.ino.0);
        if o.entries > 0 {
            self.f.note(Issue::Items { ino, count: 1, why: "are of a kind that it cannot have" });
            let (from, to) = (i.from(0), i.body_end());
            // Its body may lie among them: it is cut, too.
            self.mends.push(Mend::Cut(from, to));
            (o.indirect, o.direct, o.apart) = (Vec::new(), None, Vec::new());
        }
        self.check_tail(o, i, d);
        let tail =
            (d.tail.get() > 0).then(|| (d.size.get() - u64::from(d.tail.get())) / self.core.geom.node_size as u64);
        let owned = self.check_pointers(o, i, d, tail);
        self.check_blocks(i, d, owned);
    }

    /// How many unformatted nodes an object counts. Where pointers were wrong that is no news.
    fn check_blocks(&mut self, i: &Inode, d: &mut StatData, (expected, is_known): (u32, bool)) {
        let found = d.blocks.get();
        if found != expected && !is_known {
            self.f.note(Issue::BlockCount { ino: Node(i.ino.0), found, expected });
        }
        d.blocks = expected.into();
    }

    /// The direct items: they hold the bytes from a whole number of blocks on to the end (REISER-F1).
    fn check_tail(&mut self, o: &mut Object, i: &Inode, d: &mut StatData) {
        let ino = Node(o.ino.0);
        let found = o.direct.clone().unwrap_or(0..0);
        let len = found.end - found.start;
        let is_right = len == u64::from(d.tail.get()) && (len == 0 || found.end == d.size.get());
        if is_right && o.apart.is_empty() {
            return;
        }
        self.f.note(Issue::TailLost { ino, found: len, expected: d.tail.get().into() });
        self.mends.extend(std::mem::take(&mut o.apart).into_iter().map(|range| cut_bytes(i, range)));
        let last =
            o.indirect.last().map_or(0, |(first, all, _)| (first + all.len() as u64) * self.core.geom.node_size as u64);
        let most = most_size_of(&self.core.geom, FileType::from_mode(d.mode.get()));
        if len == 0 || len > self.core.geom.most_direct() as u64 || last > found.start || found.end > most {
            // What cannot be its end is none of it; the end is a hole.
            if len > 0 {
                self.mends.push(cut_bytes(i, found));
            }
            d.tail = 0.into();
        } else {
            (d.tail, d.size) = ((len as u32).into(), found.end.into());
        }
    }

    /// The pointers of a file. Returns how many unformatted nodes it owns, and whether something was wrong with them.
    fn check_pointers(&mut self, o: &Object, i: &Inode, d: &StatData, tail: Option<u64>) -> (u32, bool) {
        let (geom, ino) = (self.core.geom, Node(o.ino.0));
        let blocks = geom.blocks_of(d.size.get());
        let (mut owned, mut beyond, mut bad, mut first_bad) = (0u32, 0, 0, None);
        let mut wrong = false;
        for (first, all, used) in &o.indirect {
            for (lbn, block) in (*first..).zip(all) {
                let key = i.key(lbn * geom.node_size as u64, Kind::Indirect);
                if lbn >= blocks || tail.is_some_and(|tail| lbn >= tail) {
                    beyond += 1;
                    self.mends.push(Mend::Cut(key, key.at((lbn + 1) * geom.node_size as u64)));
                } else if *block == 0 {
                } else if !geom.is_node(*block) || self.nodes.contains(*block) {
                    bad += 1;
                    let why = if geom.is_node(*block) { "is a node of the tree" } else { "is no place for it" };
                    first_bad.get_or_insert((*block, why));
                    self.mends.push(Mend::Unpoint(key));
                } else if !self.data.insert(*block) {
                    wrong = true;
                    self.f.note(Issue::Duplicate { ino, block: *block });
                    self.mends.push(Mend::Unpoint(key));
                } else {
                    owned = owned.saturating_add(1);
                }
            }
            self.check_used_bytes(i, d, (*first, all, *used), tail);
        }
        if beyond > 0 {
            self.f.note(Issue::BeyondSize { ino, count: beyond });
        }
        if let Some((block, why)) = first_bad {
            self.f.note(Issue::Pointers { ino, count: bad, block, why });
        }
        (owned, wrong || beyond > 0 || bad > 0)
    }

    /// What the head of an indirect item says of its last pointer.
    fn check_used_bytes(
        &mut self,
        i: &Inode,
        d: &StatData,
        (first, all, used): (u64, &[Block], u16),
        tail: Option<u64>,
    ) {
        let node = self.core.geom.node_size as u64;
        let (Some(last), size) = (all.len().checked_sub(1), d.size.get()) else { return };
        let lbn = first + last as u64;
        let is_end = lbn + 1 == self.core.geom.blocks_of(size) && tail.is_none() && all.last() != Some(&0);
        let expected = if is_end { (size % node) as u16 } else { 0 };
        if used != expected && lbn < self.core.geom.blocks_of(size) {
            let (found, expected) = (used.into(), expected.into());
            self.f.note(Issue::Used { ino: Node(i.ino.0), found, expected });
            self.mends.push(Mend::Used(i.key(lbn * node, Kind::Indirect), expected as u16));
        }
    }

    fn check_xattr(&mut self, o: &Object, i: &Inode, d: &mut StatData) {
        if !o.has_xattr && d.xattr.get() == 0 {
            return;
        }
        let why = if o.xattr.len() != d.xattr.get() as usize {
            "have not the length that stat data say"
        } else if o.xattr_apart {
            "have gaps"
        } else if xattr::parse(&o.xattr).is_none() {
            "are no list"
        } else {
            return;
        };
        self.f.note(Issue::Xattr { ino: Node(o.ino.0), why });
        if o.has_xattr {
            self.mends.push(Mend::Cut(i.body_end(), i.key(MOST_OFFSET, Kind::Xattr)));
        }
        d.xattr = 0.into();
    }
}
