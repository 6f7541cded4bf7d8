//! Errors: what was done to which path, and why it failed.

use arbor_base::vfs::{self, Errno};
use std::fmt;
use std::io::{self, ErrorKind};

/// Why a call failed, before it knows its name and path.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The file system said so.
    Volume(vfs::Error),
    /// The host said so.
    Host(io::Error),
    /// The tree of the volume is no tree; says where.
    Damage(String),
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl From<vfs::Error> for Failure {
    fn from(e: vfs::Error) -> Failure {
        Failure::Volume(e)
    }
}

impl From<Errno> for Failure {
    fn from(e: Errno) -> Failure {
        Failure::Volume(e.into())
    }
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Failure {
        Failure::Host(e)
    }
}

impl Failure {
    fn errno(&self) -> Option<Errno> {
        match self {
            Failure::Volume(e) => Some(e.errno()),
            Failure::Host(e) => errno(e),
            Failure::Damage(_) => Some(Errno::EUCLEAN),
        }
    }

    /// Whether something of the volume cannot be read.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self.errno(), Some(Errno::EIO | Errno::EUCLEAN))
    }

    /// Whether it is about one file, and says nothing of the next.
    pub(crate) fn is_of_file(&self) -> bool {
        const OF_ALL: [Errno; 4] = [Errno::ENOSPC, Errno::EROFS, Errno::EIO, Errno::EUCLEAN];
        match self {
            Failure::Volume(e) => !OF_ALL.contains(&e.errno()),
            Failure::Host(e) => e.kind() != ErrorKind::Interrupted,
            Failure::Damage(_) => false,
        }
    }

    /// Whether the volume does not take a member of an archive, or has something else there.
    pub(crate) fn is_of_member(&self) -> bool {
        match self {
            Failure::Host(e) => matches!(e.kind(), ErrorKind::IsADirectory | ErrorKind::NotADirectory),
            _ => self.is_of_file(),
        }
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Failure::Volume(vfs::Error::Io(e)) | Failure::Host(e) => e.kind(),
            Failure::Volume(e) => kind_of(e.errno()),
            Failure::Damage(_) => kind_of(Errno::EUCLEAN),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Volume(e) => e.fmt(f),
            Failure::Damage(text) => f.write_str(text),
            Failure::Host(e) if e.raw_os_error().is_some() => f.write_str(without_number(&e.to_string())),
            Failure::Host(e) => match errno_of(e.kind()).filter(|_| e.get_ref().is_none()) {
                Some(errno) => f.write_str(errno.text()),
                None => e.fmt(f),
            },
        }
    }
}

/// The errno value whose words say what a bare kind of error is.
fn errno_of(kind: ErrorKind) -> Option<Errno> {
    Some(match kind {
        ErrorKind::NotFound => Errno::ENOENT,
        ErrorKind::PermissionDenied => Errno::EACCES,
        ErrorKind::AlreadyExists => Errno::EEXIST,
        ErrorKind::NotADirectory => Errno::ENOTDIR,
        ErrorKind::IsADirectory => Errno::EISDIR,
        ErrorKind::InvalidInput => Errno::EINVAL,
        ErrorKind::StorageFull => Errno::ENOSPC,
        ErrorKind::Unsupported => Errno::EOPNOTSUPP,
        _ => return None,
    })
}

/// `No such file or directory (os error 2)` without the number.
fn without_number(text: &str) -> &str {
    text.split(" (os error").next().unwrap_or(text)
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Failure::Volume(e) => Some(e),
            Failure::Host(e) => Some(e),
            Failure::Damage(_) => None,
        }
    }
}

/// A failure with the operation and the path it happened to.
#[derive(Debug)]
struct VolumeError {
    op: &'static str,
    path: String,
    failure: Failure,
}

impl fmt::Display for VolumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.failure.to_string();
        match text.strip_prefix(&self.path) {
            Some(rest) if rest.starts_with([':', ' ']) => write!(f, "{} {text}", self.op),
            _ if self.path.is_empty() => write!(f, "{}: {text}", self.op),
            _ => write!(f, "{} {}: {text}", self.op, self.path),
        }
    }
}

impl std::error::Error for VolumeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.failure)
    }
}

pub(crate) trait Named {
    type Out;
    /// Says which operation on which path it is about.
    fn named(self, op: &'static str, path: &[u8]) -> Self::Out;
}

impl Named for Failure {
    type Out = io::Error;
    fn named(self, op: &'static str, path: &[u8]) -> io::Error {
        let path = String::from_utf8_lossy(path).into_owned();
        io::Error::new(self.kind(), VolumeError { op, path, failure: self })
    }
}

impl<T> Named for Result<T> {
    type Out = io::Result<T>;
    fn named(self, op: &'static str, path: &[u8]) -> io::Result<T> {
        self.map_err(|e| e.named(op, path))
    }
}

/// The errno value behind an error of this crate, with Linux's numbers on every platform.
/// `None` if the error did not come from a file system of this crate.
pub fn errno(error: &io::Error) -> Option<Errno> {
    error.get_ref()?.downcast_ref::<VolumeError>()?.failure.errno()
}

fn kind_of(errno: Errno) -> ErrorKind {
    match errno {
        Errno::ENOENT | Errno::ENODATA => ErrorKind::NotFound,
        Errno::EPERM | Errno::EACCES => ErrorKind::PermissionDenied,
        Errno::EINTR => ErrorKind::Interrupted,
        Errno::EAGAIN => ErrorKind::WouldBlock,
        Errno::ENOMEM => ErrorKind::OutOfMemory,
        Errno::EBUSY => ErrorKind::ResourceBusy,
        Errno::EEXIST => ErrorKind::AlreadyExists,
        Errno::ENOTDIR => ErrorKind::NotADirectory,
        Errno::EISDIR => ErrorKind::IsADirectory,
        Errno::EINVAL => ErrorKind::InvalidInput,
        Errno::EFBIG => ErrorKind::FileTooLarge,
        Errno::ENOSPC => ErrorKind::StorageFull,
        Errno::EDQUOT => ErrorKind::QuotaExceeded,
        Errno::EROFS => ErrorKind::ReadOnlyFilesystem,
        Errno::EMLINK => ErrorKind::TooManyLinks,
        Errno::ENAMETOOLONG => ErrorKind::InvalidFilename,
        Errno::ENOTEMPTY => ErrorKind::DirectoryNotEmpty,
        Errno::ENOSYS | Errno::EOPNOTSUPP => ErrorKind::Unsupported,
        Errno::ESTALE => ErrorKind::StaleNetworkFileHandle,
        Errno::EUCLEAN => ErrorKind::InvalidData,
        _ => ErrorKind::Other,
    }
}
