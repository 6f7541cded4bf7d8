//! The tree as the sentences of the issues name it.

use super::Checker;
use crate::format::*;
use arbor_base::vfs::Result;
use arbor_kit::paths::Tree;
use arbor_kit::treecheck::{Rec, TreeCheck as _};

impl Tree for Checker<'_> {
    fn root(&self) -> u64 {
        ROOT.0
    }

    fn is_dir(&self, ino: u64) -> Option<bool> {
        self.recs.of(u32::try_from(ino).ok()?).map(|rec| rec.is_dir())
    }

    fn dirs(&self) -> Vec<u64> {
        self.recs.dirs().into_iter().map(u64::from).collect()
    }

    fn above(&self, dir: u64) -> Option<u64> {
        let rec = self.recs.of(u32::try_from(dir).ok()?).filter(Rec::is_dir)?;
        self.recs.find(rec.parent).map(|_| rec.parent.into())
    }

    fn each_name(&mut self, dir: u64, f: &mut dyn FnMut(&[u8], u64)) -> Result<()> {
        for e in self.names_in(dir as u32).unwrap_or_default() {
            f(&e.name, e.ino.into());
        }
        self.breathe();
        Ok(())
    }
}
