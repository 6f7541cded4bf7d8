//! Each issue of the checker planted in a good image, found, mended; the other files intact.

mod damage_kit;

use arbor_base::device::MemDevice;
use arbor_base::vfs::*;
use arbor_plain::Plain;
use arbor_plain::format::*;
use arbor_torture::damage::{self, Damage, case, codes};
use damage_kit::*;
use std::sync::OnceLock;

const SHAPES: [(u64, &str); 1] = [(16 << 20, "")];

static DAMAGE: Damage<ImageCorruptor> = Damage {
    engine: &Plain,
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
    damage::check(&Plain, dev.clone(), repair)
}

fn volume() -> Vec<Case> {
    vec![
        case(&["SuperDamaged"], false, &[], |k| k.write(0, &[0; 512])),
        case(&["SuperDamaged"], false, &[], |k| k.flip(60)),
        case(&["SuperDamaged"], false, &[], |k| k.superblock(0, |sb| sb.uuid = [9; 16])),
        case(&["SuperDamaged", "End", "Count"], false, &[], |k| {
            k.write(0, &[0; 512]);
            k.write(byte(1), &vec![0; byte(k.geom.log) as usize]);
        }),
        case(&["SuperCopy"], true, &[], |k| k.write(byte(k.geom.copy()), &[0; 512])),
        case(&["SuperCopy"], true, &[], |k| k.superblock(k.geom.copy(), |sb| sb.label[0] ^= 9)),
        case(&["End"], false, &[], |k| {
            k.superblock(0, |sb| {
                let free = sb.space.count.get() - 9;
                sb.space = Pool { free: free.into(), end: 9.into(), rover: 0.into(), ..sb.space };
            });
        }),
        case(&["End"], false, &[], |k| {
            k.superblock(0, |sb| {
                let free = sb.inodes.count.get() - 3;
                sb.inodes = Pool { free: free.into(), end: 3.into(), rover: 3.into(), ..sb.inodes };
            });
        }),
        case(&["Count"], true, &[], |k| k.superblock(0, |sb| sb.space.free = (sb.space.free.get() + 1).into())),
        case(&["Count"], true, &[], |k| k.superblock(0, |sb| sb.inodes.free = (sb.inodes.free.get() + 1).into())),
        case(&["Bitmap"], false, &[], |k| k.flip(byte(k.geom.inode_bitmap()) + 200)),
        case(&["Bitmap"], false, &[], |k| k.write(byte(k.geom.space_bitmap()), &[0; BLOCK])),
        case(&["MarkedFree"], false, &[], |k| k.bit(k.geom.inode_bitmap(), k.ino("/a/tail") as u32)),
        case(&["MarkedFree"], false, &[], |k| k.bit(k.geom.space_bitmap(), 1)),
        case(&["MarkedUsed"], true, &[], |k| k.bit(k.geom.inode_bitmap(), 1000)),
        case(&["MarkedUsed"], true, &[], |k| k.bit(k.geom.space_bitmap(), 2000)),
        case(&["Orphans", "OrphanList"], false, &[], |k| {
            let used = k.ino("/a/small") as u32;
            k.superblock(0, |sb| sb.orphan = used.into());
        }),
    ]
}

fn inodes() -> Vec<Case> {
    vec![
        case(&["InodeDamaged"], false, &["/a/small", "/b/hard"], |k| k.flip(k.inode_at(k.ino("/a/small")) + 20)),
        case(&["InodeDamaged"], false, &["/a/sub"], |k| k.inode(k.ino("/a/sub"), |d| d.mode = 0o30644.into())),
        case(&["InodeDamaged"], false, &["/b/big"], |k| k.inode(k.ino("/b/big"), |d| d.size = u64::MAX.into())),
        case(&["InodeDamaged"], false, &["/many"], |k| k.inode(k.ino("/many"), |d| d.size = 512.into())),
        case(&["InodeDamaged"], false, &["/a/sub"], |k| k.inode(k.ino("/a/sub"), |d| d.map[0] = 0.into())),
        case(&["InodeDamaged"], false, &["/a/slow"], |k| k.write(k.block("/a/slow", 0) + 5, &[0])),
        case(&["InodeDamaged"], false, &["/a/tail"], |k| {
            let other = k.get(k.ino("/b/heavy"));
            k.write(k.inode_at(k.ino("/a/tail")), zerocopy::IntoBytes::as_bytes(&other));
        }),
        case(&["Pointers"], false, &["/b/big"], |k| k.inode(k.ino("/b/big"), |d| d.map[3] = 1.into())),
        case(&["Pointers"], false, &["/b/big"], |k| k.inode(k.ino("/b/big"), |d| d.map[12] = u32::MAX.into())),
        case(&["Pointers"], false, &["/b/big"], |k| k.flip(k.block("/b/big", 12) + 100)),
        case(&["Pointers"], false, &["/b/big"], |k| {
            let (big, sparse) = (k.ino("/b/big"), k.ino("/b/sparse"));
            assert!(big < sparse, "whoever is read first does not own it for that");
            let of_another = k.get(sparse).map[12];
            k.inode(big, |d| d.map[12] = of_another);
        }),
        case(&["BeyondSize"], true, &[], |k| k.inode(k.ino("/a/small"), |d| d.map[5] = 900.into())),
        case(&["Duplicate"], false, &["/b/big"], |k| {
            let taken = k.get(k.ino("/a/tail")).map[1];
            k.inode(k.ino("/b/big"), |d| d.map[4] = taken);
        }),
        case(&["Duplicate"], false, &["/b/heavy"], |k| {
            let taken = k.get(k.ino("/b/heavy")).xattr;
            k.inode(k.ino("/b/heavy"), |d| d.map[0] = taken);
        }),
        case(&["Xattr"], false, &["/b/heavy"], |k| k.flip(byte(k.get(k.ino("/b/heavy")).xattr.get()) + 50)),
        case(&["Xattr"], false, &["/b/heavy"], |k| k.headed(k.get(k.ino("/b/heavy")).xattr.get(), |b| b[HEAD] = 0)),
        case(&["BlockCount"], true, &[], |k| k.inode(k.ino("/b/big"), |d| d.blocks = (d.blocks.get() + 3).into())),
        case(&["LinkCount"], true, &["/a/small", "/b/hard"], |k| k.inode(k.ino("/b/hard"), |d| d.nlink = 9.into())),
        case(&["LinkCount"], true, &[], |k| k.inode(k.ino("/a"), |d| d.nlink = 7.into())),
        case(&["Unnamed"], true, &["/a/tail"], |k| k.name("/a/tail", 0, &[0; 4])),
        case(&["Unnamed"], true, &["/a/sub"], |k| k.name("/a/sub", 0, &[0; 4])),
        case(&["Orphans", "Unnamed"], true, &["/a/tail"], |k| {
            let ino = k.ino("/a/tail");
            k.name("/a/tail", 0, &[0; 4]);
            k.inode(ino, |d| d.nlink = 0.into());
            k.superblock(0, |sb| sb.orphan = (ino as u32).into());
        }),
    ]
}

