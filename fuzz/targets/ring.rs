//! The input is a request of the kernel, with whatever lengths, as FUSE over io_uring and /dev/fuse bring it.
#![no_main]

use arbor_fuse::hostile::Hostile;
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;

fuzz_target!(|data: &[u8]| {
    thread_local! {
        static HOSTILE: RefCell<Hostile> = RefCell::default();
    }
    HOSTILE.with_borrow_mut(|hostile| hostile.serve(data));
});
