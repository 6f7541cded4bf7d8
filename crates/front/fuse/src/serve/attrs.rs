//! Attributes: asked for, changed, and how they are shown.

use super::{Handled, Reply, Request, Server, put};
use crate::options::MountConfig;
use crate::proto::{AttrOut, EntryOut, Fattr, STATX_MASK, SetattrIn, StatxOut, SxTime};
use arbor_base::vfs::{Attr, Entry, FileType, SetAttr, SetTime, Time, acl, mode};
use std::time::Duration;

/// Owners and permissions that stand in for the stored ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    uid: Option<u32>,
    gid: Option<u32>,
    umask: u32,
}

impl Shown {
    pub(super) fn of(config: &MountConfig) -> Shown {
        Shown { uid: config.uid, gid: config.gid, umask: config.umask }
    }

    /// Whether an owner or a group may stand in for the stored one.
    pub(crate) fn changes_owners(self) -> bool {
        self.uid.is_some() || self.gid.is_some()
    }

    /// Whether other ones than these are shown.
    pub(crate) fn hides_owner(self, uid: u32, gid: u32) -> bool {
        self.uid.is_some_and(|shown| shown != uid) || self.gid.is_some_and(|shown| shown != gid)
    }

    pub(crate) fn attr(self, a: &Attr) -> Attr {
        // Set-id bits were given together with the owner that is stored.
        let set_id = if self.hides_owner(a.uid, a.gid) { mode::ISUID | mode::ISGID } else { 0 };
        let mode = a.mode & !(self.umask | if a.file_type() == FileType::Dir { 0 } else { set_id });
        Attr { mode, uid: self.uid.unwrap_or(a.uid), gid: self.gid.unwrap_or(a.gid), ..*a }
    }
}

impl Server {
    pub(super) fn getattr(&self, request: &Request<'_>, out: &mut [u8]) -> Handled {
        Ok(Reply::Bytes(self.attr_out(out, &self.fs.getattr(request.ino)?)))
    }

    pub(super) fn statx(&self, request: &Request<'_>, out: &mut [u8]) -> Handled {
        Ok(Reply::Bytes(self.statx_out(out, &self.fs.getattr(request.ino)?)))
    }

    pub(super) fn setattr(&self, request: &mut Request<'_>, out: &mut [u8]) -> Handled {
        let what: SetattrIn = request.arg()?;
        let valid = Fattr::from_bits_truncate(what.valid);
        let mut set = wanted(valid, &what);
        let ino = request.ino;
        if set.mode.is_some_and(|mode| mode & (mode::ISUID | mode::ISGID) != 0) {
            self.check_setid(ino, &set)?;
        }
        if set.size.is_some() {
            self.drop_hidden(ino)?;
        }
        let kills = valid.intersects(Fattr::KILL_SUIDGID | Fattr::UID | Fattr::GID) || set == SetAttr::default();
        if kills && set.mode.is_none() {
            set.mode = self.dropped_setid(request.caller, ino, valid.contains(Fattr::KILL_SUIDGID))?;
        }
        let change = || match self.agreed.acl() {
            true => acl::setattr(&*self.fs, ino, &set),
            false => self.fs.setattr(ino, &set),
        };
        let attr = match set.atime {
            _ if set == SetAttr::default() => self.fs.getattr(ino)?,
            None => change()?,
            Some(_) => self.atimes.set_by_hand(ino, change)?,
        };
        Ok(Reply::Bytes(self.attr_out(out, &attr)))
    }

    /// How long the kernel may keep attributes: not at all what changes without a call.
    fn attr_timeout(&self, a: &Attr) -> Duration {
        if a.unsettled { Duration::ZERO } else { self.attr_timeout }
    }

    fn wire_attr(&self, a: &Attr) -> crate::proto::Attr {
        let a = self.shown.attr(&self.atimes.shown(a));
        crate::proto::Attr {
            ino: a.ino.0,
            size: a.size,
            blocks: a.blocks,
            atime: a.atime.secs as u64,
            mtime: a.mtime.secs as u64,
            ctime: a.ctime.secs as u64,
            atimensec: a.atime.nanos,
            mtimensec: a.mtime.nanos,
            ctimensec: a.ctime.nanos,
            mode: a.mode,
            nlink: a.nlink,
            uid: a.uid,
            gid: a.gid,
            rdev: a.rdev,
            blksize: a.blksize,
            flags: 0,
        }
    }

