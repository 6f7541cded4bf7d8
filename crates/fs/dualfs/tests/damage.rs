//! Each issue of the checker planted in a good image, found, mended; the other files intact.

mod damage_kit;

use arbor_base::device::MemDevice;
use arbor_base::vfs::*;
use arbor_dualfs::DualFs;
use arbor_dualfs::format::*;
use arbor_torture::damage::{self, Damage, case, codes};
use damage_kit::*;
use std::mem::offset_of;
use std::sync::{Arc, OnceLock};
use zerocopy::FromBytes as _;

const SHAPES: [(u64, &str); 2] = [(16 << 20, "segment=64K"), (48 << 20, "block=8K,group=2M")];

static DAMAGE: Damage<ImageCorruptor> = Damage {
    engine: &DualFs,
    shapes: &SHAPES,
    build,
    tree,
    knife: ImageCorruptor::new,
    is_lost: damage::is_below,
    good: OnceLock::new(),
};

/// With whether preening mends it.
type Case = damage::Case<ImageCorruptor, bool>;

fn check(dev: &MemDevice, repair: Repair) -> CheckReport {
    damage::check(&DualFs, dev.clone(), repair)
}

fn volume() -> Vec<Case> {
    vec![
        case(&["SuperDamaged"], false, &[], |k| k.write(0, &[0; 512])),
        case(&["SuperDamaged"], false, &[], |k| k.flip(60)),
        case(&["SuperDamaged"], false, &[], |k| {
            let s = k.of("superblock", None);
            k.put(s, offset_of!(SuperBlock, segs), &3u32.to_le_bytes());
        }),
        case(&["SuperCopy"], true, &[], |k| k.write(k.geom.copy_at(), &[0; 512])),
        case(&["SuperCopy"], true, &[], |k| k.put(k.of("superblock copy", None), offset_of!(SuperBlock, label), &[9])),
        case(&["CheckpointDamaged"], true, &[], |k| k.lose_older()),
        case(&["CheckpointDamaged"], true, &[], |k| k.flip(k.of("checkpoint", Some(k.newest().0)).offset + 50)),
        case(&["CheckpointUseless"], false, &[], |k| k.checkpoint(|cp| cp.ifile = 3.into())),
        case(&["CheckpointUseless"], false, &[], |k| k.checkpoint(|cp| cp.fill = u64::MAX.into())),
        case(&["CheckpointUseless"], false, &[], |k| k.checkpoint(|cp| cp.offset = (cp.offset.get() - 1).into())),
        case(&["CheckpointUseless"], false, &[], |k| k.flip(k.of("ifile inode", None).offset + 20)),
        case(&["IfileBlock"], false, &[], |k| k.flip(k.of("segment usage", None).offset + 5)),
        case(&["IfileBlock"], false, &[], |k| k.flip(k.of("descriptors", None).offset + 5)),
        case(&["IfileBlock"], false, &[], |k| k.flip(k.of("bitmap", None).offset + 5)),
        case(&["MapLost"], false, &[], |k| k.flip(k.of("inode map", None).offset + 5)),
        case(&["IfileLost"], false, &[], |k| (0..2).for_each(|n| k.flip(k.of("checkpoint", Some(n)).offset + 90))),
        case(&["IfileLost"], false, &[], |k| {
            k.lose_older();
            k.flip(k.of("ifile inode", None).offset + 20);
        }),
    ]
}

fn space() -> Vec<Case> {
    vec![
        case(&["Usage"], true, &[], |k| k.put(k.of("segment usage", None), 0, &7u32.to_le_bytes())),
        case(&["BitmapFree"], false, &[], |k| k.put(k.of("bitmap", None), 0, &[0])),
        case(&["BitmapUsed"], true, &[], |k| k.put(k.of("bitmap", None), 30, &[0xff])),
        case(&["Descriptor"], true, &[], |k| k.put(k.of("descriptors", None), 0, &3u32.to_le_bytes())),
        case(&["Descriptor"], true, &[], |k| k.put(k.of("descriptors", None), 4, &3u32.to_le_bytes())),
        case(&["Count"], true, &[], |k| k.checkpoint(|cp| cp.totals.data = 1.into())),
        case(&["Count"], true, &[], |k| k.checkpoint(|cp| cp.totals.meta = 1.into())),
        case(&["Count"], true, &[], |k| k.checkpoint(|cp| cp.totals.used_inodes = 1.into())),
        case(&["FreeList"], true, &[], |k| k.checkpoint(|cp| cp.totals.free_ino = 0.into())),
        case(&["FreeList"], true, &[], |k| {
            let used = k.ino("/a/small") as u32;
            k.checkpoint(|cp| cp.totals.free_ino = used.into());
        }),
        case(&["FreeList"], true, &[], |k| {
            let free = k.newest().1.totals.free_ino.get();
            k.entry(free.into(), |e| e.next_free = free.into());
        }),
        case(&["Orphans", "OrphanList"], false, &[], |k| {
            let used = k.ino("/a/small") as u32;
            k.checkpoint(|cp| cp.totals.orphan = used.into());
        }),
    ]
}

