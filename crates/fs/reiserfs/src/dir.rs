//! Directories: their names are entries of directory items, in the order of the names' hashes. An entry keeps its offset
//! as long as it lives, so that a walk's cookie can be that (REISER-D1).
//!
//! A small directory is walked in the order of the objects that it names (decision 37): so lie their stat data and
//! bodies. The first call decides, its cookies say it, and its order is remembered, so that what changes between two calls makes no
//! difference to the rest.

use crate::format::*;
use crate::inode::{Inode, LINK_MAX, stat_key};
use crate::item::{Item, entries};
use crate::options::{Listing, Tails};
use crate::orders::{Listed, without_number};
use crate::recent::Spot;
use crate::tree::{Nodes as _, find, leaf_and_end, seek};
use crate::volume::Core;
use arbor_base::field;
use arbor_base::layout::{Corrupt, Location};
use arbor_base::vfs::{Errno, FileType, Ino, Result, Time, is_name};
use arbor_kit::atomicnames::AtomicNames;
use arbor_kit::blockfile::{BlockFile as _, BlockFiles as _, UsualFields as _};
use arbor_kit::inodes::InodeStore as _;
use arbor_kit::issue::show;
use arbor_kit::namespace::{self, Lookup, Named, Names, NewInode, Node, Searched, Walked};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Offsets that names of one hash can have.
const GENERATIONS: u64 = 256;
/// Cookies of `.` and `..`; offsets of names are greater.
const DOT: u64 = 1;
const DOTDOT: u64 = 2;
/// Set in cookies of a walk in the order of objects; below it are the number of the object and some of the name's offset, which
/// tells names of one object apart.
const BY_OBJECT: u64 = 1 << 62;
/// Bits of the offset in such a cookie.
const OF_OFFSET: u32 = 28;
/// Most bytes of entries of a directory that is listed in that order: some 500.
const MOST_LISTED: u64 = 16 << 10;
/// Entries that are sorted at a time: a directory may grow while it is listed.
const SORTED: usize = 1024;

/// An entry, taken out of its item.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub offset: u64,
    pub ino: Ino,
    pub kind: u8,
    pub name: Vec<u8>,
}

impl Entry {
    /// Its cookie in a walk in the order of objects.
    fn place(&self) -> u64 {
        let object = u64::from(key_of(self.ino).1);
        BY_OBJECT | object << OF_OFFSET | self.offset & ((1 << OF_OFFSET) - 1)
    }
}

/// Key of a name.
fn name_key(dir: Ino, offset: u64) -> Key {
    let (locality, object) = key_of(dir);
    Key::new(locality, object, offset, Kind::Directory)
}

/// The object that an entry names.
pub(crate) fn target(head: &EntryHead) -> Ino {
    ino_of(head.locality.get(), head.object.get())
}

fn entry(head: &EntryHead, name: &[u8]) -> Entry {
    Entry { offset: head.offset.get(), ino: target(head), kind: head.kind, name: name.to_vec() }
}

impl Core {
    /// The entries of a directory from an offset on, as many as one node has.
    pub fn entries_from(&mut self, dir: Ino, offset: u64) -> Result<Vec<Entry>> {
        let key = name_key(dir, offset);
        let Some(unit) = seek(self, key)? else { return Ok(Vec::new()) };
        let Some(item) = unit.item().filter(|item| item.key.is_of_same(key)) else { return Ok(Vec::new()) };
        let all = entries(item.body.get(unit.start..).unwrap_or(&[]));
        Ok(all.map(|(_, head, name)| entry(&head, name)).collect())
    }

    /// The entry of this offset.
    fn entry_at(&mut self, dir: Ino, offset: u64) -> Result<Option<Entry>> {
        let Some(unit) = find(self, name_key(dir, offset))? else { return Ok(None) };
        let body = unit.item().and_then(|item| item.body.get(unit.start..)).unwrap_or(&[]);
        let found = entries(body).next().filter(|(_, head, _)| head.offset.get() == offset);
        Ok(found.map(|(_, head, name)| entry(&head, name)))
    }

    /// All entries of a directory.
    pub fn all_entries(&mut self, dir: Ino) -> Result<Vec<Entry>> {
        let (mut all, mut at) = (Vec::new(), 0);
        loop {
            let some = self.entries_from(dir, at)?;
            let Some(last) = some.last() else { return Ok(all) };
            at = last.offset + 1;
            all.extend(some);
        }
    }

