//! `arbor mkfs`.

use crate::args::MkfsArgs;
use crate::image::{Image, Job};
use crate::interrupt;
use crate::progress::{Progress, copied, tell_skipped};
use crate::show;
use crate::trial::Trial;
use crate::used::{refuse_data, refuse_used};
use anyhow::{Context, Result, anyhow, bail};
use arboretum::device::{FileDevice, Kind, OpenMode, Request, SECTOR};
use arboretum::vfs::{Clock, Engine, ManualClock, SystemClock, Time};
use arboretum::{CopyOptions, CopyStats, Volume, VolumeOptions};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub(crate) fn run(args: &MkfsArgs, out: &mut dyn Write) -> Result<()> {
    let engine = engine(args.engine.as_deref())?;
    let image = Image::parse(&args.image.image, &args.image.options)?.of(engine, Job::Format);
    image.check_options(engine, Job::Format)?;
    let epoch = source_date_epoch()?;
    let clock: Arc<dyn Clock> = match epoch {
        Some(t) => Arc::new(ManualClock::new(t)),
        None => Arc::new(SystemClock),
    };
    let old_size = image.existing_size()?;
    let size = size(&image, args.size, old_size)?;
    let uuid = uuid(&args.uuid, clock.now())?;
    make_way(&image, args, size, old_size)?;
    let options = image.options(false).engine(engine.name()).uuid(uuid).clock(clock).overwrite(true);
    let options = options.label(args.label.clone().unwrap_or_default());
    let extra = extra_sizes(&image)?;
    let beside: String = extra.iter().map(|(role, size)| format!(" and {} of {role}", show::bytes(*size))).collect();
    let trial = Trial { image: &image, options: options.clone(), size, extra };
    trial.run()?;
    let mut filled = None;
    if !args.dry_run {
        discard_old(&image, size, old_size.is_some() && args.force)?;
        let options = image.rest.0.iter().fold(options, |o, (k, v)| o.format_option(k.clone(), v.clone()));
        let made = Made::before(&image);
        filled = make(&options, &image, size, args, epoch).inspect_err(|_| made.undo())?;
    }
    if !args.quiet {
        let label = args.label.as_deref().map(|l| format!(", label {l:?}")).unwrap_or_default();
        let (path, size, uuid) = (image.path.display(), show::bytes(size), show::uuid(uuid));
        let dry = if args.dry_run { " (not made: -n)" } else { "" };
        writeln!(out, "{path}: {}, {size}{beside}, UUID {uuid}{label}{dry}", engine.name())?;
    }
    if let (Some(stats), Some(source), false) = (filled, &args.directory, args.quiet) {
        writeln!(out, "{} from {}", copied(&stats), source.display())?;
    }
    Ok(())
}

/// Size of the volume: as told, or what there is.
fn size(image: &Image, wanted: Option<u64>, old_size: Option<u64>) -> Result<u64> {
    let path = image.path.display();
    match (wanted, old_size) {
        (Some(size), _) if size.checked_add(image.offset).is_none_or(|end| end > i64::MAX.unsigned_abs()) => {
            bail!("{path}: {} is too large: a file has less than 8 EiB", show::exact_bytes(size))
        }
        (Some(size), _) if size < SECTOR as u64 => {
            bail!(
                "{path}: {} is too small: a volume has at least a sector, and mostly megabytes",
                show::exact_bytes(size)
            )
        }
        (Some(size), _) => Ok(size / SECTOR as u64 * SECTOR as u64),
        (None, Some(old)) => old
            .checked_sub(image.offset)
            .ok_or_else(|| anyhow!("{path}: offset={} lies after the end of {old} bytes", image.offset)),
        (None, None) => bail!("{path}: does not exist yet: give its size with -s, as in -s 1G"),
    }
}

/// Files that did not exist before, so that they can be taken away again: a new image that is
/// half full is of no use to anybody.
pub(crate) struct Made(Vec<PathBuf>);

impl Made {
    pub(crate) fn before(image: &Image) -> Made {
        let all = image.extra.iter().map(|(_, path)| path).chain([&image.path]);
        // A link that leads nowhere is there.
        Made(all.filter(|path| path.symlink_metadata().is_err()).cloned().collect())
    }

