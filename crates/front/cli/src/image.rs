//! Images: where the volume in them begins, their further devices, and what they hold.

use crate::args::ImageArgs;
use crate::holder::{self, Peek};
use crate::used::foreign_name;
use anyhow::{Context, Result, anyhow, bail};
use arboretum::device::{Device, FileDevice, OffsetDevice, OpenMode, PatientDevice, SECTOR, identities};
use arboretum::vfs::{Devices, Engine, OptionSpec, Options, Utilisation, VolumeInfo};
use arboretum::{Volume, VolumeOptions};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is read beside an owner, who may be writing it at this moment.
fn tried<T>(read: impl Fn() -> Result<T>) -> Result<T> {
    const TRIES: usize = 5;
    (1..TRIES).find_map(|_| read().ok()).map_or_else(read, Ok)
}

/// Why a file is not used for anything else.
pub(crate) const OWN_FILE: &str = "the volume itself is in this file";

/// Devices that note what cannot be read, each with what it is called in messages.
pub(crate) type Patient = Vec<(String, PatientDevice)>;

/// Wraps the devices so that sectors that cannot be read do not end a check that changes nothing.
fn with_patience(devices: &mut Devices, zeros: bool) -> Patient {
    let all = [(String::new(), &mut devices.main)].into_iter();
    let extra = devices.extra.iter_mut().map(|(role, device)| (format!(" of the {role} device"), device));
    let wrap = |(role, device): (String, &mut Arc<dyn Device>)| {
        let patient = PatientDevice::new(device.clone(), zeros);
        *device = Arc::new(patient.clone());
        (role, patient)
    };
    all.chain(extra).map(wrap).collect()
}

/// An image on the command line, taken apart.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub(crate) path: PathBuf,
    pub(crate) offset: u64,
    /// Files of further devices by role.
    pub(crate) extra: Vec<(String, PathBuf)>,
    /// Options that are not about where the volume lies.
    pub(crate) rest: Options,
}

impl Image {
    pub(crate) fn new(args: &ImageArgs) -> Result<Image> {
        Ok(Image::parse(&args.image, &args.options)?.settled())
    }

    /// What names a device of one engine may be an option of another: whose volume is there decides.
    pub(crate) fn settled(self) -> Image {
        let has = |engine: &&dyn Engine, role: &str| {
            !engine.extra_devices().contains(&role) && Job::Mount.specs(*engine).iter().any(|spec| spec.key == role)
        };
        if !self.extra.iter().any(|(role, _)| arboretum::engines().iter().any(|engine| has(engine, role))) {
            return self;
        }
        let alone = Image { extra: Vec::new(), ..self.clone() };
        let there = alone.options(true).devices(&self.path).ok().and_then(|devices| arboretum::find(&*devices.main));
        match there {
            Some((engine, _)) => self.of(engine, Job::Mount),
            None => self,
        }
    }

    pub(crate) fn parse(path: &Path, options: &[String]) -> Result<Image> {
        let all = Options::parse(&options.join(","));
        let offset = all.size("offset")?.unwrap_or(0);
        if !offset.is_multiple_of(SECTOR as u64) {
            bail!("option offset: {offset} is not a multiple of {SECTOR} bytes");
        }
        let mut image = Image { path: path.to_path_buf(), offset, extra: Vec::new(), rest: Options::default() };
        for (key, value) in all.0 {
            if is_role(&key) {
                if value.is_empty() {
                    bail!("option {key}: it names no file, as {key}=FILE does");
                }
                if is_same(path, Path::new(&value)) {
                    bail!("{}: {key} and volume are the same file", path.display());
                }
                image.extra.push((key, value.into()));
            } else if key != "offset" {
                image.rest.0.push((key, value));
            }
        }
        Ok(image)
    }

    /// Refuses to use a file for anything else that the volume is in.
    pub(crate) fn spare(&self, file: &Path) -> Result<()> {
        let mut all = self.extra.iter().map(|(_, path)| path).chain([&self.path]);
        match all.any(|path| is_same(path, file)) {
            true => bail!("{}: {OWN_FILE}", file.display()),
            false => Ok(()),
        }
    }

    /// Refuses all other options, for a command that mounts nothing.
    pub(crate) fn without_options(self, command: &str) -> Result<Image> {
        let Some((key, _)) = self.rest.0.first() else { return Ok(self) };
        let roles: BTreeSet<_> = arboretum::engines().iter().flat_map(|e| e.extra_devices()).collect();
        let devices: String = roles.into_iter().map(|role| format!(", {role}=FILE")).collect();
        bail!("option {key}: {command} knows only offset=N{devices}")
    }

