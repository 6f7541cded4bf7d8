//! Write-back of dirty pages: allocates extents for them, or moves them into the inode, and writes them.
//!
//! The size is known only now, so the extents are as contiguous as the AG allows (3.1, 3.3).

use super::map::{Mapped, clip};
use crate::alloc::Goal;
use crate::delayed::{DataWrites, Delayed, Which};
use crate::format::*;
use crate::inode::Inode;
use crate::planted::{Flaw, planted};
use crate::volume::{Core, Volume};
use arbor_base::cache::{Name, cluster};
use arbor_base::device::{Buf, Kind};
use arbor_base::vfs::{Error, Ino, Result, Time};
use std::sync::atomic::Ordering::Relaxed;

/// Data bytes of one batch of write-back.
const BATCH_BYTES: usize = 16 << 20;
/// Pages that are allocated at a time.
const RUN_PAGES: usize = 64;
/// A file past this many blocks gets full blocks only (3.1).
const SMALL_BLOCKS: u64 = 12;

impl Volume {
    /// Writes back one file, so that its map is complete.
    pub(crate) fn flush_one(&self, ino: Ino) -> Result<()> {
        if !self.core.lock().delayed.has(ino) {
            return Ok(());
        }
        let mut io = self.order();
        self.write_back(&mut io, Which::One(ino))
    }

    /// Writes dirty data to the device: of the files that `which` selects.
    pub(crate) fn write_back(&self, io: &mut crate::volume::Io, which: Which) -> Result<()> {
        let mut unwritten = None;
        loop {
            let step = {
                let mut core = self.core.lock();
                core.health.check_ordered()?;
                let collected = core.collect_data(which, self.clock.now());
                collected.map(|(out, more)| (core.writes(&out.pieces), out, more))
            };
            let (windows, mut out, more) = match step {
                Ok(s) => s,
                Err(Error::Restart) => {
                    self.core.lock().attempt.take_reason();
                    self.flush_log(io)?;
                    self.run_bitmap_daemon(io, false)?;
                    self.checkpoint(io, true)?;
                    continue;
                }
                Err(e) => return Err(e),
            };
            unwritten = unwritten.or(out.unwritten.take());
            if !out.pages.is_empty() {
                self.counters.data_writes.fetch_add(out.pieces.len() as u64, Relaxed);
                let bytes: u64 = out.pieces.iter().map(|p| p.2.len() as u64).sum();
                self.counters.data_write_bytes.fetch_add(bytes, Relaxed);
                io.note_data(&out);
                let done = self.dev.submit(cluster(out.pieces, 1 << 20)).wait_all().map_err(Error::Io);
                let mut core = self.core.lock();
                core.written_to(&windows);
                for write in out.pages {
                    core.cache.end_write(write, done.is_ok());
                }
                drop(core);
                self.or_fail(done)?;
            }
            if out.blocked {
                self.part_from_witnesses(io)?;
            } else if !more {
                return unwritten.map_or(Ok(()), Err);
            }
        }
    }
}

impl Core {
    fn collect_data(&mut self, which: Which, now: Time) -> Result<(DataWrites, bool)> {
        self.health.check_alive()?;
        let mut out = DataWrites::default();
        let next = |core: &Core| match which {
            Which::One(ino) => core.delayed.has(ino).then_some(ino),
            Which::UpTo(seq) => core.delayed.first_until(seq),
        };
        if next(self).is_none() {
            return Ok((out, false));
        }
        self.health.check_writable()?;
        self.begin()?;
        let mut more = false;
        while let Some(ino) = next(self) {
            if self.is_witnessed(ino) && !planted(Flaw::WitnessesForgotten) {
                out.blocked = true;
                break;
            }
            // Readers that have mapped its pages race with the writes that follow.
            self.versions.change(ino);
            let before = self.tx.changes();
            let done = match self.flush_file(ino, &mut out) {
                Ok(done) => done,
                Err(e) if self.tx.changes() == before => {
                    // It stays dirty, and keeps nobody else's data from the device.
                    self.delayed.postpone(ino);
                    self.health.note(&e);
                    out.unwritten = out.unwritten.or(Some(e));
                    more = which != Which::One(ino);
                    break;
                }
                Err(e) => {
                    self.health.fail(&e);
                    self.drop_tx();
                    return Err(e);
                }
            };
            let bytes: usize = out.pages.len() * self.page_size() as usize;
            if !done || self.tx_full() || bytes >= BATCH_BYTES {
                more = true;
                break;
            }
        }
        self.commit(now);
        self.look_at_written(&out);
        Ok((out, more))
    }

