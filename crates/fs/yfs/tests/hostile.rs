//! The checker on images and logs with random damage, with checksums that fit and without.

mod damage_kit;

use arbor_base::device::{Kind, MemDevice};
use arbor_base::layout::crc_without;
use arbor_base::vfs::*;
use arbor_yfs::Yfs;
use arbor_yfs::format::*;
use damage_kit::*;
use zerocopy::FromBytes;

/// The checks must end without a panic whatever the image holds; what a repair leaves must be
/// nothing, unless there is no superblock any more.
fn survive(image: &MemDevice, what: &str) {
    let options = |repair| CheckOptions { repair, force: true };
    let run = |repair| Yfs.check(Devices::single(image.clone()), &options(repair), &mut |_, _, _| ());
    let _ = run(Repair::No);
    let devices = Devices::single(image.clone());
    let _ = Yfs.describe(&devices, &mut |_| ());
    for path in [&["superblock"][..], &["log", "entries"], &["ag", "0"], &["free", "0"]] {
        let _ = Yfs.dump(&devices, path);
    }
    let Ok(report) = run(Repair::Yes) else { return };
    if report.issues.iter().any(|i| i.severity == Severity::Fatal) {
        return;
    }
    assert_eq!(report.remaining(), 0, "{what}: {:#?}", report.issues);
    let again = run(Repair::No).expect("check");
    assert_eq!(again.issues, vec![], "{what}, after {:#?}", report.issues);
    let fs = mount(image);
    tree(&*fs);
    fs.unmount().expect("unmount");
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// The metadata buffers of the small image: address, length, how it is sealed.
fn buffers(image: &MemDevice) -> Vec<(u64, usize, Seal)> {
    let k = ImageCorruptor::new(image.clone());
    let mut out = vec![(0, 512, Seal::Super)];
    let devices = Devices::single(image.clone());
    let block = k.geom.block_size();
    let mut add = |r: Region| match r.kind {
        Kind::Inode => out.push((r.offset, r.len as usize, Seal::Inodes)),
        Kind::Group | Kind::Bitmap | Kind::Dir | Kind::Tree | Kind::Xattr => {
            // Several times: there are more inodes than anything else.
            (0..3).for_each(|_| out.push((r.offset, (r.len as usize).max(block), Seal::Block)));
        }
        _ => {}
    };
    Yfs.describe(&devices, &mut add).expect("describe");
    out
}

fn fuzz(rounds: u64, seal: bool, seed: u64) {
    let (image, mut random) = (small(), Random(seed));
    let buffers = buffers(&image);
    for round in 0..rounds {
        let image = image.snapshot();
        let k = ImageCorruptor::new(image.clone());
        let mut what = format!("round {round}:");
        for _ in 0..=random.below(4) {
            let (at, len, how) = buffers[random.below(buffers.len() as u64) as usize];
            let (mut from, mut n) = (random.below(len as u64) as usize, 1);
            if random.below(2) == 0 {
                (from, n) = (from / 8 * 8, 8);
            }
            if how == Seal::Inodes && random.below(4) > 0 {
                // The first inodes are those in use.
                from %= len / 4;
            }
            let value = [0, 1, 2, 255, random.below(256)][random.below(5) as usize] as u8;
            what += &format!(" {at:#x}+{from}..{n}={value}");
            k.change(at, len, seal.then_some(how), |b| b[from..from + n].fill(value));
        }
        survive(&image, &what);
    }
}

/// Rounds of the fuzzing tests; more by the environment.
fn rounds(default: u64) -> u64 {
    std::env::var("ARBOR_FUZZ_ROUNDS").ok().and_then(|s| s.parse().ok()).unwrap_or(default)
}

#[test]
fn random_damage() {
    fuzz(rounds(300), false, 0x1234_5678);
}

#[test]
fn random_damage_with_good_checksums() {
    fuzz(rounds(600), true, 0x8765_4321);
}

/// Damages the log of a volume that was not unmounted: whatever it holds, what follows is whole.
#[test]
fn random_damage_to_the_log() {
    let image = small();
    let fs = mount(&image);
    let d = fs.lookup(fs.root(), b"d").expect("lookup").ino;
    for n in 0..40 {
        let x = fs.mknod(&CX, d, format!("new {n}").as_bytes(), mode::IFREG | 0o644, 0).expect("mknod").ino;
        fs.write(x, 0, &bytes(n * 50, n as u64)).expect("write");
        fs.unlink(d, format!("a file with a name {n}").as_bytes()).expect("unlink");
    }
    fs.syncfs().expect("syncfs");
    let k = ImageCorruptor::new(image.clone());
    let log = k.sb.log_start.get() * SECTOR;
    let mut records: Vec<(u64, usize)> = Vec::new();
    for sector in 0..k.sb.log_sectors.get() {
        let at = log + sector * SECTOR;
        let head = LogHeader::read_from_bytes(&k.read(at, 512)[..RECORD_HEAD]).expect("head");
        if head.magic.get() == RECORD_MAGIC {
            records.push((at, RECORD_HEAD + head.len.get() as usize));
        }
    }
    assert!(!records.is_empty());
    let mut random = Random(99);
    for round in 0..rounds(300) {
        let image = image.snapshot();
        let k = ImageCorruptor::new(image.clone());
        let (at, len) = records[random.below(records.len() as u64) as usize];
        let from = RECORD_HEAD + random.below((len - RECORD_HEAD) as u64) as usize;
        let value = [0, 255, random.below(256)][random.below(3) as usize] as u8;
        k.change(at, len.next_multiple_of(512), None, |b| {
            b[from] = value;
            let at = std::mem::offset_of!(LogHeader, crc);
            let crc = crc_without(&b[..len], at).expect("crc");
            b[at..at + 4].copy_from_slice(&crc.to_le_bytes());
        });
        survive(&image, &format!("round {round}: {at:#x}+{from}={value}"));
    }
}
