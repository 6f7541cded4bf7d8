//! The flash chips' time: dies that read and program, and the channels their data goes over.

use crate::drive::transfer_ns;
use crate::model::SsdModel;

#[derive(Clone, Copy, Debug, Default)]
struct Die {
    /// Until when programs and erases are queued.
    program_free: u64,
    read_free: u64,
}

/// Dies and channels. A read goes ahead of queued programs and waits only for the operation under way. Programs take
/// the time on their channel together with the time of their die, so that one channel's dies do not delay each other.
#[derive(Debug)]
pub(crate) struct Flash {
    dies: Vec<Die>,
    channel_free: Vec<u64>,
    read_ns: u64,
    program_ns: u64,
    erase_ns: u64,
    channel_bytes_per_s: u64,
}

impl Flash {
    pub fn new(model: &SsdModel) -> Flash {
        let dies = (model.channels * model.dies_per_channel) as usize;
        Flash {
            dies: vec![Die::default(); dies],
            channel_free: vec![0; model.channels as usize],
            read_ns: model.read_ns,
            program_ns: model.program_ns + transfer_ns(model.page_bytes, model.channel_bytes_per_s),
            erase_ns: model.erase_ns,
            channel_bytes_per_s: model.channel_bytes_per_s,
        }
    }

    pub fn dies(&self) -> usize {
        self.dies.len()
    }

    /// Reads `bytes` of one page; when they are in the controller.
    pub fn read(&mut self, die: usize, at: u64, bytes: u64) -> u64 {
        let channel = die % self.channel_free.len();
        let Die { program_free, read_free } = &mut self.dies[die];
        let under_way = program_free.saturating_sub(at) % self.program_ns.max(1);
        let cell = (at + under_way).max(*read_free) + self.read_ns;
        *read_free = cell;
        if *program_free > at {
            *program_free += self.read_ns;
        }
        let end = cell.max(self.channel_free[channel]) + transfer_ns(bytes, self.channel_bytes_per_s);
        self.channel_free[channel] = end;
        end
    }

    /// Queues the program of a page; when it will be complete.
    pub fn program(&mut self, die: usize, at: u64) -> u64 {
        self.occupy(die, at, self.program_ns)
    }

    /// Queues an erase.
    pub fn erase(&mut self, die: usize, at: u64) -> u64 {
        self.occupy(die, at, self.erase_ns)
    }

    /// Queues the read of a page that garbage collection moves.
    pub fn read_to_move(&mut self, die: usize, at: u64) -> u64 {
        self.occupy(die, at, self.read_ns)
    }

    fn occupy(&mut self, die: usize, at: u64, ns: u64) -> u64 {
        let Die { program_free, read_free } = &mut self.dies[die];
        *program_free = (*program_free).max(at).max(*read_free) + ns;
        *program_free
    }

    /// When all that is queued will be complete.
    pub fn idle_at(&self) -> u64 {
        self.dies.iter().map(|d| d.program_free.max(d.read_free)).max().unwrap_or(0)
    }
}
