//! The orders in which small directories are being listed (decision 37). Called by `dir.rs`.

use arbor_base::vfs::Ino;
use std::collections::VecDeque;
use std::sync::Arc;

/// An entry in an order: its cookie, and its offset.
pub(crate) type Listed = (u64, u64);

/// The orders of objects in which directories are being listed, as they were when each listing began: a name that stays keeps its
/// place, though another object takes it.
#[derive(Default)]
pub(crate) struct Orders(VecDeque<(Ino, Arc<Vec<Listed>>)>);

impl Orders {
    /// How many are kept.
    const MOST: usize = 64;

    pub fn keep(&mut self, dir: Ino, all: Vec<Listed>) -> Arc<Vec<Listed>> {
        let order = Arc::new(all);
        self.0.retain(|known| known.0 != dir);
        self.0.push_back((dir, order.clone()));
        if self.0.len() > Orders::MOST {
            self.0.pop_front();
        }
        order
    }

    pub fn of(&self, dir: Ino) -> Option<Arc<Vec<Listed>>> {
        self.0.iter().find(|known| known.0 == dir).map(|known| known.1.clone())
    }
}
