//! Operations as data: drawn from a seed, printed, parsed, replayed.
//!
//! An operation stands on its own: it names files by path (`/d0/f1`) or by a slot that holds a
//! reference (`@2`), so that any part of a list is a list too. That is what lets a failing list be
//! shrunk. A name `L7` stands for 255 bytes ending in 7, `X7` for 256, which is one too many.

use std::fmt;
use std::str::FromStr;

/// A file by path, or by a slot and a path below it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path {
    /// Slot to start from instead of the root.
    pub slot: Option<u8>,
    /// Names, in short form.
    pub names: Vec<String>,
}

impl Path {
    /// The file that `slot` holds.
    pub fn held(slot: u8) -> Path {
        Path { slot: Some(slot), names: Vec::new() }
    }

    /// A path from the root.
    pub fn at(names: &[&str]) -> Path {
        Path { slot: None, names: names.iter().map(|n| n.to_string()).collect() }
    }
}

/// The bytes that a short name stands for.
pub fn long_name(short: &str) -> Vec<u8> {
    let len = match short.as_bytes().first() {
        Some(b'L') => 255,
        Some(b'X') => 256,
        _ => return short.as_bytes().to_vec(),
    };
    let mut name = vec![b'l'; len - (short.len() - 1)];
    name.extend_from_slice(&short.as_bytes()[1..]);
    name
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.slot {
            Some(n) => write!(f, "@{n}")?,
            None if self.names.is_empty() => return f.write_str("/"),
            None => {}
        }
        self.names.iter().try_for_each(|n| write!(f, "/{n}"))
    }
}

impl FromStr for Path {
    type Err = String;

    fn from_str(text: &str) -> Result<Path, String> {
        let (start, rest) = text.split_once('/').ok_or("").or_else(|_| match text.starts_with('@') {
            true => Ok((text, "")),
            false => Err(format!("{text:?} is no path")),
        })?;
        let slot = match start.strip_prefix('@') {
            Some(n) => Some(n.parse().map_err(|_| format!("{text:?} names no slot"))?),
            None => None,
        };
        Ok(Path { slot, names: rest.split('/').filter(|n| !n.is_empty()).map(String::from).collect() })
    }
}

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident $word:literal { $($(#[$fdoc:meta])* $field:ident: $ty:ty),* $(,)? })*) => {
        /// One step of a sequence: at most one call that changes something.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Op {
            $($(#[$doc])* $name { $($(#[$fdoc])* $field: $ty),* },)*
        }

        impl Op {
            /// The word it is written with.
            pub fn word(&self) -> &'static str {
                match self { $(Op::$name { .. } => $word,)* }
            }
        }

        impl fmt::Display for Op {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Op::$name { $($field),* } => {
                        f.write_str($word)?;
                        $(write!(f, " {}", $field)?;)*
                        Ok(())
                    })*
                }
            }
        }

        impl FromStr for Op {
            type Err = String;

            fn from_str(text: &str) -> Result<Op, String> {
                let mut words = text.split_whitespace();
                let op = match words.next().unwrap_or_default() {
                    $($word => Op::$name { $($field: arg(&mut words, text)?),* },)*
                    other => return Err(format!("unknown operation {other:?}")),
                };
                match words.next() {
                    Some(w) => Err(format!("{text:?}: {w:?} is too much")),
                    None => Ok(op),
                }
            }
        }
    };
}

fn arg<'a, T: FromStr>(words: &mut impl Iterator<Item = &'a str>, text: &str) -> Result<T, String> {
    let word = words.next().ok_or_else(|| format!("{text:?}: an argument is missing"))?;
    word.parse().map_err(|_| format!("{text:?}: {word:?} does not fit"))
}

