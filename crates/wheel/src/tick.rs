//! Points in a wheel's time, and conversions between them and nanoseconds.

use core::num::NonZero;
use core::time::Duration;

/// An absolute point in wheel time, counted in ticks.
///
/// The owner of a wheel decides how long a tick lasts ([`TickLength`]). Every `u64` is a valid tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(pub u64);

impl Tick {
    /// The greatest tick. No later tick exists.
    pub const MAX: Tick = Tick(u64::MAX);

    /// Returns the tick `ticks` later, or the last tick if the sum would be after the last tick.
    #[inline]
    #[must_use]
    pub const fn saturating_add(self, ticks: u64) -> Tick {
        Tick(self.0.saturating_add(ticks))
    }
}

/// The length of a tick. It converts moments to ticks and ticks to moments.
///
/// A moment is a number of nanoseconds since an origin. The caller chooses the origin, for example the start of its
/// event loop. All moments that are used with one wheel count from the same origin. Tick `n` begins at `n` lengths
/// after the origin.
///
/// # Rounding
///
/// | | rounded | so that |
/// |---|---|---|
/// | [`due_tick`](Self::due_tick): a deadline | up, to the first tick that does not begin before it | no timer is early |
/// | [`current_tick`](Self::current_tick): the present | down, to the last tick that has begun | no timer is early |
/// | [`start_of`](Self::start_of): a tick | not at all; for a tick that begins after the last moment, the last moment | a sleep until this moment is long enough |
/// | [`first_deadline_of`](Self::first_deadline_of): a tick | not at all | two deadlines compare as their ticks do |
/// | [`whole_ticks`](Self::whole_ticks): a span | down | none of the ticks is cut short |
///
/// A program inserts a timer for the `due_tick` of its deadline, and advances the wheel to `current_tick(now)`. Then
/// the timer never fires before its deadline. If the advance comes at once, the timer fires at most one length after
/// its deadline. A deadline on the boundary of two ticks is due at the tick that begins there.
///
/// All methods are O(1), with one division by the length at most.
///
/// # Examples
///
/// An event loop's clock, and the timeout of its poll:
///
/// ```
/// use std::time::Duration;
/// use tourbillon_wheel::{Tick, TickLength, Wheel};
///
/// let tick = TickLength::new(Duration::from_millis(10)).unwrap();
/// let now = 25_000_000; // origin.elapsed().as_nanos() as u64
/// let mut wheel = Wheel::<&str>::new(tick.current_tick(now));
/// assert_eq!(wheel.position(), Tick(2));
///
/// wheel.insert(tick.due_tick(now + 30_000_000), "55 ms");
/// let wake = wheel.next_expiry().unwrap();
/// assert_eq!(wake, Tick(6));
/// let poll_for = Duration::from_nanos(tick.start_of(wake) - now);
/// assert_eq!(poll_for, Duration::from_millis(35));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TickLength {
    /// The length in nanoseconds. It is never zero.
    nanos: u64,
}

impl TickLength {
    /// Makes ticks of this length. Returns `None` if the length is zero or longer than 2^64 - 1 nanoseconds, which are
    /// 584 years.
    #[must_use]
    pub const fn new(length: Duration) -> Option<Self> {
        let Some(nanos) = length.as_secs().checked_mul(1_000_000_000) else { return None };
        match nanos.checked_add(length.subsec_nanos() as u64) {
            None | Some(0) => None,
            Some(nanos) => Some(Self { nanos }),
        }
    }