    /// Options for the library, without those of the engine.
    pub(crate) fn options(&self, read_only: bool) -> VolumeOptions {
        let options = Volume::options().offset(self.offset).read_only(read_only);
        self.extra.iter().fold(options, |options, (role, path)| options.device(role.clone(), path))
    }

    /// Opens the volume; the remaining options go to the engine.
    pub(crate) fn volume(&self, read_only: bool) -> Result<Volume> {
        let options = self.options(read_only);
        let options = self.rest.0.iter().fold(options, |options, (k, v)| options.mount_option(k.clone(), v.clone()));
        options.open(&self.path).map_err(|e| self.advice(&e).unwrap_or_else(|| self.said(e)))
    }

    /// What to do about a volume that cannot be opened.
    pub(crate) fn advice(&self, e: &dyn std::fmt::Display) -> Option<anyhow::Error> {
        let (text, path, words) = (e.to_string(), self.path.display(), self.words());
        let is = |words: &str| text.contains(words);
        if is("needs recovery") && self.info().is_ok_and(|info| !info.clean) {
            return Some(anyhow!(
                "{path}: was not unmounted cleanly and needs recovery: \
                 mount it for writing, or run `arbor fsck -p {words}`"
            ));
        }
        if is("kept in no order: run fsck") {
            return Some(anyhow!(
                "{path}: was not unmounted, and its metadata were kept in no order: `arbor fsck -y {words}`"
            ));
        }
        if is("damaged ") && is(": field ") {
            return Some(anyhow!("{path}: {text}; {}", self.what_mends()));
        }
        if is("not a volume of any known engine") {
            let devices = self.options(true).devices(&self.path).ok()?;
            return Some(self.foreign(&*devices.main));
        }
        None
    }

    /// What to do about damage.
    pub(crate) fn what_mends(&self) -> String {
        format!("`arbor fsck {}` tells what is damaged, with -y it mends it", self.words())
    }

    /// What the superblock says, or that it is damaged and what to do.
    fn known(&self, device: &dyn Device) -> Result<VolumeInfo> {
        match arboretum::detect(device) {
            Ok(found) => Ok(found.ok_or_else(|| self.foreign(device))?.1),
            Err(e) => Err(anyhow!("{}: {e}; `arbor fsck {}` looks for a copy", self.path.display(), self.words())),
        }
    }

    /// The image as one names it on a command line.
    pub(crate) fn words(&self) -> String {
        let mut options: Vec<String> = self.extra.iter().map(|(k, path)| format!("{k}={}", path.display())).collect();
        if self.offset != 0 {
            options.push(format!("offset={}", self.offset));
        }
        let options = if options.is_empty() { String::new() } else { format!("-o {} ", options.join(",")) };
        format!("{options}{}", self.path.display())
    }

    /// Opens the devices and finds out whose volume it is; refuses devices that such a volume does not have.
    pub(crate) fn devices(&self, read_only: bool) -> Result<(Devices, &'static dyn Engine)> {
        let (devices, engine) = self.find(read_only)?;
        self.refuse_roles(engine)?;
        Ok((devices, engine))
    }

    /// Opens the devices and finds out whose volume it is.
    pub(crate) fn find(&self, read_only: bool) -> Result<(Devices, &'static dyn Engine)> {
        let devices = self.options(read_only).devices(&self.path).map_err(|e| self.said(e))?;
        let (engine, info) = arboretum::find(&*devices.main).ok_or_else(|| self.foreign(&*devices.main))?;
        if info.is_err() {
            self.known(&*devices.main)?;
        }
        Ok((devices, engine))
    }

    /// Like [`Image::devices`], also for a volume whose superblock is lost.
    pub(crate) fn damaged_devices(&self, read_only: bool) -> Result<(Devices, Patient, &'static dyn Engine)> {
        let mut devices = self.options(read_only).devices(&self.path).map_err(|e| self.said(e))?;
        let patient = with_patience(&mut devices, read_only);
        let found = arboretum::find(&*devices.main).map(|found| found.0);
        let engine = found.or_else(|| arboretum::search(&*devices.main)).ok_or_else(|| {
            let unread = patient.first().and_then(|(_, device)| device.unread().into_iter().next());
            if let Some((_, why)) = unread {
                return anyhow!("no superblock is found, and not all can be read: {why}");
            }
            let no_copy = (!is_something_else(&*devices.main)).then_some(", and no copy of a superblock is found");
            anyhow!("{}{}", self.what_it_is(&*devices.main), no_copy.unwrap_or_default())
        })?;
        self.refuse_roles(engine)?;
        Ok((devices, patient, engine))
    }

