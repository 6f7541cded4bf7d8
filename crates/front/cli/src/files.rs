//! What is in a volume: `ls`, `tree`, `cat`, `stat`, `put`, `get`, `rm`, `mkdir`, `mv`, `df`, `du`.

use crate::args::*;
use crate::exit::is_broken_pipe;
use crate::holder;
use crate::image::Image;
use crate::info::write_json;
use crate::interrupt;
use crate::progress::{Progress, tell_left_out, tell_skipped};
use crate::show;
use anyhow::{Context, Result, anyhow, bail};
use arboretum::vfs::FileType;
use arboretum::{CopyOptions, DirEntry, LeftOut, Metadata, Volume, Walk, WalkEntry};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// A name with what is known about it.
struct Line {
    /// None for what was asked for itself.
    name: Option<OsString>,
    meta: Metadata,
}

impl Line {
    fn path(&self, asked: &Path) -> PathBuf {
        self.name.as_ref().map_or_else(|| asked.to_path_buf(), |name| asked.join(name))
    }

    fn shown(&self, asked: &Path) -> Vec<u8> {
        show::name(self.name.as_deref().unwrap_or(asked.as_os_str()).as_encoded_bytes())
    }
}

/// An error about a path in the image, which it names as `IMAGE:PATH`: the command's name says what was tried.
fn at<T>(image: &Image, path: &Path, result: io::Result<T>) -> io::Result<T> {
    result.map_err(|e| {
        let reason = e.get_ref().and_then(|e| e.source()).map_or_else(|| e.to_string(), ToString::to_string);
        io::Error::new(e.kind(), format!("{}: {reason}", place(image, path)))
    })
}

fn place(image: &Image, path: &Path) -> String {
    format!("{}:{}", image.path.display(), path.display())
}

/// What a command could not read: it goes on, and fails in the end.
pub(crate) struct Trouble<'a> {
    who: &'static str,
    image: &'a Image,
    last: Option<anyhow::Error>,
}

impl<'a> Trouble<'a> {
    pub(crate) fn new(who: &'static str, image: &'a Image) -> Trouble<'a> {
        Trouble { who, image, last: None }
    }

    /// What was read, if it was.
    fn heed<T>(&mut self, step: io::Result<T>) -> Option<T> {
        step.map_err(|e| self.unread(&e)).ok()
    }

    pub(crate) fn unread(&mut self, e: &io::Error) {
        self.note(anyhow!("{}: {e}", self.image.path.display()));
    }

    /// What there is about a path in the image, if it is something.
    fn at<T>(&mut self, path: &Path, result: io::Result<T>) -> Option<T> {
        at(self.image, path, result).map_err(|e| self.note(e.into())).ok()
    }

    fn note(&mut self, e: anyhow::Error) {
        if let Some(before) = self.last.replace(e) {
            show::tell(format_args!("{}: {}", self.who, show::clean(before)));
        }
    }

    /// The last error is the command's.
    pub(crate) fn end(mut self) -> Result<()> {
        self.last.take().map_or(Ok(()), Err)
    }
}

/// Where something else ends the command, nothing is left untold.
impl Drop for Trouble<'_> {
    fn drop(&mut self) {
        if let Some(e) = self.last.take() {
            show::tell(format_args!("{}: {}", self.who, show::clean(e)));
        }
    }
}

/// The tree at `path`; one that a link leads to, too.
fn walk(volume: &Volume, path: &Path) -> io::Result<Walk> {
    let is_link = volume.symlink_metadata(path)?.is_symlink();
    let beyond = path.join("");
    Ok(volume.walk(if is_link && is_dir(volume, path) { &beyond } else { path })?.sorted())
}

