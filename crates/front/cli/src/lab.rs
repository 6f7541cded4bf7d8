//! `arbor lab`: the experiments of papers on simulated disks.

mod defined;
#[cfg(target_os = "linux")]
mod disk;
mod figures;
#[cfg(target_os = "linux")]
mod peers;
mod progress;
mod replay;
mod subjects;
mod traces;

use crate::args::{Also, LabArgs, LabCommand, LabRunArgs, Merging, QueueArgs, QueueOrder};
use crate::exit::Exit;
use crate::interrupt::{self, INTERRUPTED};
use crate::show;
use anyhow::{Context, Result, anyhow};
use arbor_bench::experiment::curves::Judged;
use arbor_bench::interval::{Interval, Verdict};
use arbor_bench::library::Charge;
use arbor_bench::rows::{compare, is_compared};
use arbor_bench::sheets::sheets;
use arbor_bench::{Conditions, Experiment, Figures, More, Results, Row, Settings, Subject, System, report, to_json};
use arbor_simdisk::{Host, HostQueue, Merge, Model, Scheduler};
#[cfg(target_os = "linux")]
use clap::ValueEnum;
use comfy_table::{CellAlignment, Table, presets};
use defined::Asked;
use progress::Watch;
use serde_json::json;
use std::cell::RefCell;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use subjects::{KNOWN, Known, PEERS, Peer, chosen, listed};
use traces::TraceFiles;

pub(crate) fn run(args: &LabArgs, out: &mut dyn Write) -> Result<u8, Exit> {
    match &args.command {
        LabCommand::List(a) => list(a.json, out)?,
        LabCommand::Disks(a) => disks(a.json, out)?,
        LabCommand::Hosts(a) => hosts(a.json, out)?,
        #[cfg(target_os = "linux")]
        LabCommand::Disk(a) => return disk::run(a, out),
        #[cfg(not(target_os = "linux"))]
        LabCommand::Disk(_) => return Err(anyhow!("mounting needs Linux").into()),
        LabCommand::Run(a) => return experiments(a, out),
        LabCommand::Replay(a) => replay::run(a, out)?,
    }
    Ok(0)
}

fn list(as_json: bool, out: &mut dyn Write) -> Result<()> {
    if as_json {
        let experiment = |e: &Experiment| {
            let cases: Vec<&str> = e.cases.iter().map(|case| case.name).filter(|name| !name.is_empty()).collect();
            json!({ "name": e.name, "about": e.about, "source": e.source, "cases": cases })
        };
        let experiments: Vec<_> = arbor_bench::list().iter().map(experiment).collect();
        let subjects: Vec<_> = KNOWN.iter().map(subject_json).collect();
        let peers: Vec<_> = PEERS.iter().map(peer_json).collect();
        let all = json!({ "experiments": experiments, "subjects": subjects, "peers": peers });
        return Ok(writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?);
    }
    let mut table = plain(&["experiment", "what", "source"]);
    for e in arbor_bench::list() {
        table.add_row([e.name, e.about, e.source]);
    }
    writeln!(out, "{}\n", table.trim_fmt())?;
    let mut table = plain(&["subject", "engine", "what"]);
    for k in KNOWN {
        let options = format!("mkfs -o {}{}, mount -o {}", k.format, extra_words(k), k.mount);
        table.add_row([k.name, k.engine, &format!("{}\n{options}", k.about)]);
    }
    writeln!(out, "{}\n", table.trim_fmt())?;
    let mut table = plain(&["subject when named", "kernel's", "what"]);
    for p in PEERS {
        let mount = if p.mount.is_empty() { String::new() } else { format!(", mount -o {}", p.mount) };
        table.add_row([p.name, p.kind, &format!("{}\n{}{mount}", p.about, p.mkfs.join(" "))]);
    }
    Ok(writeln!(out, "{}", table.trim_fmt())?)
}

fn extra_words(known: &Known) -> String {
    known.extra.iter().map(|(role, bytes)| format!(" and a {role} of {}", show::bytes(*bytes))).collect()
}

fn subject_json(known: &Known) -> serde_json::Value {
    let extra: serde_json::Map<_, _> =
        known.extra.iter().map(|(role, bytes)| (role.to_string(), json!(bytes))).collect();
    json!({
        "name": known.name,
        "about": known.about,
        "engine": known.engine,
        "format": known.format,
        "mount": known.mount,
        "extra": extra,
    })
}

