//! The occurrences of a repeating task: its instants, by a period, a pause or a calendar. This is arithmetic only,
//! without a timer or a lock; the caller passes the present moment in.

use super::wall::Wall;
#[cfg(feature = "calendar")]
use crate::calendar::{Calendar, jiff};
use core::time::Duration;
use tourbillon::Timestamp;

/// Nanoseconds. For a period or a pause they count from the origin of the engine's clock, for a calendar from 1970.
pub(super) type Instant = i128;

/// The cadence of a task: the rule that spaces its instants.
#[derive(Clone, Debug)]
pub(super) enum Cadence {
    Rate(Duration),
    Pause(Duration),
    #[cfg(feature = "calendar")]
    Calendar(Calendar),
}

/// The occurrences of a task: the sequence of all its instants.
#[derive(Clone, Debug)]
pub(super) struct Occurrences {
    cadence: Cadence,
    #[cfg_attr(not(feature = "calendar"), expect(dead_code, reason = "only a calendar goes by it"))]
    wall: Wall,
}

/// The instants that have come since another instant.
pub(super) struct Elapsed {
    pub(super) count: u64,
    /// The last of them.
    pub(super) last: Instant,
}

#[cfg(feature = "calendar")]
mod by_the_calendar {
    use core::time::Duration;

    /// The longest wait without a new look at the wall clock, which may be set during the wait.
    pub(super) const STRIDE: Duration = Duration::from_secs(30);
    /// The number of instants that are counted one by one.
    pub(super) const COUNTED: u64 = 100_000;
}

impl Occurrences {
    pub(super) fn new(cadence: Cadence, wall: Wall) -> Self {
        Self { cadence, wall }
    }

    /// Whether each instant is a pause after the end of a run.
    pub(super) fn has_pauses(&self) -> bool {
        matches!(self.cadence, Cadence::Pause(_))
    }

    /// The present moment as an instant of these occurrences.
    pub(super) fn instant(&self, now: Timestamp) -> Instant {
        match self.cadence {
            Cadence::Rate(_) | Cadence::Pause(_) => Instant::from(now.as_nanos()),
            #[cfg(feature = "calendar")]
            Cadence::Calendar(_) => since_1970(self.wall.at(now)),
        }
    }

    /// The moment at which to look at an instant that is to come.
    #[cfg_attr(not(feature = "calendar"), expect(unused_variables, reason = "of the wall clock"))]
    pub(super) fn deadline(&self, instant: Instant, now: Timestamp) -> Timestamp {
        match self.cadence {
            Cadence::Rate(_) | Cadence::Pause(_) => {
                Timestamp::from_nanos(u64::try_from(instant.max(0)).unwrap_or(u64::MAX))
            }
            #[cfg(feature = "calendar")]
            Cadence::Calendar(_) => {
                let wait = u128::try_from(instant - self.instant(now)).unwrap_or(0);
                let wait = nanoseconds(wait);
                let stride = by_the_calendar::STRIDE;
                now + if self.wall.may_be_set() { wait.min(stride) } else { wait }
            }
        }
    }

    /// The instant after `instant`. With a pause: the instant of the run that follows a run which ends at `instant`.
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

    /// The instants after `instant`, which is one of the occurrences, that have come by `now`.
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
                    // The next instant can be found from any instant, so the rest need not be counted.
                    elapsed.last = if elapsed.count < by_the_calendar::COUNTED { next } else { now };
                }
                elapsed
            }
        }
    }

    /// The next instant of occurrences that start again at `now`; `None` for a calendar, which has no other start.
    pub(super) fn rebased(&self, now: Instant) -> Option<Instant> {
        match self.cadence {
            Cadence::Rate(_) | Cadence::Pause(_) => self.after(now),
            #[cfg(feature = "calendar")]
            Cadence::Calendar(_) => None,
        }
    }

    /// The instant by the calendar; `None` for a task that has a period.
    #[cfg(feature = "calendar")]
    pub(super) fn calendar_instant(&self, instant: Instant) -> Option<jiff::Timestamp> {
        matches!(self.cadence, Cadence::Calendar(_)).then(|| timestamp(instant)).flatten()
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