fn inodes() -> Vec<Case> {
    vec![
        case(&["InodeDamaged"], false, &["/a/small", "/b/hard"], |k| k.flip_inode(k.ino("/a/small"))),
        case(&["InodeDamaged"], false, &["/a/sub"], |k| k.inode(k.ino("/a/sub"), |d| d.mode = 0o30644.into())),
        case(&["InodeDamaged"], false, &["/b/big"], |k| k.inode(k.ino("/b/big"), |d| d.size = u64::MAX.into())),
        case(&["InodeDamaged"], false, &["/b/big"], |k| k.inode(k.ino("/b/big"), |d| d.version = 77.into())),
        case(&["InodeDamaged"], false, &["/b/big"], |k| k.entry(k.ino("/b/big"), |e| e.block = 2.into())),
        case(&["InodeDamaged"], false, &["/many"], |k| k.inode(k.ino("/many"), |d| d.size = 512.into())),
        case(&["InodeDamaged"], false, &["/a/sub"], |k| k.inode(k.ino("/a/sub"), |d| d.db[0] = Pointer::default())),
        case(&["InodeDamaged"], false, &["/a/slow"], |k| k.flip(k.block("/a/slow", 0) + 5)),
        case(&["InodeDamaged"], false, &["/a/null"], |k| k.inode(k.ino("/a/null"), |d| d.size = 1.into())),
        case(&["BlockCount"], true, &[], |k| k.inode(k.ino("/b/big"), |d| d.data = (d.data.get() + 3).into())),
        case(&["BlockCount"], true, &[], |k| k.inode(k.ino("/b/big"), |d| d.meta = (d.meta.get() + 3).into())),
        case(&["LinkCount"], true, &["/a/small", "/b/hard"], |k| k.inode(k.ino("/b/hard"), |d| d.nlink = 9.into())),
        case(&["Unnamed"], true, &["/a/tail"], |k| k.name("/a/tail", 0, &[0; 4])),
        case(&["Orphans", "Unnamed"], true, &["/a/tail"], |k| {
            let ino = k.ino("/a/tail");
            k.name("/a/tail", 0, &[0; 4]);
            k.inode(ino, |d| d.nlink = 0.into());
            k.checkpoint(|cp| cp.totals.orphan = (ino as u32).into());
        }),
    ]
}

