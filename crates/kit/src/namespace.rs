//! The rules of names, the same in every engine: what calls check, and in which order.
//!
//! An engine gives facts ([`Names`]) and makes changes whose conditions are checked here ([`Namespace`]). Called by
//! `served.rs`.
//!
//! # Order of errors
//!
//! As in Linux, except that `link` returns `EPERM` for a directory first: invalid names (`ENAMETOOLONG`, `EINVAL`);
//! `ENOTDIR` for a parent; `ENOENT`, `EEXIST` for the names; `ENOENT` for a parent that is removed; loops (`EINVAL`,
//! `ENOTEMPTY`); the types (`ENOTDIR`, `EISDIR`); `ENOTEMPTY`; `EMLINK`; last the resources of the engine (`ENOSPC`).
//! The sticky bit and permissions are left to the caller: the kernel, for one.

use crate::calls::State;
use crate::inodes::Attributes;
use crate::lifetimes::Lives;
use crate::xattr::Xattrs;
use arbor_base::layout::{Corrupt, Location};
use arbor_base::vfs::{Attr, Cx, Entry, Errno, Error, FileType, Ino, New, RenameFlags, Result, Time, check_name, mode};

/// Longest name, in bytes.
pub const NAME_MAX: usize = 255;
/// Longest target of a symbolic link, in bytes.
pub const TARGET_MAX: usize = 4095;
/// Most directories on a path to the root; a longer one is taken for a loop.
const MOST_LEVELS: u32 = 1 << 20;

/// Facts of an inode, at one moment of a call.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// Its number.
    pub ino: Ino,
    /// File type and permissions.
    pub mode: u32,
    /// Group.
    pub gid: u32,
    /// Link count as users see it; 0 for a removed directory.
    pub links: u32,
    /// The link count is at its limit.
    pub is_full: bool,
}

impl Node {
    /// Its file type.
    pub fn file_type(&self) -> FileType {
        FileType::from_mode(self.mode).unwrap_or(FileType::File)
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.mode & mode::IFMT == mode::IFDIR
    }

    /// Group and mode of an inode made in this directory: a set-group-id directory hands its group down, and the bit to
    /// directories.
    fn inherit(&self, gid: u32, m: u32) -> (u32, u32) {
        if self.mode & mode::ISGID == 0 {
            return (gid, m);
        }
        let bit = if m & mode::IFMT == mode::IFDIR { mode::ISGID } else { 0 };
        (self.gid, m | bit)
    }
}

/// A name that is there.
#[derive(Clone, Copy, Debug)]
pub struct Named<S> {
    /// What it names.
    pub ino: Ino,
    /// Where it is.
    pub slot: S,
}

/// The result of looking for a name.
#[derive(Clone, Copy, Debug)]
pub enum Lookup<S, R> {
    /// The name.
    Found(Named<S>),
    /// No such name; with what the search learnt of where it can go.
    Free(R),
}

impl<S, R> Lookup<S, R> {
    /// The name; `ENOENT` if there is none.
    pub fn found(self) -> Result<Named<S>> {
        match self {
            Lookup::Found(named) => Ok(named),
            Lookup::Free(_) => Err(Errno::ENOENT.into()),
        }
    }

    fn free(self) -> Result<R> {
        match self {
            Lookup::Found(_) => Err(Errno::EEXIST.into()),
            Lookup::Free(room) => Ok(room),
        }
    }
}

/// An inode that is to be made.
#[derive(Clone, Copy, Debug)]
pub struct NewInode<'a> {
    /// File type and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Of a device node.
    pub rdev: u32,
    /// Of a symbolic link.
    pub target: &'a [u8],
    /// Extended attributes.
    pub xattrs: &'a Xattrs,
    /// All bytes of a file ([`Namespace::takes_whole`]).
    pub data: &'a [u8],
}

impl NewInode<'_> {
    /// Its file type.
    pub fn file_type(&self) -> FileType {
        FileType::from_mode(self.mode).unwrap_or(FileType::File)
    }
}

