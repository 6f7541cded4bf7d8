//! The journal as a mounted volume knows it: the running transaction, and the area on the device.
//!
//! The area holds fragments with heads, copies of metadata, and two tails. `commit/journal.rs` says what is written
//! there and when; `log/replay.rs` reads it after a crash.

pub(crate) mod replay;

use crate::format::*;
use crate::planted::{Flaw, planted};
use arbor_base::cache::Name;
use arbor_base::device::{Device, Kind};
use arbor_base::layout::{Corrupt, crc_without};
use arbor_base::vfs::{Error, Result};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;
use zerocopy::{FromBytes, IntoBytes};

/// State of the journal in core.
pub(crate) struct Journal {
    /// Number of the next transaction.
    seq: u32,
    /// Where it goes, in fragments from the journal's start.
    head: u32,
    /// Buffers of the running transaction, with their bytes.
    running: FxHashMap<Name, usize>,
    running_bytes: usize,
    /// When it began, milliseconds since the mount.
    since: u64,
    /// Fragments of which a copy may be in the journal.
    logged: FxHashSet<u32>,
    /// Fragments whose copies must not be replayed.
    revoked: BTreeSet<u32>,
}

impl Journal {
    /// An empty one, whose next transaction has the number `seq`.
    pub fn new(seq: u32) -> Journal {
        Journal {
            seq,
            head: 1,
            running: FxHashMap::default(),
            running_bytes: 0,
            since: 0,
            logged: FxHashSet::default(),
            revoked: BTreeSet::new(),
        }
    }

    /// Number and place of the next transaction.
    pub fn next(&self) -> (u32, u32) {
        (self.seq, self.head)
    }

    /// Adds a buffer of so many bytes to the running transaction at `now`. Returns whether it is new there.
    pub fn join(&mut self, name: Name, len: usize, now: u64) -> bool {
        if self.running.is_empty() {
            self.since = now;
        }
        let before = self.running.insert(name, len);
        self.running_bytes = self.running_bytes - before.unwrap_or(0) + len;
        before.is_none()
    }

    pub fn leave(&mut self, name: Name) {
        self.running_bytes -= self.running.remove(&name).unwrap_or(0);
    }

    /// Revokes the copies of a freed run: they must not be replayed over its next contents.
    pub fn revoke(&mut self, frag: Frag, frags: u32) {
        if !planted(Flaw::NoRevocation) {
            self.revoked.extend((frag.0..frag.0 + frags).filter(|f| self.logged.contains(f)));
        }
    }

    pub fn has_member(&self, name: Name) -> bool {
        self.running.contains_key(&name)
    }

    pub fn members(&self) -> impl Iterator<Item = Name> {
        self.running.keys().copied()
    }

    pub fn revoked(&self) -> impl Iterator<Item = u32> {
        self.revoked.iter().copied()
    }

    pub fn has_nothing(&self) -> bool {
        self.running.is_empty() && self.revoked.is_empty()
    }

    /// When the running transaction began, if there is one.
    pub fn since(&self) -> Option<u64> {
        (!self.running.is_empty()).then_some(self.since)
    }

    pub fn running_bytes(&self) -> usize {
        self.running_bytes
    }

    /// Ends the running transaction, which holds copies of the fragments `logged` and takes `frags` fragments of the
    /// journal. Returns its buffers.
    pub fn advance(&mut self, logged: Vec<u32>, frags: u32) -> Vec<Name> {
        let members = self.running.drain().map(|r| r.0).collect();
        self.running_bytes = 0;
        self.revoked.clear();
        self.logged.extend(logged);
        self.seq = self.seq.wrapping_add(1);
        self.head += frags;
        members
    }

    /// Lets the next transaction go to the start: all metadata are in place.
    pub fn restart(&mut self) {
        self.head = 1;
        self.logged.clear();
    }

    /// Refuses a transaction that does not fit: beyond the journal lies what is not its own.
    pub fn check_room(&self, frags: u32, of: u32) -> Result<()> {
        if self.head.checked_add(frags).is_some_and(|end| end <= of) {
            return Ok(());
        }
        let head = self.head;
        let why = format!("a transaction of {frags} fragments does not fit into a journal of {of} from {head} on");
        Err(Error::Io(std::io::Error::other(why)))
    }
}

/// A fragment of the journal that begins with a head.
pub(crate) fn journal_fragment(geom: &Geom, kind: JournalKind, seq: u32, count: u32) -> Vec<u8> {
    let mut bytes = vec![0; geom.frag_size()];
    let head = JournalHeader {
        magic: JOURNAL_MAGIC.into(),
        fsid: geom.fsid.into(),
        kind: (kind as u32).into(),
        seq: seq.into(),
        count: count.into(),
        ..JournalHeader::default()
    };
    bytes[..JOURNAL_HEADER].copy_from_slice(head.as_bytes());
    bytes
}

/// Sets the checksum of a fragment with a head.
pub(crate) fn seal_journal(bytes: &mut [u8]) {
    let sum = crc_without(bytes, CRC_AT).unwrap_or(0);
    put_u32(bytes, CRC_AT, sum);
}

/// The fragments of a journal that hold its tail: the first one and, once a mount has used the journal, the last one.
pub(crate) fn tail_places(sb: &SuperBlock) -> [u32; 2] {
    [0, last_fragment(sb)]
}

/// The last fragment of a journal, which no transaction reaches.
pub(crate) fn last_fragment(sb: &SuperBlock) -> u32 {
    sb.journal_frags.get().saturating_sub(1)
}

