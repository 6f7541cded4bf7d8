//! Each issue of the checker planted in a good image, found, mended; the other files intact.

mod damage_kit;

use arbor_base::device::MemDevice;
use arbor_base::vfs::*;
use arbor_reiserfs::ReiserFs;
use arbor_reiserfs::format::*;
use arbor_reiserfs::item::Item;
use arbor_torture::damage::{self, Damage, Healed, case};
use damage_kit::*;
use std::sync::OnceLock;

const SHAPES: [(u64, &str); 2] = [(12 << 20, "node=1K,log=512K"), (16 << 20, "")];

static DAMAGE: Damage<Knife> =
    Damage { engine: &ReiserFs, shapes: &SHAPES, build, tree, knife: Knife::new, is_lost, good: OnceLock::new() };

/// With whether preening mends it.
type Case = damage::Case<Knife, bool>;

fn is_lost(lost: &[&str], path: &str) -> bool {
    let below = |l: &&str| path.strip_prefix(*l).is_some_and(|r| r.is_empty() || l.is_empty() || r.starts_with('/'));
    lost.iter().any(below)
}

fn volume() -> Vec<Case> {
    vec![
        case(&["SuperDamaged", "Rebuilt", "Count"], false, &[], |k| k.write(0, &[0; 512])),
        case(&["SuperDamaged", "Ids"], false, &[], |k| k.destroy(0)),
        case(&["SuperDamaged"], false, &[], |k| k.flip(60)),
        case(&["SuperDamaged"], false, &[], |k| k.superblock(0, |sb| sb.uuid = [9; 16])),
        case(&["SuperDamaged"], false, &[], |k| k.superblock(0, |sb| (sb.root, sb.height) = (0.into(), 0.into()))),
        case(&["SuperDamaged"], false, &[], |k| k.superblock(0, |sb| sb.root = 1.into())),
        case(&["SuperDamaged"], false, &[], |k| k.superblock(0, |sb| sb.height = 33.into())),
        case(&["SuperDamaged"], false, &[], |k| k.superblock(0, |sb| sb.free = u32::MAX.into())),
        case(&["SuperDamaged"], false, &[], |k| k.superblock(0, |sb| sb.bitmaps = u32::MAX.into())),
        case(&["SuperDamaged"], false, &[], |k| k.superblock(0, |sb| sb.node_size = 2048.into())),
        case(&["SuperCopy"], true, &[], |k| k.write(k.geom.byte(k.geom.copy()), &[0; 512])),
        case(&["SuperCopy"], true, &[], |k| k.superblock(k.geom.copy(), |sb| sb.label[0] ^= 9)),
        case(&["Log"], false, &[], |k| (0..2).for_each(|slot| k.lose_log_head(slot))),
        case(&["LogHead"], true, &[], |k| k.lose_log_head(k.older_head())),
        case(&["LogHead"], true, &[], |k| k.log_head(k.older_head(), |head| head.seq = u64::MAX.into())),
        case(&["LogHead"], true, &[], |k| k.log_head(k.older_head(), |head| head.fsid = 9.into())),
        // That is what a crash leaves, too: what the other one knows is in place already.
        case(&[], true, &[], |k| k.lose_log_head(1 - k.older_head())),
        case(&["Ids"], true, &[], |k| k.flip(ID_MAP_AT as u64 + 100)),
        case(&["Ids"], true, &[], |k| k.ids(|map| map[16..20].fill(0xff))),
        case(&["Ids"], true, &[], |k| k.ids(|map| map[16..20].fill(0))),
        case(&["IdsFree"], false, &[], |k| k.ids(|map| map[ID_MAP + 4..ID_MAP + 8].copy_from_slice(&[5, 0, 0, 0]))),
        case(&["IdsFree"], false, &[], |k| k.ids(|map| map[ID_MAP..ID_MAP + 4].copy_from_slice(&[7, 0, 0, 0]))),
        case(&["Orphans", "OrphanList"], false, &[], |k| {
            let used = k.ino("/a/small").0;
            k.superblock(0, |sb| sb.orphan = used.into());
        }),
        case(&["Orphans", "OrphanList"], false, &[], |k| k.superblock(0, |sb| sb.orphan = u64::MAX.into())),
        case(&["Orphans", "OrphanList", "Unnamed"], false, &["/a/tail"], |k| {
            let ino = k.ino("/a/tail").0;
            k.stat("/a/tail", |d| (d.nlink, d.above) = (0.into(), ino.into()));
            k.unname("/a/tail");
            k.superblock(0, |sb| sb.orphan = ino.into());
        }),
        case(&["Orphans", "Unnamed"], true, &["/a/tail"], |k| {
            let ino = k.ino("/a/tail").0;
            k.stat("/a/tail", |d| d.nlink = 0.into());
            k.unname("/a/tail");
            k.superblock(0, |sb| sb.orphan = ino.into());
        }),
    ]
}

