//! The checker: reads all metadata, and compares what is counted twice. It repairs nothing yet but what a mount does.

use crate::file::{Parent, parent};
use crate::format::*;
use crate::inode::Inode;
use crate::mount::{Core, open, read_super};
use crate::{options, superblock};
use arbor_base::device::Device;
use arbor_base::kit::chunkdir::ChunkDirs;
use arbor_base::layout::Access;
use arbor_base::vfs::{
    CheckOptions, CheckReport, Devices, Error, FileType, Ino, Issue, Options, Progress, Repair, Result, Severity, Time,
};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What was found of an inode.
#[derive(Clone, Copy, Debug, Default)]
struct Rec {
    nlink: u32,
    is_dir: bool,
    /// Entries that name it; of a directory, its dot and those of its subdirectories too.
    named: u32,
    kind: u32,
}

struct Checker<'a> {
    core: Core,
    issues: Vec<Issue>,
    progress: Progress<'a>,
    /// One bit for each fragment.
    used: Vec<u64>,
    live: BTreeMap<u32, u64>,
    recs: FxHashMap<u64, Rec>,
    /// Fragments of inodes that were counted.
    file_frags: u64,
}

/// Checks a volume.
pub(crate) fn check(devices: Devices, options: &CheckOptions, progress: Progress<'_>) -> Result<CheckReport> {
    let dev: Arc<dyn Device> = Arc::from(devices.main);
    let sb = read_super(&*dev)?;
    match superblock::features(&sb).access(KNOWN) {
        Access::ReadWrite => {}
        Access::ReadOnly(_) if options.repair == Repair::No => {}
        Access::ReadOnly(bits) | Access::Refused(bits) => {
            return Err(Error::refused(format!("unknown features {bits:#x}")));
        }
    }
    let geom = superblock::geometry(&sb)?;
    let mut core = match open(dev, geom, options::Mount::parse(&Options::default())?, Time::default()) {
        Err(Error::Corrupt(c)) => {
            let issue = Issue { severity: Severity::Fatal, ..issue("Checkpoint", c.to_string(), true) };
            return Ok(CheckReport { issues: vec![issue], ..CheckReport::default() });
        }
        other => other?,
    };
    let unclean = core.checkpoint.clean.get() == 0;
    if !unclean && !options.force {
        return Ok(CheckReport { skipped: true, ..CheckReport::default() });
    }
    core.cache.keep_all(true);
    let words = (u64::from(core.segs.count()) * u64::from(geom.seg_frags())).div_ceil(64) as usize;
    let (issues, used) = (Vec::new(), vec![0; words]);
    let mut c =
        Checker { core, issues, progress, used, live: BTreeMap::new(), recs: FxHashMap::default(), file_frags: 0 };
    c.run()?;
    if unclean && options.repair != Repair::No && c.issues.is_empty() {
        c.core.begin()?;
        c.core.load_orphans()?;
        while c.core.inactivate()? {}
        c.core.end()?;
    }
    let dirs = c.recs.values().filter(|r| r.is_dir).count() as u64;
    Ok(CheckReport {
        issues: c.issues,
        recovered: unclean,
        unclean,
        files: c.recs.len() as u64 - dirs,
        directories: dirs,
        used_bytes: c.core.segs.live,
        ..CheckReport::default()
    })
}

fn issue(code: &'static str, text: String, loses: bool) -> Issue {
    Issue { code, severity: Severity::Error, text, repaired: false, loses }
}

