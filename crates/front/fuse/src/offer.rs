//! The kernel's switch for FUSE over io_uring, on for the moment in which root makes a mount.
//!
//! The kernel looks at it when it sends INIT and when it takes the answer; a connection that has rings then keeps them.
//! So that the switch is as it was also when we are killed in between, a shell waits for our end of a pipe to be closed,
//! however that comes about, and turns it off. The switch itself is locked meanwhile, by the shell too: two mounts at
//! once come one after the other, and neither takes what the other has turned on for what was there before.

use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
/// Others have the lock for the time that a mount takes to be made.
const PATIENCE: Duration = Duration::from_secs(5);

/// The switch, on until this is dropped.
pub(crate) struct Offer {
    switch: File,
    guard: Child,
}

impl Offer {
    /// Turns the switch on, if it is off and this process may. Where that fails there is no offer, and no harm.
    pub(crate) fn make() -> Option<Offer> {
        Offer::of(Path::new(SWITCH)).ok().flatten()
    }

    fn of(path: &Path) -> io::Result<Option<Offer>> {
        let mut switch = OpenOptions::new().read(true).write(true).open(path)?;
        lock(&switch)?;
        if is_on(&mut switch)? {
            return Ok(None);
        }
        // A group of its own, so that what is sent to ours from a terminal does not end it.
        let guard = Command::new("/bin/sh")
            .args(["-c", "read end; echo N"])
            .stdin(Stdio::piped())
            .stdout(switch.try_clone()?)
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let offer = Offer { switch, guard };
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

fn lock(switch: &File) -> io::Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        match flock(switch, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < end => std::thread::sleep(Duration::from_millis(2)),
            other => return Ok(other?),
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

    /// A file is no parameter of the kernel, but it is locked and written like one.
    fn switch(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    fn text(file: &tempfile::NamedTempFile) -> String {
        std::fs::read_to_string(file.path()).unwrap()
    }

    #[test]
    fn the_switch_is_on_while_there_is_an_offer() {
        let file = switch("N\n");
        let offer = Offer::of(file.path()).unwrap().unwrap();
        assert_eq!(text(&file), "Y\n");
        drop(offer);
        assert!(text(&file).starts_with('N'));
        let file = switch("Y\n");
        assert!(Offer::of(file.path()).unwrap().is_none(), "nothing is to be done");
        assert_eq!(text(&file), "Y\n");
    }

    #[test]
    fn offers_come_one_after_the_other() {
        let file = switch("N\n");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        let offer = Offer::of(file.path()).unwrap();
                        assert!(offer.is_some(), "what another has turned on is not seen");
                    }
                });
            }
        });
        assert!(text(&file).starts_with('N'));
    }

    #[test]
    fn the_switch_goes_off_when_the_guard_is_gone() {
        let file = switch("N\n");
        let mut offer = Offer::of(file.path()).unwrap().unwrap();
        offer.guard.kill().unwrap();
        drop(offer);
        assert!(text(&file).starts_with('N'));
    }
}
