//! The command line of `arbor lab`.

use super::size;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Arguments of `lab`.
#[derive(Clone, Debug, Args)]
#[command(disable_help_subcommand = true)]
pub struct LabArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: LabCommand,
}

/// A command of `arbor lab`.
#[derive(Clone, Debug, Subcommand)]
pub enum LabCommand {
    /// List the experiments and the subjects they are run on.
    List(LabListArgs),
    /// List the simulated disks.
    Disks(LabDisksArgs),
    /// List the hosts: what the drivers do with requests, and what the processors take.
    Hosts(LabDisksArgs),
    /// Show a simulated disk as a file, for other programs.
    ///
    /// DIR shows one file, `disk`, until it is unmounted or the command is interrupted; then the statistics of the disk
    /// are printed. Nobody waits: a read moves the virtual clock to its completion, a write goes on beside it until a
    /// flush (fsync) waits for it. A disk without a write cache gets no flushes, and none are counted: what
    /// is complete is on the medium.
    Disk(Box<LabDiskArgs>),
    /// Run an experiment.
    ///
    /// Each subject, an engine with its options, runs on a simulated disk of its own. A file system of the kernel is run
    /// when it is named; that needs root, loop devices, /dev/fuse and its mkfs. Times are virtual: what the
    /// disk and the charges of the processor take; the same seed gives the same figures. Ratios are the figure of the
    /// reference over that of the subject; one "holds" if it is on the same side of 1 as the paper's and within a
    /// factor of 1.5 of it. A dash stands where one of the two figures is too small for a ratio.
    ///
    /// An experiment of the paper's size takes from half a minute to some minutes with all engines. An interrupt ends
    /// it; subjects that are complete are reported.
    Run(Box<LabRunArgs>),
    /// Replay a trace of requests on simulated disks.
    ///
    /// TRACE is what `arbor lab run --trace-out` or `arbor lab disk --trace` wrote, the output of blkparse(1), a log of
    /// fio(1) (`write_iolog`, version 2 or 3) or a trace of MSR Cambridge; "-" is the standard input. It is read once,
    /// and all disks get its requests: at the times of the trace, or with --closed each when one before it is complete.
    /// Latencies are from the issue of a request to its completion. The column "in the trace" is what the trace says of
    /// the device that it was taken from, if it has completions.
    Replay(Box<LabReplayArgs>),
}

