//! Each built-in model against the figures of its maker, or those its file says it was made from.

mod common;

use arbor_base::device::Device;
use arbor_simdisk::{HostQueue, Model, Trace};
use common::{device, random_iops, read, sequential_mb_s, write};

const MIB: u64 = 1 << 20;

struct Disk {
    name: &'static str,
    rpm: f64,
    /// Heads times sectors per track of the outer zone.
    cylinder_sectors: u64,
    single_ms: f64,
    average_ms: f64,
    full_ms: f64,
    /// Write minus read.
    settle_ms: f64,
    overhead_ms: f64,
    /// Sectors per track on the outer and inner edge, with track and cylinder skew in ms: IBM's formula for the
    /// sustained rate.
    outer: (u64, u64),
    skew_ms: (f64, f64),
    heads: u64,
}

const DISKS: [Disk; 6] = [
    Disk {
        name: "dsp3105",
        rpm: 5400.0,
        cylinder_sectors: 14 * 57,
        single_ms: 2.5,
        average_ms: 9.5,
        full_ms: 19.0,
        settle_ms: 1.5,
        overhead_ms: 1.0,
        outer: (57, 57),
        skew_ms: (1.6, 3.0),
        heads: 14,
    },
    Disk {
        name: "m2694",
        rpm: 5400.0,
        cylinder_sectors: 15 * 96,
        single_ms: 2.5,
        average_ms: 10.0,
        full_ms: 20.0,
        settle_ms: 1.5,
        overhead_ms: 1.0,
        outer: (96, 60),
        skew_ms: (1.6, 3.0),
        heads: 15,
    },
    Disk {
        name: "st39140",
        rpm: 7200.0,
        cylinder_sectors: 8 * 285,
        single_ms: 1.8,
        average_ms: 9.5,
        full_ms: 19.0,
        settle_ms: 0.8,
        overhead_ms: 0.5,
        outer: (285, 171),
        skew_ms: (1.6, 2.6),
        heads: 8,
    },
    Disk {
        name: "st34310a",
        rpm: 5400.0,
        cylinder_sectors: 2 * 396,
        single_ms: 1.5,
        average_ms: 9.0,
        full_ms: 18.0,
        settle_ms: 0.8,
        overhead_ms: 0.5,
        outer: (396, 253),
        skew_ms: (1.6, 2.6),
        heads: 2,
    },
    Disk {
        name: "fireballex",
        rpm: 5400.0,
        cylinder_sectors: 4 * 355,
        single_ms: 2.0,
        average_ms: 9.5,
        full_ms: 19.0,
        settle_ms: 0.8,
        overhead_ms: 0.5,
        outer: (355, 213),
        skew_ms: (1.6, 2.6),
        heads: 4,
    },
    Disk {
        name: "hc310",
        rpm: 7200.0,
        cylinder_sectors: 6 * 4352,
        single_ms: 0.23,
        average_ms: 7.4,
        full_ms: 15.5,
        settle_ms: 0.8,
        overhead_ms: 0.05,
        outer: (4352, 2089),
        skew_ms: (0.4, 0.4),
        heads: 6,
    },
];

fn near(what: &str, name: &str, measured: f64, expected: f64, part: f64) {
    let wrong = (measured - expected).abs() > part * expected;
    assert!(!wrong, "{name}: {what} is {measured:.3}, not {expected:.3}");
}

/// Seek times in ms of these reads or writes, done one after the other.
fn seeks_ms(model: &Model, offsets: &[u64], reading: bool) -> Vec<f64> {
    let d = device(model, HostQueue::default());
    d.set_tracing(true);
    for offset in offsets {
        let request = if reading { read(*offset, 512) } else { write(*offset, 512) };
        d.submit(vec![request]).wait_all().unwrap();
    }
    d.take_trace().requests.iter().map(|r| r.seek_ns as f64 / 1e6).collect()
}

#[test]
fn seek_times_of_disks() {
    for disk in &DISKS {
        let model = Model::named(disk.name).unwrap().with_write_cache(0);
        let last = model.capacity_bytes() - 512;
        // Each step is more than a buffer, so that nothing is a hit.
        let cylinder = disk.cylinder_sectors * 512;
        let steps: Vec<u64> = (0..40).map(|i| (20 + i) * cylinder).collect();
        let mut single = seeks_ms(&model, &steps, true).split_off(1);
        single.retain(|ms| *ms > 0.0);
        assert!(single.len() > 30);
        near("single cylinder", disk.name, single.iter().sum::<f64>() / single.len() as f64, disk.single_ms, 0.25);
        let ends = [0, last, cylinder, last - cylinder / 2];
        let full = seeks_ms(&model, &ends, true)[1..].iter().sum::<f64>() / 3.0;
        near("full stroke", disk.name, full, disk.full_ms, 0.02);
        let written = seeks_ms(&model, &ends, false)[1..].iter().sum::<f64>() / 3.0;
        near("full stroke of a write", disk.name, written, disk.full_ms + disk.settle_ms, 0.02);
    }
}

