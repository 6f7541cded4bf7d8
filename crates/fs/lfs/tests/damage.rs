//! Each issue of the checker planted in a good image, found, mended; the other files intact.

mod damage_kit;

use arbor_base::device::MemDevice;
use arbor_base::layout::get_u32;
use arbor_base::vfs::*;
use arbor_lfs::Lfs;
use arbor_lfs::format::*;
use arbor_torture::damage::{self, Damage, Healed, case};
use damage_kit::*;
use std::sync::OnceLock;

const SHAPES: [(u64, &str); 3] = [
    (16 << 20, "block=4K,segment=256K"),
    (48 << 20, "block=16K,segment=1M"),
    (24 << 20, "block=8K,frag=8K,segment=512K"),
];

static DAMAGE: Damage<ImageCorruptor> = Damage {
    engine: &Lfs,
    shapes: &SHAPES,
    build,
    tree,
    knife: ImageCorruptor::new,
    is_lost: damage::is_below,
    good: OnceLock::new(),
};

fn good(shape: usize) -> (MemDevice, &'static Tree) {
    DAMAGE.good(shape)
}

#[test]
fn a_good_image_has_no_issues() {
    DAMAGE.good_images_have_no_issues();
}

/// With whether preening mends it.
type Case = damage::Case<ImageCorruptor, bool>;

fn cases() -> Vec<Case> {
    [volume(), counts_and_lists(), inodes(), blocks_and_links(), directories()].into_iter().flatten().collect()
}

fn volume() -> Vec<Case> {
    vec![
        case(&["SuperDamaged"], false, &[], |k| k.write(0, &[0; 512])),
        case(&["SuperDamaged"], false, &[], |k| k.flip(60)),
        case(&["SuperDamaged"], false, &[], |k| k.flip(0)),
        case(&["SuperDamaged"], false, &[], |k| k.super_at(0, |sb| sb.seg_shift = (sb.seg_shift.get() + 1).into())),
        case(&["SuperDamaged"], false, &[], |k| k.super_at(0, |sb| sb.uuid = [9; 16])),
        case(&["SuperDamaged", "SuperCopy"], false, &[], |k| {
            k.flip(130);
            k.flip(2);
            k.write(k.geom.copy_at(), &[0; 512]);
        }),
        case(&["SuperCopy"], true, &[], |k| k.write(k.geom.copy_at(), &[0; 512])),
        case(&["SuperCopy"], true, &[], |k| k.super_at(k.geom.copy_at(), |sb| sb.uuid[0] ^= 9)),
        case(&["Checkpoint"], true, &[], |k| k.flip(k.checkpoints()[0].0 + 50)),
        case(&["Checkpoint"], true, &[], |k| k.lose_older()),
        case(&["Checkpoint"], true, &[], |k| k.checkpoint(|cp| cp.ifile = 3.into())),
        case(&["Checkpoint"], true, &[], |k| k.checkpoint(|cp| cp.offset = (cp.offset.get() - 1).into())),
        case(&["Checkpoint"], true, &[], |k| k.checkpoint(|cp| cp.inodes = u32::MAX.into())),
        case(&["Checkpoint"], true, &[], |k| k.checkpoint(|cp| cp.fill = u64::MAX.into())),
        case(&["Checkpoint"], true, &[], |k| {
            let live = k.seg_of(k.ino("/b/big"), FileBlock::Data(0));
            k.checkpoint(|cp| cp.next_seg = live.0.into());
        }),
        case(&["Checkpoint"], true, &[], |k| k.write(k.inode_byte(IFILE.0), &[7; 9])),
        case(&["Checkpoint"], true, &[], |k| k.flip(k.byte_of(IFILE.0, k.map_block()) + 40)),
        case(&["IfileLost"], false, &[""], |k| {
            k.flip(k.behind_older() + 20);
            k.write(k.inode_byte(IFILE.0), &[7; 9]);
        }),
        case(&["Checkpoint", "LogEnd"], false, &[""], |k| {
            let group = k.checkpoints()[1].1.group.get();
            let behind = k.summaries().into_iter().filter(|s| s.1.group.get() >= group);
            k.write(k.inode_byte(IFILE.0), &[7; 9]);
            behind.for_each(|(at, _)| k.flip(at + 20));
        }),
        case(&["Checkpoint", "IfileBlock"], false, &[], |k| {
            k.lose_older();
            k.flip(k.byte_of(IFILE.0, k.map_block()) + 40);
        }),
        case(&["Checkpoint", "IfileBlock"], false, &[], |k| {
            k.lose_older();
            k.flip(k.byte_of(IFILE.0, FileBlock::Data(0)) + 5);
        }),
        case(&["Checkpoint", "IfileBlock"], false, &[], |k| {
            k.lose_older();
            k.flip(k.byte_of(IFILE.0, FileBlock::Map { level: 2, n: 0 }) + 5);
        }),
        case(&["IfileLost"], false, &[], |k| k.checkpoints().iter().for_each(|(at, _)| k.write(*at, &[0; 512]))),
        case(&["IfileLost"], false, &[], |k| {
            k.lose_older();
            k.write(k.inode_byte(IFILE.0), &[7; INODE]);
        }),
        case(&["LogPlace", "DataDamaged"], false, &["/b/big"], |k| {
            let cp = k.newest();
            let beyond = k.geom.seg_start(Seg(cp.seg.get())).0 + cp.offset.get();
            let room = k.geom.seg_frags() - cp.offset.get();
            assert!(room >= k.geom.block_frags(), "there is room after the log");
            k.set_pointer(k.ino("/b/big"), FileBlock::Data(4), Pointer { frag: beyond.into(), crc: 4.into() });
        }),
    ]
}

