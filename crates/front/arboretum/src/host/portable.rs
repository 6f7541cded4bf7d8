//! Directories and files by path, where the platform has no descriptors of directories to be had.

use super::{HostFile, swapped};
use crate::meta::host_time;
use crate::node::{bytes_of, path_of};
use arbor_base::vfs::FileType;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// A directory.
pub(crate) struct HostDir(PathBuf);

impl HostDir {
    /// The directory at a path that the caller named.
    pub(crate) fn open(path: &Path) -> io::Result<HostDir> {
        match fs::metadata(path)?.is_dir() {
            true => Ok(HostDir(path.to_path_buf())),
            false => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    /// As [`open`](HostDir::open), for what lies in it.
    pub(crate) fn above(path: &Path) -> io::Result<HostDir> {
        HostDir::open(path)
    }

    /// A directory in this one.
    pub(crate) fn dir(&self, name: &[u8]) -> io::Result<HostDir> {
        match self.look(name)?.kind {
            FileType::Dir => Ok(HostDir(self.at(name)?)),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    /// A directory in this one, for what lies in it.
    pub(crate) fn through(&self, name: &[u8]) -> io::Result<HostDir> {
        self.dir(name)
    }

    /// The directory that holds this one.
    pub(crate) fn parent(&self) -> io::Result<HostDir> {
        self.0.parent().map(|above| HostDir(above.to_path_buf())).ok_or(io::ErrorKind::NotFound.into())
    }

    /// The same directory.
    pub(crate) fn again(&self) -> io::Result<HostDir> {
        Ok(HostDir(self.0.clone()))
    }

    /// What no other directory has: a path says nothing of that.
    pub(crate) fn id(&self) -> io::Result<(u64, u64)> {
        Ok((0, 0))
    }

    pub(crate) fn make_dir(&self, name: &[u8]) -> io::Result<HostDir> {
        fs::create_dir(self.at(name)?)?;
        self.dir(name)
    }

    /// What this directory is.
    pub(crate) fn itself(&self) -> io::Result<HostFile> {
        Ok(host_file(&fs::metadata(&self.0)?))
    }

    /// What has that name, be it a link.
    pub(crate) fn look(&self, name: &[u8]) -> io::Result<HostFile> {
        Ok(host_file(&fs::symlink_metadata(self.at(name)?)?))
    }

    /// What the name leads to.
    pub(crate) fn look_behind(&self, name: &[u8]) -> io::Result<HostFile> {
        Ok(host_file(&fs::metadata(self.at(name)?)?))
    }

    /// What it holds, in no order.
    pub(crate) fn names(&self) -> io::Result<Vec<Vec<u8>>> {
        fs::read_dir(&self.0)?.map(|e| Ok(bytes_of(Path::new(&e?.file_name())).into_owned())).collect()
    }

    /// Opens a regular file to read it.
    pub(crate) fn open_file(&self, name: &[u8]) -> io::Result<(fs::File, HostFile)> {
        let file = fs::File::open(self.at(name)?)?;
        let facts = host_file(&file.metadata()?);
        if facts.kind != FileType::File {
            return Err(swapped());
        }
        Ok((file, facts))
    }

    pub(crate) fn create(&self, name: &[u8]) -> io::Result<fs::File> {
        fs::OpenOptions::new().write(true).create_new(true).open(self.at(name)?)
    }

    pub(crate) fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        fs::rename(self.at(from)?, self.at(to)?)
    }

    /// Removes what is not a directory.
    pub(crate) fn remove(&self, name: &[u8]) -> io::Result<()> {
        fs::remove_file(self.at(name)?)
    }

    /// Gives the file `name` another name, `new` in `dir`.
    pub(crate) fn link(&self, name: &[u8], dir: &HostDir, new: &[u8]) -> io::Result<()> {
        fs::hard_link(self.at(name)?, dir.at(new)?)
    }

    pub(crate) fn symlink(&self, _target: &[u8], _name: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn read_link(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        Ok(bytes_of(&fs::read_link(self.at(name)?)?).into_owned())
    }

    pub(crate) fn make_node(&self, _name: &[u8], _kind: FileType, _permissions: u32, _rdev: u32) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn handle(&self) -> io::Result<Handle> {
        Ok(Handle)
    }

    pub(crate) fn special(&self, _name: &[u8], _kind: FileType) -> io::Result<Handle> {
        Ok(Handle)
    }

    /// The path of a name that leads nowhere but to an entry of this directory.
    fn at(&self, name: &[u8]) -> io::Result<PathBuf> {
        let name = path_of(name.to_vec());
        let mut parts = name.components();
        match (parts.next(), parts.next()) {
            (Some(Component::Normal(_)), None) => Ok(self.0.join(name)),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

fn host_file(meta: &fs::Metadata) -> HostFile {
    let kind = match (meta.is_dir(), meta.is_symlink()) {
        (true, _) => FileType::Dir,
        (_, true) => FileType::Symlink,
        _ => FileType::File,
    };
    HostFile {
        kind,
        mode: if kind == FileType::Dir { 0o755 } else { 0o644 },
        owner: None,
        rdev: 0,
        size: meta.len(),
        atime: host_time(meta.accessed()),
        mtime: host_time(meta.modified()),
        id: None,
        is_linked: false,
    }
}

/// A file's attributes, of which this platform takes none.
pub(crate) struct Handle;

impl From<fs::File> for Handle {
    fn from(_: fs::File) -> Handle {
        Handle
    }
}

impl Handle {
    pub(crate) fn set_attributes(&self, _file: &HostFile) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn owner(&self) -> Option<(u32, u32)> {
        None
    }

    pub(crate) fn chown(&self, _uid: u32, _gid: u32) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn chmod(&self, _permissions: u32) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn xattrs(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        Vec::new()
    }

    pub(crate) fn set_xattr(&self, _name: &[u8], _value: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Whether this process may give files away.
pub(crate) fn may_chown() -> bool {
    false
}
