//! Numbered invariants, checked in core after calls that have changed something.
//!
//! An engine's `invariants.rs` has a function for each number that can be checked in core, and says why the others
//! cannot. A check reads nothing from the device, and counts no buffer as used. The cost is bounded: where there are
//! many items, only every so many calls are followed by a check ([`Turns`]).

use std::fmt::Display;

/// Items that may be checked for each call, on average.
const EACH_CALL: usize = 64;

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Its number.
    pub number: &'static str,
    /// What was found instead.
    pub what: String,
}

/// Whether an invariant holds.
pub type Holds = Result<(), Broken>;

/// Fails with this number unless `holds`.
pub fn ensure<W: Display>(holds: bool, number: &'static str, what: impl FnOnce() -> W) -> Holds {
    if holds { Ok(()) } else { Err(Broken { number, what: what().to_string() }) }
}

/// State in core with invariants.
pub trait Invariants {
    /// How many items a check looks at.
    fn extent(&self) -> usize;

    /// The first invariant that does not hold.
    fn check_invariants(&self) -> Holds;
}

/// After which calls the invariants are checked.
#[derive(Debug, Default)]
pub struct Turns {
    saved: usize,
}

impl Turns {
    /// Called after a call that has changed something: whether to check now, given the number of items. They are
    /// counted only if invariants are checked at all.
    pub fn is_due(&mut self, extent: impl FnOnce() -> usize) -> bool {
        if !arbor_base::invariants::are_executed() {
            return false;
        }
        self.saved = self.saved.saturating_add(EACH_CALL);
        let due = self.saved >= extent();
        if due {
            self.saved = 0;
        }
        due
    }
}

/// Panics with the number of an invariant that does not hold.
pub fn execute<C: Invariants + ?Sized>(core: &C) {
    if let Err(Broken { number, what }) = core.check_invariants() {
        panic!("{number} does not hold: {what}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arbor_base::invariants::OnDamage;

    #[test]
    fn much_is_looked_at_seldom() {
        let looks = |extent| {
            let mut turns = Turns::default();
            (0..100).filter(|_| turns.is_due(|| extent)).count()
        };
        assert_eq!((looks(0), looks(EACH_CALL), looks(EACH_CALL + 1), looks(10 * EACH_CALL)), (100, 100, 50, 10));
        let _damaged = OnDamage::begin();
        assert_eq!(looks(0), 0);
        assert!(!Turns::default().is_due(|| unreachable!("counted for nothing")));
    }

    #[test]
    fn what_does_not_hold_panics_with_its_number() {
        struct Odd(u32);
        impl Invariants for Odd {
            fn extent(&self) -> usize {
                1
            }
            fn check_invariants(&self) -> Holds {
                ensure(self.0 % 2 == 1, "ODD-A1", || format!("{} is even", self.0))
            }
        }
        execute(&Odd(3));
        let panic = std::panic::catch_unwind(|| execute(&Odd(4))).expect_err("an even number");
        assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some("ODD-A1 does not hold: 4 is even"));
    }
}
