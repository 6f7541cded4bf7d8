//! Deliberate mistakes, to see whether the crash explorer finds them. Without the feature
//! `planted`, which only a test of the explorer turns on, all of this is nothing at run time.

arbor_kit::flaws! {
    /// The log is written without a flush of the data before it (against YFS-C2).
    /// Not seen in core: what is durable only a power cut shows.
    NoDataFlush,
    /// The log is written without a flush after it.
    NoLogFlush,
    /// Metadata goes in place before its log record is durable (against YFS-C1).
    /// Trips YFS-C1.
    WriteBeforeLog,
    /// The tail moves before the metadata in place is flushed (against YFS-C4).
    /// Not seen in core: what is durable only a power cut shows.
    TailBeforeFlush,
    /// A buffer that was written in place may be evicted before it is durable there (against YFS-C6).
    EvictedUnflushed,
    /// The bitmap daemon is late, and the tail passes its "marked free" items.
    /// Trips YFS-C4.
    TailPassesMarks,
    /// Both anchors are written to the same place.
    OneAnchor,
    /// The bitmap daemon forgets the "unmark free" items.
    NoUnmark,
    /// What is freed is allocatable at once (against YFS-C5).
    /// Trips YFS-C5.
    ReuseAtOnce,
    /// Replay leaves out the last transaction.
    ReplayStopsShort,
    /// Replay believes records whose checksum is wrong.
    TornRecordsBelieved,
    /// Replay goes on after a gap in the chain of records (against YFS-C3).
    /// Not seen in core: it is made at the mount.
    GapIgnored,
    /// Replay believes a record whose witnesses are not borne out.
    WitnessesBelieved,
    /// Data that the last record bears witness to are written over.
    /// Trips YFS-C2.
    WitnessesForgotten,
    /// Replay ignores what was logged of deleted metadata.
    DeletedIgnored,
    /// Mount goes on with the cycle of the log that it found.
    CycleKept,
    /// An open file without a name is not put on the recovery list.
    /// Trips YFS-I1.
    NoRecoveryList,
    /// fsync of a directory does nothing.
    NoDirectorySync,
    /// syncfs forgets delayed data.
    SyncForgetsData,
    /// Unmount marks the volume clean before the last metadata is flushed.
    CleanTooEarly,
    /// The new size of a file is logged when it is written, before its data is.
    SizeBeforeData,
    /// File data read beside a change of the file is kept in the cache.
    StalePages,
    /// A block that turns out damaged is believed to be so, though it may be freed by now.
    FreedBelieved,
    /// A read that met a change of its file returns what it found, without another look.
    MixedRead,
    /// What was read ahead is believed although it has been written over.
    StaleWindows,
    /// A name that was missing counts as missing after changes of its directory too.
    MissesKept,
    /// A volume says that it has grown before its device has the new size.
    GrowthBeforeDevice,
    /// The new size of a volume goes in place before the transaction that makes it grow is durable.
    GrowthBeforeLog,
    /// Replay goes by the size of the volume before it grew.
    GrowthForgotten,
    /// The checker writes the root of a new tree without a flush of its nodes before it.
    RootBeforeNodes,
    /// The checker writes a new tree over the old one although there is free space.
    RepairInPlace,
    /// The checker marks a volume clean before what it has mended is flushed.
    MendedTooEarly,
}

impl Flaw {
    /// Mistakes that only several tasks at once can meet.
    pub const CONCURRENT: [Flaw; 3] = [Flaw::StalePages, Flaw::FreedBelieved, Flaw::MixedRead];

    /// Mistakes that only a device which fails can meet.
    pub const FAULTS: [Flaw; 1] = [Flaw::EvictedUnflushed];

    /// Mistakes that only a cache smaller than the files can meet.
    pub const SMALL_CACHE: [Flaw; 1] = [Flaw::StaleWindows];

    /// Mistakes that only growing and repairing can meet.
    pub const GROWTH_AND_REPAIR: [Flaw; 6] = [
        Flaw::GrowthBeforeDevice,
        Flaw::GrowthBeforeLog,
        Flaw::GrowthForgotten,
        Flaw::RootBeforeNodes,
        Flaw::RepairInPlace,
        Flaw::MendedTooEarly,
    ];
}