    fn dir(&mut self, ino: Ino) -> Result<Inode> {
        let i = self.iget(ino)?;
        if i.is_dir() { Ok(i) } else { Err(Errno::ENOTDIR.into()) }
    }

    fn facts(i: &Inode) -> Node {
        let links = i.d.nlink.get();
        Node { ino: i.ino, mode: i.d.mode.get(), gid: i.d.gid.get(), links, is_full: links >= LINK_MAX }
    }

    /// The same where all that the name's hash can have lies in one item, or behind all entries of a node.
    fn find_near(&mut self, dir: Ino, name: &[u8], first: u64) -> Result<Option<std::result::Result<Entry, u64>>> {
        let (key, end) = (name_key(dir, first), first + GENERATIONS);
        let (leaf, to) = leaf_and_end(self, key)?;
        let content = self.node(leaf, 1)?;
        let items = content.items();
        let index = items.partition_point(|item| item.key <= key).wrapping_sub(1);
        let next = items.get(index.wrapping_add(1)).map_or(to, |next| next.key);
        let item = items.get(index).filter(|item| item.key.is_of_same(key) && name_key(dir, end) <= next);
        let Some(item) = item else { return Ok(None) };
        let spot = self.spot(leaf, index, key);
        let (mut free, mut byte) = (first, spot);
        for (at, head, found) in entries(item.body.get(spot..).unwrap_or(&[])) {
            let offset = head.offset.get();
            if offset >= end {
                break;
            }
            if found == name && offset >= first {
                self.spot = Some(Spot { leaf, index, byte, key });
                return Ok(Some(Ok(Entry { offset, ino: target(&head), kind: head.kind, name: name.to_vec() })));
            }
            if offset < first {
                byte = spot + at + ENTRY_HEAD + found.len();
            }
            free += u64::from(offset == free);
        }
        self.spot = Some(Spot { leaf, index, byte, key });
        Ok((free < end).then_some(Err(free)))
    }

    /// The entry of a name, or the first offset that is free for it.
    pub fn find_name(&mut self, dir: Ino, name: &[u8]) -> Result<std::result::Result<Entry, u64>> {
        let first = self.geom.name_offset(name);
        if let Some(found) = self.find_near(dir, name, first)? {
            return Ok(found);
        }
        let end = first + GENERATIONS;
        let (mut free, mut at) = (first, first);
        loop {
            let key = name_key(dir, at);
            let unit = seek(self, key)?;
            let item = unit.as_ref().and_then(|u| Some((u, u.item()?))).filter(|(_, item)| item.key.is_of_same(key));
            let mut last = None;
            if let Some((unit, item)) = item {
                for (_, head, found) in entries(item.body.get(unit.start..).unwrap_or(&[])) {
                    let offset = head.offset.get();
                    last = Some(offset);
                    if offset >= end {
                        break;
                    }
                    if found == name {
                        return Ok(Ok(Entry { offset, ino: target(&head), kind: head.kind, name: name.to_vec() }));
                    }
                    if offset == free {
                        free += 1;
                    }
                }
            }
            match last {
                Some(last) if last < end => at = last + 1,
                _ if free < end => return Ok(Err(free)),
                _ => return Ok(Err(u64::MAX)),
            }
        }
    }

    /// Notes that the names of a directory take so many bytes more, and with that what else changes of it.
    fn resize_dir(&mut self, dir: Ino, by: i64, change: impl FnOnce(&mut Inode)) -> Result<()> {
        let mut i = self.iget(dir)?;
        i.d.size = i.d.size.get().saturating_add_signed(by).into();
        change(&mut i);
        self.iput_late(&i)
    }

    /// Enters a name at an offset that is free, as was checked in the same call, and changes what else there is to change of
    /// the directory.
    fn put_name(
        &mut self,
        dir: Ino,
        offset: u64,
        name: &[u8],
        (ino, t): (Ino, FileType),
        change: impl FnOnce(&mut Inode),
    ) -> Result<()> {
        let (locality, object) = key_of(ino);
        let head = EntryHead {
            offset: offset.into(),
            locality: locality.into(),
            object: object.into(),
            kind: (t.mode() >> 12) as u8,
            len: name.len() as u8,
        };
        let mut body = Vec::with_capacity(ENTRY_HEAD + name.len());
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(name);
        let key = name_key(dir, offset);
        self.resize_dir(dir, body.len() as i64, change)?;
        self.insert_unused(Item { key, tail: 0, body: body.into() }, key.next())
    }

