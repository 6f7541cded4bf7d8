//! A format that loses the power leaves the older volume, none, or the new one, and nothing between.

use crate::config::{BEGIN, Config};
use crate::damage;
use arbor_base::device::{CrashChoice, MemDevice, RecordingDevice};
use arbor_base::vfs::*;
use std::sync::Arc;

/// Pending writes of which each is kept alone.
const ALONE: usize = 12;

/// Cuts a format over an older volume at each of its events. Panics with what is between.
pub fn leaves_one_volume_or_none(engine: &dyn Engine, config: &Config) {
    let base = MemDevice::new(24 << 20);
    format(engine, config, &Devices::single(base.clone()));
    let fs = mount(engine, config, &base).expect("mount");
    fs.mkdir(&Cx { uid: 0, gid: 0 }, fs.root(), b"older", 0o755).expect("mkdir");
    fs.unmount().expect("unmount");

    let device = RecordingDevice::new(base);
    format(engine, config, &Devices::single(device.clone()));
    for at in 0..=device.events() {
        let pending = device.pending_at(at);
        let alone = (0..pending.min(ALONE)).map(|n| CrashChoice::KeepOne(pending - 1 - n));
        let others = [CrashChoice::AllKept, CrashChoice::NoneKept, CrashChoice::Seeded(at as u64)];
        for choice in others.into_iter().chain(alone) {
            let what = format!("format cut at {at} of {}, {choice:?}", device.events());
            is_one_or_none(engine, config, &device.crash_state(at, &choice), &what);
        }
    }
}

fn format(engine: &dyn Engine, config: &Config, devices: &Devices) {
    let devices = Devices { main: devices.main.clone(), extra: devices.extra.clone() };
    engine.format(devices, &config.format_options()).expect("format");
}

fn mount(engine: &dyn Engine, config: &Config, disk: &MemDevice) -> Result<Arc<dyn FileSystem>> {
    let clock = Arc::new(ManualClock::new(BEGIN));
    engine.mount(Devices::single(disk.clone()), &config.mount_options(), clock)
}

fn is_one_or_none(engine: &dyn Engine, config: &Config, disk: &MemDevice, what: &str) {
    let fs = match mount(engine, config, disk) {
        Ok(fs) => fs,
        Err(Error::Refused(_)) => return,
        Err(e) => panic!("{what}: {e}"),
    };
    fs.getattr(fs.root()).unwrap_or_else(|e| panic!("{what}: the root directory: {e}"));
    if let Err(e) = fs.lookup(fs.root(), b"older") {
        assert_eq!(e.errno(), Errno::ENOENT, "{what}: {e}");
    }
    fs.mkdir(&Cx { uid: 0, gid: 0 }, fs.root(), b"newer", 0o755).unwrap_or_else(|e| panic!("{what}: mkdir: {e}"));
    fs.unmount().unwrap_or_else(|e| panic!("{what}: unmount: {e}"));
    let issues = damage::check(engine, disk.clone(), Repair::No).issues;
    assert!(!issues.iter().any(|i| i.severity > Severity::Warning), "{what}: {issues:#?}");
}
