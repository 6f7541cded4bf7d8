//! The issues that a checker has found: which are listed, which preening leaves alone, which were mended.
//!
//! A checker either mends as it goes, and [`judge`](Findings::judge) tells for each issue whether to, or it repairs in
//! passes ([`Passes`]) and marks all issues as [`mended`](Findings::mended) at the end.

use crate::issue::{Finding, Paths};
use arbor_base::vfs::{self, CheckReport, Repair, Result, Severity};
use std::collections::BTreeMap;

/// Most issues listed one by one; further ones are counted.
pub const LISTED: usize = 100_000;

/// How an engine's issues are judged on a volume.
pub trait Judged: Finding {
    /// The facts of the volume that decide.
    type Volume: Default;
    /// Most files in issues that get a path.
    const NAMED: usize;

    /// Whether preening mends it: nothing can be lost by that. Notes in `volume` what the issue tells about it.
    fn is_safe(&self, volume: &mut Self::Volume) -> bool;

    /// How much it matters on this volume.
    fn weight(&self, _volume: &Self::Volume) -> Severity {
        self.severity()
    }

    /// Whether files, names or contents may be lost.
    fn loses(&self) -> bool;
}

/// A directory, and a name in it.
pub type Place = (u64, Vec<u8>);

/// The findings so far and what is done about them.
pub struct Findings<I: Judged> {
    /// Which issues are mended.
    pub mode: Repair,
    /// The rest of the report, besides the issues.
    pub report: CheckReport,
    /// The facts by which issues are judged.
    pub volume: I::Volume,
    /// The issues found, and whether each was mended.
    issues: Vec<(I, bool)>,
    further: u64,
    further_open: u64,
    unsafe_found: bool,
    /// Files in issues and, once an entry of one was met, its place.
    named: BTreeMap<u64, Option<Place>>,
    names: usize,
}

impl<I: Judged> Findings<I> {
    /// No findings yet.
    pub fn new(mode: Repair) -> Findings<I> {
        Findings {
            mode,
            report: CheckReport::default(),
            volume: I::Volume::default(),
            issues: Vec::new(),
            further: 0,
            further_open: 0,
            unsafe_found: false,
            named: BTreeMap::new(),
            names: 0,
        }
    }

    /// Notes an issue of a pass.
    pub fn note(&mut self, issue: impl Into<I>) {
        let issue = issue.into();
        self.unsafe_found |= !issue.is_safe(&mut self.volume);
        self.push(issue, false);
    }

    /// Notes an issue that can be mended at once. Returns whether the caller should do it.
    pub fn judge(&mut self, issue: I) -> bool {
        let safe = issue.is_safe(&mut self.volume);
        self.unsafe_found |= !safe;
        // Like any checker that runs unattended: the first surprise ends the repair.
        if self.mode == Repair::Preen && !safe {
            self.mode = Repair::No;
        }
        let mend = match self.mode {
            Repair::No => false,
            Repair::Preen => true,
            Repair::Yes => issue.severity() < Severity::Fatal,
        };
        self.push(issue, mend);
        mend
    }

    /// Notes an issue, and whether it was mended.
    pub fn push(&mut self, issue: I, repaired: bool) {
        if self.issues.len() >= LISTED {
            self.further += 1;
            self.further_open += u64::from(!repaired);
            return;
        }
        for node in issue.nodes().into_iter().take(I::NAMED.saturating_sub(self.names)) {
            self.names += 1;
            self.named.entry(node).or_default();
        }
        self.issues.push((issue, repaired));
    }

    /// Notes a name of a file in an issue, for its sentence.
    pub fn met(&mut self, dir: u64, name: &[u8], ino: u64) {
        if let Some(place) = self.named.get_mut(&ino).filter(|p| p.is_none()) {
            *place = Some((dir, name.to_vec()));
        }
    }

    /// Takes the files in issues, with the names that were met.
    pub fn take_named(&mut self) -> BTreeMap<u64, Option<Place>> {
        std::mem::take(&mut self.named)
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.issues.is_empty()
    }

    /// Whether something was found that preening leaves alone.
    pub fn unsafe_found(&self) -> bool {
        self.unsafe_found
    }

    /// Marks issues of these types as not mended.
    pub fn revoke(&mut self, codes: &[&str]) {
        for (_, repaired) in self.issues.iter_mut().filter(|i| codes.contains(&i.0.code())) {
            *repaired = false;
        }
    }

