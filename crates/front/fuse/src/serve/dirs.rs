//! Directories that are read.

use super::{Handled, Reply, Request, Server, put};
use crate::proto::*;
use arbor_base::vfs;

impl Server {
    pub(super) fn readdir(&self, request: &mut Request<'_>, out: &mut [u8]) -> Handled {
        let what: ReadIn = request.arg()?;
        let max = out.len().min(what.size as usize);
        let out = &mut out[..max];
        let mut used = 0;
        self.fs.readdir(request.ino, what.offset, &mut |entry| {
            let len = record_len(size_of::<Dirent>(), entry.name.len());
            let Some(record) = out.get_mut(used..used + len).filter(|_| goes_on(used, len)) else { return false };
            put_dirent(record, entry);
            used += len;
            true
        })?;
        self.atimes.read(request.ino, true);
        Ok(Reply::Bytes(used))
    }

    pub(super) fn readdir_plus(&self, request: &mut Request<'_>, out: &mut [u8]) -> Handled {
        const HEAD: usize = size_of::<EntryOut>();
        let what: ReadIn = request.arg()?;
        let max = out.len().min(what.size as usize);
        let out = &mut out[..max];
        let mut used = 0;
        let walked = self.fs.readdir_plus(request.ino, what.offset, &mut |entry, attr| {
            let len = record_len(HEAD + size_of::<Dirent>(), entry.name.len());
            let Some(record) = out.get_mut(used..used + len).filter(|_| goes_on(used, len)) else { return false };
            match attr {
                Some(attr) => {
                    self.entry_out(record, attr);
                }
                None => record[..HEAD].fill(0),
            }
            put_dirent(&mut record[HEAD..], entry);
            used += len;
            true
        });
        match walked {
            // What was offered before the error is counted, so it is answered.
            Err(e) if used == 0 => Err(e),
            _ => {
                self.atimes.read(request.ino, true);
                Ok(Reply::Entries(used))
            }
        }
    }
}

/// A walk with something to show ends when its caller is let go, which is asked every 4 KiB.
fn goes_on(used: usize, len: usize) -> bool {
    used == 0 || used >> 12 == (used + len) >> 12 || !vfs::interrupted()
}

fn put_dirent(record: &mut [u8], entry: &vfs::DirEntry<'_>) {
    let head = put(
        record,
        &Dirent {
            ino: entry.ino.0,
            off: entry.cookie,
            namelen: entry.name.len() as u32,
            kind: entry.file_type.mode() >> 12,
        },
    );
    let end = head + entry.name.len();
    record[head..end].copy_from_slice(entry.name);
    record[end..].fill(0);
}
