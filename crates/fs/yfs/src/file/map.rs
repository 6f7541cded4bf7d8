//! The map of a file: extents under the logical fragment they begin at, in the inode or in a tree whose root lies there
//! (3.4).

use crate::btree::{Node, NodeStore, Tree};
use crate::format::*;
use crate::inode::Inode;
use crate::validate::MAX_SIZE;
use crate::volume::Core;
use arbor_base::layout::{get_u32, get_u64};
use arbor_base::vfs::{Error, Result};

/// An extent of a file: first logical fragment, where it lies, flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapped {
    pub at: u64,
    pub start: Frag,
    pub len: u32,
    pub flags: u32,
}

impl Mapped {
    pub fn end(&self) -> u64 {
        self.at.saturating_add(u64::from(self.len))
    }
}

pub(super) fn clip(e: Mapped, lo: u64, hi: u64) -> Mapped {
    let (at, end) = (e.at.max(lo), e.end().min(hi));
    Mapped { at, start: Frag(e.start.0 + (at - e.at)), len: (end - at) as u32, flags: e.flags }
}

/// Decodes the value of an extent record.
pub(crate) fn extent_value(v: &[u8; EXTENT_VALUE]) -> (Frag, u32, u32) {
    (Frag(get_u64(v, 0).unwrap_or(0)), get_u32(v, 8).unwrap_or(0), get_u32(v, 12).unwrap_or(0))
}

/// Encodes the value of an extent record.
pub(crate) fn make_extent(start: Frag, len: u32, flags: u32) -> [u8; EXTENT_VALUE] {
    let mut v = [0; EXTENT_VALUE];
    v[..8].copy_from_slice(&start.0.to_le_bytes());
    v[8..12].copy_from_slice(&len.to_le_bytes());
    v[12..].copy_from_slice(&flags.to_le_bytes());
    v
}

pub(super) type FileTree<'s, 'c> = Tree<'s, MapStore<'c>, EXTENT_VALUE>;

impl Core {
    /// The extent that holds `at`, else the first after it.
    pub fn extent_at(&mut self, i: &Inode, at: u64) -> Result<Option<Mapped>> {
        match self.extent_le(i, at)? {
            Some(e) if e.end() > at => Ok(Some(e)),
            _ => self.extent_ge(i, at),
        }
    }

    /// The extent that holds logical fragment `at`, or the last one before it.
    pub(super) fn extent_le(&mut self, i: &Inode, at: u64) -> Result<Option<Mapped>> {
        if i.format() == Format::Inline {
            return Ok(None);
        }
        let mut copy = *i;
        let found = FileTree::new(&mut MapStore::file(self, &mut copy)).last_le(at)?;
        found.map(|(k, v)| self.checked(i, k, &v)).transpose()
    }

    pub(super) fn extent_ge(&mut self, i: &Inode, at: u64) -> Result<Option<Mapped>> {
        if i.format() == Format::Inline {
            return Ok(None);
        }
        let mut copy = *i;
        let found = FileTree::new(&mut MapStore::file(self, &mut copy)).first_ge(at)?;
        found.map(|(k, v)| self.checked(i, k, &v)).transpose()
    }

    /// Written extents within [lo, hi), clipped to it.
    pub(super) fn written(&mut self, i: &Inode, lo: u64, hi: u64) -> Result<Vec<Mapped>> {
        let mut out = Vec::new();
        let mut at = lo;
        while at < hi {
            let Some(e) = self.extent_at(i, at)? else { break };
            if e.at >= hi {
                break;
            }
            if e.flags & UNWRITTEN == 0 {
                out.push(clip(e, lo, hi));
            }
            at = e.end();
        }
        Ok(out)
    }

    /// Fragments of [lo, hi) that have no space, and those that have it but are not written.
    pub(super) fn space_in(&mut self, i: &Inode, lo: u64, hi: u64) -> Result<(u64, u64)> {
        let (mut have, mut unwritten, mut at) = (0, 0, lo);
        while at < hi
            && let Some(e) = self.extent_at(i, at)?.filter(|e| e.at < hi)
        {
            let len = u64::from(clip(e, lo, hi).len);
            have += len;
            unwritten += if e.flags & UNWRITTEN != 0 { len } else { 0 };
            at = e.end();
        }
        Ok(((hi - lo).saturating_sub(have), unwritten))
    }

    /// Fragments of [lo, hi) that have no space.
    pub(super) fn holes(&mut self, i: &Inode, lo: u64, hi: u64) -> Result<u64> {
        self.space_in(i, lo, hi).map(|(holes, _)| holes)
    }

    fn checked(&self, i: &Inode, at: u64, v: &[u8; EXTENT_VALUE]) -> Result<Mapped> {
        let (start, len, flags) = extent_value(v);
        let most = (MAX_SIZE >> self.geom.frag_shift) + 1;
        if !self.geom.valid_run(start, len) || at.checked_add(len.into()).is_none_or(|end| end > most) {
            return Err(i.corrupt("extent", format_args!("{}+{len}", start.0), "a run inside an AG").into());
        }
        Ok(Mapped { at, start, len, flags })
    }

    fn with_map<R>(&mut self, i: &mut Inode, f: impl FnOnce(&mut FileTree<'_, '_>) -> Result<R>) -> Result<R> {
        let mut store = MapStore::file(self, i);
        let mut tree = FileTree::new(&mut store);
        let r = f(&mut tree)?;
        let height = tree.height()?;
        i.d.format = if height > 1 { Format::Btree } else { Format::Extent } as u8;
        Ok(r)
    }

