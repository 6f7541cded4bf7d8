//! `arbor mkfs`.

use crate::args::MkfsArgs;
use crate::image::{Image, existing_size, refuse_used};
use crate::progress::{Progress, tell_skipped};
use crate::show;
use anyhow::{Context, Result, anyhow, bail};
use arboretum::device::{Device, FileDevice, Kind, OpenMode, Request};
use arboretum::vfs::{Clock, Engine, ManualClock, SystemClock, Time};
use arboretum::{CopyOptions, CopyStats, Volume, VolumeOptions};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

pub(crate) fn run(args: &MkfsArgs, out: &mut dyn Write) -> Result<()> {
    let image = Image::new(&args.image)?;
    let engine = engine(args.engine.as_deref())?;
    image.rest.check(engine.format_options())?;
    let epoch = source_date_epoch()?;
    let clock: Arc<dyn Clock> = match epoch {
        Some(t) => Arc::new(ManualClock::new(t)),
        None => Arc::new(SystemClock),
    };
    let old_size = existing_size(&image.path)?;
    let whole = args.size.map(|s| s + image.offset).or(old_size);
    let size = whole
        .and_then(|whole| whole.checked_sub(image.offset))
        .ok_or_else(|| anyhow!("{}: does not exist yet: -s says how large it shall be", image.path.display()))?;
    let uuid = uuid(&args.uuid, clock.now())?;
    if old_size.is_some() {
        make_way(&image, args)?;
    }
    if !args.quiet {
        let label = args.label.as_deref().map(|l| format!(", label {l:?}")).unwrap_or_default();
        let (path, size, uuid) = (image.path.display(), show::bytes(size), show::uuid(uuid));
        writeln!(out, "{path}: {}, {size}, UUID {uuid}{label}", engine.name())?;
    }
    if args.dry_run {
        return Ok(());
    }
    let options = image.options(false).engine(engine.name()).uuid(uuid).clock(clock).overwrite(true);
    let options = options.label(args.label.clone().unwrap_or_default());
    let options = image.rest.0.iter().fold(options, |o, (k, v)| o.format_option(k.clone(), v.clone()));
    make(&options, &image, size, args, epoch, out).inspect_err(|_| {
        if old_size.is_none() {
            // A new image that is half full is of no use to anybody.
            let _ = std::fs::remove_file(&image.path);
        }
    })
}

fn make(
    options: &VolumeOptions,
    image: &Image,
    size: u64,
    args: &MkfsArgs,
    epoch: Option<Time>,
    out: &mut dyn Write,
) -> Result<()> {
    let volume = options.format(&image.path, size).map_err(|e| image.said(e))?;
    if let Some(source) = &args.directory {
        let stats = fill(&volume, source, epoch, args.quiet)?;
        tell_skipped("arbor mkfs", &stats);
        if !args.quiet {
            let names = show::of(stats.names(), "file", "files");
            writeln!(out, "{names}, {} from {}", show::bytes(stats.bytes), source.display())?;
        }
    }
    volume.close().map_err(|e| image.said(e))
}

fn fill(volume: &Volume, source: &Path, epoch: Option<Time>, quiet: bool) -> Result<CopyStats> {
    let progress = Progress::copy(!quiet);
    let mut options = CopyOptions::new().progress(|stats, path| progress.copied(stats, path));
    if let Some(latest) = epoch {
        options = options.clamp_times(latest);
    }
    let stats = if source.as_os_str() == "-" {
        volume.import_tar_with(io::stdin().lock(), &mut options)?
    } else if source.is_dir() {
        volume.copy_in_with(source, "/", &mut options)?
    } else {
        let file = File::open(source).with_context(|| source.display().to_string())?;
        volume.import_tar_with(io::BufReader::with_capacity(1 << 20, file), &mut options)?
    };
    progress.clear();
    Ok(stats)
}

/// The engine of that name, or the default one.
pub(crate) fn engine(name: Option<&str>) -> Result<&'static dyn Engine> {
    let all = arboretum::engines();
    let found = match name {
        Some(name) => arboretum::engine(name.strip_prefix("arbor.").unwrap_or(name)),
        None => all.first().copied(),
    };
    found.ok_or_else(|| {
        let known: Vec<_> = all.iter().map(|e| e.name()).collect();
        anyhow!("no engine named {:?} (there is: {})", name.unwrap_or("default"), known.join(", "))
    })
}

/// Refuses an image that holds something, or empties it if told so.
fn make_way(image: &Image, args: &MkfsArgs) -> Result<()> {
    let devices = image.options(false).devices(&image.path).map_err(|e| image.said(e))?;
    if !args.force {
        return refuse_used(&image.path, &*devices.main);
    }
    if !args.dry_run {
        discard(&*devices.main)?;
    }
    Ok(())
}

fn discard(device: &dyn Device) -> Result<()> {
    let geometry = device.geometry();
    if geometry.discard_unit > 0 && geometry.size > 0 {
        device.submit(vec![Request::discard(Kind::Other, 0, geometry.size)]).wait_all()?;
    }
    Ok(())
}

fn uuid(text: &str, now: Time) -> Result<[u8; 16]> {
    Ok(match text {
        "random" => uuid::Uuid::new_v4().into_bytes(),
        "null" | "clear" => [0; 16],
        "time" => {
            let stamp = uuid::Timestamp::from_unix(uuid::NoContext, now.secs.max(0).unsigned_abs(), now.nanos);
            uuid::Uuid::new_v7(stamp).into_bytes()
        }
        text => uuid::Uuid::parse_str(text).with_context(|| format!("UUID {text:?}"))?.into_bytes(),
    })
}

/// The time that reproducible builds ask for.
pub(crate) fn source_date_epoch() -> Result<Option<Time>> {
    match std::env::var("SOURCE_DATE_EPOCH") {
        Err(_) => Ok(None),
        Ok(text) => match text.parse() {
            Ok(secs) => Ok(Some(Time { secs, nanos: 0 })),
            Err(_) => bail!("SOURCE_DATE_EPOCH={text:?} is not a number"),
        },
    }
}

/// Makes a volume in a new file for `mount --new`.
pub(crate) fn make_new(image: &Image, engine_name: Option<&str>, size: u64) -> Result<()> {
    let engine = engine(engine_name)?;
    let options = image.options(false).engine(engine.name());
    let volume = options.format(&image.path, size).map_err(|e| image.said(e))?;
    volume.close().map_err(|e| image.said(e))
}

/// Whether there is nothing of that name.
pub(crate) fn is_missing(path: &Path) -> bool {
    matches!(FileDevice::open(path, OpenMode::ReadOnly), Err(e) if e.kind() == io::ErrorKind::NotFound)
}
