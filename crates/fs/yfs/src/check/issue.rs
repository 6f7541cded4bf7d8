//! What the checker can find.

use arbor_base::vfs::Severity;
use std::fmt;

/// A name as people read it.
pub(crate) fn show(name: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(name))
}

macro_rules! issues {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* } $severity:ident $class:ident $text:literal;)*) => {
        /// One thing that the checker found.
        #[derive(Clone, Debug)]
        pub(crate) enum Issue {
            $($(#[$doc])* $name { $($field: $type),* },)*
        }

        impl Issue {
            /// Name for scripts.
            pub fn code(&self) -> &'static str {
                match self { $(Issue::$name { .. } => stringify!($name),)* }
            }

            /// How much it matters.
            pub fn severity(&self) -> Severity {
                match self { $(Issue::$name { .. } => Severity::$severity,)* }
            }

            /// Whether preening mends it: nothing can be lost by that.
            pub fn safe(&self) -> bool {
                match self { $(Issue::$name { .. } => Class::$class == Class::Safe,)* }
            }
        }

        impl fmt::Display for Issue {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $(Issue::$name { $($field),* } => write!(f, $text),)* }
            }
        }
    };
}

#[derive(PartialEq, Eq)]
enum Class {
    Safe,
    Ask,
}

issues! {
    /// The superblock at byte 0 is damaged; a copy or its own fields serve instead.
    SuperDamaged { why: String } Error Ask "the superblock is damaged ({why}); another copy is used";
    /// There is no usable superblock.
    SuperLost { why: String } Fatal Ask "there is no usable superblock: {why}";
    /// The copy in an AG is damaged.
    SuperCopy { ag: u32 } Error Safe "the superblock copy of AG {ag} is damaged";
    /// Both log anchors are damaged.
    LogAnchors { at: u64 } Error Ask "both log anchors at sector {at} are damaged: the log is lost";
    /// The log cannot be replayed.
    LogDamaged { why: String } Error Ask "the log cannot be replayed: {why}";
    GroupBlock { ag: u32, why: String } Error Ask "group block of AG {ag}: {why}";
    InodeBlock { ag: u32, why: String } Error Ask "inode block of AG {ag}: {why}";
    BitmapBlock { ag: u32, n: u32, why: String } Error Ask "bitmap block {n} of AG {ag}: {why}";
    ChunkTree { ag: u32, why: String } Error Ask "tree of inode chunks of AG {ag}: {why}";
    /// A record of a chunk tree names no chunk.
    ChunkRecord { ag: u32, chunk: u64, why: String } Error Ask "tree of inode chunks of AG {ag}: chunk {chunk} {why}";
    /// The scan of an AG found a chunk that the tree does not name.
    ChunkFound { ag: u32, chunk: u64 } Error Ask "AG {ag} has an inode chunk at {chunk} that its tree does not name";
    InodeDamaged { ino: u64, why: String } Error Ask "inode {ino} is damaged: {why}";
    /// Checksum wrong, everything else plausible.
    InodeChecksum { ino: u64 } Error Ask "inode {ino} has a wrong checksum; its contents may be damaged";
    FreeMask { ino: u64, state: &'static str } Error Safe "inode {ino} is {state}, its chunk's mask says otherwise";
    InodeField { ino: u64, field: &'static str, found: u64, expected: u64 } Error Ask
        "inode {ino}: field {field} is {found}, should be {expected}";
    FragCount { ino: u64, found: u64, expected: u64 } Error Safe "inode {ino} counts {found} fragments, has {expected}";
    MapTree { ino: u64, why: String } Error Ask "block tree of inode {ino}: {why}";
    Extent { ino: u64, key: u64, why: &'static str } Error Ask "inode {ino}: the extent at {key} {why}";
    CrossLinked { ino: u64, start: u64, len: u32 } Error Ask
        "inode {ino}: fragments {start} to {start}+{len} have another owner too";
    Symlink { ino: u64, why: String } Error Ask "symbolic link {ino}: {why}";
    Xattr { ino: u64, why: String } Error Ask "extended attributes of inode {ino}: {why}";
    DirBlock { ino: u64, at: u64, why: String } Error Ask "directory {ino}, block at fragment {at}: {why}";
    DirEntries { ino: u64, why: String } Error Ask "directory {ino}: {why}";
    EntryName { dir: u64, name: String } Error Ask "directory {dir}: {name} is no valid name";
    EntryTarget { dir: u64, name: String, ino: u64, why: &'static str } Error Ask
        "directory {dir}: entry {name} names inode {ino}, which {why}";
    EntryKind { dir: u64, name: String, ino: u64 } Error Safe
        "directory {dir}: entry {name} has not the file type of inode {ino}";
    DuplicateName { dir: u64, name: String } Error Ask "directory {dir} has the name {name} twice";
    Root { ino: u64, why: &'static str } Error Ask "the root directory, inode {ino}, {why}";
    DirLoop { ino: u64 } Error Ask "directory {ino} lies below itself";
    Parent { ino: u64, found: u64, expected: u64 } Error Ask
        "directory {ino} calls {found} its parent, it lies in {expected}";
    Unreachable { ino: u64, what: &'static str } Error Ask "{what} {ino} has no name";
    LinkCount { ino: u64, found: u32, expected: u32 } Error Safe "inode {ino} has link count {found}, should have {expected}";
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
    /// The list of issues was cut.
    Further { count: u64 } Error Ask "{count} further issues are not listed";
}
