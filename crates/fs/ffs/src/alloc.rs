//! Free space and free inodes: which cylinder group first, then the place in it.
//!
//! The names are those of `ffs_alloc.c`. [`Core::blkpref`] and [`Core::dirpref`] give the preferred place;
//! [`Core::alloc`], [`Core::realloc_frags`] and [`Core::ialloc`] allocate as near to it as possible: in the group asked
//! for, then by a quadratic rehash, then in any group ([`Core::hashalloc`]). Called by `file.rs` and `inode.rs`; runs
//! and inodes are freed through `commit.rs`.
//! Sources: McKusick and others 1984, section 3; Orlov's `ffs_dirpref` (FreeBSD 4.5).

use crate::bitmap::{block_bits, free_runs, header};
use crate::buffers::BlockKind;
use crate::format::*;
use crate::planted::{Flaw, planted};
use crate::volume::Core;
use arbor_base::cache::Name;
use arbor_base::layout::{Corrupt, U32};
use arbor_base::vfs::{Errno, Error, Ino, Result, TrimRange, mode};
use arbor_kit::lifetimes::Lives as _;
use std::mem::offset_of;
use zerocopy::IntoBytes;

const ROTOR_AT: usize = offset_of!(CgHeader, rotor);
const FROTOR_AT: usize = offset_of!(CgHeader, frotor);
/// Offset of `initediblk` in the header.
pub(crate) const INITED_AT: usize = offset_of!(CgHeader, initediblk);

impl Core {
    /// Name of a group's buffer.
    pub fn cg_name(&self, cgx: u32) -> Name {
        Name::Block(self.geom.cg_block(cgx).0.into())
    }

    /// The structure of a group.
    pub fn cg(&mut self, cgx: u32) -> Result<&[u8]> {
        Ok(self.block(self.geom.cg_block(cgx), BlockKind::Cg)?)
    }

    /// Whether a group can be used, which is in core then. One that is damaged counts as full from now on; one that cannot be read
    /// may be read later.
    fn is_usable(&mut self, cgx: u32) -> Result<bool> {
        let read = self.cg(cgx).map(drop);
        self.is_open(cgx, read)
    }

    fn is_open(&mut self, cgx: u32, read: Result<()>) -> Result<bool> {
        match read {
            Err(e @ Error::Corrupt(_)) => {
                self.calls.health.pass_by(e);
                self.space.shut(cgx);
                Ok(false)
            }
            Err(Error::Io(_)) => {
                self.space.unread = true;
                Ok(false)
            }
            read => read.map(|()| true),
        }
    }

    /// What cannot be freed stays in use until the checker looks. Of a group that is damaged it was told.
    fn stays_in_use(&mut self, cgx: u32) {
        match self.space.unread {
            true => self
                .calls
                .health
                .pass_by(format_args!("group {cgx} cannot be read, what is removed there stays in use")),
            false => self.calls.health.note_damage(),
        }
    }

    /// Why nothing was found: where something could not be read nobody knows.
    fn no_space(&self) -> Error {
        if self.space.unread { Errno::EIO } else { Errno::ENOSPC }.into()
    }

