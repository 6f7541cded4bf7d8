//! Long work in shares, which several runs or machines do one after the other or side by side.

use crate::rng::mix;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One of several shares of a whole: each number of the whole is in one share alone, drawn, so that each is a fair sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Which one, from 0.
    number: u64,
    /// How many there are.
    of: u64,
}

impl Share {
    /// All of it.
    pub const WHOLE: Share = Share { number: 0, of: 1 };

    fn has(self, number: u64) -> bool {
        mix(number) % self.of == self.number
    }
}

impl FromStr for Share {
    type Err = String;

    /// Reads `2/8`, the second of eight.
    fn from_str(text: &str) -> Result<Share, String> {
        let numbers = text.split_once('/').and_then(|(n, of)| Some((n.parse::<u64>().ok()?, of.parse().ok()?)));
        match numbers {
            Some((n, of)) if (1..=of).contains(&n) => Ok(Share { number: n - 1, of }),
            _ => Err("not a share: write which of how many, as in 2/8".to_string()),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number + 1, self.of)
    }
}

/// The numbers of a share from 0 up to a total; shared by threads.
pub(crate) struct Numbers {
    next: AtomicU64,
    total: u64,
    share: Share,
}

impl Numbers {
    /// All numbers below `total`.
    pub fn below(total: u64) -> Numbers {
        Numbers { next: AtomicU64::new(0), total, share: Share::WHOLE }
    }

    /// Gives out those of `share` only.
    pub fn only(&mut self, share: Share) {
        self.share = share;
    }

    /// The next number that nobody has taken; `None` when there is none left.
    pub fn take(&self) -> Option<u64> {
        loop {
            let number = self.next.fetch_add(1, Relaxed);
            if number >= self.total {
                return None;
            }
            if self.share.has(number) {
                return Some(number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_the_whole() {
        let mut all: Vec<u64> = Vec::new();
        for n in 1..=5 {
            let share: Share = format!("{n}/5").parse().expect("a share");
            assert_eq!(share.to_string(), format!("{n}/5"));
            let mut numbers = Numbers::below(1000);
            numbers.only(share);
            let own: Vec<u64> = std::iter::from_fn(|| numbers.take()).collect();
            assert!((150..250).contains(&own.len()), "{} of 1000", own.len());
            all.extend(own);
        }
        all.sort_unstable();
        assert_eq!(all, Vec::from_iter(0..1000));
    }

    #[test]
    fn what_is_no_share_is_refused() {
        for text in ["", "2", "0/8", "9/8", "1/0", "a/b", "1/2/3", "-1/2"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }
}
