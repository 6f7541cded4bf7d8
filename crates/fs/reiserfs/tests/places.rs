//! Damage that a mounted volume meets has a place: the byte of the field, of the node or of the item, or the directory.

mod damage_kit;

use arbor_base::field;
use arbor_base::layout::Location;
use arbor_reiserfs::ReiserFs;
use arbor_reiserfs::format::*;
use arbor_torture::damage::{Damage, Met};
use damage_kit::*;
use std::sync::OnceLock;

static DAMAGE: Damage<Knife> = Damage {
    engine: &ReiserFs,
    shapes: &[(16 << 20, "")],
    build,
    tree,
    knife: Knife::new,
    is_lost: |_, _| false,
    good: OnceLock::new(),
};

#[test]
fn of_superblocks() {
    let all: [Met<Knife>; 5] = [
        ("superblock", "crc", |k| {
            k.flip(60);
            field!(SuperBlock, crc).1.into()
        }),
        ("superblock", "log", |k| {
            k.superblock(0, |sb| sb.log = 2.into());
            field!(SuperBlock, log).1.into()
        }),
        ("superblock", "root", |k| {
            k.superblock(0, |sb| sb.root = 1.into());
            field!(SuperBlock, root).1.into()
        }),
        ("map of object numbers", "crc", |k| {
            k.flip(ID_MAP_AT as u64 + 100);
            (ID_MAP_AT as u64 + field!(IdMap, crc).1).into()
        }),
        ("map of object numbers", "ranges", |k| {
            k.ids(|map| map[ID_MAP..ID_MAP + 4].fill(0xff));
            ((ID_MAP_AT + ID_MAP) as u64).into()
        }),
    ];
    DAMAGE.names_places(0, &all);
}

#[test]
fn of_the_log_and_bitmaps() {
    let all: [Met<Knife>; 4] = [
        ("log head", "crc", |k| {
            for at in [0, SECTOR as u64] {
                k.flip(k.geom.byte(1) + at + field!(LogHead, seq).1);
            }
            (k.geom.byte(1) + field!(LogHead, crc).1).into()
        }),
        ("bitmap", "crc", |k| {
            let at = k.geom.byte(k.geom.bitmap(0));
            k.flip(at + 2000);
            (at + field!(BitmapHead, crc).1).into()
        }),
        ("bitmap", "block", |k| {
            let block = k.geom.bitmap(0);
            k.block(block, |bytes| bytes[field!(BitmapHead, block).1 as usize] ^= 1);
            (k.geom.byte(block) + field!(BitmapHead, block).1).into()
        }),
        ("bitmap", "bits", |k| {
            // Nodes of the tree that are said to be free.
            k.level(1).into_iter().for_each(|leaf| k.bits(leaf, true, false));
            k.geom.byte(k.geom.bitmap(0)).into()
        }),
    ];
    DAMAGE.names_places(0, &all);
}

#[test]
fn of_nodes() {
    let all: [Met<Knife>; 6] = [
        ("node", "crc", |k| {
            let at = k.geom.byte(k.root().0);
            k.flip(at + 100);
            (at + field!(NodeHead, crc).1).into()
        }),
        ("node", "crc", |k| {
            let at = k.geom.byte(k.level(1)[2]);
            k.flip(at + 100);
            (at + field!(NodeHead, crc).1).into()
        }),
        ("node", "level", |k| {
            let leaf = k.level(1)[1];
            k.block(leaf, |bytes| bytes[field!(NodeHead, level).1 as usize] = 2);
            (k.geom.byte(leaf) + field!(NodeHead, level).1).into()
        }),
        ("node", "children", |k| {
            let (block, second) = (k.root().0, NODE_HEAD + CHILD);
            k.block(block, |bytes| bytes[second..second + 16].fill(0));
            (k.geom.byte(block) + second as u64).into()
        }),
        ("node", "items", |k| {
            let item = k.place(k.key("/a/small", 0, Kind::Direct));
            k.patch(item.leaf, item.head + field!(ItemHead, len).1, &[0, 0]);
            item.head.into()
        }),
        ("node", "items", |k| {
            let (_, key) = k.find("/a/small");
            let item = k.place(key);
            k.patch(item.leaf, item.body + field!(EntryHead, len).1, &[255]);
            item.head.into()
        }),
    ];
    DAMAGE.names_places(0, &all);
}

/// Changes stat data; where they are.
fn stat(k: &Knife, path: &str, f: impl FnOnce(&mut StatData)) -> Location {
    k.stat(path, f);
    k.place(k.key(path, 0, Kind::StatData)).head.into()
}

#[test]
fn of_items() {
    let all: [Met<Knife>; 6] = [
        ("stat data", "mode", |k| stat(k, "/a/small", |d| d.mode = 0.into())),
        ("stat data", "tail", |k| stat(k, "/a/small", |d| d.tail = 99.into())),
        ("stat data", "xattr", |k| stat(k, "/b/heavy", |d| d.xattr = 7.into())),
        ("stat data", "size", |k| stat(k, "/a/fast", |d| d.size = 5000.into())),
        ("indirect item", "pointer", |k| {
            let item = k.place(k.key("/b/big", 0, Kind::Indirect));
            k.patch(item.leaf, item.body + 8, &1u32.to_le_bytes());
            item.head.into()
        }),
        ("directory", "kind", |k| {
            let (_, key) = k.find("/a/small");
            k.entry("/a/small", |head| head.kind = 3);
            Location::file(k.ino("/a"), key.offset())
        }),
    ];
    DAMAGE.names_places(0, &all);
}
