//! Soft updates (Ganger and Patt 1994; McKusick and Ganger 1999): no call waits for a write.
//!
//! A dependency (`dependencies.rs`) holds what a change waits for, and the bytes before it. A write includes the
//! dependencies that are ready and rolls the others back in the image that goes to the disk, never in the buffer
//! (`soft/rollback.rs`). When the write is durable, the dependencies that it included are removed, which makes others
//! ready, and their actions are taken: fragments and inodes are marked free, and link counts fall (the *work list*).
//!
//! In the terms of the papers: `pointer_set` makes an allocdirect or allocindirect, with the events as its newblk and
//! the bmsafemap of its group; `inode_made` an inodedep, `entry_added` a diradd, `entry_removed` a dirrem,
//! `pointer_cleared` freeblks and freefrags.

mod pointers;
mod rollback;

use super::inode_bytes;
use super::ordering::{Entry, MetadataOrdering};
use crate::alloc::INITED_AT;
use crate::buffers::{PointerSet, Slot};
use crate::dependencies::{After, Dependency, INODE_AT, LinkRelease, SIZE_AT, Undo};
use crate::format::*;
use crate::inode::{Inode, XATTR};
use crate::planted::{Flaw, planted};
use crate::volume::Core;
use arbor_base::cache::{FileBlock, Name};
use arbor_base::vfs::{CrashPromise, Ino, Result};

pub(super) struct SoftUpdates;

impl MetadataOrdering for SoftUpdates {
    fn crash_promise(&self) -> CrashPromise {
        CrashPromise::Ordered { names: false }
    }

    fn inode_made(&self, core: &mut Core, i: &Inode, old: Dinode) -> Result<()> {
        let cg = core.cg_name(core.geom.cg_of_inode(i.ino));
        let deps = &mut core.deps;
        let mut waits = if planted(Flaw::InodeBeforeBit) { Vec::new() } else { vec![deps.event(cg)] };
        // It also waits for the group to record that this part of its table is in use.
        waits.extend(deps.find(cg, INITED_AT));
        let undo = Undo::Inode(inode_bytes(&old));
        deps.add(Dependency::new(i.name(), i.at + INODE_AT, undo, waits));
        Ok(())
    }

    fn inode_freed(&self, core: &mut Core, i: &Inode, mode: u32) -> Result<()> {
        core.free_inode_when_written(i, mode)
    }

    fn inode_ready(&self, core: &mut Core, i: &Inode) -> Result<Vec<u64>> {
        // A new directory or symbolic link is not on disk before its first block is: without one it is invalid.
        if (i.is_dir() || i.is_symlink())
            && let Some(pointer) = core.deps.at_mut(i.name(), i.pointer_at(0))
        {
            pointer.first = true;
        }
        Ok(inode_parts(core, i))
    }

    fn links_raised(&self, core: &mut Core, i: &Inode) -> Result<Vec<u64>> {
        let mut waits = vec![core.deps.event(i.name())];
        waits.extend(inode_parts(core, i));
        Ok(waits)
    }

    fn dir_counted(&self, core: &mut Core, dir: &Inode) -> Result<Vec<u64>> {
        self.links_raised(core, dir)
    }

    /// Waits for the data of the file that are not on disk, for the pointers to them, and for the size.
    fn data_ready(&self, core: &mut Core, i: &Inode) -> Result<Vec<u64>> {
        if !core.begin_replacement(i)? {
            return Ok(Vec::new());
        }
        let (inode, mut waits) = (i.name(), Vec::new());
        for name in core.buffers_of(i.ino)?.into_iter().filter(|n| *n != inode) {
            let deps = &mut core.deps;
            if let Name::File(..) = name {
                waits.push(deps.event(name));
            }
            waits.extend(deps.of(name));
        }
        let places = (0..NDADDR + NIADDR).map(|k| i.pointer_at(k)).chain([i.at + SIZE_AT]);
        waits.extend(places.filter_map(|at| core.deps.find(inode, at)));
        Ok(waits)
    }

    fn table_block_made(&self, core: &mut Core, cgx: u32, block: Frag, old: u32) -> Result<()> {
        let cg = core.cg_name(cgx);
        let deps = &mut core.deps;
        let wait = deps.event(Name::Block(block.0.into()));
        if planted(Flaw::TableBeforeBlock) {
            return Ok(());
        }
        match deps.at_mut(cg, INITED_AT) {
            Some(dependency) => dependency.waits.push(wait),
            None => {
                deps.add(Dependency::new(cg, INITED_AT, Undo::Inited(old), vec![wait]));
            }
        }
        Ok(())
    }

