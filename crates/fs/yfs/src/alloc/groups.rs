//! AGs: their headers and bitmaps, in core and in the buffers that are logged.

use crate::format::*;
use crate::space::{Map, log_run};
use crate::volume::Core;
use arbor_base::layout::Corrupt;
use arbor_base::vfs::{Error, Result};
use arbor_kit::buddy::{Summary, bitmap};
use std::collections::BTreeMap;
use std::mem::offset_of;
use zerocopy::{FromBytes, IntoBytes};

impl Core {
    /// Takes the headers of an AG in use from the cache, at the mount.
    pub fn load_ag(&mut self, ag: u32) -> Result<()> {
        let (group, inodes) = (self.geom.group_block(ag), self.geom.inode_block(ag));
        let bytes = self.meta_block(self.geom.frag_of(group), BlockType::Group, ag.into())?;
        let body = GroupBody::read_from_prefix(bytes.get(HEADER..).unwrap_or(&[])).map(|b| b.0).unwrap_or_default();
        if body.free.get() > self.geom.ag_len(ag) || body.frags.get() != self.geom.ag_len(ag) {
            return Err(Corrupt::new("AG group block", "frags", group.byte(), body.frags, self.geom.ag_len(ag)).into());
        }
        let bytes = self.meta_block(self.geom.frag_of(inodes), BlockType::Inodes, ag.into())?;
        let ib = InodesBody::read_from_prefix(bytes.get(HEADER..).unwrap_or(&[])).map(|b| b.0).unwrap_or_default();
        if body.dirs.get() > self.geom.ag_len(ag) {
            return Err(Corrupt::new("AG group block", "dirs", group.byte(), body.dirs, "no more than fit").into());
        }
        let most = self.geom.ag_len(ag) / self.geom.chunk_frags() * CHUNK_INODES as u32;
        for (field, found, most) in [("total", ib.total, most), ("free", ib.free, ib.total.get())] {
            if found.get() > most {
                return Err(Corrupt::new("AG inode block", field, inodes.byte(), found, most).into());
            }
        }
        self.space.load(ag, &body, &ib);
        Ok(())
    }

    /// Initialises the next AG: its structures and its first inode chunk, in the open transaction.
    pub fn init_ag(&mut self) -> Result<u32> {
        let ag = self.sb.ag_used.get();
        let geom = self.geom;
        let bs = geom.block_size();
        self.tx.touch();
        self.sb.ag_used = (ag + 1).into();
        self.log_copy(geom.daddr(geom.ag_start(ag)))?;
        if ag > 0 {
            self.log_super()?;
        }
        self.init_block(geom.group_block(ag), BlockType::Group, ag.into(), bs)?;
        self.init_block(geom.inode_block(ag), BlockType::Inodes, ag.into(), bs)?;
        let per = geom.bits_per_bitmap();
        for n in 0..geom.bitmap_blocks {
            let block = geom.bitmap_block(ag, n);
            self.init_block(block, BlockType::Bitmap, ag.into(), bs)?;
            let end = geom.ag_len(ag).saturating_sub(n * per).min(per);
            let mut past = vec![0; bs - HEADER];
            bitmap::set_used(&mut past, end, per - end);
            self.write(block, Seal::Block, HEADER, &past)?;
        }
        self.space.set_free(ag, geom.ag_len(ag));
        self.set_bits(ag, 0, geom.ag_meta_frags(), true)?;
        self.space[ag].used = true;
        self.set_bits(ag, geom.first_chunk(), geom.chunk_frags(), true)?;
        if let Some((start, len)) = log_run(&geom, &self.sb, ag) {
            self.set_bits(ag, start, len, true)?;
        }
        self.space[ag].last = 0;
        self.space[ag].chunks = Some(BTreeMap::new());
        self.add_chunk(ag, geom.first_chunk())?;
        Ok(ag)
    }

    /// Logs a copy of the superblock.
    pub fn log_copy(&mut self, addr: Daddr) -> Result<()> {
        self.init(addr, Seal::Super, SECTOR as usize);
        let copy = SuperBlock { clean: 0.into(), ..self.sb };
        self.write(addr, Seal::Super, 0, copy.as_bytes())
    }

    /// Logs the changed fields of the superblock.
    pub fn log_super(&mut self) -> Result<()> {
        let sb = self.sb;
        for (at, field) in [
            (offset_of!(SuperBlock, ag_used), sb.ag_used.as_bytes()),
            (offset_of!(SuperBlock, ag_count), sb.ag_count.as_bytes()),
            (offset_of!(SuperBlock, frags), sb.frags.as_bytes()),
            (offset_of!(SuperBlock, label), &sb.label),
        ] {
            self.write(Daddr(0), Seal::Super, at, field)?;
        }
        Ok(())
    }

    pub(super) fn log_group(&mut self, ag: u32) -> Result<()> {
        let a = &self.space[ag];
        let body = GroupBody {
            free: a.free.into(),
            dirs: a.dirs.into(),
            frags: self.geom.ag_len(ag).into(),
            reserved: 0.into(),
        };
        let block = self.geom.group_block(ag);
        self.meta_block(self.geom.frag_of(block), BlockType::Group, u64::from(ag))?;
        self.write(block, Seal::Block, HEADER, body.as_bytes())
    }

