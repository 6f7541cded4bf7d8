//! Phase 1: every inode, its blocks and its attributes. Each fragment gets its one owner.

use super::Checker;
use super::blocks::{Piece, Slot};
use super::issue::{Issue, Node, TreeIssue};
use super::view::{Reader, decode_inode};
use crate::format::*;
use arbor_base::device::Kind;
use arbor_base::vfs::{FileType, Result, mode};
use arbor_kit::namespace::TARGET_MAX;
use arbor_kit::treecheck::Rec;
use std::collections::BTreeMap;
use zerocopy::IntoBytes;

/// Result of the walk through one inode's blocks.
#[derive(Default)]
struct Tally {
    ino: u64,
    /// Fragments that it owns.
    frags: u32,
    /// Last logical block that is no hole.
    last: Option<u64>,
    /// Pointers to be made 0.
    cuts: Vec<Slot>,
    bad: Option<(u64, u64, u32, &'static str)>,
    beyond: Option<(u64, u64, u32)>,
    /// Blocks that do not look like indirect ones: logical block, fragment.
    wrong: Vec<(u64, u32)>,
    /// Fragments that have an owner already.
    twice: Vec<u32>,
}

impl Tally {
    fn bad(&mut self, p: &Piece, why: &'static str) {
        let first = self.bad.unwrap_or((0, p.lbn, p.frag.0, why));
        self.bad = Some((first.0 + 1, first.1, first.2, first.3));
    }

    fn beyond(&mut self, p: &Piece) {
        let first = self.beyond.unwrap_or((0, p.lbn, p.frag.0));
        self.beyond = Some((first.0 + 1, first.1, first.2));
    }

    /// Returns whether a pointer may stay; the inode owns its run then.
    fn judge(&mut self, r: &Reader<'_>, space: &mut super::space::Space, p: &Piece) -> Result<bool> {
        if p.frags == 0 {
            self.beyond(p);
        } else if !r.place(p.frag, p.frags) {
            self.bad(p, "is no place for it");
        } else if let Some(first) = space.taken(p.frag, p.frags) {
            self.twice.push(first);
        } else if p.level > 0 && !holds_pointers(r, p)? {
            self.wrong.push((p.lbn, p.frag.0));
        } else {
            space.claim(p.frag, p.frags);
            self.frags = self.frags.saturating_add(p.frags);
            if p.level == 0 {
                self.last = self.last.max(Some(p.lbn));
            }
            return Ok(p.level > 0);
        }
        self.cuts.push(p.slot);
        Ok(false)
    }
}

/// Whether an indirect block looks like one: most of its pointers can be right.
fn holds_pointers(r: &Reader<'_>, p: &Piece) -> Result<bool> {
    let bf = r.geom.block_frags();
    let all = r.pointers(p.frag)?;
    let (good, bad): (Vec<u32>, Vec<u32>) = all.into_iter().filter(|p| *p != 0).partition(|p| r.place(Frag(*p), bf));
    Ok(good.len() >= bad.len())
}

impl Checker<'_> {
    pub(super) fn read_inodes(&mut self) -> Result<()> {
        self.inited.clear();
        let ipb = self.r.geom.inodes_per_block();
        for cgx in 0..self.r.geom.cg_count {
            (self.progress)(cgx.into(), self.r.geom.cg_count.into(), "inodes");
            let cg = self.r.group(cgx)?;
            let known = self.r.header(cgx, &cg).ok().map(|h| h.initediblk.get());
            let cg_inodes = self.r.geom.cg_inodes;
            let known = known.filter(|n| *n <= cg_inodes && n.is_multiple_of(ipb));
            let first = known.unwrap_or(0) / ipb;
            let end = self.end_of_table(cgx, first, known.is_none())?;
            for n in 0..end {
                self.read_block(cgx, n, n < first)?;
            }
            self.inited.push(end * ipb);
        }
        Ok(())
    }

    /// Initialised blocks of a group's inode table: the `known` ones, and blocks after them that hold inodes.
    fn end_of_table(&self, cgx: u32, known: u32, unknown: bool) -> Result<u32> {
        let blocks = self.r.geom.cg_inodes / self.r.geom.inodes_per_block();
        // Without order the header on disk may be older than the table.
        let late = self.r.sb.clean.get() == 0 && matches!(self.f.volume.keeping, Keeping::Sync | Keeping::Async);
        let mut end = known;
        for n in known..blocks {
            if self.holds_inodes(cgx, n)? {
                end = n + 1;
            } else if !unknown && !late {
                break;
            }
        }
        Ok(end)
    }

    fn holds_inodes(&self, cgx: u32, n: u32) -> Result<bool> {
        let (frag, bytes) = self.r.inode_block(cgx, n)?;
        let first = self.r.geom.first_inode(frag).0;
        let used = |(ino, b): (u64, &[u8])| decode_inode(&self.r.geom, ino, b).is_ok_and(|d| d.in_use());
        Ok((first..).zip(bytes.chunks_exact(INODE)).any(used))
    }