    /// With as options what is no device of this engine, but an option of it.
    pub(crate) fn of(mut self, engine: &dyn Engine, job: Job) -> Image {
        let is_option = |role: &str| {
            !engine.extra_devices().contains(&role) && job.specs(engine).iter().any(|spec| spec.key == role)
        };
        for (role, path) in std::mem::take(&mut self.extra) {
            match path.into_os_string().into_string() {
                Ok(value) if is_option(&role) => self.rest.0.push((role, value)),
                Ok(path) => self.extra.push((role, path.into())),
                Err(path) => self.extra.push((role, path.into())),
            }
        }
        self
    }

    /// Refuses options for devices that volumes of this engine do not have.
    pub(crate) fn refuse_roles(&self, engine: &dyn Engine) -> Result<()> {
        match self.extra.iter().find(|(role, _)| !engine.extra_devices().contains(&role.as_str())) {
            Some((role, _)) => {
                Err(self.not_of(engine, role, &engines_with(|e| e.extra_devices().contains(&role.as_str()))))
            }
            None => Ok(()),
        }
    }

    /// Refuses options that this engine does not know; says so if another one does.
    pub(crate) fn check_options(&self, engine: &dyn Engine, job: Job) -> Result<()> {
        self.refuse_roles(engine)?;
        let knows = |e: &dyn Engine, key: &str| job.specs(e).iter().any(|spec| spec.key == key);
        for (key, _) in self.rest.0.iter().filter(|(key, _)| !knows(engine, key)) {
            let others = engines_with(|e| knows(e, key));
            if !others.is_empty() {
                return Err(self.not_of(engine, key, &others));
            }
        }
        check_options(&self.rest, job.specs(engine), job.name())
    }

    /// An option of other engines than the volume's.
    fn not_of(&self, engine: &dyn Engine, key: &str, others: &[&str]) -> anyhow::Error {
        let (path, others, engine) = (self.path.display(), others.join(" and "), engine.name());
        anyhow!("{path}: {key}= is an option of {others}, and this is a volume of {engine}")
    }

    /// What the superblock says, also while the image is in use.
    pub(crate) fn info(&self) -> Result<VolumeInfo> {
        match self.options(true).devices(&self.path) {
            Ok(devices) => self.known(&*devices.main),
            Err(e) if e.kind() == ErrorKind::ResourceBusy => self.peek(),
            Err(e) => Err(self.said(e)),
        }
    }

    /// By which process the image is in use, if it is.
    pub(crate) fn in_use(&self) -> Option<String> {
        let e = self.options(true).devices(&self.path).err().filter(|e| e.kind() == ErrorKind::ResourceBusy)?;
        let text = holder::in_use(&self.path, &e.to_string());
        Some(text.split_once(" is in use").map_or(text.clone(), |(_, by)| format!("in use{by}")))
    }

    fn peek(&self) -> Result<VolumeInfo> {
        let devices = self.peek_devices()?;
        tried(|| self.known(&*devices.main))
    }

    fn peek_devices(&self) -> Result<Devices> {
        let open = |path: &Path| Peek::open(path).with_context(|| path.display().to_string());
        let device = open(&self.path)?;
        let len = device.geometry().size.saturating_sub(self.offset);
        let mut devices = Devices::single(OffsetDevice::new(device, self.offset, len)?);
        for (role, path) in &self.extra {
            devices.extra.insert(role.clone(), Arc::new(open(path)?));
        }
        Ok(devices)
    }

    /// How much of each segment lives, where there are segments; of an image in use, when metadata were last put in
    /// place.
    pub(crate) fn utilisation(&self) -> Result<Option<Utilisation>> {
        if self.in_use().is_none() {
            let (devices, engine) = self.find(true)?;
            return Ok(engine.utilisation(&devices)?);
        }
        let devices = self.peek_devices()?;
        let Some((engine, _)) = arboretum::find(&*devices.main) else { return Ok(None) };
        tried(|| Ok(engine.utilisation(&devices)?))
    }

    /// What is there instead of a volume, and what to do.
    fn foreign(&self, device: &dyn Device) -> anyhow::Error {
        let what = self.what_it_is(device);
        if is_something_else(device) {
            return anyhow!(what);
        }
        anyhow!(
            "{what}; `arbor fsck {}` looks for a damaged one, -o offset=N says where in the file it begins",
            self.words()
        )
    }

