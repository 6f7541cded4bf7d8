//! Inactivation: lookup counts, orphans, and the queue of inodes to be freed.
//!
//! *Orphans* are inodes in use or being freed that no directory names. An engine that recovers orphans keeps one or
//! more lists of them on disk, each inode holding the number of the next. In core each orphan knows its predecessor, so
//! it can be unlinked without a walk.
//!
//! [`lost`] takes an inode whose last name is gone: it frees the inode, or makes it an orphan ([`orphan`]).
//! [`Lifetimes::forget`] puts an orphan without users into the queue. [`inactivate`] frees one step's worth of the
//! first inode of the queue. The queue may hold stale entries, which [`Lifetimes::next_inactive`] skips.
//!
//! Called by the engines and `chunknames.rs` (names) and by `locked.rs` (forget, inactivation).

use crate::inodes::InodeStore;
use crate::refs::Refs;
use arbor_base::vfs::{Errno, Error, Ino, Result};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;

/// Reference counts, orphans and inodes to be freed, in core.
#[derive(Default)]
pub struct Lifetimes {
    /// Lookup counts.
    pub refs: Refs,
    /// Orphans, each with the one before it in its list (0: it is first).
    orphans: FxHashMap<u64, u64>,
    /// Those among them that never had a name, and may get one.
    unnamed: FxHashSet<u64>,
    /// Inodes that have neither names nor users, in the order in which they are freed.
    inactive: VecDeque<u64>,
}

impl Lifetimes {
    /// Takes references from an inode. Queues an orphan to be freed if it has none left.
    pub fn forget(&mut self, ino: Ino, count: u64) {
        if self.refs.release(ino, count) && self.is_orphan(ino) {
            self.inactive.push_back(ino.0);
        }
    }

    /// Whether an inode is an orphan.
    pub fn is_orphan(&self, ino: Ino) -> bool {
        self.orphans.contains_key(&ino.0)
    }

    /// Orphans that are first in their lists.
    pub fn first_orphans(&self) -> impl Iterator<Item = Ino> + '_ {
        self.orphans.iter().filter(|(_, before)| **before == 0).map(|(ino, _)| Ino(*ino))
    }

    /// Number of queued inodes: an upper bound of those that are to be freed.
    pub fn inactive(&self) -> usize {
        self.inactive.len()
    }

    /// Queues an orphan to be freed.
    pub fn push_inactive(&mut self, ino: Ino) {
        self.inactive.push_back(ino.0);
    }

    /// The next inode to be freed, which has no users.
    pub fn next_inactive(&mut self) -> Option<Ino> {
        while let Some(&ino) = self.inactive.front() {
            if self.orphans.contains_key(&ino) && !self.refs.has(Ino(ino)) {
                return Some(Ino(ino));
            }
            self.inactive.pop_front();
        }
        None
    }

    /// Removes that inode from the queue.
    pub fn pop_inactive(&mut self) {
        self.inactive.pop_front();
    }

    /// Notes that an orphan never had a name.
    pub fn set_unnamed(&mut self, ino: Ino) {
        self.unnamed.insert(ino.0);
    }

    /// Whether it never had a name.
    pub fn is_unnamed(&self, ino: Ino) -> bool {
        self.unnamed.contains(&ino.0)
    }

    /// Drops all references, and queues all orphans to be freed (unmount).
    pub fn abandon(&mut self) {
        self.refs = Refs::default();
        let mut all: Vec<u64> = self.orphans.keys().copied().collect();
        all.sort_unstable();
        self.inactive.extend(all);
    }

    /// Forgets all orphans, which are about to be found again.
    pub fn clear_orphans(&mut self) {
        self.orphans.clear();
        self.inactive.clear();
    }
}

/// State that has [`Lifetimes`].
pub trait Lives {
    /// The lifetimes.
    fn lives(&mut self) -> &mut Lifetimes;

    /// A number that grows with each change that the running call makes.
    fn changes(&mut self) -> u64;

    /// Notes damage that was met, so that the volume is not marked clean.
    fn note_damage_met(&mut self);

    /// The same, of what no call fails by: it is to be told.
    fn pass_by(&mut self, _damage: &Error) {
        self.note_damage_met();
    }
}

