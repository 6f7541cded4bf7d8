//! Workloads, what runs them on any engine or mount, experiments and their report.
//!
//! A workload ([`workload`]) is data; with a seed it makes a [`Program`](op::Program), which gives
//! operations ([`op::Op`]) one after the other. [`ground::run`] carries them out on a
//! [`Ground`](ground::Ground): [`library::Library`] is a mounted [`FileSystem`](arbor_base::vfs::FileSystem) called
//! directly, `calls::SystemCalls` a directory of any mount. Both get the same operations in the same order,
//! except that a program which removes a tree follows the order in which the file system lists it.
//!
//! The typical sequence:
//!
//! ```text
//! let program = PostMark { files: 50_000, ..PostMark::default() }.program();
//! let mut ground = Library::new(fs, clock, Charge::default(), remount);
//! let outcome = ground::run(&mut *program, &mut ground, &mut |event| ...)?;
//! ```
//!
//! An experiment ([`experiment`]) is one or more workloads and what a paper says came out. [`run()`] runs it on
//! [`Subject`]s, engines with their options or file systems of the kernel (`peer`), each on a simulated disk of its own
//! with a virtual clock, and gives [`Row`]s, figures beside those of the paper, and [`Picture`](picture::Picture)s for
//! the [`report()`], a page that needs nothing else, and for [`Figures`], tables and pictures for documents.
//!
//! ```text
//! let experiment = arbor_bench::list().iter().find(|e| e.name == "yfs-table2");
//! let results = arbor_bench::run(experiment, &subjects, &Settings::new(Model::named("st39140")?), &mut |p| ...)?;
//! let page = arbor_bench::report("...", "...", &results.rows, &results.pictures, &results.notes);
//! ```
//!
//! Everything repeats bit for bit from the seed: random numbers are integers of SplitMix64 (or of the
//! Mersenne Twister, for PostMark), and logarithms and cosines are those of `libm`, which computes the same
//! on every platform.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[cfg(unix)]
pub mod calls;
mod charts;
mod conditions;
pub mod draw;
pub mod experiment;
mod figures;
mod fill;
pub mod ground;
pub mod interval;
mod lanes;
pub mod library;
pub mod measure;
pub mod op;
#[cfg(unix)]
pub mod peer;
pub mod picture;
mod record;
mod report;
pub mod rows;
pub mod sheets;
mod svg;
pub mod workload;

pub use charts::Drawing;
pub use conditions::Conditions;
pub use experiment::Experiment;
pub use figures::{Figures, Setting};
pub use measure::{Extra, More, Place, Settings, Setup, Subject, System};
pub use record::{Kept, Traced, Traces};
pub use report::report;
pub use rows::{Progress, Results, Row, from_json, run, to_json};

/// All experiments.
pub fn list() -> &'static [Experiment] {
    experiment::ALL
}
