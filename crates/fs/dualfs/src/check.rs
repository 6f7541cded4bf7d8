//! The checker (fsck): finds what is wrong, and mends it.
//!
//! | phase | file | what |
//! |---|---|---|
//! | superblock, checkpoint, log | `start.rs` | from the copy, or the older one, if need be; rolled forward in core |
//! | | `log.rs` | without a checkpoint that leads to the ifile: all of it from the summaries |
//! | 1 ifile | `ifile.rs` | its blocks; what cannot be read is made anew from what the inodes say |
//! | 2 inodes | `inodes.rs` | each by itself, its blocks and attributes; each block gets its one owner (DUALFS-A1) |
//! | | `contents.rs` | contents that have a checksum, against it |
//! | 3 space | `space.rs` | bitmaps and descriptors, segment usage, counts, free inodes |
//! | 4 names | `names.rs` | chunks, names, what the root leads to, link counts (`kit::treecheck`); lost+found |
//!
//! The checker works on the state in core as a mount does, with the same functions. Passes follow one another until one
//! finds nothing; only then it is written, to clean segments and free blocks, and two checkpoints follow, so that a repair
//! that is cut off has done nothing or all.

mod contents;
mod ifile;
mod inodes;
mod issue;
mod log;
mod names;
mod space;
mod start;

pub(crate) use issue::Issue;
pub(crate) use names::check_path;
pub(crate) use start::search;

use crate::format::*;
use crate::plan::LogEnd;
use crate::volume::Core;
use arbor_base::vfs::{CheckOptions, CheckReport, Devices, Error, Progress, Result};
use arbor_kit::calls::State as _;
use arbor_kit::conclude::Concluded;
use arbor_kit::findings::{self, Repairs};
use arbor_kit::forest::Forest;
use arbor_kit::pagecheck::PageCheck as _;
use arbor_kit::runs::Runs;
use arbor_kit::treecheck::{Rec, TreeCheck as _};
use std::collections::BTreeMap;

/// What was found.
type Findings = findings::Findings<Issue>;

/// What inodes lead to.
#[derive(Default)]
struct Owned {
    /// Metadata blocks.
    meta: Runs,
    /// Data blocks.
    data: Runs,
    /// Data blocks that do not have the checksum of the pointer to them: in use until they are holes.
    damaged: Runs,
    /// Live bytes of segments.
    live: BTreeMap<u32, u32>,
    /// Directories of groups.
    dirs: BTreeMap<u32, u32>,
    /// Data blocks that files count, also those without a place.
    counted: u32,
    /// Metadata blocks that files count.
    blocks: u32,
    /// Blocks of summaries.
    summaries: u64,
}

struct Checker<'a> {
    core: Core,
    f: Findings,
    progress: Progress<'a>,
    /// Inodes in use, ascending.
    recs: Forest<u32, u32>,
    owned: Owned,
    mends: Vec<inodes::Mend>,
    window: contents::Window,
    /// A pass has found nothing but what is safe to mend, which changes no pointer to contents: they need not be read again.
    contents_sound: bool,
    lost_found: u32,
    /// The superblock is not as it should be, or its copy.
    super_damaged: bool,
    /// The ifile was made anew, and this pass fills it.
    anew: Option<Anew>,
    /// Inodes whose entries in the map are lost.
    lost_map: Vec<std::ops::Range<u32>>,
}

/// What the first pass over a new ifile has to know.
struct Anew {
    /// Inodes in the order in which they take their blocks.
    order: Vec<u32>,
    /// Those that can be used, in that order.
    recs: Vec<Rec>,
    /// Where the log goes on, but for the segments.
    end: LogEnd,
}

/// Checks a volume, and repairs it if told to.
pub(crate) fn check(devices: Devices, options: &CheckOptions, progress: Progress<'_>) -> Result<CheckReport> {
    match start::open(&devices, options.repair, progress)? {
        Ok(checker) => checker.run(options),
        Err(lost) => Ok(lost),
    }
}

impl Repairs for Checker<'_> {
    type Issue = Issue;

    fn findings(&mut self) -> &mut Findings {
        &mut self.f
    }

    fn pass(&mut self) -> Result<()> {
        (self.recs, self.lost_found, self.owned) = (Forest::default(), 0, Owned::default());
        self.check_copy()?;
        self.check_ifile()?;
        self.read_inodes()?;
        self.check_space()?;
        self.anew = None;
        self.mend_inodes()?;
        self.check_orphans()?;
        self.root()?;
        self.read_dirs()?;
        self.connect()?;
        self.contents_sound = !self.f.unsafe_found();
        Ok(())
    }
}

impl<'a> Checker<'a> {
    fn new(mut core: Core, f: Findings, progress: Progress<'a>) -> Checker<'a> {
        core.stay();
        core.cache.limit_clean();
        core.opts.relocate = false;
        Checker {
            core,
            f,
            progress,
            recs: Forest::default(),
            owned: Owned::default(),
            mends: Vec::new(),
            window: contents::Window::default(),
            contents_sound: false,
            lost_found: 0,
            super_damaged: false,
            anew: None,
            lost_map: Vec::new(),
        }
    }
}

impl Concluded for Checker<'_> {
    const RECOVERS_FIRST: bool = false;

    /// Writes the repairs, and marks the volume.
    fn write(&mut self, mended: bool) -> Result<()> {
        if self.f.is_empty() && self.core.checkpoint.clean.get() != 0 {
            return Ok(());
        }
        if self.core.log.seg == self.core.log.next_seg {
            return Err(Error::refused("no segment of the log is without live blocks: nothing was written"));
        }
        if self.super_damaged {
            arbor_kit::head::write(&*self.core.dev, 0, &self.core.sb)?;
            self.core.flush()?;
        }
        if self.super_damaged || self.core.copy_differs()? {
            self.core.write_copy()?;
        }
        self.core.begin()?;
        self.core.write_checkpoint(mended)
    }

    fn counts(&self) -> CheckReport {
        let heads = u64::from(FIRST + self.core.geom.heads);
        let blocks = heads + self.owned.data.len() + self.owned.summaries;
        let live: u64 = self.owned.live.values().map(|bytes| u64::from(*bytes)).sum();
        CheckReport {
            files: self.recs.there().count() as u64,
            directories: self.recs.dirs().len() as u64,
            used_bytes: (blocks << self.core.geom.block_shift) + live,
            ..CheckReport::default()
        }
    }
}
