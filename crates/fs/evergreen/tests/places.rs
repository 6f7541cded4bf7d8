//! Damage that a mounted volume meets has a place: the byte of the field, or of the directory, or the inode.

mod damage_kit;

use arbor_base::field;
use arbor_base::layout::Location;
use arbor_evergreen::Evergreen;
use arbor_evergreen::format::*;
use arbor_torture::damage::{Damage, Met};
use damage_kit::*;
use std::sync::OnceLock;

static DAMAGE: Damage<ImageCorruptor> = Damage {
    engine: &Evergreen,
    shapes: &[(16 << 20, "")],
    build,
    tree,
    knife: ImageCorruptor::new,
    is_lost: |_, _| false,
    good: OnceLock::new(),
};

#[test]
fn of_superblocks_and_master_blocks() {
    let all: [Met<ImageCorruptor>; 6] = [
        ("superblock", "crc", |k| {
            k.flip(60);
            field!(SuperBlock, crc).1.into()
        }),
        ("superblock", "stride", |k| {
            k.superblock(0, |sb| sb.stride = 2.into());
            field!(SuperBlock, stride).1.into()
        }),
        ("master block", "crc", |k| {
            k.flip(byte(k.at) + 900);
            byte(k.at).into()
        }),
        ("check-point", "used", |k| {
            k.head(|head| head.used = u32::MAX.into());
            (byte(k.at) + field!(CheckPoint, used).1).into()
        }),
        ("check-point", "seq", |k| {
            k.head(|head| head.intact = u64::MAX.into());
            (byte(k.at) + field!(CheckPoint, seq).1).into()
        }),
        ("inode", "mode", |k| {
            k.head(|head| head.orphan = 1000.into());
            Location::inode(1000u64)
        }),
    ];
    DAMAGE.names_places(0, &all);
}

#[test]
fn of_inodes_and_pointers() {
    let all: [Met<ImageCorruptor>; 5] = [
        ("inode", "crc", |k| {
            let ino = k.ino("/b/big");
            k.flip(k.inode_at(ino) + 20);
            Location::inode(ino)
        }),
        ("inode", "size", |k| {
            let ino = k.ino("/many");
            k.inode(ino, |d| d.size = 512.into());
            Location::inode(ino)
        }),
        ("inode", "map", |k| {
            let ino = k.ino("/b/big");
            k.inode(ino, |d| d.map[3] = 1.into());
            Location::inode(ino)
        }),
        ("indirect block", "crc", |k| {
            let at = k.block("/b/big", 12);
            k.flip(at + 100);
            at.into()
        }),
        ("attributes", "owner", |k| {
            let block = k.get(k.ino("/b/heavy")).xattr.get();
            k.headed(block, |bytes| bytes[20] ^= 1);
            byte(block).into()
        }),
    ];
    DAMAGE.names_places(0, &all);
}

#[test]
fn of_bitmaps() {
    let all: [Met<ImageCorruptor>; 3] = [
        ("bitmap", "crc", |k| {
            let block = k.bitmap(DBITMAP, 0);
            k.flip(byte(block) + 200);
            byte(block).into()
        }),
        ("bitmap", "bits", |k| {
            k.bit(DBITMAP, (k.block("/a", 0) >> BLOCK_SHIFT) as u32);
            Location::file(DBITMAP, 0)
        }),
        ("inode", "mode", |k| {
            let ino = k.ino("/a/tail");
            k.bit(IBITMAP, ino as u32);
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
            let end = k.master().head.inode_end.get();
            k.name("/a/small", 0, &end.to_le_bytes());
            Location::file(dir, at % BLOCK as u64)
        }),
    ];
    DAMAGE.names_places(0, &all);
}
