//! What there is to see of a run: requests over time, maps of the disk.

use crate::experiment::{Case, END};
use crate::measure::{PhaseSample, Settings};
use arbor_base::vfs::Region;
use arbor_simdisk::{KINDS, Trace, TraceOp, TraceRequest};
use rustc_hash::FxHashSet;

/// Requests of the same kind that are as close as this in time and address are one dot: parts of the run, and of the
/// disk. Finer than any picture.
const GRAIN: (f64, u64) = (4096.0, 1 << 15);
/// Cells of a map.
pub(crate) const CELLS: usize = 2048;

/// A request of the driver's queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dot {
    /// When it was complete, s since the run began.
    pub at_s: f64,
    /// Its first byte.
    pub offset: u64,
    /// Its kind, an index of [`KINDS`].
    pub kind: usize,
    /// Whether it wrote.
    pub write: bool,
}

/// A piece of the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cell {
    /// Bytes in use by kind, in the order of [`KINDS`].
    pub bytes: [u64; KINDS.len()],
}

/// What lies where on the disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// When.
    pub when: &'static str,
    /// Size of a piece, bytes.
    pub cell_bytes: u64,
    /// The pieces in the order of addresses.
    pub cells: Vec<Cell>,
}

impl Map {
    /// An empty disk.
    pub fn new(when: &'static str, capacity_bytes: u64) -> Map {
        Map { when, cell_bytes: capacity_bytes.div_ceil(CELLS as u64).max(1), cells: vec![Cell::default(); CELLS] }
    }

    /// Adds what lies in a region.
    pub fn add(&mut self, region: &Region) {
        let (mut at, end) = (region.offset, region.offset.saturating_add(region.len));
        while let Some(cell) = self.cells.get_mut((at / self.cell_bytes) as usize).filter(|_| at < end) {
            let next = ((at / self.cell_bytes + 1) * self.cell_bytes).min(end);
            cell.bytes[kind_index(region.kind)] += next - at;
            at = next;
        }
    }
}

fn kind_index(kind: arbor_base::device::Kind) -> usize {
    KINDS.iter().position(|k| *k == kind).unwrap_or(KINDS.len() - 1)
}

/// What there is to see of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// Name of the experiment.
    pub experiment: &'static str,
    /// Name of the subject.
    pub subject: String,
    /// Name of the workload, empty if there is one only.
    pub case: String,
    /// Size of the disk, bytes.
    pub capacity_bytes: u64,
    /// Phases and when they began, s.
    pub phases: Vec<(&'static str, f64)>,
    /// How long the run was, s.
    pub end_s: f64,
    /// Requests over time; of those that no picture tells apart, the first.
    pub dots: Vec<Dot>,
    /// How many requests there were.
    pub requests: usize,
    /// The disk before, between and afterwards.
    pub maps: Vec<Map>,
}

impl Picture {
    pub(crate) fn new(
        subject: &str,
        cases: &[Case],
        settings: &Settings,
        trace: &Trace,
        phases: &[PhaseSample],
        maps: Vec<Map>,
    ) -> Picture {
        let begin_ns = phases.first().map_or(0, |p| p.begun_ns);
        let since_begin_s = |ns: u64| ns.saturating_sub(begin_ns) as f64 / 1e9;
        let mut timed = phases.iter().filter(|p| p.name != END);
        let begun_s = timed.clone().map(|p| (p.name, since_begin_s(p.begun_ns))).collect();
        let end_s = timed.next_back().map_or(0.0, |p| since_begin_s(p.begun_ns + p.elapsed_ns));
        let capacity_bytes = settings.model.capacity_bytes();
        Picture {
            experiment: "",
            subject: subject.to_string(),
            case: cases.first().map(|case| case.title(settings.divisor)).unwrap_or_default(),
            capacity_bytes,
            phases: begun_s,
            end_s,
            dots: dots(trace, begin_ns, end_s, capacity_bytes),
            requests: trace.requests.len(),
            maps,
        }
    }
}

fn dots(trace: &Trace, begin_ns: u64, end_s: f64, capacity_bytes: u64) -> Vec<Dot> {
    let dot = |r: &TraceRequest| Dot {
        at_s: r.end_ns.saturating_sub(begin_ns) as f64 / 1e9,
        offset: r.offset,
        kind: kind_index(r.kind),
        write: r.op == TraceOp::Write,
    };
    let grain = (end_s / GRAIN.0, (capacity_bytes / GRAIN.1).max(1));
    let mut seen = FxHashSet::default();
    let mut is_new =
        |d: &Dot| seen.insert(((d.at_s / grain.0) as u32, (d.offset / grain.1) as u32, d.kind as u8, d.write));
    let moves = |r: &&TraceRequest| matches!(r.op, TraceOp::Read | TraceOp::Write);
    trace.requests.iter().filter(moves).map(dot).filter(|d| is_new(d)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arbor_base::device::Kind;

    #[test]
    fn regions_fill_cells() {
        let mut map = Map::new("now", CELLS as u64 * 1000);
        let region =
            Region { offset: 500, len: 2000, kind: Kind::Data, owner: None, file_offset: 0, name: String::new() };
        map.add(&region);
        map.add(&Region { offset: CELLS as u64 * 1000 - 10, kind: Kind::Log, ..region });
        let data = |at: usize| map.cells[at].bytes[kind_index(Kind::Data)];
        assert_eq!((data(0), data(1), data(2), data(3)), (500, 1000, 500, 0));
        assert_eq!(map.cells[CELLS - 1].bytes[kind_index(Kind::Log)], 10);
    }
}