fn directories() -> Vec<Case> {
    vec![
        case(&["RootLost"], false, &["/", ""], |k| k.inode(2, |d| d.mode = 0o100644.into())),
        case(&["InodeDamaged", "RootLost"], false, &["/", ""], |k| k.flip(k.inode_at(2) + 20)),
        case(&["BeyondSize", "Unnamed"], false, &["/a/sub"], |k| {
            k.inode(k.ino("/a/sub"), |d| (d.size, d.nlink) = (0.into(), 0.into()));
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
    [volume(), inodes(), directories()].into_iter().flatten().collect()
}

#[test]
fn a_good_image_has_no_issues() {
    DAMAGE.good_images_have_no_issues();
    damage::regions_are_what_is_used(&Plain, &DAMAGE.good(0).0);
}

/// Those that are not planted here have a test of their own.
#[test]
fn every_issue_is_planted() {
    DAMAGE.every_issue_is_planted(&cases(), &["SuperLost", "NoSpace"], &arbor_plain::issues());
}

#[test]
fn planted_damage_is_found_and_mended() {
    let heals = |(n, case): &(usize, Case)| std::panic::catch_unwind(|| DAMAGE.heal_and_preen(0, *n, case)).is_ok();
    let ill: Vec<usize> = cases().into_iter().enumerate().filter(|c| !heals(c)).map(|c| c.0).collect();
    assert!(ill.is_empty(), "cases {ill:?}");
}

#[test]
fn without_any_superblock_nothing_is_done() {
    let (image, _) = DAMAGE.good(0);
    let k = ImageCorruptor::new(image.clone());
    k.write(0, &[0; 512]);
    assert!(Plain.probe(&image).unwrap().is_none() && Plain.search(&image).unwrap());
    k.write(byte(k.geom.copy()), &[0; 512]);
    let before = image.to_bytes();
    let report = check(&image, Repair::Yes);
    assert_eq!((codes(&report), report.remaining()), (vec!["SuperLost"], 1));
    assert!(before == image.to_bytes() && !Plain.search(&image).unwrap());
}

/// What has no name finds no room on a full volume, and is not lost.
#[test]
fn a_full_volume() {
    let image = damage::format(&Plain, 4 << 20, "log=512K");
    let fs = damage::mount(&Plain, image.clone());
    let file = |name: &[u8]| fs.mknod(&Cx::default(), fs.root(), name, mode::IFREG | 0o644, 0).unwrap().ino;
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
    let fs = damage::mount(&Plain, image.clone());
    let full = fs.lookup(fs.root(), b"full").unwrap().ino;
    fs.setattr(full, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
    fs.unmount().unwrap();
    assert_eq!(check(&image, Repair::Yes).remaining(), 0);
    assert_eq!(check(&image, Repair::No).issues, vec![]);
    assert!(tree(&image).contains_key(&format!("/lost+found/#{lonely}")));
}

#[test]
fn a_lost_directory_with_many_files() {
    DAMAGE.a_lost_directory_with_many_files(|k| k.flip(k.inode_at(k.ino("/many")) + 30));
}

#[test]
fn a_repair_larger_than_the_cache() {
    DAMAGE.a_repair_larger_than_the_cache(512 << 20, 20_000, |k| k.flip(k.inode_at(k.ino("/many")) + 30));
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
    one("/a/small", "InodeDamaged", "(/a/small)", |k| k.flip(k.inode_at(k.ino("/a/small")) + 9));
    one("/b/big", "Pointers", "(/b/big)", |k| k.inode(k.ino("/b/big"), |d| d.map[2] = 3.into()));
    one("/b/heavy", "Xattr", "(/b/heavy)", |k| k.inode(k.ino("/b/heavy"), |d| d.xattr = 3.into()));
    one("/many", "DirChunk", "(/many)", |k| k.write(k.block("/many", 0) + 512, &[0xab; 512]));
    one("/a/tail", "EntryTarget", "\"tail\"", |k| k.name("/a/tail", 0, &[0xff; 4]));
    one("/a/sub/subsub", "DotDot", "subsub", |k| k.write(k.block("/a/sub/subsub", 0) + 12, &[2, 0]));
}

#[test]
fn damage_costs_only_itself() {
    let images = [DAMAGE.good(0).0];
    arbor_torture::beside::damage_costs_only_itself(DAMAGE.engine, &images, &|s| s.kind == "superblock", &[""]);
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
