//! Volumes with one lock, held for everything but reads of the device that others need not wait for.

use crate::calls::{self, Calls, State};
use crate::data::Data;
use crate::lifetimes::{self, Orphans};
use crate::machine::{Machine, Tries};
use crate::reads::{Missing, Restart};
use crate::served::{self, Inodes};
use arbor_base::device::Device;
use arbor_base::sync::{Mutex, MutexGuard, Rank};
use arbor_base::vfs::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Inodes without names and users that need not wait for the timer.
const MANY_INACTIVE: usize = 256;
/// Bytes that one step of a write writes at most.
const WRITE_BYTES: usize = 256 << 10;

/// The state under the lock of such a volume.
pub trait Core: Machine + State<RestartReason = Missing, Tries = Tries> + Inodes + Orphans + Data {
    /// See [`FileSystem::is_faster_by_number`].
    const IS_FASTER_BY_NUMBER: bool = false;

    /// Whether [`read_at_hand`](Core::read_at_hand) is worth asking.
    const READS_AT_HAND: bool = false;

    /// Reads bytes of a file, as many as there are, out of what is in memory, without a change of anything but the order in
    /// which it is evicted. `None`: that needs a call.
    fn read_at_hand(&mut self, _ino: Ino, _offset: u64, _buf: &mut [u8]) -> Option<usize> {
        None
    }

    /// Whether work has piled up that should not wait for the timer.
    fn has_writeback_pressure(&self) -> bool;

    /// Makes freed space usable, beyond freeing inactive inodes. Returns whether that can have helped.
    fn settle_frees(&mut self) -> Result<bool> {
        Ok(false)
    }

    /// Does the background work due at `now`; returns the time of the next.
    fn background(&mut self, now: Time) -> Result<Time>;

    /// Makes everything durable and marks the volume clean.
    fn finish(&mut self) -> Result<()>;

    /// Makes a file durable (fsync), with its names as far as the engine promises it.
    fn sync_file(&mut self, ino: Ino) -> Result<()>;

    /// Makes everything durable.
    fn sync_all(&mut self) -> Result<()>;

    /// The label.
    fn label(&mut self) -> Result<Vec<u8>>;

    /// Changes the label to what this field of the superblock says, durably.
    fn set_label(&mut self, field: [u8; 64]) -> Result<()>;

    /// Space and inode counts.
    fn statfs(&mut self) -> Result<StatFs>;

    /// Discards free space in `range`, a step from `from` on (0 at first); returns how many bytes, and where the next
    /// step begins.
    fn trim_step(&mut self, range: &TrimRange, from: u64) -> Result<(u64, Option<u64>)>;

    /// See [`FileSystem::clean`].
    fn clean(&mut self, _budget: u64) -> Result<Cleaned> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// See [`FileSystem::scrub`].
    fn scrub(&mut self, _at: u64) -> Result<Scrubbed> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// See [`FileSystem::counters`].
    fn counters(&mut self) -> Vec<(&'static str, u64)>;
}

/// A volume and its lock.
pub struct Locked<C> {
    root: Ino,
    clock: Arc<dyn Clock>,
    device: Arc<dyn Device>,
    /// Background work should not wait.
    pressed: AtomicBool,
    /// Calls that are under way.
    callers: Arc<AtomicUsize>,
    core: Mutex<C>,
}

/// A call that is under way.
struct Caller<'a, C> {
    volume: &'a Locked<C>,
    may_restart: bool,
    needs_space: bool,
}

impl<C> Drop for Caller<'_, C> {
    fn drop(&mut self) {
        self.volume.callers.fetch_sub(1, Relaxed);
    }
}

