//! Many files.

use crate::growth::point::{GIB, MANY, Point, batched, chosen, drawn, sampled, us};
use anyhow::{Result, ensure};
use std::process::Command;
use std::time::Instant;

const IN_DIR: u64 = 1000;
/// Batches whose creation is looked at by itself.
const LAST: usize = 10;

fn path(n: u64) -> String {
    format!("d{:05}/file{n:08}", n / IN_DIR)
}

pub(super) fn create(point: &mut Point) -> Result<()> {
    let volume = point.format(16 * GIB)?;
    let (count, empty) = (point.size, volume.statfs()?);
    let start = Instant::now();
    let mut times = batched(count, IN_DIR, |n| {
        if n % IN_DIR == 0 {
            volume.create_dir(format!("d{:05}", n / IN_DIR))?;
        }
        Ok(volume.write(path(n), [n as u8; 200])?)
    })?;
    point.note_us("create, the last 10,000", times.split_off(times.len().saturating_sub(LAST)));
    volume.sync()?;
    point.note("create and sync, all", "us", us(start.elapsed()) / count as f64);
    let full = volume.statfs()?;
    let used = (empty.bfree - full.bfree) * u64::from(full.frsize);
    point.close(volume, "close after that")?;
    point.note_memory("peak memory, create")?;
    point.note("used a file, statfs", "bytes", used as f64 / count as f64);
    point.note("used a file, host", "bytes", point.bytes_on_host()? as f64 / count as f64);
    Ok(())
}

pub(super) fn cold(point: &mut Point) -> Result<()> {
    let count = point.size;
    point.cold(&[
        ("lookup and stat, cold", &|volume, n| Ok(volume.metadata(path(drawn(n, count))).map(drop)?)),
        ("read, cold", &|volume, n| Ok(volume.read(path(drawn(n + MANY, count))).map(drop)?)),
    ])
}

pub(super) fn warm(point: &mut Point) -> Result<()> {
    let volume = point.open()?;
    let chosen: Vec<String> = chosen(MANY.min(point.size / 2), point.size).into_iter().map(path).collect();
    let file = |n: u64| &chosen[n as usize % chosen.len()];
    for path in &chosen {
        ensure!(volume.read(path)?.len() == 200, "{path} has another size");
    }
    point.note_us("lookup and stat, warm", sampled(MANY, |n| Ok(volume.metadata(file(n)).map(drop)?))?);
    point.note_us("read, warm", sampled(MANY, |n| Ok(volume.read(file(n)).map(drop)?))?);
    point.statfs_and_sync(&volume)?;
    point.note_us("delete, warm", sampled(chosen.len() as u64, |n| Ok(volume.remove_file(file(n))?))?);
    point.close(volume, "close after deletes")?;
    point.note_memory("peak memory, use")
}

/// Makes 1,000 files durable, which leaves them in the log.
pub(super) fn crash(point: &mut Point) -> Result<()> {
    let volume = point.open()?;
    let dir = (0..).map(|n| format!("crash{n}")).find(|dir| !volume.exists(dir)).unwrap_or_default();
    volume.create_dir(&dir)?;
    for n in 0..1000 {
        volume.write(format!("{dir}/{n}"), [n as u8; 200])?;
    }
    volume.sync()?;
    Ok(rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)?)
}

pub(super) fn recover(point: &mut Point) -> Result<()> {
    let mut times = Vec::new();
    for again in 0..3 {
        if again > 0 {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(crate::growth::part_words(point, "files", "crash")).status()?;
        }
        point.cool()?;
        let start = Instant::now();
        let volume = point.open()?;
        times.push(us(start.elapsed()));
        ensure!(volume.read(format!("crash{again}/999"))?.len() == 200, "synced and lost");
        volume.close()?;
    }
    point.note_ms("open after a crash, cold", times);
    Ok(())
}
