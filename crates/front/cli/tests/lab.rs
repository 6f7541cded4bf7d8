//! `arbor lab` from outside.

use assert_cmd::Command;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Runs `arbor lab` in `dir`; gives exit code, standard output and standard error.
fn lab(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_arbor")).current_dir(dir).arg("lab").args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code().unwrap_or(-1), text(&out.stdout), text(&out.stderr))
}

/// Runs `arbor lab` where no file is touched and nothing goes wrong.
fn ok(args: &[&str]) -> String {
    let (code, out, err) = lab(Path::new("."), args);
    assert_eq!((code, err.as_str()), (0, ""), "{args:?}: {out}");
    out
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect()
}

#[test]
fn what_there_is_is_listed() {
    let all: Value = serde_json::from_str(&ok(&["list", "--json"])).unwrap();
    let experiments: Vec<&str> = arbor_bench::list().iter().map(|e| e.name).collect();
    assert_eq!(names(&all["experiments"]), experiments);
    let subjects = names(&all["subjects"]);
    let usual = arbor_bench::list().iter().flat_map(|e| e.columns.iter().chain(e.others));
    assert!(usual.clone().all(|name| subjects.iter().filter(|s| *s == name).count() == 1), "{subjects:?}");
    assert!(subjects.iter().all(|s| usual.clone().any(|name| name == s)), "{subjects:?}");
    let peers = ["ext2", "ext2-1K", "ext2-2002", "ext3", "ext4", "XFS", "btrfs"];
    assert_eq!(names(&all["peers"]), peers);
    let text = ok(&["list"]);
    assert!(experiments.iter().chain(&subjects).chain(&peers).all(|name| text.contains(name)), "{text}");
    assert!(arbor_bench::list().iter().all(|e| text.contains(e.about) && text.contains(e.source)), "{text}");
}

#[test]
fn disks_are_listed() {
    let all: Value = serde_json::from_str(&ok(&["disks", "--json"])).unwrap();
    let known = arbor_simdisk::Model::known();
    assert_eq!(names(&all), known);
    let text = ok(&["disks"]);
    for (name, disk) in known.iter().zip(all.as_array().unwrap()) {
        let model = arbor_simdisk::Model::named(name).unwrap();
        assert_eq!(disk["capacity_bytes"], model.capacity_bytes());
        assert!(text.contains(name) && text.contains(model.title()), "{text}");
    }
}

#[test]
fn hosts_are_listed_and_taken() {
    let all: Value = serde_json::from_str(&ok(&["hosts", "--json"])).unwrap();
    assert_eq!(names(&all), arbor_simdisk::Host::known());
    let text = ok(&["hosts"]);
    for name in arbor_simdisk::Host::known() {
        assert!(text.contains(&arbor_simdisk::Host::named(name).unwrap().title), "{text}");
    }
    let dir = tempfile::tempdir().unwrap();
    let run = |experiment: &str, more: &[&str]| {
        let usual = ["run", experiment, "--subject", "FFS-SU", "--divisor", "500", "--json", "rows.json"];
        let (code, out, err) = lab(dir.path(), &[&usual[..], more].concat());
        assert_eq!(code, 0, "{err}");
        let rows = virtual_rows(&dir.path().join("rows.json"));
        let requests = rows.iter().find(|r| r["metric"] == "extraction, requests").unwrap()["ours"].as_f64().unwrap();
        (out, requests)
    };
    let (words, joined) = run("yfs-table3", &[]);
    assert!(!words.contains("of one file"), "{words}");
    let (words, apart) = run("freebsd4-table3", &[]);
    let host = "a write cache of 512 KiB, processor 100000 ns a call and 5000 ns a KiB, only blocks of one file in one request, reads not before writes, \
                390 dirty buffers at most";
    assert!(words.contains(host), "{words}");
    assert!(apart > 1.5 * joined, "{apart} of buffers, {joined} of what is adjacent");
    assert_eq!(run("yfs-table3", &["--host", "freebsd4"]).1, apart);
    assert_eq!(run("freebsd4-table3", &["--host", "linux"]).1, joined);
    assert!(run("freebsd4-table3", &["--dirty-buffers", "20"]).0.contains(", 20 dirty buffers at most"));
    let (code, _, err) = lab(dir.path(), &["run", "yfs-table3", "--host", "vax"]);
    assert_eq!(
        (code, err.as_str()),
        (
            1,
            "arbor lab: no host is called \"vax\"; there are linux, freebsd4, decstation, pentiumpro, pentium3, pentium3-noatime\n"
        )
    );
}

/// Rows without the real time of the processor, which is not the same twice.
fn virtual_rows(path: &Path) -> Vec<Value> {
    let rows: Vec<Value> = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    rows.into_iter().filter(|r| !r["metric"].as_str().unwrap().contains("processor")).collect()
}

