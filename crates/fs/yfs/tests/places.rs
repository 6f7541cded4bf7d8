//! Damage that a mounted volume meets has a place: a byte of the device, and of which one.

mod damage_kit;

use arbor_base::device::{Device, Kind, MemDevice};
use arbor_base::field;
use arbor_base::layout::{Location, Role, crc_without};
use arbor_base::vfs::{Devices, Engine, FormatOptions, ManualClock, MountOptions, Options};
use arbor_torture::damage::{self, Met, names_the_place};
use arbor_yfs::Yfs;
use arbor_yfs::format::*;
use damage_kit::*;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

fn names_places(all: &[Met<ImageCorruptor>]) {
    for (structure, field, damage) in all {
        let image = good();
        let place = damage(&ImageCorruptor::new(image.clone()));
        names_the_place(&Yfs, Devices::single(image), (structure, field), place);
    }
}

#[test]
fn of_superblocks_and_groups() {
    names_places(&[
        ("superblock", "frag_shift", |k| {
            k.super_block(|sb| sb.frag_shift = 40.into());
            field!(SuperBlock, frag_shift).1.into()
        }),
        ("superblock", "log_sectors", |k| {
            k.super_block(|sb| sb.log_sectors = 1.into());
            field!(SuperBlock, log_sectors).1.into()
        }),
        ("AG group block", "frags", |k| {
            let at = k.geom.group_block(1).byte();
            k.block(at, |b| GroupBody::mut_from_prefix(&mut b[HEADER..]).unwrap().0.frags = 1.into());
            at.into()
        }),
    ]);
}

#[test]
fn of_inodes_and_directories() {
    names_places(&[
        ("inode", "crc", |k| {
            let at = ino("a/inline") * SECTOR;
            k.change(at, 512, None, |b| b[300] ^= 0x55);
            at.into()
        }),
        ("inode", "size", |k| {
            k.inode(ino("a/inline"), |d| d.size = (1 << 50).into());
            (ino("a/inline") * SECTOR).into()
        }),
        ("inode", "xattr", |k| {
            k.inode(ino("a/heavy"), |d| d.xattr = 7.into());
            (ino("a/heavy") * SECTOR).into()
        }),
        ("directory block", "crc", |k| {
            let at = k.dir_block(ino("many"));
            k.change(at, 1024, None, |b| b[99] ^= 0x55);
            at.into()
        }),
        // A directory's tree leads out of the volume.
        ("directory tree node", "addr", |k| {
            k.raw_inode(ino("crowd"), |b| b[DINODE + NODE_HEADER + 8..][..8].fill(0x7f));
            (ino("crowd") * SECTOR).into()
        }),
        // No inode has the number 1. The entry is the only one there.
        ("directory", "entry", |k| {
            let dir = ino("a/x");
            let at = DINODE + DIR_HEAD;
            k.raw_inode(dir, |b| DirEnt::mut_from_prefix(&mut b[at..]).unwrap().0.ino = 1.into());
            (dir * SECTOR + at as u64).into()
        }),
        ("directory", "entry", |k| {
            let dir = ino("a/x");
            k.inode(dir, |d| d.parent = 1.into());
            (dir * SECTOR + field!(Dinode, parent).1).into()
        }),
    ]);
}

/// A volume with its log elsewhere, as a power cut leaves it.
fn crashed() -> (MemDevice, MemDevice) {
    let (main, log) = (MemDevice::new(8 << 20), MemDevice::new(2 << 20));
    let o = FormatOptions { uuid: [7; 16], options: Options::parse("ag=4M,block=1K,frag=512"), ..Default::default() };
    Yfs.format(devices(&main, &log), &o).expect("format");
    let clock = Arc::new(ManualClock::new(Default::default()));
    let fs = Yfs.mount(devices(&main, &log), &MountOptions::default(), clock).expect("mount");
    fs.mkdir(&CX, fs.root(), b"dir", 0o755).expect("mkdir");
    fs.syncfs().expect("syncfs");
    (main.snapshot(), log.snapshot())
}

fn devices(main: &MemDevice, log: &MemDevice) -> Devices {
    let mut all = Devices::single(main.clone());
    all.extra.insert("log".into(), Arc::new(log.clone()));
    all
}

/// Byte addresses of the records of a log, the first one first.
fn records(log: &MemDevice) -> Vec<u64> {
    let mut bytes = vec![0; 2 << 20];
    log.read_at(Kind::Log, 0, &mut bytes).expect("read");
    let is_record = |at: &u64| bytes[*at as usize..].starts_with(&RECORD_MAGIC.to_le_bytes());
    (0..bytes.len() as u64).step_by(512).filter(is_record).collect()
}

#[test]
fn of_a_log_on_a_device_of_its_own() {
    let place = |byte| Location::on(Role::Extra("log"), byte);
    let (main, log) = crashed();
    damage::write(&log, 0, &[9; 64]);
    damage::write(&log, 512, &[9; 64]);
    names_the_place(&Yfs, devices(&main, &log), ("log anchor", "crc"), place(0));

    let (main, log) = crashed();
    let at = records(&log)[0];
    let head = LogHeader::read_from_bytes(&damage::read(&log, at, RECORD_HEAD)).unwrap();
    let mut record = damage::read(&log, at, RECORD_HEAD + head.len.get() as usize);
    // The kind of the second entry.
    let first = LogEntry::read_from_prefix(&record[RECORD_HEAD..]).unwrap().0;
    let second =
        RECORD_HEAD + LOG_ENTRY + first.len.get() as usize * usize::from(first.kind == EntryType::Update as u8);
    LogEntry::mut_from_prefix(&mut record[second..]).unwrap().0.kind = 99;
    let (_, crc_at) = field!(LogHeader, crc);
    let crc = crc_without(&record, crc_at as usize).unwrap();
    record[crc_at as usize..][..4].copy_from_slice(crc.as_bytes());
    damage::write(&log, at, &record);
    names_the_place(&Yfs, devices(&main, &log), ("log entry", "kind"), place(at + second as u64));
}
