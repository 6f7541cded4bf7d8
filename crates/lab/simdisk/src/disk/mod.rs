//! A hard disk: controller, track buffer, write cache, and one mechanism that does one thing at a time.
//!
//! A command first costs the controller its overhead, while the mechanism may be busy with another one. Then a read
//! is served from the buffer, joins the read-ahead, or waits for the mechanism; a write takes its data over the bus
//! and is complete in the cache, or waits for the mechanism too. Among what waits, the mechanism takes the shortest
//! positioning time first.
//!
//! What is left out: defects and spare sectors, thermal recalibration, and the serpentine numbering of tracks that
//! newer disks have (here all heads of a cylinder follow each other).

mod buffer;
mod cache;
mod layout;
mod mechanics;
mod seek;

pub(crate) use layout::{Layout, Zone};
pub(crate) use mechanics::Mechanics;
pub(crate) use seek::SeekCurve;

use crate::drive::{Command, Destaged, Done, Finishing, SECTOR, Split, transfer_ns};
use crate::model::DiskModel;
use crate::trace::TraceOp;
use buffer::{Buffer, Lookup};
use cache::WriteCache;
use mechanics::Arm;
use std::collections::VecDeque;

/// A command whose overhead is being paid.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    command: Command,
    ready: u64,
    overhead: u64,
}

/// A command that needs the mechanism.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    command: Command,
    since: u64,
    overhead: u64,
    /// When enough of a write's data has come over the bus.
    data_at: u64,
}

pub(crate) struct Disk {
    model: DiskModel,
    arm: Arm,
    mechanism_free: u64,
    controller_free: u64,
    bus_free: u64,
    arriving: VecDeque<Arriving>,
    waiting: Vec<Waiting>,
    /// Writes that find the cache full, and everything that comes during a flush of the cache.
    blocked: VecDeque<Arriving>,
    flushing: Option<Arriving>,
    finishing: Finishing,
    buffer: Buffer,
    cache: WriteCache,
    /// Where the write-back sweep is, in sectors.
    sweep: u64,
    writing_back: bool,
    /// The mechanism served a command last, so that a full cache may have its turn.
    cache_has_turn: bool,
    destaged: Destaged,
}

impl Disk {
    pub fn new(model: DiskModel) -> Disk {
        let sectors = model.mechanics.layout.sectors();
        let buffer =
            Buffer::new(model.segments, model.segment_bytes / SECTOR, model.read_ahead_bytes / SECTOR, sectors);
        let cache = WriteCache::new(model.write_cache_bytes / SECTOR);
        Disk {
            model,
            arm: Arm::default(),
            mechanism_free: 0,
            controller_free: 0,
            bus_free: 0,
            arriving: VecDeque::new(),
            waiting: Vec::new(),
            blocked: VecDeque::new(),
            flushing: None,
            finishing: Finishing::default(),
            buffer,
            cache,
            sweep: 0,
            writing_back: false,
            cache_has_turn: false,
            destaged: Destaged::default(),
        }
    }

    pub fn tags(&self) -> usize {
        self.model.tags
    }

    pub fn caches_writes(&self) -> bool {
        self.model.write_cache_bytes > 0
    }

    pub fn start(&mut self, now: u64, command: Command) {
        let overhead = self.model.overhead_ns;
        self.controller_free = self.controller_free.max(now) + overhead;
        self.arriving.push_back(Arriving { command, ready: self.controller_free, overhead });
    }

    pub fn next_event(&self) -> Option<u64> {
        let mechanism_wanted = !self.waiting.is_empty() || self.cache.has_extents() || self.writing_back;
        let mechanism = mechanism_wanted.then_some(self.mechanism_free);
        let arriving = self.arriving.front().map(|a| a.ready);
        [self.finishing.next(), arriving, mechanism].into_iter().flatten().min()
    }

    pub fn take_destaged(&mut self) -> Destaged {
        std::mem::take(&mut self.destaged)
    }

    pub fn advance(&mut self, now: u64, done: &mut Vec<Done>) {
        loop {
            self.finishing.take_due(now, done);
            if self.writing_back && self.mechanism_free <= now {
                self.writing_back = false;
                self.cache.written_back();
                self.unblock(now);
            }
            while self.arriving.front().is_some_and(|a| a.ready <= now) {
                if let Some(arrived) = self.arriving.pop_front() {
                    self.admit(arrived, now);
                }
            }
            if self.mechanism_free > now || !self.start_work(now) {
                break;
            }
        }
    }

