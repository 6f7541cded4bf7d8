//! Damage costs what is damaged, and nothing else: each structure of a good volume in turn is damaged where its checksum tells, and
//! then the volume is used everywhere. Calls may fail with what they meet; the mount goes on, and what was made durable stays.

use crate::badsector::BadSector;
use crate::damage::mount;
use arbor_base::device::{MemDevice, SECTOR};
use arbor_base::vfs::{
    CheckOptions, Cx, Devices, Engine, Errno, FileSystem, FileType, Ino, ManualClock, MountOptions, Options,
    RenameFlags, Repair, Result, SetAttr, Structure, Time, XattrMode, mode,
};
use std::sync::Arc;

/// Structures of one kind that are damaged: from the first to the last.
const OF_A_KIND: usize = 8;
const CX: Cx = Cx { uid: 0, gid: 0 };

/// What was promised: a directory, a name and the contents.
type Promised = (Ino, Vec<u8>, Vec<u8>);

/// A mounted volume that is used.
struct User<'a> {
    fs: &'a dyn FileSystem,
    what: String,
    promised: Vec<Promised>,
    /// Names made so far.
    made: u32,
}

/// Damages structures of good images one by one, and lets a sector of each be unreadable. Those that `refuse` names may keep the volume from being mounted.
pub fn damage_costs_only_itself(
    engine: &dyn Engine,
    images: &[MemDevice],
    refuse: &dyn Fn(&Structure) -> bool,
    mounts: &[&str],
) {
    let mut wrong = Vec::new();
    for (n, image) in images.iter().enumerate() {
        for s in chosen(engine, image) {
            for options in mounts {
                let (damaged, at) = (image.snapshot(), s.offset + s.len as u64 / 2);
                let what = format!("image {n}, {} {} at {:#x}, {options}", s.kind, s.number, s.offset);
                let bad = BadSector { inner: image.snapshot(), at: at / SECTOR as u64 * SECTOR as u64 };
                let unread = Devices::single(bad.clone());
                wrong.extend(
                    used(engine, unread, &bad.inner, options, &format!("{what}, unreadable"), refuse(&s)).err(),
                );
                crate::damage::flip(&damaged, at);
                let device = Devices::single(damaged.clone());
                wrong.extend(used(engine, device, &damaged, options, &what, refuse(&s)).err());
            }
        }
    }
    assert!(wrong.is_empty(), "{} of them: {:#?}", wrong.len(), &wrong[..wrong.len().min(60)]);
}

/// Some structures of each kind.
fn chosen(engine: &dyn Engine, image: &MemDevice) -> Vec<Structure> {
    let mut all: Vec<Structure> = Vec::new();
    engine.structures(&Devices::single(image.clone()), &mut |s| all.push(s)).expect("structures");
    all.sort_by_key(|s| (s.kind, s.offset));
    let kinds = all.chunk_by(|a, b| a.kind == b.kind);
    kinds.flat_map(|kind| kind.iter().step_by(kind.len().div_ceil(OF_A_KIND)).cloned()).collect()
}

/// Uses the volume on `device`; when that is well again, it is what `image` holds.
fn used(
    engine: &dyn Engine,
    device: Devices,
    image: &MemDevice,
    options: &str,
    what: &str,
    may_refuse: bool,
) -> std::result::Result<(), String> {
    let clock = Arc::new(ManualClock::new(Time { secs: 2_000_000, nanos: 0 }));
    let o = MountOptions { options: Options::parse(options), ..MountOptions::default() };
    let fs = match engine.mount(device, &o, clock.clone()) {
        Ok(fs) => fs,
        Err(_) if may_refuse => return Ok(()),
        Err(e) => return Err(format!("{what}: mount: {e}")),
    };
    let mut user = User { fs: &*fs, what: what.into(), promised: Vec::new(), made: 0 };
    user.use_all()?;
    clock.advance_ms(100_000);
    fs.background(Time { secs: 2_000_100, nanos: 0 });
    user.goes_on("background")?;
    // Later, with other things in the cache.
    user.use_all()?;
    user.call("syncfs", fs.syncfs())?;
    let promised = std::mem::take(&mut user.promised);
    let is_unmounted = user.call("unmount", fs.unmount())?.is_some();
    drop(fs);
    // Damage that was met makes nothing else unreachable. (Plain replays its log whenever it is not marked clean.)
    let is_whole = is_unmounted && engine.name() != "plain";
    for read_only in [true, false].into_iter().skip(usize::from(!is_whole)) {
        let o = MountOptions { read_only, ..MountOptions::default() };
        let again = engine.mount(Devices::single(image.snapshot()), &o, clock.clone());
        again.map_err(|e| format!("{what}: mounted again, read-only {read_only}: {e}"))?;
    }
    let options = CheckOptions { repair: Repair::Yes, force: true };
    let report = engine.check(Devices::single(image.clone()), &options, &mut |_, _, _| ());
    let report = report.map_err(|e| format!("{what}: check: {e}"))?;
    if let Some(open) = report.issues.iter().find(|i| !i.repaired) {
        return Err(format!("{what}: {} is not mended: {}", open.code, open.text));
    }
    let fs = mount(engine, image.clone());
    for (dir, name, contents) in promised {
        let mut read = vec![0; contents.len() + 1];
        let found = fs.lookup(dir, &name).and_then(|a| fs.read(a.ino, 0, &mut read));
        if found.as_ref().map(|n| read.get(..*n)).ok().flatten() != Some(&contents[..]) {
            let name = String::from_utf8_lossy(&name);
            return Err(format!("{what}: {name} in {dir}, which was synced, is not there as it was: {found:?}"));
        }
    }
    Ok(())
}