fn counts_and_lists() -> Vec<Case> {
    vec![
        case(&["MapEnd"], true, &[], |k| k.checkpoint(|cp| cp.inodes = (cp.inodes.get() - 1).into())),
        case(&["InodeCount"], true, &[], |k| k.checkpoint(|cp| cp.used_inodes = (cp.used_inodes.get() - 1).into())),
        case(&["VolumeFrags"], true, &[], |k| k.checkpoint(|cp| cp.file_frags = (cp.file_frags.get() + 3).into())),
        case(&["FreeList"], true, &[], |k| k.checkpoint(|cp| cp.free_ino = 0.into())),
        case(&["FreeList"], true, &[], |k| {
            let used = k.ino("/a/small") as u32;
            k.checkpoint(|cp| cp.free_ino = used.into());
        }),
        case(&["FreeList"], true, &[], |k| {
            let free = k.free_inode();
            k.put_entry(free, |e| e.next_free = (free as u32).into());
        }),
        case(&["FreeList"], true, &[], |k| k.put_entry(k.free_inode(), |e| e.next_free = u32::MAX.into())),
        case(&["OrphanList"], true, &[], |k| {
            let used = k.ino("/a/small") as u32;
            k.checkpoint(|cp| cp.orphan = used.into());
        }),
        case(&["OrphanList"], true, &[], |k| k.checkpoint(|cp| cp.orphan = u32::MAX.into())),
        case(&["OrphanList"], false, &["/a/tail", "/wide/3"], |k| {
            let ino = k.ino("/a/tail");
            k.name("/a/tail", 0, &[0; 4]);
            k.inode(ino, |d| (d.nlink, d.next_orphan) = (0.into(), (ino as u32).into()));
            k.checkpoint(|cp| cp.orphan = (ino as u32).into());
            // A volume that was not unmounted has such a list, but no loop in it; and a directory is damaged.
            k.name("/a/pipe", 6, &[6]);
            k.name("/wide/3", 8, b"/");
        }),
        case(&["Orphans"], true, &["/a/tail"], |k| {
            let ino = k.ino("/a/tail");
            k.name("/a/tail", 0, &[0; 4]);
            k.inode(ino, |d| d.nlink = 0.into());
            k.checkpoint(|cp| cp.orphan = (ino as u32).into());
        }),
        case(&["Usage"], true, &[], |k| {
            k.usage(k.seg_of(k.ino("/b/big"), FileBlock::Data(0)), |u| u.live = (u.live.get() + 256).into());
        }),
        case(&["Usage"], true, &[], |k| k.usage(k.seg_of(k.ino("/b/big"), FileBlock::Data(0)), |u| u.live = 0.into())),
        case(&["Usage"], true, &[], |k| {
            k.usage(k.seg_of(k.ino("/b/big"), FileBlock::Data(0)), |u| (u.live, u.flags) = (0.into(), 0.into()));
        }),
        case(&["Usage"], true, &[], |k| k.usage(k.seg_of(k.ino("/b/big"), FileBlock::Data(0)), |u| u.flags = 0.into())),
        case(&["Usage"], true, &[], |k| {
            k.usage(Seg(k.newest().segs.get() - 1), |u| (u.live, u.flags) = (5.into(), DIRTY.into()));
        }),
        case(&["Summary"], true, &[], |k| k.flip(k.summary(k.seg_of(k.ino("/b/big"), FileBlock::Data(0))) + 20)),
    ]
}

