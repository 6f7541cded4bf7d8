//! A hard disk's behaviour as seen through the device.

mod common;

use arbor_base::device::{Device, Kind, Medium, MemDevice, Request};
use arbor_base::vfs::Time;
use arbor_simdisk::{HostQueue, Model, SimClock, SimDevice};
use common::{Rng, device, random_iops, read, seconds, sequential_mb_s, write};
use std::sync::Arc;

const MIB: u64 = 1 << 20;

fn model() -> Model {
    Model::named("st39140").unwrap()
}

#[test]
fn bytes_are_there_at_once_and_time_passes_when_waited_for() {
    let inner = MemDevice::new(8 * MIB);
    let clock = SimClock::new(Time::default());
    let d = SimDevice::new(Arc::new(inner.clone()), &model(), HostQueue::default(), clock.clone()).unwrap();
    let ticket = d.submit(vec![write(4096, 4096)]);
    assert!(!ticket.is_done());
    assert_eq!(clock.now_ns(), 0);
    d.write_at(Kind::Data, 0, &[7; 512]).unwrap();
    let mut sector = [0; 512];
    inner.read_at(Kind::Data, 0, &mut sector).unwrap();
    assert_eq!(sector, [7; 512]);
    assert!(clock.now_ns() > 1_000_000);
    clock.advance_ns(1_000_000_000);
    assert!(ticket.is_done(), "it went on in the time of others");
    let before = clock.now_ns();
    ticket.wait_all().unwrap();
    assert_eq!(clock.now_ns(), before);
    assert_eq!(d.geometry().discard_unit, 0, "a hard disk does not discard");
    assert_eq!(d.geometry().medium, Medium::Disk);
    d.submit(vec![Request::discard(Kind::Data, 0, MIB)]).wait_all().unwrap();
    assert_eq!(clock.now_ns(), before);
}

#[test]
fn one_read_to_the_nanosecond() {
    let d = device(&model(), HostQueue::default());
    d.set_tracing(true);
    d.submit(vec![read(0, 4096)]).wait_all().unwrap();
    let (turn, overhead) = (60_000_000_000 / 7200, 500_000);
    let request = d.take_trace().requests[0];
    // The arm is there, sector 0 passed at time 0, and the last sector goes over the bus at 40 MB/s in the end.
    assert_eq!((request.overhead_ns, request.seek_ns), (overhead, 0));
    assert_eq!(request.rotation_ns, turn - overhead);
    assert_eq!(request.transfer_ns, 8 * turn / 285 + 512 * 25);
    assert_eq!(d.clock().now_ns(), turn + 8 * turn / 285 + 512 * 25);
    // The next eight follow from the read-ahead: while the command was processed they passed under the head.
    d.submit(vec![read(4096, 4096)]).wait_all().unwrap();
    let next = d.take_trace().requests[0];
    assert_eq!((next.seek_ns, next.rotation_ns, next.transfer_ns), (0, 0, 4096 * 25));
}

#[test]
fn what_does_not_fit_or_fails() {
    let clock = SimClock::new(Time::default());
    let new = |size| SimDevice::new(Arc::new(common::NullDevice(size)), &model(), HostQueue::default(), clock.clone());
    let e = new(10_000_000_000).unwrap_err();
    assert_eq!(e, "a device of 10000000000 bytes does not fit on st39140, which has 9105018880");
    let d = new(MIB).unwrap();
    assert!(d.submit(vec![read(2 * MIB, 512)]).wait_all().is_err());
    assert_eq!((clock.now_ns(), d.stats().submitted), (0, 0), "refused requests take no time");
    let inner = MemDevice::new(MIB);
    let d = SimDevice::new(Arc::new(inner), &model(), HostQueue::default(), clock.clone()).unwrap();
    d.set_size(2 * MIB).unwrap();
    assert_eq!(d.geometry().size, 2 * MIB);
    assert!(d.set_size(1 << 40).is_err());
}

