//! Inodes that are decoded from their buffers, changed, and stored there again.

use arbor_base::vfs::{Attr, Errno, Ino, Result, SetAttr, SetTime, Time};

use crate::xattr::Xattrs;

/// Attributes of inodes by number.
pub trait Attributes {
    /// Attributes of an inode, as users see them; `ESTALE` if it is not in use.
    fn attr(&mut self, ino: Ino) -> Result<Attr>;
}

/// The inodes of an engine, in their buffers.
pub trait InodeStore {
    /// A decoded inode. It is a copy: storing one overwrites changes that were stored through another.
    type Inode;

    /// The number of an inode.
    fn number(i: &Self::Inode) -> Ino;

    /// The inode, which must be in use; `ESTALE` otherwise.
    fn iget(&mut self, ino: Ino) -> Result<Self::Inode>;

    /// Stores an inode in its buffer.
    fn iput(&mut self, i: &Self::Inode) -> Result<()>;
}

/// What the inodes of an engine hold besides blocks.
pub trait InodeTable: InodeStore {
    /// Attributes, as users see them.
    fn attr_of(&self, i: &Self::Inode) -> Attr;

    /// Applies a change of attributes other than the size.
    fn apply(&mut self, i: &mut Self::Inode, set: &Change);

    /// Target of a symbolic link; `None` for anything else.
    fn link_target(&mut self, i: &Self::Inode) -> Result<Option<Vec<u8>>>;

    /// All extended attributes.
    fn xattr_list(&mut self, i: &Self::Inode) -> Result<Xattrs>;

    /// Fails unless an inode has room for these attributes.
    fn check_xattrs(&self, list: &Xattrs) -> Result<()>;

    /// Stores the list of extended attributes, and the inode in its buffer.
    fn xattr_store(&mut self, i: &mut Self::Inode, list: &Xattrs) -> Result<()>;

    /// Target of a symbolic link; `EINVAL` for anything else.
    fn target_of(&mut self, ino: Ino) -> Result<Vec<u8>> {
        let i = self.iget(ino)?;
        self.link_target(&i)?.ok_or_else(|| Errno::EINVAL.into())
    }
}

impl<T: InodeTable> Attributes for T {
    fn attr(&mut self, ino: Ino) -> Result<Attr> {
        let i = self.iget(ino)?;
        Ok(self.attr_of(&i))
    }
}

/// The changes of a [`SetAttr`], without the size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Permissions, without the file type.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Time of the last access.
    pub atime: Option<Time>,
    /// Time of the last change of the contents.
    pub mtime: Option<Time>,
    /// Time of the last change of the inode; now, unless another time is asked for.
    pub ctime: Option<Time>,
    /// Time of the creation.
    pub btime: Option<Time>,
}

impl Change {
    /// The changes that `set` makes at `now`.
    pub fn new(set: &SetAttr, now: Time) -> Change {
        let at = |t: SetTime| match t {
            SetTime::Now => Some(now),
            SetTime::At(t) => Some(t),
            SetTime::Kept => None,
        };
        Change {
            mode: set.mode.map(|m| m & 0o7777),
            uid: set.uid,
            gid: set.gid,
            atime: set.atime.and_then(at),
            mtime: set.mtime.and_then(at),
            ctime: set.ctime.map_or(Some(now), at),
            btime: set.btime.and_then(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ctime_is_now_unless_it_is_kept() {
        let (now, then) = (Time { secs: 9, nanos: 0 }, Time { secs: 5, nanos: 0 });
        let of = |set: &SetAttr| Change::new(set, now);
        assert_eq!(of(&SetAttr::default()), Change { ctime: Some(now), ..Change::default() });
        let kept = SetAttr { ctime: Some(SetTime::Kept), mtime: Some(SetTime::At(then)), ..SetAttr::default() };
        assert_eq!(of(&kept), Change { mtime: Some(then), ..Change::default() });
        let mode = SetAttr { mode: Some(0o104755), atime: Some(SetTime::Now), ..SetAttr::default() };
        assert_eq!(of(&mode), Change { mode: Some(0o4755), atime: Some(now), ctime: Some(now), ..Change::default() });
    }
}
