//! Every inode, its blocks and its attributes. Each fragment gets its one owner.

use super::issue::{Issue, Node, TreeIssue};
use super::space::Print;
use super::{Checker, log, number, words};
use crate::format::*;
use crate::inode::Inode;
use crate::validate;
use arbor_base::cache::{FileBlock, Name};
use arbor_base::device::Kind;
use arbor_base::layout::crc;
use arbor_base::vfs::{FileType, Ino, Result, mode};
use arbor_kit::blockmap::{BlockMap as _, Mapped as _};
use arbor_kit::gaps::State;
use arbor_kit::inodes::{InodeStore as _, InodeTable as _};
use arbor_kit::treecheck::Rec;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// What the walk through one inode's blocks found.
#[derive(Default)]
struct Tally {
    /// Fragments that it owns.
    frags: u64,
    /// Last logical block that is no hole.
    last: Option<u64>,
    /// How many, and the first.
    bad: Option<(u64, FileBlock, u32, &'static str)>,
    beyond: Option<(u64, FileBlock)>,
    wrong: Option<(u64, FileBlock, u32)>,
    /// Something was cut off.
    cut: bool,
}

/// Whether a pointer may stay.
enum Fate {
    Stays,
    /// It is to be cleared.
    Goes,
}

/// The name of a block of a file for people.
pub(super) fn spoken(place: FileBlock) -> String {
    match place {
        FileBlock::Data(lbn) => format!("block {lbn}"),
        FileBlock::Map { level, n } => format!("indirect block {n} of level {level}"),
        FileBlock::Xattr(_) => "the attributes".into(),
    }
}

/// The owner, by the summaries, of a block that begins at a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Inode, version, place.
    Block(u32, u32, u64),
    Inodes,
}

/// The owners of a segment by its summaries, by fragment.
pub(super) type Owners = FxHashMap<u32, Owner>;

/// A block and its pointer.
type Piece = (FileBlock, Pointer);

