//! Progress on standard error, if it is a terminal.

use crate::show;
use arboretum::{CopyStats, LeftOut};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::path::Path;
use std::time::Duration;

/// A bar that shows nothing where nobody looks.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Progress toward a known end.
    pub(crate) fn bar() -> Progress {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(10));
        let style = ProgressStyle::with_template("{bar:30.green/dim} {percent:>3}%  {elapsed}  {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━━━"));
        Progress(bar)
    }

    /// Progress whose end is not known.
    pub(crate) fn spinner() -> Progress {
        Progress::copy(true)
    }

    /// Progress of a copy, whose end is not known.
    pub(crate) fn copy(shown: bool) -> Progress {
        let target = if shown { ProgressDrawTarget::stderr_with_hz(10) } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        let style = ProgressStyle::with_template("{spinner:.green} {prefix}  {wide_msg:.dim}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress(bar)
    }

    pub(crate) fn step(&self, done: u64, total: u64, what: &str) {
        self.0.set_length(total);
        self.0.set_position(done);
        if self.0.message() != what {
            self.0.set_message(what.to_string());
        }
    }

    /// Says how far it has come where the end is not known.
    pub(crate) fn say(&self, text: &str) {
        self.0.set_prefix(text.to_string());
    }

    /// Writes something that stays, above the progress.
    pub(crate) fn above<R>(&self, write: impl FnOnce() -> R) -> R {
        self.0.suspend(write)
    }

    pub(crate) fn copied(&self, stats: &CopyStats, path: &Path) {
        if !self.0.is_hidden() {
            self.0.set_prefix(copied(stats));
            self.0.set_message(show::clean(path.display()));
        }
    }

    pub(crate) fn clear(&self) {
        self.0.finish_and_clear();
    }
}

/// What was copied, in numbers.
pub(crate) fn copied(stats: &CopyStats) -> String {
    let files = show::of(stats.names() - stats.directories, "file", "files");
    let directories = show::of(stats.directories, "directory", "directories");
    format!("{files}, {directories}, {}", show::bytes(stats.bytes))
}

/// Tells what a copy could not carry over.
pub(crate) fn tell_skipped(who: &str, stats: &CopyStats) {
    for text in &stats.skipped {
        show::tell(format_args!("{who}: skipped {}", show::clean(text)));
    }
}

/// Tells what a volume was not allowed to decide on the host.
pub(crate) fn tell_left_out(who: &str, left: &LeftOut) {
    let counts = [
        (left.owners, "owner of 1 file", "owners of", " files"),
        (left.set_ids, "set-id bits of 1 file", "set-id bits of", " files"),
        (left.attributes, "1 privileged attribute", "", " privileged attributes"),
        (left.devices, "1 device node", "", " device nodes"),
    ];
    let told = counts.iter().filter(|(n, ..)| *n > 0).map(|(n, one, before, beyond)| match n {
        1 => one.to_string(),
        n => format!("{before} {}{beyond}", show::count(*n)).trim_start().to_string(),
    });
    let told: Vec<String> = told.collect();
    if !told.is_empty() {
        show::tell(format_args!("{who}: left out: {} (--preserve=all, as root, keeps them)", told.join(", ")));
    }
}
