//! The check of one path: the objects on it and the entries that lead on. Nothing is repaired, and nothing else is read.

use super::issue::{Node, TreeIssue};
use super::objects::{Object, Rec, each_item};
use super::{Checker, start};
use crate::format::*;
use crate::inode::stat_key;
use crate::tree::find;
use arbor_base::vfs::{CheckReport, Devices, Error, Ino, Result};
use arbor_kit::conclude::Concluded as _;
use arbor_kit::issue::show;
use arbor_kit::paths::Way;
use arbor_kit::treecheck::{NOT_IN_USE, TreeCheck as _};

/// Checks the file or directory at `path`, and what it takes to get there.
pub(crate) fn check_path(devices: Devices, path: &[u8]) -> Result<CheckReport> {
    let mut silent = |_: u64, _: u64, _: &str| ();
    match start::open(&devices, false, &mut silent)? {
        Ok(checker) => checker.run_along(path),
        Err(lost) => Ok(lost),
    }
}

impl Checker<'_> {
    /// Checks an object by itself.
    fn check_alone(&mut self, ino: u64) -> Result<()> {
        let (mut object, geom) = (Object::new(Ino(ino)), self.core.geom);
        each_item(&mut self.core, Ino(ino), |item| object.take(&geom, item))?;
        let recs = std::mem::take(&mut self.recs);
        self.end_object(Some(object))?;
        let alone = std::mem::replace(&mut self.recs, recs);
        alone.there().for_each(|rec| self.recs.put(*rec));
        Ok(())
    }

    /// Notes the damage that a read met.
    fn noted<T>(&mut self, read: Result<T>) -> Result<Option<T>> {
        match read {
            Ok(found) => Ok(Some(found)),
            Err(Error::Corrupt(c)) => {
                self.f.note(super::Issue::Damaged { at: 0, level: 0, why: c.to_string() });
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }
}

impl Way for Checker<'_> {
    type Inode = Rec;

    fn root(&self) -> u64 {
        ROOT.0
    }

    fn way_inode(&mut self, ino: u64, parent: u64) -> Result<Option<Rec>> {
        let stat = find(&mut self.core, stat_key(Ino(ino)));
        match self.noted(stat)? {
            None => return Ok(None),
            Some(None) if ino == ROOT.0 => self.tell(TreeIssue::RootLost { ino, why: NOT_IN_USE }),
            Some(None) => {}
            Some(Some(_)) => {
                let done = self.check_alone(ino);
                self.noted(done)?;
            }
        }
        let Some(rec) = self.recs.of(ino) else { return Ok(None) };
        if rec.is_dir() && rec.dotdot != parent {
            let (found, expected) = (Node(rec.dotdot), Node(parent));
            self.tell(TreeIssue::DotDot { ino: Node(ino), found, expected });
        }
        Ok(Some(rec))
    }

    fn leads_on(&self, rec: &Rec) -> bool {
        rec.is_dir()
    }

    fn way_entry(&mut self, rec: &Rec, name: &[u8]) -> Result<Option<u64>> {
        let found = self.core.find_name(Ino(rec.ino), name);
        let Some(Ok(e)) = self.noted(found)? else { return Ok(None) };
        let (dir, ino, name) = (Node(rec.ino), Node(e.ino.0), show(name));
        let stat = find(&mut self.core, stat_key(e.ino));
        let held = self.noted(stat)?.flatten().and_then(|unit| unit.item().map(|item| item.body.clone()));
        let Some(body) = held else {
            self.tell(TreeIssue::EntryTarget { dir, name, ino, why: NOT_IN_USE });
            return Ok(None);
        };
        if crate::validate::stat_data(&self.core.geom, &body).is_ok_and(|d| (d.kind() >> 12) as u8 != e.kind) {
            self.tell(TreeIssue::EntryKind { dir, name, ino });
        }
        Ok(Some(e.ino.0))
    }

    fn is_sound(&self) -> bool {
        self.f.is_empty()
    }
}