#[test]
fn a_run_gives_rows_and_a_page_and_repeats() {
    let dir = tempfile::tempdir().unwrap();
    let run = |seed: &str, json: &str| {
        let subjects = "yFS-inline,FFS-SU";
        let (json, page) = (["--json", json], ["--report", "page.html"]);
        let args =
            [&["run", "yfs-table3", "--subject", subjects, "--divisor", "500", "--seed", seed][..], &json, &page];
        let (code, out, err) = lab(dir.path(), &args.concat());
        assert_eq!((code, err.as_str()), (0, "yfs-table3: yFS-inline\nyfs-table3: FFS-SU\n"), "{out}");
        out
    };
    let out = run("7", "one.json");
    assert!(out.contains("seed 7, 1 run, counts divided by 500\n"), "{out}");
    assert!(out.contains("An archive of 55,189 files is extracted and removed, counts divided by 500."), "{out}");
    assert!(out.contains("\nwritten: one.json\nwritten: page.html\n"), "{out}");
    run("7", "other.json");
    run("8", "differs.json");
    let rows = ["one.json", "other.json", "differs.json"].map(|name| virtual_rows(&dir.path().join(name)));
    assert_eq!(rows[0], rows[1]);
    assert_ne!(rows[0], rows[2]);
    for subject in ["yFS-inline", "FFS-SU"] {
        let of = |metric: &str| rows[0].iter().find(|r| r["subject"] == subject && r["metric"] == metric).unwrap();
        assert!(of("extraction, elapsed time")["ours"].as_f64().unwrap() > 0.0);
        assert_eq!(of("deletion, elapsed time")["our_ratio"].is_null(), subject == "FFS-SU");
    }
    // Two subjects together for each metric.
    let lines: Vec<&str> = out.lines().filter(|l| l.contains("extraction, elapsed time")).collect();
    assert!(lines[0].trim_start().starts_with("yFS-inline") && lines[1].trim_start().starts_with("FFS-SU"), "{out}");
    let page = fs::read_to_string(dir.path().join("page.html")).unwrap();
    assert!(page.contains("yFS-inline") && page.contains("FFS-SU") && page.ends_with("</html>\n"));
    assert!(["http:", "https:", "src=", "href=", "@import", "url("].iter().all(|outside| !page.contains(outside)));
}

/// All files of a directory, by name.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|e| e.unwrap());
    entries.map(|e| (e.file_name().into_string().unwrap(), fs::read(e.path()).unwrap())).collect()
}

#[test]
fn figures_are_files_and_repeat() {
    let dir = tempfile::tempdir().unwrap();
    let run = |more: &[&str]| {
        let usual = ["run", "yfs-table3", "--subject", "yFS-inline,FFS-SU", "--divisor", "500"];
        let (code, out, err) = lab(dir.path(), &[&usual[..], more].concat());
        assert_eq!(code, 0, "{out}{err}");
        out
    };
    run(&["--figures", "one/deep", "--json", "rows.json"]);
    run(&["--figures", "other"]);
    let one = files(&dir.path().join("one/deep"));
    assert_eq!(one, files(&dir.path().join("other")));
    let pictures = ["maps", "ratios", "seeks", "times"].map(|what| format!("yfs-table3-{what}.svg"));
    assert!(pictures.iter().all(|name| one.contains_key(name)) && one.len() == 6, "{:?}", one.keys());
    let document = String::from_utf8_lossy(&one["figures.md"]);
    assert!(pictures.iter().all(|name| document.contains(&format!("]({name})"))), "{document}");
    assert!(document.contains("seed 1, 1 run, counts divided by 500.\n"), "{document}");

    let rows = fs::read_to_string(dir.path().join("rows.json")).unwrap().replace("yFS-inline", "ext4");
    fs::write(dir.path().join("ext4.json"), rows).unwrap();
    let out = run(&["--figures", "more", "--rows", "ext4.json"]);
    assert!(out.lines().any(|l| l.trim_start().starts_with("ext4  ")), "{out}");
    let document = fs::read_to_string(dir.path().join("more/figures.md")).unwrap();
    assert!(document.contains("Measured elsewhere: ext4.\n") && document.contains("| FFS-SU | ext4 |\n"));
}

#[test]
fn times_are_printed_and_all_figures_with_details() {
    let dir = tempfile::tempdir().unwrap();
    let run = |more: &[&str]| {
        let usual = ["run", "yfs-table2", "--subject", "yfs-INLINE,ffs-su", "--divisor", "1000", "--json", "rows.json"];
        let (code, out, err) = lab(dir.path(), &[&usual[..], more].concat());
        assert_eq!(code, 0, "{out}{err}");
        out
    };
    let lines = |out: &str, what: &str| out.lines().filter(|l| l.contains(what)).count();
    let (out, rows) = (run(&["--report", "page.html"]), virtual_rows(&dir.path().join("rows.json")));
    // Two subjects and three workloads, whose counts are the divided ones everywhere.
    assert_eq!((lines(&out, "files, elapsed time"), lines(&out, "files, time afterwards")), (6, 6), "{out}");
    assert!(lines(&out, " 50 files, ") >= 4 && lines(&out, "50,000") == 0, "{out}");
    assert_eq!(lines(&out, "requests"), 0, "{out}");
    assert!(rows.iter().any(|r| r["metric"] == "150 files, requests"));
    let page = fs::read_to_string(dir.path().join("page.html")).unwrap();
    assert!(page.contains(">50 files<") && !page.contains("50,000 files"));
    assert_eq!(page.matches("Seagate").count(), 1);
    let more: usize = out.lines().find_map(|l| l.strip_suffix(" figures more with --details")?.parse().ok()).unwrap();
    let details = run(&["--details"]);
    assert_eq!(lines(&details, "--details"), 0);
    assert_eq!(lines(&details, " files, "), more + 12 + lines(&details, "note: "), "{details}");
    // A figure without a ratio, since it is nothing: FFS has no log.
    let log = details.lines().find(|l| l.contains("yFS-inline  50 files, disk time, log")).unwrap();
    assert!(log.trim_end().ends_with(" -"), "{log}");
    let rated =
        |subject: &str| rows.iter().any(|r| r["subject"] == subject && r["metric"] == "50 files, deletion rate");
    for subject in ["yFS-inline", "FFS-SU"] {
        let note = format!("note: yfs-table2, {subject}: 50 files, deletion rate: too short to measure\n");
        assert_ne!(details.contains(&note), rated(subject), "{details}");
    }
}

