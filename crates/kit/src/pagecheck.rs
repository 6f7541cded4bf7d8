//! Checking directories whose pages are buffers of a volume that the checker has opened in core as a mount does: all of them,
//! and those on one path.
//!
//! What lies in a page, and what its entries lead to, is the business of `treecheck.rs`. Called by the checkers of plain,
//! Evergreen and DualFS.

use crate::blockfile::{BlockFile as _, BlockFiles};
use crate::chunkdir::ChunkDirs;
use crate::dirent::{DIRBLKSIZ, empty_chunks};
use crate::forest::{Spot, TreeIssue};
use crate::inodes::InodeStore;
use crate::issue::Node;
use crate::lostfound::LostFound;
use crate::machine::Machine as _;
use crate::treecheck::{ChunkCheck as _, ChunkWay, Held, NOT_IN_USE, Names, Rec};
use arbor_base::cache::Name;
use arbor_base::vfs::{Errno, Error, Ino, Result};
use std::sync::Arc;

/// The inode of a checker's volume.
type InodeOf<P> = <<P as LostFound>::Core as InodeStore>::Inode;

/// Which pages of a directory can be used, by the walk through its blocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct DirPages {
    count: u64,
    /// Those from the beginning on without a hole.
    row: u64,
    end: u64,
}

impl DirPages {
    /// Counts a page.
    pub fn count(&mut self, lbn: u64) {
        self.count += 1;
        self.row += u64::from(lbn == self.row);
        self.end = self.end.max(lbn.saturating_add(1));
    }

    /// How many pages the directory keeps; those of them that are missing are empty then. It ends with its last page, or, if
    /// more would be missing than there are, before the first that is.
    pub fn kept(&self) -> u64 {
        if self.end.saturating_sub(self.count) <= self.count { self.end } else { self.row }
    }
}

/// A page that was read, and the byte of the device where it lies; none for a hole.
pub type PageRead = Option<(Arc<Vec<u8>>, u64)>;

/// A checker of such directories; the walk along one path follows from that ([`ChunkWay`]).
pub trait PageCheck: LostFound<Number = u32, Core: BlockFiles + ChunkDirs> {
    /// The inode in a slot of the table: whether one that can be read is in use, and its file type.
    fn slot(&mut self, ino: Ino) -> Result<Option<u8>>;

    /// Checks the inode of a number, if it is in use.
    fn check_slot(&mut self, ino: Ino) -> Result<()>;

    /// A page of a directory, which may be damaged.
    fn dir_bytes(&mut self, dir: &InodeOf<Self>, lbn: u64) -> Result<PageRead>;

    /// Changes a page of a directory.
    fn put_dir(&mut self, dir: &InodeOf<Self>, lbn: u64, bytes: Vec<u8>) -> Result<()>;

    /// Tells how far the check of names is.
    fn names_read(&mut self, done: u64, total: u64);

    /// Whether nothing was found so far.
    fn has_found_nothing(&self) -> bool;

    /// Finds the root directory, or lets `make` make a new one.
    fn find_root(&mut self, make: impl FnOnce(&mut Self) -> Result<u32>) -> Result<()> {
        let root = Self::ROOT.0 as u32;
        let why = match self.records().of(root) {
            Some(rec) if rec.is_dir() => return Ok(()),
            Some(_) => "is not a directory",
            None => NOT_IN_USE,
        };
        self.tell(TreeIssue::RootLost { ino: Self::ROOT.0, why });
        if self.records().of(root).is_some() {
            self.clear(root)?;
        }
        match make(self) {
            Err(Error::Errno(Errno::ENOSPC)) => self.tell(TreeIssue::NoSpace { what: "the root directory".into() }),
            made => return made.map(drop),
        }
        Ok(())
    }

    /// Checks all directories, and mends their pages.
    fn read_dirs(&mut self) -> Result<()> {
        let dirs = self.records().dirs();
        for (n, ino) in dirs.iter().enumerate() {
            if n % 64 == 0 {
                self.names_read(n as u64, dirs.len() as u64);
            }
            let (mut dir, mut names) = (self.core().iget(Ino((*ino).into()))?, Names::default());
            for lbn in 0..pages(self, &dir) {
                check_page(self, &mut dir, lbn, &mut names)?;
            }
            self.core().hashes().remove(dir.ino());
            // One that was being removed has no `..` to be checked; if it has a name, the next pass clears it.
            self.forest().flag(*ino, Rec::READ, dir.size() > 0);
        }
        Ok(())
    }
}

