//! Numbers, times and names for people.

use arboretum::Metadata;
use arboretum::vfs::{FileType, Time};
use std::fmt;
use std::io::{IsTerminal, Write as _};

/// Bytes with a unit, three digits at least.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {}", UNITS[unit])
}

/// A count with a thin grouping of thousands.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Bytes with a unit, and exactly.
pub(crate) fn exact_bytes(n: u64) -> String {
    format!("{} ({} bytes)", bytes(n), count(n))
}

/// A number and what it counts, in the plural if need be.
pub(crate) fn of(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { many })
}

/// A time in the zone of the user.
pub(crate) fn time(t: Time) -> String {
    match jiff::Timestamp::new(t.secs, t.nanos as i32) {
        Ok(at) => at.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M").to_string(),
        Err(_) => t.secs.to_string(),
    }
}

/// A time to the nanosecond, with its zone.
pub(crate) fn exact_time(t: Time) -> String {
    match jiff::Timestamp::new(t.secs, t.nanos as i32) {
        Ok(at) => at.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S.%9f %z").to_string(),
        Err(_) => format!("{}.{:09}", t.secs, t.nanos),
    }
}

/// A time for programs.
pub(crate) fn json_time(t: Time) -> String {
    match jiff::Timestamp::new(t.secs, t.nanos as i32) {
        Ok(at) => at.to_string(),
        Err(_) => format!("{}.{:09}", t.secs, t.nanos),
    }
}

/// `drwxr-xr-x`.
pub(crate) fn mode(meta: &Metadata) -> String {
    let mode = meta.mode();
    let kind = match meta.file_type() {
        FileType::File => '-',
        FileType::Dir => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::Char => 'c',
        FileType::Block => 'b',
    };
    let mut out = String::from(kind);
    for (shift, special, set, unset) in [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')] {
        let bits = mode >> shift;
        out.push(if bits & 4 != 0 { 'r' } else { '-' });
        out.push(if bits & 2 != 0 { 'w' } else { '-' });
        out.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => set,
            (false, true) => unset,
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    out
}

/// The word for a kind of file, as JSON has it.
pub(crate) fn kind(kind: FileType) -> &'static str {
    match kind {
        FileType::File => "file",
        FileType::Dir => "directory",
        FileType::Symlink => "symlink",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::Char => "char",
        FileType::Block => "block",
    }
}

/// Says something on standard error, if that can be written: a message that nobody gets is no failure of what it is about.
pub(crate) fn tell(text: impl fmt::Display) {
    drop(writeln!(std::io::stderr(), "{text}"));
}

/// Text that may come from an image, to be printed on one line: what a terminal would obey is a question mark, and
/// so is what turns the order of letters round.
pub(crate) fn clean(text: impl fmt::Display) -> String {
    let obeyed = |c: char| c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.to_string().chars().map(|c| if obeyed(c) { '?' } else { c }).collect()
}

/// A name to print, [clean]. Bytes that are no letters stay as they are in a file or pipe, for programs.
pub(crate) fn name(bytes: &[u8]) -> Vec<u8> {
    let is_terminal = std::io::stdout().is_terminal();
    let piece = |chunk: std::str::Utf8Chunk<'_>| {
        let invalid = if is_terminal && !chunk.invalid().is_empty() { "\u{fffd}".as_bytes() } else { chunk.invalid() };
        [clean(chunk.valid()).as_bytes(), invalid].concat()
    };
    bytes.utf8_chunks().flat_map(piece).collect()
}

/// UUID in its usual form.
pub(crate) fn uuid(bytes: [u8; 16]) -> String {
    uuid::Uuid::from_bytes(bytes).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_not_printed() {
        assert_eq!(clean("a\x1b[2J\u{9b}b\n\u{202e}c\u{7f} ü"), "a?[2J?b??c? ü");
        assert_eq!(name(b"a\x1b\xff\n\xc3\xbc"), b"a?\xff?\xc3\xbc");
    }

    #[test]
    fn sizes_have_few_digits() {
        let all = [0, 1023, 1024, 1536, 10 << 20, 1 << 30, 1023 << 30, (1 << 40) - 1, u64::MAX];
        let shown = all.map(bytes);
        assert_eq!(shown, ["0 B", "1023 B", "1 KiB", "1.5 KiB", "10 MiB", "1 GiB", "1023 GiB", "1 TiB", "16 EiB"]);
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(12), "12");
    }
}
