//! The only door to atomics, locks and threads.
//!
//! In a build for a model (`--cfg tourbillon_loom`, library tests only) the same names are loom's, so that the models
//! in `loom_tests/` explore the code that users run.

#[cfg(all(test, tourbillon_loom))]
mod imp {
    pub(crate) use loom::sync::Mutex as ModelledMutex;
    pub(crate) use loom::sync::MutexGuard as ModelledMutexGuard;
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
    pub(crate) use loom::thread;

    /// A model has no time: a timed park waits for its unpark.
    pub(crate) fn park_timeout(_: std::time::Duration) {
        thread::park();
    }
}

#[cfg(not(all(test, tourbillon_loom)))]
mod imp {
    /// A lock that models enter.
    pub(crate) use std::sync::Mutex as ModelledMutex;
    pub(crate) use std::sync::MutexGuard as ModelledMutexGuard;
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
    pub(crate) use std::thread::{self, park_timeout};
}

use core::time::Duration;
use std::sync::{LockResult, TryLockError, TryLockResult};

pub(crate) use imp::*;
/// An `Arc` that models do not track: for objects that users and executors share.
pub(crate) use std::sync::Arc as StdArc;
/// Locks that no model enters: those of the maps, of a task's progress, and of lists that change rarely.
pub(crate) use std::sync::{
    Condvar, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
};

/// The time for which a child waits for a lock that another thread of the child may hold, and the looks in that time.
const PATIENCE: Duration = Duration::from_millis(2);
const LOOKS: u32 = 40;

/// Locks, for calls that end in the child of a fork as well. A thread of the parent that held the lock at the fork
/// holds it there for ever: the child gives up after a moment, and `None` says so.
pub(crate) fn lock_unless_lost<G>(
    is_in_child: bool,
    lock: impl FnOnce() -> LockResult<G>,
    try_lock: impl Fn() -> TryLockResult<G>,
) -> Option<G> {
    if !is_in_child {
        return Some(ignore_poison(lock()));
    }
    for _ in 0..LOOKS {
        match try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => park_timeout(PATIENCE / LOOKS),
        }
    }
    None
}

/// Ignores a lock's poison: no lock here guards data that a panic could leave half-changed.
pub(crate) fn ignore_poison<G>(result: Result<G, std::sync::PoisonError<G>>) -> G {
    result.unwrap_or_else(std::sync::PoisonError::into_inner)
}
