//! Lines with their numbers, and the numbers in them.

use std::io::{BufRead, Read};

/// No line of a trace is as long as this.
const LONGEST: usize = 64 << 10;

/// The lines of a file.
pub(super) struct Lines<R> {
    from: R,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    pub fn new(from: R) -> Lines<R> {
        Lines { from, number: 0 }
    }

    /// The next line without its end; none at the end of the file.
    pub fn next(&mut self) -> Result<Option<String>, String> {
        let mut line = Vec::new();
        self.number += 1;
        let limited = self.from.by_ref().take(LONGEST as u64 + 1).read_until(b'\n', &mut line);
        let n = limited.map_err(|e| self.wrong(&e.to_string()))?;
        if n == 0 {
            return Ok(None);
        }
        if n > LONGEST {
            return Err(self.wrong(&format!("it is longer than {LONGEST} bytes")));
        }
        while matches!(line.last(), Some(b'\n' | b'\r')) {
            line.pop();
        }
        String::from_utf8(line).map(Some).map_err(|_| self.wrong("it is not text"))
    }

    /// The number of the line that was read last.
    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn wrong(&self, what: &str) -> String {
        in_line(self.number, what)
    }
}

pub(super) fn in_line(number: u64, what: &str) -> String {
    format!("line {number}: {what}")
}

pub(super) fn parse_number(text: &str, name: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{name} is not a number: {text:?}"))
}

pub(super) fn parse_range(offset: &str, len: &str) -> Result<(u64, u64), String> {
    let (offset, len) = (parse_number(offset, "offset")?, parse_number(len, "len")?);
    match offset.checked_add(len) {
        Some(_) => Ok((offset, len)),
        None => Err(format!("{len} bytes at {offset} go past the end of all devices")),
    }
}
