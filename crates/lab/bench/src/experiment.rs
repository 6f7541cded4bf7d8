//! The experiments, as data: what is run, and what the paper says came out.
//!
//! An experiment has one of two shapes. Tables have figures of the paper beside ours. Charts have lines or bars, and
//! what the paper says of them in words: [`curves`]. Each experiment with charts has a module of its own.
//!
//! The tables are those of Zhang and Ghose, "yFS: A Journaling File System Design for Handling Large Data Sets with
//! Reduced Seeking", FAST 2003, section 6, on two Seagate ST39140 with blocks of 16 KiB, fragments of 2 KiB,
//! allocation groups of 178 MB, a log of 32 MB and 128 MB of memory. The paper's averages are over at least five
//! runs; "the standard deviation is usually less than 3%".

mod cold_tree;
pub mod curves;
mod dualfs;
mod evergreen;
mod ffs_aging;
mod lfs_adjudicated;
mod lfs_cleaning;
mod lfs_filesize;
mod lfs_large;
mod lfs_small;
mod lfs_tpcb;
mod reiser;
mod yfs_ablation;

use crate::op::Program;
use crate::svg::count;
use crate::workload::aging::Aging;
use crate::workload::archive::Archive;
use crate::workload::banded::Banded;
use crate::workload::file_size::FileSize;
use crate::workload::kernel_build::KernelBuild;
use crate::workload::kernel_trees::KernelTrees;
use crate::workload::postmark::PostMark;
use crate::workload::primitive::{BigFile, SmallFiles};
use crate::workload::source_tree::SourceTree;
use crate::workload::tpcc::TpcC;
use crate::workload::web::Web;
use arbor_base::device::Kind;
use arbor_simdisk::Model;
use curves::{Charts, Host};
use evergreen::Pieces;
use ffs_aging::Aged;
use lfs_adjudicated::Shared;
use lfs_cleaning::Filled;
use lfs_tpcb::Database;

/// A workload with the paper's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// 6.1, see [`SourceTree`].
    KernelBuild,
    /// 6.2, with so many files.
    PostMark(u32),
    /// 6.3, see [`Archive`].
    Archive,
    /// 6.4, with so many operations.
    Aging(u32),
    /// See [`SmallFiles`].
    SmallFiles(SmallFiles),
    /// See [`BigFile`].
    BigFile(BigFile),
    /// See [`FileSize`].
    FileSize(FileSize),
    /// TPC-B on a volume that is so full.
    TpcB(Database),
    /// TPC-B on a volume that is filled so far by what is not used.
    Shared(Shared),
    /// Overwriting on a volume that is so full.
    Overwrite(Filled),
    /// Turnover up to a date, and then the sequential benchmark.
    Turnover(Aged),
    /// See [`Banded`].
    Banded(Banded),
    /// PostMark on a volume that is filled so far.
    Filled(evergreen::Filled),
    /// Blocks of a file are overwritten.
    Pieces(Pieces),
    /// See [`KernelTrees`].
    KernelTrees(KernelTrees),
    /// PostMark as the DualFS paper has it.
    Mail,
    /// See [`KernelBuild`].
    Compilation(KernelBuild),
    /// See [`Web`]; so many servers.
    Web(u32),
    /// See [`TpcC`].
    TpcC,
}

impl Load {
    /// The workload as a subject of this name has it: some subjects differ in what is done with them.
    pub fn on(self, subject: &str) -> Load {
        match self {
            Load::TpcB(database) => Load::TpcB(database.on(subject)),
            Load::Shared(shared) => Load::Shared(shared.on(subject)),
            Load::Turnover(aged) => Load::Turnover(aged.on(subject)),
            _ => self,
        }
    }

    /// The size of the volume, bytes, if it is not the disk's.
    pub fn volume_bytes(self, divisor: u32) -> Option<u64> {
        match self {
            Load::TpcB(database) => Some(database.volume_bytes(divisor)),
            Load::Shared(_) => Some(Shared::volume_bytes(divisor)),
            Load::Overwrite(_) => Some(Filled::volume_bytes(divisor)),
            Load::Turnover(_) => Some(Aged::volume_bytes(divisor)),
            Load::Filled(filled) => Some(filled.volume_bytes(divisor)),
            Load::Pieces(pieces) => Some(pieces.volume_bytes(divisor)),
            _ => None,
        }
    }

