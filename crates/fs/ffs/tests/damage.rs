//! Each issue of the checker planted in a good image, found, mended; the other files intact.

mod damage_kit;

use arbor_base::device::{CrashChoice, MemDevice, RecordingDevice};
use arbor_base::layout::U32;
use arbor_base::vfs::*;
use arbor_ffs::Ffs;
use arbor_ffs::format::*;
use arbor_torture::damage::{self, Damage, Healed, case, codes, regions_are_what_is_used};
use damage_kit::*;
use std::sync::OnceLock;

const SHAPES: [(u64, &str); 3] =
    [(16 << 20, "block=4K,cg=4M"), (32 << 20, "block=16K,frag=2K,cg=8M"), (24 << 20, "block=8K,frag=8K,cg=6M")];

static DAMAGE: Damage<ImageCorruptor> = Damage {
    engine: &Ffs,
    shapes: &SHAPES,
    build,
    tree,
    knife: ImageCorruptor::new,
    is_lost: |lost, path| lost.iter().any(|l| path.starts_with(l)),
    good: OnceLock::new(),
};

fn tree(image: &MemDevice) -> Tree {
    ImageCorruptor::new(image.clone()).tree()
}

fn good(shape: usize) -> (MemDevice, &'static Tree) {
    DAMAGE.good(shape)
}

#[test]
fn a_good_image_has_no_issues() {
    DAMAGE.good_images_have_no_issues();
}

/// What preening does with it.
#[derive(Clone, Copy, PartialEq)]
enum Preen {
    /// Mends it, however the volume was kept.
    Always,
    /// Mends it unless updates were ordered.
    Unordered,
    Never,
}

type Case = damage::Case<ImageCorruptor, Preen>;

fn flip(k: &ImageCorruptor, at: u64) {
    damage::flip(&k.dev, at);
}

fn bitmap(k: &ImageCorruptor, cgx: u32, sector: u32) -> u64 {
    k.geom.byte(k.geom.cg_block(cgx)) + u64::from(sector) * 512
}

fn more(field: &mut U32, by: u32) {
    *field = field.get().wrapping_add(by).into();
}

fn blocks(dir: &'static str, n: u64) -> impl Fn(&ImageCorruptor) -> u64 {
    move |k| k.byte_of(k.ino(dir), n)
}

fn cases() -> Vec<Case> {
    use Preen::*;
    [super_and_groups(), inodes(Never), directories(Never)].into_iter().flatten().collect()
}

