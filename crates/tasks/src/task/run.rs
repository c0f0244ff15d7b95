//! Describes a run to the closure that it calls.

use super::occurrences::{Instant, Occurrences, nanoseconds};
use super::progress::Begun;
#[cfg(feature = "calendar")]
use crate::calendar::jiff;
use core::cell::Cell;
use core::time::Duration;
use tourbillon::Timestamp;

/// A run of a repeating task: the argument of the task's closure.
#[derive(Debug)]
#[non_exhaustive]
pub struct Run {
    /// The number of the run, counted from 1.
    pub number: u64,
    /// The moment for which the run was planned, on the engine's clock.
    pub scheduled: Timestamp,
    /// The time between the planned moment and the start of the run.
    pub lateness: Duration,
    /// The number of further planned moments between this run's planned moment and the start of the run. Planned
    /// moments that an earlier run has counted are left out.
    pub missed: u64,
    /// The planned moment of the run as a calendar time; `None` for a task with a period or a pause.
    #[cfg(feature = "calendar")]
    pub instant: Option<jiff::Timestamp>,
    pub(super) is_last: Cell<bool>,
}

impl Run {
    #[cfg_attr(not(feature = "calendar"), expect(unused_variables, reason = "of the calendar"))]
    pub(super) fn new(begun: &Begun, occurrences: &Occurrences, present: Instant, now: Timestamp) -> Self {
        let late = u128::try_from(present - begun.instant).unwrap_or(0);
        let lateness = nanoseconds(late);
        Self {
            number: begun.number,
            scheduled: Timestamp::ZERO + ((now - Timestamp::ZERO).saturating_sub(lateness)),
            lateness,
            missed: begun.missed,
            #[cfg(feature = "calendar")]
            instant: occurrences.calendar_instant(begun.instant),
            is_last: Cell::new(false),
        }
    }

    /// Ends the task, so that this run is its last run.
    pub fn stop(&self) {
        self.is_last.set(true);
    }
}
