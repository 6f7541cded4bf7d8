//! Recovery at mount: the journal is replayed; without one the checker mends what a crash leaves under that ordering.

use crate::format::*;
use crate::log::replay::replay;
use crate::log::sound_tail;
use crate::{bitmap, check, validate};
use arbor_base::device::{Device, Kind};
use arbor_base::layout::crc;
use arbor_base::vfs::{CheckOptions, Devices, Error, Repair, Result, Severity};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Brings a volume that was not unmounted into a state that can be mounted. Returns damage that it has passed by.
pub(crate) fn recover(
    dev: &Arc<dyn Device>,
    sb: &mut SuperBlock,
    geom: &Geom,
    read_only: bool,
) -> Result<Option<Error>> {
    if read_only {
        return Err(Error::refused(
            "the volume was not unmounted and needs recovery: mount it for writing, or run fsck",
        ));
    }
    match Keeping::from_number(sb.keeping.get()) {
        Some(Keeping::Journal) if sb.journal_frags.get() > 0 => {
            let tail = sound_tail(&**dev, sb, geom)?;
            replay(&**dev, sb, geom, tail)?;
            let damage = rebuild_summaries(&**dev, sb, geom)?;
            dev.flush()?;
            Ok(damage)
        }
        Some(Keeping::Async) | None => {
            Err(Error::refused("the volume was not unmounted, and its metadata were kept in no order: run fsck"))
        }
        // Without a journal there is nothing to replay, whatever the superblock says.
        Some(Keeping::Sync | Keeping::SoftUpdates | Keeping::Journal) => preen(dev, sb).map(|()| None),
    }
}

/// Rebuilds the summary area from the groups.
fn rebuild_summaries(dev: &dyn Device, sb: &mut SuperBlock, geom: &Geom) -> Result<Option<Error>> {
    let (all, damage) = count_groups(dev, geom)?;
    let mut sums: Vec<u8> = all.iter().flat_map(|sum| sum.as_bytes().to_vec()).collect();
    sb.summary_crc = crc(&sums).into();
    sums.resize(geom.bytes_of(geom.summary_frags()), 0);
    dev.write_at(Kind::Group, geom.byte(Frag(sb.summary_start.get())), &sums)?;
    Ok(damage)
}

/// The free space of each group, from its header; one that is damaged, or cannot be read, is full. The first damage that was met.
pub(crate) fn count_groups(dev: &dyn Device, geom: &Geom) -> Result<(Vec<Summary>, Option<Error>)> {
    let (mut all, mut damage) = (Vec::new(), None);
    for cgx in 0..geom.cg_count {
        let mut cg = vec![0; geom.block_size()];
        let read = dev.read_at(Kind::Bitmap, geom.byte(geom.cg_block(cgx)), &mut cg).map_err(Error::Io);
        match read.and_then(|()| Ok(validate::group(geom, cgx, &cg)?)) {
            Ok(_) => all.push(bitmap::header(&cg).sum),
            Err(e) if e.is_damage() => {
                all.push(Summary::default());
                damage.get_or_insert(e);
            }
            Err(e) => return Err(e),
        }
    }
    Ok((all, damage))
}

/// Runs the checker: frees fragments and inodes that a crash has left in use, and corrects counts that were written
/// late.
fn preen(dev: &Arc<dyn Device>, sb: &mut SuperBlock) -> Result<()> {
    let options = CheckOptions { repair: Repair::Preen, force: true };
    let report = check::check(Devices::single(dev.clone()), &options, &mut |_, _, _| {})?;
    if let Some(issue) = report.issues.iter().find(|i| !i.repaired && i.severity > Severity::Warning) {
        return Err(Error::refused(format!("the volume is damaged, run fsck: {}", issue.text)));
    }
    *sb = arbor_kit::head::need(&**dev, 0)?;
    Ok(())
}
