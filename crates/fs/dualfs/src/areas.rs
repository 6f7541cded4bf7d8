//! The devices of a volume: one that holds both areas, or one for metadata and one for data, which are joined: addresses of
//! data begin so far behind the metadata area that it can grow.
//!
//! A data device begins with two [`DataHead`]s, which say to which volume it belongs, and of what time it is: each mount for
//! writing counts the epoch there before the first checkpoint that has it. One of them is enough. So a device of another
//! volume, and an older copy of either, are refused by name.

use crate::format::*;
use crate::superblock;
use arbor_base::device::{Device, JoinedDevice, Kind};
use arbor_base::layout::crc_without;
use arbor_base::vfs::{Devices, Error, Result};
use arbor_kit::head;
use std::sync::Arc;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// The main device, and the one for data if there is one.
pub(crate) fn parted(mut devices: Devices) -> (Arc<dyn Device>, Option<Arc<dyn Device>>) {
    let data = devices.extra.remove(DATA);
    (devices.main, data)
}

/// The same devices once more.
pub(crate) fn same(devices: &Devices) -> Devices {
    Devices { main: devices.main.clone(), extra: devices.extra.clone() }
}

/// Both as one.
pub(crate) fn joined(main: Arc<dyn Device>, data: Option<Arc<dyn Device>>, geom: &Geom) -> Result<Arc<dyn Device>> {
    match data {
        Some(data) => Ok(Arc::new(JoinedDevice::new(main, geom.data_at - geom.gap(), geom.data_at, data)?)),
        None => Ok(main),
    }
}

/// Both as one, for a volume with this superblock. What its features say of devices counts only if all of them are known.
pub(crate) fn joined_for(devices: Devices, (sb, geom): &(SuperBlock, Geom)) -> Result<Arc<dyn Device>> {
    head::refuse_unknown(sb, KNOWN, false)?;
    let (main, data) = parted(devices);
    match (sb.incompat.get() & INCOMPAT_TWO_DEVICES != 0, &data) {
        (true, None) => Err(Error::refused("the volume's data are on another device: option data=FILE is needed")),
        (false, Some(_)) => Err(Error::refused("the volume's data are on its own device, but option data was given")),
        _ => joined(main, data, geom),
    }
}

/// The devices of a volume as one, with its superblock.
pub(crate) fn open(devices: Devices) -> Result<(Arc<dyn Device>, (SuperBlock, Geom))> {
    let found = superblock::need(&*devices.main)?;
    Ok((joined_for(devices, &found)?, found))
}

/// Which mount has a volume: its number, and its stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub epoch: u64,
    /// 0 if nobody told.
    pub stamp: u64,
}

impl Owner {
    /// That of a checkpoint.
    pub fn of(cp: &Checkpoint) -> Owner {
        Owner { epoch: cp.epoch.get(), stamp: cp.stamp.get() }
    }

    fn may_be(self, stamp: u64) -> bool {
        self.stamp == stamp || self.stamp == 0 || stamp == 0
    }
}

/// Says on the data device, durably, which mount has it, and which had it `before`; once it has `begun`, it has a checkpoint.
pub(crate) fn write_heads(dev: &dyn Device, geom: &Geom, owner: Owner, before: u64, begun: bool) -> Result<()> {
    if geom.heads == 0 {
        return Ok(());
    }
    let data = DataHead {
        magic: DATA_MAGIC,
        fsid: geom.fsid.into(),
        epoch: owner.epoch.into(),
        stamp: owner.stamp.into(),
        before: before.into(),
        begun: u32::from(begun).into(),
        ..DataHead::new_zeroed()
    };
    for at in geom.heads_at() {
        dev.write_at(Kind::Super, at, &head::sealed(data.as_bytes()))?;
    }
    Ok(dev.flush()?)
}

/// The head at byte `at`, if it is sound. Rereads one that is not: the read may have failed.
fn head_at(dev: &dyn Device, at: u64) -> Result<Option<DataHead>> {
    for _ in 0..2 {
        let mut bytes = vec![0; SECTOR];
        dev.read_at(Kind::Super, at, &mut bytes)?;
        let data = DataHead::read_from_bytes(&bytes[..]).unwrap_or_else(|_| DataHead::new_zeroed());
        if data.magic == DATA_MAGIC && crc_without(&bytes, CRC_AT) == Some(data.crc.get()) {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Whether it is the data device of a volume.
pub(crate) fn is_data(dev: &dyn Device) -> Result<bool> {
    Ok(dev.geometry().size >= SECTOR as u64 && head_at(dev, 0)?.is_some())
}

/// Whether a head is of this volume and of the time of a checkpoint. A crash may have come between the head and the
/// checkpoint after it; or that is damaged, if there is only this one (`alone`).
fn is_of(head: &DataHead, geom: &Geom, owner: Owner, alone: bool) -> bool {
    let is_next = head.epoch.get() == owner.epoch.saturating_add(1);
    head.fsid.get() == geom.fsid
        && (head.epoch.get() == owner.epoch && owner.may_be(head.stamp.get())
            || is_next && owner.may_be(head.before.get()) && (alone || head.begun.get() == 0))
}

/// Where heads of the data device are that cannot be used with the newest checkpoint.
pub(crate) fn bad_heads(dev: &dyn Device, geom: &Geom, owner: Owner) -> Result<Vec<u64>> {
    let mut bad = Vec::new();
    for at in geom.heads_at() {
        if head_at(dev, at)?.is_none_or(|head| !is_of(&head, geom, owner, true)) {
            bad.push(at);
        }
    }
    Ok(bad)
}

/// Fails unless a head of the data device says that it belongs to this volume, and to the time of a checkpoint, which may be
/// the only one (`alone`).
pub(crate) fn is_of_one_time(dev: &dyn Device, geom: &Geom, owner: Owner, alone: bool) -> Result<()> {
    if geom.heads == 0 {
        return Ok(());
    }
    let epoch = owner.epoch;
    let mut newest = None;
    for at in geom.heads_at() {
        match head_at(dev, at)? {
            Some(head) if is_of(&head, geom, owner, alone) => return Ok(()),
            Some(head) => newest = newest.max(Some((head.fsid.get() == geom.fsid, head.epoch.get()))),
            None => {}
        }
    }
    match newest {
        None => Err(Error::refused(
            "the device that was given as data is none of a DualFS volume, or its heads are damaged",
        )),
        Some((false, _)) => Err(Error::refused("the device that was given as data belongs to another volume")),
        Some((true, found)) if found < epoch => Err(Error::refused(format!(
            "the device that was given as data is an older copy: mount {found} had it last, mount {epoch} the metadata"
        ))),
        Some((true, found)) if found == epoch => Err(Error::refused(format!(
            "the device that was given as data is of another copy of the volume, which was mounted {epoch} times, too"
        ))),
        Some((true, found)) => Err(Error::refused(format!(
            "the metadata are an older copy: mount {epoch} had them last, mount {found} the device that was given as data"
        ))),
    }
}
