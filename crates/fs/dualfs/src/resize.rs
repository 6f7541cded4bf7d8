//! Changing the sizes of the areas of a volume that is not mounted.
//!
//! **Growing** the data area: the device first, durably; then a checkpoint counts the new data blocks.
//!
//! **Moving the border**: the metadata area becomes larger. On a device of its own, that grows. On one device it takes the
//! first blocks of the data area: contents that lie there move elsewhere, in sets like those of a mount, until two checkpoints
//! lead to none of them; then the superblock says how many segments there can be, and a checkpoint that there are so many,
//! with the taken blocks marked as used. A crash leaves the old border or the new one, and contents at either place.

use crate::format::*;
use crate::superblock::{self, LEAST_DATA};
use crate::volume::{Core, Volume};
use crate::{areas, mount};
use arbor_base::layout::{Corrupt, Location};
use arbor_base::vfs::{Clock, Devices, Errno, Error, Ino, MountOptions, Options, Result};
use arbor_kit::blockfile::BlockFiles as _;
use arbor_kit::blockmap::{BlockMap as _, Mapped as _};
use arbor_kit::buddy::bitmap;
use std::ops::Range;
use std::sync::Arc;

/// Makes the data area larger: the volume has so many bytes in all.
pub(crate) fn resize(devices: Devices, size: u64, clock: Arc<dyn Clock>) -> Result<()> {
    let (dev, _) = areas::open(areas::same(&devices))?;
    let core = mount::look(&devices)?;
    let (have, geom) = (core.geom.end(), core.geom);
    drop(core);
    let end = size.saturating_add(geom.gap());
    let blocks = superblock::data_blocks(&geom, end);
    let most = geom.data_at + (u64::from(superblock::data_blocks(&geom, u64::MAX)) << geom.block_shift);
    if end >= most + geom.block() as u64 {
        let (group, most) = (u64::from(geom.group_blocks) << geom.block_shift, most - geom.gap());
        return Err(Error::refused(format!(
            "{size} bytes are too many: with groups of {group} bytes a volume has at most {most} (see group=)"
        )));
    }
    arbor_kit::resize::make_room(&*dev, have, end, geom.block() as u64)?;
    let volume = mount::mount(devices, &MountOptions::default(), clock)?;
    let grown = volume.run_once(|core| {
        if blocks <= core.geom.data_blocks {
            return Ok(());
        }
        // Changes in core get places in the old area.
        core.checkpoint(false)?;
        core.geom.data_blocks = blocks;
        dev.confine(0..core.geom.end());
        core.groups.grow(&core.geom);
        core.checkpoint(false)
    });
    // The other checkpoint region counts them too.
    volume.close()?;
    grown
}

/// Makes the metadata area larger: its segments have so many bytes.
pub(crate) fn move_border(devices: Devices, size: u64, clock: Arc<dyn Clock>) -> Result<()> {
    let core = mount::look(&devices)?;
    let Some(to) = new_geometry(&core, size)? else { return Ok(()) };
    drop(core);
    let (main, data) = areas::parted(areas::same(&devices));
    let end = to.meta_byte(MetaBlock(to.meta_end()));
    if data.is_some() && end > main.geometry().size {
        main.set_size(end)?;
        main.flush()?;
    }
    // Whatever lies in the way moves, and nothing else.
    let options = Options::parse("modify=relocate,relocate=off");
    let volume = mount::mount(devices, &MountOptions { options, ..MountOptions::default() }, clock)?;
    let moved = take(&volume, &to, data.is_none());
    // The other checkpoint region says so, too.
    let closed = volume.close();
    moved.and(closed)
}

/// The geometry with a metadata area of so many bytes; `None` if it has them.
fn new_geometry(core: &Core, size: u64) -> Result<Option<Geom>> {
    let geom = core.geom;
    let bytes = |geom: &Geom| u64::from(geom.segs) << geom.seg_shift;
    let segs = u32::try_from(size >> geom.seg_shift).unwrap_or(u32::MAX);
    let to = Geom { segs, ..geom };
    if segs < geom.segs {
        let have = bytes(&geom);
        return Err(Error::refused(format!("a metadata area of {have} bytes cannot shrink to {size}")));
    }
    let most = superblock::most_segs(&geom);
    if segs > most {
        return Err(Error::refused(format!(
            "{size} bytes are too many for metadata: {} are the most",
            bytes(&Geom { segs: most, ..geom })
        )));
    }
    if geom.heads > 0 && to.gap() == 0 && to.meta_end() > geom.data_first() {
        let most = (geom.data_first() - FIRST) / geom.seg_blocks();
        let most = bytes(&Geom { segs: most, ..geom });
        return Err(Error::refused(format!("the volume was made for at most {most} bytes of metadata")));
    }
    let (capacity, counted) = (core.capacity_of(&to), u64::from(core.state.data));
    if to.file_blocks() < LEAST_DATA - geom.heads || capacity < counted {
        let [have, left] = [counted, capacity].map(|blocks| blocks << geom.block_shift);
        return Err(Error::refused(format!(
            "{size} bytes of metadata leave room for {left} bytes of contents: files have {have}"
        )));
    }
    Ok((segs > geom.segs).then_some(to))
}

