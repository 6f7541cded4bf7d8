//! A toy engine: the model, written whole into one of two alternating slots whenever something
//! has to be durable. Correct by its simplicity, and with flaws to choose from that the harness
//! has to find.

mod image;

use arbor_base::device::Device;
use arbor_base::vfs::*;
use arbor_torture::data::Data;
use arbor_torture::model::{Body, Model, State};
use image::{Slots, decode};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What is wrong with a toy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Nothing.
    None,
    /// Nothing: contents reach the disk later than names and attributes, as they may.
    Lag,
    /// fsync writes but does not flush.
    NoFlush,
    /// fsync says yes and does nothing.
    NoSync,
    /// The state is written over the only copy.
    OneSlot,
    /// A rename of a file reaches the disk in two steps.
    TornRename,
    /// Recovery shows the bytes of one file in another.
    ForeignData,
    /// Recovery loses a name.
    LostName,
    /// Recovery loses the bytes of a file but not its size.
    LostData,
    /// Recovery ruins the volume for a moment.
    FragileRecovery,
    /// What is synced first after a recovery is written over what was recovered.
    RecoveredSlot,
    /// A cookie is the number of the entry.
    IndexCookies,
    /// Bytes cut off come back when the file grows.
    StaleTail,
    /// An error is another one.
    WrongErrno,
    /// A symbolic link has no target after a mount.
    LostTarget,
    /// The whole of a long write is reported when a part was done.
    ShortWrite,
    /// fsync reports a failed write; the next fsync takes what was to be written for written.
    ForgetfulSync,
    /// A write that fails in the background leaves its buffers clean.
    CleanAfterError,
    /// A flush that fails is taken for done.
    FlushErrorIgnored,
    /// A write that fails is reported by nobody.
    WriteErrorIgnored,
}

/// The engine.
pub struct Toy(pub Flaw);

/// The magic of a slot is followed by this when the volume was unmounted.
const CLEAN: u64 = 1;

impl Engine for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn format_options(&self) -> &'static [OptionSpec] {
        &[]
    }

    fn mount_options(&self) -> &'static [OptionSpec] {
        &[]
    }

    fn probe(&self, device: &dyn Device) -> Result<Option<VolumeInfo>> {
        let size = device.geometry().size;
        let found = Slots::newest(device)?;
        Ok(found.map(|s| VolumeInfo { engine: "toy", size, clean: s.flags == CLEAN, ..VolumeInfo::default() }))
    }

    fn format(&self, devices: Devices, options: &FormatOptions) -> Result<()> {
        Slots::erase(&*devices.main)?;
        Slots::write(&*devices.main, 0, 0, CLEAN, &State::new(options.owner, options.now))?;
        Ok(devices.main.flush()?)
    }

    fn mount(&self, devices: Devices, options: &MountOptions, clock: Arc<dyn Clock>) -> Result<Arc<dyn FileSystem>> {
        let device = devices.main;
        let found = Slots::newest(&*device)?.ok_or_else(|| Error::refused("no toy"))?;
        let state = decode(&found.payload).ok_or_else(|| Error::refused("the state is damaged"))?;
        let model = Model::new(state, clock.clone());
        let (sequence, late, grown) = (AtomicU64::new(found.sequence), Mutex::default(), Mutex::default());
        let thought_clean = AtomicBool::new(false);
        let recovered = AtomicBool::new(false);
        let fs = ToyFs { model, clock, device, sequence, flaw: self.0, late, grown, thought_clean, recovered };
        fs.catch_up(None);
        if found.flags != CLEAN && !options.read_only {
            fs.recover()?;
        }
        if self.0 == Flaw::LostTarget {
            fs.lose_target();
        }
        Ok(Arc::new(fs))
    }

    fn check(&self, devices: Devices, _: &CheckOptions, _: Progress<'_>) -> Result<CheckReport> {
        let found = Slots::newest(&*devices.main)?.and_then(|s| decode(&s.payload));
        let issue = |text: &str| Issue {
            code: "Slot",
            severity: Severity::Fatal,
            text: text.to_string(),
            repaired: false,
            loses: false,
        };
        let issues = if found.is_some() { Vec::new() } else { vec![issue("no slot holds a state")] };
        Ok(CheckReport { issues, ..CheckReport::default() })
    }

    fn describe(&self, _: &Devices, _: &mut dyn FnMut(Region)) -> Result<()> {
        Ok(())
    }

    fn dump(&self, _: &Devices, _: &[&str]) -> Result<serde_json::Value> {
        Ok(serde_json::Value::Null)
    }

    fn resize(&self, _: Devices, _: u64, _: Arc<dyn Clock>) -> Result<()> {
        Err(Errno::EOPNOTSUPP.into())
    }
}

