//! What is done with a damaged image, and what must come of it.
//!
//! It is mounted, walked, written to and unmounted; checked without repair, which must write
//! nothing; repaired; checked again, which must find nothing; then it must work like any other.
//! Errors are fine as long as the damage is there. Panics, hangs, requests outside the image and
//! memory without bound never are.

use super::Limits;
use super::guard::{Account, Guard};
use super::place::Suspects;
use crate::config::BEGIN;
use crate::run::guarded;
use arbor_base::device::MemDevice;
use arbor_base::invariants::OnDamage;
use arbor_base::vfs::{
    Attr, CheckOptions, CheckReport, Cx, Devices, Engine, Errno, Error, FallocMode, FileSystem, FileType, Ino,
    ManualClock, MountOptions, Options, RenameFlags, Repair, Seek, SetAttr, Severity, XattrMode, mode,
};
use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;

const CX: Cx = Cx { uid: 1, gid: 1 };
/// Names in one directory, and files of one volume, beyond which a walk is taken for endless.
const MANY: usize = 50_000;
/// What a repair mended that is told with what was wrong after it.
const SHOWN: usize = 20;

/// The first error that shows damage, and whether it is a refusal to mount.
type Met = Option<(String, bool)>;

/// Drives one image through everything; with `again` also the repair of what use has made of it.
/// The error says what went wrong in which phase.
pub(super) fn drive(
    engine: &dyn Engine,
    disk: &MemDevice,
    (mount, suspects): (&Options, Option<&Suspects<'_>>),
    limits: &Limits,
    again: bool,
) -> Result<(), String> {
    let _damaged = OnDamage::begin();
    let account = Arc::new(Account::new(limits.requests));
    let phase = Cell::new("");
    let d = Drive { engine, mount, account: account.clone(), phase: &phase };
    if let Some(meter) = limits.meter {
        meter();
    }
    let result = guarded(|| d.all(disk, suspects, again));
    let result = result.map_err(|e| format!("{}: {e}", phase.get()));
    result?;
    if let Some(stray) = account.astray() {
        return Err(format!("a request that no engine may make: {stray}"));
    }
    let heap = limits.meter.map_or(0, |meter| meter());
    if heap > limits.heap {
        return Err(format!("{heap} bytes of memory at once"));
    }
    Ok(())
}

struct Drive<'a> {
    engine: &'a dyn Engine,
    mount: &'a Options,
    account: Arc<Account>,
    phase: &'a Cell<&'static str>,
}

