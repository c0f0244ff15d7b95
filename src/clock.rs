//! Where an engine reads the time: a trait, and the clocks that come with it.

use crate::sync::{Arc, AtomicU64, Mutex, MutexGuard, Ordering, PoisonError};
use crate::tick::Timestamp;
use core::fmt;
use core::time::Duration;

/// A source of time that an engine can run on.
///
/// A clock should not run backwards. If one does, the engine waits until it has caught up: nothing fires early, and
/// nothing panics. It must not panic: it is read on the shards' threads.
pub trait Clock: Send + Sync {
    /// The present moment.
    fn now(&self) -> Timestamp;

    /// How long a thread may sleep at `now` so as to be awake at `deadline`; `None` when no sleep helps, because the
    /// clock moves by [`subscribe`](Self::subscribe)d steps only.
    fn sleep_for(&self, now: Timestamp, deadline: Timestamp) -> Option<Duration> {
        Some(deadline - now)
    }

    /// Asks to be called after each step of a clock that moves in steps. Others ignore it.
    fn subscribe(&self, on_step: OnStep) {
        drop(on_step);
    }
}

/// Called by a clock that moves in steps, after each one. Once it has returned false it is dropped.
pub type OnStep = Box<dyn Fn() -> bool + Send + Sync>;

/// The time of day by the system's clock, which may be set.
#[cfg(feature = "tasks")]
pub(crate) fn system_time() -> std::time::SystemTime {
    std::time::SystemTime::now()
}

/// The default clock: the processor's time-stamp counter where it is usable, the system's monotonic clock elsewhere.
///
/// Reading it takes about half as long as [`std::time::Instant::now`]. Its rate is calibrated once, at the first use
/// in the process, and may differ from the system clock's by some parts per million: a timer of an hour may be some
/// milliseconds early or late by that one.
///
/// It is for machines that stay awake. Where they are suspended the counter may stop or begin anew, and timers with it: use
/// [`SystemClock`] or `BootClock` there.
#[derive(Clone, Debug)]
pub struct MonotonicClock {
    source: quanta::Clock,
    origin: u64,
}

impl MonotonicClock {
    /// A clock whose origin is now.
    #[must_use]
    pub fn new() -> Self {
        let source = quanta::Clock::new();
        let origin = source.raw();
        Self { source, origin }
    }
}

impl Default for MonotonicClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for MonotonicClock {
    #[inline]
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.source.delta_as_nanos(self.origin, self.source.raw()))
    }
}

/// The system's monotonic clock ([`std::time::Instant`]): disciplined by the kernel, twice the price of the default.
#[derive(Clone, Debug)]
pub struct SystemClock {
    origin: std::time::Instant,
}

impl SystemClock {
    /// A clock whose origin is now.
    #[must_use]
    pub fn new() -> Self {
        Self { origin: std::time::Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::cast_possible_truncation, reason = "584 years fit")]
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.origin.elapsed().as_nanos() as u64)
    }
}

/// The boot-time clock, which goes on while the machine is suspended.
///
/// No sleep of a thread does: after a resume, timers that came due meanwhile fire within a second. For that a shard
/// with pending timers wakes once a second.
#[cfg(target_os = "linux")]
#[derive(Clone, Debug)]
pub struct BootClock {
    origin: u64,
}

#[cfg(target_os = "linux")]
impl BootClock {
    const LONGEST_SLEEP: Duration = Duration::from_secs(1);

    /// A clock whose origin is now.
    #[must_use]
    pub fn new() -> Self {
        Self { origin: Self::since_boot() }
    }

    #[expect(clippy::cast_sign_loss, reason = "time since boot is not negative")]
    fn since_boot() -> u64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

#[cfg(target_os = "linux")]
impl Default for BootClock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(target_os = "linux")]
impl Clock for BootClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(Self::since_boot().saturating_sub(self.origin))
    }

    fn sleep_for(&self, now: Timestamp, deadline: Timestamp) -> Option<Duration> {
        Some((deadline - now).min(Self::LONGEST_SLEEP))
    }
}

/// A clock that stands still until it is moved: for tests, examples and simulations.
///
/// Clones share the time. An engine with threads on a manual clock is woken by each step; one without threads is
/// better driven through [`DrivenEngine::advance`](crate::DrivenEngine::advance).
#[derive(Clone, Default)]
pub struct ManualClock {
    shared: Arc<ManualTime>,
}

#[derive(Default)]
struct ManualTime {
    nanos: AtomicU64,
    on_step: Mutex<Vec<OnStep>>,
}

impl ManualClock {
    /// A clock at [`Timestamp::ZERO`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock on.
    pub fn advance(&self, by: Duration) {
        self.set(self.now() + by);
    }

    /// Moves the clock to `now`, backwards too.
    pub fn set(&self, now: Timestamp) {
        // Ordering: Release, with `now`'s Acquire: who sees the step sees what was done before it.
        self.shared.nanos.store(now.as_nanos(), Ordering::Release);
        // Taken out meanwhile: a subscriber may use the clock.
        let mut subscribers = core::mem::take(&mut *self.lock_subscribers());
        subscribers.retain(|on_step| on_step());
        self.lock_subscribers().append(&mut subscribers);
    }

    fn lock_subscribers(&self) -> MutexGuard<'_, Vec<OnStep>> {
        self.shared.on_step.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        // Ordering: Acquire, with `set`.
        Timestamp::from_nanos(self.shared.nanos.load(Ordering::Acquire))
    }

    fn sleep_for(&self, _now: Timestamp, _deadline: Timestamp) -> Option<Duration> {
        None
    }

    fn subscribe(&self, on_step: OnStep) {
        self.lock_subscribers().push(on_step);
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ManualClock").field(&self.now()).finish()
    }
}

/// The clock as an engine holds it: the default one is read without an indirect call.
pub(crate) enum EngineClock {
    Monotonic(MonotonicClock),
    Custom(Box<dyn Clock>),
}

impl EngineClock {
    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::Monotonic(clock) => clock.now(),
            Self::Custom(clock) => clock.now(),
        }
    }

    pub(crate) fn as_dyn(&self) -> &dyn Clock {
        match self {
            Self::Monotonic(clock) => clock,
            Self::Custom(clock) => &**clock,
        }
    }
}
