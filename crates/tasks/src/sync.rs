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

    /// Lets other threads go on, in place of a sleep: no time passes in loom's models.
    pub(crate) fn sleep(_: std::time::Duration) {
        thread::yield_now();
    }

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
    pub(crate) use std::thread::{self, park_timeout, sleep};
}

use core::ops::Deref;
use core::time::Duration;
use std::sync::atomic::AtomicBool;
use std::sync::{LockResult, TryLockError, TryLockResult};

pub(crate) use imp::*;
/// An `Arc` that loom's models do not track, for objects that users and executors share.
pub(crate) use std::sync::Arc as StdArc;
/// Locks that loom's models do not track. They protect the maps, the progress of tasks, and lists that change rarely.
pub(crate) use std::sync::{
    Condvar, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
};

/// How long a caller waits for a lock. In the child of a fork, a lock stays locked for ever if another thread of the
/// parent held it at the fork.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// The caller waits until the lock is free: in the process that started the engine, and in each call that cannot do
    /// without the lock.
    Endless,
    /// The caller waits for about a second: in a child that may go on with an engine, because the engine has no
    /// threads. Another thread of the child may hold the lock, and the child needs the caller's change.
    Long,
    /// The caller waits for a few milliseconds: in a child in which the engine's threads are missing. The engine does
    /// nothing there any more, so a change that stays undone has no effect.
    Short,
}

impl Patience {
    /// Returns how often the caller tries the lock again.
    fn looks(self) -> u32 {
        if self == Self::Short { 40 } else { 10_000 }
    }
}

/// The pause between two tries of a lock in the child of a fork.
const PAUSE: Duration = Duration::from_micros(50);

/// A lock that a drop can do without in the child of a fork. Each `Drop` of this crate takes its locks by
/// [`unless_lost`](Self::unless_lost), since a shutdown in the child may drop any object.
#[derive(Default)]
pub(crate) struct Losable<L> {
    lock: L,
    /// Whether a caller has lost its patience with the lock. Then the next callers try the lock only once. Otherwise,
    /// thousands of drops would each be patient with the same lock.
    is_given_up: AtomicBool,
}

impl<L> Losable<L> {
    pub(crate) fn new(lock: L) -> Self {
        Self { lock, is_given_up: AtomicBool::new(false) }
    }

    /// Takes the lock by `lock`, if the caller's patience is endless. Otherwise takes the lock by `try_lock`, and
    /// returns `None` if the lock stays locked.
    pub(crate) fn unless_lost<'a, G>(
        &'a self,
        patience: Patience,
        lock: impl FnOnce(&'a L) -> LockResult<G>,
        try_lock: impl Fn(&'a L) -> TryLockResult<G>,
    ) -> Option<G> {
        if patience == Patience::Endless {
            Some(ignore_poison(lock(&self.lock)))
        } else {
            self.try_for(patience, try_lock)
        }
    }

    #[cold]
    fn try_for<'a, G>(
        &'a self,
        patience: Patience,
        try_lock: impl Fn(&'a L) -> TryLockResult<G>,
    ) -> Option<G> {
        // Ordering: Relaxed. The flag only shortens a wait.
        let mut looks = if self.is_given_up.load(Ordering::Relaxed) { 0 } else { patience.looks() };
        let guard = loop {
            match try_lock(&self.lock) {
                Ok(guard) => break Some(guard),
                Err(TryLockError::Poisoned(poisoned)) => break Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if looks == 0 => break None,
                Err(TryLockError::WouldBlock) => sleep(PAUSE),
            }
            looks -= 1;
        };
        self.is_given_up.store(guard.is_none(), Ordering::Relaxed);
        guard
    }
}

impl<L> Deref for Losable<L> {
    type Target = L;

    fn deref(&self) -> &L {
        &self.lock
    }
}

/// Returns the guard of a lock, whether the lock is poisoned or not. No lock of this crate protects data that a panic
/// could leave half-changed.
pub(crate) fn ignore_poison<G>(result: Result<G, std::sync::PoisonError<G>>) -> G {
    result.unwrap_or_else(std::sync::PoisonError::into_inner)
}
