//! PostMark 1.5 (J. Katcher, "PostMark: A New File System Benchmark", Network Appliance TR3022, 1997), the
//! benchmark of the yFS paper, section 6.2.
//!
//! The names, sizes and order of files are those of the program's source, version 1.51, which draws them from
//! the same generator: with the defaults the 2,028 files made, read, appended to and removed, and the bytes of
//! each, are the ones in a trace of its system calls. Differences:
//!
//! * What is written differs: PostMark writes the beginning of one buffer of printable characters every time.
//!   The numbers drawn for that buffer are drawn here too.
//! * The directories of `locations` are made by this program.
//! * Buffered files are read and written in units of `stdio_bytes`, as the C library does; the `fstat` with
//!   which it asks for that unit is left out.

use crate::draw::MersenneTwister;
use crate::op::{Dir, Op, Program};

/// The parameters, by PostMark's names, with its defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostMark {
    /// `set size`: lower bound of file sizes, bytes.
    pub size_low_bytes: u32,
    /// `set size`: upper bound, bytes; files grow up to it by appending.
    pub size_high_bytes: u32,
    /// `set number`: files made at first.
    pub files: u32,
    /// `set transactions`.
    pub transactions: u32,
    /// `set subdirectories`; one is like none.
    pub subdirectories: u32,
    /// `set location`: directories below the root, with weights. None: the root itself.
    pub locations: Vec<(String, u32)>,
    /// `set read`: block size, bytes.
    pub read_bytes: u32,
    /// `set write`: block size, bytes.
    pub write_bytes: u32,
    /// `set bias read`: chance in ten of a read instead of an append; `None` (-1) for neither.
    pub bias_read: Option<u32>,
    /// `set bias create`: chance in ten of a creation instead of a deletion; `None` (-1) for neither.
    pub bias_create: Option<u32>,
    /// `set buffering`: by the C library.
    pub buffering: bool,
    /// `set seed`.
    pub seed: u32,
    /// The C library's buffer, bytes: on FreeBSD the file system's block size.
    pub stdio_bytes: u32,
}

impl Default for PostMark {
    fn default() -> PostMark {
        PostMark {
            size_low_bytes: 500,
            size_high_bytes: 10_000,
            files: 500,
            transactions: 500,
            subdirectories: 0,
            locations: Vec::new(),
            read_bytes: 512,
            write_bytes: 512,
            bias_read: Some(5),
            bias_create: Some(5),
            buffering: true,
            seed: 42,
            stdio_bytes: 16 << 10,
        }
    }
}

impl PostMark {
    /// Its phases: directories, files, transactions, deletion of files, deletion of directories. PostMark's
    /// total time is that of the three in the middle, its deletion rate the files of `"delete"` by its time.
    pub const PHASES: [&str; 5] = ["setup", "create", "transactions", "delete", "cleanup"];

    /// Makes the program.
    pub fn program(&self) -> Box<dyn Program> {
        let slots = vec![Slot::default(); self.files as usize * 2];
        let rng = MersenneTwister::new(self.seed);
        let run = Run { spec: self.clone(), rng, slots, next_slot: 0, made: 0, removed: 0, at: At::Setup };
        Box::new(run)
    }
}

/// A place of PostMark's table of files; free if the size is 0.
#[derive(Clone, Debug, Default)]
struct Slot {
    dir: u32,
    number: u32,
    size: u32,
}

enum At {
    Setup,
    Create(u32),
    Transaction(u32),
    Delete(usize),
    Cleanup,
    End,
}

struct Run {
    spec: PostMark,
    rng: MersenneTwister,
    slots: Vec<Slot>,
    next_slot: usize,
    made: u32,
    removed: u32,
    at: At,
}

impl Run {
    /// Number of a directory: locations first, then the subdirectories of each.
    fn subdirectory(&self, location: u32, n: u32) -> u32 {
        let locations = self.spec.locations.len() as u32;
        1 + locations + location.saturating_sub(1) * self.spec.subdirectories + n
    }

    fn setup(&mut self, out: &mut Vec<Op>) {
        out.push(Op::Phase(PostMark::PHASES[0]));
        for _ in 0..self.spec.size_high_bytes * 2 {
            self.rng.next_u32();
        }
        for (dir, (name, _)) in (1..).zip(&self.spec.locations) {
            out.push(Op::Mkdir { parent: Dir::ROOT, name: name.clone(), dir: Dir(dir) });
        }
        self.each_subdirectory(|parent, name, dir| out.push(Op::Mkdir { parent, name, dir }));
        out.push(Op::Phase(PostMark::PHASES[1]));
        self.at = At::Create(0);
    }

    fn each_subdirectory(&self, mut f: impl FnMut(Dir, String, Dir)) {
        if self.spec.subdirectories > 1 {
            let locations = self.spec.locations.len() as u32;
            for location in locations.min(1)..=locations {
                for n in 0..self.spec.subdirectories {
                    f(Dir(location), format!("s{n}"), Dir(self.subdirectory(location, n)));
                }
            }
        }
    }

    fn cleanup(&mut self, out: &mut Vec<Op>) {
        out.push(Op::Phase(PostMark::PHASES[4]));
        self.each_subdirectory(|_, _, dir| out.push(Op::Rmdir { dir }));
        self.at = At::End;
    }

