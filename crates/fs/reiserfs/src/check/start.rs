//! The superblock and the log, or what serves instead of them.

use super::issue::Issue;
use super::{Checker, Core, Findings};
use crate::format::*;
use crate::recover::{self, Found};
use crate::{options, superblock};
use arbor_base::device::{Device, Kind};
use arbor_base::vfs::{CheckReport, Devices, Error, Options, Progress, Repair, Result, Time};
use arbor_kit::head;

/// Cache of the checker.
const CACHE: &str = "cache=64M";

/// The superblock to be used, its geometry, and the issue if that is not the one at byte 0.
type Start = ((SuperBlock, Geom), Option<Issue>);

/// Opens a volume, recovered in memory; the report if there is none. `write`: whether it may be repaired.
pub(super) fn open<'a>(
    devices: &Devices,
    write: bool,
    progress: Progress<'a>,
) -> Result<std::result::Result<Checker<'a>, CheckReport>> {
    let (dev, mut f) = (devices.main.clone(), Findings::new(Repair::No));
    let ((sb, geom), damage) = match superblock(&*dev)? {
        Err(lost) => return Ok(Err(f.end(lost))),
        Ok(start) => start,
    };
    head::refuse_unknown(&sb, KNOWN, write)?;
    let mut found = log(&*dev, (&sb, &geom), &mut f)?;
    f.volume.unclean = damage.is_none() && (!sb.is_unmounted() || found.records > 0);
    f.volume.was_clean = sb.is_clean() && found.records == 0;
    let opts = options::Mount::parse(&Options::parse(CACHE))?;
    let mut core = Core::new(dev.clone(), (sb, geom), opts, Time::default());
    if let Some(issue) = damage {
        f.note(issue);
        core.touch_super();
    }
    take_log(&mut core, &mut found, &mut f)?;
    if found.heads.is_torn && f.volume.was_clean {
        f.note(Issue::LogHead { at: recover::head_at(&geom, found.heads.next) });
    }
    core.log.copies = found.copies.clone();
    if !found.gaps.is_empty() {
        // The repair ends with an empty log, whatever else there is to mend.
        core.touch_super();
    }
    Ok(Ok(Checker { found, ..Checker::new(core, f, progress) }))
}

/// What the log holds. Of a record that is damaged what is sound by itself.
fn log(dev: &dyn Device, (sb, geom): (&SuperBlock, &Geom), f: &mut Findings) -> Result<Found> {
    let found = match recover::read_log(dev, geom, !sb.is_unmounted()) {
        Err(Error::Corrupt(c)) => without_heads(dev, (sb, geom), c.to_string(), f)?,
        found => found?,
    };
    found.gaps.iter().for_each(|gap| f.note(Issue::LogGap { why: gap.corrupt(geom).to_string() }));
    Ok(found)
}

/// What a log holds whose heads are damaged: nothing if all is in place, or its first record is lost too.
fn without_heads(dev: &dyn Device, (sb, geom): (&SuperBlock, &Geom), why: String, f: &mut Findings) -> Result<Found> {
    let found = if sb.is_unmounted() { None } else { recover::read_headless(dev, geom)? };
    let then = if found.is_some() { "its records count from the first one on" } else { "the log is emptied" };
    f.note(Issue::Log { why, then });
    let seq = recover::highest_seq(dev, geom) + u64::from(geom.log);
    Ok(found.unwrap_or_else(|| Found { seq, at: 2, is_new: true, ..Found::default() }))
}

/// The superblock of the log, unless it is none of this volume; the map of object numbers, empty if it is damaged.
fn take_log(core: &mut Core, found: &mut Found, f: &mut Findings) -> Result<()> {
    match core.take_super(found) {
        Err(e @ (Error::Corrupt(_) | Error::Refused(_))) => {
            f.note(Issue::LogRecord { why: e.to_string() });
            found.copies.remove(&0);
            core.touch_super();
        }
        done => done?,
    }
    match core.take_ids(found) {
        Err(Error::Corrupt(c)) => {
            f.note(Issue::Ids { why: c.to_string() });
            core.ids.clear();
            core.touch_super();
            Ok(())
        }
        done => done,
    }
}

