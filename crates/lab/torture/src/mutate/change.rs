//! Damage: what is changed in an image, drawn by structure and field, and its text.

use super::image::Image;
use crate::rng::Rng;
use arbor_base::device::{Device, Kind, MemDevice, SECTOR};
use arbor_base::vfs::{Engine, Field, Meaning};

/// New bytes in a structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// Number of the structure.
    pub structure: usize,
    /// Where in it.
    pub at: usize,
    pub bytes: Vec<u8>,
    /// The checksum is made right afterwards.
    pub sealed: bool,
}

/// Variants of a value that depend on its own bits only.
const PLAIN: u32 = 12;

/// How many values are tried for a field.
pub(super) fn variants(field: &Field) -> u32 {
    match field.meaning {
        Meaning::Number => PLAIN + 4,
        Meaning::Address => PLAIN + 8,
        Meaning::Bytes => 10,
        Meaning::Checksum => 1,
    }
}

impl Image {
    /// The bytes of a structure as they are in the good image.
    fn bytes(&self, structure: usize, at: usize, len: usize) -> Vec<u8> {
        let Some(s) = self.structures.get(structure) else { return Vec::new() };
        let from = s.offset + at as u64;
        let first = from - from % SECTOR as u64;
        let mut sectors = vec![0; ((from - first) as usize + len).next_multiple_of(SECTOR)];
        match self.disk.read_at(Kind::Other, first, &mut sectors) {
            Ok(()) => sectors[(from - first) as usize..][..len].to_vec(),
            Err(_) => vec![0; len],
        }
    }

    /// Sets a field to a nasty value.
    pub(crate) fn set(&self, (structure, field): (usize, usize), variant: u32, rng: &mut Rng) -> Change {
        let s = &self.structures[structure];
        let f = &s.fields[field];
        let (at, len) = (f.at as usize, f.len as usize);
        let old = self.bytes(structure, at, len);
        let bytes = match f.meaning {
            Meaning::Checksum => old.iter().map(|b| b ^ 0x5a).collect(),
            Meaning::Bytes => self.text(structure, f, variant, old, rng),
            Meaning::Number | Meaning::Address => match variant.checked_sub(PLAIN) {
                None => plain(&old, variant),
                Some(0..=3) => self.sibling(s.kind, f, rng).unwrap_or_else(|| plain(&old, 2)),
                Some(4 | 5) if !s.addresses.is_empty() => number(*rng.pick(&s.addresses), len),
                Some(_) => number(self.address(rng), len),
            },
        };
        Change { structure, at, bytes, sealed: f.meaning != Meaning::Checksum }
    }

    /// The same field of another structure of the kind, or elsewhere in the same.
    fn sibling(&self, kind: &'static str, f: &Field, rng: &mut Rng) -> Option<Vec<u8>> {
        let (s, other) = *rng.pick(self.places.get(&(kind, f.name))?);
        let other = &self.structures[s].fields[other];
        let mut bytes = self.bytes(s, other.at as usize, other.len as usize);
        bytes.resize(f.len as usize, 0);
        Some(bytes)
    }

    /// The address of any structure.
    fn address(&self, rng: &mut Rng) -> u64 {
        let structure = rng.pick(&self.structures);
        if structure.addresses.is_empty() { 1 } else { *rng.pick(&structure.addresses) }
    }

    fn text(&self, structure: usize, f: &Field, variant: u32, mut bytes: Vec<u8>, rng: &mut Rng) -> Vec<u8> {
        let len = bytes.len() as u64;
        match variant {
            0 => bytes[rng.below(len) as usize] = b'/',
            1 => bytes[rng.below(len) as usize] = 0,
            2 => bytes[0] = b'.',
            3 => bytes.iter_mut().zip(b"..").for_each(|(to, from)| *to = *from),
            4 => bytes.fill(0),
            5 => bytes.fill(0xff),
            6 => bytes[rng.below(len) as usize] ^= 1 << rng.below(8),
            7 => bytes.iter_mut().for_each(|b| *b = rng.next_u64() as u8),
            8 => bytes.fill(b'.'),
            _ => bytes = self.sibling(self.structures[structure].kind, f, rng).unwrap_or(bytes),
        }
        bytes
    }

