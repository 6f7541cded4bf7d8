//! Replay of the journal after a crash: its complete transactions are read and written in place.

use super::*;
use crate::superblock;
use arbor_kit::reads::what_can_be_read;

/// A copy of metadata in the journal.
pub(crate) struct Copy {
    pub frag: Frag,
    pub bytes: Vec<u8>,
    /// It comes before a damaged transaction, which may have revoked it.
    pub is_doubtful: bool,
}

/// What a journal holds.
pub(crate) struct Held {
    /// The newest copy of each fragment, in their order.
    pub copies: Vec<Copy>,
    /// Number and fragment of the transaction after the last one.
    pub next: (u32, u32),
    /// Transactions that are damaged.
    pub gaps: Vec<Gap>,
}

/// A transaction that is not whole, though a later one has begun: that is written after a flush. What is sound of it counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap {
    /// Its number, and its fragment.
    seq: u32,
    at: u32,
    /// Number of the later one.
    next: u32,
}

impl Gap {
    /// The damage.
    pub fn corrupt(&self, sb: &SuperBlock, geom: &Geom) -> Corrupt {
        let at = geom.byte(Frag(sb.journal_start.get().saturating_add(self.at)));
        let found = format!("that of no transaction, and transaction {} follows", self.next);
        Corrupt::new("journal transaction", "hash", at, found, format!("that of transaction {}", self.seq))
    }
}

/// The newest copy of each fragment in the journal's complete transactions. What ends them is the last one, whose writing was
/// cut off, or it is damaged and others follow.
pub(crate) fn read_journal(
    dev: &dyn Device,
    sb: &SuperBlock,
    geom: &Geom,
    (mut seq, mut at): (u32, u32),
) -> Result<Held> {
    let (mut copies, mut gaps) = (FxHashMap::<u32, Copy>::default(), Vec::new());
    loop {
        if let Some((tags, end)) = twice(|| read_transaction(dev, sb, geom, seq, at))? {
            lay(&mut copies, tags);
            (seq, at) = (seq.wrapping_add(1), end);
            continue;
        }
        let later = if gaps.len() < MOST_GAPS { later_transaction(dev, sb, geom, seq, at) } else { None };
        let Some((next, begin)) = later else { break };
        copies.values_mut().for_each(|copy| copy.is_doubtful = true);
        lay(&mut copies, sound_copies(dev, sb, geom, (at, begin), (seq, next)));
        gaps.push(Gap { seq, at, next });
        (seq, at) = (next, begin);
    }
    let mut copies: Vec<Copy> = copies.into_values().collect();
    copies.sort_unstable_by_key(|c| c.frag);
    Ok(Held { copies, next: (seq, at), gaps })
}

fn lay(copies: &mut FxHashMap<u32, Copy>, tags: Vec<Tagged>) {
    for (tag, bytes) in tags {
        let frag = Frag(tag.frag.get());
        match bytes {
            Some(bytes) => drop(copies.insert(frag.0, Copy { frag, bytes, is_doubtful: false })),
            // A revocation names the fragment where a copy begins.
            None => drop(copies.remove(&tag.frag.get())),
        }
    }
}

/// Bytes of the journal that are searched at a time.
const SEARCH: usize = 256 << 10;
/// More damaged transactions than that are no accident: the journal ends there.
const MOST_GAPS: usize = 16;

/// The first sound descriptor after fragment `at` of a transaction after `seq`: its number, and where it is. What cannot be read is
/// none.
fn later_transaction(dev: &dyn Device, sb: &SuperBlock, geom: &Geom, seq: u32, at: u32) -> Option<(u32, u32)> {
    let (end, step, size) = (last_fragment(sb), geom.frags_for(SEARCH), geom.frag_size());
    for first in (at.saturating_add(1)..end).step_by(step as usize) {
        let mut bytes = vec![0; geom.bytes_of(step.min(end - first))];
        let byte = geom.byte(Frag(sb.journal_start.get().saturating_add(first)));
        what_can_be_read(dev, Kind::Log, byte, &mut bytes, size);
        for (at, fragment) in (first..).zip(bytes.chunks_exact(size)) {
            let head = decode_head(geom, fragment).filter(|h| h.kind.get() == JournalKind::Descriptor as u32);
            if let Some(h) = head.filter(|h| is_later(h.seq.get(), seq)) {
                return Some((h.seq.get(), at));
            }
        }
    }
    None
}

/// The copies and revocations that are sound by themselves in a part of the journal: those of transactions from `seq` on, up to
/// `next`. Others are of an earlier time.
fn sound_copies(
    dev: &dyn Device,
    sb: &SuperBlock,
    geom: &Geom,
    (mut at, end): (u32, u32),
    (seq, next): (u32, u32),
) -> Vec<Tagged> {
    let mut all = Vec::new();
    let counts = |h: &JournalHeader| {
        let number = h.seq.get();
        h.kind.get() == JournalKind::Descriptor as u32 && !is_later(seq, number) && is_later(next, number)
    };
    while at < end {
        let head = read_head(dev, sb, geom, at).ok().flatten().filter(|(h, _)| counts(h));
        at = at.saturating_add(1);
        let Some((h, bytes)) = head else { continue };
        let tags = bytes.get(JOURNAL_HEADER..).unwrap_or(&[]).chunks_exact(JOURNAL_TAG);
        for tag in tags.take(h.count.get() as usize).filter_map(|tag| JournalTag::read_from_bytes(tag).ok()) {
            match read_copy(dev, sb, geom, (h.seq.get(), at), &tag) {
                Ok(Tag::Revoked) => all.push((tag, None)),
                Ok(Tag::Copy(copy)) => all.push((tag, Some(copy))),
                Ok(Tag::Damaged) | Err(_) => {}
                Ok(Tag::Nonsense) => return all,
            }
            at = at.saturating_add(tag.frags.get());
        }
    }
    all
}

