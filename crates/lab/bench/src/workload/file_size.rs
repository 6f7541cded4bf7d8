//! Files of one size: made, read, written over and removed in the same order (Seltzer and others, "File System Logging
//! Versus Clustering", USENIX 1995, sequential performance as a function of file size).

use super::primitive::Ops;
use crate::op::{Dir, Op, Program};

/// What a size is measured with. Directories take up to 100 files; a call moves a whole file, or up to 4 MiB of it.
/// Before each phase there is a mount without a cache, and each one ends when everything is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSize {
    /// Size of each file, bytes.
    pub file_bytes: u64,
    /// Data of all files, bytes.
    pub data_bytes: u64,
    /// Least number of files.
    pub least_files: u32,
}

/// Files in a directory.
const FILES_PER_DIR: u32 = 100;
/// Most bytes of a call.
const IO: u32 = 4 << 20;

impl FileSize {
    /// The paper's data with files of this size.
    pub const fn new(file_bytes: u64) -> FileSize {
        FileSize { file_bytes, data_bytes: 32 << 20, least_files: 10 }
    }

    /// The same with less data and fewer files.
    pub fn divided_by(self, divisor: u32) -> FileSize {
        let divisor = divisor.max(1);
        FileSize {
            data_bytes: self.data_bytes / u64::from(divisor),
            least_files: self.least_files.div_ceil(divisor),
            ..self
        }
    }

    /// Files that it takes.
    pub fn files(&self) -> u32 {
        ((self.data_bytes / self.file_bytes.max(1)) as u32).max(self.least_files)
    }

    /// Makes the program. It draws nothing, and leaves nothing behind.
    pub fn program(&self) -> Box<dyn Program> {
        let (files, len) = (self.files(), self.file_bytes);
        let dir = |i: u32| Dir(1 + i / FILES_PER_DIR);
        let name = |i: u32| format!("f{i:05}");
        let write = |i: u32, tag: u64| Op::Write { offset: 0, len, io: IO, tag: tag + u64::from(i) };
        let mut ops = vec![Op::Phase("create")];
        for i in 0..files {
            if i % FILES_PER_DIR == 0 {
                ops.push(Op::Mkdir { parent: Dir::ROOT, name: format!("d{:03}", i / FILES_PER_DIR), dir: dir(i) });
            }
            ops.extend([Op::Create { dir: dir(i), name: name(i) }, write(i, 0), Op::Close]);
        }
        let cold =
            |ops: &mut Vec<Op>, phase| ops.extend([Op::Sync, Op::Phase("remount"), Op::Remount, Op::Phase(phase)]);
        cold(&mut ops, "read");
        for i in 0..files {
            let read = Op::Read { offset: 0, len, io: IO };
            ops.extend([Op::Open { dir: dir(i), name: name(i) }, read, Op::Close]);
        }
        cold(&mut ops, "write");
        for i in 0..files {
            ops.extend([Op::Open { dir: dir(i), name: name(i) }, write(i, 1 << 32), Op::Close]);
        }
        cold(&mut ops, "delete");
        ops.extend((0..files).map(|i| Op::Unlink { dir: dir(i), name: name(i) }));
        ops.extend([Op::Sync, Op::Phase("cleanup")]);
        ops.extend((0..files).step_by(FILES_PER_DIR as usize).map(|i| Op::Rmdir { dir: dir(i) }));
        ops.push(Op::Sync);
        Box::new(Ops::new(ops))
    }
}
