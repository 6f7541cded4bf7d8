//! Mechanisms that can be switched off do nothing then.

use arbor_base::device::{Kind, MemDevice};
use arbor_base::vfs::*;
use arbor_yfs::Yfs;
use std::collections::BTreeSet;
use std::sync::Arc;

fn volume(format: &str, mount: &str) -> (MemDevice, Arc<dyn FileSystem>) {
    let dev = MemDevice::new(256 << 20);
    let options = Options::parse(&format!("ag=16M,logsize=2M,{format}"));
    let options = FormatOptions { uuid: [7; 16], options, ..FormatOptions::default() };
    Yfs.format(Devices::single(dev.clone()), &options).expect("format");
    let options = MountOptions { options: Options::parse(mount), ..MountOptions::default() };
    let fs = Yfs.mount(Devices::single(dev.clone()), &options, Arc::new(ManualClock::default())).expect("mount");
    (dev, fs)
}

fn file(fs: &dyn FileSystem, name: &str, data: &[u8]) -> Ino {
    let ino = fs.mknod(&Cx::default(), fs.root(), name.as_bytes(), mode::IFREG | 0o644, 0).expect("mknod").ino;
    assert_eq!(fs.write(ino, 0, data).expect("write"), data.len());
    ino
}

fn counter(fs: &dyn FileSystem, name: &str) -> u64 {
    fs.counters().iter().find(|c| c.0 == name).map_or(0, |c| c.1)
}

#[test]
fn all_groups_are_in_use_and_directories_under_the_root_are_spread() {
    let groups_of_dirs = |format| {
        let (dev, fs) = volume(format, "");
        let group = |n: u32| {
            let name = format!("d{n}");
            // An inode's number is its sector.
            fs.mkdir(&Cx::default(), fs.root(), name.as_bytes(), 0o755).expect("mkdir").ino.0 * 512 / (16 << 20)
        };
        let groups: BTreeSet<u64> = (0..40).map(group).collect();
        fs.unmount().expect("unmount");
        let report = Yfs.check(Devices::single(dev), &CheckOptions::default(), &mut |_, _, _| ()).expect("check");
        assert!(report.issues.is_empty(), "{:?}", report.issues);
        groups.len()
    };
    assert_eq!(groups_of_dirs("groups=lazy"), 1);
    assert!(groups_of_dirs("groups=all") > 10);
}

/// Two files that are written in turns lie in one piece each if space is allocated later.
#[test]
fn space_is_allocated_by_the_write_itself() {
    for (mount, in_pieces) in [("", false), ("nodelay", true)] {
        let (dev, fs) = volume("", mount);
        let files = ["a", "b"].map(|name| file(&*fs, name, &[1; 4096]));
        for n in 1..20 {
            for ino in files {
                fs.write(ino, n * 4096, &[2; 4096]).expect("write");
            }
        }
        assert_eq!(counter(&*fs, "data_writes"), 0, "{mount}: nothing is written yet");
        let (blocks, free) = (fs.getattr(files[0]).expect("getattr").blocks, fs.statfs().expect("statfs").bfree);
        assert!((160..=176).contains(&blocks), "{mount}: {blocks} blocks of 512 bytes for 80 KiB");
        fs.syncfs().expect("syncfs");
        assert!(fs.getattr(files[0]).expect("getattr").blocks <= blocks, "{mount}");
        assert!(fs.statfs().expect("statfs").bfree >= free, "{mount}: space was counted twice");
        fs.unmount().expect("unmount");
        let mut ends = Vec::new();
        let mut pieces = 0;
        Yfs.describe(&Devices::single(dev), &mut |r| {
            if r.owner == Some(files[0]) && r.kind == Kind::Data {
                pieces += usize::from(!ends.contains(&r.offset));
                ends.push(r.offset + r.len);
            }
        })
        .expect("describe");
        assert_eq!(pieces > 10, in_pieces, "{mount}: {pieces} pieces");
    }
}

#[test]
fn what_is_small_has_blocks() {
    for (mount, has_blocks) in [("", false), ("noinline", true)] {
        let (dev, fs) = volume("", mount);
        let ino = file(&*fs, "small", b"ten bytes.");
        let dir = fs.mkdir(&Cx::default(), fs.root(), b"dir", 0o755).expect("mkdir").ino;
        fs.mknod(&Cx::default(), dir, b"name", mode::IFREG | 0o644, 0).expect("mknod");
        fs.syncfs().expect("syncfs");
        fs.unmount().expect("unmount");
        let mut owners = BTreeSet::new();
        Yfs.describe(&Devices::single(dev.clone()), &mut |r| {
            owners.extend(r.owner.filter(|_| matches!(r.kind, Kind::Data | Kind::Dir)));
        })
        .expect("describe");
        assert_eq!((owners.contains(&ino), owners.contains(&dir)), (has_blocks, has_blocks), "{mount}");
        let fs =
            Yfs.mount(Devices::single(dev), &MountOptions::default(), Arc::new(ManualClock::default())).expect("mount");
        let mut read = [0; 10];
        assert_eq!(fs.read(ino, 0, &mut read).expect("read"), 10);
        assert_eq!(&read, b"ten bytes.");
    }
}

#[test]
fn the_transaction_of_each_call_is_logged_by_itself() {
    let logged = |mount| {
        let (_dev, fs) = volume("", mount);
        for n in 0..100 {
            file(&*fs, &format!("f{n}"), b"");
        }
        fs.syncfs().expect("syncfs");
        counter(&*fs, "log_transactions")
    };
    let (joined, single) = (logged(""), logged("nocompound"));
    assert!(single >= 100 && joined < 50, "{joined} and {single}");
}
