//! Traces: kept as text, imported, exported, replayed.

mod common;

use arbor_base::device::{Device, Kind};
use arbor_simdisk::{
    HostQueue, KINDS, Model, Replay, Replayed, Scheduler, Stats, Timing, Trace, TraceFormat, TraceOp, TraceReader,
    TraceRequest, TraceWriter, kind_name, replay,
};
use common::{Rng, device, read, write};
use proptest::prelude::*;

fn recorded() -> Trace {
    let d = device(&Model::named("st39140").unwrap().with_write_cache(64 << 10), HostQueue::default());
    d.set_tracing(true);
    let mut rng = Rng(3);
    let mut tickets = Vec::new();
    for i in 0..300 {
        let at = rng.below(1 << 17) * 4096;
        tickets.push(d.submit(vec![if i % 3 == 0 { read(at, 8192) } else { write(at, 4096) }]));
        if i % 7 == 0 {
            tickets.drain(..).for_each(|t| t.wait_all().unwrap());
            d.clock().advance_ns(3_000_000);
        }
        if i % 50 == 0 {
            d.flush().unwrap();
        }
    }
    d.drain();
    d.take_trace()
}

fn import(format: TraceFormat, text: &[u8]) -> Result<Trace, String> {
    Trace::import(text, format)
}

