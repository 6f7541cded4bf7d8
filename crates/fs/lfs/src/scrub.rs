//! Scrubbing: reads live blocks from the device, segment by segment, and verifies their checksums.
//!
//! Damage is found while there may still be another copy of the file. A segment's summaries name the files of its
//! blocks; the files' maps tell which of them are live, and their checksums. Blocks changed in core are still live on
//! the device until they are written.

use crate::format::*;
use crate::inode::find_inode;
use crate::superblock;
use crate::volume::Core;
use arbor_base::cache::FileBlock;
use arbor_base::device::Kind;
use arbor_base::layout::crc;
use arbor_base::vfs::{Error, Ino, Result, Scrubbed};
use arbor_kit::blockmap::BlockMap as _;
use std::collections::BTreeSet;

/// A segment that is scrubbed.
struct Segment {
    seg: Seg,
    start: Frag,
    bytes: Vec<u8>,
    /// Live bytes whose file is known.
    found: u64,
    /// Its inodes that were checked.
    inodes: BTreeSet<u64>,
    /// Files whose maps are damaged.
    lost: BTreeSet<u64>,
    verified: u64,
    damage: Vec<String>,
}

/// The name of a block of a file for people.
fn name(ino: Ino, place: FileBlock) -> String {
    let whose = if ino == IFILE { "the ifile".into() } else { format!("inode {ino}") };
    match place {
        FileBlock::Data(lbn) => format!("{whose}, block {lbn}"),
        FileBlock::Map { level, n } => format!("{whose}, indirect block {n} of level {level}"),
        FileBlock::Xattr(_) => format!("{whose}, extended attributes"),
    }
}

impl Core {
    /// Verifies the first segment with live bytes from number `at` on; at 0 also the superblocks and the checkpoints.
    pub fn scrub_some(&mut self, at: u64) -> Result<Scrubbed> {
        let mut done = Scrubbed::default();
        if at == 0 {
            self.scrub_heads(&mut done)?;
        }
        let count = self.segs.count();
        let from = u32::try_from(at).unwrap_or(count);
        if let Some(seg) = self.segs.first_live(from) {
            let s = self.scrub_segment(Seg(seg))?;
            done.verified_bytes += s.verified;
            done.damage.extend(s.damage);
            done.next = (seg + 1 < count).then_some(u64::from(seg) + 1);
        }
        if !done.damage.is_empty() {
            self.calls.health.note_damage();
        }
        Ok(done)
    }

    fn scrub_heads(&self, done: &mut Scrubbed) -> Result<()> {
        let (dev, geom) = (&*self.dev, &self.geom);
        for (what, at) in [("superblock", 0), ("superblock copy", geom.copy_at())] {
            match superblock::read(dev, at) {
                Ok(Some(_)) => done.verified_bytes += SECTOR as u64,
                Ok(None) => done.damage.push(format!("{what} at byte {at} of the device: no magic")),
                Err(e) => done.damage.push(format!("{what} at byte {at} of the device: {e}")),
            }
        }
        let sound = superblock::checkpoints(dev, geom)?;
        for (place, at) in geom.checkpoints().into_iter().enumerate() {
            match sound.iter().any(|(n, _)| *n == place) {
                true => done.verified_bytes += SECTOR as u64,
                false => done.damage.push(format!("checkpoint {place} at byte {at} of the device: not sound")),
            }
        }
        Ok(())
    }

    fn scrub_segment(&mut self, seg: Seg) -> Result<Segment> {
        let start = self.geom.seg_start(seg);
        let bytes = match self.read_run(start, self.geom.seg_frags(), Kind::Log) {
            Ok(bytes) => bytes,
            Err(_) => self.read_what_can_be(start),
        };
        let (inodes, lost, damage) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        let mut s = Segment { seg, start, bytes, found: 0, inodes, lost, verified: 0, damage };
        for (at, parsed) in self.summaries(seg, Some(&s.bytes))? {
            for (file, block, here) in parsed.blocks() {
                let here = Frag(start.0.saturating_add(at).saturating_add(here));
                self.scrub_block(&mut s, &file, &block, here)?;
            }
            for info in &parsed.inodes {
                self.scrub_inode(&mut s, Ino(info.ino.get().into()), info.entry)?;
            }
        }
        let ifile = Frag(self.checkpoint.ifile.get());
        if self.geom.seg_of(ifile) == Some(seg) {
            self.verify_inode(&mut s, IFILE, ifile, None);
        }
        let died = u64::from(self.dead_bytes.get(&seg.0).copied().unwrap_or(0));
        let missing = u64::from(self.segs.get(seg.0).live).saturating_sub(s.found + died);
        if missing > 0 {
            let at = self.geom.byte(start);
            s.damage.push(format!(
                "segment {} at byte {at} of the device: summary damaged; whose {missing} live bytes are is not known",
                seg.0
            ));
        }
        Ok(s)
    }

