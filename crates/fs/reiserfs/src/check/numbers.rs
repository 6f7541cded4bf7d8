//! Numbers of objects (REISER-A2): the map knows those in use, and no two objects have the same one.

use super::Checker;
use super::issue::{Issue, Node, TreeIssue};
use super::objects::{Rec, each_item};
use crate::format::*;
use crate::inode::stat_key;
use crate::item::Item;
use crate::node::Shape;
use crate::superblock::Ids;
use arbor_base::vfs::{Errno, Error, FileType, Ino, Result};
use arbor_kit::atomicnames::AtomicNames as _;
use arbor_kit::inodes::InodeStore as _;
use std::collections::BTreeSet;

/// So many free numbers are too few: a repair may need some.
const FEW: u32 = 1 << 16;

impl Checker<'_> {
    /// Every number of an object is in the map; whatever else is in it may stay, as long as enough are free.
    pub(super) fn check_ids(&mut self) {
        let objects: BTreeSet<u32> = self.recs.there().map(|rec| key_of(Ino(rec.ino)).1).collect();
        let is_known = |ids: &Ids, n: u32| {
            let at = ids.partition_point(|range| range.1 <= n);
            ids.get(at).is_some_and(|range| range.0 <= n)
        };
        let known: u64 = self.core.ids.iter().map(|range| u64::from(range.1.saturating_sub(range.0))).sum();
        if known > u64::from(u32::MAX - FEW) {
            self.f.note(Issue::Ids { why: "hardly a number is free".into() });
            self.core.ids.clear();
        }
        let was_lost = self.core.ids.is_empty();
        let free: Vec<u32> =
            objects.iter().copied().chain(0..=ROOT_OBJECT).filter(|n| !is_known(&self.core.ids, *n)).collect();
        let Some(first) = free.first() else { return };
        if !was_lost {
            self.f.note(Issue::IdsFree { count: free.len() as u64, first: *first });
        }
        let all = objects.into_iter().chain(0..=ROOT_OBJECT).map(|n| (n, n.saturating_add(1)));
        self.core.ids = merged(self.core.ids.iter().copied().chain(all).collect(), self.core.geom.most_ranges());
        self.core.touch_super();
    }

    /// Gives objects new numbers that have that of another one: when one of them is freed, the number would count as free.
    pub(super) fn part_numbers(&mut self) -> Result<()> {
        let mut all: Vec<(u32, bool, Ino)> =
            self.recs.there().map(|rec| (key_of(Ino(rec.ino)).1, !rec.is_dir(), Ino(rec.ino))).collect();
        all.sort_unstable_by_key(|(number, is_file, ino)| (*number, *is_file, ino.0));
        let twice: Vec<(u32, Ino)> = all
            .windows(2)
            .filter_map(|w| Some((w.first()?, w.last()?)))
            .filter(|(a, b)| a.0 == b.0)
            .map(|(_, b)| (b.0, b.2))
            .collect();
        for (number, ino) in twice {
            self.f.note(Issue::SameNumber { ino: Node(ino.0), number });
            match self.renumber(ino) {
                Err(Error::Errno(Errno::ENOSPC)) => {
                    self.f.note(TreeIssue::NoSpace { what: format!("object {ino}, which needs a number") });
                }
                done => done?,
            }
        }
        Ok(())
    }

    /// Moves all items of an object under a new number, and tells those that name it.
    fn renumber(&mut self, old: Ino) -> Result<()> {
        let Some(rec) = self.recs.of(old.0) else { return Ok(()) };
        let (locality, _) = key_of(old);
        let mut items = Vec::new();
        each_item(&mut self.core, old, |item| items.push(item.clone()))?;
        // What is cut is not free before the repair is written.
        let bytes: usize = items.iter().map(Shape::cost).sum();
        self.core.need(3 * self.core.taken_by(bytes) + 4 * self.core.most_taken())?;
        let new = ino_of(locality, self.core.take_object()?);
        let last = Key::new(locality, key_of(old).1, MOST_OFFSET, Kind::Xattr);
        self.core.cut_range(stat_key(old), last)?;
        for item in items {
            let key = item.key.of(key_of(new).1);
            self.core.insert(Item { key, ..item })?;
        }
        for dir in self.recs.dirs().into_iter().map(|dir| if dir == old.0 { new } else { Ino(dir) }) {
            for e in self.core.all_entries(dir)?.into_iter().filter(|e| e.ino == old) {
                let (dir, t) = (self.core.iget(dir)?, FileType::from_mode(u32::from(e.kind) << 12));
                self.core.point(&dir, &e.offset, (new, t.unwrap_or(FileType::File)))?;
            }
        }
        let below: Vec<u64> = self.recs.there().filter(|r| r.is_dir() && r.dotdot == old.0).map(|r| r.ino).collect();
        for dir in below.into_iter().filter(|dir| rec.is_dir() && *dir != old.0) {
            let i = self.core.iget(Ino(dir))?;
            self.core.set_parent(&i, new)?;
            self.recs.rec(dir).into_iter().for_each(|rec| rec.dotdot = new.0);
        }
        self.recs.flag(old.0, Rec::GONE, true);
        self.recs.put(Rec { ino: new.0, ..rec });
        Ok(())
    }
}

/// Ranges in order that do not touch, at most so many: if there are more, those with the smallest gaps become one.
fn merged(mut all: Ids, most: usize) -> Ids {
    all.sort_unstable();
    let mut out = Ids::new();
    for (first, end) in all {
        match out.last_mut() {
            Some(last) if last.1 >= first => last.1 = last.1.max(end),
            _ => out.push((first, end)),
        }
    }
    while out.len() > most {
        let gaps: Vec<u32> =
            out.windows(2).map(|w| w.last().map_or(0, |b| b.0) - w.first().map_or(0, |a| a.1)).collect();
        let mut sorted = gaps.clone();
        sorted.sort_unstable();
        let most_gap = sorted.get(out.len() - most - 1).copied().unwrap_or(0);
        let mut gaps = gaps.into_iter();
        let old = std::mem::take(&mut out);
        for (first, end) in old {
            match out.last_mut() {
                Some(last) if gaps.next().is_some_and(|gap| gap <= most_gap) => last.1 = end,
                _ => out.push((first, end)),
            }
        }
    }
    out
}

/// With the numbers that the root directory, and what lies above it, has.
pub(super) fn with_root(ids: Ids) -> Ids {
    merged(ids.into_iter().chain([(0, ROOT_OBJECT + 1)]).collect(), usize::MAX)
}
