//! Page-mapped translation: every unit has its own place in flash, writes go to open blocks, and greedy garbage
//! collection frees the block with the fewest valid units.
//!
//! Pages are striped over the dies; each die has its own open block, its own free blocks and its own garbage
//! collection. Relocated units go to the same open block as new ones, as the analysis of greedy cleaning assumes.
//!
//! Invariants: a mapped unit's place names it as owner; a block's count of valid units is that of its owned places;
//! a die keeps at least three blocks' worth of room, so that a block with something invalid can always be found.

use super::flash::Flash;
use crate::stats::SsdStats;

const NONE: u32 = u32::MAX;

/// Units of a chunk of the map; chunks exist where something was written.
const CHUNK: usize = 4096;

/// Blocks of a die that valid data never fill: the open one, and those that garbage collection needs.
const RESERVE: u64 = 3;

/// Erase blocks of one die.
#[derive(Clone, Debug)]
struct Die {
    free: Vec<u32>,
    open: u32,
    /// Next place in the open block, in units.
    next: u32,
    /// Units of the page being filled that came from the host.
    host_units: u32,
    valid_units: u64,
    /// Closed blocks by their count of valid units: the first of each list.
    by_valid: Vec<u32>,
    /// No list before this one has a block.
    least: usize,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    valid: u32,
    /// Neighbours in the list of blocks with as many valid units; [`NONE`] at its ends.
    before: u32,
    after: u32,
    closed: bool,
}

/// A page of flash was programmed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Programmed {
    pub at: u64,
    pub host_units: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct PageMap {
    units: u64,
    units_per_page: u32,
    units_per_block: u32,
    blocks_per_die: u32,
    map: Vec<Option<Box<[u32]>>>,
    owners: Vec<Option<Box<[u32]>>>,
    blocks: Vec<Block>,
    dies: Vec<Die>,
    /// The die whose page is being filled.
    current: usize,
    /// In units and pages; turned into bytes by [`PageMap::stats`].
    host_units: u64,
    moved_units: u64,
    pages: u64,
    erases: u64,
    mapped: u64,
    unit_bytes: u64,
    programmed: Vec<Programmed>,
}

impl PageMap {
    /// Blocks that each die needs.
    pub fn blocks_per_die(units: u64, over_provisioning: f64, units_per_block: u64, dies: u64) -> u64 {
        let physical = (units as f64 * (1.0 + over_provisioning)).ceil() as u64;
        let least = units.div_ceil(units_per_block * dies) + RESERVE + 1;
        physical.div_ceil(units_per_block * dies).max(least)
    }

    pub fn new(
        units: u64,
        unit_bytes: u64,
        units_per_page: u32,
        units_per_block: u32,
        over_provisioning: f64,
        dies: usize,
    ) -> PageMap {
        let blocks_per_die =
            PageMap::blocks_per_die(units, over_provisioning, units_per_block.into(), dies as u64) as u32;
        let blocks = blocks_per_die as usize * dies;
        let fresh = Block { valid: 0, before: NONE, after: NONE, closed: false };
        let die = |d: usize| {
            // The lowest block is taken first.
            let mut free: Vec<u32> = (0..blocks_per_die).rev().map(|b| d as u32 * blocks_per_die + b).collect();
            let open = free.pop().unwrap_or(NONE);
            let by_valid = vec![NONE; units_per_block as usize + 1];
            Die { free, open, next: 0, host_units: 0, valid_units: 0, by_valid, least: 0 }
        };
        PageMap {
            units,
            units_per_page,
            units_per_block,
            blocks_per_die,
            map: vec![None; (units as usize).div_ceil(CHUNK)],
            owners: vec![None; blocks],
            blocks: vec![fresh; blocks],
            dies: (0..dies).map(die).collect(),
            current: 0,
            host_units: 0,
            moved_units: 0,
            pages: 0,
            erases: 0,
            mapped: 0,
            unit_bytes,
            programmed: Vec::new(),
        }
    }

    pub fn stats(&self) -> SsdStats {
        let page_bytes = self.unit_bytes * u64::from(self.units_per_page);
        SsdStats {
            host_bytes: self.host_units * self.unit_bytes,
            flash_bytes: self.pages * page_bytes,
            flash_pages: self.pages,
            moved_bytes: self.moved_units * self.unit_bytes,
            erases: self.erases,
            mapped_bytes: self.mapped * self.unit_bytes,
        }
    }

    fn place(&self, unit: u64) -> u32 {
        let chunk = &self.map[unit as usize / CHUNK];
        chunk.as_ref().map_or(NONE, |c| c[unit as usize % CHUNK])
    }

    fn set_place(&mut self, unit: u64, place: u32) {
        let chunk = &mut self.map[unit as usize / CHUNK];
        let chunk = chunk.get_or_insert_with(|| vec![NONE; CHUNK].into_boxed_slice());
        chunk[unit as usize % CHUNK] = place;
    }

