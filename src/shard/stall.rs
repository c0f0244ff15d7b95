//! Detects stalls: measures and publishes how late a shard is, on the shard's own thread.
//!
//! A shard is overdue
//! - while it sleeps, from the moment at which it means to wake;
//! - while it turns, from the start of the turn. If a tick that began before the turn has not been handed out, the
//!   shard is overdue from the start of that tick. It may be the tick for which the shard slept, or a tick for which a
//!   turn's budget did not suffice.
//!
//! Only the moment from which the shard is overdue is published. `now - overdue_since` is the shard's delay, even if
//! its thread is stuck; a moment in the future means that the shard is on time. A *stall* is a delay of more than
//! `stall_after`. It counts as one stall until the delay is shorter again.
//!
//! A shard that was woken early is overdue from the start of its next turn, not from the wake-up, since the waking
//! thread reads no clock.

use crate::base::counters::ShardCounters;
use crate::base::sync::StdArc;
use crate::base::tick::{TickLength, Timestamp};
use crate::base::trace;
use core::time::Duration;

#[derive(Debug)]
pub(crate) struct StallDetector {
    shards: u64,
    shard: usize,
    tick: TickLength,
    stall_after: Duration,
    counters: StdArc<ShardCounters>,
    /// The moment from which the shard counts as overdue, as written to the shard's counters.
    overdue_since: Timestamp,
    /// The start of the first tick whose timers the shard has not handed out, as far as the shard knows.
    due: Timestamp,
    /// The longest delay of the shard in the present stall. `None` if the shard does not stall.
    stall: Option<Duration>,
}

impl StallDetector {
    pub(crate) fn new(
        shards: u64,
        shard: usize,
        tick: TickLength,
        stall_after: Duration,
        counters: StdArc<ShardCounters>,
    ) -> Self {
        Self {
            shards,
            shard,
            tick,
            stall_after,
            counters,
            overdue_since: Timestamp::MAX,
            due: Timestamp::MAX,
            stall: None,
        }
    }

    /// Records that the shard, which sleeps, should wake at `moment` at the latest.
    pub(super) fn hasten(&mut self, moment: Timestamp) {
        if moment < self.overdue_since {
            self.due = moment;
            self.set_overdue_since(moment);
        }
    }

    /// Records that a shard that has never turned should turn from `now` on.
    pub(super) fn expect_turn(&mut self, now: Timestamp) {
        self.set_overdue_since(now);
    }

    pub(super) fn begin_turn(&mut self, now: Timestamp) {
        self.check(now);
        self.set_overdue_since(now.min(self.due));
    }

    /// Records the end of the turn (a pass of the shard's loop) that began at `now`. The turn has handed out the timers
    /// of all ticks that begin before `due`.
    pub(super) fn end_turn(&mut self, now: Timestamp, due: Timestamp) {
        self.due = due;
        self.set_overdue_since(now.min(due));
    }

    /// Records that the shard sleeps from `now` on. Its next turn should begin at `until`.
    pub(super) fn begin_sleep(&mut self, now: Timestamp, until: Timestamp) {
        self.check(now);
        if now < until {
            self.catch_up();
        }
        self.due = until;
        self.set_overdue_since(until);
    }

    /// Records that the shard's thread ends. From then on, the shard is never overdue.
    pub(super) fn end(&mut self) {
        self.catch_up();
        self.set_overdue_since(Timestamp::MAX);
    }

    fn set_overdue_since(&mut self, moment: Timestamp) {
        self.overdue_since = moment;
        self.counters.overdue_since.set(moment.as_nanos());
    }

    fn check(&mut self, now: Timestamp) {
        let late = now - self.overdue_since;
        if late > self.stall_after {
            self.note_stall(late);
        } else {
            self.catch_up();
        }
    }

    #[cold]
    fn note_stall(&mut self, late: Duration) {
        let counters = &self.counters;
        if self.stall.is_none() {
            counters.stalls.add(1);
            trace::stalled(self.shards, self.shard, late, self.tick.whole_ticks(late));
        }
        let worst = self.stall.map_or(late, |worst| worst.max(late));
        self.stall = Some(worst);
        counters.note_stall(worst);
    }

