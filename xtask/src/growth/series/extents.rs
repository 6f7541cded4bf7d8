//! Many extents in one file.

use crate::growth::point::{GIB, MANY, Point, chosen, drawn, sampled, timed, us};
use anyhow::{Result, ensure};
use arboretum::{File, OpenOptions, Volume};
use std::time::Instant;

const BLOCK: u64 = 4096;
/// Offset of an extent: every other block.
fn at(n: u64) -> u64 {
    2 * n * BLOCK
}

/// Files to remove, so that a few extents give several samples; half of them are truncated.
fn removed(point: &Point) -> u64 {
    if point.size < 1000 { 40 } else { 2 }
}

fn fill(volume: &Volume, path: &str, count: u64) -> Result<Vec<f64>> {
    let file = volume.create(path)?;
    let times = sampled(count, |n| Ok(file.write_at(&[n as u8; BLOCK as usize], at(n)).map(drop)?))?;
    file.sync_all()?;
    Ok(times)
}

fn writable(volume: &Volume, path: &str) -> Result<File> {
    Ok(OpenOptions::new().read(true).write(true).open(volume, path)?)
}

pub(super) fn write(point: &mut Point) -> Result<()> {
    let volume = point.format(8 * GIB)?;
    // What the first write of a process costs does not belong to the file.
    fill(&volume, "warm", 100)?;
    let start = Instant::now();
    let mut times = fill(&volume, "file", point.size)?;
    point.note("write and fsync, an extent", "us", us(start.elapsed()) / point.size as f64);
    point.note_us("write, the last 2,000", times.split_off(times.len().saturating_sub(MANY as usize)));
    for n in 0..removed(point) {
        fill(&volume, &format!("remove{n}"), point.size)?;
    }
    point.close(volume, "close")?;
    point.note_memory("peak memory, write")
}

pub(super) fn cold(point: &mut Point) -> Result<()> {
    let count = point.size;
    let read = |volume: &Volume, n: u64| {
        let mut block = [0; BLOCK as usize];
        let read = volume.open_file("file")?.read_at(&mut block, at(drawn(n, count)))?;
        ensure!(read == block.len() && block[0] == drawn(n, count) as u8, "not what was written");
        Ok(())
    };
    point.cold(&[("open file, read 4 KiB, cold", &read)])
}

pub(super) fn warm(point: &mut Point) -> Result<()> {
    let volume = point.open()?;
    let file = writable(&volume, "file")?;
    let chosen = chosen(MANY, point.size);
    let one = |n: u64| at(chosen[n as usize % chosen.len()]);
    let mut block = [1; BLOCK as usize];
    for n in 0..chosen.len() as u64 {
        file.read_at(&mut block, one(n))?;
    }
    point.note_us("read 4 KiB, warm", sampled(MANY, |n| Ok(file.read_at(&mut block, one(n)).map(drop)?))?);
    point.note_us("SEEK_HOLE, warm", sampled(MANY, |n| is(file.next_hole(one(n))?, one(n) + BLOCK))?);
    let data = |n: u64| is(file.next_data((one(n) + 1).saturating_sub(BLOCK))?.unwrap_or(0), one(n));
    point.note_us("SEEK_DATA, warm", sampled(MANY, data)?);
    point.note_us("overwrite", sampled(MANY, |n| Ok(file.write_at(&block, one(n)).map(drop)?))?);
    point.note("fsync after that", "ms", timed(|| Ok(file.sync_all()?))? / 1e3);
    // Half of them at most: what is around them has to stay as it was.
    let holes = (chosen.len() as u64).min(point.size.div_ceil(2));
    point.note_us("punch an extent", sampled(holes, |n| Ok(file.punch_hole(one(n), BLOCK)?))?);
    point.note_us("write into that hole", sampled(holes, |n| Ok(file.write_at(&block, one(n)).map(drop)?))?);
    drop(file);
    volume.close()?;
    point.note_memory("peak memory, use")
}

fn is(found: u64, wanted: u64) -> Result<()> {
    ensure!(found == wanted, "{found} instead of {wanted}");
    Ok(())
}

/// The space goes back after the call, so that closing belongs to it.
fn without(point: &mut Point, what: &str, call: impl Fn(&Volume, u64) -> Result<()>) -> Result<()> {
    let volume = point.open()?;
    let half = removed(point) / 2;
    let start = Instant::now();
    point.note_ms(&format!("{what}, the call"), sampled(half, |n| call(&volume, n))?);
    volume.close()?;
    let us_each = us(start.elapsed()) / (half * point.size) as f64;
    point.note(&format!("{what} and close, an extent"), "us", us_each);
    Ok(())
}

pub(super) fn remove(point: &mut Point) -> Result<()> {
    without(point, "truncate", |volume, n| Ok(writable(volume, &format!("remove{n}"))?.set_len(0)?))?;
    let first = removed(point) / 2;
    without(point, "delete", |volume, n| Ok(volume.remove_file(format!("remove{}", first + n))?))?;
    point.note_memory("peak memory, truncate and delete")
}
