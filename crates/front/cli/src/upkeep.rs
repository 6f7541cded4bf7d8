//! `arbor clean` and `arbor scrub`, on images and on mounts.
//!
//! Both go in pieces. Between two of them a mount serves its callers, the progress moves, and an interrupt is heard.

use crate::args::{CleanArgs, ScrubArgs};
use crate::exit::Exit;
use crate::holder;
use crate::image::Image;
use crate::interrupt;
use crate::progress::Progress;
use crate::show;
use anyhow::{Context, Result, anyhow};
use arboretum::Volume;
use arboretum::vfs::{Cleaned, Scrubbed};
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes that the cleaner reads in one call while others use the volume ...
const PIECE: u64 = 4 << 20;
/// ... and while nobody does.
const PIECE_ALONE: u64 = 64 << 20;
/// Pieces in a row that gain nothing before it ends: a small one may just fill what it makes clean.
const PATIENCE: u32 = 4;
/// Exit codes of the scrubber, those of fsck(8).
const DAMAGED: u8 = 4;
const OPERATIONAL: u8 = 8;

/// A volume that this process has opened, or the root of a mount.
enum Place {
    Volume(Box<Volume>),
    #[cfg(target_os = "linux")]
    Mount(PathBuf),
}

/// What is cleaned or scrubbed.
struct Work {
    image: Image,
    place: Place,
}

impl Work {
    fn open(image: Image, read_only: bool) -> Result<Work> {
        let place = match image.path.is_dir() {
            true => mount(&image).with_context(|| image.path.display().to_string())?,
            false => Place::Volume(Box::new(image.volume(read_only)?)),
        };
        Ok(Work { image, place })
    }

    fn is_shared(&self) -> bool {
        !matches!(self.place, Place::Volume(_))
    }

    /// Whether the kernel lets nobody write to the mount.
    fn is_read_only(&self) -> bool {
        match &self.place {
            Place::Volume(_) => false,
            #[cfg(target_os = "linux")]
            Place::Mount(root) => holder::is_read_only(root),
        }
    }

    /// Makes everything durable.
    fn sync(&self) -> io::Result<()> {
        match &self.place {
            Place::Volume(volume) => volume.sync(),
            #[cfg(target_os = "linux")]
            Place::Mount(root) => arbor_fuse::sync(root),
        }
    }

    fn clean(&self, budget: u64) -> io::Result<Cleaned> {
        match &self.place {
            Place::Volume(volume) => volume.clean(budget),
            #[cfg(target_os = "linux")]
            Place::Mount(root) => arbor_fuse::clean(root, budget),
        }
    }

    fn scrub(&self, at: u64) -> io::Result<Scrubbed> {
        match &self.place {
            Place::Volume(volume) => volume.scrub(at),
            #[cfg(target_os = "linux")]
            Place::Mount(root) => arbor_fuse::scrub(root, at),
        }
    }

    /// A counter of the volume, 0 if it has none of that name.
    fn counter(&self, name: &str) -> Option<u64> {
        match &self.place {
            Place::Volume(volume) => volume.counters().iter().find(|c| c.0 == name).map(|c| c.1),
            #[cfg(target_os = "linux")]
            Place::Mount(root) => {
                let stats = arbor_fuse::stats(root).unwrap_or_default();
                stats.iter().find(|(group, n, _)| group == "volume" && n == name).map(|c| c.2)
            }
        }
    }

    /// Bytes in use, about.
    fn used_bytes(&self) -> u64 {
        let s = match &self.place {
            Place::Volume(volume) => volume.statfs().ok(),
            #[cfg(target_os = "linux")]
            Place::Mount(root) => holder::statfs(root).ok().map(|s| s.0),
        };
        s.map_or(0, |s| s.blocks.saturating_sub(s.bfree).saturating_mul(s.frsize.into()))
    }

    /// The engine's name, where the superblock tells it.
    fn engine(&self) -> String {
        let image = match &self.place {
            Place::Volume(_) => self.image.clone(),
            #[cfg(target_os = "linux")]
            Place::Mount(root) => holder::behind(Image { path: root.clone(), ..self.image.clone() }),
        };
        image.info().map_or("this engine".to_string(), |info| info.engine.to_string())
    }

    /// The name in front of what is told.
    fn name(&self) -> String {
        self.image.path.display().to_string()
    }

    fn failed(&self, e: io::Error) -> anyhow::Error {
        match e.kind() {
            ErrorKind::PermissionDenied => {
                anyhow!("{}: only root, and the user who has mounted it, may ask for this", self.name())
            }
            _ => self.image.said(e),
        }
    }

    fn close(self) -> Result<()> {
        match self.place {
            Place::Volume(volume) => volume.close().map_err(|e| self.image.said(e)),
            #[cfg(target_os = "linux")]
            Place::Mount(_) => Ok(()),
        }
    }
}

#[cfg(target_os = "linux")]
fn mount(image: &Image) -> io::Result<Place> {
    holder::mount_of(&image.path).map(|(root, _)| Place::Mount(root))
}

