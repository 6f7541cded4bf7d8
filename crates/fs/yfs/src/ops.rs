//! The calls: changes of names, attributes and data, each a transaction.
//!
//! The rules of names are in `kit::namespace`. The space that a change may need is asked for before its transaction
//! begins: until then it may restart.

use crate::delayed::Which;
use crate::dir::{self, Found};
use crate::format::*;
use crate::inode::{Inode, LINK_MAX};
use crate::planted::{Flaw, planted};
use crate::volume::{Core, Volume};
use arbor_base::cache::walks::Piece;
use arbor_base::field;
use arbor_base::layout::Location;
use arbor_base::vfs::*;
use arbor_kit::inodes::{Attributes, Change};
use arbor_kit::lifetimes;
use arbor_kit::namespace::{Lookup, Move, Named, Names, Namespace, NewInode, Node, Place, Target, Walk, Walked};
use arbor_kit::served::{self, Inodes, Take, WalkEnd};
use arbor_kit::xattr::Xattrs;
use std::sync::atomic::Ordering::Relaxed;

const COOKIE_BASE: u64 = 3;
/// Entries of a directory that are read ahead of a walk at a time.
const WALK_AHEAD: u32 = 512;
/// A smaller cache may evict what is read ahead before it is used.
const WALK_CACHE: usize = 16 << 20;

/// Number for an entry among those whose names have the same hash; `None` if all are taken.
type Seq = Option<u16>;

impl Attributes for Core {
    fn attr(&mut self, ino: Ino) -> Result<Attr> {
        let i = self.iget(ino)?;
        Ok(self.attr_of(&i))
    }
}

impl Names for Core {
    type Slot = Found;
    type Room = Seq;

    fn root(&self) -> Ino {
        Ino(self.sb.root.get())
    }

    fn node(&mut self, ino: Ino) -> Result<Node> {
        Ok(facts(&self.iget(ino)?))
    }

    fn find(&mut self, dir: Ino, name: &[u8]) -> Result<(Node, Lookup<Found, Seq>)> {
        let dir = self.iget_dir(dir)?;
        let found = match self.dir_lookup(&dir, name)? {
            dir::Lookup::Found(slot) => Lookup::Found(Named { ino: slot.ino, slot }),
            dir::Lookup::Missing { seq } => Lookup::Free(seq),
        };
        Ok((facts(&dir), found))
    }

    fn parent(&mut self, dir: Ino) -> Result<Ino> {
        Ok(Ino(self.iget(dir)?.d.parent.get()))
    }

    fn parent_location(&self, dir: Ino) -> Location {
        Location::from(dir.0.saturating_mul(SECTOR)).plus(field!(Dinode, parent).1)
    }

    fn slot_location(&self, _dir: Ino, slot: &Found) -> Location {
        slot.byte.into()
    }

    fn is_empty(&mut self, dir: Ino) -> Result<bool> {
        let dir = self.iget(dir)?;
        self.dir_is_empty(&dir)
    }

    fn walk(&mut self, ino: Ino, cookie: u64, plus: bool, f: Walk<'_, Core>) -> Result<()> {
        let dir = self.iget(ino)?;
        for (n, name, target) in [(1, &b"."[..], ino), (2, b"..", Ino(dir.d.parent.get()))] {
            let dots = Walked { ino: target, file_type: FileType::Dir, cookie: n };
            if cookie < n && !f(self, dots, name)? {
                return Ok(());
            }
        }
        let from = (cookie + 1).saturating_sub(COOKIE_BASE);
        self.dir_walk(&dir, from, plus, &mut |core, found, name| {
            let file_type = FileType::from_mode(u32::from(found.kind) << 12).unwrap_or(FileType::File);
            f(core, Walked { ino: found.ino, file_type, cookie: found.key + COOKIE_BASE }, name)
        })
    }
}

