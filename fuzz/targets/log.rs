//! The input is the entries of a log record with a valid checksum, on a volume that needs recovery.
#![no_main]

use arbor_base::device::{Device, Kind, MemDevice};
use arbor_base::vfs::{Engine, Options, Structure};
use arbor_torture::mutate::{self, Image, Limits};
use arbor_yfs::Yfs;
use arbor_yfs::format::{EntryType, LOG_ENTRY, LogEntry, LogHeader, RECORD_HEAD};
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;
use zerocopy::{FromBytes, IntoBytes};

/// Reads the input piece by piece; past its end it is zeros.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let n = N.min(self.0.len());
        out[..n].copy_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
        out
    }
    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }
}

/// A log entry, and the bytes after it.
fn entry(input: &mut Input<'_>, addresses: &[u64], out: &mut Vec<u8>) {
    let [kind, seal, tid, how] = input.take();
    let addr = match how % 4 {
        0 => u64::from_le_bytes(input.take()),
        1 => u64::from(input.u16()),
        _ => addresses.get(usize::from(input.u16()) % addresses.len().max(1)).copied().unwrap_or(0),
    };
    let (at, len) = (input.u16(), input.u16());
    let long = if how & 0x80 != 0 { u32::from(len) << 8 } else { u32::from(len) };
    let data = if kind % 7 == EntryType::Update as u8 { usize::from(len % 256) } else { 0 };
    let head = LogEntry {
        kind: kind % 7,
        seal: seal % 4,
        tid: u32::from(tid % 3).into(),
        addr: addr.into(),
        at: u32::from(at).into(),
        len: if data > 0 { data as u32 } else { long }.into(),
        ..LogEntry::default()
    };
    out.extend_from_slice(head.as_bytes());
    let n = data.min(input.0.len());
    out.extend_from_slice(&input.0[..n]);
    out.resize(out.len() + data - n, 0);
    input.0 = &input.0[n..];
}

/// Puts the entries into a record.
fn put(disk: &MemDevice, record: &Structure, body: &[u8], count: u32) {
    let mut bytes = vec![0; record.len];
    disk.read_at(Kind::Log, record.offset, &mut bytes).expect("read");
    let mut head = LogHeader::read_from_prefix(&bytes).expect("head").0;
    let n = body.len().min(record.len - RECORD_HEAD);
    (head.len, head.count) = ((n as u32).into(), count.into());
    bytes[..RECORD_HEAD].copy_from_slice(head.as_bytes());
    bytes[RECORD_HEAD..RECORD_HEAD + n].copy_from_slice(&body[..n]);
    disk.write_at(Kind::Log, record.offset, &bytes).expect("write");
    Yfs.reseal(disk, record).expect("reseal");
}

fuzz_target!(|data: &[u8]| {
    static IMAGES: OnceLock<Vec<Image>> = OnceLock::new();
    let images = IMAGES.get_or_init(|| {
        let mut images = mutate::images(&Yfs).expect("images");
        images.retain(|i| i.structures().iter().any(|s| s.kind == "log record"));
        images
    });
    let mut input = Input(data);
    let image = &images[usize::from(input.u16()) % images.len()];
    let records: Vec<_> = image.structures().iter().filter(|s| s.kind == "log record").collect();
    let record = records[usize::from(input.u16()) % records.len()];
    let addresses: Vec<u64> = image.structures().iter().flat_map(|s| s.addresses.iter().copied()).collect();
    let (mut body, mut count) = (Vec::new(), 0);
    while !input.0.is_empty() && body.len() + 2 * LOG_ENTRY + RECORD_HEAD < record.len {
        entry(&mut input, &addresses, &mut body);
        count += 1;
    }
    let commit = LogEntry { kind: EntryType::Commit as u8, ..LogEntry::default() };
    body.truncate(record.len - RECORD_HEAD - LOG_ENTRY);
    body.extend_from_slice(commit.as_bytes());
    let disk = image.disk();
    put(&disk, record, &body, count + 1);
    if let Err(why) = mutate::drive(&Yfs, &disk, &Options::default(), &Limits::default()) {
        panic!("{why}");
    }
});
