//! Phase 4: entries of directories; connectivity; link counts (`kit::treecheck`). Objects without a name go to lost+found.

use super::objects::Rec;
use super::{Checker, Issue, issue::Node};
use crate::dir::Entry;
use crate::format::*;
use crate::inode::LINK_MAX;
use crate::volume::Core;
use arbor_base::vfs::{Error, FileType, Ino, Result, Time, mode};
use arbor_kit::atomicnames::AtomicNames as _;
use arbor_kit::dirent::DOTDOT_AT;
use arbor_kit::forest::{DIR_KIND, Forest, TreeIssue};
use arbor_kit::inodes::{InodeStore as _, InodeTable as _};
use arbor_kit::lifetimes;
use arbor_kit::lostfound::{self, LostFound};
use arbor_kit::treecheck::{Named, Names, TreeCheck};

impl Checker<'_> {
    /// Finds the root directory, or makes a new one.
    pub(super) fn find_root(&mut self) -> Result<()> {
        let why = match self.recs.of(ROOT.0) {
            Some(rec) if rec.is_dir() => return Ok(()),
            Some(_) => "is not a directory",
            None => "is not in use",
        };
        self.f.note(TreeIssue::RootLost { ino: ROOT.0, why });
        if self.recs.of(ROOT.0).is_some() {
            self.clear(ROOT.0)?;
        }
        // It is no more in use than any other that is freed: the number stays its own.
        let d = StatData {
            mode: (mode::IFDIR | 0o755).into(),
            nlink: 2.into(),
            above: ROOT.0.into(),
            ..StatData::default()
        };
        self.core.ids = super::numbers::with_root(std::mem::take(&mut self.core.ids));
        match self.core.insert(self.core.stat_item(ROOT, &d)) {
            Err(e) if e.errno() == arbor_base::vfs::Errno::ENOSPC => {
                self.tell(TreeIssue::NoSpace { what: "the root directory".into() });
            }
            done => done?,
        }
        self.recs.put(Rec { ino: ROOT.0, parent: ROOT.0, dotdot: ROOT.0, stored: 2, kind: DIR_KIND, ..Rec::default() });
        Ok(())
    }

    pub(super) fn read_names(&mut self) -> Result<()> {
        let dirs = self.recs.dirs();
        for (n, dir) in dirs.iter().enumerate() {
            if n % 64 == 0 {
                (self.progress)(n as u64, dirs.len() as u64, "names");
            }
            let mut names = Names::default();
            let mut at = 0;
            loop {
                let some = self.core.entries_from(Ino(*dir), at)?;
                let Some(last) = some.last().map(|e| e.offset) else { break };
                for e in some {
                    self.read_entry(*dir, &e, &mut names)?;
                }
                at = last + 1;
            }
            self.recs.flag(*dir, Rec::READ, true);
        }
        self.check_targets()
    }

    fn read_entry(&mut self, dir: u64, e: &Entry, names: &mut Names) -> Result<()> {
        match self.check_entry((dir, e.offset), (&e.name, e.ino.0, e.kind), names) {
            None => {
                let dir = self.core.iget(Ino(dir))?;
                self.core.erase(&dir, &e.name, &e.offset)
            }
            Some(kind) if kind != e.kind => {
                let (dir, t) = (self.core.iget(Ino(dir))?, FileType::from_mode(u32::from(kind) << 12));
                self.core.point(&dir, &e.offset, (e.ino, t.unwrap_or(FileType::File)))
            }
            Some(_) => Ok(()),
        }
    }

    /// Symbolic links have targets.
    fn check_targets(&mut self) -> Result<()> {
        let links: Vec<u64> =
            self.recs.there().filter(|r| u32::from(r.kind) << 12 == mode::IFLNK).map(|r| r.ino).collect();
        for ino in links {
            let i = self.core.iget(Ino(ino))?;
            if let Err(Error::Corrupt(c)) = self.core.link_target(&i) {
                self.f.note(Issue::Target { ino: Node(ino), why: c.to_string() });
                for dir in self.recs.dirs() {
                    for e in self.core.all_entries(Ino(dir))?.into_iter().filter(|e| e.ino.0 == ino) {
                        let dir = self.core.iget(Ino(dir))?;
                        self.core.erase(&dir, &e.name, &e.offset)?;
                    }
                }
                self.clear(ino)?;
            }
        }
        Ok(())
    }

    pub(super) fn free_object(&mut self, ino: u64) -> Result<()> {
        let mut i = self.core.iget(Ino(ino))?;
        i.d.nlink = 0.into();
        lifetimes::abandon(&mut self.core, &mut i)
    }
}

impl TreeCheck for Checker<'_> {
    type Number = u64;
    const MOST_LINKS: u32 = LINK_MAX;
    const ROOT: Ino = ROOT;

    fn forest(&mut self) -> &mut Forest<u64, u64> {
        &mut self.recs
    }

    fn records(&self) -> &Forest<u64, u64> {
        &self.recs
    }

    fn tell(&mut self, issue: TreeIssue) {
        self.f.note(issue);
    }

    fn met(&mut self, dir: u64, name: &[u8], ino: u64, _kind: u8) {
        self.f.met(dir, name, ino);
    }

    fn names_in(&mut self, dir: u64) -> Result<Vec<Named<u64>>> {
        let all = self.core.all_entries(Ino(dir))?.into_iter();
        Ok(all.map(|e| Named { offset: e.offset, ino: e.ino.0, name: e.name }).collect())
    }

    fn put_entry_ino(&mut self, dir: u64, offset: u64, ino: u64) -> Result<()> {
        let d = self.core.iget(Ino(dir))?;
        if offset == DOTDOT_AT as u64 {
            return self.core.set_parent(&d, Ino(ino));
        }
        let Some(e) = self.core.entries_from(Ino(dir), offset)?.into_iter().find(|e| e.offset == offset) else {
            return Ok(());
        };
        if ino == 0 {
            return self.core.erase(&d, &e.name, &offset);
        }
        let t = self.core.iget(Ino(ino))?.file_type();
        self.core.point(&d, &offset, (Ino(ino), t))
    }

    fn put_links(&mut self, ino: u64, links: u32) -> Result<()> {
        lostfound::put_links(&mut self.core, Ino(ino), links)
    }

    fn step(&mut self, done: u64, total: u64) {
        (self.progress)(done, total, "links");
    }

    fn clear(&mut self, ino: u64) -> Result<()> {
        self.recs.flag(ino, Rec::GONE, true);
        self.free_object(ino)
    }

    fn adopt(&mut self, ino: u64, kind: u8) -> Result<u64> {
        self.name_it(ino, kind)
    }
}

impl LostFound for Checker<'_> {
    type Core = Core;

    fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    fn now(&self) -> Time {
        Time { secs: self.core.sb.created.get(), nanos: 0 }
    }

    fn lost_found(&mut self) -> &mut u64 {
        &mut self.lost_found
    }
}
