//! `impl FileSystem`: names, checks and transactions of every call.

use crate::btree::Tree;
use crate::dir::Lookup;
use crate::file::MapStore;
use crate::file::Which;
use crate::format::*;
use crate::inode::{Inode, LINK_MAX};
use crate::mount::{Core, Volume, What};
use crate::planted::{Flaw, planted};
use arbor_base::cache::walks::Piece;
use arbor_base::vfs::*;
use arbor_kit::xattr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const COOKIE_BASE: u64 = 3;
/// Entries of a directory that are brought ahead of a walk at a time.
const WALK_AHEAD: u32 = 512;
/// A smaller cache may lose what is brought before it is used.
const WALK_CACHE: usize = 16 << 20;

impl Core {
    fn hold(&mut self, i: &Inode) -> Entry {
        self.refs.add(i.ino);
        self.attr(i)
    }

    /// The free name `name` in a directory: number for the new entry. `EEXIST` if it is taken.
    fn vacant(&mut self, dir: &Inode, name: &[u8]) -> Result<u16> {
        if dir.d.nlink.get() == 0 {
            return Err(Errno::ENOENT.into());
        }
        match self.dir_lookup(dir, name)? {
            Lookup::Found(_) => Err(Errno::EEXIST.into()),
            Lookup::Missing { seq } => {
                self.dir_insert_fits(dir, name)?;
                seq.ok_or_else(|| Errno::ENOSPC.into())
            }
        }
    }

    fn touch_dir(&mut self, dir: &mut Inode, now: Time) {
        dir.d.set_mtime(now);
        dir.d.set_ctime(now);
    }

    /// Makes an inode and its name.
    fn create(
        &mut self,
        cx: &Cx,
        parent: Ino,
        name: &[u8],
        (m, rdev): (u32, u32),
        root: Ino,
        now: Time,
    ) -> Result<Inode> {
        let mut dir = self.iget_dir(parent)?;
        let seq = self.vacant(&dir, name)?;
        self.need_inode()?;
        let is_dir = m & mode::IFMT == mode::IFDIR;
        if is_dir && dir.d.nlink.get() >= LINK_MAX {
            return Err(Errno::EMLINK.into());
        }
        let t = FileType::from_mode(m).ok_or(Errno::EINVAL)?;
        let (gid, m) = self.inherit(&dir, cx.gid, m);
        self.begin()?;
        let ag = if is_dir { self.dirpref(parent, root) } else { self.inode_ag(&dir) };
        let mut i = self.inew(ag, m, cx.uid, gid, now)?;
        if is_dir {
            i.d.parent = parent.0.into();
            dir.d.nlink = (dir.d.nlink.get() + 1).into();
        }
        if is_dir || rdev != 0 {
            i.d.rdev = rdev.into();
            self.iput(&i)?;
        }
        self.dir_insert(&mut dir, name, seq, i.ino, t)?;
        self.touch_dir(&mut dir, now);
        self.iput(&dir)?;
        Ok(i)
    }

    fn inherit(&self, dir: &Inode, gid: u32, m: u32) -> (u32, u32) {
        if dir.d.mode.get() & mode::ISGID == 0 {
            return (gid, m);
        }
        let bit = if m & mode::IFMT == mode::IFDIR { mode::ISGID } else { 0 };
        (dir.d.gid.get(), m | bit)
    }

    /// Takes one name from an inode in the open transaction.
    fn drop_link(&mut self, i: &mut Inode, now: Time) -> Result<()> {
        let left = if i.is_dir() { 0 } else { i.d.nlink.get().saturating_sub(1) };
        i.d.nlink = left.into();
        i.d.set_ctime(now);
        if let Some(d) = self.delayed.get_mut(&i.ino.0) {
            d.ctime = now;
        }
        if left > 0 {
            return self.iput(i);
        }
        // What nobody uses is freed at once, if one transaction can do it.
        if !self.refs.has(i.ino) && self.release(i)? { self.ifree(i) } else { self.orphan(i) }
    }

