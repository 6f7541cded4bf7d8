//! Free space as a bitmap, with a binary buddy encoding and a 4-ary summary tree (yFS, section 3.2).
//!
//! A set bit is in use. Bit `i` is bit `i % 8` of byte `i / 8`. The bitmap is cut into groups of 32
//! bits, and each group has one signed byte:
//!
//! * `0..=5`: the order of the largest free buddy in the group; a buddy of order `k` is `2^k` free
//!   bits that start at a multiple of `2^k`;
//! * `k > 5`: the group starts a free buddy of order `k` that spans several groups;
//! * `-k`: the group starts a free buddy of order `k` that its left buddy has absorbed;
//! * [`NOFREE`]: nothing is free.
//!
//! So whatever the sign, a group of absolute value `k` starts, or has inside, `2^k` free bits. A
//! node of the tree holds the largest absolute value of its four children. All of it derives from
//! the bitmap and need not be stored.
//!
//! Typical sequence: [`Summary::find_run`] or a hint gives an extent, [`bitmap::set_used`] takes it,
//! [`Summary::used`] brings the summary up to date.

/// The encoding of a group without a free bit.
pub const NOFREE: i8 = -128;

/// Bits of a group, and the order of a group that is all free.
const GROUP: u32 = 32;
const GROUP_ORDER: u8 = 5;
/// Children of a node of the tree.
const FANOUT: usize = 4;
/// Places that one search for a run looks at, for each size.
const TRIES: usize = 8;

/// Bits of a bitmap that are not as they should be: how many, and the first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wrong {
    /// How many.
    pub count: u32,
    /// The number of the first one.
    pub first: u32,
}

impl Wrong {
    /// Counts the bits that are set in a byte whose lowest bit has number `at`.
    pub fn add(&mut self, bits: u8, at: u32) {
        if self.count == 0 && bits != 0 {
            self.first = at.saturating_add(bits.trailing_zeros());
        }
        self.count = self.count.saturating_add(bits.count_ones());
    }
}

/// Bits of a bitmap, where 1 is in use. Bits after the end of the slice count as in use, and
/// setting or clearing them does nothing.
pub mod bitmap {
    const WORD: u64 = 64;

    /// The 64 bits from `64 * i` on.
    fn word(bm: &[u8], i: u64) -> u64 {
        let Some(rest) = usize::try_from(i * 8).ok().and_then(|at| bm.get(at..)) else { return u64::MAX };
        match rest.first_chunk() {
            Some(bytes) => u64::from_le_bytes(*bytes),
            None => {
                let mut bytes = [0xff; 8];
                bytes.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
                u64::from_le_bytes(bytes)
            }
        }
    }

    /// Whether bit `i` is free.
    pub fn is_free(bm: &[u8], i: u32) -> bool {
        bm.get(i as usize / 8).is_some_and(|byte| byte & (1 << (i % 8)) == 0)
    }

    /// Applies `part` to the bytes that the bits lie in, with the mask of the bits.
    fn each_byte(bm: &mut [u8], start: u32, len: u32, part: impl Fn(&mut u8, u8)) {
        let (start, end) = (start as usize, start as usize + len as usize);
        debug_assert!(end <= bm.len() * 8 || len == 0, "bits {start}..{end} of {}", bm.len() * 8);
        let (first, last) = (start / 8, end.div_ceil(8).min(bm.len()));
        for (i, byte) in bm.get_mut(first..last).unwrap_or_default().iter_mut().enumerate() {
            let base = (first + i) * 8;
            let low = 0xffu8 << start.saturating_sub(base);
            let high = 0xffu8 >> (base + 8).saturating_sub(end);
            part(byte, low & high);
        }
    }

    /// Marks `len` bits as in use.
    pub fn set_used(bm: &mut [u8], start: u32, len: u32) {
        each_byte(bm, start, len, |byte, mask| *byte |= mask);
    }

    /// Marks `len` bits as free.
    pub fn set_free(bm: &mut [u8], start: u32, len: u32) {
        each_byte(bm, start, len, |byte, mask| *byte &= !mask);
    }

    /// Whether `len` bits are all free.
    pub fn all_free(bm: &[u8], start: u32, len: u32) -> bool {
        run(bm, u64::from(start), u64::from(start) + u64::from(len), 0) == u64::from(len)
    }

    /// Whether `len` bits are all in use.
    pub fn all_used(bm: &[u8], start: u32, len: u32) -> bool {
        run(bm, u64::from(start), u64::from(start) + u64::from(len), u64::MAX) == u64::from(len)
    }

