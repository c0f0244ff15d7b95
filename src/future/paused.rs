//! A sleep in a tokio runtime whose clock a test has paused or moved.
//!
//! Such a sleep is tokio's own. So it ends at the same moment and in the same order as the sleeps of tokio, and an idle
//! runtime advances its clock to it.

use crate::base::tick::Timestamp;
use crate::system::clock::runtime::{Instant, is_moved};
use core::pin::Pin;
use core::task::{Context, Poll};
use std::panic::AssertUnwindSafe;

/// A sleep of tokio that stands in for an engine's timer while the runtime's clock is paused. A panic of other code
/// leaves the sleep whole.
#[derive(Debug)]
pub(super) struct PausedSleep(AssertUnwindSafe<Pin<Box<tokio::time::Sleep>>>);

impl PausedSleep {
    /// Begins a sleep of tokio until `deadline`. Returns `None` unless a test has paused or moved the runtime's clock.
    pub(super) fn begin(deadline: Timestamp) -> Option<Self> {
        is_moved().then(|| Self(AssertUnwindSafe(Box::pin(tokio::time::sleep_until(instant(deadline))))))
    }

    /// Gives the sleep another deadline. At the new deadline, tokio wakes the task that polled the sleep last.
    pub(super) fn reset(&mut self, deadline: Timestamp) {
        self.0.as_mut().reset(instant(deadline));
    }

    /// Returns whether the sleep is over.
    pub(super) fn is_elapsed(&self) -> bool {
        self.0.is_elapsed()
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

fn instant(moment: Timestamp) -> Instant {
    std::time::Instant::from(moment).into()
}