    /// Gives the blocks of an inode back that has neither names nor users, as far as the open
    /// transaction goes; says whether it has none left.
    fn release(&mut self, i: &mut Inode) -> Result<bool> {
        self.undelay(i.ino);
        self.cache.drop_pages(i.ino.0, 0, u64::MAX);
        self.versions.change(i.ino);
        if i.is_dir() {
            self.dir_clear(i)?;
        } else if i.is_symlink() {
            if i.format() != Format::Inline {
                let (start, frags) = self.symlink_block(i)?;
                self.free_block(start, frags)?;
            }
        } else {
            return Ok(self.truncate_step(i, 0)? == 0);
        }
        Ok(true)
    }

    fn set_ctime(&mut self, i: &mut Inode, now: Time) {
        i.d.set_ctime(now);
        if let Some(d) = self.delayed.get_mut(&i.ino.0) {
            d.ctime = now;
        }
    }

    /// Whether directory `a` is `b` or lies above it.
    fn is_above(&mut self, a: Ino, b: Ino, root: Ino) -> Result<bool> {
        let mut at = b;
        let mut steps = 0u32;
        while at != a {
            if at == root {
                return Ok(false);
            }
            let i = self.iget_dir(at)?;
            steps += 1;
            if steps > 1 << 20 {
                return Err(i.corrupt("parent", i.d.parent, "a path to the root").into());
            }
            at = Ino(i.d.parent.get());
        }
        Ok(true)
    }

    fn apply(&mut self, i: &mut Inode, set: &SetAttr, now: Time) {
        let d = &mut i.d;
        if let Some(m) = set.mode {
            d.mode = (d.mode.get() & mode::IFMT | m & 0o7777).into();
        }
        if let Some(u) = set.uid {
            d.uid = u.into();
        }
        if let Some(g) = set.gid {
            d.gid = g.into();
        }
        let at = |t: SetTime| match t {
            SetTime::Now => Some(now),
            SetTime::At(t) => Some(t),
            SetTime::Kept => None,
        };
        let ctime = set.ctime.map_or(Some(now), at);
        let mtime = set.mtime.and_then(at);
        if let Some(t) = set.atime.and_then(at) {
            d.set_atime(t);
        }
        if let Some(t) = mtime {
            d.set_mtime(t);
        }
        if let Some(t) = set.btime.and_then(at) {
            d.set_btime(t);
        }
        if let Some(t) = ctime {
            d.set_ctime(t);
        }
        if let Some(x) = self.delayed.get_mut(&i.ino.0) {
            x.ctime = ctime.unwrap_or(x.ctime);
            x.mtime = mtime.unwrap_or(x.mtime);
        }
    }

    /// One step of a truncation; `false` if more is to do.
    fn shrink_to(&mut self, i: &mut Inode, to: u64, now: Time) -> Result<bool> {
        self.begin()?;
        let on_disk = i.d.size.get();
        i.d.set_mtime(now);
        i.d.set_ctime(now);
        let reserved = self.reserved_from(i, to)?;
        let reached = self.truncate_step(i, to)?;
        if reached == to {
            self.unreserve(i.ino, reserved);
        }
        // Pages go only where the blocks are gone: others may look between the steps, and what lies
        // in a block whose data is on its way is not the file's.
        self.cut_pages(i.ino, reached);
        let dirty = self.cache.dirty_pages(i.ino.0, 0).next().is_some();
        if dirty {
            self.delay(i, now);
        } else if reached <= on_disk {
            self.undelay(i.ino);
        }
        if let Some(d) = self.delayed.get_mut(&i.ino.0) {
            (d.size, d.mtime, d.ctime) = (d.size.min(reached), now, now);
        }
        let (done, keep) = (reached == to, on_disk.min(to));
        if done && i.d.size.get() != keep {
            i.d.size = keep.into();
            self.iput(i)?;
        }
        Ok(done)
    }

    /// Buffer of a long symbolic link's target.
    fn symlink_block(&mut self, i: &Inode) -> Result<(Frag, u32)> {
        let e = self.extent_at(i, 0)?.ok_or_else(|| i.corrupt("format", "no extent", "the target's block"))?;
        Ok((e.start, e.len))
    }

