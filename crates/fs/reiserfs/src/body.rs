//! Bytes of items: parts of the nodes that were read, which are shared and not copied.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

/// The bytes of an item. A copy of them is cheap; who changes them has their own.
#[derive(Clone, Default)]
pub struct Body {
    all: Arc<Vec<u8>>,
    from: usize,
    to: usize,
}

impl Body {
    /// These bytes of a node; none of them where it has not all of them.
    pub fn of(node: &Arc<Vec<u8>>, range: Range<usize>) -> Body {
        Body { all: node.clone(), from: range.start, to: range.end }
    }

    /// Some of the bytes.
    pub fn part(&self, range: Range<usize>) -> Body {
        let to = self.to.min(self.from + range.end);
        Body { all: self.all.clone(), from: to.min(self.from + range.start), to }
    }

    /// Changes them.
    pub fn edit<T>(&mut self, f: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let own = self.own();
        let done = f(own);
        self.to = own.len();
        done
    }

    /// They alone, and nobody else has them.
    fn own(&mut self) -> &mut Vec<u8> {
        if self.from != 0 || self.to != self.all.len() {
            *self = Body::from(self.to_vec());
        }
        Arc::make_mut(&mut self.all)
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Body {
        Body { from: 0, to: bytes.len(), all: Arc::new(bytes) }
    }
}

impl Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.all.get(self.from..self.to).unwrap_or(&[])
    }
}

impl DerefMut for Body {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.own()
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Body) -> bool {
        let is_same = Arc::ptr_eq(&self.all, &other.all) && (self.from, self.to) == (other.from, other.to);
        is_same || **self == **other
    }
}

impl Eq for Body {}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_by_nobody_else() {
        let node = Arc::new((0..10).collect::<Vec<u8>>());
        let mut body = Body::of(&node, 2..8);
        let (whole, part) = (body.clone(), body.part(1..4));
        body[0] = 99;
        body.edit(|bytes| bytes.push(7));
        assert_eq!(*body, [99, 3, 4, 5, 6, 7, 7]);
        assert_eq!((&*whole, &*part, node.len()), (&[2, 3, 4, 5, 6, 7][..], &[3, 4, 5][..], 10));
        let other = body.clone();
        body.edit(Vec::clear);
        assert_eq!((body.len(), other.len()), (0, 7));
    }

    #[test]
    fn what_is_not_there_is_empty() {
        let node = Arc::new(vec![1, 2, 3]);
        assert!(Body::of(&node, 2..9).is_empty());
        let body = Body::from(vec![1, 2, 3]);
        assert_eq!((&*body.part(2..9), &*body.part(7..9)), (&[3][..], &[][..]));
    }
}
