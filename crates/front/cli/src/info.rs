//! `arbor info`, `resize`, `trim` and `dump`.

use crate::args::{self, DumpArgs, InfoArgs, ResizeArgs, TrimArgs};
use crate::holder;
use crate::image::Image;
use crate::segments;
use crate::show;
use anyhow::{Result, anyhow, bail};
use arboretum::vfs::{Errno, SystemClock, Time, Utilisation, VolumeInfo, parse_size};
use comfy_table::{Table, presets};
use serde_json::{Map, Value, json};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

pub(crate) fn run(args: &InfoArgs, out: &mut dyn Write) -> Result<()> {
    let image = holder::behind(Image::new(&args.image)?.without_options("info")?);
    let info = image.info()?;
    if args.export {
        return export(&image, &info, out);
    }
    let utilisation = image.utilisation();
    if args.json {
        write_json(&as_json(&image, &info, &utilisation), out)?;
    } else {
        table(&image, &info, out)?;
        match &utilisation {
            Ok(Some(u)) => write!(out, "\n{}", segments::draw(u))?,
            Err(e) if image.extra.is_empty() => writeln!(out, "\nsegments: {}", show::clean(e))?,
            _ => {}
        }
    }
    match utilisation {
        // A device that was named is none of the volume, as far as one knows.
        Err(e) if !image.extra.is_empty() => Err(e),
        _ => Ok(()),
    }
}

/// The bytes that are there, if they are fewer than the volume has on this one device.
fn truncated(image: &Image, info: &VolumeInfo) -> Option<u64> {
    let is_one = !info.facts.iter().any(|(key, value)| *key == "devices" && value != "1");
    let there = image.existing_size().ok()??.saturating_sub(image.offset);
    (is_one && there < info.size).then_some(there)
}

pub(crate) fn write_json(value: &Value, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value).map_err(io::Error::from)?;
    writeln!(out)
}

fn as_json(image: &Image, info: &VolumeInfo, utilisation: &Result<Option<Utilisation>>) -> Value {
    let facts: Map<String, Value> = info.facts.iter().map(|(k, v)| (k.replace(' ', "_"), json!(v))).collect();
    let is_truncated = truncated(image, info).is_some();
    let mut all = json!({
        "image": image.path.display().to_string(),
        "engine": info.engine,
        "label": info.label,
        "uuid": show::uuid(info.uuid),
        "size": info.size,
        "clean": info.clean && !is_truncated,
        "truncated": is_truncated,
        "mounted_on": holder::mounted_on(&image.path).map(|dir| dir.display().to_string()),
        "failure": holder::failure(&image.path),
        "facts": facts,
    });
    if let Ok(Some(u)) = utilisation {
        all["segments"] = segments::as_json(u);
    }
    all
}

/// The variables of blkid(8). The type is what mount(8) is to be told.
fn export(image: &Image, info: &VolumeInfo, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "DEVNAME={}", quoted(&image.path.display().to_string()))?;
    if !info.label.is_empty() {
        writeln!(out, "LABEL={}", quoted(&info.label))?;
    }
    writeln!(out, "UUID={}", show::uuid(info.uuid))?;
    if let Some((_, size)) = info.facts.iter().find(|(k, _)| k.replace(' ', "_") == "block_size") {
        let bytes = parse_size(&size.replace(' ', "")).map_or_else(|| size.clone(), |n| n.to_string());
        writeln!(out, "BLOCK_SIZE={}", quoted(&bytes))?;
    }
    writeln!(out, "FSSIZE={}", info.size)?;
    writeln!(out, "TYPE=arbor")?;
    writeln!(out, "SUBTYPE={}", info.engine)?;
    writeln!(out, "USAGE=filesystem")?;
    Ok(())
}

/// A value that a shell takes as one word.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,".contains(c);
    show::clean(text).chars().map(|c| if plain(c) { c.to_string() } else { format!("\\{c}") }).collect()
}

fn table(image: &Image, info: &VolumeInfo, out: &mut dyn Write) -> Result<()> {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.add_row(["image".to_string(), show::clean(image.path.display())]);
    table.add_row(["engine".to_string(), info.engine.to_string()]);
    if !info.label.is_empty() {
        table.add_row(["label".to_string(), show::clean(&info.label)]);
    }
    table.add_row(["UUID".to_string(), show::uuid(info.uuid)]);
    table.add_row(["size".to_string(), show::exact_bytes(info.size)]);
    table.add_row(["state".to_string(), state(image, info)]);
    for (key, value) in &info.facts {
        table.add_row([fact_name(key), show::clean(fact(key, value))]);
    }
    writeln!(out, "{}", table.trim_fmt())?;
    Ok(())
}

