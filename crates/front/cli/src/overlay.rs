//! A volume that was not unmounted, recovered in memory: `-o ro,norecovery`.

use anyhow::Result;
use arboretum::device::{Device, OverlayDevice};
use arboretum::vfs::{Devices, Engine, MountOptions, Options, SystemClock};
use std::sync::Arc;

/// What recovery may write, which stays in memory for as long as the volume is mounted.
const MOST: u64 = 1 << 30;

/// Devices as they would be if the volume had been recovered and unmounted. Nothing is written to those below. For an
/// older commit nothing is recovered: recovery is a change, and commits that nobody retains end with it.
pub(crate) fn recovered(devices: Devices, engine: &dyn Engine, options: &Options) -> Result<Devices> {
    if options.get("commit_at").is_some() || arboretum::detect(&*devices.main)?.is_some_and(|(_, info)| info.clean) {
        return Ok(devices);
    }
    let over = |device: Arc<dyn Device>| -> Arc<dyn Device> { Arc::new(OverlayDevice::new(device, MOST)) };
    let main = over(devices.main);
    let extra: std::collections::BTreeMap<_, _> =
        devices.extra.into_iter().map(|(role, device)| (role, over(device))).collect();
    let all = || Devices { main: main.clone(), extra: extra.clone() };
    let options = MountOptions { read_only: false, options: options.clone() };
    engine.mount(all(), &options, Arc::new(SystemClock))?.unmount()?;
    Ok(all())
}
