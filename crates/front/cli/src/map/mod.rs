//! `arbor map`: a picture of where everything lies.
//!
//! `survey` counts, `layout` puts the device into rows of cells, `svg` and `text` draw them.

mod layout;
mod survey;
mod svg;
mod text;

use crate::args::MapArgs;
use crate::image::Image;
use crate::info::write_json;
use crate::show;
use anyhow::{Context, Result, anyhow, bail};
use arboretum::device::Kind;
use arboretum::vfs::{Ino, Region};
use layout::Layout;
use std::fs;
use std::io::{IsTerminal, Write};
use std::path::Path;
use survey::Survey;

/// A picture's worth of facts about one volume.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Name of the image.
    pub name: String,
    /// Engine and label.
    pub subtitle: String,
    /// Size of the device in bytes.
    pub size: u64,
    /// What lies where.
    pub regions: Vec<Region>,
}

pub(crate) fn run(args: &MapArgs, out: &mut dyn Write) -> Result<()> {
    let image = Image::parse(&args.image, &args.options)?.without_options("map")?;
    if let Some(suffix) = args.output.as_deref().and_then(Path::extension).filter(|s| !s.eq_ignore_ascii_case("svg")) {
        let (path, suffix) = (args.output.as_deref().unwrap_or(Path::new("")).display(), suffix.to_string_lossy());
        bail!("{path}: no picture of the kind {suffix:?}: it is SVG, so its name ends in .svg");
    }
    args.output.iter().try_for_each(|path| image.spare(path))?;
    let facts = collect(&image)?;
    if args.json {
        return Ok(write_json(&Survey::new(&facts.regions, facts.size).as_json(), out)?);
    }
    match &args.output {
        Some(path) if path.as_os_str() == "-" => out.write_all(draw_svg(&facts).as_bytes())?,
        Some(path) => {
            fs::write(path, draw_svg(&facts)).with_context(|| path.display().to_string())?;
            writeln!(out, "{}: picture of {}, in SVG", path.display(), args.image.display())?;
            text::summary(&Survey::new(&facts.regions, facts.size), out)?;
        }
        None => {
            let is_terminal = std::io::stdout().is_terminal();
            let width = terminal_width().filter(|_| is_terminal).unwrap_or(80);
            let has_colour = is_terminal && std::env::var_os("NO_COLOR").is_none();
            out.write_all(draw_text(&facts, width, has_colour).as_bytes())?;
        }
    }
    Ok(())
}

fn collect(image: &Image) -> Result<Facts> {
    let info = image.info().ok();
    let (devices, engine) = image.devices(true)?;
    let mut regions = Vec::new();
    let described = engine.describe(&devices, &mut |region| regions.push(region));
    described.map_err(|e| anyhow!("{}: {e}", image.path.display()))?;
    // A volume inside a larger file ends before it does.
    let device_size = devices.main.geometry().size;
    // What an engine tells of further devices lies behind the main one.
    let all = devices.extra.values().fold(device_size, |sum, device| sum.saturating_add(device.geometry().size));
    let size = info.as_ref().map_or(device_size, |info| info.size.min(all));
    let label =
        info.map(|i| i.label).filter(|l| !l.is_empty()).map(|l| format!("“{}”, ", show::clean(l))).unwrap_or_default();
    let name = show::clean(image.path.file_name().unwrap_or_default().display());
    let subtitle = format!("{label}{}, {}", engine.name(), show::bytes(size));
    Ok(Facts { name, subtitle, size, regions })
}

fn terminal_width() -> Option<usize> {
    #[cfg(unix)]
    return rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|w| usize::from(w.ws_col)).filter(|w| *w >= 40);
    #[cfg(not(unix))]
    return None;
}

/// The picture as SVG.
pub fn draw_svg(facts: &Facts) -> String {
    let layout = Layout::new(&facts.regions, facts.size, svg::COLUMNS, svg::MAX_ROWS, svg::GAP_COLUMNS);
    svg::draw(facts, &layout, &Survey::new(&facts.regions, facts.size))
}

/// The picture in letters, with colours if the terminal has them.
pub fn draw_text(facts: &Facts, width: usize, has_colour: bool) -> String {
    text::draw(facts, &Survey::new(&facts.regions, facts.size), width, has_colour)
}

/// What a cell shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Class {
    /// A structure of the file system.
    Meta(Kind),
    /// Data of this file.
    File(Option<Ino>),
}

impl Class {
    pub(crate) fn of(region: &Region) -> Class {
        match region.kind {
            Kind::Data => Class::File(region.owner),
            kind => Class::Meta(kind),
        }
    }

    /// As red, green and blue: structures strong, files pale, each file its own.
    pub(crate) fn colour(self) -> [u8; 3] {
        match self {
            Class::Meta(kind) => kind_colour(kind),
            Class::File(None) => [0xb8, 0xc4, 0xd0],
            Class::File(Some(ino)) => file_colour(ino),
        }
    }
}

/// All kinds with name and letter, in the order of the legend.
pub(crate) const KINDS: [(Kind, &str, char); 9] = [
    (Kind::Super, "superblock", 'S'),
    (Kind::Log, "log", 'L'),
    (Kind::Group, "group headers", 'G'),
    (Kind::Bitmap, "bitmaps", 'B'),
    (Kind::Inode, "inodes", 'I'),
    (Kind::Dir, "directories", 'D'),
    (Kind::Tree, "trees and maps", 'T'),
    (Kind::Xattr, "attributes", 'X'),
    (Kind::Other, "other", 'o'),
];

