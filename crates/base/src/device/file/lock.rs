//! The lock on an image: one writer or several readers. It belongs to the open file and goes with
//! it, also when the process is killed.

use super::OpenMode;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

pub(super) fn in_use(path: &Path, holder: Option<u32>) -> io::Error {
    let image = path.display();
    let text = match holder {
        Some(pid) => format!("{image} is in use by process {pid}"),
        None => format!("{image} is in use by another process"),
    };
    io::Error::new(io::ErrorKind::ResourceBusy, text)
}

/// Adds what must be asked for when the file is opened: sharing is refused there on Windows.
#[cfg(windows)]
pub(super) fn prepare(how: &mut OpenOptions, mode: OpenMode) {
    use std::os::windows::fs::OpenOptionsExt;
    const FILE_SHARE_READ: u32 = 1;
    how.share_mode(if mode == OpenMode::ReadOnly { FILE_SHARE_READ } else { 0 });
}

#[cfg(not(windows))]
pub(super) fn prepare(_how: &mut OpenOptions, _mode: OpenMode) {}

/// The error of an open that failed.
pub(super) fn open_failed(path: &Path, e: io::Error) -> io::Error {
    const ERROR_SHARING_VIOLATION: i32 = 32;
    let is_shared = cfg!(windows) && e.raw_os_error() == Some(ERROR_SHARING_VIOLATION);
    if is_shared || e.kind() == io::ErrorKind::ResourceBusy { in_use(path, None) } else { super::named(path, e) }
}

/// Locks an open image, or fails with the process that has it.
#[cfg(unix)]
pub(super) fn take(file: &File, path: &Path, mode: OpenMode) -> io::Result<()> {
    use rustix::fs::{FlockOperation, flock};
    let how = match mode {
        OpenMode::ReadOnly => FlockOperation::NonBlockingLockShared,
        OpenMode::ReadWrite => FlockOperation::NonBlockingLockExclusive,
    };
    loop {
        match flock(file, how) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(in_use(path, holder(file))),
            Err(e) => return Err(io::Error::new(e.kind(), format!("{}: cannot lock: {e}", path.display()))),
        }
    }
}

/// Gives the lock back at once: a child that is being forked elsewhere in this process holds the
/// open file for a moment longer.
#[cfg(unix)]
pub(super) fn release(file: &File) {
    let _ = rustix::fs::flock(file, rustix::fs::FlockOperation::Unlock);
}

#[cfg(not(unix))]
pub(super) fn release(_file: &File) {}

#[cfg(not(unix))]
pub(super) fn take(_file: &File, _path: &Path, _mode: OpenMode) -> io::Result<()> {
    Ok(())
}

/// The kernel gives the list a page at a time: a lock that goes in between takes the place of another one out of it.
#[cfg(target_os = "linux")]
const LOOKS: usize = 8;

#[cfg(target_os = "linux")]
fn holder(file: &File) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let meta = file.metadata().ok()?;
    let device = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    (0..LOOKS).find_map(|_| holder_in(&std::fs::read_to_string("/proc/locks").ok()?, device, meta.ino()))
}

#[cfg(all(unix, not(target_os = "linux")))]
fn holder(_file: &File) -> Option<u32> {
    None
}

/// Finds the holder of a flock in the text of `/proc/locks`. Some file systems (btrfs, overlayfs)
/// show another device number there than stat does, so a single lock on that inode number counts
/// too.
#[cfg(target_os = "linux")]
fn holder_in(locks: &str, device: (u32, u32), inode: u64) -> Option<u32> {
    let wanted = format!("{:02x}:{:02x}", device.0, device.1);
    let mut elsewhere = Vec::new();
    for line in locks.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, place, ..] = fields[..] else { continue };
        let Some((on, number)) = place.rsplit_once(':') else { continue };
        let (Ok(pid), Ok(number)) = (pid.parse::<u32>(), number.parse::<u64>()) else { continue };
        // Zero stands for a process in another pid namespace.
        if number != inode || pid == 0 {
            continue;
        }
        if on == wanted {
            return Some(pid);
        }
        elsewhere.push(pid);
    }
    if let [pid] = elsewhere[..] { Some(pid) } else { None }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::holder_in;

    const LOCKS: &str = "\
1: POSIX  ADVISORY  WRITE 11 08:01:500 0 EOF
2: FLOCK  ADVISORY  WRITE 12 08:01:500 0 EOF
2: -> FLOCK  ADVISORY  WRITE 13 08:01:501 0 EOF
3: FLOCK  ADVISORY  READ 14 00:2a:502 0 EOF
4: FLOCK  ADVISORY  WRITE 0 08:01:503 0 EOF
5: FLOCK  ADVISORY  WRITE 15 00:2b:504 0 EOF
6: FLOCK  ADVISORY  WRITE 16 00:2c:504 0 EOF
";

    /// While others take locks and give them back, enough of them that the list takes more than a page.
    #[test]
    fn the_holder_is_found_beside_many_locks() {
        let dir = tempfile::tempdir().unwrap();
        let open = |name: String| std::fs::File::create(dir.path().join(name)).unwrap();
        let others: Vec<_> = (0..400).map(|n| open(format!("other{n}"))).collect();
        let (held, ends) = (open("held".into()), std::sync::atomic::AtomicBool::new(false));
        let (lost, all) = std::thread::scope(|s| {
            s.spawn(|| {
                while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                    others.iter().for_each(|f| f.lock().unwrap());
                    others.iter().rev().for_each(|f| f.unlock().unwrap());
                }
            });
            held.lock().unwrap();
            let all = 2000;
            let lost = (0..all).filter(|_| super::holder(&held) != Some(std::process::id())).count();
            ends.store(true, std::sync::atomic::Ordering::Relaxed);
            (lost, all)
        });
        assert_eq!(lost, 0, "of {all}");
    }

    #[test]
    fn finds_the_holder() {
        let find = |inode| holder_in(LOCKS, (8, 1), inode);
        assert_eq!(find(500), Some(12));
        assert_eq!(find(501), None, "a waiter holds nothing");
        assert_eq!(find(502), Some(14), "another device number, but the only one");
        assert_eq!(find(503), None, "a process that cannot be seen");
        assert_eq!(find(504), None, "two candidates");
        assert_eq!(holder_in(LOCKS, (0, 0x2c), 504), Some(16));
        assert_eq!(holder_in("garbage\n1: FLOCK\n", (8, 1), 1), None);
    }
}
