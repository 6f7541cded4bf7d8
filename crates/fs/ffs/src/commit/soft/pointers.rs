//! Dependencies of pointers and sizes, and the runs and inodes freed after them; used by synchronous writes, too.

use crate::buffers::{PointerSet, Slot};
use crate::dependencies::{After, Dependency, INODE_AT, SIZE_AT, Undo};
use crate::format::*;
use crate::inode::Inode;
use crate::planted::{Flaw, planted};
use crate::volume::Core;
use arbor_base::cache::Name;
use arbor_base::vfs::Result;

impl Core {
    /// Makes a pointer that was set wait for its block (FFS-C4), and for `bits`, the group with the bits of its
    /// fragments (FFS-C3).
    pub(in crate::commit) fn pointer_waits(&mut self, p: &PointerSet, bits: Option<Name>) -> Result<()> {
        let (moved, old, content, (buffer, at)) = (p.is_moved(), p.old, p.content, p.slot);
        let deps = &mut self.deps;
        let mut waits = Vec::new();
        if let Some(bits) = bits.filter(|_| !planted(Flaw::PointerBeforeBits)) {
            waits.push(deps.event(bits));
        }
        if !planted(Flaw::PointerBeforeBlock) {
            waits.push(deps.event(content));
        }
        let Some(id) = deps.find(buffer, at) else {
            let inode = p.inode.map(|(i, size)| (i, deps.size_without((buffer, i + SIZE_AT), content, size)));
            let undo = Undo::Pointer { old: old.0.0, inode };
            let id = deps.add(Dependency::new(buffer, at, undo, waits));
            if moved {
                deps.follow(id, After::Free(old.0, old.1));
            }
            return Ok(());
        };
        let Some(dependency) = deps.get_mut(id) else { return Ok(()) };
        dependency.waits = waits;
        let on_disk = matches!(dependency.undo, Undo::Pointer { old: o, .. } if o == old.0.0);
        if moved && on_disk {
            deps.follow(id, After::Free(old.0, old.1));
        } else if moved {
            // No pointer to the old run has ever been on disk.
            return self.free_run(old.0, old.1);
        }
        Ok(())
    }

    /// Makes the size of a file wait for its last page, if the disk has bytes other than zero past the old end.
    pub(in crate::commit) fn size_waits(&mut self, i: &Inode, old: u64, content: Name) {
        if !self.pages.has_tail(content) || planted(Flaw::TailShown) {
            return;
        }
        let (buffer, at) = (i.name(), i.at + SIZE_AT);
        let deps = &mut self.deps;
        let event = deps.event(content);
        match deps.at_mut(buffer, at) {
            Some(dependency) if dependency.waits.contains(&event) => {}
            Some(dependency) => dependency.waits.push(event),
            None => {
                deps.add(Dependency::new(buffer, at, Undo::Size(old), vec![event]));
            }
        }
    }

    /// Lowers the sizes to which the inode of a file may be rolled back: no image may reach beyond the new end, where
    /// fragments are about to be free.
    pub fn size_lowered(&mut self, i: &Inode) {
        let (name, size) = (i.name(), i.size());
        for at in (0..NDADDR + NIADDR).map(|k| i.pointer_at(k)).chain([i.at + SIZE_AT]) {
            let waiting = self.deps.at_mut(name, at);
            if let Some(Dependency { undo: Undo::Pointer { inode: Some((_, old)), .. } | Undo::Size(old), .. }) =
                waiting
                && !planted(Flaw::SizeNotRolledBack)
            {
                *old = size.min(*old);
            }
        }
    }

    /// Frees the runs once the cleared pointer in `slot` is not on disk: at once if it never was.
    pub(in crate::commit) fn free_when_cleared(&mut self, (buffer, at): Slot, runs: &[(Frag, u32)]) -> Result<()> {
        let deps = &mut self.deps;
        let Some(dependency) = deps.find(buffer, at).and_then(|id| deps.remove(id)) else {
            return self.free_when_written(buffer, runs);
        };
        if matches!(dependency.undo, Undo::Pointer { old: 0, .. }) {
            self.follow_on(dependency.after)?;
            return runs.iter().try_for_each(|r| self.free_run(r.0, r.1));
        }
        let event = self.deps.event(buffer);
        self.deps.hand_on(dependency.after, event);
        self.free_when_written(buffer, runs)
    }

    /// Frees the runs once the buffer is on disk.
    pub(in crate::commit) fn free_when_written(&mut self, buffer: Name, runs: &[(Frag, u32)]) -> Result<()> {
        let event = if runs.is_empty() { return Ok(()) } else { self.deps.event(buffer) };
        if planted(Flaw::FragmentsTooEarly) {
            return runs.iter().try_for_each(|r| self.free_run(r.0, r.1));
        }
        for (frag, frags) in runs {
            self.deps.follow(event, After::Free(*frag, *frags));
        }
        Ok(())
    }

    /// Frees a cleared inode once that is on disk: at once if it never was.
    pub(in crate::commit) fn free_inode_when_written(&mut self, i: &Inode, m: u32) -> Result<()> {
        // Pointers that were never written went with their blocks; the dependencies left hold what is on disk.
        let places = (0..=NDADDR + NIADDR).map(|k| i.pointer_at(k)).chain([i.at + SIZE_AT]);
        let pending: Vec<u64> = places.filter_map(|at| self.deps.find(i.name(), at)).collect();
        let mut after = Vec::new();
        for id in pending {
            after.extend(self.deps.remove(id).map(|p| p.after).unwrap_or_default());
        }
        let new = self.deps.find(i.name(), i.at + INODE_AT).and_then(|id| self.deps.remove(id));
        if let Some(new) = new {
            // The inode was never on disk.
            after.extend(new.after);
            self.follow_on(after)?;
            return self.vfree(i.ino, m);
        }
        let event = self.deps.event(i.name());
        self.deps.follow(event, After::FreeInode(i.ino, m));
        self.deps.hand_on(after, event);
        Ok(())
    }
}
