//! Synchronous writes, as the original FFS has them: a change is written before others depend on it.
//!
//! An inode is written before the first name of it, a removed name before the link count falls, a pointer that was
//! cleared before its block is free, an indirect block before it is pointed to. Bitmaps, data and times are delayed; so
//! pointers to data are dependencies as with soft updates (`soft/pointers.rs`), and are rolled back.

use super::ordering::{Entry, MetadataOrdering};
use crate::buffers::{BlockKind, PointerSet, Slot};
use crate::dependencies::LinkRelease;
use crate::format::*;
use crate::inode::Inode;
use crate::planted::{Flaw, planted};
use crate::volume::Core;
use arbor_base::cache::Name;
use arbor_base::vfs::{CrashPromise, Ino, Result};

pub(super) struct Synchronous;

impl MetadataOrdering for Synchronous {
    fn crash_promise(&self) -> CrashPromise {
        CrashPromise::Ordered { names: true }
    }

    fn inode_freed(&self, core: &mut Core, i: &Inode, mode: u32) -> Result<()> {
        core.free_inode_when_written(i, mode)?;
        core.write_awaited(i.name())
    }

    fn inode_ready(&self, core: &mut Core, i: &Inode) -> Result<Vec<u64>> {
        let pages: Vec<u64> = core.cache.dirty_pages(i.ino, 0).collect();
        for index in pages {
            core.write_now(Name::data(i.ino, index))?;
        }
        if planted(Flaw::SyncNameFirst) {
            return Ok(Vec::new());
        }
        core.write_now(i.name()).map(|()| Vec::new())
    }

    fn table_block_made(&self, core: &mut Core, _cgx: u32, block: Frag, _old: u32) -> Result<()> {
        core.write_now(Name::Block(block.0.into()))
    }

    fn table_grown(&self, core: &mut Core, cgx: u32) -> Result<()> {
        core.write_now(core.cg_name(cgx))
    }

    fn links_raised(&self, core: &mut Core, i: &Inode) -> Result<Vec<u64>> {
        core.write_now(i.name()).map(|()| Vec::new())
    }

    fn data_ready(&self, core: &mut Core, i: &Inode) -> Result<Vec<u64>> {
        if core.begin_replacement(i)? {
            core.write_whole(i.ino)?;
        }
        Ok(Vec::new())
    }

    fn pointer_set(&self, core: &mut Core, p: &PointerSet) -> Result<()> {
        if !planted(Flaw::SyncPointerFirst) {
            match core.dirty.get(p.content).map(|d| d.kind) {
                // Bits may be late: after a crash they are counted again.
                Some(BlockKind::Data) => return core.pointer_waits(p, None),
                Some(_) => core.write_now(p.content)?,
                None => {}
            }
        }
        if p.is_moved() { self.blocks_freed(core, p.slot.0, &[p.old]) } else { Ok(()) }
    }

    fn leads_to_names(&self, core: &mut Core, slot: Slot, _content: Name, inode: Option<(Slot, u64)>) -> Result<()> {
        if planted(Flaw::NamesUnreached) {
            return Ok(());
        }
        core.write_now(slot.0)?;
        inode.map_or(Ok(()), |i| core.write_now(i.0.0))
    }

    fn pointer_cleared(&self, core: &mut Core, slot: Slot, runs: &[(Frag, u32)]) -> Result<()> {
        if planted(Flaw::SyncFreeFirst) {
            return self.blocks_freed(core, slot.0, runs);
        }
        core.free_when_cleared(slot, runs)?;
        core.write_awaited(slot.0)
    }

    fn blocks_freed(&self, core: &mut Core, name: Name, runs: &[(Frag, u32)]) -> Result<()> {
        if planted(Flaw::SyncFreeFirst) {
            return runs.iter().try_for_each(|r| core.free_run(r.0, r.1));
        }
        core.free_when_written(name, runs)?;
        core.write_awaited(name)
    }

    fn size_grown(&self, core: &mut Core, i: &Inode, old: u64, content: Name) {
        core.size_waits(i, old, content);
    }

    fn entry_added(&self, core: &mut Core, slot: Slot, ino: Ino, _waits: Vec<u64>) -> Result<u64> {
        core.write_now(slot.0)?;
        if planted(Flaw::SyncNameFirst) {
            let inode = core.inode_block(ino)?;
            core.write_now(inode)?;
        }
        Ok(0)
    }

    fn entry_alone(&self, core: &mut Core, slot: Slot) -> Result<()> {
        if planted(Flaw::SyncNameFirst) { Ok(()) } else { core.write_now(slot.0) }
    }

    fn entry_removed(
        &self,
        core: &mut Core,
        slot: Slot,
        _old: (Entry, &[u8]),
        _after: Option<u64>,
        release: LinkRelease,
    ) -> Result<()> {
        if !planted(Flaw::SyncDropFirst) {
            core.write_now(slot.0)?;
        }
        core.release_links(release)
    }

    fn entry_changed(
        &self,
        core: &mut Core,
        slot: Slot,
        _names: (Entry, Ino),
        _waits: Vec<u64>,
        release: LinkRelease,
    ) -> Result<u64> {
        core.write_now(slot.0)?;
        core.release_links(release).map(|()| 0)
    }

    fn exchanges_one_by_one(&self) -> bool {
        true
    }

    fn waits_for_data(&self) -> bool {
        true
    }

    /// Writes data first, so that the pointers to them need not be rolled back.
    fn write_aged(&self, core: &mut Core, names: &[Name]) -> Result<()> {
        let is_data = |name: &Name| core.dirty.get(*name).is_some_and(|d| d.kind == BlockKind::Data);
        let (data, rest): (Vec<Name>, Vec<Name>) = names.iter().partition(|name| is_data(name));
        if data.is_empty() || rest.is_empty() {
            return core.write_round(names);
        }
        core.write_round(&data)?;
        core.write_round(&rest)
    }

    fn release_held(&self, core: &mut Core) -> Result<bool> {
        core.flush_what_frees()
    }
}