    /// Allocates and collects the dirty pages of one file in the open transaction. Returns whether that was all of
    /// them.
    pub fn flush_file(&mut self, ino: Ino, out: &mut DataWrites) -> Result<bool> {
        let Some(&Delayed { size, mtime, ctime, no_inline, .. }) = self.delayed.get(ino) else {
            return Ok(true);
        };
        let mut i = self.iget(ino)?;
        i.d.set_mtime(mtime);
        i.d.set_ctime(ctime);
        if i.format() == Format::Inline {
            let stays = self.ways.inline || self.cache.dirty_pages(ino, 0).next().is_none();
            if size <= self.area_len(&i) as u64 && !no_inline && stays {
                self.flush_inline(&mut i, size)?;
                self.delayed.remove(ino);
                return Ok(true);
            }
            self.has_place(&i)?;
            self.area_clear(&i)?;
            i.d.format = Format::Extent as u8;
            i.d.size = 0.into();
        }
        let mut from = 0;
        loop {
            let run = self.dirty_run(ino, from);
            let Some(&last) = run.last() else { break };
            // Never before the first run: an inline file's bytes have just left the inode.
            if from > 0 && self.tx_full() {
                let reached = run.first().copied().unwrap_or(0) * self.page_size();
                i.d.size = i.d.size.get().max(reached.min(size)).into();
                self.iput(&i)?;
                return Ok(false);
            }
            self.flush_run(&mut i, size, &run, out)?;
            from = last + 1;
        }
        i.d.size = size.into();
        self.iput(&i)?;
        self.delayed.remove(ino);
        Ok(true)
    }

    fn flush_inline(&mut self, i: &mut Inode, size: u64) -> Result<()> {
        let name = Name::data(i.ino, 0);
        if let Some(page) = self.cache.peek(name).cloned() {
            let old = i.d.size.get().max(size) as usize;
            let mut bytes = page.get(..page.len().min(size as usize)).unwrap_or(&[]).to_vec();
            bytes.resize(old.min(self.area_len(i)), 0);
            self.area_write(i, 0, &bytes)?;
            // The inode's buffer has the data now.
            self.cache.remove(name);
        }
        i.d.size = size.into();
        self.iput(i)
    }

    /// Fails unless something can be given away in some AG: asked before the file is changed.
    fn has_place(&mut self, i: &Inode) -> Result<()> {
        let (home, count) = (self.inode_ag(i), self.geom.ag_count);
        for ag in (0..count).map(|n| (home + n) % count) {
            if !self.space[ag].used || self.space[ag].free() > 0 && self.is_usable(ag)? {
                return Ok(());
            }
        }
        if self.space.shuts() { Err(self.no_space()) } else { Ok(()) }
    }

    /// Consecutive dirty pages from `from` on.
    fn dirty_run(&self, ino: Ino, from: u64) -> Vec<u64> {
        let mut run: Vec<u64> = Vec::new();
        for p in self.cache.dirty_pages(ino, from) {
            if run.last().is_some_and(|l| l + 1 != p) || run.len() >= RUN_PAGES {
                break;
            }
            run.push(p);
        }
        run
    }

