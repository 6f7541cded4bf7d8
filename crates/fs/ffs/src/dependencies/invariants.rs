//! Invariants of the dependencies of a volume, as far as they can be checked in core.

use super::*;
use arbor_kit::invariants::{Holds, ensure};

impl Dependencies {
    /// Number of dependencies.
    pub fn pending(&self) -> usize {
        self.all.len()
    }

    /// Whether `id` is the current dependency at its offset, and was not written yet.
    fn is_current(&self, id: u64, dependency: &Dependency) -> bool {
        dependency.waits_for_parent.is_none()
            && !dependency.is_event()
            && self.find(dependency.buffer, dependency.at) == Some(id)
    }

    /// Whether `id` waits for `other`, by itself or by what it waits for.
    fn comes_after(&self, id: u64, other: u64) -> bool {
        if self.all.get(&id).is_some_and(|p| p.waits.contains(&other)) {
            return true;
        }
        let (mut todo, mut seen) = (vec![id], FxHashSet::default());
        while let Some(id) = todo.pop() {
            if id == other {
                return true;
            }
            if seen.insert(id) {
                todo.extend(self.all.get(&id).into_iter().flat_map(|p| &p.waits));
            }
        }
        false
    }

    /// Checks that a name waits for the inode that it names, as long as that is not on disk.
    pub fn names_wait(&self, geom: &Geom) -> Holds {
        for (ino, ids) in &self.adds {
            let Some((block, at)) = geom.inode_at(Ino(*ino)) else { continue };
            let Some(inode) = self.find(Name::Block(block.0.into()), at + INODE_AT) else { continue };
            for id in ids.iter().filter(|id| self.all.get(id).is_some_and(|p| self.is_current(**id, p))) {
                let waits = self.comes_after(*id, inode);
                ensure(waits, "FFS-C1", || format!("a name of inode {ino} does not wait for it"))?;
            }
        }
        Ok(())
    }

    /// Checks that names removed for users are counted until their link counts are lowered.
    pub fn drops_are_counted(&self) -> Holds {
        let mut counted = Dependencies::default();
        let each = self.all.values().flat_map(|p| &p.after);
        let waiting = each.filter_map(|a| if let After::Release(drop) = a { Some(drop) } else { None });
        waiting.chain(&self.work).for_each(|drop| counted.count_going(*drop, true));
        ensure(counted.going == self.going, "FFS-C2", || {
            format!("names that are going are counted as {:?}, and are {:?}", self.going, counted.going)
        })
    }

    /// The runs and inodes to be freed when dependencies are on disk.
    pub fn frees(&self) -> impl Iterator<Item = Freed> + '_ {
        self.all.values().flat_map(|p| &p.after).filter_map(|a| match a {
            After::Free(frag, frags) => Some(Freed::Run(*frag, *frags)),
            After::FreeInode(ino, _) => Some(Freed::Inode(*ino)),
            _ => None,
        })
    }

    pub fn frees_are_counted(&self) -> Holds {
        let mut found = Frees::default();
        self.all.values().flat_map(|p| &p.after).for_each(|a| found.add(a));
        ensure(found == self.frees, "FFS-C3", || format!("{:?} are to be freed, {found:?} wait", self.frees))
    }

    /// Checks that new inodes and pointers wait for bits, if they have to, and pointers also for the block they point
    /// to.
    pub fn allocations_wait(&self, has_bits: bool, is_group: impl Fn(Name) -> bool) -> Holds {
        for (id, dependency) in self.all.iter().filter(|(id, p)| self.is_current(**id, p)) {
            let bits = usize::from(has_bits);
            let (least, what) = match dependency.undo {
                Undo::Inode(_) => (bits, "a new inode"),
                Undo::Pointer { .. } => (bits + 1, "a pointer"),
                _ => continue,
            };
            // Of a pointer that lacks one of the two, what it has tells which.
            let to_group = dependency.waits.iter().any(|w| self.all.get(w).is_some_and(|w| is_group(w.buffer)));
            let number = if least == bits || !to_group && has_bits { "FFS-C3" } else { "FFS-C4" };
            ensure(dependency.waits.len() >= least, number, || {
                format!(
                    "{what} (dependency {id} at {} of {:?}) waits for {:?}",
                    dependency.at, dependency.buffer, dependency.waits
                )
            })?;
        }
        Ok(())
    }

    /// Checks that a dependency that waits for its parent pointer is among the pointer's actions, and that the pointers
    /// to directory blocks exist and list them.
    pub fn ways_are_known(&self) -> Holds {
        for (id, dependency) in self.all.iter() {
            let Some(on) = dependency.waits_for_parent else { continue };
            let follows = self
                .all
                .get(&on)
                .is_some_and(|p| p.after.iter().any(|a| matches!(a, After::Dependency(waiting) if waiting == id)));
            ensure(follows, "FFS-C6", || format!("dependency {id} waits for its parent {on}, which does not know it"))?;
        }
        for (content, id) in &self.leads {
            let leads = self.all.get(id).is_some_and(|p| p.leads_to.contains(content));
            ensure(leads, "FFS-C6", || format!("dependency {id} does not lead to {content:?}"))?;
        }
        Ok(())
    }

    /// Entries that are not on disk, each with its slot and the inode that it names.
    pub fn entries(&self) -> impl Iterator<Item = (Slot, u64)> + '_ {
        let here = self.all.iter().filter(|(id, p)| p.names != 0 && self.is_current(**id, p));
        here.map(|(_, p)| ((p.buffer, p.at), p.names))
    }
}

