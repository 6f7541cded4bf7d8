//! Deliberate mistakes, to see whether the tests find them. Without the feature `planted`, which only `tests/planted.rs`
//! turns on, all of this is nothing at run time.

arbor_kit::flaws! {
    /// Metadata are written without waiting until the data to which they lead are durable (against DUALFS-C4).
    DataUnflushed,
    /// An fsync leaves any page of other files in core that is overwritten where it lies, also behind what was their end.
    TailLeft,
    /// What a crash has left after the end of a file shows when it grows (against DUALFS-F1).
    TailShown,
    /// A checkpoint is written before its ifile is durable (against DUALFS-C4).
    CheckpointTooEarly,
    /// A segment is filled again after one checkpoint (against DUALFS-C3).
    ReusedEarly,
    /// A data block that was freed is given away in the same set (against DUALFS-C5).
    FreedAtOnce,
    /// What was freed stays in use in the bitmaps.
    FreedForgotten,
    /// The cleaner takes indirect blocks that live for dead, and what it has cleaned for empty. (With the first alone nothing is
    /// lost: the usage of the segment says that something lives there.)
    LiveForDead,
    /// Half a set is rolled forward (against DUALFS-C2).
    HalfSet,
    /// Roll-forward does not look at what a summary covers.
    BlocksUnverified,
    /// Roll-forward forgets what has died in segments.
    DeathsForgotten,
    /// Roll-forward forgets which data blocks were given away.
    RunsForgotten,
    /// A mount does not begin a new epoch.
    EpochStays,
    /// A checkpoint does not count what writing the usage table itself changes in it.
    UsageUncounted,
    /// Inodes without names are on no list.
    NoOrphans,
    /// Metadata blocks as they were on the device stay in memory although others are written in their place.
    PrefetchKept,
}
