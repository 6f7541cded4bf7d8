//! Experiments in small, on a simulated disk.

use arbor_bench::{Results, Row, Settings, Setup, Subject, System, list, report, run, to_json};
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
            assert_eq!(row.our_ratio.is_some(), row.subject != "FFS-SU" && row.ours > 0.0, "{row:?}");
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
    let page = report("Table 3 <in small>", &results.rows, &results.pictures);
    assert!(page.contains("Table 3 &lt;in small&gt;") && page.ends_with("</html>\n"));
    // Formatted, between extraction and removal, at the end.
    assert_eq!(results.pictures[0].maps.len(), 3);
    assert!(!page.contains("http") && !page.contains("NaN"));
    let rows: Vec<Row> = serde_json::from_str(&to_json(&results.rows).unwrap()).unwrap();
    assert!(rows == results.rows);
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
