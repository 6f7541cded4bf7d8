//! Damage that is planted in good images, for the tests of a checker: it is found, and mended; what was not hit stays, also
//! when the power fails meanwhile.
//!
//! ```text
//! Damage::heal -> good image, damage -> check without repair -> repair -> check, tree -> repairs cut at their events
//! ```

use arbor_base::device::{CrashChoice, Device, Kind, MemDevice, RecordingDevice};
use arbor_base::invariants::OnDamage;
use arbor_base::layout::Location;
use arbor_base::vfs::{
    CheckOptions, CheckReport, Cx, Devices, Engine, Error, FileSystem, FileType, FormatOptions, Ino, ManualClock,
    MountOptions, Options, Repair, Result, Seek, Time, mode,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, OnceLock};

const SECTOR: u64 = 512;

/// What lies at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Type and permissions.
    pub mode: u32,
    /// Links; none of a directory.
    pub nlink: u32,
    /// Size; none of a directory.
    pub size: u64,
    /// Contents, each piece after its place; then attributes.
    pub content: Vec<u8>,
}

/// All that is on a volume, by path.
pub type Tree = BTreeMap<String, Item>;

/// A new volume.
pub fn format(engine: &dyn Engine, size: u64, options: &str) -> MemDevice {
    let dev = MemDevice::new(size);
    let o = FormatOptions { uuid: [7; 16], options: Options::parse(options), ..FormatOptions::default() };
    engine.format(Devices::single(dev.clone()), &o).expect("format");
    dev
}

/// Mounts it, by a clock that stands still.
pub fn mount(engine: &dyn Engine, dev: impl Device + 'static) -> Arc<dyn FileSystem> {
    let clock = Arc::new(ManualClock::new(Time { secs: 1_000_000, nanos: 0 }));
    engine.mount(Devices::single(dev), &MountOptions::default(), clock).expect("mount")
}

/// Checks all of it.
pub fn check(engine: &dyn Engine, dev: impl Device + 'static, repair: Repair) -> CheckReport {
    let options = CheckOptions { repair, force: true };
    engine.check(Devices::single(dev), &options, &mut |_, _, _| ()).expect("check")
}

/// What a check found, without what is the same as the one before it.
pub fn codes(report: &CheckReport) -> Vec<&'static str> {
    let mut codes: Vec<_> = report.issues.iter().map(|i| i.code).collect();
    codes.dedup();
    codes
}

/// Bytes that tell where they should be. None is zero: targets of links are made of them too.
pub fn bytes(len: usize, seed: u32) -> Vec<u8> {
    let byte = |i: u32| (i.wrapping_mul(2_654_435_761).wrapping_add(seed.wrapping_mul(97)) >> 13) as u8;
    (0..len as u32).map(|i| byte(i).max(1)).collect()
}

/// Bytes at any address.
pub fn read(dev: &MemDevice, at: u64, len: usize) -> Vec<u8> {
    let (start, end) = (at / SECTOR * SECTOR, (at + len as u64).next_multiple_of(SECTOR));
    let mut bytes = vec![0; (end - start) as usize];
    dev.read_at(Kind::Other, start, &mut bytes).expect("read");
    bytes[(at - start) as usize..][..len].to_vec()
}

/// Writes bytes at any address.
pub fn write(dev: &MemDevice, at: u64, new: &[u8]) {
    let (start, end) = (at / SECTOR * SECTOR, (at + new.len() as u64).next_multiple_of(SECTOR));
    let mut bytes = read(dev, start, (end - start) as usize);
    bytes[(at - start) as usize..][..new.len()].copy_from_slice(new);
    dev.write_at(Kind::Other, start, &bytes).expect("write");
}

/// Changes a byte.
pub fn flip(dev: &MemDevice, at: u64) {
    let byte = read(dev, at, 1)[0];
    write(dev, at, &[byte ^ 0x55]);
}

