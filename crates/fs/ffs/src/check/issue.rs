//! The issues that the checker can find.

use crate::format::Keeping;
use arbor_base::vfs::Severity;
use arbor_kit::findings::Judged;
use arbor_kit::forest;
pub(super) use arbor_kit::forest::TreeIssue;
use arbor_kit::issue::Finding;
pub(super) use arbor_kit::issue::{Node, Paths, show};

/// Where an issue comes from, and so whether preening may mend it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Something that is in use by mistake, or a number that can be counted again: any crash may leave it.
    Leak,
    /// Something that is written late unless updates are ordered: a crash without soft updates may leave it.
    Late,
    /// No crash leaves it, unless nothing is ordered; mending it may lose something.
    Damage,
}

impl Class {
    fn of(issue: &TreeIssue) -> Class {
        match issue {
            TreeIssue::LinkCount { found, expected, .. } if found < expected => Class::Late,
            issue if issue.class() == forest::Class::Damage => Class::Damage,
            _ => Class::Leak,
        }
    }
}

/// The facts of a volume by which its issues are judged.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub keeping: Keeping,
    /// The volume says that it was unmounted.
    pub was_clean: bool,
    /// Something was found that no crash leaves.
    pub damaged: bool,
}

impl Judged for Issue {
    type Volume = Kept;
    const NAMED: usize = 10_000;

    fn is_safe(&self, kept: &mut Kept) -> bool {
        kept.damaged |= self.class() == Class::Damage;
        match self.class() {
            Class::Leak => true,
            Class::Late => matches!(kept.keeping, Keeping::Sync | Keeping::Async),
            Class::Damage => false,
        }
    }

    /// Remains of a crash are errors on a volume that was unmounted, and on one with a journal, except files that were
    /// in use without a name, and a tail that was being written.
    fn weight(&self, kept: &Kept) -> Severity {
        use Issue::*;
        let left = matches!(self, Tree(TreeIssue::Unnamed { .. }) | Orphans { .. } | JournalTailCopy { .. });
        let wrong = kept.was_clean || kept.keeping == Keeping::Journal && !left;
        match self {
            _ if wrong => self.severity().max(Severity::Error),
            Tree(TreeIssue::LinkCount { found, expected, .. }) if found > expected => Severity::Warning,
            _ => self.severity(),
        }
    }

    fn loses(&self) -> bool {
        use Issue::*;
        let files = matches!(
            self,
            JournalTail { .. } | JournalGap { .. } | GroupHeader { .. } | InodeDamaged { .. } | InodeSize { .. }
        );
        let contents = matches!(self, BadPointers { .. } | BadIndirect { .. } | Duplicate { .. } | OwnSpace { .. });
        let names = matches!(self, Tree(issue) if issue.loses());
        files || contents || names || matches!(self, Xattr { .. })
    }
}

