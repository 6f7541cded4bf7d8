//! The workload of the simulations with which M. Rosenblum and J. Ousterhout chose the cleaner of Sprite LFS ("The Design
//! and Implementation of a Log-Structured File System", ACM TOCS 10(1), 1992, section 3.5): as many data as make the
//! disk so full, and then pieces of it overwritten at random, for ever.
//!
//! Their pieces are files of 4 KiB. Here they are pieces of one file, or files: a file has an inode, which is written
//! with it, so that what is measured is not the cleaner alone.

use crate::op::{Dir, Op, Program};
use arbor_torture::rng::Rng;

/// Files in a directory.
const FILES_PER_DIR: u64 = 500;
/// Unit of the calls that make a file of pieces, bytes.
const LOAD_BYTES: u32 = 64 << 10;

/// Which pieces are overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Each as often as any other.
    Uniform,
    /// So many hundredths of the writes go to so many hundredths of the pieces, which lie evenly among the others.
    HotAndCold {
        /// Hundredths of the writes.
        writes: u64,
        /// Hundredths of the pieces, from 1 to 99.
        data: u64,
    },
}

impl Access {
    /// The paper's hot-and-cold: 90% of the writes go to 10% of the files.
    pub const HOT_AND_COLD: Access = Access::HotAndCold { writes: 90, data: 10 };

    /// The piece to be overwritten, of so many.
    fn choose(self, rng: &mut Rng, pieces: u64) -> u64 {
        let Access::HotAndCold { writes, data } = self else { return rng.below(pieces) };
        let is_hot = rng.below(100) < writes;
        // Every so manieth piece is hot, so both kinds are found by trying.
        loop {
            let piece = rng.below(pieces);
            if (piece * data % 100 < data) == is_hot || pieces < 100 {
                return piece;
            }
        }
    }
}

/// The parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overwrite {
    /// What the pieces hold altogether, bytes.
    pub data_bytes: u64,
    /// Size of a piece, bytes.
    pub piece_bytes: u32,
    /// Whether each piece is a file of its own.
    pub is_files: bool,
    /// Which pieces are overwritten.
    pub access: Access,
    /// How much is overwritten until the state is steady, bytes.
    pub warm_up_bytes: u64,
    /// How much is overwritten while it is measured, bytes.
    pub measured_bytes: u64,
    /// How long nothing is done before it is measured, nanoseconds.
    pub idle_ns: u64,
}

impl Overwrite {
    /// The phases: filling, what comes before the measurement, the measurement.
    pub const PHASES: [&str; 3] = ["fill", "warm-up", "overwrite"];

    /// Makes the program.
    pub fn program(&self, seed: u64) -> Box<dyn Program> {
        Box::new(Run { spec: *self, rng: Rng::new(seed), at: At::Fill(0) })
    }

    fn pieces(&self) -> u64 {
        (self.data_bytes / u64::from(self.piece_bytes.max(1))).max(1)
    }

    /// Pieces that are overwritten until the state is steady, and altogether.
    fn writes(&self) -> (u64, u64) {
        let of = |bytes: u64| bytes / u64::from(self.piece_bytes.max(1));
        (of(self.warm_up_bytes), of(self.warm_up_bytes) + of(self.measured_bytes))
    }
}

enum At {
    /// So many pieces are there.
    Fill(u64),
    /// So many were overwritten.
    Write(u64),
    End,
}

struct Run {
    spec: Overwrite,
    rng: Rng,
    at: At,
}

impl Run {
    fn whole(&self, offset: u64, tag: u64) -> Op {
        Op::Write { offset, len: self.spec.piece_bytes.into(), io: self.spec.piece_bytes, tag }
    }

    /// Makes the file, or one of the files; gives the pieces that are there.
    fn fill(&self, piece: u64, out: &mut Vec<Op>) -> u64 {
        if piece == 0 {
            out.push(Op::Phase(Overwrite::PHASES[0]));
        }
        if !self.spec.is_files {
            let len = self.spec.pieces() * u64::from(self.spec.piece_bytes);
            out.push(Op::Create { dir: Dir::ROOT, name: "data".into() });
            out.push(Op::Write { offset: 0, len, io: LOAD_BYTES, tag: 0 });
            return self.spec.pieces();
        }
        let (dir, name) = place(piece);
        if piece.is_multiple_of(FILES_PER_DIR) {
            out.push(Op::Mkdir { parent: Dir::ROOT, name: format!("d{}", dir.0), dir });
        }
        out.extend([Op::Create { dir, name }, self.whole(0, piece), Op::Close]);
        piece + 1
    }

