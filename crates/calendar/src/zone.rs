//! The conversion of the civil times of a rule to instants in a time zone.
//!
//! A rule's civil times are given as a function, which returns the rule's first civil time at or after a given civil
//! time. The civil times of a *fixed* rule are runs, and each is converted to one instant, or to none. The civil times
//! of a *repeating* rule are the times that a clock shows when a run is due, however often it shows them.

use crate::policies::DstPolicy;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};

/// The civil time right after `civil`.
pub(super) fn beyond(civil: DateTime) -> Option<DateTime> {
    civil.checked_add(SignedDuration::from_nanos(1)).ok()
}

/// The next run of a fixed rule.
///
/// A later civil time never becomes an earlier instant. So the next run is the first civil time that becomes an instant
/// after `instant`. Neither the civil time that the clock shows at `instant` nor any earlier time becomes such an
/// instant.
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
                // The offset after the gap leads to an instant before the gap.
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

/// The next run of a repeating rule.
///
/// Between two transitions of the zone a clock shows each civil time once, and in order.
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
        // Nothing is due from `from` to `due`.
        if shown < from || due.is_some_and(|due| due < shown) {
            from = shown;
            due = at_or_after(from);
        }
    }
    offset.to_timestamp(due?).ok()
}
