//! Bodies of files: pointers to unformatted nodes, and the tail, which may lie in the tree.
//!
//! A page of the cache is a block of the file. Bytes of an unformatted node past the end of its file mean nothing, and are
//! read as zeros.
//!
//! * **REISER-F1** direct items of a file hold its bytes from a whole number of blocks on to its end, and no pointer
//!   covers them.
//! * **REISER-F2** a block has either bytes in direct items, or a pointer, or is a hole.

use crate::format::*;
use crate::inode::Inode;
use crate::item::{Item, pointer};
use crate::node::Block;
use crate::options::Tails;
use crate::planted::{Flaw, planted};
use crate::space::For;
use crate::tree::{descend, find, leaf_of, seek, seek_back};
use crate::volume::Core;
use arbor_base::cache::Name;
use arbor_base::device::Kind as Request;
use arbor_base::layout::{Corrupt, put_u32};
use arbor_base::vfs::{Errno, Error, Result};
use arbor_kit::blockfile::{BlockFiles, Fill};
use arbor_kit::blockmap::Mapped;
use arbor_kit::inodes::InodeStore as _;
use arbor_kit::reads::or_first;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most blocks of a file that are read together.
const CLUSTER: usize = 32;
/// Most pointers that are freed at once, and how often in a step.
const STEP: usize = 2048;
const ROUNDS: usize = 16;
/// Most bitmaps that are changed by freeing at once; less than what `has_room` keeps free.
const BITMAPS: usize = 48;

/// The first of the last blocks of a file, and those of them that have nodes, with these.
type Last = (u64, Vec<(u64, Block)>);

/// Where a block of a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Hole,
    /// In an unformatted node.
    Node(Block),
    /// In direct items.
    Tail,
}

impl Core {
    fn offset(&self, lbn: u64) -> u64 {
        lbn * self.geom.node_size as u64
    }

    /// The block that the tail of a file is, if it is in the tree.
    pub fn tail_block(&self, f: &Inode) -> Option<u64> {
        let (size, tail) = (f.d.size.get(), u64::from(f.d.tail.get()));
        (tail > 0).then(|| size.saturating_sub(tail) / self.geom.node_size as u64)
    }

    /// Whether the end of a file of so many bytes belongs into the tree, if the last block has `len` of them.
    fn keeps_tail(&self, f: &Inode, size: u64, len: usize) -> bool {
        let (node, most) = (self.geom.node_size as u64, self.geom.most_direct());
        if len == 0 || len > most {
            return false;
        }
        if f.is_symlink() {
            return true;
        }
        // The rule of version 3.6: the larger the file, the less its tail has to be.
        let small = match size / node {
            0 => true,
            1 => len < most * 3 / 4,
            2 => len < most / 2,
            3 => len < most / 4,
            _ => false,
        };
        match self.opts.tails {
            Tails::None => false,
            Tails::Small => small,
            Tails::All => true,
        }
    }

    /// Fails unless a pointer leads to a block for nodes.
    fn check_pointer(&self, f: &Inode, (leaf, at): (Block, usize), block: Block) -> Result<Block> {
        if self.geom.is_node(block) {
            return Ok(block);
        }
        let at = self.geom.byte(leaf) + (NODE_HEAD + at * ITEM_HEAD) as u64;
        let found = format!("{block} (object {})", f.ino);
        Err(Corrupt::new("indirect item", "pointer", at, found, "a block for nodes").into())
    }

    /// Where a block of a file is.
    pub fn locate(&mut self, f: &Inode, lbn: u64) -> Result<Place> {
        if self.tail_block(f) == Some(lbn) {
            return Ok(Place::Tail);
        }
        let Some(unit) = find(self, f.key(self.offset(lbn), Kind::Indirect))? else { return Ok(Place::Hole) };
        let block = unit.item().map_or(0, |item| pointer(item, unit.unit));
        if block == 0 {
            return Ok(Place::Hole);
        }
        self.check_pointer(f, (unit.leaf, unit.at), block).map(Place::Node)
    }

