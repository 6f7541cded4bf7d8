//! The orders in which small directories are being listed (decision 37). Called by `dir.rs`.

use arbor_base::vfs::Ino;
use std::collections::VecDeque;
use std::sync::Arc;

/// An entry in an order: its cookie, and its offset.
pub(crate) type Listed = (u64, u64);

/// Where the number of its order is in a cookie, and how many orders of one directory are told apart by it.
const NUMBER: u32 = 60;
const NUMBERS: u64 = 4;

/// A cookie without the number of its order.
pub(crate) fn without_number(cookie: u64) -> u64 {
    cookie & !((NUMBERS - 1) << NUMBER)
}

/// The order of a directory with this number.
struct Order {
    dir: Ino,
    number: u64,
    all: Arc<Vec<Listed>>,
}

/// The orders of objects in which directories are being listed, as they were when each listing began: a name that stays keeps its
/// place, though another object takes it. The oldest first.
#[derive(Default)]
pub(crate) struct Orders(VecDeque<Order>);

impl Orders {
    /// How many are kept.
    const MOST: usize = 64;

    /// Remembers an order, whose cookies have no number yet.
    pub fn keep(&mut self, dir: Ino, all: Vec<Listed>) -> Arc<Vec<Listed>> {
        let last = self.0.iter().rev().find(|order| order.dir == dir);
        let is_same = |order: &&Order| {
            order.all.len() == all.len() && order.all.iter().zip(&all).all(|(a, b)| (without_number(a.0), a.1) == *b)
        };
        if let Some(same) = last.filter(is_same) {
            return same.all.clone();
        }
        let number = last.map_or(0, |order| (order.number + 1) % NUMBERS);
        self.0.retain(|order| (order.dir, order.number) != (dir, number));
        let all = Arc::new(all.into_iter().map(|(place, at)| (place | number << NUMBER, at)).collect::<Vec<_>>());
        self.0.push_back(Order { dir, number, all: all.clone() });
        if self.0.len() > Orders::MOST {
            self.0.pop_front();
        }
        all
    }

    /// The order that a cookie is of.
    pub fn of(&self, dir: Ino, cookie: u64) -> Option<Arc<Vec<Listed>>> {
        let number = (cookie >> NUMBER) % NUMBERS;
        self.0.iter().find(|order| (order.dir, order.number) == (dir, number)).map(|order| order.all.clone())
    }
}
