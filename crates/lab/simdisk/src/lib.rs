//! Timed disks for the laboratory: what a hard disk or an SSD would have taken for the requests of a file system,
//! on a virtual clock.
//!
//! A [`SimDevice`] wraps any [`Device`](arbor_base::device::Device). Bytes go to the inner device at once and in
//! order; only time is simulated. A request enters the host's queue at the present virtual time, an elevator hands
//! it to a model of the drive, and waiting for its ticket moves the [`SimClock`] to its completion. Nothing here
//! looks at the real time or draws a random number, but for those with which an SSD becomes a used one, always the same:
//! so a run can be repeated exactly.
//!
//! ```text
//!   engine -- submit --> host queue -- tags --> drive (hard disk | SSD) --> completion at a virtual time
//!      `-------------- bytes, at once ----------------------------------> inner device
//! ```
//!
//! The typical sequence: `Model::named("st39140")`, `SimClock::new`, `SimDevice::new`, an engine on a clone of the
//! device with the clock as its [`Clock`](arbor_base::vfs::Clock), then [`SimDevice::stats`] and
//! [`SimDevice::take_trace`].
//!
//! * [`Model`]: the parameters of a drive, from a TOML file; those in `models/` are built in.
//! * [`DiskFs`]: the disk as a file to be mounted, for those who know nothing of us.
//! * [`HostQueue`]: the driver's queue, its scheduler and merging; [`Host`]: that and the processor of a paper's machine,
//!   from a TOML file in `hosts/`.
//! * [`Stats`]: counters in the terms of the yFS paper (service time W, queueing time Z).
//! * [`Trace`]: every request with its times; kept as text ([`TraceWriter`]). A [`TraceReader`] reads it one by one, and
//!   those of fio, blktrace and others; [`Replay`] gives them to another model.
//! * [`lanes`]: several programs that wait for the same disks, one at a time, on one clock.
//! * [`Latencies`]: how long things took, the median and the rare long ones.
//!
//! Sources of the models' form: Ruemmler and Wilkes, "An introduction to disk drive modeling", IEEE Computer 27(3),
//! 1994; Worthington, Ganger and Patt, "Scheduling algorithms for modern disk drives", SIGMETRICS 1994; Kim et al.,
//! "A space-efficient flash translation layer for CompactFlash systems", IEEE Trans. Consumer Electronics 48(2),
//! 2002; Desnoyers, "Analytic modeling of SSD write performance", SYSTOR 2012.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod clock;
mod device;
mod disk;
mod drive;
mod file;
mod host;
mod hosts;
pub mod lanes;
mod latencies;
mod model;
mod sim;
mod ssd;
mod stats;
mod trace;

pub use clock::SimClock;
pub use device::SimDevice;
pub use file::{DISK_FILE, DiskFs, UNDER_WAY_BYTES};
pub use host::{HostQueue, Merge, Scheduler};
pub use hosts::Host;
pub use latencies::Latencies;
pub use model::Model;
pub use stats::{KindStats, SsdStats, Stats};
pub use trace::{
    Answers, InOrder, KINDS, Replay, Replayed, Timing, Trace, TraceEntry, TraceFormat, TraceOp, TraceReader,
    TraceRequest, TraceWriter, kind_name, replay,
};
