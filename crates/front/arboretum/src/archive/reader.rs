//! Members of a tar stream: ustar, pax, GNU, with all of their sparse files.

use crate::host::device_number;
use arbor_base::vfs::{FileType, Time, acl};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::rc::Rc;
use tar::{EntryType, GnuExtSparseHeader, Header};

const BLOCK: usize = 512;
/// Longest extended header taken into memory.
const MAX_HEADER_LEN: u64 = 64 << 20;
/// Most bytes of global extended headers: every member is looked up in them.
const MAX_GLOBAL_LEN: usize = 64 << 10;
/// Most stretches of data of one sparse file.
const MAX_SEGMENTS: usize = 1 << 20;

type Records = Vec<(Vec<u8>, Vec<u8>)>;
/// Offset and length of the stretches of data of a sparse file.
type Map = Vec<(u64, u64)>;

/// What a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    File(FileType),
    HardLink,
    /// Nobody knows the letter of its type: it is taken for a file, as POSIX has it.
    Odd(u8),
    /// Something of GNU's own that is no file: lists of directories, pieces of several volumes.
    Foreign(u8),
}

/// One member; its data follows in the stream.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) path: Vec<u8>,
    pub(super) link: Vec<u8>,
    pub(super) what: What,
    pub(super) mode: u32,
    pub(super) owner: (u32, u32),
    pub(super) rdev: u32,
    /// Size of the file, holes included.
    pub(super) size: u64,
    pub(super) mtime: Time,
    pub(super) atime: Option<Time>,
    pub(super) xattrs: Records,
    /// Offset and length of the stretches of data, in the order of the stream.
    pub(super) segments: Map,
}

pub(super) struct TarReader<R> {
    inner: Counted<R>,
    /// Data of the member at hand still to come, and the padding after it.
    left: u64,
    padding: u64,
    global: Rc<BTreeMap<Vec<u8>, Vec<u8>>>,
}

/// A stream that knows how far it has been read.
struct Counted<R> {
    inner: R,
    at: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.at += n as u64;
        Ok(n)
    }
}

impl<R: Read> Counted<R> {
    fn fill(&mut self, buf: &mut [u8]) -> io::Result<()> {
        match self.read_exact(buf) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(self.too_short()),
            other => other,
        }
    }

    fn too_short(&self) -> io::Error {
        bad(format!("the archive is truncated: it ends at byte {}, inside a member", self.at))
    }
}

/// What headers before a member's own say about it.
#[derive(Default)]
struct Ahead {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    records: Records,
}

