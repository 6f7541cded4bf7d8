//! Measures every built-in model and prints the table of its figures.

#[path = "../tests/common/mod.rs"]
mod common;

use arbor_base::device::Device;
use arbor_simdisk::{HostQueue, Model};
use common::{device, random_iops, sequential_mb_s};

const MIB: u64 = 1 << 20;

fn main() {
    println!("model: average seek, half rotation, random 4 KiB reads/s | outer, inner MB/s read | sequential writes");
    for name in Model::shipped() {
        let model = Model::named(name).expect("it is built in");
        if model.is_disk() { disk(&model) } else { ssd(&model) }
    }
}

fn disk(model: &Model) {
    let d = device(model, HostQueue::default());
    let iops = random_iops(&d, model.capacity_bytes(), true, 1, 20_000, 1);
    let stats = d.stats();
    let per = |ns: u64| ns as f64 / stats.requests as f64 / 1e6;
    let (seek, rotation) = (per(stats.seek_ns), per(stats.rotation_ns));
    let outer = sequential_mb_s(&device(model, HostQueue::default()), 0, 64 * MIB, true, 1);
    let inner_at = (model.capacity_bytes() - 64 * MIB) / 4096 * 4096;
    let inner = sequential_mb_s(&device(model, HostQueue::default()), inner_at, 64 * MIB, true, 1);
    let writes = sequential_mb_s(&device(model, HostQueue::default()), 0, 64 * MIB, false, 1);
    let small = {
        let d = device(model, HostQueue::default());
        let n = 4096;
        let time = common::seconds(&d, || {
            for i in 0..n {
                d.submit(vec![common::read(i * 4096, 4096)]).wait_all().expect("it is there");
            }
        });
        (n * 4096) as f64 / 1e6 / time
    };
    println!(
        "{:12} seek {seek:.2} ms, rotation {rotation:.2} ms, {iops:.1} reads/s | {outer:.1}, {inner:.1} (4 KiB \
         {small:.1}) | {writes:.2}",
        model.name()
    );
}

fn ssd(model: &Model) {
    let range = 256 * MIB;
    let d = device(model, HostQueue::default());
    let first = sequential_mb_s(&d, 0, 4 * range, false, 32);
    let write = sequential_mb_s(&d, 0, 4 * range, false, 32);
    d.drain();
    let read = sequential_mb_s(&d, 0, range, true, 32);
    let one = random_iops(&d, range, true, 1, 10_000, 1);
    let many = random_iops(&d, range, true, 256, 50_000, 2);
    let write_one = random_iops(&d, range, false, 1, 2_000, 3);
    d.drain();
    let write_many = random_iops(&d, range, false, 256, 20_000, 3);
    println!(
        "{:12} {read:.0} MB/s read, write {first:.0} then {write:.0} MB/s | random reads/s {one:.0}, deep {many:.0} | \
         writes/s {write_one:.0}, deep {write_many:.0}",
        model.name()
    );
}
