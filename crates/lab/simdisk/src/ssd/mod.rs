//! An SSD: a controller and a link, a write buffer, a translation layer, and flash.
//!
//! What is left out: pseudo-SLC caches (writes run at the speed of the main flash from the first byte), wear
//! levelling, retention, errors, and the paging of the map (all of it is in the drive's memory).

mod flash;
mod hybrid;
mod page;
mod used;

use crate::drive::{Command, Done, Finishing, SECTOR, Split, transfer_ns};
use crate::model::{Mapping, SsdModel};
use crate::stats::SsdStats;
use crate::trace::TraceOp;
use flash::Flash;
use hybrid::{LogBlocks, Work};
use page::PageMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
pub(crate) use used::Used;

pub(crate) struct Ssd {
    model: SsdModel,
    flash: Flash,
    translation: Translation,
    controller_free: u64,
    link_free: u64,
    /// All flash at once, for the block-mapped drive.
    array_free: u64,
    buffered_bytes: u64,
    /// When buffered bytes will be in flash.
    leaving: BinaryHeap<Reverse<(u64, u64)>>,
    finishing: Finishing,
}

#[derive(Clone)]
enum Translation {
    Page { map: Box<PageMap>, unit_bytes: u64 },
    Hybrid(LogBlocks),
}

/// The map names places by 32 bits.
pub(crate) fn check_size(model: &SsdModel, capacity_bytes: u64) -> Result<(), String> {
    let Mapping::Page { unit_bytes } = model.mapping else { return Ok(()) };
    let dies = model.channels * model.dies_per_channel;
    let (units, per_block) =
        (capacity_bytes.div_ceil(unit_bytes), model.page_bytes / unit_bytes * model.pages_per_block);
    let places = PageMap::blocks_per_die(units, model.over_provisioning, per_block, dies) * per_block * dies;
    if places < u64::from(u32::MAX) { Ok(()) } else { Err(format!("unit_kib: too small for {units} units")) }
}

impl Translation {
    /// Of a new device.
    fn new(model: &SsdModel, capacity_bytes: u64, dies: usize) -> Translation {
        match model.mapping {
            Mapping::Page { unit_bytes } => {
                let per_page = (model.page_bytes / unit_bytes) as u32;
                let per_block = per_page * model.pages_per_block as u32;
                let units = capacity_bytes.div_ceil(unit_bytes);
                let map = PageMap::new(units, unit_bytes, per_page, per_block, model.over_provisioning, dies);
                Translation::Page { map: Box::new(map), unit_bytes }
            }
            Mapping::Hybrid { log_blocks } => {
                let pages = model.pages_per_block * dies as u64;
                Translation::Hybrid(LogBlocks::new(capacity_bytes, model.page_bytes, pages as u32, log_blocks))
            }
        }
    }
}

impl Ssd {
    /// `used`: it begins as a used device.
    pub fn new(model: SsdModel, capacity_bytes: u64, used: Option<&Used>) -> Ssd {
        let flash = Flash::new(&model);
        let translation = match used {
            Some(used) => used.translation(&model, capacity_bytes),
            None => Translation::new(&model, capacity_bytes, flash.dies()),
        };
        Ssd {
            model,
            flash,
            translation,
            controller_free: 0,
            link_free: 0,
            array_free: 0,
            buffered_bytes: 0,
            leaving: BinaryHeap::new(),
            finishing: Finishing::default(),
        }
    }

    pub fn tags(&self) -> usize {
        self.model.tags
    }

    pub fn caches_writes(&self) -> bool {
        self.model.write_buffer_bytes > 0
    }

    pub fn trim_unit(&self) -> u32 {
        match (&self.translation, self.model.trim) {
            (Translation::Page { unit_bytes, .. }, true) => *unit_bytes as u32,
            _ => 0,
        }
    }

    pub fn stats(&self) -> SsdStats {
        match &self.translation {
            Translation::Page { map, .. } => map.stats(),
            Translation::Hybrid(logs) => logs.stats(),
        }
    }

    pub fn next_event(&self) -> Option<u64> {
        self.finishing.next()
    }

    pub fn idle_at(&self) -> u64 {
        self.flash.idle_at()
    }

    pub fn advance(&mut self, now: u64, done: &mut Vec<Done>) {
        self.finishing.take_due(now, done);
    }

    pub fn start(&mut self, now: u64, command: Command) {
        self.controller_free = self.controller_free.max(now) + self.model.command_ns;
        let begin = self.controller_free + self.model.latency_ns;
        let at = match (command.op, &mut self.translation) {
            (TraceOp::Discard, _) => {
                self.trim(&command);
                begin
            }
            (_, Translation::Hybrid(_)) => self.hybrid(&command, begin),
            (TraceOp::Read, _) => self.read(&command, begin),
            (TraceOp::Write, _) => self.write(&command, begin),
            (TraceOp::Flush, _) => self.flush(begin),
        };
        let overhead = begin - now;
        let split = Split { overhead, transfer: at - begin, ..Split::default() };
        self.finishing.push(Done { id: command.id, at, split });
    }

