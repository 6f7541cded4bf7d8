//! The calls that change names, and the calls of a whole volume. The rules of names are in `kit::namespace`.
//!
//! A call changes its buffers first and stores the inodes that it holds; only then it tells `commit.rs` how the changes
//! depend on each other, because that may already lower link counts and free inodes. Called by kit, through
//! [`Namespace`] and [`locked::Core`].

use crate::buffers::BlockKind;
use crate::dependencies::{Frees, LinkRelease};
use crate::format::*;
use crate::inode::{Inode, LINK_MAX};
use crate::volume::Core;
use arbor_base::cache::Name;
use arbor_base::vfs::*;
use arbor_kit::chunkdir::{ChunkDirs, Found};
use arbor_kit::dirent::{DOTDOT_AT, first_chunks};
use arbor_kit::inodes::{Attributes as _, InodeStore as _, InodeTable as _};
use arbor_kit::lifetimes;
use arbor_kit::locked;
use arbor_kit::namespace::{Move, Namespace, NewInode, Node, Place, Target};
use std::sync::Arc;

/// The type of an entry that names a directory.
const DIR_KIND: u8 = (mode::IFDIR >> 12) as u8;

impl Namespace for Core {
    fn settle_links(&mut self, ino: Ino) -> Result<bool> {
        let i = self.iget(ino)?;
        if self.links(&i) == u32::from(i.d.nlink.get()) {
            return Ok(false);
        }
        self.flush_all().map(|()| true)
    }

    fn make(&mut self, dir: &Node, name: &[u8], (): (), new: &NewInode<'_>, now: Time) -> Result<Attr> {
        self.check_xattrs(new.xattrs)?;
        let (parent, t) = (dir.ino, new.file_type());
        let mut dir = self.iget(parent)?;
        let room = self.dir_room(&mut dir, name)?;
        let cgx = if t == FileType::Dir { self.dirpref(parent) } else { self.geom.cg_of_inode(parent) };
        let mut i = self.inew((cgx, parent), new.mode, (new.uid, new.gid), now)?;
        if let Err(e) = self.init_contents(&mut i, new, parent) {
            if e.errno() == Errno::ENOSPC {
                self.abort_create(&mut i)?;
            }
            return Err(e);
        }
        let at = self.dir_insert(&dir, room, name, i.ino, t)?;
        if t == FileType::Dir {
            dir.d.nlink = dir.d.nlink.get().saturating_add(1).into();
        }
        self.touch_dir(&mut dir, now);
        self.iput(&dir)?;
        let mut waits = self.ordering().inode_ready(self, &i)?;
        if t == FileType::Dir {
            waits.extend(self.ordering().links_raised(self, &dir)?);
        }
        self.note_added(&dir, at, i.ino, waits)?;
        Ok(self.attr_of(&i))
    }

    fn make_unnamed(&mut self, dir: &Node, new: &NewInode<'_>, now: Time) -> Result<Attr> {
        let home = self.geom.cg_of_inode(dir.ino);
        let mut i = self.inew((home, dir.ino), new.mode, (new.uid, new.gid), now)?;
        i.d.nlink = 0.into();
        self.calls.lives.refs.add(i.ino);
        let attr = self.attr_of(&i);
        lifetimes::orphan(self, &mut i)?;
        self.calls.lives.set_unnamed(i.ino);
        Ok(attr)
    }

    fn link(&mut self, dir: &Node, name: &[u8], (): (), node: &Node, now: Time) -> Result<Attr> {
        let mut parent = self.iget(dir.ino)?;
        let room = self.dir_room(&mut parent, name)?;
        let mut i = self.iget(node.ino)?;
        if i.d.nlink.get() == 0 {
            lifetimes::unorphan(self, &mut i)?;
            self.iput(&i)?;
        }
        let at = self.dir_insert(&parent, room, name, i.ino, i.file_type())?;
        self.touch_dirs(&[dir.ino], now)?;
        let waits = self.raise(i.ino, Some(now))?;
        self.note_added(&parent, at, i.ino, waits)?;
        self.attr(node.ino)
    }

