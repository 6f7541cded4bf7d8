//! lost+found, and other changes of directories of chunks that a checker makes through the calls of its engine.
//!
//! For checkers that have opened the volume in core as a mount does, and repair it by the functions of the mount. Called by
//! the checkers, and through [`TreeCheck`].

use crate::atomicnames::{AtomicNames, or_unmake};
use crate::blockfile::{BlockFile as _, UsualFields as _};
use crate::chunkdir::ChunkDirs;
use crate::chunkrepair::set_ino;
use crate::dirent::DOTDOT_AT;
use crate::forest::{DIR_KIND, LOST_FOUND, Record, TreeIssue, spare_names};
use crate::inodes::InodeStore;
use crate::namespace::{Lookup, Names as _};
use crate::treecheck::{Named, Number as _, Rec, TreeCheck};
use arbor_base::vfs::{Errno, Error, FileType, Ino, Result, Time, mode};

/// The entries in use of a directory that was checked, without its dots.
pub fn names_in<C: ChunkDirs>(core: &mut C, dir: Ino) -> Result<Vec<Named>> {
    let (dir, mut all) = (core.iget(dir)?, Vec::new());
    core.dir_walk(&dir, 0, &mut |_, found, name| {
        if found.at > DOTDOT_AT as u64 {
            all.push(Named { offset: found.at, ino: found.ino.0 as u32, name: name.to_vec() });
        }
        Ok(true)
    })?;
    Ok(all)
}

/// Changes the inode of the entry at an offset of a directory; 0 makes it free.
pub fn put_entry_ino<C: ChunkDirs>(core: &mut C, dir: Ino, offset: u64, ino: Ino) -> Result<()> {
    let (dir, (index, within)) = (core.iget(dir)?, core.page_of(offset));
    core.dir_page(&dir, index)?;
    core.hashes().remove(dir.ino());
    core.dir_modify(&dir, index, &mut |page| set_ino(page, within, ino))
}

/// Changes a link count.
pub fn put_links<C: AtomicNames>(core: &mut C, ino: Ino, links: u32) -> Result<()> {
    let mut i = core.iget(ino)?;
    i.set_links(links);
    core.iput(&i)
}

/// A checker that gives inodes without names new ones.
pub trait LostFound: TreeCheck {
    /// The volume.
    type Core: AtomicNames;

    /// The volume.
    fn core(&mut self) -> &mut Self::Core;

    /// The time for what a repair makes.
    fn now(&self) -> Time;

    /// The directory lost+found, 0 until it was found.
    fn lost_found(&mut self) -> &mut Self::Number;

    /// Makes an empty directory without a name.
    fn new_dir(&mut self, permissions: u32, parent: Ino) -> Result<Self::Number> {
        let now = self.now();
        let mut i = self.core().new_inode(parent, mode::IFDIR | permissions, (0, 0), now)?;
        self.begin_dir(&mut i, parent)
    }

    /// Makes the first contents and the record of a new directory.
    fn begin_dir(&mut self, i: &mut <Self::Core as InodeStore>::Inode, parent: Ino) -> Result<Self::Number> {
        let made = self.core().begin_dir(i, parent);
        or_unmake(self.core(), i, made)?;
        let (ino, up) = (Self::Number::of(i.ino()), Self::Number::of(parent));
        let flags = Rec::REACHED | Rec::READ;
        self.forest().put(Record { ino, parent: up, dotdot: up, stored: 2, kind: DIR_KIND, flags, found: 0 });
        Ok(ino)
    }

    /// Gives an inode a name in lost+found; returns that directory, 0 if there is no room.
    fn name_it(&mut self, ino: Self::Number, kind: u8) -> Result<Self::Number> {
        match put_into(self, ino, kind) {
            Err(Error::Errno(Errno::ENOSPC)) => {
                self.tell(TreeIssue::NoSpace { what: format!("inode {ino}, which has no name") });
                Ok(Self::Number::default())
            }
            done => done,
        }
    }
}

fn was_read<L: LostFound>(check: &L, dir: L::Number) -> bool {
    check.records().of(dir).is_some_and(|rec| rec.is_dir() && rec.has(Rec::READ))
}

/// Enters a name that is not there.
fn enter<C: AtomicNames>(core: &mut C, dir: Ino, room: &C::Room, name: &[u8], to: (Ino, FileType)) -> Result<()> {
    let mut i = core.iget(dir)?;
    let at = core.vacancy(&mut i, name, room)?;
    core.enter(&i, at, name, to)
}

/// The directory lost+found; makes it if there is none.
fn find<L: LostFound>(check: &mut L) -> Result<L::Number> {
    let known = *check.lost_found();
    if was_read(check, known) {
        return Ok(known);
    }
    for name in spare_names(LOST_FOUND) {
        match check.core().find(L::ROOT, name.as_bytes())?.1 {
            Lookup::Found(e) if was_read(check, L::Number::of(e.ino)) => {
                *check.lost_found() = L::Number::of(e.ino);
                return Ok(L::Number::of(e.ino));
            }
            Lookup::Found(_) => {}
            Lookup::Free(room) => {
                let mut root = check.core().iget(L::ROOT)?;
                let at = check.core().vacancy(&mut root, name.as_bytes(), &room)?;
                let ino = check.new_dir(0o700, L::ROOT)?;
                check.core().enter(&root, at, name.as_bytes(), (Ino(ino.into()), FileType::Dir))?;
                check.one_link_more(L::Number::of(L::ROOT))?;
                *check.lost_found() = ino;
                return Ok(ino);
            }
        }
    }
    Err(Errno::ENOSPC.into())
}

/// Gives an inode a name in lost+found, which is returned.
fn put_into<L: LostFound>(check: &mut L, ino: L::Number, kind: u8) -> Result<L::Number> {
    let found = find(check)?;
    if found == ino {
        return Err(Errno::ENOSPC.into());
    }
    let t = FileType::from_mode(u32::from(kind) << 12).unwrap_or(FileType::File);
    for name in spare_names(&format!("#{ino}")) {
        let dir = Ino(found.into());
        if let Lookup::Free(room) = check.core().find(dir, name.as_bytes())?.1 {
            enter(check.core(), dir, &room, name.as_bytes(), (Ino(ino.into()), t))?;
            return Ok(found);
        }
    }
    Err(Errno::ENOSPC.into())
}
