//! All suites for one engine, from one place: what is run and with what, and what is not and why.
//!
//! An engine's `tests/suites.rs` is one use of [`engine_suites!`](crate::engine_suites), which makes a test of each
//! function in the modules below:
//!
//! ```text
//! use arbor_torture::suites::*;
//!
//! arbor_torture::engine_suites! {
//!     Engine,
//!     variants: ["keep=sync", "keep=journal"],
//!     run: { conformance(Conformance { .. }), model, crash, .. },
//!     skip: { growing: "its volumes do not grow", .. },
//! }
//! ```
//!
//! Every suite has to be in one of the two lists: they become the fields of [`Suites`], so an engine that forgets one does
//! not compile.

pub mod concurrency;
pub mod conformance;
pub mod crash;
pub mod faults;
pub mod hostile;
pub mod model;

use crate::config::Config;
use crate::generate::Profile;
use arbor_base::vfs::{Engine, Options};
use std::fmt;
use std::io::Write;

/// An engine, and what is done with it. Each field that is a [`Suite`] stands for tests that are run or skipped together.
pub struct Suites {
    /// What is tested.
    pub engine: &'static dyn Engine,
    /// Options of mount under which most tests are run, one after the other.
    pub variants: &'static [&'static str],
    /// POSIX, and what this project promises of space, attributes and write-back.
    pub conformance: Suite<Conformance>,
    /// A fallocate without space beside other calls: for engines that ask for the time before they take a lock.
    pub fallocate: Suite<()>,
    /// Generated sequences against the reference model.
    pub model: Suite<()>,
    /// The same under power loss.
    pub crash: Suite<()>,
    /// Both in every shape of the engine.
    pub shapes: Suite<Shapes>,
    /// Power loss while a volume grows.
    pub growing: Suite<Volumes>,
    /// Power loss while the checker repairs.
    pub repair: Suite<Volumes>,
    /// A device that fails, and one that lies.
    pub faults: Suite<Faults>,
    /// Bits that flip in transfer.
    pub flips: Suite<Flips>,
    /// Damaged images.
    pub mutants: Suite<Mutants>,
    /// Tasks under chosen schedules.
    pub schedules: Suite<Schedules>,
    /// Programs that failed once under chosen schedules.
    pub failed_schedules: Suite<FailedSchedules>,
    /// Threads of the system.
    pub threads: Suite<Threads>,
}

/// What a suite is run with, or why it is not.
#[derive(Debug)]
pub enum Suite<T> {
    /// It is run.
    Run(T),
    /// It is not run, for this reason.
    Skip(&'static str),
}

impl<T> Suite<T> {
    /// Runs one of its tests, or says that it is not run.
    pub fn test(&self, name: &str, body: impl FnOnce(&T)) {
        match self {
            Suite::Run(given) => body(given),
            // Not `eprintln!`: the output of a test that passes is not shown.
            Suite::Skip(why) => drop(writeln!(std::io::stderr(), "NOT RUN: {name}: {why}")),
        }
    }
}

/// What differs between engines in [`conformance`].
#[derive(Debug)]
pub struct Conformance {
    /// Options of mount, and after how many milliseconds at most what was written is durable by itself.
    pub write_back_ms: &'static [(&'static str, u64)],
    /// Options of mount, and whether an fsync makes the data of other files durable too.
    pub fsync_takes_others: &'static [(&'static str, bool)],
}

/// Every shape of the engine.
#[derive(Debug)]
pub struct Shapes {
    /// Sequences of each profile.
    pub sequences: u64,
}

/// Volumes that the power is cut of, and what that has to come to at least.
#[derive(Debug)]
pub struct Volumes {
    /// How many volumes.
    pub count: u64,
    /// More than so many distinct states.
    pub states: u64,
    /// More than so many recoveries that were cut again.
    pub recoveries: u64,
}

/// A volume whose device fails, see [`Turns`](crate::turns::Turns), and how many faults are drawn.
#[derive(Debug)]
pub struct Faults {
    /// Options of format.
    pub format: &'static str,
    /// How many files the program makes.
    pub files: usize,
    /// Bytes of the first file; the second one has twice as many, and so on.
    pub step: usize,
    /// Faults under generated sequences.
    pub drawn: u64,
}

/// Reads of a mount in which a bit flips.
#[derive(Debug)]
pub struct Flips {
    /// The first so many reads, each in its turn.
    pub reads: u64,
    /// So many bits of each.
    pub bits: u64,
}

/// Damaged images.
pub struct Mutants {
    /// How many.
    pub count: u64,
    /// Lines of those that failed once; others begin with `#`.
    pub failed_once: &'static str,
    /// Tells the most bytes of memory that the thread held at once since the last call.
    pub meter: Option<fn() -> u64>,
}

