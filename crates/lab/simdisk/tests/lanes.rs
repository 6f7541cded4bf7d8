//! Several programs on one clock: they wait at the same time, compute one after the other, and repeat themselves.

use arbor_base::device::{Device, Kind, MemDevice};
use arbor_base::sync::{Mutex, Rank};
use arbor_base::vfs::Time;
use arbor_simdisk::{HostQueue, Model, SimClock, SimDevice, lanes};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const READS: u64 = 200;

fn disk(queue: HostQueue) -> (SimDevice, Arc<SimClock>) {
    let clock = SimClock::new(Time::default());
    let model = Model::named("hc310").expect("hc310");
    let device = SimDevice::new(Arc::new(MemDevice::new(1 << 30)), &model, queue, clock.clone()).expect("a device");
    (device, clock)
}

fn read(device: &SimDevice, number: u64) {
    // SplitMix64: all places are equally far from each other.
    let z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let at = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) % (1 << 18) * 4096;
    device.read_at(Kind::Data, at, &mut [0; 4096]).expect("read");
}

/// How long so many lanes take for [`READS`] reads each, with a charge between.
fn reads(count: usize, charge_ns: u64) -> u64 {
    let (device, clock) = disk(HostQueue::default());
    lanes::run(
        count,
        |lane| {
            for n in 0..READS {
                read(&device, n * 8 + lane as u64);
                clock.advance_ns(charge_ns);
            }
        },
        || (),
    );
    clock.now_ns()
}

#[test]
fn reads_of_several_lanes_overlap_and_repeat() {
    let one = reads(1, 0);
    for count in [2, 4] {
        let all = reads(count, 0);
        assert!(one < all && all < one * count as u64, "{count} lanes: {all} ns, one: {one} ns");
        assert_eq!(all, reads(count, 0), "a run repeats itself");
    }
}

#[test]
fn a_single_lane_is_as_fast_as_none() {
    let (device, clock) = disk(HostQueue::default());
    for n in 0..READS {
        read(&device, n * 8);
        clock.advance_ns(1000);
    }
    assert_eq!(reads(1, 1000), clock.now_ns());
}

/// There is one processor.
#[test]
fn lanes_compute_one_after_the_other() {
    const CHARGE_NS: u64 = 100_000_000;
    assert!(reads(2, CHARGE_NS) >= 2 * READS * CHARGE_NS);
    assert!(reads(2, CHARGE_NS) < 2 * READS * CHARGE_NS + reads(2, 0) / 10, "the disk works meanwhile");
}

/// The one that has the lock waits for the disk, and the other for the lock.
#[test]
fn a_lock_may_be_held_over_a_read() {
    let (device, _) = disk(HostQueue::default());
    let count = Mutex::new(Rank(0), 0);
    lanes::run(
        3,
        |lane| {
            for n in 0..20 {
                let mut count = count.lock();
                read(&device, n * 3 + lane as u64);
                *count += 1;
            }
        },
        || (),
    );
    assert_eq!(count.into_inner(), 60);
}

#[test]
fn the_conductor_acts_when_all_have_met() {
    let (device, _) = disk(HostQueue::default());
    let (done, mut met) = (AtomicUsize::new(0), Vec::new());
    let results = lanes::run(
        3,
        |lane| {
            for turn in 0..4 {
                (0..=lane).for_each(|n| read(&device, (turn * 7 + n) as u64));
                done.fetch_add(1, Relaxed);
                lanes::meet();
            }
            lane * 10
        },
        || met.push(done.load(Relaxed)),
    );
    assert_eq!((results, met), (vec![0, 10, 20], vec![3, 6, 9, 12]));
    lanes::meet();
}

/// What a lane that panics has locked is free for the others.
#[test]
#[should_panic(expected = "with the lock")]
fn a_lane_that_panics_with_a_lock_lets_others_end() {
    let (device, _) = disk(HostQueue::default());
    let count = Mutex::new(Rank(0), 0);
    lanes::run(
        2,
        |lane| {
            let mut count = count.lock();
            read(&device, lane as u64);
            *count += 1;
            assert!(lane == 1, "with the lock");
        },
        || (),
    );
}

#[test]
#[should_panic(expected = "as it was told")]
fn a_lane_that_panics_ends_the_run() {
    let (device, _) = disk(HostQueue::default());
    lanes::run(
        2,
        |lane| {
            read(&device, 1);
            assert!(lane == 0, "as it was told");
            read(&device, 2);
        },
        || (),
    );
}