    /// Takes an entry out, and changes what else there is to change of the directory.
    fn cut_name(&mut self, dir: Ino, name: &[u8], offset: u64, change: impl FnOnce(&mut Inode)) -> Result<()> {
        let key = name_key(dir, offset);
        self.cut_range(key, key.at(offset + 1))?;
        self.resize_dir(dir, -((ENTRY_HEAD + name.len()) as i64), change)
    }
}

impl Names for Core {
    type Slot = u64;
    type Room = u64;

    fn root(&self) -> Ino {
        ROOT
    }

    fn node(&mut self, ino: Ino) -> Result<Node> {
        Ok(Core::facts(&self.iget(ino)?))
    }

    fn find(&mut self, dir: Ino, name: &[u8]) -> Result<Searched<Core>> {
        let i = self.dir(dir)?;
        let found = match self.find_name(dir, name)? {
            Ok(e) => Lookup::Found(Named { ino: e.ino, slot: e.offset }),
            Err(free) => Lookup::Free(free),
        };
        Ok((Core::facts(&i), found))
    }

    fn parent(&mut self, dir: Ino) -> Result<Ino> {
        let i = self.dir(dir)?;
        let above = Ino(i.d.above.get());
        if above.0 == 0 {
            return Err(i.corrupt(field!(StatData, above), above, "a directory").into());
        }
        Ok(above)
    }

    fn parent_location(&self, dir: Ino) -> Location {
        Location::inode(dir)
    }

    fn slot_location(&self, dir: Ino, slot: &u64) -> Location {
        Location::file(dir, *slot)
    }

    fn is_empty(&mut self, dir: Ino) -> Result<bool> {
        Ok(self.entries_from(dir, 0)?.is_empty())
    }

    fn walk(&mut self, dir: Ino, cookie: u64, _plus: bool, f: namespace::Walk<'_, Core>) -> Result<()> {
        let i = self.dir(dir)?;
        for (at, name) in [(DOT, &b"."[..]), (DOTDOT, b"..")] {
            if cookie < at {
                let removed = i.d.nlink.get() == 0;
                let ino = if at == DOT || removed { dir } else { self.parent(dir)? };
                if !f(self, Walked { ino, file_type: FileType::Dir, cookie: at }, name)? {
                    return Ok(());
                }
            }
        }
        let order = if cookie & BY_OBJECT != 0 {
            match self.orders.of(dir, cookie) {
                None => return self.walk_by_object(dir, without_number(cookie), f),
                known => known,
            }
        } else if cookie > DOTDOT {
            None
        } else {
            self.order_of_objects(&i)?
        };
        match order {
            Some(order) => self.walk_in_order(dir, &order, cookie, f),
            None => self.walk_by_hash(dir, cookie, f),
        }
    }
}

impl Core {
    /// The order of objects in which a directory is listed: small ones are, unless the cookies would not tell two names of one
    /// object apart.
    fn order_of_objects(&mut self, dir: &Inode) -> Result<Option<Arc<Vec<Listed>>>> {
        if self.opts.listing == Listing::Hash || dir.d.size.get() > MOST_LISTED {
            return Ok(None);
        }
        let mut all: Vec<Listed> = self.all_entries(dir.ino)?.iter().map(|e| (e.place(), e.offset)).collect();
        all.sort_unstable();
        let is_told = all.windows(2).all(|pair| matches!(pair, [a, b] if a.0 < b.0));
        Ok(is_told.then(|| self.orders.keep(dir.ino, all)))
    }

