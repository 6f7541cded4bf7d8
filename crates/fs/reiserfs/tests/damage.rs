//! Each issue of the checker planted in a good image, found, mended; the other files intact.

mod damage_kit;

use arbor_base::device::{CrashChoice, MemDevice, RecordingDevice};
use arbor_base::vfs::*;
use arbor_reiserfs::ReiserFs;
use arbor_reiserfs::format::*;
use arbor_reiserfs::item::Item;
use arbor_reiserfs::stat;
use arbor_torture::damage::{self, Damage, Healed, case, codes};
use damage_kit::*;
use std::collections::BTreeSet;
use std::sync::OnceLock;
use zerocopy::IntoBytes;

const SHAPES: [(u64, &str); 2] = [(12 << 20, "block=1K,log=512K"), (16 << 20, "")];

static DAMAGE: Damage<Knife> = Damage {
    engine: &ReiserFs,
    shapes: &SHAPES,
    build,
    tree,
    knife: Knife::new,
    is_lost: damage::is_below,
    good: OnceLock::new(),
};

/// With whether preening mends it.
type Case = damage::Case<Knife, bool>;

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
    ]
}

fn logs() -> Vec<Case> {
    vec![
        case(&["Log"], false, &[], |k| (0..2).for_each(|slot| k.lose_log_head(slot))),
        case(&["LogHead"], true, &[], |k| k.lose_log_head(k.older_head())),
        case(&["LogHead"], true, &[], |k| k.log_head(k.older_head(), |head| head.seq = u64::MAX.into())),
        case(&["LogHead"], true, &[], |k| k.log_head(k.older_head(), |head| head.fsid = 9.into())),
        // That is what a crash leaves, too: what the other one knows is in place already.
        case(&[], true, &[], |k| k.lose_log_head(1 - k.older_head())),
        // A log that holds what it cannot hold.
        case(&["LogRecord"], false, &[], |k| k.record(&[(0, k.first_block(|sb| sb.uuid = [9; 16]))])),
        case(&["LogRecord"], false, &[], |k| k.record(&[(0, k.first_block(|sb| sb.height = 99.into()))])),
        case(&["LogRecord"], false, &[], |k| k.record(&[(0, vec![7; k.geom.node_size])])),
        case(&["Rebuilt"], false, &[], |k| {
            k.record(&[(0, k.first_block(|sb| (sb.root, sb.height) = (0.into(), 0.into())))]);
        }),
        case(&["Damaged", "Rebuilt"], false, &[], |k| k.record(&[(k.root().0, vec![7; k.geom.node_size])])),
        case(&["Bitmap"], true, &[], |k| k.record(&[(k.geom.bitmap(0), vec![7; k.geom.node_size])])),
        case(&["SuperCopy"], true, &[], |k| k.record(&[(k.geom.copy(), vec![7; k.geom.node_size])])),
    ]
}

