//! Damage that a mounted volume meets has a place: the byte of the field, or of the directory, or the inode.

mod damage_kit;

use arbor_base::field;
use arbor_base::layout::Location;
use arbor_plain::Plain;
use arbor_plain::format::*;
use arbor_torture::damage::{Damage, Met};
use damage_kit::*;
use std::sync::OnceLock;

static DAMAGE: Damage<ImageCorruptor> = Damage {
    engine: &Plain,
    shapes: &[(16 << 20, "")],
    build,
    tree,
    knife: ImageCorruptor::new,
    is_lost: |_, _| false,
    good: OnceLock::new(),
};

#[test]
fn of_superblocks() {
    let all: [Met<ImageCorruptor>; 3] = [
        ("superblock", "crc", |k| {
            k.flip(60);
            field!(SuperBlock, crc).1.into()
        }),
        ("superblock", "blocks", |k| {
            k.superblock(0, |sb| sb.log = 2.into());
            field!(SuperBlock, blocks).1.into()
        }),
        ("superblock", "orphan", |k| {
            k.superblock(0, |sb| sb.orphan = u32::MAX.into());
            field!(SuperBlock, orphan).1.into()
        }),
    ];
    DAMAGE.names_places(0, &all);
}

#[test]
fn of_inodes_and_pointers() {
    let all: [Met<ImageCorruptor>; 3] = [
        ("inode", "crc", |k| {
            let ino = k.ino("/a/small");
            k.flip(k.inode_at(ino) + 20);
            k.inode_at(ino).into()
        }),
        ("inode", "map", |k| {
            let ino = k.ino("/many");
            k.inode(ino, |d| d.map[0] = 0.into());
            (k.inode_at(ino) + field!(Dinode, map).1).into()
        }),
        ("inode", "map", |k| {
            let ino = k.ino("/b/big");
            k.inode(ino, |d| d.map[3] = 1.into());
            Location::inode(ino)
        }),
    ];
    DAMAGE.names_places(0, &all);
}

#[test]
fn of_directories() {
    let all: [Met<ImageCorruptor>; 2] = [
        ("directory", "entries", |k| {
            let (_, at) = k.find("/a/small");
            k.name("/a/small", 4, &[3, 0]);
            (at / DIRBLKSIZ as u64 * DIRBLKSIZ as u64).into()
        }),
        ("directory", "entry", |k| {
            let (dir, (_, at)) = (k.ino("/a"), k.find("/a/small"));
            k.name("/a/small", 0, &(k.geom.inodes - 1).to_le_bytes());
            Location::file(dir, at % BLOCK as u64)
        }),
    ];
    DAMAGE.names_places(0, &all);
}