    fn read(&mut self, command: &Command, begin: u64) -> u64 {
        let Translation::Page { map, unit_bytes } = &self.translation else { return begin };
        let unit = *unit_bytes;
        let (mut first, mut last) = (u64::MAX, begin);
        let mut take = |flash: &mut Flash, die: usize, bytes: u64| {
            let end = flash.read(die, begin, bytes);
            (first, last) = (first.min(end), last.max(end));
        };
        // Neighbouring units of one page are read at once.
        let mut page: Option<(usize, u32, u64)> = None;
        for n in command.offset / unit..(command.offset + command.len).div_ceil(unit) {
            match (map.locate(n).filter(|(_, _, filling)| !filling), &mut page) {
                (Some((_, at, _)), Some((_, last, bytes))) if at == *last => *bytes += unit,
                (found, page) => {
                    if let Some((die, _, bytes)) = page.take() {
                        take(&mut self.flash, die, bytes);
                    }
                    *page = found.map(|(die, at, _)| (die, at, unit));
                }
            }
        }
        if let Some((die, _, bytes)) = page {
            take(&mut self.flash, die, bytes);
        }
        let first = if first == u64::MAX { begin } else { first };
        let rate = self.model.link_bytes_per_s;
        let whole = transfer_ns(command.len, rate);
        // The link carries other commands' data while this one waits for flash.
        self.link_free = self.link_free.max(begin) + whole;
        self.link_free.max(first + whole).max(last + transfer_ns(command.len.min(unit), rate))
    }

    fn write(&mut self, command: &Command, begin: u64) -> u64 {
        let link = begin.max(self.link_free) + transfer_ns(command.len, self.model.link_bytes_per_s);
        self.link_free = link;
        let at = self.wait_for_room(command.len, link);
        let mut programmed = at;
        let Translation::Page { map, unit_bytes } = &mut self.translation else { return at };
        let unit = *unit_bytes;
        for n in command.offset / unit..(command.offset + command.len).div_ceil(unit) {
            let whole = command.offset <= n * unit && (n + 1) * unit <= command.offset + command.len;
            if let Some((die, _, false)) = map.locate(n).filter(|_| !whole) {
                self.flash.read(die, at, unit);
            }
            map.write(n, &mut self.flash, at);
            self.buffered_bytes += unit;
        }
        if self.model.write_buffer_bytes == 0 {
            map.pad(&mut self.flash, at);
        }
        for page in map.take_programmed() {
            programmed = programmed.max(page.at);
            self.leaving.push(Reverse((page.at, u64::from(page.host_units) * unit)));
        }
        if self.model.write_buffer_bytes == 0 { programmed } else { at }
    }

    /// When the buffer has room for `bytes`, from `at` on.
    fn wait_for_room(&mut self, bytes: u64, at: u64) -> u64 {
        let mut at = at;
        while let Some(Reverse((when, left))) = self.leaving.peek().copied() {
            if when > at && self.buffered_bytes + bytes <= self.model.write_buffer_bytes {
                break;
            }
            at = at.max(if self.model.write_buffer_bytes == 0 { 0 } else { when });
            self.buffered_bytes -= left;
            self.leaving.pop();
        }
        at
    }

    /// Everything buffered is in flash.
    fn flush(&mut self, begin: u64) -> u64 {
        let Translation::Page { map, unit_bytes } = &mut self.translation else { return begin };
        map.pad(&mut self.flash, begin);
        for page in map.take_programmed() {
            self.leaving.push(Reverse((page.at, u64::from(page.host_units) * *unit_bytes)));
        }
        let last = self.leaving.iter().map(|Reverse((when, _))| *when).max();
        begin.max(last.unwrap_or(0))
    }

    fn trim(&mut self, command: &Command) {
        let Translation::Page { map, unit_bytes } = &mut self.translation else { return };
        let mut unit = command.offset.div_ceil(*unit_bytes);
        let end = (command.offset + command.len) / *unit_bytes;
        while let Some(next) = map.next_written(unit, end) {
            map.trim(next);
            unit = next + 1;
        }
    }

    /// The block-mapped drive does one thing at a time, with all dies.
    fn hybrid(&mut self, command: &Command, begin: u64) -> u64 {
        let page = self.model.page_bytes;
        let pages = command.offset / page..(command.offset + command.len).div_ceil(page);
        let begin = begin.max(self.array_free);
        let Translation::Hybrid(logs) = &mut self.translation else { return begin };
        let mut work = Work::default();
        for n in pages {
            let whole = command.offset <= n * page && (n + 1) * page <= command.offset + command.len;
            if command.op == TraceOp::Read || (!whole && command.op == TraceOp::Write) {
                work.read += u64::from(logs.is_written(n));
            }
            if command.op == TraceOp::Write {
                logs.write(n, &mut work);
            }
        }
        let link = transfer_ns(command.len.max(SECTOR), self.model.link_bytes_per_s);
        let merge =
            self.rounds(work.moved, self.model.read_ns + self.model.program_ns, 2) + work.erased * self.model.erase_ns;
        let write = self.pipelined(work.programmed, self.model.program_ns, link);
        let read = self.pipelined(work.read, self.model.read_ns, if work.programmed == 0 { link } else { 0 });
        let idle = if command.op == TraceOp::Flush || work.read + work.programmed > 0 { 0 } else { link };
        self.array_free = begin + merge + write + read + idle;
        self.array_free
    }

    /// Pages that go one round of dies after the other, `crossings` times over their channels.
    fn rounds(&self, pages: u64, cell_ns: u64, crossings: u64) -> u64 {
        pages.div_ceil(self.flash.dies() as u64) * cell_ns + crossings * self.channels_ns(pages)
    }

    fn channels_ns(&self, pages: u64) -> u64 {
        let on_one = pages.div_ceil(self.model.channels);
        transfer_ns(on_one * self.model.page_bytes, self.model.channel_bytes_per_s)
    }

    /// Link, channels and cells overlap but for one round of cells.
    fn pipelined(&self, pages: u64, cell_ns: u64, link: u64) -> u64 {
        if pages == 0 {
            return 0;
        }
        let rounds = pages.div_ceil(self.flash.dies() as u64);
        link.max(self.channels_ns(pages)).max((rounds - 1) * cell_ns) + cell_ns
    }
}