ops! {
    /// Makes a regular file.
    Create "create" {
        /// Its name.
        path: Path,
        /// Permissions.
        mode: u32,
        /// Group of the caller.
        gid: u32,
    }
    /// Makes a regular file with its contents.
    Put "put" {
        /// Its name.
        path: Path,
        /// Permissions.
        mode: u32,
        /// Group of the caller.
        gid: u32,
        /// Length of the contents.
        len: usize,
        /// Pattern of the contents.
        tag: u64,
    }
    /// Makes a directory.
    Mkdir "mkdir" {
        /// Its name.
        path: Path,
        /// Permissions.
        mode: u32,
        /// Group of the caller.
        gid: u32,
    }
    /// Makes a symbolic link.
    Symlink "symlink" {
        /// Its name.
        path: Path,
        /// Length of the target.
        len: usize,
        /// Pattern of the target.
        tag: u64,
    }
    /// Makes a fifo.
    Mkfifo "mkfifo" {
        /// Its name.
        path: Path,
    }
    /// Makes a character device.
    Mkdev "mkdev" {
        /// Its name.
        path: Path,
        /// Device number.
        rdev: u32,
    }
    /// Makes a file without a name, held by a slot.
    Tmpfile "tmpfile" {
        /// A directory.
        dir: Path,
        /// The slot.
        slot: u8,
    }
    /// Looks a file up and keeps the reference in a slot.
    Hold "hold" {
        /// The file.
        path: Path,
        /// The slot.
        slot: u8,
    }
    /// Gives the reference of a slot back.
    Drop "drop" {
        /// The slot.
        slot: u8,
    }
    /// Compares attributes, and the target of a link.
    Stat "stat" {
        /// The file.
        path: Path,
    }
    /// Writes.
    Write "write" {
        /// The file.
        path: Path,
        /// Where.
        offset: u64,
        /// How much.
        len: usize,
        /// Pattern of the bytes.
        tag: u64,
    }
    /// Writes at the end.
    Append "append" {
        /// The file.
        path: Path,
        /// How much.
        len: usize,
        /// Pattern of the bytes.
        tag: u64,
    }
    /// Reads and compares.
    Read "read" {
        /// The file.
        path: Path,
        /// Where.
        offset: u64,
        /// How much.
        len: usize,
    }
    /// Sets the size.
    Truncate "truncate" {
        /// The file.
        path: Path,
        /// The size.
        size: u64,
    }
    /// Allocates, punches or zeroes.
    Fallocate "fallocate" {
        /// The file.
        path: Path,
        /// Bits of `FallocMode`.
        mode: u32,
        /// Where.
        offset: u64,
        /// How much.
        len: u64,
    }
    /// Copies between files.
    Copy "copy" {
        /// Source.
        from: Path,
        /// Offset there.
        from_offset: u64,
        /// Target.
        to: Path,
        /// Offset there.
        to_offset: u64,
        /// How much.
        len: u64,
    }
    /// Looks for data (0) or a hole (1).
    Seek "seek" {
        /// The file.
        path: Path,
        /// From where.
        offset: u64,
        /// What for.
        whence: u8,
    }
    /// Gives a file another name.
    Link "link" {
        /// The file.
        from: Path,
        /// The new name.
        to: Path,
    }
    /// Removes a name.
    Unlink "unlink" {
        /// The name.
        path: Path,
    }
    /// Removes a directory.
    Rmdir "rmdir" {
        /// Its name.
        path: Path,
    }
    /// Renames.
    Rename "rename" {
        /// Old name.
        from: Path,
        /// New name.
        to: Path,
        /// Bits of `RenameFlags`.
        flags: u32,
    }
    /// Sets permissions.
    Chmod "chmod" {
        /// The file.
        path: Path,
        /// Permissions.
        mode: u32,
    }
    /// Sets owner and group.
    Chown "chown" {
        /// The file.
        path: Path,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
    }
    /// Sets the times of access and modification.
    Utimes "utimes" {
        /// The file.
        path: Path,
        /// Seconds since the epoch.
        secs: i64,
    }
    /// Sets an extended attribute.
    SetXattr "setxattr" {
        /// The file.
        path: Path,
        /// Name of the attribute.
        name: String,
        /// Length of the value.
        len: usize,
        /// Pattern of the value.
        tag: u64,
        /// 0 set, 1 create, 2 replace.
        how: u8,
    }
    /// Reads an extended attribute.
    GetXattr "getxattr" {
        /// The file.
        path: Path,
        /// Name of the attribute.
        name: String,
    }
    /// Removes an extended attribute.
    RemoveXattr "removexattr" {
        /// The file.
        path: Path,
        /// Name of the attribute.
        name: String,
    }
    /// Lists the extended attributes.
    ListXattr "listxattr" {
        /// The file.
        path: Path,
    }
    /// Reads a directory, so many names a call.
    List "list" {
        /// The directory.
        path: Path,
        /// Names a call.
        chunk: usize,
    }
    /// Goes on with a long walk of a directory that other operations interrupt.
    Walk "walk" {
        /// Which of the walks; a new path starts anew.
        walk: u8,
        /// The directory.
        path: Path,
        /// Names to read now.
        chunk: usize,
    }
    /// Makes a file durable.
    Fsync "fsync" {
        /// The file.
        path: Path,
        /// 1 for fdatasync.
        data_only: u8,
    }
    /// Makes everything durable.
    Syncfs "syncfs" {}
    /// Unmounts and mounts.
    Remount "remount" {}
    /// Moves the clock on and lets the engine work.
    Background "background" {
        /// Milliseconds.
        ms: u64,
    }
    /// Lets the cleaner work, where there is one.
    Clean "clean" {
        /// Bytes that it reads.
        bytes: u64,
    }
}

/// Writes a list in one line.
pub fn print(ops: &[Op]) -> String {
    ops.iter().map(Op::to_string).collect::<Vec<_>>().join("; ")
}

/// Reads a list: operations are separated by `;` or line ends, `#` starts a comment.
pub fn parse(text: &str) -> Result<Vec<Op>, String> {
    let lines = text.lines().map(|l| l.split('#').next().unwrap_or_default());
    lines.flat_map(|l| l.split(';')).map(str::trim).filter(|w| !w.is_empty()).map(str::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{Profile, generate};

    #[test]
    fn every_drawn_operation_parses_back() {
        for profile in Profile::ALL {
            let ops = generate(profile, 7, 2000);
            assert_eq!(parse(&print(&ops)), Ok(ops));
        }
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for text in ["frobnicate /a", "create", "create /a 1 2 3", "write a 1 2 3", "write @x 1 2 3"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse("# nothing\n syncfs ; remount # two").map(|o| o.len()), Ok(2));
        assert_eq!(long_name("L12").len(), 255);
    }
}
