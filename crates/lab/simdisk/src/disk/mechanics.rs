//! Arm and platter: what a media access costs, given where the arm is and when.

use super::layout::{Layout, Place};
use super::seek::SeekCurve;

/// Where the arm is, and which head is selected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arm {
    pub cylinder: u32,
    pub head: u32,
}

impl From<Place> for Arm {
    fn from(place: Place) -> Arm {
        Arm { cylinder: place.cylinder, head: place.head }
    }
}

/// One media access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub seek: u64,
    pub rotation: u64,
    /// The rest: sectors passing, and switches between tracks.
    pub transfer: u64,
    /// When the first sector was through, and the last.
    pub first_end: u64,
    pub end: u64,
    pub arm: Arm,
}

/// The moving parts of a hard disk.
#[derive(Clone, Debug)]
pub(crate) struct Mechanics {
    pub layout: Layout,
    pub seek: SeekCurve,
    pub head_switch_ns: u64,
    pub write_settle_ns: u64,
    /// Reads take the sectors of a track in the order they come by.
    pub zero_latency: bool,
}

impl Mechanics {
    /// From arm to track: a seek, a head switch, or both at once; a write settles longer.
    pub fn positioning_ns(&self, arm: Arm, to: Place, write: bool) -> u64 {
        if arm == Arm::from(to) {
            return 0;
        }
        let switch = if arm.head == to.head { 0 } else { self.head_switch_ns };
        let seek = self.seek.ns(arm.cylinder.abs_diff(to.cylinder));
        seek.max(switch) + if write { self.write_settle_ns } else { 0 }
    }

    /// Positioning and rotational delay until `sector` may begin, for a drive that looks for the shortest.
    pub fn delay_ns(&self, arm: Arm, sector: u64, at: u64, not_before: u64, write: bool) -> u64 {
        let place = self.layout.place(sector);
        let there = (at + self.positioning_ns(arm, place, write)).max(not_before);
        there - at + self.layout.wait_ns(place, there)
    }

    /// Reads or writes `sectors` from `first`, beginning at time `at` with a seek; the media part does not begin
    /// `not_before`. Tracks follow each other after the skew, which is made for the switch between them.
    pub fn access(&self, arm: Arm, first: u64, sectors: u64, at: u64, not_before: u64, write: bool) -> Access {
        let mut place = self.layout.place(first);
        let seek = self.positioning_ns(arm, place, write);
        let positioned = (at + seek).max(not_before);
        let mut now = positioned;
        let mut left = sectors;
        let mut begun = None;
        loop {
            let n = left.min(u64::from(place.per_track - place.sector)) as u32;
            let wait = self.layout.wait_ns(place, now);
            let span = self.layout.span_ns(place, n);
            let revolution = self.layout.revolution_ns();
            // The wait is longer than the rest of a revolution exactly if the head came down inside the piece.
            let inside = self.zero_latency && !write && wait + span > revolution;
            let (start, end) = if inside { (now, now + revolution) } else { (now + wait, now + wait + span) };
            begun.get_or_insert((start, start + self.layout.span_ns(place, 1)));
            now = end;
            left -= u64::from(n);
            if left == 0 {
                break;
            }
            let next = self.layout.next_track(place);
            now += self.positioning_ns(place.into(), next, false);
            place = next;
        }
        let (start, first_end) = begun.unwrap_or((now, now));
        Access { seek, rotation: start - at - seek, transfer: now - start, first_end, end: now, arm: place.into() }
    }
}
