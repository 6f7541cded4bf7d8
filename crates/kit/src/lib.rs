//! What engines share, and what is no engine's design. This crate knows no engine, and only engines use it.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod anatomy;
pub mod buddy;
pub mod calls;
pub mod chunkdir;
pub mod dirent;
pub mod findings;
pub mod flaws;
pub mod forest;
pub mod health;
pub mod issue;
pub mod lifetimes;
pub mod locked;
pub mod mend;
pub mod namespace;
pub mod paths;
pub mod reads;
pub mod refs;
pub mod runs;
pub mod served;
pub mod treecheck;
pub mod watch;
pub mod xattr;

/// For the macros.
#[doc(hidden)]
pub use arbor_base::vfs;
