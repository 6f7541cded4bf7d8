//! Extended attributes: those of files, ACLs, and the counters that the root shows as one.

use super::{Handled, Reply, Request, Server, done, put};
use crate::counters::{STATS, stats_text};
use crate::proto::*;
use arbor_base::vfs::{self, Errno, XattrMode, acl};

impl Server {
    pub(super) fn getxattr(&self, request: &mut Request<'_>, out: &mut [u8]) -> Handled {
        let what: GetxattrIn = request.arg()?;
        let attribute = request.name()?;
        if request.ino == self.root && attribute == STATS.as_bytes() {
            return xattr_out(out, what.size, stats_text(&self.counters, &*self.fs).as_bytes());
        }
        self.xattr_carried(attribute)?;
        xattr_out(out, what.size, &self.fs.getxattr(request.ino, attribute)?)
    }

    pub(super) fn listxattr(&self, request: &mut Request<'_>, out: &mut [u8]) -> Handled {
        let what: GetxattrIn = request.arg()?;
        let mut list = Vec::new();
        for attribute in self.fs.listxattr(request.ino)? {
            let is_listed = match self.xattr_carried(&attribute) {
                Ok(()) => !attribute.starts_with(b"trusted.") || request.caller.is_root(),
                Err(_) => false,
            };
            if is_listed {
                list.extend_from_slice(&attribute);
                list.push(0);
            }
        }
        xattr_out(out, what.size, &list)
    }

    pub(super) fn setxattr(&self, request: &mut Request<'_>) -> Handled {
        let what: SetxattrIn = request.arg()?;
        let more = match self.agreed.flags.contains(InitFlags::SETXATTR_EXT) {
            true => request.arg::<SetxattrExt>()?.setxattr_flags,
            false => 0,
        };
        let attribute = request.name()?;
        self.xattr_carried(attribute)?;
        let value = request.bytes(what.size)?;
        if acl::is_acl(attribute) {
            return done(acl::set(&*self.fs, request.ino, attribute, value, more & SETXATTR_ACL_KILL_SGID != 0));
        }
        let mode = match what.flags {
            0 => XattrMode::Set,
            1 => XattrMode::Create,
            2 => XattrMode::Replace,
            _ => return Err(Errno::EINVAL.into()),
        };
        done(self.fs.setxattr(request.ino, attribute, value, mode))
    }

    pub(super) fn removexattr(&self, request: &mut Request<'_>) -> Handled {
        let attribute = request.name()?;
        self.xattr_carried(attribute)?;
        done(self.fs.removexattr(request.ino, attribute))
    }

    /// Only these may be stored: POSIX ACLs that nobody enforces would be a lie, and the kernel
    /// has no other handlers.
    fn xattr_carried(&self, name: &[u8]) -> vfs::Result<()> {
        let known: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
        let is_known = known.iter().any(|prefix| name.starts_with(prefix) && name.len() > prefix.len());
        let carried = is_known || self.agreed.acl() && acl::is_acl(name);
        if carried { Ok(()) } else { Err(Errno::EOPNOTSUPP.into()) }
    }
}

fn xattr_out(out: &mut [u8], room: u32, value: &[u8]) -> Handled {
    if room == 0 {
        return Ok(Reply::Bytes(put(out, &GetxattrOut { size: value.len() as u32, padding: 0 })));
    }
    if value.len() > out.len().min(room as usize) {
        return Err(Errno::ERANGE.into());
    }
    out[..value.len()].copy_from_slice(value);
    Ok(Reply::Bytes(value.len()))
}
