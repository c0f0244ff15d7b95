//! A clock that the program moves.

use super::{Clock, ClockReport, OnStep};
use crate::base::sync::{Arc, AtomicU64, Mutex, MutexGuard, Ordering, PoisonError};
use crate::base::tick::Timestamp;
use core::fmt;
use core::time::Duration;

/// A clock that stands still until the program moves it. It is for tests, examples and simulations.
///
/// The clock's time is independent of real time. It begins at [`Timestamp::ZERO`]; [`advance`](Self::advance) and
/// [`set`](Self::set) move it. The clock's timestamps have no relation to an [`Instant`](std::time::Instant) or to the
/// time of day.
///
/// All clones of a clock show the same time. Each step of the clock wakes the threads of an engine on it. A program
/// moves an engine without threads through [`DrivenEngine::advance`](crate::DrivenEngine::advance) instead.
#[derive(Clone, Default)]
pub struct ManualClock {
    shared: Arc<ManualTime>,
}

#[derive(Default)]
struct ManualTime {
    nanos: AtomicU64,
    subscribers: Mutex<Subscribers>,
}

#[derive(Default)]
struct Subscribers {
    on_step: Vec<OnStep>,
    /// The number of times that a program has moved the clock.
    steps: u64,
}

impl ManualClock {
    /// Makes a clock that shows [`Timestamp::ZERO`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock forward by `by`. If several threads call `advance` at the same time, their steps add up.
    pub fn advance(&self, by: Duration) {
        let later = |nanos| Some((Timestamp::from_nanos(nanos) + by).as_nanos());
        // Ordering: Release, with `now`'s Acquire: a thread that sees the step sees all changes made before it. An RMW,
        // so the steps before it stay published. Relaxed: the loop looks again.
        let _always_some = self.shared.nanos.fetch_update(Ordering::Release, Ordering::Relaxed, later);
        self.call_subscribers();
    }

    /// Moves the clock to `now`. `now` may be before the moment that the clock shows.
    pub fn set(&self, now: Timestamp) {
        // Ordering: Release, as in `advance`.
        self.shared.nanos.store(now.as_nanos(), Ordering::Release);
        self.call_subscribers();
    }

    /// Calls the subscribers after a step. They are taken out of the list during the calls, because a subscriber may
    /// use the clock. If another thread has taken them out, that thread notices this step and calls the subscribers
    /// again.
    fn call_subscribers(&self) {
        self.lock_subscribers().steps += 1;
        loop {
            let (mut on_step, steps) = {
                let mut subscribers = self.lock_subscribers();
                (core::mem::take(&mut subscribers.on_step), subscribers.steps)
            };
            on_step.retain(|on_step| on_step());
            let mut subscribers = self.lock_subscribers();
            let had_some = !on_step.is_empty();
            subscribers.on_step.append(&mut on_step);
            if !had_some || subscribers.steps == steps {
                return;
            }
        }
    }

    fn lock_subscribers(&self) -> MutexGuard<'_, Subscribers> {
        self.shared.subscribers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        // Ordering: Acquire, with `advance` and `set`.
        Timestamp::from_nanos(self.shared.nanos.load(Ordering::Acquire))
    }

    fn sleep_for(&self, _now: Timestamp, _deadline: Timestamp) -> Option<Duration> {
        None
    }

    fn report(&self) -> ClockReport {
        ClockReport::exact("manual")
    }

    fn subscribe(&self, on_step: OnStep) {
        self.lock_subscribers().on_step.push(on_step);
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ManualClock").field(&self.now()).finish()
    }
}