    /// How many programs do it at the same time.
    pub fn lanes(self) -> u32 {
        match self {
            Load::KernelTrees(trees) => trees.processes,
            Load::Compilation(build) => build.processes,
            Load::Web(servers) => servers,
            _ => 1,
        }
    }

    /// Whether it has a new volume even where workloads run one after the other on the same.
    pub fn begins_anew(self) -> bool {
        matches!(self, Load::Filled(filled) if filled.is_anew)
    }

    /// The drive, if it is another than that of the run.
    pub fn drive(self, model: &Model) -> Option<Model> {
        match self {
            Load::Filled(filled) => filled.drive(model),
            _ => None,
        }
    }

    /// The program of another disk, from which this one copies, if it does.
    pub fn source(self, seed: u64, divisor: u32) -> Option<Box<dyn Program>> {
        match self {
            Load::KernelBuild => Some(SourceTree::divided_by(divisor).reader(seed)),
            _ => None,
        }
    }

    /// The program for run number `seed`, from 1 on, with counts divided by `divisor`. `reads_ns`: how long it waits
    /// for each file of its source.
    pub fn program(self, seed: u64, divisor: u32, capacity_bytes: u64, reads_ns: &[u64]) -> Box<dyn Program> {
        match self {
            Load::KernelBuild => SourceTree::divided_by(divisor).program(seed, reads_ns),
            Load::SmallFiles(spec) => SmallFiles { files: spec.files.div_ceil(divisor), ..spec }.program(),
            Load::BigFile(spec) => BigFile { file_bytes: spec.file_bytes / u64::from(divisor), ..spec }.program(seed),
            Load::FileSize(spec) => spec.divided_by(divisor).program(),
            Load::TpcB(database) => database.spec(divisor).program(seed),
            Load::Shared(shared) => shared.spec(divisor).program(seed),
            Load::Overwrite(filled) => filled.spec(divisor).program(seed),
            Load::Turnover(aged) => aged.spec(divisor).program(seed),
            Load::Banded(set) => set.divided_by(divisor).program(seed),
            Load::Filled(filled) => filled.program(seed, divisor),
            Load::Pieces(pieces) => pieces.program(seed, divisor),
            Load::KernelTrees(trees) => trees.divided_by(divisor).program(seed),
            Load::Mail => dualfs::mail(seed, divisor).program(),
            Load::Compilation(build) => build.program(seed, divisor),
            Load::Web(servers) => Web::divided_by(servers, divisor).program(seed),
            Load::TpcC => TpcC::divided_by(divisor).program(seed),
            Load::PostMark(files) => {
                let seed = (PostMark::default().seed - 1).wrapping_add(seed as u32);
                PostMark { files: files.div_ceil(divisor), seed, ..PostMark::default() }.program()
            }
            Load::Archive => Archive::divided_by(divisor).program(seed),
            Load::Aging(operations) => {
                let operations = operations.div_ceil(divisor);
                Aging { operations, capacity_bytes, ..Aging::default() }.program(seed)
            }
        }
    }
}

