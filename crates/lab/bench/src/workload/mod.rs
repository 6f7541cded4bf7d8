//! Workloads: data that with a seed make a [`Program`](crate::op::Program).

pub mod aging;
pub mod archive;
pub mod postmark;
pub mod primitive;
pub mod source_tree;
pub mod tree;