/// Lets the metadata area have what lies before the first block of files in the new geometry; on a device of its own that is
/// nobody's.
fn take(volume: &Volume, to: &Geom, from_data: bool) -> Result<()> {
    let mut at = from_data.then_some(ROOT.0);
    while let Some(number) = at {
        at = volume.run_once(|core| core.vacate_from(number, to.first_of_files()))?;
    }
    volume.run_once(|core| {
        core.checkpoint(false)?;
        core.is_vacated(to)?;
        // Both checkpoints say how many segments there are before the superblock says that there can be more.
        core.sb.incompat = (core.sb.incompat.get() | INCOMPAT_BORDER).into();
        core.checkpoint(false)?;
        core.checkpoint(false)?;
        core.write_border(to.segs)?;
        for run in core.taken_by(to) {
            core.mark_run(RunInfo { first: run.start.into(), count: (run.end - run.start).into() })?;
        }
        core.segs.grow(to.segs);
        core.geom = *to;
        core.checkpoint(false)
    })
}

impl Core {
    /// Moves contents of the first file from a number on that has some before data block `end`; returns the number from which
    /// to go on, if there are more.
    fn vacate_from(&mut self, number: u64, end: u32) -> Result<Option<u64>> {
        self.groups.floor = end;
        let Some(number) = self.next_number(number)? else { return Ok(None) };
        let ino = Ino(number);
        if self.map_entry(ino)?.block.get() != 0 && self.inode(ino)?.is_file() {
            self.vacate(ino, end)?;
        }
        Ok(Some(number + 1))
    }

    /// Makes the pages of a file dirty that lie before data block `end`; each gets another place when it is written.
    fn vacate(&mut self, ino: Ino, end: u32) -> Result<()> {
        let (mut lbn, blocks) = (0, self.shape().blocks());
        loop {
            let i = self.inode(ino)?;
            let Some(found) = self.next_block(&i, lbn, blocks, false)? else { return Ok(()) };
            lbn = found + 1;
            let p = self.pointer(&i, FileBlock::Data(found))?;
            if !p.is_placed() || p.block.get() >= end {
                continue;
            }
            self.page(&i, found)?;
            self.mark(ino)?;
            self.change_page(&i, found, false, |_| ())?;
            self.write_excess();
            if !self.calls.health.is_writable() {
                return Err(Errno::EROFS.into());
            }
            // The file may be longer than memory.
            self.cache.trim_clean();
        }
    }

    /// The runs of data blocks that the metadata area takes in a new geometry, each in one group.
    fn taken_by(&self, to: &Geom) -> Vec<Range<u32>> {
        let (geom, mut runs, mut at) = (self.geom, Vec::new(), self.geom.first_of_files());
        while at < to.first_of_files() {
            let group = geom.group_of(DataBlock(at));
            let end = to.first_of_files().min(geom.group_start(group) + geom.group_len(group)).max(at + 1);
            runs.push(at..end);
            at = end;
        }
        runs
    }

    /// Fails unless all of these blocks are free: what has one that the inodes do not tell of is damage.
    fn is_vacated(&mut self, to: &Geom) -> Result<()> {
        for run in self.taken_by(to) {
            let group = self.geom.group_of(DataBlock(run.start));
            let (bits, at) = (self.bitmap(group)?, run.start - self.geom.group_start(group));
            if !bitmap::all_free(&bits, at, run.end - run.start) {
                let at = Location::file(IFILE, self.bitmap_lbn(group) << self.geom.block_shift);
                let found = format!("some of data blocks {} to {} in use", run.start, run.end - 1);
                return Err(Corrupt::new("bitmap", "bits", at, found, "free: no file has them").into());
            }
        }
        Ok(())
    }
}