/// What is measured of a part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Virtual time, s.
    Elapsed,
    /// Files removed a second.
    RemovalRate,
    /// Files made, opened or removed a second.
    FileRate,
    /// What the program read and wrote, MB a second.
    Throughput,
    /// Transactions a second.
    TransactionRate,
    /// Bytes to and from the disk for each byte that is new, where a cleaner moves others (Rosenblum and Ousterhout
    /// 1992, section 3.4).
    WriteCost,
    /// The part of what the cleaner reads that lives and is written elsewhere, %.
    Moved,
    /// Of the segments that a cleaner found when it chose, those of which so many twentieths lived, %.
    Found(usize),
    /// Requests of the driver to the file system's disk.
    Requests,
    /// Of these, reads.
    Reads,
    /// Of these, writes.
    Writes,
    /// Written, MB.
    Written,
    /// Written to a log, MB.
    LogWritten,
    /// Bytes that flash was programmed with, for each byte that an SSD was given to write.
    FlashWritten,
    /// Requests after the part and up to the next one, or to the end of an unmount.
    RequestsAfter,
    /// Virtual time of the same, s: a part ends with dirty memory, and this is what it costs.
    ElapsedAfter,
    /// Average service time of a request, ms (the paper's W).
    Service,
    /// Average time of a request in the driver's queue, ms (the paper's Z).
    Queue,
    /// Bytes used of the volume at its end besides what an empty one needs, MB.
    Used,
    /// Names compared in linear searches, millions.
    Compared,
    /// Time the disk was busy, s.
    Busy,
    /// Real time of the processor, s.
    Processor,
    /// Read and written, MB.
    Transferred,
    /// Seeks, s.
    Seek,
    /// Rotational delay, s.
    Rotation,
    /// Transfer, s.
    Transfer,
    /// Time the disk was busy with requests of a kind, s.
    Kind(Kind),
    /// Bytes of log for each call that changes names: creation, removal, renaming. An engine may join the
    /// transactions of several calls, so that its own count of them says less.
    LogPerChange,
    /// How long a call takes, us. Background work, which would run beside the program, is between calls.
    Latency(Rank),
    /// Bytes written to the file system's disk for each byte that the program wrote, with what a part leaves to be
    /// written after it. A log on a disk of its own does not count.
    WriteAmplification,
    /// By how much a counter of the engine has grown.
    Counter(&'static str),
}

/// One of many times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// Half of them are not longer.
    Median,
    /// 99 of 100 are not longer.
    P99,
    /// 999 of 1,000 are not longer.
    P999,
    /// None is longer.
    Largest,
}

impl Rank {
    /// All of them.
    pub const ALL: [Rank; 4] = [Rank::Median, Rank::P99, Rank::P999, Rank::Largest];

    fn name(self) -> &'static str {
        match self {
            Rank::Median => "latency of a call, median",
            Rank::P99 => "latency of a call, 99%",
            Rank::P999 => "latency of a call, 99.9%",
            Rank::Largest => "latency of a call, largest",
        }
    }
}

impl Quantity {
    /// Its name and unit in tables.
    pub fn name(self) -> (&'static str, &'static str) {
        match self {
            Quantity::Elapsed => ("elapsed time", "s"),
            Quantity::RemovalRate => ("deletion rate", "files/s"),
            Quantity::FileRate => ("rate", "files/s"),
            Quantity::Throughput => ("throughput", "MB/s"),
            Quantity::TransactionRate => ("transactions", "1/s"),
            Quantity::WriteCost => ("write cost", ""),
            Quantity::Moved => ("live part of what is cleaned", "%"),
            Quantity::Found(class) => (FOUND.get(class).map_or("", |found| found.1), "%"),
            Quantity::Requests => ("requests", ""),
            Quantity::Reads => ("read requests", ""),
            Quantity::Writes => ("write requests", ""),
            Quantity::Written => ("written", "MB"),
            Quantity::LogWritten => ("written to a log", "MB"),
            Quantity::FlashWritten => ("write amplification of the flash", ""),
            Quantity::RequestsAfter => ("requests afterwards", ""),
            Quantity::ElapsedAfter => ("time afterwards", "s"),
            Quantity::Service => ("service time", "ms"),
            Quantity::Queue => ("queueing time", "ms"),
            Quantity::Used => ("space used", "MB"),
            Quantity::Compared => ("names compared", "millions"),
            Quantity::Busy => ("disk busy", "s"),
            Quantity::Processor => ("processor, real", "s"),
            Quantity::Transferred => ("transferred", "MB"),
            Quantity::Seek => ("disk time, seeks", "s"),
            Quantity::Rotation => ("disk time, rotation", "s"),
            Quantity::Transfer => ("disk time, transfer", "s"),
            Quantity::Kind(Kind::Log) => ("disk time, log", "s"),
            Quantity::Kind(Kind::Inode) => ("disk time, inodes", "s"),
            Quantity::Kind(Kind::Dir) => ("disk time, directories", "s"),
            Quantity::Kind(Kind::Data) => ("disk time, data", "s"),
            Quantity::Kind(_) => ("disk time, other metadata", "s"),
            Quantity::LogPerChange => ("log for each change of names", "bytes"),
            Quantity::Latency(rank) => (rank.name(), "us"),
            Quantity::WriteAmplification => ("write amplification of the file system", ""),
            Quantity::Counter(name) => (name, ""),
        }
    }

