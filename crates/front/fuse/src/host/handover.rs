//! Making the kernel hand over what it keeps of a mount, before the server is asked for a sync.
//!
//! Pages are dirty in the kernel in two places only, for a close(2) and an munmap(2) wait until the server has
//! them: in files that are mapped shared, and, with `-o writeback_cache`, in files that are open for writing.
//! syncfs(2) begins to write such pages, and does not wait for them: by its own requests it comes before
//! theirs. An fsync of a file does wait. So we look in `/proc` for who has such files, and fsync these.
//!
//! Not seen are processes that `/proc` does not show to the caller: of other users unless it is root, of other
//! pid namespaces; and what the kernel itself has open, as a loop device or an overlay on files of the mount.

use rustix::fs::{FileType, Mode, OFlags};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Hands over all of the mount at `root`, as far as it is seen; `open_files` too, not only those mapped.
pub(crate) fn hand_over(root: &File, open_files: bool) -> io::Result<()> {
    // Many at a time, and also what is not seen.
    rustix::fs::syncfs(root)?;
    let device = rustix::fs::fstat(root)?.st_dev;
    let device = (rustix::fs::major(device), rustix::fs::minor(device));
    let mut done = BTreeSet::new();
    let mut result = Ok(());
    for process in fs::read_dir("/proc")?.flatten().filter(|entry| is_number(&entry.file_name())) {
        let process = process.path();
        let mut files = mapped(&process, device);
        if open_files {
            files.extend(open_for_writing(&process, device));
        }
        for file in files {
            let synced = sync_file(&file, device, &mut done);
            result = result.and(synced);
        }
    }
    result
}

/// A file that a process uses.
struct InUse {
    /// A link of `/proc` to it. Those of mappings are for root alone.
    link: PathBuf,
    /// Where it is, if the process and we see the same.
    path: Option<PathBuf>,
}

fn is_number(name: &OsStr) -> bool {
    name.as_encoded_bytes().iter().all(u8::is_ascii_digit)
}

/// Syncs a file of the device, once. One that is gone was closed, and so handed over.
fn sync_file(file: &InUse, device: (u32, u32), done: &mut BTreeSet<u64>) -> io::Result<()> {
    let open = |path: &Path, flags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty());
    for path in [Some(&file.link), file.path.as_ref()].into_iter().flatten() {
        // To open a device node or a FIFO may do something.
        let Ok(found) = open(path, OFlags::PATH) else { continue };
        let stat = rustix::fs::fstat(&found)?;
        let is_ours = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev)) == device;
        if !is_ours || FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || done.contains(&stat.st_ino) {
            continue;
        }
        if let Ok(file) = open(path, OFlags::RDONLY | OFlags::NONBLOCK) {
            done.insert(stat.st_ino);
            return Ok(rustix::fs::fdatasync(file)?);
        }
    }
    Ok(())
}

/// Files of the device that the process has mapped shared.
fn mapped(process: &Path, device: (u32, u32)) -> Vec<InUse> {
    let maps = fs::read(process.join("maps")).unwrap_or_default();
    let shared = maps.split(|&b| b == b'\n').filter_map(|line| shared_mapping(line, device));
    shared.map(|(name, path)| InUse { link: process.join("map_files").join(name), path: Some(path) }).collect()
}

/// `START-END PERMISSIONS OFFSET MAJOR:MINOR INODE PATH`: of a shared mapping of the device its name in `map_files`,
/// and the path. One that cannot be written to now may have been when it was written to.
fn shared_mapping(line: &[u8], device: (u32, u32)) -> Option<(String, PathBuf)> {
    let path = line.iter().position(|&b| b == b'/').map_or(&b""[..], |at| &line[at..]);
    let mut fields = line.split(|&b| b == b' ').map(|field| std::str::from_utf8(field).unwrap_or_default());
    let (range, permissions) = (fields.next()?, fields.next()?);
    let (major, minor) = fields.nth(1)?.split_once(':')?;
    let on = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    let bound = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = range.split_once('-')?;
    let name = format!("{:x}-{:x}", bound(start)?, bound(end)?);
    (permissions.ends_with('s') && on == device).then(|| (name, OsStr::from_bytes(path).into()))
}

/// Files of the device that the process has open for writing. Other files are not asked: their servers may be stuck.
fn open_for_writing(process: &Path, device: (u32, u32)) -> Vec<InUse> {
    let table = fs::read_to_string(process.join("mountinfo")).unwrap_or_default();
    let mounts: BTreeSet<&str> = table.lines().filter_map(|line| mount_of(line, device)).collect();
    if mounts.is_empty() {
        return Vec::new();
    }
    let is_wanted = |info: &str| {
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let flags = field("flags:").and_then(|flags| u32::from_str_radix(flags, 8).ok()).unwrap_or(0);
        flags & (OFlags::WRONLY | OFlags::RDWR).bits() != 0 && field("mnt_id:").is_some_and(|id| mounts.contains(id))
    };
    let infos = fs::read_dir(process.join("fdinfo")).into_iter().flatten().flatten();
    let wanted = infos.filter(|info| fs::read_to_string(info.path()).is_ok_and(|text| is_wanted(&text)));
    wanted.map(|info| InUse { link: process.join("fd").join(info.file_name()), path: None }).collect()
}

/// `ID PARENT MAJOR:MINOR ...`: the id of a mount of the device.
fn mount_of(line: &str, device: (u32, u32)) -> Option<&str> {
    let mut fields = line.split(' ');
    let id = fields.next()?;
    let (major, minor) = fields.nth(1)?.split_once(':')?;
    ((major.parse().ok()?, minor.parse().ok()?) == device).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_proc() {
        let line = "7f0de0000000-7f0de0001000 rw-s 00000000 00:2a 77                         /m/a file";
        let shared = |line: &str, device| shared_mapping(line.as_bytes(), device);
        assert_eq!(shared(line, (0, 42)), Some(("7f0de0000000-7f0de0001000".into(), "/m/a file".into())));
        assert_eq!(shared(line, (0, 43)), None);
        assert_eq!(shared(&line.replace("rw-s", "rw-p"), (0, 42)), None);
        let low = line.replace("7f0de0000000-7f0de0001000", "00400000-0040b000").replace("rw-s", "r--s");
        assert_eq!(shared(&low, (0, 42)).unwrap().0, "400000-40b000");
        assert_eq!(shared("", (0, 42)), None);
        let line = "36 35 0:42 / /m rw,nosuid shared:1 - fuse.arbor /a.img rw";
        assert_eq!(mount_of(line, (0, 42)), Some("36"));
        assert_eq!(mount_of(line, (0, 41)), None);
    }
}
