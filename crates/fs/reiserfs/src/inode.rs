//! Objects as the shared rooms know them: an inode is the stat data of an object, decoded. Extended attributes.

use crate::format::*;
use crate::item::Item;
use crate::node::{Block, Content};
use crate::planted::{Flaw, planted};
use crate::recent::Known;
use crate::stat;
use crate::tree::{find, seek};
use crate::validate::{MOST_XATTRS, stat_data};
use crate::volume::Core;
use arbor_base::field;
use arbor_base::layout::Corrupt;
use arbor_base::vfs::{Attr, Errno, Error, Ino, Result, Time, mode};
use arbor_kit::blockfile::{BlockFiles as _, UsualFields as _};
use arbor_kit::inodes::{Change, InodeStore, InodeTable};
use arbor_kit::lifetimes::{self, Orphans};
use arbor_kit::xattr::{self, Xattrs};
use std::sync::Arc;

/// Greatest link count.
pub(crate) const LINK_MAX: u32 = 65_000;

/// Where stat data lie that were cut already.
const GONE: u64 = u64::MAX;

/// A decoded stat data item and where it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inode {
    pub ino: Ino,
    pub d: StatData,
    /// Byte of the device where the head of the item begins.
    pub at: u64,
}

/// Key of the stat data of an object.
pub(crate) fn stat_key(ino: Ino) -> Key {
    let (locality, object) = key_of(ino);
    Key::new(locality, object, 0, Kind::StatData)
}

impl Inode {
    pub fn corrupt(&self, f: (&'static str, u64), found: impl std::fmt::Display, expected: &str) -> Corrupt {
        Corrupt::new("stat data", f.0, self.at, format!("{found} (object {})", self.ino), expected)
    }

    /// Key of a unit of its body, or of its attributes.
    pub fn key(&self, offset: u64, kind: Kind) -> Key {
        let (locality, object) = key_of(self.ino);
        Key::new(locality, object, offset, kind)
    }

    /// Greater than the keys of its body, and less than those of its attributes.
    pub fn body_end(&self) -> Key {
        self.key(XATTR_OFFSET, Kind::StatData)
    }

    /// Whether all of its bytes lie in direct items.
    pub fn is_packed(&self) -> bool {
        let tail = self.d.tail.get();
        tail > 0 && u64::from(tail) == self.d.size.get()
    }

    /// Less than the keys of all bytes from `offset` on.
    pub fn from(&self, offset: u64) -> Key {
        self.key(offset, Kind::Directory)
    }
}

arbor_kit::usual_fields!(Inode);

impl Core {
    /// Loads, at a mount, the objects that were open and unlinked at the crash.
    pub fn load_orphans(&mut self) -> Result<()> {
        let head = self.sb.orphan.get();
        lifetimes::load_some(self, head, |core, ino, twice| {
            let i = core.iget(ino)?;
            if twice || i.d.nlink.get() != 0 {
                let found = i.d.nlink.get();
                return Err(i.corrupt(field!(StatData, nlink), found, "0, and a place on the orphan list once").into());
            }
            Ok(i)
        })
    }

    fn xattr_keys(i: &Inode) -> (Key, Key) {
        (i.body_end(), i.key(MOST_OFFSET, Kind::Xattr))
    }

    fn free_xattr(&mut self, i: &mut Inode) -> Result<()> {
        let (from, to) = Core::xattr_keys(i);
        self.cut_range(from, to)?;
        i.d.xattr = 0.into();
        Ok(())
    }

    /// New stat data as an item.
    pub fn stat_item(&self, ino: Ino, d: &StatData) -> Item {
        Item { key: stat_key(ino), tail: 0, body: stat::encode(d, self.geom.dense, 0).into() }
    }

