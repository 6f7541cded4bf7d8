//! Requests on names: what they lead to, new ones, and those that go.

use super::{Handled, Reply, Request, Server, done, open_out, put};
use crate::proto::*;
use arbor_base::vfs::{self, Cx, Entry, Errno, Error, Ino, RenameFlags, acl, mode};
use zerocopy::FromZeros;

impl Server {
    pub(super) fn lookup(&self, request: &mut Request<'_>, out: &mut [u8]) -> Handled {
        match self.fs.lookup(request.ino, request.name()?) {
            Ok(entry) => Ok(self.entry(out, &entry)),
            Err(Error::Errno(Errno::ENOENT)) if !self.negative_timeout.is_zero() => {
                let mut entry = EntryOut::new_zeroed();
                entry.entry_valid = self.negative_timeout.as_secs();
                entry.entry_valid_nsec = self.negative_timeout.subsec_nanos();
                Ok(Reply::Bytes(put(out, &entry)))
            }
            Err(e) => Err(e),
        }
    }

    pub(super) fn mknod(&self, request: &mut Request<'_>, out: &mut [u8]) -> Handled {
        let what: MknodIn = request.arg()?;
        let at = (request.ino, request.name()?);
        Ok(self.entry(out, &self.create(&request.cx, at, (what.mode, what.rdev), what.umask)?))
    }

    pub(super) fn mkdir(&self, request: &mut Request<'_>, out: &mut [u8]) -> Handled {
        let what: MkdirIn = request.arg()?;
        let at = (request.ino, request.name()?);
        let mode = mode::IFDIR | what.mode & 0o7777;
        Ok(self.entry(out, &self.create(&request.cx, at, (mode, 0), what.umask)?))
    }

    /// Creates a node or a directory. With ACLs the umask is left to us.
    fn create(&self, cx: &Cx, at: (Ino, &[u8]), (mode, rdev): (u32, u32), umask: u32) -> vfs::Result<Entry> {
        self.check_new_setid(cx, at.0, mode)?;
        match self.agreed.acl() {
            true => acl::create(&*self.fs, cx, at, (mode, rdev), umask),
            false if mode & mode::IFMT == mode::IFDIR => self.fs.mkdir(cx, at.0, at.1, mode & 0o7777),
            false => self.fs.mknod(cx, at.0, at.1, mode, rdev),
        }
    }

    pub(super) fn symlink(&self, request: &mut Request<'_>, out: &mut [u8]) -> Handled {
        let (new, target) = (request.name()?, request.name()?);
        Ok(self.entry(out, &self.fs.symlink(&request.cx, request.ino, new, target)?))
    }

    pub(super) fn tmpfile(&self, request: &mut Request<'_>, out: &mut [u8]) -> Handled {
        let what: CreateIn = request.arg()?;
        let (cx, ino) = (&request.cx, request.ino);
        self.check_new_setid(cx, ino, mode::IFREG | what.mode & 0o7777)?;
        let entry = match self.agreed.acl() {
            true => acl::tmpfile(&*self.fs, cx, ino, what.mode & 0o7777, what.umask)?,
            false => self.fs.tmpfile(cx, ino, what.mode & 0o7777)?,
        };
        let len = self.entry_out(out, &entry);
        Ok(Reply::Entry(len + open_out(&mut out[len..], self.open_flags), entry.ino))
    }

    pub(super) fn link(&self, request: &mut Request<'_>, out: &mut [u8]) -> Handled {
        let what: LinkIn = request.arg()?;
        Ok(self.entry(out, &self.fs.link(self.ino(what.oldnodeid), request.ino, request.name()?)?))
    }

    pub(super) fn unlink(&self, request: &mut Request<'_>) -> Handled {
        done(self.fs.unlink(request.ino, request.name()?))
    }

    pub(super) fn rmdir(&self, request: &mut Request<'_>) -> Handled {
        done(self.fs.rmdir(request.ino, request.name()?))
    }

    pub(super) fn rename(&self, request: &mut Request<'_>) -> Handled {
        let to: RenameIn = request.arg()?;
        self.rename_into(to.newdir, 0, request)
    }

    pub(super) fn rename2(&self, request: &mut Request<'_>) -> Handled {
        let to: Rename2In = request.arg()?;
        self.rename_into(to.newdir, to.flags, request)
    }

    fn rename_into(&self, newdir: u64, flags: u32, request: &mut Request<'_>) -> Handled {
        let flags = RenameFlags::from_bits(flags).ok_or(Errno::EINVAL)?;
        let (old, new) = (request.name()?, request.name()?);
        done(self.fs.rename(&request.cx, request.ino, old, self.ino(newdir), new, flags))
    }
}
