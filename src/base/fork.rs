//! Counts the forks that led to this process. Provides locks for which the child of a fork does not wait for ever.
//!
//! The child of a fork is a copy of its parent with one thread. If another thread of the parent held a lock at the
//! fork, the lock stays locked in the child for ever. The child's `exit` runs the destructors of thread-locals. The
//! child may also shut down or drop an engine that it never used. Both must end, so a lock that they reach is a
//! [`ForkLock`].
//!
//! # States of a lock
//! ```text
//! in the process that made it:  free ◄──► held, and its holder lets go: callers wait
//! in a child of that process:   free ◄──► held: callers are patient for a moment
//!                               held at the fork, for ever: callers go on without it
//! ```
//!
//! # Invariants
//! M1. A caller of [`ForkLock::lock`] that gets no guard neither reads nor changes the value: the value may be
//!     half-changed, since its holder is gone. The caller leaks the object that it would have put away, or refuses the
//!     call.
//! M2. In a child, the generation changes before `fork` returns, while the child has one thread (`system::forks`).
//!
//! *Rejected:* a function that runs before each fork and takes the locks. The function would have to know every
//! engine's locks. A timer's handler that forks would wait for the lock of its own shard.

use super::sync::{
    ModelledMutex, ModelledMutexGuard, Ordering, TryLockError, TryLockResult, ignore_poison, sleep,
};
use core::time::Duration;
use std::sync::atomic::AtomicU32;

/// The number of forks between the first process and this process. The models use a plain atomic, too, because they do
/// not fork.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The time for which the child of a fork waits for a lock that another thread of the child may hold. The caller tries
/// [`LOOKS`] times in this time.
const PATIENCE: Duration = Duration::from_millis(2);
const LOOKS: u32 = 40;

/// Identifies a process by the number of forks that led to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u32);

impl Generation {
    #[inline]
    pub(crate) fn current() -> Self {
        // Ordering: Relaxed [M2]. The generation changes while the child has one thread.
        Self(GENERATION.load(Ordering::Relaxed))
    }

    /// Returns whether this process was forked, once or more often, from the process of this generation.
    #[inline]
    pub(crate) fn is_past(self) -> bool {
        self != Self::current()
    }
}

/// Adds one to this process's generation, the number of forks that led to it. The child of a fork calls this function.
pub(crate) fn begin_generation() {
    // Ordering: Relaxed [M2]. The child has one thread.
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// A lock that ignores poison. A child of the process that made the lock waits for it only a moment, since the thread
/// that holds it may not exist there.
#[derive(Debug)]
pub(crate) struct ForkLock<T> {
    made_in: Generation,
    value: ModelledMutex<T>,
}

impl<T> ForkLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { made_in: Generation::current(), value: ModelledMutex::new(value) }
    }

    /// Returns whether this process is the child of a fork, and the lock was made before the fork.
    pub(crate) fn is_inherited(&self) -> bool {
        self.made_in.is_past()
    }

    /// Locks the value. Returns `None` only in a child of the process that made the lock. This happens if another
    /// thread of the parent held the lock at the fork (M1).
    pub(crate) fn lock(&self) -> Option<ModelledMutexGuard<'_, T>> {
        if !self.is_inherited() {
            return Some(ignore_poison(self.value.lock()));
        }
        match lock_patiently(&self.value) {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// Locks a lock that an ancestor of this process made. Fails after [`PATIENCE`] if a thread still holds the lock.
#[cold]
pub(crate) fn lock_patiently<T>(lock: &ModelledMutex<T>) -> TryLockResult<ModelledMutexGuard<'_, T>> {
    for _ in 0..LOOKS {
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => sleep(PATIENCE / LOOKS),
            locked_or_poisoned => return locked_or_poisoned,
        }
    }
    lock.try_lock()
}

impl<T: Default> Default for ForkLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}
