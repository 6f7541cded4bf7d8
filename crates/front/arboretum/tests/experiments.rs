//! Experiments in small, on a simulated disk.

use arbor_bench::rows::is_negligible;
use arbor_bench::sheets::{sheets, statements};
use arbor_bench::{
    Experiment, Extra, Figures, Place, Results, Row, Settings, Setup, Subject, System, from_json, list, report, run,
    to_json,
};
use arbor_simdisk::Model;
use arbor_yfs::Yfs;

fn results(name: &str, runs: u32, divisor: u32) -> Results {
    let experiment = list().iter().find(|e| e.name == name).unwrap();
    let subject = |name: &str, extra: &[Extra]| Subject {
        name: name.into(),
        system: System::Engine(Setup {
            engine: &Yfs,
            format: "block=16K,frag=2K,ag=178M,logsize=32M".into(),
            mount: "cache=128M".into(),
            extra: extra.to_vec(),
        }),
        setup: None,
    };
    let external = [Extra { role: "log".into(), bytes: 32 << 20, place: Place::Own }];
    // The reference is played by a second yFS, so that there are ratios.
    let subjects = [subject("yFS-inline", &[]), subject("yFS-external", &external), subject("FFS-SU", &[])];
    let settings = Settings { runs, divisor, ..Settings::new(Model::named("st39140").unwrap()) };
    let mut last = 0;
    let results = run(experiment, &subjects, &settings, &mut |p| {
        assert!(p.done <= p.total);
        last = p.done;
    });
    assert!(last > 0);
    results.unwrap()
}

/// Everything but the real time of the processor, which is not ours to repeat.
fn virtual_rows(results: &Results) -> Vec<&Row> {
    results.rows.iter().filter(|r| !r.metric.contains("processor")).collect()
}

#[test]
fn experiments_repeat_and_make_sense() {
    for experiment in list().iter().filter(|e| e.charts().is_none()) {
        let (one, other) = (results(experiment.name, 1, 200), results(experiment.name, 1, 200));
        assert_eq!(virtual_rows(&one), virtual_rows(&other));
        assert_eq!(one.pictures, other.pictures);
        assert_eq!(one.pictures.len(), experiment.cases.len() * 3);
        for row in &one.rows {
            assert!(row.ours.is_finite() && row.ours >= 0.0 && row.spread == 0.0, "{row:?}");
            assert!(row.paper.is_none() && row.holds.is_none(), "{row:?}");
            let reference = one.rows.iter().find(|r| r.subject == "FFS-SU" && r.metric == row.metric);
            let is_large = |figure: f64| !is_negligible(figure);
            let has_both = is_large(row.ours) && reference.is_some_and(|r| is_large(r.ours));
            assert_eq!(row.our_ratio.is_some(), row.subject != "FFS-SU" && has_both, "{row:?}");
        }
        let find = |metric: &str| {
            let mine = |r: &&Row| r.subject == "yFS-inline" && r.metric.ends_with(metric);
            one.rows.iter().filter(mine).map(|r| r.ours).sum::<f64>()
        };
        assert!(find("elapsed time") + 1e-9 >= find("disk busy") && find("disk busy") > 0.0, "{}", experiment.name);
        let kinds =
            ["log", "inodes", "directories", "data", "other metadata"].map(|k| find(&format!("disk time, {k}")));
        assert!((kinds.iter().sum::<f64>() - find("disk busy")).abs() < 1e-6, "{}", experiment.name);
        // Inline and reference are the same but for the name, and the external log is on the other disk.
        let same = one.rows.iter().filter(|r| r.subject == "yFS-inline" && !r.metric.contains("processor"));
        assert!(same.filter_map(|r| r.our_ratio).all(|r| r == 1.0));
        let log = |r: &&Row| r.subject == "yFS-external" && r.metric.ends_with("disk time, log");
        assert!(one.rows.iter().filter(log).all(|r| r.ours < 0.05), "{}", experiment.name);
    }
}

