//! Deliberate mistakes, to see whether the tests find them. Without the feature `planted`, which only `tests/planted.rs`
//! turns on, all of this is nothing at run time.

arbor_kit::flaws! {
    /// Blocks are written in place before their record is durable (against PLAIN-C1).
    RecordUnflushed,
    /// Recovery takes the newest record only (against PLAIN-C2).
    NewestOnly,
    /// What a call has changed is in two records (against PLAIN-C3).
    TwoRecords,
    /// Recovery does not look whether a record is whole.
    TornBelieved,
    /// Recovery writes the superblock, which may call the volume clean, together with the rest.
    SuperTooEarly,
    /// After an unmount numbers go on, so that a record that did not count may count later.
    NumbersGoOn,
    /// An inode without a name that is open is not put on the list of these.
    NoOrphans,
}
