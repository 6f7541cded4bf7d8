//! POSIX access control lists: the rules of POSIX.1e draft 17 as Linux has them, over any engine.
//!
//! A list is kept as the extended attribute under which the kernel knows it ([`ACCESS`], [`DEFAULT`]), version 2 of its
//! format. The kernel grants access by it; this module keeps it in step with the mode: the mode's bits for the owner
//! and the others are those of the list, and its bits for the group are the list's mask. A list that adds nothing to
//! the mode is not stored. A list and the mode, or a list and the name of a new file, change in one step.

use super::{Attr, Cx, Entry as NewEntry, Errno, FileSystem, FileType, Ino, New, Result, SetAttr, mode};

/// Name of the list by which access is granted.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// Name of the list that a directory hands down.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Whether an extended attribute holds a list.
pub fn is_acl(name: &[u8]) -> bool {
    name == ACCESS || name == DEFAULT
}

const VERSION: u32 = 2;
const HEAD: usize = 4;
const ENTRY: usize = 8;
/// The id of an entry that names nobody.
const NOBODY: u32 = u32::MAX;

/// Whom an entry is for, with the numbers of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tag {
    Owner = 0x01,
    User = 0x02,
    OwningGroup = 0x04,
    Group = 0x08,
    Mask = 0x10,
    Others = 0x20,
}

impl Tag {
    fn from_number(n: u16) -> Option<Tag> {
        [Tag::Owner, Tag::User, Tag::OwningGroup, Tag::Group, Tag::Mask, Tag::Others]
            .into_iter()
            .find(|tag| *tag as u16 == n)
    }

    fn is_named(self) -> bool {
        matches!(self, Tag::User | Tag::Group)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: Tag,
    /// Read 4, write 2, execute 1.
    perm: u16,
    id: u32,
}

/// A valid list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Vec<Entry>);

impl Acl {
    /// Decodes and validates the value of an attribute; `None` if it has no entries.
    pub fn decode(value: &[u8]) -> Result<Option<Acl>> {
        let (head, rest) = value.split_first_chunk::<HEAD>().ok_or(Errno::EINVAL)?;
        if u32::from_le_bytes(*head) != VERSION {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let (entries, left) = rest.as_chunks::<ENTRY>();
        if !left.is_empty() {
            return Err(Errno::EINVAL.into());
        }
        let entries = entries.iter().map(|&[t0, t1, p0, p1, i0, i1, i2, i3]| {
            let tag = Tag::from_number(u16::from_le_bytes([t0, t1])).ok_or(Errno::EINVAL)?;
            let id = if tag.is_named() { u32::from_le_bytes([i0, i1, i2, i3]) } else { NOBODY };
            Ok(Entry { tag, perm: u16::from_le_bytes([p0, p1]), id })
        });
        let acl = Acl(entries.collect::<Result<_>>()?);
        if acl.0.is_empty() {
            return Ok(None);
        }
        if acl.is_valid() { Ok(Some(acl)) } else { Err(Errno::EINVAL.into()) }
    }

    /// The value of an attribute.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = VERSION.to_le_bytes().to_vec();
        for e in &self.0 {
            out.extend_from_slice(&(e.tag as u16).to_le_bytes());
            out.extend_from_slice(&e.perm.to_le_bytes());
            out.extend_from_slice(&e.id.to_le_bytes());
        }
        out
    }

    /// One owner, one owning group and the others, in the order of the tags; a mask where someone is named.
    fn is_valid(&self) -> bool {
        let count = |tag| self.0.iter().filter(|e| e.tag == tag).count();
        let named = count(Tag::User) + count(Tag::Group) > 0;
        let bits = self.0.iter().all(|e| e.perm <= 7 && (!e.tag.is_named() || e.id != NOBODY));
        let ones = [Tag::Owner, Tag::OwningGroup, Tag::Others].into_iter().all(|tag| count(tag) == 1);
        let masks = count(Tag::Mask);
        bits && ones && (masks == 1 || masks == 0 && !named) && self.0.is_sorted_by_key(|e| e.tag)
    }

    fn perm(&self, tag: Tag) -> Option<u32> {
        self.0.iter().find(|e| e.tag == tag).map(|e| u32::from(e.perm))
    }

