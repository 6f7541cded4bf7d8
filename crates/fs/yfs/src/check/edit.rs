//! What must be written afresh: trees of files that lost records, directories that lost or gain
//! entries. Every fragment has its owner now, so what nobody owns can be used.
//!
//! The new blocks are durable before the inode names them. On a full volume the old blocks are
//! used again instead: then a kill in between costs what was still readable.

use super::dirs::{Name, encode, set_inline};
use super::inodes::{MAX_SIZE, extent, set_root, size_slack, written_end};
use super::issue::Issue;
use super::tree::{self, NewNode, Record, Spec};
use super::view::RawInode;
use super::{Checker, Edit, MapEdit};
use crate::format::*;
use crate::planted::{Flaw, planted};
use arbor_base::layout::get_u64;
use arbor_base::vfs::{Repair, Result};
use std::collections::{BTreeSet, HashSet};

/// Which blocks that were in use a new tree may take.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    No,
    Retired,
    Own,
}

impl Checker<'_> {
    pub(super) fn rebuild(&mut self) -> Result<()> {
        if self.f.mode != Repair::Yes {
            return Ok(());
        }
        let (maps, mut dirs) = (std::mem::take(&mut self.maps), std::mem::take(&mut self.edits));
        let total = (maps.len() + dirs.len()) as u64;
        let mut done = 0;
        // What lost+found is to hold keeps its place only if lost+found has one.
        let root = self.r.sb.root.get();
        if let Some(edit) = dirs.remove(&root) {
            self.rebuild_dir(root, edit)?;
            self.flush()?;
            done += 1;
        }
        for edit in maps {
            self.report(done, total, "rebuilding");
            self.rebuild_map(edit)?;
            done += 1;
        }
        for (ino, edit) in dirs {
            self.report(done, total, "rebuilding");
            self.rebuild_dir(ino, edit)?;
            done += 1;
        }
        self.release_retired();
        Ok(())
    }

    /// Blocks that were replaced are free.
    fn release_retired(&mut self) {
        for (start, len) in std::mem::take(&mut self.retired) {
            self.space.release(start, len);
        }
    }

    fn no_space(&mut self, ino: u64) {
        self.f.push(Issue::NoSpace { what: format!("inode {ino}") }, false);
    }

    /// Runs `f` with blocks that nobody owns and, if they do not suffice, with those that were
    /// replaced before, then with the `old` ones. Old blocks keep their contents as long as that
    /// is possible: the names in them are all there is if this run is killed.
    fn with_blocks<T>(
        &mut self,
        old: &[(Frag, u32)],
        f: impl Fn(&Geom, &mut dyn FnMut() -> Option<Frag>) -> Option<T>,
    ) -> Option<T> {
        let geom = self.r.geom;
        for again in [Again::No, Again::Retired, Again::Own] {
            if planted(Flaw::RepairInPlace) && again != Again::Own {
                continue;
            }
            match again {
                Again::No => {}
                Again::Retired => self.release_retired(),
                Again::Own => old.iter().for_each(|(start, len)| self.space.release(*start, *len)),
            }
            let mut taken = Vec::new();
            let space = &mut self.space;
            let made = f(&geom, &mut || {
                let block = space.alloc_block()?;
                taken.push(block);
                Some(block)
            });
            if made.is_some() {
                if again != Again::Own {
                    self.retired.extend_from_slice(old);
                }
                return made;
            }
            taken.into_iter().for_each(|b| self.space.release(b, geom.block_frags()));
        }
        // Nothing was written: the old blocks keep their owner.
        old.iter().for_each(|(start, len)| {
            self.space.claim(*start, *len);
        });
        None
    }

    fn rebuild_map(&mut self, edit: MapEdit) -> Result<()> {
        let fresh = self.fresh.remove(&edit.ino);
        let made = fresh.is_some();
        let i = if made { fresh } else { self.r.inode(edit.ino)? };
        let Some(mut i) = i else { return Ok(()) };
        // What was found again must lie within the size.
        let end = written_end(&self.r.geom, &edit.records);
        if made || end > i.d.size.get().min(MAX_SIZE).next_multiple_of(size_slack(&self.r.geom)) {
            i.d.size = end.into();
        }
        let block = self.r.geom.block_frags();
        let spec = Spec::map(edit.ino, false);
        let old: Vec<(Frag, u32)> = edit.nodes.iter().map(|n| (*n, block)).collect();
        let root_len = i.area().len();
        let built = self.with_blocks(&old, |geom, alloc| tree::build(geom, spec, &edit.records, root_len, alloc));
        let Some((root, nodes)) = built else {
            self.no_space(edit.ino);
            return Ok(());
        };
        let data: u64 = edit.records.iter().map(|r| u64::from(extent(&r.1).1)).sum();
        self.place_tree(&mut i, &root, nodes, spec, data)
    }

    /// Writes the nodes of a new tree, then the inode with its root.
    fn place_tree(&mut self, i: &mut RawInode, root: &[u8], nodes: Vec<NewNode>, spec: Spec, frags: u64) -> Result<()> {
        let block = u64::from(self.r.geom.block_frags());
        let frags = frags + nodes.len() as u64 * block;
        for (start, bytes) in nodes {
            self.write_block(spec.kind, self.r.geom.daddr(start), bytes)?;
        }
        if !planted(Flaw::RootBeforeNodes) {
            self.flush()?;
        }
        set_root(i, root);
        self.store(i, frags)
    }

    fn store(&mut self, i: &mut RawInode, frags: u64) -> Result<()> {
        let xattr = if i.d.xattr.get() != 0 { i.d.xattr_frags.get() } else { 0 };
        i.d.frags = (frags + u64::from(xattr)).into();
        self.write_inode(i)
    }

    /// The entries of a directory as they must be, with their keys.
    fn entries(&self, i: &RawInode, edit: &Edit) -> Result<Vec<(u64, Name)>> {
        let drop: BTreeSet<&Vec<u8>> = edit.drop.iter().collect();
        let mut names = self.salvage(i, Some(edit))?;
        names.retain(|n| !drop.contains(&n.name) && !edit.remove.contains(&n.ino));
        let mut taken: HashSet<Vec<u8>> = HashSet::new();
        if !edit.add.is_empty() {
            taken.extend(names.iter().map(|n| n.name.clone()));
        }
        for (name, ino, kind) in &edit.add {
            let mut unique = name.clone();
            let mut n = 1;
            while !taken.insert(unique.clone()) {
                unique = [name.as_slice(), format!(".{n}").as_bytes()].concat();
                n += 1;
            }
            names.push(Name { name: unique, ino: *ino, kind: *kind });
        }
        for name in &mut names {
            if let Some(rec) = self.recs.of(name.ino) {
                name.kind = rec.kind;
            }
        }
        let seed = self.r.geom.hash_seed;
        let mut keyed: Vec<(u64, Name)> =
            names.into_iter().map(|n| (dir_key(name_hash(seed, &n.name), 0), n)).collect();
        keyed.sort_by(|a, b| (a.0, &a.1.name).cmp(&(b.0, &b.1.name)));
        let mut last = None;
        for (key, _) in &mut keyed {
            *key = match last {
                Some(l) if l >= *key => l + 1,
                _ => *key,
            };
            last = Some(*key);
        }
        // More names of one hash than numbers: none is known to exist.
        keyed.retain(|(key, n)| key >> 16 == u64::from(name_hash(seed, &n.name)));
        Ok(keyed)
    }

    fn rebuild_dir(&mut self, ino: u64, edit: Edit) -> Result<()> {
        let i = match self.fresh.remove(&ino) {
            None => self.r.inode(ino)?,
            fresh => fresh,
        };
        let Some(mut i) = i else { return Ok(()) };
        let keyed = self.entries(&i, &edit)?;
        let entries: Vec<(u64, &Name)> = keyed.iter().map(|(k, n)| (*k, n)).collect();
        let old = match edit.owned {
            Some(owned) => owned,
            None => self.owned_blocks(&i)?,
        };
        let bytes = DIR_HEAD + entries.iter().map(|e| DIR_ENT + e.1.name.len()).sum::<usize>();
        let area = i.area().len();
        if bytes <= area {
            self.retired.extend_from_slice(&old);
            set_inline(&mut i, &encode(area, &entries));
            return self.store(&mut i, 0);
        }
        let spec = Spec::map(ino, true);
        let built = self.with_blocks(&old, |geom, alloc| {
            let blocks = pack(geom, ino, &entries, alloc)?;
            let (root, nodes) = tree::build(geom, spec, &blocks.records, area, alloc)?;
            Some((blocks.blocks, root, nodes))
        });
        let Some((blocks, root, nodes)) = built else {
            self.no_space(ino);
            return Ok(());
        };
        let count = blocks.len() as u64;
        for (start, bytes) in blocks {
            self.write_block(BlockType::Dir, self.r.geom.daddr(start), bytes)?;
        }
        i.d.size = (count * self.r.geom.block_size() as u64).into();
        self.place_tree(&mut i, &root, nodes, spec, count * u64::from(self.r.geom.block_frags()))
    }

    /// Nodes and blocks of a directory whose tree is sound.
    fn owned_blocks(&self, i: &RawInode) -> Result<Vec<(Frag, u32)>> {
        if i.d.format == Format::Inline as u8 {
            return Ok(Vec::new());
        }
        let len = self.r.geom.block_frags();
        let mut seen = HashSet::new();
        let walk = tree::walk(&self.r, i.area(), Spec::map(i.ino, true), &mut |f| seen.insert(f))?;
        let blocks = walk.records.iter().map(|r| Frag(get_u64(&r.1, 0).unwrap_or(0)));
        Ok(walk.nodes.iter().map(|n| n.0).chain(blocks).map(|f| (f, len)).collect())
    }
}

