//! A future that completes at a deadline.

use crate::base::tick::Timestamp;
use crate::future;
use crate::system::clock::runtime::{Instant, after};
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;
use tokio::task::coop::poll_proceed;

/// Returns a future that completes `duration` from now, or later; never earlier. See `tokio::time::sleep`.
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(after(duration))
}

/// Returns a future that completes at `deadline`, or later; never earlier. See `tokio::time::sleep_until`.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep { deadline, sleep: None }
}

/// A future that completes at its deadline: see [`sleep`] and [`sleep_until`].
///
/// The future arms no timer before its first poll. Dropping the future disarms its timer.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Sleep {
    deadline: Instant,
    /// The sleep on the engine; `None` before the first poll. The first poll makes the sleep on the shards of the
    /// polling task's runtime.
    sleep: Option<future::Sleep>,
}

impl Sleep {
    /// Returns the moment at which the sleep completes.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns whether the sleep was polled and its deadline has passed.
    #[must_use]
    pub fn is_elapsed(&self) -> bool {
        self.sleep.as_ref().is_some_and(future::Sleep::is_elapsed)
    }

    /// Gives the sleep another deadline. The sleep may have completed before.
    pub fn reset(mut self: Pin<&mut Self>, deadline: Instant) {
        self.deadline = deadline;
        if let Some(sleep) = &mut self.sleep {
            sleep.reset(timestamp(deadline));
        }
    }

    /// Gives the sleep another deadline without arming the timer. The next poll arms the timer.
    pub(super) fn reset_silently(&mut self, deadline: Instant) {
        self.deadline = deadline;
        if let Some(sleep) = &mut self.sleep {
            sleep.put(timestamp(deadline));
        }
    }

    /// Polls the sleep without charging the budget that tokio gives the task.
    pub(super) fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = timestamp(self.deadline);
        let sleep = self.sleep.get_or_insert_with(|| future::sleep_until(deadline));
        Pin::new(sleep).poll(cx)
    }
}

/// Converts a deadline to a moment on the engine's clock. The last moment of that clock means "never", so a later
/// deadline becomes the moment before it.
fn timestamp(deadline: Instant) -> Timestamp {
    Timestamp::from(deadline.into_std()).min(Timestamp::MAX - Duration::from_nanos(1))
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // A task that awaits one sleep after the other, each of them over, lets other tasks go on at times.
        let budget = ready!(poll_proceed(cx));
        let outcome = self.poll_elapsed(cx);
        if outcome.is_ready() {
            budget.made_progress();
        }
        outcome
    }
}