fn kind_colour(kind: Kind) -> [u8; 3] {
    match kind {
        Kind::Super => [0x1b, 0x1b, 0x2f],
        Kind::Log => [0xd9, 0x48, 0x1c],
        Kind::Group => [0x8a, 0x5a, 0x2b],
        Kind::Bitmap => [0x7a, 0x2e, 0x8e],
        Kind::Inode => [0x0b, 0x7a, 0x4b],
        Kind::Dir => [0x1d, 0x5f, 0xb8],
        Kind::Tree => [0xb5, 0x1f, 0x5c],
        Kind::Xattr => [0x0e, 0x8a, 0x96],
        Kind::Data => [0xb8, 0xc4, 0xd0],
        Kind::Other => [0x6b, 0x6f, 0x76],
    }
}

/// Pale colours, far apart for inodes that are close.
fn file_colour(ino: Ino) -> [u8; 3] {
    let hash = (ino.0 ^ (ino.0 >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hue = (hash >> 40) as f64 / f64::from(1 << 24) * 360.0;
    let saturation = 0.42 + ((hash >> 20) & 0xff) as f64 / 255.0 * 0.26;
    let lightness = 0.70 + ((hash >> 8) & 0xff) as f64 / 255.0 * 0.12;
    from_hsl(hue, saturation, lightness)
}

fn from_hsl(hue: f64, saturation: f64, lightness: f64) -> [u8; 3] {
    let chroma = saturation * lightness.min(1.0 - lightness);
    [0.0, 8.0, 4.0].map(|shift| {
        let k = (shift + hue / 30.0) % 12.0;
        let value = lightness - chroma * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0);
        (value * 255.0).round() as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn region(offset: u64, len: u64, kind: Kind, owner: Option<u64>, file_offset: u64) -> Region {
        Region { offset, len, kind, owner: owner.map(Ino), file_offset, name: String::new() }
    }

    /// Groups with headers, files in one piece and in many, and a great deal of nothing.
    pub(crate) fn sample(groups: u64, group_len: u64) -> Facts {
        let mut regions = vec![region(0, 4096, Kind::Super, None, 0), region(4096, 4 << 20, Kind::Log, None, 0)];
        for group in 0..groups {
            let base = group * group_len + (8 << 20);
            regions.push(region(base, 4096, Kind::Group, None, 0));
            regions.push(region(base + 4096, 32768, Kind::Bitmap, None, 0));
            regions.push(region(base + 65536, 131_072, Kind::Inode, None, 0));
            if group > 12 && group % 700 != 0 {
                continue;
            }
            regions.push(region(base + 200_704, 8192, Kind::Dir, Some(group + 2), 0));
            let mut at = base + (1 << 20);
            for file in 0..40u64 {
                let len = (file % 7 + 1) * 24 * 4096;
                let owner = Some(1000 + group * 64 + file);
                let pieces = if file % 5 == 0 { 4 } else { 1 };
                for piece in 0..pieces {
                    let part = len / pieces / 4096 * 4096;
                    regions.push(region(at, part, Kind::Data, owner, piece * part));
                    at += part + if pieces > 1 || file % 11 == 0 { 65536 } else { 0 };
                }
            }
        }
        Facts { name: "sample.img".into(), subtitle: "yfs".into(), size: groups * group_len, regions }
    }

    #[test]
    fn the_picture_is_well_formed_and_bounded() {
        for facts in [sample(8, 64 << 20), sample(8192, 128 << 20), Facts { regions: Vec::new(), ..sample(1, 1 << 20) }]
        {
            let svg = draw_svg(&facts);
            assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
            assert_eq!(svg.matches("<g").count(), svg.matches("</g>").count());
            assert!(svg.len() < 6 << 20, "{}", svg.len());
            assert!(!svg.contains("NaN"));
        }
        if let Some(dir) = std::env::var_os("ARBOR_MAP_SAMPLES") {
            let dir = std::path::Path::new(&dir);
            std::fs::write(dir.join("small.svg"), draw_svg(&sample(8, 64 << 20))).unwrap();
            std::fs::write(dir.join("large.svg"), draw_svg(&sample(8192, 128 << 20))).unwrap();
            std::fs::write(dir.join("map.txt"), draw_text(&sample(8, 64 << 20), 100, false)).unwrap();
        }
    }

    #[test]
    fn the_map_in_letters_fits_its_width() {
        for width in [60, 80, 133] {
            let text = draw_text(&sample(8192, 128 << 20), width, false);
            assert!(text.lines().all(|l| l.chars().count() <= width), "{text}");
            assert!(text.contains("in one piece"));
        }
    }

    #[test]
    fn colours_are_in_range_and_differ() {
        assert_eq!(from_hsl(0.0, 1.0, 0.5), [255, 0, 0]);
        assert_eq!(from_hsl(120.0, 1.0, 0.5), [0, 255, 0]);
        assert_ne!(file_colour(Ino(1)), file_colour(Ino(2)));
    }
}