#[test]
fn seeds_differ_and_have_a_spread() {
    let results = results("yfs-table3", 3, 100);
    assert!(results.rows.iter().any(|r| r.spread > 0.0));
    let notes = ["a < b".to_string()];
    let page = report("Table 3 <in small>", "A disk & a seed", &results.rows, &results.pictures, &notes);
    assert_eq!(page.matches("Table 3 &lt;in small&gt;").count(), 1);
    assert_eq!(page.matches("A disk &amp; a seed").count(), 1);
    assert!(page.contains("<p>a &lt; b</p>") && page.ends_with("</html>\n"));
    // Formatted, between extraction and removal, at the end.
    assert_eq!(results.pictures[0].maps.len(), 3);
    assert!(!page.contains("http") && !page.contains("NaN"));
    assert!(from_json(&to_json(&results.rows).unwrap()).unwrap() == results.rows);
}

/// A program that computes hides background work, though not what it has to wait for.
#[test]
fn computing_overlaps_with_the_disk() {
    let results = results("yfs-table1", 1, 20);
    let find = |metric: &str| {
        results.rows.iter().find(|r| r.subject == "yFS-inline" && r.metric == metric).map(|r| r.ours).unwrap()
    };
    let (elapsed, busy) = (find("compile, elapsed time"), find("compile, disk busy"));
    assert!(elapsed >= 35.0 && elapsed < 35.0 + busy * 0.8, "{elapsed} s, the disk {busy} s");
}

/// As many cells in every line.
fn is_a_table(text: &str) -> bool {
    let cells = |line: &str| line.matches('|').count();
    let lines: Vec<&str> = text.lines().filter(|l| l.starts_with('|')).collect();
    lines.len() > 2 && lines.iter().all(|l| cells(l) == cells(lines[0])) && lines[1].starts_with("|---|")
}