    /// Makes a new object in a locality: a file that holds `data`, if that is something.
    pub fn new_object(
        &mut self,
        locality: u32,
        m: u32,
        (uid, gid): (u32, u32),
        now: Time,
        data: &[u8],
    ) -> Result<Inode> {
        self.need(self.most_taken())?;
        let next = self.ids.first().map_or(0, |range| range.1);
        let key = stat_key(ino_of(locality, next));
        self.check_unused(key, key.of(next.saturating_add(1)))?;
        let object = self.take_object()?;
        let nlink = if m & mode::IFMT == mode::IFDIR { 2 } else { 1 };
        let stamp = Stamp::from(now);
        let d = StatData {
            mode: m.into(),
            nlink: nlink.into(),
            uid: uid.into(),
            gid: gid.into(),
            generation: self.sb.freed.get().into(),
            size: (data.len() as u64).into(),
            tail: (data.len() as u32).into(),
            atime: stamp,
            mtime: stamp,
            ctime: stamp,
            btime: stamp,
            ..StatData::default()
        };
        let i = Inode { ino: ino_of(locality, object), d, at: 0 };
        let tail = Item { key: i.key(0, Kind::Direct), tail: 0, body: data.to_vec().into() };
        let stat = self.stat_item(i.ino, &d);
        let items = if data.is_empty() { vec![stat] } else { vec![stat, tail] };
        self.insert_object(items)?;
        Ok(i)
    }
}

/// Byte of the device where the head of an item begins.
fn head_at(geom: &Geom, leaf: Block, index: usize) -> u64 {
    geom.byte(leaf) + (NODE_HEAD + index * ITEM_HEAD) as u64
}

/// The stat data in the body of an item, checked.
fn decoded(geom: &Geom, ino: Ino, (leaf, index): (Block, usize), body: &[u8]) -> Result<StatData> {
    stat_data(geom, body).map_err(|(field, found, expected)| {
        let (at, found) = (head_at(geom, leaf, index), format!("{found} (object {ino})"));
        Corrupt::new("stat data", field, at, found, expected).into()
    })
}

impl InodeStore for Core {
    type Inode = Inode;

    fn number(i: &Inode) -> Ino {
        i.ino
    }

    fn iget(&mut self, ino: Ino) -> Result<Inode> {
        if let Some(late) = self.late.filter(|late| late.key == stat_key(ino)) {
            return Ok(self.known_inode(ino, &late));
        }
        if let Some(i) = self.recent_inode(ino) {
            return Ok(i);
        }
        let (geom, key) = (self.geom, stat_key(ino));
        if let Some((leaf, index, item)) = self.at_hand(key) {
            let known = Known { key, leaf, index, d: decoded(&geom, ino, (leaf, index), &item.body)? };
            return Ok(self.note_known(ino, known));
        }
        let unit = find(self, key)?.ok_or(Errno::ESTALE)?;
        let (leaf, index) = (unit.leaf, unit.at);
        let d = decoded(&geom, ino, (leaf, index), &unit.item().ok_or(Errno::EIO)?.body)?;
        self.last_seen = (leaf, index);
        Ok(self.note_known(ino, Known { key, leaf, index, d }))
    }

    fn iput(&mut self, i: &Inode) -> Result<()> {
        let key = stat_key(i.ino);
        self.put_stat(key, &i.d, self.calls.has_changed())?;
        // Not before: a call that is refused changes nothing.
        self.late = self.late.filter(|late| late.key != key);
        Ok(())
    }
}

impl Core {
    /// Stores the stat data of a directory whose names were changed. If they are touched and no more, that is done once for all
    /// names of a transaction: they are kept until then.
    pub fn iput_late(&mut self, i: &Inode) -> Result<()> {
        let key = stat_key(i.ino);
        if self.late.is_some_and(|late| late.key != key) {
            self.put_late()?;
        }
        let Some(known) = self.late.or(self.recent.find(key).copied()).filter(|known| stat::is_touched(&known.d, &i.d))
        else {
            return self.iput(i);
        };
        if self.late.is_none() {
            // So that it is still in memory when the transaction ends.
            let ((leaf, _), _) = self.stat_place(key)?;
            self.dirty_node(leaf)?;
        }
        self.late = Some(Known { d: i.d, ..known });
        self.note_change();
        Ok(())
    }

