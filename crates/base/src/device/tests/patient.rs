use crate::device::*;
use std::io;
use std::sync::Arc;

const SIZE: u64 = 4 << 20;

/// A device with sectors that cannot be read.
struct Scratched {
    inner: MemDevice,
    bad: Vec<u64>,
}

impl Device for Scratched {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let hits = |r: &Request| self.bad.iter().any(|b| (r.offset..r.offset + r.len()).contains(b));
        let one = |r: Request| match matches!(r.op, Op::Read(_)) && hits(&r) {
            true => Err(io::Error::other(format!("a scratch in {} bytes at {}", r.len(), r.offset))),
            false => self.inner.submit(vec![r]).wait().remove(0),
        };
        Ticket::done(batch.into_iter().map(one).collect())
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.inner.set_size(size)
    }
}

fn scratched(bad: &[u64]) -> Arc<Scratched> {
    let inner = MemDevice::new(SIZE);
    inner.write_at(Kind::Data, 0, &[7; 64 << 10]).unwrap();
    Arc::new(Scratched { inner, bad: bad.to_vec() })
}

#[test]
fn what_cannot_be_read_is_zeros_and_is_said() {
    let device = PatientDevice::new(scratched(&[512, 1024, 5120]), true);
    let mut want = vec![7; 8192];
    want[512..1536].fill(0);
    want[5120..5632].fill(0);
    let mut found = vec![1; 8192];
    device.read_at(Kind::Data, 0, &mut found).unwrap();
    assert!(found == want);
    let reads = vec![Request::read(Kind::Data, 0, 8192), Request::read(Kind::Data, 8192, 512)];
    let done: Vec<Vec<u8>> = device.submit(reads).wait().into_iter().map(Result::unwrap).collect();
    assert!(done == [want, vec![7; 512]]);
    let (first, second) = ("a scratch in 512 bytes at 512", "a scratch in 512 bytes at 5120");
    assert_eq!(device.unread(), [(512..1536, first.to_string()), (5120..5632, second.to_string())]);
    let outside = device.read_at(Kind::Data, SIZE, &mut [0; 512]).unwrap_err();
    assert_eq!((outside.kind(), device.unread().len()), (io::ErrorKind::UnexpectedEof, 2));
}

#[test]
fn without_patience_the_read_fails() {
    let device = PatientDevice::new(scratched(&[5120]), false);
    let e = device.read_at(Kind::Data, 0, &mut [0; 8192]).unwrap_err();
    assert_eq!(e.to_string(), "a scratch in 512 bytes at 5120");
    assert!(device.submit(vec![Request::read(Kind::Data, 0, 8192)]).wait_all().is_err());
    assert_eq!(device.unread(), [(5120..5632, e.to_string())]);
}

#[test]
fn patience_ends() {
    let device = PatientDevice::new(scratched(&(0..SIZE).step_by(512).collect::<Vec<_>>()), true);
    let read = |n: u64| device.read_at(Kind::Data, n * 512, &mut [0; 512]);
    assert!((0..4096).all(|n| read(n).is_ok()));
    assert!(read(4096).is_err() && read(0).is_ok());
}
