//! Reading: from the cache, else from the device without a lock.

use super::map::{Mapped, clip};
use crate::format::*;
use crate::inode::Inode;
use crate::planted::{Flaw, planted};
use crate::volume::{Core, Volume};
use arbor_base::cache::Name;
use arbor_base::cache::windows::Window;
use arbor_base::device::{Kind, Request, zeroed};
use arbor_base::vfs::{Errno, Ino, Result, Seek};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A read of at most so many bytes is served from a window, or fetches one, if it finds neighbours there.
const SMALL_READ: u64 = 64 << 10;

/// The part of a read that is done without the lock.
struct Plan {
    /// Bytes of the file that are read.
    len: usize,
    fetches: Vec<Fetch>,
    /// Windows to be read ahead.
    ahead: Vec<Arc<Window>>,
    size: u64,
    version: u64,
    /// Bytes of a page and of a fragment.
    units: (u64, u64),
}

/// Pages that a read has to fetch.
struct Fetch {
    /// Pages [first, last] that are missing.
    first: u64,
    last: u64,
    extents: Vec<Mapped>,
    /// The windows that hold all of it, if there are such.
    windows: Vec<(Mapped, Arc<Window>)>,
}

impl Volume {
    /// Reads file data; see [`arbor_base::vfs::FileSystem::read`]. If the file was written in place meanwhile, the
    /// bytes may be of several moments, and are reread; in the end with the commit lock held, without which nobody
    /// writes.
    pub(crate) fn read_file(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        for attempt in 0.. {
            let order = (attempt >= 3).then(|| self.order());
            if let Some(n) = self.try_read(ino, offset, buf, order.is_some())? {
                return Ok(n);
            }
        }
        Ok(0)
    }

    /// Reads; `None` if the file changed on disk meanwhile, unless it is `settled`.
    fn try_read(&self, ino: Ino, offset: u64, buf: &mut [u8], settled: bool) -> Result<Option<usize>> {
        let plan = self.run(|core| {
            let i = core.iget(ino)?;
            if !i.is_file() {
                return Err(if i.is_dir() { Errno::EISDIR } else { Errno::EINVAL }.into());
            }
            let size = core.size_of(&i);
            let len = size.saturating_sub(offset).min(buf.len() as u64) as usize;
            let mut fetches = core.read_cached(&i, offset, &mut buf[..len])?;
            let ahead = core.read_ahead(&i, offset..offset + len as u64, size, &mut fetches)?;
            let units = (core.page_size(), core.geom.frag_size());
            Ok(Plan { len, fetches, ahead, size, version: core.versions.of(ino), units })
        })?;
        for window in &plan.ahead {
            window.start(&*self.dev, Kind::Data);
        }
        if plan.fetches.is_empty() {
            return Ok(Some(plan.len));
        }
        let (mut fetched, mut read, mut direct) = (Vec::new(), Vec::new(), Vec::new());
        for f in plan.fetches {
            match self.window_pages(&f, plan.size, plan.units) {
                Some(bytes) => {
                    fetched.push(f);
                    read.push(bytes);
                }
                None if self.copy_windows(&f, offset, &mut buf[..plan.len], plan.units.1) => {}
                None => direct.push(f),
            }
        }
        read.extend(match self.fetch(&direct, plan.size, plan.units) {
            // What could not be read may no longer be part of the file.
            Err(_) if !settled && self.core.lock().versions.of(ino) != plan.version => return Ok(None),
            read => read?,
        });
        fetched.extend(direct);
        let ps = plan.units.0;
        for (f, bytes) in fetched.iter().zip(&read) {
            let (lo, hi) = ((f.first * ps).max(offset), ((f.last + 1) * ps).min(offset + plan.len as u64));
            let from = (lo - f.first * ps) as usize;
            buf[(lo - offset) as usize..(hi - offset) as usize]
                .copy_from_slice(&bytes[from..from + (hi - lo) as usize]);
        }
        let same = self.keep_pages(ino, &fetched, read, plan.version);
        Ok((same || settled || planted(Flaw::MixedRead)).then_some(plan.len))
    }
}

impl Core {
    /// Copies what the cache has into `buf`; returns what is missing. `buf` ends at the end of
    /// the file at the latest.
    fn read_cached(&mut self, i: &Inode, offset: u64, buf: &mut [u8]) -> Result<Vec<Fetch>> {
        buf.fill(0);
        let mut out: Vec<Fetch> = Vec::new();
        if buf.is_empty() {
            return Ok(out);
        }
        let ps = self.page_size();
        let end = offset + buf.len() as u64;
        for index in offset / ps..=(end - 1) / ps {
            let (lo, hi) = ((index * ps).max(offset), ((index + 1) * ps).min(end));
            let place = &mut buf[(lo - offset) as usize..(hi - offset) as usize];
            if let Some(page) = self.cache.get(Name::data(i.ino, index)) {
                let page = page.get((lo % ps) as usize..).unwrap_or(&[]);
                let n = page.len().min(place.len());
                place[..n].copy_from_slice(&page[..n]);
                continue;
            }
            if i.format() == Format::Inline {
                let have = (i.d.size.get() as usize).min(self.geom.area());
                self.area(i, |a| {
                    let a = a.get(..have).unwrap_or(&[]);
                    let a = a.get(lo as usize..).unwrap_or(&[]);
                    let n = a.len().min(place.len());
                    place[..n].copy_from_slice(&a[..n]);
                })?;
                continue;
            }
            match out.last_mut() {
                Some(f) if f.last + 1 == index => f.last = index,
                _ => out.push(Fetch { first: index, last: index, extents: Vec::new(), windows: Vec::new() }),
            }
        }
        let pf = self.page_frags();
        for f in &mut out {
            f.extents = self.written(i, f.first * pf, (f.last + 1) * pf)?;
        }
        out.retain(|f| !f.extents.is_empty());
        Ok(out)
    }

