//! What use leaves of an SSD's translation: all of it was written in order, and then as much again in pieces at random
//! places, so that every block has data, and spare room is spread over all of them.

use super::flash::Flash;
use super::hybrid::Work;
use super::{SsdModel, Translation};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// What is overwritten at once, bytes: a block of most file systems.
const PIECE_BYTES: u64 = 4096;

/// The translation of a used device. It is made once for all devices of a model and its clones.
#[derive(Clone, Default)]
pub(crate) struct Used(Arc<OnceLock<Translation>>);

impl Used {
    /// A copy for a device.
    pub(super) fn translation(&self, model: &SsdModel, capacity_bytes: u64) -> Translation {
        self.0.get_or_init(|| age(model, capacity_bytes)).clone()
    }
}

impl fmt::Debug for Used {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Used")
    }
}

fn age(model: &SsdModel, capacity_bytes: u64) -> Translation {
    // Its time is nobody's.
    let mut flash = Flash::new(model);
    let mut translation = Translation::new(model, capacity_bytes, flash.dies());
    translation.take(0, capacity_bytes, model, &mut flash);
    let pieces = capacity_bytes / PIECE_BYTES;
    let mut state = 0;
    for _ in 0..pieces {
        translation.take(draw(&mut state) % pieces * PIECE_BYTES, PIECE_BYTES, model, &mut flash);
    }
    // Nothing of that is in the buffer any more.
    if let Translation::Page { map, .. } = &mut translation {
        map.pad(&mut flash, 0);
        map.take_programmed().for_each(drop);
    }
    translation
}

/// SplitMix64.
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Translation {
    /// Writes whole units.
    fn take(&mut self, offset: u64, len: u64, model: &SsdModel, flash: &mut Flash) {
        match self {
            Translation::Page { map, unit_bytes } => {
                for unit in offset / *unit_bytes..(offset + len) / *unit_bytes {
                    map.write(unit, flash, 0);
                    map.take_programmed().for_each(drop);
                }
            }
            Translation::Hybrid(logs) => {
                let mut work = Work::default();
                (offset / model.page_bytes..(offset + len) / model.page_bytes).for_each(|p| logs.write(p, &mut work));
            }
        }
    }
}
