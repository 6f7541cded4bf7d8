//! Workloads on yFS in memory and through system calls.

use arbor_base::device::MemDevice;
use arbor_base::vfs::{Devices, Engine, FileSystem, FormatOptions, ManualClock, MountOptions, Result, Time};
use arbor_bench::calls::SystemCalls;
use arbor_bench::ground::{Event, Ground, Outcome, run};
use arbor_bench::library::{Charge, Leave, Library};
use arbor_bench::op::{Dir, Listed, Op, Program};
use arbor_bench::workload::aging::Aging;
use arbor_bench::workload::archive::Archive;
use arbor_bench::workload::banded::{BANDED, Banded, Course, SMALL};
use arbor_bench::workload::file_size::FileSize;
use arbor_bench::workload::overwrite::{Access, Overwrite};
use arbor_bench::workload::postmark::PostMark;
use arbor_bench::workload::primitive::{BigFile, Ops, SmallFiles, read_everything};
use arbor_bench::workload::source_tree::SourceTree;
use arbor_bench::workload::tpcb::TpcB;
use arbor_bench::workload::turnover::{Purpose, Turnover};
use arbor_yfs::Yfs;
use std::sync::Arc;

fn quiet(_: Event) {}

fn small_postmark() -> PostMark {
    PostMark { files: 60, transactions: 200, ..PostMark::default() }
}

fn small_tree() -> SourceTree {
    SourceTree {
        dirs: 30,
        sources: 40,
        headers: 30,
        others: 10,
        kernel_objects: 20,
        modules: 5,
        module_objects: 2,
        object_headers: 4,
        build_ms: 30,
    }
}

/// Small ones of every workload, without and with an order that the file system chooses.
fn programs(seed: u64) -> Vec<(&'static str, Box<dyn Program>)> {
    let aging = Aging { operations: 400, capacity_bytes: 30 << 20, largest_bytes: 2 << 20, ..Aging::default() };
    let tpcb =
        TpcB { account_bytes: 4 << 20, cache_bytes: 1 << 20, warm_up: 300, transactions: 500, ..TpcB::default() };
    let overwrite = Overwrite {
        data_bytes: 1 << 20,
        piece_bytes: 4096,
        is_files: true,
        access: Access::HOT_AND_COLD,
        warm_up_bytes: 1 << 20,
        measured_bytes: 1 << 20,
        idle_ns: 0,
    };
    let (capacity_bytes, probe_bytes) = (8 << 20, 1 << 20);
    let turnover = |purpose| Turnover { purpose, capacity_bytes, probe_bytes, days: 5, ..Turnover::default() };
    let many = SmallFiles { files: 200, file_bytes: 1000, files_per_dir: 50, fsync: true };
    vec![
        ("postmark", small_postmark().program()),
        ("archive", Archive::divided_by(100).program(seed)),
        ("source tree", small_tree().program(seed, &[])),
        ("aging", aging.program(seed)),
        ("big file", BigFile { file_bytes: 2 << 20, io_bytes: 8192 }.program(seed)),
        ("small files", many.program()),
        ("file size", FileSize { file_bytes: 9000, data_bytes: 2_000_000, least_files: 10 }.program()),
        ("TPC-B", tpcb.program(seed)),
        ("overwriting", overwrite.program(seed)),
        ("news", turnover(Purpose::News).program(seed)),
        ("home", turnover(Purpose::Home).program(seed)),
        ("software", turnover(Purpose::Software).program(seed)),
    ]
}

/// A new volume in memory, and a run of each program on it.
fn on_yfs(programs: &mut [&mut dyn Program], charge: Charge) -> (Vec<Outcome>, Time) {
    let device = MemDevice::new(512 << 20);
    let clock = Arc::new(ManualClock::new(Time { secs: 1_000_000_000, nanos: 0 }));
    Yfs.format(Devices::single(device.clone()), &FormatOptions::default()).unwrap();
    let mount = || Yfs.mount(Devices::single(device.clone()), &MountOptions::default(), clock.clone());
    let remount = |fs: Arc<dyn FileSystem>, leave: Leave| -> Result<Arc<dyn FileSystem>> {
        if leave == Leave::Unmount {
            fs.unmount()?;
        }
        drop(fs);
        mount()
    };
    let mut ground = Library::new(mount().unwrap(), clock.clone(), charge, Box::new(remount));
    let outcomes = all(programs, &mut ground);
    ground.into_inner().unmount().unwrap();
    let mut checked = |_, _, _: &str| {};
    let report = Yfs.check(Devices::single(device.clone()), &Default::default(), &mut checked).unwrap();
    assert!(report.issues.is_empty(), "{:?}", report.issues);
    (outcomes, arbor_base::vfs::Clock::now(&*clock))
}

