//! `arbor fsck`, with the exit codes of fsck(8).

use crate::args::FsckArgs;
use crate::exit::Exit;
use crate::image::Image;
use crate::progress::Progress;
use crate::show;
use anyhow::anyhow;
use arboretum::device::PatientDevice;
use arboretum::vfs::{CheckOptions, CheckReport, Error, Issue, Repair, Severity};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;

const CORRECTED: u8 = 1;
const UNCORRECTED: u8 = 4;
const OPERATIONAL: u8 = 8;
const USAGE: u8 = 16;
/// Why a repair ends at what cannot be read.
const UNREADABLE: &str = "; nothing is repaired where the device cannot be read: copy it, with zeros for what is lost \
    (ddrescue does), and repair the copy; without -y and -p the check goes on beyond it";
/// Issues of one kind that are listed one by one, unless all are asked for.
const LISTED: usize = 20;

pub(crate) fn run(args: &FsckArgs, out: &mut dyn Write) -> Result<u8, Exit> {
    let operational = |e: anyhow::Error| Exit::with(OPERATIONAL, e);
    let image = Image::new(&args.image).and_then(|image| image.without_options("fsck"));
    let image = image.map_err(|e| Exit::with(USAGE, e))?;
    let repair = repair(args);
    let (devices, patient, engine) = image.damaged_devices(repair == Repair::No).map_err(operational)?;
    let options = CheckOptions { repair, force: args.force };
    let progress = Progress::bar();
    let checked = match &args.path {
        Some(path) => engine.check_path(devices, &without_dots(path.as_bytes())),
        None => engine.check(devices, &options, &mut |done, total, what| progress.step(done, total, what)),
    };
    progress.clear();
    let mut report = match checked {
        Ok(report) => report,
        Err(e) => {
            let code = if matches!(e, Error::Corrupt(_)) { UNCORRECTED } else { OPERATIONAL };
            let advice = match patient.iter().any(|(_, d)| !d.unread().is_empty()) {
                false => "",
                true if repair == Repair::No => "; too much cannot be read",
                true => UNREADABLE,
            };
            return Err(Exit::with(code, anyhow!("{}: {e}{advice}", image.path.display())));
        }
    };
    report.issues.extend(patient.iter().flat_map(|(role, device)| unreadable(role, device, repair)));
    let code = exit_code(&report);
    let told = if args.json {
        serde_json::to_writer_pretty(&mut *out, &as_json(&image, engine.name(), &report, code, repair))
            .map_err(io::Error::from)
            .and_then(|()| writeln!(out))
    } else {
        tell(&image, &report, args, out)
    };
    told.map_err(|e| untold(code, e))?;
    Ok(code)
}

/// What could not be read, as issues.
fn unreadable(role: &str, device: &PatientDevice, repair: Repair) -> Vec<Issue> {
    let taken = if repair == Repair::No { ", and were taken as zeros" } else { "" };
    let issue = |(run, why): (Range<u64>, String)| Issue {
        code: "Unreadable",
        severity: Severity::Error,
        text: format!("bytes {} to {}{role} cannot be read{taken}: {why}", run.start, run.end - 1),
        repaired: false,
        loses: false,
    };
    device.unread().into_iter().map(issue).collect()
}

/// A path without `.` and `..`; the checker follows no symbolic links.
fn without_dots(path: &[u8]) -> Vec<u8> {
    let mut names: Vec<&[u8]> = Vec::new();
    for name in path.split(|b| *b == b'/') {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    names.join(&b'/')
}

/// A check whose report could not be written.
pub(crate) fn untold(code: u8, e: io::Error) -> Exit {
    Exit::with(code | OPERATIONAL, e)
}

fn repair(args: &FsckArgs) -> Repair {
    match (args.yes, args.preen) {
        (true, _) => Repair::Yes,
        (_, true) => Repair::Preen,
        _ => Repair::No,
    }
}

fn exit_code(report: &CheckReport) -> u8 {
    let changed = report.issues.iter().any(|i| i.repaired) || report.recovered;
    let mut code = if changed { CORRECTED } else { 0 };
    if report.remaining() > 0 {
        code |= UNCORRECTED;
    }
    code
}

fn severity(s: Severity) -> &'static str {
    match s {
        Severity::Warning => "warning",
        Severity::Error => "error",
        Severity::Fatal => "fatal",
    }
}

/// Whether mounting it read-only would be refused still.
fn needs_recovery(report: &CheckReport, repair: Repair) -> bool {
    report.unclean && (repair == Repair::No || report.remaining() > 0)
}

