//! Directories that are remembered by name.

/// A directory that a [`Trail`] keeps; `None` is where the trail begins.
pub(crate) type Kept = Option<usize>;

/// The names that lead down to a directory, and others that it has led to and keeps. What is kept costs a name each,
/// however deep it lies: those above it are kept once for all.
#[derive(Default)]
pub(crate) struct Trail {
    way: Vec<Step>,
    kept: Vec<(Kept, Vec<u8>)>,
}

struct Step {
    name: Vec<u8>,
    /// Where it is kept, if it is. Then all above it are.
    kept: Kept,
}

impl Trail {
    pub(crate) fn enter(&mut self, name: &[u8]) {
        self.way.push(Step { name: name.to_vec(), kept: None });
    }

    pub(crate) fn leave(&mut self) {
        self.way.pop();
    }

    /// Goes up, if it is deeper than this.
    pub(crate) fn cut(&mut self, depth: usize) {
        self.way.truncate(depth);
    }

    /// Goes to the directory to which these names lead from the beginning.
    pub(crate) fn go<'a>(&mut self, names: impl Iterator<Item = &'a [u8]>) {
        let mut depth = 0;
        for name in names {
            if self.way.get(depth).is_none_or(|step| step.name != name) {
                self.cut(depth);
                self.enter(name);
            }
            depth += 1;
        }
        self.cut(depth);
    }

    /// Keeps the directory at hand.
    pub(crate) fn keep(&mut self) -> Kept {
        let known = self.way.iter().rposition(|step| step.kept.is_some()).map_or(0, |last| last + 1);
        let mut kept = known.checked_sub(1).and_then(|last| self.way.get(last)?.kept);
        for step in self.way.iter_mut().skip(known) {
            self.kept.push((kept, step.name.clone()));
            kept = Some(self.kept.len() - 1);
            step.kept = kept;
        }
        kept
    }

    /// The names that lead to a directory that was kept.
    pub(crate) fn names(&self, mut kept: Kept) -> Vec<&[u8]> {
        let mut names = Vec::new();
        while let Some((above, name)) = kept.and_then(|kept| self.kept.get(kept)) {
            names.push(name.as_slice());
            kept = *above;
        }
        names.reverse();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_found_again_and_shares_what_is_above() {
        let mut trail = Trail::default();
        assert_eq!(trail.keep(), None);
        let mut places = Vec::new();
        for path in ["a/b/c", "a/b", "a/x/c", "", "a/b/c"] {
            trail.go(path.split('/').filter(|name| !name.is_empty()).map(str::as_bytes));
            places.push((path, trail.keep()));
        }
        for (path, kept) in places {
            assert_eq!(trail.names(kept).join(&b'/'), path.as_bytes());
        }
        // a, b, c; x, c; and all of the way after the trail had left it.
        assert_eq!(trail.kept.len(), 3 + 2 + 3);
    }

    #[test]
    fn a_deep_way_is_kept_once() {
        let mut trail = Trail::default();
        for _ in 0..1000 {
            trail.enter(b"down");
            trail.keep();
        }
        assert_eq!(trail.kept.len(), 1000);
        trail.leave();
        let kept = trail.keep();
        assert_eq!((trail.kept.len(), trail.names(kept).len()), (1000, 999));
    }
}
