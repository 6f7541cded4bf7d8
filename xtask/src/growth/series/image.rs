//! Large images.

use crate::growth::point::{GIB, MANY, MIB, Point, batched, sampled, us};
use anyhow::Result;
use arboretum::device::FileDevice;
use arboretum::vfs::Devices;
use std::time::Instant;

/// Files that the empty volume gets.
const FILES: u64 = 10_000;

pub(super) fn mkfs(point: &mut Point) -> Result<()> {
    let mut times = Vec::new();
    for _ in 0..5 {
        let _ = std::fs::remove_file(&point.image);
        let start = Instant::now();
        point.how().format_on(Devices::single(FileDevice::create(&point.image, point.size * GIB)?))?;
        times.push(us(start.elapsed()));
    }
    point.note_ms("mkfs", times);
    point.note("on the host after mkfs", "KiB", point.bytes_on_host()? as f64 / 1024.0);
    point.note_memory("peak memory, mkfs")
}

pub(super) fn open(point: &mut Point) -> Result<()> {
    point.cold(&[])?;
    point.note_memory("peak memory, open")
}

pub(super) fn create(point: &mut Point) -> Result<()> {
    let volume = point.open()?;
    let times = batched(FILES, 500, |n| {
        if n % 100 == 0 {
            volume.create_dir(format!("d{}", n / 100))?;
        }
        Ok(volume.write(format!("d{}/{n}", n / 100), [1; 1000])?)
    })?;
    point.note_us("create 10,000 files, each", times);
    point.statfs_and_sync(&volume)?;
    point.close(volume, "close")?;
    point.note_memory("peak memory, create")
}

/// Takes most of the space, so that every part of the volume is in use.
pub(super) fn fill(point: &mut Point) -> Result<()> {
    let volume = point.open()?;
    let file = volume.create("full")?;
    let (total, step) = (point.size * GIB / 10 * 9 / MIB * MIB, 64 * GIB);
    let start = Instant::now();
    for at in (0..total).step_by(step as usize) {
        file.allocate(at, step.min(total - at), false)?;
    }
    volume.sync()?;
    point.note("allocate, a GiB", "ms", us(start.elapsed()) / 1e3 / (total as f64 / GIB as f64));
    drop(file);
    point.close(volume, "full: close")?;
    point.note("full: on the host", "MiB", point.bytes_on_host()? as f64 / MIB as f64);
    point.note_memory("full: peak memory, allocate")
}

pub(super) fn open_full(point: &mut Point) -> Result<()> {
    let mut times = Vec::new();
    for _ in 0..5 {
        point.cool()?;
        let start = Instant::now();
        let volume = point.open()?;
        times.push(us(start.elapsed()));
        volume.close()?;
    }
    point.note_ms("full: open, cold", times);
    point.note_memory("full: peak memory, open")?;
    let volume = point.open()?;
    point.note_us("full: statfs", sampled(MANY, |_| Ok(volume.statfs().map(drop)?))?);
    volume.create_dir("more")?;
    let times = batched(1000, 100, |n| Ok(volume.write(format!("more/{n}"), [1; 1000])?))?;
    point.note_us("full: create 1,000 files, each", times);
    Ok(volume.close()?)
}

pub(super) fn check_full(point: &mut Point) -> Result<()> {
    point.check("full: check", "full: peak memory, check")
}
