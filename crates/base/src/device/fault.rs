//! A device that fails when told to, with or without reporting it.

use super::{Completion, Device, Geometry, Kind, Op, Pending, Request, SECTOR, Ticket};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// The sorts of operations that can be made to fail, and are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FaultTimes {
    /// That one operation.
    Once,
    /// That operation and the next ones of its sort, so many in all.
    Run(u64),
    /// That operation and all later ones of its sort.
    FromThenOn,
}

impl FaultTimes {
    /// Whether it strikes operation `now` if it strikes the `nth` first.
    fn strike(self, nth: u64, now: u64) -> bool {
        match self {
            FaultTimes::Once => now == nth,
            FaultTimes::Run(n) => (nth..nth.saturating_add(n)).contains(&now),
            FaultTimes::FromThenOn => now >= nth,
        }
    }
}

/// What a fault does to the operation it strikes. A fault that makes no sense for an operation
/// lets it pass. Seeds choose sectors and bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// It fails with an I/O error (EIO) and does not reach the device.
    Error,
    /// The thread that asks for it panics, inside of the call that it serves.
    Panic,
    /// Some sectors of the write arrive, and it fails.
    Torn(u64),
    /// The write fails with ENOSPC if it goes where the device reads as zeros: the host has no
    /// room for more. Others pass.
    Full,
    /// The write is carried out only when its ticket is waited for or dropped.
    Late,
    /// The flush fails, and some of the sectors written since the last one have their old bytes again: the host has
    /// given up on them. A later flush succeeds and does not bring them back.
    Forgotten(u64),
    /// One bit that the write stores, or that the read returns, is wrong.
    Flipped(u64),
    /// The write goes so many sectors further on, round the end of the device.
    Misdirected(u64),
    /// It reports success and does nothing.
    Lost,
}

/// Wraps a device, counts its operations and lets faults strike chosen ones. Clones are handles
/// of the same device, so that a test can keep one while the engine owns another.
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
    faults: Vec<(FaultOp, u64, FaultTimes, Fault)>,
    struck: u64,
    /// What the last one struck was for.
    struck_kind: Option<Kind>,
    power_is_off: bool,
    trace: Option<Vec<(FaultOp, Kind)>>,
    /// With [`Fault::Forgotten`] planned: sectors written since the last flush, as they were.
    before: Option<BTreeMap<u64, Vec<u8>>>,
}

impl Plan {
    /// Counts an operation; the fault that strikes it, if one does.
    fn admit(&mut self, op: FaultOp, kind: Kind) -> Option<Fault> {
        self.counts[op as usize] += 1;
        let now = self.counts[op as usize];
        if let Some(trace) = &mut self.trace {
            trace.push((op, kind));
        }
        if self.power_is_off {
            return Some(Fault::Error);
        }
        let struck = self.faults.iter().find(|(which, nth, times, _)| *which == op && times.strike(*nth, now));
        let fault = struck.map(|f| f.3).filter(|f| f.fits(op));
        // A full device strikes only if the write needs room.
        self.struck += u64::from(fault.is_some_and(|f| f != Fault::Full));
        if fault.is_some() {
            self.struck_kind = Some(kind);
        }
        fault
    }
}

impl Fault {
    fn fits(self, op: FaultOp) -> bool {
        match self {
            Fault::Error | Fault::Panic => true,
            Fault::Forgotten(_) => op == FaultOp::Flush,
            Fault::Flipped(_) => matches!(op, FaultOp::Read | FaultOp::Write),
            Fault::Lost => op != FaultOp::Read,
            Fault::Torn(_) | Fault::Full | Fault::Late | Fault::Misdirected(_) => op == FaultOp::Write,
        }
    }
}

impl<D: Device> FaultDevice<D> {
    /// `inner`, without faults so far.
    pub fn new(inner: D) -> FaultDevice<D> {
        FaultDevice { shared: Arc::new(Shared { inner, plan: Mutex::default() }) }
    }

    /// Makes the `nth` operation of a sort fail with an I/O error, counted from 1 since the device was made (see
    /// [`FaultDevice::count`]).
    pub fn fail(&self, op: FaultOp, nth: u64, times: FaultTimes) {
        self.inject(op, nth, times, Fault::Error);
    }

    /// As [`FaultDevice::fail`], with any fault.
    pub fn inject(&self, op: FaultOp, nth: u64, times: FaultTimes, fault: Fault) {
        let mut plan = self.shared.plan.lock();
        plan.faults.push((op, nth, times, fault));
        if matches!(fault, Fault::Forgotten(_)) {
            plan.before.get_or_insert_default();
        }
    }

