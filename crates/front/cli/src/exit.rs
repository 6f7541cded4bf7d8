//! How a command ends: an exit code, and one line that says why.

use crate::interrupt::INTERRUPTED;
use crate::show;
use std::io;
use std::process::ExitCode;

/// A command that failed.
#[derive(Debug)]
pub(crate) struct Exit {
    pub(crate) code: u8,
    pub(crate) error: anyhow::Error,
}

/// What a shell shows for a process that SIGPIPE ended.
const BROKEN_PIPE: u8 = 141;

impl<E: Into<anyhow::Error>> From<E> for Exit {
    fn from(e: E) -> Exit {
        let error = e.into();
        let code = match io_kind(&error) {
            Some(io::ErrorKind::BrokenPipe) => BROKEN_PIPE,
            Some(io::ErrorKind::Interrupted) => INTERRUPTED,
            _ => 1,
        };
        Exit { code, error }
    }
}

impl Exit {
    /// A failure with a code of its own.
    pub(crate) fn with(code: u8, error: impl Into<anyhow::Error>) -> Exit {
        Exit { code, error: error.into() }
    }

    /// Says why, unless nobody listens.
    pub(crate) fn tell(&self, who: &str) {
        if !is_broken_pipe(&self.error) {
            show::tell(format_args!("{who}: {}", one_line(&self.error)));
        }
    }
}

/// Whether nobody reads any more what is written.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    io_kind(error) == Some(io::ErrorKind::BrokenPipe)
}

fn io_kind(error: &anyhow::Error) -> Option<io::ErrorKind> {
    error.downcast_ref::<io::Error>().map(io::Error::kind)
}

fn one_line(error: &anyhow::Error) -> String {
    // A context that repeats what the cause says would be read twice.
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        // The words of strerror(3) may be the name of a file.
        let is_words = cause.contains(" (os error ") && !text.contains(": ");
        let repeats = mentions(&plain(&cause), &text) && !is_words;
        if !mentions(&text, &plain(&cause)) && !repeats {
            text = format!("{text}: {cause}");
        }
    }
    show::clean(plain(&text).replace('\n', " "))
}

/// Whether a text has these words; a short name is no part of another word.
fn mentions(text: &str, words: &str) -> bool {
    text.match_indices(words).any(|(at, found)| {
        let ends = [text[..at].chars().next_back(), text[at + found.len()..].chars().next()];
        !ends.into_iter().flatten().any(char::is_alphanumeric)
    })
}

/// Without the numbers that the standard library appends to the words of strerror(3).
fn plain(text: &str) -> String {
    match text.split_once(" (os error ") {
        Some((words, rest)) => format!("{words}{}", rest.split_once(')').map_or("", |(_, rest)| rest)),
        None => text.to_string(),
    }
}

pub(crate) fn exit_code(code: u8) -> ExitCode {
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn reasons_are_told_once_and_without_numbers() {
        let error = Err::<(), _>(io::Error::from_raw_os_error(2)).context("x.img").unwrap_err();
        assert_eq!(one_line(&error), "x.img: No such file or directory");
        for name in ["n", "o", "file"] {
            let error = Err::<(), _>(io::Error::from_raw_os_error(2)).context(name).unwrap_err();
            let told = one_line(&error.context(format!("open {name}")).context(name));
            assert!(told.ends_with(&format!("{name}: No such file or directory")), "{told}");
        }
        let error = anyhow::anyhow!("open x: Is a file (os error 2)").context("x: Is a file");
        assert_eq!(one_line(&error), "x: Is a file");
        let error = anyhow::anyhow!("open x.img: bad").context("x.img: bad");
        assert_eq!(one_line(&error), "x.img: bad");
    }
}
