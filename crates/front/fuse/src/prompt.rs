//! Changes that are durable when their call returns: the options `sync` and `dirsync`.

use crate::proto::{CopyFileRangeIn, InHeader, IoctlIn, LinkIn, Op, Rename2In, RenameIn, take};
use crate::serve::Reply;
use arbor_base::vfs::{FileSystem, Ino, Result};

/// Which changes are durable when their call returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promptly {
    /// Those of an fsync.
    #[default]
    Asked,
    /// Changes of names too, as `dirsync` says.
    Names,
    /// All, as `sync` says.
    Everything,
}

/// What a request changes, as far as durability goes.
enum Change {
    Nothing,
    /// Names in the directory of the request, and in another.
    Names(Option<u64>),
    /// The inode of the request.
    Inode,
    /// Another inode.
    Other(u64),
    /// What is not known here.
    Volume,
}

impl Change {
    fn of(op: Op, mut args: &[u8]) -> Change {
        let args = &mut args;
        match op {
            Op::Mknod | Op::Mkdir | Op::Symlink | Op::Unlink | Op::Rmdir => Change::Names(None),
            Op::Link => Change::Names(take::<LinkIn>(args).map(|link| link.oldnodeid)),
            Op::Rename => Change::Names(take::<RenameIn>(args).map(|to| to.newdir)),
            Op::Rename2 => Change::Names(take::<Rename2In>(args).map(|to| to.newdir)),
            Op::Setattr | Op::Write | Op::Fallocate | Op::Setxattr | Op::Removexattr => Change::Inode,
            Op::CopyFileRange | Op::CopyFileRange64 => {
                take::<CopyFileRangeIn>(args).map_or(Change::Nothing, |copy| Change::Other(copy.nodeid_out))
            }
            // Those that only hand something over (`_IOW`) set it; what others do is no change of a file.
            Op::Ioctl => match take::<IoctlIn>(args) {
                Some(what) if what.cmd >> 30 == 1 => Change::Volume,
                _ => Change::Nothing,
            },
            _ => Change::Nothing,
        }
    }
}

impl Promptly {
    /// Makes durable what a request has changed, if that is promised. `ino` knows the inode of a node.
    pub(crate) fn make_durable(
        self,
        fs: &dyn FileSystem,
        ino: impl Fn(u64) -> Ino,
        (head, args): (&InHeader, &[u8]),
        reply: &Reply,
    ) -> Result<()> {
        let Some(op) = Op::from_number(head.opcode).filter(|_| self > Promptly::Asked) else { return Ok(()) };
        let change = Change::of(op, args);
        if self == Promptly::Names && !matches!(change, Change::Names(_)) {
            return Ok(());
        }
        let fsync = |node| fs.fsync(ino(node), false);
        match change {
            Change::Nothing => Ok(()),
            Change::Names(other) => {
                // What a name leads to comes before the name.
                if let Reply::Entry(_, new) = *reply {
                    fs.fsync(new, false)?;
                }
                other.filter(|other| *other != head.nodeid).map_or(Ok(()), fsync)?;
                fsync(head.nodeid)
            }
            Change::Inode => fsync(head.nodeid),
            Change::Other(node) => fsync(node),
            Change::Volume => fs.syncfs(),
        }
    }
}
