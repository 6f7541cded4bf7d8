//! How what is new in a volume gets a name that may be another's.

use crate::error::{Failure, Result};
use crate::node::Node;
use arbor_base::vfs::{Errno, FileType, RenameFlags};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where something is made that is to have a name.
pub(crate) enum Way {
    /// At its name: nothing is there.
    Free,
    /// A directory is there, to merge with another.
    Merge(Node),
    /// Under another name, until it is whole and takes the place of what is there.
    Beside { part: Vec<u8>, old: Node },
}

impl Way {
    pub(crate) fn to(dir: &Node, name: &[u8], kind: FileType) -> Result<Way> {
        match dir.child_if_any(name)? {
            None => Ok(Way::Free),
            Some(old) if old.is_dir() && kind == FileType::Dir => Ok(Way::Merge(old)),
            Some(old) if old.is_dir() => {
                let why = "cannot overwrite directory with non-directory";
                Err(Failure::Host(io::Error::new(io::ErrorKind::IsADirectory, why)))
            }
            Some(_) if kind == FileType::Dir => Err(no_directory_there().into()),
            Some(old) => loop {
                let part = format!(".arbor-part-{}", next_part()).into_bytes();
                if dir.child_if_any(&part)?.is_none() {
                    break Ok(Way::Beside { part, old });
                }
            },
        }
    }

    /// The name to make it under, if it is to have `name`.
    pub(crate) fn name<'a>(&'a self, name: &'a [u8]) -> &'a [u8] {
        match self {
            Way::Beside { part, .. } => part,
            _ => name,
        }
    }

    /// A regular file at its name; one that takes the place of another has none, so that nothing is left of it if this
    /// process ends before it is whole.
    pub(crate) fn file(&self, dir: &Node, name: &[u8]) -> Result<Node> {
        let nameless = match self {
            Way::Beside { .. } => dir.tmpfile(0o600),
            _ => Err(Errno::EOPNOTSUPP.into()),
        };
        match nameless {
            Err(Failure::Volume(e)) if e.errno() == Errno::EOPNOTSUPP => {
                dir.mknod(self.name(name), FileType::File.mode() | 0o600, 0)
            }
            made => made,
        }
    }

    /// What was made is whole.
    pub(crate) fn done(&self, made: &Node, dir: &Node, name: &[u8]) -> Result<()> {
        if let Way::Beside { part, .. } = self
            && made.attr.nlink == 0
        {
            made.link(dir, part)?;
        }
        self.replace(dir, name)
    }

    fn replace(&self, dir: &Node, name: &[u8]) -> Result<()> {
        if let Way::Beside { part, .. } = self {
            let (fs, ino) = (dir.fs(), dir.ino());
            let renamed = fs.rename(&dir.mount.cx, ino, part, ino, name, RenameFlags::empty());
            renamed.inspect_err(|_| remove_part(dir, part))?;
        }
        dir.mount.changed();
        Ok(())
    }

    /// Makes it another name of `first`.
    pub(crate) fn link(&self, first: &Node, dir: &Node, name: &[u8]) -> Result<()> {
        match self {
            Way::Beside { old, .. } if old.ino() == first.ino() => Ok(()),
            _ => {
                first.link(dir, self.name(name))?;
                self.replace(dir, name)
            }
        }
    }
}

/// Why a directory is not copied to where something else is.
pub(crate) fn no_directory_there() -> io::Error {
    io::Error::new(io::ErrorKind::NotADirectory, "cannot overwrite non-directory with directory")
}

/// Takes away a file that could not be filled: nobody is to mistake it for the whole.
pub(crate) fn remove_part(dir: &Node, name: &[u8]) {
    // The reason why it could not be filled is what counts.
    let _ = dir.fs().unlink(dir.ino(), name);
    dir.mount.changed();
}

/// A number that no other copy of this process has.
pub(crate) fn next_part() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