/// Programs of several tasks under chosen schedules.
#[derive(Debug)]
pub struct Schedules {
    /// How many schedules.
    pub count: u64,
}

/// Programs that failed once.
#[derive(Debug)]
pub struct FailedSchedules {
    /// Their lines.
    pub lines: &'static str,
    /// Schedules of each.
    pub schedules: u64,
}

/// Programs on threads of the system.
#[derive(Debug)]
pub struct Threads {
    /// Programs for each mount.
    pub programs: u64,
    /// Options of format of a volume that is used beside the daemon.
    pub format: &'static str,
    /// Options of mount, one after the other.
    pub mounts: &'static [&'static str],
}

impl fmt::Debug for Suites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suites").field("engine", &self.engine.name()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Mutants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutants").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Suites {
    /// `config` under each of the variants.
    fn under(&self, config: &Config) -> Vec<Config> {
        self.variants.iter().map(|mount| mounted(config, mount)).collect()
    }

    fn each(&self, profile: Profile, test: impl Fn(&dyn Engine, &Config)) {
        self.under(&Config::new(profile)).iter().for_each(|config| test(self.engine, config));
    }
}

fn mounted(config: &Config, mount: &str) -> Config {
    Config { mount: Options::parse(mount), ..config.clone() }
}

/// `count` of something from the first seed, if the environment wants no others: seed and count.
fn drawn(count: u64) -> (u64, u64) {
    let number = crate::config::number_from_env;
    (number("ARBOR_SEED").unwrap_or(1), number("ARBOR_COUNT").unwrap_or(count))
}

/// Makes all tests of an engine, see [`suites`](crate::suites).
#[macro_export]
macro_rules! engine_suites {
    (
        $engine:expr,
        variants: [$($variant:expr),+ $(,)?],
        run: { $($run:ident $(($given:expr))?),* $(,)? },
        skip: { $($skip:ident: $why:literal),* $(,)? } $(,)?
    ) => {
        static SUITES: $crate::suites::Suites = $crate::suites::Suites {
            engine: &$engine,
            variants: &[$($variant),+],
            $($run: $crate::suites::Suite::Run(($($given)?)),)*
            $($skip: $crate::suites::Suite::Skip($why),)*
        };

        $crate::suite_tests! {
            conformance {
                conformance:
                    posix_checks flags_acls_and_labels fsync_reaches_the_device fsync_and_the_data_of_other_files space
                    what_a_file_may_have attributes_settle subdirectories_are_limited an_older_volume_is_gone
                    what_is_old_is_written a_damaged_file_is_removed_alone a_short_write_leaves_a_sound_file
                    a_cut_format_leaves_one_volume_or_none;
                fallocate: fallocate_leaves_what_others_write;
            }
            model {
                model: sequences_small_files sequences_big_files sequences_directories sequences_full_volume;
                shapes: long_sequences_in_other_shapes;
            }
            crash {
                crash:
                    power_loss_fsync_heavy power_loss_small_files power_loss_big_files power_loss_directories
                    power_loss_full_volume;
                shapes: power_loss_in_other_shapes;
                growing: power_loss_of_a_growing_volume;
                repair: power_loss_of_a_repair;
            }
            faults {
                faults:
                    every_write_fails_once every_write_fails_from_then_on every_flush_fails_once every_write_panics
                    every_flush_panics every_sort_of_fault;
                flips: a_bit_flipped_in_transfer_does_no_harm;
            }
            hostile {
                mutants: mutants mutants_that_failed_once good_images;
            }
            concurrency {
                schedules: tasks_see_an_order;
                failed_schedules: what_failed_once;
                threads: threads_see_an_order threads_beside_the_daemon reads_keep_nobody_waiting;
            }
        }
    };
}

/// The tests of [`engine_suites!`](crate::engine_suites): module, suite, functions.
#[doc(hidden)]
#[macro_export]
macro_rules! suite_tests {
    ($($module:ident { $($suite:ident: $($test:ident)+;)+ })+) => {
        $(mod $module {
            $($(#[test]
            fn $test() {
                let suites = &super::SUITES;
                suites.$suite.test(stringify!($suite), |given| $crate::suites::$module::$test(suites, given));
            })+)+
        })+
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_is_run_with_what_is_given_or_not_at_all() {
        let mut ran = Vec::new();
        Suite::Run(7).test("run", |given| ran.push(*given));
        Suite::Skip("it would take long").test("skipped", |given| ran.push(*given));
        assert_eq!(ran, [7]);
    }
}
