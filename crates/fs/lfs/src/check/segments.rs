//! The segment usage table and the live blocks of the log, which must agree with pointers and summaries.
//!
//! Every segment with live blocks is read whole. To compare, sums suffice: of the prints of all pointers into a
//! segment, and of the prints that its summaries give for the blocks that begin where a pointer points to, with the
//! checksums of the bytes there. Where they differ, the next pass reads block by block; if all are sound, the summaries
//! are wrong.

use super::Checker;
use super::issue::{Issue, TreeIssue};
use super::log;
use super::space::Print;
use crate::format::*;
use crate::heads::{HOT, Head};
use crate::summary;
use arbor_base::device::{Kind, zeroed};
use arbor_base::layout::crc;
use arbor_base::vfs::{Error, Ino, Result};
use arbor_kit::reads;
use arbor_kit::segments::Use;
use std::collections::BTreeSet;

/// How many clean segments a repair needs to begin.
const NEEDED: u64 = 4;

impl Checker<'_> {
    pub(super) fn check_usage(&mut self) -> Result<()> {
        let silent = self.reshaped || self.wary;
        for seg in self.said_or_found() {
            let died = self.core.dead_bytes.get(&seg).copied().unwrap_or(0);
            let (found, expected) = (self.core.segs.get(seg), self.space.live(seg).saturating_add(died.into()));
            if u64::from(found.live) != expected && !silent {
                self.f.note(Issue::Usage { seg, found: found.live, expected });
            }
            let live = u32::try_from(expected).unwrap_or(u32::MAX);
            let to = Use { live, dirty: found.dirty || live > 0, ..found };
            if to != found {
                self.core.segs.set(seg, to);
            }
        }
        self.find_clean();
        self.place_log()
    }

    /// Segments with an entry in the table that is not zero, or with anything live or dead found; for the others both
    /// have nothing.
    fn said_or_found(&self) -> BTreeSet<u32> {
        let said = self.core.segs.said().map(|(seg, _)| seg);
        let died = self.core.dead_bytes.keys().copied().filter(|seg| *seg < self.core.segs.count());
        said.chain(self.space.segs()).chain(died).collect()
    }

    /// If too few segments are known to be clean, takes those with nothing live.
    fn find_clean(&mut self) {
        let segs = &mut self.core.segs;
        if segs.clean.len() >= NEEDED {
            return;
        }
        let mut taken: BTreeSet<u32> = segs.said().map(|(seg, _)| seg).collect();
        taken.extend(self.core.log.busy());
        let known: Vec<u32> = segs.clean.iter().collect();
        segs.clean.clear();
        let mut from = 0;
        for seg in taken.into_iter().chain([segs.count()]) {
            segs.clean.insert_run(from, seg.min(segs.count()));
            from = seg.saturating_add(1);
        }
        segs.clean.extend(known);
    }

    /// Checks that each head of the log lies after everything live in its segment, and that the next segment has
    /// nothing live; else moves the head to clean segments.
    fn place_log(&mut self) -> Result<()> {
        for n in 0..self.core.log.heads.len() {
            let head = self.core.log.heads[n];
            let why = if !head.is_open() && n == HOT {
                "it is lost"
            } else if !head.is_open() {
                continue;
            } else if head.offset < self.space.end(head.seg.0) {
                "something lives after its end"
            } else if self.space.live(head.next_seg.0) > 0 {
                "something lives in the one after it"
            } else if !self.leads_to_end(&head)? {
                "its summaries do not lead to its end"
            } else {
                continue;
            };
            if !self.wary {
                self.f.note(Issue::LogPlace { seg: head.seg.0, why });
            }
            let first_two = {
                let mut clean = self.core.segs.clean.iter();
                (clean.next(), clean.next())
            };
            let (Some(seg), Some(next)) = first_two else {
                self.f.note(TreeIssue::NoSpace { what: "the log: no segment is clean".into() });
                return Ok(());
            };
            for seg in [seg, next] {
                self.core.segs.clean.remove(seg);
            }
            let fill = self.core.log.next_fill().max(log::last_fill(&self.core)? + 1);
            self.core.log.heads[n] = Head { seg: Seg(seg), offset: 0, next_seg: Seg(next), fill };
        }
        Ok(())
    }

    /// Whether one summary leads to the next up to the end of the log: only then the cleaner finds what will follow.
    fn leads_to_end(&self, head: &Head) -> Result<bool> {
        let ends =
            |(at, p): &(u32, summary::Parsed)| at + p.head.frags.get() == head.offset && p.head.fill.get() == head.fill;
        if head.offset == 0 {
            return Ok(true);
        }
        match self.core.summaries(head.seg, None) {
            // A mount could not read it either.
            Err(Error::Io(_)) => Ok(false),
            all => Ok(all?.iter().any(ends)),
        }
    }

    pub(super) fn check_segments(&mut self) -> Result<()> {
        self.again = false;
        let segs: Vec<u32> = self.space.segs().collect();
        for (n, seg) in (0u64..).zip(segs.iter().copied()) {
            (self.progress)(n, segs.len() as u64, "segments");
            if self.space.live(seg) == 0 || self.leaving.contains(&seg) {
                continue;
            }
            let expected = self.space.sum(seg);
            if self.sum_of(Seg(seg))? == expected {
                continue;
            }
            if self.suspects.insert(seg, expected) == Some(expected) {
                self.f.note(Issue::Summary { seg });
                self.leaving.insert(seg);
            }
            self.again = true;
        }
        Ok(())
    }

    /// The sum of the prints of the live blocks and inodes of a segment, as they are there.
    fn sum_of(&mut self, seg: Seg) -> Result<u64> {
        let (geom, start) = (self.core.geom, self.core.geom.seg_start(seg).0);
        let end = self.space.end(seg.0).min(geom.seg_frags());
        let mut bytes = zeroed(geom.bytes_of(end.max(1)));
        reads::what_can_be_read(&*self.core.dev, Kind::Log, geom.byte(Frag(start)), &mut bytes, geom.frag_size());
        let (mut at, mut sum, mut fill) = (0, 0u64, None);
        while let Some(p) = summary::in_bytes(&geom, &bytes, at) {
            // Remains of an earlier filling do not count.
            if *fill.get_or_insert(p.head.fill) != p.head.fill {
                break;
            }
            for (file, block, off) in p.blocks() {
                let (frag, frags) = (start + at + off, block.frags.get());
                let from = geom.bytes_of(at + off);
                let there = bytes.get(from..from + geom.bytes_of(frags)).filter(|_| self.space.begins(frag));
                let print = there.map(|b| Print {
                    frag,
                    ino: file.ino.get(),
                    version: file.version.get(),
                    place: block.place.get(),
                    frags,
                    crc: crc(b),
                });
                sum = sum.wrapping_add(print.map_or(0, |p| p.number()));
            }
            let part = start + at..start + at + p.head.frags.get();
            for info in &p.inodes {
                let frag = info.entry.frag.get();
                if part.contains(&frag) && self.core.map_entry(Ino(info.ino.get().into()))?.frag.get() == frag {
                    let print = Print::of_inode(frag, info.ino.get(), info.entry.version.get());
                    sum = sum.wrapping_add(print.number());
                }
            }
            at += p.head.frags.get();
        }
        self.breathe();
        Ok(sum)
    }
}
