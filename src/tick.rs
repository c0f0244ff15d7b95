//! Points in time: wheel ticks, and nanoseconds on an engine's clock.

use core::fmt;
use core::ops::{Add, Sub};
use core::time::Duration;

/// An absolute point in wheel time, counted in ticks.
///
/// What a tick lasts is for the owner of the wheel to say; every `u64` is a valid tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(pub u64);

impl Tick {
    /// The last tick there is.
    pub const MAX: Tick = Tick(u64::MAX);

    /// The tick `ticks` later, or the last one.
    #[must_use]
    pub const fn saturating_add(self, ticks: u64) -> Tick {
        Tick(self.0.saturating_add(ticks))
    }
}

/// A moment on an engine's clock: nanoseconds since the clock's origin.
///
/// The clocks of a process that keep real time share one origin, so that timestamps of different engines compare, and
/// convert from and to `std::time::Instant` and `SystemTime` by [`From`]. A `ManualClock` has a time of its own.
///
/// The operators saturate: adding [`Duration::MAX`] gives [`Timestamp::MAX`], 584 years after the origin, and the
/// difference to a later moment is zero. The `checked` methods say so instead.
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
/// # #[cfg(feature = "std")] {
/// use std::time::{Duration, Instant};
/// use tourbillon::Timestamp;
///
/// let instant = Instant::now() + Duration::from_secs(5);
/// let deadline = Timestamp::from(instant);
/// assert_eq!(Instant::from(deadline), instant);
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The clock's origin.
    pub const ZERO: Timestamp = Timestamp(0);
    /// The last moment that a clock can show.
    pub const MAX: Timestamp = Timestamp(u64::MAX);

    /// The moment `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The moment `delay` later, `None` if that is after [`Timestamp::MAX`].
    #[must_use]
    pub fn checked_add(self, delay: Duration) -> Option<Self> {
        self.0.checked_add(nanos(delay)?).map(Self)
    }

    /// The moment `time` earlier, `None` if that is before the origin.
    #[must_use]
    pub fn checked_sub(self, time: Duration) -> Option<Self> {
        self.0.checked_sub(nanos(time)?).map(Self)
    }

    /// The time since `earlier`, `None` if that is later.
    #[must_use]
    pub fn checked_duration_since(self, earlier: Self) -> Option<Duration> {
        self.0.checked_sub(earlier.0).map(Duration::from_nanos)
    }
}

/// Seconds and nanoseconds apart: `as_nanos` would take a 128-bit multiplication on the path that arms.
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

/// The length of a tick, which turns moments into ticks: deadlines are rounded up and the present down, so that a
/// timer whose tick has come is never early.
#[derive(Clone, Copy, Debug)]
#[cfg(feature = "std")]
pub(crate) struct TickLength {
    nanos: u64,
}

#[cfg(feature = "std")]
impl TickLength {
    /// `nanos` must not be zero; the builder checks it.
    pub(crate) fn from_nanos(nanos: u64) -> Self {
        debug_assert!(nanos > 0);
        Self { nanos: nanos.max(1) }
    }

    /// The first tick at which a timer with this deadline is due.
    #[inline]
    pub(crate) fn due_tick(self, deadline: Timestamp) -> Tick {
        Tick(deadline.0.div_ceil(self.nanos))
    }

    /// The last tick that has begun at `now`.
    #[inline]
    pub(crate) fn current_tick(self, now: Timestamp) -> Tick {
        Tick(now.0 / self.nanos)
    }

    /// The moment at which `tick` begins.
    pub(crate) fn start_of(self, tick: Tick) -> Timestamp {
        Timestamp(tick.0.saturating_mul(self.nanos))
    }

    /// The earliest deadline that is due at `tick` and not before.
    pub(crate) fn first_deadline_of(self, tick: Tick) -> Timestamp {
        match tick.0.checked_sub(1) {
            Some(before) => Timestamp(self.start_of(Tick(before)).0.saturating_add(1)),
            None => Timestamp::ZERO,
        }
    }

    /// How many ticks pass within `time`.
    pub(crate) fn whole_ticks(self, time: Duration) -> u64 {
        self.current_tick(Timestamp::ZERO + time).0
    }

    pub(crate) fn as_duration(self) -> Duration {
        Duration::from_nanos(self.nanos)
    }
}

#[cfg(all(test, feature = "std", not(tourbillon_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_due_tick_never_begins_before_its_deadline() {
        for nanos in [1, 3, 1_000, 999_983, 1_000_000] {
            let tick = TickLength::from_nanos(nanos);
            for deadline in [0, 1, nanos - 1, nanos, nanos + 1, 17 * nanos + 5, u64::MAX - 1, u64::MAX] {
                let deadline = Timestamp(deadline);
                assert!(tick.start_of(tick.due_tick(deadline)) >= deadline);
                assert!(tick.start_of(tick.current_tick(deadline)) <= deadline);
            }
        }
    }
}
