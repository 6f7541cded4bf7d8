//! How calls enter the volume: each runs on the state in core, and restarts after what it lacked was provided.
//!
//! A call runs as [`Volume::run`]: look up and check first; if a block is missing from the cache the call gives up, the
//! block is read without any lock, and the call restarts. Then [`Core::begin`] reserves, and from there to
//! [`Core::commit`] nothing fails but the device.

use crate::buffers::{BufferId, What, check_buffer, kind_of, neighbours};
use crate::delayed::Which;
use crate::format::*;
use crate::planted::{Flaw, planted};
use crate::volume::{Attempt, Core, RestartReason, Volume};
use arbor_base::cache::Name;
use arbor_base::device::{Device, Kind, Request};
use arbor_base::sync::MutexGuard;
use arbor_base::vfs::{Errno, Error, Result, Time, interrupted};
use arbor_kit::calls::{self, Calls, State};
use arbor_kit::health::Health;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Batches that one call may ask for.
const MOST_BATCHES: u32 = 32;

impl Volume {
    /// Runs a call on the state in core; see the module's documentation.
    pub(crate) fn run<R>(&self, f: impl FnMut(&mut Core) -> Result<R>) -> Result<R> {
        calls::run(self, f)
    }

    /// Like [`Volume::run`] for calls that change something.
    pub(crate) fn change<R>(&self, mut f: impl FnMut(&mut Core, Time) -> Result<R>) -> Result<R> {
        let now = self.clock.now();
        self.core.lock().health.check_writable()?;
        self.throttle()?;
        self.run(|core| {
            core.health.check_writable()?;
            f(core, now)
        })
    }
}

impl Volume {
    /// Checks between the steps of a long call, each of which leaves everything sound: `EINTR` if nobody waits for it.
    pub(crate) fn go_on(&self) -> Result<()> {
        if interrupted() { Err(Errno::EINTR.into()) } else { Ok(()) }
    }
}

/// What was already done for a call that has given up.
#[derive(Default)]
pub(crate) struct Tries {
    reclaimed: u32,
    fills: u32,
    batches: u32,
    /// Misses are read at once, under the lock.
    in_place: bool,
    /// Buffers that a walk is about to need are asked for one by one.
    singly: bool,
}

impl State for Core {
    type RestartReason = RestartReason;
    type Tries = Tries;

    fn health(&mut self) -> &mut Health {
        &mut self.health
    }

    fn begin_call(&mut self, tries: &mut Tries) {
        self.attempt = Attempt::new(tries.in_place, !tries.singly);
        self.space.unread = false;
    }

    fn has_changed(&mut self) -> bool {
        self.tx.has_changed()
    }

    /// The transaction cannot be undone, so nothing after it may be written.
    fn is_refusal(&self, _e: &Error) -> bool {
        false
    }

    fn end_call<R>(&mut self, done: &Result<R>) {
        self.attempt.set_blocking(false);
        if done.is_err() && self.tx.has_changed() {
            self.drop_tx();
        } else if done.is_err() {
            // Those before it stay.
            self.tx.open = false;
        }
    }

    fn take_reason(&mut self) -> Option<RestartReason> {
        self.attempt.take_reason()
    }
}

impl Calls for Volume {
    type Core = Core;

    fn tries(&self) -> Tries {
        Tries::default()
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock()
    }

    fn note_pressure(&self, core: &mut Core) {
        Volume::note_pressure(self, core);
    }

    fn provide(&self, want: RestartReason, tries: &mut Tries) -> Result<()> {
        match want {
            RestartReason::Buffers(all) => {
                // A small cache may not hold all of them: one by one is slower, but makes progress.
                tries.batches += 1;
                tries.singly = !self.fill_buffers(all) || tries.batches >= MOST_BATCHES;
                Ok(())
            }
            RestartReason::Buffer(addr, len, what) => match self.fill_buffer(addr, len, what) {
                // It may have been freed since it was wanted: restart, and read what is still wanted under the lock,
                // where nobody frees or writes it.
                Err(Error::Corrupt(_) | Error::Io(_)) if !tries.in_place && !planted(Flaw::FreedBelieved) => {
                    tries.in_place = true;
                    Ok(())
                }
                filled => filled,
            },
            RestartReason::Pages(ino, first, last) => {
                // Write-backs of the file may interfere again and again; then they have to wait.
                tries.fills += 1;
                self.fill_pages(ino, first, last, tries.fills.is_multiple_of(8))
            }
            RestartReason::LogSpace => self.make_log_space(),
            RestartReason::DiskSpace if tries.reclaimed < 2 => {
                tries.reclaimed += 1;
                self.reclaim()
            }
            RestartReason::DiskSpace => Err(Errno::ENOSPC.into()),
        }
    }
}

