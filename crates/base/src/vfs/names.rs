//! What names may be, the same in every engine.

use super::{Errno, Result};

/// Whether an entry of a directory may have this name; `.` and `..` only in their places.
pub fn is_name(name: &[u8]) -> bool {
    // In one pass, since most are short.
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|b| matches!(b, b'/' | 0))
}

/// Refuses what cannot be the name of a new entry.
pub fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > 255 {
        return Err(Errno::ENAMETOOLONG.into());
    }
    if is_name(name) { Ok(()) } else { Err(Errno::EINVAL.into()) }
}

/// Refuses what cannot be the name of an extended attribute.
pub fn check_xattr_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > 255 { Err(Errno::ERANGE.into()) } else { Ok(()) }
}
