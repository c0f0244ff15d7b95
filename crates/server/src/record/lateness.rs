//! Records how late deliveries begin, by the second of the minute in which they were due. Many timers are due at full
//! minutes, so the first second shows their lateness, which an average over whole minutes would hide.

use super::percentiles::Percentiles;
use std::sync::{Mutex, PoisonError};
use tourbillon_api::SecondLateness;
use tourbillon_durable::UtcMillis;

/// The length of a slice of time, in milliseconds: five minutes. Lateness is kept and forgotten in whole slices.
const SLICE: u64 = 300_000;
/// The number of kept slices: the present slice of five minutes, and the twelve slices of the hour before it.
const SLICES: usize = 13;

/// The lateness of the deliveries that began in the last 60 to 65 minutes, in 60 groups. Group 0 has the deliveries
/// that were due in the first second of any minute, and group 59 has the deliveries that were due in the last second.
#[derive(Debug, Default)]
pub(crate) struct LatenessBySecond(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The number of the latest slice. A slice is a span of five minutes. The slices are numbered from 1970 on.
    latest: u64,
    /// The lateness of the deliveries that began in each slice (a span of five minutes), in 60 groups by the second of
    /// the minute in which the deliveries were due. The index of a slice is its number modulo the length of the array.
    /// `None` if no delivery began in the slice.
    slices: [Option<Box<[Percentiles; 60]>>; SLICES],
}

impl Inner {
    /// Forgets the slices (spans of five minutes) that are older than an hour at `now`. If the clock was set back by
    /// more than an hour, forgets all slices: otherwise none would be forgotten until the clock has caught up. Forgets
    /// nothing if the clock was set back by less.
    fn advance(&mut self, now: UtcMillis) {
        let slice = now.as_millis() / SLICE;
        if self.latest.saturating_sub(slice) > SLICES as u64 {
            *self = Self { latest: slice, ..Self::default() };
        }
        // Further steps would clear the same places again.
        let steps = slice.saturating_sub(self.latest).min(SLICES as u64);
        for step in 0..steps {
            self.slices[place(slice - step)] = None;
        }
        self.latest = self.latest.max(slice);
    }
}

fn place(slice: u64) -> usize {
    // The remainder is less than `SLICES`, so the conversion does not fail.
    usize::try_from(slice % SLICES as u64).unwrap_or(0)
}

impl LatenessBySecond {
    fn at<T>(&self, now: UtcMillis, act: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.advance(now);
        act(&mut inner)
    }

    /// Records the lateness of a delivery that was due at `due` and begins at `now`.
    pub(crate) fn note(&self, due: UtcMillis, now: UtcMillis) {
        self.at(now, |inner| {
            // After the clock was set back, the place of the slice of `now` may already belong to a later slice. So the
            // delivery counts in the latest slice.
            let slice = inner.slices[place(inner.latest)]
                .get_or_insert_with(|| Box::new(core::array::from_fn(|_| Percentiles::default())));
            let second = usize::try_from(due.as_millis() / 1_000 % 60).unwrap_or(0);
            slice[second].record(now.as_millis().saturating_sub(due.as_millis()));
        });
    }

    /// Returns the lateness of the last hour's deliveries, in 60 groups. Group 0 has the deliveries that were due in
    /// the first second of any minute, and group 59 has the deliveries that were due in the last second.
    pub(crate) fn show(&self, now: UtcMillis) -> Vec<SecondLateness> {
        self.at(now, |inner| {
            let cell = |second: usize| {
                let mut all = Percentiles::default();
                inner.slices.iter().flatten().for_each(|slice| all.add(&slice[second]));
                let p99_ms = all.percentile(99.0).unwrap_or(0);
                SecondLateness { count: all.count(), max_ms: all.max(), p99_ms }
            };
            (0..60).map(cell).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> UtcMillis {
        UtcMillis::from_millis(1_800_000_000_000 + millis)
    }

    #[test]
    fn a_delivery_counts_in_the_second_of_its_due_moment_for_an_hour() {
        let seconds = LatenessBySecond::default();
        seconds.note(at(2_000), at(2_000));
        for late in 1..=100 {
            seconds.note(at(60_999), at(60_999 + late));
        }
        let shown = seconds.show(at(70_000));
        assert_eq!(shown.len(), 60);
        assert_eq!(shown[2], SecondLateness { count: 1, max_ms: 0, p99_ms: 0 });
        assert_eq!((shown[0].count, shown[0].max_ms), (100, 100));
        assert!((99..=100).contains(&shown[0].p99_ms), "{:?}", shown[0]);
        assert_eq!(shown.iter().map(|cell| cell.count).sum::<u64>(), 101);
        // The slice began at a multiple of five minutes. It is kept for an hour after its end.
        assert_eq!(seconds.show(at(3_600_000))[0].count, 100);
        assert_eq!(seconds.show(at(3_900_000))[0].count, 0);
        // After the clock was set back by an hour, all kept slices are shown.
        seconds.note(at(3_900_500), at(3_900_700));
        assert_eq!(seconds.show(at(0))[0].count, 1);
        // After it was set back by more, the deliveries are forgotten after an hour all the same.
        seconds.note(at(400 * 86_400_000), at(400 * 86_400_000));
        seconds.note(at(300), at(700));
        let shown = seconds.show(at(800));
        assert_eq!((shown[0].count, shown[0].max_ms), (1, 400));
        assert_eq!(seconds.show(at(3_900_000))[0].count, 0);
    }
}
