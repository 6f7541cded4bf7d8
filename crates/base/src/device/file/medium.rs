//! What the system knows of a block device.

use super::Medium;
#[cfg(target_os = "linux")]
use std::path::PathBuf;

/// Block-mapped cards take writes to a few of their blocks at any time; how many, they do not tell.
#[cfg(target_os = "linux")]
const OPEN_OF_A_CARD: u32 = 4;

/// What the device of this number is good at.
#[cfg(target_os = "linux")]
pub(super) fn of(number: u64) -> Medium {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    // A partition has its disk's directory above its own.
    let Ok(own) = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")) else { return Medium::Unknown };
    let places: Vec<PathBuf> = [Some(own.as_path()), own.parent()].into_iter().flatten().map(PathBuf::from).collect();
    let number = |name: &str| -> Option<u32> {
        places.iter().find_map(|place| std::fs::read_to_string(place.join(name)).ok()?.trim().parse().ok())
    };
    known(number("queue/rotational"), number("device/preferred_erase_size"), number("loop/autoclear").is_some())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn of(_number: u64) -> Medium {
    Medium::Unknown
}

/// From what the system says: whether something turns, and the unit in which a card erases. Of a loop device it says
/// what is true of no file.
#[cfg(target_os = "linux")]
fn known(rotational: Option<u32>, erase_bytes: Option<u32>, is_loop: bool) -> Medium {
    match (rotational, erase_bytes.filter(|bytes| bytes.is_power_of_two())) {
        _ if is_loop => Medium::Unknown,
        (_, Some(bytes)) => Medium::Blocks { bytes, open: OPEN_OF_A_CARD },
        (Some(0), None) => Medium::Pages,
        (Some(_), None) => Medium::Disk,
        (None, None) => Medium::Unknown,
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_is_understood() {
        assert_eq!(known(Some(1), None, false), Medium::Disk);
        assert_eq!(known(Some(0), None, false), Medium::Pages);
        let card = Medium::Blocks { bytes: 4 << 20, open: OPEN_OF_A_CARD };
        assert_eq!(known(Some(0), Some(4 << 20), false), card);
        assert_eq!(known(Some(0), Some(0), false), Medium::Pages);
        assert_eq!(known(Some(1), None, true), Medium::Unknown);
        assert_eq!((known(None, None, false), of(u64::MAX)), (Medium::Unknown, Medium::Unknown));
    }
}
