//! The checker (fsck): finds what breaks the invariants, and mends it.
//!
//! | phase | file | what |
//! |---|---|---|
//! | superblock, log | `start.rs` | from a copy if need be; replay in place, or in memory without repair |
//! | AGs | `groups.rs` | headers, trees of inode chunks; a lost tree is replaced by a scan for chunks |
//! | inodes | `inodes.rs`, `salvage.rs` | every inode, its map, attributes; each fragment gets its one owner (YFS-A1) |
//! | lost blocks | `strays.rs` | blocks of directories and trees that nothing leads to go back to their owner |
//! | directories | `dirs.rs` | entries, order, names, targets (YFS-D1) |
//! | connectivity | `links.rs` | parents, loops, what has no name, link counts, recovery lists (YFS-I1) |
//! | rebuilding | `edit.rs` | trees and directories that lost something, in new blocks |
//! | counts | `groups.rs` | bitmaps and all counters (YFS-A2), superblock copies |
//! | sentences | `issue.rs`, `names.rs` | what was found, with the paths it concerns |
//!
//! In memory are a bitmap of the fragments in use, 32 bytes for each inode, and 16 bytes for each name of the directory
//! that is being read; of a directory that is written afresh all names.
//!
//! What can be mended in its place is mended when found. What needs new blocks waits until every fragment has its
//! owner; the new blocks become durable before anything names them, and the bitmaps come last. So a checker that is
//! killed leaves nothing that the next cannot mend: what it has written are corrections that hold by themselves.
//!
//! Nothing read is trusted: addresses are checked against the AGs in use, each walk claims the nodes it visits and so
//! ends, sizes are bounded by the volume.

mod dirs;
mod edit;
mod groups;
mod inodes;
pub(crate) mod issue;
mod links;
mod names;
mod path;
mod salvage;
mod space;
mod start;
mod strays;
pub(crate) mod tree;
pub(crate) mod view;

use crate::format::*;
use crate::planted::{Flaw, planted};
use crate::superblock;
use arbor_base::device::{Device, Kind};
use arbor_base::vfs::{CheckOptions, CheckReport, Devices, Progress, Repair, Result};
use arbor_kit::forest::{DIR_KIND, Forest, Record};
use arbor_kit::paths::paths;
pub(crate) use issue::Issue;
use issue::Paths;
pub(crate) use path::check_path;
pub(crate) use start::{copy_places, search};
use std::collections::{BTreeMap, BTreeSet};
use view::{RawInode, Reader};

/// What was found and what is done about it.
type Findings = arbor_kit::findings::Findings<Issue>;

/// The record of an inode in use. Its parent is the one that it names, later the one that was found.
type Rec = Record<u64>;

fn record(i: &RawInode) -> Rec {
    Rec { ino: i.ino, parent: i.d.parent.get(), stored: i.d.nlink.get(), kind: i.kind(), ..Rec::default() }
}

/// An inode chunk and its mask of free inodes.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    start: u64,
    mask: u64,
}

/// An AG in use.
#[derive(Default)]
struct Group {
    /// Ascending.
    chunks: Vec<Chunk>,
    /// Nodes of the chunk tree that was read.
    nodes: Vec<Frag>,
    /// The chunk tree must be built afresh.
    rebuild: bool,
    /// The inode block is lost.
    lost: bool,
    /// The inode recovery list as read, then as it must be.
    recovery: Vec<u64>,
    /// Head of the list on disk.
    head: u64,
    relink: bool,
    dirs: u32,
}

/// Changes that wait until every fragment has its owner.
#[derive(Default)]
struct Edit {
    /// The directory must be rebuilt.
    rebuild: bool,
    /// Fragments that its tree and blocks own; `None` if its walk finds them without damage.
    owned: Option<Vec<(Frag, u32)>>,
    /// Its blocks that its tree does not point to.
    found: Vec<Frag>,
    /// Entries to take out, by the inode they name.
    remove: Vec<u64>,
    /// Entries to take out, by name.
    drop: Vec<Vec<u8>>,
    /// Entries to put in: name, inode, kind.
    add: Vec<(Vec<u8>, u64, u8)>,
}

/// A file whose map lost something.
struct MapEdit {
    ino: u64,
    records: Vec<tree::Record>,
    nodes: Vec<Frag>,
}

struct Checker<'a> {
    r: Reader<'a>,
    log: Option<&'a dyn Device>,
    f: Findings,
    progress: Progress<'a>,
    space: space::Space,
    groups: Vec<Group>,
    recs: Forest<u64>,
    edits: BTreeMap<u64, Edit>,
    maps: Vec<MapEdit>,
    /// Inodes that were in use and are lost.
    gone: BTreeSet<u64>,
    /// Directories made again that are not written yet.
    fresh: BTreeMap<u64, RawInode>,
    /// Directory blocks that belong to no directory.
    strays: Vec<Frag>,
    /// Names in them.
    stray_names: BTreeMap<u64, Vec<u8>>,
    /// Blocks that were replaced and keep their contents.
    retired: Vec<(Frag, u32)>,
    lost_found: u64,
    /// Entries of directories read so far.
    names: u64,
    /// Something was written to the device.
    touched: bool,
}