#[cfg(not(target_os = "linux"))]
fn mount(_image: &Image) -> io::Result<Place> {
    Err(ErrorKind::IsADirectory.into())
}

pub(crate) fn clean(args: &CleanArgs, out: &mut dyn Write) -> Result<u8, Exit> {
    let work = Work::open(Image::new(&args.image)?, false)?;
    if work.is_read_only() {
        return Err(anyhow!("{}: it is mounted read-only", work.name()).into());
    }
    // What waits in memory would take segments meanwhile, and look like the cleaner's doing.
    work.sync().map_err(|e| work.failed(e))?;
    let before = work.counter("clean_segments");
    let is_log = before.is_some();
    let stop = interrupt::flag()?;
    let progress = Progress::spinner();
    let (mut all, mut in_vain) = (Cleaned { more: true, ..Cleaned::default() }, 0);
    let piece = if work.is_shared() { PIECE } else { PIECE_ALONE };
    let left = |read_bytes: u64| args.budget.map_or(u64::MAX, |budget| budget.saturating_sub(read_bytes));
    while all.more && !stop.load(Relaxed) && (left(all.read_bytes) > 0 || all.read_bytes == 0) {
        let done = match work.clean(piece.min(left(all.read_bytes))) {
            Ok(done) => done,
            Err(e) if e.kind() == ErrorKind::Interrupted => break,
            Err(e) if e.kind() == ErrorKind::Unsupported => {
                return Err(anyhow!("{}: {} has nothing to clean", work.name(), work.engine()).into());
            }
            Err(e) => return Err(work.failed(e).into()),
        };
        all.segments += done.segments;
        all.read_bytes += done.read_bytes;
        all.moved_bytes += done.moved_bytes;
        in_vain = if done.more { 0 } else { in_vain + 1 };
        all.more = (done.segments > 0 || done.more) && in_vain < PATIENCE;
        progress.say(&told(&all, is_log));
    }
    progress.clear();
    let (name, after) = (work.name(), work.counter("clean_segments"));
    work.close()?;
    let clean = |(after, before)| format!("; {} clean segments, {} before", show::count(after), show::count(before));
    let clean = after.zip(before).map_or(String::new(), clean);
    let ended = if stop.load(Relaxed) { ", interrupted" } else { "" };
    writeln!(out, "{name}: {}{clean}{ended}", told(&all, is_log))?;
    Ok(if stop.load(Relaxed) { interrupt::INTERRUPTED } else { 0 })
}

fn told(all: &Cleaned, is_log: bool) -> String {
    let (read, moved) = (show::bytes(all.read_bytes), show::bytes(all.moved_bytes));
    if is_log {
        return format!("{} cleaned, {read} read, {moved} moved", show::of(all.segments, "segment", "segments"));
    }
    format!("{} emptied, {moved} moved", show::of(all.segments, "stretch", "stretches"))
}

pub(crate) fn scrub(args: &ScrubArgs, out: &mut dyn Write) -> Result<u8, Exit> {
    let operational = |e| Exit::with(OPERATIONAL, e);
    let work = Image::new(&args.image).and_then(|image| Work::open(image, true)).map_err(operational)?;
    let stop = interrupt::flag().map_err(operational)?;
    let (progress, total) = (Progress::bar(), work.used_bytes());
    let (mut at, mut verified, mut damage) = (Some(0), 0, 0);
    while let Some(from) = at.filter(|_| !stop.load(Relaxed)) {
        let found = match work.scrub(from) {
            Ok(found) => found,
            Err(e) if e.kind() == ErrorKind::Interrupted => break,
            Err(e) if e.kind() == ErrorKind::Unsupported => return Err(operational(no_checksums(&work))),
            Err(e) => return Err(operational(work.failed(e))),
        };
        at = found.next;
        verified += found.verified_bytes;
        damage += found.damage.len() as u64;
        progress.step(verified.min(total), total, &format!("{} verified", show::bytes(verified)));
        for sentence in &found.damage {
            progress.above(|| writeln!(out, "{}: {}", work.name(), show::clean(sentence)))?;
        }
    }
    progress.clear();
    let verdict = match damage {
        0 => "no damage".to_string(),
        n => show::of(n, "damaged place", "damaged places"),
    };
    let name = work.name();
    work.close().map_err(operational)?;
    let ended = if at.is_some() { ", interrupted" } else { "" };
    writeln!(out, "{name}: {} verified, {verdict}{ended}", show::bytes(verified))?;
    Ok(match (damage, at) {
        (0, None) => 0,
        (0, Some(_)) => interrupt::INTERRUPTED,
        _ => DAMAGED,
    })
}

fn no_checksums(work: &Work) -> anyhow::Error {
    let (name, engine) = (work.name(), work.engine());
    let unmounted = if work.is_shared() { ", when it is unmounted," } else { "" };
    anyhow!(
        "{name}: {engine} has no checksums on the contents of files; `arbor fsck -f`{unmounted} verifies its metadata"
    )
}