/// Whether it is clean or in use; what an owner has not yet written in place is not seen.
fn state(image: &Image, info: &VolumeInfo) -> String {
    match image.in_use() {
        Some(text) => format!("{text} (these are the figures on disk; `df` shows the space)"),
        None if let Some(there) = truncated(image, info) => {
            format!("truncated: {} are there", show::exact_bytes(there))
        }
        None if info.clean => "clean".to_string(),
        None => "not unmounted cleanly".to_string(),
    }
}

/// The name of a fact for people. The engines count as a mount whoever opens the volume to write.
fn fact_name(key: &str) -> String {
    match key {
        "mounts" => "opened to write".to_string(),
        "keep" => "keep, by the last mount".to_string(),
        key => key.replace('_', " "),
    }
}

/// A fact for people: sizes with units, points in time as such.
fn fact(key: &str, value: &str) -> String {
    match value.parse::<u64>() {
        Ok(n) if key.replace(' ', "_").ends_with("_size") => show::bytes(n),
        Ok(n) if key == "mounts" => show::of(n, "time", "times"),
        Ok(n) if ["created", "last_commit"].contains(&key) => show::time(Time { secs: n as i64, nanos: 0 }),
        _ => value.to_string(),
    }
}

pub(crate) fn resize(args: &ResizeArgs, out: &mut dyn Write) -> Result<()> {
    let image = Image::new(&args.image)?.without_options("resize")?;
    if let Some(size) = &args.size {
        resize_volume(&image, size, out)?;
    }
    match &args.meta {
        Some(size) => resize_metadata(&image, size, out),
        None => Ok(()),
    }
}

fn resize_volume(image: &Image, text: &str, out: &mut dyn Write) -> Result<()> {
    let (devices, engine) = image.devices(false)?;
    let main = devices.main.clone();
    let volume_size = || arboretum::detect(&*main).ok().flatten().map_or(0, |(_, info)| info.size);
    let (path, has) = (image.path.display(), volume_size());
    // A volume may go on on another device.
    let old = main.geometry().size.max(has);
    let size = new_size(text, old).map_err(|why| anyhow!("{text:?}: {why}"))?;
    if size < has {
        let (has, size) = (show::exact_bytes(has), show::exact_bytes(size));
        bail!("{path}: shrinking is not implemented: the volume has {has}, asked for are {size}");
    }
    if image.offset != 0 {
        bail!("{path}: a volume inside a larger file cannot be resized");
    }
    engine.resize(devices, size, Arc::new(SystemClock)).map_err(|e| match e.errno() {
        Errno::EOPNOTSUPP => anyhow!("{path}: a volume of {} keeps its size: {e}", engine.name()),
        _ => anyhow!("{path}: {e}"),
    })?;
    let (now, was) = (volume_size(), show::exact_bytes(has));
    if now == has {
        let size = show::exact_bytes(size);
        writeln!(out, "{path}: nothing changed: the volume has {was}, and {size} make no larger one")?;
    } else {
        writeln!(out, "{path}: {was} -> {}", show::exact_bytes(now))?;
    }
    Ok(())
}

fn resize_metadata(image: &Image, text: &str, out: &mut dyn Write) -> Result<()> {
    let (devices, engine) = image.devices(false)?;
    let (path, main) = (image.path.display(), devices.main.clone());
    let area = || {
        let info = arboretum::detect(&*main).ok().flatten()?.1;
        info.facts.iter().find(|(key, _)| *key == "metadata_size").and_then(|(_, size)| size.parse::<u64>().ok())
    };
    let Some(has) = area() else { bail!("{path}: --meta: {} has no area for metadata", engine.name()) };
    let size = new_size(text, has).map_err(|why| anyhow!("--meta {text:?}: {why}"))?;
    engine.resize_metadata(devices, size, Arc::new(SystemClock)).map_err(|e| anyhow!("{path}: {e}"))?;
    let (now, was) = (area().unwrap_or(has), show::exact_bytes(has));
    if now == has {
        let size = show::exact_bytes(size);
        writeln!(out, "{path}: nothing changed: metadata have {was}, and {size} make no larger area")?;
    } else {
        writeln!(out, "{path}: metadata {was} -> {}", show::exact_bytes(now))?;
    }
    Ok(())
}

