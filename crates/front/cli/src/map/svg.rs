//! The picture by hand as SVG.

use super::layout::{Layout, Row, Run, What, file_of};
use super::survey::{Survey, extents_label, free_label};
use super::{Class, Facts, KINDS};
use crate::show;
use arboretum::vfs::Ino;
use std::fmt::Write;

pub(super) const COLUMNS: usize = 160;
pub(super) const MAX_ROWS: usize = 88;
pub(super) const GAP_COLUMNS: usize = 12;

const CELL: usize = 6;
const ROW: usize = 12;
const ROW_STEP: usize = 15;
const LEFT: usize = 104;
const TOP: usize = 152;
const RIGHT: usize = 40;
const WIDTH: usize = LEFT + COLUMNS * CELL + RIGHT;
const FOOT: usize = 196;

const STYLE: &str = "text{font-family:'Inter','Helvetica Neue',Arial,sans-serif;fill:#1f2933}\
    .t{font-size:22px;font-weight:600}.s{font-size:13px;fill:#52606d}.l{font-size:12px}\
    .o{font-size:10px;fill:#7b8794;text-anchor:end;font-variant-numeric:tabular-nums}\
    .g{font-size:9px;fill:#52606d;text-anchor:middle}.h{font-size:13px;font-weight:600}\
    .n{font-size:11px;fill:#52606d}.e{text-anchor:end}";

pub(super) fn draw(facts: &Facts, layout: &Layout, survey: &Survey) -> String {
    let map_end = TOP + layout.rows.len() * ROW_STEP;
    let height = map_end + FOOT;
    let mut out = String::new();
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\"><style>{STYLE}</style>\
         <defs><pattern id=\"cut\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
         patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#f5f7fa\"/>\
         <rect width=\"1.2\" height=\"6\" fill=\"#cbd2d9\"/></pattern></defs>\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>"
    );
    head(facts, layout, survey, &mut out);
    legend(survey, &mut out);
    for (i, row) in layout.rows.iter().enumerate() {
        draw_row(row, TOP + i * ROW_STEP, layout.unit, &mut out);
    }
    foot(survey, map_end + 36, &mut out);
    out.push_str("</svg>\n");
    out
}

fn head(facts: &Facts, layout: &Layout, survey: &Survey, out: &mut String) {
    text(out, LEFT, 42, "t", &facts.name);
    text(out, LEFT, 64, "s", &format!("{} — {}", facts.subtitle, survey.sentences()[0]));
    let mut note = format!("A cell is {}; read it line by line.", show::bytes(layout.unit));
    if layout.gaps > 0 {
        let places = show::of(layout.gaps, "place", "places");
        let bytes = show::bytes(layout.left_out);
        let _ = match layout.hidden {
            0 => write!(note, " Hatched: {bytes} of free space are left out in {places}."),
            n => write!(
                note,
                " Hatched: {bytes} without files are left out in {places} ({} of structures).",
                show::bytes(n)
            ),
        };
    }
    text(out, LEFT, 83, "s", &note);
}

fn text(out: &mut String, x: usize, y: usize, class: &str, text: &str) {
    let _ = write!(out, "<text x=\"{x}\" y=\"{y}\" class=\"{class}\">{}</text>", escaped(text));
}

fn escaped(text: &str) -> String {
    let one = |c: char| match c {
        '&' => "&amp;".to_string(),
        '<' => "&lt;".to_string(),
        '>' => "&gt;".to_string(),
        '"' => "&quot;".to_string(),
        // XML has no way to say them.
        c if c.is_control() => "\u{fffd}".to_string(),
        c => c.to_string(),
    };
    text.chars().map(one).collect()
}

fn hex(colour: [u8; 3]) -> String {
    format!("#{:02x}{:02x}{:02x}", colour[0], colour[1], colour[2])
}

/// One line: structures that are there, files, free space.
fn legend(survey: &Survey, out: &mut String) {
    let mut entries: Vec<(String, Vec<String>)> = Vec::new();
    for (kind, name, _) in KINDS {
        if let Some((_, share)) = survey.kinds.iter().find(|(k, _)| *k == kind) {
            entries.push((format!("{name} {}", show::bytes(share.bytes)), vec![hex(Class::Meta(kind).colour())]));
        }
    }
    let files = (1..=4).map(|n| hex(Class::File(Some(Ino(n * 77))).colour())).collect();
    entries.push((format!("files {}", show::bytes(survey.data.bytes)), files));
    entries.push((format!("free {}", show::bytes(survey.free())), vec!["#ffffff".into()]));
    let (mut x, mut y) = (LEFT, 106);
    for (label, colours) in entries {
        let swatch = 12 + 7 * (colours.len() - 1);
        let width = swatch + 8 + label.chars().count() * 7 + 14;
        if x + width > WIDTH - RIGHT {
            (x, y) = (LEFT, y + 20);
        }
        for (i, colour) in colours.iter().enumerate().rev() {
            let at = x + 7 * i;
            let _ = write!(
                out,
                "<rect x=\"{at}\" y=\"{}\" width=\"12\" height=\"12\" rx=\"2.5\" fill=\"{colour}\" \
                 stroke=\"#9aa5b1\" stroke-width=\".5\"/>",
                y - 10
            );
        }
        text(out, x + swatch + 6, y, "l", &label);
        x += width;
    }
}

