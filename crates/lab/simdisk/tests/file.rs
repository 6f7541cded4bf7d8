//! The disk as a file: bytes, and who waits for what.

mod common;

use arbor_base::device::{Device, MemDevice, Request};
use arbor_base::vfs::{Errno, FallocMode, FileSystem, Ino, SetAttr, Time};
use arbor_simdisk::{DISK_FILE, DiskFs, HostQueue, Model, SimClock, SimDevice, TraceOp, UNDER_WAY_BYTES};
use common::{device, seconds, write};
use std::sync::Arc;

fn model(name: &str) -> Model {
    Model::named(name).unwrap()
}

fn disk(model: &Model) -> (SimDevice, DiskFs, Ino) {
    let memory = Arc::new(MemDevice::new(model.capacity_bytes()));
    let device = SimDevice::new(memory, model, HostQueue::default(), SimClock::new(Time::default())).unwrap();
    let fs = DiskFs::new(device.clone());
    let ino = fs.lookup(fs.root(), DISK_FILE.as_bytes()).unwrap().ino;
    (device, fs, ino)
}

#[test]
fn bytes_come_back_wherever_they_begin_and_end() {
    let (_, fs, ino) = disk(&model("st39140"));
    let size = fs.getattr(ino).unwrap().size;
    assert_eq!(size, model("st39140").capacity_bytes());
    let mut image = vec![0; 8192];
    for (at, len, byte) in [(0, 8192, 1), (1, 1, 2), (511, 2, 3), (700, 3000, 4), (4096, 512, 5)] {
        image[at..at + len].fill(byte);
        assert_eq!(fs.write(ino, at as u64, &vec![byte; len]).unwrap(), len);
    }
    for (at, len) in [(0, 8192), (3, 1), (510, 4), (600, 4000), (1024, 512)] {
        let mut found = vec![9; len];
        assert_eq!(fs.read(ino, at as u64, &mut found).unwrap(), len);
        assert!(found == image[at..at + len], "{at} {len}");
    }
    let mut end = [7; 20];
    assert_eq!(fs.write(ino, size - 10, &[6; 20]).unwrap(), 10);
    assert_eq!(fs.read(ino, size - 10, &mut end).unwrap(), 10);
    assert_eq!((&end[..10], fs.read(ino, size, &mut [0]).unwrap()), (&[6; 10][..], 0));
    assert_eq!(fs.write(ino, size, &[0]).unwrap_err().errno(), Errno::ENOSPC);
}

#[test]
fn only_a_flush_or_much_waits_for_writes() {
    let model = model("st39140");
    let (sim, fs, ino) = disk(&model);
    let data = vec![1; 1 << 20];
    assert_eq!(seconds(&sim, || assert_eq!(fs.write(ino, 64 << 20, &data).unwrap(), 1 << 20)), 0.0);
    let flushed = seconds(&sim, || fs.fsync(ino, false).unwrap());
    let direct = device(&model, HostQueue::default());
    let wanted = seconds(&direct, || {
        direct.submit(vec![write(64 << 20, 1 << 20)]).wait_all().unwrap();
        direct.flush().unwrap();
    });
    assert_eq!(flushed, wanted);
    // At least what the heads take for a mebibyte.
    assert!(flushed > 0.05, "{flushed}");
    let pieces = UNDER_WAY_BYTES >> 20;
    let some =
        |from: u64, to: u64| (from..to).for_each(|i| assert_eq!(fs.write(ino, i << 20, &data).unwrap(), 1 << 20));
    assert_eq!(seconds(&sim, || some(0, pieces)), 0.0);
    assert!(seconds(&sim, || some(pieces, pieces + 8)) > 0.2);
}

#[test]
fn a_read_takes_what_the_disk_takes() {
    let model = model("st39140");
    let (sim, fs, ino) = disk(&model);
    let direct = device(&model, HostQueue::default());
    for at in [5 << 30, 0, 1 << 20, 123 << 12] {
        let mut buffer = [0; 4096];
        let took = seconds(&sim, || assert_eq!(fs.read(ino, at, &mut buffer).unwrap(), 4096));
        let request = Request::read(arbor_base::device::Kind::Other, at, 4096);
        assert_eq!(took, seconds(&direct, || direct.submit(vec![request]).wait_all().unwrap()));
        assert!(took > 0.0);
    }
}

