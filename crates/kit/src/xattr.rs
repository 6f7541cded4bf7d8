//! Lists of extended attributes: how they change, and their bytes.
//!
//! An encoded list holds for each attribute the length of the name (u8), the highest byte of the length of the value (u8),
//! the lower ones (u16), the name, and the value.

use arbor_base::vfs::{Errno, Result, SetAttr, XattrChange, XattrMode, check_xattr_name};

/// Longest value, in bytes.
pub const VALUE_MAX: usize = 64 << 10;

/// Names and values.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Changes one attribute, or removes it; `EEXIST` and `ENODATA` as `how` asks.
pub fn change(list: &mut Xattrs, name: &[u8], value: Option<&[u8]>, how: XattrMode) -> Result<()> {
    let old = list.iter_mut().find(|(n, _)| n == name);
    match (old, value, how) {
        (Some(_), Some(_), XattrMode::Create) => return Err(Errno::EEXIST.into()),
        (None, Some(_), XattrMode::Replace) | (None, None, _) => return Err(Errno::ENODATA.into()),
        (Some(old), Some(v), _) => old.1 = v.to_vec(),
        (None, Some(v), _) => list.push((name.to_vec(), v.to_vec())),
        (Some(_), None, _) => list.retain(|(n, _)| n != name),
    }
    Ok(())
}

/// The list of a new inode. `EINVAL` if it names one twice.
pub fn new_list(xattrs: &[(&[u8], &[u8])]) -> Result<Xattrs> {
    xattrs.iter().try_for_each(|(name, _)| check_xattr_name(name))?;
    if names_twice(xattrs.iter().map(|(name, _)| *name)) {
        return Err(Errno::EINVAL.into());
    }
    Ok(xattrs.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect())
}

/// The list after the changes of [`FileSystem::change`](arbor_base::vfs::FileSystem::change), which sets no size.
pub fn changed(mut list: Xattrs, set: &SetAttr, changes: &[XattrChange<'_>]) -> Result<Xattrs> {
    if set.size.is_some() {
        return Err(Errno::EINVAL.into());
    }
    for (name, value) in changes {
        check_xattr_name(name)?;
        list.retain(|(known, _)| known != name || value.is_some());
        if value.is_some() {
            change(&mut list, name, *value, XattrMode::Set)?;
        }
    }
    Ok(list)
}

/// Number of bytes that [`encode`] returns.
pub fn encoded_len(list: &Xattrs) -> usize {
    list.iter().map(|(n, v)| 4 + n.len() + v.len()).sum()
}

/// The list as bytes.
pub fn encode(list: &Xattrs) -> Vec<u8> {
    let mut out = Vec::new();
    for (n, v) in list {
        out.extend_from_slice(&[n.len() as u8, (v.len() >> 16) as u8]);
        out.extend_from_slice(&(v.len() as u16).to_le_bytes());
        out.extend_from_slice(n);
        out.extend_from_slice(v);
    }
    out
}

/// Decodes a list of attributes; `None` if it is broken, or names one twice.
pub fn parse(mut bytes: &[u8]) -> Option<Xattrs> {
    let mut out: Xattrs = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<4>() {
        let n = usize::from(head[0]);
        let v = usize::from(head[1]) << 16 | usize::from(u16::from_le_bytes([head[2], head[3]]));
        let name = rest.get(..n).filter(|name| !name.is_empty())?;
        out.push((name.to_vec(), rest.get(n..n + v)?.to_vec()));
        bytes = rest.get(n + v..)?;
    }
    (bytes.is_empty() && !names_twice(out.iter().map(|(name, _)| &**name))).then_some(out)
}

/// Whether one of the names is there more than once. There may be thousands, also in an image that somebody made for it.
fn names_twice<'a>(names: impl Iterator<Item = &'a [u8]>) -> bool {
    let mut names: Vec<&[u8]> = names.collect();
    names.sort_unstable();
    names.windows(2).any(|pair| pair[0] == pair[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_parsed() {
        let list: Xattrs = vec![(b"user.a".to_vec(), b"1".to_vec()), (b"user.b".to_vec(), Vec::new())];
        let bytes = encode(&list);
        assert_eq!((bytes.len(), parse(&bytes)), (encoded_len(&list), Some(list.clone())));
        let twice: Xattrs = [&list[..], &list[..1]].concat();
        assert_eq!(parse(&encode(&twice)), None);
        assert_eq!(parse(&bytes[..bytes.len() - 1]), None);
        assert_eq!(parse(&[0; 4]), None);
        let long: Xattrs = vec![(b"user.long".to_vec(), vec![7; VALUE_MAX])];
        assert_eq!(parse(&encode(&long)), Some(long));
    }

    #[test]
    fn a_new_inode_has_each_name_once() {
        let [a, b]: [(&[u8], &[u8]); 2] = [(b"user.a", b"1"), (b"user.b", b"2")];
        assert_eq!(new_list(&[b, a]).map(|list| list.len()).ok(), Some(2));
        assert_eq!(new_list(&[a, b, a]).map_err(|e| e.errno()), Err(Errno::EINVAL));
    }
}