    /// A command is understood; what happens to it next.
    fn admit(&mut self, arrived: Arriving, now: u64) {
        if self.flushing.is_some() {
            self.blocked.push_back(arrived);
            return;
        }
        match arrived.command.op {
            TraceOp::Read => self.admit_read(arrived, now),
            TraceOp::Write if self.caches_writes() => self.admit_cached_write(arrived, now),
            TraceOp::Write => {
                let data_at = self.data_arrives(arrived.command.len, now);
                self.wait_for_mechanism(arrived, now, data_at);
            }
            TraceOp::Flush if !self.cache.is_clean() => self.flushing = Some(arrived),
            TraceOp::Flush | TraceOp::Discard => self.finish(arrived, now, Split::default()),
        }
    }

    fn admit_read(&mut self, arrived: Arriving, now: u64) {
        let (start, end) = sectors(&arrived.command);
        if self.cache.covers(start, end) {
            self.finish_from_buffer(arrived, now, now);
            return;
        }
        let idle = self.mechanism_free <= now && self.waiting.is_empty();
        match self.buffer.lookup(&self.model.mechanics, start, end, now) {
            Lookup::Hit(ready) => {
                self.finish_from_buffer(arrived, now, ready.max(now));
                if idle && !self.cache.has_extents() {
                    self.buffer.keep_ahead(end, self.arm, now);
                }
            }
            Lookup::Joins if idle => self.join_read_ahead(arrived, start, end, now),
            Lookup::Joins | Lookup::Miss => self.wait_for_mechanism(arrived, now, now),
        }
    }

    /// The rest of a read that the read-ahead has begun: no seek, and no rotational delay unless it had stopped.
    fn join_read_ahead(&mut self, arrived: Arriving, start: u64, end: u64, now: u64) {
        let Some((arm, next, at)) = self.buffer.join(now) else {
            return self.wait_for_mechanism(arrived, now, now);
        };
        let access = self.model.mechanics.access(arm, next, end - next, at, 0, false);
        let tail = transfer_ns(SECTOR, self.model.bus_bytes_per_s);
        let bus = now.max(self.bus_free) + transfer_ns(arrived.command.len, self.model.bus_bytes_per_s);
        let at = bus.max(access.end + tail);
        let split = Split { transfer: at - now, hit: true, overhead: arrived.overhead, ..Split::default() };
        self.finishing.push(Done { id: arrived.command.id, at, split });
        self.arm = access.arm;
        self.mechanism_free = access.end;
        self.cache_has_turn = true;
        self.buffer.filled(start, end, access.arm, access.end);
    }

    fn admit_cached_write(&mut self, arrived: Arriving, now: u64) {
        let (start, end) = sectors(&arrived.command);
        if !self.blocked.is_empty() || !self.cache.has_room(end - start) {
            self.blocked.push_back(arrived);
            return;
        }
        self.buffer.written(&self.model.mechanics, start, end, now);
        self.cache.insert(start, end);
        self.finish_from_buffer(arrived, now, now);
    }

    /// Everything but the bus is done.
    fn finish_from_buffer(&mut self, arrived: Arriving, now: u64, ready: u64) {
        let transfer = transfer_ns(arrived.command.len, self.model.bus_bytes_per_s);
        let at = ready.max(self.bus_free) + transfer;
        self.bus_free = at;
        let hit = arrived.command.op == TraceOp::Read;
        self.finish(arrived, at, Split { transfer: at - now, hit, ..Split::default() });
    }

    fn finish(&mut self, arrived: Arriving, at: u64, split: Split) {
        let split = Split { overhead: arrived.overhead, ..split };
        self.finishing.push(Done { id: arrived.command.id, at, split });
    }

    /// When the media may begin to take the data of a write that comes over the bus from `now` on.
    fn data_arrives(&mut self, len: u64, now: u64) -> u64 {
        let begin = now.max(self.bus_free);
        self.bus_free = begin + transfer_ns(len, self.model.bus_bytes_per_s);
        // The media overtake a bus that is slower than they are.
        if self.model.bus_bytes_per_s < self.model.media_bytes_per_s {
            self.bus_free
        } else {
            begin + transfer_ns(SECTOR, self.model.bus_bytes_per_s)
        }
    }

