//! What the checker can find.

use arbor_kit::conclude::Class;
pub(super) use arbor_kit::forest::TreeIssue;
pub(super) use arbor_kit::issue::Node;

arbor_kit::judged!(Issue: InodeDamaged, Pointers, Duplicate, Xattr);

arbor_kit::issues! {
    pub(crate) enum Issue: Tree(TreeIssue);
    SuperDamaged { why: String, from: &'static str } Error Damage "the superblock is damaged: {why}; {from}";
    SuperLost { why: String } Fatal Damage "there is no usable superblock: {why}";
    SuperCopy { at: u64 } Error Safe "the superblock's copy at byte {at} is damaged or differs";
    /// Inodes or blocks that are there, and that the superblock does not know of.
    End { what: &'static str, found: u32, expected: u32 } Error Damage
        "the superblock says that {found} {what} were ever in use, there are {expected}";
    Count { what: &'static str, found: u32, expected: u32 } Error Safe
        "the superblock counts {found} free {what}, there are {expected}";
    Bitmap { what: &'static str, at: u64, why: String } Error Damage "bitmap of {what} at byte {at}: {why}; it is made anew";
    /// Dangerous: they could be given away.
    MarkedFree { what: &'static str, count: u32, first: u32 } Error Damage
        "{count} {what} in use are marked free, the first is {first}";
    MarkedUsed { what: &'static str, count: u32, first: u32 } Error Safe
        "{count} free {what} are marked in use, the first is {first}";
    InodeDamaged { ino: Node, why: String } Error Damage "inode {ino} is damaged beyond use: {why}";
    Pointers { ino: Node, count: u64, block: u32, why: &'static str } Error Damage
        "inode {ino}: {count} bad pointers, the first leads to block {block}, which {why}";
    BeyondSize { ino: Node, count: u64 } Error Safe "inode {ino} has {count} blocks after its end";
    /// Another file was read first.
    Duplicate { ino: Node, block: u32 } Error Damage "inode {ino}: block {block} belongs to another file already";
    Xattr { ino: Node, why: String } Error Damage "attributes of inode {ino}: {why}";
    BlockCount { ino: Node, found: u32, expected: u32 } Error Safe "inode {ino} counts {found} blocks, has {expected}";
    Orphans { ino: Node } Warning Safe "the list of inodes without names begins with {ino}";
    OrphanList { ino: Node, why: &'static str } Error Damage
        "the list of inodes without names leads to inode {ino}, which {why}";
}
