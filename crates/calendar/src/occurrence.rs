//! Runs as a preview shows them, with the effects of clock changes.

use crate::policies::DstPolicy;
use crate::zone::{beyond, next_repeating};
use core::fmt;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

/// The kind of a clock change's effect on a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ClockChange {
    /// The local time does not exist. The run is at the first instant after the gap.
    Moved,
    /// The local time does not exist, and there is no run.
    Skipped,
    /// The local time exists twice. A fixed calendar runs at the earlier instant, a repeating calendar at both.
    Doubled,
}

/// A local time of a calendar, and its run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Occurrence {
    /// The local time that the rule names.
    pub planned: DateTime,
    /// The run. `None` if it is skipped.
    pub run: Option<Run>,
    /// The effect of a clock change on the run.
    pub change: Option<ClockChange>,
}

/// A run: an instant, and the local time of the zone at that instant. Its text is the local time with the offset, after
/// RFC 3339.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Run {
    /// The instant.
    pub instant: Timestamp,
    /// The local time.
    pub local: DateTime,
    /// The offset of the local time.
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

/// More local times are not skipped one after the other before a preview ends.
const MOST_SKIPPED: usize = 1_000;

/// The next runs of a fixed rule. See [`next_fixed`](crate::zone::next_fixed).
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

/// The next runs of a repeating rule.
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