    fn symlink_target(&mut self, i: &Inode) -> Result<Vec<u8>> {
        let size = i.d.size.get() as usize;
        if i.format() == Format::Inline {
            return self.area(i, |a| a.get(..size).unwrap_or(&[]).to_vec());
        }
        let (start, frags) = self.symlink_block(i)?;
        let len = (u64::from(frags) * self.geom.frag_size()) as usize;
        if len > crate::recover::MAX_BUFFER {
            return Err(i.corrupt("extent", frags, "a block for a path").into());
        }
        let bytes = self.buffer(self.geom.daddr(start), len, What::Block(BlockType::Symlink))?;
        let target = bytes.get(HEADER..).and_then(|b| b.get(..size)).map(<[u8]>::to_vec);
        target.ok_or_else(|| i.corrupt("size", size, "a target within its block").into())
    }

    fn store_symlink(&mut self, i: &mut Inode, target: &[u8]) -> Result<()> {
        i.d.size = (target.len() as u64).into();
        if target.len() <= self.area_len(i) {
            self.area_write(i, 0, target)?;
            return self.iput(i);
        }
        let frags = (target.len() + HEADER).div_ceil(self.geom.frag_size() as usize) as u32;
        let e = self.alloc_run(self.inode_ag(i), frags)?;
        let addr = self.geom.daddr(e.start);
        self.init_block(addr, BlockType::Symlink, i.ino.0, (u64::from(frags) * self.geom.frag_size()) as usize)?;
        self.write(addr, Seal::Block, HEADER, target)?;
        i.d.format = Format::Extent as u8;
        i.d.frags = (i.d.frags.get() + u64::from(frags)).into();
        let v = crate::alloc::make_extent(e.start, e.len, 0);
        Tree::<_, EXTENT_VALUE>::new(&mut MapStore::file(self, i)).insert(0, &v)?;
        self.iput(i)
    }

    /// Frees inodes that have neither names nor users, as far as one transaction goes.
    fn inactivate(&mut self, now: Time) -> Result<bool> {
        while let Some(&ino) = self.inactive.front() {
            if self.orphans.contains_key(&ino) && !self.refs.has(Ino(ino)) {
                break;
            }
            self.inactive.pop_front();
        }
        if self.inactive.is_empty() {
            return Ok(false);
        }
        self.begin()?;
        while let Some(&ino) = self.inactive.front() {
            if self.tx_full() {
                break;
            }
            self.inactive.pop_front();
            if !self.orphans.contains_key(&ino) || self.refs.has(Ino(ino)) {
                continue;
            }
            let mut i = self.iget(Ino(ino))?;
            let done = self.release(&mut i)?;
            if done {
                self.ifree(&mut i)?;
            } else {
                self.inactive.push_front(ino);
            }
        }
        self.commit(now);
        Ok(!self.inactive.is_empty())
    }
}

impl Core {
    /// Takes a file a step nearer to the size `to`; says whether it has it.
    fn set_size(&mut self, ino: Ino, to: u64, now: Time) -> Result<bool> {
        let mut i = self.iget(ino)?;
        if !i.is_file() {
            return Err(if i.is_dir() { Errno::EISDIR } else { Errno::EINVAL }.into());
        }
        if to > self.size_of(&i) {
            return self.extend(ino, to, now).map(|()| true);
        }
        let done = self.shrink_to(&mut i, to, now)?;
        self.commit(now);
        Ok(done)
    }
}

impl Volume {
    pub(crate) fn drain_inactive(&self) -> Result<()> {
        while self.run(|core| {
            if !core.health.is_writable() {
                return Ok(false);
            }
            core.inactivate(self.clock.now())
        })? {}
        Ok(())
    }

    fn make(&self, cx: &Cx, parent: Ino, name: &[u8], new: &New<'_>) -> Result<Entry> {
        check_name(name)?;
        let list = xattr::new_list(new.xattrs)?;
        self.change(|core, now| {
            core.need_new_xattrs(&list)?;
            let mut i = core.create(cx, parent, name, (new.mode, new.rdev), self.root, now)?;
            if !list.is_empty() {
                core.xattr_store(&mut i, &list)?;
                core.iput(&i)?;
            }
            core.commit(now);
            Ok(core.hold(&i))
        })
    }