struct ToyFs {
    model: Model,
    clock: Arc<dyn Clock>,
    device: Arc<dyn Device>,
    sequence: AtomicU64,
    flaw: Flaw,
    /// With `Lag`: contents that go to the disk.
    late: Mutex<BTreeMap<u64, Data>>,
    /// Sizes before and after the last write of a file that made it larger, until it is durable.
    grown: Mutex<BTreeMap<u64, (u64, u64)>>,
    /// With some flaws: the next sync has nothing to do.
    thought_clean: AtomicBool,
    /// With `RecoveredSlot`: nothing was saved since.
    recovered: AtomicBool,
}

impl ToyFs {
    fn save(&self, state: &State, flags: u64) -> Result<()> {
        // After a failure the same slot is written again: the other one holds what was promised.
        let sequence = self.sequence.load(Ordering::Relaxed) + 1;
        let recovered = self.recovered.swap(false, Ordering::Relaxed) && flags != CLEAN;
        let slot = if self.flaw == Flaw::OneSlot { 0 } else { (sequence + u64::from(recovered)) % 2 };
        let late = (self.flaw == Flaw::Lag && flags != CLEAN).then(|| self.with_late_contents(state));
        match Slots::write(&*self.device, slot, sequence, flags, late.as_ref().unwrap_or(state)) {
            Err(e) if e.errno() == Errno::EIO && self.flaw == Flaw::WriteErrorIgnored => {}
            written => written?,
        }
        match self.flaw {
            Flaw::NoFlush if flags != CLEAN => {}
            Flaw::FlushErrorIgnored => drop(self.device.flush()),
            _ => self.device.flush()?,
        }
        self.sequence.store(sequence, Ordering::Relaxed);
        Ok(())
    }

    /// Lets the contents of one file, or of all, go to the disk.
    fn catch_up(&self, one: Option<Ino>) {
        let state = self.model.state();
        let files = state.nodes.iter().filter(|(ino, _)| one.is_none_or(|o| o.0 == **ino));
        self.grown.lock().retain(|ino, _| one.is_some_and(|o| o.0 != *ino));
        self.late.lock().extend(files.filter_map(|(ino, n)| Some((*ino, n.data()?.clone()))));
    }

    /// Lets half of what the last growing write of a file added go to the disk.
    fn catch_up_a_part(&self) {
        let (state, mut late) = (self.model.state(), self.late.lock());
        for (ino, (before, after)) in self.grown.lock().iter() {
            let data = state.nodes.get(ino).and_then(|n| n.data());
            if let Some(data) = data.filter(|d| d.size() == *after) {
                let mut part = data.clone();
                part.truncate(before + (after - before) / 2);
                late.insert(*ino, part);
            }
        }
    }

    fn with_late_contents(&self, state: &State) -> State {
        let (mut state, late) = (state.clone(), self.late.lock());
        for (ino, node) in state.nodes.iter_mut().filter(|(_, n)| n.data().is_some()) {
            Arc::make_mut(node).body = Body::File(late.get(ino).cloned().unwrap_or_default());
        }
        state
    }

    fn sync(&self) -> Result<()> {
        if self.flaw == Flaw::NoSync || self.thought_clean.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let done = self.save(&self.model.state(), 0);
        self.thought_clean.store(self.flaw == Flaw::ForgetfulSync && done.is_err(), Ordering::Relaxed);
        done
    }

    fn recover(&self) -> Result<()> {
        match self.flaw {
            Flaw::ForeignData => self.mix_files(),
            Flaw::LostData => self.clear_a_file(),
            Flaw::LostName => self.lose_a_name(),
            Flaw::FragileRecovery => {
                Slots::erase(&*self.device)?;
                self.device.flush()?;
            }
            Flaw::RecoveredSlot => {
                self.recovered.store(true, Ordering::Relaxed);
                return Ok(());
            }
            _ => {}
        }
        // A part of what is written next might complete what was torn there.
        Slots::erase_one(&*self.device, (self.sequence.load(Ordering::Relaxed) + 1) % 2)?;
        self.device.flush()?;
        self.save(&self.model.state(), 0)
    }

