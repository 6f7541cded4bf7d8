//! Locations of damage, which a person can look at with a tool.

use std::fmt;

/// A device of a volume, as [`Devices`](crate::vfs::Devices) has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The one that carries the superblock.
    #[default]
    Main,
    /// A further one, by the engine's name for it, e.g. `"log"`.
    Extra(&'static str),
}

/// Where something is on a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Location {
    /// A byte of a device.
    Device {
        /// Which one.
        role: Role,
        /// The byte.
        byte: u64,
    },
    /// A byte of a file or directory, wherever that lies.
    File {
        /// Inode number.
        ino: u64,
        /// The byte of the file.
        offset: u64,
    },
    /// An inode, of a design that moves inodes, where its address is not known.
    Inode {
        /// Its number.
        ino: u64,
    },
}

impl Location {
    /// A byte of a device other than the main one.
    pub fn on(role: Role, byte: u64) -> Location {
        Location::Device { role, byte }
    }

    /// A byte of a file or directory.
    pub fn file(ino: impl Into<u64>, offset: u64) -> Location {
        Location::File { ino: ino.into(), offset }
    }

    /// An inode.
    pub fn inode(ino: impl Into<u64>) -> Location {
        Location::Inode { ino: ino.into() }
    }

    /// The location so many bytes further on; an inode stays the same.
    pub fn plus(self, more: u64) -> Location {
        match self {
            Location::Device { role, byte } => Location::Device { role, byte: byte.saturating_add(more) },
            Location::File { ino, offset } => Location::File { ino, offset: offset.saturating_add(more) },
            Location::Inode { .. } => self,
        }
    }
}

/// A byte of the main device.
impl From<u64> for Location {
    fn from(byte: u64) -> Location {
        Location::Device { role: Role::Main, byte }
    }
}

/// As in `at byte 0x1000`, for a byte of the main device.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Device { role: Role::Main, byte } => write!(f, "at byte {byte:#x}"),
            Location::Device { role: Role::Extra(name), byte } => write!(f, "at byte {byte:#x} of the {name} device"),
            Location::File { ino, offset } => write!(f, "at byte {offset} of inode {ino}"),
            Location::Inode { ino } => write!(f, "in inode {ino}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Corrupt;

    #[test]
    fn damage_names_its_place() {
        let says = |at: Location| Corrupt::new("thing", "field", at, 1, 2).to_string();
        let said = |place: &str| format!("damaged thing: field field {place} holds 1, expected 2");
        assert_eq!(says(4096.into()), said("at byte 0x1000"));
        assert_eq!(says(Location::on(Role::Extra("log"), 4096)), said("at byte 0x1000 of the log device"));
        assert_eq!(says(Location::file(17u32, 4096)), said("at byte 4096 of inode 17"));
        assert_eq!(says(Location::inode(17u32)), said("in inode 17"));
    }

    #[test]
    fn a_field_lies_behind_the_start_of_its_structure() {
        assert_eq!(Location::from(512).plus(8), 520.into());
        assert_eq!(Location::on(Role::Extra("log"), 512).plus(8), Location::on(Role::Extra("log"), 520));
        assert_eq!(Location::file(3u32, 512).plus(8), Location::file(3u32, 520));
        assert_eq!(Location::inode(3u32).plus(8), Location::inode(3u32));
        assert_eq!(Location::from(u64::MAX).plus(8), u64::MAX.into());
    }
}