    fn remove(&mut self, dir: &Node, name: &[u8], slot: Found, node: &Node, now: Time) -> Result<()> {
        if node.is_dir() {
            self.settle_dir(node.ino)?;
        }
        let (mut dir, mut i) = (self.iget(dir.ino)?, self.iget(node.ino)?);
        let after = self.name_before(&dir, slot.at, (!node.is_dir()).then_some(i.ino));
        let keep = self.is_left(&dir, slot.at, after);
        self.dir_remove(&dir, name, slot.at, keep)?;
        self.touch_dir(&mut dir, now);
        self.iput(&dir)?;
        i.d.ctime = now.into();
        self.iput(&i)?;
        let release = if node.is_dir() { LinkRelease::Dir(i.ino, dir.ino) } else { LinkRelease::Name(i.ino) };
        self.note_removed((&dir, slot.at), ((i.ino, slot.kind), name), after, release)
    }

    fn rename(&mut self, m: Move<'_, Found, ()>, now: Time) -> Result<()> {
        self.settle_rename(&m)?;
        let (mut new_dir, t) = (self.iget(m.new_dir.ino)?, m.node.file_type());
        let room = match &m.target {
            Target::Free(()) => Some(self.dir_room(&mut new_dir, m.new_name)?),
            Target::Replaced(..) => None,
        };
        let white = m.whiteout.map(|cx| self.make_whiteout(&m.dir, &cx, now)).transpose()?;
        let (dir, i) = (self.iget(m.dir.ino)?, self.iget(m.node.ino)?);
        // New names come before old ones go, and the link count is raised before that.
        let mut waits = if room.is_none() { self.ordering().data_ready(self, &i)? } else { Vec::new() };
        waits.extend(self.raise(i.ino, Some(now))?);
        let same = dir.ino == new_dir.ino;
        let moves_dir = i.is_dir() && !same;
        let parent_waits = if moves_dir { self.raise(new_dir.ino, None)? } else { Vec::new() };
        waits.extend(parent_waits.iter().copied());
        let at = match (&m.target, room) {
            (Target::Replaced(d, _), _) => self.dir_replace(&new_dir, d.at, i.ino, t).map(|()| d.at)?,
            (Target::Free(()), Some(room)) => self.dir_insert(&new_dir, room, m.new_name, i.ino, t)?,
            (Target::Free(()), None) => return Err(Errno::EIO.into()),
        };
        self.entry_first(&new_dir, at)?;
        if moves_dir {
            self.dir_replace(&i, DOTDOT_AT as u64, new_dir.ino, FileType::Dir)?;
        }
        match &white {
            Some(w) => self.dir_replace(&dir, m.slot.at, w.ino, FileType::Char)?,
            None => self.dir_remove(&dir, m.name, m.slot.at, self.ordering().keeps_removed_entries())?,
        }
        self.touch_dirs(&[dir.ino, new_dir.ino], now)?;
        if let Target::Replaced(_, target) = &m.target {
            self.set_ctime(target.ino, now)?;
        }
        if i.is_dir() && same {
            waits.extend(self.ordering().dir_counted(self, &dir)?);
        }
        self.order_rename(&m, at, waits, parent_waits, white)
    }