    /// The bytes of the tail, which is in the tree.
    fn read_tail(&mut self, f: &Inode, lbn: u64) -> Result<Vec<u8>> {
        let (from, len) = (self.offset(lbn), f.d.tail.get() as usize);
        let mut bytes = Vec::with_capacity(self.geom.node_size);
        while bytes.len() < len {
            let at = from + bytes.len() as u64;
            let unit = find(self, f.key(at, Kind::Direct))?;
            let rest = unit.as_ref().and_then(|u| u.item()?.body.get(u.unit..)).filter(|rest| !rest.is_empty());
            match rest {
                Some(rest) if rest.len() <= len - bytes.len() => bytes.extend_from_slice(rest),
                None if self.is_lost(f, at, !bytes.is_empty())? => {
                    let (leaf, found) = (leaf_of(self, f.key(at, Kind::Direct))?, format!("none of object {}", f.ino));
                    let expected = "a direct item, as its stat data say";
                    return Err(Corrupt::new("node", "items", self.geom.byte(leaf), found, expected).into());
                }
                _ => {
                    let field = arbor_base::field!(StatData, tail);
                    return Err(f.corrupt(field, len, "as many bytes of direct items as there are").into());
                }
            }
        }
        bytes.resize(self.geom.node_size, 0);
        Ok(bytes)
    }

    /// Reads bytes of a file that is one direct item, if that is in memory and known; returns whether it is.
    pub fn read_item(&mut self, f: &Inode, offset: u64, buf: &mut [u8]) -> bool {
        let len = f.d.tail.get() as usize;
        let item = if f.is_packed() { self.at_hand(f.key(0, Kind::Direct)) } else { None };
        let body = item.map(|(_, _, item)| &*item.body).filter(|body| body.len() == len);
        let bytes = body.and_then(|body| body.get(usize::try_from(offset).ok()?..)?.get(..buf.len()));
        bytes.into_iter().for_each(|bytes| buf.copy_from_slice(bytes));
        bytes.is_some()
    }

    /// Whether a direct item that is not there is lost, and not its stat data wrong: what comes before it is there
    /// (`begins`), or nothing of it.
    fn is_lost(&mut self, f: &Inode, at: u64, begins: bool) -> Result<bool> {
        let next = seek(self, f.from(0))?;
        let item =
            next.as_ref().and_then(|unit| unit.item()).filter(|item| item.key.is_of_same(f.key(at, Kind::Direct)));
        Ok(begins || item.is_none())
    }

    /// Reads the page of an unformatted node; of a file that is read in order, also the next pages, as far as they follow on
    /// the volume.
    fn read_page(&mut self, f: &Inode, lbn: u64, block: Block) -> Result<Arc<Vec<u8>>> {
        let (node, size) = (self.geom.node_size, f.d.size.get());
        let follows = lbn == 0 || self.cache.contains(Name::data(f.ino, lbn - 1));
        let mut blocks = 1;
        if follows && let Some(unit) = find(self, f.key(self.offset(lbn), Kind::Indirect))? {
            let next = |n: usize| unit.item().map_or(0, |item| pointer(item, unit.unit + n));
            let is_cached = |n: usize| self.cache.contains(Name::data(f.ino, lbn + n as u64));
            while blocks < CLUSTER && next(blocks) == block.saturating_add(blocks as u32) && !is_cached(blocks) {
                blocks += 1;
            }
        }
        let at_once = self.calls.reads.at_once(self.geom.byte(block)) / node as u64;
        let blocks = blocks.min((self.geom.copy() - block) as usize).min(at_once.max(1) as usize);
        let bytes = or_first(blocks, |n| self.read(block, n, Request::Data))?;
        for (n, page) in (lbn..).zip(bytes.chunks_exact(node)) {
            let mut page = page.to_vec();
            let valid = size.saturating_sub(self.offset(n)).min(node as u64) as usize;
            page.get_mut(valid..).unwrap_or(&mut []).fill(0);
            self.cache.insert(Name::data(f.ino, n), Arc::new(page));
        }
        Ok(self.cache.get(Name::data(f.ino, lbn)).cloned().ok_or(Errno::EIO)?)
    }