    fn flush_run(&mut self, i: &mut Inode, size: u64, run: &[u64], out: &mut DataWrites) -> Result<()> {
        let pf = self.page_frags();
        let (Some(&a), Some(&b)) = (run.first(), run.last()) else { return Ok(()) };
        let used = size.div_ceil(self.geom.frag_size());
        let (lo, hi) = (a * pf, ((b + 1) * pf).min(used));
        let pieces = self.allocate(i, lo, hi, size)?;
        let (fs, ps) = (self.geom.frag_size(), self.page_size());
        let mut pages = Vec::with_capacity(run.len());
        for &p in run {
            let name = Name::data(i.ino, p);
            let need = (hi.min((p + 1) * pf).saturating_sub(p * pf) * fs) as usize;
            if self.cache.peek(name).is_some_and(|v| v.len() < need) {
                self.modify(name, |v| v.resize(need, 0));
            }
            match self.cache.begin_write(name) {
                Some(write) => {
                    pages.push(write.bytes().clone());
                    out.pages.push(write);
                }
                None => return Err(Error::refused("bug: a page is written twice at once")),
            }
        }
        for piece in pieces {
            let mut at = piece.at * fs;
            let end = piece.end() * fs;
            while at < end {
                let n = (at / ps - a) as usize;
                let stop = end.min((at / ps + 1) * ps);
                let disk = piece.start.0 * fs + (at - piece.at * fs);
                if let Some(page) = pages.get(n) {
                    let buf = Buf::slice(page.clone(), (at % ps) as usize, (stop - at) as usize).of_file(i.ino.0);
                    out.pieces.push((disk, Kind::Data, buf));
                    out.owners.push((i.ino, at / ps));
                }
                at = stop;
            }
        }
        Ok(())
    }

    /// Maps [lo, hi), as written; returns where it lies, in order.
    fn allocate(&mut self, i: &mut Inode, lo: u64, hi: u64, size: u64) -> Result<Vec<Mapped>> {
        let small = size <= SMALL_BLOCKS << self.geom.block_shift;
        let mut out: Vec<Mapped> = Vec::new();
        let mut at = lo;
        while at < hi {
            let prev = self.extent_le(i, at)?;
            if let Some(e) = prev.filter(|e| e.end() > at) {
                let piece = clip(e, at, hi);
                if e.flags & UNWRITTEN != 0 {
                    self.cut_extent(i, e, piece.at, piece.end())?;
                    self.insert_extent(i, Mapped { flags: 0, ..piece })?;
                }
                out.push(Mapped { flags: 0, ..piece });
                at = piece.end();
                continue;
            }
            if small && self.move_tail_block(i, prev, at, lo, &mut out)? {
                at = out.last().map_or(lo, |p| p.end());
                continue;
            }
            let next = self.extent_ge(i, at)?.map_or(hi, |e| e.at.min(hi));
            let want = (next - at).min(u64::from(self.maxblkpg_frags(at))) as u32;
            let got = self.alloc(self.goal(i, prev, at), want)?;
            let piece = Mapped { at, start: got.start, len: got.len, flags: 0 };
            self.insert_extent(i, piece)?;
            out.push(piece);
            at = piece.end();
        }
        if !small {
            self.fill_block(i, hi, size)?;
        }
        Ok(out)
    }

    /// The preferred place of fragment `at` of a file: after the extent before it, with room for the hole between them.
    pub(super) fn goal(&self, i: &Inode, prev: Option<Mapped>, at: u64) -> Goal {
        let per = u64::from(self.sb.maxblkpg.get().max(1)) * u64::from(self.geom.block_frags());
        let home = self.inode_ag(i);
        match prev {
            None => {
                let ag = (u64::from(home) + at / per) % u64::from(self.sb.ag_used.get().max(1));
                Goal { ag: ag as u32, at: None }
            }
            Some(e) => {
                let ag = self.geom.ag_of(e.start);
                if at.is_multiple_of(per) {
                    return Goal { ag: (ag + 1) % self.geom.ag_count, at: None };
                }
                let want = e.start.0.saturating_add(at - e.at);
                let inside = want < self.geom.ag_start(ag).0 + u64::from(self.geom.ag_len(ag));
                Goal { ag, at: inside.then_some(Frag(want)) }
            }
        }
    }