    /// If changes reach the disk one by one, one of the two gets a third name meanwhile, so that neither is without a
    /// name; a crash may leave it.
    fn exchange(&mut self, a: Place<Found>, b: Place<Found>, now: Time) -> Result<()> {
        let third = self.settle_exchange(&a, &b)?;
        let (dir, new_dir) = (self.iget(a.dir.ino)?, self.iget(b.dir.ino)?);
        let (i, j, same) = (self.iget(a.node.ino)?, self.iget(b.node.ino)?, a.dir.ino == b.dir.ino);
        let (mut a_waits, mut b_waits) = (self.ordering().data_ready(self, &j)?, self.ordering().data_ready(self, &i)?);
        a_waits.extend(self.raise(j.ino, Some(now))?);
        b_waits.extend(self.raise(i.ino, Some(now))?);
        a_waits.extend(third.as_ref().map(|t| t.0));
        let mut dots = Vec::new();
        for (moved, from, to) in [(&i, &dir, &new_dir), (&j, &new_dir, &dir)] {
            if moved.is_dir() && !same {
                let waits = self.raise(to.ino, None)?;
                a_waits.extend(waits.iter().copied());
                self.dir_replace(moved, DOTDOT_AT as u64, to.ino, FileType::Dir)?;
                dots.push((*moved, (from.ino, to.ino), waits));
            }
        }
        self.dir_replace(&dir, a.slot.at, j.ino, j.file_type())?;
        self.entry_first(&dir, a.slot.at)?;
        self.dir_replace(&new_dir, b.slot.at, i.ino, i.file_type())?;
        self.touch_dirs(&[dir.ino, new_dir.ino], now)?;
        if i.is_dir() || j.is_dir() {
            a_waits.extend(self.ordering().dir_counted(self, &dir)?);
            b_waits.extend(self.ordering().dir_counted(self, &new_dir)?);
        }
        let first =
            self.note_changed((&dir, a.slot.at), ((i.ino, a.slot.kind), j.ino), a_waits, LinkRelease::Name(i.ino))?;
        b_waits.push(first);
        let second =
            self.note_changed((&new_dir, b.slot.at), ((j.ino, b.slot.kind), i.ino), b_waits, LinkRelease::Name(j.ino))?;
        for (moved, old, mut waits) in dots {
            waits.push(if moved.ino == i.ino { second } else { first });
            let names = ((old.0, DIR_KIND), old.1);
            self.note_changed((&moved, DOTDOT_AT as u64), names, waits, LinkRelease::Parent(old.0))?;
        }
        if let Some((_, at, name)) = third {
            self.dir_remove(&dir, &name, at, self.ordering().keeps_removed_entries())?;
            let kind = (i.file_type().mode() >> 12) as u8;
            self.note_removed((&dir, at), ((i.ino, kind), &name), Some(second), LinkRelease::Name(i.ino))?;
        }
        Ok(())
    }
}

/// A name that stands in for one of two that are exchanged: its dependency, its place, and the name itself.
type Third = (u64, u64, Vec<u8>);

impl Core {
    /// Writes the first contents of a new inode.
    fn init_contents(&mut self, i: &mut Inode, new: &NewInode<'_>, parent: Ino) -> Result<()> {
        match new.file_type() {
            FileType::Dir => {
                let (len, ino) = (self.geom.frag_size(), i.ino);
                self.cache.insert(Name::data(ino, 0), Arc::new(Vec::new()));
                self.alloc_block(i, 0, len as u64, BlockKind::Dir, &mut |buf, _| {
                    *buf = first_chunks(len, ino, parent)
                })?;
            }
            FileType::Symlink => self.store_target(i, new.target)?,
            FileType::Char | FileType::Block => {
                i.d.db[0] = new.rdev.into();
                self.iput(i)?;
            }
            _ => {}
        }
        if new.xattrs.is_empty() { Ok(()) } else { self.xattr_store(i, new.xattrs) }
    }

    /// Raises a link count by one; returns the dependencies that the new name must wait for.
    fn raise(&mut self, ino: Ino, now: Option<Time>) -> Result<Vec<u64>> {
        let mut i = self.iget(ino)?;
        i.d.nlink = i.d.nlink.get().saturating_add(1).into();
        if let Some(now) = now {
            i.d.ctime = now.into();
        }
        self.iput(&i)?;
        self.ordering().links_raised(self, &i)
    }

    /// Makes pending decrements happen for link counts at their limit, so that a call may raise them.
    fn settle_counts(&mut self, inos: &[Ino]) -> Result<()> {
        for ino in inos {
            let i = self.iget(*ino)?;
            let raw = u32::from(i.d.nlink.get());
            if raw >= LINK_MAX.into() && self.links(&i) < raw {
                return self.flush_all();
            }
        }
        Ok(())
    }

    fn touch_dirs(&mut self, inos: &[Ino], now: Time) -> Result<()> {
        for ino in inos {
            let mut dir = self.iget(*ino)?;
            self.touch_dir(&mut dir, now);
            self.iput(&dir)?;
        }
        Ok(())
    }

    fn set_ctime(&mut self, ino: Ino, now: Time) -> Result<()> {
        let mut i = self.iget(ino)?;
        i.d.ctime = now.into();
        self.iput(&i)
    }

    /// Frees inodes that have neither names nor users.
    fn free_inactive(&mut self) -> Result<()> {
        while lifetimes::inactivate(self)? {
            self.write_excess();
            self.calls.health.check_writable()?;
        }
        Ok(())
    }

