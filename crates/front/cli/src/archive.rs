//! `arbor tar`.

use crate::args::TarArgs;
use crate::files::Trouble;
use crate::image::{Image, OWN_FILE};
use crate::interrupt;
use crate::progress::{Progress, tell_skipped};
use anyhow::{Context, Result};
use arboretum::{CopyOptions, Volume};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

pub(crate) fn run(args: &TarArgs, out: &mut dyn Write) -> Result<()> {
    let image = Image::new(&args.image)?;
    let progress = Progress::copy(true);
    let stop = interrupt::flag()?;
    let mut trouble = Trouble::new("arbor tar", &image);
    let mut options = CopyOptions::new().stop_when(&stop).progress(|stats, path| progress.copied(stats, path));
    options = options.past_unread(|e| progress.above(|| trouble.unread(e)));
    let stats = match (&args.import, &args.export) {
        (Some(file), _) => {
            let volume = image.volume(false)?;
            let stats = if file.as_os_str() == "-" {
                volume.import_tar_with(io::stdin().lock(), &mut options).context("standard input")
            } else {
                image.spare(file)?;
                let source = File::open(file).with_context(|| file.display().to_string())?;
                let source = io::BufReader::with_capacity(1 << 20, source);
                volume.import_tar_with(source, &mut options).with_context(|| file.display().to_string())
            }?;
            progress.clear();
            volume.close().map_err(|e| image.said(e))?;
            stats
        }
        (None, Some(file)) if file.as_os_str() != "-" => {
            let volume = image.volume(true)?;
            let target = create(file, &volume).with_context(|| file.display().to_string())?;
            let is_file = target.metadata().is_ok_and(|m| m.is_file());
            volume.export_tar_with(target, &mut options).with_context(|| file.display().to_string()).inspect_err(
                |_| {
                    if is_file {
                        // Half an archive is of no use to anybody.
                        let _ = std::fs::remove_file(file);
                    }
                },
            )?
        }
        _ => image.volume(true)?.export_tar_with(out, &mut options)?,
    };
    progress.clear();
    tell_skipped("arbor tar", &stats);
    drop(options);
    trouble.end()
}

/// A new archive is its owner's alone, as the image is: what others may not read in the volume is in it.
fn create(path: &Path, volume: &Volume) -> io::Result<File> {
    let mut how = OpenOptions::new();
    how.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut how, 0o600);
    let file = how.open(path)?;
    if volume.is_in(&file) {
        return Err(io::Error::other(OWN_FILE));
    }
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}
