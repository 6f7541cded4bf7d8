//! Who serves a mount: a small file a mount, so that another process can wait for its end.
//!
//! umount(2) of a FUSE file system returns before the server has written everything and closed
//! the image. So the server leaves a record under `/run/arbor` (root),
//! `$XDG_RUNTIME_DIR/arbor` or `/tmp/arbor-UID`, and takes it away when the image is released;
//! [`unmount`] waits for that, or for the end of the process.

use crate::host::handover;
use crate::host::kernel;
use crate::host::place::Mount;
use crate::options::MountConfig;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A mount and its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountRecord {
    /// Process that serves it.
    pub pid: u32,
    /// When that process started, in the kernel's ticks: tells it from a later one of that number.
    started: u64,
    /// Source as given to the mount: the image.
    pub image: PathBuf,
    /// Byte of the image at which the volume begins.
    pub offset: u64,
    /// Where it was mounted.
    pub mountpoint: PathBuf,
    /// The kernel's number of the mount; 0 if the server is of a build that did not say.
    mount: u64,
    /// The one that is never given again, if the kernel has it.
    unique: Option<u64>,
    /// The volume itself was opened read-only.
    pub read_only: bool,
    /// The kernel keeps written data back.
    pub writeback_cache: bool,
    /// Why the file system takes no more changes, after an error that it could not undo.
    pub failure: Option<String>,
    /// Who has written the record.
    user: u32,
}

/// Length of the longest record, in bytes: two paths and a message.
const LONGEST: u64 = 64 << 10;

impl MountRecord {
    /// A record of this process.
    pub(crate) fn of_this_process(config: &MountConfig, mountpoint: &Path, mount: &Mount) -> MountRecord {
        let pid = std::process::id();
        let started = start_time(pid).unwrap_or(0);
        MountRecord {
            pid,
            started,
            image: PathBuf::from(&config.source),
            offset: config.offset,
            mountpoint: mountpoint.to_path_buf(),
            mount: mount.id(),
            unique: mount.unique(),
            read_only: config.read_only,
            writeback_cache: config.writeback_cache,
            failure: None,
            user: rustix::process::geteuid().as_raw(),
        }
    }

