//! The only module that imports atomics, cells and threads. All other modules import them from here.
//!
//! In a build for a model (`--cfg tourbillon_loom`, library tests only) the names stand for loom's types, so that the
//! models in `loom_tests/` explore the code that users run. In a build for the simulation of many cores (`--cfg
//! tourbillon_lines`, library tests only) the types record each access.

#[cfg(all(test, tourbillon_loom))]
mod imp {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::Arc;
    pub(crate) use loom::sync::Condvar as ModelledCondvar;
    pub(crate) use loom::sync::Mutex as ModelledMutex;
    pub(crate) use loom::sync::MutexGuard as ModelledMutexGuard;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
    pub(crate) use loom::thread;
    /// The type of a thread's key in a model ([`this_thread`]).
    pub(crate) type ThreadKey = loom::thread::ThreadId;

    pub(crate) fn this_thread() -> ThreadKey {
        thread::current().id()
    }

    /// Returns 0. The threads of a model all have this number.
    pub(crate) fn number_of_this_thread() -> u64 {
        0
    }

    /// Parks the thread until it is unparked: a model has no time, so no timeout ends the park.
    pub(crate) fn park_timeout(_: std::time::Duration) {
        thread::park();
    }

    /// Lets other threads go on, in place of a sleep: a model has no time.
    pub(crate) fn sleep(_: std::time::Duration) {
        thread::yield_now();
    }
}

#[cfg(not(all(test, tourbillon_loom)))]
mod imp {
    pub(crate) use std::sync::Arc;
    /// A lock whose interleavings the models explore. The models leave [`Mutex`](super::Mutex) out.
    pub(crate) use std::sync::Mutex as ModelledMutex;
    pub(crate) use std::sync::MutexGuard as ModelledMutexGuard;
    #[cfg(not(all(test, tourbillon_lines)))]
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
    pub(crate) use std::sync::atomic::{Ordering, fence};
    pub(crate) use std::thread::{self, park_timeout, sleep};

    #[cfg(all(test, tourbillon_lines))]
    pub(crate) use crate::base::record::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, UnsafeCell};

    /// A thread's key. No two threads of a process ever have equal keys.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct ThreadKey(u64);

    /// Returns the key of the calling thread at the price of a load. A call of `std::thread::current` costs more,
    /// because it counts a reference.
    #[inline]
    pub(crate) fn this_thread() -> ThreadKey {
        std::thread_local! {
            static KEY: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
        }
        #[cold]
        fn choose() -> u64 {
            static NEXT: AtomicU64 = AtomicU64::new(1);
            // Ordering: Relaxed. The keys need only differ.
            let key = NEXT.fetch_add(1, Ordering::Relaxed);
            KEY.set(key);
            key
        }
        let key = KEY.get();
        ThreadKey(if key == 0 { choose() } else { key })
    }

    /// Returns the number of the calling thread. Threads get the numbers 1, 2, 3 and so on, in the order of their first
    /// calls.
    #[inline]
    pub(crate) fn number_of_this_thread() -> u64 {
        this_thread().0
    }

    /// A [`std::cell::UnsafeCell`] that is accessed through closures, as loom's cell is.
    #[cfg(not(all(test, tourbillon_lines)))]
    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    #[cfg(not(all(test, tourbillon_lines)))]
    impl<T> UnsafeCell<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}

pub(crate) use imp::*;
/// An `Arc` that models do not track. It is for objects that users and executors share.
pub(crate) use std::sync::Arc as StdArc;
/// Locks for rare paths only: start, stop, waiting for a handler, and waking a loop that is a task. Models do not
/// explore these locks.
pub(crate) use std::sync::{
    Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, TryLockResult, Weak,
};

/// Returns the guard even if the lock is poisoned. The engine's locks guard no data that a panic could leave
/// half-changed.
pub(crate) fn ignore_poison<G>(result: Result<G, PoisonError<G>>) -> G {
    result.unwrap_or_else(PoisonError::into_inner)
}
