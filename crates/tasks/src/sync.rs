//! The only module that uses atomics, locks and threads of the system.
//!
//! In a build for loom's models (`--cfg tourbillon_loom`, library tests only) the same names refer to loom's types. So
//! the models in `loom_tests/` explore the code that users run.

#[cfg(all(test, tourbillon_loom))]
mod imp {
    pub(crate) use loom::sync::Mutex as ModelledMutex;
    pub(crate) use loom::sync::MutexGuard as ModelledMutexGuard;
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
    pub(crate) use loom::thread;

    /// Parks the thread until it is unparked. The time limit is ignored, because no time passes in loom's models.
    pub(crate) fn park_timeout(_: std::time::Duration) {
        thread::park();
    }
}

#[cfg(not(all(test, tourbillon_loom)))]
mod imp {
    /// A lock of the standard library. In loom's models, a lock of loom takes its place, and the models explore the
    /// orders in which threads take it.
    pub(crate) use std::sync::Mutex as ModelledMutex;
    pub(crate) use std::sync::MutexGuard as ModelledMutexGuard;
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
    pub(crate) use std::thread::{self, park_timeout};
}

use core::time::Duration;
use std::sync::{LockResult, TryLockError, TryLockResult};

pub(crate) use imp::*;
/// An `Arc` that loom's models do not track, for objects that users and executors share.
pub(crate) use std::sync::Arc as StdArc;
/// Locks that loom's models do not track. They protect the maps, the progress of tasks, and lists that change rarely.
pub(crate) use std::sync::{
    Condvar, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
};

/// The time for which a thread in the child of a fork tries to get a lock. The thread tries [`LOOKS`] times, because
/// another thread of the child may hold the lock for a moment.
const PATIENCE: Duration = Duration::from_millis(2);
const LOOKS: u32 = 40;

/// Takes a lock. In the child of a fork, a lock stays locked for ever if another thread of the parent held it at the
/// fork. So in the child, this function tries for a moment, and returns `None` if the lock stays locked. Each `Drop` of
/// this crate takes its locks by this function, since a shutdown in the child may drop any object.
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

/// Returns the guard of a lock, whether the lock is poisoned or not. No lock of this crate protects data that a panic
/// could leave half-changed.
pub(crate) fn ignore_poison<G>(result: Result<G, std::sync::PoisonError<G>>) -> G {
    result.unwrap_or_else(std::sync::PoisonError::into_inner)
}
