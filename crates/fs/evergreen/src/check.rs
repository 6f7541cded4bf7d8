//! The checker (fsck): finds what is wrong, and mends it.
//!
//! | phase | file | what |
//! |---|---|---|
//! | superblock, master block | `start.rs` | from the copy if need be; what was overwritten and is not in place yet |
//! | 1 inodes | `inodes.rs` | each by itself, its blocks and attributes; each block gets its one owner (EVERGREEN-A1) |
//! | 2 space | `space.rs` | bitmaps and counts |
//! | 3 names | `names.rs` | chunks, names, what the root leads to, link counts (`kit::treecheck`); lost+found |
//!
//! The checker works on the state in core as a mount does, with the same functions. Nothing is changed before all owners are
//! known: what is in use is not given away whatever the bitmaps say. Passes follow one another until one finds nothing; only
//! then it is written, as one commit, so that a repair that is cut off has done nothing or all.

mod inodes;
mod issue;
mod names;
mod space;
mod start;

pub(crate) use issue::Issue;
pub(crate) use names::check_path;
pub(crate) use start::search;

use crate::format::*;
use crate::space::Lost;
use crate::volume::Core;
use arbor_base::vfs::{CheckOptions, CheckReport, Devices, Progress, Result};
use arbor_kit::calls::State as _;
use arbor_kit::conclude::Concluded;
use arbor_kit::findings::{self, Repairs};
use arbor_kit::forest::Forest;
use arbor_kit::pagecheck::PageCheck as _;
use arbor_kit::runs::Runs;
use arbor_kit::treecheck::TreeCheck as _;

/// What was found.
type Findings = findings::Findings<Issue>;

struct Checker<'a> {
    core: Core,
    f: Findings,
    progress: Progress<'a>,
    /// Inodes in use, ascending.
    recs: Forest<u32, u32>,
    /// Blocks with an owner.
    owned: Runs,
    mends: Vec<inodes::Mend>,
    /// Blocks of the ifile and the bitmaps that are made anew.
    lost: Vec<Lost>,
    lost_found: u32,
    /// The superblock is not as it should be, or its copy.
    super_damaged: bool,
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
        (self.recs, self.lost_found) = (Forest::default(), 0);
        self.owned.clear();
        self.check_copy()?;
        self.read_inodes()?;
        self.check_space()?;
        self.mend_inodes()?;
        self.check_orphans()?;
        self.root()?;
        self.read_dirs()?;
        self.connect()
    }
}

impl<'a> Checker<'a> {
    fn new(mut core: Core, f: Findings, progress: Progress<'a>) -> Checker<'a> {
        core.stay();
        core.cache.limit_clean();
        let (recs, owned) = (Forest::default(), Runs::default());
        Checker {
            core,
            f,
            progress,
            recs,
            owned,
            mends: Vec::new(),
            lost: Vec::new(),
            lost_found: 0,
            super_damaged: false,
        }
    }
}

impl Concluded for Checker<'_> {
    const RECOVERS_FIRST: bool = true;

    /// Commits the repairs, and marks the volume.
    fn write(&mut self, mended: bool) -> Result<()> {
        let dirty = self.core.changes.master || !self.core.changes.parts.is_empty();
        let clean = match self.core.sb.clean.get() {
            _ if mended => UNMOUNTED,
            UNORDERED => UNORDERED,
            _ => IN_USE,
        };
        if !dirty && !self.super_damaged && self.core.sb.clean.get() == clean {
            return Ok(());
        }
        if self.core.sb.is_clean() {
            self.core.begin()?;
        }
        self.core.write_at_rest()?;
        self.core.write_super_copy()?;
        (self.core.sb.clean, self.core.sb.master) = (clean.into(), self.core.master_at.into());
        self.core.write_super()
    }

    fn counts(&self) -> CheckReport {
        let own = u64::from(self.core.geom.blocks - self.core.geom.space());
        CheckReport {
            files: self.recs.there().count() as u64,
            directories: self.recs.dirs().len() as u64,
            used_bytes: (own + self.owned.len()) << BLOCK_SHIFT,
            ..CheckReport::default()
        }
    }
}
