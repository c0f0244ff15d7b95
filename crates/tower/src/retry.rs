//! The delays between the retries of tower's `Retry`.

use crate::timers::Timers;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tourbillon::Handle;
use tourbillon::future::{Sleep, Wakeup};
use tower::retry::backoff::{Backoff, MakeBackoff};

/// Exponential backoff with full jitter and a cap, for the policies of `tower::retry`. Each wait uses a timer of an
/// engine.
///
/// Each delay has a bound. The bound of the first delay is `first`. Each further bound is twice the bound before it, up
/// to the cap. A delay is random between zero and its bound, so that clients whose requests have failed together do not
/// retry together. Without jitter, each delay equals its bound.
///
/// A policy keeps a backoff and calls [`next_backoff`](Backoff::next_backoff) for each retry. tower clones the policy
/// for each request, and a clone of a backoff begins at `first` again. All clones draw from one source of random
/// numbers, so no two requests of a process have the same delays.
///
/// A caller that measures a wait with `Instant` never finds it shorter than its delay. Dropping the response's future
/// ends the wait and disarms its timer.
///
/// # Panics
///
/// If the engine was shut down, polling a wait panics, as polling a [`Sleep`] does. The engine of a tokio runtime
/// ends with the runtime, so a wait must not outlive the runtime in which it began.
/// [`next_backoff`](Backoff::next_backoff) panics if the wait runs on the process's own engine and the
/// system cannot start the engine's threads.
///
/// # Examples
///
/// A policy that retries failures, three times at most, within a budget that all requests share:
///
/// ```
/// use std::cell::Cell;
/// use std::sync::Arc;
/// use std::task::{Context, Poll, Waker};
/// use std::time::Duration;
/// use tourbillon::{Builder, future::Sleep};
/// use tourbillon_tower::ExponentialBackoff;
/// use tower::retry::backoff::Backoff;
/// use tower::retry::budget::{Budget, TpsBudget};
/// use tower::retry::{Policy, Retry};
/// use tower::{Service, service_fn};
///
/// #[derive(Clone)]
/// struct Failures {
///     left: u32,
///     budget: Arc<TpsBudget>,
///     backoff: ExponentialBackoff,
/// }
///
/// impl<Request: Clone, Response, Error> Policy<Request, Response, Error> for Failures {
///     type Future = Sleep;
///
///     fn retry(&mut self, _: &mut Request, result: &mut Result<Response, Error>) -> Option<Sleep> {
///         if result.is_ok() {
///             self.budget.deposit();
///             return None;
///         }
///         self.left = self.left.checked_sub(1)?;
///         self.budget.withdraw().then(|| self.backoff.next_backoff())
///     }
///
///     fn clone_request(&mut self, request: &Request) -> Option<Request> {
///         Some(request.clone())
///     }
/// }
///
/// let mut engine = Builder::new().driven_futures()?;
/// let backoff = ExponentialBackoff::new(Duration::from_millis(50), Duration::from_secs(10)).on(engine.handle());
/// let policy = Failures { left: 3, budget: Arc::default(), backoff };
///
/// // A service that fails twice.
/// let calls = Cell::new(0);
/// let mut service = Retry::new(policy, service_fn(|request: u32| {
///     calls.set(calls.get() + 1);
///     std::future::ready(if calls.get() > 2 { Ok(request) } else { Err("refused") })
/// }));
/// let mut response = std::pin::pin!(service.call(17));
/// let mut cx = Context::from_waker(Waker::noop());
/// assert!(response.as_mut().poll(&mut cx).is_pending());
/// engine.advance(Duration::from_millis(50));
/// let _ = response.as_mut().poll(&mut cx);
/// engine.advance(Duration::from_millis(100));
/// assert_eq!(response.as_mut().poll(&mut cx), Poll::Ready(Ok(17)));
/// assert_eq!(calls.get(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ExponentialBackoff {
    first: Duration,
    cap: Duration,
    has_jitter: bool,
    /// The number of delays so far, which determines the bound of the next delay.
    count: u32,
    random: Arc<Random>,
    timers: Timers,
}

impl ExponentialBackoff {
    /// Makes a backoff with full jitter, whose delays have the bounds `first`, `2 * first`, `4 * first`, and so on up
    /// to `cap`. Each wait runs on the current engine of the thread that begins it: see [`tourbillon::future`].
    ///
    /// Any durations are allowed. If `first` or `cap` is zero, the retries follow each other without a wait. If `first`
    /// is above `cap`, each delay has the bound `cap`. A cap beyond 584 years counts as 584 years.
    #[must_use]
    pub fn new(first: Duration, cap: Duration) -> Self {
        let random = Random::new(RandomState::new().hash_one(()));
        Self { first, cap, has_jitter: true, count: 0, random: Arc::new(random), timers: Timers::default() }
    }

    /// Makes the waits run on `engine`.
    #[must_use]
    pub fn on(self, engine: &Handle<Wakeup>) -> Self {
        Self { timers: Timers::on(engine), ..self }
    }

    /// Makes each delay equal to its bound.
    #[must_use]
    pub fn without_jitter(self) -> Self {
        Self { has_jitter: false, ..self }
    }

    /// Makes the backoff draw from its own sequence of random numbers, which depends only on `seed`. The method is for
    /// tests: backoffs with the same seed have the same delays.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { random: Arc::new(Random::new(seed)), ..self }
    }

    /// Computes the next delay: a random time between zero and the delay's bound, or the bound itself if the backoff
    /// has no jitter. Counts the delay.
    fn next_delay(&mut self) -> Duration {
        let doubled = 1u64.checked_shl(self.count).unwrap_or(u64::MAX);
        let bound = nanos(self.first).saturating_mul(doubled).min(nanos(self.cap));
        self.count = self.count.saturating_add(1);
        Duration::from_nanos(if self.has_jitter { self.random.up_to(bound) } else { bound })
    }
}

/// Returns the nanoseconds of a duration, or the longest time that a `u64` can hold, which is 584 years.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Backoff for ExponentialBackoff {
    type Future = Sleep;

    /// Begins the next wait. The time counts from this call.
    fn next_backoff(&mut self) -> Sleep {
        let delay = self.next_delay();
        self.timers.sleep_until(self.timers.deadline(delay))
    }
}

impl MakeBackoff for ExponentialBackoff {
    type Backoff = Self;

    fn make_backoff(&mut self) -> Self {
        self.clone()
    }
}

impl Clone for ExponentialBackoff {
    /// Returns a backoff that begins at its first delay.
    fn clone(&self) -> Self {
        Self { count: 0, random: Arc::clone(&self.random), timers: self.timers.clone(), ..*self }
    }
}

impl fmt::Debug for ExponentialBackoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExponentialBackoff")
            .field("first", &self.first)
            .field("cap", &self.cap)
            .field("has_jitter", &self.has_jitter)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

/// A sequence of random numbers that threads may share: SplitMix64, whose state is a counter.
struct Random(AtomicU64);

impl Random {
    /// The step of the counter. It is odd, so that the counter takes all values.
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    fn next(&self) -> u64 {
        // Ordering: Relaxed. Each call gets a value of its own, and nothing else depends on it.
        let mut mixed = self.0.fetch_add(Self::STEP, Ordering::Relaxed).wrapping_add(Self::STEP);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a random number from 0 to `bound`.
    fn up_to(&self, bound: u64) -> u64 {
        let scaled = (u128::from(self.next()) * (u128::from(bound) + 1)) >> 64;
        // The product is less than `(bound + 1) << 64`.
        u64::try_from(scaled).unwrap_or(bound)
    }
}
