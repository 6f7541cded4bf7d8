//! The golden images of format version 1: today's code reads them, and makes the same bytes as the
//! latest. `ARBOR_RERECORD=1` writes that one anew, for a new version or feature of the format only.

use arbor_base::device::MemDevice;
use arbor_base::vfs::*;
use arbor_yfs::Yfs;
use std::path::PathBuf;
use std::sync::Arc;

const SIZE: u64 = 8 << 20;
const UNIT: usize = 512;

/// Without features, and with `INCOMPAT_WITNESS`.
const GOLDEN: [&str; 2] = ["v1.bin", "v1-witness.bin"];

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

fn make() -> MemDevice {
    let dev = MemDevice::new(SIZE);
    let now = Time { secs: 1_700_000_000, nanos: 5 };
    let o = FormatOptions { label: "golden".into(), uuid: *b"arboretum-golden", now, ..Default::default() };
    Yfs.format(Devices::single(dev.clone()), &o).unwrap();
    let clock = Arc::new(ManualClock::new(now.plus_ms(1000)));
    let fs = Yfs.mount(Devices::single(dev.clone()), &MountOptions::default(), clock).unwrap();
    let (cx, root) = (Cx { uid: 1000, gid: 100 }, fs.root());
    let file = |parent, name: &str, data: &[u8]| {
        let e = fs.mknod(&cx, parent, name.as_bytes(), mode::IFREG | 0o640, 0).unwrap();
        fs.write(e.ino, 0, data).unwrap();
        e.ino
    };
    file(root, "inline", b"kept in the inode");
    let big = file(root, "extents", &[b'x'; 9000]);
    fs.write(big, 40_000, b"behind a hole").unwrap();
    fs.setxattr(big, b"user.colour", b"green", XattrMode::Set).unwrap();
    fs.symlink(&cx, root, b"link", b"inline").unwrap();
    let dir = fs.mkdir(&cx, root, b"directory", 0o750).unwrap().ino;
    for n in 0..60 {
        file(dir, &format!("name-{n:03}"), format!("{n}").as_bytes());
    }
    fs.unmount().unwrap();
    dev
}

#[test]
fn the_same_bytes_are_made() {
    let made = pack(&make().to_bytes());
    if std::env::var_os("ARBOR_RERECORD").is_some() {
        std::fs::write(path(GOLDEN[1]), &made).unwrap();
    }
    let golden = std::fs::read(path(GOLDEN[1])).unwrap();
    assert!(made == golden, "the image differs from the golden one");
}

#[test]
fn the_golden_images_are_read() {
    GOLDEN.into_iter().for_each(is_read);
}

fn is_read(name: &str) {
    let dev = MemDevice::from_bytes(&unpack(&std::fs::read(path(name)).unwrap()));
    let report =
        Yfs.check(Devices::single(dev.clone()), &CheckOptions { repair: Repair::No, force: true }, &mut |_, _, _| {});
    assert_eq!(report.unwrap().issues, []);
    let fs = Yfs.mount(Devices::single(dev), &MountOptions::default(), Arc::new(SystemClock)).unwrap();
    let read = |name: &[u8]| {
        let e = fs.lookup(fs.root(), name).unwrap();
        let mut buf = vec![0; e.size as usize];
        fs.read(e.ino, 0, &mut buf).unwrap();
        (e, buf)
    };
    assert_eq!(read(b"inline").1, b"kept in the inode");
    let (e, data) = read(b"extents");
    assert!(data[..9000].iter().all(|b| *b == b'x') && data[9000..40_000].iter().all(|b| *b == 0));
    assert_eq!(&data[40_000..], b"behind a hole");
    assert_eq!((e.uid, e.gid, e.mode & 0o7777), (1000, 100, 0o640));
    assert_eq!(fs.getxattr(e.ino, b"user.colour").unwrap(), b"green");
    let dir = fs.lookup(fs.root(), b"directory").unwrap().ino;
    let mut names = 0;
    fs.readdir(dir, 0, &mut |_| {
        names += 1;
        true
    })
    .unwrap();
    assert_eq!(names, 62);
}