    /// Any change.
    pub(super) fn draw(&self, near: Option<usize>, rng: &mut Rng) -> Change {
        let keys = self.places.len() as u64;
        let place = match near {
            Some(s) if rng.one_in(2) && !self.structures[s].fields.is_empty() => {
                (s, rng.below(self.structures[s].fields.len() as u64) as usize)
            }
            // By kind and field first, so that what is rare is met as often as what is not.
            _ => {
                let key = rng.below(keys) as usize;
                *rng.pick(self.places.values().nth(key).map_or(&[(0, 0)], |p| &p[..]))
            }
        };
        if !rng.one_in(4) {
            let variant = rng.below(variants(&self.structures[place.0].fields[place.1]).into()) as u32;
            let sealed = !rng.one_in(24);
            let change = self.set(place, variant, rng);
            return Change { sealed: change.sealed && sealed, ..change };
        }
        let s = &self.structures[place.0];
        let at = s.fields[place.1].at as usize;
        let rest = s.len - at;
        let most = if rng.one_in(2) { rest.min(16) } else { rest };
        let len = 1 + rng.below(most as u64) as usize;
        let bytes = match rng.below(4) {
            0 => vec![0; len],
            1 => (0..len).map(|_| rng.next_u64() as u8).collect(),
            _ => {
                // A piece of another structure of the kind.
                let key = (s.kind, s.fields[place.1].name);
                let (other, field) = *rng.pick(&self.places[&key]);
                let from = self.structures[other].fields[field].at as usize;
                let len = len.min(self.structures[other].len - from);
                self.bytes(other, from, len)
            }
        };
        Change { structure: place.0, at, bytes, sealed: !rng.one_in(24) }
    }