    fn pointer_set(&self, core: &mut Core, p: &PointerSet) -> Result<()> {
        let bits = core.cg_name(core.geom.cg_of(p.new.0));
        core.pointer_waits(p, Some(bits))
    }

    fn leads_to_names(
        &self,
        core: &mut Core,
        (buffer, at): Slot,
        content: Name,
        inode: Option<(Slot, u64)>,
    ) -> Result<()> {
        let deps = &mut core.deps;
        let Some(pointer) = deps.find(buffer, at) else { return Ok(()) };
        let lead = match inode.map(|((buffer, at), old)| (buffer, at + SIZE_AT, old)) {
            None => pointer,
            Some((buffer, at, old)) => match deps.find(buffer, at) {
                Some(size) => size,
                None => deps.add(Dependency::new(buffer, at, Undo::Size(old), vec![pointer])),
            },
        };
        deps.lead(content, lead);
        if let Some(size) = deps.get_mut(lead).filter(|d| lead != pointer && !d.waits.contains(&pointer)) {
            size.waits.push(pointer);
        }
        Ok(())
    }

    fn pointer_cleared(&self, core: &mut Core, slot: Slot, runs: &[(Frag, u32)]) -> Result<()> {
        core.free_when_cleared(slot, runs)
    }

    fn blocks_freed(&self, core: &mut Core, name: Name, runs: &[(Frag, u32)]) -> Result<()> {
        core.free_when_written(name, runs)
    }

    fn size_grown(&self, core: &mut Core, i: &Inode, old: u64, content: Name) {
        core.size_waits(i, old, content);
    }

    fn entry_added(&self, core: &mut Core, (page, at): Slot, ino: Ino, mut waits: Vec<u64>) -> Result<u64> {
        let deps = &mut core.deps;
        if planted(Flaw::NameBeforeInode) {
            waits.clear();
        }
        let (mut undo, mut after) = (Undo::Entry { ino: 0, kind: 0 }, Vec::new());
        if let Some(removed) = deps.find(page, at).and_then(|id| deps.remove(id)) {
            // The same name again, in the slot of a removed entry that is still on disk.
            waits.extend(removed.waits.into_iter().filter(|w| deps.is_open(*w)));
            (undo, after) = (removed.undo, removed.after);
        }
        Ok(deps.add(Dependency { after, names: ino.0, ..Dependency::new(page, at, undo, waits) }))
    }

    fn entry_removed(
        &self,
        core: &mut Core,
        (page, at): Slot,
        ((ino, kind), name): (Entry, &[u8]),
        after: Option<u64>,
        release: LinkRelease,
    ) -> Result<()> {
        let deps = &mut core.deps;
        deps.count_going(release, true);
        deps.leave((page, at), ino.0);
        let held =
            if let Name::File(Ino(file), FileBlock::Data(_)) = page { Some((file, name.to_vec())) } else { None };
        let after = after.filter(|id| deps.is_open(*id) && !planted(Flaw::OldNameFirst));
        if let Some(wait) = after {
            // The entry on disk here must stay, too, as long as the newer name of its inode is not on disk.
            let unwritten = |p: &Dependency| !matches!(p.undo, Undo::Entry { ino: 0, .. });
            let older = deps.find(page, at).filter(|id| deps.get(*id).is_some_and(unwritten));
            let waits = deps.ways([Some(wait), older].into_iter().flatten().collect());
            // Dependencies that wait for this entry to be on disk go on waiting for it.
            let undo = Undo::Entry { ino: ino.0 as u32, kind };
            let after = vec![After::Release(release), After::Vacant((page, at))];
            deps.add(Dependency { after, held, ..Dependency::new(page, at, undo, waits) });
            return Ok(());
        }
        if planted(Flaw::DropBeforeName) {
            deps.push_work(release);
            return core.run_work().map(|_| ());
        }
        let mut undo = Undo::Entry { ino: ino.0 as u32, kind };
        let mut after = vec![After::Release(release), After::Vacant((page, at))];
        if let Some(dependency) = deps.find(page, at).and_then(|id| deps.remove(id)) {
            if let Undo::Entry { ino: 0, .. } = dependency.undo {
                // It has never been on disk.
                deps.push_work(release);
                core.slot_vacated((page, at));
                core.follow_on(dependency.after)?;
                return core.run_work().map(|_| ());
            }
            undo = dependency.undo;
            after.extend(dependency.after);
        }
        // It waits for nothing, but the same name must reuse its slot: elsewhere it might be on disk twice.
        deps.add(Dependency { after, held, ..Dependency::new(page, at, undo, Vec::new()) });
        Ok(())
    }