fn all(programs: &mut [&mut dyn Program], ground: &mut dyn Ground) -> Vec<Outcome> {
    programs.iter_mut().map(|p| run(&mut **p, ground, &mut quiet).unwrap()).collect()
}

fn in_a_directory(programs: &mut [&mut dyn Program]) -> Vec<Outcome> {
    let dir = tempfile::tempdir().unwrap();
    all(programs, &mut SystemCalls::new(dir.path(), Box::new(|| Ok(()))))
}

/// Both carry out the same operations, read the same bytes and leave the same tree behind.
#[test]
fn both_grounds_do_the_same() {
    for ((name, mut one), (_, mut other)) in programs(3).into_iter().zip(programs(3)) {
        let (library, _) = on_yfs(&mut [&mut *one, &mut *read_everything()], Charge::default());
        let calls = in_a_directory(&mut [&mut *other, &mut *read_everything()]);
        assert_eq!(library[0].phases, calls[0].phases, "{name}");
        assert_eq!(library[0].digest.unordered, calls[0].digest.unordered, "{name}");
        assert_eq!(library[0].digest.content, calls[0].digest.content, "{name}");
        // rm follows the order of the file system.
        assert_eq!(library[0].digest.ordered == calls[0].digest.ordered, name != "archive", "{name}");
        assert_eq!(library[1], calls[1], "{name}");
    }
}

#[test]
fn a_seed_gives_one_run() {
    for ((name, mut one), (_, mut other)) in programs(5).into_iter().zip(programs(5)) {
        assert_eq!(
            on_yfs(&mut [&mut *one], Charge::default()),
            on_yfs(&mut [&mut *other], Charge::default()),
            "{name}"
        );
    }
    let digests = |seed| programs(seed).into_iter().map(|(name, mut p)| (name, digest(&mut *p))).collect::<Vec<_>>();
    for ((name, one), (_, other)) in digests(5).into_iter().zip(digests(6)) {
        assert_eq!(one == other, ["postmark", "small files", "file size"].contains(&name), "{name}");
    }
}

/// Of a program that is given nothing to see.
fn digest(program: &mut dyn Program) -> u64 {
    let (mut ops, mut digest) = (Vec::new(), arbor_bench::op::Digest::default());
    while program.step(&mut ops) {
        ops.drain(..).for_each(|op| digest.op(&op.to_string()));
    }
    digest.ordered
}

#[test]
fn postmark_counts() {
    let (outcomes, _) = on_yfs(&mut [&mut *small_postmark().program()], Charge::default());
    let phase = |name| *outcomes[0].phase(name).unwrap();
    let (create, mixed, delete) = (phase("create"), phase("transactions"), phase("delete"));
    assert_eq!((create.files_made, create.files_removed, create.calls), (60, 0, 180));
    assert!(create.written_bytes >= 60 * 500 && create.written_bytes < 60 * 10_000);
    // Each of 200 transactions reads or appends, and makes or removes; a file that is full is not appended to.
    assert_eq!(mixed.files_made + mixed.files_removed, 200);
    assert!((150..=200).contains(&mixed.files_opened));
    assert_eq!(delete.files_removed, create.files_made + mixed.files_made - mixed.files_removed);
}

#[test]
fn postmark_without_buffering_and_with_directories() {
    let locations = vec![("a".to_string(), 1), ("b".to_string(), 3)];
    let spec = PostMark { buffering: false, subdirectories: 4, locations, ..small_postmark() };
    let (outcomes, _) = on_yfs(&mut [&mut *spec.program()], Charge::default());
    let setup = outcomes[0].phase("setup").unwrap();
    assert_eq!((setup.dirs_made, outcomes[0].phase("cleanup").unwrap().dirs_removed), (10, 8));
    let create = outcomes[0].phase("create").unwrap();
    // Open and close, and a write for each 512 bytes.
    assert!(create.calls > 120 + create.written_bytes / 512);
}

