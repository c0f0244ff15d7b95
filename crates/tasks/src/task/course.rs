//! The course of a repeating task: its instants, and the policy for those that have no run. This is arithmetic only,
//! without a timer or a lock; the caller passes the present moment in.

use super::repeat::Overlap;
use super::run::Report;
use super::wall::Wall;
#[cfg(feature = "calendar")]
use crate::calendar::{Calendar, jiff};
use core::time::Duration;
use tourbillon::{Missed, Timestamp};

/// Nanoseconds. For a period or a pause they count from the origin of the engine's clock, for a calendar from 1970.
pub(super) type Instant = i128;

/// The rule that spaces the instants.
#[derive(Clone, Debug)]
pub(super) enum Pace {
    Rate(Duration),
    Pause(Duration),
    #[cfg(feature = "calendar")]
    Calendar(Calendar),
}

/// The sequence of all instants of a task.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pace: Pace,
    #[cfg_attr(not(feature = "calendar"), expect(dead_code, reason = "only a calendar goes by it"))]
    wall: Wall,
}

/// The instants that have come since another one.
struct Elapsed {
    count: u64,
    /// The last of them.
    last: Instant,
}

#[cfg(feature = "calendar")]
mod by_the_calendar {
    use core::time::Duration;

    /// The longest wait without a new look at the wall clock, which may be set meanwhile.
    pub(super) const STRIDE: Duration = Duration::from_secs(30);
    /// The number of instants that are counted one by one.
    pub(super) const COUNTED: u64 = 100_000;
}

impl Row {
    pub(super) fn new(pace: Pace, wall: Wall) -> Self {
        Self { pace, wall }
    }

    /// The present moment as an instant of this row.
    pub(super) fn instant(&self, now: Timestamp) -> Instant {
        match self.pace {
            Pace::Rate(_) | Pace::Pause(_) => Instant::from(now.as_nanos()),
            #[cfg(feature = "calendar")]
            Pace::Calendar(_) => since_1970(self.wall.at(now)),
        }
    }

    /// The moment at which to look at an instant that is to come.
    #[cfg_attr(not(feature = "calendar"), expect(unused_variables, reason = "of the wall clock"))]
    pub(super) fn deadline(&self, instant: Instant, now: Timestamp) -> Timestamp {
        match self.pace {
            Pace::Rate(_) | Pace::Pause(_) => {
                Timestamp::from_nanos(u64::try_from(instant.max(0)).unwrap_or(u64::MAX))
            }
            #[cfg(feature = "calendar")]
            Pace::Calendar(_) => {
                let wait = u128::try_from(instant - self.instant(now)).unwrap_or(0);
                let wait = nanoseconds(wait);
                let stride = by_the_calendar::STRIDE;
                now + if self.wall.may_be_set() { wait.min(stride) } else { wait }
            }
        }
    }

    /// The instant after this one. With a pause: the instant of the run that follows a run which ends at this one.
    pub(super) fn after(&self, instant: Instant) -> Option<Instant> {
        match &self.pace {
            Pace::Rate(span) | Pace::Pause(span) => Some(instant.saturating_add(nanos(*span))),
            #[cfg(feature = "calendar")]
            Pace::Calendar(calendar) => {
                let next = calendar.next_after(timestamp(instant)?)?;
                Some(next.as_nanosecond())
            }
        }
    }

    /// The instants after `instant`, which is one of the row, that have come by `now`.
    fn elapsed(&self, instant: Instant, now: Instant) -> Elapsed {
        match &self.pace {
            Pace::Rate(period) => {
                let count = (now - instant).max(0) / nanos(*period);
                Elapsed {
                    count: u64::try_from(count).unwrap_or(u64::MAX),
                    last: instant + count * nanos(*period),
                }
            }
            Pace::Pause(_) => Elapsed { count: 0, last: instant },
            #[cfg(feature = "calendar")]
            Pace::Calendar(_) => {
                let mut elapsed = Elapsed { count: 0, last: instant };
                while let Some(next) = self.after(elapsed.last).filter(|&next| next <= now) {
                    elapsed.count += 1;
                    // The next instant can be found from any instant, so the rest need not be counted.
                    elapsed.last = if elapsed.count < by_the_calendar::COUNTED { next } else { now };
                }
                elapsed
            }
        }
    }

    fn rebased(&self, now: Instant) -> Option<Instant> {
        match self.pace {
            Pace::Rate(_) | Pace::Pause(_) => self.after(now),
            #[cfg(feature = "calendar")]
            Pace::Calendar(_) => None,
        }
    }

