//! Errors of a file system: an errno value, damage, or a failed device.

use crate::layout::Corrupt;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Result of a file-system call.
pub type Result<T> = std::result::Result<T, Error>;

macro_rules! errnos {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        /// An errno value, with Linux's numbers on every platform.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct Errno(pub i32);

        #[allow(missing_docs)]
        impl Errno {
            $(pub const $name: Errno = Errno($value);)*

            /// Its name, e.g. `"ENOENT"`.
            pub fn name(self) -> &'static str {
                match self { $(Errno::$name => stringify!($name),)* _ => "E?" }
            }

            /// What it means, in the words of strerror(3).
            pub fn text(self) -> &'static str {
                match self { $(Errno::$name => $text,)* _ => "Unknown error" }
            }
        }
    };
}

errnos! {
    EPERM = 1, "Operation not permitted";
    ENOENT = 2, "No such file or directory";
    EINTR = 4, "Interrupted system call";
    EIO = 5, "Input/output error";
    ENXIO = 6, "No such device or address";
    E2BIG = 7, "Argument list too long";
    EBADF = 9, "Bad file descriptor";
    EAGAIN = 11, "Resource temporarily unavailable";
    ENOMEM = 12, "Cannot allocate memory";
    EACCES = 13, "Permission denied";
    EBUSY = 16, "Device or resource busy";
    EEXIST = 17, "File exists";
    EXDEV = 18, "Invalid cross-device link";
    ENODEV = 19, "No such device";
    ENOTDIR = 20, "Not a directory";
    EISDIR = 21, "Is a directory";
    EINVAL = 22, "Invalid argument";
    ETXTBSY = 26, "Text file busy";
    EFBIG = 27, "File too large";
    ENOSPC = 28, "No space left on device";
    EROFS = 30, "Read-only file system";
    EMLINK = 31, "Too many links";
    ERANGE = 34, "Numerical result out of range";
    ENAMETOOLONG = 36, "File name too long";
    ENOSYS = 38, "Function not implemented";
    ENOTEMPTY = 39, "Directory not empty";
    ELOOP = 40, "Too many levels of symbolic links";
    ENODATA = 61, "No data available";
    EOVERFLOW = 75, "Value too large for defined data type";
    EOPNOTSUPP = 95, "Operation not supported";
    ESTALE = 116, "Stale file handle";
    EUCLEAN = 117, "Structure needs cleaning";
    EDQUOT = 122, "Disk quota exceeded";
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Why a call failed.
#[derive(Debug)]
pub enum Error {
    /// The call cannot be served.
    Errno(Errno),
    /// The volume is damaged there (`EUCLEAN`).
    Corrupt(Box<Corrupt>),
    /// The device failed (`EIO`).
    Io(io::Error),
    /// The volume or an option cannot be used, with the reason (`EINVAL`).
    Refused(String),
    /// The volume turned read-only before, with the reason (`EIO`).
    Failed(Arc<str>),
    /// The call has changed nothing, and restarts once the bytes that it wants are there (`EAGAIN`). It stays inside an
    /// engine.
    Restart,
}

impl Error {
    /// The errno value a system call would return.
    pub fn errno(&self) -> Errno {
        match self {
            Error::Errno(e) => *e,
            Error::Corrupt(_) => Errno::EUCLEAN,
            Error::Io(_) => Errno::EIO,
            Error::Refused(_) => Errno::EINVAL,
            Error::Failed(_) => Errno::EIO,
            Error::Restart => Errno::EAGAIN,
        }
    }

    /// Whether something of the volume is damaged, or cannot be read.
    pub fn is_damage(&self) -> bool {
        matches!(self, Error::Corrupt(_) | Error::Io(_) | Error::Errno(Errno::EIO | Errno::EUCLEAN))
    }

    /// A refusal with its reason.
    pub fn refused(why: impl fmt::Display) -> Error {
        Error::Refused(why.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Errno(e) => e.fmt(f),
            Error::Corrupt(c) => c.fmt(f),
            Error::Io(e) => write!(f, "device error: {e}"),
            Error::Refused(why) => f.write_str(why),
            Error::Failed(why) => write!(f, "turned read-only: {why}"),
            Error::Restart => f.write_str("to be begun anew"),
        }
    }
}

impl std::error::Error for Error {}

impl From<Errno> for Error {
    fn from(e: Errno) -> Error {
        Error::Errno(e)
    }
}

impl From<Corrupt> for Error {
    fn from(c: Corrupt) -> Error {
        Error::Corrupt(Box::new(c))
    }
}

impl From<io::Error> for Error {
    fn from(e: io::Error) -> Error {
        Error::Io(e)
    }
}

impl From<Error> for io::Error {
    fn from(e: Error) -> io::Error {
        match e {
            Error::Io(e) => e,
            #[cfg(target_os = "linux")]
            Error::Errno(e) => io::Error::from_raw_os_error(e.0),
            other => {
                let kind = match other.errno() {
                    Errno::ENOENT => io::ErrorKind::NotFound,
                    Errno::EEXIST => io::ErrorKind::AlreadyExists,
                    Errno::EACCES | Errno::EPERM => io::ErrorKind::PermissionDenied,
                    Errno::EUCLEAN => io::ErrorKind::InvalidData,
                    Errno::EINVAL => io::ErrorKind::InvalidInput,
                    _ => io::ErrorKind::Other,
                };
                io::Error::new(kind, other)
            }
        }
    }
}
