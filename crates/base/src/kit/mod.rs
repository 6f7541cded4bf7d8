//! Mechanisms shared by engines.

pub mod buddy;
pub mod chunkdir;
pub mod dirent;
pub mod flaws;
pub mod refs;