#[test]
fn rows_of_a_file_do_not_replace_what_was_measured() {
    let dir = tempfile::tempdir().unwrap();
    let usual = ["run", "yfs-table3", "--divisor", "500", "--subject"];
    let run = |more: &[&str]| {
        let (code, out, err) = lab(dir.path(), &[&usual[..], more].concat());
        assert_eq!(code, 0, "{out}{err}");
        out
    };
    run(&["yFS-inline,FFS-SU", "--json", "one.json"]);
    let measured = virtual_rows(&dir.path().join("one.json"));
    let mut changed = measured.clone();
    changed.iter_mut().for_each(|row| row["ours"] = 12_345.0.into());
    fs::write(dir.path().join("changed.json"), serde_json::to_vec(&changed).unwrap()).unwrap();
    let out = run(&["yFS-inline", "--rows", "changed.json", "--json", "both.json"]);
    let note = "note: changed.json: its rows of yFS-inline in yfs-table3 are not used, there are others\n";
    assert!(out.contains(note), "{out}");
    let both = virtual_rows(&dir.path().join("both.json"));
    let ours = |rows: &[Value], subject: &str| -> Vec<Value> {
        rows.iter().filter(|r| r["subject"] == subject).map(|r| r["ours"].clone()).collect()
    };
    assert_eq!(ours(&both, "yFS-inline"), ours(&measured, "yFS-inline"));
    assert_eq!(ours(&both, "FFS-SU"), ours(&changed, "FFS-SU"));
    assert!(both.iter().all(|r| r["conditions"]["divisor"] == 500 && r["conditions"]["disk"] == "st39140"));
}

#[test]
fn rows_that_cannot_be_compared_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let usual = ["run", "yfs-table3", "--divisor", "500", "--subject", "yFS-inline"];
    assert_eq!(lab(dir.path(), &[&usual[..], &["--json", "rows.json"]].concat()).0, 0);
    assert_eq!(lab(dir.path(), &[&usual[..], &["--runs", "2", "--json", "two.json"]].concat()).0, 0);
    let mut old = virtual_rows(&dir.path().join("rows.json"));
    old.iter_mut().for_each(|row| drop(row.as_object_mut().unwrap().remove("conditions")));
    fs::write(dir.path().join("old.json"), serde_json::to_vec(&old).unwrap()).unwrap();
    fs::write(dir.path().join("empty.json"), "{}").unwrap();
    let other = "row yfs-table3, yFS-inline, \"extraction, elapsed time\": measured with other settings: ";
    for (experiment, more, file, want) in [
        (
            "yfs-table3",
            &["--disk", "870evo"][..],
            "rows",
            format!("{other}disk is \"st39140\", not \"870evo\" as here"),
        ),
        ("yfs-table3", &["--seed", "2"], "rows", format!("{other}seed is 1, not 2 as here")),
        ("yfs-table3", &[], "two", format!("{other}runs is 2, not 1 as here")),
        (
            "yfs-table3",
            &["--scheduler", "fifo"],
            "rows",
            format!("{other}scheduler is \"clook\", not \"fifo\" as here"),
        ),
        ("yfs-table3", &["--tags", "1"], "rows", format!("{other}tags is 2, not 1 as here")),
        ("yfs-table3", &["--cpu-call-ns", "9"], "rows", format!("{other}cpu_call_ns is 0, not 9 as here")),
        ("yfs-table3", &[], "old", other.replace("measured with other settings: ", "it does not say on which disk")),
        ("yfs-table3", &[], "empty", "rows of the laboratory are expected, a JSON array as `arbor lab run".into()),
        ("yfs-table4", &[], "rows", "it has no rows of yfs-table4".into()),
    ] {
        let file = format!("{file}.json");
        let args = ["run", experiment, "--divisor", "500", "--subject", "yFS-inline", "--rows", &file];
        let (code, out, err) = lab(dir.path(), &[&args[..], more].concat());
        assert_eq!((code, out.as_str()), (1, ""), "{err}");
        assert!(err.starts_with(&format!("arbor lab: {file}: {want}")) && err.lines().count() == 1, "{err}");
    }
}