impl User<'_> {
    fn goes_on(&mut self, did: &str) -> std::result::Result<(), String> {
        match self.fs.failure() {
            Some(why) => Err(format!("{}: after {did}, read-only: {why}", self.what)),
            None => Ok(()),
        }
    }

    /// A call: it may meet damage, or find no space where nobody knows what is free; the volume goes on.
    fn call<T>(&mut self, did: &str, done: Result<T>) -> std::result::Result<Option<T>, String> {
        self.goes_on(did)?;
        match done {
            Ok(done) => Ok(Some(done)),
            Err(e) if matches!(e.errno(), Errno::EUCLEAN | Errno::EIO | Errno::ESTALE | Errno::ENOSPC) => Ok(None),
            Err(e) => Err(format!("{}: {did}: {e}", self.what)),
        }
    }

    fn use_all(&mut self) -> std::result::Result<(), String> {
        let mut dirs = vec![self.fs.root()];
        let mut at = 0;
        while let Some(dir) = dirs.get(at).copied() {
            at += 1;
            let mut names = Vec::new();
            let read = self.fs.readdir(dir, 0, &mut |e| {
                names.push(e.name.to_vec());
                true
            });
            self.call("readdir", read)?;
            names.retain(|name| name != b"." && name != b"..");
            // A few of each directory are enough.
            let step = names.len().div_ceil(12).max(1);
            for (n, name) in names.into_iter().step_by(step).enumerate() {
                let found = self.fs.lookup(dir, &name);
                let Some(attr) = self.call("lookup", found)? else { continue };
                if attr.file_type() == FileType::Dir {
                    dirs.push(attr.ino);
                } else if !self.promised.iter().any(|p| p.0 == dir && p.1 == name) {
                    self.old(dir, &name, attr.ino, attr.file_type(), n)?;
                }
                self.fs.forget(attr.ino, 1);
            }
            if dirs.len() < 40 {
                self.new_ones(dir)?;
            }
        }
        Ok(())
    }

    /// Does something with a file that was there.
    fn old(&mut self, dir: Ino, name: &[u8], ino: Ino, t: FileType, n: usize) -> std::result::Result<(), String> {
        let fs = self.fs;
        let attr = fs.setattr(ino, &SetAttr { mode: Some(0o640), ..SetAttr::default() });
        self.call("setattr", attr)?;
        if t == FileType::File {
            let mut buf = vec![0; 70_000];
            self.call("read", fs.read(ino, 0, &mut buf))?;
            match n % 4 {
                0 => drop(self.call("write", fs.write(ino, 3000, &[7; 9000]))?),
                1 => {
                    let set = SetAttr { size: Some(100), ..SetAttr::default() };
                    self.call("truncate", fs.setattr(ino, &set))?;
                }
                2 => drop(self.call("append", fs.write(ino, 100_000, &[8; 5000]))?),
                _ => {}
            }
            self.call("fsync", fs.fsync(ino, false))?;
        }
        self.call("setxattr", fs.setxattr(ino, b"user.new", &[b'x'; 300], XattrMode::Set))?;
        match n % 3 {
            0 => drop(self.call("unlink", fs.unlink(dir, name))?),
            1 => {
                let to = self.name();
                self.call("rename", fs.rename(&CX, dir, name, dir, &to, RenameFlags::empty()))?;
            }
            _ => {
                let to = self.name();
                if let Some(e) = self.call("link", fs.link(ino, dir, &to))? {
                    fs.forget(e.ino, 1);
                }
            }
        }
        Ok(())
    }

    /// A name that nothing has yet.
    fn name(&mut self) -> Vec<u8> {
        self.made += 1;
        format!("new {}", self.made).into_bytes()
    }

    /// Makes files in a directory, and asks for their durability.
    fn new_ones(&mut self, dir: Ino) -> std::result::Result<(), String> {
        let fs = self.fs;
        for (n, len) in [40, 900, 20_000, 120_000].into_iter().enumerate() {
            let name = self.name();
            let made = fs.mknod(&CX, dir, &name, mode::IFREG | 0o644, 0);
            let Some(made) = self.call("mknod", made)? else { continue };
            let contents = vec![b'a' + n as u8; len];
            let written = self.call("write", fs.write(made.ino, 0, &contents))?;
            if written == Some(len) && self.call("fsync", fs.fsync(made.ino, false))?.is_some() {
                self.promised.push((dir, name, contents));
            }
            fs.forget(made.ino, 1);
        }
        let name = self.name();
        if let Some(made) = self.call("mkdir", fs.mkdir(&CX, dir, &name, 0o755))? {
            fs.forget(made.ino, 1);
            self.call("rmdir", fs.rmdir(dir, &name))?;
        }
        Ok(())
    }
}
