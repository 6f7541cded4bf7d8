//! Damage that a mounted volume meets has a place: the byte of the field, or of the directory.

mod damage_kit;

use arbor_base::field;
use arbor_base::layout::Location;
use arbor_base::vfs::Ino;
use arbor_ffs::Ffs;
use arbor_ffs::format::*;
use arbor_torture::damage::{Damage, Met};
use damage_kit::*;
use std::sync::OnceLock;

static DAMAGE: Damage<ImageCorruptor> = Damage {
    engine: &Ffs,
    shapes: &[(16 << 20, "block=4K,cg=4M")],
    build,
    tree: |image| ImageCorruptor::new(image.clone()).tree(),
    knife: ImageCorruptor::new,
    is_lost: |_, _| false,
    good: OnceLock::new(),
};

/// Changes an inode; where one of its fields is.
fn inode(k: &ImageCorruptor, path: &str, (_, offset): (&str, u64), f: impl FnOnce(&mut Dinode)) -> Location {
    let ino = k.ino(path);
    k.inode(ino, f);
    (k.inode_byte(ino) + offset).into()
}

/// The indirect block of `/b/big`.
fn indirect(k: &ImageCorruptor) -> u64 {
    k.geom.byte(Frag(k.get(k.ino("/b/big")).ib[0].get()))
}

fn group(k: &ImageCorruptor, cgx: u32, offset: u64) -> Location {
    (k.geom.byte(k.geom.cg_block(cgx)) + offset).into()
}

/// The place of an entry that names an inode which is free from now on.
fn entry(k: &ImageCorruptor, dir: &str, name: &str) -> Location {
    let dir = k.ino(dir);
    let all = k.list(dir);
    let (_, _, byte) = all.iter().find(|e| e.0 == name).unwrap();
    k.write(*byte, &(k.free_inode(1) as u32).to_le_bytes());
    Location::file(dir, byte - k.byte_of(dir, 0))
}

#[test]
fn of_superblocks_and_groups() {
    let all: [Met<ImageCorruptor>; 7] = [
        ("superblock", "block_shift", |k| {
            k.super_at(0, |sb| sb.block_shift = 40.into());
            field!(SuperBlock, block_shift).1.into()
        }),
        ("superblock", "crc", |k| {
            k.write(60, &[0xee; 4]);
            field!(SuperBlock, crc).1.into()
        }),
        ("superblock", "keeping", |k| {
            k.super_at(0, |sb| sb.keeping = 9.into());
            field!(SuperBlock, keeping).1.into()
        }),
        ("cylinder group", "sum", |k| {
            k.header(0, |h| h.sum.nbfree = (h.sum.nbfree.get() + 1).into());
            group(k, 0, field!(CgHeader, sum).1)
        }),
        ("cylinder group", "crc", |k| {
            let Location::Device { byte, .. } = group(k, 0, 512) else { unreachable!() };
            k.write(byte + 40, &[0xee; 4]);
            byte.into()
        }),
        ("cylinder group", "bitmap", |k| {
            let (frag, bf) = (k.map(k.ino("/b/big"))[3].1, k.geom.block_frags());
            (frag..frag + bf).for_each(|frag| k.frag_bit(frag, false));
            let (cgx, within) = (frag / k.geom.cg_frags, frag % k.geom.cg_frags);
            k.header(cgx, |h| h.sum.nbfree = (h.sum.nbfree.get() + 1).into());
            group(k, cgx, bit_place(1 + k.geom.inode_sectors(), within).0 as u64)
        }),
        ("cylinder group", "inode bitmap", |k| {
            let ino = k.ino("/a/tail");
            k.inode_bit(ino, false);
            let (cgx, index) = (k.geom.cg_of_inode(Ino(ino)), (ino % u64::from(k.geom.cg_inodes)) as u32);
            k.header(cgx, |h| h.sum.nifree = (h.sum.nifree.get() + 1).into());
            group(k, cgx, bit_place(1, index).0 as u64)
        }),
    ];
    DAMAGE.names_places(0, &all);
}

#[test]
fn of_inodes_and_pointers() {
    let all: [Met<ImageCorruptor>; 7] = [
        ("inode", "crc", |k| {
            let at = k.inode_byte(k.ino("/a/small"));
            k.write(at + 20, &[9, 8, 7, 6]);
            (at + field!(Dinode, crc).1).into()
        }),
        ("inode", "size", |k| inode(k, "/a/slow", field!(Dinode, size), |d| d.size = 1_000_000.into())),
        ("inode", "db", |k| inode(k, "/many", field!(Dinode, db), |d| d.db[0] = 0.into())),
        ("inode", "xattr", |k| inode(k, "/b/heavy", field!(Dinode, xattr), |d| d.xattr = 3.into())),
        ("pointer", "frag", |k| inode(k, "/b/big", field!(Dinode, db), |d| d.db[3] = 1.into()).plus(12)),
        ("pointer", "frag", |k| inode(k, "/b/big", field!(Dinode, ib), |d| d.ib[0] = u32::MAX.into())),
        ("pointer", "frag", |k| {
            let at = indirect(k) + 8;
            k.write(at, &[0xff; 4]);
            at.into()
        }),
    ];
    DAMAGE.names_places(0, &all);
}

#[test]
fn of_directories_and_attributes() {
    let all: [Met<ImageCorruptor>; 4] = [
        ("directory", "entries", |k| {
            let (_, at) = k.find("/a/small");
            k.write(at + 4, &[3, 0]);
            (at / 512 * 512).into()
        }),
        ("directory", "entry", |k| entry(k, "/a", "small")),
        ("directory", "entry", |k| entry(k, "/a/sub", "..")),
        ("attributes", "crc", |k| {
            let at = k.geom.byte(Frag(k.get(k.ino("/b/heavy")).xattr.get()));
            k.write(at + 50, &[0xee; 4]);
            at.into()
        }),
    ];
    DAMAGE.names_places(0, &all);
}