    /// Finds windows for what a read has to fetch; returns those to be read ahead.
    fn read_ahead(
        &mut self,
        i: &Inode,
        range: std::ops::Range<u64>,
        size: u64,
        fetches: &mut [Fetch],
    ) -> Result<Vec<Arc<Window>>> {
        if fetches.is_empty() {
            return Ok(Vec::new());
        }
        for f in fetches {
            f.windows = self.windows_of(&f.extents, size <= SMALL_READ).unwrap_or_default();
        }
        let mut out = self.windows.run_on();
        let fs = self.geom.frag_size();
        let next = self.streams.read(i.ino.0, range, size);
        if next.is_empty() {
            return Ok(out);
        }
        // The map ahead may be damaged, or not in the cache: the read that comes there will tell.
        let Ok(extents) = self.written(i, next.start / fs, next.end.div_ceil(fs)) else { return Ok(out) };
        for e in extents {
            let (at, len) = (e.start.0 * fs, u64::from(e.len) * fs);
            if len >= SMALL_READ {
                out.extend(self.windows.ahead(at..at + len));
            }
        }
        self.streams.started(i.ino.0, next.end);
        Ok(out)
    }

    /// Extents cut at the bounds of windows, each with its window; `None` unless all have one.
    fn windows_of(&mut self, extents: &[Mapped], at_home: bool) -> Option<Vec<(Mapped, Arc<Window>)>> {
        let fs = self.geom.frag_size();
        let small = extents.iter().map(|e| u64::from(e.len)).sum::<u64>() * fs <= SMALL_READ;
        let per = (self.windows.window_len() / fs).max(1);
        let mut out = Vec::new();
        for e in extents {
            let mut at = e.at;
            while at < e.end() {
                let start = e.start.0 + (at - e.at);
                let piece = clip(*e, at, at + (per - start % per));
                let len = u64::from(piece.len) * fs;
                let found =
                    if small { self.windows.find(start * fs, len, at_home) } else { self.windows.get(start * fs) };
                out.push((piece, found?));
                at = piece.end();
            }
        }
        Some(out)
    }
}

impl Volume {
    /// The pages of a small file out of its windows, which are kept: what is read again should not depend on a window, which
    /// is not there for long. `None` for another file, or if a window has no bytes.
    fn window_pages(&self, f: &Fetch, size: u64, (ps, fs): (u64, u64)) -> Option<Vec<u8>> {
        if size > SMALL_READ || f.windows.is_empty() {
            return None;
        }
        let end = ((f.last + 1) * ps).min(size);
        let mut pages = zeroed(end.saturating_sub(f.first * ps) as usize);
        for (e, window) in &f.windows {
            let (bytes, from) = (window.bytes(&*self.dev, Kind::Data)?, window.place(e.start.0 * fs));
            let len = (u64::from(e.len) * fs).min(size.saturating_sub(e.at * fs)) as usize;
            let at = (e.at * fs - f.first * ps) as usize;
            pages.get_mut(at..at + len)?.copy_from_slice(bytes.get(from..from + len)?);
        }
        Some(pages)
    }

    /// Copies a piece of a file out of its windows, as far as it lies in `buf`, which is at `offset` of the file;
    /// returns whether it could.
    fn copy_windows(&self, f: &Fetch, offset: u64, buf: &mut [u8], fs: u64) -> bool {
        let end = offset + buf.len() as u64;
        for (e, window) in &f.windows {
            let Some(bytes) = window.bytes(&*self.dev, Kind::Data) else { return false };
            let (lo, hi) = ((e.at * fs).max(offset), (e.end() * fs).min(end));
            if lo >= hi {
                continue;
            }
            let from = window.place(e.start.0 * fs + (lo - e.at * fs));
            let Some(piece) = bytes.get(from..from + (hi - lo) as usize) else { return false };
            buf[(lo - offset) as usize..(hi - offset) as usize].copy_from_slice(piece);
        }
        !f.windows.is_empty()
    }

