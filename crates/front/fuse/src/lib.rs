//! Mounts any Arboretum file system by FUSE.
//!
//! This crate speaks the protocol of `/dev/fuse` itself and needs no libfuse. Its layers:
//!
//! | module | what it knows |
//! |---|---|
//! | [`options`] | what a mount is told |
//! | `session` | INIT, worker threads, background work, signals, the end |
//! | `seat` | which worker waits for `/dev/fuse` |
//! | `ring` | the workers of FUSE over io_uring |
//! | `interrupt` | which requests' callers got a signal |
//! | `serve` | one request, one call of [`FileSystem`](arbor_base::vfs::FileSystem), one reply |
//! | `offer` | the kernel's switch for io_uring |
//! | `caller` | who asks, where the kernel does not say |
//! | `fileattr` | file flags, the label, shutting down |
//! | `proto` | the structures of the protocol |
//! | `blockdev` | mounts of block devices, where syncfs(2) arrives |
//! | `kernel` | the mount table, by system call or `fusermount3` |
//! | `atime` | times of last access |
//! | `setid` | which set-id bits go with a change |
//! | `prompt` | the options `sync` and `dirsync` |
//! | `confine` | what the threads of a server give up |
//! | `follow` | where a worker runs that takes requests from `/dev/fuse` |
//! | `handover` | what the kernel keeps of a mount, for [`sync`] |
//! | `place` | where a mount lies, whatever its path leads to |
//! | `log` | where complaints go: standard error, or syslog |
//! | `record` | who serves which mount, for [`unmount`] |
//! | `hostile` | requests as no kernel sends them, for tests |
//! | `upkeep` | cleaning, scrubbing and trimming, asked of a mount |
//! | `sys` | what needs `unsafe`: ioctls, and the memory that the kernel writes requests to |
//!
//! Typical sequence:
//!
//! ```no_run
//! # fn open() -> std::sync::Arc<dyn arbor_base::vfs::FileSystem> { unimplemented!() }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use arbor_base::vfs::Options;
//! let (mut config, engine_options) = arbor_fuse::parse_options(&Options::parse("ro,threads=4"))?;
//! config.source = "/srv/a.img".into();
//! config.handle_signals = true;
//! let session = arbor_fuse::mount(open(), "/mnt".as_ref(), &config)?;
//! session.ready()?; // now the parent may be told
//! session.wait()?; // until umount(8), fusermount3 -u or SIGTERM
//! # Ok(())
//! # }
//! ```
//!
//! # What is asked of the kernel, and why
//!
//! Requests are what a FUSE file system pays for, so most of them are switched off: OPEN, OPENDIR,
//! CREATE (a MKNOD does it), FLUSH and ACCESS are answered with `ENOSYS` once; names, attributes
//! and missing names may be kept for a day, pages as long as there is room, because nobody else
//! changes the volume; directories are read with attributes; the kernel checks permissions
//! (`default_permissions`, always) and does file locks by itself.
//!
//! # Durability
//!
//! sync(2) and syncfs(2) do not reach a plain FUSE mount; they do reach one on a block device,
//! where root gets type `fuseblk`. **An fsync of the root directory syncs the whole file system** as the
//! server knows it, on every mount; [`sync`] has the kernel hand over before what it keeps. umount(2)
//! waits for the server only with `fuseblk`; [`unmount`] always does. The names are `fuse.arbor` and
//! `fuseblk.arbor`, with the image as source.
//!
//! # Locks
//!
//! A handler holds no lock of this crate and waits for no other request, so it can serve the
//! kernel's write-back of a page while another handler is stuck in the device. One lock is an exception: while a time
//! of last access is set by hand, or the file system is told of one, no other is. A panic in a
//! handler is answered with `EIO`, and service goes on.
//!
//! # Signals
//!
//! The file system below may ask [`interrupted`](arbor_base::vfs::interrupted) where it waits, and end a call
//! that has changed nothing with `EINTR`. That is so for every call of a process that a signal ends, and for
//! those that may take long (fsync, fallocate, copy_file_range) of one that runs a handler.
#![deny(unsafe_code)]
#![warn(missing_docs)]
#![cfg(target_os = "linux")]

mod atime;
mod caller;
mod counters;
mod fileattr;
mod follow;
mod host;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod hostile;
mod interrupt;
mod log;
pub mod options;
mod prompt;
mod proto;
mod ring;
mod seat;
mod serve;
mod session;
mod setid;
mod sys;
mod upkeep;

pub use atime::{Access, AccessTimes};
pub use counters::{Counters, STATS, Stats, stats};
pub use fileattr::{label, set_label, shutdown};
pub use host::confine::{MemoryLimit, confine_process};
pub use host::kernel::{MountEntry, clean_stale, mount_table, remount};
pub use host::record::{MountRecord, Unmounted, mounts, sync, unmount};
pub use log::{log_panics, log_to_syslog};
pub use options::{MountConfig, OPTIONS, Transport, parse_options};
pub use prompt::Promptly;
pub use session::{Session, Unmounter, mount};
pub use upkeep::{clean, scrub, trim};
