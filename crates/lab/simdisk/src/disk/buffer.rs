//! The track buffer: segments of sectors that were read, and the read-ahead that fills one of them while the disk
//! has nothing else to do. Addresses are sectors.

use super::mechanics::{Arm, Mechanics};

/// A run of sectors in the buffer.
#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    start: u64,
    end: u64,
    /// From when on the content is there.
    ready: u64,
    used: u64,
}

/// The read-ahead. It is computed only when somebody asks: `next` is the first sector not yet read, and `at` the
/// end of the one before it.
#[derive(Clone, Copy, Debug)]
struct Stream {
    segment: usize,
    arm: Arm,
    next: u64,
    at: u64,
    limit: u64,
}

/// What the buffer can do for a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// All of it is there, from this time on.
    Hit(u64),
    /// It begins in what the read-ahead has read or reads next.
    Joins,
    /// Nothing.
    Miss,
}

#[derive(Debug)]
pub(crate) struct Buffer {
    segments: Vec<Segment>,
    segment_sectors: u64,
    ahead_sectors: u64,
    disk_sectors: u64,
    stream: Option<Stream>,
    uses: u64,
}

impl Buffer {
    pub fn new(segments: usize, segment_sectors: u64, ahead_sectors: u64, disk_sectors: u64) -> Buffer {
        let segments = vec![Segment::default(); segments];
        Buffer { segments, segment_sectors, ahead_sectors, disk_sectors, stream: None, uses: 0 }
    }

    /// Lets the read-ahead go on until `now`.
    fn read_ahead(&mut self, mechanics: &Mechanics, now: u64) {
        let Some(stream) = &mut self.stream else { return };
        let layout = &mechanics.layout;
        while stream.next < stream.limit {
            let place = layout.place(stream.next);
            let there = stream.at + mechanics.positioning_ns(stream.arm, place, false);
            let begin = there + layout.wait_ns(place, there);
            if begin > now {
                break;
            }
            let n = (stream.limit - stream.next).min(u64::from(place.per_track - place.sector)) as u32;
            let n = n.min(layout.passed(place, now - begin));
            if n == 0 {
                break;
            }
            stream.next += u64::from(n);
            stream.at = begin + layout.span_ns(place, n);
            stream.arm = place.into();
        }
        let segment = &mut self.segments[stream.segment];
        segment.end = stream.next;
        segment.start = segment.start.max(segment.end.saturating_sub(self.segment_sectors));
    }

    /// Looks for `start..end` at time `now`.
    pub fn lookup(&mut self, mechanics: &Mechanics, start: u64, end: u64, now: u64) -> Lookup {
        self.read_ahead(mechanics, now);
        self.uses += 1;
        for (i, segment) in self.segments.iter_mut().enumerate() {
            if segment.start <= start && end <= segment.end {
                segment.used = self.uses;
                return Lookup::Hit(segment.ready);
            }
            let streams = self.stream.is_some_and(|s| s.segment == i);
            if streams && segment.start <= start && start <= segment.end {
                segment.used = self.uses;
                return Lookup::Joins;
            }
        }
        Lookup::Miss
    }

    /// After a hit that ended at `end`: the read-ahead keeps its distance, if the disk has nothing else to do and
    /// reads ahead for this reader or for none.
    pub fn keep_ahead(&mut self, end: u64, arm: Arm, now: u64) {
        let limit = self.limit(end);
        let Some(i) = self.segments.iter().position(|s| s.start < end && end <= s.end) else { return };
        match &mut self.stream {
            Some(stream) if stream.segment == i => {
                if stream.next == stream.limit {
                    stream.at = stream.at.max(now);
                }
                stream.limit = stream.limit.max(limit);
            }
            Some(stream) if stream.next < stream.limit => {}
            stream => {
                let (next, arm) = (self.segments[i].end, stream.map_or(arm, |s| s.arm));
                *stream = Some(Stream { segment: i, arm, next, at: now, limit: limit.max(next) });
            }
        }
    }

    /// The state from which a joined read goes on: arm, next sector and time.
    pub fn join(&mut self, now: u64) -> Option<(Arm, u64, u64)> {
        let stream = self.stream?;
        let idle = stream.next == stream.limit;
        Some((stream.arm, stream.next, if idle { stream.at.max(now) } else { stream.at }))
    }

    /// The mechanism turns to something else at `now`; where the read-ahead has left the arm.
    pub fn interrupt(&mut self, mechanics: &Mechanics, now: u64) -> Option<Arm> {
        self.read_ahead(mechanics, now);
        self.stream.take().map(|s| s.arm)
    }

    /// `start..end` was read from the media, until `at`; the read-ahead goes on from there.
    pub fn filled(&mut self, start: u64, end: u64, arm: Arm, at: u64) {
        if self.segments.is_empty() {
            return;
        }
        self.uses += 1;
        let continued = self.segments.iter().position(|s| s.start <= start && start <= s.end && s.start < s.end);
        let i = continued.unwrap_or_else(|| {
            let least = self.segments.iter().enumerate().min_by_key(|(_, s)| s.used);
            least.map_or(0, |(i, _)| i)
        });
        let segment = &mut self.segments[i];
        if continued.is_none() {
            segment.start = start;
        }
        segment.start = segment.start.max(end.saturating_sub(self.segment_sectors));
        (segment.end, segment.ready, segment.used) = (end, at, self.uses);
        let limit = self.limit(end);
        self.stream = Some(Stream { segment: i, arm, next: end, at, limit });
    }

    /// `start..end` is written: what the buffer has of it is out of date.
    pub fn written(&mut self, mechanics: &Mechanics, start: u64, end: u64, now: u64) {
        self.read_ahead(mechanics, now);
        for (i, segment) in self.segments.iter_mut().enumerate() {
            let streams = self.stream.is_some_and(|s| s.segment == i);
            let reach = match self.stream {
                Some(s) if streams => s.limit.max(segment.end),
                _ => segment.end,
            };
            if segment.start < end && start < reach {
                *segment = Segment::default();
                if streams {
                    self.stream = None;
                }
            }
        }
    }

    fn limit(&self, end: u64) -> u64 {
        (end + self.ahead_sectors).min(self.disk_sectors)
    }
}
