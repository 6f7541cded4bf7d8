//! What every test of a mount begins with.

use std::fs::OpenOptions;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Whether mounts can be made here; says aloud if not.
pub fn can_mount() -> bool {
    let can =
        rustix::process::geteuid().is_root() && OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    if !can {
        eprintln!("NOT RUN: this test needs root and /dev/fuse");
    }
    can
}

/// Ends this process, and with it its mounts, if the test is not over in time.
pub struct Limit(Arc<AtomicBool>);

impl Limit {
    pub fn minutes(minutes: u64) -> Limit {
        let over = Arc::new(AtomicBool::new(false));
        let (watched, end) = (over.clone(), Instant::now() + Duration::from_secs(60 * minutes));
        std::thread::spawn(move || {
            while !watched.load(SeqCst) {
                if Instant::now() > end {
                    eprintln!("a test of a mount is not over after {minutes} minutes");
                    std::process::abort();
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        Limit(over)
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}
