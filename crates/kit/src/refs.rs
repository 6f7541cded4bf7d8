//! Lookup counts of inodes. Neighbouring numbers are kept together, since a walk counts one after another.

use arbor_base::vfs::Ino;
use rustc_hash::FxHashMap;

/// Inodes of a group.
const GROUP: u64 = 8;

/// How many references the kernel, or another user, holds to each inode.
#[derive(Default)]
pub struct Refs(FxHashMap<u64, [u64; GROUP as usize]>);

impl Refs {
    /// One more for `ino`.
    pub fn add(&mut self, ino: Ino) {
        let count = &mut self.0.entry(ino.0 / GROUP).or_default()[(ino.0 % GROUP) as usize];
        *count = count.saturating_add(1);
    }

    /// Whether there is any for `ino`.
    pub fn has(&self, ino: Ino) -> bool {
        self.0.get(&(ino.0 / GROUP)).is_some_and(|group| group[(ino.0 % GROUP) as usize] > 0)
    }

    /// Subtracts `n` for `ino`, at most all. Returns whether the count has fallen to 0; `false` if it was 0.
    pub fn release(&mut self, ino: Ino, n: u64) -> bool {
        let Some(group) = self.0.get_mut(&(ino.0 / GROUP)) else { return false };
        let count = &mut group[(ino.0 % GROUP) as usize];
        let last = *count > 0 && *count <= n;
        *count = count.saturating_sub(n);
        if last && group.iter().all(|count| *count == 0) {
            self.0.remove(&(ino.0 / GROUP));
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_count_apart() {
        let mut refs = Refs::default();
        assert!(!refs.release(Ino(8), 1));
        for ino in [8, 8, 9, 16] {
            refs.add(Ino(ino));
        }
        assert!(refs.has(Ino(8)) && refs.has(Ino(9)) && !refs.has(Ino(10)) && !refs.has(Ino(0)));
        assert!(!refs.release(Ino(8), 1));
        assert!(refs.release(Ino(8), 5) && !refs.release(Ino(8), 1));
        assert!(refs.has(Ino(9)) && refs.release(Ino(9), 1));
        assert_eq!(refs.0.len(), 1);
    }
}
