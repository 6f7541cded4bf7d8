//! Bodies of directories as bytes: the list of entries in a directory block after its header, or in the area of an
//! inline directory.

use crate::format::*;
use arbor_base::layout::get_u16;
use zerocopy::FromBytes;

/// An entry of a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'b> {
    pub at: usize,
    pub head: DirEnt,
    pub name: &'b [u8],
}

impl Entry<'_> {
    pub fn key(&self) -> u64 {
        dir_key(self.head.hash.get(), self.head.seq.get())
    }

    /// Whether its hash is that of its name.
    pub fn is_named(&self, hash_seed: u32) -> bool {
        self.head.hash.get() == name_hash(hash_seed, self.name)
    }
}

/// The entries of a body in the order of their list, as far as it can be followed, and what is
/// wrong with its form.
pub(crate) fn parse(body: &[u8]) -> (Vec<Entry<'_>>, Option<&'static str>) {
    let head = DirHead::read_from_prefix(body).map(|h| h.0).unwrap_or_default();
    let mut entries = Vec::new();
    let mut damage = None;
    let mut at = usize::from(head.first.get());
    let mut last = None;
    while at != 0 {
        let entry = body.get(at..).and_then(|b| {
            let (head, rest) = DirEnt::read_from_prefix(b).ok()?;
            Some(Entry { at, head, name: rest.get(..usize::from(head.name_len))? })
        });
        let Some(entry) = entry.filter(|e| at >= DIR_HEAD && !e.name.is_empty()) else {
            return (entries, Some("the list of entries leads nowhere"));
        };
        if entries.len() > body.len() / (DIR_ENT + 1) {
            return (Vec::new(), Some("the list of entries is a loop"));
        }
        if last.is_some_and(|l| l >= entry.key()) {
            damage = Some("entries are out of order");
        }
        last = Some(entry.key());
        entries.push(entry);
        at = entry.head.next.get().into();
    }
    (damage, entries) = (damage.or_else(|| sizes_damage(&head, &entries, body.len())), entries);
    (entries, damage)
}

fn sizes_damage(head: &DirHead, entries: &[Entry<'_>], len: usize) -> Option<&'static str> {
    let mut places: Vec<(usize, usize)> = entries.iter().map(|e| (e.at, e.at + DIR_ENT + e.name.len())).collect();
    places.sort_unstable();
    if places.iter().zip(places.iter().skip(1)).any(|(a, b)| a.1 > b.0) {
        return Some("entries overlap");
    }
    let end = usize::from(head.end.get());
    let past = places.last().map_or(DIR_HEAD, |p| p.1);
    let live: usize = places.iter().map(|p| p.1 - p.0).sum();
    if end > len || end.max(DIR_HEAD) < past {
        return Some("free room begins in the wrong place");
    }
    let counts = usize::from(head.count.get()) == entries.len() && usize::from(head.live.get()) == live;
    (!counts).then_some("the entries are miscounted")
}

/// Bytes of a body that are in use, head included.
pub(crate) fn used_bytes(body: &[u8]) -> usize {
    usize::from(get_u16(body, 2).unwrap_or(0)).max(DIR_HEAD)
}

pub(crate) fn head_of(body: &[u8]) -> DirHead {
    DirHead::read_from_prefix(body).map(|h| h.0).unwrap_or_default()
}

/// Calls `f` with each entry's offset, head and name, in order, until it returns `false`. `None` if the list is broken.
pub(crate) fn walk(body: &[u8], mut f: impl FnMut(usize, &DirEnt, &[u8]) -> bool) -> Option<()> {
    let head = head_of(body);
    let mut at = usize::from(head.first.get());
    let mut last = None;
    for _ in 0..=body.len() / DIR_ENT {
        if at == 0 {
            return Some(());
        }
        let (e, rest) = DirEnt::ref_from_prefix(body.get(at..)?).ok()?;
        let name = rest.get(..usize::from(e.name_len))?;
        let key = dir_key(e.hash.get(), e.seq.get());
        if at < DIR_HEAD || last.is_some_and(|l| l >= key) || name.is_empty() {
            return None;
        }
        last = Some(key);
        if !f(at, e, name) {
            return Some(());
        }
        at = usize::from(e.next.get());
    }
    None
}

/// Where the entries with keys of at least `key` begin: the offset of the entry before them, and of the first of them,
/// 0 if there is none. `None` if the list is broken.
pub(crate) fn seek(body: &[u8], key: u64) -> Option<(Option<usize>, usize)> {
    let mut before = None;
    let mut at = usize::from(head_of(body).first.get());
    for _ in 0..=body.len() / DIR_ENT {
        if at == 0 {
            return Some((before, 0));
        }
        let e = body.get(at..)?.first_chunk::<DIR_ENT>()?;
        if at < DIR_HEAD {
            return None;
        }
        let e: &DirEnt = zerocopy::transmute_ref!(e);
        if dir_key(e.hash.get(), e.seq.get()) >= key {
            return Some((before, at));
        }
        before = Some(at);
        at = usize::from(e.next.get());
    }
    None
}

/// The entry at an offset, with its name.
pub(crate) fn entry_at(body: &[u8], at: usize) -> Option<(&DirEnt, &[u8])> {
    let (e, rest) = DirEnt::ref_from_prefix(body.get(at..)?).ok()?;
    let name = rest.get(..usize::from(e.name_len))?;
    (at >= DIR_HEAD && !name.is_empty()).then_some((e, name))
}
