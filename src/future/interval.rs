//! Intervals: ticks at a fixed period.

use super::sleep::{ShutDown, Sleep, unless_shut_down};
use crate::base::missed::Missed;
use crate::base::tick::Timestamp;
use core::fmt;
use core::future::poll_fn;
use core::task::{Context, Poll, ready};
use core::time::Duration;

/// The longest lateness with which a tick of an interval counts as in time. If the engine's own tick is longer than
/// this, the engine's tick is the limit. If the period is shorter, the period is the limit.
const IN_TIME: Duration = Duration::from_millis(5);

/// The error of a request for an interval with a period of zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZeroPeriod(());

impl fmt::Display for ZeroPeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the period of an interval must not be zero")
    }
}

impl std::error::Error for ZeroPeriod {}

/// A source of ticks. The first tick is at the interval's start. From then on, a tick comes after each period.
///
/// An interval does not drift: a tick that is taken late does not move the following ticks, except with
/// [`Missed::Delay`].
///
/// A tick is *missed* if it is taken more than 5 ms late. The engine's tick is the limit if it is longer than 5 ms. The
/// period is the limit if it is shorter. Missed ticks are made up for ([`Missed::Burst`]) unless
/// [`set_missed`](Self::set_missed) sets another policy.
///
/// # Examples
///
/// ```
/// use std::task::{Context, Poll, Waker};
/// use std::time::Duration;
/// use tourbillon::Builder;
///
/// let mut engine = Builder::new().driven_futures()?;
/// let start = engine.handle().now();
/// let mut cx = Context::from_waker(Waker::noop());
/// let mut interval = engine.handle().interval(Duration::from_millis(50))?;
/// assert_eq!(interval.poll_tick(&mut cx), Poll::Ready(start));
/// assert_eq!(interval.poll_tick(&mut cx), Poll::Pending);
/// engine.advance(Duration::from_millis(50));
/// assert_eq!(interval.poll_tick(&mut cx), Poll::Ready(start + Duration::from_millis(50)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Interval {
    sleep: Sleep,
    period: Duration,
    missed: Missed,
}

impl Interval {
    pub(super) fn new(sleep: Sleep, period: Duration) -> Result<Self, ZeroPeriod> {
        if period.is_zero() {
            return Err(ZeroPeriod(()));
        }
        Ok(Self { sleep, period, missed: Missed::Burst })
    }

    /// Completes at the next tick, and returns the moment at which that tick was due.
    ///
    /// # Cancellation
    ///
    /// Dropping the returned future loses no tick: the next call waits for the same tick.
    ///
    /// # Panics
    ///
    /// Panics if the engine was shut down before the tick was due. [`try_tick`](Self::try_tick) returns an error
    /// instead.
    pub async fn tick(&mut self) -> Timestamp {
        poll_fn(|cx| self.poll_tick(cx)).await
    }

    /// Polls for the next tick, as the future of [`tick`](Self::tick) does.
    ///
    /// # Panics
    ///
    /// Panics as [`tick`](Self::tick) does.
    pub fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Timestamp> {
        self.poll_next(cx).map(unless_shut_down)
    }

    /// Completes at the next tick, as [`tick`](Self::tick) does. It does not panic if the engine is shut down during
    /// the wait.
    ///
    /// # Errors
    ///
    /// Fails if the engine was shut down before the tick was due.
    pub async fn try_tick(&mut self) -> Result<Timestamp, ShutDown> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Timestamp, ShutDown>> {
        if let Err(shut_down) = ready!(self.sleep.poll_elapsed(cx)) {
            return Poll::Ready(Err(shut_down));
        }
        let due = self.sleep.deadline();
        let limit = IN_TIME.max(self.sleep.tick()).min(self.period);
        self.sleep.put(due + self.missed.until_next(self.sleep.now() - due, limit, self.period));
        Poll::Ready(Ok(due))
    }

    /// Moves the next tick to one period from now.
    pub fn reset(&mut self) {
        self.reset_after(self.period);
    }

    /// Moves the next tick to the present moment.
    pub fn reset_immediately(&mut self) {
        self.reset_after(Duration::ZERO);
    }

    /// Moves the next tick to `delay` from now.
    pub fn reset_after(&mut self, delay: Duration) {
        self.sleep.reset_after(delay);
    }

    /// Moves the next tick to `deadline`.
    pub fn reset_at(&mut self, deadline: Timestamp) {
        self.sleep.reset(deadline);
    }

    /// Returns the policy for missed ticks.
    #[must_use]
    pub fn missed(&self) -> Missed {
        self.missed
    }

    /// Sets the policy for missed ticks; the default is [`Missed::Burst`].
    pub fn set_missed(&mut self, missed: Missed) {
        self.missed = missed;
    }

    /// Returns the time from one tick to the next.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.period
    }
}
