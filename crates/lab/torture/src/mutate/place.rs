//! Whether damage that an engine reports is where an image was damaged.
//!
//! What is reported must be one of these:
//!
//! 1. *Changed*: a structure that was changed, the start of the block around it, or the file whose block or inode it is.
//! 2. *Led to*: what the numbers in a changed structure name, as they were or are now; whoever follows a wrong pointer finds
//!    damage where it leads, and who frees what it leads to finds it in the maps of allocation.
//! 3. *Leading there*: what names a changed structure; an entry that names an inode that is free now is wrong as well.
//! 4. Where a structure was changed that speaks of the whole volume (the log, headers and bitmaps of allocation, what no
//!    user's file owns, but a file of inodes or of bitmaps) any place but the first sector, since these lead everywhere. A
//!    changed superblock excuses that too.
//!
//! So no place is taken for granted: byte 0 is right only where the superblock is.

use super::change::Change;
use super::image::Image;
use arbor_base::device::{Device, Kind, MemDevice, SECTOR};
use arbor_base::layout::{Location, Role, get_u32};
use arbor_base::vfs::{Ino, Region, Structure};
use std::collections::BTreeSet;

/// Longest block of any engine: a pointer leads to so many bytes at most.
const BLOCK: u64 = 64 << 10;
/// Bytes of an entry that name something.
const NAMING: usize = 16;

/// What was changed in an image.
pub(super) struct Suspects<'a> {
    image: &'a Image,
    changed: Vec<&'a Structure>,
    /// Blocks and other regions around them.
    regions: Vec<&'a Region>,
    /// Numbers that stand in them, before or now.
    numbers: BTreeSet<u64>,
    lead_everywhere: bool,
    superblock: bool,
}