    fn read_block(&mut self, cgx: u32, n: u32, known: bool) -> Result<()> {
        let (frag, bytes) = self.r.inode_block(cgx, n)?;
        let first = self.r.geom.first_inode(frag).0;
        for (ino, b) in (first..).zip(bytes.chunks_exact(INODE)).filter(|(ino, _)| *ino >= ROOT.0) {
            self.read_inode(ino, b, known)?;
        }
        Ok(())
    }

    /// Checks the inode in these bytes, if it is in use.
    pub(super) fn read_inode(&mut self, ino: u64, bytes: &[u8], known: bool) -> Result<()> {
        match decode_inode(&self.r.geom, ino, bytes) {
            Ok(d) if d.in_use() => self.check_inode(ino, d),
            Ok(_) => Ok(()),
            // Blocks that were never written hold no inodes.
            Err(_) if !known => self.r.put_inode(ino, Dinode::default()),
            Err(why) => match self.mend(ino, bytes)? {
                Some(d) if d.in_use() => self.check_inode(ino, d),
                Some(_) => Ok(()),
                None => self.damaged(ino, why),
            },
        }
    }

    /// Repairs one wrong byte of an inode, if that is all.
    fn mend(&mut self, ino: u64, bytes: &[u8]) -> Result<Option<Dinode>> {
        let all = self.syndromes.get_or_insert_with(super::mend::Syndromes::new);
        let Some((byte, good)) = all.put_back(self.r.geom.fsid, ino, bytes) else { return Ok(None) };
        let Ok(d) = decode_inode(&self.r.geom, ino, &good) else { return Ok(None) };
        let at = self.r.inode_byte(ino);
        self.f.note(Issue::InodeByte { ino: Node(ino), at, byte });
        self.r.put_inode(ino, d)?;
        Ok(Some(d))
    }

    /// Frees an inode that is too damaged to be used.
    fn damaged(&mut self, ino: u64, why: &'static str) -> Result<()> {
        let at = self.r.inode_byte(ino);
        self.f.note(Issue::InodeDamaged { ino: Node(ino), at, why });
        self.touched.insert(ino as u32);
        self.r.put_inode(ino, Dinode::default())
    }

    /// Checks an inode in use, and records it if it can be used.
    fn check_inode(&mut self, ino: u64, found: Dinode) -> Result<()> {
        let mut d = found;
        if let Some(why) = self.unusable(&d) {
            return self.damaged(ino, why);
        }
        if d.kind() == mode::IFDIR && d.nlink.get() == 0 && d.size.get() == 0 {
            return self.removed(ino, &d);
        }
        let size = self.limit_size(ino, &mut d)?;
        let mut t = Tally { ino, ..Tally::default() };
        if d.has_blocks() {
            let space = &mut self.space;
            self.r.walk(&d, &mut |r, p| t.judge(r, space, p))?;
            self.cut(&mut d, &t)?;
        }
        if !size {
            self.shorten(&mut d, &t);
        }
        if d.kind() == mode::IFDIR && !self.bound_dir(ino, &mut d, &t)? {
            return Ok(());
        }
        if d.kind() == mode::IFLNK && !self.has_target(&d)? {
            self.release(&d)?;
            return self.damaged(ino, "it is a symbolic link whose target is no path");
        }
        let cut_xattr = self.check_xattr(ino, &mut d, &mut t)?;
        if d.frags.get() != t.frags {
            if t.cuts.is_empty() && !cut_xattr {
                let (found, expected) = (d.frags.get(), t.frags);
                self.f.note(Issue::FragCount { ino: Node(ino), found, expected });
            }
            d.frags = t.frags.into();
        }
        self.tell(t);
        if d != found {
            self.r.put_inode(ino, d)?;
        }
        let empty = d.kind() == mode::IFREG && d.size.get() == 0 && d.xattr.get() == 0;
        self.recs.put(Rec {
            ino: ino as u32,
            stored: d.nlink.get().into(),
            kind: (d.kind() >> 12) as u8,
            flags: if empty { Rec::EMPTY } else { 0 },
            ..Rec::default()
        });
        Ok(())
    }

    /// Frees a removed directory whose blocks are gone already.
    fn removed(&mut self, ino: u64, d: &Dinode) -> Result<()> {
        self.f.note(TreeIssue::Unnamed { ino: Node(ino), what: "directory", why: "it was left over" });
        self.touched.insert(ino as u32);
        self.r.put_inode(ino, Dinode { generation: d.generation, ..Dinode::default() })
    }