fn draw_row(row: &Row, y: usize, unit: u64, out: &mut String) {
    text(out, LEFT - 10, y + 10, "o", &show::bytes(row.offset));
    let cells: usize = row.runs.last().map_or(0, |r| r.column + r.columns);
    // Free space: white, with a fine edge and a mark a cell so that lengths can be read.
    let _ = write!(
        out,
        "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{}\" height=\"{ROW}\" rx=\"2\" fill=\"#fff\" stroke=\"#d9dee4\" \
         stroke-width=\".7\"/>",
        cells * CELL
    );
    for run in &row.runs {
        draw_run(run, y, unit, out);
    }
}

fn draw_run(run: &Run, y: usize, unit: u64, out: &mut String) {
    let (x, width) = (LEFT + run.column * CELL, run.columns * CELL);
    match run.what {
        What::Free => {}
        What::Gap(len) => {
            let _ = write!(
                out,
                "<g><title>{} free, left out</title><rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{ROW}\" \
                 fill=\"url(#cut)\"/>",
                show::bytes(len)
            );
            if run.columns >= GAP_COLUMNS {
                let middle = x + width / 2;
                let _ = write!(
                    out,
                    "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"3\" fill=\"#fff\" fill-opacity=\".9\"/>",
                    x + 12,
                    y + 1,
                    width - 24,
                    ROW - 2
                );
                text(out, middle, y + 9, "g", &show::bytes(len));
            }
            out.push_str("</g>");
        }
        What::Used { class, share, accent } => {
            // A cell is filled from below as far as it is in use.
            let fill = hex(class.colour());
            let level = ((share * ROW as f64).round() as usize).clamp(2, ROW);
            let title = escaped(&title(run, class, unit));
            let _ = write!(
                out,
                "<g><title>{title}</title><rect x=\"{x}\" y=\"{}\" width=\"{width}\" height=\"{level}\" rx=\"1.5\" \
                 fill=\"{fill}\"/>",
                y + ROW - level
            );
            if let Some(kind) = accent.filter(|_| level > 2) {
                let colour = hex(Class::Meta(kind).colour());
                let _ = write!(
                    out,
                    "<rect x=\"{x}\" y=\"{}\" width=\"{width}\" height=\"3\" fill=\"{colour}\"/>",
                    y + ROW - 3
                );
            }
            out.push_str("</g>");
        }
    }
}

fn title(run: &Run, class: Class, unit: u64) -> String {
    let name = match (class, file_of(&run.what)) {
        (_, Some(ino)) => format!("file, inode {ino}"),
        (Class::Meta(kind), _) => {
            KINDS.iter().find(|(k, _, _)| *k == kind).map_or("data", |(_, name, _)| name).to_string()
        }
        (Class::File(_), None) => "data".to_string(),
    };
    format!("{name} at {:#x}, up to {}", run.offset, show::bytes(run.columns as u64 * unit))
}

/// Two small charts: files by pieces, free space by length of its stretches.
fn foot(survey: &Survey, y: usize, out: &mut String) {
    if let Some(sentence) = survey.sentences().get(1) {
        text(out, LEFT, y - 8, "s", sentence);
    }
    let half = COLUMNS * CELL / 2;
    let files: Vec<(String, u64, String)> =
        survey.by_extents.iter().enumerate().map(|(class, n)| (extents_label(class), *n, show::count(*n))).collect();
    chart("Files by number of extents", &files, "#6c8ebf", LEFT, y + 22, half - 40, out);
    let free: Vec<(String, u64, String)> = survey
        .free_by_len
        .iter()
        .enumerate()
        .map(|(class, bytes)| (free_label(class), *bytes, show::bytes(*bytes)))
        .collect();
    chart("Free space by length of its stretches", &free, "#9fb3a5", LEFT + half, y + 22, half - 40, out);
}

fn chart(
    heading: &str,
    bars: &[(String, u64, String)],
    colour: &str,
    x: usize,
    y: usize,
    width: usize,
    out: &mut String,
) {
    text(out, x, y, "h", heading);
    let most = bars.iter().map(|b| b.1).max().unwrap_or(0).max(1);
    // More than fit are put together by leaving out the empty ones at the start.
    let first = bars.iter().position(|b| b.1 > 0).unwrap_or(0);
    for (i, (label, value, shown)) in bars.iter().skip(first).take(6).enumerate() {
        let y = y + 12 + i * 18;
        let length = (*value as f64 / most as f64 * (width - 170) as f64).round() as usize;
        text(out, x + 70, y + 11, "n e", label);
        let _ = write!(
            out,
            "<rect x=\"{}\" y=\"{y}\" width=\"{}\" height=\"13\" rx=\"2\" fill=\"{colour}\"/>",
            x + 78,
            length.max(usize::from(*value > 0))
        );
        text(out, x + 84 + length, y + 11, "n", shown);
    }
}