fn bad(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

impl<R: Read> TarReader<R> {
    pub(super) fn new(inner: R) -> TarReader<R> {
        TarReader { inner: Counted { inner, at: 0 }, left: 0, padding: 0, global: Rc::default() }
    }

    /// The next member; what is left of the one before is skipped.
    pub(super) fn next(&mut self) -> io::Result<Option<Member>> {
        let mut ahead = Ahead::default();
        loop {
            self.skip_rest()?;
            let Some(header) = self.header()? else { return Ok(None) };
            self.expect(header.entry_size()?);
            match header.entry_type() {
                EntryType::GNULongName => ahead.path = Some(without_nul(self.whole()?)),
                EntryType::GNULongLink => ahead.link = Some(without_nul(self.whole()?)),
                EntryType::XHeader => ahead.records = records(&self.whole()?)?,
                EntryType::XGlobalHeader => self.global_header()?,
                _ => {
                    if let Some(member) = self.member(&header, ahead)? {
                        return Ok(Some(member));
                    }
                    ahead = Ahead::default();
                }
            }
        }
    }

    fn global_header(&mut self) -> io::Result<()> {
        let too_long = || bad(format!("global extended headers are longer than {} KiB", MAX_GLOBAL_LEN >> 10));
        if self.left > MAX_GLOBAL_LEN as u64 {
            return Err(too_long());
        }
        let records = records(&self.whole()?)?;
        Rc::make_mut(&mut self.global).extend(records);
        let len: usize = self.global.iter().map(|(key, value)| key.len() + value.len()).sum();
        if len > MAX_GLOBAL_LEN { Err(too_long()) } else { Ok(()) }
    }

    /// Fills `buf` with the member's data.
    pub(super) fn data(&mut self, buf: &mut [u8]) -> io::Result<()> {
        self.left = self.left.checked_sub(buf.len() as u64).ok_or_else(|| bad("a member's data is too short"))?;
        self.inner.fill(buf)
    }

    fn expect(&mut self, len: u64) {
        self.left = len;
        self.padding = len.wrapping_neg() % BLOCK as u64;
    }

    fn skip_rest(&mut self) -> io::Result<()> {
        let rest = self.left.saturating_add(self.padding);
        let skipped = io::copy(&mut self.inner.by_ref().take(rest), &mut io::sink())?;
        self.expect(0);
        if skipped == rest { Ok(()) } else { Err(self.inner.too_short()) }
    }

    fn whole(&mut self) -> io::Result<Vec<u8>> {
        if self.left > MAX_HEADER_LEN {
            return Err(bad(format!("an extended header is longer than {} MiB", MAX_HEADER_LEN >> 20)));
        }
        let mut data = vec![0; self.left as usize];
        self.data(&mut data)?;
        Ok(data)
    }

    /// The next header; `None` at the end, which may lack its blocks of zeros.
    fn header(&mut self) -> io::Result<Option<Header>> {
        let mut header = Header::new_old();
        let block = header.as_mut_bytes();
        let mut have = 0;
        while have < BLOCK {
            match self.inner.read(block.get_mut(have..).unwrap_or_default())? {
                0 if have == 0 => return Ok(None),
                0 => return Err(self.inner.too_short()),
                n => have += n,
            }
        }
        if block.iter().all(|b| *b == 0) {
            return Ok(None);
        }
        let sum: u32 =
            block.iter().enumerate().map(|(i, b)| if (148..156).contains(&i) { 32 } else { u32::from(*b) }).sum();
        match header.cksum() {
            Ok(found) if found == sum => Ok(Some(header)),
            _ => {
                let at = self.inner.at.saturating_sub(BLOCK as u64);
                Err(bad(format!("not a tar archive, or a damaged header (wrong checksum at byte {at})")))
            }
        }
    }

    fn member(&mut self, header: &Header, ahead: Ahead) -> io::Result<Option<Member>> {
        let (records, global) = (ahead.records, self.global.clone());
        let own = |key: &str| records.iter().rev().find(|(k, _)| k == key.as_bytes()).map(|(_, v)| v.as_slice());
        let find = |key: &str| own(key).or_else(|| global.get(key.as_bytes()).map(Vec::as_slice));
        let number = |key: &str| find(key).and_then(|v| std::str::from_utf8(v).ok()?.parse::<u64>().ok());
        if let Some(len) = number("size") {
            self.expect(len);
        }
        let own_path = find("GNU.sparse.name").or(find("path")).map(<[u8]>::to_vec);
        let path = own_path.or(ahead.path).unwrap_or_else(|| header.path_bytes().into_owned());
        let own_link = find("linkpath").map(<[u8]>::to_vec).or(ahead.link);
        let link = own_link.unwrap_or_else(|| header.link_name_bytes().unwrap_or_default().into_owned());
        let Some(what) = what(header.entry_type(), &path) else { return Ok(None) };
        let time = |key: &str| find(key).and_then(parse_time);
        let stored_mtime = Time { secs: header.mtime()? as i64, nanos: 0 };
        let xattrs = xattrs(global.iter().chain(records.iter().map(|(k, v)| (k, v))));
        let (size, segments) = self.layout(header, &records)?;
        let part = |n: io::Result<Option<u32>>| n.ok().flatten().unwrap_or(0);
        Ok(Some(Member {
            link,
            what,
            mode: header.mode()? & 0o7777,
            owner: (
                number("uid").map_or_else(|| header.uid(), Ok)? as u32,
                number("gid").map_or_else(|| header.gid(), Ok)? as u32,
            ),
            rdev: device_number(part(header.device_major()), part(header.device_minor())),
            size,
            mtime: time("mtime").unwrap_or(stored_mtime),
            atime: time("atime"),
            xattrs,
            segments,
            path,
        }))
    }

    /// Size of the file and where its data belongs.
    fn layout(&mut self, header: &Header, records: &Records) -> io::Result<(u64, Map)> {
        let text = |key: &str| {
            let found = records.iter().rev().find(|(k, _)| k == key.as_bytes());
            found.and_then(|(_, v)| std::str::from_utf8(v).ok())
        };
        let number = |key: &str| text(key).and_then(|t| t.parse::<u64>().ok());
        let real_size = number("GNU.sparse.realsize").or(number("GNU.sparse.size"));
        let (size, segments) = if header.entry_type() == EntryType::GNUSparse {
            self.old_gnu_map(header)?
        } else if text("GNU.sparse.major") == Some("1") {
            (real_size, self.map_in_data()?)
        } else if let Some(map) = text("GNU.sparse.map") {
            (real_size, pairs(map.split(',').map(str::parse::<u64>))?)
        } else if text("GNU.sparse.numblocks").is_some() {
            let wanted = |k: &[u8]| matches!(k, b"GNU.sparse.offset" | b"GNU.sparse.numbytes");
            let numbers = records.iter().filter(|(k, _)| wanted(k));
            (real_size, pairs(numbers.map(|(_, v)| std::str::from_utf8(v).unwrap_or_default().parse::<u64>()))?)
        } else {
            return Ok((self.left, vec![(0, self.left)]));
        };
        let size = size.ok_or_else(|| bad("a sparse file without a size"))?;
        check_map(&segments, size, self.left)?;
        Ok((size, segments))
    }

    fn old_gnu_map(&mut self, header: &Header) -> io::Result<(Option<u64>, Map)> {
        let gnu = header.as_gnu().ok_or_else(|| bad("a sparse file in a header that is not GNU's"))?;
        let mut segments = Vec::new();
        for s in gnu.sparse.iter().filter(|s| !s.is_empty()) {
            segments.push((s.offset()?, s.length()?));
        }
        let mut more = gnu.is_extended();
        while more {
            let mut ext = GnuExtSparseHeader::new();
            self.inner.fill(ext.as_mut_bytes())?;
            for s in ext.sparse().iter().filter(|s| !s.is_empty()) {
                segments.push((s.offset()?, s.length()?));
            }
            more = ext.is_extended();
            limit(segments.len())?;
        }
        Ok((Some(gnu.real_size()?), segments))
    }

    /// The map of the pax dialect 1.0: decimal lines before the data, padded to a block.
    fn map_in_data(&mut self) -> io::Result<Map> {
        let mut numbers = Vec::new();
        let mut digits = String::new();
        let mut wanted = 1;
        while numbers.len() < wanted {
            let mut block = [0; BLOCK];
            self.data(&mut block)?;
            for b in block {
                match b {
                    b'0'..=b'9' if digits.len() < 20 => digits.push(b.into()),
                    b'\n' if numbers.len() < wanted => {
                        numbers.push(digits.parse::<u64>().map_err(|_| bad("a bad number in a sparse map"))?);
                        digits.clear();
                        let pairs = usize::try_from(numbers[0]).unwrap_or(usize::MAX);
                        limit(pairs)?;
                        wanted = 1 + 2 * pairs;
                    }
                    0 if numbers.len() == wanted => {}
                    _ => return Err(bad("a bad sparse map")),
                }
            }
        }
        pairs(numbers.into_iter().skip(1).map(Ok::<u64, io::Error>))
    }
}

fn limit(segments: usize) -> io::Result<()> {
    if segments > MAX_SEGMENTS { Err(bad("a sparse file in too many pieces")) } else { Ok(()) }
}

fn pairs<E>(mut numbers: impl Iterator<Item = Result<u64, E>>) -> io::Result<Map> {
    let mut out = Vec::new();
    while let Some(offset) = numbers.next() {
        match (offset, numbers.next()) {
            (Ok(offset), Some(Ok(len))) => out.push((offset, len)),
            _ => return Err(bad("a bad sparse map")),
        }
    }
    Ok(out)
}

fn check_map(segments: &[(u64, u64)], size: u64, stored: u64) -> io::Result<()> {
    let mut total = 0u64;
    for (offset, len) in segments {
        let end = offset.checked_add(*len).filter(|end| *end <= size);
        total =
            total.checked_add(*len).filter(|_| end.is_some()).ok_or_else(|| bad("a sparse map outside its file"))?;
    }
    if total > stored { Err(bad("a sparse map longer than its data")) } else { Ok(()) }
}

fn what(kind: EntryType, path: &[u8]) -> Option<What> {
    Some(match kind {
        EntryType::Link => What::HardLink,
        EntryType::Symlink => What::File(FileType::Symlink),
        EntryType::Directory => What::File(FileType::Dir),
        EntryType::Char => What::File(FileType::Char),
        EntryType::Block => What::File(FileType::Block),
        EntryType::Fifo => What::File(FileType::Fifo),
        // The oldest archives mark a directory by its slash alone.
        EntryType::Regular if path.ends_with(b"/") => What::File(FileType::Dir),
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => What::File(FileType::File),
        kind => match kind.as_byte() {
            // The name of the archive.
            b'V' => return None,
            letter @ (b'D' | b'M' | b'N') => What::Foreign(letter),
            letter => What::Odd(letter),
        },
    })
}

fn xattrs<'a>(records: impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>) -> Records {
    let named =
        |(key, value): (&Vec<u8>, &Vec<u8>)| Some((key.strip_prefix(b"SCHILY.xattr.")?.to_vec(), value.clone()));
    let all: Vec<(&Vec<u8>, &Vec<u8>)> = records.collect();
    let mut out: Records = all.iter().copied().filter_map(named).collect();
    // GNU tar tells lists as text.
    for (key, name) in [("SCHILY.acl.access", acl::ACCESS), ("SCHILY.acl.default", acl::DEFAULT)] {
        let text =
            all.iter().find(|(k, _)| k.as_slice() == key.as_bytes()).and_then(|(_, v)| std::str::from_utf8(v).ok());
        let is_there = out.iter().any(|(known, _)| known == name);
        let list = text.filter(|_| !is_there).and_then(acl::Acl::from_text);
        out.extend(list.map(|list| (name.to_vec(), list.encode())));
    }
    out
}

