//! Each issue of the checker planted in a good image, found, mended; the other files intact.

mod damage_kit;

use arbor_base::device::MemDevice;
use arbor_base::vfs::*;
use arbor_evergreen::Evergreen;
use arbor_evergreen::format::*;
use arbor_torture::damage::{self, Damage, case, codes};
use damage_kit::*;
use std::mem::offset_of;
use std::sync::{Arc, OnceLock};

const SHAPES: [(u64, &str); 2] = [(16 << 20, ""), (16 << 20, "stride=16")];

static DAMAGE: Damage<ImageCorruptor> = Damage {
    engine: &Evergreen,
    shapes: &SHAPES,
    build,
    tree,
    knife: ImageCorruptor::new,
    is_lost: damage::is_below,
    good: OnceLock::new(),
};

/// With whether preening mends it.
type Case = damage::Case<ImageCorruptor, bool>;

/// Files whose inodes are in block 1 of the ifile.
const OF_BLOCK_1: &[&str] = &["/b/big", "/b/sparse", "/b/heavy", "/many"];

fn check(dev: &MemDevice, repair: Repair) -> CheckReport {
    damage::check(&Evergreen, dev.clone(), repair)
}

fn volume() -> Vec<Case> {
    vec![
        case(&["SuperDamaged"], false, &[], |k| k.write(0, &[0; 512])),
        case(&["SuperDamaged"], false, &[], |k| k.flip(60)),
        case(&["SuperDamaged"], false, &[], |k| k.superblock(0, |sb| sb.uuid = [9; 16])),
        case(&["SuperDamaged"], false, &[], |k| k.superblock(0, |sb| sb.stride = 64.into())),
        case(&["SuperDamaged"], false, &[], |k| {
            // Of a volume that seems to be in use the damaged one is passed over.
            k.write(0, &[0; 512]);
            k.flip(byte(k.at) + 900);
        }),
        case(&["SuperCopy"], true, &[], |k| k.write(byte(k.geom.copy()), &[0; 512])),
        case(&["SuperCopy"], true, &[], |k| k.superblock(k.geom.copy(), |sb| sb.label[0] ^= 9)),
        case(&["MasterDamaged"], false, &[], |k| k.flip(byte(k.at) + 900)),
        case(&["MasterDamaged"], false, &[], |k| k.write(byte(k.at), &[0; BLOCK])),
        case(&["MasterDamaged"], false, &[], |k| k.superblock(0, |sb| sb.master = 2.into())),
        // It leads to the commit before.
        case(&["MasterDamaged"], false, &[], |k| {
            let all = k.masters();
            k.superblock(0, |sb| sb.master = all[all.len() - 2].1.into());
        }),
        case(&["MasterDamaged", "Count"], false, &[], |k| k.head(|head| head.used = u32::MAX.into())),
        case(&["MasterDamaged", "End"], false, &[], |k| k.head(|head| head.inode_end = u32::MAX.into())),
        case(&["MasterDamaged", "End"], false, &[], |k| k.head(|head| head.inode_end = 0.into())),
        case(&["MasterDamaged", "History"], false, &[], |k| {
            k.head(|head| head.intact = (head.seq.get() + 9).into());
        }),
        case(&["MasterDamaged"], false, &[], |k| {
            k.change_master(|master| {
                master.head.seq = (u64::MAX / 2 + 5).into();
                master.tail.seq = master.head.seq;
            });
        }),
        case(&["MasterDamaged"], false, &[], |k| {
            k.change_master(|master| {
                (master.head.seq, master.head.intact, master.tail.seq) = (0.into(), 0.into(), 0.into());
            });
        }),
        case(&["History"], true, &[], |k| k.head(|head| head.intact = 0.into())),
        case(&["Orphans", "OrphanList"], false, &[], |k| {
            let used = k.ino("/a/small") as u32;
            k.head(|head| head.orphan = used.into());
        }),
        case(&["Orphans", "OrphanList"], false, &[], |k| k.head(|head| head.orphan = u32::MAX.into())),
    ]
}

