//! Recovery, the paper's boot: the reserved blocks are scanned for the newest master block, and what its commit has
//! overwritten is written once more.
//!
//! Called by `mount.rs` and the checker.

use crate::format::*;
use crate::planted::{Flaw, planted};
use crate::validate;
use arbor_base::device::{Device, Kind};
use arbor_base::field;
use arbor_base::layout::{Corrupt, crc, crc_without};
use arbor_base::vfs::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use zerocopy::FromBytes;

/// No volume has more commits.
const MOST_COMMITS: u64 = u64::MAX / 2;
/// The greatest number of a commit that others may follow: no mount makes as many as are left.
const MOST_FOLLOWED: u64 = MOST_COMMITS - (1 << 48);

/// Contents of blocks by their addresses.
pub(crate) type Copies = BTreeMap<u32, (Kind, Arc<Vec<u8>>)>;

/// The newest master block, and where it is. Of an unmounted volume the superblock tells; that it is damaged there a scan
/// would not see.
pub(crate) fn newest(dev: &dyn Device, sb: &SuperBlock, geom: &Geom) -> Result<(Master, u32)> {
    if !sb.is_clean() {
        return check(geom, scan(dev, geom, u64::MAX)?);
    }
    let at = sb.master.get();
    let found = if geom.is_for_master(at) { master(dev, geom, at)? } else { None };
    let bad = || Corrupt::new("master block", "crc", byte(at), "none that is sound", "that of the last unmount");
    check(geom, (found.ok_or_else(bad)?, at))
}

/// Which commits can be mounted of a volume that was unmounted, and when the newest one was made; or that this one is damaged.
pub(crate) fn commits(dev: &dyn Device, sb: &SuperBlock, geom: &Geom) -> Result<Vec<(&'static str, String)>> {
    if !sb.is_clean() {
        return Ok(Vec::new());
    }
    match newest(dev, sb, geom) {
        Ok((Master { head, .. }, _)) => Ok(vec![
            ("commits", format!("{} to {}", head.intact, head.seq)),
            ("last_commit", head.time.secs.to_string()),
        ]),
        Err(Error::Corrupt(_)) => Ok(vec![("commits", "the newest one is damaged: see fsck".to_string())]),
        Err(e) => Err(e),
    }
}

/// Fails if a check-point says what cannot be.
fn check(geom: &Geom, (master, at): (Master, u32)) -> Result<(Master, u32)> {
    let head = &master.head;
    let most = geom.blocks.saturating_mul(INODES);
    let all = [
        (field!(CheckPoint, used), head.used.get(), 0, geom.space()),
        (field!(CheckPoint, inode_end), head.inode_end.get(), INODES, most),
        (field!(CheckPoint, inodes), head.inodes.get(), 0, head.inode_end.get()),
        (field!(CheckPoint, kept), head.kept.get(), 0, geom.space()),
        (field!(CheckPoint, last), head.last.get(), 0, geom.blocks.saturating_sub(1)),
    ];
    if !(1..=MOST_FOLLOWED).contains(&head.seq.get()) || head.intact > head.seq {
        let (field, within) = field!(CheckPoint, seq);
        let found = format!("{}, the oldest {}", head.seq, head.intact);
        return Err(Corrupt::new("check-point", field, byte(at) + within, found, "numbers of commits").into());
    }
    match all.into_iter().find(|(_, found, from, to)| !(from..=to).contains(&found)) {
        None => Ok((master, at)),
        Some(((name, within), found, from, to)) => {
            let expected = format!("{from} to {to}");
            Err(Corrupt::new("check-point", name, byte(at) + within, found, expected).into())
        }
    }
}

/// The newest of all master blocks that are sound and have a number less than `before`, which can be, and where it is.
pub(crate) fn scan(dev: &dyn Device, geom: &Geom, before: u64) -> Result<(Master, u32)> {
    let (numbers, mut best) = (1..before.min(MOST_COMMITS + 1), None::<(Master, u32)>);
    for block in geom.masters() {
        let Some(found) = master(dev, geom, block)?.filter(|found| numbers.contains(&found.head.seq.get())) else {
            continue;
        };
        if best.is_none_or(|(best, _)| best.head.seq.get() < found.head.seq.get()) {
            best = Some((found, block));
        }
        if planted(Flaw::AnyMaster) {
            break;
        }
    }
    best.ok_or_else(|| {
        Corrupt::new("master block", "magic", byte(1), "none in any of the reserved blocks", "at least one").into()
    })
}

/// The same among those that others may follow.
pub(crate) fn scan_followed(dev: &dyn Device, geom: &Geom, before: u64) -> Result<(Master, u32)> {
    scan(dev, geom, before.min(MOST_FOLLOWED + 1))
}

/// Where there are master blocks that seem to be sound, but have numbers that no commit can follow.
pub(crate) fn impossible(dev: &dyn Device, geom: &Geom) -> Result<Vec<u32>> {
    let mut all = Vec::new();
    for at in geom.masters() {
        all.extend(master(dev, geom, at)?.filter(|found| found.head.seq.get() > MOST_FOLLOWED).map(|_| at));
    }
    Ok(all)
}