/// What is planted, and the issues that have a test of their own, are all issues of the checker, and only these have one.
pub fn every_issue_is_planted<'a>(planted: impl Iterator<Item = &'a str>, alone: &[&'a str], all: &[&'a str]) {
    let all: BTreeSet<&str> = all.iter().copied().collect();
    let found: BTreeSet<&str> = planted.chain(alone.iter().copied()).collect();
    assert_eq!(found, all);
}

/// The quoted words of a test's source that are names of issues: of a test that asserts each code that it names.
pub fn named<'a>(source: &'a str, all: &'a [&str]) -> impl Iterator<Item = &'a str> {
    let quoted = source.lines().flat_map(|line| line.split('"').skip(1).step_by(2));
    quoted.filter(|word| all.contains(word))
}

/// What `describe` says is used does not overlap, and is what the checker counts.
pub fn regions_are_what_is_used(engine: &dyn Engine, dev: &MemDevice) {
    let mut regions = Vec::new();
    engine.describe(&Devices::single(dev.clone()), &mut |r| regions.push(r)).expect("describe");
    regions.sort_by_key(|r| r.offset);
    for pair in regions.windows(2) {
        assert!(pair[0].offset + pair[0].len <= pair[1].offset, "{pair:?} overlap");
    }
    let used: u64 = regions.iter().map(|r| r.len).sum();
    assert_eq!(used, check(engine, dev.clone(), Repair::No).used_bytes);
}

/// The tree of a volume as a mount shows it.
pub fn tree(engine: &dyn Engine, dev: &MemDevice) -> Tree {
    tree_in(&*mount(engine, dev.snapshot()))
}

/// All files of a mounted volume.
pub fn tree_in(fs: &dyn FileSystem) -> Tree {
    let mut tree = Tree::new();
    let mut todo = vec![(String::new(), fs.root())];
    while let Some((path, ino)) = todo.pop() {
        let attr = fs.getattr(ino).unwrap_or_else(|e| panic!("{path}: {e}"));
        let mut content = match attr.file_type() {
            FileType::Dir => Vec::new(),
            FileType::Symlink => fs.readlink(ino).expect("readlink"),
            FileType::File => contents(fs, &path, ino, attr.size),
            _ => attr.rdev.to_le_bytes().to_vec(),
        };
        let dir = attr.file_type() == FileType::Dir;
        if dir {
            todo.extend(below(fs, &path, ino));
        }
        for name in fs.listxattr(ino).expect("listxattr") {
            content.extend(fs.getxattr(ino, &name).expect("getxattr"));
            content.extend(name);
        }
        let (nlink, size) = if dir { (0, 0) } else { (attr.nlink, attr.size) };
        tree.insert(path, Item { mode: attr.mode, nlink, size, content });
    }
    tree
}

/// Paths and inodes in a directory.
fn below(fs: &dyn FileSystem, path: &str, ino: Ino) -> Vec<(String, Ino)> {
    let mut names = Vec::new();
    fs.readdir(ino, 0, &mut |e| {
        names.push(String::from_utf8(e.name.to_vec()).expect("a name"));
        true
    })
    .unwrap_or_else(|e| panic!("{path}: {e}"));
    let found = |name: String| {
        let e = fs.lookup(ino, name.as_bytes()).unwrap_or_else(|e| panic!("{path}/{name}: {e}"));
        (format!("{path}/{name}"), e.ino)
    };
    names.into_iter().filter(|n| n != "." && n != "..").map(found).collect()
}

/// Each piece of data is preceded by its place.
fn contents(fs: &dyn FileSystem, path: &str, ino: Ino, size: u64) -> Vec<u8> {
    let (mut all, mut at) = (Vec::new(), 0);
    while let Ok(from) = fs.seek(ino, at, Seek::Data) {
        let to = fs.seek(ino, from, Seek::Hole).expect("seek");
        let mut buf = vec![0; (to - from) as usize];
        assert_eq!(fs.read(ino, from, &mut buf).unwrap_or_else(|e| panic!("{path}: {e}")), buf.len());
        all.extend(from.to_le_bytes());
        all.extend(buf);
        at = to;
        if at >= size {
            break;
        }
    }
    all
}