/// Mixed requests, with waits and idle times, traced.
fn busy_run(d: &SimDevice) {
    let mut rng = Rng(5);
    let mut tickets = Vec::new();
    for i in 0..3000 {
        let at = rng.below(1 << 17) * 4096;
        let len = 4096 << rng.below(4);
        tickets.push(d.submit(vec![if rng.below(3) == 0 { read(at, len) } else { write(at, len) }]));
        match rng.below(40) {
            0 => d.flush().unwrap(),
            1 => tickets.drain(..).for_each(|t| t.wait_all().unwrap()),
            2 => d.clock().advance_ns(rng.below(50_000_000)),
            3 => drop(tickets.pop()),
            _ if i % 5 == 0 => drop(tickets.pop().map(|t| t.is_done())),
            _ => {}
        }
    }
    d.drain();
}

#[test]
fn the_same_run_twice_gives_the_same_trace() {
    for name in Model::shipped() {
        let model = Model::named(name).unwrap();
        let run = || {
            let d = device(&model, HostQueue::default());
            d.set_tracing(true);
            busy_run(&d);
            (d.take_trace(), d.stats(), d.clock().now_ns())
        };
        let (first, second) = (run(), run());
        assert!(first.0.requests.len() >= 3000);
        assert_eq!(first, second, "{name}");
    }
}

#[test]
fn the_parts_of_the_time_add_up() {
    for name in Model::shipped() {
        let d = device(&Model::named(name).unwrap(), HostQueue::default());
        d.set_tracing(true);
        busy_run(&d);
        let (stats, trace) = (d.stats(), d.take_trace());
        let parts = stats.overhead_ns + stats.seek_ns + stats.rotation_ns + stats.transfer_ns;
        assert!(parts <= stats.service_ns, "{name}: the rest is waiting in the drive");
        assert!(stats.busy_ns <= d.clock().now_ns());
        for r in &trace.requests {
            assert!(r.issue_ns <= r.start_ns && r.start_ns <= r.end_ns);
            let parts = r.overhead_ns + r.seek_ns + r.rotation_ns + r.transfer_ns;
            assert!(parts <= r.end_ns - r.start_ns, "{name}: {r:?}");
        }
        let bytes: u64 = trace.requests.iter().map(|r| r.len).sum();
        assert_eq!(bytes, stats.read_bytes + stats.write_bytes, "{name}");
    }
}

#[test]
fn write_cache_off_a_write_is_durable_and_flush_free() {
    let d = device(&model(), HostQueue::default());
    let took = seconds(&d, || d.write_at(Kind::Log, 500 * MIB, &[0; 4096]).unwrap());
    assert!(took > 0.002, "{took}");
    let before = d.clock().now_ns();
    d.flush().unwrap();
    assert_eq!(d.clock().now_ns(), before);
    assert_eq!(d.stats().flushes, 0);
}

#[test]
fn write_cache_on_a_write_is_fast_and_flush_pays() {
    let d = device(&model().with_write_cache(256 << 10), HostQueue::default());
    let took = seconds(&d, || {
        for i in 0..8 {
            d.write_at(Kind::Log, i * 900 * MIB, &[0; 4096]).unwrap();
        }
    });
    assert!(took < 0.008, "{took}: overhead and bus only");
    let flushed = seconds(&d, || d.flush().unwrap());
    assert!(flushed > 8.0 * 0.005, "{flushed}: eight seeks");
    assert_eq!(d.stats().destaged_bytes, 8 * 4096);
    let again = seconds(&d, || d.flush().unwrap());
    assert!(again < 0.001, "{again}: nothing is dirty");
    // What the cache holds is read from it.
    d.write_at(Kind::Log, 5000 * MIB, &[0; 4096]).unwrap();
    let hit = seconds(&d, || d.submit(vec![read(5000 * MIB, 4096)]).wait_all().unwrap());
    assert!(hit < 0.001, "{hit}");
}

#[test]
fn a_full_write_cache_slows_writes_to_the_speed_of_the_media() {
    let rate = |cache| {
        let d = device(&model().with_write_cache(cache), HostQueue::default());
        random_iops(&d, model().capacity_bytes(), false, 1, 1000, 3)
    };
    let (off, on) = (rate(0), rate(256 << 10));
    assert!(on > 1.5 * off, "{on} {off}: the elevator over the cache pays");
    assert!(on < 6.0 * off, "{on} {off}: but every write has its seek in the end");
}

