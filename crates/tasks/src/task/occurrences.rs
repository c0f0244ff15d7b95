//! Computes the instants at which a repeating task runs, by a period, a pause or a calendar. An instant is the planned
//! moment of a run. The code here uses no timer and no lock. The caller passes in the present moment.

use super::wall::Wall;
#[cfg(feature = "calendar")]
use crate::calendar::{Calendar, jiff};
use core::time::Duration;
use tourbillon::Timestamp;

/// The planned moment of a run, in nanoseconds. With a period or a pause, the moment counts from the start of the
/// engine's clock. With a calendar, it counts from 1970.
pub(super) type Instant = i128;

/// The rule that spaces the instants (planned moments of the runs) of a task.
#[derive(Clone, Debug)]
pub(super) enum Cadence {
    Rate(Duration),
    Pause(Duration),
    #[cfg(feature = "calendar")]
    Calendar(Calendar),
}

/// Computes the instants (planned moments of the runs) of a task from the rule that spaces them. For a calendar, also
/// has the wall clock.
#[derive(Clone, Debug)]
pub(super) struct Occurrences {
    cadence: Cadence,
    #[cfg_attr(not(feature = "calendar"), expect(dead_code, reason = "only a calendar goes by it"))]
    wall: Wall,
}

/// The result of [`Occurrences::elapsed`]: the number of a task's instants (planned moments of runs) that have passed
/// since the instant that the caller gave, and the last of them.
pub(super) struct Elapsed {
    pub(super) count: u64,
    /// The last instant that has passed. If none has passed since the instant that the caller gave, this is the
    /// caller's instant.
    pub(super) last: Instant,
}

#[cfg(feature = "calendar")]
mod by_the_calendar {
    use core::time::Duration;

    /// The longest time for which a waiting task sleeps before it reads the wall clock again. The clock may have been
    /// set.
    pub(super) const STRIDE: Duration = Duration::from_secs(30);
    /// The largest number of missed instants that [`Occurrences::elapsed`](super::Occurrences::elapsed) counts for a
    /// calendar in one call.
    pub(super) const COUNTED: u64 = 100_000;
}

impl Occurrences {
    pub(super) fn new(cadence: Cadence, wall: Wall) -> Self {
        Self { cadence, wall }
    }

    /// Returns whether the task's runs are spaced by a pause: each instant follows the end of the previous run.
    pub(super) fn has_pauses(&self) -> bool {
        matches!(self.cadence, Cadence::Pause(_))
    }

    /// Converts the present moment `now` into an instant, on the clock by which the task's instants are counted.
    pub(super) fn instant(&self, now: Timestamp) -> Instant {
        match self.cadence {
            Cadence::Rate(_) | Cadence::Pause(_) => Instant::from(now.as_nanos()),
            #[cfg(feature = "calendar")]
            Cadence::Calendar(_) => since_1970(self.wall.at(now)),
        }
    }

    /// Returns the moment at which a task that waits for `instant` must wake up. For a calendar, the moment may be
    /// before the instant, because the task must read the wall clock again. Only a calendar calls `now`.
    #[cfg_attr(not(feature = "calendar"), expect(unused_variables, reason = "of the wall clock"))]
    pub(super) fn deadline(&self, instant: Instant, now: impl FnOnce() -> Timestamp) -> Timestamp {
        match self.cadence {
            Cadence::Rate(_) | Cadence::Pause(_) => {
                Timestamp::from_nanos(u64::try_from(instant.max(0)).unwrap_or(u64::MAX))
            }
            #[cfg(feature = "calendar")]
            Cadence::Calendar(_) => {
                let now = now();
                let wait = u128::try_from(instant - self.instant(now)).unwrap_or(0);
                let wait = nanoseconds(wait);
                let stride = by_the_calendar::STRIDE;
                now + if self.wall.may_be_set() { wait.min(stride) } else { wait }
            }
        }
    }

    /// Returns the instant (planned moment of a run) after `instant`. If a pause spaces the task's runs, `instant` is
    /// the end of a run, and the result is the start of the next run. Returns `None` if a calendar has no further
    /// instant.
    pub(super) fn after(&self, instant: Instant) -> Option<Instant> {
        match &self.cadence {
            Cadence::Rate(span) | Cadence::Pause(span) => Some(instant.saturating_add(nanos(*span))),
            #[cfg(feature = "calendar")]
            Cadence::Calendar(calendar) => {
                let next = calendar.next_after(timestamp(instant)?)?;
                Some(next.as_nanosecond())
            }
        }
    }

    /// Counts the instants (planned moments of the task's runs) after `instant` up to `now`. With a period, `instant`
    /// must itself be the planned moment of a run.
    pub(super) fn elapsed(&self, instant: Instant, now: Instant) -> Elapsed {
        match &self.cadence {
            Cadence::Rate(period) => {
                let count = (now - instant).max(0) / nanos(*period);
                Elapsed {
                    count: u64::try_from(count).unwrap_or(u64::MAX),
                    last: instant + count * nanos(*period),
                }
            }
            Cadence::Pause(_) => Elapsed { count: 0, last: instant },
            #[cfg(feature = "calendar")]
            Cadence::Calendar(_) => {
                let mut elapsed = Elapsed { count: 0, last: instant };
                while let Some(next) = self.after(elapsed.last).filter(|&next| next <= now) {
                    elapsed.count += 1;
                    // At the limit, `now` becomes the last instant, which ends the loop. This is right for a calendar,
                    // because it can find its next instant from any moment.
                    elapsed.last = if elapsed.count < by_the_calendar::COUNTED { next } else { now };
                }
                elapsed
            }
        }
    }

    /// Returns the next instant of a task whose period starts again at `now`; `None` for a calendar, which cannot be
    /// shifted.
    pub(super) fn rebased(&self, now: Instant) -> Option<Instant> {
        match self.cadence {
            Cadence::Rate(_) | Cadence::Pause(_) => self.after(now),
            #[cfg(feature = "calendar")]
            Cadence::Calendar(_) => None,
        }
    }

    /// Returns the instant `instant` as a calendar time; `None` for a task with a period or a pause.
    #[cfg(feature = "calendar")]
    pub(super) fn calendar_instant(&self, instant: Instant) -> Option<jiff::Timestamp> {
        matches!(self.cadence, Cadence::Calendar(_)).then(|| timestamp(instant)).flatten()
    }
}

fn nanos(span: Duration) -> Instant {
    Instant::try_from(span.as_nanos()).unwrap_or(Instant::MAX)
}

/// Returns a duration of `nanos` nanoseconds. If that is too long for a `Duration`, returns the longest duration.
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