fn text(trace: &Trace) -> String {
    let mut text = Vec::new();
    trace.write_to(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn kinds_are_listed_in_the_order_of_their_declaration() {
    for (i, kind) in KINDS.iter().enumerate() {
        assert_eq!(*kind as usize, i, "{}", kind_name(*kind));
    }
}

#[test]
fn text_and_back() {
    let trace = recorded();
    assert!(trace.requests.iter().any(|r| r.op == TraceOp::Flush));
    assert_eq!(Trace::read_from(text(&trace).as_bytes()).unwrap(), trace);
    let one = Trace { model: "x".into(), requests: vec![trace.requests[0]] };
    assert!(text(&one).starts_with("arbor trace 1\nmodel x\n"));
}

#[test]
fn bad_text_is_refused_with_the_line() {
    let wrong = |text: &str| Trace::read_from(text.as_bytes()).unwrap_err();
    assert_eq!(wrong(""), "line 1: it should be \"arbor trace 1\"");
    assert_eq!(wrong("arbor trace 1\n"), "line 2: it should be \"model\" and a name");
    let line = |line: &str| wrong(&format!("arbor trace 1\nmodel x\n{line}\n"));
    assert_eq!(line("1 2 3"), "line 3: it has 3 fields, not 12");
    assert_eq!(line("0 a 2 3 0 0 0 0 log read 0 512"), "line 3: issue_ns is not a number: \"a\"");
    assert_eq!(line("0 1 2 3 0 0 0 0 logs read 0 512"), "line 3: no kind is named \"logs\"");
    assert_eq!(line("0 1 2 3 0 0 0 0 log eat 0 512"), "line 3: no operation is named \"eat\"");
    assert_eq!(line("0 5 2 3 0 0 0 0 log read 0 512"), "line 3: issue_ns, start_ns and end_ns are not in order");
    let huge = u64::MAX;
    assert!(line(&format!("0 1 2 3 0 0 0 0 log read {huge} 512")).starts_with("line 3: 512 bytes at"));
    assert!(line(&format!("0 1 2 {huge} 0 0 0 0 log read 0 512")).starts_with("line 3: end_ns is too large"));
    assert_eq!(Trace::read_from(&b"arbor trace 1\nmodel \xff\n"[..]).unwrap_err(), "line 2: it is not text");
}

fn bare(issue_us: u64, op: TraceOp, offset: u64, len: u64) -> (u64, TraceOp, u64, u64) {
    (issue_us * 1000, op, offset, len)
}

fn essence(trace: &Trace) -> Vec<(u64, TraceOp, u64, u64)> {
    trace.requests.iter().map(|r| (r.issue_ns, r.op, r.offset, r.len)).collect()
}

#[test]
fn fio_logs_of_both_versions() {
    let expected = [
        bare(0, TraceOp::Write, 4096, 512),
        bare(150, TraceOp::Read, 0, 1024),
        bare(150, TraceOp::Flush, 0, 0),
        bare(400, TraceOp::Discard, 8192, 4096),
    ];
    let two = "fio version 2 iolog\n/dev/sdb add\n/dev/sdb open\n/dev/sdb write 4096 512\n/dev/sdb wait 150 0\n\
               /dev/sdb read 0 1024\n/dev/sdb sync 0 0\n/dev/sdb wait 250\n/dev/sdb trim 8192 4096\n/dev/sdb close\n";
    assert_eq!(essence(&import(TraceFormat::Fio, two.as_bytes()).unwrap()), expected);
    let three = "fio version 3 iolog\n0 f add\n0 f open\n0 f write 4096 512\n150 f read 0 1024\n150 f datasync 0 0\n\
                 400 f trim 8192 4096\n401 f close\n";
    assert_eq!(essence(&import(TraceFormat::Fio, three.as_bytes()).unwrap()), expected);
}

#[test]
fn fio_export_is_imported_again() {
    let trace = recorded();
    let again = import(TraceFormat::Fio, trace.to_fio("disk").as_bytes()).unwrap();
    let mut expected = essence(&trace);
    expected.sort_by_key(|e| e.0);
    expected.iter_mut().for_each(|e| e.0 = e.0 / 1000 * 1000);
    assert_eq!(essence(&again), expected);
}

#[test]
fn bad_fio_logs_are_refused_with_the_line() {
    let wrong = |text: &str| import(TraceFormat::Fio, text.as_bytes()).unwrap_err();
    assert!(wrong("fio version 4 iolog\n").starts_with("line 1: it should be"));
    assert_eq!(wrong("fio version 2 iolog\nf eat 0 0\n"), "line 2: no action is named \"eat\"");
    assert_eq!(wrong("fio version 2 iolog\nf read x 0\n"), "line 2: offset is not a number: \"x\"");
    assert_eq!(wrong("fio version 3 iolog\nf read 0 0\n"), "line 2: timestamp is not a number: \"f\"");
    assert!(wrong("fio version 2 iolog\n\nf\n").starts_with("line 3: it should be a file"));
}

#[test]
fn blkparse_output() {
    let text = "  8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]\n\
                \x20 8,0    3        2     0.000001829   697  Q   W 223490 + 8 [kjournald]\n\
                \x20 8,0    3        3     0.000002000   697  Q  WS 223498 + 8 [kjournald]\n\
                \x20 8,0    3        4     0.000003000   697  M  WS 223498 + 8 [kjournald]\n\
                \x20 8,0    3        5     0.000010000   697  D  WS 223490 + 16 [kjournald]\n\
                \x20 8,0    3        6     0.000011000   697  D   R 64 + 2 [cat]\n\
                \x20 8,0    3        7     0.005000000     0  C  WS 223490 + 16 [0]\n\
                \x20 8,0    3        8     0.006000000     0  C   R 64 + 2 [0]\n\
                \x20 8,0    3        9     0.006000001     0  Q FWS [cat]\n\
                \x20 8,0    3       10     0.006000002     0  UT   N [cat] 1\n\
                CPU3 (sda):\n Reads Queued:           1,        1KiB\n";
    let trace = import(TraceFormat::Blkparse, text.as_bytes()).unwrap();
    let times: Vec<_> =
        trace.requests.iter().map(|r| (r.issue_ns, r.start_ns, r.end_ns, r.op, r.offset / 512)).collect();
    assert_eq!(
        times,
        [
            (1829, 10_000, 5_000_000, TraceOp::Write, 223_490),
            (2000, 10_000, 5_000_000, TraceOp::Write, 223_498),
            (11_000, 11_000, 6_000_000, TraceOp::Read, 64),
            (6_000_001, 6_000_001, 6_000_001, TraceOp::Flush, 0),
        ]
    );
}

#[test]
fn bad_blkparse_output_is_refused_with_the_line() {
    let wrong = |text: &str| import(TraceFormat::Blkparse, text.as_bytes()).unwrap_err();
    assert_eq!(wrong("8,0 3\n"), "line 1: it has 2 fields, too few for an event");
    assert_eq!(wrong("8,0 3 1 0.x 697 Q W 1 + 8 [a]\n"), "line 1: time is not a number: \"x00000000\"");
    assert_eq!(
        wrong("\n8,0 3 1 0.0 697 Q W 1 8 [a]\n"),
        "line 2: it should have a sector, +, and the number of sectors"
    );
    assert!(wrong("8,0 3 1 0.0 697 Q W 99999999999999999 + 8 [a]\n").contains("past the end of all devices"));
}

#[test]
fn blkparse_requests_that_are_split_or_not_complete() {
    let text = "Input file sda.blktrace.0 added\n\
                8,0 0 1 1.000000000 9 Q W 0 + 1024 [a]\n\
                8,0 0 2 1.000001000 9 D W 0 + 512 [a]\n\
                8,0 0 3 1.000002000 9 D W 512 + 512 [a]\n\
                8,0 0 4 1.000003000 9 Q R 5000 + 8 [b]\n\
                8,0 0 5 1.000004000 9 C W 0 + 512 [0]\n\
                8,0 0 6 1.000005000 9 C W 512 + 512 [0]\n\
                8,0 0 7 1.000006000 9 Q D 64 + 8 [c]\n";
    let trace = import(TraceFormat::Blkparse, text.as_bytes()).unwrap();
    let times: Vec<_> = trace.requests.iter().map(|r| (r.op, r.issue_ns % 1_000_000, r.end_ns % 1_000_000)).collect();
    assert_eq!(times, [(TraceOp::Write, 0, 5000), (TraceOp::Read, 3000, 3000), (TraceOp::Discard, 6000, 6000)]);
    // Events of one kind only: nothing completes, and memory is needed for a part of them.
    let many = |n: u64| (0..n).map(|i| format!("8,0 0 1 {i}.0 9 Q R {} + 8 [a]\n", i * 8)).collect::<String>();
    let mut reader = TraceReader::new(std::io::Cursor::new(many(70_000)), None).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().line, 1);
    assert_eq!(reader.count(), 69_999);
}

/// Lines as the README of the traces describes them.
const MSR: &str = "128166372003061629,usr,0,Read,7014609920,24576,41286\n\
                   128166372016382155,usr,0,Write,1317441536,8192,1963\n\
                   128166372013000000,usr,0,Read,2436440064,4096,0\n";

#[test]
fn lines_of_msr_cambridge() {
    const HOUR: u64 = 3_600_000_000_000;
    let trace = import(TraceFormat::Msr, MSR.as_bytes()).unwrap();
    let times: Vec<_> = trace.requests.iter().map(|r| (r.issue_ns - HOUR, r.end_ns - r.issue_ns, r.op)).collect();
    assert_eq!(
        times,
        [(0, 4_128_600, TraceOp::Read), (1_332_052_600, 196_300, TraceOp::Write), (993_837_100, 0, TraceOp::Read)]
    );
    assert_eq!((trace.requests[0].offset, trace.requests[0].len), (7_014_609_920, 24_576));
    let with_head = format!("Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n{MSR}");
    assert_eq!(import(TraceFormat::Msr, with_head.as_bytes()).unwrap(), trace);
    let wrong = |line: &str| import(TraceFormat::Msr, format!("{MSR}{line}\n").as_bytes()).unwrap_err();
    assert_eq!(wrong("1,usr,0"), "line 4: it has 3 fields, not 7");
    assert_eq!(wrong("x,usr,0,Read,0,1,1"), "line 4: Timestamp is not a number: \"x\"");
    assert_eq!(wrong("1,usr,0,Read,0,1,1"), "line 4: it was issued more than an hour before the first line");
    assert_eq!(wrong("128166372013000000,a,0,Erase,0,1,1"), "line 4: the type should be Read or Write, not \"Erase\"");
    assert!(wrong(&format!("{},a,0,Read,0,1,1", u64::MAX)).starts_with("line 4: Timestamp is too large"));
    assert!(wrong(&format!("128166372013000000,a,0,Read,{0},{0},1", u64::MAX)).contains("past the end of all devices"));
}

#[test]
fn formats_are_told_by_their_first_line() {
    let fio = "fio version 3 iolog\n0 f add\n5 f read 0 512\n";
    let blk = "\n  8,0    3        2     0.000001829   697  Q   W 223490 + 8 [kjournald]\n";
    let own = text(&recorded());
    for (text, wanted) in [
        (own.as_str(), TraceFormat::Own),
        (fio, TraceFormat::Fio),
        (blk, TraceFormat::Blkparse),
        (MSR, TraceFormat::Msr),
    ] {
        let reader = TraceReader::new(text.as_bytes(), None).unwrap();
        assert_eq!(reader.format(), wanted);
        assert_eq!(
            reader.map(|entry| entry.unwrap().request).collect::<Vec<_>>(),
            import(wanted, text.as_bytes()).unwrap().requests
        );
    }
    let wrong = |text: &str| TraceReader::new(text.as_bytes(), None).map(drop).unwrap_err();
    assert_eq!(wrong(""), "line 1: there is nothing in it");
    assert_eq!(wrong("\n \n"), "line 3: there is nothing in it");
    assert_eq!(wrong("\nhello\n"), "line 2: no trace of arbor, blkparse, fio, msr begins like this");
    assert!(wrong("fio version 9 iolog\n").starts_with("line 1: it should be \"fio version 2 iolog\""));
    assert_eq!(wrong(&"x".repeat(1 << 20)), "line 1: it is longer than 65536 bytes");
}

#[test]
fn lines_for_people_are_passed_over() {
    let trace = recorded();
    let mut written = Vec::new();
    let mut writer = TraceWriter::new(&mut written, &trace.model).unwrap();
    for request in &trace.requests {
        writer.comment("phase one\nand another line").unwrap();
        writer.request(request).unwrap();
    }
    assert_eq!(Trace::read_from(&written[..]).unwrap(), trace);
}

#[test]
fn requests_come_in_the_order_of_time() {
    let trace = recorded();
    let mut sorted = trace.requests.clone();
    sorted.sort_by_key(|r| (r.issue_ns, r.number));
    assert_ne!(sorted, trace.requests, "they stand in the order of completion");
    let written = text(&trace);
    let read = TraceReader::new(written.as_bytes(), None).unwrap().in_order();
    assert_eq!(read.map(|entry| entry.unwrap().request).collect::<Vec<_>>(), sorted);
    // What is very late is not sorted in.
    let mut late = (0..70_000).map(|i| format!("{} f read 0 512\n", i + 1)).collect::<String>();
    late += "0 f read 0 512\n";
    let log = format!("fio version 3 iolog\n{late}");
    let last = TraceReader::new(log.as_bytes(), None).unwrap().in_order().find_map(Result::err);
    let wanted = "line 70002: it was issued before one that stands more than 65536 requests above it";
    assert_eq!(last.unwrap(), wanted);
}

#[test]
fn replayed_as_recorded_on_the_same_model_it_is_the_same() {
    let d = device(&Model::named("st39140").unwrap(), HostQueue::default());
    d.set_tracing(true);
    let mut rng = Rng(8);
    for _ in 0..200 {
        d.submit(vec![write(rng.below(1 << 17) * 4096, 4096)]).wait_all().unwrap();
        d.clock().advance_ns(rng.below(9_000_000));
    }
    let trace = d.take_trace();
    let model = Model::named("st39140").unwrap();
    assert_eq!(replay(&trace, &model, HostQueue::default(), Timing::AsRecorded).unwrap(), trace);
    let fast = replay(&trace, &model, HostQueue::default(), Timing::AsFastAsPossible).unwrap();
    let end = |t: &Trace| t.requests.iter().map(|r| r.end_ns).max().unwrap();
    assert!(end(&fast) < end(&trace));
    assert!(fast.requests.windows(2).all(|w| w[0].end_ns <= w[1].issue_ns), "one waits for the other still");
    let ssd = replay(&trace, &Model::named("870evo").unwrap(), HostQueue::default(), Timing::AsFastAsPossible).unwrap();
    assert!(end(&ssd) < end(&fast) / 20);
    assert_eq!(ssd.requests.len(), 200);
}

/// Requests that wait in the queue, are merged and split, on disks with and without a write cache and an SSD: their
/// times are the same bit for bit, if the trace has all from the drive's first one on.
#[test]
fn queued_and_merged_requests_have_the_same_times_again() {
    for name in ["dsp3105", "st39140", "hc310", "870evo", "mcaqe32g5app"] {
        let model = Model::named(name).unwrap();
        let d = device(&model, HostQueue::default());
        d.set_tracing(true);
        let mut rng = Rng(5);
        for i in 0..400 {
            let at = rng.below(1 << 14) * 8192;
            let batch = (0..1 + rng.below(5)).map(|n| write(at + n * 8192, 8192)).collect();
            let ticket = d.submit(batch);
            match i % 9 {
                0 => d.submit(vec![read(at, 300 << 10)]).wait_all().unwrap(),
                1 => ticket.wait_all().unwrap(),
                2 => d.flush().unwrap(),
                3 => d.clock().advance_ns(rng.below(40_000_000)),
                _ => {}
            }
        }
        d.drain();
        let (trace, stats) = (d.take_trace(), d.stats());
        let again = replay(&trace, &model, HostQueue::default(), Timing::AsRecorded).unwrap();
        let told = trace.requests.len() as u64;
        let is_queued = trace.requests.iter().any(|r| r.start_ns > r.issue_ns) && stats.requests < told;
        assert!(is_queued || !["dsp3105", "st39140"].contains(&name), "{name}");
        assert_eq!(again, trace, "{name}");
        let replayed = streamed(&trace, &model, Timing::AsRecorded);
        // Its lines are pieces of what was submitted.
        assert_eq!(replayed.stats.submitted, told - stats.flushes, "{name}");
        assert_eq!(figures(&replayed.stats), figures(&stats), "{name}");
        assert_eq!(replayed.stats.ssd, stats.ssd, "{name}");
    }
}

/// As it is replayed from a file.
fn streamed(trace: &Trace, model: &Model, timing: Timing) -> Replayed {
    let mut replay = Replay::new(model, HostQueue::default(), timing);
    for entry in TraceReader::new(text(trace).as_bytes(), None).unwrap().in_order() {
        replay.issue(&entry.unwrap().request).unwrap();
    }
    replay.finish()
}

/// One request after the other, without thought between: a closed replay with one request under way is the same again.
/// Deeper, the disk has a choice.
#[test]
fn closed_replay_keeps_a_number_of_requests_under_way() {
    let model = Model::named("hc310").unwrap();
    let d = device(&model, HostQueue::default());
    d.set_tracing(true);
    let mut rng = Rng(11);
    for _ in 0..300 {
        d.submit(vec![read(rng.below(1 << 20) * 4096, 4096)]).wait_all().unwrap();
    }
    let (trace, stats, elapsed_ns) = (d.take_trace(), d.stats(), d.clock().now_ns());
    let closed = |depth| streamed(&trace, &model, Timing::Closed { depth });
    let one = closed(1);
    assert_eq!((one.elapsed_ns, &one.stats), (elapsed_ns, &stats));
    assert_eq!((one.answers.reads.count(), one.answers.writes.count()), (300, 0));
    assert_eq!(one.answers.all(), one.answers.reads);
    assert_eq!(closed(0), one);
    let deep = closed(32);
    assert!(deep.elapsed_ns < elapsed_ns * 2 / 3 && deep.stats.read_bytes == stats.read_bytes);
    assert!(deep.answers.reads.within_ns(500) > one.answers.reads.within_ns(500));
    assert_eq!(deep, closed(32));
}

#[test]
fn what_does_not_fit_is_refused_or_wrapped() {
    let model = Model::named("mcaqe32g5app").unwrap();
    let capacity = model.capacity_bytes();
    let request = |offset, len| TraceRequest { offset, len, op: TraceOp::Write, ..recorded().requests[0] };
    let issue = |request, wraps| {
        let mut replay = Replay::new(&model, HostQueue::default(), Timing::AsRecorded).wrapping(wraps);
        replay.issue(&request).map(|()| replay.finish().stats.write_bytes)
    };
    assert_eq!(issue(request(capacity - 1, 1), false), Ok(512));
    let past = format!("a request ends at byte {}, but mcaqe32g5app has {capacity}", capacity + 1);
    assert_eq!(issue(request(capacity, 1), false), Err(past));
    assert_eq!(issue(request(3 * capacity + 5, 8192), true), Ok(8704));
    assert_eq!(issue(request(2 * capacity - 512, 4096), true), Ok(4096));
    assert_eq!(issue(request(u64::MAX / 2, 6), true), Ok(1024));
    assert_eq!(
        issue(request(0, (1 << 30) + 1), true).unwrap_err(),
        "a request has 1073741825 bytes, more than 1073741824"
    );
}

#[test]
fn a_disk_that_does_not_keep_up_is_an_error_not_a_full_memory() {
    let mut replay = Replay::new(&Model::named("dsp3105").unwrap(), HostQueue::default(), Timing::AsRecorded);
    let bare = recorded().requests[0];
    let write =
        |i: u64| TraceRequest { issue_ns: i, offset: (i % 1000) << 20, len: 1 << 20, op: TraceOp::Write, ..bare };
    let e = (0..100_000).find_map(|i| replay.issue(&write(i)).err()).unwrap();
    assert!(e.starts_with("dsp3105 is behind by 262144 pieces of requests"), "{e}");
}

/// What the driver and the drive did.
fn figures(s: &Stats) -> [u64; 14] {
    let counts = [s.requests, s.reads, s.writes, s.flushes, s.read_bytes, s.write_bytes, s.cache_hits, s.seeks];
    let times = [s.service_ns, s.queue_ns, s.seek_ns, s.rotation_ns, s.transfer_ns, s.busy_ns];
    std::array::from_fn(|i| if i < 8 { counts[i] } else { times[i - 8] })
}

#[test]
fn replay_refuses_what_does_not_fit() {
    let mut trace = recorded();
    trace.requests[7].offset = 5 << 30;
    let e = replay(&trace, &Model::named("dsp3105").unwrap(), HostQueue::default(), Timing::AsRecorded).unwrap_err();
    assert!(e.starts_with("a request ends at byte 5368"), "{e}");
}

fn any_request() -> impl Strategy<Value = TraceRequest> {
    let times = (0u64..1 << 40, 0u64..1 << 40, 0u64..1 << 40, any::<[u32; 4]>());
    let ops = prop::sample::select(vec![TraceOp::Read, TraceOp::Write, TraceOp::Discard, TraceOp::Flush]);
    let what = (any::<u64>(), 0..KINDS.len(), ops, 0u64..1 << 20, 1u64..100_000);
    (times, what).prop_map(|((issue, queue, service, parts), (number, kind, op, sector, len))| TraceRequest {
        number,
        issue_ns: issue,
        start_ns: issue + queue,
        end_ns: issue + queue + service,
        overhead_ns: parts[0].into(),
        seek_ns: parts[1].into(),
        rotation_ns: parts[2].into(),
        transfer_ns: parts[3].into(),
        kind: KINDS[kind],
        op,
        offset: sector * 512,
        len,
    })
}

proptest! {
    #[test]
    fn any_trace_survives_text_and_replay(requests in prop::collection::vec(any_request(), 0..40), fast: bool) {
        let trace = Trace { model: "m".into(), requests };
        prop_assert_eq!(&Trace::read_from(text(&trace).as_bytes()).unwrap(), &trace);
        let timing = if fast { Timing::AsFastAsPossible } else { Timing::AsRecorded };
        let schedulers = [Scheduler::Clook, Scheduler::Fifo, Scheduler::Sstf];
        let names = ["dsp3105", "st34310a", "hc310", "mcaqe32g5app", "980pro"];
        for (name, scheduler) in names.iter().zip(schedulers.iter().cycle()) {
            let queue = HostQueue { max_transfer_bytes: 0, ..HostQueue::with(*scheduler) };
            let replayed = replay(&trace, &Model::named(name).unwrap(), queue, timing).unwrap();
            // A disk without a write cache gets no flushes.
            let told = |r: &&TraceRequest| match r.op {
                TraceOp::Discard => *name == "980pro",
                TraceOp::Flush => !["dsp3105", "mcaqe32g5app"].contains(name),
                TraceOp::Read | TraceOp::Write => true,
            };
            prop_assert_eq!(replayed.requests.len(), trace.requests.iter().filter(told).count());
            prop_assert!(replayed.requests.iter().all(|r| r.issue_ns <= r.start_ns && r.start_ns <= r.end_ns));
        }
    }

    #[test]
    fn importers_never_panic(lines in prop::collection::vec("[ 0-9a-zA-Z+.,]{0,40}", 0..8), noise in any::<Vec<u8>>()) {
        for header in ["", "arbor trace 1\nmodel x\n", "fio version 2 iolog\n", "fio version 3 iolog\n"] {
            let mut bytes = format!("{header}{}\n", lines.join("\n")).into_bytes();
            bytes.extend(&noise);
            TraceFormat::ALL.into_iter().for_each(|format| drop(import(format, &bytes)));
            drop(TraceReader::new(&bytes[..], None).map(|reader| reader.in_order().count()));
        }
    }

    #[test]
    fn nearly_right_lines_never_panic(n in any::<[u64; 6]>(), action in "(Q|D|C|read|write|wait|trim|sync|log)") {
        let msr = format!("{},a,0,Read,{},{},{}\n{},a,0,{action},1,1,1\n", n[0], n[1], n[2], n[3], n[4]);
        let _ = import(TraceFormat::Msr, msr.as_bytes());
        let fio = format!("fio version 3 iolog\n{} f {action} {} {}\n", n[0], n[1], n[2]);
        let _ = import(TraceFormat::Fio, fio.as_bytes());
        let fio = format!("fio version 2 iolog\nf wait {}\nf wait {}\nf {action} {} {}\n", n[3], n[4], n[1], n[2]);
        let _ = import(TraceFormat::Fio, fio.as_bytes());
        let (time, sector) = (format!("{}.{}", n[0] >> 34, n[1] % 1_000_000_000), n[2] >> 9);
        let blk = format!("8,0 0 1 {time} 1 {action} W {sector} + {} [x]\n", n[3] >> 20);
        let _ = import(TraceFormat::Blkparse, blk.as_bytes());
        let (times, range) = (format!("{} {} {} {}", n[0], n[1], n[2], n[3]), format!("{} {}", n[4], n[5]));
        let own = format!("arbor trace 1\nmodel x\n{times} 0 0 0 0 log read {range}\n");
        if let Ok(trace) = Trace::read_from(own.as_bytes()) {
            let _ = replay(&trace, &Model::named("dsp3105").unwrap(), HostQueue::default(), Timing::AsRecorded);
        }
    }
}

#[test]
fn kinds_reach_the_trace() {
    let d = device(&Model::named("hc310").unwrap(), HostQueue::default());
    d.set_tracing(true);
    for (i, kind) in KINDS.iter().enumerate() {
        d.write_at(*kind, i as u64 * (1 << 20), &[0; 512]).unwrap();
    }
    let trace = d.take_trace();
    assert_eq!(trace.requests.iter().map(|r| r.kind).collect::<Vec<_>>(), KINDS);
    assert_eq!(d.stats().kind(Kind::Log).requests, 1);
    d.set_tracing(false);
    d.write_at(Kind::Log, 0, &[0; 512]).unwrap();
    assert!(d.take_trace().requests.is_empty());
}