    /// Changes the page of an unformatted node.
    fn change_page(&mut self, f: &Inode, lbn: u64, block: Block, change: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let name = Name::data(f.ino, lbn);
        let dirty = self.cache.dirtied(name).ok_or(Errno::EIO)?;
        self.cache.modify(dirty, change);
        self.note_change();
        self.log.data.insert(block, name);
        Ok(())
    }

    /// Makes a block an unformatted node that holds this page. There is space for it.
    fn make_node(&mut self, f: &mut Inode, lbn: u64, page: Vec<u8>) -> Result<()> {
        let near = match lbn.checked_sub(1).map(|before| self.locate(f, before)).transpose()? {
            Some(Place::Node(block)) => block,
            _ => descend(self, f.from(0))?.0,
        };
        let block = self.alloc(Some(near), For::Data)?;
        self.put_pointer(f, lbn, block)?;
        let name = Name::data(f.ino, lbn);
        self.cache.remove(name);
        self.cache.insert(name, Arc::new(page));
        f.d.blocks = f.d.blocks.get().saturating_add(1).into();
        self.change_page(f, lbn, block, |_| ())
    }

    fn put_pointer(&mut self, f: &Inode, lbn: u64, block: Block) -> Result<()> {
        let key = f.key(self.offset(lbn), Kind::Indirect);
        match find(self, key)? {
            Some(unit) => {
                let (place, n) = ((unit.leaf, unit.at), unit.unit);
                drop(unit);
                self.patch(place, |item| put_u32(&mut item.body, n * 4, block))
            }
            None => self.insert(Item { key, tail: 0, body: block.to_le_bytes().to_vec().into() }),
        }
    }

    /// Notes in the last indirect item how many bytes of its last unformatted node are in use; 0 if all are.
    fn put_used(&mut self, f: &Inode, lbn: u64, used: u16) -> Result<()> {
        let Some(unit) = find(self, f.key(self.offset(lbn), Kind::Indirect))? else { return Ok(()) };
        let Some(item) = unit.item() else { return Ok(()) };
        let is_last = (unit.unit + 1) * 4 == item.body.len();
        let used = if pointer(item, unit.unit) == 0 { 0 } else { used };
        if !is_last || item.tail == used {
            return Ok(());
        }
        let place = (unit.leaf, unit.at);
        drop(unit);
        self.patch(place, |item| item.tail = used)
    }

    /// The same for the last block of a file as it is now.
    fn put_end(&mut self, f: &Inode) -> Result<()> {
        let (size, node) = (f.d.size.get(), self.geom.node_size as u64);
        match self.geom.blocks_of(size).checked_sub(1) {
            Some(last) if f.d.tail.get() == 0 => self.put_used(f, last, (size % node) as u16),
            _ => Ok(()),
        }
    }

    /// Makes direct items hold the bytes of the last block of a file. There is space for it.
    fn put_tail(&mut self, f: &mut Inode, lbn: u64, bytes: &[u8]) -> Result<()> {
        let old = if self.tail_block(f) == Some(lbn) { f.d.tail.get() as usize } else { 0 };
        let end = f.body_end();
        self.put_bytes(f, (f.key(self.offset(lbn), Kind::Direct), end), old, bytes)?;
        f.d.tail = (bytes.len() as u32).into();
        Ok(())
    }