    pub(super) fn entry(&self, out: &mut [u8], entry: &Entry) -> Reply {
        Reply::Entry(self.entry_out(out, entry), entry.ino)
    }

    pub(super) fn entry_out(&self, out: &mut [u8], entry: &Entry) -> usize {
        put(
            out,
            &EntryOut {
                nodeid: self.node(entry.ino),
                generation: entry.generation,
                entry_valid: self.entry_timeout.as_secs(),
                attr_valid: self.attr_timeout(entry).as_secs(),
                entry_valid_nsec: self.entry_timeout.subsec_nanos(),
                attr_valid_nsec: self.attr_timeout(entry).subsec_nanos(),
                attr: self.wire_attr(entry),
            },
        )
    }

    fn attr_out(&self, out: &mut [u8], attr: &Attr) -> usize {
        put(
            out,
            &AttrOut {
                attr_valid: self.attr_timeout(attr).as_secs(),
                attr_valid_nsec: self.attr_timeout(attr).subsec_nanos(),
                dummy: 0,
                attr: self.wire_attr(attr),
            },
        )
    }

    fn statx_out(&self, out: &mut [u8], a: &Attr) -> usize {
        let a = self.shown.attr(&self.atimes.shown(a));
        let time = |t: Time| SxTime { tv_sec: t.secs, tv_nsec: t.nanos, reserved: 0 };
        put(
            out,
            &StatxOut {
                attr_valid: self.attr_timeout(&a).as_secs(),
                attr_valid_nsec: self.attr_timeout(&a).subsec_nanos(),
                flags: 0,
                spare: [0; 2],
                mask: STATX_MASK,
                blksize: a.blksize,
                attributes: 0,
                nlink: a.nlink,
                uid: a.uid,
                gid: a.gid,
                mode: a.mode as u16,
                spare0: 0,
                ino: a.ino.0,
                size: a.size,
                blocks: a.blocks,
                attributes_mask: 0,
                atime: time(a.atime),
                btime: time(a.btime),
                ctime: time(a.ctime),
                mtime: time(a.mtime),
                rdev_major: a.rdev >> 8 & 0xfff,
                rdev_minor: a.rdev & 0xff | a.rdev >> 12 & 0xf_ff00,
                dev_major: 0,
                dev_minor: 0,
                spare2: [0; 14],
            },
        )
    }
}

/// What a SETATTR says is to be changed.
fn wanted(valid: Fattr, what: &SetattrIn) -> SetAttr {
    let time = |given, now, secs: u64, nanos| match (valid.contains(given), valid.contains(now)) {
        (_, true) => Some(SetTime::Now),
        (true, false) => Some(SetTime::At(Time { secs: secs as i64, nanos })),
        (false, false) => None,
    };
    SetAttr {
        mode: valid.contains(Fattr::MODE).then_some(what.mode & 0o7777),
        uid: valid.contains(Fattr::UID).then_some(what.uid),
        gid: valid.contains(Fattr::GID).then_some(what.gid),
        size: valid.contains(Fattr::SIZE).then_some(what.size),
        atime: time(Fattr::ATIME, Fattr::ATIME_NOW, what.atime, what.atimensec),
        mtime: time(Fattr::MTIME, Fattr::MTIME_NOW, what.mtime, what.mtimensec),
        ctime: valid
            .contains(Fattr::CTIME)
            .then_some(SetTime::At(Time { secs: what.ctime as i64, nanos: what.ctimensec })),
        btime: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::memfs::MemFs;
    use super::*;
    use arbor_base::vfs::FileSystem;

    #[test]
    fn owners_and_permissions_can_be_shown_otherwise() {
        let fs = MemFs::new();
        let stored = Attr { mode: mode::IFREG | 0o4755, uid: 0, gid: 5, ..fs.getattr(fs.root()).unwrap() };
        let shown = |uid, gid, umask| {
            let a = Shown { uid, gid, umask }.attr(&stored);
            (a.uid, a.gid, a.mode)
        };
        assert_eq!(shown(None, None, 0), (0, 5, mode::IFREG | 0o4755));
        assert_eq!(shown(None, Some(5), 0o022), (0, 5, mode::IFREG | 0o4755));
        assert_eq!(shown(Some(7), None, 0o077), (7, 5, mode::IFREG | 0o700));
    }
}