fn new_size(text: &str, old: u64) -> Result<u64, String> {
    let size = match (text.strip_prefix('+'), text.strip_prefix('-')) {
        (Some(number), _) => old.saturating_add(args::size(number)?),
        (_, Some(number)) => old.saturating_sub(args::size(number)?),
        _ => args::size(text)?,
    };
    if size > i64::MAX.unsigned_abs() { Err(args::TOO_LARGE.into()) } else { Ok(size) }
}

pub(crate) fn trim(args: &TrimArgs, out: &mut dyn Write) -> Result<()> {
    let image = Image::new(&args.image)?;
    let bytes = match image.path.is_dir() {
        true => trim_mount(&image.path).map_err(|e| match e.kind() {
            io::ErrorKind::PermissionDenied => anyhow!("{}: only root may trim a mount", image.path.display()),
            _ => image.said(e),
        })?,
        false => {
            let volume = image.volume(false)?;
            let bytes = volume.trim()?;
            volume.close()?;
            bytes
        }
    };
    writeln!(out, "{}: {} given back", image.path.display(), show::bytes(bytes))?;
    Ok(())
}

#[cfg(target_os = "linux")]
fn trim_mount(dir: &Path) -> io::Result<u64> {
    arbor_fuse::trim(&holder::mount_of(dir)?.0)
}

#[cfg(not(target_os = "linux"))]
fn trim_mount(_dir: &Path) -> io::Result<u64> {
    Err(io::ErrorKind::IsADirectory.into())
}

pub(crate) fn dump(args: &DumpArgs, out: &mut dyn Write) -> Result<()> {
    let image = Image::new(&args.image)?.without_options("dump")?;
    let (devices, engine) = image.devices(true)?;
    let what: Vec<&str> = args.what.iter().flat_map(|words| words.split_whitespace()).collect();
    let value = engine.dump(&devices, &what).map_err(|e| anyhow!("{}: {e}", image.path.display()))?;
    if args.json {
        write_json(&value, out)?;
    } else {
        pretty(&value, 0, out)?;
    }
    Ok(())
}

/// JSON as indented lines, without the punctuation.
fn pretty(value: &Value, depth: usize, out: &mut dyn Write) -> io::Result<()> {
    match value {
        Value::Object(map) => {
            let width = map.iter().filter(|(_, v)| is_short(v)).map(|(k, _)| k.chars().count()).max().unwrap_or(0);
            for (key, value) in map {
                pretty_field(key, width, value, depth, out)?;
            }
            Ok(())
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                pretty_field(&format!("[{i}]"), 0, item, depth, out)?;
            }
            Ok(())
        }
        short => writeln!(out, "{:depth$}{}", "", short_text(short)),
    }
}

fn pretty_field(key: &str, width: usize, value: &Value, depth: usize, out: &mut dyn Write) -> io::Result<()> {
    if is_short(value) {
        return writeln!(out, "{:depth$}{:width$}  {}", "", show::clean(key), short_text(value));
    }
    writeln!(out, "{:depth$}{}", "", show::clean(key))?;
    pretty(value, depth + 2, out)
}

/// Whether a value fits after its name.
fn is_short(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => {
            items.iter().all(|i| !i.is_array() && !i.is_object()) && short_text(value).chars().count() <= 80
        }
        _ => true,
    }
}

fn short_text(value: &Value) -> String {
    match value {
        Value::String(s) => show::clean(s),
        Value::Null => "-".into(),
        Value::Array(items) => items.iter().map(short_text).collect::<Vec<_>>().join(" "),
        Value::Object(_) => "-".into(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_may_be_relative() {
        assert_eq!(new_size("+1K", 1024), Ok(2048));
        assert_eq!(new_size("-1K", 1024), Ok(0));
        assert_eq!(new_size("-2K", 1024), Ok(0));
        assert_eq!(new_size("1G", 0), Ok(1 << 30));
        for huge in ["99999999T", "9000000T", "99999999999999999999999"] {
            assert_eq!(new_size(huge, 0), Err(args::TOO_LARGE.into()));
        }
        for nonsense in ["", "+", "T", "1X", "+-1"] {
            assert!(new_size(nonsense, 0).unwrap_err().starts_with("not a size"), "{nonsense}");
        }
    }

    #[test]
    fn a_dump_reads_as_text() {
        let value = json!({ "ino": 3, "extents": [{ "block": 7, "len": 2 }], "list": [1, 2], "none": null });
        let mut out = Vec::new();
        pretty(&value, 0, &mut out).unwrap();
        let want = "extents\n  [0]\n    block  7\n    len    2\nino   3\nlist  1 2\nnone  -\n";
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }

    #[test]
    fn values_are_quoted_for_the_shell() {
        assert_eq!(quoted("my disk$"), "my\\ disk\\$");
    }
}
