//! Chooses the moments at which timers are checked before their deadlines.
//!
//! An active connection postpones its timer long before the deadline, and again before the next deadline. If each timer
//! were checked at its own deadline, the shard would wake for every single connection: with many connections, a
//! thousand times a second. A timer may be checked at any earlier moment as well. So checks are moved to moments of a
//! grid, where many checks come together. The farther the deadline and the fewer the timers, the coarser the grid. All
//! grids have a power of two as their distance, so each moment of a coarse grid is also a moment of the finer ones. A
//! timer that is not postponed again is checked on finer and finer grids, and at its deadline as soon as hardly any
//! other check would come at the same moment.
//!
//! The same holds for the checks of disarmed timers, and for the first check of a timer that is not expected to fire,
//! such as one that was disarmed before its last deadline ([`first_check`]). Any other timer is first checked at its
//! deadline.

use crate::base::tick::Timestamp;

/// A check may come before the deadline by at most the remaining time divided by this number.
const PART: u64 = 4;
/// The number of checks that should come together at a moment. These checks take some 15 µs, for which other due timers
/// wait.
const COALESCED: u64 = 256;
/// The least number of checks that must be likely to come together at a moment. A timer that would be checked alone
/// before its deadline is checked at its deadline.
const FEWEST: u64 = 4;
/// The scale of the average in `Recheck::rate`: one check counts as this number. A few checks a second must not be
/// rounded to none.
const SCALE: u64 = 1 << 16;
/// The time over which `Recheck::rate` averages, in its units: about a quarter of a second.
const WINDOW: u64 = 1 << 8;
/// The binary logarithm of the unit of time in `Recheck::rate`, in nanoseconds: about a millisecond.
const UNIT: u32 = 20;

/// The greatest time by which the first check of a timer may come before the deadline, in nanoseconds.
const LONGEST_LEAD: u64 = 1 << 26;

/// Returns the last moment of a grid that is not after `deadline`. The distance of the grid is the greatest power of
/// two, in nanoseconds, that is not above `lead`.
fn on_a_grid(deadline: Timestamp, lead: u64) -> Timestamp {
    match lead.checked_ilog2() {
        None => deadline,
        Some(distance) => Timestamp::from_nanos(deadline.as_nanos() >> distance << distance),
    }
}

/// Returns the moment of the first check of a timer that is armed for `deadline` and may never fire. At each moment of
/// checks the shard wakes and passes a heavy fence, so many checks should come together. `next` stands for the present
/// moment; it is the moment at which the shard drains its lanes, and may have passed. The thread that arms a timer does
/// not know the rate of checks, so a longest lead keeps the checks of one moment few.
pub(crate) fn first_check(next: Timestamp, deadline: Timestamp) -> Timestamp {
    let ahead = deadline.as_nanos().saturating_sub(next.as_nanos());
    on_a_grid(deadline, (ahead / PART).min(LONGEST_LEAD))
}

/// Measures how often the shard checks timers again, and decides by that measure when it checks a timer next.
#[derive(Debug, Default)]
pub(super) struct Recheck {
    /// The end of the last whole unit of time that `rate` counts.
    last: Timestamp,
    /// The recent average number of checks in 2^`UNIT` ns, in units of 1/`SCALE`.
    rate: u64,
}

impl Recheck {
    /// Records that `checks` checks at the moment `now` found that their timers must be checked again.
    pub(super) fn note(&mut self, now: Timestamp, checks: u64) {
        let passed = now.as_nanos().saturating_sub(self.last.as_nanos()) >> UNIT;
        self.last = Timestamp::from_nanos(self.last.as_nanos() + (passed << UNIT));
        self.rate = self.rate.saturating_mul(WINDOW).saturating_add(checks * SCALE) / (WINDOW + passed);
    }

