//! The golden images of format version 1: an empty volume; one of every form of file, unmounted; the same after a power cut,
//! with an open file without a name on the list of these; and after a power cut while blocks that were overwritten were in the
//! redo list only. Today's code reads all of them, and makes those with `INCOMPAT_XATTR_BLOCKS` byte for byte.

use arbor_base::device::MemDevice;
use arbor_base::vfs::{CheckOptions, Devices, Engine, Repair, SetAttr, XattrMode};
use arbor_evergreen::Evergreen;
use arbor_evergreen::format::*;
use arbor_torture::damage::read;
use arbor_torture::golden::{CUT, EMPTY, Forms, Golden, Recorded, UNMOUNTED, file, pack};
use std::collections::BTreeMap;
use zerocopy::FromBytes;

static GOLDEN: Golden = Golden::new(&Evergreen, env!("CARGO_MANIFEST_DIR"), make, Vec::new);
const FORMS: Forms = Forms { far: [12 << 12, (12 + POINTERS) << 12, (12 + POINTERS + POINTERS * POINTERS) << 12] };

const SHAPE: &str = "stride=64";
const REDO: &str = "v1-redo.bin";
/// With `INCOMPAT_XATTR_BLOCKS`; the last one has attributes of several blocks.
const XATTRS: [&str; 4] = ["v1-xattrs-empty.bin", "v1-xattrs-twice.bin", "v1-xattrs-cut.bin", "v1-xattrs-redo.bin"];
/// Unmounted with one commit.
const ONCE: &str = "v1-xattrs.bin";
/// How the volume of [`REDO`] was mounted.
const OVERWRITE: &str = "modify=overwrite,redo=all";

fn make() -> Recorded {
    let made = GOLDEN.usual(SHAPE, &FORMS).0.into_iter().map(|(_, bytes)| bytes);
    XATTRS.into_iter().zip(made.chain([pack(&overwritten())])).collect()
}

/// A volume whose last commit has overwritten blocks of each kind, before the next commit.
fn overwritten() -> MemDevice {
    let dev = GOLDEN.format(SHAPE);
    let fs = GOLDEN.mount(&dev, OVERWRITE);
    FORMS.fill(&*fs);
    let root = fs.root();
    let big = fs.lookup(root, b"blocks").expect("lookup").ino;
    fs.setxattr(big, b"user.colour", b"blue", XattrMode::Set).expect("setxattr");
    fs.setxattr(big, b"user.long", &[7; 3 * BLOCK], XattrMode::Set).expect("setxattr");
    // The second one writes what the first one has overwritten in place.
    for mode in [0o600, 0o640] {
        fs.syncfs().expect("syncfs");
        fs.setattr(big, &SetAttr { mode: Some(mode), ..SetAttr::default() }).expect("setattr");
    }
    fs.syncfs().expect("syncfs");
    fs.setxattr(big, b"user.colour", b"green", XattrMode::Set).expect("setxattr");
    for at in FORMS.far[..2].iter() {
        fs.write(big, at + BLOCK as u64, b"new").expect("write");
    }
    let dir = fs.lookup(root, b"directory").expect("lookup").ino;
    let gone = file(&*fs, dir, "gone", b"for a while");
    fs.setattr(gone, &SetAttr { mode: Some(0o600), ..SetAttr::default() }).expect("setattr");
    fs.unlink(dir, b"gone").expect("unlink");
    fs.forget(gone, 1);
    fs.syncfs().expect("syncfs");
    dev.snapshot()
}

/// The newest master block's check-point.
fn newest(dev: &MemDevice) -> CheckPoint {
    let sb = SuperBlock::read_from_bytes(&read(dev, 0, SECTOR)).expect("a superblock");
    let each = Geom::of(&sb).masters().map(|at| Master::read_from_bytes(&read(dev, byte(at), BLOCK)).expect("a block"));
    let sound = each.filter(|master| master.head.magic.get() == MASTER_MAGIC).map(|master| master.head);
    sound.max_by_key(|head| head.seq.get()).expect("a master block")
}

#[test]
fn the_same_bytes_are_made() {
    GOLDEN.same_bytes_are_made();
}

#[test]
fn empty_volumes_are_read() {
    [EMPTY, XATTRS[0]].iter().for_each(|name| GOLDEN.an_empty_volume_is_read(name, &FORMS));
}

#[test]
fn unmounted_volumes_are_read() {
    [UNMOUNTED, ONCE, XATTRS[1]].iter().for_each(|name| GOLDEN.an_unmounted_volume_is_read(name, &FORMS));
}

#[test]
fn the_newest_commit_is_found() {
    [CUT, XATTRS[2]].iter().for_each(|name| GOLDEN.a_cut_volume_is_recovered(name, "", &FORMS));
}

#[test]
fn a_redo_list_is_written_in_place() {
    for (name, mount) in [(REDO, ""), (REDO, OVERWRITE), (XATTRS[3], ""), (XATTRS[3], OVERWRITE)] {
        GOLDEN.a_cut_volume_is_recovered(name, mount, &FORMS);
    }
}

/// The image shows what it is to show: each kind of block is in the list, and is not in place.
#[test]
fn a_redo_list_has_each_kind_of_block() {
    let dev = GOLDEN.load(XATTRS[3]);
    let head = newest(&dev);
    let list = read(&dev, byte(head.redo.get()), BLOCK);
    let mut kinds: BTreeMap<&str, u32> = BTreeMap::new();
    for n in 0..head.redo_count.get() as usize {
        let redo = Redo::read_from_bytes(&list[HEAD + n * size_of::<Redo>()..][..size_of::<Redo>()]).expect("an entry");
        let (old, new) = (read(&dev, byte(redo.block.get()), BLOCK), read(&dev, byte(redo.copy.get()), BLOCK));
        if old == new {
            continue;
        }
        let kind = match u32::from_le_bytes(new[..4].try_into().expect("four bytes")) {
            BITMAP_MAGIC => "bitmap",
            INDIRECT_MAGIC => "pointers",
            XATTR_MAGIC => "attributes",
            XATTR_MORE_MAGIC => "attributes, more",
            _ => "other",
        };
        *kinds.entry(kind).or_default() += 1;
    }
    assert_eq!(
        kinds.keys().copied().collect::<Vec<_>>(),
        ["attributes", "attributes, more", "bitmap", "other", "pointers"],
        "{kinds:?}"
    );
    let options = CheckOptions { repair: Repair::Preen, force: false };
    let report = Evergreen.check(Devices::single(dev.clone()), &options, &mut |_, _, _| ()).expect("check");
    assert!(report.recovered && newest(&dev).redo.get() == 0);
    GOLDEN.is_sound(&dev);
}
