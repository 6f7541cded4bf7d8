//! Damage of contents that have a checksum, in volumes on one device and on two: the checker names the file, and mends it, so that
//! a read, a scrub and a further check find nothing.

use arbor_base::device::MemDevice;
use arbor_base::vfs::*;
use arbor_dualfs::DualFs;
use arbor_dualfs::format::DATA;
use arbor_torture::damage::{Tree, bytes, codes, flip, read, tree_in};
use std::sync::Arc;

const BLOCK: usize = 4096;
const CX: Cx = Cx { uid: 0, gid: 0 };
const BIG: &str = "/dir/big";

/// A volume with some files, in one of which a byte is damaged.
struct Bench {
    main: MemDevice,
    data: Option<MemDevice>,
}

impl Bench {
    fn new(two: bool) -> Bench {
        let bench = Bench { main: MemDevice::new(32 << 20), data: two.then(|| MemDevice::new(32 << 20)) };
        let options = FormatOptions { uuid: [7; 16], ..FormatOptions::default() };
        DualFs.format(bench.devices(), &options).expect("format");
        bench
    }

    fn devices(&self) -> Devices {
        let mut devices = Devices::single(self.main.clone());
        if let Some(data) = &self.data {
            devices.extra.insert(DATA.into(), Arc::new(data.clone()));
        }
        devices
    }

    fn mount(&self) -> Arc<dyn FileSystem> {
        let clock = Arc::new(ManualClock::new(Time { secs: 1_000_000, nanos: 0 }));
        DualFs.mount(self.devices(), &MountOptions::default(), clock).expect("mount")
    }

    /// Files with a checksum, and one without.
    fn fill(&self) -> Tree {
        let fs = self.mount();
        let dir = fs.mkdir(&CX, fs.root(), b"dir", 0o755).expect("mkdir").ino;
        for (n, (name, len)) in (1..).zip([("before", 9000), ("big", 30 * BLOCK - 5), ("after", 9000)]) {
            put(&*fs, dir, name, &bytes(len, n));
        }
        put(&*fs, dir, "database", &bytes(3 * BLOCK, 9));
        fs.syncfs().expect("syncfs");
        put(&*fs, dir, "database", &bytes(3 * BLOCK, 10));
        let all = tree_in(&*fs);
        fs.unmount().expect("unmount");
        all
    }

    /// Flips a bit of a block of the large file, of one of three bytes.
    fn damage(&self, lbn: usize, n: usize) {
        let wanted = &bytes(30 * BLOCK - 5, 2)[lbn * BLOCK..(lbn + 1) * BLOCK];
        let dev = self.data.as_ref().unwrap_or(&self.main);
        let all = dev.to_bytes();
        let block = all.chunks_exact(BLOCK).position(|block| block == wanted).expect("the block on the device");
        flip(dev, (block * BLOCK + [0, 2000, BLOCK - 1][n]) as u64);
    }

    fn check(&self, repair: Repair, force: bool) -> CheckReport {
        DualFs.check(self.devices(), &CheckOptions { repair, force }, &mut |_, _, _| ()).expect("check")
    }

    fn bytes(&self) -> Vec<Vec<u8>> {
        [Some(&self.main), self.data.as_ref()].into_iter().flatten().map(MemDevice::to_bytes).collect()
    }

    /// What a scrub finds.
    fn scrub(&self) -> Vec<String> {
        let fs = self.mount();
        let (mut at, mut found) = (Some(0), Vec::new());
        while let Some(next) = at {
            let done = fs.scrub(next).expect("scrub");
            found.extend(done.damage);
            at = done.next;
        }
        found
    }

    /// Reads the large file in a mount that is ended then. Returns the result.
    fn read_big(&self) -> Result<Vec<u8>> {
        let fs = self.mount();
        let dir = fs.lookup(fs.root(), b"dir").expect("lookup").ino;
        let ino = fs.lookup(dir, b"big").expect("lookup").ino;
        let mut buf = vec![0; 30 * BLOCK];
        let read = fs.read(ino, 0, &mut buf).map(|n| buf[..n].to_vec());
        fs.unmount().expect("unmount");
        read
    }
}

fn put(fs: &dyn FileSystem, dir: Ino, name: &str, data: &[u8]) {
    let ino = match fs.lookup(dir, name.as_bytes()) {
        Ok(e) => e.ino,
        Err(_) => fs.mknod(&CX, dir, name.as_bytes(), mode::IFREG | 0o644, 0).expect("mknod").ino,
    };
    assert_eq!(fs.write(ino, 0, data).expect("write"), data.len());
}

