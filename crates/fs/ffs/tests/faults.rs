//! Errors of the device, lies among them, in all four ways to keep metadata.
//!
//! `ARBOR_COUNT` and `ARBOR_SEED` say how many faults and which; `arbor torture -t ffs --only fault` runs more of them.

use arbor_base::device::{Fault, FaultDevice, FaultOp, FaultTimes};
use arbor_base::vfs::*;
use arbor_ffs::Ffs;
use arbor_torture::turns::Turns;

const KEEPINGS: [&str; 4] = ["keep=async", "keep=sync", "keep=softupdates", "keep=journal"];
const FILES: usize = 8;

fn turns(mount: &str) -> Turns<'_> {
    Turns { engine: &Ffs, format: "block=4K,cg=4M", mount, files: FILES, step: 9000 }
}

#[test]
fn every_write_fails_once() {
    KEEPINGS.iter().for_each(|keep| turns(keep).fail(FaultOp::Write, FaultTimes::Once));
}

#[test]
fn every_write_fails_from_then_on() {
    KEEPINGS.iter().for_each(|keep| turns(keep).fail(FaultOp::Write, FaultTimes::FromThenOn));
}

#[test]
fn every_flush_fails_once() {
    KEEPINGS.iter().for_each(|keep| turns(keep).fail(FaultOp::Flush, FaultTimes::Once));
}

#[test]
fn every_write_panics() {
    KEEPINGS.iter().for_each(|keep| turns(keep).panic(FaultOp::Write));
}

#[test]
fn every_flush_panics() {
    KEEPINGS.iter().for_each(|keep| turns(keep).panic(FaultOp::Flush));
}

/// A bit that flips while metadata with a checksum are read fails no call after the mount but for `EUCLEAN`, and nothing of it
/// reaches the device, though other inodes of the same block are written.
#[test]
fn a_bit_flipped_in_transfer_does_no_harm() {
    let made = turns("keep=softupdates");
    let good = made.fresh();
    assert_eq!(made.work(&*made.mount(good.clone()).unwrap()).0, FILES);
    let mut struck = 0;
    for keep in KEEPINGS {
        for (nth, seed) in (1..12).flat_map(|nth| (1..12).map(move |seed| (nth, seed))) {
            let dev = good.snapshot();
            let faulty = FaultDevice::new(dev.clone());
            faulty.inject(FaultOp::Read, nth, FaultTimes::Once, Fault::Flipped(seed));
            let fs = match turns(keep).mount(faulty.clone()) {
                Ok(fs) => fs,
                Err(e) => {
                    assert_eq!((e.errno(), faulty.struck()), (Errno::EUCLEAN, 1), "{keep} {nth} {seed}: {e}");
                    continue;
                }
            };
            for n in (0..FILES).step_by(2) {
                let Ok(e) = fs.lookup(fs.root(), format!("f{n}").as_bytes()) else { continue };
                fs.setattr(e.ino, &SetAttr { mode: Some(0o600), ..SetAttr::default() }).unwrap();
            }
            fs.mknod(&Cx::default(), fs.root(), b"g", mode::IFREG | 0o644, 0).unwrap();
            fs.unmount().unwrap();
            if faulty.struck_kind().is_some_and(|kind| !Ffs.has_checksum(kind)) {
                continue;
            }
            struck += faulty.struck();
            assert_eq!(made.check(&dev, Repair::No).remaining(), 0, "{keep} {nth} {seed}");
            made.verify(dev, FILES);
        }
    }
    assert!(struck > 0);
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |v| v.parse().unwrap_or_else(|_| panic!("{name}: {v:?} is no number")))
}

#[test]
fn every_sort_of_fault() {
    let count = number("ARBOR_COUNT", 800);
    let tally = arbor_torture::faults::run(&Ffs, number("ARBOR_SEED", 1), count, &mut |_| true);
    assert!(tally.failures.is_empty(), "{}", tally.failures.join("\n"));
    assert!(tally.faults >= count, "{tally:?}");
}