fn peer_json(peer: &Peer) -> serde_json::Value {
    json!({
        "name": peer.name,
        "about": peer.about,
        "kind": peer.kind,
        "mkfs": peer.mkfs.join(" "),
        "mount": peer.mount,
    })
}

fn disks(as_json: bool, out: &mut dyn Write) -> Result<()> {
    let models: Vec<Model> = Model::known().into_iter().map(model).collect::<Result<_>>()?;
    let kind = |m: &Model| if m.is_disk() { "disk" } else { "SSD" };
    if as_json {
        let one = |m: &Model| {
            let capacity = m.capacity_bytes();
            json!({ "name": m.name(), "title": m.title(), "kind": kind(m), "capacity_bytes": capacity })
        };
        let all: Vec<_> = models.iter().map(one).collect();
        return Ok(writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?);
    }
    let mut table = plain(&["name", "kind", "capacity", "title"]);
    right(&mut table, 2..3);
    for m in &models {
        table.add_row([m.name(), kind(m), &show::bytes(m.capacity_bytes()), m.title()]);
    }
    Ok(writeln!(out, "{}", table.trim_fmt())?)
}

fn hosts(as_json: bool, out: &mut dyn Write) -> Result<()> {
    let all: Vec<Host> = Host::known().into_iter().map(host_of).collect::<Result<_>>()?;
    if as_json {
        let one = |h: &Host| {
            json!({
                "name": h.name, "title": h.title, "merge": h.queue.merge, "max_transfer_bytes": h.queue.max_transfer_bytes,
                "prefer_reads": h.queue.prefer_reads, "dirty_buffers": h.dirty_buffers,
                "write_cache_bytes": h.write_cache_bytes, "call_ns": h.call_ns,
                "kib_ns": h.kib_ns, "compare_ns": h.compare_ns, "access_times": h.access_times,
            })
        };
        let all: Vec<_> = all.iter().map(one).collect();
        return Ok(writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?);
    }
    let header = [
        "name",
        "merges",
        "request",
        "reads first",
        "dirty buffers",
        "write cache",
        "ns a call",
        "a KiB",
        "a name",
        "access times",
        "title",
    ];
    let mut table = plain(&header);
    right(&mut table, 4..9);
    for h in &all {
        let merge = if h.queue.merge == Merge::Buffers { "of one file" } else { "what is adjacent" };
        let buffers = h.dirty_buffers.map_or("any".into(), |n| n.to_string());
        let ns = [h.call_ns, h.kib_ns, h.compare_ns].map(|ns| ns.to_string());
        let reads = if h.queue.prefer_reads { "yes" } else { "no" };
        let cache = h.write_cache_bytes.map_or("the disk's".into(), show::bytes);
        let transfer = show::bytes(h.queue.max_transfer_bytes);
        let head = [h.name.clone(), merge.into(), transfer, reads.into(), buffers, cache];
        let accessed = if h.access_times { "set" } else { "" };
        table.add_row(head.into_iter().chain(ns).chain([accessed.into(), h.title.clone()]));
    }
    Ok(writeln!(out, "{}", table.trim_fmt())?)
}

fn model(name: &str) -> Result<Model> {
    if !Model::known().contains(&name) {
        return Err(anyhow!("no disk is called {name:?}; there are {}", Model::known().join(", ")));
    }
    Model::named(name).map_err(|e| anyhow!("disk {name}: {e}"))
}

/// The model of this name, with what of it was switched.
fn model_with(name: &str, args: &QueueArgs) -> Result<Model> {
    let model = model(name)?;
    let model = args.write_cache.map_or(model.clone(), |bytes| model.with_write_cache(bytes));
    Ok(args.tags.map_or(model.clone(), |tags| model.with_tags(tags as usize)))
}

/// The experiment of this name, or all.
fn wanted(name: &str) -> Result<Vec<&'static Experiment>> {
    let found: Vec<_> = arbor_bench::list().iter().filter(|e| name == "all" || e.name == name).collect();
    let names = || listed(arbor_bench::list().iter().map(|e| e.name));
    if found.is_empty() {
        Err(anyhow!("no experiment is called {name:?}; there are {}, all", names()))
    } else {
        Ok(found)
    }
}

/// The cases of an experiment that are among these, by their own names.
fn cases(experiment: &Experiment, wanted: &[String]) -> Vec<String> {
    let is_wanted = |name: &str| wanted.iter().any(|w| w.eq_ignore_ascii_case(name));
    experiment.cases.iter().map(|case| case.name).filter(|name| is_wanted(name)).map(String::from).collect()
}

