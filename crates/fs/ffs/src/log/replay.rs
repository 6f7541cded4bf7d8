//! Replay of the journal after a crash: its complete transactions are read and written in place.

use super::*;
use crate::superblock;

/// A copy of metadata in the journal.
pub(crate) struct Copy {
    pub frag: Frag,
    pub bytes: Vec<u8>,
}

/// The newest copy of each fragment in the journal's complete transactions, and the number and fragment of the
/// transaction after them.
pub(crate) fn read_journal(
    dev: &dyn Device,
    sb: &SuperBlock,
    geom: &Geom,
    (mut seq, mut at): (u32, u32),
) -> Result<(Vec<Copy>, (u32, u32))> {
    let mut copies: FxHashMap<u32, Vec<u8>> = FxHashMap::default();
    while let Some((tags, end)) = twice(|| read_transaction(dev, sb, geom, seq, at))? {
        for (tag, bytes) in tags {
            match bytes {
                Some(bytes) => drop(copies.insert(tag.frag.get(), bytes)),
                // A revocation names the fragment where a copy begins.
                None => drop(copies.remove(&tag.frag.get())),
            }
        }
        (seq, at) = (seq.wrapping_add(1), end);
    }
    let mut copies: Vec<Copy> = copies.into_iter().map(|(f, bytes)| Copy { frag: Frag(f), bytes }).collect();
    copies.sort_unstable_by_key(|c| c.frag);
    Ok((copies, (seq, at)))
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
            let frags = tag.frags.get();
            if frags == 0 {
                all.push((tag, None));
                continue;
            }
            let end = tag.frag.get().checked_add(frags);
            if frags > geom.block_frags() || end.is_none_or(|e| e > geom.frags) || at + frags > sb.journal_frags.get() {
                return Ok(None);
            }
            let mut copy = vec![0; geom.bytes_of(frags)];
            dev.read_at(Kind::Log, geom.byte(Frag(sb.journal_start.get() + at)), &mut copy)?;
            if copy_hash(geom.fsid, seq, &copy) != tag.hash.get() && !planted(Flaw::TornBelieved) {
                return Ok(None);
            }
            at += frags;
            all.push((tag, Some(copy)));
        }
    }
}

/// Writes the journal's copies in place, and empties the journal. Returns whether there were any.
pub(crate) fn replay(dev: &dyn Device, sb: &mut SuperBlock, geom: &Geom, tail: (u32, u32)) -> Result<bool> {
    let (copies, (seq, end)) = read_journal(dev, sb, geom, tail)?;
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
