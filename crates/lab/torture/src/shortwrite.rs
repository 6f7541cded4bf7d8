//! A write that begins in a hole and is to make its file longer, and finds no space on the way.

use crate::config::{BEGIN, Config};
use crate::damage::check;
use arbor_base::device::MemDevice;
use arbor_base::vfs::{Cx, Devices, Engine, Errno, FileSystem, ManualClock, Repair, SetAttr, mode};
use std::sync::Arc;

const CX: Cx = Cx { uid: 0, gid: 0 };
const BLOCK: u64 = 4096;
/// A hole, and a block that is used in part.
const OLD: u64 = 8 * BLOCK + 1527;
/// Blocks that are freed on the full volume, one more each time.
const FREED: u64 = 24;

fn mount(engine: &dyn Engine, dev: &MemDevice, config: &Config) -> Arc<dyn FileSystem> {
    let clock = Arc::new(ManualClock::new(BEGIN));
    engine.mount(Devices::single(dev.clone()), &config.mount_options(), clock).expect("mount")
}

/// However far the write gets, the file is as long as what was written or as it was, and the checker finds nothing.
pub fn leaves_a_sound_file(engine: &dyn Engine, config: &Config) {
    let dev = MemDevice::new(config.device_size);
    engine.format(Devices::single(dev.clone()), &config.format_options()).expect("format");
    let fs = mount(engine, &dev, config);
    let made = |name: &[u8]| fs.mknod(&CX, fs.root(), name, mode::IFREG | 0o644, 0).expect("mknod").ino;
    let (file, filler) = (made(b"file"), made(b"filler"));
    fs.write(file, OLD / BLOCK * BLOCK, &[7; 1527]).expect("write");
    let mut full = 0;
    for len in [1 << 20, BLOCK as usize] {
        while let Ok(n @ 1..) = fs.write(filler, full, &vec![3; len]) {
            full += n as u64;
        }
        fs.syncfs().expect("syncfs");
    }
    fs.unmount().expect("unmount");
    let (mut short, mut longer) = (0, 0);
    for freed in 0..FREED {
        let dev = dev.snapshot();
        let fs = mount(engine, &dev, config);
        let size = Some((full / BLOCK).saturating_sub(freed) * BLOCK);
        fs.setattr(filler, &SetAttr { size, ..SetAttr::default() }).expect("truncate");
        fs.syncfs().expect("syncfs");
        let done = match fs.write(file, 18, &vec![9; 14 * BLOCK as usize]) {
            Ok(n) => n as u64,
            Err(e) if e.errno() == Errno::ENOSPC => 0,
            Err(e) => panic!("{config:?}, {freed} blocks freed: {e}"),
        };
        short += u32::from(done > 0 && 18 + done <= OLD);
        longer += u32::from(18 + done > OLD);
        let wanted = if done == 0 { OLD } else { OLD.max(18 + done) };
        let is = fs.getattr(file).expect("getattr").size;
        assert_eq!(is, wanted, "{config:?}, {freed} blocks freed, {done} bytes written: size of the file");
        fs.unmount().expect("unmount");
        let report = check(engine, dev.clone(), Repair::No);
        assert!(
            report.issues.is_empty(),
            "{config:?}, {freed} blocks freed, {done} bytes written: {:?}",
            report.issues
        );
    }
    assert!(short > 0 && longer > 0, "{config:?}: {short} short of the old end, {longer} beyond it");
}
