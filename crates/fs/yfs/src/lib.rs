//! yFS, a journaling file system (Zhang and Ghose, FAST 2003).

pub mod btree;