fn space() -> Vec<Case> {
    vec![
        case(&["Count"], true, &[], |k| k.head(|head| head.used = (head.used.get() + 1).into())),
        case(&["Count"], true, &[], |k| k.head(|head| head.used = 0.into())),
        case(&["Count"], true, &[], |k| k.head(|head| head.inodes = (head.inodes.get() - 1).into())),
        case(&["End"], false, &[], |k| k.head(|head| head.inode_end = (head.inode_end.get() + 16).into())),
        case(&["End"], false, &[], |k| k.head(|head| head.inode_end = 64.into())),
        case(&["End"], false, &[], |k| {
            let end = k.ino("/last") as u32;
            assert!(!end.is_multiple_of(INODES), "it is not the first one of its block");
            k.head(|head| head.inode_end = end.into());
        }),
        case(&["Bitmap"], false, &[], |k| k.flip(byte(k.bitmap(DBITMAP, 0)) + 200)),
        case(&["Bitmap"], false, &[], |k| k.write(byte(k.bitmap(IBITMAP, 0)), &[0; BLOCK])),
        case(&["Bitmap"], false, &[], |k| {
            k.flip(byte(k.bitmap(DBITMAP, 0)) + 200);
            k.flip(byte(k.bitmap(IBITMAP, 0)) + 200);
        }),
        case(&["Bitmap"], false, &[], |k| k.inode(DBITMAP.0, |d| d.map[0] = k.geom.copy().into())),
        case(&["Bitmap", "Count"], false, &[], |k| {
            let other = k.bitmap(IBITMAP, 0);
            k.inode(DBITMAP.0, |d| d.map[0] = other.into());
        }),
        case(&["MarkedFree"], false, &[], |k| k.inode(DBITMAP.0, |d| d.map[0] = 0.into())),
        case(&["MarkedFree"], false, &[], |k| k.inode(IBITMAP.0, |d| d.map[0] = 0.into())),
        case(&["MarkedFree"], false, &[], |k| k.bit(IBITMAP, k.ino("/a/tail") as u32)),
        case(&["MarkedFree"], false, &[], |k| k.bit(IBITMAP, TAIL)),
        case(&["MarkedFree"], false, &[], |k| k.bit(DBITMAP, k.get(k.ino("/a/tail")).map[1].get())),
        // Where the bitmap itself lies; and what is reserved.
        case(&["MarkedFree"], false, &[], |k| k.bit(DBITMAP, k.bitmap(DBITMAP, 0))),
        case(&["MarkedFree"], false, &[], |k| k.bit(DBITMAP, k.at)),
        case(&["MarkedFree"], false, &[], |k| k.headed(k.bitmap(DBITMAP, 0), |bytes| bytes[HEAD..].fill(0))),
        case(&["MarkedUsed"], true, &[], |k| k.headed(k.bitmap(DBITMAP, 0), |bytes| bytes[HEAD..].fill(0xff))),
        case(&["MarkedUsed"], true, &[], |k| k.bit(IBITMAP, 1000)),
        case(&["MarkedUsed"], true, &[], |k| k.bit(DBITMAP, k.free_block())),
    ]
}

