//! Deliberate mistakes, to see whether the tests find them. Without the feature `planted`, which only
//! `tests/planted.rs` turns on, all of this is nothing at run time.

arbor_kit::flaws! {
    /// A segment is filled again before a checkpoint has called it clean (against LFS-C3).
    /// Trips LFS-C3.
    ReuseBeforeCheckpoint,
    /// The cleaner takes the blocks of files that live for dead.
    LiveForDead,
    /// The cleaner takes what is dead for alive.
    DeadForLive,
    /// The cleaner drops blocks of the ifile that it has brought, and what it changed in them.
    IfileDropped,
    /// The cleaner's head of the log is used before a checkpoint has said where it is.
    ColdHeadUnsaid,
    /// Half a group is rolled forward (against LFS-C2).
    /// Not seen in core: it is made at the mount.
    HalfGroup,
    /// Roll-forward does not look at what a summary covers.
    BlocksUnverified,
    /// A checkpoint does not wait for what it leads to (against LFS-C4).
    /// Not seen in core: what is durable only a power cut shows.
    CheckpointTooEarly,
    /// A mount after a crash does not part with the torn group: its epoch stays.
    EpochStays,
    /// What has died is not taken from the usage of its segment when the log is rolled forward.
    DeathsForgotten,
    /// The usage table does not count what its own writing changes.
    TableUncounted,
    /// A change of a data block does not change the indirect block above it.
    /// Trips LFS-B1.
    StalePointers,
    /// An inode without a name that is open is not put on the orphan list.
    NoOrphans,
}
