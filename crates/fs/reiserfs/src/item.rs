//! Items, and the operations that each kind of them has (paper, "Code Complexity": the table of item operations that the
//! next version was to have). The balancing of the tree knows nothing else of an item.
//!
//! An item is a sequence of *units* that are never divided: a byte, a pointer, an entry, or the whole item. Each unit has
//! a key of its own, which follows from the item's; between two units an item can be split, and two items that follow one
//! another in one node are joined.

use crate::body::Body;
use crate::format::{ENTRY_HEAD, EntryHead, Key, Kind, LEAST_NAME, XATTR_OFFSET};
use arbor_base::layout::get_u32;
use std::ops::Range;

/// An item that was taken out of its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Key of its first unit.
    pub key: Key,
    /// See [`ItemHead::tail`](crate::format::ItemHead::tail).
    pub tail: u16,
    /// Its bytes.
    pub body: Body,
}

/// The operations of a kind of items.
pub trait ItemOps: Sync {
    /// Name for people.
    fn name(&self) -> &'static str;

    /// Number of units.
    fn units(&self, item: &Item) -> usize;

    /// Bytes of the body before unit `n`.
    fn start(&self, item: &Item, n: usize) -> usize;

    /// Key of unit `n`; of the unit that would follow if `n` is their number.
    fn key_of(&self, item: &Item, n: usize) -> Key;

    /// Most units that fit into `room` bytes of a body, counted from unit `from`.
    fn fitting(&self, item: &Item, from: usize, room: usize) -> usize;

    /// The first unit that begins at this byte of the body or after it.
    fn unit_from(&self, item: &Item, byte: usize) -> usize {
        let (mut low, mut high) = (0, self.units(item));
        while low < high {
            let middle = (low + high) / 2;
            if self.start(item, middle) >= byte { high = middle } else { low = middle + 1 }
        }
        low
    }

    /// The first unit whose key is not less than `key`.
    fn find(&self, item: &Item, key: Key) -> usize;

    /// Bytes of the body before that unit.
    fn start_of(&self, item: &Item, key: Key) -> usize {
        self.start(item, self.find(item, key))
    }

    /// The same where it is known that a unit begins at byte `spot` of the body, and that the keys of all before it are less.
    fn start_from(&self, item: &Item, _spot: usize, key: Key) -> usize {
        self.start_of(item, key)
    }

    /// That unit, bytes of the body before it, and its key; `None` if all are less.
    fn seek(&self, item: &Item, key: Key) -> Option<(usize, usize, Key)> {
        let n = self.find(item, key);
        (n < self.units(item)).then(|| (n, self.start(item, n), self.key_of(item, n)))
    }

    /// Whether `right`, of the same kind and object, goes on where `left` ends.
    fn follows(&self, left: &Item, right: &Item) -> bool;

    /// The key of the last unit of an item; it may be damaged: what is wrong with it.
    fn check(&self, item: &Item) -> Result<Key, &'static str>;
}

/// The key of the last unit of an item.
pub fn last_unit(item: &Item, node_size: usize) -> Key {
    let ops = ops(item.key, node_size);
    ops.map_or(item.key, |ops| ops.key_of(item, ops.units(item).saturating_sub(1)))
}

/// The operations of the item's kind; `None` on a damaged disk.
pub fn ops(key: Key, node_size: usize) -> Option<&'static dyn ItemOps> {
    Some(match key.kind()? {
        Kind::StatData => &Whole,
        Kind::Directory => &Entries,
        Kind::Indirect => Pointers::of(node_size),
        Kind::Direct => &Bytes("direct"),
        Kind::Xattr => &Bytes("xattr"),
    })
}

/// Items that are never divided: stat data.
struct Whole;

impl ItemOps for Whole {
    fn name(&self) -> &'static str {
        "stat data"
    }

    fn units(&self, _item: &Item) -> usize {
        1
    }

    fn start(&self, item: &Item, n: usize) -> usize {
        if n == 0 { 0 } else { item.body.len() }
    }

    fn key_of(&self, item: &Item, n: usize) -> Key {
        if n == 0 { item.key } else { item.key.at(item.key.offset() + 1) }
    }

    fn fitting(&self, item: &Item, from: usize, room: usize) -> usize {
        usize::from(from == 0 && item.body.len() <= room)
    }

    fn find(&self, item: &Item, key: Key) -> usize {
        usize::from(key > item.key)
    }

    fn follows(&self, _left: &Item, _right: &Item) -> bool {
        false
    }

    fn check(&self, item: &Item) -> Result<Key, &'static str> {
        if item.body.is_empty() { Err("no bytes") } else { Ok(item.key) }
    }
}