    fn full_files(&self) -> Vec<Ino> {
        let state = self.model.state();
        let full = state.nodes.iter().filter(|(_, n)| n.data().is_some_and(|d| d.next_nonzero(0).is_some()));
        full.map(|(ino, _)| Ino(*ino)).collect()
    }

    fn mix_files(&self) {
        if let [a, b, ..] = self.full_files()[..] {
            let mut buf = vec![0; 4096];
            let n = self.model.read(a, 0, &mut buf).unwrap();
            let size = self.model.getattr(b).unwrap().size as usize;
            self.model.write(b, 0, &buf[..n.min(size)]).unwrap();
        }
    }

    fn clear_a_file(&self) {
        if let Some(ino) = self.full_files().last() {
            let size = self.model.getattr(*ino).unwrap().size;
            let zero = SetAttr { size: Some(0), ..SetAttr::default() };
            self.model.setattr(*ino, &zero).unwrap();
            self.model.setattr(*ino, &SetAttr { size: Some(size), ..zero }).unwrap();
        }
    }

    fn lose_a_name(&self) {
        let state = self.model.state();
        for (dir, node) in &state.nodes {
            for name in node.dir().iter().flat_map(|d| d.names.keys()) {
                if self.model.unlink(Ino(*dir), name).is_ok() {
                    return;
                }
            }
        }
    }

    fn lose_target(&self) {
        let state = self.model.state();
        for (dir, node) in &state.nodes {
            for (name, entry) in node.dir().iter().flat_map(|d| &d.names) {
                if self.model.readlink(Ino(entry.ino)).is_ok() {
                    self.model.unlink(Ino(*dir), name).unwrap();
                    let made = self.model.symlink(&Cx::default(), Ino(*dir), name, b"elsewhere").unwrap();
                    self.model.forget(made.ino, 1);
                    return;
                }
            }
        }
    }

    fn blocks(&self) -> u64 {
        self.device.geometry().size / 4096 * 2 / 5
    }

    fn room(&self, bytes: u64) -> Result<()> {
        let s = self.statfs()?;
        if s.bfree > bytes / 4096 + 20 { Ok(()) } else { Err(Errno::ENOSPC.into()) }
    }
}

/// Methods that ask for room and then do what the model does.
macro_rules! as_the_model {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $out:ty;)*) => {
        $(fn $name(&self, $($arg: $ty),*) -> $out {
            self.model.$name($($arg),*)
        })*
    };
}

