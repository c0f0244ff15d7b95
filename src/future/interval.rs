//! Ticks at a fixed period.

use super::sleep::{ShutDown, Sleep, unless_shut_down};
use crate::tick::Timestamp;
use core::fmt;
use core::future::poll_fn;
use core::task::{Context, Poll, ready};
use core::time::Duration;

/// A tick that is taken by no more than this after its time was not missed, nor by an engine's tick, where that is longer.
const IN_TIME: Duration = Duration::from_millis(5);

/// What an [`Interval`] does about ticks that were not taken in time: more than 5 ms late, or a tick of the engine if that
/// is more, or a period if that is less.
///
/// With a period of 50, and a tick at 100 that is taken at 230:
///
/// | behaviour | ticks after it |
/// |-----------|----------------|
/// | [`Burst`](Self::Burst) | 150 and 200 at once, 250, 300 |
/// | [`Delay`](Self::Delay) | 280, 330, 380 |
/// | [`Skip`](Self::Skip)   | 250, 300, 350 |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissedTickBehavior {
    /// All of them are made up for, without a pause.
    #[default]
    Burst,
    /// The next one is a period after the late one was taken.
    Delay,
    /// The next one is at the next multiple of the period that is to come.
    Skip,
}

impl MissedTickBehavior {
    /// The tick after one for `due` that is taken at `now`.
    fn next(self, due: Timestamp, now: Timestamp, period: Duration, tick: Duration) -> Timestamp {
        if now - due <= IN_TIME.max(tick).min(period) {
            return due + period;
        }
        match self {
            Self::Burst => due + period,
            Self::Delay => now + period,
            Self::Skip => {
                let into = (now - due).as_nanos() % period.as_nanos();
                // Less than the period, which is a `Duration`.
                now + (period - Duration::from_nanos(u64::try_from(into).unwrap_or(u64::MAX)))
            }
        }
    }
}

/// An interval was to have a period of zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZeroPeriod(());

impl fmt::Display for ZeroPeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the period of an interval must not be zero")
    }
}

impl std::error::Error for ZeroPeriod {}

/// Ticks at its start, and every period from then on.
///
/// It does not drift: a tick that is taken late does not move the following ones, unless
/// [`MissedTickBehavior::Delay`] says so.
///
/// # Examples
///
/// ```
/// use std::task::{Context, Poll, Waker};
/// use std::time::Duration;
/// use tourbillon::Builder;
///
/// let mut engine = Builder::new().build_driven_async()?;
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
    behavior: MissedTickBehavior,
}

impl Interval {
    pub(super) fn new(sleep: Sleep, period: Duration) -> Result<Self, ZeroPeriod> {
        if period.is_zero() {
            return Err(ZeroPeriod(()));
        }
        Ok(Self { sleep, period, behavior: MissedTickBehavior::default() })
    }

    /// Completes at the next tick, with the moment for which that was due.
    ///
    /// # Cancellation
    ///
    /// A tick is not lost by dropping this: the next call waits for the same one.
    ///
    /// # Panics
    ///
    /// When its engine was shut down before the tick was due. [`try_tick`](Self::try_tick) returns that.
    pub async fn tick(&mut self) -> Timestamp {
        poll_fn(|cx| self.poll_tick(cx)).await
    }

    /// As [`tick`](Self::tick), for a task that polls.
    ///
    /// # Panics
    ///
    /// As there.
    pub fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Timestamp> {
        self.poll_next(cx).map(unless_shut_down)
    }

    /// As [`tick`](Self::tick), for an engine that may be shut down meanwhile.
    ///
    /// # Errors
    ///
    /// When its engine was shut down before the tick was due.
    pub async fn try_tick(&mut self) -> Result<Timestamp, ShutDown> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Timestamp, ShutDown>> {
        if let Err(shut_down) = ready!(self.sleep.poll_elapsed(cx)) {
            return Poll::Ready(Err(shut_down));
        }
        let due = self.sleep.deadline();
        self.sleep.put(self.behavior.next(due, self.sleep.now(), self.period, self.sleep.tick()));
        Poll::Ready(Ok(due))
    }

    /// Ticks next one period from now.
    pub fn reset(&mut self) {
        self.reset_after(self.period);
    }

    /// Ticks next at once.
    pub fn reset_immediately(&mut self) {
        self.reset_after(Duration::ZERO);
    }

    /// Ticks next `delay` from now.
    pub fn reset_after(&mut self, delay: Duration) {
        self.sleep.reset_after(delay);
    }

    /// Ticks next at `deadline`.
    pub fn reset_at(&mut self, deadline: Timestamp) {
        self.sleep.reset(deadline);
    }

    /// What it does about ticks that were missed.
    #[must_use]
    pub fn missed_tick_behavior(&self) -> MissedTickBehavior {
        self.behavior
    }

    /// Says what it does about ticks that were missed.
    pub fn set_missed_tick_behavior(&mut self, behavior: MissedTickBehavior) {
        self.behavior = behavior;
    }

    /// The time from one tick to the next.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.period
    }
}
