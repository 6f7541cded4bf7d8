//! Where a sector lies, and when it passes under the head.

/// A run of cylinders with equally many sectors on each track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Zone {
    pub cylinders: u32,
    pub sectors_per_track: u32,
}

/// A sector's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub cylinder: u32,
    pub head: u32,
    pub sector: u32,
    pub per_track: u32,
}

#[derive(Clone, Copy, Debug)]
struct Band {
    first_sector: u64,
    first_cylinder: u32,
    per_track: u32,
}

/// The mapping of addresses to places, cylinder by cylinder from the outer edge, and the angles of tracks.
///
/// Angles are times: where the platter is, is the virtual time modulo one revolution. All arithmetic is in whole
/// nanoseconds from the start of a track, so that the sector after the last one read arrives exactly when that one
/// ends, and not a rounding error (and thus a whole revolution) later.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    bands: Vec<Band>,
    heads: u32,
    cylinders: u32,
    sectors: u64,
    revolution_ns: u64,
    track_skew_ns: u64,
    cylinder_skew_ns: u64,
}

impl Layout {
    pub fn new(zones: &[Zone], heads: u32, revolution_ns: u64, track_skew_ns: u64, cylinder_skew_ns: u64) -> Layout {
        let (mut sectors, mut cylinders) = (0, 0);
        let mut bands = Vec::with_capacity(zones.len());
        for zone in zones {
            bands.push(Band { first_sector: sectors, first_cylinder: cylinders, per_track: zone.sectors_per_track });
            sectors += u64::from(zone.cylinders) * u64::from(heads) * u64::from(zone.sectors_per_track);
            cylinders += zone.cylinders;
        }
        Layout { bands, heads, cylinders, sectors, revolution_ns, track_skew_ns, cylinder_skew_ns }
    }

    /// Sectors that the zones hold.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    pub fn cylinders(&self) -> u32 {
        self.cylinders
    }

    pub fn revolution_ns(&self) -> u64 {
        self.revolution_ns
    }

    pub fn place(&self, sector: u64) -> Place {
        let band = &self.bands[self.bands.partition_point(|b| b.first_sector <= sector) - 1];
        let (track, in_track) = {
            let rel = sector - band.first_sector;
            (rel / u64::from(band.per_track), rel % u64::from(band.per_track))
        };
        let heads = u64::from(self.heads);
        Place {
            cylinder: band.first_cylinder + (track / heads) as u32,
            head: (track % heads) as u32,
            sector: in_track as u32,
            per_track: band.per_track,
        }
    }

    /// The start of the track that follows in the order of addresses.
    pub fn next_track(&self, place: Place) -> Place {
        if place.head + 1 < self.heads {
            return Place { head: place.head + 1, sector: 0, ..place };
        }
        let cylinder = place.cylinder + 1;
        let band = &self.bands[self.bands.partition_point(|b| b.first_cylinder <= cylinder) - 1];
        Place { cylinder, head: 0, sector: 0, per_track: band.per_track }
    }

    /// From the start of the track to the start of sector `sector`, which may be one past the last.
    fn start_of(&self, place: Place, sector: u32) -> u64 {
        u64::from(sector) * self.revolution_ns / u64::from(place.per_track)
    }

    /// From time `at` until the sector arrives under its head.
    pub fn wait_ns(&self, place: Place, at: u64) -> u64 {
        let a_cylinder = u64::from(self.heads - 1) * self.track_skew_ns + self.cylinder_skew_ns;
        let skew = u64::from(place.cylinder) * a_cylinder + u64::from(place.head) * self.track_skew_ns;
        let angle = (skew + self.start_of(place, place.sector)) % self.revolution_ns;
        (angle + self.revolution_ns - at % self.revolution_ns) % self.revolution_ns
    }

    /// From the start of the sector to the end of the `n`th from there, all on its track.
    pub fn span_ns(&self, place: Place, n: u32) -> u64 {
        self.start_of(place, place.sector + n) - self.start_of(place, place.sector)
    }

    /// How many whole sectors pass in `ns` from the start of this one.
    pub fn passed(&self, place: Place, ns: u64) -> u32 {
        let guess = (u128::from(ns) * u128::from(place.per_track) / u128::from(self.revolution_ns)) as u32;
        let guess = guess.min(place.per_track - place.sector);
        // The start of a sector is rounded down, so the guess may be one short or one too many.
        if guess > 0 && self.span_ns(place, guess) > ns {
            guess - 1
        } else if place.sector + guess < place.per_track && self.span_ns(place, guess + 1) <= ns {
            guess + 1
        } else {
            guess
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        let zones = [Zone { cylinders: 2, sectors_per_track: 7 }, Zone { cylinders: 3, sectors_per_track: 5 }];
        Layout::new(&zones, 2, 1000, 100, 300)
    }

    #[test]
    fn every_sector_has_its_own_place_in_order() {
        let layout = layout();
        assert_eq!((layout.sectors(), layout.cylinders()), (2 * 2 * 7 + 3 * 2 * 5, 5));
        let mut expected = Place { cylinder: 0, head: 0, sector: 0, per_track: 7 };
        for sector in 0..layout.sectors() {
            assert_eq!(layout.place(sector), expected);
            expected.sector += 1;
            if expected.sector == expected.per_track && sector + 1 < layout.sectors() {
                expected = layout.next_track(expected);
            }
        }
    }

    #[test]
    fn neighbours_follow_without_a_gap() {
        let layout = layout();
        for sector in 0..6 {
            let (a, b) = (layout.place(sector), layout.place(sector + 1));
            for at in [0, 333, 12_345] {
                let end = at + layout.wait_ns(a, at) + layout.span_ns(a, 1);
                assert_eq!(layout.wait_ns(b, end), 0);
            }
        }
    }

    #[test]
    fn next_track_comes_after_its_skew() {
        let layout = layout();
        let last = layout.place(6);
        let end = layout.wait_ns(last, 0) + layout.span_ns(last, 1);
        assert_eq!(layout.wait_ns(layout.place(7), end), 100, "head switch");
        let last = layout.place(13);
        let end = layout.wait_ns(last, 0) + layout.span_ns(last, 1);
        assert_eq!(layout.wait_ns(layout.place(14), end), 300, "cylinder switch");
    }

    #[test]
    fn passed_is_the_inverse_of_span() {
        let layout = layout();
        for sector in 0..7 {
            let place = layout.place(sector);
            for ns in 0..1000 {
                let n = layout.passed(place, ns);
                assert!(layout.span_ns(place, n) <= ns);
                assert!(place.sector + n == 7 || layout.span_ns(place, n + 1) > ns, "{sector} {ns}");
            }
        }
    }
}
