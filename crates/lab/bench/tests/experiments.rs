//! Experiments in small, on a simulated disk.

use arbor_bench::rows::is_negligible;
use arbor_bench::{Figures, Results, Row, Settings, Setup, Subject, System, from_json, list, report, run, to_json};
use arbor_simdisk::Model;
use arbor_yfs::Yfs;

fn results(name: &str, runs: u32, divisor: u32) -> Results {
    let experiment = list().iter().find(|e| e.name == name).unwrap();
    let subject = |name: &str, extra: &[(String, u64)]| Subject {
        name: name.into(),
        system: System::Engine(Setup {
            engine: &Yfs,
            format: "block=16K,frag=2K,ag=178M,logsize=32M".into(),
            mount: "cache=128M".into(),
            extra: extra.to_vec(),
        }),
    };
    let external = [("log".to_string(), 32 << 20)];
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
    for experiment in list() {
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