    /// Marks all issues that can be mended as mended.
    pub fn mended(&mut self) {
        self.further_open = 0;
        for (issue, repaired) in &mut self.issues {
            *repaired = issue.severity() < Severity::Fatal;
        }
    }

    /// Whether an error is left that was not mended.
    pub fn open(&self) -> bool {
        let left = |i: &(I, bool)| !i.1 && i.0.severity() > Severity::Warning;
        self.further_open > 0 || self.issues.iter().any(left)
    }

    /// Takes the listed issues, for a checker that looks again and lists only new ones then.
    pub fn take(&mut self) -> Vec<I> {
        std::mem::take(&mut self.issues).into_iter().map(|i| i.0).collect()
    }

    /// The report of a check that an issue ends.
    pub fn end(mut self, issue: impl Into<I>) -> CheckReport {
        self.note(issue);
        self.finish(&Paths::new())
    }

    /// The report.
    pub fn finish(self, paths: &Paths) -> CheckReport {
        let further = (self.further > 0).then(|| vfs::Issue {
            code: "Further",
            severity: Severity::Error,
            text: format!("{} further issues are not listed", self.further),
            repaired: self.further_open == 0,
            loses: false,
        });
        let issues = self.issues.iter().map(|(issue, repaired)| vfs::Issue {
            code: issue.code(),
            severity: issue.weight(&self.volume),
            text: issue.text(paths),
            repaired: *repaired,
            loses: issue.loses(),
        });
        CheckReport { issues: issues.chain(further).collect(), ..self.report }
    }
}

/// How a pass has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// It found nothing.
    Sound,
    /// It found the same as the pass before: that cannot be mended.
    Same,
    /// It found issues that the next pass may find mended.
    News,
}

/// Passes that follow one another until one finds nothing.
#[derive(Debug)]
pub struct Passes<I> {
    listed: usize,
    further: u64,
    last: Vec<I>,
}

impl<I> Default for Passes<I> {
    fn default() -> Passes<I> {
        Passes { listed: 0, further: 0, last: Vec::new() }
    }
}

impl<I: Judged> Passes<I> {
    /// Leaves the findings so far out of the next pass.
    pub fn skip(&mut self, f: &Findings<I>) {
        (self.listed, self.further) = (f.issues.len(), f.further);
    }

    /// Ends a pass, and returns how it ended.
    pub fn end(&mut self, f: &Findings<I>) -> Pass {
        let new: Vec<I> = f.issues.iter().skip(self.listed).map(|i| i.0.clone()).collect();
        let pass = match new.is_empty() && self.further == f.further {
            true => Pass::Sound,
            false if new == self.last => Pass::Same,
            false => Pass::News,
        };
        self.last = new;
        self.skip(f);
        pass
    }
}

/// Most passes.
const PASSES: usize = 12;

/// A checker that repairs in passes, each of which mends in memory what it finds.
pub trait Repairs {
    /// Its issues.
    type Issue: Judged;

    /// The findings so far.
    fn findings(&mut self) -> &mut Findings<Self::Issue>;

    /// Runs a pass over everything.
    fn pass(&mut self) -> Result<()>;
}

