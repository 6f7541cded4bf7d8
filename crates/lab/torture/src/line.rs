//! The line that repeats a failure: which kind it is, and what its words say.

use crate::{concurrent, faults, machine, mutate};
use arbor_base::vfs::Engine;
use std::fmt::Debug;
use std::str::FromStr;

/// Does what a line says.
pub(crate) type Again<'a> = Box<dyn FnOnce() -> Result<(), String> + 'a>;

/// Does once more what the line of a failure says. The error is that the line cannot be read; what
/// comes of one that can be is inside.
pub fn repeat(engine: &'static dyn Engine, line: &str) -> Result<Result<(), String>, String> {
    Ok(read(engine, line)?())
}

/// Reads the line of a failure of any kind.
pub(crate) fn read(engine: &'static dyn Engine, line: &str) -> Result<Again<'static>, String> {
    let has = |key: &str| line.split_whitespace().any(|w| w.split_once('=').is_some_and(|(k, _)| k == key));
    if has("changes") {
        mutate::read(engine, line)
    } else if has("schedule") {
        concurrent::read(engine, line)
    } else if has("fault") {
        faults::read(engine, line)
    } else if has("ops") || has("damage") {
        machine::read(engine, line)
    } else {
        Err(format!(
            "{line:?} is no line of a failure; these have ops= (operations; with fault= under a fault, with grow= on \
             a volume that grows), repair= and damage= (a repair), image= and changes= (a damaged image), or \
             schedule=, setup= and tasks= (several tasks at once)"
        ))
    }
}

/// Repeats lines that failed once, of any kind; panics at the first that fails still.
pub fn all_pass(engine: &'static dyn Engine, lines: &[&str]) {
    for line in lines {
        repeat(engine, line).and_then(|done| done).unwrap_or_else(|e| panic!("{line}: {e}"));
    }
}

/// Reads the words `key=value` that stand before what a line repeats. `take` says `false` if it does
/// not know the key.
pub(crate) fn words<'a>(
    head: &'a str,
    mut take: impl FnMut(&'a str, &'a str) -> Result<bool, String>,
) -> Result<(), String> {
    for word in head.split_whitespace() {
        let (key, value) = word.split_once('=').ok_or_else(|| format!("{word:?} is not key=value"))?;
        match take(key, value) {
            Ok(true) => {}
            Ok(false) => return Err(format!("unknown key {key:?}")),
            Err(e) => return Err(format!("{key}: {e}")),
        }
    }
    Ok(())
}

pub(crate) fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is no number"))
}

/// The one of `all` that has this name.
pub(crate) fn one_of<T: Debug>(all: impl IntoIterator<Item = T>, name: &str) -> Result<T, String> {
    let mut known = Vec::new();
    for one in all {
        let text = format!("{one:?}");
        let its = text.split('(').next().unwrap_or_default();
        if its == name {
            return Ok(one);
        }
        known.push(its.to_string());
    }
    Err(format!("{name:?} is none of {}", known.join(", ")))
}

/// Reads `Name` or `Name(number)` as one of those that `all` makes of the number.
pub(crate) fn variant<T: Debug, const N: usize>(text: &str, all: impl Fn(u64) -> [T; N]) -> Result<T, String> {
    match text.strip_suffix(')').and_then(|t| t.split_once('(')) {
        Some((name, arg)) => one_of(all(number(arg)?), name),
        None => one_of(all(0), text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::generate::Profile;

    #[test]
    fn words_say_what_is_wrong_with_them() {
        let own = |key: &str, value: &str| match key {
            "end" => one_of([Profile::Big, Profile::Sync], value).map(|_| true),
            _ => Ok(false),
        };
        let read = |head: &str| Config::new(Profile::Sync).read(head, &["size", "profile", "extra"], own);
        assert_eq!(read(" size=5 end=Big  extra=log:7 "), Ok(()));
        for (head, why) in [
            ("size", "\"size\" is not key=value"),
            ("size=x", "size: \"x\" is no number"),
            ("end=Bigger", "end: \"Bigger\" is none of Big, Sync"),
            ("profile=x", "profile: \"x\" is none of Small, Big, Dirs, Full, Sync, Churn"),
            ("extra=log", "extra: \"log\" is not ROLE:SIZE"),
            ("size=5 seed=3", "unknown key \"seed\""),
        ] {
            assert_eq!(read(head), Err(why.to_string()));
        }
    }
}
