//! Contents of a model's file: sparse, cheap to clone, compared page by page.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Unit of sharing between states of the model, in bytes. It says nothing about engines.
pub const PAGE: u64 = 4096;

/// A page of a file; shared between the states in which it is the same.
pub type Page = Arc<Vec<u8>>;

/// Bytes of a file. A page that is absent is a hole; bytes past the size are never kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Data {
    size: u64,
    pages: BTreeMap<u64, Page>,
}

impl Data {
    /// Rebuilds contents from their parts; pages past the size are dropped.
    pub fn from_parts(size: u64, pages: BTreeMap<u64, Page>) -> Data {
        let mut data = Data { size: u64::MAX, pages };
        data.truncate(size);
        data
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The pages that are not holes, by number.
    pub fn pages(&self) -> &BTreeMap<u64, Page> {
        &self.pages
    }

    /// The byte at `offset`; zero in holes and past the end.
    pub fn byte(&self, offset: u64) -> u8 {
        self.pages.get(&(offset / PAGE)).map_or(0, |p| p[(offset % PAGE) as usize])
    }

    /// Reads up to `buf.len()` bytes, fewer only at the end.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let n = self.size.saturating_sub(offset).min(buf.len() as u64) as usize;
        for (at, page, from, len) in pieces(offset, n as u64) {
            let out = &mut buf[at..at + len];
            match self.pages.get(&page) {
                Some(p) => out.copy_from_slice(&p[from..from + len]),
                None => out.fill(0),
            }
        }
        n
    }

    /// Writes `bytes` at `offset`.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (at, page, from, len) in pieces(offset, bytes.len() as u64) {
            self.page_mut(page)[from..from + len].copy_from_slice(&bytes[at..at + len]);
        }
        if !bytes.is_empty() {
            self.size = self.size.max(offset + bytes.len() as u64);
        }
    }

    /// Sets the size; the tail of the last page reads as zeros if it grows again.
    pub fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.zero(size, self.size - size);
            self.pages.split_off(&size.div_ceil(PAGE));
        }
        self.size = size;
    }

    /// Makes `[offset, offset + len)` read as zeros without changing the size.
    pub fn zero(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        let touched: Vec<u64> = self.pages.range(offset / PAGE..end.div_ceil(PAGE)).map(|(n, _)| *n).collect();
        for n in touched {
            let from = offset.max(n * PAGE) - n * PAGE;
            let to = end.min((n + 1) * PAGE) - n * PAGE;
            if to - from == PAGE {
                self.pages.remove(&n);
            } else {
                self.page_mut(n)[from as usize..to as usize].fill(0);
            }
        }
    }

    /// The first byte at or after `offset` that is not zero.
    pub fn next_nonzero(&self, offset: u64) -> Option<u64> {
        self.pages.range(offset / PAGE..).find_map(|(n, page)| {
            let from = offset.saturating_sub(n * PAGE) as usize;
            page.get(from..)?.iter().position(|b| *b != 0).map(|i| n * PAGE + (from + i) as u64)
        })
    }

    fn page_mut(&mut self, n: u64) -> &mut Vec<u8> {
        Arc::make_mut(self.pages.entry(n).or_insert_with(|| Arc::new(vec![0; PAGE as usize])))
    }
}

/// Cuts a range at page bounds: position in the buffer, page, position in the page, length.
fn pieces(offset: u64, len: u64) -> impl Iterator<Item = (usize, u64, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done;
        let n = (PAGE - at % PAGE).min(len - done);
        done += n;
        Some(((done - n) as usize, at / PAGE, (at % PAGE) as usize, n as usize))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shrinking_and_growing_leaves_zeros() {
        let mut d = Data::default();
        d.write(4000, &[7; 5000]);
        d.truncate(4100);
        d.truncate(9000);
        assert_eq!((d.byte(4099), d.byte(4100), d.byte(8999)), (7, 0, 0));
        assert_eq!(d.next_nonzero(4100), None);
        let mut buf = [1; 10];
        assert_eq!(d.read(8995, &mut buf), 5);
    }

    #[test]
    fn zeroing_drops_whole_pages_only() {
        let mut d = Data::default();
        d.write(0, &[1; 3 * 4096]);
        d.zero(100, 2 * 4096);
        assert_eq!(d.pages().len(), 2);
        assert_eq!(d.next_nonzero(100), Some(100 + 2 * 4096));
        assert_eq!(d.size(), 3 * 4096);
    }
}