    /// Reads a segment of which not all can be read: the rest is zeros, and so fails its checksum.
    fn read_what_can_be(&mut self, start: Frag) -> Vec<u8> {
        let (bf, size) = (self.geom.block_frags(), self.geom.block_size());
        let mut bytes = vec![0; self.geom.bytes_of(self.geom.seg_frags())];
        for (n, place) in (0u32..).zip(bytes.chunks_exact_mut(size)) {
            if let Ok(block) = self.read_run(Frag(start.0 + n * bf), bf, Kind::Log) {
                place.copy_from_slice(&block);
            }
        }
        bytes
    }

    /// The pointer to a block of a file, if it points to this fragment.
    fn pointer_to(&mut self, ino: Ino, version: u32, place: FileBlock, here: Frag) -> Result<Option<Pointer>> {
        if ino != IFILE {
            let entry = self.map_entry(ino)?;
            if entry.frag.get() == 0 || entry.version.get() != version {
                return Ok(None);
            }
        }
        let i = self.inode(ino)?;
        Ok(Some(self.pointer(&i, place)?).filter(|p| p.frag.get() == here.0))
    }

    fn scrub_block(&mut self, s: &mut Segment, file: &FileInfo, block: &BlockInfo, here: Frag) -> Result<()> {
        let (ino, frags) = (Ino(file.ino.get().into()), block.frags.get());
        let Some(place) = coded_block(block.place.get()) else { return Ok(()) };
        let len = self.geom.bytes_of(frags);
        let p = match self.pointer_to(ino, file.version.get(), place, here) {
            Ok(None) => return Ok(()),
            Ok(Some(p)) => p,
            Err(Error::Corrupt(why)) => {
                // It may be live, or not.
                s.found += len as u64;
                if s.lost.insert(ino.0) {
                    s.damage.push(format!("{}: cannot be verified, because of damage: {why}", name(ino, place)));
                }
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        s.found += len as u64;
        let from = self.geom.bytes_of(here.0.saturating_sub(s.start.0));
        let bytes = s.bytes.get(from..from.saturating_add(len)).unwrap_or(&[]);
        let again = match crc(bytes) == p.crc.get() {
            true => Ok(()),
            false => self.inode(ino).and_then(|i| self.read_block((&i, place), p, frags, Kind::Data)).map(drop),
        };
        match again {
            Ok(()) => s.verified += len as u64,
            Err(e) => {
                let at = self.geom.byte(here);
                s.damage.push(format!("{}, {len} bytes at byte {at} of the device: {e}", name(ino, place)));
            }
        }
        Ok(())
    }

    fn scrub_inode(&mut self, s: &mut Segment, ino: Ino, entry: MapEntry) -> Result<()> {
        let frag = Frag(entry.frag.get());
        let is_here = frag.0 != 0 && self.geom.seg_of(frag) == Some(s.seg);
        if !is_here || self.map_entry(ino)?.frag != entry.frag || !s.inodes.insert(ino.0) {
            return Ok(());
        }
        self.verify_inode(s, ino, frag, Some(entry.version.get()));
        Ok(())
    }

    fn verify_inode(&mut self, s: &mut Segment, ino: Ino, frag: Frag, version: Option<u32>) {
        s.found += INODE as u64;
        let geom = self.geom;
        let is_sound = |fragment: &[u8]| {
            find_inode(&geom, ino, fragment).is_some_and(|(_, d)| version.is_none_or(|v| d.version.get() == v))
        };
        let from = geom.bytes_of(frag.0.saturating_sub(s.start.0));
        let fragment = s.bytes.get(from..from + geom.frag_size()).unwrap_or(&[]);
        if is_sound(fragment) || self.read_run(frag, 1, Kind::Inode).is_ok_and(|bytes| is_sound(&bytes)) {
            s.verified += INODE as u64;
            return;
        }
        let whose = if ino == IFILE { "of the ifile".to_string() } else { ino.to_string() };
        s.damage.push(format!("inode {whose}, at byte {} of the device: none that is sound", geom.byte(frag)));
    }
}
