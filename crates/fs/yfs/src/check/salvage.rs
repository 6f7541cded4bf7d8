//! Inodes that fail their check: what of them can be kept, and how sure that is.
//!
//! A single wrong byte is found by the checksum and put back; then everything holds as before. Else the contents
//! decide: what the area holds says whether this was a file, a directory or a symbolic link. What cannot be verified
//! (owner, permissions, times) is kept, and said to be doubtful.

use super::dirs::{Name, encode, set_inline};
use super::inodes::{extent, plausible};
use super::issue::{Issue, Node};
use super::tree::{self, Spec};
use super::view::RawInode;
use super::{Checker, DIR_KIND};
use crate::body;
use crate::format::*;
use arbor_base::device::Kind;
use arbor_base::layout::{crc_without, get_u16, get_u32, get_u64};
use arbor_base::vfs::{FileType, Result, mode};
use zerocopy::IntoBytes;

/// Kind of a symbolic link.
const LINK_KIND: u8 = (mode::IFLNK >> 12) as u8;
/// Kind of a regular file.
const FILE_KIND: u8 = (mode::IFREG >> 12) as u8;

/// An inode after its head was checked.
pub(super) enum Head {
    Free,
    /// Nothing of it can be kept; whether it counts as in use.
    Lost(bool),
    Used {
        i: RawInode,
        /// It differs from what is on disk.
        changed: bool,
        /// Its checksum does not bear out its fields.
        doubt: bool,
    },
}

