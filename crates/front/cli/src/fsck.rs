//! `arbor fsck`, with the exit codes of fsck(8).

use crate::args::FsckArgs;
use crate::exit::Exit;
use crate::image::Image;
use crate::progress::Progress;
use crate::show;
use anyhow::anyhow;
use arboretum::vfs::{CheckOptions, CheckReport, Error, Repair, Severity};
use serde_json::{Value, json};
use std::io::{self, Write};

const CORRECTED: u8 = 1;
const UNCORRECTED: u8 = 4;
const OPERATIONAL: u8 = 8;

pub(crate) fn run(args: &FsckArgs, out: &mut dyn Write) -> Result<u8, Exit> {
    let operational = |e: anyhow::Error| Exit::with(OPERATIONAL, e);
    let image = Image::new(&args.image).map_err(operational)?;
    let repair = repair(args);
    let (devices, engine) = image.damaged_devices(repair == Repair::No).map_err(operational)?;
    let options = CheckOptions { repair, force: args.force };
    let progress = Progress::bar();
    let checked = match &args.path {
        Some(path) => engine.check_path(devices, path.as_bytes()),
        None => engine.check(devices, &options, &mut |done, total, what| progress.step(done, total, what)),
    };
    progress.clear();
    let report = match checked {
        Ok(report) => report,
        Err(e) => {
            let code = if matches!(e, Error::Corrupt(_)) { UNCORRECTED } else { OPERATIONAL };
            return Err(Exit::with(code, anyhow!("{}: {e}", image.path.display())));
        }
    };
    let code = exit_code(&report, repair);
    let told = if args.json {
        serde_json::to_writer_pretty(&mut *out, &as_json(&image, engine.name(), &report, code))
            .map_err(io::Error::from)
            .and_then(|()| writeln!(out))
    } else {
        tell(&image, &report, repair, out)
    };
    told.map_err(|e| untold(code, e))?;
    Ok(code)
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

fn exit_code(report: &CheckReport, repair: Repair) -> u8 {
    let changed = report.issues.iter().any(|i| i.repaired) || (report.recovered && repair != Repair::No);
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

fn tell(image: &Image, report: &CheckReport, repair: Repair, out: &mut dyn Write) -> io::Result<()> {
    let path = image.path.display();
    if report.recovered {
        let how = if repair == Repair::No { "would be replayed" } else { "was replayed" };
        writeln!(out, "{path}: not unmounted cleanly, the log {how}")?;
    }
    for issue in &report.issues {
        let mended = if issue.repaired { " (repaired)" } else { "" };
        writeln!(out, "{path}: {}: {}: {}{mended}", severity(issue.severity), issue.code, issue.text)?;
    }
    if report.skipped {
        return writeln!(out, "{path}: marked clean, not checked (-f checks)");
    }
    let verdict = match (report.remaining(), report.issues.iter().filter(|i| i.repaired).count()) {
        (0, 0) => "clean".to_string(),
        (0, n) => format!("clean, {} repaired", show::of(n as u64, "issue", "issues")),
        (n, 0) => format!("{} left", show::of(n as u64, "issue", "issues")),
        (n, m) => format!("{} left, {m} repaired", show::of(n as u64, "issue", "issues")),
    };
    let files = show::of(report.files, "file", "files");
    let directories = show::of(report.directories, "directory", "directories");
    writeln!(out, "{path}: {verdict}; {files}, {directories}, {} in use", show::bytes(report.used_bytes))
}

fn as_json(image: &Image, engine: &str, report: &CheckReport, code: u8) -> Value {
    let issue = |i: &arboretum::vfs::Issue| json!({ "code": i.code, "severity": severity(i.severity), "text": i.text, "repaired": i.repaired });
    json!({
        "image": image.path.display().to_string(),
        "engine": engine,
        "exit_code": code,
        "clean": report.remaining() == 0,
        "skipped": report.skipped,
        "recovered": report.recovered,
        "files": report.files,
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
        };
        CheckReport { issues: issues.iter().map(issue).collect(), ..CheckReport::default() }
    }

    #[test]
    fn exit_bits_are_those_of_fsck_8() {
        assert_eq!(exit_code(&report(&[]), Repair::No), 0);
        assert_eq!(exit_code(&report(&[(Severity::Warning, false)]), Repair::No), 0);
        assert_eq!(exit_code(&report(&[(Severity::Error, false)]), Repair::No), 4);
        assert_eq!(exit_code(&report(&[(Severity::Error, true)]), Repair::Yes), 1);
        assert_eq!(exit_code(&report(&[(Severity::Error, true), (Severity::Fatal, false)]), Repair::Yes), 5);
        let recovered = CheckReport { recovered: true, ..CheckReport::default() };
        assert_eq!(exit_code(&recovered, Repair::No), 0);
        assert_eq!(exit_code(&recovered, Repair::Preen), 1);
    }

    #[test]
    fn the_report_reads_well() {
        let image = Image::parse("x.img".as_ref(), &[]).unwrap();
        let mut out = Vec::new();
        tell(&image, &report(&[(Severity::Error, true)]), Repair::Yes, &mut out).unwrap();
        let want = "x.img: error: LinkCount: inode 3 has 2 names, not 1 (repaired)\n\
                    x.img: clean, 1 issue repaired; 0 files, 0 directories, 0 B in use\n";
        assert_eq!(String::from_utf8(out).unwrap(), want);
        assert_eq!(as_json(&image, "yfs", &report(&[]), 0)["issues"], json!([]));
    }
}