/// A name that is to move. The types fit, and there is no loop.
#[derive(Clone, Copy, Debug)]
pub struct Move<'a, S, R> {
    /// Where the name is.
    pub dir: Node,
    /// The name.
    pub name: &'a [u8],
    /// Its place.
    pub slot: S,
    /// What it names.
    pub node: Node,
    /// Where it is to be.
    pub new_dir: Node,
    /// The new name.
    pub new_name: &'a [u8],
    /// What the new name names now.
    pub target: Target<S, R>,
    /// The owner of a whiteout that takes the old place.
    pub whiteout: Option<Cx>,
}

/// What a moving name finds at its new place.
#[derive(Clone, Copy, Debug)]
pub enum Target<S, R> {
    /// A name, and the inode that loses it.
    Replaced(S, Node),
    /// No name.
    Free(R),
}

/// One of two names that are to be exchanged.
#[derive(Clone, Copy, Debug)]
pub struct Place<S> {
    /// The directory.
    pub dir: Node,
    /// Where the name is in it.
    pub slot: S,
    /// What it names.
    pub node: Node,
}

/// An entry of a directory that is being walked.
#[derive(Clone, Copy, Debug)]
pub struct Walked {
    /// What it names.
    pub ino: Ino,
    /// Its type.
    pub file_type: FileType,
    /// What continues a walk after it.
    pub cookie: u64,
}

/// Called with entries and their names; returns whether to go on.
pub type Walk<'a, C> = &'a mut dyn FnMut(&mut C, Walked, &[u8]) -> Result<bool>;

/// A directory that was searched for a name, and what was found.
pub type Searched<N> = (Node, Lookup<<N as Names>::Slot, <N as Names>::Room>);

/// An engine's knowledge of names.
pub trait Names: Sized {
    /// Where a name is.
    type Slot: Copy;
    /// What a search that finds no name has learnt of where it can go.
    type Room;

    /// The root directory.
    fn root(&self) -> Ino;

    /// Facts of an inode; `ESTALE` if it is not in use.
    fn node(&mut self, ino: Ino) -> Result<Node>;

    /// Looks for a name in a directory, and returns the directory's facts as well; `ENOTDIR` for anything else.
    fn find(&mut self, dir: Ino, name: &[u8]) -> Result<Searched<Self>>;

    /// The parent that a directory other than the root names.
    fn parent(&mut self, dir: Ino) -> Result<Ino>;

    /// The location of the field that [`parent`](Names::parent) returns.
    fn parent_location(&self, dir: Ino) -> Location;

    /// The location of the name in a slot of a directory.
    fn slot_location(&self, dir: Ino, slot: &Self::Slot) -> Location;

    /// Whether a directory has no names but `.` and `..`.
    fn is_empty(&mut self, dir: Ino) -> Result<bool>;

    /// Calls `f` for the entries of a directory after `cookie`, `.` and `..` first, until it returns `false`. With
    /// `plus`, `f` is going to ask for the inodes.
    fn walk(&mut self, dir: Ino, cookie: u64, plus: bool, f: Walk<'_, Self>) -> Result<()>;
}

/// The changes of names that an engine makes. The functions of this module have checked the conditions.
///
/// A change fails with `ENOSPC` only before it has changed anything for others to see.
pub trait Namespace: Names + State + Attributes + Lives {
    /// Called when the inode's link count is at its limit: makes pending decrements happen. Returns whether there were
    /// any.
    fn settle_links(&mut self, _ino: Ino) -> Result<bool> {
        Ok(false)
    }

