//! What commands and mounts may cost: by what they touch, not by how much an image or an archive claims to be. Memory
//! is the most that a process had at once, time that of its processor; neither depends on what else the machine does.
//! `--nocapture` shows what was used.
#![cfg(target_os = "linux")]

mod common;
mod watch;

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use watch::Watch;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Members of two archives.
const FEW: usize = 10_000;
const MANY: usize = 100_000;
/// Less time than this says nothing.
const FLOOR: Duration = Duration::from_millis(100);

/// What a program used up to its end.
#[derive(Clone, Copy, Debug)]
struct Cost {
    memory: u64,
    time: Duration,
}

impl Cost {
    fn is_within(self, budget: Cost) -> bool {
        self.memory <= budget.memory && self.time <= budget.time
    }
}

/// Runs `arbor`, which must succeed, and not for ever.
#[expect(clippy::zombie_processes, reason = "wait4 waits, and tells what was used")]
fn cost(dir: &Path, args: &[&str]) -> Cost {
    let said = tempfile::tempfile().unwrap();
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "300", env!("CARGO_BIN_EXE_arbor")]).args(args).current_dir(dir);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said.try_clone().unwrap());
    let child = command.spawn().unwrap();
    let mut status = 0;
    // SAFETY: all zeros are a value of this structure, and the kernel writes to it alone. Nobody else waits for the child.
    let used = unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        // timeout(1) waits for its child, so its account has that of the child.
        assert_eq!(libc::wait4(child.id() as i32, &raw mut status, 0, &raw mut used), child.id() as i32);
        used
    };
    assert_eq!(status, 0, "arbor {args:?}: {}", text_of(said));
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    Cost { memory: used.ru_maxrss as u64 * 1024, time: time(used.ru_utime) + time(used.ru_stime) }
}

fn text_of(mut file: File) -> String {
    use std::io::{Read, Seek};
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    text
}

/// What the server of a mount has used since it started.
fn cost_of_server(root: &Path) -> Cost {
    let root = root.canonicalize().unwrap();
    let record = arbor_fuse::mounts().into_iter().find(|r| r.mountpoint == root).expect("a record of the mount");
    let status = fs::read_to_string(format!("/proc/{}/status", record.pid)).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", record.pid)).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    let memory = peak.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024;
    Cost { memory, time: Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second()) }
}

/// What an image of this size costs, which has a few files.
fn costs_at_size(engine: &str, size: u64) -> Option<Vec<(&'static str, Cost)>> {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    if let Err(e) = File::create(dir.join("trial")).and_then(|file| file.set_len(size)) {
        println!("NOT RUN: {engine} of {} GiB: no sparse file can be so large here: {e}", size / GIB);
        return None;
    }
    fs::write(dir.join("a"), "seen").unwrap();
    fs::write(dir.join("b"), vec![7; 100_000]).unwrap();
    let size = size.to_string();
    let mut costs: Vec<_> = [
        ("mkfs", &["mkfs", "-q", "-t", engine, "-s", &size, "x.img"][..]),
        ("put", &["put", "x.img", "a", "b", "/"]),
        ("ls", &["ls", "-lR", "x.img"]),
        ("info", &["info", "x.img"]),
        ("get", &["get", "x.img", "b", "out"]),
        ("fsck", &["fsck", "x.img"]),
        ("full fsck", &["fsck", "-f", "x.img"]),
        ("map", &["map", "x.img"]),
    ]
    .map(|(name, args)| (name, cost(dir, args)))
    .into();
    assert_eq!(fs::read(dir.join("out")).unwrap(), vec![7; 100_000]);
    if common::root_can_mount() {
        let _watch = Watch::new(dir);
        fs::create_dir(dir.join("mnt")).unwrap();
        costs.push(("mount", cost(dir, &["mount", "x.img", "mnt"])));
        watch::run("ls", &[Path::new("-lR"), &dir.join("mnt")]).well();
        costs.push(("server", cost_of_server(&dir.join("mnt"))));
        cost(dir, &["umount", "mnt"]);
    }
    Some(costs)
}

/// Far above what is used, far below what a table of all that a large volume may have needs.
const SMALL: Cost = Cost { memory: 64 * MIB, time: Duration::from_secs(4) };

