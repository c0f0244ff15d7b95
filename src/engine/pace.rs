//! The moments at which a session reads the clock.
//!
//! A reading of the clock takes as long as the rest of an expiry. So a session reads the clock once for a *row* of
//! handlers. While handlers are quick, a row becomes longer, up to [`LONGEST_ROW`] handlers. After a row that was not
//! quick, each handler is a row by itself.
//!
//! The histogram of lateness needs the moment at which each handler began. The handlers of a quick row count as begun
//! at the row's start, which is less than [`QUICK_NANOS`] too early. In a row that was not quick, any handler may have
//! been slow. So all handlers but the first count as begun at the row's end: some of them too late, none too early.
//! Only time between two handlers, such as the time for tickets of ended timers, can still be left out.
//!
//! A clock of the user's own is read after each handler: it may move in steps, and then the moment of each handler
//! matters.

use crate::base::buckets::Run;
use crate::base::counters::StationCounters;
use crate::base::tick::Timestamp;
use crate::system::clock::EngineClock;

/// The greatest number of handlers for which a session reads the clock once.
const LONGEST_ROW: usize = 8;
/// The time in which a quick row of handlers ends, in nanoseconds. A tick is fifty times as long by default.
const QUICK_NANOS: u64 = 20_000;

/// The clock of a session, which is read once for each row of handlers, and the latenesses that wait to be counted.
pub(super) struct Pace {
    /// The last reading of the fast clock. The *row* is the handlers that were called after it.
    now: Timestamp,
    /// A moment that has come by the true clock. A timer may fire if its deadline is not after this moment.
    verdict: Timestamp,
    /// The deadlines of the timers whose handlers were called after the last reading of the clock.
    deadlines: [Timestamp; LONGEST_ROW],
    called: usize,
    /// The number of handlers after which the clock is read again.
    length: usize,
    /// The greatest number of handlers between two readings of the clock.
    longest: usize,
    lateness: Run,
}

impl Pace {
    pub(super) fn begin(clock: &EngineClock) -> Self {
        Self::with_rows_of(if clock.is_of_the_system() { LONGEST_ROW } else { 1 }, clock)
    }

    fn with_rows_of(longest: usize, clock: &EngineClock) -> Self {
        Self {
            verdict: clock.true_now(),
            now: clock.now(),
            deadlines: [Timestamp::ZERO; LONGEST_ROW],
            called: 0,
            length: 1,
            longest,
            lateness: Run::default(),
        }
    }

    /// Returns the last reading of the fast clock.
    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns a moment that has come, by the true clock.
    pub(super) fn verdict(&self) -> Timestamp {
        self.verdict
    }

    /// Notes the deadline of a timer whose handler begins now.
    #[inline(always)]
    pub(super) fn note(&mut self, deadline: Timestamp) {
        // The index is in range: a row ends before it has more handlers.
        self.deadlines[self.called % LONGEST_ROW] = deadline;
        self.called += 1;
    }

    /// Called after each handler. Reads the clock if enough handlers were called after its last reading.
    #[inline(always)]
    pub(super) fn count_handler(&mut self, clock: &EngineClock, counters: &StationCounters) {
        if self.called >= self.length {
            self.end_row(clock, counters);
        }
    }

    /// Ends the row of handlers if it has a handler. Called at the end of a session.
    pub(super) fn end_last_row(&mut self, clock: &EngineClock, counters: &StationCounters) {
        if self.called > 0 {
            self.end_row(clock, counters);
        }
    }

    /// Reads the clock, and counts the latenesses of the row, the handlers that were called after the last reading.
    pub(super) fn end_row(&mut self, clock: &EngineClock, counters: &StationCounters) {
        let end = clock.now();
        let is_quick = end.as_nanos().saturating_sub(self.now.as_nanos()) < QUICK_NANOS;
        self.count_row(if is_quick { self.now } else { end }, counters);
        self.length = if is_quick { (2 * self.length).min(self.longest) } else { 1 };
        // `end` is less than the earlier reading only if the clock has stepped back.
        self.verdict = self.verdict.min(end);
        self.now = end;
    }

