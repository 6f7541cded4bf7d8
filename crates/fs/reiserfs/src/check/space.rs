//! Phase 3: the bitmaps, what the superblock counts, and the numbers of objects (REISER-A1, A2). Afterwards the changes that
//! waited are made.

use super::issue::{Issue, Node};
use super::{Checker, Mend};
use crate::alloc::own_bits;
use crate::format::*;
use crate::item::{Item, pointer};
use crate::tree::find;
use arbor_base::vfs::{Errno, Error, Ino, Result};
use arbor_kit::buddy::{Wrong, bitmap};
use arbor_kit::forest::TreeIssue;
use arbor_kit::inodes::InodeStore as _;
use std::collections::BTreeSet;

impl Checker<'_> {
    pub(super) fn check_space(&mut self) -> Result<()> {
        let g = self.core.geom;
        let last = self.nodes.iter().next_back().max(self.data.iter().next_back()).unwrap_or(0);
        let (found, expected) = (self.core.sb.bitmaps.get(), last / g.covered() + 1);
        if found < expected {
            self.f.note(Issue::Bitmaps { found, expected });
        }
        let mut wrong = [Wrong::default(), Wrong::default(), Wrong::default()];
        for n in 0..found.max(expected) {
            if n >= self.core.sb.bitmaps.get() {
                self.core.make_bitmap()?;
            }
            self.check_bitmap(n, &mut wrong)?;
        }
        let [free, taken, other] = wrong;
        if free.count > 0 {
            self.f.note(Issue::MarkedFree { count: free.count, first: free.first });
        }
        if taken.count > 0 {
            self.f.note(Issue::MarkedUsed { count: taken.count, first: taken.first });
        }
        if other.count > 0 {
            self.f.note(Issue::MarkedOther { count: other.count, first: other.first });
        }
        let own = u64::from(g.own_blocks()) + self.nodes.len() + self.data.len();
        let expected = u64::from(g.blocks).saturating_sub(own) as u32;
        let found = self.core.sb.free.get();
        if found != expected {
            self.f.note(Issue::Count { found, expected });
            self.core.sb.free = expected.into();
            self.core.touch_super();
        }
        self.core.space = Default::default();
        Ok(())
    }

    /// The bits that a bitmap should have, of both sorts.
    fn expected_bits(&self, n: u32) -> Vec<u8> {
        let (g, len, mut bits) = (self.core.geom, self.core.geom.bit_bytes(), own_bits(&self.core.geom, n));
        let (first, end) = (n * g.covered(), (n * g.covered()).saturating_add(g.covered()).min(g.blocks));
        for (all, is_tree) in [(&self.nodes, true), (&self.data, false)] {
            let from = first.checked_sub(1);
            let inside = |block: &u32| *block < end;
            let all: Box<dyn Iterator<Item = u32>> = match from {
                Some(from) => Box::new(all.after(from)),
                None => Box::new(all.iter()),
            };
            for block in all.take_while(inside) {
                bitmap::set_used(&mut bits, block - first, 1);
                if is_tree {
                    bitmap::set_used(bits.get_mut(len..).unwrap_or(&mut []), block - first, 1);
                }
            }
        }
        bits
    }

    fn check_bitmap(&mut self, n: u32, [free, taken, other]: &mut [Wrong; 3]) -> Result<()> {
        let (g, len) = (self.core.geom, self.core.geom.bit_bytes());
        let (first, block) = (n * g.covered(), g.bitmap(n));
        let expected = self.expected_bits(n);
        let bytes = match self.core.bitmap(n) {
            Ok(bytes) => bytes.to_vec(),
            Err(Error::Corrupt(c)) => {
                self.f.note(Issue::Bitmap { at: g.byte(block), why: c.to_string() });
                self.core.put_bitmap(n, &expected);
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        let found = bytes.get(BITMAP_HEAD..).unwrap_or(&[]);
        if found == expected {
            return Ok(());
        }
        for (at, (found, expected)) in (0u32..).zip(found.iter().zip(&expected)) {
            let bit = |at: u32| first + at * 8;
            if at < len as u32 {
                free.add(expected & !found, bit(at));
                taken.add(found & !expected, bit(at));
            } else {
                other.add(expected ^ found, bit(at - len as u32));
            }
        }
        self.core.change_bitmap(n, |bytes| arbor_base::layout::put(bytes, BITMAP_HEAD, &expected))
    }

    /// Makes the changes that waited until all was read.
    pub(super) fn mend(&mut self) -> Result<()> {
        for mend in std::mem::take(&mut self.mends) {
            match self.mend_one(mend) {
                Err(Error::Errno(Errno::ENOSPC)) => {
                    self.f.note(TreeIssue::NoSpace { what: "an object".into() });
                }
                done => done?,
            }
        }
        Ok(())
    }

    fn mend_one(&mut self, mend: Mend) -> Result<()> {
        let place = |core: &mut crate::volume::Core, key| {
            Ok::<_, Error>(find(core, key)?.map(|unit| ((unit.leaf, unit.at), unit.unit)))
        };
        match mend {
            Mend::Cut(from, to) => self.core.cut_range(from, to),
            Mend::Insert(item) => self.core.insert(item),
            Mend::Stat(ino, d) => {
                let i = self.core.iget(ino)?;
                self.core.iput(&crate::inode::Inode { d: *d, ..i })
            }
            Mend::Unpoint(key) => match place(&mut self.core, key)? {
                Some((at, n)) => self.core.patch(at, |item| unpoint(item, n)),
                None => Ok(()),
            },
            Mend::Used(key, used) => match place(&mut self.core, key)? {
                Some((at, n)) => self.core.patch(at, |item| {
                    item.tail = if pointer(item, n) == 0 { 0 } else { used };
                }),
                None => Ok(()),
            },
        }
    }

    /// Checks the list of objects without names, which mount follows. It is empty on a repaired volume: the objects on it
    /// are cleared with all others that have no name.
    pub(super) fn check_orphans(&mut self) -> Result<()> {
        let (mut at, mut seen) = (self.core.sb.orphan.get(), BTreeSet::new());
        if at == 0 {
            return Ok(());
        }
        self.f.note(Issue::Orphans { ino: Node(at) });
        while at != 0 {
            let why = match self.recs.of(at) {
                _ if !seen.insert(at) => "is on it already",
                None => "is not in use",
                Some(rec) if rec.stored > 0 => "has a name",
                Some(_) => {
                    at = match self.core.iget(Ino(at)) {
                        Ok(i) => i.d.above.get(),
                        Err(Error::Corrupt(_) | Error::Errno(_)) => 0,
                        Err(e) => return Err(e),
                    };
                    continue;
                }
            };
            self.f.note(Issue::OrphanList { ino: Node(at), why });
            break;
        }
        self.core.sb.orphan = 0.into();
        self.core.touch_super();
        Ok(())
    }
}

/// Makes a pointer lead to nothing.
pub(super) fn unpoint(item: &mut Item, n: usize) {
    put_u32(&mut item.body, n * 4, 0);
    if (n + 1) * 4 == item.body.len() {
        item.tail = 0;
    }
}
