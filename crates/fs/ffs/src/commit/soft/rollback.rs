//! Rollback, and completion of dependencies after a write; and which buffers a sync has to write.

use crate::dependencies::{After, Dependency, INODE_AT, SIZE_AT, Undo};
use crate::format::*;
use crate::planted::{Flaw, planted};
use crate::volume::Core;
use arbor_base::cache::{FileBlock, Name};
use arbor_base::layout::get_u32;
use arbor_base::vfs::{Ino, Result};
use rustc_hash::FxHashSet;

impl Core {
    /// Undoes the changes in an image that must not be on disk yet. Returns whether there were any.
    pub(in crate::commit) fn roll_back(&self, name: Name, image: &mut [u8]) -> bool {
        let deps = &self.deps;
        let mut inodes = Vec::new();
        let mut rolled = false;
        let mut ready = FxHashSet::default();
        // The newest first: an entry may have been added and removed.
        for id in deps.of(name).iter().rev() {
            let Some(dependency) = deps.get(*id) else { continue };
            let is_entry = matches!(dependency.undo, Undo::Entry { .. });
            if !deps.waits(dependency) {
                // Older dependencies of the same entry are superseded.
                ready.extend(is_entry.then_some(dependency.at));
                continue;
            }
            if is_entry && ready.contains(&dependency.at) && !planted(Flaw::OlderRolledBack) {
                continue;
            }
            rolled = true;
            match dependency.undo {
                Undo::None => {}
                Undo::Inode(old) => inodes.push((dependency.at - INODE_AT, old)),
                Undo::Pointer { old, inode } => {
                    put_u32(image, dependency.at, old);
                    if let Some((at, size)) = inode.filter(|_| !planted(Flaw::SizeNotRolledBack)) {
                        lower_size(image, at, size);
                    }
                }
                Undo::Entry { .. } if planted(Flaw::EntryNotRolledBack) => {}
                Undo::Entry { ino, kind } => {
                    put_u32(image, dependency.at, ino);
                    if let Some(k) = image.get_mut(dependency.at + 6).filter(|_| ino != 0) {
                        *k = kind;
                    }
                }
                Undo::Size(old) => lower_size(image, dependency.at - SIZE_AT, old),
                Undo::Inited(old) => put_u32(image, dependency.at, old),
            }
        }
        for (at, old) in inodes {
            if let Some(place) = image.get_mut(at..at + INODE) {
                place.copy_from_slice(&old);
            }
        }
        rolled
    }

    /// Completes the dependencies that durable writes included.
    pub(in crate::commit) fn dependencies_written(&mut self, included: Vec<u64>) -> Result<()> {
        let after: Vec<After> = included.into_iter().flat_map(|id| self.deps.written(id)).collect();
        self.follow_on(after)
    }

    /// Takes the actions of dependencies that are on disk now, or never will be.
    pub(super) fn follow_on(&mut self, mut after: Vec<After>) -> Result<()> {
        after.reverse();
        while let Some(a) = after.pop() {
            self.deps.followed(&a);
            match a {
                After::Free(frag, frags) => self.free_run(frag, frags)?,
                After::FreeInode(ino, m) => self.vfree(ino, m)?,
                After::Release(release) => self.deps.push_work(release),
                After::Vacant(slot) => self.slot_vacated(slot),
                After::Dependency(id) => after.extend(self.deps.remove(id).into_iter().flat_map(|p| p.after).rev()),
            }
        }
        Ok(())
    }

    /// Cancels the dependencies of a buffer that will not be written, and takes their actions. Returns runs that are to
    /// be freed.
    pub fn cancel_buffer(&mut self, name: Name) -> Result<Vec<(Frag, u32)>> {
        let ids = self.deps.of(name).to_vec();
        let (mut runs, mut rest) = (Vec::new(), Vec::new());
        for id in ids {
            for a in self.deps.remove(id).map(|p| p.after).unwrap_or_default() {
                match a {
                    After::Free(frag, frags) => {
                        self.deps.followed(&a);
                        runs.push((frag, frags));
                    }
                    other => rest.push(other),
                }
            }
        }
        self.follow_on(rest)?;
        Ok(runs)
    }

    /// The buffers that must be written to make a file durable with its names, as far as that is known now.
    pub(in crate::commit) fn needed_by_file(&mut self, ino: Ino) -> Result<Vec<Name>> {
        let mut out: FxHashSet<Name> = self.buffers_of(ino)?.into_iter().collect();
        // Its names, and the directories up to the root that are new as well.
        let (mut inos, mut seen) = (vec![ino.0], FxHashSet::default());
        while let Some(ino) = inos.pop() {
            if !seen.insert(ino) {
                continue;
            }
            let (block, at) = match self.geom.inode_at(Ino(ino)) {
                Some(place) => place,
                None => continue,
            };
            let name = Name::Block(block.0.into());
            let deps = &self.deps;
            inos.extend(deps.entered_in(ino));
            let pending = (at..at + INODE).step_by(4).any(|at| deps.find(name, at).is_some());
            if pending && self.dirty.contains(name) {
                out.insert(name);
            }
            let forgets = planted(Flaw::SyncForgetsNames);
            for id in deps.new_names(ino).iter().filter(|_| !forgets) {
                out.extend(deps.needs(*id));
                if let Some(Dependency { buffer: Name::File(Ino(file), FileBlock::Data(_)), .. }) = deps.get(*id) {
                    inos.push(*file);
                }
            }
        }
        self.with_what_waits(out)
    }

    /// The same, with those that must be written until its removed names are gone from the disk.
    pub(in crate::commit) fn needed_by_names(&mut self, ino: Ino) -> Result<Vec<Name>> {
        let mut out: FxHashSet<Name> = self.needed_by_file(ino)?.into_iter().collect();
        let deps = &self.deps;
        out.extend(deps.old_names(ino.0).iter().filter_map(|id| deps.needs(*id)));
        self.with_what_waits(out)
    }

    /// The dirty ones of these buffers, and of those that their changes wait for.
    fn with_what_waits(&self, mut out: FxHashSet<Name>) -> Result<Vec<Name>> {
        let mut todo: Vec<Name> = out.iter().copied().collect();
        while let Some(name) = todo.pop() {
            for id in self.deps.of(name) {
                let waits = self.deps.get(*id).map_or(&[][..], |p| &p.waits);
                for buffer in waits.iter().filter_map(|w| self.deps.needs(*w)) {
                    if out.insert(buffer) {
                        todo.push(buffer);
                    }
                }
            }
        }
        Ok(out.into_iter().filter(|n| self.dirty.contains(*n)).collect())
    }
}

fn lower_size(image: &mut [u8], inode: usize, size: u64) {
    let at = inode + SIZE_AT;
    let lo = u64::from(get_u32(image, at).unwrap_or(0));
    let hi = u64::from(get_u32(image, at + 4).unwrap_or(0));
    if size < hi << 32 | lo {
        put_u32(image, at, size as u32);
        put_u32(image, at + 4, (size >> 32) as u32);
    }
}