    /// The tag that the mode's bits for the group stand for.
    fn group_class(&self) -> Tag {
        if self.perm(Tag::Mask).is_some() { Tag::Mask } else { Tag::OwningGroup }
    }

    /// The permission bits that stand for it.
    pub fn mode(&self) -> u32 {
        let bits = |tag| self.perm(tag).unwrap_or(0);
        bits(Tag::Owner) << 6 | bits(self.group_class()) << 3 | bits(Tag::Others)
    }

    /// The list as text, as archives have it: `user::rw-,user:1000:r--,group::r--,mask::r--,other::---`.
    pub fn to_text(&self) -> String {
        let entry = |e: &Entry| {
            let whom = match e.tag {
                Tag::Owner | Tag::User => "user",
                Tag::OwningGroup | Tag::Group => "group",
                Tag::Mask => "mask",
                Tag::Others => "other",
            };
            let id = if e.tag.is_named() { e.id.to_string() } else { String::new() };
            let bit = |bit, letter| if e.perm & bit != 0 { letter } else { '-' };
            format!("{whom}:{id}:{}{}{}", bit(4, 'r'), bit(2, 'w'), bit(1, 'x'))
        };
        self.0.iter().map(entry).collect::<Vec<_>>().join(",")
    }

    /// A list as archives have it as text; `None` if it is none. A number of who is named by a name may follow the permissions.
    pub fn from_text(text: &str) -> Option<Acl> {
        let entry = |line: &str| {
            let mut fields = line.trim().split(':');
            let (whom, who, perms, number) = (fields.next()?, fields.next()?, fields.next()?, fields.next());
            let named = |tag| Some((tag, who.parse().or_else(|_| number.unwrap_or_default().parse()).ok()?));
            let (tag, id) = match whom {
                "user" if who.is_empty() => (Tag::Owner, NOBODY),
                "user" => named(Tag::User)?,
                "group" if who.is_empty() => (Tag::OwningGroup, NOBODY),
                "group" => named(Tag::Group)?,
                "mask" => (Tag::Mask, NOBODY),
                "other" => (Tag::Others, NOBODY),
                _ => return None,
            };
            let bits = [('r', 4), ('w', 2), ('x', 1)].map(|(letter, bit)| if perms.contains(letter) { bit } else { 0 });
            Some(Entry { tag, perm: bits.iter().sum(), id })
        };
        let lines = text.split([',', '\n']).filter(|line| !line.trim().is_empty());
        let mut all = lines.map(entry).collect::<Option<Vec<Entry>>>()?;
        all.sort_by_key(|e| (e.tag, e.id));
        Acl::decode(&Acl(all).encode()).ok().flatten()
    }

    /// Whether it adds nothing to [`Acl::mode`].
    pub fn is_minimal(&self) -> bool {
        self.0.len() == 3
    }

    fn map(&self, f: impl Fn(Tag, u16) -> u16) -> Acl {
        Acl(self.0.iter().map(|e| Entry { perm: f(e.tag, e.perm), ..*e }).collect())
    }

    /// The list after chmod(2).
    pub fn with_mode(&self, mode: u32) -> Acl {
        let group = self.group_class();
        self.map(|tag, perm| bits_of(mode, tag, group).unwrap_or(perm))
    }