    /// What theory says of it, over an axis in percent.
    pub fn theory(self) -> Option<Theory> {
        match self {
            // All of a segment is read, and its live part u written, for a part 1 - u of new data.
            Quantity::WriteCost => Some(("2 / (1 - u)", |percent| 2.0 / (1.0 - percent / 100.0))),
            _ => None,
        }
    }
}

/// The classes of segments that a cleaner found: counters of the engine, and names of [`Quantity::Found`].
pub(crate) const FOUND: [(&str, &str); 20] = [
    ("found_00", "segments of which 0 to 5% live"),
    ("found_05", "segments of which 5 to 10% live"),
    ("found_10", "segments of which 10 to 15% live"),
    ("found_15", "segments of which 15 to 20% live"),
    ("found_20", "segments of which 20 to 25% live"),
    ("found_25", "segments of which 25 to 30% live"),
    ("found_30", "segments of which 30 to 35% live"),
    ("found_35", "segments of which 35 to 40% live"),
    ("found_40", "segments of which 40 to 45% live"),
    ("found_45", "segments of which 45 to 50% live"),
    ("found_50", "segments of which 50 to 55% live"),
    ("found_55", "segments of which 55 to 60% live"),
    ("found_60", "segments of which 60 to 65% live"),
    ("found_65", "segments of which 65 to 70% live"),
    ("found_70", "segments of which 70 to 75% live"),
    ("found_75", "segments of which 75 to 80% live"),
    ("found_80", "segments of which 80 to 85% live"),
    ("found_85", "segments of which 85 to 90% live"),
    ("found_90", "segments of which 90 to 95% live"),
    ("found_95", "segments of which 95 to 100% live"),
];

/// What theory says of a quantity: its name, and it over an axis.
pub type Theory = (&'static str, fn(f64) -> f64);

/// A part of a run that is measured by itself.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Its name, empty for the whole.
    pub name: &'static str,
    /// The phases of the program that make it up.
    pub phases: &'static [&'static str],
    /// The phases whose requests come after it.
    pub after: &'static [&'static str],
    /// What the paper says of it, in the order of [`Experiment::columns`].
    pub paper: &'static [(Quantity, [f64; 3])],
}

impl Part {
    /// Some phases, of which the paper gives no figures.
    pub const fn new(name: &'static str, phases: &'static [&'static str]) -> Part {
        Part { name, phases, after: &[], paper: &[] }
    }
}

impl Case {
    /// Its name with the counts of a run, which are divided by `divisor`.
    pub fn title(&self, divisor: u32) -> String {
        let of = |n: u32, what: &str| format!("{} {what}", count(f64::from(n.div_ceil(divisor.max(1)))));
        match self.load {
            Load::PostMark(files) => of(files, "files"),
            Load::Aging(operations) => of(operations, "operations"),
            _ => self.name.into(),
        }
    }
}

/// One workload of an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name, empty if it is the only one.
    pub name: &'static str,
    /// The workload.
    pub load: Load,
    /// What it differs in from the others, where charts have lines over that.
    pub x: f64,
    /// Its parts.
    pub parts: &'static [Part],
}

/// What an experiment shows.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// Figures beside those of the paper.
    Tables,
    /// Lines or bars, and what the paper says of them.
    Charts(&'static Charts),
}

