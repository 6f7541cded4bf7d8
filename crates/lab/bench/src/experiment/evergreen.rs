//! Overwriting and relocation (Hyun and others, "Performance Trade-Off of File System between Overwriting and Dynamic
//! Relocation on a Solid State Drive", 2008), and what the paper leaves open.
//!
//! The paper's volume has 1 GB of an SSD of 32 GB, and 64 blocks of cache. Before the measurement a PostMark of which
//! nothing else is known fills it so far; here that is [`Op::FillTo`], which leaves holes of the size of files. The
//! parameters of the PostMark that is measured are not known either: 1,000 files, 5,000 transactions, all else by default.
//!
//! To save time the synchronous PostMark follows the asynchronous one on the same volume, and experiments beyond the paper
//! have 256 MB and, where the disk is the paper's, fill one volume on from one utilisation to the next.
//!
//! A program that syncs after each change stands for the synchronous mode, so that every subject has one.

use super::curves::{Host, Measured};
use super::{Case, Part, Quantity};
use crate::op::{Op, Program};
use crate::workload::overwrite::{Access, Overwrite};
use crate::workload::postmark::PostMark;
use crate::workload::primitive::{Chain, Ops};
use crate::workload::synced::Synced;
use arbor_simdisk::Model;

mod adaptive;
mod gather;
mod large;
mod masters;
mod postmark;

pub(super) use adaptive::{ADAPTIVE, ADAPTIVE_980PRO, ADAPTIVE_HC310};
pub(super) use gather::{GATHER, GATHER_980PRO, GATHER_HC310};
pub(super) use large::LARGE;
pub(super) use masters::{MASTERS, MASTERS_DISK};
pub(super) use postmark::{FIG4, FIG4_870EVO, FIG4_980PRO, FIG4_DISK, FIG4_HC310, FIG5, LOGS, OTHERS};

const OVERWRITE: &str = "Evergreen-overwrite";
const RELOCATE: &str = "Evergreen-relocate";
const COLUMNS: &[&str] = &[OVERWRITE, RELOCATE];
/// Overwriting with a redo list of metadata, and what chooses block by block.
const LOGGED: &str = "Evergreen-logged";
const CHOOSES: &str = "Evergreen-adaptive";
/// By category: data overwritten and all else relocated, and the other way round.
const DATA: &str = "Evergreen-data";
const METADATA: &str = "Evergreen-metadata";

/// The paper's SSD, as a used device; requests of 128 KiB at most.
const CE_PC: Host = Host { disk: "mcaqe32g5app-used", ..Host::YFS };

/// The paper's volume, bytes.
const VOLUME_BYTES: u64 = 1 << 30;
/// That of experiments beyond the paper, to save time.
const SMALL_BYTES: u64 = 256 << 20;
/// A volume smaller than that has no room between what is filled and what is kept free.
const MOST_DIVIDED: u64 = 16;

/// A volume in a run whose counts are divided.
fn divided(volume_bytes: u64, divisor: u32) -> u64 {
    (volume_bytes / u64::from(divisor.max(1))).max(VOLUME_BYTES / MOST_DIVIDED)
}

/// PostMark on a volume that is filled so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filled {
    /// Size of the volume.
    pub volume_bytes: u64,
    /// How much of the volume is in use before, %.
    pub percent: u32,
    /// Whether every change is durable before the next operation.
    pub is_synced: bool,
    /// Log blocks of the SSD, if not those of its model.
    pub log_blocks: Option<usize>,
    /// Whether the power fails afterwards.
    pub is_cut: bool,
    /// Whether the volume is made anew, where it is not for each workload.
    pub is_anew: bool,
}

impl Filled {
    const fn to(percent: u32, is_synced: bool) -> Filled {
        Filled { volume_bytes: VOLUME_BYTES, percent, is_synced, log_blocks: None, is_cut: false, is_anew: false }
    }

    /// On a new volume, as the paper's.
    const fn anew(percent: u32) -> Filled {
        Filled { is_anew: true, ..Filled::to(percent, false) }
    }

    /// On a small volume.
    const fn small(self) -> Filled {
        Filled { volume_bytes: SMALL_BYTES, ..self }
    }

    pub(super) fn volume_bytes(self, divisor: u32) -> u64 {
        divided(self.volume_bytes, divisor)
    }

    pub(super) fn drive(self, model: &Model) -> Option<Model> {
        self.log_blocks.map(|n| model.clone().with_log_blocks(n))
    }

    /// The phases: filling, those of PostMark, and what is left to be written before the power fails.
    pub(super) fn program(self, seed: u64, divisor: u32) -> Box<dyn Program> {
        let usual = PostMark::default();
        let measured = PostMark {
            files: 1000u32.div_ceil(divisor),
            transactions: 5000u32.div_ceil(divisor),
            seed: (usual.seed - 1).wrapping_add(seed as u32),
            ..usual
        };
        let fill = vec![Op::Phase("fill"), Op::FillTo { percent: self.percent, seed }, Op::Sync];
        let mut programs: Vec<Box<dyn Program>> = vec![Box::new(Ops::new(fill)), measured.program()];
        if self.is_synced {
            programs = programs.into_iter().map(|p| Box::new(Synced::new(p)) as Box<dyn Program>).collect();
        }
        if self.is_cut {
            programs.push(Box::new(Ops::new(vec![Op::Phase("last sync"), Op::Sync, Op::PowerCut])));
        }
        Box::new(Chain::new(programs))
    }
}