    /// The list of a file that is created with `mode` below a directory that hands this down; the file's mode is its
    /// [`Acl::mode`].
    pub fn inherited(&self, mode: u32) -> Acl {
        let group = self.group_class();
        self.map(|tag, perm| bits_of(mode, tag, group).map_or(perm, |bits| perm & bits))
    }
}

/// The bits of a mode that are a tag's, where the bits for the group are those of `group`.
fn bits_of(mode: u32, tag: Tag, group: Tag) -> Option<u16> {
    let shift = match tag {
        Tag::Owner => 6,
        Tag::Others => 0,
        _ if tag == group => 3,
        _ => return None,
    };
    Some((mode >> shift & 7) as u16)
}

/// A list of an inode, if it has one.
pub fn get(fs: &dyn FileSystem, ino: Ino, name: &[u8]) -> Result<Option<Acl>> {
    match fs.getxattr(ino, name) {
        Ok(value) => Acl::decode(&value),
        Err(e) if matches!(e.errno(), Errno::ENODATA | Errno::EOPNOTSUPP) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Sets a list, and the mode with it. `drops_setgid`: the caller is neither privileged nor in the file's group.
pub fn set(fs: &dyn FileSystem, ino: Ino, name: &[u8], value: &[u8], drops_setgid: bool) -> Result<()> {
    let attr = fs.getattr(ino)?;
    let acl = Acl::decode(value)?;
    match attr.file_type() {
        FileType::Symlink => return Err(Errno::EOPNOTSUPP.into()),
        FileType::Dir => {}
        _ if name == DEFAULT && acl.is_some() => return Err(Errno::EACCES.into()),
        _ => {}
    }
    let Some(acl) = acl else { return fs.change(ino, &SetAttr::default(), &[(name, None)]).map(drop) };
    let encoded = acl.encode();
    if name == DEFAULT {
        return fs.change(ino, &SetAttr::default(), &[(name, Some(&encoded))]).map(drop);
    }
    let setgid = if drops_setgid { mode::ISGID } else { 0 };
    let set = SetAttr { mode: Some(attr.mode & 0o7000 & !setgid | acl.mode()), ..SetAttr::default() };
    fs.change(ino, &set, &[(name, (!acl.is_minimal()).then_some(&encoded[..]))]).map(drop)
}

/// [`FileSystem::setattr`], by which a list follows the mode.
pub fn setattr(fs: &dyn FileSystem, ino: Ino, set: &SetAttr) -> Result<Attr> {
    let Some(mode) = set.mode else { return fs.setattr(ino, set) };
    let Some(acl) = get(fs, ino, ACCESS)? else { return fs.setattr(ino, set) };
    if set.size.is_some() {
        fs.setattr(ino, &SetAttr { size: set.size, ..SetAttr::default() })?;
    }
    let encoded = acl.with_mode(mode).encode();
    fs.change(ino, &SetAttr { size: None, ..*set }, &[(ACCESS, Some(&encoded))])
}

/// The mode of a new inode below `parent`, and the lists that are handed down to it.
fn inherit(fs: &dyn FileSystem, parent: Ino, mode: u32, umask: u32) -> Result<(u32, Option<Acl>, Option<Acl>)> {
    let Some(default) = get(fs, parent, DEFAULT)? else { return Ok((mode & !(umask & 0o777), None, None)) };
    let access = default.inherited(mode);
    let mode = mode & !0o777 | access.mode();
    let is_dir = mode & mode::IFMT == mode::IFDIR;
    Ok((mode, (!access.is_minimal()).then_some(access), is_dir.then_some(default)))
}

/// Creates what [`FileSystem::mknod`] and [`FileSystem::mkdir`] do, with the lists that `parent` hands down, or else
/// without the bits of `umask`.
pub fn create(
    fs: &dyn FileSystem,
    cx: &Cx,
    (parent, name): (Ino, &[u8]),
    (mode, rdev): (u32, u32),
    umask: u32,
) -> Result<NewEntry> {
    let (mode, access, default) = inherit(fs, parent, mode, umask)?;
    let lists = [(ACCESS, access), (DEFAULT, default)];
    let values: Vec<_> = lists.iter().filter_map(|(name, acl)| Some((*name, acl.as_ref()?.encode()))).collect();
    let xattrs: Vec<_> = values.iter().map(|(name, value)| (*name, &value[..])).collect();
    fs.create(cx, parent, name, &New { mode, rdev, xattrs: &xattrs })
}

/// [`FileSystem::tmpfile`] with the lists that `parent` hands down. It has no name, so two steps are as good as one.
pub fn tmpfile(fs: &dyn FileSystem, cx: &Cx, parent: Ino, mode: u32, umask: u32) -> Result<NewEntry> {
    let (mode, access, _) = inherit(fs, parent, mode::IFREG | mode, umask)?;
    let entry = fs.tmpfile(cx, parent, mode & 0o7777)?;
    let Some(access) = access else { return Ok(entry) };
    let changed = fs.change(entry.ino, &SetAttr::default(), &[(ACCESS, Some(&access.encode()))]);
    changed.inspect_err(|_| fs.forget(entry.ino, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(Tag, u16, u32)]) -> Acl {
        Acl(entries.iter().map(|&(tag, perm, id)| Entry { tag, perm, id }).collect())
    }

    fn extended() -> Acl {
        acl(&[
            (Tag::Owner, 7, NOBODY),
            (Tag::User, 6, 1000),
            (Tag::OwningGroup, 5, NOBODY),
            (Tag::Mask, 7, NOBODY),
            (Tag::Others, 1, NOBODY),
        ])
    }

    #[test]
    fn lists_go_in_and_come_out() {
        let value = extended().encode();
        assert_eq!(value.len(), HEAD + 5 * ENTRY);
        assert_eq!(Acl::decode(&value).unwrap(), Some(extended()));
        assert_eq!(Acl::decode(&VERSION.to_le_bytes()).unwrap(), None);
    }

    #[test]
    fn lists_are_texts_in_archives() {
        let text = "user::rwx,user:1000:rw-,group::r-x,mask::rwx,other::--x";
        assert_eq!(extended().to_text(), text);
        assert_eq!(Acl::from_text(text), Some(extended()));
        let by_name = "user::rwx\nuser:somebody:rw-:1000\ngroup::r-x\nmask::rwx\nother::--x\n";
        assert_eq!(Acl::from_text(by_name), Some(extended()));
        for none in ["", "user", "user:somebody:rw-", "who::rwx", "user::rwx,user::rwx,group::r-x,other::--x"] {
            assert_eq!(Acl::from_text(none), None, "{none}");
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let good = extended().encode();
        let errno = |value: &[u8]| Acl::decode(value).unwrap_err().errno();
        for len in (1..4).chain(5..good.len()).filter(|len| !(len - 4usize.min(*len)).is_multiple_of(ENTRY) || *len < 4)
        {
            assert_eq!(errno(&good[..len]), Errno::EINVAL, "{len}");
        }
        assert_eq!(errno(&[3, 0, 0, 0]), Errno::EOPNOTSUPP);
        let without =
            |n: usize| Acl(extended().0.iter().enumerate().filter(|(i, _)| *i != n).map(|(_, e)| *e).collect());
        for n in [0, 2, 3, 4] {
            assert_eq!(errno(&without(n).encode()), Errno::EINVAL, "without entry {n}");
        }
        let mut swapped = extended();
        swapped.0.swap(0, 1);
        assert_eq!(errno(&swapped.encode()), Errno::EINVAL);
        let mut bits = extended();
        bits.0[1].perm = 8;
        assert_eq!(errno(&bits.encode()), Errno::EINVAL);
        let mut nobody = extended();
        nobody.0[1].id = NOBODY;
        assert_eq!(errno(&nobody.encode()), Errno::EINVAL);
        let mut twice = extended();
        twice.0.push(twice.0[4]);
        assert_eq!(errno(&twice.encode()), Errno::EINVAL);
    }

    #[test]
    fn the_mode_and_the_list_are_in_step() {
        assert_eq!(extended().mode(), 0o771);
        assert!(!extended().is_minimal());
        let changed = extended().with_mode(0o640);
        assert_eq!(changed.mode(), 0o640);
        // Whom the list names keeps what it says; the mask is what counts.
        assert_eq!((changed.0[1].perm, changed.0[2].perm, changed.0[3].perm), (6, 5, 4));
        let minimal = acl(&[(Tag::Owner, 6, NOBODY), (Tag::OwningGroup, 4, NOBODY), (Tag::Others, 0, NOBODY)]);
        assert!(minimal.is_minimal() && minimal.is_valid());
        assert_eq!((minimal.mode(), minimal.with_mode(0o755).mode()), (0o640, 0o755));
    }

    #[test]
    fn a_new_file_gets_what_both_allow() {
        let new = extended().inherited(0o664);
        assert_eq!(new.mode(), 0o660);
        assert_eq!((new.0[1].perm, new.0[2].perm), (6, 5));
    }
}
