//! Volumes on more than one device, by the command.

mod common;

use common::{json, ok};
use serde_json::Value;
use std::fs;

/// A volume on two devices is as large as both: what is made is told, and it grows from that size.
#[test]
fn a_volume_on_two_devices_has_the_size_of_both() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let made = ok(dir, &["mkfs", "-t", "dualfs", "-s", "32M", "-o", "data=data.img,datasize=64M", "meta.img"]);
    assert!(made.starts_with("meta.img: dualfs, 32 MiB and 64 MiB of data, UUID "), "{made}");
    let info = || json(dir, &["info", "--json", "-o", "data=data.img", "meta.img"]);
    let facts = |info: &Value| ["devices", "data_size"].map(|key| info["facts"][key].as_str().unwrap().to_string());
    assert_eq!(facts(&info()), ["2", "67108864"]);
    let size = info()["size"].as_u64().unwrap();
    let options = arboretum::VolumeOptions::default().device("data", dir.join("data.img"));
    let in_use = options.open(dir.join("meta.img")).unwrap();
    assert!(info()["segments"].is_object(), "what is in use is looked at with both: {}", info());
    in_use.close().unwrap();
    ok(dir, &["resize", "-o", "data=data.img", "meta.img", "+64M"]);
    assert_eq!(
        (info()["size"].as_u64(), facts(&info())),
        (Some(size + (64 << 20)), ["2", "134217728"].map(String::from))
    );
    assert_eq!(
        [fs::metadata(dir.join("meta.img")), fs::metadata(dir.join("data.img"))].map(|m| m.unwrap().len() >> 20),
        [32, 128]
    );
    assert!(ok(dir, &["fsck", "-f", "-o", "data=data.img", "meta.img"]).contains("clean"));
}