fn space() -> Vec<Case> {
    vec![
        case(&["Bitmap"], true, &[], |k| k.flip(k.geom.byte(k.geom.bitmap(0)) + 200)),
        case(&["Bitmap"], true, &[], |k| k.destroy(k.geom.bitmap(0))),
        case(&["Bitmaps"], false, &[], |k| k.superblock(0, |sb| sb.bitmaps = 0.into())),
        case(&["Count"], true, &[], |k| k.superblock(0, |sb| sb.free = (sb.free.get() + 1).into())),
        case(&["Count"], true, &[], |k| k.superblock(0, |sb| sb.free = 0.into())),
        case(&["MarkedFree"], false, &[], |k| k.bits(k.pointer("/b/big", 3), true, false)),
        case(&["MarkedFree"], false, &[], |k| k.bits(k.root().0, true, true)),
        case(&["MarkedFree"], false, &[], |k| k.bits(3, true, false)),
        case(&["MarkedUsed"], true, &[], |k| k.bits(k.geom.covered() - 9, true, false)),
        case(&["MarkedUsed", "MarkedOther"], true, &[], |k| k.bits(k.geom.covered() - 9, true, true)),
        case(&["MarkedOther"], true, &[], |k| k.bits(k.geom.covered() - 9, false, true)),
        case(&["MarkedOther"], true, &[], |k| k.bits(k.pointer("/b/big", 3), false, true)),
        case(&["MarkedOther"], true, &[], |k| k.bits(k.level(1)[3], false, true)),
    ]
}

fn nodes() -> Vec<Case> {
    vec![
        case(&["Damaged", "Rebuilt"], false, &[], |k| k.destroy(k.root().0)),
        case(&["Damaged", "Rebuilt"], false, &[], |k| k.destroy(k.internal().pop().unwrap())),
        case(&["Damaged", "Rebuilt"], false, &[], |k| k.internal().into_iter().for_each(|block| k.destroy(block))),
        case(&["Damaged", "Rebuilt", "Bitmap"], false, &[], |k| {
            k.destroy(k.internal()[0]);
            k.destroy(k.geom.bitmap(0));
        }),
        // Empty, too full, not in order.
        case(&["Damaged", "Rebuilt"], false, &[], |k| k.block(k.root().0, |b| b[30..32].fill(0))),
        case(&["Damaged", "Rebuilt"], false, &[], |k| k.block(k.root().0, |b| b[30..32].fill(0xff))),
        case(&["Damaged", "Rebuilt"], false, &[], |k| {
            k.block(k.root().0, |b| b[NODE_HEAD + CHILD..][..CHILD].fill(0xff));
        }),
        case(&["Damaged", "Rebuilt"], false, &[], |k| k.block(k.root().0, |b| b[NODE_HEAD] ^= 1)),
        // A child that leads to nothing, to the log, beyond the volume, to its own node, to its neighbour.
        case(&["Damaged", "Rebuilt"], false, &[], |k| child(k, 0)),
        case(&["Damaged", "Rebuilt"], false, &[], |k| child(k, 5)),
        case(&["Damaged", "Rebuilt"], false, &[], |k| child(k, u32::MAX)),
        case(&["Damaged", "Rebuilt"], false, &[], |k| child(k, k.geom.copy())),
        case(&["Damaged", "Rebuilt"], false, &[], |k| child(k, k.geom.bitmap(0))),
        case(&["Damaged", "Rebuilt"], false, &[], |k| child(k, k.root().0)),
        case(&["Damaged", "Rebuilt"], false, &[], |k| child(k, k.level(k.root().1 - 1)[0])),
        case(&["Damaged", "Rebuilt"], false, &[], |k| child(k, k.pointer("/b/big", 2))),
        // A tree that is not as high as it is.
        case(&["Damaged", "Rebuilt"], false, &[], |k| k.superblock(0, |sb| sb.height = 1.into())),
        case(&["Damaged", "Rebuilt"], false, &[], |k| k.superblock(0, |sb| sb.height = 9.into())),
    ]
}