    /// Operations of a sort so far, failed ones included.
    pub fn count(&self, op: FaultOp) -> u64 {
        self.shared.plan.lock().counts[op as usize]
    }

    /// Operations that a fault has struck so far.
    pub fn struck(&self) -> u64 {
        self.shared.plan.lock().struck
    }

    /// What the last operation was for that a fault has struck.
    pub fn struck_kind(&self) -> Option<Kind> {
        self.shared.plan.lock().struck_kind
    }

    /// Remembers from now on what each operation was and what for.
    pub fn record(&self) {
        self.shared.plan.lock().trace = Some(Vec::new());
    }

    /// What was remembered since [`FaultDevice::record`].
    pub fn recorded(&self) -> Vec<(FaultOp, Kind)> {
        self.shared.plan.lock().trace.clone().unwrap_or_default()
    }

    /// From now on every operation fails.
    pub fn power_off(&self) {
        self.shared.plan.lock().power_is_off = true;
    }

    /// Forgets all faults and ends a [`FaultDevice::power_off`]; the counts go on.
    pub fn heal(&self) {
        let mut plan = self.shared.plan.lock();
        plan.faults.clear();
        plan.before = None;
        plan.power_is_off = false;
    }

    /// The device behind it.
    pub fn inner(&self) -> &D {
        &self.shared.inner
    }

    fn admit(&self, op: FaultOp, kind: Kind) -> Option<Fault> {
        let fault = self.shared.plan.lock().admit(op, kind);
        assert!(fault != Some(Fault::Panic), "planted in a device: {op:?} for {kind:?}");
        fault
    }
}

impl<D: Device> Shared<D> {
    /// Remembers what a write or discard is about to change, if a flush may forget it.
    fn keep(&self, offset: u64, len: u64) {
        let mut plan = self.plan.lock();
        let Some(before) = &mut plan.before else { return };
        for at in (offset..offset.saturating_add(len)).step_by(SECTOR) {
            let mut old = vec![0; SECTOR];
            if !before.contains_key(&at) && self.inner.read_at(Kind::Other, at, &mut old).is_ok() {
                before.insert(at, old);
            }
        }
    }

    fn run(&self, request: Request) -> Completion {
        if !matches!(request.op, Op::Read(_)) {
            self.keep(request.offset, request.len());
        }
        self.inner.submit(vec![request]).wait().pop().unwrap_or_else(|| Err(eio()))
    }

    /// Carries a request out as `fault` wants it.
    fn strike(&self, fault: Fault, mut request: Request) -> Completion {
        match fault {
            Fault::Error | Fault::Panic => Err(eio()),
            Fault::Late => self.run(request),
            Fault::Lost => Ok(Vec::new()),
            Fault::Flipped(seed) if matches!(request.op, Op::Read(_)) => self.run(request).map(|mut bytes| {
                flip(&mut bytes, seed);
                bytes
            }),
            Fault::Flipped(seed) => {
                let mut bytes = written(&request);
                flip(&mut bytes, seed);
                self.run(Request::write(request.kind, request.offset, vec![bytes.into()]))
            }
            Fault::Misdirected(by) => {
                let places = (self.inner.geometry().size.saturating_sub(request.len())) / SECTOR as u64 + 1;
                request.offset = (request.offset / SECTOR as u64 + by) % places * SECTOR as u64;
                self.run(request)
            }
            Fault::Torn(seed) => {
                for (n, sector) in written(&request).chunks(SECTOR).enumerate() {
                    if chosen(seed, n as u64) {
                        let at = request.offset + (n * SECTOR) as u64;
                        let _ = self.run(Request::write(request.kind, at, vec![sector.to_vec().into()]));
                    }
                }
                Err(eio())
            }
            Fault::Full => {
                let mut old = vec![0; request.len() as usize];
                let read = self.inner.read_at(Kind::Other, request.offset, &mut old);
                if read.is_ok() && old.chunks(4096).any(|page| page.iter().all(|b| *b == 0)) {
                    self.plan.lock().struck += 1;
                    return Err(io::ErrorKind::StorageFull.into());
                }
                self.run(request)
            }
            Fault::Forgotten(_) => self.run(request),
        }
    }

    /// Puts sectors back that the failed flush should have made durable.
    fn forget(&self, seed: u64) {
        let before = self.plan.lock().before.as_mut().map(std::mem::take);
        for (at, old) in before.into_iter().flatten() {
            if chosen(seed, at / SECTOR as u64) {
                let _ = self.inner.write_at(Kind::Other, at, &old);
            }
        }
    }
}