/// Arguments of `lab list`.
#[derive(Clone, Debug, Args)]
pub struct LabListArgs {
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `lab disks` and `lab hosts`.
#[derive(Clone, Debug, Args)]
pub struct LabDisksArgs {
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `lab disk`.
#[derive(Clone, Debug, Args)]
pub struct LabDiskArgs {
    /// Model of the disk; `arbor lab disks` lists them.
    #[arg(short, long, value_name = "DISK", default_value = "st39140")]
    pub model: String,
    /// Size of the file, with K, M, G or T [default: the disk's capacity].
    #[arg(short, long, value_parser = size)]
    pub size: Option<u64>,
    /// Writes all requests with their times to this file at the end.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Keeps the bytes in this file, which is made if it is missing, and not in memory.
    #[arg(long, value_name = "IMAGE")]
    pub keep: Option<PathBuf>,
    /// The driver's queue.
    #[command(flatten)]
    pub queue: QueueArgs,
    /// Statistics as JSON.
    #[arg(long)]
    pub json: bool,
    /// Mounts this file system of the kernel on the disk, in DIR, and takes orders on the standard input.
    #[arg(long, hide = true, value_name = "NAME")]
    pub peer: Option<String>,
    /// Memory of the kernel for that, bytes.
    #[arg(long, hide = true, default_value_t = 128 << 20)]
    pub memory: u64,
    /// How much of that memory may be dirty, bytes.
    #[arg(long, hide = true, default_value_t = 6240 << 10)]
    pub dirty: u64,
    /// Whether the kernel keeps all access times for that.
    #[arg(long, hide = true)]
    pub access_times: bool,
    /// Directory that shows the disk; it is made if it is missing.
    pub dir: PathBuf,
}

/// Arguments of `lab run`.
#[derive(Clone, Debug, Args)]
pub struct LabRunArgs {
    /// Name of the experiment, or "all"; `arbor lab list` lists them.
    pub experiment: String,
    /// These subjects, or file systems of the kernel, in the place of the paper's; `arbor lab list` lists them. Or one
    /// more: NAME, which is ENGINE with options of mkfs and of mount, either of which may be missing; for a further
    /// device, such as `log`, give its size. All its rows say so.
    #[arg(short, long = "subject", value_name = "NAME,...|NAME=ENGINE:OPTIONS:OPTIONS")]
    pub subjects: Vec<String>,
    /// One more subject: NAME, which is SUBJECT with further options of mount, or others.
    #[arg(long = "with", value_name = "NAME=SUBJECT:OPTIONS")]
    pub with: Vec<String>,
    /// Runs what is defined by --subject and --with without the paper's subjects.
    #[arg(long)]
    pub alone: bool,
    /// Only this case of the experiment; may be repeated. A name that is none is answered with those there are.
    #[arg(long = "case", value_name = "NAME")]
    pub cases: Vec<String>,
    /// Only subjects of these engines.
    #[arg(short = 't', long = "engine", value_name = "ENGINE,...", value_delimiter = ',')]
    pub engines: Vec<String>,
    /// Simulated disk; `arbor lab disks` lists them [default: the paper's].
    #[arg(short, long, value_name = "DISK")]
    pub disk: Option<String>,
    /// Seed of the first run; further ones count up.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u32,
    /// Runs of each workload; figures are means.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: u32,
    /// Programs of each workload that run at the same time on one volume, each in a directory of its own; they share
    /// the disk and one processor.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub lanes: u32,
    /// Divides counts of files and operations, to try something out: small runs stay in memory. Unless it is 1 there
    /// are no figures of the paper.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub divisor: u32,
    /// Host, that is the driver and the processor; `arbor lab hosts` lists them [default: the paper's].
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
    /// Most buffers that are dirty before some are written, where an engine counts them [default: that of the host].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub dirty_buffers: Option<u32>,
    /// Virtual time that the processor takes for each call, in nanoseconds [default: that of the host].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    pub cpu_call_ns: Option<u64>,
    /// Virtual time that the processor takes for each KiB read or written, in nanoseconds [default: likewise].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    pub cpu_kib_ns: Option<u64>,
    /// Virtual time that the processor takes for each name compared, where an engine counts them, in nanoseconds
    /// [default: likewise].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    pub cpu_compare_ns: Option<u64>,
    /// The driver's queue.
    #[command(flatten)]
    pub queue: QueueArgs,
    /// Gives further figures of each part.
    #[arg(long, value_name = "WHAT,...", value_delimiter = ',')]
    pub also: Vec<Also>,
    /// Prints all figures; otherwise only the times.
    #[arg(long)]
    pub details: bool,
    /// Writes all figures to this file as JSON, each with the settings that it was measured with.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Writes tables and pictures to this file, a page that needs nothing else.
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Writes tables as Markdown, pictures as SVG and the rows into this directory, which is made if it is not there.
    #[arg(long, value_name = "DIR")]
    pub figures: Option<PathBuf>,
    /// Writes all requests to the disk of the first run to this file, with their times, in the format that
    /// `arbor lab replay` reads. Of several experiments, subjects or cases each has a file, with what it is of before the
    /// extension.
    #[arg(long, value_name = "FILE")]
    pub trace_out: Option<PathBuf>,
    /// Adds figures of these files, written by --json with the same settings, and compares them with the others; there may be
    /// fewer runs, or cases. Of a subject that is run, none are taken.
    #[arg(long, value_name = "FILE.json")]
    pub rows: Vec<PathBuf>,
}

/// Arguments of `lab replay`.
#[derive(Clone, Debug, Args)]
pub struct LabReplayArgs {
    /// The trace.
    pub trace: PathBuf,
    /// Simulated disks; `arbor lab disks` lists them.
    #[arg(short, long = "disk", value_name = "DISK,...", required = true, value_delimiter = ',')]
    pub disks: Vec<String>,
    /// Who wrote the trace [default: what its first line says].
    #[arg(short, long, value_name = "FORMAT")]
    pub format: Option<TraceSource>,
    /// Whatever the times of the trace: the next request is issued when one that is under way is complete.
    #[arg(long)]
    pub closed: bool,
    /// How many requests are under way then.
    #[arg(long, value_name = "N", requires = "closed", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub depth: u32,
    /// Offsets past the end of a disk go on at its beginning; otherwise they are errors.
    #[arg(long)]
    pub wrap: bool,
    /// The driver's queue.
    #[command(flatten)]
    pub queue: QueueArgs,
    /// As JSON, with times in nanoseconds.
    #[arg(long)]
    pub json: bool,
}

/// Who wrote a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TraceSource {
    /// This laboratory.
    Arbor,
    /// blkparse, its default output.
    Blkparse,
    /// fio, by `write_iolog`.
    Fio,
    /// Microsoft Research Cambridge, and whoever writes its CSV.
    Msr,
}

/// What is merged to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Merging {
    /// Whatever is adjacent, as in Linux.
    Adjacent,
    /// The blocks of one file that are in a row, as in FreeBSD 4; all else is written buffer by buffer.
    Buffers,
}

/// Figures that are given if somebody asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Also {
    /// How long calls take: median, 99%, 99.9% and largest. Not of file systems of the kernel.
    Latency,
    /// Bytes written by the file system for each byte of the program, and by the flash for each byte of the file system.
    Amplification,
    /// All counters of the engine, by name.
    Counters,
}

/// The driver's queue in front of the disk, and what of the disk can be switched. What is not given is as in
/// [`HostQueue`](arbor_simdisk::HostQueue).
#[derive(Clone, Debug, Args)]
pub struct QueueArgs {
    /// Order in which the driver hands requests to the disk.
    #[arg(long, value_name = "ORDER", default_value = "clook")]
    pub scheduler: QueueOrder,
    /// At most so many requests are with the disk at once; its own tags limit it too.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub queue_depth: Option<u32>,
    /// Adjacent requests are merged up to this size, larger ones split; 0: neither [default: 128K, or what the paper's
    /// controller took].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_transfer: Option<u64>,
    /// What is merged to one request [default: what the paper's host did].
    #[arg(long, value_name = "WHAT")]
    pub merge: Option<Merging>,
    /// Reads do not go before writes.
    #[arg(long)]
    pub no_prefer_reads: bool,
    /// A write is due after so many milliseconds [default: 5000].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    pub deadline_ms: Option<u64>,
    /// Writes that go in a row when they are due [default: 16].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub batch: Option<u32>,
    /// Size of a hard disk's write cache; 0: off [default: that of the disk].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub write_cache: Option<u64>,
    /// Requests that a hard disk takes at once [default: that of the disk].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub tags: Option<u32>,
}

/// An order of the driver's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum QueueOrder {
    /// One-way elevator.
    Clook,
    /// In the order of arrival.
    Fifo,
    /// The nearest address first.
    Sstf,
}