impl Checker<'_> {
    /// Checks the ifile's own blocks.
    pub(super) fn check_ifile(&mut self) -> Result<()> {
        let mut i = self.core.inode(IFILE)?;
        let frag = self.core.checkpoint.ifile.get();
        if frag != 0 && self.core.is_run(Frag(frag), 1) {
            self.space.claim_inode(Print::of_inode(frag, IFILE.0 as u32, 0), false);
        }
        let mut t = Tally::default();
        self.walk(&mut i, &mut t)?;
        self.tell(i.ino, &t);
        self.check_map_end()?;
        let missing = log::missing_map(&mut self.core)?;
        if !missing.is_empty() {
            log::fill_map(&mut self.core, missing)?;
            self.wary = true;
        }
        Ok(())
    }

    /// Finds entries of the inode map after the inodes that the volume counts, and counts them too.
    fn check_map_end(&mut self) -> Result<()> {
        let (geom, i, found) = (self.core.geom, self.core.inode(IFILE)?, self.core.state.inodes);
        let (per, most) = (geom.block_size() / MAP_ENTRY, validate::most_inodes(&geom, self.core.segs.count()));
        let (first, blocks) = (geom.lbn(MAP_AT), i.size().div_ceil(geom.block_size() as u64));
        let (mut lbn, mut end) = (first + u64::from(found) / per as u64, u64::from(found));
        while let Some(at) = self.core.next_block(&i, lbn, blocks, false)? {
            let page = self.core.ifile_page(at)?;
            let last = page.chunks_exact(MAP_ENTRY).rposition(|e| e.iter().any(|b| *b != 0));
            end = end.max(last.map_or(0, |k| (at - first) * per as u64 + k as u64 + 1));
            lbn = at + 1;
        }
        if let Some(expected) = u32::try_from(end).ok().filter(|n| *n > found && u64::from(*n) <= most) {
            self.f.note(Issue::MapEnd { found, expected });
            self.core.state.inodes = expected;
        }
        Ok(())
    }

    pub(super) fn read_inodes(&mut self) -> Result<()> {
        let end = u64::from(self.core.state.inodes);
        for n in ROOT.0..end {
            if (n - ROOT.0).is_multiple_of(1024) {
                (self.progress)(n, end, "inodes");
            }
            self.read_inode(Ino(n))?;
            self.breathe();
        }
        Ok(())
    }

    /// Checks an inode, if it is in use.
    pub(super) fn read_inode(&mut self, ino: Ino) -> Result<()> {
        let entry = self.core.map_entry(ino)?;
        if entry.frag.get() == 0 {
            return Ok(());
        }
        match self.raw_inode(ino, entry)? {
            Ok(d) => self.check_inode(ino.0 as u32, d),
            Err(why) => {
                self.damaged.push((ino.0 as u32, why));
                Ok(())
            }
        }
    }

    /// The inode that a map entry points to, whatever its contents.
    pub(super) fn raw_inode(&mut self, ino: Ino, entry: MapEntry) -> Result<std::result::Result<Dinode, String>> {
        if let Some(bytes) = self.core.cache.peek(Name::Inode(ino)) {
            return Ok(Dinode::read_from_bytes(&bytes[..]).map_err(|_| "it is cut off".into()));
        }
        let d = words(self.core.read_inode(ino, Frag(entry.frag.get())))?;
        Ok(d.and_then(|(_, d)| if d.version == entry.version { Ok(d) } else { Err("it is of another version".into()) }))
    }

    /// Checks an inode in use, and records it if it can be used.
    pub(super) fn check_inode(&mut self, ino: u32, d: Dinode) -> Result<()> {
        let geom = self.core.geom;
        if let Some(why) = self.unusable(&d) {
            self.damaged.push((ino, why.into()));
            return Ok(());
        }
        let entry = self.core.map_entry(number(ino))?;
        let frag = entry.frag.get();
        let free = frag == UNWRITTEN || self.space.may_hold_inode(frag);
        if !free && !self.contest(frag, 1) {
            self.damaged.push((ino, "its place belongs to something else".into()));
            return Ok(());
        }
        self.core.cache.insert(Name::Inode(number(ino)), Arc::new(d.as_bytes().to_vec()));
        let mut i = Inode { ino: number(ino), d };
        let possible = self.limit_size(&mut i)?;
        let mut t = Tally::default();
        if d.has_blocks() {
            self.walk(&mut i, &mut t)?;
        }
        if !possible {
            let end = t.last.map_or(0, |lbn| (lbn + 1) << geom.block_shift);
            i.d.size = i.size().min(end).into();
            self.core.iput(&i)?;
        }
        let why = match () {
            () if self.is_named_dir(&i) && !self.bound_dir(&mut i, &t)? => Some("it is a directory without blocks"),
            () if !self.has_target(&i)? => Some("it is a symbolic link whose target is no path"),
            () => None,
        };
        self.tell(i.ino, &t);
        if let Some(why) = why {
            self.damaged.push((ino, why.into()));
            return Ok(());
        }
        let cut = self.check_xattr(&mut i, &mut t)?;
        if i.d.frags.get() != t.frags {
            self.count_frags(&mut i, &t, cut)?;
        }
        if free && frag != UNWRITTEN {
            self.space.claim_inode(Print::of_inode(frag, ino, d.version.get()), true);
            self.leave_with(number(ino), frag)?;
        }
        let empty = i.is_file() && i.size() == 0 && i.d.xattr.frag.get() == 0;
        let flags = if empty { Rec::EMPTY } else { 0 };
        self.frags = self.frags.saturating_add(i.d.frags.get());
        let rec = Rec { ino, stored: i.d.nlink.get(), kind: (i.d.kind() >> 12) as u8, flags, ..Rec::default() };
        self.recs.put(rec);
        Ok(())
    }

    /// Marks an inode in a segment that is to be emptied, so that it is written elsewhere.
    fn leave_with(&mut self, ino: Ino, frag: u32) -> Result<()> {
        let leaves = self.core.geom.seg_of(Frag(frag)).is_some_and(|seg| self.leaving.contains(&seg.0));
        if leaves { self.core.mark(ino) } else { Ok(()) }
    }

    fn count_frags(&mut self, i: &mut Inode, t: &Tally, cut: bool) -> Result<()> {
        if !t.cut && !cut {
            let (ino, found, expected) = (Node(i.ino.0), i.d.frags.get(), t.frags);
            self.f.note(Issue::FragCount { ino, found, expected });
        }
        self.core.mark(i.ino)?;
        i.d.frags = t.frags.into();
        self.core.iput(i)
    }

    /// Why nothing of an inode can be kept.
    fn unusable(&self, d: &Dinode) -> Option<&'static str> {
        match FileType::from_mode(d.mode.get()) {
            None => Some("its file type is unknown"),
            Some(FileType::Symlink) if d.size.get() == 0 && d.nlink.get() > 0 => {
                Some("it is a symbolic link without a target")
            }
            Some(FileType::Symlink) if d.size.get() > arbor_kit::namespace::TARGET_MAX as u64 => {
                Some("it is a symbolic link with an endless target")
            }
            _ => None,
        }
    }

    /// Whether it is a directory, and not one that was removed.
    fn is_named_dir(&self, i: &Inode) -> bool {
        i.is_dir() && !self.listed.contains(&(i.ino.0 as u32))
    }

    /// Limits an impossible size for now. Returns whether it was possible.
    fn limit_size(&mut self, i: &mut Inode) -> Result<bool> {
        let (found, geom) = (i.size(), self.core.geom);
        let (frag, unit) = (geom.frag_size() as u64, geom.dir_unit(found));
        let (most, why) = match i.d.kind() {
            mode::IFREG => (geom.max_size(), "more than a file can have"),
            mode::IFDIR => (geom.max_size().min(validate::MAX_DIR), "more than a directory can have"),
            mode::IFLNK => return Ok(true),
            _ => (0, "a device or pipe has none"),
        };
        let named_dir = self.is_named_dir(i);
        let ragged = named_dir && found == 0 || i.is_dir() && !found.is_multiple_of(unit);
        // The length of the last block is not what the size says then.
        let last = i.d.db.iter().rposition(|p| p.frag.get() != 0).filter(|_| i.d.ib.iter().all(|p| p.frag.get() == 0));
        let end = last.map(|last| (last as u64 + 1) << geom.block_shift).filter(|end| named_dir && found > *end);
        match end {
            _ if found > most => self.f.note(Issue::InodeSize { ino: Node(i.ino.0), found, why }),
            _ if ragged => {
                let why = "not a number of whole fragments or blocks";
                self.f.note(Issue::InodeSize { ino: Node(i.ino.0), found, why });
            }
            Some(offset) => self.f.note(TreeIssue::DirHole { ino: Node(i.ino.0), offset }),
            None => return Ok(true),
        }
        self.core.mark(i.ino)?;
        let guess = if i.d.has_blocks() { self.size_by_blocks(i)? } else { Some(0) };
        // If the size tells nothing, the blocks will, once all of them are known.
        let silent = found > most || found < frag;
        i.d.size = guess.unwrap_or(if silent { most } else { found.next_multiple_of(unit) }).into();
        if let Some(c) = self.core.changed.get_mut(&i.ino.0).filter(|c| c.disk_size == found) {
            c.disk_size = i.size();
        }
        self.core.iput(i)?;
        Ok(guess.is_some() || !silent)
    }

    /// The size of a file without indirect blocks, by its pointers and the checksum of the last block.
    fn size_by_blocks(&mut self, i: &Inode) -> Result<Option<u64>> {
        let geom = self.core.geom;
        let Some(last) = i.d.db.iter().rposition(|p| p.frag.get() != 0) else { return Ok(None) };
        let p = i.d.db[last];
        if i.d.ib.iter().any(|p| p.frag.get() != 0) || p.frag.get() == UNWRITTEN {
            return Ok(None);
        }
        for frags in 1..=geom.block_frags() {
            if !self.core.is_run(Frag(p.frag.get()), frags) {
                break;
            }
            if crc(&self.core.read_run(Frag(p.frag.get()), frags, Kind::Data)?) == p.crc.get() {
                return Ok(Some(((last as u64) << geom.block_shift) + geom.bytes_of(frags) as u64));
            }
        }
        Ok(None)
    }

    /// Makes a directory end with its last block. Returns whether it has one and can be kept.
    fn bound_dir(&mut self, i: &mut Inode, t: &Tally) -> Result<bool> {
        let Some(last) = t.last else { return Ok(false) };
        let end = (last + 1) << self.core.geom.block_shift;
        if i.size() > end {
            self.f.note(TreeIssue::DirHole { ino: Node(i.ino.0), offset: end });
            self.core.mark(i.ino)?;
            i.d.size = end.into();
            self.core.iput(i)?;
        }
        Ok(true)
    }

    /// Whether a symbolic link has a readable target.
    fn has_target(&mut self, i: &Inode) -> Result<bool> {
        Ok(!i.is_symlink() || i.d.nlink.get() == 0 || words(self.core.read_target(i))?.is_ok())
    }

    // Blocks.

    fn walk(&mut self, i: &mut Inode, t: &mut Tally) -> Result<()> {
        let mut todo: Vec<Piece> = Vec::new();
        let roots = (0..NIADDR).rev().map(|k| (FileBlock::Map { level: k as u8 + 1, n: 0 }, i.d.ib[k]));
        todo.extend(roots);
        todo.extend((0..NDADDR).rev().map(|k| (FileBlock::Data(k as u64), i.d.db[k])));
        let mut steps = 0u32;
        while let Some(piece) = todo.pop() {
            if piece.1.frag.get() == 0 {
                continue;
            }
            let fate = self.judge(i, piece, t)?;
            match (fate, piece.0) {
                (Fate::Stays, FileBlock::Map { level, n }) => self.go_below(i, (level, n), &mut todo, t)?,
                (Fate::Stays, _) => {}
                (Fate::Goes, place) => self.cut(i, place, t)?,
            }
            steps += 1;
            if steps.is_multiple_of(1024) {
                self.breathe();
            }
        }
        Ok(())
    }

    fn cut(&mut self, i: &mut Inode, place: FileBlock, t: &mut Tally) -> Result<()> {
        (self.reshaped, t.cut) = (true, true);
        self.core.set_pointer(i, place, Pointer::default())?;
        self.core.cache.remove(Name::File(i.ino, place));
        if let FileBlock::Map { level, n } = place {
            self.drop_below(i.ino, (level, n));
        }
        Ok(())
    }

    /// Forgets all blocks below an indirect block.
    fn drop_below(&mut self, ino: Ino, (level, n): (u8, u64)) {
        let (shape, mut range) = (self.core.geom.shape(), (FileBlock::Map { level, n }, FileBlock::Map { level, n }));
        while let (FileBlock::Map { level, n: first }, FileBlock::Map { n: last, .. }) = range {
            range = (shape.child(level, first, 0), shape.child(level, last, shape.fanout - 1));
            self.core.cache.drop_parts(ino, range.0..=range.1);
        }
    }

    /// Goes on with the blocks below an indirect block; cuts it off if it cannot be read or is empty.
    fn go_below(&mut self, i: &mut Inode, (level, n): (u8, u64), todo: &mut Vec<Piece>, t: &mut Tally) -> Result<()> {
        let place = FileBlock::Map { level, n };
        let bytes = match words(self.core.indirect(i, level, n))? {
            Ok(bytes) => bytes.unwrap_or_default(),
            Err(why) => {
                self.f.note(Issue::Indirect { ino: Node(i.ino.0), place: spoken(place), why });
                t.frags = t.frags.saturating_sub(self.core.geom.block_frags().into());
                return self.cut(i, place, t);
            }
        };
        let geom = self.core.geom;
        let before = todo.len();
        let all = (0u64..).zip(bytes.chunks_exact(POINTER));
        let there =
            all.filter_map(|(k, b)| Some((k, Pointer::read_from_bytes(b).ok()?))).filter(|(_, p)| p.frag.get() != 0);
        todo.extend(there.map(|(k, p)| (geom.shape().child(level, n, k), p)));
        if let Some(children) = todo.get_mut(before..) {
            children.reverse();
        }
        if todo.len() == before && level > 1 {
            t.beyond = Some(t.beyond.map_or((1, place), |b| (b.0 + 1, b.1)));
            t.frags = t.frags.saturating_sub(geom.block_frags().into());
            return self.cut(i, place, t);
        }
        Ok(())
    }

    /// Fragments that a block should have in a file of its size: 0 after its end.
    fn want(&self, i: &Inode, place: FileBlock) -> u32 {
        let geom = &self.core.geom;
        match place {
            FileBlock::Data(lbn) => geom.lbn_frags(i.size(), lbn),
            FileBlock::Xattr(_) => geom.frags_for(i.d.xattr_len.get() as usize),
            FileBlock::Map { level, n } => {
                let first = geom.shape().first(level, n);
                if first < i.size().div_ceil(geom.block_size() as u64) { geom.block_frags() } else { 0 }
            }
        }
    }

    /// The fragments that a block has on disk.
    fn on_disk(&self, i: &Inode, place: FileBlock) -> u32 {
        match self.core.changed.contains_key(&i.ino.0) {
            true => self.core.disk_frags(i.ino, place),
            false => self.want(i, place),
        }
    }

    /// Whether a pointer may stay; if so, its fragments now belong to the inode.
    fn judge(&mut self, i: &Inode, (place, p): Piece, t: &mut Tally) -> Result<Fate> {
        let (want, frag) = (self.want(i, place), p.frag.get());
        if want == 0 {
            t.beyond = Some(t.beyond.map_or((1, place), |b| (b.0 + 1, b.1)));
            return Ok(Fate::Goes);
        }
        let dirty = self.core.cache.is_dirty(Name::File(i.ino, place));
        if frag != UNWRITTEN || !dirty {
            let disk = match self.on_disk(i, place) {
                0 => want,
                n => n,
            };
            if !self.core.is_run(Frag(frag), disk) {
                t.bad = Some(t.bad.map_or((1, place, frag, "is no place for it"), |b| (b.0 + 1, b.1, b.2, b.3)));
                return Ok(Fate::Goes);
            }
            let Some(owns) = self.settle(i, (place, p), disk)? else { return Ok(Fate::Goes) };
            if !dirty && !self.verify(i, (place, p), disk, t)? {
                return Ok(Fate::Goes);
            }
            if owns {
                self.claim(i, (place, p), disk);
            }
        }
        t.frags += u64::from(want);
        if let FileBlock::Data(lbn) = place {
            t.last = t.last.max(Some(lbn));
        }
        Ok(Fate::Stays)
    }

    /// Whether a block may have the fragments of its pointer: `None` if they are another's. If they have an owner
    /// already, this pass does not decide which of both is right, and the block gets none of them; the next one does.
    fn settle(&mut self, i: &Inode, (place, p): Piece, frags: u32) -> Result<Option<bool>> {
        let frag = p.frag.get();
        let taken = self.space.taken(frag, frags);
        let wrong = match taken {
            Some(first) => Some(first).filter(|_| !self.contest(frag, frags)),
            None => {
                let contested = (frag..frag + frags).find(|f| self.contested.contains(f));
                if contested.is_some() && self.is_rightful(i, (place, p), frags)? { None } else { contested }
            }
        };
        if let Some(first) = wrong {
            let (ino, at) = (Node(i.ino.0), self.byte(first));
            self.f.note(Issue::Duplicate { ino, place: spoken(place), frag: first, at });
            return Ok(None);
        }
        Ok(Some(taken.is_none()))
    }

    /// Notes that two inodes claim these fragments; returns whether that is new.
    fn contest(&mut self, frag: u32, frags: u32) -> bool {
        let known = self.contested.len();
        self.contested.extend(frag..frag + frags);
        let new = self.contested.len() > known;
        self.undecided |= new;
        new
    }

    /// Whether fragments belong to a block by the summaries of its segment, or by its checksum if these have nothing of
    /// it.
    fn is_rightful(&mut self, i: &Inode, (place, p): Piece, frags: u32) -> Result<bool> {
        let own = Owner::Block(i.ino.0 as u32, i.d.version.get(), block_code(place));
        match self.owner(Frag(p.frag.get()))? {
            Some(owner) => Ok(owner == own),
            None => Ok(words(self.core.read_block((i, place), p, frags, Kind::Data))?.is_ok()),
        }
    }

    /// The owner, by its summaries, of what begins at a fragment.
    fn owner(&mut self, frag: Frag) -> Result<Option<Owner>> {
        let Some(seg) = self.core.geom.seg_of(frag) else { return Ok(None) };
        if self.owners.as_ref().is_none_or(|(of, _)| *of != seg) {
            let (start, mut all) = (self.core.geom.seg_start(seg).0, FxHashMap::default());
            for (at, p) in self.core.summaries(seg, None)? {
                let block = |(f, b, off): (FileInfo, BlockInfo, u32)| {
                    (start + at + off, Owner::Block(f.ino.get(), f.version.get(), b.place.get()))
                };
                all.extend(p.blocks().map(block));
                all.extend(p.inodes.iter().map(|i| (i.entry.frag.get(), Owner::Inodes)));
            }
            self.owners = Some((seg, all));
        }
        Ok(self.owners.as_ref().and_then(|(_, all)| all.get(&frag.0).copied()))
    }

    fn claim(&mut self, i: &Inode, (place, p): Piece, frags: u32) {
        self.space.claim(Print {
            frag: p.frag.get(),
            ino: i.ino.0 as u32,
            version: i.d.version.get(),
            place: block_code(place),
            frags,
            crc: p.crc.get(),
        });
    }

    /// Reads a block of data if there is reason to, and marks it to be written elsewhere if its segment is to be
    /// emptied. Returns whether it has its pointer's checksum.
    fn verify(&mut self, i: &Inode, (place, p): Piece, disk: u32, t: &mut Tally) -> Result<bool> {
        let seg = self.core.geom.seg_of(Frag(p.frag.get())).map_or(u32::MAX, |seg| seg.0);
        let (suspect, leaves) = (self.wary || self.suspects.contains_key(&seg), self.leaving.contains(&seg));
        if !suspect && !leaves {
            return Ok(true);
        }
        // Readable parts of directories are kept; other metadata is read anyway.
        let checked = matches!(place, FileBlock::Data(_)) && !i.is_dir() && i.ino != IFILE;
        let kind = if checked { Kind::Data } else { Kind::Tree };
        match words(self.core.read_block((i, place), p, disk, kind))? {
            Ok(mut bytes) if leaves => {
                let name = Name::File(i.ino, place);
                bytes.resize(self.core.geom.bytes_of(self.want(i, place)), 0);
                self.core.cache.insert(name, Arc::new(bytes));
                self.core.mark(i.ino)?;
                self.core.make_dirty(name)?;
            }
            Ok(_) => {}
            Err(_) if checked => {
                t.wrong = Some(t.wrong.map_or((1, place, p.frag.get()), |w| (w.0 + 1, w.1, w.2)));
                return Ok(false);
            }
            Err(_) => {}
        }
        Ok(true)
    }

    /// Checks and claims the attributes. Returns whether they were cut off.
    fn check_xattr(&mut self, i: &mut Inode, t: &mut Tally) -> Result<bool> {
        let (p, ino) = (i.d.xattr, Node(i.ino.0));
        if p.frag.get() == 0 && i.d.xattr_len.get() == 0 {
            return Ok(false);
        }
        let why = match validate::xattr_len(&self.core.geom, &i.d) {
            false => Some(format!("they cannot have {} bytes", i.d.xattr_len)),
            true => words(self.core.xattr_list(i))?.err(),
        };
        if why.is_none() && !matches!(self.judge(i, (FileBlock::Xattr(0), p), t)?, Fate::Goes) {
            return Ok(false);
        }
        if let Some(why) = why {
            self.f.note(Issue::Xattr { ino, frag: p.frag.get(), why });
        }
        self.reshaped = true;
        self.core.mark(i.ino)?;
        (i.d.xattr, i.d.xattr_len) = (Pointer::default(), 0.into());
        self.core.cache.remove(Name::File(i.ino, FileBlock::Xattr(0)));
        self.core.iput(i)?;
        Ok(true)
    }

    /// Notes the issues of a walk.
    fn tell(&mut self, ino: Ino, t: &Tally) {
        let node = Node(ino.0);
        if let Some((count, place, frag, why)) = t.bad {
            self.f.note(Issue::BadPointers { ino: node, count, place: spoken(place), frag, why });
        }
        if let Some((count, place)) = t.beyond {
            self.f.note(Issue::BeyondSize { ino: node, count, place: spoken(place) });
        }
        if let Some((count, place, frag)) = t.wrong {
            let at = self.byte(frag);
            self.f.note(Issue::DataDamaged { ino: node, count, place: spoken(place), at });
        }
    }

    // Damaged inodes.

    /// Replaces damaged inodes by an older state, if all of it is still there; the others are lost.
    pub(super) fn look_for_older(&mut self) -> Result<()> {
        let damaged = std::mem::take(&mut self.damaged);
        if damaged.is_empty() {
            return Ok(());
        }
        let wanted: Vec<u32> = damaged.iter().map(|d| d.0).collect();
        let found = log::states(&self.core, &|ino| wanted.binary_search(&ino).is_ok())?;
        for (ino, why) in damaged {
            let entry = self.core.map_entry(number(ino))?;
            let at = if entry.frag.get() == UNWRITTEN { 0 } else { self.byte(entry.frag.get()) };
            self.f.note(Issue::InodeDamaged { ino: Node(ino.into()), at, why });
            self.discard(number(ino));
            let states = found.get(&ino).map_or(&[][..], |s| s);
            let older = states.iter().filter(|s| s.place != entry.frag.get() && s.version == entry.version.get());
            let mut kept = false;
            for s in older.filter(|s| s.place != 0) {
                if let Some(d) = self.older(ino, s)? {
                    self.f.note(Issue::InodeOlder { ino: Node(ino.into()), at: self.byte(s.place) });
                    self.core.set_map_entry(number(ino), MapEntry { frag: s.place.into(), ..entry })?;
                    self.check_inode(ino, d)?;
                    kept = true;
                    break;
                }
            }
            if !kept {
                self.free(ino)?;
            }
        }
        // The older state may be damaged in its turn; then it is lost.
        for (ino, _) in std::mem::take(&mut self.damaged) {
            self.free(ino)?;
        }
        Ok(())
    }

    /// The inode of an older state, if all its blocks are there and nobody else's.
    fn older(&mut self, ino: u32, s: &State) -> Result<Option<Dinode>> {
        let ino = number(ino);
        let Ok((at, d)) = words(self.core.read_inode(ino, Frag(s.place)))? else { return Ok(None) };
        let (geom, segs) = (self.core.geom, self.core.segs.count());
        let sound = d.version.get() == s.version && validate::inode(&geom, segs, at, ino, &d).is_ok();
        if !sound || !self.space.may_hold_inode(s.place) {
            return Ok(None);
        }
        let space = &self.space;
        let taken = |frag: u32, frags: u32| space.taken(frag, frags).is_some();
        Ok(log::is_whole(&mut self.core, &Inode { ino, d }, &taken)?.then_some(d))
    }

    /// Drops everything in core of an inode.
    fn discard(&mut self, ino: Ino) {
        self.core.cache.drop_parts(ino, FileBlock::Data(0)..=FileBlock::Xattr(0));
        self.core.cache.remove(Name::Inode(ino));
        self.core.hashes.remove(ino);
        if let Some(c) = self.core.changed.remove(&ino.0) {
            self.core.order.remove(&c.turn);
        }
    }

    /// Frees an inode. Its blocks belong to nobody from the next pass on.
    pub(super) fn free(&mut self, ino: u32) -> Result<()> {
        self.reshaped = true;
        self.discard(number(ino));
        let entry = self.core.map_entry(number(ino))?;
        let next_free = self.core.state.free_ino;
        let used = self.core.state.used_inodes;
        self.core.set_map_entry(number(ino), MapEntry { frag: 0.into(), next_free: next_free.into(), ..entry })?;
        self.core.state.free_ino = ino;
        self.core.state.used_inodes = used.saturating_sub(1);
        self.recs.flag(ino, Rec::GONE, true);
        Ok(())
    }
}