    /// Goes on in an order: with the names that are still there, whatever they name now.
    fn walk_in_order(&mut self, dir: Ino, order: &[Listed], cookie: u64, f: namespace::Walk<'_, Core>) -> Result<()> {
        let rest = order.get(order.partition_point(|listed| listed.0 <= cookie)..).unwrap_or(&[]);
        for (place, offset) in rest {
            let Some(e) = self.entry_at(dir, *offset)? else { continue };
            if !f(self, walked((dir, e.offset), (e.ino, e.kind), *place, &e.name)?, &e.name)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Goes on without the order that the listing began with.
    fn walk_by_object(&mut self, dir: Ino, cookie: u64, f: namespace::Walk<'_, Core>) -> Result<()> {
        let mut some = self.next_by_object(dir, cookie)?;
        loop {
            for e in &some {
                if !f(self, walked((dir, e.offset), (e.ino, e.kind), e.place(), &e.name)?, &e.name)? {
                    return Ok(());
                }
            }
            match some.last() {
                Some(last) if some.len() == SORTED => some = self.next_by_object(dir, last.place())?,
                _ => return Ok(()),
            }
        }
    }

    /// The entries of a directory that come after this cookie in the order of objects, at most [`SORTED`] of them.
    fn next_by_object(&mut self, dir: Ino, cookie: u64) -> Result<Vec<Entry>> {
        let (mut next, mut at): (Vec<Entry>, _) = (Vec::new(), 0);
        loop {
            let some = self.entries_from(dir, at)?;
            let Some(last) = some.last() else { return Ok(next) };
            at = last.offset + 1;
            next.extend(some.into_iter().filter(|e| e.place() > cookie));
            next.sort_unstable_by_key(Entry::place);
            next.truncate(SORTED);
        }
    }

    fn walk_by_hash(&mut self, dir: Ino, cookie: u64, f: namespace::Walk<'_, Core>) -> Result<()> {
        let mut at = cookie.max(DOTDOT);
        loop {
            let key = name_key(dir, at + 1);
            let unit = seek(self, key)?;
            let item = unit.as_ref().and_then(|unit| Some((unit, unit.item()?)));
            let Some((unit, item)) = item.filter(|(_, item)| item.key.is_of_same(key)) else { return Ok(()) };
            let before = at;
            for (_, head, name) in entries(item.body.get(unit.start..).unwrap_or(&[])) {
                at = head.offset.get();
                if !f(self, walked((dir, at), (target(&head), head.kind), at, name)?, name)? {
                    return Ok(());
                }
            }
            if at <= before {
                return Ok(());
            }
        }
    }
}

/// An entry as a walk tells of it.
fn walked((dir, offset): (Ino, u64), (ino, kind): (Ino, u8), cookie: u64, name: &[u8]) -> Result<Walked> {
    let place = Location::file(dir, offset);
    if !is_name(name) {
        return Err(Corrupt::new("directory", "name", place, show(name), "a name").into());
    }
    let bad = || Corrupt::new("directory", "kind", place, kind, "a file type");
    let file_type = FileType::from_mode(u32::from(kind) << 12).ok_or_else(bad)?;
    Ok(Walked { ino, file_type, cookie })
}

impl AtomicNames for Core {
    type Vacancy = u64;

    /// Looks whether there is space for all that a call may do that needs a vacancy.
    fn vacancy(&mut self, _dir: &mut Inode, _name: &[u8], room: &u64) -> Result<u64> {
        self.need(3 * self.most_taken())?;
        if *room == u64::MAX {
            return Err(Errno::ENOSPC.into());
        }
        // That nothing is there the search has seen.
        Ok(*room)
    }

    fn enter(&mut self, dir: &Inode, at: u64, name: &[u8], to: (Ino, FileType)) -> Result<()> {
        self.put_name(dir.ino, at, name, to, |_| ())
    }

    fn enter_now(
        &mut self,
        dir: &Inode,
        at: u64,
        name: &[u8],
        to: (Ino, FileType),
        (now, links): (Time, i32),
    ) -> Result<()> {
        self.put_name(dir.ino, at, name, to, |i| {
            i.set_modified(now);
            i.set_links(i.links().saturating_add_signed(links));
        })
    }

    fn point(&mut self, dir: &Inode, slot: &u64, (ino, t): (Ino, FileType)) -> Result<()> {
        let unit = find(self, name_key(dir.ino, *slot))?.ok_or(Errno::EIO)?;
        let (place, start, (locality, object)) = ((unit.leaf, unit.at), unit.start, key_of(ino));
        drop(unit);
        self.patch(place, |item| {
            let found = item.body.get(start..).and_then(|rest| entries(rest).next()).map(|(_, head, _)| head);
            if let Some(head) = found {
                let kind = (t.mode() >> 12) as u8;
                let head = EntryHead { locality: locality.into(), object: object.into(), kind, ..head };
                arbor_base::layout::put(&mut item.body, start, head.as_bytes());
            }
        })
    }

    fn erase(&mut self, dir: &Inode, name: &[u8], slot: &u64) -> Result<()> {
        self.cut_name(dir.ino, name, *slot, |_| ())
    }

    fn erase_now(&mut self, dir: &Inode, name: &[u8], slot: &u64, now: Time) -> Result<()> {
        self.cut_name(dir.ino, name, *slot, |i| i.set_modified(now))
    }

    fn set_parent(&mut self, dir: &Inode, to: Ino) -> Result<()> {
        let mut i = self.iget(dir.ino)?;
        i.d.above = to.0.into();
        self.iput(&i)
    }

    fn new_inode(&mut self, dir: Ino, mode: u32, owner: (u32, u32), now: Time) -> Result<Inode> {
        self.new_object(stat_key(dir).object(), mode, owner, now, b"")
    }

    fn takes_bytes(&self, len: usize) -> bool {
        // With more, they and the node that they go into might not fit into two.
        len <= self.geom.node_size / 4 && self.opts.tails != Tails::None
    }

    fn new_file(&mut self, dir: Ino, new: &NewInode<'_>, now: Time) -> Result<Inode> {
        self.new_object(stat_key(dir).object(), new.mode, (new.uid, new.gid), now, new.data)
    }

    fn begin_dir(&mut self, i: &mut Inode, parent: Ino) -> Result<()> {
        i.d.above = parent.0.into();
        self.iput(i)
    }

    fn put_target(&mut self, i: &mut Inode, target: &[u8]) -> Result<()> {
        let size = self.geom.node_size;
        for (lbn, part) in target.chunks(size).enumerate() {
            let end = (lbn * size + part.len()) as u64;
            let name = arbor_base::cache::Name::data(i.ino, lbn as u64);
            self.cache.insert(name, std::sync::Arc::new(Vec::new()));
            self.balloc(i, lbn as u64, end, &mut |buf, len| {
                buf.resize(len, 0);
                arbor_base::layout::put(buf, 0, part);
            })?;
        }
        Ok(())
    }

    fn reserve_inode(&mut self, new: &NewInode<'_>) -> Result<()> {
        let target = if new.target.is_empty() { 0 } else { 2 + self.taken_by(new.target.len()) };
        let xattrs = arbor_kit::xattr::encoded_len(new.xattrs);
        let xattrs = if xattrs == 0 { 0 } else { self.taken_by(xattrs) };
        self.need(3 * self.most_taken() + target + xattrs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arbor_base::device::MemDevice;
    use arbor_base::vfs::{Devices, FormatOptions, ManualClock, MountOptions};
    use std::sync::Arc;

    /// Names whose hashes are equal cannot be made on purpose: others are put where they would be.
    #[test]
    fn names_of_one_hash_lie_side_by_side() {
        let device = MemDevice::new(16 << 20);
        crate::mkfs::format(Devices::single(device.clone()), &FormatOptions::default()).expect("format");
        let clock = Arc::new(ManualClock::new(Time { secs: 1_000_000, nanos: 0 }));
        let volume = crate::mount::mount(Devices::single(device), &MountOptions::default(), clock).expect("mount");
        let core = &mut *volume.lock();
        let first = core.geom.name_offset(b"name");
        let to = (ROOT, FileType::Dir);
        for n in 0..GENERATIONS - 1 {
            core.put_name(ROOT, first + n, format!("other{n}").as_bytes(), to, |_| ()).expect("room");
        }
        assert_eq!(core.find_name(ROOT, b"name").expect("no error").expect_err("not there"), first + GENERATIONS - 1);
        let root = core.iget(ROOT).expect("root");
        core.erase(&root, b"other7", &(first + 7)).expect("it is there");
        assert_eq!(core.find_name(ROOT, b"name").expect("no error").expect_err("not there"), first + 7);
        core.put_name(ROOT, first + GENERATIONS - 1, b"name", to, |_| ()).expect("room");
        assert_eq!(
            core.find_name(ROOT, b"name").expect("no error").expect("it is there").offset,
            first + GENERATIONS - 1
        );
        core.put_name(ROOT, first + 7, b"other7", to, |_| ()).expect("room");
        core.erase(&root, b"name", &(first + GENERATIONS - 1)).expect("it is there");
        core.put_name(ROOT, first + GENERATIONS - 1, b"last", to, |_| ()).expect("room");
        assert_eq!(core.find_name(ROOT, b"name").expect("no error").expect_err("no room"), u64::MAX);
        let all = core.entries_from(ROOT, 0).expect("entries").len();
        assert!(all > 0 && core.iget(ROOT).expect("root").d.size.get() > 256 * ENTRY_HEAD as u64);
    }
}
