//! Names of inodes and directories in the messages of issues.

use super::Checker;
use crate::body;
use arbor_base::vfs::Result;
use arbor_kit::paths::Tree;

impl Tree for Checker<'_> {
    fn root(&self) -> u64 {
        self.r.sb.root.get()
    }

    fn is_dir(&self, ino: u64) -> Option<bool> {
        self.recs.of(ino).map(|rec| rec.is_dir())
    }

    fn dirs(&self) -> Vec<u64> {
        self.recs.dirs()
    }

    fn above(&self, dir: u64) -> Option<u64> {
        self.recs.of(dir).map(|rec| rec.parent)
    }

    fn each_name(&mut self, dir: u64, f: &mut dyn FnMut(&[u8], u64)) -> Result<()> {
        let i = match self.fresh.get(&dir) {
            None => self.r.inode(dir)?,
            fresh => fresh.cloned(),
        };
        let Some(i) = i else { return Ok(()) };
        for group in self.bodies(&i, self.edits.get(&dir))?.chunks(super::dirs::BLOCKS) {
            for (body, _) in self.read_bodies(&i, group)? {
                for e in body::parse(body.as_deref().unwrap_or(&[])).0 {
                    f(e.name, e.head.ino.get());
                }
            }
        }
        Ok(())
    }

    fn searched(&mut self, done: u64, total: u64) {
        self.report(done, total, "paths");
    }
}
