//! Where a summary is damaged, inodes are searched for. Values of attributes lie there, too, and may look like one.

use arbor_base::device::MemDevice;
use arbor_base::layout::crc_without;
use arbor_base::vfs::*;
use arbor_dualfs::DualFs;
use arbor_dualfs::format::*;
use arbor_torture::damage::{Tree, check, flip, format, mount, tree};
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

const CX: Cx = Cx { uid: 0, gid: 0 };

fn make(fs: &Arc<dyn FileSystem>, name: &str, data: &[u8]) -> Ino {
    let ino = fs.mknod(&CX, fs.root(), name.as_bytes(), mode::IFREG | 0o644, 0).unwrap().ino;
    assert_eq!(fs.write(ino, 0, data).unwrap(), data.len());
    ino
}

fn synced(fs: &Arc<dyn FileSystem>, names: &[&str]) {
    for name in names {
        make(fs, name, b"x");
        fs.syncfs().unwrap();
    }
}

fn summaries(dev: &MemDevice) -> Vec<u64> {
    let mut all = Vec::new();
    let devices = Devices::single(dev.snapshot());
    DualFs.structures(&devices, &mut |s| all.extend((s.kind == "summary").then_some(s.offset))).unwrap();
    all
}

/// The newest inode of this number.
fn inode(dev: &MemDevice, fsid: u64, ino: Ino) -> Dinode {
    let bytes = dev.to_bytes();
    let all = bytes.chunks_exact(INODE).map(|b| (b, Dinode::read_from_bytes(b).unwrap()));
    let sound = all.filter(|(b, d)| d.fsid.get() == fsid && crc_without(b, CRC_AT) == Some(d.crc.get()));
    sound.map(|(_, d)| d).rfind(|d| u64::from(d.ino.get()) == ino.0).expect("an inode")
}

fn sealed(mut d: Dinode) -> Vec<u8> {
    d.crc = 0.into();
    d.crc = crc_without(d.as_bytes(), CRC_AT).unwrap().into();
    d.as_bytes().to_vec()
}

/// Damages a summary and repairs the volume.
fn without(dev: &MemDevice, summary: u64) -> Tree {
    let hurt = dev.snapshot();
    flip(&hurt, summary + 20);
    assert_eq!(check(&DualFs, hurt.clone(), Repair::Yes).remaining(), 0, "summary {summary:#x}");
    tree(&DualFs, &hurt)
}

#[test]
fn what_a_user_has_written_is_no_inode() {
    let dev = format(&DualFs, 64 << 20, "");
    let fs = mount(&DualFs, dev.clone());
    let victim = make(&fs, "victim", &b"the victim's own bytes".repeat(100));
    fs.syncfs().unwrap();
    let fsid = fs.statfs().unwrap().fsid;
    let d = Dinode { mode: (mode::IFREG | 0o4777).into(), ..inode(&dev, fsid, victim) };
    let next = d.version.get() + 1;
    let forged = sealed(Dinode { version: next.into(), ..d });
    synced(&fs, &["before"]);
    // Where a value lies in its block is not known.
    for pad in 0..INODE {
        let ino = make(&fs, &format!("evil{pad}"), b"");
        fs.setxattr(ino, b"user.x", &[vec![b'p'; pad], forged.repeat(8)].concat(), XattrMode::Set).unwrap();
    }
    fs.syncfs().unwrap();
    synced(&fs, &["behind", "last"]);
    let bytes = dev.to_bytes();
    let at = (0..bytes.len())
        .step_by(INODE)
        .find(|at| bytes[*at..].starts_with(&forged))
        .expect("one at the place of an inode");
    let summary = summaries(&dev).into_iter().filter(|s| *s < at as u64).max().unwrap();
    let tree = without(&dev, summary);
    assert_eq!(tree["/victim"].mode, mode::IFREG | 0o644);
    assert!((0..INODE).all(|pad| tree.contains_key(&format!("/evil{pad}"))), "{:?}", tree.keys());
}