/// Volumes of a size of their own, as divided as the subjects can be.
#[test]
fn filled_and_aged_volumes() {
    let dir = tempfile::tempdir().unwrap();
    let run = |name: &str, subjects: &str, divisor: &str| {
        let args = ["run", name, "--subject", subjects, "--divisor", divisor, "--json", "rows.json"];
        let (code, out, err) = lab(dir.path(), &args);
        assert_eq!(code, 0, "{out}{err}");
        let experiment = arbor_bench::list().iter().find(|e| e.name == name).unwrap();
        let charts = experiment.charts().unwrap();
        assert!(charts.charts.iter().any(|chart| out.contains(chart.title)), "{out}");
        let rows = virtual_rows(&dir.path().join("rows.json"));
        assert!(rows.iter().all(|r| r["ours"].as_f64().is_some_and(|f| f >= 0.0)), "{rows:?}");
        rows
    };
    let figures = |rows: &[Value], subject: &str, metric: &str| -> Vec<f64> {
        let mine = rows.iter().filter(|r| r["subject"] == subject && r["metric"].as_str().unwrap().ends_with(metric));
        mine.map(|r| r["ours"].as_f64().unwrap()).collect()
    };
    let rows = run("lfs-tpcb", "LFS-uncleaned,FFS-4K", "40");
    let (log, in_place) = (figures(&rows, "LFS-uncleaned", "transactions"), figures(&rows, "FFS-4K", "transactions"));
    // Without a cleaner there is one figure, wherever it is shown.
    assert!(log.len() == 6 && in_place.len() == 6 && log.iter().all(|f| *f == log[0] && *f > in_place[0]), "{rows:?}");
    let rows = run("lfs-cleaning", "LFS-benefit", "4");
    let costs = figures(&rows, "LFS-benefit", "even, uniform, write cost");
    assert!(costs.len() == 5 && costs.is_sorted() && costs[0] >= 1.0 && costs[4] > 2.0, "{costs:?}");
    let rows = run("ffs-aging", "FFS-home-70", "16");
    let reads = figures(&rows, "FFS-home-70", "read 64 KB, throughput");
    assert!(reads.len() > 5 && reads[1..].iter().all(|f| *f < reads[0]), "{reads:?}");
}

/// Volumes that are filled before, changes that are synced, what a power cut leaves, an SSD that is not new.
#[test]
fn overwriting_and_relocation_on_filled_volumes() {
    let dir = tempfile::tempdir().unwrap();
    let run = |name: &str, more: &[&str]| {
        let usual = ["run", name, "--divisor", "16", "--json", "rows.json"];
        let (code, out, err) = lab(dir.path(), &[&usual[..], more].concat());
        assert_eq!(code, 0, "{out}{err}");
        virtual_rows(&dir.path().join("rows.json"))
    };
    let figure = |rows: &[Value], subject: &str, metric: &str| {
        let found = rows.iter().find(|r| r["subject"] == subject && r["metric"] == metric);
        found.unwrap_or_else(|| panic!("{subject}, {metric}"))["ours"].as_f64().unwrap()
    };
    let disk = ["--disk", "st39140"];
    let rows = run("evergreen-masters", &[&disk[..], &["--subject", "Evergreen-n64,Evergreen-n1024"]].concat());
    let reads = |subject: &str, percent: u32| figure(&rows, subject, &format!("{percent}% full, boot, read requests"));
    for percent in [20, 50, 80] {
        // One reserved block in 64 of 16,384, and in 1,024.
        assert!(reads("Evergreen-n64", percent) - reads("Evergreen-n1024", percent) > 230.0, "{percent}");
    }
    let rows = run("evergreen-large", &disk);
    let written = |subject: &str, part: &str| figure(&rows, subject, &format!("512 MB, {part}, written"));
    let logged = |subject: &str| figure(&rows, subject, "512 MB, asynchronous, requests");
    assert!(logged("Evergreen-overwrite") > 0.0 && logged("Evergreen-relocate") > 0.0);
    for subject in ["Evergreen-overwrite", "Evergreen-relocate"] {
        // A fifth as many blocks, with all that belongs to each.
        assert!(written(subject, "synchronous") > written(subject, "asynchronous") / 5.0, "{subject}");
    }
    let mine = ["--subject", "Evergreen-overwrite", "--with", "mine=Evergreen-overwrite:redo=all"];
    let rows = run("evergreen-fig5", &[&disk[..], &mine].concat());
    // The last of two options holds.
    assert_eq!(figure(&rows, "Evergreen-overwrite", "50% full, synchronous, written to a log"), 0.0);
    let redo = |part: &str| figure(&rows, "mine", &format!("50% full, {part}, written to a log"));
    assert!(redo("asynchronous") > 0.0 && redo("synchronous") > redo("asynchronous"));
    let rows = run("evergreen-fig4", &["--disk", "870evo-used", "--subject", "Evergreen-relocate"]);
    let flash = "50% full, asynchronous, write amplification of the flash";
    assert!(figure(&rows, "Evergreen-relocate", flash) > 1.5, "{rows:?}");
}

