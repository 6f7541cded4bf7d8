//! Runs sequences of operations on an engine and on the model, side by side.

use crate::compare;
use crate::config::{BEGIN, Config, Failure};
use crate::data::Data;
use crate::exec::{Outcome, Side, agree, read_names};
use crate::generate::Profile;
use crate::given::Given;
use crate::model::{Body, Model, ROOT, State};
use crate::ops::{Op, Path};
use crate::shrink::shrink;
use arbor_base::device::Device;
use arbor_base::vfs::{
    CheckOptions, Clock, Devices, Engine, Errno, FileSystem, FileType, Ino, ManualClock, RenameFlags, Repair, Severity,
};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Gives handles of the same devices again and again.
pub type Opener = Box<dyn Fn() -> Devices>;

/// Runs `config.count` sequences; panics with the line that repeats the first failure.
pub fn sequences(engine: &dyn Engine, config: &Config) {
    if let Err(failure) = try_sequences(engine, &config.from_env()) {
        panic!("{failure}");
    }
}

/// As [`sequences`], but gives the failure back and leaves the environment alone.
pub fn try_sequences(engine: &dyn Engine, config: &Config) -> Result<(), Box<Failure>> {
    for seed in config.seed..config.seed + config.count {
        let ops = config.sequence(seed);
        let run = |ops: &[Op]| run_counted(engine, ops, config, &mut 0).err();
        let mut needs = 0;
        if let Err(first) = run_counted(engine, &ops, config, &mut needs) {
            let found = shrink(&ops[..needs], config.shrink_runs, run);
            let (ops, message) = found.unwrap_or((ops, first));
            return Err(Box::new(Failure { seed, ops, ..Failure::whole(engine, config, message) }));
        }
    }
    Ok(())
}

/// Runs one list on fresh devices; the error says what went wrong at which operation. A panic of
/// the engine is an error too.
pub fn run_sequence(engine: &dyn Engine, ops: &[Op], config: &Config) -> Result<(), String> {
    run_counted(engine, ops, config, &mut 0)
}

/// As [`run_sequence`]; `begun` says how many operations began before the end or the failure.
fn run_counted(engine: &dyn Engine, ops: &[Op], config: &Config, begun: &mut usize) -> Result<(), String> {
    guarded(|| {
        let mut world = World::format(engine, config, opener(config, config.memory()))?;
        for (i, op) in ops.iter().enumerate() {
            *begun = i + 1;
            world.step(op).map_err(|e| format!("operation {i} ({op}): {e}"))?;
            if (i + 1) % config.compare_every.max(1) == 0 {
                world.compare().map_err(|e| format!("after operation {i} ({op}): {e}"))?;
            }
        }
        world.finish()
    })
}

/// Gives handles of `whole`, cut into the devices that `config` wants.
pub fn opener(config: &Config, whole: impl Device + Clone + 'static) -> Opener {
    let config = config.clone();
    Box::new(move || config.devices(&whole))
}

/// Turns a panic of the engine into an error.
pub fn guarded<T>(f: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

/// Checks an unmounted volume, which must be without fault.
pub fn check_clean(engine: &dyn Engine, devices: Devices, repair: Repair) -> Result<(), String> {
    let report = engine.check(devices, &CheckOptions { repair, force: true }, &mut |_, _, _| {});
    let report = report.map_err(|e| format!("check: {e}"))?;
    match report.issues.iter().find(|i| i.severity > Severity::Warning) {
        Some(i) => Err(format!("check finds {} issues, first {}: {}", report.issues.len(), i.code, i.text)),
        None if report.skipped => Err("check skipped the volume though told to force".to_string()),
        None => Ok(()),
    }
}

/// Checks what an unmount leaves: a volume that is clean and says so, in which a check finds nothing at all.
pub fn check_unmounted(engine: &dyn Engine, open: &Opener) -> Result<(), String> {
    says_clean(engine, open)?;
    let options = CheckOptions { repair: Repair::No, force: true };
    let report = engine.check(open(), &options, &mut |_, _, _| {}).map_err(|e| format!("check: {e}"))?;
    match report.issues.first() {
        Some(i) => {
            Err(format!("check finds {} issues after unmount, first {}: {}", report.issues.len(), i.code, i.text))
        }
        None if report.skipped => Err("check skipped the volume though told to force".to_string()),
        None => Ok(()),
    }
}

/// The superblock must say after an unmount that the volume is clean.
fn says_clean(engine: &dyn Engine, open: &Opener) -> Result<(), String> {
    match engine.probe(&*open().main).map_err(|e| format!("probe: {e}"))? {
        Some(info) if info.clean => Ok(()),
        Some(_) => Err("unmounted, and not clean".to_string()),
        None => Err("unmounted, and no volume".to_string()),
    }
}

/// An engine and the model, mounted side by side.
pub struct World<'e> {
    engine: &'e dyn Engine,
    config: Config,
    pub(crate) clock: Arc<ManualClock>,
    open: Opener,
    /// The engine's side.
    pub side: Side,
    /// The model.
    pub model: Arc<Model>,
    model_side: Side,
    /// The error that the engine gave for the last operation, if it gave one.
    pub refused: Option<Errno>,
    /// A write may be short though there is space, because the device may fail.
    pub device_fails: bool,
    walks: BTreeMap<u8, Walk>,
    given: Given,
}

