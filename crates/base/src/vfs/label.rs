//! The label of a volume: at most 63 bytes in a field of 64 in each engine's superblock.

use super::{Error, Result};

/// Longest label in bytes.
pub const LABEL_MAX: usize = 63;

/// The field of a superblock that holds this label, padded with NUL.
pub fn label_field(label: &[u8]) -> Result<[u8; 64]> {
    if label.len() > LABEL_MAX {
        return Err(Error::refused(format!("a label has at most {LABEL_MAX} bytes, not {}", label.len())));
    }
    if label.contains(&0) {
        return Err(Error::refused("a label has no NUL in it"));
    }
    let mut field = [0; 64];
    field.iter_mut().zip(label).for_each(|(place, b)| *place = *b);
    Ok(field)
}

/// The label in a field of a superblock.
pub fn label_of(field: &[u8; 64]) -> Vec<u8> {
    field.iter().copied().take_while(|b| *b != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::Errno;

    #[test]
    fn labels_go_in_and_come_out() {
        for label in ["", "home", "ä", &"x".repeat(63)] {
            assert_eq!(label_of(&label_field(label.as_bytes()).unwrap()), label.as_bytes());
        }
        for bad in ["x".repeat(64), "a\0b".to_string()] {
            assert_eq!(label_field(bad.as_bytes()).unwrap_err().errno(), Errno::EINVAL);
        }
    }
}
