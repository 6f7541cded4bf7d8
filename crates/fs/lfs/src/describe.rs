//! Where everything lies on an unmounted volume.
//!
//! Damage is passed over: the checker reports it. Everything in a segment but its summaries and live blocks is dead,
//! and so is free.

use crate::format::*;
use crate::view::{self, Found, Walk, piece_name};
use crate::volume::Core;
use arbor_base::cache::FileBlock;
use arbor_base::device::Kind;
use arbor_base::vfs::{Devices, Region, Result};

/// Tells where each structure and each piece of each file lies.
pub(crate) fn describe(devices: &Devices, f: &mut dyn FnMut(Region)) -> Result<()> {
    let (_, mut core) = view::open(devices)?;
    let geom = core.geom;
    let mut d = Describer { geom, walk: Walk::default(), f };
    let block = geom.block_size() as u64;
    d.structure(Kind::Super, 0, block, "superblock".into());
    for (n, at) in (0..).zip(geom.checkpoints()) {
        d.structure(Kind::Super, at, block, format!("checkpoint {n}"));
    }
    d.structure(Kind::Super, geom.copy_at(), block, "superblock copy".into());
    for seg in core.written_segs() {
        let start = geom.seg_start(Seg(seg)).0;
        for (at, parsed) in core.valid_summaries(seg)? {
            let len = geom.bytes_of(parsed.head.summary_frags.get()) as u64;
            d.structure(Kind::Log, geom.byte(Frag(start + at)), len, format!("segment {seg} summary"));
        }
    }
    let ifile = core.ifile_on_disk()?;
    d.inode(&mut core, &ifile)?;
    core.each_inode(&mut |core, found| d.inode(core, found))
}

struct Describer<'a> {
    geom: Geom,
    walk: Walk,
    f: &'a mut dyn FnMut(Region),
}

impl Describer<'_> {
    fn structure(&mut self, kind: Kind, offset: u64, len: u64, name: String) {
        (self.f)(Region { offset, len, kind, owner: None, file_offset: 0, name });
    }

    fn inode(&mut self, core: &mut Core, found: &Found) -> Result<()> {
        let (geom, i, f) = (self.geom, found.i, &mut *self.f);
        let name = if i.ino == IFILE { "inode of the ifile".into() } else { format!("inode {}", i.ino) };
        let owner = (i.ino != IFILE).then_some(i.ino);
        f(Region { offset: found.at, len: INODE as u64, kind: Kind::Inode, owner, file_offset: 0, name });
        self.walk.pieces(core, &i, &mut |piece, _| {
            let (kind, name) = piece_name(&geom, &i, piece.place);
            let file_offset = match piece.place {
                FileBlock::Data(lbn) => lbn << geom.block_shift,
                _ => 0,
            };
            let (offset, len) = (geom.byte(piece.frag()), geom.bytes_of(piece.frags) as u64);
            f(Region { offset, len, kind, owner, file_offset, name });
        })
    }
}
