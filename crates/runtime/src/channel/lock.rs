//! Locks a mutex whatever happened to its last holder.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Ignores poison: the state behind these locks stays valid across panics.
pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