    /// Writes it down and returns where.
    pub(crate) fn write(&self) -> io::Result<PathBuf> {
        let home = Home::made()?;
        home.sweep();
        let path = home.path.join(file_name(&self.mountpoint));
        let new = home.path.join(format!(".{}.{}", file_name(&self.mountpoint), self.pid));
        // Paths end in NUL, which no path holds; the reason of a failure is last.
        let access = if self.read_only { "ro" } else { "rw" };
        let cache = if self.writeback_cache { "writeback" } else { "writethrough" };
        let unique = self.unique.unwrap_or(0);
        let MountRecord { pid, started, offset, mount, .. } = self;
        let mut text = format!("{pid} {started} {access} {offset} {cache} {mount} {unique}\n").into_bytes();
        for p in [&self.image, &self.mountpoint] {
            text.extend_from_slice(p.as_os_str().as_bytes());
            text.push(0);
        }
        text.extend_from_slice(self.failure.as_deref().unwrap_or_default().as_bytes());
        let _ = fs::remove_file(&new);
        fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&new)?.write_all(&text)?;
        fs::rename(&new, &path)?;
        Ok(path)
    }

    /// The record at `path`, if `user` has written it and nobody else can have.
    fn read(path: &Path, user: u32) -> Option<MountRecord> {
        // Whoever has the directory may have put a fifo, a device or a link there.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = fs::File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
        let meta = file.metadata().ok()?;
        if !meta.is_file() || meta.uid() != user || meta.mode() & 0o022 != 0 || meta.len() > LONGEST {
            return None;
        }
        let mut bytes = Vec::new();
        file.take(LONGEST).read_to_end(&mut bytes).ok()?;
        let end = bytes.iter().position(|&b| b == b'\n')?;
        let mut head = std::str::from_utf8(&bytes[..end]).ok()?.split(' ');
        let mut rest = bytes[end + 1..].splitn(3, |&b| b == 0);
        let mut path = || Some(PathBuf::from(std::ffi::OsString::from_vec(rest.next()?.to_vec())));
        Some(MountRecord {
            pid: head.next()?.parse().ok()?,
            started: head.next()?.parse().ok()?,
            read_only: head.next()? == "ro",
            // A server of an older build says none.
            offset: head.next().map_or(Some(0), |word| word.parse().ok())?,
            writeback_cache: head.next() != Some("writethrough"),
            mount: head.next().map_or(Some(0), |word| word.parse().ok())?,
            unique: head.next().and_then(|word| word.parse().ok()).filter(|&number| number != 0),
            image: path()?,
            mountpoint: path()?,
            failure: rest.next().filter(|why| !why.is_empty()).map(|why| String::from_utf8_lossy(why).into_owned()),
            user,
        })
    }

    /// Whether the mount is off while its server still writes, or waits for files that are open.
    pub fn is_ending(&self) -> bool {
        match kernel::mount_table_of(self.pid) {
            // Not by the place: a directory above it may have another name now.
            Ok(table) => !table.iter().any(|mount| mount.source == self.image),
            Err(e) => e.kind() != io::ErrorKind::PermissionDenied,
        }
    }

    /// Whether it is of this mount, and by its user: who else says so is not believed.
    pub(crate) fn is_of(&self, mount: &Mount) -> bool {
        let is_it = match (self.mount, self.unique.zip(mount.unique())) {
            (0, _) => mount.entry().is_some_and(|entry| entry.mountpoint == self.mountpoint),
            (_, Some((ours, theirs))) => ours == theirs,
            // A server that is ending may have had the number before.
            (id, None) => id == mount.id() && mount.entry().is_some_and(|entry| entry.source == self.image),
        };
        is_it && mount.user() == Some(self.user)
    }

    /// A handle of the server, if it still runs.
    fn server(&self) -> Option<OwnedFd> {
        let pid = Pid::from_raw(i32::try_from(self.pid).ok()?)?;
        let fd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // Asked after the handle is there, so that it is of the process asked about.
        (start_time(self.pid)? == self.started).then_some(fd)
    }
}

/// Field 22 of `/proc/PID/stat`; the second may hold anything, in parentheses.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// FNV-1a: a name that stays the same over versions.
fn file_name(mountpoint: &Path) -> String {
    let hash = mountpoint
        .as_os_str()
        .as_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    format!("{hash:016x}.mount")
}

/// A directory of records.
struct Home {
    path: PathBuf,
    user: u32,
}

