//! Model files: what is wrong with them is said by field.

use arbor_simdisk::Model;
use proptest::prelude::*;

const DISK: &str = include_str!("../models/st39140.toml");
const SSD: &str = include_str!("../models/870evo.toml");

/// The file with the value of one field replaced.
fn with(text: &str, field: &str, value: &str) -> String {
    let line = |l: &str| {
        if l.starts_with(&format!("{field} = ")) { format!("{field} = {value}") } else { l.to_string() }
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn wrong(text: &str, field: &str, value: &str) -> String {
    Model::parse(&with(text, field, value)).unwrap_err()
}

#[test]
fn unknown_names_are_answered_with_the_known_ones() {
    let e = Model::named("st506").unwrap_err();
    assert!(e.starts_with("no model is named \"st506\"; there are dsp3105, m2694, st39140, "), "{e}");
}

#[test]
fn errors_name_the_field() {
    assert_eq!(wrong(DISK, "rpm", "0"), "disk.rpm: must be 100 to 100000, not 0");
    assert_eq!(wrong(DISK, "tags", "0"), "disk.tags: must be 1 to 65536, not 0");
    assert_eq!(wrong(DISK, "overhead_ms", "-1.0"), "disk.overhead_ms: must be 0 to 1000000, not -1");
    assert_eq!(wrong(DISK, "overhead_ms", "nan"), "disk.overhead_ms: must be 0 to 1000000, not NaN");
    assert!(wrong(DISK, "seek_average_ms", "18.0").starts_with("disk.seek_average_ms: must be 7."));
    assert!(wrong(DISK, "bus_mb_per_s", "0.0").starts_with("disk.bus_mb_per_s: must be above 0"));
    assert!(wrong(DISK, "read_ahead_kib", "65").starts_with("disk.read_ahead_kib: must be 0 to 64"));
    assert!(wrong(DISK, "capacity_sectors", "18000000").starts_with("disk.zones: hold 17802240 sectors, but"));
    assert!(wrong(DISK, "heads", "\"eight\"").contains("heads"));
    assert!(wrong(DISK, "tag_order", "\"random\"").contains("tag_order"));
    assert!(Model::parse(&DISK.replace("rpm = ", "rmp = ")).unwrap_err().contains("rmp"));
    assert!(Model::parse("").unwrap_err().contains("name"));
    assert!(wrong(SSD, "unit_kib", "3").starts_with("ssd.unit_kib: must divide"));
    assert!(wrong(SSD, "mapping", "\"hybrid\"").starts_with("ssd.log_blocks: needed"));
    assert!(wrong(SSD, "over_provisioning", "-0.1").starts_with("ssd.over_provisioning: must be"));
    assert!(wrong(SSD, "capacity_sectors", "99999999999").starts_with("ssd.unit_kib: too small for"));
}

#[test]
fn both_tables_or_none_are_refused() {
    let text = "name = \"x\"\ntitle = \"x\"\ncapacity_sectors = 8\n";
    assert_eq!(Model::parse(text).unwrap_err(), "one of the tables [disk] and [ssd] is needed");
}

#[test]
fn every_parameter_of_the_built_in_models_has_its_source() {
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/models")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut said = false;
        for (i, line) in text.lines().enumerate() {
            let value = line.contains(" = ") && !line.starts_with('#');
            let own = ["name = ", "title = ", "mapping = ", "[", "]"].iter().any(|p| line.starts_with(p));
            // A comment is for all the lines up to the next empty line or comment.
            said = line.starts_with('#') || (said && !line.is_empty());
            assert!(!value || own || said, "{}:{}: no source is given: {line}", path.display(), i + 1);
        }
    }
}

proptest! {
    #[test]
    fn any_values_are_taken_or_refused(field in prop::sample::select(vec![
        "rpm", "heads", "seek_single_ms", "seek_average_ms", "seek_full_ms", "segments", "segment_kib", "tags",
        "capacity_sectors", "write_cache_kib", "page_kib", "pages_per_block", "channels", "unit_kib", "program_us",
        "over_provisioning",
    ]), value in "[0-9]{1,4}(\\.[0-9]{1,3})?") {
        let _ = Model::parse(&with(DISK, field, &value));
        let _ = Model::parse(&with(SSD, field, &value));
    }
}