impl<C: Core> Calls for Caller<'_, C> {
    type Core = C;

    fn tries(&self) -> Tries {
        let restart = match (self.may_restart, self.volume.callers.load(Relaxed)) {
            (false, _) => Restart::Never,
            (true, ..=1) => Restart::NotAlone,
            (true, _) => Restart::Always,
        };
        Tries::new(restart, self.needs_space)
    }

    fn lock(&self) -> MutexGuard<'_, C> {
        self.volume.lock()
    }

    fn note_pressure(&self, core: &mut C) {
        self.volume.note_pressure(core);
    }

    fn provide(&self, want: Missing, tries: &mut Tries) -> Result<()> {
        tries.fetch(want, &*self.volume.device);
        Ok(())
    }

    fn make_space(&self, tries: &mut Tries) -> Result<bool> {
        if !tries.takes_space() {
            return Ok(false);
        }
        self.volume.make_space()
    }
}

impl<C: Core> Locked<C> {
    /// A volume on a device.
    pub fn new(mut core: C, device: Arc<dyn Device>, clock: Arc<dyn Clock>) -> Locked<C> {
        Locked {
            root: core.root(),
            clock,
            device,
            pressed: AtomicBool::new(false),
            callers: core.calls().reads.callers(),
            core: Mutex::condemning(Rank(0), core, |core| core.health().condemn()),
        }
    }

    /// Mounts it: for writing, `load` finds the inodes that were open without a name at a crash, and they are freed.
    pub fn mounted(
        mut core: C,
        device: Arc<dyn Device>,
        clock: Arc<dyn Clock>,
        read_only: bool,
        load: impl FnMut(&mut C) -> Result<()>,
    ) -> Result<Arc<Locked<C>>> {
        core.health().set_read_only(read_only);
        let volume = Locked::new(core, device, clock);
        if !read_only {
            volume.run_once(load)?;
            volume.drain_inactive()?;
        }
        Ok(Arc::new(volume))
    }

    /// The state, at the present time.
    pub fn lock(&self) -> MutexGuard<'_, C> {
        let now = self.clock.now();
        let mut core = self.core.lock();
        core.calls().set_now(now);
        core
    }

    /// Runs a call that does not restart.
    pub fn run_once<R>(&self, f: impl FnMut(&mut C) -> Result<R>) -> Result<R> {
        calls::run(&self.caller(false, false), f)
    }

    /// Runs a call that may restart until its first change, so that others need not wait while the device reads for it.
    pub fn look<R>(&self, f: impl FnMut(&mut C) -> Result<R>) -> Result<R> {
        calls::run(&self.caller(true, false), f)
    }

    /// The same for a call that changes something. If space is short, it is tried again once freed space is usable.
    pub fn change<R>(&self, mut f: impl FnMut(&mut C, Time) -> Result<R>) -> Result<R> {
        calls::run(&self.caller(true, true), |core| {
            core.health().check_writable()?;
            let now = core.calls().now();
            f(core, now)
        })
    }

    /// The same for a call that does not restart.
    fn change_held<R>(&self, mut f: impl FnMut(&mut C, Time) -> Result<R>) -> Result<R> {
        self.change(|core, now| {
            core.stay();
            f(core, now)
        })
    }

    fn caller(&self, may_restart: bool, needs_space: bool) -> Caller<'_, C> {
        self.callers.fetch_add(1, Relaxed);
        Caller { volume: self, may_restart, needs_space }
    }

    /// Notes whether work has piled up.
    pub fn note_pressure(&self, core: &mut C) {
        let much = core.has_writeback_pressure() || core.lives().inactive() > MANY_INACTIVE;
        self.pressed.store(much && core.health().is_writable(), Relaxed);
    }

    /// Frees inodes that have neither names nor users.
    pub fn drain_inactive(&self) -> Result<()> {
        while self.run_once(|core| if core.health().is_writable() { lifetimes::inactivate(core) } else { Ok(false) })? {
        }
        Ok(())
    }

    fn make_space(&self) -> Result<bool> {
        let some = self.lock().lives().inactive() > 0;
        self.drain_inactive()?;
        Ok(self.run_once(Core::settle_frees)? || some)
    }

    /// Does the background work due at `now`; returns the time of the next. Errors are reported by the next sync.
    pub fn background(&self, now: Time) -> Time {
        let _ = self.drain_inactive();
        let core = &mut *self.lock();
        core.cache().keep_all(true);
        let next = core.background(now).unwrap_or_else(|e| {
            core.fail(&e);
            now.plus_ms(60_000)
        });
        core.look();
        core.cache().keep_all(false);
        self.note_pressure(core);
        next
    }

    /// Unmounts: makes everything durable, and marks the volume clean.
    pub fn close(&self) -> Result<()> {
        {
            let mut core = self.lock();
            if let Some(done) = core.health().begin_unmount() {
                return done;
            }
            core.lives().abandon();
        }
        let drained = self.drain_inactive();
        let failed = self.lock().health().has_failed();
        let finish = |core: &mut C| {
            core.finish()?;
            // Calls that wait for the lock fail.
            core.health().unmount();
            Ok(())
        };
        // Inodes that could not be freed keep no other changes from the disk.
        let done = if failed { drained } else { self.run_once(finish).and(drained) };
        self.lock().health().end_unmount(done)
    }
}

