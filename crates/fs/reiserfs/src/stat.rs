//! Stat data as bytes: dense ones, or in volumes without [`INCOMPAT_DENSE`] the structure as it is (decision 25).
//!
//! Dense stat data never get shorter, and have room for what is usual, so that hardly a change of attributes changes the
//! length of their item. Where there is no space for that, they can do without a change ([`fitted`]).

use crate::format::*;
use std::ops::Range;
use zerocopy::{FromBytes, IntoBytes};

/// Their least length, and what it is a multiple of: no multiple is [`STAT_DATA`].
pub(crate) const LEAST: usize = 40;
const STEP: usize = 8;

const SECOND: i128 = 1_000_000_000;

/// Stat data in at least `least` bytes; `dense`: whether the volume has [`INCOMPAT_DENSE`].
pub fn encode(d: &StatData, dense: bool, least: usize) -> Vec<u8> {
    if !dense {
        return d.as_bytes().to_vec();
    }
    let numbers = numbers(d);
    let len = len_of(&numbers).max(roomy(&numbers)).max(least).max(LEAST);
    told(&numbers, len.next_multiple_of(STEP))
}

/// Bytes for what is usual: links and lengths as they are, times of one moment before the year 2242, anything above.
fn roomy(all: &[u128; DENSE.len()]) -> usize {
    let [mode, nlink, uid, gid, generation, size, tail, _, _, _, _, _, blocks, xattr, _, rdev] = *all;
    let (secs, nanos) = (2 << 32, SECOND as u128 - 1);
    len_of(&[mode, nlink, uid, gid, generation, size, tail, secs, nanos, 0, 0, 0, blocks, xattr, u64::MAX.into(), rdev])
}

/// Dense stat data in exactly so many bytes, for a call that has no space for more and cannot be refused: if need be the
/// object was made, looked at, and changed otherwise when its data were changed last. `None` if that does not fit either,
/// which cannot be if they were [encoded](encode) before what has changed since are times, links and what is above.
pub(crate) fn fitted(d: &StatData, len: usize) -> Option<Vec<u8>> {
    let made = StatData { btime: d.mtime, ..*d };
    let read = StatData { atime: d.mtime, ..made };
    let all = [*d, made, read, StatData { ctime: d.mtime, ..read }];
    let numbers = all.iter().map(numbers).find(|numbers| len_of(numbers) <= len)?;
    Some(told(&numbers, len))
}

/// How many of the numbers are told: not those that are 0 at the end.
fn count_told(all: &[u128]) -> usize {
    all.iter().rposition(|n| *n != 0).map_or(0, |last| last + 1)
}

/// Bytes of the numbers as far as they are told.
fn len_of(all: &[u128]) -> usize {
    all.iter().take(count_told(all)).map(|n| digits(*n)).sum()
}

/// Bytes of a number, each with 7 bits of it.
fn digits(n: u128) -> usize {
    match u64::try_from(n) {
        Ok(n) => (n | 1).ilog2() as usize / 7 + 1,
        Err(_) => n.ilog2() as usize / 7 + 1,
    }
}

/// The numbers as far as they are told, in `len` bytes.
fn told(all: &[u128], len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut free = bytes.iter_mut();
    let mut push = |byte: u8| free.next().into_iter().for_each(|free| *free = byte);
    for n in all.iter().take(count_told(all)) {
        let mut n = *n;
        while n > u64::MAX.into() {
            push(n as u8 | 0x80);
            n >>= 7;
        }
        // Hardly any are longer.
        let mut n = n as u64;
        while n > 0x7f {
            push(n as u8 | 0x80);
            n >>= 7;
        }
        push(n as u8);
    }
    bytes
}

/// The stat data in these bytes; `None` if they are damaged.
pub fn decode(body: &[u8]) -> Option<StatData> {
    if body.len() == STAT_DATA {
        return StatData::read_from_bytes(body).ok();
    }
    let (mut numbers, mut at) = ([0; DENSE.len()], 0);
    for n in &mut numbers {
        *n = next_number(body, &mut at)?;
    }
    let [mode, nlink, uid, gid, generation, size, tail, secs, nanos, ctime, atime, btime, blocks, xattr, above, rdev] =
        numbers;
    let short = |n: u128| u32::try_from(n).ok().map(Into::into);
    let long = |n: u128| u64::try_from(n).ok().map(Into::into);
    let mtime = i128::from(i64::try_from(signed(secs)).ok()?) * SECOND
        + i128::try_from(nanos).ok().filter(|nanos| *nanos < SECOND)?;
    Some(StatData {
        mode: short(mode)?,
        nlink: short(nlink)?,
        uid: short(uid)?,
        gid: short(gid)?,
        rdev: short(rdev)?,
        generation: short(generation)?,
        size: long(size)?,
        above: long(above)?,
        blocks: short(blocks)?,
        tail: short(tail)?,
        xattr: short(xattr)?,
        atime: stamp(mtime.checked_add(signed(atime))?)?,
        mtime: stamp(mtime)?,
        ctime: stamp(mtime.checked_add(signed(ctime))?)?,
        btime: stamp(mtime.checked_add(signed(btime))?)?,
    })
}

