//! File systems of the kernel on a simulated disk.
//!
//! For each run this program starts itself again, with `lab disk --peer NAME`. That process shows the disk, attaches a
//! loop device to it, makes and mounts the file system, and takes orders on its standard input ([`orders`]). When the
//! input ends, for whatever reason, it takes everything off again ([`host`]); so nothing stays behind a run that was
//! interrupted. The workload runs here, under a limit of memory that the other process sets ([`limit`]).

mod host;
mod limit;
mod orders;
mod remote;

pub(super) use host::serve;
pub(super) use remote::start;
