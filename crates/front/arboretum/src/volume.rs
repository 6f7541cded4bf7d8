//! Volumes: making, opening and closing them, and everything that is done by path.

use crate::dir::{ReadDir, Walk};
use crate::error::{Failure, Named, Result};
use crate::file::{File, OpenOptions, next_data, read_whole, write_all};
use crate::meta::{FileTimes, Metadata};
use crate::node::{FileId, Mount, Node, bytes_of, path_of};
use crate::registry;
use arbor_base::device::{self, Device, FileDevice, MemDevice, OffsetDevice, OpenMode};
use arbor_base::vfs::{
    self, Cleaned, Clock, Cx, Devices, Engine, Errno, FileFlags, FileSystem, FileType, FormatOptions, MountOptions,
    Options, RenameFlags, Scrubbed, SetAttr, StatFs, SystemClock, TrimRange, VolumeInfo, XattrMode,
};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes moved at a time.
pub(crate) const CHUNK: usize = 1 << 20;

/// Size of the file of a further device, if nothing else is said.
pub const EXTRA_LEN: u64 = 32 << 20;

/// How a volume is made or opened. What is not set has a sensible default.
#[derive(Clone)]
pub struct VolumeOptions {
    engine: Option<String>,
    label: String,
    uuid: Option<[u8; 16]>,
    owner: Option<(u32, u32)>,
    format_options: Options,
    mount_options: Options,
    read_only: bool,
    overwrite: bool,
    offset: u64,
    extra: BTreeMap<String, PathBuf>,
    clock: Arc<dyn Clock>,
}

impl Default for VolumeOptions {
    fn default() -> VolumeOptions {
        VolumeOptions {
            engine: None,
            label: String::new(),
            uuid: None,
            owner: None,
            format_options: Options::default(),
            mount_options: Options::default(),
            read_only: false,
            overwrite: false,
            offset: 0,
            extra: BTreeMap::new(),
            clock: Arc::new(SystemClock),
        }
    }
}

impl fmt::Debug for VolumeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VolumeOptions")
            .field("engine", &self.engine)
            .field("label", &self.label)
            .field("read_only", &self.read_only)
            .field("offset", &self.offset)
            .field("extra", &self.extra)
            .finish_non_exhaustive()
    }
}

impl VolumeOptions {
    /// Engine to format with; the first of [`engines`](crate::engines) if none is named.
    pub fn engine(mut self, name: impl Into<String>) -> VolumeOptions {
        self.engine = Some(name.into());
        self
    }

    /// Label of a new volume, at most 63 bytes.
    pub fn label(mut self, label: impl Into<String>) -> VolumeOptions {
        self.label = label.into();
        self
    }

    /// UUID of a new volume; a random one is drawn if none is given.
    pub fn uuid(mut self, uuid: [u8; 16]) -> VolumeOptions {
        self.uuid = Some(uuid);
        self
    }

    /// Owner and group of a new root directory and of what is created; this process's by default.
    pub fn owner(mut self, uid: u32, gid: u32) -> VolumeOptions {
        self.owner = Some((uid, gid));
        self
    }

    /// An engine's option for formatting, see [`Engine::format_options`].
    pub fn format_option(mut self, key: impl Into<String>, value: impl Into<String>) -> VolumeOptions {
        self.format_options.0.push((key.into(), value.into()));
        self
    }

    /// An engine's option for mounting, see [`Engine::mount_options`].
    pub fn mount_option(mut self, key: impl Into<String>, value: impl Into<String>) -> VolumeOptions {
        self.mount_options.0.push((key.into(), value.into()));
        self
    }

    /// Writes nothing to the volume, not even recovery.
    pub fn read_only(mut self, yes: bool) -> VolumeOptions {
        self.read_only = yes;
        self
    }

    /// Lets [`format`](VolumeOptions::format) use a file that is already there. It gets the size of
    /// the volume; but with an [`offset`](VolumeOptions::offset) it only grows, and what lies beyond
    /// the volume stays.
    pub fn overwrite(mut self, yes: bool) -> VolumeOptions {
        self.overwrite = yes;
        self
    }

