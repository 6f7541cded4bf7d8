//! What checkers find: types of issues, each with its severity, its class and the sentence for people.
//!
//! [`issues!`](crate::issues) makes the type `Issue` of an engine's checker; the engine says by an enum `Class` of its
//! own where issues come from, and so which of them preening mends. Those of a directory tree are in every engine the
//! same ([`TreeIssue`](crate::forest::TreeIssue)).

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
    fn nodes(&self) -> Vec<u64>;

    /// The sentence for people.
    fn text(&self, paths: &Paths) -> String;
}

/// Makes a type of issues: its head, then `/// doc` NAME `{ field: type, ... }` SEVERITY CLASS `"sentence with {field}";`,
/// and so on. SEVERITY is one of [`Severity`], CLASS one of the enum `Class` where the macro stands. With the head
/// `pub(crate) enum Issue: Tree(TreeIssue);` the variant `Tree` holds the issues of the directory tree, which have their
/// words from there ([`TreeIssue`](crate::forest::TreeIssue)) and their class from the engine: `Class::of`.
#[macro_export]
macro_rules! issues {
    ($vis:vis enum $issue:ident $(: $tree:ident($below:ident))?;
     $($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* } $severity:ident $class:ident $text:literal;)*) => {
        /// One thing that a checker found.
        #[allow(missing_docs, reason = "the fields are named as in the sentences")]
        #[derive(Clone, Debug, PartialEq, Eq)]
        $vis enum $issue {
            $($(#[$doc])* $name { $($field: $type),* },)*
            $(
                /// One of the directory tree.
                $tree($below),
            )?
        }

        impl $issue {
            /// Names of all issues.
            #[allow(dead_code, reason = "for tests")]
            pub fn names() -> Vec<&'static str> {
                [vec![$(stringify!($name)),*], $($below::names())?].concat()
            }

            /// Where it comes from.
            pub fn class(&self) -> Class {
                match self {
                    $($issue::$name { .. } => Class::$class,)*
                    $($issue::$tree(issue) => Class::of(issue),)?
                }
            }
        }

        impl $crate::issue::Finding for $issue {
            fn code(&self) -> &'static str {
                match self {
                    $($issue::$name { .. } => stringify!($name),)*
                    $($issue::$tree(issue) => issue.code(),)?
                }
            }

            fn severity(&self) -> $crate::vfs::Severity {
                match self {
                    $($issue::$name { .. } => $crate::vfs::Severity::$severity,)*
                    $($issue::$tree(issue) => issue.severity(),)?
                }
            }

            fn nodes(&self) -> Vec<u64> {
                use $crate::issue::Say as _;
                match self {
                    $($issue::$name { $($field),* } => [$($field.node()),*].into_iter().flatten().collect(),)*
                    $($issue::$tree(issue) => issue.nodes(),)?
                }
            }

            fn text(&self, paths: &$crate::issue::Paths) -> String {
                use $crate::issue::Say as _;
                match self {
                    $($issue::$name { $($field),* } => {
                        $(let $field = $field.say(paths);)*
                        format!($text)
                    })*
                    $($issue::$tree(issue) => issue.text(paths),)?
                }
            }
        }

        $(impl From<$below> for $issue {
            fn from(issue: $below) -> $issue {
                $issue::$tree(issue)
            }
        })?
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forest::{self, TreeIssue};

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Class {
        Leak,
        Damage,
    }

    impl Class {
        fn of(issue: &TreeIssue) -> Class {
            if issue.class() == forest::Class::Damage { Class::Damage } else { Class::Leak }
        }
    }

    crate::issues! {
        pub(crate) enum Issue: Tree(TreeIssue);
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
        assert_eq!((lost.nodes(), count.nodes()), (vec![7], vec![]));
        assert_eq!(readable(b"x\ny"), "x\\ny");
    }

    #[test]
    fn issues_of_the_tree_are_among_those_of_an_engine() {
        let found = Issue::from(TreeIssue::DirLoop { ino: Node(7) });
        assert_eq!((found.code(), found.severity(), found.class()), ("DirLoop", Severity::Error, Class::Damage));
        assert_eq!((found.text(&Paths::new()), found.nodes()), ("directory 7 lies below itself".into(), vec![7]));
        assert_eq!(Issue::names(), [vec!["Lost", "Count"], TreeIssue::names()].concat());
    }
}
