//! What the checker can find.

use arbor_kit::findings::Judged;
pub(crate) use arbor_kit::issue::{Node, Paths, show};

impl Judged for Issue {
    type Volume = ();
    const NAMED: usize = usize::MAX;

    fn is_safe(&self, _volume: &mut ()) -> bool {
        self.class() == Class::Safe
    }

    fn loses(&self) -> bool {
        use Issue::*;
        let log = matches!(
            self,
            LogAnchors { .. } | LogDamaged { .. } | LogTime { .. } | LogGap { .. } | LogBlockLost { .. }
        );
        let inodes = matches!(self, InodeBlock { .. } | ChunkTree { .. } | ChunkRecord { .. } | InodeDamaged { .. });
        let contents =
            matches!(self, MapTree { .. } | Extent { .. } | CrossLinked { .. } | Symlink { .. } | Xattr { .. });
        let names = matches!(self, DirBlock { .. } | DirEntries { .. } | EntryName { .. } | EntryTarget { .. });
        log || inodes || contents || names || matches!(self, DuplicateName { .. } | Root { .. })
    }
}

/// What preening does with an issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// It mends it: nothing can be lost by that.
    Safe,
    /// It leaves it.
    Ask,
}

arbor_kit::issues! {
    pub(crate) enum Issue;
    /// The superblock at byte 0 is damaged; a copy or its own fields serve instead.
    SuperDamaged { why: String, from: String } Error Ask "the superblock is damaged: {why}; {from}";
    /// There is no usable superblock.
    SuperLost { why: String } Fatal Ask "there is no usable superblock: {why}";
    SuperCopy { at: u64 } Error Safe "the superblock copy at byte {at} is damaged or missing";
    /// Both log anchors are damaged.
    LogAnchors { at: u64 } Error Ask "both log anchors at sector {at} are damaged: the log is lost";
    /// What the right one holds is lost if it is not found.
    LogTime { why: String } Error Ask "volume and log are not of one time: {why}";
    /// Those after it count.
    LogGap { why: String } Error Ask "a record of the log is damaged: {why}";
    /// The log cannot be replayed.
    LogDamaged { why: String } Error Ask "the log cannot be replayed: {why}";
    /// It may be torn by the power loss, which the replay mends, or damaged, which it covers.
    LogBlock { at: u64 } Warning Safe
        "the metadata block at sector {at} had a wrong checksum before the log was replayed into it";
    LogBlockLost { at: u64 } Error Ask
        "the log has changes for a metadata block at sector {at}, where no such block is any more";
    GroupBlock { ag: u32, why: String } Error Ask "group block of AG {ag}: {why}";
    InodeBlock { ag: u32, why: String } Error Ask
        "inode block of AG {ag}: {why}; of its inodes those are left that a search finds";
    BitmapBlock { ag: u32, n: u32, why: String } Error Ask "bitmap block {n} of AG {ag}: {why}";
    ChunkTree { ag: u32, why: String } Error Ask "tree of inode chunks of AG {ag}: {why}";
    /// A record of a chunk tree names no chunk.
    ChunkRecord { ag: u32, chunk: u64, why: String } Error Ask "tree of inode chunks of AG {ag}: chunk {chunk} {why}";
    /// The scan of an AG found a chunk that the tree does not name.
    ChunkFound { ag: u32, chunk: u64 } Error Ask "AG {ag} has an inode chunk at {chunk} that its tree does not name";
    /// Nothing of it can be kept.
    InodeDamaged { ino: Node, why: String } Error Ask "inode {ino} is damaged beyond use: {why}";
    /// Its head was damaged, its contents are kept.
    InodeSalvaged { ino: Node, why: String } Error Ask "inode {ino} is damaged, its contents can be kept: {why}";
    /// Checksum wrong, everything else plausible.
    InodeChecksum { ino: Node, why: String } Error Ask "inode {ino} has a wrong checksum: {why}";
    FreeInode { ino: Node, why: String } Error Ask "free inode {ino} is damaged: {why}";
    FreeMask { ino: Node, state: &'static str } Error Safe "inode {ino} is {state}, its chunk's mask says otherwise";
    InodeField { ino: Node, field: &'static str, found: u64, expected: u64 } Error Ask
        "inode {ino}: field {field} is {found}, should be {expected}";
    FragCount { ino: Node, found: u64, expected: u64 } Error Safe "inode {ino} counts {found} fragments, has {expected}";
    MapTree { ino: Node, why: String } Error Ask "block tree of inode {ino}: {why}";
    Extent { ino: Node, key: u64, why: &'static str } Error Ask "inode {ino}: the extent at {key} {why}";
    CrossLinked { ino: Node, start: u64, len: u32 } Error Ask
        "inode {ino}: fragments {start} to {start}+{len} have another owner too";
    Symlink { ino: Node, why: String } Error Ask "symbolic link {ino}: {why}";
    Xattr { ino: Node, why: String } Error Ask "extended attributes of inode {ino}: {why}";
    DirBlocksFound { ino: Node, count: u64 } Error Ask
        "directory {ino}: nothing leads to {count} blocks that say they belong to it";
    ExtentsFound { ino: Node, count: u64 } Error Ask
        "inode {ino}: its tree does not lead to {count} extents that a node of it holds";
    DirBlock { ino: Node, at: u64, why: String } Error Ask "directory {ino}, block at fragment {at}: {why}";
    DirEntries { ino: Node, why: String } Error Ask "directory {ino}: {why}";
    EntryName { dir: Node, name: String } Error Ask "directory {dir}: {name} is no valid name";
    EntryTarget { dir: Node, name: String, ino: Node, why: &'static str } Error Ask
        "directory {dir}: entry {name} names inode {ino}, which {why}";
    EntryKind { dir: Node, name: String, ino: Node } Error Safe
        "directory {dir}: entry {name} has not the file type of inode {ino}";
    DuplicateName { dir: Node, name: String } Error Ask "directory {dir} has the name {name} twice";
    Root { ino: Node, why: &'static str } Error Ask "the root directory, inode {ino}, {why}";
    RootMoved { ino: Node, why: &'static str, found: Node } Error Ask
        "the root directory, inode {ino}, {why}; by its parent {found} is the root";
    DirLoop { ino: Node } Error Ask "directory {ino} lies below itself";
    Parent { ino: Node, found: Node, expected: Node } Error Ask
        "directory {ino} calls {found} its parent, it lies in {expected}";
    Unreachable { ino: Node, what: &'static str } Error Ask "{what} {ino} has no name in any directory";
    LinkCount { ino: Node, found: u32, expected: u32 } Error Safe "inode {ino} has link count {found}, should have {expected}";
    RecoveryList { ag: u32, why: String } Error Ask "inode recovery list of AG {ag}: {why}";
    /// Dangerous: the fragments could be given to another file.
    BitmapFree { ag: u32, frags: u32, first: u64 } Error Safe
        "AG {ag}: {frags} fragments in use are marked free, the first is {first}";
    BitmapUsed { ag: u32, frags: u32, first: u64 } Error Safe
        "AG {ag}: {frags} free fragments are marked in use, the first is {first}";
    FreeCount { ag: u32, found: u32, expected: u32 } Error Safe
        "AG {ag} counts {found} free fragments, has {expected}";
    DirCount { ag: u32, found: u32, expected: u32 } Error Safe "AG {ag} counts {found} directories, has {expected}";
    InodeCount { ag: u32, found: u32, expected: u32 } Error Safe "AG {ag} counts {found} inodes, has {expected}";
    FreeInodes { ag: u32, found: u32, expected: u32 } Error Safe
        "AG {ag} counts {found} free inodes, has {expected}";
    NoSpace { what: String } Error Ask "no space to repair {what}";
}
