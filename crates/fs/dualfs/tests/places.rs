//! Damage that a mounted volume meets has a place: the byte of the field, or of the directory or the ifile, or the inode.

mod damage_kit;

use arbor_base::field;
use arbor_base::layout::Location;
use arbor_dualfs::DualFs;
use arbor_dualfs::format::*;
use arbor_torture::damage::{Damage, Met};
use damage_kit::*;
use std::sync::OnceLock;

static DAMAGE: Damage<ImageCorruptor> = Damage {
    engine: &DualFs,
    shapes: &[(16 << 20, "segment=64K")],
    build,
    tree,
    knife: ImageCorruptor::new,
    is_lost: |_, _| false,
    good: OnceLock::new(),
};

/// Changes an inode, which is where the damage is.
fn inode(k: &ImageCorruptor, path: &str, f: impl FnOnce(&mut Dinode)) -> Location {
    let ino = k.ino(path);
    k.inode(ino, f);
    Location::inode(ino)
}

/// A field of an entry of the inode map.
fn map(ino: u64, (_, offset): (&str, u64)) -> Location {
    Location::file(IFILE, MAP_AT + ino * MAP_ENTRY as u64 + offset)
}

#[test]
fn of_superblocks_and_checkpoints() {
    let all: [Met<ImageCorruptor>; 4] = [
        ("superblock", "seg_shift", |k| {
            let sb = k.of("superblock", None);
            k.put(sb, field!(SuperBlock, seg_shift).1 as usize, &40u32.to_le_bytes());
            field!(SuperBlock, seg_shift).1.into()
        }),
        ("superblock", "crc", |k| {
            k.flip(60);
            field!(SuperBlock, crc).1.into()
        }),
        ("checkpoint", "next_seg", |k| {
            k.checkpoint(|cp| cp.next_seg = 99_999.into());
            (k.of("checkpoint", Some(k.newest().0)).offset + field!(Checkpoint, next_seg).1).into()
        }),
        ("checkpoint", "ifile", |k| {
            k.checkpoint(|cp| cp.ifile = 3.into());
            (k.of("checkpoint", Some(k.newest().0)).offset + field!(Checkpoint, ifile).1).into()
        }),
    ];
    DAMAGE.names_places(0, &all);
}

#[test]
fn of_the_ifile() {
    let all: [Met<ImageCorruptor>; 3] = [
        ("ifile", "size", |k| {
            k.inode(IFILE.0, |d| d.size = 5.into());
            Location::inode(IFILE)
        }),
        ("inode map", "block", |k| {
            let ino = k.ino("/a/tail");
            k.entry(ino, |e| e.block = 2.into());
            map(ino, field!(MapEntry, block))
        }),
        ("inode map", "block", |k| {
            let used = k.ino("/a/small");
            k.checkpoint(|cp| cp.totals.free_ino = (used as u32).into());
            map(used, field!(MapEntry, block))
        }),
    ];
    DAMAGE.names_places(0, &all);
}

#[test]
fn of_inodes_and_pointers() {
    let all: [Met<ImageCorruptor>; 5] = [
        ("inode", "crc", |k| {
            let ino = k.ino("/a/small");
            k.flip_inode(ino);
            Location::inode(ino)
        }),
        ("inode", "size", |k| {
            let ino = k.ino("/a/slow");
            k.inode(ino, |d| d.size = 1_000_000.into());
            (k.of("inode", Some(ino)).offset + field!(Dinode, size).1).into()
        }),
        ("pointer", "block", |k| inode(k, "/b/big", |d| d.db[3].block = 1.into())),
        ("block", "crc", |k| {
            let at = k.table("/b/big");
            k.flip(at + 100);
            at.into()
        }),
        ("contents", "crc", |k| {
            let at = k.block("/b/big", 2);
            k.flip(at + 100);
            at.into()
        }),
    ];
    DAMAGE.names_places(0, &all);
}

#[test]
fn of_directories() {
    let all: [Met<ImageCorruptor>; 2] = [
        ("directory", "entries", |k| {
            k.name("/a/small", 4, &[3, 0]);
            Location::file(k.ino("/a"), 0)
        }),
        // After the first block.
        ("directory", "entries", |k| {
            k.chunk(k.block("/many", 1) + 512 + 4, &[3, 0]);
            Location::file(k.ino("/many"), k.geom.block() as u64 + 512)
        }),
    ];
    DAMAGE.names_places(0, &all);
}
