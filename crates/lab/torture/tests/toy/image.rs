//! How the toy lies on its device: two slots, each a header of a sector and a state.

use arbor_base::device::{Device, Kind, Request, SECTOR};
use arbor_base::layout::{crc, get_u32, get_u64};
use arbor_base::vfs::{Errno, Result, Time};
use arbor_torture::data::Data;
use arbor_torture::model::{Body, Dir, Name, Node, State};
use std::collections::BTreeMap;
use std::sync::Arc;

const MAGIC: u64 = 0x746f_7973_6c6f_7401;
/// A state is written in pieces, so that a power cut has something to choose from.
const PIECE: usize = 1 << 10;

pub struct Slots {
    pub sequence: u64,
    pub flags: u64,
    pub payload: Vec<u8>,
}

impl Slots {
    fn place(device: &dyn Device, slot: u64) -> (u64, u64) {
        let len = device.geometry().size / 2 / SECTOR as u64 * SECTOR as u64;
        (slot * len, len)
    }

    pub fn erase(device: &dyn Device) -> Result<()> {
        (0..2).try_for_each(|slot| Slots::erase_one(device, slot))
    }

    pub fn erase_one(device: &dyn Device, slot: u64) -> Result<()> {
        Ok(device.write_at(Kind::Super, Slots::place(device, slot).0, &[0; SECTOR])?)
    }

    pub fn write(device: &dyn Device, slot: u64, sequence: u64, flags: u64, state: &State) -> Result<()> {
        let (start, len) = Slots::place(device, slot);
        let payload = encode(state);
        let mut bytes = Vec::new();
        for field in [MAGIC, sequence, flags, payload.len() as u64] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        let sum = crc(&[&bytes[..], &payload].concat());
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes.resize(SECTOR, 0);
        bytes.extend_from_slice(&payload);
        bytes.resize(bytes.len().next_multiple_of(SECTOR), 0);
        if bytes.len() as u64 > len {
            return Err(Errno::ENOSPC.into());
        }
        let pieces = bytes.chunks(PIECE).enumerate();
        let batch = pieces.map(|(i, p)| Request::write(Kind::Log, start + (i * PIECE) as u64, vec![p.to_vec().into()]));
        Ok(device.submit(batch.collect()).wait_all()?)
    }

    pub fn newest(device: &dyn Device) -> Result<Option<Slots>> {
        let both = [Slots::read(device, 0)?, Slots::read(device, 1)?];
        Ok(both.into_iter().flatten().max_by_key(|s| s.sequence))
    }

    fn read(device: &dyn Device, slot: u64) -> Result<Option<Slots>> {
        let (start, len) = Slots::place(device, slot);
        let mut head = [0; SECTOR];
        device.read_at(Kind::Super, start, &mut head)?;
        let field = |i: usize| get_u64(&head, i * 8).unwrap_or_default();
        let size = field(3);
        if field(0) != MAGIC || size > len - SECTOR as u64 {
            return Ok(None);
        }
        let mut payload = vec![0; (size as usize).next_multiple_of(SECTOR)];
        device.read_at(Kind::Log, start + SECTOR as u64, &mut payload)?;
        payload.truncate(size as usize);
        let whole = get_u32(&head, 32) == Some(crc(&[&head[..32], &payload].concat()));
        Ok(whole.then(|| Slots { sequence: field(1), flags: field(2), payload }))
    }
}

fn put(out: &mut Vec<u8>, n: u64) {
    out.extend_from_slice(&n.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// A cursor: each step takes something off the front.
struct Get<'a>(&'a [u8]);

impl<'a> Get<'a> {
    fn take(&mut self, len: u64) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(usize::try_from(len).ok()?)?;
        self.0 = rest;
        Some(head)
    }

    fn num(&mut self) -> Option<u64> {
        get_u64(self.take(8)?, 0)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.num()?;
        self.take(len)
    }
}

fn encode(state: &State) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, state.next);
    put(&mut out, state.nodes.len() as u64);
    for (ino, node) in &state.nodes {
        put(&mut out, *ino);
        for n in [node.mode, node.nlink, node.uid, node.gid, node.rdev] {
            put(&mut out, u64::from(n));
        }
        for t in node.times {
            put(&mut out, t.secs as u64);
            put(&mut out, u64::from(t.nanos));
        }
        put(&mut out, node.xattrs.len() as u64);
        for (key, value) in &node.xattrs {
            put_bytes(&mut out, key);
            put_bytes(&mut out, value);
        }
        encode_body(&mut out, &node.body);
    }
    out
}

fn encode_body(out: &mut Vec<u8>, body: &Body) {
    match body {
        Body::File(data) => {
            put(out, 0);
            put(out, data.size());
            put(out, data.pages().len() as u64);
            for (n, page) in data.pages() {
                put(out, *n);
                put_bytes(out, page);
            }
        }
        Body::Dir(dir) => {
            put(out, 1);
            put(out, dir.parent);
            put(out, dir.names.len() as u64);
            for (name, entry) in &dir.names {
                put_bytes(out, name);
                put(out, entry.ino);
                put(out, entry.stamp);
            }
        }
        Body::Symlink(target) => {
            put(out, 2);
            put_bytes(out, target);
        }
        Body::Special => put(out, 3),
    }
}

pub fn decode(bytes: &[u8]) -> Option<State> {
    let mut get = Get(bytes);
    let next = get.num()?;
    let nodes = (0..get.num()?).map(|_| decode_node(&mut get)).collect::<Option<BTreeMap<_, _>>>()?;
    Some(State { nodes, next })
}

fn decode_node(get: &mut Get<'_>) -> Option<(u64, Arc<Node>)> {
    let ino = get.num()?;
    let mut n = [0; 5];
    for field in &mut n {
        *field = u32::try_from(get.num()?).ok()?;
    }
    let mut times = [Time::default(); 4];
    for t in &mut times {
        *t = Time { secs: get.num()? as i64, nanos: get.num()? as u32 };
    }
    let xattrs = (0..get.num()?).map(|_| Some((get.bytes()?.to_vec(), Arc::new(get.bytes()?.to_vec()))));
    let xattrs = xattrs.collect::<Option<_>>()?;
    let [mode, nlink, uid, gid, rdev] = n;
    let body = decode_body(get)?;
    Some((ino, Arc::new(Node { mode, nlink, uid, gid, rdev, times, unnamed: false, xattrs, body })))
}

fn decode_body(get: &mut Get<'_>) -> Option<Body> {
    Some(match get.num()? {
        0 => {
            let size = get.num()?;
            let pages = (0..get.num()?).map(|_| Some((get.num()?, Arc::new(get.bytes()?.to_vec()))));
            Body::File(Data::from_parts(size, pages.collect::<Option<_>>()?))
        }
        1 => {
            let parent = get.num()?;
            let names = (0..get.num()?).map(|_| {
                let name: Arc<[u8]> = get.bytes()?.into();
                Some((name, Name { ino: get.num()?, stamp: get.num()? }))
            });
            Body::Dir(Dir::from_parts(parent, names.collect::<Option<_>>()?))
        }
        2 => Body::Symlink(get.bytes()?.to_vec()),
        3 => Body::Special,
        _ => return None,
    })
}
