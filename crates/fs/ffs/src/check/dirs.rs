//! Phase 2: directories, their chunks and what the entries name.

use super::Checker;
use super::blocks::Piece;
use super::issue::{Issue, Node, show};
use crate::format::*;
use arbor_base::device::Kind;
use arbor_base::vfs::{Ino, Result, is_name};
use arbor_kit::dirent::{Dirent, entries};
use arbor_kit::forest::{Forest, LOST_FOUND, Spot, TreeIssue};
use arbor_kit::treecheck::{ChunkCheck as _, NOT_IN_USE, Named, Names, Rec, TreeCheck};

impl Checker<'_> {
    pub(super) fn read_dirs(&mut self) -> Result<()> {
        let dirs = self.recs.dirs();
        for (n, ino) in dirs.iter().enumerate() {
            if n % 64 == 0 {
                (self.progress)(n as u64, dirs.len() as u64, "names");
            }
            self.check_dir(*ino)?;
            self.recs.flag(*ino, Rec::READ, true);
        }
        Ok(())
    }

    pub(super) fn check_dir(&mut self, ino: u32) -> Result<()> {
        let Some(d) = self.inode(ino)? else { return Ok(()) };
        let mut names = Names::default();
        let (blocks, len) = (self.r.dir_blocks(&d)?, self.dir_len(&d));
        // A directory that consists mostly of holes is not worth the space: it ends with the first.
        let fill = len <= 2 * blocks.len() as u64 + 16;
        let mut blocks = blocks.into_iter().peekable();
        for lbn in 0..len {
            let piece = match blocks.next_if(|p| p.lbn == lbn) {
                Some(piece) => piece,
                None => {
                    let offset = lbn << self.r.geom.block_shift;
                    self.f.note(TreeIssue::DirHole { ino: Node(ino.into()), offset });
                    let filled = if fill || lbn == 0 { self.fill_hole(ino, lbn)? } else { None };
                    let Some(piece) = filled else { return self.end_dir(ino, lbn) };
                    piece
                }
            };
            self.check_dir_block(ino, &piece, &mut names)?;
        }
        Ok(())
    }

    /// Cuts a directory off at a block, unless that is its first.
    fn end_dir(&mut self, ino: u32, lbn: u64) -> Result<()> {
        match self.inode(ino)?.filter(|_| lbn > 0) {
            Some(d) => self.r.put_inode(ino.into(), Dinode { size: (lbn << self.r.geom.block_shift).into(), ..d }),
            None => Ok(()),
        }
    }

    /// Number of logical blocks of a directory.
    fn dir_len(&self, d: &Dinode) -> u64 {
        d.size.get().div_ceil(self.r.geom.block_size() as u64)
    }

    fn check_dir_block(&mut self, ino: u32, p: &Piece, names: &mut Names) -> Result<()> {
        let old = self.r.run(Kind::Dir, p.frag, p.frags)?;
        let mut bytes = old.clone();
        let (start, at) = (p.lbn << self.r.geom.block_shift, self.byte(p.frag));
        let end = self.inode(ino)?.map_or(0, |d| d.size.get());
        for (i, chunk) in bytes.chunks_exact_mut(DIRBLKSIZ).enumerate() {
            let i = (i * DIRBLKSIZ) as u64;
            if start + i < end {
                self.check_chunk(Spot { dir: ino, offset: start + i, byte: at + i }, chunk, names);
            }
        }
        if bytes != old {
            self.put_block(Kind::Dir, p.frag, &bytes)?;
        }
        Ok(())
    }
}

impl TreeCheck for Checker<'_> {
    type Number = u32;
    const ROOT: Ino = ROOT;
    const MOST_LINKS: u32 = u16::MAX as u32;

    fn forest(&mut self) -> &mut Forest<u32, u32> {
        &mut self.recs
    }

    fn records(&self) -> &Forest<u32, u32> {
        &self.recs
    }

    /// Notes an issue. Entries that name nothing are kept back: their directory may be cleared yet.
    fn tell(&mut self, issue: TreeIssue) {
        match issue {
            TreeIssue::EntryTarget { dir: Node(dir), name, ino, why: NOT_IN_USE }
                if dir == ROOT.0 && name == show(LOST_FOUND.as_bytes()) =>
            {
                self.f.note(Issue::LostFound { ino });
            }
            TreeIssue::EntryTarget { dir, .. } => self.dangling.push((dir.0 as u32, issue.into())),
            issue => self.f.note(issue),
        }
    }

    fn names_in(&mut self, dir: u32) -> Result<Vec<Named>> {
        let mut all = Vec::new();
        let Some(d) = self.inode(dir)? else { return Ok(all) };
        for p in self.r.dir_blocks(&d)? {
            let bytes = self.r.run(Kind::Dir, p.frag, p.frags)?;
            let start = p.lbn << self.r.geom.block_shift;
            for (i, chunk) in (0u64..).zip(bytes.chunks_exact(DIRBLKSIZ)) {
                let offset = start + i * DIRBLKSIZ as u64;
                let used = |e: &Dirent<'_>| e.ino.0 != 0 && is_name(e.name) && offset < d.size.get();
                let found = entries(chunk).unwrap_or_default().into_iter().filter(used);
                all.extend(found.map(|e| Named {
                    offset: offset + e.at as u64,
                    ino: e.ino.0 as u32,
                    name: e.name.to_vec(),
                }));
            }
        }
        Ok(all)
    }

    fn put_entry_ino(&mut self, dir: u32, offset: u64, ino: u32) -> Result<()> {
        let Some(d) = self.inode(dir)? else { return Ok(()) };
        let lbn = self.r.geom.lbn(offset);
        let Some(p) = self.r.dir_blocks(&d)?.into_iter().find(|p| p.lbn == lbn) else { return Ok(()) };
        let mut bytes = self.r.run(Kind::Dir, p.frag, p.frags)?;
        put_u32(&mut bytes, (offset - (lbn << self.r.geom.block_shift)) as usize, ino);
        self.put_block(Kind::Dir, p.frag, &bytes)
    }

    fn put_links(&mut self, ino: u32, links: u32) -> Result<()> {
        let Some(d) = self.inode(ino)? else { return Ok(()) };
        self.r.put_inode(ino.into(), Dinode { nlink: (links as u16).into(), ..d })
    }

    fn clear(&mut self, ino: u32) -> Result<()> {
        self.clear_inode(ino)
    }

    fn adopt(&mut self, ino: u32, kind: u8) -> Result<u32> {
        self.give_name(ino, kind)
    }

    /// Only soft updates leave inodes without names that are to be cleared after a crash.
    fn reconnects(&self) -> bool {
        let volume = &self.f.volume;
        volume.damaged || volume.was_clean || volume.keeping != Keeping::SoftUpdates
    }

    fn why_absent(&self, ino: Ino) -> &'static str {
        if self.r.geom.inode_at(ino).is_none() { "cannot be there" } else { NOT_IN_USE }
    }
}
