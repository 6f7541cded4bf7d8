//! `arbor tar`.

use crate::args::TarArgs;
use crate::image::Image;
use crate::progress::{Progress, tell_skipped};
use anyhow::{Context, Result};
use arboretum::CopyOptions;
use std::fs::File;
use std::io::{self, Write};

pub(crate) fn run(args: &TarArgs, out: &mut dyn Write) -> Result<()> {
    let image = Image::new(&args.image)?;
    let progress = Progress::copy(true);
    let mut options = CopyOptions::new().progress(|stats, path| progress.copied(stats, path));
    let stats = match (&args.import, &args.export) {
        (Some(file), _) => {
            let volume = image.volume(false)?;
            let stats = if file.as_os_str() == "-" {
                volume.import_tar_with(io::stdin().lock(), &mut options)
            } else {
                let source = File::open(file).with_context(|| file.display().to_string())?;
                volume.import_tar_with(io::BufReader::with_capacity(1 << 20, source), &mut options)
            }?;
            volume.close().map_err(|e| image.said(e))?;
            stats
        }
        (None, Some(file)) if file.as_os_str() != "-" => {
            let target = File::create(file).with_context(|| file.display().to_string())?;
            image.volume(true)?.export_tar_with(target, &mut options)?
        }
        _ => image.volume(true)?.export_tar_with(out, &mut options)?,
    };
    progress.clear();
    tell_skipped("arbor tar", &stats);
    Ok(())
}
