//! What checkers find: types of issues, each with its severity, its class and the sentence for people.
//!
//! [`issues!`](crate::issues) makes the type `Issue` of an engine's checker; the engine says by an enum `Class` of its
//! own where issues come from, and so which of them preening mends.

use arbor_base::vfs::Severity;
use std::collections::BTreeMap;

/// A name as people read it.
pub fn show(name: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(name))
}

/// A name as it is shown in a path; characters that would disturb a terminal are escaped.
pub fn readable(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    let shown = text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() });
    shown.collect()
}

/// A file or directory by its number. In a sentence its path follows, if known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node(pub u64);

/// Paths of files and directories.
pub type Paths = BTreeMap<u64, String>;

/// A field of an issue, as it is shown in the sentence.
pub trait Say {
    /// Its words.
    fn say(&self, paths: &Paths) -> String;

    /// The file it names.
    fn node(&self) -> Option<u64> {
        None
    }
}

macro_rules! say {
    ($($t:ty),*) => {
        $(impl Say for $t {
            fn say(&self, _paths: &Paths) -> String {
                self.to_string()
            }
        })*
    };
}
say!(u32, u64, String, &'static str);

impl Say for Node {
    fn say(&self, paths: &Paths) -> String {
        match paths.get(&self.0) {
            Some(path) => format!("{} ({path})", self.0),
            None => self.0.to_string(),
        }
    }

    fn node(&self) -> Option<u64> {
        Some(self.0)
    }
}

/// One thing that a checker found.
pub trait Finding: Clone + PartialEq {
    /// Name for scripts.
    fn code(&self) -> &'static str;

    /// How much it matters.
    fn severity(&self) -> Severity;

    /// The files and directories that it names.
    fn nodes(&self) -> impl Iterator<Item = u64>;

    /// The sentence for people.
    fn text(&self, paths: &Paths) -> String;

    /// So many more were found, which are not listed.
    fn further(count: u64) -> Self;
}

/// Makes the enum `Issue`: `/// doc` NAME `{ field: type, ... }` SEVERITY CLASS `"sentence with {field}";`, and so on.
/// SEVERITY is one of [`Severity`], CLASS one of the enum `Class` where the macro stands. One must be `Further { count:
/// u64 }`.
#[macro_export]
macro_rules! issues {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* } $severity:ident $class:ident $text:literal;)*) => {
        /// One thing that the checker found.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub(crate) enum Issue {
            $($(#[$doc])* $name { $($field: $type),* },)*
        }

        /// Names of all issues.
        #[allow(dead_code, reason = "for tests")]
        pub(crate) const ISSUES: &[&str] = &[$(stringify!($name)),*];

        impl Issue {
            /// Where it comes from.
            pub fn class(&self) -> Class {
                match self { $(Issue::$name { .. } => Class::$class,)* }
            }
        }

        impl $crate::issue::Finding for Issue {
            fn code(&self) -> &'static str {
                match self { $(Issue::$name { .. } => stringify!($name),)* }
            }

            fn severity(&self) -> $crate::vfs::Severity {
                match self { $(Issue::$name { .. } => $crate::vfs::Severity::$severity,)* }
            }

            fn nodes(&self) -> impl Iterator<Item = u64> {
                use $crate::issue::Say as _;
                let nodes = match self {
                    $(Issue::$name { $($field),* } => vec![$($field.node()),*],)*
                };
                nodes.into_iter().flatten()
            }

            fn text(&self, paths: &$crate::issue::Paths) -> String {
                use $crate::issue::Say as _;
                match self {
                    $(Issue::$name { $($field),* } => {
                        $(let $field = $field.say(paths);)*
                        format!($text)
                    })*
                }
            }

            fn further(count: u64) -> Issue {
                Issue::Further { count }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Class {
        Leak,
        Damage,
    }

    crate::issues! {
        /// One.
        Lost { ino: Node, name: String, why: &'static str } Error Damage "inode {ino}: {name} {why}";
        Count { found: u32 } Warning Leak "counts {found}";
        Further { count: u64 } Error Damage "{count} more";
    }

    #[test]
    fn sentences_have_paths() {
        let paths = Paths::from([(7, "/a".to_string())]);
        let lost = Issue::Lost { ino: Node(7), name: show(b"b\n"), why: "is gone" };
        assert_eq!(lost.text(&paths), "inode 7 (/a): \"b\\n\" is gone");
        assert_eq!(lost.text(&Paths::new()), "inode 7: \"b\\n\" is gone");
        assert_eq!((lost.code(), lost.severity(), lost.class()), ("Lost", Severity::Error, Class::Damage));
        let count = Issue::Count { found: 3 };
        assert_eq!((count.text(&paths).as_str(), count.class()), ("counts 3", Class::Leak));
        assert_eq!((lost.nodes().collect::<Vec<_>>(), count.nodes().count()), (vec![7], 0));
        assert_eq!(ISSUES, ["Lost", "Count", "Further"]);
        assert_eq!(Issue::further(3).text(&paths), "3 more");
        assert_eq!(readable(b"x\ny"), "x\\ny");
    }
}