    /// An instant of a calendar's row.
    #[cfg(feature = "calendar")]
    pub(super) fn calendar_instant(&self, instant: Instant) -> Option<jiff::Timestamp> {
        matches!(self.pace, Pace::Calendar(_)).then(|| timestamp(instant)).flatten()
    }
}

fn nanos(span: Duration) -> Instant {
    Instant::try_from(span.as_nanos()).unwrap_or(Instant::MAX)
}

/// A span of `nanos` nanoseconds, or the longest span that there is.
pub(super) fn nanoseconds(nanos: u128) -> Duration {
    const SECOND: u128 = 1_000_000_000;
    let Ok(seconds) = u64::try_from(nanos / SECOND) else { return Duration::MAX };
    Duration::new(seconds, u32::try_from(nanos % SECOND).unwrap_or(0))
}

#[cfg(feature = "calendar")]
fn timestamp(instant: Instant) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_nanosecond(instant).ok()
}

#[cfg(feature = "calendar")]
fn since_1970(time: std::time::SystemTime) -> Instant {
    match time.duration_since(std::time::SystemTime::UNIX_EPOCH) {
        Ok(since) => nanos(since),
        Err(before) => -nanos(before.duration()),
    }
}

/// The position of a task on its row, and its policies.
#[derive(Debug)]
pub(super) struct Course {
    pub(super) row: Row,
    /// The instant of the coming run; `None` when there is no further run.
    next: Option<Instant>,
    /// Runs that are left.
    left: Option<u64>,
    missed: Missed,
    overlap: Overlap,
    /// When the last run began.
    begun: Instant,
    /// The instant up to which missed instants were counted.
    counted: Instant,
    pub(super) report: Report,
}

/// A run that begins.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Begun {
    pub(super) number: u64,
    pub(super) instant: Instant,
    pub(super) missed: u64,
}

impl Course {
    pub(super) fn new(
        row: Row,
        first: Instant,
        times: Option<u64>,
        missed: Missed,
        overlap: Overlap,
    ) -> Self {
        Self {
            row,
            next: Some(first),
            left: times,
            missed,
            overlap,
            begun: Instant::MIN,
            counted: Instant::MIN,
            report: Report::default(),
        }
    }