/// Where the fields of dense stat data lie in their bytes, as far as they are told.
pub(crate) fn places(body: &[u8]) -> impl Iterator<Item = (&'static str, Range<usize>)> {
    let mut at = 0;
    let next = move |name: &&'static str| {
        let begin = at;
        next_number(body, &mut at).map(|_| (*name, begin..at))
    };
    DENSE.iter().map_while(next).filter(|(_, at)| !at.is_empty())
}

/// The next number of a body; 0 behind its end. `None` for one that does not end, or is too long.
fn next_number(body: &[u8], at: &mut usize) -> Option<u128> {
    let rest = body.get(*at..).filter(|rest| !rest.is_empty());
    let Some(rest) = rest else { return Some(0) };
    let mut n = 0u64;
    for (digit, byte) in rest.iter().take(9).enumerate() {
        n |= u64::from(byte & 0x7f) << (7 * digit);
        if byte & 0x80 == 0 {
            *at += digit + 1;
            return Some(n.into());
        }
    }
    // Hardly any are longer.
    let mut n = u128::from(n);
    for (digit, byte) in rest.iter().enumerate().take(126 / 7).skip(9) {
        n |= u128::from(byte & 0x7f) << (7 * digit);
        if byte & 0x80 == 0 {
            *at += digit + 1;
            return Some(n);
        }
    }
    None
}

/// What [`DENSE`] says, in its order.
fn numbers(d: &StatData) -> [u128; DENSE.len()] {
    let since = |s: Stamp| unsigned(between(d.mtime, s));
    let [mode, nlink, uid, gid] = [d.mode, d.nlink, d.uid, d.gid].map(|n| n.get().into());
    let [generation, tail, blocks] = [d.generation, d.tail, d.blocks].map(|n| n.get().into());
    let [size, above] = [d.size, d.above].map(|n| n.get().into());
    let (secs, part) = parts(nanos(d.mtime));
    let (secs, part) = (unsigned(secs), part.cast_unsigned());
    let [ctime, atime, btime] = [since(d.ctime), since(d.atime), since(d.btime)];
    let (xattr, rdev) = (d.xattr.get().into(), d.rdev.get().into());
    [mode, nlink, uid, gid, generation, size, tail, secs, part, ctime, atime, btime, blocks, xattr, above, rdev]
}

fn nanos(s: Stamp) -> i128 {
    i128::from(s.secs.get()) * SECOND + i128::from(s.nanos.get())
}

/// From one moment to another, ns. Nearly all can be told in 64 bits.
fn between(from: Stamp, to: Stamp) -> i128 {
    const CENTURY: u64 = 100 * 365 * 86400;
    match to.secs.get().checked_sub(from.secs.get()) {
        Some(secs) if secs.unsigned_abs() < CENTURY => {
            (secs * SECOND as i64 + i64::from(to.nanos.get()) - i64::from(from.nanos.get())).into()
        }
        _ => nanos(to) - nanos(from),
    }
}

fn stamp(nanos: i128) -> Option<Stamp> {
    let (secs, part) = parts(nanos);
    Some(Stamp { secs: i64::try_from(secs).ok()?.into(), nanos: (part as u32).into() })
}

/// Whole seconds, and what is left. Nearly all times can be divided in 64 bits.
fn parts(nanos: i128) -> (i128, i128) {
    const SHORT: i64 = SECOND as i64;
    match i64::try_from(nanos) {
        Ok(nanos) => (nanos.div_euclid(SHORT).into(), nanos.rem_euclid(SHORT).into()),
        Err(_) => (nanos.div_euclid(SECOND), nanos.rem_euclid(SECOND)),
    }
}

/// 0, -1, 1, -2, 2 and so on as 0, 1, 2, 3, 4.
fn unsigned(n: i128) -> u128 {
    (n << 1 ^ n >> 127).cast_unsigned()
}