impl Checker<'_> {
    /// Decides about an inode by its head. `masked`: its chunk's mask says that it is in use.
    pub(super) fn read_head(&mut self, ino: u64, bytes: &[u8], masked: bool) -> Result<Head> {
        let Some(i) = RawInode::decode(ino, bytes) else { return Ok(Head::Free) };
        let why = match check_inode(ino, bytes) {
            Ok(()) if i.d.magic.get() == 0 && masked && bytes.iter().any(|b| *b != 0) => "its head is zeros".into(),
            Ok(()) if !i.in_use() => return Ok(Head::Free),
            Ok(()) if plausible(&i) => return Ok(Head::Used { i, changed: false, doubt: false }),
            Ok(()) => "its type or its attributes are impossible".into(),
            Err(why) => format!("field {} is {}, expected {}", why.field, why.found, why.expected),
        };
        if let Some((good, told)) = corrected(&i) {
            let issue = Issue::InodeSalvaged { ino: Node(ino), why: format!("{why}; {told}") };
            return self.keep(issue, good, false);
        }
        if unused(&i) || !masked {
            if self.f.judge(Issue::FreeInode { ino: Node(ino), why }) {
                self.write_inode(&super::inodes::freed(i))?;
            }
            return Ok(Head::Free);
        }
        match self.guess(&i)? {
            Some(good) => {
                let told = format!("{why}; {}", doubtful(&good.d));
                let head = |d: &Dinode| (d.magic, d.ino, d.mode, d.format, d.xattr_inline);
                let issue = match head(&i.d) == head(&good.d) {
                    true => Issue::InodeChecksum { ino: Node(ino), why: doubtful(&good.d) },
                    false => Issue::InodeSalvaged { ino: Node(ino), why: told },
                };
                self.keep(issue, good, true)
            }
            None => self.clear(i, &why).map(Head::Lost),
        }
    }

    /// Goes on with a mended inode. Without repair it lies over the device in memory.
    fn keep(&mut self, issue: Issue, i: RawInode, doubt: bool) -> Result<Head> {
        let changed = self.f.judge(issue);
        if !i.in_use() {
            if changed {
                self.write_inode(&i)?;
            }
            return Ok(Head::Free);
        }
        if self.r.view.in_memory() {
            self.r.view.lay(i.ino.saturating_mul(SECTOR), &sealed(&i, self.r.geom.inode_size()));
        }
        Ok(Head::Used { i, changed, doubt })
    }

    /// The inode as its contents and its plausible fields make it; `None` if nothing speaks for it.
    fn guess(&self, old: &RawInode) -> Result<Option<RawInode>> {
        let mut i = old.clone();
        (i.d.magic, i.d.ino) = (INODE_MAGIC.into(), i.ino.into());
        if usize::from(i.d.xattr_inline.get()) > self.r.geom.area() {
            i.d.xattr_inline = 0.into();
        }
        let stored = FileType::from_mode(i.d.mode.get()).filter(|_| i.d.mode.get() <= 0xffff).map(|_| i.kind());
        let Some((kind, format)) = self.form(&i, stored)? else { return Ok(None) };
        if stored != Some(kind) {
            let permissions = match i.d.mode.get() {
                m @ ..=0xffff => m & 0o777,
                _ if kind == DIR_KIND => 0o700,
                _ => 0o600,
            };
            i.d.mode = (u32::from(kind) << 12 | permissions).into();
        }
        i.d.format = format as u8;
        if stored.is_none() && format == Format::Inline && kind == FILE_KIND && i.d.size.get() == 0 {
            let end = i.area().iter().rposition(|b| *b != 0).map_or(0, |at| at as u64 + 1);
            i.d.size = end.into();
        }
        if kind == DIR_KIND && format == Format::Inline {
            self.keep_named(&mut i);
        }
        make_possible(&mut i.d);
        Ok(plausible(&i).then_some(i))
    }

    /// Takes entries out of an inline directory whose hash does not bear out their name: with the
    /// inode's checksum wrong nothing else does, and of a torn write names may be mixed.
    fn keep_named(&self, i: &mut RawInode) {
        let (entries, _) = body::parse(i.area());
        let named = entries.iter().filter(|e| e.is_named(self.r.geom.hash_seed));
        let kept: Vec<(u64, Name)> = named.map(|e| (e.key(), e.to_name())).collect();
        if kept.len() < entries.len() {
            let kept: Vec<(u64, &Name)> = kept.iter().map(|(key, name)| (*key, name)).collect();
            set_inline(i, &encode(i.area().len(), &kept));
        }
    }

    /// Kind and format, by what is stored if the area can hold it, else by what the area holds.
    fn form(&self, i: &RawInode, stored: Option<u8>) -> Result<Option<(u8, Format)>> {
        let tree = self.tree_kind(i)?;
        let format = if tree::level(i.area()) == 0 { Format::Extent } else { Format::Btree };
        if let Some(kind) = tree.filter(|k| stored.is_none_or(|s| s == *k) || i.d.format != Format::Inline as u8) {
            return Ok(Some((kind, format)));
        }
        let (entries, damage) = body::parse(i.area());
        let named = || entries.iter().all(|e| e.is_named(self.r.geom.hash_seed));
        if !entries.is_empty() && damage.is_none() && named() {
            return Ok(Some((DIR_KIND, Format::Inline)));
        }
        let fits = i.d.size.get() <= i.area().len() as u64;
        let empty = i.area().iter().all(|b| *b == 0);
        Ok(match stored {
            Some(DIR_KIND) => (empty || !entries.is_empty()).then_some((DIR_KIND, Format::Inline)),
            Some(LINK_KIND | FILE_KIND) if i.d.format == Format::Extent as u8 && empty => {
                stored.map(|kind| (kind, Format::Extent))
            }
            Some(kind) => fits.then_some((kind, Format::Inline)),
            None => (fits && !empty).then_some((FILE_KIND, Format::Inline)),
        })
    }

    /// What the root node in the area belongs to, if there is one.
    fn tree_kind(&self, i: &RawInode) -> Result<Option<u8>> {
        let (area, level) = (i.area(), tree::level(i.area()));
        let count = usize::from(get_u16(area, 0).unwrap_or(0));
        let zeros = area.get(3..NODE_HEADER).is_some_and(|b| b.iter().all(|b| *b == 0));
        if count == 0 || level > tree::MAX_LEVEL || !zeros {
            return Ok(None);
        }
        // In both kinds of leaf, and in inner nodes, this is the first child or run.
        let first = Frag(get_u64(area, NODE_HEADER + 8).unwrap_or(0));
        let there = self.owner_of(first, i.ino)?;
        let spec = |dir| Spec::map(i.ino, dir);
        let fits = |dir| count <= spec(dir).capacity(area.len(), level);
        Ok(match (level, there) {
            (0, Some(BlockType::Dir)) if fits(true) => Some(DIR_KIND),
            (0, Some(BlockType::Symlink)) if fits(false) => Some(LINK_KIND),
            (0, _) if fits(false) && self.good_extents(area, count) => Some(FILE_KIND),
            (1.., Some(BlockType::DirNode)) if fits(true) => Some(DIR_KIND),
            (1.., Some(BlockType::ExtentNode)) if fits(false) => Some(FILE_KIND),
            _ => None,
        })
    }

    /// Type of the block at `start`, if it is this inode's.
    fn owner_of(&self, start: Frag, ino: u64) -> Result<Option<BlockType>> {
        if !self.r.valid_run(start, 1) {
            return Ok(None);
        }
        let head = self.r.read(Kind::Tree, self.r.geom.daddr(start).byte(), SECTOR as usize)?;
        let kinds = [BlockType::Dir, BlockType::DirNode, BlockType::ExtentNode, BlockType::Symlink];
        let mine = get_u64(&head, 24) == Some(ino) && get_u64(&head, 8) == Some(self.r.geom.fsid);
        Ok(kinds.into_iter().find(|k| mine && get_u32(&head, 0) == Some(*k as u32)))
    }

    /// Whether a leaf's records are runs in ascending order.
    fn good_extents(&self, area: &[u8], count: usize) -> bool {
        let records = area.get(NODE_HEADER..).unwrap_or(&[]).chunks_exact(8 + EXTENT_VALUE).take(count);
        let mut end = 0;
        for record in records {
            let key = get_u64(record, 0).unwrap_or(0);
            let Some(value) = record.get(8..).and_then(|v| v.try_into().ok()) else { return false };
            let (start, len, flags) = extent(value);
            if key < end || flags & !UNWRITTEN != 0 || !self.r.valid_run(start, len) {
                return false;
            }
            end = key.saturating_add(len.into());
        }
        true
    }
}