    pub(crate) fn undo(&self) {
        for path in &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Makes the volume and fills it; tells what went in.
fn make(
    options: &VolumeOptions,
    image: &Image,
    size: u64,
    args: &MkfsArgs,
    epoch: Option<Time>,
) -> Result<Option<CopyStats>> {
    let (was_there, stop) = (image.path.exists(), interrupt::flag()?);
    let volume = options.format(&image.path, size).map_err(|e| match e.kind() {
        io::ErrorKind::FileTooLarge => {
            anyhow!("{}: the host file system cannot hold a file of {}", image.path.display(), show::exact_bytes(size))
        }
        _ => image.said(e),
    })?;
    let fill = |source: &PathBuf| fill(&volume, source, epoch, args.quiet, &stop);
    let filled = args.directory.as_ref().map(fill).transpose();
    let filled = filled.and_then(|stats| volume.close().map(|()| stats).map_err(|e| image.said(e)));
    let stats = filled.map_err(|e| match was_there {
        true => e.context(format!("{}: the new volume in it is incomplete", image.path.display())),
        false => e,
    })?;
    if let Some(stats) = &stats {
        tell_skipped("arbor mkfs", stats);
    }
    Ok(stats)
}

/// Sizes of the further devices: of the files there are, or those that will be made.
fn extra_sizes(image: &Image) -> Result<Vec<(String, u64)>> {
    let size = |role: &str, path: &Path| match File::open(path) {
        Ok(mut file) => file.seek(SeekFrom::End(0)).with_context(|| path.display().to_string()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            Ok(image.rest.size(&format!("{role}size"))?.unwrap_or(arboretum::EXTRA_LEN))
        }
        Err(e) => Err(e).with_context(|| path.display().to_string()),
    };
    image.extra.iter().map(|(role, path)| Ok((role.clone(), size(role, path)?))).collect()
}

fn fill(volume: &Volume, source: &Path, epoch: Option<Time>, quiet: bool, stop: &AtomicBool) -> Result<CopyStats> {
    let progress = Progress::copy(!quiet);
    let mut options = CopyOptions::new().stop_when(stop).progress(|stats, path| progress.copied(stats, path));
    if let Some(latest) = epoch {
        options = options.clamp_times(latest);
    }
    let stats = if source.as_os_str() == "-" {
        volume.import_tar_with(io::stdin().lock(), &mut options).context("standard input")?
    } else if source.is_dir() {
        volume.copy_in_with(source, "/", &mut options)?
    } else {
        let file = File::open(source).with_context(|| source.display().to_string())?;
        let file = io::BufReader::with_capacity(1 << 20, file);
        volume.import_tar_with(file, &mut options).with_context(|| source.display().to_string())?
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

/// Refuses an image that would lose its end, and one or a further device that holds something,
/// unless told to go on.
fn make_way(image: &Image, args: &MkfsArgs, size: u64, old_size: Option<u64>) -> Result<()> {
    if args.force {
        return Ok(());
    }
    if let Some(old) = old_size {
        refuse_shortening(image, size, old)?;
        // Further devices may be missing yet.
        let main = Image { extra: Vec::new(), ..image.clone() };
        let devices = main.options(false).devices(&main.path).map_err(|e| image.said(e))?;
        refuse_used(&image.path, image.offset, &*devices.main)?;
        refuse_data(&image.path, image.offset, image.offset.saturating_add(size))?;
    }
    for (_, path) in image.extra.iter().filter(|(_, path)| path.exists()) {
        let device = FileDevice::open(path, OpenMode::ReadWrite).map_err(|e| image.said(e))?;
        refuse_used(path, 0, &device)?;
        refuse_data(path, 0, u64::MAX)?;
    }
    Ok(())
}

fn refuse_shortening(image: &Image, size: u64, old: u64) -> Result<()> {
    let is_file = std::fs::metadata(&image.path).is_ok_and(|m| m.is_file());
    if is_file && image.offset == 0 && size < old {
        let (path, old, size) = (image.path.display(), show::exact_bytes(old), show::exact_bytes(size));
        bail!("{path}: is {old} long and would be shortened to {size} (-f does that)");
    }
    Ok(())
}

/// Gives back the space of what was where the volume will lie.
fn discard_old(image: &Image, size: u64, exists: bool) -> Result<()> {
    if !exists {
        return Ok(());
    }
    let main = Image { extra: Vec::new(), ..image.clone() };
    let devices = main.options(false).devices(&main.path).map_err(|e| image.said(e))?;
    let geometry = devices.main.geometry();
    let len = geometry.size.min(size);
    if geometry.discard_unit > 0 && len > 0 {
        devices.main.submit(vec![Request::discard(Kind::Other, 0, len)]).wait_all()?;
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
    image.refuse_roles(engine)?;
    let options = image.options(false).engine(engine.name());
    let main = Image { rest: Default::default(), ..image.clone() };
    Trial { image: &main, options: options.clone(), size, extra: extra_sizes(&main)? }.run()?;
    let volume = options.format(&image.path, size).map_err(|e| image.said(e))?;
    volume.close().map_err(|e| image.said(e))
}
