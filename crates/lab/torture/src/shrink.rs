//! Makes a failing list of operations smaller: delta debugging with a bound on runs.

use crate::ops::Op;

/// The smallest list found in `runs` runs for which `fails` still gives a failure, and that
/// failure; `None` if not even `ops` fails.
pub fn shrink<F>(ops: &[Op], runs: usize, mut fails: impl FnMut(&[Op]) -> Option<F>) -> Option<(Vec<Op>, F)> {
    let mut left = runs;
    let (mut best, mut failure) = (ops.to_vec(), fails(ops)?);
    let mut chunk = best.len().div_ceil(2).max(1);
    loop {
        let (mut at, before) = (0, best.len());
        while at < best.len() {
            if left == 0 {
                return Some((best, failure));
            }
            left -= 1;
            let end = (at + chunk).min(best.len());
            let candidate = [&best[..at], &best[end..]].concat();
            match fails(&candidate) {
                Some(f) => (best, failure) = (candidate, f),
                None => at = end,
            }
        }
        if chunk == 1 && best.len() == before {
            return Some((best, failure));
        }
        chunk = chunk.div_ceil(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{Profile, generate};

    #[test]
    fn finds_the_two_that_matter() {
        let ops = generate(Profile::Small, 1, 300);
        let (a, b) = (ops[40].clone(), ops[222].clone());
        let (small, ()) = shrink(&ops, 500, |o| (o.contains(&a) && o.contains(&b)).then_some(())).unwrap();
        assert_eq!(small.len(), 2);
    }
}