fn inodes() -> Vec<Case> {
    vec![
        case(&["InodeDamaged"], false, &["/a/small", "/b/hard"], |k| k.flip(k.inode_byte(k.ino("/a/small")) + 20)),
        case(&["InodeDamaged"], false, &["/a/sub"], |k| k.inode(k.ino("/a/sub"), |d| d.mode = 0o30644.into())),
        case(&["InodeDamaged"], false, &["/a/slow"], |k| k.inode(k.ino("/a/slow"), |d| d.size = 1_000_000.into())),
        case(&["InodeDamaged"], false, &["/a/sub"], |k| k.inode(k.ino("/a/sub"), |d| d.db = Default::default())),
        case(&["InodeDamaged"], false, &["/a/tail"], |k| k.inode(k.ino("/a/tail"), |d| d.version = 99.into())),
        case(&["InodeDamaged"], false, &["/a/tail"], |k| k.put_entry(k.ino("/a/tail"), |e| e.frag = 1.into())),
        case(&["InodeDamaged"], false, &["/a/tail"], |k| {
            k.put_entry(k.ino("/a/tail"), |e| e.frag = k.newest().ifile);
        }),
        case(&["InodeDamaged", "InodeOlder"], false, &["/b/twice"], |k| {
            k.flip(k.inode_byte(k.ino("/b/twice")) + 20);
        }),
        case(&["InodeSize"], false, &["/b/big"], |k| k.inode(k.ino("/b/big"), |d| d.size = u64::MAX.into())),
        case(&["InodeSize"], false, &["/a/tail"], |k| k.inode(k.ino("/a/tail"), |d| d.size = (1 << 60).into())),
        case(&["InodeSize"], false, &[], |k| k.inode(k.ino("/many"), |d| d.size = (d.size.get() + 5).into())),
        case(&["InodeSize"], false, &["/a/null"], |k| k.inode(k.ino("/a/null"), |d| d.size = 5.into())),
        case(&["BadPointers"], false, &["/b/big"], |k| k.inode(k.ino("/b/big"), |d| d.db[3].frag = 1.into())),
        case(&["BadPointers"], false, &["/b/big"], |k| k.inode(k.ino("/b/big"), |d| d.db[3].frag = UNWRITTEN.into())),
        case(&["BadPointers"], false, &["/b/big"], |k| k.inode(k.ino("/b/big"), |d| d.ib[0].frag = u32::MAX.into())),
        case(&["Indirect"], false, &["/b/big"], |k| {
            k.flip(k.byte_of(k.ino("/b/big"), FileBlock::Map { level: 1, n: 0 }) + 8)
        }),
        case(&["Indirect"], false, &["/b/sparse"], |k| {
            k.flip(k.byte_of(k.ino("/b/sparse"), FileBlock::Map { level: 3, n: 0 }) + 8)
        }),
        case(&["DataDamaged"], false, &["/b/big"], |k| k.flip(k.byte_of(k.ino("/b/big"), FileBlock::Data(20)) + 100)),
        case(&["DataDamaged"], false, &["/a/small", "/b/hard"], |k| {
            k.flip(k.byte_of(k.ino("/a/small"), FileBlock::Data(0)));
        }),
        case(&["DataDamaged"], false, &["/b/big"], |k| k.inode(k.ino("/b/big"), |d| d.db[3].crc = 1.into())),
        case(&["BeyondSize"], true, &[], |k| k.inode(k.ino("/a/small"), |d| d.db[5].frag = 900.into())),
    ]
}

