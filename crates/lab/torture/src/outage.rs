//! Reads fail for a while, as while a drive is reset. A repair takes what it cannot read then for what it is: neither damaged nor
//! gone. It may end with an error, and loses nothing.

use crate::damage::{Tree, check, codes, format, mount, tree};
use arbor_base::device::{FaultDevice, FaultOp, FaultTimes, MemDevice};
use arbor_base::vfs::{CheckOptions, Cx, Devices, Engine, FileSystem, Ino, Repair, mode};
use std::panic::AssertUnwindSafe;

const CX: Cx = Cx { uid: 0, gid: 0 };
/// How many reads fail.
const LENGTHS: [u64; 6] = [2, 7, 40, 250, 2000, u64::MAX];
/// Reads of a check at which it begins, at most.
const BEGINNINGS: u64 = 60;

/// Repairs a volume that was unmounted, and one that was not, while reads fail. All files stay, whatever it says.
pub fn an_outage_costs_nothing(engine: &dyn Engine, options: &str) {
    let unmounted = format(engine, 64 << 20, options);
    let fs = mount(engine, unmounted.clone());
    fill(&*fs);
    let crashed = unmounted.snapshot();
    fs.unmount().expect("unmount");
    drop(fs);
    let mut wrong = Vec::new();
    for (what, image) in [("unmounted", unmounted), ("crashed", crashed)] {
        let all = tree(engine, &image.snapshot());
        let counted = FaultDevice::new(image.snapshot());
        drop(engine.check(Devices::single(counted.clone()), &REPAIR, &mut |_, _, _| ()));
        let reads = counted.count(FaultOp::Read);
        assert!(reads > 5, "{reads} reads");
        for nth in (1..=reads).step_by(reads.div_ceil(BEGINNINGS) as usize) {
            for len in LENGTHS {
                let device = FaultDevice::new(image.snapshot());
                device.fail(FaultOp::Read, nth, FaultTimes::Run(len));
                wrong.extend(repaired(engine, device, &all).err().map(|e| format!("{what}, {nth} and {len}: {e}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of them: {:#?}", wrong.len(), &wrong[..wrong.len().min(20)]);
}

const REPAIR: CheckOptions = CheckOptions { repair: Repair::Yes, force: true };

fn fill(fs: &dyn FileSystem) {
    let file = |dir: Ino, name: String| {
        let ino = fs.mknod(&CX, dir, name.as_bytes(), mode::IFREG | 0o644, 0).expect("mknod").ino;
        fs.write(ino, 0, name.repeat(900).as_bytes()).expect("write");
        fs.forget(ino, 1);
    };
    for group in 0..5 {
        let dir = fs.mkdir(&CX, fs.root(), format!("dir {group}").as_bytes(), 0o755).expect("mkdir").ino;
        (0..10).for_each(|n| file(dir, format!("file {group} {n}")));
        fs.forget(dir, 1);
        fs.syncfs().expect("syncfs");
    }
}

/// Repairs it during the outage, and once more afterwards.
fn repaired(engine: &dyn Engine, device: FaultDevice<MemDevice>, all: &Tree) -> Result<(), String> {
    let image = device.inner().clone();
    let during = engine.check(Devices::single(device), &REPAIR, &mut |_, _, _| ());
    let said = during.as_ref().map(|report| format!("left {} of {:?}", report.remaining(), codes(report)));
    let said = said.unwrap_or_else(|e| e.to_string());
    let report = check(engine, image.clone(), Repair::Yes);
    if report.remaining() > 0 {
        return Err(format!("{said}; afterwards {:?}", codes(&report)));
    }
    let found = std::panic::catch_unwind(AssertUnwindSafe(|| tree(engine, &image)));
    let mut found = found.map_err(|_| format!("{said}; afterwards it cannot be read"))?;
    found.retain(|path, _| path != "/lost+found");
    match found == *all {
        true => Ok(()),
        false => Err(format!("{said}; {} of {} paths are left", found.len(), all.len())),
    }
}