/// A table or a figure of a paper.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its name for the command.
    pub name: &'static str,
    /// One sentence.
    pub about: &'static str,
    /// Paper, section and table.
    pub source: &'static str,
    /// The subjects of the paper.
    pub columns: &'static [&'static str],
    /// What is run besides them.
    pub others: &'static [&'static str],
    /// The one that the others are compared with: ratios are its figures over theirs.
    pub reference: &'static str,
    /// Subjects with a log, and how many bytes of it a change of names takes at most, as the paper says.
    pub log_bound: (&'static [&'static str], f64),
    /// The paper's host, as far as nothing else is asked for.
    pub host: Host,
    /// The workloads.
    pub cases: &'static [Case],
    /// Subjects on which the workloads run one after the other on the same volume. On all others each has a new one.
    pub series: &'static [&'static str],
    /// What it shows.
    pub shape: Shape,
}

impl Experiment {
    /// Whether a paper has it.
    pub fn has_paper(&self) -> bool {
        !self.source.starts_with("No paper")
    }

    /// What is done in a run whose counts are divided by `divisor`.
    pub fn about(&self, divisor: u32) -> String {
        match divisor {
            0 | 1 => self.about.into(),
            _ => format!("{}, counts divided by {divisor}.", self.about.trim_end_matches('.')),
        }
    }

    /// Its charts, if it has any.
    pub fn charts(&self) -> Option<&'static Charts> {
        match self.shape {
            Shape::Tables => None,
            Shape::Charts(charts) => Some(charts),
        }
    }

    /// Whether subjects of the paper are as it describes them: in its tables on its host.
    pub fn is_as_described(&self) -> bool {
        self.charts().is_none() && self.host.machine != Host::YFS.machine
    }

    /// What the paper says of `subject`, if it was one of its subjects.
    pub fn column(&self, subject: &str) -> Option<usize> {
        self.columns.iter().position(|c| *c == subject)
    }
}

/// The last phase of every run: everything is written back and unmounted.
pub const END: &str = "end";
/// The phase between an unmount and the next mark: mounting.
pub const MOUNT: &str = "mount";
/// The phase between two workloads on the same volume.
pub const NEXT: &str = "next";

const COLUMNS: &[&str] = &["yFS-inline", "yFS-external", "FFS-SU"];
const OTHERS: &[&str] = &["FFS-sync", "FFS-async", "FFS-journal"];

use Quantity::{Elapsed, Queue, RemovalRate, Requests, RequestsAfter, Service};

const fn yfs(name: &'static str, about: &'static str, source: &'static str, cases: &'static [Case]) -> Experiment {
    // "Each transactions writes less than 500 bytes of log data" (6.5).
    let log_bound: (&[&str], f64) = (&["yFS-inline", "yFS-external"], 500.0);
    Experiment {
        name,
        about,
        source,
        columns: COLUMNS,
        others: OTHERS,
        reference: "FFS-SU",
        log_bound,
        host: Host::YFS,
        cases,
        series: &[],
        shape: Shape::Tables,
    }
}

const YFS_ONE: Experiment = yfs(
    "yfs-table1",
    "A kernel's source is copied and built.",
    "yFS, FAST 2003, section 6.1, table 1",
    &[Case { name: "", load: Load::KernelBuild, x: 0.0, parts: TABLE_1 }],
);

const YFS_TWO: Experiment = yfs(
    "yfs-table2",
    "PostMark 1.5 in one directory.",
    "yFS, FAST 2003, section 6.2, tables 2(a) and 2(b)",
    &[
        Case { name: "50,000 files", load: Load::PostMark(50_000), x: 0.0, parts: TABLE_2[0] },
        Case { name: "100,000 files", load: Load::PostMark(100_000), x: 0.0, parts: TABLE_2[1] },
        Case { name: "150,000 files", load: Load::PostMark(150_000), x: 0.0, parts: TABLE_2[2] },
    ],
);

const YFS_THREE: Experiment = yfs(
    "yfs-table3",
    "An archive of 55,189 files is extracted and removed.",
    "yFS, FAST 2003, section 6.3, table 3",
    &[Case { name: "", load: Load::Archive, x: 0.0, parts: TABLE_3 }],
);