type Tagged = (JournalTag, Option<Vec<u8>>);

/// The transaction `seq` at fragment `at`, if it is complete, and where it ends.
fn read_transaction(
    dev: &dyn Device,
    sb: &SuperBlock,
    geom: &Geom,
    seq: u32,
    mut at: u32,
) -> Result<Option<(Vec<Tagged>, u32)>> {
    let (mut all, mut descriptors) = (Vec::new(), 0);
    loop {
        let Some((h, bytes)) = read_head(dev, sb, geom, at)?.filter(|(h, _)| h.seq.get() == seq) else {
            return Ok((planted(Flaw::HalfBelieved) && descriptors > 0).then_some((all, at)));
        };
        at += 1;
        if h.kind.get() == JournalKind::Commit as u32 {
            return Ok((h.count.get() == descriptors).then_some((all, at)));
        }
        let tags = bytes.get(JOURNAL_HEADER..).unwrap_or(&[]).chunks_exact(JOURNAL_TAG);
        if h.kind.get() != JournalKind::Descriptor as u32 || h.count.get() as usize > tags.len() {
            return Ok(None);
        }
        descriptors += 1;
        for tag in tags.take(h.count.get() as usize) {
            let Ok(tag) = JournalTag::read_from_bytes(tag) else { return Ok(None) };
            match read_copy(dev, sb, geom, (seq, at), &tag)? {
                Tag::Revoked => all.push((tag, None)),
                Tag::Copy(copy) => all.push((tag, Some(copy))),
                Tag::Damaged | Tag::Nonsense => return Ok(None),
            }
            at = at.saturating_add(tag.frags.get());
        }
    }
}

/// What a tag stands for.
enum Tag {
    Revoked,
    Copy(Vec<u8>),
    Damaged,
    /// No tag of this volume.
    Nonsense,
}

/// The copy of a tag, which lies at fragment `at` of the journal.
fn read_copy(dev: &dyn Device, sb: &SuperBlock, geom: &Geom, (seq, at): (u32, u32), tag: &JournalTag) -> Result<Tag> {
    let frags = tag.frags.get();
    if frags == 0 {
        return Ok(Tag::Revoked);
    }
    let fits = |first: u32, of: u32| first.checked_add(frags).is_some_and(|end| end <= of);
    if frags > geom.block_frags() || !fits(tag.frag.get(), geom.frags) || !fits(at, sb.journal_frags.get()) {
        return Ok(Tag::Nonsense);
    }
    let mut copy = vec![0; geom.bytes_of(frags)];
    dev.read_at(Kind::Log, geom.byte(Frag(sb.journal_start.get() + at)), &mut copy)?;
    let is_sound = copy_hash(geom.fsid, seq, &copy) == tag.hash.get() || planted(Flaw::TornBelieved);
    Ok(if is_sound { Tag::Copy(copy) } else { Tag::Damaged })
}

/// Writes the journal's copies in place, and empties the journal. Returns whether there were any. Fails if a transaction is
/// damaged that others follow.
pub(crate) fn replay(dev: &dyn Device, sb: &mut SuperBlock, geom: &Geom, tail: (u32, u32)) -> Result<bool> {
    let Held { copies, next: (seq, end), gaps } = read_journal(dev, sb, geom, tail)?;
    if let Some(gap) = gaps.first() {
        return Err(gap.corrupt(sb, geom).into());
    }
    if seq == tail.0 {
        return Ok(false);
    }
    check_super(dev, &copies)?;
    for copy in &copies {
        dev.write_at(Kind::Other, geom.byte(copy.frag), &copy.bytes)?;
    }
    dev.flush()?;
    if holds_super(&copies)
        && let Some(found) = superblock::read(dev, 0)?
    {
        *sb = found;
    }
    let seq = if planted(Flaw::NumbersAgain) { tail.0 } else { seq };
    if end > last_fragment(sb) {
        // A program that knows only one tail wrote there; replay must be repeatable as a whole.
        write_tail_at(dev, sb, geom, 0, (seq, 1))?;
    } else {
        write_tail(dev, sb, geom, seq, 1)?;
    }
    dev.flush()?;
    Ok(!copies.is_empty())
}

/// Fails if the superblock would not be one any more.
pub(crate) fn check_super(dev: &dyn Device, copies: &[Copy]) -> Result<()> {
    for copy in copies.iter().filter(|copy| copy.frag == Frag(0)) {
        let head = copy.bytes.get(..SECTOR).and_then(|bytes| SuperBlock::read_from_bytes(bytes).ok());
        if let Some(sb) = head {
            superblock::geometry(&sb, 0, dev.geometry().size)?;
        }
    }
    Ok(())
}

/// Whether the journal held the superblock.
pub(crate) fn holds_super(copies: &[Copy]) -> bool {
    copies.iter().any(|c| c.frag == Frag(0))
}
