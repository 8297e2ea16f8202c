//! `Debug` of errors.

/// Gives an error type a `Debug` that equals its `Display`. `main` prints the `Debug` of the error
/// that it returns, and the user of the program should read a sentence.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_as_display {
    ($error:ty) => {
        impl core::fmt::Debug for $error {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(self, f)
            }
        }
    };
}