    /// Length of the run of free bits (`flip` 0), or of bits in use (`flip` all ones), from `start`
    /// to `end` at most.
    fn run(bm: &[u8], start: u64, end: u64, flip: u64) -> u64 {
        let mut at = start;
        while at < end {
            let there = WORD - at % WORD;
            let n = u64::from(((word(bm, at / WORD) ^ flip) >> (at % WORD)).trailing_zeros()).min(there);
            at += n;
            if n < there {
                break;
            }
        }
        at.min(end).saturating_sub(start)
    }

    /// Length of the run of free bits from `start` on, `limit` at most, in a bitmap of `bits`.
    pub fn free_run(bm: &[u8], start: u32, limit: u32, bits: u32) -> u32 {
        let end = start.saturating_add(limit).min(bits);
        run(bm, u64::from(start), u64::from(end), 0) as u32
    }

    /// Length of the run of free bits that ends before `start`, `limit` at most.
    pub fn free_run_before(bm: &[u8], start: u32, limit: u32) -> u32 {
        let (start, low) = (u64::from(start), u64::from(start.saturating_sub(limit)));
        let mut at = start;
        while at > low {
            let there = (at - 1) % WORD + 1;
            let n = u64::from((word(bm, (at - 1) / WORD) << (WORD - there)).leading_zeros()).min(there);
            at -= n;
            if n < there {
                break;
            }
        }
        (start - at.max(low)) as u32
    }

    /// The first free bit at or after `from` in a bitmap of `bits`.
    pub fn next_free(bm: &[u8], from: u32, bits: u32) -> Option<u32> {
        let at = u64::from(from) + run(bm, u64::from(from), u64::from(bits), u64::MAX);
        u32::try_from(at).ok().filter(|&at| at < bits)
    }

    /// Number of free bits among the first `bits`.
    pub fn count_free(bm: &[u8], bits: u32) -> u32 {
        let bits = u64::from(bits);
        let whole: u32 = (0..bits / WORD).map(|i| word(bm, i).count_zeros()).sum();
        match bits % WORD {
            0 => whole,
            rest => whole + (word(bm, bits / WORD) | u64::MAX << rest).count_zeros(),
        }
    }
}

/// The buddy encoding of a bitmap and its summary tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    bits: u32,
    /// All nodes, leaves first and the root last.
    nodes: Vec<i8>,
    /// Where each level starts in `nodes`, and the end of the last.
    starts: Vec<usize>,
}

impl Summary {
    /// Encodes a bitmap of `bits` bits.
    pub fn build(bm: &[u8], bits: u32) -> Summary {
        let mut nodes: Vec<i8> = (0..bits.div_ceil(GROUP)).map(|g| encode(group_word(bm, bits, g as usize))).collect();
        let groups = nodes.len();
        let mut starts = vec![0, groups];
        let mut width = groups;
        while width > 1 {
            width = width.div_ceil(FANOUT);
            nodes.resize(nodes.len() + width, NOFREE);
            starts.push(nodes.len());
        }
        nodes.shrink_to_fit();
        let mut summary = Summary { bits, nodes, starts };
        for g in 0..groups {
            summary.merge(g, 0);
        }
        summary.update(0, groups);
        summary
    }

    /// Updates the summary after the bits from `start` on, now set in `bm`, have become used.
    pub fn used(&mut self, bm: &[u8], start: u32, len: u32) {
        let (first, end) = self.groups_of(start, len);
        for g in first..end {
            self.split(g);
            self.nodes[g] = encode(group_word(bm, self.bits, g));
        }
        self.update(first, end);
    }

    /// Updates the summary after the bits from `start` on, now clear in `bm`, have become free.
    pub fn freed(&mut self, bm: &[u8], start: u32, len: u32) {
        let (first, end) = self.groups_of(start, len);
        for g in first..end {
            self.split(g);
            self.nodes[g] = encode(group_word(bm, self.bits, g));
        }
        for g in first..end {
            self.merge(g, first);
        }
        self.update(first, end);
    }

    /// The order of the largest free buddy.
    pub fn largest(&self) -> Option<u8> {
        self.nodes.last().and_then(|&root| order(root))
    }

    /// The first bit of a free buddy of at least `2^order` bits: the first in or after the group of
    /// `from`, or else the first of all.
    pub fn find(&self, bm: &[u8], order: u8, from: u32) -> Option<u32> {
        let near = (from / GROUP) as usize;
        let g = self.next_group(order, near).or_else(|| self.next_group(order, 0))?;
        self.buddy_in(bm, g, order)
    }