impl<C: Core + Send> served::Volume for Locked<C> {
    type Core = C;

    fn root(&self) -> Ino {
        self.root
    }

    fn peek<R>(&self, f: impl FnOnce(&mut C) -> R) -> R {
        f(&mut Locked::lock(self))
    }

    fn run<R>(&self, f: impl FnMut(&mut C) -> Result<R>) -> Result<R> {
        self.look(f)
    }

    fn change<R>(&self, f: impl FnMut(&mut C, Time) -> Result<R>) -> Result<R> {
        Locked::change(self, f)
    }

    fn forget(&self, ino: Ino, count: u64) {
        // The time does not matter.
        self.core.lock().lives().forget(ino, count);
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let caller = self.caller(true, false);
        // A call that began alone may hold the lock while the device reads: whoever waits for it has to begin as a call.
        if C::READS_AT_HAND && self.callers.load(Relaxed) == 1 {
            // The time does not matter.
            let core = &mut *self.core.lock();
            if core.health().check_alive().is_ok()
                && let Some(len) = core.read_at_hand(ino, offset, buf)
            {
                return Ok(len);
            }
        }
        calls::run(&caller, |core| core.read_file(ino, offset, buf))
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        let mut done = 0;
        loop {
            let rest = data.get(done..).unwrap_or(&[]);
            let piece = rest.get(..rest.len().min(WRITE_BYTES)).unwrap_or(&[]);
            let at = offset.checked_add(done as u64).ok_or(Errno::EFBIG)?;
            match self.change_held(|core, now| core.write_file(ino, at, piece, now)) {
                // A short write for want of space: freed space may serve the rest.
                Ok(n) => done += n,
                Err(_) if done > 0 && !self.lock().health().has_failed() => return Ok(done),
                Err(e) => return Err(e),
            }
            if done >= data.len() {
                return Ok(done);
            }
        }
    }

    fn fsync(&self, ino: Ino, _data_only: bool) -> Result<()> {
        self.run_once(|core| {
            core.health().check_ordered()?;
            core.node(ino)?;
            if core.health().is_read_only() { Ok(()) } else { core.sync_file(ino) }
        })
    }

    fn syncfs(&self) -> Result<()> {
        let drained = self.drain_inactive();
        self.run_once(|core| {
            core.health().check_ordered()?;
            if core.health().is_read_only() { Ok(()) } else { core.sync_all() }
        })
        .and(drained)
    }

    fn fallocate(&self, ino: Ino, how: FallocMode, offset: u64, len: u64) -> Result<()> {
        let attr = self.look(|core| core.attr(ino))?;
        let end = falloc_end(&attr, how, offset, len)?;
        self.change_held(|core, now| core.begin_fallocate(ino, end, now))?;
        // Holes are filled first: without space nothing is zeroed.
        let mut done = self.falloc_steps(ino, how - FallocMode::ZERO_RANGE, offset, end);
        if done.is_ok() && how.contains(FallocMode::ZERO_RANGE) {
            done = self.falloc_steps(ino, how, offset, end);
        }
        let grown = (!how.contains(FallocMode::KEEP_SIZE)).then_some(end);
        self.lock().calls().growth.done(ino, done.as_ref().map_or(None, |()| grown), done.is_err());
        // The error is that of the call, whether it could be undone or not.
        let undone = self.falloc_undo(ino);
        self.lock().calls().growth.end(ino);
        done.and(undone)
    }