/// Refuses cases that none of the experiments has.
fn known_cases(experiments: &[&Experiment], wanted: &[String]) -> Result<()> {
    for name in wanted {
        if experiments.iter().all(|e| cases(e, std::slice::from_ref(name)).is_empty()) {
            let known = |e: &&Experiment| {
                let names: Vec<String> = e.cases.iter().map(|c| quoted(c.name)).collect();
                let is_single = matches!(e.cases, [only] if only.name.is_empty());
                let names = if is_single { "a single one without a name".into() } else { names.join(", ") };
                format!("{} has {names}", e.name)
            };
            let all: Vec<String> = experiments.iter().map(known).collect();
            return Err(anyhow!("no case is called {name:?}; {}", all.join("; ")));
        }
    }
    Ok(())
}

fn quoted(name: &str) -> String {
    format!("{name:?}")
}

/// Those of the experiment's host, as far as nothing else was asked for.
fn settings(experiment: &Experiment, args: &LabRunArgs, stop: Arc<AtomicBool>) -> Result<Settings> {
    let host = &experiment.host;
    let machine = machine(experiment, args)?;
    let model = model_with(args.disk.as_deref().unwrap_or(host.disk), &args.queue)?;
    let cached = machine.write_cache_bytes.filter(|_| args.queue.write_cache.is_none());
    let model = cached.map_or(model.clone(), |bytes| model.with_write_cache(bytes));
    let (queue, dirty_buffers) = (queue(&machine.queue, &args.queue), args.dirty_buffers.or(machine.dirty_buffers));
    let charge = Charge {
        call_ns: args.cpu_call_ns.unwrap_or(machine.call_ns),
        kib_ns: args.cpu_kib_ns.unwrap_or(machine.kib_ns),
        compare_ns: args.cpu_compare_ns.unwrap_or(machine.compare_ns),
        access_times: machine.access_times,
    };
    let (runs, seed, divisor) = (args.runs, args.seed.into(), args.divisor);
    let (source, partition_bytes) = (subjects::source()?, host.partition_bytes);
    let more = args.also.iter().map(|also| match also {
        Also::Latency => More::Latency,
        Also::Amplification => More::Amplification,
        Also::Counters => More::Counters,
    });
    let (cases, more) = (cases(experiment, &args.cases), more.collect());
    let usual = Settings::new(model);
    Ok(Settings {
        queue,
        dirty_buffers,
        charge,
        lanes: args.lanes,
        runs,
        seed,
        divisor,
        partition_bytes,
        source,
        stop,
        cases,
        more,
        ..usual
    })
}

/// The host of an experiment, unless another one was asked for.
fn machine(experiment: &Experiment, args: &LabRunArgs) -> Result<Host> {
    host_of(args.host.as_deref().unwrap_or(experiment.host.machine))
}

/// The host of this name.
fn host_of(name: &str) -> Result<Host> {
    if !Host::known().contains(&name) {
        return Err(anyhow!("no host is called {name:?}; there are {}", Host::known().join(", ")));
    }
    Host::named(name).map_err(|e| anyhow!("host {name}: {e}"))
}

/// The queue of a host, with what of it was switched.
fn queue(usual: &HostQueue, args: &QueueArgs) -> HostQueue {
    HostQueue {
        scheduler: match args.scheduler {
            QueueOrder::Clook => Scheduler::Clook,
            QueueOrder::Fifo => Scheduler::Fifo,
            QueueOrder::Sstf => Scheduler::Sstf,
        },
        depth: args.queue_depth.map_or(usual.depth, |n| n as usize),
        merge: args.merge.map_or(usual.merge, |merging| match merging {
            Merging::Adjacent => Merge::Adjacent,
            Merging::Buffers => Merge::Buffers,
        }),
        max_transfer_bytes: args.max_transfer.unwrap_or(usual.max_transfer_bytes),
        prefer_reads: usual.prefer_reads && !args.no_prefer_reads,
        deadline_ms: args.deadline_ms.unwrap_or(usual.deadline_ms),
        batch: args.batch.unwrap_or(usual.batch),
    }
}

/// An experiment, on what it is run, and which subjects.
type Planned = (&'static Experiment, Settings, Vec<Subject<'static>>);