    /// Stores what is kept.
    pub fn put_late(&mut self) -> Result<()> {
        if let Some(late) = self.late {
            self.put_stat(late.key, &late.d, true)?;
            self.late = None;
        }
        Ok(())
    }

    /// Stores stat data. They may have to do with the bytes that they have if there is no space, and the call cannot be refused
    /// (`must`).
    fn put_stat(&mut self, key: Key, d: &StatData, must: bool) -> Result<()> {
        let (place, content) = self.stat_place(key)?;
        let old = content.items().get(place.1).map_or(&[][..], |item| &item.body);
        let (len, body) = (old.len(), stat::encode(d, self.geom.dense, old.len()));
        if *old == *body {
            return Ok(());
        }
        drop(content);
        self.recent.forget(key, key.next());
        if body.len() == len {
            self.patch(place, |item| arbor_base::layout::put(&mut item.body, 0, &body))?;
            self.recent.put(Known { key, leaf: place.0, index: place.1, d: *d });
            return Ok(());
        }
        match self.lengthen(key, place, body) {
            // The call cannot be refused any more.
            Err(Error::Errno(Errno::ENOSPC)) if must => {
                let why = || Error::Io(std::io::Error::other("no space for stat data that grow"));
                let body = stat::fitted(d, len).ok_or_else(why)?;
                self.patch(place, |item| item.body = body.into())
            }
            done => done,
        }
    }

    /// The formatted node that has an object's stat data, and the item.
    fn stat_place(&mut self, key: Key) -> Result<((Block, usize), Arc<Content>)> {
        if let Some(&Known { leaf, index, .. }) = self.recent.find(key)
            && let Some(content) = self.decoded(leaf)
            && content.items().get(index).is_some_and(|item| item.key == key)
        {
            return Ok(((leaf, index), content.clone()));
        }
        let unit = find(self, key)?.ok_or(Errno::ESTALE)?;
        Ok(((unit.leaf, unit.at), unit.into_content()))
    }

    /// The inode, if it is one of the last, and its item is where it was.
    pub fn recent_inode(&mut self, ino: Ino) -> Option<Inode> {
        let key = stat_key(ino);
        let known = *self.recent.find(key)?;
        let item = self.decoded(known.leaf)?.items().get(known.index).filter(|item| item.key == key)?;
        debug_assert_eq!(stat::decode(&item.body), Some(known.d), "{ino}");
        self.last_seen = (known.leaf, known.index);
        Some(self.known_inode(ino, &known))
    }

    fn known_inode(&self, ino: Ino, known: &Known) -> Inode {
        Inode { ino, d: known.d, at: head_at(&self.geom, known.leaf, known.index) }
    }

    fn note_known(&mut self, ino: Ino, known: Known) -> Inode {
        self.recent.put(known);
        self.known_inode(ino, &known)
    }
}

impl InodeTable for Core {
    fn attr_of(&self, i: &Inode) -> Attr {
        let node = self.geom.node_size as u64;
        let in_tree = u64::from(i.d.tail.get()) + u64::from(i.d.xattr.get());
        let blocks = u64::from(i.d.blocks.get()) * (node / 512) + in_tree.div_ceil(512);
        Attr { generation: i.d.generation.get().into(), blocks, blksize: node as u32, ..i.attributes() }
    }

    fn apply(&mut self, i: &mut Inode, set: &Change) {
        i.change(set);
    }

    fn link_target(&mut self, i: &Inode) -> Result<Option<Vec<u8>>> {
        if i.d.kind() != mode::IFLNK {
            return Ok(None);
        }
        let (len, mut target) = (i.d.size.get() as usize, Vec::new());
        for lbn in 0..self.geom.blocks_of(len as u64) {
            let page = self.page(i, lbn)?.ok_or_else(|| i.corrupt(field!(StatData, size), len, "bytes of a target"))?;
            target.extend_from_slice(&page);
        }
        target.truncate(len);
        if target.is_empty() || target.contains(&0) {
            return Err(i.corrupt(field!(StatData, size), len, "the length of a path").into());
        }
        Ok(Some(target))
    }