    /// Fragments and inodes that are free once what was removed is gone from the disk: a call that needs them gets that
    /// done ([`release_held`](crate::commit::ordering::MetadataOrdering::release_held)).
    fn about_to_be_free(&self) -> (u64, u64) {
        let Frees { frags, inodes, .. } = self.deps.to_be_freed();
        let is_gone = |i: &Inode| i.d.in_use() && self.links(i) == 0 && !self.damaged.contains(i.ino);
        let unused = self.deps.going_inodes().filter(|ino| !self.calls.lives.refs.has(*ino));
        let gone = unused.filter_map(|ino| self.peek_inode(ino)).filter(is_gone);
        gone.fold((frags, inodes), |sum, i| (sum.0.saturating_add(i.d.frags.get().into()), sum.1.saturating_add(1)))
    }

    fn make_whiteout(&mut self, dir: &Node, cx: &Cx, now: Time) -> Result<Inode> {
        let home = self.geom.cg_of_inode(dir.ino);
        self.inew((home, dir.ino), mode::IFCHR, (cx.uid, cx.gid), now)
    }

    /// Writes changes that must be on disk before a rename.
    fn settle_rename(&mut self, m: &Move<'_, Found, ()>) -> Result<()> {
        let target = match &m.target {
            Target::Replaced(slot, node) => Some((slot, node)),
            Target::Free(()) => None,
        };
        self.settle_counts(&[m.dir.ino, m.node.ino, m.new_dir.ino])?;
        if let Some((_, node)) = target {
            self.settle_counts(&[node.ino])?;
        }
        if m.whiteout.is_some() {
            let dir = self.iget(m.dir.ino)?;
            self.settle_names(&[(&dir, m.slot.at)], &[m.node.ino])?;
        }
        if m.node.is_dir() {
            self.settle_move(m.node.ino, m.new_dir.ino)?;
        }
        match target {
            Some((_, node)) if node.is_dir() => self.settle_dir(node.ino),
            Some((slot, node)) => {
                let new_dir = self.iget(m.new_dir.ino)?;
                self.settle_replaced(&new_dir, slot.at, node.ino)
            }
            None => Ok(()),
        }
    }

    /// Tells how the changes of a rename depend on each other; the new name is at byte `at`.
    fn order_rename(
        &mut self,
        m: &Move<'_, Found, ()>,
        at: u64,
        waits: Vec<u64>,
        parent_waits: Vec<u64>,
        white: Option<Inode>,
    ) -> Result<()> {
        let (dir, new_dir, i) = (self.iget(m.dir.ino)?, self.iget(m.new_dir.ino)?, self.iget(m.node.ino)?);
        let white_waits = white.map(|w| self.ordering().inode_ready(self, &w)).transpose()?;
        let added = match &m.target {
            Target::Replaced(d, t) => {
                let release = if t.is_dir() { LinkRelease::Dir(t.ino, new_dir.ino) } else { LinkRelease::Name(t.ino) };
                self.note_changed((&new_dir, at), ((d.ino, d.kind), i.ino), waits, release)?
            }
            Target::Free(()) => self.note_added(&new_dir, at, i.ino, waits)?,
        };
        if i.is_dir() && dir.ino != new_dir.ino {
            let names = ((dir.ino, DIR_KIND), new_dir.ino);
            // The old parent counts it until the new name is on disk.
            let waits = parent_waits.into_iter().chain([added]).collect();
            self.note_changed((&i, DOTDOT_AT as u64), names, waits, LinkRelease::Parent(dir.ino))?;
        }
        match white_waits.zip(white) {
            Some((mut waits, w)) => {
                waits.push(added);
                let names = ((i.ino, m.slot.kind), w.ino);
                self.note_changed((&dir, m.slot.at), names, waits, LinkRelease::Name(i.ino)).map(|_| ())
            }
            None => {
                let old = ((i.ino, m.slot.kind), m.name);
                self.note_removed((&dir, m.slot.at), old, Some(added), LinkRelease::Name(i.ino))
            }
        }
    }

