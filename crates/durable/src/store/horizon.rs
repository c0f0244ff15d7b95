//! Counts pending timers by the time until they are due.

use core::time::Duration;
use tourbillon_words::UtcMillis;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The ends of a [`Horizon`]'s spans, as times from now. The last span has no end, so it has no entry here.
const WITHIN: [Duration; 10] = [
    Duration::ZERO,
    Duration::from_secs(MINUTE),
    Duration::from_secs(10 * MINUTE),
    Duration::from_secs(HOUR),
    Duration::from_secs(6 * HOUR),
    Duration::from_secs(DAY),
    Duration::from_secs(7 * DAY),
    Duration::from_secs(30 * DAY),
    Duration::from_secs(365 * DAY),
    Duration::from_secs(3_650 * DAY),
];

/// The index of the entry of one hour in [`WITHIN`]. The spans up to this index end exactly at the times in `WITHIN`.
/// The end of a later span is rounded up to the end of an hour of UTC.
pub(crate) const AN_HOUR: usize = 3;

/// The counts of pending timers by the time until they are due. The time is divided into spans, and later spans are
/// longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Horizon {
    /// The store's time when it counted the timers. The first span ends at this moment.
    pub now: UtcMillis,
    /// The spans of time, in order. Each span begins at the end of the previous span. The first span counts the timers
    /// that are already due. The next spans end in 1 minute, 10 minutes, 1 hour, 6 hours, 1 day, 7 days, 30 days, 365
    /// days and 3,650 days. The last span has no end.
    pub spans: Vec<Span>,
    /// The number of pending timers that no span counts. These timers are due in spans whose counts are not exact
    /// ([`Span::is_exact`]).
    pub unplaced: u64,
}

/// A span of time in a [`Horizon`], with the count of the timers that are due in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The time from [`Horizon::now`] to the end of the span. Zero for the span of timers that are already due, and
    /// `None` for the last span.
    pub within: Option<Duration>,
    /// The last moment of the span. If `within` is 6 hours or more, this is the last millisecond of an hour of UTC, up
    /// to an hour later than `within` says.
    pub until: UtcMillis,
    /// The number of pending timers that are due in this span.
    pub count: u64,
    /// Whether `count` includes all timers of the span. Otherwise `count` is a lower bound.
    pub is_exact: bool,
}

impl Horizon {
    /// Makes a horizon at the moment `now` with counts of zero, to which a store [adds](Self::add) its timers.
    ///
    /// ```
    /// use tourbillon_durable::UtcMillis;
    /// use tourbillon_durable::store::Horizon;
    ///
    /// let horizon = Horizon::empty(UtcMillis::ZERO);
    /// assert_eq!((horizon.spans.len(), horizon.placed()), (11, 0));
    /// ```
    #[must_use]
    pub fn empty(now: UtcMillis) -> Self {
        let spans = WITHIN.into_iter().enumerate().map(|(nth, within)| {
            let end = now + within;
            let until = if nth <= AN_HOUR { end } else { end_of_hour(end) };
            Span { within: Some(within), until, count: 0, is_exact: true }
        });
        let last = Span { within: None, until: UtcMillis::MAX, count: 0, is_exact: true };
        Self { now, spans: spans.chain([last]).collect(), unplaced: 0 }
    }

    /// Adds `timers` to the count of the span that contains the due moment `due`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::UtcMillis;
    /// use tourbillon_durable::store::Horizon;
    ///
    /// let now = UtcMillis::from_millis(1_800_000_000_000);
    /// let mut horizon = Horizon::empty(now);
    /// horizon.add(now, 3);
    /// horizon.add(now + Duration::from_secs(61), 2);
    /// let counts: Vec<u64> = horizon.spans.iter().map(|span| span.count).collect();
    /// assert_eq!(counts, [3, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
    /// ```
    pub fn add(&mut self, due: UtcMillis, timers: u64) {
        let nth = self.span_of(due);
        if let Some(span) = self.spans.get_mut(nth) {
            // The numbers of a damaged database may be of any size.
            span.count = span.count.saturating_add(timers);
        }
    }

    /// Returns the index of the span that contains a due moment.
    pub(crate) fn span_of(&self, due: UtcMillis) -> usize {
        self.spans.partition_point(|span| span.until < due)
    }

    /// Returns the sum of the counts of all spans.
    ///
    /// ```
    /// use tourbillon_durable::UtcMillis;
    /// use tourbillon_durable::store::Horizon;
    ///
    /// let mut horizon = Horizon::empty(UtcMillis::ZERO);
    /// horizon.add(UtcMillis::ZERO, 3);
    /// horizon.add(UtcMillis::MAX, 2);
    /// assert_eq!(horizon.placed(), 5);
    /// ```
    #[must_use]
    pub fn placed(&self) -> u64 {
        self.spans.iter().fold(0, |sum, span| sum.saturating_add(span.count))
    }
}

/// Returns the number of whole hours from the start of 1970 to a moment.
pub(crate) fn hour_of(moment: UtcMillis) -> u32 {
    // The last possible moment is in the year 9999, so the number of each hour fits in 32 bits.
    u32::try_from(moment.as_millis() / (HOUR * 1_000)).unwrap_or(u32::MAX)
}

/// Returns the first moment of an hour. `hour` is the number that [`hour_of`] returns for this hour.
pub(crate) fn start_of(hour: u32) -> UtcMillis {
    UtcMillis::from_millis(u64::from(hour) * HOUR * 1_000)
}

fn end_of_hour(moment: UtcMillis) -> UtcMillis {
    UtcMillis::from_millis((u64::from(hour_of(moment)) + 1) * HOUR * 1_000 - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spans_follow_each_other_and_the_later_ones_end_with_an_hour() {
        let far = UtcMillis::MAX.as_millis() - 2 * 3_600_000;
        for now in [0, 1_800_000_000_000, 1_800_003_599_999, 1_800_003_600_001, far] {
            let now = UtcMillis::from_millis(now);
            let horizon = Horizon::empty(now);
            assert!(horizon.spans.is_sorted_by_key(|span| span.until));
            for (nth, span) in horizon.spans.iter().enumerate() {
                let Some(within) = span.within else { continue };
                assert!(
                    span.until >= now + within && span.until - (now + within) < Duration::from_secs(HOUR)
                );
                assert!(nth > AN_HOUR || span.until == now + within);
                let after = span.until + Duration::from_millis(1);
                assert!(nth <= AN_HOUR || after == UtcMillis::MAX || after == start_of(hour_of(after)));
                assert!(span.until == UtcMillis::MAX || horizon.span_of(span.until) == nth);
                assert!(span.until == UtcMillis::MAX || horizon.span_of(after) > nth);
            }
            assert_eq!(horizon.spans.last().map(|span| span.until), Some(UtcMillis::MAX));
        }
    }
}