/// The ifile and the bitmaps, whose pointers are in the master block.
fn specials() -> Vec<Case> {
    vec![
        case(&["SpecialSize"], true, &[], |k| k.inode(IFILE.0, |d| d.size = (d.size.get() + 4096).into())),
        case(&["SpecialSize"], true, &[], |k| k.inode(IFILE.0, |d| d.size = 0.into())),
        case(&["SpecialSize"], true, &[], |k| k.inode(DBITMAP.0, |d| d.size = u64::MAX.into())),
        case(&["SpecialSize"], true, &[], |k| k.inode(IBITMAP.0, |d| d.size = 5000.into())),
        case(&["InodesLost"], false, OF_BLOCK_1, |k| k.inode(IFILE.0, |d| d.map[1] = 0.into())),
        case(&["InodesLost"], false, OF_BLOCK_1, |k| k.inode(IFILE.0, |d| d.map[1] = 1.into())),
        case(&["InodesLost", "Duplicate"], false, &["/b/big", "/b/sparse", "/b/heavy", "/many"], |k| {
            k.inode(IFILE.0, |d| d.map[2] = d.map[1]);
        }),
        case(&["End", "BeyondSize"], false, &["/crowd", "/last"], |k| k.flip(k.ifile_table() + 100)),
        case(&["InodesLost"], false, &["/crowd", "/last"], |k| {
            k.pointer((k.ifile_table() >> BLOCK_SHIFT) as u32, 0, 0);
        }),
        case(&["InodeDamaged", "Duplicate"], false, &["/b/big", "/b/sparse", "/b/heavy", "/many", "/a/tail"], |k| {
            let other = k.get(k.ino("/a/tail")).map[0];
            k.inode(IFILE.0, |d| d.map[1] = other);
        }),
        case(&["InodeDamaged", "Bitmap"], false, OF_BLOCK_1, |k| {
            let bitmap = k.bitmap(DBITMAP, 0);
            k.inode(IFILE.0, |d| d.map[1] = bitmap.into());
        }),
        case(&["BeyondSize"], true, &[], |k| k.inode(DBITMAP.0, |d| d.map[5] = k.free_block().into())),
        case(&["BeyondSize"], true, &[], |k| k.inode(IFILE.0, |d| d.map[13] = k.free_block().into())),
    ]
}

fn inodes() -> Vec<Case> {
    vec![
        case(&["InodeDamaged"], false, &["/a/small", "/b/hard"], |k| k.flip_inode(k.ino("/a/small"))),
        case(&["InodeDamaged"], false, &["/b/big"], |k| k.flip(k.inode_at(k.ino("/b/big")) + 20)),
        case(&["InodeDamaged"], false, &["/a/sub"], |k| k.inode(k.ino("/a/sub"), |d| d.mode = 0o30644.into())),
        case(&["InodeDamaged"], false, &["/b/big"], |k| k.inode(k.ino("/b/big"), |d| d.size = u64::MAX.into())),
        case(&["InodeDamaged"], false, &["/many"], |k| k.inode(k.ino("/many"), |d| d.size = 512.into())),
        case(&["InodeDamaged"], false, &["/a/sub"], |k| k.inode(k.ino("/a/sub"), |d| d.map[0] = 0.into())),
        case(&["InodeDamaged"], false, &["/a/slow"], |k| k.write(k.block("/a/slow", 0) + 5, &[0])),
        case(&["InodeDamaged"], false, &["/a/fast"], |k| k.inode(k.ino("/a/fast"), |d| d.size = 0.into())),
        case(&["InodeDamaged"], false, &["/a/fast"], |k| k.inode(k.ino("/a/fast"), |d| d.size = 97.into())),
        case(&["InodeDamaged"], false, &["/a/fast"], |k| k.inode(k.ino("/a/fast"), |d| d.target[2] = 0)),
        case(&["InodeDamaged"], false, &["/a/null"], |k| k.inode(k.ino("/a/null"), |d| d.size = 1.into())),
        case(&["BeyondSize"], true, &[], |k| k.inode(k.ino("/a/null"), |d| d.map[14] = 900.into())),
        case(&["InodeDamaged"], false, &["/b/heavy"], |k| {
            let other = k.get(k.ino("/a/tail"));
            k.write(k.inode_at(k.ino("/b/heavy")), zerocopy::IntoBytes::as_bytes(&other));
        }),
        case(&["BlockCount"], true, &[], |k| k.inode(k.ino("/b/big"), |d| d.blocks = (d.blocks.get() + 3).into())),
        case(&["LinkCount"], true, &["/a/small", "/b/hard"], |k| k.inode(k.ino("/b/hard"), |d| d.nlink = 9.into())),
        case(&["LinkCount"], true, &[], |k| k.inode(k.ino("/a"), |d| d.nlink = 7.into())),
        case(&["Unnamed"], true, &["/a/tail"], |k| k.name("/a/tail", 0, &[0; 4])),
        case(&["Unnamed"], true, &["/a/sub"], |k| k.name("/a/sub", 0, &[0; 4])),
        case(&["Orphans", "Unnamed"], true, &["/a/tail"], |k| {
            let ino = k.ino("/a/tail");
            k.name("/a/tail", 0, &[0; 4]);
            k.inode(ino, |d| d.nlink = 0.into());
            k.head(|head| head.orphan = (ino as u32).into());
        }),
        case(&["Orphans", "OrphanList"], false, &["/a/tail"], |k| {
            // The list leads back to where it was.
            let ino = k.ino("/a/tail");
            k.name("/a/tail", 0, &[0; 4]);
            k.inode(ino, |d| (d.nlink, d.next_orphan) = (0.into(), (ino as u32).into()));
            k.head(|head| head.orphan = (ino as u32).into());
        }),
    ]
}