/// A run or an inode to be freed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Freed {
    Run(Frag, u32),
    Inode(Ino),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::BlockKind;
    use crate::mount;
    use crate::volume::{Core, Volume};
    use arbor_base::device::MemDevice;
    use arbor_base::vfs::{Cx, Devices, FormatOptions, ManualClock, MountOptions, Options, Time, mode};
    use arbor_kit::invariants::Invariants as _;
    use arbor_kit::served::Served;
    use std::sync::Arc;

    /// A volume with two files that are not on disk.
    fn changed() -> Arc<Volume> {
        let device = MemDevice::new(16 << 20);
        let options = Options::parse("block=4K,cg=4M");
        let format = FormatOptions { uuid: [7; 16], options, ..FormatOptions::default() };
        crate::mkfs::format(Devices::single(device.clone()), &format).expect("format");
        let clock = Arc::new(ManualClock::new(Time { secs: 1_000_000, nanos: 0 }));
        let mounted = MountOptions { options: Options::parse("keep=softupdates"), ..MountOptions::default() };
        let volume = mount::mount(Devices::single(device), &mounted, clock).expect("mount");
        let fs = Served::serve(volume.clone());
        let cx = Cx::default();
        for name in [b"x", b"y"] {
            let ino = fs.mknod(&cx, fs.root(), name, mode::IFREG | 0o600, 0).expect("mknod").ino;
            fs.write(ino, 0, &[7; 9000]).expect("write");
        }
        volume
    }

    fn of(core: &Core, what: BlockKind) -> Vec<Name> {
        let mut all: Vec<Name> = core.dirty.iter().filter(|(_, d)| d.kind == what).map(|(n, _)| *n).collect();
        all.sort_unstable();
        all
    }

    type Break<'a> = &'a dyn Fn(&mut Core);

    /// Each invariant's number, with a change that breaks it.
    #[test]
    fn each_number_can_be_broken() {
        let all: [(&str, Break<'_>); 13] = [
            ("FFS-A1", &|core| {
                let pages = of(core, BlockKind::Data);
                let frag = core.dirty.get(pages[1]).expect("a page").frag;
                core.dirty.get_mut(pages[0]).expect("a page").frag = frag;
            }),
            ("FFS-A1", &|core| {
                let frag = Frag(core.geom.frags - core.geom.block_frags());
                core.cg(core.geom.cg_count - 1).expect("a group");
                let page = of(core, BlockKind::Data)[0];
                core.dirty.get_mut(page).expect("a page").frag = frag;
            }),
            ("FFS-A2", &|core| core.space.break_sums(1, 0)),
            ("FFS-A2", &|core| core.space.group_mut(0).nifree -= 1),
            ("FFS-B1", &|core| core.dirty.break_queue()),
            ("FFS-B1", &|core| core.cache.set_clean(of(core, BlockKind::Data)[0])),
            ("FFS-C1", &|core| core.deps.all.values_mut().filter(|p| p.names != 0).for_each(|p| p.waits.clear())),
            ("FFS-C2", &|core| core.deps.count_going(LinkRelease::Name(Ino(9)), true)),
            ("FFS-C3", &|core| core.deps.frees.runs += 1),
            ("FFS-C3", &|core| {
                let event = core.deps.event(Name::Block(0));
                let frag = Frag(core.geom.cg_start(1).0 - 1);
                core.deps.follow(event, After::Free(frag, 1));
            }),
            ("FFS-C5", &|core| core.space.break_sums(0, 1)),
            ("FFS-C6", &|core| core.deps.leads.extend([(Name::Block(0), u64::MAX)])),
            ("FFS-D1", &|core| {
                let ((page, at), _) = core.deps.entries().next().expect("an entry");
                let dirty = core.cache.dirtied(page).expect("a page");
                core.cache.modify(dirty, |buf| put_u32(buf, at, 77));
            }),
        ];
        for (n, (number, damage)) in all.iter().enumerate() {
            let volume = changed();
            let core = &mut *volume.lock();
            assert_eq!(core.check_invariants(), Ok(()));
            damage(core);
            assert_eq!(core.check_invariants().map_err(|b| b.number), Err(*number), "{n}");
        }
        let volume = changed();
        let core = &mut *volume.lock();
        let page = of(core, BlockKind::Data)[0];
        let dirty = core.cache.dirtied(page).expect("a page");
        core.cache.modify(dirty, |buf| buf.truncate(512));
        assert_eq!(core.check_invariants().map_err(|b| b.number), Err("FFS-F1"));
    }
}
