//! yFS, a journaling file system (Zhang and Ghose, FAST 2003).