/// What is run, and the files that its requests go to.
struct Plan {
    experiments: Vec<Planned>,
    traces: Option<Arc<TraceFiles>>,
}

impl Plan {
    fn new(args: &LabRunArgs, stop: &Arc<AtomicBool>, notes: &Notes) -> Result<Plan> {
        let (all, asked) = (wanted(&args.experiment)?, Asked::new(&args.subjects, &args.with)?);
        if args.alone && asked.defined.is_empty() {
            return Err(anyhow!("--alone: no subject is defined"));
        }
        known_cases(&all, &args.cases)?;
        let mut experiments = Vec::new();
        for experiment in all {
            let settings = settings(experiment, args, stop.clone())?;
            let peer = |p| system(p, experiment, args, notes);
            let is_alone = args.alone && asked.names.is_empty();
            let usual = || chosen(experiment, &asked.names, &args.engines, &peer);
            let mut subjects = if is_alone { Vec::new() } else { usual()? };
            subjects.extend(asked.subjects());
            // Of all experiments, those that have a subject and a case.
            if !subjects.is_empty() && args.cases.is_empty() == settings.cases.is_empty() {
                experiments.push((experiment, settings, subjects));
            }
        }
        let Some((_, settings, _)) = experiments.first() else {
            let wanted = if asked.names.is_empty() { "the paper's".into() } else { asked.names.join(", ") };
            return Err(anyhow!("none of the subjects {wanted} is one of {}", args.engines.join(", ")));
        };
        asked.try_out(settings)?;
        Plan { experiments, traces: None }.traced(args)
    }

    /// With files for the requests, if they were asked for.
    fn traced(mut self, args: &LabRunArgs) -> Result<Plan> {
        let Some(path) = &args.trace_out else { return Ok(self) };
        let of_several = |(experiment, settings, _): &Planned| {
            experiment.cases.iter().filter(|case| settings.has_case(case.name)).count() > 1
        };
        let several_subjects = self.experiments.iter().any(|(_, _, subjects)| subjects.len() > 1);
        let several = [self.experiments.len() > 1, several_subjects, self.experiments.iter().any(of_several)];
        let files = Arc::new(TraceFiles::new(path, several)?);
        for (_, settings, _) in &mut self.experiments {
            settings.traces = Some(files.clone());
        }
        self.traces = Some(files);
        Ok(self)
    }
}

fn experiments(args: &LabRunArgs, out: &mut dyn Write) -> Result<u8, Exit> {
    // The first signal ends it with the next operation, the second at once.
    let stop = interrupt::flag()?;
    let notes = Notes::default();
    let plan = Plan::new(args, &stop, &notes)?;
    let here: Vec<_> = plan.experiments.iter().map(|(e, settings, _)| (*e, Conditions::new(settings))).collect();
    let given = figures::read(&args.rows, &here)?;
    // Whether it can be written is better known before the hours than after them.
    let open = |path: &PathBuf| File::create(path).with_context(|| path.display().to_string());
    let (json, page) = (args.json.as_ref().map(open).transpose()?, args.report.as_ref().map(open).transpose()?);
    if let Some(dir) = &args.figures {
        std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    }
    let mut all = Results::default();
    let mut missing = Vec::new();
    let mut figures = Figures::new("", &[]);
    let mut last = String::new();
    for (experiment, settings, subjects) in &plan.experiments {
        let setting = in_words(settings, subjects);
        if setting != last {
            writeln!(out, "{}{setting}", if last.is_empty() { "" } else { "\n" })?;
        }
        let about = experiment.about(settings.divisor);
        writeln!(out, "\n{}: {about} {}.", experiment.name, experiment.source)?;
        out.flush()?;
        let mut results = one(experiment, subjects, settings, &mut missing);
        let added = figures::add(&mut results, experiment, &given, &notes);
        print(experiment, &results.rows, args.details, out)?;
        notes.borrow_mut().append(&mut results.notes);
        figures = figures.join(Figures::new(&setting, &results.rows).with(&added));
        all.rows.extend(results.rows);
        all.pictures.extend(results.pictures);
        last = setting;
    }
    let mut notes = notes.take();
    notes.dedup();
    let mut written = save(args, (json, page), &figures, &all, &notes)?;
    written.extend(plan.traces.iter().flat_map(|files| files.written()));
    if !missing.is_empty() || !notes.is_empty() || !written.is_empty() {
        writeln!(out)?;
    }
    written.iter().try_for_each(|path| writeln!(out, "written: {}", path.display()))?;
    notes.iter().try_for_each(|text| writeln!(out, "note: {text}"))?;
    missing.iter().try_for_each(|text| writeln!(out, "missing: {text}"))?;
    Ok(if stop.load(Relaxed) { INTERRUPTED } else { u8::from(!missing.is_empty()) })
}

