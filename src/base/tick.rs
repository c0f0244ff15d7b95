//! Points in time: nanoseconds on an engine's clock, and ticks of the wheel.

use core::fmt;
use core::num::NonZeroU64;
use core::ops::{Add, Sub};
use core::time::Duration;
pub use tourbillon_wheel::Tick;

/// A moment on an engine's clock: nanoseconds since the clock's origin.
///
/// All clocks of a process that keep real time share one origin. Their timestamps can be compared between engines, and
/// [`From`] converts them from and to `std::time::Instant` and `SystemTime`. A `ManualClock` has a time of its own.
///
/// The operators saturate: adding [`Duration::MAX`] returns [`Timestamp::MAX`], 584 years after the origin, and the
/// difference to a later moment is zero. The `checked` methods return `None` instead.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Timestamp;
///
/// let start = Timestamp::from_nanos(5);
/// assert_eq!((start + Duration::from_nanos(7)).as_nanos(), 12);
/// assert_eq!(start + Duration::MAX, Timestamp::MAX);
/// assert_eq!(start - Timestamp::MAX, Duration::ZERO);
/// assert_eq!(start - Duration::from_nanos(6), Timestamp::ZERO);
/// assert_eq!(start.checked_sub(Duration::from_nanos(6)), None);
/// ```
///
/// ```
/// use std::time::{Duration, Instant};
/// use tourbillon::Timestamp;
///
/// let instant = Instant::now() + Duration::from_secs(5);
/// let deadline = Timestamp::from(instant);
/// assert_eq!(Instant::from(deadline), instant);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The clock's origin. The origin is in the past: a timer for it is due at once, and late by the time since the
    /// origin.
    pub const ZERO: Timestamp = Timestamp(0);
    /// The last moment that a clock can show.
    pub const MAX: Timestamp = Timestamp(u64::MAX);

    /// Returns the moment `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the moment `delay` later, or `None` if that moment is after [`Timestamp::MAX`].
    #[must_use]
    pub fn checked_add(self, delay: Duration) -> Option<Self> {
        self.0.checked_add(nanos(delay)?).map(Self)
    }

    /// Returns the moment `time` earlier, or `None` if that moment is before the origin.
    #[must_use]
    pub fn checked_sub(self, time: Duration) -> Option<Self> {
        self.0.checked_sub(nanos(time)?).map(Self)
    }

    /// Returns the time since `earlier`, or `None` if `earlier` is the later moment.
    #[must_use]
    pub fn checked_duration_since(self, earlier: Self) -> Option<Duration> {
        self.0.checked_sub(earlier.0).map(Duration::from_nanos)
    }
}

/// Returns the nanoseconds of `time`, or `None` if they exceed a `u64`. `as_nanos` would cost a 128-bit multiplication
/// at each arming of a timer.
#[inline]
fn nanos(time: Duration) -> Option<u64> {
    time.as_secs().checked_mul(1_000_000_000)?.checked_add(u64::from(time.subsec_nanos()))
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;

    #[inline]
    fn add(self, delay: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(nanos(delay).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Timestamp;

    #[inline]
    fn sub(self, time: Duration) -> Timestamp {
        Timestamp(self.0.saturating_sub(nanos(time).unwrap_or(u64::MAX)))
    }
}

impl Sub for Timestamp {
    type Output = Duration;

    #[inline]
    fn sub(self, earlier: Timestamp) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09} s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// The length of a tick, for moments on an engine's clock. [`tourbillon_wheel::TickLength`] explains the rounding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TickLength(tourbillon_wheel::TickLength);

impl TickLength {
    /// Makes a tick length of `nanos` nanoseconds. `nanos` must not be zero, which the builder checks.
    pub(crate) fn from_nanos(nanos: u64) -> Self {
        debug_assert!(nanos > 0);
        Self(tourbillon_wheel::TickLength::from_nanos(NonZeroU64::new(nanos).unwrap_or(NonZeroU64::MIN)))
    }

    /// Returns the first tick at which a timer with this deadline is due.
    #[inline]
    pub(crate) fn due_tick(self, deadline: Timestamp) -> Tick {
        self.0.due_tick(deadline.0)
    }

    /// Returns the last tick that has begun at `now`.
    #[inline]
    pub(crate) fn current_tick(self, now: Timestamp) -> Tick {
        self.0.current_tick(now.0)
    }

    /// Returns the moment at which `tick` begins.
    #[inline]
    pub(crate) fn start_of(self, tick: Tick) -> Timestamp {
        Timestamp(self.0.start_of(tick))
    }

    /// Returns the earliest deadline of a timer that is due at `tick`. Earlier deadlines are due at earlier ticks.
    #[inline]
    pub(crate) fn first_deadline_of(self, tick: Tick) -> Timestamp {
        Timestamp(self.0.first_deadline_of(tick))
    }

    pub(crate) fn whole_ticks(self, time: Duration) -> u64 {
        self.0.whole_ticks(time)
    }

    pub(crate) fn as_duration(self) -> Duration {
        self.0.as_duration()
    }
}
