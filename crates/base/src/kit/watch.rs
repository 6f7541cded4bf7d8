//! Whether others change a file while a call of several steps runs, which may have to take its own steps back.

use crate::vfs::Ino;
use rustc_hash::FxHashMap;

#[derive(Default)]
struct Watched {
    /// Calls that have to know.
    calls: u32,
    changes: u64,
}

/// Files that such calls work on, with the number of changes of their data and size.
#[derive(Default)]
pub struct Watch(FxHashMap<u64, Watched>);

impl Watch {
    /// A call begins; returns the number of changes so far.
    pub fn begin(&mut self, ino: Ino) -> u64 {
        let w = self.0.entry(ino.0).or_default();
        w.calls += 1;
        w.changes
    }

    /// A file's data or size changes.
    pub fn note(&mut self, ino: Ino) {
        if let Some(w) = self.0.get_mut(&ino.0) {
            w.changes += 1;
        }
    }

    /// Changes of a file that is watched.
    pub fn changes(&self, ino: Ino) -> u64 {
        self.0.get(&ino.0).map_or(0, |w| w.changes)
    }

    /// A call ends.
    pub fn end(&mut self, ino: Ino) {
        if let Some(w) = self.0.get_mut(&ino.0) {
            w.calls -= 1;
            if w.calls == 0 {
                self.0.remove(&ino.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_calls_see_each_other() {
        let mut watch = Watch::default();
        watch.note(Ino(7));
        let first = watch.begin(Ino(7));
        assert_eq!(first, 0);
        watch.note(Ino(7));
        watch.note(Ino(8));
        assert_eq!((watch.changes(Ino(7)), watch.changes(Ino(8))), (1, 0));
        assert_eq!(watch.begin(Ino(7)), 1);
        watch.end(Ino(7));
        watch.note(Ino(7));
        assert_eq!(watch.changes(Ino(7)), 2);
        watch.end(Ino(7));
        assert!(watch.0.is_empty());
    }
}