fn blocks() -> Vec<Case> {
    vec![
        case(&["Pointers"], false, &["/b/big"], |k| k.inode(k.ino("/b/big"), |d| d.db[3].block = 5.into())),
        case(&["Pointers"], false, &["/b/big"], |k| k.inode(k.ino("/b/big"), |d| d.ib[0].block = u32::MAX.into())),
        case(&["Pointers"], false, &["/b/big"], |k| k.flip(k.table("/b/big") + 100)),
        case(&["Pointers"], false, &["/b/big"], |k| {
            k.pointer("/b/big", 7, Pointer { block: 2.into(), crc: 4.into() });
        }),
        case(&["BeyondSize"], true, &["/b/big"], |k| {
            let block = k.geom.block() as u64;
            k.inode(k.ino("/b/big"), |d| d.size = (3 * block).into());
        }),
        case(&["DataDamaged"], false, &["/b/big"], |k| k.flip(k.block("/b/big", 3) + 100)),
        case(&["DataDamaged"], false, &["/b/big"], |k| {
            (0..3).for_each(|n| k.flip(k.in_table("/b/big", 4 + 2 * n) + 7))
        }),
        case(&["DataDamaged"], false, &["/a/small", "/b/hard"], |k| k.flip(k.block("/a/small", 0) + 99)),
        case(&["DataDamaged"], false, &["/b/big"], |k| k.inode(k.ino("/b/big"), |d| d.db[3].crc = 1.into())),
        case(&["Pointers", "DataDamaged"], false, &["/b/big"], |k| {
            k.inode(k.ino("/b/big"), |d| (d.db[2].crc, d.db[3].block) = (1.into(), 5.into()));
        }),
        // What lies there is another file's, which keeps it, although it is read later.
        case(&["DataDamaged"], false, &["/a/small", "/b/hard"], |k| {
            let of_another = k.get(k.ino("/b/big")).db[3].block;
            k.inode(k.ino("/a/small"), |d| d.db[0].block = of_another);
        }),
        case(&["Duplicate"], false, &["/b/big", "/a/tail"], |k| {
            let of_another = k.get(k.ino("/a/tail")).db[0];
            k.inode(k.ino("/b/big"), |d| d.db[3] = of_another);
        }),
        case(&["Xattr"], false, &["/b/heavy"], |k| {
            k.flip((u64::from(k.get(k.ino("/b/heavy")).xattr.block.get()) << k.geom.block_shift) + 50);
        }),
        case(&["Xattr"], false, &["/b/heavy"], |k| k.put(k.of("attributes", None), offset_of!(XattrHead, more), &[9])),
        case(&["Xattr"], false, &["/b/heavy"], |k| k.inode(k.ino("/b/heavy"), |d| d.xattr.block = 1.into())),
    ]
}

