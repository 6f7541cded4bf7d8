//! Tar archives: `reader` takes members apart, `writer` puts them together, this module moves
//! them in and out of a volume.
//!
//! The crate `tar` supplies the headers. Records are taken apart here, because extended
//! attributes hold any bytes (its reader ends a record at the first newline) and because sparse
//! files come in four dialects.

mod reader;
mod writer;

use crate::dir::join;
use crate::error::{Failure, Named, Result};
use crate::file::write_all;
use crate::host::HostFile;
use crate::node::{Node, path_of};
use crate::trail::{Kept, Trail};
use crate::transfer::{CopyOptions, CopyStats, set_xattr};
use crate::volume::{CHUNK, Volume};
use crate::way::{Way, remove_part};
use arbor_base::vfs::{self, Errno, FileType, SetAttr};
use reader::{Member, TarReader, What};
use std::io::{self, Read, Write};
use std::sync::Arc;

/// Directories on the way to a member. What lies deeper has a path that no call of the kernel takes.
const MAX_DEPTH: usize = 2048;

impl Volume {
    /// Unpacks a tar archive over the volume, in one pass. Files that are there are overwritten, but
    /// a directory takes the place of nothing else. Kept are modes, owners, times to the
    /// nanosecond, links of both kinds, device nodes, holes and extended attributes. Names with
    /// `..`, or with more than 2048 directories, are refused.
    pub fn import_tar(&self, reader: impl Read) -> io::Result<CopyStats> {
        self.import_tar_with(reader, &mut CopyOptions::new())
    }

    /// As [`import_tar`](Volume::import_tar), with options.
    pub fn import_tar_with(&self, reader: impl Read, options: &mut CopyOptions<'_>) -> io::Result<CopyStats> {
        let reader = TarReader::new(reader);
        let mut import = Import {
            volume: self,
            options,
            stats: CopyStats::default(),
            near: Vec::new(),
            trail: Trail::default(),
            directories: Vec::new(),
            buf: vec![0; CHUNK],
        };
        self.writable().and_then(|()| import.run(reader)).named("import", b"")?;
        Ok(import.stats)
    }

    /// Writes the whole volume as a tar archive in the pax format, in the order of names: the
    /// same content gives the same bytes.
    pub fn export_tar(&self, writer: impl Write) -> io::Result<CopyStats> {
        self.export_tar_with(writer, &mut CopyOptions::new())
    }

    /// As [`export_tar`](Volume::export_tar), with options.
    pub fn export_tar_with(&self, writer: impl Write, options: &mut CopyOptions<'_>) -> io::Result<CopyStats> {
        writer::export(self, writer, options).named("export", b"")
    }
}

struct Import<'a, 'o> {
    volume: &'a Volume,
    options: &'a mut CopyOptions<'o>,
    stats: CopyStats,
    /// Names and directories from the root to the last member: the next one mostly lies there too. No links are
    /// among them: those may come to lead elsewhere.
    near: Vec<(Vec<u8>, Arc<Node>)>,
    /// Directories get their attributes last: filling them changes their times.
    directories: Vec<(Kept, SetAttr)>,
    /// Leads to the last of them.
    trail: Trail,
    buf: Vec<u8>,
}

impl Import<'_, '_> {
    fn run<R: Read>(&mut self, mut reader: TarReader<R>) -> Result<()> {
        while let Some(member) = reader.next()? {
            let done = clean(&member.path).and_then(|path| {
                self.member(&member, &path, &mut reader)?;
                self.options.tell(&self.stats, &path)
            });
            done.or_else(|e| self.pass(e, &member.path))?;
        }
        for (kept, set) in std::mem::take(&mut self.directories).into_iter().rev() {
            let path = self.trail.names(kept).join(&b'/');
            self.finish_directory(&path, &set).or_else(|e| self.pass(e, &path))?;
        }
        Ok(())
    }