    /// Byte at which the volume begins in its file, a multiple of 512.
    pub fn offset(mut self, bytes: u64) -> VolumeOptions {
        self.offset = bytes;
        self
    }

    /// File of a further device, by its role in the engine (yFS: `"log"`). Formatting makes it if
    /// it is missing, as large as the format option of its role says (`logsize`), or of 32 MiB.
    pub fn device(mut self, role: impl Into<String>, path: impl Into<PathBuf>) -> VolumeOptions {
        self.extra.insert(role.into(), path.into());
        self
    }

    /// Where the time comes from.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> VolumeOptions {
        self.clock = clock;
        self
    }

    /// Makes a volume of `size` bytes in the file `path` and opens it. The file is sparse.
    pub fn format(&self, path: impl AsRef<Path>, size: u64) -> io::Result<Volume> {
        let path = path.as_ref();
        let shown = path.to_string_lossy();
        self.format_image(path, size).named("format", shown.as_bytes())?;
        self.open(path)
    }

    /// Opens the volume in the file `path`, after recovery if it was not closed.
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<Volume> {
        let path = path.as_ref();
        let shown = path.to_string_lossy();
        self.open_image(path).and_then(|devices| self.mount(devices)).named("open", shown.as_bytes())
    }

    /// Makes a volume of `size` bytes in memory and opens it.
    pub fn in_memory(&self, size: u64) -> io::Result<Volume> {
        let device = MemDevice::new(size);
        self.format_on(Devices::single(device.clone()))?;
        self.on_device(Devices::single(device))
    }

    /// Makes a volume that fills the main device. It is not opened: a device has one owner.
    pub fn format_on(&self, devices: Devices) -> io::Result<()> {
        self.format_devices(devices).named("format", b"")
    }

    /// Opens the volume on a device.
    pub fn on_device(&self, devices: Devices) -> io::Result<Volume> {
        self.mount(devices).named("open", b"")
    }

    /// Opens the files without the file system in them, for checking, describing or resizing.
    pub fn devices(&self, path: impl AsRef<Path>) -> io::Result<Devices> {
        let path = path.as_ref();
        self.open_image(path).named("open", path.to_string_lossy().as_bytes())
    }

    fn format_image(&self, path: &Path, size: u64) -> Result<()> {
        let exists = is_there(path)?;
        if exists && !self.overwrite {
            return Err(Errno::EEXIST.into());
        }
        refuse_roles(self.chosen_engine()?, self.extra.keys())?;
        let mut made = Vec::new();
        let formatted = self.make_extra(&mut made).and_then(|()| self.format_main(path, size, exists));
        if formatted.is_err() {
            for path in made {
                let _ = std::fs::remove_file(path);
            }
        }
        formatted
    }

    /// Makes the files of further devices that are missing, and tells which.
    fn make_extra(&self, made: &mut Vec<PathBuf>) -> Result<()> {
        for (role, path) in &self.extra {
            if is_there(path)? {
                continue;
            }
            let size = self.format_options.size(&format!("{role}size"))?.unwrap_or(EXTRA_LEN);
            drop(FileDevice::create(path, size)?);
            made.push(path.clone());
        }
        Ok(())
    }

    fn format_main(&self, path: &Path, size: u64, exists: bool) -> Result<()> {
        if !exists {
            let device = FileDevice::create(path, self.offset.saturating_add(size))?;
            let made = self.window(device, Some(size)).and_then(|main| self.format_devices(self.with_extra(main)?));
            if made.is_err() {
                // Nobody wants a file of holes; the reason is what counts.
                let _ = std::fs::remove_file(path);
            }
            return made;
        }
        let device = FileDevice::open(path, OpenMode::ReadWrite)?;
        let (old, wanted) = (device.geometry().size, self.offset.saturating_add(size));
        // A disk keeps its length: the volume lies in its first part.
        let is_file = std::fs::metadata(path)?.is_file();
        if wanted > old || (wanted < old && self.offset == 0 && is_file) {
            device.set_size(wanted)?;
        }
        self.format_devices(self.with_extra(self.window(device, Some(size))?)?)
    }

    fn format_devices(&self, devices: Devices) -> Result<()> {
        let engine = self.chosen_engine()?;
        refuse_roles(engine, devices.extra.keys())?;
        let options = FormatOptions {
            label: self.label.clone(),
            uuid: self.uuid.unwrap_or_else(|| uuid::Uuid::new_v4().into_bytes()),
            now: self.clock.now(),
            owner: self.creator(),
            options: self.format_options.clone(),
        };
        Ok(engine.format(devices, &options)?)
    }

    fn chosen_engine(&self) -> Result<&'static dyn Engine> {
        let chosen = match &self.engine {
            Some(name) => registry::engine(name),
            None => registry::engines().first().copied(),
        };
        chosen.ok_or_else(|| {
            let name = self.engine.as_deref().unwrap_or("none");
            vfs::Error::refused(format!("no engine named {name:?}")).into()
        })
    }

    fn open_image(&self, path: &Path) -> Result<Devices> {
        let device = FileDevice::open(path, self.open_mode())?;
        self.with_extra(self.window(device, None)?)
    }

    fn open_mode(&self) -> OpenMode {
        if self.read_only { OpenMode::ReadOnly } else { OpenMode::ReadWrite }
    }

    /// The volume's part of its file: so many bytes, or all from where it begins.
    fn window(&self, device: FileDevice, len: Option<u64>) -> Result<Arc<dyn Device>> {
        let size = device.geometry().size;
        if self.offset == 0 && len.is_none_or(|len| len == size) {
            return Ok(Arc::new(device));
        }
        let rest = size
            .checked_sub(self.offset)
            .ok_or_else(|| vfs::Error::refused(format!("offset {} lies after the end of {size} bytes", self.offset)))?;
        Ok(Arc::new(OffsetDevice::new(device, self.offset, len.unwrap_or(rest))?))
    }

    fn with_extra(&self, main: Arc<dyn Device>) -> Result<Devices> {
        let mut devices = Devices { main, extra: BTreeMap::new() };
        for (role, path) in &self.extra {
            devices.extra.insert(role.clone(), Arc::new(FileDevice::open(path, self.open_mode())?));
        }
        Ok(devices)
    }

    fn mount(&self, devices: Devices) -> Result<Volume> {
        let (engine, info) = match registry::find(&*devices.main) {
            Some((engine, info)) => (engine, info?),
            None => return Err(vfs::Error::refused(not_a_volume(&*devices.main)).into()),
        };
        if let Some(name) = self.engine.as_deref().filter(|name| *name != engine.name()) {
            return Err(vfs::Error::refused(format!("this is a volume of {}, not of {name}", engine.name())).into());
        }
        refuse_roles(engine, devices.extra.keys())?;
        let options = MountOptions { read_only: self.read_only, options: self.mount_options.clone() };
        let claims = devices.extra.values().chain([&devices.main]).filter_map(|device| device.claim());
        let files = claims.flat_map(|claim| claim.identities()).collect();
        let fs = vfs::with_flags(engine.mount(devices, &options, self.clock.clone())?);
        Ok(Volume { mount: self.shared(fs, Some(files)), info: Some(info) })
    }

    /// `files`: what the volume is in, if nobody else has it.
    fn shared(&self, fs: Arc<dyn FileSystem>, files: Option<Vec<FileId>>) -> Arc<Mount> {
        let (uid, gid) = self.creator();
        Mount::new((fs, files), self.clock.clone(), Cx { uid, gid }, self.read_only)
    }

    fn creator(&self) -> (u32, u32) {
        self.owner.unwrap_or_else(process_owner)
    }

    /// Wraps a file system that is already mounted.
    pub fn wrap(&self, fs: Arc<dyn FileSystem>) -> Volume {
        Volume { mount: self.shared(fs, None), info: None }
    }
}

