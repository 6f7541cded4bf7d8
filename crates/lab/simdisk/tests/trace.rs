//! Traces: kept as text, imported, exported, replayed.

mod common;

use arbor_base::device::{Device, Kind};
use arbor_simdisk::{HostQueue, KINDS, Model, Scheduler, Timing, Trace, TraceOp, TraceRequest, kind_name, replay};
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
    assert_eq!(essence(&Trace::from_fio(two.as_bytes()).unwrap()), expected);
    let three = "fio version 3 iolog\n0 f add\n0 f open\n0 f write 4096 512\n150 f read 0 1024\n150 f datasync 0 0\n\
                 400 f trim 8192 4096\n401 f close\n";
    assert_eq!(essence(&Trace::from_fio(three.as_bytes()).unwrap()), expected);
}

#[test]
fn fio_export_is_imported_again() {
    let trace = recorded();
    let again = Trace::from_fio(trace.to_fio("disk").as_bytes()).unwrap();
    let mut expected = essence(&trace);
    expected.sort_by_key(|e| e.0);
    expected.iter_mut().for_each(|e| e.0 = e.0 / 1000 * 1000);
    assert_eq!(essence(&again), expected);
}

#[test]
fn bad_fio_logs_are_refused_with_the_line() {
    let wrong = |text: &str| Trace::from_fio(text.as_bytes()).unwrap_err();
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
    let trace = Trace::from_blkparse(text.as_bytes()).unwrap();
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
    let wrong = |text: &str| Trace::from_blkparse(text.as_bytes()).unwrap_err();
    assert_eq!(wrong("8,0 3\n"), "line 1: it has 2 fields, too few for an event");
    assert_eq!(wrong("8,0 3 1 0.x 697 Q W 1 + 8 [a]\n"), "line 1: time is not a number: \"x00000000\"");
    assert_eq!(
        wrong("\n8,0 3 1 0.0 697 Q W 1 8 [a]\n"),
        "line 2: it should have a sector, +, and the number of sectors"
    );
    assert!(wrong("8,0 3 1 0.0 697 Q W 99999999999999999 + 8 [a]\n").contains("past the end of all devices"));
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
            let told = |r: &&TraceRequest| *name == "980pro" || r.op != TraceOp::Discard;
            prop_assert_eq!(replayed.requests.len(), trace.requests.iter().filter(told).count());
            prop_assert!(replayed.requests.iter().all(|r| r.issue_ns <= r.start_ns && r.start_ns <= r.end_ns));
        }
    }

    #[test]
    fn importers_never_panic(lines in prop::collection::vec("[ 0-9a-zA-Z+.,]{0,40}", 0..8), noise in any::<Vec<u8>>()) {
        for header in ["", "arbor trace 1\nmodel x\n", "fio version 2 iolog\n", "fio version 3 iolog\n"] {
            let mut bytes = format!("{header}{}\n", lines.join("\n")).into_bytes();
            bytes.extend(&noise);
            let _ = Trace::read_from(&bytes[..]);
            let _ = Trace::from_fio(&bytes[..]);
            let _ = Trace::from_blkparse(&bytes[..]);
        }
    }

    #[test]
    fn nearly_right_lines_never_panic(n in any::<[u64; 6]>(), action in "(Q|D|C|read|write|wait|trim|sync|log)") {
        let fio = format!("fio version 3 iolog\n{} f {action} {} {}\n", n[0], n[1], n[2]);
        let _ = Trace::from_fio(fio.as_bytes());
        let fio = format!("fio version 2 iolog\nf wait {}\nf wait {}\nf {action} {} {}\n", n[3], n[4], n[1], n[2]);
        let _ = Trace::from_fio(fio.as_bytes());
        let (time, sector) = (format!("{}.{}", n[0] >> 34, n[1] % 1_000_000_000), n[2] >> 9);
        let blk = format!("8,0 0 1 {time} 1 {action} W {sector} + {} [x]\n", n[3] >> 20);
        let _ = Trace::from_blkparse(blk.as_bytes());
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
