//! Volumes on more than one device, by the command.

mod common;

use common::{json, ok, run_in};
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
    let said = ok(dir, &["resize", "-o", "data=data.img", "--meta", "+32M", "meta.img"]);
    assert!(said.starts_with("meta.img: metadata 31") && said.contains("-> 63"), "{said}");
    assert_eq!(fs::metadata(dir.join("meta.img")).unwrap().len().div_ceil(1 << 20), 64);
    assert_eq!((info()["size"].as_u64(), facts(&info())[1].as_str()), (Some(size + (96 << 20)), "134217728"));
    assert!(ok(dir, &["fsck", "-f", "-o", "data=data.img", "meta.img"]).contains("clean"));
    fs::write(dir.join("file"), b"something".repeat(100_000)).unwrap();
    ok(dir, &["put", "-o", "data=data.img", "meta.img", "file", "/"]);
    let map = json(dir, &["map", "--json", "-O", "data=data.img", "meta.img"]);
    assert_eq!(map["data"]["bytes"].as_u64(), Some(220 << 12), "{map}");
    let text = ok(dir, &["map", "-O", "data=data.img", "meta.img"]);
    assert!(text.lines().next().unwrap().ends_with("192 MiB"), "{text}");
}

/// Who names the device without the superblock is told what it is.
#[test]
fn a_part_of_a_volume_is_called_so() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for engine in arboretum::engines() {
        for role in engine.extra_devices() {
            let (name, part) = (engine.name(), format!("{}.{role}", engine.name()));
            let option = format!("{role}={part}");
            ok(dir, &["mkfs", "-q", "-t", name, "-s", "64M", "-o", &option, &format!("{name}.img")]);
            let expected = format!(
                "{part}: the {role} device of a volume of {name}; name the one with its superblock, and -o {option}\n"
            );
            for (command, status) in [("info", 1), ("ls", 1), ("fsck", 8)] {
                let (code, out, err) = run_in(dir, &[command, &part]);
                assert_eq!((code, out.as_str(), err), (status, "", format!("arbor {command}: {expected}")));
            }
            let error = arboretum::Volume::open(dir.join(&part)).unwrap_err().to_string();
            assert!(
                error.ends_with(&format!("not a volume of any known engine: the {role} device of one of {name}")),
                "{error}"
            );
            ok(dir, &["ls", "-o", &option, &format!("{name}.img")]);
        }
    }
}

/// On one device the metadata area grows at the cost of the data area, in the same call as the volume if that is asked for.
#[test]
fn the_metadata_area_takes_from_the_data_area() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ok(dir, &["mkfs", "-t", "dualfs", "-s", "64M", "x.img"]);
    fs::write(dir.join("file"), b"something".repeat(100_000)).unwrap();
    ok(dir, &["put", "x.img", "file", "/"]);
    let sizes = || {
        let info = json(dir, &["info", "--json", "x.img"]);
        ["metadata_size", "data_size"].map(|key| info["facts"][key].as_str().unwrap().parse::<u64>().unwrap())
    };
    let [meta, data] = sizes();
    let said = ok(dir, &["resize", "--meta", "+4M", "x.img"]);
    assert!(said.starts_with("x.img: metadata ") && said.lines().count() == 1, "{said}");
    assert_eq!(sizes(), [meta + (4 << 20), data - (4 << 20)]);
    assert_eq!(ok(dir, &["resize", "x.img", "128M", "--meta", "+4M"]).lines().count(), 2);
    assert_eq!(sizes(), [meta + (8 << 20), data + (56 << 20)]);
    assert!(ok(dir, &["resize", "--meta", "+0", "x.img"]).contains("nothing changed"));
    assert_eq!(ok(dir, &["cat", "x.img", "file"]).len(), 900_000);
    assert!(ok(dir, &["fsck", "-f", "x.img"]).contains("clean"));
    let (code, _, err) = run_in(dir, &["resize", "--meta", "1M", "x.img"]);
    assert!(code == 1 && err.contains("cannot shrink"), "{err}");
    let (code, _, err) = run_in(dir, &["resize", "--meta", "127M", "x.img"]);
    assert!(code == 1 && err.contains("bytes of contents: files have"), "{err}");
    ok(dir, &["mkfs", "-t", "yfs", "-s", "64M", "y.img"]);
    let (code, _, err) = run_in(dir, &["resize", "--meta", "+1M", "y.img"]);
    assert!(code == 1 && err.contains("yfs has no area for metadata"), "{err}");
}

/// What names a device of DualFS is an option of Evergreen: whose volume is there decides.
#[test]
fn an_option_that_names_a_device_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("f"), "contents").unwrap();
    ok(dir, &["mkfs", "-q", "-t", "evergreen", "-s", "32M", "ev.img"]);
    ok(dir, &["put", "-o", "data=overwrite", "ev.img", "f", "/"]);
    // Also where a file has that name.
    fs::write(dir.join("relocate"), "").unwrap();
    ok(dir, &["put", "-o", "data=relocate", "ev.img", "f", "/g"]);
    assert_eq!(ok(dir, &["cat", "ev.img", "/g"]), "contents");
}

/// What is not there, or not of the volume, is told; a log that is not needed is not asked for.
#[test]
fn info_tells_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ok(dir, &["mkfs", "-q", "-s", "64M", "cut.img"]);
    fs::File::options().write(true).open(dir.join("cut.img")).unwrap().set_len(10 << 20).unwrap();
    assert!(ok(dir, &["info", "cut.img"]).contains("truncated: 10 MiB"));
    let info = json(dir, &["info", "--json", "cut.img"]);
    assert_eq!((info["clean"].as_bool(), info["truncated"].as_bool()), (Some(false), Some(true)));
    for n in ["1", "2"] {
        let (data, meta) = (format!("data=d{n}.img,datasize=32M"), format!("m{n}.img"));
        ok(dir, &["mkfs", "-q", "-t", "dualfs", "-s", "8M", "-o", &data, &meta]);
    }
    let (code, _, err) = run_in(dir, &["info", "-o", "data=d2.img", "m1.img"]);
    assert!(code == 1 && err.contains("belongs to another volume"), "{code}: {err}");
    ok(dir, &["mkfs", "-q", "-s", "64M", "-o", "log=l.log,logsize=8M", "s.img"]);
    fs::remove_file(dir.join("l.log")).unwrap();
    ok(dir, &["ls", "s.img"]);
}
