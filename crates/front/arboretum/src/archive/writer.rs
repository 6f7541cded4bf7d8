//! A volume as a tar stream in the pax format.

use crate::dir::{DirEntry, WalkEntry};
use crate::error::{Failure, Named as _, Result};
use crate::file::next_data;
use crate::host::device_parts;
use crate::node::Node;
use crate::trail::{Kept, Trail};
use crate::transfer::{CopyOptions, CopyStats};
use crate::volume::{CHUNK, Volume};
use arbor_base::vfs::{FileType, Ino, Seek, Time, acl};
use std::collections::HashMap;
use std::io::{self, Write};
use tar::{EntryType, Header};

const BLOCK: u64 = 512;
/// Length of the fields for a name and a link's target.
const NAME_LEN: usize = 100;

pub(super) fn export(volume: &Volume, writer: impl Write, options: &mut CopyOptions<'_>) -> Result<CopyStats> {
    let mut export = Export {
        out: io::BufWriter::with_capacity(CHUNK, writer),
        keep_owner: options.owner != Some(false),
        keep_xattrs: options.xattrs,
        options,
        stats: CopyStats::default(),
        trail: Trail::default(),
        links: HashMap::new(),
        buf: vec![0; CHUNK],
    };
    for step in volume.walk("/")?.sorted() {
        let WalkEntry { entry, depth, .. } = match step {
            Ok(entry) => entry,
            Err(e) => {
                export.pass(e.into(), b"")?;
                continue;
            }
        };
        export.member(&entry, depth).or_else(|e| export.pass(e, entry.path_bytes()))?;
        export.options.tell(&export.stats, entry.path_bytes())?;
    }
    export.out.write_all(&[0; 2 * BLOCK as usize])?;
    export.out.flush()?;
    Ok(export.stats)
}

struct Export<'a, 'o, W: Write> {
    options: &'a mut CopyOptions<'o>,
    out: io::BufWriter<W>,
    stats: CopyStats,
    /// Where the walk is.
    trail: Trail,
    /// Directory and name under which each file with several was written.
    links: HashMap<Ino, (Kept, Vec<u8>)>,
    keep_owner: bool,
    keep_xattrs: bool,
    buf: Vec<u8>,
}

/// Extended records of one member.
#[derive(Default)]
struct Records(Vec<u8>);

impl Records {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        let rest = key.len() + value.len() + 3;
        let mut len = rest + 1;
        while rest + len.to_string().len() != len {
            len = rest + len.to_string().len();
        }
        self.0.extend_from_slice(format!("{len} ").as_bytes());
        self.0.extend_from_slice(key);
        self.0.push(b'=');
        self.0.extend_from_slice(value);
        self.0.push(b'\n');
    }
}

impl<W: Write> Export<'_, '_, W> {
    /// Goes on after a member that cannot be read. Nothing of it was written.
    fn pass(&mut self, e: Failure, path: &[u8]) -> Result<()> {
        self.options.pass(&mut self.stats, e, Failure::is_damage, |e| e.named("archive", path))
    }

    fn member(&mut self, entry: &DirEntry, depth: usize) -> Result<()> {
        let (node, kind) = (&*entry.node, entry.file_type());
        // The root has no name.
        self.trail.cut(depth.saturating_sub(1));
        if kind == FileType::Dir && depth > 0 {
            self.trail.enter(entry.name());
        }
        let name = member_name(entry.path_bytes(), kind);
        if kind == FileType::Socket {
            self.stats.skipped.push(format!("{}: an archive holds no sockets", entry.path().display()));
            return Ok(());
        }
        let mut header = Header::new_ustar();
        let mut records = Records::default();
        self.describe(&mut header, &mut records, node);
        if let Some((dir, first)) = self.links.get(&node.ino()) {
            let mut first_name = self.trail.names(*dir);
            first_name.push(first);
            let first = first_name.join(&b'/');
            header.set_entry_type(EntryType::Link);
            self.stats.hard_links += 1;
            return self.head(header, records, &name, &first, 0);
        }
        self.attributes(&mut records, node).or_else(|e| self.pass(e, entry.path_bytes()))?;
        header.set_entry_type(entry_type(kind));
        match kind {
            FileType::File => self.file(header, records, &name, entry)?,
            kind => self.other(header, records, &name, (kind, node))?,
        }
        if node.attr.nlink > 1 && kind != FileType::Dir {
            self.links.insert(node.ino(), (self.trail.keep(), entry.name().to_vec()));
        }
        Ok(())
    }

