//! The map of an unmounted volume: where each structure and file lies. Damage is skipped: the checker reports it.

use crate::check::Piece;
use crate::check::view::{self, Reader};
use crate::format::*;
use arbor_base::device::Kind;
use arbor_base::vfs::{Devices, Ino, Region, Result, mode};

/// Reports where each structure and each piece of each file lies.
pub(crate) fn describe(devices: &Devices, f: &mut dyn FnMut(Region)) -> Result<()> {
    let r = view::open(devices)?;
    let mut d = Describer { r: &r, f };
    let sb = &r.sb;
    d.frags(Kind::Group, Frag(sb.summary_start.get()), r.geom.summary_frags(), "summary area".into());
    d.frags(Kind::Log, Frag(sb.journal_start.get()), sb.journal_frags.get(), "journal".into());
    (0..r.geom.cg_count).try_for_each(|cgx| d.group(cgx))
}

impl Reader<'_> {
    /// Initialised blocks of a group's inode table; none if its header is damaged.
    pub(crate) fn inited_blocks(&self, cgx: u32) -> Result<u32> {
        let cg = self.group(cgx)?;
        let inited = self.header(cgx, &cg).map_or(0, |h| h.initediblk.get());
        Ok(inited.min(self.geom.cg_inodes) / self.geom.inodes_per_block())
    }

    /// The inodes in use of a block of the table.
    pub(crate) fn inodes_in(&self, cgx: u32, n: u32) -> Result<Vec<(u64, Dinode)>> {
        let (frag, bytes) = self.inode_block(cgx, n)?;
        let each = (self.geom.first_inode(frag).0..).zip(bytes.chunks_exact(INODE));
        let used = each.filter_map(|(ino, b)| {
            let d = view::decode_inode(&self.geom, ino, b).ok().filter(|d| d.in_use() && ino >= ROOT.0);
            Some((ino, d?))
        });
        Ok(used.collect())
    }
}

/// The name of a piece of a file for people, and the kind of request that reads it.
pub(crate) fn piece_name(d: &Dinode, p: &Piece) -> (Kind, String) {
    match (p.level, d.kind()) {
        (0, mode::IFDIR) => (Kind::Dir, "directory".into()),
        (0, mode::IFLNK) => (Kind::Data, "symbolic link".into()),
        (0, _) => (Kind::Data, "data".into()),
        (level, _) => (Kind::Tree, format!("indirect block, level {level}")),
    }
}

struct Describer<'a, 'd> {
    r: &'a Reader<'d>,
    f: &'a mut dyn FnMut(Region),
}

impl Describer<'_, '_> {
    fn frags(&mut self, kind: Kind, start: Frag, frags: u32, name: String) {
        if frags > 0 {
            let (offset, len) = (self.r.geom.byte(start), self.r.geom.bytes_of(frags) as u64);
            (self.f)(Region { offset, len, kind, owner: None, file_offset: 0, name });
        }
    }

    fn group(&mut self, cgx: u32) -> Result<()> {
        let (geom, start) = (self.r.geom, self.r.geom.cg_start(cgx));
        let bf = geom.block_frags();
        let name = if cgx == 0 { "superblock".into() } else { format!("group {cgx} superblock copy") };
        self.frags(Kind::Super, start, bf, name);
        self.frags(Kind::Group, geom.cg_block(cgx), bf, format!("group {cgx} header and bitmaps"));
        let (inited, inodes) = (self.r.inited_blocks(cgx)?, geom.cg_inodes / geom.inodes_per_block());
        let table = Frag(start.0.saturating_add(2 * bf));
        self.frags(Kind::Inode, table, inited * bf, format!("group {cgx} inodes"));
        let rest = Frag(table.0.saturating_add(inited * bf));
        self.frags(Kind::Inode, rest, (inodes - inited) * bf, format!("group {cgx} inodes, not initialised"));
        for n in 0..inited {
            for (ino, d) in self.r.inodes_in(cgx, n)? {
                self.inode(ino, &d)?;
            }
        }
        Ok(())
    }

    fn inode(&mut self, ino: u64, d: &Dinode) -> Result<()> {
        let geom = self.r.geom;
        let f = &mut *self.f;
        let mut tell = |kind, frag, frags, file_offset, name| {
            let (offset, len) = (geom.byte(frag), geom.bytes_of(frags) as u64);
            f(Region { offset, len, kind, owner: Some(Ino(ino)), file_offset, name });
        };
        self.r.pieces(d, &mut |p| {
            let (kind, name) = piece_name(d, p);
            let at = if p.level == 0 { p.lbn << geom.block_shift } else { 0 };
            tell(kind, p.frag, p.frags, at, name);
        })?;
        let frag = Frag(d.xattr.get());
        if frag.0 != 0
            && let Ok(frags) = self.r.xattr_frags(ino, frag)?
        {
            tell(Kind::Xattr, frag, frags, 0, "extended attributes".into());
        }
        Ok(())
    }
}
