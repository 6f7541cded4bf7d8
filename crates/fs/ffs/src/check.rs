//! The checker (fsck) after McKusick, "Fsck - The UNIX File System Check Program": finds damage and mends it.
//!
//! | phase | file | what |
//! |---|---|---|
//! | superblock, journal | `start.rs` | from a copy if need be |
//! | 1 blocks and sizes | `inodes.rs`, `mend.rs`, `blocks.rs` | every inode; each fragment gets its one owner |
//! | 2 path names | `dirs.rs` | chunks, names, what entries name |
//! | 3 connectivity | `links.rs` | directories that cannot be reached from the root, loops |
//! | 4 reference counts | `links.rs` | link counts, inodes without names, the list of these |
//! | 5 cylinder groups | `groups.rs` | bitmaps, counts, summary area, superblock copies |
//! | new blocks, entries | `edit.rs` | lost+found, the root, blocks for holes in directories |
//! | sentences | `issue.rs`, `kit::paths` | the issues found, with the paths they concern |
//!
//! A pass changes a view in memory only (`view.rs`); passes follow one another until one finds nothing, and the issues
//! found decide whether the changes are written. So checking and repairing are the same work, and a repair that cannot
//! succeed writes nothing.
//!
//! A repair writes in stages, each durable before the next: blocks that were free, blocks in use, inodes, bitmaps, the
//! summary area, at last the mark that the volume is clean. Before all of it the superblock records an ordering that
//! fits a half-mended volume (`keeping_meanwhile`), and an empty orphan list. Should the power fail, remaining damage
//! is mended by the checker, and the remains of a crash by the next mount; both put the same inodes into `lost+found`.
//!
//! Memory: up to three bits for each fragment, in pages that exist only where a bit is set; 24 bytes for each inode in
//! use; the names of the directory that is being read; and the sectors to be written.

mod blocks;
mod dirs;
mod edit;
mod groups;
mod inodes;
mod issue;
mod links;
mod mend;
mod path;
mod space;
mod start;
pub(crate) mod view;

pub(crate) use blocks::{Piece, Slot};
pub(crate) use issue::Issue;
pub(crate) use path::check_path;
pub(crate) use start::search;

use crate::format::*;
use crate::planted::{Flaw, planted};
use crate::superblock;
use arbor_base::device::Kind;
use arbor_base::layout::crc;
use arbor_base::vfs::{CheckOptions, CheckReport, Devices, Progress, Repair, Result};
use arbor_kit::findings::{self, Repairs};
use arbor_kit::forest::Forest;
use arbor_kit::paths::paths;
use arbor_kit::treecheck::TreeCheck as _;
use std::collections::BTreeSet;
use view::{Reader, Stage, View};

/// The issues found.
type Findings = findings::Findings<Issue>;

struct Checker<'a> {
    r: Reader<'a>,
    f: Findings,
    progress: Progress<'a>,
    space: space::Space,
    /// Inodes in use, ascending.
    recs: Forest<u32, u32>,
    /// For each group, the number of initialised inodes from the start of its table.
    inited: Vec<u32>,
    /// Pointers to fragments that had an owner already: the inode that loses it, the fragment.
    twice: Vec<(u64, u32)>,
    /// Entries that name nothing, with the directory of each.
    dangling: Vec<(u32, Issue)>,
    /// The counts of the cylinder groups, as the summary area should have them.
    sums: Vec<u8>,
    /// The summary area as it was found.
    old_sums: Vec<u8>,
    lost_found: u32,
    /// Blocks from the start of a directory that have no room for another entry.
    full: (u32, u64),
    /// Inodes that this pass allocated or cleared: that the bitmaps differ for them is no issue.
    touched: BTreeSet<u32>,
    /// The superblock must be written.
    super_changed: bool,
    /// The journal has damaged transactions.
    has_gaps: bool,
    /// Made when the first damaged inode is met.
    syndromes: Option<mend::Syndromes>,
}

/// Checks a volume, and repairs it if told to.
pub(crate) fn check(devices: Devices, options: &CheckOptions, progress: Progress<'_>) -> Result<CheckReport> {
    let dev = &*devices.main;
    let mut f = Findings::new(Repair::No);
    let found = match start::superblock(dev)? {
        Ok(found) => found,
        Err(lost) => return Ok(f.end(lost)),
    };
    let write = options.repair != Repair::No;
    arbor_kit::head::refuse_unknown(&found.sb, KNOWN, write)?;
    if found.sb.clean.get() == UNMOUNTED && !options.force {
        return Ok(CheckReport { skipped: true, ..CheckReport::default() });
    }
    f.volume.was_clean = found.sb.clean.get() != 0;
    let mut r = Reader { view: View::new(dev), sb: found.sb, geom: found.geom };
    let super_changed = found.damage.is_some();
    let unclean = !f.volume.was_clean && !super_changed;
    let (replayed, gaps) = start::journal_view(&mut r, options.repair, super_changed)?;
    let has_gaps = !gaps.is_empty();
    let replayed = replayed && write && !has_gaps;
    let was_clean = f.volume.was_clean;
    f.volume.keeping = Keeping::from_number(r.sb.keeping.get()).unwrap_or_default();
    found.damage.into_iter().chain(gaps).for_each(|issue| f.note(issue));
    let mut c = Checker { super_changed, has_gaps, ..Checker::new(r, f, progress) };
    let repaired = c.run(options.repair)?;
    let named = c.f.take_named();
    let paths = paths(&mut c, named)?;
    if repaired {
        c.f.mended();
    }
    // A volume that was not unmounted can be mounted now, journal or not.
    let recovered = replayed || repaired && !was_clean;
    c.f.report = CheckReport { recovered, unclean, ..c.counts() };
    Ok(c.f.finish(&paths))
}