/// The least offset of a unit of the item whose key is not less than `key`, or whether all units or none are less.
fn least_offset(item: &Item, key: Key) -> Result<u64, bool> {
    if (key.locality(), key.object()) != (item.key.locality(), item.key.object()) {
        return Err(key > item.key);
    }
    Ok(key.offset() + u64::from(item.key.kind() < key.kind()))
}

/// Units of equal length, whose offsets grow by `step`.
fn unit_at(item: &Item, key: Key, step: u64, units: usize) -> usize {
    match least_offset(item, key) {
        Err(all) => units * usize::from(all),
        Ok(offset) => {
            let steps = offset.saturating_sub(item.key.offset()).div_ceil(step);
            usize::try_from(steps).unwrap_or(units).min(units)
        }
    }
}

/// Items of bytes: tails of files, lists of attributes.
struct Bytes(&'static str);

impl ItemOps for Bytes {
    fn name(&self) -> &'static str {
        self.0
    }

    fn units(&self, item: &Item) -> usize {
        item.body.len()
    }

    fn start(&self, _item: &Item, n: usize) -> usize {
        n
    }

    fn key_of(&self, item: &Item, n: usize) -> Key {
        item.key.at(item.key.offset() + n as u64)
    }

    fn fitting(&self, item: &Item, from: usize, room: usize) -> usize {
        item.body.len().saturating_sub(from).min(room)
    }

    fn find(&self, item: &Item, key: Key) -> usize {
        unit_at(item, key, 1, item.body.len())
    }

    fn follows(&self, left: &Item, right: &Item) -> bool {
        self.key_of(left, left.body.len()) == right.key
    }

    fn check(&self, item: &Item) -> Result<Key, &'static str> {
        item.body.len().checked_sub(1).map(|last| self.key_of(item, last)).ok_or("no bytes")
    }
}

/// Bytes of a pointer.
const POINTER: usize = 4;

/// Pointer `n` of an indirect item: a block, or 0.
pub fn pointer(item: &Item, n: usize) -> u32 {
    get_u32(&item.body, n * POINTER).unwrap_or(0)
}

/// Items of pointers to unformatted nodes of so many bytes.
struct Pointers(u64);

impl Pointers {
    fn of(node_size: usize) -> &'static Pointers {
        static ALL: [Pointers; 6] =
            [Pointers(1024), Pointers(2048), Pointers(4096), Pointers(8192), Pointers(16384), Pointers(32768)];
        ALL.iter().find(|p| p.0 as usize >= node_size).unwrap_or(&ALL[5])
    }
}

impl ItemOps for Pointers {
    fn name(&self) -> &'static str {
        "indirect"
    }

    fn units(&self, item: &Item) -> usize {
        item.body.len() / POINTER
    }

    fn start(&self, _item: &Item, n: usize) -> usize {
        n * POINTER
    }

    fn key_of(&self, item: &Item, n: usize) -> Key {
        item.key.at(item.key.offset() + n as u64 * self.0)
    }

    fn fitting(&self, item: &Item, from: usize, room: usize) -> usize {
        self.units(item).saturating_sub(from).min(room / POINTER)
    }

    fn find(&self, item: &Item, key: Key) -> usize {
        unit_at(item, key, self.0, self.units(item))
    }

    fn follows(&self, left: &Item, right: &Item) -> bool {
        left.tail == 0 && self.key_of(left, self.units(left)) == right.key
    }

    fn check(&self, item: &Item) -> Result<Key, &'static str> {
        let last = self.units(item).checked_sub(1).filter(|_| item.body.len().is_multiple_of(POINTER));
        let last = last.ok_or("no whole pointers")?;
        if u64::from(item.tail) >= self.0 { Err("a tail longer than a node") } else { Ok(self.key_of(item, last)) }
    }
}

/// Items of entries of directories.
struct Entries;

/// The entries of a directory item: where each begins. It ends at the first that is damaged.
pub fn entries(body: &[u8]) -> impl Iterator<Item = (usize, EntryHead, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (head, rest) = body.get(at..)?.split_first_chunk::<ENTRY_HEAD>()?;
        let head: EntryHead = zerocopy::transmute!(*head);
        let name = rest.get(..head.len.into())?;
        let begins = at;
        at += ENTRY_HEAD + name.len();
        Some((begins, head, name))
    })
}

