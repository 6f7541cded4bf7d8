//! The foundations of all engines. This crate knows no engine.
//!
//! * [`device`]: block devices, and what survives a power cut;
//! * [`layout`]: little-endian fields, checksums and [`layout::Corrupt`] errors;
//! * [`cache`]: the buffer cache for data and metadata;
//! * [`invariants`]: whether engines check their invariants after calls;
//! * [`sync`]: locks that a laboratory can schedule;
//! * [`vfs`]: the seams [`vfs::FileSystem`], [`vfs::Engine`] and [`vfs::Clock`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod cache;
pub mod device;
pub mod invariants;
pub mod layout;
pub mod sync;
pub mod vfs;