/// Every tag that is opened is closed, in order.
fn is_whole(svg: &str) -> bool {
    let mut open = Vec::new();
    for tag in svg.split('<').skip(1).map(|rest| rest.split('>').next().unwrap()) {
        let name = tag.split([' ', '/']).find(|w| !w.is_empty()).unwrap();
        if tag.starts_with('/') {
            if open.pop() != Some(name) {
                return false;
            }
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    open.is_empty()
}

#[test]
fn tables_and_pictures_repeat_and_have_their_shape() {
    for name in ["yfs-table2", "yfs-table3"] {
        let (one, other) = (results(name, 1, 200), results(name, 1, 200));
        let figures = Figures::new("A disk", &one.rows);
        assert_eq!(figures.to_json().unwrap(), Figures::new("A disk", &other.rows).to_json().unwrap());
        assert_eq!(Figures::from_json(&figures.to_json().unwrap()).unwrap(), figures);
        let drawings = figures.drawings(&one.pictures);
        assert_eq!(drawings, figures.drawings(&other.pictures));
        let names: Vec<&str> = drawings.iter().map(|d| d.name.strip_prefix(name).unwrap()).collect();
        assert_eq!(names, ["-ratios", "-times", "-seeks", "-maps"]);
        for drawing in &drawings {
            let svg = &drawing.svg;
            assert!(is_whole(svg) && svg.starts_with("<svg xmlns=") && svg.len() < 100 << 10, "{}", drawing.name);
            assert!(!svg.contains("NaN") && !svg.contains("inf\""), "{}", drawing.name);
            assert!(["yFS-inline", "yFS-external"].iter().all(|subject| svg.contains(subject)), "{}", drawing.name);
        }
        let tables = figures.tables();
        assert_eq!(tables.keys().collect::<Vec<_>>(), ["setting", "summary", name]);
        assert_eq!(tables["setting"], "A disk.\n");
        assert!(is_a_table(&tables["summary"]) && is_a_table(&tables[name]), "{tables:?}");
        let document = figures.document(&drawings);
        assert!(drawings.iter().all(|d| document.contains(&format!("]({}.svg)", d.name))), "{document}");
    }
}

#[test]
fn rows_from_elsewhere_have_a_column() {
    let rows = results("yfs-table3", 1, 200).rows;
    let is_of = |row: &&Row| row.subject == "yFS-inline" && !row.metric.contains("directories");
    let peer = rows.iter().filter(is_of).map(|r| Row { subject: "ext4".into(), ours: r.ours * 2.0, ..r.clone() });
    let peer: Vec<Row> = peer.collect();
    let figures = Figures::new("A disk", &rows).with(&peer);
    assert_eq!(figures.clone().with(&peer), figures);
    assert_eq!(figures.tables()["setting"], "A disk. Measured elsewhere: ext4.\n");
    let others = &figures.tables()["others"];
    assert!(is_a_table(others) && others.starts_with("| experiment | seconds | FFS-SU | ext4 |\n"), "{others}");
    assert!(others.lines().skip(2).all(|line| line.ends_with(" (0.50) |")), "{others}");
    let times = figures.drawings(&[]).into_iter().find(|d| d.name == "yfs-table3-times").unwrap();
    assert!(times.svg.contains(">ext4<"));
}

/// Charts on yFS: who plays which part does not matter to them.
fn charted(name: &str, series: bool) -> (Experiment, Results) {
    let mut experiment = *list().iter().find(|e| e.name == name).unwrap();
    if !series {
        experiment.series = &[];
    }
    let setup = Setup {
        engine: &Yfs,
        format: "block=16K,frag=2K,logsize=8M".into(),
        mount: "cache=8M".into(),
        extra: Vec::new(),
    };
    let subjects: Vec<Subject<'_>> = experiment
        .columns
        .iter()
        .map(|name| Subject { name: name.to_string(), system: System::Engine(setup.clone()), setup: None })
        .collect();
    let settings = Settings { divisor: 50, ..Settings::new(Model::named(experiment.host.disk).unwrap()) };
    (experiment, run(&experiment, &subjects, &settings, &mut |_| ()).unwrap())
}

#[test]
fn charts_have_a_point_for_each_workload_and_judge_whole_runs_only() {
    for name in ["lfs-small", "lfs-large", "lfs-filesize"] {
        let (experiment, results) = charted(name, true);
        let charts = experiment.charts().unwrap();
        assert_eq!(results.pictures.len(), if experiment.cases.len() > 1 { 0 } else { experiment.columns.len() });
        for (chart, sheet) in charts.charts.iter().zip(sheets(&experiment, &results.rows)) {
            let lines = if chart.parts.len() > 1 { chart.parts.len() } else { experiment.cases.len() };
            assert_eq!((sheet.lines.len(), sheet.heads.len()), (lines, experiment.columns.len() + 1), "{name}");
            assert!(sheet.lines.iter().flatten().all(|cell| !cell.is_empty()), "{name}: {sheet:?}");
        }
        let judged = experiment.judge(&results.rows);
        assert_eq!(judged.len(), charts.statements.len());
        assert!(judged.iter().all(|j| j.figure.is_some() && j.holds.is_none()), "{name}");
        // The same as if it had been measured whole; all subjects are the same, so no ratio is far from 1.
        let mut whole = results.rows.clone();
        for row in &mut whole {
            row.conditions.as_mut().unwrap().divisor = 1;
        }
        let judged = experiment.judge(&whole);
        assert!(judged.iter().all(|j| j.holds.is_some()), "{name}");
        let order = judged.iter().filter(|j| j.statement.text.contains("order of magnitude"));
        assert!(order.clone().all(|j| j.holds == Some(false)), "{name}");
        assert_eq!(order.count() > 0, name != "lfs-large");
        let figures = Figures::new("A disk", &whole);
        assert_eq!(Figures::from_json(&figures.to_json().unwrap()).unwrap(), figures);
        let tables = figures.tables();
        assert!(tables.keys().eq([name]), "{tables:?}");
        assert!(tables[name].split("\n\n").filter(|part| part.starts_with('|')).all(is_a_table), "{}", tables[name]);
        assert!(charts.statements.iter().all(|s| tables[name].contains(s.text)), "{name}");
        let drawings = figures.drawings(&results.pictures);
        let curves = &drawings[0];
        assert_eq!(curves.name, format!("{name}-curves"));
        assert!(is_whole(&curves.svg) && !curves.svg.contains("NaN") && !curves.svg.contains("inf"), "{}", curves.svg);
        assert!(experiment.columns.iter().all(|subject| curves.svg.contains(&format!(">{subject}<"))));
        let page = report("charts", "a disk", &whole, &results.pictures, &[]);
        assert!(page.contains(&curves.title) && page.contains(">no<"), "{name}");
    }
}

#[test]
fn workloads_of_a_series_share_a_volume_and_are_measured_apart() {
    let ((_, series), (_, apart)) = (charted("lfs-filesize", true), charted("lfs-filesize", false));
    let names =
        |results: &Results| results.rows.iter().map(|r| (r.subject.clone(), r.metric.clone())).collect::<Vec<_>>();
    assert_eq!(names(&series), names(&apart));
    // The first workload finds the same volume in both; one after it does not.
    let of = |results: &Results, subject: &str, metric: &str| {
        results.rows.iter().find(|r| r.subject == subject && r.metric == metric).unwrap().ours
    };
    let first = "1 KB, create, throughput";
    assert_eq!(of(&series, "FFS", first), of(&apart, "FFS", first));
    let all = |results: &Results, subject: &str| -> Vec<f64> {
        let mine = results.rows.iter().filter(|r| r.subject == subject && !r.metric.contains("processor"));
        mine.map(|r| r.ours).collect()
    };
    assert_ne!(all(&series, "FFS"), all(&apart, "FFS"));
    assert_eq!(all(&series, "LFS"), all(&apart, "LFS"));
}

#[test]
fn experiments_join_and_keep_their_settings() {
    let rows = |name: &str, subject: &str| {
        let (_, results) = charted(name, true);
        results.rows.into_iter().filter(|r| r.subject == subject).collect::<Vec<Row>>()
    };
    let (small, large) = (rows("lfs-small", "FFS"), rows("lfs-large", "FFS"));
    let yfs = results("yfs-table3", 1, 500).rows;
    let all = Figures::new("one", &small).join(Figures::new("other", &yfs)).join(Figures::new("one", &large));
    let words = |name: &str| all.setting(name).map(|s| s.words.as_str());
    assert_eq!(
        (words("lfs-small"), words("yfs-table3"), words("lfs-large")),
        (Some("one"), Some("other"), Some("one"))
    );
    assert_eq!(all.settings.len(), 2);
    assert_eq!(Figures::from_json(&all.to_json().unwrap()).unwrap(), all);
    assert!(all.tables()["setting"].starts_with("other.") && all.tables()["lfs-small"].starts_with("one.\n"));
    // What is measured anew takes the place of what was there, and leaves the others.
    let anew = rows("lfs-small", "LFS-4K");
    let all = all.join(Figures::new("new", &anew));
    let of = |name: &str| all.rows.iter().filter(|r| r.experiment == name).collect::<Vec<_>>();
    assert!(of("lfs-small").iter().all(|r| r.subject == "LFS-4K") && of("lfs-large").len() == large.len() - 5);
    assert_eq!((all.setting("lfs-small").unwrap().words.as_str(), all.settings.len()), ("new", 3));
}

/// What the paper says stands once, with the figures of all disks that it was tried on.
#[test]
fn the_same_on_other_disks_is_a_range() {
    let rows = |name: &str| charted(name, true).1.rows;
    let (usual, other) = (rows("reiser-small"), rows("reiser-small-ex"));
    let experiment = list().iter().find(|e| e.name == "reiser-small").unwrap();
    let sheet = |rows: &[Row]| statements(experiment, rows).unwrap();
    assert!(!sheet(&usual).heads.iter().any(|head| head == "on all disks"));
    let both = sheet(&[usual, other].concat());
    assert_eq!(both.heads[5], "on all disks");
    assert_eq!(both.lines.len(), experiment.charts().unwrap().statements.len());
    // All subjects are the same.
    assert_eq!(both.lines[0][5], "1.00 to 1.00");
    assert!(both.lines.iter().all(|line| line.len() == both.heads.len() && line[5].contains(" to ")));
}

/// Where a workload begins on a new volume, what was done before does not matter, and the one after it goes on there.
#[test]
fn some_workloads_of_a_series_begin_anew() {
    let whole = list().iter().find(|e| e.name == "evergreen-fig5").unwrap();
    let setup = Setup { engine: &Yfs, format: "logsize=2M".into(), mount: "cache=8M".into(), extra: Vec::new() };
    let subject = Subject { name: "Evergreen-relocate".into(), system: System::Engine(setup), setup: None };
    let settings = Settings { divisor: 16, ..Settings::new(Model::named("st39140").unwrap()) };
    let of = |from: usize, to: usize| {
        let experiment = Experiment { cases: &whole.cases[from..to], ..*whole };
        let mut rows = run(&experiment, std::slice::from_ref(&subject), &settings, &mut |_| ()).unwrap().rows;
        rows.retain(|row| !row.metric.contains("processor"));
        rows
    };
    let (pairs, second, alone) = (of(0, 4), of(2, 4), of(3, 4));
    assert!(!second.is_empty() && pairs.ends_with(&second));
    assert!(!alone.is_empty() && !second.ends_with(&alone));
}