/// Makes the second child of the root lead elsewhere.
fn child(k: &Knife, to: u32) {
    k.block(k.root().0, |b| put_u32(b, NODE_HEAD + CHILD + 16, to));
}

fn objects() -> Vec<Case> {
    vec![
        case(&["StatLost"], false, &["/a/small", "/b/hard"], |k| {
            let key = k.key("/a/small", 0, Kind::StatData);
            k.cut(key, key.at(1));
        }),
        case(&["StatLost", "EntryTarget"], false, &["/b/heavy"], |k| {
            let key = k.key("/b/heavy", 0, Kind::StatData);
            k.cut(key, k.key("/b/heavy", 5, Kind::StatData));
        }),
        case(&["StatLost"], false, &["/many"], |k| {
            let key = k.key("/many", 0, Kind::StatData);
            k.cut(key, key.at(1));
        }),
        case(&["StatDamaged"], false, &["/a/sub"], |k| k.stat("/a/sub", |d| d.mode = 0o30644.into())),
        case(&["StatDamaged"], false, &["/a/null"], |k| k.stat("/a/null", |d| d.size = 5.into())),
        case(&["StatDamaged"], false, &["/b/big"], |k| k.stat("/b/big", |d| d.size = u64::MAX.into())),
        case(&["StatDamaged"], false, &["/b/big"], |k| k.stat("/b/big", |d| d.tail = 5.into())),
        case(&["StatDamaged"], false, &["/a/small", "/b/hard"], |k| k.stat("/a/small", |d| d.tail = u32::MAX.into())),
        case(&["StatDamaged", "Xattr"], false, &["/b/heavy"], |k| k.stat("/b/heavy", |d| d.xattr = u32::MAX.into())),
        case(&["StatDamaged"], false, &["/a/slow"], |k| k.stat("/a/slow", |d| d.size = 1_000_000.into())),
        case(&["StatDamaged"], false, &["/b/big"], |k| {
            k.item(k.key("/b/big", 0, Kind::StatData), |i| i.body.truncate(99))
        }),
        case(&["Items"], false, &["/a/null"], |k| {
            k.insert(Item { key: k.key("/a/null", 0, Kind::Direct), tail: 0, body: vec![1; 9] });
        }),
        case(&["Items"], false, &[], |k| {
            k.insert(Item { key: k.key("/b/big", k.geom.byte(40), Kind::StatData), tail: 0, body: vec![1; 9] });
        }),
        case(&["Items"], false, &[], |k| {
            k.insert(Item { key: k.key("/a/tail", k.geom.byte(8) + 16, Kind::Indirect), tail: 0, body: vec![9; 40] });
        }),
        case(&["Items"], false, &[], |k| {
            k.insert(Item { key: k.key("/a", XATTR_OFFSET - 1024, Kind::Direct), tail: 0, body: vec![1; 99] });
        }),
        case(&["Items"], false, &[], |k| {
            let body = vec![0; 80];
            k.insert(Item { key: k.key("/b/sparse", XATTR_OFFSET - k.geom.byte(1), Kind::Indirect), tail: 0, body });
        }),
        case(&["Items"], false, &[], |k| {
            k.insert(Item { key: k.key("/wide", 9, Kind::Direct), tail: 0, body: vec![1; 9] });
        }),
        case(&["Items", "Unnamed"], false, &["/a/sub"], |k| k.stat("/a/sub", |d| d.mode = 0o100644.into())),
    ]
}

