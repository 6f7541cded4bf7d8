//! What the checker can find.

use arbor_base::vfs::Severity;
use arbor_kit::findings::Judged;
use arbor_kit::forest;
pub(super) use arbor_kit::forest::TreeIssue;
use arbor_kit::issue::Finding;
pub(super) use arbor_kit::issue::{Node, Paths};

/// The kind of an issue, which decides whether preening may repair it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// A number that can be counted again, something that is in use by mistake, or a structure of which there is another
    /// copy: nothing is lost.
    Count,
    /// Mending it may lose something, or show what is lost.
    Damage,
}

impl Class {
    fn of(issue: &TreeIssue) -> Class {
        if issue.class() == forest::Class::Count { Class::Count } else { Class::Damage }
    }
}

impl Judged for Issue {
    type Volume = ();
    const NAMED: usize = 10_000;

    fn is_safe(&self, _volume: &mut ()) -> bool {
        self.class() == Class::Count
    }

    /// No crash leaves an inode in use without a name.
    fn weight(&self, _volume: &()) -> Severity {
        if matches!(self, Issue::Tree(TreeIssue::Unnamed { .. })) { Severity::Error } else { self.severity() }
    }

    fn loses(&self) -> bool {
        use Issue::*;
        let files = matches!(self, LogEnd { .. } | IfileLost { .. } | IfileBlock { .. } | InodeDamaged { .. });
        let contents = matches!(self, BadPointers { .. } | Indirect { .. } | DataDamaged { .. } | Duplicate { .. });
        let names = match self {
            Tree(TreeIssue::TwoParents { .. }) => true,
            Tree(issue) => issue.loses(),
            issue => matches!(issue, DirBlock { .. }),
        };
        files || contents || names || matches!(self, InodeOlder { .. } | InodeSize { .. } | Xattr { .. })
    }
}

arbor_kit::issues! {
    pub(crate) enum Issue: Tree(TreeIssue);
    /// The superblock at byte 0 is damaged; its copy or its own fields serve instead.
    SuperDamaged { why: String, from: String } Error Damage "the superblock is damaged: {why}; {from}";
    /// There is no usable superblock.
    SuperLost { why: String } Fatal Damage "there is no usable superblock: {why}";
    SuperCopy { at: u64 } Error Count "the superblock's copy at byte {at} is damaged or differs";
    /// The other one serves, and what the log says after it.
    Checkpoint { at: u64, why: String } Error Count
        "the checkpoint at byte {at}: {why}; the other one is used, with the log that follows it";
    /// The newer checkpoint leads to no ifile, and a group before it is damaged.
    LogEnd { found: u64, expected: u64 } Error Damage
        "the log can be followed to group {found}, it went on to {expected}: what changed in between is lost";
    /// Neither checkpoint leads to it.
    IfileLost { why: String } Error Damage "the ifile is lost: {why}; what the summaries of the log say of inodes is used";
    IfileBlock { what: &'static str, lbn: u64, why: String } Error Damage
        "block {lbn} of the ifile, {what}: {why}; what the summaries of the log say is used";
    /// The log would be written over what lives.
    LogPlace { seg: u32, why: &'static str } Error Damage "the log does not go on in segment {seg}: {why}";
    InodeDamaged { ino: Node, at: u64, why: String } Error Damage "inode {ino} at byte {at} is damaged: {why}";
    /// Instead of a damaged one.
    InodeOlder { ino: Node, at: u64 } Error Damage "inode {ino}: an older state of it, at byte {at}, is used";
    InodeSize { ino: Node, found: u64, why: &'static str } Error Damage "inode {ino} has {found} bytes, {why}";
    BadPointers { ino: Node, count: u64, place: String, frag: u32, why: &'static str } Error Damage
        "inode {ino}: {count} bad pointers, the first, for {place}, leads to fragment {frag}, which {why}";
    Indirect { ino: Node, place: String, why: String } Error Damage "inode {ino}, {place}: {why}";
    DataDamaged { ino: Node, count: u64, place: String, at: u64 } Error Damage
        "inode {ino}: blocks with a wrong checksum, holes once it is repaired: {count}, the first, {place}, at byte {at}";
    BeyondSize { ino: Node, count: u64, place: String } Error Count
        "inode {ino}: {count} blocks after its end or for nothing, the first is {place}";
    /// Two owners; this one loses it.
    Duplicate { ino: Node, place: String, frag: u32, at: u64 } Error Damage
        "inode {ino}, {place}: fragment {frag} at byte {at} belongs to something else";
    Xattr { ino: Node, frag: u32, why: String } Error Damage "attributes of inode {ino}, fragment {frag}: {why}";
    FragCount { ino: Node, found: u64, expected: u64 } Error Count
        "inode {ino} counts {found} fragments, has {expected}";
    FreeList { ino: Node, why: &'static str } Error Count "the list of free inodes, at inode {ino}: {why}";
    /// Further ones of it are in use.
    MapEnd { found: u32, expected: u32 } Error Count
        "the inode map ends with {found} inodes, {expected} have been in use";
    InodeCount { found: u32, expected: u32 } Error Count "the volume counts {found} inodes in use, has {expected}";
    VolumeFrags { found: u64, expected: u64 } Error Count
        "the volume counts {found} fragments of files, their inodes count {expected}";
    OrphanList { ino: Node, why: &'static str } Error Count
        "the list of inodes without names, at inode {ino}: {why}";
    /// Only a volume that was not unmounted has some.
    Orphans { ino: Node } Warning Count "the list of inodes without names begins with {ino}, it should be empty";
    /// What can be read of it stays.
    DirBlock { ino: Node, offset: u64, at: u64 } Error Damage
        "directory {ino}, offset {offset}: the block at byte {at} has a wrong checksum";
    Usage { seg: u32, found: u32, expected: u64 } Error Count
        "segment {seg} counts {found} live bytes, has {expected}";
    /// The cleaner finds what lives by it.
    Summary { seg: u32 } Error Count
        "segment {seg}: its summaries do not name all that lives in it; that is written anew elsewhere";
}
