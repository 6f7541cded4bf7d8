//! The axis of addresses: the disk without what no request went to.

use crate::svg::{Canvas, GRID, step, tick};

/// Parts of the disk that are told apart when looking for what is used.
const BINS: usize = 512;
/// Longer stretches without requests are left out, in bins.
const GAP_BINS: usize = 40;
/// Height of a place where something is left out, and the least height of a piece, pixels.
const GAP: f64 = 12.0;
const LEAST: f64 = 18.0;

/// A piece of the disk that is shown, and where its ends are, in pixels from the top.
struct Piece {
    from: f64,
    to: f64,
    top: f64,
    bottom: f64,
}

pub(super) struct Addresses {
    pieces: Vec<Piece>,
}

impl Addresses {
    /// For these addresses, on a disk of so many bytes.
    pub fn new(offsets: impl Iterator<Item = u64>, capacity_bytes: u64, height: f64) -> Addresses {
        let bin_bytes = capacity_bytes.div_ceil(BINS as u64).max(1);
        let mut used = [false; BINS];
        offsets.for_each(|offset| used[((offset / bin_bytes) as usize).min(BINS - 1)] = true);
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for bin in (0..BINS).filter(|bin| used[*bin]) {
            match ranges.last_mut() {
                Some(last) if bin - last.1 <= GAP_BINS => last.1 = bin + 1,
                _ => ranges.push((bin, bin + 1)),
            }
        }
        let lengths: Vec<f64> = ranges.iter().map(|r| (r.1 - r.0) as f64).collect();
        let room = height - GAP * ranges.len().saturating_sub(1) as f64;
        let mut y = height;
        let mut pieces = Vec::new();
        for ((from, to), size) in ranges.into_iter().zip(heights(&lengths, room)) {
            let at = |bin: usize| bin as f64 * bin_bytes as f64;
            pieces.push(Piece { from: at(from), to: at(to), top: y - size, bottom: y });
            y -= size + GAP;
        }
        Addresses { pieces }
    }

    /// How far from the top an address is.
    pub fn y(&self, offset: u64) -> f64 {
        let offset = offset as f64;
        let piece = self.pieces.iter().find(|p| offset < p.to).or(self.pieces.last());
        piece.map_or(0.0, |p| p.bottom - (offset - p.from) / (p.to - p.from) * (p.bottom - p.top))
    }

    /// Lines at round addresses, and the background of each piece.
    pub fn draw(&self, canvas: &mut Canvas, (left, top): (f64, f64), width: f64) {
        let density = self.pieces.iter().map(|p| (p.bottom - p.top) / (p.to - p.from)).fold(f64::MAX, f64::min);
        // Values of the axis stand as far apart as this, in pixels.
        let step = step(22.0 / density / 1e9);
        for piece in &self.pieces {
            let size = (width, piece.bottom - piece.top);
            canvas.rect((left, top + piece.top), size, "fill=\"#f8f9fa\"");
            let first = (piece.from / 1e9 / step).ceil() as u64;
            let values = (first..).map(|n| n as f64 * step).take_while(|value| *value * 1e9 < piece.to);
            let mut marks: Vec<(f64, f64)> = values.map(|value| (value, self.y((value * 1e9) as u64))).collect();
            if marks.is_empty() {
                let middle = (piece.from + piece.to) / 2e9;
                marks.push(((middle * 10.0).round() / 10.0, (piece.top + piece.bottom) / 2.0));
            }
            for (value, y) in marks {
                canvas.put(format_args!("<path d=\"M{left:.1} {:.1}h{width:.1}\" stroke=\"{GRID}\"/>", top + y));
                canvas.text(left - 8.0, top + y + 4.0, "v e", &format!("{} GB", tick(value)));
            }
        }
    }
}

/// Shares of `room` in proportion to the lengths, but for those that would have less than [`LEAST`].
fn heights(lengths: &[f64], room: f64) -> Vec<f64> {
    let scale = |least: &[bool]| {
        let count = least.iter().filter(|l| **l).count() as f64;
        let rest: f64 = lengths.iter().zip(least).filter(|(_, l)| !**l).map(|(length, _)| length).sum();
        (room - count * LEAST).max(0.0) / rest.max(f64::MIN_POSITIVE)
    };
    let mut least = vec![false; lengths.len()];
    // Each round makes another piece one of the least, or is the last.
    while let Some(at) = (0..lengths.len()).find(|at| !least[*at] && lengths[*at] * scale(&least) < LEAST) {
        least[at] = true;
    }
    let scale = scale(&least);
    lengths.iter().zip(&least).map(|(length, is_least)| if *is_least { LEAST } else { length * scale }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_used_is_left_out() {
        let gib = 1u64 << 30;
        let axis = Addresses::new([0, gib / 2, 4 * gib, 8 * gib - 1].into_iter(), 8 * gib, 200.0);
        let ends: Vec<(f64, f64)> = axis.pieces.iter().map(|p| (p.bottom, p.top)).collect();
        assert_eq!((ends.len(), ends[0].0), (3, 200.0));
        assert!(ends.windows(2).all(|pair| (pair[0].1 - pair[1].0 - GAP).abs() < 1e-9), "{ends:?}");
        assert!(ends.iter().all(|(bottom, top)| bottom - top >= LEAST - 1e-9 && *top > -1e-9), "{ends:?}");
        assert!(axis.y(0) > axis.y(gib / 2) && axis.y(gib / 2) > axis.y(4 * gib));
    }

    #[test]
    fn a_disk_that_is_used_everywhere_is_one_piece() {
        let axis = Addresses::new((0..100).map(|n| n * 1000), 100_000, 100.0);
        assert_eq!(axis.pieces.len(), 1);
        assert!((axis.y(50_000) - 50.0).abs() < 1.0);
    }
}