/// Writes what was asked for; gives the paths.
fn save(
    args: &LabRunArgs,
    (json, page): (Option<File>, Option<File>),
    figures: &Figures,
    all: &Results,
    notes: &[String],
) -> Result<Vec<PathBuf>> {
    write_all(json, args.json.as_ref(), &(to_json(&all.rows)? + "\n"))?;
    let settings: Vec<&str> = figures.settings.iter().map(|s| &*s.words).collect();
    let text = report(&args.experiment, &settings.join("; "), &all.rows, &all.pictures, notes);
    write_all(page, args.report.as_ref(), &text)?;
    let mut written: Vec<PathBuf> = args.json.iter().chain(&args.report).cloned().collect();
    if let Some(dir) = &args.figures {
        written.extend(figures::write(dir, figures, &all.pictures)?);
    }
    Ok(written)
}

/// What people should know of the runs.
type Notes = Rc<RefCell<Vec<String>>>;

#[cfg(target_os = "linux")]
fn system(peer: &Peer, experiment: &Experiment, args: &LabRunArgs, notes: &Notes) -> Result<System<'static>> {
    Ok(System::Peer(peers::start(peer.name, disk_args(experiment, args)?, notes.clone())))
}

#[cfg(not(target_os = "linux"))]
fn system(peer: &Peer, _: &Experiment, _args: &LabRunArgs, _notes: &Notes) -> Result<System<'static>> {
    Err(anyhow!("{} needs Linux", peer.name))
}

/// The disk and the host's queue of a run as arguments of `lab disk`.
#[cfg(target_os = "linux")]
fn disk_args(experiment: &Experiment, args: &LabRunArgs) -> Result<Vec<String>> {
    let (q, host, machine) = (&args.queue, &experiment.host, machine(experiment, args)?);
    let queue = queue(&machine.queue, q);
    let name = |value: Option<clap::builder::PossibleValue>| value.map(|v| v.get_name().to_string());
    let merge = if queue.merge == Merge::Buffers { Merging::Buffers } else { Merging::Adjacent };
    let options = [
        ("--size", host.partition_bytes.map(|n| n.to_string())),
        ("--memory", host.memory_bytes.map(|(all, _)| all.to_string())),
        ("--dirty", host.memory_bytes.map(|(_, dirty)| dirty.to_string())),
        ("--model", Some(args.disk.clone().unwrap_or(host.disk.into()))),
        ("--scheduler", name(q.scheduler.to_possible_value())),
        ("--merge", name(merge.to_possible_value())),
        ("--queue-depth", q.queue_depth.map(|n| n.to_string())),
        ("--max-transfer", Some(queue.max_transfer_bytes.to_string())),
        ("--deadline-ms", q.deadline_ms.map(|n| n.to_string())),
        ("--batch", q.batch.map(|n| n.to_string())),
        ("--write-cache", q.write_cache.or(machine.write_cache_bytes).map(|n| n.to_string())),
        ("--tags", q.tags.map(|n| n.to_string())),
    ];
    let given = options.into_iter().filter_map(|(name, value)| value.map(|value| format!("{name}={value}")));
    let flags = [("--no-prefer-reads", !queue.prefer_reads), ("--access-times", machine.access_times)];
    Ok(given.chain(flags.into_iter().filter(|flag| flag.1).map(|flag| flag.0.into())).collect())
}

fn write_all(file: Option<File>, path: Option<&PathBuf>, text: &str) -> Result<()> {
    let Some((mut file, path)) = file.zip(path) else { return Ok(()) };
    file.write_all(text.as_bytes()).with_context(|| path.display().to_string())
}

