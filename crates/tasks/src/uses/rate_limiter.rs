//! Limits the rate of calls by permits.
//!
//! A limiter has a bucket of permits. The bucket starts full, and gets a permit back each interval. A caller that finds
//! a permit goes on at once. Otherwise the caller gets the moment of the next permit, or leaves a closure. The closure
//! runs at that moment, on a worker of the engine.
//!
//! The state is one moment behind a lock: the moment at which the bucket will be full again. So a limiter needs no
//! timer while no closure waits. A waiting closure is a one-shot of the engine ([`Tasks::at`](crate::Tasks::at)).
//!
//! # The bound
//!
//! Take a rate of one permit each `interval`, with a burst of `b`. Then the moments of any `n` successive permits span
//! at least `n - b` intervals. These are moments of the engine's true clock, which is never ahead of the real time, and
//! decides whether deadlines have come. The bound is on the moments of permits, not on the runs of closures. A closure
//! never runs before its permit's moment. Closures that a busy worker delays may run together.
//!
//! # Races and their endings
//!
//! - acquire x acquire: the lock decides, and each permit goes to one caller.
//! - acquire x wait: a waiting closure has taken its permit already. An [`acquire`](RateLimiter::acquire) that comes
//!   later gets a moment after that permit, however late the closure runs.
//! - cancel x due: as for [`Tasks::cancel`](crate::Tasks::cancel). The permit of a cancelled closure is not given back,
//!   since later permits have their moments by then.
//! - wait x shutdown: the closure runs, or the error returns it, or [`Tasks::shutdown`](crate::Tasks::shutdown) returns
//!   it. A refused closure has taken no permit.

use super::error::RateError;
use crate::sync::{Mutex, StdArc, ignore_poison};
use crate::task::{Call, TaskCore};
use core::fmt;
use core::time::Duration;
use tourbillon::{Refusal, ScheduleError, TimerId, Timestamp};

/// Says how fast a [`RateLimiter`] gives out permits, and how many at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    interval: Duration,
    burst: u32,
}

impl Rate {
    /// Gives one permit each `interval`, and never several at once. [`Tasks::rate_limiter`](crate::Tasks::rate_limiter)
    /// refuses a zero interval.
    #[must_use]
    pub const fn every(interval: Duration) -> Self {
        Self { interval, burst: 1 }
    }

    /// Lets callers take up to `permits` permits at once after a long enough pause.
    /// [`Tasks::rate_limiter`](crate::Tasks::rate_limiter) refuses zero permits.
    #[must_use]
    pub const fn burst(self, permits: u32) -> Self {
        Self { burst: permits, ..self }
    }
}

/// The outcome of an [`acquire`](RateLimiter::acquire).
///
/// Either the caller has a permit, or the caller learns when to ask again. There is no third outcome, so a `match`
/// needs no other arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the permit may be refused"]
pub enum Acquired {
    /// The caller has got a permit.
    Now,
    /// No permit was taken. The next permit is free from this moment on, until some caller takes it.
    NotBefore(Timestamp),
}

/// Gives out permits at a bounded rate. Clones share the permits.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_tasks::DrivenTasks;
/// use tourbillon_tasks::uses::{Acquired, Rate};
///
/// let mut tasks = DrivenTasks::new()?;
/// let ten_a_second = Rate::every(Duration::from_millis(100)).burst(2);
/// let requests = tasks.handle().rate_limiter(ten_a_second)?;
///
/// assert_eq!(requests.acquire(), Acquired::Now);
/// assert_eq!(requests.acquire(), Acquired::Now);
/// let next = tasks.handle().now() + Duration::from_millis(100);
/// assert_eq!(requests.acquire(), Acquired::NotBefore(next));
///
/// requests.run_when_due(|| println!("the third request, a tenth of a second later"))?;
/// tasks.advance(Duration::from_millis(100));
/// assert_eq!(tasks.handle().stats().fired, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RateLimiter {
    shared: StdArc<Shared>,
}

struct Shared {
    tasks: TaskCore,
    bucket: Mutex<Bucket>,
}

impl RateLimiter {
    pub(super) fn new(tasks: &TaskCore, rate: Rate) -> Result<Self, RateError> {
        let bucket = Mutex::new(Bucket::full(rate)?);
        Ok(Self { shared: StdArc::new(Shared { tasks: tasks.clone(), bucket }) })
    }

