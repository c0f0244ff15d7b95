//! The process as one of a line of forks, and locks for which the child of a fork does not wait.
//!
//! The child of a fork is a copy of its parent with one thread. A lock that another thread of the parent held at that
//! moment stays locked in the child for ever. The child's `exit` runs the destructors of thread-locals, and the child
//! may shut down or drop an engine that it never used: both must end. So a lock that these paths reach is a
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
//! M1. A caller of [`ForkLock::lock`] that gets no guard changes nothing and reads nothing: a value whose holder is
//!     gone may be half-changed. The caller leaks the object that it would have put away, or refuses.
//! M2. The generation changes in a child before `fork` returns there, while the child has one thread (`system::forks`).
//!
//! *Rejected:* a handler that runs before each fork and takes the locks. It would have to know every engine's locks,
//! and a handler of a timer that forks would wait for the lock of the shard that runs it.

use super::sync::{
    ModelledMutex, ModelledMutexGuard, Ordering, TryLockError, TryLockResult, doze, ignore_poison,
};
use core::time::Duration;
use std::sync::atomic::AtomicU32;

/// The number of forks between the first process and this one. Outside of the models' reach: models do not fork.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The time for which a caller in a child waits for a lock that another thread of the child may hold, and the number of
/// looks in that time.
const PATIENCE: Duration = Duration::from_millis(2);
const LOOKS: u32 = 40;

/// A process in a line of forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u32);

impl Generation {
    /// This process.
    #[inline]
    pub(crate) fn current() -> Self {
        // Ordering: Relaxed [M2]. Changed while the child has one thread.
        Self(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether this process is a child of the process, or a child's child.
    #[inline]
    pub(crate) fn is_past(self) -> bool {
        self != Self::current()
    }
}

/// Begins a new generation, in the child of a fork.
pub(crate) fn begin_generation() {
    // Ordering: Relaxed [M2]. There is one thread.
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// A lock for which a child of the process that made it does not wait for ever. Ignores poison.
#[derive(Debug)]
pub(crate) struct ForkLock<T> {
    made_in: Generation,
    value: ModelledMutex<T>,
}

impl<T> ForkLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { made_in: Generation::current(), value: ModelledMutex::new(value) }
    }

    /// Locks the value. `None` in a child of the process that made the lock, if a thread of the parent held it at the
    /// fork (M1).
    pub(crate) fn lock(&self) -> Option<ModelledMutexGuard<'_, T>> {
        if !self.made_in.is_past() {
            return Some(ignore_poison(self.value.lock()));
        }
        match lock_patiently(&self.value) {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// Locks a lock that is older than this process. Gives up after a moment.
#[cold]
pub(crate) fn lock_patiently<T>(lock: &ModelledMutex<T>) -> TryLockResult<ModelledMutexGuard<'_, T>> {
    for _ in 0..LOOKS {
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => doze(PATIENCE / LOOKS),
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