pub(crate) fn ls(args: &LsArgs, out: &mut dyn Write) -> Result<()> {
    let image = Image::new(&args.image)?;
    let volume = image.volume(true)?;
    let mut trouble = Trouble::new("arbor ls", &image);
    let mut listing = Listing { args, volume: &volume, is_first: true, json: Vec::new() };
    for path in &args.paths {
        if !args.recursive || !is_dir(&volume, path) {
            let lines = list(&volume, path, args.all || args.json, &mut trouble);
            if let Some(lines) = trouble.at(path, lines) {
                listing.show(path, &lines, out)?;
            }
            continue;
        }
        let Some(mut steps) = trouble.at(path, walk(&volume, path)) else { continue };
        while let Some(step) = steps.next() {
            let Some(WalkEntry { entry, depth, .. }) = trouble.heed(step) else { continue };
            let is_shown = |name: &[u8]| args.all || args.json || !name.starts_with(b".");
            match entry.metadata().is_dir() {
                true if depth == 0 || is_shown(entry.name()) => {
                    let here = if depth == 0 { path.clone() } else { entry.path() };
                    let lines = steps.listing().filter(|e| is_shown(e.name())).map(|e| Line::from(&e));
                    listing.show(&here, &lines.collect::<Vec<_>>(), out)?;
                }
                true => steps.skip_dir(),
                false => {}
            }
        }
    }
    if args.json {
        write_json(&Value::Array(listing.json), out)?;
    }
    trouble.end()
}

impl From<&DirEntry> for Line {
    fn from(entry: &DirEntry) -> Line {
        Line { name: Some(entry.file_name()), meta: entry.metadata() }
    }
}

/// What `ls` shows, directory after directory.
struct Listing<'a> {
    args: &'a LsArgs,
    volume: &'a Volume,
    is_first: bool,
    json: Vec<Value>,
}

impl Listing<'_> {
    fn show(&mut self, path: &Path, lines: &[Line], out: &mut dyn Write) -> Result<()> {
        if self.args.json {
            for line in lines {
                self.json.push(as_json(self.volume, &line.path(path), &line.meta)?);
            }
            return Ok(());
        }
        if self.args.paths.len() > 1 || self.args.recursive {
            let gap = if self.is_first { "" } else { "\n" };
            writeln!(out, "{gap}{}:", show::clean(path.display()))?;
            self.is_first = false;
        }
        if self.args.long {
            return write_long(self.volume, path, lines, out);
        }
        for line in lines {
            out.write_all(&line.shown(path))?;
            writeln!(out)?;
        }
        Ok(())
    }
}

/// What a directory holds, sorted; of a file itself.
fn list(volume: &Volume, path: &Path, all: bool, trouble: &mut Trouble<'_>) -> io::Result<Vec<Line>> {
    let meta = volume.symlink_metadata(path)?;
    let is_dir = meta.is_dir() || (meta.is_symlink() && volume.metadata(path).is_ok_and(|m| m.is_dir()));
    if !is_dir {
        return Ok(vec![Line { name: None, meta }]);
    }
    let mut lines = Vec::new();
    for entry in volume.read_dir(path)?.filter_map(|entry| trouble.heed(entry)) {
        if all || !entry.name().starts_with(b".") {
            lines.push(Line::from(&entry));
        }
    }
    lines.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(lines)
}

