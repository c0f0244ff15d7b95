//! Ticks at a fixed period.

use super::sleep::{Sleep, sleep_until};
use crate::base::missed::Missed;
use crate::system::clock::runtime::{self, Instant};
use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;
use tokio::time::MissedTickBehavior;

/// The longest lateness with which a tick still counts as taken in time. A later tick counts as missed.
const IN_TIME: Duration = Duration::from_millis(5);

/// Returns an interval that ticks now, and every `period` from now on. See `tokio::time::interval`.
///
/// # Panics
///
/// Panics if `period` is zero.
#[must_use]
#[track_caller]
pub fn interval(period: Duration) -> Interval {
    interval_at(runtime::now(), period)
}

/// Returns an interval that ticks at `start`, and every `period` from then on. See `tokio::time::interval_at`.
///
/// # Panics
///
/// Panics if `period` is zero.
#[must_use]
#[track_caller]
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    assert!(!period.is_zero(), "`period` must be non-zero.");
    Interval { sleep: sleep_until(start), period, missed: MissedTickBehavior::default() }
}

/// A source of ticks: see [`interval`] and [`interval_at`].
#[derive(Debug)]
pub struct Interval {
    sleep: Sleep,
    period: Duration,
    missed: MissedTickBehavior,
}

impl Interval {
    /// Completes at the next tick, and returns the moment for which that tick was due. Dropping the returned future
    /// loses no tick.
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|cx| self.poll_tick(cx)).await
    }

    /// Polls for the next tick, as the future of [`tick`](Self::tick) does.
    pub fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        ready!(Pin::new(&mut self.sleep).poll(cx));
        let due = self.sleep.deadline();
        self.sleep.reset_silently(self.next(due, runtime::now()));
        Poll::Ready(due)
    }

    /// Returns the moment of the next tick. The last tick was due at `due` and is taken at `now`.
    fn next(&self, due: Instant, now: Instant) -> Instant {
        let missed = match self.missed {
            MissedTickBehavior::Burst => Missed::Burst,
            MissedTickBehavior::Delay => Missed::Delay,
            MissedTickBehavior::Skip => Missed::Skip,
        };
        let step = missed.until_next(now.saturating_duration_since(due), IN_TIME, self.period);
        due.checked_add(step).unwrap_or_else(|| runtime::far_from(now))
    }

    /// Moves the next tick to one period from now.
    pub fn reset(&mut self) {
        self.reset_after(self.period);
    }

    /// Moves the next tick to the present moment.
    pub fn reset_immediately(&mut self) {
        self.reset_after(Duration::ZERO);
    }

    /// Moves the next tick to `after` from now.
    pub fn reset_after(&mut self, after: Duration) {
        self.reset_at(runtime::after(after));
    }

    /// Moves the next tick to `deadline`.
    pub fn reset_at(&mut self, deadline: Instant) {
        Pin::new(&mut self.sleep).reset(deadline);
    }

    /// Returns the policy for ticks that are taken more than 5 ms late.
    #[must_use]
    pub fn missed_tick_behavior(&self) -> MissedTickBehavior {
        self.missed
    }

    /// Sets the policy for ticks that are taken more than 5 ms late.
    pub fn set_missed_tick_behavior(&mut self, behavior: MissedTickBehavior) {
        self.missed = behavior;
    }

    /// Returns the time from one tick to the next.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.period
    }
}
