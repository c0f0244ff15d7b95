//! Decides whether a shard sleeps, and until when. The module `parker` has the words by which producers wake the shard.
//!
//! A turn ends with the shard's [`Next`] step. If the step is a sleep, the leader announces the end of the sleep, looks
//! once more for work that came before the announcement, and parks (`leader_sleep`). A producer with an earlier
//! deadline wakes it.
//!
//! # Naps
//! A shard that has timers in each tick sleeps until the next tick begins. Nothing that is scheduled during that sleep
//! is due before its end. Such a sleep is a *nap* (K4 of `parker`): it needs neither the heavy fence nor the second
//! look. Other things, such as an engine that joins or a wanted sweep, may go unnoticed until the end of the nap, a
//! millisecond at most.
//!
//! # Idle sleep
//! A shard that has nothing to do sleeps until the deadline of a timer that has already ended ([`IdleSleep`]). Of all
//! timers that ended before the shard saw them, it takes the first deadline. A program may handle one request at a
//! time, so that each timer ends before the next timer is scheduled. Then the wheel is empty whenever the shard looks.
//! If the shard slept without an end, each new timer would wake it. With that end, only earlier deadlines wake the
//! shard. Timers of one duration wake it at most twice in that duration, and timers of random durations ever more
//! seldom.

use crate::base::tick::{TickLength, Timestamp};
use crate::system::clock::Clock;
use core::time::Duration;

/// The longest nap, a sleep that a shard takes without a fence. Models have no naps, because their parks have no time
/// limit.
pub(super) const NAP: Duration =
    if cfg!(tourbillon_loom) { Duration::ZERO } else { Duration::from_millis(1) };

/// The next step of a shard after a turn: another turn, or a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Next {
    /// The shard turns again at once, because work is left.
    Turn,
    /// The shard sleeps until the end of `Wake`, or until it is woken. `None` means only until it is woken.
    Sleep(Option<Wake>),
}

impl Next {
    /// Returns the earlier of two steps. One station (an engine's part of the shard) asks for `self`, another station
    /// for `other`.
    pub(super) fn sooner(self, other: Self) -> Self {
        match (self, other) {
            (Self::Sleep(None), next) | (next, Self::Sleep(None)) => next,
            (Self::Sleep(Some(one)), Self::Sleep(Some(another))) => {
                Self::Sleep(Some(if one.at <= another.at { one } else { another }))
            }
            _ => Self::Turn,
        }
    }
}

/// The end of a shard's sleep, and the deadlines that end the sleep earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wake {
    /// The moment at which the shard wakes by itself, unless another thread wakes it earlier.
    pub(crate) at: Timestamp,
    /// The first deadline that is due at `at`. A new ticket (a request to check a timer) with an earlier deadline is
    /// due before `at`, so it must wake the shard.
    pub(crate) not_before: Timestamp,
}

impl Wake {
    /// Returns whether a sleep after a turn (a pass of the shard's loop) at `now` is a nap, a sleep that ends before a
    /// new timer can be due. With a clock that moves only in steps, no sleep is a nap, because the shard must notice
    /// the steps.
    pub(super) fn ends_a_nap(self, tick: TickLength, now: Timestamp, clock: &dyn Clock) -> bool {
        let next_tick = tick.start_of(tick.current_tick(now).saturating_add(1));
        self.at <= next_tick && clock.sleep_for(now, self.at).is_some_and(|time| time <= NAP)
    }
}

/// Chooses until when an engine's part of a shard sleeps while it has no timer. The module's section "Idle sleep" gives
/// the rule.
#[derive(Debug, Default)]
pub(super) struct IdleSleep {
    now: Timestamp,
    until: Option<Timestamp>,
}

impl IdleSleep {
    /// Begins a turn of the shard. Forgets the chosen end of the sleep if that end has passed.
    pub(super) fn begin_turn(&mut self, now: Timestamp) {
        self.now = now;
        self.until = self.until.filter(|until| *until > now);
    }

    /// Records the deadline of a timer whose stale ticket was dropped.
    #[inline]
    pub(super) fn note(&mut self, deadline: Timestamp) {
        if deadline > self.now && self.until.is_none_or(|until| deadline < until) {
            self.until = Some(deadline);
        }
    }

    /// Returns the end of the sleep. The shard sleeps less if a timer is due before.
    pub(super) fn until(&self) -> Option<Timestamp> {
        self.until
    }
}

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use super::*;

    /// A clock of a test. It runs by itself, or moves only in steps.
    struct Time {
        runs: bool,
    }

    impl Clock for Time {
        fn now(&self) -> Timestamp {
            Timestamp::ZERO
        }

        fn sleep_for(&self, now: Timestamp, deadline: Timestamp) -> Option<Duration> {
            self.runs.then(|| deadline - now)
        }
    }

    #[test]
    fn a_nap_ends_with_the_tick_and_within_a_millisecond() {
        let at = Timestamp::from_nanos;
        let is_nap = |runs, tick, now, end| {
            let wake = Wake { at: at(end), not_before: at(end) };
            wake.ends_a_nap(TickLength::from_nanos(tick), at(now), &Time { runs })
        };
        let millisecond = 1_000_000;
        assert!(is_nap(true, millisecond, 5_000_001, 6_000_000));
        assert!(is_nap(true, millisecond, 5_000_000, 6_000_000));
        assert!(is_nap(true, millisecond, 5_300_000, 5_200_000), "the end has passed");
        assert!(!is_nap(true, millisecond, 5_900_000, 6_000_001), "a timer may be due in the tick between");
        assert!(!is_nap(true, 10 * millisecond, 50_000_001, 60_000_000), "a shutdown would wait for long");
        assert!(is_nap(true, 10 * millisecond, 59_500_000, 60_000_000));
        assert!(
            !is_nap(false, millisecond, 5_000_001, 6_000_000),
            "the clock may never come there by itself"
        );
    }

    #[test]
    fn it_lasts_until_the_first_of_those_ahead() {
        let at = Timestamp::from_nanos;
        let mut idle = IdleSleep::default();
        assert_eq!(idle.until(), None);
        idle.begin_turn(at(10));
        [5, 10].into_iter().for_each(|deadline| idle.note(at(deadline)));
        assert_eq!(idle.until(), None);
        [30, 20, 40].into_iter().for_each(|deadline| idle.note(at(deadline)));
        assert_eq!(idle.until(), Some(at(20)));
        idle.begin_turn(at(19));
        assert_eq!(idle.until(), Some(at(20)));
        idle.begin_turn(at(20));
        assert_eq!(idle.until(), None);
    }
}