const YFS_FOUR: Experiment = yfs(
    "yfs-table4",
    "An empty file system is aged by creations and deletions.",
    "yFS, FAST 2003, section 6.4, tables 4(a) and 4(b)",
    &[
        Case { name: "10,000 operations", load: Load::Aging(10_000), x: 0.0, parts: TABLE_4[0] },
        Case { name: "20,000 operations", load: Load::Aging(20_000), x: 0.0, parts: TABLE_4[1] },
        Case { name: "40,000 operations", load: Load::Aging(40_000), x: 0.0, parts: TABLE_4[2] },
    ],
);

/// A table on the host of its paper: drivers of today join whatever is adjacent, and FreeBSD 4 did not.
const fn on_freebsd(name: &'static str, table: Experiment) -> Experiment {
    Experiment { name, host: Host { machine: "freebsd4", ..Host::YFS }, others: &[], ..table }
}

/// All experiments.
pub const ALL: &[Experiment] = &[
    YFS_ONE,
    YFS_TWO,
    YFS_THREE,
    YFS_FOUR,
    on_freebsd("freebsd4-table1", YFS_ONE),
    on_freebsd("freebsd4-table2", YFS_TWO),
    on_freebsd("freebsd4-table3", YFS_THREE),
    on_freebsd("freebsd4-table4", YFS_FOUR),
    yfs_ablation::EXPERIMENT,
    lfs_small::EXPERIMENT,
    lfs_large::EXPERIMENT,
    lfs_filesize::EXPERIMENT,
    lfs_tpcb::EXPERIMENT,
    lfs_adjudicated::EXPERIMENT,
    lfs_cleaning::EXPERIMENT,
    ffs_aging::EXPERIMENT,
    reiser::BANDED,
    reiser::BANDED_EX,
    reiser::BANDED_SCSI,
    reiser::SMALL,
    reiser::SMALL_EX,
    reiser::SMALL_SCSI,
    reiser::MEDIUM,
    reiser::LARGE,
    dualfs::MICRO,
    dualfs::TABLE_2,
    dualfs::MACRO,
    cold_tree::OLD,
    cold_tree::HC310,
    cold_tree::SSD_980PRO,
    cold_tree::SSD_870EVO,
    evergreen::FIG4,
    evergreen::FIG4_DISK,
    evergreen::FIG4_HC310,
    evergreen::FIG4_870EVO,
    evergreen::FIG4_980PRO,
    evergreen::FIG5,
    evergreen::LOGS,
    evergreen::LARGE,
    evergreen::MASTERS,
    evergreen::MASTERS_DISK,
    evergreen::OTHERS,
    evergreen::ADAPTIVE,
    evergreen::ADAPTIVE_HC310,
    evergreen::ADAPTIVE_980PRO,
    evergreen::GATHER,
    evergreen::GATHER_HC310,
    evergreen::GATHER_980PRO,
];

const TABLE_1: &[Part] = &[
    Part { name: "copy", phases: &["copy"], after: &[], paper: &[(Elapsed, [32.0, 32.0, 40.0])] },
    Part { name: "compile", phases: &["compile"], after: &[], paper: &[(Elapsed, [704.0, 703.0, 701.0])] },
    Part {
        name: "whole",
        phases: &["copy", "compile"],
        after: &[END],
        paper: &[
            (Requests, [10_505.0, 10_177.0, 14_614.0]),
            (RequestsAfter, [131.0, 115.0, 181.0]),
            (Service, [5.0, 4.0, 7.0]),
            (Queue, [58.0, 53.0, 209.0]),
        ],
    },
];

const POSTMARK: &[&str] = &["create", "transactions", "delete"];

