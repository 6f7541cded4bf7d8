//! The numbered invariants, executed after calls (`kit::invariants`): a function each. What is not executed, and why:
//!
//! | number | why it cannot be seen in core |
//! |---|---|
//! | PLAIN-C2 | when a record is written over nothing is left of it in core; the crash explorer |
//! | PLAIN-A1 | owners are known by going through all inodes; the checker |
//! | PLAIN-F1 | which pages are the last of their files their inodes say, on disk; `conformance::data` |
//! | PLAIN-D1 | where an entry was before nobody knows; `conformance::names` |

use crate::format::Pool;
use crate::volume::Core;
use arbor_kit::invariants::{Holds, Invariants, ensure};

impl Invariants for Core {
    fn extent(&self) -> usize {
        1 + self.log.changed.len()
    }

    fn check_invariants(&self) -> Holds {
        self.check_c1()?;
        self.check_c3()?;
        self.check_a2("inodes", &self.sb.inodes)?;
        self.check_a2("blocks", &self.sb.space)
    }
}

impl Core {
    /// PLAIN-C1: what is dirty is going to be in a record.
    fn check_c1(&self) -> Holds {
        let logged = self.log.changed.values().all(|(name, _)| self.cache.is_dirty(*name));
        let (dirty, changed) = (self.cache.dirty_names().len(), self.log.changed.len());
        ensure(logged && dirty == changed, "PLAIN-C1", || format!("{dirty} buffers are dirty, {changed} to be logged"))
    }

    /// PLAIN-C3: nothing of a call is left for a later record.
    fn check_c3(&self) -> Holds {
        let left = self.log.changed.len() + usize::from(self.log.super_changed);
        ensure(left == 0 || self.log.is_repair, "PLAIN-C3", || format!("{left} blocks were changed and not logged"))
    }

    /// PLAIN-A2, as far as the numbers of a pool tell.
    fn check_a2(&self, what: &str, pool: &Pool) -> Holds {
        let [count, free, end] = [pool.count, pool.free, pool.end].map(|n| n.get());
        let possible = end <= count && free <= count && free >= count - end;
        ensure(possible, "PLAIN-A2", || format!("of {count} {what} {free} are free, {end} were ever in use"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount;
    use arbor_base::cache::Name;
    use arbor_base::device::{Kind, MemDevice};
    use arbor_base::vfs::{Devices, FormatOptions, ManualClock, MountOptions, Time};
    use std::sync::Arc;

    type Break<'a> = &'a dyn Fn(&mut Core);

    /// Each number with what breaks it.
    #[test]
    fn each_number_can_be_broken() {
        let all: [(&str, Break<'_>); 4] = [
            ("PLAIN-C1", &|core| assert!(core.cache.dirtied(Name::Block(core.geom.table().into())).is_some())),
            ("PLAIN-C1", &|core| assert!(core.log.changed.insert(1, (Name::Block(1), Kind::Bitmap)).is_none())),
            ("PLAIN-C3", &|core| core.log.super_changed = true),
            ("PLAIN-A2", &|core| core.sb.space.free = u32::MAX.into()),
        ];
        for (number, damage) in all {
            let device = MemDevice::new(16 << 20);
            crate::mkfs::format(Devices::single(device.clone()), &FormatOptions::default()).expect("format");
            let clock = Arc::new(ManualClock::new(Time { secs: 1_000_000, nanos: 0 }));
            let volume = mount::mount(Devices::single(device), &MountOptions::default(), clock).expect("mount");
            let core = &mut *volume.lock();
            core.block(core.geom.table(), Kind::Inode).expect("the first inodes");
            core.log.super_changed = false;
            core.write_changes().expect("what the mount has changed");
            assert_eq!(core.check_invariants(), Ok(()));
            damage(core);
            assert_eq!(core.check_invariants().map_err(|b| b.number), Err(number));
        }
    }
}