#[test]
fn statistics_and_trace_say_what_was_asked_for() {
    let (sim, fs, ino) = disk(&model("st39140").with_write_cache(1 << 20));
    sim.set_tracing(true);
    fs.write(ino, 1 << 30, &[1; 4096]).unwrap();
    fs.read(ino, 8192, &mut [0; 1024]).unwrap();
    fs.fsync(ino, false).unwrap();
    fs.unmount().unwrap();
    let (stats, trace) = (sim.stats(), sim.take_trace());
    assert_eq!((stats.reads, stats.writes, stats.read_bytes, stats.write_bytes), (1, 1, 1024, 4096));
    let mut found: Vec<_> = trace.requests.iter().map(|r| (r.op, r.offset, r.len)).collect();
    found.sort_by_key(|r| r.1);
    found.retain(|r| r.0 != TraceOp::Flush);
    assert_eq!(found, [(TraceOp::Read, 8192, 1024), (TraceOp::Write, 1 << 30, 4096)]);
    assert!(stats.flushes >= 1 && trace.requests.len() as u64 == 2 + stats.flushes);
    let counted = |name: &str| fs.counters().into_iter().find(|c| c.0 == name).unwrap().1;
    assert_eq!((counted("reads"), counted("elapsed_ns")), (1, sim.clock().now_ns()));
}

#[test]
fn holes_are_discards_where_the_drive_has_them() {
    let punch = FallocMode::PUNCH_HOLE | FallocMode::KEEP_SIZE;
    let (sim, fs, ino) = disk(&model("870evo"));
    fs.write(ino, 0, &[1; 1 << 16]).unwrap();
    fs.fallocate(ino, punch, 4096, 8192).unwrap();
    fs.fsync(ino, false).unwrap();
    let mut found = [9; 16384];
    fs.read(ino, 0, &mut found).unwrap();
    assert!(found[..4096] == [1; 4096] && found[4096..12288] == [0; 8192] && found[12288..] == [1; 4096]);
    assert_eq!(sim.stats().discards, 1);
    assert_eq!(fs.fallocate(ino, FallocMode::ZERO_RANGE, 0, 4096).unwrap_err().errno(), Errno::EOPNOTSUPP);
    let (_, fs, ino) = disk(&model("st39140"));
    assert_eq!(fs.fallocate(ino, punch, 0, 4096).unwrap_err().errno(), Errno::EOPNOTSUPP);
}

#[test]
fn nothing_else_can_be_changed() {
    let (_, fs, ino) = disk(&model("st39140"));
    let mut names = Vec::new();
    fs.readdir(fs.root(), 0, &mut |e| {
        names.push(String::from_utf8(e.name.to_vec()).unwrap());
        true
    })
    .unwrap();
    assert_eq!(names, [".", "..", DISK_FILE]);
    let size = |n| SetAttr { size: Some(n), ..SetAttr::default() };
    let full = fs.getattr(ino).unwrap().size;
    assert_eq!(fs.setattr(ino, &size(full)).unwrap().size, full);
    assert_eq!(fs.setattr(ino, &size(0)).unwrap_err().errno(), Errno::EPERM);
    assert_eq!(fs.unlink(fs.root(), DISK_FILE.as_bytes()).unwrap_err().errno(), Errno::EPERM);
    assert_eq!(fs.read(fs.root(), 0, &mut [0]).unwrap_err().errno(), Errno::EISDIR);
}

#[test]
fn a_disk_that_has_failed_can_be_read_and_not_written() {
    let (device, fs, ino) = disk(&model("870evo"));
    assert_eq!(fs.write(ino, 0, &[1; 512]).unwrap(), 512);
    assert_eq!(fs.failure(), None);
    fs.fail("a panic");
    fs.fail("another");
    assert_eq!(fs.failure().as_deref(), Some("a panic"), "the first reason stays");
    let punch = FallocMode::PUNCH_HOLE | FallocMode::KEEP_SIZE;
    let changes = [
        ("write", fs.write(ino, 0, &[2; 512]).map(drop)),
        ("write of a part", fs.write(ino, 3, &[2; 5]).map(drop)),
        ("fallocate", fs.fallocate(ino, punch, 0, 4096)),
        ("setattr", fs.setattr(ino, &SetAttr { mode: Some(0o644), ..SetAttr::default() }).map(drop)),
    ];
    for (what, done) in changes {
        assert_eq!(done.map_err(|e| e.errno()), Err(Errno::EROFS), "{what}");
    }
    for (what, done) in [("fsync", fs.fsync(ino, false)), ("syncfs", fs.syncfs()), ("unmount", fs.unmount())] {
        assert_eq!(done.unwrap_err().to_string(), "turned read-only: a panic", "{what}");
    }
    assert_eq!((device.stats().requests, device.stats().flushes), (1, 0), "only what was written before");
    let mut found = [0; 512];
    assert_eq!((fs.read(ino, 0, &mut found).unwrap(), found), (512, [1; 512]));
}
