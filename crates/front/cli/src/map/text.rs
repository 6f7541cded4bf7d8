//! The picture in letters, for a terminal.

use super::layout::{Layout, Row, Run, What};
use super::survey::Survey;
use super::{Class, Facts, KINDS};
use crate::show;
use std::fmt::Write as _;
use std::io::{self, Write};

const MAX_ROWS: usize = 32;
const LABEL: usize = 9;
const GAP_COLUMNS: usize = 10;

pub(super) fn draw(facts: &Facts, survey: &Survey, width: usize, has_colour: bool) -> String {
    let columns = width.saturating_sub(LABEL + 2).clamp(32, 128);
    let layout = Layout::new(&facts.regions, facts.size, columns, MAX_ROWS, GAP_COLUMNS);
    let mut out = String::new();
    let _ = writeln!(out, "{}", clip(&format!("{}: {}", facts.name, facts.subtitle), width));
    let mut note = format!("a cell is {}", show::bytes(layout.unit));
    if layout.gaps > 0 {
        let _ = write!(note, "; [..] {} left out", show::bytes(layout.left_out));
    }
    let _ = writeln!(out, "{}\n", clip(&note, width));
    for row in &layout.rows {
        draw_row(row, has_colour, &mut out);
    }
    out.push('\n');
    legend(survey, width, has_colour, &mut out);
    for sentence in survey.sentences() {
        wrap(&sentence, width, &mut out);
    }
    out
}

/// The counts, one a line.
pub(super) fn summary(survey: &Survey, out: &mut dyn Write) -> io::Result<()> {
    survey.sentences().iter().try_for_each(|sentence| writeln!(out, "{sentence}"))
}

fn draw_row(row: &Row, has_colour: bool, out: &mut String) {
    let _ = write!(out, "{:>LABEL$}  ", show::bytes(row.offset));
    for run in &row.runs {
        draw_run(run, has_colour, out);
    }
    out.push('\n');
}

fn draw_run(run: &Run, has_colour: bool, out: &mut String) {
    match run.what {
        What::Free => out.push_str(&"·".repeat(run.columns)),
        What::Gap(_) if run.columns < GAP_COLUMNS => out.push_str("[]"),
        What::Gap(len) => {
            let inner = run.columns - 2;
            let _ = write!(out, "[{:^inner$}]", clip(&show::bytes(len), inner));
        }
        What::Used { class, share, .. } => {
            let glyph = glyph(class, share, has_colour);
            if has_colour {
                let [r, g, b] = class.colour();
                let ink = if matches!(class, Class::Meta(_)) { 97 } else { 30 };
                let _ = write!(out, "\x1b[48;2;{r};{g};{b};{ink}m{}\x1b[0m", glyph.repeat(run.columns));
            } else {
                out.push_str(&glyph.repeat(run.columns));
            }
        }
    }
}

fn glyph(class: Class, share: f64, has_colour: bool) -> String {
    match class {
        Class::Meta(kind) => KINDS.iter().find(|(k, _, _)| *k == kind).map_or('o', |(_, _, c)| *c).to_string(),
        Class::File(_) if has_colour => " ".to_string(),
        Class::File(_) => if share > 0.5 { "#" } else { "+" }.to_string(),
    }
}

fn legend(survey: &Survey, width: usize, has_colour: bool, out: &mut String) {
    let mut line = 0;
    let mut put = |plain: String, painted: String, out: &mut String| {
        let len = plain.chars().count() + 3;
        if line + len > width && line > 0 {
            out.push('\n');
            line = 0;
        }
        line += len;
        out.push_str(&painted);
        out.push_str("   ");
    };
    for (kind, name, letter) in KINDS {
        if let Some((_, share)) = survey.kinds.iter().find(|(k, _)| *k == kind) {
            let rest = format!(" {name} {}", show::bytes(share.bytes));
            let [r, g, b] = Class::Meta(kind).colour();
            let mark =
                if has_colour { format!("\x1b[48;2;{r};{g};{b};97m{letter}\x1b[0m") } else { letter.to_string() };
            put(format!("{letter}{rest}"), format!("{mark}{rest}"), out);
        }
    }
    let mark = if has_colour { "coloured" } else { "# +" };
    let files = format!("{mark} files {}", show::bytes(survey.data.bytes));
    put(files.clone(), files, out);
    let free = format!("· free {}", show::bytes(survey.free()));
    put(free.clone(), free, out);
    // Lines do not end in spaces.
    while out.ends_with(' ') {
        out.pop();
    }
    *out = out.replace("   \n", "\n");
    out.push('\n');
}

fn clip(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

fn wrap(text: &str, width: usize, out: &mut String) {
    let mut line = 0;
    for word in text.split(' ') {
        let len = word.chars().count();
        if line > 0 && line + 1 + len > width {
            out.push('\n');
            line = 0;
        } else if line > 0 {
            out.push(' ');
            line += 1;
        }
        out.push_str(word);
        line += len;
    }
    out.push('\n');
}
