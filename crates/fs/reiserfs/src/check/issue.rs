//! What the checker can find.

use arbor_base::vfs::Severity;
use arbor_kit::conclude::{Class, Kept};
use arbor_kit::findings::Judged;
pub(super) use arbor_kit::forest::TreeIssue;
use arbor_kit::issue::Finding;
pub(super) use arbor_kit::issue::Node;

impl Judged for Issue {
    type Volume = Kept;
    const NAMED: usize = 10_000;

    fn is_safe(&self, _kept: &mut Kept) -> bool {
        self.class() == Class::Safe
    }

    fn weight(&self, kept: &Kept) -> Severity {
        let left = matches!(self, Issue::Tree(TreeIssue::Unnamed { .. }) | Issue::Orphans { .. });
        kept.weight(left, self.severity())
    }

    fn loses(&self) -> bool {
        use Issue::*;
        match self {
            Tree(issue) => issue.loses(),
            issue => matches!(
                issue,
                Log { .. }
                    | LogGap { .. }
                    | LogRecord { .. }
                    | Damaged { .. }
                    | StatLost { .. }
                    | StatDamaged { .. }
                    | Items { .. }
                    | Pointers { .. }
                    | Duplicate { .. }
                    | TailLost { .. }
                    | EntryOffset { .. }
                    | Target { .. }
                    | Xattr { .. }
            ),
        }
    }
}

arbor_kit::issues! {
    pub(crate) enum Issue: Tree(TreeIssue);
    SuperDamaged { why: String, from: &'static str } Error Damage "the superblock is damaged: {why}; {from}";
    SuperLost { why: String } Fatal Damage "there is no usable superblock: {why}";
    SuperCopy { at: u64 } Error Safe "the superblock's copy at byte {at} is damaged or differs";
    /// What its records held and was not in place is lost, if it is emptied.
    Log { why: String, then: &'static str } Error Damage "the head of the log is damaged: {why}; {then}";
    /// What is sound by itself in it counts.
    LogGap { why: String } Error Damage "a record of the log is damaged: {why}";
    /// A node of the tree.
    Damaged { at: u64, level: u32, why: String } Error Damage
        "the node at byte {at}, on level {level} of the tree, cannot be used: {why}; the tree is built anew";
    /// Formatted nodes were found, and this is what became of them.
    Rebuilt { leaves: u64, left: u64 } Error Damage
        "the tree was built anew from {leaves} formatted nodes; {left} others that overlap newer ones were left out";
    /// The records count, but for that.
    LogRecord { why: String } Error Damage "the superblock in the log cannot be used: {why}; the one in place is used";
    LogHead { at: u64 } Error Safe "the head of the log at byte {at} is damaged, the other one is sound";
    StatLost { ino: Node, then: &'static str } Error Damage "object {ino} has no stat data; {then}";
    StatDamaged { ino: Node, why: String, then: &'static str } Error Damage "stat data of object {ino}: {why}; {then}";
    Items { ino: Node, count: u64, why: &'static str } Error Damage "object {ino}: {count} items {why}";
    Pointers { ino: Node, count: u64, block: u32, why: &'static str } Error Damage
        "object {ino}: {count} bad pointers, the first leads to block {block}, which {why}";
    BeyondSize { ino: Node, count: u64 } Error Safe "object {ino} has {count} blocks after its end";
    /// Another file was read first.
    Duplicate { ino: Node, block: u32 } Error Damage "object {ino}: block {block} belongs to another file already";
    TailLost { ino: Node, found: u64, expected: u64 } Error Damage
        "object {ino}: direct items hold {found} bytes of it, stat data say {expected}; the others are lost";
    Used { ino: Node, found: u32, expected: u32 } Error Safe
        "object {ino}: of its last unformatted node {found} bytes are said to be in use, it is {expected}";
    BlockCount { ino: Node, found: u32, expected: u32 } Error Safe "object {ino} counts {found} blocks, has {expected}";
    DirSize { ino: Node, found: u64, expected: u64 } Error Safe
        "directory {ino} says that it has {found} bytes, has {expected}";
    EntryOffset { dir: Node, name: String } Error Damage
        "directory {dir}: entry {name} does not lie where its name belongs";
    Target { ino: Node, why: String } Error Damage "object {ino} is a symbolic link without a target: {why}";
    Xattr { ino: Node, why: &'static str } Error Damage "attributes of object {ino} {why}";
    Ids { why: String } Error Safe "the map of object numbers is damaged: {why}";
    /// Dangerous: they could be given away.
    IdsFree { count: u64, first: u32 } Error Damage
        "{count} object numbers in use are marked free, the first is {first}";
    SameNumber { ino: Node, number: u32 } Error Safe
        "object {ino} has the number {number}, which another one has; it gets a new one";
    Bitmap { at: u64, why: String } Error Safe "the bitmap at byte {at}: {why}; it is made anew";
    Bitmaps { found: u32, expected: u32 } Error Damage "the superblock says that there are {found} bitmaps, there are {expected}";
    Count { found: u32, expected: u32 } Error Safe "the superblock counts {found} free blocks, there are {expected}";
    /// Dangerous: they could be given away.
    MarkedFree { count: u32, first: u32 } Error Damage "{count} blocks in use are marked free, the first is {first}";
    MarkedUsed { count: u32, first: u32 } Error Safe "{count} free blocks are marked in use, the first is {first}";
    MarkedOther { count: u32, first: u32 } Error Safe
        "{count} blocks are marked as nodes of the tree and are none, or the other way round, the first is {first}";
    Orphans { ino: Node } Warning Safe "the list of objects without names begins with {ino}";
    OrphanList { ino: Node, why: &'static str } Error Damage
        "the list of objects without names leads to object {ino}, which {why}";
}
