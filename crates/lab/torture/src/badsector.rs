//! A sector of a file that cannot be read costs the block that it lies in: what is read with it, or ahead of it, is there.

use crate::damage::{format, mount};
use arbor_base::device::{Device, Geometry, Kind, MemDevice, Op, Request, SECTOR, Ticket};
use arbor_base::vfs::{Cx, Engine, Errno, FileSystem, mode};
use std::io;

const CX: Cx = Cx { uid: 0, gid: 0 };
/// Sectors of the file.
const SECTORS: usize = 4096;
/// What is read at a time, bytes.
const STEP: usize = 4096;

/// A device with one sector that cannot be read.
#[derive(Clone)]
pub(crate) struct BadSector {
    pub inner: MemDevice,
    /// Where it begins.
    pub at: u64,
}

impl BadSector {
    fn check(&self, offset: u64, len: u64) -> io::Result<()> {
        match offset < self.at + SECTOR as u64 && self.at < offset.saturating_add(len) {
            true => Err(io::Error::other("a bad sector")),
            false => Ok(()),
        }
    }
}

impl Device for BadSector {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let one = |r: Request| {
            if let Op::Read(len) = r.op {
                self.check(r.offset, len as u64)?;
            }
            self.inner.submit(vec![r]).wait().remove(0)
        };
        Ticket::done(batch.into_iter().map(one).collect())
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.inner.set_size(size)
    }

    fn read_at(&self, kind: Kind, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len() as u64)?;
        self.inner.read_at(kind, offset, buf)
    }
}

/// The contents of a sector of the file, which nothing else has.
fn sector(n: usize) -> Vec<u8> {
    format!("sector {n:08} ").into_bytes().repeat(SECTOR / 16)
}

/// Sectors of a large file cannot be read, one at a time; of the file at most `block` bytes may be lost by each.
pub fn a_bad_sector_costs_its_block(engine: &dyn Engine, options: &str, block: usize) {
    let disk = format(engine, 64 << 20, options);
    let contents: Vec<u8> = (0..SECTORS).flat_map(sector).collect();
    let fs = mount(engine, disk.clone());
    let ino = fs.mknod(&CX, fs.root(), b"file", mode::IFREG | 0o644, 0).expect("mknod").ino;
    let mut done = 0;
    while done < contents.len() {
        done += fs.write(ino, done as u64, &contents[done..]).expect("write");
    }
    fs.unmount().expect("unmount");
    drop(fs);
    let bytes = disk.to_bytes();
    for n in [0, 1, 100, 777, SECTORS - 1] {
        let at = bytes.chunks_exact(SECTOR).rposition(|s| s == sector(n)).expect("the sector on the device");
        let device = BadSector { inner: disk.snapshot(), at: (at * SECTOR) as u64 };
        let fs = mount(engine, device);
        let lost = lost_of(&*fs, &contents);
        assert!(lost.contains(&(n * SECTOR / STEP)), "sector {n} cannot be read, but was: {lost:?}");
        assert!(lost.len() <= block.div_ceil(STEP), "sector {n}: {} pieces are lost: {lost:?}", lost.len());
        fs.unmount().expect("unmount");
    }
}

/// Reads the file in order, and says which pieces could not be read.
fn lost_of(fs: &dyn FileSystem, contents: &[u8]) -> Vec<usize> {
    let ino = fs.lookup(fs.root(), b"file").expect("lookup").ino;
    let mut lost = Vec::new();
    for (n, piece) in contents.chunks(STEP).enumerate() {
        let mut read = vec![0; piece.len()];
        match fs.read(ino, (n * STEP) as u64, &mut read) {
            Ok(len) => assert!(len == piece.len() && read == piece, "piece {n} is not what was written"),
            Err(e) => {
                assert_eq!(e.errno(), Errno::EIO, "piece {n}: {e}");
                lost.push(n);
            }
        }
    }
    fs.forget(ino, 1);
    lost
}