fn blocks() -> Vec<Case> {
    vec![
        case(&["Pointers"], false, &["/b/big"], |k| k.inode(k.ino("/b/big"), |d| d.map[3] = 1.into())),
        case(&["Pointers"], false, &["/b/big"], |k| k.inode(k.ino("/b/big"), |d| d.map[3] = k.at.into())),
        case(&["Pointers"], false, &["/b/big"], |k| k.inode(k.ino("/b/big"), |d| d.map[12] = u32::MAX.into())),
        case(&["Pointers"], false, &["/b/big"], |k| k.flip(k.block("/b/big", 12) + 100)),
        case(&["Pointers"], false, &["/b/big"], |k| {
            k.pointer(k.get(k.ino("/b/big")).map[12].get(), 7, k.geom.copy());
        }),
        case(&["Pointers"], false, &["/b/big"], |k| {
            let (big, sparse) = (k.ino("/b/big"), k.ino("/b/sparse"));
            assert!(big < sparse, "whoever is read first does not own it for that");
            let of_another = k.get(sparse).map[12];
            k.inode(big, |d| d.map[12] = of_another);
        }),
        case(&["Duplicate"], false, &["/b/sparse"], |k| {
            // One that leads to itself.
            let table = k.get(k.ino("/b/sparse")).map[13].get();
            k.pointer(table, 1, table);
        }),
        case(&["BeyondSize"], true, &[], |k| k.inode(k.ino("/a/small"), |d| d.map[5] = 900.into())),
        case(&["BeyondSize"], true, &[], |k| k.pointer(k.get(k.ino("/b/big")).map[12].get(), 500, 900)),
        case(&["Duplicate"], false, &["/b/big"], |k| {
            let taken = k.get(k.ino("/a/tail")).map[1];
            k.inode(k.ino("/b/big"), |d| d.map[4] = taken);
        }),
        case(&["Duplicate"], false, &["/b/heavy"], |k| {
            let taken = k.get(k.ino("/b/heavy")).xattr;
            k.inode(k.ino("/b/heavy"), |d| d.map[0] = taken);
        }),
        case(&["Duplicate"], false, &["/a/tail"], |k| {
            let bitmap = k.bitmap(DBITMAP, 0);
            k.inode(k.ino("/a/tail"), |d| d.map[0] = bitmap.into());
        }),
        case(&["Xattr"], false, &["/b/heavy"], |k| k.flip(byte(k.get(k.ino("/b/heavy")).xattr.get()) + 50)),
        case(&["Xattr"], false, &["/b/heavy"], |k| k.headed(k.get(k.ino("/b/heavy")).xattr.get(), |b| b[HEAD] = 0)),
        case(&["Xattr"], false, &["/b/heavy"], |k| k.inode(k.ino("/b/heavy"), |d| d.xattr = u32::MAX.into())),
        // The further blocks: changed, gone, one in place of the other, another's, too many of them.
        case(&["Xattr"], false, &["/b/heavy"], |k| k.flip(byte(k.xattr(k.ino("/b/heavy"), 2)) + 50)),
        case(&["Xattr"], false, &["/b/heavy"], |k| k.pointer(k.xattr(k.ino("/b/heavy"), 0), 0, 0)),
        case(&["Xattr"], false, &["/b/heavy"], |k| {
            k.pointer(k.xattr(k.ino("/b/heavy"), 0), 1, k.xattr(k.ino("/b/heavy"), 1));
        }),
        case(&["Xattr"], false, &["/b/heavy"], |k| {
            k.pointer(k.xattr(k.ino("/b/heavy"), 0), 1, k.get(k.ino("/b/big")).map[0].get());
        }),
        case(&["Xattr"], false, &["/b/heavy"], |k| {
            k.headed(k.xattr(k.ino("/b/heavy"), 0), |b| b[offset_of!(Head, index)] = 17);
        }),
        case(&["Duplicate"], false, &["/b/big", "/b/heavy"], |k| {
            let more = k.xattr(k.ino("/b/heavy"), 1);
            k.inode(k.ino("/b/big"), |d| d.map[3] = more.into());
        }),
    ]
}

