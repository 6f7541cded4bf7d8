//! The fields of the structures of a `format.rs`, by name: where they lie and what they mean, for tests of damage
//! ([`structures`](crate::structures)), and their values, for people ([`dump`](crate::dump)).

use arbor_base::layout::{I64, U16, U32, U64};
use arbor_base::vfs::{Field, Meaning};
use serde_json::{Map, Value};

/// What follows from the type of a field.
pub trait FieldType {
    /// What its bytes are, unless [`fields!`](crate::fields) says more.
    const MEANING: Meaning;

    /// Its value as JSON has it.
    fn json(&self) -> Value;
}

/// A structure whose fields are known; [`fields!`](crate::fields) makes it one.
pub trait Fielded {
    /// Its fields in their order.
    const FIELDS: &'static [Field];

    /// Their values by name, but for what only tells that it is such a structure and whole: `magic`, `fsid`, checksums
    /// and reserved bytes.
    fn values(&self) -> Map<String, Value>;
}

/// Lists the fields of structures, in their order; with one left out it does not compile. What a field means follows
/// from its type, unless it is an address or a checksum: `fields! { Head { magic, crc: Checksum, block: Address } }`.
#[macro_export]
macro_rules! fields {
    ($($t:ident { $($f:ident $(: $meaning:ident)?),* $(,)? })*) => {$(
        impl $crate::fields::Fielded for $t {
            const FIELDS: &'static [$crate::vfs::Field] = &[$($crate::vfs::Field {
                $(meaning: $crate::vfs::Meaning::$meaning,)?
                ..$crate::fields::field(
                    concat!(stringify!($t), ".", stringify!($f)),
                    std::mem::offset_of!($t, $f),
                    |s: &$t| &s.$f,
                )
            }),*];

            fn values(&self) -> $crate::fields::Values {
                let $t { $($f),* } = self;
                $crate::fields::values(Self::FIELDS, [$((stringify!($f), $crate::fields::FieldType::json($f))),*])
            }
        }
    )*};
}

/// For the macro.
#[doc(hidden)]
pub type Values = Map<String, Value>;

/// For the macro: a field that means what its type says.
#[doc(hidden)]
pub const fn field<S, F: FieldType>(name: &'static str, at: usize, _: fn(&S) -> &F) -> Field {
    Field { name, at: at as u32, len: size_of::<F>() as u32, meaning: F::MEANING }
}

/// For the macro.
#[doc(hidden)]
pub fn values<const N: usize>(fields: &[Field], all: [(&str, Value); N]) -> Values {
    let told = |name: &str| !matches!(name, "magic" | "fsid") && !name.starts_with("reserved");
    let all = fields.iter().zip(all).filter(|(f, (name, _))| f.meaning != Meaning::Checksum && told(name));
    all.map(|(_, (name, value))| (name.to_string(), value)).collect()
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

macro_rules! numbers {
    ($($t:ty),*) => {$(
        impl FieldType for $t {
            const MEANING: Meaning = Meaning::Number;

            fn json(&self) -> Value {
                self.get().into()
            }
        }
    )*};
}

numbers!(U16, U32, U64, I64);

impl FieldType for u8 {
    const MEANING: Meaning = Meaning::Number;

    fn json(&self) -> Value {
        (*self).into()
    }
}

impl<const N: usize> FieldType for [u8; N] {
    const MEANING: Meaning = Meaning::Bytes;

    fn json(&self) -> Value {
        hex(self).into()
    }
}

impl<const N: usize> FieldType for [U32; N] {
    const MEANING: Meaning = Meaning::Bytes;

    fn json(&self) -> Value {
        self.iter().map(FieldType::json).collect()
    }
}

impl<T: Fielded> FieldType for T {
    const MEANING: Meaning = Meaning::Bytes;

    fn json(&self) -> Value {
        self.values().into()
    }
}

impl<T: Fielded, const N: usize> FieldType for [T; N] {
    const MEANING: Meaning = Meaning::Bytes;

    fn json(&self) -> Value {
        self.iter().map(FieldType::json).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(Default)]
    #[repr(C)]
    struct Inner {
        addr: U32,
        flags: u8,
    }

    #[derive(Default)]
    #[repr(C)]
    struct Outer {
        bytes: [u8; 2],
        crc: U32,
        time: I64,
        one: Inner,
        map: [U32; 2],
        all: [Inner; 2],
        reserved: [u8; 3],
    }

    fields! {
        Inner { addr: Address, flags }
        Outer { bytes, crc: Checksum, time, one, map, all, reserved }
    }

    #[test]
    fn meanings_follow_from_types_unless_they_are_given() {
        let all = Outer::FIELDS.iter().map(|f| (f.name, f.at, f.len, f.meaning)).collect::<Vec<_>>();
        assert_eq!(
            all,
            [
                ("Outer.bytes", 0, 2, Meaning::Bytes),
                ("Outer.crc", 2, 4, Meaning::Checksum),
                ("Outer.time", 6, 8, Meaning::Number),
                ("Outer.one", 14, 5, Meaning::Bytes),
                ("Outer.map", 19, 8, Meaning::Bytes),
                ("Outer.all", 27, 10, Meaning::Bytes),
                ("Outer.reserved", 37, 3, Meaning::Bytes),
            ]
        );
        assert_eq!(Inner::FIELDS.iter().map(|f| f.meaning).collect::<Vec<_>>(), [Meaning::Address, Meaning::Number]);
    }

    #[test]
    fn values_of_structures_in_structures() {
        let inner = || Inner { addr: 7.into(), flags: 1 };
        let o = Outer { bytes: *b"AB", time: (-1).into(), one: inner(), all: [inner(), inner()], ..Outer::default() };
        let inner = json!({ "addr": 7, "flags": 1 });
        let expected = json!({ "bytes": "4142", "time": -1, "one": inner, "map": [0, 0], "all": [inner, inner] });
        assert_eq!(Value::from(o.values()), expected);
    }
}
