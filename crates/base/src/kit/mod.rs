//! Mechanisms shared by engines.

pub mod anatomy;
pub mod buddy;
pub mod chunkdir;
pub mod dirent;
pub mod flaws;
pub mod issue;
pub mod mend;
pub mod refs;
pub mod runs;
pub mod watch;
pub mod xattr;
