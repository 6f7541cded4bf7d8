//! Set-id bits that go when others write, for what `HANDLE_KILLPRIV_V2` moves from the kernel to here, by its rules
//! (`setattr_should_drop_sgid`): set-user-id always, set-group-id where the group may execute the file, and elsewhere if
//! the caller is neither in the group nor may keep such bits.
//!
//! With `-o uid=` and `-o gid=` somebody may be shown as the owner of another's file, and so write to it and change
//! its mode. The other's rights are not theirs to give: such a file gets no set-id bits, and whatever gives it contents
//! takes away those that are stored, and its capabilities.

use crate::caller::Caller;
use crate::proto::InitFlags;
use crate::serve::Server;
use arbor_base::vfs::{self, Cx, Errno, Error, FileType, Ino, SetAttr, mode};

/// `mode` without the bits that a caller takes away who is in the file's group, or capable, as `keeps` says.
fn without_setid(mode: u32, keeps: impl FnOnce() -> bool) -> u32 {
    let goes = mode & mode::ISGID != 0 && (mode & 0o010 != 0 || !keeps());
    mode & !(mode::ISUID | if goes { mode::ISGID } else { 0 })
}

impl Server {
    /// The mode `ino` gets when its set-id bits are dropped, if it has any to drop. `told`: the kernel has said that the
    /// caller may not keep them.
    pub(crate) fn dropped_setid(&self, caller: Caller, ino: Ino, told: bool) -> vfs::Result<Option<u32>> {
        if !self.agreed.flags.contains(InitFlags::HANDLE_KILLPRIV_V2) {
            return Ok(None);
        }
        let attr = self.fs.getattr(ino)?;
        let gid = self.shown.attr(&attr).gid;
        let dropped = without_setid(attr.mode, || caller.is_root() && !told || caller.is_in_group(gid));
        Ok((attr.file_type() != FileType::Dir && dropped != attr.mode).then_some(dropped & 0o7777))
    }

    /// Before a request of which the kernel has said that it takes the bits away.
    pub(crate) fn drop_setid(&self, caller: Caller, ino: Ino) -> vfs::Result<()> {
        if let Some(mode) = self.dropped_setid(caller, ino, true)? {
            self.fs.setattr(ino, &SetAttr { mode: Some(mode), ..SetAttr::default() })?;
        }
        Ok(())
    }

    /// Refuses a change of mode that would give set-id bits in the name of an owner that is not shown.
    pub(crate) fn check_setid(&self, ino: Ino, set: &SetAttr) -> vfs::Result<()> {
        if !self.shown.changes_owners() {
            return Ok(());
        }
        let attr = self.fs.getattr(ino)?;
        let (uid, gid) = (set.uid.unwrap_or(attr.uid), set.gid.unwrap_or(attr.gid));
        let refused = attr.file_type() != FileType::Dir && self.shown.hides_owner(uid, gid);
        if refused { Err(Errno::EPERM.into()) } else { Ok(()) }
    }

    /// The same for a new file in `dir`, which may hand down its group.
    pub(crate) fn check_new_setid(&self, cx: &Cx, dir: Ino, mode: u32) -> vfs::Result<()> {
        let asks = mode & mode::IFMT != mode::IFDIR && mode & (mode::ISUID | mode::ISGID) != 0;
        if !asks || !self.shown.changes_owners() {
            return Ok(());
        }
        let dir = self.fs.getattr(dir)?;
        let gid = if dir.mode & mode::ISGID != 0 { dir.gid } else { cx.gid };
        if self.shown.hides_owner(cx.uid, gid) { Err(Errno::EPERM.into()) } else { Ok(()) }
    }

    /// Before a file gets contents from somebody who may only be shown as its owner.
    pub(crate) fn drop_hidden(&self, ino: Ino) -> vfs::Result<()> {
        if !self.shown.changes_owners() {
            return Ok(());
        }
        let attr = self.fs.getattr(ino)?;
        if attr.file_type() == FileType::Dir || !self.shown.hides_owner(attr.uid, attr.gid) {
            return Ok(());
        }
        if attr.mode & (mode::ISUID | mode::ISGID) != 0 {
            let mode = attr.mode & 0o7777 & !(mode::ISUID | mode::ISGID);
            self.fs.setattr(ino, &SetAttr { mode: Some(mode), ..SetAttr::default() })?;
        }
        match self.fs.removexattr(ino, b"security.capability") {
            Err(Error::Errno(Errno::ENODATA | Errno::EOPNOTSUPP)) => Ok(()),
            other => other,
        }
    }

    /// For requests that do not say whether the caller may keep the bits.
    pub(crate) fn drop_setid_for(&self, caller: Caller, ino: Ino) -> vfs::Result<()> {
        if caller.is_root() { Ok(()) } else { self.drop_setid(caller, ino) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_go_by_the_kernels_rules() {
        let after = |mode, keeps| without_setid(mode, || keeps);
        assert_eq!((after(0o6755, true), after(0o6755, false)), (0o755, 0o755));
        assert_eq!((after(0o6745, true), after(0o6745, false)), (0o2745, 0o745));
        assert_eq!((after(0o644, true), after(0o1644, false)), (0o644, 0o1644));
    }
}