/// The lists of orphans on disk, as the engine keeps them. The functions pass the decoded inode along; a change of it
/// is lost unless the caller stores it.
pub trait Orphans: Lives + InodeStore {
    /// First inode of the list that `of` belongs to, 0 if the list is empty.
    fn head(&mut self, of: Ino) -> Result<u64>;

    /// Changes the first inode of the list that `of` belongs to.
    fn set_head(&mut self, of: Ino, to: u64) -> Result<()>;

    /// The inode after this one in its list, 0 if it is last.
    fn next(i: &Self::Inode) -> u64;

    /// Changes the inode after this one in its list; does not store it.
    fn set_next(&mut self, i: &mut Self::Inode, to: u64);

    /// Whether there is a list on disk.
    fn is_listed(&self) -> bool {
        true
    }

    /// Restores the field in which an orphan's list link was kept (FFS: the creation time), unless the inode is about
    /// to be freed (`goes`). Does not store it.
    fn unlisted(&mut self, _i: &mut Self::Inode, _goes: bool) {}

    /// Frees some of the blocks of an inode that is to be freed, one step's worth, and stores it; returns whether none
    /// are left.
    fn release(&mut self, i: &mut Self::Inode) -> Result<bool>;

    /// Frees an inode that has no blocks left.
    fn free(&mut self, i: &mut Self::Inode) -> Result<()>;
}

/// Puts an inode without names on its list, and stores it.
pub fn orphan<C: Orphans>(core: &mut C, i: &mut C::Inode) -> Result<()> {
    let ino = C::number(i);
    if core.lives().is_orphan(ino) || !core.is_listed() {
        core.lives().orphans.entry(ino.0).or_insert(0);
        return core.iput(i);
    }
    let head = core.head(ino)?;
    core.set_next(i, head);
    core.iput(i)?;
    let orphans = &mut core.lives().orphans;
    orphans.insert(ino.0, 0);
    if let Some(before) = orphans.get_mut(&head) {
        *before = ino.0;
    }
    core.set_head(ino, ino.0)
}

/// Takes an inode off its list, if it is on one; the caller stores it.
pub fn unorphan<C: Orphans>(core: &mut C, i: &mut C::Inode) -> Result<()> {
    leave(core, i, false)
}

/// The same; an inode that is about to be freed (`goes`) keeps its link.
fn leave<C: Orphans>(core: &mut C, i: &mut C::Inode, goes: bool) -> Result<()> {
    let (ino, lives) = (C::number(i), core.lives());
    let Some(before) = lives.orphans.remove(&ino.0) else { return Ok(()) };
    lives.unnamed.remove(&ino.0);
    if !core.is_listed() {
        core.unlisted(i, goes);
        return Ok(());
    }
    let next = C::next(i);
    if !goes {
        core.set_next(i, 0);
    }
    core.unlisted(i, goes);
    if let Some(b) = core.lives().orphans.get_mut(&next) {
        *b = before;
    }
    if before == 0 {
        return core.set_head(ino, next);
    }
    let mut other = core.iget(Ino(before))?;
    core.set_next(&mut other, next);
    core.iput(&other)
}

/// Finds the orphans of a list at mount, and queues them. `check` gets each, and whether it was found before.
pub fn load<C: Orphans>(
    core: &mut C,
    head: u64,
    mut check: impl FnMut(&mut C, Ino, bool) -> Result<C::Inode>,
) -> Result<()> {
    let (mut at, mut before) = (head, 0);
    while at != 0 {
        let twice = core.lives().orphans.contains_key(&at);
        let i = check(core, Ino(at), twice)?;
        let lives = core.lives();
        lives.orphans.insert(at, before);
        lives.inactive.push_back(at);
        (before, at) = (at, C::next(&i));
    }
    Ok(())
}

/// The same at a mount: those behind one that cannot be read wait for the checker.
pub fn load_some<C: Orphans>(
    core: &mut C,
    head: u64,
    check: impl FnMut(&mut C, Ino, bool) -> Result<C::Inode>,
) -> Result<()> {
    match load(core, head, check) {
        Err(e) if e.is_damage() || e.errno() == Errno::ESTALE => {
            core.pass_by(&e);
            Ok(())
        }
        loaded => loaded,
    }
}

