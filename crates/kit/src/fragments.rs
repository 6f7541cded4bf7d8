//! Arithmetic of volumes whose blocks are cut into fragments (McKusick et al. 1984, section 3.1).

/// The sizes of a volume's blocks and fragments.
pub trait Fragments {
    /// log2 of the block size in bytes.
    fn block_shift(&self) -> u32;

    /// log2 of the fragment size in bytes.
    fn frag_shift(&self) -> u32;

    /// Bytes of a block.
    fn block_size(&self) -> usize {
        1 << self.block_shift()
    }

    /// Bytes of a fragment.
    fn frag_size(&self) -> usize {
        1 << self.frag_shift()
    }

    /// Fragments of a block.
    fn block_frags(&self) -> u32 {
        1 << (self.block_shift() - self.frag_shift())
    }

    /// Fragments that `bytes` bytes need.
    fn frags_for(&self, bytes: usize) -> u32 {
        bytes.div_ceil(self.frag_size()) as u32
    }

    /// Bytes of so many fragments.
    fn bytes_of(&self, frags: u32) -> usize {
        (frags as usize) << self.frag_shift()
    }

    /// Logical block that holds byte `at` of a file.
    fn lbn(&self, at: u64) -> u64 {
        at >> self.block_shift()
    }
}

/// [`Fragments`] of a structure with `block_shift` and `frag_shift`.
#[macro_export]
macro_rules! fragments {
    ($t:ty) => {
        impl $crate::fragments::Fragments for $t {
            fn block_shift(&self) -> u32 {
                self.block_shift
            }

            fn frag_shift(&self) -> u32 {
                self.frag_shift
            }
        }
    };
}