fn tell(image: &Image, report: &CheckReport, args: &FsckArgs, out: &mut dyn Write) -> io::Result<()> {
    let (path, words, repair) = (image.path.display(), image.words(), repair(args));
    match (report.unclean, needs_recovery(report, repair)) {
        (true, true) if repair != Repair::No => writeln!(out, "{path}: not unmounted cleanly, and not recovered")?,
        (true, true) => writeln!(
            out,
            "{path}: not unmounted cleanly, needs recovery: mount it for writing or run `arbor fsck -p {words}`"
        )?,
        (true, false) => writeln!(out, "{path}: not unmounted cleanly, recovered")?,
        _ => {}
    }
    list(image, &report.issues, args.verbose, out)?;
    if report.skipped {
        return writeln!(out, "{path}: marked clean, not checked (-f checks)");
    }
    let files = show::of(files(report), "file", "files");
    let directories = show::of(report.directories, "directory", "directories");
    let (verdict, used) = (verdict(report, repair), show::bytes(report.used_bytes));
    writeln!(out, "{path}: {verdict}; {files}, {directories}, {used} in use")?;
    if repair == Repair::Preen && report.remaining() > 0 {
        // A volume that is marked clean would not be read without it.
        let force = if args.force { "-f " } else { "" };
        writeln!(out, "{path}: more than -p repairs: run `arbor fsck {force}-y {words}`")?;
    }
    Ok(())
}

/// The issues; of many of one kind the first, and how many more there are.
fn list(image: &Image, issues: &[Issue], all: bool, out: &mut dyn Write) -> io::Result<()> {
    let path = image.path.display();
    let mut more: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for issue in issues {
        let (count, repaired) = more.entry(issue.code).or_default();
        *count += 1;
        if all || *count <= LISTED {
            let mended = if issue.repaired { " (repaired)" } else { "" };
            let (severity, text) = (severity(issue.severity), show::clean(&issue.text));
            writeln!(out, "{path}: {severity}: {}: {text}{mended}", issue.code)?;
        } else {
            *repaired += usize::from(issue.repaired);
        }
    }
    for (code, (count, repaired)) in more.into_iter().filter(|(_, (count, _))| !all && *count > LISTED) {
        let rest = show::of((count - LISTED) as u64, "more issue", "more issues");
        writeln!(out, "{path}: {rest} of the kind {code}, {} repaired (-v lists them)", show::count(repaired as u64))?;
    }
    Ok(())
}

fn verdict(report: &CheckReport, repair: Repair) -> String {
    let repaired = report.issues.iter().filter(|i| i.repaired).count();
    let lost = if report.issues.iter().any(|i| i.repaired && i.loses) { ", files may be lost: see above" } else { "" };
    let issues = |n: usize| show::of(n as u64, "issue", "issues");
    match (report.remaining(), repaired) {
        (0, 0) if needs_recovery(report, repair) => "not unmounted cleanly, nothing else is wrong".to_string(),
        (0, 0) => "clean".to_string(),
        (0, n) if lost.is_empty() => format!("clean, {} repaired", issues(n)),
        (0, n) => format!("damage was repaired, {}{lost}", issues(n)),
        (n, 0) => format!("{} left", issues(n)),
        (n, m) => format!("{} left, {m} repaired{lost}", issues(n)),
    }
}

/// Files that are no directories.
fn files(report: &CheckReport) -> u64 {
    report.files.saturating_sub(report.directories)
}