    /// Returns the moment of the next check of a timer whose deadline, or last deadline, is `deadline`.
    pub(super) fn next(&self, now: Timestamp, deadline: Timestamp) -> Timestamp {
        let part = deadline.as_nanos().saturating_sub(now.as_nanos()) / PART;
        let lead = part.min((COALESCED * SCALE / self.rate.max(1)) << UNIT);
        let together = (lead >> UNIT).saturating_mul(self.rate) / SCALE;
        if together < FEWEST { deadline } else { on_a_grid(deadline, lead) }
    }
}

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const MILLISECOND: u64 = 1_000_000;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(86_400_000_000_000 + millis * MILLISECOND)
    }

    #[test]
    fn checks_are_coalesced_but_never_late_nor_much_too_early() {
        let mut recheck = Recheck::default();
        for round in 1..1_000 {
            let now = at(round * 37);
            recheck.note(now, round % 300);
            for remainder in
                [0, 1, 15, 16, 17, 100, 5_000_000, 60_000_000_000, u64::MAX - at(37_000).as_nanos()]
            {
                let deadline = Timestamp::from_nanos(now.as_nanos() + remainder);
                let next = recheck.next(now, deadline);
                let lead = deadline.as_nanos() - next.as_nanos();
                assert!(next <= deadline && lead <= remainder / PART);
            }
        }
    }

    #[test]
    fn first_checks_come_together_and_never_after_their_deadlines() {
        let now = at(0);
        for ahead in [0, 1, 63, 64, 65, 1_000_000, 200_000_000, 60_000_000_000, u64::MAX >> 1] {
            let deadline = Timestamp::from_nanos(now.as_nanos() + ahead);
            let check = first_check(now, deadline);
            let lead = deadline.as_nanos() - check.as_nanos();
            assert!(check <= deadline && lead <= (ahead / PART).min(LONGEST_LEAD), "{ahead}");
        }
        assert_eq!(first_check(now, Timestamp::ZERO), Timestamp::ZERO);
        let moments: BTreeSet<_> = (200..1_200).map(|after| first_check(now, at(after))).collect();
        assert!(moments.len() < 50, "{} moments for 1,000 timers", moments.len());
    }

    /// Returns a `Recheck` that has noted `checks` checks in each millisecond of the last seconds.
    fn after(checks: u64) -> Recheck {
        let mut recheck = Recheck::default();
        (0..2_000).for_each(|millis| recheck.note(at(millis), checks));
        recheck
    }

    #[test]
    fn few_checks_a_second_come_together_far_from_their_deadlines() {
        let mut recheck = Recheck::default();
        // Five checks a second. Other turns, which check nothing again, do not change the average.
        for millis in (0..30_000).step_by(40) {
            recheck.note(at(millis), u64::from(millis % 200 == 0));
        }
        let now = at(30_000);
        let checks = (0..300).map(|nth| recheck.next(now, at(90_000 - 200 * nth)));
        let moments: BTreeSet<_> = checks.filter(|check| *check > at(60_000)).collect();
        assert!(moments.len() < 20, "{} moments for 150 timers", moments.len());
    }

    #[test]
    fn first_checks_and_later_checks_come_together() {
        let (now, recheck) = (at(0), after(4));
        let first: BTreeSet<_> = (1_000..2_000).map(|after| first_check(now, at(after))).collect();
        let later: BTreeSet<_> = (1_000..2_000).map(|after| recheck.next(now, at(after))).collect();
        assert!(first.union(&later).count() <= first.len().max(later.len()) + 1, "{first:?} {later:?}");
    }

    #[test]
    fn few_are_coalesced_on_a_coarse_grid_and_many_on_none() {
        let now = at(0);
        let moments = |recheck: &Recheck| {
            let checks = (5_000..6_024).map(|after| recheck.next(now, at(after)));
            checks.collect::<BTreeSet<_>>().len()
        };
        assert!(moments(&after(1)) <= 10);
        assert_eq!(moments(&after(1_000)), 1_024);
    }

    #[test]
    fn a_check_that_no_other_would_join_comes_at_the_deadline() {
        let now = at(0);
        assert_eq!(Recheck::default().next(now, at(5_001)), at(5_001));
        let soon = at(11);
        assert_eq!(after(1).next(now, soon), soon);
        assert_ne!(after(1).next(now, at(5_001)), at(5_001));
    }
}
