//! A volume that was not unmounted, recovered in memory: `-o ro,norecovery`.

use anyhow::Result;
use arboretum::device::{Device, OverlayDevice};
use arboretum::vfs::{CheckOptions, Devices, Engine, MountOptions, Options, Repair, SystemClock};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What recovery may write, which stays in memory for as long as the volume is mounted.
const MOST: u64 = 1 << 30;

/// What a volume would be.
pub(crate) struct Found {
    pub(crate) devices: Devices,
    /// The damage that was repaired.
    pub(crate) damage: Option<String>,
}

/// Devices as they would be if the volume had been recovered and unmounted, or repaired where damage keeps it from that.
/// Nothing is written to those below. For an older commit nothing is recovered: recovery is a change, and commits that nobody
/// retains end with it.
pub(crate) fn recovered(devices: Devices, engine: &dyn Engine, options: &Options) -> Result<Found> {
    if options.get("commit_at").is_some() || arboretum::detect(&*devices.main)?.is_some_and(|(_, info)| info.clean) {
        return Ok(Found { devices, damage: None });
    }
    let (recovered, mount) = (overlaid(&devices), MountOptions { read_only: false, options: options.clone() });
    let all = |of: &Devices| Devices { main: of.main.clone(), extra: of.extra.clone() };
    match engine.mount(all(&recovered), &mount, Arc::new(SystemClock)) {
        Ok(fs) => fs.unmount()?,
        Err(e) if e.is_damage() => {
            let repaired = overlaid(&devices);
            let options = CheckOptions { repair: Repair::Yes, force: true };
            engine.check(all(&repaired), &options, &mut |_, _, _| ())?;
            return Ok(Found { devices: repaired, damage: Some(e.to_string()) });
        }
        Err(e) => return Err(e.into()),
    }
    Ok(Found { devices: recovered, damage: None })
}

fn overlaid(devices: &Devices) -> Devices {
    let over = |device: &Arc<dyn Device>| -> Arc<dyn Device> { Arc::new(OverlayDevice::new(device.clone(), MOST)) };
    let extra: BTreeMap<_, _> = devices.extra.iter().map(|(role, device)| (role.clone(), over(device))).collect();
    Devices { main: over(&devices.main), extra }
}
