//! What each way to keep metadata does at each event: one trait, four implementations.
//!
//! The rest of the engine changes buffers first and then says what that means. The comments say what an ordering has to
//! guarantee there; each default is that of one that guarantees nothing. The three rules of Ganger and Patt 1994 stand
//! after them: a structure is never pointed to before it is initialised; a resource is never used again before all
//! pointers to it are cleared; the old pointer to a resource is not cleared before the new one is set. The names in
//! quotation marks are the sections of McKusick and Ganger 1999.

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
use arbor_base::vfs::{CrashPromise, Ino, Result};

/// The ordering of a way to keep metadata.
pub(crate) fn of(keeping: Keeping) -> &'static dyn MetadataOrdering {
    match keeping {
        Keeping::Async => &Asynchronous,
        Keeping::Sync => &Synchronous,
        Keeping::SoftUpdates => &SoftUpdates,
        Keeping::Journal => &Journaled,
    }
}

/// What an entry of a directory names: inode and kind.
pub(crate) type Entry = (Ino, u8);

pub(crate) trait MetadataOrdering: Sync {
    /// What a crash leaves of the operations before it.
    fn crash_promise(&self) -> CrashPromise;

    /// Refuses a volume whose metadata cannot be kept so.
    fn check_volume(&self, _sb: &SuperBlock) -> Result<()> {
        Ok(())
    }

    // Inodes.

    /// An inode was allocated; `old` is what was in its place. It is marked used on disk before it is there (FFS-C3;
    /// "Bitmap Dependency Tracking").
    fn inode_made(&self, _core: &mut Core, _i: &Inode, _old: Dinode) -> Result<()> {
        Ok(())
    }

    /// An inode was cleared; it is free when that is on disk (FFS-C3; "File and Directory Inode Reclamation").
    fn inode_freed(&self, core: &mut Core, i: &Inode, mode: u32) -> Result<()> {
        core.vfree(i.ino, mode)
    }

    /// A new inode is ready for its first name: returns what that has to wait for (FFS-C1; "New Directory Entry
    /// Dependency Tracking", "New Directory Dependency Tracking").
    fn inode_ready(&self, _core: &mut Core, _i: &Inode) -> Result<Vec<u64>> {
        Ok(Vec::new())
    }

    /// A link count was raised: returns what a name that it stands for has to wait for (FFS-C1; "Inode Dependency
    /// Tracking").
    fn links_raised(&self, _core: &mut Core, _i: &Inode) -> Result<Vec<u64>> {
        Ok(Vec::new())
    }

    /// An entry is about to name a directory below `dir` in place of another: returns what that has to wait for, since
    /// the count of `dir` may be on its way. The inode of `dir` was changed in this call.
    fn dir_counted(&self, _core: &mut Core, _dir: &Inode) -> Result<Vec<u64>> {
        Ok(Vec::new())
    }

    /// A file is about to take the name of another: returns what that has to wait for. Who writes a new file and
    /// renames it over the old one, and syncs neither, finds one of the two after a crash (FFS-C7).
    fn data_ready(&self, _core: &mut Core, _i: &Inode) -> Result<Vec<u64>> {
        Ok(Vec::new())
    }

    /// A group is about to say that a further block of its inode table is in use, `block`; `old`: how much was before.
    /// The block is on disk before that is (FFS-C4).
    fn table_block_made(&self, core: &mut Core, _cgx: u32, block: Frag, _old: u32) -> Result<()> {
        core.write_now(Name::Block(block.0.into()))
    }

    /// A group says that more of its inode table is in use: what it did not say is not looked for after a crash, so
    /// that it is on disk before an inode there is (FFS-C1).
    fn table_grown(&self, core: &mut Core, cgx: u32) -> Result<()> {
        core.write_now(core.cg_name(cgx))
    }

    // Pointers and sizes.

    /// A pointer was set. The content is on disk before the pointer (FFS-C4), its bits too, and what it pointed to is free
    /// when that is (FFS-C3; "Direct Block", "Indirect Block" and "New Indirect Block Dependency Tracking").
    fn pointer_set(&self, core: &mut Core, p: &PointerSet) -> Result<()> {
        if p.is_moved() { self.blocks_freed(core, p.slot.0, &[p.old]) } else { Ok(()) }
    }

    /// A pointer that was set leads to a directory's block, or to pointers to some: what is written there is not
    /// reached before the pointer is on disk (FFS-C6). `inode`: after the direct blocks, where the directory's inode
    /// begins in its buffer, and the size it had before.
    fn leads_to_names(&self, _core: &mut Core, _slot: Slot, _content: Name, _inode: Option<(Slot, u64)>) -> Result<()> {
        Ok(())
    }

