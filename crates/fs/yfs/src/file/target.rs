//! Targets of symbolic links: in the inode, or in a block.

use super::MapStore;
use super::map::make_extent;
use crate::btree::Tree;
use crate::buffers::What;
use crate::format::*;
use crate::inode::Inode;
use crate::volume::Core;
use arbor_base::vfs::Result;

impl Core {
    /// Checks for the space that a symbolic link to `target` may take; none if that is empty.
    pub fn need_target(&mut self, target: &[u8]) -> Result<()> {
        if target.is_empty() {
            return Ok(());
        }
        let frags = (target.len() + HEADER).div_ceil(self.geom.frag_size() as usize) as u32;
        self.need_space(u64::from(frags))?;
        if target.len() > self.geom.area() { self.need_run(frags) } else { Ok(()) }
    }

    pub fn read_target(&mut self, i: &Inode) -> Result<Vec<u8>> {
        let size = i.d.size.get() as usize;
        if i.format() == Format::Inline {
            return self.area(i, |a| a.get(..size).unwrap_or(&[]).to_vec());
        }
        let (start, frags) = self.symlink_block(i)?;
        let len = (u64::from(frags) * self.geom.frag_size()) as usize;
        if len > crate::recover::MAX_BUFFER {
            return Err(i.corrupt("extent", frags, "a block for a path").into());
        }
        let bytes = self.buffer(self.geom.daddr(start), len, What::Block(BlockType::Symlink))?;
        let target = bytes.get(HEADER..).and_then(|b| b.get(..size)).map(<[u8]>::to_vec);
        target.ok_or_else(|| i.corrupt("size", size, "a target within its block").into())
    }

    /// Buffer of a long symbolic link's target.
    pub fn symlink_block(&mut self, i: &Inode) -> Result<(Frag, u32)> {
        let e = self.extent_at(i, 0)?.ok_or_else(|| i.corrupt("format", "no extent", "the target's block"))?;
        Ok((e.start, e.len))
    }

    pub fn store_target(&mut self, i: &mut Inode, target: &[u8]) -> Result<()> {
        i.d.size = (target.len() as u64).into();
        if target.len() <= self.area_len(i) {
            self.area_write(i, 0, target)?;
            return self.iput(i);
        }
        let frags = (target.len() + HEADER).div_ceil(self.geom.frag_size() as usize) as u32;
        let e = self.alloc_run(self.inode_ag(i), frags)?;
        let addr = self.geom.daddr(e.start);
        self.init_block(addr, BlockType::Symlink, i.ino.0, (u64::from(frags) * self.geom.frag_size()) as usize)?;
        self.write(addr, Seal::Block, HEADER, target)?;
        i.d.format = Format::Extent as u8;
        i.d.frags = (i.d.frags.get() + u64::from(frags)).into();
        let v = make_extent(e.start, e.len, 0);
        Tree::<_, EXTENT_VALUE>::new(&mut MapStore::file(self, i)).insert(0, &v)?;
        self.iput(i)
    }
}
