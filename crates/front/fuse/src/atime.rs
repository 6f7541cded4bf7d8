//! Times of last access. The kernel leaves them to the server, which hears of the reads that the kernel's own pages
//! do not answer.
//!
//! A read only notes the time here, and asks the file system nothing. Whether the time counts is decided when the
//! attributes are at hand: when they are shown, and when the file system is told. That is later, of many at once: by the background thread, and
//! before the inode is fsynced, forgotten or unmounted. Until then the time here is shown in place of the stored one.

use crate::host::place::Mount;
use arbor_base::vfs::{Attr, Clock, FileSystem, Ino, SetAttr, SetTime, Time};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Which reads set the time of last access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// None, as `noatime` says.
    Never,
    /// The first after a change, and one a day, as `relatime` says.
    #[default]
    Relative,
    /// Every one that reaches the server, as `strictatime` says.
    Strict,
}

/// How times of last access are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessTimes {
    /// Which reads set them.
    pub access: Access,
    /// Those of directories too.
    pub of_directories: bool,
    /// The file system is told within a day, not within seconds.
    pub lazy: bool,
}

impl Default for AccessTimes {
    fn default() -> AccessTimes {
        AccessTimes { access: Access::Relative, of_directories: true, lazy: false }
    }
}

impl AccessTimes {
    /// Takes an option of mount(8) that is about them; `false` if this one is not.
    pub(crate) fn take(&mut self, word: &str) -> bool {
        match word {
            "noatime" => self.access = Access::Never,
            // The kernel's default is relatime whatever else is not said.
            "atime" | "relatime" | "norelatime" | "nostrictatime" => self.access = Access::Relative,
            "strictatime" => self.access = Access::Strict,
            "diratime" => self.of_directories = true,
            "nodiratime" => self.of_directories = false,
            "lazytime" => self.lazy = true,
            "nolazytime" => self.lazy = false,
            _ => return false,
        }
        true
    }
}

/// How long the file system is not told, and with `lazytime`.
const DELAY: Duration = Duration::from_secs(5);
const LAZY_DELAY: Duration = Duration::from_secs(86_400);
/// With relatime an older one is renewed.
const DAY_MS: u64 = 86_400_000;
/// More are not kept here for long.
const MANY: usize = 1 << 16;
/// How long a mount that refuses changes is not looked at again.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Default)]
struct State {
    times: HashMap<Ino, Reads>,
    due: Option<Instant>,
    /// The mount was found to refuse changes, and is taken to do so until then.
    refuses_until: Option<Instant>,
}

/// Reads of an inode that the file system has not been told of: the first and the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reads {
    first: Time,
    last: Time,
}

impl Reads {
    /// The time of last access of an inode with these stored attributes.
    fn access(self, stored: &Attr, how: Access) -> Time {
        let changed = stored.mtime.max(stored.ctime);
        match how {
            Access::Never => stored.atime,
            Access::Strict => self.last,
            Access::Relative if !is_old(stored, self.first) => stored.atime,
            // It was changed in between, and read again.
            Access::Relative if self.first <= changed && changed < self.last => self.last,
            Access::Relative => self.first,
        }
    }
}

/// The times of last access of a mount that the file system has not been told.
pub(crate) struct Atimes {
    how: AccessTimes,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Length of `State::times`, for those who only want to know that there are none.
    count: AtomicUsize,
    /// The background thread has to hear of `State::due`.
    news: AtomicBool,
    /// Held while the file system is told, so that a time that a user sets is not overtaken by an older one.
    telling: Mutex<()>,
    mount: OnceLock<Mount>,
}

impl Atimes {
    pub(crate) fn new(how: AccessTimes, clock: Arc<dyn Clock>) -> Atimes {
        let (state, telling, mount) = Default::default();
        Atimes { how, clock, state, count: AtomicUsize::new(0), news: AtomicBool::new(false), telling, mount }
    }

    /// Where to look whether the mount has been made read-only.
    pub(crate) fn set_mount(&self, mount: Mount) {
        let _ = self.mount.set(mount);
    }

    /// Whether the mount has been made read-only, as the kernel's table has it.
    pub(crate) fn is_read_only(&self) -> bool {
        self.mount.get().is_some_and(Mount::is_read_only)
    }

    /// Notes that `ino` was read.
    pub(crate) fn read(&self, ino: Ino, is_directory: bool) {
        if self.how.access != Access::Never && (self.how.of_directories || !is_directory) {
            self.note(ino, self.clock.now());
        }
    }

    fn note(&self, ino: Ino, now: Time) {
        let mut state = self.state.lock();
        if state.times.is_empty() && self.refuses_changes(&mut state) {
            return;
        }
        state.times.entry(ino).or_insert(Reads { first: now, last: now }).last = now;
        let delay = match self.how.lazy {
            _ if state.times.len() >= MANY => Duration::ZERO,
            true => LAZY_DELAY,
            false => DELAY,
        };
        let due = Instant::now() + delay;
        if state.due.is_none_or(|old| delay.is_zero() && old > due) {
            state.due = Some(due);
            self.news.store(true, Relaxed);
        }
        self.count.store(state.times.len(), Relaxed);
    }

    /// Whether the mount was made read-only, of which the server is not told.
    fn refuses_changes(&self, state: &mut State) -> bool {
        let now = Instant::now();
        if state.refuses_until.is_some_and(|until| now < until) {
            return true;
        }
        let refuses = self.is_read_only();
        state.refuses_until = refuses.then(|| now + LOOK);
        refuses
    }

