//! How long the arm takes to cross so many cylinders.

/// Seek time by distance after Ruemmler and Wilkes: a + b·√d while the arm only accelerates and brakes, a straight
/// line once it coasts. Of the curves of this form that have no kink there is exactly one with given times for one
/// cylinder, for the full stroke, and on average over all pairs of cylinders.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeekCurve {
    base_ns: f64,
    root_ns: f64,
    /// Where the line begins, in cylinders.
    knee: f64,
    knee_ns: f64,
    slope_ns: f64,
}

impl SeekCurve {
    /// Times in milliseconds; the disk has `cylinders`. The average must lie between those of the straightest and
    /// the most bent curve.
    pub fn fit(cylinders: u32, single_ms: f64, average_ms: f64, full_ms: f64) -> Result<SeekCurve, String> {
        let stroke = f64::from(cylinders.max(2)) - 1.0;
        let at = |knee: f64| SeekCurve::with_knee(stroke, knee, single_ms * 1e6, full_ms * 1e6);
        let (mut low, mut high) = (1.0, stroke);
        let (least, most) = (at(low).mean(stroke) / 1e6, at(high).mean(stroke) / 1e6);
        if !(least - 1e-6..=most + 1e-6).contains(&average_ms) {
            return Err(format!("seek_average_ms: must be {least:.2} to {most:.2} for these other seek times"));
        }
        for _ in 0..64 {
            let middle = 0.5 * (low + high);
            if at(middle).mean(stroke) < average_ms * 1e6 {
                low = middle;
            } else {
                high = middle;
            }
        }
        Ok(at(low))
    }

    fn with_knee(stroke: f64, knee: f64, single_ns: f64, full_ns: f64) -> SeekCurve {
        // The line is the tangent of the root at the knee, and both ends are given.
        let reach = 0.5 * (knee.sqrt() + stroke / knee.sqrt());
        let root_ns = if reach > 1.0 { (full_ns - single_ns) / (reach - 1.0) } else { 0.0 };
        let base_ns = single_ns - root_ns;
        let knee_ns = base_ns + root_ns * knee.sqrt();
        SeekCurve { base_ns, root_ns, knee, knee_ns, slope_ns: 0.5 * root_ns / knee.sqrt() }
    }

    /// Average over all pairs of different cylinders, by Simpson's rule over the density 2(1 − d/stroke)/stroke.
    fn mean(&self, stroke: f64) -> f64 {
        const STEPS: u32 = 512;
        // With d = stroke·u² the root becomes smooth at 0.
        let value = |u: f64| self.at(stroke * u * u) * (1.0 - u * u) * 4.0 * u;
        let step = 1.0 / f64::from(STEPS);
        let inner: f64 = (1..STEPS).map(|i| value(f64::from(i) * step) * if i % 2 == 1 { 4.0 } else { 2.0 }).sum();
        (value(0.0) + inner + value(1.0)) * step / 3.0
    }

    fn at(&self, distance: f64) -> f64 {
        if distance <= self.knee {
            self.base_ns + self.root_ns * distance.sqrt()
        } else {
            self.knee_ns + self.slope_ns * (distance - self.knee)
        }
    }

    /// Nanoseconds to cross `distance` cylinders, 0 for none.
    pub fn ns(&self, distance: u32) -> u64 {
        if distance == 0 { 0 } else { self.at(f64::from(distance)).max(0.0) as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_through_what_was_given() {
        let (cylinders, single, average, full) = (5000, 1.0, 9.0, 18.0);
        let curve = SeekCurve::fit(cylinders, single, average, full).unwrap();
        assert!((curve.ns(1) as f64 / 1e6 - single).abs() < 1e-3);
        assert!((curve.ns(cylinders - 1) as f64 / 1e6 - full).abs() < 1e-3);
        let n = u64::from(cylinders);
        let sum: f64 = (1..cylinders).map(|d| 2.0 * (n - u64::from(d)) as f64 * curve.ns(d) as f64).sum();
        let mean_ms = sum / (n * (n - 1)) as f64 / 1e6;
        assert!((mean_ms - average).abs() < 0.02, "{mean_ms}");
        assert!((1..cylinders - 1).all(|d| curve.ns(d) <= curve.ns(d + 1)), "monotone");
    }

    #[test]
    fn refuses_an_average_no_such_curve_has() {
        let e = SeekCurve::fit(5000, 1.0, 15.0, 18.0).unwrap_err();
        assert!(e.starts_with("seek_average_ms: must be 6."), "{e}");
    }
}