fn blocks_and_links() -> Vec<Case> {
    vec![
        case(&["Duplicate"], false, &["/a/tail2"], |k| {
            let taken = k.get(k.ino("/a/small")).db[0];
            k.inode(k.ino("/a/tail2"), |d| d.db[0] = taken);
        }),
        case(&["Duplicate"], false, &["/b/sparse"], |k| {
            let ib = k.get(k.ino("/b/big")).ib[0];
            k.inode(k.ino("/b/sparse"), |d| d.ib[0] = ib);
        }),
        case(&["Duplicate"], false, &["/b/big"], |k| {
            let ifile = k.pointer(IFILE.0, k.map_block());
            k.inode(k.ino("/b/big"), |d| d.db[2] = ifile);
        }),
        // Whoever is read first is not the owner for that.
        case(&["Duplicate"], false, &["/a/small", "/b/hard"], |k| {
            let taken = k.get(k.ino("/a/tail2")).db[0];
            assert!(k.ino("/a/small") < k.ino("/a/tail2"));
            k.inode(k.ino("/a/small"), |d| d.db[0] = taken);
        }),
        case(&["Duplicate"], false, &["/a/small", "/b/hard"], |k| {
            let taken = k.get(k.ino("/a/tail2")).db[0].frag;
            k.inode(k.ino("/a/small"), |d| d.db[0].frag = taken);
        }),
        case(&["Duplicate"], false, &["/a/small", "/b/hard"], |k| {
            let dir = k.ino("/many");
            assert!(k.ino("/a/small") < dir);
            let taken = k.get(dir).db[1].frag;
            k.inode(k.ino("/a/small"), |d| d.db[0].frag = taken);
        }),
        case(&["Duplicate"], false, &["/a/small", "/b/hard"], |k| {
            let taken = k.entry(k.ino("/b/heavy")).frag.get();
            k.inode(k.ino("/a/small"), |d| d.db[0].frag = taken.into());
        }),
        case(&["Indirect"], false, &["/b/big"], |k| {
            let (big, dir) = (k.ino("/b/big"), k.ino("/many"));
            assert!(big < dir);
            let taken = k.get(dir).db[1].frag;
            k.inode(big, |d| d.ib[0].frag = taken);
        }),
        case(&["Duplicate"], false, &["/a/sub"], |k| {
            let (dir, file) = (k.ino("/a/sub"), k.ino("/b/big"));
            assert!(dir < file);
            let taken = k.get(file).db[1].frag;
            k.inode(dir, |d| d.db[0].frag = taken);
        }),
        case(&["Xattr"], false, &["/b/heavy"], |k| k.flip(k.byte_of(k.ino("/b/heavy"), FileBlock::Xattr(0)) + 50)),
        case(&["Xattr"], false, &["/b/heavy"], |k| k.inode(k.ino("/b/heavy"), |d| d.xattr_len = u32::MAX.into())),
        case(&["Xattr"], false, &["/b/heavy"], |k| k.inode(k.ino("/b/heavy"), |d| d.xattr.frag = 3.into())),
        case(&["FragCount"], true, &[], |k| k.inode(k.ino("/b/big"), |d| d.frags = (d.frags.get() + 3).into())),
        case(&["FragCount"], true, &[], |k| k.inode(k.ino("/b/big"), |d| d.frags = u64::MAX.into())),
        case(&["LinkCount"], true, &["/a/small", "/b/hard"], |k| k.inode(k.ino("/b/hard"), |d| d.nlink = 9.into())),
        case(&["LinkCount"], true, &["/a/small", "/b/hard"], |k| k.inode(k.ino("/b/hard"), |d| d.nlink = 0.into())),
        case(&["LinkCount"], true, &[], |k| k.inode(k.ino("/a"), |d| d.nlink = 7.into())),
        case(&["Unnamed"], false, &["/a/tail"], |k| k.name("/a/tail", 0, &[0; 4])),
        case(&["Unnamed"], false, &["/a/sub"], |k| k.name("/a/sub", 0, &[0; 4])),
        case(&["Unnamed"], false, &["/a/tail"], |k| {
            k.inode(k.ino("/a/tail"), |d| d.nlink = 0.into());
            k.name("/a/tail", 0, &[0; 4]);
        }),
    ]
}

fn directories() -> Vec<Case> {
    vec![
        case(&["LinkCount"], true, &[], |k| k.inode(2, |d| d.nlink = 0.into())),
        case(&["RootLost"], false, &["/", ""], |k| k.put_entry(2, |e| e.frag = 0.into())),
        case(&["RootLost"], false, &["/", ""], |k| k.inode(2, |d| d.mode = 0o100644.into())),
        case(&["InodeDamaged"], false, &["/", ""], |k| k.flip(k.inode_byte(2) + 20)),
        case(&["DirHole"], false, &["/many"], |k| k.inode(k.ino("/many"), |d| d.db[0] = Pointer::default())),
        case(&["DirHole"], false, &["/many"], |k| k.inode(k.ino("/many"), |d| d.db[1] = Pointer::default())),
        case(&["DirHole"], false, &[], |k| k.inode(k.ino("/wide"), |d| d.size = (1 << 31).into())),
        case(&["DirBlock"], false, &["/many"], |k| k.flip(k.byte_of(k.ino("/many"), FileBlock::Data(0)) + 1030)),
        case(&["DirBlock"], false, &["/many"], |k| {
            k.write(k.byte_of(k.ino("/many"), FileBlock::Data(0)), &[0xab; 4096]);
        }),
        case(&["DirChunk"], false, &["/many"], |k| k.dir(k.ino("/many"), 512, &[0xab; 512])),
        case(&["DirChunk"], false, &["/many"], |k| k.dir(k.ino("/many"), 1024, &[0; 512])),
        case(&["Dots"], false, &[], |k| k.dir(k.ino("/a"), 0, &[9])),
        case(&["Dots"], false, &[], |k| k.dir(k.ino("/a"), 20, b"xx")),
        case(&["Dots", "Unnamed"], false, &["/wide"], |k| k.dir(k.ino("/wide"), 0, &[0; 512])),
        case(&["DotDot"], true, &[], |k| k.dir(k.ino("/a/sub/subsub"), 12, &[2, 0])),
        case(&["EntryName"], false, &["/a/tail"], |k| k.name("/a/tail", 9, b"/")),
        case(&["EntryTarget"], false, &["/a/tail"], |k| {
            k.name("/a/tail", 0, &(k.free_inode() as u32).to_le_bytes());
        }),
        case(&["EntryTarget"], false, &["/a/tail"], |k| k.name("/a/tail", 0, &[0xff; 4])),
        case(&["EntryTarget"], false, &["/a/tail"], |k| k.name("/a/tail", 0, &[1, 0, 0, 0])),
        case(&["EntryTarget"], false, &["/a/tail"], |k| k.name("/a/tail", 0, &[2, 0, 0, 0])),
        case(&["EntryKind"], true, &[], |k| k.name("/a/tail", 6, &[6])),
        case(&["DuplicateName", "Unnamed"], false, &["/a/fast", "/a/slow"], |k| k.name("/a/slow", 8, b"fast")),
        case(&["TwoParents", "LinkCount"], false, &["/a/small", "/b/hard"], |k| {
            k.name("/b/hard", 0, &(k.ino("/a/sub") as u32).to_le_bytes());
            k.name("/b/hard", 6, &[4]);
        }),
        case(&["DirLoop"], false, &["/a/sub"], |k| {
            let sub = k.ino("/a/sub") as u32;
            k.name("/a/sub/subsub/leaf", 6, &[4]);
            k.name("/a/sub/subsub/leaf", 0, &sub.to_le_bytes());
            k.name("/a/sub", 0, &[0; 4]);
        }),
    ]
}