#[test]
fn a_large_image_costs_no_more_than_what_is_in_it() {
    for engine in arboretum::engines() {
        // ext4 has files of less than 16 TiB. mkfs of FFS writes the header of every group, which takes the host minutes.
        let largest = if engine.name() == "ffs" { 2 * 1024 * GIB } else { 15 * 1024 * GIB };
        for size in [16 * GIB, 1024 * GIB, largest] {
            for (name, cost) in costs_at_size(engine.name(), size).unwrap_or_default() {
                let what = format!("{} {} GiB {name}", engine.name(), size / GIB);
                println!("{what}: {} MiB, {} ms", cost.memory / MIB, cost.time.as_millis());
                let mut budget = SMALL;
                // Each group has a header.
                if engine.name() == "ffs" && ["mkfs", "full fsck"].contains(&name) {
                    budget.time += Duration::from_millis(8) * (size / GIB) as u32;
                }
                assert!(cost.is_within(budget), "{what}: {cost:?}");
            }
        }
    }
}

/// An archive of empty files, a thousand to a directory, each with a pax header.
fn archive(path: &Path, members: usize) {
    let mut file = BufWriter::new(File::create(path).unwrap());
    for n in 0..members {
        let record = format!("18 comment={n:06}\n");
        member(&mut file, &format!("pax/{n}"), b'x', record.as_bytes());
        member(&mut file, &format!("d{}/f{n}", n / 1000), b'0', b"");
    }
    file.write_all(&[0; 1024]).unwrap();
    file.flush().unwrap();
}

fn member(file: &mut impl Write, name: &str, kind: u8, data: &[u8]) {
    let mut header = [0u8; 512];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, b"0000644\x000000000\x000000000\x00");
    put(124, format!("{:011o}\x0000000000000\x00        ", data.len()).as_bytes());
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\x00 ").as_bytes());
    file.write_all(&header).unwrap();
    file.write_all(data).unwrap();
    file.write_all(&vec![0; data.len().wrapping_neg() % 512]).unwrap();
}

/// What it costs to unpack an archive of so many members, and to make one of them again.
fn costs_of_members(engine: &str, members: usize) -> [Cost; 2] {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    archive(&dir.join("x.tar"), members);
    cost(dir, &["mkfs", "-q", "-t", engine, "-s", "1G", "x.img"]);
    let costs = [["--import", "x.tar"], ["--export", "y.tar"]]
        .map(|[way, file]| cost(dir, &["tar", way, file, "-o", "cache=8M", "x.img"]));
    let made = fs::metadata(dir.join("y.tar")).unwrap().len();
    assert!(made >= 512 * members as u64, "{engine}: {made}");
    costs
}

#[test]
fn an_archive_costs_time_by_its_members_and_no_memory() {
    for engine in arboretum::engines() {
        let engine = engine.name();
        let [few, many] = [FEW, MANY].map(|members| costs_of_members(engine, members));
        for (way, few, many) in [("import", few[0], many[0]), ("export", few[1], many[1])] {
            println!("{engine} {way}: {few:?} {many:?}");
            let budget = Cost { memory: few.memory + 24 * MIB, time: few.time.max(FLOOR) * 3 * (MANY / FEW) as u32 };
            assert!(many.is_within(budget), "{engine} {way}: {FEW} members {few:?}, {MANY} {many:?}");
        }
    }
}

/// Requests of two traces; so many that all that are held back for their order are there.
const SOME: u64 = 100_000;
const MORE: u64 = 400_000;

/// What it costs to replay a trace of so many requests, written by somebody.
fn costs_of_requests(format: &str, requests: u64) -> Cost {
    let dir = tempfile::tempdir().unwrap();
    let mut file = BufWriter::new(File::create(dir.path().join("trace")).unwrap());
    if format == "fio" {
        writeln!(file, "fio version 3 iolog").unwrap();
    }
    for n in 0..requests {
        // Few places, so that the disk itself needs no more memory for more requests.
        let (us, block) = (n * 20_000, n * 7919 % 50_000);
        match format {
            "fio" => writeln!(file, "{us} f write {} 4096", block * 4096),
            "msr" => writeln!(file, "{},a,0,Write,{},4096,900", 128_166_372_003_061_629 + us * 10, block * 4096),
            // Nothing ever completes.
            _ => writeln!(file, "8,0 0 {n} {}.{:06} 9 Q W {} + 8 [a]", us / 1_000_000, us % 1_000_000, block * 8),
        }
        .unwrap();
    }
    file.flush().unwrap();
    cost(dir.path(), &["lab", "replay", "trace", "--disk", "st39140,870evo"])
}