/// Runs an experiment. A subject that fails is missing, the others are not.
fn one(experiment: &Experiment, subjects: &[Subject<'_>], settings: &Settings, missing: &mut Vec<String>) -> Results {
    let (mut all, stop) = (Results::default(), &*settings.stop);
    for subject in subjects {
        if stop.load(Relaxed) {
            missing.push(format!("{}, {}: not run, {}", experiment.name, subject.name, interrupt::WORD));
            continue;
        }
        let watch = Watch::new(experiment, subject, settings.runs);
        let result =
            arbor_bench::run(experiment, std::slice::from_ref(subject), settings, &mut |p| watch.step(p, stop));
        drop(watch);
        match result {
            Ok(results) => {
                all.rows.extend(results.rows);
                all.pictures.extend(results.pictures);
                all.notes.extend(results.notes);
            }
            Err(_) if stop.load(Relaxed) => {
                missing.push(format!("{}, {}: {}", experiment.name, subject.name, interrupt::WORD));
            }
            Err(e) => missing.push(format!("{}, {e}", experiment.name)),
        }
    }
    compare(experiment, &mut all.rows);
    all
}

/// What is the same for all subjects, and what those are that nobody knows by their names.
fn in_words(settings: &Settings, subjects: &[Subject<'_>]) -> String {
    let mut words = vec![settings.model.title().to_string(), format!("seed {}", settings.seed)];
    words.push(show::of(settings.runs.into(), "run", "runs"));
    if settings.lanes > 1 {
        words.push(format!("{} programs at the same time", settings.lanes));
    }
    if settings.divisor > 1 {
        words.push(format!("counts divided by {}", settings.divisor));
    }
    let (cached, usual) = (settings.model.write_cache_bytes(), model(settings.model.name()));
    if let Some(bytes) = cached.filter(|_| usual.is_ok_and(|usual| usual.write_cache_bytes() != cached)) {
        words.push(format!("a write cache of {}", show::bytes(bytes)));
    }
    if settings.charge != Charge::default() {
        let Charge { call_ns, kib_ns, compare_ns, access_times } = settings.charge;
        let names = if compare_ns > 0 { format!(", {compare_ns} ns a name compared") } else { String::new() };
        words.push(format!("processor {call_ns} ns a call and {kib_ns} ns a KiB{names}"));
        words.extend(access_times.then(|| "access times".to_string()));
    }
    words.extend(settings.partition_bytes.map(|bytes| format!("a partition of {}", show::bytes(bytes))));
    words.extend(queue_in_words(&settings.queue));
    words.extend(settings.dirty_buffers.map(|n| format!("{n} dirty buffers at most")));
    if !settings.cases.is_empty() {
        let names: Vec<String> = settings.cases.iter().map(|name| quoted(name)).collect();
        words.push(format!("only {}", names.join(", ")));
    }
    let defined = subjects.iter().filter_map(|s| s.setup.as_ref().map(|setup| format!("{}: {setup}", s.name)));
    [words.join(", ")].into_iter().chain(defined).collect::<Vec<_>>().join("; ")
}

/// What of a queue is not as usual.
fn queue_in_words(queue: &HostQueue) -> Vec<String> {
    let mut words = Vec::new();
    let (usual, transfer) = (HostQueue::default(), queue.max_transfer_bytes);
    let known = HostQueue {
        max_transfer_bytes: transfer,
        merge: queue.merge,
        prefer_reads: queue.prefer_reads,
        ..usual.clone()
    };
    if *queue != known {
        return vec![format!("{queue:?}")];
    }
    if transfer != usual.max_transfer_bytes {
        words.push(format!("requests of {} at most", show::bytes(transfer)));
    }
    if queue.merge == Merge::Buffers {
        words.push("only blocks of one file in one request".into());
    }
    if !queue.prefer_reads {
        words.push("reads not before writes".into());
    }
    words
}

/// Of an experiment with charts what they show, and what the paper says; of others the times. With details all figures,
/// those of all subjects together for each metric.
fn print(experiment: &Experiment, rows: &[Row], details: bool, out: &mut dyn Write) -> Result<()> {
    if experiment.charts().is_some() {
        charts(experiment, rows, out)?;
        if !details && !rows.iter().any(|r| r.is_asked) {
            return Ok(());
        }
    }
    let has_charts = experiment.charts().is_some();
    let is_shown = |r: &&Row| details || r.is_asked || (r.is_headline() && !has_charts);
    let mut metrics: Vec<&str> = Vec::new();
    rows.iter().for_each(|r| {
        if !metrics.contains(&&*r.metric) {
            metrics.push(&r.metric)
        }
    });
    let mut sorted: Vec<&Row> = rows.iter().filter(is_shown).collect();
    let hidden = rows.len() - sorted.len();
    sorted.sort_by_key(|r| metrics.iter().position(|m| *m == r.metric));
    let mut table = plain(&["subject", "metric", "unit", "paper", "ours", "paper's ratio", "our ratio", "holds"]);
    right(&mut table, 3..7);
    for row in sorted {
        table.add_row(cells(row, rows));
    }
    if !rows.is_empty() {
        writeln!(out, "{}", table.trim_fmt())?;
    }
    if let Some(count) = Verdict::count(rows.iter().map(Row::verdict)) {
        let all = if hidden > 0 { ", all figures counted" } else { "" };
        writeln!(out, "{count}{all}")?;
    }
    if hidden > 0 {
        writeln!(out, "{} more with --details", show::of(hidden as u64, "figure", "figures"))?;
    }
    if !rows.iter().any(|r| r.subject == experiment.reference) {
        writeln!(out, "no ratios: there are no figures of {}, the reference", experiment.reference)?;
    }
    Ok(())
}

/// The figures of charts, then what the paper says with our figure.
fn charts(experiment: &Experiment, rows: &[Row], out: &mut dyn Write) -> Result<()> {
    for sheet in sheets(experiment, rows) {
        let mut table = plain(&[]);
        table.set_header(&sheet.heads);
        right(&mut table, 1..sheet.heads.len());
        sheet.lines.iter().for_each(|line| {
            table.add_row(line);
        });
        writeln!(out, "{}\n{}", sheet.title, table.trim_fmt())?;
    }
    let judged = experiment.judge(rows);
    for judged in judged.iter().filter(|judged| judged.figure.is_some()) {
        let said = judged.statement;
        let word = match judged.verdict() {
            Verdict::Holds => "holds",
            Verdict::HoldsNot => "does not hold",
            Verdict::Undecided => "undecided",
            Verdict::NotJudged => "not judged",
        };
        let ours = judged.figure.map(|f| figure(f.mean) + &half(f, figure)).unwrap_or_default();
        writeln!(out, "{} {}: {ours} ({word})", said.text, said.what)?;
    }
    if let Some(count) = Verdict::count(judged.iter().map(Judged::verdict)) {
        writeln!(out, "{count}")?;
    }
    Ok(())
}

fn cells(row: &Row, rows: &[Row]) -> [String; 8] {
    let figure = |n: f64| {
        let is_count = row.unit.is_empty() && n.fract() == 0.0;
        if is_count { show::count(n as u64) } else { figure(n) }
    };
    let half_of = |interval| half(interval, figure);
    let ratio = |r: Option<f64>| r.map(|r| format!("{r:.2}")).unwrap_or_default();
    let none = || if is_compared(row, rows.iter()) { "-".into() } else { String::new() };
    [
        row.subject.clone(),
        row.metric.clone(),
        row.unit.clone(),
        row.paper.map(figure).unwrap_or_default(),
        figure(row.ours) + &half_of(row.interval()),
        ratio(row.paper_ratio),
        row.ratio().map_or_else(none, |r| ratio(Some(r.mean)) + &half(r, |n| format!("{n:.2}"))),
        row.verdict().in_table().into(),
    ]
}

/// How far an interval reaches, after ±; nothing of a single run.
fn half(interval: Interval, figure: impl Fn(f64) -> String) -> String {
    if interval.half > 0.0 { format!(" ± {}", figure(interval.half)) } else { String::new() }
}

/// Three digits, or all before the point.
fn figure(n: f64) -> String {
    match n.abs() {
        99.95.. => show::count(n.round() as u64),
        9.995.. => format!("{n:.1}"),
        _ => format!("{n:.2}"),
    }
}

fn plain(heads: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(heads);
    table
}

/// Words and figures in two columns.
#[cfg(target_os = "linux")]
fn right_column(rows: &[(&str, String)]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    rows.iter().for_each(|(words, figure)| {
        table.add_row([words, &figure[..]]);
    });
    right(&mut table, 1..2);
    table.trim_fmt()
}

fn right(table: &mut Table, columns: std::ops::Range<usize>) {
    let width = columns.len();
    table.column_iter_mut().skip(columns.start).take(width).for_each(|c| c.set_cell_alignment(CellAlignment::Right));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        let all = [0.0, 0.125, 9.99, 9.996, 99.94, 99.96, 502.4, 96_614.0];
        assert_eq!(all.map(figure), ["0.00", "0.12", "9.99", "10.0", "99.9", "100", "502", "96,614"]);
    }
}
