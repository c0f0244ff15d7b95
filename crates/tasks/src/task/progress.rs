//! Computes which run of a repeating task comes next, and applies the policies to missed and overlapped instants. An
//! instant is the planned moment of a run. The code here uses no timer and no lock. The caller passes in the present
//! moment.

use super::occurrences::{Elapsed, Instant, Occurrences};
use super::policies::Overlap;
use super::report::Report;
use tourbillon::Missed;

/// The progress of a repeating task: its next run, its counts, and its policies.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) occurrences: Occurrences,
    /// The instant (planned moment) of the coming run; `None` if no further run comes.
    next: Option<Instant>,
    /// The number of runs that remain; `None` if the task repeats for ever.
    left: Option<u64>,
    missed: Missed,
    overlap: Overlap,
    /// The moment at which the last run began.
    begun: Instant,
    /// The instant up to which `begin` has counted the missed instants. The next count starts after it, so that no
    /// instant counts twice.
    counted: Instant,
    pub(super) report: Report,
}

/// A run that has just begun: its number, its instant (the planned moment of the run), and the number of instants that
/// were missed before the run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Begun {
    pub(super) number: u64,
    pub(super) instant: Instant,
    pub(super) missed: u64,
}

impl Progress {
    pub(super) fn new(
        occurrences: Occurrences,
        first: Instant,
        times: Option<u64>,
        missed: Missed,
        overlap: Overlap,
    ) -> Self {
        Self {
            occurrences,
            next: Some(first),
            left: times,
            missed,
            overlap,
            begun: Instant::MIN,
            counted: Instant::MIN,
            report: Report::default(),
        }
    }