impl Namespace for Core {
    fn make(&mut self, dir: &Node, name: &[u8], room: Seq, new: &NewInode<'_>, now: Time) -> Result<Attr> {
        self.need_new_xattrs(new.xattrs)?;
        self.need_target(new.target)?;
        let mut parent = self.iget(dir.ino)?;
        let seq = self.need_entry(&parent, name, room)?;
        self.need_inode()?;
        self.begin()?;
        let is_dir = new.file_type() == FileType::Dir;
        let ag = if is_dir { self.dirpref(dir.ino, self.root()) } else { self.inode_ag(&parent) };
        let mut i = self.inew(ag, new.mode, new.uid, new.gid, now)?;
        if is_dir {
            i.d.parent = dir.ino.0.into();
            parent.d.nlink = parent.d.nlink.get().saturating_add(1).into();
        }
        if is_dir || new.rdev != 0 {
            i.d.rdev = new.rdev.into();
            self.iput(&i)?;
        }
        self.dir_insert(&mut parent, name, seq, i.ino, new.file_type())?;
        touch_dir(&mut parent, now);
        self.iput(&parent)?;
        if !new.target.is_empty() {
            self.store_target(&mut i, new.target)?;
        }
        if !new.xattrs.is_empty() {
            self.xattr_store(&mut i, new.xattrs)?;
            self.iput(&i)?;
        }
        self.commit(now);
        Ok(self.attr_of(&i))
    }

    fn make_unnamed(&mut self, dir: &Node, new: &NewInode<'_>, now: Time) -> Result<Attr> {
        let dir = self.iget(dir.ino)?;
        self.need_inode()?;
        self.begin()?;
        let mut i = self.inew(self.inode_ag(&dir), new.mode, new.uid, new.gid, now)?;
        i.d.nlink = 0.into();
        self.lives.refs.add(i.ino);
        lifetimes::orphan(self, &mut i)?;
        self.lives.set_unnamed(i.ino);
        self.commit(now);
        Ok(self.attr_of(&i))
    }

    fn link(&mut self, dir: &Node, name: &[u8], room: Seq, node: &Node, now: Time) -> Result<Attr> {
        let (mut parent, mut i) = (self.iget(dir.ino)?, self.iget(node.ino)?);
        let seq = self.need_entry(&parent, name, room)?;
        self.begin()?;
        self.dir_insert(&mut parent, name, seq, i.ino, node.file_type())?;
        touch_dir(&mut parent, now);
        self.iput(&parent)?;
        if i.d.nlink.get() == 0 {
            lifetimes::unorphan(self, &mut i)?;
        }
        i.d.nlink = i.d.nlink.get().saturating_add(1).into();
        self.set_ctime(&mut i, now);
        self.iput(&i)?;
        self.commit(now);
        Ok(self.attr_of(&i))
    }

    fn remove(&mut self, dir: &Node, _name: &[u8], slot: Found, node: &Node, now: Time) -> Result<()> {
        let (mut dir, mut i) = (self.iget(dir.ino)?, self.iget(node.ino)?);
        self.need_freeing(i.ino)?;
        self.begin()?;
        self.dir_remove(&mut dir, slot.key)?;
        touch_dir(&mut dir, now);
        if i.is_dir() {
            dir.d.nlink = dir.d.nlink.get().saturating_sub(1).into();
        }
        self.iput(&dir)?;
        self.drop_link(&mut i, now)?;
        self.commit(now);
        Ok(())
    }

    fn rename(&mut self, m: Move<'_, Found, Seq>, now: Time) -> Result<()> {
        let same = m.dir.ino == m.new_dir.ino;
        let (mut dir, mut new_dir, mut i) = (self.iget(m.dir.ino)?, self.iget(m.new_dir.ino)?, self.iget(m.node.ino)?);
        let seq = match m.target {
            Target::Free(seq) => self.need_entry(&new_dir, m.new_name, seq)?,
            Target::Replaced(..) => 0,
        };
        let mut target = match &m.target {
            Target::Replaced(_, t) => Some(self.iget(t.ino)?),
            Target::Free(_) => None,
        };
        target.iter().try_for_each(|t| self.need_freeing(t.ino))?;
        if m.whiteout.is_some() {
            self.need_inode()?;
        }
        self.begin()?;
        match &m.target {
            Target::Replaced(d, _) => self.dir_replace(&new_dir, d.key, i.ino, m.node.file_type())?,
            Target::Free(_) => {
                self.dir_insert(&mut new_dir, m.new_name, seq, i.ino, m.node.file_type())?;
                if same {
                    dir = new_dir;
                }
            }
        }
        if let Some(cx) = m.whiteout {
            let w = self.inew(self.inode_ag(&dir), mode::IFCHR, cx.uid, cx.gid, now)?;
            self.dir_replace(&dir, m.slot.key, w.ino, FileType::Char)?;
        } else {
            self.dir_remove(&mut dir, m.slot.key)?;
        }
        if let Some(t) = target.as_mut().filter(|t| t.is_dir()) {
            t.d.nlink = 0.into();
            add_links(if same { &mut dir } else { &mut new_dir }, -1);
        }
        if i.is_dir() && !same {
            add_links(&mut dir, -1);
            add_links(&mut new_dir, 1);
            i.d.parent = new_dir.ino.0.into();
        }
        self.put_dirs(&mut dir, &mut new_dir, now)?;
        self.set_ctime(&mut i, now);
        self.iput(&i)?;
        if let Some(t) = &mut target {
            self.drop_link(t, now)?;
        }
        self.commit(now);
        Ok(())
    }

