//! Deliberate mistakes, to see whether the tests find them. Without the feature `planted`, which only
//! `tests/planted.rs` turns on, all of this is nothing at run time.

arbor_kit::flaws! {
    /// A new name does not wait for its inode (against FFS-C1).
    /// Trips FFS-C1.
    NameBeforeInode,
    /// A link count falls before the name is gone from the disk (against FFS-C2).
    /// Not seen in core: nothing waits, and nothing is counted.
    DropBeforeName,
    /// A new inode does not wait for its bit (against FFS-C3).
    /// Trips FFS-C3.
    InodeBeforeBit,
    /// A pointer does not wait for the bits of its fragments (against FFS-C3).
    /// Trips FFS-C3.
    PointerBeforeBits,
    /// A pointer does not wait for its block (against FFS-C4).
    /// Trips FFS-C4.
    PointerBeforeBlock,
    /// Fragments are free before the pointer to them is cleared on disk (against FFS-C3).
    /// Not seen in core: nothing waits.
    FragmentsTooEarly,
    /// The old name of a rename does not wait for the new one.
    OldNameFirst,
    /// An exchange does not wait for what waits for the names that it exchanges.
    NamesUnsettled,
    /// The bytes of entries are not rolled back.
    EntryNotRolledBack,
    /// A name counts as on disk before the pointer to its block is (against FFS-C6).
    /// Not seen in core: nothing waits for its parent pointer.
    NamesUnreached,
    /// A file takes the name of another before its data are on disk (against FFS-C7).
    /// Not seen in core: which data the file had nobody knows after the call.
    ReplacedBeforeData,
    /// A replaced entry does not wait for a newer name of its inode.
    ReplacedUnnamed,
    /// A new name vanishes that an older one waits for.
    VanishedAwaited,
    /// A directory goes with names that files outside wait for.
    DirectoryTakes,
    /// Directories move below others that cannot be reached from the root on disk yet.
    WaysUnsettled,
    /// A change of an entry is undone though a later one of it is not.
    OlderRolledBack,
    /// A pointer is rolled back, but the size of its inode is not, or to one that the file no longer has.
    SizeNotRolledBack,
    /// What a power cut left past the end of a file shows when it grows (against FFS-C4).
    /// Not seen in core: no page differs.
    TailShown,
    /// A group does not wait for the block that its inode table grows by.
    TableBeforeBlock,
    /// fsync does not see to the names of a file.
    SyncForgetsNames,
    /// A name is written before its inode (sync, against FFS-C1).
    /// Not seen in core: the writes are over when the call is.
    SyncNameFirst,
    /// A link count falls before the name is gone from the disk (sync, against FFS-C2).
    /// Not seen in core: the writes are over when the call is.
    SyncDropFirst,
    /// Fragments are free before the pointer to them is cleared on disk (sync, against FFS-C3).
    /// Not seen in core: the writes are over when the call is.
    SyncFreeFirst,
    /// An indirect block or a directory's block is not written before the pointer to it (sync, against FFS-C4).
    /// Not seen in core: the writes are over when the call is.
    SyncPointerFirst,
    /// A commit does not wait for the transaction to be on disk.
    CommitUnflushed,
    /// A transaction is committed before its data are written.
    CommitBeforeData,
    /// Replay believes a transaction without its commit fragment.
    HalfBelieved,
    /// Replay believes copies whose checksum is wrong.
    TornBelieved,
    /// Copies of freed blocks are not revoked.
    NoRevocation,
    /// Freed fragments may be reallocated before the transaction that frees them is durable (against FFS-C5).
    /// Not seen in core: nothing is held.
    ReuseAtOnce,
    /// A run of fragments grows into some that are held (against FFS-C5).
    /// Trips FFS-C5.
    GrowIntoHeld,
    /// Metadata that are due go to their places though their transaction is running.
    PlaceBeforeCommit,
    /// The journal begins again before what it held is in its place.
    TailTooEarly,
    /// The second tail of the journal is written before the first one is durable.
    TailsAtOnce,
    /// The number of a transaction that was torn is given to another.
    NumbersAgain,
    /// An inode without a name that is open is not put on the orphan list.
    NoOrphans,
    /// The checker clears inodes that are open and have no names, and leaves the list of them as it is.
    OrphansListed,
    /// A volume that is half mended says that its metadata were kept in no order, whatever was found.
    MendingUnordered,
    /// Nothing that is written waits for what was written before.
    NoOrder,
    /// The mark that a volume is mounted is not flushed.
    MountUnmarked,
    /// Unmount marks the volume clean before its summaries are flushed.
    CleanTooEarly,
    /// The counts of a group are not those of its bitmap.
    /// Trips FFS-A2.
    CountsStale,
    /// No cluster is looked for in a group again where there once was none.
    ClustersForgotten,
    /// A block that was read wrong is not read again.
    NoSecondLook,
    /// A damaged inode gets a right checksum with its block.
    DamageSealed,
    /// A device that fails does not turn the volume read-only.
    FailureForgotten,
}

impl Flaw {
    /// Mistakes that only a device that fails can meet.
    pub const FAULTS: [Flaw; 3] = [Flaw::NoSecondLook, Flaw::DamageSealed, Flaw::FailureForgotten];
}
