//! The driver's queue: order, merging, and that nobody starves.

mod common;

use arbor_base::device::{Buf, Device, Kind, Request};
use arbor_simdisk::{HostQueue, Merge, Model, Scheduler, SimDevice, TraceOp};
use common::{device, read, write};
use std::collections::BTreeMap;

const MIB: u64 = 1 << 20;

fn traced(queue: HostQueue) -> SimDevice {
    // One command at a time: the order is the host's alone.
    let d = device(&Model::named("st39140").unwrap().with_tags(1), queue);
    d.set_tracing(true);
    d
}

/// The MiB at which the requests were served, in the order of handing over.
fn served(d: &SimDevice) -> Vec<u64> {
    d.drain();
    let mut requests = d.take_trace().requests;
    requests.sort_by_key(|r| (r.start_ns, r.number));
    requests.iter().map(|r| r.offset / MIB).collect()
}

fn order(scheduler: Scheduler) -> Vec<u64> {
    let d = traced(HostQueue::with(scheduler));
    // The first is under way at once; the others queue after it.
    d.submit(vec![read(500 * MIB, 4096)]).wait_all().unwrap();
    let first = d.submit(vec![read(500 * MIB, 4096)]);
    let rest = d.submit([10, 900, 480, 530, 700, 20].map(|at| read(at * MIB, 4096)).to_vec());
    first.wait_all().unwrap();
    rest.wait_all().unwrap();
    served(&d).split_off(2)
}

#[test]
fn orders_of_the_schedulers() {
    assert_eq!(order(Scheduler::Clook), [530, 700, 900, 10, 20, 480]);
    assert_eq!(order(Scheduler::Fifo), [10, 900, 480, 530, 700, 20]);
    assert_eq!(order(Scheduler::Sstf), [480, 530, 700, 900, 20, 10]);
}

#[test]
fn reads_go_before_writes_but_for_fifo() {
    let run = |queue: HostQueue| {
        let d = traced(queue);
        let _ = d.submit(vec![write(0, 4096)]);
        let _ = d.submit(vec![write(100 * MIB, 4096), write(200 * MIB, 4096), read(150 * MIB, 4096)]);
        served(&d)
    };
    assert_eq!(run(HostQueue::default()), [0, 150, 200, 100]);
    assert_eq!(run(HostQueue { prefer_reads: false, ..HostQueue::default() }), [0, 100, 150, 200]);
    assert_eq!(run(HostQueue::with(Scheduler::Fifo)), [0, 100, 200, 150]);
}

#[test]
fn a_host_of_buffers_writes_each_by_itself_and_joins_those_of_a_file() {
    let buf = |ino: u64, len: usize| Buf::from(vec![1; len]).of_file(ino);
    let log = || Buf::from(vec![1; 4096]);
    // Two blocks of file 5, one of file 6, a buffer of metadata, a log in two pieces.
    let requests = || {
        vec![
            Request::write(Kind::Data, MIB, vec![buf(5, 8192), buf(5, 8192), buf(6, 2048)]),
            Request::write(Kind::Inode, MIB + 18432, vec![Buf::from(vec![1; 512]).by_itself(MIB)]),
            Request::write(Kind::Log, MIB + 18944, vec![log(), log()]),
        ]
    };
    let sizes = |merge| {
        let d = traced(HostQueue { merge, ..HostQueue::default() });
        let _ = d.submit(vec![write(0, 4096)]);
        d.submit(requests()).wait_all().unwrap();
        d.drain();
        let trace = d.take_trace();
        let mut by_request = BTreeMap::new();
        for r in trace.requests.iter().filter(|r| r.offset >= MIB) {
            *by_request.entry(r.number).or_insert(0) += r.len;
        }
        by_request.into_values().collect::<Vec<u64>>()
    };
    assert_eq!(sizes(Merge::Buffers), [16384, 2048, 512, 8192]);
    assert_eq!(sizes(Merge::Adjacent), [27136]);
}