fn write_long(volume: &Volume, path: &Path, lines: &[Line], out: &mut dyn Write) -> Result<()> {
    let rows: Vec<[String; 5]> = lines
        .iter()
        .map(|Line { meta, .. }| {
            let size = match meta.file_type() {
                FileType::Char | FileType::Block => device(meta.rdev()),
                _ => meta.len().to_string(),
            };
            let owner = [meta.uid().to_string(), meta.gid().to_string()];
            let [uid, gid] = owner;
            [meta.nlink().to_string(), uid, gid, size, show::time(meta.attr().mtime)]
        })
        .collect();
    let width = |i: usize| rows.iter().map(|row| row[i].len()).max().unwrap_or(0);
    let (w0, w1, w2, w3) = (width(0), width(1), width(2), width(3));
    for (line, [nlink, uid, gid, size, time]) in lines.iter().zip(&rows) {
        let mode = show::mode(&line.meta);
        write!(out, "{mode} {nlink:>w0$} {uid:>w1$} {gid:>w2$} {size:>w3$} {time} ")?;
        out.write_all(&line.shown(path))?;
        if line.meta.is_symlink() {
            write_target(volume, &line.path(path), out)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn write_target(volume: &Volume, path: &Path, out: &mut dyn Write) -> Result<()> {
    Ok(write!(out, " -> {}", show::clean(volume.read_link(path)?.display()))?)
}

fn device(rdev: u32) -> String {
    format!("{}, {}", (rdev >> 8) & 0xfff, (rdev & 0xff) | ((rdev >> 12) & !0xff))
}

fn as_json(volume: &Volume, path: &Path, meta: &Metadata) -> Result<Value> {
    let attr = meta.attr();
    let target = meta.is_symlink().then(|| volume.read_link(path)).transpose()?;
    Ok(json!({
        "path": path.to_string_lossy(),
        "type": show::kind(meta.file_type()),
        "target": target.map(|t| t.to_string_lossy().into_owned()),
        "ino": attr.ino.0,
        "mode": format!("{:04o}", meta.permissions()),
        "nlink": attr.nlink,
        "uid": attr.uid,
        "gid": attr.gid,
        "rdev": attr.rdev,
        "size": attr.size,
        "allocated": attr.blocks * 512,
        "atime": show::json_time(attr.atime),
        "mtime": show::json_time(attr.mtime),
        "ctime": show::json_time(attr.ctime),
        "btime": show::json_time(attr.btime),
    }))
}

pub(crate) fn tree(args: &PathsArgs, out: &mut dyn Write) -> Result<()> {
    let image = Image::new(&args.image)?;
    let volume = image.volume(true)?;
    let mut trouble = Trouble::new("arbor tree", &image);
    let (mut directories, mut files) = (0, 0);
    for path in &args.paths {
        // Of each directory on the way, whether it is the last in its own.
        let mut lasts = Vec::new();
        let Some(steps) = trouble.at(path, walk(&volume, path)) else { continue };
        writeln!(out, "{}", show::clean(path.display()))?;
        for step in steps {
            let Some(WalkEntry { entry, depth, is_last }) = trouble.heed(step) else { continue };
            let is_dir = entry.metadata().is_dir();
            if depth > 0 {
                lasts.truncate(depth - 1);
                for is_last in &lasts {
                    write!(out, "{}", if *is_last { "    " } else { "│   " })?;
                }
                lasts.push(is_last);
                write!(out, "{}", if is_last { "└── " } else { "├── " })?;
                out.write_all(&show::name(entry.name()))?;
                if entry.metadata().is_symlink() {
                    write_target(&volume, &entry.path(), out)?;
                }
                writeln!(out)?;
                directories += u64::from(is_dir);
            }
            files += u64::from(!is_dir);
        }
    }
    let directories = show::of(directories, "directory", "directories");
    writeln!(out, "\n{directories}, {}", show::of(files, "file", "files"))?;
    trouble.end()
}

pub(crate) fn cat(args: &crate::args::CatArgs, out: &mut dyn Write) -> Result<()> {
    let image = Image::new(&args.image)?;
    let volume = image.volume(true)?;
    let mut trouble = Trouble::new("arbor cat", &image);
    for path in &args.paths {
        let shown = at(&image, path, volume.open_file(path)).map_err(anyhow::Error::from);
        let shown = shown.and_then(|mut file| copy(&mut file, out).with_context(|| place(&image, path)));
        match shown {
            Err(e) if !is_broken_pipe(&e) => trouble.note(e),
            shown => shown?,
        }
    }
    trouble.end()
}

/// Copies in large pieces; a reader that has gone away stays recognisable.
fn copy(file: &mut arboretum::File, out: &mut dyn Write) -> io::Result<()> {
    let mut buf = vec![0; 1 << 20];
    loop {
        match io::Read::read(file, &mut buf)? {
            0 => return Ok(()),
            n => out.write_all(buf.get(..n).unwrap_or_default())?,
        }
    }
}

pub(crate) fn stat(args: &JsonPathsArgs, out: &mut dyn Write) -> Result<()> {
    let image = Image::new(&args.image)?;
    let volume = image.volume(true)?;
    let (mut all, mut trouble) = (Vec::new(), Trouble::new("arbor stat", &image));
    for path in &args.paths {
        let Some(meta) = trouble.at(path, volume.symlink_metadata(path)) else { continue };
        if args.json {
            all.push(stat_json(&volume, path, &meta)?);
        } else {
            stat_text(&volume, path, &meta, out)?;
        }
    }
    if args.json {
        write_json(&Value::Array(all), out)?;
    }
    trouble.end()
}

/// What a file has besides its attributes.
#[derive(Default)]
struct Extras {
    /// Names of extended attributes, and how long their values are.
    xattrs: Vec<(String, usize)>,
    flags: Vec<String>,
}

/// The library follows links, so of a link itself nothing is told.
fn extras(volume: &Volume, path: &Path, meta: &Metadata) -> Result<Extras> {
    let mut extras = Extras::default();
    if meta.is_symlink() {
        return Ok(extras);
    }
    for name in volume.list_xattr(path)? {
        let value = volume.get_xattr(path, &name)?.unwrap_or_default();
        extras.xattrs.push((String::from_utf8_lossy(&name).into_owned(), value.len()));
    }
    extras.flags = volume.flags(path)?.iter_names().map(|(name, _)| name.to_lowercase()).collect();
    Ok(extras)
}

fn stat_json(volume: &Volume, path: &Path, meta: &Metadata) -> Result<Value> {
    let mut value = as_json(volume, path, meta)?;
    let Extras { xattrs, flags } = extras(volume, path, meta)?;
    value["generation"] = meta.attr().generation.into();
    value["flags"] = flags.into();
    value["xattrs"] = xattrs.iter().map(|(name, len)| json!({ "name": name, "size": len })).collect();
    Ok(value)
}

fn stat_text(volume: &Volume, path: &Path, meta: &Metadata, out: &mut dyn Write) -> Result<()> {
    let attr = meta.attr();
    write!(out, "  File: {}", show::clean(path.display()))?;
    if meta.is_symlink() {
        write_target(volume, path, out)?;
    }
    writeln!(out)?;
    let kind = show::kind(meta.file_type());
    writeln!(out, "  Size: {}  Allocated: {}  Type: {kind}", attr.size, attr.blocks * 512)?;
    writeln!(out, " Inode: {}  Links: {}  Generation: {}", attr.ino, attr.nlink, attr.generation)?;
    if matches!(meta.file_type(), FileType::Char | FileType::Block) {
        writeln!(out, "Device: {}", device(attr.rdev))?;
    }
    let mode = show::mode(meta);
    writeln!(out, "Access: {:04o}/{mode}  Uid: {}  Gid: {}", meta.permissions(), attr.uid, attr.gid)?;
    let times = [("Access", attr.atime), ("Modify", attr.mtime), ("Change", attr.ctime), (" Birth", attr.btime)];
    for (name, time) in times {
        writeln!(out, "{name}: {}", show::exact_time(time))?;
    }
    let Extras { xattrs, flags } = extras(volume, path, meta)?;
    if !flags.is_empty() {
        writeln!(out, " Flags: {}", flags.join(", "))?;
    }
    for (name, len) in xattrs {
        writeln!(out, " Xattr: {} ({len} bytes)", show::clean(name))?;
    }
    Ok(())
}

/// Sources and the place for each of them: inside the target if that is a directory. Only a
/// directory may go to a name that ends in a slash and is not there.
fn places(
    paths: &[PathBuf],
    is_source_dir: impl Fn(&Path) -> bool,
    is_target_dir: impl Fn(&Path) -> bool,
) -> Result<Vec<(&Path, PathBuf)>> {
    let Some((target, sources)) = paths.split_last() else { return Ok(Vec::new()) };
    let into = is_target_dir(target);
    let name = target.as_os_str().as_encoded_bytes();
    let says_dir = name.ends_with(b"/") || name.ends_with(b"/.");
    let needs_dir = sources.len() > 1 || (says_dir && !sources.iter().all(|source| is_source_dir(source)));
    if needs_dir && !into {
        bail!("{}: there is no such directory", target.display());
    }
    let place = |source: &PathBuf| match (into, source.file_name()) {
        (true, Some(name)) => target.join(name),
        // `/`, `.` and `..` have no name: what they hold goes there.
        _ => target.clone(),
    };
    Ok(sources.iter().map(|source| (source.as_path(), place(source))).collect())
}

fn is_dir(volume: &Volume, path: &Path) -> bool {
    volume.metadata(path).is_ok_and(|m| m.is_dir())
}

/// Whether it is copied as a directory: a link to one is not.
fn is_host_dir(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|m| m.is_dir())
}

pub(crate) fn put(args: &PutArgs) -> Result<()> {
    let image = Image::new(&args.image)?;
    let volume = match args.owner {
        None => image.volume(false)?,
        Some((uid, gid)) => image.options(false).owner(uid, gid).open(&image.path).map_err(|e| image.said(e))?,
    };
    let (progress, stop) = (Progress::copy(true), interrupt::flag()?);
    let mut trouble = Trouble::new("arbor put", &image);
    for (source, target) in places(&args.paths, is_host_dir, |path| is_dir(&volume, path))? {
        let options = CopyOptions::new().stop_when(&stop).keep_owner(args.owner.is_none());
        let options = options.progress(|stats, path| progress.copied(stats, path));
        let mut options = options.past_unread(|e| progress.above(|| trouble.note(anyhow!("{e}"))));
        let copied = volume.copy_in_with(source, &target, &mut options);
        drop(options);
        match copied {
            Err(e) if e.kind() != ErrorKind::Interrupted => trouble.note(e.into()),
            copied => tell_skipped("arbor put", &copied?),
        }
    }
    progress.clear();
    volume.close().map_err(|e| image.said(e))?;
    trouble.end()
}

pub(crate) fn get(args: &GetArgs) -> Result<()> {
    let image = Image::new(&args.image)?;
    let volume = image.volume(true)?;
    let (progress, stop) = (Progress::copy(true), interrupt::flag()?);
    let keeps = |what: Preserve| args.preserve.iter().any(|p| *p == what || *p == Preserve::All);
    let is_source_dir = |path: &Path| volume.symlink_metadata(path).is_ok_and(|m| m.is_dir());
    let (mut left_out, mut trouble) = (LeftOut::default(), Trouble::new("arbor get", &image));
    for (source, target) in places(&args.paths, is_source_dir, Path::is_dir)? {
        if let Some(e) = volume.symlink_metadata(source).ok().and_then(|meta| named_link(&meta, &target, &args.paths)) {
            trouble.note(e);
            continue;
        }
        let mut options = CopyOptions::new().stop_when(&stop).progress(|stats, path| progress.copied(stats, path));
        if keeps(Preserve::Owner) {
            options = options.keep_owner(true);
        }
        options = options.keep_privileges(keeps(Preserve::Setid)).keep_devices(keeps(Preserve::Devices));
        options = options.past_unread(|e| progress.above(|| trouble.unread(e)));
        let copied = volume.copy_out_with(source, &target, &mut options);
        drop(options);
        match copied {
            Err(e) if e.kind() != ErrorKind::Interrupted => trouble.note(e.into()),
            copied => {
                let stats = copied?;
                tell_skipped("arbor get", &stats);
                left_out += stats.left_out;
            }
        }
    }
    progress.clear();
    tell_left_out("arbor get", &left_out);
    trouble.end()
}

/// Why a link that was named as the target is not used: the user may want what it leads to, as with `/dev/stdout`, or the link,
/// or not know that there is one.
fn named_link(source: &Metadata, target: &Path, paths: &[PathBuf]) -> Option<anyhow::Error> {
    let is_named = paths.last().is_some_and(|path| path == target) && !source.is_dir() && !source.is_symlink();
    let to = std::fs::read_link(target).ok().filter(|_| is_named)?;
    let (target, to) = (target.display(), to.display());
    Some(anyhow!("{target}: is a symbolic link to {to}, which is neither followed nor replaced"))
}

pub(crate) fn rm(args: &RmArgs) -> Result<()> {
    let image = Image::new(&args.image)?;
    let volume = image.volume(false)?;
    let root = volume.metadata("/")?.ino();
    let mut trouble = Trouble::new("arbor rm", &image);
    for path in &args.paths {
        let removed = match volume.symlink_metadata(path) {
            Ok(meta) if meta.ino() == root => Err(io::Error::other("the root cannot be removed")),
            Ok(meta) if meta.is_dir() && args.recursive => volume.remove_dir_all(path),
            Ok(meta) if meta.is_dir() => {
                Err(io::Error::new(ErrorKind::IsADirectory, "is a directory (-r removes it with all it holds)"))
            }
            Ok(_) => volume.remove_file(path),
            Err(e) => Err(e),
        };
        match removed {
            Err(e) if args.force && e.kind() == ErrorKind::NotFound => {}
            other => drop(trouble.at(path, other)),
        }
    }
    volume.close().map_err(|e| image.said(e))?;
    trouble.end()
}

pub(crate) fn mkdir(args: &MkdirArgs) -> Result<()> {
    let image = Image::new(&args.image)?;
    let volume = image.volume(false)?;
    let mut trouble = Trouble::new("arbor mkdir", &image);
    for path in &args.paths {
        let made = if args.parents { volume.create_dir_all(path) } else { volume.create_dir(path) };
        match at(&image, path, made) {
            Err(e) if e.kind() == ErrorKind::NotFound => trouble.note(anyhow!("{e} (-p makes those above too)")),
            made => drop(made.map_err(|e| trouble.note(e.into()))),
        }
    }
    volume.close().map_err(|e| image.said(e))?;
    trouble.end()
}

pub(crate) fn mv(args: &MvArgs) -> Result<()> {
    let image = Image::new(&args.image)?;
    let volume = image.volume(false)?;
    let is_dir = |path: &Path| is_dir(&volume, path);
    let mut trouble = Trouble::new("arbor mv", &image);
    for (source, target) in places(&args.paths, is_dir, is_dir)? {
        let moved = volume.rename(source, &target).map_err(|e| match e.kind() {
            ErrorKind::InvalidInput if target.starts_with(source) => {
                io::Error::new(e.kind(), "a directory cannot be moved into itself")
            }
            _ => e,
        });
        let at_fault = if volume.symlink_metadata(source).is_err() { source } else { &target };
        trouble.at(at_fault, moved);
    }
    volume.close().map_err(|e| image.said(e))?;
    trouble.end()
}

pub(crate) fn df(args: &DfArgs, out: &mut dyn Write) -> Result<()> {
    let image = Image::new(&args.image)?;
    let (s, name) = match image.path.is_dir() {
        true => holder::statfs(&image.path).with_context(|| image.path.display().to_string())?,
        false => (image.volume(true)?.statfs()?, image.path.clone()),
    };
    let unit = u64::from(s.frsize);
    let used = s.blocks.saturating_sub(s.bfree);
    if args.json {
        let value = json!({
            "image": name.display().to_string(),
            "size": s.blocks * unit,
            "used": used * unit,
            "free": s.bfree * unit,
            "available": s.bavail * unit,
            "inodes": s.files,
            "inodes_used": s.files.saturating_sub(s.ffree),
            "inodes_free": s.ffree,
            "name_max": s.namelen,
        });
        return Ok(write_json(&value, out)?);
    }
    let percent =
        |part: u64, whole: u64| if whole == 0 { 0 } else { (part as u128 * 100).div_ceil(whole.into()) as u64 };
    let usable = used + s.bavail;
    let rows = [
        ["size", "used", "avail", "use%", "files", "free"].map(String::from),
        [
            show::bytes(s.blocks * unit),
            show::bytes(used * unit),
            show::bytes(s.bavail * unit),
            format!("{}%", percent(used, usable)),
            show::count(s.files.saturating_sub(s.ffree)),
            show::count(s.ffree),
        ],
    ];
    let width = |i: usize| rows.iter().map(|row| row[i].len()).max().unwrap_or(0);
    for row in &rows {
        let cells: Vec<String> = row.iter().enumerate().map(|(i, cell)| format!("{cell:>0$}", width(i))).collect();
        writeln!(out, "{}", cells.join("  "))?;
    }
    Ok(())
}

pub(crate) fn du(args: &DuArgs, out: &mut dyn Write) -> Result<()> {
    let image = Image::new(&args.image)?;
    let volume = image.volume(true)?;
    let mut json = Vec::new();
    let mut trouble = Trouble::new("arbor du", &image);
    let mut seen = HashSet::new();
    for path in &args.paths {
        let Some(steps) = trouble.at(path, volume.walk(path)) else { continue };
        usage(steps.sorted(), &mut seen, &mut trouble, |path, bytes, is_total| {
            if args.summarize && !is_total {
                return Ok(());
            }
            if args.json {
                json.push(json!({ "path": path.to_string_lossy(), "allocated": bytes }));
                return Ok(());
            }
            writeln!(out, "{:>10}  {}", show::bytes(bytes), show::clean(path.display()))
        })?;
    }
    if args.json {
        write_json(&Value::Array(json), out)?;
    }
    trouble.end()
}

/// Tells the allocated bytes of each directory with all below it when it has seen all of that, in the end those of the
/// whole. A file with several names counts once.
fn usage(
    steps: Walk,
    seen: &mut HashSet<u64>,
    trouble: &mut Trouble<'_>,
    mut tell: impl FnMut(&Path, u64, bool) -> io::Result<()>,
) -> io::Result<()> {
    // The sums of the directories on the way; the path is that of the last.
    let (mut first, mut path, mut sums) = (PathBuf::new(), PathBuf::new(), Vec::new());
    let mut leave = |first: &Path, path: &mut PathBuf, sums: &mut Vec<u64>| -> io::Result<()> {
        let Some(bytes) = sums.pop() else { return Ok(()) };
        let is_total = sums.is_empty();
        // The whole is named as it was asked for, with the slash after it.
        tell(if is_total { first } else { path }, bytes, is_total)?;
        if let Some(above) = sums.last_mut() {
            *above += bytes;
            path.pop();
        }
        Ok(())
    };
    for step in steps {
        let Some(WalkEntry { entry, depth, .. }) = trouble.heed(step) else { continue };
        let meta = entry.metadata();
        while sums.len() > depth {
            leave(&first, &mut path, &mut sums)?;
        }
        let counts = meta.nlink() <= 1 || meta.is_dir() || seen.insert(meta.ino());
        let bytes = if counts { meta.blocks() * 512 } else { 0 };
        match sums.last_mut() {
            Some(above) if !meta.is_dir() => *above += bytes,
            None => {
                first = entry.path();
                path.clone_from(&first);
                sums.push(bytes);
            }
            Some(_) => {
                path.push(entry.file_name());
                sums.push(bytes);
            }
        }
    }
    while !sums.is_empty() {
        leave(&first, &mut path, &mut sums)?;
    }
    Ok(())
}
