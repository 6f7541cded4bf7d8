//! Code that engines share, and that is not part of an engine's design. It knows no engine, and only engines use it.
//!
//! A call enters by [`served`], which does what is the same in all engines; [`calls`] runs it on the state in core,
//! [`locked`] does so for volumes with one lock. Names follow the rules of [`namespace`]; [`lifetimes`] decides when
//! inodes are freed, and [`atomicnames`] makes the changes of names of one call; files of blocks are [`blockfile`] over
//! [`blockmap`], directories of chunks [`chunkdir`], their changes [`chunknames`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod atomicnames;
pub mod blockfile;
pub mod blockmap;
pub mod buddy;
pub mod calls;
pub mod chunkdir;
pub mod chunknames;
pub mod chunkrepair;
pub mod conclude;
pub mod counters;
pub mod data;
pub mod dirent;
pub mod dump;
pub mod ends;
pub mod fields;
pub mod findings;
pub mod flaws;
pub mod forest;
pub mod fragments;
pub mod gaps;
pub mod growth;
pub mod head;
pub mod health;
pub mod inodes;
pub mod invariants;
pub mod issue;
pub mod lifetimes;
pub mod locked;
pub mod lostfound;
pub mod machine;
pub mod namespace;
pub mod options;
pub mod pagecheck;
pub mod paths;
pub mod reads;
pub mod refs;
pub mod resize;
pub mod rollforward;
pub mod rooms;
pub mod runs;
pub mod segments;
pub mod served;
pub mod stamp;
pub mod structures;
pub mod treecheck;
pub mod usage;
pub mod xattr;

/// For the macros.
#[doc(hidden)]
pub use arbor_base::{device, vfs};