    fn what_it_is(&self, device: &dyn Device) -> String {
        let path = self.path.display();
        if let Some((engine, role)) = arboretum::role(device) {
            let name = engine.name();
            return format!(
                "{path}: the {role} device of a volume of {name}; name the one with its superblock, and -o {role}={path}"
            );
        }
        let holds = foreign_name(device).map(|what| format!(": it seems to hold {what}")).unwrap_or_default();
        format!("{path}: not a volume of any known engine{holds}")
    }

    /// An error of the library without the operation in front: the command's name says it.
    pub(crate) fn said(&self, e: std::io::Error) -> anyhow::Error {
        let text = e.to_string();
        let shown = self.path.display().to_string();
        if e.kind() == ErrorKind::ResourceBusy {
            let text = holder::in_use(&self.path, &text);
            return anyhow!("{}", text.strip_prefix("open ").unwrap_or(&text));
        }
        // The operation may be more than one word; a short path may be a word of the reason.
        let is_named = |at: &usize| text.get(at + shown.len()..).is_some_and(|rest| rest.starts_with(':'));
        match text.match_indices(&shown).map(|(at, _)| at).find(is_named) {
            Some(at) => anyhow::Error::new(e).context(text.get(at..).unwrap_or_default().to_string()),
            None => anyhow::Error::new(e).context(format!("{shown}: {text}")),
        }
    }

    /// The size of an image that exists; `None` if it does not.
    pub(crate) fn existing_size(&self) -> Result<Option<u64>> {
        match FileDevice::open(&self.path, OpenMode::ReadOnly) {
            Ok(device) => Ok(Some(device.geometry().size)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(self.said(e)),
        }
    }
}

/// Whether two names lead to one file, which need not be there, or one of them to a loop device on it.
fn is_same(a: &Path, b: &Path) -> bool {
    let numbers = |path: &Path| std::fs::metadata(path).map(|meta| identities(&meta)).unwrap_or_default();
    let of_a = numbers(a);
    if numbers(b).iter().any(|id| of_a.contains(id)) {
        return true;
    }
    let whole = |path: &Path| std::fs::canonicalize(path).or_else(|_| std::path::absolute(path));
    matches!((whole(a), whole(b)), (Ok(a), Ok(b)) if a == b)
}

/// What an engine's options are for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Job {
    Format,
    Mount,
}

impl Job {
    fn specs(self, engine: &dyn Engine) -> &'static [OptionSpec] {
        match self {
            Job::Format => engine.format_options(),
            Job::Mount => engine.mount_options(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Job::Format => "mkfs",
            Job::Mount => "mount",
        }
    }
}

/// Whether it is known what is there, and that it is no volume.
fn is_something_else(device: &dyn Device) -> bool {
    foreign_name(device).is_some() || arboretum::role(device).is_some()
}

/// Names of the engines of which something is true.
fn engines_with(is_so: impl Fn(&dyn Engine) -> bool) -> Vec<&'static str> {
    arboretum::engines().iter().filter(|e| is_so(**e)).map(|e| e.name()).collect()
}

/// Whether an option names a further device of some engine.
fn is_role(key: &str) -> bool {
    arboretum::engines().iter().any(|engine| engine.extra_devices().contains(&key))
}

/// Refuses options that are in none of the lists, by name, and says where the lists are.
pub(crate) fn check_options<'a>(
    options: &Options,
    known: impl IntoIterator<Item = &'a OptionSpec>,
    command: &str,
) -> Result<()> {
    let known: Vec<OptionSpec> = known.into_iter().copied().collect();
    options.check(&known).map_err(|e| anyhow!("{e} (`arbor {command} --help` lists them)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_taken_apart() {
        let image = Image::parse(Path::new("x"), &["offset=1M,a=1".into(), "b".into()]).unwrap();
        assert_eq!((image.offset, image.rest), (1 << 20, Options::parse("a=1,b")));
        let refused = |option: &str| Image::parse(Path::new("x"), &[option.into()]).unwrap_err().to_string();
        assert_eq!(refused("offset=z"), "option offset: \"z\" is not a size");
        assert_eq!(refused("offset=1"), "option offset: 1 is not a multiple of 512 bytes");
        assert_eq!(refused("log="), "option log: it names no file, as log=FILE does");
        assert_eq!(refused("log=./x"), "x: log and volume are the same file");
    }
}
