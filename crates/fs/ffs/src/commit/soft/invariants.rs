//! What must hold of the patches of a volume, as far as core tells.

use super::*;
use arbor_kit::invariants::{Holds, ensure};

impl Soft {
    /// Patches that wait for something, or that something waits for.
    pub fn extent(&self) -> usize {
        self.patches.len()
    }

    /// Whether the patch is reached from others, and `id` is the current one of its place.
    fn is_current(&self, id: u64, patch: &Patch) -> bool {
        patch.hangs.is_none() && !patch.is_event() && self.find(patch.buffer, patch.at) == Some(id)
    }

    /// Whether `id` waits for `other`, by itself or by what it waits for.
    fn comes_after(&self, id: u64, other: u64) -> bool {
        if self.patches.get(&id).is_some_and(|p| p.waits.contains(&other)) {
            return true;
        }
        let (mut todo, mut seen) = (vec![id], FxHashSet::default());
        while let Some(id) = todo.pop() {
            if id == other {
                return true;
            }
            if seen.insert(id) {
                todo.extend(self.patches.get(&id).into_iter().flat_map(|p| &p.waits));
            }
        }
        false
    }

    /// A name waits for the inode that it names, as long as that is not on disk.
    pub fn names_wait(&self, geom: &Geom) -> Holds {
        for (ino, ids) in &self.adds {
            let Some((block, at)) = geom.inode_at(Ino(*ino)) else { continue };
            let Some(inode) = self.find(Name::Block(block.0.into()), at + INODE_AT) else { continue };
            for id in ids.iter().filter(|id| self.patches.get(id).is_some_and(|p| self.is_current(**id, p))) {
                let waits = self.comes_after(*id, inode);
                ensure(waits, "FFS-C1", || format!("a name of inode {ino} does not wait for it"))?;
            }
        }
        Ok(())
    }

    /// Names that are gone for users are counted until what follows their removal is done.
    pub fn drops_are_counted(&self) -> Holds {
        let mut all = Soft::default();
        let patches = self.patches.values().flat_map(|p| &p.after);
        let waiting = patches.filter_map(|a| if let After::Drop(drop) = a { Some(drop) } else { None });
        waiting.chain(&self.work).for_each(|drop| all.count_going(*drop, true));
        ensure(all.going == self.going, "FFS-C2", || {
            format!("names that are going are counted as {:?}, and are {:?}", self.going, all.going)
        })
    }

    /// What is to be freed when patches are on disk: each of it once, and all of it counted.
    pub fn frees(&self) -> impl Iterator<Item = Freed> + '_ {
        self.patches.values().flat_map(|p| &p.after).filter_map(|a| match a {
            After::Free(frag, frags) => Some(Freed::Run(*frag, *frags)),
            After::FreeInode(ino, _) => Some(Freed::Inode(*ino)),
            _ => None,
        })
    }

    pub fn frees_are_counted(&self) -> Holds {
        let found = self.frees().count();
        ensure(found == self.frees, "FFS-C3", || format!("{} things are to be freed, {found} wait", self.frees))
    }

    /// New inodes and pointers were made to wait: for bits if they have to, and pointers for what they lead to, too.
    pub fn allocations_wait(&self, has_bits: bool, is_group: impl Fn(Name) -> bool) -> Holds {
        for (id, patch) in self.patches.iter().filter(|(id, p)| self.is_current(**id, p)) {
            let bits = usize::from(has_bits);
            let (least, what) = match patch.undo {
                Undo::Inode(_) => (bits, "a new inode"),
                Undo::Pointer { .. } => (bits + 1, "a pointer"),
                _ => continue,
            };
            // Of a pointer that lacks one of the two, what it has tells which.
            let to_group = patch.waits.iter().any(|w| self.patches.get(w).is_some_and(|w| is_group(w.buffer)));
            let number = if least == bits || !to_group && has_bits { "FFS-C3" } else { "FFS-C4" };
            ensure(patch.waits.len() >= least, number, || {
                format!("{what} (patch {id} at {} of {:?}) waits for {:?}", patch.at, patch.buffer, patch.waits)
            })?;
        }
        Ok(())
    }

    /// What hangs on a patch follows it, and what leads to names is there and knows it.
    pub fn ways_are_known(&self) -> Holds {
        for (id, patch) in self.patches.iter() {
            let Some(on) = patch.hangs else { continue };
            let follows = self
                .patches
                .get(&on)
                .is_some_and(|p| p.after.iter().any(|a| matches!(a, After::Patch(hanging) if hanging == id)));
            ensure(follows, "FFS-C6", || format!("patch {id} hangs on patch {on}, which does not know it"))?;
        }
        for (content, id) in &self.leads {
            let leads = self.patches.get(id).is_some_and(|p| p.leads_to.contains(content));
            ensure(leads, "FFS-C6", || format!("patch {id} does not lead to {content:?}"))?;
        }
        Ok(())
    }

    /// Entries that are not on disk, each with its place and the inode that it names.
    pub fn entries(&self) -> impl Iterator<Item = (Slot, u64)> + '_ {
        let here = self.patches.iter().filter(|(id, p)| p.names != 0 && self.is_current(**id, p));
        here.map(|(_, p)| ((p.buffer, p.at), p.names))
    }
}

/// What is to be freed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Freed {
    Run(Frag, u32),
    Inode(Ino),
}
