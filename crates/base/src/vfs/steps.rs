//! Calls of [`FileSystem`](super::FileSystem) that are made of others, where an engine knows no better.

use super::{Cx, Errno, FileSystem, Ino, Result, mode};

/// See [`FileSystem::make_file`]: creates the file, writes it, and takes it away again if it cannot be written whole.
///
/// # Errors
/// Those of creating and of writing.
pub fn make_by_steps<F: FileSystem + ?Sized>(
    fs: &F,
    cx: &Cx,
    (parent, name): (Ino, &[u8]),
    permissions: u32,
    data: &[u8],
) -> Result<()> {
    let ino = fs.mknod(cx, parent, name, mode::IFREG | permissions & 0o7777, 0)?.ino;
    let written = write_whole(fs, ino, data);
    if written.is_err() {
        take_back(fs, (parent, name), ino);
    }
    fs.forget(ino, 1);
    written
}

/// Removes a name that was just made, unless it names something else by now. The error that counts is that of the write.
fn take_back<F: FileSystem + ?Sized>(fs: &F, (parent, name): (Ino, &[u8]), ino: Ino) {
    let Ok(found) = fs.lookup(parent, name) else { return };
    if found.ino == ino {
        let _ = fs.unlink(parent, name);
    }
    fs.forget(found.ino, 1);
}

fn write_whole<F: FileSystem + ?Sized>(fs: &F, ino: Ino, data: &[u8]) -> Result<()> {
    let mut done = 0;
    while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
        match fs.write(ino, done as u64, rest)? {
            0 => return Err(Errno::EIO.into()),
            n => done += n,
        }
    }
    Ok(())
}