    /// The location and subdirectory of a new file.
    fn choose_dir(&mut self) -> u32 {
        let locations = &self.spec.locations;
        let location = match locations.len() {
            n @ 0..=1 => n as u32,
            _ => {
                let mut at = self.rng.below(locations.iter().map(|l| l.1).sum());
                let heavier = |l: &&(String, u32)| match at.checked_sub(l.1) {
                    Some(rest) => {
                        at = rest;
                        true
                    }
                    None => false,
                };
                1 + locations.iter().take_while(heavier).count() as u32
            }
        };
        match self.spec.subdirectories {
            0..=1 => location,
            n => {
                let n = self.rng.below(n);
                self.subdirectory(location, n)
            }
        }
    }

    /// The next slot if it is free, else the first free one.
    fn free_slot(&mut self) -> Option<usize> {
        let slot = match self.slots.get(self.next_slot) {
            Some(slot) if slot.size == 0 => self.next_slot,
            _ => self.slots.iter().position(|s| s.size == 0)?,
        };
        self.next_slot = slot + 1;
        Some(slot)
    }

    fn used_slot(&mut self) -> usize {
        loop {
            let slot = self.rng.below(self.slots.len() as u32) as usize;
            if self.slots[slot].size > 0 {
                return slot;
            }
        }
    }

    fn create(&mut self, out: &mut Vec<Op>) {
        let Some(slot) = self.free_slot() else { return };
        let dir = self.choose_dir();
        self.made += 1;
        let size = self.spec.size_low_bytes
            + self.rng.below(self.spec.size_high_bytes.saturating_sub(self.spec.size_low_bytes));
        self.slots[slot] = Slot { dir, number: self.made, size };
        out.push(Op::Create { dir: Dir(dir), name: self.made.to_string() });
        out.push(self.write(self.made, 0, size));
        out.push(Op::Close);
    }

    fn write(&self, number: u32, offset: u32, len: u32) -> Op {
        let io = if self.spec.buffering { self.spec.stdio_bytes } else { self.spec.write_bytes };
        Op::Write { offset: u64::from(offset), len: u64::from(len), io, tag: u64::from(number) }
    }

    fn delete(&mut self, slot: usize, out: &mut Vec<Op>) {
        let slot = &mut self.slots[slot];
        if slot.size > 0 {
            out.push(Op::Unlink { dir: Dir(slot.dir), name: slot.number.to_string() });
            slot.size = 0;
            self.removed += 1;
        }
    }

    fn read(&mut self, slot: usize, out: &mut Vec<Op>) {
        let io = if self.spec.buffering { self.spec.stdio_bytes } else { self.spec.read_bytes };
        let slot = &self.slots[slot];
        out.push(Op::Open { dir: Dir(slot.dir), name: slot.number.to_string() });
        out.push(Op::Read { offset: 0, len: u64::from(slot.size), io });
        out.push(Op::Close);
    }

    fn append(&mut self, slot: usize, out: &mut Vec<Op>) {
        let Slot { dir, number, size } = self.slots[slot];
        if size < self.spec.size_high_bytes {
            let len = self.rng.below(self.spec.size_high_bytes - size) + 1;
            out.push(Op::Open { dir: Dir(dir), name: number.to_string() });
            out.push(self.write(number, size, len));
            out.push(Op::Close);
            self.slots[slot].size += len;
        }
    }

    fn transaction(&mut self, out: &mut Vec<Op>) {
        if let Some(bias) = self.spec.bias_read {
            let read = self.rng.below(10) < bias;
            let slot = self.used_slot();
            if read { self.read(slot, out) } else { self.append(slot, out) }
        }
        if let Some(bias) = self.spec.bias_create {
            if self.rng.below(10) < bias {
                self.create(out);
            } else {
                let slot = self.used_slot();
                self.delete(slot, out);
            }
        }
    }
}

impl Program for Run {
    fn step(&mut self, out: &mut Vec<Op>) -> bool {
        match self.at {
            At::Setup => self.setup(out),
            At::Create(n) if n < self.spec.files => {
                self.create(out);
                self.at = At::Create(n + 1);
            }
            At::Create(_) => {
                out.push(Op::Phase(PostMark::PHASES[2]));
                self.at = At::Transaction(0);
            }
            // PostMark stops when it has no file left.
            At::Transaction(n) if n < self.spec.transactions && self.made > self.removed => {
                self.transaction(out);
                self.at = At::Transaction(n + 1);
            }
            At::Transaction(_) => {
                out.push(Op::Phase(PostMark::PHASES[3]));
                self.at = At::Delete(0);
            }
            At::Delete(slot) if slot < self.slots.len() => {
                self.delete(slot, out);
                self.at = At::Delete(slot + 1);
            }
            At::Delete(_) => self.at = At::Cleanup,
            At::Cleanup => self.cleanup(out),
            At::End => return false,
        }
        true
    }

    fn progress(&self) -> (u64, u64) {
        let (files, transactions) = (u64::from(self.spec.files), u64::from(self.spec.transactions));
        let total = files * 3 + transactions;
        let done = match self.at {
            At::Setup => 0,
            At::Create(n) => u64::from(n),
            At::Transaction(n) => files + u64::from(n),
            At::Delete(slot) => files + transactions + slot as u64,
            At::Cleanup | At::End => total,
        };
        (done, total)
    }
}
