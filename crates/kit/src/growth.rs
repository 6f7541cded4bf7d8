//! Sizes of files that calls of several steps (fallocate) are extending, so that a failed call can be undone.

use arbor_base::vfs::Ino;
use rustc_hash::FxHashMap;

struct Growing {
    /// Calls that are under way.
    calls: u32,
    /// One of the calls has failed.
    failed: bool,
    /// The size of the file by the calls that have succeeded.
    keep: u64,
}

/// Files that such calls are extending.
#[derive(Default)]
pub struct PendingGrowth(FxHashMap<u64, Growing>);

impl PendingGrowth {
    /// Begins a call on a file of `size` bytes.
    pub fn begin(&mut self, ino: Ino, size: u64) {
        self.0.entry(ino.0).or_insert(Growing { calls: 0, failed: false, keep: size }).calls += 1;
    }

    /// Notes a write up to byte `end`.
    pub fn wrote(&mut self, ino: Ino, end: u64) {
        if let Some(w) = self.0.get_mut(&ino.0) {
            w.keep = w.keep.max(end);
        }
    }

    /// Notes that the file was, or is being, resized to `to` bytes.
    pub fn cut(&mut self, ino: Ino, to: u64) {
        if let Some(w) = self.0.get_mut(&ino.0) {
            w.keep = to;
        }
    }

    /// Called after the steps of a call: it has extended the file to `end`, or has failed.
    pub fn done(&mut self, ino: Ino, end: Option<u64>, failed: bool) {
        end.into_iter().for_each(|end| self.wrote(ino, end));
        if let Some(w) = self.0.get_mut(&ino.0) {
            w.failed |= failed;
        }
    }

    /// The size to which the last call has to truncate the file, if one has failed.
    pub fn to_undo(&self, ino: Ino) -> Option<u64> {
        self.0.get(&ino.0).filter(|w| w.failed && w.calls == 1).map(|w| w.keep)
    }

    /// Ends a call.
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
    fn the_last_call_undoes() {
        let (mut watch, ino) = (PendingGrowth::default(), Ino(7));
        watch.wrote(ino, 9000);
        watch.begin(ino, 100);
        watch.begin(ino, 500);
        watch.wrote(ino, 300);
        watch.done(ino, None, true);
        assert_eq!(watch.to_undo(ino), None);
        watch.end(ino);
        watch.done(ino, Some(400), false);
        assert_eq!(watch.to_undo(ino), Some(400));
        watch.cut(ino, 50);
        assert_eq!(watch.to_undo(ino), Some(50));
        watch.end(ino);
        assert!(watch.0.is_empty());
    }
}
