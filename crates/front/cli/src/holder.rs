//! Who has an image, and where it is mounted; and reading its head all the same.

use crate::image::Image;
use crate::show;
use arboretum::device::{Completion, Device, Geometry, Medium, Op, Request, SECTOR, Ticket};
use arboretum::vfs::StatFs;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Where the image is mounted. The mount table shows it as the source, unless `fsname=` hides it.
#[cfg(target_os = "linux")]
pub(crate) fn mounted_on(image: &Path) -> Option<PathBuf> {
    let image = std::fs::canonicalize(image).ok()?;
    let mount = arbor_fuse::mount_table().into_iter().rfind(|mount| mount.source == image)?;
    // A mount whose server was killed is still in the table.
    rustix::fs::statfs(&mount.mountpoint).ok().map(|_| mount.mountpoint)
}

/// Where a mount of the image lies whose server is gone.
#[cfg(target_os = "linux")]
fn dead_mount_of(image: &Path) -> Option<PathBuf> {
    let image = std::fs::canonicalize(image).ok()?;
    let mount = arbor_fuse::mount_table().into_iter().rfind(|mount| mount.source == image)?;
    matches!(rustix::fs::statfs(&mount.mountpoint), Err(rustix::io::Errno::NOTCONN)).then_some(mount.mountpoint)
}

#[cfg(not(target_os = "linux"))]
fn dead_mount_of(_image: &Path) -> Option<PathBuf> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn mounted_on(_image: &Path) -> Option<PathBuf> {
    None
}

/// The root of the mount of ours that `dir` lies on, and what is mounted there.
#[cfg(target_os = "linux")]
pub(crate) fn mount_of(dir: &Path) -> io::Result<(PathBuf, PathBuf)> {
    use std::os::unix::fs::MetadataExt;
    let mut root = std::fs::canonicalize(dir)?;
    let device = std::fs::metadata(&root)?.dev();
    while let Some(above) = root.parent() {
        if std::fs::metadata(above)?.dev() != device {
            break;
        }
        root = above.to_path_buf();
    }
    let mount = arbor_fuse::mount_table().into_iter().rfind(|mount| mount.mountpoint == root);
    mount.map(|mount| (root, mount.source)).ok_or_else(|| io::Error::other("not on a mount of arbor"))
}