/// Whether there is something at this path. A link that leads nowhere is refused: nobody knows whether that, or what it
/// should lead to, is to be made.
fn is_there(path: &Path) -> Result<bool> {
    match path.exists() {
        false if path.is_symlink() => {
            let why = "is a symbolic link that leads nowhere";
            Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{}: {why}", path.display())).into())
        }
        exists => Ok(exists),
    }
}

/// What is wrong with a device on which no volume is found.
fn not_a_volume(device: &dyn Device) -> String {
    let part = registry::role(device).map(|(engine, role)| format!(": the {role} device of one of {}", engine.name()));
    format!("not a volume of any known engine{}", part.unwrap_or_default())
}

/// Refuses devices that the engine would not use.
fn refuse_roles<'a>(engine: &dyn Engine, mut roles: impl Iterator<Item = &'a String>) -> Result<()> {
    match roles.find(|role| !engine.extra_devices().contains(&role.as_str())) {
        Some(role) => Err(vfs::Error::refused(format!("a volume of {} has no device {role:?}", engine.name())).into()),
        None => Ok(()),
    }
}

#[cfg(unix)]
fn process_owner() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

#[cfg(not(unix))]
fn process_owner() -> (u32, u32) {
    (0, 0)
}

/// A mounted volume. Paths are relative to its root, whether they begin with a slash or not.
///
/// There is no user: permissions are kept but not checked. Nothing is durable before
/// [`sync`](Volume::sync), [`File::sync_all`] or [`close`](Volume::close) returns. When the last of
/// the volume and its open files is dropped, the volume is unmounted; use `close` to learn of
/// errors.
pub struct Volume {
    mount: Arc<Mount>,
    info: Option<VolumeInfo>,
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volume").field("info", &self.info).finish_non_exhaustive()
    }
}