    fn remove(&self, parent: Ino, name: &[u8], want_dir: bool) -> Result<()> {
        if want_dir && name == b"." {
            return Err(Errno::EINVAL.into());
        }
        if want_dir && name == b".." {
            return Err(Errno::ENOTEMPTY.into());
        }
        check_name(name)?;
        self.change(|core, now| {
            let mut dir = core.iget_dir(parent)?;
            let found = core.dir_find(&dir, name)?;
            let mut i = core.iget(found.ino)?;
            match (i.is_dir(), want_dir) {
                (true, false) => return Err(Errno::EISDIR.into()),
                (false, true) => return Err(Errno::ENOTDIR.into()),
                (true, true) if !core.dir_is_empty(&i)? => return Err(Errno::ENOTEMPTY.into()),
                _ => {}
            }
            core.begin()?;
            core.dir_remove(&mut dir, found.key)?;
            core.touch_dir(&mut dir, now);
            if i.is_dir() {
                self.tree.fetch_add(1, Release);
                dir.d.nlink = dir.d.nlink.get().saturating_sub(1).into();
            }
            core.iput(&dir)?;
            core.drop_link(&mut i, now)?;
            core.commit(now);
            Ok(())
        })
    }

    fn move_name(&self, cx: &Cx, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: RenameFlags) -> Result<()> {
        self.change(|core, now| {
            self.tree.fetch_add(1, Release);
            let mut dir = core.iget_dir(from.0)?;
            let mut new_dir = core.iget_dir(to.0)?;
            let src = core.dir_find(&dir, from.1)?;
            let mut i = core.iget(src.ino)?;
            let dst = match core.dir_lookup(&new_dir, to.1)? {
                Lookup::Found(f) => Some(f),
                Lookup::Missing { .. } => None,
            };
            match (&dst, flags) {
                (Some(_), f) if f.contains(RenameFlags::NOREPLACE) => return Err(Errno::EEXIST.into()),
                (None, f) if f.contains(RenameFlags::EXCHANGE) => return Err(Errno::ENOENT.into()),
                _ => {}
            }
            if i.is_dir() && core.is_above(i.ino, to.0, self.root)? {
                return Err(Errno::EINVAL.into());
            }
            if let Some(d) = &dst {
                if flags.contains(RenameFlags::EXCHANGE) {
                    let j = core.iget(d.ino)?;
                    if j.is_dir() && core.is_above(j.ino, from.0, self.root)? {
                        return Err(Errno::EINVAL.into());
                    }
                    return core.exchange((dir, src.key, i), (new_dir, d.key, j), now);
                }
                if d.ino == i.ino {
                    return Ok(());
                }
                if core.is_above(d.ino, from.0, self.root)? {
                    return Err(Errno::ENOTEMPTY.into());
                }
            }
            let same = from.0 == to.0;
            let mut target = match &dst {
                Some(d) => Some(core.replaceable(&i, d.ino)?),
                None => None,
            };
            let mut seq = 0;
            if dst.is_none() {
                seq = core.vacant(&new_dir, to.1)?;
                if i.is_dir() && !same && new_dir.d.nlink.get() >= LINK_MAX {
                    return Err(Errno::EMLINK.into());
                }
            }
            if flags.contains(RenameFlags::WHITEOUT) {
                core.need_inode()?;
            }
            core.begin()?;
            let t = FileType::from_mode(i.d.mode.get()).unwrap_or(FileType::File);
            match &dst {
                Some(d) => core.dir_replace(&new_dir, d.key, i.ino, t)?,
                None => {
                    core.dir_insert(&mut new_dir, to.1, seq, i.ino, t)?;
                    if same {
                        dir = new_dir;
                    }
                }
            }
            if flags.contains(RenameFlags::WHITEOUT) {
                let ag = core.inode_ag(&dir);
                let w = core.inew(ag, mode::IFCHR, cx.uid, cx.gid, now)?;
                core.dir_replace(&dir, src.key, w.ino, FileType::Char)?;
            } else {
                core.dir_remove(&mut dir, src.key)?;
            }
            let links = |d: &mut Inode, by: i64| {
                d.d.nlink = (i64::from(d.d.nlink.get()) + by).max(0).try_into().unwrap_or(u32::MAX).into();
            };
            if let Some(t) = target.as_mut().filter(|t| t.is_dir()) {
                t.d.nlink = 0.into();
                links(if same { &mut dir } else { &mut new_dir }, -1);
            }
            if i.is_dir() && !same {
                links(&mut dir, -1);
                links(&mut new_dir, 1);
                i.d.parent = to.0.0.into();
            }
            core.touch_dir(&mut dir, now);
            core.iput(&dir)?;
            if !same {
                core.touch_dir(&mut new_dir, now);
                core.iput(&new_dir)?;
            }
            core.set_ctime(&mut i, now);
            core.iput(&i)?;
            if let Some(t) = &mut target {
                core.drop_link(t, now)?;
            }
            core.commit(now);
            Ok(())
        })
    }
}