/// Issues that have a test of their own.
const ALONE: [&str; 2] = ["SuperLost", "NoSpace"];

#[test]
fn every_issue_is_planted() {
    DAMAGE.every_issue_is_planted(&cases(), &ALONE, &arbor_lfs::issues());
}

fn heal_all(shape: usize) {
    let heals = |(n, case): &(usize, Case)| std::panic::catch_unwind(|| heal(shape, *n, case)).is_ok();
    let ill: Vec<usize> = cases().into_iter().enumerate().filter(|c| !heals(c)).map(|c| c.0).collect();
    assert!(ill.is_empty(), "cases {ill:?} in shape {shape}");
}

#[test]
fn planted_damage_is_found_and_mended() {
    heal_all(0);
}

#[test]
fn planted_damage_with_large_blocks() {
    heal_all(1);
}

#[test]
fn planted_damage_without_fragments() {
    heal_all(2);
}

fn heal(shape: usize, n: usize, case: &Case) {
    let Healed { damaged, report, what } = DAMAGE.heal(shape, n, case);
    if !case.lost.is_empty() && !case.preen {
        assert!(report.issues.iter().any(|i| i.loses || i.code == "Unnamed"), "{what}: {:#?}", report.issues);
    }
    preened(case, &damaged, &what);
}

/// Preening mends what loses nothing, or writes nothing.
fn preened(case: &Case, damaged: &MemDevice, what: &str) {
    let image = damaged.snapshot();
    let before = image.to_bytes();
    let report = check(&image, Repair::Preen);
    if case.preen {
        assert!(report.issues.iter().all(|i| i.repaired && !i.loses), "{what}: {:#?}", report.issues);
        assert_eq!(check(&image, Repair::No).issues, vec![], "{what}");
    } else {
        assert!(report.issues.iter().all(|i| !i.repaired), "{what}: {:#?}", report.issues);
        assert!(before == image.to_bytes(), "{what}");
    }
}

#[test]
fn without_any_superblock_nothing_is_done() {
    let (image, _) = good(0);
    let k = ImageCorruptor::new(image.clone());
    k.write(0, &[0; 512]);
    assert!(Lfs.probe(&image).unwrap().is_none());
    assert!(Lfs.search(&image).unwrap());
    k.write(k.geom.copy_at(), &[0; 512]);
    let before = image.to_bytes();
    let report = check(&image, Repair::Yes);
    assert_eq!((codes(&report), report.remaining()), (vec!["SuperLost"], 1));
    assert!(before == image.to_bytes());
    assert!(!Lfs.search(&image).unwrap());
}

#[test]
fn a_clean_volume_is_skipped() {
    let options = CheckOptions { repair: Repair::Preen, force: false };
    let (image, tree_then) = good(0);
    let report = Lfs.check(Devices::single(image.clone()), &options, &mut |_, _, _| ()).unwrap();
    assert!(report.skipped);
    // The power is cut while it is mounted.
    let fs = mount(image.clone());
    fs.mknod(&CX, fs.root(), b"more", mode::IFREG | 0o644, 0).unwrap();
    fs.syncfs().unwrap();
    let cut = image.snapshot();
    let report = Lfs.check(Devices::single(cut.clone()), &options, &mut |_, _, _| ()).unwrap();
    assert!(!report.skipped && report.unclean && report.recovered && report.issues.is_empty());
    let report = Lfs.check(Devices::single(cut.clone()), &options, &mut |_, _, _| ()).unwrap();
    assert!(report.skipped);
    assert_eq!(tree(&cut).len(), tree_then.len() + 1);
}