/// All of it, and one block of a file that is zeros now.
fn is_mended(bench: &Bench, good: &Tree, lbns: &[usize]) {
    let report = bench.check(Repair::No, true);
    assert_eq!((report.issues, bench.scrub()), (vec![], vec![]));
    let mut want = bytes(30 * BLOCK - 5, 2);
    for lbn in lbns {
        want[lbn * BLOCK..(lbn + 1) * BLOCK].fill(0);
    }
    assert!(bench.read_big().expect("read") == want);
    let now = tree_in(&*bench.mount());
    assert!(now.keys().eq(good.keys()));
    assert!(good.iter().all(|(path, then)| path == BIG || now.get(path) == Some(then)), "nothing else has changed");
}

#[test]
fn damaged_contents_are_found_and_mended() {
    for (two, lbn) in [(false, 0), (false, 3), (false, 17), (true, 3), (true, 28)] {
        let bench = Bench::new(two);
        let good = bench.fill();
        bench.damage(lbn, lbn % 3);
        assert!(bench.check(Repair::No, false).skipped, "a clean volume is not read unless that is forced");
        let before = bench.bytes();
        let found = bench.check(Repair::No, true);
        assert_eq!(codes(&found), ["DataDamaged"], "{:#?}", found.issues);
        let [issue] = &found.issues[..] else { panic!("{:#?}", found.issues) };
        let place = if two { " of the data device" } else { "" };
        assert!(issue.text.contains("(/dir/big)") && issue.text.ends_with(place), "{}", issue.text);
        assert!(
            issue.text.contains(&format!("once it is repaired: 1, the first, block {lbn}, at byte")),
            "{}",
            issue.text
        );
        assert!(issue.loses && found.remaining() == 1 && before == bench.bytes());
        let mended = bench.check(Repair::Yes, true);
        assert_eq!((codes(&mended), mended.remaining()), (vec!["DataDamaged"], 0));
        is_mended(&bench, &good, &[lbn]);
    }
}

#[test]
fn damaged_blocks_of_a_file_are_told_together() {
    let bench = Bench::new(false);
    let good = bench.fill();
    let lbns = [1, 2, 3, 11, 12, 13, 20];
    lbns.iter().for_each(|lbn| bench.damage(*lbn, 1));
    let mended = bench.check(Repair::Yes, true);
    let [issue] = &mended.issues[..] else { panic!("{:#?}", mended.issues) };
    assert!(issue.repaired && issue.text.contains(": 7, the first, block 1, at byte"), "{}", issue.text);
    is_mended(&bench, &good, &lbns);
}

/// A mount that had met damage left a volume that was not clean, preening called it clean without a word of the damage, and so on,
/// mount by mount.
#[test]
fn what_a_mount_has_met_is_told_until_it_is_mended() {
    for two in [false, true] {
        let bench = Bench::new(two);
        let good = bench.fill();
        bench.damage(5, 1);
        for _ in 0..2 {
            assert_eq!(bench.read_big().expect_err("damage").errno(), Errno::EUCLEAN);
            let before = bench.bytes();
            let report = bench.check(Repair::Preen, false);
            assert_eq!((codes(&report), report.unclean, report.recovered), (vec!["DataDamaged"], true, false));
            assert!(report.issues[0].text.contains("(/dir/big)") && report.remaining() == 1 && before == bench.bytes());
        }
        let mended = bench.check(Repair::Yes, false);
        assert!(mended.recovered && mended.remaining() == 0, "{:#?}", mended.issues);
        is_mended(&bench, &good, &[5]);
        assert!(bench.read_big().is_ok() && bench.check(Repair::No, false).skipped, "it stays clean");
    }
}

/// Without the file there is no damage.
#[test]
fn a_damaged_file_is_removed() {
    let bench = Bench::new(false);
    let good = bench.fill();
    bench.damage(5, 1);
    let fs = bench.mount();
    let dir = fs.lookup(fs.root(), b"dir").expect("lookup").ino;
    let ino = fs.lookup(dir, b"big").expect("lookup").ino;
    fs.read(ino, 0, &mut vec![0; 30 * BLOCK]).expect_err("damage");
    fs.unlink(dir, b"big").expect("unlink");
    fs.forget(ino, 1);
    fs.unmount().expect("unmount");
    let report = bench.check(Repair::Preen, false);
    assert!(report.recovered && report.issues.is_empty(), "{:#?}", report.issues);
    assert!(bench.check(Repair::No, false).skipped);
    let now = tree_in(&*bench.mount());
    assert!(good.iter().all(|(path, then)| path == BIG || now.get(path) == Some(then)));
}

/// What was overwritten where it lies has no checksum, so that nobody can tell.
#[test]
fn contents_without_a_checksum_are_not_judged() {
    let bench = Bench::new(false);
    bench.fill();
    let wanted = &bytes(3 * BLOCK, 10)[..BLOCK];
    let at = bench.main.to_bytes().chunks_exact(BLOCK).position(|block| block == wanted).expect("the block") * BLOCK;
    flip(&bench.main, at as u64 + 9);
    assert_ne!(read(&bench.main, at as u64, BLOCK), wanted);
    assert_eq!(bench.check(Repair::Yes, true).issues, vec![]);
}