/// Damage that a mounted volume meets: structure and field as it names them, and what does it and says where.
pub type Met<K> = (&'static str, &'static str, fn(&K) -> Location);

/// What is said of damage to who mounts a volume, looks at everything, makes a file, removes all and unmounts.
fn met(engine: &dyn Engine, devices: Devices) -> Vec<String> {
    let clock = Arc::new(ManualClock::new(Time { secs: 1_000_000, nanos: 0 }));
    let mut met = Vec::new();
    let fs = match engine.mount(devices, &MountOptions::default(), clock) {
        Ok(fs) => fs,
        Err(e) => {
            note::<()>(&mut met, Err(e));
            return met;
        }
    };
    let mut files = Vec::new();
    let mut todo = vec![fs.root()];
    while let Some(dir) = todo.pop() {
        let mut names = Vec::new();
        let read = fs.readdir(dir, 0, &mut |e| {
            names.push(e.name.to_vec());
            true
        });
        note(&mut met, read);
        for name in names {
            let Some(attr) = note(&mut met, fs.lookup(dir, &name)) else { continue };
            match attr.file_type() {
                _ if name == b"." || name == b".." => continue,
                FileType::Dir => todo.push(attr.ino),
                FileType::Symlink => drop(note(&mut met, fs.readlink(attr.ino))),
                FileType::File => {
                    let mut buf = vec![0; attr.size.min(1 << 20) as usize];
                    note(&mut met, fs.read(attr.ino, 0, &mut buf));
                }
                _ => {}
            }
            note(&mut met, fs.listxattr(attr.ino));
            files.push((dir, name, attr.ino));
        }
    }
    let cx = Cx { uid: 0, gid: 0 };
    note(&mut met, fs.mknod(&cx, fs.root(), b"new", mode::IFREG | 0o600, 0));
    for (dir, name, ino) in files {
        note(&mut met, fs.unlink(dir, &name));
        fs.forget(ino, 1);
    }
    note(&mut met, fs.syncfs());
    note(&mut met, fs.unmount());
    met.extend(fs.damage_passed_by());
    met
}

fn note<T>(met: &mut Vec<String>, result: Result<T>) -> Option<T> {
    if let Err(e @ (Error::Corrupt(_) | Error::Failed(_))) = &result {
        met.push(e.to_string());
    }
    result.ok()
}

/// A mounted volume that meets damage names its place, and so does the checker where it says the same. Panics if one
/// does not, or the volume meets none.
pub fn names_the_place(engine: &dyn Engine, devices: Devices, (structure, field): (&str, &str), place: Location) {
    let (what, says) = (format!("damaged {structure}: field {field} "), format!("{place} holds "));
    let same = Devices { main: devices.main.clone(), extra: devices.extra.clone() };
    let options = CheckOptions { repair: Repair::No, force: true };
    let found = engine.check(same, &options, &mut |_, _, _| ()).expect("check").issues;
    let is_wrong = |text: &str| text.split(&what).skip(1).any(|rest| !rest.starts_with(&says));
    assert!(!found.iter().any(|i| is_wrong(&i.text)), "{what}{says}... in {found:#?}");
    let met = met(engine, devices);
    assert!(met.iter().any(|said| said.contains(&format!("{what}{says}"))), "{what}{says}... in {met:#?}");
}

/// Whether a path is one of those that are lost, or below one: the usual [`Damage::is_lost`]. `""` is the root.
pub fn is_below(lost: &[&str], path: &str) -> bool {
    let below = |l: &&str| path.strip_prefix(*l).is_some_and(|r| r.is_empty() || l.is_empty() || r.starts_with('/'));
    lost.iter().any(below)
}

/// Damage, and what has to come of it.
pub struct Case<K, P> {
    /// What the checker must find.
    pub codes: &'static [&'static str],
    /// What preening does with it, as the engine says it.
    pub preen: P,
    /// Paths that may change, as [`Damage::is_lost`] reads them.
    pub lost: &'static [&'static str],
    /// Does it.
    pub damage: fn(&K),
}

