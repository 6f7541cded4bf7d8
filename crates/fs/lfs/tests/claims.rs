//! What an image claims to be costs nothing, and is believed as far as it can be true.

mod damage_kit;

use arbor_base::device::{Device, Geometry, MemDevice, Op, Request, Ticket};
use arbor_base::vfs::*;
use arbor_lfs::Lfs;
use arbor_lfs::format::*;
use damage_kit::*;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts reads, and those of a place.
struct Counting {
    dev: MemDevice,
    at: u64,
    reads: Arc<[AtomicU64; 2]>,
}

impl Device for Counting {
    fn geometry(&self) -> Geometry {
        self.dev.geometry()
    }
    fn submit(&self, batch: Vec<Request>) -> Ticket {
        for r in batch.iter().filter(|r| matches!(r.op, Op::Read(_))) {
            self.reads[0].fetch_add(1, Relaxed);
            self.reads[1].fetch_add(u64::from(r.offset == self.at), Relaxed);
        }
        self.dev.submit(batch)
    }
    fn flush(&self) -> io::Result<()> {
        self.dev.flush()
    }
    fn set_size(&self, size: u64) -> io::Result<()> {
        self.dev.set_size(size)
    }
}

/// What leads to hundreds of blocks of the table is read a few times, not for each of them. The inode map is whole, so
/// the log is not read for it.
#[test]
fn a_damaged_indirect_block_of_the_usage_table_is_not_read_for_each_block_below_it() {
    let dev = build(8 << 30, "block=4K,segment=64K");
    let knife = ImageCorruptor::new(dev.clone());
    knife.lose_older();
    let blocks = u64::from(knife.newest().segs.get()) / (knife.geom.block_size() / USAGE) as u64;
    assert!(blocks > NDADDR as u64 + 400, "{blocks}");
    let frag = knife.geom.seg_start(Seg(10_000));
    knife.set_pointer(IFILE.0, FileBlock::Map { level: 1, n: 0 }, Pointer { frag: frag.0.into(), crc: 1.into() });
    let reads = Arc::<[AtomicU64; 2]>::default();
    let counting = Counting { dev: dev.clone(), at: knife.geom.byte(frag), reads: reads.clone() };
    let options = CheckOptions { repair: Repair::No, force: true };
    let report = Lfs.check(Devices::single(counting), &options, &mut |_, _, _| ()).unwrap();
    assert!(codes(&report).contains(&"IfileBlock"), "{report:?}");
    let [all, there] = [0, 1].map(|n| reads[n].load(Relaxed));
    let segs = u64::from(knife.newest().segs.get());
    println!("{all} reads, {there} of the block; {blocks} blocks of the table, {segs} segments");
    assert!((1..40).contains(&there), "{there} reads of the block");
    assert!(all < segs / 10, "{all} reads, {segs} segments");
}

/// The usage table of so many segments would reach into the inode map.
#[test]
fn more_segments_than_the_usage_table_has_entries_are_refused() {
    let most = MAP_AT / USAGE as u64;
    let formats = |dev: &MemDevice| {
        let options = FormatOptions { options: Options::parse("segment=128K"), ..FormatOptions::default() };
        Lfs.format(Devices::single(dev.clone()), &options)
    };
    let refused = formats(&MemDevice::new((most + 2) << 17)).unwrap_err().to_string();
    assert!(refused.contains("too many"), "{refused}");
    let dev = MemDevice::new((most + 1) << 17);
    formats(&dev).unwrap();
    let mounts = || {
        let clock = Arc::new(ManualClock::default());
        Lfs.mount(Devices::single(dev.clone()), &MountOptions::default(), clock).map(|fs| fs.unmount().unwrap())
    };
    mounts().unwrap();
    // A checkpoint that says so is none.
    dev.set_size((most + 2) << 17).unwrap();
    let knife = ImageCorruptor::new(dev.clone());
    assert_eq!(u64::from(knife.newest().segs.get()), most);
    for (at, cp) in knife.checkpoints() {
        knife.put_checkpoint(at, Checkpoint { segs: (most as u32 + 1).into(), ..cp });
    }
    let refused = mounts().unwrap_err().to_string();
    assert!(refused.contains("segs"), "{refused}");
}
