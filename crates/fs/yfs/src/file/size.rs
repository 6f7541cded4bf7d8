//! Changing the size of a file, in steps that each fit a transaction.

use crate::format::*;
use crate::inode::Inode;
use crate::validate::MAX_SIZE;
use crate::volume::Core;
use arbor_base::cache::Name;
use arbor_base::vfs::{Errno, Ino, Result, Time};

impl Core {
    /// Takes a file one step nearer to the size `to`; returns whether it has it.
    pub fn step_size(&mut self, ino: Ino, to: u64, now: Time) -> Result<bool> {
        let mut i = self.iget(ino)?;
        if !i.is_file() {
            return Err(if i.is_dir() { Errno::EISDIR } else { Errno::EINVAL }.into());
        }
        if to > self.size_of(&i) {
            return self.extend(ino, to, now).map(|()| true);
        }
        let done = self.shrink_to(&mut i, to, now)?;
        self.commit(now);
        Ok(done)
    }

    /// Does one step of a truncation; returns `false` if there is more to do.
    fn shrink_to(&mut self, i: &mut Inode, to: u64, now: Time) -> Result<bool> {
        self.begin()?;
        let on_disk = i.d.size.get();
        i.d.set_mtime(now);
        i.d.set_ctime(now);
        let reserved = self.reserved_from(i, to)?;
        let reached = self.truncate_step(i, to)?;
        if reached == to {
            self.delayed.unreserve(i.ino, reserved);
        }
        // Pages are dropped only after their blocks are freed: other calls may look between the steps, and a block
        // whose data is being written must not be read.
        self.cut_pages(i.ino, reached);
        let dirty = self.cache.dirty_pages(i.ino, 0).next().is_some();
        if dirty {
            self.delay(i, now);
        } else if reached <= on_disk {
            self.delayed.remove(i.ino);
        }
        if let Some(d) = self.delayed.get_mut(i.ino) {
            (d.size, d.mtime, d.ctime) = (d.size.min(reached), now, now);
        }
        let (done, keep) = (reached == to, on_disk.min(to));
        if done && i.d.size.get() != keep {
            i.d.size = keep.into();
            self.iput(i)?;
        }
        Ok(done)
    }
}

impl Core {
    /// Frees the blocks of a file from its end down to `to` bytes and sets its size, as far as one transaction goes.
    /// Returns the size reached, in bytes.
    pub fn truncate_step(&mut self, i: &mut Inode, to: u64) -> Result<u64> {
        let fs = self.geom.frag_size();
        if i.format() == Format::Inline {
            let old = (i.d.size.get() as usize).min(self.area_len(i));
            if i.is_file() && (to as usize) < old {
                self.area_write(i, to as usize, &vec![0; old - to as usize])?;
            }
        } else {
            let lo = to.div_ceil(fs);
            let stopped = self.unmap(i, lo, u64::MAX)?;
            if stopped > lo {
                let reached = stopped.saturating_mul(fs);
                i.d.size = i.d.size.get().min(reached).into();
                self.iput(i)?;
                return Ok(reached);
            }
            if to == 0 {
                self.area_clear(i)?;
                i.d.format = Format::Inline as u8;
            }
        }
        i.d.size = to.into();
        self.iput(i)?;
        Ok(to)
    }

    /// Forgets pages past the new end of a file; the last one keeps what is before it.
    pub fn cut_pages(&mut self, ino: Ino, to: u64) {
        let ps = self.page_size();
        self.cache.drop_pages(ino, to.div_ceil(ps));
        let name = Name::data(ino, to / ps);
        let keep = (to % ps) as usize;
        if keep > 0 && self.cache.peek(name).is_some_and(|p| p.len() > keep) {
            let dirty = self.cache.is_dirty(name);
            self.modify(name, |v| v.truncate(keep));
            if !dirty {
                self.cache.remove(name);
            }
        }
        self.versions.change(ino);
    }

    /// Grows a file by a hole; the page at its old end is written back with zeros after it.
    pub fn extend(&mut self, ino: Ino, to: u64, now: Time) -> Result<()> {
        if to > MAX_SIZE {
            return Err(Errno::EFBIG.into());
        }
        let i = self.iget(ino)?;
        let (size, ps) = (self.size_of(&i), self.page_size());
        if size % ps != 0 && i.format() != Format::Inline {
            self.want_page(&i, size / ps)?;
            self.reserve(&i, (size / ps, size / ps), (size, to), 0, now)?;
            if self.cache.contains(Name::data(ino, size / ps)) {
                self.page_write(ino, size, &[]);
            }
        } else if i.format() == Format::Inline {
            if to > self.area_len(&i) as u64 || !self.ways.inline {
                self.reserve(&i, (0, 0), (size, to), 0, now)?;
            }
            self.inline_to_page(&i)?;
        }
        self.touch_delayed(&i, to, now);
        Ok(())
    }
}
