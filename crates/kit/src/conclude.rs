//! Checkers of volumes that a crash leaves whole (plain, ReiserFS): how issues weigh, and how a check is concluded.

use crate::findings::{Findings, Judged, Repairs, repair};
use crate::forest::{self, TreeIssue};
use crate::issue::Paths;
use crate::paths::{Tree, Way, follow, paths};
use arbor_base::vfs::{CheckOptions, CheckReport, Repair, Result, Severity};

/// Whether preening may mend an issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// What can be counted again, or is there twice.
    Safe,
    /// Mending it may lose something.
    Damage,
}

impl Class {
    /// That of an issue of the directory tree.
    pub fn of(issue: &TreeIssue) -> Class {
        if issue.class() == forest::Class::Damage { Class::Damage } else { Class::Safe }
    }
}

/// The state of such a volume by which its issues are weighed.
#[derive(Debug, Default)]
pub struct Kept {
    /// The volume says that it was unmounted.
    pub was_clean: bool,
    /// The volume says that it was not.
    pub unclean: bool,
}

impl Kept {
    /// How much an issue matters. A crash leaves files that were open without a name (`left`), and nothing else.
    pub fn weight(&self, left: bool, severity: Severity) -> Severity {
        if left && !self.was_clean { severity } else { severity.max(Severity::Error) }
    }
}

/// How the issues of such a checker are judged, by their classes ([`Class`]); those that are named lose something, as do those
/// of the directory tree that say so.
#[macro_export]
macro_rules! judged {
    ($issue:ident: $($lost:ident),*) => {
        impl $crate::findings::Judged for $issue {
            type Volume = $crate::conclude::Kept;
            const NAMED: usize = 10_000;

            fn is_safe(&self, _kept: &mut $crate::conclude::Kept) -> bool {
                self.class() == $crate::conclude::Class::Safe
            }

            fn weight(&self, kept: &$crate::conclude::Kept) -> $crate::vfs::Severity {
                let unnamed = matches!(self, $issue::Tree($crate::forest::TreeIssue::Unnamed { .. }));
                let left = unnamed || matches!(self, $issue::Orphans { .. });
                kept.weight(left, $crate::issue::Finding::severity(self))
            }

            fn loses(&self) -> bool {
                match self {
                    $issue::Tree(issue) => issue.loses(),
                    $($issue::$lost { .. } => true,)*
                    _ => false,
                }
            }
        }
    };
}

/// A checker that repairs in passes, and writes what it has mended when they have ended.
pub trait Concluded: Repairs + Tree + Sized
where
    Self::Issue: Judged<Volume = Kept>,
{
    /// Whether the log is replayed on the device when a volume is opened for a repair, and not with the repairs.
    const RECOVERS_FIRST: bool;

    /// Writes the repairs; `mended` if nothing is left to be mended.
    fn write(&mut self, mended: bool) -> Result<()>;

    /// What was counted.
    fn counts(&self) -> CheckReport;

    /// Checks the file or directory at `path`, and what it takes to get there.
    fn run_along(mut self, path: &[u8]) -> Result<CheckReport>
    where
        Self: Way,
    {
        let mut found = Paths::new();
        follow(&mut self, path, &mut found)?;
        let (unclean, counts) = (self.findings().volume.unclean, self.counts());
        let mut f = std::mem::replace(self.findings(), Findings::new(Repair::No));
        f.report = CheckReport { unclean, ..counts };
        Ok(f.finish(&found))
    }

    /// Checks the volume, and repairs it if told to.
    fn run(mut self, options: &CheckOptions) -> Result<CheckReport> {
        let f = self.findings();
        if f.volume.was_clean && f.is_empty() && !options.force {
            return Ok(CheckReport { skipped: true, ..CheckReport::default() });
        }
        let unclean = f.volume.unclean;
        let mended = repair(&mut self, options.repair)?;
        if let Some(mended) = mended {
            self.write(mended)?;
        }
        let named = self.findings().take_named();
        let found = paths(&mut self, named)?;
        let counts = self.counts();
        let mut f = std::mem::replace(self.findings(), Findings::new(options.repair));
        if mended == Some(true) {
            f.mended();
        }
        let wrote = mended.is_some() || Self::RECOVERS_FIRST && options.repair != Repair::No;
        f.report = CheckReport { recovered: wrote && unclean, unclean, ..counts };
        Ok(f.finish(&found))
    }
}
