//! Changing the size of a file, in steps that each fit a transaction.

use crate::inode::Inode;
use crate::volume::Core;
use arbor_base::vfs::{Errno, Ino, Result, Time};

impl Core {
    /// One step of a truncation; `false` if more is to do.
    fn shrink_to(&mut self, i: &mut Inode, to: u64, now: Time) -> Result<bool> {
        self.begin()?;
        let on_disk = i.d.size.get();
        i.d.set_mtime(now);
        i.d.set_ctime(now);
        let reserved = self.reserved_from(i, to)?;
        let reached = self.truncate_step(i, to)?;
        if reached == to {
            self.unreserve(i.ino, reserved);
        }
        // Pages go only where the blocks are gone: others may look between the steps, and what lies
        // in a block whose data is on its way is not the file's.
        self.cut_pages(i.ino, reached);
        let dirty = self.cache.dirty_pages(i.ino.0, 0).next().is_some();
        if dirty {
            self.delay(i, now);
        } else if reached <= on_disk {
            self.undelay(i.ino);
        }
        if let Some(d) = self.delayed.get_mut(&i.ino.0) {
            (d.size, d.mtime, d.ctime) = (d.size.min(reached), now, now);
        }
        let (done, keep) = (reached == to, on_disk.min(to));
        if done && i.d.size.get() != keep {
            i.d.size = keep.into();
            self.iput(i)?;
        }
        Ok(done)
    }

    /// Takes a file a step nearer to the size `to`; says whether it has it.
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
}
