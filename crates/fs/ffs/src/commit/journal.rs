//! The journal (as ext3's): compound transactions of whole metadata buffers.
//!
//! Buffers of the running transaction are pinned. A commit writes data, then one batch of descriptors, copies and
//! the commit fragment, all of which carry checksums: a transaction of which a part is missing is none. After a
//! flush its buffers may go to their places; when the journal is half full all of them do, and it begins
//! again at its start (a checkpoint).

use super::*;
use arbor_base::device::Kind;
use arbor_kit::calls::State as _;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

pub(super) struct Journal {
    /// Number of the next transaction.
    seq: u32,
    /// Where it goes, in fragments from the journal's start.
    head: u32,
    /// Buffers of the running transaction, with their bytes.
    running: FxHashMap<Name, usize>,
    running_bytes: usize,
    /// When it began, milliseconds since the mount.
    since: u64,
    /// Places of which a copy may be in the journal.
    logged: FxHashSet<u32>,
    /// Places whose copies count no more.
    revoked: BTreeSet<u32>,
}

impl Journal {
    /// What lies behind the journal is not its own: a transaction that does not fit is not written at all.
    fn check_room(&self, frags: u32, of: u32) -> Result<()> {
        if self.head.checked_add(frags).is_some_and(|end| end <= of) {
            return Ok(());
        }
        let head = self.head;
        let why = format!("a transaction of {frags} fragments does not fit into a journal of {of} from {head} on");
        Err(Error::Io(std::io::Error::other(why)))
    }
}

impl Core {
    /// At the mount: the journal is empty. A new number every time: what a torn transaction has left in the journal
    /// must not make a new one whole.
    pub fn begin_journal(&mut self) -> Result<()> {
        if self.keep.mode != Keeping::Journal {
            return Ok(());
        }
        let (last, _) = crate::recover::sound_tail(&*self.dev, &self.sb, &self.geom)?;
        let seq = if planted(Flaw::NumbersAgain) { last } else { last.wrapping_add(1) };
        crate::recover::write_tail(&*self.dev, &self.sb, &self.geom, seq, 1)?;
        self.keep.journal = Some(Journal {
            seq,
            head: 1,
            running: FxHashMap::default(),
            running_bytes: 0,
            since: 0,
            logged: FxHashSet::default(),
            revoked: BTreeSet::new(),
        });
        Ok(())
    }

    /// At the unmount: everything is in its place.
    pub fn end_journal(&mut self) -> Result<()> {
        if self.keep.journal.is_none() {
            return Ok(());
        }
        self.commit_journal()?;
        self.checkpoint()
    }

    pub(super) fn journal_join(&mut self, name: Name) {
        let (now, len) = (self.calls.now_ms(), self.cache.peek(name).map_or(0, |b| b.len()));
        let Some(j) = &mut self.keep.journal else { return };
        if j.running.is_empty() {
            j.since = now;
        }
        match j.running.insert(name, len) {
            Some(before) => j.running_bytes -= before,
            None => self.cache.pin(name),
        }
        j.running_bytes += len;
    }

    pub(super) fn journal_leave(&mut self, name: Name) {
        if let Some(j) = &mut self.keep.journal
            && let Some(len) = j.running.remove(&name)
        {
            j.running_bytes -= len;
        }
    }

    /// A run is free: copies of it must not be replayed over what comes there.
    pub(super) fn revoke(&mut self, frag: Frag, frags: u32) {
        if let Some(j) = &mut self.keep.journal
            && !planted(Flaw::NoRevocation)
        {
            j.revoked.extend((frag.0..frag.0 + frags).filter(|f| j.logged.contains(f)));
        }
    }

    /// Dirty pages of data.
    fn dirty_data(&self) -> Vec<Name> {
        self.dirty.iter().filter(|d| d.1.what == What::Data).map(|d| *d.0).collect()
    }