fn without_nul(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(end) = bytes.iter().position(|b| *b == 0) {
        bytes.truncate(end);
    }
    bytes
}

/// Records `LEN KEY=VALUE\n`, where a value may hold any bytes.
fn records(mut data: &[u8]) -> io::Result<Records> {
    let mut out = Vec::new();
    while !data.is_empty() && data[0] != 0 {
        let one = |data: &[u8]| {
            let space = data.iter().position(|b| *b == b' ')?;
            let len: usize = std::str::from_utf8(data.get(..space)?).ok()?.parse().ok()?;
            let body = data.get(space + 1..len.checked_sub(1)?)?;
            let equals = body.iter().position(|b| *b == b'=')?;
            (data.get(len - 1) == Some(&b'\n')).then(|| ((body[..equals].to_vec(), body[equals + 1..].to_vec()), len))
        };
        let (record, len) = one(data).ok_or_else(|| bad("a malformed extended header"))?;
        out.push(record);
        data = &data[len..];
    }
    Ok(out)
}

/// Seconds with an optional sign and fraction.
fn parse_time(text: &[u8]) -> Option<Time> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let secs: i64 = whole.parse().ok()?;
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanos: u32 = digits.parse().ok()?;
    match whole.starts_with('-') && nanos > 0 {
        true => Some(Time { secs: secs.checked_sub(1)?, nanos: 1_000_000_000 - nanos }),
        false => Some(Time { secs, nanos }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_with_signs_and_fractions() {
        assert_eq!(parse_time(b"12"), Some(Time { secs: 12, nanos: 0 }));
        assert_eq!(parse_time(b"12.5"), Some(Time { secs: 12, nanos: 500_000_000 }));
        assert_eq!(parse_time(b"-0.25"), Some(Time { secs: -1, nanos: 750_000_000 }));
        assert_eq!(parse_time(b"1.123456789012"), Some(Time { secs: 1, nanos: 123_456_789 }));
        assert_eq!(parse_time(b"x"), None);
    }

    #[test]
    fn a_record_may_hold_newlines() {
        let data = b"17 a.b=x\ny=\n z\0q\n8 k=v12\n";
        assert_eq!(records(data).unwrap()[0], (b"a.b".to_vec(), b"x\ny=\n z\0q".to_vec()));
        assert!(records(b"99 k=v\n").is_err());
        assert!(records(b"3 \n").is_err());
    }

    #[test]
    fn maps_that_lie_outside_their_file_are_refused() {
        assert!(check_map(&[(0, 10), (20, 10)], 30, 20).is_ok());
        assert!(check_map(&[(20, 11)], 30, 20).is_err());
        assert!(check_map(&[(u64::MAX, 2)], u64::MAX, 20).is_err());
        assert!(check_map(&[(0, 10), (20, 10)], 30, 19).is_err());
    }

    #[test]
    fn garbage_is_an_error_and_nothing_is_the_end() {
        assert!(TarReader::new(&[0u8; 1024][..]).next().unwrap().is_none());
        assert!(TarReader::new(&[][..]).next().unwrap().is_none());
        assert!(TarReader::new(&[7u8; 1024][..]).next().is_err());
        assert!(TarReader::new(&[7u8; 100][..]).next().is_err());
    }
}