/// The operations with the papers' parameters, for ever and on every platform.
#[test]
fn workloads_have_these_digests() {
    let digests = [
        digest(&mut *PostMark::default().program()),
        digest(&mut *Archive::default().program(1)),
        digest(&mut *SourceTree::default().program(1, &[])),
        digest(&mut *Aging::default().program(1)),
        digest(&mut *FileSize::new(1024).program()),
        digest(&mut *TpcB::default().program(1)),
        digest(&mut *Turnover::default().program(1)),
    ];
    let wanted = [
        16_019_397_835_675_639_992,
        15_860_453_790_425_075_991,
        827_919_482_493_975_023,
        4_333_995_527_569_470_741,
        13_086_784_514_801_439_991,
        12_147_896_108_651_515_773,
        13_689_308_423_853_364_806,
    ];
    assert_eq!(digests, wanted);
}

/// The paper's data, or ten files; nothing stays, so that the next size finds an empty volume.
#[test]
fn file_sizes_have_their_files_and_leave_nothing() {
    assert_eq!(FileSize::new(1 << 10).files(), 32_768);
    assert_eq!((FileSize::new(4 << 20).files(), FileSize::new(16 << 20).files()), (10, 10));
    assert_eq!(FileSize::new(16 << 20).divided_by(4).files(), 3);
    let spec = FileSize { file_bytes: 5000, data_bytes: 1_050_000, least_files: 10 };
    let mut two = [spec.program(), spec.program()];
    let [one, other] = &mut two;
    let (outcomes, _) = on_yfs(&mut [&mut **one, &mut **other, &mut *read_everything()], Charge::default());
    let phase = |name| *outcomes[1].phase(name).unwrap();
    assert_eq!((phase("create").files_made, phase("create").dirs_made), (210, 3));
    assert_eq!((phase("create").written_bytes, phase("read").read_bytes), (1_050_000, 1_050_000));
    assert_eq!((phase("write").files_opened, phase("write").written_bytes), (210, 1_050_000));
    assert_eq!((phase("delete").files_removed, phase("cleanup").dirs_removed), (210, 3));
    assert_eq!(outcomes[2].phases[0].counts.ops, 1);
}

#[test]
fn archive_leaves_nothing() {
    let mut program = Archive::divided_by(50).program(1);
    let (outcomes, _) = on_yfs(&mut [&mut *program, &mut *read_everything()], Charge::default());
    let (extract, remove) = (outcomes[0].phase("extract").unwrap(), outcomes[0].phase("remove").unwrap());
    assert_eq!((extract.files_made, extract.dirs_made), (remove.files_removed, remove.dirs_removed));
    assert_eq!(outcomes[1].phases[0].counts.ops, 1);
}

#[test]
fn transactions_are_counted() {
    let spec = TpcB { account_bytes: 1 << 20, warm_up: 20, transactions: 70, ..TpcB::default() };
    let (outcomes, _) = on_yfs(&mut [&mut *spec.program(1)], Charge::default());
    let of = |phase| outcomes[0].phase(phase).unwrap().transactions;
    assert_eq!(TpcB::PHASES.map(of), [0, 20, 70]);
}

#[test]
fn charges_and_thinking_move_the_clock() {
    let spec = SmallFiles { files: 10, file_bytes: 2048, files_per_dir: 10, fsync: false };
    let charge = Charge { call_ns: 5_000_000, kib_ns: 1_000_000, compare_ns: 0, ..Charge::default() };
    let (outcomes, end) = on_yfs(&mut [&mut *spec.program()], charge);
    let calls: u64 = outcomes[0].phases.iter().map(|p| p.counts.calls).sum();
    let kib: u64 = outcomes[0].phases.iter().map(|p| (p.counts.read_bytes + p.counts.written_bytes) / 1024).sum();
    assert_eq!(kib, 40);
    let begin = Time { secs: 1_000_000_000, nanos: 0 };
    assert_eq!(begin.ms_until(end), calls * 5 + kib);

    let ops = vec![Op::Think { ns: 12_000_000_000 }];
    let (_, end) = on_yfs(&mut [&mut arbor_bench::workload::primitive::Ops::new(ops)], Charge::default());
    assert_eq!(begin.ms_until(end), 12_000);
}

