//! What each way to keep metadata does at each event: one trait, four implementations.
//!
//! The rest of the engine changes buffers first and then says what that means. The comments say what an ordering has to
//! guarantee there; each default is that of one that guarantees nothing. They follow from the three rules of Ganger and
//! Patt 1994: a structure is never pointed to before it is initialised; a resource is never used again before all
//! pointers to it are cleared; the old pointer to a resource is not cleared before the new one is set. The names in
//! quotation marks are the sections of McKusick and Ganger 1999.
//!
//! Called by `alloc.rs`, `file.rs`, `inode.rs`, `dir.rs` and `ops.rs` (events), and by `commit.rs` (writes).

use super::asynchronous::Asynchronous;
use super::journal::Journaled;
use super::soft::SoftUpdates;
use super::synchronous::Synchronous;
use crate::buffers::{BlockKind, PointerSet, Slot};
use crate::dependencies::LinkRelease;
use crate::format::*;
use crate::inode::Inode;
use crate::volume::Core;
use arbor_base::cache::Name;
use arbor_base::device::Device;
use arbor_base::vfs::{CrashPromise, Ino, Result};

/// The implementation for a way to keep metadata.
pub(crate) fn of(keeping: Keeping) -> &'static dyn MetadataOrdering {
    match keeping {
        Keeping::Async => &Asynchronous,
        Keeping::Sync => &Synchronous,
        Keeping::SoftUpdates => &SoftUpdates,
        Keeping::Journal => &Journaled,
    }
}

/// The inode that a directory entry names, and its kind.
pub(crate) type Entry = (Ino, u8);

pub(crate) trait MetadataOrdering: Sync {
    /// What remains of the operations before a crash.
    fn crash_promise(&self) -> CrashPromise;

    /// Refuses a volume whose metadata cannot be kept in this way.
    fn check_volume(&self, _dev: &dyn Device, _sb: &SuperBlock, _geom: &Geom) -> Result<()> {
        Ok(())
    }

    // Inodes.

    /// Called when an inode was allocated; `old` is its state before. The bitmap on disk must mark it used before the
    /// inode is on disk (FFS-C3; "Bitmap Dependency Tracking").
    fn inode_made(&self, _core: &mut Core, _i: &Inode, _old: Dinode) -> Result<()> {
        Ok(())
    }

    /// Called when an inode was cleared; it is free only after that is on disk (FFS-C3; "File and Directory Inode
    /// Reclamation").
    fn inode_freed(&self, core: &mut Core, i: &Inode, mode: u32) -> Result<()> {
        core.vfree(i.ino, mode)
    }

    /// Called when a new inode is ready for its first name: returns the dependencies that the name must wait for
    /// (FFS-C1; "New Directory Entry Dependency Tracking", "New Directory Dependency Tracking").
    fn inode_ready(&self, _core: &mut Core, _i: &Inode) -> Result<Vec<u64>> {
        Ok(Vec::new())
    }

    /// Called when a link count was raised: returns the dependencies that the new name must wait for (FFS-C1; "Inode
    /// Dependency Tracking").
    fn links_raised(&self, _core: &mut Core, _i: &Inode) -> Result<Vec<u64>> {
        Ok(Vec::new())
    }

    /// Called when an entry is about to name a subdirectory of `dir` in place of another: returns the dependencies that
    /// it must wait for, since the link count of `dir` may not be on disk yet. The inode of `dir` was changed in this
    /// call.
    fn dir_counted(&self, _core: &mut Core, _dir: &Inode) -> Result<Vec<u64>> {
        Ok(Vec::new())
    }

    /// Called when a file is about to take the name of another: returns the dependencies that the name must wait for. A
    /// program that writes a new file and renames it over the old one, and syncs neither, finds one of the two after a
    /// crash (FFS-C7).
    fn data_ready(&self, _core: &mut Core, _i: &Inode) -> Result<Vec<u64>> {
        Ok(Vec::new())
    }

    /// Called when a group is about to record that `block` of its inode table is in use; `old`: how much was before.
    /// The block must be on disk before the group is (FFS-C4).
    fn table_block_made(&self, _core: &mut Core, _cgx: u32, _block: Frag, _old: u32) -> Result<()> {
        Ok(())
    }

    /// Called when a group records that more of its inode table is in use. The rest is not searched after a crash, so
    /// the group must be on disk before an inode there is (FFS-C1).
    fn table_grown(&self, _core: &mut Core, _cgx: u32) -> Result<()> {
        Ok(())
    }

    // Pointers and sizes.

    /// Called when a pointer was set. The block and its bits must be on disk before the pointer is (FFS-C4), and the
    /// block it pointed to is free only after the pointer is on disk (FFS-C3; "Direct Block", "Indirect Block" and "New
    /// Indirect Block Dependency Tracking").
    fn pointer_set(&self, core: &mut Core, p: &PointerSet) -> Result<()> {
        if p.is_moved() { self.blocks_freed(core, p.slot.0, &[p.old]) } else { Ok(()) }
    }

    /// Called when a pointer that was set points to a directory's block, or to an indirect block above some: its
    /// contents cannot be reached before the pointer is on disk (FFS-C6). `inode`, of blocks that are not direct: where
    /// the directory's inode begins in its buffer, and its size until now.
    fn leads_to_names(&self, _core: &mut Core, _slot: Slot, _content: Name, _inode: Option<(Slot, u64)>) -> Result<()> {
        Ok(())
    }

    /// Called when a pointer was cleared: the runs are free only after that is on disk (FFS-C3; "File Truncation").
    fn pointer_cleared(&self, core: &mut Core, slot: Slot, runs: &[(Frag, u32)]) -> Result<()> {
        self.blocks_freed(core, slot.0, runs)
    }