/// What was written after the older checkpoint is in the log; nothing is lost with the newer one, whichever mount has
/// written it, and mounts do without it too.
#[test]
fn a_lost_checkpoint_loses_nothing() {
    let (image, _) = good(0);
    for rounds in 0..3 {
        let fs = mount(image.clone());
        for n in 0..20 {
            let name = format!("round {rounds} file {n}");
            let ino = fs.mknod(&CX, fs.root(), name.as_bytes(), mode::IFREG | 0o644, 0).unwrap().ino;
            fs.write(ino, 0, &bytes(3000 * n, n as u32)).unwrap();
            if n % 7 == 0 {
                fs.syncfs().unwrap();
            }
        }
        let mut states = vec![];
        fs.syncfs().unwrap();
        states.push(image.snapshot());
        fs.unmount().unwrap();
        states.push(image.snapshot());
        for state in states {
            let then = tree(&state);
            for place in state_places(&state) {
                let lost = state.snapshot();
                ImageCorruptor::new(lost.clone()).flip(place + 77);
                assert!(tree(&lost) == then, "round {rounds}: mounted");
                let report = check(&lost, Repair::Preen);
                assert_eq!((codes(&report), report.remaining()), (vec!["Checkpoint"], 0));
                assert!(tree(&lost) == then, "round {rounds}: preened");
            }
        }
    }
}

fn state_places(image: &MemDevice) -> [u64; 2] {
    ImageCorruptor::new(image.clone()).geom.checkpoints()
}

#[test]
fn progress() {
    DAMAGE.progress(&["inodes", "names", "links", "segments"]);
}

/// No older state of the directory is of its version.
#[test]
fn a_lost_directory_with_many_files() {
    DAMAGE.a_lost_directory_with_many_files(|k| k.put_entry(k.ino("/many"), |e| e.version = 77.into()));
}

#[test]
fn a_repair_larger_than_the_cache() {
    DAMAGE
        .a_repair_larger_than_the_cache(512 << 20, 20_000, |k| k.put_entry(k.ino("/many"), |e| e.version = 77.into()));
}

