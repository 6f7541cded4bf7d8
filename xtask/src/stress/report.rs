//! What came of a run.

use super::server::Measure;
use super::tools::{Tally, unreached};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// One round, with the end of its server's life if that came after it.
#[derive(Debug, Default)]
pub(crate) struct Row {
    round: u32,
    volume: &'static str,
    passed: u32,
    failed: u32,
    not_run: u32,
    /// Pieces of work that the kill cut short.
    cut: u32,
    /// When the server was killed.
    pub(crate) kill: &'static str,
    pub(crate) recovery: Option<Duration>,
    pub(crate) umount: Option<Duration>,
    pub(crate) measure: Option<Measure>,
    pub(crate) is_back: Option<bool>,
    pub(crate) fsck: Option<bool>,
    wrong: Vec<String>,
}

impl Row {
    pub(crate) fn count(&mut self, tally: &Tally) {
        self.passed += tally.passes();
        self.failed += tally.failed.len() as u32;
        self.not_run += tally.not_run.len() as u32;
        self.cut += tally.cut;
    }

    fn line(&self) -> String {
        let or_dash = |text: Option<String>| text.unwrap_or("-".into());
        let seconds = |time: Option<Duration>| or_dash(time.map(|t| format!("{:.2}", t.as_secs_f64())));
        let kill = if self.kill.is_empty() { "no" } else { self.kill };
        format!(
            "{:>5} {:14} {:>6} {:>6} {:>7} {:>4}  {kill:9} {:>10} {:>8} {:>11} {:>5} {:>5} {:>4} {:7}",
            self.round,
            self.volume,
            self.passed,
            self.failed,
            self.not_run,
            self.cut,
            seconds(self.recovery),
            seconds(self.umount),
            or_dash(self.measure.map(|m| format!("{:.0}/{:.0}", m.rss_mib, m.peak_mib))),
            or_dash(self.measure.map(|m| format!("{}/{}", m.descriptors, m.threads))),
            or_dash(self.is_back.map(|yes| if yes { "yes" } else { "NO" }.into())),
            or_dash((!self.wrong.is_empty()).then(|| self.wrong.len().to_string())),
            self.fsck.map_or("-", |clean| if clean { "clean" } else { "DAMAGED" }),
        )
    }
}

#[derive(Debug, Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
    pub(crate) total: Tally,
    /// Tools and checks that there were no means for, and why.
    pub(crate) missing: Vec<String>,
    /// The work directory holds something to look at.
    pub(crate) has_evidence: bool,
}

impl Report {
    pub(crate) fn begin(&mut self, round: u32, volume: &'static str) -> &mut Row {
        let row = self.row(round);
        row.volume = volume;
        row
    }

    pub(crate) fn row(&mut self, round: u32) -> &mut Row {
        let at = self.rows.iter().position(|r| r.round == round).unwrap_or_else(|| {
            self.rows.push(Row { round, ..Row::default() });
            self.rows.len() - 1
        });
        &mut self.rows[at]
    }

    pub(crate) fn wrong(&mut self, round: u32, what: String) {
        println!("  WRONG: {what}");
        self.row(round).wrong.push(what);
    }

    pub(crate) fn wrongs(&mut self, round: u32, what: impl IntoIterator<Item = String>) {
        for what in what {
            self.wrong(round, what);
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        let is_bad = |row: &Row| row.failed > 0 || !row.wrong.is_empty() || row.fsck == Some(false);
        // A run in which nothing passed has shown nothing.
        self.rows.iter().any(is_bad) || self.total.passes() == 0
    }

    pub(crate) fn print(&self, seed: u64) {
        print!("{}", self.text(seed));
    }

    fn text(&self, seed: u64) -> String {
        let mut text = format!(
            "\n{:>5} {:14} {:>6} {:>6} {:>7} {:>4}  {:9} {:>10} {:>8} {:>11} {:>5} {:>5} {:>4} {:7}\n",
            "round",
            "volume",
            "passed",
            "failed",
            "not run",
            "cut",
            "kill",
            "recovery s",
            "umount s",
            "MiB now/max",
            "fd/th",
            "back",
            "bad",
            "fsck"
        );
        for row in &self.rows {
            let _ = writeln!(text, "{}", row.line());
        }
        let mut tools: BTreeMap<&str, u32> = BTreeMap::new();
        for (name, count) in &self.total.passed {
            *tools.entry(name.split(' ').next().unwrap_or(name)).or_default() += count;
        }
        for (tool, count) in tools {
            let _ = writeln!(text, "{tool}: {count} pieces of work passed");
        }
        let kinds = self.total.passed.keys().filter(|n| n.starts_with("stress-ng ")).count();
        let unreached = unreached(&self.total);
        if kinds > 0 {
            let _ = writeln!(text, "stress-ng: {kinds} stressors passed; not reached: {}", or_none(&unreached));
        }
        for (name, why) in &self.total.not_run {
            let _ = writeln!(text, "NOT RUN {name}: {}", why.lines().last().unwrap_or_default());
        }
        for what in &self.missing {
            let _ = writeln!(text, "NOT RUN {what}");
        }
        for what in &self.total.failed {
            let _ = writeln!(text, "FAILED {what}");
        }
        for row in &self.rows {
            for what in &row.wrong {
                let _ = writeln!(text, "WRONG in round {}: {what}", row.round);
            }
        }
        let sum = |of: fn(&Row) -> u32| -> u32 { self.rows.iter().map(of).sum() };
        let (passed, failed) = (sum(|r| r.passed), sum(|r| r.failed));
        let _ = writeln!(
            text,
            "{} pieces of work run, {passed} passed, {failed} failed; {} cut short by a kill, {} not run; seed {seed}",
            passed + failed,
            sum(|r| r.cut),
            sum(|r| r.not_run)
        );
        text
    }
}

fn or_none(names: &[&str]) -> String {
    if names.is_empty() { "none".into() } else { names.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_and_named() {
        let mut report = Report::default();
        assert!(report.has_failed(), "nothing was run");
        let mut tally = Tally::default();
        tally.passed.insert("git".into(), 3);
        report.begin(1, "default").count(&tally);
        report.total.add(tally);
        report.row(1).fsck = Some(true);
        assert!(!report.has_failed());
        report.wrong(1, "an inode is in use".into());
        assert!(report.has_failed());
        let text = report.text(7);
        assert!(text.contains("WRONG in round 1: an inode is in use"), "{text}");
        assert!(text.contains("3 pieces of work run, 3 passed, 0 failed; 0 cut short by a kill, 0 not run; seed 7"));
    }
}
