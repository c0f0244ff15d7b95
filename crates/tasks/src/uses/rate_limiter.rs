//! Permits at a bounded rate.
//!
//! A limiter has a bucket of permits. The bucket starts full and gets a permit back each interval. A caller that finds
//! a permit goes on at once. A caller that finds none learns the moment of the next permit, or leaves a closure that
//! runs at that moment, on a worker of the engine.
//!
//! The state is one moment behind a lock, the moment at which the bucket will be full again, so that a limiter costs no
//! timer while no closure waits. A closure that waits is a one-shot of the engine ([`Tasks::at`](crate::Tasks::at)).
//!
//! # The bound
//!
//! For a rate of one permit each `interval` with a burst of `b`, the moments of any `n` permits in turn span at least
//! `n - b` intervals, by the clock that decides whether a deadline has come. The bound is on the moments of permits. A
//! closure runs at its permit's moment or later, never earlier; closures that a busy worker holds up may run together.
//!
//! # Races and their endings
//!
//! - acquire x acquire: the lock decides, and each permit goes to one caller.
//! - acquire x wait: a closure that waits has its permit. An [`acquire`](RateLimiter::acquire) that comes later gets
//!   a moment after that permit, however late the closure runs.
//! - cancel x due: as for [`Tasks::cancel`](crate::Tasks::cancel). The permit of a cancelled closure is not given back,
//!   since later permits have their moments by then.
//! - wait x shutdown: the closure runs, or comes back with the error, or from
//!   [`Tasks::shutdown`](crate::Tasks::shutdown). A refused closure has taken no permit.

use super::error::RateError;
use crate::sync::{Mutex, StdArc, ignore_poison};
use crate::task::{Call, TaskCore};
use core::fmt;
use core::time::Duration;
use tourbillon::{Refusal, ScheduleError, TimerId, Timestamp};

/// The rate of a [`RateLimiter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    interval: Duration,
    burst: u32,
}

impl Rate {
    /// One permit each `interval`, and one at a time. [`Tasks::rate_limiter`](crate::Tasks::rate_limiter) refuses a
    /// zero interval.
    #[must_use]
    pub const fn every(interval: Duration) -> Self {
        Self { interval, burst: 1 }
    }

    /// Lets up to `permits` be taken at once, after a pause in which they came back.
    /// [`Tasks::rate_limiter`](crate::Tasks::rate_limiter) refuses zero permits.
    #[must_use]
    pub const fn burst(self, permits: u32) -> Self {
        Self { burst: permits, ..self }
    }
}

/// The outcome of an [`acquire`](RateLimiter::acquire).
///
/// Either the caller has a permit, or it learns when to ask again: there is no third outcome, so a `match` needs no
/// other arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "there may have been no permit"]
pub enum Acquired {
    /// The caller has a permit.
    Now,
    /// No permit was taken. The next permit comes at this moment, unless another caller takes it.
    NotBefore(Timestamp),
}

/// Permits at a bounded rate. Clones share the permits.
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

    /// Takes a permit if there is one now; otherwise returns the moment of the next permit.
    ///
    /// This works after a shutdown of the engine, too.
    ///
    /// # Time complexity
    ///
    /// O(1): a read of the true clock and a lock.
    pub fn acquire(&self) -> Acquired {
        let mut bucket = ignore_poison(self.shared.bucket.lock());
        // The clock is read under the lock, so that the later of two callers has the later moment.
        let now = self.shared.tasks.true_now();
        match bucket.next(now) {
            moment if moment <= now => {
                bucket.take(now);
                Acquired::Now
            }
            moment => Acquired::NotBefore(moment),
        }
    }

    /// Takes the next permit, whenever it comes, and returns its moment, for a caller that waits by itself. The moment
    /// may have come already.
    ///
    /// # Time complexity
    ///
    /// That of [`acquire`](Self::acquire).
    #[must_use = "the permit is not valid before this moment"]
    pub fn reserve(&self) -> Timestamp {
        let mut bucket = ignore_poison(self.shared.bucket.lock());
        let now = self.shared.tasks.true_now();
        let moment = bucket.next(now);
        bucket.take(now);
        moment
    }

    /// Takes the next permit, and runs `f` on a worker at the permit's moment, or later; never earlier. Permits come in
    /// the order of the calls. The id cancels the closure ([`Tasks::cancel`](crate::Tasks::cancel)); its permit is not
    /// given back.
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
            // The wait for room is outside the lock: the shard may be in a closure that wants a permit.
            if error.kind != Refusal::LaneFull || !tasks.await_room(&mut rounds) {
                return Err(error);
            }
            call = error.payload;
        }
    }
}

/// The bucket, in nanoseconds that cannot overflow.
#[derive(Debug)]
struct Bucket {
    /// The time in which a permit comes back.
    interval: u128,
    /// The time in which all permits but one come back.
    slack: u128,
    /// The moment at which the bucket will be full, or was.
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

    /// The moment of the next permit: `now` if there is one now.
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