fn super_and_groups() -> Vec<Case> {
    use Preen::*;
    vec![
        case(&["SuperDamaged"], Never, &[], |k| k.write(0, &[0; 512])),
        case(&["SuperDamaged"], Never, &[], |k| flip(k, 60)),
        case(&["SuperDamaged"], Never, &[], |k| flip(k, 0)),
        case(&["SuperDamaged"], Never, &[], |k| k.super_at(0, |sb| sb.cg_frags = 77.into())),
        case(&["SuperDamaged"], Never, &[], |k| k.super_at(0, |sb| sb.uuid = [9; 16])),
        case(&["SuperDamaged", "SuperCopy"], Never, &[], |k| {
            k.write(0, &[0; 512]);
            k.write(k.geom.byte(k.geom.cg_start(1)), &[0; 512]);
        }),
        // The copy that would serve cannot be used itself.
        case(&["SuperDamaged", "SuperCopy"], Never, &[], |k| {
            k.super_at(0, |sb| sb.compat = 8.into());
            k.super_at(k.geom.byte(k.geom.cg_start(1)), |sb| sb.keeping = 9.into());
        }),
        case(&["JournalTail"], Never, &[], |k| flip(k, k.geom.byte(Frag(k.sb.journal_start.get())) + 12)),
        case(&["JournalTailCopy"], Always, &[], |k| {
            let (first, frags) = (k.geom.byte(Frag(k.sb.journal_start.get())), k.sb.journal_frags.get());
            let last = k.geom.byte(Frag(k.sb.journal_start.get() + frags - 1));
            k.write(last, &k.read(first, k.geom.frag_size()));
            flip(k, first + 12);
        }),
        case(&["SuperCopy"], Always, &[], |k| k.write(k.geom.byte(k.geom.cg_start(1)), &[0; 512])),
        case(&["SuperCopy"], Always, &[], |k| {
            k.super_at(k.geom.byte(k.geom.cg_start(2)), |sb| sb.minfree = 9.into());
        }),
        case(&["GroupHeader"], Never, &[], |k| k.write(bitmap(k, 1, 0), &[0; 512])),
        case(&["GroupHeader"], Never, &[], |k| k.header(1, |h| h.fsid = 4.into())),
        case(&["GroupHeader", "GroupBitmap"], Never, &[], |k| {
            k.write(bitmap(k, 1, 0), &vec![0xab; k.geom.block_size()]);
        }),
        case(&["GroupBitmap"], Never, &[], |k| flip(k, bitmap(k, 0, 1) + 40)),
        case(&["GroupBitmap"], Never, &[], |k| flip(k, bitmap(k, 0, 1 + k.geom.inode_sectors()) + 11)),
        case(&["GroupTail"], Never, &[], |k| k.cg(0, |cg| set_bit(cg, 1, k.geom.cg_inodes, true))),
        case(&["GroupTail"], Never, &[], |k| k.cg(0, |cg| *cg.iter_mut().nth_back(9).unwrap() = 1)),
        case(&["Inited"], Unordered, &[], |k| k.header(1, |h| h.initediblk = 0.into())),
        case(&["GroupCount"], Always, &[], |k| k.header(1, |h| more(&mut h.sum.nbfree, 1))),
        case(&["GroupCount"], Always, &[], |k| k.header(1, |h| more(&mut h.sum.nifree, 1))),
        case(&["GroupCount"], Always, &[], |k| k.header(1, |h| more(&mut h.sum.ndir, 1))),
        case(&["GroupCount"], Always, &[], |k| k.header(1, |h| more(&mut h.frsum[1], 1))),
        case(&["Rotor"], Always, &[], |k| k.header(1, |h| h.rotor = 999_999.into())),
        case(&["FragsFree"], Unordered, &[], |k| k.frag_bit(k.map(k.ino("/b/big"))[3].1, false)),
        case(&["FragsUsed"], Always, &[], |k| k.frag_bit(k.free_block(1), true)),
        case(&["InodesFree"], Unordered, &[], |k| k.inode_bit(k.ino("/a/small"), false)),
        case(&["InodesUsed"], Always, &[], |k| k.inode_bit(k.free_inode(1), true)),
        case(&["Summary"], Always, &[], |k| flip(k, k.geom.byte(Frag(k.sb.summary_start.get())))),
        case(&["Summary"], Always, &[], |k| k.super_at(0, |sb| sb.summary_crc = 4.into())),
        case(&["Orphans"], Always, &[], |k| k.super_at(0, |sb| sb.orphan = 5.into())),
        case(&["OrphanList"], Never, &[], |k| {
            let ino = k.ino("/a/small") as u32;
            k.super_at(0, |sb| (sb.orphan, sb.clean) = (ino.into(), 0.into()));
        }),
    ]
}

