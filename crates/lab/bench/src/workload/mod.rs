//! Workloads: data that with a seed make a [`Program`](crate::op::Program).

pub mod aging;
pub mod archive;
pub mod banded;
pub mod file_size;
pub mod kernel_build;
pub mod kernel_trees;
pub mod overwrite;
pub mod postmark;
pub mod primitive;
pub mod source_tree;
pub mod synced;
pub mod tour;
pub mod tpcb;
pub mod tpcc;
pub mod tree;
pub mod turnover;
pub mod web;