    /// Damage to the structure of a group, so many bytes from its start.
    fn cg_corrupt(
        &self,
        cgx: u32,
        (field, offset): (&'static str, usize),
        found: impl std::fmt::Display,
        should: &str,
    ) -> Corrupt {
        let at = self.geom.byte(self.geom.cg_block(cgx)) + offset as u64;
        Corrupt::new("cylinder group", field, at, found, should)
    }

    /// Marks fragments of a group used or free, and keeps all counts (FFS-A2).
    fn set_run(&mut self, cgx: u32, at: u32, len: u32, used: bool) -> Result<()> {
        let (geom, n) = (self.geom, self.geom.block_frags());
        let cg = self.cg(cgx)?;
        let mut h = header(cg);
        let mut bytes: Vec<(usize, u8)> = Vec::new();
        let (mut b, end) = (at / n, at + len);
        while b * n < end {
            let (lo, hi) = (at.max(b * n) - b * n, end.min((b + 1) * n) - b * n);
            let mask = (((1u16 << hi) - 1) ^ ((1u16 << lo) - 1)) as u8;
            let old = block_bits(&geom, cg, b);
            if old & mask != if used { 0 } else { mask } {
                let what = if used { "fragments that are free" } else { "fragments in use" };
                let place = bit_place(1 + geom.inode_sectors(), b * n).0;
                let found = format!("{old:#010b} for block {b}");
                return Err(self.cg_corrupt(cgx, ("bitmap", place), found, what).into());
            }
            let new = if used { old | mask } else { old & !mask };
            account(&mut h, old, n, false);
            account(&mut h, if planted(Flaw::CountsStale) { old } else { new }, n, true);
            let (place, bit) = bit_place(1 + geom.inode_sectors(), b * n);
            let shift = bit.trailing_zeros();
            let all = ((1u16 << n) - 1) as u8;
            // Blocks of less than eight fragments share a byte.
            let before = match bytes.last() {
                Some((p, byte)) if *p == place => *byte,
                _ => cg.get(place).copied().unwrap_or(0),
            };
            let byte = before & !(all << shift) | new << shift;
            match bytes.last_mut() {
                Some(last) if last.0 == place => last.1 = byte,
                _ => bytes.push((place, byte)),
            }
            b += 1;
        }
        let name = self.cg_name(cgx);
        self.modify(name, |buf| {
            for (place, byte) in &bytes {
                if let Some(b) = buf.get_mut(*place) {
                    *b = *byte;
                }
            }
        })?;
        self.put_header(cgx, &h)
    }

    /// Stores the counts and rotors of a header in its buffer, and the counts in core.
    fn put_header(&mut self, cgx: u32, h: &CgHeader) -> Result<()> {
        let name = self.cg_name(cgx);
        self.modify(name, |buf| {
            if let Some(place) = buf.get_mut(..SECTOR) {
                place.copy_from_slice(h.as_bytes());
            }
        })?;
        let info = self.space.group_mut(cgx);
        if h.sum.nbfree.get() > info.nbfree && !planted(Flaw::ClustersForgotten) {
            info.maxcluster = u32::MAX;
        }
        self.space.set_counts(cgx, &h.sum);
        Ok(())
    }

    fn set_rotor(&mut self, cgx: u32, at: usize, value: u32) -> Result<()> {
        let name = self.cg_name(cgx);
        self.modify(name, |buf| put_u32(buf, at, value))
    }

    /// Allocates `frags` fragments (up to a block) for `ino`, at `pref` if that is possible.
    pub fn alloc(&mut self, ino: Ino, pref: Option<Frag>, frags: u32) -> Result<Frag> {
        if self.space.available(&self.geom) < u64::from(frags) {
            Err(Errno::ENOSPC.into())
        } else {
            self.alloc_reserved(ino, pref, frags)
        }
    }

    /// The same, from the reserve (`minfree`): for calls that free space.
    pub fn alloc_reserved(&mut self, ino: Ino, pref: Option<Frag>, frags: u32) -> Result<Frag> {
        let pref = pref.filter(|p| p.0 < self.geom.frags);
        let cgx = pref.map_or_else(|| self.geom.cg_of_inode(ino), |p| self.geom.cg_of(p));
        let found = self.hashalloc(cgx, &mut |core, c| core.alloccg(c, pref.filter(|_| c == cgx), frags))?;
        found.ok_or_else(|| self.no_space())
    }

    /// Tries the group asked for, then others by a quadratic rehash, then all.
    fn hashalloc<R>(&mut self, cgx: u32, f: &mut dyn FnMut(&mut Core, u32) -> Result<Option<R>>) -> Result<Option<R>> {
        let count = self.geom.cg_count;
        let mut f = |core: &mut Core, cgx: u32| {
            let before = core.changes();
            match f(core, cgx) {
                Err(e) if e.is_damage() && core.changes() == before => core.is_open(cgx, Err(e)).map(|_| None),
                found => found,
            }
        };
        if let Some(r) = f(self, cgx)? {
            return Ok(Some(r));
        }
        let (mut step, mut at) = (1, cgx);
        while step < count {
            at = (at + step) % count;
            if let Some(r) = f(self, at)? {
                return Ok(Some(r));
            }
            step *= 2;
        }
        for i in 1..count {
            if let Some(r) = f(self, (cgx + i) % count)? {
                return Ok(Some(r));
            }
        }
        Ok(None)
    }

    fn alloccg(&mut self, cgx: u32, pref: Option<Frag>, frags: u32) -> Result<Option<Frag>> {
        let (n, info) = (self.geom.block_frags(), self.space.group(cgx));
        if info.nbfree == 0 && (frags == n || info.nffree < frags) {
            return Ok(None);
        }
        if frags < n
            && let Some(at) = self.find_frags(cgx, pref, frags)?
        {
            self.set_run(cgx, at, frags, true)?;
            self.set_rotor(cgx, FROTOR_AT, at)?;
            return Ok(Some(Frag(self.geom.cg_start(cgx).0 + at)));
        }
        let Some(at) = self.find_block(cgx, pref)? else { return Ok(None) };
        self.set_run(cgx, at, frags, true)?;
        self.set_rotor(cgx, if frags == n { ROTOR_AT } else { FROTOR_AT }, at)?;
        Ok(Some(Frag(self.geom.cg_start(cgx).0 + at)))
    }

    /// Used fragments of block `b`, including those that are held.
    fn taken(&self, cg: &[u8], cgx: u32, b: u32) -> u8 {
        let held = &self.space.group(cgx).held;
        block_bits(&self.geom, cg, b) | if held.is_empty() { 0 } else { block_bits(&self.geom, held, b) }
    }

    /// A free block of a group: the one at `pref`, or the next one after it.
    fn find_block(&mut self, cgx: u32, pref: Option<Frag>) -> Result<Option<u32>> {
        let (geom, n) = (self.geom, self.geom.block_frags());
        let name = self.cg_name(cgx);
        let rotor = header(self.cg(cgx)?).rotor.get();
        let Some(cg) = self.cache.peek(name).cloned() else { return Ok(None) };
        let blocks = geom.cg_len(cgx) / n;
        let start = pref.map_or(rotor, |p| p.0 % geom.cg_frags) / n % blocks.max(1);
        let found = (start..blocks).chain(0..start).find(|b| self.taken(&cg, cgx, *b) == 0);
        Ok(found.map(|b| b * n))
    }

    /// The first free run in a partly used block, of the smallest sufficient length: at `pref` or after it
    /// (`mapsearch`).
    fn find_frags(&mut self, cgx: u32, pref: Option<Frag>, frags: u32) -> Result<Option<u32>> {
        let (geom, n) = (self.geom, self.geom.block_frags());
        let name = self.cg_name(cgx);
        let h = header(self.cg(cgx)?);
        let Some(cg) = self.cache.peek(name).cloned() else { return Ok(None) };
        let blocks = geom.cg_len(cgx) / n;
        let start = pref.map_or(h.frotor.get(), |p| p.0 % geom.cg_frags) / n % blocks.max(1);
        for size in frags..n {
            if h.frsum.get(size as usize).is_none_or(|c| c.get() == 0) {
                continue;
            }
            for b in (start..blocks).chain(0..start) {
                let (mut at, taken) = (None, self.taken(&cg, cgx, b));
                free_runs(taken, n, |run, len| {
                    if len == size && len < n {
                        at = at.or(Some(b * n + run));
                    }
                });
                if at.is_some() {
                    return Ok(at);
                }
            }
        }
        Ok(None)
    }

    /// Extends a run of fragments in place, if those after it are free (`ffs_fragextend`).
    fn fragextend(&mut self, frag: Frag, old: u32, new: u32) -> Result<bool> {
        let (n, cgx) = (self.geom.block_frags(), self.geom.cg_of(frag));
        let at = frag.0 % self.geom.cg_frags;
        if at % n + new > n || self.space.group(cgx).nffree < new - old {
            return Ok(false);
        }
        let name = self.cg_name(cgx);
        if !self.is_usable(cgx)? {
            return Ok(false);
        }
        let Some(cg) = self.cache.peek(name).cloned() else { return Ok(false) };
        let mask = (((1u16 << (at % n + new)) - 1) ^ ((1u16 << (at % n + old)) - 1)) as u8;
        let taken = if planted(Flaw::GrowIntoHeld) {
            block_bits(&self.geom, &cg, at / n)
        } else {
            self.taken(&cg, cgx, at / n)
        };
        if taken & mask != 0 {
            return Ok(false);
        }
        self.set_run(cgx, at + old, new - old, true)?;
        Ok(true)
    }

    /// Extends the run `frag` of `old` fragments to `new`, in place or elsewhere; returns its address. If it moved, the
    /// old run is still in use (`ffs_realloccg`).
    pub fn realloc_frags(&mut self, ino: Ino, frag: Frag, (old, new): (u32, u32), pref: Option<Frag>) -> Result<Frag> {
        if self.space.available(&self.geom) < u64::from(new - old) {
            return Err(Errno::ENOSPC.into());
        }
        if self.fragextend(frag, old, new)? {
            return Ok(frag);
        }
        let n = self.geom.block_frags();
        self.choose_optimization();
        if self.space.optimize_space || new == n {
            return self.alloc(ino, pref, new);
        }
        // A whole block, of which the rest is free: the next extension stays in place.
        match self.alloc(ino, pref, n) {
            Ok(found) => {
                let cgx = self.geom.cg_of(found);
                self.set_run(cgx, found.0 % self.geom.cg_frags + new, n - new, false)?;
                Ok(found)
            }
            Err(e) if e.errno() == Errno::ENOSPC => self.alloc(ino, pref, new),
            Err(e) => Err(e),
        }
    }

    /// Chooses what to optimise: time, until too much of the space is in fragments; then space, until little is.
    fn choose_optimization(&mut self) {
        let minfree = u64::from(self.sb.minfree.get());
        let data = u64::from(self.geom.frags);
        if self.space.optimize_space {
            self.space.optimize_space = self.space.nffree() >= data * minfree / 200;
        } else {
            self.space.optimize_space = minfree > 2 && self.space.nffree() >= data * (minfree - 2) / 100;
        }
    }

    /// `len` free blocks in a row in the group of `pref`, as near to it as possible (`ffs_clusteralloc`).
    pub fn clusteralloc(&mut self, pref: Frag, len: u32) -> Result<Option<Frag>> {
        let (geom, n, cgx) = (self.geom, self.geom.block_frags(), self.geom.cg_of(pref));
        let info = self.space.group(cgx);
        if info.maxcluster < len || info.nbfree < len || self.space.available(&self.geom) < u64::from(len * n) {
            return Ok(None);
        }
        let name = self.cg_name(cgx);
        if !self.is_usable(cgx)? {
            return Ok(None);
        }
        let Some(cg) = self.cache.peek(name).cloned() else { return Ok(None) };
        let blocks = geom.cg_len(cgx) / n;
        let start = pref.0 % geom.cg_frags / n;
        let mut longest = 0;
        let mut search = |range: std::ops::Range<u32>| {
            let mut run = 0;
            for b in range {
                run = if self.taken(&cg, cgx, b) == 0 { run + 1 } else { 0 };
                longest = longest.max(run);
                if run == len {
                    return Some((b + 1 - len) * n);
                }
            }
            None
        };
        let Some(at) = search(start..blocks).or_else(|| search(0..blocks)) else {
            self.space.group_mut(cgx).maxcluster = longest;
            return Ok(None);
        };
        self.set_run(cgx, at, len * n, true)?;
        Ok(Some(Frag(geom.cg_start(cgx).0 + at)))
    }

    /// Marks a run free (`ffs_blkfree`). `commit.rs` decides when it may be reallocated.
    pub fn blkfree(&mut self, frag: Frag, frags: u32) -> Result<()> {
        if !self.geom.is_data(frag, frags) {
            let at = self.geom.byte(frag);
            return Err(Corrupt::new("block pointer", "frag", at, frag.0, "a run of data fragments").into());
        }
        let cgx = self.geom.cg_of(frag);
        if !self.is_usable(cgx)? {
            self.stays_in_use(cgx);
            return Ok(());
        }
        self.set_run(cgx, frag.0 % self.geom.cg_frags, frags, false)
    }

    /// Discards the free space of a group in `range`; returns the bytes.
    pub fn trim_group(&mut self, cgx: u32, range: &TrimRange) -> Result<u64> {
        let (geom, n) = (self.geom, self.geom.block_frags());
        if !self.is_usable(cgx)? {
            return Ok(0);
        }
        let Some(cg) = self.cache.peek(self.cg_name(cgx)).cloned() else { return Ok(0) };
        let mut runs: Vec<(Frag, u32)> = Vec::new();
        for b in 0..geom.cg_len(cgx) / n {
            free_runs(self.taken(&cg, cgx, b), n, |at, len| {
                let frag = Frag(geom.cg_start(cgx).0 + b * n + at);
                match runs.last_mut() {
                    Some(last) if last.0.0 + last.1 == frag.0 => last.1 += len,
                    _ => runs.push((frag, len)),
                }
            });
        }
        let part = |(at, len): (Frag, u32)| {
            let (at, len) = range.part((geom.byte(at), geom.bytes_of(len) as u64), geom.frag_size() as u64)?;
            Some((Frag((at >> geom.frag_shift) as u32), (len >> geom.frag_shift) as u32))
        };
        let parts: Vec<(Frag, u32)> = runs.into_iter().filter_map(part).collect();
        self.discard(&parts)?;
        Ok(parts.iter().map(|p| geom.bytes_of(p.1) as u64).sum())
    }

    /// Lets all held fragments be reallocated, and discards them if the mount asks for that.
    pub fn unhold(&mut self) {
        let mut runs = Vec::new();
        for cgx in self.space.take_holding() {
            if self.opts.discard {
                self.held_runs(cgx, &mut runs);
            }
            self.space.group_mut(cgx).held = Vec::new();
            if !planted(Flaw::ClustersForgotten) {
                self.space.group_mut(cgx).maxcluster = u32::MAX;
            }
        }
        // Discarding is advice: the commit is durable whether the device takes it or not.
        let _ = self.discard(&runs);
    }

    /// Appends the held runs of a group.
    fn held_runs(&self, cgx: u32, runs: &mut Vec<(Frag, u32)>) {
        let (first, start) = (1 + self.geom.inode_sectors(), self.geom.cg_start(cgx).0);
        let held = &self.space.group(cgx).held;
        let is_held = |i: u32| {
            let (at, mask) = bit_place(first, i);
            held.get(at).is_some_and(|byte| byte & mask != 0)
        };
        for i in (0..self.geom.cg_len(cgx)).filter(|i| is_held(*i)) {
            match runs.last_mut() {
                Some(last) if last.0.0 + last.1 == start + i => last.1 += 1,
                _ => runs.push((Frag(start + i), 1)),
            }
        }
    }

    /// The preferred place of logical block `lbn`: next to the one before it (`before`), with a gap where a cluster
    /// ends, unless the file has its share of this group (`ffs_blkpref`). `index` is its position in its array of
    /// pointers.
    pub fn blkpref(&mut self, ino: Ino, lbn: u64, index: u64, before: Frag) -> Frag {
        let (geom, maxbpg) = (self.geom, u64::from(self.sb.maxbpg.get()));
        if before.0 != 0 && !index.is_multiple_of(maxbpg) {
            let ends_cluster = index.is_multiple_of(u64::from(self.sb.maxcontig.get()));
            let gap = 1 + if ends_cluster { self.sb.rotdelay.get() } else { 0 };
            return Frag(before.0.saturating_add(gap * geom.block_frags()));
        }
        let start = |cgx: u32| Frag(geom.cg_start(cgx).0 + geom.meta_frags());
        let home = geom.cg_of_inode(ino);
        let near = if self.opts.spread { 0 } else { geom.nindir() };
        if lbn < NDADDR as u64 + near {
            return start(home);
        }
        let first = if before.0 == 0 { u64::from(home) + lbn / maxbpg } else { u64::from(geom.cg_of(before)) + 1 };
        let average = self.space.nbfree() / u64::from(geom.cg_count);
        let groups = (0..u64::from(geom.cg_count)).map(|i| ((first + i) % u64::from(geom.cg_count)) as u32);
        let found = groups.into_iter().find(|c| u64::from(self.space.group(*c).nbfree) >= average);
        start(found.unwrap_or(home))
    }

    /// Group for a new directory: those in the root apart from each other, others near their parent as long
    /// as there is room for their files (`ffs_dirpref`). With `spreaddirs` as in 1984: of those with no less than the average of
    /// free inodes, the one with the fewest directories.
    pub fn dirpref(&mut self, parent: Ino) -> u32 {
        let count = self.geom.cg_count;
        let (inodes, blocks, dirs) = (
            self.space.nifree() / u64::from(count),
            self.space.nbfree() / u64::from(count),
            self.space.ndir() / u64::from(count),
        );
        let home = self.geom.cg_of_inode(parent);
        if self.opts.spreaddirs {
            let fit = |c: &u32| u64::from(self.space.group(*c).nifree) >= inodes;
            return (0..count).filter(fit).min_by_key(|c| self.space.group(*c).ndir).unwrap_or(home);
        }
        if parent == ROOT {
            let first = self.space.draw(count);
            let fit = |c: &u32| {
                let info = self.space.group(*c);
                u64::from(info.nifree) >= inodes && u64::from(info.nbfree) >= blocks
            };
            let groups = (0..count).map(|i| (first + i) % count).filter(fit);
            return groups.min_by_key(|c| self.space.group(*c).ndir).unwrap_or(first);
        }
        let limits = self.dir_limits(inodes, blocks, dirs);
        let fit = |c: &u32| {
            let info = self.space.group(*c);
            u64::from(info.ndir) < limits.0
                && u64::from(info.nifree) >= limits.1
                && u64::from(info.nbfree) >= limits.2
                && u64::from(info.contigdirs) < limits.3
        };
        let groups = || (0..count).map(|i| (home + i) % count);
        let found = groups().find(fit).or_else(|| groups().find(|c| u64::from(self.space.group(*c).nifree) >= inodes));
        found.unwrap_or(home)
    }

    /// Most directories, fewest inodes, fewest blocks and most directories in a row of a group that takes a
    /// new directory, from the averages of all groups.
    fn dir_limits(&self, inodes: u64, blocks: u64, dirs: u64) -> (u64, u64, u64, u64) {
        let (ipg, bsize) = (u64::from(self.geom.cg_inodes), self.geom.block_size() as u64);
        let (avg_size, avg_files) =
            (u64::from(self.sb.avg_file_size.get()), u64::from(self.sb.avg_files_per_dir.get()));
        let group = u64::from(self.geom.cg_frags) << self.geom.frag_shift;
        let present = group.saturating_sub(blocks * bsize).checked_div(dirs).unwrap_or(0);
        let size = avg_size.saturating_mul(avg_files).max(present).max(1);
        let in_a_row = (blocks * bsize / size).min(255).min(ipg / avg_files.max(1)).max(1);
        let least = |average: u64| (average - average / 4).max(1);
        ((dirs + ipg / 16).min(ipg), least(inodes), least(blocks), in_a_row)
    }

    /// Takes a free inode: in group `cgx`, near `near` (`ffs_valloc`, `ffs_nodealloccg`).
    pub fn ialloc(&mut self, cgx: u32, near: Ino, m: u32) -> Result<Ino> {
        if self.space.nifree() == 0 {
            return Err(Errno::ENOSPC.into());
        }
        let found = self.hashalloc(cgx, &mut |core, c| core.nodealloccg(c, near, m))?;
        let ino = found.ok_or_else(|| self.no_space())?;
        let info = self.space.group_mut(self.geom.cg_of_inode(ino));
        let is_dir = m & mode::IFMT == mode::IFDIR;
        info.contigdirs = if is_dir { info.contigdirs.saturating_add(1) } else { info.contigdirs.saturating_sub(1) };
        Ok(ino)
    }

    fn nodealloccg(&mut self, cgx: u32, near: Ino, m: u32) -> Result<Option<Ino>> {
        if self.space.group(cgx).nifree == 0 {
            return Ok(None);
        }
        let geom = self.geom;
        let base = u64::from(cgx) * u64::from(geom.cg_inodes);
        let name = self.cg_name(cgx);
        let mut h = header(self.cg(cgx)?);
        let Some(cg) = self.cache.peek(name).cloned() else { return Ok(None) };
        let start = if geom.cg_of_inode(near) == cgx { (near.0 - base) as u32 } else { h.irotor.get() };
        let start = start.min(geom.cg_inodes - 1);
        let is_free = |i: &u32| !bit(&cg, 1, *i) && base + u64::from(*i) >= ROOT.0;
        let (mut found, mut passed) = (None, false);
        for at in (start..geom.cg_inodes).chain(0..start).filter(is_free) {
            if at >= h.initediblk.get() || self.is_free_slot(Ino(base + u64::from(at)))? {
                found = Some(at);
                break;
            }
            passed = true;
        }
        let Some(at) = found else {
            if passed {
                return Ok(None);
            }
            let found = self.space.group(cgx).nifree;
            return Err(self
                .cg_corrupt(cgx, ("nifree", offset_of!(CgHeader, sum.nifree)), found, "as many as the bitmap has free")
                .into());
        };
        h.irotor = at.into();
        self.set_inode_bit(cgx, at, true, m, &mut h)?;
        while at >= header(self.cg(cgx)?).initediblk.get() {
            self.init_inode_block(cgx)?;
        }
        Ok(Some(Ino(base + u64::from(at))))
    }

    fn set_inode_bit(&mut self, cgx: u32, at: u32, used: bool, m: u32, h: &mut CgHeader) -> Result<()> {
        let (place, mask) = bit_place(1, at);
        let one = |n: U32, more: bool| if more { n.get().wrapping_add(1) } else { n.get().saturating_sub(1) }.into();
        h.sum.nifree = one(h.sum.nifree, !used);
        if m & mode::IFMT == mode::IFDIR {
            h.sum.ndir = one(h.sum.ndir, used);
        }
        let name = self.cg_name(cgx);
        self.modify(name, |buf| {
            if let Some(b) = buf.get_mut(place) {
                *b = if used { *b | mask } else { *b & !mask };
            }
        })?;
        self.put_header(cgx, h)
    }

    /// Marks an inode free in the bitmap (`ffs_vfree`).
    pub fn vfree(&mut self, ino: Ino, m: u32) -> Result<()> {
        let cgx = self.geom.cg_of_inode(ino);
        let at = (ino.0 % u64::from(self.geom.cg_inodes)) as u32;
        if !self.is_usable(cgx)? {
            self.stays_in_use(cgx);
            return Ok(());
        }
        let cg = self.cg(cgx)?;
        let mut h = header(cg);
        if !bit(cg, 1, at) {
            let field = ("inode bitmap", bit_place(1, at).0);
            return Err(self.cg_corrupt(cgx, field, format!("inode {ino} free"), "an inode in use").into());
        }
        h.irotor = h.irotor.get().min(at).into();
        self.set_inode_bit(cgx, at, false, m, &mut h)
    }

    /// Initialises the next block of a group's inode table with free inodes.
    fn init_inode_block(&mut self, cgx: u32) -> Result<()> {
        let geom = self.geom;
        let old = header(self.cg(cgx)?).initediblk.get();
        let base = u64::from(cgx) * u64::from(geom.cg_inodes);
        let block = geom.cg_start(cgx).0 + (2 + old / geom.inodes_per_block()) * geom.block_frags();
        self.make_block(Frag(block), BlockKind::Inodes, vec![0; geom.block_size()])?;
        debug_assert_eq!(geom.first_inode(Frag(block)).0, base + u64::from(old));
        self.ordering().table_block_made(self, cgx, Frag(block), old)?;
        let name = self.cg_name(cgx);
        self.modify(name, |buf| put_u32(buf, INITED_AT, old + geom.inodes_per_block()))?;
        self.ordering().table_grown(self, cgx)
    }
}

/// Adds a block with these used fragments to the counts of a group, or subtracts it.
fn account(h: &mut CgHeader, used: u8, n: u32, add: bool) {
    let change = |count: &mut U32, by: u32| {
        *count = if add { count.get().wrapping_add(by) } else { count.get().wrapping_sub(by) }.into();
    };
    free_runs(used, n, |_, len| {
        if len == n {
            change(&mut h.sum.nbfree, 1);
        } else {
            change(&mut h.sum.nffree, len);
            if let Some(count) = h.frsum.get_mut(len as usize) {
                change(count, 1);
            }
        }
    });
}