fn bodies() -> Vec<Case> {
    vec![
        case(&["Pointers"], false, &["/b/big"], |k| k.set_pointer("/b/big", 3, 1)),
        case(&["Pointers"], false, &["/b/big"], |k| k.set_pointer("/b/big", 12, u32::MAX)),
        case(&["Pointers"], false, &["/b/big"], |k| k.set_pointer("/b/big", 29, k.geom.copy())),
        case(&["Pointers"], false, &["/b/big"], |k| k.set_pointer("/b/big", 12, k.root().0)),
        case(&["Pointers"], false, &["/b/big"], |k| k.set_pointer("/b/big", 12, k.level(1)[0])),
        // A node of the tree that comes after the file.
        case(&["Pointers"], false, &["/b/big"], |k| k.set_pointer("/b/big", 12, *k.level(1).last().unwrap())),
        case(&["BeyondSize"], true, &["/b/big"], |k| k.stat("/b/big", |d| d.size = (k.geom.byte(9)).into())),
        case(&["Duplicate"], false, &["/b/big"], |k| k.set_pointer("/b/big", 12, k.pointer("/b/big", 3))),
        case(&["Duplicate"], false, &["/b/big", "/b/sparse"], |k| {
            k.set_pointer("/b/sparse", 14, k.pointer("/b/big", 3));
        }),
        case(&["TailLost"], false, &["/a/small", "/b/hard"], |k| {
            k.cut(k.key("/a/small", 50, Kind::Direct), k.key("/a/small", 900, Kind::StatData));
        }),
        case(&["TailLost"], false, &["/a/small", "/b/hard"], |k| {
            k.cut(k.key("/a/small", 0, Kind::Direct), k.key("/a/small", 50, Kind::StatData));
        }),
        case(&["TailLost"], false, &["/a/tail"], |k| {
            let from = k.geom.byte(1);
            k.cut(k.key("/a/tail", from, Kind::Direct), k.key("/a/tail", from + 20, Kind::StatData));
        }),
        case(&["TailLost"], false, &["/a/small", "/b/hard"], |k| {
            k.cut(k.key("/a/small", 20, Kind::Direct), k.key("/a/small", 30, Kind::StatData));
        }),
        case(&["TailLost"], false, &[], |k| {
            k.insert(Item { key: k.key("/b/sparse", k.geom.byte(5000), Kind::Direct), tail: 0, body: vec![1; 9] });
        }),
        case(&["Used"], true, &[], |k| {
            k.item(k.key("/b/big", k.geom.byte(29), Kind::Indirect), |item| item.tail = 7);
        }),
        case(&["BlockCount"], true, &[], |k| k.stat("/b/big", |d| d.blocks = (d.blocks.get() + 3).into())),
        case(&["BlockCount"], true, &[], |k| k.stat("/b/big", |d| d.blocks = u32::MAX.into())),
        case(&["BlockCount"], true, &[], |k| k.stat("/many", |d| d.blocks = 3.into())),
        case(&["Target"], false, &["/a/fast"], |k| k.item(k.key("/a/fast", 0, Kind::Direct), |i| i.body[3] = 0)),
        case(&["Target"], false, &["/a/fast"], |k| {
            k.stat("/a/fast", |d| (d.size, d.tail) = (0.into(), 0.into()));
            k.cut(k.key("/a/fast", 0, Kind::Direct), k.key("/a/fast", 900, Kind::StatData));
        }),
        case(&["Xattr"], false, &["/b/heavy"], |k| {
            k.item(k.key("/b/heavy", XATTR_OFFSET, Kind::Xattr), |i| i.body[0] = 0xff);
        }),
        case(&["Xattr"], false, &["/b/heavy"], |k| k.stat("/b/heavy", |d| d.xattr = (d.xattr.get() + 1).into())),
        case(&["Xattr"], false, &["/b/heavy"], |k| {
            k.cut(
                k.key("/b/heavy", XATTR_OFFSET + 9, Kind::Xattr),
                k.key("/b/heavy", XATTR_OFFSET + 20, Kind::StatData),
            );
        }),
        case(&["Xattr"], false, &[], |k| {
            k.insert(Item { key: k.key("/a", MOST_OFFSET - 20, Kind::Xattr), tail: 0, body: vec![1; 9] });
        }),
    ]
}

