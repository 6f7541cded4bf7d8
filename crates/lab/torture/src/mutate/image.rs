//! Good images, and what can be damaged in them.

use super::place;
use crate::config::{BEGIN, Config};
use crate::exec::Side;
use crate::generate::{Profile, generate};
use crate::ops::Op;
use crate::rng::pattern;
use arbor_base::device::MemDevice;
use arbor_base::vfs::{
    CrashPromise, Cx, Devices, Engine, Errno, FallocMode, FileSystem, Ino, ManualClock, MountOptions, Options, Region,
    Result, Structure, XattrMode, mode,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Size of the images in bytes.
const SIZE: u64 = 16 << 20;
const CX: Cx = Cx { uid: 1000, gid: 100 };

/// A good image and its structures.
pub struct Image {
    /// What a repeating line calls it.
    pub name: String,
    pub(crate) disk: MemDevice,
    pub(crate) mount: Options,
    pub(crate) structures: Vec<Structure>,
    /// What lies where, beside the structures also the blocks of files.
    pub(super) regions: Vec<Region>,
    /// Bytes that one more in an address field may mean.
    pub(super) units: BTreeSet<u64>,
    /// Where each field of each kind of structure is: structure and field by number.
    pub(crate) places: BTreeMap<(&'static str, &'static str), Vec<(usize, usize)>>,
}

impl Image {
    /// An image of an unmounted volume, or of one that was not unmounted.
    pub fn new(engine: &dyn Engine, name: &str, mount: &Options, disk: MemDevice) -> Result<Image> {
        let mut structures = Vec::new();
        engine.structures(&Devices::single(disk.snapshot()), &mut |s| structures.push(s))?;
        let mut regions = Vec::new();
        engine.describe(&Devices::single(disk.snapshot()), &mut |r| regions.push(r))?;
        let units = place::units(&structures);
        let mut places: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (s, structure) in structures.iter().enumerate() {
            for (f, field) in structure.fields.iter().enumerate() {
                places.entry((structure.kind, field.name)).or_default().push((s, f));
            }
        }
        Ok(Image { name: name.to_string(), disk, mount: mount.clone(), structures, regions, units, places })
    }

    /// A copy of the good image.
    pub fn disk(&self) -> MemDevice {
        self.disk.snapshot()
    }

    /// What lies in it.
    pub fn structures(&self) -> &[Structure] {
        &self.structures
    }

    /// How many fields of how many kinds of structures it has.
    pub fn places(&self) -> usize {
        self.places.len()
    }
}

/// The images that [`run`](super::run) damages: in each shape of the engine a few files of every
/// sort, in some of them more, and the same with a log that must be replayed.
pub fn images(engine: &dyn Engine) -> std::result::Result<Vec<Image>, String> {
    let mut all: Vec<Image> = Vec::new();
    let (mut smallest, mut least) = (None, usize::MAX);
    // What was not unmounted is of no use without a repair where nothing is promised.
    let usable = |mount: &str| engine.crash_promise(&Options::parse(mount)) != CrashPromise::Repairable;
    for (n, shape) in engine.test_configurations().iter().enumerate().filter(|s| usable(s.1.1)) {
        let (format, mount) = shape;
        let fail = |what: &str, e: arbor_base::vfs::Error| format!("image of shape {n}: {what}: {e}");
        let config = Config {
            device_size: SIZE,
            format: Options::parse(format),
            mount: Options::parse(mount),
            ..Config::new(Profile::Small)
        };
        let disk = MemDevice::new(SIZE);
        engine.format(Devices::single(disk.clone()), &config.format_options()).map_err(|e| fail("format", e))?;
        let mount = || {
            let clock = Arc::new(ManualClock::new(BEGIN));
            let options = MountOptions { read_only: false, options: config.mount.clone() };
            engine.mount(Devices::single(disk.clone()), &options, clock).map_err(|e| fail("mount", e))
        };
        let image = |name: &str| {
            let image = Image::new(engine, &format!("{name}-{n}"), &config.mount, disk.snapshot());
            image.map_err(|e| fail("structures", e))
        };
        let fs = mount()?;
        populate(&*fs).map_err(|e| fail("populate", e))?;
        fs.unmount().map_err(|e| fail("unmount", e))?;
        let some = image("some")?;
        let sizes: usize = some.structures.iter().map(|s| s.len).sum();
        all.push(some);
        if sizes < least {
            (smallest, least) = (Some(shape), sizes);
        }
        let fs = mount()?;
        let side = crash(fs).map_err(|e| fail("crash", e))?;
        all.push(image("crashed")?);
        drop(side);
    }
    if let Some(shape) = smallest {
        all.push(crowd(engine, shape)?);
    }
    // Of an engine that does not tell what lies where nothing can be damaged.
    all.retain(|image| !image.places.is_empty());
    Ok(all)
}

fn write(fs: &dyn FileSystem, ino: Ino, at: u64, len: usize) -> Result<()> {
    let bytes = pattern(ino.0, at, len);
    let mut done = 0;
    while done < len {
        done += fs.write(ino, at + done as u64, &bytes[done..])?;
    }
    Ok(())
}

fn file(fs: &dyn FileSystem, dir: Ino, name: &str, len: usize) -> Result<Ino> {
    let ino = fs.mknod(&CX, dir, name.as_bytes(), mode::IFREG | 0o644, 0)?.ino;
    write(fs, ino, 0, len)?;
    Ok(ino)
}

/// A few files of every sort, few enough that a mutant takes no longer than a moment.
fn populate(fs: &dyn FileSystem) -> Result<()> {
    let root = fs.root();
    let mkdir = |at, name: &str| fs.mkdir(&CX, at, name.as_bytes(), 0o755).map(|e| e.ino);
    let (a, b) = (mkdir(root, "a")?, mkdir(root, "b")?);
    let deep = mkdir(mkdir(a, "x")?, "y")?;
    file(fs, deep, "leaf", 10)?;
    file(fs, a, "inline", 40)?;
    file(fs, a, "empty", 0)?;
    let linked = file(fs, a, "linked", 5000)?;
    fs.link(linked, b, b"second")?;
    file(fs, b, "large", 200_000)?;
    for (name, pieces) in [("few", 4), ("many", 70)] {
        let ino = file(fs, b, name, 100)?;
        for n in 1..pieces {
            write(fs, ino, n * 65536, 1000)?;
        }
    }
    let room = file(fs, b, "room", 9000)?;
    fs.fallocate(room, FallocMode::KEEP_SIZE, 0, 100_000).or_else(|e| match e.errno() {
        // An engine may not carry space after the end of a file.
        Errno::EOPNOTSUPP => fs.fallocate(room, FallocMode::empty(), 0, 100_000),
        _ => Err(e),
    })?;
    fs.symlink(&CX, a, b"short", b"inline")?;
    fs.symlink(&CX, a, b"long", &[b'q'; 3000])?;
    fs.mknod(&CX, a, b"pipe", mode::IFIFO | 0o600, 0)?;
    fs.mknod(&CX, a, b"disk", mode::IFBLK | 0o600, 0x801)?;
    let marked = file(fs, a, "marked", 15)?;
    fs.setxattr(marked, b"user.one", b"here", XattrMode::Set)?;
    fs.setxattr(marked, b"user.two", b"there", XattrMode::Set)?;
    let heavy = file(fs, a, "heavy", 15)?;
    fs.setxattr(heavy, b"user.small", &pattern(1, 0, 100), XattrMode::Set)?;
    fs.setxattr(heavy, b"user.big", &pattern(2, 0, 2000), XattrMode::Set)?;
    let list = mkdir(root, "list")?;
    for n in 0..12 {
        file(fs, list, &format!("file number {n}"), n * 30)?;
    }
    // With names of this length a directory soon has a tree.
    let long = mkdir(root, "long")?;
    for n in 0..100 {
        fs.link(linked, long, format!("{n}{}", "n".repeat(240)).as_bytes())?;
    }
    Ok(())
}

/// Works on, and leaves the volume as a power cut would; it must not be dropped before the disk
/// was copied.
fn crash(fs: Arc<dyn FileSystem>) -> Result<Side> {
    let root = fs.root();
    let mut side = Side::new(fs.clone());
    for op in generate(Profile::Sync, 7, 60).into_iter().filter(|op| !matches!(op, Op::Remount {} | Op::Walk { .. })) {
        side.apply(&op);
    }
    // Files without a name, whose inodes wait to be freed.
    for n in 0..3 {
        let name = format!("open {n}");
        file(&*fs, root, &name, 3000)?;
        fs.unlink(root, name.as_bytes())?;
    }
    let b = fs.lookup(root, b"b")?.ino;
    fs.unlink(b, b"large")?;
    fs.tmpfile(&CX, root, mode::IFREG | 0o600)?;
    fs.syncfs()?;
    Ok(side)
}

/// An image with so many inodes that trees of them grow, if the structures are small.
fn crowd(engine: &dyn Engine, (format, mount): &(&str, &str)) -> std::result::Result<Image, String> {
    let fail = |e: arbor_base::vfs::Error| format!("image of a crowd: {e}");
    let config = Config { format: Options::parse(format), mount: Options::parse(mount), ..Config::new(Profile::Small) };
    let disk = MemDevice::new(SIZE);
    engine.format(Devices::single(disk.clone()), &config.format_options()).map_err(fail)?;
    let options = MountOptions { read_only: false, options: config.mount.clone() };
    let clock = Arc::new(ManualClock::new(BEGIN));
    let fs = engine.mount(Devices::single(disk.clone()), &options, clock).map_err(fail)?;
    let crowded = || -> Result<()> {
        let root = fs.root();
        for n in 0..4200 {
            fs.mknod(&CX, root, n.to_string().as_bytes(), mode::IFREG | 0o600, 0)?;
        }
        // The chunks remain.
        for n in 0..4100 {
            let name = n.to_string();
            let ino = fs.lookup(root, name.as_bytes())?.ino;
            fs.unlink(root, name.as_bytes())?;
            fs.forget(ino, 2);
        }
        fs.unmount()
    };
    crowded().map_err(fail)?;
    Image::new(engine, "crowd", &config.mount, disk).map_err(fail)
}