    fn wait_for_mechanism(&mut self, arrived: Arriving, now: u64, data_at: u64) {
        let Arriving { command, overhead, .. } = arrived;
        self.waiting.push(Waiting { command, since: now, overhead, data_at });
    }

    fn unblock(&mut self, now: u64) {
        if self.flushing.is_some()
            && self.cache.is_clean()
            && let Some(flush) = self.flushing.take()
        {
            self.finish(flush, now, Split::default());
        }
        if self.flushing.is_none() {
            for arrived in std::mem::take(&mut self.blocked) {
                self.admit(arrived, now);
            }
        }
    }

    /// Gives the free mechanism something to do; false if there is nothing.
    fn start_work(&mut self, now: u64) -> bool {
        let pressed = self.flushing.is_some() || (!self.blocked.is_empty() && self.cache_has_turn);
        if self.waiting.is_empty() || pressed {
            return self.write_back(now) || self.serve(now);
        }
        self.serve(now)
    }

    fn serve(&mut self, now: u64) -> bool {
        if let Some(arm) = self.interrupt_if(!self.waiting.is_empty(), now) {
            self.arm = arm;
        }
        let Some(i) = self.choose(now) else { return false };
        let chosen = self.waiting.swap_remove(i);
        self.cache_has_turn = true;
        let (start, end) = sectors(&chosen.command);
        let write = chosen.command.op == TraceOp::Write;
        let access = self.model.mechanics.access(self.arm, start, end - start, now, chosen.data_at, write);
        self.arm = access.arm;
        self.mechanism_free = access.end;
        let at = if write { access.end } else { self.read_over_bus(&chosen.command, access.first_end, access.end) };
        if write {
            self.buffer.written(&self.model.mechanics, start, end, now);
        } else {
            self.buffer.filled(start, end, access.arm, access.end);
        }
        let split = Split {
            overhead: chosen.overhead,
            seek: access.seek,
            rotation: access.rotation,
            transfer: access.transfer + at - access.end,
            hit: false,
        };
        self.finishing.push(Done { id: chosen.command.id, at, split });
        true
    }

    fn interrupt_if(&mut self, wanted: bool, now: u64) -> Option<Arm> {
        if wanted { self.buffer.interrupt(&self.model.mechanics, now) } else { None }
    }

    /// The bus transfer overlaps the media; its last sector follows the media's last.
    fn read_over_bus(&self, command: &Command, first_end: u64, end: u64) -> u64 {
        let rate = self.model.bus_bytes_per_s;
        (end + transfer_ns(SECTOR, rate)).max(first_end + transfer_ns(command.len, rate))
    }

    /// Which of those that wait is next: the shortest positioning time, unless one has waited too long.
    fn choose(&self, now: u64) -> Option<usize> {
        let oldest = self.waiting.iter().enumerate().min_by_key(|(_, w)| (w.since, w.command.id))?;
        if self.waiting.len() == 1 || !self.model.shortest_first || oldest.1.since + self.model.max_age_ns < now {
            return Some(oldest.0);
        }
        let delay = |w: &Waiting| {
            let write = w.command.op == TraceOp::Write;
            self.model.mechanics.delay_ns(self.arm, w.command.offset / SECTOR, now, w.data_at, write)
        };
        self.waiting.iter().enumerate().min_by_key(|(_, w)| (delay(w), w.command.id)).map(|(i, _)| i)
    }

    fn write_back(&mut self, now: u64) -> bool {
        let limit = (self.model.segment_bytes / SECTOR).max(1);
        let Some((start, end)) = self.cache.take(self.sweep, limit) else { return false };
        if let Some(arm) = self.buffer.interrupt(&self.model.mechanics, now) {
            self.arm = arm;
        }
        let access = self.model.mechanics.access(self.arm, start, end - start, now, now, true);
        self.sweep = end;
        self.arm = access.arm;
        self.mechanism_free = access.end;
        self.writing_back = true;
        self.cache_has_turn = false;
        self.destaged.bytes += (end - start) * SECTOR;
        self.destaged.ns += access.end - now;
        true
    }
}

/// First sector and the one past the last.
fn sectors(command: &Command) -> (u64, u64) {
    (command.offset / SECTOR, (command.offset + command.len) / SECTOR)
}
