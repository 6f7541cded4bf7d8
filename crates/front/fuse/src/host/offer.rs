//! The kernel's switch for FUSE over io_uring, on for the moment in which root makes a mount.
//!
//! The kernel looks at it when it sends INIT and when it takes the answer; a connection that has rings then keeps them.
//! So that the switch is as it was also when we are killed in between, a shell waits for our end of a pipe to be closed,
//! however that comes about, and turns it off. Meanwhile a file beside the records of mounts is locked, by the shell
//! too: two mounts at once come one after the other, and neither takes what the other has turned on for what was there
//! before. The switch itself would be no place for the lock, since everybody can open it for reading. Who does not see
//! that file, in another mount namespace, may turn the switch off too early: then a mount is made without rings.

use crate::host::record;
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
const LOCK: &str = "enable_uring.lock";
/// Others have the lock for the time that a mount takes to be made.
const PATIENCE: Duration = Duration::from_secs(5);

/// The switch, on until this is dropped.
pub(crate) struct Offer {
    switch: File,
    guard: Child,
    /// Held until the guard has ended.
    _lock: OwnedFd,
}

impl Offer {
    /// Turns the switch on, if it is off and this process may. Where that fails there is no offer, and no harm.
    pub(crate) fn make() -> Option<Offer> {
        // Who may not turn it is not to wait, nor to leave a file.
        let switch = OpenOptions::new().read(true).write(true).open(SWITCH).ok()?;
        let dir = record::own_directory().ok()?;
        Offer::of(switch, &dir.join(LOCK)).ok().flatten()
    }

    fn of(mut switch: File, lock_file: &Path) -> io::Result<Option<Offer>> {
        let lock = lock(lock_file)?;
        if is_on(&mut switch)? {
            return Ok(None);
        }
        // A group of its own, so that what is sent to ours from a terminal does not end it.
        let guard = Command::new("/bin/sh")
            .args(["-c", "read end; echo N"])
            .stdin(Stdio::piped())
            .stdout(switch.try_clone()?)
            // It keeps the lock by this, which nothing can be written to.
            .stderr(lock.try_clone()?)
            .process_group(0)
            .spawn()?;
        let offer = Offer { switch, guard, _lock: lock };
        offer.switch.write_all_at(b"Y", 0)?;
        Ok(Some(offer))
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
        // The shell may have been killed.
        if is_on(&mut self.switch).unwrap_or(true) {
            let _ = self.switch.write_all_at(b"N", 0);
        }
    }
}

/// The lock on this file, which only its owner can open.
fn lock(path: &Path) -> io::Result<OwnedFd> {
    let how = OFlags::RDONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, how, Mode::RUSR | Mode::WUSR)?;
    let end = Instant::now() + PATIENCE;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < end => std::thread::sleep(Duration::from_millis(2)),
            other => return Ok(other.map(|()| file)?),
        }
    }
}

fn is_on(switch: &mut File) -> io::Result<bool> {
    let mut text = String::new();
    switch.rewind()?;
    switch.read_to_string(&mut text)?;
    // The shell writes where we leave off.
    switch.rewind()?;
    Ok(text.trim() == "Y")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file in place of the kernel's parameter, and the place of a lock. A file is no parameter of the kernel, but it
    /// is written like one.
    struct Place {
        dir: tempfile::TempDir,
    }

    impl Place {
        fn new(text: &str) -> Place {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("switch"), text).unwrap();
            Place { dir }
        }

        fn offer(&self) -> io::Result<Option<Offer>> {
            let switch = OpenOptions::new().read(true).write(true).open(self.dir.path().join("switch"))?;
            Offer::of(switch, &self.lock())
        }

        fn lock(&self) -> std::path::PathBuf {
            self.dir.path().join(LOCK)
        }

        fn text(&self) -> String {
            std::fs::read_to_string(self.dir.path().join("switch")).unwrap()
        }
    }

    #[test]
    fn the_switch_is_on_while_there_is_an_offer() {
        let place = Place::new("N\n");
        let offer = place.offer().unwrap().unwrap();
        assert_eq!(place.text(), "Y\n");
        drop(offer);
        assert!(place.text().starts_with('N'));
        let place = Place::new("Y\n");
        assert!(place.offer().unwrap().is_none(), "nothing is to be done");
        assert_eq!(place.text(), "Y\n");
    }

    #[test]
    fn offers_come_one_after_the_other() {
        let place = Place::new("N\n");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        let offer = place.offer().unwrap();
                        assert!(offer.is_some(), "what another has turned on is not seen");
                    }
                });
            }
        });
        assert!(place.text().starts_with('N'));
    }

    #[test]
    fn the_switch_goes_off_when_the_guard_is_gone() {
        let place = Place::new("N\n");
        let mut offer = place.offer().unwrap().unwrap();
        offer.guard.kill().unwrap();
        drop(offer);
        assert!(place.text().starts_with('N'));
    }

    #[test]
    fn the_guard_keeps_the_lock_when_we_are_killed() {
        let place = Place::new("N\n");
        let mut offer = place.offer().unwrap().unwrap();
        offer._lock = tempfile::tempfile().unwrap().into();
        let other = File::open(place.lock()).unwrap();
        let locked = flock(&other, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(locked, Err(rustix::io::Errno::WOULDBLOCK));
        drop(offer);
        lock(&place.lock()).unwrap();
    }

    #[test]
    fn nobody_else_can_have_the_lock() {
        use std::os::unix::fs::PermissionsExt;
        let place = Place::new("N\n");
        drop(place.offer().unwrap().unwrap());
        assert_eq!(std::fs::metadata(place.lock()).unwrap().permissions().mode() & 0o777, 0o600);
        // What everybody can lock is no matter.
        let stranger = File::open(place.dir.path().join("switch")).unwrap();
        flock(&stranger, FlockOperation::LockExclusive).unwrap();
        assert!(place.offer().unwrap().is_some());
        // Nor is a file elsewhere, to which a link leads.
        std::fs::remove_file(place.lock()).unwrap();
        std::os::unix::fs::symlink(place.dir.path().join("switch"), place.lock()).unwrap();
        assert!(place.offer().is_err());
    }
}