impl Checker<'_> {
    fn note(&mut self, code: &'static str, text: String, loses: bool) {
        self.issues.push(issue(code, text, loses));
    }

    fn run(&mut self) -> Result<()> {
        let ifile = self.core.inode(IFILE)?;
        self.claim(Frag(self.core.checkpoint.ifile.get()), INODE as u64, 0, "the ifile's inode");
        self.blocks(&ifile)?;
        // The rest of an inode's fragment belongs to others, so that it is claimed once for all of them.
        let mut shared = BTreeMap::new();
        for n in ROOT.0..u64::from(self.core.state.inodes) {
            if n % 1024 == 0 {
                (self.progress)(n, self.core.state.inodes.into(), "inodes");
            }
            self.inode(Ino(n), &mut shared)?;
        }
        self.free_list()?;
        self.directories()?;
        self.links();
        self.usage();
        Ok(())
    }

    fn inode(&mut self, ino: Ino, shared: &mut BTreeMap<u32, ()>) -> Result<()> {
        let entry = self.core.map_entry(ino)?;
        if entry.frag.get() == 0 {
            return Ok(());
        }
        let i = match self.core.inode(ino) {
            Err(Error::Corrupt(c)) => {
                self.note("Inode", c.to_string(), true);
                return Ok(());
            }
            other => other?,
        };
        let new = shared.insert(entry.frag.get(), ()).is_none();
        self.claim(Frag(entry.frag.get()), INODE as u64, u32::from(new), &format!("inode {ino}"));
        if FileType::from_mode(i.d.mode.get()).is_none() || i.size() > self.core.geom.max_size() {
            let text = format!("inode {ino} has mode {:o} and {} bytes", i.d.mode.get(), i.size());
            self.note("InodeFields", text, true);
            return Ok(());
        }
        self.file_frags += i.d.frags.get();
        let rec = Rec { nlink: i.d.nlink.get(), is_dir: i.is_dir(), named: 0, kind: i.d.kind() };
        self.recs.insert(ino.0, rec);
        let frags = self.blocks(&i)?;
        if frags != i.d.frags.get() {
            self.note("FragCount", format!("inode {ino} counts {} fragments, has {frags}", i.d.frags), false);
        }
        Ok(())
    }

    /// So many bytes live here; `frags` fragments must belong to nobody else.
    fn claim(&mut self, frag: Frag, bytes: u64, frags: u32, whose: &str) {
        let geom = self.core.geom;
        let Some(seg) = geom.seg_of(frag).filter(|_| self.core.check_run(frag, frags.max(1), "", "").is_ok()) else {
            self.note("BadPointer", format!("{whose} lies at fragment {}, outside of the segments", frag.0), true);
            return;
        };
        *self.live.entry(seg.0).or_default() += bytes;
        for f in frag.0 - geom.first..frag.0 - geom.first + frags {
            let (word, bit) = ((f / 64) as usize, 1u64 << (f % 64));
            let Some(w) = self.used.get_mut(word) else { continue };
            if *w & bit != 0 {
                self.note("Duplicate", format!("{whose}: fragment {} belongs to another", f + geom.first), true);
                return;
            }
            *w |= bit;
        }
    }

    /// All blocks of a file; returns their fragments.
    fn blocks(&mut self, i: &Inode) -> Result<u64> {
        let mut todo: Vec<Place> = Vec::new();
        let mut frags = 0;
        if i.d.has_blocks() || i.ino == IFILE {
            todo.extend((0..NDADDR as u64).map(Place::Data));
            todo.extend([Place::Indirect(1, 0), Place::Indirect(2, 0), Place::Indirect(3, 0)]);
        }
        todo.push(Place::Xattr);
        while let Some(place) = todo.pop() {
            let p = match self.core.pointer(i, place) {
                Err(Error::Corrupt(c)) => {
                    self.note("Indirect", format!("inode {}: {c}", i.ino), true);
                    continue;
                }
                other => other?,
            };
            if p.frag.get() == 0 {
                continue;
            }
            let geom = self.core.geom;
            let n = match place {
                Place::Data(lbn) => geom.lbn_frags(i.size(), lbn),
                Place::Indirect(..) => geom.block_frags(),
                Place::Xattr => geom.frags_for(i.d.xattr_len.get() as usize),
            };
            if n == 0 {
                self.note("BeyondSize", format!("inode {} has {place:?} behind its end", i.ino), false);
                continue;
            }
            frags += u64::from(n);
            self.claim(Frag(p.frag.get()), geom.bytes_of(n) as u64, n, &format!("inode {}, {place:?}", i.ino));
            if let Place::Indirect(level, at) = place {
                self.below(i, level, at, &mut todo)?;
            }
        }
        Ok(frags)
    }

    /// What an indirect block leads to.
    fn below(&mut self, i: &Inode, level: u8, at: u64, todo: &mut Vec<Place>) -> Result<()> {
        let n = self.core.geom.nindir();
        let bytes = match self.core.indirect(i, level, at) {
            Err(Error::Corrupt(c)) => {
                self.note("Indirect", format!("inode {}: {c}", i.ino), true);
                return Ok(());
            }
            other => other?.unwrap_or_default(),
        };
        for (k, p) in (0u64..).zip(bytes.chunks_exact(POINTER)) {
            if p.iter().all(|b| *b == 0) {
                continue;
            }
            let child = match (level, at) {
                (1, _) => Place::Data(NDADDR as u64 + at * n + k),
                (2, 0) => Place::Indirect(1, 1 + k),
                (2, _) => Place::Indirect(1, 1 + n + (at - 1) * n + k),
                _ => Place::Indirect(2, 1 + k),
            };
            debug_assert!(
                matches!(parent(&self.core.geom, child), Some(Parent::Indirect(l, a, _)) if (l, a) == (level, at))
            );
            todo.push(child);
        }
        Ok(())
    }

    fn free_list(&mut self) -> Result<()> {
        let (mut at, mut free) = (self.core.state.free_ino, 0u64);
        let all = u64::from(self.core.state.inodes).saturating_sub(ROOT.0);
        while at != 0 && free <= all {
            let entry = self.core.map_entry(Ino(at.into()))?;
            if entry.frag.get() != 0 {
                self.note("FreeList", format!("inode {at} is in use and on the list of free ones"), false);
                return Ok(());
            }
            free += 1;
            at = entry.next_free.get();
        }
        let used = u64::from(self.core.state.used_inodes);
        if free + used != all {
            let text = format!("{used} inodes in use and {free} on the list of free ones are not {all}");
            self.note("InodeCount", text, false);
        }
        if self.file_frags != self.core.state.file_frags {
            let text = format!("files count {} fragments, the volume {}", self.file_frags, self.core.state.file_frags);
            self.note("VolumeFrags", text, false);
        }
        Ok(())
    }

    fn directories(&mut self) -> Result<()> {
        let mut todo = vec![(ROOT, ROOT)];
        let mut seen = FxHashMap::default();
        while let Some((ino, up)) = todo.pop() {
            if seen.insert(ino.0, ()).is_some() {
                self.note("TwoParents", format!("directory {ino} has a second name in {up}"), true);
                continue;
            }
            let Ok(dir) = self.core.iget_dir(ino) else {
                self.note("DirLost", format!("directory {ino}, named in {up}, cannot be read"), true);
                continue;
            };
            let mut entries = Vec::new();
            let done = self.core.dir_walk(&dir, 0, &mut |_, found, name| {
                entries.push((found, name.to_vec()));
                Ok(true)
            });
            if let Err(e) = done {
                self.note("DirChunk", format!("directory {ino}: {e}"), true);
            }
            for (found, name) in entries {
                self.entry((ino, up), (found.ino, found.kind), &name, &mut todo);
            }
        }
        for (n, r) in self.recs.iter().filter(|(n, r)| r.is_dir && r.nlink > 0 && !seen.contains_key(n)) {
            let _ = r;
            self.issues.push(issue("Unreached", format!("the root does not lead to directory {n}"), true));
        }
        Ok(())
    }

    fn entry(&mut self, (dir, up): (Ino, Ino), (ino, kind): (Ino, u8), name: &[u8], todo: &mut Vec<(Ino, Ino)>) {
        let shown = String::from_utf8_lossy(name).into_owned();
        let Some(rec) = self.recs.get_mut(&ino.0) else {
            self.note("EntryTarget", format!("directory {dir}: {shown:?} names inode {ino}, which is free"), true);
            return;
        };
        rec.named += 1;
        let wrong_kind = rec.kind >> 12 != u32::from(kind);
        let expected = if name == b"." { Some(dir) } else { (name == b"..").then_some(up) };
        if wrong_kind {
            self.note("EntryKind", format!("directory {dir}: {shown:?} has the wrong type"), false);
        }
        match expected {
            Some(e) if e != ino => {
                self.note("Dots", format!("directory {dir}: {shown:?} names {ino}, should name {e}"), false);
            }
            None if self.recs.get(&ino.0).is_some_and(|r| r.is_dir) => todo.push((ino, dir)),
            _ => {}
        }
    }

    fn links(&mut self) {
        let orphans = self.orphans();
        let mut wrong: Vec<(u64, Rec)> = self.recs.iter().map(|(n, r)| (*n, *r)).collect();
        wrong.sort_unstable_by_key(|w| w.0);
        for (ino, r) in wrong {
            if r.nlink == 0 && r.named == 0 && orphans.contains(&ino) {
                continue;
            }
            if r.nlink != r.named || r.nlink == 0 {
                let text = format!("inode {ino} counts {} links, has {}", r.nlink, r.named);
                self.note("LinkCount", text, false);
            }
        }
    }

    /// Inodes on the list of those without names.
    fn orphans(&mut self) -> Vec<u64> {
        let (mut at, mut all) = (u64::from(self.core.state.orphan), Vec::new());
        while at != 0 && all.len() <= self.recs.len() {
            all.push(at);
            at = self.core.iget(Ino(at)).map_or(0, |i| i.d.next_orphan.get().into());
        }
        all
    }

    fn usage(&mut self) {
        for seg in 0..self.core.segs.count() {
            let (found, should) = (self.core.segs.get(seg), self.live.get(&seg).copied().unwrap_or(0));
            if u64::from(found.live) != should {
                self.note("Usage", format!("segment {seg} counts {} live bytes, has {should}", found.live), false);
            }
            if should > 0 && !found.dirty {
                self.note("UsageClean", format!("segment {seg} is called clean, and has {should} live bytes"), false);
            }
        }
    }
}
