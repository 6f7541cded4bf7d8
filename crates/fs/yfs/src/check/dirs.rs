//! Directories: the form of their bodies, the order of keys, names, and what the entries name.

use super::issue::{Issue, Node, show};
use super::tree::{self, Spec};
use super::view::RawInode;
use super::{Checker, DIR_KIND, Edit, Rec};
use crate::body::{self, Entry};
use crate::format::*;
use arbor_base::device::{Device, Kind, Request};
use arbor_base::layout::get_u64;
use arbor_base::vfs::{Error, Repair, Result};
use arbor_kit::forest::LOST_FOUND;
use std::collections::{BTreeMap, HashSet};
use zerocopy::{FromBytes, IntoBytes};

/// Directory inodes read at a time.
const BATCH: usize = 64;
/// Directory blocks read at a time.
pub(super) const BLOCKS: usize = 16;

impl Entry<'_> {
    pub(super) fn to_name(self) -> Name {
        Name { name: self.name.to_vec(), ino: self.head.ino.get(), kind: self.head.kind }
    }
}

/// An entry on its own.
#[derive(Clone, Debug)]
pub(super) struct Name {
    pub name: Vec<u8>,
    pub ino: u64,
    pub kind: u8,
}

/// Lays out entries with their keys, in order, in a body of `len` bytes, which has room for them.
pub(super) fn encode(len: usize, entries: &[(u64, &Name)]) -> Vec<u8> {
    let mut out = vec![0; DIR_HEAD];
    for (n, (key, e)) in entries.iter().enumerate() {
        let next = if n + 1 < entries.len() { out.len() + DIR_ENT + e.name.len() } else { 0 };
        let head = DirEnt {
            next: (next as u16).into(),
            name_len: e.name.len() as u8,
            kind: e.kind,
            hash: ((key >> 16) as u32).into(),
            seq: (*key as u16).into(),
            ino: e.ino.into(),
        };
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(&e.name);
    }
    let head = DirHead {
        first: (if entries.is_empty() { 0 } else { DIR_HEAD } as u16).into(),
        end: (out.len() as u16).into(),
        count: (entries.len() as u16).into(),
        live: ((out.len() - DIR_HEAD) as u16).into(),
    };
    for (to, from) in out.iter_mut().zip(head.as_bytes()) {
        *to = *from;
    }
    out.resize(len.max(out.len()), 0);
    out
}

pub(super) fn valid_name(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/') && !name.contains(&0)
}

/// What to do about an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fix {
    Drop,
    Kind(u8),
}

/// What an entry names.
enum Target {
    /// Index of its record, and the kind it should say if it says another.
    Good(usize, Option<u8>),
    Bad(&'static str),
}

/// A body of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Inline,
    Block(Frag),
}

/// A body's bytes, if they can be trusted, and its damage.
type ReadBody = (Option<Vec<u8>>, Option<Issue>);

/// The look at one directory.
#[derive(Default)]
pub(super) struct Look {
    /// The targets of entries are not checked.
    form_only: bool,
    /// Damage to its form: it must be written afresh.
    pub(super) broken: Vec<Issue>,
    /// Damage to entries, where and what to do.
    entries: Vec<(Issue, usize, usize, Fix)>,
    /// What its entries changed in the records, to be undone.
    undo: Vec<(usize, u64)>,
    last: Option<u64>,
    /// Names of the present hash.
    same: HashSet<Vec<u8>>,
}

impl Look {
    /// A look at the form alone.
    pub(super) fn of_form() -> Look {
        Look { form_only: true, ..Look::default() }
    }
}