/// Makes a case.
pub fn case<K, P>(
    codes: &'static [&'static str],
    preen: P,
    lost: &'static [&'static str],
    damage: fn(&K),
) -> Case<K, P> {
    Case { codes, preen, lost, damage }
}

/// An engine, its good images, and how they are looked at.
pub struct Damage<K> {
    /// Whose checker is tested.
    pub engine: &'static dyn Engine,
    /// Sizes and options of format of the good images.
    pub shapes: &'static [(u64, &'static str)],
    /// Makes a good image.
    pub build: fn(u64, &str) -> MemDevice,
    /// Shows what is on a volume.
    pub tree: fn(&MemDevice) -> Tree,
    /// A knife for an image.
    pub knife: fn(MemDevice) -> K,
    /// Whether a path may change, by the paths of a case.
    pub is_lost: fn(&[&str], &str) -> bool,
    /// The good images with their trees, made once.
    pub good: OnceLock<Vec<(MemDevice, Tree)>>,
}

/// What [`Damage::heal`] leaves.
pub struct Healed {
    /// The image before the repair.
    pub damaged: MemDevice,
    /// What the repair reported.
    pub report: CheckReport,
    /// Names the case in messages.
    pub what: String,
}

impl<K, P> fmt::Debug for Case<K, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("codes", &self.codes).field("lost", &self.lost).finish_non_exhaustive()
    }
}

impl<K> fmt::Debug for Damage<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Damage").field("engine", &self.engine.name()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Healed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Healed").field("what", &self.what).field("report", &self.report).finish_non_exhaustive()
    }
}

impl<K> Damage<K> {
    /// A copy of a good image, and its tree.
    pub fn good(&self, shape: usize) -> (MemDevice, &Tree) {
        let build = |&(size, options): &(u64, &str)| {
            let image = (self.build)(size, options);
            let tree = (self.tree)(&image);
            (image, tree)
        };
        let all = self.good.get_or_init(|| self.shapes.iter().map(build).collect());
        (all[shape].0.snapshot(), &all[shape].1)
    }

    fn check(&self, dev: &MemDevice, repair: Repair) -> CheckReport {
        check(self.engine, dev.clone(), repair)
    }

    /// Good images have no issues, and no check writes to them.
    pub fn good_images_have_no_issues(&self) {
        for (shape, (_, name)) in self.shapes.iter().enumerate() {
            let (image, _) = self.good(shape);
            for repair in [Repair::No, Repair::Preen, Repair::Yes] {
                let before = image.to_bytes();
                let report = self.check(&image, repair);
                assert_eq!(report.issues, vec![], "{name} {repair:?}");
                assert!(!report.skipped && report.files > 60 && report.directories > 20);
                assert!(before == image.to_bytes(), "a good image is not written to");
            }
        }
    }

    /// Plants the damage of a case, lets it be found and mended, and cuts the repair: in the first shape everywhere, in
    /// the others here and there. Panics if it does not end as it should.
    pub fn heal<P>(&self, shape: usize, n: usize, case: &Case<K, P>) -> Healed {
        let (image, good) = self.good(shape);
        let what = format!("case {n} of {:?} in shape {shape}", case.codes);
        (case.damage)(&(self.knife)(image.clone()));
        let before = image.to_bytes();
        image.set_read_only(true);
        let found = self.check(&image, Repair::No);
        image.set_read_only(false);
        for code in case.codes {
            let met = found.issues.iter().any(|i| i.code == *code && !i.repaired);
            assert!(met, "{what}: {code} in {:#?}", found.issues);
        }
        assert!(before == image.to_bytes(), "{what}: a check without repair wrote");
        let damaged = image.snapshot();
        let report = self.check(&image, Repair::Yes);
        assert!(report.issues.iter().all(|i| i.repaired), "{what}: {:#?}", report.issues);
        let again = self.check(&image, Repair::No);
        assert_eq!(again.issues, vec![], "{what}, after {:#?}", report.issues);
        let now = (self.tree)(&image);
        for (path, then) in good {
            let same = now.get(path) == Some(then);
            assert!(same || (self.is_lost)(case.lost, path), "{what}: {path} after {:#?}", report.issues);
        }
        self.killed(&damaged, &now, &what, n, shape == 0);
        Healed { damaged, report, what }
    }