#[test]
fn charts_are_printed_with_what_the_paper_says() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["lfs-small", "lfs-large", "lfs-filesize"] {
        let figures = ["--figures", name, "--json", "rows.json", "--report", "page.html"];
        let (code, out, err) = lab(dir.path(), &[&["run", name, "--divisor", "20"][..], &figures].concat());
        assert_eq!((code, err.lines().count()), (0, 3), "{out}{err}");
        assert!(out.starts_with("Digital DSP3105") && out.contains("requests of 64 KiB at most\n"), "{out}");
        let experiment = arbor_bench::list().iter().find(|e| e.name == name).unwrap();
        let charts = experiment.charts().unwrap();
        assert!(charts.charts.iter().all(|chart| out.contains(chart.title)), "{out}");
        // Counts were divided: nothing is judged.
        assert!(charts.statements.iter().all(|s| out.contains(s.text)), "{out}");
        assert_eq!(out.matches("(not judged)").count(), charts.statements.len(), "{out}");
        let files = files(&dir.path().join(name));
        assert!(files.contains_key(&format!("{name}-curves.svg")), "{:?}", files.keys());
        let document = String::from_utf8_lossy(&files["figures.md"]);
        assert!(charts.statements.iter().all(|s| document.contains(&format!("| {} | {} |", s.text, s.what))));
        let rows = virtual_rows(&dir.path().join("rows.json"));
        assert!(rows.iter().all(|r| r["conditions"]["disk"] == "dsp3105" && r["ours"].as_f64().is_some()));
        assert!(fs::read_to_string(dir.path().join("page.html")).unwrap().contains(charts.statements[0].text));
    }
}

#[test]
fn small_files_are_the_business_of_a_log() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(lab(dir.path(), &["run", "lfs-small", "--divisor", "20", "--json", "rows.json"]).0, 0);
    let rows = virtual_rows(&dir.path().join("rows.json"));
    let rate = |subject: &str, part: &str| {
        let metric = format!("{part}, rate");
        rows.iter().find(|r| r["subject"] == subject && r["metric"] == metric).unwrap()["ours"].as_f64().unwrap()
    };
    for part in ["create", "delete"] {
        assert!(rate("LFS-4K", part) > 5.0 * rate("FFS", part), "{part}");
    }
    assert!(rate("LFS-4K", "read") > 0.5 * rate("FFS", "read"));
}

/// Small files in a tree, and directories that are searched from their beginning.
#[test]
fn small_files_are_the_business_of_a_tree() {
    let dir = tempfile::tempdir().unwrap();
    let run = |name: &str, more: &[&str]| {
        let (code, out, err) = lab(dir.path(), &[&["run", name, "--json", "rows.json"][..], more].concat());
        assert_eq!(code, 0, "{out}{err}");
        virtual_rows(&dir.path().join("rows.json"))
    };
    let figure = |rows: &[Value], subject: &str, metric: &str| {
        rows.iter().find(|r| r["subject"] == subject && r["metric"] == metric).unwrap()["ours"].as_f64().unwrap()
    };
    let rows = run("reiser-small", &["--divisor", "40"]);
    for part in ["creation", "cp -r", "scan", "du"] {
        let time = |subject: &str| figure(&rows, subject, &format!("1 directory, {part}, elapsed time"));
        assert!(time("FFS-linear") > time("ReiserFS-paper"), "{part}");
    }
    let used = |subject: &str| figure(&rows, subject, "1 directory, find -exec cp, space used");
    assert!(used("ReiserFS-paper") < used("FFS-linear") && used("FFS-linear") < used("ReiserFS-notails"));
    let compared = |subject: &str| figure(&rows, subject, "1 directory, du, names compared");
    assert!(compared("FFS-linear") > 0.5 && compared("FFS-hashed") < 0.1);
    assert!(
        rows.iter()
            .all(|r| r["conditions"]["partition_bytes"] == 506 << 20 && r["conditions"]["cpu_compare_ns"] == 500)
    );
    // What is compared takes its time, and nothing else has changed.
    let dearer = run("reiser-small", &["--divisor", "40", "--subject", "FFS-linear", "--cpu-compare-ns", "5000"]);
    let time = |rows: &[Value]| figure(rows, "FFS-linear", "1 directory, du, elapsed time");
    let more_s = compared("FFS-linear") * 1e6 * 4500e-9;
    assert!((time(&dearer) - time(&rows) - more_s).abs() < 0.1 * more_s, "{} {}", time(&dearer), time(&rows));
    for name in ["reiser-banded", "reiser-medium", "reiser-large"] {
        let rows = run(name, &["--divisor", "40", "--subject", "ReiserFS-paper,LFS-PC"]);
        assert!(rows.iter().all(|r| r["ours"].as_f64().is_some_and(|f| f >= 0.0)), "{rows:?}");
    }
}

#[test]
fn every_subject_runs() {
    let dir = tempfile::tempdir().unwrap();
    let (code, out, err) = lab(dir.path(), &["run", "yfs-table1", "--divisor", "500", "--json", "rows.json"]);
    assert_eq!((code, err.lines().count()), (0, 6), "{out}{err}");
    let rows = virtual_rows(&dir.path().join("rows.json"));
    for subject in ["yFS-inline", "yFS-external", "FFS-SU", "FFS-sync", "FFS-async", "FFS-journal"] {
        assert!(rows.iter().any(|r| r["subject"] == subject && r["ours"].as_f64() > Some(0.0)), "{subject}");
    }
}