/// A volume that users have filled: what has no name finds no room, and is not lost.
#[test]
fn a_full_volume() {
    let image = format(4 << 20, "block=4K,segment=64K,frag=4K");
    let fs = mount(image.clone());
    let lonely = fs.mknod(&CX, fs.root(), b"lonely", mode::IFREG | 0o644, 0).unwrap().ino;
    fs.write(lonely, 0, &bytes(5000, 1)).unwrap();
    let full = fs.mknod(&CX, fs.root(), b"full", mode::IFREG | 0o644, 0).unwrap().ino;
    let mut at = 0;
    while let Ok(n) = fs.write(full, at, &bytes(4096, 2)) {
        at += n as u64;
    }
    fs.unmount().unwrap();
    assert_eq!(check(&image, Repair::No).issues, vec![]);
    let k = ImageCorruptor::new(image.clone());
    k.name("/lonely", 0, &[0; 4]);
    let report = check(&image, Repair::Yes);
    assert!(codes(&report).contains(&"NoSpace") && report.remaining() > 0, "{:#?}", report.issues);
    assert!(!codes(&report).contains(&"InodeDamaged"), "{:#?}", report.issues);
    let fs = mount(image.clone());
    let full = fs.lookup(fs.root(), b"full").unwrap().ino;
    fs.setattr(full, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
    fs.unmount().unwrap();
    let report = check(&image, Repair::Yes);
    assert_eq!(report.remaining(), 0, "{:#?}", report.issues);
    assert_eq!(check(&image, Repair::No).issues, vec![], "{:#?}", report.issues);
    assert!(tree(&image).contains_key(&format!("/lost+found/#{lonely}")));
}

#[test]
fn one_path() {
    DAMAGE.good_paths();
    let one = |path, code, says, damage| DAMAGE.on_path(path, code, says, damage);
    one("/a/small", "InodeDamaged", "(/a/small)", |k| k.flip(k.inode_byte(k.ino("/a/small")) + 9));
    one("/b/big", "BadPointers", "(/b/big)", |k| k.inode(k.ino("/b/big"), |d| d.db[2].frag = 3.into()));
    one("/b/big", "DataDamaged", "(/b/big)", |k| k.flip(k.byte_of(k.ino("/b/big"), FileBlock::Data(20)) + 9));
    one("/b/big", "Duplicate", "(/b/big)", |k| k.inode(k.ino("/b/big"), |d| d.db[3] = d.db[2]));
    one("/b/heavy", "Xattr", "(/b/heavy)", |k| k.inode(k.ino("/b/heavy"), |d| d.xattr.frag = 3.into()));
    one("/many", "DirChunk", "(/many)", |k| k.dir(k.ino("/many"), 512, &[0xab; 512]));
    one("/many", "DirBlock", "(/many)", |k| k.flip(k.byte_of(k.ino("/many"), FileBlock::Data(0)) + 700));
    one("/a/tail", "EntryTarget", "\"tail\"", |k| k.name("/a/tail", 0, &[0xff; 4]));
    one("/a/sub/subsub", "DotDot", "subsub", |k| k.dir(k.ino("/a/sub/subsub"), 12, &[2, 0]));
}

/// The older checkpoint does not lead as far as the newer one has come, whose ifile is damaged.
#[test]
fn the_older_checkpoint_is_not_the_last_word() {
    let image = format(16 << 20, "");
    let made = |name: &[u8], seed| {
        let fs = mount(image.clone());
        let file = fs.mknod(&CX, fs.root(), name, mode::IFREG | 0o644, 0).unwrap().ino;
        fs.write(file, 0, &bytes(30_000, seed)).unwrap();
        fs.fsync(file, false).unwrap();
        fs.unmount().unwrap();
    };
    made(b"old", 1);
    made(b"broken", 2);
    let good = tree(&image);
    let k = ImageCorruptor::new(image.clone());
    let broken = k.ino("/broken");
    k.flip(k.byte_of(broken, FileBlock::Data(0)) + 5);
    k.flip(k.byte_of(IFILE.0, k.map_block()) + 40);
    let report = check(&image, Repair::Yes);
    assert!(report.issues.iter().all(|i| i.repaired), "{:#?}", report.issues);
    assert_eq!(codes(&report), ["Checkpoint", "DataDamaged"], "{:#?}", report.issues);
    let now = tree(&image);
    assert_eq!(now["/old"], good["/old"]);
    assert!(now["/broken"].content.ends_with(&bytes(30_000, 2)[8192..]), "only its first block is lost");
}

/// The newest checkpoint is damaged, and something in the log that leads to it: the log ends there for who follows it from the
/// older one, and no crash has ended it. Neither a mount nor preening makes that the end of the volume.
#[test]
fn a_log_that_breaks_before_a_lost_checkpoint_is_followed_to_its_end() {
    for summary in [false, true] {
        let image = format(16 << 20, "");
        let fs = mount(image.clone());
        let file = |name: String, seed: u32| {
            let ino = fs.mknod(&CX, fs.root(), name.as_bytes(), mode::IFREG | 0o644, 0).unwrap().ino;
            fs.write(ino, 0, &bytes(30_000, seed)).unwrap();
            fs.fsync(ino, false).unwrap();
        };
        (0..20).for_each(|n| file(format!("file{n}"), n));
        fs.unmount().unwrap();
        let good = tree(&image);
        let k = ImageCorruptor::new(image.clone());
        let data = k.byte_of(k.ino("/file3"), FileBlock::Data(0));
        let newest = k.checkpoints()[0].0;
        // The summary is in front of the blocks that it tells of.
        let at = if summary { k.summary_before(data) } else { data + 5 };
        k.flip(at);
        k.flip(newest + 60);
        let clock = std::sync::Arc::new(ManualClock::new(Time { secs: 5_000_000, nanos: 0 }));
        let read_only = MountOptions { read_only: true, ..MountOptions::default() };
        let told = Lfs.mount(Devices::single(image.clone()), &read_only, clock).map(drop);
        let told = told.unwrap_err().to_string();
        let says = if summary { format!("at byte {:#x} holds others", at + 4) } else { "needs recovery".into() };
        assert!(told.contains(&says), "{told}");
        let before = image.to_bytes();
        let report = check(&image, Repair::Preen);
        assert!(report.remaining() > 0 && image.to_bytes() == before, "{:#?}", report.issues);
        let report = check(&image, Repair::Yes);
        assert_eq!(report.remaining(), 0, "{:#?}", report.issues);
        assert_eq!(check(&image, Repair::No).issues, vec![]);
        let now = tree(&image);
        let what = if summary { "IfileLost" } else { "DataDamaged" };
        assert!(codes(&report).contains(&what), "{:#?}", report.issues);
        let kept = (0..20).filter(|n| now.get(&format!("/file{n}")) == good.get(&format!("/file{n}"))).count();
        assert!(kept >= 19, "{kept} of 20 files, {:#?}", report.issues);
    }
}

/// Damage in a group that others follow was taken for the end of the log: they were lost, although each was whole and promised.
#[test]
fn damage_in_the_middle_of_the_log_is_not_its_end() {
    let image = format(64 << 20, "");
    let fs = mount(image.clone());
    let mut cuts = vec![image.to_bytes()];
    for n in 0..10 {
        let file = fs.mknod(&CX, fs.root(), format!("{n}").as_bytes(), mode::IFREG | 0o644, 0).unwrap().ino;
        // The third one goes to several segments.
        fs.write(file, 0, &bytes(if n == 2 { 5_000_000 } else { 30_000 }, n)).unwrap();
        fs.fsync(file, false).unwrap();
        cuts.push(image.to_bytes());
    }
    let cut = image.snapshot();
    drop(fs);
    let is_third = |at: &usize| cuts[2][*at..*at + 512] != cuts[3][*at..*at + 512];
    let third: Vec<_> = (0..cut.to_bytes().len()).step_by(512).filter(is_third).collect();
    let is_summary = |at: usize| get_u32(&cuts[3], at) == Some(SUMMARY_MAGIC);
    let summaries = third.iter().filter(|at| is_summary(**at)).count();
    assert!(summaries > 3);
    let mut refusals = 0;
    for at in third.iter().enumerate().filter(|(n, at)| n % 997 == 0 || is_summary(**at)).map(|(_, at)| *at) {
        let damaged = cut.snapshot();
        damage::flip(&damaged, at as u64 + 8);
        let clock = std::sync::Arc::new(ManualClock::new(Time { secs: 5_000_000, nanos: 0 }));
        if let Err(e) = Lfs.mount(Devices::single(damaged.clone()), &MountOptions::default(), clock).map(drop) {
            // Of a part that fills a segment it is not known whether it begins in the one before.
            let says = e.to_string();
            assert!(says.contains("damaged summary") && says.contains("follows"), "{says}");
            refusals += 1;
        }
        assert_eq!(check(&damaged, Repair::Yes).remaining(), 0, "{at}");
        let found = tree(&damaged).len();
        assert!(found >= 10, "{found} of 11 are there with damage at {at}");
    }
    assert_eq!(refusals, summaries, "only those of summaries");
}

/// What is wrong in one block is told once, and moves nothing else.
#[test]
fn a_flipped_byte_is_one_issue() {
    for shape in 0..SHAPES.len() {
        let (image, _) = good(shape);
        let k = ImageCorruptor::new(image.clone());
        k.flip(k.byte_of(k.ino("/b/big"), FileBlock::Data(20)) + 100);
        for repair in [Repair::No, Repair::Yes] {
            let report = check(&image, repair);
            assert_eq!(codes(&report), ["DataDamaged"], "{:#?}", report.issues);
        }
    }
}

/// What has no bytes is something nevertheless.
#[test]
fn a_pipe_without_a_name_keeps_its_place() {
    let (image, _) = good(0);
    let k = ImageCorruptor::new(image.clone());
    let pipe = k.ino("/a/pipe");
    k.name("/a/pipe", 0, &[0; 4]);
    check(&image, Repair::Yes);
    assert!(tree(&image).contains_key(&format!("/lost+found/#{pipe}")));
}

/// A volume made with the UUID of the one before it finds nothing of that in its log.
#[test]
fn nothing_of_an_older_volume_comes_back() {
    let (image, then) = good(0);
    let uuid = Lfs.probe(&image).unwrap().unwrap().uuid;
    assert!(then.len() > 60);
    let options = FormatOptions { uuid, options: Options::parse(SHAPES[0].1), ..FormatOptions::default() };
    Lfs.format(Devices::single(image.clone()), &options).unwrap();
    let empty = tree(&image);
    // Its salt is found again as well.
    let hurt = image.snapshot();
    let k = ImageCorruptor::new(hurt.clone());
    k.flip(2);
    k.write(k.geom.copy_at(), &[0; 512]);
    assert_eq!(check(&hurt, Repair::Yes).remaining(), 0);
    assert!(tree(&hurt) == empty && hurt.to_bytes()[..512] == image.to_bytes()[..512]);
    let k = ImageCorruptor::new(image.clone());
    k.checkpoints().iter().for_each(|(at, _)| k.write(*at, &[0; 512]));
    let report = check(&image, Repair::Yes);
    assert_eq!(codes(&report), ["IfileLost"], "{:#?}", report.issues);
    assert!(tree(&image) == empty);
}

#[test]
fn damage_costs_only_itself() {
    let images = [DAMAGE.good(0).0, DAMAGE.good(1).0];
    arbor_torture::beside::damage_costs_only_itself(
        DAMAGE.engine,
        &images,
        &|s| ["superblock", "usage block", "inode, ifile"].contains(&s.kind),
        &[""],
    );
}

#[test]
fn an_outage_costs_nothing() {
    arbor_torture::outage::an_outage_costs_nothing(DAMAGE.engine, "");
}

#[test]
fn a_bad_sector_costs_its_block() {
    arbor_torture::badsector::a_bad_sector_costs_its_block(DAMAGE.engine, "", 8192);
}

#[test]
fn damage_of_one_promise_is_not_the_end_of_the_log() {
    use arbor_torture::midlog::damage_is_not_the_end_of_the_log;
    damage_is_not_the_end_of_the_log(DAMAGE.engine, ("", "", 3000), None);
}

#[test]
fn a_clock_that_was_set_back_costs_nothing() {
    arbor_torture::midlog::a_clock_that_was_set_back_costs_nothing(DAMAGE.engine);
}

#[test]
fn a_damaged_summary_costs_no_inode() {
    arbor_torture::midlog::a_summary_costs_no_inode(DAMAGE.engine, "");
}
