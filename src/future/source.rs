//! Chooses the engine for a future: the engine of the shards that the thread has entered, the engine of the thread's
//! tokio runtime, the process's own engine, or a given engine.

use super::wakeup::Wakeup;
#[cfg(feature = "tokio")]
use super::{ended, runtime};
use crate::api::global;
use crate::api::handle::Handle;
use crate::api::shards;
use crate::base::sync::OnceLock;
use crate::base::tick::Timestamp;
#[cfg(feature = "tokio")]
use crate::system::clock::runtime::{self as clock, Instant};
use core::fmt;
use core::task::Waker;
#[cfg(feature = "tokio")]
use core::time::Duration;

/// The engine on which a future waits.
#[derive(Clone)]
pub(super) enum Source {
    /// The process's own engine. A `'static` reference spares a reference count that all threads would write.
    Global(&'static Handle<Wakeup>),
    /// The engine on the shards that a task of this tokio runtime turns.
    #[cfg(feature = "tokio")]
    Runtime(Handle<Wakeup>),
    Given(Handle<Wakeup>),
}

impl Source {
    /// Returns whether the engine is on shards that a tokio runtime turns. A test may pause the clock of such a
    /// runtime.
    #[cfg(feature = "test-util")]
    pub(super) fn is_runtime(&self) -> bool {
        matches!(self, Self::Runtime(..))
    }

    /// Returns the moment on the engine's clock at which `instant` comes, or a later moment. The last moment of the
    /// clock is not returned, since it would never come.
    #[cfg(feature = "tokio")]
    pub(super) fn moment_of(&self, instant: Instant) -> Timestamp {
        let moment = match self {
            Self::Runtime(..) => instant.into_std().into(),
            // The engine may have a clock that the program has chosen. The rest is computed before that clock is read,
            // so that the sum is not early.
            _ => match instant.saturating_duration_since(clock::now()) {
                // `now` may be ahead of the moment by which timers end.
                Duration::ZERO => self.handle().core().clock().true_now(),
                rest => self.handle().now() + rest,
            },
        };
        moment.min(Timestamp::MAX - Duration::from_nanos(1))
    }

    #[inline]
    pub(super) fn now(&self) -> Timestamp {
        #[cfg(feature = "test-util")]
        if let Self::Runtime(handle) = self {
            // Exact, so that a wait under a paused clock ends at the same moment as tokio's.
            return handle.core().clock().true_now();
        }
        self.handle().now()
    }

    /// Returns whether a future that finds the engine shut down stays pending. It does if the engine is on the shards
    /// of a tokio runtime that has ended just now, and a task of that runtime polls the future.
    #[cold]
    pub(super) fn stays_pending(&self, waker: &Waker) -> bool {
        match self {
            Self::Global(_) => false,
            #[cfg(feature = "tokio")]
            _ => ended::stays_pending(self.handle(), waker),
            #[cfg(not(feature = "tokio"))]
            _ => {
                let _nobody_is_woken = waker;
                false
            }
        }
    }

    #[inline]
    pub(super) fn handle(&self) -> &Handle<Wakeup> {
        match self {
            Self::Global(handle) => handle,
            #[cfg(feature = "tokio")]
            Self::Runtime(handle) => handle,
            Self::Given(handle) => handle,
        }
    }
}

/// Returns a handle to the process's own engine for futures, on the process's own [`Shards`](crate::Shards). A program
/// needs it for functions that take a handle, and for the engine's statistics. If the program shuts this engine down,
/// it stays shut down: its futures report that from then on.
///
/// # Panics
///
/// This function and all other functions of the module [`future`](super) panic if the process's shards are not started
/// yet and the system refuses a thread.
pub fn global() -> &'static Handle<Wakeup> {
    static GLOBAL: OnceLock<&'static Handle<Wakeup>> = OnceLock::new();
    GLOBAL.get_or_init(|| match global::shards() {
        Ok(shards) => shards.futures(),
        Err(error) => panic!("the process's shards could not be started: {error}"),
    })
}

/// Returns the engine for futures that the calling thread uses. It is on the shards that the thread has entered. If the
/// thread has entered none, it is on the shards of the thread's tokio runtime. Otherwise it is on the process's own
/// shards.
#[inline]
pub(super) fn current() -> Source {
    if let Some(shards) = shards::entered() {
        return Source::Given(shards.futures().clone());
    }
    #[cfg(feature = "tokio")]
    if let Some(handle) = runtime::engine() {
        return Source::Runtime(handle);
    }
    Source::Global(global())
}

/// Returns the engine for futures on the shards that the calling thread has entered, or else the process's own engine.
/// Never returns the engine of a tokio runtime.
#[inline]
pub(super) fn outside_of_runtimes() -> Source {
    match shards::entered() {
        Some(shards) => Source::Given(shards.futures().clone()),
        None => Source::Global(global()),
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source")
    }
}
