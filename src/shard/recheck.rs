//! Chooses the moments at which timers are checked before their deadlines.
//!
//! An active connection postpones its timer long before the deadline, and again before the next deadline. If each timer
//! were checked at its own deadline, the shard would wake for every single connection: with many connections, a
//! thousand times a second. A timer may be checked at any earlier moment as well. So checks are moved to the ticks of a
//! grid, where many checks come together. The farther the deadline and the fewer the timers, the coarser the grid. A
//! timer that is not postponed again is checked three or four times before it fires, each time on a finer grid.
//!
//! The same holds for the first check of a timer that was disarmed before its last deadline ([`first_check`]). A timer
//! that is new or has fired is checked at its deadline.

use crate::base::tick::{Tick, Timestamp};

/// A check of a postponed timer may come before the deadline by at most the remaining time divided by this number.
const PART_OF_REMAINDER: u64 = 16;
/// The number of checks of postponed timers that should come together at a tick. These checks take some 15 µs, for
/// which other due timers wait.
const COALESCED: u64 = 256;
/// The scale of the average in `Recheck::rate`: one check counts as this number.
const SCALE: u64 = 256;

/// The first check of a timer may come before the deadline by at most the remaining time divided by this number.
const PART_OF_DELAY: u64 = 16;
/// The greatest time by which the first check of a timer may come before the deadline, in nanoseconds.
const LONGEST_LEAD: u64 = 1 << 25;

/// Returns the moment of the first check of a timer that is armed for `deadline` and is probably disarmed before. At
/// each moment of checks the shard wakes and passes a heavy fence, so many checks should come together. Arming reads no
/// clock, so `next`, the moment at which the shard will drain its lanes, stands for the present. The thread that arms a
/// timer does not know the rate of checks. So the check comes at most [`LONGEST_LEAD`] before the deadline, which keeps
/// the checks of one moment few.
pub(crate) fn first_check(next: Timestamp, deadline: Timestamp) -> Timestamp {
    let ahead = deadline.as_nanos().saturating_sub(next.as_nanos());
    match (ahead / PART_OF_DELAY).min(LONGEST_LEAD) {
        0 => deadline,
        lead => Timestamp::from_nanos(deadline.as_nanos() >> lead.ilog2() << lead.ilog2()),
    }
}

/// Measures how often the shard finds timers postponed, and decides by that measure when the shard checks a timer
/// again.
#[derive(Debug, Default)]
pub(super) struct Recheck {
    last: Tick,
    /// The recent average number of checks in a tick, in units of 1/`SCALE`.
    rate: u64,
}

impl Recheck {
    /// Records that `checks` checks at tick `now` found their timers postponed.
    pub(super) fn note(&mut self, now: Tick, checks: u64) {
        let passed = now.0.saturating_sub(self.last.0).max(1);
        self.last = now;
        self.rate = (3 * self.rate).saturating_add(checks * SCALE / passed) / 4;
    }

    /// Returns the tick for the next check of a postponed timer that is due at tick `due`. `due` must not be before
    /// `now`.
    pub(super) fn next(&self, now: Tick, due: Tick) -> Tick {
        let part = due.0.saturating_sub(now.0) / PART_OF_REMAINDER;
        let grid = part.min(COALESCED * SCALE / self.rate.max(1)).max(1);
        let grid = 1 << grid.ilog2();
        Tick(due.0 / grid * grid)
    }
}

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use super::*;

    #[test]
    fn checks_are_coalesced_but_never_late_nor_much_too_early() {
        let mut recheck = Recheck::default();
        for round in 1..1_000 {
            let now = Tick(round * 37);
            recheck.note(now, round % 300);
            for remainder in [0, 1, 15, 16, 17, 100, 5_000, 60_000, u64::MAX - 37_000] {
                let due = Tick(now.0 + remainder);
                let next = recheck.next(now, due);
                assert!(next <= due && due.0 - next.0 <= remainder / PART_OF_REMAINDER);
            }
        }
    }

    #[test]
    fn first_checks_come_together_and_never_after_their_deadlines() {
        let now = Timestamp::from_nanos(86_400_000_000_000);
        for ahead in [0, 1, 63, 64, 65, 1_000_000, 200_000_000, 60_000_000_000, u64::MAX >> 1] {
            let deadline = Timestamp::from_nanos(now.as_nanos() + ahead);
            let check = first_check(now, deadline);
            let lead = deadline.as_nanos() - check.as_nanos();
            assert!(check <= deadline && lead <= (ahead / PART_OF_DELAY).min(LONGEST_LEAD), "{ahead}");
        }
        assert_eq!(first_check(now, Timestamp::ZERO), Timestamp::ZERO);
        let a_second = (0..1_000).map(|n| now.as_nanos() + 200_000_000 + n * 1_000_000);
        let checks = a_second.map(|deadline| first_check(now, Timestamp::from_nanos(deadline)));
        let moments: std::collections::BTreeSet<Timestamp> = checks.collect();
        assert!(moments.len() < 500, "{} moments for 1,000 timers", moments.len());
    }

    #[test]
    fn few_are_coalesced_on_a_coarse_grid_and_many_on_none() {
        let (now, due) = (Tick(1_000_000), Tick(1_005_001));
        let grid_of = |recheck: &Recheck| {
            let ticks = (0..1_024).map(|ahead| recheck.next(now, Tick(due.0 + ahead)));
            let distinct: std::collections::BTreeSet<Tick> = ticks.collect();
            1_024 / distinct.len()
        };
        assert!(grid_of(&Recheck::default()) >= 128);
        let mut many = Recheck::default();
        (0..100).for_each(|tick| many.note(Tick(tick), 1_000));
        assert_eq!(grid_of(&many), 1);
    }
}
