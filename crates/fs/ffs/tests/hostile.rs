//! Images with random damage, half of them with checksums that fit: none makes the checker fail or hang, and
//! what it has mended is clean.
//!
//! `ARBOR_COUNT` and `ARBOR_SEED` say how many mutants and which.

mod damage_kit;

use arbor_base::device::MemDevice;
use arbor_base::vfs::*;
use arbor_ffs::Ffs;
use damage_kit::*;
use std::time::{Duration, Instant};

/// Longest that the check of one small image may take.
const LIMIT: Duration = Duration::from_secs(20);

/// xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// Changes a field to something nasty, or any byte to anything; sometimes makes the checksum right.
fn mutate(k: &ImageCorruptor, r: &mut Random, all: &[Structure]) -> String {
    let s = &all[r.below(all.len())];
    let nasty = s.fields.get(r.below(s.fields.len())).filter(|_| r.below(4) > 0);
    let (at, len, meaning) = match nasty {
        Some(f) => (f.at as usize, f.len as usize, f.meaning),
        None => (r.below(s.len), 1, Meaning::Bytes),
    };
    let old = k.read(s.offset + at as u64, len);
    let mut new = old.clone();
    match meaning {
        Meaning::Number | Meaning::Address => {
            let mut bytes = [0; 8];
            let n = len.min(8);
            bytes[..n].copy_from_slice(&old[..n]);
            let value = u64::from_le_bytes(bytes);
            let other = &all[r.below(all.len())];
            let address = other.addresses.first().copied().unwrap_or(1);
            let few = [0, 1, u64::MAX, value ^ 1 << r.below(len * 8), value.wrapping_add(1), value.wrapping_sub(1)];
            let value = [few[r.below(few.len())], address, r.next()][r.below(3)];
            new[..n].copy_from_slice(&value.to_le_bytes()[..n]);
        }
        _ => new[r.below(len)] = r.next() as u8,
    }
    k.write(s.offset + at as u64, &new);
    let sealed = r.below(2) == 0;
    if sealed {
        Ffs.reseal(&k.dev, s).unwrap();
    }
    format!("{} {} at {at}: {old:x?} becomes {new:x?}, sealed {sealed}", s.kind, s.number)
}

fn timed(image: &MemDevice, repair: Repair, what: &str) -> Result<CheckReport> {
    let start = Instant::now();
    let options = CheckOptions { repair, force: true };
    let report = Ffs.check(Devices::single(image.clone()), &options, &mut |_, _, _| ());
    assert!(start.elapsed() < LIMIT, "{what}: {:?}", start.elapsed());
    report
}

fn one(good: &MemDevice, all: &[Structure], seed: u64) -> bool {
    let image = good.snapshot();
    let k = ImageCorruptor::new(image.clone());
    let mut r = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    if r.below(3) == 0 {
        k.crashed(arbor_ffs::format::Keeping::ALL[r.below(4)]);
    }
    let count = [1, 1, 1, 2, 8, 60][r.below(6)];
    let what: Vec<String> = (0..count).map(|_| mutate(&k, &mut r, all)).collect();
    let what = format!("seed {seed}: {what:#?}");
    let devices = Devices::single(image.clone());
    let _ = Ffs.describe(&devices, &mut |_| ());
    let _ = Ffs.structures(&devices, &mut |_| ());
    let _ = Ffs.check_path(Devices::single(image.clone()), b"/a/sub/subsub/leaf");
    for path in [["group", "0"], ["inode", "2"], ["dir", "2"], ["map", "2"]] {
        let _ = Ffs.dump(&devices, &path);
    }
    let _ = timed(&image.snapshot(), Repair::Preen, &what);
    let _ = timed(&image, Repair::No, &what);
    let report = match timed(&image, Repair::Yes, &what) {
        Ok(report) => report,
        // A newer volume, as it seems.
        Err(e) => {
            assert!(matches!(e, Error::Refused(_)), "{what}: {e}");
            return false;
        }
    };
    if report.issues.iter().any(|i| i.severity == Severity::Fatal) {
        return false;
    }
    assert_eq!(report.remaining(), 0, "{what} {:#?}", report.issues);
    let again = timed(&image, Repair::No, &what).unwrap();
    assert_eq!(again.issues, vec![], "{what} {:#?}", report.issues);
    true
}

#[test]
fn random_damage_is_mended() {
    let (count, seed) = (number("ARBOR_COUNT", 3000), number("ARBOR_SEED", 1));
    let shapes = [(4 << 20, "block=4K,cg=4M"), (9 << 20, "block=4K,cg=4M"), (24 << 20, "block=16K,frag=2K,cg=8M")];
    let images = shapes.map(|(size, shape)| {
        let image = build(size, shape);
        let mut all = Vec::new();
        Ffs.structures(&Devices::single(image.clone()), &mut |s| all.push(s)).unwrap();
        assert!(
            ["attributes", "indirect block", "directory chunk", "bitmap", "inode, free", "summary area"]
                .iter()
                .all(|kind| all.iter().any(|s| s.kind == *kind))
        );
        (image, all)
    });
    let mut mended = 0;
    for seed in seed..seed + count {
        let (image, all) = &images[(seed % 3) as usize];
        mended += u64::from(one(image, all, seed));
    }
    assert!(mended * 10 > count * 9, "{mended} of {count} were mended");
}

/// Sealing what was not changed changes nothing.
#[test]
fn seals_are_those_of_the_format() {
    let image = build(16 << 20, "block=4K,cg=4M");
    let before = image.to_bytes();
    let mut all = Vec::new();
    Ffs.structures(&Devices::single(image.clone()), &mut |s| all.push(s)).unwrap();
    for s in all.iter().filter(|s| s.kind != "inode, free") {
        Ffs.reseal(&image, s).unwrap();
    }
    assert!(before == image.to_bytes());
}