    /// Makes items, which begin at `first` and have `old` bytes, hold these bytes, and nothing else before `end`. Takes blocks
    /// only if there are more of them than before.
    pub fn put_bytes(&mut self, f: &Inode, (first, end): (Key, Key), old: usize, bytes: &[u8]) -> Result<()> {
        let (mut at, same) = (0, old.min(bytes.len()));
        let key = |at: usize| first.at(first.offset() + at as u64);
        while at < same {
            let unit = find(self, key(at))?.ok_or(Errno::EIO)?;
            let len = unit.item().map_or(0, |item| item.body.len()).saturating_sub(unit.unit).min(same - at);
            let (place, n, new) = ((unit.leaf, unit.at), unit.unit, bytes.get(at..at + len).unwrap_or(&[]));
            let differs = unit.item().is_some_and(|item| item.body.get(n..n + len) != Some(new));
            drop(unit);
            if differs {
                self.patch(place, |item| arbor_base::layout::put(&mut item.body, n, new))?;
            }
            at += len.max(1);
        }
        let piece = self.geom.most_direct();
        for (n, part) in bytes.get(old..).unwrap_or(&[]).chunks(piece).enumerate() {
            self.insert(Item { key: key(old + n * piece), tail: 0, body: part.to_vec().into() })?;
        }
        if bytes.len() < old {
            self.cut_range(f.from(key(bytes.len()).offset()), end)?;
        }
        Ok(())
    }

    /// Removes the direct items of a file.
    fn cut_tail(&mut self, f: &mut Inode, lbn: u64) -> Result<()> {
        if !planted(Flaw::TailWithoutPointer) {
            self.cut_range(f.from(self.offset(lbn)), f.body_end())?;
        }
        f.d.tail = 0.into();
        Ok(())
    }

    /// Moves the tail out of the tree into an unformatted node; `ENOSPC` before anything is changed.
    fn unpack_tail(&mut self, f: &mut Inode, lbn: u64) -> Result<()> {
        self.need(1 + self.most_taken())?;
        let page = self.read_tail(f, lbn)?;
        self.cut_tail(f, lbn)?;
        self.make_node(f, lbn, page)
    }

    /// Moves the end of a file into the tree, if it belongs there and there is space for it.
    fn pack_tail(&mut self, f: &mut Inode) -> Result<()> {
        let (size, node) = (f.d.size.get(), self.geom.node_size as u64);
        let (lbn, len) = (size / node, (size % node) as usize);
        if !self.keeps_tail(f, size, len) || self.need(self.most_taken()).is_err() || !self.has_room() {
            return Ok(());
        }
        let Place::Node(block) = self.locate(f, lbn)? else { return Ok(()) };
        let page = match self.page(f, lbn) {
            Ok(Some(page)) => page,
            Ok(None) => return Ok(()),
            // It stays where it is.
            Err(e) => {
                self.calls.health.note(&e);
                return Ok(());
            }
        };
        self.cut_range(f.from(self.offset(lbn)), f.body_end())?;
        self.free_node(f, lbn, block)?;
        self.put_tail(f, lbn, page.get(..len).unwrap_or(&[]))
    }

    fn free_node(&mut self, f: &mut Inode, lbn: u64, block: Block) -> Result<()> {
        self.free_block(block, For::Data)?;
        self.forget_page(Name::data(f.ino, lbn), block);
        f.d.blocks = f.d.blocks.get().saturating_sub(1).into();
        Ok(())
    }

    /// Frees unformatted nodes at the end of a file, none before block `keep`, as many as a step may; returns the first
    /// block from which on none is left.
    fn free_last(&mut self, f: &mut Inode, keep: u64) -> Result<u64> {
        let Some((from, blocks)) = self.last_nodes(f, f.body_end(), keep)? else { return Ok(keep) };
        self.cut_range(f.from(self.offset(from)), f.body_end())?;
        for (lbn, block) in blocks.into_iter().rev() {
            self.free_node(f, lbn, block)?;
        }
        Ok(from)
    }