impl Drive<'_> {
    fn devices(&self, disk: &MemDevice) -> Devices {
        Devices::single(Guard { disk: disk.clone(), account: self.account.clone() })
    }

    fn all(&self, disk: &MemDevice, suspects: Option<&Suspects<'_>>, again: bool) -> Result<(), String> {
        self.phase.set("description");
        let _ = self.engine.describe(&self.devices(disk), &mut |_| ());
        let used = disk.snapshot();
        self.phase.set("use");
        let met = self.work(&used, suspects)?;
        self.phase.set("check");
        let found = self.check(disk, Repair::No);
        // What another version has made is refused without being damage.
        if let (Ok(report), Some((met, false))) = (&found, &met)
            && bad(report).is_none()
        {
            return Err(format!("finds nothing, but in use there was: {met}"));
        }
        self.phase.set("repair");
        let copy = disk.snapshot();
        self.mended(&copy)?;
        self.phase.set("repair after use");
        if again && (met.is_some() || found.is_ok_and(|r| !r.issues.is_empty())) {
            self.mended(&used)?;
        }
        Ok(())
    }

    fn check(&self, disk: &MemDevice, repair: Repair) -> Result<CheckReport, Error> {
        let disk = if repair == Repair::No { disk.snapshot() } else { disk.clone() };
        disk.set_read_only(repair == Repair::No);
        let options = CheckOptions { repair, force: true };
        self.engine.check(self.devices(&disk), &options, &mut |_, _, _| ())
    }

    /// Repairs; what can be repaired must be without fault then.
    fn mended(&self, disk: &MemDevice) -> Result<(), String> {
        let report = match self.check(disk, Repair::Yes) {
            Ok(report) => report,
            // Another version's, another device's: not damage to the checker's mind.
            Err(Error::Refused(_)) => return Ok(()),
            Err(e) => return Err(format!("the checker gives up: {e}")),
        };
        let first = |e| {
            let mended = report.issues.iter().take(SHOWN).map(|i| format!("\n  mended: {}: {}", i.code, i.text));
            format!("{e}{}", mended.collect::<String>())
        };
        self.holds(disk, &report).map_err(first)
    }

    /// After a repair there is nothing to be found, and use leaves nothing to be found.
    fn holds(&self, disk: &MemDevice, report: &CheckReport) -> Result<(), String> {
        if report.issues.iter().any(|i| i.severity == Severity::Fatal) {
            return Ok(());
        }
        if let Some(left) = report.issues.iter().find(|i| !i.repaired && i.severity > Severity::Warning) {
            return Err(format!("leaves {}: {}", left.code, left.text));
        }
        let again = self.check(disk, Repair::No).map_err(|e| format!("the second check gives up: {e}"))?;
        if let Some(found) = bad(&again) {
            return Err(format!("the second check finds {found}"));
        }
        if let Some((met, _)) = self.work(disk, None)? {
            return Err(format!("after the repair: {met}"));
        }
        let last = self.check(disk, Repair::No).map_err(|e| format!("the last check gives up: {e}"))?;
        match bad(&last) {
            Some(found) => Err(format!("in use after the repair there came {found}")),
            None => Ok(()),
        }
    }

    /// Mounts, walks, changes and unmounts. Gives the first error that a good volume has not. Fails where damage is
    /// reported that the suspects do not explain.
    fn work(&self, disk: &MemDevice, suspects: Option<&Suspects<'_>>) -> Result<Met, String> {
        let clock = Arc::new(ManualClock::new(BEGIN));
        let options = MountOptions { read_only: false, options: self.mount.clone() };
        let fs = match self.engine.mount(self.devices(disk), &options, clock.clone()) {
            Ok(fs) => fs,
            Err(e) => {
                check_place(suspects, "mount", &e)?;
                return Ok(Some((format!("mount: {e}"), matches!(e, Error::Refused(_)))));
            }
        };
        let mut visit =
            Visit { fs: &*fs, suspects, met: None, wrong: None, changing: false, dirs: Vec::new(), names: Vec::new() };
        visit.walk()?;
        visit.change();
        clock.advance_ms(60_000);
        fs.background(BEGIN.plus_ms(60_000));
        fs.background(BEGIN.plus_ms(60_000));
        let _ = visit.note("statfs", fs.statfs());
        let _ = visit.note("unmount", fs.unmount());
        if let Some(wrong) = visit.wrong {
            return Err(wrong);
        }
        let met = fs.failure().map(|why| format!("failure: {why}")).or(visit.met);
        Ok(met.map(|met| (met, false)))
    }
}

fn bad(report: &CheckReport) -> Option<String> {
    let first = report.issues.iter().find(|i| i.severity > Severity::Warning)?;
    Some(format!("{}: {}", first.code, first.text))
}

/// Damage that is reported must be where the suspects are.
fn check_place(suspects: Option<&Suspects<'_>>, what: &str, e: &Error) -> Result<(), String> {
    match e {
        Error::Corrupt(c) if suspects.is_some_and(|s| !s.explain(c.location)) => {
            Err(format!("damage is reported where there is none: {what}: {e}"))
        }
        _ => Ok(()),
    }
}