#[test]
fn settings_reach_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let elapsed = |more: &[&str]| {
        let usual = ["run", "yfs-table3", "--engine", "yfs", "--subject", "yFS-inline", "--divisor", "200"];
        let (code, out, err) = lab(dir.path(), &[&usual[..], &["--json", "rows.json"], more].concat());
        assert_eq!(code, 0, "{out}{err}");
        assert!(out.contains("no ratios: there are no figures of FFS-SU"), "{out}");
        let rows = virtual_rows(&dir.path().join("rows.json"));
        let row = rows.iter().find(|r| r["metric"] == "extraction, elapsed time").unwrap();
        let spread = rows.iter().map(|r| r["spread"].as_f64().unwrap()).fold(0.0, f64::max);
        (row["ours"].as_f64().unwrap(), spread)
    };
    let usual = elapsed(&[]);
    assert!(elapsed(&["--cpu-call-ns", "1000000"]).0 > usual.0);
    assert!(elapsed(&["--cpu-kib-ns", "1000000"]).0 > usual.0);
    assert!(elapsed(&["--disk", "980pro"]).0 < usual.0);
    assert!(elapsed(&["--runs", "2"]).1 > 0.0 && usual.1 == 0.0);
}

/// Programs on one disk wait at the same time: on an SSD that serves several requests at once, for less than one after the other.
#[test]
fn several_programs_share_a_disk_and_repeat() {
    let dir = tempfile::tempdir().unwrap();
    for engine in arboretum::engines().iter().map(|engine| engine.name()) {
        // The time of all parts, and of those that read at random.
        let elapsed = |lanes: &str| {
            let subject = format!("mine={engine}::cache=1M");
            let run = |file: &str| {
                let args = ["--alone", "--divisor", "25", "--disk", "870evo", "--lanes", lanes, "--json", file];
                let args = [&["run", "lfs-large", "--subject", &subject], &args[..]].concat();
                let (code, out, err) = lab(dir.path(), &args);
                assert_eq!(code, 0, "{engine}: {out}{err}");
                assert_eq!(out.contains("programs at the same time"), lanes != "1", "{out}");
                virtual_rows(&dir.path().join(file))
            };
            let rows = run("a.json");
            assert_eq!(rows, run("b.json"), "{engine}, {lanes} lanes: a run repeats itself");
            ["", "random read"].map(|part| {
                let times = rows.iter().filter_map(|r| Some((r["metric"].as_str()?, r["ours"].as_f64()?)));
                let is_it = |metric: &str| metric.contains(part) && metric.ends_with(", elapsed time");
                times.filter(|(metric, _)| is_it(metric)).map(|(_, time)| time).sum::<f64>()
            })
        };
        let [all, reads] = elapsed("1");
        for (lanes, count) in [("2", 2.0), ("4", 4.0)] {
            let [more, overlap] = elapsed(lanes);
            assert!(all < more && more < all * count * 1.05, "{engine}, {lanes} lanes: {more} s, alone {all} s");
            assert!(overlap < reads * count * 0.9, "{engine}, {lanes} lanes: {overlap} s, alone {reads} s");
        }
    }
}

/// The paper's figures are about one program.
#[test]
fn several_programs_are_not_compared_with_the_paper() {
    let dir = tempfile::tempdir().unwrap();
    for (lanes, compared) in [("1", true), ("2", false)] {
        let args = ["run", "yfs-table1", "--subject", "yFS-inline", "--lanes", lanes, "--json", "rows.json"];
        let (code, out, err) = lab(dir.path(), &args);
        assert_eq!(code, 0, "{out}{err}");
        let rows = virtual_rows(&dir.path().join("rows.json"));
        assert_eq!(rows.iter().any(|r| !r["paper"].is_null()), compared, "{lanes} lanes: {out}");
    }
}

/// Requests to a log on the same disk are counted, and take it from one end to the other.
#[test]
fn a_log_may_lie_beside_its_volume() {
    let dir = tempfile::tempdir().unwrap();
    let figures = |log: &str| {
        let subject = format!("mine=yfs:log={log}:dirty=1M");
        let args = ["run", "yfs-table3", "--subject", &subject, "--alone", "--divisor", "50", "--json", "rows.json"];
        let (code, out, err) = lab(dir.path(), &args);
        assert_eq!(code, 0, "{out}{err}");
        let rows = virtual_rows(&dir.path().join("rows.json"));
        let of = |metric: &str| {
            rows.iter().find(|r| r["metric"] == metric).unwrap_or_else(|| panic!("{metric}"))["ours"].as_f64().unwrap()
        };
        (of("extraction, transferred"), of("extraction, disk time, log"), of("extraction, elapsed time"))
    };
    let (own, start, end) = (figures("8M"), figures("8M@start"), figures("8M@end"));
    assert_eq!(own.1, 0.0, "a disk of its own is not counted");
    for beside in [start, end] {
        assert!(beside.1 > 0.0 && beside.0 > own.0 && beside.2 > own.2, "{beside:?}, on a disk of its own {own:?}");
    }
    assert!(end.2 > start.2, "files lie at the beginning of the disk: {start:?}, {end:?}");
    let args = ["run", "yfs-table3", "--subject", "mine=yfs:log=100G@end", "--alone"];
    let (code, _, err) = lab(dir.path(), &args);
    assert!(code != 0 && err.contains("do not fit on"), "{code} {err}");
}

