//! What a run hears of itself, and what a task reports of its runs.

use super::course::{Begun, Instant, Row, nanoseconds};
#[cfg(feature = "calendar")]
use crate::calendar::jiff;
use crate::tick::Timestamp;
use core::cell::Cell;
use core::time::Duration;

/// One run of a repeating task, as its closure sees it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Run {
    /// Which run it is, counted from 1.
    pub number: u64,
    /// The instant that it is for, on the engine's clock.
    pub scheduled: Timestamp,
    /// How long after that it began.
    pub lateness: Duration,
    /// How many further instants had come by then, and were not counted before.
    pub missed: u64,
    /// The instant that it is for, by the calendar; `None` for a task that has a period.
    #[cfg(feature = "calendar")]
    pub instant: Option<jiff::Timestamp>,
    pub(super) is_last: Cell<bool>,
}

impl Run {
    #[cfg_attr(not(feature = "calendar"), expect(unused_variables, reason = "of the calendar"))]
    pub(super) fn new(begun: &Begun, row: &Row, present: Instant, now: Timestamp) -> Self {
        let late = u128::try_from(present - begun.instant).unwrap_or(0);
        let lateness = nanoseconds(late);
        Self {
            number: begun.number,
            scheduled: Timestamp::ZERO + ((now - Timestamp::ZERO).saturating_sub(lateness)),
            lateness,
            missed: begun.missed,
            #[cfg(feature = "calendar")]
            instant: row.calendar_instant(begun.instant),
            is_last: Cell::new(false),
        }
    }

    /// Has no run follow this one.
    pub fn stop(&self) {
        self.is_last.set(true);
    }
}

/// What a repeating task has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Runs begun.
    pub runs: u64,
    /// Runs that panicked.
    pub panics: u64,
    /// Instants that came, beside a run's own, before that run began: for what became of them see [`Missed`](super::Missed).
    pub missed: u64,
    /// Instants that came while a run lasted: for what became of them see [`Overlap`](super::Overlap).
    pub overlapped: u64,
    /// Missed and overlapped instants that have no run. Of a calendar at most 100,000 are counted at a time.
    pub skipped: u64,
}
