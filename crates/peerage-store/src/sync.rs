//! Locks that go on after a panic elsewhere.
//!
//! A poisoned lock says that some other thread panicked while it held it. Every critical section of
//! this crate leaves its data whole before anything in it can panic, so the data is still good.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, poisoned or not.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