    /// A change from five bytes of a fuzzer's input, or more: kind of field, which of them, and a
    /// variant or the new bytes.
    pub(super) fn decode<'i>(&self, input: &'i [u8]) -> Option<(Change, &'i [u8])> {
        let (head, rest) = input.split_at_checked(5)?;
        let int = |at: usize| usize::from(u16::from_le_bytes([head[at], head[at + 1]]));
        let places = self.places.values().nth(int(0) % self.places.len().max(1))?;
        let (structure, field) = *places.get(int(2) % places.len())?;
        let f = &self.structures[structure].fields[field];
        let variant = u32::from(head[4]);
        if variant < 64 {
            let mut rng = Rng::new(int(0) as u64 ^ (int(2) as u64) << 16);
            return Some((self.set((structure, field), variant % variants(f), &mut rng), rest));
        }
        let (new, rest) = rest.split_at_checked((f.len as usize).min(8).min(rest.len()))?;
        Some((Change { structure, at: f.at as usize, bytes: new.to_vec(), sealed: variant < 250 }, rest))
    }

    /// The image with changes.
    pub(crate) fn with(&self, engine: &dyn Engine, changes: &[Change]) -> Result<MemDevice, String> {
        let disk = self.disk.snapshot();
        for c in changes {
            let s = self.structures.get(c.structure).ok_or("no such structure")?;
            let (from, len) = (s.offset + c.at as u64, c.bytes.len());
            let first = from - from % SECTOR as u64;
            let mut sectors = vec![0; ((from - first) as usize + len).next_multiple_of(SECTOR)];
            disk.read_at(Kind::Other, first, &mut sectors).map_err(|e| e.to_string())?;
            sectors[(from - first) as usize..][..len].copy_from_slice(&c.bytes);
            disk.write_at(Kind::Other, first, &sectors).map_err(|e| e.to_string())?;
            if c.sealed {
                engine.reseal(&disk, s).map_err(|e| format!("reseal: {e}"))?;
            }
        }
        Ok(disk)
    }

    /// What a repeating line says: `image=NAME changes=...`.
    pub(super) fn print(&self, changes: &[Change]) -> String {
        format!("image={} changes={}", self.name, self.print_changes(changes))
    }

    /// Changes as `STRUCTURE NUMBER+AT=HEX;...`, with `!` where the checksum is left wrong.
    pub(crate) fn print_changes(&self, changes: &[Change]) -> String {
        let each = changes.iter().map(|c| {
            let s = &self.structures[c.structure];
            let hex: String = c.bytes.iter().map(|b| format!("{b:02x}")).collect();
            let open = if c.sealed { "" } else { "!" };
            format!("{} {}+{}={hex}{open}", s.kind, s.number, c.at)
        });
        each.collect::<Vec<_>>().join(";")
    }

    /// For people: which fields were changed.
    pub(crate) fn explain(&self, changes: &[Change]) -> String {
        let each = changes.iter().map(|c| {
            let s = &self.structures[c.structure];
            let field = s.fields.iter().find(|f| f.at as usize == c.at && f.len as usize == c.bytes.len());
            match (field, <[u8; 8]>::try_from(&padded(&c.bytes)[..])) {
                (Some(f), Ok(value)) => {
                    let (old, new) = (self.bytes(c.structure, c.at, c.bytes.len()), u64::from_le_bytes(value));
                    let old = <[u8; 8]>::try_from(&padded(&old)[..]).map_or(0, u64::from_le_bytes);
                    format!("{} {}: {} from {old:#x} to {new:#x}", s.kind, s.number, f.name)
                }
                (Some(f), _) => format!("{} {}: {}", s.kind, s.number, f.name),
                (None, _) => format!("{} {}: {} bytes at {}", s.kind, s.number, c.bytes.len(), c.at),
            }
        });
        each.collect::<Vec<_>>().join(", ")
    }

    /// Reads the part of a line after `changes=`.
    pub(crate) fn parse(&self, text: &str) -> Result<Vec<Change>, String> {
        text.trim()
            .split(';')
            .map(|one| self.parse_one(one).ok_or_else(|| format!("{one:?} fits no structure{}", self.like(one))))
            .collect()
    }

    /// What there is of the kind that the text names.
    fn like(&self, text: &str) -> String {
        let kind = text.trim_start().split(|c: char| c.is_ascii_digit()).next().unwrap_or_default().trim_end();
        let numbers: Vec<String> =
            self.structures.iter().filter(|s| s.kind == kind).map(|s| s.number.to_string()).collect();
        if numbers.is_empty() { String::new() } else { format!("; {kind}: {}", numbers.join(", ")) }
    }

    fn parse_one(&self, text: &str) -> Option<Change> {
        let (place, value) = text.split_once('=')?;
        let (name, at) = place.rsplit_once('+')?;
        let (kind, number) = name.trim().rsplit_once(' ')?;
        let number: u64 = number.parse().ok()?;
        let structure = self.structures.iter().position(|s| s.kind == kind && s.number == number)?;
        let at: usize = at.parse().ok()?;
        let hex = value.trim_end_matches('!');
        let pairs = hex.as_bytes().chunks(2);
        let bytes: Option<Vec<u8>> = pairs.map(|p| u8::from_str_radix(std::str::from_utf8(p).ok()?, 16).ok()).collect();
        let bytes = bytes?;
        let fits = at.checked_add(bytes.len())? <= self.structures[structure].len;
        fits.then_some(Change { structure, at, bytes, sealed: !value.ends_with('!') })
    }
}

fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    if out.len() < 8 {
        out.resize(8, 0);
    }
    out
}

fn number(value: u64, len: usize) -> Vec<u8> {
    let mut bytes = value.to_le_bytes().to_vec();
    bytes.resize(len, 0);
    bytes
}

/// A boundary value of the width of `old`.
fn plain(old: &[u8], variant: u32) -> Vec<u8> {
    let len = old.len();
    let bits = 8 * len.clamp(1, 8) as u32;
    let max = u64::MAX >> (64 - bits);
    let sign = 1 << (bits - 1);
    let old = <[u8; 8]>::try_from(&padded(old)[..8]).map_or(0, u64::from_le_bytes);
    let value = match variant {
        0 => 0,
        1 => 1,
        2 => old.wrapping_add(1),
        3 => old.wrapping_sub(1),
        4 => max,
        5 => max - 1,
        6 => sign,
        7 => sign - 1,
        8 => old ^ sign,
        9 => old.wrapping_mul(2),
        10 => old / 2,
        _ => old.wrapping_add(64),
    };
    number(value & max, len)
}