fn links() -> Vec<Case> {
    vec![
        case(&["LinkCount"], true, &["/a/small", "/b/hard"], |k| k.stat("/b/hard", |d| d.nlink = 9.into())),
        case(&["LinkCount"], true, &["/a/small", "/b/hard"], |k| k.stat("/b/hard", |d| d.nlink = 0.into())),
        case(&["LinkCount"], true, &[], |k| k.stat("/a", |d| d.nlink = u32::MAX.into())),
        case(&["Unnamed"], true, &["/a/tail"], |k| k.unname("/a/tail")),
        case(&["Unnamed"], true, &["/a/empty"], |k| k.unname("/a/empty")),
        case(&["Unnamed"], true, &["/a/sub"], |k| k.unname("/a/sub")),
        case(&["RootLost"], false, &["/", ""], |k| k.stat("/", |d| d.mode = 0o100644.into())),
        case(&["RootLost"], false, &["/", ""], |k| {
            k.cut(k.key("/", 0, Kind::StatData), k.key("/", XATTR_OFFSET, Kind::Xattr))
        }),
        case(&["StatLost"], false, &["", "/"], |k| {
            let key = k.key("/", 0, Kind::StatData);
            k.cut(key, key.at(1));
        }),
        case(&["DotDot"], true, &[], |k| k.stat("/a/sub/subsub", |d| d.above = 2.into())),
        case(&["DotDot"], true, &[], |k| k.stat("/a", |d| d.above = 0.into())),
        case(&["DirSize"], true, &[], |k| k.stat("/many", |d| d.size = u64::MAX.into())),
        case(&["EntryOffset", "Unnamed"], false, &["/a/tail"], |k| {
            let (_, key) = k.find("/a/tail");
            k.item(key, |item| {
                let at = item.body.windows(4).position(|w| w == b"tail").unwrap();
                item.body[at] ^= 9;
            });
        }),
        case(&["EntryName"], false, &[], |k| k.name("/a", b"sla/sh", k.ino("/a/small"), 8)),
        case(&["EntryName"], false, &[], |k| k.name("/a", b"..", k.ino("/a"), 4)),
        case(&["EntryName"], false, &[], |k| k.name("/a", b"", k.ino("/a/small"), 8)),
        case(&["EntryTarget"], false, &[], |k| k.name("/a", b"nobody", Ino(99_999), 8)),
        case(&["EntryTarget"], false, &[], |k| k.name("/a", b"nobody", Ino(0), 8)),
        case(&["EntryTarget"], false, &[], |k| k.name("/a", b"root", ROOT, 4)),
        case(&["EntryTarget"], false, &[], |k| k.name("/a", b"self", k.ino("/a"), 4)),
        case(&["EntryKind"], true, &[], |k| k.entry("/a/tail", |e| e.kind = 4)),
        case(&["EntryKind"], true, &[], |k| k.entry("/a/tail", |e| e.kind = 0xff)),
        case(&["DuplicateName"], false, &["/a/tail"], |k| k.name("/a", b"tail", k.ino("/a/small"), 8)),
        case(&["TwoParents"], true, &[], |k| k.name("/b", b"sub", k.ino("/a/sub"), 4)),
        case(&["DirLoop"], false, &["/a/sub"], |k| {
            k.name("/a/sub/subsub", b"up", k.ino("/a/sub"), 4);
            k.unname("/a/sub");
        }),
    ]
}

