//! Checks of requests that every device makes first, and batches of which some requests fail them.

use super::{Completion, Device, Geometry, Op, Pending, Request, SECTOR, Ticket};
use std::io;

/// Refuses a request that is misaligned, lies outside the device, or writes where that is not
/// allowed.
pub(super) fn check_request(geometry: &Geometry, request: &Request) -> io::Result<()> {
    let what = match request.op {
        Op::Read(_) => Access::Read,
        Op::Write(_) => Access::Write,
        Op::Discard(_) => Access::Discard,
    };
    check_range(geometry, what, request.offset, request.len())
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
    Discard,
}

impl Access {
    fn name(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::Write => "write",
            Access::Discard => "discard",
        }
    }
}

/// As [`check_request`], for a range that is not in a request.
pub(super) fn check_range(geometry: &Geometry, what: Access, offset: u64, len: u64) -> io::Result<()> {
    let name = what.name();
    if !offset.is_multiple_of(SECTOR as u64) || !len.is_multiple_of(SECTOR as u64) {
        let text = format!("{name} of {len} bytes at offset {offset} is not in units of {SECTOR} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    if offset.checked_add(len).is_none_or(|end| end > geometry.size) {
        let kind = if what == Access::Read { io::ErrorKind::UnexpectedEof } else { io::ErrorKind::InvalidInput };
        let size = geometry.size;
        let text = format!("{name} of {len} bytes at offset {offset} goes past the end of the device of {size} bytes");
        return Err(io::Error::new(kind, text));
    }
    if what != Access::Read && geometry.read_only {
        let text = format!("{name} of {len} bytes at offset {offset} on a device opened read-only");
        return Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, text));
    }
    Ok(())
}

/// Refuses a size that is not in whole sectors, and any change on a read-only device.
pub(super) fn check_new_size(geometry: &Geometry, size: u64) -> io::Result<()> {
    if geometry.read_only {
        let text = "the size of a device opened read-only cannot change";
        return Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, text));
    }
    whole_sectors(size)
}

/// Refuses a size that is not in whole sectors.
pub(super) fn whole_sectors(size: u64) -> io::Result<()> {
    if size.is_multiple_of(SECTOR as u64) {
        return Ok(());
    }
    let text = format!("device size {size} is not a multiple of {SECTOR} bytes");
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// Submits what `admit` lets through (possibly changed) and completes the rest with its errors.
pub(super) fn submit_admitted<D, F>(inner: &D, batch: Vec<Request>, mut admit: F) -> Ticket
where
    D: Device + ?Sized,
    F: FnMut(Request) -> io::Result<Request>,
{
    let mut refused = Vec::with_capacity(batch.len());
    let mut admitted = Vec::with_capacity(batch.len());
    for request in batch {
        match admit(request) {
            Ok(request) => {
                admitted.push(request);
                refused.push(None);
            }
            Err(e) => refused.push(Some(e)),
        }
    }
    let ticket = inner.submit(admitted);
    if refused.iter().all(Option::is_none) {
        return ticket;
    }
    Ticket::pending(Box::new(Merged { refused, ticket }))
}

struct Merged {
    refused: Vec<Option<io::Error>>,
    ticket: Ticket,
}

impl Pending for Merged {
    fn wait(self: Box<Self>) -> Vec<Completion> {
        let mut done = self.ticket.wait().into_iter();
        let lost = || Err(io::Error::other("the device completed fewer requests than it was given"));
        self.refused
            .into_iter()
            .map(|r| match r {
                Some(e) => Err(e),
                None => done.next().unwrap_or_else(lost),
            })
            .collect()
    }

    fn is_done(&self) -> bool {
        self.ticket.is_done()
    }
}
