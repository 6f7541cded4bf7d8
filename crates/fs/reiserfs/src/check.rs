//! The checker (fsck): finds what is wrong, and mends it.
//!
//! | phase | file | what |
//! |---|---|---|
//! | superblock, log | `start.rs` | from the log or the copy if need be |
//! | 1 tree | `tree.rs` | every node, and the order of all keys; if one cannot be used the tree is built anew (`rebuild.rs`) from the formatted nodes |
//! | 2 objects | `objects.rs` | each by itself, its body and attributes; each block gets its one owner (REISER-A1) |
//! | 3 space | `space.rs`, `numbers.rs` | bitmaps, counts, numbers of objects |
//! | 4 names | `names.rs` | entries, what the root leads to, link counts (`kit::treecheck`); lost+found |
//! | sentences | `issue.rs`, `path.rs` | what was found, with the paths it concerns |
//!
//! The checker works on the state in core as a mount does, with the same functions, and what it mends stays in the
//! cache. Passes follow one another until one finds nothing; only then it is written, as one record if the log has room for
//! it, so that a repair that is cut off has done nothing or all. Without repair nothing is written, and one pass is enough.

mod issue;
mod names;
mod numbers;
mod objects;
mod path;
mod rebuild;
mod space;
mod start;
mod tree;

pub(crate) use issue::Issue;
pub(crate) use path::check_path;
pub(crate) use start::search;

use crate::format::*;
use crate::item::Item;
use crate::recover::{self, Found};
use crate::volume::Core;
use arbor_base::vfs::{CheckOptions, CheckReport, Devices, Ino, Progress, Repair, Result};
use arbor_kit::calls::State as _;
use arbor_kit::conclude::Concluded;
use arbor_kit::findings::{self, Repairs};
use arbor_kit::forest::Forest;
use arbor_kit::runs::Runs;
use arbor_kit::treecheck::TreeCheck as _;

/// What was found.
type Findings = findings::Findings<Issue>;

/// A change of the tree that waits until all of it was read.
#[derive(Clone, Debug)]
enum Mend {
    /// Removes units whose keys are in a range.
    Cut(Key, Key),
    /// Makes a pointer lead to nothing.
    Unpoint(Key),
    /// Notes how many bytes are in use in the unformatted node of a pointer.
    Used(Key, u16),
    /// Inserts an item.
    Insert(Item),
    /// Changes stat data.
    Stat(Ino, Box<StatData>),
}

struct Checker<'a> {
    core: Core,
    f: Findings,
    progress: Progress<'a>,
    /// Objects, ascending.
    recs: Forest<u64, u64>,
    /// Blocks that are nodes of the tree, and unformatted ones.
    nodes: Runs,
    data: Runs,
    mends: Vec<Mend>,
    lost_found: u64,
    /// What the log holds, which is written in place with the repairs.
    found: Found,
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
        self.lost_found = 0;
        self.check_copy()?;
        self.read_tree()?;
        self.check_orphans()?;
        self.check_space()?;
        self.check_ids();
        self.mend()?;
        self.part_numbers()?;
        self.find_root()?;
        self.read_names()?;
        self.connect()
    }
}

impl<'a> Checker<'a> {
    fn new(mut core: Core, f: Findings, progress: Progress<'a>) -> Checker<'a> {
        core.stay();
        core.cache.keep_all(false);
        let (recs, nodes, data) = (Forest::default(), Runs::default(), Runs::default());
        core.log.is_repair = true;
        Checker { core, f, progress, recs, nodes, data, mends: Vec::new(), lost_found: 0, found: Found::default() }
    }

    /// What a mount does with the log.
    fn recover(&mut self) -> Result<()> {
        if !self.found.gaps.is_empty() {
            // The log stays until all is mended: a mount refuses what is half mended.
            return recover::write_copies(&*self.core.dev, &self.core.geom, &self.found);
        }
        if self.found.records > 0 {
            self.core.replay(&self.found)?;
            self.core.log.copies.clear();
        }
        if self.found.is_new || self.found.records == 0 && self.found.heads.is_torn {
            self.core.write_log_head()?;
            self.core.write_log_head()?;
        }
        Ok(())
    }

    fn empty_log(&mut self) -> Result<()> {
        self.core.log.seq = self.found.above(self.core.log.seq);
        self.core.empty_log()
    }
}

impl Concluded for Checker<'_> {
    const RECOVERS_FIRST: bool = false;

    /// Writes the repairs.
    fn write(&mut self, mended: bool) -> Result<()> {
        self.recover()?;
        let marked = |sb: SuperBlock, unmounted| SuperBlock { clean: 0.into(), ..sb }.marked(unmounted, !mended);
        if !self.found.gaps.is_empty() {
            // Only what is mended and durable in place is said to be unmounted.
            self.core.sb = marked(self.core.sb, false);
            self.core.touch_super();
            self.core.commit_repair()?;
            self.empty_log()?;
            self.core.touch_super();
        }
        let marked = marked(self.core.sb, true);
        let changed = self.core.log.super_changed || !self.core.log.changed.is_empty();
        if !changed && self.core.sb == marked {
            return Ok(());
        }
        self.core.sb = marked;
        self.core.touch_super();
        self.core.commit_repair()?;
        self.empty_log()
    }

    fn counts(&self) -> CheckReport {
        let g = self.core.geom;
        CheckReport {
            files: self.recs.there().count() as u64,
            directories: self.recs.dirs().len() as u64,
            used_bytes: (u64::from(g.own_blocks()) + self.nodes.len() + self.data.len()) * g.node_size as u64,
            ..CheckReport::default()
        }
    }
}