/// A superblock that can be used, or why there is none.
fn superblock(dev: &dyn Device) -> Result<std::result::Result<Start, Issue>> {
    let why = match usable(dev, 0)? {
        Ok(found) => {
            // Whose nodes are none of this volume is not its superblock: the copy may be.
            let root = found.0.root.get();
            let why = "what lies on the volume is not of it".to_string();
            match copy(dev)? {
                Some((_, geom)) if geom != found.1 && !is_borne_out(dev, &found.1)? && is_borne_out(dev, &geom)? => why,
                _ if root == 0 => "it has no tree".to_string(),
                _ => return Ok(Ok((found, None))),
            }
        }
        Err(why) => why,
    };
    let Some((sb, geom)) = copy(dev)? else {
        return Ok(Err(Issue::SuperLost { why: format!("{why}, and there is no copy") }));
    };
    let logged = recover::read_log(dev, &geom, true).ok().and_then(|found| found.copies.get(&0).cloned());
    let logged = logged.as_deref().and_then(|block| block.get(..SECTOR)).unwrap_or(&[]);
    let logged = superblock::decode(logged, 0, dev.geometry().size).ok().flatten();
    let (found, from) = match logged {
        Some(found) => (found, "the one in the log is used"),
        None => ((sb, geom), "its copy is used, and the tree is built anew"),
    };
    Ok(Ok((found, Some(Issue::SuperDamaged { why, from }))))
}

/// The copy of the superblock, in the last block of the device, whatever the size of a block is.
fn copy(dev: &dyn Device) -> Result<Option<(SuperBlock, Geom)>> {
    let mut node = LEAST_NODE as u64;
    while node <= MOST_NODE as u64 {
        let at = (dev.geometry().size / node).saturating_sub(1) * node;
        let found = usable(dev, at)?.ok();
        if let Some(found) = found.filter(|(_, geom)| at > 0 && geom.byte(geom.copy()) == at) {
            return Ok(Some(found));
        }
        node *= 2;
    }
    Ok(None)
}

/// The superblock at byte `at`, or why it cannot be used.
fn usable(dev: &dyn Device, at: u64) -> Result<std::result::Result<(SuperBlock, Geom), String>> {
    head::usable::<SuperBlock, _>(dev, at, superblock::read(dev, at))
}

/// Whether a head of the log is of this volume, or the first bitmap: either of them may be being written.
fn is_borne_out(dev: &dyn Device, geom: &Geom) -> Result<bool> {
    if recover::heads(dev, geom).is_ok() {
        return Ok(true);
    }
    let mut bytes = vec![0; geom.node_size];
    dev.read_at(Kind::Bitmap, geom.byte(geom.bitmap(0)), &mut bytes)?;
    Ok(crate::validate::bitmap(geom, geom.bitmap(0), &bytes).is_ok())
}

/// Whether a volume of ours seems to lie here although byte 0 does not say so.
pub(crate) fn search(dev: &dyn Device) -> Result<bool> {
    Ok(superblock(dev)?.is_ok())
}

impl Checker<'_> {
    /// The copy of the superblock.
    pub(super) fn check_copy(&mut self) -> Result<()> {
        let (at, wanted) = (self.core.geom.copy(), head::encode(&self.core.sb.copy()));
        if self.core.log.changed.contains_key(&at) {
            return Ok(());
        }
        let bytes = self.core.read(at, 1, Kind::Super)?;
        if bytes.get(..SECTOR) != Some(&wanted[..]) {
            self.f.note(Issue::SuperCopy { at: self.core.geom.byte(at) });
            self.core.put_copy();
        }
        Ok(())
    }
}