    /// Writes changes that must be on disk before an exchange, and gives the first of the two a third name if it needs
    /// one.
    fn settle_exchange(&mut self, a: &Place<Found>, b: &Place<Found>) -> Result<Option<Third>> {
        self.settle_counts(&[a.dir.ino, a.node.ino, b.dir.ino, b.node.ino])?;
        let (mut dir, new_dir) = (self.iget(a.dir.ino)?, self.iget(b.dir.ino)?);
        self.settle_names(&[(&dir, a.slot.at), (&new_dir, b.slot.at)], &[a.node.ino, b.node.ino])?;
        for (moved, to) in [(&a.node, new_dir.ino), (&b.node, dir.ino)] {
            if moved.is_dir() {
                self.settle_move(moved.ino, to)?;
            }
        }
        if !self.ordering().exchanges_one_by_one() {
            return Ok(None);
        }
        dir = self.iget(dir.ino)?;
        let name = format!(".exchange-{}-{}", a.node.ino, self.sb.mounts).into_bytes();
        if self.dir_lookup(&dir, &name)?.is_some() {
            return Err(Errno::EEXIST.into());
        }
        let room = self.dir_room(&mut dir, &name)?;
        let waits = self.raise(a.node.ino, None)?;
        let at = self.dir_insert(&dir, room, &name, a.node.ino, a.node.file_type())?;
        Ok(Some((self.note_added(&dir, at, a.node.ino, waits)?, at, name)))
    }
}

impl locked::Core for Core {
    fn has_writeback_pressure(&self) -> bool {
        self.has_much_dirty()
    }

    fn settle_frees(&mut self) -> Result<bool> {
        self.ordering().release_held(self)
    }

    fn background(&mut self, now: Time) -> Result<Time> {
        self.run_daemons(now)
    }

    fn finish(&mut self) -> Result<()> {
        self.flush_all()?;
        // Inodes that lost their last name by that are freed now.
        self.free_inactive()?;
        self.flush_all()?;
        self.mark_clean()
    }

    fn sync_file(&mut self, ino: Ino) -> Result<()> {
        self.flush_file(ino)
    }

    fn sync_all(&mut self) -> Result<()> {
        self.flush_all()?;
        // What lost its last name by that is freed now, and that is made durable, too.
        while self.calls.lives.inactive() > 0 {
            self.free_inactive()?;
            self.flush_all()?;
        }
        Ok(())
    }

    fn label(&mut self) -> Result<Vec<u8>> {
        Ok(label_of(&self.sb.label))
    }

    fn set_label(&mut self, field: [u8; 64]) -> Result<()> {
        self.write_label(field)
    }

    fn statfs(&mut self) -> Result<StatFs> {
        let g = &self.geom;
        let meta = u64::from(g.cg_count) * u64::from(g.meta_frags());
        let areas = u64::from(g.summary_frags()) + u64::from(self.sb.journal_frags.get());
        let (frags, inodes) = self.about_to_be_free();
        let free = self.space.free_frags(g).saturating_add(frags);
        Ok(StatFs {
            frsize: g.frag_size() as u32,
            bsize: g.block_size() as u32,
            blocks: u64::from(g.frags).saturating_sub(meta + areas),
            bfree: free,
            bavail: self.space.without_reserve(free),
            files: u64::from(g.inodes()).saturating_sub(ROOT.0),
            ffree: self.space.nifree().saturating_add(inodes),
            namelen: 255,
            fsid: g.fsid,
        })
    }

    /// Trims one group in each step.
    fn trim_step(&mut self, range: &TrimRange, from: u64) -> Result<(u64, Option<u64>)> {
        let geom = self.geom;
        range.check(geom.byte(Frag(geom.frags)), geom.block_size() as u64, geom.byte(Frag(geom.cg_frags)))?;
        let next = from + 1;
        Ok((self.trim_group(from as u32, range)?, (next < u64::from(geom.cg_count)).then_some(next)))
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        let c = self.counters;
        let mut all = self.cache.counters();
        all.extend(c.io.named());
        all.extend([
            ("sync_writes", c.sync_writes),
            ("rollbacks", c.rollbacks),
            ("work_items", c.work_items),
            ("reallocated_clusters", c.reallocs),
            ("log_transactions", c.transactions),
            ("log_bytes", c.journal_bytes),
            ("names_compared", self.hashes.compared()),
        ]);
        all
    }
}