/// Called when the last name of an inode is removed; `i`, with link count 0, is not stored yet. Frees the inode if it
/// is unused and one step is enough; else makes it an orphan.
pub fn lost<C: Orphans>(core: &mut C, i: &mut C::Inode) -> Result<()> {
    let ino = C::number(i);
    if core.lives().refs.has(ino) {
        return orphan(core, i);
    }
    let before = core.changes();
    match core.release(i) {
        Ok(true) => return core.free(i),
        Ok(false) => {
            core.lives().push_inactive(ino);
            if !core.is_listed() {
                // It is stored as it is: another put would only make its block dirty again.
                core.lives().orphans.insert(ino.0, 0);
                return Ok(());
            }
        }
        Err(e) if is_left_alone(core, before, &e) => {}
        Err(e) => return Err(e),
    }
    orphan(core, i)
}

/// Whether a step of freeing an inode failed because of damage, before it changed anything. Such an inode stays an
/// orphan until fsck has mended it, and does not hold up the others.
fn is_left_alone<C: Lives>(core: &mut C, before: u64, e: &Error) -> bool {
    let alone = e.is_damage() && core.changes() == before;
    if alone {
        core.note_damage_met();
    }
    alone
}

/// Frees a new inode that never got a name.
pub fn abandon<C: Orphans>(core: &mut C, i: &mut C::Inode) -> Result<()> {
    while !core.release(i)? {}
    core.free(i)
}

fn release<C: Orphans>(core: &mut C, ino: Ino) -> Result<(C::Inode, bool)> {
    let mut i = core.iget(ino)?;
    let done = core.release(&mut i)?;
    Ok((i, done))
}