    /// Fragments until the file's next change of AG (maxblkpg, 3.3).
    pub(super) fn maxblkpg_frags(&self, at: u64) -> u32 {
        let per = u64::from(self.sb.maxblkpg.get().max(1)) * u64::from(self.geom.block_frags());
        (per - at % per).min(1 << 20) as u32
    }

    /// Keeps the last block of a small file in one piece: if it cannot grow in place, it moves (fragment reallocation,
    /// 3.1). Only when all its pages are being written anyway, and space is not scarce.
    fn move_tail_block(
        &mut self,
        i: &mut Inode,
        prev: Option<Mapped>,
        at: u64,
        lo: u64,
        out: &mut Vec<Mapped>,
    ) -> Result<bool> {
        let bf = u64::from(self.geom.block_frags());
        let Some(e) = prev.filter(|e| e.end() == at && !at.is_multiple_of(bf)) else { return Ok(false) };
        let tail = e.at.max(at - at % bf);
        let beyond = Frag(e.start.0 + u64::from(e.len));
        // Its old fragments are freed only later, and nobody has reserved the new ones.
        if tail < lo || self.available() < bf || self.is_free(beyond)? {
            return Ok(false);
        }
        let want = (at - tail + 1).next_multiple_of(bf).min(bf) as u32;
        let got = self.alloc(self.goal(i, None, tail), want.max((at - tail) as u32 + 1))?;
        if u64::from(got.len) <= at - tail {
            self.free_now(got)?;
            return Ok(false);
        }
        let cut = self.cut_extent(i, e, tail, at)?;
        self.mark_free(Extent { start: cut.start, len: cut.len });
        while out.last().is_some_and(|p| p.end() > tail) {
            let Some(p) = out.pop() else { break };
            if p.at < tail {
                out.push(clip(p, p.at, tail));
            }
        }
        let piece = Mapped { at: tail, start: got.start, len: got.len.min((at - tail) as u32 + 1), flags: 0 };
        if got.len > piece.len {
            let rest = Extent { start: Frag(got.start.0 + u64::from(piece.len)), len: got.len - piece.len };
            self.free_now(rest)?;
        }
        self.insert_extent(i, piece)?;
        out.push(piece);
        Ok(true)
    }

    /// Fills up the last block of a large file, if the rest of it is free: a large file has full blocks.
    fn fill_block(&mut self, i: &mut Inode, hi: u64, size: u64) -> Result<()> {
        let end = size.div_ceil(self.geom.block_size() as u64) * u64::from(self.geom.block_frags());
        if hi < size.div_ceil(self.geom.frag_size()) || hi >= end {
            return Ok(());
        }
        let end = self.extent_ge(i, hi)?.map_or(end, |e| e.at.min(end));
        let Some(prev) = self.extent_le(i, hi - 1)?.filter(|e| e.end() == hi && hi < end) else { return Ok(()) };
        let beyond = Frag(prev.start.0 + u64::from(prev.len));
        if self.available() > end - hi && self.is_free(beyond)? {
            let goal = Goal { ag: self.geom.ag_of(beyond), at: Some(beyond) };
            let got = self.alloc(goal, (end - hi) as u32)?;
            self.insert_extent(i, Mapped { at: hi, start: got.start, len: got.len, flags: UNWRITTEN })?;
        }
        Ok(())
    }

    fn is_free(&mut self, f: Frag) -> Result<bool> {
        if !self.geom.valid_run(f, 1) {
            return Ok(false);
        }
        let ag = self.geom.ag_of(f);
        if !self.space[ag].used { Ok(false) } else { self.frag_free(ag, f) }
    }
}
