//! Growing: what it gives, and what it refuses. Power cuts are in `suites.rs`.

mod damage_kit;
mod history_kit;

use arbor_base::vfs::*;
use arbor_evergreen::Evergreen;
use arbor_torture::damage::{self, bytes, tree};
use history_kit::*;

const OLD: u64 = 16 << 20;

/// What is there stays, and the new space can be used, where the old end was too.
#[test]
fn the_space_can_be_used() {
    for size in [OLD + (4 << 10), OLD + (8 << 10), GROWN, 300 << 20] {
        let dev = damage::format(&Evergreen, OLD, "stride=16");
        let fs = mount(&dev, "", false).expect("mount");
        put(&*fs, "old", &bytes(3_000_000, 1));
        fs.unmount().expect("unmount");
        let old = tree(&Evergreen, &dev);
        resize(&dev, size).expect("resize");
        assert_eq!(tree(&Evergreen, &dev), old);
        let fs = mount(&dev, "", false).expect("mount");
        let avail = fs.statfs().expect("statfs").bavail * 4096;
        // But for reserved blocks, what is kept, and what is in use.
        assert!(avail + (1 << 20) > size / 16 * 15 / 20 * 19 - 3_000_000, "{size}: {avail}");
        put(&*fs, "new", &bytes(avail as usize - (1 << 20), 2));
        fs.unmount().expect("unmount");
        assert!(damage::check(&Evergreen, dev.clone(), Repair::No).issues.is_empty(), "{size}");
    }
}

#[test]
fn no_volume_shrinks() {
    let dev = damage::format(&Evergreen, OLD, "");
    let refused = |size| resize(&dev, size).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(refused(OLD / 2).contains("cannot shrink to 8388608"));
    assert!(refused(1 << 50).contains("with blocks of 4096 bytes a volume has less than 16 TiB"));
    resize(&dev, OLD).expect("nothing to do");
}

/// Older commits have another size.
#[test]
fn older_commits_are_given_up() {
    let (dev, _) = lives(8 << 20, &[RETAIN]);
    resize(&dev, GROWN).expect("resize");
    let info = Evergreen.probe(&dev).expect("probe").expect("a volume");
    let (_, commits) = info.facts.iter().find(|(key, _)| *key == "commits").expect("commits");
    let (first, last) = commits.split_once(" to ").expect("two numbers");
    assert_eq!(first, last);
    assert!(damage::check(&Evergreen, dev.clone(), Repair::No).issues.is_empty());
}

/// Master blocks of the new size that are no part of the volume, and newer than all of it, do not count.
#[test]
fn what_another_growth_has_left_does_not_count() {
    let (cut, expected) = grown_beside_another();
    assert_eq!(tree(&Evergreen, &cut), expected);
}