    /// Die and page of a unit, and whether the page is still being filled; none if it is not mapped.
    pub fn locate(&self, unit: u64) -> Option<(usize, u32, bool)> {
        let place = self.place(unit);
        if place == NONE {
            return None;
        }
        let block = place / self.units_per_block;
        let die = (block / self.blocks_per_die) as usize;
        let page = place / self.units_per_page;
        let filling = self.dies[die].open == block
            && page == (block * self.units_per_block + self.dies[die].next) / self.units_per_page;
        Some((die, page, filling))
    }

    /// Takes one unit from the host; the pages programmed meanwhile are in [`PageMap::take_programmed`].
    pub fn write(&mut self, unit: u64, flash: &mut Flash, at: u64) {
        debug_assert!(unit < self.units);
        if self.dies[self.current].next.is_multiple_of(self.units_per_page) {
            self.choose_die();
            self.make_room(self.current, flash, at);
        }
        self.host_units += 1;
        let die = self.current;
        self.dies[die].host_units += 1;
        self.unmap(unit);
        if self.append(die, unit, flash, at) {
            self.current = (self.current + 1) % self.dies.len();
        }
    }

    /// Pages that were completed since the last call.
    pub fn take_programmed(&mut self) -> std::vec::Drain<'_, Programmed> {
        self.programmed.drain(..)
    }

    /// Programs the page that is being filled, with nothing in its rest.
    pub fn pad(&mut self, flash: &mut Flash, at: u64) {
        for die in 0..self.dies.len() {
            let filled = self.dies[die].next % self.units_per_page;
            if filled != 0 {
                self.dies[die].next += self.units_per_page - filled;
                self.page_full(die, flash, at);
            }
        }
    }

    /// The host no longer needs the unit.
    pub fn trim(&mut self, unit: u64) {
        self.unmap(unit);
    }

    /// The units from `from` below `to` that lie in parts of the map that exist.
    pub fn next_written(&self, from: u64, to: u64) -> Option<u64> {
        let mut unit = from;
        while unit < to {
            if self.map[unit as usize / CHUNK].is_some() {
                return Some(unit);
            }
            unit = (unit / CHUNK as u64 + 1) * CHUNK as u64;
        }
        None
    }

    /// The next die in turn that has room. Which have none depends on what was overwritten; all together have.
    fn choose_die(&mut self) {
        let room = u64::from(self.blocks_per_die) - RESERVE;
        let most = room * u64::from(self.units_per_block) - u64::from(self.units_per_page);
        for _ in 0..self.dies.len() {
            if self.dies[self.current].valid_units <= most {
                return;
            }
            self.current = (self.current + 1) % self.dies.len();
        }
    }

    /// Frees blocks of a die before its open block is full.
    fn make_room(&mut self, die: usize, flash: &mut Flash, at: u64) {
        while self.dies[die].next == self.units_per_block && self.dies[die].free.len() < 2 {
            self.collect(die, flash, at);
        }
    }

    /// Moves what is valid in the emptiest closed block, and erases it.
    fn collect(&mut self, die: usize, flash: &mut Flash, at: u64) {
        let Some(victim) = self.emptiest(die) else { return };
        self.unlink(die, victim);
        let Some(owners) = self.owners[victim as usize].take() else { return };
        let mut last_page = NONE;
        for (i, unit) in owners.iter().enumerate().filter(|(_, unit)| **unit != NONE) {
            let page = i as u32 / self.units_per_page;
            if page != last_page {
                flash.read_to_move(die, at);
                last_page = page;
            }
            self.moved_units += 1;
            self.dies[die].valid_units -= 1;
            self.mapped -= 1;
            self.append(die, u64::from(*unit), flash, at);
        }
        self.blocks[victim as usize] = Block { valid: 0, before: NONE, after: NONE, closed: false };
        flash.erase(die, at);
        self.erases += 1;
        self.dies[die].free.push(victim);
    }

    /// Puts a unit at the end of the open block; true if that completed a page.
    fn append(&mut self, die: usize, unit: u64, flash: &mut Flash, at: u64) -> bool {
        if self.dies[die].next == self.units_per_block {
            let full = self.dies[die].open;
            self.blocks[full as usize].closed = true;
            self.link(die, full);
            let Some(open) = self.dies[die].free.pop() else {
                unreachable!("room was made before the block was full");
            };
            (self.dies[die].open, self.dies[die].next) = (open, 0);
        }
        let (open, next) = (self.dies[die].open, self.dies[die].next);
        let size = self.units_per_block as usize;
        let owners = self.owners[open as usize].get_or_insert_with(|| vec![NONE; size].into_boxed_slice());
        owners[next as usize] = unit as u32;
        self.set_place(unit, open * self.units_per_block + next);
        self.mapped += 1;
        self.blocks[open as usize].valid += 1;
        self.dies[die].valid_units += 1;
        self.dies[die].next += 1;
        let full = (next + 1) % self.units_per_page == 0;
        if full {
            self.page_full(die, flash, at);
        }
        full
    }

    fn page_full(&mut self, die: usize, flash: &mut Flash, at: u64) {
        self.pages += 1;
        let at = flash.program(die, at);
        let host_units = std::mem::take(&mut self.dies[die].host_units);
        if host_units > 0 {
            self.programmed.push(Programmed { at, host_units });
        }
    }

    fn unmap(&mut self, unit: u64) {
        let place = self.place(unit);
        if place == NONE {
            return;
        }
        self.set_place(unit, NONE);
        self.mapped -= 1;
        let block = place / self.units_per_block;
        let die = (block / self.blocks_per_die) as usize;
        self.dies[die].valid_units -= 1;
        if let Some(owners) = &mut self.owners[block as usize] {
            owners[(place % self.units_per_block) as usize] = NONE;
        }
        let closed = self.blocks[block as usize].closed;
        if closed {
            self.unlink(die, block);
        }
        self.blocks[block as usize].valid -= 1;
        if closed {
            self.link(die, block);
        }
    }

    fn link(&mut self, die: usize, block: u32) {
        let valid = self.blocks[block as usize].valid as usize;
        let die = &mut self.dies[die];
        let after = die.by_valid[valid];
        die.by_valid[valid] = block;
        die.least = die.least.min(valid);
        (self.blocks[block as usize].before, self.blocks[block as usize].after) = (NONE, after);
        if after != NONE {
            self.blocks[after as usize].before = block;
        }
    }

    fn unlink(&mut self, die: usize, block: u32) {
        let Block { valid, before, after, .. } = self.blocks[block as usize];
        match before {
            NONE => self.dies[die].by_valid[valid as usize] = after,
            before => self.blocks[before as usize].after = after,
        }
        if after != NONE {
            self.blocks[after as usize].before = before;
        }
    }

    fn emptiest(&mut self, die: usize) -> Option<u32> {
        let die = &mut self.dies[die];
        while die.least < die.by_valid.len() && die.by_valid[die.least] == NONE {
            die.least += 1;
        }
        die.by_valid.get(die.least).copied()
    }

    /// The module's invariants, for tests.
    #[cfg(test)]
    pub fn check(&self) {
        let mut valid = vec![0u32; self.blocks.len()];
        let mut mapped = 0;
        for unit in 0..self.units {
            let place = self.place(unit);
            if place != NONE {
                mapped += 1;
                let (block, i) = (place / self.units_per_block, place % self.units_per_block);
                valid[block as usize] += 1;
                let owner = self.owners[block as usize].as_ref().map(|o| o[i as usize]);
                assert_eq!(owner, Some(unit as u32));
            }
        }
        assert_eq!(mapped, self.mapped);
        for (block, valid) in self.blocks.iter().zip(&valid) {
            assert_eq!(block.valid, *valid);
        }
        for (d, die) in self.dies.iter().enumerate() {
            let blocks = d * self.blocks_per_die as usize..(d + 1) * self.blocks_per_die as usize;
            assert_eq!(die.valid_units, valid[blocks].iter().map(|v| u64::from(*v)).sum::<u64>());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Kind, Model};

    fn flash() -> Flash {
        match Model::named("870evo").unwrap().kind {
            Kind::Ssd(model) => Flash::new(&model),
            Kind::Disk(_) => unreachable!(),
        }
    }

    #[test]
    fn stays_consistent_under_writes_trims_and_padding() {
        let mut flash = flash();
        let mut map = PageMap::new(1000, 4096, 4, 16, 0.1, flash.dies());
        let mut state = 1u64;
        let mut draw = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % n
        };
        for i in 0..20_000 {
            match draw(20) {
                0 => map.trim(draw(1000)),
                1 => map.pad(&mut flash, i),
                // Half of the writes go where one die's data may be, so that the dies differ.
                n if n % 2 == 0 => map.write(draw(62) * 16, &mut flash, i),
                _ => map.write(draw(1000), &mut flash, i),
            }
            map.take_programmed().for_each(drop);
            if i % 1000 == 0 {
                map.check();
            }
        }
        map.check();
    }

    #[test]
    fn a_full_drive_without_over_provisioning_can_be_overwritten() {
        let mut flash = flash();
        let mut map = PageMap::new(4096, 4096, 4, 16, 0.0, flash.dies());
        for round in 0..5 {
            (0..4096).for_each(|unit| map.write((unit * 257) % 4096, &mut flash, round));
        }
        map.check();
        assert_eq!(map.stats().mapped_bytes, 4096 * 4096);
    }
}
