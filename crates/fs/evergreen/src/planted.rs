//! Deliberate mistakes, to see whether the tests find them. Without the feature `planted`, which only `tests/planted.rs`
//! turns on, all of this is nothing at run time.

arbor_kit::flaws! {
    /// The master block is written together with what it leads to, before that is durable.
    MasterUnflushed,
    /// A block that was freed is given away before the commit.
    ReusedEarly,
    /// What is overwritten is not in the redo list.
    NoRedo,
    /// The copies of the redo list are given away before what they hold is durable in place.
    CopiesReused,
    /// Recovery takes the first master block that it finds.
    AnyMaster,
    /// A master block is believed whatever its checksum.
    TornBelieved,
    /// The new address of an indirect block is not told to its parent.
    CascadeStops,
    /// The same reserved block is taken for two commits in a row.
    SameReserved,
    /// What the last commit has overwritten is not written in place before the next one.
    LaidForgotten,
    /// The volume is marked clean before the last commit.
    CleanTooEarly,
    /// Contents are written in place behind the end that their file has in the last commit.
    BehindTheEnd,
    /// What is freed stays in use in the dBitmap.
    FreedStays,
    /// What older commits have is given away although they are to be retained.
    HistoryReused,
    /// An inode without a name that is open is not put on the list of these.
    NoOrphans,
    /// The superblock says that a volume has grown before a commit of the new size is durable.
    GrownTooEarly,
    /// A growth does not look whether an earlier one, which was cut off, has left commits of the same size.
    OldGrowthBelieved,
    /// What is gathered is not read before it moves.
    GatheredBlank,
}

impl Flaw {
    /// Those that only a volume that grows meets.
    #[doc(hidden)]
    pub const GROWTH: &[Flaw] = &[Flaw::GrownTooEarly, Flaw::OldGrowthBelieved];
}