/// The master block in a reserved block, if there is a sound one. Rereads one whose checksum is wrong.
pub(crate) fn master(dev: &dyn Device, geom: &Geom, block: u32) -> Result<Option<Master>> {
    let read = || -> Result<(bool, Option<Master>)> {
        let mut bytes = vec![0; BLOCK];
        dev.read_at(Kind::Super, byte(block), &mut bytes)?;
        let Ok(master) = Master::read_from_bytes(&bytes) else { return Ok((false, None)) };
        let head = master.head;
        let is_of_it = (head.blocks.get(), head.stride.get()) == (geom.blocks, geom.stride);
        let is_ours = head.magic.get() == MASTER_MAGIC && head.fsid.get() == geom.fsid && head.block.get() == block;
        if !is_ours || !is_of_it {
            return Ok((false, None));
        }
        let is_sound = crc_without(&bytes, CRC_AT) == Some(head.crc.get()) && master.tail.seq == head.seq;
        Ok((!is_sound, Some(master).filter(|_| is_sound || planted(Flaw::TornBelieved))))
    };
    match read()? {
        (true, None) => Ok(read()?.1),
        (_, found) => Ok(found),
    }
}

/// What a commit has overwritten, as its redo list has it.
pub(crate) fn redo(dev: &dyn Device, geom: &Geom, head: &CheckPoint) -> Result<Copies> {
    let (mut all, count) = (Copies::new(), head.redo_count.get() as usize);
    each_redo(dev, geom, head, &mut |redo| {
        let bytes = sound_copy(dev, redo.copy.get(), redo.crc.get())?;
        all.insert(redo.block.get(), (Kind::Other, Arc::new(bytes)));
        Ok(())
    })?;
    if all.len() == count {
        return Ok(all);
    }
    let (field, within) = field!(CheckPoint, redo_count);
    Err(Corrupt::new("check-point", field, byte(head.block.get()) + within, count, all.len()).into())
}

/// The same of the commit before the newest one, as far as its list and the copies are still there.
pub(crate) fn redo_left(dev: &dyn Device, geom: &Geom, head: &CheckPoint) -> Result<Copies> {
    let mut all = Copies::new();
    let list = each_redo(dev, geom, head, &mut |redo| match sound_copy(dev, redo.copy.get(), redo.crc.get()) {
        Err(Error::Corrupt(_)) => Ok(()),
        bytes => {
            all.insert(redo.block.get(), (Kind::Other, Arc::new(bytes?)));
            Ok(())
        }
    });
    match list {
        Ok(()) | Err(Error::Corrupt(_)) => Ok(all),
        Err(e) => Err(e),
    }
}

/// Calls `f` with each entry of a commit's redo list.
fn each_redo(dev: &dyn Device, geom: &Geom, head: &CheckPoint, f: &mut dyn FnMut(Redo) -> Result<()>) -> Result<()> {
    let (mut at, mut left, mut seen) = (head.redo.get(), head.redo_count.get() as usize, BTreeSet::new());
    while at != 0 && left > 0 && seen.insert(at) {
        let list = list(dev, geom, head, at)?;
        let (of, _) = Head::read_from_prefix(&list).map_err(|_| Error::Errno(arbor_base::vfs::Errno::EIO))?;
        let entries = list.get(HEAD..).unwrap_or(&[]).chunks_exact(size_of::<Redo>());
        for entry in entries.take(of.len.get() as usize) {
            let Ok(redo) = Redo::read_from_bytes(entry) else { continue };
            let (block, copy) = (redo.block.get(), redo.copy.get());
            if !geom.is_data(block) || !geom.is_data(copy) {
                return Err(Corrupt::new("redo list", "block", byte(at), block, "a block of a file").into());
            }
            f(redo)?;
            left = left.saturating_sub(1);
        }
        at = of.index.get();
    }
    Ok(())
}

/// A block of the redo list.
fn list(dev: &dyn Device, geom: &Geom, head: &CheckPoint, at: u32) -> Result<Vec<u8>> {
    if !geom.is_data(at) {
        return Err(Corrupt::new("check-point", "redo", byte(head.block.get()), at, "a block of the redo list").into());
    }
    let read = || {
        let mut bytes = vec![0; BLOCK];
        dev.read_at(Kind::Log, byte(at), &mut bytes)?;
        validate::headed(geom, ("redo list", REDO_MAGIC), at, &bytes)?;
        Ok(bytes)
    };
    let bytes = read().or_else(|_: Error| read())?;
    let owner = Head::read_from_prefix(&bytes).map_or(0, |(head, _)| head.owner.get());
    if owner == head.seq.get() as u32 {
        return Ok(bytes);
    }
    Err(Corrupt::new("redo list", "owner", byte(at), owner, "the commit's number").into())
}

fn sound_copy(dev: &dyn Device, copy: u32, expected: u32) -> Result<Vec<u8>> {
    let read = || {
        let mut bytes = vec![0; BLOCK];
        dev.read_at(Kind::Log, byte(copy), &mut bytes)?;
        let found = crc(&bytes);
        if found == expected {
            return Ok(bytes);
        }
        Err(Corrupt::new("redo list", "crc", byte(copy), format!("{found:#x}"), format!("{expected:#x}")).into())
    };
    read().or_else(|_: Error| read())
}