    /// Anything but a regular file.
    fn other(
        &mut self,
        mut header: Header,
        records: Records,
        name: &[u8],
        (kind, node): (FileType, &Node),
    ) -> Result<()> {
        match kind {
            FileType::Dir => self.stats.directories += 1,
            FileType::Symlink => {
                let target = node.fs().readlink(node.ino())?;
                self.stats.symlinks += 1;
                return self.head(header, records, name, &target, 0);
            }
            _ => {
                self.stats.special += 1;
                let (major, minor) = device_parts(node.attr.rdev);
                header.set_device_major(major)?;
                header.set_device_minor(minor)?;
            }
        }
        self.head(header, records, name, b"", 0)
    }

    fn describe(&self, header: &mut Header, records: &mut Records, node: &Node) {
        let attr = &node.attr;
        header.set_mode(attr.mode & 0o7777);
        let (uid, gid) = if self.keep_owner { (attr.uid, attr.gid) } else { (0, 0) };
        header.set_uid(uid.into());
        header.set_gid(gid.into());
        header.set_mtime(attr.mtime.secs.max(0).unsigned_abs());
        if attr.mtime.nanos != 0 || attr.mtime.secs < 0 {
            records.add(b"mtime", time_text(attr.mtime).as_bytes());
        }
    }

    fn attributes(&mut self, records: &mut Records, node: &Node) -> Result<()> {
        if !self.keep_xattrs {
            return Ok(());
        }
        let mut names = node.fs().listxattr(node.ino())?;
        names.sort();
        // A key ends at the first equals sign, so such a name cannot be told.
        for name in names.iter().filter(|name| !name.contains(&b'=')) {
            let value = node.fs().getxattr(node.ino(), name)?;
            records.add(&[b"SCHILY.xattr.", name.as_slice()].concat(), &value);
            // GNU tar takes lists as text only.
            let key = match &name[..] {
                acl::ACCESS => "SCHILY.acl.access",
                acl::DEFAULT => "SCHILY.acl.default",
                _ => continue,
            };
            if let Ok(Some(list)) = acl::Acl::decode(&value) {
                records.add(key.as_bytes(), list.to_text().as_bytes());
            }
        }
        Ok(())
    }

    /// Writes the member's headers; `len` bytes of data must follow.
    fn head(&mut self, mut header: Header, mut records: Records, name: &[u8], link: &[u8], len: u64) -> Result<()> {
        if name.len() > NAME_LEN {
            records.add(b"path", name);
        }
        if link.len() > NAME_LEN {
            records.add(b"linkpath", link);
        }
        if !records.0.is_empty() {
            let mut extended = Header::new_ustar();
            extended.set_entry_type(EntryType::XHeader);
            put(&mut extended, b"PaxHeader", b"");
            extended.set_mode(0o644);
            extended.set_size(records.0.len() as u64);
            extended.set_cksum();
            self.out.write_all(extended.as_bytes())?;
            self.out.write_all(&records.0)?;
            self.pad(records.0.len() as u64)?;
        }
        put(&mut header, name, link);
        header.set_size(len);
        header.set_cksum();
        Ok(self.out.write_all(header.as_bytes())?)
    }

    fn pad(&mut self, len: u64) -> io::Result<()> {
        let zeros = [0; BLOCK as usize];
        self.out.write_all(zeros.get(..(len.wrapping_neg() % BLOCK) as usize).unwrap_or_default())
    }

    /// A regular file; with holes in the dialect 1.0 of GNU's sparse files.
    fn file(&mut self, header: Header, mut records: Records, name: &[u8], entry: &DirEntry) -> Result<()> {
        let size = entry.node.attr.size;
        let mut segments = segments(&entry.node)?;
        let stored: u64 = segments.iter().map(|(_, len)| len).sum();
        // A small one is read before anything of it is written.
        let is_read = stored <= CHUNK as u64;
        if is_read {
            self.read_all(&entry.node, &segments)?;
        }
        self.stats.files += 1;
        if stored == size {
            self.head(header, records, name, b"", size)?;
            return self.data(entry, &segments, (stored, is_read));
        }
        if segments.last().is_none_or(|(offset, len)| offset + len < size) {
            // GNU tar takes the size from the end of the map.
            segments.push((size, 0));
        }
        let numbers = segments.iter().map(|(offset, len)| format!("{offset}\n{len}\n"));
        let map = format!("{}\n{}", segments.len(), numbers.collect::<String>());
        let map_len = (map.len() as u64).next_multiple_of(BLOCK);
        records.add(b"GNU.sparse.major", b"1");
        records.add(b"GNU.sparse.minor", b"0");
        records.add(b"GNU.sparse.name", name);
        records.add(b"GNU.sparse.realsize", size.to_string().as_bytes());
        let shown = [b"GNUSparseFile.0/", name].concat();
        let shown = shown.get(..shown.len().min(NAME_LEN)).unwrap_or_default();
        self.head(header, records, shown, b"", map_len + stored)?;
        self.out.write_all(map.as_bytes())?;
        self.pad(map.len() as u64)?;
        self.data(entry, &segments, (stored, is_read))
    }