const TABLE_2: [&[Part]; 3] = [
    &[
        Part {
            name: "",
            phases: POSTMARK,
            after: &["cleanup", END],
            paper: &[
                (Elapsed, [102.0, 87.0, 130.0]),
                (Requests, [58_084.0, 56_874.0, 57_632.0]),
                (RequestsAfter, [373.0, 402.0, 404.0]),
                (Service, [2.0, 1.0, 4.0]),
                (Queue, [39.0, 28.0, 107.0]),
            ],
        },
        Part { name: "", phases: &["delete"], after: &[], paper: &[(RemovalRate, [1666.0, 2772.0, 6962.0])] },
    ],
    &[
        Part {
            name: "",
            phases: POSTMARK,
            after: &["cleanup", END],
            paper: &[
                (Elapsed, [215.0, 177.0, 281.0]),
                (Requests, [117_247.0, 114_698.0, 115_603.0]),
                (RequestsAfter, [407.0, 462.0, 575.0]),
                (Service, [2.0, 1.0, 4.0]),
                (Queue, [34.0, 24.0, 100.0]),
            ],
        },
        Part { name: "", phases: &["delete"], after: &[], paper: &[(RemovalRate, [1552.0, 2795.0, 5888.0])] },
    ],
    &[
        Part {
            name: "",
            phases: POSTMARK,
            after: &["cleanup", END],
            paper: &[
                (Elapsed, [320.0, 267.0, 462.0]),
                (Requests, [176_159.0, 172_104.0, 173_222.0]),
                (RequestsAfter, [358.0, 482.0, 397.0]),
                (Service, [2.0, 1.0, 4.0]),
                (Queue, [33.0, 23.0, 98.0]),
            ],
        },
        Part { name: "", phases: &["delete"], after: &[], paper: &[(RemovalRate, [1530.0, 2560.0, 5357.0])] },
    ],
];

const TABLE_3: &[Part] = &[
    Part {
        name: "extraction",
        phases: &["extract"],
        after: &["remount"],
        paper: &[
            (Elapsed, [97.0, 89.0, 502.0]),
            (Requests, [26_472.0, 25_761.0, 96_614.0]),
            (RequestsAfter, [558.0, 647.0, 201.0]),
            (Service, [4.0, 4.0, 10.0]),
            (Queue, [75.0, 59.0, 645.0]),
        ],
    },
    Part {
        name: "deletion",
        phases: &["remove"],
        after: &[END],
        paper: &[
            (Elapsed, [43.0, 37.0, 148.0]),
            (Requests, [4683.0, 3929.0, 22_613.0]),
            (RequestsAfter, [141.0, 238.0, 303.0]),
            (Service, [12.0, 11.0, 10.0]),
            (Queue, [111.0, 107.0, 185.0]),
        ],
    },
];

const TABLE_4: [&[Part]; 3] = [
    &[Part {
        name: "",
        phases: &["age"],
        after: &[END],
        paper: &[
            (Elapsed, [114.0, 117.0, 168.0]),
            (Requests, [20_961.0, 20_521.0, 21_817.0]),
            (RequestsAfter, [325.0, 216.0, 387.0]),
            (Service, [10.0, 11.0, 15.0]),
            (Queue, [144.0, 148.0, 240.0]),
        ],
    }],
    &[Part {
        name: "",
        phases: &["age"],
        after: &[END],
        paper: &[
            (Elapsed, [241.0, 241.0, 400.0]),
            (Requests, [40_967.0, 40_714.0, 47_791.0]),
            (RequestsAfter, [454.0, 414.0, 365.0]),
            (Service, [11.0, 11.0, 16.0]),
            (Queue, [150.0, 147.0, 281.0]),
        ],
    }],
    &[Part {
        name: "",
        phases: &["age"],
        after: &[END],
        paper: &[
            (Elapsed, [552.0, 519.0, 1024.0]),
            (Requests, [82_860.0, 80_034.0, 121_179.0]),
            (RequestsAfter, [610.0, 673.0, 452.0]),
            (Service, [12.0, 12.0, 16.0]),
            (Queue, [165.0, 155.0, 335.0]),
        ],
    }],
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_the_counts_of_the_run() {
        for case in ALL.iter().filter(|e| e.charts().is_none()).flat_map(|e| e.cases) {
            assert_eq!(case.title(1), case.name);
        }
        assert_eq!(
            (ALL[1].cases[0].title(20), ALL[3].cases[2].title(3)),
            ("2,500 files".into(), "13,334 operations".into())
        );
        assert_eq!(ALL[2].about(1), ALL[2].about);
        assert_eq!(ALL[2].about(20), "An archive of 55,189 files is extracted and removed, counts divided by 20.");
    }
}
