//! Phase 5: the cylinder groups, their counts, and the copies of these elsewhere.

use super::Checker;
use super::issue::{Issue, Node};
use super::view::Stage;
use crate::bitmap::count;
use crate::format::*;
use crate::superblock;
use arbor_base::device::Kind;
use arbor_base::layout::{U32, crc};
use arbor_base::vfs::Result;
use arbor_kit::forest::DIR_KIND;
use arbor_kit::treecheck::Rec;
use zerocopy::IntoBytes;

/// First sector of the inode bits in a group's structure.
const INODE_BITS: u32 = 1;

impl Checker<'_> {
    pub(super) fn check_groups(&mut self) -> Result<()> {
        self.sums.clear();
        self.old_sums.clear();
        let mut at = 0;
        for cgx in 0..self.r.geom.cg_count {
            (self.progress)(cgx.into(), self.r.geom.cg_count.into(), "cylinder groups");
            let first = self.r.first_inode(cgx) as u32;
            let end = first.saturating_add(self.r.geom.cg_inodes);
            let next = at + self.recs.get(at..).unwrap_or(&[]).partition_point(|r| r.ino < end);
            let recs = self.recs.get(at..next).unwrap_or(&[]).to_vec();
            at = next;
            self.check_group(cgx, &recs)?;
        }
        Ok(())
    }

    fn check_group(&mut self, cgx: u32, recs: &[Rec]) -> Result<()> {
        let found = self.r.group(cgx)?;
        let mut right = self.bitmaps(cgx, recs);
        let ndir = recs.iter().filter(|r| r.is_dir()).count() as u32;
        let head = self.r.header(cgx, &found);
        self.compare_bitmaps(cgx, &found, &right);
        if let Err(why) = head {
            let at = self.byte(self.r.geom.cg_block(cgx));
            self.f.note(Issue::GroupHeader { cgx, at, why });
        }
        let old = head.ok();
        if let Some(h) = old {
            let before = |r: &&Rec| r.kind == DIR_KIND && (r.has(Rec::GONE) || !self.touched.contains(&r.ino));
            let before = recs.iter().filter(before).count() as u32;
            self.compare_header(cgx, &h, &found, before);
        }
        let head = self.right_header(cgx, old.unwrap_or_default(), &right, ndir);
        self.sums.extend_from_slice(head.sum.as_bytes());
        self.old_sums.extend_from_slice(old.map_or(head.sum, |h| h.sum).as_bytes());
        if let Some(place) = right.get_mut(..SECTOR) {
            place.copy_from_slice(head.as_bytes());
        }
        seal_cg(&mut right);
        self.r.view.write(Stage::Groups, Kind::Group, self.r.geom.byte(self.r.geom.cg_block(cgx)), &right)
    }

    /// A group's structure as it should be, without its header.
    fn bitmaps(&self, cgx: u32, recs: &[Rec]) -> Vec<u8> {
        let geom = &self.r.geom;
        let mut cg = vec![0; geom.block_size()];
        let mut take = |first: u32, i: u32| {
            let (at, mask) = bit_place(first, i);
            cg.iter_mut().skip(at).take(1).for_each(|b| *b |= mask);
        };
        let first_inode = self.r.first_inode(cgx) as u32;
        if cgx == 0 {
            (0..ROOT.0 as u32).for_each(|i| take(INODE_BITS, i));
        }
        for rec in recs.iter().filter(|r| !r.has(Rec::GONE)) {
            take(INODE_BITS, rec.ino.saturating_sub(first_inode));
        }
        for i in self.space.owned_in(cgx).chain(geom.cg_len(cgx)..geom.cg_frags) {
            take(INODE_BITS + geom.inode_sectors(), i);
        }
        cg
    }

    /// Damaged sectors, and bits that differ in the others.
    fn compare_bitmaps(&mut self, cgx: u32, found: &[u8], right: &[u8]) {
        let geom = self.r.geom;
        let byte = geom.byte(geom.cg_block(cgx));
        let frag_bits = INODE_BITS + geom.inode_sectors();
        let used = frag_bits + geom.frag_sectors();
        let mut tail = false;
        // Wrongly free, wrongly used: inodes, then fragments. Number and first bit.
        let mut wrong = [[(0u32, 0u32); 2]; 2];
        let both = found.chunks_exact(SECTOR).zip(right.chunks_exact(SECTOR));
        for (sector, (a, b)) in (0u32..).zip(both).skip(1) {
            if !sealed(a) {
                let at = byte + u64::from(sector) * SECTOR as u64;
                self.f.note(Issue::GroupBitmap { cgx, sector: sector.into(), at });
                continue;
            }
            if sector >= used {
                tail |= a.iter().any(|b| *b != 0);
                continue;
            }
            let (kind, first, len) = match sector < frag_bits {
                true => (0, INODE_BITS, geom.cg_inodes),
                false => (1, frag_bits, geom.cg_len(cgx)),
            };
            let base = (sector - first).saturating_mul(BITMAP_BITS);
            for (bit, was) in differences(a, b) {
                let bit = base.saturating_add(bit);
                if bit >= len {
                    tail = true;
                } else if self.is_touched(cgx, kind, bit) {
                    continue;
                } else if let Some(w) = wrong.get_mut(kind).and_then(|w| w.get_mut(usize::from(was))) {
                    *w = (w.0 + 1, if w.0 == 0 { bit } else { w.1 });
                }
            }
        }
        self.tell_bits(cgx, wrong);
        if tail {
            self.f.note(Issue::GroupTail { cgx });
        }
    }

    /// Whether this run allocated or freed an inode or a fragment.
    fn is_touched(&self, cgx: u32, kind: usize, bit: u32) -> bool {
        match kind {
            0 => self.touched.contains(&(self.r.first_inode(cgx) as u32).saturating_add(bit)),
            _ => self.space.touched(self.r.geom.cg_start(cgx).0.saturating_add(bit)),
        }
    }

    fn tell_bits(&mut self, cgx: u32, [inodes, frags]: [[(u32, u32); 2]; 2]) {
        let (start, first_inode) = (self.r.geom.cg_start(cgx).0, self.r.first_inode(cgx));
        let frag = |bit: u32| start.saturating_add(bit);
        let inode = |bit: u32| Node(first_inode.saturating_add(bit.into()));
        let [free, used] = inodes;
        if free.0 > 0 {
            self.f.note(Issue::InodesFree { cgx, count: free.0, first: inode(free.1) });
        }
        if used.0 > 0 {
            self.f.note(Issue::InodesUsed { cgx, count: used.0, first: inode(used.1) });
        }
        let [free, used] = frags;
        if free.0 > 0 {
            self.f.note(Issue::FragsFree { cgx, count: free.0, first: frag(free.1) });
        }
        if used.0 > 0 {
            self.f.note(Issue::FragsUsed { cgx, count: used.0, first: frag(used.1) });
        }
    }

    /// Checks the counts of a header against its own bitmaps.
    fn compare_header(&mut self, cgx: u32, h: &CgHeader, found: &[u8], ndir: u32) {
        let geom = self.r.geom;
        let (sum, frsum) = count(&geom, cgx, found);
        let pairs = [
            ("free blocks", h.sum.nbfree, sum.nbfree),
            ("free fragments", h.sum.nffree, sum.nffree),
            ("free inodes", h.sum.nifree, sum.nifree),
            ("directories", h.sum.ndir, ndir.into()),
        ];
        let runs = h.frsum.into_iter().zip(frsum).map(|(a, b)| ("free runs of one length", a, b));
        for (what, found, expected) in pairs.into_iter().chain(runs).filter(|p| p.1 != p.2) {
            self.f.note(Issue::GroupCount { cgx, what, found: found.get(), expected: expected.get() });
        }
        let inited = self.inited.get(cgx as usize).copied().unwrap_or(0);
        if h.initediblk.get() != inited {
            self.f.note(Issue::Inited { cgx, found: h.initediblk.get(), expected: inited });
        }
        for (rotor, most) in [(h.rotor, geom.cg_len(cgx)), (h.frotor, geom.cg_len(cgx)), (h.irotor, geom.cg_inodes)] {
            if rotor.get() > most {
                self.f.note(Issue::Rotor { cgx, found: rotor.get() });
            }
        }
    }

    fn right_header(&self, cgx: u32, old: CgHeader, right: &[u8], ndir: u32) -> CgHeader {
        let geom = &self.r.geom;
        let (sum, frsum) = count(geom, cgx, right);
        let within = |rotor: U32, most: u32| if rotor.get() > most { 0.into() } else { rotor };
        CgHeader {
            magic: CG_MAGIC.into(),
            fsid: geom.fsid.into(),
            cgx: cgx.into(),
            frags: geom.cg_len(cgx).into(),
            sum: Summary { ndir: ndir.into(), ..sum },
            frsum,
            rotor: within(old.rotor, geom.cg_len(cgx)),
            frotor: within(old.frotor, geom.cg_len(cgx)),
            irotor: within(old.irotor, geom.cg_inodes),
            initediblk: self.inited.get(cgx as usize).copied().unwrap_or(0).into(),
            inodes: geom.cg_inodes.into(),
            ..old
        }
    }

    /// Checks the copies of the superblock, without the fields that change.
    pub(super) fn check_copies(&mut self) -> Result<()> {
        let right = superblock::as_copy(self.r.sb);
        for cgx in 1..self.r.geom.cg_count {
            let at = self.byte(self.r.geom.cg_start(cgx));
            let bytes = self.r.view.read(Kind::Super, at, SECTOR)?;
            let found = superblock::decode(&bytes, at);
            let usable = |sb: &SuperBlock| superblock::geometry(sb, at, self.r.view.dev.geometry().size).is_ok();
            if !matches!(&found, Ok(Some(sb)) if superblock::is_same(sb, &right) && usable(sb)) {
                self.f.note(Issue::SuperCopy { cgx, at });
                self.r.view.write(Stage::Rest, Kind::Super, at, &superblock::encode(&right))?;
            }
        }
        Ok(())
    }

    /// Checks the summary area, which is valid on a clean volume only.
    pub(super) fn check_summary(&mut self) -> Result<()> {
        let at = self.byte(Frag(self.r.sb.summary_start.get()));
        let len = self.r.geom.bytes_of(self.r.geom.summary_frags());
        let found = self.r.view.read(Kind::Group, at, len)?;
        let mut right = found.clone();
        right.iter_mut().zip(&self.sums).for_each(|(place, b)| *place = *b);
        let clean = self.r.sb.clean.get() != 0;
        let found = found.get(..self.sums.len()).unwrap_or(&[]);
        if clean && (found != self.old_sums || self.r.sb.summary_crc.get() != crc(found)) {
            self.f.note(Issue::Summary { at });
            self.r.sb.summary_crc = crc(&self.sums).into();
            self.super_changed = true;
        }
        if clean && self.r.sb.orphan.get() != 0 {
            self.f.note(Issue::Orphans { ino: Node(self.r.sb.orphan.get().into()) });
            self.r.sb.orphan = 0.into();
            self.super_changed = true;
        }
        self.r.view.write(Stage::Rest, Kind::Group, at, &right)
    }
}

/// Bits that differ between two sectors of bitmaps, with their old values.
fn differences(found: &[u8], right: &[u8]) -> impl Iterator<Item = (u32, bool)> {
    let bytes = found.iter().zip(right).take(SECTOR - 4).map(|(a, b)| (*a, a ^ b));
    let differing = (0u32..).zip(bytes).filter(|(_, (_, diff))| *diff != 0);
    differing.flat_map(|(at, (a, diff))| {
        (0..8).filter(move |i| diff >> i & 1 == 1).map(move |i| (at * 8 + i, a >> i & 1 == 1))
    })
}

/// Whether the checksum of a sector of bitmaps is right.
fn sealed(sector: &[u8]) -> bool {
    let (body, tail) = sector.split_at(sector.len().saturating_sub(4));
    sector.iter().all(|b| *b == 0) || tail == crc(body).to_le_bytes()
}
