//! Several threads on one volume: readers that miss the cache beside deletes, write-back and the
//! bitmap daemon. Nothing hangs, nobody reads another file's bytes.

use arbor_base::device::MemDevice;
use arbor_base::vfs::*;
use arbor_yfs::Yfs;
use std::sync::Arc;

#[test]
fn readers_beside_deletes_and_the_daemon() {
    let dev = MemDevice::new(64 << 20);
    Yfs.format(Devices::single(dev.clone()), &FormatOptions { uuid: [3; 16], ..Default::default() }).unwrap();
    let options = MountOptions { options: Options::parse("cache=1M"), ..Default::default() };
    let fs = Yfs.mount(Devices::single(dev.clone()), &options, Arc::new(SystemClock)).unwrap();
    let cx = Cx::default();
    let make = |name: &str, byte: u8| {
        let e = fs.mknod(&cx, fs.root(), name.as_bytes(), mode::IFREG | 0o644, 0).unwrap();
        assert_eq!(fs.write(e.ino, 0, &vec![byte; 100_000]).unwrap(), 100_000);
        e.ino
    };
    let kept: Vec<Ino> = (0..40).map(|n| make(&format!("kept{n}"), n + 1)).collect();
    fs.syncfs().unwrap();
    std::thread::scope(|s| {
        for t in 0..2usize {
            let (fs, kept) = (&fs, &kept);
            s.spawn(move || {
                let mut buf = vec![0; 100_000];
                for n in 0..600 {
                    let k = (n * 7 + t * 13) % kept.len();
                    assert_eq!(fs.read(kept[k], 0, &mut buf).unwrap(), buf.len());
                    assert!(buf.iter().all(|b| *b == k as u8 + 1));
                }
            });
        }
        s.spawn(|| {
            for n in 0..300 {
                let ino = make(&format!("short{n}"), 0xee);
                fs.fsync(ino, false).unwrap();
                fs.unlink(fs.root(), format!("short{n}").as_bytes()).unwrap();
                fs.forget(ino, 1);
            }
        });
        s.spawn(|| {
            for _ in 0..300 {
                fs.background(SystemClock.now().plus_ms(10_000));
            }
        });
    });
    fs.unmount().unwrap();
    let options = CheckOptions { repair: Repair::No, force: true };
    assert_eq!(Yfs.check(Devices::single(dev), &options, &mut |_, _, _| {}).unwrap().issues, []);
}