fn directories() -> Vec<Case> {
    vec![
        case(&["RootLost"], false, &["/", ""], |k| k.inode(2, |d| d.mode = 0o100644.into())),
        case(&["InodeDamaged", "RootLost"], false, &["/", ""], |k| k.flip_inode(2)),
        case(&["DirHole"], false, &["/many"], |k| k.inode(k.ino("/many"), |d| d.db[0] = Pointer::default())),
        case(&["DirHole"], false, &["/many"], |k| k.inode(k.ino("/many"), |d| d.db[1] = Pointer::default())),
        case(&["DirChunk"], false, &["/many"], |k| k.chunk(k.block("/many", 0) + 512, &[0xab; 512])),
        case(&["Dots"], false, &[], |k| k.chunk(k.block("/a", 0), &[9])),
        case(&["Dots", "Unnamed"], false, &["/wide"], |k| k.chunk(k.block("/wide", 0), &[0; 512])),
        case(&["DotDot"], true, &[], |k| k.chunk(k.block("/a/sub/subsub", 0) + 12, &[2, 0])),
        case(&["EntryName"], false, &["/a/tail"], |k| k.name("/a/tail", 9, b"/")),
        case(&["EntryTarget"], false, &["/a/tail"], |k| k.name("/a/tail", 0, &[0xe8, 3, 0, 0])),
        case(&["EntryTarget"], false, &["/a/tail"], |k| k.name("/a/tail", 0, &[1, 0, 0, 0])),
        case(&["EntryKind"], true, &[], |k| k.name("/a/tail", 6, &[6])),
        case(&["DuplicateName", "Unnamed"], false, &["/a/fast", "/a/slow"], |k| k.name("/a/slow", 8, b"fast")),
        case(&["TwoParents", "LinkCount"], true, &["/a/small", "/b/hard"], |k| {
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

fn cases() -> Vec<Case> {
    [volume(), space(), inodes(), blocks(), directories()].into_iter().flatten().collect()
}

#[test]
fn a_good_image_has_no_issues() {
    DAMAGE.good_images_have_no_issues();
    (0..SHAPES.len()).for_each(|shape| damage::regions_are_what_is_used(&DualFs, &DAMAGE.good(shape).0));
}

/// Those that are not planted here have a test of their own.
#[test]
fn every_issue_is_planted() {
    DAMAGE.every_issue_is_planted(
        &cases(),
        &["SuperLost", "CheckpointLost", "NoSpace", "DataHead"],
        &arbor_dualfs::issues(),
    );
}

#[test]
fn planted_damage_is_found_and_mended() {
    let heals = |(n, case): &(usize, Case)| {
        (0..SHAPES.len()).all(|shape| std::panic::catch_unwind(|| DAMAGE.heal_and_preen(shape, *n, case)).is_ok())
    };
    let ill: Vec<usize> = cases().into_iter().enumerate().filter(|c| !heals(c)).map(|c| c.0).collect();
    assert!(ill.is_empty(), "cases {ill:?}");
}

#[test]
fn without_any_superblock_nothing_is_done() {
    let (image, _) = DAMAGE.good(0);
    let k = ImageCorruptor::new(image.clone());
    k.write(0, &[0; 512]);
    assert!(DualFs.probe(&image).unwrap().is_none() && DualFs.search(&image).unwrap());
    k.write(k.geom.copy_at(), &[0; 512]);
    nothing_is_done(&image, "SuperLost");
    assert!(!DualFs.search(&image).unwrap());
}

#[test]
fn without_any_checkpoint_and_any_summary_nothing_is_done() {
    let (image, _) = DAMAGE.good(0);
    let k = ImageCorruptor::new(image.clone());
    (0..2).for_each(|n| k.flip(k.of("checkpoint", Some(n)).offset + 90));
    k.write(k.geom.meta_byte(k.geom.seg_start(Seg(0))), &vec![0; (k.geom.segs as usize) << k.geom.seg_shift]);
    nothing_is_done(&image, "CheckpointLost");
}

fn nothing_is_done(image: &MemDevice, code: &str) {
    let before = image.to_bytes();
    let report = check(image, Repair::Yes);
    assert_eq!((codes(&report), report.remaining()), (vec![code], 1));
    assert!(before == image.to_bytes());
}

#[test]
fn a_lost_directory_with_many_files() {
    DAMAGE.a_lost_directory_with_many_files(|k| k.flip_inode(k.ino("/many")));
}

#[test]
fn a_repair_larger_than_the_cache() {
    DAMAGE.a_repair_larger_than_the_cache(2 << 30, 20_000, |k| k.flip_inode(k.ino("/many")));
}

#[test]
fn a_directory_without_its_first_block() {
    DAMAGE.a_directory_without_its_first_block(|k| k.inode(k.ino("/many"), |d| d.db[0] = Pointer::default()));
}

#[test]
fn a_check_says_what_it_does() {
    DAMAGE.progress(&["inodes", "names", "links"]);
}

#[test]
fn one_path() {
    DAMAGE.good_paths();
    let one = |path, code, says, damage| DAMAGE.on_path(path, code, says, damage);
    one("/a/small", "InodeDamaged", "(/a/small)", |k| k.flip_inode(k.ino("/a/small")));
    one("/b/big", "Pointers", "(/b/big)", |k| k.inode(k.ino("/b/big"), |d| d.db[2].block = 1.into()));
    one("/b/big", "DataDamaged", "(/b/big)", |k| k.flip(k.in_table("/b/big", 5)));
    one("/b/heavy", "Xattr", "(/b/heavy)", |k| k.inode(k.ino("/b/heavy"), |d| d.xattr.block = 1.into()));
    one("/many", "DirChunk", "(/many)", |k| k.chunk(k.block("/many", 0) + 512, &[0xab; 512]));
    one("/a/tail", "EntryTarget", "\"tail\"", |k| k.name("/a/tail", 0, &[0xff; 4]));
    one("/a/sub/subsub", "DotDot", "subsub", |k| k.chunk(k.block("/a/sub/subsub", 0) + 12, &[2, 0]));
}

/// A set needs neither the bitmap of a file that is removed nor the block before one that is written: damage in either made
/// the volume read-only, with all changes lost.
#[test]
fn damage_beside_what_is_written_does_not_end_the_mount() {
    for damage in [
        (&|k: &ImageCorruptor| k.flip(k.of("bitmap", None).offset + 5)) as &dyn Fn(&ImageCorruptor),
        &|k: &ImageCorruptor| k.flip(k.table("/b/sparse") + 5),
    ] {
        let (image, _) = DAMAGE.good(0);
        let k = ImageCorruptor::new(image.clone());
        let after = 12 + (1 << k.geom.block_shift) / 8;
        damage(&k);
        let fs = mount(&image, "");
        let b = fs.lookup(fs.root(), b"b").unwrap().ino;
        put(&*fs, b, "sparse", after << k.geom.block_shift, b"behind the first table");
        let a = fs.lookup(fs.root(), b"a").unwrap().ino;
        put(&*fs, a, "new", 0, b"new");
        fs.unlink(a, b"tail").unwrap();
        fs.syncfs().unwrap();
        assert_eq!(fs.failure(), None);
        drop(fs);
        let mut read = [0; 3];
        let fs = mount(&image, "");
        let ino = fs.lookup(a, b"new").unwrap().ino;
        fs.read(ino, 0, &mut read).unwrap();
        assert_eq!(&read, b"new");
    }
}

/// Damage in a set that others follow was taken for the end of the log: they were lost, although each was whole and promised.
/// A block of it is one damaged block now; without its summary the others have to be searched for.
#[test]
fn damage_in_the_middle_of_the_log_is_not_its_end() {
    let (image, _) = DAMAGE.good(0);
    let fs = mount(&image, "relocate=off");
    let dir = fs.lookup(fs.root(), b"many").unwrap().ino;
    let names: Vec<String> = (0..10).map(|n| format!("synced {n}")).collect();
    let mut cuts = vec![image.to_bytes()];
    for name in &names {
        let ino = put(&*fs, dir, name, 0, name.as_bytes());
        fs.fsync(ino, false).unwrap();
        cuts.push(image.to_bytes());
    }
    let cut = image.snapshot();
    drop(fs);
    let k = ImageCorruptor::new(cut.clone());
    let block = 1 << k.geom.block_shift;
    let log = k.geom.meta_byte(k.geom.seg_start(Seg(0))) as usize;
    let third = (log..k.geom.data_at as usize).step_by(block).filter(|at| {
        let of = |n: usize| &cuts[n][*at..*at + block];
        of(2) != of(3)
    });
    let mut refusals = 0;
    for at in third {
        let damaged = cut.snapshot();
        damage::flip(&damaged, at as u64 + 20);
        let mounted = DualFs.mount(Devices::single(damaged.clone()), &MountOptions::default(), Arc::new(SystemClock));
        if let Err(refused) = mounted {
            let says = refused.to_string();
            assert!(
                says.contains(&format!("at byte {:#x} ", at + SUMMARY_CRC_AT)) && says.contains("follows"),
                "{says}"
            );
            refusals += 1;
        } else {
            drop(mounted);
        }
        assert_eq!(check(&damaged, Repair::Yes).remaining(), 0, "{at}");
        let fs = mount(&damaged, "");
        let found = names.iter().filter(|name| fs.lookup(dir, name.as_bytes()).is_ok()).count();
        assert!(found >= 9, "{found} of 10 are there with damage at {at}");
    }
    assert_eq!(refusals, 1, "only that of its summary");
}

/// A scrub verifies an indirect block whose first blocks are holes, and those above it.
#[test]
fn a_scrub_verifies_every_indirect_block() {
    let (image, _) = DAMAGE.good(0);
    let k = ImageCorruptor::new(image.clone());
    let ino = k.ino("/b/sparse");
    let only = |table: u64| {
        let all = damage::read(&image, table, 1 << k.geom.block_shift);
        let pointers = all.chunks_exact(POINTER).map(|p| Pointer::read_from_bytes(p).expect("a pointer"));
        let first = pointers.map(|p| p.block.get()).find(|block| *block != 0).expect("one that leads somewhere");
        u64::from(first) << k.geom.block_shift
    };
    let top = u64::from(k.get(ino).ib[2].block.get()) << k.geom.block_shift;
    for table in [top, only(top), only(only(top))] {
        let damaged = image.snapshot();
        let fs = mount(&damaged, "");
        let mut all = vec![0; 64 << 10];
        fs.read(Ino(ino), 600_000 << k.geom.block_shift, &mut all).expect("it is in the cache");
        damage::flip(&damaged, table + 4000);
        let (mut at, mut found) = (Some(0), Vec::new());
        while let Some(next) = at {
            let done = fs.scrub(next).expect("scrub");
            found.extend(done.damage);
            at = done.next;
        }
        assert!(matches!(&found[..], [one] if one.contains("indirect block")), "{found:?}");
    }
}

#[test]
fn damage_costs_only_itself() {
    let images = [DAMAGE.good(0).0, DAMAGE.good(1).0];
    arbor_torture::beside::damage_costs_only_itself(
        DAMAGE.engine,
        &images,
        &|s| ["superblock", "descriptors", "ifile inode", "segment usage", "indirect block"].contains(&s.kind),
        &[""],
    );
}

#[test]
fn an_outage_costs_nothing() {
    arbor_torture::outage::an_outage_costs_nothing(DAMAGE.engine, "");
}

#[test]
fn a_bad_sector_costs_its_block() {
    arbor_torture::badsector::a_bad_sector_costs_its_block(DAMAGE.engine, "", 4096);
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
