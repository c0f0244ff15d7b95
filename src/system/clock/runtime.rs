//! The clock of tokio runtimes: the system's, unless a test has paused or moved it.
//!
//! tokio pauses a clock with its feature `test-util` alone, so [`RuntimeClock`] is behind the feature of the same name.

use core::time::Duration;
#[cfg(feature = "test-util")]
use {
    super::Clock,
    super::system::true_now,
    crate::base::sync::{AtomicBool, Ordering, StdArc},
    crate::base::tick::Timestamp,
};

pub(crate) use tokio::time::Instant;

/// Returns the present moment by the clock of the tokio runtime that the calling thread is in. Outside of a runtime,
/// reads the system's clock.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Returns the moment `delay` from now. If no [`Instant`] can show that moment, returns a moment some 30 years from
/// now, as tokio does.
pub(crate) fn after(delay: Duration) -> Instant {
    let now = now();
    now.checked_add(delay).unwrap_or_else(|| far_from(now))
}

/// Returns a moment some 30 years after `now`.
pub(crate) fn far_from(now: Instant) -> Instant {
    now + Duration::from_secs(30 * 365 * 86_400)
}

/// Returns whether the clock of the calling thread's tokio runtime shows another moment than the system's clock.
#[cfg(feature = "test-util")]
pub(crate) fn is_moved() -> bool {
    let (before, shown, after) = (true_now(), now().into_std(), true_now());
    !(before..=after).contains(&shown.into())
}

/// The clock of the tokio runtime that the calling thread is in, for the shards that a task of a runtime turns.
#[cfg(feature = "test-util")]
#[derive(Clone, Debug, Default)]
pub(crate) struct RuntimeClock {
    was_ahead: StdArc<AtomicBool>,
}

#[cfg(feature = "test-util")]
impl RuntimeClock {
    /// Returns whether the clock has ever been ahead of the system's clock, because a test moved it. Wheels that have
    /// advanced by such a clock would fire the timers of another runtime late.
    pub(crate) fn was_ahead(&self) -> bool {
        // Ordering: Relaxed. The task that read the clock was dropped before.
        self.was_ahead.load(Ordering::Relaxed)
    }
}

#[cfg(feature = "test-util")]
impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        let shown = Timestamp::from(now().into_std());
        if shown > true_now() {
            // Ordering: Relaxed. See `was_ahead`.
            self.was_ahead.store(true, Ordering::Relaxed);
        }
        shown
    }
}