    /// An extent for `want` bits: a free one of that length if a buddy says so, or if one of the
    /// places looked at happens to have it, preferably at or after `from`; else the longest found.
    /// Where free bits precede the buddy, the extent starts with them.
    pub fn find_run(&self, bm: &[u8], want: u32, from: u32) -> Option<(u32, u32)> {
        let top = self.largest()?;
        let (fits, part) = (ceil_log2(want)?, want.ilog2() as u8);
        if fits <= top {
            let start = self.find(bm, fits, from)?;
            return Some((start - bitmap::free_run_before(bm, start, want), want));
        }
        // A run of `want` bits has a buddy of at least half the largest power of two in `want`.
        let mut best = None;
        let most = part.min(top);
        for order in (most.saturating_sub(1)..=most).rev() {
            self.longest(bm, order, want, from, &mut best);
            if best.is_some_and(|(_, len)| len >= want) {
                break;
            }
        }
        best
    }

    /// Bytes that the summary takes.
    pub fn memory(&self) -> usize {
        size_of::<Summary>() + self.nodes.capacity() + self.starts.capacity() * size_of::<usize>()
    }

    /// The encodings of the groups.
    pub fn groups(&self) -> &[i8] {
        self.nodes.get(..self.width(0)).unwrap_or(&[])
    }

    /// Returns where the summary disagrees with the bitmap.
    pub fn check(&self, bm: &[u8]) -> Result<(), String> {
        let right = Summary::build(bm, self.bits);
        if right.starts != self.starts {
            return Err(format!("levels start at {:?}, expected {:?}", self.starts, right.starts));
        }
        match self.nodes.iter().zip(&right.nodes).position(|(a, b)| a != b) {
            Some(i) => Err(format!(
                "node {i} of {} holds {}, the bitmap gives {} (groups: {})",
                self.nodes.len(),
                self.nodes[i],
                right.nodes[i],
                self.width(0)
            )),
            None => Ok(()),
        }
    }
}

/// The buddies.
impl Summary {
    /// The groups that hold `len` bits from `start` on.
    fn groups_of(&self, start: u32, len: u32) -> (usize, usize) {
        let end = (u64::from(start) + u64::from(len)).min(u64::from(self.bits));
        match u64::from(start) < end {
            true => ((start / GROUP) as usize, end.div_ceil(u64::from(GROUP)) as usize),
            false => (0, 0),
        }
    }

    /// Takes group `g` out of the buddy that spans it and others.
    fn split(&mut self, g: usize) {
        let mut owner = g;
        while let k @ ..0 = self.nodes[owner]
            && k != NOFREE
        {
            owner -= span(k.unsigned_abs());
        }
        while let Some(k) = order(self.nodes[owner]).filter(|&k| k > GROUP_ORDER) {
            let half = (k - 1) as i8;
            let right = owner + span(k - 1);
            self.nodes[owner] = half;
            self.nodes[right] = half;
            if g >= right {
                self.climb(owner);
                owner = right;
            }
        }
    }

    /// Merges the buddy of group `g` with its neighbours while they are free and of one size,
    /// and brings the nodes above the groups before `first` up to date.
    fn merge(&mut self, g: usize, first: usize) {
        let mut owner = g;
        while self.nodes[owner] >= GROUP_ORDER as i8 {
            let k = self.nodes[owner];
            let buddy = owner ^ span(k.unsigned_abs());
            if buddy >= self.width(0) || self.nodes[buddy] != k {
                break;
            }
            self.nodes[owner.max(buddy)] = -k;
            owner = owner.min(buddy);
            self.nodes[owner] = k + 1;
            if owner < first {
                self.climb(owner);
            }
        }
    }

    /// The free buddy of `2^order` bits that group `g` starts or holds.
    fn buddy_in(&self, bm: &[u8], g: usize, order: u8) -> Option<u32> {
        let base = u32::try_from(g).ok()? * GROUP;
        if order >= GROUP_ORDER {
            return Some(base);
        }
        let free = buddies(group_word(bm, self.bits, g), order);
        (free != 0).then(|| base + free.trailing_zeros())
    }

    /// Searches the runs around some buddies of `2^order` for one longer than `best`.
    fn longest(&self, bm: &[u8], order: u8, want: u32, from: u32, best: &mut Option<(u32, u32)>) {
        let near = (from / GROUP) as usize;
        let (mut at, mut end) = (near, usize::MAX);
        for _ in 0..TRIES {
            let found = self.next_group(order, at).filter(|&g| g < end);
            let Some(g) = found.or_else(|| {
                let first = if end == usize::MAX { self.next_group(order, 0) } else { None };
                end = near;
                first.filter(|&g| g < end)
            }) else {
                return;
            };
            let Some(buddy) = self.buddy_in(bm, g, order) else { return };
            let start = buddy - bitmap::free_run_before(bm, buddy, want);
            let len = bitmap::free_run(bm, start, want, self.bits);
            if best.is_none_or(|(_, most)| len > most) {
                *best = Some((start, len));
            }
            if len >= want {
                return;
            }
            at = (g + 1).max(((start + len) / GROUP) as usize);
        }
    }
}