    /// Fills the buffer with all data of a file.
    fn read_all(&mut self, node: &Node, segments: &[(u64, u64)]) -> Result<()> {
        let mut at = 0;
        for &(offset, len) in segments {
            let piece = self.buf.get_mut(at..at + len as usize).unwrap_or_default();
            let n = node.fs().read(node.ino(), offset, piece)?;
            // A file cut short meanwhile still fills the place its header promises.
            piece.get_mut(n..).unwrap_or_default().fill(0);
            at += len as usize;
        }
        Ok(())
    }

    /// `stored` bytes of data, which are in the buffer already if `is_read`.
    fn data(&mut self, entry: &DirEntry, segments: &[(u64, u64)], (stored, is_read): (u64, bool)) -> Result<()> {
        self.stats.bytes += stored;
        if is_read {
            self.out.write_all(self.buf.get(..stored as usize).unwrap_or_default())?;
            return Ok(self.pad(stored)?);
        }
        let node = &entry.node;
        for &(offset, len) in segments {
            let mut done = 0;
            while done < len {
                let want = (len - done).min(CHUNK as u64) as usize;
                let piece = self.buf.get_mut(..want).unwrap_or_default();
                let read = node.fs().read(node.ino(), offset + done, piece);
                let n = *read.as_ref().unwrap_or(&0);
                piece.get_mut(n..).unwrap_or_default().fill(0);
                if let Err(e) = read {
                    self.pass(e.into(), entry.path_bytes())?;
                }
                self.out.write_all(self.buf.get(..want).unwrap_or_default())?;
                done += want as u64;
            }
        }
        Ok(self.pad(stored)?)
    }
}

/// Offset and length of the stretches of data.
fn segments(node: &Node) -> Result<Vec<(u64, u64)>> {
    let (size, mut at) = (node.attr.size, 0);
    let mut out = Vec::new();
    while at < size {
        let Some(data) = next_data(node, at)?.filter(|data| *data < size) else { break };
        let end = node.fs().seek(node.ino(), data, Seek::Hole)?.min(size);
        if end <= data {
            break;
        }
        out.push((data, end - data));
        at = end;
    }
    Ok(out)
}

/// Path in the archive: relative, a directory with a slash at its end.
fn member_name(path: &[u8], kind: FileType) -> Vec<u8> {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    match (path, kind) {
        (b"", _) => b"./".to_vec(),
        (path, FileType::Dir) => [path, b"/"].concat(),
        (path, _) => path.to_vec(),
    }
}

fn put(header: &mut Header, name: &[u8], link: &[u8]) {
    if let Some(ustar) = header.as_ustar_mut() {
        fill(&mut ustar.name, name);
        fill(&mut ustar.linkname, link);
    }
}

fn fill(field: &mut [u8], bytes: &[u8]) {
    for (to, from) in field.iter_mut().zip(bytes) {
        *to = *from;
    }
}

fn entry_type(kind: FileType) -> EntryType {
    match kind {
        FileType::Dir => EntryType::Directory,
        FileType::Symlink => EntryType::Symlink,
        FileType::Fifo => EntryType::Fifo,
        FileType::Char => EntryType::Char,
        FileType::Block => EntryType::Block,
        FileType::File | FileType::Socket => EntryType::Regular,
    }
}

/// Seconds with a fraction of nine digits, the sign for the whole.
fn time_text(t: Time) -> String {
    if t.secs < 0 && t.nanos > 0 {
        return format!("-{}.{:09}", (t.secs + 1).unsigned_abs(), 1_000_000_000 - t.nanos);
    }
    format!("{}.{:09}", t.secs, t.nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_its_own_length() {
        for value_len in [0, 1, 4, 5, 90, 91, 92, 93, 985, 9980] {
            let mut records = Records::default();
            records.add(b"key", &vec![b'x'; value_len]);
            let text = String::from_utf8(records.0).unwrap();
            assert_eq!(text.split(' ').next().unwrap().parse::<usize>().unwrap(), text.len());
        }
    }

    #[test]
    fn times_before_the_epoch_have_one_sign() {
        assert_eq!(time_text(Time { secs: -1, nanos: 750_000_000 }), "-0.250000000");
        assert_eq!(time_text(Time { secs: -2, nanos: 0 }), "-2.000000000");
        assert_eq!(time_text(Time { secs: 3, nanos: 1 }), "3.000000001");
    }
}