    /// Called when runs were given up: they are free only after the buffer `name` is on disk (FFS-C3).
    fn blocks_freed(&self, core: &mut Core, _name: Name, runs: &[(Frag, u32)]) -> Result<()> {
        runs.iter().try_for_each(|r| core.free_run(r.0, r.1))
    }

    /// Called when a run was marked free in the bitmap: keeps it from being reallocated too early (FFS-C5).
    fn run_freed(&self, core: &mut Core, run: (Frag, u32)) {
        if core.opts.discard {
            // Discarding is advice: nothing depends on it.
            let _ = core.discard(&[run]);
        }
    }

    /// Called when a file grew from `old` bytes, over bytes that its last page `content` may have on disk past the end:
    /// zeros must be on disk before the size is (FFS-C4).
    fn size_grown(&self, _core: &mut Core, _i: &Inode, _old: u64, _content: Name) {}

    // Names.

    /// Called when an entry was added; returns its dependency. The inode it names must be on disk before it: `waits`
    /// are the dependencies of that (FFS-C1; "New Directory Entry Dependency Tracking").
    fn entry_added(&self, _core: &mut Core, _slot: Slot, _ino: Ino, _waits: Vec<u64>) -> Result<u64> {
        Ok(0)
    }

    /// Writes an entry that waits for nothing before anything else in its block changes, if the ordering writes changes
    /// one by one: of a write that a power cut ends, any of the new sectors may be on disk.
    fn entry_alone(&self, _core: &mut Core, _slot: Slot) -> Result<()> {
        Ok(())
    }

    /// Called when an entry, `old` with its name, was removed: its link count falls only after the entry is gone from
    /// the disk (FFS-C2; "Directory Entry Removal-Dependency Tracking"). `after`: a name that must be on disk before
    /// (in a rename; "Directory Entry Renaming Dependency Tracking").
    fn entry_removed(
        &self,
        core: &mut Core,
        _slot: Slot,
        _old: (Entry, &[u8]),
        _after: Option<u64>,
        release: LinkRelease,
    ) -> Result<()> {
        core.release_links(release)
    }

    /// Called when an entry names another inode than `old`: the rules of [`entry_added`](Self::entry_added) and of
    /// [`entry_removed`](Self::entry_removed) both hold. Returns its dependency.
    fn entry_changed(
        &self,
        core: &mut Core,
        _slot: Slot,
        (_old, _new): (Entry, Ino),
        _waits: Vec<u64>,
        release: LinkRelease,
    ) -> Result<u64> {
        core.release_links(release).map(|()| 0)
    }

    /// Whether the removal of an entry leaves its bytes in place, because a rollback may bring them back.
    fn keeps_removed_entries(&self) -> bool {
        false
    }

    /// Whether two exchanged names reach the disk one after the other, so that a third name must stand in for one of
    /// them (FFS-C2).
    fn exchanges_one_by_one(&self) -> bool {
        false
    }

    /// Whether orphans are on a list that begins in the superblock, and that the mount after a crash frees.
    fn lists_orphans(&self) -> bool {
        false
    }

    /// Whether pointers and sizes wait for data.
    fn waits_for_data(&self) -> bool {
        false
    }

    // Writes.

    /// Called at mount.
    fn mounted(&self, _core: &mut Core) -> Result<()> {
        Ok(())
    }

    /// Writes everything in place, and empties the journal.
    fn emptied(&self, _core: &mut Core) -> Result<()> {
        Ok(())
    }

    /// Called when a call has ended.
    fn call_ended(&self, _core: &mut Core) -> Result<()> {
        Ok(())
    }

    /// Called when a buffer became dirty, or was changed again.
    fn buffer_dirtied(&self, _core: &mut Core, _name: Name, _kind: BlockKind) {}

    /// Called when a buffer was dropped.
    fn buffer_dropped(&self, _core: &mut Core, _name: Name) {}

    /// Called when buffers were written: makes them durable before anything is written later.
    fn round_written(&self, core: &mut Core) -> Result<()> {
        core.flush()
    }

    /// Writes buffers because of their age, rolled back as needed.
    fn write_aged(&self, core: &mut Core, names: &[Name]) -> Result<()> {
        core.write_round(names)
    }

    /// Makes a file durable (fsync).
    fn sync_file(&self, core: &mut Core, ino: Ino) -> Result<()> {
        core.write_whole(ino)?;
        core.flush()
    }

    /// Makes everything durable.
    fn sync_all(&self, core: &mut Core) -> Result<()> {
        core.write_everything()
    }

    /// Background work that is due at `at`, milliseconds since the mount.
    fn background(&self, core: &mut Core, at: u64) -> Result<()> {
        core.write_some(&core.dirty.due_by(at))?;
        core.run_work().map(drop)
    }

    /// When background work is due that does not follow from the age of buffers.
    fn due(&self, _core: &Core) -> Option<u64> {
        None
    }

    /// Writes back until at most half of the dirty limit is dirty.
    fn write_back(&self, core: &mut Core) -> Result<()> {
        core.write_oldest()
    }

    /// Makes freed space usable that is not yet. Returns whether that can have helped.
    fn release_held(&self, _core: &mut Core) -> Result<bool> {
        Ok(false)
    }

    /// Whether a further step of a call may belong to the same transaction, so that both survive a crash or neither.
    fn joins_steps(&self, _core: &Core) -> bool {
        false
    }

    /// Whether a write may go on in the same step.
    fn may_write_on(&self, _core: &Core) -> bool {
        true
    }
}
