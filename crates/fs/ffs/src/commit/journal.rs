//! The journal (as ext3's; Tweedie 1998): compound transactions of whole metadata buffers.
//!
//! Buffers of the running transaction are pinned. A commit writes data, then one batch of descriptors, copies and
//! the commit fragment, all of which carry checksums: an incomplete transaction is not replayed. After a flush its
//! buffers may be written in place. When the journal is half full, all of them are, and the journal begins again at
//! its start (a checkpoint).

use super::ordering::MetadataOrdering;
use crate::buffers::BlockKind;
use crate::format::*;
use crate::log::{Journal, journal_fragment, last_fragment, seal_journal, sound_tail, write_tail};
use crate::planted::{Flaw, planted};
use crate::volume::Core;
use arbor_base::cache::Name;
use arbor_base::device::{Buf, Device, Kind, Request};
use arbor_base::vfs::{CrashPromise, Errno, Error, Ino, Result};
use arbor_kit::calls::State as _;
use std::sync::Arc;
use zerocopy::IntoBytes;

pub(super) struct Journaled;

impl MetadataOrdering for Journaled {
    fn crash_promise(&self) -> CrashPromise {
        CrashPromise::Prefix
    }

    fn check_volume(&self, dev: &dyn Device, sb: &SuperBlock, geom: &Geom) -> Result<()> {
        if sb.journal_frags.get() == 0 {
            return Err(Error::refused("keep=journal needs a volume that was made with a journal"));
        }
        // Before the volume is marked as in use: it can be mounted in another way.
        sound_tail(dev, sb, geom).map(drop)
    }

    /// Holds the run until the running transaction is durable.
    fn run_freed(&self, core: &mut Core, (frag, frags): (Frag, u32)) {
        if !planted(Flaw::ReuseAtOnce) {
            core.space.hold(&core.geom, frag, frags);
        }
        if let Some(j) = &mut core.journal {
            j.revoke(frag, frags);
        }
    }

    fn lists_orphans(&self) -> bool {
        true
    }

    /// Starts an empty journal. Each mount takes a new number: remains of a torn transaction must not complete a new
    /// one.
    fn mounted(&self, core: &mut Core) -> Result<()> {
        let (last, _) = sound_tail(&*core.dev, &core.sb, &core.geom)?;
        let seq = if planted(Flaw::NumbersAgain) { last } else { last.wrapping_add(1) };
        write_tail(&*core.dev, &core.sb, &core.geom, seq, 1)?;
        core.journal = Some(Journal::new(seq));
        Ok(())
    }

    fn emptied(&self, core: &mut Core) -> Result<()> {
        if core.journal.is_none() {
            return Ok(());
        }
        core.commit_journal()?;
        core.checkpoint()
    }

    /// Commits a transaction that takes more than a quarter of the journal.
    fn call_ended(&self, core: &mut Core) -> Result<()> {
        if core.journal.is_none() || self.joins_steps(core) { Ok(()) } else { core.commit_journal() }
    }

    /// Adds a metadata buffer to the running transaction.
    fn buffer_dirtied(&self, core: &mut Core, name: Name, kind: BlockKind) {
        if kind == BlockKind::Data {
            return;
        }
        let (now, len) = (core.calls.now_ms(), core.cache.peek(name).map_or(0, |b| b.len()));
        if core.journal.as_mut().is_some_and(|j| j.join(name, len, now)) {
            core.cache.pin(name);
        }
    }

    fn buffer_dropped(&self, core: &mut Core, name: Name) {
        if let Some(j) = &mut core.journal {
            j.leave(name);
        }
    }

    fn sync_file(&self, core: &mut Core, _ino: Ino) -> Result<()> {
        core.commit_journal()
    }

    fn sync_all(&self, core: &mut Core) -> Result<()> {
        core.commit_journal()
    }

