//! A device that can be shut.

use super::{Device, Geometry, Request, Ticket};
use parking_lot::RwLock;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Gates of the devices of one volume, shut together.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<State>);

#[derive(Debug, Default)]
struct State {
    shut: AtomicBool,
    /// Held by who passes the gate, until what it asks has begun.
    passing: RwLock<()>,
}

impl Gate {
    /// The device behind this gate.
    pub fn before(&self, inner: Arc<dyn Device>) -> GatedDevice {
        GatedDevice { inner, gate: self.clone() }
    }

    /// Shuts it for good: what is asked from now on fails with EIO. What has been submitted before goes on.
    pub fn shut(&self) {
        self.0.shut.store(true, SeqCst);
        drop(self.0.passing.write());
    }

    /// Whether it is shut.
    pub fn is_shut(&self) -> bool {
        self.0.shut.load(SeqCst)
    }

    fn pass<R>(&self, f: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        let _passing = self.0.passing.read();
        if self.is_shut() { Err(io::Error::other("the volume was shut down")) } else { f() }
    }
}

/// A device behind a [`Gate`].
pub struct GatedDevice {
    inner: Arc<dyn Device>,
    gate: Gate,
}

impl Device for GatedDevice {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let len = batch.len();
        let refused = |e: io::Error| Ticket::done((0..len).map(|_| Err(io::Error::other(e.to_string()))).collect());
        self.gate.pass(|| Ok(self.inner.submit(batch))).unwrap_or_else(refused)
    }

    fn flush(&self) -> io::Result<()> {
        self.gate.pass(|| self.inner.flush())
    }

    fn recycle(&self, buffer: Vec<u8>) {
        self.inner.recycle(buffer);
    }

    fn confine(&self, range: Range<u64>) {
        self.inner.confine(range);
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.gate.pass(|| self.inner.set_size(size))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, MemDevice, SECTOR};
    use super::*;

    #[test]
    fn nothing_comes_through_when_it_is_shut() {
        let (gate, inner) = (Gate::default(), Arc::new(MemDevice::new(1 << 20)));
        let device = gate.before(inner.clone());
        device.write_at(Kind::Data, 0, &[1; SECTOR]).unwrap();
        device.flush().unwrap();
        gate.shut();
        assert!(device.write_at(Kind::Data, 0, &[2; SECTOR]).is_err());
        assert!(device.read_at(Kind::Data, 0, &mut [0; SECTOR]).is_err());
        assert!(device.flush().is_err());
        assert!(device.set_size(2 << 20).is_err());
        assert!(device.submit(vec![Request::discard(Kind::Data, 0, 4096)]).wait_all().is_err());
        let mut bytes = [0; SECTOR];
        inner.read_at(Kind::Data, 0, &mut bytes).unwrap();
        assert_eq!(bytes, [1; SECTOR]);
    }
}
