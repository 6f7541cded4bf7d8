//! Counts: what takes how much, how many pieces files are in, how free space is split.

use super::{Class, KINDS};
use crate::show;
use arboretum::device::Kind;
use arboretum::vfs::{Ino, Region};
use serde_json::{Value, json};

/// Bytes and pieces of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) bytes: u64,
    pub(crate) pieces: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Survey {
    pub(crate) size: u64,
    pub(crate) used: u64,
    /// By kind, in the order of [`KINDS`], only those that are there.
    pub(crate) kinds: Vec<(Kind, Share)>,
    pub(crate) data: Share,
    /// Files that have data.
    pub(crate) files: u64,
    pub(crate) files_in_one_piece: u64,
    /// Extents of all files.
    pub(crate) extents: u64,
    /// The most extents of one file.
    pub(crate) most_extents: u64,
    /// Files in 1, 2, 3-4, 5-8, ... extents.
    pub(crate) by_extents: Vec<u64>,
    pub(crate) free_stretches: u64,
    pub(crate) largest_free: u64,
    /// Free bytes in stretches of up to 64 KiB, 1 MiB, 16 MiB, ...
    pub(crate) free_by_len: Vec<u64>,
}

impl Survey {
    pub(crate) fn new(regions: &[Region], size: u64) -> Survey {
        let mut survey = Survey { size, ..Survey::default() };
        survey.count_kinds(regions);
        survey.count_extents(regions);
        survey.count_free(regions);
        survey
    }

    fn count_kinds(&mut self, regions: &[Region]) {
        for (kind, _, _) in KINDS {
            let own = regions.iter().filter(|r| Class::of(r) == Class::Meta(kind));
            let share = own.fold(Share::default(), |s, r| Share { bytes: s.bytes + r.len, pieces: s.pieces + 1 });
            if share.pieces > 0 {
                self.kinds.push((kind, share));
            }
        }
        let data = regions.iter().filter(|r| r.kind == Kind::Data);
        self.data = data.fold(Share::default(), |s, r| Share { bytes: s.bytes + r.len, pieces: s.pieces + 1 });
    }

    /// Pieces that follow each other both in the file and on the device are one extent.
    fn count_extents(&mut self, regions: &[Region]) {
        let data = regions.iter().filter(|r| r.kind == Kind::Data);
        let mut pieces: Vec<(Ino, u64, u64, u64)> =
            data.filter_map(|r| Some((r.owner?, r.file_offset, r.offset, r.len))).collect();
        pieces.sort_unstable();
        let mut at = 0;
        while let Some(first) = pieces.get(at) {
            let own = pieces.get(at..).unwrap_or_default();
            let own = own.get(..own.partition_point(|p| p.0 == first.0)).unwrap_or_default();
            let follows = |w: &[(Ino, u64, u64, u64)]| w[0].1 + w[0].3 == w[1].1 && w[0].2 + w[0].3 == w[1].2;
            self.add_file(1 + own.windows(2).filter(|w| !follows(w)).count() as u64);
            at += own.len();
        }
    }

    fn add_file(&mut self, extents: u64) {
        self.files += 1;
        self.files_in_one_piece += u64::from(extents == 1);
        self.extents += extents;
        self.most_extents = self.most_extents.max(extents);
        let class = extents.next_power_of_two().trailing_zeros() as usize;
        if self.by_extents.len() <= class {
            self.by_extents.resize(class + 1, 0);
        }
        self.by_extents[class] += 1;
    }

    fn count_free(&mut self, regions: &[Region]) {
        let mut spans: Vec<(u64, u64)> = regions.iter().map(|r| (r.offset, r.offset.saturating_add(r.len))).collect();
        spans.sort_unstable();
        spans.push((self.size, self.size));
        let mut end = 0;
        for (from, to) in spans {
            let from = from.min(self.size);
            if from > end {
                self.add_free(from - end);
            }
            end = end.max(to.min(self.size));
        }
        let free: u64 = self.free_by_len.iter().sum();
        self.used = self.size.saturating_sub(free);
    }

