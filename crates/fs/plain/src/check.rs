//! The checker (fsck): finds what is wrong, and mends it.
//!
//! | phase | file | what |
//! |---|---|---|
//! | superblock | `start.rs` | from the log or the copy if need be |
//! | 1 inodes | `inodes.rs` | each by itself, its blocks and attributes; each block gets its one owner (PLAIN-A1) |
//! | 2 space | `space.rs` | bitmaps and counts (PLAIN-A2) |
//! | 3 names | `dirs.rs` | chunks, names, what the root leads to, link counts (`kit::treecheck`); lost+found |
//! | sentences | `issue.rs`, `path.rs` | what was found, with the paths it concerns |
//!
//! The checker works on the state in core as a mount does, with the same functions, and what it mends stays in the
//! cache. Passes follow one another until one finds nothing; only then it is written, as a record if it fits one, so
//! that a repair that is cut off has done nothing or all. Without repair nothing is written, and one pass is enough.

mod dirs;
mod inodes;
mod issue;
mod space;
mod start;

pub(crate) use dirs::check_path;
pub(crate) use issue::Issue;
pub(crate) use start::search;

use crate::format::*;
use crate::volume::Core;
use arbor_base::device::Kind;
use arbor_base::vfs::{CheckOptions, CheckReport, Devices, Progress, Repair, Result};
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
    /// The superblock as it was read.
    found: SuperBlock,
    f: Findings,
    progress: Progress<'a>,
    /// Inodes in use, ascending.
    recs: Forest<u32, u32>,
    /// Blocks with an owner, counted from the first of the data area.
    owned: Runs,
    lost_found: u32,
}

/// Checks a volume, and repairs it if told to.
pub(crate) fn check(devices: Devices, options: &CheckOptions, progress: Progress<'_>) -> Result<CheckReport> {
    match start::open(&devices, options.repair != Repair::No, progress)? {
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
        self.check_orphans()?;
        self.check_space()?;
        self.root()?;
        self.read_dirs()?;
        self.connect()
    }
}

impl<'a> Checker<'a> {
    fn new(mut core: Core, f: Findings, progress: Progress<'a>) -> Checker<'a> {
        core.stay();
        core.cache.limit_clean();
        core.log.is_repair = true;
        let found = core.sb;
        Checker { core, found, f, progress, recs: Forest::default(), owned: Runs::default(), lost_found: 0 }
    }
}

impl Concluded for Checker<'_> {
    const RECOVERS_FIRST: bool = true;

    /// Writes the repairs. The log of a clean volume is not replayed: before its first change the log is emptied, and
    /// the mark removed.
    fn write(&mut self, mended: bool) -> Result<()> {
        let clean = u32::from(mended);
        let changed = !self.core.log.changed.is_empty() || self.core.log.super_changed;
        if !changed && self.core.sb.clean.get() == clean {
            return Ok(());
        }
        if self.found.clean.get() != 0 {
            let (dev, geom) = (self.core.dev.clone(), self.core.geom);
            for half in 0..2 {
                dev.write_at(Kind::Log, byte(geom.half(half).0), &[0; BLOCK])?;
            }
            dev.flush()?;
            dev.write_at(Kind::Super, 0, &arbor_kit::head::encode(&SuperBlock { clean: 0.into(), ..self.found }))?;
            dev.flush()?;
        }
        self.core.write_marked(clean)
    }

    fn counts(&self) -> CheckReport {
        let own = u64::from(self.core.geom.blocks - self.core.geom.space);
        CheckReport {
            files: self.recs.there().count() as u64,
            directories: self.recs.dirs().len() as u64,
            used_bytes: (own + self.owned.len()) << BLOCK_SHIFT,
            ..CheckReport::default()
        }
    }
}