fn inodes(never: Preen) -> Vec<Case> {
    use Preen::*;
    vec![
        case(&["InodeByte"], never, &[], |k| flip(k, k.inode_byte(k.ino("/a/small")) + 20)),
        case(&["InodeByte"], never, &[], |k| flip(k, k.inode_byte(2))),
        case(&["InodeByte"], never, &[], |k| flip(k, k.inode_byte(k.ino("/many")) + 126)),
        case(&["InodeByte"], never, &[], |k| flip(k, k.inode_byte(3) + 60)),
        case(&["InodeDamaged"], never, &["/a/small", "/b/hard"], |k| {
            k.write(k.inode_byte(k.ino("/a/small")) + 20, &[9, 8, 7, 6]);
        }),
        case(&["InodeDamaged"], never, &["/a/sub"], |k| k.inode(k.ino("/a/sub"), |d| d.mode = 0o30644.into())),
        case(&["InodeDamaged"], never, &["/a/slow"], |k| k.inode(k.ino("/a/slow"), |d| d.size = 1_000_000.into())),
        case(&["InodeDamaged"], never, &["/a/sub"], |k| k.inode(k.ino("/a/sub"), |d| d.db = Default::default())),
        case(&["InodeSize"], never, &[], |k| k.inode(k.ino("/many"), |d| d.size = (d.size.get() + 5).into())),
        case(&["InodeSize"], never, &["/b/big"], |k| k.inode(k.ino("/b/big"), |d| d.size = u64::MAX.into())),
        case(&["InodeSize"], never, &[], |k| k.inode(k.ino("/b"), |d| d.size = (1 << 60).into())),
        case(&["BadPointers"], never, &["/b/big"], |k| k.inode(k.ino("/b/big"), |d| d.db[3] = 1.into())),
        case(&["BadPointers"], never, &["/b/big"], |k| k.inode(k.ino("/b/big"), |d| d.ib[0] = u32::MAX.into())),
        case(&["BadPointers"], never, &["/b/big"], |k| {
            let at = k.geom.byte(Frag(k.get(k.ino("/b/big")).ib[0].get()));
            k.write(at + 8, &[0xff; 4]);
        }),
        case(&["BadIndirect"], never, &["/b/big"], |k| {
            let at = k.geom.byte(Frag(k.get(k.ino("/b/big")).ib[0].get()));
            k.write(at, &vec![0xee; k.geom.block_size()]);
        }),
        case(&["BeyondSize"], Always, &[], |k| {
            let block = k.free_block(1);
            (0..k.geom.block_frags()).for_each(|i| k.frag_bit(block + i, true));
            k.inode(k.ino("/a/small"), |d| d.db[5] = block.into());
        }),
        case(&["Duplicate"], never, &["/a/tail2"], |k| {
            let taken = k.get(k.ino("/a/small")).db[0];
            k.inode(k.ino("/a/tail2"), |d| d.db[0] = taken);
            // The other fragments must be free to lead inside one block.
        }),
        case(&["Duplicate"], never, &["/b/sparse"], |k| {
            let ib = k.get(k.ino("/b/big")).ib[0];
            k.inode(k.ino("/b/sparse"), |d| d.ib[0] = ib);
        }),
        case(&["OwnSpace"], never, &["/a/small", "/b/hard"], |k| {
            k.inode(k.ino("/a/small"), |d| d.db[0] = k.sb.summary_start);
        }),
        case(&["OwnSpace"], never, &["/b/big"], |k| k.inode(k.ino("/b/big"), |d| d.db[0] = k.sb.journal_start)),
        case(&["Xattr"], never, &[], |k| flip(k, k.geom.byte(Frag(k.get(k.ino("/b/heavy")).xattr.get())) + 50)),
        case(&["Xattr"], never, &[], |k| flip(k, k.geom.byte(Frag(k.get(k.ino("/b/heavy")).xattr.get())))),
        case(&["Xattr"], never, &[], |k| k.inode(k.ino("/b/heavy"), |d| d.xattr = 3.into())),
        case(&["FragCount"], Always, &[], |k| k.inode(k.ino("/b/big"), |d| more(&mut d.frags, 3))),
        case(&["LinkCount"], Always, &["/a/small", "/b/hard"], |k| k.inode(k.ino("/b/hard"), |d| d.nlink = 9.into())),
        case(&["LinkCount"], Unordered, &["/a/small", "/b/hard"], |k| {
            k.inode(k.ino("/b/hard"), |d| d.nlink = 1.into());
        }),
        case(&["LinkCount"], Always, &[], |k| k.inode(k.ino("/a"), |d| d.nlink = 7.into())),
        case(&["Unnamed"], Always, &["/a/tail"], |k| k.write(k.find("/a/tail").1, &[0; 4])),
        case(&["Unnamed", "LinkCount"], Always, &["/a/sub"], |k| k.write(k.find("/a/sub").1, &[0; 4])),
        case(&["Unnamed"], Always, &[], |k| {
            let ino = k.free_inode(1);
            k.inode_bit(ino, true);
            k.put(ino, Dinode { mode: 0o100644.into(), nlink: 1.into(), ..Dinode::default() });
        }),
    ]
}

