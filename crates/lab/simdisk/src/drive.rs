//! What the simulation asks of a drive, whatever turns or does not turn in it.

use crate::disk::Disk;
use crate::model::{Kind, Model};
use crate::ssd::Ssd;
use crate::stats::SsdStats;
use crate::trace::TraceOp;

/// Bytes of a sector, the unit of addresses inside the models.
pub(crate) const SECTOR: u64 = arbor_base::device::SECTOR as u64;

/// A request as the drive sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    pub id: u64,
    pub op: TraceOp,
    pub offset: u64,
    pub len: u64,
}

/// Where the time of one command went, in nanoseconds. The rest of its service time it waited in the drive.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Split {
    pub overhead: u64,
    pub seek: u64,
    pub rotation: u64,
    pub transfer: u64,
    pub hit: bool,
}

/// A finished command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub id: u64,
    pub at: u64,
    pub split: Split,
}

/// What a drive did on its own account: write-back of its cache.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Destaged {
    pub bytes: u64,
    pub ns: u64,
}

/// Completions that are settled but lie in the future, few at a time.
#[derive(Debug, Default)]
pub(crate) struct Finishing(Vec<Done>);

impl Finishing {
    pub fn push(&mut self, done: Done) {
        self.0.push(done);
    }

    pub fn next(&self) -> Option<u64> {
        self.0.iter().map(|d| d.at).min()
    }

    /// Moves those that are due to `done`, the earliest first and then by number.
    pub fn take_due(&mut self, now: u64, done: &mut Vec<Done>) {
        let from = done.len();
        let mut i = 0;
        while i < self.0.len() {
            if self.0[i].at <= now {
                done.push(self.0.swap_remove(i));
            } else {
                i += 1;
            }
        }
        done[from..].sort_unstable_by_key(|d| (d.at, d.id));
    }
}

/// Nanoseconds to move `bytes` at `bytes_per_s`.
pub(crate) fn transfer_ns(bytes: u64, bytes_per_s: u64) -> u64 {
    (u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s)) as u64
}

/// Either kind of drive.
pub(crate) enum Drive {
    Disk(Box<Disk>),
    Ssd(Box<Ssd>),
}

impl Drive {
    pub fn new(model: &Model) -> Drive {
        match &model.kind {
            Kind::Disk(disk) => Drive::Disk(Box::new(Disk::new(disk.clone()))),
            Kind::Ssd(ssd) => Drive::Ssd(Box::new(Ssd::new(ssd.clone(), model.capacity_bytes(), model.used.as_ref()))),
        }
    }

    /// How many commands it takes at once.
    pub fn tags(&self) -> usize {
        match self {
            Drive::Disk(d) => d.tags(),
            Drive::Ssd(d) => d.tags(),
        }
    }

    /// Whether completed writes may still be volatile.
    pub fn caches_writes(&self) -> bool {
        match self {
            Drive::Disk(d) => d.caches_writes(),
            Drive::Ssd(d) => d.caches_writes(),
        }
    }

    /// Unit of TRIM in bytes, 0 without TRIM.
    pub fn trim_unit(&self) -> u32 {
        match self {
            Drive::Disk(_) => 0,
            Drive::Ssd(d) => d.trim_unit(),
        }
    }

    /// Hands a command over.
    pub fn start(&mut self, now: u64, command: Command) {
        match self {
            Drive::Disk(d) => d.start(now, command),
            Drive::Ssd(d) => d.start(now, command),
        }
    }

    /// When something happens next, if anything will without further commands.
    pub fn next_event(&self) -> Option<u64> {
        match self {
            Drive::Disk(d) => d.next_event(),
            Drive::Ssd(d) => d.next_event(),
        }
    }

    /// Lets everything happen that is due at `now`, and collects finished commands.
    pub fn advance(&mut self, now: u64, done: &mut Vec<Done>) {
        match self {
            Drive::Disk(d) => d.advance(now, done),
            Drive::Ssd(d) => d.advance(now, done),
        }
    }

    /// When work that nobody waits for will have ended.
    pub fn idle_at(&self) -> u64 {
        match self {
            Drive::Disk(_) => 0,
            Drive::Ssd(d) => d.idle_at(),
        }
    }

    /// What was written back since the last call.
    pub fn take_destaged(&mut self) -> Destaged {
        match self {
            Drive::Disk(d) => d.take_destaged(),
            Drive::Ssd(_) => Destaged::default(),
        }
    }

    /// Counters of an SSD.
    pub fn ssd_stats(&self) -> Option<SsdStats> {
        match self {
            Drive::Disk(_) => None,
            Drive::Ssd(d) => Some(d.stats()),
        }
    }
}
