//! The checker (fsck): finds what is wrong, and repairs it.
//!
//! | phase | file | what |
//! |---|---|---|
//! | superblock, checkpoints, ifile | `start.rs`, `log.rs` | from a copy, the older checkpoint, or the summaries if need be |
//! | inodes | `inodes.rs` | every inode and its blocks; each fragment gets its one owner |
//! | counts | `counts.rs` | free inodes, inodes without names, fragments of files |
//! | names | `dirs.rs` | chunks, names, what entries name |
//! | links | `links.rs` | directories not connected to the root, link counts, lost+found |
//! | segments | `segments.rs`, `space.rs` | the usage table; live blocks against their checksums and the summaries |
//! | sentences | `issue.rs`, `kit::paths` | what was found, with the paths it concerns |
//! | one path | `path.rs` | the same for one file and those above it |
//!
//! A pass changes the core only, as calls do; passes follow one another until one finds nothing, and the findings
//! decide whether anything is written. So checking and repairing are the same work. A repair writes a group and a
//! checkpoint: until that is there, the volume is what it was.
//!
//! In memory are, of segments with live blocks, three bits for each fragment and some 50 bytes each; 24 bytes for each
//! inode in use; the names of the directory that is being read; and what is going to be written: live blocks of
//! segments whose summaries are damaged are among that, so a repair of many such segments takes as much memory as they
//! hold live bytes. Fragments that two inodes claim take some bytes each.

mod counts;
mod dirs;
mod inodes;
mod issue;
mod links;
mod log;
mod path;
mod segments;
mod space;
mod start;

pub(crate) use issue::Issue;
pub(crate) use path::check_path;
pub(crate) use start::search;

use crate::format::*;
use crate::superblock;
use crate::volume::Core;
use arbor_base::device::Kind;
use arbor_base::vfs::{CheckOptions, CheckReport, Devices, Errno, Error, Ino, Progress, Repair, Result};
use arbor_kit::findings::{Pass, Passes};
use arbor_kit::forest::Forest;
use arbor_kit::lifetimes;
use arbor_kit::paths::paths;
use arbor_kit::treecheck::TreeCheck as _;
use issue::TreeIssue;
use rustc_hash::FxHashSet;
use std::collections::{BTreeMap, BTreeSet};
use zerocopy::IntoBytes;

/// Most passes of a check.
const PASSES: usize = 12;
/// What was found.
type Findings = arbor_kit::findings::Findings<Issue>;

struct Checker<'a> {
    core: Core,
    sb: SuperBlock,
    f: Findings,
    progress: Progress<'a>,
    space: space::Space,
    /// Inodes in use, ascending.
    recs: Forest<u32, u32>,
    /// Inodes that cannot be read, and why.
    damaged: Vec<(u32, String)>,
    /// Inodes on the list of those without names, as far as it can be followed.
    listed: FxHashSet<u32>,
    lost_found: u32,
    /// Something was cut off or freed in this run: wrong counts follow from that.
    reshaped: bool,
    /// Every block is read: older states of inodes are used.
    wary: bool,
    /// Segments whose blocks are read one by one, and the sum of the prints of what points there.
    suspects: BTreeMap<u32, u64>,
    /// A further pass has to check segments.
    again: bool,
    /// Fragments that two inodes claimed. The next claimant must be the owner by checksum and summary.
    contested: FxHashSet<u32>,
    /// Some of them were found in this pass.
    undecided: bool,
    /// The owners, by its summaries, of the segment that was asked about last.
    owners: Option<(Seg, inodes::Owners)>,
    /// Fragments that inodes count.
    frags: u64,
    /// Segments whose live blocks are all to be written elsewhere.
    leaving: BTreeSet<u32>,
    /// The superblock, or its copy, is to be written.
    super_changed: bool,
    was_clean: bool,
    /// The issue that a clean volume has inodes without names was noted.
    orphans_told: bool,
}

/// Checks a volume, and repairs it if told to.
pub(crate) fn check(devices: Devices, options: &CheckOptions, progress: Progress<'_>) -> Result<CheckReport> {
    let write = options.repair != Repair::No;
    let mut f = Findings::new(Repair::No);
    let dev = devices.main;
    let found = match start::superblock(&*dev)? {
        Ok(found) => found,
        Err(lost) => return Ok(f.end(lost)),
    };
    arbor_kit::head::refuse_unknown(&found.sb, KNOWN, write)?;
    if !options.force && start::is_clean(&*dev, &found)? {
        return Ok(CheckReport { skipped: true, ..CheckReport::default() });
    }
    let super_changed = start::note_super(&*dev, &found, &mut f)?;
    let begun = start::begin(dev, &found, &mut f)?;
    let unclean = begun.says_unclean;
    let mut c = Checker { super_changed, wary: begun.rebuilt, ..Checker::new(begun.core, found.sb, f, progress) };
    c.was_clean = !unclean;
    let (mended, wrote) = c.run(options.repair)?;
    let named = c.f.take_named();
    let paths = paths(&mut c, named)?;
    if mended && wrote {
        c.f.mended();
    }
    c.f.report = CheckReport { recovered: mended && wrote && unclean, unclean, ..c.counts() };
    Ok(c.f.finish(&paths))
}

