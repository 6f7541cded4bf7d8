//! The golden images of format version 1, which today's code reads: an empty volume, which it also makes byte for
//! byte; one of every form of file, unmounted; and the same after a power cut, so that it has to be rolled forward
//! and an open file without a name is on the orphan list. Of both what a dump says of them, too.
//!
//! `ARBOR_RERECORD=1 cargo test -p arbor-lfs --test golden` writes them anew: for a new version or feature of the format,
//! or when what is written comes to lie elsewhere.

use arbor_base::device::MemDevice;
use arbor_base::vfs::*;
use arbor_lfs::Lfs;
use std::path::PathBuf;
use std::sync::Arc;

const SIZE: u64 = 8 << 20;
const UNIT: usize = 512;
const NOW: Time = Time { secs: 1_700_000_000, nanos: 5 };
/// Inodes with names, the root among them.
const NAMED: u64 = 67;
/// Behind the direct blocks, behind the first indirect block, and behind the second.
const FAR: [u64; 3] = [12 << 12, (12 + 512) << 12, (12 + 512 + 512 * 512) << 12];

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Sectors that are not zero: number and bytes of each.
fn pack(image: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for (n, s) in image.chunks(UNIT).enumerate().filter(|(_, s)| s.iter().any(|b| *b != 0)) {
        out.extend_from_slice(&(n as u32).to_le_bytes());
        out.extend_from_slice(s);
    }
    out
}

fn unpack(bytes: &[u8]) -> Vec<u8> {
    let mut image = vec![0; SIZE as usize];
    for piece in bytes.chunks_exact(UNIT + 4) {
        let n = u32::from_le_bytes(piece[..4].try_into().unwrap()) as usize;
        image[n * UNIT..][..UNIT].copy_from_slice(&piece[4..]);
    }
    image
}

fn load(name: &str) -> MemDevice {
    record();
    MemDevice::from_bytes(&unpack(&std::fs::read(path(name)).unwrap()))
}

fn format(options: &str) -> MemDevice {
    let (dev, options) = (MemDevice::new(SIZE), Options::parse(options));
    let (label, uuid) = ("golden".into(), *b"arboretum-golden");
    let o = FormatOptions { label, uuid, now: NOW, options, ..FormatOptions::default() };
    Lfs.format(Devices::single(dev.clone()), &o).unwrap();
    dev
}

fn mount(dev: &MemDevice, options: &str) -> Arc<dyn FileSystem> {
    let options = MountOptions { options: Options::parse(options), ..Default::default() };
    let clock = Arc::new(ManualClock::new(NOW.plus_ms(1000)));
    Lfs.mount(Devices::single(dev.clone()), &options, clock).unwrap()
}

/// Makes a file of every form.
fn fill(fs: &dyn FileSystem) {
    let (cx, root) = (Cx { uid: 1000, gid: 100 }, fs.root());
    let file = |parent, name: &str, data: &[u8]| {
        let e = fs.mknod(&cx, parent, name.as_bytes(), mode::IFREG | 0o640, 0).unwrap();
        fs.write(e.ino, 0, data).unwrap();
        e.ino
    };
    file(root, "fragments", &[b'f'; 700]);
    let big = file(root, "blocks", &[b'x'; 9000]);
    FAR.iter().for_each(|at| assert_eq!(fs.write(big, *at, b"behind a hole").unwrap(), 13));
    fs.setxattr(big, b"user.colour", b"green", XattrMode::Set).unwrap();
    fs.link(big, root, b"another name").unwrap();
    fs.symlink(&cx, root, b"link", b"fragments").unwrap();
    fs.symlink(&cx, root, b"long link", &[b'l'; 600]).unwrap();
    fs.mknod(&cx, root, b"device", mode::IFCHR | 0o600, 0x0105).unwrap();
    let dir = fs.mkdir(&cx, root, b"directory", 0o750).unwrap().ino;
    for n in 0..60 {
        file(dir, &format!("name-{n:03}"), format!("{n}").as_bytes());
    }
    file(root, "open", b"without a name");
    fs.unlink(root, b"open").unwrap();
    fs.syncfs().unwrap();
}

const EMPTY: &str = "v1-empty.bin";
const UNMOUNTED: &str = "v1.bin";
const CUT: &str = "v1-cut.bin";
const SHAPE: &str = "block=4K,segment=64K";