    /// Counts the latenesses of the row, the handlers that were called after the last reading of the clock. The first
    /// handler began with the row, and the others count as begun at `others`.
    fn count_row(&mut self, others: Timestamp, counters: &StationCounters) {
        let mut began = self.now;
        for deadline in &self.deadlines[..self.called.min(LONGEST_ROW)] {
            let lateness = began.as_nanos().saturating_sub(deadline.as_nanos());
            counters.note_lateness(&mut self.lateness, lateness);
            began = others;
        }
        self.called = 0;
    }

    /// Adds the latenesses of the rows that have ended to the histogram in `counters`.
    pub(super) fn publish(&mut self, counters: &StationCounters) {
        counters.count_lateness(&mut self.lateness);
    }

    /// Counts all latenesses that are left, without a reading of the clock. The clock's own panic may have ended the
    /// session.
    pub(super) fn flush(&mut self, counters: &StationCounters) {
        self.count_row(self.now, counters);
        self.publish(counters);
    }
}

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use super::*;
    use crate::base::sync::StdArc;
    use crate::system::clock::ManualClock;
    use core::time::Duration;

    /// A session on a manual clock, whose rows may be as long as with the system's clock.
    struct Session {
        time: StdArc<ManualClock>,
        clock: EngineClock,
        counters: StationCounters,
        pace: Pace,
        /// The number of handlers after which the session has read the clock.
        readings: usize,
    }

    impl Session {
        fn begin() -> Self {
            let time = StdArc::new(ManualClock::new());
            let clock = EngineClock::Custom(StdArc::<ManualClock>::clone(&time));
            let pace = Pace::with_rows_of(LONGEST_ROW, &clock);
            Self { time, clock, counters: StationCounters::new(), pace, readings: 0 }
        }

        /// Fires a timer that is due at the origin of time, and whose handler takes `time`.
        fn fire(&mut self, time: Duration) {
            self.pace.note(Timestamp::ZERO);
            self.time.advance(time);
            self.pace.count_handler(&self.clock, &self.counters);
            self.readings += usize::from(self.pace.called == 0);
        }

        /// Returns the number of timers that the histogram has as at least as late as `least`.
        fn counted(&mut self, least: Duration) -> u64 {
            self.pace.end_row(&self.clock, &self.counters);
            self.pace.flush(&self.counters);
            let least = u64::try_from(least.as_nanos()).expect("short");
            let lateness = self.counters.lateness();
            lateness.occupied().filter(|bucket| bucket.greatest >= least).map(|bucket| bucket.count).sum()
        }
    }

    #[test]
    fn quick_handlers_share_readings_of_the_clock() {
        let mut session = Session::begin();
        (0..1_000).for_each(|_| session.fire(Duration::from_nanos(10)));
        assert!(session.readings <= 1_000 / LONGEST_ROW + 4, "{} readings", session.readings);
        assert_eq!(session.counted(Duration::ZERO), 1_000);
    }

    #[test]
    fn a_handler_that_suddenly_takes_long_hides_no_delay() {
        for quick in 0..40 {
            let mut session = Session::begin();
            (0..quick).for_each(|_| session.fire(Duration::from_nanos(10)));
            session.fire(Duration::from_secs(1));
            (0..20).for_each(|_| session.fire(Duration::from_nanos(10)));
            let late = session.counted(Duration::from_secs(1));
            assert!((20..20 + LONGEST_ROW as u64).contains(&late), "{late} of 20 after {quick}");
            assert_eq!(session.counted(Duration::ZERO), quick + 21);
        }
    }

    #[test]
    fn slow_handlers_are_measured_one_by_one() {
        let mut session = Session::begin();
        (0..100).for_each(|_| session.fire(Duration::from_millis(1)));
        assert_eq!(session.readings, 100);
        assert_eq!(session.counted(Duration::from_millis(50)), 50);
    }

    #[test]
    fn a_clock_of_the_users_own_is_read_after_each_handler() {
        let mut session = Session::begin();
        session.pace = Pace::begin(&session.clock);
        (0..100).for_each(|_| session.fire(Duration::ZERO));
        assert_eq!(session.readings, 100);
    }
}