    /// The attributes with the time that the file system has not been told.
    pub(crate) fn shown(&self, attr: &Attr) -> Attr {
        let atime = self.noted(attr.ino).map_or(attr.atime, |reads| reads.access(attr, self.how.access));
        Attr { atime, ..*attr }
    }

    fn noted(&self, ino: Ino) -> Option<Reads> {
        match self.count.load(Relaxed) {
            0 => None,
            _ => self.state.lock().times.get(&ino).copied(),
        }
    }

    /// Runs `set`, in which a user sets the time of `ino`: what was noted before counts no more.
    pub(crate) fn set_by_hand<T>(&self, ino: Ino, set: impl FnOnce() -> T) -> T {
        if self.noted(ino).is_none() {
            return set();
        }
        let _telling = self.telling.lock();
        self.remove(ino, None);
        set()
    }

    /// Whether the background thread has to ask [`Atimes::until_due`] anew.
    pub(crate) fn has_news(&self) -> bool {
        self.news.load(Relaxed) && self.news.swap(false, Relaxed)
    }

    /// How long the file system need not be told.
    pub(crate) fn until_due(&self) -> Duration {
        match self.count.load(Relaxed) {
            0 => Duration::MAX,
            _ => self.state.lock().due.map_or(Duration::MAX, |due| due.saturating_duration_since(Instant::now())),
        }
    }

    /// Tells the file system of one time.
    pub(crate) fn tell(&self, fs: &dyn FileSystem, ino: Ino) {
        // What is being told is noted still, and is waited for.
        if self.noted(ino).is_none() {
            return;
        }
        let _telling = self.telling.lock();
        let Some(reads) = self.noted(ino) else { return };
        // A file without a name has nobody who would ask after it.
        let stored = fs.getattr(ino).ok().filter(|attr| attr.nlink > 0);
        let time = stored.map(|attr| (reads.access(&attr, self.how.access), attr.atime));
        if let Some((time, _)) = time.filter(|(time, stored)| time != stored) {
            let set = SetAttr { atime: Some(SetTime::At(time)), ctime: Some(SetTime::Kept), ..SetAttr::default() };
            // What a volume that is full or broken does not take is lost, as after a crash.
            let _ = fs.setattr(ino, &set);
        }
        self.remove(ino, Some(reads));
    }

    /// Tells the file system of all that was noted until now.
    pub(crate) fn tell_all(&self, fs: &dyn FileSystem) {
        if self.count.load(Relaxed) == 0 {
            return;
        }
        let mut state = self.state.lock();
        state.due = None;
        let noted: Vec<Ino> = state.times.keys().copied().collect();
        drop(state);
        noted.into_iter().for_each(|ino| self.tell(fs, ino));
    }

    /// Forgets what was noted, if it is still that.
    fn remove(&self, ino: Ino, only: Option<Reads>) {
        let mut state = self.state.lock();
        if state.times.get(&ino).is_some_and(|reads| only.is_none_or(|only| only == *reads)) {
            state.times.remove(&ino);
            self.count.store(state.times.len(), Relaxed);
        }
    }
}

/// Whether relatime renews a time of last access.
fn is_old(attr: &Attr, now: Time) -> bool {
    attr.atime <= attr.mtime || attr.atime <= attr.ctime || attr.atime.ms_until(now) >= DAY_MS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::memfs::MemFs;

    #[test]
    fn which_read_counts() {
        let at = |secs| Time { secs, nanos: 0 };
        let mode = arbor_base::vfs::mode::IFREG;
        let stored = |atime, mtime, ctime| {
            let (atime, mtime, ctime, btime) = (at(atime), at(mtime), at(ctime), at(0));
            let (ino, generation, nlink, uid, gid, rdev, size, blocks, blksize) = (Ino(5), 1, 1, 0, 0, 0, 0, 0, 4096);
            let unsettled = false;
            Attr {
                ino,
                generation,
                mode,
                nlink,
                uid,
                gid,
                rdev,
                size,
                blocks,
                blksize,
                atime,
                mtime,
                ctime,
                btime,
                unsettled,
            }
        };
        const DAY: i64 = 86_400;
        for (what, stored, first, last, relative) in [
            ("the first after a change", stored(10, 10, 10), 20, 30, 20),
            ("the first after a change of the inode", stored(10, 5, 10), 20, 30, 20),
            ("none", stored(10, 9, 9), 20, 30, 10),
            ("one after a change in between", stored(10, 25, 25), 20, 30, 30),
            ("that before the change, which was after an older one", stored(10, 40, 40), 20, 30, 20),
            ("one a day", stored(10, 9, 9), 10 + DAY, 20 + DAY, 10 + DAY),
        ] {
            let reads = Reads { first: at(first), last: at(last) };
            assert_eq!(reads.access(&stored, Access::Relative), at(relative), "{what}");
            assert_eq!(reads.access(&stored, Access::Strict), at(last), "{what}");
            assert_eq!(reads.access(&stored, Access::Never), stored.atime, "{what}");
        }
    }

    #[test]
    fn inodes_of_which_nothing_is_noted_wait_for_nobody() {
        let atimes = Atimes::new(AccessTimes::default(), Arc::new(arbor_base::vfs::ManualClock::new(Time::default())));
        atimes.read(Ino(7), false);
        let telling = atimes.telling.lock();
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::scope(|s| {
            s.spawn(|| {
                atimes.tell(&MemFs::new(), Ino(8));
                atimes.set_by_hand(Ino(8), || done.send(()).unwrap());
            });
            let in_time = is_done.recv_timeout(Duration::from_secs(10));
            drop(telling);
            in_time.expect("they wait");
        });
    }
}
