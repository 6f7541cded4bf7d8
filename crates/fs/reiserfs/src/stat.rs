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
    let least = roomy(d).max(least).max(LEAST);
    match near_numbers(d) {
        Some(numbers) => told_near(&numbers, least),
        None => {
            let numbers = numbers(d);
            told(&numbers, len_of(&numbers).max(least).next_multiple_of(STEP))
        }
    }
}

/// Bytes for what is usual: links and lengths as they are, times of one moment before the year 2242, anything above.
fn roomy(d: &StatData) -> usize {
    const TIMES: usize = 5 + 5 + 3;
    const ABOVE: usize = 10;
    let all = [d.mode, d.nlink, d.uid, d.gid, d.generation, d.tail, d.blocks, d.xattr];
    let short: usize = all.iter().map(|n| u64::from(n.get()).digits()).sum();
    let rdev = Some(u64::from(d.rdev.get())).filter(|n| *n != 0).map_or(0, Number::digits);
    short + d.size.get().digits() + TIMES + ABOVE + rdev
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

/// Whether one differs from the other in nothing but its times and its size, which is told in as many bytes: the same bytes
/// are enough for it ([`fitted`]).
pub(crate) fn is_touched(old: &StatData, new: &StatData) -> bool {
    let StatData { size, mtime, ctime, .. } = *new;
    old.size.get().digits() == size.get().digits() && StatData { size, mtime, ctime, ..*old } == *new
}

/// A number that is told: nearly all have 64 bits.
trait Number: Copy {
    /// Whether it need not be told at the end.
    fn is_zero(self) -> bool;

    /// Bytes of it, each with 7 bits.
    fn digits(self) -> usize;

    /// Tells it.
    fn tell(self, bytes: &mut Vec<u8>);
}

impl Number for u64 {
    fn is_zero(self) -> bool {
        self == 0
    }

    fn digits(self) -> usize {
        (self | 1).ilog2() as usize / 7 + 1
    }

    fn tell(mut self, bytes: &mut Vec<u8>) {
        while self > 0x7f {
            bytes.push(self as u8 | 0x80);
            self >>= 7;
        }
        bytes.push(self as u8);
    }
}

impl Number for u128 {
    fn is_zero(self) -> bool {
        self == 0
    }

    fn digits(self) -> usize {
        (self | 1).ilog2() as usize / 7 + 1
    }

    fn tell(mut self, bytes: &mut Vec<u8>) {
        while self > u64::MAX.into() {
            bytes.push(self as u8 | 0x80);
            self >>= 7;
        }
        (self as u64).tell(bytes);
    }
}

/// Those of the numbers that are told: not those that are 0 at the end.
fn those_told<N: Number>(all: &[N]) -> &[N] {
    let told = all.iter().rposition(|n| !n.is_zero()).map_or(0, |last| last + 1);
    all.get(..told).unwrap_or(all)
}

/// Bytes of the numbers as far as they are told.
fn len_of<N: Number>(all: &[N]) -> usize {
    those_told(all).iter().map(|n| n.digits()).sum()
}

/// The numbers as far as they are told, in `len` bytes.
fn told<N: Number>(all: &[N], len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    those_told(all).iter().for_each(|n| n.tell(&mut bytes));
    bytes.resize(len, 0);
    bytes
}

/// The same for numbers of 64 bits, in at least so many bytes, without counting their digits beforehand.
fn told_near(all: &[u64; DENSE.len()], least: usize) -> Vec<u8> {
    // A multiple of `STEP`, with room for all digits and for what is usual.
    let (mut bytes, mut len) = ([0; 2 * DENSE.len() * STEP], 0);
    let mut places = bytes.iter_mut();
    for n in those_told(all) {
        let mut n = *n;
        for place in places.by_ref() {
            len += 1;
            if n <= 0x7f {
                *place = n as u8;
                break;
            }
            *place = n as u8 | 0x80;
            n >>= 7;
        }
    }
    let len = len.max(least).next_multiple_of(STEP);
    let mut told = bytes.get(..len).unwrap_or(&bytes).to_vec();
    // Longer ones are on no disk but a damaged one.
    told.resize(len, 0);
    told
}

/// The stat data in these bytes; `None` if they are damaged.
pub fn decode(body: &[u8]) -> Option<StatData> {
    if body.len() == STAT_DATA {
        return StatData::read_from_bytes(body).ok();
    }
    decode_near(body).or_else(|| decode_far(body))
}

/// The same where all numbers are short and all times near each other, as they nearly always are; `None` if they are not.
fn decode_near(body: &[u8]) -> Option<StatData> {
    /// Bits of nine digits.
    const MOST: u32 = 63;
    let (mut numbers, mut at) = ([0; DENSE.len()], 0);
    for n in &mut numbers {
        let Some(mut byte) = body.get(at).copied() else { break };
        let mut shift = 0;
        // Most have one digit.
        while byte & 0x80 != 0 {
            *n |= u64::from(byte & 0x7f) << shift;
            (at, shift) = (at + 1, shift + 7);
            byte = body.get(at).copied().filter(|_| shift < MOST)?;
        }
        *n |= u64::from(byte) << shift;
        at += 1;
    }
    let [mode, nlink, uid, gid, generation, size, tail, secs, nanos, ctime, atime, btime, blocks, xattr, above, rdev] =
        numbers;
    let short = |n: u64| u32::try_from(n).ok().map(Into::into);
    let nanos = u32::try_from(nanos).ok().filter(|nanos| i128::from(*nanos) < SECOND)?;
    let mtime = Stamp { secs: near_signed(secs).into(), nanos: nanos.into() };
    Some(StatData {
        mode: short(mode)?,
        nlink: short(nlink)?,
        uid: short(uid)?,
        gid: short(gid)?,
        rdev: short(rdev)?,
        generation: short(generation)?,
        size: size.into(),
        above: above.into(),
        blocks: short(blocks)?,
        tail: short(tail)?,
        xattr: short(xattr)?,
        atime: later(mtime, near_signed(atime))?,
        mtime,
        ctime: later(mtime, near_signed(ctime))?,
        btime: later(mtime, near_signed(btime))?,
    })
}

/// The moment so many nanoseconds after another one.
fn later(s: Stamp, nanos: i64) -> Option<Stamp> {
    const SHORT: i64 = SECOND as i64;
    if nanos == 0 {
        return Some(s);
    }
    let nanos = nanos.checked_add(s.nanos.get().into())?;
    let secs = s.secs.get().checked_add(nanos.div_euclid(SHORT))?;
    Some(Stamp { secs: secs.into(), nanos: (nanos.rem_euclid(SHORT) as u32).into() })
}

fn decode_far(body: &[u8]) -> Option<StatData> {
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

/// The next number of a body, if it has no more than nine digits; 0 behind its end.
fn near_number(body: &[u8], at: &mut usize) -> Option<u64> {
    let (mut n, mut to) = (0, *at);
    for digit in 0..9 {
        let Some(byte) = body.get(to) else { return (to == *at).then_some(0) };
        n |= u64::from(byte & 0x7f) << (7 * digit);
        to += 1;
        if byte & 0x80 == 0 {
            *at = to;
            return Some(n);
        }
    }
    None
}

/// The next number of a body; 0 behind its end. `None` for one that does not end, or is too long.
fn next_number(body: &[u8], at: &mut usize) -> Option<u128> {
    if let Some(n) = near_number(body, at) {
        return Some(n.into());
    }
    let mut n = 0;
    for (digit, byte) in body.get(*at..)?.iter().enumerate().take(126 / 7) {
        n |= u128::from(byte & 0x7f) << (7 * digit);
        if byte & 0x80 == 0 {
            *at += digit + 1;
            return Some(n);
        }
    }
    None
}

/// The numbers of [`numbers`] in 64 bits, if the times are whole and near each other.
fn near_numbers(d: &StatData) -> Option<[u64; DENSE.len()]> {
    let since = |s: Stamp| near(d.mtime, s).map(near_unsigned);
    let [mode, nlink, uid, gid] = [d.mode, d.nlink, d.uid, d.gid].map(|n| n.get().into());
    let [generation, tail, blocks] = [d.generation, d.tail, d.blocks].map(|n| n.get().into());
    let (size, above) = (d.size.get(), d.above.get());
    let part = Some(u64::from(d.mtime.nanos.get())).filter(|part| i128::from(*part) < SECOND)?;
    let secs = near_unsigned(d.mtime.secs.get());
    let (ctime, atime, btime) = (since(d.ctime)?, since(d.atime)?, since(d.btime)?);
    let (xattr, rdev) = (d.xattr.get().into(), d.rdev.get().into());
    Some([mode, nlink, uid, gid, generation, size, tail, secs, part, ctime, atime, btime, blocks, xattr, above, rdev])
}

/// What [`DENSE`] says, in its order.
fn numbers(d: &StatData) -> [u128; DENSE.len()] {
    let since = |s: Stamp| unsigned(nanos(s) - nanos(d.mtime));
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

/// From one moment to another, ns, if they are near each other.
fn near(from: Stamp, to: Stamp) -> Option<i64> {
    const CENTURY: u64 = 100 * 365 * 86400;
    let secs = to.secs.get().checked_sub(from.secs.get()).filter(|secs| secs.unsigned_abs() < CENTURY)?;
    Some(secs * SECOND as i64 + i64::from(to.nanos.get()) - i64::from(from.nanos.get()))
}

fn stamp(nanos: i128) -> Option<Stamp> {
    let (secs, part) = parts(nanos);
    Some(Stamp { secs: i64::try_from(secs).ok()?.into(), nanos: (part as u32).into() })
}

/// Whole seconds, and what is left.
fn parts(nanos: i128) -> (i128, i128) {
    (nanos.div_euclid(SECOND), nanos.rem_euclid(SECOND))
}

/// 0, -1, 1, -2, 2 and so on as 0, 1, 2, 3, 4.
fn unsigned(n: i128) -> u128 {
    (n << 1 ^ n >> 127).cast_unsigned()
}

fn signed(n: u128) -> i128 {
    (n >> 1).cast_signed() ^ -(n & 1).cast_signed()
}

fn near_unsigned(n: i64) -> u64 {
    (n << 1 ^ n >> 63).cast_unsigned()
}

fn near_signed(n: u64) -> i64 {
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
        fn what_is_near_is_told_in_the_same_way(
            short in any::<[u32; 9]>(), long in [0..1u64 << 62, 0..1u64 << 62], secs in -(1i64 << 40)..1 << 40,
            since in [-100_000i64..100_000, 0..2, 0..1], nanos in [0..1_000_000_000u32, 0..1_000_000_000, 0..3, 0..1],
        ) {
            let [mode, nlink, uid, gid, rdev, generation, blocks, tail, xattr] = short.map(Into::into);
            let [size, above] = long.map(Into::into);
            let [atime, ctime, btime] = [0, 1, 2].map(|n| at(secs + since[n], nanos[n]));
            let mtime = at(secs, nanos[3]);
            let d = StatData {
                mode, nlink, uid, gid, rdev, generation, size, above, blocks, tail, xattr, atime, mtime, ctime, btime,
            };
            prop_assert_eq!(near_numbers(&d).map(|all| all.map(u128::from)), Some(numbers(&d)));
            let bytes = encode(&d, true, 0);
            prop_assert_eq!((decode_near(&bytes), decode_far(&bytes)), (Some(d), Some(d)));
        }

        #[test]
        fn no_bytes_are_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            if let Some(d) = decode(&bytes).filter(|_| bytes.len() != STAT_DATA) {
                prop_assert_eq!(decode(&encode(&d, true, 0)), Some(d));
            }
        }
    }
}