    /// The instant of the coming run.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next.filter(|_| self.left != Some(0))
    }

    /// Starts the run for the instant that has come; `None` when no instant has come.
    pub(super) fn begin(&mut self, now: Instant) -> Option<Begun> {
        let instant = self.next().filter(|&next| next <= now)?;
        self.begun = now;
        self.left = self.left.map(|left| left - 1);
        self.report.runs += 1;
        // In a burst, the instants after this one were counted before.
        let from = instant.max(self.counted);
        let Elapsed { count: missed, last } = self.row.elapsed(from, now);
        self.counted = last;
        self.report.missed += missed;
        self.next = if let Pace::Pause(_) = self.row.pace {
            // The pause counts from here unless the next run waits for this one: then `end` counts it from the run's
            // end.
            self.row.after(now)
        } else if missed == 0 || self.missed == Missed::Burst {
            self.row.after(instant)
        } else {
            self.report.skipped += missed;
            let rebased = (self.missed == Missed::Delay).then(|| self.row.rebased(now)).flatten();
            rebased.or_else(|| self.row.after(last))
        };
        Some(Begun { number: self.report.runs, instant, missed })
    }

    /// Ends the run, and applies the overlap policy to the instants that came meanwhile.
    pub(super) fn end(&mut self, now: Instant) {
        if let Pace::Pause(_) = self.row.pace {
            self.next = self.row.after(now);
            return;
        }
        // The filter leaves a burst alone: its instants that had come before the run began are still to be run.
        let Some(next) = self.next().filter(|&next| self.begun < next && next <= now) else { return };
        let Elapsed { count, last } = self.row.elapsed(next, now);
        let overlapped = count + 1;
        self.report.overlapped += overlapped;
        self.report.skipped += match self.overlap {
            Overlap::Skip => {
                self.next = self.row.after(last);
                overlapped
            }
            Overlap::QueueOne => {
                self.next = Some(last);
                count
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Instant = 10;

    fn course(missed: Missed, overlap: Overlap) -> Course {
        let row = Row::new(Pace::Rate(Duration::from_nanos(10)), Wall::System);
        Course::new(row, PERIOD, None, missed, overlap)
    }

    /// Runs from `begin` to `end`. Returns the instant of the run, the number of instants that it missed, and the next
    /// instant.
    fn run(course: &mut Course, begin: Instant, end: Instant) -> (Instant, u64, Option<Instant>) {
        let begun = course.begin(begin).expect("an instant has come");
        course.end(end);
        (begun.instant, begun.missed, course.next())
    }

    #[test]
    fn on_time_it_is_a_row() {
        let mut course = course(Missed::Skip, Overlap::Skip);
        assert_eq!(course.begin(9), None);
        assert_eq!(run(&mut course, 10, 11), (10, 0, Some(20)));
        assert_eq!(run(&mut course, 21, 29), (20, 0, Some(30)));
        assert_eq!(course.report, Report { runs: 2, ..Report::default() });
    }

    #[test]
    fn what_was_missed_is_skipped_in_step() {
        let mut course = course(Missed::Skip, Overlap::Skip);
        assert_eq!(run(&mut course, 45, 46), (10, 3, Some(50)));
        assert_eq!(course.report, Report { runs: 1, missed: 3, skipped: 3, ..Report::default() });
    }

    #[test]
    fn a_delay_leaves_the_row_for_a_new_one() {
        let mut course = course(Missed::Delay, Overlap::Skip);
        assert_eq!(run(&mut course, 15, 16), (10, 0, Some(20)));
        assert_eq!(run(&mut course, 45, 46), (20, 2, Some(55)));
        assert_eq!(run(&mut course, 55, 56), (55, 0, Some(65)));
        assert_eq!(course.report.skipped, 2);
    }

    #[test]
    fn a_burst_runs_each_once_and_counts_it_once() {
        let mut course = course(Missed::Burst, Overlap::Skip);
        assert_eq!(run(&mut course, 45, 46), (10, 3, Some(20)));
        assert_eq!(run(&mut course, 46, 47), (20, 0, Some(30)));
        assert_eq!(run(&mut course, 47, 48), (30, 0, Some(40)));
        assert_eq!(run(&mut course, 48, 49), (40, 0, Some(50)));
        assert_eq!(course.report, Report { runs: 4, missed: 3, ..Report::default() });
    }

    #[test]
    fn what_a_long_run_overlaps_is_skipped_or_its_last_queued() {
        let mut skipping = course(Missed::Skip, Overlap::Skip);
        assert_eq!(run(&mut skipping, 10, 45), (10, 0, Some(50)));
        let expected = Report { runs: 1, overlapped: 3, skipped: 3, ..Report::default() };
        assert_eq!(skipping.report, expected);
        let mut queueing = course(Missed::Skip, Overlap::QueueOne);
        assert_eq!(run(&mut queueing, 10, 45), (10, 0, Some(40)));
        assert_eq!(run(&mut queueing, 45, 46), (40, 0, Some(50)));
        let expected = Report { runs: 2, overlapped: 3, skipped: 2, ..Report::default() };
        assert_eq!(queueing.report, expected);
    }

    #[test]
    fn an_instant_exactly_now_has_come() {
        let mut course = course(Missed::Skip, Overlap::Skip);
        assert_eq!(run(&mut course, 20, 30), (10, 1, Some(40)));
        assert_eq!(
            course.report,
            Report { runs: 1, missed: 1, overlapped: 1, skipped: 2, ..Report::default() }
        );
    }

    #[test]
    fn a_pause_is_from_the_end() {
        let row = Row::new(Pace::Pause(Duration::from_nanos(10)), Wall::System);
        let mut course = Course::new(row, PERIOD, Some(2), Missed::Burst, Overlap::QueueOne);
        assert_eq!(run(&mut course, 45, 70), (10, 0, Some(80)));
        assert_eq!(run(&mut course, 80, 81), (80, 0, None));
        assert_eq!(course.begin(1_000), None);
        assert_eq!(course.report, Report { runs: 2, ..Report::default() });
    }

    #[test]
    fn periods_beyond_the_end_of_time_do_not_overflow() {
        let row = Row::new(Pace::Rate(Duration::MAX), Wall::System);
        let mut course = Course::new(row, 0, None, Missed::Skip, Overlap::Skip);
        assert!(run(&mut course, 5, Instant::from(u64::MAX)).2.is_some());
        assert_eq!(course.row.deadline(course.next().unwrap(), Timestamp::ZERO), Timestamp::MAX);
    }
}
