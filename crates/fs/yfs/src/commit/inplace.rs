//! Metadata on its way to its place: which buffers may be written there, and what becomes of them afterwards.

use crate::buffers::Piece;
use crate::format::*;
use crate::log::Rec;
use crate::planted::{Flaw, planted};
use crate::volume::Core;
use arbor_base::cache::{Name, Write};
use arbor_base::device::Buf;

pub(super) const CHECKPOINT_BATCH: usize = 2048;

impl Core {
    pub(super) fn collect_metadata(&mut self, all: bool) -> (Vec<Piece>, Vec<(u64, Rec, Write)>) {
        // YFS-C1 also holds for buffers whose last change no record has yet.
        self.close_tx();
        let until = if all { Rec::MAX } else { self.log.middle() };
        let addrs = self.dirty.ready(self.log.durable(), until, CHECKPOINT_BATCH);
        let inode_size = self.geom.inode_size();
        let mut pieces = Vec::with_capacity(addrs.len());
        let mut writes = Vec::with_capacity(addrs.len());
        self.look_at_going(&addrs);
        for addr in addrs {
            let name = Name::Block(addr);
            let Some(d) = self.dirty.begin_write(addr) else { continue };
            let (lo, hi) = if d.seal == Seal::Inodes {
                (d.lo / inode_size * inode_size, d.hi.next_multiple_of(inode_size))
            } else {
                (0, usize::MAX)
            };
            let seal = d.seal;
            let damaged = &self.damaged;
            let Some(dirty) = self.cache.dirtied(name) else { continue };
            self.cache.modify(dirty, |b| {
                let hi = hi.min(b.len());
                let kept = if seal == Seal::Inodes { damaged.crcs(addr, b, inode_size) } else { Vec::new() };
                seal.seal(&mut b[lo..hi], inode_size);
                for (at, crc) in kept {
                    b[at..at + 4].copy_from_slice(&crc);
                }
            });
            let Some(write) = self.cache.begin_write(name) else { continue };
            let hi = hi.min(write.bytes().len());
            let parts = if seal == Seal::Inodes {
                damaged.known(addr, (lo, hi), inode_size)
            } else {
                std::iter::once(lo..hi).collect()
            };
            for part in parts {
                let buf = Buf::slice(write.bytes().clone(), part.start, part.len()).by_itself(addr);
                pieces.push((addr * SECTOR + part.start as u64, d.kind, buf));
            }
            writes.push((addr, d.first, write));
        }
        self.meta_seq += 1;
        (pieces, writes)
    }

    /// Forgets what was read ahead of the places that are about to be written; [`Core::written_to`] does so again after
    /// the write.
    pub fn writes(&mut self, pieces: &[Piece]) -> Vec<u64> {
        let windows = self.windows.numbers(pieces.iter().map(|p| (p.0, p.2.len() as u64)));
        self.written_to(&windows);
        windows
    }

    pub fn written_to(&mut self, windows: &[u64]) {
        if !planted(Flaw::StaleWindows) {
            self.windows.forget(windows);
        }
    }

    /// Ends the writes of buffers. Those that were written are held (YFS-C6).
    pub(super) fn end_metadata(&mut self, writes: Vec<(u64, Rec, Write)>, ok: bool) {
        // A buffer that was changed meanwhile does not become clean.
        self.close_tx();
        self.meta_seq += 1;
        for (addr, first, write) in writes {
            let name = Name::Block(addr);
            if ok && !planted(Flaw::EvictedUnflushed) {
                self.cache.hold(name);
            }
            self.cache.end_write(write, ok);
            if ok && self.dirty.end_write(addr, first) {
                self.cache.set_clean(name);
            }
        }
    }

    /// The buffers that were written in place are durable there.
    pub(super) fn release_metadata(&mut self, written: &[u64]) {
        if !planted(Flaw::EvictedUnflushed) {
            written.iter().for_each(|addr| self.cache.release(Name::Block(*addr)));
        }
    }

    pub(super) fn forget_buffer(&mut self, addr: u64) {
        self.cache.remove(Name::Block(addr));
        self.dirty.forget(addr);
    }
}
