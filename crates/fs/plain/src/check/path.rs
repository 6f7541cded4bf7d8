//! The check of one path: the inodes on it and the directories that lead
//! on. Nothing is repaired, and nothing else is read.

use super::issue::{Issue, Node, Verdict};
use super::{Checker, Paths, start};
use crate::format::*;
use crate::inode::Inode;
use arbor_base::vfs::{CheckReport, Devices, Error, Ino, Result};
use arbor_kit::issue::show;
use arbor_kit::paths::{Way, follow};
use arbor_kit::treecheck::{Names, Spot, TreeCheck as _, find_name};

/// Checks the file or directory at `path`, and what it takes to get there.
pub(crate) fn check_path(devices: Devices, path: &[u8]) -> Result<CheckReport> {
    let mut silent = |_: u64, _: u64, _: &str| ();
    let mut c = match start::open(&devices, false, &mut silent)? {
        Ok(c) => c,
        Err(lost) => return Ok(lost.finish(&Paths::new())),
    };
    let mut paths = Paths::new();
    follow(&mut c, path, &mut paths)?;
    c.f.report = CheckReport { unclean: c.f.volume.unclean, used_bytes: c.owned.len() << BLOCK_SHIFT, ..c.counts() };
    Ok(c.f.finish(&paths))
}

impl Way for Checker<'_> {
    type Inode = Inode;

    fn root(&self) -> u64 {
        ROOT.0
    }

    /// With its blocks and attributes, and the chunks of a directory.
    fn way_inode(&mut self, ino: u64, parent: u64) -> Result<Option<Inode>> {
        let node = Node(ino);
        match self.core.islot(Ino(ino)) {
            Ok(i) if i.d.in_use() => self.check_inode(i)?,
            Err(Error::Corrupt(c)) => self.f.note(Issue::InodeDamaged { ino: node, why: c.to_string() }),
            _ if ino == ROOT.0 => self.f.note(Verdict::RootLost { ino, why: "is not in use" }),
            _ => {}
        }
        let Ok(i) = self.core.islot(Ino(ino)) else { return Ok(None) };
        if !i.d.in_use() {
            return Ok(None);
        }
        let (mut names, blocks) = (Names::default(), if i.is_dir() { blocks_of(i.d.size.get()) } else { 0 });
        for lbn in 0..blocks {
            let (bytes, at) = (self.dir_bytes(&i, lbn)?, byte(self.core.find_block(&i, lbn)?));
            for (n, chunk) in (0..).step_by(DIRBLKSIZ).zip(bytes.chunks_exact(DIRBLKSIZ)) {
                let spot = Spot { dir: ino as u32, offset: (lbn << BLOCK_SHIFT) + n, byte: at + n };
                self.check_form(spot, parent as u32, chunk, &mut names);
            }
        }
        Ok(Some(i))
    }

    fn leads_on(&self, i: &Inode) -> bool {
        i.is_dir()
    }

    fn way_entry(&mut self, dir: u64, i: &Inode, name: &[u8]) -> Result<Option<u64>> {
        for lbn in 0..blocks_of(i.d.size.get()) {
            let Some((ino, kind)) = find_name(&self.dir_bytes(i, lbn)?, name) else { continue };
            let (dir, node) = (Node(dir), Node(ino.0));
            match self.core.islot(ino) {
                Ok(i) if !i.d.in_use() => {
                    self.f.note(Verdict::EntryTarget { dir, name: show(name), ino: node, why: "is not in use" });
                    return Ok(None);
                }
                Ok(i) if i.d.kind() >> 12 != u32::from(kind) => {
                    self.f.note(Verdict::EntryKind { dir, name: show(name), ino: node })
                }
                Err(Error::Errno(_)) => {
                    self.f.note(Verdict::EntryTarget { dir, name: show(name), ino: node, why: "cannot be there" });
                    return Ok(None);
                }
                _ => {}
            }
            return Ok(Some(ino.0));
        }
        Ok(None)
    }

    fn is_sound(&self) -> bool {
        self.f.is_empty()
    }
}
