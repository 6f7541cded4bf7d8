//! A device that fails when it is told to.

use super::check::submit_admitted;
use super::{Device, Geometry, Kind, Op, Request, Ticket};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;

/// What can be made to fail, and is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultOp {
    /// Read requests.
    Read,
    /// Write requests.
    Write,
    /// Discard requests.
    Discard,
    /// Calls of [`Device::flush`].
    Flush,
    /// Calls of [`Device::set_size`].
    SetSize,
}

/// How often a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultTimes {
    /// That one operation.
    Once,
    /// That operation and all later ones of its sort.
    FromThenOn,
}

/// Wraps a device, counts its operations and fails chosen ones with an I/O error (EIO). A failed
/// operation does not reach the device. Clones are handles of the same device, so that a test
/// can keep one while the engine owns another.
#[derive(Debug)]
pub struct FaultDevice<D> {
    shared: Arc<Shared<D>>,
}

#[derive(Debug)]
struct Shared<D> {
    inner: D,
    plan: Mutex<Plan>,
}

#[derive(Debug, Default)]
struct Plan {
    counts: [u64; 5],
    faults: Vec<(FaultOp, u64, FaultTimes)>,
    power_is_off: bool,
}

impl Plan {
    fn admit(&mut self, op: FaultOp) -> io::Result<()> {
        let count = &mut self.counts[op as usize];
        *count += 1;
        let now = *count;
        let strikes = self.faults.iter().any(|(which, nth, times)| {
            *which == op && if *times == FaultTimes::Once { now == *nth } else { now >= *nth }
        });
        if strikes || self.power_is_off { Err(eio()) } else { Ok(()) }
    }
}

impl<D: Device> FaultDevice<D> {
    /// `inner`, without faults so far.
    pub fn new(inner: D) -> FaultDevice<D> {
        FaultDevice { shared: Arc::new(Shared { inner, plan: Mutex::default() }) }
    }

    /// Lets the `nth` operation of a sort fail, counted from 1 since the device was made (see
    /// [`FaultDevice::count`]).
    pub fn fail(&self, op: FaultOp, nth: u64, times: FaultTimes) {
        self.shared.plan.lock().faults.push((op, nth, times));
    }

    /// Operations of a sort so far, failed ones included.
    pub fn count(&self, op: FaultOp) -> u64 {
        self.shared.plan.lock().counts[op as usize]
    }

    /// From now on every operation fails.
    pub fn power_off(&self) {
        self.shared.plan.lock().power_is_off = true;
    }

    /// Forgets all faults and ends a [`FaultDevice::power_off`]; the counts go on.
    pub fn heal(&self) {
        let mut plan = self.shared.plan.lock();
        plan.faults.clear();
        plan.power_is_off = false;
    }

    /// The device behind.
    pub fn inner(&self) -> &D {
        &self.shared.inner
    }

    fn admit(&self, op: FaultOp) -> io::Result<()> {
        self.shared.plan.lock().admit(op)
    }
}

impl<D> Clone for FaultDevice<D> {
    fn clone(&self) -> FaultDevice<D> {
        FaultDevice { shared: Arc::clone(&self.shared) }
    }
}

impl<D: Device> Device for FaultDevice<D> {
    fn geometry(&self) -> Geometry {
        self.inner().geometry()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        submit_admitted(self.inner(), batch, |request| {
            self.admit(match request.op {
                Op::Read(_) => FaultOp::Read,
                Op::Write(_) => FaultOp::Write,
                Op::Discard(_) => FaultOp::Discard,
            })?;
            Ok(request)
        })
    }

    fn flush(&self) -> io::Result<()> {
        self.admit(FaultOp::Flush)?;
        self.inner().flush()
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.admit(FaultOp::SetSize)?;
        self.inner().set_size(size)
    }

    fn read_at(&self, kind: Kind, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.admit(FaultOp::Read)?;
        self.inner().read_at(kind, offset, buf)
    }

    fn write_at(&self, kind: Kind, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.admit(FaultOp::Write)?;
        self.inner().write_at(kind, offset, buf)
    }
}

#[cfg(unix)]
fn eio() -> io::Error {
    rustix::io::Errno::IO.into()
}

#[cfg(not(unix))]
fn eio() -> io::Error {
    io::Error::other("input/output error (injected)")
}
