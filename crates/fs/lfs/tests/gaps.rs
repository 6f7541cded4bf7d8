//! Where a summary is damaged, inodes are searched for. What users have written there may look like one.

mod damage_kit;

use arbor_base::device::{Device as _, Kind, MemDevice};
use arbor_base::layout::crc_without;
use arbor_base::vfs::*;
use arbor_lfs::Lfs;
use arbor_lfs::format::*;
use damage_kit::*;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

fn make(fs: &Arc<dyn FileSystem>, name: &str, data: &[u8]) -> Ino {
    let ino = fs.mknod(&CX, fs.root(), name.as_bytes(), mode::IFREG | 0o644, 0).unwrap().ino;
    for (n, piece) in data.chunks(1 << 16).enumerate() {
        assert_eq!(fs.write(ino, (n << 16) as u64, piece).unwrap(), piece.len());
    }
    ino
}

fn synced(fs: &Arc<dyn FileSystem>, names: &[&str]) {
    for name in names {
        make(fs, name, b"x");
        fs.syncfs().unwrap();
    }
}

fn summaries(dev: &MemDevice) -> Vec<(u64, Summary)> {
    let mut all = Vec::new();
    let devices = Devices::single(dev.snapshot());
    Lfs.structures(&devices, &mut |s| all.extend((s.kind == "summary").then_some(s.offset))).unwrap();
    let bytes = dev.to_bytes();
    all.into_iter().map(|at| (at, Summary::read_from_prefix(&bytes[at as usize..]).unwrap().0)).collect()
}

/// The last summary before the place where these bytes lie.
fn summary_before(dev: &MemDevice, needle: &[u8]) -> u64 {
    let bytes = dev.to_bytes();
    let at = (0..bytes.len()).step_by(512).find(|at| bytes[*at..].starts_with(needle)).unwrap() as u64;
    summaries(dev).into_iter().map(|s| s.0).filter(|s| *s < at).max().unwrap()
}

/// The newest inode of this number.
fn inode(dev: &MemDevice, fsid: u64, ino: Ino) -> Dinode {
    let bytes = dev.to_bytes();
    let sound = bytes
        .chunks_exact(INODE)
        .filter(|b| crc_without(b, CRC_AT) == Some(Dinode::read_from_bytes(b).unwrap().crc.get()));
    let mut all = sound.map(|b| Dinode::read_from_bytes(b).unwrap());
    all.rfind(|d| d.fsid.get() == fsid && u64::from(d.ino.get()) == ino.0).expect("an inode")
}

fn sealed(mut d: Dinode) -> Vec<u8> {
    d.crc = 0.into();
    d.crc = crc_without(d.as_bytes(), CRC_AT).unwrap().into();
    d.as_bytes().to_vec()
}

/// Damages a summary and repairs the volume.
fn without(dev: &MemDevice, summary: u64) -> (MemDevice, Tree) {
    let hurt = dev.snapshot();
    ImageCorruptor::new(hurt.clone()).flip(summary + 20);
    assert_eq!(check(&hurt, Repair::Yes).remaining(), 0, "summary {summary:#x}");
    let tree = tree(&hurt);
    (hurt, tree)
}

const VICTIM: &[u8] = b"the victim's own bytes";

#[test]
fn what_a_user_has_written_is_no_inode() {
    let dev = format(64 << 20, "");
    let fs = mount(dev.clone());
    let victim = make(&fs, "victim", &VICTIM.repeat(100));
    fs.syncfs().unwrap();
    let fsid = fs.statfs().unwrap().fsid;
    let d = Dinode { mode: (mode::IFREG | 0o4777).into(), ..inode(&dev, fsid, victim) };
    for forged in [
        Dinode { version: u32::MAX.into(), ..d },
        Dinode { version: (d.version.get() + 1).into(), ..d },
        Dinode { ino: 250_000.into(), ..d },
    ] {
        let image = dev.snapshot();
        let fs = mount(image.clone());
        synced(&fs, &["before"]);
        let bytes = sealed(forged);
        make(&fs, "evil", &bytes.repeat(70));
        fs.syncfs().unwrap();
        synced(&fs, &["behind", "last"]);
        let (hurt, tree) = without(&image, summary_before(&image, &bytes));
        assert_eq!(tree["/victim"].mode, mode::IFREG | 0o644, "{forged:?}");
        assert!(tree.contains_key("/evil") && tree.contains_key("/behind"), "{:?}", tree.keys());
        let used = mount(hurt).statfs().unwrap();
        assert!(used.files - used.ffree < 20, "{used:?}");
    }
}