/// The tree.
impl Summary {
    /// Nodes of a level.
    fn width(&self, level: usize) -> usize {
        match (self.starts.get(level), self.starts.get(level + 1)) {
            (Some(start), Some(end)) => end - start,
            _ => 0,
        }
    }

    fn level(&self, level: usize) -> &[i8] {
        match (self.starts.get(level), self.starts.get(level + 1)) {
            (Some(&start), Some(&end)) => &self.nodes[start..end],
            _ => &[],
        }
    }

    /// Computes node `i` of a level above the leaves; returns whether it has changed.
    fn compute(&mut self, level: usize, i: usize) -> bool {
        let children = self.level(level - 1).iter().skip(i * FANOUT).take(FANOUT);
        let most = children.filter_map(|&v| order(v)).max().map_or(NOFREE, |k| k as i8);
        let at = self.starts[level] + i;
        std::mem::replace(&mut self.nodes[at], most) != most
    }

    /// Brings the nodes above one group up to date.
    fn climb(&mut self, g: usize) {
        let mut i = g;
        for level in 1..self.starts.len() - 1 {
            i /= FANOUT;
            if !self.compute(level, i) {
                return;
            }
        }
    }

    /// Brings the nodes above the groups `first..end` up to date.
    fn update(&mut self, first: usize, end: usize) {
        let (mut first, mut end) = (first, end);
        for level in 1..self.starts.len() - 1 {
            (first, end) = (first / FANOUT, end.div_ceil(FANOUT));
            for i in first..end {
                self.compute(level, i);
            }
        }
    }

    /// The first group from `from` on that starts or holds a free buddy of `2^wanted`.
    fn next_group(&self, wanted: u8, from: usize) -> Option<usize> {
        let enough = |&v: &i8| order(v).is_some_and(|k| k >= wanted);
        let first = |level, i: usize, n| self.level(level).iter().skip(i).take(n).position(enough).map(|at| i + at);
        let (mut level, mut i) = (0, from);
        let mut found = loop {
            if level + 1 >= self.starts.len() {
                return None;
            }
            if let Some(found) = first(level, i, FANOUT - i % FANOUT) {
                break found;
            }
            (level, i) = (level + 1, i / FANOUT + 1);
        };
        for below in (0..level).rev() {
            found = first(below, found * FANOUT, FANOUT)?;
        }
        Some(found)
    }
}

/// The order that an encoding stands for.
fn order(v: i8) -> Option<u8> {
    (v != NOFREE).then_some(v.unsigned_abs())
}

/// Groups of a buddy of order `k`, which is that of a group or higher.
fn span(k: u8) -> usize {
    1 << (k - GROUP_ORDER)
}

fn ceil_log2(n: u32) -> Option<u8> {
    n.checked_sub(1).map(|n| (u32::BITS - n.leading_zeros()) as u8)
}

/// The 32 bits of group `g`; those after the end are in use.
fn group_word(bm: &[u8], bits: u32, g: usize) -> u32 {
    let mut bytes = [0xff; 4];
    bytes.iter_mut().zip(bm.iter().skip(g * 4)).for_each(|(to, from)| *to = *from);
    let word = u32::from_le_bytes(bytes);
    match (g as u64 * u64::from(GROUP) + u64::from(GROUP)).saturating_sub(u64::from(bits)) {
        0 => word,
        past => word | u32::MAX.checked_shl(GROUP - past.min(u64::from(GROUP)) as u32).unwrap_or(0),
    }
}

/// One bit for the start of each free buddy of `2^order` in a group.
fn buddies(word: u32, order: u8) -> u32 {
    const STARTS: [u32; 5] = [0x5555_5555, 0x1111_1111, 0x0101_0101, 0x0001_0001, 0x0000_0001];
    let step = |free: u32, (k, starts): (usize, &u32)| free & (free >> (1 << k)) & starts;
    STARTS.iter().enumerate().take(usize::from(order)).fold(!word, step)
}

/// The order of the largest free buddy in a group.
fn encode(word: u32) -> i8 {
    let largest = (0..=GROUP_ORDER).rev().find(|&k| buddies(word, k) != 0);
    largest.map_or(NOFREE, |k| k as i8)
}
