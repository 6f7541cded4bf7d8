//! Witnesses: checksums in a record, with which small data become durable by the record's own flush (YFS-C2).

use crate::delayed::DataWrites;
use crate::format::*;
use crate::log::Witness;
use crate::volume::{Core, Io, Unflushed};
use arbor_base::cache::Name;
use arbor_base::layout::crc;
use arbor_base::vfs::Ino;

impl Io {
    /// Notes data that is about to be written.
    pub(crate) fn note_data(&mut self, out: &DataWrites) {
        let bytes: usize = out.pieces.iter().map(|p| p.2.len()).sum();
        let mut all = match std::mem::take(&mut self.unflushed) {
            Unflushed::Nothing => Vec::new(),
            Unflushed::Little(all) => all,
            Unflushed::Much => {
                self.unflushed = Unflushed::Much;
                return;
            }
        };
        // Data written a second time are witnessed with their latest bytes.
        all.retain(|w| !out.pieces.iter().any(|(at, _, buf)| w.lies_in(*at, buf.len() as u64)));
        let before: usize = all.iter().map(|w| w.len as usize).sum();
        let in_part = all.iter().any(|w| out.pieces.iter().any(|(at, _, buf)| w.meets(*at, buf.len() as u64)));
        if in_part || all.len() + out.pieces.len() > WITNESSES || before + bytes > WITNESSED_BYTES {
            self.unflushed = Unflushed::Much;
            return;
        }
        for (&(ino, page), (offset, _, buf)) in out.owners.iter().zip(&out.pieces) {
            all.push(Witness { ino, page, offset: *offset, len: buf.len() as u32, crc: crc(buf.bytes()) });
        }
        self.unflushed = Unflushed::Little(all);
    }
}

impl Core {
    /// Makes the only record that waits to be written bear witness to the data written before it, if they are few;
    /// returns to which. Nothing else may share its flush.
    pub(super) fn bear_witness(&mut self, unflushed: &Unflushed) -> Vec<Witness> {
        let Unflushed::Little(all) = unflushed else { return Vec::new() };
        if !self.log.has_one_sealed() {
            return Vec::new();
        }
        if self.sb.incompat.get() & (INCOMPAT_WITNESS | INCOMPAT_EXTERNAL_LOG) != INCOMPAT_WITNESS {
            return Vec::new();
        }
        // Extents that this record frees may be discarded or reallocated before there is a next one.
        let (fs, durable) = (self.geom.frag_size(), self.log.durable());
        let freed = self.marked.beyond(durable);
        let freed: Vec<(u64, u64)> = freed.map(|e| (e.start.0 * fs, u64::from(e.len) * fs)).collect();
        let mut all = all.clone();
        all.retain(|w| !freed.iter().any(|&(at, len)| w.lies_in(at, len)));
        if all.iter().any(|w| freed.iter().any(|&(at, len)| w.meets(at, len))) {
            return Vec::new();
        }
        self.log.bear_witness(&all);
        all
    }

    /// Whether the last durable record bears witness to data of a file that have changed since.
    pub fn is_witnessed(&self, ino: Ino) -> bool {
        let changed = |w: &Witness| self.cache.is_dirty(Name::data(ino, w.page));
        self.log.witnesses().iter().any(|w| w.ino == ino && changed(w))
    }

    /// Whether none of the extents has data that the last durable record bears witness to.
    pub fn bears_no_witness_to(&self, extents: &[Extent]) -> bool {
        let fs = self.geom.frag_size();
        let meets = |w: &Witness| extents.iter().any(|e| w.meets(e.start.0 * fs, u64::from(e.len) * fs));
        !self.log.witnesses().iter().any(meets)
    }
}
