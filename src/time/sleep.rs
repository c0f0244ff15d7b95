//! A future that completes at a deadline.

use super::{Duration, Instant, far_future};
use crate::future;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use tokio::task::coop::poll_proceed;

/// Completes `duration` from now, or later; never earlier. See `tokio::time::sleep`.
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(Instant::now().checked_add(duration).unwrap_or_else(far_future))
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
    /// Begun by the first poll, on the shards of that poll's runtime.
    sleep: Option<future::Sleep>,
}

impl Sleep {
    /// The moment at which the sleep completes.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether the deadline has passed.
    pub fn is_elapsed(&self) -> bool {
        match &self.sleep {
            Some(sleep) => sleep.is_elapsed(),
            None => self.deadline <= Instant::now(),
        }
    }

    /// Gives the sleep another deadline, before or after its completion.
    pub fn reset(mut self: Pin<&mut Self>, deadline: Instant) {
        self.deadline = deadline;
        if let Some(sleep) = &mut self.sleep {
            sleep.reset(deadline.into_std().into());
        }
    }

    /// Gives the sleep another deadline, for which the next poll arms the timer.
    pub(super) fn reset_silently(&mut self, deadline: Instant) {
        self.deadline = deadline;
        if let Some(sleep) = &mut self.sleep {
            sleep.put(deadline.into_std().into());
        }
    }

    /// Polls without a look at the task's budget.
    pub(super) fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.deadline.into_std().into();
        let sleep = self.sleep.get_or_insert_with(|| future::sleep_until(deadline));
        Pin::new(sleep).poll(cx)
    }
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