    /// The same of cases that say whether preening mends them: it does, or writes nothing.
    pub fn heal_and_preen(&self, shape: usize, n: usize, case: &Case<K, bool>) -> Healed {
        let healed = self.heal(shape, n, case);
        let (damaged, what) = (&healed.damaged, &healed.what);
        let (image, before) = (damaged.snapshot(), damaged.to_bytes());
        let report = self.check(&image, Repair::Preen);
        let mended = report.issues.iter().all(|i| i.repaired);
        assert_eq!(mended, case.preen, "{what}: {:#?}", report.issues);
        assert!(mended || before == image.to_bytes(), "{what}");
        assert!(!mended || self.check(&image, Repair::No).issues.is_empty(), "{what}");
        healed
    }

    /// A repair that loses the power anywhere leaves what another mends in the same way.
    fn killed(&self, image: &MemDevice, healed: &Tree, what: &str, n: usize, everywhere: bool) {
        let device = RecordingDevice::new(image.snapshot());
        check(self.engine, device.clone(), Repair::Yes);
        let events = device.events();
        let step = if everywhere { 1 } else { events.div_ceil(3).max(1) };
        for at in (n % step..=events).step_by(step) {
            let choices = [CrashChoice::AllKept, CrashChoice::NoneKept, CrashChoice::Seeded(at as u64)];
            let image = device.crash_state(at, &choices[(at + n) % 3]);
            let what = format!("{what}, killed at {at} of {events}");
            let report = self.check(&image, Repair::Yes);
            assert_eq!(report.remaining(), 0, "{what}: {:#?}", report.issues);
            assert_eq!(self.check(&image, Repair::No).issues, vec![], "{what}: {:#?}", report.issues);
            let now = (self.tree)(&image);
            assert!(now.keys().eq(healed.keys()), "{what}: {:#?}", report.issues);
            assert!(now == *healed, "{what}: {:#?}", report.issues);
        }
    }

    /// The cases, and the issues that have a test of their own, are all issues of the checker.
    pub fn every_issue_is_planted<P>(&self, cases: &[Case<K, P>], alone: &[&'static str], all: &[&'static str]) {
        every_issue_is_planted(cases.iter().flat_map(|c| c.codes.iter().copied()), alone, all);
    }

    /// A check says what it does, and does not claim more than there is.
    pub fn progress(&self, told: &[&str]) {
        let mut steps: Vec<(u64, u64, String)> = Vec::new();
        let options = CheckOptions { repair: Repair::No, force: true };
        let tell = &mut |done, total, what: &str| steps.push((done, total, what.into()));
        self.engine.check(Devices::single(self.good(0).0), &options, tell).expect("check");
        assert!(steps.iter().all(|s| s.0 <= s.1));
        for what in told {
            assert!(steps.iter().any(|s| s.2 == *what), "{what} in {steps:?}");
        }
    }

    /// When the directory `/many` is lost, its files go to lost+found, which grows; empty ones are not kept.
    pub fn a_lost_directory_with_many_files(&self, lose: fn(&K)) {
        for shape in 0..self.shapes.len() {
            let (image, good) = self.good(shape);
            lose(&(self.knife)(image.clone()));
            let report = self.check(&image, Repair::Yes);
            assert!(report.issues.iter().all(|i| i.repaired));
            assert_eq!(self.check(&image, Repair::No).issues, vec![]);
            let now = (self.tree)(&image);
            let kept = good.iter().filter(|(p, f)| p.starts_with("/many/") && f.size > 0).count();
            let found = now.keys().filter(|p| p.starts_with("/lost+found/")).count();
            assert_eq!(found, kept, "{shape}: {:#?}", &report.issues[..report.issues.len().min(5)]);
        }
    }

