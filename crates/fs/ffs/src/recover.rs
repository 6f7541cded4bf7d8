//! What mount does after a crash: the journal is replayed; without one the checker does what a crash of that
//! way to keep metadata makes necessary.

use crate::check;
use crate::check::view::Reader;
use crate::commit::journal::{journal_fragment, seal_journal};
use crate::format::*;
use crate::mount::rebuild_summaries;
use crate::planted::{Flaw, planted};
use crate::superblock;
use arbor_base::device::{Device, Kind};
use arbor_base::layout::{Corrupt, crc_without};
use arbor_base::vfs::{CheckOptions, Devices, Error, Repair, Result, Severity};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use zerocopy::FromBytes;

/// A copy of metadata in the journal.
pub(crate) struct Copy {
    pub frag: Frag,
    pub bytes: Vec<u8>,
}

/// Fragments of a journal where its tail stands: the first one and, once a mount has kept the journal, the last one.
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

/// Writes the journal's tail twice, one durable before the other is touched: of the two one is sound, whatever a write
/// that is cut off leaves in its place. The last one comes first: it may not be there yet.
pub(crate) fn write_tail(dev: &dyn Device, sb: &SuperBlock, geom: &Geom, seq: u32, at: u32) -> Result<()> {
    let [first, last] = tail_places(sb);
    write_tail_at(dev, sb, geom, last, (seq, at))?;
    if !planted(Flaw::TailsAtOnce) {
        dev.flush()?;
    }
    write_tail_at(dev, sb, geom, first, (seq, at))
}

/// Writes the tail to one of its places.
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

/// Whether this is the journal's tail as it should be.
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

/// Does it again if the first time said nothing: what is read may be wrong once, and what ends the journal loses
/// everything behind it.
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
    let [first, second] = tail_places(sb).map(tail);
    match (first?, second?) {
        (Some(a), Some(b)) if is_later(b.0, a.0) => Ok(Some(b)),
        (None, Some(b)) => {
            // A program that knows of one tail only leaves the other behind.
            let next = read_head(dev, sb, geom, b.1)?;
            Ok(Some(b).filter(|b| next.is_none_or(|(h, _)| !is_later(h.seq.get(), b.0))))
        }
        (first, _) => Ok(first),
    }
}

/// The same where nothing can be done without it.
pub(crate) fn sound_tail(dev: &dyn Device, sb: &SuperBlock, geom: &Geom) -> Result<(u32, u32)> {
    let damaged = || {
        let at = geom.byte(Frag(sb.journal_start.get()));
        Corrupt::new("journal tail", "crc", at, "a wrong one", "the one of its bytes: run fsck -f").into()
    };
    read_tail(dev, sb, geom)?.ok_or_else(damaged)
}

/// A number that no transaction has whose remains are in the journal.
pub(crate) fn unused_number(dev: &dyn Device, sb: &SuperBlock, geom: &Geom) -> Result<u32> {
    let mut last = 0;
    for at in 1..sb.journal_frags.get() {
        last = last.max(read_head(dev, sb, geom, at)?.map_or(0, |(h, _)| h.seq.get()));
    }
    Ok(last.wrapping_add(1))
}

/// What the journal's complete transactions have to say, the last word of each place, and the number of the
/// transaction after them with its fragment.
fn read_journal(
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
                // Whatever covers the place; copies begin where their buffers do.
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

/// The transaction `seq` at fragment `at`, if all of it is there, and where it ends.
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

/// Brings a volume that was not unmounted into a state that can be mounted.
pub(crate) fn recover(dev: &Arc<dyn Device>, sb: &mut SuperBlock, geom: &Geom, read_only: bool) -> Result<()> {
    if read_only {
        return Err(Error::refused(
            "the volume was not unmounted and needs recovery: mount it for writing, or run fsck",
        ));
    }
    match Keeping::from_number(sb.keeping.get()) {
        Some(Keeping::Journal) if sb.journal_frags.get() > 0 => {
            let tail = sound_tail(&**dev, sb, geom)?;
            replay(&**dev, sb, geom, tail)?;
            rebuild_summaries(&**dev, sb, geom, true)?;
            Ok(dev.flush()?)
        }
        Some(Keeping::Async) | None => {
            Err(Error::refused("the volume was not unmounted, and its metadata were kept in no order: run fsck"))
        }
        // Without a journal there is nothing to replay, whatever the superblock says.
        Some(Keeping::Sync | Keeping::SoftUpdates | Keeping::Journal) => preen(dev, sb),
    }
}

/// Writes what the journal has to say to its place, and makes the journal empty. Says whether it said anything.
fn replay(dev: &dyn Device, sb: &mut SuperBlock, geom: &Geom, tail: (u32, u32)) -> Result<bool> {
    let (copies, (seq, end)) = read_journal(dev, sb, geom, tail)?;
    if seq == tail.0 {
        return Ok(false);
    }
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
        // A program that knows of one tail only wrote there; what is replayed again must be whole.
        write_tail_at(dev, sb, geom, 0, (seq, 1))?;
    } else {
        write_tail(dev, sb, geom, seq, 1)?;
    }
    dev.flush()?;
    Ok(!copies.is_empty())
}

/// Whether the journal held the superblock.
fn holds_super(copies: &[Copy]) -> bool {
    copies.iter().any(|c| c.frag == Frag(0))
}

/// Frees what a crash has left in use, and counts again what was written late.
fn preen(dev: &Arc<dyn Device>, sb: &mut SuperBlock) -> Result<()> {
    let options = CheckOptions { repair: Repair::Preen, force: true };
    let report = check::check(Devices::single(dev.clone()), &options, &mut |_, _, _| {})?;
    if let Some(issue) = report.issues.iter().find(|i| !i.repaired && i.severity > Severity::Warning) {
        return Err(Error::refused(format!("the volume is damaged, run fsck: {}", issue.text)));
    }
    *sb = superblock::read(&**dev, 0)?.ok_or_else(|| Error::refused("no FFS superblock"))?;
    Ok(())
}

/// For the checker: replays the journal, or lays it over what is read. Says whether it said anything; of a journal
/// without a tail nobody knows what it says.
pub(crate) fn replay_for_check(r: &mut Reader<'_>, write: bool) -> Result<bool> {
    let Some(tail) = read_tail(r.view.dev, &r.sb, &r.geom)? else { return Ok(false) };
    if write {
        return replay(r.view.dev, &mut r.sb, &r.geom, tail);
    }
    let (copies, _) = read_journal(r.view.dev, &r.sb, &r.geom, tail)?;
    for copy in &copies {
        r.view.lay(r.geom.byte(copy.frag), &copy.bytes);
    }
    let bytes = r.view.read(Kind::Super, 0, SECTOR)?;
    if holds_super(&copies)
        && let Some(found) = superblock::decode(&bytes, 0)?
    {
        r.sb = found;
    }
    Ok(!copies.is_empty())
}
