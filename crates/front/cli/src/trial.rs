//! Formatting in memory first: a size or an option that cannot be is found out before anything on
//! the host is touched, and the message says what can be.

use crate::image::Image;
use crate::show;
use anyhow::{Result, anyhow};
use arboretum::VolumeOptions;
use arboretum::device::{Device, Geometry, MemDevice, Op, Request, Ticket};
use arboretum::vfs::{Devices, Options};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Larger volumes are not tried: the engine's tables of them take memory.
const MOST: u64 = 64 << 40;
/// An engine that has written so much has found nothing wrong with its options.
const ENOUGH: u64 = 2 << 20;
/// To how many bytes the least size is found.
const STEP: u64 = 4096;

/// A format that is to be made.
pub(crate) struct Trial<'a> {
    pub(crate) image: &'a Image,
    /// All but the options of the engine, which are those of the image.
    pub(crate) options: VolumeOptions,
    pub(crate) size: u64,
    /// Sizes of the further devices by role.
    pub(crate) extra: Vec<(String, u64)>,
}

impl Trial<'_> {
    /// Tries it; the error says which option or size is at fault, if one is.
    pub(crate) fn run(&self) -> Result<()> {
        let all = &self.image.rest;
        let Some(e) = self.fails(all, self.size) else { return Ok(()) };
        let path = self.image.path.display();
        let reason = e.to_string();
        let reason = reason.strip_prefix("format: ").unwrap_or(&reason);
        if let Some((key, value)) = all.0.iter().find(|(key, _)| self.fails(&without(all, key), self.size).is_none()) {
            let names_it = reason.starts_with(&format!("option {key}: "));
            let option = if names_it { String::new() } else { format!("option {key}={value}: ") };
            return Err(anyhow!("{path}: {option}{reason}"));
        }
        match self.least(all) {
            Some(least) if least > self.size => {
                let (size, least) = (show::exact_bytes(self.size), show::exact_bytes(least));
                Err(anyhow!("{path}: {size} is too small: with these options a volume takes at least {least}"))
            }
            _ => Err(anyhow!("{path}: {reason}")),
        }
    }

    fn fails(&self, options: &Options, size: u64) -> Option<io::Error> {
        if size > MOST {
            return None;
        }
        let all = self.options.clone();
        let all = options.0.iter().fold(all, |all, (key, value)| all.format_option(key.clone(), value.clone()));
        let main = Arc::new(Brief { inner: MemDevice::new(size), written: AtomicU64::new(0) });
        let mut devices = Devices { main: main.clone(), extra: BTreeMap::new() };
        for (role, len) in &self.extra {
            devices.extra.insert(role.clone(), Arc::new(MemDevice::new(*len)));
        }
        all.format_on(devices).err().filter(|_| !main.has_enough())
    }

    /// The least size that works, if a larger one does.
    fn least(&self, options: &Options) -> Option<u64> {
        let mut fits = self.size.max(STEP).next_multiple_of(STEP);
        while self.fails(options, fits).is_some() {
            fits = fits.checked_mul(2).filter(|size| *size <= MOST)?;
        }
        let mut fails = 0;
        while fits - fails > STEP {
            let middle = (fails + (fits - fails) / 2).next_multiple_of(STEP);
            if self.fails(options, middle).is_some() { fails = middle } else { fits = middle }
        }
        Some(fits)
    }
}

/// A device in memory that takes [`ENOUGH`] bytes and no more: groups of a large volume would fill the memory.
struct Brief {
    inner: MemDevice,
    written: AtomicU64,
}

impl Brief {
    fn has_enough(&self) -> bool {
        self.written.load(Relaxed) > ENOUGH
    }
}

impl Device for Brief {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let writes = batch.iter().filter(|request| matches!(request.op, Op::Write(_)));
        self.written.fetch_add(writes.map(Request::len).sum(), Relaxed);
        if self.has_enough() {
            return Ticket::done(batch.iter().map(|_| Err(io::ErrorKind::StorageFull.into())).collect());
        }
        self.inner.submit(batch)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.inner.set_size(size)
    }
}

fn without(options: &Options, key: &str) -> Options {
    Options(options.0.iter().filter(|(k, _)| k != key).cloned().collect())
}