    /// When the directory `/many` with `count` others is lost, all of them go to lost+found, and each names another parent: more
    /// changes than a checker's cache has room for.
    pub fn a_repair_larger_than_the_cache(&self, size: u64, count: usize, lose: fn(&K)) {
        let image = format(self.engine, size, "");
        let fs = mount(self.engine, image.clone());
        let cx = Cx { uid: 0, gid: 0 };
        let many = fs.mkdir(&cx, fs.root(), b"many", 0o755).expect("mkdir").ino;
        for n in 0..count {
            fs.mkdir(&cx, many, format!("{n}").as_bytes(), 0o755).expect("mkdir");
        }
        fs.unmount().expect("unmount");
        drop(fs);
        lose(&(self.knife)(image.clone()));
        let open = self.check(&image, Repair::Yes).issues.into_iter().find(|i| !i.repaired);
        assert_eq!(open, None);
        assert_eq!(self.check(&image, Repair::No).issues.first(), None);
        let fs = mount(self.engine, image);
        let found = fs.lookup(fs.root(), b"lost+found").expect("it was made").ino;
        assert_eq!(below(&*fs, "", found).len(), count);
    }

    /// Of the directory `/many`, whose first block `lose` takes away, the names in its other blocks stay.
    pub fn a_directory_without_its_first_block(&self, lose: fn(&K)) {
        for shape in 0..self.shapes.len() {
            let (image, good) = self.good(shape);
            lose(&(self.knife)(image.clone()));
            assert!(self.check(&image, Repair::Yes).issues.iter().all(|i| i.repaired));
            let now = (self.tree)(&image);
            let files: Vec<_> = good.iter().filter(|(p, f)| p.starts_with("/many/") && f.size > 0).collect();
            let stay = files.iter().filter(|(p, f)| now.get(*p) == Some(f)).count();
            let found = now.keys().filter(|p| p.starts_with("/lost+found/")).count();
            assert!(
                stay > 0 && found > 0 && stay + found == files.len(),
                "{shape}: {stay}, {found} of {}",
                files.len()
            );
        }
    }

    /// A check of one path reads what lies on it, finds nothing where there is nothing, and writes nothing.
    pub fn good_paths(&self) {
        let (image, _) = self.good(0);
        let path = |path: &str| self.engine.check_path(Devices::single(image.clone()), path.as_bytes());
        image.set_read_only(true);
        for (p, inodes) in
            [("/", 1), ("/a/sub/subsub/leaf", 5), ("b/sparse", 3), ("/many", 2), ("/a/fast", 3), ("a/null", 3)]
        {
            let report = path(p).expect("check");
            assert_eq!((report.issues, report.files), (vec![], inodes), "{p}");
        }
        for p in ["/nobody", "/a/small/x", "/many/99999"] {
            assert!(path(p).expect_err("missing").to_string().contains("there is no"), "{p}");
        }
    }

    /// Each damage alone is met at its place by a mounted volume.
    pub fn names_places(&self, shape: usize, all: &[Met<K>]) {
        for (structure, field, damage) in all {
            let (image, _) = self.good(shape);
            let place = damage(&(self.knife)(image.clone()));
            let _damaged = OnDamage::begin();
            names_the_place(self.engine, Devices::single(image), (structure, field), place);
        }
    }

    /// Damage on a path is found by a check of that path, which says so, and not by a check of another.
    pub fn on_path(&self, path: &str, code: &str, says: &str, damage: fn(&K)) {
        let (image, _) = self.good(0);
        let issues =
            |path: &str| self.engine.check_path(Devices::single(image.clone()), path.as_bytes()).expect("check").issues;
        damage(&(self.knife)(image.clone()));
        let before = image.to_bytes();
        let found = issues(path);
        assert!(found.iter().any(|i| i.code == code && i.text.contains(says)), "{code} at {path}: {found:#?}");
        assert_eq!(issues("/wide/3"), vec![], "{code} at {path} does not matter elsewhere");
        assert!(before == image.to_bytes(), "nothing is written");
    }
}