/// Files made and removed, and bytes read and written, of each phase.
fn work(outcome: &Outcome) -> Vec<(&str, [u64; 5])> {
    let one = |p: &arbor_bench::ground::Phase| {
        let c = p.counts;
        (p.name, [c.files_made, c.dirs_made, c.files_removed, c.read_bytes, c.written_bytes])
    };
    outcome.phases.iter().map(|p| (p.name, one(p).1)).collect()
}

/// Copies, walks and removals follow the order of the file system, but do the same work on all.
#[test]
fn tours_do_the_same_work_everywhere() {
    for course in [Course::Banded, Course::Alone, Course::ByThree] {
        let set = Banded::new(BANDED, 10, course).divided_by(100);
        let run = || [set.program(1), read_everything()];
        let [mut one, mut after] = run();
        let (library, _) = on_yfs(&mut [&mut *one, &mut *after], Charge::default());
        let [mut other, mut after] = run();
        let calls = in_a_directory(&mut [&mut *other, &mut *after]);
        assert_eq!(work(&library[0]), work(&calls[0]), "{course:?}");
        assert_eq!(library[1], calls[1], "{course:?}");
    }
}

#[test]
fn a_set_is_copied_copied_beside_itself_and_removed() {
    let set = Banded::new(SMALL, 100, Course::Banded).divided_by(100);
    let (files, bytes) = (160, set.sizes(1).iter().sum::<u64>());
    let (outcomes, _) = on_yfs(&mut [&mut *set.program(1)], Charge::default());
    let work = work(&outcomes[0]);
    let phase = |name: &str| work.iter().find(|(n, _)| *n == name).unwrap().1;
    // Two files in each leaf of three levels: 80 of 100 leaves are needed.
    let dirs = 1 + 8 + 80;
    assert_eq!(phase("create"), [files, dirs, 0, 0, bytes]);
    assert_eq!(phase("copy"), [files, dirs, 0, bytes, bytes]);
    assert_eq!(phase("scan"), [0, 0, 0, 2 * bytes, 0]);
    assert_eq!(phase("interleaved copy"), [2 * files, 0, 0, 2 * bytes, 2 * bytes]);
    assert_eq!(phase("remove"), [0, 0, 4 * files, 0, 0]);
    let looked = |name: &str| outcomes[0].phase(name).unwrap().calls;
    // Each file is looked at, and each directory of the set and its copy is opened, read to its end and closed.
    let (du, objects) = (looked("du"), 4 * files + 2 * dirs);
    assert!(du > objects && du < 3 * objects, "{du} calls for {objects} objects");
}

/// What was synced is there after a power cut, and numbers of directories go on to hold.
#[test]
fn a_power_cut_keeps_what_was_synced() {
    let file = |name: &str| Op::Create { dir: Dir(1), name: name.into() };
    let write = Op::Write { offset: 0, len: 5000, io: 4096, tag: 1 };
    let list = Op::List { dir: Dir(1) };
    let mkdir = Op::Mkdir { parent: Dir::ROOT, name: "d".into(), dir: Dir(1) };
    let ops = vec![mkdir, file("kept"), write, Op::Close, Op::Sync, file("lost"), Op::Close, Op::PowerCut, list];
    struct Listing(Ops, Vec<String>);
    impl Program for Listing {
        fn step(&mut self, out: &mut Vec<Op>) -> bool {
            self.0.step(out)
        }
        fn listed(&mut self, names: &[Listed]) {
            self.1 = names.iter().map(|n| n.name.clone()).collect();
        }
        fn progress(&self) -> (u64, u64) {
            self.0.progress()
        }
    }
    let mut program = Listing(Ops::new(ops), Vec::new());
    on_yfs(&mut [&mut program], Charge::default());
    assert_eq!(program.1, ["kept"]);
    let refused = run(&mut Ops::new(vec![Op::PowerCut]), &mut SystemCalls::new("/", Box::new(|| Ok(()))), &mut quiet);
    assert!(refused.unwrap_err().to_string().starts_with("operation 0, power cut: "));
}