#[test]
fn neighbours_are_merged_up_to_the_limit() {
    let d = traced(HostQueue { max_transfer_bytes: 16 << 10, ..HostQueue::default() });
    let _ = d.submit(vec![write(0, 4096)]);
    // Four merge into one of 16 KiB whatever their order, the fifth begins another, a read joins none.
    let pieces = [8, 4, 12, 16, 20].map(|k| Request::write(Kind::Log, (k << 10) + MIB, vec![vec![0; 4096].into()]));
    let _ = d.submit(pieces.into_iter().chain([read(MIB + (24 << 10), 4096)]).collect());
    d.drain();
    let stats = d.stats();
    assert_eq!((stats.submitted, stats.requests, stats.reads, stats.writes), (7, 4, 1, 3));
    assert_eq!(stats.write_bytes, 6 * 4096);
    assert_eq!((stats.kind(Kind::Log).requests, stats.kind(Kind::Log).bytes), (5, 5 * 4096));
    let trace = d.take_trace();
    let merged: Vec<_> = trace.requests.iter().filter(|r| r.offset >= MIB && r.offset < MIB + (20 << 10)).collect();
    assert_eq!(merged.len(), 4);
    assert!(merged.iter().all(|r| r.number == merged[0].number && r.end_ns == merged[0].end_ns));
    assert_eq!(merged.iter().filter(|r| r.seek_ns + r.rotation_ns > 0).count(), 1);
}

#[test]
fn large_requests_are_split() {
    let d = traced(HostQueue::default());
    d.submit(vec![read(0, 1 << 20)]).wait_all().unwrap();
    let stats = d.stats();
    assert_eq!((stats.submitted, stats.requests, stats.read_bytes), (1, 8, 1 << 20));
}

/// A reader that always has the next read queued, and one early write: how long the write waits, and the longest wait
/// of a read.
#[test]
fn neither_reads_nor_writes_starve() {
    let d = traced(HostQueue { deadline_ms: 300, ..HostQueue::default() });
    let mut reads = std::collections::VecDeque::new();
    for i in 0..4 {
        reads.push_back(d.submit(vec![read(i * 3 * MIB, 4096)]));
    }
    let _ = d.submit((0..200).map(|i| write((1000 + 7 * i) * MIB, 4096)).collect());
    for i in 4..600 {
        reads.push_back(d.submit(vec![read(i * 3 * MIB, 4096)]));
        reads.pop_front().unwrap().wait_all().unwrap();
    }
    let requests = d.take_trace().requests;
    let longest = |op: TraceOp| requests.iter().filter(|r| r.op == op).map(|r| r.end_ns - r.issue_ns).max().unwrap();
    assert_eq!(requests.iter().filter(|r| r.op == TraceOp::Write).count(), 200, "all writes were served");
    // A read waits for one batch of 16 writes and the few reads before it.
    assert!(longest(TraceOp::Read) < 600_000_000, "{}", longest(TraceOp::Read));
    let first = requests.iter().find(|r| r.op == TraceOp::Write).unwrap();
    assert!(first.start_ns - first.issue_ns > 250_000_000, "reads went first");
}

#[test]
fn nearest_first_serves_the_far_one_in_the_end() {
    let d = traced(HostQueue { deadline_ms: 200, ..HostQueue::with(Scheduler::Sstf) });
    let _ = d.submit(vec![read(0, 4096)]);
    let far = d.submit(vec![read(8000 * MIB, 4096)]);
    let mut near = std::collections::VecDeque::new();
    let mut passed = 0;
    for i in 0..200 {
        near.push_back(d.submit(vec![read((1 + i % 50) * MIB, 4096)]));
        if near.len() > 2 {
            near.pop_front().unwrap().wait_all().unwrap();
        }
        passed += u64::from(!far.is_done());
    }
    assert!((10..100).contains(&passed), "{passed}");
}
