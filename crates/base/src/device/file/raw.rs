//! Positioned I/O on a file, buffered or direct. Lengths and offsets are not checked here.

use parking_lot::{Mutex, RwLock};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;

/// Alignment of direct I/O: enough for every disk, and the page size of most hosts.
const DIRECT_UNIT: usize = 4096;
/// Direct requests pass through bounce buffers of this size, in bytes.
const BOUNCE_LEN: usize = 512 << 10;

/// Whether the host may be able to punch holes.
pub(super) const CAN_DISCARD: bool = cfg!(target_os = "linux");

/// Size in bytes, also of a block device.
pub(super) fn size_of(file: &File) -> io::Result<u64> {
    let mut file = file;
    file.seek(SeekFrom::End(0))
}

/// The same file, opened once or twice.
#[derive(Debug)]
pub(super) struct RawFile {
    buffered: sys::Positioned,
    direct: Option<Direct>,
}

#[derive(Debug)]
struct Direct {
    file: sys::Positioned,
    /// Direct I/O shares it, buffered I/O beside it is alone: the host does not promise that both
    /// in one page at one time see each other.
    mixing: RwLock<()>,
    bounces: Mutex<Vec<Vec<u8>>>,
}

impl RawFile {
    pub(super) fn new(buffered: File, direct: Option<File>) -> RawFile {
        let direct = direct.map(|file| Direct {
            file: sys::Positioned::new(file),
            mixing: RwLock::new(()),
            bounces: Mutex::default(),
        });
        RawFile { buffered: sys::Positioned::new(buffered), direct }
    }

