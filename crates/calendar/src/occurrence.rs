//! Computes the runs that a preview shows, with the effects of clock changes.

use crate::policies::DstPolicy;
use crate::zone::{beyond, next_repeating};
use core::fmt;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

/// The effect that a change of the zone's clocks has on a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ClockChange {
    /// The planned local time does not exist, because clocks skip it. The run comes at the first instant after the
    /// skipped times.
    Moved,
    /// The planned local time does not exist, because clocks skip it. There is no run for it.
    Skipped,
    /// The planned local time exists twice, because clocks are set back. A fixed calendar, which names times of the
    /// day, has a run at the earlier instant. A repeating calendar, such as "each minute", has a run at both instants.
    Doubled,
}

/// A local time that a calendar's rule names, with the [`Run`] of the calendar for this local time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Occurrence {
    /// The local time that the calendar's rule names.
    pub planned: DateTime,
    /// The run for the local time. `None` if a clock change skips the local time, so that there is no run for it.
    pub run: Option<Run>,
    /// The effect of a clock change. `None` if no clock change affects the run.
    pub change: Option<ClockChange>,
}

/// A moment at which a calendar is due: an instant, with the local time and the offset of the zone at that instant.
/// [`Display`](fmt::Display) writes the local time with the offset, in the format of RFC 3339.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Run {
    /// The instant at which the calendar is due.
    pub instant: Timestamp,
    /// The local time of the zone at this instant.
    pub local: DateTime,
    /// The offset of the zone's local time from Coordinated Universal Time at this instant.
    pub offset: Offset,
}

impl Run {
    pub(super) fn new(instant: Timestamp, zone: &TimeZone) -> Self {
        let offset = zone.to_offset(instant);
        Self { instant, local: offset.to_datetime(instant), offset }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.offset.seconds();
        let (sign, minutes) = (if seconds < 0 { '-' } else { '+' }, seconds.unsigned_abs() / 60);
        write!(f, "{}{sign}{:02}:{:02}", self.local, minutes / 60, minutes % 60)
    }
}

/// The limit that keeps a preview finite. A preview of fixed times ends after this number of skipped local times, even
/// if it has fewer runs than the caller asked for. A preview of a repeating rule looks for skipped local times at no
/// more than this number of clock changes between two runs.
const MOST_SKIPPED: usize = 1_000;

/// Returns the next `count` runs of a rule for fixed times of the day. The list also has the local times that have no
/// run because clocks skip them. See [`next_fixed`](crate::zone::next_fixed).
pub(super) fn fixed(
    at_or_after: impl Fn(DateTime) -> Option<DateTime>,
    zone: &TimeZone,
    dst: DstPolicy,
    instant: Timestamp,
    count: usize,
) -> Vec<Occurrence> {
    let (mut occurrences, mut runs, mut skipped) = (Vec::new(), 0, 0);
    let (mut shown, mut last) = (zone.to_datetime(instant), instant);
    while runs < count && skipped < MOST_SKIPPED {
        let Some(planned) = beyond(shown).and_then(&at_or_after) else { break };
        shown = planned;
        let (run, change) = match zone.to_ambiguous_timestamp(planned).offset() {
            AmbiguousOffset::Unambiguous { offset } => (offset.to_timestamp(planned).ok(), None),
            AmbiguousOffset::Fold { before, .. } => {
                (before.to_timestamp(planned).ok(), Some(ClockChange::Doubled))
            }
            AmbiguousOffset::Gap { after, .. } => {
                let gap = after.to_timestamp(planned).ok().and_then(|before| zone.following(before).next());
                let change = match dst {
                    DstPolicy::Vixie => ClockChange::Moved,
                    DstPolicy::SkipGap => ClockChange::Skipped,
                };
                (gap.map(|gap| gap.timestamp()), Some(change))
            }
        };
        let Some(run) = run else { break };
        if run <= last && change != Some(ClockChange::Skipped) || run <= instant {
            continue;
        }
        if change == Some(ClockChange::Skipped) {
            skipped += 1;
            occurrences.push(Occurrence { planned, run: None, change });
        } else {
            (last, runs) = (run, runs + 1);
            occurrences.push(Occurrence { planned, run: Some(Run::new(run, zone)), change });
        }
    }
    occurrences
}

/// Returns the next `count` runs of a repeating rule, such as "each minute". The list also has the first local time
/// that each clock change skips.
pub(super) fn repeating(
    at_or_after: impl Fn(DateTime) -> Option<DateTime>,
    zone: &TimeZone,
    instant: Timestamp,
    count: usize,
) -> Vec<Occurrence> {
    let (mut occurrences, mut last) = (Vec::new(), instant);
    for _ in 0..count {
        let Some(run) = next_repeating(&at_or_after, zone, last) else { break };
        let mut offset = zone.to_offset(last);
        let gaps = zone.following(last).take_while(|transition| transition.timestamp() <= run);
        for transition in gaps.take(MOST_SKIPPED) {
            let from = offset.to_datetime(transition.timestamp());
            offset = transition.offset();
            let until = offset.to_datetime(transition.timestamp());
            let skipped = at_or_after(from).filter(|skipped| *skipped < until);
            let change = Some(ClockChange::Skipped);
            occurrences.extend(skipped.map(|planned| Occurrence { planned, run: None, change }));
        }
        let (run, last_run) = (Run::new(run, zone), run);
        let planned = run.local;
        let is_twice = matches!(zone.to_ambiguous_timestamp(planned).offset(), AmbiguousOffset::Fold { .. });
        let change = is_twice.then_some(ClockChange::Doubled);
        occurrences.push(Occurrence { planned, run: Some(run), change });
        last = last_run;
    }
    occurrences
}
