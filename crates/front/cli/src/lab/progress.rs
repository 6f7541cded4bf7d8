//! How far a run is: a bar on a terminal, otherwise a line a subject.

use crate::progress;
use arbor_bench::{Experiment, Progress, Subject};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

pub(super) struct Watch {
    bar: Option<progress::Progress>,
    runs: u32,
}

impl Watch {
    pub(super) fn new(experiment: &Experiment, subject: &Subject<'_>, runs: u32) -> Watch {
        let bar = std::io::stderr().is_terminal().then(progress::Progress::bar);
        if bar.is_none() {
            crate::show::tell(format_args!("{}: {}", experiment.name, subject.name));
        }
        Watch { bar, runs }
    }

    pub(super) fn step(&self, p: &Progress<'_>, stop: &AtomicBool) {
        let Some(bar) = &self.bar else { return };
        let run = format!("run {} of {}", p.run, self.runs);
        let ending = if stop.load(Relaxed) { "ends" } else { "" };
        let words = [p.experiment, p.subject, p.case, &run, p.phase, ending];
        let words: Vec<&str> = words.into_iter().filter(|w| !w.is_empty()).collect();
        bar.step(p.done, p.total, &words.join(", "));
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.clear();
        }
    }
}