    /// The last unformatted nodes of a file whose pointers lie before a key, none before block `keep`, as many as a step may
    /// free, and the block from which on they are; `None` if there are none. Each of them can be freed.
    fn last_nodes(&mut self, f: &Inode, before: Key, keep: u64) -> Result<Option<Last>> {
        let node = self.geom.node_size as u64;
        let Some(unit) = seek_back(self, before)? else { return Ok(None) };
        let Some(item) = unit.item().filter(|item| item.key.is_of_same(f.key(0, Kind::Indirect))) else {
            return Ok(None);
        };
        let first = item.key.offset() / node;
        let all: Vec<Block> = (0..=unit.unit).map(|n| pointer(item, n)).collect();
        let end = first + all.len() as u64;
        if end <= keep {
            return Ok(None);
        }
        let from = self.affordable(&all, first).max(keep).max(end.saturating_sub(STEP as u64));
        let blocks: Vec<(u64, Block)> = (first..).zip(all).filter(|(lbn, block)| *lbn >= from && *block != 0).collect();
        let (place, key) = ((unit.leaf, unit.at), item.key.at(self.offset(from)));
        drop(unit);
        // Else nothing would be cut, however often: a key that is damaged may lie in a node in which nobody looks for it.
        if leaf_of(self, key)? != place.0 {
            let (at, found) = (self.geom.byte(place.0) + NODE_HEAD as u64, format!("{key:?}"));
            return Err(Corrupt::new("node", "items", at, found, "keys that belong into this node").into());
        }
        for (_, block) in &blocks {
            self.check_pointer(f, place, *block)?;
            self.check_used(*block, For::Data)?;
        }
        Ok(Some((from, blocks)))
    }

    /// From which block on so many bitmaps tell of these nodes as a step may change.
    fn affordable(&self, all: &[Block], first: u64) -> u64 {
        let mut bitmaps = BTreeSet::new();
        let mut from = first + all.len() as u64;
        for block in all.iter().rev() {
            bitmaps.insert(block / self.geom.covered());
            if bitmaps.len() > BITMAPS {
                break;
            }
            from -= 1;
        }
        from
    }

    /// What `balloc` does for a block that has no unformatted node.
    fn balloc_new(&mut self, f: &mut Inode, (lbn, here): (u64, Place), size: u64, fill: Fill<'_>) -> Result<()> {
        let node = self.geom.node_size;
        let name = Name::data(f.ino, lbn);
        let mut page = match self.cache.get(name) {
            Some(page) => page.to_vec(),
            None if here == Place::Tail => self.read_tail(f, lbn)?,
            None => Vec::new(),
        };
        fill(&mut page, node);
        page.resize(node, 0);
        let len = size.saturating_sub(self.offset(lbn)).min(node as u64) as usize;
        if lbn + 1 == self.geom.blocks_of(size) && self.keeps_tail(f, size, len) {
            if len > f.d.tail.get() as usize || here == Place::Hole {
                self.need(self.most_taken())?;
            }
            if here == Place::Hole && find(self, f.key(self.offset(lbn), Kind::Indirect))?.is_some() {
                // A pointer to nothing gives way.
                self.cut_range(f.from(self.offset(lbn)), f.body_end())?;
            }
            self.put_tail(f, lbn, page.get(..len).unwrap_or(&[]))?;
            self.cache.remove(name);
            return Ok(());
        }
        self.need(1 + 2 * self.most_taken())?;
        if here == Place::Tail {
            self.cut_tail(f, lbn)?;
        }
        self.make_node(f, lbn, page)
    }
}

impl Mapped for Core {
    fn is_mapped(&mut self, f: &Inode, lbn: u64) -> Result<bool> {
        Ok(self.locate(f, lbn)? != Place::Hole)
    }

