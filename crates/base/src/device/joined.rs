//! Two devices as one.

use super::check::{Access, check_range, check_request};
use super::{Completion, Device, Geometry, Kind, Pending, Request, Ticket};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// A device up to an address, and another one from there on, for an engine whose areas lie on devices of their own. A request
/// lies on one of them. A flush is one of both. Where the first one ends before that address, nothing lies between.
#[derive(Clone)]
pub struct JoinedDevice {
    first: Arc<dyn Device>,
    /// The address at which the second one begins.
    border: u64,
    second: Arc<dyn Device>,
}

impl JoinedDevice {
    /// `first`, which has to have so many bytes at least, and all of `second` from the address `border` on.
    pub fn new(first: Arc<dyn Device>, used: u64, border: u64, second: Arc<dyn Device>) -> io::Result<JoinedDevice> {
        let geometry = first.geometry();
        check_range(&Geometry { read_only: false, ..geometry }, Access::Read, 0, used)?;
        Ok(JoinedDevice { first, border, second })
    }

    /// Which device a range lies on, and where.
    fn place(&self, offset: u64, len: u64) -> io::Result<(&Arc<dyn Device>, u64)> {
        let end = offset.saturating_add(len);
        match offset.checked_sub(self.border) {
            Some(at) => Ok((&self.second, at)),
            None if end <= self.border => {
                check_range(&Geometry { read_only: false, ..self.first.geometry() }, Access::Read, offset, len)?;
                Ok((&self.first, offset))
            }
            None => {
                let border = self.border;
                let text = format!("{len} bytes at offset {offset} lie on both devices, which meet at {border}");
                Err(io::Error::new(io::ErrorKind::InvalidInput, text))
            }
        }
    }
}

/// Requests of one batch on both devices: of each whether it went to the second one, or why it went nowhere.
struct Parted {
    all: Vec<io::Result<bool>>,
    tickets: [Ticket; 2],
}

impl Pending for Parted {
    fn wait(self: Box<Self>) -> Vec<Completion> {
        let mut done = self.tickets.map(|ticket| ticket.wait().into_iter());
        let [first, second] = &mut done;
        let mut next = |on_second: bool| if on_second { second.next() } else { first.next() };
        let lost = || Err(io::Error::other("the device completed fewer requests than it was given"));
        self.all.into_iter().map(|where_| next(where_?).unwrap_or_else(lost)).collect()
    }

    fn is_done(&self) -> bool {
        self.tickets.iter().all(Ticket::is_done)
    }
}

impl Device for JoinedDevice {
    fn geometry(&self) -> Geometry {
        let (first, second) = (self.first.geometry(), self.second.geometry());
        let units = [first.discard_unit, second.discard_unit];
        Geometry {
            size: self.border.saturating_add(second.size),
            discard_unit: if units.contains(&0) { 0 } else { units[0].max(units[1]) },
            read_only: first.read_only || second.read_only,
            medium: second.medium,
        }
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let geometry = self.geometry();
        let (mut all, mut parts) = (Vec::with_capacity(batch.len()), [Vec::new(), Vec::new()]);
        for request in batch {
            let place = check_request(&geometry, &request).and_then(|()| self.place(request.offset, request.len()));
            all.push(place.map(|(device, offset)| {
                let on_second = Arc::ptr_eq(device, &self.second) && request.offset >= self.border;
                parts[usize::from(on_second)].push(Request { offset, ..request });
                on_second
            }));
        }
        let [first, second] = parts;
        let tickets = [self.first.submit(first), self.second.submit(second)];
        Ticket::pending(Box::new(Parted { all, tickets }))
    }

    fn flush(&self) -> io::Result<()> {
        self.first.flush()?;
        self.second.flush()
    }

    fn recycle(&self, buffer: Vec<u8>) {
        self.first.recycle(buffer);
    }

    fn confine(&self, range: Range<u64>) {
        self.first.confine(range.start.min(self.border)..range.end.min(self.border));
        self.second.confine(range.start.saturating_sub(self.border)..range.end.saturating_sub(self.border));
    }

