//! Mechanisms shared by engines; none of them knows a disk format.

pub mod buddy;
pub mod flaws;
pub mod refs;