/// The check of the tree for a checker that has the volume in `core`, its findings in `f`, inodes in `recs`, and the number of
/// lost+found; `$links` names may lead to an inode.
#[macro_export]
macro_rules! page_checker {
    ($checker:ident of $core:ident, $root:expr, $links:expr) => {
        impl $crate::treecheck::TreeCheck for $checker<'_> {
            type Number = u32;
            const MOST_LINKS: u32 = $links;
            const ROOT: $crate::vfs::Ino = $root;

            fn forest(&mut self) -> &mut $crate::forest::Forest<u32, u32> {
                &mut self.recs
            }

            fn records(&self) -> &$crate::forest::Forest<u32, u32> {
                &self.recs
            }

            fn tell(&mut self, issue: $crate::forest::TreeIssue) {
                self.f.note(issue);
            }

            fn met(&mut self, dir: u32, name: &[u8], ino: u32, _kind: u8) {
                self.f.met(dir.into(), name, ino.into());
            }

            fn names_in(&mut self, dir: u32) -> $crate::vfs::Result<Vec<$crate::treecheck::Named>> {
                $crate::lostfound::names_in(&mut self.core, $crate::vfs::Ino(dir.into()))
            }

            fn put_entry_ino(&mut self, dir: u32, offset: u64, ino: u32) -> $crate::vfs::Result<()> {
                let [dir, ino] = [dir, ino].map(|n| $crate::vfs::Ino(n.into()));
                $crate::lostfound::put_entry_ino(&mut self.core, dir, offset, ino)
            }

            fn put_links(&mut self, ino: u32, links: u32) -> $crate::vfs::Result<()> {
                $crate::lostfound::put_links(&mut self.core, $crate::vfs::Ino(ino.into()), links)
            }

            fn step(&mut self, done: u64, total: u64) {
                (self.progress)(done, total, "links");
            }

            fn clear(&mut self, ino: u32) -> $crate::vfs::Result<()> {
                let mut i = $crate::inodes::InodeStore::iget(&mut self.core, $crate::vfs::Ino(ino.into()))?;
                self.recs.flag(ino, $crate::treecheck::Rec::GONE, true);
                $crate::lifetimes::abandon(&mut self.core, &mut i)
            }

            fn adopt(&mut self, ino: u32, kind: u8) -> $crate::vfs::Result<u32> {
                $crate::lostfound::LostFound::name_it(self, ino, kind)
            }
        }

        impl $crate::lostfound::LostFound for $checker<'_> {
            type Core = $core;

            fn core(&mut self) -> &mut $core {
                &mut self.core
            }

            fn now(&self) -> $crate::vfs::Time {
                $crate::vfs::Time { secs: self.core.sb.created.get(), nanos: 0 }
            }

            fn lost_found(&mut self) -> &mut u32 {
                &mut self.lost_found
            }
        }
    };
}

/// Pages of a directory.
fn pages<P: PageCheck>(check: &mut P, dir: &InodeOf<P>) -> u64 {
    dir.size().div_ceil(1 << check.core().block_shift())
}

/// Where a page of a directory lies.
fn spot<P: PageCheck>(check: &mut P, dir: &InodeOf<P>, lbn: u64, byte: u64) -> Spot {
    Spot { dir: dir.ino().0 as u32, offset: lbn << check.core().block_shift(), byte }
}

/// Makes a page where a directory has a hole; says whether there is space for it.
fn fill_hole<P: PageCheck>(check: &mut P, dir: &mut InodeOf<P>, lbn: u64) -> Result<bool> {
    let (ino, size) = (Node(dir.ino().0), dir.size());
    let offset = lbn << check.core().block_shift();
    check.tell(TreeIssue::DirHole { ino, offset });
    check.core().dir_new_page(dir, lbn)?;
    match check.core().balloc(dir, lbn, size, &mut |buf, len| *buf = empty_chunks(len)) {
        Err(Error::Errno(Errno::ENOSPC)) => {
            check.core().cache().remove(Name::data(dir.ino(), lbn));
            check.tell(TreeIssue::NoSpace { what: format!("directory {}", dir.ino()) });
            Ok(false)
        }
        made => made.map(|()| true),
    }
}

fn check_page<P: PageCheck>(check: &mut P, dir: &mut InodeOf<P>, lbn: u64, names: &mut Names) -> Result<()> {
    let mut page = check.dir_bytes(dir, lbn)?;
    if page.is_none() && fill_hole(check, dir, lbn)? {
        page = check.dir_bytes(dir, lbn)?;
    }
    let Some((old, byte)) = page else { return Ok(()) };
    let (mut bytes, first) = (old.to_vec(), spot(check, dir, lbn, byte));
    for (n, chunk) in (0..).step_by(DIRBLKSIZ).zip(bytes.chunks_exact_mut(DIRBLKSIZ)) {
        check.check_chunk(first.plus(n), chunk, names);
    }
    if bytes == *old { Ok(()) } else { check.put_dir(dir, lbn, bytes) }
}

impl<P: PageCheck> ChunkWay for P {
    fn held(&mut self, ino: Ino) -> Result<Held> {
        match self.slot(ino) {
            Ok(Some(kind)) => Ok(Held::Kind(kind)),
            Ok(None) | Err(Error::Errno(_)) => Ok(Held::Nothing),
            Err(Error::Corrupt(_)) => Ok(Held::Damage),
            Err(e) => Err(e),
        }
    }

    fn check_alone(&mut self, ino: Ino) -> Result<()> {
        self.check_slot(ino)
    }

    fn each_page(&mut self, dir: u32, f: &mut dyn FnMut(&mut Self, Spot, &[u8])) -> Result<()> {
        let dir = self.core().iget(Ino(dir.into()))?;
        for lbn in 0..pages(self, &dir) {
            let Some((bytes, byte)) = self.dir_bytes(&dir, lbn)? else {
                let offset = lbn << self.core().block_shift();
                self.tell(TreeIssue::DirHole { ino: Node(dir.ino().0), offset });
                continue;
            };
            let spot = spot(self, &dir, lbn, byte);
            f(self, spot, &bytes);
        }
        Ok(())
    }

    fn is_sound(&self) -> bool {
        self.has_found_nothing()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(pages: &[u64]) -> u64 {
        let mut all = DirPages::default();
        pages.iter().for_each(|lbn| all.count(*lbn));
        all.kept()
    }

    #[test]
    fn a_directory_keeps_what_is_behind_few_holes() {
        assert_eq!(kept(&[]), 0);
        assert_eq!(kept(&[0, 1, 2]), 3);
        assert_eq!(kept(&[0, 2]), 3);
        assert_eq!(kept(&[1]), 2);
        assert_eq!(kept(&[0, 1 << 31]), 1);
        assert_eq!(kept(&[1 << 31]), 0);
    }
}