/// The image that is mounted where this one's path says, if that is a mount of ours.
#[cfg(target_os = "linux")]
pub(crate) fn behind(image: Image) -> Image {
    match mount_of(&image.path) {
        Ok((root, path)) if image.path.is_dir() && path.is_absolute() => {
            let record = arbor_fuse::mounts().into_iter().find(|record| record.mountpoint == root);
            Image { path, offset: record.map_or(image.offset, |record| record.offset), ..image }
        }
        _ => image,
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn behind(image: Image) -> Image {
    image
}

/// What a mount says of its space, and what is mounted there.
#[cfg(target_os = "linux")]
pub(crate) fn statfs(dir: &Path) -> io::Result<(StatFs, PathBuf)> {
    let (root, source) = mount_of(dir)?;
    let s = rustix::fs::statvfs(&root)?;
    let number = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let (blocks, bfree, bavail, files, ffree) = (s.f_blocks, s.f_bfree, s.f_bavail, s.f_files, s.f_ffree);
    let (bsize, frsize, namelen, fsid) = (number(s.f_bsize), number(s.f_frsize), number(s.f_namemax), s.f_fsid);
    Ok((StatFs { blocks, bfree, bavail, files, ffree, bsize, frsize, namelen, fsid }, source))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn statfs(_dir: &Path) -> io::Result<(StatFs, PathBuf)> {
    Err(io::ErrorKind::IsADirectory.into())
}

/// Whether a mount refuses to be written to. Its server is not told of `remount,ro`.
#[cfg(target_os = "linux")]
pub(crate) fn is_read_only(dir: &Path) -> bool {
    rustix::fs::statvfs(dir).is_ok_and(|s| s.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

/// What is mounted on `dir`, if that is not `image`. The mount table may show a name that is no
/// path (`fsname=`) or leads nowhere any more; so what the server has open counts too.
#[cfg(target_os = "linux")]
pub(crate) fn other_on(dir: &Path, image: &Path) -> Option<PathBuf> {
    let dir = std::fs::canonicalize(dir).ok()?;
    let mount = arbor_fuse::mount_table().into_iter().rfind(|mount| mount.mountpoint == dir)?;
    let server = arbor_fuse::mounts().into_iter().find(|record| record.mountpoint == dir);
    let is_named = mount.source == image || std::fs::canonicalize(image).is_ok_and(|image| mount.source == image);
    let is_it = is_named || server.is_some_and(|server| has_open(server.pid, image));
    (!is_it).then_some(mount.source)
}

#[cfg(target_os = "linux")]
fn has_open(pid: u32, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let Ok(wanted) = std::fs::metadata(path) else { return false };
    let is_it = |m: std::fs::Metadata| (m.dev(), m.ino()) == (wanted.dev(), wanted.ino());
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    open.map(|fd| std::fs::metadata(fd.path())).any(|meta| meta.is_ok_and(is_it))
}

/// The user of a process, if it is not ours.
#[cfg(unix)]
fn other_user(pid: u32) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let user = std::fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    (user != rustix::process::geteuid().as_raw()).then_some(user)
}

#[cfg(not(unix))]
fn other_user(_pid: u32) -> Option<u32> {
    None
}

/// Adds to "x.img is in use by process N" the process's name, its user if that is another one, and the mount.
pub(crate) fn in_use(image: &Path, text: &str) -> String {
    let pid = text.rsplit_once(" process ").and_then(|(_, pid)| pid.parse::<u32>().ok());
    let name = pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok());
    let mut text = text.to_string();
    if let Some(name) = name {
        text += &format!(" ({})", show::clean(name.trim_end()));
    }
    if let Some(user) = pid.and_then(other_user) {
        text += &format!(" of user {user}");
    }
    let mounted = || mounted_on(image).map(|dir| format!(", mounted on {}", dir.display()));
    if let Some(place) = pid.and_then(served_on).or_else(mounted) {
        text += &place;
    } else if let Some(dir) = dead_mount_of(image) {
        let dir = dir.display();
        text +=
            &format!(": the mount on {dir} has lost its server and still has it, `arbor umount {dir}` takes it off");
    }
    text
}

/// Where the mount is that a process serves, or was.
#[cfg(target_os = "linux")]
fn served_on(pid: u32) -> Option<String> {
    let server = arbor_fuse::mounts().into_iter().find(|record| record.pid == pid)?;
    let dir = server.mountpoint.display();
    Some(match server.is_ending() {
        true => format!(", whose mount on {dir} is off: it still writes, or files on it are open"),
        false => match server.failure {
            Some(why) => format!(", mounted on {dir}, where it has turned read-only ({})", show::clean(why)),
            None => format!(", mounted on {dir}"),
        },
    })
}

#[cfg(not(target_os = "linux"))]
fn served_on(_pid: u32) -> Option<String> {
    None
}

/// Why the volume of an image that is mounted has turned read-only, if it has.
#[cfg(target_os = "linux")]
pub(crate) fn failure(image: &Path) -> Option<String> {
    let whole = std::fs::canonicalize(image).ok()?;
    arbor_fuse::mounts().into_iter().find(|server| server.image == whole)?.failure
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn failure(_image: &Path) -> Option<String> {
    None
}

/// Whether the image is served, and by none but servers whose mounts are off.
#[cfg(target_os = "linux")]
pub(crate) fn is_ending(image: &Path) -> bool {
    let whole = std::fs::canonicalize(image).unwrap_or_default();
    let mut servers = arbor_fuse::mounts();
    servers.retain(|server| server.image == whole || has_open(server.pid, image));
    !servers.is_empty() && servers.iter().all(arbor_fuse::MountRecord::is_ending)
}

/// An image read beside its owner, without a lock. Only what the owner changes in one piece, a
/// superblock, is sure to be whole.
pub(crate) struct Peek {
    file: Mutex<File>,
    size: u64,
}

impl Peek {
    pub(crate) fn open(path: &Path) -> io::Result<Peek> {
        let mut file = File::open(path)?;
        let sector = SECTOR as u64;
        let size = file.seek(SeekFrom::End(0))? / sector * sector;
        Ok(Peek { file: Mutex::new(file), size })
    }

    fn read(&self, request: &Request) -> Completion {
        let Op::Read(len) = request.op else { return Err(io::ErrorKind::PermissionDenied.into()) };
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(request.offset))?;
        let mut bytes = vec![0; len];
        file.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

impl Device for Peek {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.size, discard_unit: 0, read_only: true, medium: Medium::Unknown }
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        Ticket::done(batch.iter().map(|request| self.read(request)).collect())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_size(&self, _size: u64) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_has_a_name() {
        let text = format!("x.img is in use by process {}", std::process::id());
        assert!(in_use(Path::new("x.img"), &text).starts_with(&format!("{text} (")));
        let unknown = "x.img is in use by another process";
        assert_eq!(in_use(Path::new("x.img"), unknown), unknown);
    }
}