/// What a dump says: the heads, the summaries of the first segments, and some inodes.
fn dumps(dev: &MemDevice) -> String {
    let paths =
        ["superblock", "checkpoints", "usage", "segment 0", "segment 1", "inode 1", "inode 2", "dir 2", "map 4"];
    let mut out = String::new();
    for path in paths {
        let what: Vec<&str> = path.split(' ').collect();
        let dump = Lfs.dump(&Devices::single(dev.clone()), &what).unwrap();
        out += &format!("{path}: {}\n", serde_json::to_string_pretty(&dump).unwrap());
    }
    out
}

/// Everything that is recorded, by name.
fn make() -> Vec<(&'static str, Vec<u8>)> {
    let (unmounted, cut) = (format(SHAPE), format(SHAPE));
    let fs = mount(&unmounted, "");
    fill(&*fs);
    fs.unmount().unwrap();
    let fs = mount(&cut, "");
    fill(&*fs);
    let cut = cut.snapshot();
    vec![
        (EMPTY, pack(&format(SHAPE).to_bytes())),
        (UNMOUNTED, pack(&unmounted.to_bytes())),
        (CUT, pack(&cut.to_bytes())),
        ("v1.txt", dumps(&unmounted).into_bytes()),
        ("v1-cut.txt", dumps(&cut).into_bytes()),
    ]
}

/// Writes it anew if that is wanted, before anything is read.
fn record() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        if std::env::var_os("ARBOR_RERECORD").is_some() {
            make().iter().for_each(|(name, bytes)| std::fs::write(path(name), bytes).unwrap());
        }
    });
}

#[test]
fn the_same_bytes_are_made() {
    record();
    for (name, bytes) in make() {
        assert!(bytes == std::fs::read(path(name)).unwrap(), "{name} differs from the golden one");
    }
}

fn is_sound(dev: &MemDevice) {
    let options = CheckOptions { repair: Repair::No, force: true };
    let report = Lfs.check(Devices::single(dev.clone()), &options, &mut |_, _, _| {});
    assert_eq!(report.unwrap().issues, []);
}

fn is_read(fs: &dyn FileSystem) {
    let read = |name: &[u8], at: u64, len: usize| {
        let e = fs.lookup(fs.root(), name).unwrap();
        let mut buf = vec![0; len];
        assert_eq!(fs.read(e.ino, at, &mut buf).unwrap(), len);
        (e, buf)
    };
    assert_eq!(read(b"fragments", 0, 700).1, [b'f'; 700]);
    let (e, data) = read(b"blocks", 0, 20_000);
    assert!(data[..9000].iter().all(|b| *b == b'x') && data[9000..].iter().all(|b| *b == 0));
    FAR.iter().for_each(|at| assert_eq!(read(b"another name", *at, 13).1, b"behind a hole"));
    assert_eq!((e.size, e.nlink, e.uid, e.gid, e.mode & 0o7777), (FAR[2] + 13, 2, 1000, 100, 0o640));
    assert_eq!((e.mtime, e.btime), (NOW.plus_ms(1000), NOW.plus_ms(1000)));
    assert_eq!(fs.getxattr(e.ino, b"user.colour").unwrap(), b"green");
    let target = |name| fs.readlink(fs.lookup(fs.root(), name).unwrap().ino).unwrap();
    assert_eq!((target(b"link"), target(b"long link")), (b"fragments".to_vec(), vec![b'l'; 600]));
    assert_eq!(fs.lookup(fs.root(), b"device").unwrap().rdev, 0x0105);
    let dir = fs.lookup(fs.root(), b"directory").unwrap().ino;
    let mut names = 0;
    fs.readdir(dir, 0, &mut |_| {
        names += 1;
        true
    })
    .unwrap();
    assert_eq!(names, 62);
}

#[test]
fn an_empty_volume_is_read() {
    let dev = load(EMPTY);
    is_sound(&dev);
    let fs = mount(&dev, "");
    fill(&*fs);
    is_read(&*fs);
}

#[test]
fn an_unmounted_volume_is_read() {
    let dev = load(UNMOUNTED);
    is_sound(&dev);
    is_read(&*mount(&dev, ""));
}

#[test]
fn a_log_is_rolled_forward() {
    let dev = load(CUT);
    assert!(!Lfs.probe(&dev).unwrap().unwrap().clean);
    let fs = mount(&dev, "");
    is_read(&*fs);
    let free = fs.statfs().unwrap();
    fs.unmount().unwrap();
    is_sound(&dev);
    // Of the file that had no name nothing is left.
    assert_eq!(free.files - free.ffree, NAMED);
}