impl Home {
    /// That of this user, whether it exists or not.
    fn own() -> Home {
        let user = rustix::process::geteuid().as_raw();
        let path = match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
            _ if kernel::is_root() => "/run/arbor".into(),
            Some(dir) if dir.is_absolute() => dir.join("arbor"),
            _ => format!("/tmp/arbor-{user}").into(),
        };
        Home { path, user }
    }

    /// The same, made if needed.
    fn made() -> io::Result<Home> {
        let home = Home::own();
        let mode = if kernel::is_root() { 0o755 } else { 0o700 };
        match fs::DirBuilder::new().mode(mode).create(&home.path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
            _ => home.check().map(|()| home),
        }
    }

    /// Those whose records this user may act on.
    fn all() -> Vec<Home> {
        let mut homes = vec![Home::own()];
        if kernel::is_root() {
            let users = fs::read_dir("/run/user").into_iter().flatten().flatten();
            let of = |entry: fs::DirEntry| Some((entry.path(), entry.file_name().to_str()?.parse().ok()?));
            homes.extend(users.filter_map(of).map(|(path, user)| Home { path: path.join("arbor"), user }));
        }
        homes
    }

    /// Fails if somebody else can put records there: `/tmp` is open to all.
    fn check(&self) -> io::Result<()> {
        let meta = match fs::symlink_metadata(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        if !meta.is_dir() || meta.uid() != self.user || meta.mode() & 0o022 != 0 {
            let why = format!("{} has to be a directory of user {} alone, and is not", self.path.display(), self.user);
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        Ok(())
    }

    /// Its records, and where they are.
    fn records(&self) -> Vec<(PathBuf, MountRecord)> {
        if self.check().is_err() {
            return Vec::new();
        }
        let files = fs::read_dir(&self.path).into_iter().flatten().flatten().map(|entry| entry.path());
        let paths = files.filter(|path| path.extension().is_some_and(|e| e == "mount"));
        paths.filter_map(|path| MountRecord::read(&path, self.user).map(|record| (path, record))).collect()
    }

    /// Removes records whose processes were killed.
    fn sweep(&self) {
        for (path, _) in self.records().into_iter().filter(|(_, record)| record.server().is_none()) {
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes the record at `path` if it is of this process.
pub(crate) fn remove(path: &Path) {
    if MountRecord::read(path, Home::own().user).is_some_and(|r| r.pid == std::process::id()) {
        let _ = fs::remove_file(path);
    }
}

/// Fails if records of this user cannot be believed, by it or by others.
pub(crate) fn check() -> io::Result<()> {
    Home::own().check()
}

/// Directory of this user's records, made if needed, and surely this user's.
pub(crate) fn own_directory() -> io::Result<PathBuf> {
    Home::made().map(|home| home.path)
}

/// The mounts that are served now, as far as this user can know: all of them for root.
pub fn mounts() -> Vec<MountRecord> {
    records().into_iter().map(|(_, record)| record).filter(|record| record.server().is_some()).collect()
}

/// All records, and where they are.
fn records() -> Vec<(PathBuf, MountRecord)> {
    Home::all().iter().flat_map(Home::records).collect()
}

/// What a mount was that has been taken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmounted {
    /// One that worked.
    Served,
    /// One that had been shut down on purpose: nothing was written since.
    ShutDown,
    /// One whose server had died: what was not synced is lost.
    Dead,
    /// The same of one that refused changes, where nothing waited to be written.
    DeadReadOnly,
}

/// Takes the mount off `dir` and says what it was. With `wait` all that was to be written of one that worked is
/// durable, and the image released, on return; without, its server may still be at work.
///
/// Errors: `InvalidInput` if no mount of ours lies there; `ResourceBusy` if files are in use; and
/// if the data could not be written, which is told after the mount is off. In the process that serves
/// the mount it does not wait: there [`Session::wait`](crate::Session::wait) does.
pub fn unmount(dir: &Path, wait: bool) -> io::Result<Unmounted> {
    if wait {
        // Without the record nobody knows when the server is done.
        check()?;
    }
    let Some(mount) = Mount::at(dir)? else { return Err(kernel::not_ours()) };
    let dead = if mount.is_read_only() { Unmounted::DeadReadOnly } else { Unmounted::Dead };
    if kernel::clean_stale(dir)? && Mount::at(dir)?.is_none() {
        return Ok(dead);
    }
    let Some(mount) = Mount::at(dir)? else { return Err(kernel::not_ours()) };
    let found = records().into_iter().find_map(|(path, record)| {
        let server = record.server().filter(|_| record.is_of(&mount))?;
        Some((path, record, server))
    });
    // Where errors can still be told.
    let synced = if wait { mount.open().and_then(|root| root.sync_all()) } else { Ok(()) };
    let failure = failure(&mount);
    mount.detach(false)?;
    if let Some((path, record, server)) = found.filter(|(_, r, _)| wait && r.pid != std::process::id()) {
        wait_for_release(&path, &record, &server);
    }
    match failure {
        Some(why) if why == SHUT => Ok(Unmounted::ShutDown),
        Some(why) => Err(io::Error::other(format!("unmounted, but {}", failed(&why)))),
        None => match synced {
            // It has died just now.
            Err(e) if kernel::is_dead(&e) => Ok(dead),
            synced => synced.map(|()| Unmounted::Served),
        },
    }
}

/// Makes everything on the mount at `root` durable: first the kernel hands over what it keeps, as far as
/// this process may see who has it open; then an fsync of the root does the rest. What is changed
/// meanwhile may come too late.
pub fn sync(root: &Path) -> io::Result<()> {
    let mount = Mount::at(root)?.ok_or_else(kernel::not_ours)?;
    let record = mounts().into_iter().find(|record| record.is_of(&mount));
    let open_files = record.is_none_or(|record| record.writeback_cache);
    let synced = mount.open().and_then(|root| {
        let handed_over = handover::hand_over(&root, open_files);
        root.sync_all().and(handed_over)
    });
    match failure(&mount) {
        Some(why) => Err(io::Error::other(failed(&why))),
        None => synced,
    }
}

/// Why the volume that is mounted takes no more changes, if its server has said so.
fn failure(mount: &Mount) -> Option<String> {
    mounts().into_iter().find(|record| record.is_of(mount))?.failure
}

/// The failure of a volume that was shut down on purpose.
pub(crate) const SHUT: &str = "it was shut down";

fn failed(why: &str) -> String {
    format!("the volume has been read-only since an error, and changes after it are lost: {why}")
}

/// Returns when the record is gone or another's, or its process has ended.
fn wait_for_release(path: &Path, record: &MountRecord, server: &OwnedFd) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let step = Timespec::try_from(Duration::from_millis(5)).expect("a short time");
    let same = |now: MountRecord| (now.pid, now.started) == (record.pid, record.started);
    while MountRecord::read(path, record.user).is_some_and(same) {
        let mut fds = [PollFd::new(server, PollFlags::IN)];
        if let Ok(1..) = poll(&mut fds, Some(&step)) {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_written_and_knows_its_process() {
        let dir = tempfile::tempdir().unwrap();
        let config = MountConfig { source: "/im age".into(), offset: 512, read_only: true, ..MountConfig::default() };
        let mut record =
            MountRecord::of_this_process(&config, &dir.path().join("m\nn"), &Mount::with_numbers(77, Some(1 << 40)));
        record.failure = Some("write of 4 KiB: gone".into());
        let path = record.write().unwrap();
        let read = MountRecord::read(&path, record.user);
        let listed = mounts().contains(&record);
        fs::remove_file(&path).unwrap();
        assert_eq!(read.as_ref(), Some(&record));
        assert!(listed);
        let earlier = MountRecord { started: record.started - 1, ..record };
        assert!(earlier.server().is_none());
    }

    #[test]
    fn a_record_is_a_small_file_that_its_user_has_written() {
        let dir = tempfile::tempdir().unwrap();
        let user = rustix::process::geteuid().as_raw();
        let path = |name: &str| dir.path().join(name);
        let text = b"1 2 rw 0 writethrough 3\n/image\0/mnt\0";
        fs::write(path("good"), text).unwrap();
        assert_eq!(MountRecord::read(&path("good"), user).map(|r| (r.pid, r.mount)), Some((1, 3)));
        assert!(MountRecord::read(&path("good"), user + 1).is_none(), "somebody else's");
        // To open a fifo would wait for a writer, and the device never ends.
        rustix::fs::mknodat(rustix::fs::CWD, path("fifo"), rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        std::os::unix::fs::symlink("/dev/zero", path("zeros")).unwrap();
        std::os::unix::fs::symlink("good", path("link")).unwrap();
        fs::write(path("large"), [&text[..], &vec![b'x'; LONGEST as usize]].concat()).unwrap();
        fs::write(path("open"), text).unwrap();
        fs::set_permissions(path("open"), std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        for name in ["fifo", "zeros", "link", "large", "open"] {
            assert!(MountRecord::read(&path(name), user).is_none(), "{name}");
        }
    }

    #[test]
    fn a_directory_of_somebody_else_holds_no_records() {
        let top = tempfile::tempdir().unwrap();
        let user = rustix::process::geteuid().as_raw();
        let home = |name: &str, user| Home { path: top.path().join(name), user };
        assert!(home("missing", user).check().is_ok());
        for (name, mode, is_ours) in [("good", 0o700, true), ("open", 0o777, false)] {
            fs::create_dir(top.path().join(name)).unwrap();
            fs::set_permissions(top.path().join(name), std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
            fs::write(top.path().join(name).join("a.mount"), b"1 2 rw 0 writethrough 3\n/image\0/mnt\0").unwrap();
            assert_eq!(home(name, user).check().is_ok(), is_ours);
            assert_eq!(home(name, user).records().len(), usize::from(is_ours));
        }
        assert!(home("good", user + 1).check().is_err());
        std::os::unix::fs::symlink("good", top.path().join("link")).unwrap();
        assert!(home("link", user).check().is_err());
    }
}