impl Core {
    /// The inode a rename of `i` would replace, if it may.
    fn replaceable(&mut self, i: &Inode, ino: Ino) -> Result<Inode> {
        let t = self.iget(ino)?;
        match (i.is_dir(), t.is_dir()) {
            (true, false) => Err(Errno::ENOTDIR.into()),
            (false, true) => Err(Errno::EISDIR.into()),
            (true, true) if !self.dir_is_empty(&t)? => Err(Errno::ENOTEMPTY.into()),
            _ => Ok(t),
        }
    }

    fn exchange(&mut self, a: (Inode, u64, Inode), b: (Inode, u64, Inode), now: Time) -> Result<()> {
        let ((mut dir, key, mut i), (mut new_dir, new_key, mut j)) = (a, b);
        if i.ino == j.ino {
            return Ok(());
        }
        let same = dir.ino == new_dir.ino;
        let grows =
            |to: &Inode, i: &Inode, other: &Inode| i.is_dir() && !other.is_dir() && to.d.nlink.get() >= LINK_MAX;
        if !same && (grows(&new_dir, &i, &j) || grows(&dir, &j, &i)) {
            return Err(Errno::EMLINK.into());
        }
        let kind = |i: &Inode| FileType::from_mode(i.d.mode.get()).unwrap_or(FileType::File);
        self.begin()?;
        self.dir_replace(&dir, key, j.ino, kind(&j))?;
        self.dir_replace(&new_dir, new_key, i.ino, kind(&i))?;
        if !same {
            let (out, inn) = (u32::from(i.is_dir()), u32::from(j.is_dir()));
            dir.d.nlink = (dir.d.nlink.get() + inn).saturating_sub(out).into();
            new_dir.d.nlink = (new_dir.d.nlink.get() + out).saturating_sub(inn).into();
            if i.is_dir() {
                i.d.parent = new_dir.ino.0.into();
            }
            if j.is_dir() {
                j.d.parent = dir.ino.0.into();
            }
        }
        self.touch_dir(&mut dir, now);
        self.iput(&dir)?;
        if !same {
            self.touch_dir(&mut new_dir, now);
            self.iput(&new_dir)?;
        }
        for x in [&mut i, &mut j] {
            self.set_ctime(x, now);
            self.iput(x)?;
        }
        self.commit(now);
        Ok(())
    }
}