    fn next_block(&mut self, f: &Inode, mut lbn: u64, end: u64, hole: bool) -> Result<Option<u64>> {
        let node = self.geom.node_size as u64;
        let here = |lbn: u64| Some(lbn).filter(|lbn| *lbn < end);
        while lbn < end {
            let Some(unit) = seek(self, f.from(self.offset(lbn)))? else { return Ok(here(lbn).filter(|_| hole)) };
            let Some(item) = unit.item() else { return Ok(None) };
            let is_body = [Kind::Indirect, Kind::Direct].map(|kind| item.key.is_of_same(f.key(0, kind)));
            let next = match is_body {
                [false, false] => return Ok(here(lbn).filter(|_| hole)),
                _ => item.key.offset() / node + if is_body[0] { unit.unit as u64 } else { 0 },
            };
            if next > lbn {
                if hole {
                    return Ok(here(lbn));
                }
                lbn = next;
            }
            if is_body[1] {
                if !hole {
                    return Ok(here(lbn));
                }
                lbn += 1;
                continue;
            }
            let all = item.body.len() / 4;
            match (unit.unit..all).find(|n| (pointer(item, *n) == 0) == hole) {
                Some(n) => return Ok(here(lbn + (n - unit.unit) as u64)),
                None => lbn += (all - unit.unit) as u64,
            }
        }
        Ok(None)
    }
}

impl BlockFiles for Core {
    fn block_shift(&self) -> u32 {
        self.geom.node_size.trailing_zeros()
    }

    fn max_size(&self) -> u64 {
        self.geom.most_size()
    }

    fn page(&mut self, f: &Inode, lbn: u64) -> Result<Option<Arc<Vec<u8>>>> {
        if let Some(page) = self.cache.get(Name::data(f.ino, lbn)) {
            return Ok(Some(page.clone()));
        }
        match self.locate(f, lbn)? {
            Place::Hole => Ok(None),
            Place::Tail => self.read_tail(f, lbn).map(|page| Some(Arc::new(page))),
            Place::Node(block) => self.read_page(f, lbn, block).map(Some),
        }
    }

    /// Those of a file that is all direct items.
    fn read_packed(&mut self, f: &Inode, offset: u64, buf: &mut [u8]) -> Result<bool> {
        if self.read_item(f, offset, buf) {
            return Ok(true);
        }
        let mut done = 0;
        while f.is_packed() && done < buf.len() {
            let Some(unit) = find(self, f.key(offset.saturating_add(done as u64), Kind::Direct))? else { break };
            let rest = unit.item().and_then(|item| item.body.get(unit.unit..)).unwrap_or(&[]);
            let out = buf.get_mut(done..).unwrap_or(&mut []);
            let n = rest.len().min(out.len());
            arbor_base::layout::put(out, 0, rest.get(..n).unwrap_or(&[]));
            done += n;
        }
        Ok(f.is_packed() && done == buf.len())
    }

    fn page_len(&self, _f: &Inode, _lbn: u64) -> usize {
        self.geom.node_size
    }

    fn balloc(&mut self, f: &mut Inode, lbn: u64, size: u64, fill: Fill<'_>) -> Result<()> {
        let (node, size) = (self.geom.node_size, f.d.size.get().max(size));
        match self.locate(f, lbn)? {
            Place::Node(block) => {
                if self.page(f, lbn)?.is_none() {
                    return Err(Errno::EIO.into());
                }
                self.change_page(f, lbn, block, |buf| fill(buf, node))?;
            }
            here => {
                let done = self.balloc_new(f, (lbn, here), size, fill);
                if done.is_err() {
                    // The page was made only to be written.
                    self.cache.remove(Name::data(f.ino, lbn));
                }
                done?;
            }
        }
        f.d.size = size.into();
        if lbn + 1 == self.geom.blocks_of(size) {
            self.put_end(f)?;
        }
        self.iput(f)
    }

    fn release_block(&mut self, f: &mut Inode, lbn: u64) -> Result<()> {
        match self.locate(f, lbn)? {
            Place::Hole => return Ok(()),
            Place::Tail => self.cut_tail(f, lbn)?,
            Place::Node(block) => {
                self.check_used(block, For::Data)?;
                self.put_used(f, lbn, 0)?;
                self.put_pointer(f, lbn, 0)?;
                self.free_node(f, lbn, block)?;
            }
        }
        self.iput(f)
    }

