//! A clock that is moved by hand.

use super::{Clock, ClockReport, OnStep};
use crate::base::sync::{Arc, AtomicU64, Mutex, MutexGuard, Ordering, PoisonError};
use crate::base::tick::Timestamp;
use core::fmt;
use core::time::Duration;

/// A clock that stands still until it is moved: for tests, examples and simulations.
///
/// The clock's time is independent of real time. It begins at [`Timestamp::ZERO`], and [`advance`](Self::advance) and
/// [`set`](Self::set) move it; its timestamps have no relation to an [`Instant`](std::time::Instant) or to the time of
/// day.
///
/// Clones share the time. An engine with threads on a manual clock is woken by each step; an engine without threads is
/// better driven through [`DrivenEngine::advance`](crate::DrivenEngine::advance).
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
    /// The number of steps so far.
    steps: u64,
}

impl ManualClock {
    /// A clock at [`Timestamp::ZERO`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock on by `by`. Steps of several threads add up.
    pub fn advance(&self, by: Duration) {
        let later = |nanos| Some((Timestamp::from_nanos(nanos) + by).as_nanos());
        // Ordering: Release, with `now`'s Acquire: a thread that sees the step sees all changes made before it. An RMW,
        // so the steps before it stay published. Relaxed: the loop looks again.
        let _always_some = self.shared.nanos.fetch_update(Ordering::Release, Ordering::Relaxed, later);
        self.call_subscribers();
    }

    /// Moves the clock to `now`, which may be earlier than its present moment.
    pub fn set(&self, now: Timestamp) {
        // Ordering: Release, as in `advance`.
        self.shared.nanos.store(now.as_nanos(), Ordering::Release);
        self.call_subscribers();
    }

    /// Calls the subscribers after a step. They are taken out of the list for that time, because a subscriber may use
    /// the clock. A thread that finds the list empty leaves its step to the thread that has the subscribers; that
    /// thread looks for further steps.
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
