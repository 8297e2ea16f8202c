//! Named processors.
