//! What there is to see of a run: requests over time, where the disk's time went, maps of the disk.

use crate::experiment::{Case, END, MOUNT};
use crate::measure::{PhaseSample, Settings};
use arbor_base::vfs::Region;
use arbor_simdisk::{KINDS, Stats, Trace, TraceOp, TraceRequest, kind_name};

/// Most dots of a picture; of more requests every second, third ... is shown.
const MOST_DOTS: usize = 4000;
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
    pub case: &'static str,
    /// Size of the disk, bytes.
    pub capacity_bytes: u64,
    /// Phases and when they began, s.
    pub phases: Vec<(&'static str, f64)>,
    /// How long the run was, s.
    pub end_s: f64,
    /// Requests over time, thinned out.
    pub dots: Vec<Dot>,
    /// How many requests there were.
    pub requests: usize,
    /// Where the time of the disk went in all phases but mounts and the final unmount, by what it was for, s.
    pub by_kind: Vec<(&'static str, f64)>,
    /// The same by what the disk did, s.
    pub by_work: Vec<(&'static str, f64)>,
    /// The disk before, between and afterwards.
    pub maps: Vec<Map>,
}

impl Picture {
    pub(crate) fn new(
        subject: &str,
        case: &Case,
        settings: &Settings,
        trace: &Trace,
        phases: &[PhaseSample],
        maps: Vec<Map>,
    ) -> Picture {
        let measured = || phases.iter().filter(|p| p.name != MOUNT && p.name != END);
        let seconds = |f: &dyn Fn(&Stats) -> u64| measured().map(|p| f(&p.disk)).sum::<u64>() as f64 / 1e9;
        let by_kind = KINDS.iter().map(|kind| (kind_name(*kind), measured().map(|p| p.busy_s(*kind)).sum::<f64>()));
        let known = |s: &Stats| s.seek_ns + s.rotation_ns + s.transfer_ns;
        let by_work = vec![
            ("seek", seconds(&|s| s.seek_ns)),
            ("rotation", seconds(&|s| s.rotation_ns)),
            ("transfer", seconds(&|s| s.transfer_ns)),
            ("other", seconds(&|s| s.busy_ns.saturating_sub(known(s)))),
        ];
        let begin_ns = phases.first().map_or(0, |p| p.begun_ns);
        let since_begin_s = |ns: u64| ns.saturating_sub(begin_ns) as f64 / 1e9;
        let mut timed = phases.iter().filter(|p| p.name != END);
        Picture {
            experiment: "",
            subject: subject.to_string(),
            case: case.name,
            capacity_bytes: settings.model.capacity_bytes(),
            phases: timed.clone().map(|p| (p.name, since_begin_s(p.begun_ns))).collect(),
            end_s: timed.next_back().map_or(0.0, |p| since_begin_s(p.begun_ns + p.elapsed_ns)),
            dots: dots(trace, begin_ns),
            requests: trace.requests.len(),
            by_kind: by_kind.filter(|k| k.1 > 0.0).collect(),
            by_work,
            maps,
        }
    }

    /// Without what the requests were for, where nobody knows.
    #[cfg(unix)]
    pub(crate) fn without_kinds(self) -> Picture {
        Picture { by_kind: Vec::new(), ..self }
    }
}

fn dots(trace: &Trace, begin_ns: u64) -> Vec<Dot> {
    let every = trace.requests.len().div_ceil(MOST_DOTS).max(1);
    let dot = |r: &TraceRequest| Dot {
        at_s: r.end_ns.saturating_sub(begin_ns) as f64 / 1e9,
        offset: r.offset,
        kind: kind_index(r.kind),
        write: r.op == TraceOp::Write,
    };
    trace.requests.iter().step_by(every).map(dot).collect()
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