    fn seek(&self, ino: Ino, offset: u64, whence: Seek) -> Result<u64> {
        self.look(|core| core.seek_file(ino, offset, whence))
    }

    fn label(&self) -> Result<Vec<u8>> {
        self.run_once(Core::label)
    }

    fn set_label(&self, field: [u8; 64]) -> Result<()> {
        self.change_held(|core, _| core.set_label(field))
    }

    fn statfs(&self) -> Result<StatFs> {
        self.drain_inactive()?;
        self.run_once(Core::statfs)
    }

    fn trim(&self, range: &TrimRange) -> Result<u64> {
        self.lock().health().check_writable()?;
        self.syncfs()?;
        let (mut sum, mut from) = (0, Some(0));
        while let Some(at) = from {
            let (bytes, next) = self.change_held(|core, _| core.trim_step(range, at))?;
            (sum, from) = (sum + bytes, next);
        }
        Ok(sum)
    }

    fn clean(&self, budget: u64) -> Result<Cleaned> {
        self.drain_inactive()?;
        self.run_once(|core| core.clean(budget))
    }

    fn scrub(&self, at: u64) -> Result<Scrubbed> {
        self.run_once(|core| core.scrub(at))
    }

    fn background(&self, now: Time) -> Time {
        Locked::background(self, now)
    }

    fn wants_background(&self) -> bool {
        self.pressed.load(Relaxed)
    }

    fn is_faster_by_number(&self) -> bool {
        C::IS_FASTER_BY_NUMBER
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.lock().counters()
    }

    fn unmount(&self) -> Result<()> {
        self.close()
    }
}

impl<C: Core + Send> Locked<C> {
    fn falloc_steps(&self, ino: Ino, how: FallocMode, mut at: u64, end: u64) -> Result<()> {
        while at < end {
            if interrupted() {
                return Err(Errno::EINTR.into());
            }
            at = self.change_held(|core, now| core.falloc_step(ino, how, at, end, now))?;
        }
        Ok(())
    }

    /// Truncates the file if calls have failed: the last of them gives back the space that they allocated, so that the
    /// file ends where the others want it to.
    fn falloc_undo(&self, ino: Ino) -> Result<()> {
        while !self.change_held(|core, now| match core.calls().growth.to_undo(ino) {
            Some(keep) if core.attr(ino)?.size > keep => core.set_size(ino, keep, now),
            _ => Ok(true),
        })? {}
        Ok(())
    }
}

/// Where a range to be allocated, punched or zeroed ends, if files of blocks can do that.
fn falloc_end(attr: &Attr, how: FallocMode, offset: u64, len: u64) -> Result<u64> {
    let known = FallocMode::KEEP_SIZE | FallocMode::PUNCH_HOLE | FallocMode::ZERO_RANGE;
    let punch = how.contains(FallocMode::PUNCH_HOLE);
    if !known.contains(how) || punch && how != FallocMode::PUNCH_HOLE | FallocMode::KEEP_SIZE {
        return Err(Errno::EOPNOTSUPP.into());
    }
    if len == 0 {
        return Err(Errno::EINVAL.into());
    }
    let end = offset.checked_add(len).ok_or(Errno::EFBIG)?;
    match attr.file_type() {
        FileType::File => {}
        FileType::Dir => return Err(Errno::EISDIR.into()),
        _ => return Err(Errno::ENODEV.into()),
    }
    if !how.contains(FallocMode::KEEP_SIZE) {
        return Ok(end);
    }
    // The length of the last block follows the size, so there is nothing after it.
    if how == FallocMode::KEEP_SIZE && end > attr.size {
        return Err(Errno::EOPNOTSUPP.into());
    }
    Ok(end.min(attr.size))
}
