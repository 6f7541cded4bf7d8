//! Many names in one directory.

use crate::growth::point::{GIB, MANY, Point, chosen, drawn, sampled, timed, us};
use crate::growth::record::median;
use anyhow::{Result, ensure};
use arboretum::{OpenOptions, Volume};
use std::time::Instant;

/// The names are no counter: neither ascending nor equal in their ends.
fn name(n: u64) -> String {
    format!("{:08x}.{n}", (n as u32).wrapping_mul(0x9e37_79b1))
}

fn path(n: u64) -> String {
    format!("dir/{}", name(n))
}

pub(super) fn create(point: &mut Point) -> Result<()> {
    let volume = point.format(4 * GIB)?;
    volume.create_dir("dir")?;
    let mut new = OpenOptions::new();
    new.write(true).create_new(true);
    let start = Instant::now();
    let mut times = sampled(point.size, |n| Ok(new.open(&volume, path(n)).map(drop)?))?;
    volume.sync()?;
    point.note("create and sync, all", "us", us(start.elapsed()) / point.size as f64);
    point.note_us("create, the last 2,000", times.split_off(times.len().saturating_sub(MANY as usize)));
    point.close(volume, "close")?;
    point.note_memory("peak memory, create")
}

pub(super) fn cold(point: &mut Point) -> Result<()> {
    let count = point.size;
    point.cold(&[("lookup, cold", &|volume, n| Ok(volume.metadata(path(drawn(n, count))).map(drop)?))])?;
    let mut times = Vec::new();
    for _ in 0..3 {
        point.cool()?;
        let volume = point.open()?;
        times.push(timed(|| list(&volume, count))? / count as f64);
        volume.close()?;
    }
    point.note("readdir, cold, a name", "us", median(&times));
    Ok(())
}

pub(super) fn warm(point: &mut Point) -> Result<()> {
    let volume = point.open()?;
    let count = point.size;
    let rounds = (10_000 / count).clamp(3, 100);
    list(&volume, count)?;
    let times = sampled(rounds, |_| list(&volume, count))?;
    point.note("readdir, warm, a name", "us", median(&times) / count as f64);
    let chosen = chosen(MANY, count);
    let one = |n: u64| chosen[n as usize % chosen.len()];
    for &n in &chosen {
        volume.metadata(path(n))?;
    }
    point.note_us("lookup, warm", sampled(MANY, |n| Ok(volume.metadata(path(one(n))).map(drop)?))?);
    let absent = |n| ensure_absent(&volume, &format!("dir/{:08x}", (n as u32).wrapping_mul(0x85eb_ca6b)));
    point.note_us("lookup of what is not there", sampled(MANY, absent)?);
    let chosen_len = chosen.len() as u64;
    let renamed = |n: u64| format!("dir/{}.r", name(one(n)));
    point.note_us("rename", sampled(chosen_len, |n| Ok(volume.rename(path(one(n)), renamed(n))?))?);
    point.note_us("delete", sampled(chosen_len, |n| Ok(volume.remove_file(renamed(n))?))?);
    volume.close()?;
    point.note_memory("peak memory, use")
}

fn ensure_absent(volume: &Volume, path: &str) -> Result<()> {
    ensure!(!volume.exists(path), "{path} is there");
    Ok(())
}

/// Reads the names as readdir(3) does, some at a time.
fn list(volume: &Volume, wanted: u64) -> Result<()> {
    const BATCH: u32 = 500;
    let fs = volume.file_system();
    let dir = fs.lookup(fs.root(), b"dir")?.ino;
    let (mut cookie, mut count) = (0, 0);
    loop {
        let mut batch = 0;
        let took = fs.readdir(dir, cookie, &mut |entry| {
            if batch == BATCH {
                return false;
            }
            (batch, cookie) = (batch + 1, entry.cookie);
            true
        });
        took?;
        count += u64::from(batch);
        if batch < BATCH {
            break;
        }
    }
    fs.forget(dir, 1);
    ensure!(count == wanted + 2, "{count} names instead of {wanted} and 2");
    Ok(())
}