/// Checks a volume, and repairs it if told to.
pub(crate) fn check(devices: Devices, options: &CheckOptions, progress: Progress<'_>) -> Result<CheckReport> {
    let mut f = Findings::new(options.repair);
    let started = start::start(&devices, options, &mut f)?;
    let Some((r, log)) = started else { return Ok(f.finish(&Paths::new())) };
    let mut c = Checker::new(r, log, f, progress);
    c.run()?;
    let named = c.f.take_named();
    let paths = paths(&mut c, named)?;
    Ok(c.f.finish(&paths))
}

impl<'a> Checker<'a> {
    fn new(r: Reader<'a>, log: Option<&'a dyn Device>, f: Findings, progress: Progress<'a>) -> Checker<'a> {
        Checker {
            space: space::Space::new(&r),
            r,
            log,
            f,
            progress,
            groups: Vec::new(),
            recs: Forest::default(),
            edits: BTreeMap::new(),
            maps: Vec::new(),
            gone: BTreeSet::new(),
            fresh: BTreeMap::new(),
            strays: Vec::new(),
            stray_names: BTreeMap::new(),
            retired: Vec::new(),
            lost_found: 0,
            names: 0,
            touched: false,
        }
    }
}

impl Checker<'_> {
    fn run(&mut self) -> Result<()> {
        self.read_groups()?;
        self.read_inodes()?;
        self.adopt()?;
        self.read_recovery_lists()?;
        self.find_root()?;
        self.read_dirs()?;
        self.connect()?;
        self.rebuild()?;
        self.fix_links()?;
        self.fix_recovery_lists()?;
        self.fix_groups()?;
        self.check_copies()?;
        self.count();
        self.finish()
    }

    fn count(&mut self) {
        let (geom, sb) = (&self.r.geom, &self.r.sb);
        self.f.report.files = self.recs.len() as u64;
        self.f.report.directories = self.recs.dirs().len() as u64;
        let mut frags: u64 = (0..self.r.ags()).map(|ag| u64::from(self.space.used(ag))).sum();
        if let Some((start, len)) = self.r.log_run().filter(|(s, _)| geom.ag_of(*s) >= sb.ag_used.get()) {
            frags += u64::from(len.min(geom.ag_len(geom.ag_of(start))));
        }
        self.f.report.used_bytes = frags.saturating_mul(geom.frag_size());
    }

    /// Makes everything durable, then marks the volume clean.
    fn finish(&mut self) -> Result<()> {
        if self.touched && !planted(Flaw::MendedTooEarly) {
            self.flush()?;
        }
        if std::mem::take(&mut self.r.log_stays) {
            let log: &dyn Device = self.log.unwrap_or(&self.r.view);
            start::empty_log(&self.r.view, log, &mut self.r.sb, &self.r.geom)?;
        }
        if self.f.mode != Repair::No && !self.f.open() && self.r.sb.clean.get() == 0 {
            self.r.sb.clean = 1.into();
            superblock::write(&self.r.view, 0, &self.r.sb)?;
            self.flush()?;
        }
        Ok(())
    }

    fn report(&mut self, done: u64, total: u64, what: &str) {
        (self.progress)(done, total, what);
    }

    /// Writes to the device. Before the first write to a clean volume, its log is emptied and its mark removed, so that
    /// no mount replays old records over the repair.
    fn write(&mut self, kind: Kind, at: u64, bytes: &[u8]) -> Result<()> {
        if !self.touched && self.r.sb.clean.get() != 0 {
            let log: &dyn Device = self.log.unwrap_or(&self.r.view);
            start::empty_log(&self.r.view, log, &mut self.r.sb, &self.r.geom)?;
            self.r.sb.clean = 0.into();
            superblock::write(&self.r.view, 0, &self.r.sb)?;
            self.flush()?;
        }
        self.touched = true;
        Ok(self.r.view.write_at(kind, at, bytes)?)
    }

    fn flush(&self) -> Result<()> {
        Ok(self.r.view.flush()?)
    }

    /// Writes a metadata block with its checksum.
    fn write_block(&mut self, kind: BlockType, addr: Daddr, mut bytes: Vec<u8>) -> Result<()> {
        Seal::Block.seal(&mut bytes, self.r.geom.inode_size());
        self.write(view::request_kind(kind), addr.byte(), &bytes)
    }

    /// Writes an inode with its checksum.
    fn write_inode(&mut self, i: &RawInode) -> Result<()> {
        let mut bytes = i.bytes.clone();
        if let Some(head) = bytes.get_mut(..DINODE) {
            head.copy_from_slice(zerocopy::IntoBytes::as_bytes(&i.d));
        }
        Seal::Inodes.seal(&mut bytes, self.r.geom.inode_size());
        self.write(Kind::Inode, i.ino.saturating_mul(SECTOR), &bytes)
    }

    /// AG of an inode.
    fn inode_ag(&self, ino: u64) -> u32 {
        self.r.geom.ag_of(self.r.geom.frag_of(Daddr(ino)))
    }
}