    pub(super) fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Reads all of `buf`.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        match &self.direct {
            None => self.buffered.read(offset, buf),
            Some(direct) if is_aligned(offset, buf.len()) => direct.read(offset, buf),
            Some(direct) => {
                let _alone = direct.mixing.write();
                self.buffered.read(offset, buf)
            }
        }
    }

    /// Writes the parts one after the other.
    pub(super) fn write(&self, offset: u64, parts: &[&[u8]]) -> io::Result<()> {
        match &self.direct {
            None => self.buffered.write(offset, parts),
            Some(direct) if is_aligned(offset, parts.iter().map(|p| p.len()).sum()) => direct.write(offset, parts),
            Some(direct) => {
                let _alone = direct.mixing.write();
                self.buffered.write(offset, parts)
            }
        }
    }

    pub(super) fn sync_data(&self) -> io::Result<()> {
        self.buffered.file().sync_data()
    }

    /// The first hole from `at` on, if the host tells. The last one has no end.
    #[cfg(target_os = "linux")]
    pub(super) fn next_hole(&self, at: u64) -> io::Result<Option<Range<u64>>> {
        use rustix::fs::{SeekFrom, seek};
        use rustix::io::Errno;
        let start = match seek(self.buffered.file(), SeekFrom::Hole(at)) {
            Err(Errno::NXIO | Errno::INVAL) => return Ok(None),
            start => start?,
        };
        match seek(self.buffered.file(), SeekFrom::Data(start)) {
            Err(Errno::NXIO) => Ok(Some(start..u64::MAX)),
            end => Ok(Some(start..end?)),
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn next_hole(&self, _at: u64) -> io::Result<Option<Range<u64>>> {
        Ok(None)
    }

    /// Changes the size from `old`, so that new bytes are zero even if the file did not end in a
    /// whole sector.
    pub(super) fn set_len(&self, old: u64, new: u64) -> io::Result<()> {
        if new > old {
            self.buffered.file().set_len(old)?;
        }
        self.buffered.file().set_len(new)?;
        self.buffered.file().sync_all()
    }

    /// Punches a hole; works on files and on block devices.
    #[cfg(target_os = "linux")]
    pub(super) fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        loop {
            match fallocate(self.buffered.file(), how, offset, len) {
                Err(rustix::io::Errno::INTR) => {}
                done => return Ok(done?),
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn discard(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

fn is_aligned(offset: u64, len: usize) -> bool {
    offset.is_multiple_of(DIRECT_UNIT as u64) && len.is_multiple_of(DIRECT_UNIT)
}

impl Direct {
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let _shared = self.mixing.read();
        self.with_bounce(|bounce| {
            let mut at = offset;
            for part in buf.chunks_mut(BOUNCE_LEN) {
                self.file.read(at, &mut bounce[..part.len()])?;
                part.copy_from_slice(&bounce[..part.len()]);
                at += part.len() as u64;
            }
            Ok(())
        })
    }

    fn write(&self, offset: u64, parts: &[&[u8]]) -> io::Result<()> {
        let _shared = self.mixing.read();
        self.with_bounce(|bounce| {
            let (mut at, mut filled) = (offset, 0);
            for part in parts {
                let mut rest = *part;
                while !rest.is_empty() {
                    let (now, later) = rest.split_at(rest.len().min(BOUNCE_LEN - filled));
                    bounce[filled..filled + now.len()].copy_from_slice(now);
                    filled += now.len();
                    rest = later;
                    if filled == BOUNCE_LEN {
                        self.file.write(at, &[&*bounce])?;
                        at += filled as u64;
                        filled = 0;
                    }
                }
            }
            if filled > 0 { self.file.write(at, &[&bounce[..filled]]) } else { Ok(()) }
        })
    }

    /// Lends an aligned buffer of [`BOUNCE_LEN`] bytes.
    fn with_bounce(&self, work: impl FnOnce(&mut [u8]) -> io::Result<()>) -> io::Result<()> {
        let kept = self.bounces.lock().pop();
        let mut buf = kept.unwrap_or_else(|| vec![0; BOUNCE_LEN + DIRECT_UNIT]);
        let start = buf.as_ptr().addr().wrapping_neg() % DIRECT_UNIT;
        let done = work(&mut buf[start..start + BOUNCE_LEN]);
        let mut bounces = self.bounces.lock();
        if bounces.len() < 8 {
            bounces.push(buf);
        }
        done
    }
}

#[cfg(unix)]
mod sys {
    use std::fs::File;
    use std::io::{self, IoSlice};
    use std::os::unix::fs::FileExt;

    /// Pieces that one system call takes at most (IOV_MAX).
    const MAX_PIECES: usize = 1024;

    #[derive(Debug)]
    pub(super) struct Positioned(File);

    impl Positioned {
        pub(super) fn new(file: File) -> Positioned {
            Positioned(file)
        }

        pub(super) fn file(&self) -> &File {
            &self.0
        }

        pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            self.0.read_exact_at(buf, offset)
        }

        pub(super) fn write(&self, offset: u64, parts: &[&[u8]]) -> io::Result<()> {
            if let [one] = parts {
                return self.0.write_all_at(one, offset);
            }
            let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|p| IoSlice::new(p)).collect();
            let mut rest = &mut slices[..];
            let mut at = offset;
            // Empty pieces at the front would make a write of nothing look like a full disk.
            IoSlice::advance_slices(&mut rest, 0);
            while !rest.is_empty() {
                match rustix::io::pwritev(&self.0, &rest[..rest.len().min(MAX_PIECES)], at) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(n) => {
                        at += n as u64;
                        IoSlice::advance_slices(&mut rest, n);
                    }
                    Err(rustix::io::Errno::INTR) => {}
                    Err(e) => return Err(e.into()),
                }
            }
            Ok(())
        }
    }
}

#[cfg(windows)]
mod sys {
    use std::fs::File;
    use std::io;
    use std::os::windows::fs::FileExt;

    #[derive(Debug)]
    pub(super) struct Positioned(File);

    impl Positioned {
        pub(super) fn new(file: File) -> Positioned {
            Positioned(file)
        }

        pub(super) fn file(&self) -> &File {
            &self.0
        }

        pub(super) fn read(&self, mut offset: u64, mut buf: &mut [u8]) -> io::Result<()> {
            while !buf.is_empty() {
                match self.0.seek_read(buf, offset) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(n) => {
                        offset += n as u64;
                        buf = &mut buf[n..];
                    }
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(e),
                }
            }
            Ok(())
        }

        pub(super) fn write(&self, mut offset: u64, parts: &[&[u8]]) -> io::Result<()> {
            for part in parts {
                let mut rest = *part;
                while !rest.is_empty() {
                    match self.0.seek_write(rest, offset) {
                        Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                        Ok(n) => {
                            offset += n as u64;
                            rest = &rest[n..];
                        }
                        Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                        Err(e) => return Err(e),
                    }
                }
            }
            Ok(())
        }
    }
}

#[cfg(not(any(unix, windows)))]
mod sys {
    use parking_lot::Mutex;
    use std::fs::File;
    use std::io::{self, Read, Seek, SeekFrom, Write};

    #[derive(Debug)]
    pub(super) struct Positioned {
        file: File,
        /// Held from the seek to the end of the transfer.
        cursor: Mutex<()>,
    }

    impl Positioned {
        pub(super) fn new(file: File) -> Positioned {
            Positioned { file, cursor: Mutex::new(()) }
        }

        pub(super) fn file(&self) -> &File {
            &self.file
        }

        pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            let _cursor = self.cursor.lock();
            let mut file = &self.file;
            file.seek(SeekFrom::Start(offset))?;
            file.read_exact(buf)
        }

        pub(super) fn write(&self, offset: u64, parts: &[&[u8]]) -> io::Result<()> {
            let _cursor = self.cursor.lock();
            let mut file = &self.file;
            file.seek(SeekFrom::Start(offset))?;
            parts.iter().try_for_each(|p| file.write_all(p))
        }
    }
}