/// A copy of the volume's image, with a header as `tar` makes one, has older states of inodes and those of removed files.
#[test]
fn a_copy_of_the_volume_in_it_has_none() {
    let dev = format(64 << 20, "");
    let fs = mount(dev.clone());
    let victim = make(&fs, "victim", &b"OLD bytes of the victim ".repeat(400));
    make(&fs, "gone", &b"of the removed ".repeat(400));
    fs.syncfs().unwrap();
    let copy = [vec![1; 512], dev.to_bytes()[..256 << 10].to_vec()].concat();
    let new = b"NEW bytes of the victim ".repeat(500);
    fs.write(victim, 0, &new).unwrap();
    fs.unlink(fs.root(), b"gone").unwrap();
    fs.syncfs().unwrap();
    synced(&fs, &["before"]);
    make(&fs, "copy", &copy);
    fs.syncfs().unwrap();
    synced(&fs, &["behind", "last"]);
    let all = summaries(&dev);
    assert!(all.len() > 5);
    let told_of_removal = summary_before(&dev, b"NEW bytes");
    for (summary, _) in all {
        let (_, tree) = without(&dev, summary);
        assert!(tree["/victim"].content.ends_with(&new), "summary {summary:#x}");
        let back: Vec<&String> = tree.keys().filter(|p| p.contains("gone") || p.starts_with("/lost+found/")).collect();
        assert!(back.is_empty() || summary == told_of_removal, "summary {summary:#x}: {back:?}");
    }
}

/// Of a set that was cut off nothing counts, also where one of its summaries is missing.
#[test]
fn inodes_of_a_set_that_was_cut_off_do_not_count() {
    const FILES: usize = 3000;
    let (dev, clock) = (format(64 << 20, ""), Arc::new(ManualClock::new(Time { secs: 1_000_000, nanos: 0 })));
    let fs = Lfs.mount(Devices::single(dev.clone()), &MountOptions::default(), clock.clone()).unwrap();
    let contents = |age: &str, n: usize| format!("{age} {n:05} ").repeat(20).into_bytes();
    let inos: Vec<Ino> = (0..FILES).map(|n| make(&fs, &format!("v{n}"), &contents("OLD", n))).collect();
    fs.syncfs().unwrap();
    synced(&fs, &["between"]);
    clock.advance_ms(10_000);
    let before = dev.to_bytes();
    for (n, ino) in inos.iter().enumerate() {
        fs.write(*ino, 0, &contents("NEW", n)).unwrap();
    }
    fs.syncfs().unwrap();
    let all = summaries(&dev);
    let last = all.iter().map(|s| s.1.group.get()).max().unwrap();
    let set: Vec<_> = all.iter().filter(|s| s.1.group.get() == last).collect();
    let cut =
        set[..set.len() - 1].iter().rfind(|s| s.1.inodes.get() > 0).expect("a part with inodes that is not the last");
    let knife = ImageCorruptor::new(dev.snapshot());
    let bytes = |frags: u32| knife.geom.bytes_of(frags);
    // Not written are this summary, and what lies behind the set's first one.
    let parts = [
        (cut.0 as usize, bytes(cut.1.summary_frags.get())),
        (
            set[0].0 as usize + bytes(set[0].1.summary_frags.get()),
            bytes(set[0].1.frags.get() - set[0].1.summary_frags.get()),
        ),
    ];
    for (at, len) in parts {
        knife.write(at as u64, &before[at..at + len]);
    }
    knife.checkpoints().iter().for_each(|(at, _)| knife.dev.write_at(Kind::Super, *at, &[0; 512]).unwrap());
    assert_eq!(check(&knife.dev, Repair::Yes).remaining(), 0);
    let tree = tree(&knife.dev);
    let old = (0..FILES)
        .filter(|n| tree.get(&format!("/v{n}")).is_some_and(|item| item.content.ends_with(&contents("OLD", *n))));
    assert_eq!(old.count(), FILES);
}