fn directories() -> Vec<Case> {
    vec![
        case(&["RootLost"], false, &["/", ""], |k| k.inode(2, |d| d.mode = 0o100644.into())),
        case(&["InodeDamaged", "RootLost"], false, &["/", ""], |k| k.flip_inode(2)),
        case(&["RootLost"], false, &["/", ""], |k| k.inode(2, |d| *d = Dinode::default())),
        // As one that is being removed, which has a name.
        case(&["BeyondSize", "Unnamed"], false, &["/a/sub"], |k| {
            k.inode(k.ino("/a/sub"), |d| (d.size, d.nlink) = (0.into(), 0.into()));
        }),
        case(&["BeyondSize", "Unnamed"], false, &["/", ""], |k| {
            k.inode(2, |d| (d.size, d.nlink) = (0.into(), 0.into()));
        }),
        case(&["DirHole"], false, &["/many"], |k| k.inode(k.ino("/many"), |d| d.map[0] = 0.into())),
        case(&["DirHole"], false, &["/many"], |k| k.inode(k.ino("/many"), |d| d.map[1] = 0.into())),
        case(&["DirChunk"], false, &["/many"], |k| k.write(k.block("/many", 0) + 512, &[0xab; 512])),
        case(&["Dots"], false, &[], |k| k.write(k.block("/a", 0), &[9])),
        case(&["Dots", "Unnamed"], false, &["/wide"], |k| k.write(k.block("/wide", 0), &[0; 512])),
        case(&["DotDot"], true, &[], |k| k.write(k.block("/a/sub/subsub", 0) + 12, &[2, 0])),
        case(&["EntryName"], false, &["/a/tail"], |k| k.name("/a/tail", 9, b"/")),
        case(&["EntryTarget"], false, &["/a/tail"], |k| k.name("/a/tail", 0, &[0xe8, 3, 0, 0])),
        case(&["EntryTarget"], false, &["/a/tail"], |k| k.name("/a/tail", 0, &[0xff; 4])),
        // Of the volume itself: the ifile, a bitmap, a check-point.
        case(&["EntryTarget"], false, &["/a/tail"], |k| k.name("/a/tail", 0, &[1, 0, 0, 0])),
        case(&["EntryTarget"], false, &["/a/tail"], |k| k.name("/a/tail", 0, &[3, 0, 0, 0])),
        case(&["EntryTarget"], false, &["/a/tail"], |k| k.name("/a/tail", 0, &[TAIL as u8, 0, 0, 0])),
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
    [volume(), space(), specials(), inodes(), blocks(), directories()].into_iter().flatten().collect()
}

#[test]
fn a_good_image_has_no_issues() {
    DAMAGE.good_images_have_no_issues();
    (0..SHAPES.len()).for_each(|shape| damage::regions_are_what_is_used(&Evergreen, &DAMAGE.good(shape).0));
}

/// Those that are not planted here have a test of their own.
#[test]
fn every_issue_is_planted() {
    DAMAGE.every_issue_is_planted(&cases(), &["SuperLost", "MasterLost", "NoSpace"], &arbor_evergreen::issues());
}

#[test]
fn planted_damage_is_found_and_mended() {
    all_heal(cases());
}

fn all_heal(cases: Vec<Case>) {
    let heals = |(n, case): &(usize, Case)| {
        (0..SHAPES.len()).all(|shape| std::panic::catch_unwind(|| DAMAGE.heal_and_preen(shape, *n, case)).is_ok())
    };
    let ill: Vec<usize> = cases.into_iter().enumerate().filter(|c| !heals(c)).map(|c| c.0).collect();
    assert!(ill.is_empty(), "cases {ill:?}");
}

#[test]
fn without_any_superblock_nothing_is_done() {
    let (image, _) = DAMAGE.good(0);
    let k = ImageCorruptor::new(image.clone());
    k.write(0, &[0; 512]);
    assert!(Evergreen.probe(&image).unwrap().is_none() && Evergreen.search(&image).unwrap());
    k.write(byte(k.geom.copy()), &[0; 512]);
    nothing_is_done(&image, "SuperLost");
    assert!(!Evergreen.search(&image).unwrap());
}

#[test]
fn without_any_master_block_nothing_is_done() {
    let (image, _) = DAMAGE.good(0);
    let k = ImageCorruptor::new(image.clone());
    k.masters().into_iter().for_each(|(_, at)| k.flip(byte(at) + 900));
    nothing_is_done(&image, "MasterLost");
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
    DAMAGE.a_repair_larger_than_the_cache(512 << 20, 20_000, |k| k.flip_inode(k.ino("/many")));
}

#[test]
fn a_directory_without_its_first_block() {
    DAMAGE.a_directory_without_its_first_block(|k| k.inode(k.ino("/many"), |d| d.map[0] = 0.into()));
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
    one("/b/big", "Pointers", "(/b/big)", |k| k.inode(k.ino("/b/big"), |d| d.map[2] = 1.into()));
    one("/b/heavy", "Xattr", "(/b/heavy)", |k| k.inode(k.ino("/b/heavy"), |d| d.xattr = 1.into()));
    one("/many", "DirChunk", "(/many)", |k| k.write(k.block("/many", 0) + 512, &[0xab; 512]));
    one("/a/tail", "EntryTarget", "\"tail\"", |k| k.name("/a/tail", 0, &[0xff; 4]));
    one("/a/sub/subsub", "DotDot", "subsub", |k| k.write(k.block("/a/sub/subsub", 0) + 12, &[2, 0]));
}

/// What has no name finds no room on a full volume, and is not lost.
#[test]
fn a_full_volume() {
    let image = damage::format(&Evergreen, 4 << 20, "");
    let fs = mount(&image, "");
    let file = |name: &[u8]| fs.mknod(&CX, fs.root(), name, mode::IFREG | 0o644, 0).unwrap().ino;
    let (lonely, full) = (file(b"lonely"), file(b"full"));
    fs.write(lonely, 0, b"alone").unwrap();
    let mut at = 0;
    while let Ok(n) = fs.write(full, at, &[7; BLOCK]) {
        at += n as u64;
    }
    fs.unmount().unwrap();
    assert_eq!(check(&image, Repair::No).issues, vec![]);
    ImageCorruptor::new(image.clone()).name("/lonely", 0, &[0; 4]);
    let report = check(&image, Repair::Yes);
    // Told by the second pass too, which finds nothing else.
    assert_eq!(codes(&report), ["Unnamed", "NoSpace"].repeat(2), "{:#?}", report.issues);
    // What was begun for lost+found is gone again.
    assert_eq!(codes(&check(&image, Repair::No)), ["Unnamed", "NoSpace"]);
    let fs = mount(&image, "");
    let full = fs.lookup(fs.root(), b"full").unwrap().ino;
    fs.setattr(full, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
    fs.unmount().unwrap();
    assert_eq!(check(&image, Repair::Yes).remaining(), 0);
    assert_eq!(check(&image, Repair::No).issues, vec![]);
    assert!(tree(&image).contains_key(&format!("/lost+found/#{lonely}")));
}

/// A volume whose power was cut after two commits that have overwritten blocks: the redo list of the second one is not in
/// place.
fn build_in_use(size: u64, options: &str) -> MemDevice {
    in_use_after(2, size, options)
}

fn in_use_after(commits: u32, size: u64, options: &str) -> MemDevice {
    let dev = build(size, options);
    let fs = mount(&dev, "modify=overwrite,redo=all");
    for n in 50..50 + commits {
        let dir = |name: &[u8]| fs.lookup(fs.root(), name).unwrap().ino;
        put(&*fs, dir(b"a"), "tail", 100, &damage::bytes(3000, n));
        put(&*fs, dir(b"b"), "heavy", 5, &damage::bytes(20, n));
        let new = put(&*fs, dir(b"wide"), &format!("new {n}"), 0, &damage::bytes(300, n));
        fs.setattr(new, &SetAttr { mode: Some(0o600 + n), ..SetAttr::default() }).unwrap();
        fs.syncfs().unwrap();
    }
    dev.snapshot()
}

static IN_USE: Damage<ImageCorruptor> = Damage {
    engine: &Evergreen,
    shapes: &SHAPES,
    build: build_in_use,
    tree,
    knife: ImageCorruptor::new,
    is_lost: damage::is_below,
    good: OnceLock::new(),
};

/// What the second commit has changed.
const OF_LAST: &[&str] = &["/a/tail", "/b/heavy", "/wide/new 51"];

/// Of a volume that is in use; what is lost is all of the last commit, or nothing.
fn in_use() -> Vec<Case> {
    vec![
        case(&["MasterDamaged"], false, OF_LAST, |k| k.flip(byte(k.master().head.redo.get()) + 50)),
        case(&["MasterDamaged"], false, OF_LAST, |k| k.flip(byte(k.redo(0).copy.get()) + 50)),
        case(&["MasterDamaged"], false, OF_LAST, |k| k.head(|head| head.redo = 1.into())),
        case(&["MasterDamaged"], false, OF_LAST, |k| {
            // A list without end.
            let at = k.master().head.redo.get();
            k.headed(at, |bytes| bytes[24..28].copy_from_slice(&at.to_le_bytes()));
            k.head(|head| head.redo_count = (head.redo_count.get() + 1).into());
        }),
        case(&["MasterDamaged", "Count"], false, &[], |k| k.head(|head| head.used = u32::MAX.into())),
        case(&["MasterDamaged"], false, OF_LAST, |k| {
            k.head(|head| (head.used, head.redo) = (u32::MAX.into(), 1.into()));
        }),
        case(&["SuperDamaged"], false, &[], |k| k.write(0, &[0; 512])),
        case(&["Count"], true, &[], |k| k.head(|head| head.used = (head.used.get() + 1).into())),
        case(&["Xattr"], false, &["/b/heavy"], |k| k.flip(byte(k.get(k.ino("/b/heavy")).xattr.get()) + 50)),
        case(&["Pointers"], false, &["/b/big"], |k| k.flip(k.block("/b/big", 12) + 100)),
        case(&["MarkedFree", "Count"], false, &["/a/tail", "/b/heavy", "/wide"], |k| {
            // It seems that nothing was overwritten.
            k.head(|head| (head.redo, head.redo_count) = (0.into(), 0.into()));
        }),
    ]
}

#[test]
fn damage_of_a_volume_in_use_is_found_and_mended() {
    for shape in 0..SHAPES.len() {
        in_use().iter().enumerate().for_each(|(n, case)| drop(IN_USE.heal(shape, n, case)));
    }
}

/// A volume with older commits that can be mounted.
fn build_retained(size: u64, options: &str) -> MemDevice {
    let dev = build(size, options);
    let fs = mount(&dev, "retain=5");
    for n in 0..7 {
        put(&*fs, fs.root(), "last", 0, &damage::bytes(40_000, n));
        fs.syncfs().unwrap();
    }
    fs.unmount().unwrap();
    dev
}

static RETAINED: Damage<ImageCorruptor> = Damage {
    engine: &Evergreen,
    shapes: &SHAPES,
    build: build_retained,
    tree,
    knife: ImageCorruptor::new,
    is_lost: damage::is_below,
    good: OnceLock::new(),
};

fn retained() -> Vec<Case> {
    vec![
        case(&["History"], true, &[], |k| {
            let all = k.masters();
            k.flip(byte(all[all.len() - 3].1) + 900);
        }),
        case(&["History"], true, &[], |k| k.head(|head| head.intact = 0.into())),
        case(&["History"], true, &[], |k| {
            // The bitmap of the one before. The last two are the same.
            let all = k.masters();
            let older = ImageCorruptor { dev: k.dev.clone(), geom: k.geom, at: all[all.len() - 3].1 };
            assert_ne!(older.bitmap(DBITMAP, 0), k.bitmap(DBITMAP, 0));
            k.flip(byte(older.bitmap(DBITMAP, 0)) + 200);
        }),
        case(&["Count"], true, &[], |k| k.head(|head| head.kept = u32::MAX.into())),
        case(&["Count"], true, &[], |k| k.head(|head| head.kept = 0.into())),
        case(&["Pointers"], false, &["/b/big"], |k| k.inode(k.ino("/b/big"), |d| d.map[3] = 1.into())),
    ]
}

#[test]
fn damage_of_older_commits_is_found_and_mended() {
    RETAINED.good_images_have_no_issues();
    for shape in 0..SHAPES.len() {
        retained().iter().enumerate().for_each(|(n, case)| drop(RETAINED.heal(shape, n, case)));
    }
}

/// Also what both commits have overwritten, of which the older contents are in copies only.
#[test]
fn the_commit_before_is_whole() {
    for (shape, (size, options)) in SHAPES.into_iter().enumerate() {
        let then = tree(&in_use_after(1, size, options));
        for case in in_use().iter().filter(|case| case.codes == ["MasterDamaged"]) {
            let (image, now) = IN_USE.good(shape);
            (case.damage)(&ImageCorruptor::new(image.clone()));
            let found = check(&image, Repair::No);
            let [issue] = &found.issues[..] else { panic!("{:?}", found.issues) };
            let (_, seq) = issue.text.split_once("-o ro,commit_at=").expect("what can be looked at");
            let seq = seq.split_once(' ').expect("a number").0;
            let options = MountOptions { read_only: true, options: Options::parse(&format!("commit_at={seq}")) };
            let before = Evergreen.mount(Devices::single(image.clone()), &options, Arc::new(ManualClock::default()));
            assert!(damage::tree_in(&*before.expect("mount before the repair")) == then);
            assert_eq!(codes(&check(&image, Repair::Yes)), ["MasterDamaged"]);
            assert!(tree(&image) == then && *now != then);
        }
    }
}

/// What lies where a block will be overwritten does not count.
#[test]
fn what_the_redo_list_has_counts() {
    let (image, good) = IN_USE.good(0);
    let k = ImageCorruptor::new(image.clone());
    (0..k.master().head.redo_count.get() as usize).for_each(|n| k.write(byte(k.redo(n).block.get()), &[0xab; BLOCK]));
    assert!(check(&image, Repair::No).issues.is_empty() && tree(&image) == *good);
    assert!(check(&image, Repair::Preen).recovered && tree(&image) == *good);
}

/// A master block that was not written whole does not count, and that is no damage.
#[test]
fn a_torn_master_block_is_no_damage() {
    let (image, _) = IN_USE.good(0);
    let k = ImageCorruptor::new(image.clone());
    k.write(byte(k.at) + 2048, &[0; 2048]);
    let report = check(&image, Repair::No);
    assert!(report.issues.is_empty() && report.unclean);
}

/// Without a redo list a volume is not mounted before it was checked.
#[test]
fn a_volume_without_a_redo_list_is_checked_first() {
    let (image, good) = DAMAGE.good(0);
    let fs = mount(&image, "modify=overwrite,redo=none");
    let cut = image.snapshot();
    fs.unmount().unwrap();
    let mount =
        || Evergreen.mount(Devices::single(cut.clone()), &MountOptions::default(), Arc::new(ManualClock::default()));
    assert!(mount().err().unwrap().to_string().contains("run fsck"));
    assert!(check(&cut, Repair::Preen).issues.is_empty());
    assert!(tree(&cut) == *good);
}

#[test]
fn damage_costs_only_itself() {
    let images = [DAMAGE.good(0).0, DAMAGE.good(1).0];
    arbor_torture::beside::damage_costs_only_itself(
        DAMAGE.engine,
        &images,
        &|s| ["superblock", "master block"].contains(&s.kind) || (s.kind, &*s.number.to_string()) == ("inode", "2"),
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
    damage_is_not_the_end_of_the_log(DAMAGE.engine, ("", "data=overwrite,bitmaps=overwrite", 3000), None);
}