#[test]
fn the_cache_is_written_back_while_the_disk_is_idle() {
    let d = device(&model().with_write_cache(256 << 10), HostQueue::default());
    (0..16).for_each(|i| d.write_at(Kind::Data, i * 500 * MIB, &[0; 4096]).unwrap());
    d.idle_until_ns(d.clock().now_ns() + 1_000_000_000);
    assert_eq!(d.stats().destaged_bytes, 16 * 4096);
    assert!(seconds(&d, || d.flush().unwrap()) < 0.001);
}

#[test]
fn small_sequential_reads_come_from_the_track_buffer() {
    // The old disk's media are slower than its overhead, so small reads keep up with them.
    let d = device(&Model::named("dsp3105").unwrap(), HostQueue::default());
    let n = 2000;
    let took = seconds(&d, || (0..n).for_each(|i| d.submit(vec![read(i * 4096, 4096)]).wait_all().unwrap()));
    let media = 57.0 * 512.0 * 90.0 / 1e6;
    let rate = (n * 4096) as f64 / 1e6 / took;
    assert!(rate > 0.8 * media, "{rate} of {media} MB/s");
    assert!(d.stats().cache_hits > n * 9 / 10);
    // With a pause after each, the read-ahead has read what comes next.
    d.reset_stats();
    for i in 0..50 {
        d.submit(vec![read(100 * MIB + i * 4096, 4096)]).wait_all().unwrap();
        d.clock().advance_ns(20_000_000);
    }
    let stats = d.stats();
    assert_eq!((stats.cache_hits, stats.requests), (49, 50));
}

#[test]
fn writes_make_the_buffer_forget() {
    let d = device(&model(), HostQueue::default());
    d.submit(vec![read(MIB, 4096)]).wait_all().unwrap();
    d.submit(vec![read(MIB, 4096)]).wait_all().unwrap();
    assert_eq!(d.stats().cache_hits, 1);
    d.submit(vec![write(MIB + 2048, 512)]).wait_all().unwrap();
    d.submit(vec![read(MIB, 4096)]).wait_all().unwrap();
    assert_eq!(d.stats().cache_hits, 1);
}

#[test]
fn two_tags_stream_writes_that_one_tag_does_not() {
    let rate =
        |tags| sequential_mb_s(&device(&model().with_tags(tags), HostQueue::default()), 0, 16 * MIB, false, tags);
    let (one, two) = (rate(1), rate(2));
    // With one command at a time each write misses its sector by the overhead and waits for a revolution.
    assert!((one - 0.131072 / 0.0167).abs() < 0.8, "{one}");
    assert!(two > 1.6 * one, "{two} {one}");
}

#[test]
fn a_deeper_tagged_queue_shortens_positioning() {
    let model = Model::named("hc310").unwrap();
    let rate = |tags| random_iops(&device(&model, HostQueue::default()), model.capacity_bytes(), true, tags, 4000, 9);
    let (one, many) = (rate(1), rate(32));
    assert!(many > 1.8 * one, "{many} {one}");
}

#[test]
fn devices_share_a_clock() {
    let clock = SimClock::new(Time::default());
    let new = || {
        let inner = Arc::new(common::NullDevice(MIB * 1000));
        SimDevice::new(inner, &model(), HostQueue::default(), clock.clone()).unwrap()
    };
    let (log, data) = (new(), new());
    let background = data.submit((0..50).map(|i| write(i * 17 * MIB, 4096)).collect());
    for i in 0..100 {
        log.write_at(Kind::Log, i * 4096, &[0; 4096]).unwrap();
    }
    let logged = clock.now_ns();
    assert!(background.is_done(), "both worked at the same time");
    background.wait_all().unwrap();
    assert_eq!(clock.now_ns(), logged);
    assert!(data.stats().busy_ns > logged / 4);
}

#[test]
fn the_driver_measures_service_and_queueing_time() {
    let d = device(&model(), HostQueue::default());
    let tickets: Vec<_> = (0..20).map(|i| d.submit(vec![write(i * 400 * MIB, 4096)])).collect();
    tickets.into_iter().for_each(|t| t.wait_all().unwrap());
    let stats = d.stats();
    assert!(stats.average_queue_ms() > 3.0 * stats.average_service_ms(), "twenty at once queue");
    d.reset_stats();
    d.write_at(Kind::Data, 0, &[0; 4096]).unwrap();
    let stats = d.stats();
    assert_eq!((stats.requests, stats.queue_ns), (1, 0));
    assert!(stats.average_service_ms() > 1.0);
}
