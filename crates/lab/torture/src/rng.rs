//! The laboratory's own generator, so that a seed means the same for ever.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Rng(u64);

/// The finalizer of SplitMix64: a good mix of 64 bits.
pub fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Rng {
    /// A generator that starts at `seed`.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.next_u64() % n }
    }

    /// Whether an event of probability one in `n` happens.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of `items`, which must not be empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    /// Puts `items` into random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

/// Bytes that no other write has: made from the tag of the write and the offset in the file, never
/// zero, so that foreign and stale bytes are recognised.
pub fn pattern(tag: u64, offset: u64, len: usize) -> Vec<u8> {
    let (tag, skipped) = (of_tag(tag), (offset % 8) as usize);
    let mut out = vec![0; (skipped + len).next_multiple_of(8)];
    for (word, place) in (offset / 8..).zip(out.as_chunks_mut::<8>().0) {
        *place = without_zeros(mix(tag ^ word)).to_le_bytes();
    }
    out.drain(..skipped);
    out.truncate(len);
    out
}

/// Which of the tags below `tags` wrote `bytes` at `offset`, if one did.
pub fn whose(bytes: &[u8], offset: u64, tags: u64) -> Option<u64> {
    let window = &bytes[..bytes.len().min(16)];
    if window.len() < 4 {
        return None;
    }
    (0..tags).find(|t| pattern(*t, offset, window.len()) == window)
}

fn of_tag(tag: u64) -> u64 {
    mix(tag.wrapping_add(0x9e37_79b9))
}

/// Each byte that is 0 is 1.
fn without_zeros(word: u64) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    // The highest bit of each byte that is not 0.
    let some = ((word & LOW) + LOW) | word;
    word | ((!some & !LOW) >> 7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_become_ones() {
        for word in [0, 1, 0x80, 0xff00_ff00_8000_0100, u64::MAX, 0x0101_0001_0100_0001] {
            let bytes: [u8; 8] = u64::to_le_bytes(word);
            assert_eq!(without_zeros(word).to_le_bytes(), bytes.map(|b| b.max(1)), "{word:#x}");
        }
        assert_eq!(pattern(7, 8, 8), mix(of_tag(7) ^ 1).to_le_bytes().map(|b| b.max(1)));
    }

    #[test]
    fn pattern_depends_on_the_place_only() {
        let all = pattern(3, 0, 100);
        assert_eq!(pattern(3, 13, 50), all[13..63]);
        assert!(all.iter().all(|b| *b != 0));
        assert_eq!(whose(&all[40..80], 40, 10), Some(3));
        assert_eq!(whose(&all[41..80], 40, 10), None);
    }
}