    fn exchange(&mut self, a: Place<Found>, b: Place<Found>, now: Time) -> Result<()> {
        let (mut dir, mut new_dir) = (self.iget(a.dir.ino)?, self.iget(b.dir.ino)?);
        let (mut i, mut j) = (self.iget(a.node.ino)?, self.iget(b.node.ino)?);
        self.begin()?;
        self.dir_replace(&dir, a.slot.key, j.ino, b.node.file_type())?;
        self.dir_replace(&new_dir, b.slot.key, i.ino, a.node.file_type())?;
        if dir.ino != new_dir.ino {
            let (out, inn) = (i64::from(i.is_dir()), i64::from(j.is_dir()));
            add_links(&mut dir, inn - out);
            add_links(&mut new_dir, out - inn);
            if i.is_dir() {
                i.d.parent = new_dir.ino.0.into();
            }
            if j.is_dir() {
                j.d.parent = dir.ino.0.into();
            }
        }
        self.put_dirs(&mut dir, &mut new_dir, now)?;
        for x in [&mut i, &mut j] {
            self.set_ctime(x, now);
            self.iput(x)?;
        }
        self.commit(now);
        Ok(())
    }
}

fn facts(i: &Inode) -> Node {
    let links = i.d.nlink.get();
    Node { ino: i.ino, mode: i.d.mode.get(), gid: i.d.gid.get(), links, is_full: links >= LINK_MAX }
}

fn touch_dir(dir: &mut Inode, now: Time) {
    dir.d.set_mtime(now);
    dir.d.set_ctime(now);
}

fn add_links(dir: &mut Inode, more: i64) {
    let links = (i64::from(dir.d.nlink.get()) + more).max(0);
    dir.d.nlink = u32::try_from(links).unwrap_or(u32::MAX).into();
}

impl Core {
    /// Checks for the space that an entry may need; returns its number.
    fn need_entry(&mut self, dir: &Inode, name: &[u8], seq: Seq) -> Result<u16> {
        self.dir_insert_fits(dir, name)?;
        seq.ok_or_else(|| Errno::ENOSPC.into())
    }

    /// Stores two directories, perhaps the same one, that were changed now.
    fn put_dirs(&mut self, dir: &mut Inode, new_dir: &mut Inode, now: Time) -> Result<()> {
        touch_dir(dir, now);
        self.iput(dir)?;
        if dir.ino != new_dir.ino {
            touch_dir(new_dir, now);
            self.iput(new_dir)?;
        }
        Ok(())
    }
}

impl Inodes for Core {
    fn set_attr(&mut self, ino: Ino, set: &SetAttr, now: Time) -> Result<()> {
        let mut i = self.iget(ino)?;
        self.begin()?;
        self.apply(&mut i, &Change::new(set, now));
        self.iput(&i)?;
        self.commit(now);
        Ok(())
    }

    fn set_size(&mut self, ino: Ino, to: u64, now: Time) -> Result<bool> {
        self.step_size(ino, to, now)
    }

    fn target(&mut self, ino: Ino) -> Result<Vec<u8>> {
        let i = self.iget(ino)?;
        if i.is_symlink() { self.read_target(&i) } else { Err(Errno::EINVAL.into()) }
    }

    fn xattrs(&mut self, ino: Ino) -> Result<Xattrs> {
        let i = self.iget(ino)?;
        self.xattr_list(&i)
    }

    fn set_xattrs(&mut self, ino: Ino, list: &Xattrs, grows: bool, set: &SetAttr, now: Time) -> Result<()> {
        let mut i = self.iget(ino)?;
        self.check_xattrs(&i, list, grows)?;
        self.begin()?;
        self.xattr_store(&mut i, list)?;
        self.apply(&mut i, &Change::new(set, now));
        self.iput(&i)?;
        self.commit(now);
        Ok(())
    }
}