impl<'a> Checker<'a> {
    fn new(core: Core, sb: SuperBlock, f: Findings, progress: Progress<'a>) -> Checker<'a> {
        Checker {
            space: space::Space::new(core.geom, core.segs.count()),
            core,
            sb,
            f,
            progress,
            recs: Forest::default(),
            damaged: Vec::new(),
            listed: FxHashSet::default(),
            lost_found: 0,
            reshaped: false,
            wary: false,
            suspects: BTreeMap::new(),
            again: false,
            contested: FxHashSet::default(),
            undecided: false,
            owners: None,
            frags: 0,
            leaving: BTreeSet::new(),
            super_changed: false,
            was_clean: false,
            orphans_told: false,
        }
    }

    /// Runs passes until one finds nothing, then writes. Returns whether everything found was repaired, and whether
    /// that was written.
    fn run(&mut self, repair: Repair) -> Result<(bool, bool)> {
        self.core.cache.keep_all(true);
        let (mut mended, mut passes) = (false, Passes::default());
        for _ in 0..PASSES {
            passes.skip(&self.f);
            self.pass()?;
            if self.again {
                continue;
            }
            if repair == Repair::No || repair == Repair::Preen && self.f.unsafe_found() {
                return Ok((false, false));
            }
            let pass = passes.end(&self.f);
            mended = pass == Pass::Sound;
            if pass != Pass::News {
                break;
            }
        }
        if repair == Repair::No || repair == Repair::Preen && (self.f.unsafe_found() || !mended) {
            return Ok((false, false));
        }
        let changed = !self.f.is_empty() || self.super_changed;
        if changed || !self.was_clean {
            mended &= self.write(mended)?;
        }
        Ok((mended, true))
    }

    fn pass(&mut self) -> Result<()> {
        self.space.begin();
        (self.recs, self.damaged) = Default::default();
        (self.lost_found, self.frags) = (0, 0);
        self.check_ifile()?;
        self.list_orphans()?;
        self.read_inodes()?;
        if std::mem::take(&mut self.undecided) {
            self.again = true;
            return Ok(());
        }
        self.look_for_older()?;
        self.count_inodes()?;
        self.find_root()?;
        self.read_dirs()?;
        self.connect()?;
        (self.progress)(1, 2, "links");
        self.count_links()?;
        self.check_usage()?;
        self.check_segments()
    }

    /// Lets the cache evict clean buffers.
    fn breathe(&mut self) {
        self.core.cache.keep_all(false);
        self.core.cache.keep_all(true);
    }

    /// Writes the changes of the passes, then what makes the volume clean. Returns whether there was room for it.
    fn write(&mut self, mended: bool) -> Result<bool> {
        if mended {
            self.core.calls.health.damage_repaired();
        } else {
            self.core.calls.health.note_damage();
        }
        if !self.core.log.heads.first().is_some_and(|hot| hot.is_open()) {
            return Ok(false);
        }
        let (wanted, clean) = (self.core.wanted_segs(true), self.core.segs.clean.len());
        if u64::from(wanted) > clean {
            let what = format!("the volume: what is changed takes {wanted} segments, {clean} are clean");
            self.f.note(TreeIssue::NoSpace { what });
            return Ok(false);
        }
        match self.core.begin().and_then(|()| self.finish()) {
            Ok(()) => Ok(true),
            Err(e) if e.errno() == Errno::ENOSPC || self.core.segs.clean.is_empty() => {
                self.f.note(TreeIssue::NoSpace { what: format!("the volume: {e}") });
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }

    /// Frees inodes without names, then writes the superblock, and last the mark that the volume is clean.
    fn finish(&mut self) -> Result<()> {
        self.core.calls.lives.clear_orphans();
        self.core.load_orphans()?;
        while lifetimes::inactivate(&mut self.core)? {}
        if self.super_changed {
            let bytes = superblock::sealed(self.sb.as_bytes());
            self.core.dev.write_at(Kind::Super, self.core.geom.copy_at(), &bytes)?;
            self.core.flush()?;
            self.core.dev.write_at(Kind::Super, 0, &bytes)?;
            self.core.flush()?;
        }
        self.core.end()
    }

    fn counts(&self) -> CheckReport {
        CheckReport {
            files: self.recs.there().count() as u64,
            directories: self.recs.dirs().len() as u64,
            used_bytes: self.space.total(),
            ..CheckReport::default()
        }
    }

    fn byte(&self, frag: u32) -> u64 {
        self.core.geom.byte(Frag(frag))
    }
}

/// Turns damage into words; passes other errors on.
fn words<T>(result: Result<T>) -> Result<std::result::Result<T, String>> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(Error::Corrupt(c)) => Ok(Err(c.to_string())),
        Err(e) => Err(e),
    }
}

/// An inode's number.
fn number(ino: u32) -> Ino {
    Ino(ino.into())
}