/// Blocks of one file are overwritten at random places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// Size of the volume.
    pub volume_bytes: u64,
    /// Size of the file, bytes.
    pub file_bytes: u64,
    /// Which blocks are overwritten.
    pub access: Access,
    /// Whether every change is durable before the next operation.
    pub is_synced: bool,
    /// How much is overwritten before and during the measurement, blocks.
    pub blocks: (u64, u64),
    /// How long the volume is idle in between, seconds.
    pub idle_secs: u64,
}

/// What is overwritten at once, bytes: a block.
const PIECE_BYTES: u32 = 4096;

impl Pieces {
    pub(super) fn volume_bytes(self, divisor: u32) -> u64 {
        divided(self.volume_bytes, divisor)
    }

    pub(super) fn program(self, seed: u64, divisor: u32) -> Box<dyn Program> {
        // As the volume is.
        let of = |n: u64| n * self.volume_bytes(divisor) / self.volume_bytes;
        let (before, measured) = self.blocks;
        let spec = Overwrite {
            data_bytes: of(self.file_bytes),
            piece_bytes: PIECE_BYTES,
            is_files: false,
            access: self.access,
            warm_up_bytes: of(before) * u64::from(PIECE_BYTES),
            measured_bytes: of(measured) * u64::from(PIECE_BYTES),
            idle_ns: self.idle_secs * 1_000_000_000,
        };
        if self.is_synced { Box::new(Synced::new(spec.program(seed))) } else { spec.program(seed) }
    }
}

/// How full the volume is where relocation becomes slower than overwriting, %, between two workloads by a straight line; 0
/// if it is slower everywhere, 100 if nowhere.
fn cross_over(m: &Measured<'_>, part: &str) -> Option<f64> {
    let ratios: Vec<(f64, f64)> = points(m, part)
        .map(|x| Some((x, m.ratio(RELOCATE, OVERWRITE, x, part, Quantity::Elapsed)?)))
        .collect::<Option<_>>()?;
    let Some(slower) = ratios.iter().position(|(_, ratio)| *ratio > 1.0) else { return Some(100.0) };
    let Some(((x, before), (to, after))) = slower.checked_sub(1).map(|i| (ratios[i], ratios[slower])) else {
        return Some(0.0);
    };
    Some(x + (to - x) * (1.0 - before) / (after - before))
}

/// How full the volume is with each workload, %.
fn points<'a>(m: &'a Measured<'_>, part: &'a str) -> impl Iterator<Item = f64> + 'a {
    m.experiment.points(part).map(|(case, _)| case.x)
}

const ASYNC: &str = "asynchronous";
const SYNC: &str = "synchronous";
const POSTMARK: &[&str] = &["create", "transactions", "delete"];
const IN_ASYNC: &[Part] = &[Part::new(ASYNC, POSTMARK)];
const IN_SYNC: &[Part] = &[Part::new(SYNC, POSTMARK)];

const fn case(name: &'static str, filled: Filled) -> Case {
    let parts = if filled.is_synced { IN_SYNC } else { IN_ASYNC };
    Case { name, load: super::Load::Filled(filled), x: filled.percent as f64, parts }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ops(mut program: Box<dyn Program>) -> Vec<Op> {
        let mut ops = Vec::new();
        while program.step(&mut ops) {}
        ops
    }

    #[test]
    fn a_volume_is_filled_before_postmark_and_only_that_is_synced() {
        let plain = ops(Filled::to(70, false).program(1, 10));
        assert_eq!(plain[..3], [Op::Phase("fill"), Op::FillTo { percent: 70, seed: 1 }, Op::Sync]);
        let synced = ops(Filled { is_cut: true, ..Filled::to(70, true) }.program(1, 10));
        assert_eq!(synced[..3], plain[..3]);
        assert_eq!(synced[synced.len() - 3..], [Op::Phase("last sync"), Op::Sync, Op::PowerCut]);
        let rest = |ops: &[Op]| ops[3..].iter().filter(|op| **op != Op::Sync).cloned().collect::<Vec<_>>();
        assert_eq!(rest(&synced)[..rest(&synced).len() - 2], rest(&plain));
        assert!(synced.iter().filter(|op| **op == Op::Sync).count() > 500);
    }

    #[test]
    fn a_sweep_of_log_blocks_changes_the_drive() {
        let model = Model::named("mcaqe32g5app-used").unwrap();
        let plain = Filled::to(50, false);
        assert!(plain.drive(&model).is_none() && Filled { log_blocks: Some(8), ..plain }.drive(&model).is_some());
    }
}
