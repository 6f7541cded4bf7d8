//! Large caches.

use crate::growth::point::{GIB, MIB, Point, chosen, drawn, us};
use anyhow::Result;
use std::time::Instant;

const IN_DIR: u64 = 1000;
const BLOCK: u64 = 4096;
/// Random blocks that are read.
const READS: u64 = 10_000;

fn files(point: &Point) -> u64 {
    if point.is_quick { 10_000 } else { 100_000 }
}

fn big_mib(point: &Point) -> u64 {
    if point.is_quick { 51 } else { 512 }
}

fn path(n: u64) -> String {
    format!("d{:03}/{n}", n / IN_DIR)
}

pub(super) fn create(point: &mut Point) -> Result<()> {
    let volume = point.format(4 * GIB)?;
    let count = files(point);
    let start = Instant::now();
    for n in 0..count {
        if n % IN_DIR == 0 {
            volume.create_dir(format!("d{:03}", n / IN_DIR))?;
        }
        volume.write(path(n), [n as u8; BLOCK as usize])?;
    }
    volume.sync()?;
    point.note("create and sync, a file", "us", us(start.elapsed()) / count as f64);
    let file = volume.create("big")?;
    let start = Instant::now();
    for n in 0..big_mib(point) {
        file.write_at(&vec![n as u8; MIB as usize], n * MIB)?;
    }
    volume.sync()?;
    point.note("write and sync, a MiB", "ms", us(start.elapsed()) / 1e3 / big_mib(point) as f64);
    drop(file);
    volume.close()?;
    point.note_memory("peak memory, create")
}

pub(super) fn all(point: &mut Point) -> Result<()> {
    point.cool()?;
    let volume = point.open()?;
    let count = files(point);
    let mean = |rounds: u64, call: &dyn Fn(u64) -> Result<()>| {
        let start = Instant::now();
        (0..rounds).try_for_each(call)?;
        anyhow::Ok(us(start.elapsed()) / rounds as f64)
    };
    let order = chosen(count, count);
    let stat = |n: u64| Ok(volume.metadata(path(order[n as usize])).map(drop)?);
    point.note("stat, each once at random, cold", "us", mean(count, &stat)?);
    point.note("the same again", "us", mean(count, &stat)?);
    let file = volume.open_file("big")?;
    let blocks = big_mib(point) * MIB / BLOCK;
    let read = |n: u64| Ok(file.read_at(&mut [0; BLOCK as usize], drawn(n, blocks) * BLOCK).map(drop)?);
    point.note("read 4 KiB at random, cold", "us", mean(READS, &read)?);
    point.note("the same 4 KiB again", "us", mean(READS, &read)?);
    let chunk = |n: u64| Ok(file.read_at(&mut vec![0; MIB as usize], n * MIB).map(drop)?);
    point.note("read in sequence, a MiB", "ms", mean(big_mib(point), &chunk)? / 1e3);
    point.note("the same sequence again, a MiB", "ms", mean(big_mib(point), &chunk)? / 1e3);
    drop(file);
    volume.close()?;
    point.note_memory("peak memory, use")
}