fn directories(never: Preen) -> Vec<Case> {
    use Preen::*;
    vec![
        case(&["RootLost"], never, &["/", ""], |k| k.put(2, Dinode::default())),
        case(&["RootLost"], never, &["/", ""], |k| k.inode(2, |d| d.mode = 0o100644.into())),
        case(&["DirHole"], never, &["/many"], |k| k.inode(k.ino("/many"), |d| d.db[0] = 0.into())),
        case(&["DirHole"], never, &["/many"], |k| k.inode(k.ino("/many"), |d| d.db[1] = 0.into())),
        case(&["InodeSize", "DirHole"], never, &["/wide"], |k| {
            // A directory of holes, with a block far away.
            let (block, far) = (k.free_block(2), 12 + 200);
            (0..2 * k.geom.block_frags()).for_each(|i| k.frag_bit(block + i, true));
            let at = k.geom.byte(Frag(block));
            k.write(at, &vec![0; 2 * k.geom.block_size()]);
            k.write(at + (far - 12) * 4, &(block + k.geom.block_frags()).to_le_bytes());
            k.inode(k.ino("/wide"), |d| {
                d.ib[0] = block.into();
                d.size = (((far + 1) << k.geom.block_shift) + 1).into();
            });
        }),
        case(&["DirChunk"], never, &["/many"], |k| k.write(blocks("/many", 512)(k), &[0xab; 512])),
        case(&["DirChunk"], never, &["/many"], |k| k.write(blocks("/many", 1024)(k), &[0; 512])),
        case(&["DirChunk"], never, &["/a/pipe", "/a/sub"], |k| k.write(k.find("/a/pipe").1 + 4, &[3, 0])),
        case(&["Dots"], never, &[], |k| k.write(blocks("/a", 0)(k), &[9])),
        case(&["Dots"], never, &[], |k| k.write(blocks("/a", 20)(k), b"xx")),
        case(&["Dots"], never, &[], |k| k.write(blocks("/a", 6)(k), &[8])),
        case(&["Dots", "Unnamed"], never, &["/wide"], |k| k.write(blocks("/wide", 0)(k), &[0; 512])),
        case(&["DotDot"], Always, &[], |k| k.write(blocks("/a/sub/subsub", 12)(k), &[2, 0])),
        case(&["EntryName"], never, &["/a/tail"], |k| k.write(k.find("/a/tail").1 + 9, b"/")),
        case(&["EntryTarget"], never, &["/a/tail"], |k| {
            k.write(k.find("/a/tail").1, &(k.free_inode(1) as u32).to_le_bytes());
        }),
        case(&["EntryTarget"], never, &["/a/tail"], |k| k.write(k.find("/a/tail").1, &[0xff; 4])),
        case(&["EntryTarget"], never, &["/a/tail"], |k| k.write(k.find("/a/tail").1, &[2, 0, 0, 0])),
        case(&["LostFound"], Unordered, &[], |k| {
            // After the last name of the root directory, which has the rest of the chunk.
            let (name, last) = ("lost+found", k.list(2).into_iter().next_back().unwrap());
            let used = (8 + last.0.len()).next_multiple_of(4) as u64;
            let rest = u16::from_le_bytes(k.read(last.2 + 4, 2).try_into().unwrap()) - used as u16;
            k.write(last.2 + 4, &(used as u16).to_le_bytes());
            k.write(last.2 + used, &(k.free_inode(1) as u32).to_le_bytes());
            k.write(last.2 + used + 4, &[rest as u8, (rest >> 8) as u8, 4, name.len() as u8]);
            k.write(last.2 + used + 8, name.as_bytes());
        }),
        case(&["EntryKind"], Always, &[], |k| k.write(k.find("/a/tail").1 + 6, &[6])),
        case(&["DuplicateName", "Unnamed"], never, &["/a/fast", "/a/slow"], |k| {
            k.write(k.find("/a/slow").1 + 8, b"fast")
        }),
        case(&["TwoParents", "LinkCount"], Always, &["/a/small", "/b/hard"], |k| {
            let at = k.find("/b/hard").1;
            k.write(at, &(k.ino("/a/sub") as u32).to_le_bytes());
            k.write(at + 6, &[4]);
        }),
        case(&["TwoParents", "DotDot"], Always, &["/a/sub", "/b/hard", "/a/small"], |k| {
            let at = k.find("/b/hard").1;
            k.write(at, &(k.ino("/a/sub") as u32).to_le_bytes());
            k.write(at + 6, &[4]);
            k.write(blocks("/a/sub", 12)(k), &(k.ino("/wide") as u32).to_le_bytes());
        }),
        case(&["DirLoop"], never, &["/a/sub"], |k| {
            let (sub, at) = (k.ino("/a/sub"), k.find("/a/sub/subsub/leaf").1);
            k.write(k.find("/a/sub").1, &[0; 4]);
            k.write(at, &(sub as u32).to_le_bytes());
            k.write(at + 6, &[4]);
        }),
    ]
}

