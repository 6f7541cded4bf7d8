//! ReiserFS: names, files and attributes in one balanced tree (Hans Reiser, "Trees are fast", 1998).
//!
//! **Under construction**: there is the tree, with its keys, items and nodes, and no engine yet.
//!
//! There is no `mkfs.rs`, there is no `mount.rs`, there is no `alloc.rs`, there is no `file.rs`, there is no `dir.rs`, there
//! is no `ops.rs`, there is no `commit.rs`, there is no `recover.rs`, there is no `check.rs`, there is no `options.rs`, there
//! is no `describe.rs`, there is no `dump.rs`. There is no `inode.rs`, and none is to come: what others keep in inodes is the
//! stat data of an object, an item like others (`item.rs`).
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod format;
pub mod item;
pub mod node;
pub mod tree;