    fn add_free(&mut self, len: u64) {
        self.free_stretches += 1;
        self.largest_free = self.largest_free.max(len);
        let class = (0..12).find(|class| len <= 65536 << (4 * class)).unwrap_or(12) as usize;
        if self.free_by_len.len() <= class {
            self.free_by_len.resize(class + 1, 0);
        }
        self.free_by_len[class] += len;
    }

    pub(crate) fn free(&self) -> u64 {
        self.size - self.used
    }

    /// The counts in a few sentences.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 };
        let used = format!("{} used ({:.1} %)", show::bytes(self.used), share(self.used, self.size));
        let stretches = show::of(self.free_stretches, "stretch", "stretches");
        let largest = show::bytes(self.largest_free);
        let mut out = vec![format!("{used}, {} free in {stretches}, the largest {largest}", show::bytes(self.free()))];
        if self.files > 0 {
            let one = share(self.files_in_one_piece, self.files);
            let average = self.extents as f64 / self.files as f64;
            out.push(format!(
                "{} with data, {one:.1} % in one piece; {average:.2} extents a file on average, {} at most, {} long on average",
                show::of(self.files, "file", "files"),
                show::count(self.most_extents),
                show::bytes(self.data.bytes / self.extents.max(1)),
            ));
        }
        out
    }

    pub(crate) fn as_json(&self) -> Value {
        let kinds: serde_json::Map<String, Value> = self
            .kinds
            .iter()
            .map(|(kind, share)| {
                (format!("{kind:?}").to_lowercase(), json!({ "bytes": share.bytes, "pieces": share.pieces }))
            })
            .collect();
        json!({
            "size": self.size,
            "used": self.used,
            "free": self.free(),
            "free_stretches": self.free_stretches,
            "largest_free": self.largest_free,
            "structures": kinds,
            "data": { "bytes": self.data.bytes, "pieces": self.data.pieces },
            "files": self.files,
            "files_in_one_piece": self.files_in_one_piece,
            "extents": self.extents,
            "most_extents": self.most_extents,
        })
    }
}

/// `1`, `2`, `3-4`, `5-8`, ... for the classes of [`Survey::by_extents`].
pub(crate) fn extents_label(class: usize) -> String {
    match class {
        0 => "1".into(),
        1 => "2".into(),
        class => format!("{}–{}", (1u64 << (class - 1)) + 1, 1u64 << class),
    }
}

/// The longest stretch of a class of [`Survey::free_by_len`].
pub(crate) fn free_label(class: usize) -> String {
    format!("≤ {}", show::bytes(65536u64.checked_shl(4 * class as u32).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::region;
    use super::*;

    #[test]
    fn fragments_are_counted_by_place_and_not_by_region() {
        let k = 4096;
        let regions = [
            region(0, k, Kind::Super, None, 0),
            // One extent in two regions, told out of order.
            region(3 * k, k, Kind::Data, Some(9), k),
            region(2 * k, k, Kind::Data, Some(9), 0),
            // Adjacent on the device, but not in the file.
            region(5 * k, k, Kind::Data, Some(10), 0),
            region(6 * k, k, Kind::Data, Some(10), 7 * k),
        ];
        let s = Survey::new(&regions, 16 * k);
        assert_eq!((s.files, s.files_in_one_piece, s.extents, s.most_extents), (2, 1, 3, 2));
        assert_eq!(s.by_extents, [1, 1]);
        assert_eq!((s.used, s.free_stretches, s.largest_free), (5 * k, 3, 9 * k));
        assert_eq!(s.kinds, [(Kind::Super, Share { bytes: k, pieces: 1 })]);
    }

    #[test]
    fn overlaps_and_regions_past_the_end_do_no_harm() {
        let regions = [region(0, 8192, Kind::Log, None, 0), region(4096, u64::MAX, Kind::Data, None, 0)];
        let s = Survey::new(&regions[..1], 4096);
        assert_eq!((s.used, s.free()), (4096, 0));
        let s = Survey::new(&[region(4096, u64::MAX, Kind::Log, None, 0)], 16384);
        assert_eq!((s.used, s.free()), (12288, 4096));
    }

    #[test]
    fn labels_of_classes() {
        assert_eq!([0, 1, 2, 3].map(extents_label), ["1", "2", "3–4", "5–8"]);
        assert_eq!(free_label(1), "≤ 1 MiB");
    }
}
