//! Times as plain and ReiserFS store them.

use crate::fields::FieldType;
use arbor_base::layout::{I64, U32};
use arbor_base::vfs::{Meaning, Time};
use serde_json::Value;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Stamp {
    /// Seconds since 1970.
    pub secs: I64,
    /// Nanoseconds.
    pub nanos: U32,
}

impl From<Time> for Stamp {
    fn from(Time { secs, nanos }: Time) -> Stamp {
        Stamp { secs: secs.into(), nanos: nanos.into() }
    }
}

impl From<Stamp> for Time {
    fn from(s: Stamp) -> Time {
        Time { secs: s.secs.get(), nanos: s.nanos.get().min(999_999_999) }
    }
}

/// JSON has the seconds.
impl FieldType for Stamp {
    const MEANING: Meaning = Meaning::Number;

    fn json(&self) -> Value {
        self.secs.json()
    }
}