fn numbers() -> Vec<Case> {
    vec![
        case(&["Ids"], true, &[], |k| k.flip(ID_MAP_AT as u64 + 100)),
        case(&["Ids"], true, &[], |k| k.ids(|map| map[16..20].fill(0xff))),
        case(&["Ids"], true, &[], |k| k.ids(|map| map[16..20].fill(0))),
        case(&["IdsFree"], false, &[], |k| k.ids(|map| map[ID_MAP + 4..ID_MAP + 8].copy_from_slice(&[5, 0, 0, 0]))),
        case(&["Ids"], true, &[], |k| k.ids(|map| map[ID_MAP..ID_MAP + 4].copy_from_slice(&[7, 0, 0, 0]))),
        case(&["SameNumber"], true, &["/same"], |k| {
            let (_, number) = key_of(k.ino("/a/small"));
            let ino = ino_of(ROOT_OBJECT, number);
            let d = k.stat_of(k.ino("/a/small"));
            let d =
                StatData { size: 0.into(), tail: 0.into(), blocks: 0.into(), xattr: 0.into(), nlink: 1.into(), ..d };
            k.insert(Item {
                key: Key::new(ROOT_OBJECT, number, 0, Kind::StatData),
                tail: 0,
                body: stat::encode(&d, true, 0).into(),
            });
            k.name("/", b"same", ino, 8);
        }),
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
        // Units that overlap the next item, in one node.
        case(&["Damaged", "Rebuilt"], false, &[""], |k| {
            k.insert(Item { key: k.key("/b/big", 77, Kind::StatData), tail: 0, body: vec![1; 9].into() });
        }),
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
            k.item(k.key("/b/big", 0, Kind::StatData), |i| i.body = i.body.part(0..2))
        }),
        case(&["Items"], false, &["/a/null"], |k| {
            k.insert(Item { key: k.key("/a/null", 0, Kind::Direct), tail: 0, body: vec![1; 9].into() });
        }),
        case(&["Items"], false, &[], |k| {
            k.insert(Item { key: k.key("/b/big", k.geom.byte(40), Kind::StatData), tail: 0, body: vec![1; 9].into() });
        }),
        case(&["Items"], false, &[], |k| {
            k.insert(Item {
                key: k.key("/a/tail", k.geom.byte(8) + 16, Kind::Indirect),
                tail: 0,
                body: vec![9; 40].into(),
            });
        }),
        case(&["Items"], false, &[], |k| {
            k.insert(Item { key: k.key("/a", XATTR_OFFSET - 1024, Kind::Direct), tail: 0, body: vec![1; 99].into() });
        }),
        case(&["Items"], false, &[], |k| {
            let body = vec![0; 80];
            k.insert(Item {
                key: k.key("/b/sparse", XATTR_OFFSET - k.geom.byte(1), Kind::Indirect),
                tail: 0,
                body: body.into(),
            });
        }),
        case(&["Items"], false, &[], |k| {
            k.insert(Item { key: k.key("/wide", 9, Kind::Direct), tail: 0, body: vec![1; 9].into() });
        }),
        // Numbers that no object has, or the root has.
        case(&["Items"], false, &[], |k| {
            k.insert(Item { key: Key::new(9, 0, 0, Kind::Direct), tail: 0, body: vec![1; 9].into() });
        }),
        case(&["Items"], false, &[], |k| {
            k.insert(Item { key: Key::new(9, ROOT_OBJECT, 0, Kind::Direct), tail: 0, body: vec![1; 9].into() });
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
            k.insert(Item {
                key: k.key("/b/sparse", k.geom.byte(5000), Kind::Direct),
                tail: 0,
                body: vec![1; 9].into(),
            });
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
            k.insert(Item { key: k.key("/a", MOST_OFFSET - 20, Kind::Xattr), tail: 0, body: vec![1; 9].into() });
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
    [volume(), logs(), numbers(), space(), nodes(), objects(), bodies(), links()].into_iter().flatten().collect()
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
    // Directories made of chunks have these; here they are items, and `.` and `..` are nowhere.
    let never = ["DirHole", "DirChunk", "Dots"];
    let all: Vec<&str> = arbor_reiserfs::issues().into_iter().filter(|code| !never.contains(code)).collect();
    DAMAGE.every_issue_is_planted(&cases(), &["SuperLost", "NoSpace", "LogGap"], &all);
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

fn heal(shape: usize, n: usize, case: &Case) {
    let Healed { damaged, what, .. } = DAMAGE.heal_and_preen(shape, n, case);
    assert_usable(&damaged, &what);
}

#[test]
fn planted_damage_with_large_nodes() {
    heal_all(1);
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
    fs.readdir(dir, 0, &mut |e| {
        names.push(e.name.to_vec());
        true
    })
    .unwrap();
    for name in names.into_iter().filter(|n| n != b"." && n != b"..") {
        let attr = fs.lookup(dir, &name).unwrap();
        if attr.file_type() == FileType::Dir {
            remove_all(fs, attr.ino);
            fs.rmdir(dir, &name).unwrap();
        } else {
            fs.unlink(dir, &name).unwrap();
        }
        fs.forget(attr.ino, 99);
    }
}

/// Whatever becomes of internal nodes: what formatted ones hold is there, and nothing else.
#[test]
fn internal_nodes_are_made_anew() {
    for shape in 0..SHAPES.len() {
        let (image, good) = DAMAGE.good(shape);
        let k = Knife::new(image.clone());
        assert!(!k.stale().is_empty(), "freed nodes of the tree lie about");
        let inner = k.internal();
        let all = inner.iter().map(|block| vec![*block]).chain([inner.clone()]);
        for (n, blocks) in all.enumerate() {
            let hurt = image.snapshot();
            let k = Knife::new(hurt.clone());
            blocks.iter().for_each(|block| k.destroy(*block));
            let report = check(&hurt, Repair::Yes);
            assert_eq!(report.remaining(), 0, "{n}: {:#?}", report.issues);
            assert!(codes(&report).contains(&"Rebuilt"), "{n}: {:#?}", report.issues);
            assert_eq!(check(&hurt, Repair::No).issues, vec![], "{n}");
            assert!(tree(&hurt) == *good, "{n}: {:#?}", report.issues);
        }
    }
}

/// What a formatted node held is lost, and nothing else is.
#[test]
fn a_lost_formatted_node() {
    for shape in 0..SHAPES.len() {
        let (image, good) = DAMAGE.good(shape);
        let leaves = Knife::new(image.clone()).level(1);
        for leaf in leaves {
            let hurt = image.snapshot();
            let k = Knife::new(hurt.clone());
            let kept = unhurt(&k, leaf, good);
            k.destroy(leaf);
            let what = format!("node {leaf} in shape {shape}");
            let report = check(&hurt, Repair::Yes);
            assert_eq!(report.remaining(), 0, "{what}: {:#?}", report.issues);
            assert_eq!(check(&hurt, Repair::No).issues, vec![], "{what}: {:#?}", report.issues);
            let now = tree(&hurt);
            for (path, ino) in kept {
                // Perhaps in lost+found, or with a directory that is there.
                let (then, name) = (&good[&path], path.rsplit_once('/').map_or("", |p| p.1));
                let is_it = |(at, item): (&String, &damage::Item)| {
                    let same = (then.mode, then.size, &then.content) == (item.mode, item.size, &item.content);
                    same && (*at == path || at.ends_with(name) || *at == format!("/lost+found/#{ino}"))
                };
                assert!(now.iter().any(is_it), "{what}: {path} in {:#?}", report.issues);
            }
            assert_usable(&hurt, &what);
        }
    }
}

/// Paths of files that have nothing in a formatted node, with their objects. Their names may be there, and directories above.
fn unhurt(k: &Knife, leaf: u32, good: &Tree) -> Vec<(String, Ino)> {
    let (objects, _) = k.held_by(leaf);
    let is_file = |item: &damage::Item| item.mode & mode::IFMT == mode::IFREG && item.size > 0;
    let files = good.iter().filter(|(path, item)| is_file(item) && !path.starts_with("/many/"));
    let found = files.map(|(path, _)| (path.clone(), k.ino(path)));
    found.filter(|(_, ino)| !objects.contains(ino)).collect()
}

/// A volume whose nodes lie behind several bitmaps.
fn large() -> (MemDevice, Tree) {
    let image = format(24 << 20, "block=1K,log=512K");
    let fs = mount(&image);
    let root = fs.root();
    for n in 0..5 {
        let dir = fs.mkdir(&CX, root, format!("dir {n}").as_bytes(), 0o755).unwrap().ino;
        file(&*fs, dir, "large", 0, &bytes(3_000_000, n));
        (0..100).for_each(|i| _ = file(&*fs, dir, &format!("{i}"), 0, &bytes(200 + i, n)));
    }
    fs.unmount().unwrap();
    let tree = tree(&image);
    (image, tree)
}

/// Without a superblock nobody knows how many bitmaps there are.
#[test]
fn a_lost_superblock_of_a_large_volume() {
    let (image, good) = large();
    let k = Knife::new(image.clone());
    assert!(k.sb().bitmaps.get() > 3 && k.level(1).last() > Some(&(3 * k.geom.covered())));
    let last = k.geom.bitmap(k.sb().bitmaps.get() - 1);
    let sb = k.sb();
    for lost in [vec![], vec![k.geom.bitmap(1)], vec![last], vec![k.geom.bitmap(0), last]] {
        let hurt = image.snapshot();
        let k = Knife::new(hurt.clone());
        k.write(0, &[0; SECTOR]);
        lost.iter().for_each(|block| k.destroy(*block));
        let report = check(&hurt, Repair::Yes);
        assert_eq!(report.remaining(), 0, "{lost:?}: {:#?}", report.issues);
        assert_eq!(check(&hurt, Repair::No).issues, vec![], "{lost:?}: {:#?}", report.issues);
        let now = tree(&hurt);
        assert!(good.iter().all(|(path, item)| now.get(path) == Some(item)), "{lost:?}: {:#?}", report.issues);
        assert!(Knife::new(hurt.clone()).sb().generation >= sb.generation, "transactions count on");
        assert_usable(&hurt, &format!("{lost:?}"));
    }
}

/// A file that holds the image of its own volume: the same UUID, nodes with right checksums.
#[test]
fn an_image_in_a_file_is_not_mixed_in() {
    let (image, _) = DAMAGE.good(0);
    let copy = image.to_bytes();
    let fs = mount(&image);
    let node = 1024;
    // What the copy has is not on the volume any more.
    let b = fs.lookup(fs.root(), b"b").unwrap().ino;
    remove_all(&*fs, b);
    let holds = fs.mknod(&CX, fs.root(), b"image", mode::IFREG | 0o644, 0).unwrap().ino;
    for (n, block) in copy.chunks(node).enumerate().filter(|(_, block)| block.iter().any(|b| *b != 0)) {
        fs.write(holds, (n * node) as u64, block).unwrap();
    }
    fs.unmount().unwrap();
    let good = tree(&image);
    let held = Knife::new(image.clone()).blocks_of("/image");
    assert!(held.len() > 100);
    for (n, bitmap) in [(1, false), (2, true), (9, false), (9, true)] {
        let hurt = image.snapshot();
        let k = Knife::new(hurt.clone());
        k.internal().into_iter().take(n).for_each(|block| k.destroy(block));
        if bitmap {
            k.destroy(k.geom.bitmap(0));
        }
        let control = hurt.snapshot();
        held.iter().for_each(|block| Knife::new(control.clone()).destroy(*block));
        let report = check(&hurt, Repair::Yes);
        assert_eq!(report.remaining(), 0, "{bitmap}: {:#?}", report.issues);
        assert_eq!(check(&hurt, Repair::No).issues, vec![], "{bitmap}: {:#?}", report.issues);
        let now = tree(&hurt);
        assert!(good.iter().all(|(path, item)| now.get(path) == Some(item)), "{bitmap}: {:#?}", report.issues);
        assert!(bitmap || now == good, "{:#?}", report.issues);
        // What is there again are nodes that were freed, as without the copy.
        let report = check(&control, Repair::Yes);
        assert_eq!(report.remaining(), 0, "{bitmap}: {:#?}", report.issues);
        assert!(tree(&control).keys().eq(now.keys()), "{bitmap}: {:#?}", report.issues);
    }
}

#[test]
fn a_node_in_a_file_at_its_own_place() {
    node_in_a_file();
}

/// Without a bitmap nodes that were freed count again. They do not take away what was given to others after that.
#[test]
fn what_was_removed_takes_nothing_from_what_is_there() {
    let image = format(17 << 18, "block=1K,log=512K");
    let fs = mount(&image);
    let dir = |name: &str| fs.mkdir(&CX, fs.root(), name.as_bytes(), 0o755).unwrap().ino;
    let (old, new) = (dir("removed"), dir("there"));
    (0..120).for_each(|n| _ = file(&*fs, old, &format!("{n}"), 0, &bytes(15_000, n)));
    fs.syncfs().unwrap();
    // Here and there all that was between two nodes goes.
    for n in (0..120).filter(|n| n % 13 > 4) {
        let name = format!("{n}");
        let ino = fs.lookup(old, name.as_bytes()).unwrap().ino;
        fs.unlink(old, name.as_bytes()).unwrap();
        fs.forget(ino, 9);
    }
    fs.syncfs().unwrap();
    (0..5).for_each(|n| _ = file(&*fs, new, &format!("{n}"), 0, &bytes(600_000, 200 + n)));
    fs.unmount().unwrap();
    let good = tree(&image);
    let k = Knife::new(image.clone());
    let taken: BTreeSet<u32> = (0..5).flat_map(|n| k.blocks_of(&format!("/there/{n}"))).collect();
    let stale: Vec<u32> = k.stale().into_iter().flat_map(|leaf| k.pointers_in(leaf)).collect();
    assert!(stale.iter().any(|to| taken.contains(to)), "{} and {} do not meet", stale.len(), taken.len());
    k.destroy(k.root().0);
    k.destroy(k.geom.bitmap(0));
    let report = check(&image, Repair::Yes);
    assert_eq!(report.remaining(), 0, "{:#?}", report.issues);
    assert_eq!(check(&image, Repair::No).issues, vec![], "{:#?}", report.issues);
    let now = tree(&image);
    let lost: Vec<&String> = good.iter().filter(|(path, item)| now.get(*path) != Some(item)).map(|e| e.0).collect();
    assert!(lost.is_empty(), "{lost:?} {:#?}", report.issues);
    assert_usable(&image, "removed");
}

/// A volume that was not unmounted: its log holds what is not in place yet.
fn cut_off() -> (MemDevice, Tree) {
    let (image, _) = DAMAGE.good(0);
    let fs = mount(&image);
    (0..50).for_each(|n| _ = file(&*fs, fs.root(), &format!("late {n}"), 0, &bytes(500, n)));
    fs.syncfs().unwrap();
    let cut = image.snapshot();
    let tree = tree(&cut);
    (cut, tree)
}

/// A record tells what the newer head of the log was.
#[test]
fn heads_of_a_log_that_holds_something() {
    let (image, good) = cut_off();
    for slot in [0, 1] {
        let hurt = image.snapshot();
        Knife::new(hurt.clone()).lose_log_head(slot);
        assert!(tree(&hurt) == good, "mounted without head {slot}");
        let report = check(&hurt, Repair::Preen);
        assert!(report.recovered && report.issues.is_empty(), "{:#?}", report.issues);
        assert!(tree(&hurt) == good, "head {slot}");
    }
    let hurt = image.snapshot();
    let k = Knife::new(hurt.clone());
    (0..2).for_each(|slot| k.lose_log_head(slot));
    let before = hurt.to_bytes();
    let report = check(&hurt, Repair::Preen);
    assert!(codes(&report).contains(&"Log") && report.remaining() > 0 && before == hurt.to_bytes());
    let report = check(&hurt, Repair::Yes);
    assert_eq!(report.remaining(), 0, "{:#?}", report.issues);
    assert_eq!(check(&hurt, Repair::No).issues, vec![], "{:#?}", report.issues);
    assert!(tree(&hurt) == good, "the records count from the first one on");
    assert_usable(&hurt, "both heads");
}

#[test]
fn a_damaged_record_that_others_follow_is_told() {
    let image = DAMAGE.good(0).0;
    let fs = mount(&image);
    for n in 0..4 {
        file(&*fs, fs.root(), &format!("synced {n}"), 0, &bytes(500, n));
        fs.syncfs().unwrap();
    }
    let k = Knife::new(image.snapshot());
    drop(fs);
    let at = k.geom.byte(2);
    k.write(at + 100, &[0xab; 16]);
    let refused = ReiserFs
        .mount(Devices::single(k.dev.clone()), &MountOptions::default(), std::sync::Arc::new(SystemClock))
        .err();
    let says = refused.expect("a mount that is refused").to_string();
    assert!(says.contains(&format!("at byte {at:#x}")) && says.contains("follows"), "{says}");
    let before = k.dev.to_bytes();
    let report = check(&k.dev, Repair::Preen);
    assert!(codes(&report).contains(&"LogGap") && report.remaining() > 0 && before == k.dev.to_bytes());
    let report = check(&k.dev, Repair::Yes);
    assert_eq!(report.remaining(), 0, "{:#?}", report.issues);
    assert_eq!(check(&k.dev, Repair::No).issues, vec![]);
    let now = tree(&k.dev);
    assert!((0..4).all(|n| now.contains_key(&format!("/synced {n}"))), "a later record has all of it");
}

#[test]
fn a_superblock_that_the_log_holds() {
    let (image, good) = cut_off();
    let k = Knife::new(image.clone());
    k.destroy(0);
    let report = check(&image, Repair::Yes);
    assert_eq!((codes(&report), report.remaining()), (vec!["SuperDamaged"], 0), "{:#?}", report.issues);
    assert!(report.issues[0].text.contains("the one in the log is used"), "{:#?}", report.issues);
    assert!(tree(&image) == good);
}

#[test]
fn without_any_superblock_nothing_is_done() {
    let (image, _) = DAMAGE.good(0);
    let k = Knife::new(image.clone());
    k.write(0, &[0; 512]);
    assert!(ReiserFs.probe(&image).unwrap().is_none() && ReiserFs.search(&image).unwrap());
    k.write(k.geom.byte(k.geom.copy()), &[0; 512]);
    let before = image.to_bytes();
    let report = check(&image, Repair::Yes);
    assert_eq!((codes(&report), report.remaining()), (vec!["SuperLost"], 1));
    assert!(before == image.to_bytes() && !ReiserFs.search(&image).unwrap());
}

/// What has no name finds no room on a full volume, and is not lost; a tree finds room always.
#[test]
fn a_full_volume() {
    let image = format(17 << 18, "block=1K,log=512K");
    let fs = mount(&image);
    let lonely = file(&*fs, fs.root(), "lonely", 0, b"alone");
    let full = file(&*fs, fs.root(), "full", 0, b"");
    let mut at = 0;
    while let Ok(n) = fs.write(full, at, &bytes(1024, 7)) {
        at += n as u64;
    }
    (0..100_000).take_while(|n| fs.mknod(&CX, fs.root(), format!("{n}").as_bytes(), mode::IFREG, 0).is_ok()).count();
    fs.unmount().unwrap();
    assert_eq!(check(&image, Repair::No).issues, vec![]);
    let good = tree(&image);
    let k = Knife::new(image.clone());
    k.internal().into_iter().for_each(|block| k.destroy(block));
    let report = check(&image, Repair::Yes);
    assert!(report.remaining() == 0 && tree(&image) == good, "{:#?}", report.issues);
    k.unname("/lonely");
    let report = check(&image, Repair::Yes);
    assert!(codes(&report).contains(&"NoSpace") && report.remaining() > 0, "{:#?}", report.issues);
    let fs = mount(&image);
    let full = fs.lookup(fs.root(), b"full").unwrap().ino;
    fs.setattr(full, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
    fs.unmount().unwrap();
    assert_eq!(check(&image, Repair::Yes).remaining(), 0);
    assert_eq!(check(&image, Repair::No).issues, vec![]);
    assert!(tree(&image).contains_key(&format!("/lost+found/#{lonely}")));
}

/// More is mended than the log takes at once, and a file is freed meanwhile.
#[test]
fn a_repair_that_is_larger_than_the_log() {
    let image = format(16 << 20, "block=1K,log=512K");
    let fs = mount(&image);
    (0..2500).for_each(|n| _ = file(&*fs, fs.root(), &format!("{n}"), 0, &bytes(150, n)));
    let orphan = file(&*fs, fs.root(), "orphan", 0, &bytes(300_000, 1));
    fs.unmount().unwrap();
    let k = Knife::new(image.clone());
    let good = tree(&image);
    k.stat("/orphan", |d| d.nlink = 0.into());
    k.unname("/orphan");
    for leaf in k.level(1) {
        let first = k.items_in(leaf)[0].key;
        k.leaf(first, |items| {
            for item in items.iter_mut().filter(|i| i.key.kind() == Some(Kind::StatData)) {
                let d = stat::decode(&item.body).unwrap();
                if d.kind() == mode::IFREG {
                    let d = StatData { blocks: (d.blocks.get() ^ 1).into(), ..d };
                    item.body = stat::encode(&d, true, item.body.len()).into();
                }
            }
        });
    }
    let hurt = image.snapshot();
    let report = check(&image, Repair::Yes);
    assert_eq!(report.remaining(), 0, "{:?}", codes(&report));
    assert!(report.issues.len() > 2500, "{:?}", codes(&report));
    let without = |mut tree: Tree| {
        tree.remove("/orphan");
        tree
    };
    let good = without(good);
    assert!(tree(&image) == good, "all but {orphan} is there");
    let device = RecordingDevice::new(hurt.snapshot());
    damage::check(&ReiserFs, device.clone(), Repair::Yes);
    for at in 0..=device.events() {
        let image = device.crash_state(at, &CrashChoice::Seeded(at as u64));
        let report = check(&image, Repair::Yes);
        assert_eq!(report.remaining(), 0, "killed at {at}: {:?}", codes(&report));
        assert_eq!(check(&image, Repair::No).issues, vec![], "killed at {at}");
        assert!(tree(&image) == good, "killed at {at}: {:?}", codes(&report));
    }
}

#[test]
fn a_lost_directory_with_many_files() {
    DAMAGE.a_lost_directory_with_many_files(|k| {
        k.cut(k.key("/many", 0, Kind::StatData), k.key("/many", XATTR_OFFSET, Kind::StatData));
    });
}

#[test]
fn a_repair_larger_than_the_cache() {
    DAMAGE.a_repair_larger_than_the_cache(512 << 20, 20_000, |k| {
        k.cut(k.key("/many", 0, Kind::StatData), k.key("/many", XATTR_OFFSET, Kind::StatData));
    });
}

#[test]
fn a_check_says_what_it_does() {
    DAMAGE.progress(&["names", "links"]);
}

#[test]
fn one_path() {
    DAMAGE.good_paths();
    let one = |path, code, says, damage| DAMAGE.on_path(path, code, says, damage);
    one("/a/small", "StatDamaged", "(/a/small)", |k| k.stat("/a/small", |d| d.mode = 0o30644.into()));
    one("/b/big", "Pointers", "(/b/big)", |k| k.set_pointer("/b/big", 2, 3));
    one("/b/big", "Duplicate", "(/b/big)", |k| k.set_pointer("/b/big", 2, k.pointer("/b/big", 3)));
    one("/b/heavy", "Xattr", "(/b/heavy)", |k| k.stat("/b/heavy", |d| d.xattr = 3.into()));
    one("/many", "DirSize", "(/many)", |k| k.stat("/many", |d| d.size = 3.into()));
    one("/a/tail", "EntryTarget", "\"tail\"", |k| k.entry("/a/tail", |e| e.object = u32::MAX.into()));
    one("/a/tail", "EntryKind", "\"tail\"", |k| k.entry("/a/tail", |e| e.kind = 4));
    one("/a/sub/subsub", "DotDot", "subsub", |k| k.stat("/a/sub/subsub", |d| d.above = 2.into()));
}

/// Any bytes of any structure are changed, and checksums made: whatever that says, it is mended.
#[test]
fn hostile_structures() {
    let heals = |seed: &u64| std::panic::catch_unwind(|| hostile(*seed)).is_ok();
    let ill: Vec<u64> = (0..300).filter(|seed| !heals(seed)).collect();
    assert!(ill.is_empty(), "seeds {ill:?}");
}

fn hostile(seed: u64) {
    let (image, _) = DAMAGE.good(seed as usize % 2);
    let k = Knife::new(image.clone());
    let mut rng = damage_kit::Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let nodes = k.nodes();
    for _ in 0..1 + rng.below(3) {
        let value = [0, 1, 0x7f, 0x80, 0xff, rng.below(256) as u8][rng.below(6) as usize];
        match rng.below(10) {
            // Neither its identity nor its shape: without these it is another volume.
            0 => k.superblock(0, |sb| sb.as_mut_bytes()[124 + rng.below(60) as usize] = value),
            1 => k.block(k.geom.bitmap(0), |b| b[BITMAP_HEAD + rng.below(400) as usize] = value),
            2 | 3 => {
                let (_, block) = nodes[rng.below(nodes.len() as u64) as usize];
                k.block(block, |b| {
                    let at = rng.below(b.len() as u64 - 8) as usize + 8;
                    b[at] = value;
                });
            }
            4 => k.block(nodes[0].1, |b| b[NODE_HEAD + rng.below(60) as usize] = value),
            _ => {
                // The heads of items, and the first bytes of what they hold.
                let (_, block) = nodes[nodes.len() - 1 - rng.below(nodes.len() as u64 / 2) as usize];
                k.block(block, |b| {
                    let heads = NODE_HEAD + usize::from(b[30]) * ITEM_HEAD;
                    let all = [(NODE_HEAD, heads - NODE_HEAD), (b.len() - 200, 200), (28, 4)];
                    let (from, len) = all[rng.below(3) as usize];
                    b[from + rng.below(len.max(1) as u64) as usize] = value;
                });
            }
        }
    }
    let what = format!("seed {seed}");
    check(&image, Repair::No);
    assert_usable(&image, &what);
}

#[test]
fn damage_costs_only_itself() {
    let images = [DAMAGE.good(0).0, DAMAGE.good(1).0];
    arbor_torture::beside::damage_costs_only_itself(
        DAMAGE.engine,
        &images,
        &|s| ["superblock", "map of object numbers"].contains(&s.kind),
        &["", "ordering=preserve"],
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
    damage_is_not_the_end_of_the_log(DAMAGE.engine, ("", "", 3000), Some("LogGap"));
    damage_is_not_the_end_of_the_log(DAMAGE.engine, ("", "ordering=preserve", 3000), Some("LogGap"));
    damage_is_not_the_end_of_the_log(DAMAGE.engine, ("", "tails=none", 9000), Some("LogGap"));
}
