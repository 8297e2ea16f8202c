//! Locks a mutex.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a thread that panicked left is as good as before.
pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
