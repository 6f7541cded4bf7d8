//! Real time for a simulated request: a mail server's mixture on each model. Run it with `--release`.

#[path = "../tests/common/mod.rs"]
mod common;

use arbor_base::device::Device;
use arbor_simdisk::{HostQueue, Model};
use common::{Rng, device, read, write};
use std::time::Instant;

fn main() {
    const REQUESTS: u64 = 200_000;
    for name in Model::shipped() {
        let model = Model::named(name).expect("it is built in");
        for (what, queued) in [("one at a time", 1), ("500 writes queued", 500), ("all queued", REQUESTS)] {
            let d = device(&model, HostQueue::default());
            let mut rng = Rng(1);
            let begin = Instant::now();
            for i in 0..REQUESTS {
                let at = rng.below(1 << 18) * 4096 % (model.capacity_bytes() - 65536) / 4096 * 4096;
                match i % 4 {
                    0 if queued < REQUESTS => d.submit(vec![read(at, 4096)]).wait_all().expect("it is there"),
                    _ if i % queued == 0 => d.submit(vec![write(at, 8192)]).wait_all().expect("it is there"),
                    _ => drop(d.submit(vec![write(at, 8192)])),
                }
            }
            d.drain();
            let us = begin.elapsed().as_secs_f64() * 1e6 / REQUESTS as f64;
            let virtual_s = d.clock().now_ns() as f64 / 1e9;
            println!("{name:14} {what:18} {us:6.2} us a request, {virtual_s:8.1} virtual seconds");
        }
    }
}