impl served::Volume for Volume {
    type Core = Core;

    fn root(&self) -> Ino {
        self.root
    }

    fn peek<R>(&self, f: impl FnOnce(&mut Core) -> R) -> R {
        f(&mut self.core.lock())
    }

    fn run<R>(&self, f: impl FnMut(&mut Core) -> Result<R>) -> Result<R> {
        Volume::run(self, f)
    }

    fn change<R>(&self, f: impl FnMut(&mut Core, Time) -> Result<R>) -> Result<R> {
        Volume::change(self, f)
    }

    /// Writes back a file that replaces another: who does so without fsync expects one of the two after a crash.
    fn before_rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8])) -> Result<()> {
        let ino = self.run(|core| {
            let (dir, new_dir) = (core.iget_dir(from.0)?, core.iget_dir(to.0)?);
            let src = core.dir_find(&dir, from.1)?.ino;
            let replaces = matches!(core.dir_lookup(&new_dir, to.1)?, dir::Lookup::Found(_));
            Ok(replaces.then_some(src))
        })?;
        ino.map_or(Ok(()), |ino| self.flush_one(ino))
    }

    fn forget(&self, ino: Ino, count: u64) {
        let mut core = self.core.lock();
        core.lives.forget(ino, count);
        if core.lives.inactive() > 256 {
            self.pressed.store(true, Relaxed);
        }
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.read_file(ino, offset, buf)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        let mut done = 0;
        // Small against the cache, so that writers are throttled between them.
        for piece in data.chunks((self.opts.cache_bytes / 16).clamp(64 << 10, 1 << 20)) {
            let at = offset + done as u64;
            let n = self.change(|core, now| core.write_pages(ino, at, piece, now));
            if !self.opts.ways.delays
                && let Ok(n) = n
            {
                self.place(ino, at, at + n as u64);
            }
            match n {
                Ok(n) if n == piece.len() => done += n,
                Ok(n) => return Ok(done + n),
                Err(_) if done > 0 => return Ok(done),
                Err(e) => return Err(e),
            }
        }
        if data.is_empty() {
            self.change(|core, now| core.write_pages(ino, offset, data, now))?;
        }
        Ok(done)
    }

    /// Also notes what a walk is about to need.
    fn readdir(&self, ino: Ino, cookie: u64, plus: bool, f: Take<'_>) -> Result<()> {
        let reads = self.counters.metadata_reads.load(Relaxed);
        let (end, done) = served::walk(self, ino, cookie, plus, f);
        if plus && done.is_ok() {
            let missed = self.counters.metadata_reads.load(Relaxed) != reads;
            self.note_walk(ino, &end, missed);
        }
        done
    }

    fn fsync(&self, ino: Ino, _data_only: bool) -> Result<()> {
        {
            let core = self.core.lock();
            core.health.check_alive()?;
            core.health.check_ordered()?;
        }
        let is_dir = self.run(|core| core.iget(ino).map(|i| i.is_dir()))?;
        if is_dir && planted(Flaw::NoDirectorySync) {
            return Ok(());
        }
        let mut io = self.order();
        self.write_back(&mut io, Which::One(ino))?;
        self.flush_log(&mut io)
    }

    fn syncfs(&self) -> Result<()> {
        if planted(Flaw::SyncForgetsData) {
            return self.flush_log(&mut self.order());
        }
        self.sync_all()
    }

    fn fallocate(&self, ino: Ino, mode: FallocMode, offset: u64, len: u64) -> Result<()> {
        self.falloc(ino, mode, offset, len)
    }

    fn seek(&self, ino: Ino, offset: u64, whence: Seek) -> Result<u64> {
        self.seek_file(ino, offset, whence)
    }

    fn label(&self) -> Result<Vec<u8>> {
        let core = self.core.lock();
        core.health.check_alive()?;
        Ok(label_of(&core.sb.label))
    }

    fn set_label(&self, field: [u8; 64]) -> Result<()> {
        self.change(|core, now| {
            core.begin()?;
            core.sb.label = field;
            core.log_super()?;
            for at in core.geom.early_copies() {
                core.log_copy(Daddr(at / SECTOR))?;
            }
            core.commit(now);
            Ok(())
        })?;
        self.flush_log(&mut self.order())
    }

    fn statfs(&self) -> Result<StatFs> {
        self.drain_inactive()?;
        self.run(|core| {
            let g = &core.geom;
            let overhead = u64::from(g.ag_count) * u64::from(g.ag_meta_frags());
            let log = if core.sb.incompat.get() & INCOMPAT_EXTERNAL_LOG == 0 {
                core.sb.log_sectors.get() / g.frag_sectors()
            } else {
                0
            };
            let free = core.space.free() + core.marked_free();
            let free = free.saturating_sub(core.delayed.reserved());
            let spare = core.space.inodes_free();
            let more = free / u64::from(g.chunk_frags()) * CHUNK_INODES;
            Ok(StatFs {
                frsize: g.frag_size() as u32,
                bsize: g.block_size() as u32,
                blocks: g.frags.saturating_sub(overhead + log),
                bfree: free,
                bavail: free.saturating_sub(core.space.pool()),
                files: core.space.inodes_used() + spare + more,
                ffree: spare + more,
                namelen: 255,
                fsid: g.fsid,
            })
        })
    }

    fn trim(&self, range: &TrimRange) -> Result<u64> {
        self.core.lock().health.check_writable()?;
        self.sync_all()?;
        self.trim_free(range)
    }

    fn background(&self, now: Time) -> Time {
        self.daemon(now)
    }

    fn wants_background(&self) -> bool {
        self.pressed.load(Relaxed)
    }

    fn read_ahead(&self) {
        self.walk_ahead();
    }

    fn wants_read_ahead(&self) -> bool {
        self.walked.load(Relaxed)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let core = self.core.lock();
        let c = &self.counters;
        let mut all = core.cache.counters();
        all.extend([
            ("windows_read", core.windows.made()),
            ("windows_hits", core.windows.hits()),
            ("windows_bytes", core.windows.bytes()),
            ("log_bytes", core.log.bytes_logged),
            ("log_records", core.log.records),
            ("log_transactions", core.log.transactions),
            ("log_used_bytes", core.log.used_bytes()),
            ("flushes", c.flushes.load(Relaxed)),
            ("data_reads", c.data_reads.load(Relaxed)),
            ("data_read_bytes", c.data_read_bytes.load(Relaxed)),
            ("data_writes", c.data_writes.load(Relaxed)),
            ("data_write_bytes", c.data_write_bytes.load(Relaxed)),
            ("metadata_reads", c.metadata_reads.load(Relaxed) + core.metadata_reads),
            ("stalls", c.stalls.load(Relaxed)),
        ]);
        all
    }

    fn unmount(&self) -> Result<()> {
        self.close()
    }
}

