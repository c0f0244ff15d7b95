//! Converts the civil times of a rule to instants in a time zone.
//!
//! A rule is given as a function that returns the rule's first civil time at or after a given civil time. If the rule
//! is *fixed*, each of its civil times becomes one instant or none. If the rule is *repeating*, a run is due whenever a
//! clock shows one of its civil times, even if the clock shows that time twice.

use crate::policies::DstPolicy;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};

/// Returns the civil time a nanosecond after `civil`. Returns `None` if `civil` is the last civil time.
pub(super) fn beyond(civil: DateTime) -> Option<DateTime> {
    civil.checked_add(SignedDuration::from_nanos(1)).ok()
}

/// Returns the next run after `instant` of a rule for fixed times of the day.
///
/// The search takes the rule's civil times one after the other, and returns the first run that is after `instant`. No
/// later civil time has an earlier run. The search begins after the civil time that the clock shows at `instant`,
/// because the runs of this civil time and of earlier civil times are not after `instant`.
pub(super) fn next_fixed(
    at_or_after: impl Fn(DateTime) -> Option<DateTime>,
    zone: &TimeZone,
    dst: DstPolicy,
    instant: Timestamp,
) -> Option<Timestamp> {
    let mut shown = zone.to_datetime(instant);
    loop {
        let due = at_or_after(beyond(shown)?)?;
        let run = match zone.to_ambiguous_timestamp(due).offset() {
            AmbiguousOffset::Unambiguous { offset } | AmbiguousOffset::Fold { before: offset, .. } => {
                Some(offset.to_timestamp(due).ok()?)
            }
            AmbiguousOffset::Gap { after, .. } => match dst {
                // With the offset that holds after the gap, the civil time becomes an instant before the gap. So the
                // first transition after that instant is the end of the gap.
                DstPolicy::Vixie => Some(zone.following(after.to_timestamp(due).ok()?).next()?.timestamp()),
                DstPolicy::SkipGap => None,
            },
        };
        if let Some(run) = run.filter(|&run| run > instant) {
            return Some(run);
        }
        shown = due;
    }
}

/// Returns the next run after `instant` of a repeating rule, such as "each minute".
///
/// The search examines the time between two transitions of the zone as a whole. During this time the zone's offset does
/// not change, so each civil time belongs to one instant at most. If the rule's next civil time comes before the next
/// transition, its instant is the run. Otherwise the search goes on with the time after the transition.
pub(super) fn next_repeating(
    at_or_after: impl Fn(DateTime) -> Option<DateTime>,
    zone: &TimeZone,
    instant: Timestamp,
) -> Option<Timestamp> {
    let mut offset = zone.to_offset(instant);
    let mut from = beyond(offset.to_datetime(instant))?;
    let mut due = at_or_after(from);
    for transition in zone.following(instant) {
        let run = due.and_then(|due| offset.to_timestamp(due).ok());
        if run.is_some_and(|run| run < transition.timestamp()) {
            return run;
        }
        offset = transition.offset();
        let shown = offset.to_datetime(transition.timestamp());
        // After the transition, the clock shows `shown`. The rule has no civil time between `from` and `due`. So `due`
        // stays right if `shown` lies between them. Otherwise the search starts again at `shown`.
        if shown < from || due.is_some_and(|due| due < shown) {
            from = shown;
            due = at_or_after(from);
        }
    }
    offset.to_timestamp(due?).ok()
}
