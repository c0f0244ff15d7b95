//! The clock of a tokio runtime, which a test may pause.
//!
//! tokio pauses its clock with its feature `test-util` alone, so this module is behind the feature of the same name. A
//! sleep that begins while the clock is paused or was moved is tokio's own: it ends at the same moment and in the same
//! order as the sleeps of tokio, and the clock advances to it on its own. All other timers on the runtime's shards read
//! the runtime's clock.

use crate::base::sync::{AtomicBool, Ordering, StdArc};
use crate::base::tick::Timestamp;
use crate::system::clock::Clock;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::panic::AssertUnwindSafe;
use std::time::Instant;

/// The clock of the tokio runtime that the calling thread is in, or the system's clock outside of a runtime.
#[derive(Clone, Debug, Default)]
pub(super) struct RuntimeClock {
    was_ahead: StdArc<AtomicBool>,
}

impl RuntimeClock {
    /// Whether the clock has shown a moment that had not come yet. The wheels that have read it are ahead of the
    /// system's clock, and would fire the timers of another runtime too late.
    pub(super) fn was_ahead(&self) -> bool {
        // Ordering: Relaxed. Read by the task that has read the clock, or after that task was dropped.
        self.was_ahead.load(Ordering::Relaxed)
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        let shown = tokio::time::Instant::now().into_std();
        if shown > Instant::now() {
            // Ordering: Relaxed. See `was_ahead`.
            self.was_ahead.store(true, Ordering::Relaxed);
        }
        shown.into()
    }
}

/// Whether the runtime's clock shows another moment than the system's clock.
fn is_moved() -> bool {
    let before = Instant::now();
    let shown = tokio::time::Instant::now().into_std();
    let after = Instant::now();
    !(before..=after).contains(&shown)
}

/// A sleep of tokio in place of a timer. A panic elsewhere leaves it whole, as a timer.
#[derive(Debug)]
pub(super) struct PausedSleep(AssertUnwindSafe<Pin<Box<tokio::time::Sleep>>>);

impl PausedSleep {
    /// Begins a sleep if the runtime's clock was paused or moved.
    pub(super) fn begin(deadline: Timestamp) -> Option<Self> {
        is_moved().then(|| {
            Self(AssertUnwindSafe(Box::pin(tokio::time::sleep_until(Instant::from(deadline).into()))))
        })
    }

    pub(super) fn reset(&mut self, deadline: Timestamp) {
        self.0.as_mut().reset(Instant::from(deadline).into());
    }

    pub(super) fn is_elapsed(&self) -> bool {
        self.0.is_elapsed()
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}