    /// Makes ticks of `nanos` nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: NonZero<u64>) -> Self {
        Self { nanos: nanos.get() }
    }

    /// Returns the first tick that does not begin before `deadline`, in nanoseconds. Insert a timer for this tick.
    #[inline]
    #[must_use]
    pub const fn due_tick(self, deadline: u64) -> Tick {
        Tick(deadline.div_ceil(self.nanos))
    }

    /// Returns the last tick that has begun at `now`, in nanoseconds. Advance the wheel to this tick.
    #[inline]
    #[must_use]
    pub const fn current_tick(self, now: u64) -> Tick {
        Tick(now / self.nanos)
    }

    /// Returns the moment at which `tick` begins, in nanoseconds. Returns `u64::MAX` if that moment does not fit.
    #[inline]
    #[must_use]
    pub const fn start_of(self, tick: Tick) -> u64 {
        tick.0.saturating_mul(self.nanos)
    }

    /// Returns the earliest deadline, in nanoseconds, whose [`due_tick`](Self::due_tick) is `tick`. The deadline is one
    /// nanosecond after the start of the previous tick.
    #[inline]
    #[must_use]
    pub const fn first_deadline_of(self, tick: Tick) -> u64 {
        match tick.0.checked_sub(1) {
            Some(before) => self.start_of(Tick(before)).saturating_add(1),
            None => 0,
        }
    }

    /// Returns the number of whole ticks that fit into `time`. A longer time than `u64::MAX` nanoseconds counts as
    /// `u64::MAX` nanoseconds.
    #[must_use]
    pub const fn whole_ticks(self, time: Duration) -> u64 {
        match Self::new(time) {
            Some(time) => self.current_tick(time.nanos).0,
            None if time.is_zero() => 0,
            None => self.current_tick(u64::MAX).0,
        }
    }

    /// Returns the length of a tick as a duration.
    #[must_use]
    pub const fn as_duration(self) -> Duration {
        Duration::from_nanos(self.nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTHS: [u64; 6] = [1, 3, 1_000, 999_983, 1_000_000, u64::MAX];

    fn moments(nanos: u64) -> impl Iterator<Item = u64> {
        let edges = [0, nanos, nanos.saturating_mul(17), u64::MAX];
        edges.into_iter().flat_map(|edge| [edge.saturating_sub(1), edge, edge.saturating_add(1)])
    }

    #[test]
    fn a_due_tick_never_begins_before_its_deadline() {
        for nanos in LENGTHS {
            let tick = TickLength { nanos };
            for moment in moments(nanos) {
                assert!(tick.start_of(tick.due_tick(moment)) >= moment);
                assert!(tick.start_of(tick.current_tick(moment)) <= moment);
                let early = tick.due_tick(moment).0.checked_sub(1);
                assert!(early.is_none_or(|early| tick.start_of(Tick(early)) < moment), "a tick late");
                assert!(
                    u128::from(moment) - u128::from(tick.start_of(tick.current_tick(moment))) < nanos.into()
                );
            }
        }
    }

    #[test]
    fn the_first_deadline_of_a_tick_is_due_at_it_and_the_one_before_is_not() {
        for nanos in LENGTHS {
            let tick = TickLength { nanos };
            for number in [0, 1, 2, 17].into_iter().filter(|number| nanos.checked_mul(*number).is_some()) {
                let first = tick.first_deadline_of(Tick(number));
                assert_eq!(tick.due_tick(first), Tick(number));
                assert!(first == 0 || tick.due_tick(first - 1) < Tick(number));
            }
        }
    }

    #[test]
    fn a_length_that_is_none_is_refused_and_spans_count_whole_ticks() {
        assert_eq!(TickLength::new(Duration::ZERO), None);
        assert_eq!(TickLength::new(Duration::MAX), None);
        let longest = Duration::from_nanos(u64::MAX);
        assert_eq!(TickLength::new(longest).map(TickLength::as_duration), Some(longest));
        assert_eq!(TickLength::new(longest + Duration::from_nanos(1)), None);
        let milli = TickLength { nanos: 1_000_000 };
        let counted = [0, 999_999, 1_000_000, 1_999_999].map(|n| milli.whole_ticks(Duration::from_nanos(n)));
        assert_eq!(counted, [0, 0, 1, 1]);
        assert_eq!(milli.whole_ticks(Duration::MAX), u64::MAX / 1_000_000);
    }
}