    /// Enters an extent into the map, joined with its neighbours where they fit.
    pub(super) fn insert_extent(&mut self, i: &mut Inode, mut e: Mapped) -> Result<()> {
        i.d.frags = (i.d.frags.get() + u64::from(e.len)).into();
        let joins = |a: &Mapped, b: &Mapped| {
            a.end() == b.at
                && a.start.0 + u64::from(a.len) == b.start.0
                && a.flags == b.flags
                && u64::from(a.len) + u64::from(b.len) < 1 << 24
        };
        let geom = self.geom;
        let same_ag = |a: &Mapped, b: &Mapped| geom.ag_of(a.start) == geom.ag_of(b.start);
        if let Some(next) = self.extent_ge(i, e.end())?
            && joins(&e, &next)
            && same_ag(&e, &next)
        {
            self.with_map(i, |t| t.remove(next.at))?;
            e.len += next.len;
        }
        if let Some(prev) = self.extent_le(i, e.at)?
            && joins(&prev, &e)
            && same_ag(&prev, &e)
        {
            let v = make_extent(prev.start, prev.len + e.len, prev.flags);
            return self.with_map(i, |t| t.set(prev.at, &v));
        }
        self.with_map(i, |t| t.insert(e.at, &make_extent(e.start, e.len, e.flags)))
    }

    /// Removes [lo, hi) of one extent from the map, without freeing it.
    pub(super) fn cut_extent(&mut self, i: &mut Inode, e: Mapped, lo: u64, hi: u64) -> Result<Mapped> {
        let cut = clip(e, lo, hi);
        self.versions.change(i.ino);
        i.d.frags = i.d.frags.get().saturating_sub(cut.len.into()).into();
        if e.at < cut.at {
            let v = make_extent(e.start, (cut.at - e.at) as u32, e.flags);
            self.with_map(i, |t| t.set(e.at, &v))?;
        } else {
            self.with_map(i, |t| t.remove(e.at))?;
        }
        if cut.end() < e.end() {
            let skip = cut.end() - e.at;
            let v = make_extent(Frag(e.start.0 + skip), (e.end() - cut.end()) as u32, e.flags);
            self.with_map(i, |t| t.insert(cut.end(), &v))?;
        }
        Ok(cut)
    }

    /// Frees the extents mapped in [lo, hi), from the end, until the transaction is large enough. Returns where it
    /// stopped: `lo` when done.
    pub(super) fn unmap(&mut self, i: &mut Inode, lo: u64, hi: u64) -> Result<u64> {
        let mut end = hi;
        while end > lo {
            let e = match self.extent_le(i, end - 1) {
                Ok(Some(e)) => e,
                Ok(None) => return Ok(lo),
                // What was freed so far is a step of its own, and the next one fails before it changes anything.
                Err(Error::Corrupt(_) | Error::Io(_)) if end < hi => return Ok(end),
                Err(e) => return Err(e),
            };
            if e.end() <= lo {
                return Ok(lo);
            }
            if self.tx_full() {
                return Ok(e.end().min(end));
            }
            let before = self.tx.changes();
            let cut = match self.cut_extent(i, e, lo, end) {
                Err(Error::Corrupt(_) | Error::Io(_)) if end < hi && self.tx.changes() == before => return Ok(end),
                cut => cut?,
            };
            self.mark_free(Extent { start: cut.start, len: cut.len });
            end = cut.at;
        }
        Ok(lo)
    }
}

/// Store of a tree whose root lies in an inode.
pub(crate) struct MapStore<'a> {
    core: &'a mut Core,
    inode: &'a mut Inode,
    kind: BlockType,
}

impl<'a> MapStore<'a> {
    pub fn dir(core: &'a mut Core, inode: &'a mut Inode) -> Self {
        MapStore { core, inode, kind: BlockType::DirNode }
    }
    pub fn file(core: &'a mut Core, inode: &'a mut Inode) -> Self {
        MapStore { core, inode, kind: BlockType::ExtentNode }
    }
}

impl NodeStore for MapStore<'_> {
    fn read<R>(&mut self, node: Node, f: impl FnOnce(&[u8]) -> R) -> Result<R> {
        match node {
            Node::Root => self.core.area(self.inode, f),
            Node::Block(b) => {
                let bytes = self.core.block(Frag(b), self.kind, self.inode.ino.0)?;
                Ok(f(bytes.get(HEADER..).unwrap_or(&[])))
            }
        }
    }

    fn write(&mut self, node: Node, at: usize, bytes: &[u8]) -> Result<()> {
        match node {
            Node::Root => self.core.area_write(self.inode, at, bytes),
            Node::Block(b) => self.core.write(self.core.geom.daddr(Frag(b)), Seal::Block, HEADER + at, bytes),
        }
    }

    fn alloc(&mut self) -> Result<u64> {
        let near = self.core.inode_ag(self.inode);
        let block = self.core.alloc_block(near, self.kind, self.inode.ino.0)?;
        let frags = u64::from(self.core.geom.block_frags());
        self.inode.d.frags = (self.inode.d.frags.get() + frags).into();
        Ok(block.0)
    }

    fn free(&mut self, block: u64) -> Result<()> {
        let frags = self.core.geom.block_frags();
        self.inode.d.frags = self.inode.d.frags.get().saturating_sub(frags.into()).into();
        self.core.free_block(Frag(block), frags)
    }

    fn address(&self, node: Node) -> u64 {
        match node {
            Node::Root => self.inode.ino.0.saturating_mul(SECTOR),
            Node::Block(b) => self.core.geom.daddr(Frag(b)).byte(),
        }
    }
}
