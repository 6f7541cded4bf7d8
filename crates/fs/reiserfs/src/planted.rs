//! Deliberate mistakes, to see whether the tests find them. Without the feature `planted`, which only `tests/planted.rs`
//! turns on, all of this is nothing at run time.

arbor_kit::flaws! {
    /// A record is written before the data that it leads to (against REISER-C1).
    DataAfterRecord,
    /// Nodes are written in place before their record is durable (against REISER-C2).
    RecordUnflushed,
    /// The log is begun anew before what it held is durable in place (against REISER-C3).
    LogReusedEarly,
    /// A block that was freed can be allocated before the transaction that freed it is durable (against REISER-A3).
    FreedTooEarly,
    /// A node that was freed can hold data while the log may still bring back its old contents (against REISER-A3).
    LoggedReused,
    /// Recovery does not look whether a record is whole.
    TornBelieved,
    /// A tail that moves to an unformatted node leaves its bytes behind (against REISER-F2).
    TailWithoutPointer,
    /// An item that is shifted to a neighbour is lost.
    ShiftedLost,
    /// An object without a name that is open is not put on the list of these.
    NoOrphans,
    /// The key of a first item that has changed is not told to the nodes above (against REISER-T2).
    KeyNotTold,
    /// Nodes in new places are written after the record that leads to them (against REISER-C6).
    FreshAfterRecord,
    /// The place that a node has left can be allocated at once (against REISER-A3).
    PreservedEarly,
    /// A node moves, and its parent leads to its old place.
    MoveNotTold,
    /// Nodes are written over before the record, which has no copies of them: the preserve list of the paper, and no more.
    WrittenOver,
    /// What was written counts as clean before it is durable (against REISER-C7).
    CleanUnflushed,
    /// A rebuild takes every block that looks like a node of the volume for one.
    ForeignBelieved,
}
