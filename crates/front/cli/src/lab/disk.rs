//! `arbor lab disk`: a simulated disk as a file.

use super::{model_with, queue, right_column};
use crate::args::LabDiskArgs;
use crate::exit::Exit;
use crate::show;
use anyhow::{Context, Result, anyhow};
use arbor_base::device::{Device, FileDevice, MemDevice, OpenMode, SECTOR};
use arbor_base::vfs::{Clock, SystemClock};
use arbor_fuse::{MountConfig, Session, Transport};
use arbor_simdisk::{DISK_FILE, DiskFs, HostQueue, SimClock, SimDevice, Stats};
use serde_json::json;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

pub(super) fn run(args: &LabDiskArgs, out: &mut dyn Write) -> Result<u8, Exit> {
    if let Some(peer) = &args.peer {
        return Ok(super::peers::serve(args, peer)?);
    }
    // Whether it can be written is better known now than at the end.
    let trace = args.trace.as_ref().map(|path| File::create(path).with_context(|| path.display().to_string()));
    let trace = trace.transpose()?;
    let device = open(args)?;
    device.set_tracing(trace.is_some());
    let session = mount(&device, &args.dir, MountConfig { handle_signals: true, ..config(args) })?;
    if !args.json {
        let (size, file) = (show::bytes(device.geometry().size), session.mountpoint().join(DISK_FILE));
        writeln!(out, "{}: {}, {size}", file.display(), args.model)?;
        out.flush()?;
    }
    session.wait().map_err(|e| anyhow!("{}: {e}", args.dir.display()))?;
    if let Some((file, path)) = trace.zip(args.trace.as_ref()) {
        write_trace(&device, file).with_context(|| path.display().to_string())?;
    }
    tell(&device, args.json, out)?;
    Ok(0)
}

/// The disk that the arguments describe.
pub(super) fn open(args: &LabDiskArgs) -> Result<SimDevice> {
    let model = model_with(&args.model, &args.queue)?;
    let size = args.size.unwrap_or(model.capacity_bytes());
    if !size.is_multiple_of(SECTOR as u64) || size == 0 {
        return Err(anyhow!("a disk of {size} bytes is not one of whole sectors of {SECTOR} bytes"));
    }
    let inner: Arc<dyn Device> = match &args.keep {
        Some(path) => Arc::new(image(path, size)?),
        None => Arc::new(MemDevice::new(size)),
    };
    let clock = SimClock::new(SystemClock.now());
    SimDevice::new(inner, &model, queue(&HostQueue::default(), &args.queue), clock).map_err(|e| anyhow!(e))
}

fn image(path: &Path, size: u64) -> Result<FileDevice> {
    let device = match fs::exists(path)? {
        true => FileDevice::open(path, OpenMode::ReadWrite)?,
        false => FileDevice::create(path, size).with_context(|| path.display().to_string())?,
    };
    match device.geometry().size {
        found if found == size => Ok(device),
        found => Err(anyhow!("{}: it has {found} bytes, and the disk {size}", path.display())),
    }
}

/// One queue, so that requests are served in the order in which they come.
pub(super) fn config(args: &LabDiskArgs) -> MountConfig {
    MountConfig {
        source: format!("disk:{}", args.model).into(),
        direct_io: true,
        transport: Transport::Classic,
        threads: 2,
        xattrs: false,
        ..MountConfig::default()
    }
}

pub(super) fn mount(device: &SimDevice, dir: &Path, config: MountConfig) -> Result<Session> {
    let session = arbor_fuse::mount(Arc::new(DiskFs::new(device.clone())), dir, &config);
    let ready = session.and_then(|session| session.ready().map(|()| session));
    ready.map_err(|e| anyhow!("{}: {e}", dir.display()))
}

pub(super) fn write_trace(device: &SimDevice, file: File) -> std::io::Result<()> {
    let mut file = BufWriter::new(file);
    device.take_trace().write_to(&mut file)?;
    file.flush()
}

fn tell(device: &SimDevice, as_json: bool, out: &mut dyn Write) -> Result<()> {
    let (stats, elapsed_ns) = (device.stats(), device.clock().now_ns());
    if as_json {
        let text = serde_json::to_string_pretty(&as_value(&stats, elapsed_ns))?;
        return Ok(writeln!(out, "{text}")?);
    }
    let seconds = |ns: u64| format!("{:.3} s", ns as f64 / 1e9);
    let parts = stats.seek_ns + stats.rotation_ns + stats.transfer_ns;
    let rows = [
        ("requests", show::count(stats.requests)),
        ("  reads", show::count(stats.reads)),
        ("  writes", show::count(stats.writes)),
        ("  discards", show::count(stats.discards)),
        ("flushes", show::count(stats.flushes)),
        ("bytes read", show::count(stats.read_bytes)),
        ("bytes written", show::count(stats.write_bytes)),
        ("disk busy", seconds(stats.busy_ns)),
        ("  seeks", seconds(stats.seek_ns)),
        ("  rotation", seconds(stats.rotation_ns)),
        ("  transfer", seconds(stats.transfer_ns)),
        ("  other", seconds(stats.busy_ns.saturating_sub(parts))),
        ("virtual time", seconds(elapsed_ns)),
    ];
    Ok(writeln!(out, "{}", right_column(&rows))?)
}

fn as_value(stats: &Stats, elapsed_ns: u64) -> serde_json::Value {
    json!({
        "requests": stats.requests,
        "reads": stats.reads,
        "writes": stats.writes,
        "discards": stats.discards,
        "flushes": stats.flushes,
        "read_bytes": stats.read_bytes,
        "write_bytes": stats.write_bytes,
        "busy_ns": stats.busy_ns,
        "seek_ns": stats.seek_ns,
        "rotation_ns": stats.rotation_ns,
        "transfer_ns": stats.transfer_ns,
        "elapsed_ns": elapsed_ns,
    })
}