    /// Takes a permit if there is one now. Otherwise returns the moment of the next permit.
    ///
    /// Also works after a shutdown of the engine.
    ///
    /// # Time complexity
    ///
    /// O(1): takes a lock, and reads the clock by which the engine decides whether a deadline has come.
    pub fn acquire(&self) -> Acquired {
        let mut bucket = ignore_poison(self.shared.bucket.lock());
        // The clock is read under the lock, so that the later of two callers sees the later moment.
        let now = self.shared.tasks.true_now();
        match bucket.next(now) {
            moment if moment <= now => {
                bucket.take(now);
                Acquired::Now
            }
            moment => Acquired::NotBefore(moment),
        }
    }

    /// Takes the next permit, even if it is not valid yet, and returns the moment from which it is valid. The caller
    /// must wait for that moment. The moment may have passed already.
    ///
    /// # Time complexity
    ///
    /// The same as for [`acquire`](Self::acquire).
    #[must_use = "the permit is not valid before this moment"]
    pub fn reserve(&self) -> Timestamp {
        let mut bucket = ignore_poison(self.shared.bucket.lock());
        let now = self.shared.tasks.true_now();
        let moment = bucket.next(now);
        bucket.take(now);
        moment
    }

    /// Takes the next permit, and runs `f` on a worker once the permit is valid. Earlier calls get earlier permits.
    /// [`Tasks::cancel`](crate::Tasks::cancel) cancels the closure by the returned id, but does not give the permit
    /// back.
    ///
    /// # Errors
    ///
    /// Fails as [`Tasks::after`](crate::Tasks::after) does. The error returns the closure, and no permit was taken.
    ///
    /// # Time complexity
    ///
    /// O(1): a lock, under which a one-shot is scheduled.
    pub fn run_when_due(&self, f: impl FnOnce() + Send + 'static) -> Result<TimerId, ScheduleError<Call>> {
        let Shared { tasks, bucket } = &*self.shared;
        let (mut call, mut rounds): (Call, _) = (Box::new(f), 0);
        loop {
            let error = {
                let mut bucket = ignore_poison(bucket.lock());
                let now = tasks.true_now();
                match tasks.try_at(bucket.next(now), call) {
                    Ok(id) => {
                        bucket.take(now);
                        return Ok(id);
                    }
                    Err(error) => error,
                }
            };
            // The thread's queue to the shard is full. The call waits without a lock, because the shard's thread may
            // run a closure that takes a permit.
            if error.kind != Refusal::LaneFull || !tasks.await_room(&mut rounds) {
                return Err(error);
            }
            call = error.payload;
        }
    }
}

/// Decides when permits are free. Permits are counted as time: a taken permit comes back after an interval. All values
/// are in nanoseconds, as wide integers that cannot overflow.
#[derive(Debug)]
struct Bucket {
    /// The time after which one permit comes back.
    interval: u128,
    /// The time in which an empty bucket gets back all permits but one.
    slack: u128,
    /// The moment at which the bucket will be full. If this moment has passed, the bucket is full.
    full_at: u128,
}

impl Bucket {
    fn full(Rate { interval, burst }: Rate) -> Result<Self, RateError> {
        if interval.is_zero() {
            return Err(RateError::ZeroInterval);
        }
        let spare = burst.checked_sub(1).ok_or(RateError::ZeroBurst)?;
        let interval = interval.as_nanos();
        Ok(Self { interval, slack: interval * u128::from(spare), full_at: 0 })
    }

    /// Returns the moment of the next permit; `now` if a permit is available.
    fn next(&self, now: Timestamp) -> Timestamp {
        let next = self.full_at.saturating_sub(self.slack);
        now.max(Timestamp::from_nanos(u64::try_from(next).unwrap_or(u64::MAX)))
    }

    fn take(&mut self, now: Timestamp) {
        self.full_at = self.full_at.max(u128::from(now.as_nanos())).saturating_add(self.interval);
    }
}

impl Clone for RateLimiter {
    fn clone(&self) -> Self {
        Self { shared: StdArc::clone(&self.shared) }
    }
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimiter").field("bucket", &self.shared.bucket).finish_non_exhaustive()
    }
}