impl<'a> Suspects<'a> {
    /// The suspects of a mutant whose bytes are on `disk`.
    pub fn new(image: &'a Image, changes: &[Change], disk: &MemDevice) -> Suspects<'a> {
        let changed: Vec<_> = changes.iter().filter_map(|c| image.structures.get(c.structure)).collect();
        let overlaps = |r: &&Region| changed.iter().any(|s| s.offset < r.offset + r.len && r.offset < end(s));
        let regions: Vec<_> = image.regions.iter().filter(overlaps).collect();
        let mut numbers = BTreeSet::new();
        for s in &changed {
            for dev in [&image.disk, disk] {
                numbers.extend(numbers_in(&bytes(dev, s.offset, s.len)));
            }
        }
        numbers.remove(&0);
        let covered = |s: &Structure| regions.iter().find(|r| inside(r.offset, r.len, s.offset));
        let own: BTreeSet<Ino> = image.regions.iter().filter(|r| is_of_its_own(r)).filter_map(|r| r.owner).collect();
        let lead_everywhere = changed.iter().any(|s| covered(s).is_none_or(|r| speaks_of_all(s, r, &own)));
        let superblock = changed.iter().any(|s| s.offset == 0);
        Suspects { image, changed, regions, numbers, lead_everywhere, superblock }
    }

    /// Whether damage may be reported there.
    pub fn explain(&self, place: Location) -> bool {
        if self.superblock {
            return true;
        }
        let first = matches!(place, Location::Device { role: Role::Main, byte } if byte < SECTOR as u64);
        if self.lead_everywhere && !first {
            return true;
        }
        match place {
            Location::Device { role: Role::Main, byte } => self.explain_byte(byte),
            // Images have one device.
            Location::Device { role: Role::Extra(_), .. } => false,
            Location::File { ino, offset } => self.explain_file(ino, offset),
            Location::Inode { ino } => self.explain_inode(ino),
        }
    }

    fn explain_byte(&self, byte: u64) -> bool {
        let is_changed = self.changed.iter().any(|s| inside(s.offset, s.len as u64, byte))
            || self.regions.iter().any(|r| r.offset == byte);
        let is_map = |r: &Region| matches!(r.kind, Kind::Group | Kind::Bitmap) && inside(r.offset, r.len, byte);
        let map = self.image.regions.iter().any(is_map);
        let units = &self.image.units;
        let leads = |n: &u64| units.iter().any(|unit| (n * unit..n * unit + BLOCK).contains(&byte));
        let at = self.image.structures.iter().filter(|s| inside(s.offset, s.len as u64, byte));
        let named = at.clone().any(|s| self.names(&s.addresses));
        let naming = at.map(|s| (s.offset, s.len)).chain([(byte, NAMING)]).any(|(at, len)| self.leads_here(at, len));
        is_changed || map || self.numbers.iter().any(leads) || named || naming
    }

    fn explain_file(&self, ino: u64, offset: u64) -> bool {
        let there = |r: &&Region| inside(r.file_offset, r.len, offset);
        // The owner of a file of the volume itself is not told.
        let own = |r: &&Region| r.owner.is_none_or(|owner| owner == Ino(ino));
        let block = self.image.regions.iter().filter(|r| own(r) && there(r) && r.kind == Kind::Dir);
        let byte = |r: &Region| r.offset + (offset - r.file_offset);
        let naming = block.map(byte).any(|byte| self.leads_here(byte, NAMING));
        let is_map = |r: &Region| r.kind == Kind::Bitmap && r.owner == Some(Ino(ino)) && there(&r);
        let map = self.image.regions.iter().any(is_map);
        let leads_there = |r: &Region| there(&r) || r.kind == Kind::Tree;
        naming
            || map
            || self.regions.iter().any(|r| own(r) && leads_there(r))
            || self.is_changed(ino)
            || self.numbers.contains(&ino)
    }

    fn explain_inode(&self, ino: u64) -> bool {
        let owns = self.regions.iter().any(|r| r.owner == Some(Ino(ino)));
        let mut inodes = self.image.structures.iter().filter(|s| is_inode(s) && s.number == ino);
        let naming = inodes.any(|s| self.leads_here(s.offset, s.len));
        self.is_changed(ino) || owns || self.numbers.contains(&ino) || naming
    }

    fn is_changed(&self, ino: u64) -> bool {
        self.changed.iter().any(|s| is_inode(s) && s.number == ino)
    }

    /// Whether the bytes at a place of the good image name something that was changed.
    fn leads_here(&self, at: u64, len: usize) -> bool {
        let all: BTreeSet<u64> = numbers_in(&bytes(&self.image.disk, at, len)).collect();
        self.changed.iter().flat_map(|s| &s.addresses).any(|a| *a > 0 && all.contains(a))
    }

    fn names(&self, addresses: &[u64]) -> bool {
        addresses.iter().any(|a| self.numbers.contains(a))
    }
}

fn inside(start: u64, len: u64, at: u64) -> bool {
    (start..start.saturating_add(len)).contains(&at)
}

fn end(s: &Structure) -> u64 {
    s.offset + s.len as u64
}

fn is_inode(s: &Structure) -> bool {
    matches!(s.kind, "inode" | "inode, free")
}

/// Whether a file is the volume's own: it has bitmaps, or inodes behind its beginning.
fn is_of_its_own(r: &Region) -> bool {
    r.kind == Kind::Bitmap || r.kind == Kind::Inode && r.file_offset > 0
}

/// Whether a structure in this region speaks of more than one file. `own`: the files of the volume itself.
fn speaks_of_all(s: &Structure, r: &Region, own: &BTreeSet<Ino>) -> bool {
    match r.kind {
        Kind::Super | Kind::Log | Kind::Group | Kind::Bitmap => true,
        // A region of its own that nobody owns: the inode of a file of the volume itself.
        Kind::Inode if is_inode(s) => r.owner.is_none() && r.len == s.len as u64,
        _ => r.owner.is_none_or(|owner| own.contains(&owner)),
    }
}

/// All that these bytes can mean as a number, wherever it begins.
fn numbers_in(bytes: &[u8]) -> impl Iterator<Item = u64> {
    (0..bytes.len()).filter_map(|at| get_u32(bytes, at)).map(u64::from)
}

/// Bytes of a device; none where it has none.
fn bytes(dev: &MemDevice, at: u64, len: usize) -> Vec<u8> {
    let first = at - at % SECTOR as u64;
    let within = (at - first) as usize;
    let mut sectors = vec![0; (within + len).next_multiple_of(SECTOR)];
    match dev.read_at(Kind::Other, first, &mut sectors) {
        Ok(()) => sectors[within..within + len].to_vec(),
        Err(_) => Vec::new(),
    }
}

/// Bytes that one more in an address field means.
pub(super) fn units(structures: &[Structure]) -> BTreeSet<u64> {
    let of = |s: &Structure| -> Vec<u64> {
        let each = s.addresses.iter().filter(|a| **a > 0 && s.offset.is_multiple_of(**a)).map(|a| s.offset / a);
        each.filter(|unit| unit.is_power_of_two() && (SECTOR as u64..=BLOCK).contains(unit)).collect()
    };
    structures.iter().flat_map(of).collect()
}
