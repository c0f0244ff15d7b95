//! A future that completes at a deadline.

use crate::future;
use crate::system::clock::runtime::{Instant, after};
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;
use tokio::task::coop::poll_proceed;

/// Completes `duration` from now, or later; never earlier. See `tokio::time::sleep`.
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(after(duration))
}

/// Completes at `deadline`, or later; never earlier. See `tokio::time::sleep_until`.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep { deadline, sleep: None }
}

/// A future that completes at its deadline: see [`sleep`] and [`sleep_until`].
///
/// Nothing is registered before the first poll. Dropping the future disarms its timer.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Sleep {
    deadline: Instant,
    /// The sleep that the first poll begins, on the shards of that poll's runtime. `None` before the first poll.
    sleep: Option<future::Sleep>,
}

impl Sleep {
    /// The moment at which the sleep completes.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns whether the sleep was polled and its deadline has passed.
    #[must_use]
    pub fn is_elapsed(&self) -> bool {
        self.sleep.as_ref().is_some_and(future::Sleep::is_elapsed)
    }

    /// Replaces the sleep's deadline, before or after the sleep has completed.
    pub fn reset(mut self: Pin<&mut Self>, deadline: Instant) {
        self.deadline = deadline;
        if let Some(sleep) = &mut self.sleep {
            sleep.reset(sleep.moment_of(deadline));
        }
    }

    /// Replaces the sleep's deadline. The next poll arms the timer for it.
    pub(super) fn reset_silently(&mut self, deadline: Instant) {
        self.deadline = deadline;
        if let Some(sleep) = &mut self.sleep {
            sleep.put(sleep.moment_of(deadline));
        }
    }

    /// Polls the sleep. Does not take the poll from the task's budget, which limits a task's polls between two yields.
    pub(super) fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.sleep.get_or_insert_with(|| future::sleep_until_instant(self.deadline));
        Pin::new(sleep).poll(cx)
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // A task that awaits many sleeps whose deadlines have passed yields now and then to other tasks.
        let budget = ready!(poll_proceed(cx));
        let outcome = self.poll_elapsed(cx);
        if outcome.is_ready() {
            budget.made_progress();
        }
        outcome
    }
}
