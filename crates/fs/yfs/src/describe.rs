//! Where everything lies on an unmounted volume. Damage is passed over: the checker reports it.

use crate::check::tree::{self, Record, Spec, Walk};
use crate::check::view::{self, RawInode, Reader};
use crate::format::*;
use arbor_base::device::Kind;
use arbor_base::layout::get_u64;
use arbor_base::vfs::{Devices, Ino, Region, Result, mode};
use std::collections::HashSet;
use std::mem::size_of;

/// Where the root of the chunk tree begins in the inode block.
const CHUNK_ROOT: usize = HEADER + size_of::<InodesBody>();

impl Reader<'_> {
    /// The tree of an AG's inode chunks; empty if the inode block is damaged.
    pub fn chunk_tree(&self, ag: u32) -> Result<Walk> {
        let Ok(block) = self.ag_block(BlockType::Inodes, ag, self.geom.inode_block(ag))? else {
            return Ok(Walk::default());
        };
        let mut seen = HashSet::new();
        let root = block.get(CHUNK_ROOT..).unwrap_or(&[]);
        tree::walk(self, root, Spec::chunks(ag), &mut |f| seen.insert(f))
    }

    /// First sectors of an AG's inode chunks and the masks of their free inodes.
    pub fn chunks(&self, walk: &Walk) -> Vec<(u64, u64)> {
        let all = walk.records.iter().map(|(start, v)| (*start, get_u64(v, 0).unwrap_or(0)));
        all.filter(|(start, _)| self.geom.inode_at(Ino(*start)).is_some_and(|p| p.0.0 == *start)).collect()
    }

    /// The inodes in use of a chunk.
    pub fn chunk_inodes(&self, start: u64) -> Result<Vec<RawInode>> {
        let (len, size) = (self.geom.chunk_size(), self.geom.inode_size());
        let bytes = self.read(Kind::Inode, start.saturating_mul(SECTOR), len)?;
        let each = (0u64..).zip(bytes.chunks_exact(size));
        let inodes = each.filter_map(|(n, b)| {
            let ino = start.checked_add(n * (size as u64 / SECTOR))?;
            let good = check_inode(ino, b).is_ok();
            RawInode::decode(ino, b).filter(|i| good && i.in_use())
        });
        Ok(inodes.collect())
    }

    /// The map of a file or directory; empty if its contents are in the inode.
    pub fn map(&self, i: &RawInode) -> Result<Walk> {
        if i.d.format == Format::Inline as u8 {
            return Ok(Walk::default());
        }
        let mut seen = HashSet::new();
        let mut walk = tree::walk(self, i.area(), Spec::map(i.ino, is_dir(i)), &mut |f| seen.insert(f))?;
        let len = |r: &Record| if is_dir(i) { self.geom.block_frags() } else { extent(r).1 };
        walk.records.retain(|r| self.valid_run(extent(r).0, len(r)));
        Ok(walk)
    }
}

pub(crate) fn is_dir(i: &RawInode) -> bool {
    i.d.mode.get() & mode::IFMT == mode::IFDIR
}

/// Start, length and flags of an extent record.
pub(crate) fn extent(r: &Record) -> (Frag, u32, u32) {
    let int = |at| get_u64(&r.1, at).unwrap_or(0);
    (Frag(int(0)), int(8) as u32, (int(8) >> 32) as u32)
}

/// Tells where each structure and each piece of each file lies.
pub(crate) fn describe(devices: &Devices, f: &mut dyn FnMut(Region)) -> Result<()> {
    let r = view::open(devices)?;
    let mut d = Describer { r: &r, f };
    if let Some((start, frags)) = r.log_run() {
        d.frags(Kind::Log, start, frags, None, 0, "log".into());
    }
    for ag in 0..r.ags() {
        d.group(ag)?;
    }
    Ok(())
}

struct Describer<'a, 'd> {
    r: &'a Reader<'d>,
    f: &'a mut dyn FnMut(Region),
}

impl Describer<'_, '_> {
    fn frags(&mut self, kind: Kind, start: Frag, frags: u32, owner: Option<u64>, file_offset: u64, name: String) {
        let offset = self.r.geom.daddr(start).byte();
        let len = u64::from(frags).saturating_mul(self.r.geom.frag_size());
        (self.f)(Region { offset, len, kind, owner: owner.map(Ino), file_offset, name });
    }

    fn group(&mut self, ag: u32) -> Result<()> {
        let geom = self.r.geom;
        let block = geom.block_frags();
        let name = if ag == 0 { "superblock".into() } else { format!("AG {ag} superblock copy") };
        self.frags(Kind::Super, geom.ag_start(ag), block, None, 0, name);
        let at = |d| geom.frag_of(d);
        self.frags(Kind::Group, at(geom.group_block(ag)), block, None, 0, format!("AG {ag} group block"));
        self.frags(Kind::Group, at(geom.inode_block(ag)), block, None, 0, format!("AG {ag} inode block"));
        for n in 0..geom.bitmap_blocks {
            self.frags(Kind::Bitmap, at(geom.bitmap_block(ag, n)), block, None, 0, format!("AG {ag} bitmap"));
        }
        let walk = self.r.chunk_tree(ag)?;
        for (node, level) in &walk.nodes {
            self.frags(Kind::Tree, *node, block, None, 0, format!("AG {ag} chunk tree, level {level}"));
        }
        for (start, _) in self.r.chunks(&walk) {
            let name = format!("AG {ag} inode chunk");
            self.frags(Kind::Inode, at(Daddr(start)), geom.chunk_frags(), None, 0, name);
            for i in self.r.chunk_inodes(start)? {
                self.inode(&i)?;
            }
        }
        Ok(())
    }

    fn inode(&mut self, i: &RawInode) -> Result<()> {
        let geom = self.r.geom;
        let owner = Some(i.ino);
        let walk = self.r.map(i)?;
        let tree = if is_dir(i) { "directory tree" } else { "extent tree" };
        for (node, level) in &walk.nodes {
            self.frags(Kind::Tree, *node, geom.block_frags(), owner, 0, format!("{tree}, level {level}"));
        }
        for r in &walk.records {
            let (start, len, flags) = extent(r);
            let file_offset = r.0.saturating_mul(geom.frag_size());
            match i.d.mode.get() & mode::IFMT {
                mode::IFDIR => self.frags(Kind::Dir, start, geom.block_frags(), owner, 0, "directory block".into()),
                mode::IFLNK => self.frags(Kind::Tree, start, len, owner, 0, "symbolic link".into()),
                _ if flags & UNWRITTEN != 0 => {
                    self.frags(Kind::Data, start, len, owner, file_offset, "unwritten data".into());
                }
                _ => self.frags(Kind::Data, start, len, owner, file_offset, "data".into()),
            }
        }
        let (start, len) = (Frag(i.d.xattr.get()), i.d.xattr_frags.get());
        if start.0 != 0 && self.r.valid_run(start, len) {
            self.frags(Kind::Xattr, start, len, owner, 0, "extended attributes".into());
        }
        Ok(())
    }
}