    /// The second one takes what is more or less.
    fn set_size(&self, size: u64) -> io::Result<()> {
        let text = format!("two devices of which the second begins at {} cannot become {size} bytes", self.border);
        let rest = size.checked_sub(self.border).ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, text))?;
        self.second.set_size(rest)
    }

    fn read_at(&self, kind: Kind, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(&self.geometry(), Access::Read, offset, buf.len() as u64)?;
        let (device, at) = self.place(offset, buf.len() as u64)?;
        device.read_at(kind, at, buf)
    }

    fn write_at(&self, kind: Kind, offset: u64, buf: &[u8]) -> io::Result<()> {
        check_range(&self.geometry(), Access::Write, offset, buf.len() as u64)?;
        let (device, at) = self.place(offset, buf.len() as u64)?;
        device.write_at(kind, at, buf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MemDevice;

    fn joined() -> (MemDevice, MemDevice, JoinedDevice) {
        let (first, second) = (MemDevice::new(8192), MemDevice::new(4096));
        let joined = JoinedDevice::new(Arc::new(first.clone()), 6144, 6144, Arc::new(second.clone())).unwrap();
        (first, second, joined)
    }

    #[test]
    fn what_is_written_lies_on_one_of_them() {
        let (first, second, joined) = joined();
        assert_eq!(joined.geometry().size, 6144 + 4096);
        joined.write_at(Kind::Data, 5632, &[1; 512]).unwrap();
        joined.write_at(Kind::Data, 6144, &[2; 512]).unwrap();
        assert_eq!((first.to_bytes()[5632], first.to_bytes()[6144], second.to_bytes()[0]), (1, 0, 2));
        let batch = vec![
            Request::read(Kind::Data, 6144, 512),
            Request::read(Kind::Data, 5632, 512),
            Request::read(Kind::Data, 5632, 1024),
            Request::read(Kind::Data, 10_240, 512),
            Request::read(Kind::Data, 6144 + 512, 512),
        ];
        let done = joined.submit(batch).wait();
        let first_of = |n: usize| done[n].as_ref().map(|bytes: &Vec<u8>| bytes[0]).map_err(|e| e.kind());
        assert_eq!([first_of(0), first_of(1), first_of(4)], [Ok(2), Ok(1), Ok(0)]);
        assert_eq!(first_of(2), Err(io::ErrorKind::InvalidInput), "it lies on both");
        assert_eq!(first_of(3), Err(io::ErrorKind::UnexpectedEof));
    }

    #[test]
    fn the_second_one_grows() {
        let (first, second, joined) = joined();
        joined.set_size(6144 + 8192).unwrap();
        assert_eq!((first.geometry().size, second.geometry().size), (8192, 8192));
        assert!(joined.set_size(4096).is_err());
        assert!(JoinedDevice::new(Arc::new(first), 9000, 9000, Arc::new(second)).is_err());
    }

    #[test]
    fn nothing_lies_between_them() {
        let (first, second, _) = joined();
        let apart = JoinedDevice::new(Arc::new(first.clone()), 6144, 1 << 20, Arc::new(second.clone())).unwrap();
        assert_eq!(apart.geometry().size, (1 << 20) + 4096);
        apart.write_at(Kind::Data, 1 << 20, &[3; 512]).unwrap();
        assert_eq!(second.to_bytes()[0], 3);
        for at in [8192, 512 << 10, (1 << 20) - 512] {
            let kind = |done: io::Result<()>| done.map_err(|e| e.kind());
            assert_eq!(kind(apart.write_at(Kind::Data, at, &[3; 512])), Err(io::ErrorKind::UnexpectedEof), "{at}");
            let done = apart.submit(vec![Request::read(Kind::Data, at, 512)]).wait();
            assert_eq!(done[0].as_ref().map(|_| ()).map_err(|e| e.kind()), Err(io::ErrorKind::UnexpectedEof), "{at}");
        }
        // The first one may grow into the addresses.
        first.set_size(16_384).unwrap();
        apart.write_at(Kind::Data, 8192, &[4; 512]).unwrap();
        assert_eq!(first.to_bytes()[8192], 4);
    }
}