    fn finish_directory(&mut self, path: &[u8], set: &SetAttr) -> Result<()> {
        let node = match self.place(path, false)? {
            Some((dir, name)) => dir.child(&name)?,
            None => self.volume.mount().root()?,
        };
        // A later member may have the name.
        node.need_dir()?.set(set).map(drop)
    }

    /// Goes on after a member that the volume does not take, if that is wanted. Which it was is more use than that it was an
    /// import.
    fn pass(&mut self, e: Failure, path: &[u8]) -> Result<()> {
        let name = shown(path).into_bytes();
        let named = |e: Failure| e.named("unpack", &name);
        let passed = self.options.pass(&mut self.stats, e, Failure::is_of_member, named);
        passed.map_err(|e| Failure::Host(named(e)))
    }

    fn member<R: Read>(&mut self, member: &Member, path: &[u8], reader: &mut TarReader<R>) -> Result<()> {
        let Some((dir, name)) = self.place(path, true)? else {
            return match member.what {
                What::File(FileType::Dir) => self.keep_directory(&self.volume.mount().root()?, member, path),
                _ => Err(Errno::EISDIR.into()),
            };
        };
        let mut odd = |letter: u8, done: &str| {
            let letter = char::from(letter);
            self.stats.skipped.push(format!("{}: a member of the unknown type {letter:?}, {done}", shown(path)));
        };
        let kind = match member.what {
            What::File(kind) => kind,
            What::Odd(letter) => {
                odd(letter, "unpacked as a file");
                FileType::File
            }
            What::Foreign(letter) => {
                odd(letter, "left out");
                return Ok(());
            }
            What::HardLink => return self.link(member, (&dir, &name)),
        };
        match Way::to(&dir, &name, kind)? {
            Way::Merge(old) => {
                self.stats.directories += 1;
                self.keep_directory(&old, member, path)
            }
            _ if kind == FileType::Dir => {
                self.stats.directories += 1;
                self.keep_directory(&dir.mkdir(&name, 0o700)?, member, path)
            }
            way => {
                let made = self.make(&way, (&dir, &name), kind, (member, path), reader)?;
                way.done(&made, &dir, &name)
            }
        }
    }

    fn link(&mut self, member: &Member, (dir, name): (&Node, &[u8])) -> Result<()> {
        let original = self.volume.mount().resolve(&join(b"/", &clean(&member.link)?), false)?;
        Way::to(dir, name, original.attr.file_type())?.link(&original, dir, name)?;
        self.stats.hard_links += 1;
        Ok(())
    }

    /// Makes what is not a directory, with all that belongs to it.
    fn make<R: Read>(
        &mut self,
        way: &Way,
        (dir, name): (&Node, &[u8]),
        kind: FileType,
        (member, path): (&Member, &[u8]),
        reader: &mut TarReader<R>,
    ) -> Result<Node> {
        let name = way.name(name);
        let (node, filled) = match kind {
            FileType::Symlink => (dir.symlink(name, &member.link)?, Ok(())),
            FileType::File => {
                let node = way.file(dir, name)?;
                let filled = self.content(&node, member, path, reader);
                (node, filled)
            }
            special => (dir.mknod(name, special.mode() | 0o600, member.rdev)?, Ok(())),
        };
        let whole = filled
            .and_then(|()| self.attributes(&node, member, path))
            .and_then(|()| node.set(&self.options.attributes(&host_file(member, kind))).map(drop));
        whole.inspect_err(|_| remove_part(dir, name))?;
        *self.stats.of_kind(kind) += 1;
        Ok(node)
    }

    fn keep_directory(&mut self, node: &Node, member: &Member, path: &[u8]) -> Result<()> {
        self.attributes(node, member, path)?;
        let set = self.options.attributes(&host_file(member, FileType::Dir));
        self.trail.go(path.split(|b| *b == b'/').filter(|name| !name.is_empty()));
        self.directories.push((self.trail.keep(), set));
        Ok(())
    }