    /// Reads the missing pieces from the device, all at once. Takes no lock: the extents may be another file's by the
    /// time they are read, so callers check the version again.
    fn fetch(&self, fetches: &[Fetch], size: u64, (ps, fs): (u64, u64)) -> Result<Vec<Vec<u8>>> {
        let mut out: Vec<Vec<u8>> = fetches.iter().map(|f| zeroed(((f.last + 1 - f.first) * ps) as usize)).collect();
        let all: Vec<(usize, Mapped)> =
            fetches.iter().enumerate().flat_map(|(n, f)| f.extents.iter().map(move |e| (n, *e))).collect();
        let batch: Vec<Request> = all
            .iter()
            .map(|(_, e)| Request::read(Kind::Data, e.start.0 * fs, (u64::from(e.len) * fs) as usize))
            .collect();
        self.counters.data_reads.fetch_add(batch.len() as u64, Relaxed);
        self.counters.data_read_bytes.fetch_add(batch.iter().map(Request::len).sum(), Relaxed);
        let done = match <[_; 1]>::try_from(batch) {
            Ok([one]) => {
                let mut bytes = zeroed(one.len() as usize);
                vec![self.dev.read_at(Kind::Data, one.offset, &mut bytes).map(|()| bytes)]
            }
            Err(batch) => self.dev.submit(batch).wait(),
        };
        for ((n, e), bytes) in all.iter().zip(done) {
            let bytes = bytes?;
            let base = fetches[*n].first * ps;
            let at = (e.at * fs - base) as usize;
            // Past the end of the file the last fragment holds nothing that may be seen.
            let len = (bytes.len() as u64).min(size.saturating_sub(e.at * fs)) as usize;
            out[*n][at..at + len].copy_from_slice(&bytes[..len]);
        }
        Ok(out)
    }

    /// Puts pages read from the device into the cache, unless the file has changed on disk since it had this version;
    /// returns whether it has not.
    fn keep_pages(&self, ino: Ino, fetches: &[Fetch], read: Vec<Vec<u8>>, version: u64) -> bool {
        let mut core = self.core.lock();
        if core.versions.of(ino) != version && !planted(Flaw::StalePages) {
            return false;
        }
        let ps = core.page_size() as usize;
        let mut keep = |index, page: Vec<u8>| {
            let name = Name::data(ino, index);
            if !core.cache.contains(name) {
                core.cache.insert(name, Arc::new(page));
            }
        };
        for (f, bytes) in fetches.iter().zip(read) {
            if bytes.len() <= ps {
                keep(f.first, bytes);
            } else {
                bytes.chunks(ps).enumerate().for_each(|(n, page)| keep(f.first + n as u64, page.to_vec()));
            }
        }
        true
    }

    /// Reads pages of a file into the cache, for a change of a part of them. Does nothing if the file changes on disk
    /// meanwhile: a caller who still wants them asks again, in the end `settled`, with the commit lock held.
    pub(crate) fn fill_pages(&self, ino: Ino, first: u64, last: u64, settled: bool) -> Result<()> {
        let _order = settled.then(|| self.order());
        let (fetches, size, version, units) = self.run(|core| {
            let i = core.iget(ino)?;
            let lo = first * core.page_frags();
            let extents = core.written(&i, lo, (last + 1) * core.page_frags())?;
            let units = (core.page_size(), core.geom.frag_size());
            let all = Fetch { first, last, extents, windows: Vec::new() };
            // It may have become inline since: its bytes are in the inode, and a page would hide them.
            let all = if i.format() == Format::Inline { Vec::new() } else { vec![all] };
            Ok((all, core.size_of(&i), core.versions.of(ino), units))
        })?;
        let ps = units.0;
        let mut read = match self.fetch(&fetches, size, units) {
            Err(_) if !settled && self.core.lock().versions.of(ino) != version => return Ok(()),
            read => read?,
        };
        if let Some(bytes) = read.first_mut() {
            let keep = size.saturating_sub(first * ps) as usize;
            bytes.truncate(keep.max(1));
        }
        self.keep_pages(ino, &fetches, read, version);
        Ok(())
    }

    /// Next data or hole; see [`arbor_base::vfs::FileSystem::seek`].
    pub(crate) fn seek_file(&self, ino: Ino, offset: u64, whence: Seek) -> Result<u64> {
        self.flush_one(ino)?;
        self.run(|core| {
            let i = core.iget(ino)?;
            if !i.is_file() {
                return Err(if i.is_dir() { Errno::EISDIR } else { Errno::EINVAL }.into());
            }
            let size = core.size_of(&i);
            if offset >= size {
                return Err(Errno::ENXIO.into());
            }
            if i.format() == Format::Inline {
                return Ok(if whence == Seek::Data { offset } else { size });
            }
            let fs = core.geom.frag_size();
            let mut at = offset / fs;
            while at * fs < size {
                let e = core.extent_at(&i, at)?;
                let data = e.filter(|e| e.flags & UNWRITTEN == 0);
                let inside = data.is_some_and(|e| e.at <= at);
                if inside == (whence == Seek::Data) {
                    return Ok((at * fs).max(offset));
                }
                at = match e {
                    Some(e) if e.at <= at => e.end(),
                    Some(e) => e.at,
                    None => break,
                };
            }
            if whence == Seek::Data { Err(Errno::ENXIO.into()) } else { Ok(size) }
        })
    }
}
