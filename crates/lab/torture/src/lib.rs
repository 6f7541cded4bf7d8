//! Reference model, operation generator, crash explorer and conformance suite, for any engine.
//!
//! An engine's tests use [`engine_suites!`], which makes the tests that all engines share; among what they call is:
//!
//! * [`run::sequences`]: random operations, each result compared with the [`model`], the whole
//!   tree compared at the end, the image checked;
//! * [`crash::explore`]: the same under power loss at every event of the device;
//! * [`conformance::run`]: a table of hand-written checks of POSIX.
//!
//! All panic on failure; the first two with a line that repeats it. They obey `ARBOR_SEED`,
//! `ARBOR_COUNT` (sequences), `ARBOR_OPS` (a number, or a list of operations to replay),
//! `ARBOR_BUDGET` (crash states for each sequence) and `ARBOR_CUTS` (power cuts to repeat).
//! What an engine alone has to show rests on [`golden`], [`damage`] and [`planted`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod badsector;
pub mod beside;
pub mod compare;
pub mod concurrent;
pub mod config;
pub mod conformance;
pub mod crash;
pub mod damage;
mod damaged_file;
pub mod data;
pub mod exec;
pub mod exhaust;
pub mod faults;
pub mod filled;
mod formatting;
mod found;
pub mod gate;
pub mod generate;
mod given;
pub mod golden;
pub mod grow;
pub mod line;
pub mod lives;
pub mod machine;
pub mod midlog;
pub mod model;
pub mod mutate;
pub mod ops;
pub mod oracle;
mod ordered;
pub mod outage;
pub mod planted;
pub mod repair;
pub mod rng;
pub mod run;
pub mod share;
mod shortwrite;
pub mod shrink;
pub mod suites;
pub mod tally;
pub mod turns;
