//! Connectivity: the root, parents, loops, inodes without a name, link counts, recovery lists.

use super::issue::{Issue, Node};
use super::view::RawInode;
use super::{Checker, Chunk, DIR_KIND, Rec, record};
use crate::format::*;
use arbor_base::device::Kind;
use arbor_base::vfs::{Ino, Repair, Result, mode};
use arbor_kit::forest::{End, LOST_FOUND, lost_name};
use zerocopy::IntoBytes;

impl Checker<'_> {
    /// Follows the recovery lists of all AGs.
    pub(super) fn read_recovery_lists(&mut self) -> Result<()> {
        for ag in 0..self.r.ags() {
            let mut at = self.groups.get(ag as usize).map_or(0, |g| g.head);
            let mut list = Vec::new();
            let mut broken = None;
            while at != 0 {
                let here = self.inode_ag(at) == ag;
                let good = self.recs.rec(at).filter(|r| here && !r.has(Rec::LISTED) && r.stored == 0);
                let (Some(rec), Some(i)) = (good.is_some().then_some(at), self.r.inode(at)?) else {
                    broken = Some(format!("it leads to inode {at}, which does not belong there"));
                    break;
                };
                if let Some(r) = self.recs.rec(rec) {
                    r.set(Rec::LISTED, true);
                }
                list.push(at);
                at = i.d.next.get();
            }
            if let Some(why) = broken {
                self.f.judge(Issue::RecoveryList { ag, why });
            }
            if let Some(g) = self.groups.get_mut(ag as usize) {
                // The last good one must end the list.
                g.relink |= at != 0;
                g.recovery = list;
            }
        }
        Ok(())
    }

    /// Takes an inode off its recovery list.
    pub(super) fn unlist(&mut self, ino: u64) {
        let ag = self.inode_ag(ino) as usize;
        if let Some(r) = self.recs.rec(ino) {
            r.set(Rec::LISTED, false);
        }
        if let Some(g) = self.groups.get_mut(ag) {
            g.recovery.retain(|i| *i != ino);
            g.relink = true;
        }
    }

    /// Writes the lists that were cut short, or that hold inodes with names.
    pub(super) fn fix_recovery_lists(&mut self) -> Result<()> {
        let named: Vec<u64> = self.recs.iter().filter(|r| r.has(Rec::LISTED) && has_name(r)).map(|r| r.ino).collect();
        for ino in named {
            let ag = self.inode_ag(ino);
            self.f.judge(Issue::RecoveryList { ag, why: format!("inode {ino} has a name") });
            self.unlist(ino);
        }
        if self.f.mode != Repair::Yes {
            return Ok(());
        }
        for ag in 0..self.groups.len() {
            let list = match self.groups.get(ag) {
                Some(g) if g.relink => g.recovery.clone(),
                _ => continue,
            };
            for (n, ino) in list.iter().enumerate() {
                let next = list.get(n + 1).copied().unwrap_or(0);
                let Some(mut i) = self.r.inode(*ino)? else { continue };
                if i.d.next.get() != next {
                    i.d.next = next.into();
                    self.write_inode(&i)?;
                }
            }
        }
        Ok(())
    }

    /// Finds the root directory; makes a new one if it is lost.
    pub(super) fn find_root(&mut self) -> Result<()> {
        let root = self.r.sb.root.get();
        let why = match self.recs.rec(root) {
            Some(rec) if rec.is_dir() => return self.take_root(root),
            Some(_) => "is not a directory",
            None => "is missing",
        };
        // Only the root is its own parent.
        let mut alike = self.recs.iter().filter(|r| r.is_dir() && r.parent == r.ino).map(|r| r.ino);
        if let (Some(found), None) = (alike.next(), alike.next()) {
            self.r.sb.root = found.into();
            if self.f.judge(Issue::RootMoved { ino: Node(root), why, found: Node(found) }) {
                self.store_super()?;
            }
            return self.take_root(found);
        }
        if !self.f.judge(Issue::Root { ino: Node(root), why }) {
            return Ok(());
        }
        let again = if self.recs.find(root).is_none() { self.take_inode(root) } else { None };
        let ino = match again {
            Some(ino) => Some(ino),
            None => self.alloc_inode()?,
        };
        let Some(ino) = ino else {
            self.f.push(Issue::NoSpace { what: "the root directory".into() }, false);
            self.f.revoke(&["Root"]);
            return Ok(());
        };
        self.make_dir(ino, ino, 0o755)?;
        if ino != root {
            self.r.sb.root = ino.into();
            self.store_super()?;
        }
        Ok(())
    }

    fn take_root(&mut self, root: u64) -> Result<()> {
        if let Some(rec) = self.recs.rec(root) {
            rec.set(Rec::WRONG_PARENT, rec.parent != root);
            rec.parent = root;
            rec.set(Rec::NAMED, true);
        }
        Ok(())
    }

    fn store_super(&mut self) -> Result<()> {
        let mut bytes = SuperBlock { clean: 0.into(), ..self.r.sb }.as_bytes().to_vec();
        Seal::Super.seal(&mut bytes, 0);
        self.write(Kind::Super, 0, &bytes)
    }

    /// Takes this very inode, if it is a free one of a chunk.
    pub(super) fn take_inode(&mut self, ino: u64) -> Option<u64> {
        let (chunk, at) = self.r.geom.inode_at(Ino(ino))?;
        let bit = 1u64.checked_shl(u32::try_from(at / self.r.geom.inode_size()).ok()?)?;
        let ag = self.inode_ag(ino) as usize;
        let chunk = self.groups.get_mut(ag)?.chunks.iter_mut().find(|c| c.start == chunk.0)?;
        if chunk.mask & bit == 0 {
            return None;
        }
        chunk.mask &= !bit;
        Some(ino)
    }

    /// Takes a free inode, of a new chunk if there is no other.
    fn alloc_inode(&mut self) -> Result<Option<u64>> {
        let step = self.r.geom.inode_size() as u64 / SECTOR;
        for chunk in self.groups.iter_mut().flat_map(|g| &mut g.chunks) {
            if chunk.mask != 0 {
                let n = chunk.mask.trailing_zeros();
                chunk.mask &= !(1 << n);
                return Ok(Some(chunk.start + u64::from(n) * step));
            }
        }
        let Some(start) = self.space.alloc_chunk() else { return Ok(None) };
        let addr = self.r.geom.daddr(start);
        self.write(Kind::Inode, addr.byte(), &vec![0; self.r.geom.chunk_size()])?;
        if let Some(g) = self.groups.get_mut(self.r.geom.ag_of(start) as usize) {
            let at = g.chunks.partition_point(|c| c.start < addr.0);
            g.chunks.insert(at, Chunk { start: addr.0, mask: !1 });
            g.rebuild = true;
        }
        Ok(Some(addr.0))
    }

    /// A directory or an empty file, as it is to be written to a free inode.
    pub(super) fn new_inode(&self, ino: u64, parent: u64, mode: u32, old: Option<RawInode>) -> RawInode {
        let generation = old.filter(|o| o.d.magic.get() == INODE_MAGIC).map_or(0, |o| o.d.generation.get());
        let mut d = Dinode {
            magic: INODE_MAGIC.into(),
            ino: ino.into(),
            generation: generation.wrapping_add(1).into(),
            mode: mode.into(),
            nlink: if mode & mode::IFMT == mode::IFDIR { 2 } else { 1 }.into(),
            parent: parent.into(),
            format: Format::Inline as u8,
            ..Dinode::default()
        };
        (d.atime, d.mtime) = (self.r.sb.created, self.r.sb.created);
        (d.ctime, d.btime) = (self.r.sb.created, self.r.sb.created);
        RawInode { ino, d, bytes: vec![0; self.r.geom.inode_size()] }
    }

    /// Makes an empty directory of a free inode.
    fn make_dir(&mut self, ino: u64, parent: u64, permissions: u32) -> Result<()> {
        let old = self.r.inode_bytes(ino)?.and_then(|b| RawInode::decode(ino, &b));
        let i = self.new_inode(ino, parent, mode::IFDIR | permissions, old);
        self.write_inode(&i)?;
        self.recs.put(Rec { flags: Rec::NAMED | Rec::REACHED, ..record(&i) });
        Ok(())
    }

    /// Connects every inode in use to the root.
    pub(super) fn connect(&mut self) -> Result<()> {
        let root = self.r.sb.root.get();
        if let Some(rec) = self.recs.rec(root) {
            rec.set(Rec::REACHED, true);
        }
        self.read_stray_names()?;
        let dirs: Vec<u64> = self.recs.dirs();
        for ino in dirs {
            self.reach(ino)?;
        }
        let lost: Vec<u64> =
            self.recs.iter().filter(|r| !r.is_dir() && r.found == 0 && !r.has(Rec::LISTED)).map(|r| r.ino).collect();
        for ino in lost {
            self.attach(ino)?;
        }
        Ok(())
    }

    /// Climbs from a directory to one that is known to be reached.
    fn reach(&mut self, from: u64) -> Result<()> {
        let known = |rec: &Rec| rec.has(Rec::REACHED) || !rec.has(Rec::NAMED);
        let (mut way, end) = self.recs.climb(from, known);
        match end {
            End::At(rec) if !rec.has(Rec::REACHED) && !rec.has(Rec::LISTED) => {
                self.attach(rec.ino)?;
                way.push(rec.ino);
            }
            End::At(_) | End::Nowhere => {}
            End::Loop(rec) => {
                if self.f.judge(Issue::DirLoop { ino: Node(rec.ino) }) {
                    self.edits.entry(rec.parent).or_default().remove.push(rec.ino);
                    self.recs.rec(rec.parent).into_iter().for_each(|p| p.uncount());
                }
                self.attach(rec.ino)?;
            }
        }
        way.into_iter().for_each(|ino| self.recs.flag(ino, Rec::REACHED, true));
        Ok(())
    }

    /// Gives an inode without a name one in lost+found.
    fn attach(&mut self, ino: u64) -> Result<()> {
        let Some(rec) = self.recs.of(ino) else { return Ok(()) };
        let what = if rec.is_dir() { "directory" } else { "inode" };
        let issue = Issue::Unreachable { ino: Node(ino), what };
        if self.f.mode != Repair::Yes {
            self.f.judge(issue);
            return Ok(());
        }
        let found = self.ensure_lost_found()?;
        self.f.push(issue, found != 0);
        if found == 0 {
            return Ok(());
        }
        let name = lost_name(ino, self.stray_names.get(&ino).map(Vec::as_slice));
        self.edits.entry(found).or_default().add.push((name, ino, rec.kind));
        if let Some(rec) = self.recs.rec(ino) {
            if !rec.is_dir() {
                rec.count();
                return Ok(());
            }
            rec.set(Rec::NAMED, true);
            rec.set(Rec::WRONG_PARENT, true);
            rec.parent = found;
        }
        if let Some(rec) = self.recs.rec(found) {
            rec.count();
        }
        Ok(())
    }

    /// Number of lost+found, made if it is missing; 0 if there is no root either.
    fn ensure_lost_found(&mut self) -> Result<u64> {
        let root = self.r.sb.root.get();
        if self.lost_found != 0 || self.recs.find(root).is_none() {
            return Ok(self.lost_found);
        }
        // Without an inode for it, what is lost goes into the root directory itself.
        let Some(ino) = self.alloc_inode()? else { return Ok(root) };
        self.make_dir(ino, root, 0o700)?;
        self.edits.entry(root).or_default().add.push((LOST_FOUND.into(), ino, DIR_KIND));
        if let Some(rec) = self.recs.rec(root) {
            rec.count();
        }
        self.lost_found = ino;
        Ok(ino)
    }

    /// Writes link counts and parents as they were found.
    pub(super) fn fix_links(&mut self) -> Result<()> {
        for at in 0..self.recs.len() {
            let Some(rec) = self.recs.get(at).copied() else { break };
            if at.is_multiple_of(1024) {
                self.report(at as u64, self.recs.len() as u64, "links");
            }
            let expected = match (rec.is_dir(), has_name(&rec)) {
                (true, true) | (false, _) => rec.links(),
                // Without repair an unconnected directory keeps what it has.
                (true, false) if rec.has(Rec::LISTED) => 0,
                (true, false) => rec.stored,
            };
            let wrong_parent = rec.is_dir() && rec.has(Rec::WRONG_PARENT);
            if rec.stored == expected && !wrong_parent {
                continue;
            }
            let Some(mut i) = self.r.inode(rec.ino)? else { continue };
            let mut changed = false;
            if rec.stored != expected {
                changed |= self.f.judge(Issue::LinkCount { ino: Node(rec.ino), found: rec.stored, expected });
                i.d.nlink = if changed { expected.into() } else { i.d.nlink };
            }
            if wrong_parent {
                let (found, parent) = (i.d.parent.get(), rec.parent);
                let moved = parent == self.lost_found && self.f.mode == Repair::Yes;
                if moved
                    || self.f.judge(Issue::Parent { ino: Node(rec.ino), found: Node(found), expected: Node(parent) })
                {
                    i.d.parent = parent.into();
                    changed = true;
                }
            }
            if changed {
                self.write_inode(&i)?;
            }
        }
        Ok(())
    }
}

fn has_name(rec: &Rec) -> bool {
    if rec.is_dir() { rec.has(Rec::NAMED) } else { rec.found > 0 }
}