    /// A pointer was cleared: the runs are free when that is on disk (FFS-C3; "File Truncation").
    fn pointer_cleared(&self, core: &mut Core, slot: Slot, runs: &[(Frag, u32)]) -> Result<()> {
        self.blocks_freed(core, slot.0, runs)
    }

    /// Blocks were freed: they are free when the buffer `name` is on disk (FFS-C3).
    fn blocks_freed(&self, core: &mut Core, _name: Name, runs: &[(Frag, u32)]) -> Result<()> {
        runs.iter().try_for_each(|r| core.free_run(r.0, r.1))
    }

    /// A run was marked free in the bitmap: nobody has it before that may be (FFS-C5).
    fn run_freed(&self, core: &mut Core, run: (Frag, u32)) {
        if core.opts.discard {
            // It is advice: nothing depends on it.
            let _ = core.discard(&[run]);
        }
    }

    /// A file grew from `old` bytes over what its last page `content` had on disk after the end: zeros are there
    /// before the size is (FFS-C4).
    fn size_grown(&self, _core: &mut Core, _i: &Inode, _old: u64, _content: Name) {}

    // Names.

    /// An entry was added; returns what waits for it has to wait for. What it names is on disk before it, which `waits`
    /// stands for (FFS-C1; "New Directory Entry Dependency Tracking").
    fn entry_added(&self, _core: &mut Core, _slot: Slot, _ino: Ino, _waits: Vec<u64>) -> Result<u64> {
        Ok(0)
    }

    /// An entry whose waits are over is on disk before anything else in its block changes, if changes come one by one:
    /// sectors of a block that is cut off while it is written may be any of the new ones.
    fn entry_alone(&self, _core: &mut Core, _slot: Slot) -> Result<()> {
        Ok(())
    }

    /// An entry, `old` with its name, was removed: what it stood for goes when it is gone from the disk (FFS-C2;
    /// "Directory Entry Removal-Dependency Tracking"). `after`: a name that has to be on disk before (of a rename;
    /// "Directory Entry Renaming Dependency Tracking").
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

    /// An entry names another inode than `old`: both of [`entry_added`](Self::entry_added) and
    /// [`entry_removed`](Self::entry_removed) hold. Returns what waits for it has to wait for.
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

    /// Whether the removal of an entry leaves its bytes alone, because they may have to come back. The rest of the
    /// engine settles what such entries would entangle.
    fn keeps_removed_entries(&self) -> bool {
        false
    }

    /// Whether two names that are exchanged reach the disk one after the other, so that a third one stands in for one
    /// of them (FFS-C2).
    fn exchanges_one_by_one(&self) -> bool {
        false
    }

    /// Whether inodes without names are on a list in the superblock, which the mount after a crash frees.
    fn lists_orphans(&self) -> bool {
        false
    }

    /// Whether pointers and sizes wait in their buffers for data.
    fn waits_for_data(&self) -> bool {
        false
    }

    // Writes.

    /// At the mount.
    fn mounted(&self, _core: &mut Core) -> Result<()> {
        Ok(())
    }

    /// Everything is to be in its place.
    fn emptied(&self, _core: &mut Core) -> Result<()> {
        Ok(())
    }

    /// A call has ended.
    fn call_ended(&self, _core: &mut Core) -> Result<()> {
        Ok(())
    }

    /// A buffer became dirty, or was changed again.
    fn buffer_dirtied(&self, _core: &mut Core, _name: Name, _kind: BlockKind) {}

    /// A buffer was dropped.
    fn buffer_dropped(&self, _core: &mut Core, _name: Name) {}

    /// Buffers were written: they are on disk before anything that is written after them.
    fn round_written(&self, core: &mut Core) -> Result<()> {
        core.flush()
    }

    /// Writes buffers because of their age: as they are, rolled back where they have to be.
    fn write_aged(&self, core: &mut Core, names: &[Name]) -> Result<()> {
        core.write_round(names)
    }

    /// Makes a file durable, with the names it was made by.
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

    /// When there is more of it than the ages of buffers say.
    fn due(&self, _core: &Core) -> Option<u64> {
        None
    }

    /// Writes until half of what may be dirty is.
    fn write_back(&self, core: &mut Core) -> Result<()> {
        core.write_oldest()
    }

    /// Space that was freed and may not be used yet is made usable. Says whether that can have helped.
    fn release_held(&self, _core: &mut Core) -> Result<bool> {
        Ok(false)
    }

    /// Whether a further step of a call may belong to the same transaction, so that both last or neither.
    fn joins_steps(&self, _core: &Core) -> bool {
        false
    }

    /// Whether a write may go on without a step between.
    fn may_write_on(&self, _core: &Core) -> bool {
        true
    }
}
