//! The engines this build knows: the only place that names them.

use crate::error::{Failure, Named};
use arbor_base::device::Device;
use arbor_base::vfs::{self, Engine, VolumeInfo};
use std::io;

/// One line an engine. The first one formats when none is named.
static ENGINES: &[&dyn Engine] = &[
    &arbor_yfs::Yfs,
    &arbor_ffs::Ffs,
    &arbor_lfs::Lfs,
    &arbor_dualfs::DualFs,
    &arbor_reiserfs::ReiserFs,
    &arbor_evergreen::Evergreen,
];

/// Engines that are there to be read and to be copied from: by name and by their volumes they are found as others are, but
/// nothing that goes through all engines meets them.
static EXAMPLES: &[&dyn Engine] = &[&arbor_plain::Plain];

/// Those of all lists.
fn known() -> impl Iterator<Item = &'static dyn Engine> {
    ENGINES.iter().chain(EXAMPLES).copied()
}

/// All engines, the default one first; the [`examples`] are not among them.
pub fn engines() -> &'static [&'static dyn Engine] {
    ENGINES
}

/// Engines that are no more than examples.
pub fn examples() -> &'static [&'static dyn Engine] {
    EXAMPLES
}

/// The engine of that name, be it an example.
pub fn engine(name: &str) -> Option<&'static dyn Engine> {
    known().find(|e| e.name() == name)
}

/// The engine whose magic is on the device, and what its superblock says. `None` if no engine
/// knows the device; a known but damaged superblock is an error.
pub fn detect(device: &dyn Device) -> io::Result<Option<(&'static dyn Engine, VolumeInfo)>> {
    match find(device) {
        Some((engine, Ok(info))) => Ok(Some((engine, info))),
        Some((engine, Err(e))) => Err(Failure::from(e).named("recognise", engine.name().as_bytes())),
        None => Ok(None),
    }
}

/// The engine of which a volume seems to lie here although its superblock is lost.
pub fn search(device: &dyn Device) -> Option<&'static dyn Engine> {
    known().find(|engine| engine.search(device).is_ok_and(|found| found))
}

/// Like [`detect`], but hands back the engine of a damaged volume too, for checking and repair.
pub fn find(device: &dyn Device) -> Option<(&'static dyn Engine, vfs::Result<VolumeInfo>)> {
    known().find_map(|engine| match engine.probe(device) {
        Ok(None) => None,
        Ok(Some(info)) => Some((engine, Ok(info))),
        Err(e) => Some((engine, Err(e))),
    })
}

/// The engine of whose volume the device is a part, without its superblock, and which one.
pub fn role(device: &dyn Device) -> Option<(&'static dyn Engine, &'static str)> {
    known().find_map(|engine| Some((engine, engine.role_of(device).ok()??)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arbor_base::device::{Kind, MemDevice};
    use arbor_base::vfs::{Devices, FormatOptions};

    #[test]
    fn an_example_is_found_and_met_by_nobody_who_goes_through_all() {
        for example in examples() {
            assert!(engines().iter().all(|e| e.name() != example.name()));
            let found = engine(example.name()).expect("by its name");
            let device = MemDevice::new(16 << 20);
            found.format(Devices::single(device.clone()), &FormatOptions::default()).expect("format");
            assert_eq!(detect(&device).expect("detect").map(|d| d.0.name()), Some(example.name()));
            device.write_at(Kind::Super, 0, &[0; 512]).expect("write");
            assert!(find(&device).is_none());
            assert_eq!(search(&device).map(|e| e.name()), Some(example.name()));
        }
    }
}