#[test]
fn average_seek_rotation_and_random_reads_of_disks() {
    for disk in &DISKS {
        let model = Model::named(disk.name).unwrap();
        let d = device(&model, HostQueue::default());
        let iops = random_iops(&d, model.capacity_bytes(), true, 1, 20_000, 7);
        let stats = d.stats();
        let average = |ns: u64| ns as f64 / stats.requests as f64 / 1e6;
        let half_turn = 30_000.0 / disk.rpm;
        // Outer tracks hold more, so random sectors are a little closer than random cylinders.
        near("average seek", disk.name, average(stats.seek_ns), disk.average_ms, 0.03);
        near("half a revolution", disk.name, average(stats.rotation_ns), half_turn, 0.02);
        let transfer_ms = 8.0 / ((disk.outer.0 + disk.outer.1) as f64 / 2.0) * 2.0 * half_turn;
        let expected = 1000.0 / (disk.average_ms + half_turn + disk.overhead_ms + transfer_ms);
        near("random reads a second", disk.name, iops, expected, 0.03);
    }
}

#[test]
fn sequential_rates_of_disks_at_both_edges() {
    for disk in &DISKS {
        let model = Model::named(disk.name).unwrap();
        let bytes = (model.capacity_bytes() / 64).min(128 * MIB) / (128 << 10) * (128 << 10);
        let inner_at = (model.capacity_bytes() - bytes) / 512 * 512;
        let turn_s = 60.0 / disk.rpm;
        let sustained = |per_track: u64| {
            let switches = disk.skew_ms.0 * (disk.heads - 1) as f64 + disk.skew_ms.1;
            (per_track * 512 * disk.heads) as f64 / 1e6 / (disk.heads as f64 * turn_s + switches / 1e3)
        };
        let outer = sequential_mb_s(&device(&model, HostQueue::default()), 0, bytes, true, 1);
        near("outer MB/s", disk.name, outer, sustained(disk.outer.0), 0.04);
        let inner = sequential_mb_s(&device(&model, HostQueue::default()), inner_at, bytes, true, 1);
        near("inner MB/s", disk.name, inner, sustained(disk.outer.1), 0.04);
    }
}

#[test]
fn hc310_sustains_what_its_data_sheet_says() {
    let model = Model::named("hc310").unwrap();
    let outer = sequential_mb_s(&device(&model, HostQueue::default()), 0, 256 * MIB, true, 1);
    near("outer MB/s", "hc310", outer, 255.0, 0.04);
}

#[test]
fn old_samsung_ssd() {
    let model = Model::named("mcaqe32g5app").unwrap();
    let d = device(&model, HostQueue::default());
    sequential_mb_s(&d, 0, 64 * MIB, false, 1);
    near("read MB/s", model.name(), sequential_mb_s(&d, 0, 64 * MIB, true, 1), 57.0, 0.1);
    near("write MB/s", model.name(), sequential_mb_s(&d, 0, 64 * MIB, false, 1), 32.0, 0.15);
}

/// Sequential MB/s of reads and writes, then random requests a second at depth 1 and deep; writes may be off by so
/// large a part.
fn ssd(name: &str, sequential: [f64; 2], one: [f64; 2], deep: [f64; 2], part: f64) {
    let model = Model::named(name).unwrap();
    let range = 256 * MIB;
    let d = device(&model, HostQueue::default());
    near("write MB/s", name, sequential_mb_s(&d, 0, 8 * range, false, 64), sequential[1], part);
    d.drain();
    near("read MB/s", name, sequential_mb_s(&d, 0, range, true, 64), sequential[0], 0.03);
    near("reads at depth 1", name, random_iops(&d, range, true, 1, 10_000, 1), one[0], 0.03);
    near("reads deep", name, random_iops(&d, range, true, 256, 50_000, 2), deep[0], 0.1);
    near("writes at depth 1", name, random_iops(&d, range, false, 1, 1_000, 3), one[1], 0.03);
    d.drain();
    near("writes deep", name, random_iops(&d, range, false, 256, 8_000, 3), deep[1], 0.15);
}

#[test]
fn sata_ssd() {
    ssd("870evo", [560.0, 530.0], [13_000.0, 36_000.0], [98_000.0, 88_000.0], 0.07);
}

#[test]
fn nvme_ssd() {
    // Here the flash limits the writes, and of its program time the maker gives an upper bound.
    ssd("980pro", [7000.0, 2000.0], [22_000.0, 60_000.0], [1_000_000.0, 1_000_000.0], 0.15);
}

#[test]
fn every_model_is_known_by_its_name_and_whole() {
    for name in Model::shipped() {
        let model = Model::named(name).unwrap();
        assert_eq!(model.name(), name);
        let d = device(&model, HostQueue::default());
        // Both ends can be read and written.
        for offset in [0, (model.capacity_bytes() - 65536) / 4096 * 4096] {
            d.submit(vec![read(offset, 65536)]).wait_all().unwrap();
            d.submit(vec![write(offset, 65536)]).wait_all().unwrap();
        }
        d.drain();
        assert_eq!(d.take_trace(), Trace::new(name), "not traced");
    }
}