/// Issues that have a test of their own below.
const ALONE: [&str; 3] = ["SuperLost", "NoSpace", "JournalGap"];

#[test]
fn every_issue_is_planted() {
    DAMAGE.every_issue_is_planted(&cases(), &ALONE, &arbor_ffs::issues());
}

#[test]
fn planted_damage_is_found_and_mended() {
    for shape in 0..SHAPES.len() {
        for (n, case) in cases().iter().enumerate() {
            let Healed { damaged, what, .. } = DAMAGE.heal(shape, n, case);
            preened(case, &damaged, &what);
        }
    }
}

/// Preening mends what a crash may have left, and writes nothing else.
fn preened(case: &Case, damaged: &MemDevice, what: &str) {
    for keeping in [Keeping::SoftUpdates, Keeping::Sync, Keeping::Async, Keeping::Journal] {
        let image = damaged.snapshot();
        if case.preen != Preen::Never {
            ImageCorruptor::new(image.clone()).super_at(0, |sb| sb.keeping = (keeping as u32).into());
        }
        let before = image.to_bytes();
        let report = check(&image, Repair::Preen);
        let unordered = matches!(keeping, Keeping::Sync | Keeping::Async);
        if case.preen == Preen::Always || case.preen == Preen::Unordered && unordered {
            assert!(report.issues.iter().all(|i| i.repaired), "{what}, {keeping:?}: {:#?}", report.issues);
            assert_eq!(check(&image, Repair::No).issues, vec![], "{what}, {keeping:?}");
        } else {
            assert!(report.issues.iter().all(|i| !i.repaired), "{what}, {keeping:?}: {:#?}", report.issues);
            assert!(before == image.to_bytes(), "{what}, {keeping:?}");
        }
    }
}

#[test]
fn without_any_superblock_nothing_is_done() {
    let (image, _) = good(0);
    let k = ImageCorruptor::new(image.clone());
    (0..k.geom.cg_count).for_each(|cgx| k.write(k.geom.byte(k.geom.cg_start(cgx)), &[0; 512]));
    let before = image.to_bytes();
    let report = check(&image, Repair::Yes);
    assert_eq!((codes(&report), report.remaining()), (vec!["SuperLost"], 1));
    assert!(before == image.to_bytes());
    assert!(!Ffs.search(&image).unwrap());
    let (image, _) = good(0);
    ImageCorruptor::new(image.clone()).write(0, &[0; 512]);
    assert!(Ffs.search(&image).unwrap());
}

/// Its own fields serve if the groups agree, or one byte is put back, when there is no copy.
#[test]
fn a_superblock_without_copies() {
    let small = || build(4 << 20, "block=4K,cg=4M,journal=0");
    let tree = ImageCorruptor::new(small()).tree();
    for at in [&[60][..], &[130], &[16, 100], &[12, 24, 190]] {
        let image = small();
        let k = ImageCorruptor::new(image.clone());
        assert_eq!(k.geom.cg_count, 1);
        at.iter().for_each(|at| flip(&k, *at));
        let report = check(&image, Repair::Yes);
        assert_eq!((codes(&report), report.remaining()), (vec!["SuperDamaged"], 0), "{at:?} {:?}", report.issues);
        assert_eq!(check(&image, Repair::No).issues, vec![]);
        assert!(ImageCorruptor::new(image).tree() == tree);
    }
}

/// What a crash leaves without a name: with ordered updates it is cleared, else it is kept.
#[test]
fn unnamed_inodes() {
    for keeping in Keeping::ALL {
        let (image, tree) = good(0);
        let k = ImageCorruptor::new(image.clone());
        k.crashed(keeping);
        let (tail, sub) = (k.ino("/a/tail"), k.ino("/a/sub"));
        ["/a/tail", "/a/sub", "/a/empty"].iter().for_each(|p| k.write(k.find(p).1, &[0; 4]));
        let crashed = image.snapshot();
        let report = check(&image, Repair::Preen);
        // A journal leaves none of this.
        let most = if keeping == Keeping::Journal { Severity::Error } else { Severity::Warning };
        assert!(report.issues.iter().all(|i| i.repaired && i.severity <= most), "{:#?}", report.issues);
        assert_eq!(check(&image, Repair::No).issues, vec![]);
        let now = ImageCorruptor::new(image).tree();
        let kept = keeping != Keeping::SoftUpdates;
        let same = |new: String, old: &str| now.get(&new).is_some_and(|n| *n == tree[old]);
        assert_eq!(same(format!("/lost+found/#{tail}"), "/a/tail"), kept, "{keeping:?}");
        assert_eq!(same(format!("/lost+found/#{sub}/subsub/leaf"), "/a/sub/subsub/leaf"), kept, "{keeping:?}");
        assert_eq!(now.len(), tree.len() - 1 - if kept { 0 } else { 4 } + usize::from(kept), "{keeping:?}");
        preen_again(crashed, &now, keeping);
    }
}