    /// Commits the running transaction, and makes everything durable by that.
    pub(super) fn commit_journal(&mut self) -> Result<()> {
        if self.calls.health.has_failed() {
            return Err(Errno::EROFS.into());
        }
        let data = self.dirty_data();
        self.gather_files(&data)?;
        if !planted(Flaw::CommitBeforeData) {
            self.write_round(&data)?;
        }
        let record = self.record();
        let Some(j) = &mut self.keep.journal else { return Err(Errno::EIO.into()) };
        let Some((requests, logged, frags)) = record else { return Ok(()) };
        if let Err(e) = j.check_room(frags, crate::recover::last_fragment(&self.sb)) {
            self.fail(&e);
            return Err(e);
        }
        let members: Vec<Name> = j.running.drain().map(|r| r.0).collect();
        j.running_bytes = 0;
        j.revoked.clear();
        j.logged.extend(logged);
        j.seq = j.seq.wrapping_add(1);
        j.head += frags;
        let full = j.head > self.sb.journal_frags.get() / 2;
        self.counters.transactions += 1;
        self.counters.journal_bytes += self.geom.bytes_of(frags) as u64;
        let done = self.dev.submit(requests).wait_all().map_err(Error::Io);
        let done = if planted(Flaw::CommitUnflushed) { done } else { done.and_then(|()| self.flush()) };
        if planted(Flaw::CommitBeforeData) {
            self.write_round(&data)?;
        }
        if let Err(e) = done {
            self.fail(&e);
            return Err(e);
        }
        members.iter().for_each(|n| self.cache.unpin(*n));
        self.unhold();
        if full { self.checkpoint() } else { Ok(()) }
    }

    /// The running transaction as it goes to the journal: the request, the places that are copied, and its length
    /// in fragments. `None` if there is nothing in it.
    fn record(&mut self) -> Option<(Vec<Request>, Vec<u32>, u32)> {
        let j = self.keep.journal.as_ref()?;
        if j.running.is_empty() && j.revoked.is_empty() {
            return None;
        }
        let mut members: Vec<(Frag, What, Name)> =
            j.running.keys().filter_map(|n| self.dirty.get(n).map(|d| (d.frag, d.what, *n))).collect();
        members.sort_unstable_by_key(|m| m.0);
        let revoked = j.revoked.iter().map(|f| JournalTag { frag: (*f).into(), ..JournalTag::default() });
        let mut tags: Vec<(JournalTag, Option<Arc<Vec<u8>>>)> = revoked.map(|t| (t, None)).collect();
        for (frag, what, name) in members {
            let Some(bytes) = self.cache.peek(name).cloned() else { continue };
            let (image, _) = self.image(name, what, bytes);
            let frags = self.geom.frags_for(image.len());
            let hash = copy_hash(self.geom.fsid, j.seq, &image).into();
            let tag = JournalTag { frag: frag.0.into(), frags: frags.into(), hash };
            tags.push((tag, Some(image)));
        }
        Some(self.encode(j.seq, j.head, &tags))
    }

    fn encode(
        &self,
        seq: u32,
        head: u32,
        tags: &[(JournalTag, Option<Arc<Vec<u8>>>)],
    ) -> (Vec<Request>, Vec<u32>, u32) {
        let room = (self.geom.frag_size() - JOURNAL_HEADER) / JOURNAL_TAG;
        let (mut bufs, mut logged): (Vec<Buf>, Vec<u32>) = (Vec::new(), Vec::new());
        let groups = tags.chunks(room);
        let descriptors = groups.len() as u32;
        for group in groups {
            let head = |kind, count| journal_fragment(&self.geom, kind, seq, count);
            let mut descriptor = head(JournalKind::Descriptor, group.len() as u32);
            for (i, (tag, _)) in group.iter().enumerate() {
                let at = JOURNAL_HEADER + i * JOURNAL_TAG;
                descriptor[at..at + JOURNAL_TAG].copy_from_slice(tag.as_bytes());
            }
            seal_journal(&mut descriptor);
            bufs.push(descriptor.into());
            for (tag, image) in group {
                if let Some(image) = image {
                    logged.extend(tag.frag.get()..tag.frag.get() + tag.frags.get());
                    bufs.push(Buf::new(image.clone()));
                }
            }
        }
        let mut commit = journal_fragment(&self.geom, JournalKind::Commit, seq, descriptors);
        seal_journal(&mut commit);
        bufs.push(commit.into());
        let len: usize = bufs.iter().map(Buf::len).sum();
        let at = self.geom.byte(Frag(self.sb.journal_start.get() + head));
        (vec![Request::write(Kind::Log, at, bufs)], logged, self.geom.frags_for(len))
    }

