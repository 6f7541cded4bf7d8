//! What the tests and examples share: a device without content, and measurements of a model.
#![allow(dead_code)]

use arbor_base::device::{Completion, Device, Geometry, Kind, Medium, Op, Request, Ticket};
use arbor_base::vfs::Time;
use arbor_simdisk::{HostQueue, Model, SimClock, SimDevice};
use std::io;
use std::sync::Arc;

/// Takes everything and gives zeros.
pub struct NullDevice(pub u64);

impl Device for NullDevice {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.0, discard_unit: 512, read_only: false, medium: Medium::Unknown }
    }
    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let done = |r: Request| -> Completion {
            if r.offset + r.len() > self.0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Ok(if let Op::Read(n) = r.op { vec![0; n] } else { Vec::new() })
        };
        Ticket::done(batch.into_iter().map(done).collect())
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
    fn set_size(&self, _size: u64) -> io::Result<()> {
        Ok(())
    }
    fn read_at(&self, _kind: Kind, _offset: u64, _buf: &mut [u8]) -> io::Result<()> {
        Ok(())
    }
    fn write_at(&self, _kind: Kind, _offset: u64, _buf: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

/// A generator of numbers from a seed (splitmix64).
pub struct Rng(pub u64);

impl Rng {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % n
    }
}

/// A whole drive of this model without content.
pub fn device(model: &Model, queue: HostQueue) -> SimDevice {
    let inner = Arc::new(NullDevice(model.capacity_bytes()));
    SimDevice::new(inner, model, queue, SimClock::new(Time::default())).unwrap()
}

pub fn write(offset: u64, len: usize) -> Request {
    Request::write(Kind::Data, offset, vec![vec![0; len].into()])
}

pub fn read(offset: u64, len: usize) -> Request {
    Request::read(Kind::Data, offset, len)
}

/// Seconds of virtual time that `work` takes.
pub fn seconds(device: &SimDevice, work: impl FnOnce()) -> f64 {
    let before = device.clock().now_ns();
    work();
    (device.clock().now_ns() - before) as f64 / 1e9
}

/// MB/s of reads or writes of 128 KiB one after the other, `bytes` from `offset`.
pub fn sequential_mb_s(device: &SimDevice, offset: u64, bytes: u64, reading: bool, tags: usize) -> f64 {
    let step = 128 << 10;
    let time = seconds(device, || {
        let mut under_way = std::collections::VecDeque::new();
        for at in (offset..offset + bytes).step_by(step) {
            let request = if reading { read(at, step) } else { write(at, step) };
            under_way.push_back(device.submit(vec![request]));
            if under_way.len() >= tags {
                under_way.pop_front().unwrap().wait_all().unwrap();
            }
        }
        under_way.into_iter().for_each(|t| t.wait_all().unwrap());
    });
    bytes as f64 / 1e6 / time
}

/// Requests a second of 4 KiB at random places below `range`, with so many under way.
pub fn random_iops(device: &SimDevice, range: u64, reading: bool, tags: usize, n: u64, seed: u64) -> f64 {
    let mut rng = Rng(seed);
    let time = seconds(device, || {
        let mut under_way = std::collections::VecDeque::new();
        for _ in 0..n {
            let at = rng.below(range / 4096) * 4096;
            let request = if reading { read(at, 4096) } else { write(at, 4096) };
            under_way.push_back(device.submit(vec![request]));
            if under_way.len() >= tags {
                under_way.pop_front().unwrap().wait_all().unwrap();
            }
        }
        under_way.into_iter().for_each(|t| t.wait_all().unwrap());
    });
    n as f64 / time
}