impl Volume {
    /// Makes a volume of `size` bytes in the new file `path` and opens it.
    pub fn format(path: impl AsRef<Path>, size: u64) -> io::Result<Volume> {
        Volume::options().format(path, size)
    }

    /// Opens the volume in the file `path`.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Volume> {
        Volume::options().open(path)
    }

    /// Opens the volume in the file `path` without ever writing to it.
    pub fn open_read_only(path: impl AsRef<Path>) -> io::Result<Volume> {
        Volume::options().read_only(true).open(path)
    }

    /// Makes a volume of `size` bytes in memory.
    pub fn in_memory(size: u64) -> io::Result<Volume> {
        Volume::options().in_memory(size)
    }

    /// Opens the volume on a device.
    pub fn on_device(devices: Devices) -> io::Result<Volume> {
        Volume::options().on_device(devices)
    }

    /// All that can be said about making and opening a volume.
    pub fn options() -> VolumeOptions {
        VolumeOptions::default()
    }

    pub(crate) fn mount(&self) -> &Arc<Mount> {
        &self.mount
    }

    /// What the superblock said when the volume was opened; `None` for a wrapped file system.
    pub fn info(&self) -> Option<&VolumeInfo> {
        self.info.as_ref()
    }

    /// Whether the volume is in this file of the host, be one of them a loop device. `false` where the platform does not tell.
    pub fn is_in(&self, file: &std::fs::File) -> bool {
        file.metadata().is_ok_and(|meta| self.mount.is_in(device::identities(&meta)))
    }

    /// The file system itself, at the level of inodes.
    pub fn file_system(&self) -> &Arc<dyn FileSystem> {
        &self.mount.fs
    }

    /// Opens a file for reading.
    pub fn open_file(&self, path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().read(true).open(self, path)
    }

    /// Opens a file for reading and writing, empty; creates it if it is not there.
    pub fn create(&self, path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(self, path)
    }

    /// The whole content of a file.
    pub fn read(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let path = bytes_of(path.as_ref());
        self.read_bytes(&path).named("read", &path)
    }

    fn read_bytes(&self, path: &[u8]) -> Result<Vec<u8>> {
        read_whole(&self.mount.resolve(path, true)?)
    }

    /// Makes `data` the whole content of a file; creates it if it is not there.
    pub fn write(&self, path: impl AsRef<Path>, data: impl AsRef<[u8]>) -> io::Result<()> {
        let path = bytes_of(path.as_ref());
        self.write_bytes(&path, data.as_ref()).named("write", &path)
    }

    fn write_bytes(&self, path: &[u8], data: &[u8]) -> Result<()> {
        if self.make_file(path, data)? {
            return Ok(());
        }
        let file = OpenOptions::new().write(true).create(true).truncate(true).open_bytes(&self.mount, path)?;
        write_all(file.node(), 0, data)
    }

    /// Makes a file with its content in the directory to which the last path led; `false` if this is another one, or the name
    /// is taken.
    fn make_file(&self, path: &[u8], data: &[u8]) -> Result<bool> {
        let (false, Some((dir, name))) = (self.mount.read_only, self.mount.known_place(path)) else {
            return Ok(false);
        };
        match dir.fs().make_file(&self.mount.cx, dir.ino(), name, 0o644, data) {
            Err(e) if e.errno() == Errno::EEXIST => return Ok(false),
            made => made?,
        }
        self.mount.changed();
        Ok(true)
    }

    /// Copies a file's content and permissions to another path; returns the bytes. Holes stay.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
        let (from, to) = (bytes_of(from.as_ref()), bytes_of(to.as_ref()));
        self.copy_bytes(&from, &to).named("copy", &from)
    }

    fn copy_bytes(&self, from: &[u8], to: &[u8]) -> Result<u64> {
        let source = self.mount.resolve(from, true)?;
        if source.attr.file_type() != FileType::File {
            return Err(Errno::EINVAL.into());
        }
        if self.mount.walk(to, true)?.node.is_some_and(|n| n.ino() == source.ino()) {
            return Err(vfs::Error::refused("source and target are the same file").into());
        }
        let mut how = OpenOptions::new();
        let target = how.write(true).create(true).truncate(true).open_bytes(&self.mount, to)?;
        let (size, mut at) = (source.attr.size, 0);
        while let Some(data) = next_data(&source, at)?.filter(|data| *data < size) {
            let end = source.fs().seek(source.ino(), data, vfs::Seek::Hole)?.min(size);
            at = data;
            while at < end {
                let len = (end - at).min(CHUNK as u64);
                match source.fs().copy_range(source.ino(), at, target.node().ino(), at, len)? {
                    0 => return Err(Errno::EIO.into()),
                    n => at += n,
                }
                self.mount.changed();
            }
        }
        let permissions = Some(source.attr.mode & 0o7777);
        target.node().set(&SetAttr { size: Some(size), mode: permissions, ..SetAttr::default() })?;
        Ok(size)
    }

    /// Creates a directory with mode 0755.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = bytes_of(path.as_ref());
        self.make(&path, |dir, name| dir.mkdir(name, 0o755).map(drop)).named("create directory", &path)
    }

    /// Creates a directory and those above it; one that is there already is fine.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = bytes_of(path.as_ref());
        self.make_dirs(&path).named("create directory", &path)
    }

    fn make_dirs(&self, path: &[u8]) -> Result<()> {
        self.writable()?;
        let mut dir = self.mount.root()?;
        let ends = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(i, _)| i).chain([path.len()]);
        let mut start = 0;
        for end in ends {
            let name = path.get(start..end).unwrap_or_default();
            start = end + 1;
            let next = match name {
                b"" | b"." => continue,
                // The way back is known to a walk from the root alone.
                b".." => None,
                name => Some(dir.child_if_any(name)?),
            };
            dir = match next {
                Some(None) => self.make_dir(&dir, name)?,
                Some(Some(node)) if node.attr.file_type() != FileType::Symlink => node.need_dir()?,
                _ => self.dir_by_link(path.get(..end).unwrap_or_default())?,
            };
        }
        Ok(())
    }

    /// The directory to which links on `path` lead, made if it is missing.
    pub(crate) fn dir_by_link(&self, path: &[u8]) -> Result<Node> {
        let found = self.mount.walk(path, true)?;
        match (found.node, found.parent) {
            (Some(node), _) => node.need_dir(),
            (None, Some((dir, name))) => self.make_dir(&dir, &name),
            (None, None) => Err(Errno::ENOENT.into()),
        }
    }

    /// Makes a directory on the way to something else.
    pub(crate) fn make_dir(&self, dir: &Node, name: &[u8]) -> Result<Node> {
        let made = dir.mkdir(name, 0o755)?;
        self.mount.changed();
        Ok(made)
    }

    /// Entries of a directory, without `.` and `..`, in the order of the engine.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> io::Result<ReadDir> {
        let path = bytes_of(path.as_ref());
        let node = self.mount.resolve(&path, true);
        node.and_then(|node| ReadDir::new(node, &path)).named("read directory", &path)
    }

    /// The tree below `path`, itself first. Links are not followed.
    pub fn walk(&self, path: impl AsRef<Path>) -> io::Result<Walk> {
        let path = bytes_of(path.as_ref());
        self.mount.resolve(&path, false).map(|node| Walk::new(node, &path)).named("walk", &path)
    }

    /// Removes a name that is not a directory's.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = bytes_of(path.as_ref());
        if let (false, Some((dir, name))) = (self.mount.read_only, self.mount.known_place(&path)) {
            // Nobody holds the file on the way, so it may be freed at once.
            dir.fs().unlink(dir.ino(), name).map_err(Failure::from).named("remove", &path)?;
            self.mount.changed();
            return Ok(());
        }
        self.remove(&path, |dir, name, _| Ok(dir.fs().unlink(dir.ino(), name)?)).named("remove", &path)
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = bytes_of(path.as_ref());
        self.mount.forget_known();
        self.remove(&path, |dir, name, _| Ok(dir.fs().rmdir(dir.ino(), name)?)).named("remove directory", &path)
    }

    /// Removes a directory and all it holds. Links in it are removed, not followed.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = bytes_of(path.as_ref());
        self.mount.forget_known();
        let removed = self.remove(&path, |dir, name, node| self.mount.remove_tree(dir, name, node.need_dir()?));
        removed.named("remove directory", &path)
    }

    /// Moves a name; what `to` named before is replaced atomically.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        self.rename_with(from, to, RenameFlags::empty())
    }

    /// Moves a name: never over another ([`RenameFlags::NOREPLACE`]), or in exchange for another.
    pub fn rename_with(&self, from: impl AsRef<Path>, to: impl AsRef<Path>, flags: RenameFlags) -> io::Result<()> {
        let (from, to) = (bytes_of(from.as_ref()), bytes_of(to.as_ref()));
        self.rename_bytes(&from, &to, flags).named("rename", &from)
    }

    fn rename_bytes(&self, from: &[u8], to: &[u8], flags: RenameFlags) -> Result<()> {
        self.writable()?;
        let (dir, name, node) = self.mount.walk(from, false)?.existing_name()?;
        let target = self.mount.walk(to, false)?;
        if target.must_be_dir && !node.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        let (new_dir, new_name) = target.parent.ok_or(Errno::EBUSY)?;
        self.mount.fs.rename(&self.mount.cx, dir.ino(), &name, new_dir.ino(), &new_name, flags)?;
        self.mount.forget_known();
        self.mount.changed();
        Ok(())
    }

    /// Gives a file a further name.
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
        let (original, link) = (bytes_of(original.as_ref()), bytes_of(link.as_ref()));
        let made =
            self.mount.resolve(&original, false).and_then(|node| self.make(&link, |dir, name| node.link(dir, name)));
        made.named("link", &link)
    }

    /// Creates a symbolic link at `link` that says `target`.
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
        let (target, link) = (bytes_of(target.as_ref()), bytes_of(link.as_ref()));
        self.make(&link, |dir, name| dir.symlink(name, &target).map(drop)).named("create link", &link)
    }

    /// Creates a fifo, socket or device node: `mode` holds type and permissions.
    pub fn make_node(&self, path: impl AsRef<Path>, mode: u32, rdev: u32) -> io::Result<()> {
        let path = bytes_of(path.as_ref());
        self.make(&path, |dir, name| dir.mknod(name, mode, rdev).map(drop)).named("create node", &path)
    }

    /// What a symbolic link says.
    pub fn read_link(&self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        let path = bytes_of(path.as_ref());
        let target = self.mount.resolve(&path, false).and_then(|node| Ok(node.fs().readlink(node.ino())?));
        target.map(path_of).named("read link", &path)
    }

    /// Attributes of what the path leads to.
    pub fn metadata(&self, path: impl AsRef<Path>) -> io::Result<Metadata> {
        let path = bytes_of(path.as_ref());
        self.mount.resolve(&path, true).map(|node| node.attr.into()).named("stat", &path)
    }

    /// Attributes of the link itself, if the path names one.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> io::Result<Metadata> {
        let path = bytes_of(path.as_ref());
        self.mount.resolve(&path, false).map(|node| node.attr.into()).named("stat", &path)
    }

    /// Whether the path leads to something; `false` too if that cannot be known.
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.metadata(path).is_ok()
    }

    /// Sets the permission bits.
    pub fn set_permissions(&self, path: impl AsRef<Path>, permissions: u32) -> io::Result<()> {
        let set = SetAttr { mode: Some(permissions), ..SetAttr::default() };
        self.change("chmod", path.as_ref(), &set, true)
    }

    /// Sets owner and group; `None` leaves one as it is. Links are not followed.
    pub fn chown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        self.change("chown", path.as_ref(), &SetAttr { uid, gid, ..SetAttr::default() }, false)
    }

    /// Sets timestamps.
    pub fn set_times(&self, path: impl AsRef<Path>, times: FileTimes) -> io::Result<()> {
        self.change("set times", path.as_ref(), &times.into(), true)
    }

    /// Value of an extended attribute; `None` if there is none of that name. Links are followed,
    /// as by the other calls for extended attributes.
    pub fn get_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>) -> io::Result<Option<Vec<u8>>> {
        let path = bytes_of(path.as_ref());
        let node = self.mount.resolve(&path, true).named("get attribute", &path)?;
        match node.fs().getxattr(node.ino(), name.as_ref()) {
            Ok(value) => Ok(Some(value)),
            Err(e) if e.errno() == Errno::ENODATA => Ok(None),
            Err(e) => Err(Failure::from(e).named("get attribute", &path)),
        }
    }

    /// Sets an extended attribute.
    pub fn set_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> io::Result<()> {
        let path = bytes_of(path.as_ref());
        let set = |node: &Node| Ok(node.fs().setxattr(node.ino(), name.as_ref(), value.as_ref(), XattrMode::Set)?);
        self.with(&path, true, set).named("set attribute", &path)
    }

    /// Names of the extended attributes.
    pub fn list_xattr(&self, path: impl AsRef<Path>) -> io::Result<Vec<Vec<u8>>> {
        let path = bytes_of(path.as_ref());
        let names = self.mount.resolve(&path, true).and_then(|node| Ok(node.fs().listxattr(node.ino())?));
        names.named("list attributes", &path)
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>) -> io::Result<()> {
        let path = bytes_of(path.as_ref());
        let remove = |node: &Node| Ok(node.fs().removexattr(node.ino(), name.as_ref())?);
        self.with(&path, true, remove).named("remove attribute", &path)
    }

    /// Flags of a file. Links are followed.
    pub fn flags(&self, path: impl AsRef<Path>) -> io::Result<FileFlags> {
        let path = bytes_of(path.as_ref());
        let flags = self.mount.resolve(&path, true).and_then(|node| Ok(node.fs().flags(node.ino())?));
        flags.named("get flags", &path)
    }

    /// Sets all flags of a file.
    pub fn set_flags(&self, path: impl AsRef<Path>, flags: FileFlags) -> io::Result<()> {
        let path = bytes_of(path.as_ref());
        self.with(&path, true, |node: &Node| Ok(node.fs().set_flags(node.ino(), flags)?)).named("set flags", &path)
    }

    /// Space and inode counts.
    pub fn statfs(&self) -> io::Result<StatFs> {
        self.mount.fs.statfs().map_err(Failure::from).named("statfs", b"")
    }

    /// Gives free space back to the host; returns the bytes.
    pub fn trim(&self) -> io::Result<u64> {
        self.mount.fs.trim(&TrimRange::ALL).map_err(Failure::from).named("trim", b"")
    }

    /// Lets the cleaner of a log-structured volume read about `budget` bytes, at least one segment;
    /// [`Unsupported`](io::ErrorKind::Unsupported) where nothing has to be cleaned.
    pub fn clean(&self, budget: u64) -> io::Result<Cleaned> {
        self.mount.fs.clean(budget).map_err(Failure::from).named("clean", b"")
    }

    /// Verifies the checksums of what lies after position `at`, 0 at first, and says where to go on;
    /// [`Unsupported`](io::ErrorKind::Unsupported) where contents have none.
    pub fn scrub(&self, at: u64) -> io::Result<Scrubbed> {
        self.mount.fs.scrub(at).map_err(Failure::from).named("scrub", b"")
    }

    /// The volume's label.
    pub fn label(&self) -> io::Result<Vec<u8>> {
        self.mount.fs.label().map_err(Failure::from).named("label", b"")
    }

    /// Changes the label, durably: at most 63 bytes, none of them NUL.
    pub fn set_label(&self, label: &[u8]) -> io::Result<()> {
        self.mount.fs.set_label(label).map_err(Failure::from).named("label", b"")
    }

    /// Named counters of the engine.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.mount.fs.counters()
    }

    /// Makes everything durable.
    pub fn sync(&self) -> io::Result<()> {
        self.mount.fs.syncfs().map_err(Failure::from).named("sync", b"")
    }

    /// Makes everything durable and marks the volume clean. Files that are still open fail
    /// afterwards.
    pub fn close(self) -> io::Result<()> {
        self.mount.unmount().named("close", b"")
    }

    pub(crate) fn writable(&self) -> Result<()> {
        if self.mount.read_only { Err(Errno::EROFS.into()) } else { Ok(()) }
    }

    fn make(&self, path: &[u8], f: impl FnOnce(&Node, &[u8]) -> Result<()>) -> Result<()> {
        self.writable()?;
        let (dir, name) = self.mount.walk(path, false)?.vacant()?;
        f(&dir, &name)?;
        self.mount.changed();
        Ok(())
    }

    fn remove(&self, path: &[u8], f: impl FnOnce(&Node, &[u8], Node) -> Result<()>) -> Result<()> {
        self.writable()?;
        let (dir, name, node) = self.mount.walk(path, false)?.existing_name()?;
        f(&dir, &name, node)?;
        self.mount.changed();
        Ok(())
    }

    fn with(&self, path: &[u8], follow: bool, f: impl FnOnce(&Node) -> Result<()>) -> Result<()> {
        self.writable()?;
        f(&self.mount.resolve(path, follow)?)?;
        self.mount.changed();
        Ok(())
    }

    fn change(&self, op: &'static str, path: &Path, set: &SetAttr, follow: bool) -> io::Result<()> {
        let path = bytes_of(path);
        self.with(&path, follow, |node| node.set(set).map(drop)).named(op, &path)
    }
}
