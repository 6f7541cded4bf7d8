//! The golden images of format version 1: today's code reads them, and makes the same bytes as the latest.

use arbor_base::vfs::{FileSystem, XattrMode};
use arbor_torture::golden::{CX, Golden, Recorded, directory, directory_is_read, file, pack};
use arbor_yfs::Yfs;

static GOLDEN: Golden = Golden::new(&Yfs, env!("CARGO_MANIFEST_DIR"), make, Vec::new);

const PLAIN: &str = "v1.bin";
/// With `INCOMPAT_WITNESS`.
const WITNESS: &str = "v1-witness.bin";
/// With records that say what was durable before them.
const SETTLED: &str = "v1-settled.bin";

fn make() -> Recorded {
    let dev = GOLDEN.format("");
    let fs = GOLDEN.mount(&dev, "");
    fill(&*fs);
    fs.unmount().unwrap();
    vec![(SETTLED, pack(&dev))]
}

fn fill(fs: &dyn FileSystem) {
    let root = fs.root();
    file(fs, root, "inline", b"kept in the inode");
    let big = file(fs, root, "extents", &[b'x'; 9000]);
    fs.write(big, 40_000, b"behind a hole").unwrap();
    fs.setxattr(big, b"user.colour", b"green", XattrMode::Set).unwrap();
    fs.symlink(&CX, root, b"link", b"inline").unwrap();
    directory(fs);
}

#[test]
fn the_same_bytes_are_made() {
    GOLDEN.same_bytes_are_made();
}

#[test]
fn the_golden_images_are_read() {
    for name in [PLAIN, WITNESS, SETTLED] {
        let dev = GOLDEN.load(name);
        GOLDEN.is_sound(&dev);
        is_read(&*GOLDEN.mount(&dev, ""));
    }
}

fn is_read(fs: &dyn FileSystem) {
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
    directory_is_read(fs);
}
