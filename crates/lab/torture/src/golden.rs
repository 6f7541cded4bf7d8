//! Golden images: volumes of a format version as they were recorded once, which today's code reads, and some of which it
//! makes byte for byte.
//!
//! `ARBOR_RERECORD=1` writes them anew before anything is read: for a new version or feature of the format, or when what
//! is written comes to lie elsewhere. An image is kept as its sectors that are not zero, each after its number.

use arbor_base::device::MemDevice;
use arbor_base::vfs::{
    CheckOptions, Cx, Devices, Engine, FileSystem, FormatOptions, Ino, ManualClock, MountOptions, Options, Repair,
    Time, XattrMode, mode,
};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Once};

/// Size of a volume in bytes.
const SIZE: u64 = 8 << 20;
const SECTOR: usize = 512;
/// When the volumes are made.
const NOW: Time = Time { secs: 1_700_000_000, nanos: 5 };
/// Who makes files.
pub const CX: Cx = Cx { uid: 1000, gid: 100 };

/// The usual images: an empty volume; one of every form of file, unmounted; the same after a power cut, with an open file
/// without a name.
pub const EMPTY: &str = "v1-empty.bin";
/// See [`EMPTY`].
pub const UNMOUNTED: &str = "v1.bin";
/// See [`EMPTY`].
pub const CUT: &str = "v1-cut.bin";

/// Files by name.
pub type Recorded = Vec<(&'static str, Vec<u8>)>;

/// The golden files of an engine, in `tests/golden` of its crate.
pub struct Golden {
    /// Whose.
    engine: &'static dyn Engine,
    /// Where its crate is.
    crate_dir: &'static str,
    /// Makes those that today's code has to make byte for byte.
    same: fn() -> Recorded,
    /// Makes those that it has to read only.
    read: fn() -> Recorded,
    recorded: Once,
}

impl fmt::Debug for Golden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Golden").field("engine", &self.engine.name()).finish_non_exhaustive()
    }
}

impl Golden {
    /// Those of `engine`, in the crate at `crate_dir`: what is the same and what is read.
    pub const fn new(
        engine: &'static dyn Engine,
        crate_dir: &'static str,
        same: fn() -> Recorded,
        read: fn() -> Recorded,
    ) -> Golden {
        Golden { engine, crate_dir, same, read, recorded: Once::new() }
    }

    /// Makes the usual images of volumes that are formatted with these options; also returns the last two as they are.
    pub fn usual(&self, format: &str, forms: &Forms) -> (Recorded, [MemDevice; 2]) {
        let (unmounted, cut) = (self.format(format), self.format(format));
        let fs = self.mount(&unmounted, "");
        forms.fill(&*fs);
        fs.unmount().expect("unmount");
        let fs = self.mount(&cut, "");
        forms.fill(&*fs);
        let cut = cut.snapshot();
        let all = vec![(EMPTY, pack(&self.format(format))), (UNMOUNTED, pack(&unmounted)), (CUT, pack(&cut))];
        (all, [unmounted, cut])
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(self.crate_dir).join("tests/golden").join(name)
    }