    fn catch_up(&mut self) {
        if let Some(worst) = self.stall.take() {
            trace::caught_up(self.shards, self.shard, worst, self.tick.whole_ticks(worst));
        }
    }
}

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * MS)
    }

    fn detector() -> StallDetector {
        let counters = StdArc::new(ShardCounters::new());
        StallDetector::new(0, 0, TickLength::from_nanos(MS), Duration::from_millis(100), counters)
    }

    /// Returns the number of stalls, the worst stall in milliseconds, and the present delay in milliseconds.
    fn seen(detector: &StallDetector, now: u64) -> (u64, u128, u128) {
        let counters = &detector.counters;
        (counters.stalls.get(), counters.worst_stall().as_millis(), counters.behind(at(now)).as_millis())
    }

    #[test]
    fn a_sleep_is_overdue_from_its_end_on() {
        let mut detector = detector();
        detector.begin_turn(at(1_000));
        assert_eq!(seen(&detector, 1_000), (0, 0, 0));
        detector.end_turn(at(1_000), at(1_001));
        detector.begin_sleep(at(1_001), at(5_000));
        assert_eq!(seen(&detector, 4_999), (0, 0, 0));
        assert_eq!(seen(&detector, 5_070), (0, 0, 70));
        // Woken early, in time, and on the threshold: no stall.
        for begin in [2_000, 5_000, 5_100] {
            detector.begin_turn(at(begin));
            detector.end_turn(at(begin), at(begin + 1));
            detector.begin_sleep(at(begin), at(5_000.max(begin)));
        }
        assert_eq!(seen(&detector, 5_100).0, 0);
        detector.begin_sleep(at(5_100), at(6_000));
        detector.begin_turn(at(6_101));
        // The tick is overdue until the turn ends.
        assert_eq!(seen(&detector, 6_103), (1, 101, 103));
        detector.end_turn(at(6_101), at(6_102));
        assert_eq!(seen(&detector, 6_103), (1, 101, 2));
    }

    #[test]
    fn a_long_turn_is_one_stall_and_ends_with_it() {
        let mut detector = detector();
        detector.begin_turn(at(10));
        assert_eq!(seen(&detector, 260), (0, 0, 250));
        detector.end_turn(at(10), at(11));
        detector.begin_sleep(at(260), Timestamp::MAX);
        assert_eq!(seen(&detector, 100_000), (1, 250, 0));
        assert_eq!(detector.stall, None);
        detector.begin_turn(at(100_000));
        assert_eq!(seen(&detector, 100_000), (1, 250, 0));
    }

    /// If a shard does not sleep, the delay of its next turn does not include the delay of the last turn.
    #[test]
    fn without_a_sleep_the_next_tick_is_overdue() {
        let mut detector = detector();
        detector.begin_turn(at(0));
        detector.end_turn(at(0), at(1));
        detector.begin_turn(at(70));
        assert_eq!(seen(&detector, 101), (0, 0, 100));
        detector.end_turn(at(70), at(71));
        detector.begin_turn(at(70));
        assert_eq!(seen(&detector, 170), (0, 0, 100));
    }

    #[test]
    fn what_is_left_of_a_tick_is_overdue_since_that_tick() {
        let mut detector = detector();
        detector.begin_turn(at(500));
        let mut last = 500;
        for now in [500, 560, 620, 680] {
            detector.end_turn(at(last), at(500));
            detector.begin_turn(at(now));
            last = now;
        }
        assert_eq!(seen(&detector, 680), (1, 180, 180));
        detector.end_turn(at(680), at(681));
        detector.begin_turn(at(690));
        assert_eq!(detector.stall, None);
        // Another stall, less severe.
        detector.end_turn(at(690), at(691));
        detector.begin_turn(at(800));
        assert_eq!(seen(&detector, 800), (2, 180, 109));
        detector.end();
        assert_eq!(seen(&detector, 10_000), (2, 180, 0));
    }

    #[test]
    fn a_clock_that_steps_back_makes_nothing_overdue() {
        let mut detector = detector();
        detector.begin_turn(at(1_000));
        detector.end_turn(at(1_000), at(1_001));
        detector.begin_turn(at(10));
        assert_eq!(seen(&detector, 11), (0, 0, 1));
    }
}
