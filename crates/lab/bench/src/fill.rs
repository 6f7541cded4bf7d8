//! Filling a volume up to a utilisation, in the manner of PostMark: files of 500 to 10,000 bytes are made, and for every two
//! a third step removes one that is drawn from all. So what is free lies between files as after some time of use, once
//! the volume was gone through.

use crate::ground::Ground;
use crate::op::{Dir, Op};
use arbor_torture::rng::Rng;

/// Names in a directory.
const FILES_PER_DIR: u64 = 250;
/// Numbers of directories that no program uses.
const FIRST_DIR: u32 = 1 << 24;
/// Sizes of files, bytes.
const SIZES: (u64, u64) = (500, 10_000);
/// Between two looks at how full the volume is, steps.
const LOOK_STEPS: u32 = 32;

/// The files that were made to fill a volume.
pub(crate) struct Filler {
    rng: Rng,
    /// Those that are there, by number.
    files: Vec<u64>,
    made: u64,
    steps: u32,
}

impl Filler {
    pub fn new(seed: u64) -> Filler {
        Filler { rng: Rng::new(seed), files: Vec::new(), made: 0, steps: 0 }
    }

    /// The operations of the next step; none once so many hundredths of the volume are in use.
    pub fn step(&mut self, ground: &mut dyn Ground, percent: u32) -> Result<Vec<Op>, String> {
        self.steps += 1;
        if self.steps % LOOK_STEPS == 1 && ground.used_percent()? >= f64::from(percent) {
            self.steps = 0;
            return Ok(Vec::new());
        }
        let removes = self.rng.below(3) == 0 && !self.files.is_empty();
        Ok(if removes { self.remove() } else { self.make() })
    }

    fn make(&mut self) -> Vec<Op> {
        let (number, len) = (self.made, SIZES.0 + self.rng.below(SIZES.1 - SIZES.0));
        let (dir, name) = place(number);
        self.made += 1;
        self.files.push(number);
        let mut ops = Vec::new();
        if number.is_multiple_of(FILES_PER_DIR) {
            ops.push(Op::Mkdir { parent: Dir::ROOT, name: format!("fill{}", number / FILES_PER_DIR), dir });
        }
        let write = Op::Write { offset: 0, len, io: SIZES.1 as u32, tag: number };
        ops.extend([Op::Create { dir, name }, write, Op::Close]);
        ops
    }

    fn remove(&mut self) -> Vec<Op> {
        let at = self.rng.below(self.files.len() as u64) as usize;
        let (dir, name) = place(self.files.swap_remove(at));
        vec![Op::Unlink { dir, name }]
    }
}

fn place(number: u64) -> (Dir, String) {
    (Dir(FIRST_DIR + (number / FILES_PER_DIR) as u32), number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::{Seen, run};
    use crate::workload::primitive::Ops;

    /// A volume of 1,000 blocks of 4 KiB; each file has whole ones.
    #[derive(Default)]
    struct Blocks {
        files: std::collections::BTreeMap<String, u64>,
        open: String,
        ops: Vec<Op>,
        most: f64,
    }

    impl Ground for Blocks {
        fn apply(&mut self, op: &Op, _seen: &mut Seen) -> Result<(), String> {
            match op {
                Op::Create { name, .. } => self.open = name.clone(),
                Op::Write { len, .. } => drop(self.files.insert(self.open.clone(), len.div_ceil(4096))),
                Op::Unlink { name, .. } => drop(self.files.remove(name).ok_or("there is none")?),
                _ => {}
            }
            self.ops.push(op.clone());
            self.most = self.most.max(self.used_percent()?);
            Ok(())
        }

        fn used_percent(&mut self) -> Result<f64, String> {
            Ok(self.files.values().sum::<u64>() as f64 / 10.0)
        }
    }

    fn filled(to: &[u32], seed: u64) -> (Blocks, u64) {
        let mut ground = Blocks::default();
        let ops = to.iter().map(|percent| Op::FillTo { percent: *percent, seed }).collect();
        let outcome = run(&mut Ops::new(ops), &mut ground, &mut |_| ()).unwrap();
        let made = outcome.phase("start").unwrap().files_made;
        (ground, made)
    }

    #[test]
    fn a_volume_is_as_full_as_was_asked_for_and_has_holes() {
        for percent in [20, 60, 90] {
            let (mut ground, made) = filled(&[percent], 1);
            let used = ground.used_percent().unwrap();
            // It is looked at after 32 steps, of two blocks each on average.
            assert!((f64::from(percent)..f64::from(percent) + 5.0).contains(&used), "{percent}: {used}");
            assert!(ground.most < f64::from(percent) + 6.0, "{percent}: {}", ground.most);
            let share = ground.files.len() as f64 / made as f64;
            assert!((0.4..0.75).contains(&share), "{percent}: {share} of the files are left");
        }
    }

    #[test]
    fn it_goes_on_from_where_it_was_and_repeats() {
        let (mut twice, _) = filled(&[30, 60], 1);
        assert!(twice.used_percent().unwrap() >= 60.0);
        // No name is made twice, and nothing is done where enough is used.
        let made: Vec<&Op> = twice.ops.iter().filter(|op| matches!(op, Op::Create { .. })).collect();
        assert!(made.iter().enumerate().all(|(i, op)| !made[..i].contains(op)));
        assert_eq!(filled(&[60, 30], 1).0.ops, filled(&[60], 1).0.ops);
        assert_ne!(filled(&[60], 2).0.ops, filled(&[60], 1).0.ops);
    }
}
