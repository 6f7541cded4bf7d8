//! Goes on after a power cut.
//!
//! Operations are done on a volume and the power is cut, as in [`crash`](crate::crash). What recovery finds is taken
//! down as the state of the model; further operations follow at once, without an unmount between, and the power is cut
//! at each of their events too. What recovery promised the first time has to stand after the second: what it rolled
//! back must not come up again, and what it has not mended on the device must not hurt what is written after it.

use crate::config::{Config, Cut, Failure, parse_cut, print_cuts};
use crate::crash::{Base, Explored, Seen, Start, try_sequence};
use crate::exhaust::{Kind, Volume, ends};
use crate::generate::{Profile, generate};
use crate::line::number;
use crate::ops::Op;
use crate::rng::{Rng, mix};
use crate::run::guarded;
use crate::share::{Numbers, Share};
use arbor_base::device::CrashChoice;
use arbor_base::vfs::Engine;

/// Volumes that have a second life; shared by threads.
pub struct Lives<'a> {
    engine: &'a dyn Engine,
    volumes: Vec<Volume>,
    /// Operations of all sorts, and those on names, each with what may follow.
    steps: [Vec<Vec<Op>>; 2],
    /// What happens to the end of a file before the cut, and after it.
    ends: (Vec<Vec<Op>>, Vec<Vec<Op>>),
    seed: u64,
    keep_going: bool,
    numbers: Numbers,
}

/// Where a first life ended: after so many operations, at this cut.
#[derive(Clone, Debug)]
pub(crate) struct First {
    ops: usize,
    cut: Cut,
}

impl First {
    /// Reads `2@12:NoneKept`.
    pub(crate) fn parse(text: &str) -> Result<First, String> {
        let (ops, cut) = text.split_once('@').ok_or_else(|| format!("{text:?} is not OPERATIONS@EVENT:FATE"))?;
        Ok(First { ops: number(ops)?, cut: parse_cut(cut)? })
    }

    /// The volume that it leaves of `base`, with the operations of the second; no volume if the model cannot have it.
    pub(crate) fn after(
        &self,
        engine: &dyn Engine,
        config: &Config,
        base: &Base,
        ops: &[Op],
    ) -> Result<(Option<Base>, Vec<Op>), String> {
        let (first, second) = ops.split_at_checked(self.ops).ok_or("first= says more operations than there are")?;
        let (device, _) = Start { engine, config, base }.record(first)?;
        let (at, choice) = &self.cut;
        if *at > device.events() {
            return Err(format!("the first life has only {} events", device.events()));
        }
        let base = Base::found(engine, config, device.crash_state(*at, choice), base.from())?;
        Ok((base, second.to_vec()))
    }
}

impl<'a> Lives<'a> {
    /// At most `total` of them, on `volumes` in turn.
    pub(crate) fn new(engine: &'a dyn Engine, volumes: Vec<Volume>, total: u64, seed: u64) -> Lives<'a> {
        let steps = [Kind::Any(1), Kind::Names(1)].map(|kind| kind.parts().0);
        let total = if volumes.is_empty() { 0 } else { total };
        Lives { engine, volumes, steps, ends: ends(), seed, keep_going: false, numbers: Numbers::below(total) }
    }

    /// Counts failing states instead of stopping at the first.
    pub(crate) fn keep_going(self, keep_going: bool) -> Lives<'a> {
        Lives { keep_going, ..self }
    }

    /// Explores a share of them only.
    pub(crate) fn share(mut self, share: Share) -> Lives<'a> {
        self.numbers.only(share);
        self
    }

    /// Explores the next one that nobody has taken; `None` when there is none left.
    pub(crate) fn step(&self, done: &mut Explored) -> Option<Result<(), Box<Failure>>> {
        let turn = self.numbers.take()?;
        let volume = &self.volumes[turn as usize % self.volumes.len()];
        let seed = mix(self.seed ^ mix(turn)) >> 16;
        let config = Config { seed, keep_going: self.keep_going, budget: 64, ..volume.config.clone() };
        let mut rng = Rng::new(seed);
        let (first, second) = match rng.below(4) {
            0 => (rng.pick(&self.ends.0).clone(), rng.pick(&self.ends.1).clone()),
            _ => (self.draw(&mut rng), self.draw(&mut rng)),
        };
        Some(self.explore(&config, &volume.base, (first, second), &mut rng, done))
    }

    /// One to three steps of one alphabet or, now and then, a longer list.
    fn draw(&self, rng: &mut Rng) -> Vec<Op> {
        if rng.one_in(8) {
            let profile = *rng.pick(&[Profile::Small, Profile::Sync]);
            return generate(profile, rng.next_u64(), 40);
        }
        let steps = &self.steps[usize::from(rng.one_in(3))];
        (0..=rng.below(3)).flat_map(|_| rng.pick(steps).clone()).collect()
    }

    fn explore(
        &self,
        config: &Config,
        base: &Base,
        (ops, second): (Vec<Op>, Vec<Op>),
        rng: &mut Rng,
        done: &mut Explored,
    ) -> Result<(), Box<Failure>> {
        let mut first = First { ops: ops.len(), cut: (0, CrashChoice::AllKept) };
        let begun = guarded(|| {
            let (device, _) = Start { engine: self.engine, config, base }.record(&ops)?;
            first.cut = draw_cut(rng, device.events(), |at| device.pending_at(at));
            Base::found(self.engine, config, device.crash_state(first.cut.0, &first.cut.1), base.from())
        });
        done.sequences += 1;
        let whole = |failure: Failure| {
            let words =
                format!(" first={}@{}{}", first.ops, print_cuts(std::slice::from_ref(&first.cut)), failure.words);
            Box::new(Failure { ops: [&ops[..], &failure.ops].concat(), words, ..failure })
        };
        let found = match begun {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(()),
            Err(e) => {
                let failure = Failure::whole(self.engine, config, e);
                return Err(whole(Failure { from: base.from(), ..failure }));
            }
        };
        try_sequence(self.engine, config, &found, &Seen::default(), &second, config.seed, done).map_err(|f| whole(*f))
    }
}

/// A cut at any event, more often at one of the last, with any fate of what was pending.
fn draw_cut(rng: &mut Rng, events: usize, pending_at: impl Fn(usize) -> usize) -> Cut {
    let last = if rng.one_in(2) { events } else { events.min(8) };
    let at = events - rng.below(last as u64 + 1) as usize;
    let one = rng.below(pending_at(at) as u64) as usize;
    let choices = [
        CrashChoice::AllKept,
        CrashChoice::NoneKept,
        CrashChoice::DropOne(one),
        CrashChoice::KeepOne(one),
        CrashChoice::Seeded(rng.below(1 << 32)),
        CrashChoice::Seeded(rng.below(1 << 32)),
    ];
    (at, rng.pick(&choices).clone())
}
