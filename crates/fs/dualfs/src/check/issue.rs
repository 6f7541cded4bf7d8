//! What the checker can find.

use arbor_kit::conclude::Class;
pub(super) use arbor_kit::forest::TreeIssue;
pub(super) use arbor_kit::issue::Node;

arbor_kit::judged!(Issue: CheckpointUseless, IfileLost, MapLost, InodeDamaged, Pointers, DataDamaged, Duplicate, Xattr);

arbor_kit::issues! {
    pub(crate) enum Issue: Tree(TreeIssue);
    SuperDamaged { why: String } Error Damage "the superblock is damaged: {why}; its copy is used";
    SuperLost { why: String } Fatal Damage "there is no usable superblock: {why}";
    SuperCopy { at: u64 } Error Safe "the superblock's copy at byte {at} is damaged or differs";
    CheckpointDamaged { at: u64 } Error Safe "the checkpoint at byte {at} is damaged; the other one is used";
    DataHead { at: u64 } Error Safe
        "the head of the data device at byte {at} is damaged or of another time; the other one is used";
    CheckpointUseless { why: String } Error Damage "the newest checkpoint cannot be used: {why}; the one before it is";
    CheckpointLost { why: String } Fatal Damage "there is no usable checkpoint: {why}, and no summary of the log";
    IfileLost { why: String } Error Damage
        "no checkpoint leads to the ifile: {why}; what the summaries of the log say of inodes is used";
    IfileBlock { what: &'static str, why: String } Error Damage "the ifile, {what}: {why}; it is made anew";
    MapLost { first: u32, count: u32, why: String } Error Damage
        "the ifile: the map of {count} inodes from {first} on is lost: {why}; what the summaries of the log say is used";
    BitmapFree { group: u32, count: u32, first: u32 } Error Damage
        "group {group}: {count} data blocks in use are marked free, the first is {first}";
    BitmapUsed { group: u32, count: u32, first: u32 } Error Safe
        "group {group}: {count} free data blocks are marked in use, the first is {first}";
    Descriptor { group: u32, what: &'static str, found: u32, expected: u32 } Error Safe
        "group {group} counts {found} {what}, there are {expected}";
    Usage { seg: u32, found: u32, expected: u32 } Error Safe
        "segment {seg} counts {found} live bytes, there are {expected}";
    Count { what: &'static str, found: u32, expected: u32 } Error Safe "the state counts {found} {what}, there are {expected}";
    FreeList { why: String } Error Safe "the list of free inodes: {why}; it is made anew";
    InodeDamaged { ino: Node, why: String } Error Damage "inode {ino} is damaged beyond use: {why}";
    Pointers { ino: Node, count: u64, block: u32, why: &'static str } Error Damage
        "inode {ino}: {count} bad pointers, the first leads to block {block}, which {why}";
    DataDamaged { ino: Node, count: u64, lbn: u64, at: String } Error Damage
        "inode {ino}: blocks with a wrong checksum, holes once it is repaired: {count}, the first, block {lbn}, {at}";
    BeyondSize { ino: Node, count: u64 } Error Safe "inode {ino} has {count} blocks after its end";
    /// Another file was read first.
    Duplicate { ino: Node, block: u32 } Error Damage "inode {ino}: block {block} belongs to another file already";
    Xattr { ino: Node, why: String } Error Damage "attributes of inode {ino}: {why}";
    BlockCount { ino: Node, what: &'static str, found: u32, expected: u32 } Error Safe
        "inode {ino} counts {found} {what}, has {expected}";
    Orphans { ino: Node } Warning Safe "the list of inodes without names begins with {ino}";
    OrphanList { ino: Node, why: &'static str } Error Damage
        "the list of inodes without names leads to inode {ino}, which {why}";
}