impl FileSystem for Volume {
    fn root(&self) -> Ino {
        self.root
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Entry> {
        if name.len() > 255 {
            return Err(Errno::ENAMETOOLONG.into());
        }
        self.run(|core| {
            let dir = core.iget_dir(parent)?;
            let ino = match name {
                b"." => parent,
                b".." => Ino(dir.d.parent.get()),
                _ => core.dir_find(&dir, name)?.ino,
            };
            let i = core.iget(ino).map_err(|e| match e.errno() {
                Errno::ESTALE => dir.corrupt("entry", ino.0, "an inode in use").into(),
                _ => e,
            })?;
            Ok(core.hold(&i))
        })
    }

    fn forget(&self, ino: Ino, count: u64) {
        let mut core = self.core.lock();
        if core.refs.release(ino, count) && core.orphans.contains_key(&ino.0) {
            core.inactive.push_back(ino.0);
            if core.inactive.len() > 256 {
                self.pressed.store(true, Relaxed);
            }
        }
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.run(|core| {
            let i = core.iget(ino)?;
            Ok(core.attr(&i))
        })
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        let rest = SetAttr { size: None, ..*set };
        // Not again when what follows it has to wait: others may have written by then.
        let mut sized = false;
        loop {
            let done = self.change(|core, now| {
                if let Some(to) = set.size.filter(|_| !sized) {
                    sized = core.set_size(ino, to, now)?;
                    if !sized {
                        return Ok(None);
                    }
                }
                let mut i = core.iget(ino)?;
                if rest != SetAttr::default() {
                    core.begin()?;
                    core.apply(&mut i, &rest, now);
                    core.iput(&i)?;
                    core.commit(now);
                }
                // Under the same lock: what is returned is what this call has made.
                core.iget(ino).map(|i| Some(core.attr(&i)))
            })?;
            if let Some(attr) = done {
                return Ok(attr);
            }
        }
    }

    fn change(&self, ino: Ino, set: &SetAttr, xattrs: &[XattrChange<'_>]) -> Result<Attr> {
        Volume::change(self, |core, now| {
            let mut i = core.iget(ino)?;
            let list = xattr::changed(core.xattrs(&i)?, set, xattrs)?;
            core.check_xattrs(&i, &list)?;
            core.begin()?;
            core.xattr_store(&mut i, &list)?;
            core.apply(&mut i, set, now);
            core.iput(&i)?;
            core.commit(now);
            core.iget(ino).map(|i| core.attr(&i))
        })
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.run(|core| {
            let i = core.iget(ino)?;
            if i.is_symlink() { core.symlink_target(&i) } else { Err(Errno::EINVAL.into()) }
        })
    }

    fn mknod(&self, cx: &Cx, parent: Ino, name: &[u8], m: u32, rdev: u32) -> Result<Entry> {
        self.make(cx, parent, name, &New { mode: node_mode(m)?, rdev, xattrs: &[] })
    }

    fn mkdir(&self, cx: &Cx, parent: Ino, name: &[u8], m: u32) -> Result<Entry> {
        self.make(cx, parent, name, &New { mode: mode::IFDIR | m & 0o7777, ..New::default() })
    }

    fn create(&self, cx: &Cx, parent: Ino, name: &[u8], new: &New<'_>) -> Result<Entry> {
        self.make(cx, parent, name, &New { mode: new_mode(new.mode)?, ..*new })
    }

    fn symlink(&self, cx: &Cx, parent: Ino, name: &[u8], target: &[u8]) -> Result<Entry> {
        check_name(name)?;
        if target.is_empty() {
            return Err(Errno::ENOENT.into());
        }
        if target.len() > 4095 {
            return Err(Errno::ENAMETOOLONG.into());
        }
        self.change(|core, now| {
            let frags = (target.len() + HEADER).div_ceil(core.geom.frag_size() as usize) as u32;
            core.need_space(u64::from(frags))?;
            if target.len() > core.geom.area() {
                core.need_run(frags)?;
            }
            let mut i = core.create(cx, parent, name, (mode::IFLNK | 0o777, 0), self.root, now)?;
            core.store_symlink(&mut i, target)?;
            core.commit(now);
            Ok(core.hold(&i))
        })
    }

    fn tmpfile(&self, cx: &Cx, parent: Ino, m: u32) -> Result<Entry> {
        self.change(|core, now| {
            let dir = core.iget_dir(parent)?;
            core.need_inode()?;
            let (gid, m) = core.inherit(&dir, cx.gid, mode::IFREG | m & 0o7777);
            core.begin()?;
            let ag = core.inode_ag(&dir);
            let mut i = core.inew(ag, m, cx.uid, gid, now)?;
            i.d.nlink = 0.into();
            let entry = core.hold(&i);
            core.orphan(&mut i)?;
            core.unnamed.insert(i.ino.0);
            core.commit(now);
            Ok(Entry { nlink: 0, ..entry })
        })
    }

    fn link(&self, ino: Ino, new_parent: Ino, new_name: &[u8]) -> Result<Entry> {
        check_name(new_name)?;
        self.change(|core, now| {
            let mut i = core.iget(ino)?;
            if i.is_dir() {
                return Err(Errno::EPERM.into());
            }
            if i.d.nlink.get() >= LINK_MAX {
                return Err(Errno::EMLINK.into());
            }
            let mut dir = core.iget_dir(new_parent)?;
            let seq = core.vacant(&dir, new_name)?;
            if i.d.nlink.get() == 0 && !core.unnamed.contains(&ino.0) {
                return Err(Errno::ENOENT.into());
            }
            core.begin()?;
            let t = FileType::from_mode(i.d.mode.get()).unwrap_or(FileType::File);
            core.dir_insert(&mut dir, new_name, seq, ino, t)?;
            core.touch_dir(&mut dir, now);
            core.iput(&dir)?;
            if i.d.nlink.get() == 0 {
                core.unorphan(&mut i)?;
            }
            i.d.nlink = (i.d.nlink.get() + 1).into();
            core.set_ctime(&mut i, now);
            core.iput(&i)?;
            core.commit(now);
            Ok(core.hold(&i))
        })
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.remove(parent, name, false)
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.remove(parent, name, true)
    }

    fn rename(
        &self,
        cx: &Cx,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        check_name(name)?;
        check_name(new_name)?;
        let known = RenameFlags::from_bits(flags.bits()).is_some();
        if !known || flags.contains(RenameFlags::EXCHANGE) && flags != RenameFlags::EXCHANGE {
            return Err(Errno::EINVAL.into());
        }
        // Who replaces a file by a new one without fsync expects one of the two after a crash.
        let ino = self.run(|core| {
            let (dir, to) = (core.iget_dir(parent)?, core.iget_dir(new_parent)?);
            let src = core.dir_find(&dir, name)?.ino;
            let replaces = matches!(core.dir_lookup(&to, new_name)?, Lookup::Found(_));
            Ok(replaces.then_some(src))
        })?;
        if let Some(ino) = ino {
            self.flush_one(ino)?;
        }
        self.move_name(cx, (parent, name), (new_parent, new_name), flags)
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.read_file(ino, offset, buf)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        let mut done = 0;
        // Small against the cache, so that throttling comes between.
        for piece in data.chunks((self.opts.cache_bytes / 16).clamp(64 << 10, 1 << 20)) {
            let n = self.change(|core, now| core.write_pages(ino, offset + done as u64, piece, now));
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

    fn readdir(&self, ino: Ino, cookie: u64, f: &mut dyn FnMut(&DirEntry<'_>) -> bool) -> Result<()> {
        self.walk_dir(ino, cookie, false, &mut |e, _| f(e))
    }

    fn readdir_plus(
        &self,
        ino: Ino,
        cookie: u64,
        f: &mut dyn FnMut(&DirEntry<'_>, Option<&Entry>) -> bool,
    ) -> Result<()> {
        self.walk_dir(ino, cookie, true, f)
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

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        check_xattr_name(name)?;
        self.run(|core| {
            let i = core.iget(ino)?;
            let found = core.xattrs(&i)?.into_iter().find(|(n, _)| n == name);
            found.map(|(_, v)| v).ok_or_else(|| Errno::ENODATA.into())
        })
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], how: XattrMode) -> Result<()> {
        check_xattr_name(name)?;
        if value.len() > 64 * 1024 {
            return Err(Errno::E2BIG.into());
        }
        self.change_xattr(ino, name, Some(value), how)
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.run(|core| {
            let i = core.iget(ino)?;
            Ok(core.xattrs(&i)?.into_iter().map(|(n, _)| n).collect())
        })
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        check_xattr_name(name)?;
        self.change_xattr(ino, name, None, XattrMode::Set)
    }

    fn label(&self) -> Result<Vec<u8>> {
        let core = self.core.lock();
        core.health.check_alive()?;
        Ok(label_of(&core.sb.label))
    }

    fn set_label(&self, label: &[u8]) -> Result<()> {
        let field = label_field(label)?;
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
            let free = core.free + core.marked_free();
            let free = free.saturating_sub(core.reserved);
            let spare = core.inodes_free;
            let more = free / u64::from(g.chunk_frags()) * CHUNK_INODES;
            Ok(StatFs {
                frsize: g.frag_size() as u32,
                bsize: g.block_size() as u32,
                blocks: g.frags.saturating_sub(overhead + log),
                bfree: free,
                bavail: free.saturating_sub(core.pool),
                files: core.inodes_used() + spare + more,
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

    fn tree_version(&self) -> Option<u64> {
        Some(self.tree.load(Acquire))
    }

    fn failure(&self) -> Option<String> {
        self.core.lock().health.failure()
    }

    fn fail(&self, why: &str) {
        self.core.lock().health.give_up(why);
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let core = self.core.lock();
        let (s, c) = (core.cache.stats(), &self.counters);
        vec![
            ("cache_hits", s.hits),
            ("cache_misses", s.misses),
            ("cache_evictions", s.evictions),
            ("cache_bytes", s.bytes),
            ("cache_dirty_bytes", s.dirty_bytes),
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
        ]
    }

    fn unmount(&self) -> Result<()> {
        self.close()
    }
}

impl Volume {
    fn change_xattr(&self, ino: Ino, name: &[u8], value: Option<&[u8]>, how: XattrMode) -> Result<()> {
        self.change(|core, now| {
            let mut i = core.iget(ino)?;
            let list = core.xattr_change(&i, name, value, how)?;
            core.need_xattr_run(&i, &list)?;
            core.begin()?;
            core.xattr_store(&mut i, &list)?;
            core.set_ctime(&mut i, now);
            core.iput(&i)?;
            core.commit(now);
            Ok(())
        })
    }

    fn walk_dir(
        &self,
        ino: Ino,
        cookie: u64,
        plus: bool,
        f: &mut dyn FnMut(&DirEntry<'_>, Option<&Entry>) -> bool,
    ) -> Result<()> {
        // The call may start again when a block is missing: what was accepted is not repeated.
        let mut at = cookie;
        let root = self.root;
        let mut children = Vec::new();
        let mut ended = false;
        let reads = self.counters.metadata_reads.load(Relaxed);
        let done = self.run(|core| {
            let dir = core.iget_dir(ino)?;
            for (n, name, target) in [(1, &b"."[..], ino), (2, b"..", Ino(dir.d.parent.get()))] {
                let target = if ino == root { ino } else { target };
                if at < n {
                    let e = DirEntry { ino: target, file_type: FileType::Dir, cookie: n, name };
                    if !f(&e, None) {
                        return Ok(());
                    }
                    at = n;
                }
            }
            let from = (at + 1).saturating_sub(COOKIE_BASE);
            ended = true;
            core.dir_walk(&dir, from, plus, &mut |core, found, name| {
                let kind = FileType::from_mode(u32::from(found.kind) << 12).unwrap_or(FileType::File);
                let cookie = found.key + COOKIE_BASE;
                let e = DirEntry { ino: found.ino, file_type: kind, cookie, name };
                let inode = match plus.then(|| core.iget(found.ino)).transpose() {
                    // One that is damaged, or free, does not hide the others.
                    Err(Error::Corrupt(_) | Error::Errno(Errno::ESTALE)) => {
                        core.health.note_damage();
                        None
                    }
                    other => other?,
                };
                let attr = inode.as_ref().map(|i| core.attr(i));
                ended = f(&e, attr.as_ref());
                if ended {
                    if let Some(i) = inode {
                        core.refs.add(i.ino);
                        if i.is_dir() {
                            children.push(i.ino.0);
                        }
                    }
                    at = cookie;
                }
                Ok(ended)
            })
        });
        if plus && done.is_ok() {
            let missed = self.counters.metadata_reads.load(Relaxed) != reads;
            let stopped = (!ended).then(|| (at + 1).saturating_sub(COOKIE_BASE));
            self.note_walk(ino, stopped, &children, missed);
        }
        done
    }

    /// Notes that entries of a directory were given out, the last one or up to key `stopped`.
    fn note_walk(&self, ino: Ino, stopped: Option<u64>, children: &[u64], missed: bool) {
        let core = &mut *self.core.lock();
        if core.cache.limit() < WALK_CACHE {
            return;
        }
        match stopped {
            None => core.walks.ended(ino.0, children, missed),
            Some(next) => core.walks.stopped(ino.0, next, children, missed),
        }
        self.walked.store(core.walks.has_piece(), Relaxed);
    }

    /// Brings a piece of what walks are about to read. Errors are for who comes there.
    fn walk_ahead(&self) {
        let Some((dir, from)) = self.next_piece() else { return };
        let reads = self.counters.metadata_reads.load(Relaxed);
        let _ = self.run(|core| {
            // Without a reference it may have gone since, and its inode be something else.
            if !core.refs.has(Ino(dir)) && Ino(dir) != self.root {
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

    /// The next piece to bring. Only those behind it are wanted from here on, whatever becomes of it.
    fn next_piece(&self) -> Option<Piece> {
        let core = &mut *self.core.lock();
        let piece = core.walks.take();
        self.walked.store(core.walks.has_piece(), Relaxed);
        piece
    }
}