    fn attributes(&mut self, node: &Node, member: &Member, path: &[u8]) -> Result<()> {
        for (name, value) in member.xattrs.iter().filter(|_| self.options.xattrs) {
            set_xattr(node, name, value, &mut self.stats, &path_of(path.to_vec()))?;
        }
        Ok(())
    }

    fn content<R: Read>(&mut self, node: &Node, member: &Member, path: &[u8], reader: &mut TarReader<R>) -> Result<()> {
        let mut end = 0;
        for &(offset, len) in member.segments.iter().filter(|(_, len)| *len > 0) {
            let mut done = 0;
            while done < len {
                let want = (len - done).min(CHUNK as u64) as usize;
                let piece = self.buf.get_mut(..want).unwrap_or_default();
                reader.data(piece)?;
                write_all(node, offset + done, piece)?;
                done += want as u64;
                self.stats.bytes += want as u64;
                self.options.tell(&self.stats, path)?;
            }
            end = end.max(offset + len);
        }
        if end < member.size {
            node.set(&SetAttr { size: Some(member.size), ..SetAttr::default() })?;
        }
        Ok(())
    }

    /// Directory and name of `path`, made as needed if that is wanted; `None` for the root.
    fn place(&mut self, path: &[u8], make: bool) -> Result<Option<(Arc<Node>, Vec<u8>)>> {
        if path.is_empty() {
            return Ok(None);
        }
        let mut names: Vec<&[u8]> = path.split(|b| *b == b'/').collect();
        let name = names.pop().unwrap_or_default().to_vec();
        let known = self.near.iter().zip(&names).take_while(|((near, _), name)| near == *name).count();
        self.near.truncate(known);
        let mut dir = match self.near.last() {
            Some((_, node)) => node.clone(),
            None => Arc::new(self.volume.mount().root()?),
        };
        let mut is_near = true;
        for (depth, name) in names.iter().enumerate().skip(known) {
            let next = match dir.child_if_any(name)? {
                Some(node) if node.attr.file_type() == FileType::Symlink => {
                    is_near = false;
                    let way = join(b"/", &names.get(..=depth).unwrap_or_default().join(&b'/'));
                    if make { self.volume.dir_by_link(&way) } else { self.volume.mount().resolve(&way, true) }?
                }
                Some(node) => node,
                None if make => self.volume.make_dir(&dir, name)?,
                None => return Err(Errno::ENOENT.into()),
            };
            dir = Arc::new(next.need_dir()?);
            if is_near {
                self.near.push((name.to_vec(), dir.clone()));
            }
        }
        Ok(Some((dir, name)))
    }
}

fn host_file(member: &Member, kind: FileType) -> HostFile {
    HostFile {
        kind,
        mode: member.mode,
        owner: Some(member.owner),
        rdev: member.rdev,
        size: member.size,
        atime: Some(member.atime.unwrap_or(member.mtime)),
        mtime: Some(member.mtime),
        id: None,
        is_linked: false,
    }
}

/// A member's name without slashes at its ends, empty and `.` components.
fn clean(path: &[u8]) -> Result<Vec<u8>> {
    let parts = path.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".");
    let parts: Vec<&[u8]> = parts.take(MAX_DEPTH + 2).collect();
    if parts.contains(&&b".."[..]) {
        return Err(vfs::Error::refused(format!("the archive holds a name with \"..\": {}", shown(path))).into());
    }
    if parts.len() > MAX_DEPTH + 1 {
        let path = shown(path);
        let why = format!("the archive holds a name with more than {MAX_DEPTH} directories: {path}");
        return Err(vfs::Error::refused(why).into());
    }
    Ok(parts.join(&b'/'))
}

/// The beginning of a name, which may be of any length.
fn shown(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path.get(..path.len().min(100)).unwrap_or_default()).into_owned();
    if path.len() > 100 { text + "..." } else { text }
}
