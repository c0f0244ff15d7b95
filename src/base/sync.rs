//! The one door to atomics, cells and threads.
//!
//! In a build for a model (`--cfg tourbillon_loom`, library tests only) the same names are loom's, so that the models
//! in `loom_tests/` explore the code that users run. In a build for the simulation of many cores (`--cfg
//! tourbillon_lines`, library tests only) they record their accesses.

#[cfg(all(test, tourbillon_loom))]
mod imp {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::Arc;
    pub(crate) use loom::sync::Mutex as ModelledMutex;
    pub(crate) use loom::sync::MutexGuard as ModelledMutexGuard;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
    pub(crate) use loom::thread;
    /// The key of a thread: see [`this_thread`].
    pub(crate) type ThreadKey = loom::thread::ThreadId;

    /// The key of the calling thread.
    pub(crate) fn this_thread() -> ThreadKey {
        thread::current().id()
    }

    /// A number of the calling thread. Threads of a model share it.
    pub(crate) fn number_of_this_thread() -> u64 {
        0
    }

    /// A model has no time: a timed park waits for its unpark.
    pub(crate) fn park_timeout(_: std::time::Duration) {
        thread::park();
    }

    /// A model has no time: a short doze passes while other threads go on.
    pub(crate) fn doze(_: std::time::Duration) {
        thread::yield_now();
    }

    /// A model has no time: other threads go on.
    pub(crate) fn sleep(_: std::time::Duration) {
        thread::yield_now();
    }
}

#[cfg(not(all(test, tourbillon_loom)))]
mod imp {
    pub(crate) use std::sync::Arc;
    /// A lock that models enter.
    pub(crate) use std::sync::Mutex as ModelledMutex;
    pub(crate) use std::sync::MutexGuard as ModelledMutexGuard;
    #[cfg(not(all(test, tourbillon_lines)))]
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
    pub(crate) use std::sync::atomic::{Ordering, fence};
    /// A park whose timeout a model waits for.
    pub(crate) use std::thread::park_timeout as doze;
    pub(crate) use std::thread::{self, park_timeout, sleep};

    #[cfg(all(test, tourbillon_lines))]
    pub(crate) use crate::base::record::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, UnsafeCell};

    /// The key of a thread: no two threads of a process ever have the same one.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct ThreadKey(u64);

    /// The key of the calling thread, at the price of a load: `std`'s way to a thread's id counts a reference.
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

    /// A number of the calling thread. Threads that ask for theirs one after the other get numbers that follow each
    /// other.
    #[inline]
    pub(crate) fn number_of_this_thread() -> u64 {
        this_thread().0
    }

    /// [`std::cell::UnsafeCell`] with the closure access that loom tracks.
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
/// An `Arc` that models do not track: for objects that users and executors share.
pub(crate) use std::sync::Arc as StdArc;
/// Locks for the rare paths only: start, stop, waiting for a handler, waking a loop that is a task. No model enters
/// them.
pub(crate) use std::sync::{
    Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, TryLockResult, Weak,
};

/// Ignores a lock's poison: the engine's locks guard no data that a panic could leave half-changed.
pub(crate) fn ignore_poison<G>(result: Result<G, PoisonError<G>>) -> G {
    result.unwrap_or_else(PoisonError::into_inner)
}