impl Checker<'_> {
    pub(super) fn read_dirs(&mut self) -> Result<()> {
        let dirs: Vec<u64> = self.recs.dirs();
        let len = self.r.geom.inode_size();
        for group in dirs.chunks(BATCH) {
            let batch = group.iter().map(|ino| Request::read(Kind::Inode, ino.saturating_mul(SECTOR), len)).collect();
            for (ino, bytes) in group.iter().zip(self.r.view.submit(batch).wait()) {
                let fresh = self.fresh.get(ino).cloned();
                if let Some(i) = fresh.or(RawInode::decode(*ino, &bytes?)) {
                    self.read_dir(&i)?;
                }
            }
        }
        Ok(())
    }

    /// The bodies of a directory, each with the key of its descriptor. Of a damaged one only those
    /// that it owns: what else its tree names may be used again before it is written afresh.
    pub(super) fn bodies(&self, i: &RawInode, edit: Option<&Edit>) -> Result<Vec<(Place, u64)>> {
        if i.d.format == Format::Inline as u8 {
            let found: Vec<_> = edit.iter().flat_map(|e| &e.found).map(|f| (Place::Block(*f), 0)).collect();
            return Ok(if found.is_empty() { vec![(Place::Inline, 0)] } else { found });
        }
        let owned: Option<HashSet<Frag>> =
            edit.and_then(|e| e.owned.as_ref()).map(|o| o.iter().map(|run| run.0).collect());
        let mut seen = HashSet::new();
        let mut new = |f: Frag| owned.as_ref().is_none_or(|o| o.contains(&f)) && seen.insert(f);
        let walk = tree::walk(&self.r, i.area(), Spec::map(i.ino, true), &mut new)?;
        let blocks = walk.records.iter().map(|(key, v)| (Frag(get_u64(v, 0).unwrap_or(0)), *key));
        let len = self.r.geom.block_frags();
        let good = blocks.filter(|(f, _)| self.r.valid_run(*f, len) && new(*f));
        let mut places: Vec<(Place, u64)> = good.map(|(f, k)| (Place::Block(f), k)).collect();
        places.extend(edit.iter().flat_map(|e| &e.found).map(|f| (Place::Block(*f), 0)));
        Ok(places)
    }

    /// Reads bodies.
    pub(super) fn read_bodies(&self, i: &RawInode, places: &[(Place, u64)]) -> Result<Vec<ReadBody>> {
        let starts: Vec<Frag> =
            places.iter().filter_map(|p| if let Place::Block(f) = p.0 { Some(f) } else { None }).collect();
        if starts.len() != places.len() {
            return Ok(vec![(Some(i.area().to_vec()), None)]);
        }
        let mut out = Vec::with_capacity(starts.len());
        for (start, bytes) in starts.iter().zip(self.r.blocks(BlockType::Dir, &starts)?) {
            let checked = self.r.check(BlockType::Dir, i.ino, self.r.geom.daddr(*start), &bytes);
            let damage =
                checked.err().map(|why| Issue::DirBlock { ino: Node(i.ino), at: start.0, why: why.to_string() });
            // With a wrong checksum alone the entries that bear their own out are kept.
            let mut sealed = bytes.clone();
            Seal::Block.seal(&mut sealed, 0);
            let addr = self.r.geom.daddr(*start);
            let mine = damage.is_none() || self.r.check(BlockType::Dir, i.ino, addr, &sealed).is_ok();
            let body = bytes.get(HEADER..).unwrap_or(&[]).to_vec();
            out.push((mine.then_some(body), damage));
        }
        Ok(out)
    }

    fn read_dir(&mut self, i: &RawInode) -> Result<()> {
        let edit = self.edits.get(&i.ino);
        if edit.is_some_and(|e| !e.found.is_empty()) {
            return self.salvage_dir(i, Look::default());
        }
        let places = self.bodies(i, edit)?;
        let mut look = Look::default();
        if places.is_empty() {
            look.broken.push(Issue::DirEntries { ino: Node(i.ino), why: "it has not one block".into() });
        }
        for (n, group) in places.chunks(BLOCKS).enumerate() {
            // The measure is names: a directory may have any number of them.
            self.report(self.names.min(self.recs.len() as u64), self.recs.len() as u64, "names");
            for (j, (body, damage)) in self.read_bodies(i, group)?.into_iter().enumerate() {
                look.broken.extend(damage);
                let place = n * BLOCKS + j;
                if let (None, Some((Place::Block(start), _))) = (&body, places.get(place)) {
                    // Its entries do not count, but may tell names.
                    self.strays.push(*start);
                }
                let lo = places.get(place).map_or(0, |p| p.1);
                let hi = places.get(place + 1).map(|p| p.1);
                self.look_at(i, place, body.as_deref().unwrap_or(&[]), (lo, hi), &mut look);
            }
        }
        let broken = !look.broken.is_empty() || self.edits.get(&i.ino).is_some_and(|e| e.rebuild);
        if broken {
            return self.salvage_dir(i, look);
        }
        let entries = look.undo.len();
        let mut fixes: BTreeMap<usize, Vec<(usize, Fix)>> = BTreeMap::new();
        for (issue, place, at, fix) in look.entries {
            if self.f.judge(issue) {
                fixes.entry(place).or_default().push((at, fix));
            }
        }
        for (place, fixes) in fixes {
            if let Some((place, _)) = places.get(place) {
                self.fix_body(i, *place, &fixes)?;
            }
        }
        self.unlist_full(i.ino, entries);
        Ok(())
    }

    /// A directory on a recovery list must be empty, else what it holds would be lost with it.
    fn unlist_full(&mut self, ino: u64, entries: usize) {
        if entries > 0 && self.recs.rec(ino).is_some_and(|r| r.has(Rec::LISTED)) {
            let ag = self.inode_ag(ino);
            self.f.judge(Issue::RecoveryList { ag, why: format!("directory {ino} is not empty") });
            self.unlist(ino);
        }
    }

    /// One body of a directory whose form is good so far.
    pub(super) fn look_at(
        &mut self,
        i: &RawInode,
        place: usize,
        body: &[u8],
        (lo, hi): (u64, Option<u64>),
        look: &mut Look,
    ) {
        let (entries, damage) = body::parse(body);
        let broken = |why: String| Issue::DirEntries { ino: Node(i.ino), why };
        look.broken.extend(damage.map(|d| broken(d.into())));
        for e in entries {
            let key = e.key();
            if look.last.is_some_and(|l| l >= key) || (key < lo && place > 0) || hi.is_some_and(|h| key >= h) {
                look.broken.push(broken(format!("entry {} stands in the wrong block", show(e.name))));
            }
            if !e.is_named(self.r.geom.hash_seed) {
                look.broken.push(broken(format!("entry {} has a wrong hash", show(e.name))));
            }
            if look.broken.len() > 100 {
                return;
            }
            if look.last.is_none_or(|l| l >> 16 != key >> 16) {
                look.same.clear();
            }
            look.last = Some(key);
            self.names += 1;
            if look.form_only {
                continue;
            }
            if let Some((issue, fix)) = self.judge(i.ino, e.name, e.head.ino.get(), e.head.kind, look) {
                look.entries.push((issue, place, e.at, fix));
            }
        }
    }

    /// What is wrong with an entry; a good one counts.
    fn judge(&mut self, dir: u64, name: &[u8], ino: u64, kind: u8, look: &mut Look) -> Option<(Issue, Fix)> {
        self.f.met(dir, name, ino);
        if !valid_name(name) {
            return Some((Issue::EntryName { dir: Node(dir), name: show(name) }, Fix::Drop));
        }
        if !look.same.insert(name.to_vec()) {
            return Some((Issue::DuplicateName { dir: Node(dir), name: show(name) }, Fix::Drop));
        }
        match self.target(dir, ino, kind) {
            Target::Bad(why) => {
                Some((Issue::EntryTarget { dir: Node(dir), name: show(name), ino: Node(ino), why }, Fix::Drop))
            }
            Target::Good(at, right) => {
                if dir == self.r.sb.root.get()
                    && name == LOST_FOUND.as_bytes()
                    && self.recs.get(at).is_some_and(Rec::is_dir)
                {
                    self.lost_found = ino;
                }
                look.undo.push((at, self.recs.get(at).map_or(0, |r| r.parent)));
                self.name(dir, at);
                right.map(|kind| {
                    (Issue::EntryKind { dir: Node(dir), name: show(name), ino: Node(ino) }, Fix::Kind(kind))
                })
            }
        }
    }

    fn target(&self, dir: u64, ino: u64, kind: u8) -> Target {
        let Some((at, rec)) = self.recs.find(ino).and_then(|at| Some((at, self.recs.get(at)?))) else {
            return Target::Bad("is not in use");
        };
        if ino == self.r.sb.root.get() {
            return Target::Bad("is the root directory");
        }
        if ino == dir {
            return Target::Bad("is the directory itself");
        }
        if rec.is_dir() && rec.has(Rec::NAMED) {
            return Target::Bad("is a directory that has a name already");
        }
        Target::Good(at, (rec.kind != kind).then_some(rec.kind))
    }

    /// Counts an entry of `dir` for the inode with record `at`.
    fn name(&mut self, dir: u64, at: usize) {
        let Some(rec) = self.recs.get_mut(at) else { return };
        if !rec.is_dir() {
            rec.count();
            return;
        }
        rec.set(Rec::NAMED, true);
        rec.set(Rec::WRONG_PARENT, rec.parent != dir);
        rec.parent = dir;
        if let Some(rec) = self.recs.rec(dir) {
            rec.count();
        }
    }

    fn undo(&mut self, dir: u64, look: &Look) {
        for (at, parent) in look.undo.iter().rev() {
            let Some(rec) = self.recs.get_mut(*at) else { continue };
            if !rec.is_dir() {
                rec.uncount();
                continue;
            }
            // It had no name before: one that has is no good target.
            rec.parent = *parent;
            rec.set(Rec::NAMED | Rec::WRONG_PARENT, false);
            if let Some(rec) = self.recs.rec(dir) {
                rec.uncount();
            }
        }
    }

    /// A directory of damaged form: what can be read of it is kept and will be written afresh.
    fn salvage_dir(&mut self, i: &RawInode, look: Look) -> Result<()> {
        self.undo(i.ino, &look);
        for issue in look.broken {
            self.f.judge(issue);
        }
        let mut fresh = Look::default();
        let mut drop = Vec::new();
        for e in self.salvage(i, self.edits.get(&i.ino))? {
            fresh.same.clear();
            if let Some((issue, fix)) = self.judge(i.ino, &e.name, e.ino, e.kind, &mut fresh) {
                self.f.judge(issue);
                if fix == Fix::Drop {
                    drop.push(e.name);
                }
            }
        }
        self.unlist_full(i.ino, fresh.undo.len());
        if self.f.mode == Repair::Yes {
            let edit = self.edits.entry(i.ino).or_default();
            edit.rebuild = true;
            edit.drop.extend(drop);
        }
        Ok(())
    }

    /// All entries that can be read of a directory, each name once, in the order of their hashes.
    pub(super) fn salvage(&self, i: &RawInode, edit: Option<&Edit>) -> Result<Vec<Name>> {
        let mut all = Vec::new();
        for group in self.bodies(i, edit)?.chunks(BLOCKS) {
            for (body, damage) in self.read_bodies(i, group)? {
                let Some(body) = body else { continue };
                for e in body::parse(&body).0 {
                    if e.is_named(self.r.geom.hash_seed) || damage.is_none() {
                        all.push(e.to_name());
                    }
                }
            }
        }
        let seed = self.r.geom.hash_seed;
        all.sort_by(|a, b| (name_hash(seed, &a.name), &a.name).cmp(&(name_hash(seed, &b.name), &b.name)));
        all.dedup_by(|later, first| later.name == first.name);
        Ok(all)
    }

    /// Writes a body again without some entries, or with other kinds.
    fn fix_body(&mut self, i: &RawInode, place: Place, fixes: &[(usize, Fix)]) -> Result<()> {
        let Some((Some(body), None)) = self.read_bodies(i, &[(place, 0)])?.pop() else {
            return Err(Error::refused("bug: a directory block changed while it was checked"));
        };
        let mut kept = Vec::new();
        for e in body::parse(&body).0 {
            let mut name = e.to_name();
            match fixes.iter().find(|f| f.0 == e.at).map(|f| f.1) {
                Some(Fix::Drop) => continue,
                Some(Fix::Kind(kind)) => name.kind = kind,
                None => {}
            }
            kept.push((e.key(), name));
        }
        let entries: Vec<(u64, &Name)> = kept.iter().map(|(k, n)| (*k, n)).collect();
        let packed = encode(body.len(), &entries);
        match place {
            Place::Inline => {
                let mut i = i.clone();
                set_inline(&mut i, &packed);
                self.write_inode(&i)
            }
            Place::Block(start) => {
                let len = self.r.geom.block_size();
                let mut block = tree::new_block(&self.r.geom, BlockType::Dir, i.ino, start, len);
                block.truncate(HEADER);
                block.extend_from_slice(&packed);
                self.write_block(BlockType::Dir, self.r.geom.daddr(start), block)
            }
        }
    }
}

/// Puts the entries of an inline directory into its inode.
pub(super) fn set_inline(i: &mut RawInode, body: &[u8]) {
    let end = i.bytes.len().saturating_sub(i.d.xattr_inline.get().into());
    for (to, from) in i.bytes.get_mut(DINODE..end).unwrap_or_default().iter_mut().zip(body) {
        *to = *from;
    }
    i.d.format = Format::Inline as u8;
    i.d.size = DirHead::read_from_prefix(body).map_or(0, |h| u64::from(h.0.live.get())).into();
    debug_assert_eq!(i.kind(), DIR_KIND);
}