impl<'a> Checker<'a> {
    fn new(r: Reader<'a>, f: Findings, progress: Progress<'a>) -> Checker<'a> {
        Checker {
            space: space::Space::new(&r),
            r,
            f,
            progress,
            recs: Forest::default(),
            inited: Vec::new(),
            twice: Vec::new(),
            dangling: Vec::new(),
            sums: Vec::new(),
            old_sums: Vec::new(),
            lost_found: 0,
            full: (0, 0),
            touched: BTreeSet::new(),
            super_changed: false,
            has_gaps: false,
            syndromes: None,
        }
    }
}

impl Repairs for Checker<'_> {
    type Issue = Issue;

    fn findings(&mut self) -> &mut Findings {
        &mut self.f
    }

    fn pass(&mut self) -> Result<()> {
        self.space.begin(&self.r);
        (self.recs, self.twice) = Default::default();
        self.lost_found = 0;
        self.full = (0, 0);
        self.touched.clear();
        self.check_journal()?;
        self.read_inodes()?;
        self.report_twice()?;
        self.check_orphans()?;
        self.find_root()?;
        self.read_dirs()?;
        self.connect()?;
        (self.progress)(1, 2, "links");
        self.count_links()?;
        self.check_groups()?;
        self.check_copies()?;
        self.check_summary()
    }
}

impl Checker<'_> {
    /// Runs passes until one finds nothing, then writes. Returns whether everything found was mended.
    fn run(&mut self, repair: Repair) -> Result<bool> {
        let Some(mended) = findings::repair(self, repair)? else { return Ok(false) };
        self.write(mended)?;
        Ok(mended)
    }

    /// Writes the changes of the passes, then the superblock of a clean volume.
    fn write(&mut self, mended: bool) -> Result<()> {
        let sb = self.r.sb;
        if self.r.view.changed() || self.super_changed {
            let keeping = (self.keeping_meanwhile() as u32).into();
            let marked = SuperBlock { clean: 0.into(), keeping, ..sb };
            self.write_super(marked)?;
        } else if sb.clean.get() == UNMOUNTED {
            return Ok(());
        }
        self.r.view.commit()?;
        // What could not be mended keeps nobody from the rest.
        let clean = if mended { UNMOUNTED } else { DAMAGE_MET };
        let summary_crc = crc(&self.sums).into();
        self.write_super(SuperBlock { clean: clean.into(), orphan: 0.into(), summary_crc, ..sb })
    }

    /// The ordering that the superblock of a half-mended volume records. The journal is empty by now, and does not hold
    /// the changes of the repair: those look like remains of synchronous writes, for which mount runs the checker.
    fn keeping_meanwhile(&self) -> Keeping {
        let reconnects = self.reconnects();
        match self.f.volume.keeping {
            // A mount refuses what its journal holds, until that is emptied at last.
            Keeping::Journal if self.has_gaps => Keeping::Journal,
            _ if self.f.volume.damaged || reconnects && planted(Flaw::MendingUnordered) => Keeping::Async,
            Keeping::SoftUpdates | Keeping::Journal if reconnects => Keeping::Sync,
            kept => kept,
        }
    }

    fn write_super(&mut self, sb: SuperBlock) -> Result<()> {
        superblock::write(self.r.view.dev, 0, &sb)?;
        Ok(self.r.view.dev.flush()?)
    }

    fn counts(&self) -> CheckReport {
        CheckReport {
            files: self.recs.there().count() as u64,
            directories: self.recs.dirs().len() as u64,
            used_bytes: self.space.used().saturating_mul(self.r.geom.frag_size() as u64),
            ..CheckReport::default()
        }
    }

    /// The inode, if it is in use.
    fn inode(&self, ino: u32) -> Result<Option<Dinode>> {
        Ok(self.r.inode(ino.into())?.and_then(|d| d.ok()).filter(Dinode::in_use))
    }

    fn byte(&self, frag: Frag) -> u64 {
        self.r.geom.byte(frag)
    }

    /// Changes a block in use.
    fn put_block(&mut self, kind: Kind, frag: Frag, bytes: &[u8]) -> Result<()> {
        // Blocks that were free when this run began are durable before anything points to them.
        let stage = if self.space.is_fresh(frag) { Stage::Fresh } else { Stage::Blocks };
        self.r.view.write(stage, kind, self.r.geom.byte(frag), bytes)
    }
}