    /// Makes an inode and its name, which must be free.
    fn make(&mut self, dir: &Node, name: &[u8], room: Self::Room, new: &NewInode<'_>, now: Time) -> Result<Attr>;

    /// Whether [`make`](Namespace::make) takes so many bytes of a file that it makes.
    fn takes_whole(&self, _len: usize) -> bool {
        false
    }

    /// Makes a file without a name near a directory, and counts a reference to it.
    fn make_unnamed(&mut self, dir: &Node, new: &NewInode<'_>, now: Time) -> Result<Attr>;

    /// Gives an inode another name.
    fn link(&mut self, dir: &Node, name: &[u8], room: Self::Room, node: &Node, now: Time) -> Result<Attr>;

    /// Removes a name; a directory's is its last.
    fn remove(&mut self, dir: &Node, name: &[u8], slot: Self::Slot, node: &Node, now: Time) -> Result<()>;

    /// Moves a name.
    fn rename(&mut self, m: Move<'_, Self::Slot, Self::Room>, now: Time) -> Result<()>;

    /// Exchanges two names of two inodes.
    fn exchange(&mut self, a: Place<Self::Slot>, b: Place<Self::Slot>, now: Time) -> Result<()>;
}

/// Facts of a directory; `ENOTDIR` for anything else.
pub fn dir_node<N: Namespace>(core: &mut N, ino: Ino) -> Result<Node> {
    let node = core.node(ino)?;
    if node.is_dir() { Ok(node) } else { Err(Errno::ENOTDIR.into()) }
}

/// Fails with `EMLINK` unless the inode may have one link more.
fn may_gain_link<N: Namespace>(core: &mut N, node: &Node) -> Result<()> {
    if !node.is_full {
        return Ok(());
    }
    core.stay();
    if core.settle_links(node.ino)? && !core.node(node.ino)?.is_full {
        return Ok(());
    }
    Err(Errno::EMLINK.into())
}

/// Whether directory `a` is `b` or lies above it.
fn is_above<N: Namespace>(core: &mut N, a: Ino, b: Ino) -> Result<bool> {
    let (root, mut at, mut steps) = (core.root(), b, 0);
    while at != a {
        if at == root {
            return Ok(false);
        }
        steps += 1;
        if steps > MOST_LEVELS {
            return Err(Corrupt::new("entry ..", "ino", core.parent_location(at), at, "a path to the root").into());
        }
        dir_node(core, at)?;
        at = core.parent(at)?;
    }
    Ok(true)
}

/// See [`FileSystem::lookup`](arbor_base::vfs::FileSystem::lookup).
pub fn lookup<N: Namespace>(core: &mut N, parent: Ino, name: &[u8]) -> Result<Entry> {
    if name.len() > NAME_MAX {
        return Err(Errno::ENAMETOOLONG.into());
    }
    let (ino, at) = match name {
        b"." | b".." => (dots(core, parent, name)?, core.parent_location(parent)),
        _ => {
            let named = core.find(parent, name)?.1.found()?;
            (named.ino, core.slot_location(parent, &named.slot))
        }
    };
    let attr = core.attr(ino).map_err(|e| match e {
        Error::Errno(Errno::ESTALE) => Corrupt::new("directory", "entry", at, ino, "an inode in use").into(),
        e => e,
    })?;
    core.lives().refs.add(ino);
    Ok(attr)
}

/// What `.` and `..` of a directory name.
fn dots<N: Namespace>(core: &mut N, dir: Ino, name: &[u8]) -> Result<Ino> {
    let node = dir_node(core, dir)?;
    if name == b"." || dir == core.root() {
        return Ok(dir);
    }
    // Its own parent may be removed, too, and be another directory by now.
    if node.links == 0 { Err(Errno::ENOENT.into()) } else { core.parent(dir) }
}

/// Makes an inode and its name. `xattrs`: the list of `new`, checked.
pub fn make<N: Namespace>(
    core: &mut N,
    cx: &Cx,
    at: (Ino, &[u8]),
    (new, target, xattrs): (&New<'_>, &[u8], &Xattrs),
    now: Time,
) -> Result<Entry> {
    let new = NewInode { mode: new.mode, uid: cx.uid, gid: cx.gid, rdev: new.rdev, target, xattrs, data: b"" };
    let attr = make_inode(core, at, new, now)?;
    core.lives().refs.add(attr.ino);
    Ok(attr)
}

/// Makes a file that holds `data`, to which nobody has a reference; `false` if the engine takes several steps for it.
pub fn make_file<N: Namespace>(
    core: &mut N,
    cx: &Cx,
    at: (Ino, &[u8]),
    (permissions, data): (u32, &[u8]),
    now: Time,
) -> Result<bool> {
    if !core.takes_whole(data.len()) {
        return Ok(false);
    }
    let mode = mode::IFREG | permissions & 0o7777;
    let new = NewInode { mode, uid: cx.uid, gid: cx.gid, rdev: 0, target: b"", xattrs: &Xattrs::new(), data };
    make_inode(core, at, new, now).map(|_| true)
}

/// Makes an inode and its name. Its directory may have a say in group and mode.
fn make_inode<N: Namespace>(core: &mut N, (parent, name): (Ino, &[u8]), new: NewInode<'_>, now: Time) -> Result<Attr> {
    let file_type = FileType::from_mode(new.mode).ok_or(Errno::EINVAL)?;
    let (dir, found) = core.find(parent, name)?;
    let room = found.free()?;
    if dir.links == 0 {
        return Err(Errno::ENOENT.into());
    }
    if file_type == FileType::Dir {
        may_gain_link(core, &dir)?;
    }
    let (gid, mode) = dir.inherit(new.gid, new.mode);
    core.stay();
    core.make(&dir, name, room, &NewInode { mode, gid, ..new }, now)
}

/// See [`FileSystem::tmpfile`](arbor_base::vfs::FileSystem::tmpfile).
pub fn make_unnamed<N: Namespace>(core: &mut N, cx: &Cx, parent: Ino, m: u32, now: Time) -> Result<Entry> {
    let dir = dir_node(core, parent)?;
    let (gid, mode) = dir.inherit(cx.gid, mode::IFREG | m & 0o7777);
    let new = NewInode { mode, uid: cx.uid, gid, rdev: 0, target: b"", xattrs: &Xattrs::new(), data: b"" };
    core.stay();
    core.make_unnamed(&dir, &new, now)
}

/// See [`FileSystem::link`](arbor_base::vfs::FileSystem::link).
pub fn link<N: Namespace>(core: &mut N, ino: Ino, (parent, name): (Ino, &[u8]), now: Time) -> Result<Entry> {
    let node = core.node(ino)?;
    if node.is_dir() {
        return Err(Errno::EPERM.into());
    }
    let (dir, found) = core.find(parent, name)?;
    let room = found.free()?;
    if dir.links == 0 || node.links == 0 && !core.lives().is_unnamed(ino) {
        return Err(Errno::ENOENT.into());
    }
    may_gain_link(core, &node)?;
    core.stay();
    let attr = core.link(&dir, name, room, &node, now)?;
    core.lives().refs.add(ino);
    Ok(attr)
}

/// Fails unless `rmdir` (`want_dir`) or `unlink` can remove this name.
pub fn check_removed(name: &[u8], want_dir: bool) -> Result<()> {
    match name {
        b"." if want_dir => Err(Errno::EINVAL.into()),
        b".." if want_dir => Err(Errno::ENOTEMPTY.into()),
        _ => check_name(name),
    }
}

/// Removes a name of a directory (`want_dir`) or of another inode. `moves` is called before a directory is removed.
pub fn remove<N: Namespace>(
    core: &mut N,
    (parent, name): (Ino, &[u8]),
    want_dir: bool,
    now: Time,
    moves: impl FnOnce(),
) -> Result<()> {
    let (dir, found) = core.find(parent, name)?;
    let named = found.found()?;
    let node = core.node(named.ino)?;
    match (node.is_dir(), want_dir) {
        (true, false) => return Err(Errno::EISDIR.into()),
        (false, true) => return Err(Errno::ENOTDIR.into()),
        (true, true) if !core.is_empty(node.ino)? => return Err(Errno::ENOTEMPTY.into()),
        _ => {}
    }
    if want_dir {
        moves();
    }
    core.stay();
    core.remove(&dir, name, named.slot, &node, now)
}

/// Fails unless these names can move, and these flags can be combined.
pub fn check_rename(name: &[u8], new_name: &[u8], flags: RenameFlags) -> Result<()> {
    check_name(name)?;
    check_name(new_name)?;
    let known = RenameFlags::from_bits(flags.bits()).is_some();
    if !known || flags.contains(RenameFlags::EXCHANGE) && flags != RenameFlags::EXCHANGE {
        return Err(Errno::EINVAL.into());
    }
    Ok(())
}

/// See [`FileSystem::rename`](arbor_base::vfs::FileSystem::rename); names and flags are checked.
pub fn rename<N: Namespace>(
    core: &mut N,
    cx: &Cx,
    from: (Ino, &[u8]),
    to: (Ino, &[u8]),
    flags: RenameFlags,
    now: Time,
) -> Result<()> {
    dir_node(core, to.0)?;
    let (dir, src) = core.find(from.0, from.1)?;
    let src = src.found()?;
    let node = core.node(src.ino)?;
    let (new_dir, dst) = core.find(to.0, to.1)?;
    match dst {
        Lookup::Found(_) if flags.contains(RenameFlags::NOREPLACE) => return Err(Errno::EEXIST.into()),
        Lookup::Free(_) if flags.contains(RenameFlags::EXCHANGE) || new_dir.links == 0 => {
            return Err(Errno::ENOENT.into());
        }
        _ => {}
    }
    if node.is_dir() && is_above(core, node.ino, to.0)? {
        return Err(Errno::EINVAL.into());
    }
    let target = match dst {
        Lookup::Found(d) if flags.contains(RenameFlags::EXCHANGE) => {
            let here = Place { dir, slot: src.slot, node };
            let there = Place { dir: new_dir, slot: d.slot, node: core.node(d.ino)? };
            return exchange(core, here, there, now);
        }
        Lookup::Found(d) if d.ino == node.ino => return Ok(()),
        Lookup::Found(d) => Target::Replaced(d.slot, replaceable(core, &dir, &node, d.ino)?),
        Lookup::Free(room) => {
            if node.is_dir() && dir.ino != new_dir.ino {
                may_gain_link(core, &new_dir)?;
            }
            Target::Free(room)
        }
    };
    let whiteout = flags.contains(RenameFlags::WHITEOUT).then_some(*cx);
    core.stay();
    core.rename(Move { dir, name: from.1, slot: src.slot, node, new_dir, new_name: to.1, target, whiteout }, now)
}

/// The inode that a rename of `node` out of `dir` would replace, if it may.
fn replaceable<N: Namespace>(core: &mut N, dir: &Node, node: &Node, ino: Ino) -> Result<Node> {
    let target = core.node(ino)?;
    if target.is_dir() && is_above(core, ino, dir.ino)? {
        return Err(Errno::ENOTEMPTY.into());
    }
    match (node.is_dir(), target.is_dir()) {
        (true, false) => Err(Errno::ENOTDIR.into()),
        (false, true) => Err(Errno::EISDIR.into()),
        (true, true) if !core.is_empty(ino)? => Err(Errno::ENOTEMPTY.into()),
        _ => Ok(target),
    }
}

fn exchange<N: Namespace>(core: &mut N, a: Place<N::Slot>, b: Place<N::Slot>, now: Time) -> Result<()> {
    if b.node.is_dir() && is_above(core, b.node.ino, a.dir.ino)? {
        return Err(Errno::EINVAL.into());
    }
    if a.node.ino == b.node.ino {
        return Ok(());
    }
    if a.dir.ino != b.dir.ino {
        for (to, comes, goes) in [(&b.dir, &a.node, &b.node), (&a.dir, &b.node, &a.node)] {
            if comes.is_dir() && !goes.is_dir() {
                may_gain_link(core, to)?;
            }
        }
    }
    core.stay();
    core.exchange(a, b, now)
}
