//! The tree as the sentences of the issues name it.

use super::{Checker, Rec};
use crate::format::*;
use arbor_base::vfs::Result;
use arbor_kit::paths::Tree;

impl Tree for Checker<'_> {
    fn root(&self) -> u64 {
        ROOT.0
    }

    fn is_dir(&self, ino: u64) -> Option<bool> {
        let rec = self.find(u32::try_from(ino).ok()?)?;
        Some(self.at(rec).is_dir())
    }

    fn dirs(&self) -> Vec<u64> {
        self.dirs().into_iter().map(u64::from).collect()
    }

    fn above(&self, dir: u64) -> Option<u64> {
        let rec = self.find(u32::try_from(dir).ok()?).map(|k| self.at(k)).filter(Rec::is_dir)?;
        self.find(rec.parent).map(|_| rec.parent.into())
    }

    fn each_name(&mut self, dir: u64, f: &mut dyn FnMut(&[u8], u64)) -> Result<()> {
        for e in self.names_in(dir as u32).unwrap_or_default() {
            f(&e.name, e.ino.into());
        }
        self.breathe();
        Ok(())
    }
}
