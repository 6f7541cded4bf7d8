//! What failed once: lines that `arbor torture --repeat` takes.

use arbor_evergreen::Evergreen;
use arbor_torture::faults;

/// A block that was to be overwritten whole got no place, since a bitmap could not be read: its page, made to be written,
/// stayed, with zeros.
#[test]
fn what_a_failed_device_made_of_calls() {
    let lines = ["profile=Churn size=25165824 format=stride=16 mount=retain=5 fault=Read:397:Once:Error end=Unmount \
         ops=mkdir /d1 493 0; create /d1/L5 0 0; write /d1/L5 0 2866 27; remount; write /d1/L5 0 29762 33"];
    let failed: Vec<String> = lines.iter().filter_map(|line| faults::repeat(&Evergreen, line).err()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