impl FileSystem for ToyFs {
    as_the_model! {
        root() -> Ino;
        lookup(parent: Ino, name: &[u8]) -> Result<Entry>;
        forget(ino: Ino, count: u64) -> ();
        getattr(ino: Ino) -> Result<Attr>;
        readlink(ino: Ino) -> Result<Vec<u8>>;
        tmpfile(cx: &Cx, parent: Ino, mode: u32) -> Result<Entry>;
        unlink(parent: Ino, name: &[u8]) -> Result<()>;
        read(ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize>;
        readdir_plus(ino: Ino, cookie: u64, f: &mut dyn FnMut(&DirEntry<'_>, Option<&Entry>) -> bool) -> Result<()>;
        fallocate(ino: Ino, mode: FallocMode, offset: u64, len: u64) -> Result<()>;
        seek(ino: Ino, offset: u64, whence: Seek) -> Result<u64>;
        getxattr(ino: Ino, name: &[u8]) -> Result<Vec<u8>>;
        listxattr(ino: Ino) -> Result<Vec<Vec<u8>>>;
        removexattr(ino: Ino, name: &[u8]) -> Result<()>;
        trim(range: &TrimRange) -> Result<u64>;
        failure() -> Option<String>;
        fail(why: &str) -> ();
        counters() -> Vec<(&'static str, u64)>;
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        let old = self.model.getattr(ino)?.size;
        match set.size {
            Some(size) if self.flaw == Flaw::StaleTail && size < old && size % 4096 != 0 => {
                let mut tail = vec![0; 100];
                let n = self.model.read(ino, size, &mut tail)?;
                self.model.setattr(ino, set)?;
                self.model.write(ino, size, &tail[..n])?;
                let again = SetAttr { size: Some(size), ..SetAttr::default() };
                // The model clears what it cuts off: put the bytes back by a wrong size.
                self.model.setattr(ino, &SetAttr { size: Some(size + u64::from(n > 50)), ..again })
            }
            _ => self.model.setattr(ino, set),
        }
    }

    fn mknod(&self, cx: &Cx, parent: Ino, name: &[u8], mode: u32, rdev: u32) -> Result<Entry> {
        self.room(4096)?;
        self.model.mknod(cx, parent, name, mode, rdev)
    }

    fn mkdir(&self, cx: &Cx, parent: Ino, name: &[u8], mode: u32) -> Result<Entry> {
        self.room(4096)?;
        self.model.mkdir(cx, parent, name, mode)
    }

    fn symlink(&self, cx: &Cx, parent: Ino, name: &[u8], target: &[u8]) -> Result<Entry> {
        self.room(8192)?;
        self.model.symlink(cx, parent, name, target)
    }

    fn link(&self, ino: Ino, new_parent: Ino, new_name: &[u8]) -> Result<Entry> {
        self.room(4096)?;
        self.model.link(ino, new_parent, new_name)
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let done = self.model.rmdir(parent, name);
        match (self.flaw, done) {
            (Flaw::WrongErrno, Err(e)) if e.errno() == Errno::ENOTEMPTY => Err(Errno::EEXIST.into()),
            (_, done) => done,
        }
    }

    fn rename(&self, cx: &Cx, from: Ino, name: &[u8], to: Ino, new: &[u8], flags: RenameFlags) -> Result<()> {
        if self.flaw == Flaw::TornRename {
            let half = Model::new(self.model.state(), self.clock.clone());
            self.model.rename(cx, from, name, to, new, flags)?;
            if half.unlink(from, name).is_ok() {
                self.save(&half.state(), 0)?;
                self.save(&self.model.state(), 0)?;
            }
            return Ok(());
        }
        self.model.rename(cx, from, name, to, new, flags)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        self.room(data.len() as u64)?;
        if self.flaw == Flaw::ShortWrite && data.len() > 10_000 {
            self.model.write(ino, offset, &data[..10_000])?;
            return Ok(data.len());
        }
        let before = self.model.getattr(ino)?.size;
        let done = self.model.write(ino, offset, data)?;
        if offset + done as u64 > before {
            self.grown.lock().insert(ino.0, (before, offset + done as u64));
        }
        Ok(done)
    }

    fn readdir(&self, ino: Ino, cookie: u64, f: &mut dyn FnMut(&DirEntry<'_>) -> bool) -> Result<()> {
        if self.flaw != Flaw::IndexCookies {
            return self.model.readdir(ino, cookie, f);
        }
        let mut number = 0;
        self.model.readdir(ino, 0, &mut |e| {
            number += 1;
            number <= cookie || f(&DirEntry { cookie: number, ..*e })
        })
    }

    fn fsync(&self, ino: Ino, data_only: bool) -> Result<()> {
        self.model.fsync(ino, data_only)?;
        self.catch_up(Some(ino));
        self.sync()
    }

    fn syncfs(&self) -> Result<()> {
        self.model.syncfs()?;
        self.catch_up(None);
        self.sync()
    }

    fn copy_range(&self, from: Ino, from_offset: u64, to: Ino, to_offset: u64, len: u64) -> Result<u64> {
        self.room(len)?;
        self.model.copy_range(from, from_offset, to, to_offset, len)
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.room(value.len() as u64)?;
        self.model.setxattr(ino, name, value, mode)
    }

    fn statfs(&self) -> Result<StatFs> {
        let s = self.model.statfs()?;
        let bytes = |n: &arbor_torture::model::Node| n.xattrs.values().map(|v| v.len() as u64).sum::<u64>();
        let values = self.model.with_state(|s| s.nodes.values().map(|n| bytes(n)).sum::<u64>());
        let blocks = self.blocks();
        let bfree = blocks.saturating_sub(s.blocks - s.bfree + values.div_ceil(4096));
        Ok(StatFs { blocks, bfree, bavail: bfree, ..s })
    }

    fn background(&self, now: Time) -> Time {
        if now.secs % 3 == 0 {
            self.catch_up_a_part();
            // What background work writes is a bonus; its failure shows at the next fsync.
            let lost = self.sync().is_err();
            self.thought_clean.fetch_or(lost && self.flaw == Flaw::CleanAfterError, Ordering::Relaxed);
        }
        now.plus_ms(1000)
    }

    fn unmount(&self) -> Result<()> {
        self.model.unmount()?;
        self.save(&self.model.state(), CLEAN)
    }
}
