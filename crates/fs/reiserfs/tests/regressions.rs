//! What failed once: each the line that `arbor torture --repeat` takes.

use arbor_reiserfs::ReiserFs;
use arbor_torture::faults;

/// A commit that failed left what it had allocated in the superblock of the unmount.
#[test]
fn faults_that_showed() {
    let line = "profile=Big size=25165824 format=log=1M mount=tails=none,cache=2M fault=Write:3:Once:Torn(1898849) \
        end=Unmount ops=mkdir /d0 493 0; create /d0/f1 493 0; write /d0/f1 0 4149 22; fsync /d0/f1 1";
    faults::repeat(&ReiserFs, line).unwrap();
}
