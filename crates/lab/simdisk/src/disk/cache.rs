//! The write cache: dirty extents, written back in elevator order. Addresses are sectors.

use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct WriteCache {
    /// Start to end; they neither overlap nor touch.
    extents: BTreeMap<u64, u64>,
    dirty_sectors: u64,
    capacity_sectors: u64,
    /// Being written back; still takes room, and can still be read.
    leaving: Option<(u64, u64)>,
}

impl WriteCache {
    pub fn new(capacity_sectors: u64) -> WriteCache {
        WriteCache { capacity_sectors, ..WriteCache::default() }
    }

    pub fn is_clean(&self) -> bool {
        self.extents.is_empty() && self.leaving.is_none()
    }

    pub fn has_extents(&self) -> bool {
        !self.extents.is_empty()
    }

    /// Whether so many more sectors fit. A write larger than the cache goes through it once it is empty.
    pub fn has_room(&self, sectors: u64) -> bool {
        let used = self.dirty_sectors + self.leaving.map_or(0, |(start, end)| end - start);
        used == 0 || used + sectors <= self.capacity_sectors
    }

    /// Whether one extent has all of `start..end`.
    pub fn covers(&self, start: u64, end: u64) -> bool {
        self.extents.range(..=start).next_back().is_some_and(|(_, e)| end <= *e)
            || self.leaving.is_some_and(|(s, e)| s <= start && end <= e)
    }

    /// Makes `start..end` dirty.
    pub fn insert(&mut self, start: u64, end: u64) {
        let (mut start, mut end) = (start, end);
        while let Some((s, e)) = self.extents.range(..=end).next_back().map(|(s, e)| (*s, *e)) {
            if e < start {
                break;
            }
            self.extents.remove(&s);
            self.dirty_sectors -= e - s;
            (start, end) = (start.min(s), end.max(e));
        }
        self.extents.insert(start, end);
        self.dirty_sectors += end - start;
    }

    /// Takes the next piece to write back, at most `limit` sectors: the first at or after `from`, else the first of
    /// all.
    pub fn take(&mut self, from: u64, limit: u64) -> Option<(u64, u64)> {
        let inside = self.extents.range(..from).next_back().filter(|(_, e)| from < **e);
        let next = inside.or_else(|| self.extents.range(from..).next()).or_else(|| self.extents.iter().next());
        let (start, end) = next.map(|(s, e)| (*s, *e))?;
        let begin = if start < from && from < end { from } else { start };
        let stop = end.min(begin + limit);
        self.extents.remove(&start);
        if start < begin {
            self.extents.insert(start, begin);
        }
        if stop < end {
            self.extents.insert(stop, end);
        }
        self.dirty_sectors -= stop - begin;
        self.leaving = Some((begin, stop));
        self.leaving
    }

    /// What was taken last is on the media.
    pub fn written_back(&mut self) {
        self.leaving = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_join_and_leave_in_elevator_order() {
        let mut cache = WriteCache::new(100);
        cache.insert(10, 20);
        cache.insert(30, 40);
        cache.insert(18, 30);
        cache.insert(50, 55);
        assert!(cache.covers(10, 40) && !cache.covers(10, 41) && !cache.covers(5, 11));
        assert!(cache.has_room(65) && !cache.has_room(66));
        assert_eq!(cache.take(35, 100), Some((35, 40)));
        assert!(!cache.has_room(66), "what leaves takes room still");
        cache.written_back();
        assert_eq!(cache.take(40, 2), Some((50, 52)));
        assert_eq!(cache.take(52, 100), Some((52, 55)));
        assert_eq!(cache.take(55, 100), Some((10, 35)));
        assert_eq!(cache.take(0, 100), None);
        cache.written_back();
        assert!(cache.is_clean());
    }

    #[test]
    fn a_large_write_passes_through_an_empty_cache() {
        let cache = WriteCache::new(8);
        assert!(cache.has_room(1000));
    }
}