fn written(request: &Request) -> Vec<u8> {
    match &request.op {
        Op::Write(bufs) => bufs.iter().flat_map(|b| b.bytes()).copied().collect(),
        _ => Vec::new(),
    }
}

fn flip(bytes: &mut [u8], seed: u64) {
    let bits = bytes.len() as u64 * 8;
    if bits > 0 {
        let bit = mix(seed) % bits;
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    }
}

/// Whether a sector is struck: all are with seed 0, half of them with others.
fn chosen(seed: u64, sector: u64) -> bool {
    seed == 0 || mix(seed ^ mix(sector)) & 1 == 1
}

/// The output function of splitmix64.
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl<D> Clone for FaultDevice<D> {
    fn clone(&self) -> FaultDevice<D> {
        FaultDevice { shared: Arc::clone(&self.shared) }
    }
}

/// A batch some of whose requests were struck.
struct Struck<D: Device> {
    shared: Arc<Shared<D>>,
    rest: Ticket,
    /// By place in the batch: what was done already, or a late request.
    apart: BTreeMap<usize, Result<Completion, Request>>,
    len: usize,
}

impl<D: Device> Pending for Struck<D> {
    fn wait(mut self: Box<Self>) -> Vec<Completion> {
        let mut apart = std::mem::take(&mut self.apart);
        let rest = std::mem::replace(&mut self.rest, Ticket::done(Vec::new()));
        let mut rest = rest.wait().into_iter();
        let lost = || Err(io::Error::other("the device completed fewer requests than it was given"));
        (0..self.len)
            .map(|n| match apart.remove(&n) {
                Some(Ok(done)) => done,
                Some(Err(late)) => self.shared.strike(Fault::Late, late),
                None => rest.next().unwrap_or_else(lost),
            })
            .collect()
    }

    fn is_done(&self) -> bool {
        self.rest.is_done() && self.apart.values().all(Result::is_ok)
    }
}

impl<D: Device> Drop for Struck<D> {
    fn drop(&mut self) {
        for late in std::mem::take(&mut self.apart).into_values().filter_map(Result::err) {
            let _ = self.shared.strike(Fault::Late, late);
        }
    }
}

impl<D: Device + 'static> Device for FaultDevice<D> {
    fn geometry(&self) -> Geometry {
        self.inner().geometry()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let len = batch.len();
        let (mut apart, mut rest) = (BTreeMap::new(), Vec::with_capacity(len));
        for (n, request) in batch.into_iter().enumerate() {
            let op = match request.op {
                Op::Read(_) => FaultOp::Read,
                Op::Write(_) => FaultOp::Write,
                Op::Discard(_) => FaultOp::Discard,
            };
            match self.admit(op, request.kind) {
                None => {
                    if op != FaultOp::Read {
                        self.shared.keep(request.offset, request.len());
                    }
                    rest.push(request);
                }
                Some(Fault::Late) => drop(apart.insert(n, Err(request))),
                Some(fault) => drop(apart.insert(n, Ok(self.shared.strike(fault, request)))),
            }
        }
        let rest = self.inner().submit(rest);
        if apart.is_empty() {
            return rest;
        }
        Ticket::pending(Box::new(Struck { shared: self.shared.clone(), rest, apart, len }))
    }

    fn flush(&self) -> io::Result<()> {
        match self.admit(FaultOp::Flush, Kind::Other) {
            Some(Fault::Lost) => return Ok(()),
            Some(Fault::Forgotten(seed)) => {
                self.shared.forget(seed);
                return Err(eio());
            }
            Some(_) => return Err(eio()),
            None => {}
        }
        self.inner().flush()?;
        if let Some(before) = &mut self.shared.plan.lock().before {
            before.clear();
        }
        Ok(())
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        match self.admit(FaultOp::SetSize, Kind::Other) {
            Some(Fault::Lost) => Ok(()),
            Some(_) => Err(eio()),
            None => self.inner().set_size(size),
        }
    }

    fn read_at(&self, kind: Kind, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let Some(fault) = self.admit(FaultOp::Read, kind) else { return self.inner().read_at(kind, offset, buf) };
        let bytes = self.shared.strike(fault, Request::read(kind, offset, buf.len()))?;
        buf.copy_from_slice(bytes.get(..buf.len()).ok_or_else(eio)?);
        Ok(())
    }

    fn write_at(&self, kind: Kind, offset: u64, buf: &[u8]) -> io::Result<()> {
        let Some(fault) = self.admit(FaultOp::Write, kind) else {
            self.shared.keep(offset, buf.len() as u64);
            return self.inner().write_at(kind, offset, buf);
        };
        self.shared.strike(fault, Request::write(kind, offset, vec![buf.to_vec().into()])).map(drop)
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