impl Volume {
    /// Reads a metadata buffer into the cache without the lock. If others of its kind were written in place meanwhile,
    /// it may be torn or out of date, and is reread; in the end with the commit lock held, without which nobody writes.
    fn fill_buffer(&self, addr: Daddr, len: usize, what: What) -> Result<()> {
        for attempt in 0.. {
            let order = (attempt >= 3).then(|| self.order());
            let (geom, seq, window, ahead) = {
                let mut core = self.core.lock();
                let window = if attempt == 0 { core.windows.find(addr.byte(), len as u64, true) } else { None };
                (core.geom, core.meta_seq, window, core.windows.run_on())
            };
            ahead.iter().for_each(|w| w.start(&*self.dev, kind_of(what)));
            let from_window = window.and_then(|w| {
                let bytes = w.bytes(&*self.dev, kind_of(what))?;
                let at = w.place(addr.byte());
                bytes.get(at..at + len).map(<[u8]>::to_vec)
            });
            let bytes = check_buffer(&*self.dev, &geom, addr, what, from_window, len);
            self.counters.metadata_reads.fetch_add(1, Relaxed);
            let mut core = self.core.lock();
            if core.meta_seq != seq && order.is_none() {
                continue;
            }
            if !core.cache.contains(Name::Block(addr.0)) {
                let bytes = bytes?;
                core.note_damage(addr, what, &bytes);
                core.cache.insert(Name::Block(addr.0), Arc::new(bytes));
            }
            return Ok(());
        }
        Ok(())
    }

    /// Reads metadata buffers into the cache, all at once, those close together with one request. Returns whether all
    /// are there now; [`Volume::fill_buffer`] tries harder.
    fn fill_buffers(&self, all: Vec<BufferId>) -> bool {
        let (geom, seq) = {
            let core = self.core.lock();
            (core.geom, core.meta_seq)
        };
        let names: Vec<Name> = all.iter().map(|b| Name::Block(b.0.0)).collect();
        let groups = neighbours(all);
        let extent = |group: &[BufferId]| {
            let (first, last) = (group.first().map_or(0, |b| b.0.byte()), group.last());
            (first, last.map_or(0, |b| (b.0.byte() - first) as usize + b.1))
        };
        let batch = groups.iter().map(|g| {
            let (at, len) = extent(g);
            Request::read(g.first().map_or(Kind::Other, |b| kind_of(b.2)), at, len)
        });
        let read = self.dev.submit(batch.collect()).wait();
        self.counters.metadata_reads.fetch_add(groups.len() as u64, Relaxed);
        let mut found = Vec::new();
        for (group, bytes) in groups.iter().zip(read) {
            let (Ok(bytes), (first, _)) = (bytes, extent(group)) else { continue };
            for &(addr, len, what) in group {
                let at = (addr.byte() - first) as usize;
                let piece = bytes.get(at..at + len).map(<[u8]>::to_vec);
                if let Ok(sound) = check_buffer(&*self.dev, &geom, addr, what, piece, len) {
                    found.push((addr, what, sound));
                }
            }
        }
        let mut core = self.core.lock();
        if core.meta_seq == seq {
            for (addr, what, bytes) in found {
                if !core.cache.contains(Name::Block(addr.0)) {
                    core.note_damage(addr, what, &bytes);
                    core.cache.insert(Name::Block(addr.0), Arc::new(bytes));
                }
            }
        }
        let there = names.iter().filter(|name| core.cache.contains(**name)).count();
        there == names.len()
    }

    fn make_log_space(&self) -> Result<()> {
        self.counters.stalls.fetch_add(1, Relaxed);
        let mut io = self.order();
        self.core.lock().health.check_writable()?;
        self.flush_log(&mut io)?;
        self.run_bitmap_daemon(&mut io, false)?;
        self.checkpoint(&mut io, true)
    }

    /// Frees, in the bitmap, fragments that are marked free.
    fn reclaim(&self) -> Result<()> {
        self.drain_inactive()?;
        let mut io = self.order();
        // Delayed writes have reserved more than they take.
        let seq = self.core.lock().delayed.seq();
        self.write_back(&mut io, Which::UpTo(seq))?;
        self.flush_log(&mut io)?;
        self.run_bitmap_daemon(&mut io, true)?;
        self.flush_log(&mut io)
    }
}