    fn xattr_list(&mut self, i: &Inode) -> Result<Xattrs> {
        let (len, mut bytes) = (i.d.xattr.get() as usize, Vec::new());
        while bytes.len() < len {
            let unit = seek(self, i.key(XATTR_OFFSET + bytes.len() as u64, Kind::Xattr))?;
            let key = i.key(XATTR_OFFSET, Kind::Xattr);
            let item = unit.as_ref().and_then(|u| u.item()).filter(|item| item.key.is_of_same(key));
            let at = XATTR_OFFSET + bytes.len() as u64;
            let rest = item.and_then(|item| item.body.get(at.checked_sub(item.key.offset())? as usize..));
            match rest {
                Some(rest) if !rest.is_empty() => bytes.extend_from_slice(rest),
                _ => {
                    return Err(i
                        .corrupt(field!(StatData, xattr), len, "as many bytes of attributes as there are")
                        .into());
                }
            }
        }
        let list = xattr::parse(&bytes).filter(|_| bytes.len() == len);
        list.ok_or_else(|| i.corrupt(field!(StatData, xattr), len, "the length of a list of attributes").into())
    }

    fn check_xattrs(&self, list: &Xattrs) -> Result<()> {
        let most = MOST_XATTRS.min(self.geom.node_size * 96);
        if xattr::encoded_len(list) <= most { Ok(()) } else { Err(Errno::ENOSPC.into()) }
    }

    fn xattr_store(&mut self, i: &mut Inode, list: &Xattrs) -> Result<()> {
        let bytes = xattr::encode(list);
        if bytes.len() > i.d.xattr.get() as usize {
            self.need(self.taken_by(bytes.len()))?;
        }
        let (first, end) = (i.key(XATTR_OFFSET, Kind::Xattr), i.key(MOST_OFFSET, Kind::Xattr));
        self.put_bytes(i, (first, end), i.d.xattr.get() as usize, &bytes)?;
        i.d.xattr = (bytes.len() as u32).into();
        self.iput(i)
    }
}

impl Core {
    /// Most blocks that so many bytes take in the tree.
    pub fn taken_by(&self, bytes: usize) -> u64 {
        bytes.div_ceil(self.geom.most_direct()) as u64 * 2 + self.most_taken()
    }
}

/// The list is in the stat data of its objects, and its head in the superblock.
impl Orphans for Core {
    fn is_listed(&self) -> bool {
        !planted(Flaw::NoOrphans)
    }

    fn head(&mut self, _of: Ino) -> Result<u64> {
        Ok(self.sb.orphan.get())
    }

    fn set_head(&mut self, _of: Ino, to: u64) -> Result<()> {
        self.sb.orphan = to.into();
        self.touch_super();
        Ok(())
    }

    fn next(i: &Inode) -> u64 {
        i.d.above.get()
    }

    fn set_next(&mut self, i: &mut Inode, to: u64) {
        i.d.above = to.into();
    }

    fn release(&mut self, i: &mut Inode) -> Result<bool> {
        if i.d.xattr.get() > 0 {
            // By themselves: what is damaged fails before anything is changed.
            self.free_xattr(i)?;
            self.iput(i)?;
            return Ok(false);
        }
        let tail = u64::from(i.d.tail.get());
        if tail > 0 && i.d.size.get() == tail && i.d.blocks.get() == 0 {
            // All of it lies side by side.
            self.cut_range(stat_key(i.ino), i.body_end())?;
            i.at = GONE;
            return Ok(true);
        }
        if !i.is_dir() && (i.d.size.get() > 0 || i.d.blocks.get() > 0) && self.truncate_step(i, 0)? > 0 {
            return Ok(false);
        }
        self.iput(i)?;
        Ok(true)
    }

    fn free(&mut self, i: &mut Inode) -> Result<()> {
        let key = stat_key(i.ino);
        if i.at != GONE && find(self, key)?.is_some() {
            self.cut_range(key, key.at(1))?;
        }
        self.give_object(key.object());
        self.sb.freed = self.sb.freed.get().wrapping_add(1).into();
        self.touch_super();
        Ok(())
    }
}