    /// Commits a transaction that is old enough, or else writes due buffers that are not part of it.
    fn background(&self, core: &mut Core, at: u64) -> Result<()> {
        if self.due(core).is_some_and(|due| at >= due) {
            return core.commit_journal();
        }
        let Some(j) = &core.journal else { return Ok(()) };
        let is_free = |n: &Name| !j.has_member(*n) || planted(Flaw::PlaceBeforeCommit);
        let due: Vec<Name> = core.dirty.due_by(at).into_iter().filter(is_free).collect();
        core.write_some(&due)
    }

    /// When the running transaction is to be committed.
    fn due(&self, core: &Core) -> Option<u64> {
        core.journal.as_ref().and_then(Journal::since).map(|since| since + core.opts.commit_ms)
    }

    fn write_back(&self, core: &mut Core) -> Result<()> {
        core.commit_journal()?;
        if core.has_much_dirty() { core.checkpoint() } else { Ok(()) }
    }

    fn release_held(&self, core: &mut Core) -> Result<bool> {
        if core.space.holds_nothing() { Ok(false) } else { core.commit_journal().map(|()| true) }
    }

    fn joins_steps(&self, core: &Core) -> bool {
        let room = core.geom.bytes_of(core.sb.journal_frags.get()) / 4;
        core.journal.as_ref().is_some_and(|j| j.running_bytes() <= room)
    }

    fn may_write_on(&self, core: &Core) -> bool {
        self.joins_steps(core)
    }
}

impl Core {
    /// Commits the running transaction, which makes everything durable.
    fn commit_journal(&mut self) -> Result<()> {
        if self.calls.health.has_failed() {
            return Err(Errno::EROFS.into());
        }
        let data = self.dirty.of_data(true);
        self.gather_files(&data)?;
        if !planted(Flaw::CommitBeforeData) {
            self.write_round(&data)?;
        }
        let record = self.record();
        let Some(j) = &mut self.journal else { return Err(Errno::EIO.into()) };
        let Some((requests, logged, frags)) = record else { return Ok(()) };
        if let Err(e) = j.check_room(frags, last_fragment(&self.sb)) {
            self.fail(&e);
            return Err(e);
        }
        let members = j.advance(logged, frags);
        let full = j.next().1 > self.sb.journal_frags.get() / 2;
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

    /// The running transaction as it goes to the journal: the request, the fragments that are copied, and its length in
    /// fragments. `None` if it is empty.
    fn record(&mut self) -> Option<(Vec<Request>, Vec<u32>, u32)> {
        let j = self.journal.as_ref()?;
        if j.has_nothing() {
            return None;
        }
        let (seq, head) = j.next();
        let mut members: Vec<(Frag, BlockKind, Name)> =
            j.members().filter_map(|n| self.dirty.get(n).map(|d| (d.frag, d.kind, n))).collect();
        members.sort_unstable_by_key(|m| m.0);
        let revoked = j.revoked().map(|f| JournalTag { frag: f.into(), ..JournalTag::default() });
        let mut tags: Vec<(JournalTag, Option<Arc<Vec<u8>>>)> = revoked.map(|t| (t, None)).collect();
        for (frag, kind, name) in members {
            let Some(bytes) = self.cache.peek(name).cloned() else { continue };
            let (image, _) = self.image(name, kind, bytes);
            let frags = self.geom.frags_for(image.len());
            let hash = copy_hash(self.geom.fsid, seq, &image).into();
            let tag = JournalTag { frag: frag.0.into(), frags: frags.into(), hash };
            tags.push((tag, Some(image)));
        }
        Some(self.encode(seq, head, &tags))
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

    /// Writes all metadata in place, and empties the journal. There must be no running transaction.
    fn checkpoint(&mut self) -> Result<()> {
        let names = self.dirty.of_data(false);
        if !planted(Flaw::TailTooEarly) {
            self.write_round(&names)?;
        }
        let Some(j) = &mut self.journal else { return Ok(()) };
        j.restart();
        let (seq, _) = j.next();
        let done = write_tail(&*self.dev, &self.sb, &self.geom, seq, 1).and_then(|()| self.flush());
        if planted(Flaw::TailTooEarly) {
            self.write_round(&names)?;
        }
        done.inspect_err(|e| self.fail(e))
    }
}
