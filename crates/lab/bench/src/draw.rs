//! Random numbers with the same bits on every platform.

use arbor_torture::rng::Rng;
use std::f64::consts::TAU;

/// A number in (0, 1], a multiple of 2^-53.
pub fn unit(rng: &mut Rng) -> f64 {
    ((rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
}

/// A lognormal distribution: its logarithm has the mean `mu` and the standard deviation `sigma`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogNormal {
    /// Mean of the logarithm.
    pub mu: f64,
    /// Standard deviation of the logarithm.
    pub sigma: f64,
}

impl LogNormal {
    /// Draws by the method of Box and Muller, of which the second number is not used.
    pub fn draw(&self, rng: &mut Rng) -> f64 {
        let (u, v) = (unit(rng), unit(rng));
        let normal = libm::sqrt(-2.0 * libm::log(u)) * libm::cos(TAU * v);
        libm::exp(self.mu + self.sigma * normal)
    }
}

/// How many there are of each power of two: of 0, 1, 2, 4 and so on at most, and more than of the one before. Within a
/// class the logarithm is uniform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classes(pub &'static [u64]);

/// Draws the number of one of some that have these shares.
pub fn shared(rng: &mut Rng, shares: &[u64]) -> usize {
    let mut at = rng.below(shares.iter().sum());
    let is_here = |share: &u64| {
        let is_here = at < *share;
        at = at.saturating_sub(*share);
        is_here
    };
    shares.iter().position(is_here).unwrap_or(0)
}

impl Classes {
    /// Draws one of them.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        match shared(rng, self.0) {
            class @ 0..2 => class as u64,
            class => libm::ceil(libm::exp2(class as f64 - 2.0 + unit(rng))) as u64,
        }
    }
}

/// A Pareto distribution: larger than `x` with probability `(kappa / x)^alpha`, from `kappa` on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pareto {
    /// The smallest value.
    pub kappa: f64,
    /// The exponent; without a mean at 1 and below.
    pub alpha: f64,
}

impl Pareto {
    /// Draws by inversion.
    pub fn draw(&self, rng: &mut Rng) -> f64 {
        self.kappa * libm::pow(unit(rng), -1.0 / self.alpha)
    }
}

/// Says for each of `total` items in a row whether it is among the `wanted` ones, exactly so many, every
/// choice with the same probability (Knuth, The Art of Computer Programming 2, algorithm 3.4.2 S).
#[derive(Clone, Copy, Debug)]
pub struct Exactly {
    wanted: u64,
    total: u64,
}

impl Exactly {
    /// `wanted` of `total`.
    pub fn new(wanted: u64, total: u64) -> Exactly {
        Exactly { wanted, total }
    }

    /// Whether the next item is one of them.
    pub fn next(&mut self, rng: &mut Rng) -> bool {
        let hit = rng.below(self.total) < self.wanted;
        self.total = self.total.saturating_sub(1);
        self.wanted -= u64::from(hit);
        hit
    }
}

/// The Mersenne Twister MT19937 with the seeding of October 1999, which PostMark 1.5 uses: each half of a word
/// comes from a step of a linear congruential generator (Matsumoto and Nishimura, "Mersenne Twister", ACM
/// TOMACS 8(1), 1998, for the generator).
pub struct MersenneTwister {
    state: Box<[u32; MersenneTwister::N]>,
    at: usize,
}

impl MersenneTwister {
    const N: usize = 624;
    const M: usize = 397;

    /// A generator that starts at `seed`.
    pub fn new(seed: u32) -> MersenneTwister {
        let mut state = Box::new([0; Self::N]);
        let mut x = seed;
        for word in state.iter_mut() {
            *word = x & 0xffff_0000;
            x = x.wrapping_mul(69069).wrapping_add(1);
            *word |= x >> 16;
            x = x.wrapping_mul(69069).wrapping_add(1);
        }
        MersenneTwister { state, at: Self::N }
    }

    /// The next 32 bits.
    pub fn next_u32(&mut self) -> u32 {
        if self.at == Self::N {
            self.twist();
        }
        let y = self.state[self.at];
        self.at += 1;
        let y = y ^ (y >> 11);
        let y = y ^ ((y << 7) & 0x9d2c_5680);
        let y = y ^ ((y << 15) & 0xefc6_0000);
        y ^ (y >> 18)
    }

    /// A number below `n`; 0 without drawing if `n` is not positive.
    pub fn below(&mut self, n: u32) -> u32 {
        if n == 0 { 0 } else { self.next_u32() % n }
    }

    fn twist(&mut self) {
        for k in 0..Self::N {
            let y = (self.state[k] & 0x8000_0000) | (self.state[(k + 1) % Self::N] & 0x7fff_ffff);
            let odd = if y & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[k] = self.state[(k + Self::M) % Self::N] ^ (y >> 1) ^ odd;
        }
        self.at = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sorted draws.
    fn many(n: usize, mut draw: impl FnMut(&mut Rng) -> f64) -> Vec<f64> {
        let mut rng = Rng::new(7);
        let mut all: Vec<f64> = (0..n).map(|_| draw(&mut rng)).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    fn near(got: f64, wanted: f64, tolerance: f64) {
        assert!((got / wanted - 1.0).abs() < tolerance, "{got} instead of {wanted}");
    }

    #[test]
    fn lognormal_has_its_median_and_mean() {
        let size = LogNormal { mu: 9.357, sigma: 1.318 };
        let all = many(200_000, |rng| size.draw(rng));
        near(all[100_000], 9.357f64.exp(), 0.02);
        near(all.iter().sum::<f64>() / 200_000.0, (9.357 + 1.318f64.powi(2) / 2.0).exp(), 0.03);
    }

    #[test]
    fn pareto_has_its_quantiles() {
        let size = Pareto { kappa: 133.0 * 1024.0, alpha: 1.1 };
        let all = many(200_000, |rng| size.draw(rng));
        assert!(all[0] >= size.kappa);
        near(all[100_000], size.kappa * 2f64.powf(1.0 / 1.1), 0.02);
        near(all[180_000], size.kappa * 10f64.powf(1.0 / 1.1), 0.03);
    }

    #[test]
    fn draws_have_these_bits() {
        let mut rng = Rng::new(1);
        let normal = LogNormal { mu: 9.357, sigma: 1.318 }.draw(&mut rng);
        let pareto = Pareto { kappa: 133.0 * 1024.0, alpha: 1.1 }.draw(&mut rng);
        assert_eq!((normal.to_bits(), pareto.to_bits()), (4_667_358_899_243_160_696, 4_684_046_405_059_300_847));
    }

    #[test]
    fn exactly_so_many() {
        let mut rng = Rng::new(3);
        for (wanted, total) in [(0, 10), (3, 10), (10, 10)] {
            let mut some = Exactly::new(wanted, total);
            assert_eq!((0..total).filter(|_| some.next(&mut rng)).count() as u64, wanted);
        }
    }
}
