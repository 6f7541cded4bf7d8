//! Interruption: whether the caller still waits for the call that a thread serves.

use std::cell::RefCell;

thread_local! {
    static ASK: RefCell<Option<Box<dyn Fn() -> bool>>> = const { RefCell::new(None) };
}

/// Whether the caller got a signal and should be let go. A call that has changed nothing yet may then
/// fail with `EINTR`, and one that works in pieces may end with what it has done; all others go on.
/// Cheap enough to be asked before each wait and each step of a long loop.
///
/// Always false on a thread where nobody answers it: see [`interruptible`].
pub fn interrupted() -> bool {
    ASK.with_borrow(|ask| ask.as_ref().is_some_and(|ask| ask()))
}

/// Runs `f`; meanwhile `ask` answers [`interrupted`] on this thread.
pub fn interruptible<R>(ask: impl Fn() -> bool + 'static, f: impl FnOnce() -> R) -> R {
    struct Undo(Option<Box<dyn Fn() -> bool>>);
    impl Drop for Undo {
        fn drop(&mut self) {
            ASK.set(self.0.take());
        }
    }
    let _undo = Undo(ASK.replace(Some(Box::new(ask))));
    f()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_inside_is_anybody_interrupted() {
        assert!(!interrupted());
        interruptible(
            || true,
            || {
                assert!(interrupted());
                interruptible(|| false, || assert!(!interrupted()));
                assert!(interrupted());
            },
        );
        assert!(!interrupted());
    }
}