/// A subject that is not compiled in, beside those of the paper or alone.
#[test]
fn own_subjects_run_beside_the_papers() {
    let dir = tempfile::tempdir().unwrap();
    let run = |more: &[&str]| {
        let usual = ["run", "yfs-table3", "--divisor", "500", "--json", "rows.json", "--figures", "figures"];
        let (code, out, err) = lab(dir.path(), &[&usual[..], more].concat());
        assert_eq!(code, 0, "{out}{err}");
        (out, virtual_rows(&dir.path().join("rows.json")))
    };
    let subjects = |rows: &[Value]| {
        let mut names: Vec<String> = rows.iter().map(|r| r["subject"].as_str().unwrap().into()).collect();
        names.dedup();
        names
    };
    let mine = "mine=yfs:block=16K,frag=2K,ag=178M,logsize=32M:cache=128M,dirty=6240K";
    let (out, rows) = run(&["--subject", mine, "--engine", "ffs", "--with", "other=FFS-SU:dirty=1M"]);
    assert_eq!(subjects(&rows), ["FFS-SU", "FFS-sync", "FFS-async", "FFS-journal", "mine", "other"]);
    let setup = "yfs, mkfs -o block=16K,frag=2K,ag=178M,logsize=32M, mount -o cache=128M,dirty=6240K";
    assert!(out.lines().next().unwrap().contains(&format!("; mine: {setup}; other: ffs, mkfs -o ")), "{out}");
    assert!(fs::read_to_string(dir.path().join("figures/figures.md")).unwrap().contains(setup));
    for row in &rows {
        match row["subject"].as_str().unwrap() {
            "mine" => assert_eq!(row["setup"], setup),
            "other" => assert!(row["setup"].as_str().unwrap().ends_with(",dirty=6240K,dirty=1M"), "{row}"),
            _ => assert!(row.get("setup").is_none()),
        }
        assert!(row["subject"] != "mine" || row["paper"].is_null() && row["holds"].is_null());
    }
    // It is what the laboratory's own is, so it has its figures.
    let figures = |rows: &[Value], subject: &str| -> Vec<(String, f64)> {
        let of = rows.iter().filter(|r| r["subject"] == subject);
        of.map(|r| (r["metric"].as_str().unwrap().into(), r["ours"].as_f64().unwrap())).collect()
    };
    let (_, both) = run(&["--subject", "yFS-inline", "--subject", mine]);
    assert_eq!(subjects(&both), ["yFS-inline", "mine"]);
    assert_eq!(figures(&both, "mine"), figures(&both, "yFS-inline"));
    assert_eq!(figures(&both, "mine"), figures(&rows, "mine"));
    let (_, alone) = run(&["--subject", "logged=yfs:log=16M", "--alone"]);
    assert_eq!(subjects(&alone), ["logged"]);
    assert_eq!(alone[0]["setup"], "yfs, a log of 16 MiB");
}

#[test]
fn cases_are_chosen_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let run = |experiment: &str, more: &[&str]| {
        let usual = ["run", experiment, "--divisor", "500", "--json", "rows.json", "--subject", "yFS-inline"];
        let (code, out, err) = lab(dir.path(), &[&usual[..], more].concat());
        assert_eq!(code, 0, "{out}{err}");
        (out, virtual_rows(&dir.path().join("rows.json")))
    };
    let figures = |rows: &[Value]| -> Vec<(String, f64)> {
        rows.iter().map(|r| (r["metric"].as_str().unwrap().into(), r["ours"].as_f64().unwrap())).collect()
    };
    let (out, some) = run("yfs-table2", &["--case", "150,000 FILES", "--case", "50,000 files"]);
    assert!(out.contains(", only \"50,000 files\", \"150,000 files\"\n"), "{out}");
    assert!(some.iter().all(|r| r["conditions"]["cases"] == serde_json::json!(["50,000 files", "150,000 files"])));
    let (_, all) = run("yfs-table2", &[]);
    let wanted = figures(&all).into_iter().filter(|(metric, _)| !metric.starts_with("200 files"));
    assert_eq!(figures(&some), wanted.collect::<Vec<_>>());
    // Of all experiments, those that have the case.
    let (_, rows) = run("all", &["--case", "10,000 operations"]);
    let mut found: Vec<&str> = rows.iter().map(|r| r["experiment"].as_str().unwrap()).collect();
    found.dedup();
    assert_eq!(found, ["yfs-table4", "freebsd4-table4"]);
    // Rows of some cases stand beside those of all; the other way round they do not.
    let given = |name: &str| fs::rename(dir.path().join("rows.json"), dir.path().join(name)).unwrap();
    run("yfs-table4", &["--case", "10,000 operations"]);
    given("some.json");
    let args = ["run", "yfs-table4", "--divisor", "500", "--subject", "FFS-SU", "--rows"];
    let (code, out, err) = lab(dir.path(), &[&args[..], &["some.json"]].concat());
    assert!(code == 0 && out.contains("yFS-inline"), "{out}{err}");
    run("yfs-table4", &[]);
    given("all.json");
    let (code, _, err) = lab(dir.path(), &[&args[..], &["all.json", "--case", "20,000 operations"]].concat());
    assert!(code == 1 && err.contains("cases is none, not [\"20,000 operations\"] as here"), "{err}");
}