/// A walk of a directory that goes on while other operations change it.
struct Walk {
    path: Path,
    ino: u64,
    cookie: u64,
    /// Names with stamps that have been there all the time.
    throughout: BTreeMap<Vec<u8>, u64>,
    seen: BTreeSet<Vec<u8>>,
}

impl<'e> World<'e> {
    /// Formats and mounts what `open` gives.
    pub fn format(engine: &'e dyn Engine, config: &Config, open: Opener) -> Result<World<'e>, String> {
        engine.format(open(), &config.format_options()).map_err(|e| format!("format: {e}"))?;
        World::mount(engine, config, open)
    }

    /// Mounts a volume that was just formatted.
    pub fn mount(engine: &'e dyn Engine, config: &Config, open: Opener) -> Result<World<'e>, String> {
        let clock = Arc::new(ManualClock::new(BEGIN));
        let fs = mount(engine, config, open(), &clock)?;
        let root = fs.getattr(fs.root()).map_err(|e| format!("getattr of the root: {e}"))?;
        let mut state = State::new((root.uid, root.gid), BEGIN);
        Arc::make_mut(state.nodes.get_mut(&ROOT).ok_or("no root")?).mode = root.mode;
        World::begin(engine, config, open, state, fs, clock)
    }

    /// Mounts a volume that holds `state`.
    pub fn resume(engine: &'e dyn Engine, config: &Config, open: Opener, state: State) -> Result<World<'e>, String> {
        let clock = Arc::new(ManualClock::new(BEGIN));
        let fs = mount(engine, config, open(), &clock)?;
        World::begin(engine, config, open, state, fs, clock)
    }

    fn begin(
        engine: &'e dyn Engine,
        config: &Config,
        open: Opener,
        state: State,
        fs: Arc<dyn FileSystem>,
        clock: Arc<ManualClock>,
    ) -> Result<World<'e>, String> {
        let model = Arc::new(Model::new(state, clock.clone()));
        let (side, model_side) = (Side::new(fs), Side::new(model.clone()));
        let config = config.clone();
        Ok(World {
            engine,
            config,
            clock,
            open,
            side,
            model,
            model_side,
            refused: None,
            device_fails: false,
            walks: BTreeMap::new(),
            given: Given::default(),
        })
    }

    /// Carries `op` out on both and compares. Says whether it was done (not refused, not failed).
    pub fn step(&mut self, op: &Op) -> Result<bool, String> {
        self.refused = None;
        let done = match op {
            Op::Remount {} => self.remount(),
            Op::Background { ms } => self.background(*ms),
            Op::Clean { bytes } => self.clean(*bytes),
            Op::Walk { walk, path, chunk } => self.walk(*walk, path, *chunk),
            _ if self.undefined(op) => Ok(false),
            _ => self.both(op),
        }?;
        self.side.fs.failure().map_or(Ok(done), |why| Err(format!("the engine has given up: {why}")))
    }

    fn both(&mut self, op: &Op) -> Result<bool, String> {
        let engine = self.side.apply(op);
        self.refused = if let Outcome::Err(errno) = engine { Some(errno) } else { None };
        let Some(op) = self.as_done(op, &engine)? else { return Ok(false) };
        let model = self.model_side.apply(&op);
        let agreed = match (&op, &engine) {
            (Op::Seek { path, offset, whence }, Outcome::At(at)) => self.seek_agrees(path, *offset, *whence, *at)?,
            (Op::Seek { path, offset, whence: 0 }, Outcome::Err(Errno::ENXIO)) => self.no_data_after(path, *offset),
            _ => agree(&op, &model, &engine),
        };
        let carried = !matches!(engine, Outcome::Err(_));
        if carried && agreed {
            self.note_given(&op);
        }
        match agreed {
            true => Ok(carried),
            false => Err(format!("gives {}, should give {}", brief(&engine), brief(&model))),
        }
    }

    fn note_given(&mut self, op: &Op) {
        let (Op::Write { path, .. } | Op::Append { path, .. } | Op::Truncate { path, .. } | Op::Fallocate { path, .. }) =
            op
        else {
            return;
        };
        let Some(ino) = self.model_ino(path) else { return };
        let size = self.model.with_state(|s| s.node(ino).ok().and_then(|n| n.data()).map_or(0, |d| d.size()));
        self.given.done(ino, op, size);
    }

    /// What the model has to do so that it agrees with what the engine had space for: nothing, a
    /// part of `op`, or `op`.
    fn as_done(&self, op: &Op, engine: &Outcome) -> Result<Option<Op>, String> {
        let given = self.is_given(op);
        let mut op = op.clone();
        match (&mut op, engine) {
            (_, Outcome::Err(errno)) => return Ok((!self.may_refuse(&op, *errno)?).then_some(op)),
            (Op::Write { len, .. } | Op::Append { len, .. }, Outcome::Count(n)) if 0 < *n && *n < *len as u64 => {
                if given {
                    return Err("a short write where the file has been given space".to_string());
                }
                if !self.device_fails {
                    self.scarce("a short write")?;
                }
                *len = *n as usize;
            }
            (Op::Copy { len, .. }, Outcome::Count(n)) if 0 < *n && *n < *len => *len = *n,
            _ => {}
        }
        Ok(Some(op))
    }

    /// Whether a write needs no space, because its file has been given it.
    fn is_given(&self, op: &Op) -> bool {
        let Op::Write { path, offset, len, .. } = op else { return false };
        let covered = |ino| self.given.covers(ino, *offset, *len as u64);
        self.config.keeps_space && !self.device_fails && self.model_ino(path).is_some_and(covered)
    }

    /// Whether an engine may refuse `op` with `errno` where the model carries it out.
    fn may_refuse(&self, op: &Op, errno: Errno) -> Result<bool, String> {
        match (errno, op) {
            // Engines may keep the attributes of an inode in a place of bounded size.
            (Errno::ENOSPC, Op::SetXattr { .. }) => Ok(true),
            (
                Errno::ENOSPC,
                Op::Unlink { .. }
                | Op::Rmdir { .. }
                | Op::RemoveXattr { .. }
                | Op::Truncate { size: 0, .. }
                | Op::Fsync { .. }
                | Op::Syncfs {},
            ) => Err("ENOSPC from an operation that must not need space".to_string()),
            (Errno::ENOSPC, _) if self.is_given(op) => {
                Err("ENOSPC from a write where the file has been given space".to_string())
            }
            (Errno::ENOSPC, _) => self.scarce("ENOSPC").map(|()| true),
            (Errno::EFBIG, Op::Write { offset, .. } | Op::Fallocate { offset, .. }) => Ok(*offset >= 1 << 32),
            (Errno::EFBIG, Op::Truncate { size, .. }) => Ok(*size >= 1 << 32),
            (Errno::EFBIG, Op::Append { .. } | Op::Copy { .. }) => Ok(true),
            (Errno::EMLINK, Op::Link { .. } | Op::Mkdir { .. } | Op::Rename { .. }) => Ok(true),
            (Errno::EOPNOTSUPP, Op::Fallocate { mode, .. }) => Ok(*mode != 0),
            _ => Ok(false),
        }
    }

    fn scarce(&self, what: &str) -> Result<(), String> {
        let s = self.side.fs.statfs().map_err(|e| format!("statfs: {e}"))?;
        let share = if self.config.profile == Profile::Full { 2 } else { 5 };
        match s.bavail < s.blocks / share || s.ffree < 16 {
            true => Ok(()),
            false => Err(format!("{what} with {} of {} blocks free", s.bavail, s.blocks)),
        }
    }

    fn model_ino(&self, path: &Path) -> Option<u64> {
        self.model_side.find(path).ok().map(|held| held.ino.0)
    }

    /// The inode of `path` in the model, which fsync makes durable.
    pub fn identity(&self, path: &Path) -> Option<u64> {
        self.model_ino(path)
    }

    /// The state without the contents of a file, as they are before they are written.
    pub fn state_without(&self, path: &Path) -> State {
        let mut state = self.model.state();
        let node = self.model_ino(path).and_then(|ino| state.nodes.get_mut(&ino)).map(Arc::make_mut);
        if let Some(Body::File(data)) = node.map(|node| &mut node.body) {
            *data = Data::default();
        }
        state
    }

    /// The file that takes the name of another by `op`.
    pub fn replacer(&self, op: &Op) -> Option<u64> {
        let Op::Rename { from, to, flags } = op else { return None };
        let file = |path| {
            let ino = self.model_ino(path)?;
            self.model.with_state(|s| s.node(ino).is_ok_and(|n| n.data().is_some())).then_some(ino)
        };
        let (new, old) = (file(from)?, file(to)?);
        (new != old && *flags & RenameFlags::EXCHANGE.bits() == 0).then_some(new)
    }

    /// Operations that the kernel never passes on, so that each engine may do as it likes.
    fn undefined(&self, op: &Op) -> bool {
        let node = |path: &Path, f: &dyn Fn(&crate::model::Node) -> bool| {
            self.model_ino(path).is_some_and(|ino| self.model.with_state(|s| s.node(ino).is_ok_and(f)))
        };
        match op {
            Op::Link { from, .. } => node(from, &|n| n.nlink == 0 && !n.unnamed),
            Op::Chmod { path, .. } => node(path, &|n| FileType::from_mode(n.mode) == Some(FileType::Symlink)),
            Op::List { path, .. } => node(path, &|n| n.nlink == 0),
            _ => false,
        }
    }

    fn byte_is_zero(&self, path: &Path, range: std::ops::Range<u64>) -> bool {
        self.model_ino(path).is_some_and(|ino| {
            self.model.with_state(|s| {
                let next = s.node(ino).ok().and_then(|n| n.data()).and_then(|d| d.next_nonzero(range.start));
                next.is_none_or(|at| at >= range.end)
            })
        })
    }

    fn seek_agrees(&self, path: &Path, offset: u64, whence: u8, at: u64) -> Result<bool, String> {
        let size = self
            .model_ino(path)
            .and_then(|ino| self.model.with_state(|s| s.node(ino).ok().and_then(|n| n.data()).map(|d| d.size())));
        let size = size.ok_or("should fail")?;
        Ok(match whence {
            0 => at >= offset && at < size && self.byte_is_zero(path, offset..at),
            _ => at >= offset && offset < size && at <= size && (at == size || self.byte_is_zero(path, at..at + 1)),
        })
    }

    fn no_data_after(&self, path: &Path, offset: u64) -> bool {
        self.byte_is_zero(path, offset..u64::MAX)
    }

    fn remount(&mut self) -> Result<bool, String> {
        self.side.fs.unmount().map_err(|e| format!("unmount: {e}"))?;
        says_clean(self.engine, &self.open)?;
        self.mount_again()?;
        Ok(true)
    }

    fn mount_again(&mut self) -> Result<(), String> {
        let fs = mount(self.engine, &self.config, (self.open)(), &self.clock)?;
        self.side = Side::new(fs);
        self.model_side = Side::new(self.model.clone());
        self.model.remount();
        Ok(())
    }

    fn background(&mut self, ms: u64) -> Result<bool, String> {
        self.clock.advance_ms(ms);
        let now = self.clock.now();
        let mut next = self.side.fs.background(now);
        for _ in 0..16 {
            if !self.side.fs.wants_background() && next > now {
                break;
            }
            next = self.side.fs.background(now);
        }
        Ok(true)
    }

    fn clean(&mut self, bytes: u64) -> Result<bool, String> {
        match self.side.fs.clean(bytes) {
            Ok(_) => Ok(true),
            Err(e) if e.errno() == Errno::EOPNOTSUPP || self.device_fails => Ok(false),
            Err(e) => Err(format!("clean: {e}")),
        }
    }

    fn walk(&mut self, number: u8, path: &Path, chunk: usize) -> Result<bool, String> {
        let Some(ino) = self.model_ino(path) else { return Ok(false) };
        let names = self.model.with_state(|s| s.node(ino).ok().filter(|n| n.nlink > 0)?.dir().map(|d| d.names.clone()));
        let Some(names) = names else { return Ok(false) };
        let mut walk = match self.walks.remove(&number) {
            Some(w) if w.ino == ino && w.path == *path => w,
            _ => Walk {
                path: path.clone(),
                ino,
                cookie: 0,
                throughout: names.iter().map(|(n, e)| (n.to_vec(), e.stamp)).collect(),
                seen: BTreeSet::new(),
            },
        };
        walk.throughout.retain(|n, stamp| names.get(&n[..]).is_some_and(|e| e.stamp == *stamp));
        let (got, next) = {
            let dir = self.side.find(path).map_err(|e| format!("lookup: {e}"))?;
            read_names(&*self.side.fs, dir.ino, walk.cookie, chunk).map_err(|e| format!("readdir: {e}"))?
        };
        for (name, kind) in &got {
            let here = names.get(&name[..]).and_then(|n| self.model.with_state(|s| s.node(n.ino).map(|n| n.mode).ok()));
            walk.see(name, *kind, here)?;
        }
        if got.is_empty() {
            return walk.end().map(|()| true);
        }
        walk.cookie = next;
        self.walks.insert(number, walk);
        Ok(true)
    }

    /// Compares the whole tree.
    pub fn compare(&self) -> Result<(), String> {
        compare::tree(&*self.side.fs, &self.model.state())?;
        for slot in 0..=u8::MAX {
            let (Some(ino), Some(known)) = (self.side.slot(slot), self.model_side.slot(slot)) else { continue };
            let data = self.model.with_state(|s| s.node(known.0).ok().and_then(|n| n.data().cloned()));
            if let Some(data) = data {
                compare::file(&*self.side.fs, ino, &data).map_err(|e| format!("@{slot}: {e}"))?;
            }
        }
        Ok(())
    }

    /// Compares, unmounts, checks, mounts and compares again; then removes everything, which must
    /// always be possible, and checks once more.
    pub fn finish(mut self) -> Result<(), String> {
        self.compare().map_err(|e| format!("at the end: {e}"))?;
        self.verified_remount().map_err(|e| format!("at the end: {e}"))?;
        self.compare().map_err(|e| format!("after unmount and mount: {e}"))?;
        let fs = self.side.fs.clone();
        remove_all(&*fs, fs.root()).map_err(|e| format!("when everything is removed: {e}"))?;
        drop(fs);
        self.verified_remount().map_err(|e| format!("when everything was removed: {e}"))?;
        let left = compare::observe(&*self.side.fs)?.metas.len();
        if left == 1 { self.remount().map(drop) } else { Err(format!("{} names are back", left - 1)) }
    }

    fn verified_remount(&mut self) -> Result<(), String> {
        self.side.fs.unmount().map_err(|e| format!("unmount: {e}"))?;
        check_unmounted(self.engine, &self.open)?;
        self.mount_again()
    }
}

impl Walk {
    fn see(&mut self, name: &[u8], kind: FileType, mode: Option<u32>) -> Result<(), String> {
        let shown = compare::show(name);
        if name == b"." || name == b".." {
            return Ok(());
        }
        match mode.and_then(FileType::from_mode) {
            None => return Err(format!("the walk shows {shown}, which is not there")),
            Some(is) if is != kind => return Err(format!("the walk shows {shown} as {kind:?}, it is {is:?}")),
            Some(_) => {}
        }
        match !self.seen.insert(name.to_vec()) && self.throughout.contains_key(name) {
            true => Err(format!("the walk shows {shown} twice")),
            false => Ok(()),
        }
    }

    fn end(self) -> Result<(), String> {
        match self.throughout.keys().find(|n| !self.seen.contains(*n)) {
            Some(n) => Err(format!("the walk missed {}", compare::show(n))),
            None => Ok(()),
        }
    }
}

/// Mounts with the options of `config`.
pub fn mount(
    engine: &dyn Engine,
    config: &Config,
    devices: Devices,
    clock: &Arc<ManualClock>,
) -> Result<Arc<dyn FileSystem>, String> {
    engine.mount(devices, &config.mount_options(), clock.clone()).map_err(|e| format!("mount: {e}"))
}

/// Removes everything below `dir`.
fn remove_all(fs: &dyn FileSystem, dir: Ino) -> Result<(), String> {
    loop {
        let (names, _) = read_names(fs, dir, 0, 1000).map_err(|e| format!("readdir: {e}"))?;
        if names.len() <= 2 {
            return Ok(());
        }
        for (name, kind) in &names[2..] {
            let fail = |e| format!("{}: {e}", compare::show(name));
            if *kind == FileType::Dir {
                let child = fs.lookup(dir, name).map_err(fail)?.ino;
                let below = remove_all(fs, child);
                fs.forget(child, 1);
                below?;
                fs.rmdir(dir, name).map_err(fail)?;
            } else {
                fs.unlink(dir, name).map_err(fail)?;
            }
        }
    }
}

pub(crate) fn brief(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Bytes(b) => format!("{} bytes starting {:02x?}", b.len(), &b[..b.len().min(8)]),
        Outcome::Names(n) => format!("{} names", n.len()),
        other => format!("{other:?}"),
    }
}