    pub(super) fn log_inodes_body(&mut self, ag: u32) -> Result<()> {
        let a = &self.space[ag];
        let body =
            InodesBody { total: a.inodes().into(), free: a.inodes_counted().into(), recovery: a.recovery.into() };
        let block = self.geom.inode_block(ag);
        self.meta_block(self.geom.frag_of(block), BlockType::Inodes, u64::from(ag))?;
        self.write(block, Seal::Block, HEADER, body.as_bytes())
    }

    /// Changes the head of an AG's inode recovery list.
    pub fn set_recovery(&mut self, ag: u32, head: u64) -> Result<()> {
        self.space[ag].recovery = head;
        self.log_inodes_body(ag)
    }

    pub(super) fn map(&mut self, ag: u32) -> Result<&mut Map> {
        self.load_map(ag)?;
        self.space.map(ag).ok_or_else(|| Error::refused("bug: no map"))
    }

    /// Whether something can be given away in an AG, whose bitmap is in core then. One that is damaged, or cannot be read, costs
    /// no more than what is free there.
    pub(crate) fn is_usable(&mut self, ag: u32) -> Result<bool> {
        let loaded = self.load_map(ag);
        self.is_open(ag, loaded)
    }

    /// Whether something can be given away in an AG of which something was read. Damage shuts it; what cannot be read now may be
    /// read later.
    pub(crate) fn is_open<R>(&mut self, ag: u32, read: Result<R>) -> Result<bool> {
        match read {
            Ok(_) => Ok(!self.space[ag].is_shut()),
            Err(e @ Error::Corrupt(_)) => {
                self.shut(ag, &e);
                Ok(false)
            }
            Err(Error::Io(_)) => {
                self.space.unread = true;
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }

    /// Counts an AG as full from now on, and lets fsck look.
    pub(crate) fn shut(&mut self, ag: u32, why: &Error) {
        self.health.pass_by(why);
        self.tx.touch();
        self.space.shut(ag);
    }

    fn load_map(&mut self, ag: u32) -> Result<()> {
        if self.space.map(ag).is_some() {
            return Ok(());
        }
        let len = self.geom.ag_len(ag);
        let mut bits = Vec::with_capacity(len.div_ceil(8) as usize + self.geom.block_size());
        for n in 0..self.geom.bitmap_blocks {
            let block = self.geom.frag_of(self.geom.bitmap_block(ag, n));
            let bytes = self.meta_block(block, BlockType::Bitmap, u64::from(ag))?;
            bits.extend_from_slice(bytes.get(HEADER..).unwrap_or(&[]));
        }
        bits.truncate(len.div_ceil(32) as usize * 4);
        let summary = Summary::build(&bits, len);
        let free = bitmap::count_free(&bits, len);
        let known = self.space[ag].free;
        let own = self.geom.ag_meta_frags();
        if self.space[ag].used && !bitmap::all_used(&bits, 0, own.min(len)) {
            let at = self.geom.bitmap_block(ag, 0).byte();
            return Err(Corrupt::new("AG bitmap block", "bits", at, "free", "the AG's own structures in use").into());
        }
        if free != known {
            let at = self.geom.group_block(ag).byte();
            return Err(Corrupt::new("AG group block", "free", at, known, free).into());
        }
        self.space.keep_map(ag, Map { bits, summary });
        Ok(())
    }

    /// Sets or clears bits of an AG, in core and in the bitmap blocks, and its free count.
    pub(super) fn set_bits(&mut self, ag: u32, start: u32, len: u32, used: bool) -> Result<()> {
        let map = self.map(ag)?;
        let consistent =
            if used { bitmap::all_free(&map.bits, start, len) } else { bitmap::all_used(&map.bits, start, len) };
        if !consistent {
            let at = (self.geom.ag_start(ag).0 + u64::from(start)) * self.geom.frag_size();
            let (found, expected) = if used { ("used bits", "free bits") } else { ("free bits", "used bits") };
            return Err(Corrupt::new("AG bitmap block", "bits", at, found, expected).into());
        }
        self.tx.touch();
        let map = self.map(ag)?;
        if used {
            bitmap::set_used(&mut map.bits, start, len);
            map.summary.used(&map.bits, start, len);
        } else {
            bitmap::set_free(&mut map.bits, start, len);
            map.summary.freed(&map.bits, start, len);
        }
        self.log_bits(ag, start, len)?;
        if used {
            // No more than these, if the run began and ended inside of blocks.
            let blocks = len.div_ceil(self.geom.block_frags()) + 1;
            self.space.taken(ag, start, len, blocks);
        } else {
            self.space.freed(ag, start, len);
        }
        self.log_group(ag)
    }

    fn log_bits(&mut self, ag: u32, start: u32, len: u32) -> Result<()> {
        let per = self.geom.bits_per_bitmap();
        for n in start / per..=(start + len - 1) / per {
            let (lo, hi) = (start.max(n * per), (start + len).min((n + 1) * per));
            let (a, b) = (lo as usize / 8, hi.div_ceil(8) as usize);
            let bytes: Vec<u8> = self.map(ag)?.bits.get(a..b).unwrap_or(&[]).to_vec();
            let block = self.geom.bitmap_block(ag, n);
            self.meta_block(self.geom.frag_of(block), BlockType::Bitmap, u64::from(ag))?;
            self.write(block, Seal::Block, HEADER + a - (n * per) as usize / 8, &bytes)?;
        }
        Ok(())
    }
}
