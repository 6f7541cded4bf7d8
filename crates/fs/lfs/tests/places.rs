//! Damage that a mounted volume meets has a place: the byte of the field, or of the directory or the ifile, or the inode.

mod damage_kit;

use arbor_base::field;
use arbor_base::layout::Location;
use arbor_lfs::Lfs;
use arbor_lfs::format::*;
use arbor_torture::damage::{Damage, Met};
use damage_kit::*;
use std::sync::OnceLock;

static DAMAGE: Damage<ImageCorruptor> = Damage {
    engine: &Lfs,
    shapes: &[(16 << 20, "block=4K,segment=256K")],
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

/// The place of an entry that names an inode which is free.
fn entry(k: &ImageCorruptor, dir: &str, name: &str) -> Location {
    let dir = k.ino(dir);
    let all = k.list(dir);
    let (_, _, offset) = all.iter().find(|e| e.0 == name).unwrap();
    k.dir(dir, *offset, &(k.free_inode() as u32).to_le_bytes());
    Location::file(dir, *offset)
}

#[test]
fn of_superblocks_and_checkpoints() {
    let all: [Met<ImageCorruptor>; 4] = [
        ("superblock", "block_shift", |k| {
            k.super_at(0, |sb| sb.block_shift = 40.into());
            field!(SuperBlock, block_shift).1.into()
        }),
        ("superblock", "crc", |k| {
            k.flip(60);
            field!(SuperBlock, crc).1.into()
        }),
        ("checkpoint", "next_seg", |k| {
            k.checkpoint(|cp| cp.next_seg = 99_999.into());
            (k.checkpoints()[0].0 + field!(Checkpoint, next_seg).1).into()
        }),
        ("checkpoint", "next_seg", |k| {
            let live = k.seg_of(k.ino("/b/big"), FileBlock::Data(0));
            k.checkpoint(|cp| cp.next_seg = live.0.into());
            (k.checkpoints()[0].0 + field!(Checkpoint, next_seg).1).into()
        }),
    ];
    DAMAGE.names_places(0, &all);
}

#[test]
fn of_the_ifile() {
    let all: [Met<ImageCorruptor>; 4] = [
        ("ifile", "size", |k| {
            k.inode(IFILE.0, |d| d.size = 5.into());
            Location::inode(IFILE)
        }),
        ("inode map", "frag", |k| {
            let ino = k.ino("/a/tail");
            k.put_entry(ino, |e| e.frag = 1.into());
            map(ino, field!(MapEntry, frag))
        }),
        ("inode map", "next_free", |k| {
            let free = k.free_inode();
            k.put_entry(free, |e| e.next_free = u32::MAX.into());
            map(free, field!(MapEntry, next_free))
        }),
        ("inode map", "frag", |k| {
            let used = k.ino("/a/small");
            k.checkpoint(|cp| cp.free_ino = (used as u32).into());
            map(used, field!(MapEntry, frag))
        }),
    ];
    DAMAGE.names_places(0, &all);
}

#[test]
fn of_inodes_and_pointers() {
    let all: [Met<ImageCorruptor>; 6] = [
        ("inode", "crc", |k| {
            let ino = k.ino("/a/small");
            k.flip(k.inode_byte(ino) + 20);
            Location::inode(ino)
        }),
        ("inode", "size", |k| {
            inode(k, "/a/slow", |d| d.size = 1_000_000.into());
            (k.inode_byte(k.ino("/a/slow")) + field!(Dinode, size).1).into()
        }),
        ("inode", "db", |k| inode(k, "/many", |d| d.db[0].frag = 0.into())),
        ("pointer", "frag", |k| inode(k, "/b/big", |d| d.db[3].frag = 1.into())),
        ("pointer", "frag", |k| {
            let ino = k.ino("/b/big");
            k.set_pointer(ino, FileBlock::Data(14), Pointer { frag: 1.into(), crc: 1.into() });
            (k.byte_of(ino, FileBlock::Map { level: 1, n: 0 }) + 2 * POINTER as u64).into()
        }),
        ("block", "crc", |k| {
            let at = k.byte_of(k.ino("/b/big"), FileBlock::Data(20));
            k.flip(at + 100);
            at.into()
        }),
    ];
    DAMAGE.names_places(0, &all);
}

#[test]
fn of_directories() {
    let all: [Met<ImageCorruptor>; 4] = [
        ("directory", "entries", |k| {
            let (dir, _, offset) = k.find("/a/small");
            k.name("/a/small", 4, &[3, 0]);
            Location::file(dir, offset / DIRBLKSIZ as u64 * DIRBLKSIZ as u64)
        }),
        // After the first block.
        ("directory", "entries", |k| {
            let many = k.ino("/many");
            let at = k.geom.block_size() as u64 + 512;
            k.dir(many, at + 4, &[3, 0]);
            Location::file(many, at)
        }),
        ("directory", "entry", |k| entry(k, "/a", "small")),
        ("directory", "entry", |k| entry(k, "/a/sub", "..")),
    ];
    DAMAGE.names_places(0, &all);
}