/// A volume that was unmounted has nothing that a crash has left over.
#[test]
fn an_unnamed_inode_of_a_clean_volume() {
    let (image, tree) = good(0);
    let k = ImageCorruptor::new(image.clone());
    k.super_at(0, |sb| sb.keeping = (Keeping::SoftUpdates as u32).into());
    let sub = k.ino("/a/sub");
    k.write(k.find("/a/sub").1, &[0; 4]);
    let report = check(&image, Repair::Preen);
    assert!(report.issues.iter().all(|i| i.repaired && i.severity >= Severity::Error), "{:#?}", report.issues);
    let now = ImageCorruptor::new(image).tree();
    assert_eq!(now.get(&format!("/lost+found/#{sub}/subsub/leaf")), tree.get("/a/sub/subsub/leaf"));
}

/// Preening cleared what a directory without a name held, and lost the power before it cleared the directory.
#[test]
fn a_directory_left_over_whose_files_are_cleared() {
    let (image, _) = good(0);
    let k = ImageCorruptor::new(image.clone());
    k.crashed(Keeping::SoftUpdates);
    let subsub = k.ino("/a/sub/subsub");
    k.write(k.find("/a/sub").1, &[0; 4]);
    k.put(subsub, Dinode::default());
    let report = check(&image, Repair::Preen);
    assert!(report.issues.iter().all(|i| i.repaired), "{:#?}", report.issues);
    assert_eq!(check(&image, Repair::No).issues, vec![]);
    assert!(!ImageCorruptor::new(image).tree().contains_key("/lost+found"));
}

/// Preening that loses the power is taken up by the next.
fn preen_again(crashed: MemDevice, preened: &Tree, keeping: Keeping) {
    let device = RecordingDevice::new(crashed);
    let options = CheckOptions { repair: Repair::Preen, force: true };
    Ffs.check(Devices::single(device.clone()), &options, &mut |_, _, _| ()).unwrap();
    for at in 0..=device.events() {
        for choice in [CrashChoice::AllKept, CrashChoice::NoneKept, CrashChoice::Seeded(at as u64)] {
            let image = device.crash_state(at, &choice);
            let report = check(&image, Repair::Preen);
            assert!(report.issues.iter().all(|i| i.repaired), "{keeping:?} at {at}: {:#?}", report.issues);
            assert_eq!(check(&image, Repair::No).issues, vec![], "{keeping:?} at {at}");
            assert!(ImageCorruptor::new(image).tree() == *preened, "{keeping:?} at {at}: {:#?}", report.issues);
        }
    }
}

/// A volume on which nothing is free, and a file without a name.
#[test]
fn a_full_volume() {
    let mut b = Builder::new(format(4 << 20, "block=4K,cg=4M,density=1K,journal=0"));
    let lonely = b.file(ROOT.0, "lonely", 100, &[0], mode::IFREG);
    b.fill_up();
    let image = b.finish();
    assert_eq!(check(&image, Repair::No).issues, vec![]);
    let k = ImageCorruptor::new(image.clone());
    k.write(k.find("/lonely").1, &[0; 4]);
    k.crashed(Keeping::Async);
    let report = check(&image, Repair::Yes);
    assert!(codes(&report).contains(&"NoSpace") && report.remaining() > 0, "{:#?}", report.issues);
    assert!(ImageCorruptor::new(image.clone()).get(lonely).in_use());
    // With a file less there is room.
    k.write(k.find("/full 0").1, &[0; 4]);
    k.put(k.ino("/full 1"), Dinode::default());
    let report = check(&image, Repair::Yes);
    assert_eq!(check(&image, Repair::No).issues, vec![], "{:#?}", report.issues);
    assert!(ImageCorruptor::new(image).tree().contains_key(&format!("/lost+found/#{lonely}")));
}