fn signed(n: u128) -> i128 {
    (n >> 1).cast_signed() ^ -(n & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(secs: i64, nanos: u32) -> Stamp {
        Stamp { secs: secs.into(), nanos: nanos.into() }
    }

    fn usual() -> StatData {
        let (made, written) = (at(1_700_000_000, 999_990_000), at(1_700_000_001, 20_000));
        StatData {
            mode: 0o100_644.into(),
            nlink: 1.into(),
            uid: 1000.into(),
            gid: 1000.into(),
            generation: 5.into(),
            size: 125.into(),
            tail: 125.into(),
            atime: made,
            mtime: written,
            ctime: written,
            btime: made,
            ..StatData::default()
        }
    }

    /// The example of `docs/formats/reiserfs.md`.
    #[test]
    fn a_small_file() {
        let bytes = encode(&usual(), true, 0);
        let told = [
            0xa4, 0x83, 0x02, 0x01, 0xe8, 0x07, 0xe8, 0x07, 0x05, 0x7d, 0x7d, 0x82, 0xc4, 0x9f, 0xd5, 0x0c, 0xa0, 0x9c,
            0x01, 0x00, 0xdf, 0xd4, 0x03, 0xdf, 0xd4, 0x03,
        ];
        assert_eq!(bytes.strip_suffix(&[0; 14]), Some(&told[..]), "{bytes:x?}");
        assert_eq!(decode(&bytes), Some(usual()));
    }

    #[test]
    fn what_is_usual_keeps_its_length() {
        let len = |d: &StatData| encode(d, true, 0).len();
        assert_eq!(len(&usual()), LEAST);
        let unnamed = StatData { nlink: 0.into(), above: (3 << 32 | 1_000_000).into(), ..usual() };
        let read = StatData { atime: at(1_700_000_001 + 7 * 86400, 5), ..usual() };
        assert_eq!((len(&unnamed), len(&read)), (LEAST, LEAST));
        assert_eq!(len(&StatData { uid: (1 << 31).into(), gid: (1 << 31).into(), ..usual() }), LEAST + STEP);
        assert_eq!(encode(&usual(), true, 56).len(), 56, "it does not get shorter");
        assert_eq!(decode(&encode(&usual(), true, 56)), Some(usual()));
        assert_eq!(decode(&encode(&usual(), false, 0)), Some(usual()), "the old form");
    }

    /// Whatever happens to a file without being asked for, its stat data fit where they are.
    #[test]
    fn there_is_a_way_without_space() {
        let far = StatData {
            nlink: 0.into(),
            above: u64::MAX.into(),
            atime: at(i64::MIN, 7),
            mtime: at(8_000_000_000, 999_999_999),
            ctime: at(i64::MAX, 7),
            btime: at(i64::MIN, 7),
            ..usual()
        };
        let len = encode(&usual(), true, 0).len();
        let body = fitted(&far, len).unwrap();
        let expected = StatData { atime: far.mtime, ctime: far.mtime, btime: far.mtime, ..far };
        assert_eq!((body.len(), decode(&body)), (len, Some(expected)));
        let exact = StatData { above: 9.into(), ..usual() };
        assert_eq!(fitted(&exact, len).and_then(|body| decode(&body)), Some(exact), "what fits is kept");
        assert_eq!(fitted(&StatData { size: u64::MAX.into(), ..far }, len), None);
    }

    #[test]
    fn what_cannot_be_is_damage() {
        for bad in
            [vec![0x80; 40], vec![0xff; 48], vec![0x81; 1], [vec![0xff, 0xff, 0xff, 0xff, 0x7f], vec![0; 35]].concat()]
        {
            assert_eq!(decode(&bad), None, "{bad:x?}");
        }
        assert_eq!(decode(&[0; 40]), Some(StatData::default()));
    }

    fn some_stamp() -> impl Strategy<Value = Stamp> {
        (any::<i64>(), 0..1_000_000_000u32).prop_map(|(secs, nanos)| at(secs, nanos))
    }

    proptest! {
        #[test]
        fn all_of_it_comes_back(
            short in any::<[u32; 9]>(), long in any::<[u64; 2]>(),
            times in [some_stamp(), some_stamp(), some_stamp(), some_stamp()], least in 0usize..80,
        ) {
            let [mode, nlink, uid, gid, rdev, generation, blocks, tail, xattr] = short.map(Into::into);
            let [size, above] = long.map(Into::into);
            let [atime, mtime, ctime, btime] = times;
            let d = StatData {
                mode, nlink, uid, gid, rdev, generation, size, above, blocks, tail, xattr, atime, mtime, ctime, btime,
            };
            let bytes = encode(&d, true, least);
            prop_assert!(bytes.len() >= least && bytes.len() != STAT_DATA);
            prop_assert_eq!(decode(&bytes), Some(d));
            let later = StatData { mtime: at(1 << 32, 999_999_999), ctime: times[0], above: long[0].into(), ..d };
            prop_assert!(fitted(&later, bytes.len()).is_some());
        }

        #[test]
        fn no_bytes_are_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            if let Some(d) = decode(&bytes).filter(|_| bytes.len() != STAT_DATA) {
                prop_assert_eq!(decode(&encode(&d, true, 0)), Some(d));
            }
        }
    }
}