/// The offsets of the entries of a directory item, and where each begins, as far as [`entries`] goes.
fn offsets(body: &[u8]) -> impl Iterator<Item = (usize, u64)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (head, rest) = body.get(at..)?.split_first_chunk::<ENTRY_HEAD>()?;
        let head: EntryHead = zerocopy::transmute!(*head);
        let (begins, len) = (at, usize::from(head.len));
        at += ENTRY_HEAD + len;
        (len <= rest.len()).then(|| (begins, head.offset.get()))
    })
}

/// Where the first entry, of those from byte `spot` on, begins whose key is not less than `key`.
fn start_from(item: &Item, spot: usize, key: Key) -> usize {
    let offset = match least_offset(item, key) {
        Err(true) => return item.body.len(),
        Err(false) => 0,
        Ok(offset) => offset,
    };
    let found = offsets(item.body.get(spot..).unwrap_or(&[])).find(|(_, found)| *found >= offset);
    found.map_or(item.body.len(), |(at, _)| spot + at)
}

impl ItemOps for Entries {
    fn name(&self) -> &'static str {
        "directory"
    }

    fn units(&self, item: &Item) -> usize {
        offsets(&item.body).count()
    }

    fn start(&self, item: &Item, n: usize) -> usize {
        offsets(&item.body).nth(n).map_or(item.body.len(), |(at, _)| at)
    }

    fn key_of(&self, item: &Item, n: usize) -> Key {
        match offsets(&item.body).nth(n) {
            Some((_, offset)) => item.key.at(offset),
            None => item.key.at(crate::format::MOST_OFFSET),
        }
    }

    fn fitting(&self, item: &Item, from: usize, room: usize) -> usize {
        let first = self.start(item, from);
        let ends = entries(&item.body).skip(from).map(|(at, head, _)| at + ENTRY_HEAD + usize::from(head.len));
        ends.take_while(|end| end - first <= room).count()
    }

    fn unit_from(&self, item: &Item, byte: usize) -> usize {
        offsets(&item.body).take_while(|(at, _)| *at < byte).count()
    }

    fn find(&self, item: &Item, key: Key) -> usize {
        match least_offset(item, key) {
            Err(all) => self.units(item) * usize::from(all),
            Ok(offset) => offsets(&item.body).take_while(|(_, found)| *found < offset).count(),
        }
    }

    /// Looks at each entry once, as [`seek`](ItemOps::seek) does.
    fn start_of(&self, item: &Item, key: Key) -> usize {
        start_from(item, 0, key)
    }

    fn start_from(&self, item: &Item, spot: usize, key: Key) -> usize {
        start_from(item, spot, key)
    }

    fn seek(&self, item: &Item, key: Key) -> Option<(usize, usize, Key)> {
        let offset = match least_offset(item, key) {
            Err(true) => return None,
            Err(false) => 0,
            Ok(offset) => offset,
        };
        let mut all = offsets(&item.body).enumerate();
        all.find(|(_, (_, found))| *found >= offset).map(|(n, (at, found))| (n, at, item.key.at(found)))
    }

    fn follows(&self, left: &Item, right: &Item) -> bool {
        left.key < right.key
    }

    fn check(&self, item: &Item) -> Result<Key, &'static str> {
        let (mut end, mut last) = (0, None);
        for (at, head, name) in entries(&item.body) {
            let offset = head.offset.get();
            if !(LEAST_NAME..XATTR_OFFSET).contains(&offset) {
                return Err("an offset that no name has");
            }
            if last.is_some_and(|last| last >= offset) {
                return Err("entries out of order");
            }
            if last.is_none() && offset != item.key.offset() {
                return Err("a key that is not that of the first entry");
            }
            (end, last) = (at + ENTRY_HEAD + name.len(), Some(offset));
        }
        match last {
            None => Err("no entries"),
            Some(_) if end != item.body.len() => Err("bytes that are no entry"),
            Some(last) => Ok(item.key.at(last)),
        }
    }
}

impl Item {
    /// The part of an item that has these units. Only the last part keeps the tail of an indirect item.
    pub fn part(&self, ops: &dyn ItemOps, units: Range<usize>) -> Item {
        let (from, to) = (ops.start(self, units.start), ops.start(self, units.end));
        let tail = if to == self.body.len() { self.tail } else { 0 };
        Item { key: ops.key_of(self, units.start), tail, body: self.body.part(from..to) }
    }

    /// Appends an item that [`follows`](ItemOps::follows) this one.
    pub fn join(&mut self, right: &Item) {
        self.body.edit(|body| body.extend_from_slice(&right.body));
        self.tail = right.tail;
    }
}