#[test]
fn a_clean_volume_is_skipped() {
    let options = CheckOptions { repair: Repair::Preen, force: false };
    let report = Ffs.check(Devices::single(good(0).0), &options, &mut |_, _, _| ()).unwrap();
    assert!(report.skipped);
    let (image, _) = good(0);
    ImageCorruptor::new(image.clone()).crashed(Keeping::SoftUpdates);
    let report = Ffs.check(Devices::single(image.clone()), &options, &mut |_, _, _| ()).unwrap();
    assert!(!report.skipped && report.issues.is_empty());
    let report = Ffs.check(Devices::single(image), &options, &mut |_, _, _| ()).unwrap();
    assert!(report.skipped);
}

#[test]
fn progress() {
    DAMAGE.progress(&["inodes", "names", "links", "cylinder groups"]);
}

#[test]
fn a_lost_directory_with_many_files() {
    DAMAGE.a_lost_directory_with_many_files(|k| k.write(k.inode_byte(k.ino("/many")), &[7; INODE]));
}

#[test]
fn a_repair_larger_than_the_cache() {
    DAMAGE.a_repair_larger_than_the_cache(512 << 20, 20_000, |k| k.write(k.inode_byte(k.ino("/many")), &[7; INODE]));
}

#[test]
fn one_path() {
    DAMAGE.good_paths();
    let one = |path, code, says, damage| DAMAGE.on_path(path, code, says, damage);
    one("/a/small", "InodeByte", "(/a/small)", |k| flip(k, k.inode_byte(k.ino("/a/small")) + 9));
    one("/a/small", "InodeDamaged", "(/a/small)", |k| k.write(k.inode_byte(k.ino("/a/small")), &[3; 50]));
    one("/b/big", "BadPointers", "(/b/big)", |k| k.inode(k.ino("/b/big"), |d| d.db[2] = 3.into()));
    one("/b/heavy", "Xattr", "(/b/heavy)", |k| k.inode(k.ino("/b/heavy"), |d| d.xattr = 3.into()));
    one("/many", "DirChunk", "(/many)", |k| k.write(k.byte_of(k.ino("/many"), 512), &[0xab; 512]));
    one("/b/big", "FragsFree", "1 fragments", |k| k.frag_bit(k.map(k.ino("/b/big"))[20].1, false));
    one("/a/tail", "InodesFree", "(/a/tail)", |k| k.inode_bit(k.ino("/a/tail"), false));
    one("/a/tail", "EntryTarget", "\"tail\"", |k| k.write(k.find("/a/tail").1, &[0xff; 4]));
    one("/a/sub/subsub", "DotDot", "subsub", |k| k.write(k.byte_of(k.ino("/a/sub/subsub"), 12), &[2, 0]));
}

#[test]
fn description_and_dumps() {
    for shape in 0..SHAPES.len() {
        let (image, _) = good(shape);
        let devices = Devices::single(image.clone());
        regions_are_what_is_used(&Ffs, &image);
        let k = ImageCorruptor::new(image);
        let [big, heavy, many] = ["/b/big", "/b/heavy", "/many"].map(|p| k.ino(p).to_string());
        for what in [
            &["superblock"][..],
            &["journal"],
            &["group", "1"],
            &["inode", &big],
            &["inode", &heavy],
            &["map", &big],
            &["dir", &many],
            &["dir", "2"],
            &["block", "9"],
        ] {
            let value = Ffs.dump(&devices, what).unwrap();
            assert!(!value.to_string().contains("damage\":"), "{value}");
        }
        for what in [&["nonsense"][..], &["inode"], &["inode", "x"]] {
            assert!(Ffs.dump(&devices, what).unwrap_err().to_string().contains("known are"));
        }
        for what in [["group", "99"], ["inode", "4000000000"], ["dir", &big], ["block", "4000000000"]] {
            assert!(Ffs.dump(&devices, &what).is_err());
        }
    }
}

#[test]
fn damage_costs_only_itself() {
    let images = [DAMAGE.good(0).0, DAMAGE.good(1).0];
    arbor_torture::beside::damage_costs_only_itself(DAMAGE.engine, &images, &|s| s.kind == "superblock", &[""]);
}