struct Visit<'a> {
    fs: &'a dyn FileSystem,
    suspects: Option<&'a Suspects<'a>>,
    met: Option<String>,
    /// The first damage that was reported at a wrong place.
    wrong: Option<String>,
    /// Names may be gone.
    changing: bool,
    dirs: Vec<Ino>,
    /// Directory, name and what it is.
    names: Vec<(Ino, Vec<u8>, Attr)>,
}

impl Visit<'_> {
    /// Keeps the first error that only damage explains.
    fn note<T>(&mut self, what: &str, result: arbor_base::vfs::Result<T>) -> Option<T> {
        use Errno as E;
        match result {
            Ok(value) => Some(value),
            Err(e) => {
                if let Err(wrong) = check_place(self.suspects, what, &e) {
                    self.wrong.get_or_insert(wrong);
                }
                let fine = matches!(
                    e,
                    Error::Errno(
                        E::ENOSPC
                            | E::EFBIG
                            | E::EMLINK
                            | E::EEXIST
                            | E::ENOTEMPTY
                            | E::E2BIG
                            | E::EINVAL
                            | E::EOPNOTSUPP
                    )
                );
                // Where there are few files one may be removed before its turn comes.
                let fine = fine || self.changing && matches!(e, Error::Errno(E::ENOENT | E::ESTALE));
                if !fine && self.met.is_none() {
                    self.met = Some(format!("{what}: {e}"));
                }
                None
            }
        }
    }

    /// Looks at everything. Fails only on what no damage excuses.
    fn walk(&mut self) -> Result<(), String> {
        let (mut seen, mut looked) = (HashSet::new(), HashSet::new());
        let mut todo = vec![self.fs.root()];
        while let Some(dir) = todo.pop() {
            if !seen.insert(dir) {
                self.met.get_or_insert_with(|| format!("directory {dir} has two names"));
                continue;
            }
            self.dirs.push(dir);
            let mut names = Vec::new();
            let mut wrong = None;
            let read = self.fs.readdir(dir, 0, &mut |e| {
                if e.name == b"." || e.name == b".." {
                    return true;
                }
                if e.name.is_empty() || e.name.len() > 255 || e.name.iter().any(|b| matches!(b, b'/' | 0)) {
                    wrong = Some(String::from_utf8_lossy(e.name).into_owned());
                }
                names.push(e.name.to_vec());
                names.len() < MANY
            });
            self.note("readdir", read);
            if let Some(name) = wrong {
                return Err(format!("readdir shows a name that no path may have, in directory {dir}: {name:?}"));
            }
            if names.len() + self.names.len() >= MANY {
                return Err(format!("a walk without end: {} names in directory {dir}", names.len()));
            }
            for name in names {
                let Some(attr) = self.note("lookup", self.fs.lookup(dir, &name)) else { continue };
                if looked.insert(attr.ino) {
                    self.look(&attr);
                }
                if attr.file_type() == FileType::Dir {
                    todo.push(attr.ino);
                }
                self.names.push((dir, name, attr));
            }
        }
        Ok(())
    }

    fn look(&mut self, attr: &Attr) {
        let fs = self.fs;
        match attr.file_type() {
            FileType::Symlink => drop(self.note("readlink", fs.readlink(attr.ino))),
            FileType::File => self.read(attr),
            _ => {}
        }
        for name in self.note("listxattr", fs.listxattr(attr.ino)).unwrap_or_default() {
            self.note("getxattr", fs.getxattr(attr.ino, &name));
        }
    }

    /// Some pieces of the data, at both ends and around holes.
    fn read(&mut self, attr: &Attr) {
        let mut buf = vec![0; 8192];
        for at in [0, attr.size.saturating_sub(4000), attr.size / 2] {
            self.note("read", self.fs.read(attr.ino, at, &mut buf));
        }
        let mut at = 0;
        for n in 0..8 {
            let whence = if n % 2 == 0 { Seek::Hole } else { Seek::Data };
            match self.fs.seek(attr.ino, at, whence) {
                Ok(next) => at = next,
                Err(Error::Errno(Errno::ENXIO)) => break,
                Err(e) => {
                    self.note::<()>("seek", Err(e));
                    break;
                }
            }
            if at < attr.size {
                self.note("read", self.fs.read(attr.ino, at, &mut buf[..512]));
            }
        }
    }

    /// Changes a little of everything that is there.
    fn change(&mut self) {
        self.changing = true;
        let fs = self.fs;
        let names = std::mem::take(&mut self.names);
        let files: Vec<_> = names.iter().filter(|n| n.2.file_type() == FileType::File && n.2.nlink == 1).collect();
        let of = |n: usize| files.get(n * files.len().max(1) / 7).map(|f| (f.0, &f.1[..], f.2));
        for dir in self.dirs.clone().into_iter().rev().take(5) {
            let mode = mode::IFREG | 0o644;
            if let Some(new) = self.note("mknod", fs.mknod(&CX, dir, b"hostile new", mode, 0)) {
                self.note("write", fs.write(new.ino, 0, &[7; 5000]));
                self.note("link", fs.link(new.ino, dir, b"hostile link"));
                fs.forget(new.ino, 1);
            }
        }
        if let Some((_, _, f)) = of(0) {
            self.note("write", fs.write(f.ino, f.size, &[8; 3000]));
            self.note("setxattr", fs.setxattr(f.ino, b"user.hostile", &[9; 700], XattrMode::Set));
            self.note("fsync", fs.fsync(f.ino, false));
        }
        if let Some((_, _, f)) = of(1) {
            self.note("write", fs.write(f.ino, f.size / 2, &[8; 9000]));
            self.note("fallocate", fs.fallocate(f.ino, FallocMode::KEEP_SIZE, 0, 40_000));
        }
        if let Some((_, _, f)) = of(2) {
            self.note("truncate", fs.setattr(f.ino, &SetAttr { size: Some(f.size / 2), ..SetAttr::default() }));
        }
        if let Some((dir, name, _)) = of(3) {
            self.note("rename", fs.rename(&CX, dir, name, fs.root(), b"hostile moved", RenameFlags::default()));
        }
        for n in [4, 5, 6] {
            if let Some((dir, name, f)) = of(n) {
                self.note("unlink", fs.unlink(dir, name));
                fs.forget(f.ino, 1);
            }
        }
        // A file with a tree and a directory with many names are the largest.
        if let Some((dir, name, f)) = files.iter().max_by_key(|f| f.2.blocks).map(|f| (f.0, &f.1[..], f.2)) {
            let punch = FallocMode::KEEP_SIZE | FallocMode::PUNCH_HOLE;
            self.note("punch", fs.fallocate(f.ino, punch, f.size / 3, f.size / 3));
            if names.len().is_multiple_of(2) {
                let gone = fs.unlink(dir, name);
                self.note(
                    "unlink",
                    gone.or_else(|e| if matches!(e, Error::Errno(Errno::ENOENT)) { Ok(()) } else { Err(e) }),
                );
            }
        }
        let root = fs.root();
        let d = self.note("mkdir", fs.mkdir(&CX, root, b"hostile dir", 0o755));
        self.note("symlink", fs.symlink(&CX, d.map_or(root, |d| d.ino), b"s", &[b'x'; 2000]));
        for (dir, name, f) in names.iter().filter(|n| n.2.file_type() == FileType::Dir).take(2) {
            self.note(
                "rename",
                fs.rename(&CX, *dir, name, root, &[&name[..name.len().min(99)], b"+"].concat(), RenameFlags::default()),
            );
            self.note("getattr", fs.getattr(f.ino));
        }
        self.note("syncfs", fs.syncfs());
        for (dir, name, _) in names.iter().rev().filter(|n| n.2.file_type() == FileType::File).take(16) {
            self.note("unlink", fs.unlink(*dir, name));
        }
        for n in &names {
            fs.forget(n.2.ino, 1);
        }
    }
}