    fn lengthen_tail(&mut self, f: &mut Inode, from: u64, size: u64) -> Result<()> {
        let old = f.d.size.get();
        let Some(last) = self.geom.blocks_of(old).checked_sub(1) else { return Ok(()) };
        if size <= old || last + 1 == self.geom.blocks_of(size) {
            return Ok(());
        }
        if from < size {
            // For the first new block, too: what is changed here is right only if the file grows.
            self.need(2 + 3 * self.most_taken())?;
        }
        match self.locate(f, last)? {
            Place::Tail => self.unpack_tail(f, last)?,
            Place::Node(block) if !old.is_multiple_of(self.geom.node_size as u64) => {
                // Bytes after the end, which mean nothing so far, are going to be read.
                self.page(f, last)?;
                self.change_page(f, last, block, |_| ())?;
                self.put_used(f, last, 0)?;
            }
            _ => return Ok(()),
        }
        self.iput(f)
    }

    fn truncate_step(&mut self, f: &mut Inode, to: u64) -> Result<u64> {
        let (node, old) = (self.geom.node_size as u64, f.d.size.get());
        self.ends_step = false;
        if let Some(lbn) = self.tail_block(f) {
            let start = self.offset(lbn);
            if to > start {
                self.cut_range(f.from(to), f.body_end())?;
                (f.d.tail, f.d.size) = (((to - start) as u32).into(), to.into());
                self.iput(f)?;
                return Ok(to);
            }
            // What cannot be read of the pointers fails before anything is changed.
            self.last_nodes(f, f.from(start), self.geom.blocks_of(to))?;
            self.cut_tail(f, lbn)?;
            f.d.size = start.into();
        }
        let keep = self.geom.blocks_of(to);
        let mut end = self.geom.blocks_of(f.d.size.get());
        for _ in 0..ROUNDS {
            if end <= keep {
                break;
            }
            end = match self.free_last(f, keep) {
                // The next step meets the damage, in a call of its own, before it changes anything.
                Err(Error::Corrupt(_) | Error::Io(_)) if f.d.size.get() < old => {
                    self.ends_step = true;
                    break;
                }
                done => done?,
            };
            f.d.size = f.d.size.get().min((end * node).max(to)).into();
            if !self.has_room() {
                break;
            }
        }
        if end <= keep {
            f.d.size = to.into();
            self.zero_end(f)?;
            self.put_end(f)?;
            self.pack_tail(f)?;
        }
        self.iput(f)?;
        Ok(f.d.size.get())
    }

    fn undo_growth(&mut self, f: &mut Inode, to: u64) -> Result<()> {
        while self.truncate_step(f, to)? > to {}
        Ok(())
    }

    fn has_room_for_step(&mut self) -> bool {
        !std::mem::take(&mut self.ends_step) && self.has_room()
    }

    fn may_write_on(&self) -> bool {
        self.has_room()
    }
}

impl Core {
    /// Zeros the bytes after the end of a file in the page of its last block, if that is in the cache.
    fn zero_end(&mut self, f: &Inode) -> Result<()> {
        let (size, node) = (f.d.size.get(), self.geom.node_size as u64);
        let (lbn, within) = (size / node, (size % node) as usize);
        if within == 0 || !self.cache.contains(Name::data(f.ino, lbn)) {
            return Ok(());
        }
        if !self.cache.is_dirty(Name::data(f.ino, lbn)) {
            // They are read as zeros; nothing is written that the file has not had.
            self.cache.remove(Name::data(f.ino, lbn));
            return Ok(());
        }
        let Place::Node(block) = self.locate(f, lbn)? else { return Ok(()) };
        self.change_page(f, lbn, block, |buf| buf.iter_mut().skip(within).for_each(|b| *b = 0))
    }
}