/// All inodes that are initialised are in use, and a file has lost its name: the table grows for lost+found, and the volume can be
/// mounted whatever comes of it.
#[test]
fn a_repair_without_a_free_inode_makes_some() {
    let image = damage::format(&Ffs, 8 << 20, "");
    let fs = damage::mount(&Ffs, image.clone());
    let cx = Cx { uid: 0, gid: 0 };
    let lost = fs.mkdir(&cx, fs.root(), b"lost", 0o755).unwrap().ino;
    fs.mknod(&cx, lost, b"file", mode::IFREG | 0o644, 0).unwrap();
    fs.write(fs.lookup(lost, b"file").unwrap().ino, 0, b"kept").unwrap();
    for n in 0.. {
        fs.syncfs().unwrap();
        if ImageCorruptor::new(image.clone()).inodes_left() == 0 {
            break;
        }
        fs.mknod(&cx, fs.root(), format!("{n}").as_bytes(), mode::IFREG | 0o644, 0).unwrap();
    }
    fs.unmount().unwrap();
    drop(fs);
    let k = ImageCorruptor::new(image.clone());
    k.write(k.inode_byte(lost.0), &[7; INODE]);
    let report = damage::check(&Ffs, image.clone(), Repair::Yes);
    assert_eq!(report.issues.iter().find(|i| !i.repaired), None);
    let fs = damage::mount(&Ffs, image);
    let found = fs.lookup(fs.root(), b"lost+found").unwrap().ino;
    let mut names = 0;
    fs.readdir(found, 0, &mut |e| {
        names += usize::from(e.name.starts_with(b"#"));
        true
    })
    .unwrap();
    assert_eq!(names, 1);
}

#[test]
fn an_outage_costs_nothing() {
    arbor_torture::outage::an_outage_costs_nothing(DAMAGE.engine, "");
}

#[test]
fn a_bad_sector_costs_its_block() {
    arbor_torture::badsector::a_bad_sector_costs_its_block(DAMAGE.engine, "", 16384);
}

#[test]
fn damage_of_one_promise_is_not_the_end_of_the_log() {
    use arbor_torture::midlog::damage_is_not_the_end_of_the_log;
    damage_is_not_the_end_of_the_log(DAMAGE.engine, ("", "keep=journal", 3000), Some("JournalGap"));
    damage_is_not_the_end_of_the_log(DAMAGE.engine, ("", "keep=softupdates", 3000), None);
    damage_is_not_the_end_of_the_log(DAMAGE.engine, ("", "keep=sync", 3000), None);
}

/// What is free stands in the groups too: without the summary area a mount counts it anew.
#[test]
fn a_damaged_summary_area_is_counted_anew() {
    let (image, _) = DAMAGE.good(0);
    let free = damage::mount(&Ffs, image.snapshot()).statfs().unwrap().bfree;
    let k = ImageCorruptor::new(image.snapshot());
    flip(&k, k.geom.byte(Frag(k.sb.summary_start.get())));
    let fs = damage::mount(&Ffs, k.dev.clone());
    assert_eq!(fs.statfs().unwrap().bfree, free);
    assert!(fs.damage_passed_by().iter().any(|what| what.contains("summary area")));
    fs.unmount().unwrap();
    drop(fs);
    assert_eq!(check(&k.dev, Repair::No).issues, vec![]);
    assert!(tree(&k.dev) == *DAMAGE.good(0).1);
}

/// A mount with a journal that cannot be used leaves the volume as it was: it can be mounted without.
#[test]
fn a_refused_mount_leaves_a_clean_volume_clean() {
    let (image, _) = DAMAGE.good(0);
    let k = ImageCorruptor::new(image.snapshot());
    for place in [0, k.sb.journal_frags.get() - 1] {
        flip(&k, k.geom.byte(Frag(k.sb.journal_start.get() + place)) + 12);
    }
    let before = k.dev.to_bytes();
    let mounted = |options: &str| {
        let options = MountOptions { options: Options::parse(options), ..MountOptions::default() };
        Ffs.mount(Devices::single(k.dev.clone()), &options, std::sync::Arc::new(SystemClock)).map(drop)
    };
    assert!(mounted("keep=journal").unwrap_err().to_string().contains("journal tail"));
    assert!(before == k.dev.to_bytes());
    mounted("keep=softupdates").unwrap();
}