    fn overwrite(&mut self, number: u64, out: &mut Vec<Op>) {
        let piece = self.spec.access.choose(&mut self.rng, self.spec.pieces());
        let tag = self.spec.pieces() + number;
        if self.spec.is_files {
            let (dir, name) = place(piece);
            out.extend([Op::Open { dir, name }, self.whole(0, tag), Op::Close]);
        } else {
            out.push(self.whole(piece * u64::from(self.spec.piece_bytes), tag));
        }
    }
}

/// Directory and name of a piece that is a file.
fn place(piece: u64) -> (Dir, String) {
    (Dir(1 + (piece / FILES_PER_DIR) as u32), format!("f{piece}"))
}

impl Program for Run {
    fn step(&mut self, out: &mut Vec<Op>) -> bool {
        let (steady, all) = self.spec.writes();
        match self.at {
            At::Fill(piece) if piece < self.spec.pieces() => self.at = At::Fill(self.fill(piece, out)),
            At::Fill(_) => {
                out.extend([Op::Sync, Op::Phase(Overwrite::PHASES[1])]);
                self.at = At::Write(0);
            }
            At::Write(n) if n < all => {
                if n == steady {
                    if self.spec.idle_ns > 0 {
                        out.extend([Op::Phase("idle"), Op::Sync, Op::Think { ns: self.spec.idle_ns }]);
                    }
                    out.push(Op::Phase(Overwrite::PHASES[2]));
                }
                self.overwrite(n, out);
                self.at = At::Write(n + 1);
            }
            At::Write(_) => {
                if !self.spec.is_files {
                    out.push(Op::Close);
                }
                self.at = At::End;
            }
            At::End => return false,
        }
        true
    }

    fn progress(&self) -> (u64, u64) {
        let (pieces, (_, all)) = (self.spec.pieces(), self.spec.writes());
        let done = match self.at {
            At::Fill(piece) => piece,
            At::Write(n) => pieces + n,
            At::End => pieces + all,
        };
        (done, pieces + all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share_of_tenths(access: Access) -> Vec<f64> {
        let mut rng = Rng::new(1);
        let mut counts = vec![0u32; 10];
        for _ in 0..100_000 {
            counts[(access.choose(&mut rng, 1000) % 10) as usize] += 1;
        }
        counts.into_iter().map(|n| f64::from(n) / 100_000.0).collect()
    }

    #[test]
    fn a_tenth_gets_nine_tenths() {
        let hot = share_of_tenths(Access::HOT_AND_COLD);
        assert!((hot[0] - 0.9).abs() < 0.01 && hot[1..].iter().all(|s| (s - 0.1 / 9.0).abs() < 0.005), "{hot:?}");
        let even = share_of_tenths(Access::Uniform);
        assert!(even.iter().all(|s| (s - 0.1).abs() < 0.01), "{even:?}");
    }

    fn ops(spec: &Overwrite) -> Vec<Op> {
        let (mut program, mut ops) = (spec.program(1), Vec::new());
        while program.step(&mut ops) {}
        let (done, total) = program.progress();
        assert_eq!(done, total);
        ops
    }

    #[test]
    fn as_much_is_overwritten_as_was_asked_for() {
        let (mib, access) = (1u64 << 20, Access::Uniform);
        let spec = |is_files| Overwrite {
            data_bytes: 3 * mib,
            piece_bytes: 4096,
            is_files,
            access,
            warm_up_bytes: mib,
            measured_bytes: 2 * mib,
            idle_ns: 0,
        };
        for is_files in [false, true] {
            let ops = ops(&spec(is_files));
            let written = |part: &[Op]| -> u64 {
                part.iter().map(|op| if let Op::Write { len, .. } = op { *len } else { 0 }).sum()
            };
            let parts: Vec<u64> = ops.split(|op| matches!(op, Op::Phase(_))).skip(1).map(written).collect();
            assert_eq!(parts, [3 * mib, mib, 2 * mib]);
            let made = ops.iter().filter(|op| matches!(op, Op::Create { .. })).count();
            assert_eq!(made, if is_files { 768 } else { 1 });
        }
    }
}