arbor_kit::issues! {
    pub(crate) enum Issue: Tree(TreeIssue);
    /// The superblock at byte 0 is damaged; a copy or its own fields serve instead.
    SuperDamaged { why: String, from: String } Error Damage "the superblock is damaged: {why}; {from}";
    /// There is no usable superblock.
    SuperLost { why: String } Fatal Damage "there is no usable superblock: {why}";
    /// Where the journal begins; without it nobody knows which of its transactions count.
    JournalTail { at: u64 } Error Damage "the journal's tail at byte {at} is damaged, what the journal held is lost";
    /// What is sound of it counts.
    JournalGap { why: String } Error Damage "a transaction of the journal is damaged: {why}";
    /// The tail is there twice; a write of it that was cut off may have left anything.
    JournalTailCopy { at: u64 } Warning Leak
        "the first of the journal's two tails, at byte {at}, is damaged, the other one is used";
    SuperCopy { cgx: u32, at: u64 } Error Leak
        "the superblock copy of group {cgx} at byte {at} is damaged or differs";
    GroupHeader { cgx: u32, at: u64, why: &'static str } Error Damage
        "header of group {cgx} at byte {at}: {why}; of its inodes those are left that a search finds";
    /// A sector of a bitmap is damaged: what it says is counted again.
    GroupBitmap { cgx: u32, sector: u64, at: u64 } Error Damage
        "group {cgx}: sector {sector} of its bitmaps, at byte {at}, has a wrong checksum";
    /// Bits that stand for nothing, or unused sectors.
    GroupTail { cgx: u32 } Error Damage "group {cgx}: bits of its bitmaps that stand for nothing are set wrong";
    /// How many inodes are initialised.
    Inited { cgx: u32, found: u32, expected: u32 } Error Late
        "group {cgx} calls {found} inodes initialised, {expected} are";
    GroupCount { cgx: u32, what: &'static str, found: u32, expected: u32 } Warning Leak
        "group {cgx} counts {found} {what}, has {expected}";
    Rotor { cgx: u32, found: u32 } Warning Leak "group {cgx}: a search ended at {found}, which is outside of it";
    /// Dangerous: they could be given away.
    FragsFree { cgx: u32, count: u32, first: u32 } Error Late
        "group {cgx}: {count} fragments in use are marked free, the first is {first}";
    FragsUsed { cgx: u32, count: u32, first: u32 } Warning Leak
        "group {cgx}: {count} free fragments are marked in use, the first is {first}";
    InodesFree { cgx: u32, count: u32, first: Node } Error Late
        "group {cgx}: {count} inodes in use are marked free, the first is {first}";
    InodesUsed { cgx: u32, count: u32, first: Node } Warning Leak
        "group {cgx}: {count} free inodes are marked in use, the first is {first}";
    /// Only a clean volume has one.
    Summary { at: u64 } Warning Leak "the summary area at byte {at} differs from the cylinder groups";
    /// A clean volume has no such list.
    Orphans { ino: Node } Warning Leak "the list of inodes without names begins with {ino}, it should be empty";
    /// What the journal of a volume that was not unmounted does not leave: one of its transactions is lost.
    OrphanList { ino: Node, why: &'static str } Error Damage
        "the list of inodes without names leads to inode {ino}, which {why}";
    /// Its checksum says which byte it was.
    InodeByte { ino: Node, at: u64, byte: u32 } Error Damage
        "inode {ino} at byte {at}: byte {byte} of it is wrong, its checksum tells what it was";
    InodeDamaged { ino: Node, at: u64, why: &'static str } Error Damage
        "inode {ino} at byte {at} is damaged beyond use: {why}";
    InodeSize { ino: Node, found: u64, why: &'static str } Error Damage "inode {ino} has {found} bytes, {why}";
    BadPointers { ino: Node, count: u64, lbn: u64, frag: u32, why: &'static str } Error Damage
        "inode {ino}: {count} bad pointers, the first, for block {lbn}, leads to fragment {frag}, which {why}";
    /// An indirect block that holds something else.
    BadIndirect { ino: Node, lbn: u64, frag: u32, at: u64 } Error Damage
        "inode {ino}: the indirect block for block {lbn}, fragment {frag} at byte {at}, holds no pointers";
    /// The size of a file that grew may be written later than its indirect blocks.
    BeyondSize { ino: Node, count: u64, lbn: u64, frag: u32 } Warning Leak
        "inode {ino}: {count} blocks after its end, the first is block {lbn} at fragment {frag}";
    /// Two owners; the one named first loses it.
    Duplicate { ino: Node, frag: u32, at: u64, owner: Node } Error Damage
        "inode {ino}: fragment {frag} at byte {at} belongs to inode {owner} already";
    /// The other owner is the volume itself.
    OwnSpace { ino: Node, frag: u32, at: u64 } Error Damage
        "inode {ino}: fragment {frag} at byte {at} belongs to the summary area or the journal";
    Xattr { ino: Node, frag: u32, at: u64, why: &'static str } Error Damage
        "attributes of inode {ino}, fragment {frag} at byte {at}: {why}";
    FragCount { ino: Node, found: u32, expected: u32 } Warning Leak
        "inode {ino} counts {found} fragments, has {expected}";
    /// A repair was cut off between the name and the inode.
    LostFound { ino: Node } Error Late "the entry \"lost+found\" names inode {ino}, which is not in use";
}
