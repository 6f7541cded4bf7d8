//! Deliberate mistakes of an engine, to see whether its tests find them.

/// Declares the mistakes of a crate: the enum `Flaw`, the function `plant` for tests, and `planted`, which the
/// crate asks where it would make one. Without the crate's feature `planted`, which only a test turns on,
/// all of this is nothing at run time.
#[macro_export]
macro_rules! flaws {
    ($($(#[doc = $text:literal])* $name:ident,)*) => {
        /// A mistake.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Flaw {
            $($(#[doc = $text])* $name,)*
        }

        impl Flaw {
            /// All of them, each with what it does.
            pub const ALL: &'static [(Flaw, &'static str)] = &[$((Flaw::$name, concat!($($text),*)),)*];
        }

        #[cfg(feature = "planted")]
        static PLANTED: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(u8::MAX);

        /// Plants a mistake in every volume of the process, or none.
        #[cfg(feature = "planted")]
        pub fn plant(flaw: Option<Flaw>) {
            PLANTED.store(flaw.map_or(u8::MAX, |f| f as u8), std::sync::atomic::Ordering::SeqCst);
        }

        /// Whether `flaw` is planted.
        #[cfg(feature = "planted")]
        pub(crate) fn planted(flaw: Flaw) -> bool {
            PLANTED.load(std::sync::atomic::Ordering::Relaxed) == flaw as u8
        }

        #[cfg(not(feature = "planted"))]
        #[inline(always)]
        pub(crate) fn planted(_flaw: Flaw) -> bool {
            false
        }
    };
}