#[test]
fn a_trace_costs_time_by_its_requests_and_no_memory() {
    for format in ["fio", "msr", "blkparse"] {
        let [few, many] = [SOME, MORE].map(|requests| costs_of_requests(format, requests));
        println!("{format}: {few:?} {many:?}");
        let budget = Cost { memory: few.memory + 16 * MIB, time: few.time.max(FLOOR) * 3 * (MORE / SOME) as u32 };
        assert!(many.is_within(budget), "{format}: {SOME} requests {few:?}, {MORE} {many:?}");
        assert!(many.memory < 128 * MIB, "{format}: {many:?}");
    }
}

/// How deep two trees go.
const SHALLOW: usize = 200;
const DEEP: usize = 2000;

/// A tree of one directory in the other, every name 200 bytes long, and a file of two names at every fourth level.
fn make_deep(image: &Path, engine: &str, depth: usize) {
    let volume = arboretum::Volume::options().engine(engine).format(image, 256 * MIB).unwrap();
    let mut path = "deep".to_string();
    volume.create_dir(&path).unwrap();
    for level in 0..depth {
        path = format!("{path}/{level:0200}");
        volume.create_dir(&path).unwrap();
        if level % 4 == 0 {
            let [first, second] = ["a", "b"].map(|name| format!("{path}/{}", name.repeat(200)));
            volume.write(&first, "seen").unwrap();
            volume.hard_link(&first, &second).unwrap();
        }
    }
    volume.close().unwrap();
}

/// Removes a deep tree in the end. The standard library would hold a directory open at every level.
struct Removal(PathBuf);

impl Drop for Removal {
    fn drop(&mut self) {
        let _ = Command::new("rm").arg("-rf").arg(&self.0).status();
    }
}

/// What it costs to go through a tree that is so deep.
fn costs_of_depth(engine: &str, depth: usize) -> Vec<(&'static str, Cost)> {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    make_deep(&dir.join("x.img"), engine, depth);
    let _removal = Removal(dir.join("out"));
    cost(dir, &["mkfs", "-q", "-t", engine, "-s", "256M", "y.img"]);
    let costs = [
        ("tree", &["tree", "x.img"][..]),
        ("du", &["du", "x.img"]),
        ("du -s", &["du", "-s", "x.img"]),
        ("ls", &["ls", "-lR", "x.img"]),
        ("get", &["get", "x.img", "deep", "out"]),
        ("put", &["put", "y.img", "out", "/"]),
        ("export", &["tar", "--export", "x.tar", "x.img"]),
        ("fsck", &["fsck", "-f", "x.img"]),
        ("rm", &["rm", "-r", "x.img", "deep"]),
        ("import", &["tar", "--import", "x.tar", "x.img"]),
    ]
    .map(|(name, args)| {
        let cost = cost(dir, args);
        println!("{engine} {depth} {name}: {} MiB, {} ms", cost.memory / MIB, cost.time.as_millis());
        (name, cost)
    });
    // All of it is there; a path has half the depth on average.
    assert!(fs::metadata(dir.join("x.tar")).unwrap().len() > (depth * depth / 2 * 200) as u64);
    for image in ["x.img", "y.img"] {
        let volume = arboretum::Volume::open_read_only(dir.join(image)).unwrap();
        let found = volume.walk("/").unwrap().inspect(|step| assert!(step.is_ok(), "{step:?}")).count();
        assert_eq!(found, 2 + depth + depth / 4 * 2, "{engine} {image}");
    }
    costs.into()
}

/// All paths together are 400 MiB long: none is kept at every level. Time may follow them, for most of these commands print,
/// write or look up paths, and they grow by the square of the depth.
#[test]
fn a_deep_tree_costs_memory_by_its_depth() {
    for engine in arboretum::engines() {
        let engine = engine.name();
        let [shallow, deep] = [SHALLOW, DEEP].map(|depth| costs_of_depth(engine, depth));
        for ((name, shallow), (_, deep)) in shallow.into_iter().zip(deep) {
            let budget = Cost {
                memory: shallow.memory + 24 * MIB,
                time: shallow.time.max(FLOOR) * (DEEP / SHALLOW * (DEEP / SHALLOW)) as u32,
            };
            assert!(deep.is_within(budget), "{engine} {name}: {SHALLOW} levels {shallow:?}, {DEEP} {deep:?}");
        }
    }
}