    fn entry_changed(
        &self,
        core: &mut Core,
        (page, at): Slot,
        ((ino, kind), new): (Entry, Ino),
        mut waits: Vec<u64>,
        release: LinkRelease,
    ) -> Result<u64> {
        let deps = &mut core.deps;
        deps.count_going(release, true);
        deps.leave((page, at), ino.0);
        if let LinkRelease::Name(old) = release
            && !planted(Flaw::ReplacedUnnamed)
        {
            waits.extend(deps.newest_name((page, at), old.0));
        }
        waits = deps.ways(waits);
        let (undo, mut after) = match deps.find(page, at).and_then(|id| deps.remove(id)) {
            Some(dependency) => {
                // Above all the link count of the directory, if the entry names one before and after.
                waits.extend(dependency.waits.into_iter().filter(|w| deps.is_open(*w)));
                (dependency.undo, dependency.after)
            }
            None => (Undo::Entry { ino: ino.0 as u32, kind }, Vec::new()),
        };
        let never_on_disk = matches!(undo, Undo::Entry { ino: 0, .. });
        if !never_on_disk {
            after.push(After::Release(release));
        }
        // `..` does not count as a name of the directory above.
        let names = if let LinkRelease::Parent(_) = release { 0 } else { new.0 };
        let id = deps.add(Dependency { after, names, ..Dependency::new(page, at, undo, waits) });
        if never_on_disk {
            deps.push_work(release);
            core.run_work()?;
        }
        Ok(id)
    }

    fn keeps_removed_entries(&self) -> bool {
        true
    }

    fn exchanges_one_by_one(&self) -> bool {
        true
    }

    fn waits_for_data(&self) -> bool {
        true
    }

    fn sync_file(&self, core: &mut Core, ino: Ino) -> Result<()> {
        core.reap(0)?;
        core.write_out(&mut |core| core.needed_by_file(ino))?;
        core.flush()
    }

    fn release_held(&self, core: &mut Core) -> Result<bool> {
        core.flush_what_frees()
    }
}

/// The dependencies of a new inode: its own, and those of the pointers to its direct blocks and attributes.
fn inode_parts(core: &Core, i: &Inode) -> Vec<u64> {
    let pointers = (0..NDADDR).chain([XATTR]).filter_map(|k| core.deps.find(i.name(), i.pointer_at(k)));
    pointers.chain(core.deps.find(i.name(), i.at + INODE_AT)).collect()
}

impl Core {
    /// The dependency of a name that must be on disk before the one in `slot` is removed, or a file on disk would have
    /// no name: the newest name of `file`, which the slot names, that is not on disk yet; or the entry itself, if it is
    /// still rolled back.
    pub fn newer_name(&self, slot: Slot, file: Option<Ino>) -> Option<u64> {
        let deps = &self.deps;
        let here = deps.find(slot.0, slot.1);
        let dependency = here.and_then(|id| deps.get(id));
        let newer = || file.and_then(|ino| deps.newest_name(slot, ino.0));
        if matches!(dependency, Some(Dependency { undo: Undo::Entry { ino: 0, .. }, .. })) {
            // Names on disk may wait for this one before they are removed.
            let some = file.is_some_and(|ino| deps.has_old_names(ino)) && !planted(Flaw::VanishedAwaited);
            return if some { newer() } else { None };
        }
        newer().or(here.filter(|_| dependency.is_some_and(|p| deps.waits(p))))
    }

    /// Whether removed names of an inode are still on disk, waiting for its new one in `slot`, and it has other names
    /// that are not on disk: if the new one were replaced now, a crash could leave the inode without a name.
    pub fn is_awaited(&self, slot: Slot, ino: Ino) -> bool {
        let deps = &self.deps;
        let new = deps.find(slot.0, slot.1).and_then(|id| deps.get(id)).is_some_and(|p| p.names == ino.0);
        new && deps.has_old_names(ino) && deps.newest_name(slot, ino.0).is_some()
    }

    /// Whether the bytes of an entry in `slot` are kept when it is removed: it is on disk, or waits for `after`.
    pub fn is_kept_removed(&self, slot: Slot, after: Option<u64>) -> bool {
        self.ordering().keeps_removed_entries() && (after.is_some() || !self.deps.is_unwritten(slot))
    }
}