/// Whether the inode looks as one does that was freed.
fn unused(i: &RawInode) -> bool {
    let d = &i.d;
    d.format == Format::Free as u8
        && (d.magic.get(), d.mode.get(), d.nlink.get()) == (INODE_MAGIC, 0, 0)
        && (d.size.get(), d.frags.get()) == (0, 0)
}

/// Fields that no file has are made harmless.
fn make_possible(d: &mut Dinode) {
    for ns in [&mut d.atime_ns, &mut d.mtime_ns, &mut d.ctime_ns, &mut d.btime_ns] {
        if ns.get() >= 1_000_000_000 {
            *ns = 0.into();
        }
    }
    for id in [&mut d.uid, &mut d.gid] {
        if id.get() == u32::MAX {
            *id = 0.into();
        }
    }
}

/// What is kept without proof.
fn doubtful(d: &Dinode) -> String {
    let permissions = d.mode.get() & 0o7777;
    format!("mode {permissions:04o}, owner {}:{} and times cannot be verified", d.uid, d.gid)
}

/// All bytes of an inode with its checksum.
fn sealed(i: &RawInode, inode_size: usize) -> Vec<u8> {
    let mut bytes = bytes_of(i);
    Seal::Inodes.seal(&mut bytes, inode_size);
    bytes
}

fn bytes_of(i: &RawInode) -> Vec<u8> {
    let mut bytes = i.bytes.clone();
    if let Some(head) = bytes.get_mut(..DINODE) {
        head.copy_from_slice(i.d.as_bytes());
    }
    bytes
}

/// The inode with its own magic and number, or with one byte put back, if the checksum bears that
/// out; and what was done.
fn corrected(i: &RawInode) -> Option<(RawInode, String)> {
    let good = |i: &RawInode| check_inode(i.ino, &bytes_of(i)).is_ok() && (plausible(i) || !i.in_use());
    let mut head = i.clone();
    (head.d.magic, head.d.ino) = (INODE_MAGIC.into(), i.ino.into());
    if i.d.magic.get() != 0 && good(&head) {
        return Some((head, "the checksum bears out everything else".into()));
    }
    let bytes = bytes_of(i);
    let (at, mended) = put_back(&bytes, CRC_AT)?;
    let i = RawInode::decode(i.ino, &mended)?;
    let told = format!("the checksum tells that byte {at} was wrong, and what it was");
    (i.d.magic.get() == INODE_MAGIC && good(&i)).then_some((i, told))
}

/// The polynomial of CRC32C, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The bytes with the one put back whose change makes the checksum at `crc_at` right, and which
/// one that is.
pub(super) fn put_back(bytes: &[u8], crc_at: usize) -> Option<(usize, Vec<u8>)> {
    let (at, error) = wrong_byte(bytes, crc_at)?;
    let mut mended = bytes.to_vec();
    *mended.get_mut(at)? ^= error;
    Some((at, mended))
}

/// The single byte whose change makes the checksum right, and the bits to change.
fn wrong_byte(bytes: &[u8], crc_at: usize) -> Option<(usize, u8)> {
    let stored = get_u32(bytes, crc_at)?;
    let syndrome = stored ^ crc_without(bytes, crc_at)?;
    if syndrome == 0 {
        return None;
    }
    for n in 0..4 {
        let byte = (syndrome >> (8 * n)) as u8;
        if byte != 0 && syndrome == u32::from(byte) << (8 * n) {
            return Some((crc_at + n, byte));
        }
    }
    // The register is taken back byte by byte: where the error was, nothing but its bits is left.
    let mut register = syndrome;
    for at in (0..bytes.len()).rev() {
        register = before(register);
        if let Ok(error) = u8::try_from(register)
            && !(crc_at..crc_at + 4).contains(&at)
        {
            return Some((at, error));
        }
    }
    None
}

/// The checksum's register before a byte of zeros went through it.
fn before(register: u32) -> u32 {
    (0..8).fold(register, |r, _| if r >> 31 != 0 { (r ^ POLYNOMIAL) << 1 | 1 } else { r << 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_is_found() {
        for len in [512, 2048] {
            let mut bytes: Vec<u8> = (0..len).map(|n| (n * 7) as u8).collect();
            Seal::Inodes.seal(&mut bytes, len);
            for at in (0..len).step_by(13).chain([4, 7, 8, len - 1]) {
                let mut bad = bytes.clone();
                bad[at] ^= 0xa1;
                assert_eq!(wrong_byte(&bad, CRC_AT), Some((at, 0xa1)));
            }
            bytes[9] ^= 1;
            bytes[300] ^= 4;
            assert_eq!(wrong_byte(&bytes, CRC_AT), None);
        }
    }
}
