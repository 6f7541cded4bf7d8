//! The requests of a run: for pictures, and as a file for others.

use crate::conditions::Conditions;
use crate::measure::Settings;
use arbor_simdisk::{SimDevice, Trace, TraceWriter};
use std::fmt;
use std::io::{self, Write};

/// What a trace is of.
#[derive(Clone, Debug)]
pub struct Traced<'a> {
    /// Name of the experiment.
    pub experiment: &'a str,
    /// Name of the subject.
    pub subject: &'a str,
    /// The workloads that run on the volume, one after the other.
    pub cases: Vec<&'a str>,
}

/// Where traces go.
pub trait Traces: fmt::Debug {
    /// Somewhere to write one to.
    fn open(&self, of: &Traced<'_>) -> io::Result<Box<dyn Write>>;
}

/// What is kept of a run besides its figures.
#[derive(Default)]
pub struct Kept {
    /// Whether there is to be something to see.
    pub picture: bool,
    /// Takes all requests of the file system's disk, from the first one on. Where phases begin there are lines for
    /// people.
    pub trace: Option<TraceWriter<Box<dyn Write>>>,
}

impl Kept {
    /// A trace whose head says what it is of, if the settings ask for one.
    pub(crate) fn traced(of: &Traced<'_>, settings: &Settings, seed: u64) -> io::Result<Kept> {
        let Some(traces) = &settings.traces else { return Ok(Kept::default()) };
        let mut trace = TraceWriter::new(traces.open(of)?, settings.model.name())?;
        let words: Vec<&str> = [of.experiment, of.subject].into_iter().chain(of.cases.iter().copied()).collect();
        trace.comment(&format!("{}, seed {seed}", words.join(", ")))?;
        trace.comment(&serde_json::to_string(&Conditions::new(settings))?)?;
        Ok(Kept { picture: false, trace: Some(trace) })
    }
}

/// Takes the requests from a disk while a run goes on, so that they need not fit into memory.
pub(crate) struct Recorder {
    to: Option<TraceWriter<Box<dyn Write>>>,
    /// For a picture.
    seen: Option<Trace>,
    failure: Option<io::Error>,
}

impl Recorder {
    pub(crate) fn new(kept: Kept) -> Recorder {
        Recorder { to: kept.trace, seen: kept.picture.then(Trace::default), failure: None }
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.to.is_some() || self.seen.is_some()
    }

    /// What came before is in no picture.
    pub(crate) fn run_begins(&mut self, disk: &SimDevice) {
        self.take(disk);
        if let Some(seen) = &mut self.seen {
            seen.requests.clear();
        }
    }

    pub(crate) fn phase(&mut self, name: &str, disk: &SimDevice) {
        self.take(disk);
        self.write(|to| to.comment(&format!("{} phase {name}", disk.clock().now_ns())));
    }

    /// Takes what was completed since the last time.
    pub(crate) fn take(&mut self, disk: &SimDevice) {
        if self.is_wanted() {
            self.add(disk.take_trace());
        }
    }

    pub(crate) fn add(&mut self, trace: Trace) {
        self.write(|to| trace.requests.iter().try_for_each(|request| to.request(request)));
        if let Some(seen) = &mut self.seen {
            seen.requests.extend(trace.requests);
        }
    }

    /// What a picture shows; it ends here.
    pub(crate) fn seen(&mut self) -> Option<Trace> {
        self.seen.take()
    }

    /// An error of the file, if there was one.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.write(TraceWriter::flush);
        self.failure.map_or(Ok(()), Err)
    }

    fn write(&mut self, f: impl FnOnce(&mut TraceWriter<Box<dyn Write>>) -> io::Result<()>) {
        if let Some(to) = &mut self.to
            && let Err(e) = f(to)
        {
            self.failure.get_or_insert(e);
            self.to = None;
        }
    }
}