impl Volume {
    /// Notes that entries of a directory were given out.
    fn note_walk(&self, ino: Ino, end: &WalkEnd, missed: bool) {
        let core = &mut *self.core.lock();
        if core.cache.limit() < WALK_CACHE {
            return;
        }
        match end.stopped.map(|at| (at + 1).saturating_sub(COOKIE_BASE)) {
            None => core.walks.ended(ino.0, &end.dirs, missed),
            Some(next) => core.walks.stopped(ino.0, next, &end.dirs, missed),
        }
        self.walked.store(core.walks.has_piece(), Relaxed);
    }

    /// Reads a piece of what walks are about to need. Errors are reported when a walk comes there.
    fn walk_ahead(&self) {
        let Some((dir, from)) = self.next_piece() else { return };
        let reads = self.counters.metadata_reads.load(Relaxed);
        let _ = self.run(|core| {
            // Without a reference the directory may have been freed since, and its inode reused.
            if !core.lives.refs.has(Ino(dir)) && Ino(dir) != self.root {
                return Err(Errno::ESTALE.into());
            }
            let dir = core.iget_dir(Ino(dir))?;
            let mut left = WALK_AHEAD;
            core.dir_walk(&dir, from, true, &mut |_, _, _| {
                left -= 1;
                Ok(left > 0)
            })
        });
        let missed = self.counters.metadata_reads.load(Relaxed) != reads;
        let core = &mut *self.core.lock();
        core.walks.brought(missed);
        self.walked.store(core.walks.has_piece(), Relaxed);
    }

    /// The next piece to read. It is taken even if reading it fails.
    fn next_piece(&self) -> Option<Piece> {
        let core = &mut *self.core.lock();
        let piece = core.walks.take();
        self.walked.store(core.walks.has_piece(), Relaxed);
        piece
    }
}