fn cases() -> Vec<Case> {
    [volume(), space(), nodes(), objects(), bodies(), links()].into_iter().flatten().collect()
}

#[test]
fn a_good_image_has_no_issues() {
    DAMAGE.good_images_have_no_issues();
    let k = Knife::new(DAMAGE.good(0).0);
    assert!(k.root().1 == 3 && k.sb().bitmaps.get() == 1, "{} levels", k.root().1);
}

/// Those that are not planted here have a test of their own.
#[test]
fn every_issue_is_planted() {
    let never = ["DirHole", "DirChunk", "Dots"];
    let all: Vec<&str> = arbor_reiserfs::issues().into_iter().filter(|code| !never.contains(code)).collect();
    DAMAGE.every_issue_is_planted(&cases(), &["SuperLost", "NoSpace"], &all);
}

fn heal_all(shape: usize) {
    let only: Option<usize> = std::env::var("CASE").ok().and_then(|n| n.parse().ok());
    let heals = |(n, case): &(usize, Case)| std::panic::catch_unwind(|| heal(shape, *n, case)).is_ok();
    let chosen = cases().into_iter().enumerate().filter(|c| only.is_none_or(|n| n == c.0));
    let ill: Vec<usize> = chosen.filter(|c| !heals(c)).map(|c| c.0).collect();
    assert!(ill.is_empty(), "cases {ill:?} in shape {shape}");
}

#[test]
fn planted_damage_is_found_and_mended() {
    heal_all(0);
}

#[test]
fn planted_damage_with_large_nodes() {
    heal_all(1);
}

/// Preening mends what loses nothing, or writes nothing.
fn heal(shape: usize, n: usize, case: &Case) {
    let Healed { damaged, what, .. } = DAMAGE.heal(shape, n, case);
    let (image, before) = (damaged.snapshot(), damaged.to_bytes());
    let report = check(&image, Repair::Preen);
    let mended = report.issues.iter().all(|i| i.repaired);
    assert_eq!(mended, case.preen, "{what}: {:#?}", report.issues);
    assert!(mended || before == image.to_bytes(), "{what}: preening wrote");
    assert!(!mended || check(&image, Repair::No).issues.is_empty(), "{what}");
    assert_usable(&damaged, &what);
}

/// A repaired volume can be used: files can be made, filled, and all of them removed.
fn assert_usable(damaged: &MemDevice, what: &str) {
    let image = damaged.snapshot();
    let report = check(&image, Repair::Yes);
    assert_eq!((report.remaining(), check(&image, Repair::No).issues), (0, vec![]), "{what}");
    let fs = mount(&image);
    let root = fs.root();
    file(&*fs, root, "new", 0, &bytes(30_000, 3));
    remove_all(&*fs, root);
    file(&*fs, root, "last", 0, &bytes(3000, 4));
    fs.unmount().unwrap();
    assert_eq!(check(&image, Repair::No).issues, vec![], "{what}: all was removed");
    assert_eq!(tree(&image).len(), 2, "{what}");
}

fn remove_all(fs: &dyn FileSystem, dir: Ino) {
    let mut names = Vec::new();
    let mut take = |e: &DirEntry<'_>| {
        names.push(e.name.to_vec());
        true
    };
    fs.readdir(dir, 0, &mut |e| take(&e)).unwrap();
    for name in names.into_iter().filter(|n| n != b"." && n != b"..") {
        let attr = fs.lookup(dir, &name).unwrap();
        if attr.file_type() == FileType::Dir {
            remove_all(fs, attr.ino);
            fs.rmdir(dir, &name).unwrap();
        } else {
            fs.unlink(dir, &name).unwrap();
        }
        fs.forget(attr.ino, 1);
    }
}