    /// Returns the instant (planned moment) of the coming run; `None` if no further run comes.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next.filter(|_| self.left != Some(0))
    }

    /// Begins the coming run if its instant (planned moment) has come. Otherwise returns `None`.
    pub(super) fn begin(&mut self, now: Instant) -> Option<Begun> {
        let instant = self.next().filter(|&next| next <= now)?;
        self.begun = now;
        self.left = self.left.map(|left| left - 1);
        self.report.runs += 1;
        // With `Missed::Burst`, an earlier late run may have counted instants after `instant` already. The count starts
        // behind these, so that no instant counts twice.
        let from = instant.max(self.counted);
        let Elapsed { count: missed, last } = self.occurrences.elapsed(from, now);
        self.counted = last;
        self.report.missed += missed;
        self.next = if self.occurrences.has_pauses() {
            // If runs overlap, the pause counts from the start of the run. If they do not overlap, `end` computes the
            // next instant again, from the end of the run.
            self.occurrences.after(now)
        } else if missed == 0 || self.missed == Missed::Burst {
            self.occurrences.after(instant)
        } else {
            self.report.skipped += missed;
            let rebased = (self.missed == Missed::Delay).then(|| self.occurrences.rebased(now)).flatten();
            rebased.or_else(|| self.occurrences.after(last))
        };
        Some(Begun { number: self.report.runs, instant, missed })
    }

    /// Ends the present run. Applies the overlap policy to the instants (planned moments of further runs) that came
    /// during the run.
    pub(super) fn end(&mut self, now: Instant) {
        if self.occurrences.has_pauses() {
            self.next = self.occurrences.after(now);
            return;
        }
        // The policy applies if the next instant came during this run. With `Missed::Burst` and a late run, the next
        // instant came before the run began. Then nothing is skipped, and the instants that came during the run get
        // runs, too.
        let Some(next) = self.next().filter(|&next| self.begun < next && next <= now) else { return };
        let Elapsed { count, last } = self.occurrences.elapsed(next, now);
        let overlapped = count + 1;
        self.report.overlapped += overlapped;
        self.report.skipped += match self.overlap {
            Overlap::Skip => {
                self.next = self.occurrences.after(last);
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
    use crate::task::occurrences::Cadence;
    use crate::task::wall::Wall;
    use core::time::Duration;
    use tourbillon::Timestamp;

    const PERIOD: Instant = 10;

    fn progress(missed: Missed, overlap: Overlap) -> Progress {
        let occurrences = Occurrences::new(Cadence::Rate(Duration::from_nanos(10)), Wall::System);
        Progress::new(occurrences, PERIOD, None, missed, overlap)
    }

    /// Simulates a run from `begin` to `end`. Returns the run's instant, the number of instants missed before the run,
    /// and the next instant.
    fn run(progress: &mut Progress, begin: Instant, end: Instant) -> (Instant, u64, Option<Instant>) {
        let begun = progress.begin(begin).expect("an instant has come");
        progress.end(end);
        (begun.instant, begun.missed, progress.next())
    }

    #[test]
    fn on_time_each_instant_has_its_run() {
        let mut progress = progress(Missed::Skip, Overlap::Skip);
        assert_eq!(progress.begin(9), None);
        assert_eq!(run(&mut progress, 10, 11), (10, 0, Some(20)));
        assert_eq!(run(&mut progress, 21, 29), (20, 0, Some(30)));
        assert_eq!(progress.report, Report { runs: 2, ..Report::default() });
    }

    #[test]
    fn what_was_missed_is_skipped_in_step() {
        let mut progress = progress(Missed::Skip, Overlap::Skip);
        assert_eq!(run(&mut progress, 45, 46), (10, 3, Some(50)));
        assert_eq!(progress.report, Report { runs: 1, missed: 3, skipped: 3, ..Report::default() });
    }

    #[test]
    fn a_delay_counts_from_the_late_run() {
        let mut progress = progress(Missed::Delay, Overlap::Skip);
        assert_eq!(run(&mut progress, 15, 16), (10, 0, Some(20)));
        assert_eq!(run(&mut progress, 45, 46), (20, 2, Some(55)));
        assert_eq!(run(&mut progress, 55, 56), (55, 0, Some(65)));
        assert_eq!(progress.report.skipped, 2);
    }

    #[test]
    fn a_burst_runs_each_once_and_counts_it_once() {
        let mut progress = progress(Missed::Burst, Overlap::Skip);
        assert_eq!(run(&mut progress, 45, 46), (10, 3, Some(20)));
        assert_eq!(run(&mut progress, 46, 47), (20, 0, Some(30)));
        assert_eq!(run(&mut progress, 47, 48), (30, 0, Some(40)));
        assert_eq!(run(&mut progress, 48, 49), (40, 0, Some(50)));
        assert_eq!(progress.report, Report { runs: 4, missed: 3, ..Report::default() });
    }

    #[test]
    fn what_comes_during_a_run_of_a_burst_joins_the_burst() {
        for overlap in [Overlap::Skip, Overlap::QueueOne] {
            let mut progress = progress(Missed::Burst, overlap);
            assert_eq!(run(&mut progress, 45, 60), (10, 3, Some(20)));
            assert_eq!(run(&mut progress, 60, 75), (20, 2, Some(30)));
            assert_eq!(run(&mut progress, 75, 90), (30, 1, Some(40)));
            assert_eq!(progress.report, Report { runs: 3, missed: 6, ..Report::default() });
        }
    }

    #[test]
    fn what_a_long_run_overlaps_is_skipped_or_its_last_queued() {
        let mut skipping = progress(Missed::Skip, Overlap::Skip);
        assert_eq!(run(&mut skipping, 10, 45), (10, 0, Some(50)));
        let expected = Report { runs: 1, overlapped: 3, skipped: 3, ..Report::default() };
        assert_eq!(skipping.report, expected);
        let mut queueing = progress(Missed::Skip, Overlap::QueueOne);
        assert_eq!(run(&mut queueing, 10, 45), (10, 0, Some(40)));
        assert_eq!(run(&mut queueing, 45, 46), (40, 0, Some(50)));
        let expected = Report { runs: 2, overlapped: 3, skipped: 2, ..Report::default() };
        assert_eq!(queueing.report, expected);
    }

    #[test]
    fn an_instant_exactly_now_has_come() {
        let mut progress = progress(Missed::Skip, Overlap::Skip);
        assert_eq!(run(&mut progress, 20, 30), (10, 1, Some(40)));
        assert_eq!(
            progress.report,
            Report { runs: 1, missed: 1, overlapped: 1, skipped: 2, ..Report::default() }
        );
    }

    #[test]
    fn a_pause_is_from_the_end() {
        let occurrences = Occurrences::new(Cadence::Pause(Duration::from_nanos(10)), Wall::System);
        let mut progress = Progress::new(occurrences, PERIOD, Some(2), Missed::Burst, Overlap::QueueOne);
        assert_eq!(run(&mut progress, 45, 70), (10, 0, Some(80)));
        assert_eq!(run(&mut progress, 80, 81), (80, 0, None));
        assert_eq!(progress.begin(1_000), None);
        assert_eq!(progress.report, Report { runs: 2, ..Report::default() });
    }

    #[test]
    fn periods_beyond_the_end_of_time_do_not_overflow() {
        let occurrences = Occurrences::new(Cadence::Rate(Duration::MAX), Wall::System);
        let mut progress = Progress::new(occurrences, 0, None, Missed::Skip, Overlap::Skip);
        assert!(run(&mut progress, 5, Instant::from(u64::MAX)).2.is_some());
        assert_eq!(
            progress.occurrences.deadline(progress.next().unwrap(), || Timestamp::ZERO),
            Timestamp::MAX
        );
    }
}