    /// Why nothing of an inode can be kept.
    fn unusable(&self, d: &Dinode) -> Option<&'static str> {
        let size = d.size.get();
        match FileType::from_mode(d.mode.get().into()) {
            None => Some("its file type is unknown"),
            // A link that is being removed has no target any more.
            Some(FileType::Symlink) if size == 0 && d.nlink.get() > 0 => Some("it is a symbolic link without a target"),
            Some(FileType::Symlink) if size > TARGET_MAX as u64 => Some("it is a symbolic link with an endless target"),
            _ => None,
        }
    }

    /// Brings an impossible size into bounds for now. Returns whether the size was possible.
    fn limit_size(&mut self, ino: u64, d: &mut Dinode) -> Result<bool> {
        let (found, geom) = (d.size.get(), self.r.geom);
        let unit = geom.dir_unit(found);
        let (most, why) = match d.kind() {
            mode::IFREG => (geom.max_size(), "more than a file can have"),
            mode::IFDIR => (u64::from(geom.frags) << geom.frag_shift, "more than a directory can have"),
            mode::IFLNK => return Ok(true),
            _ => (0, "a device or pipe has none"),
        };
        if d.kind() == mode::IFDIR && (found == 0 || !found.is_multiple_of(unit)) {
            let why = "not a number of whole fragments, or blocks";
            self.f.note(Issue::InodeSize { ino: Node(ino), found, why });
            let next = found.max(1).checked_next_multiple_of(unit).unwrap_or(most);
            d.size = self.size_by_blocks(ino, d)?.unwrap_or(next).into();
        } else if found > most {
            self.f.note(Issue::InodeSize { ino: Node(ino), found, why });
        }
        if found > most {
            d.size = if d.has_blocks() { self.size_by_blocks(ino, d)?.unwrap_or(most) } else { 0 }.into();
        }
        Ok(found <= most || !d.has_blocks())
    }

    /// The size of a file without indirect blocks, by its pointers and the fragments that it counts.
    fn size_by_blocks(&self, ino: u64, d: &Dinode) -> Result<Option<u64>> {
        let Some(last) = d.db.iter().rposition(|p| p.get() != 0) else { return Ok(None) };
        if d.ib.iter().any(|p| p.get() != 0) {
            return Ok(None);
        }
        let bf = self.r.geom.block_frags();
        let whole = d.db.iter().take(last).filter(|p| p.get() != 0).count() as u32 * bf;
        let frag = Frag(d.xattr.get());
        let xattr = if frag.0 == 0 { 0 } else { self.r.xattr_frags(ino, frag)?.unwrap_or(0) };
        let tail = d.frags.get().saturating_sub(whole).saturating_sub(xattr).clamp(1, bf);
        Ok(Some(((last as u64) << self.r.geom.block_shift) + self.r.geom.bytes_of(tail) as u64))
    }

    /// Sets the size of a file whose own is impossible: up to its last block.
    fn shorten(&self, d: &mut Dinode, t: &Tally) {
        let end = t.last.map_or(0, |lbn| (lbn + 1) << self.r.geom.block_shift);
        d.size = d.size.get().min(end).into();
    }

    /// Makes a directory end with its last block; frees it if it has none. Returns whether it is kept.
    fn bound_dir(&mut self, ino: u64, d: &mut Dinode, t: &Tally) -> Result<bool> {
        let Some(last) = t.last else {
            self.release(d)?;
            self.damaged(ino, "it is a directory without blocks")?;
            return Ok(false);
        };
        let end = (last + 1) << self.r.geom.block_shift;
        if d.size.get() > end {
            self.f.note(TreeIssue::DirHole { ino: Node(ino), offset: end });
            d.size = end.into();
        }
        Ok(true)
    }

    /// Whether a symbolic link has a valid target.
    fn has_target(&self, d: &Dinode) -> Result<bool> {
        let len = d.size.get() as usize;
        if d.is_fast_link() {
            let bytes = d.as_bytes().get(FAST_LINK_AT..).unwrap_or(&[]);
            return Ok(bytes.get(..len).is_some_and(|target| !target.contains(&0)));
        }
        let frag = Frag(d.db[0].get());
        if frag.0 == 0 {
            return Ok(false);
        }
        let bytes = self.r.run(Kind::Data, frag, self.r.geom.frags_for(len))?;
        Ok(bytes.get(..len).is_some_and(|target| !target.contains(&0)))
    }

    /// Sets pointers to 0.
    fn cut(&mut self, d: &mut Dinode, t: &Tally) -> Result<()> {
        let mut blocks: BTreeMap<Frag, Vec<usize>> = BTreeMap::new();
        for slot in &t.cuts {
            match slot {
                Slot::Direct(i) => d.db.iter_mut().skip(*i).take(1).for_each(|p| *p = 0.into()),
                Slot::Indirect(i) => d.ib.iter_mut().skip(*i).take(1).for_each(|p| *p = 0.into()),
                Slot::In(frag, i) => blocks.entry(*frag).or_default().push(*i),
            }
        }
        for (frag, slots) in blocks {
            let mut bytes = self.r.run(Kind::Tree, frag, self.r.geom.block_frags())?;
            slots.iter().for_each(|i| put_u32(&mut bytes, i * 4, 0));
            self.put_block(Kind::Tree, frag, &bytes)?;
        }
        Ok(())
    }

    /// Checks and claims the attributes. Returns whether they were cut off.
    fn check_xattr(&mut self, ino: u64, d: &mut Dinode, t: &mut Tally) -> Result<bool> {
        let frag = Frag(d.xattr.get());
        if frag.0 == 0 {
            return Ok(false);
        }
        let why = match self.r.xattr_frags(ino, frag)? {
            Ok(frags) if self.space.taken(frag, frags).is_some() => {
                t.twice.extend(self.space.taken(frag, frags));
                None
            }
            Ok(frags) => match self.r.xattrs(frag, frags)? {
                Ok(_) => {
                    self.space.claim(frag, frags);
                    t.frags = t.frags.saturating_add(frags);
                    return Ok(false);
                }
                Err(why) => Some(why),
            },
            Err(why) => Some(why),
        };
        if let Some(why) = why {
            let at = self.byte(frag);
            self.f.note(Issue::Xattr { ino: Node(ino), frag: frag.0, at, why });
        }
        d.xattr = 0.into();
        Ok(true)
    }

    /// Notes the issues of a walk.
    fn tell(&mut self, t: Tally) {
        let ino = Node(t.ino);
        if let Some((count, lbn, frag, why)) = t.bad {
            self.f.note(Issue::BadPointers { ino, count, lbn, frag, why });
        }
        if let Some((count, lbn, frag)) = t.beyond {
            self.f.note(Issue::BeyondSize { ino, count, lbn, frag });
        }
        for (lbn, frag) in t.wrong {
            let at = self.byte(Frag(frag));
            self.f.note(Issue::BadIndirect { ino, lbn, frag, at });
        }
        self.twice.extend(t.twice.into_iter().map(|frag| (t.ino, frag)));
    }

    /// Fragments claimed twice: the other owner is looked for in a second walk.
    pub(super) fn report_twice(&mut self) -> Result<()> {
        if self.twice.is_empty() {
            return Ok(());
        }
        let mut owners: BTreeMap<u32, u64> = self.twice.iter().map(|(_, frag)| (*frag, 0)).collect();
        for rec in self.recs.iter() {
            let ino = u64::from(rec.ino);
            let Some(d) = self.inode(rec.ino)? else { continue };
            let mut mark = |frag: Frag, frags: u32| {
                let end = frag.0.saturating_add(frags);
                owners.range_mut(frag.0..end).for_each(|(_, owner)| *owner = ino);
            };
            self.r.pieces(&d, &mut |p| mark(p.frag, p.frags))?;
            if d.xattr.get() != 0 {
                let frag = Frag(d.xattr.get());
                mark(frag, self.r.xattr_frags(ino, frag)?.unwrap_or(0));
            }
        }
        for (ino, frag) in std::mem::take(&mut self.twice) {
            let (ino, at) = (Node(ino), self.byte(Frag(frag)));
            let owner = owners.get(&frag).copied().unwrap_or(0);
            self.f.note(match self.own_space(frag) {
                true => Issue::OwnSpace { ino, frag, at },
                false => Issue::Duplicate { ino, frag, at, owner: Node(owner) },
            });
        }
        Ok(())
    }

    /// Whether a fragment belongs to the summary area or the journal.
    fn own_space(&self, frag: u32) -> bool {
        let (sb, geom) = (&self.r.sb, &self.r.geom);
        let within = |start: u32, len: u32| frag.checked_sub(start).is_some_and(|at| at < len);
        within(sb.summary_start.get(), geom.summary_frags()) || within(sb.journal_start.get(), sb.journal_frags.get())
    }

    /// Gives up the fragments that an inode owns.
    fn release(&mut self, d: &Dinode) -> Result<()> {
        let space = &mut self.space;
        self.r.pieces(d, &mut |p| space.release(p.frag, p.frags))
    }

    /// Frees an inode in use that was checked.
    pub(super) fn clear_inode(&mut self, ino: u32) -> Result<()> {
        if let Some(d) = self.inode(ino)? {
            self.release(&d)?;
            let frag = Frag(d.xattr.get());
            if frag.0 != 0 {
                let frags = self.r.xattr_frags(ino.into(), frag)?.unwrap_or(0);
                self.space.release(frag, frags);
            }
            self.r.put_inode(ino.into(), Dinode { generation: d.generation, ..Dinode::default() })?;
        }
        self.touched.insert(ino);
        self.recs.flag(ino, Rec::GONE, true);
        Ok(())
    }
}