/// The tail of a journal whose replay begins with transaction `seq` at fragment `at`.
pub(crate) fn tail_bytes(geom: &Geom, seq: u32, at: u32) -> Vec<u8> {
    let mut bytes = journal_fragment(geom, JournalKind::Tail, seq, at);
    seal_journal(&mut bytes);
    bytes
}

/// Writes both copies of the journal's tail, the first durable before the second: whatever a torn write leaves, one of
/// the two is sound. The one in the last fragment comes first: it may not exist yet.
pub(crate) fn write_tail(dev: &dyn Device, sb: &SuperBlock, geom: &Geom, seq: u32, at: u32) -> Result<()> {
    let [first, last] = tail_places(sb);
    write_tail_at(dev, sb, geom, last, (seq, at))?;
    if !planted(Flaw::TailsAtOnce) {
        dev.flush()?;
    }
    write_tail_at(dev, sb, geom, first, (seq, at))
}

/// Writes one copy of the tail.
pub(crate) fn write_tail_at(
    dev: &dyn Device,
    sb: &SuperBlock,
    geom: &Geom,
    place: u32,
    (seq, at): (u32, u32),
) -> Result<()> {
    let bytes = tail_bytes(geom, seq, at);
    Ok(dev.write_at(Kind::Log, geom.byte(Frag(sb.journal_start.get() + place)), &bytes)?)
}

/// The head of a fragment of the journal, if it is sound and of this volume.
fn decode_head(geom: &Geom, bytes: &[u8]) -> Option<JournalHeader> {
    let (h, _) = JournalHeader::read_from_prefix(bytes).ok()?;
    let ours = h.magic.get() == JOURNAL_MAGIC && h.fsid.get() == geom.fsid;
    (ours && crc_without(bytes, CRC_AT) == Some(h.crc.get())).then_some(h)
}

/// Whether this is a sound tail of the journal.
pub(crate) fn is_tail(geom: &Geom, bytes: &[u8]) -> bool {
    decode_head(geom, bytes).is_some_and(|h| h.kind.get() == JournalKind::Tail as u32)
}

/// The fragment of the journal at `at` with its head.
fn read_head(dev: &dyn Device, sb: &SuperBlock, geom: &Geom, at: u32) -> Result<Option<(JournalHeader, Vec<u8>)>> {
    if at >= sb.journal_frags.get() {
        return Ok(None);
    }
    let mut bytes = vec![0; geom.frag_size()];
    dev.read_at(Kind::Log, geom.byte(Frag(sb.journal_start.get() + at)), &mut bytes)?;
    Ok(decode_head(geom, &bytes).map(|h| (h, bytes)))
}

/// Reads again if the first read found nothing: a device may return wrong bytes once, and everything after a fragment
/// that does not count is lost.
fn twice<T>(read: impl Fn() -> Result<Option<T>>) -> Result<Option<T>> {
    read()?.map_or_else(read, |found| Ok(Some(found)))
}

/// Whether transaction `a` comes after `b`.
fn is_later(a: u32, b: u32) -> bool {
    a != b && a.wrapping_sub(b) <= u32::MAX / 2
}

/// Number of the first transaction to be replayed, and where it begins, as the newest of the tails has it; `None` if
/// they are damaged.
pub(crate) fn read_tail(dev: &dyn Device, sb: &SuperBlock, geom: &Geom) -> Result<Option<(u32, u32)>> {
    let tail = |place| {
        let head = twice(|| Ok(read_head(dev, sb, geom, place)?.filter(|(_, bytes)| is_tail(geom, bytes))))?;
        Ok::<_, Error>(head.map(|(h, _)| (h.seq.get(), h.count.get())))
    };
    // One that cannot be read is damaged, if the other one is sound.
    let (first, second) = match tail_places(sb).map(tail) {
        [Err(Error::Io(_)), Ok(Some(second))] => (None, Some(second)),
        [Ok(Some(first)), Err(Error::Io(_))] => (Some(first), None),
        [first, second] => (first?, second?),
    };
    match (first, second) {
        (Some(a), Some(b)) if is_later(b.0, a.0) => Ok(Some(b)),
        (None, Some(b)) => {
            // A program that knows only one tail leaves the other as it is.
            let next = read_head(dev, sb, geom, b.1)?;
            Ok(Some(b).filter(|b| next.is_none_or(|(h, _)| !is_later(h.seq.get(), b.0))))
        }
        (first, _) => Ok(first),
    }
}

/// The same; an error if both are damaged.
pub(crate) fn sound_tail(dev: &dyn Device, sb: &SuperBlock, geom: &Geom) -> Result<(u32, u32)> {
    let damaged = || {
        let at = geom.byte(Frag(sb.journal_start.get()));
        Corrupt::new("journal tail", "crc", at, "a wrong one", "the one of its bytes: run fsck -f").into()
    };
    read_tail(dev, sb, geom)?.ok_or_else(damaged)
}

/// A number that no transaction with remains in the journal has. What cannot be read may be one each.
pub(crate) fn unused_number(dev: &dyn Device, sb: &SuperBlock, geom: &Geom) -> u32 {
    let (mut last, mut unread) = (0, 0);
    for at in 1..sb.journal_frags.get() {
        match read_head(dev, sb, geom, at) {
            Ok(head) => last = last.max(head.map_or(0, |(h, _)| h.seq.get())),
            Err(_) => unread += 1,
        }
    }
    last.wrapping_add(unread).wrapping_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_ends_within_the_journal() {
        let journal = Journal { head: 60, ..Journal::new(1) };
        assert!(journal.check_room(40, 100).is_ok());
        assert!(journal.check_room(41, 100).is_err() && journal.check_room(u32::MAX, 100).is_err());
    }
}
