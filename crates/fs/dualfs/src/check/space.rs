//! Phase 3: bitmaps and descriptors of the groups, segment usage, what the state counts, the list of free inodes.

use super::Checker;
use super::inodes::is_damaged;
use super::issue::{Issue, TreeIssue};
use crate::format::*;
use crate::plan::LogEnd;
use arbor_base::vfs::{Ino, Result};
use arbor_kit::blockmap::Mapped as _;
use arbor_kit::buddy::{Wrong, bitmap};
use arbor_kit::segments::Use;
use std::collections::BTreeSet;

impl Checker<'_> {
    pub(super) fn check_space(&mut self) -> Result<()> {
        self.check_groups()?;
        self.check_usage();
        self.place_log();
        let mut summaries = 0;
        self.core.each_summary(&mut |_, _, p| summaries += u64::from(p.head.own.get()));
        self.owned.summaries = summaries;
        let (data, meta) = (self.owned.counted, self.owned.blocks);
        self.count("data blocks", data);
        self.count("metadata blocks", meta);
        self.check_free_inodes()
    }

    /// Notes what is wrong about space, but for an ifile that was empty.
    fn tell_space(&mut self, issue: Issue) {
        if self.anew.is_none() {
            self.f.note(issue);
        }
    }

    fn count(&mut self, what: &'static str, expected: u32) {
        let s = &mut self.core.state;
        let place = match what {
            "data blocks" => &mut s.data,
            "metadata blocks" => &mut s.meta,
            _ => &mut s.used_inodes,
        };
        let found = std::mem::replace(place, expected);
        if found != expected {
            self.tell_space(Issue::Count { what, found, expected });
        }
    }

    /// Compares the bitmaps and descriptors with what is in use; groups that were never used have neither.
    fn check_groups(&mut self) -> Result<()> {
        let geom = self.core.geom;
        let mut groups: BTreeSet<u32> = self.core.groups.each().map(|(group, _)| group.0).collect();
        groups.extend(self.owned.data.runs().chain(self.owned.damaged.runs()).flat_map(|run| {
            let of = |block: u32| geom.group_of(DataBlock(block)).0;
            of(*run.start())..=of(*run.end())
        }));
        groups.extend(self.owned.dirs.keys().copied().filter(|group| *group < geom.groups()));
        groups.extend(geom.groups_before_files());
        groups.extend(self.groups_with_bitmaps()?);
        for group in groups.into_iter().map(Group) {
            self.check_group(group)?;
        }
        Ok(())
    }

    /// Groups that have a bitmap. Their descriptors may have been lost, and with them that they were used.
    fn groups_with_bitmaps(&mut self) -> Result<Vec<u32>> {
        let (i, base) = (self.core.inode(IFILE)?, self.core.bitmap_lbn(Group(0)));
        let (mut all, mut at, end) = (Vec::new(), base, base + u64::from(self.core.geom.groups()));
        while at < end
            && let Some(found) = self.core.next_block(&i, at, end, false)?
        {
            all.push((found - base) as u32);
            at = found + 1;
        }
        Ok(all)
    }

    fn check_group(&mut self, group: Group) -> Result<()> {
        let (start, len, block) =
            (self.core.geom.group_start(group), self.core.geom.group_len(group), self.core.geom.block());
        let mut bits = vec![0; block];
        let first = self.core.geom.first_of_files();
        let owned = |n: u32| self.owned.data.contains(n) || self.owned.damaged.contains(n);
        let used = |n: &u32| *n < first || owned(*n) || self.core.changes.freed.contains(*n);
        (start..start + len).filter(used).for_each(|n| bitmap::set_used(&mut bits, n - start, 1));
        if is_damaged(self.core.bitmap(group))?.is_some() {
            return Ok(());
        }
        let old = self.core.bitmap(group)?;
        let (mut free, mut taken) = (Wrong::default(), Wrong::default());
        for (at, (old, new)) in (start..).step_by(8).zip(old.iter().zip(&bits)) {
            free.add(new & !old, at);
            taken.add(old & !new, at);
        }
        if free.count > 0 {
            self.tell_space(Issue::BitmapFree { group: group.0, count: free.count, first: free.first });
        }
        if taken.count > 0 {
            self.tell_space(Issue::BitmapUsed { group: group.0, count: taken.count, first: taken.first });
        }
        if free.count > 0 || taken.count > 0 {
            let lbn = self.core.bitmap_lbn(group);
            self.core.ifile_change(lbn, |buf| buf.copy_from_slice(&bits))?;
        }
        let desc = self.core.groups.get(group);
        let expected = [len - bitmap::count_free(&bits, len), self.owned.dirs.get(&group.0).copied().unwrap_or(0)];
        for (what, found, expected) in
            [("data blocks in use", desc.used.get(), expected[0]), ("directories", desc.dirs.get(), expected[1])]
        {
            if found != expected {
                self.tell_space(Issue::Descriptor { group: group.0, what, found, expected });
            }
        }
        let expected = GroupDesc { used: expected[0].into(), dirs: expected[1].into() };
        if desc != expected {
            self.core.groups.set(&self.core.geom, group, expected);
        }
        Ok(())
    }

    /// Compares the segment usage with what lives. What has died since the log was followed is not subtracted yet.
    fn check_usage(&mut self) {
        let mut segs: BTreeSet<u32> = self.core.segs.said().map(|(seg, _)| seg).collect();
        segs.extend(self.owned.live.keys());
        for seg in segs {
            let died = self.core.changes.dead.get(&seg).copied().unwrap_or(0);
            let (u, lives) = (self.core.segs.get(seg), self.owned.live.get(&seg).copied().unwrap_or(0));
            let expected = lives.saturating_add(died);
            if u.live != expected {
                self.tell_space(Issue::Usage { seg, found: u.live.saturating_sub(died), expected: lives });
            }
            let dirty = u.dirty || expected > 0;
            if u.live != expected || u.dirty != dirty {
                self.core.segs.set(seg, Use { live: expected, dirty, ..u });
            }
        }
    }

    /// After a search lets the log go on in segments in which nothing lives.
    fn place_log(&mut self) {
        let Some(end) = self.anew.as_ref().map(|anew| anew.end) else { return };
        let live: Vec<u32> = self.core.segs.dirty().map(|(seg, _)| seg).collect();
        self.core.segs.clean.insert_run(0, self.core.geom.segs);
        live.into_iter().for_each(|seg| {
            self.core.segs.clean.remove(seg);
        });
        let mut clean = self.core.segs.clean.iter();
        let (Some(seg), Some(next)) = (clean.next(), clean.next()) else {
            drop(clean);
            self.f.note(TreeIssue::NoSpace { what: "the log: no segment is clean".into() });
            return;
        };
        drop(clean);
        self.core.log = LogEnd { seg: Seg(seg), next_seg: Seg(next), ..end };
        self.core.log.busy().into_iter().for_each(|seg| {
            self.core.segs.clean.remove(seg);
        });
    }

    /// Inodes that are free are on one list, each once; those of blocks of the map that were lost are not.
    fn check_free_inodes(&mut self) -> Result<()> {
        let (mut free, mut used) = (BTreeSet::new(), 0);
        self.core.each_map_entry(&mut |ino, entry| {
            if entry.block.get() != 0 {
                used += 1;
            } else if ino != ROOT {
                free.insert(ino.0 as u32);
            }
        })?;
        self.count("inodes in use", used);
        let (mut at, mut left) = (self.core.state.free_ino, free.clone());
        let why = loop {
            match at {
                0 if left.is_empty() => return Ok(()),
                0 => break format!("{} inodes are not on it", left.len()),
                ino if !left.remove(&ino) => {
                    break format!("it leads to inode {ino}, which is not free, or there already");
                }
                ino => at = self.core.map_entry(Ino(ino.into()))?.next_free.get(),
            }
        };
        self.tell_space(Issue::FreeList { why });
        let mut next = 0;
        for ino in free.into_iter().rev() {
            let old = self.core.map_entry(Ino(ino.into()))?;
            self.core.set_map_entry(Ino(ino.into()), MapEntry { next_free: next.into(), ..old })?;
            next = ino;
        }
        self.core.state.free_ino = next;
        Ok(())
    }
}
