//! A device that can be shut: later requests fail.

use super::{Claim, Device, Geometry, Kind, Request, Ticket};
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
    /// Held while a request passes the gate, until it has begun.
    passing: RwLock<()>,
}

impl Gate {
    /// The device behind this gate.
    pub fn before(&self, inner: Arc<dyn Device>) -> GatedDevice {
        GatedDevice { inner, gate: self.clone() }
    }

    /// Shuts it for good: later requests fail with EIO. Requests submitted before go on.
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

    /// A flush may take long, and changes nothing: shutting the gate does not wait for it.
    fn flush(&self) -> io::Result<()> {
        self.gate.pass(|| Ok(()))?;
        self.inner.flush()
    }

    fn recycle(&self, buffer: Vec<u8>) {
        self.inner.recycle(buffer);
    }

    fn confine(&self, range: Range<u64>) {
        self.inner.confine(range);
    }

    fn claim(&self) -> Option<Arc<Claim>> {
        self.inner.claim()
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.gate.pass(|| self.inner.set_size(size))
    }

    fn read_at(&self, kind: Kind, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.gate.pass(|| Ok(()))?;
        self.inner.read_at(kind, offset, buf)
    }

    fn write_at(&self, kind: Kind, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.gate.pass(|| self.inner.write_at(kind, offset, buf))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MemDevice, SECTOR};
    use super::*;
    use parking_lot::Mutex;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

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

    #[test]
    fn every_method_is_passed_on() {
        let names = |text: &'static str| {
            let lines = text.split("\n}\n").next().unwrap().lines();
            lines.filter_map(|line| line.strip_prefix("    fn ")?.split('(').next()).collect::<Vec<_>>()
        };
        let all = names(include_str!("mod.rs").split_once("pub trait Device: ").unwrap().1);
        assert!(all.len() >= 9, "{all:?}");
        // Those that stand before the device of every mount.
        for (source, name) in [(include_str!("gate.rs"), "GatedDevice"), (include_str!("wary.rs"), "WaryDevice")] {
            let here = names(source.split_once(&format!("impl Device for {name} {{")).unwrap().1);
            let missing: Vec<_> = all.iter().filter(|name| !here.contains(name)).collect();
            assert!(missing.is_empty(), "{name}: {missing:?}");
        }
    }

    /// Its flush says that it has begun, and hangs until it is told.
    struct Hanging {
        begun: Sender<()>,
        end: Mutex<Receiver<()>>,
    }

    impl Device for Hanging {
        fn geometry(&self) -> Geometry {
            MemDevice::new(1 << 20).geometry()
        }

        fn submit(&self, _: Vec<Request>) -> Ticket {
            Ticket::done(Vec::new())
        }

        fn flush(&self) -> io::Result<()> {
            self.begun.send(()).unwrap();
            self.end.lock().recv().map_err(io::Error::other)
        }

        fn set_size(&self, _: u64) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn it_is_shut_while_a_flush_hangs() {
        let ((begun, has_begun), (tell, end)) = (channel(), channel());
        let gate = Gate::default();
        let device = gate.before(Arc::new(Hanging { begun, end: Mutex::new(end) }));
        let flush = std::thread::spawn(move || device.flush());
        has_begun.recv().unwrap();
        let (done, is_done) = channel();
        let shut = std::thread::spawn(move || {
            gate.shut();
            let _ = done.send(());
        });
        let shut_in_time = is_done.recv_timeout(Duration::from_secs(10));
        tell.send(()).unwrap();
        flush.join().unwrap().unwrap();
        shut.join().unwrap();
        shut_in_time.expect("shutting waits for the flush");
    }
}