/// Runs passes until one finds nothing, as far as `repair` allows. Returns whether everything is mended now; `None` if
/// nothing is to be written.
pub fn repair(checker: &mut impl Repairs, repair: Repair) -> Result<Option<bool>> {
    let goes = |checker: &mut _| {
        let f: &mut Findings<_> = Repairs::findings(checker);
        repair == Repair::Yes || repair == Repair::Preen && !f.unsafe_found()
    };
    checker.pass()?;
    if !goes(checker) {
        return Ok(None);
    }
    let mut passes = Passes::default();
    let mut pass = passes.end(checker.findings());
    for _ in 1..PASSES {
        if pass != Pass::News {
            break;
        }
        checker.pass()?;
        pass = passes.end(checker.findings());
    }
    let mended = pass == Pass::Sound;
    let writes = goes(checker) && (mended || repair != Repair::Preen);
    Ok(writes.then_some(mended))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::issue::Node;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Class {
        Count,
        Damage,
    }

    crate::issues! {
        pub(crate) enum Issue;
        Count { ino: Node } Warning Count "{ino} is miscounted";
        Damage { ino: Node } Error Damage "{ino} is damaged";
        Lost { ino: Node } Fatal Damage "{ino} is lost";
    }

    impl Judged for Issue {
        type Volume = u32;
        const NAMED: usize = 2;

        fn is_safe(&self, damaged: &mut u32) -> bool {
            *damaged += u32::from(self.class() == Class::Damage);
            self.class() == Class::Count
        }

        fn weight(&self, damaged: &u32) -> Severity {
            if *damaged > 0 { self.severity().max(Severity::Error) } else { self.severity() }
        }

        fn loses(&self) -> bool {
            self.class() == Class::Damage
        }
    }

    fn count(ino: u64) -> Issue {
        Issue::Count { ino: Node(ino) }
    }

    fn damage(ino: u64) -> Issue {
        Issue::Damage { ino: Node(ino) }
    }

    #[test]
    fn a_long_list_is_cut() {
        for repaired in [true, false] {
            let mut f = Findings::new(Repair::No);
            (0..LISTED as u64 + 7).for_each(|ino| f.push(damage(ino), repaired));
            assert_eq!(f.open(), !repaired);
            let report = f.finish(&Paths::new());
            let last = report.issues.last().map(|i| (i.code, i.text.as_str(), i.repaired));
            assert_eq!(last, Some(("Further", "7 further issues are not listed", repaired)));
            assert_eq!(report.issues.len(), LISTED + 1);
        }
    }

    #[test]
    fn what_further_issues_were_is_mended_with_the_rest() {
        let mut f = Findings::new(Repair::No);
        (0..LISTED as u64 + 7).for_each(|ino| f.push(damage(ino), false));
        f.mended();
        assert!(!f.open() && f.finish(&Paths::new()).issues.iter().all(|i| i.repaired));
    }

    #[test]
    fn preening_ends_at_the_first_surprise() {
        let mut f = Findings::new(Repair::Preen);
        assert!(f.judge(count(1)) && !f.unsafe_found());
        assert!(!f.judge(damage(2)) && f.unsafe_found() && f.open());
        assert!(!f.judge(count(3)), "what could be mended is left too");
        assert_eq!((f.mode, f.volume), (Repair::No, 1));
        let told: Vec<_> = f.finish(&Paths::new()).issues.iter().map(|i| (i.repaired, i.severity, i.loses)).collect();
        let error = Severity::Error;
        assert_eq!(told, [(true, error, false), (false, error, true), (false, error, false)]);
    }

    #[test]
    fn what_is_fatal_is_not_mended_and_a_mistaken_repair_is_taken_back() {
        let mut f = Findings::new(Repair::Yes);
        assert!(f.judge(damage(1)) && !f.judge(Issue::Lost { ino: Node(2) }));
        f.mended();
        let told = |f: &Findings<Issue>| f.issues.iter().map(|i| i.1).collect::<Vec<_>>();
        assert_eq!(told(&f), [true, false]);
        f.revoke(&["Damage"]);
        assert_eq!(told(&f), [false, false]);
    }

    #[test]
    fn names_are_kept_of_the_first_files_only() {
        let mut f = Findings::new(Repair::No);
        (7..10).for_each(|ino| f.push(damage(ino), false));
        (7..10).for_each(|ino| f.met(2, b"name", ino));
        f.met(3, b"other", 7);
        let place = || Some((2, b"name".to_vec()));
        assert_eq!(f.take_named(), BTreeMap::from([(7, place()), (8, place())]));
    }

    #[test]
    fn passes_end_when_nothing_is_found_or_the_same() {
        let mut f = Findings::new(Repair::No);
        let mut passes = Passes::default();
        f.note(damage(1));
        passes.skip(&f);
        assert_eq!(passes.end(&f), Pass::Sound, "what was found before is not the pass's");
        let pass = [(1, Pass::News), (2, Pass::News), (2, Pass::Same)];
        for (ino, end) in pass {
            f.note(damage(ino));
            assert_eq!(passes.end(&f), end);
        }
        assert_eq!(passes.end(&f), Pass::Sound);
        (0..LISTED as u64).for_each(|ino| f.push(count(ino), false));
        passes.skip(&f);
        f.note(damage(5));
        assert_eq!(passes.end(&f), Pass::Same, "one that is only counted is not nothing");
    }
}