fn as_json(image: &Image, engine: &str, report: &CheckReport, code: u8, repair: Repair) -> Value {
    let issue = |i: &Issue| {
        let severity = severity(i.severity);
        json!({ "code": i.code, "severity": severity, "text": i.text, "repaired": i.repaired, "loses": i.loses })
    };
    json!({
        "image": image.path.display().to_string(),
        "engine": engine,
        "exit_code": code,
        "clean": report.remaining() == 0 && !needs_recovery(report, repair),
        "unclean": report.unclean,
        "skipped": report.skipped,
        "recovered": report.recovered,
        "files": files(report),
        "directories": report.directories,
        "used_bytes": report.used_bytes,
        "issues": report.issues.iter().map(issue).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arboretum::vfs::Issue;

    fn report(issues: &[(Severity, bool)]) -> CheckReport {
        let issue = |(severity, repaired): &(Severity, bool)| Issue {
            code: "LinkCount",
            severity: *severity,
            text: "inode 3 has 2 names, not 1".into(),
            repaired: *repaired,
            loses: false,
        };
        CheckReport { issues: issues.iter().map(issue).collect(), ..CheckReport::default() }
    }

    #[test]
    fn exit_bits_are_those_of_fsck_8() {
        assert_eq!(exit_code(&report(&[])), 0);
        assert_eq!(exit_code(&report(&[(Severity::Warning, false)])), 0);
        assert_eq!(exit_code(&report(&[(Severity::Error, false)])), 4);
        assert_eq!(exit_code(&report(&[(Severity::Error, true)])), 1);
        assert_eq!(exit_code(&report(&[(Severity::Error, true), (Severity::Fatal, false)])), 5);
        let recovered = CheckReport { recovered: true, ..CheckReport::default() };
        assert_eq!(exit_code(&recovered), 1);
    }

    fn args(words: &str) -> FsckArgs {
        use clap::Parser;
        crate::args::FsckCli::try_parse_from(["fsck.arbor"].into_iter().chain(words.split_whitespace())).unwrap().fsck
    }

    fn told(report: &CheckReport, words: &str) -> String {
        let image = Image::parse("x.img".as_ref(), &[]).unwrap();
        let mut out = Vec::new();
        tell(&image, report, &args(words), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    const COUNTS: &str = "0 files, 0 directories, 0 B in use\n";

    #[test]
    fn the_report_reads_well() {
        let line = "x.img: error: LinkCount: inode 3 has 2 names, not 1";
        let mut damage = report(&[(Severity::Error, true)]);
        assert_eq!(told(&damage, "-y x.img"), format!("{line} (repaired)\nx.img: clean, 1 issue repaired; {COUNTS}"));
        damage.issues[0].loses = true;
        assert_eq!(
            told(&damage, "-y x.img"),
            format!("{line} (repaired)\nx.img: damage was repaired, 1 issue, files may be lost: see above; {COUNTS}")
        );
        let left = told(&report(&[(Severity::Error, false)]), "-p x.img");
        let advice = "x.img: more than -p repairs: run `arbor fsck -y x.img`\n";
        assert_eq!(left, format!("{line}\nx.img: 1 issue left; {COUNTS}{advice}"));
        assert!(told(&report(&[(Severity::Error, false)]), "-f -p x.img").ends_with("run `arbor fsck -f -y x.img`\n"));
        let image = Image::parse("x.img".as_ref(), &[]).unwrap();
        assert_eq!(as_json(&image, "yfs", &report(&[]), 0, Repair::No)["issues"], json!([]));
    }

    #[test]
    fn a_volume_that_was_not_unmounted_is_not_called_clean() {
        let unclean = CheckReport { unclean: true, files: 3, directories: 2, ..CheckReport::default() };
        let line = "x.img: not unmounted cleanly, ";
        let counts = "1 file, 2 directories, 0 B in use\n";
        let advice = "needs recovery: mount it for writing or run `arbor fsck -p x.img`\n";
        let want = format!("{line}{advice}{line}nothing else is wrong; {counts}");
        assert_eq!(told(&unclean, "x.img"), want);
        assert_eq!(told(&unclean, "-p x.img"), format!("{line}recovered\nx.img: clean; {counts}"));
        let image = Image::parse("x.img".as_ref(), &[]).unwrap();
        for (repair, clean) in [(Repair::No, false), (Repair::Preen, true)] {
            assert_eq!(as_json(&image, "yfs", &unclean, 0, repair)["clean"], clean);
        }
    }

    #[test]
    fn what_cannot_be_read_is_an_issue() {
        use arboretum::device::{Device, FaultDevice, FaultOp, FaultTimes, Kind, MemDevice};
        let fault = FaultDevice::new(MemDevice::new(8192));
        fault.fail(FaultOp::Read, 1, FaultTimes::FromThenOn);
        let device = PatientDevice::new(std::sync::Arc::new(fault), true);
        device.read_at(Kind::Log, 512, &mut [0; 1024]).unwrap();
        let issues = unreadable(" of the log device", &device, Repair::No);
        let text = "bytes 512 to 1535 of the log device cannot be read, and were taken as zeros: ";
        assert!(issues.len() == 1 && issues[0].text.starts_with(text), "{issues:?}");
        assert_eq!(exit_code(&CheckReport { issues, ..CheckReport::default() }), 4);
    }

    #[test]
    fn many_of_one_kind_are_counted() {
        let many = report(&[(Severity::Error, true); 25]);
        let short = told(&many, "-p x.img");
        assert_eq!(short.lines().count(), 22, "{short}");
        assert!(short.contains("x.img: 5 more issues of the kind LinkCount, 5 repaired (-v lists them)\n"), "{short}");
        assert_eq!(told(&many, "-p -v x.img").lines().count(), 26);
    }
}