/// The blocks of a new directory.
struct Packed {
    blocks: Vec<NewNode>,
    records: Vec<Record>,
}

/// Fills directory blocks to seven eighths.
fn pack(geom: &Geom, ino: u64, entries: &[(u64, &Name)], alloc: &mut dyn FnMut() -> Option<Frag>) -> Option<Packed> {
    let room = geom.block_size().checked_sub(HEADER)?;
    let full = room - room / 8;
    let mut out = Packed { blocks: Vec::new(), records: Vec::new() };
    let mut rest = entries;
    while !rest.is_empty() {
        let mut bytes = DIR_HEAD;
        let n = rest.iter().take_while(|e| {
            bytes += DIR_ENT + e.1.name.len();
            bytes <= full
        });
        let (part, tail) = rest.split_at_checked(n.count().max(1))?;
        let start = alloc()?;
        let mut block = tree::new_block(geom, BlockType::Dir, ino, start, geom.block_size());
        block.truncate(HEADER);
        block.extend_from_slice(&encode(room, part));
        let mut value = [0; EXTENT_VALUE];
        value[..8].copy_from_slice(&start.0.to_le_bytes());
        let key = if out.records.is_empty() { 0 } else { part.first()?.0 };
        out.blocks.push((start, block));
        out.records.push((key, value));
        rest = tail;
    }
    Some(out)
}
