//! Walks through trees of directories: which directories a walk is about to read.
//!
//! A program that looks at all names and attributes below a directory reads one directory after another, and is busy
//! with the entries it has while the next could be read. [`Walks`] knows where walks are and tells which pieces of
//! which directories to bring next, as long as walks miss the cache now and then.
//!
//! Typical sequence, the engine's state locked: [`Walks::stopped`] or [`Walks::ended`] after a call
//! that gave out entries; then, in the background, [`Walks::take`], bring that piece, [`Walks::brought`].

use std::collections::VecDeque;

/// Most directories to come that are remembered, of all walks together.
const MOST_DIRS: usize = 1024;
/// Directories that are begun ahead of a walk.
const AHEAD: usize = 2;
/// Most pieces that wait to be brought; older ones are out of date.
const MOST_PIECES: usize = 4;
/// Pieces brought since one had to be read, after which walks count as warm. Pieces overlap.
const WARM: u32 = 8;

/// A piece of a directory: the directory's inode, and the key of the first entry.
pub type Piece = (u64, u64);

struct Coming {
    dir: u64,
    parent: u64,
    begun: bool,
}

/// Where walks are.
#[derive(Default)]
pub struct Walks {
    /// Directories that were found and not walked yet; the next one is the last.
    coming: VecDeque<Coming>,
    pieces: VecDeque<Piece>,
    /// How many more pieces may be found in the cache before walks count as warm, and no more are brought.
    cold: u32,
}

impl Walks {
    /// Called when a call has returned entries of `dir` up to, without, key `next`. `found` are the directories among
    /// them; `missed` if something had to be read.
    pub fn stopped(&mut self, dir: u64, next: u64, found: &[u64], missed: bool) {
        self.found(dir, found);
        self.met(missed);
        if self.cold > 0 {
            self.push((dir, next));
        }
    }

    /// As [`Walks::stopped`], with the last entries of `dir`.
    pub fn ended(&mut self, dir: u64, found: &[u64], missed: bool) {
        self.coming.retain(|c| c.dir != dir);
        self.found(dir, found);
        self.met(missed);
        if self.cold == 0 {
            return;
        }
        let next: Vec<u64> = self
            .coming
            .iter_mut()
            .rev()
            .take(AHEAD)
            .filter(|c| !c.begun)
            .map(|c| {
                c.begun = true;
                c.dir
            })
            .collect();
        next.into_iter().for_each(|dir| self.push((dir, 0)));
    }

    /// Directories that a walk has met in `parent`; they come after those that it met there before.
    fn found(&mut self, parent: u64, dirs: &[u64]) {
        let at = self.coming.iter().position(|c| c.parent == parent).unwrap_or(self.coming.len());
        let later = self.coming.split_off(at);
        self.coming.extend(dirs.iter().rev().map(|&dir| Coming { dir, parent, begun: false }));
        self.coming.extend(later);
        let over = self.coming.len().saturating_sub(MOST_DIRS);
        self.coming.drain(..over);
    }

    fn push(&mut self, piece: Piece) {
        if self.pieces.len() == MOST_PIECES {
            self.pieces.pop_front();
        }
        self.pieces.push_back(piece);
    }

    /// Whether there is a piece to bring.
    pub fn has_piece(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// The next piece to bring.
    pub fn take(&mut self) -> Option<Piece> {
        self.pieces.pop_front()
    }

    /// Called when a piece has been brought; `missed` if the cache did not have it.
    pub fn brought(&mut self, missed: bool) {
        self.cold = self.cold.saturating_sub(1);
        self.met(missed);
    }

    fn met(&mut self, missed: bool) {
        if missed {
            self.cold = WARM;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(walks: &mut Walks) -> Vec<Piece> {
        std::iter::from_fn(|| walks.take()).collect()
    }

    #[test]
    fn a_cold_walk_has_its_next_pieces_brought() {
        let mut walks = Walks::default();
        walks.stopped(1, 40, &[], true);
        assert_eq!(pieces(&mut walks), [(1, 40)]);
        walks.brought(true);
        // It finds what was brought, and goes on being cold.
        walks.stopped(1, 80, &[2], false);
        walks.ended(1, &[3, 4], false);
        assert_eq!(pieces(&mut walks), [(1, 80), (2, 0), (3, 0)]);
        // Depth first: what is found in 2 comes before 3, which has been begun already.
        walks.ended(2, &[5], false);
        assert_eq!(pieces(&mut walks), [(5, 0)]);
        walks.ended(5, &[], false);
        assert_eq!(pieces(&mut walks), [(4, 0)]);
    }

    #[test]
    fn a_warm_walk_asks_for_nothing() {
        let mut walks = Walks::default();
        walks.stopped(1, 40, &[], false);
        walks.ended(1, &[2, 3], false);
        assert!(!walks.has_piece());
        walks.ended(2, &[], true);
        assert_eq!(pieces(&mut walks), [(3, 0)]);
        for n in 0..WARM {
            walks.stopped(3, u64::from(n), &[], false);
            assert!(walks.take().is_some());
            walks.brought(false);
        }
        walks.stopped(3, 100, &[], false);
        assert!(!walks.has_piece());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut walks = Walks::default();
        walks.ended(1, &(10..10_000).collect::<Vec<_>>(), true);
        assert_eq!(walks.coming.len(), MOST_DIRS);
        assert_eq!(pieces(&mut walks), [(10, 0), (11, 0)]);
        (0..100).for_each(|n| walks.stopped(1, n, &[], true));
        assert_eq!(pieces(&mut walks), [(1, 96), (1, 97), (1, 98), (1, 99)]);
    }
}
