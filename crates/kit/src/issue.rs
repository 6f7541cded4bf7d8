//! What checkers find: types of issues, each with its severity, its class and the sentence for people.
//!
//! [`issues!`](crate::issues) makes the type `Issue` of an engine's checker; the engine says by an enum `Class` of its own
//! where issues come from, and so which of them preening mends.

use std::collections::BTreeMap;

/// A name as people read it.
pub fn show(name: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(name))
}

/// A name as it stands in a path; what would disturb a terminal is escaped.
pub fn readable(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    let shown = text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() });
    shown.collect()
}

/// A file or directory by its number. In a sentence its path follows, where it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node(pub u64);

/// Paths of files and directories.
pub type Paths = BTreeMap<u64, String>;

/// A field of an issue, as it stands in the sentence.
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

/// Makes the enum `Issue`: `/// doc` NAME `{ field: type, ... }` SEVERITY CLASS `"sentence with {field}";`, and so on. SEVERITY is
/// one of [`Severity`](arbor_base::vfs::Severity), CLASS one of the enum `Class` where the macro stands.
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
            /// Name for scripts.
            pub fn code(&self) -> &'static str {
                match self { $(Issue::$name { .. } => stringify!($name),)* }
            }

            /// How much it matters.
            pub fn severity(&self) -> $crate::vfs::Severity {
                match self { $(Issue::$name { .. } => $crate::vfs::Severity::$severity,)* }
            }

            /// Where it comes from.
            pub fn class(&self) -> Class {
                match self { $(Issue::$name { .. } => Class::$class,)* }
            }

            /// The files and directories that it names.
            pub fn nodes(&self) -> impl Iterator<Item = u64> + use<> {
                use $crate::issue::Say as _;
                let nodes = match self {
                    $(Issue::$name { $($field),* } => vec![$($field.node()),*],)*
                };
                nodes.into_iter().flatten()
            }

            /// The sentence for people.
            pub fn text(&self, paths: &$crate::issue::Paths) -> String {
                use $crate::issue::Say as _;
                match self {
                    $(Issue::$name { $($field),* } => {
                        $(let $field = $field.say(paths);)*
                        format!($text)
                    })*
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use arbor_base::vfs::Severity;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Class {
        Leak,
        Damage,
    }

    crate::issues! {
        /// One.
        Lost { ino: Node, name: String, why: &'static str } Error Damage "inode {ino}: {name} {why}";
        Count { found: u32 } Warning Leak "counts {found}";
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
        assert_eq!(ISSUES, ["Lost", "Count"]);
        assert_eq!(readable(b"x\ny"), "x\\ny");
    }
}
