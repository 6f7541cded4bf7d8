//! What the checker can find.

use arbor_kit::conclude::Class;
pub(super) use arbor_kit::forest::TreeIssue;
pub(super) use arbor_kit::issue::Node;

arbor_kit::judged!(Issue: MasterDamaged, InodesLost, InodeDamaged, Pointers, Duplicate, Xattr);

arbor_kit::issues! {
    pub(crate) enum Issue: Tree(TreeIssue);
    SuperDamaged { why: String } Error Damage "the superblock is damaged: {why}; its copy is used";
    SuperLost { why: String } Fatal Damage "there is no usable superblock: {why}";
    SuperCopy { at: u64 } Error Safe "the superblock's copy at byte {at} is damaged or differs";
    MasterDamaged { why: String, taken: u64 } Error Damage
        "the newest commit cannot be used as it is: {why}; commit {taken} is used, which a mount with -o ro,commit_at={taken} shows";
    MasterLost { why: String } Fatal Damage "there is no usable master block: {why}";
    Count { what: &'static str, found: u32, expected: u32 } Error Safe
        "the check-point counts {found} {what} in use, there are {expected}";
    Bitmap { what: &'static str, n: u32, why: String } Error Damage "block {n} of the bitmap of {what}: {why}; it is made anew";
    End { found: u32, expected: u32 } Error Damage
        "the check-point says that {found} inodes were ever in use, the ifile has {expected}";
    History { intact: u64, seq: u64 } Error Safe
        "the check-point says that commits from {intact} on are there, not all before {seq} are; older ones are given up";
    SpecialSize { ino: Node, found: u64, expected: u64 } Error Safe
        "inode {ino}, of the volume itself, has {found} bytes, should have {expected}";
    InodesLost { n: u32, why: String } Error Damage "block {n} of the ifile, with 16 inodes, is lost: {why}";
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
