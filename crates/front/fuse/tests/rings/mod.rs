//! For tests of mounts by io_uring.

/// Whether rings as a mount has them can be made here, which containers often forbid; says aloud if not.
pub fn can_be_made() -> bool {
    let mut builder = io_uring::IoUring::<io_uring::squeue::Entry128>::builder();
    builder.setup_r_disabled().setup_single_issuer().setup_defer_taskrun();
    let made = builder.build(1);
    if let Err(e) = &made {
        eprintln!("NOT RUN: io_uring: {e}");
    }
    made.is_ok()
}