    /// Writes all metadata to their places; nothing of them is in a running transaction. The journal is empty then.
    fn checkpoint(&mut self) -> Result<()> {
        let names: Vec<Name> = self.dirty.iter().filter(|d| d.1.what != What::Data).map(|d| *d.0).collect();
        if !planted(Flaw::TailTooEarly) {
            self.write_round(&names)?;
        }
        let Some(j) = &mut self.keep.journal else { return Ok(()) };
        j.head = 1;
        j.logged.clear();
        let seq = j.seq;
        let done = crate::recover::write_tail(&*self.dev, &self.sb, &self.geom, seq, 1).and_then(|()| self.flush());
        if planted(Flaw::TailTooEarly) {
            self.write_round(&names)?;
        }
        done.inspect_err(|e| self.fail(e))
    }

    /// Commits a transaction that is old enough, and writes what is due.
    pub(super) fn journal_daemon(&mut self, at: u64) -> Result<()> {
        if self.journal_due().is_some_and(|due| at >= due) {
            return self.commit_journal();
        }
        let Some(j) = &self.keep.journal else { return Ok(()) };
        let due = self.ages.range(..(at + 1, Name::Block(0))).map(|a| a.1);
        let due: Vec<Name> = due.filter(|n| !j.running.contains_key(n) || planted(Flaw::PlaceBeforeCommit)).collect();
        self.write_some(&due)
    }

    /// When the running transaction is to be committed.
    pub(super) fn journal_due(&self) -> Option<u64> {
        let j = self.keep.journal.as_ref().filter(|j| !j.running.is_empty())?;
        Some(j.since + self.opts.commit_ms)
    }

    /// A transaction that takes a quarter of the journal is committed.
    pub(super) fn bound_transaction(&mut self) -> Result<()> {
        if self.keep.journal.is_none() || self.transaction_has_room() { Ok(()) } else { self.commit_journal() }
    }

    /// Whether a further step of a call may belong to the same transaction, so that both last or neither.
    pub fn transaction_has_room(&self) -> bool {
        let room = self.geom.bytes_of(self.sb.journal_frags.get()) / 4;
        self.keep.journal.as_ref().is_some_and(|j| j.running_bytes <= room)
    }

    pub(super) fn clean_journal(&mut self) -> Result<()> {
        self.commit_journal()?;
        if self.has_much_dirty() { self.checkpoint() } else { Ok(()) }
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

/// Makes the checksum of a fragment with a head.
pub(crate) fn seal_journal(bytes: &mut [u8]) {
    let sum = crc_without(bytes, CRC_AT).unwrap_or(0);
    put_u32(bytes, CRC_AT, sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_ends_within_the_journal() {
        let journal = Journal {
            seq: 1,
            head: 60,
            running: FxHashMap::default(),
            running_bytes: 0,
            since: 0,
            logged: FxHashSet::default(),
            revoked: BTreeSet::new(),
        };
        assert!(journal.check_room(40, 100).is_ok());
        assert!(journal.check_room(41, 100).is_err() && journal.check_room(u32::MAX, 100).is_err());
    }
}