    /// The bytes of a file, which is written anew first if that is wanted.
    fn file(&self, name: &str) -> Vec<u8> {
        self.recorded.call_once(|| {
            if std::env::var_os("ARBOR_RERECORD").is_some() {
                let all = (self.same)().into_iter().chain((self.read)());
                all.for_each(|(name, bytes)| std::fs::write(self.path(name), bytes).expect(name));
            }
        });
        std::fs::read(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Panics if today's code makes other bytes.
    pub fn same_bytes_are_made(&self) {
        let golden: Vec<_> = (self.same)().into_iter().map(|(name, made)| (name, made == self.file(name))).collect();
        assert!(golden.iter().all(|g| g.1), "whether they are as the golden ones: {golden:?}");
    }

    /// A device with the image in it.
    pub fn load(&self, name: &str) -> MemDevice {
        MemDevice::from_bytes(&unpack(&self.file(name)))
    }

    /// A new volume.
    pub fn format(&self, options: &str) -> MemDevice {
        let (dev, options) = (MemDevice::new(SIZE), Options::parse(options));
        let (label, uuid) = ("golden".into(), *b"arboretum-golden");
        let o = FormatOptions { label, uuid, now: NOW, options, ..FormatOptions::default() };
        self.engine.format(Devices::single(dev.clone()), &o).expect("format");
        dev
    }

    /// Mounts it, by a clock that stands still a second after it was made.
    pub fn mount(&self, dev: &MemDevice, options: &str) -> Arc<dyn FileSystem> {
        let options = MountOptions { options: Options::parse(options), ..MountOptions::default() };
        let clock = Arc::new(ManualClock::new(NOW.plus_ms(1000)));
        self.engine.mount(Devices::single(dev.clone()), &options, clock).expect("mount")
    }

    /// An empty volume is sound, and takes the forms.
    pub fn an_empty_volume_is_read(&self, name: &str, forms: &Forms) {
        let dev = self.load(name);
        self.is_sound(&dev);
        let fs = self.mount(&dev, "");
        forms.fill(&*fs);
        forms.are_read(&*fs);
    }

    /// A volume that was filled and unmounted has the forms.
    pub fn an_unmounted_volume_is_read(&self, name: &str, forms: &Forms) {
        let dev = self.load(name);
        self.is_sound(&dev);
        forms.are_read(&*self.mount(&dev, ""));
    }

    /// A volume whose power was cut has the forms after recovery; of the file that had no name nothing is left.
    pub fn a_cut_volume_is_recovered(&self, name: &str, mount: &str, forms: &Forms) {
        let dev = self.load(name);
        assert!(!self.engine.probe(&dev).expect("probe").expect("a volume").clean);
        let fs = self.mount(&dev, mount);
        forms.are_read(&*fs);
        let free = fs.statfs().expect("statfs");
        fs.unmount().expect("unmount");
        self.is_sound(&dev);
        assert_eq!(free.files - free.ffree, NAMED);
    }

    /// Panics if the checker finds something.
    pub fn is_sound(&self, dev: &MemDevice) {
        let options = CheckOptions { repair: Repair::No, force: true };
        let report = self.engine.check(Devices::single(dev.clone()), &options, &mut |_, _, _| {});
        assert_eq!(report.expect("check").issues, []);
    }
}

/// The sectors of a device that are not zero: number and bytes of each.
pub fn pack(dev: &MemDevice) -> Vec<u8> {
    let mut out = Vec::new();
    for (n, sector) in dev.to_bytes().chunks(SECTOR).enumerate().filter(|(_, s)| s.iter().any(|b| *b != 0)) {
        out.extend_from_slice(&(n as u32).to_le_bytes());
        out.extend_from_slice(sector);
    }
    out
}

fn unpack(bytes: &[u8]) -> Vec<u8> {
    let mut image = vec![0; SIZE as usize];
    for piece in bytes.chunks_exact(SECTOR + 4) {
        let (number, sector) = piece.split_first_chunk().expect("longer than a number");
        image[u32::from_le_bytes(*number) as usize * SECTOR..][..SECTOR].copy_from_slice(sector);
    }
    image
}

/// Makes a file with contents.
pub fn file(fs: &dyn FileSystem, parent: Ino, name: &str, data: &[u8]) -> Ino {
    let e = fs.mknod(&CX, parent, name.as_bytes(), mode::IFREG | 0o640, 0).expect(name);
    assert_eq!(fs.write(e.ino, 0, data).expect(name), data.len());
    e.ino
}

/// Makes a directory with the names of [`directory_is_read`].
pub fn directory(fs: &dyn FileSystem) {
    let dir = fs.mkdir(&CX, fs.root(), b"directory", 0o750).expect("mkdir").ino;
    for n in 0..60 {
        file(fs, dir, &format!("name-{n:03}"), format!("{n}").as_bytes());
    }
}

/// Panics if a name of the directory is missing.
pub fn directory_is_read(fs: &dyn FileSystem) {
    let dir = fs.lookup(fs.root(), b"directory").expect("directory").ino;
    let mut names = Vec::new();
    fs.readdir(dir, 0, &mut |e| {
        names.push(e.name.to_vec());
        true
    })
    .expect("readdir");
    names.sort();
    let own = (0..60).map(|n| format!("name-{n:03}").into_bytes());
    let wanted: Vec<Vec<u8>> = [b".".to_vec(), b"..".to_vec()].into_iter().chain(own).collect();
    assert_eq!(names, wanted);
}

/// A file of every form, of an engine that has direct blocks and indirect ones.
#[derive(Clone, Copy, Debug)]
pub struct Forms {
    /// Addresses after the direct blocks, after the first indirect block, and after the second.
    pub far: [u64; 3],
}

/// Inodes with names of [`Forms`], the root among them.
const NAMED: u64 = 67;

impl Forms {
    /// Makes them, and a file without a name.
    pub fn fill(&self, fs: &dyn FileSystem) {
        let root = fs.root();
        file(fs, root, "fragments", &[b'f'; 700]);
        let big = file(fs, root, "blocks", &[b'x'; 9000]);
        self.far.iter().for_each(|at| assert_eq!(fs.write(big, *at, b"behind a hole").expect("write"), 13));
        fs.setxattr(big, b"user.colour", b"green", XattrMode::Set).expect("setxattr");
        fs.link(big, root, b"another name").expect("link");
        fs.symlink(&CX, root, b"link", b"fragments").expect("symlink");
        fs.symlink(&CX, root, b"long link", &[b'l'; 600]).expect("symlink");
        fs.mknod(&CX, root, b"device", mode::IFCHR | 0o600, 0x0105).expect("mknod");
        directory(fs);
        file(fs, root, "open", b"without a name");
        fs.unlink(root, b"open").expect("unlink");
        fs.syncfs().expect("syncfs");
    }

    /// Panics if one is not as it was made.
    pub fn are_read(&self, fs: &dyn FileSystem) {
        let read = |name: &str, at: u64, len: usize| {
            let e = fs.lookup(fs.root(), name.as_bytes()).expect(name);
            let mut buf = vec![0; len];
            assert_eq!(fs.read(e.ino, at, &mut buf).expect(name), len);
            (e, buf)
        };
        assert_eq!(read("fragments", 0, 700).1, [b'f'; 700]);
        let (e, data) = read("blocks", 0, 20_000);
        assert!(data[..9000].iter().all(|b| *b == b'x') && data[9000..].iter().all(|b| *b == 0));
        self.far.iter().for_each(|at| assert_eq!(read("another name", *at, 13).1, b"behind a hole"));
        assert_eq!((e.size, e.nlink, e.uid, e.gid, e.mode & 0o7777), (self.far[2] + 13, 2, 1000, 100, 0o640));
        assert_eq!((e.mtime, e.btime), (NOW.plus_ms(1000), NOW.plus_ms(1000)));
        assert_eq!(fs.getxattr(e.ino, b"user.colour").expect("getxattr"), b"green");
        let target = |name: &[u8]| fs.readlink(fs.lookup(fs.root(), name).expect("a link").ino).expect("readlink");
        assert_eq!((target(b"link"), target(b"long link")), (b"fragments".to_vec(), vec![b'l'; 600]));
        assert_eq!(fs.lookup(fs.root(), b"device").expect("device").rdev, 0x0105);
        directory_is_read(fs);
    }
}