/// Figures that are given if somebody asks; asking changes no other, nor does writing the requests to a file.
#[test]
fn further_figures_and_traces_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let run = |more: &[&str]| {
        let usual =
            ["run", "yfs-table2", "--divisor", "500", "--subject", "yFS-inline,FFS-sync", "--json", "rows.json"];
        let (code, out, err) = lab(dir.path(), &[&usual[..], more].concat());
        assert_eq!(code, 0, "{out}{err}");
        (out, virtual_rows(&dir.path().join("rows.json")))
    };
    let (_, usual) = run(&[]);
    let (out, more) = run(&["--also", "latency,amplification,counters", "--trace-out", "a.trace"]);
    let (again, _) = run(&["--also", "latency,amplification,counters", "--trace-out", "b.trace"]);
    assert_eq!(again.replace("b-", "a-"), out);
    assert!(usual.iter().all(|row| more.contains(row)));
    let figure = |subject: &str, metric: &str| {
        let metric = format!("300 files, {metric}");
        let found: Vec<&Value> = more.iter().filter(|r| r["subject"] == subject && r["metric"] == metric).collect();
        assert_eq!(found.len(), 1, "{subject}, {metric}");
        found[0]["ours"].as_f64().unwrap()
    };
    for subject in ["yFS-inline", "FFS-sync"] {
        let ranks =
            ["median", "99%", "99.9%", "largest"].map(|rank| figure(subject, &format!("latency of a call, {rank}")));
        assert!(ranks.is_sorted() && out.contains("300 files, latency of a call, 99.9%"), "{ranks:?}");
        assert!(figure(subject, "cache_hits") > 0.0);
    }
    // Files that are removed before they are written cost nothing, but for the names that are written at once.
    let written = ["yFS-inline", "FFS-sync"].map(|s| figure(s, "write amplification of the file system"));
    assert!(written[0] > 0.0 && written[0] < 1.0 && written[1] > 1.0, "{written:?}");
    // One waits for the disk in each creation, the other hardly ever.
    assert!(figure("FFS-sync", "latency of a call, 99%") > 5000.0);
    assert!(figure("yFS-inline", "latency of a call, 99%") < 1000.0);
    let names: Vec<String> = files(dir.path()).into_keys().filter(|name| name.ends_with(".trace")).collect();
    let subjects = ["FFS-sync", "yFS-inline"].iter();
    let cases = |s: &&str| ["100-000", "150-000", "50-000"].map(|case| format!("{s}-{case}-files.trace"));
    let wanted: Vec<String> = subjects.flat_map(cases).collect();
    let of = |run: &str| wanted.iter().map(|name| format!("{run}-{name}")).collect::<Vec<_>>();
    assert_eq!(names, [of("a"), of("b")].concat());
    let bytes = |name: &String| fs::read(dir.path().join(name)).unwrap();
    assert!(of("a").iter().zip(&of("b")).all(|(a, b)| bytes(a) == bytes(b)));
}

#[test]
fn unknown_names_are_told_with_the_known_ones() {
    let dir = tempfile::tempdir().unwrap();
    for (args, want) in [
        (&["table3"][..], "arbor lab: no experiment is called \"table3\"; there are yfs-table1, "),
        (&["all", "--disk", "floppy"], "arbor lab: no disk is called \"floppy\"; there are dsp3105, "),
        (&["all", "--subject", "yFS-inline,ext5"], "arbor lab: no subject is called \"ext5\"; there are yFS-inline, "),
        (&["all", "--engine", "ext2"], "arbor lab: no engine is called \"ext2\"; there are yfs, "),
        (
            &["all", "--engine", "ffs", "--subject", "yFS-inline"],
            "arbor lab: none of the subjects yFS-inline is one of",
        ),
        (
            &["all", "--subject", "mine=ext5::"],
            "arbor lab: subject mine: no engine is called \"ext5\"; there are yfs, ",
        ),
        (&["yfs-table1", "--subject", "mine=yfs:x=1:"], "arbor lab: subject mine: mkfs: unknown option \"x\""),
        (
            &["yfs-table1", "--subject", "mine=yfs:block=3K"],
            "arbor lab: subject mine: mkfs: option block: 3072 is not ",
        ),
        (
            &["yfs-table1", "--subject", "mine=yfs::cache=1K"],
            "arbor lab: subject mine: mount: option cache: 1024 bytes",
        ),
        (&["yfs-table1", "--subject", "ffs-su=yfs"], "arbor lab: subject ffs-su: there is one of this name already"),
        (
            &["yfs-table2", "--case", "5 files"],
            "arbor lab: no case is called \"5 files\"; yfs-table2 has \"50,000 files\", \"100,000 files\", ",
        ),
        (&["yfs-table1", "--case", "x"], "arbor lab: no case is called \"x\"; yfs-table1 has a single one without"),
        (&["yfs-table1", "--alone"], "arbor lab: --alone: no subject is defined"),
        (&["yfs-table1", "--trace-out", "no/trace"], "arbor lab: no: No such file or directory"),
        (&["all", "--rows", "none.json"], "arbor lab: none.json: No such file or directory"),
        (&["all", "--json", "no/rows.json"], "arbor lab: no/rows.json: No such file or directory"),
    ] {
        let (code, out, err) = lab(dir.path(), &[&["run"], args].concat());
        assert_eq!((code, out.as_str()), (1, ""), "{err}");
        assert!(err.starts_with(want) && err.lines().count() == 1, "{err}");
    }
    for args in [&[][..], &["run"], &["run", "all", "--runs", "0"], &["run", "all", "--divisor", "0"], &["lost"]] {
        assert_eq!(lab(dir.path(), args).0, 2, "{args:?}");
    }
}
