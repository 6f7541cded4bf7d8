//! `arbor label`, of images and of mounts.

use crate::args::LabelArgs;
use crate::holder;
use crate::image::Image;
use crate::show;
use anyhow::{Result, anyhow, bail};
use std::io::{self, Write};
use std::path::Path;

/// Longest label in bytes.
const MOST: usize = arboretum::vfs::LABEL_MAX;

pub(crate) fn label(args: &LabelArgs, out: &mut dyn Write) -> Result<()> {
    let image = Image::new(&args.image)?.without_options("label")?;
    if let Some(new) = args.new.as_deref().filter(|new| new.len() > MOST) {
        bail!("{}: a label has at most {MOST} bytes, not {}", image.path.display(), new.len());
    }
    let is_mount = image.path.is_dir();
    match &args.new {
        Some(new) if is_mount => on_mount(&image.path, Some(new)).map(drop).map_err(|e| said(&image, e)),
        Some(new) => {
            let volume = image.volume(false)?;
            volume.set_label(new.as_bytes()).map_err(|e| image.said(e))?;
            volume.close().map_err(|e| image.said(e))
        }
        None => {
            let label = match is_mount {
                true => on_mount(&image.path, None).map_err(|e| said(&image, e))?,
                false => image.info()?.label.into_bytes(),
            };
            out.write_all(&show::name(&label))?;
            Ok(writeln!(out)?)
        }
    }
}

fn said(image: &Image, e: io::Error) -> anyhow::Error {
    match e.kind() {
        io::ErrorKind::PermissionDenied => anyhow!("{}: only root can change the label", image.path.display()),
        _ => image.said(e),
    }
}

/// Changes the label of a mount, or tells it.
#[cfg(target_os = "linux")]
fn on_mount(dir: &Path, new: Option<&str>) -> io::Result<Vec<u8>> {
    let (root, _) = holder::mount_of(dir)?;
    match new {
        Some(new) => arbor_fuse::set_label(&root, new.as_bytes()).map(|()| Vec::new()),
        None => arbor_fuse::label(&root),
    }
}

#[cfg(not(target_os = "linux"))]
fn on_mount(_dir: &Path, _new: Option<&str>) -> io::Result<Vec<u8>> {
    Err(io::ErrorKind::IsADirectory.into())
}