/// Does a step of freeing the first queued inode; returns whether there is more to do.
pub fn inactivate<C: Orphans>(core: &mut C) -> Result<bool> {
    let Some(ino) = core.lives().next_inactive() else { return Ok(false) };
    let before = core.changes();
    match release(core, ino) {
        Ok((mut i, true)) => {
            core.lives().pop_inactive();
            leave(core, &mut i, true)?;
            core.free(&mut i)?;
        }
        Ok((_, false)) => {}
        Err(Error::Restart) => return Err(Error::Restart),
        Err(e) => {
            core.lives().pop_inactive();
            if !is_left_alone(core, before, &e) {
                return Err(e);
            }
        }
    }
    Ok(core.lives().next_inactive().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Two lists, of even and of odd numbers.
    #[derive(Default)]
    struct Lists {
        lives: Lifetimes,
        heads: [u64; 2],
        next: BTreeMap<u64, u64>,
        steps: u32,
        damaged: u64,
        /// A damaged one is found so after a change.
        half: bool,
        changes: u64,
        met_damage: bool,
        freed: Vec<u64>,
        /// There are no lists on disk.
        unlisted: bool,
        puts: u32,
    }

    impl Lives for Lists {
        fn lives(&mut self) -> &mut Lifetimes {
            &mut self.lives
        }
        fn changes(&mut self) -> u64 {
            self.changes
        }
        fn note_damage_met(&mut self) {
            self.met_damage = true;
        }
    }

    impl InodeStore for Lists {
        type Inode = (u64, u64);

        fn number(i: &(u64, u64)) -> Ino {
            Ino(i.0)
        }
        fn iget(&mut self, ino: Ino) -> Result<(u64, u64)> {
            Ok((ino.0, self.next.get(&ino.0).copied().unwrap_or(0)))
        }
        fn iput(&mut self, i: &(u64, u64)) -> Result<()> {
            self.puts += 1;
            self.next.insert(i.0, i.1);
            Ok(())
        }
    }

    impl Orphans for Lists {
        fn head(&mut self, of: Ino) -> Result<u64> {
            Ok(self.heads[of.0 as usize % 2])
        }
        fn set_head(&mut self, of: Ino, to: u64) -> Result<()> {
            self.heads[of.0 as usize % 2] = to;
            Ok(())
        }
        fn next(i: &(u64, u64)) -> u64 {
            i.1
        }
        fn set_next(&mut self, i: &mut (u64, u64), to: u64) {
            i.1 = to;
        }
        fn is_listed(&self) -> bool {
            !self.unlisted
        }
        fn release(&mut self, i: &mut (u64, u64)) -> Result<bool> {
            if i.0 == self.damaged {
                self.changes += u64::from(self.half);
                return Err(Errno::EUCLEAN.into());
            }
            self.steps = self.steps.saturating_sub(1);
            Ok(self.steps == 0)
        }
        fn free(&mut self, i: &mut (u64, u64)) -> Result<()> {
            self.freed.push(i.0);
            Ok(())
        }
    }

    fn orphaned(lists: &mut Lists, n: u64) {
        let mut i = lists.iget(Ino(n)).unwrap();
        orphan(lists, &mut i).unwrap();
    }

    impl Lists {
        fn list(&self, which: usize) -> Vec<u64> {
            let from = Some(self.heads[which]).filter(|n| *n != 0);
            std::iter::successors(from, |n| self.next.get(n).copied().filter(|n| *n != 0)).collect()
        }
    }

    #[test]
    fn lists_lose_any_of_theirs() {
        let mut lists = Lists::default();
        [2, 4, 5, 6, 8, 4].into_iter().for_each(|n| orphaned(&mut lists, n));
        assert_eq!((lists.list(0), lists.list(1)), (vec![8, 6, 4, 2], vec![5]));
        for (n, left) in [(6, vec![8, 4, 2]), (8, vec![4, 2]), (2, vec![4]), (4, vec![])] {
            let mut i = lists.iget(Ino(n)).unwrap();
            unorphan(&mut lists, &mut i).unwrap();
            lists.iput(&i).unwrap();
            assert_eq!(lists.list(0), left);
        }
        let mut found = Vec::new();
        let mut mounted = Lists { heads: lists.heads, next: lists.next, ..Lists::default() };
        load(&mut mounted, 5, |lists, ino, twice| {
            found.push((ino.0, twice));
            lists.iget(ino)
        })
        .unwrap();
        assert_eq!((found, mounted.lives.inactive()), (vec![(5, false)], 1));
    }

    #[test]
    fn a_damaged_orphan_hinders_no_other() {
        let mut lists = Lists { damaged: 5, ..Lists::default() };
        for n in [5, 7] {
            orphaned(&mut lists, n);
            lists.lives.push_inactive(Ino(n));
        }
        assert!(inactivate(&mut lists).unwrap() && lists.met_damage);
        assert!(!inactivate(&mut lists).unwrap());
        assert_eq!((lists.freed.clone(), lists.list(1)), (vec![7], vec![5]));
    }

    #[test]
    fn a_damaged_inode_loses_its_last_name() {
        let mut lists = Lists { damaged: 5, ..Lists::default() };
        let mut i = lists.iget(Ino(5)).unwrap();
        lost(&mut lists, &mut i).unwrap();
        assert_eq!((lists.list(1), lists.lives.inactive(), lists.met_damage), (vec![5], 0, true));
        let mut half = Lists { damaged: 5, half: true, ..Lists::default() };
        assert!(lost(&mut half, &mut i).is_err());
        orphaned(&mut half, 5);
        half.lives.push_inactive(Ino(5));
        assert!(inactivate(&mut half).is_err() && !half.met_damage);
    }

    /// What `release` has stored is not stored again: with synchronous metadata that is another write.
    #[test]
    fn without_a_list_an_inode_is_stored_once() {
        let mut lists = Lists { unlisted: true, steps: 2, ..Lists::default() };
        let mut i = lists.iget(Ino(3)).unwrap();
        lost(&mut lists, &mut i).unwrap();
        assert_eq!((lists.puts, lists.lives.inactive(), lists.lives.is_orphan(Ino(3))), (0, 1, true));
        assert!(!inactivate(&mut lists).unwrap());
        assert_eq!((lists.puts, lists.freed, lists.heads), (0, vec![3], [0, 0]));
    }

    #[test]
    fn what_is_used_lives_on() {
        let mut lists = Lists::default();
        lists.lives.refs.add(Ino(3));
        for n in [3, 4] {
            let mut i = lists.iget(Ino(n)).unwrap();
            lost(&mut lists, &mut i).unwrap();
        }
        assert_eq!((lists.freed.clone(), lists.list(1)), (vec![4], vec![3]));
        assert!(!inactivate(&mut lists).unwrap());
        lists.lives.forget(Ino(3), 1);
        lists.steps = 2;
        assert!(inactivate(&mut lists).unwrap(), "one step does not do it");
        assert!(!inactivate(&mut lists).unwrap());
        assert_eq!((lists.freed, lists.heads), (vec![4, 3], [0, 0]));
    }
}
