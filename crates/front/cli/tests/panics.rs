//! A panic inside of a call: the volume is read-only from then on and says so, and what was synced is there. The
//! server is this program once more, on a device that panics when it is told to. Needs root and /dev/fuse, and says
//! so if they are not there.

#![cfg(target_os = "linux")]

mod common;
mod watch;

use arbor_base::device::{Device, Fault, FaultDevice, FaultOp, FaultTimes, FileDevice, OpenMode};
use arbor_base::vfs::{Devices, MountOptions, SystemClock};
use arbor_fuse::MountConfig;
use common::root_can_mount;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use watch::{Watch, arbor};

/// Where the server finds what it is to do: the image, `mnt`, and `now` when the next write is to panic.
const PLACE: &str = "ARBOR_TEST_PANICS_IN";

/// Not a test: what [`Server`] runs.
#[test]
#[ignore = "it serves another test"]
fn server() {
    let Some(place) = std::env::var_os(PLACE).map(PathBuf::from) else { return };
    let image = place.join("image");
    let device = FileDevice::open(&image, OpenMode::ReadWrite).unwrap();
    let claims = device.claim().into_iter().collect();
    let faulty = FaultDevice::new(device);
    let (engine, _) = arboretum::find(&faulty).unwrap();
    let fs = engine.mount(Devices::single(faulty.clone()), &MountOptions::default(), Arc::new(SystemClock)).unwrap();
    let config = MountConfig { source: image.into(), claims, handle_signals: true, ..MountConfig::default() };
    let session = arbor_fuse::mount(fs, &place.join("mnt"), &config).unwrap();
    let now = place.join("now");
    std::thread::spawn(move || {
        while !now.exists() {
            std::thread::sleep(Duration::from_millis(2));
        }
        faulty.inject(FaultOp::Write, faulty.count(FaultOp::Write) + 1, FaultTimes::Once, Fault::Panic);
        fs::remove_file(now).unwrap();
    });
    let end = session.wait();
    eprintln!("the end: {end:?}");
}

/// A server in a process of its own, killed if the test does not see its end.
struct Server(Child);

impl Server {
    fn start(place: &Path, log: &File) -> Server {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["server", "--exact", "--ignored", "--nocapture"]).env(PLACE, place).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.try_clone().unwrap());
        Server(command.spawn().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let limit = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < limit, "{what}: not in 30 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn errno<T: std::fmt::Debug>(done: std::io::Result<T>) -> Option<i32> {
    done.unwrap_err().raw_os_error()
}

#[test]
fn a_panic_turns_the_volume_read_only() {
    if !root_can_mount() {
        return;
    }
    for engine in ["yfs", "ffs", "lfs"] {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().canonicalize().unwrap();
        let mut watch = Watch::new(&place);
        let (image, mnt, now) = (place.join("image"), place.join("mnt"), place.join("now"));
        arbor(&["mkfs", "-q", "-t", engine, "-s", "64M"], &[&image]).well();
        fs::create_dir(&mnt).unwrap();
        let log = place.join("log");
        let mut server = Server::start(&place, &File::create(&log).unwrap());
        eventually("the mount", || watch::is_mounted(&mnt));
        fs::write(mnt.join("before"), b"synced").unwrap();
        File::open(&mnt).unwrap().sync_all().unwrap();
        let mut open = OpenOptions::new().append(true).open(mnt.join("before")).unwrap();
        fs::write(&now, b"").unwrap();
        eventually("the fault is planted", || !now.exists());

        open.write_all(b" and more").unwrap();
        assert_eq!(errno(open.sync_all()), Some(libc::EIO), "{engine}");
        assert_eq!(errno(fs::write(mnt.join("after"), b"x")), Some(libc::EROFS), "{engine}");
        assert_eq!(errno(open.sync_all()), Some(libc::EIO), "{engine}: a lost write is not forgotten");
        assert!(fs::read(mnt.join("before")).unwrap().starts_with(b"synced"), "{engine}: it can be read");
        let info = arbor(&["info"], &[&image]);
        assert!(info.well().contains("where it has turned read-only ("), "{engine}: {}", info.out);
        assert!(info.out.contains("panic"), "{engine}: {}", info.out);
        let json = arbor(&["info", "--json"], &[&image]);
        let json: serde_json::Value = serde_json::from_str(json.well()).unwrap();
        assert!(json["failure"].as_str().unwrap().contains("panic"), "{engine}: {json}");

        drop(open);
        let off = arbor(&["umount"], &[&mnt]);
        assert_ne!(off.code, Some(0), "{engine}: what was lost is told");
        assert!(off.said.contains("panic"), "{engine}: {}", off.said);
        server.0.wait().unwrap();
        let said = fs::read_to_string(&log).unwrap();
        for text in ["arbor: panic in ", "arbor: the file system is read-only from now on: ", "the end: Err("] {
            assert!(said.contains(text), "{engine}: {text:?} in {said}");
        }
        watch.end();
        let recovered = arbor(&["fsck", "-p"], &[&image]);
        assert_eq!(recovered.code, Some(1), "{engine}: {}{}", recovered.out, recovered.said);
        let kept = arbor(&["cat"], &[&image, Path::new("/before")]);
        assert!(kept.well().starts_with("synced"), "{engine}: {}", kept.out);
        arbor(&["fsck", "-f", "-n"], &[&image]).well();
    }
}
