//! File systems in one file, used as a library: in the manner of [`std::fs`], without a mount,
//! without FUSE, without being root.
//!
//! ```
//! # fn main() -> std::io::Result<()> {
//! # if arboretum::engines().is_empty() { return Ok(()) }
//! # let dir = tempfile::tempdir()?;
//! # let image = dir.path().join("photos.img");
//! use arboretum::Volume;
//! use std::io::Write;
//!
//! // 1 GiB that takes no space until something is in it.
//! let volume = Volume::format(&image, 1 << 30)?;
//! volume.create_dir_all("2024/summer")?;
//! volume.write("2024/summer/notes.txt", "sea, sun\n")?;
//! volume.create("2024/log")?.write_all(b"first line\n")?;
//! volume.symlink("2024/summer", "best")?;
//! volume.close()?;
//!
//! let volume = Volume::open_read_only(&image)?;
//! assert_eq!(volume.read("best/notes.txt")?, b"sea, sun\n");
//! for step in volume.walk("/")? {
//!     let step = step?;
//!     println!("{:width$}{}", "", step.entry.path().display(), width = 2 * step.depth);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Trees go in and out as they are ([`Volume::copy_in`], [`Volume::copy_out`]; privileges come out only
//! when [asked for](CopyOptions::keep_privileges)) or as tar archives
//! ([`Volume::import_tar`], [`Volume::export_tar`]). A volume may lie in memory
//! ([`Volume::in_memory`]), inside a larger file ([`VolumeOptions::offset`]) or on a device of
//! yours ([`Volume::on_device`]).
//!
//! ```
//! # fn main() -> std::io::Result<()> {
//! # if arboretum::engines().is_empty() { return Ok(()) }
//! let volume = arboretum::Volume::in_memory(64 << 20)?;
//! volume.write("/a", "hello")?;
//! let mut archive = Vec::new();
//! volume.export_tar(&mut archive)?;
//!
//! let other = arboretum::Volume::in_memory(64 << 20)?;
//! other.import_tar(&archive[..])?;
//! assert_eq!(other.read("/a")?, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! # What is promised
//!
//! Nothing is durable before [`Volume::sync`], [`File::sync_all`] or [`Volume::close`] returns;
//! after a crash the volume opens in a state it has had. There is no background thread: the call
//! that changes something does, now and then, the work that has piled up. A [`Volume`] may be used
//! from several threads; one image has one owner at a time.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod archive;
mod children;
mod dir;
mod error;
mod file;
mod host;
mod meta;
mod node;
mod registry;
mod trail;
mod transfer;
mod volume;
mod way;

pub use dir::{DirEntry, ReadDir, Walk, WalkEntry};
pub use error::errno;
pub use file::{File, OpenOptions};
pub use meta::{FileTimes, Metadata};
pub use registry::{detect, engine, engines, examples, find, role, search};
pub use transfer::{CopyOptions, CopyStats, LeftOut};
pub use volume::{EXTRA_LEN, Volume, VolumeOptions};

pub use arbor_base::device;
pub use arbor_base::vfs;
